// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/offload.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "remat/bound/turnaround.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/method/detail/evict_with_copies.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "support/copy_schedules.hpp"
#include "support/exhaustive.hpp"
#include "support/exhaustive_copies.hpp"
#include "support/held_to_the_end.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// A random problem with a budget below its baseline's peak, a link from very slow to very fast, and sometimes a limit
/// on the host.
problem random_case(std::uint64_t seed, std::uint32_t most_operations) {
  test::random_graph_options options = test::kind_of_graph(seed);
  options.operations = 3 + static_cast<std::uint32_t>(seed % (most_operations - 2));
  std::mt19937_64 engine(seed * 77 + 5);
  for (std::uint64_t i = 0;; ++i) {
    const problem bare = test::random_problem(seed + (i << 32), options);
    host_link link = test::random_link(bare, engine());
    if (engine() % 8 == 0) link.out *= 1e-6;  // next to no link
    if (engine() % 8 == 0) link = {.out = link.out * 1e6, .in = link.in * 1e6, .latency = link.latency};
    const std::int64_t host = engine() % 3 == 0 ? static_cast<std::int64_t>(engine() % 20) : problem::unlimited;
    const problem p = bare.with_link(link, host);
    const std::int64_t peak = bare.graph().baseline_peak, least = largest_working_set(p).bytes;
    if (peak > least || i == 20)
      return p.with_budget(
          peak > least ? least + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(peak - least)) : peak);
  }
}

TEST_CASE("the bound never exceeds the least time of all schedules with copies") {
  const bool long_run = test::long_run();
  int compared = 0, infeasible = 0, proven = 0, given_up = 0, with_copies = 0, tight = 0;
  std::vector<double> plain_gaps, gaps, whole_gaps;
  for (std::uint64_t seed = 0; seed < (long_run ? 25000U : 2500U); ++seed) {
    const problem p = random_case(seed, long_run ? 6 : 4);
    INFO("seed ", seed);
    const double without = test::least_time(p.without_link());
    const test::fastest_result fastest = test::fastest_with_copies(p, long_run ? 100'000 : 20'000, without);
    if (!fastest.complete) {
      ++given_up;
      continue;
    }
    ++compared;
    if (std::isfinite(fastest.time)) {
      const check_report report = check(p, fastest.plan.steps);
      REQUIRE(report.valid());
      REQUIRE(report.time == doctest::Approx(fastest.time).epsilon(1e-12));
      with_copies += report.copies > 0;
    } else {
      ++infeasible;
    }
    REQUIRE(fastest.time <= without);
    const offload_bound_result plain = offload_bound(p, {.moments = 0, .releases = 1});
    const offload_bound_result all = offload_bound(p, {.moments = 0, .flows = 200, .releases = 8});
    const offload_bound_result few = offload_bound(p, {.moments = 2, .flows = 3});
    const offload_bound_result whole =
        offload_bound(p, {.moments = 0, .flows = 200, .releases = 8, .branch_nodes = 500});
    for (const offload_bound_result& r : {plain, all, few, whole}) {
      REQUIRE(r.lower_bound <= fastest.time * (1 + 1e-12));
      REQUIRE((!r.infeasible || std::isinf(fastest.time)));
      REQUIRE(r.infeasible == std::isinf(r.lower_bound));
      REQUIRE(r.lower_bound >= p.graph().needed_time);
    }
    proven += plain.infeasible;
    REQUIRE(all.lower_bound >= plain.lower_bound * (1 - 1e-5));  // both searches have their limits
    REQUIRE(whole.lower_bound >= all.lower_bound * (1 - 1e-12));
    if (whole.choice_time > 0) REQUIRE(whole.choice_time >= whole.lower_bound * (1 - 1e-9));
    if (std::isfinite(fastest.time) && fastest.time > p.graph().needed_time * (1 + 1e-9)) {
      plain_gaps.push_back(fastest.time / plain.lower_bound - 1);
      gaps.push_back(fastest.time / all.lower_bound - 1);
      whole_gaps.push_back(fastest.time / whole.lower_bound - 1);
      tight += whole_gaps.back() < 1e-5;
    }
  }
  MESSAGE(compared, " cases, ", infeasible, " infeasible (", proven, " proven), ", given_up, " given up, ", with_copies,
          " best with copies; median gap of ", gaps.size(),
          " that take longer than one run each: ", 100 * median(plain_gaps), " % in the plain form, ",
          100 * median(gaps), " % with releases, ", 100 * median(whole_gaps), " % with whole tensors, ", tight,
          " tight");
  CHECK(proven > 0);
  CHECK(compared > 8 * given_up);
  CHECK(with_copies > compared / 20);
  CHECK(median(gaps) < median(plain_gaps));
  CHECK(median(whole_gaps) < median(gaps) / 4);
  CHECK(tight > compared / 8);
}

