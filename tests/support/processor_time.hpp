// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>

namespace remat::test {

/// The text of a file that the system makes. Empty or cut off if it cannot be read to its end.
///
/// A process may end between the opening of its file and the reading. The stream's buffer then throws, which an
/// iterator over the buffer passes on, and `std::getline` does not.
[[nodiscard]] inline std::string system_text(const std::string& path) {
  std::ifstream in(path);
  std::string text;
  std::getline(in, text, '\0');
  return text;
}

/// Seconds of processor time used so far by this process: all of its threads, the child processes that have ended, and
/// those that still run (to a hundredth of a second, as the system counts them).
///
/// Tests compare processor time, never the wall clock: another load on the machine must not change their result.
[[nodiscard]] inline double processor_seconds() {
  timespec own{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  double seconds = static_cast<double>(own.tv_sec) + static_cast<double>(own.tv_nsec) * 1e-9;
  rusage ended{};
  getrusage(RUSAGE_CHILDREN, &ended);
  for (const timeval& t : {ended.ru_utime, ended.ru_stime})
    seconds += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;

  // Fields 14 and 15 of /proc/PID/stat; the second field, the name in parentheses, may contain blanks.
  std::ifstream all("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (std::string pid; all >> pid;) {
    const std::string text = system_text("/proc/" + pid + "/stat");
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) continue;
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    double user = 0, system = 0;
    fields >> user >> system;
    seconds += (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return seconds;
}

/// Samples the processor time at a moment that another thread waits for, and may act on it.
class sampler {
 public:
  /// Calls `act` and takes the sample when `clock()` has reached `when`. `clock` is polled every half millisecond.
  template <class Clock, class Act>
  sampler(Clock clock, double when, Act act)
      : thread_([this, clock, when, act](const std::stop_token& given_up) {
          while (clock() < when) {
            if (given_up.stop_requested()) return;
            std::this_thread::sleep_for(std::chrono::microseconds(500));
          }
          at_ = processor_seconds();
          act();
          taken_ = true;
        }) {}

  /// Seconds of processor time from the sample to now; 0 where the moment has not come.
  [[nodiscard]] double since() {
    thread_.request_stop();
    thread_.join();
    return taken_ ? processor_seconds() - at_ : 0;
  }
  [[nodiscard]] bool taken() const noexcept { return taken_; }  ///< after `since()`

 private:
  double at_ = 0;
  bool taken_ = false;
  std::jthread thread_;
};

}  // namespace remat::test
