// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/detail/engine_clocks.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// How a `copy_planner` chooses what leaves the device: the tensor of the greatest
///
///     (time until its next use) · bytes^bytes_exponent · factor
struct copy_preference {
  double bytes_exponent = 0;
  /// A copy back may begin up to `lead` × its own time before the next use, if a tensor that is wanted later can leave
  /// for it.
  double lead = 0;
  /// The factor of each tensor. Empty: 1.
  std::span<const float> factor{};
};

/// Makes a sequence of computes that needs too much memory fit the budget by copies to the host.
///
/// Three sweeps over the sequence. The first one chooses: where memory runs out, the tensor whose next use is farthest
/// away lies on the host until then (Belady's rule), from the last moment at which its bytes are not wanted. The second
/// one orders the copies out: each as early as the engine is free, those that have to end first before the others. The
/// third one places the prefetches, from the last to the first: as late as they still hide behind computes, but no
/// earlier than memory allows. The engines are simulated then; further rounds repeat all this with the times of the
/// round before.
///
/// O(n log n + reads and writes) time for a sequence of n computes, and the sum of the lengths of the intervals in
/// which tensors lie on the host.
class copy_planner {
 public:
  /// `p` must outlive this object and have a link.
  explicit copy_planner(const problem& p)
      : p_(p),
        graph_(p.graph()),
        host_is_limited_(p.host_budget() != problem::unlimited),
        write_of_(graph_.outputs.values.size()),
        weight_(graph_.num_tensors, 1.0) {
    std::vector<std::uint32_t> next(graph_.producers.begin.begin(), graph_.producers.begin.end() - 1);
    for (std::uint32_t w = 0; w < write_of_.size(); ++w) write_of_[next[graph_.outputs.values[w]]++] = w;
  }

  /// Called once per `poll_stride` computes of a sweep. If it returns true, there is no plan. Empty: nothing stops it.
  std::function<bool()> must_stop{};
  /// Computes of a sweep between two calls of `must_stop`.
  static constexpr std::uint32_t poll_stride = 65536;

  /// Plans the copies for a sequence of computes in at most `rounds` rounds. Returns the time of `steps`, a schedule
  /// within both budgets; infinite if a working set is larger than the budget, if what must leave the device does not
  /// fit on the host, if the computes alone take more than `longest`, or if `must_stop` has ended the plan.
  double place(std::span<const std::uint32_t> computes, const copy_preference& preference, int rounds,
               double longest = std::numeric_limits<double>::infinity()) {
    stopped_ = false;
    double least = std::numeric_limits<double>::infinity();
    read(computes);
    if (tick(computes.size()) || finish_ > longest) return least;
    for (int round = 0; round < rounds; ++round) {
      if (!choose(preference)) break;
      place_offloads();
      place_prefetches();
      if (tick(4 * operations_.size())) break;  // the rest takes as long as all before
      write();
      if (host_is_limited_ && !check(p_, made_).valid()) {
        for (host_interval& h : on_host_) h.out = h.from;  // no earlier than `choose` has counted
        write();
        if (!check(p_, made_).valid()) break;
      }
      const double time = replay();
      if (!(time < least)) break;
      least = time;
      std::swap(best_.steps, made_.steps);
      std::swap(best_intervals_, on_host_);
      if (best_intervals_.empty()) break;
    }
    return least;
  }

