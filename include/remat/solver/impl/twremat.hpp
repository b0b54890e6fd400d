// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/twremat.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"
#include "remat/core/rounding.hpp"
#include "remat/refine/moves.hpp"
#include "remat/refine/retain.hpp"
#include "remat/refine/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/evict.hpp"
#include "remat/treewidth/check.hpp"
#include "remat/treewidth/greedy_order.hpp"
#include "remat/treewidth/separator_tree.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat {

namespace detail::treewidth {

/// The recursion of TwRemat for one problem and one separator tree. It can be run under any budget.
///
/// make(k, operations) runs those of `operations` and of their missing ancestors that are in or below node k; on return
/// the tensors that are held are there. If running all of them in the listed order fits, it does that. Otherwise the
/// needed operations of node k run one by one, in the listed order: the missing inputs of each are made in the parts
/// below, the operation runs, and the inputs are freed. Tensors that node k's operations write are held until the last
/// call that may read them. The `operations` in the parts below come last.
class recursion {
 public:
  recursion(const flat_graph& graph, separator_tree tree) : graph_(graph), tree_(std::move(tree)) {
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
    until_.assign(m, 0);
    for (std::uint32_t o = 0; o < n; ++o) kept_[o] = graph.once[o] != 0;
  }

  /// Returns whether a sequence was made. The sequence may be over the budget if single operations do not fit. A
  /// sequence that takes more time than `longest` is given up.
  bool run(std::int64_t budget, double longest, run_clock& clock) {
    for (std::uint32_t again = 0; again < most_restarts; ++again) {
      conflict_ = none;
      if (run_once(budget, longest, clock)) return true;
      if (conflict_ == none) return false;
      kept_[conflict_] = 1;
    }
    return false;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return computes_; }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t most_restarts = 64;
  static constexpr std::size_t steps_between_polls = 100'000;

  bool run_once(std::int64_t budget, double longest, run_clock& clock) {
    budget_ = budget;
    longest_ = longest;
    clock_ = &clock;
    stopped_ = false;
    memory_ = 0;
    time_ = 0;
    computes_.clear();
    std::fill(there_.begin(), there_.end(), std::uint8_t{0});
    std::fill(held_.begin(), held_.end(), 0U);
    std::fill(done_.begin(), done_.end(), std::uint8_t{0});
    for (const std::uint32_t t : graph_.final_outputs) ++held_[t];
    std::vector<std::uint32_t> targets;
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
      bool target = graph_.has_effect(o);
      for (const std::uint32_t t : graph_.outputs[o]) target = target || graph_.final_output[t];
      if (target) targets.push_back(o);
    }
    std::vector<std::uint32_t> needed;
    missing_for(targets, needed);
    if (run_plainly(needed)) return !stopped_;
    for (std::uint32_t k = 0; k < tree_.size() && !stopped_; k = tree_.end[k]) {
      std::vector<std::uint32_t> here;
      for (const std::uint32_t o : targets)
        if (tree_.contains(k, tree_.node_of[o])) here.push_back(o);
      make(k, here);
    }
    return !stopped_;
  }
  [[nodiscard]] bool readable(std::uint32_t t) const noexcept {
    return graph_.always_resident[t] || (there_[t] && written_[t] == graph_.producers[t].size());
  }
  /// True when `o` has written into the present allocation of `t`.
  [[nodiscard]] bool contributed(std::uint32_t o, std::uint32_t t) const noexcept {
    if (!there_[t]) return false;
    for (std::uint32_t w = graph_.outputs.begin[o]; w < graph_.outputs.begin[o + 1]; ++w)
      if (graph_.outputs.values[w] == t) return ran_at_[w] == allocation_[t];
    return false;
  }
  /// True when `o` has not made all of its outputs that are held.
  [[nodiscard]] bool open(std::uint32_t o) const noexcept {
    if (graph_.has_effect(o)) return !done_[o];
    for (const std::uint32_t t : graph_.outputs[o])
      if (held_[t] != 0 && !contributed(o, t)) return true;
    return false;
  }

