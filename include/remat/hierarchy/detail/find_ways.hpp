// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/portable_pieces.hpp"
#include "remat/core/detail/spent_share.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/detail/way_bytes.hpp"
#include "remat/hierarchy/detail/way_cache.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/detail/schedule_bytes.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// The answer of a sub-solver.
struct sub_solution {
  std::optional<schedule> plan{};                         ///< legal and within the budget; none: none was found
  double time = std::numeric_limits<double>::infinity();  ///< the plan's time
  double lower_bound = 0;  ///< proven: no schedule within the budget takes less; infinite: no schedule fits
  std::uint64_t work = 0;  ///< units of work that the solver counted

  /// True if it is proven that no schedule fits the budget.
  [[nodiscard]] bool infeasible() const noexcept { return std::isinf(lower_bound); }
  /// True if there is a plan whose time meets the bound (`is_optimal`).
  [[nodiscard]] bool optimal() const noexcept { return plan.has_value() && is_optimal(time, lower_bound); }
};

/// The solvers of the small problems that a hierarchy leads to. They keep the limits of `run`, may be called by several
/// threads at once, and call no progress callback.
///
/// - `s.thorough(p, starts, run)` searches from `starts` (schedules that do not fit the budget are ignored) until its
///   bound is met or a limit is reached.
/// - `s.tight(p, run)` is for tight budgets, if `thorough` ends far from its bound; called only if `s.has_tight()`.
/// - `s.starts(i, runs, peak, save, clock)` gives schedules of `sub_graph_runs::problem_within(peak, save)` to start
///   from, for sub-graph i. It counts its work on the clock, and stops when that says so.
template <class S>
concept sub_solver_set = requires(const S& s, const problem& p, std::span<const schedule> starts,
                                  const run_control& run, std::size_t i, const sub_graph_runs& runs, std::int64_t bytes,
                                  run_clock& clock) {
  { s.thorough(p, starts, run) } -> std::same_as<sub_solution>;
  { s.has_tight() } -> std::same_as<bool>;
  { s.tight(p, run) } -> std::same_as<sub_solution>;
  { s.starts(i, runs, bytes, bytes, clock) } -> std::same_as<std::vector<schedule>>;
};

/// The further members of a `sub_solver_set` if other processes may find ways by it (`find_way_elsewhere`).
///
/// - `s.kind()` is the name of the `piece_kind`; empty: they may not.
/// - `s.share(out)` appends what the solvers need for all sub-graphs, and `s.question(i)` returns what they need for
///   sub-graph i.
/// - `s.take(answer)` takes the `S::answer` that they have returned beside the ways.
template <class S>
concept portable_sub_solver_set = sub_solver_set<S> &&
    requires(const S& s, std::size_t i, byte_writer& out, const typename S::answer& answer) {
  { s.kind() } -> std::same_as<std::string_view>;
  s.share(out);
  bytes_of(s.question(i));
  s.take(answer);
};

/// How ways are searched for.
struct way_search {
  std::uint32_t peaks = 3;             ///< peak budgets below the one that does not bind
  std::size_t max_budgets = 20;        ///< save budgets for each peak budget
  std::size_t max_ways = 12;           ///< most ways of a sub-graph, spread over saved bytes
  std::uint64_t moves = 4000;          ///< work limit of the thorough solver, for each pair of budgets
  std::shared_ptr<way_cache> cache{};  ///< ways are looked up and kept there; null: no cache
};

/// Distinct sub-graphs whose ways are wanted.
struct way_effort {
  std::uint64_t effort = 0;   ///< a number that grows with the time, as the caller counts it
  std::uint64_t classes = 0;  ///< distinct sub-graphs

  /// True if it is at most `room`.
  [[nodiscard]] bool fits(const way_effort& room) const noexcept {
    return effort <= room.effort && classes <= room.classes;
  }
  friend way_effort operator+(const way_effort& a, const way_effort& b) {
    return {a.effort + b.effort, a.classes + b.classes};
  }
};

/// The share of what is left of the limits for the ways of one group of chains.
inline constexpr double ways_share = 0.75;

