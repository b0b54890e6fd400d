// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/flat_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// When each engine has done what it was given, and when the copies of each tensor end: the rules of time of
/// `engine_times_of`, step by step. It knows nothing of what is legal; the caller gives it legal steps, in order.
class engine_clocks {
 public:
  /// All engines are free at time 0. The graph must outlive the clocks.
  engine_clocks(const flat_graph& g, const host_link& link) : graph_(g), link_(link), copies_(g.num_tensors) {}

  /// Tensor `t` is allocated by a compute that runs next: copies of an earlier allocation no longer matter.
  void allocate(std::uint32_t t) { copies_[t].coming = copies_[t].leaving = 0; }

  /// Runs operation `o`, after `allocate` for each output that was not allocated.
  step_times compute(std::uint32_t o) {
    double& now = at(engine::compute);
    for (const std::uint32_t t : graph_.inputs[o]) now = std::max(now, copies_[t].coming);
    for (const std::uint32_t t : graph_.outputs[o]) now = std::max({now, copies_[t].coming, copies_[t].leaving});
    const double begin = now;
    now += graph_.time[o];
    return {begin, now};
  }

  /// Frees tensor `t` on the device.
  step_times free(std::uint32_t t) {
    double& now = at(engine::compute);
    now = std::max({now, copies_[t].coming, copies_[t].leaving});
    return {now, now};
  }

  /// Copies tensor `t` to the host.
  step_times offload(std::uint32_t t) {
    const step_times done = copy(engine::copy_out, copies_[t].coming, link_.time_out(graph_.bytes[t]));
    copies_[t].on_host = copies_[t].leaving = done.end;
    return done;
  }

  /// Copies tensor `t` back to the device.
  step_times prefetch(std::uint32_t t) {
    const step_times done = copy(engine::copy_in, copies_[t].on_host, link_.time_in(graph_.bytes[t]));
    copies_[t].coming = done.end;
    copies_[t].leaving = 0;
    return done;
  }

  /// Releases the host's copy of tensor `t`.
  step_times drop(std::uint32_t t) {
    at(engine::copy_out) = std::max(at(engine::copy_out), copies_[t].coming);
    const double released = std::max(at(engine::compute), copies_[t].coming);
    return {released, released};
  }

  /// Returns the time when the last engine ends.
  [[nodiscard]] double end() const { return *std::max_element(through_.begin(), through_.end()); }

 private:
  struct moments {
    double on_host = 0;  // when the copy on the host is whole
    double coming = 0;   // when the copy on the device is whole
    double leaving = 0;  // when the last copy out of this allocation ends
  };

  double& at(engine e) { return through_[static_cast<std::size_t>(e)]; }

  /// Gives engine `e` a copy whose source is whole at `ready`.
  step_times copy(engine e, double ready, double seconds) {
    const double begin = std::max({at(e), at(engine::compute), ready});
    at(e) = begin + seconds;
    return {begin, at(e)};
  }

  const flat_graph& graph_;
  host_link link_;
  std::array<double, num_engines> through_{};  // when each engine has done what it was given
  std::vector<moments> copies_;                // each tensor's moments
};

/// Runs the steps of a legal schedule on the clocks, one by one.
class engine_replay {
 public:
  /// No step has run. The graph must outlive this object.
  engine_replay(const flat_graph& g, const host_link& link)
      : graph_(g), clocks_(g, link), allocated_(g.num_tensors, 0) {}

  /// Runs the next step, and returns when it runs.
  step_times run(step x) {
    const auto id = static_cast<std::uint32_t>(x.is_compute() ? index(x.operation()) : index(x.tensor()));
    switch (x.kind()) {
      case step_kind::compute:
        for (const std::uint32_t t : graph_.outputs[id])
          if (allocated_[t] == 0) {
            allocated_[t] = 1;
            clocks_.allocate(t);
          }
        return clocks_.compute(id);
      case step_kind::free:
        allocated_[id] = 0;
        return clocks_.free(id);
      case step_kind::offload:
        return clocks_.offload(id);
      case step_kind::prefetch:
        allocated_[id] = 1;
        return clocks_.prefetch(id);
      case step_kind::drop:
        break;
    }
    return clocks_.drop(id);
  }

  /// Returns the time when the last engine ends.
  [[nodiscard]] double end() const { return clocks_.end(); }

 private:
  const flat_graph& graph_;
  engine_clocks clocks_;
  std::vector<std::uint8_t> allocated_;  // whether each tensor is allocated on the device
};

}  // namespace REMAT_NAMESPACE::detail
