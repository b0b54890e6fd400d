// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/offload.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/refine/detail/copy_refinement.hpp"
#include "remat/refine/detail/eviction_pass.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Factor of a tensor that leaves the device before others (`copy_preference::factor`).
inline constexpr float before_all_others = 1000;

/// The factor of each tensor: `before_all_others` if it is one of `chosen`, else 1.
template <class Tensors>
[[nodiscard]] std::vector<float> prefer(const flat_graph& g, const Tensors& chosen) {
  std::vector<float> factor(g.num_tensors, 1.0F);
  for (const auto t : chosen) factor[static_cast<std::size_t>(t)] = before_all_others;
  return factor;
}

/// The costs of copies by the multipliers of the bound, times `scale`: a byte on the host delays the operations before
/// the bound's moment by (1 − a) × the time to copy it out, and those after it by (1 − b) × the time to copy it back.
/// They are at least a twentieth of these times, since the bound of a fast link has no delay.
[[nodiscard]] inline copy_costs prices_by_floor(const problem& p, const offload_bound_result& floor, double scale) {
  constexpr double least = 0.05;
  const flat_graph& g = p.graph();
  const double out = scale * std::max(1 - floor.before, least), in = scale * std::max(1 - floor.after, least);
  copy_costs costs(g.num_tensors);
  for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
    costs.out_time[t] = p.link()->time_out(g.bytes[t]);
    costs.in_time[t] = p.link()->time_in(g.bytes[t]);
    if (!std::isfinite(scale)) {
      costs.out_price[t] = costs.in_price[t] = scale;
      continue;
    }
    costs.out_price[t] = out * costs.out_time[t] + scale * floor.host_multiplier * static_cast<double>(g.bytes[t]);
    costs.in_price[t] = in * costs.in_time[t];
  }
  return costs;
}

/// Places the copies of `computes` by several preferences, with the factors of `state`. A schedule faster than `time`
/// goes to `state` and `time`, and one faster than `best` becomes the answer, as found by `by`. Returns false if it was
/// stopped.
inline bool place_copies(const problem& p, std::span<const std::uint32_t> computes, copy_planner& planner,
                         copy_refinement::state& state, double& time, run_clock& clock, solution& best,
                         const std::string& by) {
  for (const double bytes_exponent : {0.0, 0.5})
    for (const double lead : {0.0, 2.0}) {
      if (clock.should_stop()) return false;
      clock.work(computes.size() * work_of::visit);
      const double now = planner.place(computes, {bytes_exponent, lead, state.factor}, 3, time);
      if (!(now < time)) continue;
      time = now;
      state.computes = planner.computes();
      state.bytes_exponent = bytes_exponent;
      state.lead = lead;
      if (time < best.time) accept(p, best, planner.steps(), by);
    }
  return true;
}

/// The fastest schedules with copies that a solve has found, as states of `copy_refinement`.
class copy_states {
 public:
  /// Keeps the `most` fastest.
  explicit copy_states(std::size_t most) : most_(most) {}

  /// Takes a state whose schedule takes `time`, unless there is one of that time, which is most likely the same.
  void keep(copy_refinement::state state, double time) {
    const auto at = std::lower_bound(entries_.begin(), entries_.end(), time,
                                     [](const auto& entry, double t) { return entry.first < t; });
    if (at != entries_.end() && at->first == time) return;
    entries_.emplace(at, time, std::move(state));
    if (entries_.size() > most_) entries_.pop_back();
  }

  /// The times of the schedules and the states, the fastest first.
  [[nodiscard]] const std::vector<std::pair<double, copy_refinement::state>>& entries() const noexcept {
    return entries_;
  }
  /// The states, the fastest first.
  [[nodiscard]] std::vector<copy_refinement::state> states() const {
    std::vector<copy_refinement::state> out;
    for (const auto& entry : entries_) out.push_back(entry.second);
    return out;
  }

 private:
  std::size_t most_;
  std::vector<std::pair<double, copy_refinement::state>> entries_;
};

