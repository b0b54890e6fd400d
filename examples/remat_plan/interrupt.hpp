// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <stop_token>
#include <system_error>
#include <thread>

namespace remat_plan {

/// Turns signals into a stop request. While an object lives, the first Ctrl-C (SIGINT) or SIGTERM requests a stop, and
/// the second one ends the program. At most one object may live at a time.
///
/// A signal handler must not call `request_stop`, which takes a lock and runs callbacks. The handler writes one byte to
/// a pipe; a thread that waits at the other end requests the stop.
class interrupt {
 public:
  interrupt() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    read_end_ = ends[0];
    write_end() = ends[1];
    watcher_ = std::jthread([this] {
      char byte = 0;
      while (read(read_end_, &byte, 1) < 0 && errno == EINTR) {
      }
      if (byte == 0) return;
      signal_ = byte;
      source_.request_stop();
    });
    struct sigaction action {};
    action.sa_handler = [](int number) {
      const int saved = errno;
      const char byte = static_cast<char>(number);
      [[maybe_unused]] const auto written = write(write_end(), &byte, 1);
      errno = saved;
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;  // the second signal has its default effect
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before_int_);
    sigaction(SIGTERM, &action, &before_term_);
  }
  interrupt(const interrupt&) = delete;
  interrupt& operator=(const interrupt&) = delete;
  ~interrupt() {
    sigaction(SIGINT, &before_int_, nullptr);
    sigaction(SIGTERM, &before_term_, nullptr);
    close(write_end());  // ends the watcher's read
    watcher_.join();
    close(read_end_);
  }

  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }
  /// The signal that requested the stop; 0 if none came.
  [[nodiscard]] int signal() const { return signal_; }

 private:
  static int& write_end() {
    static int fd = -1;
    return fd;
  }

  int read_end_ = -1;
  std::atomic<int> signal_ = 0;
  std::stop_source source_;
  std::jthread watcher_;
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
};

}  // namespace remat_plan
