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
  detail::engine_clocks clocks(g, p.link().value_or(host_link{}));
  std::vector<std::uint8_t> allocated(g.num_tensors, 0);
  const auto run = [&](step x) {
    const auto id = static_cast<std::uint32_t>(x.is_compute() ? index(x.operation()) : index(x.tensor()));
    switch (x.kind()) {
      case step_kind::compute:
        for (const std::uint32_t t : g.outputs[id])
          if (allocated[t] == 0) {
            allocated[t] = 1;
            clocks.allocate(t);
          }
        return clocks.compute(id);
      case step_kind::free:
        allocated[id] = 0;
        return clocks.free(id);
      case step_kind::offload:
        return clocks.offload(id);
      case step_kind::prefetch:
        allocated[id] = 1;
        return clocks.prefetch(id);
      case step_kind::drop:
        break;
    }
    return clocks.drop(id);
  };
  for (const step x : steps) {
    const step_times now = run(x);
    out.steps.push_back(now);
    if (const auto e = engine_of(x.kind())) out.busy[static_cast<std::size_t>(*e)] += now.end - now.begin;
  }
  out.makespan = clocks.end();
  return out;
}

}  // namespace REMAT_NAMESPACE
