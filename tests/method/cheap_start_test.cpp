// SPDX-License-Identifier: BSL-1.0
#include "remat/method/detail/cheap_start.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/cost/models.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/revolve.hpp"
#include "support/data.hpp"
#include "support/random_chain.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

chain_problem uniform(std::size_t length, std::int64_t budget) {
  return chain_problem(test::adjoint_chain(length), budget);
}

}  // namespace

TEST_CASE("find_slots: the largest number that fits, wherever the search begins") {
  for (std::uint32_t most = 0; most < 20; ++most)
    for (std::uint32_t likely = 0; likely <= most; ++likely)
      for (std::uint32_t largest = 0; largest <= most; ++largest) {
        CAPTURE(most);
        CAPTURE(likely);
        CAPTURE(largest);
        int calls = 0;
        const std::optional<std::uint32_t> found = find_slots({likely, most}, [&](std::uint32_t slots) {
          ++calls;
          return slots <= largest;
        });
        REQUIRE(found);
        CHECK(*found == largest);
        if (largest == likely) CHECK(calls <= 2);
        CHECK(calls <= 10);
      }
  CHECK_FALSE(find_slots({3, 9}, [](std::uint32_t) { return false; }));
}

TEST_CASE("most_slots: no larger number fits, on any chain, and where stages are alike it is at most one too large") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto length = static_cast<std::uint32_t>(2 + seed % 12);
    const chain_problem free(test::random_chain(seed, length));
    for (const int percent : {90, 70, 50, 30}) {
      CAPTURE(seed);
      CAPTURE(percent);
      const chain_problem p = free.with_budget(free.stages().store_all_peak_bytes() * percent / 100);
      const std::optional<std::uint32_t> most = most_slots(p);
      for (std::uint32_t slots = most ? *most + 1 : 0; slots < length; ++slots)
        CHECK(simulate(p, revolve_steps(length, slots)).peak_bytes > p.budget());
    }
  }
  for (std::int64_t budget = 6; budget < 90; ++budget) {
    const chain_problem p = uniform(80, budget);
    const std::optional<std::uint32_t> most = most_slots(p);
    REQUIRE(most);
    CHECK(simulate(p, revolve_steps(80, *most - std::min(*most, 1U))).peak_bytes <= budget);
  }
}

TEST_CASE("equal stages: the largest number of slots that fits, from a shorter chain") {
  for (const std::uint32_t length : {1U, 2U, 3U, 7U, 40U})
    for (const std::int64_t saved : {1, 2, 5})
      for (const std::int64_t overhead : {0, 1, 4})
        for (std::int64_t budget = 0; budget < 30; ++budget) {
          CAPTURE(length);
          CAPTURE(saved);
          CAPTURE(overhead);
          CAPTURE(budget);
          const chain_stage stage{1, 1, 1, saved, overhead, 2 * overhead, {}};
          const chain_problem p(chain("equal", 3, std::vector<chain_stage>(length, stage)), budget);
          std::optional<std::uint32_t> largest;
          for (std::uint32_t slots = 0; slots < length; ++slots)
            if (simulate(p, revolve_steps(length, slots)).peak_bytes <= budget) largest = slots;
          REQUIRE(has_equal_stages(p.stages()));
          CHECK(slots_of_equal_stages(p, length - 1) == largest);
        }
  CHECK_FALSE(has_equal_stages(test::random_chain(3, 9)));
}

TEST_CASE("the closed form of uniform chains is the formula, on the chain and on its graph") {
  for (const std::uint32_t length : {2U, 30U, 200U})
    for (const std::uint32_t checkpoints : {1U, 2U, 5U, 20U, 80U}) {
      CAPTURE(length);
      CAPTURE(checkpoints);
      const chain_problem p = uniform(length, checkpoints + 4);
      chain_solution s;
      REQUIRE(take_closed_form(p, s));
      CHECK(s.statistics.recomputes == revolve_advances(length, checkpoints - 1));
      const problem q(chain_graph(p.stages()), measured_cost{}, checkpoints + 4);
      solution g;
      REQUIRE(take_closed_form(q, g, "mine"));
      CHECK(g.statistics.recomputes <= revolve_advances(length, checkpoints - 1));
      CHECK(g.by == "mine");
      CHECK_FALSE(take_closed_form(q, g, "mine"));  // not better
    }
  solution none;
  CHECK_FALSE(take_closed_form(test::bundled_problem("unet5-b16-256"), none, "mine"));
  CHECK_FALSE(none.plan);
}

TEST_CASE("a schedule that is too long is left out: a chain of 20,000 steps with its input alone takes 2 · 10⁸") {
  const chain_problem p = uniform(20'000, 5);
  chain_solution s;
  CHECK_FALSE(take_closed_form(p, s));
  CHECK(take_closed_form(p.with_budget(6), s));  // one more checkpoint
}

TEST_CASE("a longer schedule is made if the rest of the limits pays for it, and counts as work") {
  const chain_problem p = uniform(50'000, 6);
  const std::uint64_t steps = revolve_advances(50'000, 1) + 2 * 50'000;
  chain_solution s;
  CHECK_FALSE(take_closed_form(p, s));
  run_clock free({}), little({.work_limit = 1000}), late({.time_limit = std::chrono::nanoseconds(0)});
  for (run_clock* clock : {&free, &little, &late}) CHECK_FALSE(take_closed_form(p, s, clock));
  run_clock much({.time_limit = std::chrono::hours(1), .work_limit = steps});
  REQUIRE(take_closed_form(p, s, &much));
  CHECK(s.statistics.recomputes == revolve_advances(50'000, 1));
  CHECK(much.work_done() > 0);
  CHECK(much.work_done() < steps);
  const problem q(chain_graph(p.stages()), measured_cost{}, 6);
  solution g;
  CHECK_FALSE(take_closed_form(q, g, "mine"));
  // A chain that is cut off after a time that nobody could write the schedule in.
  run_clock short_time({.time_limit = std::chrono::milliseconds(20)});
  CHECK_FALSE(take_closed_form(q, g, "mine", &short_time));
}

TEST_CASE("a method that is cut off has the closed form, and one that is not has what it found") {
  const problem p(chain_graph(uniform(60, 14).stages()), measured_cost{}, 14);
  solution closed;
  REQUIRE(take_closed_form(p, closed, "mine"));
  for (const stop_reason why : {stop_reason::none, stop_reason::work, stop_reason::deadline, stop_reason::cancelled}) {
    const solution s = solve_by_own_method(p, "mine", {}, improvement{}, {},
                                           [&](run_clock&, solution&) -> method_end { return {why}; });
    CHECK(s.has_schedule() == (why != stop_reason::none));
    if (!s.plan) continue;
    CHECK(s.by == "mine/revolve");
    CHECK(s.time == closed.time);
  }
  // Not begun at all: the listed order if it fits, although this method does not begin with it.
  const auto never = [](run_clock&, solution&) -> method_end {
    FAIL_CHECK("not to be run");
    return {};
  };
  std::stop_source stop;
  stop.request_stop();
  for (const bool fits : {false, true}) {
    const solution s =
        solve_by_own_method(p.with_budget(fits ? problem::unlimited : p.budget()), "mine", {.stop = stop.get_token()},
                            improvement{}, {.opens_with_listed_order = false}, never);
    REQUIRE(s.has_schedule());
    CHECK(s.by == (fits ? "mine/no_remat" : "mine/revolve"));
  }
}
