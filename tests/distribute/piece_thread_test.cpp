// SPDX-License-Identifier: BSL-1.0
//
// A piece of another rank, where the system gives a thread to run it and where it gives none.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <stop_token>
#include <thread>

#include "remat/distribute/mpi_crew.hpp"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which replace the function themselves
namespace {

std::atomic<bool> has_threads = true;

}  // namespace

/// Fails, as under `ulimit -u`, while `has_threads` is false.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) noexcept {
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto system_function = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
  return has_threads ? system_function(thread, attributes, run, argument) : EAGAIN;
}

TEST_CASE("a piece ends, with a thread of its own or on the caller's") {
  for (const bool threads : {true, false}) {
    CAPTURE(threads);
    remat::detail::piece_thread piece;
    CHECK_FALSE(piece.is_busy());
    std::thread::id by{};
    has_threads = threads;
    piece.begin([&](const std::stop_token&, const auto& report) {
      by = std::this_thread::get_id();
      report(remat::progress{.stage = "piece"});
    });
    has_threads = true;
    CHECK(piece.is_busy());
    while (!piece.wait(std::chrono::seconds(1))) {
    }
    CHECK(piece.news().has_value());
    CHECK(piece.take() >= 0);
    CHECK_FALSE(piece.is_busy());
    CHECK((by == std::this_thread::get_id()) == !threads);

    has_threads = threads;
    piece.begin([](const std::stop_token&, const auto&) { throw std::runtime_error("of the piece"); });
    has_threads = true;
    while (!piece.wait(std::chrono::seconds(1))) {
    }
    CHECK_THROWS_WITH_AS((void)piece.take(), "of the piece", std::runtime_error);
    CHECK_FALSE(piece.is_busy());
  }
}
#endif
