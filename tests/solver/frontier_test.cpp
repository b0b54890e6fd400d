// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/frontier.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/detail/evict_with_copies.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/twremat.hpp"
#include "remat/schedule/check.hpp"
#include "support/answer.hpp"
#include "support/exhaustive.hpp"
#include "support/held_to_the_end.hpp"
#include "support/long_run.hpp"
#include "support/random_graph.hpp"

using namespace remat;

namespace {

problem bundled(const char* name) {
  return read_training_step(std::string(REMAT_TEST_DATA "/graphs/") + name + ".json").instance;
}

}  // namespace

TEST_CASE("with an exact solver, the least memory is the least") {
  std::size_t found = 0, below_listed = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 4)});
    const flat_graph& s = p.graph();
    for (const double overhead : {0.0, 0.3, 1.0}) {
      const double most = s.baseline_time * (1 + overhead);
      const solution least = least_memory_for(p, most, exact);
      INFO("seed ", seed, " overhead ", overhead);
      REQUIRE(least.has_schedule());
      const check_report r = check(p, *least.plan);
      REQUIRE(r.valid());
      REQUIRE(r.peak_bytes == least.peak_bytes);
      REQUIRE(r.time <= most * (1 + 1e-12));
      const auto* proven = least.statistics.own.find<std::int64_t>("least_bytes");
      REQUIRE(proven != nullptr);
      REQUIRE(*proven == least.peak_bytes);  // each solve is exact
      REQUIRE(least.status == solve_status::optimal);
      // One byte less: no schedule is fast enough.
      if (least.peak_bytes > 0) {
        const problem tighter = p.with_budget(least.peak_bytes - 1);
        REQUIRE(test::least_time(tighter) > most);
        REQUIRE(least_memory_for(tighter, most, exact).status == solve_status::infeasible);
      }
      ++found;
      below_listed += least.peak_bytes < s.baseline_peak;
    }
  }
  CHECK(found == 900);
  CHECK(below_listed > 100);
}

TEST_CASE("more time never takes more memory, on a real graph") {
  const problem p = bundled("unet5-b16-256");
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  for (const double overhead : {0.0, 0.05, 0.1, 0.25}) {
    if (!test::long_run() && overhead == 0.05) continue;
    const solution s = least_memory_for(p, p.graph().baseline_time * (1 + overhead), twremat);
    REQUIRE(s.has_schedule());
    CHECK(s.time <= p.graph().baseline_time * (1 + overhead) * (1 + 1e-12));
    CHECK(s.peak_bytes <= before);
    before = s.peak_bytes;
  }
  CHECK(before < p.graph().baseline_peak / 2);
}

TEST_CASE("a time that nothing can have is infeasible, and a stop is heard") {
  const problem p = bundled("toy-skip-3");
  CHECK(least_memory_for(p, p.graph().needed_time * 0.9, evict).status == solve_status::infeasible);
  std::stop_source source;
  source.request_stop();
  trade_off_options options;
  options.run.stop = source.get_token();
  // It has what was there at once: the listed order.
  const solution stopped = least_memory_for(p, p.graph().needed_time * 2, evict, options);
  REQUIRE(stopped.has_schedule());
  CHECK(stopped.time <= 2 * p.graph().needed_time);
}

TEST_CASE("a frontier is monotone, in the order of its budgets, and within each of them") {
  const problem p = bundled("uno2d-b16-256");
  const std::int64_t peak = p.graph().baseline_peak;
  const std::vector<std::int64_t> budgets{peak / 2, peak, peak * 3 / 5, peak / 5, peak * 4 / 5};
  const std::vector<solution> answers = frontier(p, budgets, twremat);
  REQUIRE(answers.size() == budgets.size());
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    test::check_answer(p.with_budget(budgets[i]), answers[i]);
    for (std::size_t j = 0; j < budgets.size(); ++j)
      if (budgets[i] < budgets[j]) CHECK(answers[i].time >= answers[j].time);
  }
  CHECK(answers[3].status == solve_status::infeasible);
  CHECK(answers[1].status == solve_status::optimal);
}

