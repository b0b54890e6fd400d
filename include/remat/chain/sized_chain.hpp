// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/stage_chain.hpp"

namespace remat::detail::persistent {

/// One way to run a stage such that everything its backward needs is kept. Sizes are in the unit of the chain.
struct keep_option {
  double time = 0;                     ///< of the forward and the backward
  double last_time = 0;                ///< the same, the forward standing right before the backward
  std::int64_t saved = 0;              ///< where there is no table of that
  std::int64_t forward_need = 0;       ///< beside its input and the gradient that waits
  std::int64_t last_forward_need = 0;  ///< the same, right before its own backward
  std::int64_t backward_need = 0;      ///< with what is saved
};

/// One stage, as the dynamic programs see it.
struct sized_stage {
  double fast = 0;      ///< time of a forward that keeps nothing
  double backward = 0;  ///< time of a backward without a forward; only where `idle`
  std::int64_t gradient = 0;
  std::int64_t fast_need = 0;  ///< of a forward that keeps nothing, beside its input and the gradient that waits
  std::int64_t crossing = 0;   ///< what it makes for the next stage, where there is no table of that
  std::int64_t outputs = 0;    ///< what its backward makes for good
  std::int64_t transient = 0;  ///< of the input of the next stage: what forwards alone read
  std::int64_t idle_need = 0;  ///< of its backward alone; only where `idle`
  std::uint32_t first_option = 0, last_option = 0;  ///< its ways to keep everything: [first_option, last_option)
  bool idle = false;                                ///< its backward reads nothing that a forward makes
};

/// A chain of stages 1 … n, a loss among them: what the dynamic programs for memory-persistent schedules run on, with
/// sizes in bytes or in slots.
///
/// x(s, j), what stages s … j make for later ones, is `crossing` of j alone in the Rotor model. In a chain that is cut
/// from a graph, tensors cross several stages, and it depends on s; so does what stays of s when it is kept for the
/// backwards of the stages up to t. A part of the input of a stage, `transient`, is read by forwards alone and gone
/// after the last of them, unless it is kept to run again: so to set the input of j beside that of s apart takes
/// h(s, j − 1), since the transient part of the input of j is charged within (j, t). In the Rotor model nothing is
/// transient, and h = x.
struct sized_chain {
  std::uint32_t length = 0;           ///< n
  std::vector<sized_stage> stages{};  ///< [1 … n]
  std::vector<keep_option> options{};
  /// At s · (n + 1) + j, or empty: then as in the Rotor model.
  std::vector<std::int64_t> crossing_from{}, held{};
  /// At o · (n + 1) + t where there are those: what stays of a stage when it is kept by option o for the backwards of
  /// the stages up to t. It is in place of `keep_option::saved`.
  std::vector<std::int64_t> saved_until{};
  /// A forward that keeps everything is charged the gradient of its own output, as in the published recurrence, in
  /// place of the one that waits then.
  bool own_gradient = false;

