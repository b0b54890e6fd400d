// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/highest_point.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace remat::detail;

plane plane_of(double constant, std::vector<double> slopes) {
  plane x{.constant = constant};
  std::copy(slopes.begin(), slopes.end(), x.slope.begin());
  return x;
}

plane_limit limit_of(double most, std::vector<double> weights) {
  plane_limit x{.limit = most};
  std::copy(weights.begin(), weights.end(), x.weight.begin());
  return x;
}

TEST_CASE("by hand: two planes meet, and a limit stops a rise") {
  // 1 + y and 5 − 3y meet at y = 1.
  const std::vector<plane> roof{plane_of(1, {1}), plane_of(5, {-3})};
  const plane_optimum top = highest_point(roof, std::vector{limit_of(10, {1})}, 1);
  CHECK(top.y[0] == doctest::Approx(1));
  CHECK(top.value == doctest::Approx(2));
  CHECK(highest_point(roof, std::vector{limit_of(0.5, {1})}, 1).value == doctest::Approx(1.5));
  // A plane that falls everywhere: the origin.
  CHECK(highest_point(std::vector{plane_of(-4, {-1, -2})}, std::vector{limit_of(1, {1, 1})}, 2).value == -4);
  // y0 + y1 ≤ 1, and 2·y0 + y1 is highest at y0 = 1.
  const plane_optimum corner = highest_point(std::vector{plane_of(0, {2, 1})}, std::vector{limit_of(1, {1, 1})}, 2);
  CHECK(corner.y[0] == doctest::Approx(1));
  CHECK(corner.value == doctest::Approx(2));
  // No variable may be above 0.
  CHECK(highest_point(roof, {}, 0).value == 1);
}

TEST_CASE("no random point within the limits is higher") {
  std::mt19937_64 engine(7);
  const auto number = [&](double from, double to) { return std::uniform_real_distribution<double>(from, to)(engine); };
  for (int round = 0; round < 500; ++round) {
    const std::size_t variables = 1 + engine() % 6;
    std::vector<plane> planes(1 + engine() % 30);
    for (plane& x : planes) {
      x.constant = number(-5, 5);
      for (std::size_t i = 0; i < variables; ++i) x.slope[i] = number(-3, 3);
    }
    std::vector<plane_limit> limits;
    for (std::size_t i = 0; i < variables; ++i) {
      limits.push_back({});
      limits.back().weight[i] = 1;
      limits.back().limit = number(0, 2);
    }
    const plane_optimum top = highest_point(planes, limits, variables);
    const auto value_at = [&](const auto& y) {
      double least = std::numeric_limits<double>::infinity();
      for (const plane& x : planes) least = std::min(least, x.at(y));
      return least;
    };
    CHECK(top.value == doctest::Approx(value_at(top.y)));
    for (std::size_t i = 0; i < variables; ++i) {
      CHECK(top.y[i] >= 0);
      CHECK(top.y[i] <= limits[i].limit * (1 + 1e-9) + 1e-9);
    }
    for (int tries = 0; tries < 100; ++tries) {
      auto y = top.y;
      const double part = tries % 2 == 0 ? 1 : number(0, 1);  // anywhere, or near the point
      for (std::size_t i = 0; i < variables; ++i) y[i] += part * part * part * (number(0, limits[i].limit) - y[i]);
      CHECK(value_at(y) <= top.value + 1e-9);
    }
  }
}

}  // namespace
