// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "remat/method/hiremate/detail/level_cells.hpp"
#include "remat/method/hiremate/detail/level_phases.hpp"

namespace remat::detail {

/// The rows of `level_model` at moments: first runs, before which the rows say what the later first runs need.
class level_moments {
 public:
  level_moments(row_writer& rows, const level_phases& phases, const level_cells& cells)
      : rows_(rows), phases_(phases), cells_(cells) {}

  /// Adds the rows of moment `m`. `held`: which tensors are held just before it. `stop()` ends it early.
  void add(std::uint32_t m, std::span<const mip_value> held, const std::function<bool()>& stop) {
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
        rows_.add_row(1, {{held_[x], 1}, {y, 1}}, mip_model::infinite);
      }
    for (std::size_t i = begin_; i < later_runs_.size(); ++i) {  // the loop adds further ones at the end
      if (stop()) return;
      if (later_runs_[i].column != mip_model::none) add_reads(later_run(later_runs_[i]));
    }
  }
  /// Sets the columns Y as the decisions in `values` imply.
  void fill_in(std::span<double> values) const {
    for (const later_run& y : later_runs_)
      if (y.column != mip_model::none)
        for (const std::uint32_t c : y.decisions) values[y.column] = std::max(values[y.column], values[c]);
  }

 private:
  struct later_run {
    std::uint32_t column = mip_model::none;  // Y; none: none of the variants can run later
    std::uint32_t run = 0;
    std::vector<std::uint32_t> variants{};
    std::vector<std::uint32_t> decisions{};  // columns R
  };

  /// Y of some variants of a run; the constant 0 if none of them can run after the moment.
  mip_value column_of(std::uint32_t run, std::vector<std::uint32_t> variants) {
    for (std::size_t i = begin_; i < later_runs_.size(); ++i)
      if (later_runs_[i].run == run && later_runs_[i].variants == variants) return {later_runs_[i].column, 0};
    later_run y{mip_model::none, run, std::move(variants), {}};
    for (const std::uint32_t c : cells_.again(run))
      if (cells_[c].phase > moment_)
        for (const level_cell::way& o : cells_[c].ways)
          if (contains(y.variants, o.variant)) y.decisions.push_back(o.column);
    if (!y.decisions.empty()) {
      const mip_value column = rows_.new_column();
      y.column = column.column;
      for (const std::uint32_t c : y.decisions) rows_.add_term({c, 0}, 1);
      rows_.add_term(column, -1);
      rows_.end_row(0, mip_model::infinite);
    }
    later_runs_.push_back(std::move(y));
    return {later_runs_.back().column, 0};
  }
  /// Y of the variants that write a tensor.
  mip_value made_later(std::uint32_t x) { return column_of(phases_.writers().first[x], variants_writing(x)); }
  std::vector<std::uint32_t> variants_writing(std::uint32_t x) const {
    std::vector<std::uint32_t> out;
    const auto& variants = phases_.variants(phases_.writers().first[x]);
    for (std::uint32_t o = 0; o < variants.size(); ++o)
      if (contains(variants[o].writes, x)) out.push_back(o);
    return out;
  }
  bool is_made_before(std::uint32_t x) const { return phases_.writers().last[x] < moment_; }
  /// The rows for the reads of a later first run.
  void add_first_run(std::uint32_t t) {
    const level_cell& c = cells_.first(t);
    const auto& variants = phases_.variants(t);
    std::vector<std::uint32_t> tensors, runs_with_alternatives;
    for (const level_cell::way& o : c.ways)
      tensors.insert(tensors.end(), variants[o.variant].reads.begin(), variants[o.variant].reads.end());
    sort_unique(tensors);
    for (const std::uint32_t x : tensors) {
      if (!is_made_before(x)) continue;
      if (!phases_.is_common(x) && c.ways.size() > 1) runs_with_alternatives.push_back(phases_.writers().first[x]);
      if (held_[x].is_constant(1)) continue;
      const mip_value y = made_later(x);
      std::size_t readers = 0;
      for (const level_cell::way& o : c.ways) readers += contains(variants[o.variant].reads, x);
      rows_.add_term(y, 1);
      rows_.add_term(held_[x], 1);
      if (readers == c.ways.size()) {
        rows_.end_row(1, mip_model::infinite);
        continue;
      }
      for (const level_cell::way& o : c.ways)
        if (contains(variants[o.variant].reads, x)) rows_.add_term({o.column, 0}, -1);
      rows_.end_row(0, mip_model::infinite);
    }
    sort_unique(runs_with_alternatives);
    for (const std::uint32_t k : runs_with_alternatives) add_alternatives(c, k);
  }
  /// Each variant of a later first run that reads alternatives of run k needs at least one of them: one row counts them
  /// together.
  void add_alternatives(const level_cell& c, std::uint32_t k) {
    const auto& variants = phases_.variants(c.run);
    std::vector<std::uint32_t> needed, makers, columns;
    for (const level_cell::way& o : c.ways) {
      std::uint32_t largest = mip_model::none;
      for (const std::uint32_t x : variants[o.variant].reads)
        if (phases_.writers().first[x] == k && !phases_.is_common(x) &&
            (largest == mip_model::none || phases_.level().bytes[x] > phases_.level().bytes[largest]))
          largest = x;
      if (largest == mip_model::none) continue;
      needed.push_back(largest);
      columns.push_back(o.column);
      const std::vector<std::uint32_t> writing = variants_writing(largest);
      makers.insert(makers.end(), writing.begin(), writing.end());
    }
    sort_unique(needed);
    sort_unique(makers);
    if (needed.size() < 2) return;
    const mip_value y = column_of(k, makers);
    rows_.add_term(y, 1);
    for (const std::uint32_t x : needed) rows_.add_term(held_[x], 1);
    for (const std::uint32_t column : columns) rows_.add_term({column, 0}, -1);
    rows_.end_row(0, mip_model::infinite);
  }
  /// The rows for what all variants of a Y read.
  void add_reads(const later_run& y) {
    const auto& variants = phases_.variants(y.run);
    for (const std::uint32_t x : variants[y.variants.front()].reads) {
      bool all = true;
      for (const std::uint32_t o : y.variants) all = all && contains(variants[o].reads, x);
      if (!all || held_[x].is_constant(1)) continue;
      const mip_value made = made_later(x);
      rows_.add_row(0, {{held_[x], 1}, {made, 1}, {{y.column, 0}, -1}}, mip_model::infinite);
    }
  }

  row_writer& rows_;
  const level_phases& phases_;
  const level_cells& cells_;
  std::uint32_t moment_ = 0;
  std::span<const mip_value> held_;
  std::size_t begin_ = 0;  // the first column of this moment
  std::vector<later_run> later_runs_;
};

}  // namespace remat::detail
