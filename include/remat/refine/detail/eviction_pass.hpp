// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

/// How a pass chooses the tensor to evict: the one of the least
///
///     cost^cost_exponent · factor / (bytes^bytes_exponent · distance^distance_exponent)
///
/// *cost* is the time to recompute the tensor now, missing ancestors included; *distance* is the number of operations
/// up to its next use; *factor* is given for each tensor.
struct eviction_weights {
  double cost_exponent = 1;      ///< of the time to recompute the tensor
  double bytes_exponent = 1;     ///< of its size
  double distance_exponent = 1;  ///< of the distance of its next use
  /// A recomputation to come counts as a use: it shortens the distance of the tensors that it reads, and a tensor
  /// without another use is kept for it while there is room.
  bool foresee_recomputations = false;
  /// Where there is no other room, evict inputs of operations that wait for a recomputation; they are recomputed later.
  bool evict_pinned = false;
};

/// One pass of offline eviction: runs the operations in the listed order under a budget, recomputes missing inputs, and
/// evicts a tensor when memory runs out. `evict` explains the method. Built once for a problem, run with many weights.
///
/// A run takes O(evictions × resident tensors) time and the time to search for recomputations. It counts one unit of
/// work for each listed operation and for each 4096 steps of a search, and polls as often.
class eviction_pass {
 public:
  /// `p` must outlive this object; its budget is not used.
  explicit eviction_pass(const problem& p);

  /// Runs the pass. Returns whether it reached the end within `budget` bytes; then `computes()` is a legal sequence.
  /// `factor`: one for each tensor. The pass gives up once its computes take more time than `longest`, and when the
  /// clock says so.
  bool run(std::int64_t budget, const eviction_weights& weights, std::span<const float> factor, double longest,
           run_clock& clock);

