// SPDX-License-Identifier: BSL-1.0
// Law: progress is true. No reported bound is above the least time of any schedule, no reported time below it, and the
// answer is no worse than any report: on small problems beside exhaustive searches, with a link and without one. Each
// report is heard here, since every reading of the clock is later than the one before by more than the time between two
// reports.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "laws/solvers.hpp"
#include "remat/core/run.hpp"
#include "remat/execute/fit_arena.hpp"
#include "remat/method/automatic.hpp"
#include "remat/solver/frontier.hpp"
#include "support/copy_schedules.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/exhaustive_copies.hpp"
#include "support/held_to_the_end.hpp"
#include "support/long_run.hpp"
#include "support/program_clock.hpp"
#include "support/random_graph.hpp"
#include "support/spare_memory.hpp"

using namespace remat;
using namespace remat::test;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// All that a solve has reported.
struct reports {
  double least_objective = infinite, highest_bound = 0;
  std::string objective_stage, bound_stage;  // where these come from
  std::size_t count = 0;

  void hear(const progress& news) {
    ++count;
    if (news.best_objective < least_objective) {
      least_objective = news.best_objective;
      objective_stage = news.stage;
    }
    if (news.lower_bound > highest_bound) {
      highest_bound = news.lower_bound;
      bound_stage = news.stage;
    }
  }
};

/// Calls `solve(run)`, and hears every report.
template <class Solve>
[[nodiscard]] std::pair<solution, reports> hear_all(run_control run, const Solve& solve) {
  reports heard;
  run.on_progress = [&](const progress& news) { heard.hear(news); };
  const hurrying_clock clock(run_clock::report_every + std::chrono::milliseconds(1));
  solution s = solve(run);
  return {std::move(s), std::move(heard)};
}

/// Holds reports against the answer and `least`, the least time of any schedule; NaN: not known.
void check_law(const solution& s, const reports& heard, double least) {
  INFO("least objective ", heard.least_objective, " in stage '", heard.objective_stage, "', highest bound ",
       heard.highest_bound, " in stage '", heard.bound_stage, "'; answer ", s.time, ", bound ", s.lower_bound,
       "; least time ", least);
  if (std::isfinite(heard.least_objective)) {
    CHECK(s.has_schedule());
    CHECK(s.time <= with_rounding(heard.least_objective));
  }
  CHECK(heard.highest_bound <= with_rounding(s.lower_bound));
  if (s.has_schedule()) CHECK(heard.highest_bound <= with_rounding(s.time));
  if (std::isnan(least)) return;
  CHECK(heard.highest_bound <= with_rounding(least));
  CHECK(with_rounding(heard.least_objective) >= least);
}

/// The solvers that take a problem with a link.
[[nodiscard]] bool makes_copies(const law_solver& solver) {
  for (const char* name : {"no_remat", "refined", "rockmate", "hiremate", "offload", "pofo", "auto"})
    if (solver.reports == name) return true;
  return solver.name == "evict (copies)";
}

}  // namespace

