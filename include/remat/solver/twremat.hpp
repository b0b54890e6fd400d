// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/rounding.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/moves.hpp"
#include "remat/refine/retain.hpp"
#include "remat/refine/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/solution.hpp"
#include "remat/treewidth/check.hpp"
#include "remat/treewidth/elimination_order.hpp"
#include "remat/treewidth/greedy_order.hpp"
#include "remat/treewidth/separator_tree.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat {

namespace detail::treewidth {

/// The recursion of TwRemat, for one problem and one tree of separators; run under any budget.
///
/// make(k, operations): what of `operations` and of their missing ancestors is in or below node k is run; on return the
/// results that are held are there. If running all of it in the listed order fits, that is done. Else the operations of
/// node k itself that are needed run one by one, in the listed order: for each of them its missing inputs are made in
/// the parts below, then it runs, then those inputs go. What node k's operations write stays until the last call below
/// that may read it. Last come the `operations` that are in the parts below.
class recursion {
 public:
  recursion(const flat_graph& step, separator_tree tree) : step_(step), tree_(std::move(tree)) {
    const std::size_t n = step.num_operations, m = step.num_tensors;
    ran_at_.assign(step.outputs.values.size(), 0);
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
    for (std::uint32_t o = 0; o < n; ++o) kept_[o] = step.once[o] != 0;
  }

  /// Returns whether a sequence was made; it may be over the budget where single operations do not fit. `longest` ends
  /// a sequence that takes more time.
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
    for (const std::uint32_t t : step_.final_outputs) ++held_[t];
    std::vector<std::uint32_t> targets;
    for (std::uint32_t o = 0; o < step_.num_operations; ++o) {
      bool target = step_.has_effect(o);
      for (const std::uint32_t t : step_.outputs[o]) target = target || step_.final_output[t];
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
    return step_.always_resident[t] || (there_[t] && written_[t] == step_.producers[t].size());
  }
  /// Has `o` written into what is allocated of `t` now?
  [[nodiscard]] bool contributed(std::uint32_t o, std::uint32_t t) const noexcept {
    if (!there_[t]) return false;
    for (std::uint32_t w = step_.outputs.begin[o]; w < step_.outputs.begin[o + 1]; ++w)
      if (step_.outputs.values[w] == t) return ran_at_[w] == allocation_[t];
    return false;
  }
  /// Is there something left to do for `o`, wanted for all of its outputs that are held?
  [[nodiscard]] bool open(std::uint32_t o) const noexcept {
    if (step_.has_effect(o)) return !done_[o];
    for (const std::uint32_t t : step_.outputs[o])
      if (held_[t] != 0 && !contributed(o, t)) return true;
    return false;
  }

  void release(std::uint32_t t) {
    there_[t] = 0;
    memory_ -= step_.bytes[t];
  }

