// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/lifetime.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/copy_schedules.hpp"
#include "support/processor_time.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

using namespace remat;

namespace {

using matrix = std::vector<std::vector<std::uint8_t>>;

/// Which launches must be in order, straight from the definition: those that touch a common allocation, or a common
/// byte of the arena, where one of them writes.
matrix conflicts(const lifetimes& lives, const stream_assignment& a, const std::vector<std::int64_t>& offsets) {
  struct touch {
    std::uint32_t allocation;
    bool writes;
  };
  std::vector<std::vector<touch>> touched(a.size());
  for (std::size_t v = 0; v < a.size(); ++v) {
    for (const std::uint32_t x : lives.inputs[a.steps[v]]) touched[v].push_back({x, false});
    for (const std::uint32_t x : lives.outputs[a.steps[v]]) touched[v].push_back({x, true});
    if (const std::uint32_t x = lives.workspace[a.steps[v]]; x != lifetimes::no_allocation)
      touched[v].push_back({x, true});
  }
  const auto meet = [&](const touch& x, const touch& y) {
    if (!x.writes && !y.writes) return false;
    if (x.allocation == y.allocation) return true;
    if (offsets.empty()) return false;
    const std::int64_t bx = offsets[x.allocation], by = offsets[y.allocation];
    return std::max(bx, by) <
           std::min(bx + lives.allocations[x.allocation].bytes, by + lives.allocations[y.allocation].bytes);
  };
  matrix out(a.size(), std::vector<std::uint8_t>(a.size(), 0));
  for (std::size_t v = 0; v < a.size(); ++v)
    for (std::size_t u = 0; u < v; ++u)
      for (const touch& x : touched[u])
        for (const touch& y : touched[v]) out[u][v] |= meet(x, y);
  return out;
}

/// From which launch one gets to which; edges go from lower to higher numbers.
matrix closure(matrix m) {
  for (std::size_t v = 0; v < m.size(); ++v)
    for (std::size_t u = v; u-- > 0;)
      if (m[u][v])
        for (std::size_t w = 0; w < u; ++w) m[w][v] |= m[w][u];
  return m;
}

/// The order that the streams keep: launch after launch in each, and the waits.
matrix kept(const stream_assignment& a) {
  matrix out(a.size(), std::vector<std::uint8_t>(a.size(), 0));
  std::vector<std::size_t> last(a.streams, a.size());
  for (std::size_t v = 0; v < a.size(); ++v) {
    if (last[a.stream[v]] != a.size()) out[last[a.stream[v]]][v] = 1;
    last[a.stream[v]] = v;
    for (const std::uint32_t u : a.waits[v]) out[u][v] = 1;
  }
  return out;
}

}  // namespace

