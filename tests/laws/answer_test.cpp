// SPDX-License-Identifier: BSL-1.0
// Law: an answer is a valid schedule within the budget, and no bound is above a schedule's time; `optimal` and
// `infeasible` are true.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "laws/solvers.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/cost/models.hpp"
#include "remat/schedule/check.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/long_run.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::test;

namespace {

/// The least time of any schedule, where it is known.
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// `by` begins with the solver's own name, and names a part behind each stroke.
void check_by(const std::string& by, const std::string& solver) {
  CHECK((by == solver || by.rfind(solver + "/", 0) == 0));
  CHECK(by.find("//") == std::string::npos);
  CHECK(by.back() != '/');
}

void check_law(const problem& p, const solution& s, double least, const std::string& solver) {
  if (s.has_schedule())
    check_by(s.by, solver);
  else
    CHECK(s.by.empty());
  CHECK(s.lower_bound >= p.graph().needed_time);
  if (!std::isnan(least)) CHECK(s.lower_bound <= with_rounding(least));
  if (s.has_schedule()) {
    CHECK((s.status == solve_status::optimal || s.status == solve_status::feasible));
    const check_report report = check(p, *s.plan);
    CHECK(report.valid());
    CHECK(report.peak_bytes <= p.budget());
    CHECK(report.peak_bytes == s.peak_bytes);
    CHECK(report.host_peak_bytes == s.host_peak_bytes);
    CHECK(report.time == s.time);
    CHECK(s.lower_bound <= with_rounding(s.time));
    CHECK(report.computes == s.statistics.computes);
    CHECK(report.recomputes == s.statistics.recomputes);
    if (!std::isnan(least)) CHECK(s.time >= least * (1 - rounding_error));
    if (s.status == solve_status::optimal) {
      CHECK(is_optimal(s.time, s.lower_bound));
      if (!std::isnan(least)) CHECK(is_optimal(s.time, least));
    }
  } else {
    CHECK(s.status != solve_status::optimal);
    CHECK(s.status != solve_status::feasible);
    CHECK(s.status != solve_status::cancelled);  // nobody asked for a stop
    if (s.status == solve_status::infeasible) {
      CHECK(std::isinf(s.lower_bound));
      CHECK_FALSE(s.message.empty());
      if (!std::isnan(least)) CHECK(std::isinf(least));
    }
  }
}

}  // namespace

TEST_CASE("on random graphs whose optimum is known") {
  run_control run;
  run.work_limit = 8000;
  run.seed = 1;
  std::map<std::string, int> schedules;
  int cases = 0, impossible = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const problem whole = random_problem(seed, kind_of_graph(seed));
    for (const double part : {1.0, 0.75, 0.5}) {
      const problem p = within(whole, part);
      const double least = least_time(p);
      ++cases;
      impossible += std::isinf(least);
      for (const law_solver& solver : all_solvers()) {
        CAPTURE(seed);
        CAPTURE(part);
        CAPTURE(solver.name);
        const solution s = solver.solve(p, run);
        check_law(p, s, least, solver.reports);
        schedules[solver.name] += s.has_schedule();
      }
    }
  }
  // The law would hold of a solver that finds nothing: most find nearly all that there is.
  CHECK(impossible > 10);
  for (const char* name : {"evict", "exact", "refined", "twremat", "checkmate (own)", "hiremate (own)", "auto"}) {
    CAPTURE(name);
    CHECK(schedules[name] >= (cases - impossible) * 9 / 10);
  }
  for (const auto& [name, found] : schedules) {
    CAPTURE(name);
    CHECK(found > 0);
    MESSAGE(name << ": " << cases << " cases, " << found << " schedules of " << cases - impossible);
  }
}

TEST_CASE("cut off on a chain, no solver has less than the closed form of binomial checkpointing") {
  const problem whole(chain_graph(adjoint_chain(300)), measured_cost{});
  std::stop_source stop;
  stop.request_stop();
  std::vector<run_control> limits;
  for (const std::uint64_t work : {0U, 1U, 50U, 3000U}) limits.push_back({.work_limit = work});
  limits.push_back({.time_limit = std::chrono::nanoseconds(0)});
  limits.push_back({.time_limit = std::chrono::milliseconds(1)});
  limits.push_back({.stop = stop.get_token()});
  for (const std::int64_t budget : {9, 24, 84}) {
    if (!long_run() && budget == 24) continue;
    const problem p = whole.with_budget(budget);
    const double closed = revolve(p).time;
    CHECK(closed < 3000);
    for (const law_solver& solver : all_solvers()) {
      if (solver.reports == "no_remat") continue;  // it runs nothing again
      for (const run_control& run : limits) {
        CAPTURE(budget);
        CAPTURE(solver.name);
        CAPTURE(run.work_limit);
        const solution s = solver.solve(p, run);
        check_law(p, s, unknown, solver.reports);
        // Other methods may end by themselves within a limit, with what they find; `auto` begins with the closed form.
        const bool is_cut_off =
            run.work_limit == 0 || run.time_limit == std::chrono::nanoseconds(0) || run.stop.stop_requested();
        if (!is_cut_off && solver.name != "auto" && solver.name != "revolve") continue;
        CHECK(s.has_schedule());
        CHECK(s.time <= closed);
      }
    }
  }
}

TEST_CASE("on bundled graphs") {
  run_control run;
  run.work_limit = 1600;
  run.seed = 1;
  for (const char* name : {"toy-skip-3", "mlp-chain-8", "fno1d-b32-8192", "rk/gpt2-like-2l"}) {
    const problem whole = bundled_problem(name);
    for (const double part : {1.0, 0.6, 0.35, 0.1}) {
      const problem p = within(whole, part);
      for (const law_solver& solver : all_solvers()) {
        CAPTURE(name);
        CAPTURE(part);
        CAPTURE(solver.name);
        check_law(p, solver.solve(p, run), unknown, solver.reports);
      }
    }
  }
}

TEST_CASE("without a budget the needed operations, each once, are optimal") {
  const problem p = bundled_problem("unet5-b16-256");
  run_control run;
  run.work_limit = 4800;
  for (const law_solver& solver : all_solvers()) {
    CAPTURE(solver.name);
    const solution s = solver.solve(p, run);
    CHECK(s.status == solve_status::optimal);
    CHECK(s.time == doctest::Approx(p.graph().needed_time));
  }
}

TEST_CASE("solvers that make no copies refuse a link to the host, in one sentence") {
  const problem p = random_problem(1, {.operations = 8}).with_link({});
  for (const law_solver& solver : all_solvers()) {
    INFO(solver.name);
    static const std::set<std::string> with_copies{"no_remat", "refined", "rockmate", "hiremate",
                                                   "offload",  "pofo",    "auto"};
    if (with_copies.count(solver.reports) != 0 || solver.name == "evict (copies)") {
      check_law(p, solver.solve(p, {}), unknown, solver.reports);  // it claims nothing that copies could refute
      continue;
    }
    CHECK_THROWS_WITH_AS(
        (void)solver.solve(p, {}),
        (solver.reports + ": the problem has a link to the host, but this solver makes no copies; solve "
                          "problem::without_link()")
            .c_str(),
        bad_argument);
  }
}
