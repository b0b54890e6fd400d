// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/treewidth/detail/separator_tree.hpp"

namespace REMAT_NAMESPACE::detail {

/// The rule by which `separator_recursion::hold_less` ranks tensors.
enum class hold_rule : std::uint8_t {
  largest,  ///< the largest first; those that would be held nowhere come last
  cheapest  ///< the least time of the operation per byte and step first
};

/// The recursion of TwRemat \cite kumar2019twremat for one training step and one separator tree. It can be run under
/// any budget.
///
/// make(k, operations) runs those of `operations` and of their missing ancestors that are in or below node k; on return
/// the tensors that are held are there. If running all of them in the listed order fits, it does that. Otherwise the
/// needed operations of node k run one by one, in the listed order: the missing inputs of each are made in the parts
/// below, the operation runs, and the inputs are freed. Tensors that node k's operations write are held until the last
/// call that may read them. The `operations` in the parts below come last.
///
/// Under a smaller budget the recursion takes more parts apart; under a budget of 0 it goes to the bottom, as in the
/// paper. `hold_less` makes it hold fewer tensors of the separators, which the recursion then makes again: less memory
/// than the paper's, more time.
///
/// Time: O(operations · log) for each call of `make`, of which there are O(n^log w) at worst with width w.
class separator_recursion {
 public:
  /// Keeps a reference to `graph`, which must outlive this object. Precondition: `tree` separates the operation graph.
  separator_recursion(const flat_graph& graph, separator_tree tree) : graph_(graph), tree_(std::move(tree)) {
    const std::size_t n = graph.num_operations, m = graph.num_tensors;
    ran_at_.assign(graph.outputs.values.size(), 0);
    for (auto* of_tensors : {&allocation_, &written_, &held_, &uses_, &trial_, &trial_uses_, &held_here_, &hold_of_})
      of_tensors->assign(m, 0);
    for (auto* of_operations : {&wanted_, &in_closure_}) of_operations->assign(n, 0);
    there_.assign(m, 0);
    hold_kind_.assign(m, until_last_reader);
    done_.assign(n, 0);
    kept_.assign(n, 0);
    hold_all();
  }

  /// Returns true if a sequence was made. The sequence may be over the budget if a part cannot be taken apart any
  /// more. A sequence that takes more time than `longest`, in the cost model's unit, is given up, and so is one with
  /// more than 2,000 calls of make inside one another. If an operation would add to a tensor twice, the sequence is
  /// made again with all outputs of that operation held from its first run on; at most 63 times.
  /// Counts a unit of work for each compute. Polls every fraction of a millisecond.
  bool run(std::int64_t budget, double longest, run_clock& clock) {
    for (std::uint32_t again = 0; again < max_restarts; ++again) {
      conflict_ = none;
      if (run_once(budget, longest, clock)) return true;
      if (conflict_ == none) return false;
      kept_[conflict_] = 1;
    }
    return false;
  }
  /// The operations of the last sequence, in order.
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return computes_; }
  /// The separators inside one another, at most, that the last run took apart; 0: everything ran in the listed order.
  [[nodiscard]] std::uint32_t deepest() const noexcept { return deepest_; }

