// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE::detail {

/// A choice of resident tensors at a moment that leaves few bytes unused. See `fill_moment`.
struct moment_filling {
  bool fits = false;                  ///< a choice within the free bytes was found; otherwise the rest is empty
  moment_choice choice{};             ///< its cost
  std::vector<tensor_id> resident{};  ///< its tensors beside the working set, ascending
};

/// Returns a cheap choice for a moment that nearly fills `free_bytes`.
///
/// At the best price of a byte, many choices often cost the same: each layer of a network may be dropped or held. The
/// cut shows only the two at the ends, and the one that fits may leave much unused. Here prices are tilted
/// (`moment_cut::tilt`), so that these tensors leave the choice one by one; bisection then finds the price at which the
/// choice just fits. It takes longer than the best choice of as many bytes by at most a tenth of price × bytes.
///
/// `price`: where the search begins, in time for a byte, such as the multiplier of a bound. At most 24 flows,
/// each as in `moment_cut::price`; ends early when less than a thousandth of the bytes is free, or when `stop()`
/// returns true. Precondition: `cut` is at the moment, and nothing is fixed. It is left tilted.
[[nodiscard]] inline moment_filling fill_moment(moment_cut& cut, std::int64_t free_bytes, double price,
                                                const std::function<bool()>& stop = {}) {
  constexpr std::uint32_t max_flows = 24;
  constexpr double strength = 0.1;
  moment_filling found;
  if (free_bytes < 0) return found;
  cut.tilt(strength);
  const double highest = cut.highest_price() / (1 + strength);
  double below = 0, above = std::numeric_limits<double>::infinity();  // prices whose choices exceed the bytes, and fit
  double at = std::min(price > 0 ? price : highest * 0x1p-40, highest);
  for (std::uint32_t flow = 0; flow < max_flows; ++flow) {
    cut.price(at, stop);
    if (!cut.complete()) break;
    const moment_choice c = cut.choice();
    if (c.bytes > free_bytes) {
      if (at >= highest) break;
      below = at;
      cut.keep();
    } else {
      above = at;
      if (!found.fits || c.bytes > found.choice.bytes || (c.bytes == found.choice.bytes && c.time < found.choice.time))
        found = {true, c, cut.resident()};
      if (static_cast<double>(free_bytes - c.bytes) < 1e-3 * static_cast<double>(free_bytes)) break;
    }
    const double next = below == 0 ? above / 2 : above > highest ? std::min(2 * below, highest) : (below + above) / 2;
    if (next == at || (flow > 6 && above - below < 1e-6 * below)) break;
    at = next;
  }
  return found;
}

}  // namespace REMAT_NAMESPACE::detail
