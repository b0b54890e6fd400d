// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/random.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/moves.hpp"
#include "remat/refine/timeline.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

namespace detail::eviction {

/// What eviction prefers: the victim is the tensor of the least
/// cost^cost_exponent · weight / (bytes^bytes_exponent · distance^distance_exponent),
/// where cost is the time to make it again (missing ancestors included) and distance the number of operations up to its
/// next use.
struct preference {
  double cost_exponent = 1;
  double bytes_exponent = 1;
  double distance_exponent = 1;
  /// A recomputation that is to come counts as a use: it shortens the distance of what it reads, and a tensor without
  /// another use stays for it while there is room.
  bool foresee = false;
  /// Where there is no room otherwise, inputs of operations that wait for others may go, and come back later.
  bool desperate = false;
};

/// One pass over the listed order under a budget. Built once for a problem, run under many preferences.
class engine {
 public:
  explicit engine(const problem& p) : step_(p.graph()) {
    const std::size_t n = step_.num_operations, m = step_.num_tensors;
    for (std::uint32_t o = 0; o < n; ++o)
      if (step_.needed[o]) order_.push_back(o);
    uses_.begin.reserve(m + 1);
    for (std::uint32_t t = 0; t < m; ++t) {
      for (const std::uint32_t o : step_.consumers[t])
        if (step_.needed[o]) uses_.values.push_back(o);
      uses_.end_row();
    }
    rerunnable_.assign(n, 0);
    for (std::uint32_t o = 0; o < n; ++o) {
      bool ok = step_.once[o] == 0;
      for (const std::uint32_t t : step_.outputs[o])
        ok = ok && (step_.producers[t].size() == 1 || step_.outputs[o].size() == 1);
      rerunnable_[o] = ok;
    }
    remakable_.assign(m, 1);
    for (std::uint32_t t = 0; t < m; ++t)
      for (const std::uint32_t o : step_.producers[t]) remakable_[t] = remakable_[t] && rerunnable_[o];
    state_.resize(m);
    next_use_.resize(m);
    soonest_.resize(m);
    use_at_.resize(m);
    pins_.resize(m);
    written_.resize(m);
    cost_.resize(m);
    cost_at_.resize(m);
    slot_.resize(m);
    weight_.resize(m);
    seen_.assign(n, 0);
    marked_.assign(m, 0);
    held_.assign(m, 0);
    byte_power_.resize(m);
    distance_power_.resize(n + 2);
  }

  /// Runs the pass. Returns whether it got to the end within `budget`; then `computes()` is the sequence of operations.
  /// `factor`, if not empty, multiplies each tensor's weight. `longest` ends a pass whose computes take more time.
  bool run(std::int64_t budget, const preference& pref, std::span<const float> factor, double longest,
           run_clock& clock) {
    reset(budget, pref, factor, longest);
    for (const std::uint32_t o : order_) {
      now_ = o;
      remaining_ -= step_.time[o];
      clock.work();
      if ((o & 255U) == 0 && clock.should_stop()) return false;
      if (!first_run(o)) return false;
    }
    return make_step_outputs();
  }
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return computes_; }

  /// After a pass that found no room: the tensors that were being made again then, the first one asked for first.
  [[nodiscard]] const std::vector<std::uint32_t>& wanted() const noexcept { return wanted_; }

 private:
  enum : std::uint8_t { unmade, there, missing };
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  static constexpr double infinite = std::numeric_limits<double>::infinity();

