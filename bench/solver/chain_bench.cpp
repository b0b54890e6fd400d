// SPDX-License-Identifier: BSL-1.0
// The solvers that work on chains: on chains, on real graphs, and the order of least peak.
//
// Arguments: the slots, or the budget in percent of the baseline peak. `overhead` is time / baseline − 1; no_remat and
// the bound are at 0 by definition.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "google_benchmark.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/io/json.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"

namespace {

const std::string data = REMAT_TEST_DATA;

void rotor_on_chain(benchmark::State& state, const std::string& name) {
  const remat::chain c = remat::read_chain(data + "/chains/" + name + ".json");
  const remat::chain_problem p(c, c.store_all_peak_bytes() / 2);
  remat::rotor_options options;
  options.slots = static_cast<std::uint32_t>(state.range(0));
  remat::chain_solution s;
  for (auto _ : state) s = remat::rotor(p, options);
  if (s.has_schedule()) state.counters["overhead"] = s.time / c.store_all_time() - 1;
}
BENCHMARK_CAPTURE(rotor_on_chain, random_25, "random-25")->Arg(500)->Arg(2000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(rotor_on_chain, blocks_50, "blocks-50")->Arg(500)->Arg(2000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(rotor_on_chain, random_100, "random-100")->Arg(500)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(rotor_on_chain, blocks_200, "blocks-200")->Arg(500)->Unit(benchmark::kMillisecond);

template <class Solver>
void on_graph(benchmark::State& state, const Solver& solver, const std::string& name) {
  const remat::problem free = remat::read_training_step(data + "/graphs/" + name + ".json").instance;
  const remat::problem p = free.with_budget(free.graph().baseline_peak / 100 * state.range(0));
  remat::solution s;
  for (auto _ : state) s = solver(p);
  if (s.has_schedule()) state.counters["overhead"] = s.time / p.graph().baseline_time - 1;
}
BENCHMARK_CAPTURE(on_graph, no_remat_resnet50, remat::no_remat, "rk/resnet50")->Arg(100);
BENCHMARK_CAPTURE(on_graph, chen_sqrt_resnet50, remat::chen_sqrt, "rk/resnet50")->Arg(60);
BENCHMARK_CAPTURE(on_graph, chen_greedy_resnet50, remat::chen_greedy, "rk/resnet50")->Arg(50);
BENCHMARK_CAPTURE(on_graph, revolve_resnet50, remat::revolve, "rk/resnet50")->Arg(50);
BENCHMARK_CAPTURE(on_graph, rotor_gpt2_like, remat::rotor, "rk/gpt2-like")
    ->Arg(50)
    ->Arg(30)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(on_graph, rotor_resnet50, remat::rotor, "rk/resnet50")->Arg(50)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(on_graph, rotor_gpt2_medium, remat::rotor, "gpt2-medium-b4-s512")
    ->Arg(50)
    ->Unit(benchmark::kMillisecond);

void cut_into_stages(benchmark::State& state, const std::string& name) {
  const remat::problem p = remat::read_training_step(data + "/graphs/" + name + ".json").instance;
  for (auto _ : state) {
    const remat::detail::forward_line line = remat::detail::find_forward_line(p.graph());
    const remat::detail::stage_chain stages(p.graph(), line, remat::detail::cut_levels(line, 149).front());
    benchmark::DoNotOptimize(stages.length());
  }
}
BENCHMARK_CAPTURE(cut_into_stages, gpt2_medium, "gpt2-medium-b4-s512")->Unit(benchmark::kMicrosecond);

void least_peak(benchmark::State& state, const std::string& name) {
  const remat::problem p = remat::read_training_step(data + "/graphs/" + name + ".json").instance;
  remat::detail::least_peak_options options;
  options.moves = static_cast<std::uint64_t>(state.range(0));
  remat::detail::least_peak_order_result found;
  for (auto _ : state) found = remat::detail::least_peak_order(p, options);
  state.counters["of_baseline"] = static_cast<double>(found.peak_bytes) / static_cast<double>(p.graph().baseline_peak);
}
BENCHMARK_CAPTURE(least_peak, resnet50, "resnet50-b64-224")->Arg(0)->Arg(20'000)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(argc, argv,
                               R"(Milliseconds of the solvers that work on chains, on bundled chains and graphs.

rotor_on_chain/CHAIN/SLOTS: Rotor at half of the memory that keeps everything. on_graph/SOLVER_GRAPH/PERCENT: a
solver within PERCENT of the baseline's peak. cut_into_stages/GRAPH: the chain of a graph. least_peak/GRAPH/MOVES: an
order of low peak.)");
}
