// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Checkpoints of a march in time whose steps are reversed: the adjoint of a simulation, reverse automatic
/// differentiation. The header needs nothing else of the library, and knows nothing of the states: docs/adjoint.md is
/// its page. The classes are templates so that a file compiles only the members that it calls.
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/adjoint/detail/far_tiers.hpp"
#include "remat/core/detail/binomial.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

/// A memory that keeps states: the first tier of a sequence is the fast one, the second one a disk, or the host's
/// memory beside a device, and any further one is slower than the one before it.
struct adjoint_tier {
  std::int64_t slots = 0;  ///< the states that it holds at once, from 0 to 2³² − 1
  double write = 0;  ///< the time to write a state, in units of the time of a step; not weighed for the first tier
  double read = 0;   ///< the time to read a state, likewise

  /// The tier of `bytes` bytes for states of `state_bytes` bytes, with measured speeds in bytes per second.
  /// Throws `bad_argument` if a number is not positive.
  [[nodiscard]] static adjoint_tier measured(std::uint64_t bytes, std::uint64_t state_bytes, double write_speed,
                                             double read_speed, double seconds_of_step) {
    if (state_bytes == 0 || !(write_speed > 0) || !(read_speed > 0) || !(seconds_of_step > 0))
      throw bad_argument("adjoint_tier: the bytes of a state, the speeds and the time of a step must be positive");
    const auto size = static_cast<double>(state_bytes);
    return {static_cast<std::int64_t>(
                std::min<std::uint64_t>(bytes / state_bytes, std::numeric_limits<std::uint32_t>::max())),
            size / write_speed / seconds_of_step, size / read_speed / seconds_of_step};
  }
};

/// A place for one state.
struct adjoint_slot {
  std::uint32_t tier = 0;   ///< 0: memory
  std::uint32_t index = 0;  ///< less than the number of slots of the tier
  /// Compares both members.
  friend bool operator==(const adjoint_slot&, const adjoint_slot&) = default;
};

/// The actions on a current state. State i is the state before step i.
enum class adjoint_verb : std::uint8_t {
  advance,  ///< run steps `first` … `last` − 1 forward: the current state was state `first`, and becomes state `last`
  store,    ///< copy the current state, state `first`, to `slot`
  restore,  ///< state `first` becomes the current one: copy it from `slot`
  free,     ///< the state in `slot` is not needed any more
  reverse,  ///< reverse step `first`, from the current state `first`, which is not needed any more
  done      ///< all steps are reversed
};

/// One action of a sequence.
struct adjoint_action {
  adjoint_verb verb = adjoint_verb::done;  ///< the action
  std::uint64_t first = 0;                 ///< the step, or the number of the state
  std::uint64_t last = 0;                  ///< advance: the number of the state that is reached; otherwise `first`
  adjoint_slot slot{};                     ///< the place, of `store`, `restore` and `free`
  /// Compares all members.
  friend bool operator==(const adjoint_action&, const adjoint_action&) = default;
};

namespace detail::adjoint {

/// Turns the moves of a walker into actions: what is kept where, and which state is the current one.
class actions {
 public:
  void add(const range& r) { moves_.add(r); }
  /// Says that the current state is another one.
  void set_current(std::uint64_t state) { current_ = state; }
  /// The k-th kept state, by time, is in slot `slots[k]` of the memory.
  void set_slots(std::vector<std::uint32_t>&& slots) { slots_ = std::move(slots); }

  [[nodiscard]] adjoint_action next(const steps_in_tiers& rule) {
    if (begin_ == end_) make(rule);
    return pending_[begin_++];
  }

 private:
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

