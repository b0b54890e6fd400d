// SPDX-License-Identifier: BSL-1.0
// Outputs in the caller's memory: bound, accumulated, and with several executors on one arena.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
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
#include "support/schedules.hpp"

using namespace remat;

namespace {

using bytes = std::vector<std::byte>;

/// Adds tensors as the stand-in kernels do: word by word, lowest byte first.
void add_to(bytes& sum, const bytes& more) {
  REQUIRE(sum.size() == more.size());
  for (std::size_t word = 0; word < sum.size(); word += 8) {
    unsigned carry = 0;
    for (std::size_t i = word; i < std::min(sum.size(), word + 8); ++i) {
      carry += std::to_integer<unsigned>(sum[i]) + std::to_integer<unsigned>(more[i]);
      sum[i] = static_cast<std::byte>(carry & 0xff);
      carry >>= 8;
    }
  }
}

/// Three ways to run: plain, and with both guards.
std::vector<host_options> ways_to_run() {
  std::vector<host_options> out(3);
  out[1].debug = host_debug::poison;
  out[2].debug = host_debug::every_launch;
  out[1].check_inputs = out[2].check_inputs = true;
  return out;
}

/// What the steps with these seeds leave behind, each by itself with its outputs in the arena.
std::vector<test::left_behind> plain_steps(const training_graph& graph, const problem& p,
                                           std::span<const std::uint64_t> seeds) {
  const schedule listed = test::unscheduled(p);
  const test::placed where = test::one_behind_the_other(lifetimes_of(p, listed), 8);
  std::vector<test::left_behind> out;
  for (const std::uint64_t seed : seeds) out.push_back(test::execute(graph, p, listed.steps, where, 8, 1, seed));
  return out;
}

std::string chain_of(const std::exception& e) {
  std::string text = e.what();
  try {
    std::rethrow_if_nested(e);
  } catch (const std::exception& inner) {
    text += " | " + chain_of(inner);
  }
  return text;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return chain_of(e);
  }
  return "";
}

/// x → loss, grad; two operations add to the gradient; `norm` reads it.
struct gradient_step {
  training_graph graph{"gradient"};
  tensor_id x, h, loss, grad, norm;
  op_id forward, first, second, measure;

  explicit gradient_step(bool reads)
      : x(graph.add_tensor({"x", 32, tensor_kind::input})),
        h(graph.add_tensor({"h", 64})),
        loss(graph.add_tensor({"loss", 8})),
        grad(graph.add_tensor({"grad", 32})),
        norm(graph.add_tensor({"norm", 8})),
        forward(graph.add_operation({.name = "forward", .inputs = {x}, .outputs = {h}, .seconds = 1})),
        first(graph.add_operation({.name = "first", .inputs = {h}, .outputs = {loss, grad}, .seconds = 1})),
        second(graph.add_operation({.name = "second", .inputs = {h, x}, .outputs = {grad}, .seconds = 1})),
        measure(graph.add_operation({.name = "measure",
                                     .inputs = reads ? std::vector<tensor_id>{grad} : std::vector<tensor_id>{h},
                                     .outputs = {norm},
                                     .seconds = 1})) {
    graph.add_final_output(loss);
    graph.add_final_output(grad);
    graph.add_final_output(norm);
  }
};

/// Whole numbers: h = 2 x, loss = Σ h, grad = h + x, norm = Σ of what it reads.
void whole_numbers(const gradient_step& s, const host_call& c) {
  const auto sum_of = [](std::span<const std::int32_t> v) {
    std::int64_t sum = 0;
    for (const std::int32_t i : v) sum += i;
    return sum;
  };
  const auto put = [&](std::size_t output, std::size_t i, std::int32_t v) {
    std::int32_t& at = c.output<std::int32_t>(output)[i];
    at = c.adds[output] != 0 ? at + v : v;
  };
  const auto in = c.input<std::int32_t>(0);
  if (c.operation == s.forward)
    for (std::size_t i = 0; i < 8; ++i) c.output<std::int32_t>(0)[i] = 2 * in[i];
  if (c.operation == s.first) {
    c.output<std::int64_t>(0)[0] = sum_of(in.first(8));
    for (std::size_t i = 0; i < 8; ++i) put(1, i, in[i]);
  }
  if (c.operation == s.second)
    for (std::size_t i = 0; i < 8; ++i) put(0, i, c.input<std::int32_t>(1)[i]);
  if (c.operation == s.measure) c.output<std::int64_t>(0)[0] = sum_of(in.first(8));
}

}  // namespace

