// SPDX-License-Identifier: BSL-1.0
#include "remat/method/rotor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/slot_table.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"
#include "support/answer.hpp"
#include "support/csv.hpp"
#include "support/exhaustive.hpp"
#include "support/processor_time.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::chain_action;
using remat::chain_problem;
using remat::chain_solution;
using remat::chain_step;
using remat::problem;
using remat::solution;
using remat::solve_status;

static_assert(remat::solver_for<remat::rotor_solver, problem>);

using plan = std::vector<chain_step>;

plan joined(plan a, const plan& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Every memory-persistent schedule of the stages s … t.
std::vector<plan> all_schedules(std::uint32_t s, std::uint32_t t) {
  std::vector<plan> out;
  const std::vector<plan> rest = s == t ? std::vector<plan>{{}} : all_schedules(s + 1, t);
  for (const plan& inner : rest) {
    plan whole = joined({{chain_action::forward_all, s}}, inner);
    whole.push_back({chain_action::backward, s});
    out.push_back(std::move(whole));
  }
  for (std::uint32_t j = s + 1; j <= t; ++j) {
    plan forward;
    for (std::uint32_t i = s; i < j; ++i)
      forward.push_back({i == s ? chain_action::forward_checkpoint : chain_action::forward_none, i});
    const std::vector<plan> before = all_schedules(s, j - 1);
    for (const plan& behind : all_schedules(j, t))
      for (const plan& again : before) out.push_back(joined(joined(forward, behind), again));
  }
  return out;
}

void check_chain_answer(const chain_problem& p, const chain_solution& s) {
  if (!s.has_schedule()) {
    CHECK(s.status != solve_status::optimal);
    CHECK(s.status != solve_status::feasible);
    return;
  }
  const remat::chain_report report = remat::simulate(p, *s.plan);
  CHECK(report.legal);
  CHECK(report.time == s.time);
  CHECK(report.peak_bytes == s.peak_bytes);
  CHECK(report.peak_bytes <= p.budget());
  CHECK(s.time >= s.lower_bound * (1 - 1e-12));
}

TEST_CASE("short chains, slots of one byte: the least time of all memory-persistent schedules") {
  int finite = 0, infinite = 0, published_loses = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const remat::chain c = remat::test::random_chain(seed, 1 + seed % 5);
    const chain_problem free(c);
    const auto loss = static_cast<std::uint32_t>(c.length() + 1);
    std::vector<std::pair<std::int64_t, double>> all;  // peak, time
    for (const plan& steps : all_schedules(1, loss)) {
      // A checkpoint before the loss alone is no different from none.
      const bool loss_again = std::any_of(steps.begin(), steps.end(), [&](const chain_step& k) {
        return k.stage == loss && k.action != chain_action::forward_all && k.action != chain_action::backward;
      });
      if (loss_again) continue;
      const remat::chain_report report = remat::simulate(free, steps);
      REQUIRE(report.legal);
      all.push_back({report.peak_bytes, report.time});
    }
    for (const int percent : {100, 85, 70, 55, 40}) {
      CAPTURE(percent);
      const chain_problem p = free.with_budget(remat::no_remat(free).peak_bytes * percent / 100);
      double least = std::numeric_limits<double>::infinity();
      for (const auto& [peak, time] : all)
        if (peak <= p.budget()) least = std::min(least, time);
      const chain_solution automatic = remat::rotor(p);
      check_chain_answer(p, automatic);
      CHECK(automatic.time == least);
      CHECK(automatic.persistent_optimum == automatic.has_schedule());
      remat::rotor_options options;
      options.form = remat::rotor_form::bytes;
      CHECK(remat::rotor(p, options).time == least);
      options.form = remat::rotor_form::slots;
      options.slots = static_cast<std::uint32_t>(std::max<std::int64_t>(p.budget(), 1));
      options.exact_gradient = true;
      const chain_solution exact = remat::rotor(p, options);
      check_chain_answer(p, exact);
      CHECK(exact.time == least);
      options.exact_gradient = false;
      const chain_solution published = remat::rotor(p, options);
      check_chain_answer(p, published);
      CHECK(published.time >= least);
      published_loses += published.time > least;
      (std::isinf(least) ? infinite : finite) += 1;
      if (exact.status == solve_status::infeasible) CHECK(std::isinf(least));
      // Coarser slots never break the budget, and are never better.
      options.slots = 20;
      options.exact_gradient = true;
      const chain_solution coarse = remat::rotor(p, options);
      check_chain_answer(p, coarse);
      CHECK(coarse.time >= least);
    }
  }
  CHECK(finite > 300);
  CHECK(infinite > 100);
  CHECK(published_loses > 0);
}

