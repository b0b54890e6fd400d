// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/table.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "remat/core/detail/linkage.hpp"

namespace remat {

namespace detail::table {

/// `value` with up to three significant digits, at most two of them after the point, and a unit.
[[nodiscard]] inline std::string format_three(double value, std::string_view unit) {
  const double size = std::abs(value);
  return format_fixed(value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2).append(" ").append(unit);
}

}  // namespace detail::table

REMAT_INLINE std::string format_fixed(double value, int decimals) {
  if (!std::isfinite(value)) return "–";
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  if (end.ec != std::errc{}) return "–";
  std::string_view out(text.data(), static_cast<std::size_t>(end.ptr - text.data()));
  if (out.substr(0, 1) == "-" && out.find_first_not_of("-0.") == std::string_view::npos) out.remove_prefix(1);
  return std::string(out);
}

REMAT_INLINE std::string format_number(double value) {
  if (!std::isfinite(value)) return "–";
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 4);
  return std::string(text.data(), end.ptr);
}

REMAT_INLINE std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 7> unit{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes > -1024 && bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  std::size_t u = 0;
  while (std::abs(value) >= 1023.5 && u + 1 < unit.size()) {
    value /= 1024;
    ++u;
  }
  return detail::table::format_three(value, unit[u]);
}

REMAT_INLINE std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "–";
  const double size = std::abs(seconds);
  if (size == 0) return "0 s";
  if (size < 0.9995e-6) return detail::table::format_three(seconds * 1e9, "ns");
  if (size < 0.9995e-3) return detail::table::format_three(seconds * 1e6, "µs");
  if (size < 0.9995) return detail::table::format_three(seconds * 1e3, "ms");
  return detail::table::format_three(seconds, "s");
}

REMAT_INLINE std::string format_time(double time, std::string_view unit) {
  if (unit == "s") return format_seconds(time);
  std::string text = format_number(time);
  if (!unit.empty() && std::isfinite(time)) text.append(" ").append(unit);
  return text;
}

REMAT_INLINE std::string format_percent(double ratio, int decimals) {
  if (!std::isfinite(ratio)) return "–";
  return format_fixed(ratio * 100, decimals) + " %";
}

REMAT_INLINE void text_table::write(std::ostream& out) const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& cells : rows_)
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width(cells[i]));
  std::vector<std::string> rule(columns_.size());
  for (std::size_t i = 0; i < rule.size(); ++i)
    for (std::size_t k = 0; k < widths[i]; ++k) rule[i] += "─";
  const auto write_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string space(widths[i] - width(cells[i]), ' ');
      if (i != 0) line += "  ";
      line += columns_[i].side == align::right ? space + cells[i] : cells[i] + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  };
  write_line(rows_.front());
  write_line(rule);
  std::for_each(rows_.begin() + 1, rows_.end(), write_line);
}

}  // namespace remat
