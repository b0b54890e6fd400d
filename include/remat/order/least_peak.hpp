// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/control.hpp"
#include "remat/core/index_rows.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

struct least_peak_options {
  std::uint64_t moves = 20'000;         ///< of the local search, each O(operations + reads and writes)
  std::uint32_t exact_operations = 64;  ///< at most that many needed operations: an exact search is tried first …
  std::size_t exact_states = 100'000;   ///< … which gives up beyond that many sets of operations
  run_control run{};
};

/// An order that runs every needed operation once.
struct least_peak_order_result {
  std::vector<std::uint32_t> operations;
  std::int64_t peak_bytes = 0;
  bool proven = false;  ///< no order of the needed operations, each once, has a lower peak
};

namespace detail::ordering {

/// The needed operations as nodes 0 … n − 1, in the listed order, with what each order needs of memory.
///
/// A tensor occupies memory from the first to the last of the operations that touch it (write or read it), final
/// outputs to the end; read backwards, an order obeys the same rule. A write that nobody wants lasts for its operation
/// alone.
class precedence {
 public:
  explicit precedence(const problem& p) : step_(p.graph()) {
    std::vector<std::uint32_t> node(step_.num_operations, 0);
    for (std::uint32_t o = 0; o < step_.num_operations; ++o)
      if (step_.needed[o]) {
        node[o] = static_cast<std::uint32_t>(operations_.size());
        operations_.push_back(o);
      }
    std::vector<std::uint8_t> wanted(step_.final_output);
    for (const std::uint32_t o : operations_)
      for (const std::uint32_t t : step_.inputs[o]) wanted[t] = 1;
    touchers_.assign(step_.num_tensors, 0);
    for (const std::uint32_t o : operations_) {
      std::int64_t own = step_.workspace[o];
      for (const std::uint32_t t : step_.inputs[o]) touched_.values.push_back(t);
      for (const std::uint32_t t : step_.outputs[o]) {
        if (wanted[t])
          touched_.values.push_back(t);
        else
          own += step_.bytes[t];
      }
      touched_.end_row();
      for (const std::uint32_t t : touched_[touched_.size() - 1]) ++touchers_[t];
      own_.push_back(own);
    }
    std::vector<std::vector<std::uint32_t>> after(size());
    for (std::uint32_t i = 0; i < size(); ++i) {
      std::vector<std::uint32_t> row;
      for (const std::uint32_t t : step_.inputs[operations_[i]])
        for (const std::uint32_t o : step_.producers[t]) row.push_back(node[o]);
      std::sort(row.begin(), row.end());
      row.erase(std::unique(row.begin(), row.end()), row.end());
      for (const std::uint32_t j : row) {
        before_.values.push_back(j);
        after[j].push_back(i);
      }
      before_.end_row();
    }
    for (const auto& row : after) {
      after_.values.insert(after_.values.end(), row.begin(), row.end());
      after_.end_row();
    }
  }

  [[nodiscard]] const flat_graph& graph() const noexcept { return step_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(operations_.size()); }
  [[nodiscard]] std::uint32_t operation(std::uint32_t node) const noexcept { return operations_[node]; }
  [[nodiscard]] std::span<const std::uint32_t> before(std::uint32_t node) const noexcept { return before_[node]; }
  [[nodiscard]] std::span<const std::uint32_t> after(std::uint32_t node) const noexcept { return after_[node]; }
  /// The tensors that the node reads, and those that it writes for somebody.
  [[nodiscard]] std::span<const std::uint32_t> touched(std::uint32_t node) const noexcept { return touched_[node]; }
  [[nodiscard]] std::uint32_t touchers(std::uint32_t tensor) const noexcept { return touchers_[tensor]; }
  /// Bytes in use while the node runs beside what it touches.
  [[nodiscard]] std::int64_t own(std::uint32_t node) const noexcept { return own_[node]; }

 private:
  const flat_graph& step_;
  std::vector<std::uint32_t> operations_;
  index_rows touched_, before_, after_;
  std::vector<std::uint32_t> touchers_;
  std::vector<std::int64_t> own_;
};

/// Memory while nodes are placed one after the other, from the start of the step or from its end.
class placement {
 public:
  explicit placement(const precedence& dag, bool reverse = false)
      : dag_(dag), reverse_(reverse), left_(dag.graph().num_tensors) {
    reset();
  }

