// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/step_split.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "remat/bound/detail/moment_branch.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

constexpr rerun_order orders[] = {rerun_order::listed, rerun_order::on_demand};

/// The choice of least recomputation at a moment, or none.
std::optional<moment_optimum> choice_at(const problem& p, std::uint32_t moment) {
  moment_cut cut(p.graph());
  cut.at(moment);
  if (cut.working_set() > p.budget()) return std::nullopt;
  moment_optimum found = find_moment_optimum(cut, p.budget() - cut.working_set(), 0, 1e-9 * p.graph().needed_time, 200);
  if (found.infeasible || !std::isfinite(found.upper)) return std::nullopt;
  return found;
}

}  // namespace

TEST_CASE("schedules of both parts are one of the whole, legal and within the budget, in the sum of their times") {
  std::size_t joined = 0, tight = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 14)});
    for (const double part : {1.0, 0.8, 0.65}) {
      const problem p = test::within(whole, part);
      for (std::uint32_t moment = 0; moment < p.graph().num_operations; ++moment) {
        if (!p.graph().needed[moment]) continue;
        const auto choice = choice_at(p, moment);
        if (!choice) continue;
        for (const rerun_order order : orders) {
          CAPTURE(seed);
          CAPTURE(part);
          CAPTURE(moment);
          const auto split = step_split::at(p, moment, choice->saved, order);
          if (!split) {
            ++refused;
            continue;
          }
          CHECK(split->before.budget() == p.budget());
          const solution a = evict(split->before), b = evict(split->after);
          if (!a.plan || !b.plan) continue;
          const check_report report = check(p, schedule_computes(p, split->join(*a.plan, *b.plan)));
          REQUIRE_MESSAGE(report.valid(), report.message());
          CHECK(report.time <= (a.time + b.time) * (1 + 1e-12));
          ++joined;
          tight += report.recomputes > 0 ? 1U : 0U;
        }
      }
    }
  }
  CHECK(joined > 5000);
  CHECK(tight > 500);
  CHECK(refused > 0);
  MESSAGE(joined << " joined, " << tight << " with recomputation, " << refused << " refused");
}

TEST_CASE("the parts run the operations that the cut says, and no more") {
  const problem p = test::within(test::bundled_problem("regnet-x-32gf-b32-224"), 0.2);
  const std::uint32_t moment = 483;  // where hardly any memory is left beside the working set
  const auto choice = choice_at(p, moment);
  REQUIRE(choice);
  REQUIRE(choice->again.size() > 100);
  for (const rerun_order order : orders) {
    const auto split = step_split::at(p, moment, choice->saved, order);
    REQUIRE(split);
    const double both = split->before.graph().needed_time + split->after.graph().needed_time;
    CHECK(both <= (p.graph().needed_time + choice->choice.time) * (1 + 1e-9));
    // What runs in vain in the first part, to be dropped before the moment, runs in the second part alone.
    CHECK(split->before.graph().num_operations < moment + 2);
    CHECK(split->after.graph().num_operations < p.graph().num_operations / 2 + 10);
  }
}

TEST_CASE("an exact search of both parts of a small step is never better than one of the whole") {
  std::size_t equal = 0, compared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const problem p = test::within(test::random_problem(seed, {.operations = 7}), 0.7);
    const solution whole = exact(p);
    if (whole.status != solve_status::optimal) continue;
    double best = std::numeric_limits<double>::infinity();
    for (std::uint32_t moment = 0; moment < p.graph().num_operations; ++moment) {
      if (!p.graph().needed[moment]) continue;
      const auto choice = choice_at(p, moment);
      if (!choice) continue;
      const auto split = step_split::at(p, moment, choice->saved, rerun_order::on_demand);
      if (!split) continue;
      const solution a = exact(split->before), b = exact(split->after);
      if (!a.plan || !b.plan) continue;
      const check_report report = check(p, schedule_computes(p, split->join(*a.plan, *b.plan)));
      CAPTURE(seed);
      CAPTURE(moment);
      REQUIRE_MESSAGE(report.valid(), report.message());
      CHECK(report.time >= whole.time * (1 - 1e-9));
      best = std::min(best, report.time);
    }
    if (best == std::numeric_limits<double>::infinity()) continue;
    ++compared;
    equal += best <= whole.time * (1 + 1e-9) ? 1U : 0U;
  }
  CHECK(compared > 20);
  CHECK(equal * 2 > compared);
  MESSAGE(equal << " of " << compared << " splits are optimal");
}
