// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/index_rows.hpp"
#include "remat/cost/concepts.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// A training step as flat arrays: what every solver runs on. Operation and tensor indices are the graph's ids, and the
/// order of the operations' indices is topological.
struct flat_graph {
  std::uint32_t num_operations = 0;
  std::uint32_t num_tensors = 0;
  index_rows inputs;     ///< operation → the counted tensors that it reads, ascending, each once
  index_rows outputs;    ///< operation → the tensors that it writes, ascending
  index_rows producers;  ///< tensor → the operations that write it, ascending
  index_rows consumers;  ///< tensor → the operations that read it, ascending; empty for what is always resident
  std::vector<std::int64_t> bytes;            ///< of a tensor; 0 where it is always resident
  std::vector<std::int64_t> workspace;        ///< of an operation, bytes
  std::vector<double> time;                   ///< of an operation, the cost model's unit
  std::vector<std::uint8_t> always_resident;  ///< of a tensor: always there, not counted, has no producer
  std::vector<std::uint8_t> final_output;     ///< of a tensor: must be readable at the end
  std::vector<std::uint8_t> once;             ///< of an operation: 0, or why it runs at most once
  std::vector<std::uint8_t> needed;           ///< of an operation: a final output or an effect depends on it
  std::vector<std::uint32_t> final_outputs;   ///< tensors with `final_output`, ascending
  std::vector<op_phase> phase;                ///< of an operation; empty where the graph says it of none

  static constexpr std::uint8_t once_for_effect = 1;  ///< no outputs: exactly once
  static constexpr std::uint8_t once_as_marked = 2;   ///< the graph says that it is not recomputable

  double baseline_time = 0;        ///< all operations once
  double needed_time = 0;          ///< the needed operations once: a lower bound on the time of any schedule
  std::int64_t baseline_peak = 0;  ///< of the listed order, every tensor freed right after its last use

  [[nodiscard]] bool has_effect(std::size_t operation) const noexcept { return outputs[operation].empty(); }
};

/// The question that solvers answer: a training step under a cost model, and a memory budget.
///
/// Built and validated once, O(operations + reads and writes) time apart from sorting short rows; copies, and copies
/// with another budget, share the arrays.
/// Throws `bad_graph` for a graph that breaks the semantics of `data_flow_graph` (with the ids that do), `bad_cost` for
/// a time or size that is negative, not finite or overflows.
///
///     problem p(graph, roofline_cost{});
///     solution s = evict(p.with_budget(p.graph().baseline_peak / 2));
class problem {
 public:
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

  template <data_flow_graph G, cost_model<G> C>
  requires sizing_cost_model<C, G> || sized_graph<G>
  explicit problem(const G& graph, const C& cost, std::int64_t budget = unlimited) : budget_(budget) {
    auto built = std::make_shared<flat_graph>();
    read(*built, graph, cost);
    data_ = std::move(built);
    check_budget();
  }

  [[nodiscard]] const flat_graph& graph() const noexcept { return *data_; }
  [[nodiscard]] std::int64_t budget() const noexcept { return budget_; }
  [[nodiscard]] bool has_budget() const noexcept { return budget_ != unlimited; }

  /// The same step under another budget (bytes ≥ 0). O(1). What was known of the old budget is forgotten.
  [[nodiscard]] problem with_budget(std::int64_t bytes) const {
    problem p(*this);
    p.budget_ = bytes;
    p.known_bound_.reset();
    p.check_budget();
    return p;
  }

  /// A proven lower bound on the time of any schedule within the budget, if one has been handed on; infinite: proven
  /// that there is none.
  [[nodiscard]] const std::optional<double>& known_bound() const noexcept { return known_bound_; }

  /// The same question with a bound that was proven for it: solvers take it over in place of proving one each.
  [[nodiscard]] problem with_known_bound(double lower_bound) const {
    problem p(*this);
    p.known_bound_ = lower_bound;
    return p;
  }

 private:
  void check_budget() const {
    if (budget_ < 0) throw bad_argument("budget is " + std::to_string(budget_) + " bytes; it must not be negative");
  }

