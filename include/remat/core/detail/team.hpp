// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// Calls `work(k)` for k = 0 … `size` − 1, each on a thread of its own, `work(0)` on the caller's thread. Returns when
/// all calls have ended. Precondition: size ≥ 1.
///
/// If the system gives no more threads, or no memory for one, the calls that have none are made on the caller's thread,
/// after `work(0)`. If calls throw, the exception of the least k leaves the function when all calls have ended.
template <class Work>
void run_team(std::size_t size, const Work& work) {
  std::vector<std::exception_ptr> failed(size);
  const auto guarded = [&](std::size_t k) noexcept {
    try {
      work(k);
    } catch (...) {
      failed[k] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> team;
    std::size_t next = 1;
    try {
      team.reserve(size - 1);
      for (; next < size; ++next) team.emplace_back([&guarded, next] { guarded(next); });
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {
    }
    guarded(0);
    for (; next < size; ++next) guarded(next);
  }
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
}

}  // namespace REMAT_NAMESPACE::detail