/// Returns the most of the next group of chains that search for ways together; a group has one chain at least.
/// `spent`: the effort of the groups before, all that was done on the clock.
///
/// The more sub-graphs search together, the better they fill threads and processes. But the chains of a group are
/// solved when all have ended: so a group is small beside what was done before it, or beside what is left. And its
/// sub-graphs share the work evenly: each needs enough.
[[nodiscard]] inline way_effort room_of_group(std::uint64_t spent, const way_search& search, const run_clock& clock) {
  constexpr double least = 20'000;             // effort
  constexpr std::uint64_t enough_moves = 150;  // moves that are enough for a pair of budgets
  way_effort room;
  if (spent == 0) return room;
  const double now = spent_share(clock, 0);
  const double rest = now > 0 ? static_cast<double>(spent) * (1 - now) / now : 2 * least;
  room.effort = std::max(spent / 2, static_cast<std::uint64_t>(std::min(least, rest / 2)));
  room.classes = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t budgets = std::uint64_t{search.max_budgets} * (search.peaks + 1);
  const std::uint64_t enough = budgets * std::min(search.moves, enough_moves) * work_of::move;
  if (clock.work_left() != run_control::no_work_limit && enough > 0)
    room.classes = share_of(clock.work_left(), ways_share) / enough;
  return room;
}

/// The ways of several sub-graphs.
struct way_table {
  std::vector<std::vector<detail::sub_graph_way>>
      ways{};                               ///< each sub-graph's ways, in its own indices, by falling saved bytes
  std::size_t distinct = 0;                 ///< sub-graphs that differ by more than names and times
  std::size_t reused = 0;                   ///< those of `distinct` that are known from the cache
  std::size_t solves = 0;                   ///< problems that were solved
  std::size_t proven = 0;                   ///< those of `solves` with a way proven the fastest, or proven infeasible
  std::size_t found = 0;                    ///< ways of the solved sub-graphs, before any was dropped
  std::size_t kept = 0;                     ///< those of `found` that are not dominated, and within `max_ways`
  std::size_t cut_short = 0;                ///< distinct sub-graphs whose search a limit ended early
  std::uint64_t work = 0;                   ///< the work of all solves
  stop_reason stopped = stop_reason::none;  ///< the limit that cut the search short; `none` if no limit did
};

/// The answers for one sub-graph under one peak budget.
struct way_finding {
  struct answer {
    std::int64_t held = 0;  ///< `sub_graph_runs::held_at_turn`
    schedule plan{};        ///< a schedule of `problem_within`
    sub_graph_way way{};
  };
  std::vector<answer> answers{};  ///< `held` falls
  std::size_t solves = 0, proven = 0;
  std::uint64_t work = 0;
  bool whole = true;  ///< no limit but `way_search::moves` had a say
};

void fields_of(auto& bytes, maybe_const<way_finding::answer> auto& a) { bytes(a.held, a.plan, a.way); }
void fields_of(auto& bytes, maybe_const<way_finding> auto& f) { bytes(f.answers, f.solves, f.proven, f.work, f.whole); }

/// A piece of `find_ways` for another process, but for what the solvers need.
struct way_question {
  std::uint32_t level = 0;
  std::uint32_t peaks = 0;  // these three are of `way_search`
  std::size_t max_budgets = 0;
  std::uint64_t moves = 0;
  sub_graph graph{};
  way_finding before{};  // the finding of the level before
};

void fields_of(auto& bytes, maybe_const<way_question> auto& q) {
  bytes(q.level, q.peaks, q.max_budgets, q.moves, q.graph, q.before);
}

namespace finding_ways {

/// The staircase of save budgets of one sub-graph under one peak budget: from the bytes of everything, each save budget
/// just below what the last answer held.
template <class Solvers>
class staircase {
 public:
  /// `limits`: time and work for the whole staircase.
  staircase(const sub_graph_runs& runs, std::size_t place, const way_search& search, const Solvers& solvers,
            const run_control& limits)
      : runs_(runs), place_(place), search_(search), solvers_(solvers), clock_(limits) {}

