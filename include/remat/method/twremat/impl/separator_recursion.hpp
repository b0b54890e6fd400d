// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/twremat/detail/separator_recursion.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/id.hpp"

namespace remat::detail {

REMAT_INLINE separator_recursion::separator_recursion(const flat_graph& graph, separator_tree tree)
    : graph_(graph), tree_(std::move(tree)) {
  const std::size_t n = graph.num_operations, m = graph.num_tensors;
  ran_at_.assign(graph.outputs.values.size(), 0);
  allocation_.assign(m, 0);
  written_.assign(m, 0);
  there_.assign(m, 0);
  held_.assign(m, 0);
  uses_.assign(m, 0);
  trial_.assign(m, 0);
  trial_uses_.assign(m, 0);
  done_.assign(n, 0);
  wanted_.assign(n, 0);
  kept_.assign(n, 0);
  in_closure_.assign(n, 0);
  held_here_.assign(m, 0);
  hold_of_.assign(m, 0);
  hold_kind_.assign(m, until_last_reader);
  hold_all();
}

REMAT_INLINE bool separator_recursion::run(std::int64_t budget, double longest, run_clock& clock) {
  for (std::uint32_t again = 0; again < most_restarts; ++again) {
    conflict_ = none;
    if (run_once(budget, longest, clock)) return true;
    if (conflict_ == none) return false;
    kept_[conflict_] = 1;
  }
  return false;
}

REMAT_INLINE bool separator_recursion::run_once(std::int64_t budget, double longest, run_clock& clock) {
  budget_ = budget;
  longest_ = longest;
  clock_ = &clock;
  stopped_ = false;
  memory_ = 0;
  time_ = 0;
  nested_ = 0;
  deepest_ = 0;
  computes_.clear();
  std::fill(there_.begin(), there_.end(), std::uint8_t{0});
  std::fill(held_.begin(), held_.end(), 0U);
  std::fill(done_.begin(), done_.end(), std::uint8_t{0});
  std::vector<std::uint32_t> targets, last;
  for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
    bool target = graph_.has_effect(o), is_last = false;
    for (const std::uint32_t t : graph_.outputs[o]) {
      if (!graph_.final_output[t]) continue;
      target = true;
      is_last = is_last || hold_kind_[t] != until_last_reader;
    }
    if (target) (is_last ? last : targets).push_back(o);
  }
  for (const std::uint32_t t : graph_.final_outputs)
    if (hold_kind_[t] == until_last_reader) ++held_[t];
  make_targets(targets);
  if (last.empty() || stopped_) return !stopped_;
  for (const std::uint32_t t : graph_.final_outputs)
    if (hold_kind_[t] != until_last_reader) ++held_[t];
  make_targets(last);
  return !stopped_;
}

REMAT_INLINE void separator_recursion::make_targets(const std::vector<std::uint32_t>& targets) {
  std::vector<std::uint32_t> needed;
  missing_for(targets, needed);
  if (run_plainly(needed)) return;
  for (std::uint32_t k = 0; k < tree_.size() && !stopped_; k = tree_.end[k]) {
    std::vector<std::uint32_t> here;
    for (const std::uint32_t o : targets)
      if (tree_.contains(k, tree_.node_of[o])) here.push_back(o);
    make(k, here);
  }
}

REMAT_INLINE bool separator_recursion::readable(std::uint32_t t) const noexcept {
  return graph_.always_resident[t] || (there_[t] && written_[t] == graph_.producers[t].size());
}

/// True when `o` has written into the present allocation of `t`.
REMAT_INLINE bool separator_recursion::contributed(std::uint32_t o, std::uint32_t t) const noexcept {
  if (!there_[t]) return false;
  for (std::uint32_t w = graph_.outputs.begin[o]; w < graph_.outputs.begin[o + 1]; ++w)
    if (graph_.outputs.values[w] == t) return ran_at_[w] == allocation_[t];
  return false;
}

/// True when `o` has not made all of its outputs that are held.
REMAT_INLINE bool separator_recursion::open(std::uint32_t o) const noexcept {
  if (graph_.has_effect(o)) return !done_[o];
  for (const std::uint32_t t : graph_.outputs[o])
    if (held_[t] != 0 && !contributed(o, t)) return true;
  return false;
}

