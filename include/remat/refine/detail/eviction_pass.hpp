// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/calendar.hpp"
#include "remat/core/detail/indexed_heap.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// How a pass chooses the tensor to evict: the one of the least
///
///     cost · factor / (bytes^bytes_exponent · distance^distance_exponent)
///
/// *cost* is the time to recompute the tensor now, missing ancestors included; *distance* is the number of operations
/// up to its next use; *factor* is given for each tensor.
struct eviction_weights {
  double bytes_exponent = 1;     ///< the exponent of the tensor's size
  double distance_exponent = 1;  ///< the exponent of the distance of its next use
  /// A recomputation to come counts as a use: it shortens the distance of the tensors that it reads, and a tensor
  /// without another use is kept for it as long as the memory suffices.
  bool foresee_recomputations = false;
  /// If evicting all other tensors does not suffice, evict inputs of operations that wait for a recomputation; they are
  /// recomputed later.
  bool evict_pinned = false;
  /// A tensor that cannot be recomputed stays, as long as the memory suffices, also while all that is made from it is
  /// resident: otherwise none of that can be evicted any more.
  bool keep_sources = false;
  /// The missing inputs of an operation whose recomputation needs the most memory beside them are made first, as
  /// expressions are evaluated in few registers \cite sethi1970.
  bool hardest_first = false;
};

/// Weights that are worth a pass each. Chosen greedily over the graphs of tests/data at 0.8 … 0.2 of their peaks, the
/// most useful first.
inline constexpr eviction_weights fixed_weights[] = {
    {0.7, 0.3, true}, {1, 0}, {0.5, 0.5}, {1, 1, true}, {1, 0.3}, {1, 2, true}, {0.5, 0.3, true}, {1, 0.3, true},
};

/// Factor in `eviction_weights` of a tensor to keep.
inline constexpr float kept_factor = 1e4F;

/// Multiplies the factors of some tensors, half of them or few, by 1/4 to 4.
inline void change_some(std::vector<float>& factor, random_source& random) {
  const std::uint32_t one_in = 2U << random.below(6);
  for (float& f : factor)
    if (random.below(one_in) == 0) f *= std::exp2(static_cast<float>(4 * random.uniform() - 2));
}

/// Throws `bad_argument` if `keep` names a tensor that the problem does not have.
inline void require_known_tensors(const problem& p, std::span<const tensor_id> keep) {
  for (const tensor_id t : keep)
    if (index(t) >= p.graph().num_tensors)
      throw bad_argument("evict: there is no tensor " + std::to_string(index(t)) + " to keep");
}

/// The factor of each tensor in `eviction_weights`: large for those to keep.
[[nodiscard]] inline std::vector<float> factor_to_keep(const problem& p, std::span<const tensor_id> keep) {
  std::vector<float> factor(p.graph().num_tensors, 1.0F);
  for (const tensor_id t : keep) factor[index(t)] = kept_factor;
  return factor;
}

/// The costs of copies to the host and back in a pass with copies, of each tensor:
struct copy_costs {
  std::vector<double> out_price, in_price;  ///< the delay by a copy out, and by one back; infinite: not copied
  std::vector<double> out_time, in_time;    ///< how long these copies take

  explicit copy_costs(std::size_t num_tensors = 0)
      : out_price(num_tensors), in_price(num_tensors), out_time(num_tensors), in_time(num_tensors) {}
};