  void reset() {
    memory_ = peak_ = 0;
    for (std::uint32_t t = 0; t < left_.size(); ++t) {
      left_[t] = dag_.touchers(t);
      if (reverse_ && dag_.graph().final_output[t]) memory_ += dag_.graph().bytes[t];
    }
  }

  struct effect {
    std::int64_t during = 0;  ///< memory while it runs
    std::int64_t after = 0;   ///< memory when it has run
  };
  [[nodiscard]] effect look(std::uint32_t node) const {
    const flat_graph& s = dag_.graph();
    effect e{memory_, memory_};
    for (const std::uint32_t t : dag_.touched(node)) {
      const bool opens = left_[t] == dag_.touchers(t) && !(reverse_ && s.final_output[t]);
      const bool closes = left_[t] == 1 && (reverse_ || !s.final_output[t]);
      if (opens) e.during += s.bytes[t];
      if (opens) e.after += s.bytes[t];
      if (closes) e.after -= s.bytes[t];
    }
    e.during += dag_.own(node);
    return e;
  }
  void place(std::uint32_t node) {
    const effect e = look(node);
    for (const std::uint32_t t : dag_.touched(node)) --left_[t];
    memory_ = e.after;
    peak_ = std::max(peak_, e.during);
  }
  [[nodiscard]] std::int64_t memory() const noexcept { return memory_; }
  [[nodiscard]] std::int64_t peak() const noexcept { return peak_; }

 private:
  const precedence& dag_;
  bool reverse_;
  std::vector<std::uint32_t> left_;
  std::int64_t memory_ = 0, peak_ = 0;
};

/// What a list schedule prefers among the nodes that are ready.
enum class rule : std::uint8_t {
  least_after,   ///< the least memory afterwards
  least_during,  ///< the least memory while it runs, then afterwards
  no_new_peak,   ///< among those that make no new peak, the least memory afterwards; else the least new peak
  free_early     ///< the first in the listed order, but one that lowers memory goes before it
};

/// A list schedule, from the start or from the end. Empty if the clock ran out.
/// O(n · ready nodes · their reads and writes) time.
inline std::vector<std::uint32_t> list_schedule(const precedence& dag, rule prefer, bool reverse, run_clock& clock) {
  const std::uint32_t n = dag.size();
  std::vector<std::uint32_t> open(n), ready, order;
  for (std::uint32_t i = 0; i < n; ++i) {
    open[i] = static_cast<std::uint32_t>(reverse ? dag.after(i).size() : dag.before(i).size());
    if (open[i] == 0) ready.push_back(i);
  }
  order.reserve(n);
  placement now(dag, reverse);
  using key = std::pair<std::int64_t, std::int64_t>;
  while (!ready.empty()) {
    std::size_t best = 0;
    std::pair<key, std::uint32_t> best_key{};
    for (std::size_t r = 0; r < ready.size(); ++r) {
      const std::uint32_t i = ready[r];
      const placement::effect e = now.look(i);
      key k{};
      switch (prefer) {
        case rule::least_after:
          k = {e.after, e.during};
          break;
        case rule::least_during:
          k = {e.during, e.after};
          break;
        case rule::no_new_peak:
          k = {std::max(e.during, now.peak()), e.after};
          break;
        case rule::free_early:
          k = {e.after < now.memory() ? 0 : 1, 0};
          break;
      }
      const std::pair<key, std::uint32_t> full{k, reverse ? n - i : i};
      if (r == 0 || full < best_key) {
        best = r;
        best_key = full;
      }
    }
    const std::uint32_t chosen = ready[best];
    ready[best] = ready.back();
    ready.pop_back();
    now.place(chosen);
    order.push_back(chosen);
    for (const std::uint32_t j : reverse ? dag.before(chosen) : dag.after(chosen))
      if (--open[j] == 0) ready.push_back(j);
    clock.work();
    if (clock.should_stop()) return {};
  }
  if (reverse) std::reverse(order.begin(), order.end());
  return order;
}

/// The peak of an order; stops early, with some value above `limit`, where it exceeds that.
inline std::int64_t peak_of(placement& now, std::span<const std::uint32_t> order, std::size_t* at = nullptr,
                            std::int64_t limit = std::numeric_limits<std::int64_t>::max()) {
  now.reset();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t before = now.peak();
    now.place(order[i]);
    if (at && now.peak() > before) *at = i;
    if (now.peak() > limit) break;
  }
  return now.peak();
}

