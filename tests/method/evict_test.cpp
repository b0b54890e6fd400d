// SPDX-License-Identifier: BSL-1.0
#include "remat/method/evict.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/solution.hpp"
#include "support/csv.hpp"
#include "support/exhaustive.hpp"
#include "support/processor_time.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test

static_assert(solver_for<evict_solver, problem>);

const std::filesystem::path data(REMAT_TEST_DATA);

const problem& bundled(const std::string& name) {
  static std::map<std::string, problem> read;
  auto found = read.find(name);
  if (found == read.end()) {
    auto path = data / "graphs" / (name + ".json");
    if (!std::filesystem::exists(path)) path = data / "graphs" / "rk" / (name + ".json");
    found = read.emplace(name, read_training_step(path).instance).first;
  }
  return found->second;
}

/// A forward chain of `n` operations with links over seven of them, and its backward: to recompute one tensor under a
/// small budget, a pass has to recompute many.
problem deep_problem(std::uint32_t n) {
  training_graph g;
  std::vector<tensor_id> made;
  for (std::uint32_t i = 0; i < n; ++i) {
    const tensor_id t = g.add_tensor({.name = "a", .bytes = 100 + i * 37 % 61});
    std::vector<tensor_id> inputs;
    if (i > 0) inputs.push_back(made[i - 1]);
    if (i > 7) inputs.push_back(made[i - 7]);
    g.add_operation({.name = "f", .inputs = inputs, .outputs = {t}, .seconds = 1.0 + i % 5});
    made.push_back(t);
  }
  tensor_id gradient{};
  for (std::uint32_t i = n; i-- > 0;) {
    std::vector<tensor_id> inputs{made[i]};
    if (i + 1 < n) inputs.push_back(gradient);
    gradient = g.add_tensor({.name = "g", .bytes = 100});
    g.add_operation({.name = "b", .inputs = inputs, .outputs = {gradient}, .seconds = 2});
  }
  g.add_final_output(gradient);
  return problem(g, measured_cost{});
}

}  // namespace

TEST_CASE("random graphs: legal, within the budget, never below the optimum; how often it finds one") {
  std::size_t possible = 0, found = 0, optimal = 0, proven = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 5)});
    for (const int percent : {100, 80, 60}) {
      const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
      const double least = test::least_time(p);
      const solution s = evict(p);
      INFO("seed ", seed, " at ", percent, " %");
      if (!s.has_schedule()) {
        if (s.status == solve_status::infeasible) {
          REQUIRE_FALSE(least < std::numeric_limits<double>::infinity());
          ++proven;
        } else {
          CHECK(s.status == solve_status::timeout);
        }
        possible += least < std::numeric_limits<double>::infinity();
        if (percent == 100) CHECK_FALSE(least < std::numeric_limits<double>::infinity());
        continue;
      }
      const check_report r = check(p, *s.plan);
      REQUIRE(r.valid());
      CHECK(r.time == s.time);
      CHECK(r.peak_bytes == s.peak_bytes);
      REQUIRE(s.time >= least);
      REQUIRE(s.lower_bound <= least);
      if (s.status == solve_status::optimal) CHECK(s.time == least);
      ++possible;
      ++found;
      optimal += s.time == least;
    }
  }
  MESSAGE(found, " of ", possible, " possible schedules found, ", optimal, " of them optimal");
  CHECK(proven > 1000);
  CHECK(found > possible * 9 / 10);
  CHECK(optimal > found * 8 / 10);
}

TEST_CASE("at least as good as the first offline eviction on every row, and more rows have a schedule") {
  std::size_t compared = 0;
  for (const std::vector<std::string>& row : test::read_csv(data / "peers" / "eviction.csv")) {
    const std::string &graph = row[0], &fraction = row[2], &budget = row[3], &overhead = row[4];
    if (overhead.empty()) continue;
    const problem p = bundled(graph).with_budget(std::stoll(budget));
    const solution s = evict(p);
    INFO(graph, " at ", fraction);
    REQUIRE(s.has_schedule());
    CHECK(s.peak_bytes <= p.budget());
    CHECK(s.time / p.graph().baseline_time - 1 <= std::stod(overhead) + 5e-6);  // printed to five digits
    ++compared;
  }
  CHECK(compared == 95);
  // Rows where that one has no schedule and none is proven impossible.
  for (const auto& [graph, fraction] : {std::pair("uno2d-b16-256", 0.5), std::pair("gpt2-medium-b4-s512", 0.2)}) {
    const problem& p = bundled(graph);
    const auto budget = static_cast<std::int64_t>(fraction * static_cast<double>(p.graph().baseline_peak));
    INFO(graph);
    CHECK(evict(p.with_budget(budget)).has_schedule());
  }
}

