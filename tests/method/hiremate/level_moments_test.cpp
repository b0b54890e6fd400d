// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/detail/level_moments.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include "remat/method/hiremate/detail/level_model.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "support/random_level.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

}  // namespace

TEST_CASE("rows of moments: the same optimum, and a relaxation that is no lower, and higher at times") {
  std::size_t raised = 0, looked = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const level_problem p = test::random_training_level(seed + 3000, 5, 1);
    std::int64_t budget = 0;
    for (const std::int64_t b : p.bytes) budget += b;
    budget = budget * (3 + static_cast<std::int64_t>(seed % 3)) / 8;
    const auto relaxed = [](const level_model& program) {
      mip_model m = program.model();
      for (std::size_t j = 0; j < m.num_columns(); ++j) m.set_integer(static_cast<std::uint32_t>(j), false);
      return branch_and_bound.solve(m);
    };
    level_model_options options;
    const level_model plain(p, budget);
    for (std::uint32_t k = 0; k < p.runs.size(); ++k) options.moments.push_back(k);
    const level_model with_rows(p, budget, options);
    const mip_result a = relaxed(plain), b = relaxed(with_rows);
    INFO("seed ", seed);
    if (a.status != mip_status::optimal) {
      CHECK(b.status != mip_status::optimal);
      continue;
    }
    mip_options solving;
    solving.max_nodes = 300;
    const mip_result best = branch_and_bound.solve(with_rows.model(), solving);
    const mip_result same = branch_and_bound.solve(plain.model(), solving);
    if (best.status == mip_status::optimal && same.status == mip_status::optimal)
      CHECK(best.objective == doctest::Approx(same.objective));
    if (b.status != mip_status::optimal) continue;
    ++looked;
    CHECK(b.objective >= a.objective - 1e-6);
    raised += b.objective > a.objective + 1e-6;
  }
  MESSAGE("raised in ", raised, " of ", looked);
  CHECK(raised > 0);
}
