// SPDX-License-Identifier: BSL-1.0
// Law: up to 5,000 operations, a solver uses at most 0.2 s of processor time (all threads and child processes) after
// its deadline, and at most 0.1 s after a stop request, whenever that comes. Processor time, so another load on the
// machine changes nothing. The same holds for each part of a portfolio, and whatever the costs are: other cost models,
// and times scaled by 10^-12 to 10^12. REMAT_LONG=1 adds a million operations, where a solver has 2.5 s after its
// deadline: what found a schedule and checks it comes to its end.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "laws/solvers.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/io/json.hpp"
#include "remat/portfolio/detail/annealing_part.hpp"
#include "remat/portfolio/detail/chain_bound_part.hpp"
#include "remat/portfolio/detail/exact_part.hpp"
#include "remat/portfolio/detail/joint_bound_part.hpp"
#include "remat/portfolio/detail/random_eviction_part.hpp"
#include "remat/portfolio/detail/split_part.hpp"
#include "remat/portfolio/detail/windows_part.hpp"
#include "support/data.hpp"
#include "support/deep_stack.hpp"
#include "support/large_steps.hpp"
#include "support/long_run.hpp"
#include "support/portfolio.hpp"
#include "support/processor_time.hpp"

using namespace remat;
using namespace remat::test;

namespace {

struct named_problem {
  std::string name;
  problem p;
};

/// Large graphs, and a small one on which integer programs and exact search run long.
std::vector<named_problem> long_problems() {
  std::vector<named_problem> all;
  const problem stack = deep_stack(236, 1);
  REQUIRE(stack.graph().num_operations > 4900);
  REQUIRE(stack.graph().num_operations <= 5000);
  for (const double part : {0.5, 0.2}) all.push_back({"deep stack at " + std::to_string(part), within(stack, part)});
  all.push_back({"gpt2-medium at 0.4", within(bundled_problem("gpt2-medium-b4-s512"), 0.4)});
  all.push_back({"fno1d at 0.5", within(bundled_problem("fno1d-b32-8192"), 0.5)});
  all.push_back({"uno2d at 0.4", within(bundled_problem("uno2d-b16-256"), 0.4)});
  return all;
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Later moments, too, which take minutes.
const bool all_moments = test::long_run();

/// Sanitizers and unoptimised builds take several times as long between two polls.
constexpr double slower =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    10;
#elif defined(__OPTIMIZE__)
    1;
#else
    4;
#endif

/// Steps with costs of many kinds and sizes. The first one's branch and bound visits many nodes, each for a moment.
std::vector<named_problem> problems_of_many_costs() {
  std::vector<named_problem> all;
  for (const auto& [name, part] : std::vector<std::pair<std::string, double>>{{"limits/bert-base-b24-s384", 0.75},
                                                                              {"graphs/unet5-b16-256", 0.5},
                                                                              {"graphs/gpt2-small-b8-s1024", 0.4},
                                                                              {"graphs/fno1d-b32-8192", 0.5}})
    for (const std::string cost :
         {"linear:flops=0.1,bytes=1", "flops", "linear:flops=1e-12,bytes=1e-12", "linear:flops=1e12,bytes=1e12", "unit",
          "linear:flops=1e-12,bytes=1e12", "roofline:flops=1,bandwidth=1,latency=0"}) {
      const auto file = std::filesystem::path(REMAT_TEST_DATA) / (name + ".json");
      all.push_back({name + ", " + cost, within(read_training_step(file, cost).instance, part)});
    }
  return all;
}

/// The parts of `refined`, each by itself.
std::vector<detail::portfolio_part> all_parts(const detail::part_setting& s) {
  std::vector<detail::portfolio_part> all{detail::chain_bound_part(s), detail::joint_bound_part(s),
                                          detail::exact_part(s),       detail::random_eviction_part(s),
                                          detail::windows_part(s),     detail::annealing_part(s)};
  all.push_back(
      detail::split_part(s, [](const problem& side, const run_control& run) { return refined(side, {.run = run}); }));
  return all;
}

}  // namespace

TEST_CASE("whatever the costs are, solvers keep the deadline and follow a stop request") {
  double most = 0;
  std::string slowest;
  detail::random_source random(11);
  const std::vector<named_problem> problems = problems_of_many_costs();
  std::size_t turn = 0;
  for (const law_solver& solver : all_solvers())
    for (std::size_t k = 0; k < (all_moments ? problems.size() : 2); ++k) {
      const named_problem& instance = problems[turn++ % problems.size()];
      CAPTURE(instance.name);
      CAPTURE(solver.name);
      run_control run;
      run.time_limit = std::chrono::milliseconds(all_moments ? 200 : 50);
      sampler at_deadline(wall_seconds, wall_seconds() + std::chrono::duration<double>(run.time_limit).count(), [] {});
      static_cast<void>(solver.solve(instance.p, run));
      const double after = at_deadline.since();
      CHECK(after <= 0.2 * slower);

      const double moment = random.uniform() * 0.1;  // of the solver's own processor time
      CAPTURE(moment);
      std::stop_source stop;
      run.stop = stop.get_token();
      run.time_limit = std::chrono::minutes(2);
      sampler at_stop(processor_seconds, processor_seconds() + moment, [&] { stop.request_stop(); });
      static_cast<void>(solver.solve(instance.p, run));
      const double after_stop = at_stop.since();
      CHECK(after_stop <= 0.1 * slower);
      if (std::max(after, after_stop) <= most) continue;
      most = std::max(after, after_stop);
      slowest = solver.name + " on " + instance.name;
    }
  MESSAGE("at most " << most * 1e3 << " ms of processor time after a limit: " << slowest);
}

TEST_CASE("whatever the costs are, each part of a portfolio keeps its slice and follows a stop request") {
  double most = 0;
  std::string slowest;
  detail::random_source random(13);
  const std::vector<named_problem> problems = problems_of_many_costs();
  for (std::size_t k = 0; k < problems.size(); k += all_moments ? 1 : 3) {
    test::opened_pool opened(problems[k].p);
    for (const detail::portfolio_part& part : all_parts(opened.setting)) {
      if (part.is_useful && !part.is_useful(opened.known.view())) continue;
      CAPTURE(problems[k].name);
      CAPTURE(part.name);
      for (const bool stops : {false, true}) {
        std::stop_source stop;
        run_control run;
        run.stop = stop.get_token();
        run.time_limit = stops ? std::chrono::nanoseconds(std::chrono::minutes(2)) : std::chrono::milliseconds(200);
        const double limit = stops ? 0.1 * random.uniform() : 0.2;
        run_clock clock(run);
        sampler at_limit([stops] { return stops ? processor_seconds() : wall_seconds(); },
                         (stops ? processor_seconds() : wall_seconds()) + limit, [&] { stop.request_stop(); });
        static_cast<void>(part.run(opened.known.view(), clock));
        const double after = at_limit.since();
        CHECK(after <= 0.1 * slower);
        if (after <= most) continue;
        most = after;
        slowest = std::string(part.name) + " on " + problems[k].name;
      }
    }
  }
  MESSAGE("at most " << most * 1e3 << " ms of processor time after a limit: " << slowest);
}

TEST_CASE("after the deadline") {
  std::map<std::string, std::pair<int, double>> worst;
  for (const named_problem& instance : long_problems())
    for (const law_solver& solver : all_solvers())
      for (const double limit : {0.0, 0.02, all_moments ? 0.3 : 0.1}) {
        CAPTURE(instance.name);
        CAPTURE(solver.name);
        CAPTURE(limit);
        run_control run;
        run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(limit * 1e9));
        sampler at_deadline(wall_seconds, wall_seconds() + limit, [] {});
        const solution s = solver.solve(instance.p, run);
        const double after = at_deadline.since();
        CHECK(after <= 0.2 * slower);
        auto& [cases, most] = worst[solver.name];
        ++cases;
        most = std::max(most, after);
        CHECK((s.has_schedule() || s.status == solve_status::timeout || s.status == solve_status::infeasible ||
               s.status == solve_status::error));
      }
  for (const auto& [name, w] : worst)
    MESSAGE(name << ": " << w.first << " deadlines, at most " << w.second * 1e3 << " ms of processor time after one");
}

