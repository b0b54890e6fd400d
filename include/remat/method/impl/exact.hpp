// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/exact.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::exact_solve {

inline constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

/// The states of the search, by key: keys of a fixed number of words stand in one array, and are found by hash.
class state_table {
 public:
  struct node {
    double spent = 0;      ///< least known time of the operations from this state to the end
    double remaining = 0;  ///< proven lower bound on the time of everything before this state
    std::uint32_t parent = none;
    std::uint32_t operation = none;  ///< placed between this state and its parent
    std::uint32_t moment = none;     ///< moment of the last cut, made at `price`
    float price = 0;
    std::uint8_t cut = 0;   ///< `remaining` has been raised by a cut
    std::uint8_t done = 0;  ///< expanded, with this `spent`
  };

  explicit state_table(std::size_t words = 1) : words_(words), slots_(1024, none) {}

  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  [[nodiscard]] node& operator[](std::uint32_t i) noexcept { return nodes_[i]; }
  [[nodiscard]] const std::uint64_t* key(std::uint32_t i) const noexcept { return keys_.data() + i * words_; }

  /// The state of this key, and true if it is new. Invalidates references to keys and nodes.
  std::pair<std::uint32_t, bool> insert(const std::vector<std::uint64_t>& key) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash(key.data()) & mask;
    for (; slots_[at] != none; at = (at + 1) & mask)
      if (std::equal(key.begin(), key.end(), this->key(slots_[at]))) return {slots_[at], false};
    const auto i = static_cast<std::uint32_t>(nodes_.size());
    slots_[at] = i;
    nodes_.push_back({});
    keys_.insert(keys_.end(), key.begin(), key.end());
    if (nodes_.size() * 2 > slots_.size()) grow();
    return {i, true};
  }

 private:
  [[nodiscard]] std::size_t hash(const std::uint64_t* key) const noexcept {
    std::uint64_t h = 0x9e3779b97f4a7c15;
    for (std::size_t w = 0; w < words_; ++w) {
      h = (h ^ key[w]) * 0xff51afd7ed558ccd;
      h ^= h >> 32;
    }
    return static_cast<std::size_t>(h);
  }
  void grow() {
    slots_.assign(slots_.size() * 2, none);
    const std::size_t mask = slots_.size() - 1;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      std::size_t at = hash(key(i)) & mask;
      while (slots_[at] != none) at = (at + 1) & mask;
      slots_[at] = i;
    }
  }

  std::size_t words_;
  std::vector<std::uint64_t> keys_;
  std::vector<node> nodes_;
  std::vector<std::uint32_t> slots_;
};

/// A* over sets of open writes: see `exact_solver`.
class backward_search {
 public:
  backward_search(const problem& p, const exact_options& options, double incumbent)
      : s_(p.graph()),
        budget_(p.budget()),
        options_(options),
        limit_(incumbent * (1 - rounding_error)),
        sub_(p.graph()),
        cut_(sub_) {
    number_bits();
    collect_ancestors();
    next_look_ = exact_options::visits_before_patience / std::max(1U, s_.num_operations);
  }
  backward_search(const backward_search&) = delete;  // the cut refers to sub_
  backward_search& operator=(const backward_search&) = delete;

  /// Searches until it finds the least time below the incumbent's, proves that none exists, or reaches a limit.
  /// `at_least` is a proven lower bound of the whole problem.
  stop_reason run(run_clock& clock, double at_least) {
    table_ = state_table(key_words_);
    work_.assign(key_words_, 0);
    for (const std::uint32_t t : s_.final_outputs) open_writes(work_, t);
    for (const std::uint32_t e : effects_) set(work_, effect_bit_[e]);
    const std::uint32_t root = table_.insert(work_).first;
    table_[root].remaining = closure_time(close(work_, closure_));
    at_least_ = at_least;
    bound_ = std::max(at_least, table_[root].remaining);
    push(root);
    while (!open_.empty()) {
      const entry top = open_.front();
      std::pop_heap(open_.begin(), open_.end(), later);
      open_.pop_back();
      const std::uint32_t i = top.state;
      if (table_[i].done || top.total != table_[i].spent + table_[i].remaining) continue;
      bound_ = std::max(bound_, std::min(top.total, limit_));
      if (top.total >= limit_) break;
      if (const stop_reason r = clock.poll(); r != stop_reason::none) return r;
      clock.report({.stage = "search", .lower_bound = bound_, .done = table_.size(), .total = options_.max_states});
      if (table_.size() >= options_.max_states || !is_worth_more()) return stop_reason::work;
      work_.assign(table_.key(i), table_.key(i) + key_words_);
      if (std::all_of(work_.begin(), work_.end(), [](std::uint64_t w) { return w == 0; })) {
        goal_ = i;
        complete_ = true;
        return stop_reason::none;
      }
      if (!table_[i].cut && raise(i, clock)) continue;
      clock.work(s_.num_operations * work_of::visit);
      expand(i);
    }
    complete_ = true;
    bound_ = limit_;
    return stop_reason::none;
  }

