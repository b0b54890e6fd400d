// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/pace.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/io/detail/files.hpp"

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
      text.fail("an edge is two vertices; here are " + std::to_string(text.words().size()) + " words");
    const std::uint32_t u = text.number(0, 1, n, "vertex"), v = text.number(1, 1, n, "vertex");
    if (edges.size() == m) text.fail("there are more edges than the " + std::to_string(m) + " of the first line");
    edges.emplace_back(u - 1, v - 1);
  }
  if (edges.size() != m)
    text.fail_as_whole("has " + std::to_string(edges.size()) + " edges; its first line says " + std::to_string(m));
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
  // In the order of the lines, so that a file takes no more memory than its text, whatever its first line says.
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
    text.fail_as_whole("its largest bag has " + std::to_string(found) + " vertices; its first line says " +
                       std::to_string(largest));
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

}  // namespace REMAT_NAMESPACE
