// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/accept.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/detail/binomial.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/method/rotor.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/exhaustive.hpp"
#include "support/processor_time.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

schedule listed(const problem& p) {
  std::vector<std::uint32_t> order(p.graph().num_operations);
  for (std::uint32_t o = 0; o < order.size(); ++o) order[o] = o;
  return schedule_computes(p, order);
}

}  // namespace

TEST_CASE("accept takes what is legal, within the budget and better, and nothing else") {
  const problem p = test::random_problem(11, {.operations = 8, .once = 0, .dead = 0});
  solution best;
  const schedule plan = listed(p);
  const check_report r = check(p, plan);
  REQUIRE(r.valid());
  const acceptance refused = accept(p.with_budget(r.peak_bytes - 1), best, plan, "one");
  CHECK(best.by.empty());
  CHECK_FALSE(refused);
  CHECK(refused.report.what == violation::over_budget);
  CHECK(refused.report.peak_bytes == r.peak_bytes);
  CHECK_FALSE(best.has_schedule());
  const acceptance taken = accept(p.with_budget(r.peak_bytes), best, plan, "two");
  CHECK(best.by == "two");
  CHECK(taken);
  CHECK(taken.report.time == r.time);
  CHECK(taken.report.computes == r.computes);
  CHECK(best.status == solve_status::feasible);
  CHECK(best.time == r.time);
  CHECK(best.peak_bytes == r.peak_bytes);
  const acceptance again = accept(p, best, plan, "three");
  CHECK(best.by == "two");
  CHECK_FALSE(again.taken);  // no better than itself
  CHECK(again.report.valid());
  CHECK_FALSE(keep_if_better(best, plan, r, "four"));
  solution none;
  CHECK_THROWS_AS(accept(p, none, schedule{{step::free(tensor_id{0})}}, "six"), internal_error);
  CHECK_FALSE(none.has_schedule());
}

TEST_CASE("statuses come from proofs alone") {
  std::size_t infeasible = 0, optimal = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 6});
    const problem p = free.with_budget(free.graph().baseline_peak * 3 / 4);
    const double least = test::least_time(p);
    const run_control run;
    const run_clock clock(run);
    solution s;
    accept(p, s, listed(free), "five");
    conclude(p, s, clock, stop_reason::none);
    INFO("seed ", seed);
    REQUIRE(s.proven);
    REQUIRE(s.lower_bound <= least);
    if (s.status == solve_status::infeasible) {
      REQUIRE(std::isinf(least));
      CHECK_FALSE(s.message.empty());
    }
    if (s.status == solve_status::optimal) REQUIRE(s.time == least);
    infeasible += s.status == solve_status::infeasible;
    optimal += s.status == solve_status::optimal;
  }
  CHECK(infeasible > 20);
  CHECK(optimal > 10);
}

TEST_CASE("with a link: host peaks are kept, schedules over the host's budget refused, and no bound ignores copies") {
  training_graph g;
  const tensor_id a = g.add_tensor({"a", 10}), b = g.add_tensor({"b", 10}), c = g.add_tensor({"c", 10});
  g.add_operation({.outputs = {a}, .recomputable = false});
  g.add_operation({.outputs = {b}});
  g.add_operation({.outputs = {c}});
  for (const tensor_id t : {a, b, c}) g.add_final_output(t);
  const tensor_id d = g.add_tensor({"d", 25});
  g.add_operation({.inputs = {}, .outputs = {d}});
  g.add_operation({.inputs = {d}});
  // Without copies: 55 bytes for the outputs beside d, or a, which cannot be made again, beside d.
  const problem plain(g, unit_cost{}, 30);
  const problem p = plain.with_link({.out = 1, .in = 1, .latency = 0}, 10);
  schedule plan;
  plan.compute(op_id{0});
  plan.offload(a);
  plan.free(a);
  plan.compute(op_id{3});
  plan.compute(op_id{4});
  plan.free(d);
  plan.compute(op_id{1});
  plan.compute(op_id{2});
  plan.prefetch(a);
  const run_control run;
  const run_clock clock(run);
  solution s;
  CHECK(accept(p, s, plan, "copies"));
  CHECK(s.peak_bytes == 30);
  CHECK(s.host_peak_bytes == 10);
  CHECK(s.time == check(p, plan).time);
  conclude(p, s, clock, stop_reason::none);
  CHECK(s.status == solve_status::feasible);
  CHECK(s.lower_bound == 5);
  solution over;
  CHECK(accept(p.with_link({}, 9), over, plan, "copies").report.what == violation::over_host_budget);
  CHECK_FALSE(over.has_schedule());
  solution none;
  CHECK(prove(plain.with_budget(29), none));
  CHECK_FALSE(prove(p, over));
  solution little;
  CHECK(prove(p.with_budget(29), little));
  CHECK(little.status == solve_status::infeasible);
  CHECK(little.message == "the end of the step needs 30 bytes for its outputs");
  solution known;
  CHECK_FALSE(prove(p.with_known_bound(7), known));
  CHECK(known.lower_bound == 7);
}

