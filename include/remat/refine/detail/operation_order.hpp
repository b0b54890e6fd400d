// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/core/id.hpp"

/// \file
/// Operations that run once, and the engine that finds orders of little memory for them: list schedules under several
/// rules, an exact search over the sets of operations that may have run, and a local search. A `Clock` has
/// `work(units)` and `should_stop()`, as `run_clock`.

namespace REMAT_NAMESPACE::detail {

/// Operations, each of which runs once, and the tensors that they read and write.
///
/// A tensor *touched* by an operation is read or written by it. A tensor occupies memory from the first operation that
/// touches it to the last one; from the start if it is resident before, and to the end if it is resident after. An
/// operation that reads a tensor runs after all operations that write the tensor.
///
///     operation_sequence sequence;
///     sequence.reset(0);
///     const std::uint32_t t = sequence.add_tensor(4096, false, false);
///     sequence.add_operation(0);
///     sequence.touch(t, true);   // operation 0 writes t
///     sequence.add_operation(512);
///     sequence.touch(t, false);  // operation 1 reads t, and has 512 bytes of workspace
///     const std::vector<std::uint32_t> order = sequence.least_peak_order(500);
class operation_sequence {
 public:
  struct tensor {
    std::int64_t bytes = 0;        ///< its size
    std::uint32_t touchers = 0;    ///< operations that read or write it
    bool resident_before = false;  ///< it is in memory before the first operation
    bool resident_after = false;   ///< it stays in memory after the last operation
  };
  /// A read or a write of a tensor by an operation.
  struct touched {
    std::uint32_t tensor = 0;  ///< its number
    bool writes = false;       ///< true: the operation writes it; false: reads it
  };

  /// `least_peak_order` returns the given order for this many operations and more.
  static constexpr std::uint32_t longest = 2000;
  /// The exact search represents a set of operations by the bits of one word.
  static constexpr std::uint32_t longest_exact = 64;

  /// Removes all tensors and operations. `standing`: bytes in use before the first operation.
  void reset(std::int64_t standing) {
    standing_ = standing;
    tensors_.clear();
    operations_.clear();
    touches_.clear();
  }
  /// Returns the tensor's number, from 0. The bytes of a tensor that is resident before are among the standing bytes.
  std::uint32_t add_tensor(std::int64_t bytes, bool resident_before, bool resident_after) {
    tensors_.push_back({bytes, 0, resident_before, resident_after});
    return static_cast<std::uint32_t>(tensors_.size() - 1);
  }
  /// Adds the next operation. `own`: bytes that it uses while it runs, beside the tensors that it touches.
  void add_operation(std::int64_t own) {
    const auto end = static_cast<std::uint32_t>(touches_.size());
    operations_.push_back({own, end, end});
  }
  /// The operation that was added last reads or writes tensor `t`. Precondition: it touches the tensor only once.
  void touch(std::uint32_t t, bool writes) {
    touches_.push_back({t, writes});
    ++operations_.back().end;
    ++tensors_[t].touchers;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(operations_.size()); }
  [[nodiscard]] std::int64_t standing() const noexcept { return standing_; }
  [[nodiscard]] std::span<const tensor> tensors() const noexcept { return tensors_; }
  [[nodiscard]] std::int64_t own(std::uint32_t o) const noexcept { return operations_[o].own; }
  /// The reads and writes of operation `o`, in the order in which they were added.
  [[nodiscard]] std::span<const touched> touches(std::uint32_t o) const noexcept {
    return {touches_.data() + operations_[o].begin, touches_.data() + operations_[o].end};
  }

  /// The most bytes in use while the operations run in `order`, which holds each of them once. O(touches) time.
  [[nodiscard]] std::int64_t peak(std::span<const std::uint32_t> order) const;

  /// A lower bound on the peak of every order: the bytes in use before, after, and while each operation runs with
  /// nothing but what it touches. O(touches) time.
  [[nodiscard]] std::int64_t peak_bound() const;

