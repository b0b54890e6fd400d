// SPDX-License-Identifier: BSL-1.0
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "google_benchmark.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"

// The turnaround bound: on real graphs at several budgets, and against size on a stack of transformer blocks (the
// counter `overhead` is the proven lower bound of it).
namespace {

using remat::index;
using remat::op_phase;
using remat::tensor_id;

// Forward, loss and backward of `blocks` transformer blocks, 28 operations each: a layer norm, three projections,
// attention, an output projection, a residual addition; another layer norm, two matrices with an activation between
// them, a residual addition; for the backward of each matrix one operation for its input's gradient and one for its
// own.
remat::training_graph transformer_stack(std::uint32_t blocks) {
  remat::training_graph g("transformer stack");
  constexpr std::int64_t unit = 1 << 20;
  const auto tensor = [&](std::int64_t units) { return g.add_tensor({"", units * unit}); };
  const auto run = [&](std::vector<tensor_id> in, std::vector<tensor_id> out, double time, op_phase phase) {
    remat::operation_spec o;
    o.phase = phase;
    o.inputs = std::move(in);
    o.outputs = std::move(out);
    o.seconds = time * 1e-3;
    g.add_operation(std::move(o));
  };
  struct block {
    tensor_id x, norm1, q, k, v, a, statistics, z, y, norm2, h, act;
  };
  constexpr auto forward = op_phase::forward, backward = op_phase::backward;
  std::vector<block> stack;
  tensor_id x = g.add_tensor({"x", 8 * unit, remat::tensor_kind::input});
  for (std::uint32_t i = 0; i < blocks; ++i) {
    block b{};
    b.x = x;
    run({x}, {b.norm1 = tensor(8)}, 0.1, forward);
    for (tensor_id block::*m : {&block::q, &block::k, &block::v}) run({b.norm1}, {b.*m = tensor(8)}, 1, forward);
    b.a = tensor(8);
    run({b.q, b.k, b.v}, {b.a, b.statistics = tensor(1)}, 1.5, forward);
    run({b.a}, {b.z = tensor(8)}, 1, forward);
    run({x, b.z}, {b.y = tensor(8)}, 0.1, forward);
    run({b.y}, {b.norm2 = tensor(8)}, 0.1, forward);
    run({b.norm2}, {b.h = tensor(32)}, 4, forward);
    run({b.h}, {b.act = tensor(32)}, 0.4, forward);
    const tensor_id m = tensor(8), out = tensor(8);
    run({b.act}, {m}, 4, forward);
    run({b.y, m}, {out}, 0.1, forward);
    stack.push_back(b);
    x = out;
  }
  tensor_id dx = tensor(8);
  run({x}, {dx}, 0.1, op_phase::loss);
  const auto parameter_gradient = [&](std::vector<tensor_id> in, double time) {
    const tensor_id w = g.add_tensor({"", unit / 64});
    run(std::move(in), {w}, time, backward);
    g.add_final_output(w);
  };
  for (std::uint32_t i = blocks; i-- > 0;) {
    const block& b = stack[i];
    const tensor_id dact = tensor(32), dh = tensor(32), dnorm2 = tensor(8), dy = tensor(8), dy2 = tensor(8);
    run({dx}, {dact}, 4, backward);
    parameter_gradient({dx, b.act}, 4);
    run({dact, b.h}, {dh}, 0.6, backward);
    run({dh}, {dnorm2}, 4, backward);
    parameter_gradient({dh, b.norm2}, 4);
    run({dnorm2, b.y}, {dy}, 0.2, backward);
    run({dx, dy}, {dy2}, 0.1, backward);
    const tensor_id da = tensor(8), dq = tensor(8), dk = tensor(8), dv = tensor(8);
    run({dy2}, {da}, 1, backward);
    parameter_gradient({dy2, b.a}, 1);
    run({da, b.q, b.k, b.v, b.a, b.statistics}, {dq, dk, dv}, 3, backward);
    const tensor_id dnorm1 = tensor(8), dsum = tensor(8), next = tensor(8);
    run({dq, dk, dv}, {dnorm1}, 3, backward);
    parameter_gradient({dq, b.norm1}, 1);
    parameter_gradient({dk, b.norm1}, 1);
    parameter_gradient({dv, b.norm1}, 1);
    run({dnorm1, b.x}, {dsum}, 0.2, backward);
    run({dsum, dy2}, {next}, 0.1, backward);
    dx = next;
  }
  return g;
}

void solve(benchmark::State& state, const remat::problem& p, double fraction) {
  const auto budget = static_cast<std::int64_t>(fraction * static_cast<double>(p.graph().baseline_peak));
  remat::turnaround_result r;
  for (auto _ : state) {
    r = remat::turnaround_bound(p.with_budget(budget));
    benchmark::DoNotOptimize(r.lower_bound);
  }
  state.counters["operations"] = p.graph().num_operations;
  state.counters["moments"] = r.moments_tried;
  state.counters["flows"] = r.flows;
  if (!r.infeasible) state.counters["overhead"] = r.lower_bound / p.graph().baseline_time - 1;
}

void real_graph(benchmark::State& state, const char* name) {
  const std::string file = std::string(REMAT_TEST_DATA) + "/graphs/" + name + ".json";
  const remat::problem p(remat::read_training_graph(file), remat::roofline_cost{});
  solve(state, p, static_cast<double>(state.range(0)) / 10);
}

void stack(benchmark::State& state) {
  const auto blocks = static_cast<std::uint32_t>(state.range(0) / 28);
  const remat::problem p(transformer_stack(blocks), remat::measured_cost{});
  solve(state, p, 0.4);
  state.SetComplexityN(p.graph().num_operations);
}

// Five budgets, one analysis: what the first has learned helps the others.
void five_budgets(benchmark::State& state) {
  const remat::problem p(remat::read_training_graph(std::string(REMAT_TEST_DATA) + "/graphs/gpt2-medium-b4-s512.json"),
                         remat::roofline_cost{});
  for (auto _ : state) {
    remat::turnaround_analysis analysis(p);
    for (const double fraction : {0.8, 0.6, 0.5, 0.4, 0.3})
      benchmark::DoNotOptimize(
          analysis.bound(static_cast<std::int64_t>(fraction * static_cast<double>(p.graph().baseline_peak))));
  }
}

BENCHMARK_CAPTURE(real_graph, gpt2_medium, "gpt2-medium-b4-s512")
    ->Arg(8)
    ->Arg(5)
    ->Arg(3)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(real_graph, resnet101, "resnet101-b100-128")->Arg(8)->Arg(5)->Arg(3)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(real_graph, unet5, "unet5-b16-256")->Arg(8)->Arg(5)->Arg(3)->Unit(benchmark::kMillisecond);
BENCHMARK(five_budgets)->Unit(benchmark::kMillisecond);
BENCHMARK(stack)->RangeMultiplier(10)->Range(1000, 1000000)->Complexity()->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(
      argc, argv,
      R"(Milliseconds of the turnaround bound, on bundled graphs and on a stack of transformer blocks that is made by a rule.

real_graph/GRAPH/TENTHS: within TENTHS / 10 of the baseline's peak. five_budgets: the same graph for five budgets.
stack/OPERATIONS: at 0.4, against size.)");
}
