// SPDX-License-Identifier: BSL-1.0
// The copies of measure-link, on a runtime that runs them at once: what is enqueued while the streams are held.
#include "support/cuda_at_once.hpp"

#include <doctest/doctest.h>

#include "measure_link/cuda_copies.cuh"
#include "measure_link/link_measurement.hpp"

namespace once = cuda_at_once;

TEST_CASE("the copies are held until all of them are enqueued") {
  measure_link::cuda_copies copies(1 << 16);
  for (const measure_link::traffic which :
       {measure_link::traffic::out, measure_link::traffic::in, measure_link::traffic::both}) {
    once::held_work = once::free_work = 0;
    const measure_link::copy_seconds found = copies.seconds(4096, 8, which);
    const int directions = which == measure_link::traffic::both ? 2 : 1;
    CHECK(once::held_work == 8 * directions + 3);  // and three events
    CHECK(once::free_work == 0);
    CHECK(once::holding == 0);
    CHECK((found.out > 0) == (which != measure_link::traffic::in));
    CHECK((found.in > 0) == (which != measure_link::traffic::out));
  }
}
