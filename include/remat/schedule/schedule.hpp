// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/option.hpp"

namespace REMAT_NAMESPACE {

/// The kinds of steps.
enum class step_kind : std::uint8_t {
  compute,   ///< runs an operation
  free,      ///< releases a tensor on the device
  offload,   ///< begins a copy of a tensor from the device to the host
  prefetch,  ///< allocates a tensor on the device, and begins a copy of it from the host
  drop       ///< releases the copy of a tensor on the host
};

/// The names of the values: those of the file format.
template <>
struct enum_names<step_kind> {
  /// Value and name.
  static constexpr std::array<std::pair<step_kind, std::string_view>, 5> all{{{step_kind::compute, "compute"},
                                                                              {step_kind::free, "free"},
                                                                              {step_kind::offload, "offload"},
                                                                              {step_kind::prefetch, "prefetch"},
                                                                              {step_kind::drop, "drop"}}};
};

/// One step of a schedule, four bytes: run an operation, release a tensor, or one of the three steps of a copy on the
/// host. An operation has 31 bits, a tensor 29.
class step {
 public:
  /// The largest number of tensors of which a schedule can speak.
  static constexpr std::size_t max_tensors = std::size_t{1} << 29;

  /// Returns the step that runs operation `o`.
  [[nodiscard]] static constexpr step compute(op_id o) noexcept { return step(static_cast<std::uint32_t>(o)); }
  /// Returns the step that releases tensor `t` on the device.
  [[nodiscard]] static constexpr step free(tensor_id t) noexcept { return of(step_kind::free, t); }
  /// Returns the step that begins a copy of tensor `t` to the host.
  [[nodiscard]] static constexpr step offload(tensor_id t) noexcept { return of(step_kind::offload, t); }
  /// Returns the step that allocates tensor `t` and begins its copy back to the device.
  [[nodiscard]] static constexpr step prefetch(tensor_id t) noexcept { return of(step_kind::prefetch, t); }
  /// Returns the step that releases the copy of tensor `t` on the host.
  [[nodiscard]] static constexpr step drop(tensor_id t) noexcept { return of(step_kind::drop, t); }
  /// Returns the step that releases or copies tensor `t` as `kind` says. Precondition: `kind` is not `compute`.
  [[nodiscard]] static constexpr step of(step_kind kind, tensor_id t) noexcept {
    return step(static_cast<std::uint32_t>(t) | (static_cast<std::uint32_t>(kind) + 3) << tensor_bits);
  }

  /// Returns the step with this `code()`. Precondition: it is the code of a step.
  [[nodiscard]] static constexpr step from_code(std::uint32_t code) noexcept { return step(code); }

  /// Returns what the step does.
  [[nodiscard]] constexpr step_kind kind() const noexcept {
    return is_compute() ? step_kind::compute : static_cast<step_kind>((code_ >> tensor_bits) - 3);
  }
  /// Returns true if the step runs an operation.
  [[nodiscard]] constexpr bool is_compute() const noexcept { return (code_ & tensor_flag) == 0; }
  /// Returns true if the step releases a tensor on the device.
  [[nodiscard]] constexpr bool is_free() const noexcept { return code_ >> tensor_bits == tensor_flag >> tensor_bits; }
  /// Returns true if the step is one of a copy on the host: `offload`, `prefetch` or `drop`.
  [[nodiscard]] constexpr bool is_copy() const noexcept { return code_ >> tensor_bits > tensor_flag >> tensor_bits; }
  /// Returns the operation that the step runs. Precondition: `is_compute()`.
  [[nodiscard]] constexpr op_id operation() const noexcept { return static_cast<op_id>(code_); }
  /// Returns the tensor that the step releases or copies. Precondition: `!is_compute()`.
  [[nodiscard]] constexpr tensor_id tensor() const noexcept {
    return static_cast<tensor_id>(code_ & ((std::uint32_t{1} << tensor_bits) - 1));
  }

