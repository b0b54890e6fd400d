// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// A schedule from which recomputations can be removed. A tensor that is not recomputed any more is held from its last
/// use on instead.
///
/// Does what `timeline` does for this one kind of edit, but in logarithmic time for each tensor of the removed compute:
/// computes keep their *places* (their numbers in the schedule), the events (reads and writes) of a tensor are a linked
/// list, and the memory at each place is in a tree of maxima with range additions. Built in O(reads and writes of the
/// schedule) time.
class retention {
 public:
  /// Marks the end of a list of events.
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// Preconditions: `plan` is legal, within the budget of `p`, and has the form that `schedule_computes` gives. `p`
  /// must outlive this object.
  retention(const problem& p, const schedule& plan)
      : graph_(p.graph()),
        budget_(p.budget()),
        op_(computes_of(plan)),
        gone_(op_.size(), 0),
        rerunnable_(rerunnable_operations(graph_)) {
    build_tree(read_events(plan));
  }

  [[nodiscard]] std::size_t size() const noexcept { return op_.size(); }
  /// The operation of the compute at place x, also after its removal.
  [[nodiscard]] std::uint32_t operation(std::uint32_t x) const noexcept { return op_[x]; }
  [[nodiscard]] std::int64_t peak() const noexcept { return max_[1]; }

  /// True if the compute at place x is present and could be removed: every read of its outputs has an earlier write.
  [[nodiscard]] bool removable(std::uint32_t x) const noexcept {
    if (gone_[x] || !rerunnable_[op_[x]]) return false;
    for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
      if (events_[e].previous == none && events_[e].next != none) return false;
    return true;
  }

  /// Bytes × places that the outputs of the compute at place x would be held for if the compute were removed.
  [[nodiscard]] double area(std::uint32_t x) const noexcept {
    double sum = 0;
    for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
      if (events_[e].previous != none && is_read(events_[e].next))
        sum += static_cast<double>(graph_.bytes[events_[e].tensor]) * (x - events_[events_[e].previous].at);
    return sum;
  }

  /// Removes the compute at place x, then the computes whose results only removed computes read. If that exceeds the
  /// budget, restores all of them and returns false. Precondition: `removable(x)`.
  bool try_remove(std::uint32_t x) {
    removed_.clear();
    take_out(x);
    for (std::size_t i = 0; i < removed_.size(); ++i) {
      const std::uint32_t y = removed_[i];
      for (std::uint32_t e = begin_[y]; e < writes_begin(y); ++e) {
        // The write that supplied the read at y.
        std::uint32_t w = events_[e].previous;
        while (w != none && !events_[w].write) w = events_[w].previous;
        if (w == none) continue;
        const std::uint32_t z = events_[w].at;
        if (!gone_[z] && removable(z) && unread(z)) take_out(z);
      }
    }
    if (max_[1] <= budget_) return true;
    while (!removed_.empty()) {
      put_back(removed_.back());
      removed_.pop_back();
    }
    return false;
  }

  /// The operations of the computes that are left, in order.
  [[nodiscard]] std::vector<std::uint32_t> computes() const {
    std::vector<std::uint32_t> left;
    for (std::size_t x = 0; x < op_.size(); ++x)
      if (!gone_[x]) left.push_back(op_[x]);
    return left;
  }

 private:
  struct event {
    std::uint32_t tensor, at;
    std::uint32_t previous, next;  // present events of the same tensor
    bool write;
  };
  static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min() / 4;

  [[nodiscard]] std::uint32_t writes_begin(std::uint32_t x) const noexcept {
    return begin_[x] + static_cast<std::uint32_t>(graph_.inputs[op_[x]].size());
  }
  [[nodiscard]] bool is_read(std::uint32_t e) const noexcept { return e != none && !events_[e].write; }

