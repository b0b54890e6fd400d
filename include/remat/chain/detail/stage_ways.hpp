// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/detail/place_frees.hpp"

namespace REMAT_NAMESPACE::detail {

/// One way to run a stage of a chain: operations of the graph, in order. An operation may run more than once.
struct stage_way {
  std::vector<std::uint32_t> forward{};   ///< operations of the forward, in order
  std::vector<std::uint32_t> backward{};  ///< operations of the backward, recomputations included, in order
};

/// The figures of a way: the fields of `keep_option`, in bytes.
struct measured_way {
  double time = 0;                     ///< time of the forward and the backward, in the cost model's unit
  double last_time = 0;                ///< the same, with the forward right before the backward
  std::vector<std::int64_t> saved{};   ///< [t], t = s … L: kept for the backwards of the stages up to t
  std::int64_t forward_peak = 0;       ///< peak of the forward, as `stage_chain::forward_peak` counts it
  std::int64_t last_forward_peak = 0;  ///< the same, with the forward right before the backward
  std::int64_t backward_peak = 0;      ///< peak of the backward, with the saved tensors and the gradients
};

namespace ways {

/// Measures the ways of all stages, one after another.
class measurer {
 public:
  measurer(const flat_graph& g, const stage_chain& chain, const std::vector<std::vector<stage_way>>& ways)
      : graph_(g),
        chain_(chain),
        ways_(ways),
        needed_producers_(g.num_tensors, 0),
        lowest_reader_(g.num_tensors, stage_chain::nowhere),
        place_(g.inputs, g.outputs, needed_producers_),
        there_(g.num_tensors, 0),
        mark_(g.num_tensors, 0) {
    for (std::uint32_t t = 0; t < g.num_tensors; ++t)
      for (const std::uint32_t o : g.producers[t]) needed_producers_[t] += g.needed[o];
  }

  /// [stage][way].
  [[nodiscard]] std::vector<std::vector<measured_way>> measure() {
    const std::uint32_t length = chain_.length();
    std::vector<std::vector<placed_frees>> backward(std::size_t{length} + 1);
    for (std::uint32_t s = 1; s <= length; ++s) {
      const std::vector<std::uint32_t> wanted = wanted_behind_backward(s);
      for (const stage_way& w : ways_[s]) {
        backward[s].push_back(place_(w.backward, wanted));
        for (const std::uint32_t t : backward[s].back().at_start)
          if (const std::uint32_t made = chain_.use_of(t).made_in; made != stage_chain::nowhere && made != s)
            lowest_reader_[t] = std::min(lowest_reader_[t], s);
      }
    }
    std::vector<std::vector<measured_way>> out(std::size_t{length} + 1);
    for (std::uint32_t s = 1; s <= length; ++s)
      for (std::size_t k = 0; k < ways_[s].size(); ++k)
        out[s].push_back(k == 0 ? measure_first(s) : measure_way(s, ways_[s][k], backward[s][k]));
    return out;
  }

 private:
  /// The tensors that the forward of a way makes for others.
  struct kept_tensors {
    std::vector<std::uint32_t> wanted{};       ///< those wanted after a forward
    std::vector<std::uint32_t> wanted_last{};  ///< those wanted after a forward right before its own backward
    std::vector<std::uint32_t> counted{};      ///< those of the stage that its backward finds
    std::vector<std::int64_t> saved{};         ///< [t], t = s … L: bytes
  };

  /// The tensors that must be there after the backward of a stage: gradients that lower stages read, final outputs, and
  /// tensors of the forward that the backward of a lower stage reads.
  [[nodiscard]] std::vector<std::uint32_t> wanted_behind_backward(std::uint32_t s) {
    std::vector<std::uint32_t> wanted;
    for (const std::uint32_t o : ways_[s][0].backward)
      for (const std::uint32_t t : graph_.outputs[o])
        if (!mark_[t] && (graph_.final_output[t] || read_below(s, t))) {
          mark_[t] = 1;
          wanted.push_back(t);
        }
    for (const std::uint32_t t : wanted) mark_[t] = 0;
    return wanted;
  }
  [[nodiscard]] bool read_below(std::uint32_t s, std::uint32_t t) const { return chain_.use_of(t).lowest_backward < s; }

