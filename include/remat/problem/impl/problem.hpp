// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/problem/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

namespace detail::problem_building {

inline constexpr std::size_t most_ids = std::numeric_limits<std::uint32_t>::max() / 2;

/// Throws `bad_argument` where an array has the wrong length.
inline void check_length(std::string_view array, std::size_t length, std::size_t count, std::string_view what) {
  if (length != count)
    throw bad_argument("flat graph: " + std::string(array) + " has " + std::to_string(length) +
                       " entries; it must have one for each of the " + std::to_string(count) + " " + std::string(what));
}

/// Throws `bad_argument` where `rows` is no list of rows, one for each operation.
inline void check_rows(std::string_view array, const index_rows& rows, std::size_t operations) {
  check_length(array, rows.begin.empty() ? 0 : rows.size(), operations, "operations");
  if (rows.begin.empty() || rows.begin.front() != 0 || rows.begin.back() != rows.values.size() ||
      !std::is_sorted(rows.begin.begin(), rows.begin.end()))
    throw bad_argument("flat graph: the rows of " + std::string(array) +
                       " must begin at 0, ascend, and end at the number of values");
}

/// Returns the transpose of `rows`: for each column, the rows that hold it.
inline index_rows transpose(const index_rows& rows, std::size_t columns) {
  index_rows out;
  out.begin.assign(columns + 1, 0);
  for (const std::uint32_t t : rows.values) ++out.begin[t + 1];
  for (std::size_t t = 0; t < columns; ++t) out.begin[t + 1] += out.begin[t];
  out.values.resize(rows.values.size());
  std::vector<std::uint32_t> next(out.begin.begin(), out.begin.end() - 1);
  for (std::size_t o = 0; o < rows.size(); ++o)
    for (const std::uint32_t t : rows[o]) out.values[next[t]++] = static_cast<std::uint32_t>(o);
  return out;
}

/// Throws `bad_graph` where operation `o` has a tensor that does not exist.
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
      throw bad_graph(names.operation(o) + " lists output " + std::to_string(*twice) + " twice; once is right");
  }
  g.producers = transpose(g.outputs, g.num_tensors);
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

/// Says why some operation reads a tensor before all producers of the tensor have run: a cycle, or the order.
class disorder_report {
 public:
  disorder_report(const flat_graph& g, const id_names& names) : g_(g), names_(names), missing_(g.num_operations, 0) {}

  [[nodiscard]] std::string text() { return run_all() ? order_text() : cycle_text(); }

 private:
  /// Runs all operations as soon as they can run. Returns false where some cannot: then `missing_` is not 0 for them.
  bool run_all() {
    std::vector<std::uint32_t> ready;
    for (std::uint32_t o = 0; o < g_.num_operations; ++o) {
      for (const std::uint32_t t : g_.inputs[o]) missing_[o] += g_.producers[t].size();
      if (missing_[o] == 0) ready.push_back(o);
    }
    std::size_t done = 0;
    while (!ready.empty()) {
      const std::uint32_t o = ready.back();
      ready.pop_back();
      ++done;
      for (const std::uint32_t t : g_.outputs[o])
        for (const std::uint32_t reader : g_.consumers[t])
          if (--missing_[reader] == 0) ready.push_back(reader);
    }
    return done == g_.num_operations;
  }

  [[nodiscard]] std::string order_text() const {
    for (std::size_t o = 0; o < g_.num_operations; ++o)
      for (const std::uint32_t t : g_.inputs[o])
        if (g_.producers[t].back() >= o)
          return names_.operation(o) + " reads " + names_.tensor(t) + " before its producer, " +
                 names_.operation(g_.producers[t].back()) +
                 ", has run; operations must be listed in a topological order";
    return {};
  }

  /// Walks backwards over operations that could not run until one of them comes up again: it is on a cycle.
  [[nodiscard]] std::string cycle_text() const {
    std::size_t o = 0;
    while (missing_[o] == 0) ++o;
    std::vector<std::uint8_t> seen(g_.num_operations, 0);
    std::vector<std::size_t> walk;
    while (!seen[o]) {
      seen[o] = 1;
      walk.push_back(o);
      std::size_t next = o;
      for (const std::uint32_t t : g_.inputs[o])
        for (const std::uint32_t p : g_.producers[t])
          if (missing_[p] != 0) next = p;
      o = next;
    }
    constexpr std::size_t most_shown = 8;
    std::string text = "the graph has a cycle: " + names_.operation(o);
    std::size_t length = 0;
    for (std::size_t i = walk.size(); i-- > 0;) {
      if (++length <= most_shown) text += " → " + names_.operation(walk[i]);
      if (walk[i] == o) break;
    }
    if (length > most_shown) text += " → … (" + std::to_string(length) + " operations)";
    return text + "; a training step has none";
  }

