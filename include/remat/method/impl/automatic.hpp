// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/automatic.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <numeric>

#include "remat/core/detail/foreign_call.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/within_memory.hpp"
#include "remat/core/error.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/detail/cheap_start.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/impl/offload_parts.hpp"
#include "remat/method/impl/refinement_steps.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/pofo.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/method/twremat.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/portfolio/detail/copy_parts.hpp"
#include "remat/portfolio/detail/driver.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/portfolio/detail/solver_part.hpp"
#include "remat/refine/detail/window_annealing.hpp"
#include "remat/refine/refine.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/run_to_end.hpp"
#include "remat/treewidth/decompose.hpp"

namespace REMAT_NAMESPACE {
namespace detail::automatic_solve {

/// Adds the failures of parts to the message.
inline void tell_failures(const std::string& failures, solution& answer) {
  if (!failures.empty()) answer.message += (answer.message.empty() ? "" : "; ") + failures;
}

/// One solve of `automatic`, in turns: `open`, then `go_on`, each within the limits of a clock, then `finish`. The
/// first turn that runs out of memory ends the solve.
class portfolio_solve {
 public:
  /// `options` must outlive the object; their limits are not used. `cache`: shared by solves of one graph.
  /// `backend`: for integer programs; the library's own branch and bound if there is none.
  portfolio_solve(const problem& p, const automatic_options& options, std::shared_ptr<way_cache> cache,
                  std::optional<mip_backend_ref> backend)
      : pool_(p),
        gap_(options.gap),
        extra_solvers_(options.extra_solvers),
        cache_(std::move(cache)),
        backend_(backend) {
    require_valid_options(automatic_solver::name, options);
    require_no_link(p, automatic_solver::name);
    for (const automatic_part& part : extra_solvers_)
      if (!part.solve) throw bad_argument("auto: the part \"" + part.name + "\" has no solve");
  }
  portfolio_solve(const portfolio_solve&) = delete;  // callbacks refer to it
  portfolio_solve& operator=(const portfolio_solve&) = delete;

  /// The failures of the user's parts and of the backend, for the message; empty without any.
  [[nodiscard]] const std::string& failures() const noexcept { return failures_; }

  /// The best schedule so far, and the bound. Its `by` does not yet say that `auto` ran the part.
  [[nodiscard]] const solution& best() const noexcept { return pool_.best(); }

  /// True if no further work changes the answer.
  [[nodiscard]] bool is_done() const noexcept {
    return out_of_memory_ || best().status == solve_status::infeasible || best().is_within(gap_);
  }

  /// Takes a schedule that another solve has found, for a budget of at most this one. `by`: who found it.
  void take_schedule(const schedule& plan, const std::string& by) { pool_.put(plan, by); }

  /// Takes a bound that is proven for at least this budget.
  void take_proven(double lower_bound) { pool_.put_bound(lower_bound); }

  /// The bound, the parts that end by themselves, and a first refinement.
  void open(run_clock& clock) {
    run_piece(clock, [&] { run_first_parts(clock); });
  }

  /// The other parts, which take what they get.
  void go_on(run_clock& clock) {
    run_piece(clock, [&] { run_last_parts(clock); });
  }

  /// The answer. `clock`: of the whole solve.
  solution finish(const run_clock& clock) {
    solution& answer = pool_.answer();
    const auto end = [&] {
      if (out_of_memory_) throw std::bad_alloc();  // the exception leaves if there is no schedule
      if (answer.plan)
        answer.by = by_part(automatic_solver::name, answer.by);
      else if (stopped_ != stop_reason::none)
        find_late_plan(answer);
      answer.statistics.own.set("parts", std::move(parts_));
      return stopped_;
    };
    run_to_end(pool_.instance(), answer, clock, end, [&] { tell_failures(failures_, answer); });
    return std::move(answer);
  }

 private:
  template <class Piece>
  void run_piece(run_clock& clock, Piece&& piece) {
    if (out_of_memory_) return;
    clock.watch(best().time, best().lower_bound);
    out_of_memory_ = !within_memory(piece);
  }

