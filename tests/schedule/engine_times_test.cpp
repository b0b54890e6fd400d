// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/check.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "support/copy_schedules.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test

/// a (10 bytes) → b (20 bytes) → c (no bytes), and a is read by c, too. Every operation takes 1. A copy of a takes 1.5
/// out and 2.5 in, one of b 2.5 out and 4.5 in, one of c 0.5.
struct three {
  training_graph g;
  tensor_id a, b, c;
  step make_a, make_b, make_c;
  three() : make_a(step::compute({})), make_b(make_a), make_c(make_a) {
    a = g.add_tensor({"a", 10});
    b = g.add_tensor({"b", 20});
    c = g.add_tensor({"c", 0});
    make_a = step::compute(g.add_operation({.name = "make_a", .outputs = {a}}));
    make_b = step::compute(g.add_operation({.name = "make_b", .inputs = {a}, .outputs = {b}}));
    make_c = step::compute(g.add_operation({.name = "make_c", .inputs = {a, b}, .outputs = {c}}));
    g.add_final_output(c);
  }
  [[nodiscard]] problem p() const {
    return problem(g, unit_cost{}).with_link({.out = 10, .in = 5, .latency = 0.5}).with_budget(1000);
  }
  /// The times of the steps; the makespan is that of the checker, and the last end of an engine.
  [[nodiscard]] std::vector<step_times> times(std::initializer_list<step> steps) const {
    const engine_times t = engine_times_of(p(), schedule{steps});
    CHECK(t.makespan == check(p(), schedule{steps}).time);
    return t.steps;
  }
};

using list = std::vector<step_times>;

}  // namespace

TEST_CASE("engines are a list, and each kind of step that takes time has one") {
  CHECK(num_engines == 3);
  CHECK(engine_of(step_kind::compute) == engine::compute);
  CHECK(engine_of(step_kind::offload) == engine::copy_out);
  CHECK(engine_of(step_kind::prefetch) == engine::copy_in);
  CHECK_FALSE(engine_of(step_kind::free));
  CHECK_FALSE(engine_of(step_kind::drop));
  CHECK(to_string(engine::copy_out) == "copies out");
}

TEST_CASE("a copy out runs beside the computes listed later") {
  const three s;
  CHECK(s.times({s.make_a, step::offload(s.a), s.make_b, s.make_c}) == list{{0, 1}, {1, 2.5}, {1, 2}, {2, 3}});
}

TEST_CASE("the step ends when the last engine does") {
  const three s;
  const schedule plan{{s.make_a, s.make_b, s.make_c, step::offload(s.b)}};
  const engine_times t = engine_times_of(s.p(), plan);
  CHECK(t.makespan == 5.5);
  CHECK(t.busy_of(engine::compute) == 3);
  CHECK(t.busy_of(engine::copy_out) == 2.5);
  CHECK(t.busy_of(engine::copy_in) == 0);
}

TEST_CASE("each engine does one copy after the other") {
  const three s;
  CHECK(s.times({s.make_a, s.make_b, step::offload(s.b), step::offload(s.a), s.make_c}) ==
        list{{0, 1}, {1, 2}, {2, 4.5}, {4.5, 6}, {2, 3}});
}

TEST_CASE("a free waits for the copy out, and what is listed later waits with it") {
  const three s;
  CHECK(s.times({s.make_a, step::offload(s.a), step::free(s.a), s.make_a, s.make_b, s.make_c}) ==
        list{{0, 1}, {1, 2.5}, {2.5, 2.5}, {2.5, 3.5}, {3.5, 4.5}, {4.5, 5.5}});
  // A copy listed after the free waits, too, though its engine is free.
  CHECK(s.times({s.make_a, s.make_b, step::offload(s.b), step::free(s.b), step::prefetch(s.b), s.make_c}) ==
        list{{0, 1}, {1, 2}, {2, 4.5}, {4.5, 4.5}, {4.5, 9}, {9, 10}});
}

TEST_CASE("a compute waits for the copies in of what it reads, and of nothing else") {
  const three s;
  // make_a is run again beside the copy in of b.
  CHECK(s.times({s.make_a, s.make_b, step::offload(s.b), step::free(s.b), step::prefetch(s.b), step::free(s.a),
                 s.make_a, s.make_c}) ==
        list{{0, 1}, {1, 2}, {2, 4.5}, {4.5, 4.5}, {4.5, 9}, {4.5, 4.5}, {4.5, 5.5}, {9, 10}});
}

TEST_CASE("a compute waits for copies of what it writes, in both directions") {
  const three s;
  CHECK(s.times({s.make_a, step::offload(s.a), s.make_a, s.make_b, s.make_c}) ==
        list{{0, 1}, {1, 2.5}, {2.5, 3.5}, {3.5, 4.5}, {4.5, 5.5}});
  CHECK(s.times({s.make_a, step::offload(s.a), step::free(s.a), step::prefetch(s.a), s.make_a, s.make_b, s.make_c}) ==
        list{{0, 1}, {1, 2.5}, {2.5, 2.5}, {2.5, 5}, {5, 6}, {6, 7}, {7, 8}});
}

