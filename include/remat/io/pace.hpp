// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <istream>
#include <ostream>
#include <string>

#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"

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

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/pace.hpp"
#endif
