// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/copy_parts.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/evict.hpp"
#include "remat/solver/accept.hpp"
#include "support/data.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

constexpr std::size_t most_states = 4;

/// A step with a link, whose parts run one after the other on one pool.
struct copying {
  explicit copying(double part) : p(test::within(test::bundled_problem("gpt2-small-b8-s1024"), part).with_link({})) {}

  /// Runs a part within `work`, and hands its findings to the pool.
  part_slice run(const portfolio_part& part, std::uint64_t work = 3'000'000) {
    run_control limits;
    limits.work_limit = work;
    run_clock clock(limits);
    part_slice slice = part.run(known.view(), clock);
    CHECK(clock.work_done() <= 2 * work);
    out_of_memory = clock.is_out_of_memory();
    solution found = slice.found;
    known.put(found, part.name);
    return slice;
  }

  problem p;
  std::vector<schedule> starts{};
  pool known{p};
  copy_setting setting{p, "test", 0, copy_states(most_states), starts};
  bool out_of_memory = false;
};

}  // namespace

TEST_CASE("a turn begins from the best of the pool, and what it has found stays if memory runs out") {
  copying c(0.7);
  c.run(listed_order_part(c.setting));
  REQUIRE(c.known.best().plan);
  const double before = c.known.best().time;
  const portfolio_part poor = turn("poor", 1, [&](run_clock& clock, solution& best) {
    CHECK(best.time == before);
    run_control limits;
    limits.work_limit = clock.work_left() / 2;
    const solution s = evict(c.p.without_link(), {.run = limits});
    REQUIRE(s.plan);
    best.plan.reset();  // so that it takes the next one
    best.time = std::numeric_limits<double>::infinity();
    accept(c.p, best, *s.plan, "poor");
    throw std::bad_alloc();
  });
  const part_slice slice = c.run(poor);
  CHECK(c.out_of_memory);
  CHECK(slice.ended);
  CHECK(slice.found.plan);
  CHECK(slice.found.by == "poor");
}

TEST_CASE("each part takes on what the parts before it have found") {
  copying c(0.5);
  c.run(listed_order_part(c.setting));
  CHECK(c.known.best().by == "test/listed");
  CHECK(c.setting.states.entries().size() == 1);

  CHECK(c.known.best().proven == false);
  c.run(copy_bound_part(c.setting));
  CHECK(c.known.best().proven);
  CHECK(c.known.best().lower_bound == c.setting.floor.lower_bound);
  CHECK(!c.setting.floor.offloaded.empty());

  run_control limits;
  limits.work_limit = 3'000'000;
  const solution alone = evict(c.p.without_link(), {.run = limits});
  REQUIRE(alone.plan);
  c.starts.push_back(*alone.plan);
  c.run(starts_part(c.setting));
  const double after_starts = c.known.best().time;
  CHECK(after_starts <= alone.time);

  c.run(copying_eviction_part(c.setting));
  const double after_eviction = c.known.best().time;
  CHECK(after_eviction < after_starts);
  CHECK(c.setting.states.entries().size() <= most_states);
  CHECK(c.setting.states.entries().front().first == after_eviction);
}

TEST_CASE("annealing goes on from the states, and closes the list") {
  copying c(0.5);
  c.run(copy_annealing_part(c.setting));
  CHECK(!c.known.best().plan);  // there is no state
  c.run(listed_order_part(c.setting));
  const double before = c.known.best().time;
  c.run(copy_annealing_part(c.setting));
  CHECK(c.known.best().time < before);
  CHECK(c.known.best().by == "test/copies");
}

TEST_CASE("the bound says that nothing fits") {
  copying c(0.01);
  c.run(copy_bound_part(c.setting));
  CHECK(c.known.best().status == solve_status::infeasible);
  CHECK(c.known.is_settled(0));
}

TEST_CASE("states are kept by time, each once, the fastest ones") {
  copy_states states(2);
  for (const double time : {3.0, 1.0, 3.0, 2.0, 1.0}) {
    copy_refinement::state state;
    state.lead = time;
    states.keep(state, time);
  }
  REQUIRE(states.entries().size() == 2);
  CHECK(states.entries()[0].first == 1);
  CHECK(states.entries()[1].first == 2);
  CHECK(states.states()[1].lead == 2);
}