/// Makes schedules of sequences of computes: their copies are placed by several preferences. It keeps them in a
/// `copy_states`, and the fastest one in the answer of a solve.
class copy_placement {
 public:
  /// All but `solver` must outlive this object.
  copy_placement(const problem& p, run_clock& clock, solution& best, std::string_view solver, copy_states& states)
      : p_(p),
        clock_(clock),
        best_(best),
        solver_(solver),
        states_(states),
        rerunnable_(rerunnable_operations(p.graph())),
        planner_(p) {
    planner_.must_stop = [this] { return clock_.should_stop(); };
  }
  copy_placement(const copy_placement&) = delete;  // the planner refers to it
  copy_placement& operator=(const copy_placement&) = delete;

  /// Places the copies of `computes`, with `factor` of each tensor, and takes what is found. `by`: which part made the
  /// sequence; empty: the solver itself. Returns the least time of its schedules; infinite if none fits.
  double place(std::span<const std::uint32_t> computes, const std::vector<float>& factor, std::string_view by) {
    double least = std::numeric_limits<double>::infinity();
    copy_refinement::state state;
    state.factor = factor;
    (void)place_copies(p_, computes, planner_, state, least, clock_, best_,
                       by.empty() ? std::string(solver_) : by_part(solver_, by));
    if (std::isfinite(least)) states_.keep(std::move(state), least);
    return least;
  }

  /// No recomputation: the listed order, with copies of what does not fit.
  void place_listed_order() { place(computes_of(listed_order(p_)), {}, "listed"); }

  /// Takes recomputations out of the fastest state, the longest first, as long as the schedule gets no slower: their
  /// results are held, or copied. Returns whether it got faster.
  bool remove_recomputations(std::string_view by) {
    if (states_.entries().empty()) return false;
    const flat_graph& g = p_.graph();
    copy_refinement::state state = states_.entries().front().second;
    double time = states_.entries().front().first;
    const double before = time;
    std::vector<std::pair<double, std::uint32_t>> again;  // negative time, operation that runs more than once
    std::vector<std::uint8_t> ran(g.num_operations, 0);
    for (const std::uint32_t o : state.computes)
      if (std::exchange(ran[o], std::uint8_t{1}) != 0 && rerunnable_[o]) again.emplace_back(-g.time[o], o);
    std::sort(again.begin(), again.end());
    again.erase(std::unique(again.begin(), again.end()), again.end());
    std::vector<std::uint32_t> trial;
    std::uint64_t visits = 0;  // each try takes time that grows with the graph
    for (const auto& [negative_time, o] : again) {
      if (visits > most_visits || clock_.should_stop()) break;
      for (std::size_t run = 1;; ++run) {  // each further run of it
        std::size_t place = 0, met = 0;
        for (; place < state.computes.size() && (state.computes[place] != o || met++ < run); ++place) {
        }
        if (place == state.computes.size()) break;
        visits += state.computes.size();
        if (visits > most_visits || clock_.should_stop()) break;
        clock_.work(state.computes.size() * work_of::visit);
        trial = state.computes;
        trial.erase(trial.begin() + static_cast<std::ptrdiff_t>(place));
        const double now = planner_.place(trial, {state.bytes_exponent, state.lead, state.factor}, 1, time);
        if (!(now < time)) continue;
        time = now;
        state.computes = planner_.computes();
        if (time < best_.time) accept(p_, best_, planner_.steps(), by_part(solver_, by));
        --run;  // the next one has its number now
      }
    }
    if (!(time < before)) return false;
    states_.keep(std::move(state), time);
    return true;
  }

 private:
  static constexpr std::uint64_t most_visits = 10'000'000;  // visits of computes, while recomputations are taken out

  const problem& p_;
  run_clock& clock_;
  solution& best_;
  std::string_view solver_;
  copy_states& states_;
  std::vector<std::uint8_t> rerunnable_;
  copy_planner planner_;
};

}  // namespace REMAT_NAMESPACE::detail
