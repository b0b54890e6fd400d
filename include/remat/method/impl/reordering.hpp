// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// A problem whose needed operations stand in another order: for methods that keep to the listed one. Near the least
/// memory the order of the first runs decides what fits.
class reordering {
 public:
  problem instance;  ///< its tensors have the numbers that they have in the whole

  /// `order`: the needed operations of `p`, each after the operations that it depends on. O(reads and writes) time.
  explicit reordering(const problem& p, std::vector<std::uint32_t> order)
      : instance(build(p, order)), order_(std::move(order)) {}

  /// The operation of the whole.
  [[nodiscard]] std::uint32_t original(std::uint32_t operation) const noexcept { return order_[operation]; }
  [[nodiscard]] const std::vector<std::uint32_t>& order() const noexcept { return order_; }

 private:
  [[nodiscard]] static problem build(const problem& p, const std::vector<std::uint32_t>& order) {
    const flat_graph& g = p.graph();
    flat_graph out;
    for (const std::uint32_t o : order) {
      for (const std::uint32_t t : g.inputs[o]) out.inputs.values.push_back(t);
      out.inputs.end_row();
      for (const std::uint32_t t : g.outputs[o]) out.outputs.values.push_back(t);
      out.outputs.end_row();
      out.time.push_back(g.time[o]);
      out.workspace.push_back(g.workspace[o]);
      out.once.push_back(g.once[o]);
    }
    out.num_operations = static_cast<std::uint32_t>(order.size());
    out.num_tensors = g.num_tensors;
    out.final_outputs = g.final_outputs;
    out.bytes = g.bytes;
    out.always_resident = g.always_resident;
    // A tensor of an operation that is not needed has no producer here.
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      bool is_made = false;
      for (const std::uint32_t o : g.producers[t]) is_made = is_made || g.needed[o];
      if (!is_made && !out.always_resident[t]) {
        out.always_resident[t] = 1;
        out.bytes[t] = 0;
      }
    }
    return problem::from_flat(std::move(out), p.budget());
  }

  std::vector<std::uint32_t> order_;
};

/// The needed operations of `g` in an order near `order`: an operation may pass another one that stands up to `reach`
/// places before it, unless it depends on it. O(reads and writes + operations · log(operations)) time.
[[nodiscard]] inline std::vector<std::uint32_t> shuffled_order(const flat_graph& g,
                                                               std::span<const std::uint32_t> order, double reach,
                                                               random_source& random) {
  using ready = std::pair<double, std::uint32_t>;
  std::vector<double> key(g.num_operations, 0);
  std::vector<std::uint32_t> waits(g.num_operations, 0);
  for (std::size_t i = 0; i < order.size(); ++i) key[order[i]] = static_cast<double>(i) + reach * random.uniform();
  std::priority_queue<ready, std::vector<ready>, std::greater<>> queue;
  for (const std::uint32_t o : order) {
    for (const std::uint32_t t : g.inputs[o]) waits[o] += static_cast<std::uint32_t>(g.producers[t].size());
    if (waits[o] == 0) queue.emplace(key[o], o);
  }
  std::vector<std::uint32_t> out;
  out.reserve(order.size());
  while (!queue.empty()) {
    const std::uint32_t o = queue.top().second;
    queue.pop();
    out.push_back(o);
    for (const std::uint32_t t : g.outputs[o])
      for (const std::uint32_t reader : g.consumers[t])
        if (g.needed[reader] && --waits[reader] == 0) queue.emplace(key[reader], reader);
  }
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
