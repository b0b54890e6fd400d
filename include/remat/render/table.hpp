// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace remat {

/// A plain text table with aligned columns, for a terminal.
///
///     text_table table({{"solver"}, {"peak", text_table::align::right}});
///     table.row({"evict", "1.50 GiB"});
///     table.write(std::cout);
///
/// A cell's width is its number of UTF-8 code points; double-width and combining characters are not considered.
class text_table {
 public:
  /// The side of its column at which a text stands.
  enum class align : std::uint8_t {
    left,  ///< at the left side, for words
    right  ///< at the right side, for numbers
  };
  /// A column of the table.
  struct column {
    std::string title{};       ///< the heading of the column
    align side = align::left;  ///< the alignment of the heading and of all cells
  };

  /// A table with these columns and without rows.
  explicit text_table(std::vector<column> columns) : columns_(std::move(columns)) {}

  /// Appends a row. Missing cells are empty; cells beyond the last column are dropped.
  void row(std::vector<std::string> cells) {
    cells.resize(columns_.size());
    rows_.push_back(std::move(cells));
  }

  /// The number of rows, without the line of titles.
  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }

  /// Writes the titles, a rule, and the rows, without spaces at the ends of lines.
  void write(std::ostream& out) const;

  /// Number of code points of `text`.
  [[nodiscard]] static std::size_t width(std::string_view text) noexcept {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  }

 private:
  void write_line(std::ostream& out, const std::vector<std::string>& cells,
                  const std::vector<std::size_t>& widths) const;

  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/render/impl/table.hpp"
#endif
