// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/automatic.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/detail/foreign_call.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/method/checkmate.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/detail/cheap_start.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/impl/race.hpp"
#include "remat/method/impl/refinement_steps.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/pofo.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/twremat.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/refine/detail/window_annealing.hpp"
#include "remat/refine/refine.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/treewidth/decompose.hpp"

namespace REMAT_NAMESPACE {
namespace detail::automatic_solve {

/// One solve of `automatic`, in pieces: `open`, then `go_on`, each within the limits of a clock, then `finish`. The
/// first piece that runs out of memory ends the solve.
class portfolio {
 public:
  /// `options` must outlive the object; their limits are not used. `cache`: shared by solves of one graph.
  /// `backend`: for integer programs; the library's own branch and bound if there is none.
  portfolio(const problem& p, const automatic_options& options, std::shared_ptr<way_cache> cache,
            std::optional<mip_backend_ref> backend)
      : problem_(p),
        gap_(options.gap),
        extra_solvers_(options.extra_solvers),
        cache_(std::move(cache)),
        backend_(backend) {
    require_valid_options(automatic_solver::name, options);
    require_no_link(p, automatic_solver::name);
    for (const automatic_part& part : extra_solvers_)
      if (!part.solve) throw bad_argument("auto: the part \"" + part.name + "\" has no solve");
  }
  portfolio(const portfolio&) = delete;  // callbacks refer to it
  portfolio& operator=(const portfolio&) = delete;

  /// The failures of the user's parts and of the backend, for the message; empty without any.
  [[nodiscard]] const std::string& failures() const noexcept { return failures_; }

  /// The best schedule so far, and the bound.
  [[nodiscard]] const solution& best() const noexcept { return best_; }

  /// True if no further work changes the answer.
  [[nodiscard]] bool is_done() const noexcept {
    return out_of_memory_ || best_.status == solve_status::infeasible || best_.is_within(gap_);
  }

  /// Takes a schedule that another solve has found, for a budget of at most this one. `by`: who found it.
  void take_schedule(const schedule& plan, const std::string& by) {
    if (accept(problem_, best_, plan, by)) starts_.push_back(plan);
  }

  /// Takes a bound that is proven for at least this budget.
  void take_proven(double lower_bound) {
    best_.lower_bound = std::max(best_.lower_bound, lower_bound);
    if (!steps_) return;  // the problem takes it after its own proof
    steps_->take_proven(lower_bound);
    problem_ = problem_.with_known_bound(best_.lower_bound);
  }

  /// The bound, the parts that end by themselves, and a first refinement.
  void open(run_clock& clock) {
    run_piece(clock, [&] { run_first_parts(); });
  }

  /// The other parts, which take what they get.
  void go_on(run_clock& clock) {
    run_piece(clock, [&] { run_last_parts(); });
  }

  /// The answer. `clock`: of the whole solve.
  solution finish(const run_clock& clock) {
    try {
      if (out_of_memory_) throw std::bad_alloc();  // which leaves if there is no schedule
      if (!best_.plan && stopped_ != stop_reason::none) find_late_plan();
      best_.statistics.own.set("parts", std::move(parts_));
      conclude(problem_, best_, clock, stopped_);
      if (!failures_.empty()) best_.message += (best_.message.empty() ? "" : "; ") + failures_;
    } catch (const std::bad_alloc&) {
      conclude_out_of_memory(best_, clock);
    }
    return std::move(best_);
  }

 private:
  template <class Piece>
  void run_piece(run_clock& clock, Piece&& piece) {
    if (out_of_memory_) return;
    clock_ = &clock;
    clock.watch(best_.time, best_.lower_bound);
    try {
      piece();
    } catch (const std::bad_alloc&) {
      out_of_memory_ = true;
    }
  }

  /// The end of a solve that was cut off without a schedule: what takes no time to speak of.
  void find_late_plan() {
    take_cheap_start(problem_, best_, automatic_solver::name, {}, stopped_);
    if (best_.plan || best_.status == solve_status::infeasible || problem_.graph().num_operations > huge_graph) return;
    const double known = std::max(best_.lower_bound, problem_.graph().needed_time);
    solution s = chen_sqrt(problem_.with_known_bound(known));
    if (s.plan) accept(problem_, best_, std::move(*s.plan), by_part(automatic_solver::name, s.by));
  }

