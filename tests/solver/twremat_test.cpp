// SPDX-License-Identifier: BSL-1.0
// header-only: it tests private parts.
#include "remat/solver/twremat.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "remat/cost/spec.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/training_graph_json.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/treewidth/elimination_order.hpp"
#include "remat/treewidth/separator_tree.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"
#include "support/answer.hpp"
#include "support/csv.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

using namespace remat;

static_assert(solver_for<twremat_solver, problem>);

TEST_CASE("the recursion's sequences are legal under any budget, and what fits is not taken apart") {
  std::size_t longer = 0, within = 0, runs = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 25)});
    const flat_graph& s = p.graph();
    const undirected_graph graph = operation_graph(p);
    const tree_decomposition tree = decomposition_of(graph, elimination_order(graph));
    const std::vector<double> weight(s.num_operations, 1.0);
    detail::treewidth::recursion recursion(s, separate(graph.rows(), tree.bags, tree.links(), weight));
    const run_control control;
    run_clock clock(control);
    for (const int percent : {100, 70, 40, 10, 0}) {
      const std::int64_t budget = s.baseline_peak * percent / 100;
      if (!recursion.run(budget, 50 * s.needed_time + 50, clock)) continue;
      const check_report r = check(p, schedule_computes(p, recursion.computes()));
      INFO("seed ", seed, " at ", percent, " %");
      REQUIRE_MESSAGE(r.valid(), r.message());
      if (percent == 100) REQUIRE(r.time == s.needed_time);
      longer += r.time > s.needed_time;
      within += percent < 100 && r.peak_bytes <= budget;
      ++runs;
    }
  }
  CHECK(runs > 6500);
  CHECK(longer > 1000);
  CHECK(within > 20);
}

TEST_CASE("random graphs: legal, within the budget, never below the optimum") {
  std::size_t possible = 0, found = 0, optimal = 0;
  const std::uint64_t graphs = std::getenv("REMAT_LONG") != nullptr ? 10000 : 600;
  std::map<int, std::size_t> histogram;  // excess over the optimum in percent, rounded up
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 6)});
    const problem p = free.with_budget(free.graph().baseline_peak * (100 - 20 * static_cast<int>(seed % 3)) / 100);
    const double least = test::least_time(p);
    const solution s = twremat(p);
    INFO("seed ", seed);
    test::check_answer(p, s);
    possible += least < std::numeric_limits<double>::infinity();
    if (s.status == solve_status::infeasible) REQUIRE_FALSE(least < std::numeric_limits<double>::infinity());
    if (!s.has_schedule()) continue;
    REQUIRE(s.time >= least);
    REQUIRE(s.lower_bound <= least);
    ++found;
    optimal += s.time == least;
    ++histogram[least > 0 ? static_cast<int>(std::ceil(100 * (s.time / least - 1))) : 0];
  }
  std::string bars;
  for (const auto& [percent, count] : histogram) bars += " " + std::to_string(percent) + " %: " + std::to_string(count);
  MESSAGE(found, " of ", possible, " possible schedules found, ", optimal, " optimal; excess:", bars);
  CHECK(found > possible * 9 / 10);
  CHECK(optimal > found * 7 / 10);
}

TEST_CASE("every row of the peer's figures: a schedule at no more time") {
  std::string graph;
  std::optional<training_graph> g;
  std::optional<problem> p;
  std::size_t rows = 0, beaten = 0, without = 0;
  // graph, width, cost, percent, bytes, ratio, …
  for (const std::vector<std::string>& field : test::read_csv(REMAT_TEST_DATA "/peers/twremat.csv")) {
    if (field[0] != graph) {
      graph = field[0];
      g.emplace(read_training_graph(REMAT_TEST_DATA "/graphs/" + graph + ".json"));
      p.emplace(*g, parse_cost(field[2]));
    }
    INFO(field[0], " at ", field[3], " %");
    const problem q = p->with_budget(std::stoll(field[4]));
    const solution s = twremat(q);
    test::check_answer(q, s);
    const bool theirs = !field[5].empty();
    ++rows;
    if (s.status == solve_status::infeasible) {
      // Their peak leaves out the workspace, without which one of these budgets can be met.
      CHECK((!theirs || (field[0] == "rk/unet" && field[3] == "30")));
      continue;
    }
    if (!s.has_schedule()) {
      ++without;
      CHECK_FALSE(theirs);
      continue;
    }
    if (!theirs) continue;
    ++beaten;
    CHECK(s.time / q.graph().baseline_time <= std::stod(field[5]) + 5e-5);  // printed with four digits
  }
  CHECK(rows == 168);
  CHECK(beaten == 88);
  CHECK(without <= 1);
}

