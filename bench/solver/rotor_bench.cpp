// SPDX-License-Identifier: BSL-1.0
// Rotor on chains: against length, slots and options, in slots and in bytes, for one budget and for all of them.
//
// Chains are made by a rule, so that any length can be had. The budget is half of what keeps everything. `overhead` is
// time / (every forward and backward once) − 1; `bytes` is what the tables take.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "google_benchmark.hpp"
#include "remat/chain/chain.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/slot_table.hpp"
#include "remat/method/rotor.hpp"

namespace {

/// Stages with times and sizes that vary by a factor of about twenty, each with `options` ways to keep everything: a
/// part less is saved, and made again in the backward.
remat::chain some_chain(std::size_t length, std::size_t options) {
  std::mt19937_64 engine(length);
  const auto vary = [&] { return 1 + static_cast<double>(engine() >> 11) * 0x1p-53 * 19; };
  std::vector<remat::chain_stage> stages(length);
  for (remat::chain_stage& s : stages) {
    s.forward_time = vary();
    s.backward_time = s.forward_time * 2;
    s.output_bytes = static_cast<std::int64_t>(vary() * 1e6);
    s.saved_bytes = s.output_bytes + static_cast<std::int64_t>(vary() * 2e6);
    for (std::size_t k = 1; k < options; ++k) {
      const double less = static_cast<double>(k) / static_cast<double>(options);
      remat::chain_option o;
      o.forward_time = s.forward_time;
      o.backward_time = s.backward_time + s.forward_time * less;
      o.saved_bytes =
          s.saved_bytes - static_cast<std::int64_t>(static_cast<double>(s.saved_bytes - s.output_bytes) * less);
      o.backward_overhead_bytes = s.saved_bytes - o.saved_bytes;
      s.options.push_back(o);
    }
  }
  return remat::chain("made", 1'000'000, std::move(stages));
}

void solve(benchmark::State& state, remat::rotor_form form) {
  const remat::chain c = some_chain(static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(2)));
  const remat::chain_problem p(c, c.store_all_peak_bytes() / 2);
  remat::rotor_options options;
  options.form = form;
  options.slots = static_cast<std::uint32_t>(state.range(1));
  remat::chain_solution s;
  for (auto _ : state) s = remat::rotor(p, options);
  if (s.has_schedule()) state.counters["overhead"] = s.time / c.least_time() - 1;
}
void one_budget_in_slots(benchmark::State& state) { solve(state, remat::rotor_form::slots); }
void one_budget_in_bytes(benchmark::State& state) { solve(state, remat::rotor_form::bytes); }

/// The table alone, without a limit on the time lost: every budget.
void all_budgets_in_slots(benchmark::State& state) {
  const remat::chain c = some_chain(static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(2)));
  const auto slots = static_cast<std::uint32_t>(state.range(1));
  const std::int64_t unit = c.store_all_peak_bytes() / 2 / slots;
  const remat::detail::sized_chain sizes =
      remat::detail::size_chain(c, false, {unit, slots, remat::detail::slot_rounding::up});
  const remat::detail::excess_bound bound(sizes);
  const remat::run_control run;
  std::int64_t bytes = 0;
  for (auto _ : state) {
    remat::detail::slot_table table(sizes, slots, bound);
    remat::run_clock clock({});
    table.fill(clock, std::numeric_limits<std::int64_t>::max());
    bytes = table.bytes();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}

void lengths(benchmark::internal::Benchmark* b) {
  for (const int length : {10, 25, 50, 100, 200, 400}) b->Args({length, 500, 1});
}
void slots(benchmark::internal::Benchmark* b) {
  for (const int count : {125, 250, 1000, 2000, 4000}) b->Args({100, count, 1});
}
void options(benchmark::internal::Benchmark* b) {
  for (const int count : {2, 4, 8}) b->Args({100, 500, count});
}
BENCHMARK(one_budget_in_slots)->Apply(lengths)->Apply(slots)->Apply(options)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_budgets_in_slots)->Apply(lengths)->Apply(slots)->Apply(options)->Unit(benchmark::kMicrosecond);
BENCHMARK(one_budget_in_bytes)->Apply(lengths)->Apply(options)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(
      argc, argv,
      R"(Microseconds of Rotor on chains that are made by a rule, at half of the memory that keeps everything.

NAME/STAGES/SLOTS/OPTIONS, NAME one_budget_in_slots, all_budgets_in_slots (the table alone, for every budget) or
one_budget_in_bytes; OPTIONS is the number of ways in which a stage may run.)");
}
