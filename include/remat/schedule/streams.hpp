// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

struct stream_options {
  static constexpr std::uint32_t most_streams = 64;

  std::uint32_t streams = 1;  ///< 1 … most_streams
  /// Of each allocation of the schedule, its address in the arena: who writes bytes then waits for all that used them
  /// before. Empty: every allocation has bytes of its own, and only data orders the computes.
  std::span<const std::int64_t> offsets{};
};

/// The computes of a schedule ("launches", numbered in its order) on several streams. A stream runs its launches one
/// after the other, in their order.
struct stream_assignment {
  std::uint32_t streams = 1;
  std::vector<std::uint32_t> steps;   ///< launch → its step of the schedule, ascending
  std::vector<std::uint32_t> stream;  ///< launch → its stream
  /// launch → the launches of other streams that must have ended before it begins; none that follows from the others
  /// and from the order in the streams.
  index_rows waits;
  std::vector<std::uint8_t> awaited;  ///< launch → whether it is in some row of `waits`
  std::vector<double> start;          ///< launch → when it begins, the cost model's unit
  double makespan = 0;                ///< when the last one ends
  double critical_path = 0;           ///< makespan on streams without end: the longest path through the order
  double work = 0;                    ///< the times of all launches together

  [[nodiscard]] std::size_t size() const noexcept { return steps.size(); }
};

namespace detail::streams {

/// Which allocation used each byte of the arena last.
class occupants {
 public:
  /// Calls `visit(allocation)` for each of those that used bytes of [begin, end) last, then puts `next` there.
  template <class Visit>
  void replace(std::int64_t begin, std::int64_t end, std::uint32_t next, Visit&& visit) {
    if (begin >= end) return;
    auto at = ranges_.lower_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second.end > begin) --at;
    while (at != ranges_.end() && at->first < end) {
      const std::int64_t from = at->first;
      const range old = at->second;
      visit(old.allocation);
      at = ranges_.erase(at);
      if (from < begin) ranges_.emplace(from, range{begin, old.allocation});
      if (old.end > end) at = ranges_.emplace(end, range{old.end, old.allocation}).first;
    }
    ranges_.emplace(begin, range{end, next});
  }

 private:
  struct range {
    std::int64_t end = 0;
    std::uint32_t allocation = 0;
  };
  std::map<std::int64_t, range> ranges_;  // by first byte
};

/// Goes through the launches in their order and keeps, of each allocation, who used it last.
///
/// Of all launches of a stream that used it, the last one stands for the others: k entries, for k streams.
class list_scheduler {
 public:
  list_scheduler(const problem& p, const lifetimes& lives, std::span<const step> steps, const stream_options& options)
      : step_(p.graph()), lives_(lives), options_(options), k_(options.streams) {
    if (k_ < 1 || k_ > stream_options::most_streams)
      throw bad_argument("streams is " + std::to_string(k_) + "; it must be 1 to " +
                         std::to_string(stream_options::most_streams));
    if (!options.offsets.empty() && options.offsets.size() != lives.allocations.size())
      throw bad_argument("there are " + std::to_string(options.offsets.size()) + " offsets; the schedule has " +
                         std::to_string(lives.allocations.size()) + " allocations");
    if (lives.num_steps() != steps.size())
      throw bad_argument("the lifetimes are of " + std::to_string(lives.num_steps()) + " steps; the schedule has " +
                         std::to_string(steps.size()));
    const std::size_t allocations = lives.allocations.size();
    written_.assign(allocations, none);
    reads_.assign(allocations * k_, 0);
    read_end_.assign(allocations, 0);
    read_path_.assign(allocations, 0);
    by_stream_.resize(k_);
    deps_.resize(k_);
    known_.reserve(steps.size() / 2 * k_);
    for (std::uint32_t i = 0; i < steps.size(); ++i)
      if (steps[i].is_compute()) add(i, static_cast<std::uint32_t>(index(steps[i].operation())));
  }

  stream_assignment out;

 private:
  static constexpr std::uint32_t none = 0xffffffff;

