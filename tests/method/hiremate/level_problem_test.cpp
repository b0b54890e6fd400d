// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/impl/level_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"

#include "support/random_level.hpp"
#include "support/valid_level.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test
using choices = std::vector<level_problem::choice>;

/// Two sub-graphs, the first with two options: forward 0 keeps tensor 1 (fast) or tensor 2 (small) beside its output 0,
/// or nothing.
level_problem small_level() {
  level_problem p;
  p.bytes = {10, 40, 5, 20, 8, 3};  // output of 0, kept 0, kept 1, kept of 1, gradient of output, result
  p.runs = {{true, {{1, 50, {}, {0, 1}, {}}, {2, 30, {}, {0, 2}, {}}, {1, 12, {}, {0}, {}}}},
            {true, {{3, 25, {0}, {3}, {}}}},
            {false, {{4, 10, {0, 3}, {4}, {}}}},
            {false, {{2, 6, {1, 4}, {5}, {}}, {5, 16, {2, 4}, {5}, {}}}}};
  p.outputs = {5};
  return p;
}

std::string error_of(const level_problem& p) {
  try {
    test::require_valid(p);
  } catch (const bad_argument& e) {
    return e.what();
  }
  return "";
}

/// From the definition by words: at each choice, look ahead for what each tensor is wanted for.
std::int64_t peak_by_looking_ahead(const level_problem& p, const choices& c) {
  const auto reads = [&](std::size_t i, std::uint32_t x) {
    const auto& list = p.runs[c[i].run].variants[c[i].variant].reads;
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  const auto writes = [&](std::size_t i, std::uint32_t x) {
    const auto& list = p.runs[c[i].run].variants[c[i].variant].writes;
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  const auto output = [&](std::uint32_t x) {
    return std::find(p.outputs.begin(), p.outputs.end(), x) != p.outputs.end();
  };
  const auto there = [&](std::size_t i, std::uint32_t x) {  // between choices i - 1 and i
    std::set<std::uint32_t> writers;
    for (std::size_t j = 0; j < c.size(); ++j)
      if (writes(j, x)) writers.insert(c[j].run);
    bool begun = false;
    for (std::size_t j = 0; j < i; ++j) begun = begun || writes(j, x);
    if (!begun) return false;
    if (output(x) && writers.size() > 1) return true;
    for (std::size_t j = i; j < c.size(); ++j) {
      if (reads(j, x)) return true;
      if (writes(j, x)) return writers.size() > 1;
    }
    return output(x);
  };
  std::int64_t peak = 0;
  for (std::size_t i = 0; i <= c.size(); ++i) {
    std::int64_t now = 0;
    for (std::uint32_t x = 0; x < p.bytes.size(); ++x) now += there(i, x) ? p.bytes[x] : 0;
    peak = std::max(peak, now);
    if (i == c.size()) break;
    const auto& v = p.runs[c[i].run].variants[c[i].variant];
    peak = std::max(peak, now + v.peak_bytes);
    for (const auto& inner : v.inner) {
      std::int64_t half_way = now + inner.bytes;
      for (const std::uint32_t x : inner.gone) half_way -= there(i + 1, x) ? 0 : p.bytes[x];
      peak = std::max(peak, half_way);
    }
  }
  return peak;
}

}  // namespace

TEST_CASE("known sequences: time and peak by hand") {
  const level_problem p = small_level();
  REQUIRE(error_of(p).empty());
  const level_report all = simulate_level(p, choices{{0, 0}, {1, 0}, {2, 0}, {3, 0}});
  CHECK(all.legal);
  CHECK(all.message.empty());
  CHECK(all.time == 10);
  CHECK(all.peak_bytes == 80);  // run 2: 10 + 40 + 20 there, and 10
  const level_report small = simulate_level(p, choices{{0, 1}, {1, 0}, {2, 0}, {3, 1}});
  CHECK(small.legal);
  CHECK(small.time == 14);
  CHECK(small.peak_bytes == 45);  // run 2: 10 + 5 + 20 there, and 10
  const level_report again = simulate_level(p, choices{{0, 2}, {1, 0}, {2, 0}, {0, 1}, {3, 1}});
  CHECK(again.legal);
  CHECK(again.time == 15);
  CHECK(again.peak_bytes == 40);  // run 2: 10 + 20 there, and 10
  // A run again in vain, and what is there counts twice while it is made again.
  const level_report vain = simulate_level(p, choices{{0, 1}, {1, 0}, {0, 2}, {2, 0}, {3, 1}});
  CHECK(vain.legal);
  CHECK(vain.time == 15);
  CHECK(vain.peak_bytes == 45);
}

TEST_CASE("a tensor that several runs write: from the first to the last, and to its last read") {
  level_problem p;
  p.bytes = {8, 100, 1};
  p.runs = {{false, {{1, 8, {}, {0}, {}}}},
            {false, {{1, 100, {}, {1}, {}}}},
            {false, {{1, 5, {}, {0}, {}}}},
            {false, {{1, 1, {0}, {2}, {}}}}};
  p.outputs = {2};
  REQUIRE(error_of(p).empty());
  CHECK(simulate_level(p, choices{{0, 0}, {1, 0}, {2, 0}, {3, 0}}).peak_bytes == 108);
  p.runs.pop_back();
  p.outputs.clear();
  p.bytes.pop_back();
  CHECK(simulate_level(p, choices{{0, 0}, {1, 0}, {2, 0}}).peak_bytes == 108);  // even if nobody wants it
}

TEST_CASE("inner peaks: what a later choice needs is not gone") {
  level_problem p;
  p.bytes = {30, 4, 4};
  p.runs = {{true, {{1, 30, {}, {0}, {}}}}, {false, {{1, 10, {0}, {1}, {{20, {0}}}}}}, {false, {{1, 4, {0}, {2}, {}}}}};
  p.outputs = {1, 2};
  REQUIRE(error_of(p).empty());
  CHECK(simulate_level(p, choices{{0, 0}, {1, 0}, {2, 0}}).peak_bytes == 50);
  // Made again, it may be gone half-way: 30 + 10 counts.
  CHECK(simulate_level(p, choices{{0, 0}, {1, 0}, {0, 0}, {2, 0}}).peak_bytes == 40);
}

TEST_CASE("sequences that are no schedules: the first wrong choice, and why") {
  const level_problem p = small_level();
  const auto says = [&](const choices& c, std::size_t wrong, const char* why) {
    const level_report r = simulate_level(p, c);
    INFO(r.message);
    CHECK_FALSE(r.legal);
    CHECK(r.wrong == wrong);
    CHECK(r.message.find(why) != std::string::npos);
  };
  says({{0, 0}, {4, 0}}, 1, "run 4 does not exist");
  says({{0, 3}}, 0, "run 0 has no variant 3");
  says({{0, 0}, {2, 0}}, 1, "run 2 takes place before run 1");
  says({{0, 0}, {1, 0}, {2, 0}, {2, 0}}, 3, "takes place twice");
  says({{0, 0}, {1, 0}, {2, 0}, {3, 1}}, 3, "reads tensor 2, which is not there");
  says({{0, 0}, {1, 0}, {2, 0}}, 3, "run 3 does not take place");
  level_problem q = p;
  q.outputs = {2};
  const level_report r = simulate_level(q, choices{{0, 0}, {1, 0}, {2, 0}, {3, 0}});
  CHECK_FALSE(r.legal);
  CHECK(r.message.find("output 2 has not been written") != std::string::npos);
}

TEST_CASE("levels that are none: the place, and what would be right") {
  const auto broken = [](const std::function<void(level_problem&)>& change) {
    level_problem p = small_level();
    change(p);
    return error_of(p);
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(broken([](auto& p) { p.runs[1].variants.clear(); }), "run 1 has no variant; expected at least one");
  has(broken([](auto& p) {
        p.runs[2].variants[0].reads = {0, 6};
      }),
      "run 2, variant 0, reads: tensor 6 does not exist");
  has(broken([](auto& p) { p.runs[0].variants[1].writes = {9}; }), "run 0, variant 1, writes: tensor 9 does not exist");
  has(broken([](auto& p) { p.outputs = {7}; }), "outputs: tensor 7 does not exist; there are 6");
  has(broken([](auto& p) { p.runs[2].variants[0].reads = {3, 0}; }), "expected ascending tensors");
  has(broken([](auto& p) { p.bytes[1] = -1; }), "tensor 1 has -1 bytes");
  has(broken([](auto& p) { p.bytes[1] = p.bytes[2] = std::int64_t{1} << 59; }), "more than 2^60 bytes");
  has(broken([](auto& p) { p.runs[0].variants[0].time = -2; }), "run 0, variant 0: the time is");
  has(broken([](auto& p) { p.runs[0].variants[0].peak_bytes = -2; }), "peak_bytes is -2");
  has(broken([](auto& p) { p.runs[0].variants[0].inner = {{3, {0}}}; }), "a tensor that the variant does not read");
  has(broken([](auto& p) { p.runs[0].variants[0].inner = {{-3, {}}}; }), "inner peak 0 is -3");
  has(broken([](auto& p) { p.bytes.push_back(1), p.runs[1].variants[0].reads = {6}; }), "which no run writes");
  has(broken([](auto& p) { p.bytes.push_back(1), p.outputs = {5, 6}; }), "outputs has tensor 6, which no run writes");
  has(broken([](auto& p) { p.runs[1].variants[0].reads = {4}; }), "which run 2 writes");
  has(broken([](auto& p) { p.runs[1].variants[0].reads = {3}; }), "which run 1 writes");
  has(broken([](auto& p) {
        p.runs[1].variants[0].writes = {3, 5};
      }),
      "run 1 is marked again, but it is one of several");
  has(broken([](auto& p) {
        p.runs[1].again = false;
        p.runs[1].variants[0].writes = {3, 5};
        p.runs[3].variants[0].writes = {};
      }),
      "run 3, variant 0 does not write tensor 5 as variant 1 does");
}

TEST_CASE("random sequences: the peak is what looking ahead at each moment says; runs in vain only cost") {
  std::size_t legal = 0, shorter = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const level_problem p = test::random_level(seed);
    INFO("seed ", seed);
    REQUIRE(error_of(p).empty());
    std::mt19937_64 engine(seed);
    choices c;
    for (std::uint32_t k = 0; k < p.runs.size(); ++k) {
      for (std::uint32_t j = 0; j < k; ++j)
        if (p.runs[j].again && engine() % 4 == 0)
          c.push_back({j, static_cast<std::uint32_t>(engine() % p.runs[j].variants.size())});
      c.push_back({k, static_cast<std::uint32_t>(engine() % p.runs[k].variants.size())});
    }
    const level_report r = simulate_level(p, c);
    if (!r.legal) continue;
    ++legal;
    REQUIRE(r.peak_bytes == peak_by_looking_ahead(p, c));
    const choices fewer = without_runs_in_vain(p, c);
    const level_report s = simulate_level(p, fewer);
    INFO(s.message);
    REQUIRE(s.legal);
    REQUIRE(s.peak_bytes <= r.peak_bytes);
    REQUIRE(s.time <= r.time);
    REQUIRE(without_runs_in_vain(p, fewer) == fewer);
    shorter += fewer.size() < c.size();
  }
  MESSAGE(legal, " legal, ", shorter, " with runs in vain");
  CHECK(legal > 100);
  CHECK(shorter > 50);
}
