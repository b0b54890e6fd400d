// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat::detail {

/// Returns an operation or a tensor for a message: "operation 3", or "operation 3 (relu)" if the graph has names.
template <data_flow_graph G, class Id>
requires std::is_same_v<Id, op_id> || std::is_same_v<Id, tensor_id>
[[nodiscard]] std::string label(const G& graph, Id id) {
  std::string text = (std::is_same_v<Id, op_id> ? "operation " : "tensor ") + std::to_string(index(id));
  if constexpr (named_graph<G>) text.append(" (").append(std::string_view(graph.name(id))).append(")");
  return text;
}

}  // namespace remat::detail
