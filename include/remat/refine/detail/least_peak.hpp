// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

/// \file
/// Orders of least peak memory in which every operation runs once: for a whole problem (`least_peak_order`), and for
/// the few operations of one stage of a chain (`operation_sequence`). Both use one engine: list schedules under several
/// rules, and an exact search over the sets of operations that may have run.

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

/// Options of `least_peak_order`.
struct least_peak_options {
  std::uint64_t moves = 20'000;  ///< moves of the local search; each costs O(operations + reads and writes)
  /// The exact search is tried for at most this many needed operations, at most 64.
  std::uint32_t exact_operations = 64;
  std::size_t exact_states = 100'000;  ///< the exact search gives up beyond this many sets of operations
  run_control run{};                   ///< Limits, seed, progress; `threads` is not used.
};

/// An order that runs every needed operation once.
struct least_peak_order_result {
  std::vector<std::uint32_t> operations;  ///< the needed operations, in order
  std::int64_t peak_bytes = 0;            ///< the peak of that order
  bool proven = false;                    ///< no order of the needed operations, each once, has a lower peak
  std::uint64_t work = 0;                 ///< the work that was counted
};

/// Finds an order of the needed operations, each once, with a low peak: never above the peak of the listed order.
///
/// The search makes list schedules from the start and from the end under several rules, then searches the sets of
/// operations that may have run (exact, for few operations), then moves single operations across the peak (local
/// search). It ends as soon as the peak meets `largest_working_set`, a lower bound. O(n · ready operations + moves · n)
/// time for n reads and writes. Polls at every placed operation, every expanded set (each `work_of::visit`), and every
/// 16 moves (each four of them). A seed and a work limit determine the order.
[[nodiscard]] least_peak_order_result least_peak_order(const problem& p, const least_peak_options& options = {});

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
inline std::vector<std::uint32_t> list_schedule(const operation_sequence& s, const precedence& dag, list_rule rule,
                                                direction way, run_clock* clock) {
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
    if (!clock) continue;
    clock->work();
    if (clock->should_stop()) return {};
  }
  if (backward) std::reverse(order.begin(), order.end());
  return order;
}

/// Finds an order of least peak by a search over *ideals*: the sets of operations that may have run. It expands the
/// ideal of the least peak so far first: a bottleneck shortest path. Precondition: at most 64 operations.
class ideal_search {
 public:
  /// `bound`: a lower bound on the peak of every order.
  ideal_search(const operation_sequence& s, const precedence& dag, std::int64_t bound)
      : s_(s), bound_(bound), before_(s.size(), 0), touchers_(s.tensors().size(), 0) {
    for (std::uint32_t i = 0; i < s.size(); ++i) {
      for (const std::uint32_t j : dag.before(i)) before_[i] |= ideal{1} << j;
      for (const auto& k : s.touches(i)) touchers_[k.tensor] |= ideal{1} << i;
    }
  }

  /// Returns whether the search came to an end: then `order`, of peak `peak`, has the least peak. It changes both only
  /// if it finds a lower peak. It gives up beyond `max_states` ideals, and when the clock (if there is one) says so.
  bool run(std::vector<std::uint32_t>& order, std::int64_t& peak, std::size_t max_states, run_clock* clock) {
    const ideal all = s_.size() == 64 ? ~ideal{0} : (ideal{1} << s_.size()) - 1;
    found_[0] = {s_.standing(), s_.standing(), 0, false};
    queue_.push({s_.standing(), 0, 0});
    while (!queue_.empty()) {
      const entry e = queue_.top();
      queue_.pop();
      reached& here = found_.at(e.x);
      if (here.done || e.peak > here.peak) continue;
      here.done = true;
      if (e.x == all) {
        trace(all, order);
        peak = e.peak;
        return true;
      }
      if (clock) clock->work();
      if ((clock && clock->should_stop()) || found_.size() > max_states) return false;
      expand(e, here.bytes, peak);
    }
    return true;  // no order has a peak below `peak`
  }

 private:
  using ideal = std::uint64_t;
  struct reached {
    std::int64_t peak;
    std::int64_t bytes;  // bytes in use after the ideal has run; they depend on the ideal alone
    std::uint32_t last;
    bool done;
  };
  struct entry {
    std::int64_t peak;
    int size;
    ideal x;
    // The larger ideal comes first among equal peaks: it is nearer to the end.
    bool operator<(const entry& b) const {
      return peak != b.peak ? peak > b.peak : size != b.size ? size < b.size : x < b.x;
    }
  };

  void expand(const entry& e, std::int64_t bytes, std::int64_t least) {
    for (std::uint32_t i = 0; i < s_.size(); ++i) {
      const ideal me = ideal{1} << i;
      if ((e.x & me) != 0 || (before_[i] & ~e.x) != 0) continue;
      std::int64_t during = bytes, closed = 0;
      for (const auto& k : s_.touches(i)) {
        const operation_sequence::tensor& t = s_.tensors()[k.tensor];
        if (!t.resident_before && (touchers_[k.tensor] & e.x) == 0) during += t.bytes;
        if (!t.resident_after && (touchers_[k.tensor] & ~(e.x | me)) == 0) closed += t.bytes;
      }
      const std::int64_t peak = std::max({e.peak, during + s_.own(i), bound_});
      if (peak >= least) continue;
      const auto [place, is_new] = found_.try_emplace(e.x | me, reached{peak, during - closed, i, false});
      if (!is_new) {
        if (place->second.peak <= peak) continue;
        place->second.peak = peak;
        place->second.last = i;
      }
      queue_.push({peak, e.size + 1, e.x | me});
    }
  }