TEST_CASE("bound outputs hold what they would hold in the arena, for any schedule, layout and number of threads") {
  std::size_t runs = 0, bound = 0, made_again = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    const training_graph graph = test::random_graph(seed, test::graphs_of(4 + static_cast<std::uint32_t>(seed % 16)));
    const problem p(graph, measured_cost{});
    const std::vector<std::uint64_t> seeds{seed, seed + 1};
    const auto expected = plain_steps(graph, p, seeds);
    const schedule once = test::random_schedule(p, seed).plan;
    if (!check(p, once).valid()) continue;
    const schedule plan = test::making_outputs_again(p, once, seed);
    for (std::uint32_t threads = 1; threads <= 3; ++threads)
      for (const host_options& options : ways_to_run()) {
        const test::placed_elsewhere where(p, plan, test::some_outputs(p, seed, 60, 0), threads, seed);
        shared::stand_in_kernels kernels(graph, p);
        launch_plan launches(graph, p, plan.steps, where.layout(), where.options);
        for (const allocation& x : launches.lives().allocations)
          made_again += !x.is_workspace() && launches.is_bound_output(static_cast<tensor_id>(x.tensor)) &&
                        x.last < launches.lives().num_steps();
        test::own_outputs own(launches);
        const test::resident_memory first(p, launches, kernels, seed), second(p, launches, kernels, seed + 1);
        host_executor run(std::move(launches), std::ref(kernels), options);
        own.bind_all(run);
        first.bind_all(run);
        run.run(seed);
        CHECK(test::collect(p, run, kernels.effects()) == expected[0]);
        for (const auto& [t, memory] : own.tensors()) CHECK(memory == expected[0].outputs.at(t));
        test::own_outputs others(
            run.plan());  // the second step writes to other memory, and leaves the first results alone
        others.bind_all(run);
        second.bind_all(run);
        kernels.forget_effects();
        run.run(seed + 1);
        CHECK(test::collect(p, run, kernels.effects()) == expected[1]);
        for (const auto& [t, memory] : own.tensors()) CHECK(memory == expected[0].outputs.at(t));
        for (const auto& [t, memory] : others.tensors()) CHECK(memory == expected[1].outputs.at(t));
        ++runs;
        bound += own.tensors().size();
      }
  }
  CHECK(runs > 1000);
  CHECK(bound > 1000);
  CHECK(made_again > 200);  // outputs that are freed and computed again, in the same memory
}

