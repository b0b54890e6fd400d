// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/exact.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::exact_solve {

inline constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

/// A hash of some words.
[[nodiscard]] inline std::uint64_t hash_words(const std::uint64_t* words, std::size_t count) noexcept {
  std::uint64_t h = 0x9e3779b97f4a7c15;
  for (std::size_t w = 0; w < count; ++w) {
    h = (h ^ words[w]) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
  }
  return h;
}

/// The states of the search, by key: keys of a fixed number of words stand in one array, and are found by hash.
class state_table {
 public:
  struct node {
    double spent = 0;      ///< least known time of the operations from this state to the end
    double remaining = 0;  ///< proven lower bound on the time of everything before this state
    std::uint32_t parent = none;
    std::uint32_t operation = none;  ///< placed between this state and its parent
    std::uint32_t closure = none;    ///< number of its closure
    std::uint32_t next = none;       ///< in the list of its closure
    std::uint8_t cut = 0;            ///< `remaining` has been raised by a cut
    std::uint8_t done = 0;           ///< expanded as it is, or dominated
    std::uint8_t listed = 0;         ///< stands in the list of its closure
  };

  explicit state_table(std::size_t words = 1) : words_(words), slots_(1024, none) {}

  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  [[nodiscard]] node& operator[](std::uint32_t i) noexcept { return nodes_[i]; }
  [[nodiscard]] const std::uint64_t* key(std::uint32_t i) const noexcept { return keys_.data() + i * words_; }

  /// The state of this key, or `none`.
  [[nodiscard]] std::uint32_t find(const std::vector<std::uint64_t>& key) const { return slots_[place(key)]; }

  /// Adds the state of this key, which is new. Invalidates references to keys and nodes.
  std::uint32_t insert(const std::vector<std::uint64_t>& key) {
    if ((nodes_.size() + 1) * 2 > slots_.size()) grow();
    const std::size_t at = place(key);
    const auto i = static_cast<std::uint32_t>(nodes_.size());
    keys_.insert(keys_.end(), key.begin(), key.end());
    nodes_.push_back({});
    slots_[at] = i;
    return i;
  }

