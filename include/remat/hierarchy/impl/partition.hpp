// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/partition.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "remat/chain/detail/forward_line.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/hierarchy/detail/cut_sequence.hpp"
#include "remat/hierarchy/detail/way_cache.hpp"
#include "remat/hierarchy/impl/node_merger.hpp"

namespace REMAT_NAMESPACE {

namespace detail::partitioning {

/// The given marks of the forward operations; those of `forward_operations` if none are given.
inline std::vector<std::uint8_t> forward_or_found(const flat_graph& graph, const std::vector<std::uint8_t>& forward) {
  if (forward.empty()) return forward_operations(graph);
  if (forward.size() != graph.num_operations)
    throw bad_argument("forward has " + detail::count_of(forward.size(), "entry", "entries") + "; there are " +
                       detail::count_of(graph.num_operations, "operation"));
  return forward;
}

inline std::vector<std::uint8_t> checked_forward(const flat_graph& graph, const partition_options& options) {
  if (options.max_group < 2)
    throw bad_argument("max_group is " + std::to_string(options.max_group) + "; it must be at least 2");
  if (options.max_top < 1) throw bad_argument("max_top is 0; it must be at least 1");
  if (!std::isfinite(options.alpha)) throw bad_argument("alpha is not finite");
  return forward_or_found(graph, options.forward);
}

/// The needed forward operations as listed, and the bytes that cross each place, those of final outputs too.
inline forward_line listed_forward(const flat_graph& graph, const std::vector<std::uint8_t>& forward) {
  return listed_line(
      graph, [&](std::uint32_t o) { return forward[o] != 0; }, true);
}

/// The hierarchy whose lowest groups are given sections [begin, end) of the listed forward operations, ascending and
/// apart. Each section is partitioned if it is large, and then what there is of sections and operations between them.
inline operation_hierarchy partition_sections(const flat_graph& graph, const std::vector<std::uint8_t>& forward,
                                              const partition_options& options, const forward_line& line,
                                              const std::vector<std::pair<std::size_t, std::size_t>>& sections) {
  grouping groups(graph.num_operations);
  node_merger merging(graph, forward, options.max_group, options.alpha, groups, options.must_stop);
  std::vector<atom> top;
  std::size_t done = 0;
  const auto loose = [&](std::size_t end, std::vector<atom>& to) {
    for (; done < end; ++done) to.push_back({line.operations[done], {line.operations[done]}});
  };
  for (const auto& [begin, end] : sections) {
    loose(begin, top);
    if (end - begin < 2) continue;
    std::vector<atom> inside;
    loose(end, inside);
    atom section;
    for (const atom& p : inside) section.operations.push_back(p.name);
    section.name = groups.add(inside.size() <= options.max_group ? section.operations
                                                                 : merging.run(std::move(inside), options.max_group));
    top.push_back(std::move(section));
  }
  loose(line.operations.size(), top);
  if (top.size() > options.max_top) merging.run(std::move(top), options.max_top);
  return make_hierarchy(graph, forward, std::move(groups.of_operation), std::move(groups.of_group));
}

}  // namespace detail::partitioning

REMAT_INLINE operation_hierarchy h_partition(const flat_graph& graph, const partition_options& options) {
  const std::vector<std::uint8_t> forward = detail::partitioning::checked_forward(graph, options);
  return detail::partitioning::partition_sections(graph, forward, options,
                                                  detail::partitioning::listed_forward(graph, forward), {});
}

REMAT_INLINE operation_hierarchy partition_at_cuts(const flat_graph& graph, const partition_options& options) {
  const std::vector<std::uint8_t> forward = detail::partitioning::checked_forward(graph, options);
  const detail::forward_line line = detail::partitioning::listed_forward(graph, forward);
  const std::size_t n = line.operations.size();
  using cost = std::pair<double, std::size_t>;  // bytes, cuts
  std::vector<cost> best(n + 1, cost{std::numeric_limits<double>::infinity(), 0});
  std::vector<std::size_t> from(n + 1, 0);
  best[0] = {0, 0};
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = i > options.max_group ? i - options.max_group : 0; j < i; ++j) {
      const cost here{best[j].first + static_cast<double>(line.crossing[j]), best[j].second + 1};
      if (here >= best[i]) continue;
      best[i] = here;
      from[i] = j;
    }
  std::vector<std::pair<std::size_t, std::size_t>> sections;
  for (std::size_t i = n; i > 0; i = from[i]) sections.emplace_back(from[i], i);
  std::reverse(sections.begin(), sections.end());
  if (sections.size() == 1) sections.clear();
  return detail::partitioning::partition_sections(graph, forward, options, line, sections);
}

REMAT_INLINE operation_hierarchy partition_at_repeats(const flat_graph& graph, const partition_options& options) {
  const std::vector<std::uint8_t> forward = detail::partitioning::checked_forward(graph, options);
  const detail::forward_line line = detail::partitioning::listed_forward(graph, forward);
  const std::size_t n = line.operations.size();

  // The same number for operations that are alike. Measured times of equal operations differ, so they do not count.
  using likeness = std::tuple<std::int64_t, std::uint8_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;
  std::map<likeness, std::uint64_t> kinds;
  std::vector<std::uint64_t> kind(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t o = line.operations[i];
    std::vector<std::int64_t> in, out;
    for (const std::uint32_t t : graph.inputs[o]) in.push_back(graph.bytes[t]);
    for (const std::uint32_t t : graph.outputs[o]) out.push_back(graph.bytes[t]);
    std::sort(in.begin(), in.end());
    std::sort(out.begin(), out.end());
    likeness of_operation(graph.workspace[o], graph.once[o], std::move(in), std::move(out));
    kind[i] = kinds.try_emplace(std::move(of_operation), kinds.size()).first->second;
  }
  std::vector<std::pair<std::size_t, std::size_t>> sections, todo{{0, n}};
  while (!todo.empty()) {
    const auto [begin, end] = todo.back();
    todo.pop_back();
    const detail::partitioning::repeat run = detail::partitioning::longest_repeat(kind, begin, end, 2, 1024);
    if (run.period == 0) continue;
    std::size_t at = run.begin + detail::partitioning::cheapest_shift(run, line.crossing);
    todo.emplace_back(begin, at);
    for (; at + run.period <= run.end; at += run.period) sections.emplace_back(at, at + run.period);
    todo.emplace_back(at, end);
  }
  std::sort(sections.begin(), sections.end());
  return detail::partitioning::partition_sections(graph, forward, options, line, sections);
}

REMAT_INLINE operation_hierarchy partition_at_levels(const flat_graph& g, std::vector<std::uint8_t> forward) {
  constexpr std::uint32_t none = operation_hierarchy::none;
  forward = detail::partitioning::forward_or_found(g, forward);
  const detail::forward_line line = detail::listed_line(g, [&](std::uint32_t o) { return forward[o] != 0; });
  const auto n = static_cast<std::uint32_t>(line.operations.size());
  std::vector<std::uint32_t> group_of(g.num_operations, none), parent;
  // The innermost group so far of each place of the line, from the coarsest level down, and its segment.
  std::vector<std::uint32_t> inside(n, none);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> segment_of_group;
  const std::vector<detail::cut_list> levels = cut_levels(line, n);
  for (std::size_t k = levels.size(); k-- > 0;) {
    detail::cut_list ends = levels[k];
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

REMAT_INLINE std::shared_ptr<way_cache> make_way_cache() { return std::make_shared<way_cache>(); }

}  // namespace REMAT_NAMESPACE
