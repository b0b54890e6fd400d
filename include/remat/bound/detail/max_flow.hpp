// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE::detail {

/// Maximum flow and minimum cut on flat arrays, in exact 64-bit integers. Capacities may be raised between runs.
///
/// The network has `num_nodes` nodes, a source and a sink. Each node stores the capacities of its arcs from the source
/// and to the sink. Method: waves of a preflow \cite goldberg1988preflow. A backward breadth-first search finds exact
/// distances to the sink. Then each node, farthest first, pushes its excess along arcs to nodes that are nearer by one.
/// Excess that cannot move stays at its node until the next wave. The flow is maximum when no node with excess reaches
/// the sink. Differs from the paper: distances are computed anew for each wave, in place of local relabelling.
///
/// The value of a preflow at the sink never exceeds the capacity of a cut. So `value()` is a lower bound on the minimum
/// cut at any time, also after a run that was stopped, and equal to it after a complete run.
///
/// O(arcs) time a wave; the number of waves is at most quadratic in the nodes, and in practice a few times the longest
/// shortest path. Memory: 16 bytes for each direction of an arc, 33 for a node.
///
///     max_flow f;
///     f.reset(2);
///     const auto a = f.add_arc(0, 1);
///     f.finish();
///     f.set_capacity(a, 5);
///     f.raise_source(0, 7);
///     f.set_sink(1, 9);
///     f.run();                // value() == 5, reaches_sink(0) == false
class max_flow {
 public:
  using capacity = std::int64_t;  ///< A capacity or a flow.
  using node = std::uint32_t;     ///< The number of a node, from 0.
  using arc = std::uint32_t;      ///< The number of an arc between two nodes, from 0, in the order of `add_arc`.

  /// An upper limit for each capacity and for the sum of the capacities from the source. The sum of two is in range.
  static constexpr capacity infinite = capacity{1} << 61;

  /// Starts a new network with the nodes 0 … n − 1 and no arcs.
  void reset(node n = 0) {
    num_nodes_ = n;
    tail_.clear();
    head_.clear();
  }

  /// Adds a node. Precondition: before `finish`.
  node add_node() { return num_nodes_++; }

  /// Adds an arc between two nodes, whose capacities are set after `finish`. Precondition: before `finish`.
  arc add_arc(node from, node to) {
    assert(from < num_nodes_ && to < num_nodes_);
    tail_.push_back(from);
    head_.push_back(to);
    return static_cast<arc>(tail_.size() - 1);
  }

  /// Ends the construction: orders the arcs by node, with all capacities 0. O(nodes + arcs) time.
  void finish() {
    const std::size_t n = num_nodes_, m = tail_.size();
    begin_.assign(n + 1, 0);
    for (std::size_t i = 0; i < m; ++i) {
      ++begin_[tail_[i] + 1];
      ++begin_[head_[i] + 1];
    }
    for (std::size_t v = 0; v < n; ++v) begin_[v + 1] += begin_[v];
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    now_.halves.resize(2 * m);
    forward_.resize(m);
    for (std::size_t i = 0; i < m; ++i) {
      const std::uint32_t a = next[tail_[i]]++, b = next[head_[i]]++;
      now_.halves[a] = {head_[i], b, 0};
      now_.halves[b] = {tail_[i], a, 0};
      forward_[i] = a;
    }
    now_.excess.assign(n, 0);
    now_.sink.assign(n, 0);
    distance_.assign(n, 0);
    now_.value = 0;
  }

  /// Removes all flow. The capacities must be set again.
  void clear_flow() {
    std::fill(now_.excess.begin(), now_.excess.end(), capacity{0});
    std::fill(now_.sink.begin(), now_.sink.end(), capacity{0});
    now_.value = 0;
  }

  /// Sets the capacities of an arc in both directions. The arc has no flow then.
  void set_capacity(arc a, capacity forward, capacity backward = 0) noexcept {
    half& h = now_.halves[forward_[a]];
    h.residual = forward;
    now_.halves[h.mate].residual = backward;
  }
  /// Sets the capacity of the arc from node `v` to the sink. Precondition: there is no flow.
  void set_sink(node v, capacity c) noexcept { now_.sink[v] = c; }

  /// Adds `more` ≥ 0 to the forward capacity of an arc, and keeps the flow.
  void raise_capacity(arc a, capacity more) noexcept { now_.halves[forward_[a]].residual += more; }
  /// Adds `more` ≥ 0 to the capacity of the arc from the source to node `v`, and keeps the flow.
  void raise_source(node v, capacity more) noexcept { now_.excess[v] += more; }