  /// Looks at the step of `plan` with the highest peak, and chooses tensors that lie idle there until the peak is no
  /// more than `budget`. `at` is the checker's report of `plan`. In the runs that follow, a tensor that was chosen once
  /// is not held across calls that do not read it; one that was chosen twice is held by no separator; an output of the
  /// training step is made last. Returns false if no tensor is left to choose. Precondition: `plan` is legal but for
  /// its peak.
  bool hold_less(const schedule& plan, const check_report& at, std::int64_t budget, hold_rule rule) {
    const std::size_t length = plan.steps.size();
    const auto peak_operation = static_cast<std::uint32_t>(index(plan.steps[at.peak_step].operation()));
    std::vector<std::uint8_t> idles(graph_.num_tensors, 0);  // allocated at the peak, and not in use there
    for (std::size_t i = 0; i < at.peak_step; ++i) {
      if (plan.steps[i].is_free())
        idles[index(plan.steps[i].tensor())] = 0;
      else
        for (const std::uint32_t t : graph_.outputs[index(plan.steps[i].operation())]) idles[t] = 1;
    }
    for (const std::uint32_t t : graph_.inputs[peak_operation]) idles[t] = 0;
    for (const std::uint32_t t : graph_.outputs[peak_operation]) idles[t] = 0;
    std::vector<std::size_t> next_read(graph_.num_tensors, length);  // each tensor's next read after the peak
    for (std::size_t i = length; i-- > at.peak_step + 1;)
      if (!plan.steps[i].is_free())
        for (const std::uint32_t t : graph_.inputs[index(plan.steps[i].operation())]) next_read[t] = i;
    std::vector<std::pair<double, std::uint32_t>> idle;
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
      if (!idles[t] || graph_.bytes[t] == 0 || hold_kind_[t] == nowhere) continue;
      if (graph_.producers[t].size() != 1 || graph_.once[graph_.producers[t][0]]) continue;
      const bool read = next_read[t] < length;
      if (!read && (!graph_.final_output[t] || hold_kind_[t] != until_last_reader)) continue;
      double rank = 1 / static_cast<double>(graph_.bytes[t]);
      if (rule == hold_rule::cheapest)
        rank *= graph_.time[graph_.producers[t][0]] / static_cast<double>(next_read[t] - at.peak_step);
      else if (hold_kind_[t] != until_last_reader)
        rank += 1;  // it goes after all others, whose ranks are at most 1
      idle.emplace_back(rank, t);
    }
    std::sort(idle.begin(), idle.end());
    std::int64_t over = at.peak_bytes - budget;
    for (const auto& [rank, t] : idle) {
      if (over <= 0) break;
      held_less_ += hold_kind_[t] == until_last_reader;
      ++hold_kind_[t];
      over -= graph_.bytes[t];
    }
    return !idle.empty();
  }
  /// Undoes `hold_less`.
  void hold_all() {
    std::fill(hold_kind_.begin(), hold_kind_.end(), std::uint8_t{until_last_reader});
    held_less_ = 0;
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) kept_[o] = graph_.once[o] != 0;
  }
  /// The number of tensors that `hold_less` has chosen.
  [[nodiscard]] std::size_t held_less() const noexcept { return held_less_; }

 private:
  /// How long the separators hold a tensor.
  enum hold_kind : std::uint8_t { until_last_reader, while_read, nowhere };

  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t max_restarts = 64;
  static constexpr std::uint32_t max_nested = 2000;  ///< calls inside one another; more would need much stack
  static constexpr std::size_t steps_between_polls = 100'000;

  /// How the operations of one call of `make` are divided into calls: one for each operation of `here`, then one for
  /// each of `parts`.
  struct division {
    /// A tensor of `here` is held from before call `first` to after call `last`.
    struct hold {
      std::uint32_t first, last, tensor;
    };

    std::vector<std::uint32_t> here;     // needed operations that are not below the node, one by one
    std::vector<std::uint32_t> in_part;  // targets below the node, ascending
    std::vector<std::uint32_t> parts;    // the children of the node that hold them
    std::vector<hold> holds;             // the holds, by their first call
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ends;  // last call of a hold, tensor; ascending

    [[nodiscard]] std::uint32_t calls() const noexcept {
      return static_cast<std::uint32_t>(here.size() + parts.size());
    }
  };

  bool run_once(std::int64_t budget, double longest, run_clock& clock) {
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

  void make_targets(const std::vector<std::uint32_t>& targets) {
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

  void make(std::uint32_t k, std::span<const std::uint32_t> operations) {
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
    if (++nested_ > max_nested) stopped_ = true;
    deepest_ = std::max(deepest_, nested_);
    if (!stopped_) run_calls(k, d);
    --nested_;
  }

  [[nodiscard]] std::vector<std::uint32_t> targets_in(std::uint32_t k, std::uint32_t part, const division& d) const {
    std::vector<std::uint32_t> targets;
    for (const std::uint32_t o : d.in_part)
      if (part_of(k, o) == part) targets.push_back(o);
    return targets;
  }

  /// Finds the calls that read each tensor of `here`, themselves or through missing operations below, and so when it is
  /// held.
  void plan_holds(std::uint32_t k, division& d) {
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
  void hold_for(division& d, std::uint32_t t, std::uint32_t call) {
    if (hold_kind_[t] == nowhere) return;
    const std::uint32_t h = hold_of_[t];
    if (h != none && (hold_kind_[t] == until_last_reader || d.holds[h].last + 1 >= call)) {
      d.holds[h].last = call;
      return;
    }
    hold_of_[t] = static_cast<std::uint32_t>(d.holds.size());
    // The hold is from the beginning: an earlier call may make it by the way.
    d.holds.push_back({hold_kind_[t] == until_last_reader ? 0 : call, call, t});
  }

  void run_calls(std::uint32_t k, const division& d) {
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
  void run_here(std::uint32_t k, std::uint32_t o) {
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
  void make_by_part(std::uint32_t k, std::vector<std::uint32_t>& wanted) {
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

  /// The operations that have to run for `operations`: themselves and their missing ancestors in any node, ascending.
  void missing_for(std::span<const std::uint32_t> operations, std::vector<std::uint32_t>& needed) {
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
  bool run_plainly(const std::vector<std::uint32_t>& needed) {
    count_uses(needed);
    if (!fits(needed)) return false;
    run_in_order(needed);
    return true;
  }

  /// True if running `needed` in order stays within the budget. A tensor t is allocated by the trial if `trial_[t]`
  /// is the trial's stamp. Precondition: `count_uses(needed)`.
  bool fits(const std::vector<std::uint32_t>& needed) {
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
  void run_in_order(const std::vector<std::uint32_t>& needed) {
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

  void count_uses(const std::vector<std::uint32_t>& needed) {
    for (const std::uint32_t o : needed) {
      for (const std::uint32_t t : graph_.inputs[o]) uses_[t] = 0;
      for (const std::uint32_t t : graph_.outputs[o]) uses_[t] = 0;
    }
    for (const std::uint32_t o : needed)
      for (const std::uint32_t t : graph_.inputs[o]) ++uses_[t];
  }

  /// Runs `o`; all of its inputs are there.
  void compute(std::uint32_t o) {
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

  void allocate_outputs(std::uint32_t o) {
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
  void count(std::size_t steps) {
    steps_ += steps;
    if (steps_ < steps_between_polls) return;
    steps_ = 0;
    if (clock_->should_stop()) stopped_ = true;
  }

  void let_go(std::uint32_t t) {
    if (--held_[t] != 0 || !there_[t]) return;
    there_[t] = 0;
    memory_ -= graph_.bytes[t];
  }

  [[nodiscard]] bool readable(std::uint32_t t) const noexcept {
    return graph_.always_resident[t] || (there_[t] && written_[t] == graph_.producers[t].size());
  }

  /// True if `o` has written into the present allocation of `t`.
  [[nodiscard]] bool contributed(std::uint32_t o, std::uint32_t t) const noexcept {
    if (!there_[t]) return false;
    for (std::uint32_t w = graph_.outputs.begin[o]; w < graph_.outputs.begin[o + 1]; ++w)
      if (graph_.outputs.values[w] == t) return ran_at_[w] == allocation_[t];
    return false;
  }

  /// True if `o` has not made all of its outputs that are held.
  [[nodiscard]] bool open(std::uint32_t o) const noexcept {
    if (graph_.has_effect(o)) return !done_[o];
    for (const std::uint32_t t : graph_.outputs[o])
      if (held_[t] != 0 && !contributed(o, t)) return true;
    return false;
  }

  [[nodiscard]] bool held_less_of(std::uint32_t o) const noexcept {
    for (const std::uint32_t t : graph_.outputs[o])
      if (hold_kind_[t] != until_last_reader) return true;
    return false;
  }
  [[nodiscard]] bool below(std::uint32_t k, std::uint32_t o) const noexcept {
    return tree_.node_of[o] != k && tree_.contains(k, tree_.node_of[o]);
  }

  /// The child of k whose subtree holds operation `o`, which is below k.
  [[nodiscard]] std::uint32_t part_of(std::uint32_t k, std::uint32_t o) const noexcept {
    std::uint32_t node = tree_.node_of[o];
    while (tree_.parent[node] != k) node = tree_.parent[node];
    return node;
  }

  const flat_graph& graph_;
  separator_tree tree_;
  std::int64_t budget_ = 0, memory_ = 0;
  double time_ = 0, longest_ = 0;
  run_clock* clock_ = nullptr;
  bool stopped_ = false;
  std::size_t steps_ = 0;  // steps since the last poll
  std::size_t held_less_ = 0;
  std::uint32_t nested_ = 0, deepest_ = 0;
  std::uint32_t conflict_ = none;
  std::vector<std::uint8_t> there_, done_, kept_, hold_kind_;
  std::vector<std::uint32_t> ran_at_, allocation_, written_, held_, uses_, trial_, trial_uses_, wanted_, computes_;
  std::vector<std::uint32_t> held_here_, hold_of_, in_closure_;  // tables of the node that is being taken apart
  std::uint32_t stamp_ = 0, trial_stamp_ = 0, closure_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
