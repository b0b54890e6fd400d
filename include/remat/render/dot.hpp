// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE {

/// Options of `write_dot`.
struct dot_options {
  bool backward = true;                   ///< draw the backward operations, too
  std::vector<std::uint32_t> class_of{};  ///< group → number of its class, for the titles; may be empty
};

/// `text` as a quoted string of the DOT language.
[[nodiscard]] std::string dot_quoted(std::string_view text);

/// Writes a data-flow graph as a picture for Graphviz: operations as nodes (round: forward, square: backward), groups
/// as nested clusters, and an arrow from each producer of a tensor to each of its consumers with the tensor's bytes.
/// Only needed operations are drawn. `name_of` gives the names of operations; if it is empty, they have numbers alone.
///
/// All tensors between the same two operations are one arrow, with the sum of their bytes. O((operations + reads and
/// writes) · log) time.
void write_dot(std::ostream& out, const std::function<std::string(op_id)>& name_of, const flat_graph& flat,
               const operation_hierarchy& h, const dot_options& options = {});

/// \overload
///
/// Takes the names of `graph`, from which `flat` was made, if the graph has names, and below them the lines of the
/// user's program, if it knows them.
///
///     std::ofstream file("hierarchy.dot");
///     write_dot(file, graph, problem.graph(), h);   // dot -Tsvg hierarchy.dot
template <data_flow_graph G>
void write_dot(std::ostream& out, [[maybe_unused]] const G& graph, const flat_graph& flat, const operation_hierarchy& h,
               const dot_options& options = {}) {
  std::function<std::string(op_id)> name_of;
  if constexpr (named_graph<G>)
    name_of = [&](op_id o) {
      std::string name(std::string_view(graph.name(o)));
      if constexpr (sourced_graph<G>)
        if (const std::string_view source = graph.source(o); !source.empty()) name.append("\n").append(source);
      return name;
    };
  write_dot(out, name_of, flat, h, options);
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/render/impl/dot.hpp"
#endif
