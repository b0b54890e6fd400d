// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/lifetime.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"

namespace remat {

REMAT_INLINE lifetimes lifetimes_of(const problem& p, std::span<const step> steps) {
  constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max() - 1;
  if (const check_report report = check(p, steps); !report.valid())
    throw bad_argument("only a legal schedule has lifetimes: " + report.message());
  if (steps.size() > most) throw bad_argument("the schedule has 2^32 − 1 or more steps");
  const flat_graph& g = p.graph();
  lifetimes out;
  std::size_t computes = 0;
  for (const step& x : steps) computes += x.is_compute();
  out.allocations.reserve(computes * 2);
  out.inputs.begin.reserve(steps.size() + 1);
  out.outputs.begin.reserve(steps.size() + 1);
  out.workspace.assign(steps.size(), lifetimes::no_allocation);
  std::vector<std::uint32_t> now(g.num_tensors, lifetimes::no_allocation);  // of a tensor: its present allocation
  const auto end = static_cast<std::uint32_t>(steps.size());
  for (std::uint32_t i = 0; i < end; ++i) {
    if (steps[i].is_free()) {
      std::uint32_t& a = now[index(steps[i].tensor())];
      out.allocations[a].last = i;
      a = lifetimes::no_allocation;
    } else {
      const auto o = static_cast<std::uint32_t>(index(steps[i].operation()));
      for (const std::uint32_t t : g.inputs[o]) out.inputs.values.push_back(now[t]);
      for (const std::uint32_t t : g.outputs[o]) {
        if (now[t] == lifetimes::no_allocation) {
          now[t] = static_cast<std::uint32_t>(out.allocations.size());
          out.allocations.push_back({i, end, t, o, g.bytes[t]});
        }
        out.outputs.values.push_back(now[t]);
      }
      if (g.workspace[o] != 0) {
        out.workspace[i] = static_cast<std::uint32_t>(out.allocations.size());
        out.allocations.push_back({i, i + 1, allocation::no_tensor, o, g.workspace[o]});
      }
      if (out.inputs.values.size() > most || out.outputs.values.size() > most || out.allocations.size() > most)
        throw bad_argument("the schedule has 2^32 − 1 or more reads, writes or allocations");
    }
    out.inputs.end_row();
    out.outputs.end_row();
  }
  return out;
}

}  // namespace remat
