// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "remat/memory/check.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE {

/// \file
/// The text formats of the PACE challenge's treewidth track \cite dell2017pace: graphs (`.gr`) and tree decompositions
/// (`.td`). The files count vertices and bags from 1, the library counts them from 0. A line that begins with `c` is a
/// comment.

/// Reads a graph in PACE's `.gr` format: `p tw N M`, then M lines, each with the two ends of an edge. Loops and
/// repeated edges are dropped. `file` is the name of the file in messages. O(text) time. Throws `bad_file` for text in
/// another format; the message names the file, the line and the correct form.
[[nodiscard]] undirected_graph read_pace_graph(std::istream& in, const std::string& file);

/// \overload
///
/// Reads a file. Throws `bad_file` also if the file cannot be read.
[[nodiscard]] undirected_graph read_pace_graph(const std::filesystem::path& path);

/// Reads a tree decomposition in PACE's `.td` format: `s td BAGS LARGEST VERTICES`, a line `b BAG VERTEX…` for each
/// bag, and lines with the two ends of a tree edge. It is not checked against a graph: see `check_decomposition`.
/// O(text · log) time. Throws `bad_file` as `read_pace_graph` does.
[[nodiscard]] tree_decomposition read_pace_decomposition(std::istream& in, const std::string& file);

/// \overload
///
/// Reads a file. Throws `bad_file` also if the file cannot be read.
[[nodiscard]] tree_decomposition read_pace_decomposition(const std::filesystem::path& path);

/// Writes a graph in PACE's `.gr` format: each edge once, ascending. O(vertices + edges) time.
void write_pace_graph(std::ostream& out, const undirected_graph& g);

/// Writes a tree decomposition of a graph with `vertices` vertices in PACE's `.td` format. O(sum of bag sizes) time.
void write_pace_decomposition(std::ostream& out, const tree_decomposition& t, std::size_t vertices);

/// Intervals with their names, and their offsets if a memory plan has been made.
struct intervals_file {
  std::vector<std::string> ids;     ///< one for each interval: any text without commas, quotes and line ends
  std::vector<interval> intervals;  ///< lifetimes and sizes in bytes
  std::optional<std::vector<std::int64_t>> offsets{};  ///< bytes, one for each interval; none: not planned

  friend bool operator==(const intervals_file&, const intervals_file&) = default;
};

/// Reads intervals in the format of the field: comma-separated lines, the first of which names the columns.
///
/// The columns `id`, `lower`, `upper` and `size` must be present, in any order; `offset` may be. Lifetimes are
/// half-open, [lower, upper). Columns of other names are refused: an alignment or gaps would change the answer. Empty
/// lines are ignored. There is no quoting. O(text) time. Throws `bad_file` with the file, the line, the column, the
/// text found and the text expected: for a missing field, a number that is not one or does not fit into 64 bits, a
/// negative size or offset, an empty lifetime. `check_memory` says whether the offsets keep the intervals apart.
[[nodiscard]] intervals_file parse_intervals(std::string_view text, const std::string& name);

/// The text of a file of intervals, which `parse_intervals` reads back to the same value.
///
/// O(text) time. Throws `bad_argument` unless each interval has one name and, if any have offsets, one offset; and for
/// a name that is empty or has a comma, a quote or a line end.
[[nodiscard]] std::string to_csv(const intervals_file& file);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/text.hpp"
#endif