TEST_CASE("no random schedule with copies is faster than the search says, so the search leaves nothing out") {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const problem bare = test::random_problem(seed, {.operations = 4});
    const problem free = bare.with_link(test::random_link(bare, seed));
    const test::random_copy_schedule random(free, seed);
    const check_report report = check(free, random.plan.steps);
    REQUIRE(report.valid());
    const problem p = free.with_budget(report.peak_bytes).with_link(*free.link(), report.host_peak_bytes);
    const test::fastest_result fastest = test::fastest_with_copies(p, 20'000, report.time * (1 + 1e-12));
    if (!fastest.complete) continue;
    ++compared;
    REQUIRE(fastest.time <= report.time * (1 + 1e-12));
    REQUIRE(offload_bound(p, {.moments = 0}).lower_bound <= report.time * (1 + 1e-12));
  }
  CHECK(compared > 500);
}

// f: → a; g: a → b; k: b → c with a workspace; l: a, c → d. While k runs, a is on the host or made again.
problem small_step(const host_link& link) {
  training_graph g;
  const tensor_id x = g.add_tensor({"x", 1, tensor_kind::input});
  const tensor_id a = g.add_tensor({"a", 4}), b = g.add_tensor({"b", 4}), c = g.add_tensor({"c", 4});
  const tensor_id d = g.add_tensor({"d", 1});
  g.add_operation({.inputs = {x}, .outputs = {a}, .seconds = 10});
  g.add_operation({.inputs = {a}, .outputs = {b}, .seconds = 1});
  g.add_operation({.inputs = {b}, .outputs = {c}, .seconds = 1, .workspace = 1});
  g.add_operation({.inputs = {a, c}, .outputs = {d}, .seconds = 2});
  g.add_final_output(d);
  return problem(g, measured_cost{}, 9).with_link(link);
}

TEST_CASE("a moment that cannot win is no bound before all of its cases are bounded") {
  // The least time is 4. Some cases of a moment alone are bounded by more.
  for (const std::int64_t third : {1, 600, 2'000, 600'000'600}) {
    const problem p = test::held_to_the_end(third, 1'000'000'000 + std::max<std::int64_t>(1'000'000'000, third));
    const offload_bound_result r = offload_bound(p);
    CHECK_FALSE(r.infeasible);
    CHECK(r.lower_bound <= test::fastest_with_copies(p).time);
    CHECK(r.lower_bound <= 4);
  }
  // Here few bytes have to go.
  const problem unet = read_training_step(REMAT_TEST_DATA "/graphs/unet5-b16-256.json").instance.with_link({});
  for (const std::int64_t less : {1, 100, 200, 1'000, 10'000}) {
    const problem p = unet.with_budget(unet.graph().baseline_peak - less);
    const solution s = evict_with_copies(p);
    REQUIRE(s.has_schedule());
    CHECK(s.message.find("defect") == std::string::npos);
    CHECK(offload_bound(p).lower_bound <= with_rounding(s.time));
  }
}

TEST_CASE("by hand: one tensor, on the host or made again") {
  const problem p = small_step({.out = 1, .in = 1, .latency = 0});
  // 10 for f; its copy out for 4, beside g; k for 1; the copy back for 4; l for 2.
  CHECK(test::fastest_with_copies(p).time == 21);
  // a = 1, and b such that the copy back, 4·(1 − b), costs as much as another run of f, 10·b: b = 2/7. Then 1 + 11 +
  // 2·b + 10·b.
  const offload_bound_result plain = offload_bound(p, {.releases = 1});
  CHECK(plain.lower_bound == doctest::Approx(12 + 24.0 / 7).epsilon(1e-6));
  CHECK(plain.before == doctest::Approx(1));
  CHECK(plain.after == doctest::Approx(2.0 / 7).epsilon(1e-5));
  CHECK(plain.delay == doctest::Approx(plain.lower_bound - 14));
  CHECK(plain.moment == op_id{2});
  CHECK(plain.working_set == 9);
  // The whole tensor on the host: 1 + max(11, 4) + max(2, 4).
  CHECK(plain.choice_time == 16);
  CHECK(plain.host_bytes == 4);
  CHECK(plain.offloaded == std::vector{tensor_id{1}});
  CHECK(plain.saved.empty());
  CHECK(plain.again.empty());
  CHECK(offload_bound(p, {.releases = 4}).lower_bound > 18);
  // The tensor is whole: on the host, max(11, 10 + 4) + 1 + (4 + 2); or made again, 24.
  const offload_bound_result whole = offload_bound(p, {.releases = 4, .branch_nodes = 10});
  CHECK(whole.lower_bound == doctest::Approx(21).epsilon(1e-6));
  CHECK(whole.choice_time == 21);
  CHECK(whole.offloaded == std::vector{tensor_id{1}});
  // A limit on the host that a exceeds: f runs again.
  const problem q = p.with_link(*p.link(), 3);
  CHECK(test::fastest_with_copies(q).time == 24);
  CHECK(offload_bound(q, {.branch_nodes = 10}).lower_bound == doctest::Approx(24).epsilon(1e-6));
  CHECK(test::fastest_with_copies(p.with_link(*p.link(), 4)).time == 21);
}