  /// True: the search is exhaustive. Either `found()`, or no schedule is faster than the incumbent.
  [[nodiscard]] bool complete() const noexcept { return complete_; }
  [[nodiscard]] bool found() const noexcept { return goal_ != none; }
  /// The proven lower bound when the search ended; rounded down by more than rounding errors can amount to.
  [[nodiscard]] double bound() const noexcept { return bound_ * (1 - 1e-13); }
  [[nodiscard]] std::size_t states() const noexcept { return table_.size(); }
  [[nodiscard]] std::uint64_t cuts() const noexcept { return cuts_; }

  [[nodiscard]] schedule schedule_found() {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = goal_; table_[i].parent != none; i = table_[i].parent) order.push_back(table_[i].operation);
    return schedule_computes(s_, order);
  }

 private:
  using bits = std::vector<std::uint64_t>;
  struct entry {
    double total;
    double spent;
    std::uint32_t state;
  };
  /// Orders the heap: least total first; for equal totals, the state that is closest to the start.
  static bool later(const entry& a, const entry& b) noexcept {
    if (a.total != b.total) return a.total > b.total;
    if (a.spent != b.spent) return a.spent < b.spent;
    return a.state < b.state;
  }

  static bool has(const bits& b, std::uint32_t i) noexcept { return (b[i >> 6] >> (i & 63) & 1) != 0; }
  static void set(bits& b, std::uint32_t i) noexcept { b[i >> 6] |= std::uint64_t{1} << (i & 63); }
  static void clear(bits& b, std::uint32_t i) noexcept { b[i >> 6] &= ~(std::uint64_t{1} << (i & 63)); }
  template <class F>
  static void each(const bits& b, F&& f) {
    for (std::size_t w = 0; w < b.size(); ++w)
      for (std::uint64_t rest = b[w]; rest != 0; rest &= rest - 1)
        f(static_cast<std::uint32_t>(w * 64) + static_cast<std::uint32_t>(std::countr_zero(rest)));
  }

  /// False if twice as many states have closed too little of the gap. See `exact_options::patience`.
  bool is_worth_more() {
    if (options_.patience == 0 || table_.size() < next_look_) return true;
    const double gained = bound_ - last_bound_;
    const bool worth = last_bound_ == 0 || gained >= options_.patience * (limit_ - bound_);
    last_bound_ = bound_;
    next_look_ *= 2;
    return worth;
  }

  /// One bit for each write of a tensor that is read or is a final output, and one for each effect.
  void number_bits() {
    first_bit_.assign(s_.num_tensors, none);
    effect_bit_.assign(s_.num_operations, none);
    for (std::uint32_t t = 0; t < s_.num_tensors; ++t) {
      bool wanted = s_.final_output[t] != 0;
      for (const std::uint32_t reader : s_.consumers[t]) wanted = wanted || s_.needed[reader];
      if (!wanted) continue;
      first_bit_[t] = static_cast<std::uint32_t>(bit_operation_.size());
      for (const std::uint32_t o : s_.producers[t]) {
        bit_operation_.push_back(o);
        bit_tensor_.push_back(t);
      }
    }
    for (std::uint32_t o = 0; o < s_.num_operations; ++o) {
      if (!s_.has_effect(o)) continue;
      effects_.push_back(o);
      effect_bit_[o] = static_cast<std::uint32_t>(bit_operation_.size());
      bit_operation_.push_back(o);
      bit_tensor_.push_back(none);
    }
    key_words_ = std::max<std::size_t>(1, (bit_operation_.size() + 63) / 64);
  }

  /// For each needed operation: its ancestors, itself included, and the readers of its outputs.
  void collect_ancestors() {
    const std::uint32_t n = s_.num_operations;
    operation_words_ = (n + 63) / 64;
    ancestors_.assign(n, {});
    readers_.assign(n, {});
    for (std::uint32_t o = 0; o < n; ++o) {
      if (!s_.needed[o]) continue;
      ancestors_[o].assign(operation_words_, 0);
      readers_[o].assign(operation_words_, 0);
      set(ancestors_[o], o);
      for (const std::uint32_t t : s_.inputs[o])
        for (const std::uint32_t p : s_.producers[t]) {
          for (std::size_t w = 0; w < operation_words_; ++w) ancestors_[o][w] |= ancestors_[p][w];
          set(readers_[p], o);
        }
    }
    byte_time_.assign(operation_words_ * 8 * 256, 0.0);
    for (std::size_t b = 0; b < operation_words_ * 8; ++b)
      for (std::size_t v = 1; v < 256; ++v) {
        const std::size_t top = static_cast<std::size_t>(std::bit_width(v)) - 1, o = b * 8 + top;
        byte_time_[b * 256 + v] =
            byte_time_[b * 256 + (v ^ (std::size_t{1} << top))] + (o < n && s_.needed[o] ? s_.time[o] : 0.0);
      }
    closure_.assign(operation_words_, 0);
    child_closure_.assign(operation_words_, 0);
  }

  [[nodiscard]] std::uint32_t num_producers(std::uint32_t t) const {
    return s_.producers.begin[t + 1] - s_.producers.begin[t];
  }
  /// The number of open writes of `t`, which has bits.
  [[nodiscard]] std::uint32_t num_open(const bits& state, std::uint32_t t) const {
    std::uint32_t open = 0;
    for (std::uint32_t i = 0, n = num_producers(t); i < n; ++i) open += has(state, first_bit_[t] + i);
    return open;
  }
  [[nodiscard]] std::uint32_t write_bit(std::uint32_t o, std::uint32_t t) const {
    const auto row = s_.producers[t];
    return first_bit_[t] + static_cast<std::uint32_t>(std::lower_bound(row.begin(), row.end(), o) - row.begin());
  }
  void open_writes(bits& state, std::uint32_t t) const {
    for (std::uint32_t i = 0, n = num_producers(t); i < n; ++i) set(state, first_bit_[t] + i);
  }

  /// Writes the operations that must run before `state`, its closure, to `into`, and returns that.
  const bits& close(const bits& state, bits& into) const {
    std::fill(into.begin(), into.end(), 0);
    each(state, [&](std::uint32_t b) {
      const std::uint32_t o = bit_operation_[b];
      if (has(into, o)) return;
      for (std::size_t w = 0; w < operation_words_; ++w) into[w] |= ancestors_[o][w];
    });
    return into;
  }
  [[nodiscard]] double closure_time(const bits& closure) const {
    double sum = 0;
    for (std::size_t w = 0; w < operation_words_; ++w)
      for (std::size_t b = 0; b < 8 && closure[w] >> (8 * b) != 0; ++b)
        sum += byte_time_[(w * 8 + b) * 256 + (closure[w] >> (8 * b) & 255)];
    return sum;
  }
  [[nodiscard]] std::int64_t open_bytes(const bits& state) const {
    std::int64_t sum = 0;
    std::uint32_t last = none;
    each(state, [&](std::uint32_t b) {
      const std::uint32_t t = bit_tensor_[b];
      if (t == none || t == last) return;
      last = t;
      sum += s_.bytes[t];
    });
    return sum;
  }

  void push(std::uint32_t i) {
    state_table::node& x = table_[i];
    const double total = x.spent + x.remaining;
    if (total >= limit_) return;
    open_.push_back({total, x.spent, i});
    std::push_heap(open_.begin(), open_.end(), later);
  }

  struct move {
    bool legal = false;
    bool forced = false;  // no other move can be better: rule 4
  };

  /// Judges `o` as the last operation before `state`, whose closure is in closure_, and which holds `bytes`.
  [[nodiscard]] move judge(const bits& state, std::uint32_t o, std::int64_t bytes) const {
    move m;
    std::int64_t opened = 0, closed = 0, running = bytes + s_.workspace[o];
    m.forced = true;
    for (std::size_t w = 0; w < operation_words_ && m.forced; ++w) m.forced = (closure_[w] & readers_[o][w]) == 0;
    for (const std::uint32_t t : s_.inputs[o]) {
      if (const std::uint32_t open = num_open(state, t); open == 0) {
        opened += s_.bytes[t];
        m.forced = m.forced && num_producers(t) == 1;
      } else if (open != num_producers(t)) {
        return {};  // it would read a tensor before its last contribution
      }
    }
    running += opened;
    for (const std::uint32_t t : s_.outputs[o]) {
      if (first_bit_[t] == none || num_open(state, t) == 0) {
        running += s_.bytes[t];
        continue;
      }
      const std::uint32_t own = write_bit(o, t);
      if (!has(state, own)) return {};  // its contribution is placed already
      bool alone = true;
      for (const std::uint32_t p : s_.producers[t]) alone = alone && (p == o || !has(closure_, p));
      if (alone) closed += s_.bytes[t];
    }
    m.legal = running <= budget_;
    m.forced = m.forced && m.legal && opened <= closed;
    return m;
  }

  /// Places `o` before `state`.
  void place(bits& state, std::uint32_t o) const {
    for (const std::uint32_t t : s_.outputs[o])
      if (first_bit_[t] != none) clear(state, write_bit(o, t));
    if (effect_bit_[o] != none) clear(state, effect_bit_[o]);
    for (const std::uint32_t t : s_.inputs[o])
      if (num_open(state, t) == 0) open_writes(state, t);
  }

  void expand(std::uint32_t i) {
    table_[i].done = 1;
    state_.assign(table_.key(i), table_.key(i) + key_words_);
    close(state_, closure_);
    const std::int64_t bytes = open_bytes(state_);
    moves_.clear();
    seen_.assign(operation_words_, 0);
    std::uint32_t forced = none;
    each(state_, [&](std::uint32_t b) {
      const std::uint32_t o = bit_operation_[b];
      if (forced != none || has(seen_, o)) return;
      set(seen_, o);
      const move m = judge(state_, o, bytes);
      if (m.forced) forced = o;
      if (m.legal) moves_.push_back(o);
    });
    if (forced != none) moves_.assign(1, forced);
    for (const std::uint32_t o : moves_) {
      work_ = state_;
      place(work_, o);
      close(work_, child_closure_);
      if (s_.once[o] && has(child_closure_, o)) continue;  // it would run twice
      const state_table::node& from = table_[i];
      const double spent = from.spent + s_.time[o];
      // The bound of a state is at least its parent's less the time of this operation.
      const double remaining = std::max(closure_time(child_closure_), from.remaining - s_.time[o]);
      if (spent + remaining >= limit_) continue;
      const std::uint32_t moment = from.moment;
      const float price = from.price;
      const auto [j, fresh] = table_.insert(work_);
      state_table::node& to = table_[j];
      if (!fresh && to.spent <= spent) {
        to.remaining = std::max(to.remaining, remaining);
        if (!to.done) push(j);
        continue;
      }
      to.spent = spent;
      to.remaining = fresh ? remaining : std::max(to.remaining, remaining);
      to.parent = i;
      to.operation = o;
      to.done = 0;
      if (fresh) {
        to.moment = moment;
        to.price = price;
      }
      push(j);
    }
  }

  /// Raises the bound of state `i`, which is in work_, by the turnaround bound of the part before it. True: the state
  /// is back in the heap with its new bound, or is proven to have no schedule.
  bool raise(std::uint32_t i, const run_clock& clock) {
    state_table::node& x = table_[i];
    x.cut = 1;
    close(work_, closure_);
    const double once = closure_time(closure_);
    const double before = x.remaining;
    // The part before the state is a problem of its own: its outputs are the tensors whose writes are all open.
    sub_.final_outputs.clear();
    std::fill(sub_.final_output.begin(), sub_.final_output.end(), std::uint8_t{0});
    each(work_, [&](std::uint32_t b) {
      const std::uint32_t t = bit_tensor_[b];
      if (t == none || b != first_bit_[t] || num_open(work_, t) != num_producers(t)) return;
      sub_.final_outputs.push_back(t);
      sub_.final_output[t] = 1;
    });
    for (std::uint32_t o = 0; o < s_.num_operations; ++o) sub_.needed[o] = has(closure_, o);
    if (x.parent == none) {
      for (std::uint32_t o = 0; o < s_.num_operations && !clock.should_stop(); ++o)
        if (s_.needed[o] && !raise_at(x, o, once, 32, clock)) return true;
      x.remaining = std::max(x.remaining, at_least_);
    } else if (x.moment != none && sub_.needed[x.moment]) {
      // One flow for most states: the best price hardly changes from a state to the next.
      if (!raise_at(x, x.moment, once, cuts_ % 16 == 0 ? 3 : 1, clock)) return true;
    }
    if (x.remaining <= before) return false;
    push(i);
    return true;
  }

  /// Raises the bound of `x` by the cut at the first run of k. False: the state has no schedule.
  bool raise_at(state_table::node& x, std::uint32_t k, double once, int flows, const run_clock& clock) {
    const auto stop = [&] { return clock.should_stop(); };
    cut_.at(k);
    const std::int64_t room = budget_ - cut_.working_set();
    if (room < 0) return mark_infeasible(x);
    if (cut_.has_unrepeatable()) {
      ++cuts_;
      if (cut_.least_bytes(stop) > room) return mark_infeasible(x);
      if (!cut_.complete()) return true;
    }
    moment_choice left{0, 0}, right{cut_.total_time(), 0};
    for (std::size_t c = 0; c < cut_.num_candidates(); ++c) left.bytes += cut_.candidate_bytes(c);
    double price = x.moment == k ? static_cast<double>(x.price) : 0;
    for (int flow = 0; flow < flows && left.bytes > std::max(room, right.bytes); ++flow) {
      const double meet = (right.time - left.time) / static_cast<double>(left.bytes - right.bytes);
      if (once + left.time + meet * static_cast<double>(left.bytes - room) <= x.remaining * (1 + 1e-9)) break;
      price = std::min(flow == 0 && price > 0 ? price : meet, cut_.highest_price());
      if (!(price > 0)) break;
      ++cuts_;
      const double value = cut_.price(price, stop) - price * static_cast<double>(room) * (1 + 0x1p-51);
      if (once + value > x.remaining) {
        x.remaining = once + value;
        x.moment = k;
        x.price = static_cast<float>(price);
      }
      if (!cut_.complete()) break;
      const moment_choice c = cut_.choice();
      if (c.bytes > room) {
        if (flow > 0 && c.bytes >= left.bytes) break;
        left = c;
      } else {
        if (c.bytes == room || (flow > 0 && c.time >= right.time)) break;
        right = c;
      }
    }
    return true;
  }
  static bool mark_infeasible(state_table::node& x) {
    x.remaining = std::numeric_limits<double>::infinity();
    return false;
  }

  const flat_graph& s_;
  const std::int64_t budget_;
  const exact_options& options_;
  const double limit_;
  flat_graph sub_;
  moment_cut cut_;
  std::vector<std::uint32_t> first_bit_, effect_bit_, effects_;  // of a tensor; of an operation
  std::vector<std::uint32_t> bit_operation_, bit_tensor_;        // of a bit
  std::size_t key_words_ = 1, operation_words_ = 0;
  std::vector<bits> ancestors_, readers_;
  std::vector<double> byte_time_;
  state_table table_;
  std::vector<entry> open_;
  bits work_, state_, closure_, child_closure_, seen_;
  std::vector<std::uint32_t> moves_;
  std::size_t next_look_ = 0;  // states
  double bound_ = 0, at_least_ = 0, last_bound_ = 0;
  std::uint64_t cuts_ = 0;
  std::uint32_t goal_ = none;
  bool complete_ = false;
};

}  // namespace detail::exact_solve

