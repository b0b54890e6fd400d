// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/problem/problem.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/graph/detail/topological_order.hpp"
#include "remat/problem/detail/listed_order.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE void require_valid(const host_link& link) {
  const auto refuse = [](std::string_view field, double value, std::string_view expected) {
    std::array<char, 32> digits{};
    char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    throw bad_argument("link: " + std::string(field) + " is " + std::string(digits.data(), end) + "; it must be " +
                       std::string(expected));
  };
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  constexpr std::string_view speed = "a positive finite speed, in bytes per unit of time";
  if (!(link.latency >= 0) || !std::isfinite(link.latency))
    refuse("latency", link.latency, "a finite time, not negative");
  if (!(link.out > 0) || !std::isfinite(link.out) || !std::isfinite(link.time_out(largest)))
    refuse("out", link.out, speed);
  if (!(link.in > 0) || !std::isfinite(link.in) || !std::isfinite(link.time_in(largest))) refuse("in", link.in, speed);
}

namespace detail::problem_building {

/// Throws `bad_argument` if an array has the wrong length.
inline void check_length(std::string_view array, std::size_t length, std::size_t count, std::string_view what) {
  if (length != count)
    throw bad_argument("flat graph: " + std::string(array) + " has " + count_of(length, "entry", "entries") +
                       "; it must have one for each of the " + std::to_string(count) + " " + std::string(what));
}

/// Throws `bad_argument` unless `rows` has one row for each operation.
inline void check_rows(std::string_view array, const index_rows& rows, std::size_t operations) {
  check_length(array, rows.begin.empty() ? 0 : rows.size(), operations, "operations");
  if (rows.begin.empty() || rows.begin.front() != 0 || rows.begin.back() != rows.values.size() ||
      !std::is_sorted(rows.begin.begin(), rows.begin.end()))
    throw bad_argument("flat graph: the rows of " + std::string(array) +
                       " must begin at 0, ascend, and end at the number of values");
}

/// Throws `bad_graph` if `t`, a tensor of operation `o`, does not exist.
inline void check_range(const flat_graph& g, const id_names& names, std::size_t o, const char* role, std::uint32_t t) {
  if (t >= g.num_tensors)
    throw bad_graph(names.operation(o) + ": " + role + " " + std::to_string(t) + " is no tensor; there are " +
                    std::to_string(g.num_tensors));
}

inline void complete_outputs(flat_graph& g, const id_names& names) {
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    const auto first = g.outputs.values.begin() + g.outputs.begin[o],
               last = g.outputs.values.begin() + g.outputs.begin[o + 1];
    for (auto t = first; t != last; ++t) check_range(g, names, o, "output", *t);
    std::sort(first, last);
    if (const auto twice = std::adjacent_find(first, last); twice != last)
      throw bad_graph(names.operation(o) + " lists output " + std::to_string(*twice) + " twice; it must list it once");
  }
  g.producers = g.outputs.transposed(g.num_tensors);
}

inline void complete_residency(flat_graph& g, const id_names& names) {
  if (g.always_resident.empty())
    for (std::size_t t = 0; t < g.num_tensors; ++t) g.always_resident.push_back(g.producers[t].empty() ? 1 : 0);
  check_length("always_resident", g.always_resident.size(), g.num_tensors, "tensors");
  for (std::size_t t = 0; t < g.num_tensors; ++t) {
    if (g.always_resident[t] == 0) continue;
    g.always_resident[t] = 1;
    if (!g.producers[t].empty())
      throw bad_graph(names.tensor(t) + " is always resident (a parameter or an input), but " +
                      names.operation(g.producers[t][0]) + " writes it; such tensors have no producer");
  }
}

/// Throws `bad_graph` because some operation is listed before a producer of a tensor that it reads: the graph has a
/// cycle, or its operations are in a wrong order.
inline void refuse_order(const flat_graph& g, const id_names& names) {
  for (std::size_t o = 0; o < g.num_operations; ++o)
    for (const std::uint32_t t : g.inputs[o])
      if (std::binary_search(g.outputs[o].begin(), g.outputs[o].end(), t))
        throw bad_graph("the graph has a cycle: " + names.operation(o) + " → " + names.operation(o) +
                        ", which reads and writes " + names.tensor(t) +
                        "; an operation that works in place must write a tensor of its own, of the same bytes");
  (void)topological_order(g.inputs, g.outputs, g.num_tensors, names.operation);  // throws for a cycle
  for (std::size_t o = 0; o < g.num_operations; ++o)
    for (const std::uint32_t t : g.inputs[o])
      if (const std::uint32_t last = g.producers[t].back(); last >= o)
        throw bad_graph(names.operation(o) + " reads " + names.tensor(t) + " before its producer, " +
                        names.operation(last) + ", has run; operations must be listed in a topological order");
}

