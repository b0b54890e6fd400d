// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "remat/core/detail/bit_words.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// The states of the search, by key: keys of a fixed number of words stand in one array, and are found by hash.
class state_table {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  struct node {
    std::int64_t spent = 0;  ///< least known time of the operations from this state to the end, in units
    double remaining = 0;    ///< proven lower bound on the time of everything before this state
    std::uint32_t parent = none;
    std::uint32_t operation = none;  ///< placed between this state and its parent
    std::uint32_t closure = none;    ///< number of its closure
    std::uint32_t next = none;       ///< the next state in the list of its closure
    std::uint8_t cut = 0;            ///< `remaining` has been raised by a cut
    std::uint8_t done = 0;           ///< expanded as it is, or dominated
    std::uint8_t listed = 0;         ///< stands in the list of its closure
  };

  explicit state_table(std::size_t words = 1) : words_(words), slots_(1024, none) {}

  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  [[nodiscard]] node& operator[](std::uint32_t i) noexcept { return nodes_[i]; }
  [[nodiscard]] const node& operator[](std::uint32_t i) const noexcept { return nodes_[i]; }
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
    return static_cast<std::size_t>(hash_words({key, words_})) & (slots_.size() - 1);
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

/// States that wait in a heap: least total first; for equal totals, the state that is closest to the start.
class open_states {
 public:
  struct entry {
    double total;
    double spent;
    std::uint32_t state;
  };

  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  void push(const entry& e) {
    heap_.push_back(e);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  entry pop() {
    const entry top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
    return top;
  }

 private:
  static bool later(const entry& a, const entry& b) noexcept {
    if (a.total != b.total) return a.total > b.total;
    if (a.spent != b.spent) return a.spent < b.spent;
    return a.state < b.state;
  }
  std::vector<entry> heap_;
};

/// The writes of a step as bits, and what follows from the set of those that are still to be made: a state. See
/// `exact_solver`. Nothing changes after construction.
class write_sets {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// An operation as the last one before a state.
  struct move {
    std::uint32_t operation = none;
    bool possible = false;  // apart from the budget
    bool legal = false;
    bool forced = false;       // no other move can be better, if every schedule runs it before the state: rule 4
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

  /// `g` must outlive the object.
  write_sets(const flat_graph& g, std::int64_t budget) : s_(g), budget_(budget) {
    number_bits();
    collect_ancestors();
  }

  /// The first bit of each tensor's writes, and the bit of each operation's effect, or `none`; the operations with
  /// effects; each bit's operation, and its tensor or `none`.
  [[nodiscard]] std::uint32_t first_bit(std::uint32_t t) const { return first_bit_[t]; }
  [[nodiscard]] std::uint32_t bit_operation(std::uint32_t b) const { return bit_operation_[b]; }
  [[nodiscard]] std::uint32_t bit_tensor(std::uint32_t b) const { return bit_tensor_[b]; }
  [[nodiscard]] std::span<const std::uint32_t> effects() const { return effects_; }
  /// Words of a state, and of a set of operations.
  [[nodiscard]] std::size_t key_words() const noexcept { return key_words_; }
  [[nodiscard]] std::size_t operation_words() const noexcept { return operation_words_; }
  /// A needed operation and its ancestors.
  [[nodiscard]] const bit_words& ancestors(std::uint32_t o) const { return ancestors_[o]; }

  [[nodiscard]] std::uint32_t num_producers(std::uint32_t t) const {
    return s_.producers.begin[t + 1] - s_.producers.begin[t];
  }
  /// The number of open writes of `t`, which has bits.
  [[nodiscard]] std::uint32_t num_open(const bit_words& state, std::uint32_t t) const {
    std::uint32_t open = 0;
    for (std::uint32_t i = 0, n = num_producers(t); i < n; ++i) open += test_bit(state, first_bit_[t] + i);
    return open;
  }
  [[nodiscard]] std::uint32_t write_bit(std::uint32_t o, std::uint32_t t) const {
    const auto row = s_.producers[t];
    return first_bit_[t] + static_cast<std::uint32_t>(std::lower_bound(row.begin(), row.end(), o) - row.begin());
  }
  void open_writes(bit_words& state, std::uint32_t t) const {
    for (std::uint32_t i = 0, n = num_producers(t); i < n; ++i) set_bit(state, first_bit_[t] + i);
  }
  void open_effects(bit_words& state) const {
    for (const std::uint32_t e : effects_) set_bit(state, effect_bit_[e]);
  }

