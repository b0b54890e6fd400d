// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/io/detail/files.hpp"
#include "remat/io/detail/foreign_format.hpp"

namespace REMAT_NAMESPACE {

namespace detail::pace {

/// The largest number of edges.
inline constexpr std::uint32_t max_edges = std::numeric_limits<std::uint32_t>::max() / 2;
/// The largest number of vertices and bags: memory is taken for each, also if the file says nothing of it.
inline constexpr std::uint32_t max_vertices = std::uint32_t{1} << 27U;

/// The lines of a file, each split into words.
class lines {
 public:
  lines(std::istream& in, const std::string& file) : in_(in), file_(file) {}

  /// Reads the next line that is neither empty nor a comment. False at the end of the text.
  bool next() {
    while (std::getline(in_, line_)) {
      ++number_;
      words_.clear();
      const std::string_view line = line_;
      constexpr std::string_view blanks = " \t\r";
      for (std::size_t to = 0, from = 0; (from = line.find_first_not_of(blanks, to)) != std::string_view::npos;) {
        to = std::min(line.find_first_of(blanks, from), line.size());
        words_.push_back(line.substr(from, to - from));
      }
      if (!words_.empty() && words_[0] != "c") return true;
    }
    if (in_.bad()) throw bad_file(file_, "", "cannot be read to its end");
    return false;
  }
  [[nodiscard]] const std::vector<std::string_view>& words() const noexcept { return words_; }
  [[noreturn]] void fail(const std::string& message) const {
    throw bad_file(file_, "line " + std::to_string(number_), message);
  }
  [[noreturn]] void fail_as_whole(const std::string& message) const { throw bad_file(file_, "", message); }
  /// Word number `word` as a whole number from `min` to `max`. `what` names the number in the message of the exception.
  [[nodiscard]] std::uint32_t number(std::size_t word, std::uint32_t min, std::uint32_t max,
                                     const std::string& what) const {
    std::uint32_t value = 0;
    const std::string_view text = words_[word];
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end.ec != std::errc{} || end.ptr != text.data() + text.size() || value < min || value > max)
      fail("`" + printable(text, 40) + "` is no " + what + "; expected a whole number from " + std::to_string(min) +
           " to " + std::to_string(max));
    return value;
  }

 private:
  std::istream& in_;
  const std::string& file_;
  std::string line_;
  std::vector<std::string_view> words_;  // the line's words
  std::size_t number_ = 0;               // the line's number
};

}  // namespace detail::pace

REMAT_INLINE undirected_graph read_pace_graph(std::istream& in, const std::string& file) {
  detail::pace::lines text(in, file);
  if (!text.next() || text.words()[0] != "p" || text.words().size() != 4 || text.words()[1] != "tw")
    text.fail_as_whole("does not begin with `p tw VERTICES EDGES`, so it is no PACE graph");
  const std::uint32_t n = text.number(2, 0, detail::pace::max_vertices, "number of vertices"),
                      m = text.number(3, 0, detail::pace::max_edges, "number of edges");
  std::vector<undirected_graph::edge> edges;
  edges.reserve(std::min<std::size_t>(m, 1U << 20U));
  while (text.next()) {
    if (text.words().size() != 2)
      text.fail("an edge is two vertices; here are " + detail::count_of(text.words().size(), "word"));
    const std::uint32_t u = text.number(0, 1, n, "vertex"), v = text.number(1, 1, n, "vertex");
    if (edges.size() == m) text.fail("there are more edges than the " + std::to_string(m) + " of the first line");
    edges.emplace_back(u - 1, v - 1);
  }
  if (edges.size() != m)
    text.fail_as_whole("has " + detail::count_of(edges.size(), "edge") + "; its first line says " + std::to_string(m));
  return undirected_graph(n, edges);
}

REMAT_INLINE undirected_graph read_pace_graph(const std::filesystem::path& path) {
  std::ifstream in = detail::open_to_read(path);
  return read_pace_graph(in, path.string());
}