  void reset(std::int64_t budget, const preference& pref, std::span<const float> factor, double longest) {
    const std::size_t m = step_.num_tensors;
    budget_ = budget;
    pref_ = pref;
    longest_ = longest;
    memory_ = 0;
    time_ = 0;
    remaining_ = step_.needed_time;
    change_ = 0;
    computes_.clear();
    wanted_.clear();
    there_list_.clear();
    foreseen_pool_.clear();
    foreseen_.assign(m, never);
    std::fill(state_.begin(), state_.end(), std::uint8_t{unmade});
    std::fill(pins_.begin(), pins_.end(), 0U);
    std::fill(written_.begin(), written_.end(), 0U);
    for (std::uint32_t t = 0; t < m; ++t) {
      use_at_[t] = uses_.begin[t];
      next_use_[t] = soonest_[t] = next_use_after(t);
      if (step_.always_resident[t]) state_[t] = there;
    }
    if (pref.bytes_exponent != bytes_exponent_) {
      bytes_exponent_ = pref.bytes_exponent;
      for (std::uint32_t t = 0; t < m; ++t)
        byte_power_[t] = inverse_power(static_cast<double>(std::max<std::int64_t>(step_.bytes[t], 1)), bytes_exponent_);
    }
    if (pref.distance_exponent != distance_exponent_) {
      distance_exponent_ = pref.distance_exponent;
      for (std::size_t d = 0; d < distance_power_.size(); ++d)
        distance_power_[d] = inverse_power(static_cast<double>(std::max<std::size_t>(d, 1)), distance_exponent_);
    }
    if (factor.empty())
      weight_ = byte_power_;
    else
      for (std::uint32_t t = 0; t < m; ++t) weight_[t] = byte_power_[t] * factor[t];
  }

  /// x^−e, quickly for the exponents that are most used.
  static float inverse_power(double x, double e) {
    return static_cast<float>(e == 1 ? 1 / x : e == 0 ? 1 : e == 0.5 ? 1 / std::sqrt(x) : std::pow(x, -e));
  }

  [[nodiscard]] std::uint32_t next_use_after(std::uint32_t t) const noexcept {
    if (use_at_[t] != uses_.begin[t + 1]) return uses_.values[use_at_[t]];
    return step_.final_output[t] ? step_.num_operations : never;
  }

  /// The first run of `o`, with everything that has to be made again for it.
  bool first_run(std::uint32_t o) {
    if (!make(o)) return false;
    for (const std::uint32_t t : step_.inputs[o]) {
      while (use_at_[t] != uses_.begin[t + 1] && uses_.values[use_at_[t]] <= o) ++use_at_[t];
      next_use_[t] = next_use_after(t);
      soonest_[t] = soonest_use(t);
      if (next_use_[t] == never) drop_dead(t);
    }
    for (const std::uint32_t t : step_.outputs[o])
      if (next_use_[t] == never) drop_dead(t);
    return true;
  }

  /// At the end of the step: those that were evicted come back, and stay.
  bool make_step_outputs() {
    now_ = step_.num_operations;
    for (const std::uint32_t t : step_.final_outputs)
      if (readable(t)) ++pins_[t];
    for (std::size_t round = 0; round <= most_restarts; ++round) {
      bool complete = true;
      for (const std::uint32_t t : step_.final_outputs) {
        while (!readable(t)) {
          complete = false;
          if (!remakable_[t]) return false;
          if (!make(step_.producers[t][state_[t] == there ? written_[t] : 0])) return false;
          if (readable(t)) ++pins_[t];
        }
      }
      if (complete) return true;
    }
    return false;
  }

  /// Uses of a tensor by recomputations to come: a list for each tensor, ascending.
  struct foreseen {
    std::uint32_t at;  // the operation before which `missing` has to be made again
    std::uint32_t missing;
    std::uint32_t next;
  };

  void foresee_use(std::uint32_t t, std::uint32_t at, std::uint32_t missing) {
    std::uint32_t* link = &foreseen_[t];
    while (*link != never && foreseen_pool_[*link].at < at) link = &foreseen_pool_[*link].next;
    const std::uint32_t rest = *link;
    *link = static_cast<std::uint32_t>(foreseen_pool_.size());  // before the pool may move
    foreseen_pool_.push_back({at, missing, rest});
    soonest_[t] = std::min(soonest_[t], at);
  }

  /// The next use of `t`, recomputations that were foreseen included; those before now are forgotten.
  std::uint32_t soonest_use(std::uint32_t t) {
    std::uint32_t& head = foreseen_[t];
    while (head != never && (foreseen_pool_[head].at < now_ || state_[foreseen_pool_[head].missing] == there))
      head = foreseen_pool_[head].next;
    return head == never ? next_use_[t] : std::min(next_use_[t], foreseen_pool_[head].at);
  }

