// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/timeline.hpp"

namespace REMAT_NAMESPACE::detail {

/// The moves of refinement on one timeline.
///
/// *Retain*: a recomputation is removed, and its results are held from their last use on instead. If that breaks the
/// budget, the schedule is *repaired*: tensors that lie idle where it exceeds the budget are dropped and recomputed
/// before their next use, the cheapest first, until it fits. *Shift*: a compute takes another place.
///
/// A move that makes the schedule slower is accepted with the probability of simulated annealing at `temperature`.
class refine_moves {
 public:
  using node = timeline::node;  ///< A compute of the schedule.

  /// `plan` must outlive this object; the moves keep it legal and within its budget.
  explicit refine_moves(timeline& plan, std::uint64_t seed = 0) : plan_(plan), graph_(plan.graph()), random_(seed) {
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
      if (graph_.bytes[t] > 0 && is_recomputable(t))
        droppable_.push_back({graph_.bytes[t], graph_.time[graph_.producers[t][0]], t});
    std::stable_sort(droppable_.begin(), droppable_.end(),
                     [](const candidate& a, const candidate& b) { return a.bytes > b.bytes; });
    seen_.assign(graph_.num_operations, 0);
  }

  /// Begins the random numbers of a seed.
  void begin(std::uint64_t seed) { random_ = random_source(seed); }

  double temperature = 0;        ///< a temperature in units of time; 0: no move makes the schedule slower
  std::size_t max_repairs = 12;  ///< tensors that one repair may drop

  /// Called once per `poll_stride` steps of a repair's search. If it returns true, the repair gives up, and its move is
  /// undone. Empty: nothing stops a repair.
  std::function<bool()> must_stop{};
  /// Steps of a repair's search between two calls of `must_stop`.
  static constexpr std::uint32_t poll_stride = 4096;

  /// Tries one random move. Returns whether the schedule changed.
  bool random_move() {
    if (random_.below(8) == 0) return random_shift();
    const node x = random_recomputation();
    return x != timeline::none && retain(x);
  }

  /// Removes node `x` and repairs the budget. Returns whether the result was accepted; otherwise the schedule is as it
  /// was.
  bool retain(node x) {
    if (!plan_.alive(x) || !plan_.removable(x)) return false;
    const double allowed = plan_.time() + random_tolerance();
    const std::uint32_t o = plan_.operation(x);
    plan_.remove(x);
    remove_unread_inputs(o);
    if (!repair(allowed) || plan_.time() > allowed) {
      plan_.undo();
      return false;
    }
    plan_.keep();
    return true;
  }

  /// Drops idle tensors until the schedule fits the budget. Returns false, with some tensors dropped, if that takes
  /// more than `max_repairs` tensors or makes the schedule slower than `allowed`.
  bool repair(double allowed) {
    stopped_ = false;
    for (std::size_t dropped = 0; plan_.excess() > 0; ++dropped) {
      if (dropped == max_repairs || plan_.time() > allowed) return false;
      const node v = plan_.violated();
      if (v == timeline::none || !drop_across(v, allowed)) return false;
    }
    return true;
  }

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();

  struct candidate {  // a tensor to drop
    std::int64_t bytes;
    double own;  // time of the producer
    std::uint32_t tensor;
  };

  /// Counts a step of a search. Returns whether `must_stop` has ended the repair.
  bool tick() {
    if (++steps_ >= poll_stride) {
      steps_ = 0;
      stopped_ = stopped_ || (must_stop && must_stop());
    }
    return stopped_;
  }

  /// True for a tensor that one operation writes, which may run again.
  [[nodiscard]] bool is_recomputable(std::uint32_t t) const {
    return !graph_.producers[t].empty() && plan_.rerunnable(graph_.producers[t][0]);
  }

  /// The time by which the next move may make the schedule slower.
  double random_tolerance() { return temperature <= 0 ? 0 : -temperature * std::log(1.0 - random_.uniform()); }

  node random_recomputation() {
    for (int i = 0; i < 64; ++i) {
      const node x = random_.below(static_cast<std::uint32_t>(plan_.node_limit()));
      if (x > timeline::tail && plan_.alive(x) && plan_.removable(x)) return x;
    }
    return timeline::none;
  }

  /// Removes the runs whose results only a removed run of `o` read, and so on.
  void remove_unread_inputs(std::uint32_t o) {
    stack_.assign(1, o);
    while (!stack_.empty()) {
      const std::uint32_t gone = stack_.back();
      stack_.pop_back();
      for (const std::uint32_t t : graph_.inputs[gone]) {
        if (graph_.producers[t].size() != 1) continue;
        const auto events = plan_.events(t);
        for (std::size_t i = 0; i < events.size(); ++i) {
          if (!events[i].write || (i + 1 < events.size() && !events[i + 1].write)) continue;
          const node y = events[i].at;
          if (!plan_.removable(y) || !plan_.unread(y)) continue;
          stack_.push_back(plan_.operation(y));
          plan_.remove(y);
          break;  // the list of events has changed; one removal makes at most one such run unread
        }
      }
    }
  }

