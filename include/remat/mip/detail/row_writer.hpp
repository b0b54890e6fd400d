// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE::detail {

/// A term's variable: a column of a model, or a constant for something that was decided before the model was built.
struct mip_value {
  std::uint32_t column = mip_model::none;  ///< the column; `mip_model::none` for a constant
  double constant = 0;                     ///< the value, if there is no column

  [[nodiscard]] static constexpr mip_value one() noexcept { return {mip_model::none, 1}; }
  [[nodiscard]] bool is_constant() const noexcept { return column == mip_model::none; }
  [[nodiscard]] bool is_constant(double c) const noexcept { return is_constant() && constant == c; }
  friend bool operator==(const mip_value&, const mip_value&) = default;
};

/// Builds a model from rows whose variables may be constants.
///
/// A row that is left with one column becomes bounds of that column. A row without columns is either true and left
/// out, or it makes the whole model infeasible. A row is written with `add_row`, or term by term: `add_term` for each
/// term, then `end_row`.
class row_writer {
 public:
  static constexpr std::uint32_t none = mip_model::none;   ///< stands for "no column"
  static constexpr double infinite = mip_model::infinite;  ///< the number that stands for "no bound", with either sign

  [[nodiscard]] const mip_model& model() const noexcept { return model_; }
  [[nodiscard]] bool is_impossible() const noexcept { return impossible_; }

  /// A new column from 0 to 1 that costs nothing.
  [[nodiscard]] mip_value new_column(bool integer = false) {
    return {integer ? model_.add_integer(0, 0, 1) : model_.add_column(0, 0, 1), 0};
  }

  /// Adds the row lower ≤ Σ coefficient · value ≤ upper.
  void add_row(double lower, std::initializer_list<std::pair<mip_value, double>> terms, double upper) {
    for (const auto& [value, coefficient] : terms) add_term(value, coefficient);
    end_row(lower, upper);
  }
  /// Adds the term coefficient · value to the row that is being written.
  void add_term(const mip_value& value, double coefficient) {
    if (value.is_constant())
      row_constant_ += value.constant * coefficient;
    else if (coefficient != 0)
      row_.push_back({value.column, coefficient});
  }
  /// Ends the row that is being written: lower ≤ Σ terms ≤ upper. The next term begins a new row.
  void end_row(double lower, double upper) {
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

  /// Makes the finished model infeasible: no solution of the problem is of the model's form.
  void set_impossible() noexcept { impossible_ = true; }
  /// Ends the model, as the last call: if some row cannot hold, adds one row that makes the model infeasible.
  void finish() {
    if (impossible_) model_.add_row(1, {{model_.add_column(0, 0, 0), 1}}, 1);
  }

 protected:
  mip_model model_;  ///< the model that is being built

 private:
  static constexpr double tolerance = 1e-9;

  void tighten(std::uint32_t column, double lower, double upper) {
    lower = std::max(lower, model_.lower(column));
    upper = std::min(upper, model_.upper(column));
    if (lower <= upper)
      model_.set_bounds(column, lower, upper);
    else if (lower > upper + tolerance)
      impossible_ = true;
  }

  std::vector<mip_term> row_;  // the row that is being written
  double row_constant_ = 0;
  bool impossible_ = false;
};

}  // namespace REMAT_NAMESPACE::detail
