// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// One allocation of a schedule: a tensor from the compute that allocates it to its free, or the workspace of one
/// compute. It is there during the steps [first, last).
struct allocation {
  static constexpr std::uint32_t no_tensor = 0xffffffff;

  std::uint32_t first = 0;           ///< the step that allocates it
  std::uint32_t last = 0;            ///< its free; steps.size(): never freed; first + 1: workspace
  std::uint32_t tensor = no_tensor;  ///< no_tensor: workspace
  std::uint32_t operation = 0;       ///< that allocates it, or whose workspace it is
  std::int64_t bytes = 0;

  [[nodiscard]] bool is_workspace() const noexcept { return tensor == no_tensor; }
  friend bool operator==(const allocation&, const allocation&) = default;
};

/// Every allocation of a schedule, and which of them each of its computes works on.
///
/// A tensor that is freed and made again has an allocation for each time. Tensors without bytes have allocations like
/// any other; an operation without workspace has none for it.
struct lifetimes {
  static constexpr std::uint32_t no_allocation = 0xffffffff;

  std::vector<allocation> allocations;  ///< ascending in `first`; of one compute: its new outputs, then the workspace
  index_rows inputs;   ///< step → the allocations that it reads, in the order of the operation's row; none for a free
  index_rows outputs;  ///< step → the allocations that it writes, in the order of the operation's row; none for a free
  std::vector<std::uint32_t> workspace;  ///< step → the allocation of its workspace, or no_allocation

  [[nodiscard]] std::size_t num_steps() const noexcept { return workspace.size(); }
};

/// The lifetimes of a schedule's allocations.
///
/// The largest sum of bytes that are there during one compute is the peak that `check` reports.
/// O(steps + their reads and writes) time and memory.
/// Throws `bad_argument` if `check(p, steps)` refuses the schedule, or if it has 2^32 − 1 or more allocations, steps or
/// reads.
[[nodiscard]] inline lifetimes lifetimes_of(const problem& p, std::span<const step> steps) {
  constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max() - 1;
  if (const check_report report = check(p, steps); !report.valid())
    throw bad_argument("only a legal schedule has lifetimes: " + report.message());
  if (steps.size() > most) throw bad_argument("the schedule has 2^32 − 1 or more steps");
  const flat_graph& s = p.graph();
  lifetimes out;
  std::size_t computes = 0;
  for (const step& x : steps) computes += x.is_compute();
  out.allocations.reserve(computes * 2);
  out.inputs.begin.reserve(steps.size() + 1);
  out.outputs.begin.reserve(steps.size() + 1);
  out.workspace.assign(steps.size(), lifetimes::no_allocation);
  std::vector<std::uint32_t> now(s.num_tensors,
                                 lifetimes::no_allocation);  // tensor → its allocation, while it is there
  const auto end = static_cast<std::uint32_t>(steps.size());
  for (std::uint32_t i = 0; i < end; ++i) {
    if (steps[i].is_free()) {
      std::uint32_t& a = now[index(steps[i].tensor())];
      out.allocations[a].last = i;
      a = lifetimes::no_allocation;
    } else {
      const auto o = static_cast<std::uint32_t>(index(steps[i].operation()));
      for (const std::uint32_t t : s.inputs[o]) out.inputs.values.push_back(now[t]);
      for (const std::uint32_t t : s.outputs[o]) {
        if (now[t] == lifetimes::no_allocation) {
          now[t] = static_cast<std::uint32_t>(out.allocations.size());
          out.allocations.push_back({i, end, t, o, s.bytes[t]});
        }
        out.outputs.values.push_back(now[t]);
      }
      if (s.workspace[o] != 0) {
        out.workspace[i] = static_cast<std::uint32_t>(out.allocations.size());
        out.allocations.push_back({i, i + 1, allocation::no_tensor, o, s.workspace[o]});
      }
      if (out.inputs.values.size() > most || out.outputs.values.size() > most || out.allocations.size() > most)
        throw bad_argument("the schedule has 2^32 − 1 or more reads, writes or allocations");
    }
    out.inputs.end_row();
    out.outputs.end_row();
  }
  return out;
}

/// \overload
[[nodiscard]] inline lifetimes lifetimes_of(const problem& p, const schedule& plan) {
  return lifetimes_of(p, std::span<const step>(plan.steps));
}

}  // namespace remat