  /// Fills in the events. Returns the bytes that the compute at each place allocates, and 0 for the end.
  std::vector<std::int64_t> read_events(const schedule& plan) {
    const flat_graph& g = graph_;
    std::vector<std::int64_t> allocated(op_.size() + 1, 0);
    std::vector<std::uint32_t> last(g.num_tensors, none);
    std::vector<std::uint8_t> resident(g.num_tensors, 0);
    const auto append = [&](std::uint32_t at, std::uint32_t t, bool write) {
      const auto e = static_cast<std::uint32_t>(events_.size());
      events_.push_back({t, at, last[t], none, write});
      if (last[t] != none) events_[last[t]].next = e;
      last[t] = e;
    };
    begin_.reserve(op_.size() + 1);
    std::uint32_t x = 0;
    for (const step& now : plan.steps) {
      if (now.is_free()) {
        resident[index(now.tensor())] = 0;
        continue;
      }
      const std::uint32_t o = op_[x];
      begin_.push_back(static_cast<std::uint32_t>(events_.size()));
      allocated[x] = g.workspace[o];
      for (const std::uint32_t t : g.inputs[o]) append(x, t, false);
      for (const std::uint32_t t : g.outputs[o]) {
        const bool adds = g.producers[t].size() > 1 && resident[t];  // it adds to what another producer has written
        resident[t] = 1;
        if (!adds) allocated[x] += g.bytes[t];
        append(x, t, !adds);
      }
      ++x;
    }
    begin_.push_back(static_cast<std::uint32_t>(events_.size()));
    for (const std::uint32_t t : g.final_outputs) append(x, t, false);
    return allocated;
  }

  void build_tree(const std::vector<std::int64_t>& allocated) {
    // A tensor is live from an event to the next one if that is a read.
    std::vector<std::int64_t> change(op_.size() + 2, 0);
    for (const event& e : events_) {
      if (e.write || e.previous == none) continue;
      change[events_[e.previous].at + 1] += graph_.bytes[e.tensor];
      change[e.at + 1] -= graph_.bytes[e.tensor];
    }
    leaves_ = std::bit_ceil(std::max<std::size_t>(op_.size() + 1, 2));
    max_.assign(2 * leaves_, lowest);
    added_.assign(leaves_, 0);
    std::int64_t live = 0;
    for (std::size_t x = 0; x < allocated.size(); ++x) {
      live += change[x];
      max_[leaves_ + x] = live + allocated[x];
    }
    for (std::size_t i = leaves_; i-- > 1;) max_[i] = std::max(max_[2 * i], max_[2 * i + 1]);
  }

  /// True if nobody reads what the compute at place x writes.
  [[nodiscard]] bool unread(std::uint32_t x) const noexcept {
    for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
      if (is_read(events_[e].next)) return false;
    return begin_[x + 1] != writes_begin(x);
  }

  /// Changes the memory as an event does that comes (`sign` = 1) or goes (−1). Precondition: it is in its list.
  void add_event(const event& now, std::int64_t sign) {
    if (now.previous == none || now.write != is_read(now.next)) return;
    add(events_[now.previous].at + 1, now.at + 1, (now.write ? -sign : sign) * graph_.bytes[now.tensor]);
  }

  void take_out(std::uint32_t x) {
    for (std::uint32_t e = begin_[x + 1]; e-- > begin_[x];) {
      const event& now = events_[e];
      add_event(now, -1);
      if (now.previous != none) events_[now.previous].next = now.next;
      if (now.next != none) events_[now.next].previous = now.previous;
    }
    gone_[x] = 1;
    add(x, x + 1, lowest);
    removed_.push_back(x);
  }

  void put_back(std::uint32_t x) {
    add(x, x + 1, -lowest);
    gone_[x] = 0;
    for (std::uint32_t e = begin_[x]; e < begin_[x + 1]; ++e) {
      const event& now = events_[e];
      if (now.previous != none) events_[now.previous].next = e;
      if (now.next != none) events_[now.next].previous = e;
      add_event(now, 1);
    }
  }

  /// Adds `bytes` to the memory at places from … to − 1.
  void add(std::size_t from, std::size_t to, std::int64_t bytes) {
    if (from >= to || bytes == 0) return;
    std::size_t low = from + leaves_, high = to + leaves_ - 1;
    const auto climb = [&](std::size_t i) {
      for (i /= 2; i >= 1; i /= 2) max_[i] = std::max(max_[2 * i], max_[2 * i + 1]) + added_[i];
    };
    for (std::size_t l = low, h = high + 1; l < h; l /= 2, h /= 2) {
      if (l & 1U) add_to_tree_node(l++, bytes);
      if (h & 1U) add_to_tree_node(--h, bytes);
    }
    climb(low);
    climb(high);
  }

  void add_to_tree_node(std::size_t i, std::int64_t bytes) noexcept {
    max_[i] += bytes;
    if (i < leaves_) added_[i] += bytes;
  }

