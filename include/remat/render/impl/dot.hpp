// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/dot.hpp"

#include <map>

#include "remat/core/detail/linkage.hpp"
#include "remat/render/table.hpp"

namespace REMAT_NAMESPACE {

namespace detail::dot {

/// Writes one picture; see `write_dot`.
class dot_writer {
 public:
  dot_writer(std::ostream& out, const std::function<std::string(op_id)>& name_of, const flat_graph& g,
             const operation_hierarchy& h, const dot_options& options)
      : out_(out), name_of_(name_of), graph_(g), hierarchy_(h), options_(options) {}

  void write() {
    out_ << "digraph step {\n  node [fontsize=10];\n  edge [fontsize=8];\n";
    write_nodes();
    write_arrows();
    out_ << "}\n";
  }

 private:
  [[nodiscard]] std::string indent() const { return std::string(2 * open_.size(), ' '); }

  void write_node(std::uint32_t o, std::string_view shape) {
    std::string label;
    if (name_of_) label = name_of_(static_cast<op_id>(o)) + "\n";
    label += "#" + std::to_string(o);
    std::int64_t bytes = 0;
    for (const std::uint32_t t : graph_.outputs[o]) bytes += graph_.bytes[t];
    label += ", " + format_bytes(bytes);
    out_ << indent() << "o" << o << " [shape=" << shape << ", label=" << dot_quoted(label) << "];\n";
  }

  void open_group(std::uint32_t group) {
    std::string title = "group " + std::to_string(group);
    if (group < options_.class_of.size()) title += ", class " + std::to_string(options_.class_of[group]);
    title += ": " + std::to_string(hierarchy_.forward(group).size()) + " forward, " +
             std::to_string(hierarchy_.backward(group).size()) + " backward";
    out_ << indent() << "subgraph cluster_" << group << " {\n";
    open_.emplace_back(group, 0);
    out_ << indent() << "label=" << dot_quoted(title) << ";\n";
  }

  /// The groups in depth-first order, each with its children and then its own backward operations.
  void write_nodes() {
    std::vector<std::vector<std::uint32_t>> backward(hierarchy_.groups.size());
    for (std::size_t i = hierarchy_.num_forward; i < hierarchy_.order.size(); ++i)
      backward[hierarchy_.group_of[hierarchy_.order[i]]].push_back(hierarchy_.order[i]);
    open_.emplace_back(0, 0);
    while (!open_.empty()) {
      auto& [group, next] = open_.back();
      if (next == hierarchy_.children[group].size()) {
        if (options_.backward)
          for (const std::uint32_t o : backward[group]) write_node(o, "box");
        open_.pop_back();
        if (!open_.empty()) out_ << indent() << "}\n";
        continue;
      }
      const std::uint32_t child = hierarchy_.children[group][next++];
      if (hierarchy_.is_group(child))
        open_group(hierarchy_.group_at(child));
      else
        write_node(child, "ellipse");
    }
  }

  void write_arrows() {
    std::vector<std::uint8_t> drawn(graph_.num_operations, 0);
    for (std::size_t i = 0; i < hierarchy_.order.size(); ++i)
      drawn[hierarchy_.order[i]] = options_.backward || i < hierarchy_.num_forward;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> arrows;  // (producer, consumer) → bytes
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
      for (const std::uint32_t producer : graph_.producers[t])
        for (const std::uint32_t consumer : graph_.consumers[t])
          if (drawn[producer] && drawn[consumer]) arrows[{producer, consumer}] += graph_.bytes[t];
    for (const auto& [ends, bytes] : arrows)
      out_ << "  o" << ends.first << " -> o" << ends.second << " [label=" << dot_quoted(format_bytes(bytes)) << "];\n";
  }

  std::ostream& out_;
  const std::function<std::string(op_id)>& name_of_;
  const flat_graph& graph_;
  const operation_hierarchy& hierarchy_;
  const dot_options& options_;
  std::vector<std::pair<std::uint32_t, std::size_t>> open_;  ///< groups that are being written, and their next child
};

}  // namespace detail::dot

REMAT_INLINE std::string dot_quoted(std::string_view text) {
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

REMAT_INLINE void write_dot(std::ostream& out, const std::function<std::string(op_id)>& name_of, const flat_graph& flat,
                            const operation_hierarchy& h, const dot_options& options) {
  detail::dot::dot_writer(out, name_of, flat, h, options).write();
}

}  // namespace REMAT_NAMESPACE
