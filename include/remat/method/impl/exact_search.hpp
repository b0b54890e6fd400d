// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "remat/problem/problem.hpp"
#include "remat/refine/detail/backward_states.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail::exact_solve {

/// How an exact search ended.
class search_end {
 public:
  /// True: the search is exhaustive. Either `found()`, or no schedule is faster than the incumbent.
  [[nodiscard]] bool complete() const noexcept { return complete_; }
  [[nodiscard]] bool found() const noexcept { return goal_ != write_sets::none; }
  /// The proven lower bound when the search ended.
  [[nodiscard]] double bound() const noexcept { return below(bound_); }

 protected:
  explicit search_end(std::uint32_t num_operations) : num_operations_(num_operations) {}

  /// Less than `time` by more than its sums can have rounded up: that of a closure adds up the times of eight
  /// operations at once, and some more numbers follow.
  [[nodiscard]] double below(double time) const noexcept { return time * (1 - 0x1p-52 * (num_operations_ / 8 + 64)); }

  double bound_ = 0;
  std::uint32_t num_operations_;
  std::uint32_t goal_ = write_sets::none;  // the state from which the schedule begins
  bool complete_ = false;
};

/// Takes over what an ended search of `solver` has found and proven. `fits` ends the message that no schedule exists.
template <class Search>
void take_search(const problem& p, Search& search, std::string_view solver, const char* fits, solution& best) {
  if (search.found()) accept(p, best, search.schedule_found(), solver);
  best.lower_bound = std::max(best.lower_bound, search.bound());  // infinite if there is no schedule
  if (search.complete() && best.lower_bound == std::numeric_limits<double>::infinity()) {
    best.status = solve_status::infeasible;
    best.message = std::string("proven by exhaustive search: no schedule ") + fits;
  }
}

}  // namespace REMAT_NAMESPACE::detail::exact_solve
