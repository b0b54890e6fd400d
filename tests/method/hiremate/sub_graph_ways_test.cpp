// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "remat/hierarchy/detail/way_cache.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/hiremate/impl/sub_graph_ways.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/schedule/check.hpp"
#include "support/block_stack.hpp"
#include "support/random_sub_graphs.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

/// The groups of the deepest level of a hierarchy, with their children.
std::vector<divided_sub_graph> deepest_groups(const flat_graph& g, const operation_hierarchy& h) {
  sub_graph_extractor extract(g, h);
  std::vector<divided_sub_graph> out;
  for (std::size_t k = 1; k < h.groups.size(); ++k)
    if (h.groups[k].depth == h.depth()) out.push_back({extract(k), children_of(h, k, extract)});
  return out;
}

sub_graph_search by(sub_method method, std::uint64_t moves = 50) {
  sub_graph_search search;
  search.peaks = 1;
  search.moves = moves;
  search.rule = [method](const sub_graph_facts&) { return std::vector<sub_method>{method}; };
  return search;
}

sub_graph_table find(const problem& p, const std::vector<divided_sub_graph>& wanted, const sub_graph_search& search,
                     unsigned threads = 1, std::uint64_t work = 1'000'000) {
  run_control run;
  run.threads = threads;
  run.work_limit = 16 * work;
  run_clock clock(run);
  return find_sub_graph_ways(p.graph(), wanted, search, clock);
}

void check_options(const std::vector<divided_sub_graph>& wanted, const sub_graph_table& table, std::size_t most) {
  REQUIRE(table.ways.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const sub_graph_runs runs(wanted[i].sub_graph);
    REQUIRE(!table.ways[i].empty());
    REQUIRE(table.ways[i].size() <= most);
    for (const sub_graph_way& o : table.ways[i]) {
      const auto measured = runs.measure(o.forward, o.backward);
      REQUIRE(measured);
      REQUIRE(measured->time() == o.time());
      REQUIRE(measured->saved_bytes == o.saved_bytes);
    }
  }
}

/// The same ways to run every sub-graph, in the same order.
bool are_equal(const sub_graph_table& a, const sub_graph_table& b) {
  return std::equal(a.ways.begin(), a.ways.end(), b.ways.begin(), b.ways.end(),
                    [](const std::vector<sub_graph_way>& x, const std::vector<sub_graph_way>& y) {
                      return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                                        [](const sub_graph_way& k, const sub_graph_way& l) {
                                          return k.forward == l.forward && k.backward == l.backward;
                                        });
                    });
}

/// Branch and bound that counts its calls, and the nodes that they may use.
struct counting_backend {
  static constexpr std::string_view name = "counting";
  mutable std::atomic<std::size_t> calls{0};
  mutable std::atomic<std::uint64_t> nodes{0};

  [[nodiscard]] mip_result solve(const mip_model& model, const mip_options& options) const {
    ++calls;
    nodes += options.run.work_limit;
    return branch_and_bound.solve(model, options);
  }
};

}  // namespace

TEST_CASE("every method gives options that are as they are measured; like sub-graphs are solved once") {
  const problem p = test::stack_problem(test::stack_kind::decoder, 6);
  partition_options dividing;
  dividing.max_group = 8;
  const operation_hierarchy h = partition_at_repeats(p.graph(), dividing);
  const std::vector<divided_sub_graph> wanted = deepest_groups(p.graph(), h);
  REQUIRE(wanted.size() >= 6);
  for (const sub_method method : {sub_method::rotor, sub_method::twremat, sub_method::refined, sub_method::automatic}) {
    const sub_graph_table table = find(p, wanted, by(method));
    INFO(std::string(to_string(method)));
    check_options(wanted, table, sub_graph_search{}.max_ways);
    CHECK(table.distinct < wanted.size());
    CHECK(table.solves > 0);
    CHECK((table.tables > 0) == (method == sub_method::rotor));
    CHECK(table.programs == 0);
    CHECK(std::any_of(table.ways.begin(), table.ways.end(), [](const auto& o) { return o.size() > 1; }));
    // One sub-graph of each class takes as many solves as all of them.
    const sub_graph_classes classes = [&] {
      std::vector<sub_graph> parts;
      for (const divided_sub_graph& s : wanted) parts.push_back(s.sub_graph);
      return classify(parts, way_cache::likeness());
    }();
    std::vector<divided_sub_graph> one_each;
    for (const std::uint32_t i : classes.representative) one_each.push_back(wanted[i]);
    const sub_graph_table again = find(p, one_each, by(method));
    CHECK(again.solves == table.solves);
    CHECK(again.distinct == table.distinct);
  }
}

