// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::test {

/// What `fastest_with_copies` has found.
struct fastest_result {
  bool complete = true;                                   ///< false if the search has met its limit of labels
  double time = std::numeric_limits<double>::infinity();  ///< the least of any schedule; infinite if there is none
  schedule plan;                                          ///< that takes it
};

/// The least time of any schedule with copies within both budgets: a best-first search over labels. A label is a list
/// of steps; it is kept as what later steps can see of it.
///
/// That is the state (which operations have run, which producers have run since each tensor's allocation, which tensors
/// are on the host) and the readiness times: of the three engines, and of each tensor the end of its copy in, of its
/// copy out and of its copy on the host. Every step makes times by maxima and sums, so it is monotone in them: a label
/// whose times are nowhere later than those of another one with the same state can do whatever the other can, as early.
/// The other one is dropped. A time that is not after the compute engine's own is seen by no later step, since every
/// step waits for that engine at least; it counts as that engine's.
///
/// Labels come in the order of the greater of (their engines' times) and (the compute engine's time + the first runs
/// that are missing), which no step lowers. So the first complete label is an optimum.
///
/// The rules that leave steps out lose no optimum. Each says that a list can be changed into one that follows the rule,
/// which is legal and no slower:
///  - Unneeded operations do not run: only unneeded operations read what they write.
///  - A `free` stands right before a compute or a prefetch, with other frees in ascending order between them. To move
///    it back past a copy, a drop or the end delays nothing: the wait of the compute engine only comes later. (The copy
///    is of another tensor: the freed one is not there.)
///  - An `offload` follows a compute that writes its tensor, another offload or a drop. To move it forward past another
///    compute, a prefetch or a free lets it begin no later, keeps the order of its engine, and adds nothing to the
///    host's peak, since those steps do not change the host. (What a prefetch makes readable has a copy on the host, so
///    a drop comes before it is copied out again.)
///  - Without a limit on the host, nothing is dropped: a copy there stays good.
///
/// For at most some six operations. Stops at `max_labels`.
[[nodiscard]] inline fastest_result fastest_with_copies(const problem& p, std::size_t max_labels = 400'000,
                                                        double upper = std::numeric_limits<double>::infinity()) {
  using bits = std::uint64_t;
  const flat_graph& g = p.graph();
  const host_link link = *p.link();
  const std::uint32_t n = g.num_operations, num_writes = static_cast<std::uint32_t>(g.outputs.values.size());
  std::vector<std::uint32_t> tensors;  // that somebody needed writes
  std::vector<std::uint32_t> place(g.num_tensors, 0);
  for (std::uint32_t t = 0; t < g.num_tensors; ++t)
    if (g.always_resident[t] == 0 &&
        std::any_of(g.producers[t].begin(), g.producers[t].end(), [&](std::uint32_t o) { return g.needed[o] != 0; })) {
      place[t] = static_cast<std::uint32_t>(tensors.size());
      tensors.push_back(t);
    }
  const auto count = static_cast<std::uint32_t>(tensors.size());
  // A key: operations that have run, writes, tensors on the host, and what the last step allows: its kind, and a set of
  // tensors (those just written) or a number (of the tensor just freed).
  const std::uint32_t host_at = n + num_writes, set_at = host_at + count, kind_at = set_at + count;
  assert(kind_at + 2 <= 64);
  constexpr bits made = 0, freed = 1, copied = 2;

  std::vector<bits> contributions(g.num_tensors, 0);
  for (std::uint32_t w = 0; w < num_writes; ++w) contributions[g.outputs.values[w]] |= bits{1} << (n + w);
  const auto readable = [&](bits x, std::uint32_t t) { return (x & contributions[t]) == contributions[t]; };
  const auto on_host = [&](bits x, std::uint32_t t) { return (x >> (host_at + place[t]) & 1) != 0; };
  const auto memory = [&](bits x) {
    std::int64_t sum = 0;
    for (const std::uint32_t t : tensors)
      if (x & contributions[t]) sum += g.bytes[t];
    return sum;
  };
  const auto host_memory = [&](bits x) {
    std::int64_t sum = 0;
    for (const std::uint32_t t : tensors)
      if (on_host(x, t)) sum += g.bytes[t];
    return sum;
  };
  const bits state_mask = (bits{1} << set_at) - 1;

  // Times of a label: compute, out, in; then of each tensor coming, leaving, on the host.
  const std::size_t width = 3 + 3 * std::size_t{count};
  struct label {
    bits key;
    std::uint32_t parent;
    step last;
  };
  constexpr std::uint32_t no_parent = std::numeric_limits<std::uint32_t>::max();
  std::vector<label> labels;
  std::vector<double> times;  // of all labels
  std::unordered_map<bits, std::vector<std::uint32_t>> at_key;
  using entry = std::pair<double, std::uint32_t>;
  std::priority_queue<entry, std::vector<entry>, std::greater<>> queue;
  std::vector<std::uint8_t> dropped;
  fastest_result result;

  const auto reach = [&](bits key, std::vector<double>& now, std::uint32_t parent, step last) {
    now[1] = std::max(now[1], now[0]);
    now[2] = std::max(now[2], now[0]);
    for (std::uint32_t i = 0; i < count; ++i) {
      double* of = &now[3 + 3 * std::size_t{i}];
      const bool allocated = (key & contributions[tensors[i]]) != 0;
      if (!allocated || of[0] <= now[0]) of[0] = 0;
      if (!allocated || of[1] <= now[0]) of[1] = 0;
      if (!on_host(key, tensors[i]) || of[2] <= now[0]) of[2] = 0;
    }
    double missing = 0;
    for (std::uint32_t o = 0; o < n; ++o)
      if (g.needed[o] != 0 && !(key >> o & 1)) missing += g.time[o];
    const double least = std::max({now[0] + missing, now[1], now[2]});
    if (least > upper) return;
    std::vector<std::uint32_t>& others = at_key[key];
    const auto no_later = [&](const double* a, const double* b) {
      for (std::size_t i = 0; i < width; ++i)
        if (a[i] > b[i]) return false;
      return true;
    };
    for (const std::uint32_t x : others)
      if (no_later(&times[x * width], now.data())) return;
    others.erase(std::remove_if(others.begin(), others.end(),
                                [&](std::uint32_t x) {
                                  if (!no_later(now.data(), &times[x * width])) return false;
                                  dropped[x] = 1;
                                  return true;
                                }),
                 others.end());
    const auto id = static_cast<std::uint32_t>(labels.size());
    others.push_back(id);
    labels.push_back({key, parent, last});
    dropped.push_back(0);
    times.insert(times.end(), now.begin(), now.end());
    queue.push({least, id});
  };

  std::vector<double> now(width, 0.0);
  reach(0, now, no_parent, step::compute(op_id{}));
  while (!queue.empty()) {
    if (labels.size() > max_labels) {
      result.complete = false;
      return result;
    }
    const std::uint32_t id = queue.top().second;
    queue.pop();
    if (dropped[id]) continue;
    const bits key = labels[id].key, x = key & state_mask;
    const bits kind = key >> kind_at, set = key >> set_at & ((bits{1} << count) - 1);
    const auto start = [&] { now.assign(&times[id * width], &times[id * width] + width); };
    const auto coming = [&](std::uint32_t t) -> double& { return now[3 + 3 * std::size_t{place[t]}]; };
    const auto leaving = [&](std::uint32_t t) -> double& { return now[4 + 3 * std::size_t{place[t]}]; };
    const auto whole = [&](std::uint32_t t) -> double& { return now[5 + 3 * std::size_t{place[t]}]; };

    bool done = kind != freed;
    for (std::uint32_t o = 0; o < n; ++o) done = done && (!g.has_effect(o) || (x >> o & 1));
    for (const std::uint32_t t : g.final_outputs) done = done && readable(x, t);
    if (done) {
      result.time = std::max({times[id * width], times[id * width + 1], times[id * width + 2]});
      std::vector<step> steps;
      for (std::uint32_t i = id; labels[i].parent != no_parent; i = labels[i].parent) steps.push_back(labels[i].last);
      std::reverse(steps.begin(), steps.end());
      result.plan.steps = std::move(steps);
      return result;
    }

    for (std::uint32_t o = 0; o < n; ++o) {
      if (g.needed[o] == 0 || ((x >> o & 1) && (g.once[o] || g.has_effect(o)))) continue;
      bool legal = true;
      for (const std::uint32_t t : g.inputs[o]) legal = legal && readable(x, t);
      bits next = x | bits{1} << o, ready = 0;
      for (std::uint32_t w = g.outputs.begin[o]; w < g.outputs.begin[o + 1]; ++w) {
        const std::uint32_t t = g.outputs.values[w];
        const bits bit = bits{1} << (n + w);
        legal = legal && !((x & bit) && g.producers[t].size() > 1);
        next |= bit;
        if (readable(next, t) && !on_host(x, t)) ready |= bits{1} << place[t];
      }
      if (!legal || memory(next) + g.workspace[o] > p.budget()) continue;
      start();
      for (const std::uint32_t t : g.outputs[o])
        if (!(x & contributions[t])) coming(t) = leaving(t) = 0;
      for (const std::uint32_t t : g.inputs[o]) now[0] = std::max(now[0], coming(t));
      for (const std::uint32_t t : g.outputs[o]) now[0] = std::max({now[0], coming(t), leaving(t)});
      now[0] += g.time[o];
      reach(next | ready << set_at | made << kind_at, now, id, step::compute(static_cast<op_id>(o)));
    }
    for (const std::uint32_t t : tensors) {
      const auto name = static_cast<tensor_id>(t);
      const bits bit = bits{1} << place[t];
      const bool allocated = (x & contributions[t]) != 0;
      if (on_host(x, t) && !allocated) {
        const bits next = x | contributions[t];
        if (memory(next) <= p.budget()) {
          start();
          now[2] = coming(t) = std::max({now[2], now[0], whole(t)}) + link.time_in(g.bytes[t]);
          leaving(t) = 0;
          reach(next | made << kind_at, now, id, step::prefetch(name));
        }
      }
      if (allocated && (kind != freed || place[t] > set)) {
        start();
        now[0] = std::max({now[0], coming(t), leaving(t)});
        reach((x & ~contributions[t]) | bits{place[t]} << set_at | freed << kind_at, now, id, step::free(name));
      }
      if (kind == freed) continue;
      if (on_host(x, t) && p.host_budget() != problem::unlimited) {
        start();
        now[1] = std::max(now[1], coming(t));
        reach((x & ~(bit << host_at)) | copied << kind_at, now, id, step::drop(name));
      }
      if (allocated && readable(x, t) && !on_host(x, t) && (kind == copied || (set & bit))) {
        const bits next = x | bit << host_at;
        if (host_memory(next) <= p.host_budget()) {
          start();
          now[1] = std::max({now[1], now[0], coming(t)}) + link.time_out(g.bytes[t]);
          whole(t) = leaving(t) = now[1];
          reach(next | copied << kind_at, now, id, step::offload(name));
        }
      }
    }
  }
  return result;
}

}  // namespace remat::test
