// SPDX-License-Identifier: BSL-1.0
#include "remat/method/checkmate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/method/checkmate/impl/checkmate_model.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/refined.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/model.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"
#include "support/answer.hpp"
#include "support/failing_backend.hpp"
#include "support/lying_backend.hpp"
#include "support/random_graph.hpp"
#include "support/spare_memory.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

problem bundled(const std::string& name) {
  return read_training_step(std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (name + ".json")).instance;
}

problem at(const problem& free, double fraction) {
  return free.with_budget(static_cast<std::int64_t>(fraction * static_cast<double>(free.graph().baseline_peak)));
}

static_assert(solver_for<checkmate_solver<branch_and_bound_backend>, problem>);
constexpr auto checkmate_own = checkmate_with(branch_and_bound);

/// Graphs that `exact` within `refined` does not settle at once.
problem middling(std::uint64_t seed, std::uint32_t operations = 17) {
  const problem free = test::random_problem(
      seed, {.operations = operations, .most_inputs = 2, .once = 25, .backward = 100, .most_time = 50});
  return test::with_spare_memory(free, 1, 3);
}

/// A backend that finds nothing, and notes the work that its searches take.
struct idle_backend {
  static constexpr std::string_view name = "idle";
  struct searches {
    std::uint64_t relaxed = 0, near = 0, whole = 0, near_programs = 0;
  };
  searches* noted = nullptr;

  [[nodiscard]] mip_result solve(const mip_model& m, const mip_options& options) const {
    bool whole_numbers = false;
    for (std::size_t j = 0; j < m.num_columns(); ++j) whole_numbers = whole_numbers || m.is_integer(j);
    const bool is_near = options.max_nodes != mip_options::no_node_limit;
    (is_near ? noted->near : whole_numbers ? noted->whole : noted->relaxed) += options.run.work_limit;
    noted->near_programs += is_near;
    mip_result nothing;
    nothing.work = options.run.work_limit;
    return nothing;
  }
};
static_assert(mip_backend<idle_backend>);

/// Graphs on which the whole program is solved at once.
problem small(std::uint64_t seed) {
  const problem free =
      test::random_problem(seed, {.operations = 9, .most_inputs = 2, .second_output = 0, .once = 0, .backward = 100});
  return test::with_spare_memory(free, 1, 2);
}

}  // namespace

TEST_CASE("where the whole step fits, there is nothing to decide") {
  const problem p = bundled("mlp-chain-8");
  CHECK(checkmate_model(p).decisions() == 0);
  CHECK(checkmate_model(p.with_budget(p.graph().baseline_peak)).decisions() == 0);
  const solution s = checkmate_own(p);
  CHECK(s.status == solve_status::optimal);
  const problem nothing(training_graph{}, measured_cost{});
  CHECK(checkmate_own(nothing.with_budget(0)).status == solve_status::optimal);
}

TEST_CASE("random graphs: relaxation, rounding and optimum are in order, and the figures say so") {
  std::size_t looked = 0, rounded = 0, optimal = 0, below = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const problem p = small(seed + 70000);
    const checkmate_model program(p);
    const mip_result least = branch_and_bound.solve(program.model());
    if (least.status != mip_status::optimal || program.decisions() == 0) continue;
    ++looked;
    // Rounding alone, then everything.
    const solution s = checkmate_own(p, {.gap = 0});
    INFO("seed ", seed, ": ", s.message);
    test::check_answer(p, s);
    const figures& own = s.statistics.own;
    REQUIRE(own.find<bool>("relaxation_solved"));
    REQUIRE(*own.find<bool>("relaxation_solved"));
    const double time = program.time(least.objective), relaxed = *own.find<double>("relaxation_time");
    CHECK(relaxed <= time * (1 + 1e-6));
    CHECK(*own.find<std::int64_t>("rounding_tries") > 0);
    if (const double* found = own.find<double>("rounding_time")) {
      ++rounded;
      CHECK(*own.find<std::int64_t>("rounding_fitting") > 0);
      CHECK(*found >= s.lower_bound * (1 - 1e-9));
      // Below the relaxation only where the schedule leaves out a first run in vain, which the form asks for.
      below += *found < relaxed * (1 - 1e-9);
      CHECK(*found >= s.time);
    }
    REQUIRE(s.has_schedule());
    CHECK(s.time <= time * (1 + 1e-6));
    if (const std::string* ending = own.find<std::string>("program_ending")) {
      optimal += *ending == "optimal";
      REQUIRE(own.find<std::int64_t>("program_columns"));
      CHECK(*own.find<std::int64_t>("program_columns") > *own.find<std::int64_t>("program_decisions"));
      CHECK(*own.find<std::int64_t>("program_phases") > 0);
      CHECK(own.find<std::int64_t>("program_nodes"));
    }
  }
  MESSAGE(looked, " programs, ", rounded, " rounded, ", optimal, " solved whole");
  CHECK(looked > 10);
  CHECK(rounded * 4 > looked * 3);
  CHECK(below * 4 <= looked);
  CHECK(optimal > 0);
}

