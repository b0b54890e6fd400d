// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/exact.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/price_search.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/method/detail/cheap_start.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/impl/exact_search.hpp"
#include "remat/refine/detail/backward_states.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/run_to_end.hpp"

namespace REMAT_NAMESPACE {

namespace detail::exact_solve {

/// A* over sets of open writes: see `exact_solver`.
class backward_search : public search_end {
 public:
  backward_search(const problem& p, std::uint64_t max_states, double patience, double incumbent)
      : search_end(p.graph().num_operations),
        s_(p.graph()),
        budget_(p.budget()),
        all_(p.graph(), p.budget(), incumbent),
        max_states_(max_states),
        patience_(patience),
        sub_(p.graph()),
        cut_(sub_) {
    for (std::uint32_t o = 0; o < s_.num_operations; ++o) anchors_.push_back({o, nullptr, 0, 0});
    next_look_ = visits_before_patience / std::max(1U, s_.num_operations);
  }
  /// Bounds states by the first moments of `chain`, too, which must outlive the search.
  void use(const moment_chain& chain) {
    double sum = 0, size = 0;
    for (std::size_t i = 1; i < chain.moments.size(); ++i) {
      sum += chain.values[i - 1];
      size += std::abs(chain.values[i - 1]);
      for (const tensor_rate& x : chain.passed[i - 1]) {
        sum -= x.rate;
        size += x.rate;
        ++terms_;
      }
      // Less by more than all additions can have rounded up.
      const double before = sum - size * static_cast<double>(++terms_ + 8) * 0x1p-52;
      anchors_.push_back({chain.moments[i], &chain.passed[i - 1], before, chain.prices[i]});
    }
  }

  /// Searches until it finds the least time below the incumbent's, proves that none exists, or reaches a limit.
  /// `at_least` is a proven lower bound of the whole problem. It is not the bound of any state: all below it would come
  /// in no order, many of them several times.
  stop_reason run(run_clock& clock, double at_least) {
    state_.assign(sets().key_words(), 0);
    for (const std::uint32_t t : s_.final_outputs) sets().open_writes(state_, t);
    sets().open_effects(state_);
    const double least = sets().closure_time(sets().close(state_, closure_));
    bound_ = std::max(at_least, least);
    all_.begin(state_, least);
    while (const std::optional<backward_states::entry> top = all_.next()) {
      const std::uint32_t i = top->state;
      bound_ = std::max(bound_, std::min(top->total, all_.limit()));
      if (top->total >= all_.limit()) break;
      if (const stop_reason r = clock.poll(); r != stop_reason::none) return r;
      clock.report({.stage = "search", .lower_bound = bound_, .done = all_.size(), .total = max_states_});
      if (all_.size() >= max_states_ || !is_worth_more()) return stop_reason::work;
      all_.load(i, state_);
      if (std::all_of(state_.begin(), state_.end(), [](std::uint64_t w) { return w == 0; })) {
        goal_ = i;
        complete_ = true;
        return stop_reason::none;
      }
      if (!all_[i].cut && raise(i, clock)) continue;
      clock.work(s_.num_operations * work_of::visit);
      all_.expand(i, state_, *this);
    }
    complete_ = all_.is_exhaustive();
    bound_ = all_.is_limited() && complete_ ? std::numeric_limits<double>::infinity() : all_.limit();
    return stop_reason::none;
  }

  [[nodiscard]] std::size_t states() const noexcept { return all_.size(); }
  [[nodiscard]] std::uint64_t cuts() const noexcept { return cuts_; }

  [[nodiscard]] schedule schedule_found() const { return schedule_computes(s_, all_.operations_from(goal_)); }

  // The rules of `backward_states::expand`. The bound of a state is at least its parent's less the time of the
  // operation between.
  [[nodiscard]] double least_time_before(const bit_words&, const bit_words& closure, double from,
                                         std::uint32_t o) const {
    return std::max(sets().closure_time(closure), sum_below(from, -s_.time[o]));
  }
  [[nodiscard]] static bool may_run(std::uint32_t) noexcept { return true; }
  [[nodiscard]] static bool must_run(const bit_words&, std::uint32_t) noexcept { return true; }

 private:
  [[nodiscard]] const write_sets& sets() const noexcept { return all_.sets(); }

  /// False if twice as many states have closed too little of the gap. See `exact_goal::patience`.
  bool is_worth_more() {
    if (patience_ == 0 || all_.size() < next_look_) return true;
    const double gained = bound_ - last_bound_;
    const bool worth = last_bound_ == 0 || gained >= patience_ * (all_.limit() - bound_);
    last_bound_ = bound_;
    next_look_ *= 2;
    return worth;
  }

  /// The knowledge of all states of one closure.
  struct closure_record {
    bool known = false;  // the rest is
    std::uint32_t uses = 0, wins = 0;
    std::uint32_t anchor[2] = {write_sets::none, write_sets::none};  // those of the best bounds of the first state
    double price[2] = {0, 0};
  };