TEST_CASE("published times of the reference's recurrence, to the printed digits") {
  const auto rows = remat::test::read_csv(REMAT_TEST_DATA "/rotor.csv");
  REQUIRE(rows.size() > 30);
  int compared = 0, infeasible = 0;
  for (const auto& row : rows) {
    const double length = std::stod(row[1]), slots = std::stod(row[2]);
    CAPTURE(row[0]);
    CAPTURE(row[2]);
    CAPTURE(row[3]);
    const chain_problem p(remat::read_chain(REMAT_TEST_DATA "/chains/" + row[0] + ".json"), std::stoll(row[3]));
    remat::rotor_options options;
    options.slots = static_cast<std::uint32_t>(slots);
    options.form = remat::rotor_form::slots;
    const chain_solution s = remat::rotor(p, options);
    check_chain_answer(p, s);
    if (row[4] == "infeasible") {
      CHECK_FALSE(s.has_schedule());
      ++infeasible;
      continue;
    }
    CHECK(std::abs(s.time - std::stod(row[4])) <= 0.5001e-4);
    ++compared;
    if (length > 100) continue;  // the others take longer in bytes
    options.exact_gradient = true;
    const chain_solution tight = remat::rotor(p, options);
    CHECK(tight.time <= s.time);
    options.form = remat::rotor_form::bytes_or_slots;
    const chain_solution exact = remat::rotor(p, options);
    check_chain_answer(p, exact);
    CHECK(exact.persistent_optimum);
    CHECK(exact.time <= tight.time);
    for (const chain_solution& other : {remat::chen_sqrt(p), remat::revolve(p)}) CHECK(other.time >= s.time);
  }
  CHECK(compared >= 38);
  CHECK(infeasible == 1);
}

TEST_CASE("unit chains: the binomial optimum, since a second saved stage never fits") {
  for (const auto& row : remat::test::read_csv(REMAT_TEST_DATA "/revolve.csv")) {
    // There the slots count the input.
    const auto l = static_cast<std::uint32_t>(std::stoul(row[0])),
               c = static_cast<std::uint32_t>(std::stoul(row[1])) - 1;
    if (l > 50) continue;
    CAPTURE(l);
    CAPTURE(c);
    const std::int64_t saved = l + 1;
    const chain_problem p(remat::test::unit_chain(l, saved), 1 + saved + 1 + c + 1);
    remat::rotor_options options;
    options.slots = static_cast<std::uint32_t>(p.budget());
    CHECK(remat::rotor(p, options).time == std::stod(row[3]));
    options.form = remat::rotor_form::slots;
    CHECK(remat::rotor(p, options).time == std::stod(row[3]));
  }
}

TEST_CASE("random graphs of every kind: valid within the budget, and never better than the optimum") {
  int solved = 0, recomputed = 0;
  remat::rotor_options coarse;
  coarse.slots = 60;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 1 + static_cast<std::uint32_t>(seed % 9);
    options.accumulate = seed % 2 == 0 ? 40 : 10;
    options.once = seed % 3 == 0 ? 0 : 15;
    const problem free = remat::test::random_problem(seed, options);
    for (const int percent : {95, 80, 60}) {
      CAPTURE(percent);
      const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
      const double optimum = remat::test::least_time(p);
      const solution s = remat::rotor(p, coarse);
      remat::test::check_answer(p, s);
      CHECK(s.time >= optimum);
      if (s.status == solve_status::infeasible) CHECK(std::isinf(optimum));
      solved += s.has_schedule();
      recomputed += s.statistics.recomputes > 0;
    }
  }
  CHECK(solved > 180);
  CHECK(recomputed > 20);
}

