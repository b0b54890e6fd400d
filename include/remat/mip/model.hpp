// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "remat/core/error.hpp"

namespace remat {

/// A coefficient of a row.
struct mip_term {
  std::uint32_t column = 0;
  double value = 0;
};

/// A mixed-integer linear program: minimise offset + Σ cost · x within bounds of columns and rows, some columns
/// integer.
///
/// Rows are stored one behind the other; nothing of a backend is in here. Columns and rows are numbered from 0 in the
/// order in which they are added.
///
///     mip_model m;
///     const auto x = m.add_integer(-1, 0, 1), y = m.add_column(-2, 0, 4);
///     m.add_row(-mip_model::infinite, {{x, 3}, {y, 1}}, 5);   // 3x + y ≤ 5
class mip_model {
 public:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  double offset = 0;  ///< added to the objective

  /// A continuous column. Throws `bad_argument` for a cost that is not finite, or bounds that no number is between.
  std::uint32_t add_column(double cost, double lower, double upper) {
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

  /// A column that takes whole values only.
  std::uint32_t add_integer(double cost, double lower, double upper) {
    const std::uint32_t j = add_column(cost, lower, upper);
    integer_[j] = 1;
    return j;
  }

  /// The row lower ≤ Σ terms ≤ upper. Coefficients of one column are added up; those that come to 0 are left out.
  /// Throws `bad_argument` for a column that is not there, a coefficient that is not finite, or impossible bounds.
  std::uint32_t add_row(double lower, std::span<const mip_term> terms, double upper) {
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
  /// \overload
  std::uint32_t add_row(double lower, std::initializer_list<mip_term> terms, double upper) {
    return add_row(lower, std::span<const mip_term>(terms.begin(), terms.size()), upper);
  }

  /// Narrows or widens the bounds of a column. Throws as `add_column`.
  void set_bounds(std::uint32_t column, double lower, double upper) {
    if (column >= num_columns())
      throw bad_argument("column " + std::to_string(column) + " does not exist; there are " +
                         std::to_string(num_columns()));
    check_bounds("column ", column, lower, upper);
    lower_[column] = lower;
    upper_[column] = upper;
  }
  void set_integer(std::uint32_t column, bool integer) { integer_.at(column) = integer; }

  [[nodiscard]] std::size_t num_columns() const noexcept { return cost_.size(); }
  [[nodiscard]] std::size_t num_rows() const noexcept { return row_lower_.size(); }
  [[nodiscard]] std::size_t num_terms() const noexcept { return terms_.size(); }
  [[nodiscard]] double cost(std::size_t column) const noexcept { return cost_[column]; }
  [[nodiscard]] double lower(std::size_t column) const noexcept { return lower_[column]; }
  [[nodiscard]] double upper(std::size_t column) const noexcept { return upper_[column]; }
  [[nodiscard]] bool is_integer(std::size_t column) const noexcept { return integer_[column] != 0; }
  [[nodiscard]] double row_lower(std::size_t row) const noexcept { return row_lower_[row]; }
  [[nodiscard]] double row_upper(std::size_t row) const noexcept { return row_upper_[row]; }
  /// The row's coefficients, by column, none of them 0.
  [[nodiscard]] std::span<const mip_term> row(std::size_t row) const noexcept {
    return {terms_.data() + row_begin_[row], terms_.data() + row_begin_[row + 1]};
  }

  /// Precondition: `values` has a number for every column.
  [[nodiscard]] double objective(std::span<const double> values) const noexcept {
    double sum = offset;
    for (std::size_t j = 0; j < cost_.size(); ++j) sum += cost_[j] * values[j];
    return sum;
  }

  /// The most by which `values` break a bound, a row or, for an integer column, wholeness. Rows count relative to their
  /// largest coefficient where that is above 1. Infinite if there is not one finite value for every column. O(terms).
  [[nodiscard]] double violation(std::span<const double> values) const noexcept {
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

 private:
  static void check_bounds(const char* what, std::size_t i, double lower, double upper) {
    if (!(lower <= upper) || lower == infinite || upper == -infinite)
      throw bad_argument(what + std::to_string(i) + ": the bounds are " + std::to_string(lower) + " and " +
                         std::to_string(upper) + "; the lower one must not be above the upper one");
  }

  std::vector<double> cost_, lower_, upper_;
  std::vector<std::uint8_t> integer_;
  std::vector<std::size_t> row_begin_{0};
  std::vector<mip_term> terms_;
  std::vector<double> row_lower_, row_upper_;
};

}  // namespace remat