  /// The order of the least peak that the search finds; the given order if none has a lower peak.
  ///
  /// Exact for at most 64 operations if the search meets at most `max_states` sets of operations; otherwise the best
  /// of two list schedules. Does not poll: O(max_states · operations + operations² + touches) time.
  template <class = void>
  [[nodiscard]] std::vector<std::uint32_t> least_peak_order(std::size_t max_states) const;

 private:
  struct operation {
    std::int64_t own;
    std::uint32_t begin, end;  // its touches
  };

  std::int64_t standing_ = 0;
  std::vector<tensor> tensors_;
  std::vector<operation> operations_;
  std::vector<touched> touches_;
};

namespace least_peak {

/// The operations that run before each operation (the writers of the tensors that it reads), and the reverse.
class precedence {
 public:
  explicit precedence(const operation_sequence& s) {
    index_rows writes;
    for (std::uint32_t i = 0; i < s.size(); ++i, writes.end_row())
      for (const auto& k : s.touches(i))
        if (k.writes) writes.values.push_back(k.tensor);
    const index_rows writers = writes.transposed(s.tensors().size());
    for (std::uint32_t i = 0; i < s.size(); ++i, before_.end_row())
      for (const auto& k : s.touches(i))
        if (!k.writes)
          for (const std::uint32_t j : writers[k.tensor]) before_.values.push_back(j);
    after_ = before_.transposed(s.size());
  }

  /// An operation occurs once for each tensor that connects the two.
  [[nodiscard]] std::span<const std::uint32_t> before(std::uint32_t i) const noexcept { return before_[i]; }
  [[nodiscard]] std::span<const std::uint32_t> after(std::uint32_t i) const noexcept { return after_[i]; }

 private:
  index_rows before_, after_;
};

/// The clock of a search without limits.
struct no_clock {
  void work(std::uint64_t) noexcept {}
  [[nodiscard]] bool should_stop() const noexcept { return false; }
};

enum class direction : std::uint8_t {
  forward,  ///< operations are placed from the start
  backward  ///< operations are placed from the end; tensors then obey the same rule with before and after exchanged
};

/// Memory while operations are placed one after the other.
class memory_use {
 public:
  explicit memory_use(const operation_sequence& s, direction way = direction::forward) : s_(s), start_(s.standing()) {
    rules_.reserve(s.tensors().size());
    touchers_.reserve(s.tensors().size());
    for (const auto& t : s.tensors()) {
      const bool backward = way == direction::backward;
      const bool resident_first = backward ? t.resident_after : t.resident_before;
      const bool resident_last = backward ? t.resident_before : t.resident_after;
      rules_.push_back({resident_first ? 0 : t.bytes, resident_last ? 0 : t.bytes});
      touchers_.push_back(t.touchers);
      if (backward && resident_first != resident_last) start_ += resident_first ? t.bytes : -t.bytes;
    }
    reset();
  }

  void reset() {
    left_ = touchers_;
    bytes_ = peak_ = start_;
  }

  struct effect {
    std::int64_t during;  ///< bytes in use while the operation runs
    std::int64_t after;   ///< bytes in use once it has run
  };
  [[nodiscard]] effect look(std::uint32_t i) const {
    std::int64_t during = bytes_, closed = 0;
    for (const auto& k : s_.touches(i)) {
      const std::uint32_t left = left_[k.tensor];
      if (left == touchers_[k.tensor]) during += rules_[k.tensor].opening;
      if (left == 1) closed += rules_[k.tensor].closing;
    }
    return {during + s_.own(i), during - closed};
  }
  void place(std::uint32_t i) {
    const effect e = look(i);
    for (const auto& k : s_.touches(i)) --left_[k.tensor];
    bytes_ = e.after;
    peak_ = std::max(peak_, e.during);
  }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::int64_t peak() const noexcept { return peak_; }

 private:
  struct rule {
    std::int64_t opening;  // bytes that the first operation to touch the tensor allocates
    std::int64_t closing;  // bytes that the last one frees
  };

