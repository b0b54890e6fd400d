// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/row_sweep.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/slot_table.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/chain/detail/stage_ways.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// Options of `chain_program::fill`.
struct chain_program_options {
  std::uint32_t slots = 500;    ///< slots that hold every stage whole, 1 … 2^24
  std::int64_t slot_bytes = 0;  ///< bytes of a slot; 0: such that `slots` of them hold every stage whole
  /// Schedules for larger budgets are left out.
  std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max();
  /// Schedules of more time than this beyond `chain_program::flat_time` are left out.
  double max_lost = std::numeric_limits<double>::max();
  std::int64_t table_bytes = std::int64_t{1} << 30;  ///< a larger table is not filled
};

/// Rotor's dynamic program over a chain of sub-graphs, each of which runs in one of several ways: one table holds the
/// fastest memory-persistent schedules for all budgets at once. \cite beaumont2019rotor \cite zhao2023rockmate
///
/// The chain is cut from a line of operations, such as a level of a hierarchy (`cuts_at_depth`). Memory is counted in
/// slots, and sizes are rounded to the nearest one. So a schedule may need slightly more or less memory than the table
/// says: the caller checks the schedule of operations (`expand`).
///
///     chain_program program(graph, line, cuts);
///     program.set_ways(ways_of_stages);
///     if (program.fill(clock, {}) == fill_outcome::filled)
///       for (auto e = program.fastest(); e; e = program.slower_than(*e)) use(program.steps(*e));
class chain_program {
 public:
  /// One of the schedules of the table.
  struct entry {
    double time = 0;         ///< the time, as the table counts it
    double lost = 0;         ///< time beyond `flat_time`, as the table counts it; may be below 0
    std::int64_t bytes = 0;  ///< the budget, as the table counts it
    std::int64_t slots = 0;  ///< the budget beside what always stands, in slots
  };

  /// Keeps a reference to the graph. O(operations + reads and writes + L²) time for L stages. With
  /// `stage_order::least_peak` sizes are rounded up, so that a schedule never needs more than the table says. `stop`:
  /// as for `stage_chain`, and no program is to be used whose chain is not complete.
  chain_program(const flat_graph& g, const forward_line& line, const cut_list& cuts,
                stage_order order = stage_order::listed, const std::function<bool()>& stop = {})
      : graph_(g),
        chain_(g, line, cuts, order, stop),
        rounding_(order == stage_order::listed ? slot_rounding::nearest : slot_rounding::up),
        flat_bytes_(store_all_bytes(chain_)) {
    for (std::uint32_t s = 1; s <= chain_.length(); ++s) flat_time_ += chain_[s].forward_time + chain_[s].backward_time;
  }
  chain_program(const chain_program&) = delete;
  chain_program& operator=(const chain_program&) = delete;

  /// The stages. Stages count from 1.
  [[nodiscard]] const stage_chain& chain() const noexcept { return chain_; }
  /// Gives stages further ways to run: `further[s]`, s = 1 … L. O(L² · ways + reads and writes of all ways) time.
  void set_ways(std::vector<std::vector<stage_way>> further) {
    further_ = 0;
    for (const std::vector<stage_way>& ways : further) further_ += ways.size();
    table_.reset();
    ways_ = std::make_unique<staged_ways>(graph_, chain_, std::move(further));
  }
  /// The number of ways of all stages, beside the first one of each.
  [[nodiscard]] std::size_t num_further() const noexcept { return further_; }

  /// The time of a schedule without recomputation, as the table counts it.
  [[nodiscard]] double flat_time() const noexcept { return flat_time_; }
  /// The bytes with which every stage is kept whole, as the table counts them.
  [[nodiscard]] std::int64_t flat_bytes() const noexcept { return flat_bytes_; }

