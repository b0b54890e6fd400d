// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/moment_fill.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "remat/bound/detail/moment_branch.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/problem/problem.hpp"
#include "support/large_steps.hpp"
#include "support/moment_choices.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

std::int64_t bytes_of(const flat_graph& g, const std::vector<tensor_id>& tensors) {
  std::int64_t bytes = 0;
  for (const tensor_id t : tensors) bytes += g.bytes[index(t)];
  return bytes;
}

TEST_CASE("a filling is one of the choices, and fits") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const problem p = test::problem_with_few_choices(seed);
    const flat_graph& g = p.graph();
    moment_cut cut(g);
    for (std::uint32_t k = 0; k < g.num_operations; ++k) {
      if (!g.needed[k]) continue;
      for (const std::int64_t room : {3, 8, 15}) {
        cut.at(k);
        const moment_filling filled = fill_moment(cut, room, 0.1);
        cut.at(k);
        const bool possible = !find_moment_optimum(cut, room, 0, 1e-9, 10000).infeasible;
        INFO("seed ", seed, " operation ", k, " room ", room);
        if (!possible) REQUIRE(!filled.fits);
        if (!filled.fits) continue;
        ++found;
        REQUIRE(filled.choice.bytes <= room);
        REQUIRE(bytes_of(g, filled.resident) == filled.choice.bytes);
        bool is_choice = false;
        test::every_choice(g, k, [&](double time, std::int64_t bytes) {
          is_choice = is_choice || (time == filled.choice.time && bytes == filled.choice.bytes);
        });
        REQUIRE(is_choice);
      }
    }
  }
  CHECK(found > 1000);
}

// Equal steps are worth the same, so a price that is not tilted holds the states of all of them or of none.
TEST_CASE("a filling of a recurrence leaves less unused than the choice of the bound") {
  const problem p = test::large_step(test::step_family::recurrence, 2000);
  const flat_graph& g = p.graph();
  const turnaround_result bound = turnaround_bound(p.with_budget(g.baseline_peak / 2));
  moment_cut cut(g);
  cut.at(static_cast<std::uint32_t>(index(bound.moment)));
  const std::int64_t free_bytes = g.baseline_peak / 2 - cut.working_set();
  const moment_optimum plain = find_moment_optimum(cut, free_bytes, bound.multiplier, 1e-9, 1);
  const moment_filling filled = fill_moment(cut, free_bytes, bound.multiplier);
  REQUIRE(filled.fits);
  CHECK(plain.choice.bytes < free_bytes / 2);
  CHECK(filled.choice.bytes > free_bytes - free_bytes / 100);
  CHECK(filled.choice.time >= bound.recomputation);
  CHECK(filled.choice.time <= 1.1 * bound.recomputation);
}

TEST_CASE("a filling that is stopped, or has no byte, says that none was found") {
  const problem p = test::large_step(test::step_family::chain, 100);
  moment_cut cut(p.graph());
  cut.at(p.graph().num_operations / 2);
  CHECK(!fill_moment(cut, 1'000'000'000, 1e-12, [] { return true; }).fits);
  CHECK(!fill_moment(cut, -1, 1e-12).fits);
}

}  // namespace
