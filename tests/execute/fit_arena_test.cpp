// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/fit_arena.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/memory/check.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/refined.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/exhaustive_arena.hpp"
#include "support/random_graph.hpp"

using namespace remat;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// What holds of every answer, checked from the outside.
void check_fit(const problem& p, const arena_solution& fit, const fit_arena_options& options) {
  REQUIRE(fit.has_schedule() == fit.memory.has_value());
  CHECK(fit.has_schedule() == (fit.status == solve_status::optimal || fit.status == solve_status::feasible));
  CHECK(fit.solves <= options.solves);
  if (!fit.plan) return;
  const problem unlimited = p.with_budget(problem::unlimited);
  const check_report report = check(unlimited, *fit.plan);
  REQUIRE(report.valid());
  CHECK(fit.peak_bytes == report.peak_bytes);
  CHECK(fit.time == report.time);
  CHECK(fit.statistics.recomputes == report.recomputes);
  CHECK(fit.lower_bound <= fit.time * (1 + 1e-9));
  const lifetimes lives = lifetimes_of(unlimited, *fit.plan);
  const std::vector<interval> intervals = intervals_of(lives, options.elsewhere);
  CHECK(fit.memory->arena_bytes <= options.budget);
  CHECK(fit.memory->arena_bytes % options.memory.alignment == 0);
  CHECK(fit.smallest_arena <= fit.memory->arena_bytes);
  CHECK(check_memory(intervals, fit.memory->offsets, fit.memory->arena_bytes, options.memory.alignment).message() ==
        "valid");
  if (options.elsewhere.empty()) CHECK(fit.peak_bytes <= fit.memory->arena_bytes);
}

/// Some tensors of `p`, by chance.
std::vector<tensor_id> some_tensors(const problem& p, std::uint64_t seed, unsigned percent) {
  std::mt19937_64 engine(seed);
  std::vector<tensor_id> out;
  for (std::uint32_t t = 0; t < p.graph().num_tensors; ++t)
    if (engine() % 100 < percent) out.push_back(static_cast<tensor_id>(t));
  return out;
}

double least_time_in_arena(const problem& p, std::int64_t arena, std::int64_t alignment,
                           const std::vector<tensor_id>& elsewhere) {
  std::vector<bool> outside(p.graph().num_tensors, false);
  for (const tensor_id t : elsewhere) outside[index(t)] = true;
  return test::arena_states(p, arena, alignment, outside).least_time();
}

/// Two tensors of 3 and 5 bytes, and two operations.
training_graph two_tensors() {
  training_graph g("two");
  g.add_tensor({"a", 3, tensor_kind::activation});
  g.add_tensor({"b", 5, tensor_kind::activation});
  g.add_operation({.name = "first", .outputs = {tensor_id{0}}, .seconds = 1, .workspace = 2});
  g.add_operation({.name = "second", .inputs = {tensor_id{0}}, .outputs = {tensor_id{1}}, .seconds = 2});
  g.add_final_output(tensor_id{1});
  return g;
}

/// A graph whose listed order has a load of 6 × `unit` bytes at each of 14 times, in random blocks of at most 5 times.
/// An operation makes each block where it begins; another one reads it at the end of its last time.
problem full_problem(std::uint64_t seed, std::int64_t unit) {
  constexpr std::size_t times = 14;
  std::mt19937_64 engine(seed);
  training_graph g("full");
  std::vector<std::vector<tensor_id>> last_read(times);
  std::vector<std::uint64_t> room(times, 6);
  std::uint32_t tensors = 0;
  for (std::size_t t = 0; t < times; ++t) {
    while (room[t] > 0) {
      const std::uint64_t drawn = 1 + engine() % 4;
      const std::size_t end = std::min(t + 1 + engine() % 5, times);
      const std::uint64_t size = std::min(room[t], drawn);
      std::size_t last = t;
      for (std::size_t u = t; u < end && room[u] >= size; ++u) room[last = u] -= size;
      g.add_tensor({"block", static_cast<std::int64_t>(size) * unit, tensor_kind::activation});
      g.add_operation({.name = "make", .outputs = {tensor_id{tensors}}, .seconds = 1});
      last_read[last].push_back(tensor_id{tensors++});
    }
    for (const tensor_id block : last_read[t]) g.add_operation({.name = "read", .inputs = {block}, .seconds = 1});
  }
  return problem(g, measured_cost{});
}

