// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/profile.hpp"

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

namespace detail::profiling {

REMAT_INLINE void refuse_unmeasured(op_id o, std::string_view name) {
  std::string text = "operation " + std::to_string(index(o));
  if (!name.empty()) text += " (" + std::string(name) + ")";
  throw bad_cost(text + " was not measured: it did not run in the schedule that was profiled");
}

REMAT_INLINE void refuse_missing_times(std::size_t times, std::size_t launches) {
  throw bad_argument("the executor noted " + std::to_string(times) + " times of " + std::to_string(launches) +
                     " launches; it needs the option `timing`");
}

REMAT_INLINE void refuse_no_runs() { throw bad_argument("runs is 0; a profile needs at least 1"); }

}  // namespace detail::profiling

REMAT_INLINE double summarize(std::span<double> times, time_statistic statistic) {
  if (times.empty()) return std::numeric_limits<double>::quiet_NaN();
  if (statistic == time_statistic::least) return *std::min_element(times.begin(), times.end());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return times.size() % 2 == 1 ? *middle : (*std::max_element(times.begin(), middle) + *middle) / 2;
}

REMAT_INLINE void launch_times::add(op_id o, double seconds) {
  if (index(o) >= of_.size())
    throw bad_argument("there is no operation " + std::to_string(index(o)) + "; there are " +
                       std::to_string(of_.size()));
  if (!(seconds >= 0) || !std::isfinite(seconds))
    throw bad_cost("operation " + std::to_string(index(o)) + " took " + std::to_string(seconds) +
                   " seconds; a time must be finite and not negative");
  of_[index(o)].push_back(seconds);
}

REMAT_INLINE measured_times launch_times::summary(time_statistic statistic) const {
  measured_times out;
  std::vector<double> times;
  for (const std::vector<double>& all : of_) {
    times = all;
    out.seconds.push_back(summarize(times, statistic));
  }
  return out;
}

}  // namespace remat
