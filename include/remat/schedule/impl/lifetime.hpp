// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/lifetime.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/schedule/check.hpp"

namespace REMAT_NAMESPACE {

namespace detail::lifetime {

/// Records the copies of a schedule in its lifetimes.
class copy_recorder {
 public:
  /// `now`: the present allocation of each tensor on the device.
  copy_recorder(const flat_graph& g, lifetimes& out, std::span<std::uint32_t> now) : graph_(g), out_(out), now_(now) {}

  /// Records the copy `x`, step `i` of `end` steps. Not inlined: computes and frees are many, and keep the registers.
  [[gnu::noinline]] void record(std::uint32_t i, step x, std::uint32_t end) {
    on_host_.resize(graph_.num_tensors, lifetimes::no_allocation);
    const auto t = static_cast<std::uint32_t>(index(x.tensor()));
    const allocation made{i, end, t, allocation::no_operation, graph_.bytes[t]};
    if (x.kind() == step_kind::offload) {
      out_.inputs.values.push_back(now_[t]);
      on_host_[t] = static_cast<std::uint32_t>(out_.host.size());
      out_.host.push_back(made);
    } else if (x.kind() == step_kind::prefetch) {
      now_[t] = static_cast<std::uint32_t>(out_.allocations.size());
      out_.outputs.values.push_back(now_[t]);
      out_.allocations.push_back(made);
    } else {
      out_.host[on_host_[t]].last = i;
    }
  }

 private:
  const flat_graph& graph_;
  lifetimes& out_;
  std::span<std::uint32_t> now_;
  std::vector<std::uint32_t> on_host_;  // each tensor's present copy on the host; empty as long as nothing is copied
};

}  // namespace detail::lifetime

REMAT_INLINE lifetimes lifetimes_of(const problem& p, std::span<const step> steps) {
  constexpr std::size_t limit = std::numeric_limits<std::uint32_t>::max() - 1;
  if (const check_report report = check(p, steps); !report.valid())
    throw bad_argument("only a legal schedule has lifetimes: " + report.message());
  if (steps.size() > limit) throw bad_argument("the schedule has 2^32 − 1 or more steps");
  const flat_graph& g = p.graph();
  lifetimes out;
  std::size_t computes = 0;
  for (const step& x : steps) computes += x.is_compute();
  out.allocations.reserve(computes * 2);
  out.inputs.begin.reserve(steps.size() + 1);
  out.outputs.begin.reserve(steps.size() + 1);
  out.workspace.assign(steps.size(), lifetimes::no_allocation);
  std::vector<std::uint32_t> present(g.num_tensors, lifetimes::no_allocation);
  const std::span<std::uint32_t> now(present);  // each tensor's present allocation
  const auto end = static_cast<std::uint32_t>(steps.size());
  detail::lifetime::copy_recorder copies(g, out, now);
  for (std::uint32_t i = 0; i < end; ++i) {
    if (!steps[i].is_compute()) {
      const std::uint32_t t = steps[i].code() - step::free(tensor_id{}).code();
      if (t >= now.size()) {  // no free: the codes of copies are larger
        copies.record(i, steps[i], end);
      } else {
        std::uint32_t& a = now[t];
        out.allocations[a].last = i;
        a = lifetimes::no_allocation;
      }
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
      if (out.inputs.values.size() > limit || out.outputs.values.size() > limit || out.allocations.size() > limit)
        throw bad_argument("the schedule has 2^32 − 1 or more reads, writes or allocations");
    }
    out.inputs.end_row();
    out.outputs.end_row();
  }
  return out;
}

namespace detail::lifetime {

/// The operations that run more than once, by name; most time first.
inline std::vector<memory_profile::recomputed> recomputes(const flat_graph& g, const std::vector<std::uint32_t>& runs,
                                                          const name_lookup& names) {
  std::map<std::string, memory_profile::recomputed> by_name;
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    if (runs[o] < 2) continue;
    const std::string name = names.operation(static_cast<op_id>(o));
    memory_profile::recomputed& row = by_name[name];
    row.name = name;
    ++row.operations;
    row.reruns += runs[o] - 1;
    row.time += g.time[o] * static_cast<double>(runs[o] - 1);
  }
  std::vector<memory_profile::recomputed> rows;
  for (auto& entry : by_name) rows.push_back(std::move(entry.second));
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.time > b.time || (a.time == b.time && a.reruns > b.reruns);
  });
  return rows;
}