  /// The end of a solve that was cut off without a schedule: what takes no time to speak of.
  void find_late_plan(solution& answer) {
    const problem& p = pool_.instance();
    take_cheap_start(p, answer, automatic_solver::name, {}, stopped_);
    if (answer.plan || answer.status == solve_status::infeasible || size() > graph_sizes::late_chen) return;
    const double known = std::max(answer.lower_bound, p.graph().needed_time);
    solution s = chen_sqrt(p.with_known_bound(known));
    if (s.plan) accept(p, answer, std::move(*s.plan), by_part(automatic_solver::name, s.by));
  }

  /// The closed form of a chain, before anything that may be cut off.
  void begin_with_closed_form(run_clock& clock) {
    const run_clock own({});
    solution s;
    if (!take_closed_form(pool_.instance(), s, revolve_solver::name, &clock)) return;
    s.statistics.seconds = own.seconds();
    pool_.put(s);
    record(revolve_solver::name, s);
  }

  void run_first_parts(run_clock& clock) {
    begin_with_closed_form(clock);
    stopped_ = clock.poll();
    // Each part has a share of what the parts before it left of the limits; most end long before.
    if (stopped_ != stop_reason::none || pool_.prove(clock.limits(first_shares::bound))) return;
    run_part(clock, first_shares::listed_order, no_remat);
    run_part(clock, best().plan ? first_shares::eviction : first_shares::first_schedule, evict);
    const bool has_plan = best().plan.has_value();
    if (!has_plan) find_any_plan(clock);
    refining_.gap = gap_;
    steps_.emplace(pool_, refining_);
    add_parts(steps_->parts(), !has_plan);
    refine_for(clock, opens_long() ? first_shares::long_refinement : first_shares::refinement, [&](run_clock& own) {
      steps_->open(own);
      solution found = best();
      found.statistics.seconds = own.seconds();
      found.statistics.work = own.work_done();
      record(refined_solver::name, found);
    });
  }

  /// Returns true if the opening of `refined` finds more than what races after it. On large graphs, holding on to what
  /// the bound's moment keeps gains most, and each eviction takes long; from some size on, and far from the bound, the
  /// first annealing is worth more than the first slices of the others (docs/tried.md).
  [[nodiscard]] bool opens_long() const {
    const bool is_far = size() > graph_sizes::exact && best().plan && !best().is_within(part_gaps::near);
    return size() > graph_sizes::quick_eviction || is_far;
  }

  /// The parts that end by themselves, until one has a schedule. If none has, the likeliest ones go on: `evict` under
  /// random preferences, and `twremat` with a larger share.
  void find_any_plan(run_clock& clock) {
    run_part(clock, first_shares::twremat, twremat);
    run_part(clock, first_shares::reordered, no_remat, {.reorder = true});
    run_part(clock, first_shares::closed_form, chen_greedy);
    run_part(clock, first_shares::closed_form, chen_sqrt);
    run_part(clock, first_shares::closed_form, revolve);
    if (!best().plan) evict_at_random(clock);
    if (!best().plan) run_part(clock, first_shares::second_try, twremat);
  }

  /// Tries of `evict` with other random numbers each, until one has a schedule: one try costs little, and whether it
  /// finds one of a tight budget depends on these numbers.
  void evict_at_random(run_clock& clock) {
    constexpr std::uint64_t most_tries = 16;
    run_clock all = clock.part(first_shares::second_try, evict_solver::name);
    for (std::uint64_t i = 0; i < most_tries && !best().plan && !all.should_stop(); ++i) {
      evict_options trying;
      trying.random_passes = 1;  // other orders, too
      solution s = solve_part(all, 1, evict, pool_.instance(), std::move(trying), i);
      pool_.put(s);
      record(evict_solver::name, s);
    }
  }

  void run_last_parts(run_clock& clock) {
    if (!steps_) return;
    refine_for(clock, 1, [&](run_clock& own) { stopped_ = steps_->go_on(own, &clock); });
    if (stopped_ == stop_reason::none) stopped_ = clock.poll();
  }