/// Checks of every Pareto-optimal schedule of a chain cut from a graph that its operations take no more time and memory
/// than the chain says, sizes in slots of `unit` bytes rounded up. Returns how many schedules there are.
int check_frontier(const problem& p, const remat::detail::stage_chain& stages, std::int64_t unit) {
  const auto slots = static_cast<std::uint32_t>(remat::detail::store_all_bytes(stages) / unit + 1 + stages.length());
  const auto sizes = remat::detail::size_chain(stages, {unit, slots, remat::detail::slot_rounding::up});
  const remat::detail::excess_bound bound(sizes);
  remat::detail::slot_table table(sizes, slots, bound);
  remat::run_clock clock({});
  table.fill(clock, std::int64_t{1} << 32);
  int points = 0;
  for (std::uint32_t m = table.first(); m <= std::min(table.last(), slots); ++m) {
    if (m > table.first() && table.excess(m - 1) == table.excess(m)) continue;
    CAPTURE(m);
    const auto operations = stages.expand(table.steps(m));
    const remat::check_report flat = remat::check(p, remat::schedule_computes(p, operations));
    CHECK_MESSAGE(flat.valid(), flat.message());
    CHECK(flat.time <= (table.cost(m) + stages.standing_time()) * (1 + 1e-9));
    CHECK(flat.peak_bytes <= m * unit + stages.standing_bytes());
    ++points;
  }
  return points;
}

TEST_CASE("a chain's schedule takes no more time and memory on the graph than the chain says: random graphs") {
  int points = 0;
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    remat::test::random_graph_options options;
    options.operations = 4 + static_cast<std::uint32_t>(seed % 37);
    options.backward = seed % 4 == 3 ? 50 : 100;
    if (seed % 4 < 2) options.once = 0;
    if (seed % 4 == 0) options.accumulate = options.effect = options.final_output = options.dead = 0;
    if (seed % 4 == 3) options.accumulate = 40;
    const problem p = remat::test::random_problem(seed, options);
    const remat::detail::forward_line line = remat::detail::find_forward_line(p.graph());
    remat::detail::cut_list cuts;
    const std::uint64_t stride = 1 + engine() % 5;
    for (std::uint32_t i = 1; i < line.operations.size(); ++i)
      if (engine() % stride == 0) cuts.push_back(i);
    const std::int64_t unit = 1 + static_cast<std::int64_t>(engine() % 2);
    for (const remat::detail::forward_line& k : {line, remat::detail::find_narrow_line(p.graph(), line)})
      for (const auto order : {remat::detail::stage_order::listed, remat::detail::stage_order::least_peak})
        points += check_frontier(p, remat::detail::stage_chain(p.graph(), k, cuts, order), unit);
  }
  CHECK(points > 4000);
}

TEST_CASE("a chain's schedule takes no more time and memory on the graph than the chain says: bundled graphs") {
  int points = 0;
  for (const auto& file : remat::test::bundled_graphs()) {
    CAPTURE(file);
    const problem p = remat::read_training_step(file).instance;
    const remat::detail::forward_line line = remat::detail::find_forward_line(p.graph());
    for (const remat::detail::cut_list& cuts : remat::detail::cut_levels(line, 40)) {
      const remat::detail::stage_chain stages(p.graph(), line, cuts, remat::detail::stage_order::least_peak);
      points += check_frontier(p, stages, remat::detail::store_all_bytes(stages) / 100 + 1);
    }
  }
  CHECK(points > 500);
}

TEST_CASE("no answer for a graph is slower than the optimum of a chain that it is cut into") {
  int compared = 0;
  remat::rotor_options options;
  options.slots = 50;
  options.max_stages = 30;
  options.retain_rounds = 0;  // without what makes answers better than chains
  for (const auto& file : remat::test::bundled_graphs()) {
    CAPTURE(file);
    const problem free = remat::read_training_step(file).instance;
    const remat::detail::forward_line listed = remat::detail::find_forward_line(free.graph());
    std::vector<solution> answers;
    std::vector<problem> budgets;
    for (const int percent : {70, 45}) {
      budgets.push_back(free.with_budget(free.graph().baseline_peak / 100 * percent));
      answers.push_back(remat::rotor(budgets.back(), options));
    }
    for (const remat::detail::forward_line& line : {listed, remat::detail::find_narrow_line(free.graph(), listed)})
      for (const remat::detail::cut_list& cuts : remat::detail::cut_levels(line, options.max_stages - 1)) {
        const remat::detail::stage_chain stages(free.graph(), line, cuts, remat::detail::stage_order::least_peak);
        const std::int64_t unit = remat::detail::slot_bytes(stages, options.slots);
        const auto sizes = remat::detail::size_chain(stages, {unit, options.slots, remat::detail::slot_rounding::up});
        const remat::detail::excess_bound bound(sizes);
        remat::detail::slot_table table(sizes, options.slots, bound);
        remat::run_clock clock({});
        table.fill(clock, std::int64_t{1} << 32);
        for (std::size_t k = 0; k < answers.size(); ++k) {
          const std::int64_t room = (budgets[k].budget() - stages.standing_bytes()) / unit;
          if (room < table.first()) continue;
          const auto m = static_cast<std::uint32_t>(std::min<std::int64_t>(room, options.slots));
          CHECK(answers[k].time <= (table.cost(m) + stages.standing_time()) * (1 + 1e-9));
          ++compared;
        }
      }
  }
  CHECK(compared > 100);
}

