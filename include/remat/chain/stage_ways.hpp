// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/chain_schedule.hpp"
#include "remat/chain/sized_chain.hpp"
#include "remat/chain/stage_chain.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

/// One way to run a stage of a chain: operations of the step, in order; one may be there more than once.
struct stage_way {
  std::vector<std::uint32_t> forward{}, backward{};
};

/// The stages of a graph's chain, each with several ways to run it such that all that its backward needs is kept.
/// \cite zhao2023rockmate
///
/// The first way of a stage is that of `stage_chain`: everything once in its order. A further way has some of the
/// operations of the stage in its forward, which makes all that others read, and a backward that computes again what
/// it lacks. Forwards that keep nothing, and what crosses between stages, are those of `stage_chain`.
///
/// What stays of stage s, kept whole by a way for the backwards of the stages up to t, is counted once:
/// - what s makes and its backward finds there at its start, whether others read it, too, or not;
/// - of the rest that s makes, what a backward of another stage up to t reads, by any of its ways, or a forward of one
///   up to t, unless it is transient;
/// - what earlier stages make and is transient for `stage_chain`, if the backward of this way reads it: else it would
/// be
///   gone with the last forward that reads it. Two stages that hold the same such tensor both count it, and forwards
///   count it with what is transient.
/// All other inputs of a backward are there as inputs of the stage, or as what other stages keep.
///
/// The first way is counted as `stage_chain` does. Of 10,530 schedules for 6,000 random graphs, what `expand` makes
/// never took more time than the counts say (with `standing_time`), and more memory for 6: tested, not proven.
class staged_ways {
 public:
  /// Looks at the step and the chain while it is used. `further[s]`: further ways of stage s, s = 1 … L.
  /// O(L² · ways + reads and writes of all ways) time.
  staged_ways(const flat_graph& step, const stage_chain& chain, std::vector<std::vector<stage_way>> further)
      : step_(step), chain_(chain), ways_(std::move(further)) {
    const std::uint32_t length = chain.length();
    ways_.resize(std::size_t{length} + 1);
    stage_.assign(step.num_operations, stage_chain::nowhere);
    is_forward_.assign(step.num_operations, 0);
    for (std::uint32_t s = 1; s <= length; ++s) {
      stage_way whole;
      whole.forward.assign(chain.forward(s).begin(), chain.forward(s).end());
      whole.backward.assign(chain.backward(s).begin(), chain.backward(s).end());
      for (const std::uint32_t o : whole.forward) {
        stage_[o] = s;
        is_forward_[o] = 1;
      }
      for (const std::uint32_t o : whole.backward) stage_[o] = s;
      ways_[s].insert(ways_[s].begin(), std::move(whole));
    }
    measure();
  }

  [[nodiscard]] const stage_chain& chain() const noexcept { return chain_; }
  [[nodiscard]] std::span<const stage_way> ways(std::uint32_t stage) const noexcept { return ways_[stage]; }

  /// As `sized_stage` and `keep_option` want it, in bytes.
  struct measured_way {
    double time = 0, last_time = 0;
    std::vector<std::int64_t> saved{};  ///< [t], t = s … L
    std::int64_t forward_peak = 0, last_forward_peak = 0, backward_peak = 0;
  };
  [[nodiscard]] const measured_way& measured(std::uint32_t stage, std::size_t way) const noexcept {
    return measured_[stage][way];
  }

