// SPDX-License-Identifier: BSL-1.0
#include "remat/method/rotor/impl/layered_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"
#include "remat/solver/accept.hpp"
#include "support/random_chain.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

/// The answer of the search, with tables of ranges of up to `leaf` stages; no table is filled if `visits` is 0.
chain_solution search(const chain_problem& p, std::uint32_t leaf, std::uint64_t visits, bool has_equal_stages = false) {
  const sized_chain sizes = size_chain(p.stages(), false);
  on_chain::layered_search layers(sizes, p.budget() - p.stages().input_bytes(), has_equal_stages);
  run_clock clock({}, "test");
  std::vector<chain_step> steps = layers.steps(leaf, [&](breakpoint_table& table) {
    return visits > 0 && table.fill(clock, std::int64_t{1} << 30, visits) == fill_outcome::filled;
  });
  chain_solution s;
  if (!steps.empty()) CHECK(accept(p, s, std::move(steps)));  // within the budget, and legal
  return s;
}

TEST_CASE("equal stages: near the bound, and with more than two checkpoints never behind revolve") {
  for (const std::size_t length : {2U, 30U, 400U, 3000U})
    for (const std::int64_t checkpoints : {2, 5, 12, 60}) {
      CAPTURE(length);
      CAPTURE(checkpoints);
      const chain_problem p(test::unit_chain(length, 2), checkpoints + 4);
      const double bound = repetition_bound(p), formula = revolve(p).time;
      const chain_solution plain = search(p, 0, 0, true), parts = search(p, 24, 2'000'000, true);
      REQUIRE(plain.has_schedule());
      CHECK(plain.time <= (checkpoints == 2 ? 1.05 : 1) * formula);
      CHECK(parts.time <= plain.time);
      CHECK(plain.time >= bound);
      CHECK(plain.time <= 1.11 * bound);
    }
}

TEST_CASE("a table of the whole chain is the optimum") {
  for (const std::int64_t budget : {7, 9, 15, 33}) {
    CAPTURE(budget);
    const chain_problem p(test::unit_chain(60, 2), budget);
    const chain_solution best = rotor(p, {.form = rotor_form::bytes});
    REQUIRE(best.persistent_optimum);
    CHECK(search(p, 100, 1'000'000'000, true).time == best.time);
    CHECK(search(p, 100, 1'000'000'000, false).time == best.time);
  }
}

TEST_CASE("any chains: what it finds keeps the budget, with tables and without") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const chain_problem free(test::random_chain(seed, 1 + seed % 37));
    for (const int percent : {25, 45, 70, 100}) {
      CAPTURE(percent);
      const chain_problem p = free.with_budget(free.stages().store_all_peak_bytes() * percent / 100);
      const chain_solution plain = search(p, 0, 0), refused = search(p, 9, 0), parts = search(p, 9, 100'000);
      CHECK(plain.has_schedule() == parts.has_schedule());
      if (!plain.has_schedule()) continue;
      ++found;
      CHECK(refused.time == plain.time);
      CHECK(parts.time <= plain.time);
    }
  }
  CHECK(found > 200);
}

TEST_CASE("inputs of different sizes: with much memory, estimates by small ones are better, and rotor tries them") {
  std::mt19937_64 engine(5);
  std::vector<chain_stage> stages;
  for (int i = 0; i < 3000; ++i) {
    const auto bytes = static_cast<std::int64_t>(1000 + engine() % 1000);
    stages.push_back({1, 1, bytes, 2 * bytes, 0, 0, {}});
  }
  const chain_problem p(chain("sizes", 1000, std::move(stages)), 110'000);
  const sized_chain sizes = size_chain(p.stages(), false);
  std::vector<double> times;
  for (const double kept : on_chain::layered_search::likely_inputs(sizes)) {
    on_chain::layered_search layers(sizes, p.budget() - 1000, false, kept);
    chain_solution s;
    REQUIRE(accept(p, s, layers.steps(0, [](breakpoint_table&) { return false; })));
    times.push_back(s.time);
  }
  REQUIRE(times.size() == 4);
  const double least = *std::min_element(times.begin(), times.end());
  CHECK(least < 0.99 * times.front());
  const chain_solution s = rotor(p, {.begin_with_revolve = true, .run = {.work_limit = 1}});
  CHECK(s.time <= least);
}

TEST_CASE("too many steps: none") {
  CHECK_FALSE(search(chain_problem(test::unit_chain(20'000, 2), 5), 0, 0, true).has_schedule());
}

}  // namespace