  /// The closed form of a chain, before anything that may be cut off.
  void begin_with_closed_form() {
    const run_clock own({});
    if (!take_closed_form(problem_, best_, by_part(automatic_solver::name, revolve_solver::name))) return;
    solution s = best_;
    s.statistics.seconds = own.seconds();
    record(revolve_solver::name, s);
    starts_.push_back(*best_.plan);
  }

  void run_first_parts() {
    begin_with_closed_form();
    stopped_ = clock_->poll();
    // Each part has a share of what the parts before it left of the limits; most end long before.
    if (stopped_ != stop_reason::none || prove(problem_, best_, clock_->limits(0.06))) return;
    problem_ = problem_.with_known_bound(best_.lower_bound);
    run_part(0.02, no_remat);
    // It ends early but on large graphs and under tight budgets. Half of it is not enough for a schedule there.
    run_part(best_.plan ? 0.25 : 0.5, evict);
    const bool has_plan = best_.plan.has_value();
    if (!has_plan) find_any_plan();
    refining_.gap = gap_;
    steps_.emplace(problem_, refining_);
    add_parts(steps_->parts(), !has_plan);
    // On large graphs, holding on to what the bound's moment keeps gains most, and each eviction takes long.
    refine_for(problem_.graph().num_operations > refined_solver::large_step ? 0.6 : 0.15, [&](run_clock& clock) {
      steps_->open(clock);
      solution found = steps_->best();
      found.statistics.seconds = clock.seconds();
      found.statistics.work = clock.work_done();
      record(refined_solver::name, found);
    });
  }

  /// The parts that end by themselves, until one has a schedule. If their shares were too small, as on a machine with
  /// much else to do, the likeliest ones get more.
  void find_any_plan() {
    run_part(0.07, twremat);
    run_part(0.03, no_remat, {.reorder = true});
    run_part(0.02, chen_greedy);
    run_part(0.02, chen_sqrt);
    run_part(0.02, revolve);
    if (!best_.plan) run_part(0.4, evict);
    if (!best_.plan) run_part(0.4, twremat);
  }

  void run_last_parts() {
    if (!steps_) return;
    refine_for(1, [&](run_clock& clock) { stopped_ = steps_->go_on(clock, clock_); });
    if (stopped_ == stop_reason::none) stopped_ = clock_->poll();
  }

  /// The parts that race with those of `refined`. `short_parts_ran`: those of `find_any_plan` have had their turn.
  void add_parts(race& parts, bool short_parts_ran) {
    parts.on_slice = [this](std::string_view part, const solution& s) { record(part, s); };
    const bool is_large = problem_.graph().num_operations >= large_graph;
    const auto useful = [this](const race_state& now) { return !is_left_to_refinement(now.best); };
    if (!short_parts_ran) add_short_parts(parts, useful);
    if (!is_large) {
      rotor_options on_chain;
      on_chain.retain_rounds = 3;
      parts.add({.name = rotor_solver::name,
                 .weight = 0.5,
                 .first_share = 0.1,
                 .run = by_solver(rotor, on_chain),
                 .is_useful = useful});
      rockmate_options with_ways;
      with_ways.retain_rounds = 3;
      with_ways.cache = cache_;
      parts.add({.name = rockmate_solver::name,
                 .first_share = 0.15,
                 .shares = 1,
                 .run = by_solver(rockmate, with_ways),
                 .is_useful = useful});
    }
    hiremate_options groups;
    groups.cache = cache_;
    if (!backend_) groups.max_columns = 300;  // for the library's own branch and bound
    // Refinement makes few moves on a large graph: there, the chains of a hierarchy get most of the time, once.
    parts.add({.name = "hiremate",
               .first_share = problem_.graph().num_operations >= huge_graph ? 0.8 : 0.1,
               .shares = 1,
               .run = by_solver(
                   [this](const problem& p, const hiremate_options& options) {
                     return backend_ ? solve_hiremate(*backend_, p, options)
                                     : hiremate_with(branch_and_bound)(p, options);
                   },
                   groups),
               .is_useful = useful});
    if (backend_ && problem_.graph().num_operations <= most_for_checkmate)
      parts.add({.name = "checkmate",
                 .run = by_solver(
                     [this](const problem& p, const checkmate_options& options) {
                       return checkmate_search::solve(*backend_, p, options);
                     },
                     checkmate_options{}),
                 .is_useful = useful});
    for (const automatic_part& part : extra_solvers_)
      parts.add({.name = part.name,
                 .weight = 0.5,
                 .first_share = 0.05,
                 .runs_alone = true,
                 .run = [this, &part](const race_state& now, run_clock& clock) {
                   return run_extra(now.instance, part, clock);
                 }});
  }

