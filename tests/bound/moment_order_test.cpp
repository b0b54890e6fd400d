// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/moment_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/problem/problem.hpp"
#include "support/large_steps.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

/// The first runs at which the listed order exceeds the budget.
std::vector<std::uint32_t> over(const flat_graph& g, const std::vector<std::int64_t>& listed, std::int64_t budget) {
  std::vector<std::uint32_t> list;
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o] && listed[o] > budget) list.push_back(o);
  return list;
}

TEST_CASE("the listed order's memory peaks at the baseline, and what must not run twice has an infinite time") {
  std::size_t infinite = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 8, .once = 20});
    const flat_graph& g = p.graph();
    const auto listed = listed_memory(g);
    CHECK(*std::max_element(listed.begin(), listed.end()) <= g.baseline_peak);
    const auto times = producers_times(g);
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      bool once = false;
      for (const std::uint32_t o : g.producers[t]) once = once || g.once[o];
      CHECK((times[t] == std::numeric_limits<double>::infinity()) == once);
      infinite += once;
    }
  }
  CHECK(infinite > 20);
}

TEST_CASE("every moment is tried once: the fullest first, then by turns the highest estimate and the tightest") {
  const problem p = test::large_step(test::step_family::chain, 60);
  const flat_graph& g = p.graph();
  const auto listed = listed_memory(g);
  const std::int64_t budget = g.baseline_peak / 2;
  const std::vector<std::uint32_t> moments = over(g, listed, budget);
  moment_order order(g, listed, budget, 0);
  order.find_tightest(order.count());
  REQUIRE(order.count() == moments.size());
  REQUIRE(order.count() > 10);
  CHECK(order.last() == moments.back());
  std::vector<double> estimate(g.num_operations);
  for (std::uint32_t o = 0; o < g.num_operations; ++o) estimate[o] = o;
  order.set_estimate(estimate);
  const auto tightness = [&](std::uint32_t o) {
    return static_cast<double>(listed[o] - budget) / static_cast<double>(listed[o] - working_set_bytes(g, o));
  };
  std::vector<std::uint32_t> left = moments;
  for (std::size_t i = 0; i < order.count(); ++i) {
    const std::uint32_t k = order.next(i);
    const auto at = std::find(left.begin(), left.end(), k);
    REQUIRE(at != left.end());
    if (i == 0)
      for (const std::uint32_t o : left) CHECK(listed[o] <= listed[k]);
    else if (i % 2 == 0)
      for (const std::uint32_t o : left) CHECK(tightness(o) <= tightness(k));
    else
      CHECK(k == left.back());
    left.erase(at);
    order.mark_tried(k);
  }
  CHECK(order.next(1) == moment_order::none);
  CHECK(moment_order(g, listed, budget, 5).count() == 5);
  CHECK(moment_order(g, listed, g.baseline_peak, 5).count() == 0);
}

TEST_CASE("estimates are corrected by the errors nearby") {
  const problem p = test::large_step(test::step_family::chain, 60);
  const flat_graph& g = p.graph();
  const auto listed = listed_memory(g);
  moment_order order(g, listed, g.baseline_peak / 2, 0);
  const std::vector<std::uint32_t> moments = over(g, listed, g.baseline_peak / 2);
  order.set_estimate(std::vector<double>(g.num_operations, 1));
  const std::uint32_t low = moments.front(), high = moments.back();
  order.record(high, 4);  // the estimate is 3 too low there, and 1 too high at the other end
  order.record(low, 0);
  REQUIRE(order.attempts().size() == 2);
  CHECK(order.attempts()[0].error == -1);
  CHECK(order.attempts()[1].error == 3);
  CHECK(order.next(1) == moments[moments.size() - 2]);
  order.set_estimate(std::vector<double>(g.num_operations, 4));
  CHECK(order.attempts()[0].error == -4);
  CHECK(order.attempts()[1].error == 0);
}

TEST_CASE("a sample ascends, has what was asked for, and is about as large as was asked") {
  const problem p = test::large_step(test::step_family::chain, 200);
  const flat_graph& g = p.graph();
  const auto listed = listed_memory(g);
  moment_order order(g, listed, g.baseline_peak / 2, 0);
  const std::vector<std::uint32_t> moments = over(g, listed, g.baseline_peak / 2);
  CHECK(order.sample(moments.size(), {}) == moments);
  const auto some = order.sample(10, {moments[1]});
  CHECK(std::is_sorted(some.begin(), some.end()));
  CHECK(std::adjacent_find(some.begin(), some.end()) == some.end());
  CHECK(std::count(some.begin(), some.end(), moments[1]) == 1);
  CHECK(some.size() >= 5);
  CHECK(some.size() <= 11);
}

}  // namespace