  /// Writes the operations that must run before `state`, its closure, to `into`, and returns that.
  const bit_words& close(const bit_words& state, bit_words& into) const {
    into.assign(operation_words_, 0);
    for_each_bit(state, [&](std::uint32_t b) {
      const std::uint32_t o = bit_operation_[b];
      if (test_bit(into, o)) return;
      unite(into, ancestors_[o]);
    });
    return into;
  }
  [[nodiscard]] double closure_time(const bit_words& closure) const {
    double sum = 0;
    for (std::size_t w = 0; w < operation_words_; ++w)
      for (std::size_t b = 0; b < 8 && closure[w] >> (8 * b) != 0; ++b)
        sum += byte_time_[(w * 8 + b) * 256 + (closure[w] >> (8 * b) & 255)];
    return sum;
  }
  [[nodiscard]] std::int64_t open_bytes(const bit_words& state) const {
    std::int64_t sum = 0;
    std::uint32_t last = none;
    for_each_bit(state, [&](std::uint32_t b) {
      const std::uint32_t t = bit_tensor_[b];
      if (t == none || t == last) return;
      last = t;
      sum += s_.bytes[t];
    });
    return sum;
  }

  /// Judges `o` as the last operation before `state`, which has this closure and holds `bytes`.
  [[nodiscard]] move judge(const bit_words& state, const bit_words& closure, std::uint32_t o,
                           std::int64_t bytes) const {
    move m;
    m.operation = o;
    std::int64_t opened = 0, closed = 0;
    m.first = true;
    for (std::size_t w = 0; w < operation_words_ && m.first; ++w) m.first = (closure[w] & readers_[o][w]) == 0;
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
      if (!test_bit(state, own)) return m;  // its contribution is placed already
      bool alone = true;
      for (const std::uint32_t p : s_.producers[t]) alone = alone && (p == o || !test_bit(closure, p));
      if (alone) closed += s_.bytes[t];
    }
    m.possible = true;
    m.opened = opened - closed;
    m.legal = m.running <= budget_;
    m.forced = m.forced && m.legal && m.opened <= 0;
    return m;
  }

  /// Places `o` before `state`.
  void place(bit_words& state, std::uint32_t o) const {
    for (const std::uint32_t t : s_.outputs[o])
      if (first_bit_[t] != none) clear_bit(state, write_bit(o, t));
    if (effect_bit_[o] != none) clear_bit(state, effect_bit_[o]);
    for (const std::uint32_t t : s_.inputs[o])
      if (num_open(state, t) == 0) open_writes(state, t);
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

 private:
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
      if (bit_tensor_[b] != none && num_producers(bit_tensor_[b]) > 1) set_bit(shared_bits_, b);
  }

  /// Collects the ancestors of each needed operation, itself included, and the readers of its outputs.
  void collect_ancestors() {
    const std::uint32_t n = s_.num_operations;
    operation_words_ = (n + 63) / 64;
    ancestors_.assign(n, {});
    readers_.assign(n, {});
    for (std::uint32_t o = 0; o < n; ++o) {
      if (!s_.needed[o]) continue;
      ancestors_[o].assign(operation_words_, 0);
      readers_[o].assign(operation_words_, 0);
      set_bit(ancestors_[o], o);
      for (const std::uint32_t t : s_.inputs[o])
        for (const std::uint32_t p : s_.producers[t]) {
          unite(ancestors_[o], ancestors_[p]);
          set_bit(readers_[p], o);
        }
    }
    byte_time_.assign(operation_words_ * 8 * 256, 0.0);
    for (std::size_t b = 0; b < operation_words_ * 8; ++b)
      for (std::size_t v = 1; v < 256; ++v) {
        const std::size_t top = static_cast<std::size_t>(std::bit_width(v)) - 1, o = b * 8 + top;
        byte_time_[b * 256 + v] =
            byte_time_[b * 256 + (v ^ (std::size_t{1} << top))] + (o < n && s_.needed[o] ? s_.time[o] : 0.0);
      }
  }