  const flat_graph& graph_;
  std::int64_t budget_;
  std::vector<std::uint32_t> op_;
  std::vector<std::uint8_t> gone_, rerunnable_;
  std::vector<event> events_;
  std::vector<std::uint32_t> begin_;  // place → its events: reads, then writes
  std::vector<std::int64_t> max_, added_;
  std::size_t leaves_ = 0;
  std::vector<std::uint32_t> removed_;
};

namespace retaining {

/// A recomputation and its rank, the least first: minus the time that its removal saves per byte and step.
using ranked_compute = std::pair<double, std::uint32_t>;

/// One round over the recomputations of `line`: removes those whose tensors fit into free memory, those of the least
/// `rank(x)` first. Returns the schedule, or nothing if none fits. Counts a `work_of::visit` and polls before each.
template <class Rank>
std::optional<schedule> fill_free_memory(const problem& p, retention& line, run_clock& clock, Rank&& rank) {
  std::vector<ranked_compute> computes;
  for (std::uint32_t x = 0; x < line.size(); ++x)
    if (line.removable(x)) computes.emplace_back(rank(x), x);
  std::sort(computes.begin(), computes.end());
  bool changed = false;
  for (const ranked_compute& compute : computes) {
    clock.work(work_of::visit);
    if (clock.should_stop()) break;
    changed = (line.removable(compute.second) && line.try_remove(compute.second)) || changed;
  }
  if (!changed) return std::nullopt;
  return schedule_computes(p, line.computes());
}

/// Counts a move. Returns true if the search must stop.
inline bool count_move(run_clock& clock) {
  clock.work(work_of::move);
  return clock.should_stop();
}

/// The removable computes of a timeline that was just loaded.
inline std::vector<ranked_compute> rank_computes(const timeline& plan) {
  const flat_graph& g = plan.graph();
  std::vector<ranked_compute> computes;
  for (timeline::node x = plan.next(timeline::head); x != timeline::tail; x = plan.next(x)) {
    if (!plan.removable(x)) continue;
    double area = 1;  // the nodes of a loaded timeline are numbered by their places
    for (const std::uint32_t t : g.outputs[plan.operation(x)])
      if (const std::size_t i = plan.first_event_from(t, x); i > 0)
        area += static_cast<double>(g.bytes[t]) * (x - plan.events(t)[i - 1].at);
    computes.emplace_back(-g.time[plan.operation(x)] / area, x);
  }
  std::sort(computes.begin(), computes.end());
  return computes;
}

}  // namespace retaining

/// Spends the memory that a schedule leaves free: wherever the budget of `p` allows it, a tensor is held until its next
/// use instead of being recomputed. The recomputation that saves most time per byte and step is tried first. The first
/// of the `rounds` over all recomputations spends free memory alone; the later ones also drop tensors that are cheaper
/// to recompute.
///
/// Preconditions: `start` is legal, within the budget of `p`, and has the form that `schedule_computes` gives. The
/// result is legal, within the budget and not slower. Deterministic.
/// O(rounds · recomputations · length of the intervals) time. Polls, and counts work, before each recomputation
/// (`work_of::visit` in the first round, then `work_of::move`) and every 4096 steps of a repair's search.
[[nodiscard]] inline schedule retain(const problem& p, schedule start, run_clock& clock, std::uint32_t rounds = 3) {
  if (rounds > 0) {
    retention line(p, start);
    const auto rank = [&](std::uint32_t x) { return -p.graph().time[line.operation(x)] / (1 + line.area(x)); };
    if (auto filled = retaining::fill_free_memory(p, line, clock, rank)) start = std::move(*filled);
  }
  if (rounds < 2) return start;
  timeline plan(p);
  refine_moves moves(plan, 0);
  moves.must_stop = [&clock] { return retaining::count_move(clock); };
  for (std::uint32_t round = 1; round < rounds && !clock.should_stop(); ++round) {
    plan.load(start);
    if (is_optimal(plan.time(), p.graph().needed_time)) break;
    bool changed = false;
    for (const auto& compute : retaining::rank_computes(plan)) {
      if (retaining::count_move(clock)) break;
      changed = moves.retain(compute.second) || changed;
    }
    if (!changed) break;
    start = schedule_computes(p, plan.computes());
  }
  return start;
}

}  // namespace REMAT_NAMESPACE::detail
