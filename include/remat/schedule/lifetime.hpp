// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// One allocation of a schedule: a tensor from the compute or the prefetch that allocates it to its free, or the
/// workspace of one compute; or on the host, the copy of a tensor from its offload to its drop. It occupies memory
/// during the steps [first, last).
struct allocation {
  /// Marks workspace, which is no tensor.
  static constexpr std::uint32_t no_tensor = 0xffffffff;
  /// Marks an allocation that a copy makes.
  static constexpr std::uint32_t no_operation = 0xffffffff;

  std::uint32_t first = 0;           ///< the step that allocates it
  std::uint32_t last = 0;            ///< the step that frees it; the number of steps if none does
  std::uint32_t tensor = no_tensor;  ///< `no_tensor` for workspace, whose `last` is `first` + 1
  std::uint32_t operation = 0;       ///< the operation that allocates it, or uses it as workspace; or `no_operation`
  std::int64_t bytes = 0;            ///< the size of the tensor or the workspace

  /// Returns true for workspace, false for a tensor.
  [[nodiscard]] bool is_workspace() const noexcept { return tensor == no_tensor; }
  /// Compares all members.
  friend bool operator==(const allocation&, const allocation&) = default;
};

/// All allocations of a schedule, and for each compute the allocations that it reads, writes and uses as workspace.
/// An offload reads the allocation of its tensor, and a prefetch writes it. Copies on the host have a list of their
/// own.
///
/// A tensor that is freed and computed again has an allocation for each time. A tensor of 0 bytes has allocations like
/// any other. An operation without workspace has no allocation for it.
struct lifetimes {
  /// Marks a step without workspace.
  static constexpr std::uint32_t no_allocation = 0xffffffff;

  std::vector<allocation> allocations;  ///< ascending in `first`; of one compute: its new outputs, then the workspace
  index_rows inputs;   ///< step → the allocations that it reads, in the order of the operation's row; none for a free
  index_rows outputs;  ///< step → the allocations that it writes, in the order of the operation's row; none for a free
  std::vector<std::uint32_t> workspace;  ///< step → the allocation of its workspace, or no_allocation
  std::vector<allocation> host;          ///< copies on the host, ascending in `first`

  /// Returns the number of steps of the schedule.
  [[nodiscard]] std::size_t num_steps() const noexcept { return workspace.size(); }
};

/// Returns the allocations of a schedule with their lifetimes.
///
/// The largest sum of the bytes that are allocated during one compute is the peak that `check` reports.
/// O(steps + their reads and writes) time and memory.
/// Throws `bad_argument` if `check(p, steps)` refuses the schedule, or if it has 2^32 − 1 or more allocations, steps or
/// reads.
[[nodiscard]] lifetimes lifetimes_of(const problem& p, std::span<const step> steps);

/// Memory in use from `time` on.
struct memory_point {
  /// Marks a point where no operation begins: the end of the schedule, or a copy.
  static constexpr std::uint32_t no_operation = 0xffffffff;

  double time = 0;                         ///< the time since the start of the schedule, in the cost model's unit
  std::int64_t bytes = 0;                  ///< bytes in use
  std::uint32_t operation = no_operation;  ///< the operation that begins to run at `time`
  std::uint32_t run = 0;                   ///< the number of this run of the operation, from 1; 0 if none begins
};

/// The memory of one schedule over time, what it holds at its peak and at the turn from forward to backward, and what
/// it recomputes: figures for people.
struct memory_profile {
  /// All operations of one name that are recomputed.
  struct recomputed {
    std::string name{};            ///< the name of the operations
    std::uint64_t operations = 0;  ///< how many of this name run more than once
    std::uint64_t reruns = 0;      ///< runs beyond the first
    double time = 0;               ///< the time of the reruns
  };
  /// One operation that runs more than once.
  struct rerun {
    std::uint32_t operation = 0;  ///< the index of the operation
    std::uint32_t runs = 0;       ///< how often it runs, at least 2
  };
  /// A tensor, or the workspace of an operation, that is in memory at one moment.
  struct resident {
    std::string name{};           ///< the tensor's name, or "workspace of" and the operation
    std::int64_t bytes = 0;       ///< the bytes that it takes
    std::uint32_t operation = 0;  ///< the first that makes the tensor, or the one that has the workspace
    std::string source{};         ///< the line of the user's program that makes the tensor; may be empty
  };

