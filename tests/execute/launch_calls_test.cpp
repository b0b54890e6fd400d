// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/detail/launch_calls.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
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
#include "remat/cost/models.hpp"
#include "remat/execute/host.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "shared/stand_in.hpp"
#include "support/copy_executions.hpp"
#include "support/executions.hpp"
#include "support/outputs_elsewhere.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

using test::random_execution;

/// Records its calls, and fails at a chosen one.
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

std::uint32_t number(tensor_id t) { return static_cast<std::uint32_t>(t); }

/// The memory of all arguments of all calls.
std::vector<std::span<const std::byte>> addresses_of(const launch_calls<host_stream>& calls) {
  std::vector<std::span<const std::byte>> out;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    out.insert(out.end(), calls[i].inputs.begin(), calls[i].inputs.end());
    out.insert(out.end(), calls[i].outputs.begin(), calls[i].outputs.end());
    out.push_back(calls[i].workspace);
  }
  return out;
}

bool same_addresses(std::span<const std::span<const std::byte>> a, std::span<const std::span<const std::byte>> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](auto x, auto y) { return x.size() == y.size() && (x.empty() || x.data() == y.data()); });
}

}  // namespace

TEST_CASE("issuing in order waits for recorded events only, each recorded once, and for none on one stream") {
  std::size_t waits = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    random_execution e(seed, 14);
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
      const shared::stand_in_values expected = e.kernels.expected(seed, seed);
      for (const std::uint32_t t : e.p.graph().final_outputs)
        CHECK(shared::stand_in_kernels::value(calls.output(static_cast<tensor_id>(t))) == expected.tensors[t]);
    }
  }
  CHECK(waits > 1000);
}

namespace {

/// Runs the launches on the calling thread in a random order that streams and waits permit; `without` names a wait
/// (counted over all launches) that is not kept, and whose launch is then run as early as it may. Returns false if a
/// kernel noticed a mistake.
template <class Kernels>
bool runs_in_any_order(const launch_plan& plan, launch_calls<host_stream>& calls, Kernels& kernels, std::uint64_t seed,
                       std::size_t without) {
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
      issue(plan, calls, std::span(&i, 1), seed, device, kernels, never);
      done[i] = 1;
      ++next[plan.launches()[i].stream];
    }
  } catch (const execution_error&) {
    return false;
  }
  return true;
}

/// Returns whether a training step has left behind what it should.
bool is_right(const problem& p, const shared::stand_in_kernels& kernels, const launch_calls<host_stream>& calls,
              std::uint64_t seed) {
  const shared::stand_in_values expected = kernels.expected(seed, seed);
  for (const std::uint32_t t : p.graph().final_outputs) {
    const auto bytes = calls.output(static_cast<tensor_id>(t));
    try {
      kernels.verify(static_cast<tensor_id>(t), bytes);
    } catch (const error&) {
      return false;
    }
    if (shared::stand_in_kernels::value(bytes) != expected.tensors[t]) return false;
  }
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o)
    if (p.graph().has_effect(o) && kernels.effects()[o] != expected.effects[o]) return false;
  return true;
}

/// `runs_in_any_order` with stand-in kernels, whose results are looked at.
bool right_in_any_order(random_execution& e, const launch_plan& plan, std::uint64_t seed, std::size_t without) {
  arena_memory arena(plan);
  launch_calls<host_stream> calls(plan, arena.bytes(), streams_of(plan));
  const test::resident_memory memory(e.p, plan, e.kernels, seed);
  memory.bind_all(calls);
  test::own_outputs own(plan);
  own.bind_all(calls);
  e.kernels.forget_effects();
  return runs_in_any_order(plan, calls, e.kernels, seed, without) && is_right(e.p, e.kernels, calls, seed);
}