TEST_CASE("accumulated outputs hold the sum of three micro-batches, byte by byte") {
  std::size_t runs = 0, summed = 0, recomputes = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    const training_graph graph = test::random_graph(seed, test::graphs_of(4 + static_cast<std::uint32_t>(seed % 16)));
    const problem any(graph, measured_cost{});
    const launch_options choice = test::some_outputs(any, seed, 30, 60);
    const problem p = any.producing_once(choice.accumulated_outputs);
    const schedule plan = test::random_schedule(p, seed).plan;
    const check_report report = check(p, plan);
    if (!report.valid()) continue;
    const std::vector<std::uint64_t> seeds{seed, seed + 1, seed + 2};
    const auto expected = plain_steps(graph, p, seeds);
    for (std::uint32_t threads = 1; threads <= 3; ++threads)
      for (const host_options& options : ways_to_run()) {
        const test::placed_elsewhere where(p, plan, choice, threads, seed);
        shared::stand_in_kernels kernels(graph, p);
        launch_plan launches(graph, p, plan.steps, where.layout(), where.options);
        test::own_outputs own(launches);
        std::map<std::uint32_t, bytes> sums;
        for (const tensor_id t : where.options.accumulated_outputs) {
          bytes& memory = own.tensors().at(static_cast<std::uint32_t>(t));
          if (seed % 2 != 0) kernels.fill(t, memory, 99);  // not zero to begin with
          sums[static_cast<std::uint32_t>(t)] = memory;
        }
        const launch_plan& made = launches;
        std::vector<test::resident_memory> batches;
        for (const std::uint64_t s : seeds) batches.emplace_back(p, made, kernels, s);
        host_executor run(std::move(launches), std::ref(kernels), options);
        own.bind_all(run);
        for (std::size_t batch = 0; batch < 3; ++batch) {
          batches[batch].bind_all(run);
          run.run(seeds[batch]);
          for (auto& [t, sum] : sums) add_to(sum, expected[batch].outputs.at(t));
          for (const std::uint32_t t : p.graph().final_outputs) {
            const auto out = run.output(static_cast<tensor_id>(t));
            const bytes& right = sums.count(t) != 0 ? sums[t] : expected[batch].outputs.at(t);
            CHECK(std::equal(out.begin(), out.end(), right.begin(), right.end()));
          }
        }
        ++runs;
        summed += sums.size();
        recomputes += report.recomputes;
      }
  }
  CHECK(runs > 1000);
  CHECK(summed > 1000);
  CHECK(recomputes > 500);
}

TEST_CASE("two executors on one arena, run by turns, leave the right outputs in the caller's memory") {
  std::size_t turns = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    struct member {
      training_graph graph;
      problem p;
      shared::stand_in_kernels kernels;
      launch_plan plan;
      test::own_outputs own;
      member(training_graph g, const schedule& steps, const test::placed_elsewhere& where)
          : graph(std::move(g)),
            p(graph, measured_cost{}),
            kernels(graph, p),
            plan(graph, p, steps.steps, where.layout(), where.options),
            own(plan) {}
    };
    std::vector<member> members;
    members.reserve(2);
    for (const std::uint32_t operations : {6U, 18U}) {
      training_graph graph = test::random_graph(seed + operations, test::graphs_of(operations));
      const problem p(graph, measured_cost{});
      const schedule plan = test::random_schedule(p, seed).plan;
      if (!check(p, plan).valid()) continue;
      const test::placed_elsewhere where(p, plan, test::some_outputs(p, seed, 100, 0), 2, seed);
      members.emplace_back(std::move(graph), plan, where);
    }
    if (members.size() != 2) continue;
    const auto arena_bytes = std::max(members[0].plan.arena_bytes(), members[1].plan.arena_bytes());
    std::vector<std::uint64_t> arena(static_cast<std::size_t>(arena_bytes) / 8 + 1);
    host_options shared;
    shared.arena = std::as_writable_bytes(std::span(arena));
    if (seed % 3 == 1) shared.debug = host_debug::every_launch;
    using executor = host_executor<std::reference_wrapper<shared::stand_in_kernels>>;
    executor a(members[0].plan, std::ref(members[0].kernels), shared);
    executor b(members[1].plan, std::ref(members[1].kernels), shared);
    std::mt19937_64 engine(seed);
    std::uint64_t last[2] = {0, 0};
    for (int turn = 0; turn < 12; ++turn, ++turns) {
      const std::size_t which = engine() % 2;
      member& m = members[which];
      executor& run = which == 0 ? a : b;
      const std::uint64_t now = engine();
      const test::resident_memory memory(m.p, m.plan, m.kernels, now);
      memory.bind_all(run);
      m.own.bind_all(run);
      run.run(now);
      last[which] = now;
      for (std::size_t other = 0; other < 2; ++other) {  // the other one's outputs are still there
        if (last[other] == 0) continue;
        const shared::stand_in_values expected = members[other].kernels.expected(last[other], last[other]);
        for (const auto& [t, own] : members[other].own.tensors()) {
          CHECK(shared::stand_in_kernels::value(own) == expected.tensors[t]);
          members[other].kernels.verify(static_cast<tensor_id>(t), own);
        }
      }
    }
  }
  CHECK(turns > 500);
}

