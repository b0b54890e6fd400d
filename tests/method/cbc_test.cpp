// SPDX-License-Identifier: BSL-1.0
#include "remat/method/cbc.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/method/checkmate/impl/checkmate_model.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/solution.hpp"
#include "support/answer.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test
using namespace std::chrono_literals;

static_assert(solver_for<checkmate_solver<cbc_backend>, problem>);
static_assert(solver_for<hiremate_solver<cbc_backend>, problem>);

problem bundled(const std::string& name, double fraction) {
  return test::within(test::bundled_problem(name), fraction);
}

}  // namespace

TEST_CASE("checkmate: random graphs: CBC says of the integer program what the own branch and bound says") {
  std::size_t solved = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const problem free = test::random_problem(seed + 80000, {.operations = 9, .backward = 100});
    const problem p = free.with_budget(free.graph().baseline_peak * 7 / 10);
    const detail::checkmate_model program(p);
    const mip_result r = cbc.solve(program.model()), own = branch_and_bound.solve(program.model());
    INFO("seed ", seed);
    REQUIRE(r.status == own.status);
    if (own.status != mip_status::optimal) continue;
    ++solved;
    REQUIRE(r.objective == doctest::Approx(own.objective));
    REQUIRE(check(p, program.decode(r.values)).valid());
  }
  CHECK(solved > 5);
}

TEST_CASE(
    "checkmate: fno1d by the program alone: the relaxation, its rounding and a near program, the same every time") {
  const problem p = bundled("rk/fno1d", 0.6);
  const double baseline = p.graph().baseline_time;
  const checkmate_options options{.gap = 0.006, .run = {.work_limit = 6'400'000, .seed = 5}};
  const solution s = checkmate(p, options), again = checkmate(p, options);
  test::check_answer(p, s);
  REQUIRE(s.has_schedule());
  INFO(s.message, " overhead ", s.time / baseline - 1, " by ", s.by);
  CHECK(s.plan == again.plan);
  CHECK(s.by == again.by);
  CHECK(s.statistics.work == again.statistics.work);
  CHECK(s.by == "checkmate/near");
  const figures& own = s.statistics.own;
  REQUIRE(own.find<double>("relaxation_time"));
  REQUIRE(own.find<double>("rounding_time"));
  REQUIRE(own.find<figures::group_list>("near"));
  // Checkmate's program on HiGHS: 5.448 %, for a slightly easier problem.
  CHECK(*own.find<double>("relaxation_time") < 1.05448 * baseline);
  CHECK(*own.find<double>("rounding_time") > 1.05447 * baseline);
  CHECK(s.time > 1.05447 * baseline);
  CHECK(s.time < 1.0575 * baseline);
}

TEST_CASE("checkmate: published optima: fno1d, which took others two minutes, by the program alone") {
  if (!test::long_run()) return;
  const struct { double fraction, overhead; } rows[] = {{0.6, 0.05448}, {0.4, 0.11763}};
  for (const auto& row : rows) {
    const problem p = bundled("rk/fno1d", row.fraction);
    const solution s = checkmate(p, {.run = {.time_limit = std::chrono::seconds(30)}});
    test::check_answer(p, s);
    INFO(s.message, " overhead ", s.time / p.graph().baseline_time - 1, " by ", s.by);
    CHECK(s.time / p.graph().baseline_time - 1 < row.overhead + 1e-3);
  }
}

TEST_CASE("checkmate: real graph: the turnaround bound's rows lift the relaxation by more than a point") {
  const problem p = bundled("rk/fno1d", 0.6);
  const turnaround_result bound = turnaround_bound(p);
  const auto relaxed = [&](std::vector<op_id> moments) {
    const detail::checkmate_model program(p, {.at_most = p.graph().needed_time * 1.06, .moments = std::move(moments)});
    mip_model m = program.model();
    for (std::size_t j = 0; j < m.num_columns(); ++j) m.set_integer(static_cast<std::uint32_t>(j), false);
    const mip_result r = cbc.solve(m);
    REQUIRE(r.status == mip_status::optimal);
    return program.time(r.objective) / p.graph().baseline_time - 1;
  };
  CHECK(relaxed({}) == doctest::Approx(0.0387).epsilon(0.01));  // as HiGHS says of Checkmate's own form
  CHECK(relaxed({bound.moment}) >= bound.lower_bound / p.graph().baseline_time - 1 - 1e-6);
}

