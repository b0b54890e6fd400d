// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// A problem without a link in which some tensors lie on the host across a moment: for solvers that know no copies.
///
/// A copy of each such tensor is an operation of no time, which makes a tensor of no bytes; another operation, of no
/// time or of a given price, makes the tensor from it again. Operations after the moment in the listed order read the
/// latter. So a solver decides what else to compute again; `copy_planner` then says how long the copies take.
class copy_operations {
  std::vector<std::uint32_t>
      original_{};  // operation of the instance → of the whole, or `copy`; filled with `instance`

 public:
  problem instance;  ///< an instance with the budget of the problem, and no link

  /// `on_host` says of each tensor whether it lies on the host across `moment`. Tensors that are not written up to the
  /// moment and read after it, and final outputs, stay as they are. `prices` has for each tensor the time of the
  /// operation that copies it back; empty: none. O(reads and writes) time.
  copy_operations(const problem& p, std::span<const std::uint8_t> on_host, std::uint32_t moment,
                  std::span<const double> prices = {})
      : instance(build(p, on_host, moment, prices, original_)) {}

  /// Returns the operations of the whole that a schedule runs, in order, without the copies.
  [[nodiscard]] std::vector<std::uint32_t> computes(const schedule& plan) const {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t o : computes_of(plan))
      if (original_[o] != copy) out.push_back(original_[o]);
    return out;
  }

 private:
  static constexpr std::uint32_t copy = std::numeric_limits<std::uint32_t>::max();

  [[nodiscard]] static problem build(const problem& p, std::span<const std::uint8_t> on_host, std::uint32_t moment,
                                     std::span<const double> prices, std::vector<std::uint32_t>& original) {
    const flat_graph& g = p.graph();
    flat_graph out;
    out.bytes = g.bytes;
    out.always_resident = g.always_resident;
    out.final_outputs = g.final_outputs;
    std::vector<std::uint32_t> host(g.num_tensors, copy), back(g.num_tensors, copy), to_run(g.num_tensors);
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) to_run[t] = static_cast<std::uint32_t>(g.producers[t].size());
    const auto add_tensor = [&](std::int64_t bytes) {
      out.bytes.push_back(bytes);
      out.always_resident.push_back(0);
      return static_cast<std::uint32_t>(out.bytes.size() - 1);
    };
    const auto end_operation = [&](std::uint32_t o, double time, std::int64_t workspace, std::uint8_t once) {
      out.inputs.end_row();
      out.outputs.end_row();
      out.time.push_back(time);
      out.workspace.push_back(workspace);
      out.once.push_back(once);
      original.push_back(o);
    };
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      if (o > moment)
        for (const std::uint32_t t : g.inputs[o])
          if (host[t] != copy && back[t] == copy) {
            back[t] = add_tensor(g.bytes[t]);
            out.inputs.values.push_back(host[t]);
            out.outputs.values.push_back(back[t]);
            end_operation(copy, prices.empty() ? 0 : prices[t], 0, 0);
          }
      for (const std::uint32_t t : g.inputs[o])
        out.inputs.values.push_back(o > moment && back[t] != copy ? back[t] : t);
      for (const std::uint32_t t : g.outputs[o]) out.outputs.values.push_back(t);
      end_operation(o, g.time[o], g.workspace[o], g.once[o]);
      if (o > moment) continue;
      for (const std::uint32_t t : g.outputs[o])
        if (--to_run[t] == 0 && on_host[t] && !g.final_output[t] && is_read_after(g, t, moment)) {
          host[t] = add_tensor(0);
          out.inputs.values.push_back(t);
          out.outputs.values.push_back(host[t]);
          end_operation(copy, 0, 0, flat_graph::once_as_marked);
        }
    }
    out.num_operations = static_cast<std::uint32_t>(original.size());
    out.num_tensors = static_cast<std::uint32_t>(out.bytes.size());
    return problem::from_flat(std::move(out), p.budget());
  }

  [[nodiscard]] static bool is_read_after(const flat_graph& g, std::uint32_t t, std::uint32_t moment) {
    return !g.consumers[t].empty() && g.consumers[t].back() > moment;
  }
};

}  // namespace REMAT_NAMESPACE::detail
