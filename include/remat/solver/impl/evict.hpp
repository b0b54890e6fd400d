// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/evict.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/index_rows.hpp"
#include "remat/core/linkage.hpp"
#include "remat/core/random.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/moves.hpp"
#include "remat/refine/timeline.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

namespace detail::eviction {

/// How a pass chooses the tensor to evict: the one of the least
///
///     cost^cost_exponent · factor / (bytes^bytes_exponent · distance^distance_exponent)
///
/// *cost* is the time to recompute the tensor now, missing ancestors included; *distance* is the number of operations
/// up to its next use; *factor* is the tensor's own (see `eviction_pass::run`).
struct eviction_weights {
  double cost_exponent = 1;
  double bytes_exponent = 1;
  double distance_exponent = 1;
  /// A recomputation to come counts as a use: it shortens the distance of the tensors that it reads, and a tensor
  /// without another use is kept for it while there is room.
  bool foresee_recomputations = false;
  /// Where there is no other room, evict inputs of operations that wait for a recomputation; they are recomputed later.
  bool evict_pinned = false;
};

/// Chosen greedily over the graphs of tests/data at 0.8 … 0.2 of their peaks, the most useful first.
inline constexpr eviction_weights fixed_weights[] = {
    {1, 0.7, 0.3, true}, {1, 1, 0},       {1, 0.5, 0.5},       {1, 1, 1, true},
    {1, 1, 0.3},         {1, 1, 2, true}, {1, 0.5, 0.3, true}, {1, 1, 0.3, true},
};

/// One pass over the listed order under a budget. Built once for a problem, run with many weights.
class eviction_pass {
 public:
  explicit eviction_pass(const problem& p) : graph_(p.graph()) {
    const std::size_t n = graph_.num_operations, m = graph_.num_tensors;
    for (std::uint32_t o = 0; o < n; ++o)
      if (graph_.needed[o]) order_.push_back(o);
    uses_.begin.reserve(m + 1);
    for (std::uint32_t t = 0; t < m; ++t) {
      for (const std::uint32_t o : graph_.consumers[t])
        if (graph_.needed[o]) uses_.values.push_back(o);
      uses_.end_row();
    }
    rerunnable_.assign(n, 0);
    for (std::uint32_t o = 0; o < n; ++o) {
      bool ok = graph_.once[o] == 0;
      for (const std::uint32_t t : graph_.outputs[o])
        ok = ok && (graph_.producers[t].size() == 1 || graph_.outputs[o].size() == 1);
      rerunnable_[o] = ok;
    }
    recomputable_.assign(m, 1);
    for (std::uint32_t t = 0; t < m; ++t)
      for (const std::uint32_t o : graph_.producers[t]) recomputable_[t] = recomputable_[t] && rerunnable_[o];
    state_.resize(m);
    next_use_.resize(m);
    soonest_.resize(m);
    use_at_.resize(m);
    pins_.resize(m);
    written_.resize(m);
    cost_.resize(m);
    cost_at_.resize(m);
    slot_.resize(m);
    scaled_factor_.resize(m);
    seen_.assign(n, 0);
    marked_.assign(m, 0);
    held_.assign(m, 0);
    byte_power_.resize(m);
    distance_power_.resize(n + 2);
  }

  /// Runs the pass. Returns whether it reached the end within `budget`; then `computes()` is the sequence of
  /// operations. `factor`: of each tensor. A pass whose computes take more time than `longest` ends early.
  bool run(std::int64_t budget, const eviction_weights& weights, std::span<const float> factor, double longest,
           run_clock& clock) {
    clock_ = &clock;
    reset(budget, weights, factor, longest);
    for (const std::uint32_t o : order_) {
      now_ = o;
      remaining_ -= graph_.time[o];
      clock.work();
      if ((o & 255U) == 0 && clock.should_stop()) return false;
      if (!first_run(o) || stopped_) return false;
    }
    return make_final_outputs() && !stopped_;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return computes_; }

  /// After a pass that found no room: the tensors that it was recomputing then, the first requested one first.
  [[nodiscard]] const std::vector<std::uint32_t>& wanted() const noexcept { return wanted_; }

 private:
  enum : std::uint8_t { unmade, resident, missing };
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  static constexpr double infinite = std::numeric_limits<double>::infinity();

