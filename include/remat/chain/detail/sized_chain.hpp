// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/stage_chain.hpp"

namespace remat::detail {

/// One way to run a stage such that all that its backward needs is kept. Sizes are in the unit of the chain.
struct keep_option {
  double time = 0;                     ///< of the forward and the backward
  double last_time = 0;                ///< the same, with the forward right before the backward
  std::int64_t saved = 0;              ///< in a chain without `saved_until`
  std::int64_t forward_need = 0;       ///< of the forward, without its input and the waiting gradient
  std::int64_t last_forward_need = 0;  ///< the same, with the forward right before its own backward
  std::int64_t backward_need = 0;      ///< of the backward, with the saved tensors
};

/// One stage, as the dynamic programs see it.
struct sized_stage {
  double fast = 0;                 ///< time of a forward that keeps nothing
  double backward = 0;             ///< time of a backward without a forward; for an `idle` stage alone
  std::int64_t gradient = 0;       ///< the gradients that later stages make for its backward and for those before it
  std::int64_t fast_need = 0;      ///< of a forward that keeps nothing, without its input and the waiting gradient
  std::int64_t crossing = 0;       ///< what it makes for the next stage, in a chain without `crossing_from`
  std::int64_t outputs = 0;        ///< final outputs that its backward makes
  std::int64_t transient = 0;      ///< the part of the next stage's input that forwards alone read
  std::int64_t idle_need = 0;      ///< of the backward alone; for an `idle` stage alone
  std::uint32_t first_option = 0;  ///< its ways to keep everything: [first_option, last_option) of the chain's options
  std::uint32_t last_option = 0;   ///< behind the last of its ways
  bool idle = false;               ///< its backward reads nothing that a forward makes
};

/// A chain of stages 1 … n, the last of which may be a loss, with sizes in bytes or in slots: the input of the dynamic
/// programs for memory-persistent schedules, `slot_table` and `breakpoint_table`.
///
/// x(s, j) is what stages s … j make for later stages. In the Rotor model that is the output of j. In a chain that is
/// cut from a graph, tensors cross several stages, and x depends on s; so does the part of stage s that is kept for the
/// backwards of the stages up to t. A part of the input of a stage, `transient`, is read by forwards alone. It is free
/// after the last of them, unless it is kept to run again. h(s, j − 1) is the memory to keep the input of j beside that
/// of s; the transient part of the input of j is not in it, since that is charged within the stages j … t. In the Rotor
/// model nothing is transient, and h = x.
struct sized_chain {
  std::uint32_t length = 0;                   ///< n
  std::vector<sized_stage> stages{};          ///< [1 … n]; [0] holds the transient part of the input of the chain
  std::vector<keep_option> options{};         ///< of all stages
  std::vector<std::int64_t> crossing_from{};  ///< x(s, j), at s · (n + 1) + j; empty in the Rotor model
  std::vector<std::int64_t> held{};           ///< h(s, j), at s · (n + 1) + j; empty in the Rotor model
  /// In place of `keep_option::saved`, at o · (n + 1) + t: the part of a stage that is kept, by its option o, for the
  /// backwards of the stages up to t. Empty in the Rotor model.
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
  /// True when every choice in (s, t) must leave room for the forwards of s … t − 1 that keep nothing, as in the
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
    for (std::uint32_t o = stages[s].first_option; o < stages[s].last_option; ++o)
      least = std::min({least, options[o].time, options[o].last_time});
    return least;
  }
};

/// How bytes become slots.
enum class slot_rounding : std::uint8_t {
  nearest,  ///< a half up; a schedule within the slots may exceed the budget
  up        ///< a schedule within the slots is within the budget
};

/// Converts bytes to slots of `unit` bytes; more than `most` slots become most + 1. By default bytes stay bytes.
struct slot_scale {
  std::int64_t unit = 1;                                             ///< bytes of a slot, above 0
  std::int64_t most = std::numeric_limits<std::int64_t>::max() - 1;  ///< larger numbers of slots become most + 1
  slot_rounding rounding = slot_rounding::up;                        ///< what a part of a slot becomes

  /// The slots of a number of bytes, which is not negative.
  [[nodiscard]] std::int64_t operator()(std::int64_t bytes) const noexcept {
    const std::int64_t from = rounding == slot_rounding::up ? 1 : unit - unit / 2;  // the least rest that is one more
    return std::min<std::int64_t>(bytes / unit + (bytes % unit >= from ? 1 : 0), most + 1);
  }
};

/// A chain of the Rotor model with the loss as its last stage, each size converted by `scale`; x_0 is not in it.
/// `own_gradient`: see `sized_chain`. O(stages and options) time.
[[nodiscard]] sized_chain size_chain(const chain& c, bool own_gradient, const slot_scale& scale = {});

/// A chain of the stages of a graph, each size converted by `scale`. O(L²) time.
[[nodiscard]] sized_chain size_chain(const stage_chain& c, const slot_scale& scale = {});

/// The same chain with all times 0: its fastest schedules are those of least memory.
[[nodiscard]] sized_chain without_times(sized_chain c);

/// The memory with which every stage can be kept whole, by any of its options. Precondition: not wide.
[[nodiscard]] std::int64_t store_all_room(const sized_chain& c);

/// The bytes with which the model can keep every stage of a graph whole. O(L²) time.
[[nodiscard]] std::int64_t store_all_bytes(const stage_chain& c);

/// The bytes of a slot such that `store_all_bytes` takes at most `slots` of them: 1, or an even number, which can be
/// halved. Precondition: slots > 0.
[[nodiscard]] std::int64_t slot_bytes(const stage_chain& c, std::uint32_t slots);

/// A lower bound on D(1, n, room) (see `excess_bound`) of every schedule of a chain's actions, memory-persistent or
/// not. When the loss runs for the first time, the tensors that are kept for backwards fit in `room`, and the forward
/// of every stage that keeps nothing, or its input alone, runs again. The bound is the linear relaxation of that
/// knapsack. If no option's forward is faster than the stage's own, it also holds for schedules that drop saved
/// tensors. O(n log n) time. Precondition: not wide.
[[nodiscard]] double recompute_bound(const sized_chain& c, std::int64_t room);

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
  /// The most time beyond the least that is of interest; the largest number where there is no limit.
  double limit = std::numeric_limits<double>::max();

  /// Holds no sums: another must be assigned to it before use.
  excess_bound() = default;
  /// The sums of the stages of `c`. `limit` becomes `most`, widened by more than sums of times can lose by rounding.
  /// O(stages and options) time.
  explicit excess_bound(const sized_chain& c, double most = std::numeric_limits<double>::max());

  /// n, the number of stages.
  [[nodiscard]] std::uint32_t length() const noexcept { return static_cast<std::uint32_t>(advanced.size() - 1); }
  /// True when there is a limit.
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
  [[nodiscard]] double most(std::uint32_t s, std::uint32_t t) const noexcept {
    return t == length() || !bounded() ? limit : limit - advance(s, t + 1);
  }
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/sized_chain.hpp"
#endif
