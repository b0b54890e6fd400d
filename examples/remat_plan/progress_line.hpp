// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "remat/core/run.hpp"
#include "remat/render/table.hpp"
#include "shared/program.hpp"

namespace remat_plan {

/// True for a terminal on which a line may be drawn over: neither TERM=dumb nor NO_COLOR asks for plain text.
[[nodiscard]] inline bool is_drawable_terminal(int file) {
  const char *const term = std::getenv("TERM"), *const plain = std::getenv("NO_COLOR");
  return isatty(file) == 1 && (term == nullptr || std::string_view(term) != "dumb") &&
         (plain == nullptr || *plain == '\0');
}

/// One line on standard error with the progress of the current solve. Nothing if standard error is no drawable
/// terminal.
///
/// A thread draws the line five times a second, so the time left counts down also while a solver reports nothing.
class progress_line {
 public:
  progress_line(double baseline_time, std::stop_token stop)
      : shown_(is_drawable_terminal(STDERR_FILENO)), baseline_time_(baseline_time), stop_(std::move(stop)) {
    if (!shown_) return;
    try {
      drawer_ = std::jthread([this](const std::stop_token& end) { draw(end); });
    } catch (const std::system_error&) {
      shown_ = false;  // the system gives no thread to draw with
    }
  }
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;
  ~progress_line() {
    finish();
    if (drawer_.joinable()) {
      drawer_.request_stop();
      drawer_.join();
    }
  }

  /// The objective of a solve, in its news.
  enum class objective : bool { time, bytes };

  /// Begins the line of a solve: `what` in words, with `limit` as its time limit.
  void begin(std::string what, std::chrono::nanoseconds limit, objective of = objective::time) {
    if (!shown_) return;
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    objective_ = of;
    latest_ = {};
    stage_.clear();
    begun_ = clock::now();
    limit_ = limit;
    active_ = true;
  }
  /// Shows these news of the solve from now on.
  void update(const remat::progress& p) {
    if (!shown_) return;
    const std::lock_guard lock(mutex_);
    latest_ = p;
    stage_ = p.stage;
    latest_.solver = {};
    latest_.stage = {};
  }
  /// Ends the line of a solve, and removes it from the terminal.
  void finish() {
    if (!shown_) return;
    const std::lock_guard lock(mutex_);
    active_ = false;
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
  }

 private:
  using clock = std::chrono::steady_clock;

  void draw(const std::stop_token& end) {
    std::unique_lock lock(mutex_);
    while (!end.stop_requested()) {
      wake_.wait_for(lock, end, std::chrono::milliseconds(200), [] { return false; });
      if (!active_ || end.stop_requested()) continue;
      std::string line = text();
      cut(line);
      std::fputs(("\r" + line + "\x1b[K").c_str(), stderr);
      std::fflush(stderr);
      drawn_ = true;
    }
  }

  [[nodiscard]] std::string text() const {
    const double gone = std::chrono::duration<double>(clock::now() - begun_).count();
    const bool limited = limit_ != std::chrono::nanoseconds::max();
    const double limit = std::chrono::duration<double>(limit_).count();
    std::string line;
    double part = -1;
    if (limited && limit > 0)
      part = gone / limit;
    else if (latest_.total != 0)
      part = static_cast<double>(latest_.done) / static_cast<double>(latest_.total);
    if (part >= 0) {
      constexpr int width = 12;
      const int full = static_cast<int>(std::lround(std::min(part, 1.0) * width));
      line += '[';
      for (int i = 0; i < width; ++i) line += i < full ? '#' : '.';
      line += "] ";
    }
    if (stop_.stop_requested())
      line += "stopping: ";
    else if (limited)
      line += remat::format_fixed(std::max(0.0, limit - gone), 0) + " s left: ";
    line += what_;
    const auto figure = [&](double value) {
      if (objective_ == objective::bytes) return remat::format_bytes(static_cast<std::int64_t>(value));
      return "+" + remat::format_percent(value / baseline_time_ - 1, 2);
    };
    if (baseline_time_ > 0) {
      line += std::isfinite(latest_.best_objective) ? ", best " + figure(latest_.best_objective) : ", nothing yet";
      if (latest_.lower_bound > 0) line += ", bound " + figure(latest_.lower_bound);
    }
    if (!stage_.empty()) {
      line += " (" + stage_;
      constexpr std::uint64_t countable = 1000;  // larger totals count moves, which the bar shows
      if (latest_.total != 0 && latest_.total <= countable)
        line += ' ' + std::to_string(latest_.done) + " of " + std::to_string(latest_.total);
      line += ')';
    }
    return line;
  }

  /// Cuts `line` to the width of the terminal, in code points, so that it never wraps.
  static void cut(std::string& line) {
    const std::size_t columns = shared::line_width(STDERR_FILENO);
    std::size_t points = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if ((static_cast<unsigned char>(line[i]) & 0xC0U) == 0x80U) continue;
      if (++points == columns) {
        line.erase(i);
        return;
      }
    }
  }

  bool shown_ = false;
  double baseline_time_ = 0;
  std::stop_token stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string what_, stage_;
  objective objective_ = objective::time;
  remat::progress latest_{};
  clock::time_point begun_{};
  std::chrono::nanoseconds limit_{};
  bool active_ = false, drawn_ = false;
  std::jthread drawer_;
};

}  // namespace remat_plan