  /// Counts steps of a search; polls the clock, and counts one unit of work, every `poll_stride` of them. Returns
  /// whether the pass must stop.
  bool tick(std::size_t steps = 1) {
    steps_ += steps;
    if (steps_ >= poll_stride) {
      steps_ = 0;
      clock_->work();
      stopped_ = stopped_ || clock_->should_stop();
    }
    return stopped_;
  }

  void reset(std::int64_t budget, const eviction_weights& weights, std::span<const float> factor, double longest) {
    const std::size_t m = graph_.num_tensors;
    budget_ = budget;
    weights_ = weights;
    steps_ = 0;
    stopped_ = false;
    longest_ = longest;
    memory_ = 0;
    time_ = 0;
    remaining_ = graph_.needed_time;
    change_ = 0;
    computes_.clear();
    wanted_.clear();
    resident_tensors_.clear();
    foreseen_pool_.clear();
    foreseen_.assign(m, never);
    std::fill(state_.begin(), state_.end(), std::uint8_t{unmade});
    std::fill(pins_.begin(), pins_.end(), 0U);
    std::fill(written_.begin(), written_.end(), 0U);
    for (std::uint32_t t = 0; t < m; ++t) {
      use_at_[t] = uses_.begin[t];
      next_use_[t] = soonest_[t] = next_use_after(t);
      if (graph_.always_resident[t]) state_[t] = resident;
    }
    if (weights.bytes_exponent != bytes_exponent_) {
      bytes_exponent_ = weights.bytes_exponent;
      for (std::uint32_t t = 0; t < m; ++t)
        byte_power_[t] =
            inverse_power(static_cast<double>(std::max<std::int64_t>(graph_.bytes[t], 1)), bytes_exponent_);
    }
    if (weights.distance_exponent != distance_exponent_) {
      distance_exponent_ = weights.distance_exponent;
      for (std::size_t d = 0; d < distance_power_.size(); ++d)
        distance_power_[d] = inverse_power(static_cast<double>(std::max<std::size_t>(d, 1)), distance_exponent_);
    }
    for (std::uint32_t t = 0; t < m; ++t) scaled_factor_[t] = byte_power_[t] * factor[t];
  }

  /// x^−e, with a shortcut for the most frequent exponents.
  static float inverse_power(double x, double e) {
    return static_cast<float>(e == 1 ? 1 / x : e == 0 ? 1 : e == 0.5 ? 1 / std::sqrt(x) : std::pow(x, -e));
  }

  [[nodiscard]] std::uint32_t next_use_after(std::uint32_t t) const noexcept {
    if (use_at_[t] != uses_.begin[t + 1]) return uses_.values[use_at_[t]];
    return graph_.final_output[t] ? graph_.num_operations : never;
  }

  /// Runs `o` for the first time, after the recomputation of its missing inputs.
  bool first_run(std::uint32_t o) {
    if (!make(o)) return false;
    for (const std::uint32_t t : graph_.inputs[o]) {
      while (use_at_[t] != uses_.begin[t + 1] && uses_.values[use_at_[t]] <= o) ++use_at_[t];
      next_use_[t] = next_use_after(t);
      soonest_[t] = soonest_use(t);
      if (next_use_[t] == never) drop_dead(t);
    }
    for (const std::uint32_t t : graph_.outputs[o])
      if (next_use_[t] == never) drop_dead(t);
    return true;
  }

  /// At the end of the training step: recomputes the final outputs that were evicted, and holds them all.
  bool make_final_outputs() {
    now_ = graph_.num_operations;
    for (const std::uint32_t t : graph_.final_outputs)
      if (readable(t)) ++pins_[t];
    for (std::size_t round = 0; round <= most_restarts; ++round) {
      bool complete = true;
      for (const std::uint32_t t : graph_.final_outputs) {
        while (!readable(t)) {
          complete = false;
          if (!recomputable_[t]) return false;
          if (!make(graph_.producers[t][state_[t] == resident ? written_[t] : 0])) return false;
          if (readable(t)) ++pins_[t];
        }
      }
      if (complete) return true;
    }
    return false;
  }