REMAT_INLINE solution exact_solver::operator()(const problem& p, const exact_options& options) const {
  require_valid_options(name, options);
  run_clock clock(options.run, name);
  solution best;
  clock.watch(best.time, best.lower_bound);
  try {
    stop_reason stopped = clock.poll();
    const auto met = [&] { return best.is_within(0); };
    if (stopped != stop_reason::none || prove(p, best, clock.limits(0.25))) {
      conclude(p, best, clock, stopped);
      return best;
    }
    if (options.start_from_heuristic) {
      solution s = detail::solve_part(clock, 0.25, evict, p.with_known_bound(best.lower_bound), {});
      if (s.plan) detail::take_part(best, s, [&] { accept(p, best, *s.plan, by_part(name, s.by)); });
      stopped = clock.poll();
    }
    if (stopped == stop_reason::none && !met() && p.graph().num_operations > max_operations) {
      best.message = "too many operations for an exact search";
    } else if (stopped == stop_reason::none && !met()) {
      detail::exact_solve::backward_search search(p, options, best.time);
      stopped = search.run(clock, best.lower_bound);
      if (search.found()) accept(p, best, search.schedule_found(), name);
      if (search.complete())
        best.lower_bound = best.time;  // infinite if there is no schedule
      else
        best.lower_bound = std::max(best.lower_bound, std::min(search.bound(), best.time));
      if (search.complete() && !best.plan) {
        best.status = solve_status::infeasible;
        best.message = "proven by exhaustive search: no schedule fits the budget";
      }
    }
    conclude(p, best, clock, stopped);
  } catch (const std::bad_alloc&) {
    conclude_out_of_memory(best, clock);
  }
  return best;
}

}  // namespace REMAT_NAMESPACE