/// A problem with a schedule whose load, at alignment 1, no arena of it meets.
struct fragmented {
  problem p;
  schedule plan;
  std::int64_t load = 0, arena = 0;
};
std::vector<fragmented> fragmented_schedules(std::int64_t unit = 1) {
  std::vector<fragmented> out;
  for (const std::uint64_t seed : {86, 125, 142, 302, 316, 390, 450, 595, 628, 887}) {
    const problem p = full_problem(seed, unit);
    const memory_plan best = plan_memory(lifetimes_of(p, listed_order(p)), {.alignment = 1});
    CHECK(best.optimal);
    CHECK(best.arena_bytes == 7 * unit);
    CHECK(best.lower_bound == 6 * unit);
    out.push_back({p, listed_order(p), best.lower_bound, best.arena_bytes});
  }
  return out;
}

}  // namespace

TEST_CASE("the problem of the arena: rounded sizes, tensors elsewhere, the same times") {
  const problem p(two_tensors(), measured_cost{}, 100);
  const std::vector<tensor_id> elsewhere{tensor_id{1}};
  const problem q = arena_problem(p, 4, elsewhere);
  CHECK(q.graph().bytes == std::vector<std::int64_t>{4, 0});
  CHECK(q.graph().workspace == std::vector<std::int64_t>{4, 0});
  CHECK(q.graph().time == p.graph().time);
  CHECK_FALSE(q.has_budget());
  CHECK(q.graph().baseline_peak == 8);
  CHECK(arena_problem(p, 1).graph().bytes == p.graph().bytes);
  CHECK_THROWS_AS((void)arena_problem(p, 0), bad_argument);
  const std::vector<tensor_id> wrong{tensor_id{2}};
  CHECK_THROWS_AS((void)arena_problem(p, 4, wrong), bad_argument);
  CHECK_THROWS_AS((void)arena_problem(p, std::numeric_limits<std::int64_t>::max()), bad_argument);
  CHECK_THROWS_AS((void)arena_problem(p, std::int64_t{1} << 62), bad_argument);  // the sum of both is 2^63
}

TEST_CASE("the peak of the arena's problem is the load, for any schedule") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const problem p = test::random_problem(seed, test::kind_of_graph(seed));
    const std::vector<tensor_id> elsewhere = some_tensors(p, seed, 20);
    const schedule plan = listed_order(p);
    const std::vector<interval> intervals = intervals_of(lifetimes_of(p, plan), elsewhere);
    for (const std::int64_t alignment : {1, 3, 8})
      CHECK(check(arena_problem(p, alignment, elsewhere), plan).peak_bytes ==
            plan_memory(intervals, {.alignment = alignment}).lower_bound);
  }
}

TEST_CASE("beside exhaustive search over schedules and packings: proofs hold, and what exists is found") {
  std::size_t possible = 0, found = 0, optimal = 0, infeasible = 0, impossible = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    const problem p = test::random_problem(
        seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 3), .most_bytes = 4, .most_workspace = 2});
    fit_arena_options options;
    options.memory.alignment = 1 + static_cast<std::int64_t>(seed / 3 % 2);
    options.elsewhere = some_tensors(p, seed, seed % 4 == 0 ? 25 : 0);
    const std::int64_t top =
        std::min<std::int64_t>(arena_problem(p, options.memory.alignment, options.elsewhere).graph().baseline_peak,
                               8 * options.memory.alignment);
    for (std::int64_t budget = std::max<std::int64_t>(0, top - 3); budget <= top; ++budget) {
      CAPTURE(seed);
      CAPTURE(budget);
      options.budget = budget;
      const double least = least_time_in_arena(p, budget, options.memory.alignment, options.elsewhere);
      const arena_solution fit = fit_arena(p, exact, options);
      check_fit(p, fit, options);
      if (fit.plan) CHECK(fit.time >= least);
      CHECK(fit.lower_bound <= least * (1 + 1e-9));
      if (fit.status == solve_status::infeasible) CHECK(std::isinf(least));
      if (fit.status == solve_status::optimal) CHECK(fit.time == doctest::Approx(least));
      possible += least < infinite;
      found += fit.has_schedule();
      optimal += fit.status == solve_status::optimal;
      impossible += std::isinf(least);
      infeasible += fit.status == solve_status::infeasible;
    }
  }
  MESSAGE(possible, " possible, ", found, " found, ", optimal, " optimal; ", impossible, " impossible, ", infeasible,
          " proven");
  CHECK(possible > 300);
  CHECK(100 * found >= 99 * possible);
  CHECK(100 * infeasible >= 95 * impossible);
  CHECK(100 * optimal >= 95 * possible);
}