/// One pass of offline eviction: runs the operations in the listed order under a budget, recomputes missing inputs, and
/// evicts a tensor when memory runs out. `evict` explains the method. Built once for a problem, run with many weights.
///
/// With `Copies`, a missing tensor is copied back from the host if that costs less than to recompute it. A copy costs
/// its price, and no less than the time for which the step would wait for it: the pass keeps a clock of each direction
/// of the link. The copies are no part of `computes()`: what is copied back lives on from its last use, and a
/// `copy_planner` finds the copies that this takes.
///
/// A run takes O((reads + evictions) · log(resident tensors)) time, as measured (a candidate may be looked at often
/// before it is evicted), and the time to search for recomputations. It counts one unit of work for each listed
/// operation and for each 4096 steps of a search, and polls as often.
template <bool Copies>
class basic_eviction_pass {
 public:
  /// `p` must outlive this object; its budget is not used.
  explicit basic_eviction_pass(const problem& p) : graph_(p.graph()) {
    const std::size_t n = graph_.num_operations, m = graph_.num_tensors;
    for (std::uint32_t o = 0; o < n; ++o)
      if (graph_.needed[o]) order_.push_back(o);
    uses_.begin.reserve(m + 1);
    for (std::uint32_t t = 0; t < m; ++t) {
      for (const std::uint32_t o : graph_.consumers[t])
        if (graph_.needed[o]) uses_.values.push_back(o);
      uses_.end_row();
    }
    const auto is_rerunnable = [&](std::uint32_t o) {
      const auto outputs = graph_.outputs[o];
      return graph_.once[o] == 0 &&
             (outputs.size() == 1 || std::all_of(outputs.begin(), outputs.end(),
                                                 [&](std::uint32_t t) { return graph_.producers[t].size() == 1; }));
    };
    recomputable_.resize(m);
    for (std::uint32_t t = 0; t < m; ++t) {
      const auto producers = graph_.producers[t];
      recomputable_[t] = std::all_of(producers.begin(), producers.end(), is_rerunnable);
    }
    for (auto* of_tensors : {&use_at_, &next_use_, &soonest_, &cost_at_, &slot_, &marked_, &held_})
      of_tensors->resize(m);
    cost_.resize(m);
    own_time_.resize(m);
    for (std::uint32_t t = 0; t < m; ++t)
      for (const std::uint32_t o : graph_.producers[t]) own_time_[t] += graph_.time[o];
    beside_.resize(m);
    for (std::uint32_t o = 0; o < n; ++o) working_set_.push_back(working_set_bytes(graph_, o));
    can_return_ = recomputable_;
    least_cost_ = own_time_;
    if constexpr (Copies) {
      for (auto* of_tensors : {&made_at_, &evicted_at_}) of_tensors->resize(m);
      met_.resize(m);
      by_copy_.resize(m);
      begin_.assign(n + 2, 0);
      for (std::uint32_t o = 0; o < n; ++o) begin_[o + 1] = begin_[o] + (graph_.needed[o] ? graph_.time[o] : 0);
      begin_[n + 1] = begin_[n];
    }
    scaled_factor_.resize(m);
    seen_.resize(n);
    byte_power_.resize(m);
    distance_power_.resize(n + 2);
  }

