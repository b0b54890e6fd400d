// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/binomial.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace {

using namespace remat::detail::binomial;  // NOLINT: a test

TEST_CASE("the repetition number is the least r with C(s + r, r) at least l") {
  for (std::uint64_t s = 1; s < 12; ++s)
    for (std::uint64_t l = 1; l < 200; ++l) {
      std::uint64_t r = 0;
      for (std::uint64_t beta = 1; beta < l; ++r) beta = beta * (s + r + 1) / (r + 1);
      CHECK(repetitions(l, s) == r);
    }
}

TEST_CASE("the slopes of the cost are the repetition numbers") {
  for (std::uint64_t c = 0; c < 9; ++c)
    for (std::uint64_t l = 1; l < 150; ++l) CHECK(advances(l + 1, c) - advances(l, c) == repetitions(l + 1, c + 1));
}

TEST_CASE("the moves turn each step once, from the last to the first, and run as many steps as the formula says") {
  for (std::uint64_t c = 0; c < 7; ++c)
    for (std::uint64_t l = 1; l < 60; ++l) {
      CAPTURE(c);
      CAPTURE(l);
      walker<range> moves;
      moves.add({0, l, c});
      std::uint64_t left = l, run = 0;
      for (auto m = moves.next(equal_steps{}); m.kind != m.end; m = moves.next(equal_steps{})) {
        if (m.kind == m.advance) {
          CHECK(m.before.first == m.from);
          run += m.to - m.from;
        } else {
          CHECK(m.from == --left);
        }
      }
      CHECK(left == 0);
      CHECK(run == advances(l, c));
    }
}

TEST_CASE("ranges are reversed the last one first") {
  walker<range> moves;
  moves.add({0, 3, 1});
  moves.add({3, 7, 0});
  std::vector<std::uint64_t> turned;
  for (auto m = moves.next(equal_steps{}); m.kind != m.end; m = moves.next(equal_steps{}))
    if (m.kind == m.turn) turned.push_back(m.from);
  CHECK(turned == std::vector<std::uint64_t>{6, 5, 4, 3, 2, 1, 0});
}

}  // namespace
