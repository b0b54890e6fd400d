// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/copy_planner.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/method/evict.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("every plan is legal and within the budget, whatever the sequence recomputes") {
  std::size_t planned = 0, copied = 0, recomputed = 0, limited = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 40)});
    const double speed = seed % 3 == 0 ? 0.5 : seed % 3 == 1 ? 4 : 1e5;
    for (const double part : {0.9, 0.7, 0.5}) {
      const std::int64_t host = seed % 4 == 0 ? whole.graph().baseline_peak / 2 : problem::unlimited;
      const problem p = test::within(whole, part).with_link({.out = speed, .in = 2 * speed, .latency = 0.25}, host);
      std::vector<std::vector<std::uint32_t>> sequences{computes_of(listed_order(whole))};
      for (const double looser : {part, (1 + part) / 2})
        if (const solution s = evict(test::within(whole, looser)); s.plan) sequences.push_back(computes_of(*s.plan));
      copy_planner planner(p);
      for (const auto& sequence : sequences)
        for (const double exponent : {0.0, 0.5}) {
          CAPTURE(seed);
          CAPTURE(part);
          const double lead = exponent == 0 ? 0 : static_cast<double>(seed % 3);
          const double time = planner.place(sequence, {.bytes_exponent = exponent, .lead = lead}, 3);
          if (!std::isfinite(time)) continue;
          const check_report r = check(p, planner.steps());
          CHECK(r.valid());
          CHECK(r.time == time);
          CHECK(2 * planner.num_stays() >= r.copies);
          CHECK(r.peak_bytes <= p.budget());
          if (const double least = whole.graph().needed_time; seed % 5 == 0 && least > 0)
            CHECK(!std::isfinite(planner.place(sequence, {.bytes_exponent = exponent}, 3, 0.9 * least)));
          ++planned;
          copied += r.copies > 0;
          recomputed += r.recomputes > 0;
          limited += host != problem::unlimited && r.valid() && r.copies > 0;
        }
    }
  }
  CHECK(planned > 5000);
  CHECK(copied > 1000);
  CHECK(recomputed > 500);
  CHECK(limited > 100);
}

TEST_CASE("a chain: what is read last goes first, and comes back behind computes") {
  // Forward 0 … 4 makes tensors 0 … 4 of 10 bytes; backward 5 … 9 reads them in reverse, and makes 1 byte each.
  flat_graph g;
  const std::uint32_t n = 5;
  const auto row = [](index_rows& rows, std::vector<std::uint32_t> values) {
    rows.values.insert(rows.values.end(), values.begin(), values.end());
    rows.end_row();
  };
  for (std::uint32_t i = 0; i < 2 * n; ++i) {
    std::vector<std::uint32_t> reads;
    if (i > 0) reads.push_back(i - 1);
    if (i >= n && 2 * n - 1 - i != i - 1) reads.push_back(2 * n - 1 - i);
    row(g.inputs, reads);
    row(g.outputs, {i});
    g.bytes.push_back(i < n ? 10 : 1);
  }
  g.num_operations = g.num_tensors = 2 * n;
  g.time.assign(2 * n, 1.0);
  g.workspace.assign(2 * n, 0);
  g.once.assign(2 * n, 0);
  g.always_resident.assign(2 * n, 0);
  g.final_outputs = {2 * n - 1};
  const problem whole = problem::from_flat(g);
  CHECK(whole.graph().baseline_peak == 51);
  const problem p = whole.with_budget(41).with_link({.out = 10, .in = 10, .latency = 0});
  copy_planner planner(p);
  const double time = planner.place(computes_of(listed_order(whole)), {}, 2);
  const check_report r = check(p, planner.steps());
  CHECK(r.valid());
  CHECK(r.recomputes == 0);
  CHECK(r.copies == 2);  // tensor 0, out and back
  CHECK(r.time == time);
  CHECK(time == 10);  // a copy takes as long as a compute, and hides behind them
  CHECK(r.host_peak_bytes == 10);
  const schedule& s = planner.steps();
  std::size_t offloads = 0;
  for (const step& k : s.steps)
    if (k.kind() == step_kind::offload) {
      ++offloads;
      CHECK(index(k.tensor()) == 0);
    }
  CHECK(offloads == 1);
}