  void make(const steps_in_tiers& rule) {
    begin_ = end_ = 0;
    const binomial::move<range> m = moves_.next(rule);
    if (m.kind == m.end) return put(adjoint_verb::done, 0, 0, {});
    if (current_ != m.from) put(adjoint_verb::restore, m.from, m.from, slot_of(m.before));
    if (m.kind == m.advance) {
      if (m.before.kept != m.after.kept) {
        if (m.before.kept != home::none) put(adjoint_verb::free, m.from, m.from, slot_of(m.before));
        put(adjoint_verb::store, m.from, m.from, slot_of(m.after));
      }
      put(adjoint_verb::advance, m.from, m.to, {});
      current_ = m.to;
    } else {
      if (m.whole && m.before.kept != home::none) put(adjoint_verb::free, m.from, m.from, slot_of(m.before));
      put(adjoint_verb::reverse, m.from, m.from, {});
      current_ = none;
    }
  }
  void put(adjoint_verb verb, std::uint64_t first, std::uint64_t last, adjoint_slot slot) {
    pending_[end_++] = {verb, first, last, slot};
  }
  [[nodiscard]] adjoint_slot slot_of(const range& r) const {
    const std::uint32_t tier = static_cast<std::uint32_t>(r.kept) - 1, index = static_cast<std::uint32_t>(r.index);
    return {tier, tier > 0 || slots_.empty() ? index : slots_[index]};
  }

  binomial::walker<range> moves_;
  std::array<adjoint_action, 4> pending_{};
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t current_ = 0;
  std::vector<std::uint32_t> slots_;
};

inline void check_steps(std::uint64_t steps) {
  if (steps == 0 || steps >= std::uint64_t{1} << 31)
    throw bad_argument("adjoint: the number of steps must be from 1 to 2^31 − 1");
}

/// The number of slots, at least `least` (0 or 1). It is signed up to here, so that −1 is not taken for very many.
[[nodiscard]] inline std::uint32_t checked_slots(std::int64_t slots, std::int64_t least) {
  if (slots < least || slots > std::numeric_limits<std::uint32_t>::max())
    throw bad_argument(least > 0 ? "adjoint: the slots of the memory must be from 1, for state 0, to 2^32 − 1"
                                 : "adjoint: the slots of a tier must be from 0 to 2^32 − 1");
  return static_cast<std::uint32_t>(slots);
}

/// A time, of a copy or a reversal.
inline void check_time(double time) {
  if (!(time >= 0 && time <= std::numeric_limits<double>::max()))
    throw bad_argument("adjoint: a time to write, to read or to reverse must be finite and not negative");
}

}  // namespace detail::adjoint