  /// `before`: the staircase of a larger peak budget; its answers that fit here as well are not searched for again.
  [[nodiscard]] way_finding climb_down(std::uint32_t level, const way_finding& before) {
    const std::int64_t everything = runs_.held_at_turn(runs_.keep_everything());
    if (!choose_peak(level, everything)) return std::move(out_);
    std::int64_t save = level == 0 ? everything - 1 : everything;
    for (std::size_t k = 1; k <= search_.max_budgets && save >= 0; ++k) {
      std::optional<way_finding::answer> found = answer_within(save, before, search_.max_budgets - k + 1);
      if (!found) break;
      const std::int64_t held = found->held;
      out_.answers.push_back(std::move(*found));
      if (held == 0) break;
      // Down to the next step, and at least by an equal share.
      const auto step = static_cast<std::int64_t>(static_cast<double>(everything) * static_cast<double>(k) /
                                                  static_cast<double>(search_.max_budgets));
      save = std::max<std::int64_t>(0, std::min({held - 1, save - 1, everything - step}));
    }
    if (clock_.should_stop()) out_.whole = false;
    out_.work = clock_.work_done();
    return std::move(out_);
  }

 private:
  static constexpr double far = 1.02;  ///< times the bound: the tight solver is asked as well

  /// The peak budget of a level; that of level 0 does not bind. Returns false if a level is like level 0.
  [[nodiscard]] bool choose_peak(std::uint32_t level, std::int64_t everything) {
    const std::int64_t gradients = runs_.gradient_input_bytes();
    // There is no workspace at the turn here.
    const problem free = runs_.problem_within(gradients, 0).with_budget(problem::unlimited);
    const std::int64_t most = std::max(free.graph().baseline_peak, everything + gradients);
    peak_ = most;
    if (level == 0) return true;
    const std::int64_t least = largest_working_set(free).bytes;
    peak_ = least + (most - least) / (search_.peaks + 1) * (search_.peaks + 1 - level);
    return peak_ < most;
  }

  /// The fastest way found within the budgets. `budgets_left`: save budgets that share the rest of the work.
  [[nodiscard]] std::optional<way_finding::answer> answer_within(std::int64_t save, const way_finding& before,
                                                                 std::size_t budgets_left) {
    if (clock_.should_stop()) {
      out_.whole = false;
      return std::nullopt;
    }
    const problem p = runs_.problem_within(peak_, std::min(save, peak_));
    const auto known = std::find_if(before.answers.begin(), before.answers.end(),
                                    [&](const way_finding::answer& a) { return a.held <= save; });
    if (known != before.answers.end() && check(p, known->plan).valid()) return *known;
    // A solve that cannot even read its problem is not begun.
    if (clock_.work_left() < least_work(p)) {
      out_.whole = false;
      return std::nullopt;
    }
    std::optional<schedule> plan = solve(p, save, budgets_left);
    if (!plan) return std::nullopt;
    std::optional<sub_graph_way> way = runs_.way_of(*plan);
    if (!way) return std::nullopt;
    way_finding::answer found;
    found.held = runs_.held_at_turn(*way);
    found.plan = std::move(*plan);
    found.way = std::move(*way);
    return found;
  }

  [[nodiscard]] std::optional<schedule> solve(const problem& p, std::int64_t save, std::size_t budgets_left) {
    std::vector<schedule> starts = solvers_.starts(place_, runs_, peak_, std::min(save, peak_), clock_);
    sub_solution s = ask_thorough(p, starts, budgets_left);
    if (solvers_.has_tight() && !s.infeasible() && (!s.plan || s.time > s.lower_bound * far) && !clock_.should_stop()) {
      sub_solution t = ask(p, clock_.work_left(), [&](const run_control& run) { return solvers_.tight(p, run); });
      if (t.plan && (!s.plan || t.time < s.time)) {
        starts.push_back(*t.plan);
        sub_solution again = ask_thorough(p, starts, budgets_left);
        // A solve that is stopped at once may not have got to its starts.
        s = again.plan && again.time <= t.time ? std::move(again) : std::move(t);
      }
    }
    if (s.infeasible() || (s.optimal() && !runs_.runs_between_take_and_turn(*s.plan))) ++out_.proven;
    return std::move(s.plan);
  }

  /// Solves a problem with an equal share of the work that is left, and at most `moves`.
  [[nodiscard]] sub_solution ask_thorough(const problem& p, std::span<const schedule> starts,
                                          std::size_t budgets_left) {
    const std::uint64_t share = share_of(clock_.work_left(), 1.0 / static_cast<double>(budgets_left));
    const std::uint64_t most = search_.moves * work_of::move;
    if (share < most) out_.whole = false;
    return ask(p, std::min(share, most), [&](const run_control& run) { return solvers_.thorough(p, starts, run); });
  }
  template <class Solve>
  [[nodiscard]] sub_solution ask(const problem& p, std::uint64_t work, Solve&& solve) {
    run_control run = clock_.limits();
    run.threads = 1;
    run.work_limit = work;
    sub_solution s = solve(run);
    ++out_.solves;
    clock_.work(std::max(s.work, least_work(p)));
    return s;
  }
  [[nodiscard]] static std::uint64_t least_work(const problem& p) { return p.graph().num_operations; }