REMAT_INLINE bool separator_recursion::held_less_of(std::uint32_t o) const noexcept {
  for (const std::uint32_t t : graph_.outputs[o])
    if (hold_kind_[t] != until_last_reader) return true;
  return false;
}

REMAT_INLINE void separator_recursion::let_go(std::uint32_t t) {
  if (--held_[t] != 0 || !there_[t]) return;
  there_[t] = 0;
  memory_ -= graph_.bytes[t];
}

REMAT_INLINE void separator_recursion::allocate_outputs(std::uint32_t o) {
  for (std::uint32_t w = graph_.outputs.begin[o]; w < graph_.outputs.begin[o + 1]; ++w) {
    const std::uint32_t t = graph_.outputs.values[w];
    if (!there_[t]) {
      there_[t] = 1;
      written_[t] = 0;
      ++allocation_[t];
      memory_ += graph_.bytes[t];
    }
    if (ran_at_[w] != allocation_[t]) {
      ran_at_[w] = allocation_[t];
      ++written_[t];
    }
  }
}

/// Counts elementary steps that compute nothing, and polls.
REMAT_INLINE void separator_recursion::count(std::size_t steps) {
  steps_ += steps;
  if (steps_ < steps_between_polls) return;
  steps_ = 0;
  if (clock_->should_stop()) stopped_ = true;
}

/// Runs `o`; all of its inputs are there.
REMAT_INLINE void separator_recursion::compute(std::uint32_t o) {
  for (const std::uint32_t t : graph_.outputs[o])
    if (graph_.producers[t].size() > 1 && contributed(o, t)) {
      conflict_ = o;  // running it again for another output would add to this one twice
      stopped_ = true;
      return;
    }
  allocate_outputs(o);
  if (!done_[o]) {
    done_[o] = 1;
    if (kept_[o])
      for (const std::uint32_t t : graph_.outputs[o]) ++held_[t];  // it cannot come back
  }
  computes_.push_back(o);
  time_ += graph_.time[o];
  clock_->work();
  if (time_ > longest_ || ((computes_.size() & 255U) == 0 && clock_->should_stop())) stopped_ = true;
}

/// The operations that have to run for `operations`: themselves and their missing ancestors in any node, ascending.
REMAT_INLINE void separator_recursion::missing_for(std::span<const std::uint32_t> operations,
                                                   std::vector<std::uint32_t>& needed) {
  ++stamp_;
  needed.clear();
  for (const std::uint32_t o : operations)
    if (wanted_[o] != stamp_ && open(o)) {
      wanted_[o] = stamp_;
      needed.push_back(o);
    }
  for (std::size_t i = 0; i < needed.size(); ++i)
    for (const std::uint32_t t : graph_.inputs[needed[i]]) {
      if (readable(t)) continue;
      for (const std::uint32_t p : graph_.producers[t])
        if (wanted_[p] != stamp_ && !contributed(p, t)) {
          wanted_[p] = stamp_;
          needed.push_back(p);
        }
    }
  std::sort(needed.begin(), needed.end());
  count(32 + 16 * needed.size());
}

/// Runs all of `needed` in order if that fits the budget.
REMAT_INLINE bool separator_recursion::run_plainly(const std::vector<std::uint32_t>& needed) {
  count_uses(needed);
  if (!fits(needed)) return false;
  run_in_order(needed);
  return true;
}

/// True when running `needed` in order stays within the budget. A tensor t is allocated by the trial if `trial_[t]` is
/// the trial's stamp. Precondition: `count_uses(needed)`.
REMAT_INLINE bool separator_recursion::fits(const std::vector<std::uint32_t>& needed) {
  std::int64_t memory = memory_;
  ++trial_stamp_;
  for (const std::uint32_t o : needed) {
    for (const std::uint32_t t : graph_.inputs[o]) trial_uses_[t] = uses_[t];
    for (const std::uint32_t t : graph_.outputs[o]) trial_uses_[t] = uses_[t];
  }
  const auto free_unused = [&](std::uint32_t t) {
    if (held_[t] != 0 || trial_uses_[t] != 0 || trial_[t] != trial_stamp_) return;
    trial_[t] = 0;
    memory -= graph_.bytes[t];
  };
  for (const std::uint32_t o : needed) {
    for (const std::uint32_t t : graph_.outputs[o])
      if (!there_[t] && trial_[t] != trial_stamp_) {
        trial_[t] = trial_stamp_;
        memory += graph_.bytes[t];
      }
    if (memory + graph_.workspace[o] > budget_) return false;
    for (const std::uint32_t t : graph_.inputs[o]) {
      --trial_uses_[t];
      free_unused(t);
    }
    for (const std::uint32_t t : graph_.outputs[o]) free_unused(t);
  }
  return true;
}