  struct frame {
    std::uint32_t operation;
    std::uint32_t input;  // the next of its inputs to look at
    std::uint32_t again;  // times that it had to begin anew, since an input went while others were made
  };

  static constexpr std::uint32_t most_restarts = 4;

  [[nodiscard]] bool readable(std::uint32_t t) const noexcept {
    return state_[t] == there && (step_.always_resident[t] || written_[t] == step_.producers[t].size());
  }

  /// Runs `o` after its missing inputs, depth first. Inputs that are there are pinned until it has run.
  bool make(std::uint32_t o) {
    frames_.clear();
    frames_.push_back({o, 0, 0});
    while (!frames_.empty()) {
      frame& f = frames_.back();
      const auto inputs = step_.inputs[f.operation];
      bool deeper = false;
      while (f.input < inputs.size()) {
        const std::uint32_t t = inputs[f.input];
        if (readable(t)) {
          ++pins_[t];
          ++f.input;
          continue;
        }
        // Of several producers, those that have not run since the tensor was allocated, one after the other.
        if (!remakable_[t] || frames_.size() > step_.num_operations) return false;
        frames_.push_back({step_.producers[t][state_[t] == there ? written_[t] : 0], 0, 0});
        deeper = true;
        break;
      }
      if (deeper) continue;
      const bool complete = std::all_of(inputs.begin(), inputs.end(), [&](std::uint32_t t) { return readable(t); });
      if (!complete) {
        if (++f.again > most_restarts) return false;
        for (const std::uint32_t t : inputs) --pins_[t];
        f.input = 0;
        continue;
      }
      if (!run_one(f.operation)) return false;
      for (const std::uint32_t t : inputs) --pins_[t];
      const std::uint32_t done = f.operation;
      const bool first = frames_.size() == 1;
      frames_.pop_back();
      if (!first) {
        for (const std::uint32_t t : step_.inputs[done])
          if (next_use_[t] == never && pins_[t] == 0) drop_dead(t);
        // Of what it made, only what the frame below asks for has a use yet.
        const auto wanted = step_.inputs[frames_.back().operation][frames_.back().input];
        for (const std::uint32_t t : step_.outputs[done])
          if (t != wanted && next_use_[t] == never && pins_[t] == 0) drop_dead(t);
      }
    }
    return true;
  }

  bool run_one(std::uint32_t o) {
    std::int64_t need = step_.workspace[o];
    ++hold_;
    for (const std::uint32_t t : step_.inputs[o]) held_[t] = hold_;
    for (const std::uint32_t t : step_.outputs[o]) {
      held_[t] = hold_;
      if (state_[t] != there) need += step_.bytes[t];
    }
    if (!reserve(need)) {
      for (std::size_t i = 0; i + 1 < frames_.size(); ++i)
        wanted_.push_back(step_.inputs[frames_[i].operation][frames_[i].input]);
      return false;
    }
    for (const std::uint32_t t : step_.outputs[o]) {
      if (state_[t] != there) {
        const bool again = state_[t] == missing;
        put(t, 0);
        if (again) mark_stale(t);
      }
      if (written_[t] < step_.producers[t].size()) ++written_[t];
    }
    computes_.push_back(o);
    time_ += step_.time[o];
    return time_ + remaining_ <= longest_;
  }

  /// Allocates `t`, to which `written` of its producers have contributed.
  void put(std::uint32_t t, std::uint32_t written) {
    state_[t] = there;
    written_[t] = written;
    memory_ += step_.bytes[t];
    slot_[t] = static_cast<std::uint32_t>(there_list_.size());
    there_list_.push_back(t);
    cost_at_[t] = never;
  }

  void remove(std::uint32_t t) {
    state_[t] = missing;
    written_[t] = 0;
    memory_ -= step_.bytes[t];
    const std::uint32_t last = there_list_.back();
    there_list_[slot_[t]] = last;
    slot_[last] = slot_[t];
    there_list_.pop_back();
    ++change_;
  }

