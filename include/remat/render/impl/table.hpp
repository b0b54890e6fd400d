// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/table.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace REMAT_NAMESPACE {

namespace detail::table {

/// `value` with up to three significant digits, at most two of them after the point, and a unit. From a million on in
/// scientific notation.
[[nodiscard]] inline std::string format_three(double value, std::string_view unit) {
  const double size = std::abs(value);
  if (size >= 1e6) return format_number(value).append(" ").append(unit);
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
  const double percents = ratio * 100;
  if (!std::isfinite(ratio) || !std::isfinite(percents)) return "–";
  constexpr double most_digits = 1e9;  // a larger number would be a row of digits
  return (std::abs(percents) < most_digits ? format_fixed(percents, decimals) : format_number(percents)) + " %";
}

REMAT_INLINE std::string with_byte_units(std::string_view text) {
  constexpr std::string_view digits = "0123456789", unit = " bytes";
  const auto is_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '.';
  };
  std::string out;
  bool is_large = false;  // some size has a unit above bytes
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = std::min(text.find_first_of(digits, at), text.size());
    const std::size_t end = std::min(text.find_first_not_of(digits, from), text.size());
    out += text.substr(at, from - at);
    at = end;
    std::int64_t bytes = 0;
    const bool is_number = std::from_chars(text.data() + from, text.data() + end, bytes).ec == std::errc{};
    const std::size_t after = end + unit.size();
    const bool is_size = is_number && text.substr(end, unit.size()) == unit &&
                         (from == 0 || !is_word(text[from - 1])) &&
                         (after >= text.size() || !is_word(text[after]) || text[after] == '.');
    if (is_size) {
      out += format_bytes(bytes);
      at = after;
      is_large = is_large || bytes >= 1024;
    } else {
      out += text.substr(from, end - from);
    }
  }
  return is_large ? out : std::string(text);
}

REMAT_INLINE std::vector<std::string> wrap_text(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    std::string line;
    for (std::size_t at = from; at < end;) {
      const std::size_t space = std::min(text.find(' ', std::min(text.find_first_not_of(' ', at), end)), end);
      const std::string_view word = text.substr(at, space - at);  // the word with the spaces before it
      if (!line.empty() && text_table::width(line) + text_table::width(word) > width) {
        lines.push_back(std::move(line));
        line = word.substr(std::min(word.find_first_not_of(' '), word.size()));
      } else {
        line += word;
      }
      at = space;
    }
    lines.push_back(std::move(line));
    from = end + 1;
  }
  return lines;
}

REMAT_INLINE void text_table::write_columns(std::ostream& out, const std::vector<std::size_t>& chosen,
                                            std::vector<std::size_t> widths) const {
  const auto write_line = [&](const auto& cell) {
    std::string line;
    for (const std::size_t i : chosen) {
      const std::string text = cell(i);
      const std::string space(widths[i] - std::min(widths[i], width(text)), ' ');
      if (i != chosen.front()) line += "  ";
      line += columns_[i].side == align::right ? space + text : text + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  };
  for (const auto& cells : rows_) {
    const std::vector<std::string> last = wrap_text(cells[chosen.back()], widths[chosen.back()]);
    write_line([&](std::size_t i) { return i == chosen.back() ? last.front() : cells[i]; });
    for (std::size_t k = 1; k < last.size(); ++k)
      write_line([&](std::size_t i) { return i == chosen.back() ? last[k] : std::string(); });
    if (&cells != &rows_.front()) continue;
    write_line([&](std::size_t i) {
      std::string rule;
      for (std::size_t k = 0; k < widths[i]; ++k) rule += "─";
      return rule;
    });
  }
}

REMAT_INLINE void text_table::write(std::ostream& out, std::size_t width, std::size_t keys) const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& cells : rows_)
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], text_table::width(cells[i]));
  std::size_t key_width = 0;
  for (std::size_t i = 0; i < std::min(keys, widths.size()); ++i) key_width += widths[i] + 2;
  constexpr std::size_t least_words = 24;  // a narrower column of words is hard to read
  std::vector<std::size_t> chosen;
  std::size_t used = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const bool is_last = i + 1 == widths.size() || (width != unlimited && key_width + widths[i] > width);
    const bool can_wrap = columns_[i].side == align::left && is_last;
    const std::size_t least = can_wrap ? std::min(widths[i], least_words) : widths[i];
    if (i > keys && used + least > width) {
      write_columns(out, chosen, widths);
      out << '\n';
      chosen.resize(keys);
      used = key_width;
    }
    if (can_wrap && used + widths[i] > width) widths[i] = std::max(width - std::min(width, used), least);
    chosen.push_back(i);
    used += widths[i] + 2;
  }
  if (chosen.empty()) return;
  write_columns(out, chosen, widths);
}

}  // namespace REMAT_NAMESPACE