/// The actions that reverse a known number of steps, made one by one \cite griewank2000revolve.
///
/// With one tier this is Revolve: no sequence runs fewer steps forward. The slots count the one of state 0. With a
/// second tier, states may also be written to it. The states on the disk divide the steps into leaves, and within a
/// leaf all is in memory, as in H-Revolve \cite herrmann2020hrevolve; a first state that is on the disk may also be
/// read again in place of being kept in memory. `cost` is the least of all such sequences. Steps whose costs differ are
/// divided in the best way if they are few: up to steps³ · memory slots · (2 · disk slots + 1) = 2²⁸, and 511. More,
/// and those with further tiers, are divided at the same fractions of the cost as equal ones: docs/adjoint.md says how
/// good that is.
///
/// Memory: one small record for each slot in use, and a number for each step if costs differ. Time of an action: O(r)
/// for steps that are run forward up to r times.
///
///     adjoint_sequence sequence(1000, 10);
///     for (adjoint_action a = sequence.next(); a.verb != adjoint_verb::done; a = sequence.next()) …
template <class = void>
class basic_adjoint_sequence {
 public:
  /// Equal steps, with `slots` states in memory. Throws `bad_argument` if there are no steps, or 2³¹ or more; no slots,
  /// or 2³² or more.
  basic_adjoint_sequence(std::uint64_t steps, std::int64_t slots) : basic_adjoint_sequence(steps, {slots}, {}) {}
  /// Equal steps, with states in memory and on a disk. O(r log² steps) time. Throws `bad_argument` also for a time that
  /// is negative, infinite or not a number.
  basic_adjoint_sequence(std::uint64_t steps, const adjoint_tier& memory, const adjoint_tier& disk)
      : basic_adjoint_sequence(steps, std::initializer_list<adjoint_tier>{memory, disk}) {}
  /// Equal steps, with states in any number of tiers, each slower than the one before. The third and further ones
  /// divide the steps in up to 256 units (docs/adjoint.md). Throws `bad_argument` also if there are none, or more than
  /// 200.
  basic_adjoint_sequence(std::uint64_t steps, std::span<const adjoint_tier> tiers) : steps_(steps) { begin(tiers); }
  /// \overload
  basic_adjoint_sequence(std::uint64_t steps, std::initializer_list<adjoint_tier> tiers)
      : basic_adjoint_sequence(steps, std::span(tiers.begin(), tiers.size())) {}
  /// Steps of different costs: `costs[i]` is the time of step i, in the unit of the times of the disk. O(steps) time
  /// and memory, but for the best division of few steps. Throws `bad_argument` also for a cost that is negative or not
  /// a number, and if all costs together, times the number of steps, are not finite: no sequence costs more.
  basic_adjoint_sequence(std::span<const double> costs, const adjoint_tier& memory, const adjoint_tier& disk = {})
      : basic_adjoint_sequence(costs, std::array{memory, disk}) {}
  /// Steps of different costs, in any number of tiers.
  basic_adjoint_sequence(std::span<const double> costs, std::span<const adjoint_tier> tiers) : steps_(costs.size()) {
    cost_before_.reserve(costs.size() + 1);
    cost_before_.push_back(0);
    for (const double cost : costs) {
      if (!(cost >= 0 && cost <= std::numeric_limits<double>::max()))
        throw bad_argument("adjoint_sequence: the cost of a step must be finite and not negative");
      cost_before_.push_back(cost_before_.back() + cost);
    }
    if (cost_before_.back() > std::numeric_limits<double>::max() / static_cast<double>(costs.size() + 1))
      throw bad_argument("adjoint_sequence: all costs together, times the number of steps, must be finite");
    // Equal steps are divided by the closed form, whose costs are whole numbers of steps.
    if (costs.size() > 0 && costs[0] > 0 &&
        std::all_of(costs.begin(), costs.end(), [&](double c) { return c == costs[0]; })) {
      cost_before_.clear();
      unit_ = costs[0];
    }
    begin(tiers);
  }

  /// The next action; `done` after the last one, again and again.
  [[nodiscard]] adjoint_action next() {
    return actions_.next({{memory_, disk_, cost_before_, best_.empty() ? nullptr : &best_}, &tiers_});
  }

  /// The number of steps.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// The time of all advances of equal steps, and of all copies to other tiers and from them, in units of a step. Not
  /// counted are the run of each step for its own reversal, and the reversals. For steps whose costs differ: in units
  /// of their mean, and as if they were equal unless the division is the best one.
  [[nodiscard]] double cost() const noexcept { return cost_; }

 private:
  void begin(std::span<const adjoint_tier> tiers) {
    detail::adjoint::check_steps(steps_);
    if (tiers.empty() || tiers.size() > 200) throw bad_argument("adjoint_sequence: the tiers must be 1 to 200");
    const double all = cost_before_.empty() ? 0 : cost_before_.back();
    const double unit =
        all > 0 ? std::max(all / static_cast<double>(steps_), std::numeric_limits<double>::min()) : unit_;
    constexpr double never = 0x1p62;  // steps: more than a march runs with one slot, so no such copy pays
    std::vector<detail::adjoint::tier> of_steps;
    std::uint64_t far = 0;
    for (const adjoint_tier& t : tiers) {
      detail::adjoint::check_time(t.write);
      detail::adjoint::check_time(t.read);
      const std::uint32_t slots = detail::adjoint::checked_slots(t.slots, of_steps.empty() ? 1 : 0);
      if (of_steps.size() > 1) far += slots;
      of_steps.push_back({slots, std::min(never, t.write / unit), std::min(never, t.read / unit)});
    }
    memory_ = static_cast<std::uint32_t>(of_steps[0].slots);
    disk_ = of_steps.size() > 1 ? static_cast<std::uint32_t>(of_steps[1].slots) : 0;
    if (of_steps.size() == 1) of_steps.push_back({});
    const detail::adjoint::tier disk{disk_, of_steps[1].write * unit, of_steps[1].read * unit};
    tiers_ = detail::adjoint::far_tiers(steps_, std::move(of_steps));
    cost_ = tiers_.cost();
    if (all > 0 && far == 0 && detail::adjoint::best_splits::is_small(steps_, memory_, disk_)) {
      best_ = detail::adjoint::best_splits(cost_before_, memory_, disk);
      cost_ = best_.cost() / unit;
    }
    actions_.add(best_.empty() ? tiers_.all() : best_.all());
  }

