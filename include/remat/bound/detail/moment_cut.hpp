// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "remat/bound/detail/max_flow.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

/// Returns for each needed operation the sum of `weight(t)` over the tensors that are allocated while it runs, and 0
/// for the other operations. The needed operations run once each in the listed order, and each tensor is freed right
/// after its last use. O(operations + reads and writes) time.
template <class T, class Weight>
[[nodiscard]] std::vector<T> listed_order_sums(const flat_graph& g, Weight&& weight) {
  std::vector<std::uint32_t> last(g.num_tensors, 0);
  std::vector<std::uint8_t> allocated(g.num_tensors, 0);
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o]) continue;
    for (const std::uint32_t t : g.inputs[o]) last[t] = o;
    for (const std::uint32_t t : g.outputs[o]) last[t] = o;
  }
  std::vector<T> sums(g.num_operations, T{});
  T now{};
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o]) continue;
    for (const std::uint32_t t : g.outputs[o])
      if (!allocated[t]) {
        allocated[t] = 1;
        now += weight(t);
      }
    sums[o] = now;
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (allocated[t] && last[t] == o && !g.final_output[t]) {
          allocated[t] = 0;
          now -= weight(t);
        }
  }
  return sums;
}

/// Returns the bytes of operation `o` itself while it runs: its inputs, its outputs and its workspace.
[[nodiscard]] inline std::int64_t working_set_bytes(const flat_graph& g, std::uint32_t o) {
  std::int64_t sum = g.workspace[o];
  for (const std::uint32_t t : g.inputs[o]) sum += g.bytes[t];
  for (const std::uint32_t t : g.outputs[o]) sum += g.bytes[t];
  return sum;
}

/// The cost of one choice of resident tensors at a moment.
struct moment_choice {
  double time = 0;         ///< of the operations that run again
  std::int64_t bytes = 0;  ///< of the resident tensors, without the working set of the moment's operation
};

/// A minimum-cut network for one *moment*: the first run of an operation k. Its cuts are the choices of which tensors
/// are resident at that moment and which are computed again later.
///
/// At the moment, the ancestors of k have run (A, with k itself) and the descendants of k have not (D). The schedule
/// decides about the other operations (U); when an operation has not run, its descendants have not run either. After
/// the moment, all needed operations that have not run must run, and the final outputs must be there. Each tensor that
/// these operations read is resident at the moment, or all its producers run after it; the same holds for the tensors
/// that these producers read. An operation that had run before the moment and runs after it runs again, and costs its
/// time. docs/bounds.md proves that every schedule is such a choice.
///
/// The cheapest choice at a price for each resident byte is a minimum cut. Its nodes are propositions; a node on the
/// source's side is true.
///   r(o)  operation o runs after the moment          costs time(o) unless c(o); infinite where o must not run twice
///   c(o)  operation o of U has not run               implies r(o), and c(o') for each reader o' of its outputs
///   q(t)  tensor t is read after the moment          implies w(t), or costs price × bytes(t) for a resident t
///   w(t)  tensor t is computed after the moment      implies r(p) for each producer p
/// A tensor with one reader has no node q, and a tensor with one producer has no node w: the operation's node replaces
/// it. Tensors that k reads or writes are resident anyway, and have no nodes; nor have tensors of 0 bytes.
///
/// `at(k)` takes O(operations + reads and writes) time. `price` takes one maximum flow, which starts from the last flow
/// where the price has risen. Both flows poll `stop` before each wave (see `max_flow`).
class moment_cut {
 public:
  /// `graph` must outlive this object.
  explicit moment_cut(const flat_graph& graph)
      : graph_(&graph),
        side_(graph.num_operations),
        run_node_(graph.num_operations, none),
        wait_node_(graph.num_operations, none),
        mark_(graph.num_tensors, 0),
        readers_(graph.num_tensors, 0) {}

  /// The graph that was given.
  [[nodiscard]] const flat_graph& graph() const noexcept { return *graph_; }
  /// The operation of the last call of `at`.
  [[nodiscard]] std::uint32_t moment() const noexcept { return moment_; }
  /// Bytes of the moment's operation itself: its inputs, its outputs and its workspace.
  [[nodiscard]] std::int64_t working_set() const noexcept { return working_set_; }
  /// True when some tensor that is read after the moment cannot be computed again: `least_bytes` may be above 0.
  [[nodiscard]] bool has_unrepeatable() const noexcept { return unrepeatable_; }
  /// Time of all operations that could run again.
  [[nodiscard]] double total_time() const noexcept { return total_time_; }

  /// Builds the network for the first run of operation `k`. Precondition: k is needed.
  void at(std::uint32_t k);

  /// Returns the least of (time + price × bytes) over all choices, from below: it never exceeds the true least, and is
  /// less by at most 2^−50 × (operations + 1) × `total_time()` and a few units in the last place. When `stop()` returns
  /// true, the flow ends early; the value still never exceeds the true least.
  /// `price` is in time for a byte, from 0 to `highest_price()`. Where `total_time()` is 0, the value is a valid bound
  /// but not close to the least.
  double price(double price, const std::function<bool()>& stop = {});
  /// The largest price for which the integers of the flow cannot overflow at this moment, in time for a byte.
  [[nodiscard]] double highest_price() const noexcept {
    return std::ldexp(std::ldexp(1.0, 60) / std::max(1.0, required_bytes_), -exponent_);
  }
  /// True when the last flow is maximum: nothing has stopped it.
  [[nodiscard]] bool complete() const noexcept { return complete_; }

