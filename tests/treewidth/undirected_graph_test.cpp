// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/tree_decomposition.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/method/twremat.hpp"
#include "remat/problem/problem.hpp"

namespace {

using remat::undirected_graph;

/// A graph of your own: a path that lists its edges backwards, a loop, and an edge twice.
struct path {
  std::size_t n = 0;
  [[nodiscard]] std::size_t num_vertices() const { return n; }
  template <class F>
  void for_each_edge(F f) const {
    for (std::size_t v = 1; v < n; ++v) f(v, v - 1);
    f(std::size_t{0}, std::size_t{0});
    f(std::size_t{1}, std::size_t{0});
  }
};
struct nothing {};

static_assert(remat::edge_listing<path>);
static_assert(remat::edge_listing<undirected_graph>);
static_assert(!remat::edge_listing<nothing>);

}  // namespace

TEST_CASE("rows are ascending, without loops and repetitions") {
  const std::vector<undirected_graph::edge> edges{{3, 1}, {1, 3}, {0, 1}, {2, 2}, {1, 0}};
  const undirected_graph g(5, edges);
  CHECK(g.num_vertices() == 5);
  CHECK(g.num_edges() == 2);
  CHECK(g.rows().values == std::vector<std::uint32_t>{1, 0, 3, 1});
  CHECK(g.degree(1) == 2);
  CHECK(g.degree(4) == 0);
  CHECK(g.adjacent(3, 1));
  CHECK(g.adjacent(1, 3));
  CHECK_FALSE(g.adjacent(0, 3));
  CHECK_FALSE(g.adjacent(4, 4));
  std::vector<undirected_graph::edge> listed;
  g.for_each_edge([&](std::uint32_t u, std::uint32_t v) { listed.emplace_back(u, v); });
  CHECK(listed == std::vector<undirected_graph::edge>{{0, 1}, {1, 3}});
}

TEST_CASE("a graph of your own") {
  const undirected_graph g(path{4});
  CHECK(g.num_edges() == 3);
  CHECK(g.adjacent(2, 3));
}

TEST_CASE("an end that is not a vertex is an error") {
  const std::vector<undirected_graph::edge> edges{{0, 7}};
  CHECK_THROWS_WITH_AS(undirected_graph(5, edges), doctest::Contains("7 is not a vertex; there are 5"),
                       remat::bad_graph);
}

TEST_CASE("the operation graph: reads, moral edges, accumulated gradients, what is resident") {
  using remat::tensor_id;
  remat::training_graph g("sample");
  const tensor_id x = g.add_tensor({"x", 8, remat::tensor_kind::input});
  const tensor_id a = g.add_tensor({"a", 8}), b = g.add_tensor({"b", 8}), d = g.add_tensor({"d", 8});
  const auto run = [&](std::vector<tensor_id> in, std::vector<tensor_id> out) {
    remat::operation_spec o;
    o.inputs = std::move(in);
    o.outputs = std::move(out);
    g.add_operation(o);
  };
  run({x}, {a});    // 0
  run({x}, {b});    // 1: shares x with 0, which is resident
  run({a}, {d});    // 2
  run({b}, {d});    // 3: accumulates into what 2 writes
  run({d, a}, {});  // 4
  const remat::problem p(g, remat::unit_cost{});
  const auto reads = remat::operation_graph(p, remat::operation_edges::reads);
  std::vector<undirected_graph::edge> listed;
  reads.for_each_edge([&](std::uint32_t u, std::uint32_t v) { listed.emplace_back(u, v); });
  CHECK(listed == std::vector<undirected_graph::edge>{{0, 2}, {0, 4}, {1, 3}, {2, 4}, {3, 4}});
  listed.clear();
  remat::operation_graph(p).for_each_edge([&](std::uint32_t u, std::uint32_t v) { listed.emplace_back(u, v); });
  CHECK(listed == std::vector<undirected_graph::edge>{{0, 2}, {0, 3}, {0, 4}, {1, 3}, {2, 3}, {2, 4}, {3, 4}});
}

TEST_CASE("operation graphs of training graphs have the published numbers of edges") {
  struct row {
    const char* name;
    std::size_t operations, reads, moral;
  };
  for (const row& r : {row{"fno1d-b32-8192", 76, 97, 119}, row{"gpt2-medium-b4-s512", 1267, 1874, 2505},
                       row{"resnet101-b100-128", 694, 1175, 1588}, row{"toy-skip-3", 7, 7, 7}}) {
    CAPTURE(r.name);
    const remat::problem p(remat::read_training_graph(std::string(REMAT_TEST_DATA) + "/graphs/" + r.name + ".json"),
                           remat::unit_cost{});
    const auto reads = remat::operation_graph(p, remat::operation_edges::reads);
    CHECK(reads.num_vertices() == r.operations);
    CHECK(reads.num_edges() == r.reads);
    CHECK(remat::operation_graph(p).num_edges() == r.moral);
  }
}
