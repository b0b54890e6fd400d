// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/simplify.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/copy_schedules.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {
using namespace remat;  // NOLINT: a test
}

TEST_CASE("simplify keeps legality, never raises peak or time, and is idempotent") {
  std::size_t lower = 0, shorter = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 16)});
    const test::random_schedule made(p, seed);
    const check_report before = check(p, made.plan);
    if (!before.valid()) continue;
    const schedule tidy = simplify(p, made.plan);
    const check_report after = check(p, tidy);
    INFO("seed ", seed, ": ", after.message());
    REQUIRE(after.valid());
    CHECK(after.peak_bytes <= before.peak_bytes);
    CHECK(after.time <= before.time);
    CHECK(simplify(p, tidy) == tidy);
    lower += after.peak_bytes < before.peak_bytes;
    shorter += after.time < before.time;
  }
  CHECK(lower > 200);
  CHECK(shorter > 200);
}

TEST_CASE("simplify keeps copies that are read, never raises a peak or the time, and is idempotent") {
  std::size_t lower = 0, lower_on_host = 0, sooner = 0, fewer = 0;
  std::uint64_t copies = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const problem plain = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 16)});
    const problem p = plain.with_link(test::random_link(plain, seed));
    const schedule plan = test::random_copy_schedule(p, seed).plan;
    const check_report before = check(p, plan);
    REQUIRE(before.valid());
    const schedule tidy = simplify(p, plan);
    const check_report after = check(p, tidy);
    INFO("seed ", seed, ": ", after.message());
    REQUIRE(after.valid());
    CHECK(after.peak_bytes <= before.peak_bytes);
    CHECK(after.host_peak_bytes <= before.host_peak_bytes);
    CHECK(after.time <= before.time * (1 + 1e-12));
    CHECK(simplify(p, tidy) == tidy);
    lower += after.peak_bytes < before.peak_bytes;
    lower_on_host += after.host_peak_bytes < before.host_peak_bytes;
    sooner += after.time < before.time;
    fewer += after.copies < before.copies;
    copies += after.copies;
  }
  CHECK(lower > 500);
  CHECK(lower_on_host > 500);
  CHECK(sooner > 500);
  CHECK(fewer > 500);
  CHECK(copies > 1000);
}

TEST_CASE("simplify: copies that nobody reads go, and a free that waits for a copy stays") {
  training_graph g;
  const tensor_id a = g.add_tensor({"a", 10}), b = g.add_tensor({"b", 10}), c = g.add_tensor({"c", 10}),
                  d = g.add_tensor({"d", 10});
  const step make_a = step::compute(g.add_operation({.outputs = {a}})),
             make_b = step::compute(g.add_operation({.inputs = {a}, .outputs = {b}})),
             make_c = step::compute(g.add_operation({.inputs = {b}, .outputs = {c}})),
             make_d = step::compute(g.add_operation({.inputs = {a, c}, .outputs = {d}}));
  g.add_final_output(d);
  const problem p = problem(g, unit_cost{}).with_link({.out = 10, .in = 10, .latency = 0});
  const auto simple = [&](std::initializer_list<step> steps) { return simplify(p, schedule{steps}); };
  const auto out = [](tensor_id t) { return step::offload(t); };
  const auto in = [](tensor_id t) { return step::prefetch(t); };
  const auto free = [](tensor_id t) { return step::free(t); };
  const auto drop = [](tensor_id t) { return step::drop(t); };
  // b is copied for nothing: its copy out, its copy in and the drop go, and it is freed at once.
  CHECK(simple({make_a, make_b, out(b), make_c, free(b), make_d, in(b), drop(b)}) ==
        schedule{{make_a, make_b, make_c, free(b), make_d, free(c), free(a)}});
  // a is copied for make_d. Its free stays behind make_c, beside which the copy runs.
  const std::initializer_list<step> used{make_a, out(a), make_b, make_c, free(a), free(b), in(a), make_d, drop(a)};
  CHECK(simple(used) ==
        schedule{{make_a, out(a), make_b, make_c, free(b), free(a), in(a), make_d, free(c), free(a), drop(a)}});
}