inline void complete_inputs(flat_graph& g, const id_names& names) {
  bool ordered = true;
  std::uint32_t end = 0;  // the end of the values that are kept
  for (std::size_t o = 0, begin = 0; o < g.num_operations; ++o) {
    const std::uint32_t row_end = g.inputs.begin[o + 1], kept = end;
    for (; begin < row_end; ++begin) {
      const std::uint32_t t = g.inputs.values[begin];
      check_range(g, names, o, "input", t);
      if (g.always_resident[t]) continue;
      if (g.producers[t].empty())
        throw bad_graph(names.operation(o) + " reads " + names.tensor(t) +
                        ", which no operation writes; only a parameter or an input has no producer");
      ordered = ordered && g.producers[t].back() < o;
      g.inputs.values[end++] = t;
    }
    const auto first = g.inputs.values.begin() + kept;
    std::sort(first, g.inputs.values.begin() + end);
    end = static_cast<std::uint32_t>(std::unique(first, g.inputs.values.begin() + end) - g.inputs.values.begin());
    g.inputs.begin[o + 1] = end;
  }
  g.inputs.values.resize(end);
  g.consumers = g.inputs.transposed(g.num_tensors);
  if (!ordered) refuse_order(g, names);
}

inline void complete_final_outputs(flat_graph& g, const id_names& names) {
  g.final_output.assign(g.num_tensors, 0);
  for (const std::uint32_t t : g.final_outputs) {
    if (t >= g.num_tensors)
      throw bad_graph("final output " + std::to_string(t) + " is no tensor; there are " +
                      std::to_string(g.num_tensors));
    if (g.always_resident[t]) continue;
    if (g.producers[t].empty()) throw bad_graph("final output " + names.tensor(t) + " is written by no operation");
    g.final_output[t] = 1;
  }
  g.final_outputs.clear();
  for (std::uint32_t t = 0; t < g.num_tensors; ++t)
    if (g.final_output[t]) g.final_outputs.push_back(t);
}

inline void complete_once(flat_graph& g) {
  if (g.once.empty()) g.once.assign(g.num_operations, 0);
  check_length("once", g.once.size(), g.num_operations, "operations");
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    const bool marked = g.once[o] != 0 && !(g.has_effect(o) && g.once[o] == flat_graph::once_for_effect);
    g.once[o] = marked ? flat_graph::once_as_marked : g.has_effect(o) ? flat_graph::once_for_effect : std::uint8_t{0};
  }
}

inline void complete_phases(flat_graph& g) {
  if (!g.phase.empty()) check_length("phase", g.phase.size(), g.num_operations, "operations");
  const auto is_unknown = [](op_phase p) { return p == op_phase::unknown; };
  if (std::all_of(g.phase.begin(), g.phase.end(), is_unknown)) g.phase.clear();
}

inline void complete_bytes(flat_graph& g, const id_names& names) {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  check_length("bytes", g.bytes.size(), g.num_tensors, "tensors");
  if (g.workspace.empty()) g.workspace.assign(g.num_operations, 0);
  check_length("workspace", g.workspace.size(), g.num_operations, "operations");
  std::int64_t total = 0;
  for (std::size_t t = 0; t < g.num_tensors; ++t) {
    if (g.bytes[t] < 0)
      throw bad_cost(names.tensor(t) + ": bytes is " + std::to_string(g.bytes[t]) + "; it must not be negative");
    if (g.always_resident[t]) g.bytes[t] = 0;
    if (g.bytes[t] > largest - total)
      throw bad_cost(names.tensor(t) + ": the sizes of all tensors together exceed 2^63 − 1 bytes");
    total += g.bytes[t];
  }
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    if (g.workspace[o] < 0)
      throw bad_cost(names.operation(o) + ": workspace is " + std::to_string(g.workspace[o]) +
                     " bytes; it must not be negative");
    if (g.workspace[o] > largest - total)
      throw bad_cost(names.operation(o) +
                     ": its workspace and the sizes of all tensors together exceed 2^63 − 1 bytes");
  }
}

inline void complete_times(flat_graph& g, const id_names& names) {
  check_length("time", g.time.size(), g.num_operations, "operations");
  g.baseline_time = 0;
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    if (!(g.time[o] >= 0) || !std::isfinite(g.time[o]))
      throw bad_cost(names.operation(o) + ": the cost model gives the time " + detail::number_text(g.time[o]) +
                     "; it must be finite and not negative" +
                     (std::isnan(g.time[o]) ? " (nan: a figure that it reads may be missing in the graph)" : ""));
    g.baseline_time += g.time[o];
    if (!std::isfinite(g.baseline_time)) throw bad_cost("the times of all operations together are not finite");
  }
}

