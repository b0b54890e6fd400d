// SPDX-License-Identifier: BSL-1.0
#include "remat/memory/detail/fit.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/memory/check.hpp"
#include "support/random_intervals.hpp"

namespace {
using namespace remat;          // NOLINT: a test
using namespace remat::detail;  // NOLINT: a test

/// The least height over all orders: in each, every block right above those before it that it meets.
std::int64_t least_height(const packing_component& c) {
  std::vector<std::uint32_t> order(c.blocks());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) order[i] = i;
  std::int64_t best = -1;
  do {
    std::vector<std::int64_t> top(c.blocks(), 0);
    std::int64_t height = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      std::int64_t at = 0;
      for (std::size_t m = 0; m < k; ++m)
        if (c.meet(order[k], order[m])) at = std::max(at, top[order[m]]);
      top[order[k]] = at + c.size[order[k]];
      height = std::max(height, top[order[k]]);
    }
    if (best < 0 || height < best) best = height;
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

const std::vector<fit_strategy>& strategies() {
  static const std::vector<fit_strategy> all{
      {fit_branching::block, fit_order::load_time_area},   {fit_branching::block, fit_order::load_area_time},
      {fit_branching::block, fit_order::time_area_load},   {fit_branching::section, fit_order::load_time_area},
      {fit_branching::section, fit_order::load_area_time}, {fit_branching::section, fit_order::time_area_load}};
  return all;
}

constexpr std::uint64_t ample = 100'000'000;

/// The verdict, after a check of the packing if there is one.
fit_verdict ask(const packing_component& c, std::int64_t height, fit_strategy strategy, fit_rules rules = {}) {
  const run_control control;
  run_clock clock(control);
  std::vector<std::int64_t> offset;
  fit_search search(c, clock, rules);
  const fit_verdict verdict = search(height, strategy, ample, offset);
  if (verdict != fit_verdict::fits) {
    CHECK(offset.empty());
    return verdict;
  }
  std::vector<interval> own;
  for (std::uint32_t i = 0; i < c.blocks(); ++i) own.push_back({c.first[i], std::int64_t{c.last[i]} + 1, c.size[i]});
  CHECK(check_memory(own, offset, height).valid());
  return verdict;
}

fit_verdict expected(bool fits) { return fits ? fit_verdict::fits : fit_verdict::impossible; }

/// Components of 4 to 7 blocks; every second one has no slack at any time.
std::vector<packing_component> small_components(std::uint64_t seed) {
  const auto all = seed % 2 == 0 ? test::full_intervals(seed, 4, 6) : test::random_intervals(seed, 7, 6, 5);
  std::vector<packing_component> out;
  for (packing_component& c : divide_intervals(all, 1))
    if (c.blocks() >= 4 && c.blocks() <= 7) out.push_back(std::move(c));
  return out;
}

/// Components whose least height is above the load, which is rare.
std::vector<packing_component> hard_components(std::size_t count) {
  std::vector<packing_component> out;
  for (std::uint64_t seed = 0; seed < 40'000 && out.size() < count; ++seed)
    for (packing_component& c :
         divide_intervals(test::full_intervals(seed, 5 + static_cast<std::int64_t>(seed % 4), 4), 1))
      if (c.blocks() <= 9 && ask(c, c.load, {}) == fit_verdict::impossible) out.push_back(std::move(c));
  return out;
}
}  // namespace

TEST_CASE("every strategy finds the verdict that trying all orders finds") {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed)
    for (const packing_component& c : small_components(seed)) {
      const std::int64_t least = least_height(c);
      for (const fit_strategy& strategy : strategies())
        for (const std::int64_t height : {c.load - 1, c.load, least - 1, least, least + 1})
          CHECK(ask(c, height, strategy) == expected(height >= least));
      ++compared;
    }
  CHECK(compared > 150);
}

TEST_CASE("a least height above the load is proven by every strategy") {
  const std::vector<packing_component> hard = hard_components(4);
  REQUIRE(hard.size() == 4);
  for (const packing_component& c : hard) {
    const std::int64_t least = least_height(c);
    CHECK(least > c.load);
    for (const fit_strategy& strategy : strategies()) {
      CHECK(ask(c, least - 1, strategy) == fit_verdict::impossible);
      CHECK(ask(c, least, strategy) == fit_verdict::fits);
    }
  }
}

TEST_CASE("each inference is sound: the verdicts are the same without it") {
  fit_rules no_sections, no_support, no_stretches, no_twins, bare{false, false, false, false};
  no_sections.sections = no_support.support = no_stretches.stretches = no_twins.twins = false;
  std::vector<packing_component> all = hard_components(3);
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (packing_component& c : small_components(seed)) all.push_back(std::move(c));
  for (const packing_component& c : all) {
    const std::int64_t least = least_height(c);
    for (const fit_rules& rules : {no_sections, no_support, no_stretches, no_twins, bare})
      for (const fit_strategy& strategy : strategies())
        for (const std::int64_t height : {least - 1, least, least + 1})
          CHECK(ask(c, height, strategy, rules) == expected(height >= least));
  }
}

