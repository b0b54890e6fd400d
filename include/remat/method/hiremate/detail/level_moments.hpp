// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "remat/method/hiremate/detail/level_cells.hpp"
#include "remat/method/hiremate/detail/level_phases.hpp"
#include "remat/mip/detail/row_writer.hpp"

namespace remat::detail::level_program {

/// The rows of `level_model` at moments: first runs, before which the rows say what the later first runs need.
///
/// A column Y, at most 1 and at most the sum of R over the later phases, says of some variants of a run that one of
/// them runs again after the moment. Each tensor that a later first run reads is held, or Y = 1 for its writers. Each
/// tensor that all variants of a Y read is held, or made likewise, for the amount Y.
class level_moments {
 public:
  level_moments(row_writer& rows, const level_phases& phases, const level_cells& cells)
      : rows_(rows), phases_(phases), cells_(cells) {}

  /// Adds the rows of moment `m`. `held`: which tensors are held just before it. `stop()` ends it early.
  void add(std::uint32_t m, std::span<const mip_value> held, const std::function<bool()>& stop);
  /// Sets the columns Y as the decisions in `values` imply.
  void fill_in(std::span<double> values) const;

 private:
  struct later_run {
    std::uint32_t column = mip_model::none;  // Y; none: none of the variants can run later
    std::uint32_t run = 0;
    std::vector<std::uint32_t> variants{};
    std::vector<std::uint32_t> decisions{};  // columns R
  };

  mip_value column_of(std::uint32_t run, std::vector<std::uint32_t> variants);
  mip_value made_later(std::uint32_t x);
  std::vector<std::uint32_t> variants_writing(std::uint32_t x) const;
  bool is_made_before(std::uint32_t x) const;
  void add_first_run(std::uint32_t t);
  void add_alternatives(const level_cell& c, std::uint32_t k);
  void add_reads(const later_run& y);

  row_writer& rows_;
  const level_phases& phases_;
  const level_cells& cells_;
  std::uint32_t moment_ = 0;
  std::span<const mip_value> held_;
  std::size_t begin_ = 0;  // the first column of this moment
  std::vector<later_run> later_runs_;
};

}  // namespace remat::detail::level_program

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/level_moments.hpp"
#endif
