// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

REMAT_INLINE std::uint32_t mip_model::add_column(double cost, double lower, double upper) {
  const std::size_t j = cost_.size();
  if (!std::isfinite(cost))
    throw bad_argument("column " + std::to_string(j) + ": the cost is not finite; it must be a number");
  check_bounds("column ", j, lower, upper);
  if (j >= none) throw bad_argument("more than 2^32 - 1 columns");
  cost_.push_back(cost);
  lower_.push_back(lower);
  upper_.push_back(upper);
  integer_.push_back(0);
  return static_cast<std::uint32_t>(j);
}

REMAT_INLINE std::uint32_t mip_model::add_integer(double cost, double lower, double upper) {
  const std::uint32_t j = add_column(cost, lower, upper);
  integer_[j] = 1;
  return j;
}

REMAT_INLINE std::uint32_t mip_model::add_row(double lower, std::span<const mip_term> terms, double upper) {
  const std::size_t i = num_rows();
  check_bounds("row ", i, lower, upper);
  const std::size_t first = terms_.size();
  try {
    for (const mip_term& t : terms) {
      if (t.column >= num_columns())
        throw bad_argument("row " + std::to_string(i) + ": column " + std::to_string(t.column) +
                           " does not exist; there are " + std::to_string(num_columns()));
      if (!std::isfinite(t.value))
        throw bad_argument("row " + std::to_string(i) + ", column " + std::to_string(t.column) +
                           ": the coefficient is not finite; it must be a number");
      terms_.push_back(t);
    }
  } catch (...) {
    terms_.resize(first);
    throw;
  }
  const auto begin = terms_.begin() + static_cast<std::ptrdiff_t>(first);
  std::sort(begin, terms_.end(), [](const mip_term& a, const mip_term& b) { return a.column < b.column; });
  auto kept = begin;
  for (auto at = begin; at != terms_.end();) {
    mip_term sum = *at;
    for (++at; at != terms_.end() && at->column == sum.column; ++at) sum.value += at->value;
    if (sum.value != 0) *kept++ = sum;
  }
  terms_.erase(kept, terms_.end());
  row_begin_.push_back(terms_.size());
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  return static_cast<std::uint32_t>(i);
}

REMAT_INLINE void mip_model::set_bounds(std::uint32_t column, double lower, double upper) {
  if (column >= num_columns())
    throw bad_argument("column " + std::to_string(column) + " does not exist; there are " +
                       std::to_string(num_columns()));
  check_bounds("column ", column, lower, upper);
  lower_[column] = lower;
  upper_[column] = upper;
}

REMAT_INLINE double mip_model::objective(std::span<const double> values) const noexcept {
  double sum = offset;
  for (std::size_t j = 0; j < cost_.size(); ++j) sum += cost_[j] * values[j];
  return sum;
}

REMAT_INLINE double mip_model::violation(std::span<const double> values) const noexcept {
  if (values.size() != num_columns()) return infinite;
  double most = 0;
  for (std::size_t j = 0; j < values.size(); ++j) {
    if (!std::isfinite(values[j])) return infinite;
    most = std::max({most, lower_[j] - values[j], values[j] - upper_[j]});
    if (integer_[j]) most = std::max(most, std::abs(values[j] - std::round(values[j])));
  }
  for (std::size_t i = 0; i < num_rows(); ++i) {
    double sum = 0, scale = 1;
    for (const mip_term& t : row(i)) {
      sum += t.value * values[t.column];
      scale = std::max(scale, std::abs(t.value));
    }
    most = std::max({most, (row_lower_[i] - sum) / scale, (sum - row_upper_[i]) / scale});
  }
  return most;
}

REMAT_INLINE void mip_model::check_bounds(const char* what, std::size_t i, double lower, double upper) {
  if (!(lower <= upper) || lower == infinite || upper == -infinite)
    throw bad_argument(what + std::to_string(i) + ": the bounds are " + std::to_string(lower) + " and " +
                       std::to_string(upper) + "; the lower one must not be above the upper one");
}

}  // namespace remat