  /// `t` has no later first use.
  void drop_dead(std::uint32_t t) {
    if (state_[t] != there || step_.always_resident[t] || pins_[t] != 0) return;
    if (written_[t] != step_.producers[t].size() && step_.producers[t].back() > now_) return;
    soonest_[t] = remakable_[t] ? soonest_use(t) : first_use_through_missing(t);
    if (soonest_[t] == never) remove(t);
  }

  /// The first later use of a missing tensor that depends on `t` through missing tensors alone.
  std::uint32_t first_use_through_missing(std::uint32_t t) {
    std::uint32_t first = never;
    ++mark_;
    stack_.assign(1, t);
    while (!stack_.empty()) {
      const std::uint32_t u = stack_.back();
      stack_.pop_back();
      for (const std::uint32_t o : step_.consumers[u])
        for (const std::uint32_t v : step_.outputs[o]) {
          if (state_[v] != missing || marked_[v] == mark_) continue;
          marked_[v] = mark_;
          first = std::min(first, next_use_[v]);
          stack_.push_back(v);
        }
    }
    return first;
  }

  /// `t` is there again: what can be made from it costs less.
  void mark_stale(std::uint32_t t) {
    ++change_;
    ++mark_;
    stack_.assign(1, t);
    std::size_t steps = 0;
    while (!stack_.empty() && steps < 64) {
      const std::uint32_t u = stack_.back();
      stack_.pop_back();
      for (const std::uint32_t o : step_.consumers[u])
        for (const std::uint32_t v : step_.outputs[o]) {
          ++steps;
          if (marked_[v] == mark_ || state_[v] == unmade) continue;
          marked_[v] = mark_;
          if (state_[v] == there)
            cost_at_[v] = never;
          else
            stack_.push_back(v);
        }
    }
  }

  /// Calls `run(o)` for the operations that make `t` again, missing ancestors included, and `read(u)` for what each of
  /// them reads; ends where one of the two returns false, and returns whether none did.
  template <class Run, class Read>
  bool for_each_remake(std::uint32_t t, Run&& run, Read&& read) {
    ++stamp_;
    stack_.clear();
    const auto push_producers = [&](std::uint32_t u) {
      for (const std::uint32_t o : step_.producers[u]) {
        if (seen_[o] == stamp_) continue;
        seen_[o] = stamp_;
        stack_.push_back(o);
      }
    };
    push_producers(t);
    while (!stack_.empty()) {
      const std::uint32_t o = stack_.back();
      stack_.pop_back();
      if (!run(o)) return false;
      for (const std::uint32_t u : step_.inputs[o]) {
        if (!read(u)) return false;
        if (!readable(u)) push_producers(u);
      }
    }
    return true;
  }

  /// Time to make `t` again if it went now: its producers and, for each of their missing inputs, the same.
  double remake_cost(std::uint32_t t) {
    if (!remakable_[t]) return infinite;
    double sum = 0;
    const bool possible = for_each_remake(
        t, [&](std::uint32_t o) { return sum += step_.time[o], true; },
        [&](std::uint32_t u) { return remakable_[u] || readable(u); });
    return possible ? sum : infinite;
  }

  /// `t` has gone: what it is made from is read again at its next use.
  void foresee_remake(std::uint32_t t) {
    const std::uint32_t use = soonest_[t];
    if (use == never) return;
    for_each_remake(
        t, [](std::uint32_t) { return true; }, [&](std::uint32_t u) { return foresee_use(u, use, t), true; });
  }

  [[nodiscard]] double score(std::uint32_t t) const noexcept {
    const std::uint32_t next = soonest_[t];
    const std::uint32_t distance = next == never ? step_.num_operations : next - std::min(next, now_);
    return static_cast<double>(cost_[t]) * weight_[t] * distance_power_[distance];
  }

