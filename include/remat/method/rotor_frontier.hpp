// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/chain_schedule.hpp"
#include "remat/method/rotor.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

namespace detail::frontiers {
struct solved_table;
class frontier_solve;
}  // namespace detail::frontiers

/// The trade-off between the memory and the time of a chain's memory-persistent schedules: all Pareto-optimal pairs,
/// from one table. Copies share the table.
class chain_frontier {
 public:
  /// A budget, and the least time of a memory-persistent schedule within it.
  struct point {
    std::int64_t budget_bytes = 0;  ///< with x_0
    double time = 0;                ///< in the unit of the chain
  };

  /// Memory ascending, time falling.
  [[nodiscard]] std::span<const point> points() const noexcept { return points_; }
  /// True when the points are those of the optimum; false when sizes were rounded up to slots.
  [[nodiscard]] bool exact() const noexcept { return exact_; }
  /// `feasible`; without points, the reason: `infeasible`, `timeout`, `cancelled`, or `error` for a table too large.
  [[nodiscard]] solve_status status() const noexcept { return status_; }
  /// The point of the least budget whose time is at most `time`; null if there is none. O(log points) time.
  [[nodiscard]] const point* within(double time) const noexcept {
    const auto at = std::partition_point(points_.begin(), points_.end(), [&](const point& k) { return k.time > time; });
    return at == points_.end() ? nullptr : &*at;
  }
  /// The schedule of a point. O(steps · L) time. Precondition: k < points().size().
  [[nodiscard]] std::vector<chain_step> steps(std::size_t k) const;

 private:
  friend class detail::frontiers::frontier_solve;

  std::vector<point> points_;
  std::vector<std::int64_t> at_;  // of a point: the memory beside the input, in the table's unit
  std::shared_ptr<const detail::frontiers::solved_table> table_;
  bool exact_ = false;
  solve_status status_ = solve_status::timeout;
};

/// Solves a chain for every budget at once: the points whose time is at most `most_time`, up to the budget that keeps
/// everything. The first point is the least budget for that time. A small `most_time` makes the search much faster.
///
/// In the exact form points are in bytes. In slots, the budget of a point is the peak of its schedule; a slot is a part
/// of the budget that keeps everything, and `exact_gradient` counts as set. `automatic` is exact with at most 20
/// million breakpoints, else in slots. Polls as `rotor`. Throws `bad_argument` for options out of range and for a
/// `most_time` that is not a number.
[[nodiscard]] chain_frontier rotor_frontier(const chain& c, const rotor_options& options = {},
                                            double most_time = std::numeric_limits<double>::infinity());

/// The least budget, in bytes, within which a memory-persistent schedule exists. O(L³) time, O(L²) memory. Does not
/// poll.
[[nodiscard]] std::int64_t least_budget(const chain& c);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/rotor/impl/rotor_frontier.hpp"
#endif
