// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/launch_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/host.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "shared/stand_in.hpp"
#include "support/executions.hpp"
#include "support/outputs_elsewhere.hpp"
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

namespace {

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const bad_argument& e) {
    return e.what();
  }
  return "";
}

}  // namespace

namespace {

/// Whether `made` places each tensor as the options say, and `plain` with all outputs in the arena.
bool tensors_right(const launch_plan& made, const launch_plan& plain, const launch_options& options) {
  const auto is_in = [](const std::vector<tensor_id>& list, tensor_id t) {
    return std::count(list.begin(), list.end(), t) != 0;
  };
  bool right = true;
  for (std::uint32_t t = 0; t < made.num_tensors(); ++t) {
    const auto id = static_cast<tensor_id>(t);
    const bool sums = is_in(options.accumulated_outputs, id), elsewhere = sums || is_in(options.bound_outputs, id);
    const bool no_allocation = elsewhere || plain.output_allocation(id) == launch_argument::bound;
    right = right && made.is_bound_output(id) == elsewhere && made.is_accumulated(id) == sums &&
            made.needs_binding(id) == (elsewhere || plain.needs_binding(id)) &&
            (made.output_allocation(id) == launch_argument::bound) == no_allocation;
  }
  return right;
}

/// Whether the arguments are those of a plan with all outputs in the arena, but for outputs elsewhere.
bool arguments_right(const launch_plan& made, std::span<const launch_argument> now,
                     std::span<const launch_argument> plain, bool written) {
  bool right = now.size() == plain.size();
  for (std::size_t x = 0; right && x < now.size(); ++x) {
    const bool sums = written && made.is_accumulated(now[x].tensor), elsewhere = made.is_bound_output(now[x].tensor);
    right = now[x].tensor == plain[x].tensor && now[x].bytes == plain[x].bytes &&
            now[x].adds == (plain[x].adds != 0 || sums) &&
            now[x].allocation == (elsewhere ? launch_argument::bound : plain[x].allocation) &&
            now[x].offset == (now[x].allocation == launch_argument::bound ? 0 : made.offsets()[now[x].allocation]);
  }
  return right;
}

/// Whether each launch has the right arguments, and begins and frees allocations of the arena alone.
bool launches_right(const launch_plan& made, const launch_plan& plain) {
  const auto in_arena = [&](std::span<const std::uint32_t> now, std::span<const std::uint32_t> all) {
    std::vector<std::uint32_t> out;
    std::copy_if(all.begin(), all.end(), std::back_inserter(out), [&](std::uint32_t a) { return made.is_in_arena(a); });
    return std::equal(now.begin(), now.end(), out.begin(), out.end());
  };
  bool right = made.size() == plain.size();
  for (std::uint32_t v = 0; right && v < made.size(); ++v) {
    const launch &a = made.launches()[v], &b = plain.launches()[v];
    right = arguments_right(made, made.inputs(a), plain.inputs(b), false) &&
            arguments_right(made, made.outputs(a), plain.outputs(b), true) &&
            in_arena(made.begins(v), plain.begins(v)) && in_arena(made.frees(v), plain.frees(v));
  }
  return right;
}

/// The most bytes in the arena at one time.
std::int64_t arena_load(const launch_plan& made) {
  std::int64_t most = 0;
  for (std::uint32_t i = 0; i < made.lives().num_steps(); ++i) {
    std::int64_t now = 0;
    for (const allocation& x : made.lives().allocations)
      if ((x.is_workspace() || !made.is_bound_output(static_cast<tensor_id>(x.tensor))) && x.first <= i && i < x.last)
        now += x.bytes;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

TEST_CASE("outputs in the caller's memory have no room in the arena, and change nothing else") {
  std::size_t bound = 0, accumulated = 0, smaller = 0, made_again = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    test::random_execution e(seed, 12);
    if (!e.legal) continue;
    launch_options options = test::some_outputs(e.p, seed, 40, 50);
    const problem p = e.p.producing_once(options.accumulated_outputs);
    const schedule plan = test::making_outputs_again(p, test::random_schedule(p, seed).plan, seed);
    if (!check(p, plan).valid()) continue;
    options.streams = 2;
    options.memory.alignment = 8;
    const launch_plan plain(e.graph, p, plan, {.streams = 2, .memory = options.memory});
    const launch_plan made(e.graph, p, plan, options);
    CHECK(made.peak_bytes() == plain.peak_bytes());
    CHECK(std::equal(made.memory().begin(), made.memory().end(), plain.memory().begin(), plain.memory().end()));
    CHECK(made.lives().allocations == plain.lives().allocations);
    CHECK(tensors_right(made, plain, options));
    CHECK(launches_right(made, plain));
    CHECK(made.arena_bytes() >= arena_load(made));
    // The same plan from the addresses given.
    const launch_plan given(e.graph, p, plan.steps, {made.offsets(), made.arena_bytes(), 8}, options);
    CHECK(std::equal(given.offsets().begin(), given.offsets().end(), made.offsets().begin()));
    CHECK(given.assignment().waits.values == made.assignment().waits.values);
    CHECK(launches_right(given, plain));

    smaller += made.arena_bytes() < plain.arena_bytes();
    bound += options.bound_outputs.size();
    accumulated += options.accumulated_outputs.size();
    for (std::uint32_t a = 0; a < made.lives().allocations.size(); ++a)
      made_again += !made.is_in_arena(a) && made.lives().allocations[a].last < plan.steps.size();
  }
  CHECK(bound > 100);
  CHECK(accumulated > 100);
  CHECK(smaller > 50);
  CHECK(made_again > 20);
}

TEST_CASE("a plan is refused exactly if a sum would be added to twice, or is read") {
  std::size_t twice = 0, read = 0, fine = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    test::random_execution e(seed, 10);
    if (!e.legal) continue;
    const schedule plan = test::making_outputs_again(e.p, e.plan, seed);
    const flat_graph& g = e.p.graph();
    for (const std::uint32_t t : g.final_outputs)
      for (const bool may_be_read : {false, true}) {
        std::size_t runs = 0, reads = 0;
        for (const step& x : plan.steps) {
          if (x.is_free()) continue;
          for (const std::uint32_t u : g.outputs[index(x.operation())]) runs += u == t;
          for (const std::uint32_t u : g.inputs[index(x.operation())]) reads += u == t;
        }
        const bool adds_twice = runs > g.producers[t].size(), is_read = reads > 0 && !may_be_read;
        const std::string text = error_of([&] {
          const launch_plan made(e.graph, e.p, plan,
                                 {.accumulated_outputs = {static_cast<tensor_id>(t)}, .sums_may_be_read = may_be_read});
        });
        CHECK(text.empty() == (!adds_twice && !is_read));
        const bool says_twice = text.find("an accumulated output, twice") != std::string::npos;
        const bool says_read = text.find("set launch_options::sums_may_be_read") != std::string::npos;
        if (!text.empty()) CHECK((says_twice ? adds_twice : says_read && is_read));
        twice += says_twice;
        read += says_read;
        fine += text.empty();
      }
  }
  CHECK(twice > 50);
  CHECK(read > 50);
  CHECK(fine > 50);
}

TEST_CASE("options of outputs that cannot be right are refused") {
  training_graph g("two");
  const tensor_id w = g.add_tensor({"w", 32, tensor_kind::parameter}), x = g.add_tensor({"x", 32}),
                  y = g.add_tensor({"y", 32}), z = g.add_tensor({"z", 32});
  g.add_operation({.name = "make", .inputs = {w}, .outputs = {x, z}, .seconds = 1});
  g.add_operation({.name = "use", .inputs = {x}, .outputs = {y}, .seconds = 1});
  g.add_final_output(y);
  g.add_final_output(z);
  const problem p(g, measured_cost{});
  const schedule plan{{step::compute(op_id{0}), step::compute(op_id{1}), step::free(x)}};
  const auto error = [&](launch_options options) {
    return error_of([&] { const launch_plan made(g, p, plan, options); });
  };
  CHECK(error({.bound_outputs = {y}, .accumulated_outputs = {z}}).empty());
  CHECK(error({.bound_outputs = {x}}) ==
        "bound_outputs: tensor 1 (x) is no final output; only final outputs can lie in the caller's memory");
  CHECK(error({.accumulated_outputs = {x}}) ==
        "accumulated_outputs: tensor 1 (x) is no final output; only final outputs can lie in the caller's memory");
  CHECK(error({.bound_outputs = {y, z, y}}) ==
        "bound_outputs: tensor 2 (y) is named twice; name it once, in bound_outputs or in accumulated_outputs");
  CHECK(error({.bound_outputs = {y}, .accumulated_outputs = {y}}) ==
        "accumulated_outputs: tensor 2 (y) is named twice; name it once, in bound_outputs or in accumulated_outputs");
  CHECK(error({.bound_outputs = {w}}) ==
        "bound_outputs: tensor 0 (w) is always resident, and no operation writes it; bind it as an input");
  CHECK(error({.bound_outputs = {tensor_id{4}}}) == "bound_outputs: there is no tensor 4; there are 4");

  const schedule again{{step::compute(op_id{0}), step::compute(op_id{0}), step::compute(op_id{1})}};
  CHECK(error_of([&] { const launch_plan made(g, p, again, {.accumulated_outputs = {z}}); }) ==
        "operation 0 (make) runs in step 0 and again in step 1: it would add to tensor 3 (z), an accumulated output, "
        "twice; solve with problem::producing_once of that tensor");
  CHECK(error_of([&] { const launch_plan made(g, p, again, {.accumulated_outputs = {y}}); }).empty());
  CHECK(check(p.producing_once(std::vector{z}), again).what == violation::runs_twice);
}

TEST_CASE("an arena above its budget is refused, with a given layout, too") {
  training_graph g("one");
  const tensor_id x = g.add_tensor({"x", 100}), y = g.add_tensor({"y", 300});
  g.add_operation({.name = "make", .outputs = {x}, .seconds = 1});
  g.add_operation({.name = "use", .inputs = {x}, .outputs = {y}, .seconds = 1});
  g.add_final_output(y);
  const problem p(g, measured_cost{});
  const schedule plan{{step::compute(op_id{0}), step::compute(op_id{1}), step::free(x)}};
  const auto error = [&](const launch_options& options) {
    return error_of([&] { const launch_plan made(g, p, plan, options); });
  };
  CHECK(error({.arena_budget = 768}).empty());
  CHECK(error({.arena_budget = 767}) ==
        "the arena has 768 bytes; its budget is 767 bytes; fit_arena finds schedules whose arena fits");
  CHECK(error({.arena_budget = -1}) == "the arena's budget is -1 bytes; it must not be negative");
  CHECK(error({.bound_outputs = {y}, .arena_budget = 256}).empty());  // the output is not in the arena
  const std::vector<std::int64_t> offsets{0, 128};
  const auto given = [&](const launch_options& options) {
    return error_of([&] { const launch_plan made(g, p, plan.steps, {offsets, 512, 8}, options); });
  };
  CHECK(given({.arena_budget = 512}).empty());
  CHECK(given({.arena_budget = 511}) ==
        "the arena has 512 bytes; its budget is 511 bytes; fit_arena finds schedules whose arena fits");
  const std::vector<std::int64_t> one{0, 0};  // y has no room, so it must be elsewhere
  CHECK(error_of([&] {
          const launch_plan made(g, p, plan.steps, {one, 104, 8}, {.bound_outputs = {y}, .arena_budget = 104});
        }).empty());
  CHECK(error_of([&] {
          const launch_plan made(g, p, plan.steps, {one, 304, 8}, launch_options{});
        }) == "tensor 1 from step 1 shares bytes with tensor 0 from step 0");
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

TEST_CASE("the shares of the device that operations occupy bound the simulated overlap") {
  training_graph g;
  for (int i = 0; i < 3; ++i) {
    const tensor_id t = g.add_tensor({"t", 32});
    g.add_operation({.outputs = {t}, .seconds = 2});
    g.add_final_output(t);
  }
  const problem p(g, measured_cost{});
  schedule plan;
  for (std::uint32_t o = 0; o < 3; ++o) plan.compute(static_cast<op_id>(o));
  const auto makespan = [&](std::vector<double> occupancy) {
    return launch_plan(g, p, plan, {.streams = 3, .occupancy = std::move(occupancy)}).assignment().makespan;
  };
  CHECK(makespan({}) == 2);
  CHECK(makespan({0.5, 0.5, 0.5}) == 4);
  CHECK(makespan({1, 1, 1}) == 6);
  CHECK_THROWS_AS(makespan({1, 1}), bad_argument);
}
