// SPDX-License-Identifier: BSL-1.0
//
// Schedules with copies to the host, on the host executor.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/profile.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "shared/stand_in.hpp"
#include "support/copy_executions.hpp"
#include "support/executions.hpp"
#include "support/outputs_elsewhere.hpp"

using namespace remat;

namespace {

/// x → a → b → c, where a lies on the host while b is made.
struct copied_step {
  training_graph graph{"copied"};
  tensor_id x, a, b, c;
  op_id first, second, third;
  problem p;
  std::vector<std::byte> input = std::vector<std::byte>(32, std::byte{1});

  copied_step()
      : x(graph.add_tensor({"x", 32, tensor_kind::input})),
        a(graph.add_tensor({"a", 64})),
        b(graph.add_tensor({"b", 64})),
        c(graph.add_tensor({"c", 64})),
        first(graph.add_operation({.name = "first", .inputs = {x}, .outputs = {a}, .seconds = 1})),
        second(graph.add_operation({.name = "second", .inputs = {x}, .outputs = {b}, .seconds = 1})),
        third(graph.add_operation({.name = "third", .inputs = {a, b}, .outputs = {c}, .seconds = 1})),
        p((graph.add_final_output(c), problem(graph, measured_cost{}).with_link({}))) {}

  [[nodiscard]] schedule plan() const {
    schedule s;
    s.compute(first);
    s.offload(a);
    s.free(a);
    s.compute(second);
    s.prefetch(a);
    s.drop(a);
    s.compute(third);
    return s;
  }
  [[nodiscard]] launch_plan launches(const launch_options& options = {.memory = {.alignment = 16}}) const {
    return launch_plan(graph, p, plan(), options);
  }
};

/// Each output is the sum of all bytes of its inputs, and 1 for each operation.
constexpr auto add_up = [](const host_call& c) {
  unsigned sum = 1 + static_cast<unsigned>(index(c.operation));
  for (const auto& in : c.inputs)
    for (const std::byte b : in) sum += std::to_integer<unsigned>(b);
  for (const auto& out : c.outputs) std::memset(out.data(), static_cast<int>(sum & 0xff), out.size());
};

/// The step's output, by hand.
constexpr unsigned expected_byte = (3 + 64 * ((1 + 32) & 0xff) + 64 * ((2 + 32) & 0xff)) & 0xff;

template <class Executor>
bool right(const Executor& run, tensor_id output) {
  for (const std::byte b : run.output(output))
    if (b != static_cast<std::byte>(expected_byte)) return false;
  return true;
}

/// `add_up`, and copies that fail at a chosen step.
struct failing_copies {
  const step_kind* fails = nullptr;  // null: none
  std::stop_source* stops = nullptr;
  void operator()(const host_call& c) const { add_up(c); }
  void copy(const host_copy& c) const {
    if (stops != nullptr && c.kind == step_kind::offload) stops->request_stop();
    if (fails != nullptr && *fails == c.kind) throw std::runtime_error("the link is down");
    std::memcpy(c.to.data(), c.from.data(), c.from.size());
  }
};
static_assert(copies_for<failing_copies, host_stream>);
static_assert(copies_for<std::reference_wrapper<shared::stand_in_kernels>, host_stream>);
static_assert(!copies_for<decltype(add_up), host_stream>);

/// Counts allocations, and remembers their sizes.
class counted : public std::pmr::memory_resource {
 public:
  std::vector<std::size_t> sizes{};

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    sizes.push_back(bytes);
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(p, bytes, align);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

TEST_CASE("schedules with copies leave behind, byte for byte, what the listed order does without them") {
  std::size_t copies = 0, with_copies = 0, reused = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    test::copying_execution e(seed, 4 + static_cast<std::uint32_t>(seed % 10), seed % 3 == 0);
    const schedule listed = test::unscheduled(e.p);
    const test::left_behind expected =
        test::execute(e.graph, e.p, listed, test::one_behind_the_other(lifetimes_of(e.p, listed), 8), 8, 1, seed);
    launch_plan plan = e.launches();
    const test::resident_memory memory(e.p, plan, e.kernels, seed);
    test::own_outputs own(plan);
    test::poisoning_kernels kernels(e.kernels, plan, true);
    host_options options;
    options.timing = seed % 4 == 1;
    host_executor run(std::move(plan), std::ref(kernels), options);
    memory.bind_all(run);
    own.bind_all(run);
    for (int round = 0; round < 2; ++round) {
      e.kernels.forget_effects();
      kernels.begin(run.arena(), run.host_arena());
      CHECK(run.run(seed).launches == run.plan().size());
      CHECK(test::collect(e.p, run, e.kernels.effects()) == expected);
    }
    std::int64_t on_host = 0;
    for (const allocation& x : run.plan().lives().host) on_host += x.bytes;
    with_copies += run.plan().num_streams() == 3;
    reused += on_host > run.plan().host_arena_bytes() + 64;
    for (const launch& l : run.plan().launches()) copies += l.is_copy();
  }
  CHECK(with_copies > 800);
  CHECK(copies > 4000);
  CHECK(reused > 100);
}

TEST_CASE("the debug modes and checked inputs accept right schedules with copies") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    test::copying_execution e(seed, 10, seed % 2 == 0);
    launch_plan plan = e.launches();
    const test::resident_memory memory(e.p, plan, e.kernels, seed);
    test::own_outputs own(plan);
    host_options options;
    options.debug = seed % 3 == 0 ? host_debug::poison : host_debug::every_launch;
    options.check_inputs = seed % 3 != 2;
    options.timing = true;
    host_executor run(std::move(plan), std::ref(e.kernels), options);
    memory.bind_all(run);
    own.bind_all(run);
    CHECK(run.run(seed).times.size() == run.plan().size());
    const shared::stand_in_values expected = e.kernels.expected(seed, seed);
    for (const std::uint32_t t : e.p.graph().final_outputs)
      CHECK(shared::stand_in_kernels::value(run.output(static_cast<tensor_id>(t))) == expected.tensors[t]);
  }
}