TEST_CASE("streams keep exactly the order that data and addresses demand, with no wait too many") {
  std::size_t waits = 0, by_address = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    test::random_graph_options o;
    o.operations = 3 + static_cast<std::uint32_t>(seed % 16);
    const problem p = test::random_problem(seed, o);
    const schedule plan = test::random_schedule(p, seed).plan;
    if (!check(p, plan).valid()) continue;
    const lifetimes lives = lifetimes_of(p, plan);
    const test::placed where = test::random_layout(lives, 1, seed);
    for (const bool addresses : {false, true})
      for (std::uint32_t k = 1; k <= 4; ++k) {
        const std::vector<std::int64_t> offsets = addresses ? where.offsets : std::vector<std::int64_t>();
        const stream_assignment a = assign_streams(p, lives, plan.steps, {k, offsets});
        const matrix must = conflicts(lives, a, offsets), must_all = closure(must);
        const matrix does = kept(a), does_all = closure(does);
        std::vector<double> path(a.size(), 0);
        std::vector<double> stream_free(k, 0);
        double makespan = 0, longest = 0;
        REQUIRE(a.waits.size() == a.size());
        std::vector<std::uint8_t> awaited(a.size(), 0);
        for (std::size_t v = 0; v < a.size(); ++v) {
          const auto time = [&](std::size_t u) { return p.graph().time[index(plan.steps[a.steps[u]].operation())]; };
          double ready = stream_free[a.stream[v]];
          for (std::size_t u = 0; u < v; ++u) {
            if (!must_all[u][v]) continue;
            if (!does_all[u][v]) FAIL("seed ", seed, ": launch ", v, " does not wait for ", u);
            ready = std::max(ready, a.start[u] + time(u));
            path[v] = std::max(path[v], path[u]);
          }
          CHECK(a.start[v] == ready);
          stream_free[a.stream[v]] = ready + time(v);
          path[v] += time(v);
          makespan = std::max(makespan, stream_free[a.stream[v]]);
          longest = std::max(longest, path[v]);
          for (const std::uint32_t u : a.waits[v]) {
            awaited[u] = 1;
            ++waits;
            CHECK(a.stream[u] != a.stream[v]);
            CHECK(must[u][v]);
            // Without this wait, nothing else would keep the order.
            bool other = false;
            for (std::size_t w = u + 1; w < v; ++w) other = other || (does_all[u][w] && does_all[w][v]);
            if (other) FAIL("seed ", seed, ": the wait of ", v, " for ", u, " follows from others");
          }
        }
        CHECK(a.makespan == makespan);
        CHECK(a.critical_path == longest);
        CHECK(a.awaited == awaited);
        CHECK(a.makespan >= a.critical_path);
        CHECK(a.makespan * k >= a.work);
        CHECK(a.makespan <= a.work);
        if (k == 1) CHECK(a.waits.values.empty());
        if (k == 1) CHECK(a.makespan == a.work);
        if (addresses) {
          const stream_assignment free_of_addresses = assign_streams(p, lives, plan.steps, {k, {}});
          by_address += free_of_addresses.critical_path < a.critical_path;
        }
      }
  }
  CHECK(waits > 2000);
  CHECK(by_address > 100);
}

TEST_CASE("branches overlap, a chain stays on one stream") {
  training_graph g;
  const tensor_id x = g.add_tensor({"x", 8}), y = g.add_tensor({"y", 8}), z = g.add_tensor({"z", 8});
  g.add_operation({.outputs = {x}, .seconds = 1});
  g.add_operation({.inputs = {x}, .outputs = {y}, .seconds = 2});
  g.add_operation({.inputs = {x}, .outputs = {z}, .seconds = 3});
  g.add_operation({.inputs = {y, z}, .seconds = 1});
  const problem p(g, measured_cost{});
  schedule plan;
  for (std::uint32_t o = 0; o < 4; ++o) plan.compute(static_cast<op_id>(o));
  const stream_assignment one = assign_streams(p, plan);
  CHECK(one.makespan == 7);
  CHECK(one.critical_path == 5);
  const stream_assignment two = assign_streams(p, plan, {.streams = 2});
  CHECK(two.makespan == 5);
  CHECK(two.start == std::vector<double>{0, 1, 1, 4});
  CHECK(two.stream == std::vector<std::uint32_t>{0, 0, 1, 1});
  CHECK(two.waits.values == std::vector<std::uint32_t>{0, 1});
  // With y and z at the same address that z gets only when y is gone, the branches cannot overlap.
  schedule reuse;
  reuse.compute(op_id{0});
  reuse.compute(op_id{2});
  reuse.compute(op_id{1});
  reuse.compute(op_id{3});
  const std::vector<std::int64_t> apart{0, 8, 16};
  CHECK(assign_streams(p, reuse, {2, apart}).makespan == 5);

  training_graph line;
  std::vector<tensor_id> t;
  for (int i = 0; i < 10; ++i) {
    t.push_back(line.add_tensor({"", 8}));
    line.add_operation({.inputs = i == 0 ? std::vector<tensor_id>{} : std::vector{t[t.size() - 2]},
                        .outputs = {t.back()},
                        .seconds = 1});
  }
  line.add_final_output(t.back());
  const problem q(line, measured_cost{});
  schedule all;
  for (std::uint32_t o = 0; o < 10; ++o) all.compute(static_cast<op_id>(o));
  const stream_assignment chain = assign_streams(q, all, {.streams = 3});
  CHECK(chain.makespan == 10);
  CHECK(chain.waits.values.empty());
}