  /// The parts of `find_any_plan`. An easy graph does not wait for them: `evict` and refinement solve it.
  void add_short_parts(race& parts, const std::function<bool(const race_state&)>& useful) {
    no_remat_options reordered;
    reordered.reorder = true;
    parts.add({.name = "no_remat in another order",
               .weight = 0.5,
               .run = by_solver(no_remat, reordered),
               .is_useful = [useful](const race_state& now) {
                 // A bound that is higher proves that there is no such schedule.
                 return useful(now) && now.best.lower_bound <= (1 + at_bound) * now.instance.graph().needed_time;
               }});
    const auto add = [&](const auto& solver, double first_share) {
      using solver_type = std::decay_t<decltype(solver)>;
      parts.add({.name = solver_type::name,
                 .weight = 0.5,
                 .first_share = first_share,
                 .run = by_solver(solver, typename solver_type::options_type{}),
                 .is_useful = useful});
    };
    add(twremat, 0.05);
    add(chen_greedy, 0);
    add(chen_sqrt, 0);
    add(revolve, 0);
  }

  /// What a solver has found in the slices so far, refined for itself.
  struct lineage {
    std::optional<schedule> best{};
    double time = std::numeric_limits<double>::infinity();
    std::string by{};
    std::uint64_t refinements = 0;
    bool has_ended = false;  // the solver; refinement may go on
  };

  /// Slices of a solver. A slice that cuts it off is followed by a longer one, which begins anew. Where the gap is
  /// wide, half of a slice refines what the solver has found: the best schedule of all often descends from one that was
  /// not.
  template <class Solver, class Options>
  static std::function<race_slice(const race_state&, run_clock&)> by_solver(Solver solver, Options options) {
    return [solver, options, own = std::make_shared<lineage>()](const race_state& now, run_clock& clock) {
      const bool refines = clock.control().is_limited() && !now.best.is_within(near_bound);
      race_slice slice;
      if (!own->has_ended) {
        run_clock part = clock.part(refines ? 0.5 : 1);
        Options solving = options;
        solving.run = part.control();
        slice.found = solve_within_memory(part, [&] { return solver(now.instance, solving); });
        part.work(slice.found.statistics.work);
        own->has_ended = !may_be_cut_off(part);
        if (slice.found.plan && slice.found.time < own->time) {
          own->best = slice.found.plan;
          own->time = slice.found.time;
          own->by = slice.found.by;
        }
      }
      if (refines && own->best) refine_alone(*own, now, clock, slice.found);
      slice.ended = own->has_ended && !(refines && own->best);
      return slice;
    };
  }

  static void refine_alone(lineage& own, const race_state& now, run_clock& clock, solution& found) {
    if (clock.should_stop()) return;
    refine_options refining;
    refining.lower_bound = now.best.lower_bound;
    refining.gap = 0;  // what it finds is a start for others
    refining.run = clock.limits();
    refining.run.on_progress = clock.control().on_progress;
    refining.run.seed += own.refinements++;
    refine_result better = refine(now.instance, std::span(&*own.best, 1), refining);
    clock.work(better.moves * work_of::move);
    if (better.out_of_memory) clock.note_out_of_memory();
    if (better.time >= own.time) return;
    const check_report report = check(now.instance, better.plan);
    own.best = better.plan;
    own.time = report.time;
    keep_if_better(found, std::move(better.plan), report, own.by + "/search");
  }

  static constexpr double at_bound = 0.0002;                // a gap at which another part can hardly be better
  static constexpr double near_bound = 0.003;               // a gap that refinement closes by itself
  static constexpr std::uint32_t small_graph = 500;         // operations: chains take little time
  static constexpr std::uint32_t large_graph = 2000;        // operations: refinement makes few moves in a second
  static constexpr std::uint32_t huge_graph = 10000;        // operations: chains find more than refinement
  static constexpr std::uint32_t most_for_checkmate = 200;  // operations

  /// True: the best schedule meets the bound, or a limit is reached.
  [[nodiscard]] bool is_over() {
    if (best_.is_within(gap_)) return true;
    stopped_ = clock_->poll();
    return stopped_ != stop_reason::none;
  }