  /// The tensors in memory at the peak that one line of the user's program makes.
  struct from_line {
    std::string source{};    ///< the line, "model.py:12"; empty for tensors whose line is not known
    std::int64_t bytes = 0;  ///< the bytes of these tensors
    double time = 0;         ///< the time of one run of each of their producers
  };

  std::vector<memory_point> memory{};    ///< one point at each compute and each prefetch, and one at the end
  std::string peak_operation{};          ///< the operation that runs when memory is first at its peak
  std::string peak_prefetch{};           ///< the tensor whose prefetch brings memory to its peak, if no operation does
  double peak_time = 0;                  ///< start of that operation, or the time from which that tensor is counted
  std::int64_t peak_bytes = 0;           ///< the largest memory at a compute, or after a prefetch
  std::vector<recomputed> recomputes{};  ///< most time first
  std::vector<rerun> reruns{};           ///< the same operations one by one, ascending
  double rerun_time = 0;                 ///< the time of all reruns
  std::vector<resident> at_peak{};       ///< tensors and workspace at the peak, largest first
  std::vector<from_line> by_source{};  ///< the tensors of `at_peak` by lines, most bytes first; empty: no line is known
  std::optional<double> turn_time{};   ///< when the first backward operation begins; empty if none runs
  std::vector<resident> kept{};        ///< tensors in memory just before `turn_time`, largest first
  std::vector<memory_point> host{};    ///< bytes on the host: one point at each offload and each drop
  std::int64_t host_peak_bytes = 0;    ///< the most bytes on the host
  std::uint64_t copies = 0;            ///< copies to the host and back
  std::vector<resident> copied{};  ///< tensors that go to the host, with the bytes of all their copies, largest first
  engine_times times{};            ///< the times of the steps and the engines; empty if the problem has no link
};

/// Names of operations and tensors.
struct name_lookup {
  std::function<std::string(op_id)> operation{};   ///< gives the name of an operation
  std::function<std::string(tensor_id)> tensor{};  ///< gives the name of a tensor
  /// Gives the module of an operation as a path with dots, "blocks.0.norm"; may be empty, and so may what it gives.
  std::function<std::string(op_id)> module{};
  /// Gives the line of the user's program; may be empty, and so may what it gives, as in the next two.
  std::function<std::string(op_id)> source{};
  /// Gives the line that makes a tensor, if it is not its producer's.
  std::function<std::string(tensor_id)> line{};
  /// Gives the path of an operation in the words of the framework.
  std::function<std::string(op_id)> scope{};
};

/// Returns the names of a graph, which must outlive the result.
template <named_graph G>
[[nodiscard]] name_lookup names_of(const G& graph) {
  name_lookup names;
  names.operation = [&graph](op_id o) { return std::string(std::string_view(graph.name(o))); };
  names.tensor = [&graph](tensor_id t) { return std::string(std::string_view(graph.name(t))); };
  if constexpr (sourced_graph<G>) {
    names.source = [&graph](op_id o) { return std::string(std::string_view(graph.source(o))); };
    names.line = [&graph](tensor_id t) { return std::string(std::string_view(graph.source(t))); };
    names.scope = [&graph](op_id o) { return std::string(std::string_view(graph.scope(o))); };
  }
  return names;
}

/// Runs the exact checker over a legal `plan` and records what it does. Times are the cost model's, one compute after
/// the other; beside copies, they are those of `engine_times_of`, and memory changes with the list: a prefetch and an
/// offload count when the computes and frees listed before have ended. O(steps + their reads and writes), and a sort by
/// size.
[[nodiscard]] memory_profile memory_profile_of(const problem& p, const name_lookup& names, const schedule& plan);

/// \overload
/// Takes the names from `graph`.
template <named_graph G>
[[nodiscard]] memory_profile memory_profile_of(const problem& p, const G& graph, const schedule& plan) {
  return memory_profile_of(p, names_of(graph), plan);
}

/// Options of `assign_streams`.
struct stream_options {
  /// The largest number of streams.
  static constexpr std::uint32_t max_streams = 64;

