// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"

namespace REMAT_NAMESPACE::detail {

/// The parts of an HTML report that show the graph: a picture, a table of groups, and names for its charts.
struct described_graph {
  /// Up to this many operations the picture has a node for each; else for each group of the top level.
  static constexpr std::size_t most_drawn_operations = 500;
  static constexpr std::uint32_t most_drawn_groups = 60;  ///< more groups of the top level are drawn joined
  static constexpr std::size_t most_groups = 300;         ///< groups of the table; deeper ones count in their parents
  static constexpr std::size_t most_kinds = 30;           ///< rows of the table by phase and name
  static constexpr std::size_t most_contents = 6;         ///< names in the list of a group's operations
  static constexpr std::size_t most_layers = 40;          ///< layers; of deeper modules, those that enclose them

  /// A node of the picture: forward above, backward below, each backward node in the column of its anchor.
  struct node {
    std::uint32_t column = 0;
    std::int32_t row = 0;     ///< forward: from 0 upwards; backward: from −2 downwards
    char kind = 'f';          ///< its operation's `kind`; for a group, that of its first operation
    std::uint32_t first = 0;  ///< its operation, or the first one of its group
    std::uint32_t count = 0;  ///< number of operations
    std::string label{};      ///< the group's label; empty for a single operation
    friend bool operator==(const node&, const node&) = default;
  };
  /// Data that one node makes and another reads.
  struct edge {
    std::uint32_t from = 0, to = 0;
    friend bool operator==(const edge&, const edge&) = default;
  };
  /// A row of the table of groups. Parents stand before their children.
  struct group {
    std::string label{};
    std::uint32_t depth = 0;
    std::size_t forward = 0, backward = 0;       ///< operations, those of inner groups included
    double forward_time = 0, backward_time = 0;  ///< the time of one run of each
    std::int64_t bytes = 0;                      ///< bytes that its operations make
    std::string contents{};                      ///< its own operations in words; empty if it has none
  };
  /// All operations of one phase and one name.
  struct kind_row {
    char kind = 'f';
    std::string name{};
    std::size_t count = 0;
    double time = 0;
    std::int64_t bytes = 0;
  };

  std::vector<std::string> names{};      ///< names of operations, each once
  std::vector<std::uint32_t> name_of{};  ///< operation → its place in `names`
  std::string kind{};                    ///< operation → 'f' forward, 'l' loss, 'b' backward, 'x' not needed
  std::vector<double> time{};            ///< operation → time of one run
  std::vector<std::int64_t> bytes{};     ///< operation → bytes that it makes
  std::vector<std::uint32_t> node_of{};  ///< operation → its node; `operation_hierarchy::none` if it is not needed
  std::vector<node> nodes{};
  std::vector<edge> edges{};
  std::vector<group> groups{};
  bool by_module = false;         ///< the groups are the modules that the names tell, not those of the hierarchy
  std::vector<kind_row> kinds{};  ///< most time first
  /// The modules, or else the groups, by which the report says where tensors are kept; empty if there is but one.
  std::vector<std::string> layers{};
  std::vector<std::uint32_t> layer_of{};  ///< operation → its place in `layers`
};

/// Describes the graph of `p`, whose groups are those of `h`.
///
/// The column of a forward node is the length of the longest path to it. O((operations + reads and writes) · log) time,
/// and the product of the writers and the readers of each tensor.
[[nodiscard]] described_graph describe_graph(const problem& p, const name_lookup& names, const operation_hierarchy& h);

/// The module in the name of an operation, "blocks.0" of "blocks.0: aten.mm (model.py:12)"; empty if there is none.
[[nodiscard]] std::string_view module_in_name(std::string_view name);

/// The name of an operation without its module and its line of source.
[[nodiscard]] std::string_view plain_name(std::string_view name);

/// The name with "*" for each number: of its module, if it has one, else of the whole. Equal for equal places of a
/// model.
[[nodiscard]] std::string name_pattern(std::string_view name);

}  // namespace REMAT_NAMESPACE::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/render/impl/report_graph.hpp"
#endif
