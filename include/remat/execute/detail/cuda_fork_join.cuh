// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/execute/launch_plan.hpp"

namespace remat::detail {

namespace cuda {

/// How the streams of a plan are tied to stream 0, which is the caller's.
struct fork_and_join {
  /// Streams that must wait for the caller's stream, because their first launch waits for no event.
  std::vector<std::uint32_t> forks;
  /// Streams that the caller's stream must wait for, because the end of no other stream follows their end.
  std::vector<std::uint32_t> joins;
};

/// Finds how the streams of a plan are tied to stream 0. O(launches · streams) time.
[[nodiscard]] inline fork_and_join forks_and_joins(const launch_plan& plan) {
  const std::size_t k = plan.num_streams();
  fork_and_join out;
  // known[s · k + t]: the number of launches of stream t that the end of stream s follows; at_event likewise.
  std::vector<std::uint32_t> known(k * k, 0), at_event(plan.num_events() * k, 0);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const launch& l = plan.launches()[i];
    std::uint32_t* const mine = known.data() + l.stream * k;
    for (const std::uint32_t e : plan.waits(i))
      for (std::size_t s = 0; s < k; ++s) mine[s] = std::max(mine[s], at_event[e * k + s]);
    if (++mine[l.stream] == 1 && l.stream != 0 && plan.waits(i).empty()) out.forks.push_back(l.stream);
    if (l.event != launch::no_event) std::copy(mine, mine + k, at_event.data() + l.event * k);
  }
  const auto follows = [&](std::size_t s, std::size_t other) {  // the end of s follows the end of other
    return known[s * k + other] == known[other * k + other];
  };
  for (std::uint32_t s = 1; s < k; ++s) {
    bool joined = known[s * k + s] == 0;
    for (std::uint32_t other = 0; other < k; ++other) joined = joined || (other != s && follows(other, s));
    if (!joined) out.joins.push_back(s);
  }
  return out;
}

}  // namespace cuda

}  // namespace remat::detail