  std::uint64_t steps_;
  std::uint32_t memory_ = 0, disk_ = 0;
  double unit_ = 1;  // the cost of a step, if all cost the same
  double cost_ = 0;
  detail::adjoint::far_tiers tiers_;
  detail::adjoint::best_splits best_;
  detail::adjoint::actions actions_;
  std::vector<double> cost_before_;  // [i]: the cost of all steps before step i; empty: all cost the same
};

/// The sequence for a known number of steps.
using adjoint_sequence = basic_adjoint_sequence<>;

/// The actions for a number of steps that is not known before the last one, the setting of \cite wang2009dynamic.
///
/// Until `finish` is called, the actions keep the current state and advance by one step, again and again. An older
/// state gives up its slot: of all but state 0 that with the least g² / d, where g is the largest power of two that
/// divides its number, and d its distance to the current state. So the distances between kept states grow with the
/// square root of d. `finish` says that the march has ended, at the current state. Then the steps between the kept
/// states are reversed by Revolve, with the slots that are free by then; the last ones are given up first if that is
/// better.
///
/// One more slot never costs a step more: which states are preferred does not depend on the number of slots, so more
/// slots keep the same states, and one more. And no march runs more steps than `most_advances`: in all, its length more
/// than if the length is known.
///
/// Memory: a record for each slot in use. Time of an action: O(s) before the end, and that of `adjoint_sequence` after
/// it.
///
///     online_adjoint march(20);
///     for (adjoint_action a = march.next(); a.verb != adjoint_verb::done; a = march.next()) {
///       …                                                                   // do what `a` says
///       if (a.verb == adjoint_verb::advance && !march.finished() && is_last) march.finish();
///     }
template <class = void>
class basic_online_adjoint {
 public:
  /// Keeps `slots` states in memory at most. Throws `bad_argument` if there are none, or 2³² or more.
  explicit basic_online_adjoint(std::int64_t slots) : slots_(detail::adjoint::checked_slots(slots, 1)) {}

  /// The next action; `done` after the last one, again and again.
  [[nodiscard]] adjoint_action next() {
    if (finished_) {
      if (kept_.size() > used_) return give_up(kept_.size() - 1);
      return actions_.next({{slots_, 0, {}, nullptr}, nullptr});
    }
    // A single slot keeps state 0.
    if (is_kept_ || (slots_ == 1 && steps_ > 0)) {
      is_kept_ = false;
      ++steps_;
      return {adjoint_verb::advance, steps_ - 1, steps_, {}};
    }
    if (kept_.size() == slots_) return give_up(least_useful());
    kept_.push_back({steps_, free_slot_});
    free_slot_ = static_cast<std::uint32_t>(kept_.size());
    is_kept_ = true;
    return {adjoint_verb::store, steps_, steps_, {0, kept_.back().slot}};
  }