TEST_CASE("larger random graphs") {
  remat::rotor_options coarse;
  coarse.slots = 100;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 10 + static_cast<std::uint32_t>(seed % 40);
    options.backward = 90;
    options.once = seed % 2 == 0 ? 0 : 10;
    const problem free = remat::test::random_problem(seed, options);
    for (const int percent : {80, 50}) {
      const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
      remat::test::check_answer(p, remat::rotor(p, coarse));
    }
  }
}

TEST_CASE("every bundled graph, at most budgets") {
  int solved = 0, better = 0, worse = 0;
  remat::rotor_options options;
  options.slots = 60;
  options.max_stages = 30;
  options.candidates = 4;
  for (const auto& file : remat::test::bundled_graphs()) {
    CAPTURE(file);
    const problem free = remat::read_training_step(file).instance;
    for (const int percent : {80, 50, 30}) {
      CAPTURE(percent);
      const problem p = free.with_budget(free.graph().baseline_peak / 100 * percent);
      const solution s = remat::rotor(p, options);
      remat::test::check_answer(p, s);
      solved += s.has_schedule();
      const solution other = remat::chen_greedy(p);
      better += s.time < other.time;
      worse += s.time > other.time;
    }
  }
  CHECK(solved >= 52);
  CHECK(better >= 50);
  CHECK(worse <= 2);
}

TEST_CASE("limits: stop, work, wall clock, memory of the table, no slots") {
  const problem free = remat::read_training_step(REMAT_TEST_DATA "/graphs/resnet101-b100-128.json").instance;
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  remat::rotor_options options;
  std::stop_source source;
  source.request_stop();
  options.run.stop = source.get_token();
  CHECK(remat::rotor(p, options).status == solve_status::cancelled);
  options.run = {};
  options.run.work_limit = 0;
  CHECK(remat::rotor(p, options).status == solve_status::timeout);
  options.run.work_limit = 32'000;  // some chains are done by then
  const solution some = remat::rotor(p, options);
  CHECK(some.plan == remat::rotor(p, options).plan);
  remat::test::check_answer(p, some);

  options.run = {};
  options.slots = 20'000;
  options.run.time_limit = std::chrono::milliseconds(30);
  std::uint64_t calls = 0;
  options.run.on_progress = [&](const remat::progress& news) {
    ++calls;
    CHECK(news.solver == "rotor");
    CHECK(news.done <= news.total);
  };
  const double start = remat::test::processor_seconds();
  remat::test::check_answer(p, remat::rotor(p, options));
  CHECK(remat::test::processor_seconds() - start < 1);
  CHECK(calls > 0);

  const chain_problem c(remat::test::unit_chain(300, 400), 900);
  options = {};
  options.table_bytes = 1000;
  check_chain_answer(c, remat::rotor(c, options));  // the schedule that needs no table
  CHECK(remat::rotor(c, options).has_schedule());
  options.form = remat::rotor_form::slots;
  CHECK(remat::rotor(c, options).status == solve_status::error);
  CHECK_FALSE(remat::rotor(c, options).message.empty());
  options.form = remat::rotor_form::bytes;
  CHECK(remat::rotor(c, options).status == solve_status::error);
  options.form = remat::rotor_form::bytes_or_slots;
  options.table_bytes = 40 << 20;  // fewer slots
  check_chain_answer(c, remat::rotor(c, options));
  options.slots = 0;
  CHECK_THROWS_AS((void)remat::rotor(c, options), remat::bad_argument);
  CHECK_THROWS_AS((void)remat::rotor(p, options), remat::bad_argument);
}