  /// The first way, by the counts of the chain and by what further ways of other stages read earlier.
  [[nodiscard]] measured_way measure_first(std::uint32_t s) const {
    const std::uint32_t length = chain_.length();
    measured_way out;
    const stage_figures& whole = chain_[s];
    out.time = whole.forward_time + whole.backward_time;
    out.last_time = chain_.last_time(s);
    out.forward_peak = whole.forward_peak;
    out.last_forward_peak = whole.last_forward_peak;
    out.backward_peak = whole.backward_peak;
    out.saved.assign(std::size_t{length} + 1, 0);
    for (std::uint32_t t = s; t <= length; ++t) out.saved[t] = chain_.saved_bytes(s, t);
    std::vector<std::uint32_t> earlier;
    for (const std::uint32_t o : ways_[s][0].forward)
      for (const std::uint32_t t : graph_.outputs[o])
        if (const tensor_use& use = chain_.use_of(t);
            use.made_in == s && !use.stands && !use.transient && lowest_reader_[t] < use.saved_from())
          earlier.push_back(t);
    std::sort(earlier.begin(), earlier.end());
    earlier.erase(std::unique(earlier.begin(), earlier.end()), earlier.end());
    for (const std::uint32_t t : earlier)
      for (std::uint32_t j = std::max(s, lowest_reader_[t]); j < chain_.use_of(t).saved_from(); ++j)
        out.saved[j] += graph_.bytes[t];
    out.backward_peak += out.saved[s] - chain_.saved_bytes(s, s);
    return out;
  }

  [[nodiscard]] measured_way measure_way(std::uint32_t s, const stage_way& way, const placed_frees& backward) {
    const kept_tensors kept = find_kept(s, backward);
    measured_way out;
    out.saved = kept.saved;
    double time = 0, last = 0, again = 0, first_last = 0;
    out.forward_peak = run_forward(s, way.forward, place_(way.forward, kept.wanted), time);
    out.last_forward_peak = run_forward(s, way.forward, place_(way.forward, kept.wanted_last), first_last);
    // The first forward of the stage runs the operations that only an effect needs: they are in `standing_time`.
    run_forward(s, way.forward, place_(way.forward, kept.wanted_last, false), last);
    out.backward_peak = run_backward(s, way.backward, backward, kept.counted, out.saved[s], again);
    out.time = time + again;
    out.last_time = (s == chain_.length() ? time : last) + again;  // `stage_chain::last_time` is the same
    return out;
  }

  [[nodiscard]] kept_tensors find_kept(std::uint32_t s, const placed_frees& backward) {
    const std::uint32_t length = chain_.length();
    kept_tensors out;
    std::vector<std::int64_t> ends(std::size_t{length} + 1, 0);  // [t]: bytes that are kept from t on
    for (const std::uint32_t t : backward.at_start) {
      const tensor_use& use = chain_.use_of(t);
      const bool is_counted = use.made_in != stage_chain::nowhere && !use.stands;
      mark_[t] = is_counted;
      if (use.made_in != s && !(is_counted && use.transient)) continue;
      out.wanted.push_back(t);
      out.wanted_last.push_back(t);
      if (!is_counted) continue;
      ends[s] += graph_.bytes[t];
      if (use.made_in == s) out.counted.push_back(t);
    }
    std::vector<std::uint32_t> seen;
    for (const std::uint32_t o : ways_[s][0].forward)
      for (const std::uint32_t t : graph_.outputs[o]) {
        const tensor_use& use = chain_.use_of(t);
        if (use.made_in != s || mark_[t]) continue;
        mark_[t] = 1;
        seen.push_back(t);
        const bool other_backward = lowest_reader_[t] != stage_chain::nowhere;
        if (use.last_read > s || other_backward || use.stands) out.wanted.push_back(t);
        if (read_below(s, t) || use.stands) out.wanted_last.push_back(t);
        if (use.stands || use.transient) continue;
        const std::uint32_t from = std::min(lowest_reader_[t], use.first_read);
        if (from != stage_chain::nowhere) ends[std::max(s, from)] += graph_.bytes[t];
      }
    for (const std::uint32_t t : seen) mark_[t] = 0;
    for (const std::uint32_t t : backward.at_start) mark_[t] = 0;
    out.saved.assign(std::size_t{length} + 1, 0);
    for (std::uint32_t t = s; t <= length; ++t) out.saved[t] = ends[t] + (t == s ? 0 : out.saved[t - 1]);
    std::sort(out.wanted.begin(), out.wanted.end());
    out.wanted.erase(std::unique(out.wanted.begin(), out.wanted.end()), out.wanted.end());
    return out;
  }