  /// The operations of a schedule of the chain, in order, for `schedule_computes`. Steps of the loss stage L + 1 mean
  /// nothing here.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps) const {
    return chain_.expand(steps, [&](const chain_step& k) -> const std::vector<std::uint32_t>* {
      if (k.option == 0) return nullptr;
      const stage_way& way = ways_[k.stage][k.option];
      return k.action == chain_action::backward      ? &way.backward
             : k.action == chain_action::forward_all ? &way.forward
                                                     : nullptr;
    });
  }

  /// The same with each forward of a stage running all of its way, as `stage_chain::expand_whole` does.
  [[nodiscard]] std::vector<std::uint32_t> expand_whole(std::span<const chain_step> steps) const {
    std::vector<std::uint32_t> operations;
    std::vector<std::uint8_t> ran(step_.num_operations, 0);
    for (const chain_step& k : steps) {
      if (k.stage > chain_.length()) continue;
      const stage_way& way = ways_[k.stage][k.action == chain_action::forward_all ? k.option : 0];
      for (const std::uint32_t o :
           k.action == chain_action::backward ? ways_[k.stage][k.option].backward : way.forward) {
        if (ran[o] && (is_forward_[o] ? chain_.runs_once(o) : step_.once[o] != 0)) continue;
        ran[o] = 1;
        operations.push_back(o);
      }
    }
    return operations;
  }

 private:
  /// A stretch of operations read backwards: what runs, what is dropped after each, what has to be there before.
  struct stretch {
    std::vector<std::uint8_t> runs{};                 ///< whether a result of it is wanted
    std::vector<std::vector<std::uint32_t>> drops{};  ///< after each: no longer wanted
    std::vector<std::uint32_t> first{};               ///< wanted at the start
  };

  /// `wanted` at the end, and what operations without outputs read if `effects`: those have run when a stage runs
  /// again.
  [[nodiscard]] stretch look(std::span<const std::uint32_t> operations, std::span<const std::uint32_t> wanted,
                             bool effects = true) {
    stretch out;
    out.runs.assign(operations.size(), 0);
    out.drops.resize(operations.size());
    touched_.clear();
    const auto want = [&](std::uint32_t t) {
      live_[t] = 1;
      met_[t].clear();
      touched_.push_back(t);
    };
    for (const std::uint32_t t : wanted) want(t);
    for (std::size_t i = operations.size(); i-- > 0;) {
      const std::uint32_t o = operations[i];
      const auto open = [&](std::uint32_t t) {
        return live_[t] && std::find(met_[t].begin(), met_[t].end(), o) == met_[t].end();
      };
      bool useful = effects && step_.has_effect(o);
      for (const std::uint32_t t : step_.outputs[o]) useful = useful || open(t);
      out.runs[i] = useful;
      if (!useful) continue;
      for (const std::uint32_t t : step_.outputs[o]) {
        if (open(t)) {
          met_[t].push_back(o);
          if (met_[t].size() == needed_producers_[t]) live_[t] = 0;
        } else if (!live_[t]) {
          out.drops[i].push_back(t);
        }
      }
      for (const std::uint32_t t : step_.inputs[o])
        if (!live_[t]) {
          want(t);
          out.drops[i].push_back(t);
        }
    }
    for (const std::uint32_t t : touched_)
      if (live_[t]) {
        out.first.push_back(t);
        live_[t] = 0;
      }
    return out;
  }

  void measure() {
    const std::uint32_t length = chain_.length();
    live_.assign(step_.num_tensors, 0);
    there_.assign(step_.num_tensors, 0);
    mark_.assign(step_.num_tensors, 0);
    met_.resize(step_.num_tensors);
    needed_producers_.assign(step_.num_tensors, 0);
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t)
      for (const std::uint32_t o : step_.producers[t]) needed_producers_[t] += step_.needed[o];

    // Of each backward, what it finds at its start.
    std::vector<std::vector<stretch>> backward(std::size_t{length} + 1);
    std::vector<std::uint32_t> lowest_other(step_.num_tensors, stage_chain::nowhere);
    for (std::uint32_t s = 1; s <= length; ++s) {
      const std::vector<std::uint32_t> wanted = wanted_behind_backward(s);
      for (const stage_way& w : ways_[s]) {
        backward[s].push_back(look(w.backward, wanted));
        for (const std::uint32_t t : backward[s].back().first)
          if (chain_.made_in(t) != stage_chain::nowhere && chain_.made_in(t) != s)
            lowest_other[t] = std::min(lowest_other[t], s);
      }
    }
    measured_.resize(std::size_t{length} + 1);
    for (std::uint32_t s = 1; s <= length; ++s)
      for (std::size_t k = 0; k < ways_[s].size(); ++k)
        measured_[s].push_back(k == 0 ? of_chain(s, lowest_other)
                                      : measure_way(s, ways_[s][k], backward[s][k], lowest_other));
  }

  /// Gradients that lower stages read, final outputs, and what a lower stage reads of what the forward made.
  [[nodiscard]] std::vector<std::uint32_t> wanted_behind_backward(std::uint32_t s) {
    std::vector<std::uint32_t> wanted;
    for (const std::uint32_t o : ways_[s][0].backward)
      for (const std::uint32_t t : step_.outputs[o])
        if (!mark_[t] && (step_.final_output[t] || read_below(s, t))) {
          mark_[t] = 1;
          wanted.push_back(t);
        }
    for (const std::uint32_t t : wanted) mark_[t] = 0;
    return wanted;
  }
  [[nodiscard]] bool read_below(std::uint32_t s, std::uint32_t t) const { return chain_.lowest_backward_of(t) < s; }

  /// The first way: what the chain says, and what further ways of other stages read sooner than its own.
  [[nodiscard]] measured_way of_chain(std::uint32_t s, const std::vector<std::uint32_t>& lowest_other) const {
    const std::uint32_t length = chain_.length();
    measured_way out;
    out.time = chain_.forward_time(s) + chain_.backward_time(s);
    // Of the last stage the first forward is not run again: there it makes everything.
    out.last_time = (s == length ? chain_.forward_time(s) : chain_.last_forward_time(s)) + chain_.backward_time(s);
    out.forward_peak = chain_.forward_peak(s);
    out.last_forward_peak = chain_.last_forward_peak(s);
    out.backward_peak = chain_.backward_peak(s);
    out.saved.assign(std::size_t{length} + 1, 0);
    for (std::uint32_t t = s; t <= length; ++t) out.saved[t] = chain_.saved_bytes(s, t);
    std::vector<std::uint32_t> sooner;
    for (const std::uint32_t o : ways_[s][0].forward)
      for (const std::uint32_t t : step_.outputs[o])
        if (chain_.made_in(t) == s && !chain_.stands(t) && !chain_.is_transient(t) &&
            lowest_other[t] < chain_.saved_from(t))
          sooner.push_back(t);
    std::sort(sooner.begin(), sooner.end());
    sooner.erase(std::unique(sooner.begin(), sooner.end()), sooner.end());
    for (const std::uint32_t t : sooner)
      for (std::uint32_t j = std::max(s, lowest_other[t]); j < chain_.saved_from(t); ++j)
        out.saved[j] += step_.bytes[t];
    out.backward_peak += out.saved[s] - chain_.saved_bytes(s, s);
    return out;
  }

  [[nodiscard]] measured_way measure_way(std::uint32_t s, const stage_way& way, const stretch& second,
                                         const std::vector<std::uint32_t>& lowest_other) {
    const std::uint32_t length = chain_.length();
    measured_way out;
    // What stays.
    std::vector<std::int64_t> ends(std::size_t{length} + 1, 0);
    std::vector<std::uint32_t> wanted, wanted_last, counted;
    for (const std::uint32_t t : second.first) {
      const std::uint32_t made = chain_.made_in(t);
      if (made == stage_chain::nowhere || chain_.stands(t)) {
        if (made != s) continue;
        wanted.push_back(t);
        wanted_last.push_back(t);
        continue;
      }
      mark_[t] = 1;
      if (made == s) {
        ends[s] += step_.bytes[t];
        wanted.push_back(t);
        wanted_last.push_back(t);
        counted.push_back(t);
      } else if (chain_.is_transient(t)) {
        ends[s] += step_.bytes[t];
        wanted.push_back(t);
        wanted_last.push_back(t);
      }
    }
    std::vector<std::uint32_t> seen;
    for (const std::uint32_t o : ways_[s][0].forward)
      for (const std::uint32_t t : step_.outputs[o]) {
        if (chain_.made_in(t) != s || mark_[t]) continue;
        mark_[t] = 1;
        seen.push_back(t);
        const bool other_backward = lowest_other[t] != stage_chain::nowhere;
        if (chain_.last_read_in(t) > s || other_backward || chain_.stands(t)) wanted.push_back(t);
        if (read_below(s, t) || chain_.stands(t)) wanted_last.push_back(t);
        if (chain_.stands(t) || chain_.is_transient(t)) continue;
        const std::uint32_t from = std::min(lowest_other[t], chain_.first_read_behind(t));
        if (from != stage_chain::nowhere) ends[std::max(s, from)] += step_.bytes[t];
      }
    for (const std::uint32_t t : seen) mark_[t] = 0;
    for (const std::uint32_t t : second.first) mark_[t] = 0;
    out.saved.assign(std::size_t{length} + 1, 0);
    for (std::uint32_t t = s; t <= length; ++t) out.saved[t] = ends[t] + (t == s ? 0 : out.saved[t - 1]);

    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    double time = 0, last = 0, again = 0, first_last = 0;
    out.forward_peak = run_forward(s, way.forward, look(way.forward, wanted), time);
    out.last_forward_peak = run_forward(s, way.forward, look(way.forward, wanted_last), first_last);
    // What only an effect needs is run by the first forward of the stage, and is part of `standing_time`.
    run_forward(s, way.forward, look(way.forward, wanted_last, false), last);
    out.backward_peak = run_backward(s, way.backward, second, counted, out.saved[s], again);
    out.time = time + again;
    // Of the last stage the first forward is not run again: there it makes everything.
    out.last_time = (s == length ? time : last) + again;
    return out;
  }

  /// The peak, the transient part of the input counted until it is gone, gradients not; adds up the time.
  std::int64_t run_forward(std::uint32_t s, std::span<const std::uint32_t> operations, const stretch& what,
                           double& time) {
    std::int64_t memory = chain_.transient_bytes(s - 1), peak = 0;
    const auto ends_here = [&](std::uint32_t t) {
      return chain_.made_in(t) < s && chain_.last_read_in(t) == s && chain_.is_transient(t);
    };
    touched_.clear();
    for (const std::uint32_t o : operations)
      for (const std::uint32_t t : step_.inputs[o])
        if (ends_here(t)) {
          there_[t] = 1;
          touched_.push_back(t);
        }
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (!what.runs[i]) continue;
      const std::uint32_t o = operations[i];
      if (!chain_.runs_once(o)) time += step_.time[o];
      for (const std::uint32_t t : step_.outputs[o])
        if (!there_[t] && !chain_.stands(t)) {
          there_[t] = 1;
          touched_.push_back(t);
          memory += step_.bytes[t];
        }
      peak = std::max(peak, memory + step_.workspace[o]);
      for (const std::uint32_t t : what.drops[i])
        if (there_[t]) {
          there_[t] = 0;
          memory -= step_.bytes[t];
        }
    }
    for (const std::uint32_t t : touched_) there_[t] = 0;
    return peak;
  }

  /// The peak with what was saved and the gradients that wait. `counted` of what is saved is made by the stage.
  [[nodiscard]] std::int64_t run_backward(std::uint32_t s, std::span<const std::uint32_t> operations,
                                          const stretch& what, const std::vector<std::uint32_t>& counted,
                                          std::int64_t saved, double& time) {
    std::int64_t memory = saved + chain_.gradient_bytes(s), peak = memory;
    touched_.clear();
    const auto put = [&](std::uint32_t t) {
      there_[t] = 1;
      touched_.push_back(t);
    };
    for (const std::uint32_t t : counted) put(t);
    for (const std::uint32_t t : what.first)
      if (chain_.made_in(t) == stage_chain::nowhere && made_above(s, t)) put(t);  // gradients
    for (const std::uint32_t o : operations)
      for (const std::uint32_t t : step_.outputs[o])
        if (chain_.made_in(t) == stage_chain::nowhere && made_above(s, t)) put(t);
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (!what.runs[i]) continue;
      const std::uint32_t o = operations[i];
      if (!is_forward_[o] || !chain_.runs_once(o)) time += step_.time[o];
      for (const std::uint32_t t : step_.outputs[o])
        if (!there_[t] && (chain_.made_in(t) == stage_chain::nowhere || !chain_.stands(t))) {
          put(t);
          memory += step_.bytes[t];
        }
      peak = std::max(peak, memory + step_.workspace[o]);
      for (const std::uint32_t t : what.drops[i])
        if (there_[t] && !step_.final_output[t] && !read_below(s, t)) {
          there_[t] = 0;
          memory -= step_.bytes[t];
        }
    }
    for (const std::uint32_t t : touched_) there_[t] = 0;
    return peak;
  }

  [[nodiscard]] bool made_above(std::uint32_t s, std::uint32_t t) const {
    for (const std::uint32_t o : step_.producers[t])
      if (stage_[o] != stage_chain::nowhere && stage_[o] > s) return true;
    return false;
  }

  const flat_graph& step_;
  const stage_chain& chain_;
  std::vector<std::vector<stage_way>> ways_;         // [stage]
  std::vector<std::vector<measured_way>> measured_;  // [stage][way]
  std::vector<std::uint32_t> stage_;                 // of an operation
  std::vector<std::uint8_t> is_forward_;
  std::vector<std::uint32_t> needed_producers_;  // of a tensor
  // While a way is measured.
  std::vector<std::uint8_t> live_, there_, mark_;
  std::vector<std::vector<std::uint32_t>> met_;
  std::vector<std::uint32_t> touched_;
};