  void wait_for_write(std::uint32_t a) {
    const std::uint32_t w = written_[a];
    if (w == none) return;
    deps_[out.stream[w]] = std::max(deps_[out.stream[w]], position_[w]);
    ready_ = std::max(ready_, end_[w]);
    path_ = std::max(path_, path_end_[w]);
  }
  void wait_for_all(std::uint32_t a) {
    wait_for_write(a);
    for (std::uint32_t s = 0; s < k_; ++s) deps_[s] = std::max(deps_[s], reads_[std::size_t{a} * k_ + s]);
    ready_ = std::max(ready_, read_end_[a]);
    path_ = std::max(path_, read_path_[a]);
  }

  void add(std::uint32_t i, std::uint32_t o) {
    std::fill(deps_.begin(), deps_.end(), 0);
    ready_ = path_ = 0;
    for (const std::uint32_t a : lives_.inputs[i]) wait_for_write(a);
    for (const std::uint32_t a : lives_.outputs[i]) {
      if (lives_.allocations[a].first == i)
        take_over(a);
      else
        wait_for_all(a);
    }
    if (lives_.workspace[i] != lifetimes::no_allocation) take_over(lives_.workspace[i]);

    const auto v = static_cast<std::uint32_t>(out.steps.size());
    const std::uint32_t s = choose();
    const double start = std::max(ready_, free_at(s));
    write_waits(s);
    out.steps.push_back(i);
    out.stream.push_back(s);
    out.start.push_back(start);
    out.awaited.push_back(0);
    by_stream_[s].push_back(v);
    position_.push_back(static_cast<std::uint32_t>(by_stream_[s].size()));
    known_[std::size_t{v} * k_ + s] = position_[v];
    end_.push_back(start + step_.time[o]);
    path_end_.push_back(path_ + step_.time[o]);
    out.makespan = std::max(out.makespan, end_[v]);
    out.critical_path = std::max(out.critical_path, path_end_[v]);
    out.work += step_.time[o];

    for (const std::uint32_t a : lives_.inputs[i]) {
      reads_[std::size_t{a} * k_ + s] = position_[v];
      read_end_[a] = std::max(read_end_[a], end_[v]);
      read_path_[a] = std::max(read_path_[a], path_end_[v]);
    }
    for (const std::uint32_t a : lives_.outputs[i]) write(a, v);
    if (lives_.workspace[i] != lifetimes::no_allocation) write(lives_.workspace[i], v);
  }

  void take_over(std::uint32_t a) {
    if (options_.offsets.empty()) return;
    const std::int64_t begin = options_.offsets[a];
    occupants_.replace(begin, begin + lives_.allocations[a].bytes, a,
                       [&](std::uint32_t before) { wait_for_all(before); });
  }
  void write(std::uint32_t a, std::uint32_t v) {
    written_[a] = v;
    std::fill_n(reads_.begin() + static_cast<std::ptrdiff_t>(std::size_t{a} * k_), k_, 0U);
    read_end_[a] = read_path_[a] = 0;
  }

  [[nodiscard]] double free_at(std::uint32_t s) const { return by_stream_[s].empty() ? 0 : end_[by_stream_[s].back()]; }

  /// Where it can begin first; else after what it waits for; else where the stream idles least; else the first.
  [[nodiscard]] std::uint32_t choose() const {
    std::uint32_t best = 0;
    for (std::uint32_t s = 1; s < k_; ++s) {
      const double here = std::max(ready_, free_at(s)), there = std::max(ready_, free_at(best));
      if (here != there) {
        if (here < there) best = s;
        continue;
      }
      const bool follows = !by_stream_[s].empty() && deps_[s] == by_stream_[s].size();
      const bool best_follows = !by_stream_[best].empty() && deps_[best] == by_stream_[best].size();
      if (follows != best_follows ? follows : free_at(s) > free_at(best)) best = s;
    }
    return best;
  }

