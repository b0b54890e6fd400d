// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/refine/detail/eviction_pass.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

REMAT_INLINE eviction_pass::eviction_pass(const problem& p) : graph_(p.graph()) {
  const std::size_t n = graph_.num_operations, m = graph_.num_tensors;
  for (std::uint32_t o = 0; o < n; ++o)
    if (graph_.needed[o]) order_.push_back(o);
  uses_.begin.reserve(m + 1);
  for (std::uint32_t t = 0; t < m; ++t) {
    for (const std::uint32_t o : graph_.consumers[t])
      if (graph_.needed[o]) uses_.values.push_back(o);
    uses_.end_row();
  }
  rerunnable_.assign(n, 0);
  for (std::uint32_t o = 0; o < n; ++o) {
    bool ok = graph_.once[o] == 0;
    for (const std::uint32_t t : graph_.outputs[o])
      ok = ok && (graph_.producers[t].size() == 1 || graph_.outputs[o].size() == 1);
    rerunnable_[o] = ok;
  }
  recomputable_.assign(m, 1);
  for (std::uint32_t t = 0; t < m; ++t)
    for (const std::uint32_t o : graph_.producers[t]) recomputable_[t] = recomputable_[t] && rerunnable_[o];
  state_.resize(m);
  next_use_.resize(m);
  soonest_.resize(m);
  use_at_.resize(m);
  pins_.resize(m);
  written_.resize(m);
  cost_.resize(m);
  cost_at_.resize(m);
  slot_.resize(m);
  scaled_factor_.resize(m);
  seen_.assign(n, 0);
  marked_.assign(m, 0);
  held_.assign(m, 0);
  byte_power_.resize(m);
  distance_power_.resize(n + 2);
}

REMAT_INLINE bool eviction_pass::run(std::int64_t budget, const eviction_weights& weights,
                                     std::span<const float> factor, double longest, run_clock& clock) {
  clock_ = &clock;
  reset(budget, weights, factor, longest);
  for (const std::uint32_t o : order_) {
    now_ = o;
    remaining_ -= graph_.time[o];
    clock.work();
    if ((o & 255U) == 0 && clock.should_stop()) return false;
    if (!first_run(o) || stopped_) return false;
  }
  return make_final_outputs() && !stopped_;
}

REMAT_INLINE bool eviction_pass::poll() {
  steps_ = 0;
  clock_->work();
  stopped_ = stopped_ || clock_->should_stop();
  return stopped_;
}

template <class Run, class Read>
bool eviction_pass::for_each_recomputation(std::uint32_t t, Run&& run, Read&& read) {
  ++stamp_;
  stack_.clear();
  const auto push_producers = [&](std::uint32_t u) {
    for (const std::uint32_t o : graph_.producers[u]) {
      if (seen_[o] == stamp_) continue;
      seen_[o] = stamp_;
      stack_.push_back(o);
    }
  };
  push_producers(t);
  while (!stack_.empty()) {
    const std::uint32_t o = stack_.back();
    stack_.pop_back();
    if (tick() || !run(o)) return false;
    for (const std::uint32_t u : graph_.inputs[o]) {
      if (!read(u)) return false;
      if (!readable(u)) push_producers(u);
    }
  }
  return true;
}

REMAT_INLINE void eviction_pass::reset(std::int64_t budget, const eviction_weights& weights,
                                       std::span<const float> factor, double longest) {
  const std::size_t m = graph_.num_tensors;
  budget_ = budget;
  weights_ = weights;
  steps_ = 0;
  stopped_ = false;
  longest_ = longest;
  memory_ = 0;
  time_ = 0;
  remaining_ = graph_.needed_time;
  change_ = 0;
  computes_.clear();
  wanted_.clear();
  resident_tensors_.clear();
  foreseen_pool_.clear();
  foreseen_.assign(m, never);
  std::fill(state_.begin(), state_.end(), std::uint8_t{not_made});
  std::fill(pins_.begin(), pins_.end(), 0U);
  std::fill(written_.begin(), written_.end(), 0U);
  for (std::uint32_t t = 0; t < m; ++t) {
    use_at_[t] = uses_.begin[t];
    next_use_[t] = soonest_[t] = next_use_after(t);
    if (graph_.always_resident[t]) state_[t] = resident;
  }
  if (weights.bytes_exponent != bytes_exponent_) {
    bytes_exponent_ = weights.bytes_exponent;
    for (std::uint32_t t = 0; t < m; ++t)
      byte_power_[t] = inverse_power(static_cast<double>(std::max<std::int64_t>(graph_.bytes[t], 1)), bytes_exponent_);
  }
  if (weights.distance_exponent != distance_exponent_) {
    distance_exponent_ = weights.distance_exponent;
    for (std::size_t d = 0; d < distance_power_.size(); ++d)
      distance_power_[d] = inverse_power(static_cast<double>(std::max<std::size_t>(d, 1)), distance_exponent_);
  }
  for (std::uint32_t t = 0; t < m; ++t) scaled_factor_[t] = byte_power_[t] * factor[t];
}