/// Likewise for a schedule with copies; memory that holds nothing is overwritten.
bool right_in_any_order(test::copying_execution& e, const launch_plan& plan, std::uint64_t seed, std::size_t without) {
  arena_memory arena(plan);
  std::vector<std::uint64_t> host(static_cast<std::size_t>(plan.host_arena_bytes()) / 8 + 1);
  launch_calls<host_stream> calls(plan, arena.bytes(), streams_of(plan), std::as_writable_bytes(std::span(host)));
  const test::resident_memory memory(e.p, plan, e.kernels, seed);
  memory.bind_all(calls);
  test::own_outputs own(plan);
  own.bind_all(calls);
  e.kernels.forget_effects();
  test::poisoning_kernels kernels(e.kernels, plan, false);
  kernels.begin(calls.arena(), calls.host_arena());
  return runs_in_any_order(plan, calls, kernels, seed, without) && is_right(e.p, e.kernels, calls, seed);
}

}  // namespace

TEST_CASE("every order that the waits permit computes the same; left-out waits are noticed") {
  std::size_t orders = 0, left_out = 0, noticed = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    random_execution e(seed / 2, 12);
    if (!e.legal) continue;
    const bool elsewhere = seed % 2 != 0;  // outputs in the caller's memory, some of them freed and made again
    if (elsewhere) e.plan = test::making_outputs_again(e.p, std::move(e.plan), seed);
    const launch_options choice = elsewhere ? test::some_outputs(e.p, seed, 70, 0) : launch_options{};
    for (std::uint32_t k = 2; k <= 4; ++k) {
      const test::placed_elsewhere where(e.p, e.plan, choice, k, seed);
      const launch_plan plan(e.graph, e.p, e.plan.steps, where.layout(), where.options);
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

TEST_CASE("every order that the waits of copies permit computes the same; left-out waits of each kind are noticed") {
  struct count {
    std::size_t left_out = 0, noticed = 0;
  };
  std::array<std::array<count, 3>, 3> of;  // stream of the launch that is awaited → stream of the one that waits
  std::size_t orders = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    test::copying_execution e(seed, 4 + static_cast<std::uint32_t>(seed % 9), seed % 2 != 0);
    const launch_plan plan = e.launches();
    for (std::uint64_t round = 0; round < 8; ++round, ++orders)
      CHECK(right_in_any_order(e, plan, seed * 16 + round, static_cast<std::size_t>(-1)));
    std::size_t w = 0;
    for (const launch& l : plan.launches())
      for (const std::uint32_t event : plan.waits(static_cast<std::size_t>(&l - plan.launches().data()))) {
        count& c = of[plan.launches()[plan.events()[event]].stream][l.stream];
        ++c.left_out;
        c.noticed += !right_in_any_order(e, plan, seed, w++);
      }
  }
  CHECK(orders == 4800);
  for (std::size_t from = 0; from < 3; ++from)
    for (std::size_t to = 0; to < 3; ++to) {
      if (from == to) continue;
      const count& c = of[from][to];
      INFO("stream ", from, " → stream ", to, ": ", c.noticed, " of ", c.left_out, " left-out waits noticed");
      CHECK(c.left_out > 10);
      CHECK(c.noticed * 4 > c.left_out);
    }
}

TEST_CASE("a fault at any call of the device is an error with the operation's name, and the next run is right") {
  std::size_t faults = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    random_execution e(seed, 10);
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
      const shared::stand_in_values expected = e.kernels.expected(seed, seed);
      for (const std::uint32_t t : e.p.graph().final_outputs)
        CHECK(shared::stand_in_kernels::value(calls.output(static_cast<tensor_id>(t))) == expected.tensors[t]);
    }
  }
  CHECK(faults > 100);
}

