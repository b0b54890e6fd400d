// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/problem/problem.hpp"

namespace remat::test {

/// The least time of any schedule within the problem's budget, infinite if there is none: a shortest path over all
/// states (which operations have run, which producers have run since each tensor's allocation). Every legal schedule is
/// a path. For at most some ten operations; operations and writes together at most 64.
///
/// Times are added up as `Time`: with `long double`, sums of a few doubles are exact up to some parts in 10^19.
template <class Time = double>
[[nodiscard]] Time least_time(const problem& p) {
  using state = std::uint64_t;
  const flat_graph& s = p.graph();
  const std::uint32_t n = s.num_operations;
  assert(n + s.outputs.values.size() <= 64);
  const auto ran = [&](state x, std::uint32_t o) { return (x >> o & 1) != 0; };
  std::vector<state> contributions(s.num_tensors, 0);  // a tensor is allocated when one of these bits is set
  for (std::size_t w = 0; w < s.outputs.values.size(); ++w) contributions[s.outputs.values[w]] |= state{1} << (n + w);
  const auto readable = [&](state x, std::uint32_t t) { return (x & contributions[t]) == contributions[t]; };
  const auto memory = [&](state x) {
    std::int64_t sum = 0;
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      if (x & contributions[t]) sum += s.bytes[t];
    return sum;
  };

  std::unordered_map<state, Time> best{{0, Time{0}}};
  std::priority_queue<std::pair<Time, state>, std::vector<std::pair<Time, state>>, std::greater<>> queue;
  queue.push({Time{0}, 0});
  const auto reach = [&](state x, Time time) {
    const auto [at, fresh] = best.try_emplace(x, time);
    if (!fresh && at->second <= time) return;
    at->second = time;
    queue.push({time, x});
  };
  while (!queue.empty()) {
    const auto [time, x] = queue.top();
    queue.pop();
    if (time > best.at(x)) continue;
    bool done = true;
    for (std::uint32_t o = 0; o < n; ++o) done = done && (!s.has_effect(o) || ran(x, o));
    for (const std::uint32_t t : s.final_outputs) done = done && readable(x, t);
    if (done) return time;
    for (std::uint32_t o = 0; o < n; ++o) {
      if (ran(x, o) && (s.once[o] || s.has_effect(o))) continue;
      bool legal = true;
      for (const std::uint32_t t : s.inputs[o]) legal = legal && readable(x, t);
      state next = x | state{1} << o;
      for (std::uint32_t w = s.outputs.begin[o]; w < s.outputs.begin[o + 1]; ++w) {
        const state bit = state{1} << (n + w);
        legal = legal && !((x & bit) && s.producers[s.outputs.values[w]].size() > 1);
        next |= bit;
      }
      if (legal && memory(next) + s.workspace[o] <= p.budget()) reach(next, time + s.time[o]);
    }
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      if (x & contributions[t]) reach(x & ~contributions[t], time);
  }
  return std::numeric_limits<Time>::infinity();
}

}  // namespace remat::test
