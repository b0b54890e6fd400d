// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/order_bound.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace {
using namespace remat::detail;  // NOLINT: a test

/// Each tensor has up to two writers, before its readers; some are there before or stay.
operation_sequence random_sequence(std::uint64_t seed, std::uint32_t n) {
  std::mt19937_64 engine(seed * 7919 + 3);
  const auto below = [&](std::uint64_t k) { return static_cast<std::uint32_t>(engine() % k); };
  struct tensor {
    std::int64_t bytes;
    bool there, stays;
    std::vector<std::uint8_t> how;  // by operation: 0 none, 1 reads, 2 writes
  };
  std::vector<tensor> tensors(n + below(n));
  std::int64_t standing = below(5);
  for (tensor& t : tensors) {
    t = {1 + below(9), below(5) == 0, below(5) == 0, std::vector<std::uint8_t>(n, 0)};
    if (t.there) standing += t.bytes;
    const std::uint32_t writer = below(n);
    if (!t.there) t.how[writer] = 2;
    if (!t.there && writer + 1 < n && below(3) == 0) t.how[writer + 1] = 2;
    for (std::uint32_t o = t.there ? 0 : writer + 2; o < n; ++o)
      if (below(4) == 0) t.how[o] = 1;
    if (t.there && std::count(t.how.begin(), t.how.end(), 1) == 0) t.how[below(n)] = 1;
  }
  operation_sequence s;
  s.reset(standing);
  for (const tensor& t : tensors) s.add_tensor(t.bytes, t.there, t.stays);
  for (std::uint32_t o = 0; o < n; ++o) {
    s.add_operation(below(4));
    for (std::uint32_t t = 0; t < tensors.size(); ++t)
      if (tensors[t].how[o] != 0) s.touch(t, tensors[t].how[o] == 2);
  }
  return s;
}

/// The fewest bytes while operation `k` runs, over all sets that may have run before it.
std::int64_t fewest(const operation_sequence& s, const least_peak::precedence& dag, std::uint32_t k) {
  std::int64_t best = -1;
  for (std::uint32_t set = 0; set < 1U << s.size(); ++set) {
    const auto has = [&](std::uint32_t o) { return (set >> o & 1U) != 0; };
    bool possible = !has(k);
    for (std::uint32_t o = 0; o < s.size() && possible; ++o)
      if (has(o) || o == k)
        for (const std::uint32_t p : dag.before(o)) possible = possible && has(p);
    if (!possible) continue;
    least_peak::memory_use memory(s);
    for (std::uint32_t o = 0; o < s.size(); ++o)  // their numbers are a topological order
      if (has(o)) memory.place(o);
    const std::int64_t bytes = memory.look(k).during;
    if (best < 0 || bytes < best) best = bytes;
  }
  return best;
}

struct no_limit {
  void work(std::uint64_t) noexcept {}
  [[nodiscard]] bool should_stop() const noexcept { return false; }
};
}  // namespace

TEST_CASE("the fewest bytes while an operation runs are those over all sets that may have run") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const operation_sequence s = random_sequence(seed, 2 + static_cast<std::uint32_t>(seed % 8));
    const least_peak::precedence dag(s);
    order_moment moment(s, dag);
    for (std::uint32_t k = 0; k < s.size(); ++k) {
      INFO("seed ", seed, ", operation ", k);
      const std::int64_t least = fewest(s, dag, k);
      CHECK(moment.bytes(k, [] { return false; }) == least);
      CHECK(moment.bytes(k, [] { return true; }) <= least);
    }
  }
}

TEST_CASE("the raised bound is the largest of all operations, and no order is below it") {
  std::size_t raised = 0, met = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const operation_sequence s = random_sequence(seed, 2 + static_cast<std::uint32_t>(seed % 7));
    const least_peak::precedence dag(s);
    std::vector<std::uint32_t> order(s.size());
    std::iota(order.begin(), order.end(), 0U);
    no_limit clock;
    const std::int64_t bound = raise_order_bound(s, dag, order, s.peak_bound(), clock);
    std::int64_t expected = s.peak_bound();
    for (std::uint32_t k = 0; k < s.size(); ++k) expected = std::max(expected, fewest(s, dag, k));
    CHECK(bound == expected);
    const std::int64_t least = s.peak(s.least_peak_order(1'000'000));
    CHECK(bound <= least);
    raised += bound > s.peak_bound();
    met += bound == least;
  }
  CHECK(raised > 10);
  CHECK(met > 100);
}