TEST_CASE("options: more attempts never hurt, and a tree of one's own is taken") {
  const problem free = read_training_step(REMAT_TEST_DATA "/graphs/unet5-b16-256.json").instance;
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  const solution once = twremat(p);
  const solution often = twremat(p, {.attempts = 6});
  REQUIRE(once.has_schedule());
  CHECK(often.time <= once.time);
  CHECK(twremat(p).plan->steps == once.plan->steps);
  // One bag of everything: nothing can be taken apart, so the budget is met by repair or by eviction.
  tree_decomposition whole;
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o) whole.bags.values.push_back(o);
  whole.bags.end_row();
  twremat_options options;
  options.tree = whole;
  const solution flat = twremat(p, options);
  test::check_answer(p, flat);
  CHECK(flat.has_schedule());
}

TEST_CASE("a tree that is no decomposition of the operation graph is refused") {
  const problem free = test::random_problem(3, {.operations = 12});
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  const undirected_graph graph = operation_graph(p);
  REQUIRE(graph.num_edges() > 0);
  const auto refused = [&](const tree_decomposition& tree, const std::string& why) {
    twremat_options options;
    options.tree = tree;
    try {
      (void)twremat(p, options);
      FAIL("no exception");
    } catch (const bad_argument& e) {
      CHECK(
          std::string(e.what()).starts_with("twremat: options.tree is no tree decomposition of the operation graph: "));
      CHECK(std::string(e.what()).find(why) != std::string::npos);
    }
  };
  refused({}, "is in no bag");
  // Of another graph: too many vertices, and too few.
  for (const std::size_t n : {graph.num_vertices() + 1, graph.num_vertices() - 1}) {
    tree_decomposition other;
    for (std::uint32_t v = 0; v < n; ++v) other.bags.values.push_back(v);
    other.bags.end_row();
    refused(other, n > graph.num_vertices() ? "which is no vertex" : "is in no bag");
  }
  tree_decomposition single;  // a path of bags of one vertex each: the edges are covered by none
  for (std::uint32_t v = 0; v < graph.num_vertices(); ++v) {
    single.bags.values.push_back(v);
    single.bags.end_row();
    if (v > 0) single.edges.emplace_back(v - 1, v);
  }
  refused(single, "is in no bag");
  tree_decomposition valid = decomposition_of(graph, elimination_order(graph));
  REQUIRE(valid.edges.size() > 0);
  valid.edges.pop_back();
  refused(valid, "tree edges");
}

TEST_CASE("a work limit bounds the work, and threads do not change the answer") {
  const problem free = read_training_step(REMAT_TEST_DATA "/graphs/gpt2-small-b8-s1024.json").instance;
  const problem p = free.with_budget(free.graph().baseline_peak * 3 / 10);
  for (const std::uint64_t limit : {1, 3000, 20000}) {
    twremat_options options;
    options.run.work_limit = limit;
    const solution one = twremat(p, options);
    CHECK(one.statistics.work <= limit + 1000);
    options.run.threads = 2;
    const solution two = twremat(p, options);
    REQUIRE(one.has_schedule() == two.has_schedule());
    if (one.has_schedule()) CHECK(one.plan->steps == two.plan->steps);
    CHECK(one.statistics.work == two.statistics.work);
  }
}

TEST_CASE("a stop before it begins is cancelled, and says nothing") {
  const problem free = test::random_problem(3, {.operations = 12});
  std::stop_source source;
  source.request_stop();
  twremat_options options;
  options.run.stop = source.get_token();
  const solution s = twremat(free.with_budget(free.graph().baseline_peak / 2), options);
  CHECK_FALSE(s.has_schedule());
}