TEST_CASE("a slow link leaves the turnaround bound, and a fast one the trivial bound") {
  int above = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed ", seed);
    // A partial sum cannot be copied, so without tensors of several producers.
    const problem bare =
        test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 12), .accumulate = 0});
    const flat_graph& g = bare.graph();
    const std::int64_t least = largest_working_set(bare).bytes;
    const problem p = bare.with_budget(least + (g.baseline_peak - least) * static_cast<std::int64_t>(seed % 7) / 7);
    const turnaround_result alone = turnaround_bound(p, {.moments = 0});
    for (const std::uint32_t releases : {1U, 4U}) {
      const offload_bound_options options{.moments = 0, .flows = 200, .releases = releases};
      const offload_bound_result slow = offload_bound(p.with_link({.out = 1e-9, .in = 1e-9, .latency = 0}), options);
      if (!alone.infeasible) {  // where something must not run twice, a copy that takes for ever is a schedule
        REQUIRE(slow.lower_bound >= alone.lower_bound * (1 - 1e-6));
        above += alone.recomputation > 0;
      }
      const offload_bound_result fast = offload_bound(p.with_link({.out = 1e15, .in = 1e15, .latency = 0}), options);
      REQUIRE(fast.lower_bound <= g.needed_time * (1 + 1e-9));
      // A host without room: no copies.
      const offload_bound_result none = offload_bound(p.with_link({.out = 1, .in = 1, .latency = 0}, 0), options);
      if (!alone.infeasible) REQUIRE(none.lower_bound >= alone.lower_bound * (1 - 1e-6));
    }
  }
  CHECK(above > 200);
}

TEST_CASE("more memory, a faster link and a larger host never raise the bound") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed ", seed);
    const problem bare = test::random_problem(seed, {.operations = 14, .backward = 100});
    const flat_graph& g = bare.graph();
    const std::int64_t least = largest_working_set(bare.with_link({})).bytes;
    const host_link link = test::random_link(bare, seed);
    const offload_bound_options options{.moments = 0, .flows = 200};
    double last = std::numeric_limits<double>::infinity();
    for (int part = 0; part <= 5; ++part) {
      const problem p = bare.with_budget(least + (g.baseline_peak - least) * part / 5).with_link(link);
      const double value = offload_bound(p, options).lower_bound;
      REQUIRE(value <= last * (1 + 1e-5));
      last = value;
    }
    CHECK(last == g.needed_time);
    const problem tight = bare.with_budget((least + g.baseline_peak) / 2);
    last = std::numeric_limits<double>::infinity();
    for (double speed = 1e-3; speed < 1e3; speed *= 8) {
      const host_link faster{.out = link.out * speed, .in = link.in * speed, .latency = link.latency};
      const double value = offload_bound(tight.with_link(faster), options).lower_bound;
      REQUIRE(value <= last * (1 + 1e-5));
      last = value;
    }
    last = std::numeric_limits<double>::infinity();
    for (std::int64_t host = 0; host < 40; host += 8) {
      const double value = offload_bound(tight.with_link(link, host), options).lower_bound;
      REQUIRE(value <= last * (1 + 1e-5));
      last = value;
    }
  }
}

TEST_CASE("the result says where its bound comes from") {
  int choices = 0, hosts = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed ", seed);
    const problem bare = test::random_problem(seed, {.operations = 20, .once = 3, .backward = 100});
    const flat_graph& g = bare.graph();
    const std::int64_t host = seed % 4 == 0 ? 20 : problem::unlimited;
    const problem p = bare.with_budget(g.baseline_peak * 7 / 10).with_link(test::random_link(bare, seed), host);
    const std::uint32_t nodes = seed % 3 == 0 ? 30 : 0;
    const offload_bound_result r = offload_bound(p, {.branch_nodes = nodes});
    if (r.infeasible || r.delay == 0) continue;
    REQUIRE(r.delay == r.lower_bound - g.needed_time);
    REQUIRE((r.before >= 0 && r.before <= 1 && r.after >= 0 && r.after <= 1));
    REQUIRE(r.multiplier >= 0);
    REQUIRE((host != problem::unlimited || r.host_multiplier == 0));
    const offload_bound_result bare_result = offload_bound(p, {.branch_nodes = nodes, .want_choice = false});
    CHECK(bare_result.lower_bound == r.lower_bound);
    CHECK(bare_result.choice_time == 0);
    if (r.choice_time == 0) continue;
    ++choices;
    REQUIRE(r.choice_time >= r.lower_bound * (1 - 1e-9));
    REQUIRE(r.device_bytes + r.working_set <= p.budget());
    REQUIRE(r.host_bytes <= host);
    std::int64_t device = 0, on_host = 0;
    for (const tensor_id t : r.saved) device += g.bytes[index(t)];
    for (const tensor_id t : r.offloaded) on_host += g.bytes[index(t)];
    CHECK(device == r.device_bytes);
    CHECK(on_host == r.host_bytes);
    double again = 0;
    for (const op_id o : r.again) {
      again += g.time[index(o)];
      CHECK(!g.once[index(o)]);
    }
    CHECK(again == doctest::Approx(r.again_time));
    hosts += !r.offloaded.empty();
  }
  CHECK(choices > 100);
  CHECK(hosts > 30);
}