  const flat_graph& s_;
  std::int64_t budget_;
  std::vector<std::uint32_t> first_bit_, effect_bit_, effects_;
  std::vector<std::uint32_t> bit_operation_, bit_tensor_;
  std::size_t key_words_ = 1, operation_words_ = 0;
  std::vector<bit_words> ancestors_, readers_;
  std::vector<double> byte_time_;
  bit_words shared_bits_;  // writes of tensors with several producers
};

/// A* from the end of a schedule to its beginning: the states, and the rules by which one leads to others. See
/// `exact_solver`, whose rules these are. A state is the set of writes that are still to be made (`write_sets`).
class backward_states {
 public:
  using entry = open_states::entry;

  /// `g` must outlive the object. Schedules that take `limit` or more are not looked for.
  backward_states(const flat_graph& g, std::int64_t budget, double limit)
      : s_(g), budget_(budget), sets_(g, budget), limit_(limit) {
    round_times();
    collect_wakes();
    if (limit_ <= most_time()) return;
    limit_ = most_time();
    is_limited_ = true;
  }
  backward_states(const backward_states&) = delete;
  backward_states& operator=(const backward_states&) = delete;

  [[nodiscard]] const write_sets& sets() const noexcept { return sets_; }

  /// Begins at the end `state`, before which at least `remaining` is spent.
  void begin(const bit_words& state, double remaining) {
    table_ = state_table(sets_.key_words());
    const std::uint32_t root = table_.insert(state);
    sets_.close(state, closure_);
    table_[root].remaining = remaining;
    table_[root].closure = number_of(closure_);
    asleep_.assign(sets_.operation_words(), 0);
    push(root);
  }

  /// The number of states that are known, which are numbered from 0.
  [[nodiscard]] std::size_t size() const noexcept { return table_.size(); }
  [[nodiscard]] const state_table::node& operator[](std::uint32_t i) const noexcept { return table_[i]; }
  /// Writes state `i` to `into`.
  void load(std::uint32_t i, bit_words& into) const { into.assign(table_.key(i), table_.key(i) + sets_.key_words()); }

  /// Schedules that take so long are not looked for.
  [[nodiscard]] double limit() const noexcept { return limit_; }
  /// True if no schedule is left out because times would overflow.
  [[nodiscard]] bool is_exhaustive() const noexcept { return !has_left_out_; }
  /// True if the limit is the longest time that can be added up, not the caller's.
  [[nodiscard]] bool is_limited() const noexcept { return is_limited_; }

  /// Takes the state with the least total. Nothing if none is left.
  [[nodiscard]] std::optional<entry> next() {
    while (!open_.empty()) {
      const entry top = open_.pop();
      const state_table::node& x = table_[top.state];
      if (x.done == 0 && top.total == total_of(x)) return top;
    }
    return std::nullopt;
  }

  /// Notes that the bound of state `i`, which was taken, has been worked on: it is now `remaining`. If it has risen,
  /// the state waits again, and the function returns true.
  bool raise(std::uint32_t i, double remaining) {
    state_table::node& x = table_[i];
    x.cut = 1;
    if (remaining <= x.remaining) return false;
    x.remaining = remaining;
    push(i);
    return true;
  }

  /// Adds the states to which `state`, that of number `i`, leads. `rules` has
  ///
  /// - `least_time_before(state, closure, from, o)`: a proven lower bound on the time of all that runs before a state
  ///   to which `o` leads from a state with the bound `from`;
  /// - `may_run(o)`: whether `o` may run at all;
  /// - `must_run(state, o)`: whether every schedule runs `o` before a state, in which a write of it is open.
  template <class Rules>
  void expand(std::uint32_t i, const bit_words& state, Rules&& rules) {
    table_[i].done = 1;
    const auto asleep = asleep_.begin() + static_cast<std::ptrdiff_t>(i * sets_.operation_words());
    sleepers_.assign(asleep, asleep + static_cast<std::ptrdiff_t>(sets_.operation_words()));
    sets_.close(state, closure_);
    const std::int64_t bytes = sets_.open_bytes(state);
    moves_.clear();
    seen_.assign(sets_.operation_words(), 0);
    for_each_bit(state, [&](std::uint32_t b) {
      const std::uint32_t o = sets_.bit_operation(b);
      if (test_bit(seen_, o)) return;
      set_bit(seen_, o);
      if (!rules.may_run(o)) return;
      write_sets::move m = sets_.judge(state, closure_, o, bytes);
      m.forced = m.forced && rules.must_run(state, o);
      if (m.possible) moves_.push_back(m);
    });
    std::sort(moves_.begin(), moves_.end());
    for (std::size_t n = 0; n < moves_.size(); ++n) {
      const write_sets::move& m = moves_[n];
      if (m.legal && !test_bit(sleepers_, m.operation)) try_move(i, state, n, rules);
      if (m.forced) break;
    }
  }

