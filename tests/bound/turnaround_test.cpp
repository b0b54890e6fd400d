// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/turnaround.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <stop_token>
#include <string>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/problem.hpp"
#include "support/csv.hpp"
#include "support/exhaustive.hpp"
#include "support/long_run.hpp"
#include "support/moment_choices.hpp"
#include "support/processor_time.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

TEST_CASE("the bound never exceeds the least time of all schedules, and infeasible is never said where there is one") {
  int infeasible = 0, proven = 0, recompute = 0, positive = 0, tight = 0, tighter = 0;
  const bool long_run = test::long_run();
  for (std::uint64_t seed = 0; seed < (long_run ? 20000U : 4000U); ++seed) {
    test::random_graph_options options;
    options.operations = 3 + static_cast<std::uint32_t>(seed % (long_run ? 6 : 4));
    options.once = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 10 : 30;
    const problem p = test::random_problem(seed, options);
    const std::int64_t peak = p.graph().baseline_peak, least = least_memory_bound(p).bytes;
    turnaround_analysis analysis(p);
    for (std::int64_t budget = std::max<std::int64_t>(0, least - 1); budget <= peak; budget += 1 + (peak - least) / 4) {
      INFO("seed ", seed, " budget ", budget);
      const problem q = p.with_budget(budget);
      const double optimum = test::least_time(q);
      const turnaround_result all = turnaround_bound(q, {.moments = 0});
      const turnaround_result few = analysis.bound(budget, {.moments = 2});  // with what it knows from other budgets
      const turnaround_result whole = turnaround_bound(q, {.moments = 0, .branch_nodes = 40});
      REQUIRE(whole.lower_bound >= all.lower_bound * (1 - 1e-6));
      for (const turnaround_result& r : {all, few, whole}) {
        REQUIRE((!r.infeasible || std::isinf(optimum)));
        REQUIRE((r.infeasible || r.lower_bound <= optimum));  // times are whole: not even by rounding
        REQUIRE(r.infeasible == std::isinf(r.lower_bound));
        REQUIRE(r.lower_bound >= p.graph().needed_time);
        REQUIRE(r.infeasible == (r.least_memory.bytes > budget));
        if (r.recomputation > 0 && !r.infeasible) {
          REQUIRE(r.choice_bytes + r.working_set <= budget);
          REQUIRE(r.choice_time >= r.recomputation * (1 - 1e-12));
        }
      }
      infeasible += std::isinf(optimum);
      proven += all.infeasible;
      if (std::isfinite(optimum) && optimum > p.graph().needed_time) {
        ++recompute;
        positive += all.recomputation > 0;
        tight += all.lower_bound >= optimum * (1 - 1e-5);
        tighter += whole.lower_bound >= optimum * (1 - 1e-5);
      }
    }
  }
  INFO(infeasible, " infeasible, ", proven, " proven; ", recompute, " recompute, ", positive, " bounds above 0, ",
       tight, " tight");
  CHECK(recompute > 1500);
  CHECK(proven > infeasible * 8 / 10);
  CHECK(positive > recompute * 8 / 10);
  CHECK(tight > recompute / 15);
  CHECK(tighter > 3 * tight);
}

TEST_CASE("the peers' values are reached on every row, and infeasible rows are proven") {
  std::map<std::string, turnaround_analysis> analyses;
  std::map<std::string, problem> problems;
  int rows = 0;
  // graph, cost, fraction, budget in bytes, overhead of the bound
  for (const std::vector<std::string>& cell : test::read_csv(REMAT_TEST_DATA "/peers/bounds.csv")) {
    REQUIRE(cell.size() == 5);
    INFO(cell[0], " at ", cell[2]);
    ++rows;
    if (!problems.count(cell[0])) {
      const std::string graphs = std::string(REMAT_TEST_DATA) + "/graphs/", name = cell[0] + ".json";
      const bool here = std::ifstream(graphs + name).good();
      problems.emplace(cell[0], read_training_step(here ? graphs + name : graphs + "rk/" + name, cell[1]).instance);
      analyses.emplace(cell[0], problems.at(cell[0]));
    }
    const problem& p = problems.at(cell[0]);
    const std::int64_t budget = std::stoll(cell[3]);
    const turnaround_result alone = turnaround_bound(p.with_budget(budget));
    const turnaround_result shared = analyses.at(cell[0]).bound(budget);
    for (const turnaround_result& r : {alone, shared}) {
      if (cell[4] == "infeasible") {
        CHECK(r.infeasible);
        CHECK(r.least_memory.bytes > budget);
      } else {
        CHECK(!r.infeasible);
        CHECK(r.lower_bound / p.graph().baseline_time - 1 >= std::stod(cell[4]) - 5.2e-6);  // five decimals there
        CHECK(r.lower_bound <= p.graph().baseline_time * 2);
      }
    }
  }
  CHECK(rows == 144);
}