/// Moves single operations, those before the peak behind it and those behind it before it, as long as the peak does not
/// rise.
inline void improve(const precedence& dag, std::vector<std::uint32_t>& order, std::int64_t& peak, std::int64_t bound,
                    std::uint64_t moves, run_clock& clock, std::uint64_t seed,
                    const std::function<void(std::int64_t)>& tell) {
  const std::uint32_t n = dag.size();
  if (n < 2) return;
  placement now(dag);
  std::vector<std::uint32_t> at(n), trial;
  std::size_t top = 0;
  peak = peak_of(now, order, &top);
  for (std::uint32_t i = 0; i < n; ++i) at[order[i]] = i;
  std::uint64_t random = seed * 0x9e3779b97f4a7c15ULL + 0x1234567887654321ULL;
  const auto below = [&](std::uint64_t k) {  // xorshift64* (Vigna 2016)
    random ^= random >> 12;
    random ^= random << 25;
    random ^= random >> 27;
    return static_cast<std::uint32_t>(((random * 0x2545f4914f6cdd1dULL) >> 32) * k >> 32);
  };
  for (std::uint64_t m = 0; m < moves && peak > bound; ++m) {
    clock.work();
    if ((m & 15U) == 0 && clock.should_stop()) return;
    const std::uint32_t node = order[below(n)];
    std::uint32_t first = 0, last = n - 1;
    for (const std::uint32_t j : dag.before(node)) first = std::max(first, at[j] + 1);
    for (const std::uint32_t j : dag.after(node)) last = std::min(last, at[j] - 1);
    const std::uint32_t from = at[node];
    // Beyond the peak if it may go there, else anywhere.
    if (from <= top && last > top && below(4) != 0) first = static_cast<std::uint32_t>(top);
    if (from >= top && first < top && below(4) != 0) last = static_cast<std::uint32_t>(top);
    if (first >= last) continue;
    const std::uint32_t to = first + below(std::uint64_t{last} - first + 1);
    if (to == from) continue;
    trial = order;
    const auto a = trial.begin() + static_cast<std::ptrdiff_t>(from);
    const auto b = trial.begin() + static_cast<std::ptrdiff_t>(to);
    if (from < to)
      std::rotate(a, a + 1, b + 1);
    else
      std::rotate(b, a, a + 1);
    std::size_t trial_top = 0;
    const std::int64_t trial_peak = peak_of(now, trial, &trial_top, peak);
    if (trial_peak > peak) continue;
    if (trial_peak < peak) tell(trial_peak);
    peak = trial_peak;
    top = trial_top;
    order.swap(trial);
    for (std::uint32_t i = std::min(from, to); i <= std::max(from, to); ++i) at[order[i]] = i;
  }
}

