// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/checkmate.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/error.hpp"
#include "remat/io/training_graph_json.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/checkmate_model.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/refined.hpp"
#include "support/answer.hpp"
#include "support/lying_backend.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test

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
  const std::int64_t low = largest_working_set(free).bytes;
  return free.with_budget(low + (free.graph().baseline_peak - low) / 3);
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

TEST_CASE("the solver on middling graphs: an answer that is checked, never worse than refined") {
  std::size_t programs = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const problem p = middling(seed + 63000);
    const solution plain = refined(p, {.run = {.work_limit = 90}});
    const solution s = checkmate_own(p, {.good_enough = 0, .run = {.work_limit = 120}});
    INFO("seed ", seed, ": ", s.message);
    test::check_answer(p, s);
    if (plain.plan) {
      REQUIRE(s.has_schedule());
      CHECK(s.time <= plain.time);
    }
    programs += s.message.find("integer program") == 0;
  }
  MESSAGE(programs, " integer programs");
  CHECK(programs > 0);
}

TEST_CASE("a backend that lies: no invalid schedule, and neither optimal nor infeasible by its word") {
  const problem p = at(bundled("rk/fno1d"), 0.3);
  const solution plain = refined(p, {.run = {.work_limit = 1500}});
  for (const mip_status says : {mip_status::optimal, mip_status::infeasible, mip_status::failed}) {
    const solution s = checkmate_with(test::lying_backend{says})(p, {.good_enough = 0, .run = {.work_limit = 2000}});
    test::check_answer(p, s);
    CHECK(s.message.find("integer program") == 0);
    CHECK(s.message.find("were no schedules") != std::string::npos);
    CHECK(s.status == solve_status::feasible);
    CHECK(s.time <= plain.time);
  }
}

TEST_CASE("limits, a model that is too large, the same answer every time") {
  const problem p = at(bundled("rk/fno1d"), 0.6);
  std::stop_source source;
  source.request_stop();
  CHECK(checkmate_own(p, {.run = {.stop = source.get_token()}}).status == solve_status::cancelled);
  CHECK(checkmate_own(p, {.run = {.time_limit = std::chrono::nanoseconds(0)}}).status == solve_status::timeout);
  const solution large = checkmate_own(p, {.good_enough = 0, .most_columns = 1000, .run = {.work_limit = 1000}});
  CHECK(large.status == solve_status::feasible);
  CHECK(large.message.find("more than most_columns") != std::string::npos);
  const problem q = middling(63001);
  const checkmate_options options{.good_enough = 0, .run = {.work_limit = 200, .seed = 3}};
  const solution a = checkmate_own(q, options), b = checkmate_own(q, options);
  CHECK(a.plan == b.plan);
  CHECK(a.message == b.message);
}

TEST_CASE("the same answer with one thread and two, progress on the caller's thread, bad options are refused") {
  const problem p = at(bundled("rk/fno1d"), 0.3);
  checkmate_options options{.good_enough = 0, .run = {.work_limit = 1500, .seed = 2}};
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
  CHECK_THROWS_AS((void)checkmate_own(p, {.good_enough = std::nan("")}), bad_argument);
  CHECK_THROWS_AS((void)checkmate_own(p, {.good_enough = -1}), bad_argument);
  CHECK_THROWS_AS((void)checkmate_own(p, {.units = 0}), bad_argument);
  CHECK_THROWS_AS((void)checkmate_own(p, {.most_columns = -1}), bad_argument);
}