 private:
  [[nodiscard]] std::size_t home(const std::uint64_t* key) const noexcept {
    return static_cast<std::size_t>(hash_words(key, words_)) & (slots_.size() - 1);
  }
  /// The slot of this key, or the empty one where it belongs.
  [[nodiscard]] std::size_t place(const std::vector<std::uint64_t>& key) const {
    std::size_t at = home(key.data());
    while (slots_[at] != none && !std::equal(key.begin(), key.end(), this->key(slots_[at])))
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow() {
    slots_.assign(slots_.size() * 2, none);
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      std::size_t at = home(key(i));
      while (slots_[at] != none) at = (at + 1) & (slots_.size() - 1);
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
    for (std::uint32_t o = 0; o < s_.num_operations; ++o) anchors_.push_back({o, nullptr, 0, 0});
    round_times();
    number_bits();
    collect_ancestors();
    collect_wakes();
    next_look_ = exact_options::visits_before_patience / std::max(1U, s_.num_operations);
  }
  backward_search(const backward_search&) = delete;  // the cut refers to sub_
  backward_search& operator=(const backward_search&) = delete;

  /// Bounds states by the first moments of `chain`, too, which must outlive the search.
  void use(const moment_chain& chain) {
    double sum = 0, size = 0;
    for (std::size_t i = 1; i < chain.moments.size(); ++i) {
      sum += chain.values[i - 1];
      size += std::abs(chain.values[i - 1]);
      for (const tensor_rate& x : chain.passed[i - 1]) {
        sum -= x.rate;
        size += x.rate;
        ++terms_;
      }
      // Less by more than all additions can have rounded up.
      const double before = sum - size * static_cast<double>(++terms_ + 8) * 0x1p-52;
      anchors_.push_back({chain.moments[i], &chain.passed[i - 1], before, chain.prices[i]});
    }
  }

  /// Searches until it finds the least time below the incumbent's, proves that none exists, or reaches a limit.
  /// `at_least` is a proven lower bound of the whole problem.
  stop_reason run(run_clock& clock, double at_least) {
    table_ = state_table(key_words_);
    work_.assign(key_words_, 0);
    for (const std::uint32_t t : s_.final_outputs) open_writes(work_, t);
    for (const std::uint32_t e : effects_) set(work_, effect_bit_[e]);
    const std::uint32_t root = table_.insert(work_);
    table_[root].remaining = closure_time(close(work_, closure_));
    table_[root].closure = number_of(closure_);
    asleep_.assign(operation_words_, 0);
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

  /// Rounds the times that are spent down to multiples of a unit, so that their sums are exact, and do not depend on
  /// the order of moves: up to eight times the needed time, each is short by less than 2^−48 of it.
  void round_times() {
    int exponent = 0;
    std::frexp(s_.needed_time, &exponent);  // needed_time ≤ 2^exponent
    for (const double time : s_.time)
      taken_.push_back(std::ldexp(std::floor(std::ldexp(time, 49 - exponent)), exponent - 49));
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
    shared_bits_.assign(key_words_, 0);
    for (std::uint32_t b = 0; b < bit_tensor_.size(); ++b)
      if (bit_tensor_[b] != none && num_producers(bit_tensor_[b]) > 1) set(shared_bits_, b);
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

  /// For each needed operation: those that it wakes, since they cannot come behind it as well (rule 6).
  void collect_wakes() {
    const std::uint32_t n = s_.num_operations;
    wakes_.assign(n, {});
    for (std::uint32_t o = 0; o < n; ++o)
      if (s_.needed[o]) wakes_[o].assign(operation_words_, 0);
    const auto wake = [&](const auto& operations, std::uint32_t sleeper) {
      for (const std::uint32_t o : operations)
        if (s_.needed[o]) set(wakes_[o], sleeper);
    };
    for (std::uint32_t o = 0; o < n; ++o) {
      if (!s_.needed[o]) continue;
      for (const std::uint32_t t : s_.outputs[o]) {
        wake(s_.consumers[t], o);
        wake(s_.producers[t], o);
      }
      for (const std::uint32_t t : s_.inputs[o])
        if (num_producers(t) > 1) wake(s_.producers[t], o);
    }
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

  /// An operation as the last one before a state.
  struct move {
    std::uint32_t operation = none;
    bool possible = false;  // apart from the budget
    bool legal = false;
    bool forced = false;       // no other move can be better: rule 4
    bool first = false;        // nothing before the state depends on it: it is its first run
    std::int64_t running = 0;  // memory while it runs
    std::int64_t opened = 0;   // bytes more before it than behind it, at most

    /// The order in which moves are tried: forced ones, further runs from the latest operation on, first runs.
    friend bool operator<(const move& a, const move& b) noexcept {
      if (a.forced != b.forced) return a.forced;
      if (a.first != b.first) return b.first;
      return a.operation > b.operation;
    }
  };

  /// Judges `o` as the last operation before `state`, whose closure is in closure_, and which holds `bytes`.
  [[nodiscard]] move judge(const bits& state, std::uint32_t o, std::int64_t bytes) const {
    move m;
    m.operation = o;
    std::int64_t opened = 0, closed = 0;
    m.first = true;
    for (std::size_t w = 0; w < operation_words_ && m.first; ++w) m.first = (closure_[w] & readers_[o][w]) == 0;
    m.forced = m.first;
    m.running = bytes + s_.workspace[o];
    for (const std::uint32_t t : s_.inputs[o]) {
      if (const std::uint32_t open = num_open(state, t); open == 0) {
        opened += s_.bytes[t];
        m.forced = m.forced && num_producers(t) == 1;
      } else if (open != num_producers(t)) {
        return m;  // it would read a tensor before its last contribution
      }
    }
    m.running += opened;
    for (const std::uint32_t t : s_.outputs[o]) {
      if (first_bit_[t] == none || num_open(state, t) == 0) {
        m.running += s_.bytes[t];
        continue;
      }
      const std::uint32_t own = write_bit(o, t);
      if (!has(state, own)) return m;  // its contribution is placed already
      bool alone = true;
      for (const std::uint32_t p : s_.producers[t]) alone = alone && (p == o || !has(closure_, p));
      if (alone) closed += s_.bytes[t];
    }
    m.possible = true;
    m.opened = opened - closed;
    m.legal = m.running <= budget_;
    m.forced = m.forced && m.legal && m.opened <= 0;
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
    const auto asleep = asleep_.begin() + static_cast<std::ptrdiff_t>(i * operation_words_);
    sleepers_.assign(asleep, asleep + static_cast<std::ptrdiff_t>(operation_words_));
    close(state_, closure_);
    const std::int64_t bytes = open_bytes(state_);
    moves_.clear();
    seen_.assign(operation_words_, 0);
    each(state_, [&](std::uint32_t b) {
      const std::uint32_t o = bit_operation_[b];
      if (has(seen_, o)) return;
      set(seen_, o);
      if (const move m = judge(state_, o, bytes); m.possible) moves_.push_back(m);
    });
    std::sort(moves_.begin(), moves_.end());
    for (std::size_t n = 0; n < moves_.size(); ++n) {
      const move& m = moves_[n];
      if (m.legal && !has(sleepers_, m.operation)) try_move(i, n);
      if (m.forced) break;
    }
  }

  /// Tries move `n` of `moves_` before state `i`.
  void try_move(std::uint32_t i, std::size_t n) {
    const std::uint32_t o = moves_[n].operation;
    work_ = state_;
    place(work_, o);
    close(work_, child_closure_);
    if (s_.once[o] && has(child_closure_, o)) return;  // it would run twice
    const state_table::node& from = table_[i];
    const double spent = from.spent + taken_[o];
    // The bound of a state is at least its parent's less the time of this operation.
    const double remaining = std::max(closure_time(child_closure_), from.remaining - s_.time[o]);
    if (spent + remaining >= limit_) return;
    find_sleepers(n);
    const std::uint32_t known = table_.find(work_);
    if (known != none && table_[known].spent <= spent) {
      meet_again(known, spent, remaining);
      return;
    }
    const std::uint32_t closure = number_of(child_closure_);
    if (is_dominated(work_, spent, closure)) return;
    const std::uint32_t j = known != none ? known : table_.insert(work_);
    if (known == none) asleep_.resize(asleep_.size() + operation_words_);
    std::copy(child_sleepers_.begin(), child_sleepers_.end(),
              asleep_.begin() + static_cast<std::ptrdiff_t>(j * operation_words_));
    state_table::node& to = table_[j];
    to.spent = spent;
    to.remaining = std::max(to.remaining, remaining);
    to.parent = i;
    to.operation = o;
    to.closure = closure;
    to.done = 0;
    drop_dominated(j);
    push(j);
  }

  /// State `i` is reached again, by a way that takes no less: what sleeps there sleeps on both ways.
  void meet_again(std::uint32_t i, double spent, double remaining) {
    state_table::node& x = table_[i];
    bool woken = false;
    if (spent == x.spent)
      for (std::size_t w = 0; w < operation_words_; ++w) {
        std::uint64_t& asleep = asleep_[i * operation_words_ + w];
        woken = woken || (asleep & ~child_sleepers_[w]) != 0;
        asleep &= child_sleepers_[w];
      }
    const bool raised = remaining > x.remaining;
    if (raised) x.remaining = remaining;
    if (x.done ? !woken : !raised) return;
    x.done = 0;
    push(i);
  }

  /// Finds what sleeps after move `n`: what sleeps at the state or was tried before, and may as well come first.
  void find_sleepers(std::size_t n) {
    child_sleepers_.assign(operation_words_, 0);
    const move& m = moves_[n];
    for (std::size_t k = 0; k < moves_.size(); ++k) {
      const move& x = moves_[k];
      if (k == n || !(has(sleepers_, x.operation) || (k < n && x.legal))) continue;
      if (s_.once[x.operation] || has(wakes_[m.operation], x.operation)) continue;
      if (m.running + x.opened <= budget_) set(child_sleepers_, x.operation);
    }
  }

  /// True if each tensor has in `a` the same open writes as in `b`, or none; both are keys.
  [[nodiscard]] bool needs_less(const std::uint64_t* a, const std::uint64_t* b) const {
    for (std::size_t w = 0; w < key_words_; ++w)
      if ((a[w] & ~b[w]) != 0) return false;
    for (std::size_t w = 0; w < key_words_; ++w)
      for (std::uint64_t rest = b[w] & ~a[w] & shared_bits_[w]; rest != 0; rest &= rest - 1) {
        const std::uint32_t t =
            bit_tensor_[static_cast<std::uint32_t>(w * 64) + static_cast<std::uint32_t>(std::countr_zero(rest))];
        for (std::uint32_t bit = first_bit_[t], n = num_producers(t); n > 0; ++bit, --n)
          if ((a[bit >> 6] >> (bit & 63) & 1) != 0) return false;
      }
    return true;
  }

  /// True if one of the states of this closure that were met last dominates `state`: rule 7.
  [[nodiscard]] bool is_dominated(const bits& state, double spent, std::uint32_t closure) {
    std::uint32_t looks = 0;
    for (std::uint32_t i = closures_[closure].first; i != none && looks < max_looks; i = table_[i].next, ++looks)
      if (table_[i].spent < spent && needs_less(table_.key(i), state.data())) return true;
    return false;
  }

  /// Drops states that `j` dominates, which becomes the first of its closure.
  void drop_dominated(std::uint32_t j) {
    std::uint32_t& first = closures_[table_[j].closure].first;
    if (!table_[j].listed) {
      table_[j].listed = 1;
      table_[j].next = first;
      first = j;
    }
    std::uint32_t* link = &first;
    for (std::uint32_t looks = 0; *link != none && looks < max_looks; ++looks) {
      state_table::node& x = table_[*link];
      if (x.spent > table_[j].spent && needs_less(table_.key(j), table_.key(*link))) {
        x.done = 1;
        x.listed = 0;
        *link = x.next;
      } else {
        link = &x.next;
      }
    }
  }

  /// What is known of all states of one closure.
  struct closure_record {
    std::uint32_t first = none;  // of the states; those met last come first
    bool known = false;          // the rest is
    std::uint32_t uses = 0, wins = 0;
    std::uint32_t anchor[2] = {none, none};  // that gave the best bounds of the first state
    double price[2] = {0, 0};
  };
  /// The number of a closure, counted from 0. A collision of hashes only makes records less useful.
  std::uint32_t number_of(const bits& closure) {
    const auto [at, fresh] = closure_numbers_.try_emplace(hash_words(closure.data(), closure.size()),
                                                          static_cast<std::uint32_t>(closures_.size()));
    if (fresh) closures_.push_back({});
    return at->second;
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
    if (!(x.parent == none ? raise_root(x, once, clock) : raise_by_anchors(x, once, clock))) return true;
    if (x.remaining <= before) return false;
    push(i);
    return true;
  }

  /// Tries all anchors at the first state, and keeps the best ones. False: there is no schedule.
  bool raise_root(state_table::node& x, double once, const run_clock& clock) {
    std::vector<std::pair<double, std::uint32_t>> found;
    for (std::uint32_t a = 0; a < anchors_.size() && !clock.should_stop(); ++a) {
      if (!s_.needed[anchors_[a].moment]) continue;
      double value = 0;
      if (!raise_at(x, a, once, 32, value, anchors_[a].price, clock)) return false;
      found.push_back({-value, a});
    }
    std::sort(found.begin(), found.end());
    std::uint32_t alone = 0;
    for (const auto& [value, a] : found)
      if (anchors_[a].kept != nullptr || ++alone <= max_alone) tried_.push_back(a);
    x.remaining = std::max(x.remaining, at_least_);
    return true;
  }

  /// One or two flows for most states: the best moment and price hardly change from a state to others of its closure.
  /// False: there is no schedule.
  bool raise_by_anchors(state_table::node& x, double once, const run_clock& clock) {
    closure_record& r = closures_[x.closure];
    if (!r.known) {
      r.known = true;
      std::vector<std::pair<double, std::uint32_t>> found;
      for (const std::uint32_t a : tried_) {
        if (!sub_.needed[anchors_[a].moment]) continue;
        double value = 0;
        if (!raise_at(x, a, once, 3, value, anchors_[a].price, clock)) return false;
        found.push_back({-value, a});
      }
      std::sort(found.begin(), found.end());
      for (std::size_t n = 0; n < 2 && n < found.size(); ++n) {
        r.anchor[n] = found[n].second;
        r.price[n] = anchors_[found[n].second].price;
      }
      return true;
    }
    ++r.uses;
    double value[2] = {0, 0};
    for (std::size_t n = 0; n < 2; ++n) {
      if (r.anchor[n] == none || !sub_.needed[anchors_[r.anchor[n]].moment] ||
          (n == 1 && r.uses % 16 != 0 && r.wins * 16 < r.uses))
        break;
      if (!raise_at(x, r.anchor[n], once, cuts_ % 16 == 0 ? 3 : 1, value[n], r.price[n], clock)) return false;
    }
    if (value[1] <= value[0]) return true;
    r.wins += 2;
    if (r.wins > r.uses) {
      std::swap(r.anchor[0], r.anchor[1]);
      std::swap(r.price[0], r.price[1]);
      r.uses = r.wins = 0;
    }
    return true;
  }

  /// Raises the bound of `x` by the cut at an anchor, from the price `start` on, and leaves there the best price and in
  /// `value` its bound. False: the state has no schedule.
  bool raise_at(state_table::node& x, std::uint32_t a, double once, int flows, double& value, double& start,
                const run_clock& clock) {
    const auto stop = [&] { return clock.should_stop(); };
    cut_.at(segment{.moment = anchors_[a].moment, .kept = anchors_[a].kept});
    const std::int64_t room = budget_ - cut_.working_set();
    if (room < 0) return mark_infeasible(x);
    if (cut_.has_unrepeatable()) {
      ++cuts_;
      if (cut_.least_bytes(stop) > room) return mark_infeasible(x);
      if (!cut_.complete()) return true;
    }
    const double least = once + anchors_[a].before;
    value = least;
    // With all tensors resident, at most all rates are paid.
    moment_choice left{cut_.total_cost() - cut_.total_time(), 0}, right{cut_.total_time(), 0};
    for (std::size_t c = 0; c < cut_.num_candidates(); ++c) left.bytes += cut_.candidate_bytes(c);
    double price = start;
    for (int flow = 0; flow < flows && left.bytes > std::max(room, right.bytes); ++flow) {
      const double meet = (right.time - left.time) / static_cast<double>(left.bytes - right.bytes);
      const double most = least + left.time + meet * static_cast<double>(left.bytes - room);
      if (flow > 0 && most <= std::max(value, x.remaining) * (1 + 1e-9)) break;
      price = std::min(flow == 0 && price > 0 ? price : meet, cut_.highest_price());
      if (!(price > 0)) break;
      ++cuts_;
      const double bound = least + (cut_.price(price, stop) - price * static_cast<double>(room) * (1 + 0x1p-51));
      if (bound > value) {
        value = bound;
        start = price;
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
    x.remaining = std::max(x.remaining, value);
    return true;
  }
  static bool mark_infeasible(state_table::node& x) {
    x.remaining = std::numeric_limits<double>::infinity();
    return false;
  }

  static constexpr std::uint32_t max_looks = 64;  // at states of one closure for dominance
  static constexpr std::uint32_t max_alone = 16;  // moments without a chain that are tried at each closure

  /// The last moment of a bound: alone, or with those of a chain before it.
  struct anchor {
    std::uint32_t moment;
    const std::vector<tensor_rate>* kept;  // rates of the tensors that are resident there; null: alone
    double before;                         // the bound of the segments before it, less the rates
    double price;                          // of a byte
  };

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
  bits shared_bits_;  // writes of tensors with several producers
  std::vector<bits> wakes_;
  std::vector<std::uint64_t> asleep_;  // operations, of each state: rule 6
  std::vector<anchor> anchors_;        // each operation alone, then those of chains
  std::vector<std::uint32_t> tried_;   // anchors, at each closure
  std::size_t terms_ = 0;              // of the bounds of the chain
  std::vector<closure_record> closures_;
  std::unordered_map<std::uint64_t, std::uint32_t> closure_numbers_;  // by hash
  std::vector<double> taken_;                                         // by an operation
  bits work_, state_, closure_, child_closure_, seen_, sleepers_, child_sleepers_;
  std::vector<move> moves_;
  std::size_t next_look_ = 0;  // states
  double bound_ = 0, at_least_ = 0, last_bound_ = 0;
  std::uint64_t cuts_ = 0;
  std::uint32_t goal_ = none;
  bool complete_ = false;
};

/// The bound of chains of moments, if the limits allow for it: it raises `best.lower_bound`. Null: there is none.
[[nodiscard]] REMAT_INLINE std::shared_ptr<const moment_chain> find_chain(const problem& p, const run_clock& clock,
                                                                          solution& best) {
  if (clock.control().work_limit < exact_options::least_work_for_chain * p.graph().num_operations) return nullptr;
  turnaround_options linking;
  linking.want_saved = false;
  linking.branch_nodes = 200;
  linking.chain_moments = 48;
  linking.run = clock.limits(0.25);
  const turnaround_result found = turnaround_bound(p, linking);
  if (!found.infeasible) best.lower_bound = std::max(best.lower_bound, found.lower_bound);
  return found.links;
}

}  // namespace detail::exact_solve

REMAT_INLINE solution exact_solver::operator()(const problem& p, const exact_options& options) const {
  require_valid_options(name, options);
  detail::require_no_link(p, name);
  const double slowest = options.faster_than.value_or(std::numeric_limits<double>::infinity());
  if (!(slowest >= 0))
    throw bad_argument("exact: faster_than is " + std::to_string(slowest) + "; it must be at least 0");
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
    const double limit = std::min(best.time, slowest);
    if (stopped == stop_reason::none && !met() && p.graph().num_operations > max_operations) {
      best.message = "too many operations for an exact search";
    } else if (stopped == stop_reason::none && !met() && best.lower_bound < limit) {
      std::shared_ptr<const detail::moment_chain> chain = options.chain;
      if (chain == nullptr) chain = detail::exact_solve::find_chain(p, clock, best);
      detail::exact_solve::backward_search search(p, options, limit);
      if (chain != nullptr) search.use(*chain);
      stopped = search.run(clock, best.lower_bound);
      if (search.found()) accept(p, best, search.schedule_found(), name);
      if (search.complete())
        best.lower_bound = std::min(best.time, slowest);  // infinite if there is no schedule
      else
        best.lower_bound = std::max(best.lower_bound, std::min(search.bound(), best.time));
      if (search.complete() && best.lower_bound == std::numeric_limits<double>::infinity()) {
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
