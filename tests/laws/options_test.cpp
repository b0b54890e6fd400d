// SPDX-License-Identifier: BSL-1.0
// Law: options out of range are refused with `bad_argument` and a message that names the option; 0 threads means 1.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "laws/solvers.hpp"
#include "remat/core/error.hpp"
#include "support/data.hpp"

using namespace remat;
using namespace remat::detail;
using namespace remat::test;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// `solver` refuses `options` with a message that contains `field`.
template <class Solver>
void check_refused(const Solver& solver, const typename Solver::options_type& options, const std::string& field) {
  // A graph that is not settled at once, so the options matter.
  const problem p = within(bundled_problem("unet5-b16-256"), 0.6);
  CAPTURE(Solver::name);
  CAPTURE(field);
  std::string message;
  try {
    (void)solver(p, options);
  } catch (const bad_argument& e) {
    message = e.what();
  }
  CHECK_MESSAGE(message.find(field) != std::string::npos, "the message: ", message);
}

}  // namespace

TEST_CASE("what no solve could use is refused, and the message names it") {
  check_refused(chen_greedy, {.sizes = 0}, "sizes");
  check_refused(revolve, {.max_stages = 0}, "max_stages");
  check_refused(rotor, {.slots = 0}, "slots");
  check_refused(rotor, {.max_stages = 0}, "max_stages");
  check_refused(rotor, {.table_bytes = -1}, "table_bytes");
  check_refused(rockmate, {.slots = 0}, "slots");
  check_refused(rockmate, {.max_stages = 0}, "max_stages");
  check_refused(rockmate, {.options_per_stage = 1}, "options_per_stage");
  check_refused(evict, {.keep = {static_cast<tensor_id>(1'000'000)}}, "1000000");
  check_refused(exact, {.max_states = 0}, "max_states");
  check_refused(refined, {.gap = -1}, "gap");
  check_refused(automatic, {.gap = not_a_number}, "gap");
  check_refused(refined, {.starts = {schedule{{step::free(static_cast<tensor_id>(0))}}}}, "start");
  check_refused(twremat, {.tree = tree_decomposition{}}, "tree");
  check_refused(checkmate_own, {.good_enough = not_a_number}, "good_enough");
  check_refused(checkmate_own, {.units = 0}, "units");
  check_refused(checkmate_own, {.most_columns = not_a_number}, "most_columns");
  check_refused(checkmate, {.good_enough = -1}, "good_enough");
  check_refused(hiremate_own, {.hierarchy = operation_hierarchy{}}, "hierarchy");
  check_refused(hiremate_own, {.max_group = 1}, "max_group");
  check_refused(hiremate_own, {.max_top = 0}, "max_top");
  check_refused(hiremate_own, {.good_enough = not_a_number}, "good_enough");
  check_refused(hiremate, {.most_columns = -1}, "most_columns");
}

TEST_CASE("zero threads are one thread") {
  const problem p = within(bundled_problem("unet5-b16-256"), 0.6);
  for (const law_solver& solver : all_solvers()) {
    CAPTURE(solver.name);
    run_control run;
    run.work_limit = 3200;
    const solution one = solver.solve(p, run);
    run.threads = 0;
    const solution none = solver.solve(p, run);
    CHECK(none.status == one.status);
    REQUIRE(none.has_schedule() == one.has_schedule());
    if (one.has_schedule()) CHECK(*none.plan == *one.plan);
  }
}