  /// Returns the four bytes of the step: equal for equal steps. Of a tensor's step: the bytes of `free` of tensor 0,
  /// with two bits for the kind above the tensor's 29 bits, which are 0 for `free`.
  [[nodiscard]] constexpr std::uint32_t code() const noexcept { return code_; }

  /// Compares kind and id.
  friend constexpr bool operator==(step, step) noexcept = default;

 private:
  // The top bit is clear for a compute. Otherwise the next two bits hold the kind, and the others the tensor.
  static constexpr unsigned tensor_bits = 29;
  static constexpr std::uint32_t tensor_flag = std::uint32_t{1} << 31;
  explicit constexpr step(std::uint32_t code) noexcept : code_(code) {}
  std::uint32_t code_;
};

/// Returns true if one of `steps` is `offload`, `prefetch` or `drop`. O(steps) time.
[[nodiscard]] inline bool has_copies(std::span<const step> steps) noexcept {
  return std::any_of(steps.begin(), steps.end(), [](step x) { return x.is_copy(); });
}

/// A sequence of steps. Solvers return schedules; the checker, the memory plan and the executors read them.
///
/// A step `compute` runs an operation; outputs that are not allocated are allocated first. A step `free` releases a
/// tensor. The steps `offload`, `prefetch` and `drop` copy tensors to the host and back.
struct schedule {
  std::vector<step> steps;  ///< the steps in the order in which they run

  /// Appends a run of operation `o`.
  void compute(op_id o) { steps.push_back(step::compute(o)); }
  /// Appends a release of tensor `t`.
  void free(tensor_id t) { steps.push_back(step::free(t)); }
  /// Appends the begin of a copy of tensor `t` to the host.
  void offload(tensor_id t) { steps.push_back(step::offload(t)); }
  /// Appends an allocation of tensor `t` and the begin of its copy back to the device.
  void prefetch(tensor_id t) { steps.push_back(step::prefetch(t)); }
  /// Appends a release of the copy of tensor `t` on the host.
  void drop(tensor_id t) { steps.push_back(step::drop(t)); }
  /// Returns true if a step is `offload`, `prefetch` or `drop`. O(steps) time.
  [[nodiscard]] bool has_copies() const noexcept {
    return std::any_of(steps.begin(), steps.end(), [](step x) { return x.is_copy(); });
  }
  /// A schedule is a range of its steps for functions that take one.
  operator std::span<const step>() const noexcept { return steps; }  // NOLINT: implicit
  /// Compares all steps.
  friend bool operator==(const schedule&, const schedule&) = default;
};

/// The parts of a machine that work side by side. Each does what it is given in the order of the schedule.
enum class engine : std::uint8_t {
  compute,   ///< runs operations
  copy_out,  ///< copies from the device to the host
  copy_in    ///< copies from the host to the device
};

/// The names of the values. This list has every engine: `num_engines` is its length.
template <>
struct enum_names<engine> {
  /// Value and name.
  static constexpr std::array<std::pair<engine, std::string_view>, 3> all{
      {{engine::compute, "compute"}, {engine::copy_out, "copies out"}, {engine::copy_in, "copies in"}}};
};

/// The number of engines.
inline constexpr std::size_t num_engines = enum_names<engine>::all.size();

/// Returns the engine that does a step of this kind; empty for a kind that takes no time (`free`, `drop`).
[[nodiscard]] constexpr std::optional<engine> engine_of(step_kind kind) noexcept {
  switch (kind) {
    case step_kind::compute:
      return engine::compute;
    case step_kind::offload:
      return engine::copy_out;
    case step_kind::prefetch:
      return engine::copy_in;
    case step_kind::free:
    case step_kind::drop:
      break;
  }
  return std::nullopt;
}

/// The time in which an engine does one step, in the cost model's unit.
struct step_times {
  double begin = 0;  ///< when it begins
  double end = 0;    ///< when it ends; equal to `begin` for a step that takes no time

  /// Compares both.
  friend constexpr bool operator==(const step_times&, const step_times&) = default;
};

}  // namespace REMAT_NAMESPACE