TEST_CASE("launches whose shares exceed the device do not overlap, and none begins later than it must") {
  std::size_t delayed = 0, overlaps = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const problem p = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 16)});
    const schedule plan = test::random_schedule(p, seed).plan;
    if (!check(p, plan).valid()) continue;
    detail::random_source random(seed);
    std::vector<double> shares;
    for (std::uint32_t o = 0; o < p.graph().num_operations; ++o)
      shares.push_back(static_cast<double>(random.below(11)) / 10);
    for (std::uint32_t k = 1; k <= 4; ++k) {
      const stream_assignment a = assign_streams(p, plan, {.streams = k, .shares = shares});
      const stream_assignment unlimited = assign_streams(p, plan, {.streams = k});
      const matrix must = closure(conflicts(lifetimes_of(p, plan), a, {})), order = closure(kept(a));
      const auto op = [&](std::size_t v) { return index(plan.steps[a.steps[v]].operation()); };
      const auto end = [&](std::size_t v) { return a.start[v] + p.graph().time[op(v)]; };
      // True if launch v could run from `begin` on, beside the launches before it.
      const auto fits = [&](std::size_t v, double begin) {
        const double until = begin + p.graph().time[op(v)];
        std::vector<double> moments{begin};
        for (std::size_t u = 0; u < v; ++u)
          if (a.start[u] > begin && a.start[u] < until) moments.push_back(a.start[u]);
        return std::all_of(moments.begin(), moments.end(), [&](double m) {
          double sum = shares[op(v)];
          for (std::size_t u = 0; u < v; ++u)
            if (a.start[u] <= m && m < end(u)) sum += shares[op(u)];
          return sum <= 1 + 1e-6 || shares[op(v)] == 0 || begin == until;
        });
      };
      double area = 0, makespan = 0;
      for (std::size_t v = 0; v < a.size(); ++v) {
        double ready = 0;
        for (std::size_t u = 0; u < v; ++u) {
          if (must[u][v]) REQUIRE(order[u][v]);
          if (must[u][v] || a.stream[u] == a.stream[v]) ready = std::max(ready, end(u));
          overlaps += a.start[v] < end(u) && a.start[u] < end(v);
        }
        CHECK(a.start[v] >= ready);
        CHECK(fits(v, a.start[v]));
        // It could have begun earlier only when it is ready, or when a launch before it ends.
        if (a.start[v] > ready) {
          ++delayed;
          CHECK_FALSE(fits(v, ready));
          for (std::size_t u = 0; u < v; ++u)
            if (end(u) > ready && end(u) < a.start[v]) CHECK_FALSE(fits(v, end(u)));
        }
        area += p.graph().time[op(v)] * shares[op(v)];
        makespan = std::max(makespan, end(v));
      }
      CHECK(a.makespan == makespan);
      CHECK(a.makespan >= area * (1 - 1e-9));
      CHECK(a.makespan >= a.critical_path);
      CHECK(a.makespan <= a.work * (1 + 1e-12));
      CHECK(a.critical_path == unlimited.critical_path);
    }
  }
  CHECK(delayed > 200);
  CHECK(overlaps > 1000);
}

