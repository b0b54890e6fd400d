// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/flow_cutter.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::undirected_graph;
using namespace remat::test;
using namespace remat::detail;

/// Of the graph without `gone`: the part of each vertex; gone ones have 0.
std::vector<std::uint32_t> parts_without(const undirected_graph& g, const std::vector<std::uint32_t>& gone) {
  std::vector<std::uint32_t> part(g.num_vertices(), 0);
  for (const std::uint32_t v : gone) part[v] = remat::undirected_graph::none;
  std::uint32_t count = 0;
  for (std::uint32_t v = 0; v < part.size(); ++v) {
    if (part[v] != 0) continue;
    ++count;
    std::vector<std::uint32_t> queue{v};
    part[v] = count;
    for (std::size_t i = 0; i < queue.size(); ++i)
      for (const std::uint32_t u : g.neighbours(queue[i]))
        if (part[u] == 0) {
          part[u] = count;
          queue.push_back(u);
        }
  }
  for (const std::uint32_t v : gone) part[v] = 0;
  return part;
}

/// The least number of vertices, but s and t, whose removal separates them. All sets are tried.
std::size_t least_separator(const undirected_graph& g, std::uint32_t s, std::uint32_t t) {
  const std::size_t n = g.num_vertices();
  std::size_t best = n;
  for (std::uint32_t set = 0; set < 1U << n; ++set) {
    const auto size = static_cast<std::size_t>(std::popcount(set));
    if ((set >> s & 1U) != 0 || (set >> t & 1U) != 0 || size >= best) continue;
    std::vector<std::uint32_t> gone;
    for (std::uint32_t v = 0; v < n; ++v)
      if ((set >> v & 1U) != 0) gone.push_back(v);
    const auto part = parts_without(g, gone);
    if (part[s] != part[t]) best = size;
  }
  return best;
}

}  // namespace

TEST_CASE("every separator separates its ends, and the first is least") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(4 + seed % 8);
    const undirected_graph g = random_undirected(seed, n, static_cast<std::uint32_t>(20 + seed % 40));
    random_source random(seed);
    flow_cutter cutter(g);
    for (int pair = 0; pair < 4; ++pair) {
      const std::uint32_t s = random.below(n), t = random.below(n);
      const auto found = cutter.run(s, t, n, random);
      if (s == t || g.adjacent(s, t)) {
        CHECK(found.empty());
        continue;
      }
      REQUIRE_FALSE(found.empty());
      CHECK(found[0].vertices.size() == least_separator(g, s, t));
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto part = parts_without(g, found[i].vertices);
        CHECK(part[s] != 0);
        CHECK(part[t] != 0);
        CHECK(part[s] != part[t]);
        if (i == 0) continue;
        CHECK(found[i].vertices.size() > found[i - 1].vertices.size());
        CHECK(found[i].smaller_side > found[i - 1].smaller_side);
      }
    }
  }
}

TEST_CASE("larger graphs: separators all the way, each at most as large as asked for") {
  for (const undirected_graph& g : {grid_graph(12, 25), k_tree(7, 300, 6, 40), random_undirected(9, 200, 4)}) {
    random_source random(1);
    flow_cutter cutter(g);
    const auto n = static_cast<std::uint32_t>(g.num_vertices());
    for (int pair = 0; pair < 12; ++pair) {
      const std::uint32_t s = random.below(n), t = random.below(n);
      for (const auto& cut : cutter.run(s, t, 20, random)) {
        CHECK(cut.vertices.size() <= 20);
        const auto part = parts_without(g, cut.vertices);
        CHECK(part[s] != part[t]);
        const auto side = [&](std::uint32_t end) {
          return static_cast<std::uint32_t>(std::count(part.begin(), part.end(), part[end]));
        };
        CHECK(cut.smaller_side >= std::min(side(s), side(t)));
        CHECK(2 * cut.smaller_side + cut.vertices.size() <= n);
      }
    }
    CHECK(cutter.work() > 0);
  }
}

TEST_CASE("a long grid is halved by one of its columns") {
  const undirected_graph g = grid_graph(6, 40);
  random_source random(3);
  flow_cutter cutter(g);
  const auto found = cutter.run(0, 239, 30, random);
  const auto even = std::find_if(found.begin(), found.end(), [](const auto& cut) { return cut.smaller_side >= 96; });
  REQUIRE(even != found.end());
  CHECK(even->vertices.size() == 6);
}
