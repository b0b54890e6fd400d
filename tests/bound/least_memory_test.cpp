// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/least_memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stop_token>
#include <string>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;

TEST_CASE("no schedule has a lower peak than the bound, and often one has just that") {
  int exact = 0, by_first_run = 0, by_end = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    test::random_graph_options options;
    options.operations = 3 + static_cast<std::uint32_t>(seed % 4);
    options.once = seed % 2 ? 0 : 35;
    const problem p = test::random_problem(seed, options);
    const least_memory_result bound = least_memory_bound(p);
    REQUIRE(bound.bytes <= p.graph().baseline_peak);
    REQUIRE(bound.bytes >= largest_working_set(p).bytes);
    if (bound.bytes == 0) continue;
    INFO("seed ", seed, ": ", bound.message());
    REQUIRE(std::isinf(test::least_time(p.with_budget(bound.bytes - 1))));
    exact += std::isfinite(test::least_time(p.with_budget(bound.bytes)));
    by_first_run += bound.reason == memory_reason::first_run;
    by_end += bound.reason == memory_reason::end_of_step;
    // A search of few moments is a weaker bound, not another one.
    REQUIRE(least_memory_bound(p, {.moments = 1}).bytes <= bound.bytes);
  }
  CHECK(exact > 1200);
  CHECK(by_first_run > 100);
  CHECK(by_end > 100);
}

TEST_CASE("the bound is the largest of its kind, whichever first run gives it") {
  int above = 0, by_one = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 12), .once = 35});
    const flat_graph& s = p.graph();
    const least_memory_result floor = largest_working_set(p), all = least_memory_bound(p);
    std::int64_t largest = floor.bytes;
    detail::moment_cut cut(s);
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      if (!s.needed[o]) continue;
      cut.at(o);
      largest = std::max(largest, cut.least_bytes() + cut.working_set());
    }
    INFO("seed ", seed);
    REQUIRE(all.bytes == largest);
    REQUIRE((all.reason == memory_reason::first_run) == (largest > floor.bytes));
    REQUIRE(least_memory_bound(p, {.moments = 0}).bytes == floor.bytes);
    if (largest == floor.bytes) continue;
    std::stop_source source;
    source.request_stop();
    REQUIRE(least_memory_bound(p, {.run = {.stop = source.get_token()}}).bytes == floor.bytes);
    std::int64_t bytes = all.working_set;
    for (const tensor_id t : all.also_resident) bytes += s.bytes[index(t)];
    REQUIRE(bytes == all.bytes);
    ++above;
    by_one += least_memory_bound(p, {.moments = 1}).bytes == largest;
  }
  INFO(above, " above the working sets, ", by_one, " by the most promising first run");
  CHECK(above > 300);
  CHECK(by_one > above / 2);
}

// x → a → b → c, where c reads a again; each tensor of another size.
training_graph small(bool a_again) {
  training_graph g;
  const tensor_id x = g.add_tensor({"x", 1000, tensor_kind::input});
  const tensor_id a = g.add_tensor({"a", 10}), b = g.add_tensor({"b", 200}), c = g.add_tensor({"c", 3});
  const tensor_id d = g.add_tensor({"d", 1});
  g.add_operation({.name = "first", .inputs = {x}, .outputs = {a}, .recomputable = a_again});
  g.add_operation({.name = "second", .inputs = {x}, .outputs = {b}, .workspace = 40});
  g.add_operation({.name = "third", .inputs = {b}, .outputs = {c}, .workspace = 50});
  g.add_operation({.name = "fourth", .inputs = {a, c}, .outputs = {d}});
  g.add_final_output(d);
  return g;
}

