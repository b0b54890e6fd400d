// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/refined.hpp"

#include <new>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/method/impl/refinement_steps.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE solution refined_solver::operator()(const problem& p, const refined_options& options) const {
  run_clock clock(options.run, name);
  require_valid_options(name, options);
  detail::require_no_link(p, name);
  detail::refinement_steps steps(p, options);
  clock.watch(steps.best().time, steps.best().lower_bound);
  try {
    stop_reason stopped = steps.open(clock);
    if (stopped == stop_reason::none) stopped = steps.go_on(clock);
    conclude(p, steps.best(), clock, stopped);
  } catch (const std::bad_alloc&) {
    conclude_out_of_memory(steps.best(), clock);
  }
  return std::move(steps.best());
}

}  // namespace REMAT_NAMESPACE
