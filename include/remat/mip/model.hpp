// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE {

/// A coefficient of a row.
struct mip_term {
  std::uint32_t column = 0;  ///< the number of the column
  double value = 0;          ///< the coefficient of the column's variable
};

/// A mixed-integer linear program: minimise offset + Σ cost · x within bounds of columns and rows, some columns
/// integer.
///
/// It knows nothing of any backend. Columns and rows are numbered from 0 in the order in which they are added.
///
///     mip_model m;
///     const auto x = m.add_integer(-1, 0, 1), y = m.add_column(-2, 0, 4);
///     m.add_row(-mip_model::infinite, {{x, 3}, {y, 1}}, 5);   // 3x + y ≤ 5
class mip_model {
 public:
  static constexpr double infinite =
      std::numeric_limits<double>::infinity();  ///< no bound, if it stands as one (with either sign)
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();  ///< stands for "no column"

  double offset = 0;  ///< added to the objective

  /// Adds a continuous column and returns its number. Throws `bad_argument` if the cost is not finite, or if no number
  /// is within the bounds.
  std::uint32_t add_column(double cost, double lower, double upper);

  /// Adds a column that takes whole values only, and returns its number. Throws as `add_column`.
  std::uint32_t add_integer(double cost, double lower, double upper);

  /// Adds the row lower ≤ Σ terms ≤ upper and returns its number. Coefficients of one column are added up, and left out
  /// if the sum is 0. Throws `bad_argument` for a column that does not exist, a coefficient that is not finite, or
  /// impossible bounds.
  std::uint32_t add_row(double lower, std::span<const mip_term> terms, double upper);
  /// \overload
  std::uint32_t add_row(double lower, std::initializer_list<mip_term> terms, double upper) {
    return add_row(lower, std::span<const mip_term>(terms.begin(), terms.size()), upper);
  }

  /// Changes the bounds of a column. Throws as `add_column`.
  void set_bounds(std::uint32_t column, double lower, double upper);
  /// Makes a column integer or continuous. Throws `std::out_of_range` for a column that does not exist.
  void set_integer(std::uint32_t column, bool integer) { columns_.at(column).integer = integer; }

  /// The number of columns.
  [[nodiscard]] std::size_t num_columns() const noexcept { return columns_.size(); }
  /// The number of rows.
  [[nodiscard]] std::size_t num_rows() const noexcept { return row_lower_.size(); }
  /// The number of coefficients that are not 0, of all rows.
  [[nodiscard]] std::size_t num_terms() const noexcept { return terms_.size(); }
  /// The column's factor in the objective. Precondition, here and below: the column or row exists.
  [[nodiscard]] double cost(std::size_t column) const noexcept { return columns_[column].cost; }
  /// The column's least value; −`infinite` if it has none.
  [[nodiscard]] double lower(std::size_t column) const noexcept { return columns_[column].lower; }
  /// The column's largest value; `infinite` if it has none.
  [[nodiscard]] double upper(std::size_t column) const noexcept { return columns_[column].upper; }
  /// True when the column takes whole values only.
  [[nodiscard]] bool is_integer(std::size_t column) const noexcept { return columns_[column].integer; }
  /// The row's lower bound; −`infinite` if it has none.
  [[nodiscard]] double row_lower(std::size_t row) const noexcept { return row_lower_[row]; }
  /// The row's upper bound; `infinite` if it has none.
  [[nodiscard]] double row_upper(std::size_t row) const noexcept { return row_upper_[row]; }
  /// The row's coefficients, by column, none of them 0.
  [[nodiscard]] std::span<const mip_term> row(std::size_t row) const noexcept {
    return {terms_.data() + row_begin_[row], terms_.data() + row_begin_[row + 1]};
  }

  /// The objective at `values`, `offset` included. Precondition: `values` has one number for every column.
  [[nodiscard]] double objective(std::span<const double> values) const noexcept;

  /// The largest violation of a bound, of a row, or of an integer column by `values`. A row's violation is divided by
  /// its largest coefficient if that is above 1. Infinite unless `values` has one finite number for every column.
  /// O(terms) time.
  [[nodiscard]] double violation(std::span<const double> values) const noexcept;

 private:
  static void check_bounds(const char* what, std::size_t i, double lower, double upper);

  struct column_data {
    double cost, lower, upper;
    bool integer;
  };

  std::vector<column_data> columns_;
  std::vector<std::size_t> row_begin_{0};
  std::vector<mip_term> terms_;
  std::vector<double> row_lower_, row_upper_;
};

/// Writes a model in free MPS, the text format that MIP solvers read.
///
/// Column j is named `c<j>`, row i `r<i>`, and the objective, which is minimised, `cost`. Numbers have as many digits
/// as they need to be read back unchanged. Both bounds of every column are written, because readers disagree on the
/// bounds of integer columns that have none. A row without bounds is left out. `mip_model::offset` stands in a comment
/// only, because readers disagree on its sign: add it to the objective that a solver reports.
///
/// `name` stands in the file as the model's name; blanks in it become underscores. O(terms + rows + columns) time.
/// Throws nothing of its own: look at the stream's state afterwards.
void write_mps(std::ostream& out, const mip_model& model, std::string_view name = "remat");

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/mip/impl/model.hpp"
#endif
