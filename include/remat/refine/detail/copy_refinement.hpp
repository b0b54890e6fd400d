// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// Refinement of a schedule with copies by simulated annealing.
///
/// The state is a sequence of computes and the preferences of a `copy_planner`, which decides what is copied and when.
/// So every move is legal and within the budgets if the planner finds memory for it, and its time is that of the
/// simulated engines. The moves:
///
/// - A recomputation is removed: its results are held, or copied if they do not fit.
/// - A tensor is made again before a use of it, mostly one for which it is copied back. The inputs of its operation are
///   made again as well, or held, or come back from the host.
/// - A tensor is preferred more or less for the host, so that another one is copied instead.
/// - A compute takes another place.
class copy_refinement {
 public:
  /// `p` must outlive this object and have a link.
  explicit copy_refinement(const problem& p, std::uint64_t seed = 0)
      : planner(p), graph_(p.graph()), random_(seed), rerunnable_(rerunnable_operations(graph_)) {}
  copy_refinement(const copy_refinement&) = delete;  // its users refer to the planner
  copy_refinement& operator=(const copy_refinement&) = delete;

  copy_planner planner;    ///< places the copies; its `must_stop` may be set
  double temperature = 0;  ///< a temperature in units of time; 0: no move makes the schedule slower

  /// The state of which a `copy_planner` makes a schedule.
  struct state {
    std::vector<std::uint32_t> computes;
    double bytes_exponent = 0, lead = 0;  // the preference's exponent and lead
    std::vector<float> factor{};          // … and each tensor's factor
  };

  /// Begins the random numbers of a seed.
  void begin(std::uint64_t seed) { random_ = random_source(seed); }

  /// Continues from a state, and forgets the best schedule. Returns whether copies make it fit.
  bool start(state from) {
    now_ = std::move(from);
    now_.factor.resize(graph_.num_tensors, 1.0F);
    trial_ = now_.computes;
    best_time_ = std::numeric_limits<double>::infinity();
    new_exponent_ = now_.bytes_exponent;
    new_lead_ = now_.lead;
    time_ = evaluate(best_time_);
    if (!std::isfinite(time_)) return false;
    take();
    return true;
  }

  /// Tries one random move. Returns whether the state changed.
  bool random_move() {
    trial_ = now_.computes;
    new_exponent_ = now_.bytes_exponent;
    new_lead_ = now_.lead;
    changed_tensor_ = none;
    const double longest = time_ + random_tolerance();
    const bool made = !now_.computes.empty() && change_something();
    const double time = made ? evaluate(longest) : std::numeric_limits<double>::infinity();
    if (!(time <= longest)) {
      if (changed_tensor_ != none) now_.factor[changed_tensor_] = old_factor_;
      return false;
    }
    time_ = time;
    take();
    return true;
  }

  /// The time of the present state.
  [[nodiscard]] double time() const noexcept { return time_; }
  /// The best schedule since `start`, its state and its time.
  [[nodiscard]] const schedule& best() const noexcept { return best_; }
  [[nodiscard]] const state& best_state() const noexcept { return best_state_; }
  [[nodiscard]] double best_time() const noexcept { return best_time_; }
  /// How many computes run again, and how many stays on the host the present state has.
  [[nodiscard]] std::size_t num_choices() const noexcept { return recomputations_.size() + stays_.size(); }
  /// Computes of the present state.
  [[nodiscard]] std::size_t size() const noexcept { return now_.computes.size(); }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  bool change_something() {
    const std::uint32_t kind = random_.below(16);
    if (kind < 5) return remove_recomputation();
    if (kind < 10) return recompute_somewhere();
    if (kind < 13) return change_factor();
    if (kind < 14) return change_preference();
    return shift();
  }

  double evaluate(double longest) {
    return planner.place(trial_, {new_exponent_, new_lead_, now_.factor}, 1, with_rounding(longest));
  }

  double random_tolerance() { return temperature <= 0 ? 0 : -temperature * std::log(1.0 - random_.uniform()); }

