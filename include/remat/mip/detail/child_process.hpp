// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "remat/core/run.hpp"

namespace REMAT_NAMESPACE::detail {

static_assert(sizeof(pid_t) <= sizeof(int));

/// The child's end of the pipe.
class child_output {
 public:
  explicit child_output(int descriptor) noexcept : descriptor_(descriptor) {}
  /// Writes all bytes. Ends the process if nobody reads any more.
  void write(const void* data, std::size_t bytes) const noexcept {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(descriptor_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) ::_exit(2);
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }

 private:
  int descriptor_;
};

[[noreturn]] inline void exit_child() { ::_exit(3); }

inline void reset_signals() noexcept {
  struct sigaction action {};
  for (int s = 1; s < 65; ++s) {
    // Ctrl-C goes to the whole group of processes; only the parent reacts to it.
    action.sa_handler = s == SIGPIPE || s == SIGINT || s == SIGQUIT || s == SIGHUP ? SIG_IGN : SIG_DFL;
    (void)::sigaction(s, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  (void)::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

/// Leaves descriptors 0 to 2 open to /dev/null, the pipe as 3, and closes all others.
inline void replace_descriptors(int pipe) noexcept {
  pipe = ::fcntl(pipe, F_DUPFD, 3);
  const int nowhere = ::open("/dev/null", O_RDWR);
  if (pipe < 0 || nowhere < 0) ::_exit(2);
  for (int d = 0; d < 3; ++d) (void)::dup2(nowhere, d);
  if (pipe != 3) (void)::dup2(pipe, 3);
#if defined(__linux__) && defined(SYS_close_range)
  (void)::syscall(SYS_close_range, 4U, ~0U, 0U);
#endif
}

inline void limit_memory(std::uint64_t more_bytes) noexcept {
  const rlimit no_core{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
  if (more_bytes > 0) {
    unsigned long long pages = 0;  // pages in use now: the first number of the file
    char text[32] = {};
    if (const int f = ::open("/proc/self/statm", O_RDONLY); f >= 0) {
      if (::read(f, text, sizeof text - 1) > 0) pages = std::strtoull(text, nullptr, 10);
      ::close(f);
    }
    const rlimit memory{pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + more_bytes, RLIM_INFINITY};
    (void)::setrlimit(RLIMIT_AS, &memory);
  }
  if (const int f = ::open("/proc/self/oom_score_adj", O_WRONLY); f >= 0) {
    (void)!::write(f, "1000", 4);  // if memory runs out, the system ends this process and not the parent
    ::close(f);
  }
}

/// The life of the child, from `fork` to its end. `parent`: the process that forked. `pipe`: the end to write to.
[[noreturn]] inline void run_child(const std::function<void(const child_output&)>& body, std::uint64_t memory_limit,
                                   pid_t parent, int pipe) noexcept {
  std::set_terminate([] { ::_exit(3); });
  std::atexit(exit_child);  // `exit` must not run what the parent has registered
  reset_signals();
#ifdef __linux__
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (::getppid() != parent) ::_exit(2);
  replace_descriptors(pipe);
  limit_memory(memory_limit);
  try {
    body(child_output(3));
    ::_exit(0);
  } catch (...) {
    ::_exit(1);
  }
}

/// How long the parent of a child may wait before it polls its own limits again: at most 20 ms.
inline std::chrono::milliseconds poll_interval(const run_clock& clock) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(clock.left());
  return std::clamp(left, std::chrono::milliseconds(1), std::chrono::milliseconds(20));
}

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
  ~child_process() {
    kill();
    if (pipe_ >= 0) ::close(pipe_);
  }

  /// Forks. The child runs `body`, with `memory_limit` bytes more than it has at the start (0: no limit), and exits.
  /// Returns false if no process or no pipe can be made.
  [[nodiscard]] bool start(const std::function<void(const child_output&)>& body, std::uint64_t memory_limit) {
    int ends[2];
#ifdef __linux__
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
#else
    if (::pipe(ends) != 0) return false;
#endif
    const pid_t parent = ::getpid();
    // No handler of the parent's may run in the child: signals wait until it has reset them.
    sigset_t all, before;
    sigfillset(&all);
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
    id_ = ::fork();
    if (id_ == 0) run_child(body, memory_limit, parent, ends[1]);
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::close(ends[1]);
    pipe_ = ends[0];
    if (id_ < 0) return false;
    (void)::fcntl(pipe_, F_SETFL, ::fcntl(pipe_, F_GETFL) | O_NONBLOCK);
    return true;
  }

  /// Forks, and runs `command` with /bin/sh in a process group of its own, which `kill` ends as a whole. The output of
  /// the command, on either stream, goes to the pipe. Limits and result as those of `start`.
  [[nodiscard]] bool start_command(const std::string& command, std::uint64_t memory_limit) {
    leads_group_ = true;
    const bool started = start(
        [&command](const child_output&) {
          (void)::setpgid(0, 0);
          (void)::dup2(3, 1);
          (void)::dup2(3, 2);
          (void)::close(3);
          struct sigaction action {};
          action.sa_handler = SIG_DFL;
          for (const int s : {SIGPIPE, SIGINT, SIGQUIT, SIGHUP}) (void)::sigaction(s, &action, nullptr);
          ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
          ::_exit(127);  // the shell's status for a command that cannot be run
        },
        memory_limit);
    if (id_ > 0) (void)::setpgid(id_, id_);  // whichever process comes first
    return started;
  }

  /// Waits until bytes can be read, but not longer than `longest`. Returns false if the pipe is closed.
  [[nodiscard]] bool wait(std::chrono::milliseconds longest) const {
    pollfd p{pipe_, POLLIN, 0};
    const int n = ::poll(&p, 1, static_cast<int>(longest.count()));
    return n <= 0 || (p.revents & POLLIN) != 0;
  }

  /// Appends what can be read now, some megabytes at most. Returns false if nothing more will come.
  [[nodiscard]] bool read(std::vector<char>& bytes) const {
    char part[1 << 16];
    for (;;) {
      const ssize_t n = ::read(pipe_, part, sizeof part);
      if (n > 0) {
        bytes.insert(bytes.end(), part, part + n);
        if (is_large(bytes)) return true;
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }

  /// True when `read` ended at its own limit, so that more bytes may be waiting.
  [[nodiscard]] static bool is_large(const std::vector<char>& bytes) noexcept { return bytes.size() >= max_bytes; }

  /// True when the child has exited, or has been reaped by another part of the program.
  [[nodiscard]] bool has_exited() {
    if (id_ <= 0) return true;
    if (leads_group_) {
      // The processes that the command has left in the background end with it. The group's number is ours until the
      // leader is reaped.
      siginfo_t info{};
      if (::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == id_)
        (void)::kill(-id_, SIGKILL);
    }
    const pid_t r = ::waitpid(id_, &status_, WNOHANG);
    if (r == id_ || (r < 0 && errno == ECHILD)) id_ = -1;  // ECHILD: reaped by somebody else
    return id_ <= 0;
  }

  /// How the child ended, as " (signal 9)"; empty if that is not known.
  [[nodiscard]] std::string ending() const {
    if (id_ > 0 || status_ == 0) return {};
    std::string text = WIFSIGNALED(status_) ? " (signal " : " (exit status ";
    text += std::to_string(WIFSIGNALED(status_) ? WTERMSIG(status_) : WEXITSTATUS(status_));
    return text += ')';
  }

  /// Kills the child and waits for its end: for half a second at most, then a thread goes on waiting.
  void kill() {
    if (has_exited()) return;
    if (leads_group_) (void)::kill(-id_, SIGKILL);
    (void)::kill(id_, SIGKILL);
    for (int i = 0; i < 500 && !has_exited(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (id_ <= 0) return;
    try {
      std::thread([id = id_] { (void)::waitpid(id, nullptr, 0); }).detach();
    } catch (...) {
      // The child then stays, without a thread, in the system's table until this process ends.
    }
    id_ = -1;
  }

 private:
  static constexpr std::size_t max_bytes = std::size_t{1} << 22;
  int id_ = -1;  // the process's id
  bool leads_group_ = false;
  int pipe_ = -1;
  int status_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