  [[nodiscard]] bool wide() const noexcept { return !crossing_from.empty(); }
  [[nodiscard]] std::size_t at(std::uint32_t s, std::uint32_t j) const noexcept {
    return s * (std::size_t{length} + 1) + j;
  }
  [[nodiscard]] std::int64_t x(std::uint32_t s, std::uint32_t j) const noexcept {
    return wide() ? crossing_from[at(s, j)] : stages[j].crossing;
  }
  [[nodiscard]] std::int64_t h(std::uint32_t s, std::uint32_t j) const noexcept {
    return wide() ? held[at(s, j)] : stages[j].crossing;
  }
  /// What a stage that is kept whole by option o takes for the stages behind it, up to t.
  [[nodiscard]] std::int64_t saved(std::uint32_t o, std::uint32_t t) const noexcept {
    return wide() ? saved_until[at(o, t)] : options[o].saved;
  }
  /// Whether every choice in (s, t) has to leave room for the forwards of s … t − 1 that keep nothing, as in the
  /// published recurrence; else only those that are run so have to. Without options there is no difference where each
  /// forward is charged the gradient that waits.
  [[nodiscard]] bool strict() const noexcept { return own_gradient || wide(); }
  /// What the forwards of s … t need when they keep nothing, the gradient that waits and the transient part of the
  /// input of s aside. O(t − s) time.
  [[nodiscard]] std::int64_t run_need(std::uint32_t s, std::uint32_t t) const noexcept {
    std::int64_t need = stages[s].fast_need;
    for (std::uint32_t i = s + 1; i <= t; ++i) need = std::max(need, x(s, i - 1) + stages[i].fast_need);
    return need;
  }
  /// The least m with which s may be kept whole by `o` in (s, t), as far as s itself needs it; `behind`: the outputs of
  /// s + 1 … t.
  [[nodiscard]] std::int64_t keep_need(const keep_option& o, std::uint32_t s, std::uint32_t t,
                                       std::int64_t behind) const noexcept {
    return std::max(stages[own_gradient ? s : t].gradient + (s == t ? o.last_forward_need : o.forward_need),
                    o.backward_need + behind);
  }
  /// The part of the time of stage s that every schedule spends.
  [[nodiscard]] double least_time(std::uint32_t s) const noexcept {
    double least = stages[s].idle ? stages[s].backward : std::numeric_limits<double>::infinity();
    for (std::uint32_t o = stages[s].first_option; o < stages[s].last_option; ++o)
      least = std::min({least, options[o].time, options[o].last_time});
    return least;
  }
};

/// A chain of the Rotor model with each size put through `round`, the loss as its last stage; x_0 is not in it.
template <class Round>
[[nodiscard]] sized_chain sized(const chain& c, bool own_gradient, const Round& round) {
  sized_chain out;
  out.length = static_cast<std::uint32_t>(c.length() + 1);
  out.own_gradient = own_gradient;
  out.stages.resize(std::size_t{out.length} + 1);
  std::size_t options = 1;
  for (const chain_stage& s : c.stages()) options += 1 + s.options.size();
  out.options.reserve(options);
  for (std::uint32_t i = 1; i <= out.length; ++i) {
    sized_stage& to = out.stages[i];
    to.first_option = static_cast<std::uint32_t>(out.options.size());
    if (i == out.length) {
      keep_option loss;
      loss.backward_need = round(c.activation_bytes(i - 1));
      out.options.push_back(loss);
    } else {
      const chain_stage& from = c.stage(i);
      to.fast = from.forward_time;
      to.gradient = to.crossing = round(from.output_bytes);
      to.fast_need = to.crossing + round(from.forward_overhead_bytes);
      const std::int64_t input = round(c.activation_bytes(i - 1));
      for (std::uint32_t k = 0; k <= from.options.size(); ++k) {
        const chain_option way = from.option(k);
        keep_option o;
        o.time = o.last_time = way.forward_time + way.backward_time;
        o.saved = round(way.saved_bytes);
        o.forward_need = o.last_forward_need = o.saved + round(way.forward_overhead_bytes);
        o.backward_need = input + o.saved + round(way.backward_overhead_bytes);
        out.options.push_back(o);
      }
    }
    to.last_option = static_cast<std::uint32_t>(out.options.size());
  }
  return out;
}

/// The stages of a graph with each size put through `round`.
template <class Round>
[[nodiscard]] sized_chain sized(const stage_chain& c, const Round& round) {
  sized_chain out;
  out.length = c.length();
  const std::size_t rows = std::size_t{out.length} + 1;
  out.stages.resize(rows);
  out.options.resize(out.length);
  out.saved_until.assign(out.length * rows, 0);
  out.crossing_from.assign(rows * rows, 0);
  out.held.assign(rows * rows, 0);
  out.stages[0].transient = round(c.transient_bytes(0));
  for (std::uint32_t s = 1; s <= out.length; ++s) {
    sized_stage& to = out.stages[s];
    to.fast = c.fast_time(s);
    to.backward = c.backward_time(s);
    to.gradient = round(c.gradient_bytes(s));
    to.fast_need = round(c.fast_peak(s));
    to.outputs = round(c.output_bytes(s));
    to.transient = round(c.transient_bytes(s));
    to.idle_need = round(c.backward_peak(s));
    to.idle = c.backward_reads_no_forward(s);
    to.first_option = s - 1;
    to.last_option = s;
    keep_option& o = out.options[s - 1];
    o.time = c.forward_time(s) + c.backward_time(s);
    // Of the last stage the first forward is not run again: there it makes everything.
    o.last_time = (s == out.length ? c.forward_time(s) : c.last_forward_time(s)) + c.backward_time(s);
    o.forward_need = round(c.forward_peak(s));
    o.last_forward_need = round(c.last_forward_peak(s));
    o.backward_need = round(c.backward_peak(s));
    for (std::uint32_t j = s; j <= out.length; ++j) {
      out.saved_until[out.at(s - 1, j)] = round(c.saved_bytes(s, j));
      out.crossing_from[out.at(s, j)] = round(c.crossing_bytes(s, j));
      out.held[out.at(s, j)] = round(c.crossing_bytes(s, j) + c.transient_bytes(s - 1) - c.transient_bytes(j));
    }
  }
  return out;
}

/// The memory with which every stage can be kept whole, by whatever option. Precondition: not wide.
[[nodiscard]] inline std::int64_t store_all_room(const sized_chain& c) {
  std::int64_t stored = 0, most = 0;
  for (std::uint32_t s = 1; s <= c.length; ++s) {
    std::int64_t saved = 0;
    for (std::uint32_t o = c.stages[s].first_option; o < c.stages[s].last_option; ++o) {
      most = std::max(most, stored + c.keep_need(c.options[o], s, s, 0));
      saved = std::max(saved, c.options[o].saved);
    }
    stored += saved;
  }
  return most;
}

/// A bound on D(1, n, room) (see `excess_bound`) that holds for every schedule of a chain's actions, a
/// memory-persistent one or not: what is kept for backwards when the loss runs for the first time fits in `room`, and
/// the forward of every other stage, which has kept nothing, or its input alone, runs again. (Where no option's forward
/// is faster than the stage's own, it holds for schedules that drop what was saved as well.) The cheapest such choice
/// is a knapsack; this is its relaxation. O(n log n) time. Precondition: not wide.
[[nodiscard]] inline double recompute_bound(const sized_chain& c, std::int64_t room) {
  struct item {
    double time, size;
  };
  std::vector<item> stages(c.length);
  for (std::uint32_t s = 1; s <= c.length; ++s) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::uint32_t o = c.stages[s].first_option; o < c.stages[s].last_option; ++o)
      least = std::min(least, c.options[o].saved);
    stages[s - 1] = {c.stages[s].fast, static_cast<double>(least)};
  }
  std::sort(stages.begin(), stages.end(),
            [](const item& a, const item& b) { return a.time * b.size > b.time * a.size; });
  double left = static_cast<double>(room), bound = 0;
  for (const item& s : stages) {
    const double kept = s.size <= left ? 1 : left > 0 ? left / s.size : 0;
    left -= kept * s.size;
    bound += (1 - kept) * s.time;
  }
  return bound;
}