  const operation_sequence& s_;
  std::int64_t start_, bytes_ = 0, peak_ = 0;
  std::vector<rule> rules_;                     // each tensor's rule
  std::vector<std::uint32_t> touchers_, left_;  // how many operations touch each tensor: all of them, and those to come
};

/// The rule by which a list schedule chooses among the operations that are ready. Ties go to the first in the given
/// order.
enum class list_rule : std::uint8_t {
  least_after,   ///< the least memory afterwards, then during the run
  least_during,  ///< the least memory during the run, then afterwards
  no_new_peak,   ///< the least new peak, then the least memory afterwards
  free_early     ///< an operation that lowers memory, if there is one
};

/// The rank of a ready operation under a rule, the least first.
inline std::pair<std::int64_t, std::int64_t> rank_of(list_rule rule, const memory_use& memory, memory_use::effect e) {
  switch (rule) {
    case list_rule::least_after:
      return {e.after, e.during};
    case list_rule::least_during:
      return {e.during, e.after};
    case list_rule::no_new_peak:
      return {std::max(e.during, memory.peak()), e.after};
    default:  // free_early
      return {e.after < memory.bytes() ? 0 : 1, 0};
  }
}

/// A list schedule; empty if the clock ran out. O(n · ready operations · their touches) time.
template <class Clock>
std::vector<std::uint32_t> list_schedule(const operation_sequence& s, const precedence& dag, list_rule rule,
                                         direction way, Clock* clock) {
  const bool backward = way == direction::backward;
  const std::uint32_t n = s.size();
  std::vector<std::uint32_t> missing(n), order(n);  // order: `placed` operations, then those that are ready, to `end`
  std::uint32_t placed = 0, end = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    missing[i] = static_cast<std::uint32_t>(backward ? dag.after(i).size() : dag.before(i).size());
    if (missing[i] == 0) order[end++] = i;
  }
  memory_use memory(s, way);
  for (; placed < end; ++placed) {
    std::uint32_t best = placed;
    std::pair<std::int64_t, std::int64_t> least;
    for (std::uint32_t r = placed; r < end; ++r) {
      const auto rank = rank_of(rule, memory, memory.look(order[r]));
      const bool comes_first = backward ? order[r] > order[best] : order[r] < order[best];
      if (r > placed && !(rank < least || (rank == least && comes_first))) continue;
      best = r;
      least = rank;
    }
    std::swap(order[placed], order[best]);
    memory.place(order[placed]);
    for (const std::uint32_t j : backward ? dag.before(order[placed]) : dag.after(order[placed]))
      if (--missing[j] == 0) order[end++] = j;
    if (clock == nullptr) continue;
    clock->work(1);
    if (clock->should_stop()) return {};
  }
  if (backward) std::reverse(order.begin(), order.end());
  return order;
}

/// Finds an order of least peak by a search over *ideals*: the sets of operations that may have run. It expands the
/// ideal of the least peak so far first: a bottleneck shortest path. The bytes in use after an ideal are a submodular
/// function of it (a tensor opens once and closes once). So an operation that is ready, raises the peak no further and
/// leaves no more bytes than before is a best next one: then no other is tried.
template <class = void>
class ideal_search {
 public:
  /// `bound`: a lower bound on the peak of every order.
  ideal_search(const operation_sequence& s, const precedence& dag, std::int64_t bound)
      : s_(s),
        bound_(bound),
        words_((std::size_t{s.size()} + 63) / 64),
        before_(s.size() * words_, 0),
        touchers_(s.tensors().size() * words_, 0) {
    for (std::uint32_t i = 0; i < s.size(); ++i) {
      for (const std::uint32_t j : dag.before(i)) insert(&before_[i * words_], j);
      for (const auto& k : s.touches(i)) insert(&touchers_[k.tensor * words_], i);
    }
  }

