// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/core/detail/directed_rounding.hpp"

namespace REMAT_NAMESPACE::detail {

/// One way to run a stage that keeps everything its backward needs. Sizes are in the unit of the chain.
struct keep_option {
  double time = 0;                     ///< time of the forward and the backward
  double last_time = 0;                ///< the same, with the forward right before the backward
  std::int64_t saved = 0;              ///< bytes that the stage keeps, in a chain without `saved_until`
  std::int64_t forward_need = 0;       ///< need of the forward, without its input and the waiting gradient
  std::int64_t last_forward_need = 0;  ///< the same, with the forward right before its own backward
  std::int64_t backward_need = 0;      ///< need of the backward, with the saved tensors
};

/// One stage, as the dynamic programs see it.
struct sized_stage {
  double fast = 0;                 ///< time of a forward that keeps nothing
  double backward = 0;             ///< time of a backward without a forward; for an `idle` stage alone
  std::int64_t gradient = 0;       ///< the gradients that later stages make for its backward and for those before it
  std::int64_t fast_need = 0;      ///< need of a forward that keeps nothing, without its input and the waiting gradient
  std::int64_t crossing = 0;       ///< bytes that it makes for the next stage, in a chain without `crossing_from`
  std::int64_t outputs = 0;        ///< final outputs that its backward makes
  std::int64_t transient = 0;      ///< the part of the next stage's input that forwards alone read
  std::int64_t idle_need = 0;      ///< need of the backward alone; for an `idle` stage alone
  std::uint32_t first_option = 0;  ///< its ways to keep everything: [first_option, last_option) of the chain's options
  std::uint32_t last_option = 0;   ///< the place behind the last of its ways
  bool idle = false;               ///< its backward reads nothing that a forward makes
};

/// A chain of stages 1 … n, the last of which may be a loss, with sizes in bytes or in slots: the input of the dynamic
/// programs for memory-persistent schedules, `slot_table` and `breakpoint_table`.
///
/// x(s, j) is what stages s … j make for later stages. In the Rotor model that is the output of j. In a chain that is
/// cut from a graph, tensors cross several stages, and x depends on s; so do the tensors of stage s that are kept for
/// the backwards of the stages up to t. The transient tensors of a stage's input are read by forwards alone. They are
/// free after the last of them, unless they are kept for another run. h(s, j − 1) is the memory to keep the input of j
/// beside that of s; it does not count the transient part of the input of j, which is charged within the stages j … t.
/// In the Rotor model nothing is transient, and h = x.
struct sized_chain {
  std::uint32_t length = 0;                   ///< n
  std::vector<sized_stage> stages{};          ///< [1 … n]; [0] holds the transient part of the input of the chain
  std::vector<keep_option> options{};         ///< the options of all stages
  std::vector<std::int64_t> crossing_from{};  ///< x(s, j), at s · (n + 1) + j; empty in the Rotor model
  std::vector<std::int64_t> held{};           ///< h(s, j), at s · (n + 1) + j; empty in the Rotor model
  /// The bytes of a stage that are kept, by its option o, for the backwards of the stages up to t: at o · (n + 1) + t.
  /// They replace `keep_option::saved`. Empty in the Rotor model.
  std::vector<std::int64_t> saved_until{};
  /// A forward that keeps everything is charged the gradient of its own output, as in the published recurrence, in
  /// place of the gradient that waits at that time.
  bool own_gradient = false;