namespace detail::persistent {

/// The stages of a graph with all their ways, each size put through `round`.
template <class Round>
[[nodiscard]] sized_chain sized(const staged_ways& w, const Round& round) {
  sized_chain out = sized(w.chain(), round);
  const std::uint32_t length = out.length;
  out.options.clear();
  for (std::uint32_t s = 1; s <= length; ++s) {
    out.stages[s].first_option = static_cast<std::uint32_t>(out.options.size());
    out.options.resize(out.options.size() + w.ways(s).size());
    out.stages[s].last_option = static_cast<std::uint32_t>(out.options.size());
  }
  out.saved_until.assign(out.options.size() * (std::size_t{length} + 1), 0);
  for (std::uint32_t s = 1; s <= length; ++s)
    for (std::uint32_t k = 0; k < w.ways(s).size(); ++k) {
      const staged_ways::measured_way& m = w.measured(s, k);
      keep_option& o = out.options[out.stages[s].first_option + k];
      o.time = m.time;
      o.last_time = m.last_time;
      o.forward_need = round(m.forward_peak);
      o.last_forward_need = round(m.last_forward_peak);
      o.backward_need = round(m.backward_peak);
      for (std::uint32_t t = s; t <= length; ++t)
        out.saved_until[out.at(out.stages[s].first_option + k, t)] = round(m.saved[t]);
    }
  return out;
}

}  // namespace detail::persistent

}  // namespace remat