// l forward operations and the l backward ones that read their results; unit times and bytes.
problem chain(std::uint32_t l) {
  training_graph g;
  std::vector<tensor_id> x{g.add_tensor({"x", 1, tensor_kind::input})};
  for (std::uint32_t i = 0; i < l; ++i) {
    x.push_back(g.add_tensor({"", 1}));
    g.add_operation({.inputs = {x[i]}, .outputs = {x[i + 1]}});
  }
  tensor_id d = g.add_tensor({"", 1});
  g.add_operation({.inputs = {x[l]}, .outputs = {d}});
  for (std::uint32_t i = l; i-- > 0;) {
    const tensor_id next = g.add_tensor({"", 1});
    g.add_operation({.inputs = {d, x[i]}, .outputs = {next}});
    d = next;
  }
  g.add_final_output(d);
  return problem(g, unit_cost{});
}

TEST_CASE("with positions in the listed order in place of ancestors and descendants it would be no bound") {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 5, .once = 0});
    const flat_graph& s = p.graph();
    for (std::int64_t budget = least_memory_bound(p).bytes; budget < s.baseline_peak; ++budget) {
      const double optimum = test::least_time(p.with_budget(budget));
      if (std::isinf(optimum)) continue;
      for (std::uint32_t k = 0; k < s.num_operations; ++k) {
        if (!s.needed[k]) continue;
        double listed = std::numeric_limits<double>::infinity();
        test::every_choice(s, k, [&](double time, std::int64_t bytes, std::uint32_t ran) {
          bool in_order = true;
          for (std::uint32_t o = 0; o < s.num_operations; ++o)
            in_order = in_order && (!s.needed[o] || (ran >> o & 1) == (o <= k));
          if (in_order && bytes + working_set_bytes(s, k) <= budget) listed = std::min(listed, time);
        });
        wrong += s.needed_time + listed > optimum;
      }
    }
  }
  CHECK(wrong > 0);
}

TEST_CASE("a chain by hand: every tensor that does not fit must be made once more") {
  const problem p = chain(10);
  CHECK(p.graph().baseline_peak == 11);
  for (std::int64_t budget = 4; budget <= 11; ++budget) {
    const turnaround_result r = turnaround_bound(p.with_budget(budget), {.moments = 0});
    CHECK(r.lower_bound == doctest::Approx(21 + std::max(0.0, 11 - static_cast<double>(budget))));
    if (budget < 11) {
      CHECK(r.multiplier == doctest::Approx(1));
      CHECK(static_cast<std::int64_t>(r.saved.size()) + r.working_set <= budget);
      CHECK(!r.again.empty());
    }
  }
  const turnaround_result none = turnaround_bound(p.with_budget(2));
  CHECK(none.infeasible);
  CHECK(std::isinf(none.lower_bound));
  CHECK(none.least_memory.message().find("operation ") == 0);
  CHECK(turnaround_bound(p).lower_bound == 21);
}

