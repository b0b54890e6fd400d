// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/offload.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/offload.hpp"
#include "remat/core/crew.hpp"
#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/object_pool.hpp"
#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/error.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/refined.hpp"
#include "remat/problem/detail/problem_bytes.hpp"
#include "remat/refine/detail/copy_operations.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/refine/detail/copy_refinement.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/detail/schedule_bytes.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::offload_solve {

/// The name of the kind of the pieces.
inline constexpr std::string_view search_kind = "copies";

/// When a search may end.
struct search_goal {
  double lower_bound = 0, gap = 0;
};

/// What a search has found in a cycle.
struct cycle_answer {
  copy_refinement::state state{};  // of the best schedule
  schedule plan{};
  double time = std::numeric_limits<double>::infinity();  // of it; infinite: there is none
  std::uint64_t work = 0;
};

/// How much of the limits of a search is spent, from 0 to 1.
[[nodiscard]] inline double spent(const run_clock& own, std::uint64_t moves) {
  constexpr double moves_without_limit = 2000;
  const run_control& limits = own.control();
  const bool has_work = limits.work_limit != run_control::no_work_limit;
  const bool has_time = limits.time_limit != std::chrono::nanoseconds::max();
  double out = has_work || has_time ? 0 : static_cast<double>(moves) / moves_without_limit;
  if (has_work)
    out = static_cast<double>(own.work_done()) / static_cast<double>(std::max<std::uint64_t>(1, limits.work_limit));
  if (has_time)
    out = std::max(out, own.seconds() / std::max(1e-9, std::chrono::duration<double>(limits.time_limit).count()));
  return out;
}

/// One search in one cycle: the temperature falls to 0 while the limits are spent. It depends on nothing that the same
/// object did before.
[[nodiscard]] inline cycle_answer anneal(copy_refinement& search, const problem& p, copy_refinement::state from,
                                         double heat, const search_goal& goal, const run_control& limits) {
  run_clock own(limits);
  cycle_answer out;
  search.begin(limits.seed);
  search.planner.must_stop = [&own] { return own.should_stop(); };
  if (search.start(std::move(from))) {
    const double beyond = search.time() - p.graph().needed_time;
    const double scale = heat * beyond / static_cast<double>(1 + search.num_choices());
    for (std::uint64_t move = 0; !is_within_gap(search.best_time(), goal.lower_bound, goal.gap); ++move) {
      const double f = spent(own, move);
      if (f >= 1 || own.should_stop()) break;
      search.temperature = f > 0.9 ? 0 : scale * (1 - f) * (1 - f);
      own.work(search.size() * work_of::visit);
      search.random_move();
      own.report({.stage = "copies", .best_objective = search.best_time()});
    }
    out.state = search.best_state();
    out.plan = search.best();
    out.time = search.best_time();
  }
  search.planner.must_stop = nullptr;
  out.work = own.work_done();
  return out;
}

/// Objects for the searches that run at the same time.
class search_pool {
 public:
  explicit search_pool(const problem& p) : p_(p) {}
  /// `anneal` with one of the objects; may be called on any thread.
  [[nodiscard]] cycle_answer anneal(copy_refinement::state from, double heat, const search_goal& goal,
                                    const run_control& limits) {
    std::unique_ptr<copy_refinement> search = idle_.take([&] { return std::make_unique<copy_refinement>(p_); });
    cycle_answer answer = offload_solve::anneal(*search, p_, std::move(from), heat, goal, limits);
    idle_.give(std::move(search));
    return answer;
  }

 private:
  const problem& p_;
  object_pool<copy_refinement> idle_;
};

/// Appends a state.
inline void put(byte_writer& out, const copy_refinement::state& s) {
  out.put(s.computes);
  out.put(s.bytes_exponent);
  out.put(s.lead);
  out.put(s.factor);
}

/// Reads the state that `put` wrote.
[[nodiscard]] inline copy_refinement::state get_state(byte_reader& in) {
  copy_refinement::state s;
  in.get(s.computes);
  in.get(s.bytes_exponent);
  in.get(s.lead);
  in.get(s.factor);
  return s;
}