  /// The march has ended at the current state; its steps are reversed from now on. Throws `bad_argument` unless the
  /// last action was an advance before the end. O(s · r) time.
  void finish() {
    if (finished_ || is_kept_ || steps_ == 0)
      throw bad_argument("online_adjoint: finish() must follow an advance, and be called once");
    detail::adjoint::check_steps(steps_);
    finished_ = true;
    used_ = best_number();
    std::vector<std::uint32_t> order;  // those in use by time, then the others
    std::vector<std::uint32_t> used(std::min<std::uint64_t>(slots_, steps_ + 1));
    for (std::size_t k = 0; k < used_; ++k) {
      actions_.add({.first = kept_[k].state,
                    .last = k + 1 < used_ ? kept_[k + 1].state : steps_,
                    .spare = slots_ - 1 - k,
                    .kept = detail::adjoint::home::memory,
                    .index = k});
      order.push_back(kept_[k].slot);
      used[kept_[k].slot] = 1;
    }
    for (std::uint32_t slot = 0; slot < used.size(); ++slot)
      if (used[slot] == 0) order.push_back(slot);
    actions_.set_slots(std::move(order));
    actions_.set_current(steps_);
  }

  /// True once `finish` has been called.
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  /// The steps of the first sweep so far.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// An upper bound on all advances for `steps` steps with `slots` slots: the first sweep, and the least number of a
  /// march whose length is known. Precondition: steps < 2³¹. Throws `bad_argument` for slots as the class.
  [[nodiscard]] static std::uint64_t most_advances(std::uint64_t steps, std::int64_t slots) {
    return steps + detail::binomial::advances(steps, detail::adjoint::checked_slots(slots, 1) - 1);
  }

 private:
  struct checkpoint {
    std::uint64_t state;
    std::uint32_t slot;
  };

  adjoint_action give_up(std::size_t k) {
    const checkpoint gone = kept_[k];
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(k));
    free_slot_ = gone.slot;
    return {adjoint_verb::free, gone.state, gone.state, {0, gone.slot}};
  }

  /// The kept state beside state 0 that is worth least. Precondition: there is one.
  [[nodiscard]] std::size_t least_useful() const {
    std::size_t least = 1;
    double worth = std::numeric_limits<double>::infinity();
    for (std::size_t k = 1; k < kept_.size(); ++k) {
      const auto gap = static_cast<double>(kept_[k].state & (~kept_[k].state + 1));
      const double w = gap * gap / static_cast<double>(steps_ - kept_[k].state);
      if (w < worth) least = k, worth = w;
    }
    return least;
  }

  /// The number of kept states, the first ones, with which the reversal runs the fewest steps.
  [[nodiscard]] std::size_t best_number() const {
    const auto run = [&](std::size_t k, std::uint64_t end) {
      return detail::binomial::advances(end - kept_[k].state, slots_ - 1 - k);
    };
    std::size_t best = 0;
    std::uint64_t before = 0, least = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      if (const std::uint64_t all = before + run(k, steps_); all <= least) best = k + 1, least = all;
      if (k + 1 < kept_.size()) before += run(k, kept_[k + 1].state);
    }
    return best;
  }

  std::uint32_t slots_;
  std::vector<checkpoint> kept_;  // the states that are kept, by time
  std::size_t used_ = 0;          // the number of states that the reversal begins with
  std::uint32_t free_slot_ = 0;   // the slot of the next state that is kept
  std::uint64_t steps_ = 0;
  bool is_kept_ = false, finished_ = false;
  detail::adjoint::actions actions_;
};

/// The actions for an unknown number of steps.
using online_adjoint = basic_online_adjoint<>;

/// The findings of the exact simulation of a sequence.
struct adjoint_report {
  bool legal = true;           ///< every action so far found what it needs
  std::string_view message{};  ///< why it is not legal
  std::uint64_t actions = 0;   ///< the number of legal actions: the first illegal one has this number
  std::uint64_t advances = 0;  ///< the steps that were run forward, without the run of each step for its own reversal
  double cost = 0;             ///< the time of all advances and copies
  double time = 0;             ///< the time until now, with the reversals, if copies run beside the march
  std::vector<std::uint64_t> stores{};      ///< the copies to each tier
  std::vector<std::uint64_t> restores{};    ///< the copies from each tier
  std::vector<std::uint64_t> peak_slots{};  ///< the most slots of each tier in use at once
};

