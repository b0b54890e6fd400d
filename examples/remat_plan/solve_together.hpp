// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "progress_line.hpp"
#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/portable_pieces.hpp"
#include "remat/core/run.hpp"
#include "remat/memory/plan.hpp"
#include "remat/schedule/detail/schedule_bytes.hpp"
#include "remat/solver/detail/solution_bytes.hpp"
#include "remat/solver/frontier.hpp"
#include "search.hpp"

namespace remat_plan {

/// The fields of an arena that may be missing.
void arena_fields(auto& bytes, auto& memory) {
  bool is_there = memory.has_value();
  bytes(is_there);
  if (!is_there) return;
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(memory)>>)
    if (!memory) memory.emplace();
  bytes(memory->offsets, memory->arena_bytes, memory->lower_bound, memory->alignment, memory->optimal);
  auto& figures = memory->statistics;
  bytes(figures.moves, figures.nodes, figures.work, figures.seconds, figures.stopped);
}

void fields_of(auto& bytes, remat::detail::maybe_const<overlap> auto& x) { bytes(x.makespan, x.critical_path); }

/// The fields of the outcome of a solve, with its arenas, as bytes. All ranks run the same program.
void fields_of(auto& bytes, remat::detail::maybe_const<outcome> auto& o) {
  bytes(o.solver, o.budget, o.status, o.peak, o.time, o.lower_bound, o.plan, o.host_peak, o.binds_arena, o.streams,
        o.recomputes, o.seconds, o.by, o.message, o.own);
  arena_fields(bytes, o.memory);
  arena_fields(bytes, o.host_memory);
}

inline constexpr const char* solve_kind = "remat-plan solve";

/// How ranks other than 0 solve: a piece is the number of a solver and a budget. `what` and `solvers` are those of the
/// same input and arguments on all ranks, and outlive the kind.
[[nodiscard]] inline remat::piece_kind solve_pieces(
    const subject& what, const std::vector<named_solver>& solvers,
    const std::function<void(outcome&, const std::stop_token&)>& finish) {
  return remat::detail::portable_kind<std::pair<std::size_t, std::int64_t>>(
      solve_kind, [&what, &solvers, finish](remat::detail::byte_reader&) {
        return [&what, &solvers, finish](const auto& place, const remat::run_control& run) {
          subject here = what;
          here.least_bytes = 0;  // rank 0 has tested that
          outcome o = guarded(here, solvers.at(place.first), place.second, run);
          finish(o, run.stop);
          return o;
        };
      });
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
  remat::detail::let_others_run<outcome>(
      pieces, solve_kind, [](remat::detail::byte_writer&) {},
      [&](std::size_t k) { return std::pair(places[k].solver, budgets[places[k].budget]); },
      [&](std::size_t k, outcome found) { all[places[k].solver][places[k].budget] = std::move(found); });
  common.line->begin(std::to_string(places.size()) + " solves, several at a time", remat::run_control{}.time_limit);
  remat::run_pieces(pieces, common.run);
  common.line->finish();
  for (std::size_t s = 0; s < solvers.size(); ++s) carry_over_budgets(solvers[s], budgets, all[s]);
  return all;
}

}  // namespace remat_plan