TEST_CASE("operations that fill the device gain nothing from streams; those without a share lose nothing") {
  std::size_t shorter = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const problem p = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 16)});
    const schedule plan = test::random_schedule(p, seed).plan;
    if (!check(p, plan).valid()) continue;
    const std::vector<double> all(p.graph().num_operations, 1), none(p.graph().num_operations, 0);
    for (std::uint32_t k = 1; k <= 4; ++k) {
      const stream_assignment full = assign_streams(p, plan, {.streams = k, .shares = all});
      const stream_assignment free = assign_streams(p, plan, {.streams = k, .shares = none});
      const stream_assignment before = assign_streams(p, plan, {.streams = k});
      CHECK(full.makespan == full.work);
      CHECK(free.start == before.start);
      CHECK(free.stream == before.stream);
      CHECK(free.waits.values == before.waits.values);
      shorter += before.makespan < full.makespan;
    }
  }
  CHECK(shorter > 100);
}

TEST_CASE("a small launch runs beside a large one, and a later one fills the room that is left") {
  training_graph g;
  for (const double seconds : {4.0, 4.0, 2.0, 2.0}) {
    const tensor_id t = g.add_tensor({"t", 8});
    g.add_operation({.outputs = {t}, .seconds = seconds});
    g.add_final_output(t);
  }
  const problem p(g, measured_cost{});
  schedule plan;
  for (std::uint32_t o = 0; o < 4; ++o) plan.compute(static_cast<op_id>(o));
  const std::vector<double> shares{0.7, 0.7, 0.3, 0.3};
  const stream_assignment a = assign_streams(p, plan, {.streams = 3, .shares = shares});
  CHECK(a.start == std::vector<double>{0, 4, 0, 2});
  CHECK(a.makespan == 8);
}

TEST_CASE("contributions to one tensor happen in the schedule's order") {
  training_graph g;
  const tensor_id sum = g.add_tensor({"sum", 8});
  for (int i = 0; i < 4; ++i) g.add_operation({.outputs = {sum}, .seconds = 1});
  g.add_final_output(sum);
  const problem p(g, measured_cost{});
  schedule plan;
  for (const std::uint32_t o : {2U, 0U, 3U, 1U}) plan.compute(static_cast<op_id>(o));
  const stream_assignment a = assign_streams(p, plan, {.streams = 4});
  CHECK(a.start == std::vector<double>{0, 1, 2, 3});
  CHECK(a.waits.values.empty());
}

TEST_CASE("options that do not fit are refused") {
  const problem p = test::random_problem(1);
  const schedule plan = test::random_schedule(p, 1).plan;
  const lifetimes lives = lifetimes_of(p, plan);
  CHECK_THROWS_WITH_AS((void)assign_streams(p, plan, {.streams = 0}), "streams is 0; it must be 1 to 64", bad_argument);
  CHECK_THROWS_AS((void)assign_streams(p, plan, {.streams = 65}), bad_argument);
  const auto with_shares = [&](const std::vector<double>& shares) {
    (void)assign_streams(p, plan, {.streams = 2, .shares = shares});
  };
  std::vector<double> shares(p.graph().num_operations, 0.5);
  shares[1] = 1.5;
  CHECK_THROWS_WITH_AS(with_shares(shares), "the share of operation 1 is 1.500000; it must be 0 to 1", bad_argument);
  shares[1] = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(with_shares(shares), bad_argument);
  shares[1] = -0.1;
  CHECK_THROWS_AS(with_shares(shares), bad_argument);
  shares[1] = 0;
  CHECK_NOTHROW(with_shares(shares));
  shares.push_back(1);
  CHECK_THROWS_AS(with_shares(shares), bad_argument);
  const std::vector<std::int64_t> few(lives.allocations.size() + 1);
  CHECK_THROWS_AS((void)assign_streams(p, plan, {1, few}), bad_argument);
  CHECK_THROWS_AS((void)assign_streams(p, lives, std::span(plan.steps).first(1)), bad_argument);
  schedule wrong = plan;
  wrong.steps.insert(wrong.steps.begin(), step::free(tensor_id{2}));
  CHECK_THROWS_AS((void)assign_streams(p, wrong), bad_argument);
  schedule copied = plan;
  copied.offload(static_cast<tensor_id>(p.graph().final_outputs.at(0)));
  const problem linked = p.with_link({});
  CHECK(assign_streams(linked, copied).streams == num_engines);
  CHECK_THROWS_WITH_AS((void)assign_streams(linked, copied, {.streams = 2}),
                       "streams is 2; a schedule that copies tensors to the host runs its computes on one stream",
                       bad_argument);
  CHECK_THROWS_AS((void)assign_streams(p, lifetimes_of(linked, copied), copied), bad_argument);
}

