// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/launch_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/schedule/check.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE launch_plan::launch_plan(detail::graph_arguments&& graph, const problem& p, std::span<const step> steps,
                                      lifetimes&& lives, const arena_layout* layout, const launch_options& options)
    : graph_(std::move(graph)), lives_(std::move(lives)) {
  const flat_graph& g = p.graph();
  read_tensors(g);
  for (const tensor_id t : options.bound_outputs) place_output(t, place::bound_output, g);
  for (const tensor_id t : options.accumulated_outputs) place_output(t, place::accumulated_output, g);
  require_sums_right(g, steps, options.sums_may_be_read);
  const std::vector<interval> intervals = intervals_of(lives_, options.outputs_elsewhere());
  set_layout(layout != nullptr ? *layout : plan_memory(intervals, options.memory), intervals);
  (void)arena_bytes_within(options.arena_budget);
  const std::vector<interval> on_host = host_intervals_of(lives_);
  set_host_layout(options.host_layout ? *options.host_layout : plan_memory(on_host, options.memory), on_host);
  (void)host_arena_bytes_within(options.host_arena_budget);
  assignment_ = assign_streams(p, lives_, steps,
                               {.streams = options.streams, .offsets = addresses(), .shares = options.occupancy});
  make_launches(g, steps);
  const check_report report = check(p, steps, [&](std::size_t i, std::int64_t bytes) {
    const step x = steps[i];
    if (x.is_compute() || (x.is_copy() && x.kind() != step_kind::drop)) memory_.push_back(bytes);
  });
  peak_bytes_ = report.peak_bytes;
}

REMAT_INLINE void launch_plan::read_tensors(const flat_graph& g) {
  if (graph_.num_operations != g.num_operations || graph_.num_tensors != g.num_tensors)
    throw bad_argument("the graph has " + detail::count_of(graph_.num_operations, "operation") + " and " +
                       detail::count_of(graph_.num_tensors, "tensor") + "; the problem is of one with " +
                       std::to_string(g.num_operations) + " and " + std::to_string(g.num_tensors));
  place_.assign(g.num_tensors, place::arena);
  for (std::size_t t = 0; t < g.num_tensors; ++t)
    if (g.always_resident[t]) place_[t] = place::resident;
  tensor_bytes_ = graph_.sizes(g);
  bound_.assign(g.num_tensors, 0);
  for (const std::uint32_t t : graph_.final_outputs)
    if (g.always_resident[t]) bound_[t] = 1;
}

/// Marks a tensor that the options name as an output in the caller's memory.
REMAT_INLINE void launch_plan::place_output(tensor_id t, place where, const flat_graph& g) {
  const std::string option = where == place::bound_output ? "bound_outputs: " : "accumulated_outputs: ";
  if (index(t) >= g.num_tensors)
    throw bad_argument(option + "there is no tensor " + std::to_string(index(t)) + "; there are " +
                       std::to_string(g.num_tensors));
  place& now = place_[index(t)];
  if (now == place::resident)
    throw bad_argument(option + label(t) + " is always resident, and no operation writes it; bind it as an input");
  if (!g.final_output[index(t)])
    throw bad_argument(option + label(t) + " is no final output; only final outputs can lie in the caller's memory");
  if (now != place::arena)
    throw bad_argument(option + label(t) + " is named twice; name it once, in bound_outputs or in accumulated_outputs");
  now = where;
  bound_[index(t)] = 1;
}

/// Throws unless each operation that adds to an accumulated output runs once, and none reads one (or that is allowed).
REMAT_INLINE void launch_plan::require_sums_right(const flat_graph& g, std::span<const step> steps,
                                                  bool may_be_read) const {
  if (std::find(place_.begin(), place_.end(), place::accumulated_output) == place_.end()) return;
  constexpr std::uint32_t not_run = 0xffffffff;
  std::vector<std::uint32_t> run_at(g.num_operations, not_run);
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].is_compute()) continue;
    const op_id o = steps[i].operation();
    std::uint32_t& first = run_at[index(o)];
    for (const std::uint32_t t : g.outputs[index(o)])
      if (first != not_run && place_[t] == place::accumulated_output)
        throw bad_argument(label(o) + " runs in step " + std::to_string(first) + " and again in step " +
                           std::to_string(i) + ": it would add to " + label(static_cast<tensor_id>(t)) +
                           ", an accumulated output, twice; solve with problem::producing_once of that tensor");
    for (const std::uint32_t t : g.inputs[index(o)])
      if (!may_be_read && place_[t] == place::accumulated_output)
        throw bad_argument(label(o) + " reads " + label(static_cast<tensor_id>(t)) +
                           ", an accumulated output: it would read the sum over all training steps so far; if that is "
                           "meant, set launch_options::sums_may_be_read");
    first = i;
  }
}

