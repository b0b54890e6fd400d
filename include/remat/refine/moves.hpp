// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "remat/core/random.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/timeline.hpp"

namespace remat {

/// The moves of refinement on one timeline.
///
/// *Retain*: a recomputation goes, what it made is held instead from its last use on; where that breaks the budget,
/// tensors that lie idle there are dropped and computed again before their next use, cheapest first, until it fits.
/// *Move*: a compute changes places. A move that makes things worse is taken with the probability of simulated
/// annealing at `temperature` (in units of time).
class refine_moves {
 public:
  using node = timeline::node;

  refine_moves(timeline& plan, std::uint64_t seed) : plan_(plan), step_(plan.graph()), random_(seed) {
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t)
      if (step_.bytes[t] > 0 && step_.producers[t].size() == 1 && plan.rerunnable(step_.producers[t][0]))
        droppable_.push_back(t);
    std::sort(droppable_.begin(), droppable_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return step_.bytes[a] != step_.bytes[b] ? step_.bytes[a] > step_.bytes[b] : a < b;
    });
    seen_.assign(step_.num_operations, 0);
  }

  double temperature = 0;

  /// One random move. Returns whether the schedule changed.
  bool random_move() {
    const std::uint32_t kind = random_.below(8);
    if (kind == 0) return random_shift();
    const node x = random_recompute();
    return x != timeline::none && retain(x);
  }

  /// Removes node `x`, drops what has to be dropped for it, and keeps the result if it is accepted.
  bool retain(node x) {
    if (!plan_.alive(x) || !plan_.removable(x)) return false;
    const double before = plan_.time();
    const double allowed = before + tolerance();
    const std::uint32_t o = plan_.operation(x);
    plan_.remove(x);
    sweep(o);
    if (!repair(allowed) || plan_.time() > allowed) {
      plan_.undo(0);
      return false;
    }
    plan_.keep();
    return true;
  }

  /// Drops idle tensors until the schedule fits the budget, for at most `allowed` time.
  bool repair(double allowed) {
    std::size_t tries = 0;
    stopped_ = false;
    while (plan_.excess() > 0) {
      if (++tries > most_repairs || plan_.time() > allowed) return false;
      const node v = plan_.violated();
      if (v == timeline::none || !drop_across(v, allowed)) return false;
    }
    return true;
  }
  std::size_t most_repairs = 12;

  /// Called once per `poll_stride` steps of a repair's search; if it returns true, the repair gives up.
  std::function<bool()> must_stop{};
  static constexpr std::uint32_t poll_stride = 4096;

 private:
  /// Counts steps of a search. Returns whether `must_stop` has ended the repair.
  bool tick(std::uint32_t steps = 1) {
    steps_ += steps;
    if (steps_ >= poll_stride) {
      steps_ = 0;
      stopped_ = stopped_ || (must_stop && must_stop());
    }
    return stopped_;
  }

  double tolerance() {
    if (temperature <= 0) return 0;
    return -temperature * std::log(1.0 - random_.uniform());
  }

  node random_recompute() {
    for (int i = 0; i < 64; ++i) {
      const node x = random_.below(static_cast<std::uint32_t>(plan_.node_limit()));
      if (x > timeline::tail && plan_.alive(x) && plan_.removable(x)) return x;
    }
    return timeline::none;
  }

  /// After a run of `o` has gone: runs that made only what it read, and their like, go too.
  void sweep(std::uint32_t o) {
    stack_.assign(1, o);
    while (!stack_.empty()) {
      const std::uint32_t gone = stack_.back();
      stack_.pop_back();
      for (const std::uint32_t t : step_.inputs[gone]) {
        if (step_.producers[t].size() != 1) continue;
        const auto events = plan_.events(t);
        for (std::size_t i = 0; i < events.size(); ++i) {
          if (!events[i].write || (i + 1 < events.size() && !events[i + 1].write)) continue;
          const node y = events[i].at;
          if (!plan_.removable(y) || !plan_.unread(y)) continue;
          stack_.push_back(plan_.operation(y));
          plan_.remove(y);
          break;  // the list has changed; one such run at most comes from one removal
        }
      }
    }
  }

  /// The time to make `t` before node `y`, what is not live there included; infinite above `most`.
  double remake_time(std::uint32_t t, node y, double most) {
    ++stamp_;
    double sum = 0;
    stack_.assign(1, step_.producers[t][0]);
    seen_[stack_[0]] = stamp_;
    while (!stack_.empty()) {
      const std::uint32_t o = stack_.back();
      stack_.pop_back();
      sum += step_.time[o];
      if (sum > most || tick()) return std::numeric_limits<double>::infinity();
      for (const std::uint32_t u : step_.inputs[o]) {
        if (plan_.live_before(u, y)) continue;
        if (step_.producers[u].size() != 1) return std::numeric_limits<double>::infinity();
        const std::uint32_t q = step_.producers[u][0];
        if (!plan_.rerunnable(q)) return std::numeric_limits<double>::infinity();
        if (seen_[q] == stamp_) continue;
        seen_[q] = stamp_;
        stack_.push_back(q);
      }
    }
    return sum;
  }

  /// Drops a tensor that lies idle while node `v` runs, and makes it again before its next use.
  bool drop_across(node v, double allowed) {
    const std::int64_t over = plan_.over_budget(v);
    const double most = allowed - plan_.time();
    double least = std::numeric_limits<double>::infinity();
    std::uint32_t best = timeline::none;
    node best_use = timeline::none;
    for (const std::uint32_t t : droppable_) {
      const std::int64_t bytes = step_.bytes[t];
      if (bytes < over / 16) break;
      if (tick()) return false;
      const auto events = plan_.events(t);
      const std::size_t i = plan_.first_event_from(t, v);
      if (i == 0 || i == events.size() || events[i].write || events[i].at == v) continue;
      const double worth = static_cast<double>(std::min(bytes, over));
      const double own = step_.time[step_.producers[t][0]];
      if (own / worth >= least) continue;
      double cost = remake_time(t, events[i].at, most);
      if (!(cost <= most)) continue;
      cost = (cost + 1e-3 * own) / worth * (0.5 + random_.uniform());
      if (cost < least) {
        least = cost;
        best = t;
        best_use = events[i].at;
      }
    }
    if (best == timeline::none) return false;
    ++stamp_;
    return remake(best, best_use, 0);
  }

  /// Inserts before node `y` what makes `t` there. What it makes is marked with the stamp: nobody reads it yet when a
  /// second reader asks for it.
  bool remake(std::uint32_t t, node y, std::size_t depth) {
    if (step_.producers[t].size() != 1 || depth > 200) return false;
    const std::uint32_t o = step_.producers[t][0];
    if (!plan_.rerunnable(o)) return false;
    for (const std::uint32_t u : step_.inputs[o]) {
      if (plan_.live_before(u, y)) continue;
      if (step_.producers[u].size() == 1 && seen_[step_.producers[u][0]] == stamp_) continue;
      if (plan_.first_event_from(u, y) == 0) return false;
      // Either it is held on from its last use, or it is made again as well.
      const bool makeable = step_.producers[u].size() == 1 && plan_.rerunnable(step_.producers[u][0]);
      if (!makeable || (random_.below(4) != 0 && plan_.extends(u, y, 400))) continue;
      if (!remake(u, y, depth + 1)) return false;
    }
    plan_.insert(o, y);
    seen_[o] = stamp_;
    return true;
  }

  /// A random compute takes another place close by; taken if less memory is held over the schedule, or by chance.
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
    plan_.undo(0);
    return false;
  }

  timeline& plan_;
  const flat_graph& step_;
  random_source random_;
  std::vector<std::uint32_t> droppable_, stack_, seen_;
  std::uint32_t stamp_ = 0, steps_ = 0;
  bool stopped_ = false;
};

}  // namespace remat
