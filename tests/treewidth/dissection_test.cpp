// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/dissection.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/treewidth/detail/elimination_order.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::undirected_graph;
using namespace remat::test;

std::int64_t width_by_ranks(const undirected_graph& g, const std::vector<std::uint32_t>& rank) {
  return elimination_width(g, remat::detail::greedy_order(g, {.rank = rank}));
}

}  // namespace

TEST_CASE("the vertices of the highest rank separate the graph") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const undirected_graph g = grid_graph(9, 30);
    remat::detail::dissection_options options;
    options.seed = seed;
    const auto rank = remat::detail::dissection_ranks(g, options);
    REQUIRE(rank.size() == g.num_vertices());
    const std::uint32_t top = *std::max_element(rank.begin(), rank.end());
    REQUIRE(top > 1);
    std::vector<std::uint32_t> gone;
    for (std::uint32_t v = 0; v < rank.size(); ++v)
      if (rank[v] == top) gone.push_back(v);
    CHECK(gone.size() < 40);
    // Without the separator of the highest rank, the largest component has less than 9 in 10 of the vertices.
    std::vector<std::uint8_t> seen(rank.size(), 0);
    for (const std::uint32_t v : gone) seen[v] = 1;
    std::size_t largest = 0;
    for (std::uint32_t v = 0; v < rank.size(); ++v) {
      if (seen[v]) continue;
      std::vector<std::uint32_t> queue{v};
      seen[v] = 1;
      for (std::size_t i = 0; i < queue.size(); ++i)
        for (const std::uint32_t u : g.neighbours(queue[i]))
          if (!seen[u]) {
            seen[u] = 1;
            queue.push_back(u);
          }
      largest = std::max(largest, queue.size());
    }
    CHECK(largest < rank.size() * 9 / 10);
  }
}

TEST_CASE("on a long grid the order is no wider than two of its columns and some") {
  const undirected_graph g = grid_graph(10, 60);
  std::int64_t best = 1000;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    remat::detail::dissection_options options;
    options.seed = seed;
    best = std::min(best, width_by_ranks(g, remat::detail::dissection_ranks(g, options)));
  }
  CHECK(best >= 10);
  CHECK(best <= 24);  // a cell lies between two separators
}

TEST_CASE("disconnected graphs, small ones, a target; a seed decides; a stop gives nothing") {
  CHECK(remat::detail::dissection_ranks(undirected_graph(), {}).empty());
  CHECK(remat::detail::dissection_ranks(undirected_graph(50, {}), {}) == std::vector<std::uint32_t>(50, 0));
  CHECK(remat::detail::dissection_ranks(complete_graph(60), {}) == std::vector<std::uint32_t>(60, 0));
  const undirected_graph g = random_undirected(2, 300, 1);
  remat::detail::dissection_options options;
  options.seed = 5;
  std::uint64_t work = 0;
  options.work = &work;
  const auto rank = remat::detail::dissection_ranks(g, options);
  CHECK(rank == remat::detail::dissection_ranks(g, options));
  CHECK(work > 0);
  options.target = 300;
  CHECK(remat::detail::dissection_ranks(g, options) == std::vector<std::uint32_t>(300, 0));
  options.target = 0;
  const std::function<bool()> stop = [] { return true; };
  options.stop = &stop;
  CHECK(remat::detail::dissection_ranks(g, options).empty());
}
