// SPDX-License-Identifier: BSL-1.0
//
// Both tables against the recurrence itself, on random chains with everything that a chain of a graph may have.
#include "remat/chain/detail/slot_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include "remat/method/rotor/impl/breakpoint_table.hpp"

namespace {

using namespace remat::detail;

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr std::int64_t any_size = std::int64_t{1} << 40;

/// Whole times, so that sums are exact. `kind`: 0: of the Rotor model; 1: with options; 2: as cut from a graph; 3: that
/// with options.
sized_chain random_sized(std::uint64_t seed, std::uint32_t length, int kind, std::int64_t largest) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1)));
  };
  const auto time = [&] { return static_cast<double>(below(4) == 0 ? 0 : below(9)); };
  sized_chain c;
  c.length = length;
  c.own_gradient = kind < 2 && below(2) == 0;
  c.stages.resize(length + 1);
  if (kind >= 2) {
    c.crossing_from.assign((length + 1) * (length + 1), 0);
    c.held = c.crossing_from;
    c.stages[0].transient = below(3);
  }
  for (std::uint32_t s = 1; s <= length; ++s) {
    sized_stage& to = c.stages[s];
    to.fast = time();
    to.gradient = below(largest);
    to.crossing = below(largest);
    to.fast_need = to.crossing + below(largest);
    to.first_option = static_cast<std::uint32_t>(c.options.size());
    for (std::int64_t k = kind % 2 == 1 ? 1 + below(4) : 1; k > 0; --k) {
      keep_option o;
      o.time = to.fast + time();
      o.last_time = kind >= 2 ? o.time - (below(2) == 0 ? to.fast : 0) : o.time;
      o.saved = to.crossing + below(largest * 2);
      o.forward_need = o.saved + below(largest);
      o.last_forward_need = kind >= 2 ? o.forward_need - below(2) : o.forward_need;
      o.backward_need = o.saved + below(largest * 2);
      c.options.push_back(o);
    }
    to.last_option = static_cast<std::uint32_t>(c.options.size());
    if (kind < 2) continue;
    to.idle = below(4) == 0;
    to.backward = to.idle ? time() : 0;
    to.idle_need = to.idle ? below(largest) : 0;
    to.outputs = below(3) == 0 ? below(3) : 0;
    to.transient = below(3) == 0 ? below(3) : 0;
    for (std::uint32_t j = s; j <= length; ++j) {
      c.crossing_from[c.at(s, j)] = c.stages[j].crossing + below(largest);
      c.held[c.at(s, j)] = below(largest);
    }
  }
  if (kind < 2) return c;
  c.saved_until.assign(c.options.size() * (length + 1), 0);
  for (std::uint32_t s = 1; s <= length; ++s)
    for (std::uint32_t o = c.stages[s].first_option; o < c.stages[s].last_option; ++o)
      for (std::uint32_t t = s; t <= length; ++t)
        c.saved_until[c.at(o, t)] = c.options[o].saved + (t == s ? 0 : below(3));
  return c;
}

/// The recurrence as the header states it.
class recurrence {
 public:
  explicit recurrence(const sized_chain& c) : c_(c) {}

  double cost(std::uint32_t s, std::uint32_t t, std::int64_t m) {
    if (s > t) return 0;
    if (m < 0) return infinite;
    const auto [at, fresh] = known_.try_emplace({s, t, m}, infinite);
    if (!fresh) return at->second;
    double best = infinite;
    const bool strict = c_.own_gradient || c_.wide();
    const auto runs_to = [&](std::uint32_t end) {
      bool runs = true;
      for (std::uint32_t i = s; i < end; ++i)
        runs = runs && m >= c_.stages[t].gradient + c_.stages[s - 1].transient + (i == s ? 0 : c_.x(s, i - 1)) +
                                c_.stages[i].fast_need;
      return runs;
    };
    for (std::uint32_t o = c_.stages[s].first_option; o < c_.stages[s].last_option; ++o) {
      const keep_option& way = c_.options[o];
      if (strict && !runs_to(t)) continue;
      const std::int64_t gradient = c_.stages[c_.own_gradient ? s : t].gradient;
      if (m < gradient + (s == t ? way.last_forward_need : way.forward_need)) continue;
      if (m - outputs(s + 1, t) < way.backward_need) continue;
      best = std::min(best, s == t ? way.last_time : way.time + cost(s + 1, t, m - c_.saved(o, t)));
    }
    double forwards = 0;
    for (std::uint32_t j = s + 1; j <= t; ++j) {
      forwards += c_.stages[j - 1].fast;
      if (!runs_to(strict ? t : j)) continue;
      best = std::min(best, forwards + cost(j, t, m - c_.h(s, j - 1)) + cost(s, j - 1, m - outputs(j, t)));
    }
    if (s < t && t < c_.length && c_.stages[t].idle && m >= c_.stages[s - 1].transient + c_.stages[t].idle_need)
      best = std::min(best, c_.stages[t].backward + cost(s, t - 1, m - c_.stages[t].outputs));
    return known_[{s, t, m}] = best;
  }