  void allocate_outputs(std::uint32_t o) {
    for (std::uint32_t w = step_.outputs.begin[o]; w < step_.outputs.begin[o + 1]; ++w) {
      const std::uint32_t t = step_.outputs.values[w];
      if (!there_[t]) {
        there_[t] = 1;
        written_[t] = 0;
        ++allocation_[t];
        memory_ += step_.bytes[t];
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
    for (const std::uint32_t t : step_.outputs[o])
      if (step_.producers[t].size() > 1 && contributed(o, t)) {
        conflict_ = o;  // to make another of its outputs again it would add to this one twice
        stopped_ = true;
        return;
      }
    allocate_outputs(o);
    if (!done_[o]) {
      done_[o] = 1;
      if (kept_[o])
        for (const std::uint32_t t : step_.outputs[o]) ++held_[t];  // it cannot come back
    }
    computes_.push_back(o);
    time_ += step_.time[o];
    clock_->work();
    if (time_ > longest_ || ((computes_.size() & 255U) == 0 && clock_->should_stop())) stopped_ = true;
  }

  /// The operations that have to run for `operations`, ascending: their missing ancestors, wherever they are.
  void missing_for(std::span<const std::uint32_t> operations, std::vector<std::uint32_t>& needed) {
    ++stamp_;
    needed.clear();
    for (const std::uint32_t o : operations)
      if (wanted_[o] != stamp_ && open(o)) {
        wanted_[o] = stamp_;
        needed.push_back(o);
      }
    for (std::size_t i = 0; i < needed.size(); ++i)
      for (const std::uint32_t t : step_.inputs[needed[i]]) {
        if (readable(t)) continue;
        for (const std::uint32_t p : step_.producers[t])
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
    // First the memory alone: what is allocated is marked in `trial_`.
    std::int64_t memory = memory_;
    ++trial_stamp_;
    bool fits = true;
    for (const std::uint32_t o : needed) {
      for (const std::uint32_t t : step_.inputs[o]) trial_uses_[t] = uses_[t];
      for (const std::uint32_t t : step_.outputs[o]) trial_uses_[t] = uses_[t];
    }
    for (const std::uint32_t o : needed) {
      for (const std::uint32_t t : step_.outputs[o])
        if (!there_[t] && trial_[t] != trial_stamp_) {
          trial_[t] = trial_stamp_;
          memory += step_.bytes[t];
        }
      if (memory + step_.workspace[o] > budget_) {
        fits = false;
        break;
      }
      const auto end = [&](std::uint32_t t) {
        if (held_[t] == 0 && trial_uses_[t] == 0 && trial_[t] == trial_stamp_) {
          trial_[t] = 0;
          memory -= step_.bytes[t];
        }
      };
      for (const std::uint32_t t : step_.inputs[o]) {
        --trial_uses_[t];
        end(t);
      }
      for (const std::uint32_t t : step_.outputs[o]) end(t);
    }
    if (!fits) return false;
    run_in_order(needed);
    return true;
  }

  /// `uses_` counts the reads by `needed`.
  void run_in_order(const std::vector<std::uint32_t>& needed) {
    for (const std::uint32_t o : needed) {
      if (stopped_) return;
      compute(o);
      for (const std::uint32_t t : step_.inputs[o])
        if (--uses_[t] == 0 && held_[t] == 0 && there_[t]) release(t);
      for (const std::uint32_t t : step_.outputs[o])
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

    // Operations of node k, and any that are not below it, one by one; the others by part.
    std::vector<std::uint32_t> here;
    for (const std::uint32_t o : needed) {
      const std::uint32_t node = tree_.node_of[o];
      if (node == k || !tree_.contains(k, node)) here.push_back(o);
    }
    if (here.size() == needed.size()) {
      run_in_order(needed);  // nothing to take apart
      return;
    }
    std::vector<std::uint32_t> parts, in_part;  // the targets in the parts below, by part
    for (const std::uint32_t o : operations) {
      const std::uint32_t node = tree_.node_of[o];
      if (wanted_[o] == stamp_ && node != k && tree_.contains(k, node)) in_part.push_back(o);
    }
    const auto part_of = [&](std::uint32_t o) { return child_towards(k, tree_.node_of[o]); };
    std::sort(in_part.begin(), in_part.end());
    for (const std::uint32_t o : in_part)
      if (std::find(parts.begin(), parts.end(), part_of(o)) == parts.end()) parts.push_back(part_of(o));

    // Until which of these calls is each tensor of `here` read? Through missing operations of the parts below.
    const auto calls = static_cast<std::uint32_t>(here.size() + parts.size());
    std::vector<std::pair<std::uint32_t, std::uint32_t>> last;  // call, tensor
    {
      const std::uint32_t all = stamp_;
      // A tensor that nobody reads here lives as long as its operation runs.
      for (std::uint32_t call = 0; call < here.size(); ++call)
        for (const std::uint32_t t : step_.outputs[here[call]]) {
          if (held_here_[t] != all) last.emplace_back(0, t);
          held_here_[t] = all;
          until_[t] = call;
        }
      std::vector<std::uint32_t> stack;
      for (std::uint32_t call = 0; call < calls; ++call) {
        stack.clear();
        if (call < here.size())
          stack.push_back(here[call]);
        else
          for (const std::uint32_t o : in_part)
            if (part_of(o) == parts[call - here.size()]) stack.push_back(o);
        ++closure_;
        count(8);
        if (stopped_) break;
        for (const std::uint32_t o : stack) in_closure_[o] = closure_;
        while (!stack.empty()) {
          const std::uint32_t o = stack.back();
          stack.pop_back();
          count(8 * step_.inputs[o].size());
          for (const std::uint32_t t : step_.inputs[o]) {
            if (held_here_[t] == all) until_[t] = std::max(until_[t], call);
            for (const std::uint32_t p : step_.producers[t]) {
              const std::uint32_t node = tree_.node_of[p];
              if (wanted_[p] != all || node == k || !tree_.contains(k, node) || in_closure_[p] == closure_) continue;
              in_closure_[p] = closure_;
              stack.push_back(p);
            }
          }
        }
      }
      for (auto& [call, t] : last) {
        call = until_[t];
        ++held_[t];
      }
      std::sort(last.begin(), last.end());
    }

    std::size_t ended = 0;
    std::vector<std::uint32_t> inputs, wanted, below;
    for (std::uint32_t call = 0; call < calls && !stopped_; ++call) {
      if (call < here.size()) {
        const std::uint32_t o = here[call];
        inputs.clear();
        for (const std::uint32_t t : step_.inputs[o]) {
          if (step_.always_resident[t]) continue;
          inputs.push_back(t);
          ++held_[t];
        }
        // Its missing inputs, part by part.
        wanted.clear();
        for (const std::uint32_t t : inputs)
          if (!readable(t))
            for (const std::uint32_t p : step_.producers[t])
              if (!contributed(p, t)) wanted.push_back(p);
        std::sort(wanted.begin(), wanted.end());
        wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
        while (!wanted.empty() && !stopped_) {
          const std::uint32_t node = tree_.node_of[wanted[0]];
          const bool inside = node != k && tree_.contains(k, node);
          const std::uint32_t part = inside ? child_towards(k, node) : none;
          below.clear();
          std::size_t kept = 0;
          for (const std::uint32_t p : wanted) {
            const std::uint32_t other = tree_.node_of[p];
            const bool same = inside ? tree_.contains(part, other) : !(other != k && tree_.contains(k, other));
            if (same)
              below.push_back(p);
            else
              wanted[kept++] = p;
          }
          wanted.resize(kept);
          if (inside) {
            make(part, below);
          } else {
            missing_for(below, needed);
            count_uses(needed);
            run_in_order(needed);
          }
        }
        if (stopped_) return;
        if (open(o)) compute(o);
        for (const std::uint32_t t : inputs)
          if (--held_[t] == 0 && there_[t]) release(t);
      } else {
        below.clear();
        for (const std::uint32_t o : in_part)
          if (part_of(o) == parts[call - here.size()]) below.push_back(o);
        make(parts[call - here.size()], below);
      }
      for (; ended < last.size() && last[ended].first <= call; ++ended)
        if (--held_[last[ended].second] == 0 && there_[last[ended].second]) release(last[ended].second);
    }
  }

  void count_uses(const std::vector<std::uint32_t>& needed) {
    for (const std::uint32_t o : needed) {
      for (const std::uint32_t t : step_.inputs[o]) uses_[t] = 0;
      for (const std::uint32_t t : step_.outputs[o]) uses_[t] = 0;
    }
    for (const std::uint32_t o : needed)
      for (const std::uint32_t t : step_.inputs[o]) ++uses_[t];
  }

  const flat_graph& step_;
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

}  // namespace detail::treewidth

struct twremat_options {
  /// The tree decomposition to go by, of `operation_graph(p)`, for instance one from `decompose`; none: those of
  /// min-fill elimination orders, with ties broken in another way in every third attempt.
  std::optional<tree_decomposition> tree{};
  /// Recursions that are made into schedules, the best of which is the answer. Where none of these fits the budget, at
  /// least `most_in_need` are tried.
  std::uint32_t attempts = 1;
  std::uint32_t retain_rounds = 2;  ///< `retain_options::rounds`
  run_control run{};
};

/// TwRemat \cite kumar2019twremat on the true problem, with control: nested separators from a tree decomposition of the
/// operations' graph, balanced by bytes and time; a part is taken apart only where running it in the listed order does
/// not fit; and the memory that is left buys time (`retain`). The budget binds.
///
///   make(part, targets): run what is missing for the targets in the listed order, if that fits. Else, for each
///   operation v of the part's separator that is needed, in order: make v's inputs in the parts below, run v, free
///   these inputs; then make the targets in the parts below; what the separator wrote goes after the last call that
///   reads it.
///
/// Differs from the paper: sizes, times, workspace, several outputs (single tensors are freed), tensors of several
/// producers, operations that may run only once (what they write stays until nothing can ask for it), and the budget
/// steers the recursion in place of a depth.
/// Heuristic; `lower_bound` is proven (`prove`). Where the recursion's schedule does not fit, it is repaired
/// (`refine_moves::repair`), and where that fails, `evict` is asked; the message says so.
/// With width w: peak O(w log n) and length O(n^log w) at worst, for unit sizes. Deterministic. Cancellation: polled
/// every 256 computes, and before each recomputation when retaining.
struct twremat_solver {
  using options_type = twremat_options;
  static constexpr std::string_view name = "twremat";

  [[nodiscard]] solution operator()(const problem& p, const twremat_options& options = {}) const {
    run_clock clock(options.run);
    solution best;
    const flat_graph& s = p.graph();
    const undirected_graph graph = operation_graph(p);
    if (options.tree) require_decomposition(graph, *options.tree);
    stop_reason stopped = clock.poll();
    if (stopped != stop_reason::none || prove(p, best, options.run)) {
      conclude(p, best, clock, stopped);
      return best;
    }
    std::optional<detail::treewidth::recursion> recursion;
    const std::vector<double> weight = weights(s);
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
        recursion.emplace(s, separate(graph.rows(), tree.bags, tree.links(), weight));
      }
      // Told of less memory, it takes more apart, and leaves more to `retain`.
      const double share = shares[i % std::size(shares)];
      attempt(p, *recursion, p.has_budget() ? share * static_cast<double>(p.budget()) : 0x1.0p62, options, clock, best);
      clock.report(
          {.solver = name, .stage = "separators", .best_objective = best.time, .lower_bound = best.lower_bound});
    }
    if (!best.plan && stopped == stop_reason::none) {
      evict_options eviction;
      eviction.run = clock.part(1);
      solution other = evict(best.lower_bound > s.needed_time ? p.with_known_bound(best.lower_bound) : p, eviction);
      clock.work(other.statistics.work);
      if (other.plan) {
        accept(p, best, std::move(*other.plan));
        best.message = "the separators' own schedules do not fit; this one is eviction's";
      }
    }
    conclude(p, best, clock, stopped == stop_reason::none ? clock.poll() : stopped);
    return best;
  }

 private:
  static constexpr double shares[] = {1.0, 0.75, 0.5};
  static constexpr std::uint32_t most_in_need = 6;
  static constexpr std::size_t most_repairs = 400;
  static constexpr std::size_t repairs_between_polls = 4;
  static constexpr double longest = 8;  ///< a recursion that takes so many times the needed time is given up

  /// One recursion under `budget`, repaired where it is over the problem's, and the memory that is left spent.
  static void attempt(const problem& p, detail::treewidth::recursion& recursion, double budget,
                      const twremat_options& options, run_clock& clock, solution& best) {
    const double needed = p.graph().needed_time;
    if (!recursion.run(static_cast<std::int64_t>(budget), longest * needed, clock)) return;
    schedule plan = schedule_computes(p, recursion.computes());
    const check_report report = check(p, plan);
    if (report.what == violation::over_budget) {
      timeline line(p);
      line.load(plan);
      refine_moves moves(line, options.run.seed);
      if (!repair(line, moves, report.time + needed, clock)) return;
      plan = schedule_computes(p, line.computes());
    }
    retain_options spending;
    spending.rounds = options.retain_rounds;
    spending.enough = with_rounding(needed);
    accept(p, best, retain(p, std::move(plan), clock, spending));
  }

  /// Drops idle tensors, at most `most_repairs` times, until the schedule fits. Polls after every few of them.
  static bool repair(timeline& line, refine_moves& moves, double allowed, const run_clock& clock) {
    moves.most_repairs = repairs_between_polls;
    for (std::size_t done = 0; done < most_repairs; done += repairs_between_polls) {
      const std::size_t nodes = line.node_limit();
      if (moves.repair(allowed)) return true;
      // Without a new compute nothing was dropped: nothing can be.
      if (line.time() > allowed || line.node_limit() == nodes || clock.should_stop()) return false;
    }
    return false;
  }

  static void require_decomposition(const undirected_graph& g, const tree_decomposition& t) {
    const decomposition_report report = check_decomposition(g, t);
    if (!report.valid())
      throw bad_argument("twremat: options.tree is no tree decomposition of the operation graph: " +
                         report.violations[0]);
  }

  /// A decomposition by a greedy order of least fill. A stop leaves the rest of the vertices in one bag.
  static tree_decomposition greedy_tree(const undirected_graph& g, std::uint64_t seed, const run_clock& clock) {
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

  /// Of each operation: its share of all bytes and of all time. Parts that are equal in these are balanced.
  static std::vector<double> weights(const flat_graph& s) {
    double bytes = 1;
    for (const std::int64_t b : s.bytes) bytes += static_cast<double>(b);
    const double time = s.baseline_time > 0 ? s.baseline_time : 1;
    std::vector<double> weight(s.num_operations);
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      weight[o] = s.time[o] / time + 1e-3 / s.num_operations;
      for (const std::uint32_t t : s.outputs[o]) weight[o] += static_cast<double>(s.bytes[t]) / bytes;
    }
    return weight;
  }
};
inline constexpr twremat_solver twremat{};

}  // namespace remat
