// SPDX-License-Identifier: BSL-1.0
#include "remat/method/impl/reordering.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

std::vector<std::uint32_t> needed_operations(const flat_graph& g) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o]) out.push_back(o);
  return out;
}

/// The operations of the whole that a schedule of the reordered problem runs.
std::vector<std::uint32_t> original_computes(const reordering& other, const schedule& plan) {
  std::vector<std::uint32_t> out;
  for (const step& k : plan.steps)
    if (k.is_compute()) out.push_back(other.original(static_cast<std::uint32_t>(index(k.operation()))));
  return out;
}

}  // namespace

TEST_CASE("a shuffled order has each needed operation once, after all that it depends on") {
  std::size_t changed = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 30)});
    const flat_graph& g = p.graph();
    const std::vector<std::uint32_t> listed = needed_operations(g);
    random_source random(seed);
    CAPTURE(seed);
    CHECK(shuffled_order(g, listed, 0, random) == listed);
    std::vector<std::uint32_t> order = listed;
    for (const double reach : {2.0, 8.0, 100.0}) {
      order = shuffled_order(g, order, reach, random);
      std::vector<std::uint32_t> place(g.num_operations, 0);
      for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
      for (const std::uint32_t o : order)
        for (const std::uint32_t t : g.inputs[o])
          for (const std::uint32_t maker : g.producers[t]) CHECK(place[maker] < place[o]);
      changed += order != listed;
      std::vector<std::uint32_t> sorted = order;
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == listed);
    }
  }
  CHECK(changed > 1000);
}

TEST_CASE("a schedule in another order is one of the whole, of the same peak and time") {
  std::size_t with_recomputation = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 30)});
    random_source random(seed);
    const std::vector<std::uint32_t> listed = needed_operations(whole.graph());
    const reordering other(whole, shuffled_order(whole.graph(), listed, 6, random));
    CAPTURE(seed);
    CHECK(other.instance.graph().needed_time == doctest::Approx(whole.graph().needed_time).epsilon(1e-12));
    for (const double part : {1.0, 0.7}) {
      const auto budget = static_cast<std::int64_t>(part * static_cast<double>(other.instance.graph().baseline_peak));
      const solution s = evict(other.instance.with_budget(budget));
      if (!s.plan) continue;
      const check_report there = check(other.instance, *s.plan);
      const check_report here = check(whole, schedule_computes(whole, original_computes(other, *s.plan)));
      CHECK(here.valid());
      CHECK(here.time == doctest::Approx(there.time).epsilon(1e-12));
      CHECK(here.peak_bytes <= budget);
      with_recomputation += here.recomputes > 0;
    }
  }
  CHECK(with_recomputation > 100);
}

TEST_CASE("another order of the first runs can fit where the listed one needs more") {
  // Two pairs of a large tensor and the small one made from it. In the listed order both large ones lie in memory.
  flat_graph g;
  g.num_operations = 5;
  g.num_tensors = 5;
  for (const std::vector<std::uint32_t>& row : std::vector<std::vector<std::uint32_t>>{{}, {}, {0}, {1}, {2, 3}}) {
    g.inputs.values.insert(g.inputs.values.end(), row.begin(), row.end());
    g.inputs.end_row();
  }
  for (std::uint32_t t = 0; t < 5; ++t) {
    g.outputs.values.push_back(t);
    g.outputs.end_row();
  }
  g.bytes = {100, 100, 1, 1, 1};
  g.time.assign(5, 1.0);
  g.once.assign(5, flat_graph::once_as_marked);
  g.always_resident.assign(5, 0);
  g.final_outputs = {4};
  const problem p = problem::from_flat(g, 110);
  CHECK(!no_remat(p).plan);
  const reordering other(p, {0, 2, 1, 3, 4});
  const solution s = no_remat(other.instance);
  REQUIRE(s.plan);
  CHECK(check(p, schedule_computes(p, original_computes(other, *s.plan))).valid());
  // Random passes of eviction find such an order.
  evict_options options;
  options.random_passes = 200;
  CHECK(evict(p, options).plan);
  options.random_passes = 0;
  CHECK(!evict(p, options).plan);
}