namespace {

/// Which launches must be in order, straight from the rules of docs/offload.md, rule by rule.
matrix ruled(const problem& p, const schedule& plan, const stream_assignment& a) {
  const flat_graph& g = p.graph();
  const std::size_t n = a.size();
  matrix out(n, std::vector<std::uint8_t>(n, 0));
  const auto has = [](const auto& row, std::uint32_t t) { return std::find(row.begin(), row.end(), t) != row.end(); };
  const auto of = [](step x) {
    return static_cast<std::uint32_t>(x.is_compute() ? index(x.operation()) : index(x.tensor()));
  };
  for (std::size_t v = 0; v < n; ++v)
    for (std::size_t u = 0; u < v; ++u) {
      const step first = plan.steps[a.steps[u]], second = plan.steps[a.steps[v]];
      std::uint8_t& must = out[u][v];
      must = engine_of(first.kind()) == engine_of(second.kind()) ||  // in the order of the list
             (first.is_compute() && second.is_copy());               // rule 1
      if (first.is_compute()) continue;
      const std::uint32_t t = of(first);
      if (first.kind() == step_kind::prefetch && second.kind() == step_kind::offload && of(second) == t) must = 1;
      if (first.kind() == step_kind::offload && second.kind() == step_kind::prefetch && of(second) == t) must = 1;
      if (second.is_compute()) {  // rule 3
        const bool reads = has(g.inputs[of(second)], t), writes = has(g.outputs[of(second)], t);
        if (writes || (reads && first.kind() == step_kind::prefetch)) must = 1;
      }
      for (std::uint32_t i = a.steps[u] + 1; i < a.steps[v]; ++i) {
        if (plan.steps[i] == step::free(static_cast<tensor_id>(t))) must = 1;  // rule 4
        if (plan.steps[i] == step::drop(static_cast<tensor_id>(t)) && first.kind() == step_kind::prefetch &&
            second.kind() == step_kind::offload)
          must = 1;  // rule 5
      }
    }
  return out;
}

}  // namespace