  void release(std::uint32_t t) {
    there_[t] = 0;
    memory_ -= graph_.bytes[t];
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

  /// True when running `needed` in order stays within the budget. A tensor t is allocated by the trial if `trial_[t]`
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
    for (const std::uint32_t o : needed) {
      if (stopped_) return;
      compute(o);
      for (const std::uint32_t t : graph_.inputs[o])
        if (--uses_[t] == 0 && held_[t] == 0 && there_[t]) release(t);
      for (const std::uint32_t t : graph_.outputs[o])
        if (uses_[t] == 0 && held_[t] == 0 && there_[t]) release(t);
    }
  }

  /// The child of k below which node `below` lies; `below` itself where it is that child.
  [[nodiscard]] std::uint32_t child_towards(std::uint32_t k, std::uint32_t below) const noexcept {
    while (tree_.parent[below] != k) below = tree_.parent[below];
    return below;
  }

  void make(std::uint32_t k, std::span<const std::uint32_t> operations) {
    if (stopped_) return;
    std::vector<std::uint32_t> needed;
    missing_for(operations, needed);
    if (needed.empty()) return;
    if (run_plainly(needed)) return;

    division d;
    for (const std::uint32_t o : needed)
      if (!below(k, o)) d.here.push_back(o);
    if (d.here.size() == needed.size()) {
      run_in_order(needed);  // nothing to take apart
      return;
    }
    for (const std::uint32_t o : operations)
      if (wanted_[o] == stamp_ && below(k, o)) d.in_part.push_back(o);
    std::sort(d.in_part.begin(), d.in_part.end());
    for (const std::uint32_t o : d.in_part)
      if (const std::uint32_t part = part_of(k, o); std::find(d.parts.begin(), d.parts.end(), part) == d.parts.end())
        d.parts.push_back(part);
    hold_until_last_call(k, d);
    if (!stopped_) run_calls(k, d);
  }

  /// How the operations of one call of `make` are divided into calls: one for each operation of `here`, then one for
  /// each of `parts`.
  struct division {
    std::vector<std::uint32_t> here;     // needed operations that are not below the node, one by one
    std::vector<std::uint32_t> in_part;  // targets below the node, ascending
    std::vector<std::uint32_t> parts;    // the children of the node that hold them
    std::vector<std::pair<std::uint32_t, std::uint32_t>> last;  // last call that reads a tensor of `here`, tensor

    [[nodiscard]] std::uint32_t calls() const noexcept {
      return static_cast<std::uint32_t>(here.size() + parts.size());
    }
  };

  [[nodiscard]] bool below(std::uint32_t k, std::uint32_t o) const noexcept {
    return tree_.node_of[o] != k && tree_.contains(k, tree_.node_of[o]);
  }
  /// The child of k whose subtree holds operation `o`, which is below k.
  [[nodiscard]] std::uint32_t part_of(std::uint32_t k, std::uint32_t o) const noexcept {
    return child_towards(k, tree_.node_of[o]);
  }
  [[nodiscard]] std::vector<std::uint32_t> targets_in(std::uint32_t k, std::uint32_t part, const division& d) const {
    std::vector<std::uint32_t> targets;
    for (const std::uint32_t o : d.in_part)
      if (part_of(k, o) == part) targets.push_back(o);
    return targets;
  }

  /// Finds for each tensor of `here` the last call that reads it, itself or through missing operations below, and holds
  /// the tensor until then.
  void hold_until_last_call(std::uint32_t k, division& d) {
    const std::uint32_t all = stamp_;
    // A tensor that no call reads is held while its operation runs.
    for (std::uint32_t call = 0; call < d.here.size(); ++call)
      for (const std::uint32_t t : graph_.outputs[d.here[call]]) {
        if (held_here_[t] != all) d.last.emplace_back(0, t);
        held_here_[t] = all;
        until_[t] = call;
      }
    std::vector<std::uint32_t> stack;
    for (std::uint32_t call = 0; call < d.calls() && !stopped_; ++call) {
      if (call < d.here.size())
        stack.assign(1, d.here[call]);
      else
        stack = targets_in(k, d.parts[call - d.here.size()], d);
      ++closure_;
      count(8);
      for (const std::uint32_t o : stack) in_closure_[o] = closure_;
      while (!stack.empty()) {
        const std::uint32_t o = stack.back();
        stack.pop_back();
        count(8 * graph_.inputs[o].size());
        for (const std::uint32_t t : graph_.inputs[o]) {
          if (held_here_[t] == all) until_[t] = std::max(until_[t], call);
          for (const std::uint32_t p : graph_.producers[t]) {
            if (wanted_[p] != all || !below(k, p) || in_closure_[p] == closure_) continue;
            in_closure_[p] = closure_;
            stack.push_back(p);
          }
        }
      }
    }
    for (auto& [call, t] : d.last) {
      call = until_[t];
      ++held_[t];
    }
    std::sort(d.last.begin(), d.last.end());
  }

