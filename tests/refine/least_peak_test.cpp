// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/least_peak.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::problem;
using remat::detail::operation_sequence;

struct tensor {
  std::int64_t bytes = 0;
  bool there = false, stays = false;
};
struct operation {
  std::int64_t own = 0;
  std::vector<std::uint32_t> reads{}, writes{};
};
struct stage {
  std::int64_t standing = 0;
  std::vector<tensor> tensors{};
  std::vector<operation> operations{};
};

/// Each tensor has up to two writers, before its readers.
stage random_stage(std::uint64_t seed, std::uint32_t operations) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(engine() % n); };
  stage s;
  for (std::uint32_t t = 0; t < 3; ++t) {  // from before
    s.tensors.push_back({below(9), true, below(3) == 0});
    s.standing += s.tensors.back().bytes;
  }
  std::vector<std::uint8_t> read(3, 1);
  for (std::uint32_t o = 0; o < operations; ++o) {
    operation k;
    k.own = below(4);
    const auto made = static_cast<std::uint32_t>(s.tensors.size());
    for (std::uint32_t t = 0; t < made; ++t)
      if (below(made) < 2) k.reads.push_back(t), read[t] = 1;
    for (std::uint32_t t = 3; t < made; ++t)
      if (read[t] == 0 && below(4) == 0) k.writes.push_back(t);
    for (std::uint32_t w = below(3); w > 0; --w) {
      k.writes.push_back(static_cast<std::uint32_t>(s.tensors.size()));
      s.tensors.push_back({below(9), false, below(4) == 0});
      read.push_back(0);
    }
    s.operations.push_back(k);
  }
  return s;
}

void fill(operation_sequence& to, const stage& s) {
  to.reset(s.standing);
  for (const tensor& t : s.tensors) to.add_tensor(t.bytes, t.there, t.stays);
  for (const operation& o : s.operations) {
    to.add_operation(o.own);
    for (const std::uint32_t t : o.reads) to.touch(t, false);
    for (const std::uint32_t t : o.writes) to.touch(t, true);
  }
}

bool touches(const operation& o, std::uint32_t t) {
  return std::count(o.reads.begin(), o.reads.end(), t) + std::count(o.writes.begin(), o.writes.end(), t) > 0;
}

/// By the definition: what is there while each operation runs. -1: a read before a write.
std::int64_t peak_of(const stage& s, const std::vector<std::uint32_t>& order) {
  std::vector<std::uint32_t> at(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) at[order[i]] = i;
  for (const operation& o : s.operations)
    for (const operation& other : s.operations)
      for (const std::uint32_t t : o.reads)
        if (std::count(other.writes.begin(), other.writes.end(), t) > 0 &&
            at[static_cast<std::size_t>(&other - s.operations.data())] >
                at[static_cast<std::size_t>(&o - s.operations.data())])
          return -1;
  std::int64_t kept = s.standing, most = s.standing;
  for (const tensor& t : s.tensors) kept -= t.there ? t.bytes : 0;  // what is there at the start is counted below
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    std::int64_t bytes = kept + s.operations[order[i]].own;
    for (std::uint32_t t = 0; t < s.tensors.size(); ++t) {
      bool before = s.tensors[t].there, after = s.tensors[t].stays, touched = false;
      for (std::uint32_t k = 0; k < order.size(); ++k) {
        if (!touches(s.operations[order[k]], t)) continue;
        touched = true;
        before = before || k <= i;
        after = after || k >= i;
      }
      if (touched ? before && after : s.tensors[t].there) bytes += s.tensors[t].bytes;
    }
    most = std::max(most, bytes);
  }
  return most;
}

TEST_CASE("the peak is what the definition counts, and the order the best of all where the search is exact") {
  int better = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const stage s = random_stage(seed, 1 + static_cast<std::uint32_t>(seed % 6));
    operation_sequence sequence;
    fill(sequence, s);
    std::vector<std::uint32_t> order(s.operations.size());
    std::iota(order.begin(), order.end(), 0U);
    const std::int64_t given = peak_of(s, order);
    CHECK(sequence.peak(order) == given);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::vector<std::uint32_t> any = order;
    do {
      const std::int64_t peak = peak_of(s, any);
      if (peak < 0) continue;
      CHECK(sequence.peak(any) == peak);
      least = std::min(least, peak);
    } while (std::next_permutation(any.begin(), any.end()));
    const std::vector<std::uint32_t> best = sequence.least_peak_order(1000);
    CHECK(peak_of(s, best) == least);
    if (least == given) CHECK(best == order);
    better += least < given;
    const std::int64_t listed = peak_of(s, sequence.least_peak_order(0));  // list schedules
    CHECK(listed >= least);
    CHECK(listed <= given);
  }
  CHECK(better > 50);
}

TEST_CASE("many operations: legal, never worse, often better") {
  int better = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const stage s = random_stage(seed, 30 + static_cast<std::uint32_t>(seed));  // below and above 64
    operation_sequence sequence;
    fill(sequence, s);
    std::vector<std::uint32_t> order(s.operations.size());
    std::iota(order.begin(), order.end(), 0U);
    const std::vector<std::uint32_t> best = sequence.least_peak_order(500);
    const std::int64_t peak = peak_of(s, best);
    REQUIRE(peak >= 0);
    CHECK(peak == sequence.peak(best));
    CHECK(peak <= sequence.peak(order));
    better += peak < sequence.peak(order);
  }
  CHECK(better > 20);
}

TEST_CASE("the peak that the search states is the checker's, for any rule and limit") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 40;
    const problem p = remat::test::random_problem(seed, options);
    remat::detail::least_peak_options search;
    search.exact_states = seed % 2 ? 100'000 : 10;
    search.moves = 200;
    search.run.work_limit = seed % 3 == 0 ? seed * 7 : remat::run_control::no_work_limit;
    const remat::detail::least_peak_order_result found = remat::detail::least_peak_order(p, search);
    const remat::check_report report = remat::check(p, remat::schedule_computes(p.graph(), found.operations));
    CHECK(report.valid());
    CHECK(report.peak_bytes == found.peak_bytes);
    CHECK(report.recomputes == 0);
    std::vector<std::uint32_t> listed;
    for (std::uint32_t k = 0; k < p.graph().num_operations; ++k)
      if (p.graph().needed[k]) listed.push_back(k);
    CHECK(found.peak_bytes <= remat::check(p, remat::schedule_computes(p.graph(), listed)).peak_bytes);
    CHECK(remat::detail::least_peak_order(p, search).operations == found.operations);
  }
}

}  // namespace
