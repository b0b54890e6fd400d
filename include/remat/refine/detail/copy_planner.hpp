// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/engine_times.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// How a `copy_planner` chooses what leaves the device: the tensor of the greatest
///
///     (time until its next use) · bytes^bytes_exponent
struct copy_preference {
  double bytes_exponent = 0;
  /// Of a tensor: it goes before all others. Empty: none.
  std::span<const std::uint8_t> first{};
};

/// Makes a sequence of computes that needs too much memory fit the budget by copies to the host.
///
/// Three sweeps over the sequence. The first one chooses: where memory runs out, the tensor whose next use is farthest
/// away lies on the host until then (Belady's rule), from the last moment at which its bytes are not wanted. The second
/// one orders the copies out: each as early as the engine is free, those that have to end first before the others. The
/// third one places the prefetches, from the last to the first: as late as they still hide behind computes, but no
/// earlier than memory allows.
///
/// O(n log n + reads and writes) time for a sequence of n computes, and the sum of the lengths of the intervals in
/// which tensors lie on the host.
class copy_planner {
 public:
  /// `p` must outlive this object and have a link.
  explicit copy_planner(const problem& p)
      : p_(p),
        unlimited_(p.with_budget(problem::unlimited).with_link(*p.link())),
        graph_(p.graph()),
        host_is_limited_(p.host_budget() != problem::unlimited) {}

  /// Called once per `poll_stride` computes of a sweep. If it returns true, there is no plan. Empty: nothing stops it.
  std::function<bool()> must_stop{};
  /// Computes of a sweep between two calls of `must_stop`.
  static constexpr std::uint32_t poll_stride = 65536;

  /// Returns a schedule of `computes` with copies, within both budgets; none if a working set is larger than the
  /// budget, or if what must leave the device does not fit on the host. `rounds`: how often copies are placed again
  /// with the times of the schedule before.
  [[nodiscard]] std::optional<schedule> plan(std::span<const std::uint32_t> computes, const copy_preference& preference,
                                             int rounds) {
    stopped_ = false;
    read(computes);
    if (tick(computes.size()) || !choose(preference)) return std::nullopt;
    std::optional<schedule> best;
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < rounds; ++round) {
      place_offloads();
      place_prefetches();
      if (tick(4 * operations_.size())) break;  // what follows takes as long as all before
      schedule made = write();
      if (host_is_limited_ && !check(p_, made).valid()) {
        for (host_interval& h : on_host_) h.out = h.from;  // no earlier than `choose` has counted
        made = write();
      }
      const engine_times times = engine_times_of(unlimited_, made);
      if (times.makespan < least) {
        least = times.makespan;
        best = made;
      } else {
        break;
      }
      if (on_host_.empty()) break;
      take_times(made, times);
    }
    return best;
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// One allocation of a tensor, from the compute that makes it to its last use.
  struct piece {
    std::uint32_t tensor = 0;
    std::uint32_t first = 0;        // the compute at which it is allocated
    std::uint32_t ready = none;     // the compute after which it is readable
    std::uint32_t first_touch = 0;  // in `touches_`
    std::uint32_t end_touch = 0;
  };
  /// A time that a piece spends on the host.
  struct host_interval {
    std::uint32_t piece = 0;
    std::uint32_t from = 0;  // the compute before which its bytes are freed
    std::uint32_t to = 0;    // the compute that uses it next; the number of computes for the end of the step
    bool is_first = true;    // it is copied out for this interval, not for an earlier one
    std::uint32_t out = 0;   // the compute before which the copy out is listed
    std::uint32_t in = 0;    // the compute before which the prefetch is listed
  };

