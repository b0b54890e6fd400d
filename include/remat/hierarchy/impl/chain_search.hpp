// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/chain_search.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat {

REMAT_INLINE operation_hierarchy partition_at_levels(const flat_graph& g, std::vector<std::uint8_t> forward) {
  constexpr std::uint32_t none = operation_hierarchy::none;
  if (forward.empty()) forward = forward_operations(g);
  if (forward.size() != g.num_operations)
    throw bad_argument("forward has " + std::to_string(forward.size()) + " entries; there are " +
                       std::to_string(g.num_operations) + " operations");
  std::vector<std::uint32_t> first, second;
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o]) (forward[o] ? first : second).push_back(o);
  const forward_line line = make_forward_line(g, std::move(first), std::move(second));
  const auto n = static_cast<std::uint32_t>(line.operations.size());
  std::vector<std::uint32_t> group_of(g.num_operations, none), parent;
  // From the coarsest level down: the innermost group so far of each place of the line, and its segment.
  std::vector<std::uint32_t> inside(n, none);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> segment_of_group;
  const std::vector<cut_list> levels = cut_levels(line, n);
  for (std::size_t k = levels.size(); k-- > 0;) {
    cut_list ends = levels[k];
    ends.push_back(n);
    std::uint32_t begin = 0;
    for (const std::uint32_t end : ends) {
      const std::pair<std::uint32_t, std::uint32_t> segment{begin, end};
      const std::uint32_t outer = begin < n ? inside[begin] : none;
      const bool known = outer == none ? segment == std::pair{0U, n} : segment_of_group[outer] == segment;
      if (end - begin > 1 && !known) {
        for (std::uint32_t i = begin; i < end; ++i) inside[i] = static_cast<std::uint32_t>(parent.size());
        parent.push_back(outer);
        segment_of_group.push_back(segment);
      }
      begin = end;
    }
  }
  for (std::uint32_t i = 0; i < n; ++i) group_of[line.operations[i]] = inside[i];
  return make_hierarchy(g, forward, std::move(group_of), std::move(parent));
}

REMAT_INLINE std::vector<cut_list> chains_of(const operation_hierarchy& h, const forward_line& line,
                                             std::size_t most_stages) {
  std::vector<cut_list> out;
  for (std::uint32_t depth = 1; depth <= h.depth() + 1; ++depth) {
    const cut_list all = cuts_at_depth(h, depth);
    out.push_back(all.size() < most_stages ? all : even_cuts(line, all, most_stages));
    add_regular_cuts(out, all, most_stages);
    add_even_cuts(out, line, all, most_stages);
  }
  return short_ones_first(std::move(out));
}

REMAT_INLINE chain_search_result search_chain(const problem& p, chain_program& program, double best_time,
                                              run_clock& clock, const chain_search_options& options) {
  chain_search_result out;
  out.flat_time = program.flat_time();
  const double needed = p.graph().needed_time;
  const auto allowed = [&] {
    const double best = std::min(best_time, out.time);
    return best < std::numeric_limits<double>::infinity() ? (best - needed) * options.allowance
                                                          : std::numeric_limits<double>::max();
  };
  chain_program_options filling;
  filling.slots = options.slots;
  filling.table_bytes = options.table_bytes;
  filling.most_lost = allowed();
  filling.threads = clock.control().threads;
  const double most = static_cast<double>(p.budget()) * options.most_memory;
  if (most < 9e18) filling.most_bytes = static_cast<std::int64_t>(most);
  const fill_outcome end = program.fill(clock, filling);
  out.too_large = end == fill_outcome::too_large;
  if (end != fill_outcome::filled) return out;
  out.table_time = out.flat_time + program.lost_within(p.budget());
  program.visit([&](const chain_program::entry& e) -> std::int64_t {
    if (e.lost > allowed() || clock.should_stop()) return -1;
    clock.work();
    ++out.tried;
    std::int64_t over = std::numeric_limits<std::int64_t>::max();
    for (const bool whole : {true, false}) {
      schedule plan = schedule_computes(p, program.expand(e.steps, whole));
      const check_report r = check(p, plan);
      if (r.what == violation::over_budget) over = std::min(over, r.peak_bytes - p.budget());
      if (!r.valid()) continue;
      over = 0;
      if (r.time >= out.time) continue;
      out.time = r.time;
      out.plan = std::move(plan);
    }
    return over == std::numeric_limits<std::int64_t>::max() ? 0 : over / 2;
  });
  return out;
}

}  // namespace remat
