// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/decompose.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>

#include "remat/io/text.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "support/csv.hpp"
#include "support/exhaustive_treewidth.hpp"
#include "support/processor_time.hpp"

namespace {

using remat::undirected_graph;
using namespace remat::test;

remat::decomposition_result solve(const undirected_graph& g, std::uint64_t seed = 0) {
  remat::decompose_options options;
  options.run.seed = seed;
  return remat::decompose(g, options);
}

void check_optimal(const undirected_graph& g, std::int64_t width) {
  const remat::decomposition_result r = solve(g);
  CHECK(r.width == width);
  CHECK(r.lower_bound == width);
  CHECK(r.proven);
  const auto report = remat::check_decomposition(g, r.tree);
  CHECK(report.valid());
  CHECK(report.width == r.width);
}

}  // namespace

TEST_CASE("random graphs: the treewidth, proven, as the exhaustive recurrence has it") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(1 + seed % 11);
    const undirected_graph g = random_undirected(seed, n, static_cast<std::uint32_t>(10 + seed * 7 % 80));
    check_optimal(g, exhaustive_treewidth(g));
  }
}

TEST_CASE("known families") {
  check_optimal(undirected_graph(), -1);
  check_optimal(undirected_graph(5, {}), 0);
  for (std::uint32_t n : {3U, 4U, 17U, 200U}) check_optimal(cycle_graph(n), 2);
  for (std::uint32_t n : {1U, 2U, 9U, 70U}) check_optimal(complete_graph(n), n - 1);
  check_optimal(k_tree(1, 300, 1), 1);
  for (std::uint32_t k : {2U, 3U, 7U}) check_optimal(k_tree(k, 150, k), k);
  check_optimal(grid_graph(2, 40), 2);
  check_optimal(grid_graph(5, 5), 5);
  check_optimal(grid_graph(6, 9), 6);
}

TEST_CASE("partial k-trees are never wider than k") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const undirected_graph g = k_tree(seed, 120, 4, 35);
    const auto r = solve(g);
    CHECK(r.width <= 4);
    CHECK(r.proven);
  }
}

TEST_CASE("instances of PACE 2017 with known widths") {
  const std::string folder = std::string(REMAT_TEST_DATA) + "/pace/";
  for (const auto& row : read_csv(folder + "widths.csv")) {
    CAPTURE(row[0]);
    const undirected_graph g = remat::read_pace_graph(folder + row[0] + ".gr");
    CHECK(g.num_vertices() == std::stoul(row[1]));
    CHECK(g.num_edges() == std::stoul(row[2]));
    remat::decompose_options options;
    options.run.work_limit = 12'000'000;
    const auto r = remat::decompose(g, options);
    CHECK(r.lower_bound <= std::stol(row[3]));
    CHECK(r.width >= std::stol(row[3]));
    CHECK(r.width <= std::stol(row[3]) + 1);
    CHECK(remat::check_decomposition(g, r.tree).valid());
  }
}

TEST_CASE("a seed and a work limit decide the answer") {
  const undirected_graph g = random_undirected(3, 120, 6);
  remat::decompose_options options;
  options.run.work_limit = 5'000'000;
  options.run.seed = 7;
  const auto first = remat::decompose(g, options);
  for (const unsigned threads : {1U, 4U}) {
    options.run.threads = threads;
    const auto again = remat::decompose(g, options);
    CHECK(again.tree.bags.values == first.tree.bags.values);
    CHECK(again.tree.edges == first.tree.edges);
    CHECK(again.lower_bound == first.lower_bound);
    CHECK(again.statistics.work == first.statistics.work);
  }
  CHECK(first.stopped == remat::stop_reason::work);
}

TEST_CASE("a deadline or a stop ends it with a valid decomposition") {
  const undirected_graph g = random_undirected(5, 400, 5);
  remat::decompose_options options;
  options.run.time_limit = std::chrono::milliseconds(300);
  const double begun = remat::test::processor_seconds();
  const auto r = remat::decompose(g, options);
  CHECK(remat::test::processor_seconds() - begun < 2);
  CHECK(r.stopped == remat::stop_reason::deadline);
  CHECK(remat::check_decomposition(g, r.tree).valid());
  CHECK(r.lower_bound <= r.width);

  std::stop_source source;
  options.run.time_limit = std::chrono::nanoseconds::max();
  options.run.stop = source.get_token();
  int calls = 0;
  options.run.on_progress = [&](const remat::progress& p) {
    CHECK(p.best_objective >= p.lower_bound);
    if (++calls == 2) source.request_stop();
  };
  const auto stopped = remat::decompose(g, options);
  CHECK(stopped.stopped == remat::stop_reason::cancelled);
  CHECK(remat::check_decomposition(g, stopped.tree).valid());
  source = std::stop_source();
  source.request_stop();
  options.run.stop = source.get_token();
  CHECK(remat::check_decomposition(g, remat::decompose(g, options).tree).valid());
}

TEST_CASE("exceptions from the progress callback leave the search") {
  remat::decompose_options options;
  options.run.on_progress = [](const remat::progress&) { throw 7; };
  CHECK_THROWS_AS((void)remat::decompose(random_undirected(5, 100, 10), options), int);
}

TEST_CASE("threads under a deadline: one valid answer; an error comes out; a proof ends all") {
  remat::decompose_options options;
  options.run.threads = 3;
  options.run.time_limit = std::chrono::milliseconds(200);
  const undirected_graph g = random_undirected(6, 150, 8);
  const auto r = remat::decompose(g, options);
  CHECK(remat::check_decomposition(g, r.tree).valid());
  CHECK(r.stopped == remat::stop_reason::deadline);
  options.run.time_limit = std::chrono::seconds(60);
  const double begun = remat::test::processor_seconds();
  const auto proven = remat::decompose(grid_graph(5, 6), options);
  CHECK(proven.proven);
  CHECK(proven.width == 5);
  CHECK(proven.stopped == remat::stop_reason::none);
  options.run.on_progress = [](const remat::progress&) { throw 7; };
  CHECK_THROWS_AS((void)remat::decompose(g, options), int);
  std::stop_source source;
  source.request_stop();
  options.run.on_progress = nullptr;
  options.run.stop = source.get_token();
  CHECK(remat::decompose(g, options).stopped == remat::stop_reason::cancelled);
  CHECK(remat::test::processor_seconds() - begun < 20);
}