/// Throws `bad_argument` unless the addresses of `layout` keep all intervals apart. `name(i)` names interval i,
/// `holders` all of them.
template <class Name>
void launch_plan::require_apart(const arena_layout& layout, std::span<const std::int64_t> offsets,
                                std::span<const interval> intervals, const char* holders, const Name& name) {
  if (layout.alignment < 1 || (layout.alignment & (layout.alignment - 1)) != 0)
    throw bad_argument("the alignment is " + std::to_string(layout.alignment) + "; it must be a power of two");
  if (offsets.size() != intervals.size())
    throw bad_argument("there are " + detail::count_of(offsets.size(), "offset") + "; the schedule has " +
                       std::to_string(intervals.size()) + " " + holders);
  const memory_check_report report = check_memory(intervals, offsets, layout.arena_bytes, layout.alignment);
  if (report.valid()) return;
  if (report.what == memory_violation::overlap)
    throw bad_argument(name(report.at) + " shares bytes with " + name(report.other));
  if (report.what == memory_violation::misaligned || report.what == memory_violation::out_of_arena)
    throw bad_argument(name(report.at) + " has offset " + std::to_string(offsets[report.at]) +
                       "; it must be a multiple of " + std::to_string(layout.alignment) + " with its " +
                       detail::count_of(intervals[report.at].size, "byte") + " in the arena of " +
                       detail::count_of(layout.arena_bytes, "byte"));
  throw bad_argument("the memory plan does not fit the schedule: " + report.message());
}

/// Throws `bad_argument` if an arena of `bytes` exceeds its budget, or if that is negative. `whose` names the arena,
/// `advice` ends the message.
REMAT_INLINE std::int64_t launch_plan::bytes_within(std::int64_t bytes, std::int64_t budget, const std::string& whose,
                                                    const char* advice) {
  if (budget < 0)
    throw bad_argument(whose + "'s budget is " + detail::count_of(budget, "byte") + "; it must not be negative");
  if (bytes > budget)
    throw bad_argument(whose + " has " + detail::count_of(bytes, "byte") + "; its budget is " +
                       detail::count_of(budget, "byte") + advice);
  return bytes;
}

/// Takes over the addresses, and checks them. `intervals` are those of the allocations; their size is 0 outside of the
/// arena, where offsets have no meaning.
REMAT_INLINE void launch_plan::set_layout(const arena_layout& layout, std::span<const interval> intervals) {
  device_ = {{layout.offsets.begin(), layout.offsets.end()}, layout.arena_bytes, layout.alignment};
  const std::size_t known = std::min(device_.offsets.size(), intervals.size());
  for (std::uint32_t a = 0; a < known; ++a)
    if (!is_in_arena(a)) device_.offsets[a] = 0;
  require_apart(layout, device_.offsets, intervals, "allocations", [&](std::size_t a) {
    const allocation& x = lives_.allocations[a];
    return (x.is_workspace() ? "the workspace of operation " + std::to_string(x.operation)
                             : "tensor " + std::to_string(x.tensor)) +
           " from step " + std::to_string(x.first);
  });
}

/// Likewise for the copies on the host.
REMAT_INLINE void launch_plan::set_host_layout(const arena_layout& layout, std::span<const interval> intervals) {
  host_ = {{layout.offsets.begin(), layout.offsets.end()}, layout.arena_bytes, layout.alignment};
  require_apart(layout, host_.offsets, intervals, "copies on the host", [&](std::size_t a) {
    const allocation& x = lives_.host[a];
    return "on the host, tensor " + std::to_string(x.tensor) + " from step " + std::to_string(x.first);
  });
}

REMAT_INLINE std::int64_t launch_plan::arena_bytes_within(std::int64_t budget) const {
  return bytes_within(device_.bytes, budget, "the arena", "; fit_arena finds schedules whose arena fits");
}

REMAT_INLINE std::int64_t launch_plan::host_arena_bytes_within(std::int64_t budget) const {
  return bytes_within(host_.bytes, budget, "the host's arena", "");
}

REMAT_INLINE std::string launch_plan::label(const launch& l) const {
  if (!l.is_copy()) return label(l.operation);
  return "the copy of " + label(copied(l)) + (l.kind() == step_kind::offload ? " to the host" : " from the host");
}

/// Addresses by which launches are ordered: offsets in the arena, and below 0 a range for each output in the caller's
/// memory, which all allocations of that output share.
REMAT_INLINE std::vector<std::int64_t> launch_plan::addresses() const {
  std::vector<std::int64_t> out(device_.offsets);
  std::vector<std::int64_t> of_tensor(place_.size(), 0);
  std::int64_t lowest = 0;  // no overflow: all tensors together have at most 2^63 − 1 bytes
  for (std::uint32_t a = 0; a < out.size(); ++a) {
    if (is_in_arena(a)) continue;
    std::int64_t& at = of_tensor[lives_.allocations[a].tensor];
    if (at == 0) at = lowest -= lives_.allocations[a].bytes;
    out[a] = at;
  }
  return out;
}

