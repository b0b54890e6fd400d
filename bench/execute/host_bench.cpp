// SPDX-License-Identifier: BSL-1.0
// What the host executor costs for each operation, with kernels that do nothing (one callable, and a kernel_table),
// beside a hand-written loop over the same calls, with warm and with cold caches; how long it takes to make a plan;
// streams for 10^5 steps.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "google_benchmark.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"

namespace {

using namespace remat;

/// `columns` chains side by side, each operation reading its own and the next chain's last tensor.
struct grid {
  training_graph graph;
  problem p;
  schedule plan;
  lifetimes lives;
  std::vector<std::int64_t> offsets;
  std::int64_t arena_bytes = 0;

  grid(std::uint32_t rows, std::uint32_t columns)
      : graph(make(rows, columns)),
        p(graph, measured_cost{}),
        plan(order(rows, columns)),
        lives(lifetimes_of(p, plan)) {
    // Slots that are free again are taken first.
    std::vector<std::int64_t> free_slots;
    std::vector<std::vector<std::uint32_t>> ends(lives.num_steps() + 1);
    for (std::uint32_t a = 0, i = 0; i < lives.num_steps(); ++i) {
      for (const std::uint32_t gone : ends[i]) free_slots.push_back(offsets[gone]);
      for (; a < lives.allocations.size() && lives.allocations[a].first == i; ++a) {
        if (free_slots.empty()) {
          free_slots.push_back(arena_bytes);
          arena_bytes += 256;
        }
        offsets.push_back(free_slots.back());
        free_slots.pop_back();
        ends[lives.allocations[a].last].push_back(a);
      }
    }
  }
  [[nodiscard]] arena_layout layout() const { return {offsets, arena_bytes, 256}; }

 private:
  static training_graph make(std::uint32_t rows, std::uint32_t columns) {
    training_graph g("grid");
    for (std::uint32_t t = 0; t < rows * columns; ++t) g.add_tensor({"", 256});
    for (std::uint32_t r = 0; r < rows; ++r)
      for (std::uint32_t c = 0; c < columns; ++c) {
        operation_spec o;
        if (r > 0)
          for (const std::uint32_t from : {c, (c + 1) % columns})
            if (from != c || o.inputs.empty()) o.inputs.push_back(static_cast<tensor_id>((r - 1) * columns + from));
        o.outputs = {static_cast<tensor_id>(r * columns + c)};
        o.seconds = 1e-5;
        g.add_operation(std::move(o));
      }
    for (std::uint32_t c = 0; c < columns; ++c) g.add_final_output(static_cast<tensor_id>((rows - 1) * columns + c));
    return g;
  }
  static schedule order(std::uint32_t rows, std::uint32_t columns) {
    schedule s;
    for (std::uint32_t r = 0; r < rows; ++r) {
      for (std::uint32_t c = 0; c < columns; ++c) s.compute(static_cast<op_id>(r * columns + c));
      if (r > 0)
        for (std::uint32_t c = 0; c < columns; ++c) s.free(static_cast<tensor_id>((r - 1) * columns + c));
    }
    return s;
  }
};

/// Does nothing that the compiler could see through.
struct empty_kernels {
  void operator()(const host_call& c) const noexcept { benchmark::DoNotOptimize(&c); }
};

/// The kernel of one kind of operations: it reads its arguments, and does nothing.
template <int Kind>
void read_arguments(const host_call& c) {
  benchmark::DoNotOptimize(c.inputs.size() + Kind);
}

/// One callable for all operations, which are of eight kinds, as graphs have them.
struct switching_kernels {
  explicit switching_kernels(const training_graph&) {}
  void operator()(const host_call& c) const {
    switch (index(c.operation) % 8) {
      case 0:
        return read_arguments<0>(c);
      case 1:
        return read_arguments<1>(c);
      case 2:
        return read_arguments<2>(c);
      case 3:
        return read_arguments<3>(c);
      case 4:
        return read_arguments<4>(c);
      case 5:
        return read_arguments<5>(c);
      case 6:
        return read_arguments<6>(c);
      default:
        return read_arguments<7>(c);
    }
  }
};

/// The same kernels in a table.
struct table_of_kernels : kernel_table<host_call> {
  explicit table_of_kernels(const training_graph& g) : kernel_table(g) {
    const std::array<kernel, 8> kinds{
        [](const host_call& c) { read_arguments<0>(c); }, [](const host_call& c) { read_arguments<1>(c); },
        [](const host_call& c) { read_arguments<2>(c); }, [](const host_call& c) { read_arguments<3>(c); },
        [](const host_call& c) { read_arguments<4>(c); }, [](const host_call& c) { read_arguments<5>(c); },
        [](const host_call& c) { read_arguments<6>(c); }, [](const host_call& c) { read_arguments<7>(c); }};
    for (std::uint32_t o = 0; o < size(); ++o) (*this)[static_cast<op_id>(o)] = kinds[o % kinds.size()];
  }
};

/// The calls of a plan in memory of their own, run by a loop that knows nothing but them.
template <class Kernels>
class hand_written_step {
 public:
  hand_written_step(const launch_plan& plan, Kernels kernels)
      : memory_(static_cast<std::size_t>(plan.arena_bytes()) + 256),
        calls_(plan, aligned(), one_stream_),
        kernels_(std::move(kernels)) {}
  void run() {
    for (std::size_t i = 0; i < calls_.size(); ++i) kernels_(calls_[i]);
  }