/// Runs `needed` in order; a tensor is freed after its last use. Precondition: `count_uses(needed)`.
REMAT_INLINE void separator_recursion::run_in_order(const std::vector<std::uint32_t>& needed) {
  const auto free_unused = [&](std::uint32_t t) {
    if (uses_[t] != 0 || held_[t] != 0 || !there_[t]) return;
    there_[t] = 0;
    memory_ -= graph_.bytes[t];
  };
  for (const std::uint32_t o : needed) {
    if (stopped_) return;
    compute(o);
    for (const std::uint32_t t : graph_.inputs[o]) {
      --uses_[t];
      free_unused(t);
    }
    for (const std::uint32_t t : graph_.outputs[o]) free_unused(t);
  }
}

REMAT_INLINE void separator_recursion::count_uses(const std::vector<std::uint32_t>& needed) {
  for (const std::uint32_t o : needed) {
    for (const std::uint32_t t : graph_.inputs[o]) uses_[t] = 0;
    for (const std::uint32_t t : graph_.outputs[o]) uses_[t] = 0;
  }
  for (const std::uint32_t o : needed)
    for (const std::uint32_t t : graph_.inputs[o]) ++uses_[t];
}

/// The child of k whose subtree holds operation `o`, which is below k.
REMAT_INLINE std::uint32_t separator_recursion::part_of(std::uint32_t k, std::uint32_t o) const noexcept {
  std::uint32_t node = tree_.node_of[o];
  while (tree_.parent[node] != k) node = tree_.parent[node];
  return node;
}

REMAT_INLINE std::vector<std::uint32_t> separator_recursion::targets_in(std::uint32_t k, std::uint32_t part,
                                                                        const division& d) const {
  std::vector<std::uint32_t> targets;
  for (const std::uint32_t o : d.in_part)
    if (part_of(k, o) == part) targets.push_back(o);
  return targets;
}

REMAT_INLINE void separator_recursion::make(std::uint32_t k, std::span<const std::uint32_t> operations) {
  if (stopped_) return;
  std::vector<std::uint32_t> needed;
  missing_for(operations, needed);
  if (needed.empty()) return;
  if (run_plainly(needed)) return;

  division d;
  bool inside = true;  // all of `here` are operations of node k itself
  for (const std::uint32_t o : needed)
    if (!below(k, o)) {
      d.here.push_back(o);
      inside = inside && tree_.node_of[o] == k;
    }
  if (inside && d.here.size() == needed.size()) {
    run_in_order(needed);  // nothing to take apart
    return;
  }
  for (const std::uint32_t o : operations)
    if (wanted_[o] == stamp_ && below(k, o)) d.in_part.push_back(o);
  std::sort(d.in_part.begin(), d.in_part.end());
  for (const std::uint32_t o : d.in_part)
    if (const std::uint32_t part = part_of(k, o); std::find(d.parts.begin(), d.parts.end(), part) == d.parts.end())
      d.parts.push_back(part);
  plan_holds(k, d);
  if (++nested_ > most_nested) stopped_ = true;
  deepest_ = std::max(deepest_, nested_);
  if (!stopped_) run_calls(k, d);
  --nested_;
}