  /// True if the gap is small, chains would take a good part of the time, and refinement makes many moves in it.
  [[nodiscard]] bool is_left_to_refinement(const solution& best) const {
    const std::uint32_t n = problem_.graph().num_operations;
    return best.is_within(at_bound) || (n >= small_graph && n < large_graph && best.is_within(near_bound));
  }

  template <class Solver>
  void run_part(double share, const Solver& solver, typename Solver::options_type options = {}) {
    if (is_over()) return;
    solution s = solve_part(*clock_, share, solver, problem_, std::move(options));
    take_part(best_, s, [&] {
      record(Solver::name, s);
      take_bound(best_, s);
      if (s.plan) accept(problem_, best_, *s.plan, by_part(automatic_solver::name, s.by));
    });
    if (s.plan) starts_.push_back(std::move(*s.plan));
  }

  /// Takes the steps of `refined` on by `go`, with the schedules that other parts have found since the last time.
  template <class Go>
  void refine_for(double share, Go&& go) {
    if (is_over()) return;
    refinement_steps& steps = *steps_;
    run_clock part = clock_->part(share);
    part.watch(steps.best().time, steps.best().lower_bound);
    for (schedule& start : starts_) steps.add_start(std::move(start));
    starts_.clear();
    try {
      go(part);
    } catch (const std::bad_alloc&) {
      part.note_out_of_memory();
    }
    take_bound(best_, steps.best());
    if (steps.best().plan)
      accept(problem_, best_, *steps.best().plan, by_part(automatic_solver::name, steps.best().by));
  }

  /// Runs a part of the user's, once. Only its schedule counts.
  [[nodiscard]] race_slice run_extra(const problem& p, const automatic_part& part, run_clock& clock) {
    race_slice slice;
    solution s = solve_extra(p, part, clock);
    clock.work(std::min(s.statistics.work, clock.control().work_limit));
    if (s.out_of_memory) clock.note_out_of_memory();
    slice.ended = !may_be_cut_off(clock) || s.status == solve_status::error;
    slice.found.status = s.status == solve_status::error ? s.status : solve_status::feasible;
    slice.found.message = s.message;
    slice.found.statistics = s.statistics;
    if (!s.plan) return slice;
    const check_report report = check(p, *s.plan);
    if (!report.valid() && report.what != violation::over_budget)
      throw internal_error("auto: the part \"" + part.name + "\" made an invalid schedule: " + report.message());
    if (report.valid()) keep_if_better(slice.found, std::move(*s.plan), report, part.name);
    return slice;
  }

  /// The answer of a part of the user's; an `error` if it throws. What the progress callback throws is no failure of
  /// the part, and leaves the solve.
  [[nodiscard]] solution solve_extra(const problem& p, const automatic_part& part, const run_clock& clock) {
    foreign_call call;
    run_control control = clock.control();
    control.on_progress = call.watched(control.on_progress);
    solution answer;
    const std::optional<std::string> failure = call.run([&] { answer = part.solve(p, control); });
    if (!failure) return answer;
    add_failure("the part \"" + part.name + "\" failed: " + *failure);
    solution failed;
    failed.status = solve_status::error;
    failed.message = *failure;
    failed.statistics.seconds = clock.seconds();
    return failed;
  }

  /// Adds a failure to those that the message tells.
  void add_failure(const std::string& failure) { failures_ += (failures_.empty() ? "" : "; ") + failure; }

  /// What a part did.
  void record(std::string_view part, const solution& s) {
    figures own;
    own.set("part", part);
    own.set("status", to_string(s.status));
    own.set("time", s.time);
    own.set("by", s.by);
    own.set("seconds", s.statistics.seconds);
    own.set("work", s.statistics.work);
    if (s.status == solve_status::error) own.set("message", s.message);
    if (const auto* failure = s.statistics.own.find<std::string>("backend_failure"))
      if (!std::exchange(backend_failed_, true)) add_failure(*failure);
    own.set("figures", figures::group_list{s.statistics.own});
    parts_.push_back(std::move(own));
  }

