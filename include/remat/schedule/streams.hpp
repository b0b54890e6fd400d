// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// Options of `assign_streams`.
struct stream_options {
  /// The largest number of streams.
  static constexpr std::uint32_t max_streams = 64;

  /// For the computes: 1 … max_streams. 1 if the schedule copies tensors to the host.
  std::uint32_t streams = 1;
  /// For each allocation of the schedule, its address in the arena. A compute that writes to addresses then waits for
  /// all computes that used them before. Empty: no two allocations share addresses, and only data orders the computes.
  std::span<const std::int64_t> offsets{};
  /// For each operation of the graph, the share of the device that its kernel occupies while it runs, 0 … 1. Launches
  /// whose shares add up to more than 1 do not overlap in the simulated times. Empty: all shares are 0, and any
  /// launches may overlap.
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
/// and the choice of the stream. They add no wait: a device that has room nevertheless may begin earlier.
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
#include "remat/schedule/impl/streams.hpp"
#endif
