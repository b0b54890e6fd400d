// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <new>

#include "remat/core/run.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE::detail {

/// Ends a solve in the one way: runs `body()`, which returns why it stopped early; then `conclude`, which proves a
/// bound and sets the status; then `after()`, which may add to the message. If memory runs out in any of them, the
/// answer is what `best` holds by then (`conclude_out_of_memory`); if that is no schedule, `std::bad_alloc` leaves the
/// function. `p` and `best` are of a graph or of a chain.
template <class Problem, class Solution, class Body, class After>
void run_to_end(const Problem& p, Solution& best, const run_clock& clock, Body&& body, After&& after) {
  try {
    conclude(p, best, clock, body());
    after();
  } catch (const std::bad_alloc&) {
    conclude_out_of_memory(best, clock);
  }
}
template <class Problem, class Solution, class Body>
void run_to_end(const Problem& p, Solution& best, const run_clock& clock, Body&& body) {
  run_to_end(p, best, clock, body, [] {});
}

}  // namespace REMAT_NAMESPACE::detail