TEST_CASE("no arena is above the budget, with any alignment, and tensors elsewhere leave room") {
  std::size_t fits = 0, below_peak = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const problem p = test::random_problem(seed, {.operations = 40, .backward = 100, .most_bytes = 1000});
    fit_arena_options options;
    options.memory.alignment = std::vector<std::int64_t>{1, 64, 256, 1000}[seed % 4];
    for (const unsigned outside : {0U, 15U}) {
      options.elsewhere = some_tensors(p, seed, outside);
      const std::int64_t load = arena_problem(p, options.memory.alignment, options.elsewhere).graph().baseline_peak;
      for (const std::int64_t percent : {100, 85, 70, 55}) {
        options.budget = load * percent / 100;
        const arena_solution fit = fit_arena(p, evict, options);
        check_fit(p, fit, options);
        fits += fit.has_schedule();
        below_peak += fit.plan && fit.memory->arena_bytes < fit.peak_bytes;
      }
    }
  }
  MESSAGE(fits, " fit, ", below_peak, " of them with an arena below the peak");
  CHECK(fits > 240);
  CHECK(below_peak > 30);
}

TEST_CASE("an arena that gaps make too large: lower peaks until one fits") {
  std::size_t fits = 0;
  const std::vector<fragmented> all = fragmented_schedules();
  for (const fragmented& f : all) {
    std::vector<std::int64_t> budgets;
    const auto solve = [&](const problem& q, const run_control& run) {
      budgets.push_back(q.budget());
      solution s;
      s.status = solve_status::feasible;
      s.plan = f.plan;  // where its peak fits; its arena does not
      return q.budget() >= f.load ? s : evict(q, {.run = run});
    };
    fit_arena_options options;
    options.budget = f.load;
    options.memory.alignment = 1;
    options.run.work_limit = 2'000'000;
    const arena_solution fit = fit_arena_by(f.p, solve, options);
    check_fit(f.p, fit, options);
    REQUIRE(budgets.size() >= 2);
    CHECK(budgets.size() == fit.solves);
    CHECK(budgets[0] == f.load);
    CHECK(budgets[1] < f.load);
    if (!fit.plan) {
      CHECK(fit.smallest_arena > options.budget);
      CHECK(contains(fit.message, std::to_string(fit.smallest_arena)));
      continue;
    }
    ++fits;
    CHECK(fit.solved_budget < f.load);
    // With the arena of the schedule there is nothing to do.
    options.budget = f.arena;
    budgets.clear();
    CHECK(fit_arena_by(f.p, solve, options).solves == 1);
    CHECK(budgets == std::vector<std::int64_t>{f.arena});
  }
  MESSAGE(all.size(), " fragmented, ", fits, " fit after all");
  CHECK(fits >= all.size() / 2);
}