  /// A use of a tensor by a recomputation to come. Each tensor has a list of them, in ascending order.
  struct foreseen {
    std::uint32_t at;  // the operation before which `missing` has to be recomputed
    std::uint32_t missing;
    std::uint32_t next;
  };

  void foresee_use(std::uint32_t t, std::uint32_t at, std::uint32_t missing) {
    std::uint32_t* link = &foreseen_[t];
    while (*link != never && foreseen_pool_[*link].at < at) {
      link = &foreseen_pool_[*link].next;
      ++steps_;
    }
    const std::uint32_t rest = *link;
    *link = static_cast<std::uint32_t>(foreseen_pool_.size());  // before the pool may move
    foreseen_pool_.push_back({at, missing, rest});
    soonest_[t] = std::min(soonest_[t], at);
  }

  /// The next use of `t`, foreseen recomputations included. Removes those that lie in the past from the list.
  std::uint32_t soonest_use(std::uint32_t t) {
    std::uint32_t& head = foreseen_[t];
    while (head != never && (foreseen_pool_[head].at < now_ || state_[foreseen_pool_[head].missing] == resident))
      head = foreseen_pool_[head].next;
    return head == never ? next_use_[t] : std::min(next_use_[t], foreseen_pool_[head].at);
  }

  struct frame {
    std::uint32_t operation;
    std::uint32_t input;     // the next of its inputs to look at
    std::uint32_t restarts;  // an input was evicted while another one was recomputed
  };

  static constexpr std::uint32_t most_restarts = 4;

  [[nodiscard]] bool readable(std::uint32_t t) const noexcept {
    return state_[t] == resident && (graph_.always_resident[t] || written_[t] == graph_.producers[t].size());
  }

  /// Runs `o` after its missing inputs, depth first. Its resident inputs are pinned until it has run.
  bool make(std::uint32_t o) {
    frames_.clear();
    frames_.push_back({o, 0, 0});
    while (!frames_.empty()) {
      frame& f = frames_.back();
      if (tick()) return false;
      const auto inputs = graph_.inputs[f.operation];
      bool deeper = false;
      while (f.input < inputs.size()) {
        const std::uint32_t t = inputs[f.input];
        if (readable(t)) {
          ++pins_[t];
          ++f.input;
          continue;
        }
        // A tensor of several producers: the next one that has not run since the tensor was allocated.
        if (!recomputable_[t] || frames_.size() > graph_.num_operations) return false;
        frames_.push_back({graph_.producers[t][state_[t] == resident ? written_[t] : 0], 0, 0});
        deeper = true;
        break;
      }
      if (deeper) continue;
      const bool complete = std::all_of(inputs.begin(), inputs.end(), [&](std::uint32_t t) { return readable(t); });
      if (!complete) {
        if (++f.restarts > most_restarts) return false;
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
        for (const std::uint32_t t : graph_.inputs[done])
          if (next_use_[t] == never && pins_[t] == 0) drop_dead(t);
        // The frame below reads one of the outputs; the other ones may have no use.
        const auto wanted = graph_.inputs[frames_.back().operation][frames_.back().input];
        for (const std::uint32_t t : graph_.outputs[done])
          if (t != wanted && next_use_[t] == never && pins_[t] == 0) drop_dead(t);
      }
    }
    return true;
  }

  bool run_one(std::uint32_t o) {
    std::int64_t need = graph_.workspace[o];
    ++hold_;
    for (const std::uint32_t t : graph_.inputs[o]) held_[t] = hold_;
    for (const std::uint32_t t : graph_.outputs[o]) {
      held_[t] = hold_;
      if (state_[t] != resident) need += graph_.bytes[t];
    }
    if (!reserve(need)) {
      for (std::size_t i = 0; i + 1 < frames_.size(); ++i)
        wanted_.push_back(graph_.inputs[frames_[i].operation][frames_[i].input]);
      return false;
    }
    for (const std::uint32_t t : graph_.outputs[o]) {
      if (state_[t] != resident) {
        const bool again = state_[t] == missing;
        put(t, 0);
        if (again) mark_stale(t);
      }
      if (written_[t] < graph_.producers[t].size()) ++written_[t];
    }
    computes_.push_back(o);
    time_ += graph_.time[o];
    return time_ + remaining_ <= longest_;
  }

