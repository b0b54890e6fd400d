// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/treewidth/detail/separator_tree.hpp"

namespace remat::detail {

/// The rule by which `separator_recursion::hold_less` ranks tensors.
enum class hold_rule : std::uint8_t {
  largest,  ///< the largest first; those that would be held nowhere come last
  cheapest  ///< the least time of the operation per byte and step first
};

/// The recursion of TwRemat \cite kumar2019twremat for one training step and one separator tree. It can be run under
/// any budget.
///
/// make(k, operations) runs those of `operations` and of their missing ancestors that are in or below node k; on return
/// the tensors that are held are there. If running all of them in the listed order fits, it does that. Otherwise the
/// needed operations of node k run one by one, in the listed order: the missing inputs of each are made in the parts
/// below, the operation runs, and the inputs are freed. Tensors that node k's operations write are held until the last
/// call that may read them. The `operations` in the parts below come last.
///
/// Under a smaller budget the recursion takes more parts apart; under a budget of 0 it goes to the bottom, as in the
/// paper. `hold_less` makes it hold fewer tensors of the separators, which the recursion then makes again: less memory
/// than the paper's, more time.
///
/// Time: O(operations · log) for each call of `make`, of which there are O(n^log w) at worst with width w.
class separator_recursion {
 public:
  /// Keeps a reference to `graph`, which must outlive this object. Precondition: `tree` separates the operation graph.
  separator_recursion(const flat_graph& graph, separator_tree tree);

  /// Returns whether a sequence was made. The sequence may be over the budget where a part cannot be taken apart any
  /// more. A sequence that takes more time than `longest`, in the cost model's unit, is given up, and so is one with
  /// more than 2,000 calls of make inside one another. Where an operation would add to a tensor twice, the sequence is
  /// made again with all outputs of that operation held from its first run on; at most 63 times.
  /// Counts a unit of work for each compute. Polls every fraction of a millisecond.
  bool run(std::int64_t budget, double longest, run_clock& clock);
  /// The operations of the last sequence, in order.
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return computes_; }
  /// The separators inside one another, at most, that the last run took apart; 0: everything ran in the listed order.
  [[nodiscard]] std::uint32_t deepest() const noexcept { return deepest_; }

  /// Looks at the step of `plan` with the highest peak, and chooses tensors that lie idle there until the peak is no
  /// more than `budget`. In the runs that follow, a tensor that was chosen once is not held across calls that do not
  /// read it; one that was chosen twice is held by no separator; an output of the training step is made last.
  /// Returns false where no tensor is left to choose. Precondition: `plan` is legal but for its peak.
  bool hold_less(const schedule& plan, std::int64_t budget, hold_rule rule);
  /// Undoes `hold_less`.
  void hold_all();
  /// The number of tensors that `hold_less` has chosen.
  [[nodiscard]] std::size_t held_less() const noexcept { return held_less_; }

 private:
  /// How long the separators hold a tensor.
  enum hold_kind : std::uint8_t { until_last_reader, while_read, nowhere };

  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t most_restarts = 64;
  static constexpr std::uint32_t most_nested = 2000;  ///< calls inside one another; more would need much stack
  static constexpr std::size_t steps_between_polls = 100'000;

  /// How the operations of one call of `make` are divided into calls: one for each operation of `here`, then one for
  /// each of `parts`.
  struct division {
    /// A tensor of `here` is held from before call `first` to after call `last`.
    struct hold {
      std::uint32_t first, last, tensor;
    };

    std::vector<std::uint32_t> here;     // needed operations that are not below the node, one by one
    std::vector<std::uint32_t> in_part;  // targets below the node, ascending
    std::vector<std::uint32_t> parts;    // the children of the node that hold them
    std::vector<hold> holds;             // by their first call
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ends;  // last call of a hold, tensor; ascending

    [[nodiscard]] std::uint32_t calls() const noexcept {
      return static_cast<std::uint32_t>(here.size() + parts.size());
    }
  };

  bool run_once(std::int64_t budget, double longest, run_clock& clock);
  void make_targets(const std::vector<std::uint32_t>& targets);
  void make(std::uint32_t k, std::span<const std::uint32_t> operations);
  [[nodiscard]] std::vector<std::uint32_t> targets_in(std::uint32_t k, std::uint32_t part, const division& d) const;
  void plan_holds(std::uint32_t k, division& d);
  void hold_for(division& d, std::uint32_t t, std::uint32_t call);
  void run_calls(std::uint32_t k, const division& d);
  void run_here(std::uint32_t k, std::uint32_t o);
  void make_by_part(std::uint32_t k, std::vector<std::uint32_t>& wanted);

  void missing_for(std::span<const std::uint32_t> operations, std::vector<std::uint32_t>& needed);
  bool run_plainly(const std::vector<std::uint32_t>& needed);
  bool fits(const std::vector<std::uint32_t>& needed);
  void run_in_order(const std::vector<std::uint32_t>& needed);
  void count_uses(const std::vector<std::uint32_t>& needed);
  void compute(std::uint32_t o);
  void allocate_outputs(std::uint32_t o);
  void count(std::size_t steps);
  void let_go(std::uint32_t t);

  [[nodiscard]] bool readable(std::uint32_t t) const noexcept;
  [[nodiscard]] bool contributed(std::uint32_t o, std::uint32_t t) const noexcept;
  [[nodiscard]] bool open(std::uint32_t o) const noexcept;
  [[nodiscard]] bool held_less_of(std::uint32_t o) const noexcept;
  [[nodiscard]] bool below(std::uint32_t k, std::uint32_t o) const noexcept {
    return tree_.node_of[o] != k && tree_.contains(k, tree_.node_of[o]);
  }
  [[nodiscard]] std::uint32_t part_of(std::uint32_t k, std::uint32_t o) const noexcept;

  const flat_graph& graph_;
  separator_tree tree_;
  std::int64_t budget_ = 0, memory_ = 0;
  double time_ = 0, longest_ = 0;
  run_clock* clock_ = nullptr;
  bool stopped_ = false;
  std::size_t steps_ = 0;  // since the last poll
  std::size_t held_less_ = 0;
  std::uint32_t nested_ = 0, deepest_ = 0;
  std::uint32_t conflict_ = none;
  std::vector<std::uint8_t> there_, done_, kept_, hold_kind_;
  std::vector<std::uint32_t> ran_at_, allocation_, written_, held_, uses_, trial_, trial_uses_, wanted_, computes_;
  std::vector<std::uint32_t> held_here_, hold_of_, in_closure_;  // of the node that is being taken apart
  std::uint32_t stamp_ = 0, trial_stamp_ = 0, closure_ = 0;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/twremat/impl/separator_recursion.hpp"
#endif