/// What bounds the values that a table has to hold: sums over the stages.
///
/// A table holds D(s, t, m) = C(s, t, m) − (least times of s … t), the time that is spent beyond what every schedule
/// spends. D is never negative and adds up over the parts of a schedule, which makes it a bound: of a schedule with at
/// most `limit` more time in all, the part (s, t) has D ≤ limit; and, unless it ends at n, the forwards s … t have run
/// before to reach t + 1, so that D(s, t) ≤ limit − (f_s + … + f_t).
struct excess_bound {
  std::vector<double> advanced{};       ///< [s]: f_1 + … + f_s
  std::vector<double> least{};          ///< [s]: least times of 1 … s
  std::vector<std::int64_t> outputs{};  ///< [s]: outputs of 1 … s
  double limit = std::numeric_limits<double>::max();

  excess_bound() = default;
  /// `limit` is widened by more than rounding can make of it.
  explicit excess_bound(const sized_chain& c, double most = std::numeric_limits<double>::max())
      : advanced(c.length + 1, 0.0), least(c.length + 1, 0.0), outputs(c.length + 1, 0) {
    for (std::uint32_t s = 1; s <= c.length; ++s) {
      advanced[s] = advanced[s - 1] + c.stages[s].fast;
      least[s] = least[s - 1] + c.least_time(s);
      outputs[s] = outputs[s - 1] + c.stages[s].outputs;
    }
    constexpr double slack = 1e-9;
    if (most < limit) limit = most + slack * (most + least.back() + advanced.back());
  }
  [[nodiscard]] std::uint32_t length() const noexcept { return static_cast<std::uint32_t>(advanced.size() - 1); }
  [[nodiscard]] bool bounded() const noexcept { return limit < std::numeric_limits<double>::max(); }
  /// f_s + … + f_{j−1}.
  [[nodiscard]] double advance(std::uint32_t s, std::uint32_t j) const noexcept {
    return advanced[j - 1] - advanced[s - 1];
  }
  /// outputs of j … t.
  [[nodiscard]] std::int64_t made_behind(std::uint32_t j, std::uint32_t t) const noexcept {
    return outputs[t] - outputs[j - 1];
  }
  /// The largest D(s, t, ·) of use; negative: none.
  [[nodiscard]] double most(std::uint32_t s, std::uint32_t t) const noexcept {
    return t == length() || !bounded() ? limit : limit - advance(s, t + 1);
  }
};

}  // namespace remat::detail::persistent
