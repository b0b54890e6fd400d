// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/eviction_pass.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stop_token>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/method/evict.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/large_steps.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test

constexpr double any_time = std::numeric_limits<double>::infinity();

/// Random costs of copies: some tensors are not to be copied.
detail::copy_costs random_costs(const problem& p, std::uint64_t seed) {
  detail::copy_costs costs(p.graph().num_tensors);
  detail::random_source random(seed);
  for (std::uint32_t t = 0; t < p.graph().num_tensors; ++t) {
    costs.out_time[t] = p.link()->time_out(p.graph().bytes[t]);
    costs.in_time[t] = p.link()->time_in(p.graph().bytes[t]);
    costs.out_price[t] = random.below(5) == 0 ? any_time : random.uniform() * costs.out_time[t];
    costs.in_price[t] = random.uniform() * costs.in_time[t];
  }
  return costs;
}

}  // namespace

TEST_CASE("a pass that reaches the end gives a legal schedule within the budget") {
  std::size_t complete = 0, recomputed = 0, out_of_memory = 0, hardest_alone = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 6 + static_cast<std::uint32_t>(seed % 20)});
    const std::vector<float> factor(p.graph().num_tensors, 1.0F);
    detail::eviction_pass pass(p);
    const run_control control;
    run_clock clock(control);
    for (const int percent : {100, 70, 50}) {
      const std::int64_t budget = p.graph().baseline_peak * percent / 100;
      bool before = false;  // a pass without `hardest_first` has reached the end
      for (const detail::eviction_weights& weights :
           {detail::eviction_weights{}, {.foresee_recomputations = true}, {.hardest_first = true}}) {
        const bool ok = pass.run(budget, weights, factor, any_time, clock);
        if (!ok) {
          ++out_of_memory;
          continue;
        }
        const check_report r = check(p.with_budget(budget), schedule_computes(p, pass.computes()));
        REQUIRE_MESSAGE(r.valid(), r.message());
        ++complete;
        recomputed += r.recomputes > 0;
        hardest_alone += weights.hardest_first && !before;
        before = true;
      }
    }
  }
  CHECK(complete > 1200);
  CHECK(recomputed > 100);
  CHECK(out_of_memory > 100);
  CHECK(hardest_alone > 5);
}

TEST_CASE("a pass with copies gives a sequence for which copies make room, without those that must not be copied") {
  std::size_t complete = 0, with_copies = 0, more_than_alone = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const problem alone = test::random_problem(seed, {.operations = 6 + static_cast<std::uint32_t>(seed % 20)});
    const double speed = seed % 3 == 0 ? 0.5 : seed % 3 == 1 ? 5.0 : 1e6;
    const flat_graph& g = alone.graph();
    const std::vector<float> factor(g.num_tensors, 1.0F);
    detail::eviction_pass plain(alone);
    detail::copying_eviction_pass pass(alone);
    const detail::copy_costs costs = random_costs(alone.with_link({.out = speed, .in = speed}), seed);
    pass.set_copies(costs, static_cast<std::uint32_t>(seed) % g.num_operations);
    const run_control control;
    run_clock clock(control);
    CAPTURE(seed);
    for (const int percent : {100, 70, 50}) {
      const problem p =
          alone.with_budget(g.baseline_peak * percent / 100).with_link({.out = speed, .in = speed, .latency = 0});
      for (const detail::eviction_weights& weights :
           {detail::eviction_weights{}, {.foresee_recomputations = true}, {.hardest_first = true}}) {
        if (!pass.run(p.budget(), weights, factor, any_time, clock)) continue;
        detail::copy_planner planner(p);
        CHECK(std::isfinite(planner.place(pass.computes(), {}, 2)));
        const check_report r = check(p, planner.steps());
        CHECK_MESSAGE(r.valid(), r.message());
        for (const std::uint32_t t : pass.copied()) CHECK(costs.out_price[t] < any_time);
        if (pass.copied().empty()) CHECK(check(p, schedule_computes(p, pass.computes())).valid());
        ++complete;
        with_copies += !pass.copied().empty();
        more_than_alone += !plain.run(p.budget(), weights, factor, any_time, clock);
      }
    }
  }
  CHECK(complete > 1500);
  CHECK(with_copies > 300);
  CHECK(more_than_alone > 100);
}

TEST_CASE("a pass ends at a stop, at a work limit, and beyond the longest time") {
  const problem p = test::random_problem(1, {.operations = 2000});
  const std::vector<float> factor(p.graph().num_tensors, 1.0F);
  detail::eviction_pass pass(p);
  const auto run = [&](const run_control& control, double longest) {
    run_clock clock(control);
    return pass.run(p.graph().baseline_peak, {}, factor, longest, clock);
  };
  CHECK(run({}, any_time));
  CHECK_FALSE(run({}, p.graph().needed_time / 2));
  CHECK_FALSE(run({.work_limit = 100}, any_time));
  std::stop_source source;
  source.request_stop();
  CHECK_FALSE(run({.stop = source.get_token()}, any_time));
}