  const sub_graph_runs& runs_;
  std::size_t place_;
  const way_search& search_;
  const Solvers& solvers_;
  run_clock clock_;
  std::int64_t peak_ = 0;
  way_finding out_{};
};

/// One call of `find_ways`.
template <class Solvers>
class finder {
 public:
  finder(std::span<const sub_graph> sub_graphs, const way_search& search, const Solvers& solvers, run_clock& clock)
      : sub_graphs_(sub_graphs),
        search_(search),
        solvers_(solvers),
        clock_(clock),
        classes_(classify(sub_graphs, way_cache::likeness())) {
    runs_.reserve(sub_graphs.size());
    for (const sub_graph& g : sub_graphs) runs_.emplace_back(g);
    out_.ways.resize(sub_graphs.size());
    out_.distinct = classes_.representative.size();
    found_.resize(classes_.representative.size());
  }

  [[nodiscard]] way_table run() {
    take_known();
    // All sub-graphs under the largest peak budget first: a limit should leave something to each.
    for (std::uint32_t level = 0; level <= search_.peaks && !cut_short_; ++level) solve_level(level);
    if (cut_short_) out_.stopped = clock_.poll();
    collect();
    translate_to_copies(classes_, out_.ways, [&](std::size_t i) -> const sub_graph_runs& { return runs_[i]; });
    return std::move(out_);
  }

 private:
  [[nodiscard]] way_cache::settings settings() const {
    return {search_.peaks, search_.max_budgets, search_.max_ways, search_.moves, clock_.control().seed, 0};
  }

  /// Ways that the cache knows; the other classes are to be solved.
  void take_known() {
    for (std::uint32_t c = 0; c < found_.size(); ++c) {
      const std::uint32_t i = classes_.representative[c];
      if (search_.cache)
        if (std::optional<std::vector<sub_graph_way>> ways = search_.cache->find(runs_[i], settings())) {
          out_.ways[i] = std::move(*ways);
          ++out_.reused;
          continue;
        }
      found_[c].resize(search_.peaks + 1);
      to_solve_.push_back(c);
      operations_ += sub_graphs_[i].operations.size();
    }
  }

  /// The peak budget of this level for every class, each a piece. A class gets work by its operations, whatever the
  /// others do: so the answer is the same for any number of threads and any crew.
  void solve_level(std::uint32_t level) {
    const std::uint64_t work = share_of(clock_.work_left(), 1.0 / (search_.peaks + 1 - level));
    const auto operations = [&](std::size_t k) {
      return static_cast<double>(sub_graphs_[classes_.representative[to_solve_[k]]].operations.size());
    };
    piece_list pieces;
    pieces.count = to_solve_.size();
    pieces.size = operations;
    pieces.limits = [&](std::size_t k, std::size_t) {
      run_control limits = clock_.limits();
      limits.work_limit = share_of(work, operations(k) / static_cast<double>(operations_));
      return limits;
    };
    pieces.run = [&](std::size_t k, const run_control& limits) { solve_class(to_solve_[k], level, limits); };
    pieces.report = [&](std::size_t finished) { report(level * to_solve_.size() + finished); };
    if constexpr (portable_sub_solver_set<Solvers>) {
      const auto question = [&, level](std::size_t k) {
        const std::uint32_t c = to_solve_[k], i = classes_.representative[c];
        return std::pair(way_question{level, search_.peaks, search_.max_budgets, search_.moves, sub_graphs_[i],
                                      found_before(c, level)},
                         solvers_.question(i));
      };
      using answer = std::pair<way_finding, typename Solvers::answer>;
      let_others_run<answer>(
          pieces, solvers_.kind(), [&](byte_writer& out) { solvers_.share(out); }, question,
          [&, level](std::size_t k, answer found) {
            found_[to_solve_[k]][level] = std::move(found.first);
            solvers_.take(found.second);
            if (out_of_time()) cut_short_ = true;
          });
    }
    run_control control = clock_.control();
    control.on_progress = nullptr;  // the objectives of sub-graphs are others
    run_pieces(pieces, control);
    for (const std::uint32_t c : to_solve_) clock_.work(found_[c][level].work);
  }