/// Appends an answer.
inline void put(byte_writer& out, const cycle_answer& answer) {
  put(out, answer.state);
  put(out, answer.plan);
  out.put(answer.time);
  out.put(answer.work);
}

/// Reads the answer that `put` wrote.
[[nodiscard]] inline cycle_answer get_answer(byte_reader& in) {
  cycle_answer answer;
  answer.state = get_state(in);
  answer.plan = get_schedule(in);
  in.get(answer.time);
  in.get(answer.work);
  return answer;
}

/// One call of `offload` on a problem with a link.
class copy_search {
 public:
  copy_search(const problem& p, const offload_options& options, run_clock& clock, solution& best)
      : p_(p), options_(options), clock_(clock), best_(best), planner_(p), pool_(p) {
    planner_.must_stop = [this] { return clock_.should_stop(); };
  }
  copy_search(const copy_search&) = delete;  // the planner refers to it
  copy_search& operator=(const copy_search&) = delete;

  stop_reason run() {
    try_all_copies();
    if (!prove_floor() && !is_over()) {
      take_starts();
      scan_budgets();
      if (!is_over()) scan_choices();
      refine_candidates();
      refine_copies();
    }
    return stopped_ == stop_reason::none ? clock_.poll() : stopped_;
  }

 private:
  /// A way to divide the work between recomputation and copies.
  struct candidate {
    std::unique_ptr<copy_operations> instance;              // its budget bounds the schedules without times of copies
    std::vector<schedule> starts;                           // of the instance
    copy_refinement::state state;                           // of the best schedule with copies
    double time = std::numeric_limits<double>::infinity();  // … and its time
    bool ended = false;                                     // refinement does no more for it
  };
  static constexpr double floor_share = 0.15, scan_share = 0.25, one_share = 0.25, refined_share = 0.4;
  static constexpr float before_all_others = 1000;  // factor of a tensor that leaves the device before others
  static constexpr std::string_view listed_order_name = "listed", start_name = "start";
  static constexpr std::size_t num_searches = 4;
  static constexpr std::uint32_t most_searched = 1U << 16;  // operations for more than one search
  static constexpr double heats[] = {0.2, 0.5, 0.1, 1.0};
  static constexpr double longer = 4;  // each cycle than the one before

  [[nodiscard]] bool is_over() {
    if (best_.status == solve_status::infeasible || best_.is_within(options_.gap)) return true;
    stopped_ = clock_.poll();
    return stopped_ != stop_reason::none;
  }

  [[nodiscard]] std::int64_t part_of_budget(double part) const {
    return static_cast<std::int64_t>(part * static_cast<double>(p_.budget()));
  }

  /// The bound, whose choice guides the search. True: no schedule is within the budgets.
  bool prove_floor() {
    floor_ = bound_of(p_, floor_share, floor_branch_nodes(p_));
    return take_floor(p_, floor_, clock_, best_);
  }
  [[nodiscard]] offload_bound_result bound_of(const problem& p, double share, std::uint32_t branch_nodes) {
    run_clock part = clock_.part(share, "bound");
    offload_bound_options proving;
    proving.branch_nodes = branch_nodes;
    proving.run = part.control();
    return offload_bound(p, proving);
  }

  /// A candidate whose instance is the problem under another budget, without copies.
  [[nodiscard]] candidate with_budget(std::int64_t budget) const {
    candidate c;
    const std::vector<std::uint8_t> none(p_.graph().num_tensors, 0);
    c.instance = std::make_unique<copy_operations>(p_.with_budget(budget), none, 0);
    return c;
  }

  /// No recomputation: the listed order, with copies of what does not fit.
  void try_all_copies() {
    candidate c = with_budget(p_.graph().baseline_peak);
    c.ended = true;
    try_schedule(c, listed_order(c.instance->instance), listed_order_name);
    keep(std::move(c));
  }

  /// The caller's schedules.
  void take_starts() {
    for (const schedule& s : options_.starts) {
      candidate c = with_budget(p_.budget());
      try_schedule(c, s, start_name);
      c.starts.push_back(schedule_computes(p_, computes_of(s)));
      keep(std::move(c));
    }
  }