REMAT_INLINE tree_decomposition read_pace_decomposition(std::istream& in, const std::string& file) {
  detail::pace::lines text(in, file);
  if (!text.next() || text.words()[0] != "s" || text.words().size() != 5 || text.words()[1] != "td")
    text.fail_as_whole("does not begin with `s td BAGS LARGEST VERTICES`, so it is no PACE tree decomposition");
  const std::uint32_t bags = text.number(2, 0, detail::pace::max_vertices, "number of bags"),
                      largest = text.number(3, 0, detail::pace::max_vertices, "size of the largest bag"),
                      n = text.number(4, 0, detail::pace::max_vertices, "number of vertices");
  // The edges stay in the order of the lines, so that a file takes no more memory than its text, whatever its first
  // line says.
  std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> rows;
  std::unordered_set<std::uint32_t> given;
  tree_decomposition out;
  std::size_t found = 0;
  while (text.next()) {
    if (text.words()[0] == "b") {
      if (text.words().size() < 2) text.fail("a bag is `b BAG VERTEX…`; the number of the bag is missing");
      const std::uint32_t b = text.number(1, 1, bags, "bag");
      if (!given.insert(b).second) text.fail("bag " + std::to_string(b) + " comes twice");
      auto& row = rows.emplace_back(b, std::vector<std::uint32_t>()).second;
      for (std::size_t i = 2; i < text.words().size(); ++i) row.push_back(text.number(i, 1, n, "vertex") - 1);
      std::sort(row.begin(), row.end());
      row.erase(std::unique(row.begin(), row.end()), row.end());
      found = std::max(found, row.size());
    } else {
      if (text.words().size() != 2) text.fail("expected `b BAG VERTEX…` or the two bags of a tree edge");
      const std::uint32_t a = text.number(0, 1, bags, "bag"), b = text.number(1, 1, bags, "bag");
      out.edges.emplace_back(a - 1, b - 1);
    }
  }
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::uint32_t b = 1; b <= bags; ++b) {
    if (b > rows.size() || rows[b - 1].first != b) text.fail_as_whole("has no line for bag " + std::to_string(b));
    const auto& row = rows[b - 1].second;
    out.bags.values.insert(out.bags.values.end(), row.begin(), row.end());
    out.bags.end_row();
  }
  if (found != largest)
    text.fail_as_whole("its largest bag has " + detail::count_of(found, "vertex", "vertices") +
                       "; its first line says " + std::to_string(largest));
  return out;
}

REMAT_INLINE tree_decomposition read_pace_decomposition(const std::filesystem::path& path) {
  std::ifstream in = detail::open_to_read(path);
  return read_pace_decomposition(in, path.string());
}

REMAT_INLINE void write_pace_graph(std::ostream& out, const undirected_graph& g) {
  std::string text = "p tw " + std::to_string(g.num_vertices()) + " " + std::to_string(g.num_edges()) + "\n";
  g.for_each_edge(
      [&](std::uint32_t u, std::uint32_t v) { text += std::to_string(u + 1) + " " + std::to_string(v + 1) + "\n"; });
  out << text;
}

REMAT_INLINE void write_pace_decomposition(std::ostream& out, const tree_decomposition& t, std::size_t vertices) {
  std::string text =
      "s td " + std::to_string(t.size()) + " " + std::to_string(t.width() + 1) + " " + std::to_string(vertices) + "\n";
  for (std::size_t b = 0; b < t.size(); ++b) {
    text += "b " + std::to_string(b + 1);
    for (const std::uint32_t v : t.bags[b]) text += " " + std::to_string(v + 1);
    text += "\n";
  }
  for (const auto& [a, b] : t.edges) text += std::to_string(a + 1) + " " + std::to_string(b + 1) + "\n";
  out << text;
}

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
                     "has " + detail::count_of(fields.size(), "field") + "; expected " + std::to_string(order_.size()) +
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
  detail::refuse_foreign_format(text, name);
  text = detail::without_byte_order_mark(text);
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
    throw bad_argument("there are " + detail::count_of(n, "interval") + ", " +
                       detail::count_of(file.ids.size(), "name") + " and " +
                       detail::count_of(file.offsets ? file.offsets->size() : n, "offset") +
                       "; expected one of each for each interval");
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