  /// Returns whether the search came to an end: then `order`, of peak `peak`, has the least peak. It changes both only
  /// if it finds a lower peak. It gives up beyond `max_states` ideals, and when the clock (if there is one) says so.
  template <class Clock>
  bool run(std::vector<std::uint32_t>& order, std::int64_t& peak, std::size_t max_states, Clock* clock) {
    next_.assign(words_, 0);
    slots_.assign(1024, 0);
    reach({s_.standing(), s_.standing(), 0, 0, false}, 0);
    while (!queue_.empty()) {
      const entry e = queue_.top();
      queue_.pop();
      state& here = states_[e.state];
      if (here.done || e.peak > here.peak) continue;
      here.done = true;
      bound_ = std::max(bound_, std::min(e.peak, peak));
      if (e.size == s_.size()) {
        trace(e.state, order);
        peak = e.peak;
        return true;
      }
      if (clock != nullptr) clock->work(1);
      if ((clock != nullptr && clock->should_stop()) || states_.size() > max_states) return false;
      expand(e, peak);
    }
    bound_ = peak;
    return true;  // no order has a peak below `peak`
  }

  /// A lower bound on the peak of every order: the least peak so far of the ideals that are left.
  [[nodiscard]] std::int64_t bound() const noexcept { return bound_; }

 private:
  struct state {
    std::int64_t peak;
    std::int64_t bytes;          // bytes in use after the ideal has run; they depend on the ideal alone
    std::uint32_t before, last;  // the state from which operation `last` leads here
    bool done;
  };
  struct entry {
    std::int64_t peak;
    std::uint32_t size, state;
    // The larger ideal comes first among equal peaks: it is nearer to the end.
    bool operator<(const entry& b) const {
      return peak != b.peak ? peak > b.peak : size != b.size ? size < b.size : state > b.state;
    }
  };
  struct effect {
    std::int64_t during, after;
  };

  static void insert(std::uint64_t* set, std::uint32_t i) { set[i / 64] |= std::uint64_t{1} << i % 64; }
  [[nodiscard]] static bool has(const std::uint64_t* set, std::uint32_t i) { return (set[i / 64] >> i % 64 & 1U) != 0; }

  [[nodiscard]] bool is_ready(const std::uint64_t* x, std::uint32_t i) const {
    if (has(x, i)) return false;
    const std::uint64_t* const before = &before_[i * words_];
    for (std::size_t w = 0; w < words_; ++w)
      if ((before[w] & ~x[w]) != 0) return false;
    return true;
  }

  /// Bytes in use while operation `i` runs after the ideal `x`, and after it.
  [[nodiscard]] effect look(const std::uint64_t* x, std::int64_t bytes, std::uint32_t i) const {
    std::int64_t during = bytes, closed = 0;
    for (const auto& k : s_.touches(i)) {
      const operation_sequence::tensor& t = s_.tensors()[k.tensor];
      const std::uint64_t* const touchers = &touchers_[k.tensor * words_];
      bool opens = !t.resident_before, closes = !t.resident_after;
      for (std::size_t w = 0; w < words_ && (opens || closes); ++w) {
        if ((touchers[w] & x[w]) != 0) opens = false;
        if ((touchers[w] & ~x[w] & ~(w == i / 64 ? std::uint64_t{1} << i % 64 : 0)) != 0) closes = false;
      }
      if (opens) during += t.bytes;
      if (closes) closed += t.bytes;
    }
    return {during + s_.own(i), during - closed};
  }

  void expand(const entry& e, std::int64_t least) {
    const std::int64_t bytes = states_[e.state].bytes;
    moves_.clear();
    const std::uint64_t* const x = &sets_[e.state * words_];
    for (std::uint32_t i = 0; i < s_.size(); ++i) {
      if (!is_ready(x, i)) continue;
      const effect f = look(x, bytes, i);
      const std::int64_t peak = std::max({e.peak, f.during, bound_});
      if (peak >= least) continue;
      const bool is_best = f.after <= bytes && f.during <= std::max(e.peak, bound_);
      if (is_best) moves_.clear();
      moves_.push_back({peak, f.after, e.state, i, false});
      if (is_best) break;
    }
    for (const state& m : moves_) {
      std::copy_n(&sets_[e.state * words_], words_, next_.begin());
      insert(next_.data(), m.last);
      reach(m, e.size + 1);
    }
  }

