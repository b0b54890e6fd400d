// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// Options of `write_trace`.
struct trace_options {
  std::string graph{};      ///< name of the graph
  std::string solver{};     ///< name of the solver that made the schedule
  std::string cost{};       ///< the cost model in words
  std::string time_unit{};  ///< "s", or empty: the cost model's own
  /// The computes on several streams, from `assign_streams`. Null: one compute after the other.
  const stream_assignment* streams = nullptr;
};

/// The phase of an operation as a trace's category; "operation" if the graph does not know it.
template <class G>
[[nodiscard]] std::string_view phase_category([[maybe_unused]] const G& graph, [[maybe_unused]] op_id o) {
  if constexpr (phased_graph<G>) {
    const op_phase phase = graph.phase(o);
    return phase == op_phase::unknown ? "operation" : to_string(phase);
  } else {
    return "operation";
  }
}

/// Writes a schedule, run in simulated time, as a trace for https://ui.perfetto.dev or chrome://tracing, in the JSON
/// object format of \cite chromiumtrace.
///
/// - Each compute is a complete event ("X") on the track of its stream, in the schedule's order: the operation's name;
///   its phase as the category, with "recomputation" from its second run on; and as arguments its id, the number of the
///   run and of all its runs, the bytes that it writes, its workspace, the memory in use while it runs (on streams:
///   when it begins), the bytes freed right behind it in the schedule, and those of the freed tensors that are made
///   again ("evicts"). If `names` knows them, also the line of the user's program ("source") and the path in the words
///   of the framework ("scope").
/// - A counter ("C") shows the memory in use, workspaces included, and what is left of the problem's budget, so that
///   viewers that stack them draw the budget; a mark ("i") shows the first peak. Without streams, the maximum of the
///   counter is the peak that `check` reports. On streams, bytes count from the begin of the compute that allocates
///   them to the end of their last use: never more than the arena, if the streams use its offsets, but possibly more
///   than the budget of the peak.
/// - Copies to the host and back are complete events of the category "copy", on a track for each direction, with the id
///   of the tensor, its bytes and the bytes on the host; a second counter shows these bytes. Memory changes when the
///   computes and frees listed before have ended. Streams do not go with copies.
/// - On one stream, stretches of one phase, or of recomputation, are asynchronous events ("b", "e"): rows of their own.
///
/// A microsecond of the trace is one of the schedule if `time_unit` is "s", else one of the model's units, or a power
/// of ten of either if numbers would be too large or too small; "otherData" says which. Times are whole nanoseconds,
/// rounded such that computes on one stream never overlap. The same arguments give the same bytes. The text goes to
/// `out` bit by bit; the state of the stream says whether it arrived. O(steps + their reads and writes) time and
/// memory; on streams, with a logarithm for sorting. Throws `bad_argument` if the schedule is not legal or over the
/// problem's budget, its time is not finite, or the streams are of another schedule or beside copies.
///
///     std::ofstream file("plan.json");
///     write_trace(file, p.with_budget(budget), graph, *solution.plan, {.graph = graph.name(), .time_unit = "s"});
void write_trace(std::ostream& out, const problem& p, const name_lookup& names,
                 const std::function<std::string_view(op_id)>& category, std::span<const step> steps,
                 const trace_options& options = {});

/// \overload
///
/// Takes the names and phases of `graph`.
template <named_graph G>
void write_trace(std::ostream& out, const problem& p, const G& graph, const schedule& plan,
                 const trace_options& options = {}) {
  const auto category = [&](op_id o) { return phase_category(graph, o); };
  write_trace(out, p, names_of(graph), category, plan.steps, options);
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/render/impl/trace_json.hpp"
#endif
