// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

/// `value` with `decimals` digits after the point, in any locale; "–" for a value that is not finite.
[[nodiscard]] std::string format_fixed(double value, int decimals);

/// `value` with four significant digits, in scientific notation if it is very large or very small.
[[nodiscard]] std::string format_number(double value);

/// Bytes with a binary unit: "0 B", "1.50 KiB", "12.3 GiB".
[[nodiscard]] std::string format_bytes(std::int64_t bytes);

/// `text` with sizes as `format_bytes` has them: "needs 3221225472 bytes" becomes "needs 3.00 GiB". A text
/// without a size of 1,024 bytes or more stays as it is; with one, a smaller size is "512 B". For messages beside
/// tables; the messages of solvers have exact numbers.
[[nodiscard]] std::string with_byte_units(std::string_view text);

/// Seconds with a unit: "12.3 µs", "4.56 ms", "7.89 s"; from a million seconds on in scientific notation.
[[nodiscard]] std::string format_seconds(double seconds);

/// A time of a cost model: as seconds if `unit` is "s", else the number and the name of the unit, if it has one.
[[nodiscard]] std::string format_time(double time, std::string_view unit);

/// A ratio as a percentage: 0.123 is "12.3 %"; from 10⁹ % on in scientific notation.
[[nodiscard]] std::string format_percent(double ratio, int decimals = 1);

/// `text` in lines of at most `width` code points, broken at spaces; a longer word stays whole. Line breaks of the text
/// remain. At least one line.
[[nodiscard]] std::vector<std::string> wrap_text(std::string_view text, std::size_t width);

/// A plain text table with aligned columns, for a terminal.
///
///     text_table table({{"solver"}, {"peak", text_table::align::right}});
///     table.row({"evict", "1.50 GiB"});
///     table.write(std::cout);
///
/// Cells are escaped as `printable` does it: whatever names they hold, a terminal shows them and does not obey them. A
/// cell's width is its number of UTF-8 code points; double-width and combining characters are not considered.
class text_table {
 public:
  /// The side of a column at which its texts stand.
  enum class align : std::uint8_t {
    left,  ///< words stand on the left
    right  ///< numbers stand on the right
  };
  /// A column of the table.
  struct column {
    std::string title{};       ///< the heading of the column
    align side = align::left;  ///< the alignment of the heading and of all cells
  };

  /// A table with these columns and without rows.
  explicit text_table(std::vector<column> columns) : columns_(std::move(columns)), rows_(1) {
    for (const column& c : columns_) rows_.front().push_back(c.title);
  }

  /// Appends a row. Missing cells are empty; cells beyond the last column are dropped.
  void row(std::vector<std::string> cells) {
    cells.resize(columns_.size());
    for (std::string& cell : cells) cell = printable(cell, unlimited);
    rows_.push_back(std::move(cells));
  }

  /// The number of rows, without the line of titles.
  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size() - 1; }

  /// Writes the titles, a rule, and the rows, without spaces at the ends of lines.
  void write(std::ostream& out) const { write(out, unlimited, 0); }

  /// Writes the table in lines of at most `width` code points, for a terminal: columns that do not fit beside the
  /// others follow in a further table below, which begins with the first `keys` columns again. A last column of words
  /// is wrapped. Only a cell without spaces may exceed the width.
  void write(std::ostream& out, std::size_t width, std::size_t keys) const;

  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();  ///< no limit of the width

  /// Number of code points of `text`.
  [[nodiscard]] static std::size_t width(std::string_view text) noexcept {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  }

 private:
  void write_columns(std::ostream& out, const std::vector<std::size_t>& chosen, std::vector<std::size_t> widths) const;

  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;  // the titles come first
};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/render/impl/table.hpp"
#endif