  run_clock* clock_ = nullptr;  // of the piece that runs
  problem problem_;
  double gap_;
  const std::vector<automatic_part>& extra_solvers_;
  std::shared_ptr<way_cache> cache_;
  std::optional<mip_backend_ref> backend_;
  refined_options refining_;  // to which the steps refer
  std::optional<refinement_steps> steps_;
  solution best_;
  std::vector<schedule> starts_;
  figures::group_list parts_;
  std::string failures_;  // of the user's parts that threw, and of the backend
  stop_reason stopped_ = stop_reason::none;
  bool out_of_memory_ = false, backend_failed_ = false;
};

/// The solves of all budgets of one call of `frontier`.
class frontier_search {
 public:
  frontier_search(const problem& p, std::span<const std::int64_t> budgets, const automatic_options& options,
                  const run_control& run, std::optional<mip_backend_ref> backend)
      : clock_(run, automatic_solver::name), budgets_(budgets.begin(), budgets.end()) {
    std::sort(budgets_.begin(), budgets_.end());
    budgets_.erase(std::unique(budgets_.begin(), budgets_.end()), budgets_.end());
    const std::shared_ptr<way_cache> cache = make_way_cache();
    for (const std::int64_t budget : budgets_)
      solves_.push_back({std::make_unique<portfolio>(p.with_budget(budget), options, cache, backend)});
  }

  /// Returns the answers for the budgets, ascending, each once.
  std::vector<solution> run() {
    const std::size_t n = solves_.size();
    for (std::size_t left = n; left-- > 0;) take_on(left, 0.5 / static_cast<double>(left + 1), &portfolio::open);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    while (true) {
      std::erase_if(order, [&](std::size_t i) { return solves_[i].search->is_done(); });
      if (order.empty()) break;
      const auto next = std::min_element(order.begin(), order.end(),
                                         [&](std::size_t a, std::size_t b) { return gap_of(a) < gap_of(b); });
      take_on(*next, 1.0 / static_cast<double>(order.size()), &portfolio::go_on);
      order.erase(next);
    }
    std::vector<solution> answers;
    for (const budget_solve& solve : solves_) answers.push_back(finish(solve));
    return answers;
  }

  /// The budgets, ascending, each once.
  [[nodiscard]] const std::vector<std::int64_t>& budgets() const noexcept { return budgets_; }

 private:
  struct budget_solve {
    std::unique_ptr<portfolio> search;
    double seconds = 0;
    std::uint64_t work = 0;
  };

  [[nodiscard]] double gap_of(std::size_t i) const {
    const solution& s = solves_[i].search->best();
    return s.plan ? s.time / s.lower_bound : std::numeric_limits<double>::infinity();
  }

  /// Runs a piece of solve `i`, and hands what it finds to the others.
  void take_on(std::size_t i, double share, void (portfolio::*piece)(run_clock&)) {
    run_clock part = clock_.part(share);
    (*solves_[i].search.*piece)(part);
    solves_[i].seconds += part.seconds();
    solves_[i].work += part.work_done();
    const solution& now = solves_[i].search->best();
    if (now.plan)
      for (std::size_t j = i + 1; j < solves_.size(); ++j)
        if (const solution& other = solves_[j].search->best(); !other.plan || other.time > now.time)
          solves_[j].search->take_schedule(*now.plan, now.by);
    if (std::isfinite(now.lower_bound))
      for (std::size_t j = 0; j < i; ++j) solves_[j].search->take_proven(now.lower_bound);
  }

  /// The answer of a solve; one that says so if its memory ran out before it had a schedule.
  [[nodiscard]] solution finish(const budget_solve& solve) const {
    solution answer;
    try {
      answer = solve.search->finish(clock_);
    } catch (const std::bad_alloc&) {
      answer.out_of_memory = true;
      answer.message = "out of memory";
    }
    answer.statistics.seconds = solve.seconds;
    answer.statistics.work = solve.work;
    return answer;
  }

