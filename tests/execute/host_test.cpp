// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/host.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "shared/stand_in.hpp"
#include "support/executions.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

using test::graphs_of;

/// What a test says of an error, the nested ones too.
std::string chain_of(const std::exception& e) {
  std::string text = e.what();
  try {
    std::rethrow_if_nested(e);
  } catch (const std::exception& inner) {
    text += " | " + chain_of(inner);
  } catch (...) {
    text += " | something else";
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

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// x → a → b → c, where c is the step's output, and b is freed before d.
struct small_step {
  training_graph graph{"small"};
  tensor_id x, a, b, c, d;
  op_id first, second, third, fourth;
  problem p;
  std::vector<std::byte> input = std::vector<std::byte>(32, std::byte{1});

  small_step()
      : x(graph.add_tensor({"x", 32, tensor_kind::input})),
        a(graph.add_tensor({"a", 64})),
        b(graph.add_tensor({"b", 64})),
        c(graph.add_tensor({"c", 64})),
        d(graph.add_tensor({"d", 64})),
        first(graph.add_operation({.name = "first", .inputs = {x}, .outputs = {a}, .seconds = 1, .workspace = 16})),
        second(graph.add_operation({.name = "second", .inputs = {a}, .outputs = {b}, .seconds = 1})),
        third(graph.add_operation({.name = "third", .inputs = {b, x}, .outputs = {c}, .seconds = 1})),
        fourth(graph.add_operation({.name = "fourth", .inputs = {c}, .outputs = {d}, .seconds = 1})),
        p((graph.add_final_output(d), problem(graph, measured_cost{}))) {}

  [[nodiscard]] schedule plan() const {
    schedule s;
    s.compute(first);
    s.compute(second);
    s.free(a);
    s.compute(third);
    s.free(b);
    s.compute(fourth);
    s.free(c);
    return s;
  }
  [[nodiscard]] launch_plan launches(std::uint32_t streams = 1) const {
    const schedule s = plan();
    const test::placed where = test::random_layout(lifetimes_of(p, s), 16, 3);
    return launch_plan(graph, p, s.steps, {where.offsets, where.arena_bytes, 16}, streams);
  }
};

/// Gives `limit` bytes at most, and counts.
class limited : public std::pmr::memory_resource {
 public:
  explicit limited(std::size_t limit) : limit_(limit) {}
  std::size_t allocations = 0, in_use = 0, alignment = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (in_use + bytes > limit_) throw std::bad_alloc();
    in_use += bytes;
    ++allocations;
    alignment = align;
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t align) override {
    in_use -= bytes;
    std::pmr::new_delete_resource()->deallocate(p, bytes, align);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  std::size_t limit_;
};

}  // namespace

TEST_CASE("random schedules with reused memory leave behind what the listed order does, on any number of threads") {
  std::size_t runs = 0, recomputes = 0, waits = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const training_graph graph = test::random_graph(seed, graphs_of(4 + static_cast<std::uint32_t>(seed % 20)));
    const problem p(graph, measured_cost{});
    const schedule listed = test::unscheduled(p);
    const test::left_behind expected =
        test::execute(graph, p, listed.steps, test::one_behind_the_other(lifetimes_of(p, listed), 8), 8, 1, seed);
    for (std::uint32_t variant = 0; variant < 4; ++variant) {
      const schedule plan = test::random_schedule(p, seed * 4 + variant).plan;
      const check_report report = check(p, plan);
      if (!report.valid()) continue;
      const lifetimes lives = lifetimes_of(p, plan);
      const test::placed where = test::random_layout(lives, 8, seed + variant);
      for (std::uint32_t threads = 1; threads <= 3; ++threads) {
        ++runs;
        recomputes += report.recomputes;
        CHECK(test::execute(graph, p, plan.steps, where, 8, threads, seed) == expected);
        waits += assign_streams(p, lives, plan.steps, {threads, where.offsets}).waits.values.size();
      }
      for (const host_debug debug : {host_debug::poison, host_debug::every_launch}) {
        host_options options;
        options.debug = debug;
        options.check_inputs = true;
        CHECK(test::execute(graph, p, plan.steps, where, 8, 2, seed, options) == expected);
      }
    }
  }
  CHECK(runs > 2000);
  CHECK(recomputes > 500);
  CHECK(waits > 500);
}

