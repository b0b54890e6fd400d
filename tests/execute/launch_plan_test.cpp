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

namespace {

test::random_graph_options graphs_of(std::uint32_t operations) {
  test::random_graph_options o;
  o.operations = operations;
  o.most_bytes = 100;
  o.most_workspace = 40;
  return o;
}

/// Writes down what it is told, and fails at the call that it is told to fail at.
struct recording_device {
  struct call {
    bool records = false;
    std::uint32_t event = 0, stream = 0;
  };
  std::vector<call> calls{};
  std::size_t fails_at = static_cast<std::size_t>(-1);

  void wait(std::uint32_t e, std::uint32_t s) { note({false, e, s}); }
  void record(std::uint32_t e, std::uint32_t s) { note({true, e, s}); }

 private:
  void note(call c) {
    if (calls.size() == fails_at) throw std::runtime_error("the device is gone");
    calls.push_back(c);
  }
};
static_assert(launch_device<recording_device>);
static_assert(!launch_device<int>);

/// A plan of a random graph and schedule with its memory and kernels.
struct execution {
  training_graph graph;
  problem p;
  schedule plan;
  bool legal;
  stand_in_kernels kernels;

  execution(std::uint64_t seed, std::uint32_t operations)
      : graph(test::random_graph(seed, graphs_of(operations))),
        p(graph, measured_cost{}),
        plan(test::random_schedule(p, seed).plan),
        legal(check(p, plan).valid()),
        kernels(graph, p) {}
  [[nodiscard]] launch_plan launches(std::uint32_t streams, std::uint64_t seed) const {
    const test::placed where = test::random_layout(lifetimes_of(p, plan), 8, seed);
    return launch_plan(graph, p, plan.steps, {where.offsets, where.arena_bytes, 8}, streams);
  }
};

struct arena_memory {
  explicit arena_memory(const launch_plan& plan) : words(static_cast<std::size_t>(plan.arena_bytes()) / 8 + 1) {}
  [[nodiscard]] std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)); }
  std::vector<std::uint64_t> words;
};

std::vector<host_stream> streams_of(const launch_plan& plan) {
  std::vector<host_stream> out(plan.num_streams());
  for (std::uint32_t s = 0; s < out.size(); ++s) out[s].index = s;
  return out;
}

constexpr auto never = [] { return false; };

}  // namespace

TEST_CASE("launches have the graph's arguments, at the planned addresses") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const execution e(seed, 12);
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

TEST_CASE("issuing in order waits for recorded events only, each recorded once, and for none on one stream") {
  std::size_t waits = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    execution e(seed, 14);
    if (!e.legal) continue;
    for (std::uint32_t k = 1; k <= 4; ++k) {
      const launch_plan plan = e.launches(k, seed);
      arena_memory arena(plan);
      launch_calls<host_stream> calls(plan, arena.bytes(), streams_of(plan));
      const test::resident_memory memory(e.p, plan, e.kernels, seed);
      memory.bind_all(calls);
      for (int round = 0; round < 2; ++round) {
        recording_device device;
        CHECK(issue(plan, calls, plan.in_order(), seed, device, e.kernels, never) == plan.size());
        std::vector<std::uint8_t> recorded(plan.num_events(), 0);
        std::size_t expected_waits = 0;
        for (const recording_device::call& c : device.calls) {
          REQUIRE(c.event < plan.num_events());
          CHECK(recorded[c.event] == !c.records);
          if (c.records) {
            recorded[c.event] = 1;
            CHECK(c.stream == plan.launches()[plan.events()[c.event]].stream);
          } else {
            ++waits;
            CHECK(c.stream != plan.launches()[plan.events()[c.event]].stream);
          }
        }
        for (std::size_t i = 0; i < plan.size(); ++i) expected_waits += plan.assignment().waits[i].size();
        CHECK(device.calls.size() == expected_waits + plan.num_events());
        if (k == 1) CHECK(device.calls.empty());
      }
      const stand_in_values expected = e.kernels.expected(seed, seed);
      for (const std::uint32_t t : e.p.graph().final_outputs)
        CHECK(stand_in_kernels::value(calls.output(static_cast<tensor_id>(t))) == expected.tensors[t]);
    }
  }
  CHECK(waits > 1000);
}