TEST_CASE("budgets: what was missing, twice as much after each failure, half-way back where there is no schedule") {
  const std::vector<fragmented> all = fragmented_schedules();
  REQUIRE_FALSE(all.empty());
  const fragmented& f = all.front();
  const std::int64_t gap = f.arena - f.load, margin = gap + gap / 2;
  std::vector<std::int64_t> budgets;
  const auto stubborn = [&](const problem& q, const run_control&) {  // whatever the budget
    budgets.push_back(q.budget());
    solution s;
    s.plan = f.plan;
    s.status = solve_status::feasible;
    return s;
  };
  fit_arena_options options;
  options.budget = f.load;
  options.memory.alignment = 1;
  options.solves = 3;
  const arena_solution none = fit_arena_by(f.p, stubborn, options);
  CHECK(none.status == solve_status::timeout);
  CHECK(ended_by_itself(none.statistics.own));
  CHECK(none.message.find(" bytes, in 3 solves; the smallest arena was " + std::to_string(f.arena) + " bytes") !=
        std::string::npos);
  CHECK(none.smallest_arena == f.arena);
  CHECK(budgets == std::vector<std::int64_t>{f.load, f.load - margin, std::max<std::int64_t>(f.load - 3 * margin, 0)});

  budgets.clear();
  options.solves = 20;
  const auto nothing_below = [&](const problem& q, const run_control& run) {
    return q.budget() == f.load ? stubborn(q, run) : (budgets.push_back(q.budget()), solution{});
  };
  CHECK_FALSE(fit_arena_by(f.p, nothing_below, options).has_schedule());
  REQUIRE(budgets.size() >= 2);
  for (std::size_t i = 2; i < budgets.size(); ++i) CHECK(budgets[i] > budgets[i - 1]);
  CHECK(budgets.size() < 20);
  CHECK(budgets.back() == f.load - 1);
}

TEST_CASE("once a schedule fits, budgets go back up as long as a faster schedule is known there") {
  const fragmented f = fragmented_schedules(100).front();
  for (const bool slower_below : {true, false}) {
    std::vector<std::int64_t> budgets;
    const auto solve = [&](const problem& q, const run_control& run) {
      budgets.push_back(q.budget());
      solution s = evict(q, {.run = run});
      REQUIRE(s.plan);
      if (q.budget() >= f.load) s.plan = f.plan;
      // A computation that nobody needs, once more for each byte below the load.
      for (std::int64_t b = q.budget(); slower_below && b < f.load; ++b) {
        s.plan->compute(op_id{0});
        s.plan->free(tensor_id{0});
      }
      return s;
    };
    fit_arena_options options;
    options.budget = f.load;
    options.memory.alignment = 1;
    options.solves = 7;
    const arena_solution fit = fit_arena_by(f.p, solve, options);
    check_fit(f.p, fit, options);
    REQUIRE(fit.has_schedule());
    if (slower_below) {
      CHECK(budgets == std::vector<std::int64_t>{600, 450, 525, 562, 581, 590, 595});
      CHECK(fit.solved_budget == 595);
      CHECK(fit.time == f.p.graph().baseline_time + 5);
    } else {
      CHECK(budgets == std::vector<std::int64_t>{600, 450});
      CHECK(fit.time == f.p.graph().baseline_time);
    }
  }
}

TEST_CASE("a limit that ended the first solve: the second one has the same budget and more of the limit") {
  const fragmented f = fragmented_schedules().front();
  std::vector<std::int64_t> budgets;
  std::vector<std::uint64_t> limits;
  const auto spend_all = [&](const problem& q, const run_control& run) {
    budgets.push_back(q.budget());
    limits.push_back(run.work_limit);
    solution s;
    s.plan = f.plan;
    s.status = solve_status::feasible;
    s.statistics.work = run.work_limit;
    return s;
  };
  fit_arena_options options;
  options.memory.alignment = 1;
  options.run.work_limit = 1'000'000'000;
  options.budget = f.arena;
  CHECK(fit_arena_by(f.p, spend_all, options).has_schedule());
  CHECK(budgets == std::vector<std::int64_t>{f.arena, f.arena});
  CHECK(limits[0] == 200'000'000);
  CHECK(limits[1] > 3 * limits[0]);
  CHECK(limits[1] <= 640'000'000);

  budgets.clear();
  options.budget = f.load;  // the first one shows that the arena is larger
  options.solves = 2;
  CHECK_FALSE(fit_arena_by(f.p, spend_all, options).has_schedule());
  CHECK(budgets == std::vector<std::int64_t>{f.load, f.load - 1});
}

