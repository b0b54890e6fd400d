// SPDX-License-Identifier: BSL-1.0
// What docs/checkmate.md states of optima, as CSV: the program of a graph and a budget, solved by several backends.
//
//   checkmate_figures GRAPH.json BUDGET [--own SECONDS] [--limit SECONDS] [--highs PYTHON] [--small]
//
// BUDGET is a part of the baseline peak. First, `checkmate` itself gets --own seconds (20) on CBC. Then the program for
// schedules that are not slower, with the turnaround bound's rows and limits, is solved from that schedule by each
// backend alone for --limit seconds (90): by CBC, by HiGHS if --highs names a Python with the package highspy (HiGHS
// gets no start), and with --small by the branch and bound of the library. Columns: graph, budget, backend, decisions,
// columns, rows, nodes, seconds, ending; then overheads in percent: of the schedule of `checkmate`, of the best known
// then, and the backend's bound; and the part that found the first one.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "command_line.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/io/json.hpp"
#include "remat/method/cbc.hpp"
#include "remat/method/checkmate/impl/checkmate_model.hpp"
#include "remat/method/checkmate/impl/rerun_limits.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/cbc.hpp"
#include "remat/mip/command.hpp"
#include "remat/mip/model.hpp"
#include "remat/schedule/check.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a program

struct arguments {
  std::string graph, highs;
  double budget = 0.5, own = 20, limit = 90;
  bool small = false;
};

std::chrono::nanoseconds seconds(double s) { return std::chrono::nanoseconds(static_cast<std::int64_t>(s * 1e9)); }

void solve(const problem& p, const solution& own, const checkmate_model& program, mip_backend_ref backend,
           const arguments& a) {
  mip_options solving;
  double best = own.time;
  if (own.plan)
    if (auto values = program.encode(*own.plan)) solving.start = std::move(*values);
  solving.run.time_limit = seconds(a.limit);
  solving.on_incumbent = [&](std::span<const double> values, double) {
    const check_report said = check(p, program.decode(values));
    if (said.valid()) best = std::min(best, said.time);
  };
  const mip_result r = backend.solve(program.model(), solving);
  const auto percent = [&](double time) { return 100 * (time / p.graph().baseline_time - 1); };
  std::printf("%s,%.2f,%s,%zu,%zu,%zu,%llu,%.1f,%s,%.3f,%.3f,%.3f,%s\n",
              std::filesystem::path(a.graph).stem().string().c_str(), a.budget, std::string(backend.name()).c_str(),
              program.decisions(), program.model().num_columns(), program.model().num_rows(),
              static_cast<unsigned long long>(r.nodes), r.seconds, std::string(to_string(r.status)).c_str(),
              percent(own.time), percent(best), percent(program.time(r.bound)), own.by.c_str());
  std::fflush(stdout);
}

void measure(const arguments& a) {
  const problem whole = read_training_step(std::filesystem::path(a.graph)).instance;
  const problem p =
      whole.with_budget(static_cast<std::int64_t>(a.budget * static_cast<double>(whole.graph().baseline_peak)));
  const solution own = checkmate(p, {.gap = 0, .run = {.time_limit = seconds(a.own)}});
  const double at_most = own.plan ? own.time : std::numeric_limits<double>::infinity();
  const rerun_limits limits(p, at_most);
  const turnaround_result bound = turnaround_bound(p);
  checkmate_model_options building;
  building.at_most = at_most;
  if (!bound.infeasible && bound.recomputation > 0) building.moments = {bound.moment};
  building.rule = [&](op_id phase, op_id o) { return limits.allows(phase, o) ? rerun::free : rerun::never; };
  const checkmate_model program(p, building);
  solve(p, own, program, cbc, a);
  if (!a.highs.empty()) {
    const command_backend highs = highs_command(a.highs);
    solve(p, own, program, highs, a);
  }
  if (a.small) solve(p, own, program, branch_and_bound, a);
}

int run(int argc, char** argv) {
  arguments a;
  bench::command_line app("checkmate_figures",
                          "The optimum of Checkmate's integer program for a graph and a budget by several MIP solvers: "
                          "CBC, HiGHS and the library's own branch and bound, as CSV. On a graph of yours, or a "
                          "bundled one (tests/data/graphs).");
  app.add_option("graph", a.graph, "A training graph")->required()->type_name("FILE")->check(CLI::ExistingFile);
  app.number("budget", a.budget, "The budget as a part of the peak", 0.0, 1.0)->required();
  app.number("--own", a.own, "The limit of checkmate itself, in seconds", 0.0, 1e6);
  app.number("--limit", a.limit, "The limit of each backend, in seconds", 0.0, 1e6);
  app.text("--highs", a.highs, "A Python with the package highspy: HiGHS is a backend, too", "PYTHON");
  app.add_flag("--small", a.small, "The library's own branch and bound is a backend, too");
  if (!app.read(argc, argv)) return 0;
  measure(a);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("checkmate_figures", [&] { return run(argc, argv); });
}
