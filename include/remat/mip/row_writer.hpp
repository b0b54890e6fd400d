// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "remat/mip/model.hpp"

namespace remat {

/// A column of a model, or a constant: what has been decided before needs no column.
struct mip_value {
  std::uint32_t column = mip_model::none;
  double constant = 0;

  [[nodiscard]] bool is(double c) const noexcept { return column == mip_model::none && constant == c; }
};

/// Base of programs that are built of rows whose terms may turn out to be constants. A row that is left with one column
/// becomes its bounds; one without any is true, or the program impossible.
class row_writer {
 protected:
  using value = mip_value;
  static constexpr std::uint32_t none = mip_model::none;
  static constexpr double infinite = mip_model::infinite;
  [[nodiscard]] static constexpr value one() noexcept { return {none, 1}; }

  /// Adds lower ≤ Σ coefficient · value ≤ upper.
  void row(double lower, std::initializer_list<std::pair<value, double>> terms, double upper) {
    row_.clear();
    for (const auto& [v, c] : terms) add(v, c);
    close(lower, upper);
  }
  /// … term by term: `add` each, then `close`.
  void add(const value& v, double coefficient) {
    if (v.column != none && coefficient != 0)
      row_.push_back({v.column, coefficient});
    else if (v.column == none)
      row_constant_ += v.constant * coefficient;
  }
  void close(double lower, double upper) {
    lower -= row_constant_;
    upper -= row_constant_;
    row_constant_ = 0;
    if (row_.empty()) {
      if (lower > tolerance || upper < -tolerance) impossible_ = true;
    } else if (row_.size() == 1) {
      const double c = row_[0].value;
      if (c < 0) std::swap(lower, upper);
      tighten(row_[0].column, lower / c, upper / c);
    } else {
      model_.add_row(lower, row_, upper);
    }
    row_.clear();
  }
  void tighten(std::uint32_t column, double lower, double upper) {
    lower = std::max(lower, model_.lower(column));
    upper = std::min(upper, model_.upper(column));
    if (lower > upper) {
      if (lower > upper + tolerance) impossible_ = true;
      return;
    }
    model_.set_bounds(column, lower, upper);
  }
  /// A new column of 0 … 1.
  [[nodiscard]] value fresh(bool integer = false) {
    return {integer ? model_.add_integer(0, 0, 1) : model_.add_column(0, 0, 1), 0};
  }
  /// At the end: a row that cannot hold stands for those that were not written.
  void say_if_impossible() {
    if (impossible_) model_.add_row(1, {{model_.add_column(0, 0, 0), 1}}, 1);
  }

  mip_model model_;
  std::vector<mip_term> row_;  // being written
  double row_constant_ = 0;
  bool impossible_ = false;  // some row cannot hold

 private:
  static constexpr double tolerance = 1e-9;
};

}  // namespace remat
