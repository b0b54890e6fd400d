// SPDX-License-Identifier: BSL-1.0
#include "remat/io/text.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

remat::undirected_graph graph_of(const std::string& text) {
  std::istringstream in(text);
  return remat::read_pace_graph(in, "x.gr");
}
remat::tree_decomposition tree_of(const std::string& text) {
  std::istringstream in(text);
  return remat::read_pace_decomposition(in, "x.td");
}

void refused_graph(const std::string& text, const char* message) {
  CAPTURE(text);
  CHECK_THROWS_WITH_AS((void)graph_of(text), doctest::Contains(message), remat::bad_file);
  CHECK_THROWS_WITH_AS((void)graph_of(text), doctest::Contains("x.gr"), remat::bad_file);
}
void refused_tree(const std::string& text, const char* message) {
  CAPTURE(text);
  CHECK_THROWS_WITH_AS((void)tree_of(text), doctest::Contains(message), remat::bad_file);
}

}  // namespace

TEST_CASE("a graph: comments, blank lines, loops, repeated edges, other line ends") {
  const auto g = graph_of("c a comment\n\np tw 4 5\r\n1 2\n2\t1\nc another\n3 3\n 3 4 \n2 3");
  CHECK(g.num_vertices() == 4);
  CHECK(g.num_edges() == 3);
  CHECK(g.adjacent(0, 1));
  CHECK(g.adjacent(3, 2));
  CHECK_FALSE(g.adjacent(0, 3));
  CHECK(graph_of("p tw 0 0\n").num_vertices() == 0);
  CHECK(graph_of("p tw 3 0").num_vertices() == 3);
}

TEST_CASE("what is no graph is refused with the line and what would be right") {
  refused_graph("", "p tw VERTICES EDGES");
  refused_graph("p cnf 1 1\n1 1\n", "p tw VERTICES EDGES");
  refused_graph("p tw 3\n", "p tw VERTICES EDGES");
  refused_graph("p tw -1 0\n", "line 1: `-1` is no number of vertices");
  refused_graph("p tw 3 1\n1 4\n", "line 2: `4` is no vertex; expected a whole number from 1 to 3");
  refused_graph("p tw 3 1\n0 1\n", "line 2: `0` is no vertex");
  refused_graph("p tw 3 1\n1 2x\n", "`2x` is no vertex");
  refused_graph("p tw 3 1\n1 2 3\n", "line 2: an edge is two vertices; here are 3 words");
  refused_graph("p tw 3 1\n1 2\n2 3\n", "line 3: there are more edges than the 1");
  refused_graph("p tw 3 2\n1 2\n", "has 1 edge; its first line says 2");
  refused_graph("p tw 99999999999 0\n", "`99999999999` is no number of vertices");
  CHECK_THROWS_WITH_AS((void)remat::read_pace_graph(std::filesystem::path("/nowhere/x.gr")),
                       doctest::Contains("there is no such file"), remat::bad_file);
  CHECK_THROWS_WITH_AS((void)remat::read_pace_graph(std::filesystem::path("/")), doctest::Contains("is a directory"),
                       remat::bad_file);
}

TEST_CASE("what is no decomposition is refused") {
  refused_tree("", "s td BAGS LARGEST VERTICES");
  refused_tree("s td 1 1\n", "s td BAGS LARGEST VERTICES");
  refused_tree("s td 1 1 1\n", "has no line for bag 1");
  refused_tree("s td 1 1 1\nb 2 1\n", "`2` is no bag");
  refused_tree("s td 1 1 1\nb 1 2\n", "`2` is no vertex");
  refused_tree("s td 1 1 1\nb\n", "the number of the bag is missing");
  refused_tree("s td 1 1 1\nb 1 1\nb 1 1\n", "line 3: bag 1 comes twice");
  refused_tree("s td 1 2 2\nb 1 1\n", "its largest bag has 1 vertex; its first line says 2");
  refused_tree("s td 2 1 2\nb 1 1\nb 2 2\n1 2 2\n", "the two bags of a tree edge");
  refused_tree("s td 2 1 2\nb 1 1\nb 2 2\n1 3\n", "`3` is no bag");
}

TEST_CASE("written and read again, graphs and decompositions are the same") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const auto g = remat::test::random_undirected(seed, static_cast<std::uint32_t>(seed), 25);
    std::ostringstream out;
    remat::write_pace_graph(out, g);
    const auto again = graph_of(out.str());
    CHECK(again.rows().begin == g.rows().begin);
    CHECK(again.rows().values == g.rows().values);
    const auto t = remat::decompose(g).tree;
    std::ostringstream tree;
    remat::write_pace_decomposition(tree, t, g.num_vertices());
    const auto back = tree_of(tree.str());
    CHECK(back.bags.begin == t.bags.begin);
    CHECK(back.bags.values == t.bags.values);
    CHECK(back.edges == t.edges);
    CHECK(remat::check_decomposition(g, back).valid());
  }
}

TEST_CASE("through files") {
  const auto path = std::filesystem::temp_directory_path() / "remat-pace-test.td";
  {
    std::ofstream out(path, std::ios::binary);
    out << "s td 2 2 3\nb 1 2 1\nb 2 2 3\n1 2\n";
  }
  const auto t = remat::read_pace_decomposition(path);
  std::filesystem::remove(path);
  CHECK(t.width() == 1);
  CHECK(remat::check_decomposition(graph_of("p tw 3 2\n1 2\n2 3\n"), t).valid());
  CHECK_THROWS_AS((void)remat::read_pace_decomposition(path), remat::bad_file);
}
