// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate_cbc.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/io/training_graph_json.hpp"
#include "remat/solver/concepts.hpp"
#include "support/answer.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test
using namespace std::chrono_literals;

static_assert(solver_for<hiremate_solver<cbc_backend>, problem>);

problem bundled(const std::string& name, int percent) {
  const problem free = test::bundled_problem(name);
  return free.with_budget(free.graph().baseline_peak / 100 * percent);
}

}  // namespace

TEST_CASE("small random steps: never better than the optimum, and optimal only where it is it") {
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

TEST_CASE("bundled steps: close to the bound, with what each hierarchy gave") {
  const struct {
    const char* name;
    int percent;
    double overhead;
  } rows[] = {{"rk/gpt2-like-2l", 60, 0.10}, {"rk/unet", 70, 0.10}};
  for (const auto& row : rows) {
    const problem p = bundled(row.name, row.percent);
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

TEST_CASE("it ends on time, and when it is stopped") {
  using clock = std::chrono::steady_clock;
  const problem p = bundled("rk/gpt2-like-2l", 50);
  for (const auto time : {20ms, 300ms}) {
    hiremate_options options;
    options.run.time_limit = time;
    const auto begin = clock::now();
    const solution s = hiremate(p, options);
    CHECK(clock::now() - begin < time + 1s);
    test::check_answer(p, s);
  }
  std::stop_source source;
  hiremate_options options;
  options.run.time_limit = 60s;
  options.run.stop = source.get_token();
  clock::time_point asked = clock::now();
  std::jthread later([&] {
    std::this_thread::sleep_for(400ms);
    asked = clock::now();
    source.request_stop();
  });
  const solution s = hiremate(p, options);
  later.join();
  CHECK(clock::now() - asked < 1s);
  test::check_answer(p, s);
}