  /// The schedule of the last call of `place` with a finite answer.
  [[nodiscard]] const schedule& steps() const noexcept { return best_; }
  /// The computes of that call, without those whose results nobody reads.
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return operations_; }

  /// A time that a tensor spends on the host.
  struct stay {
    std::uint32_t tensor;
    std::uint32_t from;  ///< the index of the compute before which its bytes are freed on the device
    std::uint32_t to;    ///< … and of the one that uses it next; the number of computes for the end of the step
  };
  /// Stay `i` of the schedule, and how many it has.
  [[nodiscard]] stay stay_of(std::size_t i) const noexcept {
    const host_interval& h = best_intervals_[i];
    return {pieces_[h.piece].tensor, h.from, h.to};
  }
  [[nodiscard]] std::size_t num_stays() const noexcept { return best_intervals_.size(); }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// One allocation of a tensor, from the compute that makes it to its last use.
  struct piece {
    std::uint32_t tensor = 0;
    std::uint32_t first = none;  // the compute at which it is allocated
    std::uint32_t ready = none;  // the compute after which it is readable
    std::uint32_t missing = 0;   // while the sequence is read: writes that have not been met
  };
  /// A compute that reads or writes a piece.
  struct touch {
    std::uint32_t piece;
    std::uint32_t next;  // the compute that touches it next, or `none`
  };
  /// A time that a piece spends on the host.
  struct host_interval {
    std::uint32_t piece = 0;
    std::uint32_t from = 0;     // the compute before which its bytes are freed
    std::uint32_t to = 0;       // the compute that uses it next; the number of computes for the end of the step
    std::uint32_t release = 0;  // the compute before which the copy out may be listed first
    bool is_first = true;       // it is copied out for this interval, not for an earlier one
    std::uint32_t out = 0;      // the compute before which the copy out is listed
    std::uint32_t in = 0;       // the compute before which the prefetch is listed
  };

  /// Reads the pieces and their touches from the sequence with early frees, without computes whose results nobody
  /// reads.
  void read(std::span<const std::uint32_t> computes) {
    operations_.assign(computes.begin(), computes.end());
    while (!read_backwards()) {
      std::size_t kept = 0;  // `unread_` is descending
      for (std::uint32_t k = 0; k < operations_.size(); ++k) {
        if (!unread_.empty() && unread_.back() == k)
          unread_.pop_back();
        else
          operations_[kept++] = operations_[k];
      }
      operations_.resize(kept);
    }
    const auto n = static_cast<std::uint32_t>(operations_.size());
    start_.assign(n + 1, 0);
    for (std::uint32_t k = 0; k < n; ++k) start_[k + 1] = start_[k] + graph_.time[operations_[k]];
    finish_ = start_.back();
  }

  /// Does what `schedule_computes` does. Returns false if nobody reads the results of some computes (`unread_`).
  bool read_backwards() {
    const auto n = static_cast<std::uint32_t>(operations_.size());
    pieces_.clear();
    touches_.clear();
    unread_.clear();
    row_.resize(n + 2);
    row_[n + 1] = 0;
    open_.assign(graph_.num_tensors, none);
    open_write_.assign(graph_.outputs.values.size(), 0);
    const auto meet = [&](std::uint32_t x, std::uint32_t k) {
      if (pieces_[x].first == k) return;  // this compute reads and writes it
      touches_.push_back({x, pieces_[x].first});
      pieces_[x].first = k;
    };
    const auto open = [&](std::uint32_t t) {
      if (open_[t] != none) return open_[t];
      open_[t] = static_cast<std::uint32_t>(pieces_.size());
      pieces_.push_back({.tensor = t, .missing = graph_.producers.begin[t + 1] - graph_.producers.begin[t]});
      for (std::uint32_t i = graph_.producers.begin[t]; i < graph_.producers.begin[t + 1]; ++i)
        open_write_[write_of_[i]] = 1;
      return open_[t];
    };
    for (const std::uint32_t t : graph_.final_outputs) meet(open(t), n);
    for (std::uint32_t k = n; k-- > 0;) {
      row_[k + 1] = static_cast<std::uint32_t>(touches_.size());
      const std::uint32_t o = operations_[k];
      const auto first_write = graph_.outputs.begin[o], end_write = graph_.outputs.begin[o + 1];
      bool is_read = graph_.has_effect(o);
      for (std::uint32_t w = first_write; w < end_write; ++w) is_read = is_read || open_write_[w] != 0;
      if (!is_read) {
        unread_.push_back(k);
        continue;
      }
      for (std::uint32_t w = first_write; w < end_write; ++w) {
        const std::uint32_t t = graph_.outputs.values[w];
        if (open_write_[w] != 0) {
          open_write_[w] = 0;
          piece& x = pieces_[open_[t]];
          if (x.ready == none) x.ready = k;
          meet(open_[t], k);
          if (--x.missing == 0) open_[t] = none;
        } else if (open_[t] == none) {
          pieces_.push_back({.tensor = t});  // nobody reads it
          meet(static_cast<std::uint32_t>(pieces_.size() - 1), k);
        }
      }
      for (const std::uint32_t t : graph_.inputs[o]) meet(open(t), k);
    }
    row_[0] = static_cast<std::uint32_t>(touches_.size());
    return unread_.empty();
  }

  /// Counts steps of a sweep. Returns whether `must_stop` has ended the plan.
  bool tick(std::size_t steps = 1) {
    steps_ += steps;
    if (steps_ >= poll_stride) {
      steps_ = 0;
      stopped_ = stopped_ || (must_stop && must_stop());
    }
    return stopped_;
  }

  [[nodiscard]] std::int64_t bytes(std::uint32_t x) const { return graph_.bytes[pieces_[x].tensor]; }
  [[nodiscard]] std::span<const touch> touches_of(std::uint32_t k) const {
    return std::span(touches_).subspan(row_[k + 1], row_[k] - row_[k + 1]);
  }

  /// A piece that may leave the device. The greatest goes first.
  struct candidate {
    double worth;
    std::uint32_t piece;
    std::uint32_t next;  // the compute that touches it next
    std::uint32_t last;  // … and the one that has touched it last
    bool operator<(const candidate& other) const {
      return worth != other.worth ? worth < other.worth : piece > other.piece;
    }
  };

  /// Chooses the intervals. Fills `memory_`, of each compute, without what is on the host.
  bool choose(const copy_preference& preference) {
    const auto n = static_cast<std::uint32_t>(operations_.size());
    const bool leads = preference.lead > 0;
    const host_link& link = *p_.link();
    weigh(preference.bytes_exponent);
    on_host_.clear();
    next_.assign(pieces_.size(), none);
    interval_of_.assign(pieces_.size(), none);
    is_early_.assign(pieces_.size(), 0);
    copied_.assign(graph_.num_tensors, 0);
    candidates_.clear();
    returns_.clear();
    std::vector<std::uint32_t> came_back;
    std::int64_t memory = 0, host = 0;
    const auto expect = [&](std::uint32_t x, std::uint32_t to) {
      returns_.emplace_back(to, x);
      std::push_heap(returns_.begin(), returns_.end(), std::greater<>());
    };
    // Frees memory at compute k until it is at most `most`. With a limit on the next use: fails rather than to evict a
    // piece that is used before.
    const auto make_room = [&](std::uint32_t k, std::int64_t most, std::uint32_t used_after) {
      while (memory > most) {
        if (candidates_.empty()) return false;
        const candidate c = candidates_.front();
        const std::uint32_t x = c.piece;
        const bool is_stale = next_[x] != c.next || (interval_of_[x] != none && !is_early_[x]) || c.last == k;
        if (!is_stale && used_after != none && c.next <= used_after) return false;
        std::pop_heap(candidates_.begin(), candidates_.end());
        candidates_.pop_back();
        if (is_stale) continue;
        if (is_early_[x]) {  // it has come back too early
          is_early_[x] = 0;
          memory -= bytes(x);
          expect(x, c.next);
          continue;
        }
        if (host_is_limited_ && host + bytes(x) > p_.host_budget()) continue;
        interval_of_[x] = static_cast<std::uint32_t>(on_host_.size());
        const std::uint32_t ready = host_is_limited_ ? std::max(pieces_[x].ready, c.last) : pieces_[x].ready;
        on_host_.push_back({.piece = x,
                            .from = k,
                            .to = c.next,
                            .release = ready + 1,
                            .is_first = host_is_limited_ || !copied_[pieces_[x].tensor]});
        copied_[pieces_[x].tensor] = 1;
        memory -= bytes(x);
        if (host_is_limited_) host += bytes(x);
        if (leads) expect(x, c.next);
      }
      return true;
    };
    for (std::uint32_t k = 0; k <= n; ++k) {
      std::int64_t back = 0;  // bytes that are dropped on the host after this compute
      for (const touch& now : touches_of(k)) {
        const std::uint32_t x = now.piece;
        if (interval_of_[x] != none) {
          if (!is_early_[x]) memory += bytes(x);
          is_early_[x] = 0;
          back += bytes(x);
          interval_of_[x] = none;
        } else if (pieces_[x].first == k) {
          memory += bytes(x);
        }
        next_[x] = none;  // nothing that this compute touches may leave
      }
      if (tick()) return false;
      const std::int64_t workspace = k < n ? graph_.workspace[operations_[k]] : 0;
      if (!make_room(k, p_.budget() - workspace, none)) return false;
      while (leads && !returns_.empty()) {
        const auto [to, x] = returns_.front();
        const bool is_back = interval_of_[x] == none || on_host_[interval_of_[x]].to != to || is_early_[x];
        if (!is_back) {
          if (k == n || start_[to] - preference.lead * link.time_in(bytes(x)) > start_[k]) break;
          memory += bytes(x);
          if (!make_room(k, p_.budget() - workspace, to)) {
            memory -= bytes(x);
            break;
          }
          is_early_[x] = 1;
          came_back.push_back(x);
        }
        std::pop_heap(returns_.begin(), returns_.end(), std::greater<>());
        returns_.pop_back();
      }
      for (const std::uint32_t x : came_back) {
        candidates_.push_back({worth_of(x, k, next_[x], preference), x, next_[x], none});
        std::push_heap(candidates_.begin(), candidates_.end());
      }
      came_back.clear();
      if (host_is_limited_) host -= back;
      for (const touch& now : touches_of(k)) {
        const std::uint32_t x = now.piece;
        next_[x] = now.next;
        if (now.next == none) {
          memory -= bytes(x);
        } else if (pieces_[x].ready <= k && bytes(x) > 0 && now.next != k + 1) {
          candidates_.push_back({worth_of(x, k, now.next, preference), x, now.next, k});
          std::push_heap(candidates_.begin(), candidates_.end());
        }
      }
    }
    count_memory();
    return true;
  }

  /// Fills `weight_`.
  void weigh(double exponent) {
    if (exponent == exponent_) return;
    exponent_ = exponent;
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
      weight_[t] = std::pow(static_cast<double>(graph_.bytes[t]), exponent);
  }

  [[nodiscard]] double worth_of(std::uint32_t x, std::uint32_t k, std::uint32_t next,
                                const copy_preference& preference) const {
    const auto n = static_cast<std::uint32_t>(operations_.size());
    const std::uint32_t t = pieces_[x].tensor;
    const double until = start_[next] + (next == n ? finish_ : 0);
    const double worth = preference.bytes_exponent == 0 ? until : (until - start_[k]) * weight_[t];
    return preference.factor.empty() ? worth : worth * static_cast<double>(preference.factor[t]);
  }

  /// Fills `memory_`: of each compute, the bytes on the device without the pieces that are on the host.
  void count_memory() {
    const auto n = static_cast<std::uint32_t>(operations_.size());
    memory_.assign(n + 2, 0);
    for (std::uint32_t k = 0; k <= n; ++k) {
      if (k < n) {
        memory_[k] += graph_.workspace[operations_[k]];
        memory_[k + 1] -= graph_.workspace[operations_[k]];
      }
      for (const touch& now : touches_of(k)) {
        if (pieces_[now.piece].first == k) memory_[k] += bytes(now.piece);
        if (now.next == none) memory_[k + 1] -= bytes(now.piece);
      }
    }
    for (const host_interval& h : on_host_) {
      memory_[h.from] -= bytes(h.piece);
      memory_[h.to] += bytes(h.piece);
    }
    for (std::uint32_t k = 0; k < n; ++k) memory_[k + 1] += memory_[k];
  }

  /// Orders the copies out: the engine takes the one that has to end first of those that are ready.
  void place_offloads() {
    by_release_.clear();
    for (std::uint32_t i = 0; i < on_host_.size(); ++i)
      if (on_host_[i].is_first) by_release_.emplace_back(on_host_[i].release, i);
    std::sort(by_release_.begin(), by_release_.end());
    ready_.clear();  // the compute before which it must be free, interval
    const host_link& link = *p_.link();
    double now = 0;
    std::size_t next = 0;
    out_order_.clear();
    while (next < by_release_.size() || !ready_.empty()) {
      if (ready_.empty()) now = std::max(now, start_[by_release_[next].first]);
      while (next < by_release_.size() && start_[by_release_[next].first] <= now) {
        const std::uint32_t i = by_release_[next++].second;
        ready_.emplace_back(on_host_[i].from, i);
        std::push_heap(ready_.begin(), ready_.end(), std::greater<>());
      }
      const std::uint32_t i = ready_.front().second;
      std::pop_heap(ready_.begin(), ready_.end(), std::greater<>());
      ready_.pop_back();
      host_interval& h = on_host_[i];
      const auto place =
          static_cast<std::uint32_t>(std::upper_bound(start_.begin(), start_.end(), now) - start_.begin() - 1);
      h.out = std::clamp(place, h.release, h.from);
      if (!out_order_.empty()) h.out = std::max(h.out, std::min(on_host_[out_order_.back()].out, h.from));
      out_order_.push_back(i);
      now += link.time_out(bytes(h.piece));
    }
  }

  /// Places the prefetches, from the last to the first.
  void place_prefetches() {
    const auto n = static_cast<std::uint32_t>(operations_.size());
    in_order_.resize(on_host_.size());
    for (std::uint32_t i = 0; i < in_order_.size(); ++i) in_order_[i] = i;
    std::sort(in_order_.begin(), in_order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(on_host_[a].to, a) > std::pair(on_host_[b].to, b);
    });
    const host_link& link = *p_.link();
    // Where copies cannot hide, all would begin at the start of the step: a limit on the work.
    const auto most_early =
        static_cast<std::uint32_t>(std::max<std::size_t>(1000, std::size_t{64} * n / (1 + on_host_.size())));
    double next_begin = std::numeric_limits<double>::infinity();
    std::uint32_t next_place = n;
    for (const std::uint32_t i : in_order_) {
      host_interval& h = on_host_[i];
      const std::int64_t size = bytes(h.piece);
      const double duration = link.time_in(size);
      const double begin = std::min(h.to == n ? finish_ : start_[h.to], next_begin) - duration;
      auto wanted = static_cast<std::uint32_t>(
          std::max<std::ptrdiff_t>(0, std::upper_bound(start_.begin(), start_.end(), begin) - start_.begin() - 1));
      wanted =
          std::clamp(std::min({wanted, h.to, next_place}), std::max(h.from, h.to - std::min(h.to, most_early)), h.to);
      std::uint32_t place = h.to;
      if (tick(h.to - wanted + 1)) return;
      while (place > wanted && memory_[place - 1] + size <= p_.budget()) --place;
      // Copies that follow it may have been listed before: the engine takes copies in the order of the list.
      for (std::uint32_t k = place; k < h.to; ++k) memory_[k] += size;
      h.in = place;
      next_begin = std::max(begin, start_[place]);
      next_place = std::min(next_place, place);
    }
    std::reverse(in_order_.begin(), in_order_.end());
  }

  /// The lists of a place beside the compute: copies out and frees before it, prefetches, drops after it.
  enum list : std::uint8_t { outs, frees, ins, drops };

  /// Lists interval `i` as the first one of `kind` at place `k`.
  void list_first(list kind, std::uint32_t k, std::uint32_t i) {
    listed_next_[kind][i] = listed_[kind][k];
    listed_[kind][k] = i;
  }

  /// Writes the schedule of the choices to `made_`.
  void write() {
    const auto n = static_cast<std::uint32_t>(operations_.size());
    for (auto& heads : listed_) heads.assign(n + 1, none);
    for (auto& rest : listed_next_) rest.resize(on_host_.size());
    for (std::size_t j = out_order_.size(); j-- > 0;) list_first(outs, on_host_[out_order_[j]].out, out_order_[j]);
    for (std::size_t j = in_order_.size(); j-- > 0;) list_first(ins, on_host_[in_order_[j]].in, in_order_[j]);
    for (auto i = static_cast<std::uint32_t>(on_host_.size()); i-- > 0;) {
      list_first(frees, on_host_[i].from, i);
      if (host_is_limited_) list_first(drops, on_host_[i].to, i);
    }
    made_.steps.clear();
    const auto for_each = [&](list kind, std::uint32_t k, auto&& write_one) {
      for (std::uint32_t i = listed_[kind][k]; i != none; i = listed_next_[kind][i])
        write_one(static_cast<tensor_id>(pieces_[on_host_[i].piece].tensor));
    };
    for (std::uint32_t k = 0; k <= n; ++k) {
      for_each(outs, k, [&](tensor_id t) { made_.offload(t); });
      for_each(frees, k, [&](tensor_id t) { made_.free(t); });
      for_each(ins, k, [&](tensor_id t) { made_.prefetch(t); });
      if (k < n) made_.compute(static_cast<op_id>(operations_[k]));
      for_each(drops, k, [&](tensor_id t) { made_.drop(t); });
      if (k == n) break;
      for (const touch& now : touches_of(k))
        if (now.next == none) made_.free(static_cast<tensor_id>(pieces_[now.piece].tensor));
    }
  }

  /// Simulates `made_`. Returns its time, and takes those of the computes.
  double replay() {
    engine_replay engines(graph_, *p_.link());
    std::size_t k = 0;
    for (const step x : made_.steps) {
      const step_times now = engines.run(x);
      if (!x.is_compute()) continue;
      start_[k++] = now.begin;
      finish_ = now.end;
    }
    start_[k] = finish_;
    return engines.end();
  }

  const problem& p_;
  const flat_graph& graph_;
  bool host_is_limited_;
  std::size_t steps_ = 0;  // steps since the last call of `must_stop`
  bool stopped_ = false;
  std::vector<std::uint32_t> operations_;
  std::vector<piece> pieces_;
  std::vector<touch> touches_;      // those of the last compute first
  std::vector<std::uint32_t> row_;  // compute k → its touches: from row_[k + 1] to row_[k]
  std::vector<host_interval> on_host_, best_intervals_;
  std::vector<std::uint32_t> out_order_, in_order_;
  std::vector<std::int64_t> memory_;
  std::vector<double> start_;  // each compute's expected start; the last one: the end
  double finish_ = 0;
  schedule made_, best_;
  std::array<std::vector<std::uint32_t>, 4> listed_, listed_next_;

  // Scratch memory.
  std::vector<std::uint32_t> write_of_;   // place in `producers.values` → the same write in `outputs.values`
  std::vector<std::uint32_t> open_;       // each tensor's piece that is read later
  std::vector<std::uint8_t> open_write_;  // whether a piece waits for each write
  std::vector<std::uint32_t> unread_;
  std::vector<std::uint32_t> next_, interval_of_;  // the compute that touches each piece next, the piece's interval
  std::vector<std::uint8_t> is_early_;             // whether each piece on the host is back before it is touched
  std::vector<std::uint8_t> copied_;               // whether each tensor has been copied
  std::vector<double> weight_;                     // each tensor's bytes^exponent_
  double exponent_ = 0;
  std::vector<candidate> candidates_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> returns_;  // the compute that touches it next, piece
  std::vector<std::pair<std::uint32_t, std::uint32_t>> by_release_, ready_;
};

}  // namespace REMAT_NAMESPACE::detail