TEST_CASE("odd input: errors in one sentence, and graphs without anything to hold") {
  const problem p = small_step({});
  const auto message = [](const auto& call) {
    try {
      call();
    } catch (const bad_argument& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(message([&] { (void)offload_bound(p.without_link()); }) ==
        "offload_bound: the problem has no link; expected one from problem::with_link");
  CHECK(message([&] { (void)offload_bound(p, {.flows = 0}); }) == "offload_bound: flows is 0; expected at least 1");
  CHECK(message([&] { (void)offload_bound(p, {.releases = 0}); }) == "offload_bound: releases is 0; expected 1 to 8");
  CHECK(message([&] { (void)offload_bound(p, {.releases = 9}); }) == "offload_bound: releases is 9; expected 1 to 8");
  CHECK(offload_bound(p.with_budget(problem::unlimited)).lower_bound == 14);
  const offload_bound_result none = offload_bound(p.with_budget(3));
  CHECK(none.infeasible);
  CHECK(std::isinf(none.lower_bound));
  CHECK(none.least_memory.message().find("operation ") == 0);
  const problem empty(training_graph{}, unit_cost{}, 0);
  CHECK(offload_bound(empty.with_link({})).lower_bound == 0);

  // Times of 0, and speeds and sizes at the ends of their ranges.
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const problem idle = test::random_problem(seed, {.operations = 8, .most_time = 0});
    const problem q = idle.with_budget(largest_working_set(idle).bytes);
    for (const double speed : {1e-200, 1.0, 1e200})
      for (const double latency : {0.0, 1e-300, 1e200}) {
        const offload_bound_result r = offload_bound(q.with_link({.out = speed, .in = speed, .latency = latency}));
        CHECK(r.lower_bound >= 0);
        CHECK(!std::isnan(r.lower_bound));
      }
  }
}

TEST_CASE("a stop is obeyed and leaves a valid bound") {
  const problem bare = test::random_problem(3, {.operations = 3000, .most_inputs = 20, .once = 5, .backward = 100});
  const problem p = bare.with_budget(bare.graph().baseline_peak / 2).with_link(test::random_link(bare, 3));
  std::stop_source source;
  source.request_stop();
  offload_bound_options options;
  options.run.stop = source.get_token();
  const offload_bound_result stopped = offload_bound(p, options);
  CHECK(stopped.lower_bound == bare.graph().needed_time);
  CHECK(stopped.moments_tried == 0);

  offload_bound_options few;
  few.run.work_limit = 10;
  const offload_bound_result worked = offload_bound(p, few);
  CHECK(worked.flows <= 10 / work_of::flow + 1);
  CHECK(worked.lower_bound >= bare.graph().needed_time);

  for (const int milliseconds : {0, 5, 50}) {
    offload_bound_options limited{.moments = 0, .releases = 8, .branch_nodes = 100'000};
    limited.run.time_limit = std::chrono::milliseconds(milliseconds);
    const double start = test::processor_seconds();
    CHECK(offload_bound(p, limited).lower_bound >= bare.graph().needed_time);
    CHECK(test::processor_seconds() - start < milliseconds * 1e-3 + 0.5);
  }
}

TEST_CASE("equal input gives equal output") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const problem bare = test::random_problem(seed, {.operations = 60, .once = 0, .backward = 100});
    const problem p = bare.with_budget(bare.graph().baseline_peak * 8 / 10).with_link(test::random_link(bare, seed));
    const offload_bound_result a = offload_bound(p, {.branch_nodes = 20}), b = offload_bound(p, {.branch_nodes = 20});
    CHECK(a.lower_bound == b.lower_bound);
    CHECK(a.saved == b.saved);
    CHECK(a.offloaded == b.offloaded);
    CHECK(a.flows == b.flows);
  }
}

}  // namespace
