// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "remat/problem/problem.hpp"

namespace remat::test {

/// The least time of any schedule whose allocations can be placed in an arena of `arena` bytes, at offsets that are
/// multiples of `alignment`; infinite if there is none. A shortest path over all states: which operations have run,
/// which producers have run since each tensor's allocation, and the offset of each allocated tensor. Every legal
/// schedule with every placement is a path. Tensors with `elsewhere[t]` have no place in the arena. The arena ends at a
/// multiple of the alignment. For at most some six operations and some eight units of the alignment.
class arena_states {
 public:
  arena_states(const problem& p, std::int64_t arena, std::int64_t alignment, std::vector<bool> elsewhere)
      : g_(p.graph()), units_(arena / alignment), contributions_(g_.num_tensors, 0), units_of_(g_.num_tensors, 0) {
    const auto units = [&](std::int64_t bytes) { return (bytes + alignment - 1) / alignment; };
    assert(g_.num_operations + g_.outputs.values.size() <= 64 && units_ < 64);
    for (std::size_t w = 0; w < g_.outputs.values.size(); ++w)
      contributions_[g_.outputs.values[w]] |= std::uint64_t{1} << (g_.num_operations + w);
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t)
      if (elsewhere.empty() || !elsewhere[t]) units_of_[t] = units(g_.bytes[t]);
    for (const std::int64_t bytes : g_.workspace) workspace_.push_back(units(bytes));
  }

  [[nodiscard]] double least_time() {
    reach({0, std::vector<std::int8_t>(g_.num_tensors, 0)}, 0);
    while (!queue_.empty()) {
      const auto [time, x] = queue_.top();
      queue_.pop();
      if (time > best_.at(x)) continue;
      if (is_done(x)) return time;
      for (std::uint32_t t = 0; t < g_.num_tensors; ++t)
        if (x.bits & contributions_[t]) reach(without(x, t), time);
      for (std::uint32_t o = 0; o < g_.num_operations; ++o)
        if (is_legal(x, o)) place_outputs(x, o, 0, time + g_.time[o]);
    }
    return std::numeric_limits<double>::infinity();
  }

 private:
  struct state {
    std::uint64_t bits = 0;
    std::vector<std::int8_t> offsets;  // 0 where the tensor is not allocated, or has no place in the arena
    friend auto operator<=>(const state&, const state&) = default;
  };

  [[nodiscard]] bool ran(const state& x, std::uint32_t o) const { return (x.bits >> o & 1) != 0; }
  [[nodiscard]] bool readable(const state& x, std::uint32_t t) const {
    return (x.bits & contributions_[t]) == contributions_[t];
  }
  [[nodiscard]] bool is_done(const state& x) const {
    bool done = true;
    for (std::uint32_t o = 0; o < g_.num_operations; ++o) done = done && (!g_.has_effect(o) || ran(x, o));
    for (const std::uint32_t t : g_.final_outputs) done = done && readable(x, t);
    return done;
  }
  [[nodiscard]] bool is_legal(const state& x, std::uint32_t o) const {
    if (ran(x, o) && (g_.once[o] || g_.has_effect(o))) return false;
    for (const std::uint32_t t : g_.inputs[o])
      if (!readable(x, t)) return false;
    for (std::uint32_t w = g_.outputs.begin[o]; w < g_.outputs.begin[o + 1]; ++w)
      if ((x.bits >> (g_.num_operations + w) & 1) && g_.producers[g_.outputs.values[w]].size() > 1) return false;
    return true;
  }
  [[nodiscard]] state without(state x, std::uint32_t t) const {
    x.bits &= ~contributions_[t];
    x.offsets[t] = 0;
    return x;
  }
  /// The units of the arena that are in use, as bits.
  [[nodiscard]] std::uint64_t used(const state& x) const {
    std::uint64_t all = 0;
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t)
      if (x.bits & contributions_[t]) all |= block(units_of_[t], x.offsets[t]);
    return all;
  }
  [[nodiscard]] static std::uint64_t block(std::int64_t size, std::int64_t at) {
    return ((std::uint64_t{1} << size) - 1) << at;
  }

  /// Places the outputs of `o` from number `k` on in all ways, then its workspace, and reaches the states behind.
  void place_outputs(const state& x, std::uint32_t o, std::uint32_t k, double time) {
    const std::uint32_t w = g_.outputs.begin[o] + k;
    if (w == g_.outputs.begin[o + 1]) {
      bool room = false;
      for (std::int64_t at = 0; at + workspace_[o] <= units_; ++at)
        room = room || !(used(x) & block(workspace_[o], at));
      state next = x;
      next.bits |= std::uint64_t{1} << o;
      if (room) reach(next, time);
      return;
    }
    const std::uint32_t t = g_.outputs.values[w];
    state next = x;
    next.bits |= std::uint64_t{1} << (g_.num_operations + w);
    if ((x.bits & contributions_[t]) || units_of_[t] == 0) {
      place_outputs(next, o, k + 1, time);
      return;
    }
    for (std::int64_t at = 0; at + units_of_[t] <= units_; ++at) {
      if (used(x) & block(units_of_[t], at)) continue;
      next.offsets[t] = static_cast<std::int8_t>(at);
      place_outputs(next, o, k + 1, time);
    }
  }

  void reach(const state& x, double time) {
    const auto [at, fresh] = best_.try_emplace(x, time);
    if (!fresh && at->second <= time) return;
    at->second = time;
    queue_.push({time, x});
  }

  const flat_graph& g_;
  std::int64_t units_;
  std::vector<std::uint64_t> contributions_;
  std::vector<std::int64_t> units_of_, workspace_{};
  std::map<state, double> best_{};
  std::priority_queue<std::pair<double, state>, std::vector<std::pair<double, state>>, std::greater<>> queue_{};
};

}  // namespace remat::test