  void solve_class(std::uint32_t c, std::uint32_t level, const run_control& limits) {
    if (out_of_time()) {
      cut_short_ = true;
      return;
    }
    const std::uint32_t i = classes_.representative[c];
    staircase stairs(runs_[i], i, search_, solvers_, limits);
    found_[c][level] = stairs.climb_down(level, found_before(c, level));
    if (out_of_time()) cut_short_ = true;
  }

  /// The finding of a class under the larger peak budget; empty on the first level.
  [[nodiscard]] way_finding found_before(std::uint32_t c, std::uint32_t level) const {
    return level == 0 ? way_finding{} : found_[c][level - 1];
  }

  [[nodiscard]] bool out_of_time() const {
    return clock_.control().stop.stop_requested() || clock_.left() <= std::chrono::nanoseconds(0);
  }

  void report(std::size_t finished) {
    clock_.report({.stage = "sub-graphs", .done = finished / (search_.peaks + 1), .total = to_solve_.size()});
  }

  /// The ways of the solved classes, from all peak budgets.
  void collect() {
    for (const std::uint32_t c : to_solve_) {
      const std::uint32_t i = classes_.representative[c];
      std::vector<sub_graph_way>& ways = out_.ways[i];
      ways.push_back(runs_[i].keep_everything());
      bool whole = !cut_short_;
      for (way_finding& f : found_[c]) {
        out_.solves += f.solves;
        out_.proven += f.proven;
        out_.work += f.work;
        whole = whole && f.whole;
        for (way_finding::answer& a : f.answers) ways.push_back(std::move(a.way));
      }
      out_.found += ways.size();
      keep_pareto_optimal(ways, runs_[i]);
      thin_out(ways, std::max<std::size_t>(search_.max_ways, 2));
      out_.kept += ways.size();
      out_.cut_short += whole ? 0U : 1U;
      if (search_.cache && whole) search_.cache->add(sub_graphs_[i], settings(), ways);
    }
  }

  std::span<const sub_graph> sub_graphs_;
  const way_search& search_;
  const Solvers& solvers_;
  run_clock& clock_;
  sub_graph_classes classes_;
  std::vector<sub_graph_runs> runs_;
  std::vector<std::vector<way_finding>> found_;  // the findings of each class that is solved, by peak budget
  std::vector<std::uint32_t> to_solve_;          // classes
  std::size_t operations_ = 0;                   // number of operations of the representatives of these
  std::atomic<bool> cut_short_{false};
  way_table out_{};
};

}  // namespace finding_ways

/// The findings of a piece of `find_ways`, in another process.
template <sub_solver_set Solvers>
[[nodiscard]] way_finding find_way_elsewhere(const way_question& q, const Solvers& solvers, const run_control& run) {
  way_search search;
  search.peaks = q.peaks;
  search.max_budgets = q.max_budgets;
  search.moves = q.moves;
  const sub_graph_runs runs(q.graph);
  return finding_ways::staircase(runs, 0, search, solvers, run).climb_down(q.level, q.before);
}

/// Pareto-optimal ways to run each of `sub_graphs`: keeping everything, and for each of a few peak budgets the fastest
/// ways for ever smaller save budgets, each by the thorough solver (if that ends far from its bound, also from the
/// tight solver's answer) on the sub-graph as a problem of its own. \cite zhao2023rockmate \cite gusak2025hiremate
///
/// Sub-graphs that are equal up to renaming and times are solved once, by the crew or on the threads of `clock`; the
/// answer is the same for any of them. Limits are those of `clock`: a peak budget gets an equal share of the work that
/// is left, a sub-graph one by its operations, a save budget an equal share of what its sub-graph has left, and at most
/// `moves`. A sub-graph whose work is spent has fewer ways. Polls before each problem; the sub-solvers keep the time
/// limit and the stop token themselves.
template <sub_solver_set Solvers>
[[nodiscard]] way_table find_ways(std::span<const sub_graph> sub_graphs, const way_search& search,
                                  const Solvers& solvers, run_clock& clock) {
  return finding_ways::finder<Solvers>(sub_graphs, search, solvers, clock).run();
}

}  // namespace REMAT_NAMESPACE::detail
