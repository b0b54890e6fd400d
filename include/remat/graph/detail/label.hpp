// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <string_view>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace REMAT_NAMESPACE::detail {

/// Returns "operation 3": an operation in a message.
[[nodiscard]] inline std::string label(op_id o) { return "operation " + std::to_string(index(o)); }
/// Returns "tensor 3": a tensor in a message.
[[nodiscard]] inline std::string label(tensor_id t) { return "tensor " + std::to_string(index(t)); }

/// Returns an operation or a tensor in a message, with its name if the graph has names: "operation 3 (relu)".
template <data_flow_graph G, class Id>
[[nodiscard]] std::string label(const G& graph, Id id) {
  std::string text = label(id);
  if constexpr (named_graph<G>) text.append(" (").append(std::string_view(graph.name(id))).append(")");
  return text;
}

}  // namespace REMAT_NAMESPACE::detail