TEST_CASE("a schedule of a smaller budget is carried over whole, and hides no failure of the larger one") {
  const problem p = test::held_to_the_end(600'000'600, problem::unlimited);
  const std::vector<std::int64_t> budgets{2'000'000'000, 2'200'000'000};
  solution of_larger;
  const auto solve = [&](const problem& q, const run_control&) {
    return q.budget() > budgets[0] ? of_larger : evict_with_copies(q);
  };
  of_larger.lower_bound = p.graph().needed_time;
  std::vector<solution> answers = frontier_by(p, budgets, solve);
  REQUIRE(answers[0].has_schedule());
  REQUIRE(answers[1].has_schedule());
  const check_report report = check(p, *answers[1].plan);
  CHECK(report.host_peak_bytes > 0);
  CHECK(answers[1].host_peak_bytes == report.host_peak_bytes);
  CHECK(answers[1].by == answers[0].by);
  CHECK(answers[1].status == solve_status::optimal);
  // The larger budget was proven to have no schedule: refuted.
  of_larger.status = solve_status::infeasible;
  of_larger.lower_bound = std::numeric_limits<double>::infinity();
  answers = frontier_by(p, budgets, solve);
  CHECK(answers[1].status == solve_status::feasible);
  CHECK(answers[1].lower_bound == p.graph().needed_time);
  CHECK(answers[1].message.find("defect") != std::string::npos);
  // Its solve had an error: that is said.
  of_larger.status = solve_status::error;
  of_larger.lower_bound = 0;
  of_larger.message = "the reason";
  answers = frontier_by(p, budgets, solve);
  CHECK(answers[1].status == solve_status::feasible);
  CHECK(answers[1].message.find("the reason") != std::string::npos);
}

TEST_CASE("under a limit of work the answer is the same again") {
  const problem p = bundled("unet5-b16-256");
  trade_off_options options;
  options.run.work_limit = 200000;
  const double most = p.graph().baseline_time * 1.1;
  const solution once = least_memory_for(p, most, twremat, options),
                 again = least_memory_for(p, most, twremat, options);
  REQUIRE(once.has_schedule());
  CHECK(*once.plan == *again.plan);
}

TEST_CASE("bisection finds the least budget that is good enough, nearly, within its probes") {
  for (const std::int64_t least : {0, 1, 77, 999, 1000}) {
    std::uint32_t probes = 0;
    std::int64_t best = -1;
    const auto probe = [&](std::int64_t budget, const run_control& run) -> budget_probe {
      CHECK(run.work_limit == 24);
      ++probes;
      if (budget < least) return {};
      best = budget;
      return {budget};
    };
    CHECK(bisect_budgets(0, 1000, {.run = {.work_limit = 24 * 24}}, probe).found);
    CHECK(best >= least);
    CHECK(best <= least + 4);  // the bisection ends at an interval of a 256th
    CHECK(probes <= 24);
  }
  const auto never = [](std::int64_t, const run_control&) { return budget_probe(); };
  CHECK_FALSE(bisect_budgets(0, 1000, {}, never).found);
  CHECK_THROWS_AS((void)bisect_budgets(0, 1000, {.probes = 0}, never), bad_argument);
}

TEST_CASE("progress that is good enough stops a probe, and a limit of work does not") {
  for (const bool counted : {false, true}) {
    trade_off_options options{.probes = 1};
    if (counted) options.run.work_limit = 100;
    int news = 0;
    options.run.on_progress = [&](const progress&) { ++news; };
    const auto probe = [&](std::int64_t budget, const run_control& run) -> budget_probe {
      run.on_progress({.best_objective = 2, .lower_bound = 1});
      CHECK_FALSE(run.stop.stop_requested());
      run.on_progress({.best_objective = 1, .lower_bound = 1});
      CHECK(run.stop.stop_requested() == !counted);
      return {budget};
    };
    bisect_budgets(0, 10, options, probe, 1.5);
    CHECK(news == 2);
    const auto proof = [&](std::int64_t, const run_control& run) -> budget_probe {
      run.on_progress({.best_objective = 2, .lower_bound = 1.6});
      CHECK(run.stop.stop_requested() == !counted);
      return {{}, true};
    };
    const budget_bisection none = bisect_budgets(0, 10, options, proof, 1.5);
    CHECK_FALSE(none.found);
    CHECK(none.least == 11);
  }
}

TEST_CASE("progress that is not so decides about no budget: the answer does") {
  for (const bool says_hopeless : {false, true}) {
    CAPTURE(says_hopeless);
    int stopped = 0;
    std::int64_t best = 1001;
    const auto probe = [&](std::int64_t budget, const run_control& run) -> budget_probe {
      run.on_progress(says_hopeless ? progress{.best_objective = 9, .lower_bound = 8} : progress{.best_objective = 1});
      if (run.stop.stop_requested()) {
        ++stopped;
        return {};
      }
      if (budget < 400) return {};
      best = budget;
      return {budget};
    };
    CHECK(bisect_budgets(0, 1000, {.probes = 64}, probe, 1.5).found);
    CHECK(best <= 401);
    CHECK(stopped == 1);  // from then on it is not heeded
  }
}

