// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/memory_profile.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/schedule/check.hpp"

namespace remat {

namespace detail::memory_profiles {

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

/// The tensors and the workspace in memory while the compute at step `at` runs; largest first.
inline std::vector<memory_profile::resident> residents(const flat_graph& g, const schedule& plan, std::size_t at,
                                                       const name_lookup& names) {
  std::vector<std::uint8_t> allocated(g.num_tensors, 0);
  for (std::size_t i = 0; i <= at; ++i) {
    if (plan.steps[i].is_free())
      allocated[index(plan.steps[i].tensor())] = 0;
    else
      for (const std::uint32_t t : g.outputs[index(plan.steps[i].operation())]) allocated[t] = 1;
  }
  std::vector<memory_profile::resident> rows;
  for (std::size_t t = 0; t < g.num_tensors; ++t)
    if (allocated[t] && g.bytes[t] != 0) rows.push_back({names.tensor(static_cast<tensor_id>(t)), g.bytes[t]});
  const op_id running = plan.steps[at].operation();
  if (g.workspace[index(running)] != 0)
    rows.push_back({"workspace of " + names.operation(running), g.workspace[index(running)]});
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return rows;
}

}  // namespace detail::memory_profiles

REMAT_INLINE memory_profile memory_profile_of(const problem& p, const name_lookup& names, const schedule& plan) {
  const flat_graph& g = p.graph();
  memory_profile out;
  std::vector<std::uint32_t> runs(g.num_operations, 0);
  double time = 0;
  std::int64_t memory = 0;
  std::vector<double> start(plan.steps.size(), 0);
  const check_report report = check(p, plan, [&](std::size_t i, std::int64_t bytes) {
    start[i] = time;
    memory = bytes;
    if (plan.steps[i].is_free()) return;
    const std::size_t o = index(plan.steps[i].operation());
    out.memory.push_back({time, bytes});
    time += g.time[o];
    ++runs[o];
  });
  out.memory.push_back({time, memory});
  out.peak_bytes = report.peak_bytes;
  for (std::size_t o = 0; o < g.num_operations; ++o)
    if (runs[o] > 1) out.rerun_time += g.time[o] * static_cast<double>(runs[o] - 1);
  out.recomputes = detail::memory_profiles::recomputes(g, runs, names);

  if (report.peak_step >= plan.steps.size() || plan.steps[report.peak_step].is_free()) return out;
  out.peak_operation = names.operation(plan.steps[report.peak_step].operation());
  out.peak_time = start[report.peak_step];
  out.at_peak = detail::memory_profiles::residents(g, plan, report.peak_step, names);
  return out;
}

}  // namespace remat