TEST_CASE("integer programs: solved on the backend, refused by their columns, Rotor's program without a backend") {
  const problem p = test::stack_problem(test::stack_kind::residual, 4);
  partition_options dividing;
  dividing.max_group = 5;
  const std::vector<divided_sub_graph> wanted = deepest_groups(p.graph(), h_partition(p.graph(), dividing));
  REQUIRE(!wanted.empty());
  sub_graph_search search = by(sub_method::h_ilp);
  CHECK(find(p, wanted, search).tables > 0);
  const counting_backend backend;
  search.backend = backend;
  search.nodes = 2;
  const sub_graph_table solved = find(p, wanted, search);
  check_options(wanted, solved, search.max_ways);
  CHECK(solved.tables == 0);
  CHECK(solved.programs >= backend.calls);
  CHECK(backend.calls > 0);
  search.max_columns = 0;
  const sub_graph_table refused = find(p, wanted, search);
  CHECK(refused.refused > 0);
  CHECK(refused.refused <= refused.programs);
}

TEST_CASE("the rule sees the facts; several methods compete; an empty list leaves one option") {
  const problem p = test::stack_problem(test::stack_kind::dense, 5);
  const std::vector<divided_sub_graph> wanted = deepest_groups(p.graph(), partition_at_cuts(p.graph()));
  REQUIRE(!wanted.empty());
  sub_graph_search search = by(sub_method::refined);
  std::size_t copies = 0, asked = 0;
  search.rule = [&](const sub_graph_facts& facts) {
    ++asked;
    copies += facts.copies;
    CHECK(facts.operations >= facts.forward_operations);
    CHECK(facts.children > 0);
    return std::vector<sub_method>{sub_method::rotor, sub_method::refined, sub_method::rotor};
  };
  const sub_graph_table both = find(p, wanted, search);
  CHECK(copies == wanted.size());
  CHECK(asked == both.distinct);
  const sub_graph_table rotor = find(p, wanted, by(sub_method::rotor)),
                        refined = find(p, wanted, by(sub_method::refined));
  CHECK(both.solves == rotor.solves + refined.solves);
  search.rule = [](const sub_graph_facts&) { return std::vector<sub_method>{}; };
  const sub_graph_table none = find(p, wanted, search);
  CHECK(none.solves == 0);
  for (const auto& options : none.ways) CHECK(options.size() == 1);
}

TEST_CASE("integer programs under a work limit: the same options for any number of threads") {
  const problem p = test::stack_problem(test::stack_kind::u_net, 6);
  partition_options dividing;
  dividing.max_group = 10;
  const std::vector<divided_sub_graph> wanted = deepest_groups(p.graph(), h_partition(p.graph(), dividing));
  sub_graph_search search = by(sub_method::h_ilp);
  search.peaks = 2;
  search.nodes = 1'000'000;  // the work binds first
  const counting_backend backend;
  search.backend = backend;
  const sub_graph_table one = find(p, wanted, search, 1, 1'000'000);
  const std::uint64_t allowed = backend.nodes;
  CHECK(one.distinct > 2);
  CHECK(one.programs > 0);
  for (int k = 0; k < 4; ++k) {
    backend.nodes = 0;
    CHECK(are_equal(one, find(p, wanted, search, 2, 1'000'000)));
    CHECK(backend.nodes.load() == allowed);
  }
}

TEST_CASE("the same options for any number of threads; caches; a stop") {
  const problem p = test::stack_problem(test::stack_kind::encoder_decoder, 4);
  const std::vector<divided_sub_graph> wanted = deepest_groups(p.graph(), partition_at_cuts(p.graph()));
  sub_graph_search search = by(sub_method::automatic);
  const sub_graph_table one = find(p, wanted, search, 1), two = find(p, wanted, search, 2);
  CHECK(are_equal(one, two));
  search.cache = make_way_cache();
  CHECK(find(p, wanted, search).reused == 0);
  const sub_graph_table known = find(p, wanted, search);
  CHECK(known.reused == known.distinct);
  CHECK(known.solves == 0);
  search.cache = nullptr;
  std::stop_source source;
  source.request_stop();
  run_control run;
  run.stop = source.get_token();
  run_clock clock(run);
  const sub_graph_table stopped = find_sub_graph_ways(p.graph(), wanted, search, clock);
  CHECK(stopped.cut_short > 0);
  check_options(wanted, stopped, search.max_ways);
}

TEST_CASE("a schedule of a group's level is one of the group as a problem of operations") {
  std::size_t schedules = 0, options = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
    for (std::size_t g = 1; g < d.hierarchy.groups.size(); ++g) {
      const sub_graph part = extract(g);
      const sub_graph_runs runs(part);
      const std::vector<level_child> children = children_of(d.hierarchy, g, extract);
      const std::int64_t peak = d.whole.graph().baseline_peak * 2, save = runs.held_at_turn(runs.keep_everything());
      const group_level level(d.whole.graph(), children, runs, peak, save);
      INFO("seed ", seed, ", group ", g);
      CHECK(level.builder().num_children() == children.size());
      CHECK(level.flat().budget() == peak);
      level_search_options searching;
      run_control run;
      run_clock clock(run);
      (void)search_level(level.builder(), children, level.flat(), clock, searching,
                         [&](std::span<const level_problem::choice> choices) {
                           schedule plan = level.expand(choices);
                           REQUIRE(check(level.flat().with_budget(problem::unlimited), plan).valid());
                           ++schedules;
                           options += runs.way_of(plan).has_value();
                           return plan;
                         });
    }
  }
  CHECK(schedules > 50);
  CHECK(options == schedules);
}