TEST_CASE("on random problems whose optimum is known, with a link and without one") {
  run_control run;
  run.work_limit = 20'000;
  run.seed = 1;
  std::map<std::string, std::size_t> count;
  std::size_t alone = 0, linked = 0, copied = 0;
  const auto check_all = [&](const problem& p, double least) {
    for (const law_solver& solver : all_solvers()) {
      if (p.link() && !makes_copies(solver)) continue;
      CAPTURE(solver.name);
      const auto [s, heard] = hear_all(run, [&](const run_control& r) { return solver.solve(p, r); });
      check_law(s, heard, least);
      count[solver.name + (p.link() ? " with a link" : "")] += heard.count;
    }
  };
  for (std::uint64_t seed = 0; seed < num_cases(40, 2000); ++seed) {
    random_graph_options kind = kind_of_graph(seed);
    const bool has_link = seed % 2 == 1;
    kind.operations = has_link ? std::min(kind.operations, 5U) : kind.operations + 1;
    kind.backward = 100;
    const problem free = random_problem(seed + 7000, kind);
    for (const int percent : {0, 35}) {
      CAPTURE(seed);
      CAPTURE(percent);
      const problem p = with_spare_memory(free, percent, 100);
      if (!has_link) {
        check_all(p, least_time(p));
        ++alone;
        continue;
      }
      const problem q = p.with_link(random_link(p, seed));
      const fastest_result truth = fastest_with_copies(q, 60'000);
      if (!truth.complete) continue;
      check_all(q, truth.time);
      ++linked;
      copied += truth.time < least_time(p);
    }
  }
  MESSAGE(alone, " problems without a link, ", linked, " with one, in ", copied, " of which copies help");
  CHECK(copied > linked / 10);
  for (const auto& [name, heard] : count) MESSAGE(name, ": ", heard, " reports");
  for (const char* name : {"exact", "refined", "auto", "auto with a link", "offload with a link", "pofo with a link"}) {
    CAPTURE(name);
    CHECK(count[name] > 0);
  }
}

TEST_CASE("on a problem whose optimum without copies, or within other budgets, is another one") {
  const problem whole = held_to_the_end(600'000'600, problem::unlimited);
  run_control run;
  run.work_limit = 100'000;
  for (const std::int64_t budget : {2'600'000'000L, 2'300'000'000L, 2'000'000'000L}) {
    const problem p = whole.with_budget(budget);
    CAPTURE(budget);
    for (const law_solver& solver : all_solvers()) {
      if (!makes_copies(solver)) continue;
      CAPTURE(solver.name);
      const auto [s, heard] = hear_all(run, [&](const run_control& r) { return solver.solve(p, r); });
      check_law(s, heard, 4);
    }
  }
}

TEST_CASE("on bundled graphs") {
  run_control run;
  run.work_limit = 60'000;
  for (const char* name : {"unet5-b16-256", "rk/gpt2-like-2l"})
    for (const bool has_link : {false, true}) {
      problem p = within(bundled_problem(name), 0.5);
      if (has_link) p = p.with_link({.out = 64e9, .in = 64e9, .latency = 1e-5});
      for (const law_solver& solver : all_solvers()) {
        if (has_link && !makes_copies(solver)) continue;
        CAPTURE(name);
        CAPTURE(has_link);
        CAPTURE(solver.name);
        const auto [s, heard] = hear_all(run, [&](const run_control& r) { return solver.solve(p, r); });
        check_law(s, heard, std::numeric_limits<double>::quiet_NaN());
      }
    }
}

TEST_CASE("a user's part of auto reports no figures, since its bounds are not believed") {
  const problem p = within(bundled_problem("unet5-b16-256"), 0.45);
  bool was_asked = false;
  automatic_options options;
  options.extra_solvers.push_back({"liar", [&](const problem&, const run_control& run) {
                                     was_asked = true;
                                     run.on_progress({.best_objective = 0, .lower_bound = 1e300});
                                     return solution();
                                   }});
  const auto [s, heard] = hear_all({.work_limit = 400'000}, [&](const run_control& run) {
    options.run = run;
    return automatic(p, options);
  });
  CHECK(was_asked);
  check_law(s, heard, std::numeric_limits<double>::quiet_NaN());
}

TEST_CASE("searches over budgets report nothing of one budget as if it were of all") {
  const problem p = bundled_problem("unet5-b16-256");
  const std::int64_t peak = p.graph().baseline_peak;
  const std::vector<std::int64_t> budgets{peak / 2, peak * 7 / 10};
  const run_control run{.work_limit = 60'000};
  for (const bool together : {false, true}) {
    const auto [s, heard] = hear_all(run, [&](const run_control& r) {
      return (together ? frontier(p, budgets, automatic, r) : frontier(p, budgets, evict, r)).front();
    });
    CHECK(heard.count > 0);
    CHECK(std::isinf(heard.least_objective));
    CHECK(heard.highest_bound == 0);
  }
  // The dual's objective is the peak.
  const auto [least, of_dual] = hear_all(
      run, [&](const run_control& r) { return least_memory_for(p, 1.1 * p.graph().baseline_time, evict, {.run = r}); });
  REQUIRE(least.has_schedule());
  CHECK(of_dual.least_objective >= static_cast<double>(least.peak_bytes));
  CHECK(of_dual.least_objective <= static_cast<double>(peak));
  CHECK(of_dual.highest_bound <= static_cast<double>(least.peak_bytes));
  CHECK(of_dual.highest_bound > 0);
  // The best schedule of `fit_arena` is one whose arena fits.
  fit_arena_options fitting;
  fitting.budget = peak / 2;
  const auto [fitted, of_arena] = hear_all({.work_limit = 600'000}, [&](const run_control& r) {
    fitting.run = r;
    return solution(fit_arena(p, evict, fitting));
  });
  check_law(fitted, of_arena, std::numeric_limits<double>::quiet_NaN());
}