TEST_CASE("the same answer every time; random passes never make it worse and depend on the seed alone") {
  const problem p = bundled("unet5-b16-256").with_budget(bundled("unet5-b16-256").graph().baseline_peak / 2);
  const solution once = evict(p), again = evict(p);
  CHECK(once.plan == again.plan);
  const solution more = evict(p, {.random_passes = 50, .run = {.seed = 3}});
  CHECK(more.time <= once.time);
  CHECK(more.plan == evict(p, {.random_passes = 50, .run = {.seed = 3}}).plan);
}

TEST_CASE("an ample budget recomputes nothing and says optimal") {
  for (const char* name : {"vgg16-b64-224", "mixer"}) {
    const problem& p = bundled(name);
    const solution s = evict(p.with_budget(p.graph().baseline_peak));
    CHECK(s.status == solve_status::optimal);
    CHECK(s.statistics.recomputes == 0);
    CHECK(evict(p).status == solve_status::optimal);
  }
}

TEST_CASE("a stop before the start is cancelled, a spent deadline a timeout") {
  const problem p = bundled("resnet50-b64-224").with_budget(bundled("resnet50-b64-224").graph().baseline_peak / 2);
  std::stop_source source;
  source.request_stop();
  CHECK(evict(p, {.run = {.stop = source.get_token()}}).status == solve_status::cancelled);
  CHECK(evict(p, {.run = {.time_limit = std::chrono::nanoseconds(0)}}).status == solve_status::timeout);
  CHECK(evict(p, {.run = {.work_limit = 0}}).status == solve_status::timeout);
}

TEST_CASE("a work limit gives the same answer as another run with it, and progress is reported") {
  const problem p = bundled("resnet50-b64-224").with_budget(bundled("resnet50-b64-224").graph().baseline_peak / 2);
  const std::uint64_t n = p.graph().num_operations;
  std::size_t reports = 0;
  const evict_options options{.run = {.work_limit = 3 * n, .on_progress = [&](const progress& now) {
                                        ++reports;
                                        CHECK(now.solver == "evict");
                                      }}};
  const solution s = evict(p, options);
  REQUIRE(s.has_schedule());
  CHECK(s.plan == evict(p, {.run = {.work_limit = 3 * n}}).plan);
  CHECK(reports > 0);
  CHECK(evict(p).time <= s.time);
}

TEST_CASE("a work limit bounds passes and repairs") {
  const problem free = deep_problem(800);
  for (const int percent : {30, 10, 3}) {
    const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
    for (const std::uint64_t limit : {300U, 3000U, 10000U}) {
      const solution s = evict(p, {.run = {.work_limit = limit}});
      CHECK(s.statistics.work <= limit + 256);  // passes poll every 256 listed operations, and in their searches
      CHECK(s.plan == evict(p, {.run = {.work_limit = limit, .threads = 2}}).plan);
    }
  }
}

TEST_CASE("a stop is heeded in the midst of passes and repairs") {
  const problem free = deep_problem(2500);
  for (const int percent : {10, 3}) {
    const problem p = free.with_budget(free.graph().baseline_peak * percent / 100).with_known_bound(0);
    std::stop_source source;
    double asked = 0;
    std::jthread asking([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      asked = test::processor_seconds();
      source.request_stop();
    });
    const solution s = evict(p, {.random_passes = 1'000'000, .run = {.stop = source.get_token()}});
    const double returned = test::processor_seconds();
    asking.join();
    CHECK((s.has_schedule() || s.status == solve_status::cancelled));
    CHECK(returned - asked < 1);  // some milliseconds
  }
}

TEST_CASE("a tensor to keep that does not exist is refused") {
  const problem p = deep_problem(10);
  CHECK_THROWS_AS((void)evict(p, {.keep = {tensor_id{1000}}}), bad_argument);
}
