// SPDX-License-Identifier: BSL-1.0
#include "remat/memory/detail/squeeze.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/memory/detail/skyline.hpp"
#include "support/packing.hpp"
#include "support/random_intervals.hpp"

using namespace remat;          // NOLINT: a test
using namespace remat::detail;  // NOLINT: a test

TEST_CASE("a squeezed packing is valid and within the height; one that fails is left as it was") {
  std::size_t squeezed = 0, failed = 0, moves = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto all = test::random_intervals(seed, 30 + seed % 100, 40, 1000);
    for (packing_component& c : divide_intervals(all, 1)) {
      if (c.blocks() < 20) continue;
      std::vector<std::int64_t> offset = skyline_packer(c)(ranks_by(block_property::size, c));
      c.keep_if_lower(offset);
      for (const push_policy policy : {push_policy::never, push_policy::sometimes, push_policy::always}) {
        const std::int64_t capacity = c.load + c.load / (seed % 2 == 0 ? 20 : 500);
        const run_control control;
        run_clock clock(control);
        squeezer squeeze(c, clock, seed);
        std::vector<std::int64_t> found = c.offset;
        const bool fits = squeeze(capacity, found, policy, 300'000);
        moves += squeeze.moves();
        if (!fits) {
          ++failed;
          CHECK(found == c.offset);
          CHECK(clock.work_done() >= 300'000);
          continue;
        }
        ++squeezed;
        packing_component result = c;
        result.offset.clear();
        result.keep_if_lower(found);
        CHECK(result.height <= capacity);
        CHECK(test::is_packing_valid(result, all));
      }
    }
  }
  CHECK(squeezed >= 60);
  CHECK(failed >= 5);
  CHECK(moves >= 1000);
}

TEST_CASE("a stop request ends a squeeze and a repacking before the first move") {
  const auto all = test::random_intervals(1, 200, 60, 1000);
  packing_component c = divide_intervals(all, 1)[0];
  std::vector<std::int64_t> offset = skyline_packer(c)(ranks_by(block_property::size, c));
  c.keep_if_lower(offset);
  std::stop_source source;
  source.request_stop();
  run_control control;
  control.stop = source.get_token();
  run_clock clock(control);
  squeezer squeeze(c, clock, 0);
  offset = c.offset;
  CHECK_FALSE(squeeze(c.load, offset, push_policy::always, run_control::no_work_limit));
  CHECK(squeeze.moves() == 0);
  std::uint64_t moves = 0;
  CHECK_FALSE(repack(c, c.load + 1, push_policy::never, run_control::no_work_limit, clock, 0, moves));
  CHECK(moves == 0);
}

TEST_CASE("repacking keeps to the height that it is given, and keeps blocks apart") {
  std::size_t packed = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto all = test::random_intervals(seed, 40 + seed % 200, 60, seed % 2 == 0 ? 1000 : 50);
    for (packing_component& c : divide_intervals(all, 1)) {
      if (c.blocks() < 20) continue;
      const std::int64_t capacity = c.load + c.load / (seed % 3 == 0 ? 200 : 25);
      const run_control control;
      run_clock clock(control);
      std::uint64_t moves = 0;
      const push_policy policy = seed % 2 == 0 ? push_policy::never : push_policy::sometimes;
      if (!repack(c, capacity, policy, 200'000, clock, seed, moves)) {
        CHECK(c.offset.empty());
        ++refused;
        continue;
      }
      ++packed;
      CHECK(c.height <= capacity);
      CHECK(test::is_packing_valid(c, all));
    }
  }
  CHECK(packed >= 40);
  CHECK(packed + refused >= 60);
}