  /// Notes that the ideal `next_`, of `size` operations, is reached as `to` says.
  void reach(const state& to, std::uint32_t size) {
    std::uint32_t& slot = find(next_.data());
    if (slot == 0) {
      states_.push_back(to);
      sets_.insert(sets_.end(), next_.begin(), next_.end());
      slot = static_cast<std::uint32_t>(states_.size());
      queue_.push({to.peak, size, slot - 1});
      if (states_.size() * 2 > slots_.size()) grow();
      return;
    }
    state& known = states_[slot - 1];
    if (known.peak <= to.peak) return;
    known = to;
    queue_.push({to.peak, size, slot - 1});
  }

  /// The slot of a set in the hash table: 0 if it is new, else 1 + its state.
  [[nodiscard]] std::uint32_t& find(const std::uint64_t* set) {
    std::uint64_t hash = 0;
    for (std::size_t w = 0; w < words_; ++w) hash = (hash ^ set[w]) * 0x9e3779b97f4a7c15U ^ hash >> 29U;
    for (std::size_t at = hash ^ hash >> 32U;; ++at) {
      std::uint32_t& slot = slots_[at & (slots_.size() - 1)];
      if (slot == 0 || std::equal(set, set + words_, &sets_[(slot - 1) * words_])) return slot;
    }
  }
  void grow() {
    slots_.assign(slots_.size() * 4, 0);
    for (std::uint32_t k = 0; k < states_.size(); ++k) find(&sets_[k * words_]) = k + 1;
  }

  void trace(std::uint32_t k, std::vector<std::uint32_t>& order) const {
    order.clear();
    for (; order.size() < s_.size() && k != 0; k = states_[k].before) order.push_back(states_[k].last);
    std::reverse(order.begin(), order.end());
  }