  /// The operations from state `i` to the end.
  [[nodiscard]] std::vector<std::uint32_t> operations_from(std::uint32_t i) const {
    std::vector<std::uint32_t> order;
    for (; table_[i].parent != none; i = table_[i].parent) order.push_back(table_[i].operation);
    return order;
  }

 private:
  static constexpr std::uint32_t none = write_sets::none;
  static constexpr std::uint32_t max_looks = 64;  // most looks at states of one closure for dominance

  /// Rounds the times that are spent down to whole units of 2^−52 to 2^−51 of the needed time. So their sums are exact
  /// as long as they are below `most_time()`, and do not depend on the order of moves.
  void round_times() {
    int exponent = 0;
    std::frexp(s_.needed_time, &exponent);  // needed_time < 2^exponent
    unit_exponent_ = exponent - 52;
    taken_.assign(s_.num_operations, 0);
    for (std::uint32_t o = 0; o < s_.num_operations; ++o)
      if (s_.needed[o]) taken_[o] = static_cast<std::int64_t>(std::ldexp(s_.time[o], -unit_exponent_));
  }
  /// No sum of times that is at most this can overflow: a thousand times the needed time or more.
  [[nodiscard]] double most_time() const {
    return s_.needed_time > 0 ? std::ldexp(1.0, 62 + unit_exponent_) : std::numeric_limits<double>::infinity();
  }
  /// True if schedules that end in this way are not looked for.
  bool is_too_slow(double total) {
    if (total < limit_) return false;
    has_left_out_ = has_left_out_ || (is_limited_ && total < std::numeric_limits<double>::infinity());
    return true;
  }
  [[nodiscard]] double time_of(std::int64_t units) const {
    return std::ldexp(static_cast<double>(units), unit_exponent_);
  }
  /// The least time of a schedule that ends with state `x`, as far as is known.
  [[nodiscard]] double total_of(const state_table::node& x) const { return time_of(x.spent) + x.remaining; }

  /// The operations that each needed one wakes, since they cannot come behind it as well (rule 6).
  void collect_wakes() {
    const std::uint32_t n = s_.num_operations;
    wakes_.assign(n, {});
    for (std::uint32_t o = 0; o < n; ++o)
      if (s_.needed[o]) wakes_[o].assign(sets_.operation_words(), 0);
    const auto wake = [&](const auto& operations, std::uint32_t sleeper) {
      for (const std::uint32_t o : operations)
        if (s_.needed[o]) set_bit(wakes_[o], sleeper);
    };
    for (std::uint32_t o = 0; o < n; ++o) {
      if (!s_.needed[o]) continue;
      for (const std::uint32_t t : s_.outputs[o]) {
        wake(s_.consumers[t], o);
        wake(s_.producers[t], o);
      }
      for (const std::uint32_t t : s_.inputs[o])
        if (sets_.num_producers(t) > 1) wake(s_.producers[t], o);
    }
  }

  void push(std::uint32_t i) {
    const state_table::node& x = table_[i];
    const double total = total_of(x);
    if (!is_too_slow(total)) open_.push({total, time_of(x.spent), i});
  }

