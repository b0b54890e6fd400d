// SPDX-License-Identifier: BSL-1.0
// Law: up to 5,000 operations, a solver uses at most 0.2 s of processor time (all threads and child processes) after
// its deadline, and at most 0.1 s after a stop request, whenever that comes. Processor time, so another load on the
// machine changes nothing. REMAT_LONG=1 adds a million operations, where a solver has 2.5 s after its deadline: what
// found a schedule and checks it comes to its end.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "laws/solvers.hpp"
#include "remat/core/detail/random.hpp"
#include "support/data.hpp"
#include "support/deep_stack.hpp"
#include "support/large_steps.hpp"
#include "support/long_run.hpp"
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

}  // namespace

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
