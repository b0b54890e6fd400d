// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE {

/// One step of a schedule, four bytes: run an operation, or release a tensor.
class step {
 public:
  /// Returns the step that runs operation `o`.
  [[nodiscard]] static constexpr step compute(op_id o) noexcept { return step(static_cast<std::uint32_t>(o)); }
  /// Returns the step that releases tensor `t`.
  [[nodiscard]] static constexpr step free(tensor_id t) noexcept {
    return step(static_cast<std::uint32_t>(t) | free_bit);
  }

  /// Returns true if the step runs an operation.
  [[nodiscard]] constexpr bool is_compute() const noexcept { return (code_ & free_bit) == 0; }
  /// Returns true if the step releases a tensor.
  [[nodiscard]] constexpr bool is_free() const noexcept { return !is_compute(); }
  /// Returns the operation that the step runs. Precondition: `is_compute()`.
  [[nodiscard]] constexpr op_id operation() const noexcept { return static_cast<op_id>(code_); }
  /// Returns the tensor that the step releases. Precondition: `is_free()`.
  [[nodiscard]] constexpr tensor_id tensor() const noexcept { return static_cast<tensor_id>(code_ & ~free_bit); }

  /// Compares kind and id.
  friend constexpr bool operator==(step, step) noexcept = default;

 private:
  static constexpr std::uint32_t free_bit = std::uint32_t{1} << 31;
  explicit constexpr step(std::uint32_t code) noexcept : code_(code) {}
  std::uint32_t code_;
};

/// A sequence of steps. Solvers return schedules; the checker, the memory plan and the executors read them.
///
/// A step `compute` runs an operation; outputs that are not allocated are allocated first. A step `free` releases a
/// tensor.
struct schedule {
  std::vector<step> steps;  ///< in the order in which they run

  /// Appends a run of operation `o`.
  void compute(op_id o) { steps.push_back(step::compute(o)); }
  /// Appends a release of tensor `t`.
  void free(tensor_id t) { steps.push_back(step::free(t)); }
  /// A schedule is a range of its steps for functions that take one.
  operator std::span<const step>() const noexcept { return steps; }  // NOLINT: implicit
  /// Compares all steps.
  friend bool operator==(const schedule&, const schedule&) = default;
};

}  // namespace REMAT_NAMESPACE