TEST_CASE("an operation may read sums if the caller says so; otherwise the plan is refused") {
  for (const bool reads : {false, true}) {
    const gradient_step s(reads);
    const problem p(s.graph, measured_cost{});
    const schedule plan = test::unscheduled(p);
    launch_options options{.bound_outputs = {s.norm}, .accumulated_outputs = {s.grad}};
    if (reads)
      CHECK(error_of([&] { launch_plan(s.graph, p, plan, options); }) ==
            "operation 3 (measure) reads tensor 3 (grad), an accumulated output: it would read the sum over all "
            "training steps so far; if that is meant, set launch_options::sums_may_be_read");
    options.sums_may_be_read = reads;
    for (const std::uint32_t threads : {1U, 2U}) {
      options.streams = threads;
      host_executor run(launch_plan(s.graph, p, plan, options), [&](const host_call& c) { whole_numbers(s, c); });
      std::vector<std::int32_t> x(8), grad(8, 0);
      std::int64_t norm = 0;
      run.bind(s.x, std::as_bytes(std::span(x)));
      run.bind_output(s.grad, std::as_writable_bytes(std::span(grad)));
      run.bind_output(s.norm, std::as_writable_bytes(std::span(&norm, 1)));
      std::int32_t sum = 0;
      for (std::int32_t batch = 1; batch <= 3; ++batch) {
        std::fill(x.begin(), x.end(), batch);
        run.run();
        sum += 3 * batch;
        CHECK(grad == std::vector<std::int32_t>(8, sum));
        CHECK(norm == (reads ? 8 * sum : 16 * batch));
        std::int64_t loss = 0;
        std::memcpy(&loss, run.output(s.loss).data(), sizeof loss);
        CHECK(loss == 16 * batch);  // not accumulated, though its kernel adds to the gradient
      }
    }
  }
}

TEST_CASE("bindings of outputs that cannot be right are refused with the tensor, before anything runs") {
  const gradient_step s(false);
  const problem p(s.graph, measured_cost{});
  int ran = 0;
  const launch_plan plan(s.graph, p, test::unscheduled(p),
                         {.bound_outputs = {s.norm}, .accumulated_outputs = {s.grad}});
  std::vector<std::byte> slab(static_cast<std::size_t>(plan.arena_bytes()) + 1024);
  void* at = slab.data();
  std::size_t room = slab.size();
  std::align(256, static_cast<std::size_t>(plan.arena_bytes()), at, room);
  host_options options;
  options.arena = {static_cast<std::byte*>(at), static_cast<std::size_t>(plan.arena_bytes())};
  host_executor run(
      plan, [&](const host_call&) { ++ran; }, options);
  bytes x(32), norm(8), grad(40);
  CHECK(error_of([&] { run.bind(s.grad, grad); }) ==
        "tensor 3 (grad) is an output, which operations write; bind it by bind_output");
  CHECK(error_of([&] { run.bind_output(s.x, x); }) ==
        "tensor 0 (x) is always resident, and no operation writes it; bind it by bind");
  CHECK(error_of([&] { run.bind_output(s.loss, norm); }) ==
        "tensor 2 (loss) lies in the arena; name it in launch_options::bound_outputs or accumulated_outputs to bind "
        "it, which final outputs alone can be");
  CHECK(error_of([&] { run.bind_output(tensor_id{7}, norm); }) == "there is no tensor 7; there are 5");
  CHECK(error_of([&] { run.bind_output(s.grad, std::span(grad).first(31)); }) ==
        "tensor 3 (grad) is bound to 31 bytes; it has 32 bytes");
  CHECK(error_of([&] { run.bind_output(s.grad, run.arena().last(32)); }) ==
        "tensor 3 (grad) is bound to memory that shares bytes with the arena");
  run.bind(s.x, x);
  CHECK(error_of([&] { run.run(); }) ==
        "tensor 3 (grad) is not bound to memory; it has 32 bytes (1 more are not bound)");
  run.bind_output(s.grad, grad);
  run.bind_output(s.norm, std::span(grad).subspan(31));
  const std::string shares = " is bound to memory that shares bytes with that of ";
  const std::string own = "; an output needs memory of its own";
  CHECK(error_of([&] { run.run(); }) == "tensor 3 (grad)" + shares + "tensor 4 (norm)" + own);
  CHECK(error_of([&] { run.run(); }) == "tensor 3 (grad)" + shares + "tensor 4 (norm)" + own);
  run.bind_output(s.norm, std::span(grad).subspan(32));  // next to it, and sharing nothing
  CHECK(run.run().launches == 4);
  run.bind(s.x, std::span(grad).first(32));
  CHECK(error_of([&] { run.run(); }) == "tensor 3 (grad)" + shares + "tensor 0 (x)" + own);
  run.bind(s.x, x);
  run.bind_output(s.grad, x);
  CHECK(error_of([&] { run.run(); }) == "tensor 3 (grad)" + shares + "tensor 0 (x)" + own);
  CHECK(ran == 4);
  // Buffers are exchanged, one after the other.
  run.bind(s.x, grad);
  run.bind_output(s.norm, norm);
  CHECK(run.run().launches == 4);
  CHECK(run.output(s.grad).data() == x.data());
  CHECK(run.output(s.grad).size() == 32);
}