TEST_CASE("a known bound is taken over, and another budget forgets it") {
  const problem p = test::random_problem(3, {.operations = 8});
  const double bound = p.graph().needed_time + 5;
  const problem known = p.with_budget(p.graph().baseline_peak / 2).with_known_bound(bound);
  solution s;
  CHECK_FALSE(prove(known, s));
  CHECK(s.lower_bound == bound);
  CHECK_FALSE(known.with_budget(10).known_bound().has_value());
  solution none;
  CHECK(prove(known.with_known_bound(std::numeric_limits<double>::infinity()), none));
  CHECK(none.status == solve_status::infeasible);
}

TEST_CASE("a bound that the schedule refutes is left out, and the schedule is returned") {
  const problem p = test::random_problem(11, {.operations = 8, .once = 0, .dead = 0});
  const double needed = p.graph().needed_time, infinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {2 * needed, 1.001 * needed, infinity}) {
    const problem q = p.with_known_bound(wrong);
    solution s;
    REQUIRE(accept(q, s, listed(q), "no_remat"));
    s.lower_bound = wrong;
    s.proven = true;
    conclude(q, s, run_clock({}, "test"), stop_reason::none);
    CHECK(s.has_schedule());
    CHECK(s.lower_bound == needed);
    CHECK(s.message.find("defect of remat; please report it") != std::string::npos);
  }
  // Rounding alone refutes nothing.
  solution s;
  REQUIRE(accept(p, s, listed(p), "no_remat"));
  s.lower_bound = std::nextafter(s.time, infinity);
  CHECK_FALSE(drop_refuted_bound(s, needed));
  CHECK(s.message.empty());
  // Chains likewise.
  const chain_problem c(chain("two", 1, {{.forward_time = 1, .backward_time = 1}, {.forward_time = 1}}), 100);
  chain_solution t;
  REQUIRE(accept(c, t, store_all_steps(c.stages())));
  t.lower_bound = 5;
  t.proven = true;
  conclude(c, t, run_clock({}, "test"), stop_reason::none);
  CHECK(t.has_schedule());
  CHECK(t.lower_bound == 3);
  CHECK(t.message.find("defect of remat") != std::string::npos);
}

TEST_CASE("a stop request ends the proof of the bound, and so does the deadline") {
  const problem free = test::random_problem(17, {.operations = 5000, .once = 0, .dead = 0, .backward = 100});
  const problem p = free.with_budget(largest_working_set(free).bytes + 1);
  const auto seconds_of = [&](const run_control& run, stop_reason stopped) {
    solution s;
    const run_clock clock(run);
    const double begin = test::processor_seconds();
    conclude(p, s, clock, stopped);
    CHECK(s.proven);
    CHECK(s.lower_bound >= p.graph().needed_time);
    return test::processor_seconds() - begin;
  };
  std::stop_source source;
  source.request_stop();
  CHECK(seconds_of({.stop = source.get_token()}, stop_reason::cancelled) < 0.1);
  CHECK(seconds_of({.time_limit = std::chrono::nanoseconds(0)}, stop_reason::deadline) < 0.2);
}

TEST_CASE("what was stopped says how") {
  const problem p = test::random_problem(3, {.operations = 8});
  const run_control run;
  const run_clock clock(run);
  solution a, b, c;
  conclude(p, a, clock, stop_reason::cancelled);
  conclude(p, b, clock, stop_reason::deadline);
  conclude(p, c, clock, stop_reason::none);
  CHECK(a.status == solve_status::cancelled);
  CHECK(b.status == solve_status::timeout);
  CHECK(c.status == solve_status::timeout);
  CHECK_FALSE(ended_by_itself(a.statistics.own));
  CHECK_FALSE(ended_by_itself(b.statistics.own));
  CHECK(ended_by_itself(c.statistics.own));  // a heuristic at its end, and no limit
  CHECK(a.message == "a stop request came before there was a schedule");
  CHECK(b.message == "the time limit came before there was a schedule; a longer one may find it");
  CHECK_FALSE(c.message.empty());
  solution d;
  d.message = "why";
  conclude(p, d, clock, stop_reason::work);
  CHECK(d.message == "why");
  CHECK(to_string(solve_status::infeasible) == "infeasible");
}

