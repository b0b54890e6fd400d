// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/intervals_csv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

namespace detail::intervals_csv {

inline constexpr std::array<std::string_view, 5> columns{"id", "lower", "upper", "size", "offset"};

/// The fields of a line; a carriage return at its end does not count.
inline std::vector<std::string_view> fields(std::string_view line) {
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
inline std::string shown(std::string_view field) {
  std::string out = "\"";
  for (const char c : field.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (field.size() > 40 ? "…\"" : "\"");
}

/// Reads the lines of one file, in order.
class line_reader {
 public:
  explicit line_reader(const std::string& name) : name_(name) {}

  void read(std::string_view line) {
    ++number_;
    if (line.empty() || line == "\r") return;
    const std::vector<std::string_view> row = fields(line);
    if (meaning_.empty())
      read_names(row);
    else
      read_interval(row);
  }

  intervals_file finish() {
    if (meaning_.empty()) {
      number_ = 1;
      fail({}, "the names of the columns are missing; the first line must be like id,lower,upper,size");
    }
    if (given_[4]) out_.offsets = std::move(offsets_);
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view column, const std::string& what) const {
    std::string where = "line " + std::to_string(number_);
    if (!column.empty()) where += ", column " + std::string(column);
    throw bad_file(name_, where, what);
  }

  void read_names(const std::vector<std::string_view>& row) {
    for (const std::string_view column : row) {
      std::size_t k = 0;
      while (k < columns.size() && columns[k] != column) ++k;
      if (k == columns.size())
        fail({}, "there is no column " + shown(column) + "; id, lower, upper, size and offset are right");
      if (given_[k]) fail({}, "column " + std::string(column) + " stands twice; once is right");
      given_[k] = true;
      meaning_.push_back(k);
    }
    for (std::size_t k = 0; k < 4; ++k)
      if (!given_[k])
        fail({}, "column " + std::string(columns[k]) + " is missing; the first line must be like id,lower,upper,size");
  }

  void read_interval(const std::vector<std::string_view>& row) {
    if (row.size() != meaning_.size())
      fail({}, "has " + std::to_string(row.size()) + " fields; " + std::to_string(meaning_.size()) +
                   " are right, one for each column");
    std::array<std::int64_t, columns.size()> value{};
    for (std::size_t f = 0; f < row.size(); ++f) {
      if (meaning_[f] == 0)
        read_id(row[f]);
      else
        value[meaning_[f]] = number(row[f], meaning_[f]);
    }
    if (value[1] >= value[2])
      fail(columns[2], "is " + std::to_string(value[2]) + "; it must be above lower, " + std::to_string(value[1]));
    out_.intervals.push_back({value[1], value[2], value[3]});
    if (given_[4]) offsets_.push_back(value[4]);
  }

  void read_id(std::string_view field) {
    if (field.empty()) fail(columns[0], "is empty; a name of the interval is right");
    if (field.find('"') != std::string_view::npos) fail(columns[0], "has a quote; there is no quoting");
    out_.ids.emplace_back(field);
  }

  /// The number in a field of column `k`; sizes and offsets are not negative.
  [[nodiscard]] std::int64_t number(std::string_view field, std::size_t k) const {
    std::int64_t value = 0;
    const std::from_chars_result read = std::from_chars(field.data(), field.data() + field.size(), value);
    if (read.ec != std::errc{} || read.ptr != field.data() + field.size())
      fail(columns[k], "is " + shown(field) + "; a whole number of at most 64 bits is right");
    if (k >= 3 && value < 0) fail(columns[k], "is " + std::to_string(value) + "; it must not be negative");
    return value;
  }

  const std::string& name_;
  std::size_t number_ = 0;            ///< of the line
  std::vector<std::size_t> meaning_;  ///< of the fields, as an index of `columns`
  std::array<bool, columns.size()> given_{};
  intervals_file out_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace detail::intervals_csv

REMAT_INLINE intervals_file parse_intervals(std::string_view text, const std::string& name) {
  detail::intervals_csv::line_reader reader(name);
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // byte order mark
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reader.read(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finish();
}

REMAT_INLINE std::string to_csv(const intervals_file& file) {
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