REMAT_INLINE void launch_plan::make_launches(const flat_graph& g, std::span<const step> steps) {
  std::vector<std::uint32_t> now(g.num_tensors, launch_argument::bound);  // tensor → its allocation
  std::vector<std::uint32_t> on_host(lives_.host.empty() ? 0 : g.num_tensors, lifetimes::no_allocation);
  std::uint32_t copies = 0;  // number of copies on the host, so far
  std::uint32_t copied = 0;  // the tensor of the present copy
  std::vector<std::uint32_t> event_of(assignment_.size(), launch::no_event);
  by_stream_.resize(assignment_.streams);
  launches_.reserve(assignment_.size());
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    const step x = steps[i];
    if (x.is_free()) {
      const std::size_t t = index(x.tensor());
      if (place_[t] == place::arena) frees_.values.push_back(now[t]);
      now[t] = launch_argument::bound;
      continue;
    }
    if (x.is_copy() && x.kind() == step_kind::drop) continue;
    const auto v = static_cast<std::uint32_t>(launches_.size());
    if (v != 0) frees_.end_row();
    launch l;
    l.step = i;
    l.stream = assignment_.stream[v];
    if (assignment_.awaited[v]) {
      l.event = event_of[v] = num_events();
      events_.push_back(v);
    }
    for (const std::uint32_t w : assignment_.waits[v]) waits_.values.push_back(event_of[w]);
    waits_.end_row();
    for (const std::uint32_t a : lives_.outputs[i]) now[lives_.allocations[a].tensor] = a;
    std::span<const std::uint32_t> inputs, outputs;
    if (x.is_compute()) {
      l.operation = x.operation();
      inputs = graph_.inputs[index(l.operation)];
      outputs = graph_.outputs[index(l.operation)];
    } else {
      copied = static_cast<std::uint32_t>(index(x.tensor()));
      if (x.kind() == step_kind::offload) on_host[copied] = copies++;
      l.host = on_host[copied];
      (x.kind() == step_kind::offload ? inputs : outputs) = {&copied, 1};
    }
    add_arguments(g, now, inputs, outputs, l);
    begins_.end_row();
    by_stream_[l.stream].push_back(v);
    launches_.push_back(l);
  }
  if (!launches_.empty()) frees_.end_row();
  in_order_.resize(launches_.size());
  std::iota(in_order_.begin(), in_order_.end(), 0U);
  output_allocation_.assign(g.num_tensors, launch_argument::bound);
  for (const std::uint32_t t : g.final_outputs)
    if (place_[t] == place::arena) output_allocation_[t] = now[t];
}

/// Adds the inputs, outputs and workspace of launch `l`. `now` holds the allocation of each tensor.
REMAT_INLINE void launch_plan::add_arguments(const flat_graph& g, std::span<const std::uint32_t> now,
                                             std::span<const std::uint32_t> inputs,
                                             std::span<const std::uint32_t> outputs, launch& l) {
  l.first_input = static_cast<std::uint32_t>(arguments_.size());
  for (const std::uint32_t t : inputs) add_argument(g, now, t);
  l.first_output = static_cast<std::uint32_t>(arguments_.size());
  for (const std::uint32_t t : outputs) {
    add_argument(g, now, t);
    launch_argument& x = arguments_.back();
    if (is_resident(x.tensor))
      throw bad_argument("the graph is not the problem's: the graph's operation writes " + label(x.tensor) +
                         ", which is always resident");
    const bool fresh = lives_.allocations[now[t]].first == l.step;
    x.adds = !l.is_copy() && (is_accumulated(x.tensor) || (!fresh && g.producers[t].size() > 1));
    if (fresh && x.allocation != launch_argument::bound) begins_.values.push_back(x.allocation);
  }
  if (arguments_.size() >= std::numeric_limits<std::uint32_t>::max())
    throw bad_argument("the schedule's launches have 2^32 − 1 or more arguments");
  l.end = static_cast<std::uint32_t>(arguments_.size());
  if (const std::uint32_t a = lives_.workspace[l.step]; a != lifetimes::no_allocation) {
    l.workspace_offset = device_.offsets[a];
    l.workspace_bytes = lives_.allocations[a].bytes;
  }
}

REMAT_INLINE void launch_plan::add_argument(const flat_graph& g, std::span<const std::uint32_t> now, std::uint32_t t) {
  launch_argument x;
  x.tensor = static_cast<tensor_id>(t);
  x.bytes = tensor_bytes_[t];
  if (g.always_resident[t]) {
    bound_[t] = 1;
  } else if (now[t] == launch_argument::bound) {
    throw bad_argument("the graph is not the problem's: the graph's operation uses " + label(x.tensor) +
                       ", which has no memory at that step");
  } else if (place_[t] == place::arena) {
    x.allocation = now[t];
    x.offset = device_.offsets[x.allocation];
  }
  arguments_.push_back(x);
}

}  // namespace REMAT_NAMESPACE
