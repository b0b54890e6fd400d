// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// The failures of foreign code during a solve. Threads may share it.
class foreign_failures {
 public:
  /// Notes a failure. Of the texts the first one stays.
  void note(std::string text) {
    const std::lock_guard lock(mutex_);
    if (count_++ == 0) first_ = std::move(text);
  }
  /// The number of failures.
  [[nodiscard]] std::uint64_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  /// The first failure; empty without one.
  [[nodiscard]] std::string first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;  // one mutex for the members below
  std::uint64_t count_ = 0;
  std::string first_;
};

/// One call of code that is not the library's, such as a MIP backend or a solver of the user's. It tells a failure of
/// that code from what a callback throws that the code calls: the one becomes a text, the other leaves the call.
///
///     foreign_call call;
///     options.on_progress = call.watched(options.on_progress);
///     const std::optional<std::string> failure = call.run([&] { answer = solver(p, options); });
class foreign_call {
 public:
  foreign_call() = default;
  foreign_call(const foreign_call&) = delete;  // watched callbacks refer to it
  foreign_call& operator=(const foreign_call&) = delete;

  /// `callback`, whose exceptions are remembered here; empty if it is empty. It must not be called after this object.
  template <class... Arguments>
  [[nodiscard]] std::function<void(Arguments...)> watched(std::function<void(Arguments...)> callback) {
    if (!callback) return {};
    return [this, callback = std::move(callback)](Arguments... arguments) {
      try {
        callback(std::forward<Arguments>(arguments)...);
      } catch (...) {
        if (!of_callback_) of_callback_ = std::current_exception();
        throw;
      }
    };
  }

  /// Calls `call()`. Returns the text of what it throws; nothing if it throws nothing. If a watched callback has thrown
  /// something, that leaves this function, even if the code has caught it.
  template <class Call>
  [[nodiscard]] std::optional<std::string> run(Call&& call) {
    std::optional<std::string> failure;
    try {
      call();
    } catch (const std::exception& e) {
      failure = e.what();
    } catch (...) {
      failure = "an exception that is no std::exception";
    }
    if (of_callback_) std::rethrow_exception(of_callback_);
    return failure;
  }
  /// The same, but `std::bad_alloc` of the code leaves this function: the solve reports that its memory has run out.
  template <class Call>
  [[nodiscard]] std::optional<std::string> run_in_solve(Call&& call) {
    bool out_of_memory = false;
    std::optional<std::string> failure = run([&] {
      try {
        call();
      } catch (const std::bad_alloc&) {
        out_of_memory = true;
      }
    });
    if (out_of_memory) throw std::bad_alloc();
    return failure;
  }

 private:
  std::exception_ptr of_callback_{};
};

}  // namespace REMAT_NAMESPACE::detail
