// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/impl/bramble_bound.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/treewidth/decompose.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using namespace remat::test;
using remat::detail::grid_bound;

}  // namespace

TEST_CASE("never above the treewidth") {
  int positive = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    const auto g = random_undirected(seed, static_cast<std::uint32_t>(4 + seed % 9),
                                     static_cast<std::uint32_t>(10 + seed * 7 % 70));
    const std::uint32_t bound = grid_bound(g);
    CHECK(bound <= exhaustive_treewidth(g));
    positive += bound > 1;
  }
  CHECK(positive > 100);
}

TEST_CASE("disjoint paths: from one set to the other along edges, without a common vertex, and none can be added") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto g = random_undirected(seed, 40, static_cast<std::uint32_t>(4 + seed % 12));
    std::vector<std::uint32_t> from, to;
    for (std::uint32_t v = 0; v < 40; ++v) {
      if (v * 7 % 40 < 3 + seed % 9) from.push_back(v);
      if (v * 11 % 40 < 3 + seed % 7) to.push_back(v);
    }
    remat::detail::stop_poll poll(nullptr);
    const auto paths = remat::detail::bramble_bound::disjoint_paths(g, from, to, poll);
    std::vector<std::uint8_t> used(40, 0);
    for (const auto& path : paths) {
      CHECK(std::count(from.begin(), from.end(), path.front()) == 1);
      CHECK(std::count(to.begin(), to.end(), path.back()) == 1);
      for (std::size_t k = 0; k < path.size(); ++k) {
        CHECK(used[path[k]]++ == 0);
        if (k > 0) CHECK(g.adjacent(path[k - 1], path[k]));
      }
    }
    // The unused vertices hold no further path.
    std::vector<std::uint32_t> queue;
    for (const std::uint32_t v : from)
      if (used[v]++ == 0) queue.push_back(v);
    for (std::size_t k = 0; k < queue.size(); ++k) {
      CHECK(std::count(to.begin(), to.end(), queue[k]) == 0);
      for (const std::uint32_t v : g.neighbours(queue[k]))
        if (used[v]++ == 0) queue.push_back(v);
    }
  }
}

TEST_CASE("grids: the treewidth") {
  for (std::uint32_t rows = 2; rows <= 16; ++rows)
    for (const std::uint32_t columns : {rows, rows + 1, rows + 5}) {
      CAPTURE(rows);
      CAPTURE(columns);
      CHECK(grid_bound(grid_graph(rows, columns)) == rows);
    }
}

TEST_CASE("cliques, cycles and k-trees: not above") {
  CHECK(grid_bound(remat::undirected_graph()) == 0);
  CHECK(grid_bound(complete_graph(30)) <= 29);
  CHECK(grid_bound(cycle_graph(50)) <= 2);
  CHECK(grid_bound(k_tree(1, 100, 1)) <= 1);
  CHECK(grid_bound(k_tree(1, 100, 9)) <= 9);
  const std::function<bool()> stop = [] { return true; };
  CHECK(grid_bound(grid_graph(100, 100), &stop) == 0);
}

TEST_CASE("decompose proves the width of a grid by it, and takes no more than a little work") {
  remat::decompose_options options;
  options.run.work_limit = 50'000'000;
  const remat::decomposition_result r = remat::decompose(grid_graph(14, 14), options);
  CHECK(r.lower_bound == 14);
}
