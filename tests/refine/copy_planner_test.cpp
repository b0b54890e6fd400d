// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/copy_planner.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "remat/method/evict.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/engine_times.hpp"
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
          const std::optional<schedule> plan = planner.plan(sequence, {exponent, {}}, 3);
          if (!plan) continue;
          const check_report r = check(p, *plan);
          CHECK(r.valid());
          CHECK(r.peak_bytes <= p.budget());
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
  const std::optional<schedule> plan = planner.plan(computes_of(listed_order(whole)), {}, 2);
  REQUIRE(plan);
  const check_report r = check(p, *plan);
  CHECK(r.valid());
  CHECK(r.recomputes == 0);
  CHECK(r.copies == 2);  // tensor 0, out and back
  CHECK(r.time == 10);   // a copy takes as long as a compute, and hides behind them
  CHECK(r.host_peak_bytes == 10);
  const schedule& s = *plan;
  std::size_t offloads = 0;
  for (const step& k : s.steps)
    if (k.kind() == step_kind::offload) {
      ++offloads;
      CHECK(index(k.tensor()) == 0);
    }
  CHECK(offloads == 1);
}