  template <class G, class Id>
  static std::string label(const G& graph, const char* what, Id id) {
    std::string text = what + std::string(" ") + std::to_string(index(id));
    if constexpr (named_graph<G>) text += " (" + std::string(std::string_view(graph.name(id))) + ")";
    return text;
  }

  template <class G, class C>
  static void read(flat_graph& s, const G& graph, const C& cost) {
    const std::size_t n = static_cast<std::size_t>(graph.num_operations());
    const std::size_t m = static_cast<std::size_t>(graph.num_tensors());
    constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max() / 2;
    if (n > most || m > most) throw bad_graph("more than 2^31 operations or tensors");
    s.num_operations = static_cast<std::uint32_t>(n);
    s.num_tensors = static_cast<std::uint32_t>(m);

    read_outputs(s, graph);
    s.always_resident.assign(m, 0);
    for (std::size_t t = 0; t < m; ++t) {
      const auto id = static_cast<tensor_id>(t);
      const bool produced = !s.producers[t].empty();
      if constexpr (residency_graph<G>) {
        s.always_resident[t] = static_cast<bool>(graph.always_resident(id));
        if (s.always_resident[t] && produced)
          throw bad_graph(label(graph, "tensor", id) + " is always resident (a parameter or an input), but " +
                          label(graph, "operation", static_cast<op_id>(s.producers[t][0])) +
                          " writes it; such tensors have no producer");
      } else {
        s.always_resident[t] = !produced;
      }
    }
    read_inputs(s, graph);
    read_final_outputs(s, graph);
    read_phases(s, graph);
    read_sizes(s, graph, cost);
    mark_needed(s);
    measure_baseline(s);
  }

  /// Appends `t` to the row that is being built, after a look at its range.
  template <class G>
  static void append(index_rows& rows, const G& graph, op_id o, const char* role, tensor_id t, std::size_t m) {
    if (index(t) >= m)
      throw bad_graph(label(graph, "operation", o) + ": " + role + " " + std::to_string(index(t)) +
                      " is no tensor; there are " + std::to_string(m));
    if (rows.values.size() >= std::numeric_limits<std::uint32_t>::max() - 1)
      throw bad_graph("too many reads or writes");
    rows.values.push_back(static_cast<std::uint32_t>(index(t)));
  }

