// SPDX-License-Identifier: BSL-1.0
#include "remat/graph/training_graph.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "remat/core/error.hpp"

using remat::op_id;
using remat::tensor_id;

TEST_CASE("what is appended is what is read") {
  std::mt19937_64 random(3);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < 50; ++round) {
    remat::training_graph g("g" + std::to_string(round));
    std::vector<remat::tensor_spec> tensors(1 + below(20));
    for (remat::tensor_spec& t : tensors) {
      t = {"t" + std::to_string(below(100)), static_cast<std::int64_t>(below(1000)),
           static_cast<remat::tensor_kind>(below(5))};
      const tensor_id id = g.add_tensor(t);
      CHECK(index(id) + 1 == g.num_tensors());
    }
    std::vector<remat::operation_spec> operations(below(20));
    for (remat::operation_spec& o : operations) {
      o.name = "o" + std::to_string(below(100));
      o.phase = static_cast<remat::op_phase>(below(3));
      for (std::uint64_t n = below(4); n > 0; --n) o.inputs.push_back(static_cast<tensor_id>(below(tensors.size())));
      for (std::uint64_t n = below(3); n > 0; --n) o.outputs.push_back(static_cast<tensor_id>(below(tensors.size())));
      o.flops = static_cast<double>(below(9));
      o.bytes_accessed = static_cast<double>(below(9));
      o.seconds = static_cast<double>(below(9));
      o.workspace = static_cast<std::int64_t>(below(9));
      o.deterministic = below(2) == 0;
      o.recomputable = below(2) == 0;
      const op_id id = g.add_operation(o);
      CHECK(index(id) + 1 == g.num_operations());
    }
    REQUIRE(g.num_operations() == operations.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto t = static_cast<tensor_id>(i);
      CHECK(g.name(t) == tensors[i].name);
      CHECK(g.bytes(t) == tensors[i].bytes);
      CHECK(g.kind(t) == tensors[i].kind);
      CHECK(g.always_resident(t) ==
            (tensors[i].kind == remat::tensor_kind::parameter || tensors[i].kind == remat::tensor_kind::input));
    }
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto o = static_cast<op_id>(i);
      const remat::operation_spec& expected = operations[i];
      CHECK(g.name(o) == expected.name);
      CHECK(g.phase(o) == expected.phase);
      CHECK(std::vector<tensor_id>(g.inputs(o).begin(), g.inputs(o).end()) == expected.inputs);
      CHECK(std::vector<tensor_id>(g.outputs(o).begin(), g.outputs(o).end()) == expected.outputs);
      CHECK(g.flops(o) == expected.flops);
      CHECK(g.bytes_accessed(o) == expected.bytes_accessed);
      CHECK(g.measured_seconds(o) == expected.seconds);
      CHECK(g.workspace(o) == expected.workspace);
      CHECK(g.deterministic(o) == expected.deterministic);
      CHECK(g.recomputable(o) == expected.recomputable);
    }
  }
}

TEST_CASE("figures that are not given are not known") {
  remat::training_graph g;
  const op_id o = g.add_operation({});
  CHECK(std::isnan(g.flops(o)));
  CHECK(std::isnan(g.bytes_accessed(o)));
  CHECK(std::isnan(g.measured_seconds(o)));
  CHECK(g.deterministic(o));
  CHECK(g.recomputable(o));
}

TEST_CASE("what can be seen to be wrong at once is refused, and changes nothing") {
  remat::training_graph g;
  const tensor_id t = g.add_tensor({.name = "x", .bytes = 1});
  CHECK_THROWS_WITH_AS(g.add_tensor({.name = "y", .bytes = -1}), doctest::Contains("tensor 1 (y): bytes is -1"),
                       remat::bad_graph);
  remat::operation_spec o;
  o.name = "f";
  o.inputs = {t, tensor_id{1}};
  CHECK_THROWS_WITH_AS(g.add_operation(o), doctest::Contains("operation 0 (f): input 1 is no tensor"),
                       remat::bad_graph);
  o.inputs = {t};
  o.outputs = {tensor_id{7}};
  CHECK_THROWS_WITH_AS(g.add_operation(o), doctest::Contains("output 7 is no tensor"), remat::bad_graph);
  o.outputs = {};
  o.workspace = -5;
  CHECK_THROWS_WITH_AS(g.add_operation(o), doctest::Contains("workspace is -5"), remat::bad_graph);
  CHECK_THROWS_AS(g.add_final_output(tensor_id{1}), remat::bad_graph);
  CHECK(g.num_tensors() == 1);
  CHECK(g.num_operations() == 0);
  CHECK(g.final_outputs().empty());
}
