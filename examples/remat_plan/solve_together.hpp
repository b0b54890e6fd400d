// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "progress_line.hpp"
#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/run.hpp"
#include "remat/memory/plan.hpp"
#include "remat/schedule/detail/schedule_bytes.hpp"
#include "remat/solver/detail/solution_bytes.hpp"
#include "remat/solver/frontier.hpp"
#include "search.hpp"

namespace remat_plan {

/// Outcomes as bytes: those of a solve, with its arenas. All ranks run the same program.
class outcome_bytes {
 public:
  static void put(remat::detail::byte_writer& out, const outcome& o) {
    out.put(o.solver);
    out.put(o.budget);
    out.put(o.status);
    out.put_optional(o.peak);
    out.put_optional(o.time);
    out.put_optional(o.lower_bound);
    remat::detail::put(out, o.plan);
    put(out, o.memory);
    out.put_optional(o.host_peak);
    put(out, o.host_memory);
    out.put(o.binds_arena);
    out.put(o.streams.has_value());
    if (o.streams) {
      out.put(o.streams->makespan);
      out.put(o.streams->critical_path);
    }
    out.put(o.recomputes);
    out.put(o.seconds);
    out.put(o.by);
    out.put(o.message);
    remat::detail::put(out, o.own);
  }
  [[nodiscard]] static outcome get(remat::detail::byte_reader& in) {
    outcome o;
    in.get(o.solver);
    in.get(o.budget);
    in.get(o.status);
    in.get_optional(o.peak);
    in.get_optional(o.time);
    in.get_optional(o.lower_bound);
    o.plan = remat::detail::get_optional_schedule(in);
    o.memory = get_memory(in);
    in.get_optional(o.host_peak);
    o.host_memory = get_memory(in);
    in.get(o.binds_arena);
    if (in.get<bool>()) {
      o.streams.emplace();
      in.get(o.streams->makespan);
      in.get(o.streams->critical_path);
    }
    in.get(o.recomputes);
    in.get(o.seconds);
    in.get(o.by);
    in.get(o.message);
    o.own = remat::detail::get_figures(in);
    return o;
  }

 private:
  static void put(remat::detail::byte_writer& out, const std::optional<remat::memory_plan>& memory) {
    out.put(memory.has_value());
    if (!memory) return;
    out.put(memory->offsets);
    out.put(memory->arena_bytes);
    out.put(memory->lower_bound);
    out.put(memory->alignment);
    out.put(memory->optimal);
    out.put(memory->statistics.moves);
    out.put(memory->statistics.nodes);
    out.put(memory->statistics.work);
    out.put(memory->statistics.seconds);
    out.put(memory->statistics.stopped);
  }
  [[nodiscard]] static std::optional<remat::memory_plan> get_memory(remat::detail::byte_reader& in) {
    if (!in.get<bool>()) return std::nullopt;
    remat::memory_plan memory;
    in.get(memory.offsets);
    in.get(memory.arena_bytes);
    in.get(memory.lower_bound);
    in.get(memory.alignment);
    in.get(memory.optimal);
    in.get(memory.statistics.moves);
    in.get(memory.statistics.nodes);
    in.get(memory.statistics.work);
    in.get(memory.statistics.seconds);
    in.get(memory.statistics.stopped);
    return memory;
  }
};

inline constexpr const char* solve_kind = "remat-plan solve";

/// How ranks other than 0 solve: a piece is the number of a solver and a budget. `what` and `solvers` are those of the
/// same input and arguments on all ranks, and outlive the kind.
[[nodiscard]] inline remat::piece_kind solve_pieces(
    const subject& what, const std::vector<named_solver>& solvers,
    const std::function<void(outcome&, const std::stop_token&)>& finish) {
  const auto run_piece = [&what, &solvers, finish](std::span<const std::byte> piece, const remat::run_control& run) {
    remat::detail::byte_reader in(piece);
    const auto solver = in.get<std::uint64_t>();
    const auto budget = in.get<std::int64_t>();
    subject here = what;
    here.least_bytes = 0;  // rank 0 has tested that
    outcome o = guarded(here, solvers.at(static_cast<std::size_t>(solver)), budget, run);
    finish(o, run.stop);
    remat::detail::byte_writer out;
    outcome_bytes::put(out, o);
    return out.take();
  };
  return {solve_kind, [run_piece](std::span<const std::byte>) { return run_piece; }};
}

/// The outcomes of all solvers and budgets: each solver's in the order of `budgets`. Each pair is a piece with the
/// whole limits, which any rank solves. As in `solve_budgets`, schedules for smaller budgets answer for larger ones.
[[nodiscard]] inline std::vector<std::vector<outcome>> solve_together(
    const solving& common, const std::vector<named_solver>& solvers, const std::vector<std::int64_t>& budgets,
    const std::function<void(outcome&, const std::stop_token&)>& finish) {
  struct place {
    std::size_t solver, budget;
  };
  std::vector<std::vector<outcome>> all(solvers.size(), std::vector<outcome>(budgets.size()));
  std::vector<place> places;  // of the pieces
  for (std::size_t s = 0; s < solvers.size(); ++s)
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      if (std::find(budgets.begin(), budgets.begin() + static_cast<std::ptrdiff_t>(b), budgets[b]) !=
          budgets.begin() + static_cast<std::ptrdiff_t>(b))
        continue;
      if (budgets[b] < common.what->least_bytes)
        all[s][b] = guarded(*common.what, solvers[s], budgets[b], common.run);
      else
        places.push_back({s, b});
    }
  remat::piece_list pieces;
  pieces.count = places.size();
  // Small budgets are hard.
  pieces.size = [&](std::size_t k) { return 1 / (1 + static_cast<double>(budgets[places[k].budget])); };
  pieces.limits = [&](std::size_t, std::size_t) { return common.run; };
  pieces.run = [&](std::size_t k, const remat::run_control& run) {
    outcome& o = all[places[k].solver][places[k].budget];
    o = guarded(*common.what, solvers[places[k].solver], budgets[places[k].budget], run);
    finish(o, run.stop);
  };
  pieces.report = [&](std::size_t finished) {
    common.line->update({.stage = "solves", .done = finished, .total = places.size()});
  };
  pieces.kind = solve_kind;
  pieces.encode = [&](std::size_t k) {
    remat::detail::byte_writer out;
    out.put<std::uint64_t>(places[k].solver);
    out.put(budgets[places[k].budget]);
    return out.take();
  };
  pieces.take = [&](std::size_t k, std::span<const std::byte> result) {
    remat::detail::byte_reader in(result);
    all[places[k].solver][places[k].budget] = outcome_bytes::get(in);
  };
  common.line->begin(std::to_string(places.size()) + " solves, several at a time", remat::run_control{}.time_limit);
  remat::run_pieces(pieces, common.run);
  common.line->finish();
  for (std::size_t s = 0; s < solvers.size(); ++s) carry_over_budgets(solvers[s], budgets, all[s]);
  return all;
}

}  // namespace remat_plan
