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
/// Widths count code points of UTF-8: right for what a graph's numbers and names look like, not for double-width or
/// combining characters.
class text_table {
 public:
  enum class align : std::uint8_t { left, right };
  struct column {
    std::string title{};
    align side = align::left;
  };

  explicit text_table(std::vector<column> columns) : columns_(std::move(columns)) {}

  /// Appends a row; cells that are missing are empty, cells beyond the columns are dropped.
  void row(std::vector<std::string> cells) {
    cells.resize(columns_.size());
    rows_.push_back(std::move(cells));
  }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }

  /// Title line, a rule, the rows; no spaces at the ends of lines.
  void write(std::ostream& out) const {
    std::vector<std::size_t> widths;
    for (const column& c : columns_) widths.push_back(width(c.title));
    for (const auto& cells : rows_)
      for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width(cells[i]));
    std::vector<std::string> line;
    for (const column& c : columns_) line.push_back(c.title);
    write_line(out, line, widths);
    line.clear();
    for (const std::size_t w : widths) {
      std::string rule;
      for (std::size_t i = 0; i < w; ++i) rule += "─";
      line.push_back(rule);
    }
    write_line(out, line, widths);
    for (const auto& cells : rows_) write_line(out, cells, widths);
  }

  /// Code points of `text`.
  [[nodiscard]] static std::size_t width(std::string_view text) noexcept {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  }

 private:
  void write_line(std::ostream& out, const std::vector<std::string>& cells,
                  const std::vector<std::size_t>& widths) const {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string space(widths[i] - width(cells[i]), ' ');
      if (i != 0) line += "  ";
      line += columns_[i].side == align::right ? space + cells[i] : cells[i] + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }

  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace remat