  /// The time to recompute `t` before node `y`, with the ancestors that are not live there; infinite above `max_time`.
  double recompute_time(std::uint32_t t, node y, double max_time) {
    ++stamp_;
    double sum = 0;
    stack_.assign(1, graph_.producers[t][0]);
    seen_[stack_[0]] = stamp_;
    while (!stack_.empty()) {
      const std::uint32_t o = stack_.back();
      stack_.pop_back();
      sum += graph_.time[o];
      if (sum > max_time || tick()) return infinite;
      for (const std::uint32_t u : graph_.inputs[o]) {
        if (plan_.live_before(u, y)) continue;
        if (!is_recomputable(u)) return infinite;
        const std::uint32_t q = graph_.producers[u][0];
        if (std::exchange(seen_[q], stamp_) != stamp_) stack_.push_back(q);
      }
    }
    return sum;
  }

  /// Drops a tensor that lies idle while node `v` runs, and recomputes it before its next use.
  bool drop_across(node v, double allowed) {
    const std::int64_t over = plan_.over_budget(v);
    const double max_time = allowed - plan_.time();
    double least = infinite;
    std::uint32_t best = timeline::none;
    node best_use = timeline::none;
    // A large graph gets a sample; else a move would take longer the larger the graph is.
    const std::size_t stride = 1 + droppable_.size() / most_candidates;
    for (std::size_t k = stride == 1 ? 0 : random_.below(static_cast<std::uint32_t>(stride)); k < droppable_.size();
         k += stride) {
      const auto [bytes, own, t] = droppable_[k];
      if (bytes < over / 16) break;
      if (tick()) return false;
      const double worth = static_cast<double>(std::min(bytes, over));
      // The time is at least `own`, which is cheaper to see than where the tensor lies idle.
      if (own >= least * worth || own > max_time) continue;
      const auto events = plan_.events(t);
      const std::size_t i = plan_.first_event_from(t, v);
      if (i == 0 || i == events.size() || events[i].write || events[i].at == v) continue;
      const double time = recompute_time(t, events[i].at, max_time);
      if (!(time <= max_time)) continue;
      const double cost = (time + 1e-3 * own) / worth * (0.5 + random_.uniform());
      if (cost < least) {
        least = cost;
        best = t;
        best_use = events[i].at;
      }
    }
    if (best == timeline::none) return false;
    ++stamp_;
    return recompute(best, best_use, 0);
  }

  /// Inserts the computes that make `t` before node `y`. Marks them with the stamp, so that a second reader of their
  /// results does not recompute them again. Precondition: `is_recomputable(t)`.
  bool recompute(std::uint32_t t, node y, std::size_t depth) {
    if (depth > 200) return false;
    const std::uint32_t o = graph_.producers[t][0];
    for (const std::uint32_t u : graph_.inputs[o]) {
      if (plan_.live_before(u, y)) continue;
      if (is_recomputable(u) && seen_[graph_.producers[u][0]] == stamp_) continue;
      if (plan_.first_event_from(u, y) == 0) return false;
      // The input is either held from its last use on, or recomputed as well.
      if (!is_recomputable(u) || (random_.below(4) != 0 && plan_.extends(u, y, 400))) continue;
      if (!recompute(u, y, depth + 1)) return false;
    }
    plan_.insert(o, y);
    seen_[o] = stamp_;
    return true;
  }

  /// Moves a random compute to a place near by. Accepted if the schedule holds less memory over time, or by chance.
  bool random_shift() {
    const node x = 2 + random_.below(static_cast<std::uint32_t>(plan_.node_limit()) - 2);
    if (plan_.node_limit() <= 2 || !plan_.alive(x)) return false;
    node before = x;
    const std::uint32_t distance = 1 + random_.below(random_.below(4) == 0 ? 60 : 6);
    const bool later = random_.below(2) != 0;
    for (std::uint32_t i = 0; i < distance; ++i) {
      const node y = later ? plan_.next(before) : plan_.previous(before);
      if (y == timeline::tail || y == timeline::head) break;
      before = y;
    }
    if (later) before = plan_.next(before);
    if (before == timeline::head || !plan_.movable(x, before)) return false;
    const double area = plan_.area();
    plan_.move(x, before);
    if (plan_.excess() == 0 && (plan_.area() <= area || random_.below(8) == 0)) {
      plan_.keep();
      return true;
    }
    plan_.undo();
    return false;
  }

  static constexpr std::size_t most_candidates = 4096;  // tensors that one drop looks at

  timeline& plan_;
  const flat_graph& graph_;
  random_source random_;
  std::vector<candidate> droppable_;  // the largest first
  std::vector<std::uint32_t> stack_, seen_;
  std::uint32_t stamp_ = 0, steps_ = 0;
  bool stopped_ = false;
};

}  // namespace REMAT_NAMESPACE::detail
