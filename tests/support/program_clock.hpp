// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The clocks of this program, as a test sets them. This header defines functions of the standard library, so one file
/// of a program may include it, and such a test is a program by itself.

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace remat::test {

namespace program_clock {

inline std::atomic<std::int64_t> shift{0}, jump{0}, stride{0};  // nanoseconds
inline std::atomic<std::int64_t> readings{0}, jumps_at{-1};

inline std::chrono::nanoseconds read(clockid_t which) noexcept {
  timespec t{};
  ::clock_gettime(which, &t);
  if (readings.fetch_add(1) == jumps_at.load()) shift += jump.load();
  const std::int64_t by = stride.load();
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec + shift.fetch_add(by) + by);
}

}  // namespace program_clock

/// The program's clocks jump by `by` at reading number `at` from now.
class jumping_clock {
 public:
  jumping_clock(std::int64_t at, std::chrono::nanoseconds by) {
    program_clock::readings = 0;
    program_clock::jump = by.count();
    program_clock::jumps_at = at;
  }
  jumping_clock(const jumping_clock&) = delete;
  jumping_clock& operator=(const jumping_clock&) = delete;
  ~jumping_clock() {
    program_clock::jumps_at = -1;
    program_clock::shift = 0;
  }
};

/// Each reading of the program's clocks is later than the one before by `by`, and the time that has passed.
class hurrying_clock {
 public:
  explicit hurrying_clock(std::chrono::nanoseconds by) { program_clock::stride = by.count(); }
  hurrying_clock(const hurrying_clock&) = delete;
  hurrying_clock& operator=(const hurrying_clock&) = delete;
  ~hurrying_clock() {
    program_clock::stride = 0;
    program_clock::shift = 0;
  }
};

}  // namespace remat::test

// These take the place of the functions in the shared library of the language.
std::chrono::steady_clock::time_point std::chrono::_V2::steady_clock::now() noexcept {
  return time_point(remat::test::program_clock::read(CLOCK_MONOTONIC));
}
std::chrono::system_clock::time_point std::chrono::_V2::system_clock::now() noexcept {
  return time_point(remat::test::program_clock::read(CLOCK_REALTIME));
}
