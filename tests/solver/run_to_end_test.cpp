// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/detail/run_to_end.hpp"

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>

#include "remat/chain/chain.hpp"
#include "remat/method/evict.hpp"
#include "support/data.hpp"

using namespace remat;

TEST_CASE("a solve ends with its bound and status, and what comes after may add to the message") {
  const problem p = test::within(test::bundled_problem("rk/fno1d"), 0.6);
  const run_clock clock({});
  solution best;
  const auto body = [&] {
    accept(p, best, evict(p).plan.value(), "own");
    return stop_reason::none;
  };
  detail::run_to_end(p, best, clock, body, [&] { best.message += "later"; });
  CHECK(best.proven);
  CHECK(best.has_schedule());
  CHECK(best.status != solve_status::timeout);
  CHECK(best.message == "later");

  solution none;
  detail::run_to_end(p, none, clock, [] { return stop_reason::cancelled; });
  CHECK(none.status == solve_status::cancelled);
}

TEST_CASE("if memory runs out, a schedule stays the answer; without one the exception goes on, as others do") {
  const problem p = test::within(test::bundled_problem("rk/fno1d"), 0.6);
  const run_clock clock({});
  solution best;
  const auto body = [&]() -> stop_reason {
    accept(p, best, evict(p).plan.value(), "own");
    throw std::bad_alloc();
  };
  detail::run_to_end(p, best, clock, body);
  CHECK(best.out_of_memory);
  CHECK(best.by == "own");
  CHECK(best.status == solve_status::feasible);

  solution late;
  const auto good = [&] {
    accept(p, late, evict(p).plan.value(), "own");
    return stop_reason::none;
  };
  detail::run_to_end(p, late, clock, good, [] { throw std::bad_alloc(); });
  CHECK(late.out_of_memory);
  CHECK(late.has_schedule());

  solution none;
  CHECK_THROWS_AS(detail::run_to_end(p, none, clock, []() -> stop_reason { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK_THROWS_AS(detail::run_to_end(p, best, clock, []() -> stop_reason { throw std::logic_error("defect"); }),
                  std::logic_error);
}