TEST_CASE("checkmate: stops within the promised time") {
  const problem p = bundled("rk/unet", 0.5);
  for (const int ms : {1, 50, 400, 1500}) {
    const double start = test::processor_seconds();
    const solution s = checkmate(p, {.gap = 0, .run = {.time_limit = std::chrono::milliseconds(ms)}});
    CHECK(test::processor_seconds() - start < ms / 1000.0 + 1);
    test::check_answer(p, s);
  }
  std::stop_source source;
  run_control run;
  run.stop = source.get_token();
  run.time_limit = std::chrono::seconds(30);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    source.request_stop();
  });
  const double start = test::processor_seconds();
  const solution s = checkmate(p, {.gap = 0, .run = run});
  other.join();
  CHECK(test::processor_seconds() - start < 1.6);
  test::check_answer(p, s);
}

TEST_CASE("hiremate: small random steps: never better than the optimum, and optimal only where it is it") {
  std::size_t optimal = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const problem free = test::random_problem(seed + 6000, test::kind_of_graph(seed));
    if (free.graph().num_operations + free.graph().outputs.values.size() > 56) continue;
    const std::int64_t low = largest_working_set(free).bytes, high = free.graph().baseline_peak;
    const problem p = free.with_budget(low + (high - low) / 3);
    hiremate_options options;
    options.max_group = 2;
    options.max_top = 2;
    options.nodes = 20;
    options.run.work_limit = 8000;
    const solution s = hiremate(p, options);
    const double least = test::least_time(p);
    INFO("seed ", seed + 6000, ": ", s.message, ", least ", least);
    test::check_answer(p, s);
    REQUIRE(s.lower_bound <= least);
    if (s.plan) REQUIRE(s.time >= least);
    if (s.status == solve_status::optimal) REQUIRE(s.time == least);
    optimal += s.status == solve_status::optimal;
  }
  CHECK(optimal > 10);
}

TEST_CASE("hiremate: bundled steps: close to the bound, with what each hierarchy gave") {
  const struct {
    const char* name;
    double share;
    double overhead;
  } rows[] = {{"rk/gpt2-like-2l", 0.6, 0.10}, {"rk/unet", 0.7, 0.10}};
  for (const auto& row : rows) {
    const problem p = bundled(row.name, row.share);
    hiremate_options options;
    options.run.time_limit = 2s;
    const solution s = hiremate(p, options);
    INFO(std::string(row.name), ": ", s.message, ", ", s.time / p.graph().needed_time);
    test::check_answer(p, s);
    REQUIRE(s.has_schedule());
    CHECK(s.time < p.graph().needed_time * (1 + row.overhead));
    const auto* hierarchies = s.statistics.own.find<figures::group_list>("hierarchies");
    REQUIRE(hierarchies);
    CHECK(!hierarchies->empty());
    CHECK(s.by.find("refined") == std::string::npos);
  }
}

TEST_CASE("hiremate: it ends on time, and when it is stopped") {
  const problem p = bundled("rk/gpt2-like-2l", 0.5);
  for (const auto time : {20ms, 300ms}) {
    hiremate_options options;
    options.run.time_limit = time;
    const double begin = test::processor_seconds();
    const solution s = hiremate(p, options);
    CHECK(test::processor_seconds() - begin < std::chrono::duration<double>(time + 1s).count());
    test::check_answer(p, s);
  }
  std::stop_source source;
  hiremate_options options;
  options.run.time_limit = 60s;
  options.run.stop = source.get_token();
  double asked = test::processor_seconds();
  std::jthread later([&] {
    std::this_thread::sleep_for(400ms);
    asked = test::processor_seconds();
    source.request_stop();
  });
  const solution s = hiremate(p, options);
  later.join();
  CHECK(test::processor_seconds() - asked < 1);
  test::check_answer(p, s);
}