 private:
  std::span<std::byte> aligned() {
    void* at = memory_.data();
    std::size_t room = memory_.size();
    std::align(256, 0, at, room);
    return {static_cast<std::byte*>(at), room};
  }
  std::vector<std::byte> memory_;
  std::vector<host_stream> one_stream_ = std::vector<host_stream>(1);
  detail::launch_calls<host_stream> calls_;
  Kernels kernels_;
};

/// Writes to 64 MiB on each of two threads, so that their processors' own caches hold nothing else.
class cache_sweeper {
 public:
  cache_sweeper() : run_(plan(), sweep{&memory_}) {}
  void operator()() { run_.run(); }

 private:
  using buffers = std::array<std::vector<std::byte>, 2>;
  struct sweep {
    buffers* memory;
    void operator()(const host_call& c) const {
      auto& mine = (*memory)[c.stream.index];
      mine.resize(64 << 20);
      for (std::size_t i = 0; i < mine.size(); i += 64) mine[i] ^= std::byte{1};
    }
  };
  static launch_plan plan() {
    const grid g(1, 2);
    return launch_plan(g.graph, g.p, g.plan.steps, g.layout(), 2);
  }
  buffers memory_;
  host_executor<sweep> run_;
};

/// Runs `step` and counts the wall clock's nanoseconds for each launch: the fastest run and the median one.
template <class Step>
void time_runs(benchmark::State& state, std::size_t launches, bool cold, Step&& step) {
  std::optional<cache_sweeper> sweep;
  if (cold) sweep.emplace();
  std::vector<double> times;
  step();
  for (auto _ : state) {
    if (cold) (*sweep)();
    const auto begun = std::chrono::steady_clock::now();
    step();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    state.SetIterationTime(took.count());
    times.push_back(took.count() * 1e9 / static_cast<double>(launches));
  }
  std::sort(times.begin(), times.end());
  state.counters["fastest_ns"] = times.front();
  state.counters["median_ns"] = times[times.size() / 2];
}

/// A loop over the calls on one thread: 0, or the executor on so many.
template <class Kernels>
void launches_of(benchmark::State& state, bool cold) {
  const grid g(1250, 8);
  const auto threads = static_cast<std::uint32_t>(state.range(0));
  launch_plan plan(g.graph, g.p, g.plan.steps, g.layout(), std::max(1U, threads));
  const std::size_t launches = plan.size();
  if (threads == 0) {
    hand_written_step<Kernels> step(plan, Kernels(g.graph));
    time_runs(state, launches, cold, [&] { step.run(); });
  } else {
    host_executor<Kernels> run(std::move(plan), Kernels(g.graph));
    time_runs(state, launches, cold, [&] { run.run(1); });
  }
}

void per_operation(benchmark::State& state, std::size_t operations) {
  state.counters["per_operation"] = benchmark::Counter(
      static_cast<double>(operations), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void hand_written(benchmark::State& state) {
  const grid g(1250, 8);
  const launch_plan plan(g.graph, g.p, g.plan.steps, g.layout());
  hand_written_step step(plan, empty_kernels{});
  for (auto _ : state) step.run();
  per_operation(state, plan.size());
}

/// Processor seconds of the fastest of some runs.
template <class F>
double fastest(F&& f) {
  double best = 1;
  for (int i = 0; i < 200; ++i) {
    const std::clock_t begun = std::clock();
    for (int j = 0; j < 20; ++j) f();
    best = std::min(best, static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC / 20);
  }
  return best;
}

void executor(benchmark::State& state, bool timing) {
  const grid g(1250, 8);
  host_options options;
  options.timing = timing;
  host_executor run(launch_plan(g.graph, g.p, g.plan.steps, g.layout(), static_cast<std::uint32_t>(state.range(0))),
                    empty_kernels{}, options);
  std::uint64_t seed = 0;
  for (auto _ : state) benchmark::DoNotOptimize(run.run(++seed));
  std::size_t waits = 0;
  for (std::size_t i = 0; i < run.plan().size(); ++i) waits += run.plan().waits(i).size();
  per_operation(state, run.plan().size());
  state.counters["waits"] = static_cast<double>(waits);
  if (state.range(0) == 1) {
    const launch_plan plan(g.graph, g.p, g.plan.steps, g.layout());
    hand_written_step step(plan, empty_kernels{});
    state.counters["to_hand_written"] = fastest([&] { run.run(1); }) / fastest([&] { step.run(); });
  }
}

/// A step of one operation: what a run costs by itself.
void one_operation(benchmark::State& state) {
  const grid g(1, 1);
  host_executor run(launch_plan(g.graph, g.p, g.plan.steps, g.layout(), static_cast<std::uint32_t>(state.range(0))),
                    empty_kernels{});
  for (auto _ : state) benchmark::DoNotOptimize(run.run());
}

void assigning(benchmark::State& state) {
  const grid g(12'500, 8);
  for (auto _ : state)
    benchmark::DoNotOptimize(
        assign_streams(g.p, g.lives, g.plan.steps, {static_cast<std::uint32_t>(state.range(0)), g.offsets}));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(g.plan.steps.size()));
}

void planning(benchmark::State& state) {
  const grid g(1250, 8);
  for (auto _ : state) benchmark::DoNotOptimize(launch_plan(g.graph, g.p, g.plan.steps, g.layout(), 2));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(g.plan.steps.size()));
}

void callable(benchmark::State& state, bool cold) { launches_of<switching_kernels>(state, cold); }
void table(benchmark::State& state, bool cold) { launches_of<table_of_kernels>(state, cold); }

BENCHMARK(hand_written);
BENCHMARK_CAPTURE(executor, plain, false)->Arg(1);
BENCHMARK_CAPTURE(executor, plain, false)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(executor, timed, true)->Arg(1);
BENCHMARK_CAPTURE(callable, warm, false)->DenseRange(0, 2)->UseManualTime()->Iterations(2000);
BENCHMARK_CAPTURE(table, warm, false)->DenseRange(0, 2)->UseManualTime()->Iterations(2000);
BENCHMARK_CAPTURE(callable, cold, true)->DenseRange(0, 2)->UseManualTime()->Iterations(100);
BENCHMARK_CAPTURE(table, cold, true)->DenseRange(0, 2)->UseManualTime()->Iterations(100);
BENCHMARK(one_operation)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(assigning)->Arg(1)->Arg(2)->Arg(8)->Unit(benchmark::kMillisecond);
BENCHMARK(planning)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(
      argc, argv,
      R"(What the host executor costs for each operation, with kernels that do nothing, beside a hand-written loop over the same
calls; how long a plan takes; streams for 100,000 steps. The steps are made by a rule.

hand_written (the rival); executor/plain/THREADS and executor/timed/THREADS; callable/CACHES/THREADS and
table/CACHES/THREADS, where 0 threads is the hand-written loop; one_operation/THREADS; assigning/STREAMS; planning.)");
}
