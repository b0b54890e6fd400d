// SPDX-License-Identifier: BSL-1.0
// Offline eviction at several parts of the baseline's peak, without and with its proven bound, and moves of refinement.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "google_benchmark.hpp"
#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/timeline.hpp"

namespace {

remat::problem read(const std::string& name, std::int64_t percent) {
  const remat::problem p =
      remat::read_training_step(std::string(REMAT_TEST_DATA) + "/graphs/" + name + ".json").instance;
  return p.with_budget(p.graph().baseline_peak / 100 * percent);
}

/// Arguments: percent of the baseline's peak; whether the bound is proven, too.
void evicting(benchmark::State& state, const std::string& name) {
  const remat::problem asked = read(name, state.range(0));
  const remat::problem p = state.range(1) != 0 ? asked : asked.with_known_bound(asked.graph().needed_time);
  remat::solution s;
  for (auto _ : state) benchmark::DoNotOptimize(s = remat::evict(p));
  if (s.plan) state.counters["overhead_percent"] = 100 * (s.time / p.graph().baseline_time - 1);
  if (s.plan) state.counters["gap_percent"] = 100 * (s.time / s.lower_bound - 1);
  state.counters["operations"] = p.graph().num_operations;
}

void refining(benchmark::State& state, const std::string& name) {
  const remat::problem p = read(name, state.range(0));
  const remat::solution s = remat::evict(p);
  if (!s.plan) return state.SkipWithError("no schedule");
  remat::detail::timeline plan(p);
  plan.load(*s.plan);
  remat::detail::refine_moves moves(plan, 1);
  moves.temperature = 0.1 * (s.time - p.graph().needed_time) / static_cast<double>(s.statistics.recomputes + 1);
  for (auto _ : state) benchmark::DoNotOptimize(moves.random_move());
  state.SetItemsProcessed(state.iterations());
}

BENCHMARK_CAPTURE(evicting, vgg16, std::string("vgg16-b64-224"))->ArgsProduct({{80, 50}, {0, 1}});
BENCHMARK_CAPTURE(evicting, gpt2_small, std::string("gpt2-small-b8-s1024"))->ArgsProduct({{80, 50}, {0, 1}});
BENCHMARK_CAPTURE(evicting, resnet101, std::string("resnet101-b100-128"))->ArgsProduct({{80, 50, 30}, {0, 1}});
BENCHMARK_CAPTURE(evicting, gpt2_medium, std::string("gpt2-medium-b4-s512"))->ArgsProduct({{80, 50, 30}, {0, 1}});
BENCHMARK_CAPTURE(refining, vgg16, std::string("vgg16-b64-224"))->Arg(50);
BENCHMARK_CAPTURE(refining, gpt2_medium, std::string("gpt2-medium-b4-s512"))->Arg(50);

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(
      argc, argv, R"(Milliseconds of offline eviction, and moves of refinement a second, on four bundled graphs.

evicting/GRAPH/PERCENT/BOUND: `evict` within PERCENT of the baseline's peak; BOUND is 1 if the lower bound is
proven, too. refining/GRAPH/PERCENT: one random move of a refinement that began with that answer.)");
}