  /// Tries move `n` of `moves_` before `state`, that of number `i`.
  template <class Rules>
  void try_move(std::uint32_t i, const bit_words& state, std::size_t n, Rules& rules) {
    const std::uint32_t o = moves_[n].operation;
    child_ = state;
    sets_.place(child_, o);
    sets_.close(child_, child_closure_);
    if (s_.once[o] && test_bit(child_closure_, o)) return;  // it would run twice
    const std::int64_t spent = table_[i].spent + taken_[o];
    const double remaining = rules.least_time_before(child_, child_closure_, table_[i].remaining, o);
    if (is_too_slow(time_of(spent) + remaining)) return;
    find_sleepers(n);
    const std::uint32_t known = table_.find(child_);
    if (known != none && table_[known].spent <= spent) {
      meet_again(known, spent, remaining);
      return;
    }
    const std::uint32_t closure = number_of(child_closure_);
    if (is_dominated(child_, spent, closure)) return;
    const std::uint32_t j = known != none ? known : table_.insert(child_);
    if (known == none) asleep_.resize(asleep_.size() + sets_.operation_words());
    std::copy(child_sleepers_.begin(), child_sleepers_.end(),
              asleep_.begin() + static_cast<std::ptrdiff_t>(j * sets_.operation_words()));
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
  void meet_again(std::uint32_t i, std::int64_t spent, double remaining) {
    state_table::node& x = table_[i];
    bool woken = false;
    if (spent == x.spent)
      for (std::size_t w = 0; w < sets_.operation_words(); ++w) {
        std::uint64_t& asleep = asleep_[i * sets_.operation_words() + w];
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
    child_sleepers_.assign(sets_.operation_words(), 0);
    const write_sets::move& m = moves_[n];
    for (std::size_t k = 0; k < moves_.size(); ++k) {
      const write_sets::move& x = moves_[k];
      if (k == n || !(test_bit(sleepers_, x.operation) || (k < n && x.legal))) continue;
      if (s_.once[x.operation] || test_bit(wakes_[m.operation], x.operation)) continue;
      if (m.running + x.opened <= budget_) set_bit(child_sleepers_, x.operation);
    }
  }

  /// True if one of the states of this closure that were met last dominates `state`: rule 7.
  [[nodiscard]] bool is_dominated(const bit_words& state, std::int64_t spent, std::uint32_t closure) {
    std::uint32_t looks = 0;
    for (std::uint32_t i = first_of_closure_[closure]; i != none && looks < max_looks; i = table_[i].next, ++looks)
      if (table_[i].spent < spent && sets_.needs_less(table_.key(i), state.data())) return true;
    return false;
  }

  /// Drops states that `j` dominates, which becomes the first of its closure.
  void drop_dominated(std::uint32_t j) {
    std::uint32_t& first = first_of_closure_[table_[j].closure];
    if (!table_[j].listed) {
      table_[j].listed = 1;
      table_[j].next = first;
      first = j;
    }
    std::uint32_t* link = &first;
    for (std::uint32_t looks = 0; *link != none && looks < max_looks; ++looks) {
      state_table::node& x = table_[*link];
      if (x.spent > table_[j].spent && sets_.needs_less(table_.key(j), table_.key(*link))) {
        x.done = 1;
        x.listed = 0;
        *link = x.next;
      } else {
        link = &x.next;
      }
    }
  }

  /// The number of a closure, counted from 0. A collision of hashes only makes what is known of a closure less
  /// useful.
  std::uint32_t number_of(const bit_words& closure) {
    const auto [at, fresh] =
        closure_numbers_.try_emplace(hash_words(closure), static_cast<std::uint32_t>(first_of_closure_.size()));
    if (fresh) first_of_closure_.push_back(none);
    return at->second;
  }

  const flat_graph& s_;
  std::int64_t budget_;
  write_sets sets_;
  double limit_;
  bool is_limited_ = false;    // `most_time()` is the limit, not the caller's
  bool has_left_out_ = false;  // some schedule may be slower than that
  state_table table_;
  open_states open_;
  std::vector<bit_words> wakes_;
  std::vector<std::uint64_t> asleep_;                                 // operations, of each state: rule 6
  std::vector<std::uint32_t> first_of_closure_;                       // each closure's list; states met last come first
  std::unordered_map<std::uint64_t, std::uint32_t> closure_numbers_;  // numbers of closures, by hash
  std::vector<std::int64_t> taken_;                                   // each operation's time, in units
  int unit_exponent_ = 0;                                             // a unit is 2^unit_exponent_
  // Members of the state that is expanded, and of the one that it leads to.
  bit_words closure_, seen_, sleepers_, child_, child_closure_, child_sleepers_;
  std::vector<write_sets::move> moves_;
};

}  // namespace REMAT_NAMESPACE::detail