  /// The peak of a forward, with the transient part of its input until that is free, without gradients. Adds to `time`
  /// that of the operations that may run again.
  std::int64_t run_forward(std::uint32_t s, std::span<const std::uint32_t> operations, const placed_frees& order,
                           double& time) {
    touched_.clear();
    for (const std::uint32_t o : operations)
      for (const std::uint32_t t : graph_.inputs[o])
        if (const tensor_use& use = chain_.use_of(t); use.made_in < s && use.last_read == s && use.transient) put(t);
    return run(order, chain_[s - 1].transient_bytes, 0, time, [](std::uint32_t) { return false; });
  }

  /// The peak of a backward, with the `saved` bytes and the waiting gradients. `counted`: the saved tensors of the
  /// stage itself. Adds to `time` that of the operations that may run again.
  [[nodiscard]] std::int64_t run_backward(std::uint32_t s, std::span<const std::uint32_t> operations,
                                          const placed_frees& order, const std::vector<std::uint32_t>& counted,
                                          std::int64_t saved, double& time) {
    touched_.clear();
    for (const std::uint32_t t : counted) put(t);
    const auto put_gradient = [&](std::uint32_t t) {
      if (chain_.use_of(t).made_in == stage_chain::nowhere && made_above(s, t)) put(t);
    };
    for (const std::uint32_t t : order.at_start) put_gradient(t);
    for (const std::uint32_t o : operations)
      for (const std::uint32_t t : graph_.outputs[o]) put_gradient(t);
    const std::int64_t memory = saved + chain_[s].gradient_bytes;
    return run(order, memory, memory, time,
               [&](std::uint32_t t) { return graph_.final_output[t] || read_below(s, t); });
  }

  /// Notes that a tensor is there when the next `run` begins.
  void put(std::uint32_t t) {
    there_[t] = 1;
    touched_.push_back(t);
  }

  /// Runs the steps of `order` from `memory` bytes on, and returns the larger of `peak` and their peak. A freed tensor
  /// stays if `stays(t)`. Adds to `time` that of the operations that may run again.
  template <class Stays>
  std::int64_t run(const placed_frees& order, std::int64_t memory, std::int64_t peak, double& time, Stays&& stays) {
    for (const std::uint32_t k : order.steps) {
      if (k & placed_frees::is_free) {
        const std::uint32_t t = k & ~placed_frees::is_free;
        if (!there_[t] || stays(t)) continue;
        there_[t] = 0;
        memory -= graph_.bytes[t];
        continue;
      }
      if (!chain_.is_forward(k) || !chain_.runs_once(k)) time += graph_.time[k];
      for (const std::uint32_t t : graph_.outputs[k])
        if (!there_[t] && !chain_.use_of(t).stands) {
          put(t);
          memory += graph_.bytes[t];
        }
      peak = std::max(peak, memory + graph_.workspace[k]);
    }
    for (const std::uint32_t t : touched_) there_[t] = 0;
    return peak;
  }

  /// True if a later stage makes `t`.
  [[nodiscard]] bool made_above(std::uint32_t s, std::uint32_t t) const {
    for (const std::uint32_t o : graph_.producers[t])
      if (chain_.stage_of(o) != stage_chain::nowhere && chain_.stage_of(o) > s) return true;
    return false;
  }

