// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/max_flow.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace {

using namespace remat::detail;

// A random network, kept beside the flow so that every cut of it can be added up.
struct network {
  struct arc {
    std::uint32_t from, to;
    std::int64_t forward, backward;
  };
  std::uint32_t nodes = 0;
  std::vector<std::int64_t> source, sink;
  std::vector<arc> arcs;

  network(std::uint64_t seed, std::uint32_t n, std::int64_t most) : nodes(n), source(n), sink(n) {
    std::mt19937_64 engine(seed);
    const auto below = [&](std::uint64_t m) { return static_cast<std::int64_t>(engine() % m); };
    for (std::uint32_t v = 0; v < n; ++v) {
      source[v] = below(3) == 0 ? below(static_cast<std::uint64_t>(most)) : 0;
      sink[v] = below(3) == 0 ? below(static_cast<std::uint64_t>(most)) : 0;
    }
    const std::int64_t count = below(3 * n) + 1;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto u = static_cast<std::uint32_t>(below(n)), v = static_cast<std::uint32_t>(below(n));
      if (u == v) continue;
      const std::int64_t kind = below(8);
      arcs.push_back({u, v, kind == 0 ? max_flow::infinite : below(static_cast<std::uint64_t>(most)),
                      kind == 1 ? below(static_cast<std::uint64_t>(most)) : 0});
    }
  }

  void load(max_flow& f) const {
    f.reset(nodes);
    for (const arc& a : arcs) f.add_arc(a.from, a.to);
    f.finish();
    for (std::uint32_t i = 0; i < arcs.size(); ++i) f.set_capacity(i, arcs[i].forward, arcs[i].backward);
    for (std::uint32_t v = 0; v < nodes; ++v) {
      f.raise_source(v, source[v]);
      f.set_sink(v, sink[v]);
    }
  }

  template <class OnSourceSide>
  std::int64_t cut(OnSourceSide&& in) const {
    std::int64_t sum = 0;
    for (std::uint32_t v = 0; v < nodes; ++v) sum += in(v) ? sink[v] : source[v];
    for (const arc& a : arcs) {
      if (in(a.from) && !in(a.to)) sum = std::min(max_flow::infinite, sum + a.forward);
      if (in(a.to) && !in(a.from)) sum = std::min(max_flow::infinite, sum + a.backward);
    }
    return sum;
  }

  // The least cut, and the most nodes on the source's side of a least cut.
  std::pair<std::int64_t, int> least_cut() const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    int most = 0;
    for (std::uint32_t side = 0; side < (1u << nodes); ++side) {
      const std::int64_t c = cut([&](std::uint32_t v) { return (side >> v & 1) != 0; });
      int in = 0;
      for (std::uint32_t v = 0; v < nodes; ++v) in += side >> v & 1;
      if (c < least) most = in;
      if (c == least) most = std::max(most, in);
      least = std::min(least, c);
    }
    return {least, most};
  }
};

int source_side(const max_flow& f, std::uint32_t nodes) {
  int in = 0;
  for (std::uint32_t v = 0; v < nodes; ++v) in += !f.reaches_sink(v);
  return in;
}

TEST_CASE("the flow is the least of all cuts, and its side is the widest of those") {
  std::int64_t sum = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const network net(seed, 2 + static_cast<std::uint32_t>(seed % 8), seed % 2 ? 10 : 1000000);
    max_flow f;
    net.load(f);
    REQUIRE(f.run());
    const auto [least, widest] = net.least_cut();
    REQUIRE(f.value() == least);
    REQUIRE(net.cut([&](std::uint32_t v) { return !f.reaches_sink(v); }) == least);
    REQUIRE(source_side(f, net.nodes) == widest);
    sum += f.value();
  }
  CHECK(sum > 0);
}

TEST_CASE("raised capacities continue the flow that is there") {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    network net(seed, 8, 20);
    max_flow warm;
    net.load(warm);
    warm.run();
    max_flow::state kept;
    warm.save(kept);
    std::mt19937_64 engine(seed);
    for (int again = 0; again < 2; ++again) {  // the second time from the kept state
      network raised = net;
      for (std::uint32_t i = 0; i < raised.arcs.size(); ++i)
        if (raised.arcs[i].forward != max_flow::infinite) {
          const auto more = static_cast<std::int64_t>(engine() % 10);
          raised.arcs[i].forward += more;
          warm.raise_capacity(i, more);
        }
      for (std::uint32_t v = 0; v < raised.nodes; ++v)
        if (raised.source[v] > 0) {
          const auto more = static_cast<std::int64_t>(engine() % 10);
          raised.source[v] += more;
          warm.raise_source(v, more);
        }
      warm.run();
      REQUIRE(warm.value() == raised.least_cut().first);
      warm.restore(kept);
    }
  }
}

TEST_CASE("a flow that is stopped early is below every cut") {
  int early = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const network net(seed, 10, 50);
    const std::int64_t least = net.least_cut().first;
    for (int most = 0; most < 4; ++most) {
      max_flow f;
      net.load(f);
      int waves = 0;
      const bool complete = f.run([&] { return waves++ == most; });
      CHECK(f.value() <= least);
      CHECK((!complete || f.value() == least));
      early += f.value() < least;
      f.run();
      CHECK(f.value() == least);
    }
  }
  CHECK(early > 100);
}

TEST_CASE("a long chain, and nodes that are added one by one") {
  max_flow f;
  f.reset();
  constexpr std::uint32_t n = 20000;
  for (std::uint32_t v = 0; v < n; ++v) {
    REQUIRE(f.add_node() == v);
    if (v > 0) f.add_arc(v - 1, v);
  }
  f.finish();
  for (std::uint32_t a = 0; a + 1 < n; ++a) f.set_capacity(a, 1000 + a % 7);
  f.raise_source(0, 5000);
  f.set_sink(n - 1, max_flow::infinite);
  CHECK(f.run());
  CHECK(f.value() == 1000);
  f.clear_flow();
  CHECK(f.value() == 0);
}

TEST_CASE("a run over many nodes is asked within its waves whether to stop, and goes on from there") {
  max_flow f;
  constexpr std::uint32_t n = 100'000;  // every node by itself: one wave
  f.reset(n);
  f.finish();
  const auto load = [&] {
    f.clear_flow();
    for (std::uint32_t v = 0; v < n; ++v) {
      f.raise_source(v, 2);
      f.set_sink(v, 1);
    }
  };
  load();
  int asked = 0;
  CHECK(f.run([&] {
    ++asked;
    return false;
  }));
  CHECK(asked > 10);
  CHECK(f.value() == n);
  for (int most = 0; most < asked; ++most) {
    load();
    int so_far = 0;
    CHECK(!f.run([&] { return so_far++ == most; }));
    CHECK(so_far == most + 1);
    CHECK(f.value() <= n);
    CHECK(f.run());
    CHECK(f.value() == n);
  }
}

}  // namespace