REMAT_INLINE float eviction_pass::inverse_power(double x, double e) {
  return static_cast<float>(e == 1 ? 1 / x : e == 0 ? 1 : e == 0.5 ? 1 / std::sqrt(x) : std::pow(x, -e));
}

REMAT_INLINE std::uint32_t eviction_pass::next_use_after(std::uint32_t t) const noexcept {
  if (use_at_[t] != uses_.begin[t + 1]) return uses_.values[use_at_[t]];
  return graph_.final_output[t] ? graph_.num_operations : never;
}

REMAT_INLINE bool eviction_pass::first_run(std::uint32_t o) {
  if (!make(o)) return false;
  for (const std::uint32_t t : graph_.inputs[o]) {
    while (use_at_[t] != uses_.begin[t + 1] && uses_.values[use_at_[t]] <= o) ++use_at_[t];
    next_use_[t] = next_use_after(t);
    soonest_[t] = soonest_use(t);
    if (next_use_[t] == never) drop_dead(t);
  }
  for (const std::uint32_t t : graph_.outputs[o])
    if (next_use_[t] == never) drop_dead(t);
  return true;
}

REMAT_INLINE bool eviction_pass::make_final_outputs() {
  now_ = graph_.num_operations;
  for (const std::uint32_t t : graph_.final_outputs)
    if (readable(t)) ++pins_[t];
  for (std::size_t round = 0; round <= most_restarts; ++round) {
    bool complete = true;
    for (const std::uint32_t t : graph_.final_outputs) {
      while (!readable(t)) {
        complete = false;
        if (!recomputable_[t]) return false;
        if (!make(graph_.producers[t][state_[t] == resident ? written_[t] : 0])) return false;
        if (readable(t)) ++pins_[t];
      }
    }
    if (complete) return true;
  }
  return false;
}

REMAT_INLINE void eviction_pass::foresee_use(std::uint32_t t, std::uint32_t at, std::uint32_t missing) {
  std::uint32_t* link = &foreseen_[t];
  while (*link != never && foreseen_pool_[*link].at < at) {
    link = &foreseen_pool_[*link].next;
    ++steps_;
  }
  const std::uint32_t rest = *link;
  *link = static_cast<std::uint32_t>(foreseen_pool_.size());  // before the pool may move
  foreseen_pool_.push_back({at, missing, rest});
  soonest_[t] = std::min(soonest_[t], at);
}

REMAT_INLINE std::uint32_t eviction_pass::soonest_use(std::uint32_t t) {
  std::uint32_t& head = foreseen_[t];
  while (head != never && (foreseen_pool_[head].at < now_ || state_[foreseen_pool_[head].missing] == resident))
    head = foreseen_pool_[head].next;
  return head == never ? next_use_[t] : std::min(next_use_[t], foreseen_pool_[head].at);
}