  const flat_graph& graph_;
  const stage_chain& chain_;
  const std::vector<std::vector<stage_way>>& ways_;  // [stage]
  // [tensor]
  std::vector<std::uint32_t> needed_producers_;
  std::vector<std::uint32_t> lowest_reader_;  // the lowest other stage whose backward reads it, by any way
  // While a way is measured.
  free_placer place_;
  std::vector<std::uint8_t> there_, mark_;
  std::vector<std::uint32_t> touched_;
};

}  // namespace ways

/// The stages of a graph's chain, each with several ways to run it that keep all its backward needs
/// \cite zhao2023rockmate.
///
/// The first way of a stage is that of `stage_chain`: every operation once, in its order. The forward of a further way
/// runs some of the operations of the stage, among them those that make the tensors which others read; its backward
/// computes again the tensors that it lacks. Forwards that keep nothing, and the tensors that cross between stages, are
/// those of `stage_chain`.
///
/// The memory of stage s, kept whole by a way for the backwards of the stages up to t, is counted by these rules, each
/// tensor once:
/// - the tensors that s makes and that must be there when the way's backward starts;
/// - of the other tensors that s makes, those that the backward of another stage up to t reads by any of its ways, or a
///   forward of a stage up to t, unless they are transient;
/// - the tensors of earlier stages that are transient for `stage_chain` and that the way's backward reads, since they
///   would be free after the last forward that reads them. Two stages that hold the same such tensor both count it, and
///   forwards count it with the transient tensors.
/// All other inputs of a backward are there as inputs of the stage, or are kept by other stages.
///
/// The counts of the first way are those of `stage_chain`. The counts of further ways are tested, not proven
/// (docs/rotor.md): the schedules of `expand` never took more time than the counts with `standing_time`, and rarely
/// more memory.
class staged_ways {
 public:
  /// `further[s]`: further ways of stage s, s = 1 … L. Keeps a reference to the chain.
  /// O(L² · ways + reads and writes of all ways) time.
  staged_ways(const flat_graph& g, const stage_chain& chain, std::vector<std::vector<stage_way>> further)
      : chain_(chain), ways_(std::move(further)) {
    ways_.resize(std::size_t{chain.length()} + 1);
    for (std::uint32_t s = 1; s <= chain.length(); ++s) {
      stage_way whole;
      whole.forward.assign(chain.forward(s).begin(), chain.forward(s).end());
      whole.backward.assign(chain.backward(s).begin(), chain.backward(s).end());
      ways_[s].insert(ways_[s].begin(), std::move(whole));
    }
    measured_ = ways::measurer(g, chain_, ways_).measure();
  }

  [[nodiscard]] const stage_chain& chain() const noexcept { return chain_; }
  /// The ways of a stage. The first is that of `stage_chain`. Precondition: 1 ≤ stage ≤ L.
  [[nodiscard]] std::span<const stage_way> ways(std::uint32_t stage) const noexcept { return ways_[stage]; }

  /// The figures of a way of a stage. Precondition: way < ways(stage).size().
  [[nodiscard]] const measured_way& measured(std::uint32_t stage, std::size_t way) const noexcept {
    return measured_[stage][way];
  }

  /// The operations of a schedule of the chain, in order, for `schedule_computes`, each stage run by its way: see
  /// `stage_chain::expand`. O(steps + operations of the steps) time.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps, bool whole = false) const {
    return chain_.expand(steps, whole, [&](const chain_step& k) -> const std::vector<std::uint32_t>* {
      if (k.option == 0) return nullptr;
      const stage_way& way = ways_[k.stage][k.option];
      return k.action == chain_action::backward      ? &way.backward
             : k.action == chain_action::forward_all ? &way.forward
                                                     : nullptr;
    });
  }

 private:
  const stage_chain& chain_;
  std::vector<std::vector<stage_way>> ways_;         // [stage]
  std::vector<std::vector<measured_way>> measured_;  // [stage][way]
};

/// The stages of a graph with all their ways, each size converted by `scale`. O(L² · ways) time.
[[nodiscard]] inline sized_chain size_chain(const staged_ways& w, const slot_scale& scale = {}) {
  sized_chain out = size_chain(w.chain(), scale);
  out.options.clear();
  out.saved_until.clear();
  for (std::uint32_t s = 1; s <= out.length; ++s) {
    out.stages[s].first_option = static_cast<std::uint32_t>(out.options.size());
    for (std::size_t k = 0; k < w.ways(s).size(); ++k) {
      const measured_way& m = w.measured(s, k);
      out.options.push_back({.time = m.time,
                             .last_time = m.last_time,
                             .forward_need = scale(m.forward_peak),
                             .last_forward_need = scale(m.last_forward_peak),
                             .backward_need = scale(m.backward_peak)});
      out.saved_until.resize(out.saved_until.size() + s, 0);
      for (std::uint32_t t = s; t <= out.length; ++t) out.saved_until.push_back(scale(m.saved[t]));
    }
    out.stages[s].last_option = static_cast<std::uint32_t>(out.options.size());
  }
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
