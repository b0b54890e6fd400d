// SPDX-License-Identifier: BSL-1.0
// What it costs that the budget binds the arena: every bundled graph at budgets that are fractions of its baseline's
// arena, solved once with the budget for the peak, and once for the arena (`fit_arena`). One line of CSV for each graph
// and budget; on standard error, what they come to.
//
//   fit_arena_figures [--seconds S] [--work N] [--solver auto|refined|evict] [--graph NAME] [--fractions F,F,…]
//                     [--graphs FOLDER]
//
// Both solves have the same limits: `--seconds` (3 by default) or `--work`. `loss` is the time with the arena bound
// over the time with the peak bound, less 1. The arena of the schedule that binds the peak is planned by default. Exit
// status 1 if an arena is above its budget.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "remat/execute/fit_arena.hpp"
#include "remat/io/json.hpp"
#include "remat/memory/plan.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/refined.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/csv.hpp"
#include "support/graph_files.hpp"

namespace {

using namespace remat;  // NOLINT: a program

using solve_function = std::function<solution(const problem&, const run_control&)>;

struct settings {
  run_control run{};
  std::string solver = "auto", only{};
  std::vector<double> fractions{0.9, 0.8, 0.7, 0.6, 0.5};
  std::filesystem::path folder = std::filesystem::path(REMAT_TEST_DATA) / "graphs";
};

/// What the rows come to.
struct totals {
  std::size_t rows = 0, peak_solved = 0, arena_solved = 0, lost = 0, over = 0, first = 0, peak_over = 0;
  std::vector<double> losses{};
};

template <class Solver>
solve_function with(const Solver& solver) {
  return [&solver](const problem& p, const run_control& run) {
    typename Solver::options_type options;
    options.run = run;
    return solver(p, options);
  };
}

solve_function solver_named(const std::string& name) {
  if (name == "auto") return with(automatic);
  if (name == "refined") return with(refined);
  if (name == "evict") return with(evict);
  throw bad_argument("--solver " + name + ": expected auto, refined or evict");
}

double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void measure(const std::string& name, const problem& p, std::int64_t baseline_arena, double fraction,
             const solve_function& solve, const settings& set, totals& sum) {
  const auto budget = static_cast<std::int64_t>(fraction * static_cast<double>(baseline_arena));
  const double base = p.graph().baseline_time;
  const solution peak = solve(p.with_budget(budget), set.run);
  const std::int64_t gaps = peak.plan ? plan_memory(lifetimes_of(p, *peak.plan)).arena_bytes : 0;
  fit_arena_options options;
  options.budget = budget;
  options.run = set.run;
  const arena_solution arena = fit_arena_by(p, solve, options);
  const std::int64_t bytes = arena.memory ? arena.memory->arena_bytes : 0;
  const double nothing = std::nan("");
  const double loss = peak.plan && arena.plan ? arena.time / peak.time - 1 : nothing;
  std::printf("%s,%g,%lld,%s,%.6f,%lld,%s,%.6f,%lld,%u,%.5f,%.6f,%.2f,%.2f\n", name.c_str(), fraction,
              static_cast<long long>(budget), std::string(to_string(peak.status)).c_str(),
              peak.plan ? peak.time / base - 1 : nothing, static_cast<long long>(gaps),
              std::string(to_string(arena.status)).c_str(), arena.plan ? arena.time / base - 1 : nothing,
              static_cast<long long>(bytes), arena.solves,
              static_cast<double>(arena.solved_budget) / static_cast<double>(budget), loss, peak.statistics.seconds,
              arena.statistics.seconds);
  std::fflush(stdout);
  ++sum.rows;
  sum.peak_solved += peak.has_schedule();
  sum.arena_solved += arena.has_schedule();
  sum.lost += peak.has_schedule() && !arena.has_schedule();
  sum.over += bytes > budget;
  sum.peak_over += gaps > budget;
  sum.first += arena.has_schedule() && arena.solves == 1;
  if (!std::isnan(loss)) sum.losses.push_back(loss);
}

int run(int argc, char** argv) {
  settings set;
  double seconds = 3;
  std::uint64_t work = 0;
  bench::command_line app("fit_arena_figures",
                          "What it costs that the budget binds the arena in place of the peak, as CSV; at the end, "
                          "what the rows come to. On the bundled graphs, or a folder of yours.");
  app.number("--seconds", seconds, "The limit of each solve", 0.0, 1e6);
  app.number("--work", work, "The limit of each solve in work, in place of --seconds; 0: none");
  app.text("--solver", set.solver, "The solver", "NAME", {"auto", "refined", "evict"});
  app.text("--graph", set.only, "One graph alone, such as unet5-b16-256; without it, all", "NAME");
  app.list("--fractions", set.fractions, "Budgets as parts of the baseline's arena", "F,…");
  app.folder("--graphs", set.folder, "A folder of training graphs; without it, the bundled ones");
  if (!app.read(argc, argv)) return 0;
  if (work != 0)
    set.run.work_limit = work;
  else
    set.run.time_limit = std::chrono::nanoseconds(std::llround(seconds * 1e9));
  const solve_function solve = solver_named(set.solver);
  totals sum;
  std::printf(
      "graph,fraction,budget_bytes,peak_status,peak_overhead,peak_arena_bytes,arena_status,arena_overhead,arena_bytes,"
      "solves,solved_budget,loss,peak_seconds,arena_seconds\n");
  for (const std::filesystem::path& file : test::graphs_in(set.folder)) {
    const bool measured = file.parent_path().filename() == "rk";
    const std::string name = (measured ? "rk/" : "") + file.stem().string();
    if (!set.only.empty() && name != set.only) continue;
    const problem p = read_training_step(file).instance;
    const std::int64_t baseline = plan_memory(lifetimes_of(p, listed_order(p))).arena_bytes;
    if (baseline > p.graph().baseline_peak)
      std::fprintf(stderr, "%s: the baseline's arena is %.4f of its peak\n", name.c_str(),
                   static_cast<double>(baseline) / static_cast<double>(p.graph().baseline_peak));
    for (const double fraction : set.fractions) measure(name, p, baseline, fraction, solve, set, sum);
  }
  std::fprintf(stderr,
               "%zu rows; peak bound: %zu solved, %zu with an arena above the budget; arena bound: %zu solved (%zu in "
               "one solve), %zu above the budget, %zu lost; loss median %.4f %%, worst %.4f %%, best %.4f %%\n",
               sum.rows, sum.peak_solved, sum.peak_over, sum.arena_solved, sum.first, sum.over, sum.lost,
               100 * median(sum.losses),
               sum.losses.empty() ? 0.0 : 100 * *std::max_element(sum.losses.begin(), sum.losses.end()),
               sum.losses.empty() ? 0.0 : 100 * *std::min_element(sum.losses.begin(), sum.losses.end()));
  return sum.over == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("fit_arena_figures", [&] { return run(argc, argv); });
}
