// SPDX-License-Identifier: BSL-1.0
#include "remat/problem/problem.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "remat/core/error.hpp"

namespace {

using remat::host_link;

std::string error_of(const host_link& link) {
  try {
    remat::require_valid(link);
  } catch (const remat::bad_argument& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a copy takes the latency and its bytes at the speed of its direction") {
  constexpr host_link link{.out = 10, .in = 4, .latency = 0.5};
  static_assert(link.time_out(20) == 2.5);
  static_assert(link.time_in(20) == 5.5);
  static_assert(link.time_in(0) == 0.5);
  static_assert(host_link{} == host_link{25e9, 25e9, 1e-5});
}

TEST_CASE("links that are none are refused by the name of the field") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string speed = "; it must be a positive finite speed, in bytes per unit of time";
  CHECK(error_of({}) == "none");
  CHECK(error_of({.latency = 0}) == "none");
  CHECK(error_of({.out = 0}) == "link: out is 0" + speed);
  CHECK(error_of({.out = -3}) == "link: out is -3" + speed);
  CHECK(error_of({.out = infinity}) == "link: out is inf" + speed);
  CHECK(error_of({.out = 1e-300}) == "link: out is 1e-300" + speed);  // 2^63 bytes would take no finite time
  CHECK(error_of({.in = 0}) == "link: in is 0" + speed);
  CHECK(error_of({.in = nan}) == "link: in is nan" + speed);
  CHECK(error_of({.latency = -1e-9}) == "link: latency is -1e-09; it must be a finite time, not negative");
  CHECK(error_of({.latency = infinity}) == "link: latency is inf; it must be a finite time, not negative");
}