/// Runs any sequence of actions exactly, whoever made it, one action at a time. It shares no code with the sequences.
/// O(1) time for each action; memory for the slots that are used.
template <class = void>
class basic_adjoint_checker {
 public:
  /// `steps` of 0: their number is what the first sweep reaches. The tiers are the limits. `costs[i]` is the time of
  /// step i; without costs it is 1. The costs must outlive the checker. A tier of fewer than 0 slots has none.
  explicit basic_adjoint_checker(std::uint64_t steps, const adjoint_tier& memory, const adjoint_tier& disk = {},
                                 std::span<const double> costs = {})
      : basic_adjoint_checker(steps, std::array{memory, disk}, costs) {}
  /// The same for any number of tiers, which are copied.
  basic_adjoint_checker(std::uint64_t steps, std::span<const adjoint_tier> tiers, std::span<const double> costs = {})
      : steps_(steps), left_(steps), costs_(costs) {
    for (const adjoint_tier& t : tiers) tiers_.push_back({t, {}, {}, 0});
    report_.stores.resize(tiers.size());
    report_.restores.resize(tiers.size());
    report_.peak_slots.resize(tiers.size());
  }

  /// From now on copies to and from tiers beyond memory run beside the march, for `report().time`: one at a time to
  /// them, and one at a time from them. A copy takes one of `buffers` buffers in each direction, beside the slots of
  /// the memory, from its begin until the state is written, or is the current one. A read begins as early as its state
  /// and a buffer are there: the sequence is known. A reversal takes `reverse`, in units of a step. Without this call
  /// no copy runs beside anything, and reversals take no time. Throws `bad_argument` if there are no buffers, or if
  /// `reverse` is negative, infinite or not a number.
  void overlap_copies(std::int64_t buffers, double reverse) {
    if (buffers < 1) throw bad_argument("adjoint_checker: copies need at least one buffer in each direction");
    detail::adjoint::check_time(reverse);
    writes_.buffers = reads_.buffers = static_cast<std::uint64_t>(buffers);
    reverse_ = reverse;
  }

  /// Does one action. False if it is illegal; then later ones are not looked at.
  bool take(const adjoint_action& a) {
    if (!report_.legal) return false;
    if (const char* why = run(a)) {
      report_.legal = false;
      report_.message = why;
      return false;
    }
    ++report_.actions;
    return true;
  }
  /// The findings so far.
  [[nodiscard]] const adjoint_report& report() const noexcept { return report_; }
  /// True if all steps are reversed.
  [[nodiscard]] bool complete() const noexcept { return report_.legal && has_turned_ && left_ == 0; }

 private:
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

