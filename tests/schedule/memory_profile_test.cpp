// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/memory_profile.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

using namespace remat;

namespace {

const std::string name_of_a = "make a";

/// x → a → b, and c from a and b; the peak is at b, with its workspace.
training_graph diamond() {
  training_graph g("diamond");
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 999, .kind = tensor_kind::input});
  const tensor_id a = g.add_tensor({.name = name_of_a, .bytes = 10});
  const tensor_id b = g.add_tensor({.name = "b", .bytes = 20});
  const tensor_id c = g.add_tensor({.name = "c", .bytes = 5});
  g.add_operation({.name = name_of_a, .inputs = {x}, .outputs = {a}});
  g.add_operation({.name = "make b", .inputs = {a}, .outputs = {b}, .workspace = 100});
  g.add_operation({.name = "make c", .inputs = {a, b}, .outputs = {c}});
  g.add_final_output(c);
  return g;
}

schedule listed(const problem& p) { return schedule_computes(p, std::vector<std::uint32_t>{0, 1, 2}); }

}  // namespace

TEST_CASE("a memory profile names the operations that run again and the tensors in memory at the peak") {
  const training_graph g = diamond();
  const problem p(g, unit_cost{});
  schedule plan;
  plan.compute(op_id{0});
  plan.compute(op_id{1});
  plan.free(tensor_id{1});
  plan.compute(op_id{0});
  plan.compute(op_id{2});
  plan.free(tensor_id{1});
  plan.free(tensor_id{2});
  REQUIRE(check(p, plan).valid());
  const memory_profile profile = memory_profile_of(p, g, plan);
  REQUIRE(profile.recomputes.size() == 1);
  CHECK(profile.recomputes[0].name == name_of_a);
  CHECK(profile.recomputes[0].operations == 1);
  CHECK(profile.recomputes[0].reruns == 1);
  CHECK(profile.recomputes[0].time == 1);
  CHECK(profile.rerun_time == 1);
  CHECK(profile.peak_bytes == 130);
  CHECK(profile.peak_operation == "make b");
  CHECK(profile.peak_time == 1);
  REQUIRE(profile.at_peak.size() == 3);
  CHECK(profile.at_peak[0].name == "workspace of make b");
  CHECK(profile.at_peak[0].bytes == 100);
  CHECK(profile.at_peak[1].name == "b");
  CHECK(profile.at_peak[2].name == name_of_a);
  REQUIRE(profile.memory.size() == 5);
  CHECK(profile.memory[1].bytes == 130);
  CHECK(profile.memory[3].bytes == 35);
  CHECK(profile.memory[4].bytes == 5);
  CHECK(profile.memory[4].time == 4);
  CHECK(memory_profile_of(p, g, listed(p)).recomputes.empty());
}

TEST_CASE("the tensors and the workspace at the peak add up to the peak") {
  const training_graph g = diamond();
  const problem p(g, unit_cost{});
  const memory_profile profile = memory_profile_of(p, g, listed(p));
  std::int64_t sum = 0;
  for (const auto& r : profile.at_peak) sum += r.bytes;
  CHECK(sum == profile.peak_bytes);
}

TEST_CASE("names may come from elsewhere than a graph") {
  const problem p(diamond(), unit_cost{});
  const name_lookup numbers{[](op_id o) { return "o" + std::to_string(index(o)); },
                            [](tensor_id t) { return "t" + std::to_string(index(t)); }};
  const memory_profile profile = memory_profile_of(p, numbers, listed(p));
  CHECK(profile.peak_operation == "o1");
  CHECK(profile.at_peak.front().name == "workspace of o1");
  CHECK(profile.at_peak.back().name == "t1");
}
