// SPDX-License-Identifier: BSL-1.0
#include "remat/graph/concepts.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace {

using remat::op_id;
using graph = remat::training_graph;

static_assert(remat::cost_model<remat::unit_cost, graph>);
static_assert(remat::cost_model<remat::flops_cost, graph>);
static_assert(remat::cost_model<remat::linear_cost, graph>);
static_assert(remat::cost_model<remat::roofline_cost, graph>);
static_assert(remat::cost_model<remat::measured_cost, graph>);
static_assert(remat::cost_model<remat::cost_spec, graph>);
static_assert(remat::cost_model<remat::callable_cost<double (*)(op_id)>, graph>);
static_assert(remat::cost_model<remat::callable_cost<float (*)(const graph&, op_id)>, graph>);
static_assert(!remat::cost_model<remat::callable_cost<double (*)(int)>, graph>);
static_assert(!remat::cost_model<int, graph>);

graph one_operation(double flops, double bytes, double seconds) {
  graph g;
  remat::operation_spec o;
  o.flops = flops;
  o.bytes_accessed = bytes;
  o.seconds = seconds;
  g.add_operation(o);
  return g;
}

}  // namespace

TEST_CASE("the time of one operation under each model") {
  const graph g = one_operation(312e12, 1.555e12, 0.25);
  const op_id o{0};
  CHECK(remat::unit_cost{}.time(g, o) == 1);
  CHECK(remat::flops_cost{}.time(g, o) == 312e12);
  CHECK(remat::linear_cost{}.time(g, o) == 312e12);
  CHECK(remat::linear_cost{0.5, 2}.time(g, o) == doctest::Approx(156e12 + 3.11e12));
  CHECK(remat::measured_cost{}.time(g, o) == 0.25);
  CHECK(remat::roofline_cost{}.time(g, o) == doctest::Approx(2.000004));
  CHECK(remat::roofline_cost{.flops = 312e12, .bandwidth = 1.555e11, .latency = 1}.time(g, o) == doctest::Approx(11));
  CHECK(remat::callable_cost{[](op_id id) { return static_cast<double>(index(id)) + 7; }}.time(g, o) == 7);
  CHECK(remat::callable_cost{[](const graph& of, op_id id) { return of.flops(id) / 2; }}.time(g, o) == 156e12);
}

TEST_CASE("times that are no times are refused when the problem is built") {
  const graph g = one_operation(1, 1, 1);
  for (const double time : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    CHECK_THROWS_AS(remat::problem(g, remat::callable_cost{[=](op_id) { return time; }}), remat::bad_cost);
  CHECK_NOTHROW(remat::problem(g, remat::callable_cost{[](op_id) { return 0.0; }}));
}