  /// Allocates `t`. `written`: the number of its producers that have run since.
  void put(std::uint32_t t, std::uint32_t written) {
    state_[t] = resident;
    written_[t] = written;
    memory_ += graph_.bytes[t];
    slot_[t] = static_cast<std::uint32_t>(resident_tensors_.size());
    resident_tensors_.push_back(t);
    cost_at_[t] = never;
  }

  void remove(std::uint32_t t) {
    state_[t] = missing;
    written_[t] = 0;
    memory_ -= graph_.bytes[t];
    const std::uint32_t last = resident_tensors_.back();
    resident_tensors_[slot_[t]] = last;
    slot_[last] = slot_[t];
    resident_tensors_.pop_back();
    ++change_;
  }

  /// Frees `t`, which no first run reads later, unless a recomputation needs it.
  void drop_dead(std::uint32_t t) {
    if (state_[t] != resident || graph_.always_resident[t] || pins_[t] != 0) return;
    if (written_[t] != graph_.producers[t].size() && graph_.producers[t].back() > now_) return;
    soonest_[t] = recomputable_[t] ? soonest_use(t) : first_use_through_missing(t);
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
      for (const std::uint32_t o : graph_.consumers[u]) {
        ++steps_;
        for (const std::uint32_t v : graph_.outputs[o]) {
          if (state_[v] != missing || marked_[v] == mark_) continue;
          marked_[v] = mark_;
          first = std::min(first, next_use_[v]);
          stack_.push_back(v);
        }
      }
    }
    tick();
    return first;
  }

  /// `t` was recomputed, so tensors that are made from it cost less now. Looks at some 64 of them.
  void mark_stale(std::uint32_t t) {
    ++change_;
    ++mark_;
    stack_.assign(1, t);
    std::size_t steps = 0;
    while (!stack_.empty() && steps < 64) {
      const std::uint32_t u = stack_.back();
      stack_.pop_back();
      for (const std::uint32_t o : graph_.consumers[u])
        for (const std::uint32_t v : graph_.outputs[o]) {
          ++steps;
          if (marked_[v] == mark_ || state_[v] == unmade) continue;
          marked_[v] = mark_;
          if (state_[v] == resident)
            cost_at_[v] = never;
          else
            stack_.push_back(v);
        }
    }
  }

  /// Calls `run(o)` for each operation that a recomputation of `t` runs, missing ancestors included, and `read(u)` for
  /// each tensor that the operation reads. Ends when one of the two returns false; returns whether none did.
  template <class Run, class Read>
  bool for_each_remake(std::uint32_t t, Run&& run, Read&& read) {
    ++stamp_;
    stack_.clear();
    const auto push_producers = [&](std::uint32_t u) {
      for (const std::uint32_t o : graph_.producers[u]) {
        if (seen_[o] == stamp_) continue;
        seen_[o] = stamp_;
        stack_.push_back(o);
      }
    };
    push_producers(t);
    while (!stack_.empty()) {
      const std::uint32_t o = stack_.back();
      stack_.pop_back();
      if (tick() || !run(o)) return false;
      for (const std::uint32_t u : graph_.inputs[o]) {
        if (!read(u)) return false;
        if (!readable(u)) push_producers(u);
      }
    }
    return true;
  }

  /// The time to recompute `t` if it were evicted now, missing ancestors included.
  double remake_cost(std::uint32_t t) {
    if (!recomputable_[t]) return infinite;
    double sum = 0;
    const bool possible = for_each_remake(
        t, [&](std::uint32_t o) { return sum += graph_.time[o], true; },
        [&](std::uint32_t u) { return recomputable_[u] || readable(u); });
    return possible ? sum : infinite;
  }

  /// `t` was evicted: the tensors from which it is recomputed are read again before its next use.
  void foresee_remake(std::uint32_t t) {
    const std::uint32_t use = soonest_[t];
    if (use == never) return;
    for_each_remake(
        t, [](std::uint32_t) { return true; }, [&](std::uint32_t u) { return foresee_use(u, use, t), true; });
  }

