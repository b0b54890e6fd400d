// SPDX-License-Identifier: BSL-1.0
// labels: memory
#include "remat/execute/launch_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/measured.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/stand_in.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "support/executions.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

using namespace remat;

TEST_CASE("launches have the graph's arguments, at the planned addresses") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const test::random_execution e(seed, 12);
    if (!e.legal) continue;
    const launch_plan plan = e.launches(3, seed);
    const flat_graph& s = e.p.graph();
    std::vector<std::uint32_t> written(s.num_tensors, 0);  // contributions since the tensor was allocated
    std::size_t v = 0;
    std::vector<std::uint8_t> live(plan.lives().allocations.size(), 0);
    for (std::uint32_t i = 0; i < e.plan.steps.size(); ++i) {
      if (e.plan.steps[i].is_free()) {
        written[index(e.plan.steps[i].tensor())] = 0;
        continue;
      }
      const launch& l = plan.launches()[v];
      CHECK(l.step == i);
      REQUIRE(l.operation == e.plan.steps[i].operation());
      const auto same = [&](std::span<const launch_argument> arguments, std::span<const tensor_id> row) {
        REQUIRE(arguments.size() == row.size());
        for (std::size_t x = 0; x < row.size(); ++x) {
          CHECK(arguments[x].tensor == row[x]);
          CHECK(arguments[x].bytes == e.graph.bytes(row[x]));
          CHECK((arguments[x].allocation == launch_argument::bound) == (s.always_resident[index(row[x])] != 0));
          if (s.always_resident[index(row[x])]) continue;
          CHECK(plan.lives().allocations[arguments[x].allocation].tensor == index(row[x]));
          CHECK(plan.lives().allocations[arguments[x].allocation].first <= i);
          CHECK(plan.lives().allocations[arguments[x].allocation].last > i);
          CHECK(arguments[x].offset == plan.offsets()[arguments[x].allocation]);
        }
      };
      same(plan.inputs(l), e.graph.inputs(l.operation));
      same(plan.outputs(l), e.graph.outputs(l.operation));
      for (const launch_argument& x : plan.outputs(l)) {
        CHECK(x.adds == (s.producers[index(x.tensor)].size() > 1 && written[index(x.tensor)] > 0));
        ++written[index(x.tensor)];
      }
      CHECK(l.workspace_bytes == e.graph.workspace(l.operation));
      for (const std::uint32_t a : plan.begins(v)) live[a] = 1;
      for (const auto arguments : {plan.inputs(l), plan.outputs(l)})
        for (const launch_argument& x : arguments)
          if (x.allocation != launch_argument::bound) CHECK(live[x.allocation]);
      for (const std::uint32_t a : plan.frees(v)) live[a] = 0;
      ++v;
    }
    CHECK(v == plan.size());
    for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
      const std::uint32_t a = plan.output_allocation(static_cast<tensor_id>(t));
      CHECK((a != launch_argument::bound) == (s.final_output[t] != 0));
      if (a != launch_argument::bound) CHECK(live[a]);
    }
  }
}

TEST_CASE("what does not fit together is refused before anything runs") {
  training_graph g("two");
  const tensor_id x = g.add_tensor({"x", 32}), y = g.add_tensor({"y", 32});
  g.add_operation({.name = "make", .outputs = {x}, .seconds = 1, .workspace = 8});
  g.add_operation({.name = "use", .inputs = {x}, .outputs = {y}, .seconds = 1});
  g.add_final_output(y);
  const problem p(g, measured_cost{});
  const schedule plan{{step::compute(op_id{0}), step::compute(op_id{1}), step::free(x)}};
  const auto error = [&](std::vector<std::int64_t> offsets, std::int64_t bytes, std::int64_t alignment,
                         const schedule& s) -> std::string {
    try {
      const launch_plan made(g, p, s.steps, {offsets, bytes, alignment});
    } catch (const bad_argument& e) {
      return e.what();
    }
    return "";
  };
  CHECK(error({0, 64, 32}, 96, 16, plan).empty());
  CHECK(error({0, 32, 32}, 96, 16, plan).empty());  // the workspace is gone when y comes
  CHECK(error({0, 64, 16}, 96, 16, plan) == "tensor 1 from step 1 shares bytes with tensor 0 from step 0");
  CHECK(error({0, 16, 32}, 96, 16, plan) ==
        "the workspace of operation 0 from step 0 shares bytes with tensor 0 from step 0");
  CHECK(error({0, 64, 32}, 63, 16, plan).find("the arena of 63") != std::string::npos);
  CHECK(error({0, 64, 40}, 96, 16, plan).find("a multiple of 16") != std::string::npos);
  CHECK(error({0, 64, -16}, 96, 16, plan).find("has offset -16") != std::string::npos);
  CHECK(error({0, 64, 32}, 96, 12, plan) == "the alignment is 12; it must be a power of two");
  CHECK(error({0, 64}, 96, 16, plan) == "there are 2 offsets; the schedule has 3 allocations");
  schedule early = plan;
  std::swap(early.steps[1], early.steps[2]);
  CHECK(error({0, 64, 32}, 96, 16, early).find("operation 1 reads tensor 0, which is not there") != std::string::npos);

  training_graph other("other");
  other.add_tensor({"x", 32});
  const std::vector<std::int64_t> offsets{0, 64, 32};
  CHECK_THROWS_AS(launch_plan(other, p, plan.steps, {offsets, 96, 16}), bad_argument);
}