  const flat_graph& g_;
  const id_names& names_;
  std::vector<std::size_t> missing_;  // of an operation: pairs of an input and a producer of it that has not run
};

inline void complete_inputs(flat_graph& g, const id_names& names) {
  bool ordered = true;
  std::uint32_t end = 0;  // of the values that are kept
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
  g.consumers = transpose(g.inputs, g.num_tensors);
  if (!ordered) throw bad_graph(disorder_report(g, names).text());
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
      throw bad_cost(names.operation(o) + ": the cost model gives the time " + std::to_string(g.time[o]) +
                     "; it must be finite and not negative");
    g.baseline_time += g.time[o];
    if (!std::isfinite(g.baseline_time)) throw bad_cost("the times of all operations together are not finite");
  }
}

inline void mark_needed(flat_graph& g) {
  g.needed.assign(g.num_operations, 0);
  g.needed_time = 0;
  std::vector<std::uint8_t> wanted(g.final_output);
  for (std::size_t o = g.num_operations; o-- > 0;) {
    bool needed = g.has_effect(o);
    for (const std::uint32_t t : g.outputs[o]) needed = needed || wanted[t];
    if (!needed) continue;
    g.needed[o] = 1;
    for (const std::uint32_t t : g.inputs[o]) wanted[t] = 1;
  }
  for (std::size_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o]) g.needed_time += g.time[o];
}

inline void measure_baseline(flat_graph& g) {
  // All producers of a tensor precede its readers, so the last use is the last reader, or else the last producer.
  std::vector<std::uint32_t> last_use(g.num_tensors, 0);
  for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
    if (!g.producers[t].empty()) last_use[t] = g.producers[t].back();
    if (!g.consumers[t].empty()) last_use[t] = g.consumers[t].back();
  }
  std::int64_t memory = 0;
  g.baseline_peak = 0;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    for (const std::uint32_t t : g.outputs[o])
      if (g.producers[t].front() == o) memory += g.bytes[t];
    g.baseline_peak = std::max(g.baseline_peak, memory + g.workspace[o]);
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (last_use[t] == o && !g.final_output[t]) memory -= g.bytes[t];
  }
}

REMAT_INLINE void check_counts(std::size_t operations, std::size_t tensors) {
  if (operations > most_ids || tensors > most_ids) throw bad_graph("more than 2^31 operations or tensors");
}

REMAT_INLINE void append(index_rows& rows, std::size_t value) {
  if (rows.values.size() >= std::numeric_limits<std::uint32_t>::max() - 1) throw bad_graph("too many reads or writes");
  rows.values.push_back(static_cast<std::uint32_t>(value));
}

REMAT_INLINE void complete_structure(flat_graph& g, const id_names& names) {
  check_counts(g.num_operations, g.num_tensors);
  check_rows("outputs", g.outputs, g.num_operations);
  check_rows("inputs", g.inputs, g.num_operations);
  complete_outputs(g, names);
  complete_residency(g, names);
  complete_inputs(g, names);
  complete_final_outputs(g, names);
  complete_once(g);
  complete_phases(g);
}

REMAT_INLINE void complete_costs(flat_graph& g, const id_names& names) {
  complete_bytes(g, names);
  complete_times(g, names);
  mark_needed(g);
  measure_baseline(g);
}

}  // namespace detail::problem_building

REMAT_INLINE problem::problem(std::shared_ptr<const flat_graph> graph, std::int64_t budget)
    : graph_(std::move(graph)), budget_(budget) {
  if (budget < 0) throw bad_argument("budget is " + std::to_string(budget) + " bytes; it must not be negative");
}

REMAT_INLINE problem problem::from_flat(flat_graph graph, std::int64_t budget) {
  const detail::problem_building::plain_names names;
  detail::problem_building::complete_structure(graph, names);
  detail::problem_building::complete_costs(graph, names);
  return problem(std::make_shared<const flat_graph>(std::move(graph)), budget);
}

REMAT_INLINE problem problem::producing_once(std::span<const tensor_id> tensors) const {
  auto restricted = std::make_shared<flat_graph>(*graph_);
  flat_graph& g = *restricted;
  for (const tensor_id t : tensors) {
    if (index(t) >= g.num_tensors)
      throw bad_argument("there is no tensor " + std::to_string(index(t)) + "; there are " +
                         std::to_string(g.num_tensors));
    if (g.producers[index(t)].empty())
      throw bad_argument("tensor " + std::to_string(index(t)) +
                         " is written by no operation; name outputs of operations");
    for (const std::uint32_t o : g.producers[index(t)]) g.once[o] = flat_graph::once_as_marked;
  }
  problem p(*this);
  p.graph_ = std::move(restricted);
  return p;
}

}  // namespace remat