  void run_calls(std::uint32_t k, const division& d) {
    std::size_t ended = 0;
    for (std::uint32_t call = 0; call < d.calls() && !stopped_; ++call) {
      if (call < d.here.size()) {
        run_here(k, d.here[call]);
        if (stopped_) return;
      } else {
        const std::uint32_t part = d.parts[call - d.here.size()];
        make(part, targets_in(k, part, d));
      }
      for (; ended < d.last.size() && d.last[ended].first <= call; ++ended)
        if (--held_[d.last[ended].second] == 0 && there_[d.last[ended].second]) release(d.last[ended].second);
    }
  }

  /// Makes the inputs of operation `o` in the parts below node k, runs `o`, and frees the inputs.
  void run_here(std::uint32_t k, std::uint32_t o) {
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
    make_by_part(k, wanted);
    if (stopped_) return;
    if (open(o)) compute(o);
    for (const std::uint32_t t : inputs)
      if (--held_[t] == 0 && there_[t]) release(t);
  }

  /// Makes the operations `wanted`: those below node k part by part, the others in the listed order.
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
      } else {
        missing_for(together, needed);
        count_uses(needed);
        run_in_order(needed);
      }
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

  const flat_graph& graph_;
  separator_tree tree_;
  std::int64_t budget_ = 0, memory_ = 0;
  double time_ = 0, longest_ = 0;
  run_clock* clock_ = nullptr;
  bool stopped_ = false;
  std::size_t steps_ = 0;  // since the last poll
  std::uint32_t conflict_ = none;
  std::vector<std::uint8_t> there_, done_, kept_;
  std::vector<std::uint32_t> ran_at_, allocation_, written_, held_, uses_, trial_, trial_uses_, wanted_, computes_;
  std::vector<std::uint32_t> held_here_, until_, in_closure_;  // of the node that is being taken apart
  std::uint32_t stamp_ = 0, trial_stamp_ = 0, closure_ = 0;
};

inline constexpr double shares[] = {1.0, 0.75, 0.5};
inline constexpr std::uint32_t most_in_need = 6;
inline constexpr std::size_t most_repairs = 400;
inline constexpr std::size_t repairs_between_polls = 4;
inline constexpr double longest = 8;  ///< a recursion that takes so many times the needed time is given up

/// Drops idle tensors, at most `most_repairs` times, until the schedule fits. Polls after every few of them.
inline bool repair(timeline& line, refine_moves& moves, double allowed, const run_clock& clock) {
  moves.most_repairs = repairs_between_polls;
  for (std::size_t done = 0; done < most_repairs; done += repairs_between_polls) {
    const std::size_t nodes = line.node_limit();
    if (moves.repair(allowed)) return true;
    // No new compute: no tensor can be dropped.
    if (line.time() > allowed || line.node_limit() == nodes || clock.should_stop()) return false;
  }
  return false;
}

inline void require_decomposition(const undirected_graph& g, const tree_decomposition& t) {
  const decomposition_report report = check_decomposition(g, t);
  if (!report.valid())
    throw bad_argument("twremat: options.tree is no tree decomposition of the operation graph: " +
                       report.violations[0]);
}

/// A decomposition by a greedy order of least fill. A stop leaves the rest of the vertices in one bag.
inline tree_decomposition greedy_tree(const undirected_graph& g, std::uint64_t seed, const run_clock& clock) {
  const std::function<bool()> stop = [&] { return clock.should_stop(); };
  std::size_t eliminated = 0;
  detail::eliminating::greedy_options greedy;
  greedy.rule = elimination_rule::min_fill;
  greedy.seed = seed;
  greedy.stop = &stop;
  greedy.eliminated = &eliminated;
  const std::vector<std::uint32_t> order = detail::eliminating::greedy_order(g, greedy);
  return decomposition_of(g, order, eliminated);
}

