// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/intervals_csv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <system_error>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

namespace detail::intervals_csv {

enum column : std::size_t { id, lower, upper, size, offset, num_columns };
inline constexpr std::array<std::string_view, num_columns> names{"id", "lower", "upper", "size", "offset"};
inline const char* const missing = " missing; expected a first line like id,lower,upper,size";

/// A field in a message.
inline std::string shown(std::string_view field) { return "\"" + printable(field, 40) + "\""; }

/// Reads the lines of one file, in order.
class line_reader {
 public:
  explicit line_reader(const std::string& file) : file_(file) {}

  void read(std::string_view line) {
    ++number_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) return;
    std::vector<std::string_view> fields;
    for (std::size_t from = 0, to = 0; from <= line.size(); from = to + 1) {
      to = std::min(line.find(',', from), line.size());
      fields.push_back(line.substr(from, to - from));
    }
    if (order_.empty())
      read_names(fields);
    else
      read_interval(fields);
  }

  intervals_file finish() {
    if (order_.empty()) throw bad_file(file_, "line 1", std::string("the names of the columns are") + missing);
    if (has(offset)) out_.offsets = std::move(offsets_);
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string place() const { return "line " + std::to_string(number_); }
  [[noreturn]] void fail(column c, const std::string& what) const {
    throw bad_file(file_, place() + ", column " + std::string(names[c]), what);
  }
  [[nodiscard]] bool has(column c) const { return std::find(order_.begin(), order_.end(), c) != order_.end(); }

  void read_names(const std::vector<std::string_view>& fields) {
    for (const std::string_view field : fields) {
      const auto c = static_cast<column>(std::find(names.begin(), names.end(), field) - names.begin());
      if (c == num_columns)
        throw bad_file(file_, place(),
                       "there is no column " + shown(field) + "; expected id, lower, upper, size and offset");
      if (has(c)) throw bad_file(file_, place(), "column " + std::string(field) + " is given twice; expected once");
      order_.push_back(c);
    }
    for (const column c : {id, lower, upper, size})
      if (!has(c)) throw bad_file(file_, place(), "column " + std::string(names[c]) + " is" + missing);
  }

  void read_interval(const std::vector<std::string_view>& fields) {
    if (fields.size() != order_.size())
      throw bad_file(file_, place(),
                     "has " + std::to_string(fields.size()) + " fields; expected " + std::to_string(order_.size()) +
                         ", one for each column");
    std::array<std::string_view, num_columns> row;
    for (std::size_t f = 0; f < fields.size(); ++f) row[order_[f]] = fields[f];
    if (row[id].empty()) fail(id, "is empty; expected a name of the interval");
    if (row[id].find('"') != std::string_view::npos) fail(id, "has a quote; there is no quoting");
    if (row[id].find('\r') != std::string_view::npos) fail(id, "has a carriage return, which is no part of a name");
    const auto number = [&](column c) {
      std::int64_t value = 0;
      const char* const end = row[c].data() + row[c].size();
      const auto [stop, code] = std::from_chars(row[c].data(), end, value);
      if (code != std::errc{} || stop != end)
        fail(c, "is " + shown(row[c]) + "; expected a whole number of at most 64 bits");
      if (value < 0 && (c == size || c == offset)) fail(c, "is " + std::to_string(value) + "; it must not be negative");
      return value;
    };
    const interval x{number(lower), number(upper), number(size)};
    if (x.lower >= x.upper)
      fail(upper, "is " + std::to_string(x.upper) + "; it must be above lower, " + std::to_string(x.lower));
    out_.ids.emplace_back(row[id]);
    out_.intervals.push_back(x);
    if (has(offset)) offsets_.push_back(number(offset));
  }

  const std::string& file_;
  std::size_t number_ = 0;     // the line's number
  std::vector<column> order_;  // columns of the fields in a line
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
                       " offsets; expected one of each for each interval");
  std::string out = file.offsets ? "id,lower,upper,size,offset\n" : "id,lower,upper,size\n";
  for (std::size_t i = 0; i < n; ++i) {
    if (file.ids[i].empty() || file.ids[i].find_first_of(",\"\r\n") != std::string::npos)
      throw bad_argument("interval " + std::to_string(i) + " has the name " +
                         detail::intervals_csv::shown(file.ids[i]) +
                         "; expected a text without commas, quotes and line ends");
    const interval& x = file.intervals[i];
    out += file.ids[i] + "," + std::to_string(x.lower) + "," + std::to_string(x.upper) + "," + std::to_string(x.size);
    if (file.offsets) out += "," + std::to_string((*file.offsets)[i]);
    out += '\n';
  }
  return out;
}

}  // namespace REMAT_NAMESPACE