  const operation_sequence& s_;
  std::int64_t bound_;
  std::size_t words_;                    // words of a set of operations
  std::vector<std::uint64_t> before_;    // the operations that each operation needs before it
  std::vector<std::uint64_t> touchers_;  // the operations that touch each tensor
  std::vector<state> states_, moves_;    // the ideals that were reached; those that one leads to
  std::vector<std::uint64_t> sets_;      // the ideal of each state
  std::vector<std::uint64_t> next_;      // one ideal
  std::vector<std::uint32_t> slots_;     // a hash table of the states: 1 + the number of each
  std::priority_queue<entry> queue_;
};

/// Moves single operations, from before the peak to behind it and the reverse, and keeps a move unless the peak rises.
template <class = void>
class local_search {
 public:
  local_search(const operation_sequence& s, const precedence& dag, std::vector<std::uint32_t>& order,
               std::uint64_t seed)
      : dag_(dag), memory_(s), order_(order), place_(order.size()), random_(seed) {
    peak_ = measure(order_, std::numeric_limits<std::int64_t>::max());
    top_ = last_top_;
    for (std::uint32_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
  }

  [[nodiscard]] std::int64_t peak() const noexcept { return peak_; }

  /// Tries one random move. Returns whether the peak fell. Precondition: at least two operations.
  bool move() {
    const auto n = static_cast<std::uint32_t>(order_.size());
    const std::uint32_t operation = order_[random_.below(n)];
    std::uint32_t first = 0, last = n - 1;
    for (const std::uint32_t j : dag_.before(operation)) first = std::max(first, place_[j] + 1);
    for (const std::uint32_t j : dag_.after(operation)) last = std::min(last, place_[j] - 1);
    const std::uint32_t from = place_[operation];
    // Mostly across the peak, if the operation may go there; otherwise anywhere.
    if (from <= top_ && last > top_ && random_.below(4) != 0) first = top_;
    if (from >= top_ && first < top_ && random_.below(4) != 0) last = top_;
    if (first >= last) return false;
    const std::uint32_t to = first + random_.below(std::uint64_t{last} - first + 1);
    if (to == from) return false;
    trial_ = order_;
    const auto a = trial_.begin() + static_cast<std::ptrdiff_t>(from);
    const auto b = trial_.begin() + static_cast<std::ptrdiff_t>(to);
    if (from < to)
      std::rotate(a, a + 1, b + 1);
    else
      std::rotate(b, a, a + 1);
    const std::int64_t trial_peak = measure(trial_, peak_);
    if (trial_peak > peak_) return false;
    const bool fell = trial_peak < peak_;
    peak_ = trial_peak;
    top_ = last_top_;
    order_.swap(trial_);
    for (std::uint32_t i = std::min(from, to); i <= std::max(from, to); ++i) place_[order_[i]] = i;
    return fell;
  }

 private:
  /// The peak of an order, or some value above `limit` if it exceeds that; `last_top_` is the place of the peak.
  std::int64_t measure(const std::vector<std::uint32_t>& order, std::int64_t limit) {
    memory_.reset();
    last_top_ = 0;
    for (std::uint32_t i = 0; i < order.size() && memory_.peak() <= limit; ++i) {
      const std::int64_t before = memory_.peak();
      memory_.place(order[i]);
      if (memory_.peak() > before) last_top_ = i;
    }
    return memory_.peak();
  }

  const precedence& dag_;
  memory_use memory_;
  std::vector<std::uint32_t>& order_;
  std::vector<std::uint32_t> place_, trial_;
  std::int64_t peak_ = 0;
  std::uint32_t top_ = 0, last_top_ = 0;
  random_source random_;
};

}  // namespace least_peak

inline std::int64_t operation_sequence::peak(std::span<const std::uint32_t> order) const {
  least_peak::memory_use memory(*this);
  for (const std::uint32_t i : order) memory.place(i);
  return memory.peak();
}

inline std::int64_t operation_sequence::peak_bound() const {
  std::int64_t end = standing_, staying = standing_;
  for (const tensor& t : tensors_) {
    if (t.resident_before && !t.resident_after) staying -= t.bytes;
    if (t.resident_before != t.resident_after) end += t.resident_after ? t.bytes : -t.bytes;
  }
  std::int64_t bound = std::max(standing_, end);
  for (std::uint32_t i = 0; i < size(); ++i) {
    std::int64_t during = staying + own(i);
    for (const touched& k : touches(i)) {
      const tensor& t = tensors_[k.tensor];
      if (!(t.resident_before && t.resident_after)) during += t.bytes;
    }
    bound = std::max(bound, during);
  }
  return bound;
}

template <class>
std::vector<std::uint32_t> operation_sequence::least_peak_order(std::size_t max_states) const {
  std::vector<std::uint32_t> order(size());
  std::iota(order.begin(), order.end(), 0U);
  std::int64_t best = peak(order);
  const std::int64_t bound = peak_bound();
  if (size() < 2 || size() >= longest || best <= bound) return order;
  const least_peak::precedence dag(*this);
  least_peak::no_clock* const none = nullptr;
  if (size() <= longest_exact && least_peak::ideal_search<>(*this, dag, bound).run(order, best, max_states, none))
    return order;
  for (const auto rule : {least_peak::list_rule::no_new_peak, least_peak::list_rule::least_after}) {
    std::vector<std::uint32_t> trial =
        least_peak::list_schedule(*this, dag, rule, least_peak::direction::forward, none);
    const std::int64_t trial_peak = peak(trial);
    if (trial_peak >= best) continue;
    best = trial_peak;
    order.swap(trial);
    if (best <= bound) break;
  }
  return order;
}

}  // namespace REMAT_NAMESPACE::detail