  run_clock clock_;
  std::vector<std::int64_t> budgets_;  // ascending, each once
  std::vector<budget_solve> solves_;   // of each
};

// The share of recomputation alone in what is left: most if its first parts end far from its own bound. Near the least
// memory the others need one long turn, and copies over a slow link do not make up for a poor start.
inline constexpr double share_after_good_start = 0.15, share_after_poor_start = 0.5, gap_of_good_start = 0.02;

inline constexpr std::uint32_t most_for_pofo = 500;  // operations: a tenth of usual limits is enough there

/// With a link: recomputation alone, by all parts; `pofo` on small graphs; then `offload` for the rest of the
/// limits.
[[nodiscard]] inline solution solve_with_link(std::optional<mip_backend_ref> backend, const problem& p,
                                              const automatic_options& options, run_clock& clock) {
  solution best;
  best.lower_bound = p.graph().needed_time;
  figures::group_list parts;
  std::string failures;
  const auto take = [&](const solution& s, const std::string& by) {
    if (const auto* list = s.statistics.own.find<figures::group_list>("parts"))
      parts.insert(parts.end(), list->begin(), list->end());
    if (s.plan) accept(p, best, *s.plan, by);
  };
  stop_reason stopped = stop_reason::none;
  try {
    if (!settled_by_listed_order(p, best, automatic_solver::name)) {
      run_clock first = clock.part(0.12, "recomputation alone");
      automatic_options recomputing = options;
      recomputing.gap = std::max(options.gap, 0.002);  // where copies help at all, they gain more
      portfolio all(p.without_link(), recomputing, make_way_cache(), backend);
      all.open(first);
      const bool is_poor = all.best().plan && !all.best().is_within(gap_of_good_start);
      run_clock alone = clock.part(is_poor ? share_after_poor_start : share_after_good_start, "recomputation alone");
      all.go_on(alone);
      solution s = all.finish(alone);
      failures = all.failures();
      take(s, s.by);
      offload_options copying;
      copying.gap = options.gap;
      if (s.plan) copying.starts.push_back(std::move(*s.plan));
      if (p.graph().num_operations <= most_for_pofo) {
        s = solve_part(clock, 0.1, pofo, p, {.gap = options.gap});
        take_bound(best, s);
        take(s, by_part(automatic_solver::name, s.by));
        if (s.plan) copying.starts.push_back(std::move(*s.plan));
      }
      if (best.status != solve_status::infeasible && !best.is_within(options.gap)) {
        s = solve_part(clock, 1, offload, p, copying);
        take_bound(best, s);
        if (s.status == solve_status::infeasible) best.status = s.status;
        take(s, by_part(automatic_solver::name, s.by));
      }
      stopped = clock.poll();
      best.statistics.own.set("parts", std::move(parts));
    }
    conclude(p, best, clock, stopped);
    if (!failures.empty()) best.message += (best.message.empty() ? "" : "; ") + failures;
  } catch (const std::bad_alloc&) {
    conclude_out_of_memory(best, clock);
  }
  return best;
}

REMAT_INLINE solution solve(std::optional<mip_backend_ref> backend, const problem& p,
                            const automatic_options& options) {
  run_clock clock(options.run, automatic_solver::name);
  if (p.link()) return solve_with_link(backend, p, options, clock);
  portfolio all(p, options, make_way_cache(), backend);
  all.open(clock);
  all.go_on(clock);
  return all.finish(clock);
}

REMAT_INLINE std::vector<solution> find_frontier(std::optional<mip_backend_ref> backend, const problem& p,
                                                 std::span<const std::int64_t> budgets, const run_control& run,
                                                 const automatic_options& solving) {
  if (p.link()) {
    run_clock clock(run, automatic_solver::name);
    std::vector<solution> answers;
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      run_clock part = clock.part(1.0 / static_cast<double>(budgets.size() - i));
      answers.push_back(solve_with_link(backend, p.with_budget(budgets[i]), solving, part));
    }
    return answers;
  }
  frontier_search search(p, budgets, solving, run, backend);
  const std::vector<solution> found = search.run();
  std::vector<solution> answers;
  for (const std::int64_t budget : budgets) {
    const auto at = std::lower_bound(search.budgets().begin(), search.budgets().end(), budget);
    answers.push_back(found[static_cast<std::size_t>(at - search.budgets().begin())]);
  }
  return answers;
}

}  // namespace detail::automatic_solve

REMAT_INLINE std::vector<piece_kind> solver_pieces(mip_backend_ref backend) {
  return {detail::portable_ways(), detail::portable_group_ways(backend), decompose_pieces(),
          refine_pieces(),         detail::portable_windows(),           offload_pieces()};
}
REMAT_INLINE std::vector<piece_kind> solver_pieces() { return solver_pieces(branch_and_bound); }

REMAT_INLINE solution automatic_solver::operator()(const problem& p, const automatic_options& options) const {
  return detail::automatic_solve::solve({}, p, options);
}

REMAT_INLINE std::vector<solution> frontier(const problem& p, std::span<const std::int64_t> budgets,
                                            const automatic_solver&, const run_control& run,
                                            const automatic_options& solving) {
  return detail::automatic_solve::find_frontier({}, p, budgets, run, solving);
}

}  // namespace REMAT_NAMESPACE