inline void sort_by_size(std::vector<memory_profile::resident>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

/// The tensors in memory after the first `steps` steps; largest first.
inline std::vector<memory_profile::resident> residents(const flat_graph& g, const schedule& plan, std::size_t steps,
                                                       const name_lookup& names) {
  std::vector<std::uint8_t> allocated(g.num_tensors, 0);
  for (std::size_t i = 0; i < steps; ++i) {
    const step x = plan.steps[i];
    if (x.is_compute())
      for (const std::uint32_t t : g.outputs[index(x.operation())]) allocated[t] = 1;
    else if (x.is_free() || x.kind() == step_kind::prefetch)
      allocated[index(x.tensor())] = x.is_free() ? 0 : 1;
  }
  std::vector<memory_profile::resident> rows;
  for (std::size_t t = 0; t < g.num_tensors; ++t)
    if (allocated[t] && g.bytes[t] != 0)
      rows.push_back({names.tensor(static_cast<tensor_id>(t)), g.bytes[t], g.producers[t].front()});
  sort_by_size(rows);
  return rows;
}

}  // namespace detail::lifetime

REMAT_INLINE memory_profile memory_profile_of(const problem& p, const name_lookup& names, const schedule& plan) {
  const flat_graph& g = p.graph();
  const std::uint32_t forward_end = detail::find_forward_end(g);
  memory_profile out;
  std::vector<std::uint32_t> runs(g.num_operations, 0);
  double time = 0;
  std::int64_t memory = 0;
  std::size_t turn = 0;
  std::vector<double> start(plan.steps.size(), 0);
  if (p.link()) out.times = engine_times_of(p.with_link(*p.link()).with_budget(problem::unlimited), plan);
  std::int64_t host = 0;
  const auto change_host = [&](std::int64_t bytes) {
    host += bytes;
    out.host.push_back({time, host});
  };
  const auto copy = [&](step x) {
    const std::int64_t bytes = g.bytes[index(x.tensor())];
    if (x.kind() == step_kind::prefetch)
      out.memory.push_back({time, memory});
    else
      change_host(x.kind() == step_kind::offload ? bytes : -bytes);
  };
  const check_report report = check(p, plan, [&](std::size_t i, std::int64_t bytes) {
    // Copies run beside the computes: only these and the frees move the time of the list.
    if (p.link() && !plan.steps[i].is_copy()) time = out.times.steps[i].begin;
    start[i] = time;
    memory = bytes;
    if (plan.steps[i].is_free()) return;
    if (plan.steps[i].is_copy()) return copy(plan.steps[i]);
    const auto o = static_cast<std::uint32_t>(index(plan.steps[i].operation()));
    if (o >= forward_end && !out.turn_time) {
      out.turn_time = time;
      turn = i;
    }
    out.memory.push_back({time, bytes, o, ++runs[o]});
    time += g.time[o];
  });
  out.memory.push_back({p.link() ? out.times.makespan : time, memory});
  out.peak_bytes = report.peak_bytes;
  out.host_peak_bytes = report.host_peak_bytes;
  out.copies = report.copies;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (runs[o] < 2) continue;
    out.reruns.push_back({o, runs[o]});
    out.rerun_time += g.time[o] * static_cast<double>(runs[o] - 1);
  }
  out.recomputes = detail::lifetime::recomputes(g, runs, names);
  if (out.turn_time) out.kept = detail::lifetime::residents(g, plan, turn, names);

  if (report.peak_step >= plan.steps.size() || plan.steps[report.peak_step].is_free()) return out;
  const step peak = plan.steps[report.peak_step];
  out.peak_time = start[report.peak_step];
  out.at_peak = detail::lifetime::residents(g, plan, report.peak_step + 1, names);
  if (!peak.is_compute()) {
    out.peak_prefetch = names.tensor(peak.tensor());
    return out;
  }
  const op_id running = peak.operation();
  out.peak_operation = names.operation(running);
  if (const std::int64_t workspace = g.workspace[index(running)]; workspace != 0) {
    out.at_peak.push_back(
        {"workspace of " + out.peak_operation, workspace, static_cast<std::uint32_t>(index(running))});
    detail::lifetime::sort_by_size(out.at_peak);
  }
  return out;
}

}  // namespace REMAT_NAMESPACE