  /// The parts that race with those of `refined`. `short_parts_ran`: those of `find_any_plan` have had their turn.
  void add_parts(driver& parts, bool short_parts_ran) {
    parts.on_slice = [this](std::string_view part, const solution& s) { record(part, s); };
    const auto useful = [n = size()](const pool_view& now) { return !is_left_to_refinement(n, now.best); };
    const auto add = [&](std::string_view name, double weight, double first_share, std::uint32_t shares, auto run) {
      portfolio_part part;
      part.name = name;
      part.weight = weight;
      part.first_share = first_share;
      part.shares = shares;
      part.run = std::move(run);
      part.is_useful = useful;
      parts.add(std::move(part));
    };
    if (!short_parts_ran) add_short_parts(parts, add);
    if (size() < graph_sizes::chains) {
      rotor_options on_chain;
      on_chain.retain_rounds = 3;
      add(rotor_solver::name, 0.5, race_shares::rotor, 0, slices_of(rotor, on_chain));
      rockmate_options with_ways;
      with_ways.retain_rounds = 3;
      with_ways.cache = cache_;
      add(rockmate_solver::name, 1, race_shares::rockmate, 1, slices_of(rockmate, with_ways));
    }
    hiremate_options groups;
    groups.cache = cache_;
    if (!backend_) groups.max_columns = 300;  // the limit for the library's own branch and bound
    const auto by_groups = [backend = backend_](const problem& p, const hiremate_options& options) {
      return backend ? solve_hiremate(*backend, p, options) : hiremate_with(branch_and_bound)(p, options);
    };
    // Refinement makes few moves on a large graph: there, the chains of a hierarchy get most of the time, once.
    const double share = size() >= graph_sizes::refinement ? race_shares::huge_hiremate
                         : size() >= graph_sizes::chains   ? race_shares::large_hiremate
                                                           : race_shares::hiremate;
    add("hiremate", 1, share, 1, slices_of(by_groups, groups));
    for (const automatic_part& part : extra_solvers_) parts.add(part_of(part));
  }

  /// The parts of `find_any_plan`. An easy graph does not wait for them: `evict` and refinement solve it.
  template <class Add>
  void add_short_parts(driver& parts, const Add& add) {
    no_remat_options reordered;
    reordered.reorder = true;
    portfolio_part in_another_order;
    in_another_order.name = "no_remat in another order";
    in_another_order.weight = 0.5;
    in_another_order.run = slices_of(no_remat, reordered);
    in_another_order.is_useful = [n = size()](const pool_view& now) {
      // A bound that is higher proves that there is no such schedule.
      return !is_left_to_refinement(n, now.best) &&
             now.best.lower_bound <= (1 + part_gaps::solvers) * now.instance.graph().needed_time;
    };
    parts.add(std::move(in_another_order));
    add(twremat_solver::name, 0.5, race_shares::twremat, 0, slices_of(twremat, twremat_options{}));
    add(chen_greedy_solver::name, 0.5, 0, 0, slices_of(chen_greedy, chen_greedy_options{}));
    add(chen_sqrt_solver::name, 0.5, 0, 0, slices_of(chen_sqrt, chen_sqrt_options{}));
    add(revolve_solver::name, 0.5, 0, 0, slices_of(revolve, revolve_options{}));
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return pool_.instance().graph().num_operations; }

  /// True if the gap is small, chains would take a good part of the time, and refinement makes many moves in it.
  [[nodiscard]] static bool is_left_to_refinement(std::uint32_t n, const solution& best) {
    return best.is_within(part_gaps::solvers) ||
           (n >= graph_sizes::short_chains && n < graph_sizes::chains && best.is_within(part_gaps::left_to_search));
  }

  /// True: the best schedule meets the bound, or a limit is reached.
  [[nodiscard]] bool is_over(const run_clock& clock) {
    if (best().is_within(gap_)) return true;
    stopped_ = clock.poll();
    return stopped_ != stop_reason::none;
  }

  template <class Solver>
  void run_part(run_clock& clock, double share, const Solver& solver, typename Solver::options_type options = {}) {
    if (is_over(clock)) return;
    solution s = solve_part(clock, share, solver, pool_.instance(), std::move(options));
    pool_.put(s);
    record(Solver::name, s);
  }

  /// Takes the steps of `refined` on by `go`. If memory runs out in them, what the pool holds stays.
  template <class Go>
  void refine_for(run_clock& clock, double share, Go&& go) {
    if (is_over(clock)) return;
    run_clock own = clock.part(share);
    if (!within_memory([&] { go(own); })) own.note_out_of_memory();
  }

