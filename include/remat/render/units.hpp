// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace remat {

/// `value` with `decimals` digits after the point, whatever the locale; "–" for a value that is not finite.
[[nodiscard]] std::string format_fixed(double value, int decimals);

/// `value` with four significant digits, in scientific notation where it is very large or very small.
[[nodiscard]] std::string format_number(double value);

/// `value` with up to three significant digits, at most two of them after the point.
[[nodiscard]] std::string format_three(double value);

/// Bytes with a binary unit: "0 B", "1.50 KiB", "12.3 GiB".
[[nodiscard]] std::string format_bytes(std::int64_t bytes);

/// Seconds with a unit: "12.3 µs", "4.56 ms", "7.89 s".
[[nodiscard]] std::string format_seconds(double seconds);

/// A time of a cost model: as seconds where `unit` is "s", else the number and the unit's name, if it has one.
[[nodiscard]] std::string format_time(double time, std::string_view unit);

/// A ratio as a percentage: 0.123 is "12.3 %".
[[nodiscard]] std::string format_percent(double ratio, int decimals = 1);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/render/impl/units.hpp"
#endif