  [[nodiscard]] double score(std::uint32_t t) const noexcept {
    const std::uint32_t next = soonest_[t];
    const std::uint32_t distance = next == never ? graph_.num_operations : next - std::min(next, now_);
    return static_cast<double>(cost_[t]) * scaled_factor_[t] * distance_power_[distance];
  }

  void refresh(std::uint32_t t) {
    const double cost = remake_cost(t);
    cost_[t] = weights_.cost_exponent == 1 ? cost : std::pow(cost, weights_.cost_exponent);
    cost_at_[t] = change_;
  }

  struct candidate {
    double score;
    std::uint32_t tensor;
  };
  static bool costs_more(const candidate& a, const candidate& b) noexcept {
    return a.score != b.score ? a.score > b.score : a.tensor > b.tensor;
  }

  /// Evicts tensors until `need` bytes are free. Returns whether it succeeded.
  bool reserve(std::int64_t need) {
    if (memory_ + need <= budget_) return true;
    forget_past_uses();
    evict_cheapest(need);
    if (memory_ + need > budget_) return false;
    take_back(need);
    return true;
  }

  /// Renews the distances of tensors whose foreseen uses have passed, and frees those without another use.
  void forget_past_uses() {
    for (std::size_t i = 0; i < resident_tensors_.size(); ++i) {
      const std::uint32_t t = resident_tensors_[i];
      if (soonest_[t] >= now_ || pins_[t] != 0 || held_[t] == hold_ || written_[t] != graph_.producers[t].size())
        continue;
      soonest_[t] = recomputable_[t] ? soonest_use(t) : std::min(next_use_[t], first_use_through_missing(t));
      if (soonest_[t] != never) continue;
      remove(t);
      --i;
    }
  }

  /// Evicts the tensors of the least score first. The inputs and outputs of the operation that is about to run stay;
  /// pinned tensors, inputs of operations that wait for it, are evicted last, if at all.
  void evict_cheapest(std::int64_t need) {
    victims_.clear();
    for (const bool pinned : {false, true}) {
      if (pinned && !weights_.evict_pinned) break;
      heap_.clear();
      for (const std::uint32_t t : resident_tensors_) {
        if ((pins_[t] != 0) != pinned || held_[t] == hold_ || graph_.bytes[t] == 0) continue;
        if (written_[t] != graph_.producers[t].size()) continue;
        if (tick()) return;
        if (cost_at_[t] == never) refresh(t);
        if (cost_[t] < infinite) heap_.push_back({score(t), t});
      }
      std::make_heap(heap_.begin(), heap_.end(), costs_more);
      while (memory_ + need > budget_ && !heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), costs_more);
        const std::uint32_t victim = heap_.back().tensor;
        heap_.pop_back();
        if (cost_at_[victim] != change_) {
          // The cost was computed before other tensors were evicted: it may have risen.
          const double before = cost_[victim];
          refresh(victim);
          if (cost_[victim] > before) {
            if (cost_[victim] < infinite) {
              heap_.push_back({score(victim), victim});
              std::push_heap(heap_.begin(), heap_.end(), costs_more);
            }
            continue;
          }
        }
        victims_.push_back(victim);
        remove(victim);
        if (weights_.foresee_recomputations) foresee_remake(victim);
      }
      if (memory_ + need <= budget_) return;
    }
  }

  /// A later victim may have made earlier ones unnecessary: takes those back that still fit, the costliest first.
  void take_back(std::int64_t need) {
    if (victims_.size() < 2) return;
    for (std::size_t i = victims_.size() - 1; i-- > 0;) {
      const std::uint32_t t = victims_[i];
      if (memory_ + need + graph_.bytes[t] <= budget_) put(t, static_cast<std::uint32_t>(graph_.producers[t].size()));
    }
  }

  static constexpr std::size_t poll_stride = 4096;

  const flat_graph& graph_;
  std::vector<std::uint32_t> order_;
  index_rows uses_;
  std::vector<std::uint8_t> rerunnable_, recomputable_;

  std::int64_t budget_ = 0, memory_ = 0;
  eviction_weights weights_{};
  run_clock* clock_ = nullptr;
  std::size_t steps_ = 0;  // of searches, since the last poll
  bool stopped_ = false;
  double longest_ = 0, time_ = 0, remaining_ = 0;  // remaining: first runs to come
  std::uint32_t now_ = 0, change_ = 0;
  std::vector<std::uint8_t> state_;
  std::vector<std::uint32_t> next_use_, soonest_, use_at_, pins_, written_, slot_, resident_tensors_;
  std::vector<double> cost_;
  std::vector<std::uint32_t> cost_at_;
  double bytes_exponent_ = -1, distance_exponent_ = -1;  // of the two tables of powers
  std::vector<float> scaled_factor_, byte_power_, distance_power_;
  std::vector<std::uint32_t> computes_, stack_, victims_, wanted_;
  std::vector<std::uint32_t> seen_, marked_, held_;
  std::uint32_t stamp_ = 0, mark_ = 0, hold_ = 0;
  std::vector<frame> frames_;
  std::vector<candidate> heap_;
  std::vector<std::uint32_t> foreseen_;  // tensor → the first of its list
  std::vector<foreseen> foreseen_pool_;
};

