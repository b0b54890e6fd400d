// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/run.hpp"

#include <exception>
#include <iterator>
#include <mutex>
#include <numeric>

#include "remat/core/detail/team.hpp"

namespace REMAT_NAMESPACE {

namespace detail {

REMAT_INLINE void piece_times::learn(double size, double seconds) {
  mean& m = known_[size];
  m.count += 1;
  m.seconds += (seconds - m.seconds) / m.count;
}

REMAT_INLINE double piece_times::expect(double size) const {
  if (known_.empty()) return size;
  const auto above = known_.lower_bound(size);
  const auto in_proportion = [&](const std::pair<const double, mean>& known) {
    return known.first > 0 ? known.second.seconds * size / known.first : known.second.seconds;
  };
  if (above == known_.end()) return in_proportion(*std::prev(above));
  if (above->first == size || above == known_.begin()) return in_proportion(*above);
  const auto& [low, fast] = *std::prev(above);
  const auto& [high, slow] = *above;
  return fast.seconds + (slow.seconds - fast.seconds) * (size - low) / (high - low);
}

REMAT_INLINE piece_queue::piece_queue(const piece_list& pieces, piece_times& times) : pieces_(pieces), times_(times) {
  order_.resize(pieces.count);
  std::iota(order_.rbegin(), order_.rend(), std::size_t{0});
  sort();
}

REMAT_INLINE std::size_t piece_queue::next() {
  // Sorted anew when the number of known times has doubled, so that many pieces take little time.
  if (learned_ >= sort_at_) {
    sort();
    sort_at_ = 2 * learned_;
  }
  const std::size_t piece = order_.back();
  order_.pop_back();
  return piece;
}

REMAT_INLINE void piece_queue::learn(std::size_t piece, double seconds) {
  times_.learn(pieces_.size(piece), seconds);
  ++learned_;
}

REMAT_INLINE void piece_queue::sort() {
  std::vector<std::pair<double, std::size_t>> expected;
  expected.reserve(order_.size());
  for (const std::size_t piece : order_) expected.emplace_back(times_.expect(pieces_.size(piece)), piece);
  std::stable_sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = expected[i].second;
}

REMAT_INLINE void run_pieces_on_threads(const piece_list& pieces, const run_control& control, piece_times& times) {
  if (pieces.count == 0) return;
  const std::size_t members = std::clamp<std::size_t>(control.thread_count(), 1, pieces.count);
  const auto threads_each = static_cast<unsigned>(control.thread_count() / members);
  std::mutex mutex;  // one mutex for all below
  piece_queue queue(pieces, times);
  std::size_t finished = 0, failed = std::numeric_limits<std::size_t>::max();
  std::exception_ptr failure;
  std::stop_source failing;  // pieces in flight must not keep the exception waiting
  run_team(members, [&](std::size_t k) {
    for (;;) {
      std::size_t piece = 0;
      try {
        run_control limits;
        {
          const std::lock_guard lock(mutex);
          if (queue.empty() || failure) return;
          piece = queue.next();
          limits = pieces.limits(piece, members);
        }
        limits.threads = threads_each;
        limits.crew = nullptr;
        if (k == 0)
          limits.on_progress = control.on_progress;
        else
          limits.on_progress = nullptr;
        const run_clock clock(limits);
        std::stop_source stop;
        const std::stop_callback by_caller(limits.stop, [&stop] { stop.request_stop(); });
        const std::stop_callback by_failure(failing.get_token(), [&stop] { stop.request_stop(); });
        limits.stop = stop.get_token();
        pieces.run(piece, limits);
        std::size_t done = 0;
        {
          const std::lock_guard lock(mutex);
          queue.learn(piece, clock.seconds());
          done = ++finished;
        }
        if (k == 0 && pieces.report) pieces.report(done);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure || piece < failed) {
          failure = std::current_exception();
          failed = piece;
        }
        failing.request_stop();
        return;
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail

REMAT_INLINE void run_pieces(const piece_list& pieces, const run_control& control) {
  if (control.crew != nullptr) return control.crew->run(pieces, control);
  detail::piece_times times;
  detail::run_pieces_on_threads(pieces, control, times);
}

}  // namespace REMAT_NAMESPACE
