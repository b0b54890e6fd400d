// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/offload_cut.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "remat/problem/problem.hpp"
#include "support/copy_schedules.hpp"
#include "support/moment_choices.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

/// The least of all choices at the first run of k, one by one, in the plain form: straight from the definition.
double least_choice(const problem& p, std::uint32_t k, const offload_multipliers& m) {
  const flat_graph& g = p.graph();
  const std::uint32_t n = g.num_operations;
  std::uint32_t followers = 0;
  for (std::uint32_t o = 0; o < n; ++o)
    for (const std::uint32_t t : g.inputs[o])
      for (const std::uint32_t q : g.producers[t])
        if (q == k || (followers >> q & 1)) followers |= 1u << o;
  double least = std::numeric_limits<double>::infinity();
  test::every_choice_of_runs(g, k, [&](std::uint32_t ran, std::uint32_t later) {
    double cost = g.time[k];
    for (std::uint32_t o = 0; o < n; ++o) {
      if (o != k && (ran >> o & 1)) cost += m.before * g.time[o];
      if (later >> o & 1) cost += m.after * g.time[o];
    }
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      if (!test::must_be_held(g, k, later, t)) continue;
      bool whole = true;  // nothing that follows k writes it
      for (const std::uint32_t q : g.producers[t]) whole = whole && !(followers >> q & 1);
      const auto bytes = static_cast<double>(g.bytes[t]);
      const double on_host =
          m.out[0] * p.link()->time_out(g.bytes[t]) + m.in[0] * p.link()->time_in(g.bytes[t]) + m.host * bytes;
      cost += whole ? std::min(m.device * bytes, on_host) : m.device * bytes;
    }
    least = std::min(least, cost);
  });
  return least;
}

TEST_CASE("a flow gives the least of all choices") {
  int compared = 0, tilted = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const problem bare = test::random_problem(seed, test::kind_of_graph(seed));
    const problem p = bare.with_link(test::random_link(bare, seed));
    const flat_graph& g = p.graph();
    if (g.num_operations > 7) continue;
    std::mt19937_64 engine(seed);
    const auto number = [&] { return static_cast<double>(engine() % 5) / 4; };
    offload_cut cut(g, *p.link());
    for (std::uint32_t k = 0; k < g.num_operations; ++k) {
      if (!g.needed[k]) continue;
      cut.at(k, 1);
      std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
      test::every_choice(g, k, [&](double, std::int64_t bytes) { fewest = std::min(fewest, bytes); });
      REQUIRE(cut.least_bytes() == fewest);
      REQUIRE((cut.has_unrepeatable() || fewest == 0));
      for (int tries = 0; tries < 4; ++tries) {
        offload_multipliers m;
        m.before = number();
        m.after = number();
        m.out[0] = 1 - m.before;
        m.in[0] = 1 - m.after;
        m.device = number();
        m.host = engine() % 3 == 0 ? number() : 0;
        INFO("seed ", seed, " moment ", k, " a ", m.before, " b ", m.after, " price ", m.device);
        const double value = cut.price(m);
        REQUIRE(cut.complete());
        // Something that must not run twice has a finite price, so every moment has a choice.
        const double least = least_choice(p, k, m);
        REQUIRE(value == doctest::Approx(least).epsilon(1e-9));
        REQUIRE(value <= least);
        ++compared;
        tilted += m.before != m.after;
        // The choice of the flow has that value.
        const offload_choice c = cut.choice(offload_cut::division::by_price);
        const double of_choice = cut.own_time() + m.before * c.before + m.after * c.after + m.out[0] * c.copy_out[0] +
                                 m.in[0] * c.copy_in[0] + m.device * static_cast<double>(c.device_bytes) +
                                 m.host * static_cast<double>(c.host_bytes);
        REQUIRE(of_choice == doctest::Approx(least).epsilon(1e-9));
      }
    }
  }
  CHECK(compared > 1500);
  CHECK(tilted > 1000);
}

TEST_CASE(
    "a tensor that is fixed on the host, on the device or as absent: the least of the three is the least of all") {
  using fixing = offload_cut::fixing;
  int compared = 0, penalties = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const problem bare = test::random_problem(seed, test::kind_of_graph(seed));
    const flat_graph& g = bare.graph();
    offload_cut cut(g, test::random_link(bare, seed));
    std::mt19937_64 engine(seed);
    for (std::uint32_t k = 0; k < g.num_operations; ++k) {
      if (!g.needed[k]) continue;
      cut.at(k, 1 + engine() % 4);
      offload_multipliers m;
      m.out[0] = m.in[0] = 0.25;
      m.before = m.after = 0.75;
      m.device = static_cast<double>(engine() % 5) / 4;
      const double least = cut.price(m);
      for (std::size_t i = 0; i < cut.num_candidates(); ++i) {
        INFO("seed ", seed, " moment ", k, " candidate ", i);
        cut.fix(i, fixing::not_on_host);
        double best = cut.price(m);
        if (cut.may_be_on_host(i)) {
          cut.fix(i, fixing::on_host);
          best = std::min(best, cut.price(m));
          CHECK(cut.choice(offload_cut::division::device).host_bytes == cut.candidate_bytes(i));
        }
        REQUIRE(best == doctest::Approx(least).epsilon(1e-9));
        cut.fix(i, fixing::on_device);
        const double device = cut.price(m);
        CHECK(cut.choice(offload_cut::division::host).device_bytes >= cut.candidate_bytes(i));
        cut.fix(i, fixing::absent);
        const double absent = cut.price(m);
        cut.fix(i, fixing::not_on_host);
        const double here = cut.price(m);
        cut.fix(i, fixing::free);
        ++compared;
        REQUIRE(device >= here * (1 - 1e-9));
        cut.fix(i, fixing::absent);
        (void)cut.price(m);
        if (cut.choice(offload_cut::division::by_price).penalty > 0)
          ++penalties;
        else
          REQUIRE(std::min(device, absent) == doctest::Approx(here).epsilon(1e-9));
        cut.fix(i, fixing::free);
      }
      REQUIRE(cut.price(m) == least);
    }
  }
  CHECK(compared > 500);
  CHECK(penalties > 10);
}

TEST_CASE("groups: later ones begin later, and tensors of later groups stay off the host under a limit") {
  int groups = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 12, .backward = 100});
    const flat_graph& g = p.graph();
    offload_cut cut(g, {.out = 1, .in = 1, .latency = 0});
    for (std::uint32_t k = 0; k < g.num_operations; ++k) {
      if (!g.needed[k]) continue;
      cut.at(k, 4);
      for (const auto* starts : {&cut.out_starts(), &cut.in_starts()}) {
        CHECK(!starts->empty());
        CHECK(starts->size() <= 4);
        CHECK(std::is_sorted(starts->begin(), starts->end()));
        groups += starts->size() > 1;
      }
      offload_multipliers m;
      m.out[0] = m.in[0] = 0.01;
      m.before = m.after = 0.99;
      m.device = 1;
      const double all = cut.price(m);
      CHECK(all >= 0);
      cut.limit(-1, -1);
      CHECK(cut.price(m) >= all * (1 - 1e-12));
      CHECK(cut.choice(offload_cut::division::host).host_bytes == 0);
    }
  }
  CHECK(groups > 100);
}

}  // namespace