TEST_CASE("chains: accept: faster, of equal time lower; within the budget; legal") {
  const chain_problem p(chain("two", 1, {{1, 1, 1, 2, 0, 0}, {1, 1, 1, 2, 0, 0}}));
  chain_solution best;
  const std::vector<chain_step> all = store_all_steps(p.stages());
  CHECK(accept(p, best, all));
  CHECK(best.time == 4);
  CHECK(best.statistics.recomputes == 0);
  CHECK_FALSE(accept(p, best, all));
  chain_solution tight;
  CHECK_FALSE(accept(p.with_budget(best.peak_bytes - 1), tight, all));
  CHECK_FALSE(tight.has_schedule());
  CHECK_THROWS_AS(accept(p, best, {{chain_action::backward, 1}}), internal_error);
}

TEST_CASE("chains: prove: the working set of a stage, and each stage once") {
  const chain_problem p(chain("two", 1, {{1, 1, 1, 2, 0, 0}, {1, 1, 1, 2, 0, 0}}));
  chain_solution s;
  CHECK_FALSE(prove(p, s));
  CHECK(s.lower_bound == 4);
  const std::int64_t least = largest_working_set(p);
  chain_solution none;
  CHECK(prove(p.with_budget(least - 1), none));
  CHECK(none.status == solve_status::infeasible);
  CHECK(none.lower_bound == std::numeric_limits<double>::infinity());
  CHECK(none.message.find(std::to_string(least) + " bytes") != std::string::npos);
}

TEST_CASE("an answer that names an operation says its name, if the graph has names") {
  training_graph g("g");
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 8, .kind = tensor_kind::input});
  const tensor_id y = g.add_tensor({.name = "y", .bytes = 100});
  g.add_operation({.name = "relu\n", .inputs = {x}, .outputs = {y}});
  g.add_final_output(y);
  const problem p(g, unit_cost{}, 99);
  CHECK(p.operation_name(op_id{0}) == "relu\\x0a");
  for (const bool by_bound : {false, true}) {
    solution s;
    if (by_bound)
      prove(p, s);
    else
      settled_by_listed_order(p, s, "rotor");
    CHECK(s.status == solve_status::infeasible);
    CHECK(s.message == "operation 0 (relu\\x0a) needs 100 bytes for its inputs, outputs and workspace");
  }
  flat_graph numbers = p.graph();
  numbers.operation_names.clear();
  CHECK(problem::from_flat(numbers).operation_name(op_id{0}).empty());
  numbers.operation_names = {"a", "b"};
  CHECK_THROWS_WITH_AS((void)problem::from_flat(numbers),
                       "flat graph: operation_names has 2 entries; it must have one for each of the 1 operations",
                       bad_argument);
}

