// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/memory/interval.hpp"

namespace remat {

/// Intervals with their names, and their offsets if they have been planned.
struct intervals_file {
  std::vector<std::string> ids;  ///< any text without commas, quotes and line ends; of each interval
  std::vector<interval> intervals;
  std::optional<std::vector<std::int64_t>> offsets{};

  friend bool operator==(const intervals_file&, const intervals_file&) = default;
};

/// The steps of reading intervals.
namespace detail::intervals_csv {

inline constexpr std::array<std::string_view, 5> columns{"id", "lower", "upper", "size", "offset"};

/// The fields of a line; a carriage return at its end does not count.
[[nodiscard]] inline std::vector<std::string_view> fields(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t comma = line.find(',', at) == std::string_view::npos ? line.size() : line.find(',', at);
    out.push_back(line.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

/// A field as a message shows it: its printable ASCII, cut off where it is long.
[[nodiscard]] inline std::string shown(std::string_view field) {
  std::string out = "\"";
  for (const char c : field.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (field.size() > 40 ? "…\"" : "\"");
}

}  // namespace detail::intervals_csv

/// Reads intervals in the field's format: comma-separated lines, the first of which names the columns.
///
/// `id`, `lower`, `upper` and `size` must be there, in any order; `offset` may be. Lifetimes are half-open, [lower,
/// upper). A column of another name is refused: an alignment or gaps would change the answer. Empty lines are passed
/// over, and there is no quoting.
/// O(text) time. Throws `bad_file` with file, line, column, what is wrong and what would be right: for a number that is
/// none or does not fit 64 bits, a negative size or offset, an empty lifetime, a missing field. Whether offsets keep
/// intervals apart is for `check_memory` to say.
[[nodiscard]] inline intervals_file parse_intervals(std::string_view text, const std::string& name) {
  constexpr auto& columns = detail::intervals_csv::columns;
  std::size_t number = 0;
  const auto fail = [&](std::string_view column, const std::string& what) -> void {
    std::string where = "line " + std::to_string(number);
    if (!column.empty()) where += ", column " + std::string(column);
    throw bad_file(name, where, what);
  };
  std::vector<std::size_t> meaning;  // of the fields, as an index of `columns`
  std::array<bool, columns.size()> given{};
  intervals_file out;
  std::vector<std::int64_t> offsets;
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) == std::string_view::npos ? text.size() : text.find('\n', at);
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.empty() || line == "\r") continue;
    const std::vector<std::string_view> row = detail::intervals_csv::fields(line);
    if (meaning.empty()) {
      for (const std::string_view column : row) {
        std::size_t k = 0;
        while (k < columns.size() && columns[k] != column) ++k;
        if (k == columns.size())
          fail({}, "there is no column " + detail::intervals_csv::shown(column) +
                       "; id, lower, upper, size and offset are right");
        if (given[k]) fail({}, "column " + std::string(column) + " stands twice; once is right");
        given[k] = true;
        meaning.push_back(k);
      }
      for (std::size_t k = 0; k < 4; ++k)
        if (!given[k])
          fail({},
               "column " + std::string(columns[k]) + " is missing; the first line must be like id,lower,upper,size");
      continue;
    }
    if (row.size() != meaning.size())
      fail({}, "has " + std::to_string(row.size()) + " fields; " + std::to_string(meaning.size()) +
                   " are right, one for each column");
    std::array<std::int64_t, columns.size()> value{};
    for (std::size_t f = 0; f < row.size(); ++f) {
      const std::size_t k = meaning[f];
      if (k == 0) {
        if (row[f].empty()) fail(columns[k], "is empty; a name of the interval is right");
        if (row[f].find('"') != std::string_view::npos) fail(columns[k], "has a quote; there is no quoting");
        out.ids.emplace_back(row[f]);
        continue;
      }
      const std::from_chars_result read = std::from_chars(row[f].data(), row[f].data() + row[f].size(), value[k]);
      if (read.ec != std::errc{} || read.ptr != row[f].data() + row[f].size())
        fail(columns[k], "is " + detail::intervals_csv::shown(row[f]) + "; a whole number of at most 64 bits is right");
      if (k >= 3 && value[k] < 0) fail(columns[k], "is " + std::to_string(value[k]) + "; it must not be negative");
    }
    if (value[1] >= value[2])
      fail(columns[2], "is " + std::to_string(value[2]) + "; it must be above lower, " + std::to_string(value[1]));
    out.intervals.push_back({value[1], value[2], value[3]});
    if (given[4]) offsets.push_back(value[4]);
  }
  if (meaning.empty()) {
    number = 1;
    fail({}, "the names of the columns are missing; the first line must be like id,lower,upper,size");
  }
  if (given[4]) out.offsets = std::move(offsets);
  return out;
}

/// The text of a file of intervals, which `parse_intervals` reads back to the same value.
///
/// O(text) time. Throws `bad_argument` where there is not one name, and one offset if any, for each interval, or a name
/// is empty or has a comma, a quote or a line end.
[[nodiscard]] inline std::string to_csv(const intervals_file& file) {
  const std::size_t n = file.intervals.size();
  if (file.ids.size() != n || (file.offsets && file.offsets->size() != n))
    throw bad_argument("there are " + std::to_string(n) + " intervals, " + std::to_string(file.ids.size()) +
                       " names and " + std::to_string(file.offsets ? file.offsets->size() : n) +
                       " offsets; one of each is right");
  std::string out = file.offsets ? "id,lower,upper,size,offset\n" : "id,lower,upper,size\n";
  const auto number = [&](std::int64_t value) {
    char digits[24];
    out += ',';
    out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  };
  for (std::size_t i = 0; i < n; ++i) {
    if (file.ids[i].empty() || file.ids[i].find_first_of(",\"\r\n") != std::string::npos)
      throw bad_argument("interval " + std::to_string(i) + " has the name " +
                         detail::intervals_csv::shown(file.ids[i]) +
                         "; a text without commas, quotes and line ends is right");
    out += file.ids[i];
    number(file.intervals[i].lower);
    number(file.intervals[i].upper);
    number(file.intervals[i].size);
    if (file.offsets) number((*file.offsets)[i]);
    out += '\n';
  }
  return out;
}

}  // namespace remat