TEST_CASE("copies alone fit every budget of at least the largest working set") {
  std::size_t tried = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 40)});
    const flat_graph& g = whole.graph();
    bool has_sums = false;
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) has_sums = has_sums || g.producers[t].size() > 1;
    if (has_sums) continue;  // what is not complete cannot be copied
    const std::int64_t least = largest_working_set(whole.with_link({})).bytes;
    CAPTURE(seed);
    const std::vector<std::uint32_t> computes = computes_of(listed_order(whole));
    for (const double lead : {0.0, 2.0}) {
      const problem p = whole.with_budget(least).with_link({});
      copy_planner planner(p);
      CHECK(std::isfinite(planner.place(computes, {.lead = lead}, 3)));
      CHECK(check(p, planner.steps()).valid());
      ++tried;
      if (least == 0) continue;
      const problem less = whole.with_budget(least - 1).with_link({});
      copy_planner failing(less);
      CHECK(!std::isfinite(failing.place(computes, {.lead = lead}, 3)));
    }
  }
  CHECK(tried > 50);
}

TEST_CASE("computes whose results nobody reads are left out") {
  const problem whole = test::random_problem(5, {.operations = 20});
  std::vector<std::uint32_t> computes = computes_of(schedule_computes(whole, computes_of(listed_order(whole))));
  const std::vector<std::uint32_t> tidy = computes;
  std::size_t added = 0;
  for (std::uint32_t o = 0; o < 20; ++o)
    if (whole.graph().needed[o] && rerunnable_operations(whole.graph())[o]) {
      computes.push_back(o);  // once more, at the end
      computes.push_back(o);
      ++added;
    }
  REQUIRE(added > 3);
  const problem p = whole.with_link({});
  copy_planner planner(p);
  CHECK(std::isfinite(planner.place(computes, {}, 1)));
  CHECK(planner.computes().size() >= tidy.size());
  CHECK(planner.computes() == computes_of(schedule_computes(whole, computes)));
}

TEST_CASE("a tensor may come back before its use if a tensor that is used later makes room") {
  // t0 is read by operation 4, t1 and t2 by the last one. Two of them fit beside an operation's own byte.
  flat_graph g;
  const auto row = [](index_rows& rows, std::vector<std::uint32_t> values) {
    rows.values.insert(rows.values.end(), values.begin(), values.end());
    rows.end_row();
  };
  const std::vector<std::vector<std::uint32_t>> reads{{}, {}, {}, {2}, {3}, {0, 4}, {1, 5}};
  for (std::uint32_t i = 0; i < reads.size(); ++i) {
    row(g.inputs, reads[i]);
    row(g.outputs, {i});
    g.bytes.push_back(i < 2 ? 10 : 1);
  }
  g.num_operations = g.num_tensors = static_cast<std::uint32_t>(reads.size());
  g.time = {1, 1, 10, 4, 1, 1, 20};
  g.workspace = {0, 0, 10, 0, 0, 0, 0};
  g.once.assign(reads.size(), 0);
  g.always_resident.assign(reads.size(), 0);
  g.final_outputs = {6};
  const problem whole = problem::from_flat(g);
  const problem p = whole.with_budget(22).with_link({.out = 10, .in = 2.5, .latency = 0});
  copy_planner planner(p);
  const double plain = planner.place(computes_of(listed_order(whole)), {}, 3);
  CHECK(check(p, planner.steps()).valid());
  CHECK(plain >= whole.graph().needed_time);
  const double early = planner.place(computes_of(listed_order(whole)), {.lead = 2}, 3);
  CHECK(check(p, planner.steps()).valid());
  CHECK(early <= plain);
}