TEST_CASE("the searches of a pass take few steps for each operation, however large the graph is") {
  for (const auto& [name, family] : test::step_families) {
    // Of a graph without a backward, a recomputation may run a good part again.
    if (family == test::step_family::layered_dag) continue;
    CAPTURE(name);
    for (const std::uint32_t operations : {5000U, 20000U}) {
      const problem p = test::large_step(family, operations, 1);
      const std::vector<float> factor(p.graph().num_tensors, 1.0F);
      detail::eviction_pass pass(p);
      const run_control control;
      run_clock clock(control);
      const std::int64_t budget = p.graph().baseline_peak / 2;
      const std::uint64_t n = p.graph().num_operations;
      REQUIRE(pass.run(budget, {.bytes_exponent = 0.7, .distance_exponent = 0.3}, factor, any_time, clock));
      CHECK(pass.computes().size() > n);
      CHECK(clock.work_done() < n + n / 8);  // a unit for each operation, and one for each 4096 steps
    }
  }
}

TEST_CASE("a tensor that cannot be recomputed stays for what is made from it, as long as the memory suffices") {
  training_graph g("source");
  const tensor_id source = g.add_tensor({.bytes = 4}), wide = g.add_tensor({.bytes = 10}),
                  large = g.add_tensor({.bytes = 10}), small = g.add_tensor({.bytes = 1}),
                  last = g.add_tensor({.bytes = 1});
  g.add_operation({.outputs = {source}, .seconds = 1, .recomputable = false});
  g.add_operation({.inputs = {source}, .outputs = {wide}, .seconds = 1});
  g.add_operation({.outputs = {large}, .seconds = 5});
  g.add_operation({.inputs = {large}, .outputs = {small}, .seconds = 1});
  g.add_operation({.inputs = {wide, small}, .outputs = {last}, .seconds = 1});
  g.add_final_output(last);
  const problem p(g, measured_cost{});
  const std::vector<float> factor(p.graph().num_tensors, 1.0F);
  detail::eviction_pass pass(p);
  const auto computes_within = [&](std::int64_t budget, bool keep_sources = true) {
    const run_control control;
    run_clock clock(control);
    const bool found = pass.run(budget, {.keep_sources = keep_sources}, factor, any_time, clock);
    return found ? pass.computes() : std::vector<std::uint32_t>{};
  };
  CHECK_FALSE(pass.met_sources());
  CHECK(computes_within(25) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(computes_within(20) == std::vector<std::uint32_t>{0, 1, 2, 3, 1, 4});  // `wide` is evicted, not its source
  CHECK(computes_within(16) == std::vector<std::uint32_t>{0, 1, 2, 3, 1, 4});
  CHECK(computes_within(13).empty());
  CHECK(pass.met_sources());
  CHECK(computes_within(21, false) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(computes_within(16, false).empty());
  CHECK(evict(p.with_budget(16)).plan);
}

TEST_CASE("under a tight budget the input whose recomputation needs most memory comes first") {
  training_graph g("two inputs");
  const tensor_id small = g.add_tensor({.bytes = 4}), wide = g.add_tensor({.bytes = 10}),
                  narrow = g.add_tensor({.bytes = 2}), other = g.add_tensor({.bytes = 11}),
                  rest = g.add_tensor({.bytes = 1}), last = g.add_tensor({.bytes = 1});
  g.add_operation({.outputs = {small}, .seconds = 1});
  g.add_operation({.outputs = {wide}, .seconds = 1});
  g.add_operation({.inputs = {wide}, .outputs = {narrow}, .seconds = 1});
  g.add_operation({.outputs = {other}, .seconds = 1});  // all else has to leave for it
  g.add_operation({.inputs = {other}, .outputs = {rest}, .seconds = 1});
  g.add_operation({.inputs = {small, narrow, rest}, .outputs = {last}, .seconds = 1});
  g.add_final_output(last);
  const problem p(g, measured_cost{});
  const std::vector<float> factor(p.graph().num_tensors, 1.0F);
  detail::eviction_pass pass(p);
  const run_control control;
  run_clock clock(control);
  REQUIRE_FALSE(pass.run(13, {}, factor, any_time, clock));  // `small` lies beside `wide`
  const double before = pass.progress();
  REQUIRE(pass.run(13, {.hardest_first = true}, factor, any_time, clock));
  CHECK(pass.progress() > before);
  const check_report r = check(p, schedule_computes(p, pass.computes()));
  CHECK_MESSAGE(r.valid(), r.message());
  CHECK(pass.computes() == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 1, 2, 0, 5});
}
