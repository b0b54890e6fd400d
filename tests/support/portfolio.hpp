// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "remat/bound/turnaround.hpp"
#include "remat/core/run.hpp"
#include "remat/method/evict.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/schedule/check.hpp"

namespace remat::test {

/// A problem whose parts are tried: with the bound at one moment and a schedule of `evict`.
struct opened_pool {
  /// `evicts`: whether there is a schedule.
  explicit opened_pool(const problem& whole, bool evicts = true) : p(whole), analysis(whole), known(whole) {
    known.put_moment(analysis.bound(whole.budget()));
    if (solution s = evict(whole); evicts && s.plan) known.put(s);
  }
  opened_pool(const opened_pool&) = delete;
  opened_pool& operator=(const opened_pool&) = delete;

  /// Runs a slice of so many units of work, and puts what it finds into the pool. Checks that a schedule of the slice
  /// is within the budget, and that its bound is below the best schedule.
  detail::part_slice run(const detail::portfolio_part& part, std::uint64_t work, std::uint64_t seed = 0) {
    run_clock clock({.work_limit = work, .seed = seed});
    detail::part_slice slice = part.run(known.view(), clock);
    last_work = clock.work_done();
    if (slice.found.plan) {
      const check_report report = check(p, *slice.found.plan);
      CHECK(report.valid());
      CHECK(report.time == slice.found.time);
    }
    detail::part_slice kept = slice;
    known.put(slice.found, part.name);
    if (part.publish) known.note(part.publish);
    if (known.best().plan) CHECK(known.best().lower_bound <= known.best().time * (1 + 1e-12));
    return kept;
  }

  problem p;
  turnaround_analysis analysis;
  detail::pool known;
  detail::part_setting setting{p, "refined", 200, 2, 0, analysis};
  std::uint64_t last_work = 0;  ///< of the last slice
};

}  // namespace remat::test