inline void mark_needed(flat_graph& g) {
  g.needed.assign(g.num_operations, 0);
  std::vector<std::uint8_t> wanted(g.final_output);
  for (std::size_t o = g.num_operations; o-- > 0;) {
    bool needed = g.has_effect(o);
    for (const std::uint32_t t : g.outputs[o]) needed = needed || wanted[t];
    if (!needed) continue;
    g.needed[o] = 1;
    for (const std::uint32_t t : g.inputs[o]) wanted[t] = 1;
  }
  // A schedule of one run each in the listed order adds up the same: its time is not below by rounding, either.
  sum_from_below time;
  double listed = 0;
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o]) continue;
    time.add(g.time[o]);
    listed += g.time[o];
  }
  g.needed_time = std::min(time.value(), listed);
}

REMAT_INLINE void check_count(std::size_t count, std::size_t limit, const char* things) {
  if (count > limit)
    throw bad_graph("there are " + std::to_string(count) + " " + things + "; the most is " + std::to_string(limit));
}

REMAT_INLINE void complete_structure(flat_graph& g, const id_names& names) {
  check_count(g.num_operations, max_operations, "operations");
  check_count(g.num_tensors, max_tensors, "tensors");
  check_rows("outputs", g.outputs, g.num_operations);
  check_rows("inputs", g.inputs, g.num_operations);
  complete_outputs(g, names);
  complete_residency(g, names);
  complete_inputs(g, names);
  complete_final_outputs(g, names);
  complete_once(g);
  complete_phases(g);
  if (!g.operation_names.empty())
    check_length("operation_names", g.operation_names.size(), g.num_operations, "operations");
}

REMAT_INLINE void complete_costs(flat_graph& g, const id_names& names) {
  complete_bytes(g, names);
  complete_times(g, names);
  mark_needed(g);
  const auto memory = listed_order_sums<std::int64_t>(
      g, [](std::uint32_t) { return true; }, [&](std::uint32_t t) { return g.bytes[t]; });
  g.baseline_peak = 0;
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    g.baseline_peak = std::max(g.baseline_peak, memory[o] + g.workspace[o]);
}

}  // namespace detail::problem_building

REMAT_INLINE problem::problem(std::shared_ptr<const flat_graph> graph, std::int64_t budget)
    : graph_(std::move(graph)), budget_(budget) {
  if (budget < 0) throw bad_argument("budget is " + std::to_string(budget) + " bytes; it must not be negative");
}

REMAT_INLINE problem problem::from_flat(flat_graph graph, std::int64_t budget) {
  const detail::problem_building::id_names names{
      [&given = graph.operation_names](std::size_t o) {
        return detail::label(static_cast<op_id>(o)) + (o < given.size() ? " (" + printable(given[o]) + ")" : "");
      },
      [](std::size_t t) { return detail::label(static_cast<tensor_id>(t)); }};
  detail::problem_building::complete_structure(graph, names);
  detail::problem_building::complete_costs(graph, names);
  return problem(std::make_shared<const flat_graph>(std::move(graph)), budget);
}

REMAT_INLINE problem problem::with_budget(std::int64_t bytes) const {
  problem p(graph_, bytes);
  p.link_ = link_;
  p.host_budget_ = host_budget_;
  return p;
}

REMAT_INLINE problem problem::with_link(const host_link& link, std::int64_t host_budget) const {
  require_valid(link);
  if (host_budget < 0)
    throw bad_argument("host budget is " + std::to_string(host_budget) + " bytes; it must not be negative");
  problem p(graph_, budget_);
  p.link_ = link;
  p.host_budget_ = host_budget;
  return p;
}

REMAT_INLINE problem problem::producing_once(std::span<const tensor_id> tensors) const {
  auto restricted = std::make_shared<flat_graph>(*graph_);
  flat_graph& g = *restricted;
  for (const tensor_id t : tensors) {
    if (index(t) >= g.num_tensors)
      throw bad_argument("there is no tensor " + std::to_string(index(t)) + "; there are " +
                         std::to_string(g.num_tensors));
    if (g.producers[index(t)].empty())
      throw bad_argument(detail::label(t) + " is written by no operation; name outputs of operations");
    for (const std::uint32_t o : g.producers[index(t)]) g.once[o] = flat_graph::once_as_marked;
  }
  problem p(*this);
  p.graph_ = std::move(restricted);
  return p;
}

}  // namespace REMAT_NAMESPACE