/// Finds the calls that read each tensor of `here`, themselves or through missing operations below, and so when it is
/// held.
REMAT_INLINE void separator_recursion::plan_holds(std::uint32_t k, division& d) {
  const std::uint32_t all = stamp_;
  for (const std::uint32_t o : d.here)
    for (const std::uint32_t t : graph_.outputs[o]) {
      held_here_[t] = all;
      hold_of_[t] = none;
    }
  std::vector<std::uint32_t> stack;
  for (std::uint32_t call = 0; call < d.calls() && !stopped_; ++call) {
    if (call < d.here.size()) {
      stack.assign(1, d.here[call]);
      for (const std::uint32_t t : graph_.outputs[d.here[call]]) hold_for(d, t, call);
    } else {
      stack = targets_in(k, d.parts[call - d.here.size()], d);
    }
    ++closure_;
    count(8);
    for (const std::uint32_t o : stack) in_closure_[o] = closure_;
    while (!stack.empty()) {
      const std::uint32_t o = stack.back();
      stack.pop_back();
      count(8 * graph_.inputs[o].size());
      for (const std::uint32_t t : graph_.inputs[o]) {
        if (held_here_[t] == all) hold_for(d, t, call);
        for (const std::uint32_t p : graph_.producers[t]) {
          if (wanted_[p] != all || !below(k, p) || in_closure_[p] == closure_) continue;
          in_closure_[p] = closure_;
          stack.push_back(p);
        }
      }
    }
  }
  for (const division::hold& h : d.holds) d.ends.emplace_back(h.last, h.tensor);
  std::sort(d.ends.begin(), d.ends.end());
  std::sort(d.holds.begin(), d.holds.end(),
            [](const division::hold& a, const division::hold& b) { return a.first < b.first; });
}

/// `call` makes or reads `t`.
REMAT_INLINE void separator_recursion::hold_for(division& d, std::uint32_t t, std::uint32_t call) {
  if (hold_kind_[t] == nowhere) return;
  const std::uint32_t h = hold_of_[t];
  if (h != none && (hold_kind_[t] == until_last_reader || d.holds[h].last + 1 >= call)) {
    d.holds[h].last = call;
    return;
  }
  hold_of_[t] = static_cast<std::uint32_t>(d.holds.size());
  // From the beginning: an earlier call may make it by the way.
  d.holds.push_back({hold_kind_[t] == until_last_reader ? 0 : call, call, t});
}

REMAT_INLINE void separator_recursion::run_calls(std::uint32_t k, const division& d) {
  std::size_t begun = 0, ended = 0;
  for (std::uint32_t call = 0; call < d.calls() && !stopped_; ++call) {
    for (; begun < d.holds.size() && d.holds[begun].first <= call; ++begun) ++held_[d.holds[begun].tensor];
    if (call < d.here.size()) {
      run_here(k, d.here[call]);
      if (stopped_) return;
    } else {
      const std::uint32_t part = d.parts[call - d.here.size()];
      make(part, targets_in(k, part, d));
    }
    for (; ended < d.ends.size() && d.ends[ended].first <= call; ++ended) let_go(d.ends[ended].second);
  }
}

/// Makes the inputs of operation `o` in the parts below node k, runs `o`, and frees the inputs.
REMAT_INLINE void separator_recursion::run_here(std::uint32_t k, std::uint32_t o) {
  if (!open(o)) return;
  std::vector<std::uint32_t> inputs, wanted;
  for (const std::uint32_t t : graph_.inputs[o]) {
    if (graph_.always_resident[t]) continue;
    inputs.push_back(t);
    ++held_[t];
  }
  for (const std::uint32_t t : inputs)
    if (!readable(t))
      for (const std::uint32_t p : graph_.producers[t])
        if (!contributed(p, t)) wanted.push_back(p);
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  // Inputs of which less is to be held are made last: then they do not wait for the others.
  std::stable_partition(wanted.begin(), wanted.end(), [&](std::uint32_t p) { return !held_less_of(p); });
  make_by_part(k, wanted);
  if (stopped_) return;
  if (open(o)) compute(o);
  for (const std::uint32_t t : inputs) let_go(t);
}

/// Makes the operations `wanted`: those below node k part by part, the others from the root of their tree.
REMAT_INLINE void separator_recursion::make_by_part(std::uint32_t k, std::vector<std::uint32_t>& wanted) {
  std::vector<std::uint32_t> together, needed;
  while (!wanted.empty() && !stopped_) {
    const bool inside = below(k, wanted[0]);
    const std::uint32_t part = inside ? part_of(k, wanted[0]) : none;
    together.clear();
    std::size_t kept = 0;
    for (const std::uint32_t p : wanted) {
      const bool same = inside ? tree_.contains(part, tree_.node_of[p]) : !below(k, p);
      if (same)
        together.push_back(p);
      else
        wanted[kept++] = p;
    }
    wanted.resize(kept);
    if (inside) {
      make(part, together);
      continue;
    }
    missing_for(together, needed);
    if (run_plainly(needed)) continue;
    for (const std::uint32_t p : together) {
      std::uint32_t root = tree_.node_of[p];
      while (tree_.parent[root] != none) root = tree_.parent[root];
      make(root, {&p, 1});
    }
  }
}

