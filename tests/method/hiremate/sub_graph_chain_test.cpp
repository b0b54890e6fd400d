// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/impl/sub_graph_chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stop_token>
#include <vector>

#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/exhaustive.hpp"
#include "support/random_sub_graphs.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

/// A chain of `layers` layers: layer i reads x(i − 1) and makes x(i) and a tensor that only its backward reads. Its
/// backward reads that, x(i − 1) and the gradient of x(i), and makes the gradient of x(i − 1). The loss is between.
problem tiny_chain(std::uint32_t layers, std::uint64_t seed) {
  const auto size = [&](std::uint32_t i) { return static_cast<std::int64_t>(1 + (seed >> (i % 16U)) % 5); };
  flat_graph g;
  const auto add = [&](std::vector<std::uint32_t> reads, std::vector<std::uint32_t> writes, double time) {
    g.inputs.values.insert(g.inputs.values.end(), reads.begin(), reads.end());
    g.inputs.end_row();
    g.outputs.values.insert(g.outputs.values.end(), writes.begin(), writes.end());
    g.outputs.end_row();
    g.time.push_back(time);
    ++g.num_operations;
  };
  // Tensors: x(0) … x(L), kept(1) … kept(L), gradients of x(0) … x(L).
  const std::uint32_t x = 0, kept = layers + 1, gradient = kept + layers;
  g.num_tensors = gradient + layers + 1;
  for (std::uint32_t t = 0; t < g.num_tensors; ++t) g.bytes.push_back(size(t));
  for (std::uint32_t i = 1; i <= layers; ++i)
    add({x + i - 1}, {x + i, kept + i - 1}, static_cast<double>(1 + (seed >> i) % 4));
  add({x + layers}, {gradient + layers}, 1);
  for (std::uint32_t i = layers; i >= 1; --i)
    add({x + i - 1, kept + i - 1, gradient + i}, {gradient + i - 1}, static_cast<double>(1 + (seed >> (i + 3)) % 4));
  g.final_outputs = {gradient};
  return problem::from_flat(std::move(g));
}

/// The part of layers 2 … L − 1.
sub_graph inner_layers(const problem& p, std::uint32_t layers) {
  std::vector<std::uint32_t> order(p.graph().num_operations), part;
  for (std::uint32_t o = 0; o < order.size(); ++o) order[o] = o;
  for (std::uint32_t i = 2; i < layers; ++i) {
    part.push_back(i - 1);
    part.push_back(2 * layers + 1 - i);
  }
  sub_graph_extractor extract(p.graph(), order, layers + 1);
  return extract(std::move(part));
}

/// The time of the fastest way within the budgets.
double fastest(const sub_graph_runs& runs, const std::vector<sub_graph_way>& ways, const problem& within,
               std::int64_t save) {
  double least = std::numeric_limits<double>::infinity();
  for (const sub_graph_way& o : ways) {
    if (runs.held_at_turn(o) > save) continue;
    std::vector<std::uint32_t> order;
    for (const std::uint32_t k : o.forward) order.push_back(k);
    order.push_back(runs.num_forward());
    order.push_back(runs.num_forward() + 1);
    for (const std::uint32_t k : o.backward) order.push_back(k < runs.num_forward() ? k : k + 2);
    if (check(within, schedule_computes(within, order)).valid()) least = std::min(least, o.time());
  }
  return least;
}

}  // namespace