/// The passes, repairs and fill of one call of `evict`.
class eviction_search {
 public:
  eviction_search(const problem& p, const evict_options& options, run_clock& clock, solution& best)
      : p_(p), options_(options), clock_(clock), best_(best), pass_(p), kept_(p.graph().num_tensors, 1.0F) {
    for (const tensor_id t : options.keep) kept_[index(t)] = kept_factor;
    factor_ = kept_;
  }

  void run() {
    for (const eviction_weights& weights : fixed_weights) {
      run_pass(p_.budget(), weights, best_);
      if (best_.plan && best_.time <= p_.graph().needed_time) break;
    }
    if (!best_.plan && options_.insist && !stopped()) squeeze();
    if (!best_.plan && options_.insist && !stopped()) repeat_failed_passes();
    run_random_passes();
    if (best_.plan && !stopped()) fill();
    if (!stopped()) stopped_ = clock_.poll();
  }

  [[nodiscard]] stop_reason reason() const noexcept { return stopped_; }

 private:
  [[nodiscard]] bool stopped() const noexcept { return stopped_ != stop_reason::none; }

  /// Makes one pass and offers its schedule to `into`. Returns whether the pass reached the end.
  bool run_pass(std::int64_t budget, const eviction_weights& weights, solution& into) {
    stopped_ = clock_.poll();
    if (stopped()) return false;
    // A pass may run operations in vain that `schedule_computes` leaves out: so it may take somewhat more time than the
    // best schedule. Without any, a pass that recomputes too much is left to `squeeze`, which does better there.
    const double needed = p_.graph().needed_time;
    const double first = budget == p_.budget() ? 2.5 * needed : 8 * needed;
    const double longest = into.plan ? into.time + 0.1 * (into.time - needed) : first;
    const bool complete = pass_.run(budget, weights, factor_, longest, clock_);
    if (complete) accept(p_.with_budget(budget), into, schedule_computes(p_, pass_.computes()));
    progress news;
    news.solver = evict_solver::name;
    news.stage = "eviction";
    news.best_objective = into.time;
    news.lower_bound = needed;
    clock_.report(news);
    return complete;
  }

  /// Repairs schedules for larger budgets until one fits: their excess is dropped tensor by tensor.
  void squeeze() {
    std::fill(factor_.begin(), factor_.end(), 1.0F);
    for (const double more : {1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0}) {
      const double wide = static_cast<double>(p_.budget()) * more;
      if (!(wide < 0x1.0p62)) return;
      solution looser;
      for (const eviction_weights& weights : fixed_weights) run_pass(static_cast<std::int64_t>(wide), weights, looser);
      for (std::uint64_t attempt = 0; looser.plan && attempt < 4 && !stopped(); ++attempt) {
        timeline plan(p_);
        plan.load(*looser.plan);
        refine_moves moves(plan, options_.run.seed + attempt);
        moves.most_repairs = 4000;
        moves.must_stop = [this] { return count_work(); };
        if (moves.repair(looser.time + 3 * p_.graph().needed_time))
          accept(p_, best_, schedule_computes(p_, plan.computes()));
      }
      if (best_.plan || stopped()) return;
    }
  }