  /// Fills the table. Its rows count as work on the clock (`work_of::table_row`). A table that needs all of the work
  /// left, or more, is not begun: the work left is spent, and the answer is `stopped`. Polls after each row.
  /// `too_large`: the table would take more than `table_bytes`.
  [[nodiscard]] fill_outcome fill(run_clock& clock, const chain_program_options& options) {
    table_.reset();
    unit_ = options.slot_bytes > 0 ? options.slot_bytes : flat_bytes_ / options.slots + 1;
    const std::int64_t free_bytes = options.max_bytes - std::min(options.max_bytes, chain_.standing_bytes());
    slots_ = static_cast<std::uint32_t>(std::min<std::int64_t>(options.slots, free_bytes / unit_));
    const slot_scale scale{unit_, slots_, rounding_};
    sizes_ = ways_ ? size_chain(*ways_, scale) : size_chain(chain_, scale);
    double limit = std::numeric_limits<double>::max();
    if (options.max_lost < limit)
      limit = std::max(0.0, flat_time_ + options.max_lost - excess_bound(sizes_).least.back());
    bound_ = excess_bound(sizes_, limit);
    table_ = std::make_unique<slot_table>(sizes_, slots_, bound_);
    clock.work(std::min(table_->rows() * work_of::table_row, clock.work_left()));
    fill_outcome end = fill_outcome::stopped;
    if (!clock.should_stop()) end = table_->fill(clock, options.table_bytes);
    if (end != fill_outcome::filled) table_.reset();
    return end;
  }
  /// The table, with memory in slots. Precondition of this and the rest: filled.
  [[nodiscard]] const slot_table& table() const noexcept { return *table_; }
  [[nodiscard]] std::int64_t slot_bytes() const noexcept { return unit_; }
  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }
  /// The ways of all stages that the table distinguishes.
  [[nodiscard]] std::size_t num_ways() const noexcept { return sizes_.options.size(); }

  /// The fastest schedule of the table, with the least memory of those; nothing if there is none.
  [[nodiscard]] std::optional<entry> fastest() const { return within(std::min(table_->last(), slots_)); }
  /// The fastest schedule that takes more time than `e`, and at least `bytes_less` bytes less.
  [[nodiscard]] std::optional<entry> slower_than(const entry& e, std::int64_t bytes_less = 0) const {
    return within(e.slots - bytes_less / unit_ - 1);
  }
  /// The time beyond `flat_time` of the table's fastest schedule within `bytes`; infinite if there is none.
  [[nodiscard]] double lost_within(std::int64_t bytes) const {
    const std::int64_t free_bytes = bytes - chain_.standing_bytes();
    if (free_bytes < 0) return std::numeric_limits<double>::infinity();
    const auto m = static_cast<std::uint32_t>(std::min<std::int64_t>(free_bytes / unit_, slots_));
    if (m < table_->first()) return std::numeric_limits<double>::infinity();
    return table_->cost(m) - flat_time_;
  }
  /// The schedule of an entry. O(steps · (stages + ways of a stage)) time.
  [[nodiscard]] std::vector<chain_step> steps(const entry& e) const { return table_->steps(e.slots); }

  /// The operations of a schedule of the chain, in order, for `schedule_computes`: each forward for its purpose, or
  /// (`whole`) each with all of its operations. Either may need less memory.
  [[nodiscard]] std::vector<std::uint32_t> expand(const std::vector<chain_step>& steps, bool whole) const {
    return ways_ ? ways_->expand(steps, whole) : chain_.expand(steps, whole);
  }

 private:
  [[nodiscard]] std::optional<entry> within(std::int64_t slots) const {
    const auto first = static_cast<std::int64_t>(table_->first());
    for (std::int64_t m = slots; m >= first; --m) {
      const auto at = static_cast<std::uint32_t>(m);
      if (m > first && table_->excess(at - 1) == table_->excess(at)) continue;  // the same time with less memory
      const double time = table_->cost(at);
      return entry{time, time - flat_time_, m * unit_ + chain_.standing_bytes(), m};
    }
    return std::nullopt;
  }

  const flat_graph& graph_;
  stage_chain chain_;
  slot_rounding rounding_;
  std::unique_ptr<staged_ways> ways_;
  std::size_t further_ = 0;
  double flat_time_ = 0;
  std::int64_t flat_bytes_ = 0;
  std::int64_t unit_ = 1;
  std::uint32_t slots_ = 0;
  sized_chain sizes_{};
  excess_bound bound_{};
  std::unique_ptr<slot_table> table_;
};

}  // namespace REMAT_NAMESPACE::detail