  /// Takes what the planner has planned last as the state.
  void take() {
    now_.computes = planner.computes();
    now_.bytes_exponent = new_exponent_;
    now_.lead = new_lead_;
    const auto n = static_cast<std::uint32_t>(now_.computes.size());
    runs_.begin.assign(graph_.num_operations + 1, 0);
    for (const std::uint32_t o : now_.computes) ++runs_.begin[o + 1];
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) runs_.begin[o + 1] += runs_.begin[o];
    runs_.values.resize(n);
    fill_.assign(runs_.begin.begin(), runs_.begin.end() - 1);
    recomputations_.clear();
    for (std::uint32_t k = 0; k < n; ++k) {
      const std::uint32_t o = now_.computes[k];
      if (fill_[o] != runs_.begin[o] && rerunnable_[o]) recomputations_.push_back(k);
      runs_.values[fill_[o]++] = k;
    }
    stays_.clear();
    for (std::size_t i = 0; i < planner.num_stays(); ++i) stays_.push_back(planner.stay_of(i));
    if (time_ < best_time_) {
      best_time_ = time_;
      best_ = planner.steps();
      best_state_ = now_;
    }
  }

  bool remove_recomputation() {
    if (recomputations_.empty()) return false;
    const std::uint32_t k = recomputations_[random_.below(recomputations_.size())];
    trial_.erase(trial_.begin() + k);
    return true;
  }

  [[nodiscard]] bool is_recomputable(std::uint32_t t) const {
    return graph_.producers[t].size() == 1 && rerunnable_[graph_.producers[t][0]] != 0;
  }

  /// The first run of `o` at or after place `k`, or `none`.
  [[nodiscard]] std::uint32_t next_run(std::uint32_t o, std::uint32_t k) const {
    for (const std::uint32_t at : runs_[o])
      if (at >= k) return at;
    return none;
  }
  [[nodiscard]] bool has_run(std::uint32_t o, std::uint32_t k) const { return !runs_[o].empty() && runs_[o][0] < k; }

  /// True if the value of `t` before place `k` is read later.
  [[nodiscard]] bool is_live(std::uint32_t t, std::uint32_t k) const {
    std::uint32_t write = none, read = none;
    for (const std::uint32_t o : graph_.producers[t]) write = std::min(write, next_run(o, k));
    for (const std::uint32_t o : graph_.consumers[t]) read = std::min(read, next_run(o, k));
    return read != none ? read < write : write == none && graph_.final_output[t] != 0;
  }

  bool recompute_somewhere() {
    std::uint32_t t = none, k = none;
    if (!stays_.empty() && random_.below(3) != 0) {
      const copy_planner::stay& s = stays_[random_.below(stays_.size())];
      t = s.tensor;
      k = s.to;
    } else {
      k = random_.below(now_.computes.size());
      const auto inputs = graph_.inputs[now_.computes[k]];
      if (inputs.empty()) return false;
      t = inputs[random_.below(inputs.size())];
    }
    if (!is_recomputable(t)) return false;
    inserted_.clear();
    if (!recompute(t, k, 0)) return false;
    trial_.insert(trial_.begin() + k, inserted_.begin(), inserted_.end());
    return true;
  }

  /// Appends to `inserted_` the operations that make `t` before place `k`.
  bool recompute(std::uint32_t t, std::uint32_t k, std::uint32_t depth) {
    const std::uint32_t o = graph_.producers[t][0];
    if (depth > 50 || !has_run(o, k) || (k > 0 && now_.computes[k - 1] == o)) return false;
    if (std::find(inserted_.begin(), inserted_.end(), o) != inserted_.end()) return true;
    for (const std::uint32_t u : graph_.inputs[o]) {
      if (is_live(u, k)) continue;
      if (graph_.producers[u].size() != 1) return false;
      if (!is_recomputable(u) || random_.below(2) == 0) continue;  // held, or copied
      if (!recompute(u, k, depth + 1)) return false;
    }
    inserted_.push_back(o);
    return true;
  }

  bool change_factor() {
    std::uint32_t t = none;
    if (!stays_.empty() && random_.below(2) != 0)
      t = stays_[random_.below(stays_.size())].tensor;
    else
      t = random_.below(graph_.num_tensors);
    if (graph_.bytes[t] == 0) return false;
    changed_tensor_ = t;
    float& factor = now_.factor[t];
    old_factor_ = factor;
    factor = random_.below(4) == 0 ? 1 : factor * std::exp2(static_cast<float>(8 * random_.uniform() - 4));
    return factor != old_factor_;
  }

  bool change_preference() {
    if (random_.below(2) == 0)
      new_exponent_ = random_.below(3) == 0 ? 0 : random_.uniform();
    else
      new_lead_ = random_.below(3) == 0 ? 0 : 4 * random_.uniform();
    return true;
  }

  /// Moves a compute to a place near by.
  bool shift() {
    const auto n = static_cast<std::uint32_t>(now_.computes.size());
    std::uint32_t from = random_.below(n);
    if (!recomputations_.empty() && random_.below(2) != 0)
      from = recomputations_[random_.below(recomputations_.size())];
    const std::uint32_t distance = 1 + random_.below(random_.below(4) == 0 ? 60 : 6);
    const bool later = random_.below(2) != 0;
    const std::uint32_t to = later ? std::min(from + distance, n - 1) : from - std::min(distance, from);
    if (from == to || !is_movable(from, to)) return false;
    const auto begin = trial_.begin();
    if (later)
      std::rotate(begin + from, begin + from + 1, begin + to + 1);
    else
      std::rotate(begin + to, begin + from, begin + from + 1);
    return true;
  }

  /// True if the compute at `from` may stand at `to` instead.
  [[nodiscard]] bool is_movable(std::uint32_t from, std::uint32_t to) const {
    const std::uint32_t o = now_.computes[from];
    const std::uint32_t low = std::min(from, to), high = std::max(from, to);
    for (const std::uint32_t t : graph_.outputs[o])
      if (graph_.producers[t].size() != 1) return false;
    for (const std::uint32_t t : graph_.inputs[o])
      for (const std::uint32_t q : graph_.producers[t]) {
        if (!has_run(q, to)) return false;
        // All producers of a tensor come first: stay on the same side of each if there are several.
        if (graph_.producers[t].size() != 1 && next_run(q, low) <= high) return false;
      }
    if (to < from || runs_[o][0] != from) return true;
    for (const std::uint32_t t : graph_.outputs[o])
      for (const std::uint32_t q : graph_.consumers[t])
        if (next_run(q, low) <= high) return false;  // it has nothing to read then
    return true;
  }

  const flat_graph& graph_;
  random_source random_;
  std::vector<std::uint8_t> rerunnable_;
  state now_, best_state_;
  double new_exponent_ = 0, new_lead_ = 0;  // the move's exponent and lead
  double time_ = std::numeric_limits<double>::infinity(), best_time_ = std::numeric_limits<double>::infinity();
  schedule best_;
  std::uint32_t changed_tensor_ = none;        // the tensor whose factor the move has changed
  float old_factor_ = 1;                       // its factor before the move
  index_rows runs_;                            // operation → its places
  std::vector<std::uint32_t> recomputations_;  // places
  std::vector<copy_planner::stay> stays_;
  std::vector<std::uint32_t> trial_, inserted_, fill_;
};

}  // namespace REMAT_NAMESPACE::detail