  /// Sets the costs of copies in the next runs. Tensors come back from `moment` on: before it, the device is full.
  void set_copies(copy_costs costs, std::uint32_t moment) requires(Copies) {
    costs_ = std::move(costs);
    moment_ = moment;
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
      const bool copies = !graph_.always_resident[t] && costs_.out_price[t] + costs_.in_price[t] < infinite;
      can_return_[t] = recomputable_[t] || copies;
      least_cost_[t] = copies ? std::min(own_time_[t], costs_.in_price[t]) : own_time_[t];
    }
  }
  /// The tensors that the last run has copied back, in order.
  [[nodiscard]] const std::vector<std::uint32_t>& copied() const noexcept requires(Copies) { return copied_; }

  /// Runs the pass. Returns whether it reached the end within `budget` bytes; then `computes()` is a legal sequence.
  /// `factor`: one for each tensor. The pass gives up once its computes take more time than `longest`, and when the
  /// clock says so.
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

  /// The operations in the order in which the last pass ran them. No step may read what some of them make.
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return computes_; }

  /// True if `eviction_weights::keep_sources` makes a difference: in some pass, a tensor that cannot be recomputed had
  /// no use but to recompute what was resident.
  [[nodiscard]] bool met_sources() const noexcept { return met_sources_; }

  /// How far the last pass came before it failed: the operations that ran, then the final outputs that were there at
  /// the end, less a part of one for the bytes that were missing.
  [[nodiscard]] double progress() const noexcept {
    double steps = now_;
    if (now_ == graph_.num_operations)
      for (const std::uint32_t t : graph_.final_outputs) steps += readable(t) ? 1 : 0;
    return steps -
           static_cast<double>(shortfall_) / (static_cast<double>(shortfall_) + static_cast<double>(budget_) + 1);
  }

  /// The tensors that a pass was recomputing when it ran out of memory, in the order of the requests.
  [[nodiscard]] const std::vector<std::uint32_t>& wanted() const noexcept { return wanted_; }

 private:
  enum : std::uint8_t { not_made, resident, missing };  // a tensor's state; missing: evicted, or freed
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  static constexpr double infinite = std::numeric_limits<double>::infinity();

  /// Counts a step of a search; polls the clock, and counts one unit of work, every `poll_stride` steps. Returns
  /// whether the pass must stop.
  bool tick() { return ++steps_ < poll_stride ? stopped_ : poll(); }
  bool poll() {
    steps_ = 0;
    clock_->work();
    stopped_ = stopped_ || clock_->should_stop();
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
    shortfall_ = budget;
    time_ = 0;
    remaining_ = graph_.needed_time;
    change_ = 0;
    computes_.clear();
    wanted_.clear();
    resident_tensors_.clear();
    foreseen_pool_.clear();
    foreseen_.assign(m, never);
    state_.assign(m, not_made);
    pins_.assign(m, 0);
    written_.assign(m, 0);
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
    candidates_.reset(m);
    uses_to_pass_.reset(m, graph_.num_operations);
    passed_.clear();
    sources_.clear();
    is_source_.assign(m, 0);
    if constexpr (Copies) {
      copied_.clear();
      was_made_.assign(m, 0);
      is_on_host_.assign(m, 0);
      waited_ = out_free_ = in_free_ = 0;
    }
  }

  /// x^−e, with short cuts for the most frequent exponents.
  static float inverse_power(double x, double e) {
    return static_cast<float>(e == 1 ? 1 / x : e == 0 ? 1 : e == 0.5 ? 1 / std::sqrt(x) : std::pow(x, -e));
  }

  [[nodiscard]] std::uint32_t next_use_after(std::uint32_t t) const noexcept {
    if (use_at_[t] != uses_.begin[t + 1]) return uses_.values[use_at_[t]];
    return graph_.final_output[t] ? graph_.num_operations : never;
  }

  /// Runs `o` for the first time, after the recomputation of its missing inputs.
  bool first_run(std::uint32_t o) {
    if constexpr (Copies) {
      if (o == moment_) in_free_ = std::max(in_free_, time());
    }
    if (!make(o)) return false;
    for (const std::uint32_t t : graph_.inputs[o]) {
      while (use_at_[t] != uses_.begin[t + 1] && uses_.values[use_at_[t]] <= o) ++use_at_[t];
      next_use_[t] = next_use_after(t);
      set_soonest(t, soonest_use(t));
      drop_if_dead(t);
    }
    for (const std::uint32_t t : graph_.outputs[o]) drop_if_dead(t);
    return true;
  }

  /// Recomputes the final outputs that were evicted, at the end of the training step, and holds them all.
  bool make_final_outputs() {
    now_ = graph_.num_operations;
    for (const std::uint32_t t : graph_.final_outputs)
      if (readable(t)) ++pins_[t];
    for (std::size_t round = 0; round <= max_restarts; ++round) {
      bool complete = true;
      for (const std::uint32_t t : graph_.final_outputs) {
        while (!readable(t)) {
          complete = false;
          if constexpr (Copies) {
            if (copy_is_cheaper(t)) {
              frames_.clear();
              if (!copy_back(t)) return false;
              ++pins_[t];
              continue;
            }
          }
          if (!recomputable_[t] || !make(next_producer(t))) return false;
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

  /// Adds a use of `t` before operation `at` by the recomputation of `evicted`.
  void foresee_use(std::uint32_t t, std::uint32_t at, std::uint32_t evicted) {
    std::uint32_t* link = &foreseen_[t];
    while (*link != never && foreseen_pool_[*link].at < at) {
      link = &foreseen_pool_[*link].next;
      ++steps_;
    }
    const std::uint32_t rest = *link;
    *link = static_cast<std::uint32_t>(foreseen_pool_.size());  // the pool may move after this
    foreseen_pool_.push_back({at, evicted, rest});
    if (at >= soonest_[t]) return;
    soonest_[t] = at;
    if (state_[t] == resident) uses_to_pass_.set(t, at);
  }

  /// The next use of `t`, foreseen recomputations included. Removes those that lie in the past from the list.
  std::uint32_t soonest_use(std::uint32_t t) {
    std::uint32_t& head = foreseen_[t];
    while (head != never && (foreseen_pool_[head].at < now_ || state_[foreseen_pool_[head].missing] == resident))
      head = foreseen_pool_[head].next;
    return head == never ? next_use_[t] : std::min(next_use_[t], foreseen_pool_[head].at);
  }

  /// An operation that waits for the recomputation of its inputs.
  struct frame {
    std::uint32_t operation;
    std::size_t inputs;      // where its inputs begin in `frame_inputs_`
    std::uint32_t input;     // the next of its inputs to look at
    std::uint32_t restarts;  // how often an input was evicted while another one was recomputed
  };

  static constexpr std::uint32_t max_restarts = 4;

  /// True if `t` is resident and all its producers have run.
  [[nodiscard]] bool readable(std::uint32_t t) const noexcept {
    return state_[t] == resident && (graph_.always_resident[t] || written_[t] == graph_.producers[t].size());
  }

  /// The producer that runs next to make a tensor readable: the first that has not run since it was allocated.
  [[nodiscard]] std::uint32_t next_producer(std::uint32_t t) const noexcept {
    return graph_.producers[t][state_[t] == resident ? written_[t] : 0];
  }

  /// Begins to wait for the inputs of `o`.
  void push_frame(std::uint32_t o) {
    const std::size_t begin = frame_inputs_.size();
    frames_.push_back({o, begin, 0, 0});
    frame_inputs_.insert(frame_inputs_.end(), graph_.inputs[o].begin(), graph_.inputs[o].end());
    if (weights_.hardest_first) order_inputs(inputs_of(frames_.back()));
  }

  /// The inputs of the operation of a frame, in the order in which they are made. Valid until the next frame.
  [[nodiscard]] std::span<std::uint32_t> inputs_of(const frame& f) noexcept {
    return {frame_inputs_.data() + f.inputs, graph_.inputs[f.operation].size()};
  }

  /// Those that are there, then the missing ones, those first whose recomputation needs most memory beside them.
  void order_inputs(std::span<std::uint32_t> inputs) {
    const auto is_missing = [&](std::uint32_t t) { return !readable(t); };
    if (std::count_if(inputs.begin(), inputs.end(), is_missing) < 2) return;
    for (const std::uint32_t t : inputs) {
      beside_[t] = std::numeric_limits<std::int64_t>::max();
      if (!is_missing(t)) continue;
      std::int64_t most = 0;
      for_each_recomputation(
          t, [&](std::uint32_t o) { return most = std::max(most, working_set_[o]), true; },
          [](std::uint32_t) { return true; });
      beside_[t] = most - graph_.bytes[t];
    }
    std::stable_sort(inputs.begin(), inputs.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return beside_[a] > beside_[b]; });
  }

  /// Runs `o` after its missing inputs, depth first. Its resident inputs are pinned until it has run.
  bool make(std::uint32_t o) {
    frames_.clear();
    frame_inputs_.clear();
    push_frame(o);
    while (!frames_.empty()) {
      if (tick()) return false;
      frame& f = frames_.back();
      const auto inputs = inputs_of(f);
      for (; f.input < inputs.size() && readable(inputs[f.input]); ++f.input) ++pins_[inputs[f.input]];
      if (f.input < inputs.size()) {
        const std::uint32_t t = inputs[f.input];
        if constexpr (Copies) {
          if (copy_is_cheaper(t)) {
            if (!copy_back(t)) return false;
            continue;
          }
        }
        if (!recomputable_[t] || frames_.size() > graph_.num_operations) return false;
        push_frame(next_producer(t));
        continue;
      }
      if (!std::all_of(inputs.begin(), inputs.end(), [&](std::uint32_t t) { return readable(t); })) {
        if (++f.restarts > max_restarts) return false;
        for (const std::uint32_t t : inputs) unpin(t);
        f.input = 0;
        if (weights_.hardest_first) order_inputs(inputs);
        continue;
      }
      if (!run_one(f.operation)) return false;
      for (const std::uint32_t t : inputs) unpin(t);
      const std::uint32_t done = f.operation;
      frame_inputs_.resize(f.inputs);
      frames_.pop_back();
      if (frames_.empty()) return true;
      for (const std::uint32_t t : graph_.inputs[done]) drop_if_dead(t);
      // The frame below reads one of the outputs; the other ones may have no use.
      const std::uint32_t wanted = inputs_of(frames_.back())[frames_.back().input];
      for (const std::uint32_t t : graph_.outputs[done])
        if (t != wanted) drop_if_dead(t);
    }
    return true;
  }

  /// The time of the step so far, by the clocks of the link.
  [[nodiscard]] double time() const noexcept requires(Copies) { return time_ + waited_; }

  /// The cost to free `t` at the time `evicted`, once it is on the host, and to have it back at the time `at`.
  [[nodiscard]] double cost_to_copy(std::uint32_t t, double evicted, double at) const noexcept requires(Copies) {
    const double in_begin = std::max(in_free_, evicted);
    const double in = std::max(costs_.in_price[t], in_begin + costs_.in_time[t] - at);
    if (is_on_host_[t]) return in;
    return in + std::max(costs_.out_price[t], std::max(out_free_, made_at_[t]) + costs_.out_time[t] - evicted);
  }

  /// Copies `t` to the host, so that it can be freed at the time `evicted`.
  void copy_out(std::uint32_t t, double evicted) requires(Copies) {
    if (std::exchange(is_on_host_[t], 1) != 0) return;
    out_free_ = std::max(out_free_, made_at_[t]) + costs_.out_time[t];
    waited_ += std::max(0.0, out_free_ - evicted);
  }

  /// True if `t`, which is missing, can come back from the host.
  [[nodiscard]] bool may_come_back(std::uint32_t t) const noexcept requires(Copies) {
    return state_[t] == missing && was_made_[t] && costs_.out_price[t] + costs_.in_price[t] < infinite;
  }

  /// True if a missing tensor comes back from the host, rather than by its operations.
  [[nodiscard]] bool copy_is_cheaper(std::uint32_t t) requires(Copies) {
    if (!may_come_back(t)) return false;
    const double copy = cost_to_copy(t, evicted_at_[t], time());
    return !recomputable_[t] || copy <= own_time_[t] || copy <= cost_to_recompute(t);
  }

  /// Copies `t` back from the host. The other inputs of the operation that waits for it stay.
  bool copy_back(std::uint32_t t) requires(Copies) {
    ++hold_;
    if (!frames_.empty())
      for (const std::uint32_t u : inputs_of(frames_.back())) held_[u] = hold_;
    if (!reserve(graph_.bytes[t])) {
      shortfall_ = memory_ + graph_.bytes[t] - budget_;
      return false;
    }
    copy_out(t, evicted_at_[t]);
    in_free_ = std::max(in_free_, evicted_at_[t]) + costs_.in_time[t];
    waited_ += std::max(0.0, in_free_ - time());
    put(t, static_cast<std::uint32_t>(graph_.producers[t].size()));
    mark_stale(t);
    enqueue(t);
    copied_.push_back(t);
    return true;
  }

  void unpin(std::uint32_t t) {
    if (--pins_[t] == 0) enqueue(t);
  }

  /// Runs `o`, whose inputs are readable. Returns false if memory or time does not suffice.
  bool run_one(std::uint32_t o) {
    std::int64_t need = graph_.workspace[o];
    ++hold_;
    for (const std::uint32_t t : graph_.inputs[o]) held_[t] = hold_;
    for (const std::uint32_t t : graph_.outputs[o]) {
      held_[t] = hold_;
      if (state_[t] != resident) need += graph_.bytes[t];
    }
    if (!reserve(need)) {
      shortfall_ = memory_ + need - budget_;
      for (std::size_t i = 0; i + 1 < frames_.size(); ++i) wanted_.push_back(inputs_of(frames_[i])[frames_[i].input]);
      return false;
    }
    for (const std::uint32_t t : graph_.outputs[o]) {
      if (state_[t] != resident) {
        const bool again = state_[t] == missing;
        put(t, 0);
        if (again) mark_stale(t);
      }
      if (written_[t] < graph_.producers[t].size()) ++written_[t];
      enqueue(t);
    }
    computes_.push_back(o);
    time_ += graph_.time[o];
    if constexpr (Copies) {
      for (const std::uint32_t t : graph_.outputs[o])
        if (written_[t] == graph_.producers[t].size()) {
          was_made_[t] = 1;
          made_at_[t] = time();
        }
    }
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
    uses_to_pass_.set(t, soonest_[t]);
  }

  /// Frees or evicts `t`.
  void remove(std::uint32_t t) {
    state_[t] = missing;
    written_[t] = 0;
    if constexpr (Copies) evicted_at_[t] = time();
    memory_ -= graph_.bytes[t];
    const std::uint32_t last = resident_tensors_.back();
    resident_tensors_[slot_[t]] = last;
    slot_[last] = slot_[t];
    resident_tensors_.pop_back();
    candidates_.remove(t);
    uses_to_pass_.remove(t);
    ++change_;
  }

  /// Changes the next use of `t`, and its place among the candidates.
  void set_soonest(std::uint32_t t, std::uint32_t use) {
    soonest_[t] = use;
    if (state_[t] != resident || graph_.always_resident[t]) return;
    uses_to_pass_.set(t, use);
    enqueue(t);
  }

  /// True if `t`, which is resident, may be evicted as far as pins and writes are concerned.
  [[nodiscard]] bool is_evictable(std::uint32_t t) const noexcept {
    return pins_[t] == 0 && written_[t] == graph_.producers[t].size();
  }

  /// Makes `t` a candidate for eviction, or renews its key, if it may be evicted. Whatever makes a tensor evictable, or
  /// its score less, calls this.
  void enqueue(std::uint32_t t) {
    if (state_[t] != resident || !can_return_[t] || graph_.bytes[t] == 0 || !is_evictable(t)) return;
    const double least_cost = cost_at_[t] == never ? least_cost_[t] : cost_[t];
    if (least_cost < infinite) candidates_.set(t, score_of(t, least_cost));
  }

  /// Frees `t` if no first run reads it later and no recomputation needs it.
  void drop_if_dead(std::uint32_t t) {
    if (next_use_[t] != never || state_[t] != resident || graph_.always_resident[t] || pins_[t] != 0) return;
    if (written_[t] != graph_.producers[t].size() && graph_.producers[t].back() > now_) return;
    set_soonest(t, can_return_[t] ? soonest_use(t) : first_use_through<missing_alone>(t));
    if (soonest_[t] == never) free_unused(t);
  }

  /// Frees `t`, which no operation to come reads as things are; but a source may stay.
  void free_unused(std::uint32_t t) {
    const bool is_source = !can_return_[t] && has_use_through<made_tensors>(t);
    met_sources_ = met_sources_ || is_source;
    if (!is_source || !weights_.keep_sources)
      remove(t);
    else if (std::exchange(is_source_[t], 1) == 0)
      sources_.push_back(t);
  }

  /// The tensors through which `first_use_through` goes.
  enum : bool { missing_alone, made_tensors };

  /// The first later use of a tensor that depends on `t` through missing tensors alone, or through any tensors that
  /// have been made and may be made again. Any such use up to `enough` ends the search.
  template <bool Through>
  std::uint32_t first_use_through(std::uint32_t t, std::uint32_t enough = 0) {
    std::uint32_t first = never;
    ++mark_;
    stack_.assign(1, t);
    while (!stack_.empty() && first > enough) {
      const std::uint32_t u = stack_.back();
      stack_.pop_back();
      for (const std::uint32_t o : graph_.consumers[u]) {
        ++steps_;
        for (const std::uint32_t v : graph_.outputs[o]) {
          const bool passes =
              state_[v] == missing || (Through == made_tensors && state_[v] == resident && recomputable_[v]);
          if (!passes || marked_[v] == mark_) continue;
          marked_[v] = mark_;
          first = std::min(first, next_use_[v]);
          stack_.push_back(v);
        }
      }
    }
    tick();
    return first;
  }
  template <bool Through>
  bool has_use_through(std::uint32_t t) {
    return first_use_through<Through>(t, never - 1) != never;
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
          if (marked_[v] == mark_ || state_[v] == not_made) continue;
          marked_[v] = mark_;
          if (state_[v] == resident) {
            cost_at_[v] = never;
            enqueue(v);
          } else {
            stack_.push_back(v);
          }
        }
    }
  }

  /// Calls `run(o)` for each operation that a recomputation of `t` runs, missing ancestors included, and `read(u)` for
  /// each tensor that the operation reads. Ends when one of the two returns false; returns whether none did. Each
  /// tensor that comes back from the host for it adds to `copies_cost_`.
  template <class Run, class Read>
  bool for_each_recomputation(std::uint32_t t, Run&& run, Read&& read) {
    ++stamp_;
    if constexpr (Copies) copies_cost_ = 0;
    stack_.clear();
    const auto push_producers = [&](std::uint32_t u) {
      for (const std::uint32_t o : graph_.producers[u])
        if (std::exchange(seen_[o], stamp_) != stamp_) stack_.push_back(o);
    };
    push_producers(t);
    while (!stack_.empty()) {
      const std::uint32_t o = stack_.back();
      stack_.pop_back();
      if (tick() || !run(o)) return false;
      for (const std::uint32_t u : graph_.inputs[o]) {
        if (!read(u)) return false;
        if (readable(u)) continue;
        if constexpr (Copies) {
          if (may_come_back(u)) {
            const double copy = cost_to_copy(u, evicted_at_[u], time());
            if (!recomputable_[u] || copy <= own_time_[u]) {
              if (std::exchange(met_[u], stamp_) != stamp_) copies_cost_ += copy;
              continue;
            }
          }
        }
        push_producers(u);
      }
    }
    return true;
  }

  /// Computes the cost of `t` anew: the time to bring it back if it were evicted now.
  void refresh(std::uint32_t t) {
    cost_[t] = cost_to_recompute(t);
    cost_at_[t] = change_;
    if constexpr (Copies) {
      by_copy_[t] = 0;
      if (costs_.out_price[t] + costs_.in_price[t] == infinite) return;
      const std::uint32_t use = soonest_[t] == never ? graph_.num_operations : soonest_[t];
      const double copy = cost_to_copy(t, time(), time() + begin_[use] - begin_[std::min(now_, use)]);
      by_copy_[t] = copy <= cost_[t];
      cost_[t] = std::min(cost_[t], copy);
    }
  }

  /// The time to recompute `t` if it were missing now, missing ancestors included.
  double cost_to_recompute(std::uint32_t t) {
    double sum = 0;
    std::int64_t most = 0;
    const auto add_time = [&](std::uint32_t o) {
      sum += graph_.time[o];
      most = std::max(most, working_set_[o]);
      return true;
    };
    const auto is_possible = [&](std::uint32_t u) { return can_return_[u] || readable(u); };
    if (!recomputable_[t] || !for_each_recomputation(t, add_time, is_possible)) return infinite;
    if constexpr (Copies) sum += copies_cost_;
    if (weights_.hardest_first) {
      const double room = std::max(static_cast<double>(budget_ - most), 1e-3 * static_cast<double>(budget_));
      sum *= static_cast<double>(budget_) / room;
    }
    return sum;
  }

  /// `t` was evicted: the tensors from which it is recomputed are read again before its next use.
  void foresee_recomputation(std::uint32_t t) {
    const std::uint32_t use = soonest_[t];
    if (use == never) return;
    const auto foresee = [&](std::uint32_t u) {
      foresee_use(u, use, t);
      return true;
    };
    std::size_t left = most_foreseen;
    for_each_recomputation(
        t, [&](std::uint32_t) { return left-- > 0; }, foresee);
  }

  /// The eviction with the least score is made first.
  [[nodiscard]] double score(std::uint32_t t) const noexcept { return score_of(t, cost_[t]); }
  [[nodiscard]] double score_of(std::uint32_t t, double cost) const noexcept {
    const std::uint32_t next = soonest_[t];
    const std::uint32_t distance = next == never ? graph_.num_operations : next - std::min(next, now_);
    return cost * scaled_factor_[t] * distance_power_[distance];
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
    drop_sources(need, false);
    evict_cheapest(need);
    drop_sources(need, true);
    if (memory_ + need > budget_) return false;
    take_back(need);
    return true;
  }

  /// Renews the distances of tensors whose foreseen uses have passed, and frees those without another use.
  void forget_past_uses() {
    uses_to_pass_.take_before(now_, passed_);
    std::size_t waiting = 0;
    for (std::size_t i = 0; i < passed_.size(); ++i) {
      const std::uint32_t t = passed_[i];
      if (state_[t] != resident || soonest_[t] >= now_) continue;
      if (!is_evictable(t) || held_[t] == hold_) {
        passed_[waiting++] = t;
        continue;
      }
      set_soonest(t, can_return_[t] ? soonest_use(t) : std::min(next_use_[t], first_use_through<missing_alone>(t)));
      if (soonest_[t] == never) free_unused(t);
    }
    passed_.resize(waiting);
  }

  /// Frees tensors that cannot be recomputed, and that no missing tensor depends on, until `need` bytes are free: those
  /// that nothing depends on; if `all`, the others as well. A tensor that is made from those can no longer be evicted.
  void drop_sources(std::int64_t need, bool all) {
    std::size_t left = 0;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const std::uint32_t t = sources_[i];
      const bool stays = memory_ + need <= budget_ || pins_[t] != 0 || held_[t] == hold_ ||
                         (all ? has_use_through<missing_alone>(t) : has_use_through<made_tensors>(t));
      if (stays) {
        sources_[left++] = t;
        continue;
      }
      is_source_[t] = 0;
      remove(t);
    }
    sources_.resize(left);
  }

  /// Evicts the tensors of the least score first. The inputs and outputs of the operation that is about to run stay;
  /// pinned tensors, inputs of operations that wait for it, are evicted last, if at all.
  void evict_cheapest(std::int64_t need) {
    victims_.clear();
    evict_candidates(need);
    if (weights_.evict_pinned && memory_ + need > budget_ && !stopped_) evict_pinned(need);
  }

  /// The key of a candidate is at most its score: scores rise while time passes and tensors are evicted, and `enqueue`
  /// is called when they may fall. So a candidate is only looked at when it comes to the top.
  void evict_candidates(std::int64_t need) {
    aside_.clear();
    while (memory_ + need > budget_ && !candidates_.empty() && !tick()) {
      const std::uint32_t t = candidates_.top();
      if (held_[t] == hold_) aside_.emplace_back(candidates_.key(t), t);
      if (held_[t] == hold_ || !is_evictable(t)) {
        candidates_.remove(t);
        continue;
      }
      const double key = candidates_.key(t);
      if (cost_at_[t] != never && score(t) > key) {
        candidates_.set(t, score(t));
        continue;
      }
      if (cost_at_[t] != change_) {
        // Other tensors were evicted since the cost was computed: it may have risen.
        const double before = cost_at_[t] == never ? -1 : cost_[t];
        refresh(t);
        if (stopped_) break;
        if (cost_[t] == infinite) {
          candidates_.remove(t);
          continue;
        }
        if (cost_[t] > before) {
          candidates_.set(t, score(t));
          continue;
        }
      }
      evict(t);
    }
    for (const auto& [key, t] : aside_) candidates_.set(t, key);
  }

  void evict_pinned(std::int64_t need) {
    heap_.clear();
    for (const std::uint32_t t : resident_tensors_) {
      if (pins_[t] == 0 || held_[t] == hold_ || graph_.bytes[t] == 0) continue;
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
      evict(victim);
    }
  }

  void evict(std::uint32_t victim) {
    victims_.push_back(victim);
    remove(victim);
    if constexpr (Copies) {
      if (by_copy_[victim]) {
        copy_out(victim, evicted_at_[victim]);
        return;
      }
    }
    if (weights_.foresee_recomputations) foresee_recomputation(victim);
  }

  /// A later victim may have made earlier ones unnecessary: takes those back that still fit, the costliest first.
  void take_back(std::int64_t need) {
    if (victims_.size() < 2) return;
    for (std::size_t i = victims_.size() - 1; i-- > 0;) {
      const std::uint32_t t = victims_[i];
      if (memory_ + need + graph_.bytes[t] > budget_) continue;
      put(t, static_cast<std::uint32_t>(graph_.producers[t].size()));
      enqueue(t);
    }
  }

  static constexpr std::size_t poll_stride = 4096;
  /// So many of the operations that a recomputation runs are foreseen. There may be thousands on wide graphs.
  static constexpr std::size_t most_foreseen = 256;

  // The problem.
  const flat_graph& graph_;
  std::vector<std::uint32_t> order_;        // the needed operations
  index_rows uses_;                         // tensor → the needed operations that read it
  std::vector<std::int64_t> working_set_;   // operation → bytes of its inputs, outputs and workspace
  std::vector<std::uint8_t> recomputable_;  // whether each tensor's producers may all run again
  std::vector<std::uint8_t> can_return_;    // … or it can be copied back

  // The arguments of the run.
  std::int64_t budget_ = 0;
  eviction_weights weights_{};
  double longest_ = 0;
  run_clock* clock_ = nullptr;
  std::size_t steps_ = 0;  // steps of searches since the last poll
  bool stopped_ = false;
  bool met_sources_ = false;  // some run met a source

  // The state of the run.
  std::int64_t memory_ = 0;
  std::int64_t shortfall_ = 0;  // the bytes that were missing when memory ran out; the budget if something else did
  double time_ = 0;             // the time of the computes so far
  double remaining_ = 0;        // the time of the first runs to come
  std::uint32_t now_ = 0;
  std::uint32_t change_ = 0;  // counts changes of the set of resident tensors
  std::vector<std::uint32_t> computes_, wanted_;
  std::vector<std::uint32_t> resident_tensors_;
  std::vector<frame> frames_;
  std::vector<std::uint32_t> frame_inputs_;  // the inputs of all frames
  std::vector<std::uint32_t> sources_;       // resident without a use: they serve to recompute what is resident now

  // These members are of each tensor.
  std::vector<std::uint8_t> state_;
  std::vector<std::uint8_t> is_source_;  // it is in `sources_`
  std::vector<std::uint32_t> slot_;      // its index in `resident_tensors_`
  std::vector<std::uint32_t> written_;   // how many of its producers have run since it was allocated
  std::vector<std::uint32_t> pins_;      // how many operations wait with it as an input
  std::vector<std::uint32_t> use_at_;    // its index in `uses_`: the next first run that reads it …
  std::vector<std::uint32_t> next_use_;  // … and that operation
  std::vector<std::uint32_t> soonest_;   // the next use, foreseen recomputations included
  std::vector<std::uint32_t> foreseen_;  // the first of its list in `foreseen_pool_`
  std::vector<foreseen> foreseen_pool_;
  std::vector<double> own_time_;    // the time to run its producers
  std::vector<double> least_cost_;  // … or to copy it back
  std::vector<double> cost_;
  std::vector<std::uint32_t> cost_at_;  // `change_` when the cost was computed, or `never`
  std::vector<std::int64_t> beside_;    // bytes that its recomputation needs beside it
  std::vector<float> scaled_factor_;
  // These members serve copies.
  copy_costs costs_;
  std::vector<double> begin_;             // the time of the first runs before each operation; one more for the end
  std::vector<double> made_at_;           // the compute time when it was complete
  std::vector<double> evicted_at_;        // … and when it left the device last
  std::vector<std::uint8_t> was_made_;    // it has been complete
  std::vector<std::uint8_t> is_on_host_;  // it has been copied out before
  std::vector<std::uint8_t> by_copy_;     // `cost_` is that of a copy
  std::vector<std::uint32_t> met_;        // a mark
  std::vector<std::uint32_t> copied_;
  double copies_cost_ = 0;
  std::uint32_t moment_ = never;
  double waited_ = 0;                  // the time that the computes waited for copies
  double out_free_ = 0, in_free_ = 0;  // when both directions of the link have done what is planned

  indexed_heap candidates_;            // resident tensors that may be evicted
  calendar uses_to_pass_;              // resident tensors, at their `soonest_`
  std::vector<std::uint32_t> passed_;  // those of which it has passed, but which were pinned or held then

  // Tables of powers, and their exponents.
  double bytes_exponent_ = -1, distance_exponent_ = -1;
  std::vector<float> byte_power_, distance_power_;

  // Scratch memory of searches; an entry is marked if it has the present stamp.
  std::vector<std::uint32_t> stack_, victims_;
  std::vector<std::pair<double, std::uint32_t>> aside_;  // candidates that the next operation reads, with their keys
  std::vector<candidate> heap_;
  std::vector<std::uint32_t> seen_, marked_, held_;
  std::uint32_t stamp_ = 0, mark_ = 0, hold_ = 0;
};

using eviction_pass = basic_eviction_pass<false>;
using copying_eviction_pass = basic_eviction_pass<true>;

}  // namespace REMAT_NAMESPACE::detail