  void refresh(std::uint32_t t) {
    const double cost = remake_cost(t);
    cost_[t] = pref_.cost_exponent == 1 ? cost : std::pow(cost, pref_.cost_exponent);
    cost_at_[t] = change_;
  }

  struct candidate {
    double score;
    std::uint32_t tensor;
  };
  static bool dearer(const candidate& a, const candidate& b) noexcept {
    return a.score != b.score ? a.score > b.score : a.tensor > b.tensor;
  }

  bool reserve(std::int64_t need) {
    if (memory_ + need <= budget_) return true;
    victims_.clear();
    // Uses that were foreseen and have passed: renew the distances, and let go what has no use left.
    for (std::size_t i = 0; i < there_list_.size(); ++i) {
      const std::uint32_t t = there_list_[i];
      if (soonest_[t] >= now_ || pins_[t] != 0 || held_[t] == hold_ || written_[t] != step_.producers[t].size())
        continue;
      soonest_[t] = remakable_[t] ? soonest_use(t) : std::min(next_use_[t], first_use_through_missing(t));
      if (soonest_[t] != never) continue;
      remove(t);
      --i;
    }
    // What the operation that is about to run reads and writes stays; what waits for operations above it goes last.
    for (const bool pinned : {false, true}) {
      if (pinned && !pref_.desperate) break;
      heap_.clear();
      for (const std::uint32_t t : there_list_) {
        if ((pins_[t] != 0) != pinned || held_[t] == hold_ || step_.bytes[t] == 0) continue;
        if (written_[t] != step_.producers[t].size()) continue;
        if (cost_at_[t] == never) refresh(t);
        if (cost_[t] < infinite) heap_.push_back({score(t), t});
      }
      std::make_heap(heap_.begin(), heap_.end(), dearer);
      while (memory_ + need > budget_ && !heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), dearer);
        const std::uint32_t victim = heap_.back().tensor;
        heap_.pop_back();
        if (cost_at_[victim] != change_) {
          // Its cost is from before other tensors went: it may have risen.
          const double before = cost_[victim];
          refresh(victim);
          if (cost_[victim] > before) {
            if (cost_[victim] < infinite) {
              heap_.push_back({score(victim), victim});
              std::push_heap(heap_.begin(), heap_.end(), dearer);
            }
            continue;
          }
        }
        victims_.push_back(victim);
        remove(victim);
        if (pref_.foresee) foresee_remake(victim);
      }
      if (memory_ + need <= budget_) break;
    }
    if (memory_ + need > budget_) return false;
    // Each may have made an earlier one superfluous: the dearest that still fit stay.
    if (victims_.size() > 1) {
      for (std::size_t i = victims_.size() - 1; i-- > 0;) {
        const std::uint32_t t = victims_[i];
        if (memory_ + need + step_.bytes[t] <= budget_) put(t, static_cast<std::uint32_t>(step_.producers[t].size()));
      }
    }
    return true;
  }

  const flat_graph& step_;
  std::vector<std::uint32_t> order_;
  index_rows uses_;
  std::vector<std::uint8_t> rerunnable_, remakable_;

  std::int64_t budget_ = 0, memory_ = 0;
  preference pref_{};
  double longest_ = 0, time_ = 0, remaining_ = 0;  // remaining: first runs to come
  std::uint32_t now_ = 0, change_ = 0;
  std::vector<std::uint8_t> state_;
  std::vector<std::uint32_t> next_use_, soonest_, use_at_, pins_, written_, slot_, there_list_;
  std::vector<double> cost_;
  std::vector<std::uint32_t> cost_at_;
  double bytes_exponent_ = -1, distance_exponent_ = -1;  // what the powers below are of
  std::vector<float> weight_, byte_power_, distance_power_;
  std::vector<std::uint32_t> computes_, stack_, victims_, wanted_;
  std::vector<std::uint32_t> seen_, marked_, held_;
  std::uint32_t stamp_ = 0, mark_ = 0, hold_ = 0;
  std::vector<frame> frames_;
  std::vector<candidate> heap_;
  std::vector<std::uint32_t> foreseen_;  // tensor → head of its list
  std::vector<foreseen> foreseen_pool_;
};

}  // namespace detail::eviction