  /// Repeats passes that failed, with more weight on the tensors that they had no room to recompute.
  void repeat_failed_passes() {
    for (const bool evict_pinned : {false, true})
      for (eviction_weights weights : fixed_weights) {
        weights.evict_pinned = evict_pinned;
        std::fill(factor_.begin(), factor_.end(), 1.0F);
        for (int repeat = 0; repeat < 8; ++repeat) {
          if (run_pass(p_.budget(), weights, best_) || pass_.wanted().empty()) break;
          for (const std::uint32_t t : pass_.wanted()) factor_[t] *= 2;
        }
        if (best_.plan || stopped()) return;
      }
  }

  /// Passes with random weights: new ones, or the best ones so far with some of the tensors' factors changed.
  void run_random_passes() {
    random_source random(options_.run.seed);
    eviction_weights best_weights = fixed_weights[0];
    std::vector<float> best_factor = kept_;
    for (std::uint64_t i = 0; i < options_.random_passes && !stopped(); ++i) {
      eviction_weights weights = best_weights;
      if (random.below(4) == 0) {
        weights = fixed_weights[random.below(std::size(fixed_weights))];
        weights.distance_exponent *= 0.5 + random.uniform();
        for (std::size_t t = 0; t < factor_.size(); ++t)
          factor_[t] = kept_[t] * std::exp2(static_cast<float>(2 * random.uniform() - 1));
      } else {
        factor_ = best_factor;
        const std::uint32_t one_in = 2U << random.below(6);
        for (float& f : factor_)
          if (random.below(one_in) == 0) f *= std::exp2(static_cast<float>(4 * random.uniform() - 2));
      }
      const double before = best_.time;
      run_pass(p_.budget(), weights, best_);
      if (best_.time < before) {
        best_weights = weights;
        best_factor = factor_;
      }
    }
  }

  /// Holds tensors that the best schedule recomputes although they fit. Where much is recomputed, the later rounds also
  /// make room for them, as long as that pays.
  void fill() {
    timeline plan(p_);
    std::vector<std::pair<double, timeline::node>> recomputations;  // the negative time of each, the longest first
    for (int round = 0; round < 4; ++round) {
      const double before = best_.time;
      const double recomputed = best_.time - p_.graph().needed_time;
      if (round > 0 && recomputed < 0.25 * p_.graph().needed_time) return;
      plan.load(*best_.plan);
      refine_moves moves(plan, 0);
      moves.most_repairs = round == 0 ? 0 : 12;
      moves.must_stop = [this] { return count_work(); };
      recomputations.clear();
      for (timeline::node x = plan.next(timeline::head); x != timeline::tail; x = plan.next(x))
        if (plan.removable(x)) recomputations.emplace_back(-p_.graph().time[plan.operation(x)], x);
      std::sort(recomputations.begin(), recomputations.end());
      bool changed = false;
      for (const auto& run : recomputations) {
        if (count_work()) break;
        changed = moves.retain(run.second) || changed;
      }
      if (changed) accept(p_, best_, schedule_computes(p_, plan.computes()));
      if (stopped() || (round > 0 && before - best_.time < 0.02 * recomputed)) return;
    }
  }

  /// Counts one unit of work. Returns whether the search must stop.
  bool count_work() {
    clock_.work();
    stopped_ = clock_.poll();
    return stopped();
  }

  static constexpr float kept_factor = 1e4F;

  const problem& p_;
  const evict_options& options_;
  run_clock& clock_;
  solution& best_;
  stop_reason stopped_ = stop_reason::none;
  eviction_pass pass_;
  std::vector<float> kept_;    // of a tensor: its factor before any change
  std::vector<float> factor_;  // of a tensor, in the next pass
};

}  // namespace detail::eviction

REMAT_INLINE solution evict_solver::operator()(const problem& p, const evict_options& options) const {
  for (const tensor_id t : options.keep)
    if (index(t) >= p.graph().num_tensors)
      throw bad_argument("evict: there is no tensor " + std::to_string(index(t)) + " to keep");
  run_clock clock(options.run);
  solution best;
  stop_reason stopped = clock.poll();
  if (stopped == stop_reason::none && !prove(p, best, options.run)) {
    detail::eviction::eviction_search search(p, options, clock, best);
    search.run();
    stopped = search.reason();
  }
  conclude(p, best, clock, stopped);
  return best;
}

}  // namespace remat
