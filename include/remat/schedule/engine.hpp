// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "remat/core/option.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

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

/// From when to when an engine does one step, in the cost model's unit of time.
struct step_times {
  double begin = 0;  ///< when it begins
  double end = 0;    ///< when it ends; equal to `begin` for a step that takes no time

  /// Compares both.
  friend constexpr bool operator==(const step_times&, const step_times&) = default;
};

}  // namespace REMAT_NAMESPACE
