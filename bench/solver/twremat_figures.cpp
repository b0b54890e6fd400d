// SPDX-License-Identifier: BSL-1.0
// What docs/twremat.md states, as CSV.
//
//   twremat_figures                   every row of tests/data/peers/twremat.csv: time beside the peer's,
//                                     schedule length, makespan and critical path on four streams,
//                                     and what others need
//   twremat_figures --dual SECONDS    for every graph and desired overhead: the least memory found by `auto` in that
//                                     time, and the overhead that any solver of ours reaches within 5 % less
//   twremat_figures --improve SECONDS the first one, with the option `improve` and that limit for each solve
//   twremat_figures … --graph NAME    that graph alone
//
// `cpu_ms` is processor time, the least of some runs, without the proof of the bound.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/bound/least_memory.hpp"
#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/memory/plan.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/twremat.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/frontier.hpp"
#include "support/csv.hpp"

namespace {

using namespace remat;  // NOLINT: a program

constexpr std::uint32_t streams = 4;

struct row {
  std::string graph, cost;
  int percent = 0;
  std::int64_t budget = 0;
  std::optional<double> theirs;  // time / baseline time
  double their_seconds = 0;
};

std::vector<row> peers() {
  std::vector<row> rows;
  for (const auto& field : test::read_csv(std::filesystem::path(REMAT_TEST_DATA) / "peers" / "twremat.csv")) {
    row r{field[0], field[2], std::stoi(field[3]), std::stoll(field[4]), std::nullopt, std::stod(field[7])};
    if (!field[5].empty()) r.theirs = std::stod(field[5]);
    rows.push_back(std::move(r));
  }
  return rows;
}

double processor_ms() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

problem instance(const row& r) {
  const auto path = std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (r.graph + ".json");
  return problem(read_training_graph(path), parse_cost(r.cost));
}

schedule listed(const problem& p) {
  std::vector<std::uint32_t> order(p.graph().num_operations);
  for (std::uint32_t o = 0; o < order.size(); ++o) order[o] = o;
  return schedule_computes(p, order);
}

/// Ordered by data and by the addresses of its own memory plan.
stream_assignment overlap(const problem& p, const schedule& plan) {
  const problem unlimited = p.with_budget(problem::unlimited);
  const lifetimes lives = lifetimes_of(unlimited, plan);
  const memory_plan memory = plan_memory(lives);
  return assign_streams(unlimited, lives, plan.steps, {streams, memory.offsets});
}

double ratio(const problem& p, const solution& s) {
  return s.plan ? s.time / p.graph().baseline_time : std::numeric_limits<double>::quiet_NaN();
}

void against_peer(double improve_for, const std::string& only) {
  twremat_options options;
  if (improve_for > 0) options.improve = by_refinement;
  if (options.improve) options.run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(improve_for * 1e9));
  std::printf(
      "graph,percent,theirs,ours,bound,length,their_ms,cpu_ms,evict,chen_sqrt,chen_greedy,makespan_%u,"
      "critical_path_%u,by,tree,width,own\n",
      streams, streams);
  int rows = 0, infeasible = 0, worse = 0, slower = 0, slower_alone = 0, none = 0, with_theirs = 0;
  std::string graph;
  std::optional<problem> step;
  stream_assignment base;
  for (const row& r : peers()) {
    if (!only.empty() && r.graph != only) continue;
    if (r.graph != graph) {
      graph = r.graph;
      step.emplace(instance(r));
      base = overlap(*step, listed(*step));
    }
    ++rows;
    const problem p = step->with_budget(r.budget);
    solution proof;
    if (prove(p, proof)) {
      ++infeasible;
      std::printf("%s,%d,%s,infeasible,,,,,,,,,,%s\n", r.graph.c_str(), r.percent,
                  r.theirs ? std::to_string(*r.theirs).c_str() : "", proof.message.c_str());
      continue;
    }
    const problem q = p.with_known_bound(proof.lower_bound);
    solution s;
    double ms = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 5 && (i == 0 || (ms < 100 && !options.improve)); ++i) {
      const double before = processor_ms();
      s = twremat(q, options);
      ms = std::min(ms, processor_ms() - before);
    }
    const solution evicted = evict(q), root = chen_sqrt(q), greedy = chen_greedy(q);
    with_theirs += r.theirs.has_value();
    none += !s.plan;
    worse += r.theirs && (!s.plan || ratio(p, s) > *r.theirs + 5e-5);
    const bool slow = ms > 1e3 * r.their_seconds / 20;
    slower += slow && r.theirs;
    slower_alone += slow && !r.theirs;
    double makespan = 0, path = 0, length = 0;
    if (s.plan) {
      const stream_assignment a = overlap(p, *s.plan);
      makespan = a.makespan / base.makespan;
      path = a.critical_path / base.critical_path;
      length = static_cast<double>(s.statistics.computes) / static_cast<double>(p.graph().num_operations);
    }
    const auto* tree = s.statistics.own.find<std::string>("tree");
    const auto* width = s.statistics.own.find<std::int64_t>("width");
    const auto* own = s.statistics.own.find<double>("own_time");
    std::printf("%s,%d,%s,%.4f,%.4f,%.3f,%.0f,%.2f,%.4f,%.4f,%.4f,%.3f,%.3f,%s,%s,%d,%.4f\n", r.graph.c_str(),
                r.percent, r.theirs ? std::to_string(*r.theirs).c_str() : "", ratio(p, s),
                proof.lower_bound / p.graph().baseline_time, length, 1e3 * r.their_seconds, ms, ratio(p, evicted),
                ratio(p, root), ratio(p, greedy), makespan, path, s.by.c_str(), tree == nullptr ? "" : tree->c_str(),
                width == nullptr ? -1 : static_cast<int>(*width),
                own == nullptr ? std::numeric_limits<double>::quiet_NaN() : *own / p.graph().baseline_time);
    std::fflush(stdout);
  }
  std::fprintf(
      stderr,
      "%d rows, %d proven infeasible; where theirs has a schedule (%d): %d at more time, %d above a twentieth of "
      "its processor time; elsewhere: %d above that, %d without a schedule\n",
      rows, infeasible, with_theirs, worse, slower, slower_alone, none);
}