  /// What the next launch, on stream `s`, must wait for: `deps_` without what is known there anyway.
  void write_waits(std::uint32_t s) {
    const std::size_t row = known_.size();
    known_.resize(row + k_, 0);
    std::uint32_t* const known = known_.data() + row;
    if (!by_stream_[s].empty()) {
      const std::uint32_t* const before = known_.data() + std::size_t{by_stream_[s].back()} * k_;
      std::copy(before, before + k_, known);
    }
    candidates_.clear();
    for (std::uint32_t q = 0; q < k_; ++q)
      if (q != s && deps_[q] > known[q]) candidates_.push_back(by_stream_[q][deps_[q] - 1]);
    for (const std::uint32_t c : candidates_) {
      const bool follows = std::any_of(candidates_.begin(), candidates_.end(), [&](std::uint32_t d) {
        return d != c && known_[std::size_t{d} * k_ + out.stream[c]] >= position_[c];
      });
      if (follows) continue;
      out.waits.values.push_back(c);
      out.awaited[c] = 1;
    }
    for (std::uint32_t w = out.waits.begin.back(); w < out.waits.values.size(); ++w)
      for (std::uint32_t q = 0; q < k_; ++q)
        known[q] = std::max(known[q], known_[std::size_t{out.waits.values[w]} * k_ + q]);
    out.waits.end_row();
  }

  const flat_graph& step_;
  const lifetimes& lives_;
  const stream_options& options_;
  std::uint32_t k_;
  occupants occupants_;

  // Of an allocation: the last launch that wrote it; since then, the place of its last reader in each stream (from 1;
  // 0: none), and when the last of them ends.
  std::vector<std::uint32_t> written_, reads_;
  std::vector<double> read_end_, read_path_;

  // Of a launch: its place in its stream, from 1; of each stream, how many of its launches have ended when this one
  // has.
  std::vector<std::uint32_t> position_, known_;
  std::vector<double> end_, path_end_;
  std::vector<std::vector<std::uint32_t>> by_stream_;

  // Of the launch at hand: in each stream, the last launch that it waits for; when they have all ended.
  std::vector<std::uint32_t> deps_, candidates_;
  double ready_ = 0, path_ = 0;
};

}  // namespace detail::streams

/// Which computes of a schedule may overlap: their assignment to streams, what each has to wait for, and the makespan.
///
/// A compute waits for those that wrote what it reads. One that writes to an allocation waits for all that wrote or
/// read it before: a recomputation for the readers of the same bytes, a contribution to a tensor of several producers
/// for the contribution before, so the order of additions never depends on timing. With `offsets`, one that gets
/// addresses waits for all that used them before. Whatever keeps to this order computes what the schedule computes.
///
/// List scheduling \cite graham1966bounds with the problem's times, the schedule's order as the list: each compute goes
/// to the stream where it can begin first; of several, to one whose last compute it waits for. Differs from the paper
/// in that no compute overtakes one that is listed before it on its stream: gaps stay, and the makespan may exceed the
/// paper's bound. Waits are reduced with vector clocks \cite mattern1989virtual.
/// For k streams, O((steps + their reads and writes + changes of address) · k + computes · k²) time, with a logarithm
/// for each change of address; O((computes + allocations) · k) memory.
/// Throws `bad_argument` if the schedule is not legal or over the problem's budget, or the options do not fit it.
///
///     const stream_assignment a = assign_streams(p, *solution.plan, {.streams = 4});
///     a.makespan;
[[nodiscard]] inline stream_assignment assign_streams(const problem& p, const lifetimes& lives,
                                                      std::span<const step> steps, const stream_options& options = {}) {
  detail::streams::list_scheduler scheduler(p, lives, steps, options);
  scheduler.out.streams = options.streams;
  return std::move(scheduler.out);
}

/// \overload
[[nodiscard]] inline stream_assignment assign_streams(const problem& p, std::span<const step> steps,
                                                      const stream_options& options = {}) {
  return assign_streams(p, lifetimes_of(p, steps), steps, options);
}

/// \overload
[[nodiscard]] inline stream_assignment assign_streams(const problem& p, const schedule& plan,
                                                      const stream_options& options = {}) {
  return assign_streams(p, std::span<const step>(plan.steps), options);
}

}  // namespace remat
