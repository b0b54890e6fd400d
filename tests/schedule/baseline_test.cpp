// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/baseline.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"

using namespace remat;

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
