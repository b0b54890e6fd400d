// SPDX-License-Identifier: BSL-1.0
#include "remat/hierarchy/detail/cut_sequence.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"

namespace {

using namespace remat;
using namespace remat::detail::partitioning;
using stretches = std::vector<std::pair<std::size_t, std::size_t>>;

/// The repeat of most items, by trying all of them.
std::size_t longest_by_trial(const std::vector<std::uint64_t>& kinds, std::size_t least, std::size_t most) {
  std::size_t best = 0;
  for (std::size_t begin = 0; begin < kinds.size(); ++begin)
    for (std::size_t p = least; p <= most; ++p)
      for (std::size_t end = begin + 2 * p; end <= kinds.size(); ++end) {
        bool equal = true;
        for (std::size_t i = begin; i + p < end; ++i) equal = equal && kinds[i] == kinds[i + p];
        if (equal) best = std::max(best, end - begin);
      }
  return best;
}

/// Kinds of a stack: some items, `times` times the items 10, 11, …, and some other items.
std::vector<std::uint64_t> stack(std::size_t head, std::size_t period, std::size_t times, std::size_t tail) {
  std::vector<std::uint64_t> kinds;
  for (std::size_t i = 0; i < head; ++i) kinds.push_back(1000 + i);
  for (std::size_t t = 0; t < times; ++t)
    for (std::size_t i = 0; i < period; ++i) kinds.push_back(10 + i);
  for (std::size_t i = 0; i < tail; ++i) kinds.push_back(2000 + i);
  return kinds;
}

}  // namespace

TEST_CASE("the longest repeat is the longest") {
  detail::random_source random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint64_t> kinds(1 + random.below(24));
    for (std::uint64_t& k : kinds) k = static_cast<std::uint64_t>(random.below(3));
    const std::size_t least = 1 + static_cast<std::size_t>(random.below(2)), most = 6;
    const repeat r = longest_repeat(kinds, 0, kinds.size(), least, most);
    CHECK(r.end - r.begin == longest_by_trial(kinds, least, most));
    if (r.period == 0) continue;
    CHECK(r.period >= least);
    for (std::size_t i = r.begin; i + r.period < r.end; ++i) CHECK(kinds[i] == kinds[i + r.period]);
  }
}

TEST_CASE("a repeat is cut where the fewest bytes cross on average") {
  const repeat r{1, 10, 3};
  const std::vector<std::int64_t> crossing{0, 9, 5, 7, 9, 2, 7, 9, 2, 7, 9};
  CHECK(cheapest_shift(r, crossing) == 1);
  const repeat whole{0, 9, 3};  // nothing stands before its first item, so 0 bytes there say nothing
  const std::vector<std::int64_t> other{0, 5, 9, 6, 5, 9, 6, 5, 9};
  CHECK(cheapest_shift(whole, other) == 1);
}

TEST_CASE("stretches are in turn, without gaps, and as many as counted at most") {
  detail::random_source random(2);
  for (int round = 0; round < 500; ++round) {
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.below(n)); };
    std::vector<std::uint64_t> kinds = stack(below(9), 1 + below(5), below(12), below(9));
    if (kinds.empty()) continue;
    std::vector<std::uint32_t> weight;
    std::vector<std::int64_t> crossing;
    for (const std::uint64_t k : kinds) {
      weight.push_back(1 + static_cast<std::uint32_t>(k * 7 % 13));
      crossing.push_back(static_cast<std::int64_t>(below(50)));
    }
    const sequence_cutter cutter(kinds, weight, crossing);
    std::size_t before = kinds.size() + 1;
    for (std::uint64_t most = 1; most <= cutter.total() + 1; most += 1 + most / 4) {
      const stretches cut = cutter.cut(most);
      CHECK(cut.size() <= cutter.count(most));
      CHECK(cutter.count(most) <= before);  // larger stretches are fewer
      before = cutter.count(most);
      std::size_t at = 0;
      for (const auto& [from, to] : cut) {
        CHECK(from == at);
        CHECK(to > from);
        at = to;
      }
      CHECK(at == kinds.size());
    }
    CHECK(cutter.count(1) == kinds.size());
  }
}

TEST_CASE("like blocks become like stretches of whole blocks, whatever stands before and behind them") {
  for (const std::size_t head : {0U, 1U, 5U})
    for (const std::size_t period : {1U, 2U, 7U})
      for (const std::size_t times : {12U, 64U, 65U}) {
        const std::vector<std::uint64_t> kinds = stack(head, period, times, 3);
        const std::vector<std::uint32_t> weight(kinds.size(), 2);
        const std::vector<std::int64_t> crossing(kinds.size(), 100);
        const sequence_cutter cutter(kinds, weight, crossing);
        for (const std::uint64_t most : {2 * period, 5 * period, 9 * period}) {
          std::set<std::size_t> sizes;
          std::size_t covered = 0;
          for (const auto& [from, to] : cutter.cut(most)) {
            if (from < head || to > head + period * times) continue;
            CHECK((from - head) % period == 0);
            CHECK((to - from) % period == 0);
            CHECK(2 * (to - from) <= most);
            sizes.insert(to - from);
            covered += to - from;
          }
          CHECK(covered == period * times);
          CHECK(sizes.size() <= 2);  // as many blocks in each, up to one
          CHECK(*sizes.rbegin() - *sizes.begin() <= period);
        }
        if (period < 2) continue;  // a block is too large for a stretch: all are cut alike
        const std::uint64_t half = period;
        std::set<std::size_t> places;
        for (const auto& [from, to] : cutter.cut(half))
          if (from >= head && to <= head + period * times) places.insert((from - head) % period);
        CHECK(places.size() == cutter.count(half) / times);
      }
}

TEST_CASE("the rest of a sequence is cut into even stretches where few bytes cross") {
  const std::vector<std::uint64_t> kinds = stack(20, 1, 0, 0);
  const std::vector<std::uint32_t> weight(20, 1);
  std::vector<std::int64_t> crossing(20, 100);
  crossing[6] = 1;  // near 5
  crossing[9] = 90;
  crossing[12] = 0;  // too far from 10, and from 15
  const sequence_cutter cutter(kinds, weight, crossing);
  CHECK(cutter.count(5) == 4);
  CHECK(cutter.cut(5) == stretches{{0, 6}, {6, 9}, {9, 15}, {15, 20}});
}
