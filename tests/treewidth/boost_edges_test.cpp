// SPDX-License-Identifier: BSL-1.0
#if defined(__GNUC__) && !defined(__clang__)
// adjacency_list (1.74) copies empty boost::optionals, which g++ 12 takes for uses of what is in them.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "remat/graph/boost_view.hpp"

#include <doctest/doctest.h>

#include <boost/graph/adjacency_list.hpp>
#include <cstdint>
#include <vector>

#include "remat/treewidth/decompose.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using vector_graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS>;
using list_graph = boost::adjacency_list<boost::listS, boost::listS, boost::directedS>;
using set_graph = boost::adjacency_list<boost::setS, boost::listS, boost::bidirectionalS>;

static_assert(remat::edge_listing<remat::boost_edges<vector_graph>>);
static_assert(remat::edge_listing<remat::boost_edges<list_graph>>);

}  // namespace

TEST_CASE_TEMPLATE("the same rows as the library's own graph", Graph, vector_graph, list_graph, set_graph) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const remat::undirected_graph expected = remat::test::random_undirected(seed, 15, 20);
    Graph g;
    std::vector<typename boost::graph_traits<Graph>::vertex_descriptor> vertex;
    for (int v = 0; v < 15; ++v) vertex.push_back(add_vertex(g));
    expected.for_each_edge([&](std::uint32_t u, std::uint32_t v) {
      if (u % 2 == 0)
        add_edge(vertex[u], vertex[v], g);
      else
        add_edge(vertex[v], vertex[u], g);
    });
    add_edge(vertex[3], vertex[3], g);  // a loop counts for nothing
    const remat::boost_edges edges(g);
    CHECK(edges.vertex(7) == vertex[7]);
    const remat::undirected_graph seen(edges);
    CHECK(seen.rows().begin == expected.rows().begin);
    CHECK(seen.rows().values == expected.rows().values);
    CHECK(remat::decompose(seen).width == remat::test::exhaustive_treewidth(expected));
  }
}
