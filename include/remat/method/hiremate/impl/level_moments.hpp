// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/hiremate/detail/level_moments.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/method/hiremate/detail/level_cells.hpp"
#include "remat/method/hiremate/detail/level_phases.hpp"
#include "remat/method/hiremate/detail/level_problem.hpp"
#include "remat/mip/detail/row_writer.hpp"

namespace remat::detail::level_program {

namespace moments {

inline constexpr std::uint32_t none = mip_model::none;
inline constexpr double infinite = mip_model::infinite;

inline void sort_unique(std::vector<std::uint32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace moments

REMAT_INLINE void level_moments::add(std::uint32_t m, std::span<const mip_value> held,
                                     const std::function<bool()>& stop) {
  moment_ = m;
  held_ = held;
  begin_ = later_runs_.size();
  for (std::uint32_t t = m + 1; t < phases_.size(); ++t) {
    if (stop()) return;
    add_first_run(t);
  }
  for (const std::uint32_t x : phases_.level().outputs)
    if (is_made_before(x) && !held_[x].is_constant(1)) {
      const mip_value y = made_later(x);
      rows_.add_row(1, {{held_[x], 1}, {y, 1}}, moments::infinite);
    }
  for (std::size_t i = begin_; i < later_runs_.size(); ++i) {  // the loop adds further ones at the end
    if (stop()) return;
    if (later_runs_[i].column != moments::none) add_reads(later_run(later_runs_[i]));
  }
}

REMAT_INLINE void level_moments::fill_in(std::span<double> values) const {
  for (const later_run& y : later_runs_)
    if (y.column != moments::none)
      for (const std::uint32_t c : y.decisions) values[y.column] = std::max(values[y.column], values[c]);
}

/// Y of some variants of a run; the constant 0 if none of them can run after the moment.
REMAT_INLINE mip_value level_moments::column_of(std::uint32_t run, std::vector<std::uint32_t> variants) {
  for (std::size_t i = begin_; i < later_runs_.size(); ++i)
    if (later_runs_[i].run == run && later_runs_[i].variants == variants) return {later_runs_[i].column, 0};
  later_run y{moments::none, run, std::move(variants), {}};
  for (const std::uint32_t c : cells_.again(run))
    if (cells_[c].phase > moment_)
      for (const level_cell::option& o : cells_[c].ways)
        if (contains(y.variants, o.variant)) y.decisions.push_back(o.column);
  if (!y.decisions.empty()) {
    const mip_value column = rows_.new_column();
    y.column = column.column;
    for (const std::uint32_t c : y.decisions) rows_.add_term({c, 0}, 1);
    rows_.add_term(column, -1);
    rows_.end_row(0, moments::infinite);
  }
  later_runs_.push_back(std::move(y));
  return {later_runs_.back().column, 0};
}

/// Y of the variants that write a tensor.
REMAT_INLINE mip_value level_moments::made_later(std::uint32_t x) {
  return column_of(phases_.writers().first[x], variants_writing(x));
}

REMAT_INLINE std::vector<std::uint32_t> level_moments::variants_writing(std::uint32_t x) const {
  std::vector<std::uint32_t> out;
  const auto& variants = phases_.variants(phases_.writers().first[x]);
  for (std::uint32_t o = 0; o < variants.size(); ++o)
    if (contains(variants[o].writes, x)) out.push_back(o);
  return out;
}

REMAT_INLINE bool level_moments::is_made_before(std::uint32_t x) const { return phases_.writers().last[x] < moment_; }

/// The rows for the reads of a later first run.
REMAT_INLINE void level_moments::add_first_run(std::uint32_t t) {
  const level_cell& c = cells_.first(t);
  const auto& variants = phases_.variants(t);
  std::vector<std::uint32_t> tensors, runs_with_alternatives;
  for (const level_cell::option& o : c.ways)
    tensors.insert(tensors.end(), variants[o.variant].reads.begin(), variants[o.variant].reads.end());
  moments::sort_unique(tensors);
  for (const std::uint32_t x : tensors) {
    if (!is_made_before(x)) continue;
    if (!phases_.is_common(x) && c.ways.size() > 1) runs_with_alternatives.push_back(phases_.writers().first[x]);
    if (held_[x].is_constant(1)) continue;
    const mip_value y = made_later(x);
    std::size_t readers = 0;
    for (const level_cell::option& o : c.ways) readers += contains(variants[o.variant].reads, x);
    rows_.add_term(y, 1);
    rows_.add_term(held_[x], 1);
    if (readers == c.ways.size()) {
      rows_.end_row(1, moments::infinite);
      continue;
    }
    for (const level_cell::option& o : c.ways)
      if (contains(variants[o.variant].reads, x)) rows_.add_term({o.column, 0}, -1);
    rows_.end_row(0, moments::infinite);
  }
  moments::sort_unique(runs_with_alternatives);
  for (const std::uint32_t k : runs_with_alternatives) add_alternatives(c, k);
}

/// Each variant of a later first run that reads alternatives of run k needs at least one of them: one row counts them
/// together.
REMAT_INLINE void level_moments::add_alternatives(const level_cell& c, std::uint32_t k) {
  const auto& variants = phases_.variants(c.run);
  std::vector<std::uint32_t> needed, makers, columns;
  for (const level_cell::option& o : c.ways) {
    std::uint32_t largest = moments::none;
    for (const std::uint32_t x : variants[o.variant].reads)
      if (phases_.writers().first[x] == k && !phases_.is_common(x) &&
          (largest == moments::none || phases_.level().bytes[x] > phases_.level().bytes[largest]))
        largest = x;
    if (largest == moments::none) continue;
    needed.push_back(largest);
    columns.push_back(o.column);
    const std::vector<std::uint32_t> writing = variants_writing(largest);
    makers.insert(makers.end(), writing.begin(), writing.end());
  }
  moments::sort_unique(needed);
  moments::sort_unique(makers);
  if (needed.size() < 2) return;
  const mip_value y = column_of(k, makers);
  rows_.add_term(y, 1);
  for (const std::uint32_t x : needed) rows_.add_term(held_[x], 1);
  for (const std::uint32_t column : columns) rows_.add_term({column, 0}, -1);
  rows_.end_row(0, moments::infinite);
}

/// The rows for what all variants of a Y read.
REMAT_INLINE void level_moments::add_reads(const later_run& y) {
  const auto& variants = phases_.variants(y.run);
  for (const std::uint32_t x : variants[y.variants.front()].reads) {
    bool all = true;
    for (const std::uint32_t o : y.variants) all = all && contains(variants[o].reads, x);
    if (!all || held_[x].is_constant(1)) continue;
    const mip_value made = made_later(x);
    rows_.add_row(0, {{held_[x], 1}, {made, 1}, {{y.column, 0}, -1}}, moments::infinite);
  }
}

}  // namespace remat::detail::level_program
