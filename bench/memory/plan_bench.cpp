// SPDX-License-Identifier: BSL-1.0
// The memory plan: of the schedules that eviction makes (all of the default work), and of long synthetic ones (the
// first packing alone: a limit of one unit of work; and a million intervals in full).
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "google_benchmark.hpp"
#include "remat/io/json.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
#include "remat/method/evict.hpp"
#include "remat/schedule/lifetime.hpp"

namespace {

void counters(benchmark::State& state, const remat::memory_plan& plan, std::size_t intervals) {
  state.counters["intervals"] = static_cast<double>(intervals);
  state.counters["ratio"] = static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound);
}

void schedules(benchmark::State& state, const std::string& name, int percent) {
  const remat::problem read =
      remat::read_training_step(std::string(REMAT_TEST_DATA) + "/graphs/" + name + ".json").instance;
  const remat::problem p = read.with_budget(read.graph().baseline_peak / 100 * percent);
  const remat::solution s = remat::evict(p);
  if (!s.plan) return state.SkipWithError("no schedule");
  const remat::lifetimes lives = remat::lifetimes_of(p, *s.plan);
  remat::memory_plan plan;
  for (auto _ : state) plan = remat::plan_memory(lives);
  counters(state, plan, lives.allocations.size());
}

/// A deep training step: each layer saves a tensor for its backward, has some short ones, and a part is made again.
std::vector<remat::interval> deep_step(std::int64_t layers) {
  std::mt19937_64 engine(1);
  const auto size = [&] { return static_cast<std::int64_t>(256 * (1 + engine() % 4000)); };
  std::vector<remat::interval> all;
  const std::int64_t end = 8 * layers;
  for (std::int64_t l = 0; l < layers; ++l) {
    const std::int64_t forward = 4 * l, backward = end - 4 * l - 4;
    all.push_back({forward, forward + 2, size()});
    all.push_back({forward + 1, forward + 6 < end ? forward + 6 : end, size()});
    if (l % 16 == 0)
      all.push_back({forward + 2, backward + 1, size()});
    else
      all.push_back({backward - static_cast<std::int64_t>(engine() % 40), backward + 1, size()});
    all.push_back({backward, backward + 3, size()});
    if (all[all.size() - 2].lower < 0) all[all.size() - 2].lower = 0;
  }
  return all;
}

void long_schedules(benchmark::State& state) {
  const std::vector<remat::interval> all = deep_step(state.range(0));
  remat::memory_plan_options options;
  options.run.work_limit = 1;
  remat::memory_plan plan;
  for (auto _ : state) plan = remat::plan_memory(all, options);
  counters(state, plan, all.size());
}

void long_schedules_in_full(benchmark::State& state) {
  const std::vector<remat::interval> all = deep_step(state.range(0));
  remat::memory_plan plan;
  for (auto _ : state) plan = remat::plan_memory(all);
  counters(state, plan, all.size());
}

void checking(benchmark::State& state) {
  const std::vector<remat::interval> all = deep_step(state.range(0));
  remat::memory_plan_options options;
  options.run.work_limit = 1;
  const remat::memory_plan plan = remat::plan_memory(all, options);
  for (auto _ : state) benchmark::DoNotOptimize(remat::check_memory(all, plan.offsets, plan.arena_bytes, 256));
}

BENCHMARK_CAPTURE(schedules, gpt2_small_60, std::string("gpt2-small-b8-s1024"), 60)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(schedules, resnet101_40, std::string("resnet101-b100-128"), 40)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(schedules, gpt2_medium_20, std::string("gpt2-medium-b4-s512"), 20)->Unit(benchmark::kMillisecond);
BENCHMARK(long_schedules)->RangeMultiplier(10)->Range(1000, 100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(long_schedules)->Arg(250'000)->Unit(benchmark::kMillisecond);
BENCHMARK(long_schedules_in_full)->Arg(250'000)->Unit(benchmark::kMillisecond);
BENCHMARK(checking)->RangeMultiplier(10)->Range(1000, 100'000)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(argc, argv, R"(Milliseconds of planning addresses in one arena.

schedules/GRAPH_PERCENT: a plan by default for the schedule of `evict` on a bundled graph within PERCENT of the
baseline's peak. On deep steps that are made by a rule, with four allocations a layer: long_schedules/LAYERS (the first
packing alone), long_schedules_in_full/LAYERS (a plan by default), and checking/LAYERS (the check of a plan).)");
}