TEST_CASE("what a kernel throws leaves the run with the operation's name, and the next run begins anew") {
  const small_step s;
  for (const std::uint32_t threads : {1U, 2U, 3U}) {
    bool fails = true;
    shared::stand_in_kernels stand_in(s.graph, s.p);
    const auto kernels = [&](const host_call& c) {
      if (fails && c.operation == s.third) throw std::runtime_error("no such file");
      stand_in(c);
    };
    host_executor run(s.launches(threads), kernels);
    std::vector<std::byte> x(32);
    stand_in.fill(s.x, x, 1);
    run.bind(s.x, x);
    for (int i = 0; i < 3; ++i) {
      try {
        run.run(9);
        FAIL("no error");
      } catch (const execution_error& e) {
        CHECK(e.operation() == s.third);
        CHECK(e.step() == 3);
        CHECK(chain_of(e) == "operation 2 (third) in step 3: its kernel failed: no such file | no such file");
      }
      fails = false;
      CHECK(run.run(9).status == run_status::done);
      CHECK(shared::stand_in_kernels::value(run.output(s.d)) == stand_in.expected(9, 1).tensors[index(s.d)]);
      fails = true;
    }
  }
}

TEST_CASE("with several threads the others stop, nobody waits for ever, and of several errors the earliest is told") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const training_graph graph = test::random_graph(seed, graphs_of(20));
    const problem p(graph, measured_cost{});
    const schedule plan = test::random_schedule(p, seed).plan;
    if (!check(p, plan).valid()) continue;
    const test::placed where = test::random_layout(lifetimes_of(p, plan), 8, seed);
    shared::stand_in_kernels stand_in(graph, p);
    std::uint32_t bad = 100;
    launch_plan launches(graph, p, plan.steps, {where.offsets, where.arena_bytes, 8}, 4);
    const test::resident_memory memory(p, launches, stand_in, seed);
    const std::size_t most = launches.size();
    host_executor run(std::move(launches), [&](const host_call& c) {
      if (index(c.operation) % 20 == bad) throw 7;
      stand_in(c);
    });
    memory.bind_all(run);
    for (bad = 0; bad < 20; ++bad) {
      bool runs_it = false;
      for (const launch& l : run.plan().launches()) runs_it = runs_it || index(l.operation) % 20 == bad;
      if (runs_it)
        CHECK_THROWS_AS(run.run(seed), execution_error);
      else
        CHECK(run.run(seed).launches == most);
    }
    bad = 100;
    CHECK(run.run(seed).launches == most);
    const shared::stand_in_values expected = stand_in.expected(seed, seed);
    for (const std::uint32_t t : p.graph().final_outputs)
      CHECK(shared::stand_in_kernels::value(run.output(static_cast<tensor_id>(t))) == expected.tensors[t]);
  }
}

TEST_CASE(
    "the arena is one allocation of the planned bytes, and one that does not fit is refused before anything runs") {
  const small_step s;
  const launch_plan plan = s.launches();
  const auto bytes = static_cast<std::size_t>(plan.arena_bytes());
  int ran = 0;
  const auto kernels = [&](const host_call&) { ++ran; };
  limited exact(bytes);
  {
    host_options options;
    options.memory = &exact;
    host_executor run(plan, kernels, options);
    run.bind(s.x, s.input);
    run.run();
    run.run();
    CHECK(exact.allocations == 1);
    CHECK(exact.alignment == 16);
    CHECK(exact.in_use == bytes);
    CHECK(run.arena().size() == bytes);
    CHECK(ran == 8);
  }
  CHECK(exact.in_use == 0);
  limited short_by_one(bytes - 16);
  host_options refused;
  refused.memory = &short_by_one;
  CHECK(error_of([&] { host_executor(plan, kernels, refused); }) ==
        "the memory resource does not give the arena, " + std::to_string(bytes) +
            " bytes aligned to 16: std::bad_alloc | std::bad_alloc");

  alignas(16) std::array<std::byte, 4096> own{};
  host_options mine;
  mine.arena = std::span(own).first(bytes);
  {
    host_executor run(plan, kernels, mine);
    CHECK(run.arena().data() == own.data());
  }
  mine.arena = std::span(own).first(bytes - 16);
  CHECK(error_of([&] { host_executor(plan, kernels, mine); }) == "the arena has " + std::to_string(bytes - 16) +
                                                                     " bytes; the memory plan needs " +
                                                                     std::to_string(bytes) + " bytes");
  mine.arena = std::span(own).subspan(8);
  CHECK(error_of([&] { host_executor(plan, kernels, mine); }) ==
        "the arena is not aligned to 16 bytes, as the memory plan needs it");
  CHECK(ran == 8);
}

