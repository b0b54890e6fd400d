// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/copy_refinement.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "remat/method/evict.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/exhaustive_copies.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("after every accepted move the best schedule is legal, within both budgets and as fast as it says") {
  std::size_t accepted = 0, copied = 0, faster = 0, limited = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 40)});
    const double speed = seed % 3 == 0 ? 0.5 : seed % 3 == 1 ? 4 : 1e5;
    const std::int64_t host = seed % 4 == 0 ? whole.graph().baseline_peak / 2 : problem::unlimited;
    const problem p = test::within(whole, 0.7).with_link({.out = speed, .in = 2 * speed, .latency = 0.25}, host);
    std::vector<std::uint32_t> computes = computes_of(listed_order(whole));
    if (const solution s = evict(test::within(whole, 0.8)); seed % 2 == 0 && s.plan) computes = computes_of(*s.plan);
    copy_refinement search(p, seed);
    CAPTURE(seed);
    if (!search.start({.computes = computes})) continue;
    const double first = search.best_time();
    for (int move = 0; move < 100; ++move) {
      search.temperature = move < 50 ? 0.3 : 0;
      const double before = search.time();
      if (!search.random_move()) {
        CHECK(search.time() == before);
        continue;
      }
      if (search.temperature == 0) CHECK(search.time() <= before * (1 + 1e-12));
      CHECK(search.best_time() <= search.time());
      const check_report r = check(p, search.best());
      REQUIRE(r.valid());
      CHECK(r.time == search.best_time());
      CHECK(r.peak_bytes <= p.budget());
      ++accepted;
      copied += r.copies > 0;
      limited += r.copies > 0 && host != problem::unlimited;
    }
    faster += search.best_time() < first * (1 - 1e-9);
    // The state of the best schedule gives it again.
    const double best = search.best_time();
    const copy_refinement::state state = search.best_state();
    CHECK(search.start(state));
    CHECK(search.best_time() == best);
  }
  CHECK(accepted > 2000);
  CHECK(copied > 1000);
  CHECK(limited > 100);
  CHECK(faster > 50);
}

TEST_CASE("a search of some hundred moves finds most optima of small graphs") {
  std::size_t searched = 0, optimal = 0, with_copies = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 4)});
    const problem p = test::within(whole, 0.8).with_link({.out = 2, .in = 3, .latency = 0.1});
    const test::fastest_result best = test::fastest_with_copies(p);
    copy_refinement search(p, seed);
    if (!best.complete || !search.start({.computes = computes_of(listed_order(whole))})) continue;
    CAPTURE(seed);
    for (int move = 0; move < 400; ++move) {
      search.temperature = 0.2 * (1 - move / 400.0);
      search.random_move();
    }
    CHECK(search.best_time() >= best.time * (1 - 1e-9));
    ++searched;
    optimal += search.best_time() <= best.time * (1 + 1e-9);
    with_copies += search.best().has_copies();
  }
  CHECK(searched > 15);
  CHECK(with_copies > 2);
  CHECK(10 * optimal >= 9 * searched);
}

TEST_CASE("the same seed makes the same moves") {
  const problem p = test::within(test::bundled_problem("unet5-b16-256"), 0.5).with_link({});
  const std::vector<std::uint32_t> computes = computes_of(listed_order(p));
  copy_refinement one(p, 7), two(p, 7);
  REQUIRE(one.start({.computes = computes}));
  REQUIRE(two.start({.computes = computes}));
  const double first = one.time();
  for (int move = 0; move < 500; ++move) CHECK(one.random_move() == two.random_move());
  CHECK(one.best() == two.best());
  CHECK(one.best_time() < 0.9 * first);
}