void dual(double seconds, const std::string& only) {
  std::printf("graph,overhead,percent_of_peak,least_percent,reached,refined,twremat,evict,rotor,undercut\n");
  const auto limit = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  int rows = 0, missed = 0, undercut = 0;
  std::string graph;
  for (const row& r : peers()) {
    if (r.graph == graph || (!only.empty() && r.graph != only)) continue;
    graph = r.graph;
    const problem p = instance(r);
    const double baseline = p.graph().baseline_time;
    const std::int64_t least = least_memory_bound(p).bytes;
    for (const double wanted : {0.1, 0.25, 0.5, 1.0, 2.0}) {
      trade_off_options options;
      options.run.time_limit = limit;
      const solution s = least_memory_for(p, (1 + wanted) * baseline, automatic, options);
      ++rows;
      if (!s.plan) {
        ++missed;
        std::printf("%s,%g,,,,,,,,\n", r.graph.c_str(), wanted);
        continue;
      }
      const problem less = p.with_budget(static_cast<std::int64_t>(0.95 * static_cast<double>(s.peak_bytes)));
      refined_options searching;
      searching.gap = 0;
      searching.run.time_limit = limit / 2;
      twremat_options taking;
      taking.attempts = 9;
      const double found[] = {ratio(p, refined(less, searching)), ratio(p, twremat(less, taking)),
                              ratio(p, evict(less)), ratio(p, rotor(less))};
      const bool beaten =
          std::any_of(std::begin(found), std::end(found), [&](double x) { return x <= (1 + wanted) * (1 + 1e-12); });
      undercut += beaten;
      std::printf("%s,%g,%.2f,%.2f,%.4f,%.4f,%.4f,%.4f,%.4f,%d\n", r.graph.c_str(), wanted,
                  100 * static_cast<double>(s.peak_bytes) / static_cast<double>(p.graph().baseline_peak),
                  100 * static_cast<double>(least) / static_cast<double>(p.graph().baseline_peak),
                  s.time / baseline - 1, found[0], found[1], found[2], found[3], beaten ? 1 : 0);
      std::fflush(stdout);
    }
  }
  std::fprintf(stderr, "%d questions, %d without an answer, %d undercut within 5 %% less memory\n", rows, missed,
               undercut);
}

int run(int argc, char** argv) {
  std::string graph;
  double seconds = 0, improve_for = 0;
  bench::command_line app("twremat_figures",
                          "TwRemat beside the peer's rows of tests/data/peers/twremat.csv: time, length, makespan on "
                          "four streams, and what others need, as CSV; or, with --dual, the least memory for each "
                          "desired overhead. On the bundled graphs of these rows.");
  app.number("--dual", seconds, "Ask for the least memory, with this limit in seconds; 0: do not", 0.0, 1e6);
  app.number("--improve", improve_for, "With the option improve, and this limit in seconds; 0: without", 0.0, 1e6)
      ->excludes("--dual");
  app.text("--graph", graph, "One graph of the rows alone; without it, all", "NAME");
  if (!app.read(argc, argv)) return 0;
  if (seconds > 0)
    dual(seconds, graph);
  else
    against_peer(improve_for, graph);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("twremat_figures", [&] { return run(argc, argv); });
}