  /// Raises the bound of state `i`, which is in state_, by the turnaround bound of the part before it. True: the state
  /// is back in the heap with its new bound, or is proven to have no schedule.
  bool raise(std::uint32_t i, const run_clock& clock) {
    const double once = sets().closure_time(sets().close(state_, closure_));
    // The part before the state is a problem of its own: its outputs are the tensors whose writes are all open.
    sub_.final_outputs.clear();
    std::fill(sub_.final_output.begin(), sub_.final_output.end(), std::uint8_t{0});
    for_each_bit(state_, [&](std::uint32_t b) {
      const std::uint32_t t = sets().bit_tensor(b);
      if (t == write_sets::none || b != sets().first_bit(t) || sets().num_open(state_, t) != sets().num_producers(t))
        return;
      sub_.final_outputs.push_back(t);
      sub_.final_output[t] = 1;
    });
    for (std::uint32_t o = 0; o < s_.num_operations; ++o) sub_.needed[o] = test_bit(closure_, o);
    double bound = all_[i].remaining;
    const bool is_root = all_[i].parent == write_sets::none;
    if (!(is_root ? raise_root(bound, once, clock) : raise_by_anchors(bound, all_[i].closure, once, clock)))
      bound = std::numeric_limits<double>::infinity();
    return all_.raise(i, bound);
  }

  /// Raises `bound` by all of `anchors_` at the first state, and keeps the best ones. False: there is no schedule.
  bool raise_root(double& bound, double once, const run_clock& clock) {
    std::vector<std::pair<double, std::uint32_t>> found;
    for (std::uint32_t a = 0; a < anchors_.size() && !clock.should_stop(); ++a) {
      if (!s_.needed[anchors_[a].moment]) continue;
      double value = 0;
      if (!raise_at(bound, a, once, 32, value, anchors_[a].price, clock)) return false;
      found.push_back({-value, a});
    }
    std::sort(found.begin(), found.end());
    std::uint32_t alone = 0;
    for (const auto& [value, a] : found)
      if (anchors_[a].kept != nullptr || ++alone <= max_alone) tried_.push_back(a);
    return true;
  }

  /// One or two flows for most states: the best moment and price hardly change from a state to others of its closure.
  /// False: there is no schedule.
  bool raise_by_anchors(double& bound, std::uint32_t closure, double once, const run_clock& clock) {
    if (closures_.size() <= closure) closures_.resize(closure + std::size_t{1});
    closure_record& r = closures_[closure];
    if (!r.known) {
      r.known = true;
      std::vector<std::pair<double, std::uint32_t>> found;
      for (const std::uint32_t a : tried_) {
        if (!sub_.needed[anchors_[a].moment]) continue;
        double value = 0;
        if (!raise_at(bound, a, once, 3, value, anchors_[a].price, clock)) return false;
        found.push_back({-value, a});
      }
      std::sort(found.begin(), found.end());
      for (std::size_t n = 0; n < 2 && n < found.size(); ++n) {
        r.anchor[n] = found[n].second;
        r.price[n] = anchors_[found[n].second].price;
      }
      return true;
    }
    ++r.uses;
    double value[2] = {0, 0};
    for (std::size_t n = 0; n < 2; ++n) {
      if (r.anchor[n] == write_sets::none || !sub_.needed[anchors_[r.anchor[n]].moment] ||
          (n == 1 && r.uses % 16 != 0 && r.wins * 16 < r.uses))
        break;
      if (!raise_at(bound, r.anchor[n], once, cuts_ % 16 == 0 ? 3 : 1, value[n], r.price[n], clock)) return false;
    }
    if (value[1] <= value[0]) return true;
    r.wins += 2;
    if (r.wins > r.uses) {
      std::swap(r.anchor[0], r.anchor[1]);
      std::swap(r.price[0], r.price[1]);
      r.uses = r.wins = 0;
    }
    return true;
  }

  /// Raises `best` by the cut at anchors_[a], from the price `start` on, and leaves there the best price and in
  /// `value` its bound. False: the state has no schedule.
  bool raise_at(double& best, std::uint32_t a, double once, int flows, double& value, double& start,
                const run_clock& clock) {
    const auto stop = [&] { return clock.should_stop(); };
    cut_.at(segment{.moment = anchors_[a].moment, .kept = anchors_[a].kept});
    const std::int64_t room = budget_ - cut_.working_set();
    if (room < 0) return false;
    if (cut_.has_unrepeatable()) {
      ++cuts_;
      if (cut_.least_bytes(stop) > room) return false;
      if (!cut_.complete()) return true;
    }
    const double least = once + anchors_[a].before;
    value = least;
    // A choice of all tensors pays at most all rates.
    moment_choice left{cut_.total_cost() - cut_.total_time(), 0}, right{cut_.total_time(), 0};
    for (std::size_t c = 0; c < cut_.num_candidates(); ++c) left.bytes += cut_.candidate_bytes(c);
    price_search search(cut_, room, left, right, start, flows);
    // The first flow is run in any case: it tells which of two last moments is the better one.
    for (double level = -std::numeric_limits<double>::infinity(); search.run_flow(level, stop);
         level = std::max(value, best) * (1 + 1e-9) - least) {
      ++cuts_;
      const double bound = sum_below(least, search.value());
      if (bound > value) {
        value = bound;
        start = search.price();
      }
    }
    best = std::max(best, value);
    return true;
  }

