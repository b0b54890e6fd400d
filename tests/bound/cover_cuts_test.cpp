// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/cover_cuts.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "support/long_run.hpp"

namespace {

using namespace remat::detail;

TEST_CASE("cover cuts hold for every set of whole items that fits, and cut off the point between") {
  int cuts = 0, lifted = 0;
  for (std::uint64_t seed = 0; seed < remat::test::num_cases(5000, 20000); ++seed) {
    std::mt19937_64 engine(seed);
    const std::size_t n = 3 + engine() % 8;
    std::vector<std::int64_t> bytes;
    const std::int64_t scale = seed % 5 ? 1 : std::int64_t{1} << 45;
    const std::uint64_t sizes = 1 + engine() % 12;
    std::int64_t all = 0;
    for (std::size_t j = 0; j < n; ++j) {
      bytes.push_back(scale * static_cast<std::int64_t>(1 + engine() % sizes));
      all += bytes.back();
    }
    const auto room = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(all + 1));
    std::vector<double> x;
    for (std::size_t j = 0; j < n; ++j)
      x.push_back(engine() % 3 ? static_cast<double>(engine() % 17) / 16 : static_cast<double>(engine() % 2));
    std::vector<cover_cut> found;
    cover_cuts(bytes, room).separate(x, 1e-4, found);
    for (const cover_cut& cut : found) {
      INFO("seed ", seed);
      ++cuts;
      double at = 0;
      bool is_lifted = false;
      for (std::size_t j = 0; j < n; ++j) {
        at += static_cast<double>(cut.factor[j]) * x[j];
        is_lifted = is_lifted || cut.factor[j] > 1;
      }
      lifted += is_lifted;
      REQUIRE(at > static_cast<double>(cut.most));
      for (std::uint32_t set = 0; set < (1U << n); ++set) {
        std::int64_t sum = 0, value = 0;
        for (std::size_t j = 0; j < n; ++j)
          if (set >> j & 1) {
            sum += bytes[j];
            value += cut.factor[j];
          }
        if (sum <= room) REQUIRE(value <= cut.most);
      }
    }
  }
  CHECK(cuts > 500);
  CHECK(lifted > 100);
}

}  // namespace