TEST_CASE("binding changes the arguments of the tensor alone") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    random_execution e(seed, 12);
    if (!e.legal) continue;
    const test::placed_elsewhere where(e.p, e.plan, test::some_outputs(e.p, seed, 70, 0), 2, seed);
    const launch_plan plan(e.graph, e.p, e.plan.steps, where.layout(), where.options);
    arena_memory arena(plan);
    launch_calls<host_stream> calls(plan, arena.bytes(), streams_of(plan));
    const test::resident_memory memory(e.p, plan, e.kernels, seed);
    memory.bind_all(calls);
    test::own_outputs own(plan), others(plan);
    own.bind_all(calls);
    const std::vector<std::span<const std::byte>> before = addresses_of(calls);
    own.bind_all(calls);
    memory.bind_all(calls);
    CHECK(same_addresses(addresses_of(calls), before));
    others.bind_all(calls);
    std::uint64_t changed = 0;
    for (const auto& [t, bytes] : others.tensors()) changed += !bytes.empty();
    CHECK(same_addresses(addresses_of(calls), before) == (changed == 0));
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const auto arguments = plan.inputs(plan.launches()[i]);
      for (std::size_t x = 0; x < arguments.size(); ++x)
        if (plan.is_bound_output(arguments[x].tensor))
          CHECK(calls[i].inputs[x].data() == others.tensors().at(number(arguments[x].tensor)).data());
      const auto outputs = plan.outputs(plan.launches()[i]);
      for (std::size_t x = 0; x < outputs.size(); ++x) {
        if (plan.is_bound_output(outputs[x].tensor))
          CHECK(calls[i].outputs[x].data() == others.tensors().at(number(outputs[x].tensor)).data());
        else
          CHECK(calls[i].outputs[x].data() == arena.bytes().data() + outputs[x].offset);
        CHECK(calls[i].outputs[x].size() == static_cast<std::size_t>(outputs[x].bytes));
      }
    }
    own.bind_all(calls);
    CHECK(same_addresses(addresses_of(calls), before));
  }
}

TEST_CASE("memory of outputs is compared with all other bound memory, by brute force") {
  std::size_t refused = 0, accepted = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    random_execution e(seed, 8);
    if (!e.legal) continue;
    const test::placed_elsewhere where(e.p, e.plan, test::some_outputs(e.p, seed, 90, 0), 1, seed);
    const launch_plan plan(e.graph, e.p, e.plan.steps, where.layout(), where.options);
    arena_memory arena(plan);
    launch_calls<host_stream> calls(plan, arena.bytes(), streams_of(plan));
    std::vector<std::byte> slab(4000);
    std::mt19937_64 engine(seed);
    std::vector<std::size_t> at(plan.num_tensors(), 0);
    for (int round = 0; round < 6; ++round) {
      for (std::uint32_t t = 0; t < plan.num_tensors(); ++t) {
        const auto id = static_cast<tensor_id>(t);
        if (!plan.needs_binding(id) || (round != 0 && engine() % 3 != 0)) continue;
        at[t] = engine() % (slab.size() - 100);
        if (plan.is_bound_output(id))
          calls.bind_output(id, std::span(slab).subspan(at[t]));
        else
          calls.bind(id, std::span(slab).subspan(at[t]));
      }
      std::vector<std::uint32_t> owner(slab.size(), 0);  // of each byte: 1 + the output that has it
      std::vector<std::uint8_t> read(slab.size(), 0);
      bool apart = true;
      for (std::uint32_t t = 0; t < plan.num_tensors(); ++t) {
        const auto id = static_cast<tensor_id>(t);
        if (!plan.needs_binding(id)) continue;
        for (std::size_t b = at[t]; b < at[t] + static_cast<std::size_t>(plan.bytes(id)); ++b) {
          apart = apart && owner[b] == 0 && !(plan.is_bound_output(id) && read[b]);
          if (plan.is_bound_output(id)) owner[b] = t + 1;
          read[b] = 1;
        }
      }
      ++(apart ? accepted : refused);
      if (apart)
        CHECK_NOTHROW(calls.require_bound());
      else
        CHECK_THROWS_AS(calls.require_bound(), bad_argument);
    }
  }
  CHECK(refused > 100);
  CHECK(accepted > 100);
}

TEST_CASE("as many streams must be given as the plan has") {
  const random_execution e(1, 6);
  const launch_plan made = e.launches(2, 1);
  const std::vector<host_stream> one(1);
  arena_memory arena(made);
  CHECK_THROWS_WITH_AS((launch_calls<host_stream>(made, arena.bytes(), one)), "1 stream is given; the plan is for 2",
                       bad_argument);
}