  /// Recomputation for the budget itself, and for larger ones.
  void scan_budgets() {
    run_clock part = clock_.part(scan_share, evict_solver::name);
    const auto peak = static_cast<double>(p_.graph().baseline_peak), least = static_cast<double>(p_.budget());
    for (std::uint32_t i = 0; i < options_.budgets && !best_.is_within(options_.gap) && !part.should_stop(); ++i) {
      const double f = static_cast<double>(i) / options_.budgets;
      const double budget = least + std::max(0.0, peak - least) * f * f;
      run_eviction(with_budget(static_cast<std::int64_t>(budget)), part, {}, i == 0);
    }
  }

  /// What the bound's choice has on the host, for several problems that are somewhat harder.
  void scan_choices() {
    run_clock part = clock_.part(scan_share, evict_solver::name);
    std::vector<std::vector<tensor_id>> seen;
    for (const double room : {1.0, 0.97, 0.94, 0.9, 0.85, 0.8})
      for (const double speed : {1.0, 0.85, 0.7}) {
        if (best_.is_within(options_.gap) || part.should_stop()) return;
        host_link slower = *p_.link();
        slower.out *= speed;
        slower.in *= speed;
        const bool is_floor = room == 1.0 && speed == 1.0;
        offload_bound_result guide;
        if (!is_floor)
          guide = bound_of(p_.with_budget(part_of_budget(room)).with_link(slower, p_.host_budget()), 0.05, 0);
        const offload_bound_result& choice = is_floor ? floor_ : guide;
        if (choice.infeasible || choice.offloaded.empty() ||
            std::find(seen.begin(), seen.end(), choice.offloaded) != seen.end())
          continue;
        seen.push_back(choice.offloaded);
        for (const double budget : {1.0, 1.03, 1.07})
          for (const bool holds : {false, true}) {
            if (part.should_stop()) return;
            candidate c;
            std::vector<std::uint8_t> on_host(p_.graph().num_tensors, 0);
            c.state.factor.assign(p_.graph().num_tensors, 1.0F);
            for (const tensor_id t : choice.offloaded) {
              on_host[index(t)] = 1;
              c.state.factor[index(t)] = before_all_others;
            }
            c.instance = std::make_unique<copy_operations>(p_.with_budget(part_of_budget(budget)), on_host,
                                                           static_cast<std::uint32_t>(index(choice.moment)));
            run_eviction(std::move(c), part, holds ? choice.saved : std::vector<tensor_id>{}, false);
          }
      }
  }

  void run_eviction(candidate c, run_clock& part, std::vector<tensor_id> keep_resident, bool insist) {
    evict_options evicting;
    evicting.insist = insist;
    evicting.keep = std::move(keep_resident);
    solution s = solve_part(part, one_share, evict, c.instance->instance, std::move(evicting));
    if (!s.plan) return;
    try_schedule(c, *s.plan, evict_solver::name);
    c.starts.push_back(std::move(*s.plan));
    keep(std::move(c));
  }

  /// Places the copies of a candidate's schedule.
  void try_schedule(candidate& c, const schedule& plan, std::string_view by) {
    const std::vector<std::uint32_t> computes = c.instance->computes(plan);
    for (const double bytes_exponent : {0.0, 0.5}) {
      for (const double lead : {0.0, 2.0}) {
        if (clock_.should_stop()) return;
        clock_.work(computes.size() * work_of::visit);
        const double time = planner_.place(computes, {bytes_exponent, lead, c.state.factor}, 3, c.time);
        if (!(time < c.time)) continue;
        c.time = time;
        c.state.computes = planner_.computes();
        c.state.bytes_exponent = bytes_exponent;
        c.state.lead = lead;
        if (time < best_.time) accept(p_, best_, planner_.steps(), by_part(offload_solver::name, by));
      }
    }
    clock_.report({.stage = "copies"});
  }

  void keep(candidate c) {
    if (!std::isfinite(c.time)) return;
    candidates_.push_back(std::move(c));
    sort_candidates();
    if (candidates_.size() > options_.refined_candidates) candidates_.pop_back();
  }