TEST_CASE("the operation and the bytes are named") {
  const least_memory_result again = least_memory_bound(problem(small(true), unit_cost{}));
  CHECK(again.bytes == 200 + 3 + 50);
  CHECK(again.reason == memory_reason::working_set);
  CHECK(index(again.operation) == 2);
  CHECK(again.message("third") == "operation 2 (third) needs 253 bytes for its inputs, outputs and workspace");

  // With `first` only once, a can still be made after b is gone: nothing changes.
  CHECK(least_memory_bound(problem(small(false), unit_cost{})).bytes == 253);

  // But not where b is made from a.
  training_graph g;
  const tensor_id a = g.add_tensor({"a", 10}), b = g.add_tensor({"b", 200}), c = g.add_tensor({"c", 3});
  const tensor_id d = g.add_tensor({"d", 1});
  g.add_operation({.outputs = {a}, .recomputable = false});
  g.add_operation({.inputs = {a}, .outputs = {b}});
  g.add_operation({.inputs = {b}, .outputs = {c}, .workspace = 50});
  g.add_operation({.inputs = {a, c}, .outputs = {d}});
  g.add_final_output(d);
  const least_memory_result once = least_memory_bound(problem(g, unit_cost{}));
  CHECK(once.bytes == 263);
  CHECK(once.reason == memory_reason::first_run);
  CHECK(index(once.operation) == 2);
  CHECK(once.working_set == 253);
  REQUIRE(once.also_resident.size() == 1);
  CHECK(once.also_resident[0] == a);
  CHECK(once.message() ==
        "operation 2 needs 263 bytes when it first runs: 253 bytes for its inputs, outputs and workspace, the rest for "
        "tensors "
        "that are read later and cannot be computed again");
}

TEST_CASE("the end of the step: all outputs, and the last operation beside them") {
  training_graph g;
  const tensor_id a = g.add_tensor({"a", 10}), b = g.add_tensor({"b", 20}), c = g.add_tensor({"c", 5});
  g.add_operation({.outputs = {a}, .workspace = 4});
  g.add_operation({.outputs = {c}});
  g.add_operation({.inputs = {c}, .outputs = {b}});
  g.add_final_output(a);
  g.add_final_output(b);
  const least_memory_result r = least_memory_bound(problem(g, unit_cost{}));
  CHECK(r.bytes == 34);  // a last, with its workspace; b last would have c beside it
  CHECK(r.reason == memory_reason::end_of_step);
  CHECK(r.working_set == 14);
  CHECK(r.message() ==
        "the end of the step needs 34 bytes for its outputs and for the last operation, at best operation 0");
}

TEST_CASE("what makes no final output is not the last operation") {
  training_graph g;
  const tensor_id a = g.add_tensor({"a", 10}), b = g.add_tensor({"b", 20}), c = g.add_tensor({"c", 5});
  g.add_operation({.outputs = {a}, .workspace = 9});
  g.add_operation({.outputs = {c}});  // beside a and b it would need 35 bytes
  g.add_operation({.inputs = {c}, .outputs = {b}, .workspace = 5});
  g.add_final_output(a);
  g.add_final_output(b);
  CHECK(least_memory_bound(problem(g, unit_cost{})).bytes == 39);
}

TEST_CASE("with a link, nothing need lie on the device but working sets, and the final outputs at the end") {
  training_graph g;
  const tensor_id a = g.add_tensor({"a", 10}), b = g.add_tensor({"b", 20}), c = g.add_tensor({"c", 5});
  g.add_operation({.outputs = {a}, .workspace = 4, .recomputable = false});
  g.add_operation({.outputs = {c}});
  g.add_operation({.inputs = {c}, .outputs = {b}});
  g.add_final_output(a);
  g.add_final_output(b);
  const problem p(g, unit_cost{});
  CHECK(least_memory_bound(p).bytes == 34);
  const least_memory_result r = least_memory_bound(p.with_link({}));
  CHECK(r.bytes == 30);
  CHECK(r.reason == memory_reason::outputs);
  CHECK(r.message() == "the end of the step needs 30 bytes for its outputs");
  CHECK(check(p.with_link({}),
              schedule{{step::compute(op_id{0}), step::offload(a), step::free(a), step::compute(op_id{1}),
                        step::compute(op_id{2}), step::free(c), step::prefetch(a)}})
            .peak_bytes == 30);
}

TEST_CASE("nothing needs nothing") {
  training_graph g;
  g.add_operation({.name = "effect"});
  CHECK(least_memory_bound(problem(g, unit_cost{})).bytes == 0);
  CHECK(least_memory_bound(problem(training_graph(), unit_cost{})).reason == memory_reason::none);
}

}  // namespace