TEST_CASE("a binding that is missing or too short is refused with tensor and bytes, before anything runs") {
  const small_step s;
  int ran = 0;
  host_executor run(s.launches(), [&](const host_call&) { ++ran; });
  CHECK(error_of([&] { run.run(); }) == "tensor 0 (x) is not bound to memory; it has 32 bytes");
  CHECK(error_of([&] { run.bind(s.x, std::span(s.input).first(31)); }) ==
        "tensor 0 (x) is bound to 31 bytes; it has 32 bytes");
  CHECK(contains(error_of([&] { run.bind(s.a, s.input); }), "tensor 1 (a) is made by operations"));
  CHECK(error_of([&] { run.bind(tensor_id{5}, s.input); }) == "there is no tensor 5; there are 5");
  CHECK(error_of([&] { (void)run.output(s.c); }) == "tensor 3 (c) is no output of the step");
  CHECK(error_of([&] { (void)run.output(tensor_id{9}); }) == "tensor 9 is no output of the step");
  CHECK(ran == 0);
  run.bind(s.x, s.input);
  CHECK(run.run().launches == 4);
}

TEST_CASE("kernels see the tensors in the graph's order, and another binding from the next run on") {
  const small_step s;
  std::vector<std::byte> first(40, std::byte{1}), second(40, std::byte{2});
  std::vector<const std::byte*> seen;
  host_executor run(s.launches(), [&](const host_call& c) {
    if (c.operation != s.third) return;
    CHECK(c.inputs.size() == 2);
    CHECK(c.inputs[0].size() == 64);
    CHECK(c.inputs[1].size() == 32);
    seen.push_back(c.inputs[1].data());
  });
  run.bind(s.x, first);
  run.run();
  run.bind(s.x, second);
  run.run();
  CHECK(seen == std::vector<const std::byte*>{first.data(), second.data()});
}

TEST_CASE("a stop request ends the run before its next launch, and that run alone") {
  const small_step s;
  for (const bool watched : {false, true})
    for (const std::uint32_t threads : {1U, 3U}) {
      std::stop_source stop;
      std::atomic<int> ran = 0;
      host_options options;
      options.check_inputs = watched;
      host_executor run(
          s.launches(threads),
          [&](const host_call& c) {
            ++ran;
            if (c.operation == s.second) stop.request_stop();
          },
          options);
      run.bind(s.x, s.input);
      const host_report report = run.run(0, stop.get_token());
      CHECK(report.status == run_status::cancelled);
      CHECK(report.launches == 2);
      CHECK(ran == 2);
      CHECK(run.run(0, stop.get_token()).launches == 0);
      CHECK(run.run(0, std::stop_source().get_token()).status == run_status::done);
      CHECK(run.run().launches == 4);
    }
}

TEST_CASE("a run while another one has not ended is refused, and leaves that one undisturbed") {
  const small_step s;
  for (const bool watched : {false, true})
    for (const std::uint32_t threads : {1U, 3U}) {
      shared::stand_in_kernels stand_in(s.graph, s.p);
      std::atomic<int> begun = 0;
      std::atomic<bool> go_on = false;
      host_options options;
      options.debug = watched ? host_debug::poison : host_debug::off;
      options.timing = watched;
      host_executor run(
          s.launches(threads),
          [&](const host_call& c) {
            if (c.operation == s.second) {
              ++begun;
              begun.notify_all();
              go_on.wait(false);
            }
            stand_in(c);
          },
          options);
      std::vector<std::byte> x(32), y(32);
      stand_in.fill(s.x, x, 1);
      stand_in.fill(s.x, y, 2);
      run.bind(s.x, x);
      host_report report;
      std::thread first([&] { report = run.run(9); });
      begun.wait(0);
      constexpr const char* refusal = "the executor is running a training step already";
      for (int i = 0; i < 3; ++i) {
        CHECK(contains(error_of([&] { run.run(10); }), refusal));
        CHECK(contains(error_of([&] { run.bind(s.x, y); }), refusal));
      }
      go_on = true;
      go_on.notify_all();
      first.join();
      CHECK(begun == 1);
      CHECK(report.status == run_status::done);
      CHECK(report.launches == 4);
      CHECK(shared::stand_in_kernels::value(run.output(s.d)) == stand_in.expected(9, 1).tensors[index(s.d)]);
      run.bind(s.x, y);
      CHECK(run.run(10).status == run_status::done);
      CHECK(shared::stand_in_kernels::value(run.output(s.d)) == stand_in.expected(10, 2).tensors[index(s.d)]);
    }
}