  /// The gap is first looked at after this many states × operations, then whenever the states have doubled.
  static constexpr std::uint32_t visits_before_patience = 8'000'000;
  static constexpr std::uint32_t max_alone = 16;  // moments without a chain that are tried at each closure

  /// The last moment of a bound: alone, or with those of a chain before it.
  struct anchor {
    std::uint32_t moment;
    const std::vector<tensor_rate>* kept;  // rates of the tensors that are resident there; null: alone
    double before;                         // the bound of the segments before it, less the rates
    double price;                          // the price of a byte
  };

  const flat_graph& s_;
  const std::int64_t budget_;
  backward_states all_;
  bit_words state_, closure_;  // the state that was taken last, and its closure
  const std::uint64_t max_states_;
  const double patience_;
  flat_graph sub_;
  moment_cut cut_;
  std::vector<anchor> anchors_;           // each operation alone, then those of chains
  std::vector<std::uint32_t> tried_;      // moments, at each closure
  std::size_t terms_ = 0;                 // the number of terms in the chain's bounds
  std::vector<closure_record> closures_;  // the closures, by number
  std::size_t next_look_ = 0;             // states
  double last_bound_ = 0;
  std::uint64_t cuts_ = 0;
};

/// No chain of moments is searched for if the limit of work is below this many units for each operation.
inline constexpr std::uint64_t least_work_for_chain = 10'000;

/// The bound of chains of moments, if the limits allow for it: it raises `best.lower_bound`. Null: there is none.
[[nodiscard]] REMAT_INLINE std::shared_ptr<const moment_chain> find_chain(const problem& p, run_clock& clock,
                                                                          solution& best) {
  if (clock.control().work_limit < least_work_for_chain * p.graph().num_operations) return nullptr;
  turnaround_options linking;
  linking.want_saved = false;
  linking.branch_nodes = 200;
  linking.chain_moments = 48;
  linking.run = clock.limits(0.25);
  const turnaround_result found = turnaround_bound(p, linking);
  count_flows(found.flows, p.graph().num_operations, clock);
  if (!found.infeasible) best.lower_bound = std::max(best.lower_bound, found.lower_bound);
  return found.links;
}

}  // namespace detail::exact_solve

REMAT_INLINE solution detail::search_exactly(const problem& p, const exact_options& options, const exact_goal& goal) {
  constexpr std::string_view name = exact_solver::name;
  require_valid_options(name, options);
  require_no_link(p, name);
  const double slowest = goal.faster_than.value_or(std::numeric_limits<double>::infinity());
  run_clock clock(options.run, name);
  solution best;
  clock.watch(best.time, best.lower_bound);
  const auto met = [&] { return best.is_within(0); };
  const auto search_all = [&] {
    stop_reason stopped = clock.poll();
    if (stopped != stop_reason::none || prove(p, best, clock.limits(0.25))) return stopped;
    if (options.start_from_heuristic) {
      solution s = solve_part(clock, 0.25, evict, p.with_known_bound(best.lower_bound), {});
      if (s.plan) take_part(best, s, [&] { accept(p, best, *s.plan, by_part(name, s.by)); });
      stopped = clock.poll();
    }
    const double limit = std::min(time_below(best.time, best.statistics.computes), slowest);
    if (stopped == stop_reason::none && !met() && p.graph().num_operations > exact_solver::max_operations) {
      best.message = "too many operations for an exact search";
    } else if (stopped == stop_reason::none && !met() && best.lower_bound < limit) {
      std::shared_ptr<const moment_chain> chain = goal.chain;
      if (chain == nullptr) chain = exact_solve::find_chain(p, clock, best);
      exact_solve::backward_search search(p, options.max_states, goal.patience, limit);
      if (chain != nullptr) search.use(*chain);
      stopped = search.run(clock, best.lower_bound);
      exact_solve::take_search(p, search, name, "fits the budget", best);
    }
    return stopped;
  };
  run_to_end(p, best, clock, [&] {
    const stop_reason stopped = search_all();
    const bool takes_any = options.start_from_heuristic && !goal.faster_than;
    if (takes_any) take_cheap_start(p, best, name, options.run, stopped);
    return stopped;
  });
  return best;
}

REMAT_INLINE solution exact_solver::operator()(const problem& p, const exact_options& options) const {
  return detail::search_exactly(p, options, {});
}

}  // namespace REMAT_NAMESPACE