  /// The number of streams for the computes, 1 … max_streams; 1 if the schedule copies tensors to the host.
  std::uint32_t streams = 1;
  /// The address of each allocation of the schedule in the arena. A compute that writes to addresses then waits for all
  /// computes that used them before. Empty: no two allocations share addresses, and only data orders the computes.
  std::span<const std::int64_t> offsets{};
  /// The share of the device that the kernel of each operation occupies while it runs, 0 … 1. Launches whose shares add
  /// up to more than 1 do not overlap in the simulated times. Empty: all shares are 0, and any launches may overlap.
  std::span<const double> shares{};
};

/// The computes and the copies of a schedule, called *launches* and numbered in its order, on several streams. A stream
/// runs its launches one after the other, in their order.
struct stream_assignment {
  /// Streams to choose from; some may get no launch. If the schedule copies tensors to the host, there are
  /// `num_engines`: stream 0 has the computes, stream 1 the copies out and stream 2 the copies in.
  std::uint32_t streams = 1;
  std::vector<std::uint32_t> steps;   ///< launch → its step of the schedule, ascending
  std::vector<std::uint32_t> stream;  ///< launch → its stream
  /// launch → the launches of other streams that must have ended before it begins, without those whose end follows from
  /// the other waits and from the order within the streams.
  index_rows waits;
  std::vector<std::uint8_t> awaited;  ///< launch → 1 if it is in a row of `waits`
  std::vector<double> start;          ///< launch → the time when it begins, in the cost model's unit
  double makespan = 0;                ///< the time when the last launch ends
  /// The makespan on as many streams as launches and without shares: the longest path. With copies: the makespan.
  double critical_path = 0;
  double work = 0;  ///< the sum of the times of all launches

  /// Returns the number of launches.
  [[nodiscard]] std::size_t size() const noexcept { return steps.size(); }
};

/// Assigns the computes and copies of a schedule to streams: finds what each of them must wait for, and the makespan.
///
/// A compute waits for the computes that wrote what it reads. A compute that writes to an allocation waits for all that
/// wrote or read the allocation before: a recomputation waits for the readers of the same bytes, and a contribution to
/// a tensor of several producers waits for the contribution before it, so the order of additions never depends on
/// timing. With `offsets`, a compute that allocates addresses waits for all that used these addresses before. Every
/// execution that keeps to this order computes the same values as the schedule.
///
/// List scheduling \cite graham1966bounds with the problem's times; the list is the schedule's order. Each compute goes
/// to the stream where it can begin first; of several, to one whose last compute it waits for. Differs from the paper:
/// no compute overtakes another one of its stream that is listed before it. So gaps stay, and the makespan may exceed
/// the paper's bound. Waits are reduced with vector clocks \cite mattern1989virtual.
///
/// With `shares`, a launch begins at the first moment from which its share fits beside those of the launches before it
/// in the list until it ends: the serial scheme of \cite kolisch1996serial. So the makespan is at least the sum of time
/// times share over all launches, and the sum of the times if all shares are 1. The shares change the simulated times
/// and the choice of the stream. They add no wait: a device that is free nevertheless may begin earlier.
///
/// With copies to the host, each engine has a stream of its own: the computes, the copies out, the copies in. The waits
/// are those of the engines (`engine_times_of`), and no others: they also keep all uses of the arenas in order, on the
/// device and on the host. So the offsets and the shares change nothing. The makespan is the time that `check` reports.
///
/// For k streams, O((steps + their reads and writes + changes of address) · k + computes · k²) time, with a logarithm
/// for each change of address; O((computes + allocations) · k) memory. With `shares`, each compute also looks, for each
/// stream, at the changes of the device's load between the time when it is ready and its begin: few if the streams are
/// busy, O(computes) at worst.
/// Throws `bad_argument` if the schedule is not legal or over the problem's budget, if the options do not fit it, and
/// for several streams beside copies to the host.
///
///     const stream_assignment a = assign_streams(p, *solution.plan, {.streams = 4});
///     a.makespan;
[[nodiscard]] stream_assignment assign_streams(const problem& p, const lifetimes& lives, std::span<const step> steps,
                                               const stream_options& options = {});

/// \overload
[[nodiscard]] inline stream_assignment assign_streams(const problem& p, std::span<const step> steps,
                                                      const stream_options& options = {}) {
  return assign_streams(p, lifetimes_of(p, steps), steps, options);
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/schedule/impl/lifetime.hpp"
#endif