TEST_CASE("of runs from many threads each is whole or refused; a kernel cannot run its own executor") {
  const small_step s;
  shared::stand_in_kernels stand_in(s.graph, s.p);
  std::atomic<std::size_t> calls = 0;
  host_executor run(s.launches(2), [&](const host_call& c) {
    ++calls;
    stand_in(c);
  });
  std::vector<std::byte> x(32);
  stand_in.fill(s.x, x, 1);
  run.bind(s.x, x);
  std::atomic<std::size_t> whole = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 500; ++i) {
        try {
          whole += run.run(i).launches == 4;
        } catch (const bad_argument&) {
          ++refused;
        }
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(whole >= 1);
  CHECK(whole + refused == 1500);
  CHECK(calls == 4 * whole);

  std::function<void()> again;
  host_executor nested(s.launches(), [&](const host_call&) { again(); });
  nested.bind(s.x, s.input);
  again = [&] { nested.run(); };
  CHECK(contains(error_of([&] { nested.run(); }), "operation 0 (first) in step 0: its kernel failed: the executor is"));
  again = [] {};
  CHECK(nested.run().status == run_status::done);
}

TEST_CASE("a report has the memory of the schedule and the times of the launches") {
  const small_step s;
  host_options options;
  options.timing = true;
  for (const std::uint32_t threads : {1U, 2U}) {
    host_executor run(
        s.launches(threads), [](const host_call&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); },
        options);
    run.bind(s.x, s.input);
    const host_report report = run.run();
    REQUIRE(report.times.size() == 4);
    std::chrono::nanoseconds before{0};
    for (const launch_time& t : report.times) {
      CHECK(t.start >= before);
      CHECK(t.duration >= std::chrono::milliseconds(2));
      before = t.start + t.duration;
    }
    CHECK(report.seconds >= std::chrono::duration<double>(before).count());
    CHECK(run.plan().peak_bytes() == 128);
    const auto memory = run.plan().memory();
    CHECK(std::vector<std::int64_t>(memory.begin(), memory.end()) == std::vector<std::int64_t>{80, 128, 128, 128});
  }
}

TEST_CASE("memory written to after its tensor was freed is noticed, with names") {
  const small_step s;
  std::byte* kept = nullptr;
  op_id writer = s.third;
  const auto kernels = [&](const host_call& c) {
    if (c.operation == s.first) kept = c.outputs[0].data();
    for (const auto& out : c.outputs) std::fill(out.begin(), out.end(), std::byte{1});
    if (c.operation == writer) kept[5] = std::byte{9};
  };
  // Everything has bytes of its own: what is freed stays free.
  const schedule plan = s.plan();
  const test::placed where = test::one_behind_the_other(lifetimes_of(s.p, plan), 16);
  const launch_plan launches(s.graph, s.p, plan.steps, {where.offsets, where.arena_bytes, 16});
  host_options options;
  const auto error = [&](const launch_plan& l) {
    return error_of([&] {
      host_executor run(l, kernels, options);
      run.bind(s.x, s.input);
      run.run();
    });
  };
  CHECK(error(launches).empty());
  options.debug = host_debug::every_launch;
  CHECK(
      contains(error(launches),
               "operation 2 (third) in step 3: a check of it failed: it wrote to byte 5 of the arena, which was byte 5 "
               "of tensor 1 (a) until step 2 freed it"));
  options.debug = host_debug::poison;
  CHECK(contains(error(launches), "at the end of the step: some operation wrote to byte 5 of the arena"));
  writer = s.second;  // a is still there then
  CHECK(error(launches).empty());

  // Where the memory is given to the next tensor, before that begins.
  std::vector<std::int64_t> offsets = where.offsets;
  const lifetimes lives = lifetimes_of(s.p, plan);
  for (std::size_t i = 0; i < offsets.size(); ++i)
    if (lives.allocations[i].tensor == index(s.d)) offsets[i] = 0;
  const launch_plan reused(s.graph, s.p, plan.steps, {offsets, where.arena_bytes, 16});
  writer = s.third;
  CHECK(contains(
      error(reused),
      "operation 3 (fourth) in step 5: a check of it failed: before it began, some operation wrote to byte 5 of "
      "the arena, which was byte 5 of tensor 1 (a) until step 2 freed it; the launch before was "
      "operation 2 (third)"));
}