TEST_CASE("tiny chains, against exhaustive search: never faster than the optimum, and mostly as fast") {
  std::size_t optima = 0, met = 0, layers_seen = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::uint32_t layers = 4 + static_cast<std::uint32_t>(seed % 3);
    const problem p = tiny_chain(layers, seed * 2654435761U);
    const sub_graph part = inner_layers(p, layers);
    const sub_graph_runs runs(part);
    run_control run;
    run_clock clock(run);
    sub_graph_chain_search search;
    search.slots = 1000;
    search.turns = 40;
    search.max_ways = 100;
    const sub_graph_chain_result r = find_chain_ways(part, {}, search, clock);
    INFO("seed ", seed, ", ", layers, " layers");
    REQUIRE(r.whole);
    REQUIRE(r.tables > 0);
    layers_seen = std::max(layers_seen, r.stages);
    const std::int64_t all = runs.held_at_turn(runs.keep_everything());
    for (std::int64_t save = all; save >= 0; save -= std::max<std::int64_t>(1, all / 4)) {
      // A peak budget that does not bind, and one between.
      for (const std::int64_t peak : {p.graph().baseline_peak, p.graph().baseline_peak * 2 / 3}) {
        const problem within = runs.problem_within(peak, std::min(save, peak));
        const double least = test::least_time(within), ours = fastest(runs, r.ways, within, save);
        REQUIRE(ours >= least * (1 - 1e-12));
        if (least == std::numeric_limits<double>::infinity()) continue;
        ++optima;
        met += ours <= least * (1 + 1e-12);
      }
    }
  }
  MESSAGE(met, " of ", optima, " optima");
  CHECK(layers_seen >= 4);
  CHECK(optima > 200);
  CHECK(met * 2 > optima);  // others need schedules that are not memory-persistent
}

TEST_CASE("options are as they are measured; those of segments are used; a stop ends the search") {
  std::size_t divided = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const std::uint32_t layers = 6;
    const problem p = tiny_chain(layers, seed * 40503U);
    const sub_graph part = inner_layers(p, layers);
    const sub_graph_runs runs(part);
    // Each layer is a segment, with the way that keeps nothing.
    std::vector<sub_graph_segment> segments;
    const auto inner = static_cast<std::uint32_t>(part.operations.size() / 2);
    for (std::uint32_t i = 0; i < inner; ++i) {
      sub_graph_segment s;
      s.forward_end = i + 1;
      s.backward = {2 * inner - 1 - i};
      s.ways.push_back({{i}, {i, 2 * inner - 1 - i}});
      segments.push_back(std::move(s));
    }
    run_control run;
    run_clock clock(run);
    const sub_graph_chain_result r = find_chain_ways(part, segments, {}, clock);
    INFO("seed ", seed);
    CHECK(r.unmatched == 0);
    CHECK(r.stages >= inner);
    REQUIRE(!r.ways.empty());
    CHECK(r.ways.size() <= sub_graph_chain_search{}.max_ways);
    for (const sub_graph_way& o : r.ways) {
      const auto measured = runs.measure(o.forward, o.backward);
      REQUIRE(measured);
      CHECK(measured->time() == o.time());
      CHECK(measured->saved_bytes == o.saved_bytes);
    }
    divided += r.ways.size() > 1;
    // Segments with other backward operations than the stages have are not used, and are counted.
    std::swap(segments.front().backward, segments.back().backward);
    CHECK(find_chain_ways(part, segments, {}, clock).unmatched > 0);
    std::stop_source source;
    source.request_stop();
    run.stop = source.get_token();
    run_clock cancelled(run);
    const sub_graph_chain_result stopped = find_chain_ways(part, segments, {}, cancelled);
    CHECK(!stopped.whole);
    CHECK(stopped.ways.size() == 1);
  }
  CHECK(divided > 60);
}

TEST_CASE("random parts: legal options, one of which keeps everything") {
  std::size_t parts = 0, options = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    for (const sub_graph& part : d.sub_graphs()) {
      const sub_graph_runs runs(part);
      run_control run;
      run_clock clock(run);
      const sub_graph_chain_result r = find_chain_ways(part, {}, {}, clock);
      REQUIRE(!r.ways.empty());
      const double all = runs.keep_everything().time();
      REQUIRE(std::any_of(r.ways.begin(), r.ways.end(),
                          [&](const sub_graph_way& o) { return o.time() <= all * (1 + 1e-12); }));
      ++parts;
      options += r.ways.size();
    }
  }
  CHECK(parts > 50);
  CHECK(options > parts);
}