struct evict_options {
  /// Passes under random preferences, after the fixed list of them.
  std::uint64_t random_passes = 0;
  /// Tensors to hold on to where there is a choice, for instance the saved set of `turnaround_bound`; may be empty.
  std::vector<tensor_id> keep{};
  bool insist = true;  ///< where the passes find no schedule, go to greater lengths
  run_control run{};
};

/// Offline eviction: the listed order is run; what an operation needs and is not there is made again, and when memory
/// runs out, what costs least to lose goes. It is what DTR \cite kirisame2021dtr does online, with the future known:
/// next uses are exact, dead tensors go at once, and the whole is repeated under other preferences.
///
/// Heuristic: it finds no proof of anything, and may find no schedule where memory is very tight. Where the passes find
/// none, those that failed are repeated with more weight on what they had no room to make again, and last a schedule
/// for a larger budget is squeezed into the true one (`refine_moves::repair`).
/// Time: each pass O(evictions × tensors that are there) plus the cost of what it makes again; memory O(reads +
/// writes). Deterministic. Cancellation: polled every 256 operations of a pass.
struct evict_solver {
  using options_type = evict_options;
  static constexpr std::string_view name = "evict";

  [[nodiscard]] solution operator()(const problem& p, const evict_options& options = {}) const {
    run_clock clock(options.run);
    solution best;
    stop_reason stopped = clock.poll();
    if (stopped == stop_reason::none && prove(p, best, options.run)) {
      conclude(p, best, clock, stopped);
      return best;
    }
    detail::eviction::engine engine(p);
    std::vector<float> kept(p.graph().num_tensors, 1.0F);
    for (const tensor_id t : options.keep) {
      if (index(t) >= kept.size())
        throw bad_argument("evict: there is no tensor " + std::to_string(index(t)) + " to keep");
      kept[index(t)] = 1e4F;
    }
    std::vector<float> factor = kept;
    const auto pass = [&](std::int64_t budget, const detail::eviction::preference& preference, solution& into) {
      stopped = clock.poll();
      if (stopped != stop_reason::none) return false;
      // A pass may run operations in vain that `schedule_computes` leaves out: so somewhat more than the best is let
      // be. Without any, a pass that computes too much again is left to `squeeze`, which does better there.
      const double needed = p.graph().needed_time;
      const double first = budget == p.budget() ? 2.5 * needed : 8 * needed;
      const double longest = into.plan ? into.time + 0.1 * (into.time - needed) : first;
      const bool ok = engine.run(budget, preference, factor, longest, clock);
      if (ok) accept(p.with_budget(budget), into, schedule_computes(p, engine.computes()));
      clock.report(
          {.solver = name, .stage = "eviction", .best_objective = into.time, .lower_bound = p.graph().needed_time});
      return ok;
    };
    for (const detail::eviction::preference& preference : preferences) {
      pass(p.budget(), preference, best);
      if (best.plan && best.time <= p.graph().needed_time) break;
    }
    if (!best.plan && options.insist && stopped == stop_reason::none) squeeze(p, factor, pass, best, options.run.seed);
    if (!best.plan && options.insist && stopped == stop_reason::none) insist(p, engine, factor, pass, best);
    // Random preferences: either anew, or the best ones so far with some of the weights changed.
    random_source random(options.run.seed);
    detail::eviction::preference best_preference = preferences[0];
    std::vector<float> best_factor = kept;
    for (std::uint64_t i = 0; i < options.random_passes && stopped == stop_reason::none; ++i) {
      detail::eviction::preference preference = best_preference;
      if (random.below(4) == 0) {
        preference = preferences[random.below(static_cast<std::uint32_t>(std::size(preferences)))];
        preference.distance_exponent *= 0.5 + random.uniform();
        for (std::size_t t = 0; t < factor.size(); ++t)
          factor[t] = kept[t] * std::exp2(static_cast<float>(2 * random.uniform() - 1));
      } else {
        factor = best_factor;
        const std::uint32_t one_in = 2U << random.below(6);
        for (float& f : factor)
          if (random.below(one_in) == 0) f *= std::exp2(static_cast<float>(4 * random.uniform() - 2));
      }
      const double before = best.time;
      pass(p.budget(), preference, best);
      if (best.time < before) {
        best_preference = preference;
        best_factor = factor;
      }
    }
    if (best.plan && stopped == stop_reason::none) fill(p, best, clock);
    conclude(p, best, clock, stopped == stop_reason::none ? clock.poll() : stopped);
    return best;
  }

