// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/execute/detail/launch_calls.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/execute/launch_plan.hpp"

namespace remat::detail {

namespace host {

inline constexpr std::byte poison{0xdb};

/// Watches the memory of launches that one thread runs in the schedule's order: `host_debug`, and kernels that change
/// their inputs. O(bytes of the arguments) time a launch; for `host_debug::every_launch` O(bytes of the arena).
class memory_guard {
 public:
  /// The plan and the calls must outlive the guard.
  memory_guard(const launch_plan& plan, const launch_calls<host_stream>& calls, host_debug debug, bool check_inputs);

  void begin_run();
  /// Before launch `i`: poisons what it must write. Throws `error` if memory that it is given is not poison any more.
  void before(std::uint32_t i);
  /// After launch `i`. Throws `error` if its kernel has changed an input, or (`every_launch`) has written to memory
  /// that belongs to no tensor.
  void after(std::uint32_t i);
  /// Throws `error` if memory that belongs to no tensor is not poison any more.
  void end_run();

 private:
  [[nodiscard]] std::span<std::byte> range(std::uint32_t a) const;
  void take(std::uint32_t a, std::uint32_t i);
  void release(std::uint32_t a);
  void poison_bound_outputs(std::uint32_t i) const;
  void require_free_memory_poisoned(std::size_t launches_begun, const char* culprit) const;
  void require_poison(std::span<const std::byte> bytes, std::size_t launches_begun, const char* culprit) const;
  [[nodiscard]] std::uint32_t last_allocation_at(std::int64_t byte, std::size_t launches_begun) const;

  const launch_plan& plan_;
  const launch_calls<host_stream>& calls_;
  std::span<std::byte> arena_;
  host_debug debug_;
  bool check_inputs_;
  std::vector<std::uint8_t> in_use_;       // of each allocation
  std::vector<std::uint32_t> by_address_;  // the allocations in the order of their offsets
  std::vector<std::uint64_t> hashes_;      // of the inputs of the launch that runs
};

}  // namespace host

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/execute/impl/memory_guard.hpp"
#endif
