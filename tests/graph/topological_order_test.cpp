// SPDX-License-Identifier: BSL-1.0
#include "remat/graph/detail/topological_order.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/graph/detail/label.hpp"
#include "remat/graph/training_graph.hpp"

namespace {

using namespace remat;

index_rows rows(const std::vector<std::vector<std::uint32_t>>& lists) {
  index_rows out;
  for (const auto& list : lists) {
    out.values.insert(out.values.end(), list.begin(), list.end());
    out.end_row();
  }
  return out;
}

std::string number(std::size_t o) { return std::to_string(o); }

}  // namespace

TEST_CASE("each place goes to the smallest operation whose inputs are readable") {
  using order = std::vector<std::uint32_t>;
  // Tensor 0 is made by 2 and 3 together and read by 0; tensor 1 has no producer; 1 is free.
  CHECK(detail::topological_order(rows({{0, 1}, {}, {}, {}}), rows({{}, {}, {0}, {0}}), 2, number) ==
        order{1, 2, 3, 0});
  CHECK(detail::topological_order(rows({{}, {0, 0}}), rows({{0}, {}}), 1, number) == order{0, 1});
  CHECK(detail::topological_order({}, {}, 0, number).empty());
}

TEST_CASE("a cycle is refused with its operations, of a long one the first eight") {
  CHECK_THROWS_WITH_AS(
      (void)detail::topological_order(rows({{}, {2, 0}, {1}, {1}}), rows({{0}, {1}, {2}, {}}), 3, number),
      "the graph has a cycle: 1 → 2 → 1; a training step has none", bad_graph);
  std::vector<std::vector<std::uint32_t>> inputs, outputs;
  for (std::uint32_t o = 0; o < 20; ++o) {
    inputs.push_back({o});
    outputs.push_back({(o + 1) % 20});
  }
  CHECK_THROWS_WITH_AS((void)detail::topological_order(rows(inputs), rows(outputs), 20, number),
                       "the graph has a cycle: 0 → 1 → 2 → 3 → 4 → 5 → 6 → 7 → 8 → … (20 operations); a training step "
                       "has none",
                       bad_graph);
}

TEST_CASE("operations and tensors in messages") {
  training_graph g;
  const tensor_id t = g.add_tensor({.name = "y", .bytes = 1});
  const op_id o = g.add_operation({.name = "relu", .outputs = {t}});
  CHECK(detail::label(g, o) == "operation 0 (relu)");
  CHECK(detail::label(g, t) == "tensor 0 (y)");
  CHECK(detail::label(o) == "operation 0");
  CHECK(detail::label(t) == "tensor 0");
}