TEST_CASE("without a first schedule there is one solve, and its status is the answer's") {
  const problem p(two_tensors(), measured_cost{});
  for (const solve_status status : {solve_status::infeasible, solve_status::timeout, solve_status::error}) {
    const auto solve = [&](const problem&, const run_control&) {
      solution s;
      s.status = status;
      s.message = "because";
      if (status == solve_status::timeout) s.statistics.own.set(ended_figure, true);
      return s;
    };
    const arena_solution fit = fit_arena_by(p, solve, {.budget = 100});
    CHECK(fit.status == status);
    CHECK(ended_by_itself(fit.statistics.own) == (status == solve_status::timeout));
    CHECK(fit.message == "because");
    CHECK(fit.solves == 1);
    CHECK_FALSE(fit.memory.has_value());
  }
}

TEST_CASE("rounding alone can make a budget infeasible, and that is proven") {
  const problem p(two_tensors(), measured_cost{});
  fit_arena_options options{.budget = 8};
  options.memory.alignment = 4;  // 4 and 8 bytes
  CHECK(evict(p.with_budget(8)).has_schedule());
  CHECK(fit_arena(p, evict, options).status == solve_status::infeasible);
  options.budget = 15;  // the arena ends at a multiple of the alignment
  const arena_solution fit = fit_arena(p, evict, options);
  REQUIRE(fit.has_schedule());
  CHECK(fit.memory->arena_bytes == 12);
  CHECK(fit.peak_bytes == 8);
  CHECK(fit.status == solve_status::optimal);
  options.elsewhere = {tensor_id{1}};
  options.budget = 8;
  const arena_solution outside = fit_arena(p, evict, options);
  REQUIRE(outside.has_schedule());
  CHECK(outside.memory->arena_bytes == 8);
  CHECK(outside.peak_bytes == 8);
  const arena_solution unlimited = fit_arena(p.with_budget(1), evict);  // the budget of p is not looked at
  REQUIRE(unlimited.has_schedule());
  CHECK(unlimited.memory->arena_bytes == 512);
}

TEST_CASE("the listed order fits its own arena, for every bundled graph") {
  for (const auto& file : test::bundled_graphs()) {
    CAPTURE(file.stem().string());
    const problem p = read_training_step(file).instance;
    fit_arena_options options;
    options.budget = plan_memory(lifetimes_of(p, listed_order(p))).arena_bytes;
    const arena_solution fit = fit_arena(p, no_remat, options);
    check_fit(p, fit, options);
    CHECK(fit.has_schedule());
    CHECK(fit.time == p.graph().baseline_time);
  }
}