TEST_CASE("the executor copies by itself where the kernels do not") {
  const copied_step s;
  counted memory;
  host_executor run(s.launches(), add_up, {.memory = &memory});
  CHECK(run.arena().size() == 192);
  CHECK(run.host_arena().size() == 64);
  CHECK(memory.sizes == std::vector<std::size_t>{run.arena().size(), 64});
  run.bind(s.x, s.input);
  for (int i = 0; i < 100; ++i) {
    run.run();
    REQUIRE(right(run, s.c));
  }
  CHECK(run.plan().label(run.plan().launches()[1]) == "the copy of tensor 1 (a) to the host");
  CHECK(run.plan().label(run.plan().launches()[3]) == "the copy of tensor 1 (a) from the host");
  CHECK(run.plan().label(run.plan().launches()[2]) == "operation 1 (second)");
}

TEST_CASE("a fault in a copy names the tensor, and the next run is right") {
  const copied_step s;
  for (const step_kind kind : {step_kind::offload, step_kind::prefetch})
    for (const host_debug debug : {host_debug::off, host_debug::poison}) {
      failing_copies kernels;
      host_executor run(s.launches(), std::ref(kernels), {.debug = debug});
      run.bind(s.x, s.input);
      for (int i = 0; i < 50; ++i) {
        kernels.fails = &kind;
        try {
          run.run();
          FAIL("no error");
        } catch (const execution_error& e) {
          REQUIRE(e.tensor());
          CHECK(*e.tensor() == s.a);
          CHECK(e.step() == (kind == step_kind::offload ? 1 : 4));
          CHECK(std::string(e.what()) == (kind == step_kind::offload
                                              ? "the copy of tensor 1 (a) to the host in step 1: copying failed: "
                                                "the link is down"
                                              : "the copy of tensor 1 (a) from the host in step 4: copying failed: "
                                                "the link is down"));
          CHECK_THROWS_AS(std::rethrow_if_nested(e), std::runtime_error);
        }
        kernels.fails = nullptr;
        CHECK(run.run().status == run_status::done);
        CHECK(right(run, s.c));
      }
    }
}

