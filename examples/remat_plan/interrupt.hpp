// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <stop_token>
#include <system_error>
#include <thread>

namespace remat_plan {

/// Turns signals into a stop request. While an object lives, the first Ctrl-C (SIGINT), SIGTERM or SIGHUP (a terminal
/// or connection that is lost) requests a stop, and the second one ends the program. A SIGHUP that is ignored when the
/// object is made, as under nohup, stays ignored. At most one object may live at a time.
///
/// If the system gives no thread, signals keep their effect: they end the program.
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
    try {
      watcher_ = std::jthread([this] { watch(); });
    } catch (const std::system_error&) {
      return;
    }
    struct sigaction action {};
    action.sa_handler = [](int number) {
      const int saved = errno;
      const char byte = static_cast<char>(number);
      [[maybe_unused]] const auto written = write(write_end(), &byte, 1);
      errno = saved;
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;  // the second signal has its default effect
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < signals.size(); ++i) {
      sigaction(signals[i], nullptr, &before_[i]);
      if (signals[i] != SIGHUP || before_[i].sa_handler != SIG_IGN) sigaction(signals[i], &action, nullptr);
    }
  }
  interrupt(const interrupt&) = delete;
  interrupt& operator=(const interrupt&) = delete;
  ~interrupt() {
    if (watcher_.joinable())
      for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before_[i], nullptr);
    close(write_end());  // ends the watcher's read
    if (watcher_.joinable()) watcher_.join();
    close(read_end_);
  }

  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }
  /// The signal that requested the stop; 0 if none came.
  [[nodiscard]] int signal() const { return signal_; }

 private:
  static constexpr std::array<int, 3> signals{SIGINT, SIGTERM, SIGHUP};

  void watch() {
    char byte = 0;
    while (read(read_end_, &byte, 1) < 0 && errno == EINTR) {
    }
    if (byte == 0) return;
    signal_ = byte;
    source_.request_stop();
  }
  static int& write_end() {
    static int fd = -1;
    return fd;
  }

  int read_end_ = -1;
  std::atomic<int> signal_ = 0;
  std::stop_source source_;
  std::jthread watcher_;
  std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace remat_plan
