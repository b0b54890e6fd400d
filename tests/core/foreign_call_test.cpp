// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/foreign_call.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

using remat::detail::foreign_call;

namespace {

struct stop {};

}  // namespace

TEST_CASE("a failure of the code becomes a text") {
  foreign_call call;
  int runs = 0;
  CHECK_FALSE(call.run([&] { ++runs; }));
  CHECK(runs == 1);
  CHECK(call.run([] { throw std::runtime_error("no licence"); }) == std::optional<std::string>("no licence"));
  CHECK(call.run([] { throw 42; }) == std::optional<std::string>("an exception that is no std::exception"));
}

TEST_CASE("memory that runs out in the code of a solve is no failure of that code") {
  foreign_call call;
  CHECK_FALSE(call.run_in_solve([] {}));
  CHECK(call.run_in_solve([] { throw std::runtime_error("no licence"); }) == std::optional<std::string>("no licence"));
  CHECK_THROWS_AS((void)call.run_in_solve([] { throw std::bad_alloc(); }), std::bad_alloc);
  const auto callback = call.watched(std::function<void()>([] { throw stop(); }));
  CHECK_THROWS_AS((void)call.run_in_solve([&] {
    try {
      callback();
    } catch (const stop&) {
      throw std::bad_alloc();
    }
  }),
                  stop);
}

TEST_CASE("failures are counted, and the first one stays") {
  remat::detail::foreign_failures failures;
  CHECK(failures.count() == 0);
  CHECK(failures.first().empty());
  failures.note("one");
  failures.note("two");
  CHECK(failures.count() == 2);
  CHECK(failures.first() == "one");
}

TEST_CASE("what a callback throws leaves the call, even if the code has caught it") {
  foreign_call call;
  int heard = 0;
  const auto callback = call.watched(std::function<void(int)>([&](int x) {
    heard += x;
    if (x > 1) throw stop();
  }));
  CHECK_FALSE(call.run([&] { callback(1); }));
  CHECK(heard == 1);
  CHECK_THROWS_AS((void)call.run([&] { callback(2); }), stop);
  CHECK_THROWS_AS((void)call.run([&] {
    try {
      callback(2);
    } catch (const stop&) {
      throw std::runtime_error("of the code");
    }
  }),
                  stop);
  CHECK_FALSE(static_cast<bool>(call.watched(std::function<void()>())));
}