  /// True for a chain that is cut from a graph: tensors may cross several stages.
  [[nodiscard]] bool wide() const noexcept { return !crossing_from.empty(); }
  /// The place of (s, j) in an array with n + 1 entries for each s: s · (n + 1) + j.
  [[nodiscard]] std::size_t at(std::uint32_t s, std::uint32_t j) const noexcept {
    return s * (std::size_t{length} + 1) + j;
  }
  /// The ways to keep everything of a stage.
  [[nodiscard]] std::span<const keep_option> options_of(std::uint32_t s) const noexcept {
    return {options.data() + stages[s].first_option, options.data() + stages[s].last_option};
  }
  /// x(s, j): what stages s … j make for later stages.
  [[nodiscard]] std::int64_t x(std::uint32_t s, std::uint32_t j) const noexcept {
    return wide() ? crossing_from[at(s, j)] : stages[j].crossing;
  }
  /// h(s, j): the memory to keep the input of j + 1 beside that of s.
  [[nodiscard]] std::int64_t h(std::uint32_t s, std::uint32_t j) const noexcept {
    return wide() ? held[at(s, j)] : stages[j].crossing;
  }
  /// The memory of a stage that is kept whole by option o, for the stages behind it up to t.
  [[nodiscard]] std::int64_t saved(std::uint32_t o, std::uint32_t t) const noexcept {
    return wide() ? saved_until[at(o, t)] : options[o].saved;
  }
  /// True if every choice in (s, t) must leave memory for the forwards of s … t − 1 that keep nothing, as in the
  /// published recurrence. False: only the choices that run such forwards must. Without options the two agree if each
  /// forward is charged the gradient that waits.
  [[nodiscard]] bool strict() const noexcept { return own_gradient || wide(); }
  /// The memory of the forwards of s … t that keep nothing, without the waiting gradient and the transient part of the
  /// input of s. O(t − s) time.
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
    for (const keep_option& o : options_of(s)) least = std::min({least, o.time, o.last_time});
    return least;
  }
};

/// How bytes become slots.
enum class slot_rounding : std::uint8_t {
  nearest,  ///< a half up; a schedule within the slots may exceed the budget
  up        ///< a schedule within the slots is within the budget
};

/// Converts bytes to slots of `unit` bytes; more than `max` slots become max + 1. By default bytes stay bytes.
struct slot_scale {
  std::int64_t unit = 1;                                            ///< bytes of a slot, above 0
  std::int64_t max = std::numeric_limits<std::int64_t>::max() - 1;  ///< larger numbers of slots become max + 1
  slot_rounding rounding = slot_rounding::up;                       ///< the rounding of a fraction of a slot

  /// The slots of a number of bytes, which is not negative.
  [[nodiscard]] std::int64_t operator()(std::int64_t bytes) const noexcept {
    const std::int64_t from = rounding == slot_rounding::up ? 1 : unit - unit / 2;  // the least rest that is one more
    return std::min<std::int64_t>(bytes / unit + (bytes % unit >= from ? 1 : 0), max + 1);
  }
};

/// A chain of the Rotor model with the loss as its last stage, each size converted by `scale`; x_0 is not in it.
/// `own_gradient`: see `sized_chain`. O(stages and options) time.
[[nodiscard]] inline sized_chain size_chain(const chain& c, bool own_gradient, const slot_scale& scale = {}) {
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
      loss.backward_need = scale(c.activation_bytes(i - 1));
      out.options.push_back(loss);
    } else {
      const chain_stage& from = c.stage(i);
      to.fast = from.forward_time;
      to.gradient = to.crossing = scale(from.output_bytes);
      to.fast_need = to.crossing + scale(from.forward_overhead_bytes);
      const std::int64_t input = scale(c.activation_bytes(i - 1));
      for (std::uint32_t k = 0; k <= from.options.size(); ++k) {
        const chain_option way = from.option(k);
        keep_option o;
        o.time = o.last_time = way.forward_time + way.backward_time;
        o.saved = scale(way.saved_bytes);
        o.forward_need = o.last_forward_need = o.saved + scale(way.forward_overhead_bytes);
        o.backward_need = input + o.saved + scale(way.backward_overhead_bytes);
        out.options.push_back(o);
      }
    }
    to.last_option = static_cast<std::uint32_t>(out.options.size());
  }
  return out;
}

