// SPDX-License-Identifier: BSL-1.0
#include "remat/method/impl/refinement_steps.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "remat/method/no_remat.hpp"
#include "support/block_stack.hpp"
#include "support/data.hpp"
#include "support/long_run.hpp"

using namespace remat;
using namespace remat::test;

namespace {

void check_best(const problem& p, const solution& best) {
  REQUIRE(best.plan);
  const check_report report = check(p, *best.plan);
  CHECK(report.valid());
  CHECK(report.time == best.time);
  CHECK(best.lower_bound <= best.time);
}

}  // namespace

TEST_CASE("each piece keeps or improves what the pieces before it found, within its own limits") {
  const problem p = within(bundled_problem("unet5-b16-256"), 0.3);
  const refined_options options{.gap = 0};
  detail::pool known(p);
  detail::refinement_steps steps(known, options);
  run_clock first({.work_limit = 160'000});
  CHECK(steps.open(first) != stop_reason::cancelled);
  CHECK(first.work_done() <= 170'000);
  check_best(p, known.best());
  double before = known.best().time;
  const double opened = before;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const std::uint64_t limit = test::num_cases(500'000, 1'500'000);
    run_clock next({.work_limit = limit, .seed = seed});
    steps.go_on(next);
    CHECK(next.work_done() > 0);
    CHECK(next.work_done() <= limit + 10'000);
    check_best(p, known.best());
    CHECK(known.best().time <= before);
    before = known.best().time;
  }
  CHECK(before < opened);
}

TEST_CASE("a split at the last tight moment finds what moves of single tensors do not") {
  // The gradients nearly fill the budget: at the end some must be dropped and made again, best those of one block.
  const problem p = within(stack_problem(stack_kind::decoder, 4), 0.35);
  const auto solve = [&](std::uint32_t splits) {
    refined_options options;
    options.splits = splits;
    options.searches = 2;
    options.gap = 0;
    options.run.work_limit = 2'000'000;
    return refined(p, options);
  };
  const solution without = solve(0), with = solve(2);
  check_best(p, without);
  check_best(p, with);
  CHECK(with.by == "refined/split");
  CHECK(with.time < 0.995 * without.time);
  CHECK(with.time < 1.002 * with.lower_bound);
}

TEST_CASE("schedules to start from count at once; those over the budget are ignored, and others are refused") {
  const problem whole = bundled_problem("rk/fno1d");
  const problem p = within(whole, 0.6);
  const solution fast = refined(p, {.run = {.work_limit = 3'200'000}});
  REQUIRE(fast.plan);
  const auto open_with = [&](schedule start) {
    refined_options options;
    options.gap = 0;
    options.starts = {std::move(start)};
    detail::pool known(p);
    detail::refinement_steps steps(known, options);
    run_clock little({.work_limit = 1});
    steps.open(little);
    return known.best();
  };
  CHECK(open_with(*fast.plan).time <= fast.time);
  const solution without = open_with(no_remat(whole.with_budget(problem::unlimited)).plan.value());
  if (without.plan) CHECK(check(p, *without.plan).valid());
}

TEST_CASE("a budget that nothing fits is settled by the first piece") {
  const problem p = bundled_problem("rk/fno1d").with_budget(1);
  const refined_options options{.gap = 0};
  detail::pool known(p);
  detail::refinement_steps steps(known, options);
  run_clock clock({.work_limit = 1'000'000});
  steps.open(clock);
  CHECK(std::isinf(known.best().lower_bound));
  const std::uint64_t work = clock.work_done();
  steps.go_on(clock);
  CHECK(clock.work_done() == work);
  CHECK(!known.best().plan);
}
