// SPDX-License-Identifier: BSL-1.0
// What fragmentation costs: the arena of every solver's schedule for every bundled graph at budgets of 1.0 … 0.2 of the
// baseline's peak, against the largest load (sizes rounded up to the alignment), one line of CSV each; at the end, on
// standard error, what they come to.
//
//   arena_figures [--seconds S] [--work N] [--graph NAME] [--solver NAME] [--alignment N] [--keep FOLDER]
//
// `--seconds`: of each plan; without it, the default amount of work. `--work`: of each solver, and a tenth of it for
// `refined` and `auto`. `--keep`: schedules are kept there as files of intervals, and those that are there already are
// not made again: the sweep may be broken off, be run in pieces, and plans be made again without the solvers. Graphs
// whose peak is below 1 MiB are left out. `cpu_ms` is the processor time of the plan.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "remat/io/json.hpp"
#include "remat/io/text.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"
#include "remat/schedule/lifetime.hpp"

namespace {

using namespace remat;  // NOLINT: a program

struct named {
  std::string name;
  std::uint64_t share;  // of the work limit: one in so many
  std::function<solution(const problem&, const run_control&)> solve;
};

template <class Solver>
named with(const Solver& solver, std::uint64_t share = 1) {
  return {std::string(Solver::name), share, [solver](const problem& p, const run_control& run) {
            typename Solver::options_type options;
            options.run = run;
            return solver(p, options);
          }};
}

std::vector<named> solvers() {
  const auto any_order = [](const problem& p, const run_control& run) {
    no_remat_options options;
    options.run = run;
    solution s = no_remat(p, options);
    if (s.plan) return s;
    options.reorder = true;
    return no_remat(p, options);
  };
  return {{"no_remat", 1, any_order}, with(chen_sqrt),    with(chen_greedy), with(revolve), with(rotor), with(evict),
          with(refined, 10),          with(automatic, 10)};
}

double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

/// The allocations of the solver's schedule at this share of the baseline's peak, none if there is none; from the
/// file, if it is there.
std::vector<interval> allocations(const problem& read, const named& solver, int tenths, run_control run,
                                  const std::filesystem::path& kept) {
  intervals_file file;
  if (!kept.empty() && std::filesystem::exists(kept)) {
    std::ifstream in(kept, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return parse_intervals(text, kept.string()).intervals;
  }
  const std::int64_t peak = read.graph().baseline_peak;
  const problem p = read.with_budget(peak / 10 * tenths + (tenths == 10 ? peak % 10 : 0));
  run.work_limit /= solver.share;
  if (const solution s = solver.solve(p, run); s.plan) file.intervals = intervals_of(lifetimes_of(p, *s.plan));
  if (!kept.empty()) {
    for (std::size_t i = 0; i < file.intervals.size(); ++i) file.ids.push_back(std::to_string(i));
    std::filesystem::create_directories(kept.parent_path());
    std::filesystem::path part = kept;
    part += ".part";
    std::ofstream(part, std::ios::binary) << to_csv(file);
    std::filesystem::rename(part, kept);
  }
  return file.intervals;
}

struct totals {
  int rows = 0, exact = 0, within_1 = 0, within_2 = 0;
  double worst = 1, worst_ms = 0;
  std::string worst_row;
};

int run(int argc, char** argv) {
  memory_plan_options planning;
  run_control solving;
  solving.work_limit = 100'000;
  double seconds = 0;
  std::string only, only_solver;
  std::filesystem::path keep;
  std::vector<std::string> names;
  for (const named& solver : solvers()) names.push_back(solver.name);
  bench::command_line app("arena_figures",
                          "What fragmentation costs: the arena of every solver's schedule, at budgets of 1.0 … 0.2 of "
                          "the baseline's peak, beside the largest load, as CSV; at the end, what the rows come to. On "
                          "the bundled graphs.");
  app.number("--seconds", seconds, "The limit of each plan; 0: the default amount of work", 0.0, 1e6);
  app.number("--work", solving.work_limit, "Work of each solver; refined and auto get a tenth of it");
  app.text("--graph", only, "One bundled graph alone, such as rk/unet; without it, all", "NAME");
  app.text("--solver", only_solver, "One solver alone; without it, all", "NAME", names);
  app.number<std::int64_t>("--alignment", planning.alignment, "Addresses are multiples of it", 1);
  app.add_option("--keep", keep, "Keep the schedules there as files of intervals, and use those that are there")
      ->type_name("FOLDER");
  if (!app.read(argc, argv)) return 0;
  if (seconds > 0) planning.run.time_limit = std::chrono::nanoseconds(std::llround(seconds * 1e9));
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(REMAT_TEST_DATA) / "graphs";
  std::vector<fs::path> files;
  for (const fs::path& where : {folder, folder / "rk"})
    for (const auto& entry : fs::directory_iterator(where))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());

  totals sum;
  std::printf("graph,solver,fraction,allocations,load_bytes,arena_bytes,ratio,optimal,cpu_ms\n");
  for (const fs::path& file : files) {
    const std::string graph = (file.parent_path() == folder ? "" : "rk/") + file.stem().string();
    if (!only.empty() && graph != only) continue;
    const problem read = read_training_step(file).instance;
    if (read.graph().baseline_peak < (1 << 20)) continue;
    for (const named& solver : solvers()) {
      if (!only_solver.empty() && solver.name != only_solver) continue;
      for (int tenths = 10; tenths >= 2; --tenths) {
        const std::filesystem::path kept =
            keep.empty() ? keep : keep / graph / (solver.name + "_" + std::to_string(10 * tenths) + ".csv");
        const std::vector<interval> all = allocations(read, solver, tenths, solving, kept);
        if (all.empty()) continue;
        const double begin = processor_ms();
        const memory_plan plan = plan_memory(all, planning);
        const double ms = processor_ms() - begin;
        const memory_check_report report = check_memory(all, plan.offsets, plan.arena_bytes, plan.alignment);
        if (!report.valid()) {
          std::fprintf(stderr, "%s: %s\n", graph.c_str(), report.message().c_str());
          return 1;
        }
        const double ratio = static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound);
        std::printf("%s,%s,%.1f,%zu,%lld,%lld,%.5f,%d,%.1f\n", graph.c_str(), solver.name.c_str(), tenths / 10.0,
                    all.size(), static_cast<long long>(plan.lower_bound), static_cast<long long>(plan.arena_bytes),
                    ratio, plan.optimal ? 1 : 0, ms);
        std::fflush(stdout);
        ++sum.rows;
        sum.exact += plan.arena_bytes == plan.lower_bound;
        sum.within_1 += ratio <= 1.01;
        sum.within_2 += ratio <= 1.02;
        sum.worst_ms = std::max(sum.worst_ms, ms);
        if (ratio > sum.worst) {
          sum.worst = ratio;
          sum.worst_row = graph + " " + solver.name + " " + std::to_string(tenths);
        }
      }
    }
  }
  std::fprintf(stderr,
               "%d rows: %d at the load, %d within 1.01, %d within 1.02; the worst %.4f (%s); at most %.0f ms\n",
               sum.rows, sum.exact, sum.within_1, sum.within_2, sum.worst, sum.worst_row.c_str(), sum.worst_ms);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("arena_figures", [&] { return run(argc, argv); });
}