TEST_CASE("the result says where its bound comes from") {
  int bounds = 0, first_flows = 0, later_flows = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 20, .backward = 100});
    const flat_graph& s = p.graph();
    turnaround_analysis analysis(p);
    for (const int part : {5, 7, 9}) {
      INFO("seed ", seed, " part ", part);
      const std::int64_t budget = s.baseline_peak * part / 10;
      const turnaround_result r = analysis.bound(budget, {.moments = 0});
      if (r.infeasible) continue;
      std::uint32_t over = 0;  // moments at which the listed order exceeds the budget
      const auto listed = listed_order_sums<std::int64_t>(s, [&](std::uint32_t t) { return s.bytes[t]; });
      for (std::uint32_t o = 0; o < s.num_operations; ++o) over += s.needed[o] && listed[o] + s.workspace[o] > budget;
      CHECK(r.moments_tried == over);
      CHECK(analysis.bound(budget, {.moments = 2}).moments_tried == std::min(over, 2U));
      CHECK((r.flows > 0) == (over > 0));
      if (r.recomputation == 0) continue;
      ++bounds;
      // The bound is the line of the moment and the price.
      moment_cut cut(s);
      cut.at(static_cast<std::uint32_t>(r.moment));
      CHECK(r.working_set == cut.working_set());
      const double line = cut.price(r.multiplier) - r.multiplier * static_cast<double>(budget - cut.working_set());
      CHECK(line == doctest::Approx(r.recomputation).epsilon(1e-9));
      std::int64_t bytes = 0;
      for (const tensor_id t : r.saved) bytes += s.bytes[index(t)];
      CHECK(bytes == r.choice_bytes);
      double time = 0;
      for (const op_id o : r.again) time += s.time[index(o)];
      CHECK(time == r.choice_time);

      // What is known from one search is where the next one starts.
      const turnaround_result again = analysis.bound(budget, {.moments = 0});
      CHECK(again.lower_bound == doctest::Approx(r.lower_bound).epsilon(1e-6));
      CHECK(again.choice_time <= 2 * r.choice_time);
      std::stop_source source;
      source.request_stop();
      const turnaround_result known = analysis.bound(budget, {.moments = 0, .run = {.stop = source.get_token()}});
      CHECK(known.lower_bound == doctest::Approx(r.lower_bound).epsilon(1e-6));
      first_flows += static_cast<int>(r.flows);
      later_flows += static_cast<int>(again.flows);
      const turnaround_result bare = analysis.bound(budget, {.moments = 0, .want_saved = false});
      CHECK(bare.saved.empty());
      CHECK(bare.again.empty());
      CHECK(bare.choice_time == 0);
    }
  }
  INFO(bounds, " bounds; flows ", first_flows, ", then ", later_flows);
  CHECK(bounds > 200);
  CHECK(later_flows < first_flows);
}

TEST_CASE("unneeded operations cost nothing, and random times stay below the baseline's") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 40, .dead = 60});
    turnaround_analysis analysis(p);
    CHECK(analysis.bound(p.graph().baseline_peak).lower_bound == p.graph().needed_time);
    double last = 0;
    for (int tenth = 10; tenth >= 0; --tenth) {  // less memory, more time
      const turnaround_result r = analysis.bound(p.graph().baseline_peak * tenth / 10, {.moments = 0});
      CHECK(r.lower_bound >= last * (1 - 3e-6));
      last = r.lower_bound;
    }
  }
}

TEST_CASE("a stop is obeyed and leaves a valid bound") {
  const problem p = chain(2000);
  const problem q = p.with_budget(900);
  const double full = turnaround_bound(q).lower_bound;
  CHECK(full > p.graph().needed_time);
  std::stop_source source;
  source.request_stop();
  turnaround_options options;
  options.run.stop = source.get_token();
  const turnaround_result stopped = turnaround_bound(q, options);
  CHECK(stopped.lower_bound >= p.graph().needed_time);
  CHECK(stopped.lower_bound <= full * (1 + 1e-9));
  CHECK(stopped.moments_tried <= 1);
}

TEST_CASE("limits on time are obeyed in every part of the bound") {
  const problem p = test::random_problem(3, {.operations = 4000, .most_inputs = 20, .once = 5, .backward = 100});
  turnaround_options options{.moments = 0, .branch_nodes = 1000};
  for (const int milliseconds : {0, 1, 5, 20, 60}) {
    options.run.time_limit = std::chrono::milliseconds(milliseconds);
    const double start = test::processor_seconds();
    const turnaround_result r = turnaround_bound(p.with_budget(p.graph().baseline_peak / 2), options);
    CHECK(r.lower_bound >= p.graph().needed_time);
    CHECK(test::processor_seconds() - start < milliseconds * 1e-3 + 0.2);
    CHECK((r.choice_bytes > 0 || r.saved.empty()));
  }
}

TEST_CASE("equal input gives equal output") {
  int choices = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 60, .once = 0, .backward = 100});
    const problem p = whole.with_budget(whole.graph().baseline_peak * 8 / 10);
    const turnaround_result a = turnaround_bound(p), b = turnaround_bound(p);
    CHECK(a.lower_bound == b.lower_bound);
    CHECK(a.saved == b.saved);
    CHECK(a.flows == b.flows);
    choices += a.flows > 0 && !a.saved.empty();
  }
  CHECK(choices > 5);
}

}  // namespace
