// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/refine/detail/moves.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "remat/core/detail/linkage.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/timeline.hpp"

namespace remat::detail {

REMAT_INLINE refine_moves::refine_moves(timeline& plan, std::uint64_t seed)
    : plan_(plan), graph_(plan.graph()), random_(seed) {
  for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
    if (graph_.bytes[t] > 0 && graph_.producers[t].size() == 1 && plan.rerunnable(graph_.producers[t][0]))
      droppable_.push_back(t);
  std::sort(droppable_.begin(), droppable_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return graph_.bytes[a] != graph_.bytes[b] ? graph_.bytes[a] > graph_.bytes[b] : a < b;
  });
  seen_.assign(graph_.num_operations, 0);
}

REMAT_INLINE bool refine_moves::random_move() {
  const std::uint32_t kind = random_.below(8);
  if (kind == 0) return random_shift();
  const node x = random_recomputation();
  return x != timeline::none && retain(x);
}

REMAT_INLINE bool refine_moves::retain(node x) {
  if (!plan_.alive(x) || !plan_.removable(x)) return false;
  const double before = plan_.time();
  const double allowed = before + random_tolerance();
  const std::uint32_t o = plan_.operation(x);
  plan_.remove(x);
  remove_unread_inputs(o);
  if (!repair(allowed) || plan_.time() > allowed) {
    plan_.undo(0);
    return false;
  }
  plan_.keep();
  return true;
}

REMAT_INLINE bool refine_moves::repair(double allowed) {
  std::size_t tries = 0;
  stopped_ = false;
  while (plan_.excess() > 0) {
    if (++tries > most_repairs || plan_.time() > allowed) return false;
    const node v = plan_.violated();
    if (v == timeline::none || !drop_across(v, allowed)) return false;
  }
  return true;
}

REMAT_INLINE bool refine_moves::tick(std::uint32_t steps) {
  steps_ += steps;
  if (steps_ >= poll_stride) {
    steps_ = 0;
    stopped_ = stopped_ || (must_stop && must_stop());
  }
  return stopped_;
}

REMAT_INLINE double refine_moves::random_tolerance() {
  if (temperature <= 0) return 0;
  return -temperature * std::log(1.0 - random_.uniform());
}

REMAT_INLINE refine_moves::node refine_moves::random_recomputation() {
  for (int i = 0; i < 64; ++i) {
    const node x = random_.below(static_cast<std::uint32_t>(plan_.node_limit()));
    if (x > timeline::tail && plan_.alive(x) && plan_.removable(x)) return x;
  }
  return timeline::none;
}

REMAT_INLINE void refine_moves::remove_unread_inputs(std::uint32_t o) {
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

REMAT_INLINE double refine_moves::recompute_time(std::uint32_t t, node y, double most) {
  ++stamp_;
  double sum = 0;
  stack_.assign(1, graph_.producers[t][0]);
  seen_[stack_[0]] = stamp_;
  while (!stack_.empty()) {
    const std::uint32_t o = stack_.back();
    stack_.pop_back();
    sum += graph_.time[o];
    if (sum > most || tick()) return std::numeric_limits<double>::infinity();
    for (const std::uint32_t u : graph_.inputs[o]) {
      if (plan_.live_before(u, y)) continue;
      if (graph_.producers[u].size() != 1) return std::numeric_limits<double>::infinity();
      const std::uint32_t q = graph_.producers[u][0];
      if (!plan_.rerunnable(q)) return std::numeric_limits<double>::infinity();
      if (seen_[q] == stamp_) continue;
      seen_[q] = stamp_;
      stack_.push_back(q);
    }
  }
  return sum;
}

REMAT_INLINE bool refine_moves::drop_across(node v, double allowed) {
  const std::int64_t over = plan_.over_budget(v);
  const double most = allowed - plan_.time();
  double least = std::numeric_limits<double>::infinity();
  std::uint32_t best = timeline::none;
  node best_use = timeline::none;
  for (const std::uint32_t t : droppable_) {
    const std::int64_t bytes = graph_.bytes[t];
    if (bytes < over / 16) break;
    if (tick()) return false;
    const auto events = plan_.events(t);
    const std::size_t i = plan_.first_event_from(t, v);
    if (i == 0 || i == events.size() || events[i].write || events[i].at == v) continue;
    const double worth = static_cast<double>(std::min(bytes, over));
    const double own = graph_.time[graph_.producers[t][0]];
    if (own / worth >= least) continue;
    double cost = recompute_time(t, events[i].at, most);
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
  return recompute(best, best_use, 0);
}

REMAT_INLINE bool refine_moves::recompute(std::uint32_t t, node y, std::size_t depth) {
  if (graph_.producers[t].size() != 1 || depth > 200) return false;
  const std::uint32_t o = graph_.producers[t][0];
  if (!plan_.rerunnable(o)) return false;
  for (const std::uint32_t u : graph_.inputs[o]) {
    if (plan_.live_before(u, y)) continue;
    if (graph_.producers[u].size() == 1 && seen_[graph_.producers[u][0]] == stamp_) continue;
    if (plan_.first_event_from(u, y) == 0) return false;
    // The input is either held from its last use on, or recomputed as well.
    const bool recomputable = graph_.producers[u].size() == 1 && plan_.rerunnable(graph_.producers[u][0]);
    if (!recomputable || (random_.below(4) != 0 && plan_.extends(u, y, 400))) continue;
    if (!recompute(u, y, depth + 1)) return false;
  }
  plan_.insert(o, y);
  seen_[o] = stamp_;
  return true;
}

REMAT_INLINE bool refine_moves::random_shift() {
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

}  // namespace remat::detail