TEST_CASE("a chain on which it is cut off: the closed form; if asked, it begins with that, and is never worse") {
  for (const std::size_t length : {60U, 300U}) {
    CAPTURE(length);
    const chain_problem p(remat::test::adjoint_chain(length), 14);
    const chain_solution closed = remat::revolve(p);
    REQUIRE(closed.has_schedule());
    for (const remat::rotor_form form :
         {remat::rotor_form::slots, remat::rotor_form::bytes, remat::rotor_form::bytes_or_slots})
      for (const std::uint64_t work : {0U, 1000U, 20'000U})
        for (const bool begins : {false, true}) {
          CAPTURE(static_cast<int>(form));
          CAPTURE(work);
          CAPTURE(begins);
          remat::rotor_options options;
          options.form = form;
          options.begin_with_revolve = begins;
          options.run.work_limit = work;
          const chain_solution s = remat::rotor(p, options);
          if (begins || work == 0) REQUIRE(s.has_schedule());
          if (!s.has_schedule()) continue;
          check_chain_answer(p, s);
          if (begins || s.statistics.work >= work) CHECK(s.time <= closed.time);
          const std::string* form_of = s.statistics.own.find<std::string>("form");
          REQUIRE(form_of);
          if (work == 0) CHECK(*form_of == "closed");
        }
  }
  // By itself, and not cut off, it answers with the table's schedule, which the closed form bounds.
  const chain_problem p(remat::test::adjoint_chain(60), 14);
  const chain_solution own = remat::rotor(p);
  REQUIRE(own.has_schedule());
  CHECK(own.persistent_optimum);
  CHECK(*own.statistics.own.find<std::string>("form") == "exact");
  CHECK(own.time <= remat::revolve(p).time);
  CHECK(remat::rotor(p, {.begin_with_revolve = true}).time == own.time);
}

TEST_CASE("by itself only the tables' schedules; to improve, memory is spent and refinement follows") {
  const problem free = remat::read_training_step(REMAT_TEST_DATA "/graphs/unet5-b16-256.json").instance;
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  remat::rotor_options options;
  options.slots = 60;
  options.max_stages = 30;
  const solution own = remat::rotor(p, options);
  REQUIRE(own.has_schedule());
  CHECK(own.by == "rotor");
  const remat::figures& figures = own.statistics.own;
  CHECK(*figures.find<double>("flat_time") == own.time);
  CHECK(*figures.find<std::int64_t>("flat_peak_bytes") == own.peak_bytes);
  CHECK(*figures.find<std::int64_t>("chains") > 3);
  CHECK(*figures.find<std::int64_t>("tables_refused") == 0);
  CHECK(*figures.find<std::int64_t>("stages") <= 30);
  CHECK(*figures.find<std::int64_t>("distinct_stages") <= *figures.find<std::int64_t>("stages"));
  CHECK(*figures.find<double>("table_time") > 0);
  CHECK(figures.find<double>("own_time") == nullptr);

  options.retain_rounds = 3;
  const solution held = remat::rotor(p, options);
  CHECK(held.by == "rotor/retain");
  CHECK(held.time < own.time);
  options.retain_rounds = 0;
  options.improve = remat::by_refinement;
  options.run.work_limit = 960'000;
  const solution better = remat::rotor(p, options);
  CHECK(better.by.rfind("rotor/refined/", 0) == 0);
  CHECK(better.time < held.time);
  CHECK(*better.statistics.own.find<double>("own_time") == own.time);
  CHECK(*better.statistics.own.find<std::string>("own_by") == "rotor");

  options = {};
  options.max_stages = 30;
  options.table_bytes = 1000;
  const solution refused = remat::rotor(p, options);
  CHECK(*refused.statistics.own.find<std::int64_t>("tables_refused") > 0);
}

TEST_CASE("count_distinct_stages: the stages of a homogeneous chain but for its ends") {
  const problem p = remat::read_training_step(REMAT_TEST_DATA "/graphs/gpt2-small-b8-s1024.json").instance;
  const remat::detail::forward_line line = remat::detail::find_forward_line(p.graph());
  std::size_t fewest = 1000;
  for (const remat::detail::cut_list& cuts : remat::detail::cut_levels(line, 100)) {
    const remat::detail::stage_chain chain(p.graph(), line, cuts);
    const std::size_t distinct = remat::detail::count_distinct_stages(chain);
    CHECK(distinct >= 1);
    CHECK(distinct <= chain.length());
    if (chain.length() >= 12) fewest = std::min(fewest, distinct);
  }
  CHECK(fewest <= 6);  // twelve equal blocks, and what stands before and behind them
}

}  // namespace