namespace {

/// The least time of any schedule of a chain within a budget: the shortest path over all states of its memory.
double shortest(const chain_problem& p) {
  const chain& c = p.stages();
  const std::size_t n = c.length();
  struct state {
    std::uint32_t alone, saved, turned;
    auto operator<=>(const state&) const = default;
  };
  std::map<state, double> best;
  std::set<std::pair<double, state>> open;
  const auto reach = [&](const state& s, double time) {
    const auto [at, is_new] = best.try_emplace(s, time);
    if (!is_new && at->second <= time) return;
    open.erase({at->second, s});
    at->second = time;
    open.emplace(time, s);
  };
  reach({1, 0, static_cast<std::uint32_t>(n + 1)}, 0);
  while (!open.empty()) {
    const auto [time, s] = *open.begin();
    open.erase(open.begin());
    if (s.turned == 1) return time;
    std::int64_t memory = c.input_bytes();
    for (std::size_t i = 1; i <= n; ++i)
      memory += (s.alone >> i & 1 ? c.activation_bytes(i) : 0) + (s.saved >> i & 1 ? c.stage(i).saved_bytes : 0);
    const std::int64_t gradient = s.turned <= n ? c.activation_bytes(s.turned - 1) : 0;
    for (std::uint32_t i = 1; i <= n; ++i) {
      const chain_stage& stage = c.stage(i);
      const std::uint32_t bit = 1u << i, input = 1u << (i - 1);
      if (i > 1 && (s.alone & bit)) reach({s.alone & ~bit, s.saved, s.turned}, time);
      if (!((s.alone | s.saved) & input)) continue;
      if (i < s.turned && !((s.alone | s.saved) & bit)) {
        const std::int64_t free = p.budget() - memory - gradient - stage.forward_overhead_bytes;
        if (stage.output_bytes <= free) reach({s.alone | bit, s.saved, s.turned}, time + stage.forward_time);
        if (stage.saved_bytes <= free) reach({s.alone, s.saved | bit, s.turned}, time + stage.forward_time);
      }
      // The loss runs with x_L alone, and costs nothing.
      if (i + 1 == s.turned || (i == n && s.turned == n + 1)) {
        if (!(s.saved & bit) || memory + c.activation_bytes(i - 1) + stage.backward_overhead_bytes > p.budget())
          continue;
        if (s.turned == n + 1 && memory + c.activation_bytes(n) > p.budget()) continue;
        reach({(s.alone & ~bit) | 1, s.saved & ~bit, i}, time + stage.backward_time);
      }
    }
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

TEST_CASE("the bound by repetitions is below every schedule of a chain, and above one run of each stage") {
  int above = 0;
  for (std::size_t length = 1; length <= 5; ++length)
    for (const std::int64_t saved : {1, 2, 3})
      for (std::int64_t budget = 3; budget <= 14; ++budget) {
        CAPTURE(length);
        CAPTURE(saved);
        CAPTURE(budget);
        const chain_problem p(test::unit_chain(length, saved), budget);
        CHECK(repetition_bound(p) <= shortest(p));
        above += repetition_bound(p) > p.stages().least_time() && std::isfinite(shortest(p));
      }
  CHECK(above > 3);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const chain c = test::random_chain(seed, 1 + seed % 5);
    for (std::int64_t budget = 5; budget < c.store_all_peak_bytes(); budget += 4) {
      const chain_problem p(c, budget);
      CHECK(repetition_bound(p) <= shortest(p));
      CHECK(repetition_bound(p) >= c.least_time());
    }
  }
}

TEST_CASE("the bound by repetitions: seven stages of one size and different times") {
  int above = 0;
  for (std::uint64_t seed = 0; seed < 40; seed += 3)
    for (const std::int64_t budget : {6, 7, 8}) {
      CAPTURE(seed);
      CAPTURE(budget);
      std::vector<chain_stage> stages(7, test::unit_chain(1, 2).stage(1));
      for (std::size_t i = 0; i < stages.size(); ++i)
        stages[i].forward_time = 1 + static_cast<double>(seed >> i & 1) * 9;
      const chain_problem p(chain("two times", 1, stages), budget);
      const double bound = repetition_bound(p), least = shortest(p);
      CHECK(bound <= least);
      above += bound > p.stages().least_time() && std::isfinite(least);
    }
  CHECK(above > 3);
}

/// N(m, k) by its recurrence, from bytes beside the input and a gradient of stages that hand on 1 byte and save 2.
std::uint64_t most_stages(std::int64_t m, int k) {
  if (m < 2) return 0;
  return k == 1 ? static_cast<std::uint64_t>(m / 2) : most_stages(m - 1, k) + most_stages(m, k - 1);
}

TEST_CASE("the bound by repetitions of long chains is that of the recurrence, and near the optimum of rotor") {
  for (const std::int64_t budget : {9, 14}) {
    CAPTURE(budget);
    const chain_problem p(test::unit_chain(1000, 2), budget);
    std::uint64_t runs = 1000;
    for (int k = 1; most_stages(budget - 2, k) < 1000; ++k) runs += 1000 - most_stages(budget - 2, k);
    CHECK(repetition_bound(p) == static_cast<double>(runs));
    // Beside the input, a saved stage of two bytes and a gradient there are ten others, or five.
    CHECK(repetition_bound(p) > static_cast<double>(binomial::advances(1001, static_cast<std::uint64_t>(budget - 4))));
  }
  for (const std::int64_t budget : {9, 14, 30}) {
    CAPTURE(budget);
    const chain_problem p(test::unit_chain(120, 2), budget);
    const chain_solution best = rotor(p, {.form = rotor_form::bytes});
    REQUIRE(best.persistent_optimum);
    CHECK(repetition_bound(p) <= best.time);
    CHECK(repetition_bound(p) >= 0.94 * best.time);
  }
  CHECK(repetition_bound(chain_problem(test::unit_chain(1000, 2))) == 1000);
}

TEST_CASE("the bound by repetitions leaves out the costliest stages") {
  // Within 9 bytes seven are left beside the input and a gradient, so three stages may run once, and twelve twice at
  // most.
  std::vector<chain_stage> stages(12, test::unit_chain(1, 2).stage(1));
  for (std::size_t i = 0; i < stages.size(); ++i) stages[i].forward_time = static_cast<double>(1 + i * 5 % 12);
  CHECK(repetition_bound(chain_problem(chain("unequal", 1, stages), 9)) == 78 + 45);
  stages.push_back(stages[0]);
  CHECK(repetition_bound(chain_problem(chain("unequal", 1, stages), 9)) == 79 + 46 + 1);
  // Half of the stages save more. Seven bytes are left for those that run once, and 7 + 6 + 5 + 4 + 3 + 2 for those
  // that run twice, so 29 of the 56 saved bytes need a third run. A count of stages says less.
  for (std::size_t i = 0; i < stages.size(); ++i) stages[i].saved_bytes = i % 2 == 0 ? 2 : 7;
  for (chain_stage& stage : stages) stage.forward_time = static_cast<double>(stage.saved_bytes);
  const double bound = repetition_bound(chain_problem(chain("unequal", 1, stages), 9));
  CHECK(bound >= 56 + (56 - 7 - 14) + (56 - 27 - 14));
}