REMAT_INLINE bool eviction_pass::make(std::uint32_t o) {
  frames_.clear();
  frames_.push_back({o, 0, 0});
  while (!frames_.empty()) {
    frame& f = frames_.back();
    if (tick()) return false;
    const auto inputs = graph_.inputs[f.operation];
    bool deeper = false;
    while (f.input < inputs.size()) {
      const std::uint32_t t = inputs[f.input];
      if (readable(t)) {
        ++pins_[t];
        ++f.input;
        continue;
      }
      // A tensor of several producers: the next one that has not run since the tensor was allocated.
      if (!recomputable_[t] || frames_.size() > graph_.num_operations) return false;
      frames_.push_back({graph_.producers[t][state_[t] == resident ? written_[t] : 0], 0, 0});
      deeper = true;
      break;
    }
    if (deeper) continue;
    const bool complete = std::all_of(inputs.begin(), inputs.end(), [&](std::uint32_t t) { return readable(t); });
    if (!complete) {
      if (++f.restarts > most_restarts) return false;
      for (const std::uint32_t t : inputs) --pins_[t];
      f.input = 0;
      continue;
    }
    if (!run_one(f.operation)) return false;
    for (const std::uint32_t t : inputs) --pins_[t];
    const std::uint32_t done = f.operation;
    const bool first = frames_.size() == 1;
    frames_.pop_back();
    if (!first) {
      for (const std::uint32_t t : graph_.inputs[done])
        if (next_use_[t] == never && pins_[t] == 0) drop_dead(t);
      // The frame below reads one of the outputs; the other ones may have no use.
      const auto wanted = graph_.inputs[frames_.back().operation][frames_.back().input];
      for (const std::uint32_t t : graph_.outputs[done])
        if (t != wanted && next_use_[t] == never && pins_[t] == 0) drop_dead(t);
    }
  }
  return true;
}

REMAT_INLINE bool eviction_pass::run_one(std::uint32_t o) {
  std::int64_t need = graph_.workspace[o];
  ++hold_;
  for (const std::uint32_t t : graph_.inputs[o]) held_[t] = hold_;
  for (const std::uint32_t t : graph_.outputs[o]) {
    held_[t] = hold_;
    if (state_[t] != resident) need += graph_.bytes[t];
  }
  if (!reserve(need)) {
    for (std::size_t i = 0; i + 1 < frames_.size(); ++i)
      wanted_.push_back(graph_.inputs[frames_[i].operation][frames_[i].input]);
    return false;
  }
  for (const std::uint32_t t : graph_.outputs[o]) {
    if (state_[t] != resident) {
      const bool again = state_[t] == missing;
      put(t, 0);
      if (again) mark_stale(t);
    }
    if (written_[t] < graph_.producers[t].size()) ++written_[t];
  }
  computes_.push_back(o);
  time_ += graph_.time[o];
  return time_ + remaining_ <= longest_;
}

REMAT_INLINE void eviction_pass::put(std::uint32_t t, std::uint32_t written) {
  state_[t] = resident;
  written_[t] = written;
  memory_ += graph_.bytes[t];
  slot_[t] = static_cast<std::uint32_t>(resident_tensors_.size());
  resident_tensors_.push_back(t);
  cost_at_[t] = never;
}

REMAT_INLINE void eviction_pass::remove(std::uint32_t t) {
  state_[t] = missing;
  written_[t] = 0;
  memory_ -= graph_.bytes[t];
  const std::uint32_t last = resident_tensors_.back();
  resident_tensors_[slot_[t]] = last;
  slot_[last] = slot_[t];
  resident_tensors_.pop_back();
  ++change_;
}

REMAT_INLINE void eviction_pass::drop_dead(std::uint32_t t) {
  if (state_[t] != resident || graph_.always_resident[t] || pins_[t] != 0) return;
  if (written_[t] != graph_.producers[t].size() && graph_.producers[t].back() > now_) return;
  soonest_[t] = recomputable_[t] ? soonest_use(t) : first_use_through_missing(t);
  if (soonest_[t] == never) remove(t);
}

REMAT_INLINE std::uint32_t eviction_pass::first_use_through_missing(std::uint32_t t) {
  std::uint32_t first = never;
  ++mark_;
  stack_.assign(1, t);
  while (!stack_.empty()) {
    const std::uint32_t u = stack_.back();
    stack_.pop_back();
    for (const std::uint32_t o : graph_.consumers[u]) {
      ++steps_;
      for (const std::uint32_t v : graph_.outputs[o]) {
        if (state_[v] != missing || marked_[v] == mark_) continue;
        marked_[v] = mark_;
        first = std::min(first, next_use_[v]);
        stack_.push_back(v);
      }
    }
  }
  tick();
  return first;
}