TEST_CASE("with a link the least memory within a time is found, though without copies nothing is as fast") {
  const problem p = test::held_to_the_end(600'000'600, 2'600'000'000);
  const solution by_all = least_memory_for(p, 4, automatic), by_copies = least_memory_for(p, 4, offload);
  CHECK(by_all.peak_bytes == 2'000'000'000);
  CHECK(by_copies.peak_bytes == 2'000'000'000);
  CHECK(by_all.time == 4);
}

TEST_CASE("bisection probes no budget below one that is proven to be too small") {
  std::vector<std::int64_t> budgets;
  const auto probe = [&](std::int64_t budget, const run_control&) -> budget_probe {
    budgets.push_back(budget);
    if (budget < 60'000) return {{}, true};
    return budget < 70'000 ? budget_probe{} : budget_probe{budget};
  };
  const budget_bisection made = bisect_budgets(0, 100'000, {.probes = 64}, probe);
  CHECK(made.found);
  std::int64_t proven = -1, best = 100'001;
  for (const std::int64_t budget : budgets) {
    CHECK(budget > proven);
    CHECK(budget < best);
    if (budget < 60'000) proven = budget;
    if (budget >= 70'000) best = budget;
  }
  CHECK(best >= 70'000);
  CHECK(best <= 70'000 + 100'000 / 2048);
  CHECK(proven > 40'000);
  CHECK(made.least == proven + 1);
}

TEST_CASE("budgets are solved in ascending order, equal ones once, and answers are handed on where they are better") {
  const std::vector<std::int64_t> budgets{5, 3, 5, 1, 4};
  std::vector<std::int64_t> solved;
  std::vector<std::size_t> positions;
  const auto solve = [&](std::int64_t budget, std::size_t position) {
    solved.push_back(budget);
    positions.push_back(position);
    return budget == 4 ? 100 : static_cast<int>(20 - budget);
  };
  const auto answers = solve_budgets<int>(
      budgets, solve, [](int before, int now) { return before < now; }, [](int before, int& now) { now = before; });
  CHECK(answers == std::vector<int>{15, 17, 15, 19, 17});
  CHECK(solved == std::vector<std::int64_t>{1, 3, 4, 5});
  CHECK(positions == std::vector<std::size_t>{0, 1, 2, 3});
}

TEST_CASE("the time of the dual problem must be a number") {
  const problem p = bundled("toy-skip-3");
  CHECK_THROWS_AS((void)least_memory_for(p, std::numeric_limits<double>::quiet_NaN(), evict), bad_argument);
  CHECK(least_memory_for(p, -1, evict).status == solve_status::infeasible);
}

TEST_CASE("a budget at which memory runs out does not take the other budgets' answers with it") {
  const problem p = bundled("unet5-b16-256");
  const std::int64_t peak = p.graph().baseline_peak;
  const auto solve_but = [&](std::int64_t least, std::int64_t most) {
    return [least, most](const problem& q, const run_control& run) {
      if (q.budget() >= least && q.budget() <= most) throw std::bad_alloc();
      return evict(q, {.run = run});
    };
  };
  const std::vector<std::int64_t> budgets{peak / 2, peak * 7 / 10, peak};
  for (const std::int64_t failing : budgets) {
    const std::vector<solution> all = frontier_by(p, budgets, solve_but(failing, failing), {});
    REQUIRE(all.size() == 3);
    for (std::size_t k = 0; k < all.size(); ++k) {
      CHECK(all[k].out_of_memory == (budgets[k] == failing));
      CHECK(all[k].has_schedule() == (budgets[k] != failing || k > 0));
    }
  }

  const double most_time = p.graph().baseline_time * 1.2;
  const solution least = least_memory_by(p, most_time, solve_but(0, peak * 7 / 10), {});
  REQUIRE(least.has_schedule());
  CHECK(check(p, *least.plan).valid());
  CHECK(least.out_of_memory);
  CHECK(least.message.find("out of memory") != std::string::npos);
  CHECK_THROWS_AS(least_memory_by(p, most_time, solve_but(0, peak), {}), std::bad_alloc);
}
