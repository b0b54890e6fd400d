// SPDX-License-Identifier: BSL-1.0
// The exact checker: steps a second, on the schedules that eviction makes at 60 % of the baseline's peak.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "google_benchmark.hpp"
#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

namespace {

void checking(benchmark::State& state, const std::string& name) {
  const remat::problem read =
      remat::read_training_step(std::string(REMAT_TEST_DATA) + "/graphs/" + name + ".json").instance;
  const remat::problem p = read.with_budget(read.graph().baseline_peak / 10 * 6);
  const remat::solution s = remat::evict(p);
  if (!s.plan) return state.SkipWithError("no schedule");
  for (auto _ : state) benchmark::DoNotOptimize(remat::check(p, *s.plan));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(s.plan->steps.size()));
  state.counters["steps"] = static_cast<double>(s.plan->steps.size());
}

void simplifying(benchmark::State& state, const std::string& name) {
  const remat::problem read =
      remat::read_training_step(std::string(REMAT_TEST_DATA) + "/graphs/" + name + ".json").instance;
  const remat::problem p = read.with_budget(read.graph().baseline_peak / 10 * 6);
  const remat::solution s = remat::evict(p);
  if (!s.plan) return state.SkipWithError("no schedule");
  for (auto _ : state) benchmark::DoNotOptimize(remat::simplify(p, *s.plan));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(s.plan->steps.size()));
}

BENCHMARK_CAPTURE(checking, gpt2_small, std::string("gpt2-small-b8-s1024"));
BENCHMARK_CAPTURE(checking, resnet101, std::string("resnet101-b100-128"));
BENCHMARK_CAPTURE(checking, gpt2_medium, std::string("gpt2-medium-b4-s512"));
BENCHMARK_CAPTURE(simplifying, gpt2_medium, std::string("gpt2-medium-b4-s512"));

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(
      argc, argv,
      R"(Steps a second of the exact checker, and of leaving out what a schedule does not need, on the schedules of `evict`
within 60 % of the baseline's peak.

checking/GRAPH and simplifying/GRAPH, for bundled graphs.)");
}