  /// A direction of an arc: its head, the other direction, and what it can still take.
  struct half {
    node head;           ///< the end of the arc in this direction
    std::uint32_t mate;  ///< the place of the other direction
    capacity residual;   ///< the flow that this direction can still take
  };
  /// A copy of the capacities and the flow.
  struct state {
    std::vector<half> halves;      ///< the halves of all arcs
    std::vector<capacity> excess;  ///< the flow that waits at each node
    std::vector<capacity> sink;    ///< the flow that the arc from each node to the sink can still take
    capacity value = 0;            ///< the flow that has arrived at the sink
  };
  /// Copies the capacities and the flow to `s`.
  void save(state& s) const { s = now_; }
  /// Copies the capacities and the flow from `s`. Precondition: `s` is of a network with the same nodes and arcs.
  void restore(const state& s) { now_ = s; }

  /// Raises the flow to the maximum. Calls `stop()`, if it is not empty, before each wave and every `poll_stride`
  /// nodes, and ends early when it returns true. Returns true if the flow is maximum.
  bool run(const std::function<bool()>& stop = {}) {
    is_stopped_ = false;
    while (search(stop)) {
      is_stopped_ = is_stopped_ || (stop && stop());
      if (!is_stopped_) wave(stop);
      if (is_stopped_) return false;
    }
    return !is_stopped_;
  }

  /// The flow that has arrived at the sink.
  [[nodiscard]] capacity value() const noexcept { return now_.value; }
  /// False, after a complete run, for the nodes on the source's side of the minimum cut: of several minimum cuts the
  /// one with the most nodes on that side.
  [[nodiscard]] bool reaches_sink(node v) const noexcept { return distance_[v] != far; }

 private:
  static constexpr std::uint32_t far = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t poll_stride = std::size_t{1} << 14;  // nodes; less than a millisecond

  /// Asks `stop` at every `poll_stride`-th node. Returns true if it ends the run.
  [[nodiscard]] bool is_stopped_at(std::size_t i, const std::function<bool()>& stop) {
    if (i % poll_stride == poll_stride - 1 && stop && stop()) is_stopped_ = true;
    return is_stopped_;
  }

  /// Finds the distances to the sink, and lists the nodes that reach it in `queue_`, nearest first. Returns true when
  /// one of them has excess. If it is stopped, some distances are missing.
  bool search(const std::function<bool()>& stop) {
    std::fill(distance_.begin(), distance_.end(), far);
    queue_.resize(num_nodes_);
    std::size_t last = 0;
    bool active = false;
    for (node v = 0; v < num_nodes_; ++v)
      if (now_.sink[v] > 0) {
        distance_[v] = 1;
        queue_[last++] = v;
      }
    for (std::size_t i = 0; i < last; ++i) {
      if (is_stopped_at(i, stop)) break;
      const node v = queue_[i];
      active = active || now_.excess[v] > 0;
      const std::uint32_t d = distance_[v] + 1;
      for (std::uint32_t e = begin_[v]; e < begin_[v + 1]; ++e) {
        const node u = now_.halves[e].head;
        if (distance_[u] == far && now_.halves[now_.halves[e].mate].residual > 0) {
          distance_[u] = d;
          queue_[last++] = u;
        }
      }
    }
    queue_.resize(last);
    return active;
  }

  void wave(const std::function<bool()>& stop) {
    for (std::size_t i = queue_.size(); i-- > 0;) {
      if (is_stopped_at(i, stop)) return;
      const node v = queue_[i];
      capacity have = now_.excess[v];
      if (have == 0) continue;
      if (now_.sink[v] > 0) {
        const capacity c = std::min(have, now_.sink[v]);
        now_.sink[v] -= c;
        have -= c;
        now_.value += c;
      }
      const std::uint32_t d = distance_[v];
      for (std::uint32_t e = begin_[v]; have > 0 && e < begin_[v + 1]; ++e) {
        half& h = now_.halves[e];
        if (h.residual == 0 || distance_[h.head] + 1 != d) continue;
        const capacity c = std::min(have, h.residual);
        h.residual -= c;
        now_.halves[h.mate].residual += c;
        now_.excess[h.head] += c;
        have -= c;
      }
      now_.excess[v] = have;
    }
  }

  node num_nodes_ = 0;
  std::vector<node> tail_, head_;
  std::vector<std::uint32_t> begin_{0}, forward_;
  state now_;
  std::vector<std::uint32_t> distance_;
  std::vector<node> queue_;
  bool is_stopped_ = false;
};

}  // namespace REMAT_NAMESPACE::detail
