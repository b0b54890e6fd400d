// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/order_annealing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "remat/treewidth/detail/elimination_order.hpp"
#include "support/exhaustive_treewidth.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

/// The squares of a chess board, two of them joined if a queen moves from one to the other.
undirected_graph queens(std::uint32_t size) {
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t a = 0; a < size * size; ++a)
    for (std::uint32_t b = 0; b < a; ++b) {
      const auto rows = static_cast<int>(a / size) - static_cast<int>(b / size);
      const auto columns = static_cast<int>(a % size) - static_cast<int>(b % size);
      if (rows == 0 || columns == 0 || rows == columns || rows == -columns) edges.emplace_back(b, a);
    }
  return undirected_graph(size * size, edges);
}

}  // namespace

TEST_CASE("orders of the treewidth are found on small graphs, and none below it") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 engine(seed);
    std::vector<undirected_graph::edge> edges;
    const auto n = static_cast<std::uint32_t>(6 + engine() % 6);
    for (std::uint32_t a = 0; a < n; ++a)
      for (std::uint32_t b = 0; b < a; ++b)
        if (engine() % 2 == 0) edges.emplace_back(b, a);
    const undirected_graph g(n, edges);
    const auto width = static_cast<std::uint32_t>(test::exhaustive_treewidth(g));
    if (width == 0 || width + 1 >= n) continue;
    const std::vector<std::uint32_t> order = order_annealing(g, width, seed).run(3'000'000, nullptr);
    REQUIRE(order.size() == n);
    CHECK(decomposition_of(g, order).width() == width);
    CHECK(check_decomposition(g, decomposition_of(g, order)).valid());
    CHECK(order_annealing(g, width - 1, seed).run(300'000, nullptr).empty());
    ++found;
  }
  CHECK(found > 40);
}

TEST_CASE("queens on a board of 8 × 8: the width 45, which no greedy order has") {
  const undirected_graph g = queens(8);
  int found = 0;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    order_annealing search(g, 45, seed);
    const std::vector<std::uint32_t> order = search.run(1'000'000'000, nullptr);
    if (order.empty()) continue;
    ++found;
    CHECK(decomposition_of(g, order).width() == 45);
    order_annealing again(g, 45, seed);
    CHECK(again.run(1'000'000'000, nullptr) == order);
    CHECK(again.work() == search.work());
  }
  CHECK(found > 0);
}

TEST_CASE("a limit of work and a stop end it") {
  const undirected_graph g = queens(8);
  order_annealing search(g, 40, 1);
  CHECK(search.run(1'000'000, nullptr).empty());
  CHECK(search.work() < 1'100'000);
  int asked = 0;
  const std::function<bool()> stop = [&] { return ++asked > 3; };
  CHECK(search.run(std::uint64_t{1} << 60, &stop).empty());
  CHECK(asked == 4);
}
