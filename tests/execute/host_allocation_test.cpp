// SPDX-License-Identifier: BSL-1.0
// A program of its own, because it counts every operator new of the process.
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <span>
#include <utility>

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

namespace {
std::atomic<std::size_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* p = nullptr;
  if (posix_memalign(&p, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes == 0 ? 1 : bytes) != 0)
    throw std::bad_alloc();
  return p;
}
// Not inlined, as the compiler would take free for the wrong partner of operator new.
[[gnu::noinline]] void released(void* p) { std::free(p); }
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { released(p); }
void operator delete[](void* p) noexcept { released(p); }
void operator delete(void* p, std::size_t) noexcept { released(p); }
void operator delete[](void* p, std::size_t) noexcept { released(p); }
void operator delete(void* p, std::align_val_t) noexcept { released(p); }
void operator delete[](void* p, std::align_val_t) noexcept { released(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { released(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { released(p); }

using namespace remat;

TEST_CASE("a run and a binding allocate nothing, with any number of threads, with timing and in debug mode") {
  std::size_t steps = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    test::random_graph_options o;
    o.operations = 24;
    o.most_bytes = 100;
    const training_graph graph = test::random_graph(seed, o);
    const problem p(graph, measured_cost{});
    const schedule plan = test::random_schedule(p, seed).plan;
    if (!check(p, plan).valid()) continue;
    const launch_options choice = test::some_outputs(p, seed, 50, 0);
    for (const std::uint32_t threads : {1U, 2U, 4U})
      for (const bool watched : {false, true}) {
        shared::stand_in_kernels kernels(graph, p);
        const test::placed_elsewhere where(p, plan, choice, threads, seed);
        launch_plan launches(graph, p, plan.steps, where.layout(), where.options);
        test::own_outputs first(launches), second(launches);
        const test::resident_memory memory(p, launches, kernels, seed);
        host_options options;
        options.timing = threads != 2;
        options.debug = watched ? host_debug::poison : host_debug::off;
        options.check_inputs = watched;
        host_executor run(std::move(launches), std::ref(kernels), options);
        memory.bind_all(run);
        first.bind_all(run);
        run.run(0);
        const std::size_t before = allocations;
        for (std::uint64_t i = 1; i <= 50; ++i) {
          run.run(i);
          memory.bind_all(run);
          (i % 2 != 0 ? second : first).bind_all(run);
          ++steps;
        }
        CHECK(allocations == before);
      }
  }
  CHECK(steps > 3000);
  // Nor do copies to the host and back, and what is noted of them.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    test::copying_execution e(seed, 16);
    launch_plan launches = e.launches();
    const test::resident_memory memory(e.p, launches, e.kernels, seed);
    host_executor run(std::move(launches), std::ref(e.kernels), {.timing = seed % 2 == 0});
    memory.bind_all(run);
    run.run(0);
    const std::size_t before = allocations;
    for (std::uint64_t i = 1; i <= 20; ++i) run.run(i);
    CHECK(allocations == before);
  }
  const std::size_t before = allocations;
  ::operator delete(::operator new(1));
  CHECK(allocations == before + 1);
}
