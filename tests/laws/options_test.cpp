// SPDX-License-Identifier: BSL-1.0
// Law: options out of range are refused with `bad_argument` and a message that names the option; 0 threads are one for
// each processor.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "laws/solvers.hpp"
#include "remat/core/error.hpp"
#include "remat/core/option.hpp"
#include "support/data.hpp"

using namespace remat;
using namespace remat::detail;
using namespace remat::test;

namespace {

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

/// `solver` refuses each value just out of the range of a record, and NaN.
template <class Solver>
std::size_t check_ranges(const Solver& solver) {
  using options = typename Solver::options_type;
  std::size_t tried = 0;
  for_each_option<options>([&](const auto& o) {
    using value = typename std::remove_cvref_t<decltype(o)>::value_type;
    const auto refuse = [&](value wrong) {
      options changed;
      changed.*o.field = wrong;
      check_refused(solver, changed, std::string(o.name) + " is " + option_text(wrong) + "; expected ");
      ++tried;
    };
    if constexpr (std::is_floating_point_v<value>) {
      refuse(std::numeric_limits<value>::quiet_NaN());
      if (std::isfinite(o.least)) refuse(std::nextafter(o.least, -std::numeric_limits<value>::infinity()));
      if (std::isfinite(o.greatest)) refuse(std::nextafter(o.greatest, std::numeric_limits<value>::infinity()));
    } else if constexpr (std::is_integral_v<value> && !std::is_same_v<value, bool>) {
      if (o.least != std::numeric_limits<value>::min()) refuse(static_cast<value>(o.least - 1));
      if (o.greatest != std::numeric_limits<value>::max()) refuse(static_cast<value>(o.greatest + 1));
    } else if constexpr (std::is_enum_v<value>) {
      refuse(static_cast<value>(99));
    }
  });
  return tried;
}

}  // namespace

TEST_CASE("values out of the ranges of the records are refused, and the message names them") {
  std::size_t tried = 0;
  const auto check_all = [&](const auto& row) { tried += check_ranges(row.solver); };
  for_each_solver(branch_and_bound, check_all);
  for_each_solver(cbc_backend{}, check_all);
  CHECK(tried > 90);
}

TEST_CASE("what no solve could use is refused, and the message names it") {
  check_refused(evict, {.keep = {static_cast<tensor_id>(1'000'000)}}, "1000000");
  check_refused(refined, {.starts = {schedule{{step::free(static_cast<tensor_id>(0))}}}}, "start");
  check_refused(twremat, {.tree = tree_decomposition{}}, "tree");
  check_refused(hiremate_own, {.hierarchy = operation_hierarchy{}}, "hierarchy");
}

TEST_CASE("zero threads are one for each processor, and the answer is the same") {
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
