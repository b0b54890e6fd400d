// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/moment_joint.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/problem.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

/// True if operation `b` depends on `a`.
bool precedes(const flat_graph& g, std::uint32_t a, std::uint32_t b) {
  std::vector<std::uint8_t> before(g.num_operations, 0);
  before[b] = 1;
  for (std::uint32_t o = b + 1; o-- > 0;)
    if (before[o])
      for (const std::uint32_t t : g.inputs[o])
        for (const std::uint32_t p : g.producers[t]) before[p] = 1;
  return a < b && before[a] != 0;
}

/// Moments that depend on each other, any of those whose working sets fit, without rates.
moment_chain random_start(const problem& p, std::mt19937_64& engine) {
  moment_chain c;
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o) {
    if (!p.graph().needed[o] || working_set_bytes(p.graph(), o) > p.budget() || engine() % 2) continue;
    if (!c.moments.empty() && !precedes(p.graph(), c.moments.back(), o)) continue;
    c.moments.push_back(o);
  }
  c.prices.resize(c.moments.size());
  c.passed.resize(c.moments.size() - !c.moments.empty());
  for (std::vector<tensor_rate>& rates : c.passed)
    for (std::uint32_t t = 0; t < p.graph().num_tensors; ++t)
      if (p.graph().producers[t].size() == 1 && engine() % 4 == 0)
        rates.push_back({t, static_cast<double>(engine() % 40) / 16});
  return c;
}

TEST_CASE("several moments together never prove more than the least time of all schedules, or than was asked for") {
  const bool long_run = std::getenv("REMAT_LONG") != nullptr;
  int compared = 0, above_one = 0, tight = 0;
  for (std::uint64_t seed = 0; seed < (long_run ? 20000U : 500U); ++seed) {
    const problem p = test::random_problem(seed, test::kind_of_graph(seed));
    std::mt19937_64 engine(seed);
    const std::int64_t peak = p.graph().baseline_peak, least = least_memory_bound(p).bytes;
    for (std::int64_t budget = least; budget < peak; budget += 1 + (peak - least) / 3) {
      const problem q = p.with_budget(budget);
      const turnaround_result one = turnaround_bound(q, {.moments = 0, .branch_nodes = 24});
      if (one.infeasible || one.recomputation == 0) continue;
      INFO("seed ", seed, " budget ", budget);
      const double needed = q.graph().needed_time, optimum = test::least_time(q) - needed;
      moment_chain best;
      best.moments = {static_cast<std::uint32_t>(index(one.moment))};
      best.prices = {one.multiplier};
      for (const double cutoff : {std::numeric_limits<double>::infinity(), 1.5 * optimum + 1, optimum, optimum / 2}) {
        if (!(cutoff < std::numeric_limits<double>::infinity()) && engine() % 2) continue;
        for (const moment_chain& start : {best, random_start(q, engine)}) {
          if (start.moments.empty()) continue;
          moment_joint search(q, start);
          double before = 0;
          for (int slice = 0; slice < 3 && !search.ended(); ++slice) {
            search.run(cutoff, 1 + engine() % 400, {});
            REQUIRE(search.bound() >= before);
            before = search.bound();
          }
          search.run(cutoff, 600, {});
          REQUIRE(search.bound() <= cutoff);
          REQUIRE(search.bound() <= optimum);  // times are whole: not even by rounding
          if (cutoff < optimum || optimum == std::numeric_limits<double>::infinity()) continue;
          ++compared;
          above_one += search.bound() > one.recomputation * (1 + 1e-6) + 1e-6;
          tight += search.bound() >= optimum * (1 - 1e-5);
        }
      }
    }
  }
  INFO(compared, " compared, ", above_one, " above one moment, ", tight, " to the optimum");
  CHECK(compared > 1000);
  CHECK(above_one > compared / 30);
  CHECK(tight > compared / 3);
}

TEST_CASE("two moments together prove what neither of them does, however often the search is stopped") {
  const problem p = test::within(test::bundled_problem("rk/unet"), 0.5);
  const turnaround_result one = turnaround_bound(p, {.moments = 0, .branch_nodes = 200, .chain_moments = 48});
  moment_chain start;
  start.moments = {static_cast<std::uint32_t>(index(one.moment))};
  start.prices = {one.multiplier};
  const double cutoff = 1.07 * one.recomputation;
  moment_joint whole(p, start), sliced(p, start);
  whole.run(cutoff, 60000, {});
  for (int i = 0; i < 20; ++i) sliced.run(cutoff, 6000, {});
  CHECK(whole.bound() > 1.01 * one.recomputation);
  CHECK(sliced.bound() > 1.01 * one.recomputation);
  CHECK(whole.moments().size() > 1);
  moment_joint again(p, start);
  again.run(cutoff, 60000, {});
  CHECK(again.bound() == whole.bound());
  CHECK(again.flows() == whole.flows());
  const std::uint64_t flows = again.flows();
  again.run(cutoff, 1000, [] { return true; });
  CHECK(again.flows() <= flows + 8);
}

}  // namespace