TEST_CASE("a free waits for the copy in") {
  const three s;
  CHECK(s.times({s.make_a, s.make_b, step::offload(s.b), step::free(s.b), step::prefetch(s.b), step::free(s.b),
                 s.make_b, s.make_c}) ==
        list{{0, 1}, {1, 2}, {2, 4.5}, {4.5, 4.5}, {4.5, 9}, {9, 9}, {9, 10}, {10, 11}});
}

TEST_CASE("a copy out waits for the copy in of its tensor") {
  const three s;
  CHECK(s.times({s.make_a, step::offload(s.a), step::free(s.a), step::prefetch(s.a), step::drop(s.a),
                 step::offload(s.a), s.make_b, s.make_c}) ==
        list{{0, 1}, {1, 2.5}, {2.5, 2.5}, {2.5, 5}, {5, 5}, {5, 6.5}, {5, 6}, {6, 7}});
}

TEST_CASE("after a drop, copies out wait for the copy in that reads the host's bytes") {
  const three s;
  CHECK(s.times({s.make_a, s.make_b, step::offload(s.a), step::free(s.a), step::prefetch(s.a), step::drop(s.a),
                 step::offload(s.b), s.make_c}) ==
        list{{0, 1}, {1, 2}, {2, 3.5}, {3.5, 3.5}, {3.5, 6}, {6, 6}, {6, 8.5}, {6, 7}});
  // Without the drop, the copy of b begins at once.
  CHECK(s.times({s.make_a, s.make_b, step::offload(s.a), step::free(s.a), step::prefetch(s.a), step::offload(s.b),
                 s.make_c})[5] == step_times{3.5, 6});
}

TEST_CASE("a new allocation does not wait for copies of an earlier one") {
  const three s;
  CHECK(s.times({s.make_a, s.make_b, step::offload(s.b), step::free(s.b), s.make_b, step::drop(s.b), step::offload(s.b),
                 s.make_c}) ==
        list{{0, 1}, {1, 2}, {2, 4.5}, {4.5, 4.5}, {4.5, 5.5}, {5.5, 5.5}, {5.5, 8}, {5.5, 6.5}});
}

TEST_CASE("a copy of no bytes takes the latency") {
  const three s;
  CHECK(s.times({s.make_a, s.make_b, s.make_c, step::offload(s.c)})[3] == step_times{3, 3.5});
}

TEST_CASE("random schedules: the makespan is the checker's time, and each engine does one step at a time, in order") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    const problem plain = test::random_problem(seed, {.operations = 12});
    const problem p = plain.with_link(test::random_link(plain, seed));
    const schedule plan = test::random_copy_schedule(p, seed).plan;
    const engine_times t = engine_times_of(p, plan);
    CHECK(t.makespan == check(p, plan).time);
    REQUIRE(t.steps.size() == plan.steps.size());
    std::array<double, num_engines> end{}, busy{};
    double last = 0;
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const step x = plan.steps[i];
      const step_times now = t.steps[i];
      const auto e = engine_of(x.kind());
      if (!e) {
        CHECK(now.begin == now.end);
        continue;
      }
      const auto k = static_cast<std::size_t>(*e);
      CHECK(now.begin >= end[k]);
      CHECK(now.begin >= (x.is_copy() ? end[0] : 0));  // a copy begins when the computes before it have ended
      const std::int64_t bytes = x.is_copy() ? p.graph().bytes[index(x.tensor())] : 0;
      const double takes = x.is_compute()                   ? p.graph().time[index(x.operation())]
                           : x.kind() == step_kind::offload ? p.link()->time_out(bytes)
                                                            : p.link()->time_in(bytes);
      CHECK(now.end == now.begin + takes);
      end[k] = now.end;
      busy[k] += now.end - now.begin;
      last = std::max(last, now.end);
    }
    CHECK(t.makespan == last);
    CHECK(t.busy == busy);
  }
}

TEST_CASE("without a link: one compute after the other; illegal schedules are refused") {
  const three s;
  const problem p(s.g, unit_cost{});
  const engine_times t = engine_times_of(p, schedule{{s.make_a, s.make_b, s.make_c, step::free(s.b)}});
  CHECK(t.steps == list{{0, 1}, {1, 2}, {2, 3}, {3, 3}});
  CHECK(t.makespan == 3);
  CHECK_THROWS_WITH_AS((void)engine_times_of(p, schedule{{s.make_a, step::offload(s.a)}}),
                       "only a legal schedule has times: step 1: tensor 0 is copied, but the problem has no link",
                       bad_argument);
}
