// SPDX-License-Identifier: BSL-1.0
// Throughput of every solver: operations of the graph per second of solving, on deep stacks of 10² to 10⁴ operations at
// 35 % of the baseline's peak, with one and two threads.
//
//     solver.throughput_bench --benchmark_format=json > throughput.json
//     python3 bench/solver/throughput_table.py throughput.json
//
// Solvers that end by themselves do so; the others get `work_limit` moves. The bound is proven once for each size,
// outside of the measured time, and given to all solvers. A solver and size that takes more than a minute is skipped,
// as are larger sizes and more threads. The counter processor_ms has the processor time of a solve, threads and child
// processes included; on a busy machine, compare that.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "google_benchmark.hpp"
#include "laws/solvers.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/problem/problem.hpp"
#include "support/deep_stack.hpp"
#include "support/processor_time.hpp"

namespace {

constexpr std::array<std::uint32_t, 5> numbers_of_blocks = {5, 15, 48, 150, 476};  // 106 … 9,997 operations
constexpr std::uint64_t work_limit = 20'000;
constexpr std::chrono::seconds most_time(60);

/// Those whose method ends by itself within a time that depends on the graph alone.
constexpr std::string_view ends_by_itself[] = {
    "no_remat", "no_remat (reorder)", "chen_sqrt", "chen_greedy", "revolve", "evict", "rotor", "rockmate", "twremat"};

/// The stack of so many blocks at 35 % of its peak, with its proven bound. Made once.
///
/// Half of the peak would be too easy: eviction comes so close to the bound that no integer program would begin.
const remat::problem& stack(std::uint32_t blocks) {
  static std::map<std::uint32_t, remat::problem> made;
  const auto found = made.find(blocks);
  if (found != made.end()) return found->second;
  const remat::problem unbounded = remat::test::deep_stack(blocks, 1);
  const remat::problem p = unbounded.with_budget(unbounded.graph().baseline_peak / 100 * 35);
  const double bound = remat::turnaround_bound(p).lower_bound;
  return made.emplace(blocks, p.with_known_bound(bound)).first->second;
}

/// Requests a stop once the time since the last `restart` is over. A limit on time is no replacement: solvers share it
/// among their parts, so that the work would depend on the machine.
class alarm {
 public:
  using clock = std::chrono::steady_clock;

  explicit alarm(std::chrono::nanoseconds time)
      : time_(time), end_(clock::now() + time), thread_([this](const std::stop_token& ended) {
          std::unique_lock lock(mutex_);
          while (!ended.stop_requested() && clock::now() < end_) {
            const clock::time_point end = end_;  // a restart moves it, and does not wake this thread
            wake_.wait_until(lock, ended, end, [] { return false; });
          }
          if (!ended.stop_requested()) stop_.request_stop();
        }) {}

  void restart() {
    const std::lock_guard lock(mutex_);
    end_ = clock::now() + time_;
  }
  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

 private:
  const std::chrono::nanoseconds time_;
  clock::time_point end_;  // guarded by mutex_
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // the last member: it ends before the others
};

/// The least number of blocks for which a solver has taken more than the time limit, and its threads then.
struct too_long {
  std::uint32_t blocks = UINT32_MAX;
  unsigned threads = UINT32_MAX;
};

void solving(benchmark::State& state, const remat::test::law_solver& solver, std::uint32_t blocks, unsigned threads) {
  static std::map<std::string, too_long> stopped;
  too_long& last = stopped[solver.name];
  if (blocks > last.blocks || (blocks == last.blocks && threads >= last.threads))
    return state.SkipWithError("a smaller graph, or fewer threads, took more than a minute");

  const remat::problem& p = stack(blocks);
  remat::run_control run;
  run.threads = threads;
  const bool ends =
      std::find(std::begin(ends_by_itself), std::end(ends_by_itself), solver.name) != std::end(ends_by_itself);
  if (!ends) run.work_limit = work_limit;

  alarm minute(most_time);  // its thread starts and ends outside of the measured loop
  run.stop = minute.token();
  remat::solution s;
  const double processor_start = remat::test::processor_seconds();
  for (auto _ : state) {
    minute.restart();
    s = solver.solve(p, run);
    if (!run.stop.stop_requested()) continue;
    last = {blocks, threads};
    state.SkipWithError("it took more than a minute");
    break;
  }
  const double operations = p.graph().num_operations;
  state.counters["operations"] = operations;
  state.counters["processor_ms"] = benchmark::Counter(1e3 * (remat::test::processor_seconds() - processor_start),
                                                      benchmark::Counter::kAvgIterations);
  state.counters["operations_per_second"] =
      benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate);
  if (!s.has_schedule()) return state.SetLabel("no schedule");
  state.counters["overhead_percent"] = 100 * (s.time / p.graph().baseline_time - 1);
  state.counters["gap_percent"] = 100 * (s.time / *p.known_bound() - 1);
}

[[maybe_unused]] const bool registered = [] {
  const auto solvers = remat::test::all_solvers();
  for (const std::string_view name : ends_by_itself)
    if (std::none_of(solvers.begin(), solvers.end(), [&](const auto& s) { return s.name == name; }))
      throw std::logic_error("ends_by_itself names " + std::string(name) + ", which is not in the list of solvers");
  for (const remat::test::law_solver& solver : solvers)
    for (const std::uint32_t blocks : numbers_of_blocks)
      for (const unsigned threads : {1U, 2U}) {
        const std::string name =
            solver.name + "/" + std::to_string(21 * blocks + 1) + "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(), solving, solver, blocks, threads)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
  return true;
}();

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(
      argc, argv,
      R"(Operations of the graph per second of solving, for every solver, on stacks of blocks that are made by a rule, at
35 % of the baseline's peak.

SOLVER/OPERATIONS/threads:THREADS. The bound is proven before, outside of the measured time.
bench/solver/throughput_table.py makes a table of the output in JSON.)");
}