  /// The operations in the order in which the last pass ran them. Some of the runs may be in vain.
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return computes_; }

  /// After a pass that ran out of memory: the tensors that it was recomputing then, the first requested one first.
  [[nodiscard]] const std::vector<std::uint32_t>& wanted() const noexcept { return wanted_; }

 private:
  enum : std::uint8_t { not_made, resident, missing };  // of a tensor; missing: evicted, or freed
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  static constexpr double infinite = std::numeric_limits<double>::infinity();

  /// Counts steps of a search; polls the clock, and counts one unit of work, every `poll_stride` of them. Returns
  /// whether the pass must stop.
  bool tick(std::size_t steps = 1) {
    steps_ += steps;
    return steps_ < poll_stride ? stopped_ : poll();
  }
  bool poll();

  void reset(std::int64_t budget, const eviction_weights& weights, std::span<const float> factor, double longest);

  /// x^−e, with a shortcut for the most frequent exponents.
  static float inverse_power(double x, double e);

  [[nodiscard]] std::uint32_t next_use_after(std::uint32_t t) const noexcept;

  /// Runs `o` for the first time, after the recomputation of its missing inputs.
  bool first_run(std::uint32_t o);

  /// At the end of the training step: recomputes the final outputs that were evicted, and holds them all.
  bool make_final_outputs();

  /// A use of a tensor by a recomputation to come. Each tensor has a list of them, in ascending order.
  struct foreseen {
    std::uint32_t at;  // the operation before which `missing` has to be recomputed
    std::uint32_t missing;
    std::uint32_t next;
  };

  /// Adds a use of `t` before operation `at` by the recomputation of `missing`.
  void foresee_use(std::uint32_t t, std::uint32_t at, std::uint32_t missing);

  /// The next use of `t`, foreseen recomputations included. Removes those that lie in the past from the list.
  std::uint32_t soonest_use(std::uint32_t t);

  /// An operation that waits for the recomputation of its inputs.
  struct frame {
    std::uint32_t operation;
    std::uint32_t input;     // the next of its inputs to look at
    std::uint32_t restarts;  // how often an input was evicted while another one was recomputed
  };

  static constexpr std::uint32_t most_restarts = 4;

  /// Whether `t` is resident and all its producers have run.
  [[nodiscard]] bool readable(std::uint32_t t) const noexcept {
    return state_[t] == resident && (graph_.always_resident[t] || written_[t] == graph_.producers[t].size());
  }

  /// Runs `o` after its missing inputs, depth first. Its resident inputs are pinned until it has run.
  bool make(std::uint32_t o);

  /// Runs `o`, whose inputs are readable. Returns false where memory or time does not suffice.
  bool run_one(std::uint32_t o);

  /// Allocates `t`. `written`: the number of its producers that have run since.
  void put(std::uint32_t t, std::uint32_t written);

  /// Frees or evicts `t`.
  void remove(std::uint32_t t);

  /// Frees `t`, which no first run reads later, unless a recomputation needs it.
  void drop_dead(std::uint32_t t);

  /// The first later use of a missing tensor that depends on `t` through missing tensors alone.
  std::uint32_t first_use_through_missing(std::uint32_t t);

  /// `t` was recomputed, so tensors that are made from it cost less now. Looks at some 64 of them.
  void mark_stale(std::uint32_t t);

  /// Calls `run(o)` for each operation that a recomputation of `t` runs, missing ancestors included, and `read(u)` for
  /// each tensor that the operation reads. Ends when one of the two returns false; returns whether none did.
  template <class Run, class Read>
  bool for_each_recomputation(std::uint32_t t, Run&& run, Read&& read);

  /// The time to recompute `t` if it were evicted now, missing ancestors included.
  double recompute_cost(std::uint32_t t);

  /// `t` was evicted: the tensors from which it is recomputed are read again before its next use.
  void foresee_recomputation(std::uint32_t t);

  /// The eviction with the least score is made first.
  [[nodiscard]] double score(std::uint32_t t) const noexcept {
    const std::uint32_t next = soonest_[t];
    const std::uint32_t distance = next == never ? graph_.num_operations : next - std::min(next, now_);
    return static_cast<double>(cost_[t]) * scaled_factor_[t] * distance_power_[distance];
  }

  /// Computes the cost of `t` anew.
  void refresh(std::uint32_t t);

  struct candidate {
    double score;
    std::uint32_t tensor;
  };
  static bool costs_more(const candidate& a, const candidate& b) noexcept {
    return a.score != b.score ? a.score > b.score : a.tensor > b.tensor;
  }

  /// Evicts tensors until `need` bytes are free. Returns whether it succeeded.
  bool reserve(std::int64_t need);

  /// Renews the distances of tensors whose foreseen uses have passed, and frees those without another use.
  void forget_past_uses();

  /// Evicts the tensors of the least score first. The inputs and outputs of the operation that is about to run stay;
  /// pinned tensors, inputs of operations that wait for it, are evicted last, if at all.
  void evict_cheapest(std::int64_t need);

  /// A later victim may have made earlier ones unnecessary: takes those back that still fit, the costliest first.
  void take_back(std::int64_t need);

  static constexpr std::size_t poll_stride = 4096;

  // The problem.
  const flat_graph& graph_;
  std::vector<std::uint32_t> order_;        // the needed operations
  index_rows uses_;                         // tensor → the needed operations that read it
  std::vector<std::uint8_t> rerunnable_;    // of an operation
  std::vector<std::uint8_t> recomputable_;  // of a tensor

  // The arguments of the run.
  std::int64_t budget_ = 0;
  eviction_weights weights_{};
  double longest_ = 0;
  run_clock* clock_ = nullptr;
  std::size_t steps_ = 0;  // of searches, since the last poll
  bool stopped_ = false;

  // The state of the run.
  std::int64_t memory_ = 0;
  double time_ = 0;       // of the computes so far
  double remaining_ = 0;  // of the first runs to come
  std::uint32_t now_ = 0;
  std::uint32_t change_ = 0;  // counts changes of the set of resident tensors
  std::vector<std::uint32_t> computes_, wanted_;
  std::vector<std::uint32_t> resident_tensors_;
  std::vector<frame> frames_;

  // Of each tensor.
  std::vector<std::uint8_t> state_;
  std::vector<std::uint32_t> slot_;      // its index in `resident_tensors_`
  std::vector<std::uint32_t> written_;   // how many of its producers have run since it was allocated
  std::vector<std::uint32_t> pins_;      // how many operations wait with it as an input
  std::vector<std::uint32_t> use_at_;    // its index in `uses_`: the next first run that reads it …
  std::vector<std::uint32_t> next_use_;  // … and that operation
  std::vector<std::uint32_t> soonest_;   // the next use, foreseen recomputations included
  std::vector<std::uint32_t> foreseen_;  // the first of its list in `foreseen_pool_`
  std::vector<foreseen> foreseen_pool_;
  std::vector<double> cost_;
  std::vector<std::uint32_t> cost_at_;  // `change_` when the cost was computed, or `never`
  std::vector<float> scaled_factor_;

  // Tables of powers, and their exponents.
  double bytes_exponent_ = -1, distance_exponent_ = -1;
  std::vector<float> byte_power_, distance_power_;

  // Scratch memory of searches; an entry is marked if it has the present stamp.
  std::vector<std::uint32_t> stack_, victims_;
  std::vector<candidate> heap_;
  std::vector<std::uint32_t> seen_, marked_, held_;
  std::uint32_t stamp_ = 0, mark_ = 0, hold_ = 0;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/refine/impl/eviction_pass.hpp"
#endif