REMAT_INLINE void separator_recursion::hold_all() {
  std::fill(hold_kind_.begin(), hold_kind_.end(), std::uint8_t{until_last_reader});
  held_less_ = 0;
  for (std::uint32_t o = 0; o < graph_.num_operations; ++o) kept_[o] = graph_.once[o] != 0;
}

namespace holding_less {

/// The state of a schedule while the first of its steps with the highest peak runs.
struct peak_state {
  std::size_t step = 0;
  std::uint32_t operation = 0;
  std::int64_t bytes = 0;
  std::vector<std::uint8_t> there{};     // tensor → 1 where it is allocated
  std::vector<std::size_t> next_read{};  // tensor → its next read after the step; the length where there is none
};

inline peak_state find_peak(const flat_graph& g, const schedule& plan) {
  peak_state peak;
  std::vector<std::uint8_t> there(g.num_tensors, 0);
  std::int64_t memory = 0;
  const auto play = [&](const step& now) {
    if (now.is_free()) {
      memory -= g.bytes[index(now.tensor())];
      there[index(now.tensor())] = 0;
      return;
    }
    for (const std::uint32_t t : g.outputs[index(now.operation())]) {
      if (!there[t]) memory += g.bytes[t];
      there[t] = 1;
    }
  };
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    play(plan.steps[i]);
    if (plan.steps[i].is_free()) continue;
    const auto o = static_cast<std::uint32_t>(index(plan.steps[i].operation()));
    if (memory + g.workspace[o] <= peak.bytes) continue;
    peak.bytes = memory + g.workspace[o];
    peak.step = i;
    peak.operation = o;
  }
  std::fill(there.begin(), there.end(), std::uint8_t{0});
  for (std::size_t i = 0; i <= peak.step && i < plan.steps.size(); ++i) play(plan.steps[i]);
  peak.there = std::move(there);
  peak.next_read.assign(g.num_tensors, plan.steps.size());
  for (std::size_t i = plan.steps.size(); i-- > peak.step + 1;)
    if (!plan.steps[i].is_free())
      for (const std::uint32_t t : g.inputs[index(plan.steps[i].operation())]) peak.next_read[t] = i;
  return peak;
}

}  // namespace holding_less

REMAT_INLINE bool separator_recursion::hold_less(const schedule& plan, std::int64_t budget, hold_rule rule) {
  const detail::holding_less::peak_state peak = detail::holding_less::find_peak(graph_, plan);
  std::vector<std::uint8_t> in_use(graph_.num_tensors, 0);
  for (const std::uint32_t t : graph_.inputs[peak.operation]) in_use[t] = 1;
  for (const std::uint32_t t : graph_.outputs[peak.operation]) in_use[t] = 1;
  std::vector<std::pair<double, std::uint32_t>> idle;
  for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
    if (!peak.there[t] || in_use[t] || graph_.bytes[t] == 0 || hold_kind_[t] == nowhere) continue;
    if (graph_.producers[t].size() != 1 || graph_.once[graph_.producers[t][0]]) continue;
    const bool read = peak.next_read[t] < plan.steps.size();
    if (!read && (!graph_.final_output[t] || hold_kind_[t] != until_last_reader)) continue;
    double rank = 1 / static_cast<double>(graph_.bytes[t]);
    if (rule == hold_rule::cheapest)
      rank *= graph_.time[graph_.producers[t][0]] / static_cast<double>(peak.next_read[t] - peak.step);
    else if (hold_kind_[t] != until_last_reader)
      rank += 1;  // after all others, whose ranks are at most 1
    idle.emplace_back(rank, t);
  }
  std::sort(idle.begin(), idle.end());
  std::int64_t over = peak.bytes - budget;
  for (const auto& [rank, t] : idle) {
    if (over <= 0) break;
    held_less_ += hold_kind_[t] == until_last_reader;
    ++hold_kind_[t];
    over -= graph_.bytes[t];
  }
  return !idle.empty();
}

}  // namespace remat::detail