TEST_CASE("after the deadline at a million operations" * doctest::skip(!test::long_run())) {
  for (const step_family family : {step_family::chain, step_family::decoder, step_family::u_nets}) {
    const problem p = within(large_step(family, 1'000'000, 0), 0.5);
    for (const law_solver& solver : all_solvers()) {
      CAPTURE(static_cast<int>(family));
      CAPTURE(solver.name);
      run_control run;
      run.time_limit = std::chrono::seconds(4);
      sampler at_deadline(wall_seconds, wall_seconds() + 4, [] {});
      const solution s = solver.solve(p, run);
      const double after = at_deadline.since();
      MESSAGE(solver.name << ": " << after << " s of processor time after the deadline");
      CHECK(after <= 2.5 * slower);
    }
  }
}

TEST_CASE("after a stop request at a random moment") {
  std::map<std::string, std::pair<int, double>> worst;
  detail::random_source random(7);
  for (const named_problem& instance : long_problems())
    for (const law_solver& solver : all_solvers())
      for (const double latest : {0.01, 0.1, all_moments ? 0.5 : 0.2}) {
        const double moment = random.uniform() * latest;  // of the solver's own processor time
        CAPTURE(instance.name);
        CAPTURE(solver.name);
        CAPTURE(moment);
        std::stop_source stop;
        run_control run;
        run.stop = stop.get_token();
        run.time_limit = std::chrono::minutes(2);
        sampler at_stop(processor_seconds, processor_seconds() + moment, [&] { stop.request_stop(); });
        const solution s = solver.solve(instance.p, run);
        const double after = at_stop.since();
        if (!at_stop.taken()) continue;  // it had ended before
        CHECK(after <= 0.1 * slower);
        auto& [cases, most] = worst[solver.name];
        ++cases;
        most = std::max(most, after);
        CHECK((s.has_schedule() || s.status == solve_status::cancelled || s.status == solve_status::infeasible ||
               s.status == solve_status::timeout || s.status == solve_status::error));
      }
  for (const auto& [name, w] : worst)
    MESSAGE(name << ": " << w.first << " stops, at most " << w.second * 1e3 << " ms of processor time after one");
}