/// A chain of the stages of a graph, each size converted by `scale`. O(L²) time.
[[nodiscard]] inline sized_chain size_chain(const stage_chain& c, const slot_scale& scale = {}) {
  sized_chain out;
  out.length = c.length();
  const std::size_t rows = std::size_t{out.length} + 1;
  out.stages.resize(rows);
  out.options.resize(out.length);
  out.saved_until.assign(out.length * rows, 0);
  out.crossing_from.assign(rows * rows, 0);
  out.held.assign(rows * rows, 0);
  out.stages[0].transient = scale(c[0].transient_bytes);
  for (std::uint32_t s = 1; s <= out.length; ++s) {
    const stage_figures& from = c[s];
    sized_stage& to = out.stages[s];
    to.fast = from.fast_time;
    to.backward = from.backward_time;
    to.gradient = scale(from.gradient_bytes);
    to.fast_need = scale(from.fast_peak);
    to.outputs = scale(from.output_bytes);
    to.transient = scale(from.transient_bytes);
    to.idle_need = scale(from.backward_peak);
    to.idle = from.idle;
    to.first_option = s - 1;
    to.last_option = s;
    keep_option& o = out.options[s - 1];
    o.time = from.forward_time + from.backward_time;
    o.last_time = c.last_time(s);
    o.forward_need = scale(from.forward_peak);
    o.last_forward_need = scale(from.last_forward_peak);
    o.backward_need = scale(from.backward_peak);
    for (std::uint32_t j = s; j <= out.length; ++j) {
      out.saved_until[out.at(s - 1, j)] = scale(c.saved_bytes(s, j));
      out.crossing_from[out.at(s, j)] = scale(c.crossing_bytes(s, j));
      out.held[out.at(s, j)] = scale(c.crossing_bytes(s, j) + c[s - 1].transient_bytes - c[j].transient_bytes);
    }
  }
  return out;
}

/// The same chain with all times 0: its fastest schedules are those of least memory.
[[nodiscard]] inline sized_chain without_times(sized_chain c) {
  for (sized_stage& s : c.stages) s.fast = s.backward = 0;
  for (keep_option& o : c.options) o.time = o.last_time = 0;
  return c;
}

/// The memory with which every stage can be kept whole, by any of its options. Precondition: not wide.
[[nodiscard]] inline std::int64_t store_all_room(const sized_chain& c) {
  std::int64_t stored = 0, peak = 0;
  for (std::uint32_t s = 1; s <= c.length; ++s) {
    std::int64_t saved = 0;
    for (const keep_option& o : c.options_of(s)) {
      peak = std::max(peak, stored + c.keep_need(o, s, s, 0));
      saved = std::max(saved, o.saved);
    }
    stored += saved;
  }
  return peak;
}

/// The bytes with which the model can keep every stage of a graph whole. O(L) time.
[[nodiscard]] inline std::int64_t store_all_bytes(const stage_chain& c) {
  std::int64_t stored = 0, peak = 0;
  std::int64_t made = 0;  // the final outputs of the later stages
  for (std::uint32_t s = 2; s <= c.length(); ++s) made += c[s].output_bytes;
  for (std::uint32_t s = 1; s <= c.length(); ++s) {
    peak = std::max({peak, stored + c[s].forward_peak, stored + c[s].backward_peak + made});
    stored += c.saved_bytes(s, c.length());
    if (s < c.length()) made -= c[s + 1].output_bytes;
  }
  return peak;
}

/// The bytes of a slot such that `store_all_bytes` takes at most `slots` of them: 1, or an even number, which can be
/// halved. Precondition: slots > 0.
[[nodiscard]] inline std::int64_t slot_bytes(const stage_chain& c, std::uint32_t slots) {
  const std::int64_t unit = store_all_bytes(c) / slots + 1;
  return unit == 1 ? unit : unit + unit % 2;
}

