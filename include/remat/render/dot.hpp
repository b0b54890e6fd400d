// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/units.hpp"

namespace remat {

struct dot_options {
  bool backward = true;                   ///< draw the backward operations, too
  std::vector<std::uint32_t> class_of{};  ///< group → a number that equal groups share, for the titles; or empty
};

/// `text` as a quoted string of the DOT language.
[[nodiscard]] inline std::string dot_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

/// Writes a step as a picture for Graphviz: operations as nodes (round: forward, square: backward), groups as nested
/// clusters, and an arrow from each maker to each reader of a tensor with the tensor's bytes. `graph` is what the step
/// was made from; its names are used if it has any. Only what the step needs is drawn.
///
/// Many tensors between the same two operations are one arrow with the sum of their bytes. O((operations + reads and
/// writes) · log) time.
///
///     std::ofstream file("hierarchy.dot");
///     write_dot(file, graph, problem.graph(), h);   // dot -Tsvg hierarchy.dot
template <data_flow_graph G>
void write_dot(std::ostream& out, const G& graph, const flat_graph& s, const operation_hierarchy& h,
               const dot_options& options = {}) {
  std::vector<std::uint8_t> drawn(s.num_operations, 0);
  for (std::size_t i = 0; i < h.order.size(); ++i) drawn[h.order[i]] = options.backward || i < h.num_forward;

  out << "digraph step {\n  node [fontsize=10];\n  edge [fontsize=8];\n";
  // Backward operations, by the group that they are directly in.
  std::vector<std::vector<std::uint32_t>> backward(h.groups.size());
  for (std::size_t i = h.num_forward; i < h.order.size(); ++i) backward[h.group_of[h.order[i]]].push_back(h.order[i]);

  struct visit {
    std::uint32_t group;
    std::size_t next;
  };
  std::vector<visit> stack;
  const auto indent = [&] { return std::string(2 * stack.size(), ' '); };
  const auto draw = [&](std::uint32_t o, std::string_view shape) {
    std::string label;
    if constexpr (named_graph<G>) label = std::string(std::string_view(graph.name(static_cast<op_id>(o)))) + "\n";
    label += "#" + std::to_string(o);
    std::int64_t bytes = 0;
    for (const std::uint32_t t : s.outputs[o]) bytes += s.bytes[t];
    label += ", " + format_bytes(bytes);
    out << indent() << "o" << o << " [shape=" << shape << ", label=" << dot_quoted(label) << "];\n";
  };
  const auto finish = [&](std::uint32_t g) {
    if (options.backward)
      for (const std::uint32_t o : backward[g]) draw(o, "box");
  };
  stack.push_back({0, 0});
  while (!stack.empty()) {
    const std::uint32_t g = stack.back().group;
    if (stack.back().next == h.children[g].size()) {
      finish(g);
      stack.pop_back();
      if (!stack.empty()) out << indent() << "}\n";
      continue;
    }
    const std::uint32_t child = h.children[g][stack.back().next++];
    if (!h.is_group(child)) {
      draw(child, "ellipse");
      continue;
    }
    const std::uint32_t inner = h.group_at(child);
    std::string title = "group " + std::to_string(inner);
    if (inner < options.class_of.size()) title += ", class " + std::to_string(options.class_of[inner]);
    title += ": " + std::to_string(h.forward(inner).size()) + " forward, " + std::to_string(h.backward(inner).size()) +
             " backward";
    out << indent() << "subgraph cluster_" << inner << " {\n";
    stack.push_back({inner, 0});
    out << indent() << "label=" << dot_quoted(title) << ";\n";
  }

  std::vector<std::pair<std::pair<std::uint32_t, std::uint32_t>, std::int64_t>> arrows;
  for (std::uint32_t t = 0; t < s.num_tensors; ++t)
    for (const std::uint32_t maker : s.producers[t])
      for (const std::uint32_t reader : s.consumers[t])
        if (drawn[maker] && drawn[reader]) arrows.push_back({{maker, reader}, s.bytes[t]});
  std::sort(arrows.begin(), arrows.end());
  for (std::size_t i = 0, j = 0; i < arrows.size(); i = j) {
    std::int64_t bytes = 0;
    for (; j < arrows.size() && arrows[j].first == arrows[i].first; ++j) bytes += arrows[j].second;
    out << "  o" << arrows[i].first.first << " -> o" << arrows[i].first.second
        << " [label=" << dot_quoted(format_bytes(bytes)) << "];\n";
  }
  out << "}\n";
}

}  // namespace remat