REMAT_INLINE void eviction_pass::mark_stale(std::uint32_t t) {
  ++change_;
  ++mark_;
  stack_.assign(1, t);
  std::size_t steps = 0;
  while (!stack_.empty() && steps < 64) {
    const std::uint32_t u = stack_.back();
    stack_.pop_back();
    for (const std::uint32_t o : graph_.consumers[u])
      for (const std::uint32_t v : graph_.outputs[o]) {
        ++steps;
        if (marked_[v] == mark_ || state_[v] == not_made) continue;
        marked_[v] = mark_;
        if (state_[v] == resident)
          cost_at_[v] = never;
        else
          stack_.push_back(v);
      }
  }
}

REMAT_INLINE double eviction_pass::recompute_cost(std::uint32_t t) {
  if (!recomputable_[t]) return infinite;
  double sum = 0;
  const bool possible = for_each_recomputation(
      t, [&](std::uint32_t o) { return sum += graph_.time[o], true; },
      [&](std::uint32_t u) { return recomputable_[u] || readable(u); });
  return possible ? sum : infinite;
}

REMAT_INLINE void eviction_pass::foresee_recomputation(std::uint32_t t) {
  const std::uint32_t use = soonest_[t];
  if (use == never) return;
  for_each_recomputation(
      t, [](std::uint32_t) { return true; }, [&](std::uint32_t u) { return foresee_use(u, use, t), true; });
}

REMAT_INLINE void eviction_pass::refresh(std::uint32_t t) {
  const double cost = recompute_cost(t);
  cost_[t] = weights_.cost_exponent == 1 ? cost : std::pow(cost, weights_.cost_exponent);
  cost_at_[t] = change_;
}

REMAT_INLINE bool eviction_pass::reserve(std::int64_t need) {
  if (memory_ + need <= budget_) return true;
  forget_past_uses();
  evict_cheapest(need);
  if (memory_ + need > budget_) return false;
  take_back(need);
  return true;
}

REMAT_INLINE void eviction_pass::forget_past_uses() {
  for (std::size_t i = 0; i < resident_tensors_.size(); ++i) {
    const std::uint32_t t = resident_tensors_[i];
    if (soonest_[t] >= now_ || pins_[t] != 0 || held_[t] == hold_ || written_[t] != graph_.producers[t].size())
      continue;
    soonest_[t] = recomputable_[t] ? soonest_use(t) : std::min(next_use_[t], first_use_through_missing(t));
    if (soonest_[t] != never) continue;
    remove(t);
    --i;
  }
}

REMAT_INLINE void eviction_pass::evict_cheapest(std::int64_t need) {
  victims_.clear();
  for (const bool pinned : {false, true}) {
    if (pinned && !weights_.evict_pinned) break;
    heap_.clear();
    for (const std::uint32_t t : resident_tensors_) {
      if ((pins_[t] != 0) != pinned || held_[t] == hold_ || graph_.bytes[t] == 0) continue;
      if (written_[t] != graph_.producers[t].size()) continue;
      if (tick()) return;
      if (cost_at_[t] == never) refresh(t);
      if (cost_[t] < infinite) heap_.push_back({score(t), t});
    }
    std::make_heap(heap_.begin(), heap_.end(), costs_more);
    while (memory_ + need > budget_ && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), costs_more);
      const std::uint32_t victim = heap_.back().tensor;
      heap_.pop_back();
      if (cost_at_[victim] != change_) {
        // The cost was computed before other tensors were evicted: it may have risen.
        const double before = cost_[victim];
        refresh(victim);
        if (cost_[victim] > before) {
          if (cost_[victim] < infinite) {
            heap_.push_back({score(victim), victim});
            std::push_heap(heap_.begin(), heap_.end(), costs_more);
          }
          continue;
        }
      }
      victims_.push_back(victim);
      remove(victim);
      if (weights_.foresee_recomputations) foresee_recomputation(victim);
    }
    if (memory_ + need <= budget_) return;
  }
}

REMAT_INLINE void eviction_pass::take_back(std::int64_t need) {
  if (victims_.size() < 2) return;
  for (std::size_t i = victims_.size() - 1; i-- > 0;) {
    const std::uint32_t t = victims_[i];
    if (memory_ + need + graph_.bytes[t] <= budget_) put(t, static_cast<std::uint32_t>(graph_.producers[t].size()));
  }
}

}  // namespace remat::detail
