// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/graph/concepts.hpp"
#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE::detail {

/// Returns the sum of `weight(t)` over the tensors that are allocated while each operation runs in the listed order, if
/// the operations for which `runs(o)` is true run once each, and each tensor is freed right after its last use. 0 for
/// the other operations. O(operations + reads and writes) time.
template <class T, class Runs, class Weight>
[[nodiscard]] std::vector<T> listed_order_sums(const flat_graph& g, Runs&& runs, Weight&& weight) {
  std::vector<std::uint32_t> last(g.num_tensors, 0);
  std::vector<std::uint8_t> allocated(g.num_tensors, 0);
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!runs(o)) continue;
    for (const std::uint32_t t : g.inputs[o]) last[t] = o;
    for (const std::uint32_t t : g.outputs[o]) last[t] = o;
  }
  std::vector<T> sums(g.num_operations, T{});
  T now{};
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!runs(o)) continue;
    for (const std::uint32_t t : g.outputs[o])
      if (!allocated[t]) {
        allocated[t] = 1;
        now += weight(t);
      }
    sums[o] = now;
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (allocated[t] && last[t] == o && !g.final_output[t]) {
          allocated[t] = 0;
          now -= weight(t);
        }
  }
  return sums;
}

/// The same sums if the needed operations run.
template <class T, class Weight>
[[nodiscard]] std::vector<T> listed_order_sums(const flat_graph& g, Weight&& weight) {
  return listed_order_sums<T>(
      g, [&](std::uint32_t o) { return g.needed[o] != 0; }, weight);
}

/// Returns the bytes of operation `o` itself while it runs: its inputs, its outputs and its workspace.
[[nodiscard]] inline std::int64_t working_set_bytes(const flat_graph& g, std::uint32_t o) {
  std::int64_t sum = g.workspace[o];
  for (const std::uint32_t t : g.inputs[o]) sum += g.bytes[t];
  for (const std::uint32_t t : g.outputs[o]) sum += g.bytes[t];
  return sum;
}

/// Estimates the turn from lifetimes alone: the last operation before which the most tensors are alive in the listed
/// order of the needed operations. The forward pass makes tensors that the backward pass reads, so their number grows
/// until the turn. Final outputs do not count. Returns `num_operations` for a graph without operations. O(operations +
/// reads and writes) time.
[[nodiscard]] inline std::uint32_t estimate_forward_end(const flat_graph& g) {
  const std::uint32_t n = g.num_operations;
  std::vector<std::uint32_t> first_write(g.num_tensors, n), last_read(g.num_tensors, 0);
  for (std::uint32_t o = 0; o < n; ++o) {
    if (!g.needed[o]) continue;
    for (const std::uint32_t t : g.outputs[o]) first_write[t] = std::min(first_write[t], o);
    for (const std::uint32_t t : g.inputs[o]) last_read[t] = o;
  }
  std::vector<std::int64_t> change(std::size_t{n} + 1, 0);
  for (std::uint32_t t = 0; t < g.num_tensors; ++t)
    if (first_write[t] < last_read[t] && !g.final_output[t]) {
      ++change[first_write[t] + 1];
      --change[last_read[t] + 1];
    }
  std::uint32_t turn = n;
  std::int64_t alive = 0, max_alive = 0;
  for (std::uint32_t o = 0; o < n; ++o) {
    alive += change[o];
    if (alive >= max_alive) {
      max_alive = alive;
      turn = o;
    }
  }
  return turn;
}

/// Returns the *turn*: the position in the listed order where the forward pass ends. Operations listed before it belong
/// to the forward pass and the loss; the first operation at or after it belongs to the backward pass.
///
/// The graph's own phases decide if all operations have one, at least one operation is backward and one is not, and
/// no forward operation or loss is listed behind a backward one. Otherwise `estimate_forward_end` decides.
/// O(operations) time if the phases decide.
[[nodiscard]] inline std::uint32_t find_forward_end(const flat_graph& g) {
  const auto is_backward = [](op_phase p) { return p == op_phase::backward; };
  const auto turn = std::find_if(g.phase.begin(), g.phase.end(), is_backward);
  const bool in_order = std::all_of(turn, g.phase.end(), is_backward);
  const bool complete = std::find(g.phase.begin(), turn, op_phase::unknown) == turn;
  if (turn == g.phase.begin() || turn == g.phase.end() || !in_order || !complete) return estimate_forward_end(g);
  return static_cast<std::uint32_t>(turn - g.phase.begin());
}

}  // namespace REMAT_NAMESPACE::detail