/// The order of least peak by a search over the sets of operations that may have run (ideals), those of the least peak
/// so far first: a bottleneck shortest path. Precondition: at most 64 nodes. Returns whether it came to an end; `order`
/// and `peak` change only if there is a peak below `peak`.
inline bool exact(const precedence& dag, std::vector<std::uint32_t>& order, std::int64_t& peak, std::size_t most_states,
                  run_clock& clock) {
  using ideal = std::uint64_t;
  struct reached {
    std::int64_t peak;
    std::uint32_t last;
    bool done;
  };
  const std::uint32_t n = dag.size();
  const flat_graph& s = dag.graph();
  std::vector<ideal> need(n, 0), touch(s.num_tensors, 0);
  for (std::uint32_t i = 0; i < n; ++i) {
    for (const std::uint32_t j : dag.before(i)) need[i] |= ideal{1} << j;
    for (const std::uint32_t t : dag.touched(i)) touch[t] |= ideal{1} << i;
  }
  const ideal all = n == 64 ? ~ideal{0} : (ideal{1} << n) - 1;
  const auto memory = [&](ideal x) {
    std::int64_t sum = 0;
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      if ((x & touch[t]) != 0 && ((touch[t] & ~x) != 0 || s.final_output[t])) sum += s.bytes[t];
    return sum;
  };
  std::unordered_map<ideal, reached> best;
  // Of equal peak the larger set first: it is nearer to the end.
  struct entry {
    std::int64_t peak;
    int size;
    ideal x;
    bool operator<(const entry& b) const { return peak != b.peak ? peak > b.peak : size < b.size; }
  };
  std::priority_queue<entry> queue;
  best[0] = {0, 0, false};
  queue.push({0, 0, 0});
  while (!queue.empty()) {
    const entry e = queue.top();
    queue.pop();
    reached& here = best.at(e.x);
    if (here.done || e.peak > here.peak) continue;
    here.done = true;
    if (e.x == all) {
      std::vector<std::uint32_t> found;
      for (ideal x = all; x != 0;) {
        const std::uint32_t last = best.at(x).last;
        found.push_back(last);
        x &= ~(ideal{1} << last);
      }
      std::reverse(found.begin(), found.end());
      order = std::move(found);
      peak = e.peak;
      return true;
    }
    clock.work();
    if (clock.should_stop() || best.size() > most_states) return false;
    const std::int64_t now = memory(e.x);
    for (std::uint32_t i = 0; i < n; ++i) {
      if ((e.x >> i & 1) != 0 || (need[i] & ~e.x) != 0) continue;
      std::int64_t during = now + dag.own(i);
      for (const std::uint32_t t : dag.touched(i))
        if ((e.x & touch[t]) == 0) during += s.bytes[t];
      const std::int64_t then = std::max(e.peak, during);
      if (then >= peak) continue;  // no better than what is known
      const ideal x = e.x | ideal{1} << i;
      const auto [place, fresh] = best.try_emplace(x, reached{then, i, false});
      if (!fresh && place->second.peak <= then) continue;
      place->second = {then, i, false};
      queue.push({then, e.size + 1, x});
    }
  }
  return true;  // nothing below `peak`
}

}  // namespace detail::ordering

/// The order of the needed operations, each once, of the least peak that can be found: never above the listed order's.
///
/// List schedules from the start and from the end under several rules, an exact search over the sets of operations that
/// may have run where those are few, and a local search that moves single operations across the peak. Stops at once
/// where the peak meets `largest_working_set`, a lower bound.
/// O(n · ready nodes + moves · n) time, n with reads and writes. Polls at every placed operation and every 16 moves.
[[nodiscard]] inline least_peak_order_result least_peak_order(const problem& p,
                                                              const least_peak_options& options = {}) {
  run_clock clock(options.run);
  const detail::ordering::precedence dag(p);
  const std::uint32_t n = dag.size();
  const std::int64_t bound = largest_working_set(p).bytes;
  std::vector<std::uint32_t> order(n);
  for (std::uint32_t i = 0; i < n; ++i) order[i] = i;
  detail::ordering::placement now(dag);
  std::int64_t peak = detail::ordering::peak_of(now, order);
  const auto tell = [&](std::string_view stage) {
    progress news;
    news.solver = "no_remat";
    news.stage = stage;
    news.best_objective = peak <= p.budget() ? p.graph().needed_time : news.best_objective;
    news.lower_bound = p.graph().needed_time;
    news.done = clock.work_done();
    clock.report(news);
  };
  using detail::ordering::rule;
  for (const bool reverse : {false, true})
    for (const rule r : {rule::least_after, rule::least_during, rule::no_new_peak, rule::free_early}) {
      if (peak <= bound || clock.should_stop()) break;
      std::vector<std::uint32_t> trial = detail::ordering::list_schedule(dag, r, reverse, clock);
      if (trial.size() != n) continue;
      const std::int64_t trial_peak = detail::ordering::peak_of(now, trial);
      if (trial_peak < peak) {
        peak = trial_peak;
        order.swap(trial);
      }
      tell("list schedules");
    }
  bool proven = peak <= bound;
  if (!proven && n <= std::min(options.exact_operations, std::uint32_t{64}) && !clock.should_stop()) {
    proven = detail::ordering::exact(dag, order, peak, options.exact_states, clock);
    tell("exact order");
  }
  if (!proven && !clock.should_stop()) {
    detail::ordering::improve(dag, order, peak, bound, options.moves, clock, options.run.seed,
                              [&](std::int64_t better) {
                                peak = better;
                                tell("local search");
                              });
    proven = peak <= bound;
  }
  least_peak_order_result result;
  result.peak_bytes = peak;
  result.proven = proven;
  result.operations.reserve(n);
  for (const std::uint32_t i : order) result.operations.push_back(dag.operation(i));
  return result;
}

}  // namespace remat