TEST_CASE("the listed order gets the baseline's peak") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 10, .dead = 0});
    std::vector<std::uint32_t> order(p.graph().num_operations);
    bool all_needed = true;
    for (std::uint32_t o = 0; o < order.size(); ++o) {
      order[o] = o;
      all_needed = all_needed && p.graph().needed[o];
    }
    if (!all_needed) continue;
    const check_report r = check(p, schedule_computes(p, order));
    INFO("seed ", seed, ": ", r.message());
    CHECK(r.valid());
    CHECK(r.peak_bytes <= p.graph().baseline_peak);  // less: a tensor that nobody reads any more goes at once
  }
}

TEST_CASE("an operation that makes one tensor again does not keep its other tensors") {
  training_graph g;
  const tensor_id a = g.add_tensor({"a", 100});
  const tensor_id b = g.add_tensor({"b", 1});
  const tensor_id c = g.add_tensor({"c", 1});
  const tensor_id d = g.add_tensor({"d", 1});
  g.add_operation({.name = "ab", .outputs = {a, b}, .seconds = 1});
  g.add_operation({.name = "c", .inputs = {a}, .outputs = {c}, .seconds = 1});
  g.add_operation({.name = "d", .inputs = {b, c}, .outputs = {d}, .seconds = 1});
  g.add_final_output(d);
  const problem p(g, measured_cost{});
  const std::vector<std::uint32_t> twice{0, 1, 0, 2};
  const schedule plan = schedule_computes(p, twice);
  CHECK(check(p, plan).valid());
  // The first b is not read: it goes at once, as does the second a.
  const schedule expected{{step::compute(op_id{0}), step::free(b), step::compute(op_id{1}), step::free(a),
                           step::compute(op_id{0}), step::free(a), step::compute(op_id{2}), step::free(c),
                           step::free(b)}};
  CHECK(plan.steps.size() == expected.steps.size());
  CHECK(check(p, plan).peak_bytes == 102);
}

namespace {

void check_baseline(const problem& p) {
  const schedule s = listed_order(p);
  const check_report r = check(p, s);
  REQUIRE(r.valid());
  CHECK(r.computes == p.graph().num_operations);
  CHECK(r.recomputes == 0);
  CHECK(r.peak_bytes == p.graph().baseline_peak);
  CHECK(r.time == doctest::Approx(p.graph().baseline_time));
}

}  // namespace

TEST_CASE("the listed order has the peak and the time of the baseline") {
  test::random_graph_options shape;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    shape.operations = 3 + static_cast<std::uint32_t>(seed % 20);
    INFO("seed ", seed);
    check_baseline(problem(test::random_graph(seed, shape), measured_cost{}));
  }
  for (const char* name : {"toy-skip-3", "mlp-chain-8", "rk/unet"}) {
    INFO(name);
    check_baseline(test::bundled_problem(name));
  }
}

TEST_CASE("an operation that nothing needs runs, too, and its output is freed at once") {
  training_graph g;
  const tensor_id x = g.add_tensor({"x", 4});
  const tensor_id unused = g.add_tensor({"unused", 100});
  const tensor_id y = g.add_tensor({"y", 4});
  operation_spec first, useless, last;
  first.name = "first";
  first.outputs = {x};
  useless.name = "useless";
  useless.inputs = {x};
  useless.outputs = {unused};
  last.name = "last";
  last.inputs = {x};
  last.outputs = {y};
  for (operation_spec* o : {&first, &useless, &last}) g.add_operation(*o);
  g.add_final_output(y);
  const problem p(g, unit_cost{});
  check_baseline(p);
  schedule expected;
  expected.compute(static_cast<op_id>(0));
  expected.compute(static_cast<op_id>(1));
  expected.free(unused);
  expected.compute(static_cast<op_id>(2));
  expected.free(x);
  CHECK(listed_order(p) == expected);
}
