// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What is reported of the times of many training steps. It needs no CUDA, so that it is tested everywhere.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace train {

/// The quarters of some times: half of them lie between `first` and `third`.
struct quartiles {
  double first = 0, median = 0, third = 0;
};

/// By linear interpolation between the two nearest. Throws `std::invalid_argument` if there are none.
[[nodiscard]] inline quartiles quartiles_of(std::vector<double> times) {
  if (times.empty()) throw std::invalid_argument("there are no times");
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(times.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, times.size() - 1);
    return times[below] + (place - static_cast<double>(below)) * (times[above] - times[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

/// How many of the first steps do not count: kernels are loaded, the step is captured, clocks and temperature settle.
[[nodiscard]] inline std::size_t warm_up_steps(std::size_t steps) { return std::max<std::size_t>(2, steps / 5); }

}  // namespace train
