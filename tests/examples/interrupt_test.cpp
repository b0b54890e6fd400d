// SPDX-License-Identifier: BSL-1.0
//
// Signals that stop a solve, and a system that gives no thread to wait for them.
#include "remat_plan/interrupt.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace {

std::atomic<bool> has_threads = true;

/// The action of a signal, which is put back at the end.
class action_of {
 public:
  explicit action_of(int signal) : signal_(signal) { sigaction(signal, nullptr, &before_); }
  action_of(const action_of&) = delete;
  action_of& operator=(const action_of&) = delete;
  ~action_of() { sigaction(signal_, &before_, nullptr); }
  [[nodiscard]] auto now() const {
    struct sigaction action {};
    sigaction(signal_, nullptr, &action);
    return action.sa_handler;
  }

 private:
  int signal_;
  struct sigaction before_ {};
};

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which replace the function themselves
/// Fails, as under `ulimit -u`, while `has_threads` is false.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) noexcept {
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto system_function = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
  return has_threads ? system_function(thread, attributes, run, argument) : EAGAIN;
}
#endif

TEST_CASE("Ctrl-C, SIGTERM and SIGHUP request a stop, and the actions before are put back") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    const action_of action(signal);
    const auto before = action.now();
    {
      const remat_plan::interrupt on_interrupt;
      REQUIRE((action.now() != before));
      CHECK_FALSE(on_interrupt.token().stop_requested());
      raise(signal);
      while (!on_interrupt.token().stop_requested()) {
      }
      CHECK(on_interrupt.signal() == signal);
      CHECK((action.now() == SIG_DFL));  // a second one ends the program
    }
    CHECK((action.now() == before));
  }
}

TEST_CASE("a SIGHUP that is ignored, as under nohup, stays so") {
  const action_of action(SIGHUP);
  std::signal(SIGHUP, SIG_IGN);
  {
    const remat_plan::interrupt on_interrupt;
    CHECK((action.now() == SIG_IGN));
    raise(SIGHUP);
    CHECK_FALSE(on_interrupt.token().stop_requested());
  }
  CHECK((action.now() == SIG_IGN));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("without a thread, signals keep their effect") {
  const action_of action(SIGINT);
  const auto before = action.now();
  has_threads = false;
  {
    const remat_plan::interrupt on_interrupt;
    CHECK((action.now() == before));
    CHECK(on_interrupt.signal() == 0);
    CHECK_FALSE(on_interrupt.token().stop_requested());
  }
  has_threads = true;
  CHECK((action.now() == before));
}
#endif
