// SPDX-License-Identifier: BSL-1.0
// The clock of the tests of deadlines: it must not end the program when child processes come and go.
#include "support/processor_time.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

using namespace remat::test;

TEST_CASE("a file that cannot be read is an empty text") {
  CHECK(system_text("/proc/self/stat").find(')') != std::string::npos);
  CHECK(system_text("/proc/no such process/stat").empty());
  CHECK(system_text("/proc/self").empty());  // opens, but every read fails: as the file of a process that has ended
}

TEST_CASE("processor time is read while child processes end") {
  std::atomic<bool> ended{false};
  double before = 0;
  bool is_monotonic = true;
  std::thread reader([&] {  // an exception on this thread would end the program
    while (!ended) {
      const double now = processor_seconds();
      is_monotonic = is_monotonic && now >= before - 0.1;  // a child's time is counted in hundredths until it ends
      before = now;
    }
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    REQUIRE(child > 0);
    CHECK(::waitpid(child, nullptr, 0) == child);
  }
  ended = true;
  reader.join();
  CHECK(is_monotonic);
  CHECK(before > 0);
}