TEST_CASE("an executor refuses an arena above its budget") {
  const gradient_step s(false);
  const problem p(s.graph, measured_cost{});
  const schedule plan = test::unscheduled(p);
  const std::int64_t bytes = launch_plan(s.graph, p, plan).arena_bytes();
  const auto with_budget = [&](std::int64_t budget) {
    host_options options;
    options.arena_budget = budget;
    return error_of([&] {
      host_executor(
          launch_plan(s.graph, p, plan), [](const host_call&) {}, options);
    });
  };
  CHECK(with_budget(bytes).empty());
  CHECK(with_budget(bytes - 1) == "the arena has " + std::to_string(bytes) + " bytes; its budget is " +
                                      std::to_string(bytes - 1) + " bytes; fit_arena finds schedules whose arena fits");
  CHECK(with_budget(-1) == "the arena's budget is -1 bytes; it must not be negative");
}

TEST_CASE("debug modes poison a bound output where it must be written, and keep an accumulated one") {
  const gradient_step s(true);
  const problem p(s.graph, measured_cost{});
  for (const host_debug debug : {host_debug::poison, host_debug::every_launch}) {
    std::size_t poisoned = 0, kept = 0;
    bool spoils = false;
    const auto kernels = [&](const host_call& c) {
      for (std::size_t i = 0; i < c.outputs.size(); ++i)
        for (const std::byte b : c.outputs[i]) {
          poisoned += c.adds[i] == 0 && b == detail::host::poison;
          kept += c.adds[i] != 0 && b == std::byte{7};
        }
      for (std::size_t i = 0; i < c.outputs.size(); ++i)
        if (c.adds[i] == 0) std::fill(c.outputs[i].begin(), c.outputs[i].end(), std::byte{1});
      if (spoils && c.operation == s.measure) const_cast<std::byte*>(c.inputs[0].data())[0] = std::byte{8};
    };
    host_options options;
    options.debug = debug;
    options.check_inputs = true;
    host_executor run(
        launch_plan(s.graph, p, test::unscheduled(p),
                    {.bound_outputs = {s.loss, s.norm}, .accumulated_outputs = {s.grad}, .sums_may_be_read = true}),
        kernels, options);
    bytes x(32), loss(8), norm(8), grad(32, std::byte{7});
    run.bind(s.x, x);
    run.bind_output(s.loss, loss);
    run.bind_output(s.norm, norm);
    run.bind_output(s.grad, grad);
    run.run();
    run.run();
    CHECK(poisoned == 2 * (64 + 8 + 8));
    CHECK(kept == 2 * (32 + 32));
    CHECK(loss == bytes(8, std::byte{1}));
    CHECK(grad == bytes(32, std::byte{7}));
    spoils = true;
    CHECK(error_of([&] { run.run(); }).find("a check of it failed: it changed its input tensor 3 (grad)") !=
          std::string::npos);
  }
}