  void trace(ideal x, std::vector<std::uint32_t>& order) const {
    order.clear();
    for (; x != 0; x &= ~(ideal{1} << order.back())) order.push_back(found_.at(x).last);
    std::reverse(order.begin(), order.end());
  }

  const operation_sequence& s_;
  std::int64_t bound_;
  std::vector<ideal> before_;    // the operations that each operation needs before it
  std::vector<ideal> touchers_;  // the operations that touch each tensor
  std::unordered_map<ideal, reached> found_;
  std::priority_queue<entry> queue_;
};

/// Moves single operations, from before the peak to behind it and the reverse, and keeps a move unless the peak rises.
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

/// The needed operations of a problem, in the listed order. A tensor that nobody reads occupies memory only while the
/// operation that writes it runs.
inline operation_sequence needed_sequence(const flat_graph& g, std::vector<std::uint32_t>& operations) {
  std::vector<std::uint8_t> wanted(g.final_output);
  operations.reserve(g.num_operations);
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o]) continue;
    operations.push_back(o);
    for (const std::uint32_t t : g.inputs[o]) wanted[t] = 1;
  }
  constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> number(g.num_tensors, none);
  operation_sequence sequence;
  sequence.reset(0);
  const auto touch = [&](std::uint32_t t, bool writes) {
    if (number[t] == none) number[t] = sequence.add_tensor(g.bytes[t], false, g.final_output[t] != 0);
    sequence.touch(number[t], writes);
  };
  for (const std::uint32_t o : operations) {
    std::int64_t own = g.workspace[o];
    for (const std::uint32_t t : g.outputs[o])
      if (!wanted[t]) own += g.bytes[t];
    sequence.add_operation(own);
    for (const std::uint32_t t : g.inputs[o]) touch(t, false);
    for (const std::uint32_t t : g.outputs[o])
      if (wanted[t]) touch(t, true);
  }
  return sequence;
}

/// The search of `least_peak_order` on a problem.
class problem_order_search {
 public:
  problem_order_search(const problem& p, const least_peak_options& options)
      : p_(p),
        options_(options),
        clock_(options.run),
        sequence_(needed_sequence(p.graph(), operations_)),
        dag_(sequence_),
        bound_(largest_working_set(p).bytes),
        order_(operations_.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
    peak_ = sequence_.peak(order_);
  }

  /// Called once.
  least_peak_order_result run() {
    make_list_schedules();
    bool proven = peak_ <= bound_;
    if (!proven && sequence_.size() <= std::min(options_.exact_operations, operation_sequence::longest_exact) &&
        !clock_.should_stop()) {
      proven = ideal_search(sequence_, dag_, bound_).run(order_, peak_, options_.exact_states, &clock_);
      report("exact order");
    }
    if (!proven && sequence_.size() > 1) {
      move_operations();
      proven = peak_ <= bound_;
    }
    for (std::uint32_t& i : order_) i = operations_[i];
    return {std::move(order_), peak_, proven, clock_.work_done()};
  }

 private:
  void make_list_schedules() {
    for (const direction way : {direction::forward, direction::backward})
      for (const list_rule rule :
           {list_rule::least_after, list_rule::least_during, list_rule::no_new_peak, list_rule::free_early}) {
        if (peak_ <= bound_ || clock_.should_stop()) return;
        std::vector<std::uint32_t> trial = list_schedule(sequence_, dag_, rule, way, &clock_);
        if (trial.size() != order_.size()) continue;
        const std::int64_t trial_peak = sequence_.peak(trial);
        if (trial_peak < peak_) {
          peak_ = trial_peak;
          order_.swap(trial);
        }
        report("list schedules");
      }
  }

  void move_operations() {
    local_search search(sequence_, dag_, order_, options_.run.seed);
    for (std::uint64_t m = 0; m < options_.moves && search.peak() > bound_; ++m) {
      if ((m & 15U) == 0 && clock_.should_stop()) break;
      clock_.work(4 * work_of::visit);
      if (!search.move()) continue;
      peak_ = search.peak();
      report("local search");
    }
  }

  void report(std::string_view stage) {
    const double time = p_.graph().needed_time;
    progress news{.solver = "no_remat", .stage = stage, .lower_bound = time, .done = clock_.work_done()};
    if (peak_ <= p_.budget()) news.best_objective = time;
    clock_.report(news);
  }

  const problem& p_;
  const least_peak_options& options_;
  run_clock clock_;
  std::vector<std::uint32_t> operations_;  // number in the sequence → operation of the graph
  operation_sequence sequence_;
  precedence dag_;
  std::int64_t bound_;
  std::vector<std::uint32_t> order_;
  std::int64_t peak_ = 0;
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

inline std::vector<std::uint32_t> operation_sequence::least_peak_order(std::size_t max_states) const {
  std::vector<std::uint32_t> order(size());
  std::iota(order.begin(), order.end(), 0U);
  std::int64_t best = peak(order);
  const std::int64_t bound = peak_bound();
  if (size() < 2 || size() >= longest || best <= bound) return order;
  const least_peak::precedence dag(*this);
  if (size() <= longest_exact && least_peak::ideal_search(*this, dag, bound).run(order, best, max_states, nullptr))
    return order;
  for (const auto rule : {least_peak::list_rule::no_new_peak, least_peak::list_rule::least_after}) {
    std::vector<std::uint32_t> trial =
        least_peak::list_schedule(*this, dag, rule, least_peak::direction::forward, nullptr);
    const std::int64_t trial_peak = peak(trial);
    if (trial_peak >= best) continue;
    best = trial_peak;
    order.swap(trial);
    if (best <= bound) break;
  }
  return order;
}

inline least_peak_order_result least_peak_order(const problem& p, const least_peak_options& options) {
  return least_peak::problem_order_search(p, options).run();
}

}  // namespace REMAT_NAMESPACE::detail