TEST_CASE("under a limit of work: the same answer with one thread and with two, and no more work") {
  const problem p = test::bundled_problem("unet5-b16-256");
  fit_arena_options options;
  options.budget = p.graph().baseline_peak * 35 / 100;
  options.run.work_limit = 20'000;
  const arena_solution once = fit_arena(p, refined, options), again = fit_arena(p, refined, options);
  options.run.threads = 2;
  const arena_solution threaded = fit_arena(p, refined, options);
  REQUIRE(once.has_schedule());
  CHECK(*once.plan == *again.plan);
  CHECK(*once.plan == *threaded.plan);
  CHECK(once.memory->offsets == threaded.memory->offsets);
  CHECK(once.statistics.work == threaded.statistics.work);
  // The parts of the limit that the solves get, as the solver sees them.
  std::vector<std::uint64_t> limits;
  const auto solve = [&](const problem& q, const run_control& run) {
    limits.push_back(run.work_limit);
    return evict(q, {.run = run});
  };
  options.solves = 1;
  (void)fit_arena_by(p, solve, options);
  REQUIRE(limits.size() == 1);
  CHECK(limits[0] == 4'000);
}

TEST_CASE("a stop request ends the search, and what was found by then is packed") {
  const problem p = test::within(test::bundled_problem("unet5-b16-256"), 1);
  std::stop_source stop;
  fit_arena_options options;
  options.budget = p.graph().baseline_peak * 6 / 10;
  options.run.stop = stop.get_token();
  std::uint32_t solves = 0;
  const auto solve = [&](const problem& q, const run_control& run) {
    ++solves;
    solution s = evict(q, {.run = run});
    stop.request_stop();
    return s;
  };
  const arena_solution fit = fit_arena_by(p, solve, options);
  check_fit(p, fit, options);
  CHECK(solves == 1);
  if (!fit.plan) CHECK(fit.status == solve_status::cancelled);
  // Stopped from the beginning: the solver says so.
  CHECK(fit_arena(p, refined, options).status == solve_status::cancelled);

  fit_arena_options late;
  late.budget = options.budget;
  late.run.time_limit = std::chrono::nanoseconds(0);
  CHECK(fit_arena(p, evict, late).solves == 1);
}

TEST_CASE("with a link, the arena of the device fits, and its schedule is faster than recomputation alone") {
  for (const std::string name : {"unet5-b16-256"}) {
    CAPTURE(name);
    const problem alone = test::bundled_problem(name);
    const problem p = alone.with_link({.out = 64e9, .in = 64e9, .latency = 1e-5}, alone.graph().baseline_peak / 2);
    fit_arena_options options;
    options.budget = alone.graph().baseline_peak * 7 / 10;
    options.run.work_limit = 30'000;
    const arena_solution recomputed = fit_arena(alone, evict, options);
    const arena_solution s = fit_arena(p, offload, options);
    REQUIRE(s.plan);
    REQUIRE(s.memory);
    CHECK(s.plan->has_copies());
    CHECK(s.memory->arena_bytes <= options.budget);
    const check_report report = check(p, *s.plan);
    CHECK(report.valid());
    CHECK(report.time == s.time);
    CHECK(report.peak_bytes == s.peak_bytes);
    CHECK(s.lower_bound <= s.time);
    CHECK(s.lower_bound > 0);
    CHECK(s.time < recomputed.time);
    const lifetimes lives = lifetimes_of(p, *s.plan);
    CHECK(check_memory(intervals_of(lives), s.memory->offsets, s.memory->arena_bytes, 256).valid());
    CHECK(plan_memory(host_intervals_of(lives)).lower_bound <= p.host_budget());
  }
}

TEST_CASE("with a link, rounded copies take no longer than the true ones, or no bound is reported") {
  const problem p(two_tensors(), measured_cost{});
  const host_link link{.out = 100, .in = 50, .latency = 10};
  const problem rounded = arena_problem(p.with_link(link, 1000), 64);
  REQUIRE(rounded.link());
  CHECK(rounded.host_budget() == 1000);
  for (std::size_t t = 0; t < p.graph().num_tensors; ++t) {
    CHECK(rounded.link()->time_out(rounded.graph().bytes[t]) <= link.time_out(p.graph().bytes[t]));
    CHECK(rounded.link()->time_in(rounded.graph().bytes[t]) <= link.time_in(p.graph().bytes[t]));
  }
  fit_arena_options options;
  options.budget = 1 << 20;
  CHECK(fit_arena(p.with_link(link), offload, options).lower_bound > 0);
  const arena_solution without = fit_arena(p.with_link({.out = 100, .in = 50, .latency = 1}), offload, options);
  CHECK(without.plan);
  CHECK(without.lower_bound == 0);
}

TEST_CASE("progress of the solves reaches the caller") {
  const problem p = test::bundled_problem("unet5-b16-256");
  fit_arena_options options;
  options.budget = p.graph().baseline_peak / 2;
  options.run.work_limit = 20'000;
  std::size_t reports = 0;
  options.run.on_progress = [&](const progress&) { ++reports; };
  CHECK(fit_arena(p, refined, options).has_schedule());
  CHECK(reports > 0);
}

TEST_CASE("wrong options and wrong schedules are refused") {
  const problem p(two_tensors(), measured_cost{});
  CHECK_THROWS_AS((void)fit_arena(p, evict, {.solves = 0}), bad_argument);
  CHECK_THROWS_AS((void)fit_arena(p, evict, {.budget = -1}), bad_argument);
  CHECK_THROWS_AS((void)fit_arena(p, evict, {.elsewhere = {tensor_id{7}}}), bad_argument);
  fit_arena_options misaligned;
  misaligned.memory.alignment = 0;
  CHECK_THROWS_AS((void)fit_arena(p, evict, misaligned), bad_argument);
  const auto illegal = [](const problem&, const run_control&) {
    solution s;
    s.plan.emplace();
    s.plan->compute(op_id{1});
    return s;
  };
  CHECK_THROWS_AS((void)fit_arena_by(p, illegal, {.budget = 100}), bad_argument);
}