TEST_CASE("fresh outputs hold poison, and a kernel that changes an input is named") {
  const small_step s;
  std::size_t poisoned = 0;
  bool spoils = false;
  const auto kernels = [&](const host_call& c) {
    for (const auto& out : c.outputs) {
      for (const std::byte b : out) poisoned += b == detail::host::poison;
      std::fill(out.begin(), out.end(), std::byte{1});
    }
    if (spoils && c.operation == s.third) const_cast<std::byte*>(c.inputs[0].data())[63] = std::byte{2};
  };
  host_options options;
  options.debug = host_debug::poison;
  options.check_inputs = true;
  host_executor run(s.launches(), kernels, options);
  run.bind(s.x, s.input);
  run.run();
  run.run();
  CHECK(poisoned == 2 * 4 * 64);
  spoils = true;
  CHECK(contains(error_of([&] { run.run(); }),
                 "operation 2 (third) in step 3: a check of it failed: it changed its input tensor 2 (b)"));
}

TEST_CASE("10,000 steps leave the same bytes behind, in the same arena") {
  const training_graph graph = test::random_graph(11, graphs_of(16));
  const problem p(graph, measured_cost{});
  const schedule plan = test::random_schedule(p, 3).plan;
  REQUIRE(check(p, plan).valid());
  const test::placed where = test::random_layout(lifetimes_of(p, plan), 8, 5);
  for (const std::uint32_t threads : {1U, 2U}) {
    shared::stand_in_kernels stand_in(graph, p);
    launch_plan launches(graph, p, plan.steps, {where.offsets, where.arena_bytes, 8}, threads);
    const test::resident_memory memory(p, launches, stand_in, 1);
    host_executor run(std::move(launches), std::ref(stand_in));
    memory.bind_all(run);
    run.run(5);
    const test::left_behind first = test::collect(p, run, stand_in.effects());
    const std::byte* const arena = run.arena().data();
    for (int i = 0; i < 10'000; ++i) {
      stand_in.forget_effects();
      const host_report report = run.run(5);
      if (report.launches != run.plan().size() || run.arena().data() != arena) FAIL("a step differs");
      if (i % 1000 == 0) CHECK(test::collect(p, run, stand_in.effects()) == first);
    }
    CHECK(test::collect(p, run, stand_in.effects()) == first);
    stand_in.forget_effects();
    run.run(6);
    CHECK(test::collect(p, run, stand_in.effects()) != first);
  }
}

TEST_CASE("kernels on different streams run at the same time") {
  // Four branches of three kernels behind one, joined by another.
  training_graph g;
  const tensor_id x = g.add_tensor({"x", 8});
  std::vector<tensor_id> ends;
  g.add_operation({.name = "fork", .outputs = {x}, .seconds = 1});
  for (int branch = 0; branch < 4; ++branch) {
    tensor_id last = x;
    for (int i = 0; i < 3; ++i) {
      const tensor_id next = g.add_tensor({"", 8});
      g.add_operation({.inputs = {last}, .outputs = {next}, .seconds = 1.0 + branch % 2});
      last = next;
    }
    ends.push_back(last);
  }
  const tensor_id y = g.add_tensor({"y", 8});
  g.add_operation({.name = "join", .inputs = ends, .outputs = {y}, .seconds = 1});
  g.add_final_output(y);
  const problem p(g, measured_cost{});
  const schedule plan = test::unscheduled(p);
  const test::placed where = test::one_behind_the_other(lifetimes_of(p, plan), 8);
  for (const std::uint32_t threads : {1U, 2U, 4U}) {
    // The first kernels of the branches wait for each other: on every stream one must be running at the same moment.
    std::atomic<std::uint32_t> begun{0}, met{0}, last{0};
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    host_executor run(launch_plan(g, p, plan.steps, {where.offsets, where.arena_bytes, 8}, threads),
                      [&](const host_call&) {
                        const std::uint32_t count = begun++;
                        if (count == 0 || count > threads) {  // the fork, or a later kernel
                          last = count;
                          return;
                        }
                        while (begun <= threads && std::chrono::steady_clock::now() < give_up)
                          std::this_thread::yield();
                        if (begun > threads) ++met;
                      });
    CHECK(run.run().status == run_status::done);
    CHECK(met == threads);
    CHECK(last == 13);  // the join
    if (threads == 4) CHECK(run.plan().assignment().makespan == 8);
    if (threads == 1) CHECK(run.plan().assignment().makespan == 20);
  }
}