TEST_CASE("the fault of a kernel is the step's, while copies run") {
  const copied_step s;
  bool fails = true;
  const auto kernels = [&](const host_call& c) {
    if (fails && c.operation == s.second) throw std::runtime_error("out of luck");
    add_up(c);
  };
  host_executor run(s.launches(), kernels);
  run.bind(s.x, s.input);
  for (int i = 0; i < 50; ++i) {
    fails = true;
    try {
      run.run();
      FAIL("no error");
    } catch (const execution_error& e) {
      CHECK_FALSE(e.tensor());
      CHECK(e.operation() == s.second);
    }
    fails = false;
    run.run();
    CHECK(right(run, s.c));
  }
}

TEST_CASE("a stop request in a copy ends the step, and the next run is right") {
  const copied_step s;
  failing_copies kernels;
  host_executor run(s.launches(), std::ref(kernels));
  run.bind(s.x, s.input);
  for (int i = 0; i < 50; ++i) {
    std::stop_source source;
    kernels.stops = &source;
    const host_report report = run.run(0, source.get_token());
    CHECK(report.status == run_status::cancelled);
    CHECK(report.launches >= 2);  // a was made, and its copy was under way
    CHECK(report.launches < run.plan().size());
    kernels.stops = nullptr;
    CHECK(run.run().status == run_status::done);
    CHECK(right(run, s.c));
  }
}

TEST_CASE("an arena on the host that does not fit is refused") {
  const copied_step s;
  const auto error_of = [&](const host_options& options) -> std::string {
    try {
      const host_executor run(s.launches(), add_up, options);
    } catch (const bad_argument& e) {
      return e.what();
    }
    return "";
  };
  CHECK(error_of({.host_arena_budget = 64}).empty());
  CHECK(error_of({.host_arena_budget = 63}) == "the host's arena has 64 bytes; its budget is 63 bytes");
  CHECK(error_of({.host_arena_budget = -1}) == "the host's arena's budget is -1 bytes; it must not be negative");
  alignas(16) std::byte memory[81];
  CHECK(error_of({.host_arena = std::span(memory).first(63)}) ==
        "the host's arena has 63 bytes; the memory plan needs 64 bytes");
  CHECK(error_of({.host_arena = std::span(memory).subspan(1)}) ==
        "the host's arena is not aligned to 16 bytes, as the memory plan needs it");
  CHECK(
      error_of({.memory = std::pmr::null_memory_resource(), .host_arena = memory}).find("does not give the arena, ") !=
      std::string::npos);
  alignas(16) std::byte device[512];
  CHECK(error_of({.memory = std::pmr::null_memory_resource(), .arena = device})
            .find("does not give the host's arena, 64 bytes") != std::string::npos);
  CHECK(error_of({.memory = std::pmr::null_memory_resource(), .arena = device, .host_arena = memory}).empty());

  const auto refused = [&](const launch_options& options) -> std::string {
    try {
      (void)s.launches(options);
    } catch (const bad_argument& e) {
      return e.what();
    }
    return "";
  };
  CHECK(refused({.host_arena_budget = 255}) == "the host's arena has 256 bytes; its budget is 255 bytes");
  CHECK(refused({.streams = 2}) ==
        "streams is 2; a schedule that copies tensors to the host runs its computes on one stream");
  const std::vector<std::int64_t> far{8}, none{};
  CHECK(refused({.host_layout = arena_layout(far, 64, 8)}) ==
        "on the host, tensor 1 from step 1 has offset 8; it must be a multiple of 8 with its 64 bytes in the arena of "
        "64 bytes");
  CHECK(refused({.host_layout = arena_layout(none, 64, 8)}) ==
        "there are 0 offsets; the schedule has 1 copies on the host");
  CHECK(refused({.host_layout = arena_layout(far, 72, 8)}).empty());

  launch_options bound;
  bound.bound_outputs = {s.c};
  host_executor run(s.launches(bound), add_up);
  CHECK_THROWS_WITH_AS(run.bind_output(s.c, run.host_arena().first(64)),
                       "tensor 3 (c) is bound to memory that shares bytes with the arena on the host", bad_argument);
}

TEST_CASE("copies have no place among the measured times of operations") {
  const copied_step s;
  host_executor run(s.launches(), add_up, {.timing = true});
  run.bind(s.x, s.input);
  const profile_report report = profile(run, {.warm_up = 0, .runs = 2});
  REQUIRE(report.times.seconds.size() == 3);
  for (const double t : report.times.seconds) CHECK(t >= 0);
}
