// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE::detail {

/// The clock of a leaf's search: limits of time and of work. The largest number is no limit.
class limit_clock {
 public:
  limit_clock(std::int64_t milliseconds, std::int64_t work)
      : start_(now()), time_(milliseconds > no_limit / 1'000'000 ? no_limit : milliseconds * 1'000'000), limit_(work) {}

  void work(std::uint64_t n) noexcept { work_ += n; }
  [[nodiscard]] std::uint64_t work_done() const noexcept { return work_; }
  [[nodiscard]] bool should_stop() const {
    if (limit_ != no_limit && work_ >= static_cast<std::uint64_t>(limit_)) return true;
    return time_ != no_limit && now() - start_ >= time_;
  }
  /// A clock with a share of what is left. Its work is to be counted here when it has ended.
  [[nodiscard]] limit_clock part(double share) const {
    limit_clock out = *this;
    out.start_ = time_ == no_limit ? 0 : now();
    out.work_ = 0;
    out.time_ = part_of(share, time_, out.start_ - start_);
    out.limit_ = part_of(share, limit_, static_cast<std::int64_t>(work_));
    return out;
  }

 private:
  static constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

  [[nodiscard]] static std::int64_t part_of(double share, std::int64_t all, std::int64_t done) {
    if (all == no_limit) return all;
    const std::int64_t left = all - std::min(all, done);
    return share >= 1 ? left : static_cast<std::int64_t>(static_cast<double>(left) * share);
  }
  [[nodiscard]] static std::int64_t now() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }

  std::int64_t start_, time_, limit_;
  std::uint64_t work_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