/// Operation → its share of all bytes plus its share of all time. Parts of equal weight are balanced.
inline std::vector<double> weights(const flat_graph& graph) {
  double bytes = 1;
  for (const std::int64_t b : graph.bytes) bytes += static_cast<double>(b);
  const double time = graph.baseline_time > 0 ? graph.baseline_time : 1;
  std::vector<double> weight(graph.num_operations);
  for (std::uint32_t o = 0; o < graph.num_operations; ++o) {
    weight[o] = graph.time[o] / time + 1e-3 / graph.num_operations;
    for (const std::uint32_t t : graph.outputs[o]) weight[o] += static_cast<double>(graph.bytes[t]) / bytes;
  }
  return weight;
}

/// Runs the recursion under `budget`, repairs its schedule if it is over the problem's budget, spends the memory left
/// over (`retain`), and offers the result to `best`.
inline void attempt(const problem& p, recursion& recursion, double budget, const twremat_options& options,
                    run_clock& clock, solution& best) {
  const double needed = p.graph().needed_time;
  if (!recursion.run(static_cast<std::int64_t>(budget), longest * needed, clock)) return;
  schedule plan = schedule_computes(p, recursion.computes());
  check_report report = check(p, plan);
  std::string by(twremat_solver::name);
  if (report.what == violation::over_budget) {
    timeline line(p);
    line.load(plan);
    refine_moves moves(line, options.run.seed);
    if (!repair(line, moves, report.time + needed, clock)) return;
    plan = schedule_computes(p, line.computes());
    report = check(p, plan);
    by = by_part(by, "repair");
  }
  retain_options spending;
  spending.rounds = options.retain_rounds;
  spending.enough = with_rounding(needed);
  schedule retained = retain(p, std::move(plan), clock, spending);
  if (check(p, retained).time < report.time) by = by_part(by, "retain");
  accept(p, best, std::move(retained), by);
}

/// `twremat_solver::operator()`.
inline solution solve_by_separators(const problem& p, const twremat_options& options) {
  run_clock clock(options.run);
  solution best;
  const flat_graph& g = p.graph();
  const undirected_graph graph = operation_graph(g);
  if (options.tree) require_decomposition(graph, *options.tree);
  stop_reason stopped = clock.poll();
  if (stopped != stop_reason::none || prove(p, best, options.run)) {
    conclude(p, best, clock, stopped);
    return best;
  }
  std::optional<detail::treewidth::recursion> recursion;
  const std::vector<double> weight = weights(g);
  for (std::uint32_t i = 0; i < std::max(options.attempts, most_in_need); ++i) {
    if (i >= options.attempts && best.plan) break;
    if (best.plan && is_optimal(best.time, best.lower_bound)) break;
    stopped = clock.poll();
    if (stopped != stop_reason::none) break;
    if (i % std::size(shares) == 0 || !recursion) {
      const tree_decomposition tree =
          options.tree ? *options.tree : greedy_tree(graph, options.run.seed + i / std::size(shares), clock);
      stopped = clock.poll();
      if (stopped != stop_reason::none) break;
      recursion.emplace(g, separate(graph.rows(), tree.bags, tree.links(), weight));
    }
    // Under a smaller budget the recursion takes more apart, and leaves more memory to `retain`.
    const double share = shares[i % std::size(shares)];
    attempt(p, *recursion, p.has_budget() ? share * static_cast<double>(p.budget()) : 0x1.0p62, options, clock, best);
    clock.report({.solver = twremat_solver::name,
                  .stage = "separators",
                  .best_objective = best.time,
                  .lower_bound = best.lower_bound});
  }
  if (!best.plan && stopped == stop_reason::none) {
    evict_options eviction;
    eviction.run = clock.part(1);
    solution other = evict(best.lower_bound > g.needed_time ? p.with_known_bound(best.lower_bound) : p, eviction);
    clock.work(other.statistics.work);
    if (other.plan) {
      accept(p, best, std::move(*other.plan), by_part(twremat_solver::name, other.by));
      best.message = "no schedule of the recursion fits the budget; this one is from evict";
    }
  }
  conclude(p, best, clock, stopped == stop_reason::none ? clock.poll() : stopped);
  return best;
}

}  // namespace detail::treewidth

REMAT_INLINE solution twremat_solver::operator()(const problem& p, const twremat_options& options) const {
  return detail::treewidth::solve_by_separators(p, options);
}

}  // namespace remat