  /// Refines recomputation in slices: of all candidates, then of the better half of those that can gain, and so on.
  void refine_candidates() {
    run_clock whole = clock_.part(refined_share, refined_solver::name);
    std::size_t width = candidates_.size();
    for (std::uint64_t round = 0; width > 0 && !is_over() && !whole.should_stop(); ++round) {
      std::vector<candidate*> open;
      for (candidate& c : candidates_)
        if (!c.ended && open.size() < width) open.push_back(&c);
      for (std::size_t i = 0; i < open.size() && !is_over() && !whole.should_stop(); ++i)
        refine_candidate(*open[i], whole, open.size() > 1 ? 0.4 / static_cast<double>(open.size() - i) : 1, round);
      sort_candidates();
      width = open.size() / 2;
    }
  }

  void refine_candidate(candidate& c, run_clock& whole, double share, std::uint64_t round) {
    refined_options refining;
    refining.starts = c.starts;
    run_clock part = whole.part(share, refined_solver::name);
    refining.run = part.limits();
    refining.run.seed += round;
    solution s = solve_within_memory(part, [&] { return refined(c.instance->instance, refining); });
    part.work(s.statistics.work);
    c.ended = !s.plan || s.status == solve_status::optimal || share == 1;
    if (!s.plan) return;
    try_schedule(c, *s.plan, refined_solver::name);
    c.starts.insert(c.starts.begin(), std::move(*s.plan));
    if (c.starts.size() > 4) c.starts.pop_back();
  }

  /// Refines recomputation and copies together (`copy_refinement`) with what is left of the limits: searches from the
  /// best candidates, of several temperatures, in cycles of which each is some times as long as the one before.
  void refine_copies() {
    if (candidates_.empty() || is_over()) return;
    const std::size_t count = p_.graph().num_operations > most_searched ? 1 : num_searches;
    for (std::size_t i = 0; i < count; ++i) states_.push_back(candidates_[i % candidates_.size()].state);
    candidates_.clear();
    double left = 1 + longer + longer * longer;
    std::uint64_t number = 0;
    for (double length = 1; left > 0 && !is_over(); length *= longer) {
      run_clock cycle = clock_.part(std::min(1.0, length / left), "copies");
      left -= length;
      const std::vector<cycle_answer> answers = run_cycle(cycle, number++);
      for (const cycle_answer& a : answers)
        if (a.time < best_.time) accept(p_, best_, a.plan, by_part(offload_solver::name, "copies"));
      exchange(answers);
    }
  }

  /// Lets each search anneal once, as a piece. A search depends on nothing that another one does.
  [[nodiscard]] std::vector<cycle_answer> run_cycle(run_clock& cycle, std::uint64_t number) {
    const std::size_t count = states_.size();
    const std::uint64_t work = share_of(cycle.work_left(), 1.0 / static_cast<double>(count));
    const auto heat = [](std::size_t i) { return heats[i % std::size(heats)]; };
    const search_goal goal{best_.lower_bound, options_.gap};
    std::vector<cycle_answer> answers(count);
    std::size_t begun = 0;
    piece_list pieces;
    pieces.count = count;
    pieces.size = [](std::size_t) { return 1.0; };
    pieces.limits = [&](std::size_t i, std::size_t members) {
      const std::size_t turns = (count - begun++ + members - 1) / members;
      run_control limits = cycle.limits(1.0 / static_cast<double>(turns));
      limits.work_limit = work;
      limits.seed = splitmix64(splitmix64(splitmix64(limits.seed) ^ number) ^ i);
      return limits;
    };
    pieces.run = [&](std::size_t i, const run_control& limits) {
      answers[i] = pool_.anneal(states_[i], heat(i), goal, limits);
    };
    pieces.kind = search_kind;
    pieces.shared = [&] {
      byte_writer out;
      put(out, p_);
      return out.take();
    };
    pieces.encode = [&](std::size_t i) {
      byte_writer out;
      put(out, states_[i]);
      out.put(heat(i));
      out.put(goal.lower_bound);
      out.put(goal.gap);
      return out.take();
    };
    pieces.take = [&](std::size_t i, std::span<const std::byte> bytes) {
      byte_reader in(bytes);
      answers[i] = get_answer(in);
      if (std::isfinite(answers[i].time) && !check(p_, answers[i].plan).valid())
        throw error("offload: another process returned a schedule that breaks the rules");
    };
    run_control control = clock_.control();
    if (control.on_progress) control.on_progress = [&](const progress& news) { cycle.report(news); };
    if (!is_worth_messages(cycle, work)) control.crew = nullptr;
    run_pieces(pieces, control);
    for (const cycle_answer& a : answers) cycle.work(a.work);
    return answers;
  }

