// SPDX-License-Identifier: BSL-1.0
// Does a step with copies take the time that was simulated? Schedules of `offload` run on the host executor, with
// stand-in kernels that take the planned times, scaled, and copies that take those of the link. Once more with a link
// that is twice as slow as planned. One line of CSV for each graph, budget and link.
//
//   copy_makespan [--seconds S] [--step S] [--steps N] [--fractions F,F,…] [--speeds GB/S,…] GRAPH.json…
//
// `--seconds` (1 by default) bounds each solve, `--step` (2) is the time to which a step is scaled; the fastest of
// `--steps` (2) counts. `error` and `slow_error` are measured / simulated − 1. `host_load` is the most bytes on the
// host at one time, sizes rounded up to the alignment. Kernels sleep, so that the machine may have fewer than three
// processors. Exit status 1 if a step leaves other outputs behind than the listed order, or if the slow link changes
// the memory.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/io/json.hpp"
#include "remat/memory/plan.hpp"
#include "remat/method/offload.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat_run/stand_in_run.hpp"

namespace {

using namespace remat;  // NOLINT: a program

struct settings {
  double seconds = 1, step = 2;
  std::uint64_t steps = 2;
  std::vector<double> fractions{0.6, 0.4}, speeds{25, 64};
  std::vector<std::filesystem::path> graphs{};
};

struct worst {
  double planned = 0, slow = 0, host = 1;
  bool wrong = false;
};

/// Measures one schedule, and prints its line.
void measure(const training_step& in, const problem& p, const schedule& plan, double fraction, double speed,
             const settings& how, worst& all) {
  host_link slow = *p.link();
  slow.out /= 2;
  slow.in /= 2;
  slow.latency *= 2;
  const check_report planned = check(p, plan), later = check(p.with_link(slow, p.host_budget()), plan);
  const memory_plan host = plan_memory(host_intervals_of(lifetimes_of(p, plan)));
  remat_run::run_options options;
  options.steps = how.steps;
  options.kernels.burn = how.step / planned.time;
  options.kernels.sleep = true;
  const remat_run::run_result run = remat_run::run_stand_ins(in.graph, p, plan, options);
  options.link = slow;
  const remat_run::run_result slower = remat_run::run_stand_ins(in.graph, p, plan, options);
  remat_run::run_options plain;
  plain.seed = options.seed;
  plain.steps = options.steps;
  const remat_run::run_result listed = remat_run::run_stand_ins(in.graph, p, listed_order(p), plain);
  all.wrong = all.wrong || !run.same_results(listed) || !slower.same_results(listed) ||
              later.peak_bytes != planned.peak_bytes || later.host_peak_bytes != planned.host_peak_bytes ||
              run.arena_bytes != slower.arena_bytes || run.host_arena_bytes != slower.host_arena_bytes;
  const double error = run.seconds / options.kernels.burn / planned.time - 1;
  const double slow_error = slower.seconds / options.kernels.burn / later.time - 1;
  all.planned = std::max(all.planned, std::abs(error));
  all.slow = std::max(all.slow, std::abs(slow_error));
  if (host.lower_bound > 0)
    all.host = std::max(all.host, static_cast<double>(host.arena_bytes) / static_cast<double>(host.lower_bound));
  std::printf("%s,%g,%g,%llu,%llu,%llu,%.6g,%.6g,%.4f,%.6g,%.6g,%.4f,%lld,%lld,%lld\n", in.graph.name().data(),
              fraction, speed, static_cast<unsigned long long>(run.launches - run.copies),
              static_cast<unsigned long long>(run.copies), static_cast<unsigned long long>(run.waits), planned.time,
              run.seconds / options.kernels.burn, error, later.time, slower.seconds / options.kernels.burn, slow_error,
              static_cast<long long>(run.arena_bytes), static_cast<long long>(host.lower_bound),
              static_cast<long long>(host.arena_bytes));
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  settings how;
  bench::command_line app("copy_makespan",
                          "Does a step with copies take the time that was simulated? Schedules of `offload` run with "
                          "stand-in kernels that take the planned times, with the planned link and one that is twice "
                          "as slow: simulated and measured times, as CSV. On graphs of yours, or bundled ones "
                          "(tests/data/graphs).");
  app.number("--seconds", how.seconds, "The limit of each solve", 0.0, 1e6);
  app.number("--step", how.step, "Seconds to which a step is scaled", 0.0, 1e6);
  app.number<std::uint64_t>("--steps", how.steps, "Steps, of which the fastest counts", 1);
  app.list("--fractions", how.fractions, "Budgets as parts of the peak", "F,…");
  app.list("--speeds", how.speeds, "Links in GB/s, each way", "SPEED,…");
  app.files(how.graphs, "Training graphs")->required();
  if (!app.read(argc, argv)) return 0;
  std::printf(
      "graph,budget,GB/s,computes,copies,waits,simulated,measured,error,slow_simulated,slow_measured,slow_error,"
      "arena,host_load,host_arena\n");
  worst all;
  for (const std::filesystem::path& file : how.graphs) {
    const training_step in = read_training_step(file);
    for (const double speed : how.speeds)
      for (const double fraction : how.fractions) {
        const auto budget =
            static_cast<std::int64_t>(static_cast<double>(in.instance.graph().baseline_peak) * fraction);
        const problem p =
            in.instance.with_budget(budget).with_link({.out = speed * 1e9, .in = speed * 1e9, .latency = 1e-5});
        offload_options options{.gap = 0};
        options.run.time_limit = std::chrono::nanoseconds(std::llround(how.seconds * 1e9));
        const solution s = offload(p, options);
        if (s.plan) measure(in, p, *s.plan, fraction, speed, how, all);
      }
  }
  std::fprintf(stderr,
               "worst: %.2f %% from the simulated time, %.2f %% with the slow link; host arena %.4f of its load\n",
               all.planned * 100, all.slow * 100, all.host);
  if (all.wrong) std::fprintf(stderr, "NOT the same outputs or memory\n");
  return all.wrong ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("copy_makespan", [&] { return run(argc, argv); });
}
