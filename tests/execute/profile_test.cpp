// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/profile.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/method/evict.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "support/scripted_executor.hpp"

using namespace remat;
using namespace remat::detail;
using test::layers;
using test::scripted_executor;
using test::unit_problem;

namespace {

constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

static_assert(timed_executor<host_executor<kernel_table<host_call>>>);
static_assert(cost_model<measured_times, training_graph>);

scripted_executor scripted(const training_graph& g, const schedule& s, std::function<double(op_id, unsigned)> clock) {
  const problem p = unit_problem(g);
  return {launch_plan(g, p, s), std::move(clock)};
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return "";
}
bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

TEST_CASE("median and least") {
  std::vector<double> odd{5, 1, 9}, even{4, 1, 100, 2}, none;
  CHECK(summarize(odd, time_statistic::median) == 5);
  CHECK(summarize(even, time_statistic::median) == 3);
  CHECK(summarize(even, time_statistic::least) == 1);
  CHECK(std::isnan(summarize(none, time_statistic::median)));
  CHECK(std::isnan(summarize(none, time_statistic::least)));
}

TEST_CASE("times that are gathered are those of the operations, whatever ran them") {
  launch_times times(3);
  for (const double s : {3.0, 1.0, 2.0}) times.add(op_id{1}, s);
  times.add(op_id{2}, 0);
  const measured_times t = times.summary();
  CHECK(std::isnan(t.seconds[0]));
  CHECK(t.seconds[1] == 2);
  CHECK(t.seconds[2] == 0);
  CHECK(times.summary(time_statistic::least).seconds[1] == 1);
  CHECK_FALSE(t.complete());
  CHECK_THROWS_AS(times.add(op_id{3}, 1), bad_argument);
  for (const double bad : {-1.0, not_measured, std::numeric_limits<double>::infinity()})
    CHECK_THROWS_AS(times.add(op_id{0}, bad), bad_cost);
}

TEST_CASE("what was not measured is an error with a name, until it is filled") {
  const training_graph g = layers(2);
  const measured_times t{{1, not_measured, 3}};
  CHECK(t.time(g, op_id{0}) == 1);
  CHECK(contains(message_of([&] { (void)t.time(g, op_id{1}); }), "operation 1 (forward 1) was not measured"));
  CHECK_THROWS_AS((void)t.time(g, op_id{3}), bad_cost);
  CHECK_THROWS_AS(problem(g, t), bad_cost);
  const measured_times full = t.filled(g, measured_cost{});
  CHECK(full.complete());
  CHECK(full.seconds == std::vector<double>{1, 2e-3, 3, 2e-3});
  CHECK_NOTHROW(problem(g, full));
}

TEST_CASE("a profile is the median over the runs that count, of all launches of an operation") {
  const training_graph g = layers(2);
  const problem p = unit_problem(g);
  // Operation 0 runs twice.
  schedule s;
  s.compute(op_id{0});
  s.compute(op_id{1});
  s.free(tensor_id{1});
  s.compute(op_id{2});
  s.free(tensor_id{2});
  s.compute(op_id{0});
  s.compute(op_id{3});
  s.free(tensor_id{1});
  s.free(tensor_id{3});
  REQUIRE(check(p, s).valid());
  // Two warm runs of 100 s, then 1 to 5 s; one of them disturbed.
  auto e = scripted(g, s, [](op_id o, unsigned run) {
    if (run < 2) return 100.0;
    if (run == 4 && o == op_id{1}) return 50.0;
    return static_cast<double>(run - 1) * static_cast<double>(index(o) + 1);
  });
  profile_options options;
  options.runs = 5;
  options.step_seed = 40;
  const profile_report r = profile(e, options);
  CHECK(e.runs == 7);
  CHECK(e.seeds == std::vector<std::uint64_t>{40, 41, 42, 43, 44, 45, 46});
  CHECK(r.runs == 5);
  CHECK(r.times.seconds == std::vector<double>{3, 8, 9, 12});  // operation 1: 2 4 50 8 10
  CHECK(r.outside_seconds == doctest::Approx(0.5));
  options.statistic = time_statistic::least;
  e.runs = 0;
  CHECK(profile(e, options).times.seconds == std::vector<double>{1, 2, 3, 4});
  CHECK(profile(e, options).step_seconds == doctest::Approx(11 * 8 + 0.5));  // runs go on from 7: factors 8 …
}

TEST_CASE("a profile ends at its limit, with one run that counts, and where a run is cancelled") {
  const training_graph g = layers(3);
  const schedule s = listed_order(unit_problem(g));
  auto e = scripted(g, s, [](op_id, unsigned run) { return run + 1.0; });
  profile_options options;
  options.time_limit = std::chrono::nanoseconds(0);
  CHECK(profile(e, options).runs == 1);
  CHECK(e.runs == 1);
  e.status = [](unsigned run) { return run < 6 ? run_status::done : run_status::cancelled; };
  options = {};
  const profile_report r = profile(e, options);
  CHECK(r.runs == 3);  // runs 1 and 2 are warm, 3 to 5 count
  CHECK(r.times.seconds[0] == 5);
  e.status = [](unsigned) { return run_status::cancelled; };
  const profile_report none = profile(e, options);
  CHECK(none.runs == 0);
  CHECK(std::isnan(none.step_seconds));
  CHECK(std::isnan(none.times.seconds[0]));

  e.status = [](unsigned) { return run_status::done; };
  e.forget = 1;
  CHECK_THROWS_AS((void)profile(e, options), bad_argument);
  options.runs = 0;
  CHECK_THROWS_AS((void)profile(e, options), bad_argument);
}

TEST_CASE("a stop request ends the profile with the runs that count so far") {
  const training_graph g = layers(3);
  std::stop_source stop;
  auto e = scripted(g, listed_order(unit_problem(g)), [&](op_id, unsigned run) {
    if (run == 4) stop.request_stop();
    return 1.0;
  });
  profile_options options;
  options.stop = stop.get_token();
  CHECK(profile(e, options).runs == 2);
  CHECK(e.runs == 5);
}