namespace {

/// Runs the launches on the calling thread in a random order that streams and waits permit; `without` names a wait
/// (counted over all launches) that is not kept, and whose launch is then run as early as it may. Returns whether the
/// step left behind what it should.
bool right_in_any_order(execution& e, const launch_plan& plan, std::uint64_t seed, std::size_t without) {
  arena_memory arena(plan);
  launch_calls<host_stream> calls(plan, arena.bytes(), streams_of(plan));
  const test::resident_memory memory(e.p, plan, e.kernels, seed);
  memory.bind_all(calls);
  e.kernels.forget_effects();
  std::vector<std::vector<std::uint32_t>> waits(plan.size());
  std::vector<std::uint8_t> hurried(plan.size(), 0);
  std::size_t n = 0;
  for (std::uint32_t i = 0; i < plan.size(); ++i)
    for (const std::uint32_t w : plan.waits(i)) {
      if (n++ == without)
        hurried[i] = 1;
      else
        waits[i].push_back(plan.events()[w]);
    }
  // Whatever the hurried launch needs goes first.
  for (std::uint32_t i = static_cast<std::uint32_t>(plan.size()); i-- > 0;) {
    if (!hurried[i]) continue;
    for (const std::uint32_t w : waits[i]) hurried[w] = 1;
    const auto stream = plan.of_stream(plan.launches()[i].stream);
    for (const std::uint32_t j : stream)
      if (j < i) hurried[j] = 1;
  }
  std::mt19937_64 engine(seed);
  std::vector<std::uint8_t> done(plan.size(), 0);
  std::vector<std::size_t> next(plan.num_streams(), 0);
  recording_device device;
  try {
    for (std::size_t k = 0; k < plan.size(); ++k) {
      std::vector<std::uint32_t> ready;
      bool hurry = false;
      for (std::uint32_t s = 0; s < plan.num_streams(); ++s) {
        if (next[s] == plan.of_stream(s).size()) continue;
        const std::uint32_t i = plan.of_stream(s)[next[s]];
        if (!std::all_of(waits[i].begin(), waits[i].end(), [&](std::uint32_t w) { return done[w] != 0; })) continue;
        if (hurried[i] && !hurry) ready.clear();
        hurry = hurry || hurried[i];
        if (hurried[i] || !hurry) ready.push_back(i);
      }
      const std::uint32_t i = ready[engine() % ready.size()];
      issue(plan, calls, std::span(&i, 1), seed, device, e.kernels, never);
      done[i] = 1;
      ++next[plan.launches()[i].stream];
    }
  } catch (const execution_error&) {
    return false;
  }
  const stand_in_values expected = e.kernels.expected(seed, seed);
  for (const std::uint32_t t : e.p.graph().final_outputs) {
    const auto bytes = calls.output(static_cast<tensor_id>(t));
    try {
      e.kernels.verify(static_cast<tensor_id>(t), bytes);
    } catch (const error&) {
      return false;
    }
    if (stand_in_kernels::value(bytes) != expected.tensors[t]) return false;
  }
  for (std::uint32_t o = 0; o < e.p.graph().num_operations; ++o)
    if (e.p.graph().has_effect(o) && e.kernels.effects()[o] != expected.effects[o]) return false;
  return true;
}

}  // namespace

TEST_CASE("every order that the waits permit computes the same; left-out waits are noticed") {
  std::size_t orders = 0, left_out = 0, noticed = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    execution e(seed, 12);
    if (!e.legal) continue;
    for (std::uint32_t k = 2; k <= 4; ++k) {
      const launch_plan plan = e.launches(k, seed);
      std::size_t waits = 0;
      for (std::size_t i = 0; i < plan.size(); ++i) waits += plan.waits(i).size();
      if (waits == 0) continue;
      for (std::uint64_t round = 0; round < 4; ++round, ++orders)
        CHECK(right_in_any_order(e, plan, seed * 16 + round, static_cast<std::size_t>(-1)));
      for (std::size_t w = 0; w < waits; ++w, ++left_out) noticed += !right_in_any_order(e, plan, seed, w);
    }
  }
  INFO(noticed, " of ", left_out, " left-out waits noticed");
  CHECK(orders > 500);
  CHECK(left_out > 500);
  // Not noticed: that a tensor without bytes, or workspace, which holds nothing, comes too late or too early.
  CHECK(noticed * 10 > left_out * 6);
}

TEST_CASE("a fault at any call of the device is an error with the operation's name, and the next run is right") {
  std::size_t faults = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    execution e(seed, 10);
    if (!e.legal) continue;
    const launch_plan plan = e.launches(3, seed);
    arena_memory arena(plan);
    launch_calls<host_stream> calls(plan, arena.bytes(), streams_of(plan));
    const test::resident_memory memory(e.p, plan, e.kernels, seed);
    memory.bind_all(calls);
    recording_device whole;
    issue(plan, calls, plan.in_order(), seed, whole, e.kernels, never);
    for (std::size_t at = 0; at < whole.calls.size(); ++at, ++faults) {
      recording_device device;
      device.fails_at = at;
      const launch& by = plan.launches()[plan.events()[whole.calls[at].event]];
      try {
        issue(plan, calls, plan.in_order(), seed, device, e.kernels, never);
        FAIL("no error");
      } catch (const execution_error& error) {
        const std::string text = error.what();
        CHECK(text.find(plan.label(error.operation())) == 0);
        CHECK(text.find("the device is gone") != std::string::npos);
        if (whole.calls[at].records) {
          CHECK(error.operation() == by.operation);
          CHECK(text.find("recording its event failed") != std::string::npos);
        } else {
          CHECK(text.find("waiting for " + plan.label(by.operation) + " failed") != std::string::npos);
        }
        CHECK_THROWS_AS(std::rethrow_if_nested(error), std::runtime_error);
      }
      recording_device again;
      CHECK(issue(plan, calls, plan.in_order(), seed, again, e.kernels, never) == plan.size());
      const stand_in_values expected = e.kernels.expected(seed, seed);
      for (const std::uint32_t t : e.p.graph().final_outputs)
        CHECK(stand_in_kernels::value(calls.output(static_cast<tensor_id>(t))) == expected.tensors[t]);
    }
  }
  CHECK(faults > 100);
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
  const launch_plan made(g, p, plan.steps, {offsets, 96, 16}, 2);
  const std::vector<host_stream> one(1);
  arena_memory arena(made);
  CHECK_THROWS_WITH_AS((launch_calls<host_stream>(made, arena.bytes(), one)), "1 streams are given; the plan is for 2",
                       bad_argument);
}