  const char* run(const adjoint_action& a) {
    switch (a.verb) {
      case adjoint_verb::advance:
        return advance(a);
      case adjoint_verb::reverse:
        return reverse(a);
      case adjoint_verb::done:
        return left_ == 0 && has_turned_ ? nullptr : "done, but there are steps to reverse";
      default:
        return copy(a);
    }
  }
  const char* advance(const adjoint_action& a) {
    if (current_ != a.first) return "the state before the first step is not the current one";
    if (a.last <= a.first) return "an advance of no steps";
    if ((steps_ > 0 || has_turned_) && a.last > left_)
      return "an advance over steps that are reversed, or after the end";
    if (!costs_.empty() && a.last > costs_.size()) return "a step that has no cost";
    double time = costs_.empty() ? static_cast<double>(a.last - a.first) : 0;
    for (std::uint64_t i = a.first; i < a.last && !costs_.empty(); ++i) time += costs_[i];
    report_.cost += time;
    report_.time += time;
    report_.advances += a.last - a.first;
    current_ = a.last;
    if (!has_turned_) reached_ = std::max(reached_, a.last);
    return nullptr;
  }
  const char* reverse(const adjoint_action& a) {
    if (current_ != a.first) return "the state before the step is not the current one";
    // The state behind the last step may never have been made.
    if (!has_turned_ && steps_ == 0) left_ = std::max(reached_, a.first + 1);
    has_turned_ = true;
    if (a.first + 1 != left_) return "the step is not the last one of those to reverse";
    left_ = a.first;
    current_ = none;
    report_.time += reverse_;
    return nullptr;
  }
  const char* copy(const adjoint_action& a) {
    if (a.slot.tier >= tiers_.size() || std::int64_t{a.slot.index} >= tiers_[a.slot.tier].tier.slots)
      return "there is no such slot";
    tier_state& at = tiers_[a.slot.tier];
    if (at.states.size() <= a.slot.index) {
      at.states.resize(a.slot.index + std::size_t{1}, none);
      at.written.resize(at.states.size());
    }
    std::uint64_t& held = at.states[a.slot.index];
    double& written = at.written[a.slot.index];
    const adjoint_tier& tier = at.tier;
    if (a.verb == adjoint_verb::store) {
      if (current_ != a.first) return "the state to store is not the current one";
      if (held != none) return "the slot is in use";
      held = a.first;
      report_.peak_slots[a.slot.tier] = std::max(report_.peak_slots[a.slot.tier], ++at.used);
      ++report_.stores[a.slot.tier];
      report_.cost += tier.write;
      const bool is_beside = a.slot.tier > 0 && writes_.buffers > 0;
      if (is_beside) report_.time = std::max(report_.time, writes_.next());
      written = is_beside ? writes_.copy(report_.time, tier.write) : report_.time += tier.write;
      if (is_beside) writes_.give_back(written);
      return nullptr;
    }
    if (held != a.first) return "the slot does not hold the state";
    if (a.verb == adjoint_verb::free) {
      held = none;
      --at.used;
    } else {
      current_ = a.first;
      ++report_.restores[a.slot.tier];
      report_.cost += tier.read;
      const bool is_beside = a.slot.tier > 0 && reads_.buffers > 0;
      if (is_beside)
        report_.time = std::max(report_.time, reads_.copy(std::max(written, reads_.next()), tier.read));
      else
        report_.time += tier.read;
      if (is_beside) reads_.give_back(report_.time);
    }
    return nullptr;
  }

  std::uint64_t steps_, left_;
  /// The copies in one direction. Their buffers are used in turn.
  struct channel {
    double ready = 0;
    std::uint64_t buffers = 0;
    std::vector<double> free{};  // when each buffer that was used is free
    std::size_t turn = 0;

    [[nodiscard]] double next() const { return turn < free.size() ? free[turn] : 0; }
    double copy(double begin, double time) { return ready = std::max(ready, begin) + time; }
    void give_back(double when) {
      if (turn < free.size())
        free[turn] = when;
      else
        free.push_back(when);
      turn = turn + 1 < buffers ? turn + 1 : 0;
    }
  };

  struct tier_state {
    adjoint_tier tier;
    std::vector<std::uint64_t> states;  // [slot]
    std::vector<double> written;        // [slot]: when its state was written
    std::uint64_t used;
  };

  std::vector<tier_state> tiers_;
  std::span<const double> costs_;
  channel writes_, reads_;
  double reverse_ = 0;
  std::uint64_t current_ = 0, reached_ = 0;
  bool has_turned_ = false;
  adjoint_report report_;
};

/// The exact check of a sequence.
using adjoint_checker = basic_adjoint_checker<>;

/// A sequence for copies that run beside the march (`adjoint_checker::overlap_copies`): of 16 that count a share of the
/// times to write and to read, the one that takes the least time. Its `cost` counts these shares. O(16 · actions) time.
/// Throws `bad_argument` as the sequence and the checker.
template <class = void>
[[nodiscard]] adjoint_sequence overlapped_sequence(std::uint64_t steps, const adjoint_tier& memory,
                                                   const adjoint_tier& disk, std::int64_t buffers, double reverse) {
  adjoint_sequence best(steps, memory, disk);
  double least = std::numeric_limits<double>::infinity();
  for (const double write : {1.0, 0.5, 0.25, 0.0})
    for (const double read : {1.0, 0.5, 0.25, 0.0}) {
      const adjoint_sequence sequence(steps, memory, {disk.slots, disk.write * write, disk.read * read});
      adjoint_checker checker(steps, memory, disk);
      checker.overlap_copies(buffers, reverse);
      adjoint_sequence march = sequence;
      for (adjoint_action a = march.next(); a.verb != adjoint_verb::done && checker.report().time < least;
           a = march.next())
        checker.take(a);
      if (checker.report().time >= least) continue;
      least = checker.report().time;
      best = sequence;
    }
  return best;
}