/// A lower bound on D(1, n, room) (see `excess_bound`) of every schedule of a chain's actions, memory-persistent or
/// not. When the loss runs for the first time, the tensors that are kept for backwards fit in `room`, and the forward
/// of every stage that keeps nothing, or its input alone, runs again. The bound is the linear relaxation of that
/// knapsack, rounded down. If no option's forward is faster than the stage's own, it also holds for schedules that drop
/// saved tensors. O(n log n) time. Precondition: not wide.
[[nodiscard]] inline double recompute_bound(const sized_chain& c, std::int64_t room) {
  struct item {
    double time, size;
  };
  std::vector<item> stages;
  for (std::uint32_t s = 1; s <= c.length; ++s) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const keep_option& o : c.options_of(s)) least = std::min(least, o.saved);
    // One without time adds nothing to the bound, and one without time and size, like the loss, has no place in the
    // order: it compares as equal to all others.
    if (c.stages[s].fast > 0) stages.push_back({c.stages[s].fast, number_below(least)});
  }
  std::sort(stages.begin(), stages.end(),
            [](const item& a, const item& b) { return a.time * b.size > b.time * a.size; });
  room = std::max<std::int64_t>(room, 0);
  double left = static_cast<double>(room);
  std::size_t split = 0;  // the first stage that does not fit whole
  while (split < stages.size() && stages[split].size <= left) left -= stages[split++].size;
  sum_from_below sum;
  if (room == 0) {
    for (std::size_t i = split; i < stages.size(); ++i) sum.add(stages[i].time);
    return sum.value();
  }
  if (split == stages.size()) return 0;
  // At every price of a byte, the least of (time, price × size) of each stage, less price × room, is a bound (weak
  // duality); at the rate of the split stage it is the knapsack's.
  const double price = stages[split].time / stages[split].size;
  for (const item& s : stages) sum.add(std::min(s.time, product_below(price, s.size)));
  return std::max(0.0, less_rent(sum.value(), price, room));
}

/// Sums over the stages that bound the values in a table.
///
/// A table holds D(s, t, m) = C(s, t, m) − (least times of s … t): the time beyond what every schedule spends. D is
/// never negative and adds up over the parts of a schedule. So in a schedule of at most `limit` more time than the
/// least, each part (s, t) has D ≤ limit. A part with t < n runs after the forwards s … t have run once to reach t + 1,
/// so D(s, t) ≤ limit − (f_s + … + f_t).
struct excess_bound {
  std::vector<double> advanced{};       ///< [s]: f_1 + … + f_s
  std::vector<double> least{};          ///< [s]: least times of 1 … s
  std::vector<std::int64_t> outputs{};  ///< [s]: outputs of 1 … s
  /// The largest time beyond the least that matters; the largest number: no limit.
  double limit = std::numeric_limits<double>::max();

  /// Holds no sums: another must be assigned to it before use.
  excess_bound() = default;
  /// The sums of the stages of `c`. `limit` becomes `max_excess`, widened by more than sums of times can lose by
  /// rounding. O(stages and options) time.
  explicit excess_bound(const sized_chain& c, double max_excess = std::numeric_limits<double>::max())
      : advanced(c.length + 1, 0.0), least(c.length + 1, 0.0), outputs(c.length + 1, 0) {
    for (std::uint32_t s = 1; s <= c.length; ++s) {
      advanced[s] = advanced[s - 1] + c.stages[s].fast;
      least[s] = least[s - 1] + c.least_time(s);
      outputs[s] = outputs[s - 1] + c.stages[s].outputs;
    }
    constexpr double slack = 1e-9;
    if (max_excess < limit) limit = max_excess + slack * (max_excess + least.back() + advanced.back());
  }

  /// n, the number of stages.
  [[nodiscard]] std::uint32_t length() const noexcept { return static_cast<std::uint32_t>(advanced.size() - 1); }
  /// True if there is a limit.
  [[nodiscard]] bool bounded() const noexcept { return limit < std::numeric_limits<double>::max(); }
  /// f_s + … + f_{j−1}.
  [[nodiscard]] double advance(std::uint32_t s, std::uint32_t j) const noexcept {
    return advanced[j - 1] - advanced[s - 1];
  }
  /// The outputs of j … t.
  [[nodiscard]] std::int64_t made_behind(std::uint32_t j, std::uint32_t t) const noexcept {
    return outputs[t] - outputs[j - 1];
  }
  /// The largest D(s, t, ·) that a schedule within the limit can have; negative: none can have the part (s, t).
  [[nodiscard]] double max_excess(std::uint32_t s, std::uint32_t t) const noexcept {
    return t == length() || !bounded() ? limit : limit - advance(s, t + 1);
  }
};

}  // namespace REMAT_NAMESPACE::detail