  /// Reads the pieces and their touches from the sequence with early frees.
  void read(std::span<const std::uint32_t> computes) {
    const schedule plan = schedule_computes(graph_, computes);
    operations_.clear();
    pieces_.clear();
    std::vector<std::uint32_t> open(graph_.num_tensors, none), pending(graph_.num_tensors, 0);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> touched;  // piece, compute
    for (const step& s : plan.steps) {
      if (!s.is_compute()) {
        open[index(s.tensor())] = none;
        continue;
      }
      const auto o = static_cast<std::uint32_t>(index(s.operation()));
      const auto k = static_cast<std::uint32_t>(operations_.size());
      operations_.push_back(o);
      for (const std::uint32_t t : graph_.inputs[o]) touched.emplace_back(open[t], k);
      for (const std::uint32_t t : graph_.outputs[o]) {
        if (open[t] == none) {
          open[t] = static_cast<std::uint32_t>(pieces_.size());
          pending[t] = static_cast<std::uint32_t>(graph_.producers[t].size());
          pieces_.push_back({.tensor = t, .first = k});
        }
        if (pending[t] > 0 && --pending[t] == 0) pieces_[open[t]].ready = k;
        touched.emplace_back(open[t], k);
      }
    }
    const auto n = static_cast<std::uint32_t>(operations_.size());
    for (const std::uint32_t t : graph_.final_outputs)
      if (open[t] != none) touched.emplace_back(open[t], n);
    std::vector<std::uint32_t> count(pieces_.size() + 1, 0);
    for (const auto& [x, k] : touched) ++count[x + 1];
    for (std::size_t x = 0; x < pieces_.size(); ++x) count[x + 1] += count[x];
    touches_.resize(touched.size());
    for (std::size_t x = 0; x < pieces_.size(); ++x) pieces_[x].first_touch = pieces_[x].end_touch = count[x];
    for (const auto& [x, k] : touched) touches_[pieces_[x].end_touch++] = k;  // ascending, since `touched` is
    for (piece& x : pieces_) {
      const auto begin = touches_.begin() + x.first_touch;
      x.end_touch =
          x.first_touch + static_cast<std::uint32_t>(std::unique(begin, touches_.begin() + x.end_touch) - begin);
    }
    touching_.begin.assign(1, 0);
    touching_.values.clear();
    std::vector<std::vector<std::uint32_t>> rows(n + 1);
    for (std::uint32_t x = 0; x < pieces_.size(); ++x)
      for (std::uint32_t i = pieces_[x].first_touch; i < pieces_[x].end_touch; ++i) rows[touches_[i]].push_back(x);
    for (const auto& row : rows) {
      touching_.values.insert(touching_.values.end(), row.begin(), row.end());
      touching_.end_row();
    }
    start_.assign(n + 1, 0);
    for (std::uint32_t k = 0; k < n; ++k) start_[k + 1] = start_[k] + graph_.time[operations_[k]];
    finish_ = start_.back();
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

  /// Chooses the intervals. Fills `memory_`, of each compute, without what is on the host.
  bool choose(const copy_preference& preference) {
    const auto n = static_cast<std::uint32_t>(operations_.size());
    on_host_.clear();
    memory_.assign(n + 1, 0);
    std::vector<std::uint32_t> at(pieces_.size()), interval_of(pieces_.size(), none);
    std::vector<std::uint8_t> copied(graph_.num_tensors, 0);
    for (std::uint32_t x = 0; x < pieces_.size(); ++x) at[x] = pieces_[x].first_touch;
    struct candidate {
      double worth;
      std::uint32_t piece, touch;
      bool operator<(const candidate& other) const {
        return worth != other.worth ? worth < other.worth : piece > other.piece;
      }
    };
    std::priority_queue<candidate> candidates;
    std::int64_t memory = 0, host = 0;
    for (std::uint32_t k = 0; k <= n; ++k) {
      std::int64_t back = 0;  // bytes that are dropped on the host after this compute
      for (const std::uint32_t x : touching_[k]) {
        if (interval_of[x] != none) {
          memory += bytes(x);
          back += bytes(x);
          interval_of[x] = none;
        } else if (pieces_[x].first == k) {
          memory += bytes(x);
        }
        at[x] = static_cast<std::uint32_t>(
            std::upper_bound(touches_.begin() + at[x], touches_.begin() + pieces_[x].end_touch, k) - touches_.begin());
      }
      if (tick()) return false;
      const std::int64_t workspace = k < n ? graph_.workspace[operations_[k]] : 0;
      while (memory + workspace > p_.budget()) {
        if (candidates.empty()) return false;
        const candidate c = candidates.top();
        candidates.pop();
        const std::uint32_t x = c.piece;
        // Stale, or touched now.
        if (interval_of[x] != none || at[x] != c.touch || touches_[at[x] - 1] == k) continue;
        if (host_is_limited_ && host + bytes(x) > p_.host_budget()) continue;
        interval_of[x] = static_cast<std::uint32_t>(on_host_.size());
        on_host_.push_back(
            {.piece = x, .from = k, .to = touches_[at[x]], .is_first = host_is_limited_ || !copied[pieces_[x].tensor]});
        copied[pieces_[x].tensor] = 1;
        memory -= bytes(x);
        if (host_is_limited_) host += bytes(x);
      }
      memory_[k] = memory + workspace;
      if (host_is_limited_) host -= back;
      for (const std::uint32_t x : touching_[k]) {
        if (at[x] == pieces_[x].end_touch) {
          memory -= bytes(x);
        } else if (pieces_[x].ready <= k && bytes(x) > 0) {
          const double until = start_[std::min(touches_[at[x]], n)] + (touches_[at[x]] == n ? finish_ : 0);
          const double worth = preference.bytes_exponent == 0
                                   ? until
                                   : (until - start_[std::min(k, n)]) *
                                         std::pow(static_cast<double>(bytes(x)), preference.bytes_exponent);
          const bool goes_first = !preference.first.empty() && preference.first[pieces_[x].tensor] != 0;
          candidates.push({worth + (goes_first ? 4 * finish_ + 1e3 * worth : 0), x, at[x]});
        }
      }
    }
    return true;
  }

  /// Orders the copies out: the engine takes the one that has to end first of those that are ready.
  void place_offloads() {
    std::vector<std::uint32_t> by_release;
    for (std::uint32_t i = 0; i < on_host_.size(); ++i)
      if (on_host_[i].is_first) by_release.push_back(i);
    // With a limited host a piece may be copied out several times: not before its last use.
    const auto release = [&](std::uint32_t i) {
      const host_interval& h = on_host_[i];
      const piece& x = pieces_[h.piece];
      if (!host_is_limited_) return x.ready + 1;
      const auto next = std::lower_bound(touches_.begin() + x.first_touch, touches_.begin() + x.end_touch, h.to);
      return std::max(x.ready, *(next - 1)) + 1;
    };
    std::sort(by_release.begin(), by_release.end(),
              [&](std::uint32_t a, std::uint32_t b) { return std::pair(release(a), a) < std::pair(release(b), b); });
    using entry = std::pair<std::uint32_t, std::uint32_t>;  // the compute before which it must be free, interval
    std::priority_queue<entry, std::vector<entry>, std::greater<>> ready;
    const host_link& link = *p_.link();
    double now = 0;
    std::size_t next = 0;
    out_order_.clear();
    while (next < by_release.size() || !ready.empty()) {
      if (ready.empty()) now = std::max(now, start_[release(by_release[next])]);
      while (next < by_release.size() && start_[release(by_release[next])] <= now) {
        ready.emplace(on_host_[by_release[next]].from, by_release[next]);
        ++next;
      }
      const std::uint32_t i = ready.top().second;
      ready.pop();
      host_interval& h = on_host_[i];
      const auto place =
          static_cast<std::uint32_t>(std::upper_bound(start_.begin(), start_.end(), now) - start_.begin() - 1);
      h.out = std::clamp(place, release(i), h.from);
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
    std::vector<std::int64_t> used = memory_;
    double next_begin = std::numeric_limits<double>::infinity();
    std::uint32_t next_place = n;
    for (const std::uint32_t i : in_order_) {
      host_interval& h = on_host_[i];
      const std::int64_t size = bytes(h.piece);
      const double duration = link.time_in(size);
      const double begin = std::min(h.to == n ? finish_ : start_[h.to], next_begin) - duration;
      auto wanted = static_cast<std::uint32_t>(
          std::max<std::ptrdiff_t>(0, std::upper_bound(start_.begin(), start_.end(), begin) - start_.begin() - 1));
      wanted = std::clamp(std::min({wanted, h.to, next_place}), h.from, h.to);
      std::uint32_t place = h.to;
      if (tick(h.to - wanted + 1)) return;
      while (place > wanted && used[place - 1] + size <= p_.budget()) --place;
      // What follows it may have been listed before: the engine takes copies in the order of the list.
      for (std::uint32_t k = place; k < h.to; ++k) used[k] += size;
      h.in = place;
      next_begin = std::max(begin, start_[place]);
      next_place = std::min(next_place, place);
    }
    std::reverse(in_order_.begin(), in_order_.end());
  }

  /// The schedule of the choices.
  [[nodiscard]] schedule write() const {
    const auto n = static_cast<std::uint32_t>(operations_.size());
    std::vector<std::vector<std::uint32_t>> outs(n + 1), frees(n + 1), ins(n + 1), drops(n + 1);
    for (const std::uint32_t i : out_order_) outs[on_host_[i].out].push_back(i);
    for (std::uint32_t i = 0; i < on_host_.size(); ++i) frees[on_host_[i].from].push_back(i);
    for (const std::uint32_t i : in_order_) ins[on_host_[i].in].push_back(i);
    if (host_is_limited_)
      for (std::uint32_t i = 0; i < on_host_.size(); ++i) drops[on_host_[i].to].push_back(i);
    std::vector<std::uint32_t> last(pieces_.size());
    for (std::uint32_t x = 0; x < pieces_.size(); ++x) last[x] = touches_[pieces_[x].end_touch - 1];
    schedule plan;
    const auto tensor = [&](std::uint32_t i) { return static_cast<tensor_id>(pieces_[on_host_[i].piece].tensor); };
    for (std::uint32_t k = 0; k <= n; ++k) {
      for (const std::uint32_t i : outs[k]) plan.offload(tensor(i));
      for (const std::uint32_t i : frees[k]) plan.free(tensor(i));
      for (const std::uint32_t i : ins[k]) plan.prefetch(tensor(i));
      if (k < n) plan.compute(static_cast<op_id>(operations_[k]));
      for (const std::uint32_t i : drops[k]) plan.drop(tensor(i));
      if (k < n)
        for (const std::uint32_t x : touching_[k])
          if (last[x] == k) plan.free(static_cast<tensor_id>(pieces_[x].tensor));
    }
    return plan;
  }

  /// Takes the times of the computes from a simulation.
  void take_times(const schedule& made, const engine_times& times) {
    std::size_t k = 0;
    for (std::size_t i = 0; i < made.steps.size(); ++i)
      if (made.steps[i].is_compute()) {
        start_[k++] = times.steps[i].begin;
        finish_ = times.steps[i].end;
      }
    start_[k] = finish_;
  }

  const problem& p_;
  problem unlimited_;  // with the link
  const flat_graph& graph_;
  bool host_is_limited_;
  std::size_t steps_ = 0;  // since the last call of `must_stop`
  bool stopped_ = false;
  std::vector<std::uint32_t> operations_;
  std::vector<piece> pieces_;
  std::vector<std::uint32_t> touches_;  // computes that read or write a piece, ascending, each once
  index_rows touching_;                 // compute → pieces
  std::vector<host_interval> on_host_;
  std::vector<std::uint32_t> out_order_, in_order_;
  std::vector<std::int64_t> memory_;
  std::vector<double> start_;  // of a compute, expected; the last one: the end
  double finish_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