 private:
  /// Chosen greedily over the graphs of tests/data at 0.8 … 0.2 of their peaks, the most useful first.
  static constexpr detail::eviction::preference preferences[] = {
      {1, 0.7, 0.3, true}, {1, 1, 0},       {1, 0.5, 0.5},       {1, 1, 1, true},
      {1, 1, 0.3},         {1, 1, 2, true}, {1, 0.5, 0.3, true}, {1, 1, 0.3, true},
  };

  /// Passes that failed, again with more weight on what they were making when there was no room.
  template <class Pass>
  static void insist(const problem& p, detail::eviction::engine& engine, std::vector<float>& factor, Pass& pass,
                     solution& best) {
    for (const bool desperate : {false, true})
      for (detail::eviction::preference preference : preferences) {
        preference.desperate = desperate;
        std::fill(factor.begin(), factor.end(), 1.0F);
        for (int again = 0; again < 8; ++again) {
          if (pass(p.budget(), preference, best)) break;
          if (engine.wanted().empty()) break;
          for (const std::uint32_t t : engine.wanted()) factor[t] *= 2;
        }
        if (best.plan) return;
      }
  }

  /// A schedule for a larger budget, its excess dropped bit by bit.
  template <class Pass>
  static void squeeze(const problem& p, std::vector<float>& factor, Pass& pass, solution& best, std::uint64_t seed) {
    std::fill(factor.begin(), factor.end(), 1.0F);
    for (const double more : {1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0}) {
      const double wide = static_cast<double>(p.budget()) * more;
      if (!(wide < 0x1.0p62)) return;
      const auto budget = static_cast<std::int64_t>(wide);
      solution looser;
      for (const detail::eviction::preference& preference : preferences) pass(budget, preference, looser);
      if (!looser.plan) continue;
      for (std::uint64_t attempt = 0; attempt < 4; ++attempt) {
        timeline plan(p);
        plan.load(*looser.plan);
        refine_moves moves(plan, seed + attempt);
        moves.most_repairs = 4000;
        if (moves.repair(looser.time + 3 * p.graph().needed_time))
          accept(p, best, schedule_computes(p, plan.computes()));
      }
      if (best.plan) return;
    }
  }

  /// What the best pass computes again although it would fit to hold it is held. Where much is computed again, room is
  /// made for it as well, as long as that pays.
  static void fill(const problem& p, solution& best, run_clock& clock) {
    timeline plan(p);
    std::vector<std::pair<double, timeline::node>> runs;
    for (int round = 0; round < 4; ++round) {
      const double before = best.time;
      const double recomputed = best.time - p.graph().needed_time;
      if (round > 0 && recomputed < 0.25 * p.graph().needed_time) return;
      plan.load(*best.plan);
      refine_moves moves(plan, 0);
      moves.most_repairs = round == 0 ? 0 : 12;
      runs.clear();
      for (timeline::node x = plan.next(timeline::head); x != timeline::tail; x = plan.next(x))
        if (plan.removable(x)) runs.emplace_back(-p.graph().time[plan.operation(x)], x);
      std::sort(runs.begin(), runs.end());
      bool changed = false;
      for (const auto& run : runs) {
        if (round > 0 && clock.should_stop()) break;
        changed = moves.retain(run.second) || changed;
      }
      if (changed) accept(p, best, schedule_computes(p, plan.computes()));
      if (round > 0 && before - best.time < 0.02 * recomputed) return;
    }
  }
};
inline constexpr evict_solver evict{};

}  // namespace remat
