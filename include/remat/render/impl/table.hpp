// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/table.hpp"

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace remat {

REMAT_INLINE void text_table::write(std::ostream& out) const {
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

REMAT_INLINE void text_table::write_line(std::ostream& out, const std::vector<std::string>& cells,
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

}  // namespace remat