TEST_CASE("copies wait exactly as the engines do, which keeps all uses of both arenas in order") {
  std::size_t waits = 0, copies = 0, met_on_host = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    const problem plain = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 12)});
    const problem p = plain.with_link(test::random_link(plain, seed));
    const schedule plan = test::random_copy_schedule(p, seed).plan;
    const lifetimes lives = lifetimes_of(p, plan);
    const stream_assignment a = assign_streams(p, lives, plan.steps);
    const matrix must_all = closure(ruled(p, plan, a)), does_all = closure(kept(a));
    if (!plan.has_copies()) continue;
    REQUIRE(must_all == does_all);
    const engine_times times = engine_times_of(p, plan);
    CHECK(a.makespan == times.makespan);
    CHECK(a.critical_path == times.makespan);

    // Each launch begins as early as its stream and its waits allow.
    std::vector<double> stream_free(a.streams, 0), end(a.size(), 0);
    for (std::size_t v = 0; v < a.size(); ++v) {
      const step_times now = times.steps[a.steps[v]];
      double ready = stream_free[a.stream[v]];
      for (const std::uint32_t u : a.waits[v]) {
        ++waits;
        ready = std::max(ready, end[u]);
        CHECK(a.awaited[u] == 1);
        bool other = false;
        for (std::size_t w = u + 1; w < v; ++w) other = other || (does_all[u][w] && does_all[w][v]);
        if (other) FAIL("the wait of ", v, " for ", u, " follows from others");
      }
      copies += plan.steps[a.steps[v]].is_copy();
      CHECK(a.start[v] == ready);
      CHECK(now.begin == ready);
      stream_free[a.stream[v]] = end[v] = now.end;
      CHECK(a.stream[v] == static_cast<std::uint32_t>(*engine_of(plan.steps[a.steps[v]].kind())));
    }

    // Launches that use the same bytes of an arena are in order, if one of them writes.
    const test::placed device = test::random_layout(lives, 1, seed);
    const test::placed host = test::random_layout(std::span(lives.host), 1, seed);
    const matrix meet = conflicts(lives, a, device.offsets);
    struct use {
      std::size_t launch, copy;
    };
    std::vector<use> uses;  // of the host's arena
    std::vector<std::size_t> now(p.graph().num_tensors, 0);
    for (std::size_t v = 0, made = 0; v < a.size(); ++v) {
      const step x = plan.steps[a.steps[v]];
      if (!x.is_copy()) continue;
      if (x.kind() == step_kind::offload) now[index(x.tensor())] = made++;
      uses.push_back({v, now[index(x.tensor())]});
    }
    for (std::size_t v = 0; v < a.size(); ++v)
      for (std::size_t u = 0; u < v; ++u)
        if (meet[u][v]) CHECK(does_all[u][v]);
    for (const use& x : uses)
      for (const use& y : uses) {
        if (x.launch >= y.launch || (a.stream[x.launch] == 2 && a.stream[y.launch] == 2)) continue;
        const std::int64_t bx = host.offsets[x.copy], by = host.offsets[y.copy];
        if (std::max(bx, by) >= std::min(bx + lives.host[x.copy].bytes, by + lives.host[y.copy].bytes)) continue;
        met_on_host += x.copy != y.copy;
        CHECK(does_all[x.launch][y.launch]);
      }
  }
  CHECK(waits > 2000);
  CHECK(copies > 2000);
  CHECK(met_on_host > 100);
}

TEST_CASE("10^5 steps on 8 streams take a moment, tensors with many readers among them") {
  constexpr std::uint32_t n = 50'000;
  training_graph g;
  const tensor_id hub = g.add_tensor({"hub", 64});
  g.add_operation({.outputs = {hub}, .seconds = 1});
  for (std::uint32_t i = 0; i < n; ++i) {
    const tensor_id t = g.add_tensor({"", 64});
    g.add_operation({.inputs = {hub}, .outputs = {t}, .seconds = 1});
  }
  const problem p(g, measured_cost{});
  schedule plan;
  std::vector<std::int64_t> offsets{0};
  plan.compute(op_id{0});
  for (std::uint32_t i = 1; i <= n; ++i) {
    plan.compute(static_cast<op_id>(i));
    plan.free(static_cast<tensor_id>(i));
    offsets.push_back(64 + 32 * (i % 3));  // each overlaps two of those before
  }
  const lifetimes lives = lifetimes_of(p, plan);
  const double begun = remat::test::processor_seconds();
  const stream_assignment a = assign_streams(p, lives, plan.steps, {8, offsets});
  CHECK(remat::test::processor_seconds() - begun < 5);
  CHECK(a.makespan == a.critical_path);
  CHECK(a.critical_path > n / 2);  // two of three share bytes with the one before
  std::vector<double> shares;
  for (std::uint32_t o = 0; o <= n; ++o) shares.push_back(1.0 / (1 + o % 7));
  const stream_assignment shared = assign_streams(p, lives, plan.steps, {8, offsets, shares});
  CHECK(shared.makespan >= a.makespan);
}
