// SPDX-License-Identifier: BSL-1.0
#include "remat/method/no_remat.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/refine/detail/least_peak.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::problem;
using remat::solution;
using remat::solve_status;

static_assert(remat::solver_for<remat::no_remat_solver, problem>);

/// The least peak over all orders of the needed operations, by the checker alone.
std::int64_t least_peak_by_enumeration(const problem& p) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o)
    if (p.graph().needed[o]) order.push_back(o);
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  do {
    const remat::check_report report = remat::check(p, remat::schedule_computes(p.graph(), order));
    if (report.valid()) best = std::min(best, report.peak_bytes);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST_CASE("the listed order is the answer wherever it fits, and not elsewhere") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 1 + static_cast<std::uint32_t>(seed % 12);
    const problem p = remat::test::random_problem(seed, options);
    const solution free = remat::no_remat(p);
    REQUIRE(free.has_schedule());
    CHECK(free.status == solve_status::optimal);
    CHECK(free.time == p.graph().needed_time);
    CHECK(free.peak_bytes <= p.graph().baseline_peak);
    CHECK(remat::no_remat(p.with_budget(free.peak_bytes)).plan == free.plan);
    if (free.peak_bytes == 0) continue;
    const solution tight = remat::no_remat(p.with_budget(free.peak_bytes - 1));
    CHECK_FALSE(tight.has_schedule());
    if (remat::largest_working_set(p).bytes > free.peak_bytes - 1) CHECK(tight.status == solve_status::infeasible);
    if (tight.status == solve_status::infeasible)
      CHECK((options.operations > 10 || std::isinf(remat::test::least_time(p.with_budget(free.peak_bytes - 1)))));
    else
      CHECK(tight.status == solve_status::timeout);
    CHECK_FALSE(tight.message.empty());
  }
}

TEST_CASE("the order of least peak is that of an enumeration where it is proven, and never above the listed one") {
  int better = 0, proven = 0, proven_by_cuts = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 1 + static_cast<std::uint32_t>(seed % 8);
    options.accumulate = 30;
    const problem p = remat::test::random_problem(seed, options);
    const std::int64_t least = least_peak_by_enumeration(p);
    const std::int64_t listed = remat::no_remat(p).peak_bytes;

    const remat::detail::least_peak_order_result exact = remat::detail::least_peak_order(p);
    CHECK(exact.proven);
    CHECK(exact.peak_bytes == least);
    proven += exact.proven;
    better += least < listed;

    remat::detail::least_peak_options heuristic;
    heuristic.exact_operations = 0;
    heuristic.moves = 300;
    const remat::detail::least_peak_order_result found = remat::detail::least_peak_order(p, heuristic);
    CHECK(found.peak_bytes >= least);
    CHECK(found.peak_bytes <= listed);
    CHECK((!found.proven || found.peak_bytes == least));
    proven_by_cuts += found.proven && least > remat::largest_working_set(p).bytes;

    remat::no_remat_options reorder;
    reorder.reorder = true;
    const solution fits = remat::no_remat(p.with_budget(least), reorder);
    REQUIRE(fits.has_schedule());
    CHECK(fits.peak_bytes == least);
    CHECK(fits.status == solve_status::optimal);
    if (least > 0) {
      CHECK_FALSE(remat::no_remat(p.with_budget(least - 1), reorder).has_schedule());
    }
  }
  CHECK(proven == 250);
  CHECK(proven_by_cuts >= 20);
  CHECK(better >= 20);  // the generator gives something to find
}

TEST_CASE("a stopped search still answers with the listed order") {
  const problem p = remat::test::random_problem(3, {.operations = 200});
  std::stop_source source;
  source.request_stop();
  remat::no_remat_options options;
  options.reorder = true;
  options.run.stop = source.get_token();
  const solution s = remat::no_remat(p, options);
  CHECK(s.plan == remat::no_remat(p).plan);
  const solution none = remat::no_remat(p.with_budget(remat::largest_working_set(p).bytes), options);
  CHECK(none.status == solve_status::cancelled);
}

}  // namespace