  /// Column lists of `rows`: for each tensor, the operations whose row holds it.
  static index_rows transpose(const index_rows& rows, std::size_t columns) {
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

  template <class G>
  static void read_outputs(flat_graph& s, const G& graph) {
    for (std::size_t o = 0; o < s.num_operations; ++o) {
      const auto id = static_cast<op_id>(o);
      const std::size_t first = s.outputs.values.size();
      for (const tensor_id t : graph.outputs(id)) append(s.outputs, graph, id, "output", t, s.num_tensors);
      const auto row = s.outputs.values.begin() + static_cast<std::ptrdiff_t>(first);
      std::sort(row, s.outputs.values.end());
      if (const auto twice = std::adjacent_find(row, s.outputs.values.end()); twice != s.outputs.values.end())
        throw bad_graph(label(graph, "operation", id) + " lists output " + std::to_string(*twice) +
                        " twice; once is right");
      s.outputs.end_row();
    }
    s.producers = transpose(s.outputs, s.num_tensors);
  }

  template <class G>
  static void read_inputs(flat_graph& s, const G& graph) {
    bool ordered = true;
    for (std::size_t o = 0; o < s.num_operations; ++o) {
      const auto id = static_cast<op_id>(o);
      const std::size_t first = s.inputs.values.size();
      for (const tensor_id t : graph.inputs(id)) {
        append(s.inputs, graph, id, "input", t, s.num_tensors);
        if (s.always_resident[index(t)]) {
          s.inputs.values.pop_back();
          continue;
        }
        const auto producers = s.producers[index(t)];
        if (producers.empty())
          throw bad_graph(label(graph, "operation", id) + " reads " + label(graph, "tensor", t) +
                          ", which no operation writes; only a parameter or an input has no producer");
        ordered = ordered && producers.back() < o;
      }
      const auto row = s.inputs.values.begin() + static_cast<std::ptrdiff_t>(first);
      std::sort(row, s.inputs.values.end());
      s.inputs.values.erase(std::unique(row, s.inputs.values.end()), s.inputs.values.end());
      s.inputs.end_row();
    }
    s.consumers = transpose(s.inputs, s.num_tensors);
    if (!ordered) explain_disorder(s, graph);
  }

  /// Some operation reads a tensor before all of its producers have run: says whether it is a cycle or the order.
  template <class G>
  [[noreturn]] static void explain_disorder(const flat_graph& s, const G& graph) {
    const std::size_t n = s.num_operations;
    std::vector<std::size_t> missing(n, 0);  // producer–reader pairs that are still open
    for (std::size_t o = 0; o < n; ++o)
      for (const std::uint32_t t : s.inputs[o]) missing[o] += s.producers[t].size();
    std::vector<std::uint32_t> ready;
    for (std::size_t o = 0; o < n; ++o)
      if (missing[o] == 0) ready.push_back(static_cast<std::uint32_t>(o));
    std::size_t done = 0;
    while (!ready.empty()) {
      const std::uint32_t o = ready.back();
      ready.pop_back();
      ++done;
      for (const std::uint32_t t : s.outputs[o])
        for (const std::uint32_t reader : s.consumers[t])
          if (--missing[reader] == 0) ready.push_back(reader);
    }
    if (done == n) {
      for (std::size_t o = 0; o < n; ++o)
        for (const std::uint32_t t : s.inputs[o])
          if (s.producers[t].back() >= o)
            throw bad_graph(label(graph, "operation", static_cast<op_id>(o)) + " reads " +
                            label(graph, "tensor", static_cast<tensor_id>(t)) + " before its producer, " +
                            label(graph, "operation", static_cast<op_id>(s.producers[t].back())) +
                            ", has run; operations must be listed in a topological order");
    }
    // Walk backwards over what never became ready until an operation comes up again: that is a cycle.
    std::size_t o = 0;
    while (missing[o] == 0) ++o;
    std::vector<std::uint8_t> seen(n, 0);
    std::vector<std::size_t> walk;
    while (!seen[o]) {
      seen[o] = 1;
      walk.push_back(o);
      std::size_t next = o;
      for (const std::uint32_t t : s.inputs[o])
        for (const std::uint32_t p : s.producers[t])
          if (missing[p] != 0) next = p;
      o = next;
    }
    std::string text = "the graph has a cycle: " + label(graph, "operation", static_cast<op_id>(o));
    std::size_t shown = 0;
    for (std::size_t i = walk.size(); i-- > 0;) {
      if (++shown <= 8) text += " → " + label(graph, "operation", static_cast<op_id>(walk[i]));
      if (walk[i] == o) break;
    }
    if (shown > 8) text += " → … (" + std::to_string(shown) + " operations)";
    throw bad_graph(text + "; a training step has none");
  }

  template <class G>
  static void read_final_outputs(flat_graph& s, const G& graph) {
    s.final_output.assign(s.num_tensors, 0);
    for (const tensor_id t : graph.final_outputs()) {
      if (index(t) >= s.num_tensors)
        throw bad_graph("final output " + std::to_string(index(t)) + " is no tensor; there are " +
                        std::to_string(s.num_tensors));
      if (s.always_resident[index(t)]) continue;
      if (s.producers[index(t)].empty())
        throw bad_graph("final output " + label(graph, "tensor", t) + " is written by no operation");
      s.final_output[index(t)] = 1;
    }
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      if (s.final_output[t]) s.final_outputs.push_back(t);
  }

  template <class G>
  static void read_phases(flat_graph& s, const G& graph) {
    if constexpr (phased_graph<G>) {
      bool any = false;
      s.phase.resize(s.num_operations);
      for (std::size_t o = 0; o < s.num_operations; ++o) {
        s.phase[o] = graph.phase(static_cast<op_id>(o));
        any = any || s.phase[o] != op_phase::unknown;
      }
      if (!any) s.phase.clear();
    }
  }

  template <class G, class C>
  static void read_sizes(flat_graph& s, const G& graph, const C& cost) {
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    std::int64_t total = 0, widest = 0;
    s.bytes.assign(s.num_tensors, 0);
    for (std::size_t t = 0; t < s.num_tensors; ++t) {
      const auto id = static_cast<tensor_id>(t);
      const std::int64_t bytes = bytes_of(cost, graph, id);
      if (bytes < 0)
        throw bad_cost(label(graph, "tensor", id) + ": bytes is " + std::to_string(bytes) +
                       "; it must not be negative");
      if (s.always_resident[t]) continue;
      if (bytes > largest - total)
        throw bad_cost(label(graph, "tensor", id) + ": the sizes of all tensors together exceed 2^63 − 1 bytes");
      total += bytes;
      s.bytes[t] = bytes;
    }
    s.workspace.assign(s.num_operations, 0);
    s.time.assign(s.num_operations, 0);
    s.once.assign(s.num_operations, 0);
    for (std::size_t o = 0; o < s.num_operations; ++o) {
      const auto id = static_cast<op_id>(o);
      const std::int64_t workspace = workspace_of(cost, graph, id);
      if (workspace < 0)
        throw bad_cost(label(graph, "operation", id) + ": workspace is " + std::to_string(workspace) +
                       " bytes; it must not be negative");
      widest = std::max(widest, workspace);
      if (widest > largest - total)
        throw bad_cost(label(graph, "operation", id) +
                       ": its workspace and the sizes of all tensors together exceed 2^63 − 1 bytes");
      s.workspace[o] = workspace;
      const double time = static_cast<double>(cost.time(graph, id));
      if (!(time >= 0) || !std::isfinite(time))
        throw bad_cost(label(graph, "operation", id) + ": the cost model gives the time " + std::to_string(time) +
                       "; it must be finite and not negative");
      s.time[o] = time;
      s.baseline_time += time;
      if (!std::isfinite(s.baseline_time)) throw bad_cost("the times of all operations together are not finite");
      if (s.has_effect(o)) s.once[o] = flat_graph::once_for_effect;
      if constexpr (recomputable_graph<G>)
        if (!graph.recomputable(id)) s.once[o] = flat_graph::once_as_marked;
    }
  }

  static void mark_needed(flat_graph& s) {
    s.needed.assign(s.num_operations, 0);
    std::vector<std::uint8_t> wanted(s.final_output);
    for (std::size_t o = s.num_operations; o-- > 0;) {
      bool needed = s.has_effect(o);
      for (const std::uint32_t t : s.outputs[o]) needed = needed || wanted[t];
      if (!needed) continue;
      s.needed[o] = 1;
      for (const std::uint32_t t : s.inputs[o]) wanted[t] = 1;
    }
    for (std::size_t o = 0; o < s.num_operations; ++o)
      if (s.needed[o]) s.needed_time += s.time[o];
  }

  static void measure_baseline(flat_graph& s) {
    // The producers of a tensor precede its readers, so its last use is its last reader, or its last producer.
    std::vector<std::uint32_t> last_use(s.num_tensors, 0);
    std::int64_t memory = 0;
    for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
      if (!s.producers[t].empty()) last_use[t] = s.producers[t].back();
      if (!s.consumers[t].empty()) last_use[t] = s.consumers[t].back();
    }
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      for (const std::uint32_t t : s.outputs[o])
        if (s.producers[t].front() == o) memory += s.bytes[t];
      s.baseline_peak = std::max(s.baseline_peak, memory + s.workspace[o]);
      for (const auto* rows : {&s.inputs, &s.outputs})
        for (const std::uint32_t t : (*rows)[o])
          if (last_use[t] == o && !s.final_output[t]) memory -= s.bytes[t];
    }
  }

  std::shared_ptr<const flat_graph> data_;
  std::int64_t budget_ = unlimited;
  std::optional<double> known_bound_{};
};

}  // namespace remat