  /// A solver of the user's as a part, which runs once and alone. Only its schedule counts.
  [[nodiscard]] portfolio_part part_of(const automatic_part& part) {
    portfolio_part own;
    own.name = part.name;
    own.weight = 0.5;
    own.first_share = race_shares::users_solver;
    own.runs_alone = true;
    own.run = [this, &part](const pool_view& now, run_clock& clock) { return run_extra(now.instance, part, clock); };
    return own;
  }

  [[nodiscard]] part_slice run_extra(const problem& p, const automatic_part& part, run_clock& clock) {
    part_slice slice;
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

  /// The answer of a part of the user's; an `error` if it throws. An exception of the progress callback is no failure
  /// of the part, and leaves the solve.
  [[nodiscard]] solution solve_extra(const problem& p, const automatic_part& part, run_clock& clock) {
    foreign_call call;
    const run_clock own = clock.part_on_other_problem(1);  // its word counts for nothing: only its schedule does
    run_control control = own.control();
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

  /// Records the figures of a part.
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

  pool pool_;
  double gap_;
  const std::vector<automatic_part>& extra_solvers_;
  std::shared_ptr<way_cache> cache_;
  std::optional<mip_backend_ref> backend_;
  refined_options refining_;  // the options to which the steps refer
  std::optional<refinement_steps> steps_;
  figures::group_list parts_;
  std::string failures_;  // the failures of the user's parts that threw, and of the backend
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
      solves_.push_back({std::make_unique<portfolio_solve>(p.with_budget(budget), options, cache, backend)});
  }

  /// Returns the answers for the budgets, ascending, each once.
  std::vector<solution> run() {
    const std::size_t n = solves_.size();
    for (std::size_t left = n; left-- > 0;) take_on(left, 0.5 / static_cast<double>(left + 1), &portfolio_solve::open);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    while (true) {
      std::erase_if(order, [&](std::size_t i) { return solves_[i].search->is_done(); });
      if (order.empty()) break;
      const auto next = std::min_element(order.begin(), order.end(),
                                         [&](std::size_t a, std::size_t b) { return gap_of(a) < gap_of(b); });
      take_on(*next, 1.0 / static_cast<double>(order.size()), &portfolio_solve::go_on);
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
    std::unique_ptr<portfolio_solve> search;
    double seconds = 0;
    std::uint64_t work = 0;
  };

  [[nodiscard]] double gap_of(std::size_t i) const {
    const solution& s = solves_[i].search->best();
    return s.plan ? s.time / s.lower_bound : std::numeric_limits<double>::infinity();
  }

  /// Runs a piece of solve `i`, and hands what it finds to the others.
  void take_on(std::size_t i, double share, void (portfolio_solve::*piece)(run_clock&)) {
    run_clock part = clock_.part_on_other_problem(share);
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
    if (!within_memory([&] { answer = solve.search->finish(clock_); })) {
      answer.out_of_memory = true;
      answer.message = "out of memory";
    }
    answer.statistics.seconds = solve.seconds;
    answer.statistics.work = solve.work;
    return answer;
  }

  run_clock clock_;
  std::vector<std::int64_t> budgets_;  // ascending, each once
  std::vector<budget_solve> solves_;   // one solve for each budget
};

/// One solve of a problem with a link: the turns of recomputation alone, by all parts, of `pofo` on small graphs, and
/// of the parts of `offload`.
class link_solve {
 public:
  /// All arguments must outlive the object.
  link_solve(std::optional<mip_backend_ref> backend, const problem& p, const automatic_options& options)
      : backend_(backend),
        p_(p),
        options_(options),
        pool_(p),
        setting_{p, whole, options.gap, copy_states(copying_.refined_candidates), starts_},
        turns_(pool_, options.gap) {
    turns_.add(
        turn("recomputation alone", 1, [this](run_clock& clock, solution& best) { recompute_alone(clock, best); }));
    if (p.graph().num_operations <= graph_sizes::pofo)
      turns_.add(turn(pofo_solver::name, link_shares::pofo,
                      [this](run_clock& clock, solution& best) { solve_by_pofo(clock, best); }));
    offload_solve::add_parts(turns_, setting_, {copying_.budgets, copying_.refined_candidates});
  }
  link_solve(const link_solve&) = delete;  // the parts refer to it
  link_solve& operator=(const link_solve&) = delete;

  /// Takes all turns, within the limits of `control`, and returns the answer.
  solution run(const run_control& control) {
    solution& best = pool_.answer();
    solve_by_own_method(p_, best, automatic_solver::name, control, improvement{}, {.may_copy = true},
                        [&](run_clock& clock, solution&) { return turns_.run_in_turn(clock); });
    const auto tell = [&] {
      best.statistics.own.set("parts", std::move(parts_));
      tell_failures(failures_, best);
    };
    if (!within_memory(tell)) best.out_of_memory = true;  // the schedule stays
    return std::move(best);
  }

 private:
  static constexpr std::string_view whole = "auto/offload";

  void recompute_alone(run_clock& clock, solution& best) {
    run_clock first = clock.part_on_other_problem(link_shares::opening_alone);
    automatic_options recomputing = options_;
    recomputing.gap = std::max(options_.gap, 0.002);  // where copies help at all, they gain more
    portfolio_solve all(p_.without_link(), recomputing, make_way_cache(), backend_);
    all.open(first);
    const bool is_poor = all.best().plan && !all.best().is_within(link_shares::good_start);
    run_clock others =
        clock.part_on_other_problem(is_poor ? link_shares::alone_poor_start : link_shares::alone_good_start);
    all.go_on(others);
    solution s = all.finish(others);
    failures_ = all.failures();
    if (const auto* list = s.statistics.own.find<figures::group_list>("parts")) parts_ = *list;
    take_start(s, s.by, best);
  }

  void solve_by_pofo(run_clock& clock, solution& best) {
    solution s = solve_part(clock, 1, pofo, p_, {.gap = options_.gap});
    take_bound(best, s);
    take_start(s, by_part(automatic_solver::name, s.by), best);
  }

  /// Takes a schedule that `by` has found, which is also a start for the parts of `offload`.
  void take_start(solution& s, const std::string& by, solution& best) {
    if (!s.plan) return;
    accept(p_, best, *s.plan, by);
    starts_.push_back(std::move(*s.plan));
  }

  std::optional<mip_backend_ref> backend_;
  const problem& p_;
  const automatic_options& options_;
  const offload_options copying_{};
  std::vector<schedule> starts_;
  pool pool_;
  copy_setting setting_;
  driver turns_;
  figures::group_list parts_;
  std::string failures_;
};

REMAT_INLINE solution solve(std::optional<mip_backend_ref> backend, const problem& p,
                            const automatic_options& options) {
  if (p.link()) return link_solve(backend, p, options).run(options.run);
  run_clock clock(options.run, automatic_solver::name);
  portfolio_solve all(p, options, make_way_cache(), backend);
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
      run_clock part = clock.part_on_other_problem(1.0 / static_cast<double>(budgets.size() - i));
      const problem q = p.with_budget(budgets[i]);
      answers.push_back(link_solve(backend, q, solving).run(part.control()));
      part.work(answers.back().statistics.work);
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
  return {detail::portable_ways(),
          detail::portable_group_ways(backend),
          decompose_pieces(),
          refine_pieces(),
          detail::annealing_population<detail::window_searches>::pieces(),
          offload_pieces()};
}
REMAT_INLINE std::vector<piece_kind> solver_pieces() { return solver_pieces(branch_and_bound); }

REMAT_INLINE solution automatic_solver::operator()(const problem& p, const automatic_options& options) const {
  return detail::automatic_solve::solve({}, p, options);
}

REMAT_INLINE chain_solution automatic_solver::operator()(const chain_problem& p, const automatic_options& options,
                                                         rotor_options on_chains) const {
  on_chains.begin_with_revolve = true;
  on_chains.run = options.run;
  return rotor(p, on_chains);
}

REMAT_INLINE std::vector<solution> frontier(const problem& p, std::span<const std::int64_t> budgets,
                                            const automatic_solver&, const run_control& run,
                                            const automatic_options& solving) {
  return detail::automatic_solve::find_frontier({}, p, budgets, run, solving);
}

}  // namespace REMAT_NAMESPACE