  /// True if a search takes so long that it may be sent to another process. `work`: its share.
  [[nodiscard]] static bool is_worth_messages(const run_clock& cycle, std::uint64_t work) {
    constexpr std::uint64_t least_work = 10'000;  // a millisecond or more
    constexpr std::chrono::milliseconds least_time(20);
    return work != run_control::no_work_limit ? work >= least_work : cycle.left() >= least_time;
  }

  /// The worst search goes on from the best schedule, the others from their own best. One that was stopped before it
  /// had a schedule begins again.
  void exchange(const std::vector<cycle_answer>& answers) {
    const auto is_faster = [](const cycle_answer& a, const cycle_answer& b) { return a.time < b.time; };
    const auto worst = std::max_element(answers.begin(), answers.end(), is_faster);
    const auto best = std::min_element(answers.begin(), answers.end(), is_faster);
    for (auto answer = answers.begin(); answer != answers.end(); ++answer) {
      const cycle_answer& from = answer == worst ? *best : *answer;
      if (std::isfinite(from.time)) states_[static_cast<std::size_t>(answer - answers.begin())] = from.state;
    }
  }

  void sort_candidates() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const candidate& a, const candidate& b) { return a.time < b.time; });
  }

  const problem& p_;
  const offload_options& options_;
  run_clock& clock_;
  solution& best_;
  copy_planner planner_;
  offload_bound_result floor_;
  std::vector<candidate> candidates_;  // the fastest first
  search_pool pool_;
  std::vector<copy_refinement::state> states_;  // from which each search goes on
  stop_reason stopped_ = stop_reason::none;
};

inline void require_legal(const problem& p, const std::vector<schedule>& starts) {
  problem unlimited = p.with_budget(problem::unlimited);
  if (p.link()) unlimited = unlimited.with_link(*p.link());
  for (const schedule& s : starts)
    if (const check_report r = check(unlimited, s); !r.valid())
      throw bad_argument("offload: a schedule to start from is not usable: " + r.message());
}

}  // namespace detail::offload_solve

REMAT_INLINE piece_kind offload_pieces() {
  namespace own = detail::offload_solve;
  struct opened {
    explicit opened(problem q) : p(std::move(q)), pool(p) {}
    problem p;
    own::search_pool pool;
  };
  const auto open = [](std::span<const std::byte> shared) -> piece_kind::runner {
    detail::byte_reader in(shared);
    const auto all = std::make_shared<opened>(detail::get_problem(in));
    return [all](std::span<const std::byte> piece, const run_control& run) {
      detail::byte_reader from(piece);
      detail::copy_refinement::state state = own::get_state(from);
      const auto heat = from.get<double>();
      own::search_goal goal;
      from.get(goal.lower_bound);
      from.get(goal.gap);
      detail::byte_writer out;
      own::put(out, all->pool.anneal(std::move(state), heat, goal, run));
      return out.take();
    };
  };
  return {std::string(own::search_kind), open};
}

REMAT_INLINE solution offload_solver::operator()(const problem& p, const offload_options& options) const {
  require_valid_options(name, options);
  detail::offload_solve::require_legal(p, options.starts);
  return detail::solve_with_copies(p, name, options.run,
                                   [&](run_clock& clock, solution& best) {
                                     return detail::offload_solve::copy_search(p, options, clock, best).run();
                                   },
                                   refined, {.starts = options.starts});
}

}  // namespace REMAT_NAMESPACE
