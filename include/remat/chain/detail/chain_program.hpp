// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "remat/chain/chain_schedule.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/row_sweep.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/slot_table.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/chain/detail/stage_ways.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

/// Options of `chain_program::fill`.
struct chain_program_options {
  std::uint32_t slots = 500;  ///< parts of the memory with which every stage is kept whole, 1 … 2^24
  /// Budgets above this many bytes are of no interest.
  std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max();
  /// The most time beyond `chain_program::flat_time` that is of interest.
  double most_lost = std::numeric_limits<double>::max();
  std::int64_t table_bytes = std::int64_t{1} << 30;  ///< a larger table is not filled
  unsigned threads = 1;                              ///< that fill the table
};

/// Rotor's dynamic program over a chain of sub-graphs, each of which runs in one of several ways: one table holds the
/// fastest memory-persistent schedules for all budgets at once. \cite beaumont2019rotor \cite zhao2023rockmate
///
/// The chain is cut from a line of operations, such as a level of a hierarchy (`cuts_at_depth`). Memory is counted in
/// slots, and sizes are rounded to the nearest one, so a schedule may need slightly more memory than the table says, or
/// less: the caller checks what it expands to.
///
///     chain_program program(graph, line, cuts);
///     program.set_ways(options_of_stages);
///     if (program.fill(clock, {}) == fill_outcome::filled)
///       program.visit([&](const chain_program::entry& e) { … });
class chain_program {
 public:
  /// What `visit` is called with.
  struct entry {
    double lost = 0;                  ///< time beyond `flat_time`, as the table counts it; may be below 0
    std::int64_t bytes = 0;           ///< the budget, as the table counts it
    std::vector<chain_step> steps{};  ///< the schedule of the chain
  };
  /// Tells `visit` how to go on: the number of bytes by which the next budget is to be lower at least; negative: end.
  using visitor = std::function<std::int64_t(const entry&)>;

  /// Keeps a reference to the graph. O(operations + reads and writes + L²) time for L stages. With
  /// `stage_order::least_peak` sizes are rounded up, so that a schedule never needs more than the table says.
  chain_program(const flat_graph& g, const forward_line& line, const cut_list& cuts,
                stage_order order = stage_order::listed);
  chain_program(const chain_program&) = delete;
  chain_program& operator=(const chain_program&) = delete;

  /// The stages. Stages count from 1.
  [[nodiscard]] const stage_chain& chain() const noexcept { return chain_; }
  /// Gives stages further ways to run: `further[s]`, s = 1 … L. O(L² · ways + reads and writes of all ways) time.
  void set_ways(std::vector<std::vector<stage_way>> further);
  /// The number of ways of all stages, beside the first one of each.
  [[nodiscard]] std::size_t num_further() const noexcept { return further_; }

  /// The time of a schedule without recomputation, as the table counts it.
  [[nodiscard]] double flat_time() const noexcept { return flat_time_; }
  /// The bytes with which every stage is kept whole, as the table counts them.
  [[nodiscard]] std::int64_t flat_bytes() const noexcept { return flat_bytes_; }

  /// Fills the table. Its rows count as work on the clock. A table of no fewer rows than there is work left is not
  /// begun: it uses that work up, and the answer is `stopped`. Polls after each row. `too_large`: the table would take
  /// more than `table_bytes`.
  [[nodiscard]] fill_outcome fill(run_clock& clock, const chain_program_options& options);

  /// Calls `visitor` with the schedules of the table that differ in time, fastest first. Precondition: filled.
  void visit(const visitor& visitor) const;

  /// The time beyond `flat_time` of the table's fastest schedule within `bytes`; infinite where there is none.
  /// Precondition: filled.
  [[nodiscard]] double lost_within(std::int64_t bytes) const;

  /// The operations of a schedule of the chain, in order, for `schedule_computes`: each forward for its purpose, or
  /// (`whole`) each with all of its operations. Either may need less memory.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps, bool whole) const;

 private:
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

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/chain_program.hpp"
#endif