/// The functions that `run_adjoint` calls: they do the actions. `free(i, slot)` is called, too, if there is one.
///
///     struct marcher {
///       void advance(std::uint64_t first, std::uint64_t last);  // run steps first … last − 1
///       void store(std::uint64_t i, adjoint_slot slot);         // copy the current state, state i, to the slot
///       void restore(std::uint64_t i, adjoint_slot slot);       // and back
///       void reverse(std::uint64_t i);                          // reverse step i from the current state i
///     };
template <class T>
concept time_marcher = requires(T& m, std::uint64_t i, adjoint_slot slot) {
  m.advance(i, i);
  m.store(i, slot);
  m.restore(i, slot);
  m.reverse(i);
};

/// Calls the function for one action.
template <time_marcher Marcher>
void do_adjoint_action(const adjoint_action& a, Marcher& m) {
  switch (a.verb) {
    case adjoint_verb::advance:
      m.advance(a.first, a.last);
      break;
    case adjoint_verb::store:
      m.store(a.first, a.slot);
      break;
    case adjoint_verb::restore:
      m.restore(a.first, a.slot);
      break;
    case adjoint_verb::reverse:
      m.reverse(a.first);
      break;
    case adjoint_verb::free:
      if constexpr (requires { m.free(a.first, a.slot); }) m.free(a.first, a.slot);
      break;
    case adjoint_verb::done:
      break;
  }
}

/// Does all actions of a sequence. Exceptions of the functions propagate.
template <time_marcher Marcher>
void run_adjoint(adjoint_sequence sequence, Marcher& m) {
  for (adjoint_action a = sequence.next(); a.verb != adjoint_verb::done; a = sequence.next()) do_adjoint_action(a, m);
}

/// Does all actions of a march whose end is not known: it ends after the first advance after which `ended(i)` is true
/// for the current state i. Returns the number of steps. Exceptions of the functions propagate.
template <time_marcher Marcher, class Ended>
std::uint64_t run_adjoint(online_adjoint march, Marcher& m, Ended ended) {
  for (adjoint_action a = march.next(); a.verb != adjoint_verb::done; a = march.next()) {
    do_adjoint_action(a, m);
    if (!march.finished() && a.verb == adjoint_verb::advance && ended(a.last)) march.finish();
  }
  return march.steps();
}

/// Reverses `steps` steps of a state that is a copyable value, with `slots` copies in memory at most, beside the
/// current one. `step(state, i)` turns state i into state i + 1; `reverse(state, i)` reverses step i, given state i,
/// which it may change. `state` is state 0. Exceptions of the functions propagate.
template <class State, class Step, class Reverse>
requires std::invocable<Step&, State&, std::uint64_t> && std::invocable<Reverse&, State&, std::uint64_t>
void reverse_steps(State state, std::uint64_t steps, std::int64_t slots, Step step, Reverse reverse) {
  std::vector<State> kept;
  adjoint_sequence sequence(steps, slots);
  for (adjoint_action a = sequence.next(); a.verb != adjoint_verb::done; a = sequence.next()) {
    switch (a.verb) {
      case adjoint_verb::advance:
        for (std::uint64_t i = a.first; i < a.last; ++i) step(state, i);
        break;
      case adjoint_verb::store:
        if (a.slot.index < kept.size())
          kept[a.slot.index] = state;
        else
          kept.push_back(state);  // slots are used in order
        break;
      case adjoint_verb::restore:
        state = kept[a.slot.index];
        break;
      case adjoint_verb::reverse:
        reverse(state, a.first);
        break;
      default:
        break;  // the copy stays until the slot is used again, which saves an allocation
    }
  }
}

}  // namespace REMAT_NAMESPACE