  /// Candidates are the tensors that may be resident or not at this moment. Branch and bound fixes some of them. A
  /// resident one has no price, and no bytes that count. An absent one is computed after the moment, whatever time that
  /// takes; where it cannot be, `price` returns about twice `total_time()` or more.
  enum class fixing : std::uint8_t { free, resident, absent };
  /// The number of candidates at this moment. They count from 0.
  [[nodiscard]] std::size_t num_candidates() const noexcept { return priced_.size(); }
  /// The bytes of candidate `i`.
  [[nodiscard]] std::int64_t candidate_bytes(std::size_t i) const { return priced_[i].bytes; }
  /// The tensor that is candidate `i`.
  [[nodiscard]] tensor_id candidate(std::size_t i) const { return static_cast<tensor_id>(priced_[i].tensor); }
  /// How candidate `i` is fixed now; `free` where it is not.
  [[nodiscard]] fixing fixed(std::size_t i) const { return priced_[i].fixed; }
  /// True when the choice of the last complete flow has the candidate resident at its price.
  [[nodiscard]] bool candidate_resident(std::size_t i) const { return is_resident(priced_[i]); }
  /// Fixes candidate `i`, or frees it. The next flow starts from nothing. At most 256 may be absent at a time.
  void fix(std::size_t i, fixing f);

  /// Keeps a copy of the present flow. `price` starts from it where the price falls, but not below that of the copy.
  void keep();

  /// Returns the least bytes that any choice keeps resident beside the working set, whatever time it takes. Exact up to
  /// 2^60 bytes in total, from below beyond. `stop` as in `price`.
  std::int64_t least_bytes(const std::function<bool()>& stop = {});

  /// Returns the choice of the last complete flow: of the cheapest choices, the one with the fewest bytes.
  [[nodiscard]] moment_choice choice() const;

  /// Returns the tensors that this choice keeps resident beside the working set, ascending.
  [[nodiscard]] std::vector<tensor_id> resident() const;

  /// Returns the operations that this choice runs again, ascending.
  [[nodiscard]] std::vector<op_id> again() const;

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  enum side : std::uint8_t { open, before, after };  // U, A, D
  enum class mode : std::uint8_t { unset, priced, bytes };
  struct priced {
    std::uint32_t tensor;
    std::uint32_t arc;  // `none` for an arc from the source
    std::uint32_t from, to;
    std::int64_t bytes;
    fixing fixed = fixing::free;
  };
  // Flags of a tensor at the present moment (`mark_`): k reads or writes it; an operation of D reads it or it is a
  // final output; it has been visited; its arcs of order have been added.
  static constexpr std::uint8_t own = 1, required = 2, touched = 4, ordered = 8;

  [[nodiscard]] bool is_resident(const priced& p) const {
    return flow_.reaches_sink(p.to) && (p.arc == none || !flow_.reaches_sink(p.from));
  }
  [[nodiscard]] bool runs_again(std::uint32_t o) const {
    return !flow_.reaches_sink(run_node_[o]) && (side_[o] == before || flow_.reaches_sink(wait_node_[o]));
  }
  [[nodiscard]] std::size_t wait_index(std::uint32_t o) const { return wait_node_[o] - first_wait_; }

  /// Finds A and D, and the tensors of k itself.
  void separate();

  /// Finds the operations that some choice runs after the moment, and gives them nodes.
  void reach();

  /// Builds the nodes of tensors, and all arcs.
  void connect();
  void connect_tensor(std::uint32_t t);
  void connect_waiting(std::uint32_t o);

  /// Sets the arcs of infinite capacity.
  void set_structure();

  /// Price × bytes in the flow's unit, rounded down.
  [[nodiscard]] max_flow::capacity priced_capacity(double scaled, const priced& p) const;

  /// Sets all capacities for a price, without flow.
  void load(double scaled);

  /// Raises the capacities to a higher price, and keeps the flow.
  void raise(double scaled);

  const flat_graph* graph_;
  std::uint32_t moment_ = 0;
  std::int64_t working_set_ = 0;
  bool unrepeatable_ = false;
  bool complete_ = false;
  double total_time_ = 0;
  double required_bytes_ = 0;
  int exponent_ = 0;
  mode mode_ = mode::unset;
  double scaled_price_ = 0;
  double kept_price_ = -1;
  std::uint32_t nodes_ = 0;
  std::uint32_t first_wait_ = 0;
  std::vector<std::uint8_t> side_;
  std::vector<std::uint32_t> run_node_, wait_node_;
  std::vector<std::uint8_t> mark_;
  std::vector<std::uint32_t> readers_;
  std::vector<std::uint32_t> reached_, touched_, work_;
  std::vector<priced> priced_;
  std::vector<max_flow::arc> plain_;     // arcs of infinite capacity
  std::vector<max_flow::arc> wait_arc_;  // c(o) → r(o), by wait_index
  max_flow flow_;
  max_flow::state kept_;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/bound/impl/moment_cut.hpp"
#endif
