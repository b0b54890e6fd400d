// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/engine_times.hpp"

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/detail/engine_clocks.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE engine_times engine_times_of(const problem& p, std::span<const step> steps) {
  if (const check_report report = check(p, steps); !report.valid())
    throw bad_argument("only a legal schedule has times: " + report.message());
  const flat_graph& g = p.graph();
  engine_times out;
  out.steps.reserve(steps.size());
  // Without a link nothing is copied, and any link gives the same times.
  detail::engine_replay replay(g, p.link().value_or(host_link{}));
  for (const step x : steps) {
    const step_times now = replay.run(x);
    out.steps.push_back(now);
    if (const auto e = engine_of(x.kind())) out.busy[static_cast<std::size_t>(*e)] += now.end - now.begin;
  }
  out.makespan = replay.end();
  return out;
}

}  // namespace REMAT_NAMESPACE
