// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/impl/improve.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "remat/treewidth/tree_decomposition.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::undirected_graph;
using namespace remat::test;

/// A bad start: vertices as they are numbered.
remat::tree_decomposition listed(const undirected_graph& g) {
  std::vector<std::uint32_t> order(g.num_vertices());
  for (std::uint32_t v = 0; v < order.size(); ++v) order[v] = v;
  return remat::decomposition_of(g, order);
}

}  // namespace

TEST_CASE("every step leaves a valid decomposition that is not wider, and small graphs reach the treewidth") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const undirected_graph g = random_undirected(seed, static_cast<std::uint32_t>(6 + seed % 6), 40);
    remat::detail::decomposition_improver improver(g, listed(g), seed);
    std::int64_t width = improver.width();
    for (int i = 0; i < 20; ++i) {
      improver.step(100'000, nullptr);
      const auto report = remat::check_decomposition(g, improver.tree());
      CHECK(report.valid());
      CHECK(report.width == improver.width());
      CHECK(improver.width() <= width);
      width = improver.width();
    }
    CHECK(width == exhaustive_treewidth(g));
  }
}

TEST_CASE("larger graphs get better, validly, and the same for a seed") {
  for (const undirected_graph& g : {grid_graph(9, 12), k_tree(4, 160, 5, 30), random_undirected(3, 80, 7)}) {
    const remat::tree_decomposition start = listed(g);
    remat::detail::decomposition_improver one(g, start, 5), other(g, start, 5);
    for (int i = 0; i < 25; ++i) CHECK(one.step(50'000, nullptr) == other.step(50'000, nullptr));
    CHECK(remat::check_decomposition(g, one.tree()).valid());
    CHECK(one.tree().bags.values == other.tree().bags.values);
    CHECK(one.work() == other.work());
    CHECK(one.work() > 0);
    CHECK(one.width() <= start.width());
  }
  const undirected_graph g = k_tree(4, 160, 5, 30);
  remat::detail::decomposition_improver improver(g, listed(g), 1);
  const std::int64_t before = improver.width();
  for (int i = 0; i < 40; ++i) improver.step(200'000, nullptr);
  CHECK(improver.width() < before);
}

TEST_CASE("a stop leaves a valid decomposition; one of width 0 is left alone") {
  const undirected_graph g = grid_graph(8, 8);
  remat::detail::decomposition_improver improver(g, listed(g), 1);
  const std::function<bool()> stop = [] { return true; };
  improver.step(1'000'000, &stop);
  CHECK(remat::check_decomposition(g, improver.tree()).valid());
  const undirected_graph nothing(3, {});
  remat::detail::decomposition_improver idle(nothing, listed(nothing), 1);
  CHECK_FALSE(idle.step(1000, nullptr));
}
