// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/chain/detail/stage_ways.hpp"
#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/find_ways.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/twremat.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// A solver's answer as that of a sub-solver. Throws `std::bad_alloc` if memory ran out: what is searched for would not
/// be what the limits alone allow.
[[nodiscard]] inline sub_solution to_sub_solution(solution s) {
  if (s.out_of_memory) throw std::bad_alloc();
  return {std::move(s.plan), s.time, s.lower_bound, s.statistics.work};
}

/// `refined` from `starts`, as a sub-solver.
[[nodiscard]] inline sub_solution solve_refined(const problem& p, std::span<const schedule> starts,
                                                const run_control& run) {
  refined_options options;
  options.starts.assign(starts.begin(), starts.end());
  options.gap = 0;
  options.run = run;
  return to_sub_solution(refined(p, options));
}

/// `twremat` with one tree decomposition, as a sub-solver.
[[nodiscard]] inline sub_solution solve_twremat(const problem& p, const run_control& run) {
  twremat_options options;
  options.attempts = 1;
  options.retain_rounds = 2;
  options.run = run;
  return to_sub_solution(twremat(p, options));
}

/// The default solvers of sub-graphs, a `sub_solver_set`: `refined`, and `twremat` for tight budgets.
struct default_sub_solvers {
  [[nodiscard]] sub_solution thorough(const problem& p, std::span<const schedule> starts,
                                      const run_control& run) const {
    return solve_refined(p, starts, run);
  }
  [[nodiscard]] bool has_tight() const noexcept { return true; }
  [[nodiscard]] sub_solution tight(const problem& p, const run_control& run) const { return solve_twremat(p, run); }
  [[nodiscard]] std::vector<schedule> starts(std::size_t, const sub_graph_runs&, std::int64_t, std::int64_t,
                                             run_clock&) const {
    return {};
  }
};

/// The same for other processes, too.
struct portable_sub_solvers final : default_sub_solvers {
  static constexpr std::string_view name = "ways";
  [[nodiscard]] std::string_view kind() const noexcept { return name; }
  struct answer {};  // they return nothing beside the ways
  void share(byte_writer&) const {}
  [[nodiscard]] answer question(std::size_t) const { return {}; }
  void take(const answer&) const {}
};

void fields_of(auto&, maybe_const<portable_sub_solvers::answer> auto&) {}

/// How other processes find ways by `portable_sub_solvers`.
[[nodiscard]] inline piece_kind portable_ways() {
  using nothing = portable_sub_solvers::answer;
  return portable_kind<std::pair<way_question, nothing>>(portable_sub_solvers::name, [](byte_reader&) {
    return [](const auto& question, const run_control& run) {
      return std::pair(find_way_elsewhere(question.first, portable_sub_solvers{}, run), nothing{});
    };
  });
}

/// A way with its operations under other indices: `names` has the one of each operation of the sub-graph.
[[nodiscard]] inline stage_way in_names(const sub_graph_way& way, std::span<const std::uint32_t> names) {
  stage_way out;
  for (const std::uint32_t o : way.forward) out.forward.push_back(names[o]);
  for (const std::uint32_t o : way.backward) out.backward.push_back(names[o]);
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
