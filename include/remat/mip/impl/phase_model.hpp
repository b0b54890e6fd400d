// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/detail/phase_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"

namespace remat::detail {

REMAT_INLINE size_units::size_units(std::int64_t budget, std::int64_t divisor, std::int64_t most_units)
    : unit_(std::max<std::int64_t>(divisor, 1)) {
  if (budget / unit_ > most_units) {
    const std::int64_t least = (budget - 1) / most_units + 1;
    unit_ = (least + unit_ - 1) / unit_ * unit_;
  }
  capacity_ = budget / unit_;
  for (std::int64_t c = capacity_; c > 1024; c /= 2) weight_ /= 2;
}

namespace phase_programs {

REMAT_INLINE void require_valid_options(std::string_view model, double at_most, std::int64_t units,
                                        double most_columns) {
  const auto refuse = [model](const std::string& text) { throw bad_argument(std::string(model) + ": " + text); };
  if (std::isnan(at_most)) refuse("at_most is NaN; it must be a time");
  if (units < 1) refuse("units is " + std::to_string(units) + "; there must be at least one");
  if (std::isnan(most_columns)) refuse("most_columns is NaN; it must be a number of columns");
}

}  // namespace phase_programs

REMAT_INLINE phase_model::phase_model(std::span<const std::int64_t> bytes, double most_columns, const run_control& run)
    : bytes_(bytes), most_columns_(most_columns), run_(run), clock_(run_), held_(bytes.size()) {}

REMAT_INLINE bool phase_model::may_continue() {
  if (complete_) complete_ = !clock_.should_stop() && static_cast<double>(model_.num_columns()) <= most_columns_;
  return complete_;
}

REMAT_INLINE void phase_model::set_scales(const size_units& sizes, double time_scale) {
  sizes_ = sizes;
  time_scale_ = time_scale;
}

REMAT_INLINE void phase_model::hold(std::uint32_t x, const mip_value& value) {
  if (held_[x].is_constant(1)) certain_memory_ -= tensor_size(x);
  if (value.is_constant(1)) certain_memory_ += tensor_size(x);
  held_[x] = value;
}

REMAT_INLINE mip_value phase_model::hold_from_start(std::uint32_t x) {
  const mip_value value = new_column();
  hold(x, value);
  start_.push_back({x, value.column});
  return value;
}

REMAT_INLINE void phase_model::add_start_memory() {
  memory_ = {model_.add_column(0, 0, sizes_.capacity()), 0};
  start_memory_ = memory_.column;
}

REMAT_INLINE void phase_model::add_start_row() {
  certain_start_ = certain_memory_;
  for (std::uint32_t x = 0; x < held_.size(); ++x) add_term(held_[x], tensor_size(x));
  add_term(memory_, -1);
  end_row(0, 0);
}

REMAT_INLINE double phase_model::fill_in_start(std::span<double> values, std::span<const std::uint8_t> is_held) const {
  double memory = certain_start_;
  for (const auto& [x, column] : start_) {
    values[column] = is_held[x];
    if (is_held[x]) memory += tensor_size(x);
  }
  if (start_memory_ != none) values[start_memory_] = memory;
  return memory;
}

REMAT_INLINE void phase_model::require_held(const mip_value& held, std::span<const mip_value> readers, bool certain) {
  if (held.is_constant(1) || readers.empty()) return;
  add_term(held, 1);
  if (certain) return end_row(1, 1);
  for (const mip_value& r : readers) add_term(r, -1);
  end_row(0, infinite);
}

REMAT_INLINE void phase_model::limit_held(const mip_value& after, const mip_value& before,
                                          std::span<const mip_value> makers) {
  if (after.is_constant()) return;  // 0, or held for certain
  add_term(after, 1);
  add_term(before, -1);
  for (const mip_value& m : makers) add_term(m, -1);
  end_row(-infinite, 0);
}

REMAT_INLINE void phase_model::forbid_useless(std::span<const mip_value> runs, std::span<const mip_value> kept) {
  for (const mip_value& r : runs) add_term(r, 1);
  for (const mip_value& v : kept) add_term(v, -1);
  end_row(-infinite, 0);
}

REMAT_INLINE void phase_model::end_peak_row() {
  add_term(memory_, 1);
  end_row(-infinite, sizes_.capacity());
}

REMAT_INLINE std::uint32_t phase_model::carry_memory(std::span<const held_change> changes) {
  const auto moves = [&](const held_change& c) { return !(c.before == c.after) && tensor_size(c.tensor) != 0; };
  if (!std::any_of(changes.begin(), changes.end(), moves)) return none;
  for (const held_change& c : changes) {
    if (!moves(c)) continue;
    add_term(c.after, tensor_size(c.tensor));
    add_term(c.before, -tensor_size(c.tensor));
  }
  const mip_value after{model_.add_column(0, 0, sizes_.capacity()), 0};
  add_term(memory_, 1);
  add_term(after, -1);
  end_row(0, 0);
  memory_ = after;
  return after.column;
}

}  // namespace remat::detail
