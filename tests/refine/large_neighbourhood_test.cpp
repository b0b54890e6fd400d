// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/large_neighbourhood.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/revolve.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

/// The time of a sequence of computes, which must be legal and within the budget.
double time_of(const problem& p, const std::vector<std::uint32_t>& computes) {
  const check_report report = check(p, schedule_computes(p, computes));
  REQUIRE_MESSAGE(report.valid(), report.message());
  return report.time;
}

}  // namespace

TEST_CASE("one window around a whole schedule gives the optimum") {
  std::size_t solved = 0, gained = 0;
  for (std::uint64_t seed = 0; seed < 700; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 9)});
    for (const double part : {0.9, 0.75, 0.6}) {
      CAPTURE(seed);
      CAPTURE(part);
      const problem p = test::within(whole, part);
      evict_options once;
      once.insist = false;
      const solution start = evict(p, once);
      if (!start.plan) continue;
      const solution best = exact(p);
      REQUIRE(best.status == solve_status::optimal);
      run_clock clock{run_control{}};
      large_neighbourhood windows(p, {.widths = {1000}, .steps = 1, .max_states = {1'000'000}});
      windows.start(computes_of(*start.plan));
      CHECK(windows.run(clock));
      CHECK(time_of(p, windows.computes()) == doctest::Approx(best.time).epsilon(1e-8));
      ++solved;
      gained += best.time < start.time * (1 - 1e-6) ? 1U : 0U;
    }
  }
  CHECK(solved > 400);
  CHECK(gained > 50);
  MESSAGE(solved << " solved, " << gained << " of them faster than where they began");
}

TEST_CASE("narrow windows keep a schedule legal, and never make it slower") {
  std::size_t gained = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 20 + static_cast<std::uint32_t>(seed % 30)});
    for (const double part : {0.8, 0.6}) {
      CAPTURE(seed);
      CAPTURE(part);
      const problem p = test::within(whole, part);
      const solution start = evict(p);
      if (!start.plan) continue;
      large_neighbourhood windows(p, {.widths = {4, 9, 20}, .steps = 3, .max_states = {30, 300}});
      windows.start(computes_of(*start.plan));
      run_clock clock{run_control{}};
      CHECK(windows.run(clock));
      const double time = time_of(p, windows.computes());
      CHECK(time <= start.time * (1 + 1e-12));
      gained += time < start.time * (1 - 1e-6) ? 1U : 0U;
      // All windows of this schedule are known now.
      run_clock again{run_control{}};
      const std::vector<std::uint32_t> computes = windows.computes();
      windows.start(computes);
      CHECK(windows.run(again));
      CHECK(windows.computes() == computes);
    }
  }
  CHECK(gained > 20);
  MESSAGE(gained << " faster");
}

TEST_CASE("a search that is stopped by a limit of work goes on to the same schedule") {
  const problem p = test::within(test::bundled_problem("unet5-b16-256"), 0.3);
  const solution start = revolve(p);
  REQUIRE(start.plan);
  const window_effort effort{.widths = {8, 16, 32}, .steps = 2, .max_states = {300}};
  large_neighbourhood at_once(p, effort), in_pieces(p, effort);
  run_clock clock{run_control{}};
  at_once.start(computes_of(*start.plan));
  REQUIRE(at_once.run(clock));
  CHECK(time_of(p, at_once.computes()) < start.time);
  in_pieces.start(computes_of(*start.plan));
  std::size_t pieces = 1;
  for (;; ++pieces) {
    REQUIRE(pieces < 1000);
    run_control limits;
    limits.work_limit = 10'000;
    run_clock piece(limits);
    if (in_pieces.run(piece)) break;
    CHECK(piece.poll() == stop_reason::work);
    (void)time_of(p, in_pieces.computes());
  }
  CHECK(pieces > 3);
  CHECK(in_pieces.computes() == at_once.computes());
}
