// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/bound/detail/max_flow.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE::detail {

/// The common part of the minimum-cut networks of one moment, the first run of an operation k: which operations have
/// run, and the nodes and arcs that say what follows from what. `moment_cut` explains them. The networks differ in
/// which operations and tensors take part, and in what they cost.
class moment_network {
 public:
  /// Bytes of the moment's operation itself: its inputs, its outputs and its workspace.
  [[nodiscard]] std::int64_t working_set() const noexcept { return working_set_; }
  /// True if the last flow is maximum: nothing has stopped it.
  [[nodiscard]] bool complete() const noexcept { return complete_; }

 protected:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  enum side : std::uint8_t { open, before, after };  // U, A, D
  // Flags of a tensor at the present moment (`mark_`): k reads or writes it; an operation of D reads it or it is a
  // final output; it has been visited; its arcs of order have been added.
  static constexpr std::uint8_t own = 1, required = 2, touched = 4, ordered = 8;

  explicit moment_network(const flat_graph& graph)
      : graph_(&graph),
        side_(graph.num_operations),
        run_node_(graph.num_operations, none),
        wait_node_(graph.num_operations, none),
        mark_(graph.num_tensors, 0),
        readers_(graph.num_tensors, 0) {}

  /// Finds A and D, and the tensors of k itself.
  void separate() {
    const flat_graph& g = *graph_;
    std::fill(side_.begin(), side_.end(), std::uint8_t{open});
    std::fill(mark_.begin(), mark_.end(), std::uint8_t{0});
    const auto spread = [&](side mark, const index_rows& edges, const index_rows& next) {
      work_.assign(1, moment_);
      while (!work_.empty()) {
        const std::uint32_t o = work_.back();
        work_.pop_back();
        for (const std::uint32_t t : edges[o]) {
          if (mark_[t] & touched) continue;
          mark_[t] |= touched;
          for (const std::uint32_t n : next[t])
            if (side_[n] == open) {
              side_[n] = mark;
              work_.push_back(n);
            }
        }
      }
    };
    side_[moment_] = before;
    spread(before, g.inputs, g.producers);
    std::fill(mark_.begin(), mark_.end(), std::uint8_t{0});
    spread(after, g.outputs, g.consumers);
    std::fill(mark_.begin(), mark_.end(), std::uint8_t{0});
    working_set_ = working_set_bytes(g, moment_);
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[moment_]) mark_[t] |= own;
  }

  /// Takes back what `reach` of the last moment has found.
  void clear_reached() {
    for (const std::uint32_t o : reached_) run_node_[o] = wait_node_[o] = none;
    reached_.clear();
    touched_.clear();
    nodes_ = 0;
  }
  /// Gives operation `o` the node r(o).
  void add_run_node(std::uint32_t o) {
    reached_.push_back(o);  // first: the next call takes back the nodes of these, also if this push fails
    run_node_[o] = nodes_++;
  }
  /// Tensor `t` is read after the moment, as `how` says; calls `run_later(p)` for each producer p the first time.
  /// Returns false if the tensor has no nodes.
  template <class RunLater>
  bool read_later(std::uint32_t t, std::uint8_t how, const RunLater& run_later) {
    const flat_graph& g = *graph_;
    if ((mark_[t] & own) || g.bytes[t] == 0) return false;
    if (!(mark_[t] & (touched | required))) {
      bool computed_here = false;  // otherwise D computes t, after the moment anyway
      for (const std::uint32_t p : g.producers[t]) computed_here = computed_here || side_[p] != after;
      if (!computed_here) return false;
      readers_[t] = 0;
      touched_.push_back(t);
      for (const std::uint32_t p : g.producers[t]) run_later(p);
    }
    mark_[t] |= how;
    return true;
  }
  /// Gives the operations of U the nodes c(o), after all nodes r(o).
  void add_wait_nodes() {
    first_wait_ = nodes_;
    for (const std::uint32_t o : reached_)
      if (side_[o] == open) wait_node_[o] = nodes_++;
  }

  /// Returns the node w(t), with its arcs to the producers.
  std::uint32_t connect_producers(std::uint32_t t) {
    const flat_graph& g = *graph_;
    std::uint32_t producers = 0, computed = none;
    for (const std::uint32_t p : g.producers[t])
      if (side_[p] != after) {
        ++producers;
        computed = run_node_[p];
      }
    if (producers > 1) {
      computed = flow_.add_node();
      for (const std::uint32_t p : g.producers[t])
        if (side_[p] != after) plain_.push_back(flow_.add_arc(computed, run_node_[p]));
    }
    return computed;
  }
  /// Returns the node q(t), with the arcs of its readers. `own_node`: a node of its own, not that of the only reader.
  std::uint32_t connect_readers(std::uint32_t t, bool own_node) {
    const flat_graph& g = *graph_;
    std::uint32_t read = own_node ? flow_.add_node() : none;
    for (const std::uint32_t reader : g.consumers[t]) {
      if (run_node_[reader] == none || (side_[reader] == before && g.once[reader])) continue;
      if (own_node)
        plain_.push_back(flow_.add_arc(run_node_[reader], read));
      else
        read = run_node_[reader];
    }
    return read;
  }
  /// Adds the arcs of operation `o` of U: c(o) → r(o), and that its readers have not run if it has not.
  void connect_waiting(std::uint32_t o) {
    const flat_graph& g = *graph_;
    wait_arc_.push_back(flow_.add_arc(wait_node_[o], run_node_[o]));
    for (const std::uint32_t t : g.outputs[o]) {
      if (mark_[t] & ordered) continue;
      mark_[t] |= ordered;
      // Each producer that has not run implies that no reader has run. Where both are several, one node stands between.
      const bool several = g.producers[t].size() > 1 && g.consumers[t].size() > 1;
      const std::uint32_t middle = several ? flow_.add_node() : none;
      for (const std::uint32_t p : g.producers[t]) {
        if (wait_node_[p] == none) continue;
        if (several) {
          plain_.push_back(flow_.add_arc(wait_node_[p], middle));
        } else {
          for (const std::uint32_t reader : g.consumers[t])
            if (wait_node_[reader] != none) plain_.push_back(flow_.add_arc(wait_node_[p], wait_node_[reader]));
        }
      }
      if (several)
        for (const std::uint32_t reader : g.consumers[t])
          if (wait_node_[reader] != none) plain_.push_back(flow_.add_arc(middle, wait_node_[reader]));
    }
  }

  const flat_graph* graph_;
  std::uint32_t moment_ = 0;
  std::int64_t working_set_ = 0;
  bool complete_ = false;
  int exponent_ = 0;  // times are in units of 2^−exponent
  std::uint32_t nodes_ = 0, first_wait_ = 0;
  std::vector<std::uint8_t> side_;
  std::vector<std::uint32_t> run_node_, wait_node_;
  std::vector<std::uint8_t> mark_;
  std::vector<std::uint32_t> readers_;
  std::vector<std::uint32_t> reached_, touched_, work_;
  std::vector<max_flow::arc> plain_;     // arcs of infinite capacity
  std::vector<max_flow::arc> wait_arc_;  // c(o) → r(o), by the number of the node c(o)
  max_flow flow_;
};

}  // namespace REMAT_NAMESPACE::detail
