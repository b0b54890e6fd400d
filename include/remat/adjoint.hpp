// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Checkpoints of a march in time whose steps are reversed: the adjoint of a simulation, reverse automatic
/// differentiation. The header needs nothing else of the library, and knows nothing of the states: docs/adjoint.md is
/// its page.
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/adjoint/detail/tiers.hpp"
#include "remat/core/detail/binomial.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

/// A memory that keeps states: the first tier of a sequence is the fast one, and the second one a disk, or the host's
/// memory beside a device.
struct adjoint_tier {
  std::uint32_t slots = 0;  ///< the states that it holds at once
  double write = 0;  ///< the time to write a state, in units of the time of a step; not weighed for the first tier
  double read = 0;   ///< the time to read a state, likewise

  /// The tier of `bytes` bytes for states of `state_bytes` bytes, with measured speeds in bytes per second.
  /// Throws `bad_argument` if a number is not positive.
  [[nodiscard]] static adjoint_tier measured(std::uint64_t bytes, std::uint64_t state_bytes, double write_speed,
                                             double read_speed, double seconds_of_step) {
    if (state_bytes == 0 || !(write_speed > 0) || !(read_speed > 0) || !(seconds_of_step > 0))
      throw bad_argument("adjoint_tier: the bytes of a state, the speeds and the time of a step must be positive");
    const auto size = static_cast<double>(state_bytes);
    return {static_cast<std::uint32_t>(
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
  /// `memory` and `disk` slots.
  actions(std::uint32_t memory, std::uint32_t disk) : memory_(memory), disk_(disk) {}

  void add(const range& r) { moves_.add(r); }
  /// Says that the current state is another one.
  void set_current(std::uint64_t state) { current_ = state; }
  /// The k-th kept state, by time, is in slot `slots[k]` of the memory.
  void set_slots(std::vector<std::uint32_t>&& slots) { slots_ = std::move(slots); }

  [[nodiscard]] adjoint_action next(const tiered_steps& rule) {
    if (begin_ == end_) make(rule);
    return pending_[begin_++];
  }

 private:
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

  void make(const tiered_steps& rule) {
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
    if (r.kept == home::disk) return {1, disk_ - 1 - static_cast<std::uint32_t>(r.disk)};
    const std::uint32_t depth = memory_ - 1 - static_cast<std::uint32_t>(r.spare);
    return {0, slots_.empty() ? depth : slots_[depth]};
  }

  binomial::walker<range> moves_;
  std::array<adjoint_action, 4> pending_{};
  std::size_t begin_ = 0, end_ = 0;
  std::uint32_t memory_, disk_;
  std::uint64_t current_ = 0;
  std::vector<std::uint32_t> slots_;
};

inline void check_steps(std::uint64_t steps) {
  if (steps == 0 || steps >= std::uint64_t{1} << 31)
    throw bad_argument("adjoint: the number of steps must be from 1 to 2^31 − 1");
}

}  // namespace detail::adjoint

/// The actions that reverse a known number of steps, made one by one \cite griewank2000revolve.
///
/// With one tier this is Revolve: no sequence runs fewer steps forward. The slots count the one of state 0. With a
/// second tier, states may also be written to it. The states on the disk divide the steps into leaves, and within a
/// leaf all is in memory, as in H-Revolve \cite herrmann2020hrevolve; a first state that is on the disk may also be
/// read again in place of being kept in memory. `cost` is the least of all such sequences. Steps whose costs differ are
/// divided at the same fractions of the cost as equal ones: that is good if they differ little, and not optimal.
///
/// Memory: one small record for each slot in use, and a number for each step if costs differ. Time of an action: O(r)
/// for steps that are run forward up to r times.
///
///     adjoint_sequence sequence(1000, 10);
///     for (adjoint_action a = sequence.next(); a.verb != adjoint_verb::done; a = sequence.next()) …
class adjoint_sequence {
 public:
  /// Equal steps, with `slots` states in memory. Throws `bad_argument` if there are no steps, 2³¹ or more, or no slots.
  adjoint_sequence(std::uint64_t steps, std::uint32_t slots) : adjoint_sequence(steps, {slots}, {}) {}
  /// Equal steps, with states in memory and on a disk. O(r log² steps) time. Throws `bad_argument` also for a time that
  /// is negative or not a number.
  adjoint_sequence(std::uint64_t steps, const adjoint_tier& memory, const adjoint_tier& disk)
      : steps_(steps), memory_(memory), disk_(disk), actions_(0, 0) {
    begin();
  }
  /// Steps of different costs: `costs[i]` is the time of step i, in the unit of the times of the disk. O(steps) time
  /// and memory. Throws `bad_argument` also for a cost that is negative or not a number.
  adjoint_sequence(std::span<const double> costs, const adjoint_tier& memory, const adjoint_tier& disk = {})
      : steps_(costs.size()), memory_(memory), disk_(disk), actions_(0, 0) {
    cost_before_.reserve(costs.size() + 1);
    cost_before_.push_back(0);
    for (const double cost : costs) {
      if (!(cost >= 0 && cost <= std::numeric_limits<double>::max()))
        throw bad_argument("adjoint_sequence: the cost of a step must be finite and not negative");
      cost_before_.push_back(cost_before_.back() + cost);
    }
    begin();
  }

  /// The next action; `done` after the last one, again and again.
  [[nodiscard]] adjoint_action next() { return actions_.next({memory_.slots, cost_before_}); }

  /// The number of steps.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// The slots of both tiers that a checker should know.
  [[nodiscard]] std::array<std::uint32_t, 2> slots() const noexcept { return {memory_.slots, disk_.slots}; }
  /// The time of all advances of equal steps, and of all copies to the disk and from it, in units of a step. Not
  /// counted are the run of each step for its own reversal, and the reversals. For steps whose costs differ: as if they
  /// were equal.
  [[nodiscard]] double cost() const noexcept { return tiering_.cost; }

 private:
  void begin() {
    detail::adjoint::check_steps(steps_);
    if (memory_.slots == 0) throw bad_argument("adjoint_sequence: the memory needs at least one slot, for state 0");
    if (!(disk_.write >= 0 && disk_.read >= 0))
      throw bad_argument("adjoint_sequence: the times of the disk must not be negative");
    const double all = cost_before_.empty() ? 0 : cost_before_.back();
    const double unit = all > 0 ? all / static_cast<double>(steps_) : 1;
    tiering_ = detail::adjoint::best_tiering(steps_, memory_.slots, disk_.slots, disk_.write / unit, disk_.read / unit);
    actions_ = detail::adjoint::actions(memory_.slots, disk_.slots);
    actions_.add({0, steps_, memory_.slots - std::uint64_t{1}, tiering_.leaves, tiering_.reads,
                  disk_.slots - std::uint64_t{disk_.slots > 0}});
  }

  std::uint64_t steps_;
  adjoint_tier memory_, disk_;
  detail::adjoint::tiering tiering_;
  detail::adjoint::actions actions_;
  std::vector<double> cost_before_;  // [i]: the cost of all steps before step i; empty: all cost the same
};

/// The actions for a number of steps that is not known before the last one \cite wang2009dynamic.
///
/// Until `finish` is called, the actions keep the current state and advance by one step, again and again. Which state
/// gives up its slot is chosen so that the march may end at any time. `finish` says that it has ended, at the current
/// state. Then the steps between the kept states are reversed by Revolve, with the slots that are free by then.
///
/// With s slots and l steps, no step is run forward more than r + 1 times, where r is the least number with C(s + r, r)
/// ≥ l; if l is known, the least is r. `most_advances` is the bound that follows.
///
/// Memory: a record for each slot in use. Time of an action: O(s) before the end, and that of `adjoint_sequence` after
/// it.
///
///     online_adjoint march(20);
///     for (adjoint_action a = march.next(); a.verb != adjoint_verb::done; a = march.next()) {
///       …                                                                   // do what `a` says
///       if (a.verb == adjoint_verb::advance && !march.finished() && is_last) march.finish();
///     }
class online_adjoint {
 public:
  /// Keeps `slots` states in memory at most. Throws `bad_argument` if there are none.
  explicit online_adjoint(std::uint32_t slots) : slots_(slots), actions_(slots, 0) {
    if (slots == 0) throw bad_argument("online_adjoint: the memory needs at least one slot, for state 0");
  }

  /// The next action; `done` after the last one, again and again.
  [[nodiscard]] adjoint_action next() {
    if (finished_) return actions_.next({slots_, {}});
    // A single slot keeps state 0.
    if (is_kept_ || (slots_ == 1 && steps_ > 0)) {
      is_kept_ = false;
      ++steps_;
      return {adjoint_verb::advance, steps_ - 1, steps_, {}};
    }
    if (kept_.size() == slots_) return give_up_one();
    if (kept_.empty()) level_ = std::numeric_limits<std::uint32_t>::max();  // state 0 stays
    kept_.push_back({steps_, level_, free_slot_});
    level_ = 0;
    free_slot_ = static_cast<std::uint32_t>(kept_.size());
    is_kept_ = true;
    return {adjoint_verb::store, steps_, steps_, {0, kept_.back().slot}};
  }

  /// The march has ended at the current state; its steps are reversed from now on. Throws `bad_argument` unless the
  /// last action was an advance before the end. O(s) time.
  void finish() {
    if (finished_ || is_kept_ || steps_ == 0)
      throw bad_argument("online_adjoint: finish() must follow an advance, and be called once");
    detail::adjoint::check_steps(steps_);
    finished_ = true;
    std::vector<std::uint32_t> order;  // those in use by time, then the others
    std::vector<std::uint32_t> used(std::min<std::uint64_t>(slots_, steps_ + 1));
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      const std::uint64_t end = k + 1 < kept_.size() ? kept_[k + 1].state : steps_;
      actions_.add({kept_[k].state, end, slots_ - 1 - k, 0, 0, 0, detail::adjoint::home::memory});
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
  /// The slots of both tiers that a checker should know.
  [[nodiscard]] std::array<std::uint32_t, 2> slots() const noexcept { return {slots_, 0}; }
  /// An upper bound on all advances for `steps` steps with `slots` slots: (r + 1) · steps. Preconditions: steps < 2³¹,
  /// slots > 0.
  [[nodiscard]] static std::uint64_t most_advances(std::uint64_t steps, std::uint32_t slots) {
    return (detail::binomial::repetitions(steps, slots) + 1) * steps;
  }

 private:
  struct checkpoint {
    std::uint64_t state;
    std::uint32_t level, slot;
  };

  /// A kept state may go if a later one has a higher level. If there is none, the last one goes, and its successor has
  /// the next level.
  adjoint_action give_up_one() {
    std::size_t k = kept_.size() - 1;
    std::uint32_t highest = kept_[k].level;
    while (k > 0 && kept_[k].level >= highest) highest = kept_[k--].level;
    if (kept_[k].level >= highest) {
      k = kept_.size() - 1;
      level_ = kept_[k].level + 1;
    }
    const checkpoint gone = kept_[k];
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(k));
    free_slot_ = gone.slot;
    return {adjoint_verb::free, gone.state, gone.state, {0, gone.slot}};
  }

  std::uint32_t slots_;
  std::vector<checkpoint> kept_;             // the states that are kept, by time
  std::uint32_t level_ = 0, free_slot_ = 0;  // those of the next state that is kept
  std::uint64_t steps_ = 0;
  bool is_kept_ = false, finished_ = false;
  detail::adjoint::actions actions_;
};

/// The findings of the exact simulation of a sequence.
struct adjoint_report {
  bool legal = true;           ///< every action so far found what it needs
  std::string_view message{};  ///< why it is not legal
  std::uint64_t actions = 0;   ///< the number of legal actions: the first illegal one has this number
  std::uint64_t advances = 0;  ///< the steps that were run forward, without the run of each step for its own reversal
  double cost = 0;             ///< the time of all advances and copies
  std::array<std::uint64_t, 2> stores{};      ///< the copies to each tier
  std::array<std::uint64_t, 2> restores{};    ///< the copies from each tier
  std::array<std::uint32_t, 2> peak_slots{};  ///< the most slots of each tier in use at once
};

/// Runs any sequence of actions exactly, whoever made it, one action at a time. It shares no code with the sequences.
/// O(1) time for each action; memory for the slots that are used.
class adjoint_checker {
 public:
  /// `steps` of 0: their number is what the first sweep reaches. The tiers are the limits. `costs[i]` is the time of
  /// step i; without costs it is 1. The costs must outlive the checker.
  explicit adjoint_checker(std::uint64_t steps, const adjoint_tier& memory, const adjoint_tier& disk = {},
                           std::span<const double> costs = {})
      : steps_(steps), left_(steps), tiers_{memory, disk}, costs_(costs) {}

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
    for (std::uint64_t i = a.first; i < a.last && !costs_.empty(); ++i) report_.cost += costs_[i];
    if (costs_.empty()) report_.cost += static_cast<double>(a.last - a.first);
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
    return nullptr;
  }
  const char* copy(const adjoint_action& a) {
    if (a.slot.tier > 1 || a.slot.index >= tiers_[a.slot.tier].slots) return "there is no such slot";
    std::vector<std::uint64_t>& states = states_[a.slot.tier];
    if (states.size() <= a.slot.index) states.resize(a.slot.index + std::size_t{1}, none);
    std::uint64_t& held = states[a.slot.index];
    std::uint32_t& used = used_[a.slot.tier];
    if (a.verb == adjoint_verb::store) {
      if (current_ != a.first) return "the state to store is not the current one";
      if (held != none) return "the slot is in use";
      held = a.first;
      report_.peak_slots[a.slot.tier] = std::max(report_.peak_slots[a.slot.tier], ++used);
      ++report_.stores[a.slot.tier];
      report_.cost += tiers_[a.slot.tier].write;
      return nullptr;
    }
    if (held != a.first) return "the slot does not hold the state";
    if (a.verb == adjoint_verb::free) {
      held = none;
      --used;
    } else {
      current_ = a.first;
      ++report_.restores[a.slot.tier];
      report_.cost += tiers_[a.slot.tier].read;
    }
    return nullptr;
  }

  std::uint64_t steps_, left_;
  std::array<adjoint_tier, 2> tiers_;
  std::span<const double> costs_;
  std::array<std::vector<std::uint64_t>, 2> states_;  // the state in each slot
  std::array<std::uint32_t, 2> used_{};
  std::uint64_t current_ = 0, reached_ = 0;
  bool has_turned_ = false;
  adjoint_report report_;
};

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
void reverse_steps(State state, std::uint64_t steps, std::uint32_t slots, Step step, Reverse reverse) {
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