TEST_CASE("a pure answer is the method's own, a start is said, and improvement says what it gained") {
  const auto is_own = [](const std::string& by) {
    for (const char* part : {"rounding", "near", "window", "program"})
      if (by == std::string("checkmate/") + part) return true;
    return false;
  };
  std::size_t found = 0, started = 0, warmed = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const problem p = small(seed + 70000);
    const solution s = checkmate_own(p, {.gap = 0, .run = {.work_limit = 24'000}});
    INFO("seed ", seed, ": ", s.message, " by ", s.by);
    test::check_answer(p, s);
    if (!s.plan) continue;
    ++found;
    CHECK(is_own(s.by));
    const solution t = checkmate_own(p, {.starts = {*s.plan}, .gap = 0, .run = {.work_limit = 24'000}});
    CHECK(t.time <= s.time);
    CHECK((t.by == "checkmate/start" || is_own(t.by)));
    started += t.by == "checkmate/start";
    const solution w = checkmate_own(p, {.warm_start = true, .gap = 0, .run = {.work_limit = 24'000}});
    test::check_answer(p, w);
    CHECK((w.by.rfind("checkmate/start/", 0) == 0 || is_own(w.by)));
    warmed += w.by.rfind("checkmate/start/", 0) == 0;
    const solution i = checkmate_own(p, {.gap = 0, .improve = by_refinement, .run = {.work_limit = 24'000}});
    test::check_answer(p, i);
    if (i.by.rfind("checkmate/refined", 0) == 0 && i.statistics.own.find<std::string>("own_by"))
      CHECK(*i.statistics.own.find<double>("own_time") >= i.time);
  }
  MESSAGE(found, " schedules; started ", started, ", warmed ", warmed);
  CHECK(found > 3);
  CHECK(started > 0);
  CHECK(warmed > 0);
}

TEST_CASE("a start that runs an operation again after all first runs is taken") {
  training_graph g("late");
  const tensor_id a = g.add_tensor({.bytes = 1}), b = g.add_tensor({.bytes = 1}), c = g.add_tensor({.bytes = 1});
  const op_id first = g.add_operation({.outputs = {a}}), second = g.add_operation({.outputs = {b}});
  const op_id third = g.add_operation({.inputs = {b}, .outputs = {c}});
  g.add_final_output(a);
  g.add_final_output(c);
  schedule plan;
  plan.compute(first);
  plan.free(a);
  plan.compute(second);
  plan.compute(third);
  plan.free(b);
  plan.compute(first);
  const problem p = problem(g, unit_cost{}).with_budget(2);
  const solution s = checkmate_own(p, {.starts = {plan}, .gap = 0});
  test::check_answer(p, s);
  REQUIRE(s.has_schedule());
  CHECK(s.by == "checkmate/start");
}

TEST_CASE("the paper's method alone: rounding and the whole program") {
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const problem p = small(seed + 70000);
    const solution s =
        checkmate_own(p, {.gap = 0, .moments = 0, .distance = 0, .windows = false, .run = {.work_limit = 24'000}});
    test::check_answer(p, s);
    CHECK_FALSE(s.statistics.own.find<figures::group_list>("near"));
    CHECK_FALSE(s.statistics.own.find<std::int64_t>("window_programs"));
    if (s.plan) CHECK((s.by == "checkmate/rounding" || s.by == "checkmate/program"));
    found += s.has_schedule();
    const solution none =
        checkmate_own(p, {.gap = 0, .relaxations = 0, .distance = 0, .windows = false, .run = {.work_limit = 24'000}});
    CHECK_FALSE(none.statistics.own.find<std::int64_t>("rounding_tries"));
    if (none.plan) CHECK(none.by == "checkmate/program");
  }
  CHECK(found > 3);
}

TEST_CASE("a backend that lies: no invalid schedule, and neither optimal nor infeasible by its word") {
  const problem p = at(bundled("rk/fno1d"), 0.3);
  for (const mip_status says : {mip_status::optimal, mip_status::infeasible, mip_status::failed}) {
    const solution s = checkmate_with(test::lying_backend{says})(
        p, {.gap = 0, .random_roundings = 5, .distance = 3, .run = {.work_limit = 800'000}});
    test::check_answer(p, s);
    CHECK(s.message.find("integer program") == 0);
    CHECK(s.status != solve_status::optimal);
    CHECK(s.status != solve_status::infeasible);
    if (says == mip_status::failed) CHECK(s.message.find(" of the backend w") != std::string::npos);
    REQUIRE(s.statistics.own.find<std::int64_t>("wrong_solutions"));
    CHECK((*s.statistics.own.find<std::int64_t>("wrong_solutions") > 0) ==
          (s.message.find(" of the backend w") != std::string::npos));
  }
}

TEST_CASE("a backend that throws or returns too few values: its failure is told, and other steps go on") {
  const problem p = at(bundled("rk/fno1d"), 0.8);
  const checkmate_options options{
      .warm_start = true, .gap = 0, .random_roundings = 5, .distance = 2, .run = {.work_limit = 40'000}};
  const auto check_failure = [&](const solution& s, const std::string& says) {
    test::check_answer(p, s);
    CHECK(s.has_schedule());
    CHECK(s.message.find(says) != std::string::npos);
    REQUIRE(s.statistics.own.find<std::string>("backend_failure") != nullptr);
    CHECK(s.statistics.own.find<std::string>("backend_failure")->find(says) == 0);
    REQUIRE(s.statistics.own.find<std::int64_t>("backend_failures") != nullptr);
    CHECK(*s.statistics.own.find<std::int64_t>("backend_failures") > 0);
  };
  check_failure(checkmate_with(test::throwing_backend{})(p, options), "the backend throwing failed: licence expired");
  check_failure(checkmate_with(test::short_backend{})(p, options), "the backend short failed: 3 values, and the model");
  // Nothing else has a schedule: the failure is told, and is no exception.
  checkmate_options alone = options;
  alone.warm_start = false;
  const solution none = checkmate_with(test::throwing_backend{})(p, alone);
  CHECK_FALSE(none.has_schedule());
  CHECK(none.message.find("the backend throwing failed: licence expired") != std::string::npos);
  // A backend that keeps its promises has no such figure.
  CHECK(checkmate_own(small(70000), {.gap = 0}).statistics.own.find<std::string>("backend_failure") == nullptr);
}

/// A backend that calls no callback.
struct silent_backend {
  static constexpr std::string_view name = "silent";
  [[nodiscard]] mip_result solve(const mip_model& m, const mip_options& options) const {
    mip_options silent = options;
    silent.on_incumbent = nullptr;
    return branch_and_bound.solve(m, silent);
  }
};

TEST_CASE("the final values of a backend that calls no callback count") {
  const checkmate_options options{
      .gap = 0, .relaxations = 0, .distance = 0, .windows = false, .run = {.work_limit = 24'000}};
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const problem p = small(seed + 70000);
    const solution s = checkmate_with(silent_backend{})(p, options), t = checkmate_own(p, options);
    REQUIRE(s.has_schedule() == t.has_schedule());
    if (!t.has_schedule()) continue;
    CHECK(s.time == t.time);
    ++found;
  }
  CHECK(found > 3);
}

TEST_CASE("the steps keep their shares of a work limit") {
  const problem p = at(bundled("rk/fno1d"), 0.6);
  constexpr std::uint64_t limit = 100'000;
  idle_backend::searches searches;
  const solution s =
      checkmate_with(idle_backend{&searches})(p, {.gap = 0, .window_nodes = limit, .run = {.work_limit = limit}});
  CHECK_FALSE(s.has_schedule());
  CHECK(searches.near_programs > 3);
  CHECK(searches.relaxed > 0);
  CHECK(searches.relaxed <= limit * 2 / 5);
  CHECK(searches.near <= (limit - searches.relaxed) / 2);
  CHECK(searches.whole <= limit - searches.relaxed - searches.near);
  CHECK(s.statistics.work <= limit);
}

TEST_CASE("a start over the budget is ignored, an illegal one is refused, with improvement or without") {
  const problem p = small(70000);
  const std::optional<schedule> over = no_remat(p.with_budget(problem::unlimited)).plan;
  REQUIRE(over);
  REQUIRE(check(p, *over).what == violation::over_budget);
  for (const improvement& improve : {improvement{}, by_refinement}) {
    checkmate_options options{.starts = {*over}, .gap = 0, .improve = improve, .run = {.work_limit = 24'000}};
    const solution s = checkmate_own(p, options);
    test::check_answer(p, s);
    CHECK(s.by != "checkmate/start");
    options.starts.push_back(schedule{{step::free(tensor_id{0})}});
    const std::string said = "checkmate: starts[1] is illegal: " + check(p, options.starts[1]).message();
    CHECK_THROWS_WITH_AS((void)checkmate_own(p, options), said.c_str(), bad_argument);
  }
}

TEST_CASE("limits, a model that is too large, the same answer every time") {
  const problem p = at(bundled("rk/fno1d"), 0.6);
  std::stop_source source;
  source.request_stop();
  CHECK(checkmate_own(p, {.run = {.stop = source.get_token()}}).status == solve_status::cancelled);
  CHECK(checkmate_own(p, {.run = {.time_limit = std::chrono::nanoseconds(0)}}).status == solve_status::timeout);
  const solution large = checkmate_own(p, {.gap = 0, .max_columns = 1000, .run = {.work_limit = 16'000}});
  CHECK(*large.statistics.own.find<std::string>("program_ending") == "too large");
  CHECK(large.message.find("more than max_columns") != std::string::npos);
  const solution larger = checkmate_own(p, {.gap = 0, .max_columns = 10, .run = {.work_limit = 16'000}});
  const figures::group_list* near = larger.statistics.own.find<figures::group_list>("near");
  REQUIRE(near);
  REQUIRE(near->size() == 1);
  CHECK(*near->front().find<std::string>("ending") == "too large");
  CHECK(near->front().find<std::int64_t>("nodes") == nullptr);
  const problem q = middling(63001);
  const checkmate_options options{.gap = 0, .run = {.work_limit = 32'000, .seed = 3}};
  const solution a = checkmate_own(q, options), b = checkmate_own(q, options);
  CHECK(a.has_schedule());
  CHECK(a.plan == b.plan);
  CHECK(a.by == b.by);
  CHECK(a.message == b.message);
  CHECK(a.statistics.work == b.statistics.work);
}

TEST_CASE("the same answer with one thread and two, progress on the caller's thread, bad options are refused") {
  const problem p = middling(63001);
  checkmate_options options{.gap = 0, .run = {.work_limit = 48'000, .seed = 2}};
  const std::thread::id caller = std::this_thread::get_id();
  int reports = 0;
  options.run.on_progress = [&](const progress& news) {
    CHECK(std::this_thread::get_id() == caller);
    CHECK(news.solver == "checkmate");
    ++reports;
  };
  const solution one = checkmate_own(p, options);
  options.run.threads = 2;
  const solution two = checkmate_own(p, options);
  CHECK(one.plan == two.plan);
  CHECK(reports > 0);
  CHECK_THROWS_AS((void)checkmate_own(p, {.gap = std::nan("")}), bad_argument);
  CHECK_THROWS_AS((void)checkmate_own(p, {.gap = -1}), bad_argument);
  CHECK_THROWS_AS((void)checkmate_own(p, {.units = 0}), bad_argument);
  CHECK_THROWS_AS((void)checkmate_own(p, {.max_columns = -1}), bad_argument);
  CHECK_THROWS_AS((void)checkmate_own(p, {.relaxation_step = 1}), bad_argument);
  CHECK_THROWS_AS((void)checkmate_own(p, {.relaxation_step = std::nan("")}), bad_argument);
}