TEST_CASE("each inference saves nodes where a proof is long") {
  // A component with many packings, then one that does not fit, under blocks that span both.
  const std::vector<packing_component> hard = hard_components(3);
  fit_rules without[4];
  without[0].sections = without[1].support = without[2].stretches = without[3].twins = false;
  std::uint64_t with_all = 0, counts[4] = {0, 0, 0, 0};
  for (const packing_component& h : hard) {
    std::vector<interval> all = test::full_intervals(1, 6, h.load);
    for (interval& x : all) x.size *= 10;
    for (std::uint32_t i = 0; i < h.blocks(); ++i) all.push_back({6 + h.first[i], 7 + h.last[i], 10 * h.size[i]});
    for (int k = 0; k < 3; ++k) all.push_back({0, 6 + h.sections, 1});
    for (const packing_component& c : divide_intervals(all, 1)) {
      const auto nodes = [&](fit_rules rules) {
        const run_control control;
        run_clock clock(control);
        std::vector<std::int64_t> offset;
        fit_search search(c, clock, rules);
        CHECK(search(c.load + 9, {}, 20'000'000, offset) != fit_verdict::fits);
        return search.nodes();
      };
      with_all += nodes({});
      for (std::size_t k = 0; k < 4; ++k) counts[k] += nodes(without[k]);
    }
  }
  for (std::size_t k = 0; k < 4; ++k) {
    INFO("rule ", k);
    CHECK(counts[k] > with_all);
  }
}

TEST_CASE("sizes with a common divisor: the height counts in its multiples") {
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (const packing_component& c : small_components(seed)) {
      packing_component large = c;
      for (std::int64_t& size : large.size) size *= 1000;
      large.load *= 1000;
      const std::int64_t least = least_height(c);
      CHECK(ask(large, 1000 * least - 1, {}) == fit_verdict::impossible);
      CHECK(ask(large, 1000 * least + 999, {}) == fit_verdict::fits);
    }
}

TEST_CASE("sizes up to 2^62 do not overflow") {
  constexpr std::int64_t half = std::int64_t{1} << 61;
  const std::vector<interval> all{{0, 2, half}, {0, 1, half - 1}, {1, 3, half - 3}, {2, 4, half - 5}};
  for (const packing_component& c : divide_intervals(all, 1))
    for (const fit_strategy& strategy : strategies()) {
      CHECK(ask(c, std::numeric_limits<std::int64_t>::max(), strategy) == fit_verdict::fits);
      CHECK(ask(c, c.load - 1, strategy) == fit_verdict::impossible);
      const fit_verdict at_load = ask(c, c.load, strategy);
      CHECK(at_load == expected(least_height(c) == c.load));
    }
}

TEST_CASE("equal blocks are not tried in every order") {
  // 3 × 12 blocks in a row; the ones at the sides keep any two groups from lying level.
  std::vector<interval> all;
  for (int k = 0; k < 12; ++k) {
    all.push_back({0, 2, 4});
    all.push_back({1, 3, 6});
    all.push_back({2, 4, 4});
  }
  for (const packing_component& c : divide_intervals(all, 1)) {
    const run_control control;
    run_clock clock(control);
    std::vector<std::int64_t> offset;
    fit_search search(c, clock);
    CHECK(search(c.load, {}, ample, offset) == fit_verdict::fits);
    CHECK(search.nodes() < 1000);
  }
}

TEST_CASE("a limit of work ends the search without a verdict, the same one each time") {
  std::size_t stopped = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const packing_component& c : divide_intervals(test::full_intervals(seed, 40, 200), 1)) {
      constexpr std::uint64_t limit = 50'000;
      std::uint64_t nodes = 0;
      for (int repeat = 0; repeat < 2; ++repeat) {
        const run_control control;
        run_clock clock(control);
        std::vector<std::int64_t> offset;
        fit_search search(c, clock);
        const fit_verdict verdict = search(c.load, {}, limit, offset);
        const std::uint64_t longest_node = 40 * std::uint64_t{c.blocks()} * (c.blocks() + c.sections);
        CHECK(clock.work_done() < limit + longest_node);
        CHECK((repeat == 0 || search.nodes() == nodes));
        nodes = search.nodes();
        stopped += verdict == fit_verdict::unknown;
      }
    }
  CHECK(stopped >= 4);
}

TEST_CASE("a failed search leaves nothing behind: the same object answers again") {
  for (const packing_component& c : hard_components(2)) {
    const run_control control;
    run_clock clock(control);
    fit_search search(c, clock);
    std::vector<std::int64_t> offset;
    const std::int64_t least = least_height(c);
    CHECK(search(least - 1, {}, ample, offset) == fit_verdict::impossible);
    CHECK(search(least, {}, 1, offset) == fit_verdict::unknown);
    CHECK(search(least, {}, ample, offset) == fit_verdict::fits);
    CHECK(search(least - 1, {}, ample, offset) == fit_verdict::impossible);
    CHECK(search(least, {}, ample, offset) == fit_verdict::fits);
  }
}

TEST_CASE("the strategies in turn raise the bound of a component, or keep a packing") {
  for (packing_component& c : hard_components(3)) {
    const run_control control;
    run_clock clock(control);
    fit_search search(c, clock);
    const std::int64_t least = least_height(c);
    std::uint64_t seed = 0;
    CHECK(fit_in_turn(c, search, c.load, ample, clock, seed) == fit_verdict::impossible);
    CHECK(c.bound > c.load);
    CHECK(!c.is_optimal());
    CHECK(fit_in_turn(c, search, least, ample, clock, seed) == fit_verdict::fits);
    CHECK(c.height == least);
    CHECK(fit_in_turn(c, search, least - 1, ample, clock, seed) == fit_verdict::impossible);
    CHECK(c.bound == least);
    CHECK(c.is_optimal());
  }
}
