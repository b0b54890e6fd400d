// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/moment_branch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/problem/problem.hpp"
#include "support/moment_choices.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

TEST_CASE("branching ends at the least time of all choices, and is on either side of it before") {
  int branched = 0, open = 0;
  for (std::uint64_t seed = 0; seed < 1200; ++seed) {
    const problem p = test::problem_with_few_choices(seed);
    const flat_graph& s = p.graph();
    moment_cut cut(s);
    for (std::uint32_t k = 0; k < s.num_operations; ++k) {
      if (!s.needed[k]) continue;
      cut.at(k);
      for (const std::int64_t room : {0, 3, 8, 15}) {
        double least = std::numeric_limits<double>::infinity();
        test::every_choice(s, k, [&](double time, std::int64_t bytes) {
          if (bytes <= room) least = std::min(least, time);
        });
        INFO("seed ", seed, " operation ", k, " room ", room);
        const moment_optimum r = find_moment_optimum(cut, room, 0, 1e-9, 10000);
        if (std::isinf(least)) {
          REQUIRE(r.infeasible);
          continue;
        }
        REQUIRE(r.lower <= least);
        REQUIRE(r.lower >= least * (1 - 1e-9) - 2e-9);
        REQUIRE(r.upper == least);
        REQUIRE(r.choice.bytes <= room);
        REQUIRE(r.choice.time == least);
        std::int64_t bytes = 0;
        for (const tensor_id t : r.saved) bytes += s.bytes[index(t)];
        REQUIRE(bytes == r.choice.bytes);
        double time = 0;
        for (const op_id o : r.again) time += s.time[index(o)];
        REQUIRE(time == least);
        branched += r.nodes > 1;
        const moment_optimum few = find_moment_optimum(cut, room, 0, 1e-9, 3);
        REQUIRE(few.lower <= least);
        REQUIRE(few.upper >= least);
        open += few.lower < least && few.nodes > 1;
      }
    }
  }
  CHECK(branched > 300);
  CHECK(open > 30);
}

}  // namespace
