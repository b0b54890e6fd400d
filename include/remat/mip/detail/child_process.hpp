// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace remat::detail::child_processes {

/// The child's end of the pipe.
class child_output {
 public:
  explicit child_output(int descriptor) noexcept : descriptor_(descriptor) {}
  /// Writes all bytes. Ends the process if nobody reads any more.
  void write(const void* data, std::size_t bytes) const noexcept;

 private:
  int descriptor_;
};

/// A child process that runs one function, or one command of the shell, and sends bytes to its parent. Killed and
/// reaped by the destructor. (POSIX.)
///
/// A fork without exec of a process with threads: the child has one thread, and must use only what that thread may use.
/// The C library makes memory allocation and stdio usable again in the child. The child has no descriptors of the
/// parent's, and its standard streams go to /dev/null. Its signal handlers are reset. It ignores Ctrl-C, since the
/// parent decides when it ends. It dies with the thread that forked it (Linux), and leaves by `_exit` alone, so nothing
/// runs in it that the parent has registered for its own end. The parent's process receives SIGCHLD for it.
class child_process {
 public:
  child_process() = default;
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process();

  /// Forks. The child runs `body`, with `memory_limit` bytes more than it has at the start (0: no limit), and exits.
  /// Returns false if there is no process or no pipe to be had.
  [[nodiscard]] bool start(const std::function<void(const child_output&)>& body, std::uint64_t memory_limit);

  /// Forks, and runs `command` with /bin/sh in a process group of its own, which `kill` ends as a whole. What the
  /// command prints, on either stream, goes to the pipe. Limits and result as those of `start`.
  [[nodiscard]] bool start_command(const std::string& command, std::uint64_t memory_limit);

  /// Waits until there is something to read, but not longer than `longest`. Returns false if the pipe is closed.
  [[nodiscard]] bool wait(std::chrono::milliseconds longest) const;
  /// Appends what can be read now, some megabytes at most. Returns false if nothing more will come.
  [[nodiscard]] bool read(std::vector<char>& bytes) const;
  /// True when `read` left off at its own limit, so that there may be more to read.
  [[nodiscard]] static bool is_large(const std::vector<char>& bytes) noexcept { return bytes.size() >= most_bytes; }

  /// True when the child has exited, or has been reaped by another part of the program.
  [[nodiscard]] bool has_exited();
  /// How the child ended, as " (signal 9)"; empty if that is not known.
  [[nodiscard]] std::string ending() const;
  /// Kills the child and waits for its end: for half a second at most, then a thread goes on waiting.
  void kill();

 private:
  static constexpr std::size_t most_bytes = std::size_t{1} << 22;
  int id_ = -1;  // of the process
  bool leads_group_ = false;
  int pipe_ = -1;
  int status_ = 0;
};

}  // namespace remat::detail::child_processes

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/mip/impl/child_process.hpp"
#endif