 private:
  std::int64_t outputs(std::uint32_t from, std::uint32_t to) const {
    std::int64_t sum = 0;
    for (std::uint32_t i = from; i <= to; ++i) sum += c_.stages[i].outputs;
    return sum;
  }
  const sized_chain& c_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::int64_t>, double> known_{};
};

TEST_CASE("random chains: both tables are the recurrence, for every memory, limit, vector and number of threads") {
  remat::run_clock clock({});
  int finite = 0, infeasible = 0, cut = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    const auto length = static_cast<std::uint32_t>(1 + seed % 7);
    const sized_chain c = random_sized(seed, length, static_cast<int>(seed % 4), seed % 2 == 0 ? 5 : 2);
    constexpr std::uint32_t slots = 45;
    recurrence truth(c);
    const excess_bound whole(c);
    double limit = std::numeric_limits<double>::max();
    for (const int share : {100, 50, 20, 0}) {
      CAPTURE(share);
      if (share < 100) limit = whole.advanced.back() * share / 100;
      const excess_bound bound(c, limit);
      slot_table table(c, slots, bound);
      table.limit_lanes(std::size_t{1} << seed % 4);
      REQUIRE(table.fill(clock, any_size) == fill_outcome::filled);
      breakpoint_table lists(c, slots, bound);
      REQUIRE(lists.fill(clock, any_size, ~std::uint64_t{0}) == fill_outcome::filled);
      const std::span<const breakpoint> front = lists.frontier();
      for (std::uint32_t m = 0; m <= slots; ++m) {
        CAPTURE(m);
        double expected = truth.cost(1, length, m);
        (expected < infinite ? finite : infeasible) += 1;
        if (expected - whole.least[length] > limit) {
          ++cut;
          expected = infinite;
        }
        CHECK(table.cost(m) == expected);
        const auto after =
            std::partition_point(front.begin(), front.end(), [&](const auto& k) { return k.memory <= m; });
        CHECK((after == front.begin() ? infinite : lists.cost(*(after - 1))) == expected);
        if (expected < infinite) {
          CHECK_FALSE(table.steps(m).empty());
          CHECK_FALSE(lists.steps(m).empty());
        }
      }
    }
  }
  CHECK(finite > 10'000);
  CHECK(infeasible > 10'000);
  CHECK(cut > 1'000);
}

TEST_CASE("any number of threads and any vectors: the same costs, the same steps") {
  remat::run_clock clock({});
  for (const int kind : {0, 1, 2, 3}) {
    CAPTURE(kind);
    const sized_chain c = random_sized(77, 60, kind, 6);
    constexpr std::uint32_t slots = 300;
    for (const double limit : {std::numeric_limits<double>::max(), 60.0}) {
      const excess_bound bound(c, limit);
      slot_table one(c, slots, bound);
      REQUIRE(one.fill(clock, any_size) == fill_outcome::filled);
      breakpoint_table exact(c, slots, bound);
      REQUIRE(exact.fill(clock, any_size, ~std::uint64_t{0}) == fill_outcome::filled);
      for (const unsigned threads : {1U, 2U, 3U, 7U}) {
        CAPTURE(threads);
        remat::run_clock team({.threads = threads});
        slot_table many(c, slots, bound);
        many.limit_lanes(threads);
        REQUIRE(many.fill(team, any_size) == fill_outcome::filled);
        CHECK(many.bytes() == one.bytes());
        breakpoint_table lists(c, slots, bound);
        REQUIRE(lists.fill(team, any_size, ~std::uint64_t{0}) == fill_outcome::filled);
        CHECK(lists.visits() == exact.visits());
        for (std::uint32_t m = 0; m <= slots; m += 3) {
          CHECK(many.cost(m) == one.cost(m));
          if (m < one.first()) continue;
          CHECK(many.steps(m) == one.steps(m));
          CHECK(lists.steps(m) == exact.steps(m));
        }
        // What is too much is so for any number of threads.
        slot_table small(c, slots, bound);
        CHECK(small.fill(team, one.bytes() - 1) == fill_outcome::too_large);
        breakpoint_table lazy(c, slots, bound);
        CHECK(lazy.fill(team, any_size, exact.visits() - 1) == fill_outcome::too_large);
      }
    }
  }
}

TEST_CASE("what stops a fill: the token, and what the caller's function throws") {
  const sized_chain c = random_sized(5, 60, 0, 6);
  const excess_bound bound(c);
  for (const unsigned threads : {1U, 3U}) {
    std::stop_source source;
    remat::run_control run;
    run.stop = source.get_token();
    run.threads = threads;
    run.on_progress = [&](const remat::progress& news) {
      CHECK(news.done <= news.total);
      if (news.done > 0) source.request_stop();
    };
    remat::run_clock clock(run);
    slot_table table(c, 300, bound);
    CHECK(table.fill(clock, any_size) == fill_outcome::stopped);
    run.stop = {};
    run.on_progress = [](const remat::progress&) { throw 3; };
    remat::run_clock thrown(run);
    slot_table again(c, 300, bound);
    CHECK_THROWS_AS((void)again.fill(thrown, any_size), int);
  }
}

}  // namespace
