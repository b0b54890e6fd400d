// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "remat/bound/detail/offload_cut.hpp"
#include "remat/bound/offload.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/copy_floor.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/impl/exact_search.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/backward_states.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace remat::test {

using namespace remat::detail;  // NOLINT: the search was a part of the library

/// A* backwards over schedules with copies: see `exact_solver`; the rules and their proofs are in docs/bounds.md,
/// section 11.
///
/// A *label* is the end of a schedule: what it needs at its beginning (its *key*), and its *tails*. Every step makes
/// times by maxima and sums, which are rounded down. So the whole schedule ends at the greatest of some sums: the time
/// when an engine is through with what is listed before, plus the tail of the engine; and the end of a tensor's copy in
/// or out before, plus a tail for that tensor.
class copying_search : private write_sets, public exact_solve::search_end {
 public:
  copying_search(const problem& p, std::uint64_t max_labels, double incumbent)
      : write_sets(p.graph(), p.budget()),
        search_end(p.graph().num_operations),
        s_(p.graph()),
        budget_(p.budget()),
        limit_(incumbent),
        problem_(p),
        host_budget_(p.host_budget()),
        has_host_limit_(p.host_budget() != problem::unlimited),
        max_labels_(max_labels),
        sub_(p.graph()),
        cut_(sub_, *p.link()) {
    number_tensors();
    tensor_words_ = (tensors_.size() + 63) / 64;
    keys_ = state_table(key_words() + 4 * tensor_words_ + 1);
    sets_ = state_table(key_words() + tensor_words_);
  }

  /// Searches until it finds the least time below the incumbent's, proves that none exists, or reaches a limit.
  /// `at_least` is a proven lower bound of the whole problem.
  stop_reason run(run_clock& clock, double at_least) {
    bound_ = at_least;
    point& root = child_;
    root.device.assign(key_words(), 0);
    for (bit_words* b : {&root.on_host, &root.dropped, &root.copied, &root.may_hold}) b->assign(tensor_words_, 0);
    for (const std::uint32_t t : s_.final_outputs) open_writes(root.device, t);
    open_effects(root.device);
    for (std::vector<double>* tails : {&root.coming, &root.leaving}) tails->assign(tensors_.size(), 0);
    emit(none, at_least, step::compute(op_id{}));
    while (!open_.empty()) {
      const open_states::entry top = open_.pop();
      label& x = labels_[top.state];
      if (x.dropped || top.total != x.bound) continue;
      bound_ = std::max(bound_, std::min(top.total, limit_));
      if (top.total >= limit_) break;
      if (const stop_reason r = clock.poll(); r != stop_reason::none) return r;
      clock.report({.stage = "search", .lower_bound = bound_, .done = labels_.size(), .total = max_labels_});
      if (labels_.size() >= max_labels_ || memory() >= max_labels_ * bytes_of_label) return stop_reason::work;
      if (is_goal(x)) {
        goal_ = top.state;
        complete_ = true;
        return stop_reason::none;
      }
      if (!x.cut && raise(x, clock)) {
        push(top.state);
        continue;
      }
      clock.work(s_.num_operations * work_of::visit);
      ++expanded_;
      expand(top.state);
    }
    complete_ = true;
    bound_ = limit_;
    return stop_reason::none;
  }

  [[nodiscard]] std::size_t states() const noexcept { return labels_.size(); }

  /// The schedule of the goal: its steps, and the frees that are not moves.
  [[nodiscard]] schedule schedule_found() const {
    schedule plan;
    bit_words device(key_words());
    for (std::uint32_t i = goal_; labels_[i].parent != none; i = labels_[i].parent) {
      const step x = labels_[i].last;
      plan.steps.push_back(x);
      if (!x.is_compute()) continue;
      const std::uint64_t* after = keys_.key(labels_[labels_[i].parent].key);
      std::copy(after, after + key_words(), device.begin());
      const auto o = static_cast<std::uint32_t>(index(x.operation()));
      const auto free_unneeded = [&](const auto& row) {
        for (const std::uint32_t t : row)
          if (first_bit(t) == none || num_open(device, t) == 0) plan.free(static_cast<tensor_id>(t));
      };
      free_unneeded(s_.inputs[o]);
      free_unneeded(s_.outputs[o]);
    }
    return plan;
  }

 private:
  /// A tail that no copy in can meet, and one that is of no account.
  static constexpr double too_late = std::numeric_limits<double>::infinity(), never = -too_late;
  static constexpr std::uint32_t no_sequence = 0, drop_first = 1, offload_first = 2;

  /// The end of a schedule, unpacked. Sets of tensors are by number.
  struct point {
    bit_words device;    // open writes, and effects: what has to be on the device
    bit_words on_host;   // tensors that have to be on the host
    bit_words dropped;   // with a limit on the host: tensors that are dropped, and have still to be copied back before
    bit_words copied;    // tensors that are copied out later
    bit_words may_hold;  // tensors on the host that may be freed right here
    std::uint32_t prefetched = none;       // the first compute or prefetch is the prefetch of this tensor
    std::uint32_t sequence = no_sequence;  // the first offload or drop before it; an offload: plus the tensor's number
    double compute = 0, out = 0, in = 0;   // tails of the engines
    std::int64_t host_peak = 0;
    std::vector<double> coming, leaving;  // tails of the tensors' copies; as the engine's where not greater
  };
  /// A point, packed.
  struct label {
    std::uint32_t key = none, parent = none;
    std::uint32_t next = none;  // of the same key
    step last = step::compute(op_id{});
    double compute = 0, out = 0, in = 0, bound = 0;
    std::int64_t host_peak = 0;
    std::size_t tails = 0;  // where its tails begin
    bool cut = false, dropped = false;
  };
  /// A moment with its multipliers.
  struct anchor {
    std::uint32_t moment;
    offload_multipliers multipliers;
    double value = 0;
  };
  /// Bounds of all labels with the same needs: value + after × (tail of computes) + in × (tail of copies in).
  struct moment_value {
    double value, after, in;
  };
  static constexpr std::size_t most_anchors = 24, kept_anchors = 2;
  static constexpr std::size_t expanded_before_cuts = 300;    // so that tiny problems take no flows
  static constexpr std::uint32_t most_for_all_moments = 150;  // operations
  static constexpr std::uint64_t bytes_of_label = 512;        // on average, at most

  /// Numbers the tensors that may be copied, and finds when each can be whole.
  void number_tensors() {
    const host_link& link = *problem_.link();
    number_.assign(s_.num_tensors, none);
    for (std::uint32_t t = 0; t < s_.num_tensors; ++t) {
      // Of no bytes: it is kept, unless further runs would add to it twice.
      if (first_bit(t) == none || num_producers(t) == 0 || (s_.bytes[t] == 0 && num_producers(t) == 1)) continue;
      number_[t] = static_cast<std::uint32_t>(tensors_.size());
      tensors_.push_back(t);
      time_out_.push_back(link.time_out(s_.bytes[t]));
      time_in_.push_back(link.time_in(s_.bytes[t]));
      bit_words before(operation_words(), 0);
      for (const std::uint32_t o : s_.producers[t]) unite(before, ancestors(o));
      release_.push_back(below(closure_time(before)));
    }
  }

  [[nodiscard]] bool writes(std::uint32_t o, std::uint32_t t) const {
    const auto row = s_.outputs[o];
    return std::binary_search(row.begin(), row.end(), t);
  }
  [[nodiscard]] bool is_whole(const bit_words& device, std::uint32_t t) const {
    return num_open(device, t) == num_producers(t);
  }
  /// What must run before `x`: also the producers of what has to be on the host.
  void close_point(const bit_words& device, const bit_words& on_host, bit_words& into) const {
    close(device, into);
    for_each_bit(on_host, [&](std::uint32_t i) {
      for (const std::uint32_t o : s_.producers[tensors_[i]]) unite(into, ancestors(o));
    });
  }
  [[nodiscard]] std::int64_t host_bytes(const point& x) const {
    std::int64_t sum = 0;
    for_each_bit(x.on_host, [&](std::uint32_t i) { sum += s_.bytes[tensors_[i]]; });
    for_each_bit(x.dropped, [&](std::uint32_t i) { sum += s_.bytes[tensors_[i]]; });
    return sum;
  }

  /// Bytes of all labels and keys.
  [[nodiscard]] std::uint64_t memory() const noexcept {
    const std::size_t words = key_words() + 4 * tensor_words_ + 1;
    return labels_.size() * sizeof(label) + tails_.size() * sizeof(double) +
           keys_.size() * (words * sizeof(std::uint64_t) + sizeof(state_table::node));
  }
  [[nodiscard]] bool is_goal(const label& x) const {
    const std::uint64_t* key = keys_.key(x.key);
    return std::all_of(key, key + key_words() + 2 * tensor_words_, [](std::uint64_t w) { return w == 0; });
  }

  void push(std::uint32_t i) {
    const label& x = labels_[i];
    if (x.bound >= limit_) return;
    open_.push({x.bound, x.compute, i});
  }

  void pack_key(const point& x, std::vector<std::uint64_t>& key) const {
    key.assign(x.device.begin(), x.device.end());
    for (const bit_words* b : {&x.on_host, &x.dropped, &x.copied, &x.may_hold})
      key.insert(key.end(), b->begin(), b->end());
    key.push_back(std::uint64_t{x.prefetched} << 32 | x.sequence);
  }
  void pack_tails(const point& x, std::vector<double>& tails) const {
    tails.clear();
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      const bool on_device = num_open(x.device, tensors_[i]) > 0, on_host = test_bit(x.on_host, i);
      if (on_device) tails.push_back(x.coming[i]);
      if (on_device && on_host) tails.push_back(x.leaving[i]);
    }
  }
  void unpack(std::uint32_t id, point& x) const {
    const label& from = labels_[id];
    const std::uint64_t* key = keys_.key(from.key);
    x.device.assign(key, key + key_words());
    key += key_words();
    for (bit_words* b : {&x.on_host, &x.dropped, &x.copied, &x.may_hold}) {
      b->assign(key, key + tensor_words_);
      key += tensor_words_;
    }
    x.prefetched = static_cast<std::uint32_t>(*key >> 32);
    x.sequence = static_cast<std::uint32_t>(*key);
    x.compute = from.compute;
    x.out = from.out;
    x.in = from.in;
    x.host_peak = from.host_peak;
    std::size_t at = from.tails;
    x.coming.assign(tensors_.size(), x.in);
    x.leaving.assign(tensors_.size(), x.out);
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      const bool on_device = num_open(x.device, tensors_[i]) > 0, on_host = test_bit(x.on_host, i);
      if (on_device) x.coming[i] = tails_[at++];
      if (on_device && on_host) x.leaving[i] = tails_[at++];
    }
  }

  /// Brings the tails of `x` to the form in which equal ones are equal.
  void normalize(point& x) const {
    x.compute = std::max({x.compute, x.out, x.in});
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      // With a copy in of it, no schedule is faster than the incumbent.
      if (release_[i] + time_out_[i] + time_in_[i] + std::max(x.in, x.coming[i]) >= limit_) x.coming[i] = too_late;
      // It is not on the host before it is copied out.
      if (!has_host_limit_ && test_bit(x.copied, i) && !test_bit(x.on_host, i)) x.coming[i] = never;
      x.coming[i] = std::max(x.coming[i], x.in);
      x.leaving[i] = std::max(x.leaving[i], x.out);
    }
  }

  /// A lower bound on the time of every schedule that ends with `x`, without a flow.
  double quick_bound(const point& x) {
    double bound = x.compute + closure_time(child_closure_);
    order_.clear();
    for_each_bit(x.on_host, [&](std::uint32_t i) {
      // What is listed here or later waits with the free of the tensor for its copy out.
      order_.push_back({num_open(x.device, tensors_[i]) > 0 ? x.leaving[i] : x.compute, i});
    });
    std::sort(order_.begin(), order_.end(), std::greater<>());
    double release = std::numeric_limits<double>::infinity(), copies = 0;
    for (const auto& [tail, i] : order_) {
      release = std::min(release, release_[i]);
      copies = sum_below(copies, time_out_[i]);
      bound = std::max(bound, release + copies + tail);
    }
    return bound;
  }

  /// Keeps `child_`, reached from label `parent` by `last`, unless it cannot beat the incumbent or another label
  /// dominates it.
  void emit(std::uint32_t parent, double at_least, step last) {
    normalize(child_);
    close_point(child_.device, child_.on_host, child_closure_);
    if (last.is_compute() && parent != none) {
      const std::size_t o = index(last.operation());
      if (s_.once[o] && test_bit(child_closure_, static_cast<std::uint32_t>(o))) return;  // it would run twice
    }
    const double bound = std::max(at_least, quick_bound(child_));
    if (bound >= limit_) return;
    pack_key(child_, work_);
    pack_tails(child_, packed_);
    std::uint32_t k = keys_.find(work_);
    if (k == none) {
      k = keys_.insert(work_);
      first_label_.push_back(none);
    }
    const auto no_later = [&](const label& a, const double* of_a, const label& b, const double* of_b) {
      if (a.compute > b.compute || a.out > b.out || a.in > b.in || a.host_peak > b.host_peak) return false;
      for (std::size_t i = 0; i < packed_.size(); ++i)
        if (of_a[i] > of_b[i]) return false;
      return true;
    };
    label fresh;
    fresh.key = k;
    fresh.parent = parent;
    fresh.last = last;
    fresh.compute = child_.compute;
    fresh.out = child_.out;
    fresh.in = child_.in;
    fresh.bound = bound;
    fresh.host_peak = child_.host_peak;
    for (std::uint32_t i = first_label_[k]; i != none; i = labels_[i].next)
      if (no_later(labels_[i], tails_.data() + labels_[i].tails, fresh, packed_.data())) return;
    std::uint32_t* link = &first_label_[k];
    while (*link != none) {
      label& x = labels_[*link];
      if (no_later(fresh, packed_.data(), x, tails_.data() + x.tails)) {
        x.dropped = true;
        *link = x.next;
      } else {
        link = &x.next;
      }
    }
    fresh.next = first_label_[k];
    fresh.tails = tails_.size();
    tails_.insert(tails_.end(), packed_.begin(), packed_.end());
    const auto id = static_cast<std::uint32_t>(labels_.size());
    labels_.push_back(fresh);
    first_label_[k] = id;
    push(id);
  }

  void expand(std::uint32_t id) {
    unpack(id, now_);
    const double at_least = labels_[id].bound;
    close_point(now_.device, now_.on_host, closure_);
    const std::int64_t bytes = open_bytes(now_.device);
    if (now_.sequence == no_sequence) try_holds(id, at_least, bytes);
    try_offloads(id, at_least);
    if (has_host_limit_ && now_.sequence != no_sequence) try_drops(id, at_least);
    if (now_.sequence < offload_first) try_prefetches(id, at_least, bytes);
    try_computes(id, at_least, bytes);
  }

  /// `free` of tensors that are copied out before: as late as memory allows.
  void try_holds(std::uint32_t id, double at_least, std::int64_t bytes) {
    for_each_bit(now_.may_hold, [&](std::uint32_t i) {
      const std::uint32_t t = tensors_[i];
      if (bytes + s_.bytes[t] > budget_) return;
      child_ = now_;
      open_writes(child_.device, t);
      clear_bit(child_.may_hold, i);
      child_.coming[i] = child_.leaving[i] = now_.compute;
      emit(id, at_least, step::free(static_cast<tensor_id>(t)));
    });
  }

  void try_offloads(std::uint32_t id, double at_least) {
    for_each_bit(now_.on_host, [&](std::uint32_t i) {
      const std::uint32_t t = tensors_[i];
      if (!is_whole(now_.device, t)) return;
      child_ = now_;
      clear_bit(child_.on_host, i);
      if (has_host_limit_) {
        child_.host_peak = std::max(now_.host_peak, host_bytes(now_));
        if (child_.host_peak > host_budget_) return;
      }
      set_bit(child_.copied, i);
      child_.out = sum_below(std::max(now_.out, now_.leaving[i]), time_out_[i]);
      child_.compute = std::max(now_.compute, child_.out);
      child_.coming[i] = std::max(now_.coming[i], child_.out);
      child_.leaving[i] = never;
      std::fill(child_.may_hold.begin(), child_.may_hold.end(), 0);
      child_.sequence = offload_first + i;
      emit(id, at_least, step::offload(static_cast<tensor_id>(t)));
    });
  }

  void try_drops(std::uint32_t id, double at_least) {
    const std::int64_t held = host_bytes(now_);
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      if (test_bit(now_.on_host, i) || test_bit(now_.dropped, i) || held + s_.bytes[tensors_[i]] > host_budget_)
        continue;
      child_ = now_;
      set_bit(child_.dropped, i);
      child_.host_peak = std::max(now_.host_peak, held + s_.bytes[tensors_[i]]);
      if (num_open(now_.device, tensors_[i]) > 0) child_.coming[i] = std::max(now_.coming[i], now_.out);
      child_.sequence = drop_first;
      emit(id, at_least, step::drop(static_cast<tensor_id>(tensors_[i])));
    }
  }

  void try_prefetches(std::uint32_t id, double at_least, std::int64_t bytes) {
    if (bytes > budget_) return;
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      const std::uint32_t t = tensors_[i];
      if (!is_whole(now_.device, t) || now_.coming[i] == too_late) continue;
      const bool there = test_bit(now_.on_host, i);
      const bool dropped = test_bit(now_.dropped, i);
      if (!there && !dropped && test_bit(now_.copied, i)) continue;  // its copy out comes later
      child_ = now_;
      if (dropped) {
        clear_bit(child_.dropped, i);
      } else if (!there && has_host_limit_) {  // its copy stays on the host to the end
        child_.host_peak += s_.bytes[t];
        if (child_.host_peak > host_budget_) continue;
      }
      set_bit(child_.on_host, i);
      child_.in = sum_below(std::max(now_.in, now_.coming[i]), time_in_[i]);
      child_.compute = std::max(now_.compute, child_.in);
      child_.coming[i] = child_.leaving[i] = never;
      const std::uint32_t count = num_producers(t);
      for (std::uint32_t w = 0; w < count; ++w) clear_bit(child_.device, first_bit(t) + w);
      child_.prefetched = t;
      child_.sequence = no_sequence;
      allow_holds(child_, bytes, none, i);
      emit(id, at_least, step::prefetch(static_cast<tensor_id>(t)));
    }
  }

  /// Marks the tensors on the host that may be freed right before a step that takes `running` bytes: they have to go.
  void allow_holds(point& x, std::int64_t running, std::uint32_t o, std::uint32_t prefetched) const {
    std::fill(x.may_hold.begin(), x.may_hold.end(), 0);
    for_each_bit(x.on_host, [&](std::uint32_t i) {
      const std::uint32_t t = tensors_[i];
      if (i == prefetched || num_open(x.device, t) > 0) return;
      if (running + s_.bytes[t] > budget_ || (o != none && writes(o, t))) set_bit(x.may_hold, i);
    });
  }

  void try_computes(std::uint32_t id, double at_least, std::int64_t bytes) {
    seen_.assign(operation_words(), 0);
    const auto try_one = [&](std::uint32_t o) {
      if (test_bit(seen_, o)) return;
      set_bit(seen_, o);
      const move m = judge(now_.device, closure_, o, bytes);
      if (!m.possible || !m.legal) return;
      // It could have begun before this compute.
      if (now_.prefetched != none && m.running + s_.bytes[now_.prefetched] <= budget_ && !writes(o, now_.prefetched))
        return;
      child_ = now_;
      place(child_.device, o);
      const double tail = sum_below(now_.compute, s_.time[o]);
      child_.compute = tail;
      for (const std::uint32_t t : s_.inputs[o]) {
        const std::uint32_t i = number_[t];
        if (i == none) continue;
        if (num_open(now_.device, t) == 0) child_.leaving[i] = now_.compute;  // the free behind it
        child_.coming[i] = std::max(num_open(now_.device, t) == 0 ? never : now_.coming[i], tail);
      }
      for (const std::uint32_t t : s_.outputs[o])
        if (number_[t] != none) child_.coming[number_[t]] = child_.leaving[number_[t]] = never;
      child_.prefetched = none;
      child_.sequence = no_sequence;
      allow_holds(child_, m.running, o, none);
      emit(id, at_least, step::compute(static_cast<op_id>(o)));
    };
    if (now_.sequence >= offload_first) {
      const std::uint32_t t = tensors_[now_.sequence - offload_first];
      for (const std::uint32_t o : s_.producers[t])
        if (test_bit(now_.device, write_bit(o, t))) try_one(o);
      return;
    }
    for_each_bit(now_.device, [&](std::uint32_t b) { try_one(bit_operation(b)); });
  }

  // --- bounds by cuts -----------------------------------------------------------------------------------------------

  /// Raises the bound of `x` by the bounds on copies and recomputation of what its key needs. True if it did.
  bool raise(label& x, const run_clock& clock) {
    if (expanded_ < expanded_before_cuts) return false;
    x.cut = true;
    if (!has_anchors_) find_anchors(clock);
    if (anchors_.empty()) return false;
    const std::uint64_t* key = keys_.key(x.key);
    set_key_.assign(key, key + key_words() + tensor_words_);
    std::uint32_t at = sets_.find(set_key_);
    if (at == none) {
      at = sets_.insert(set_key_);
      values_.emplace_back();
      evaluate_set(values_.back(), clock);
    }
    double bound = x.bound;
    for (const moment_value& m : values_[at]) bound = std::max(bound, m.value + m.after * x.compute + m.in * x.in);
    if (!(bound > x.bound)) return false;
    x.bound = bound;
    return true;
  }

  /// The problem of everything before a label that needs `set_key_`: its final outputs are what is needed.
  void begin_set() {
    state_.assign(set_key_.begin(), set_key_.begin() + static_cast<std::ptrdiff_t>(key_words()));
    host_.assign(set_key_.begin() + static_cast<std::ptrdiff_t>(key_words()), set_key_.end());
    close_point(state_, host_, closure_);
    sub_.final_outputs.clear();
    std::fill(sub_.final_output.begin(), sub_.final_output.end(), std::uint8_t{0});
    kept_on_host_.assign(s_.num_tensors, 0);
    for (std::uint32_t t = 0; t < s_.num_tensors; ++t) {
      if (first_bit(t) == none || num_producers(t) == 0) continue;
      const bool on_host = number_[t] != none && test_bit(host_, number_[t]);
      if (!on_host && !is_whole(state_, t)) continue;
      sub_.final_outputs.push_back(t);
      sub_.final_output[t] = 1;
      kept_on_host_[t] = on_host;
    }
    for (std::uint32_t o = 0; o < s_.num_operations; ++o) sub_.needed[o] = test_bit(closure_, o);
  }

  void evaluate_set(std::vector<moment_value>& into, const run_clock& clock) {
    begin_set();
    std::vector<anchor>& chosen = of_closure_[closure_];
    const auto add = [&](anchor& a, int flows) {
      a.value = evaluate(a, flows, clock);
      if (a.value > 0) into.push_back({a.value, a.multipliers.after, a.multipliers.in[0]});
    };
    if (!chosen.empty()) {
      for (anchor& a : chosen) add(a, 1);
      return;
    }
    for (const anchor& a : anchors_) {
      if (!sub_.needed[a.moment]) continue;
      chosen.push_back(a);
      add(chosen.back(), 3);
    }
    std::stable_sort(chosen.begin(), chosen.end(), [](const anchor& a, const anchor& b) { return a.value > b.value; });
    if (chosen.size() > kept_anchors) chosen.resize(kept_anchors);
  }

  /// The bound at an anchor for the present set, without the tails; better prices of a byte are left in the anchor.
  double evaluate(anchor& a, int flows, const run_clock& clock) {
    const auto stop = [&] { return clock.should_stop(); };
    cut_.at(a.moment, 1);
    cut_.keep_on_host(kept_on_host_);
    const std::int64_t room = budget_ - cut_.working_set();
    if (room < 0) return std::numeric_limits<double>::infinity();
    struct plane {
      double at, value, slope;
    };
    plane low{-1, 0, 0}, high{-1, 0, 0};
    double best = 0, best_price = a.multipliers.device;
    offload_multipliers m = a.multipliers;
    for (int flow = 0; flow < flows; ++flow) {
      m.device = std::min(m.device, cut_.highest_price());
      double value = less_rent(cut_.price(m, stop), m.device, room);
      if (m.host > 0) value = less_rent(value, m.host, host_budget_);
      if (value > best) {
        best = value;
        best_price = m.device;
      }
      if (!cut_.complete()) break;
      const double slope = static_cast<double>(cut_.choice(offload_cut::division::by_price).device_bytes - room);
      if (slope == 0) break;
      (slope > 0 ? low : high) = {m.device, value, slope};
      if (low.at < 0) {
        if (m.device == 0) break;
        m.device = flow > 1 ? 0 : m.device / 2;
      } else if (high.at < 0) {
        m.device = m.device > 0 ? m.device * 2 : s_.needed_time / std::max(1.0, cut_.total_bytes());
      } else {
        const double meet =
            (high.value - high.slope * high.at - low.value + low.slope * low.at) / (low.slope - high.slope);
        if (low.value + low.slope * (meet - low.at) <= best * (1 + 1e-9)) break;
        m.device = std::max(0.0, meet);
      }
    }
    a.multipliers.device = best_price;
    return best;
  }

  /// Chooses moments and multipliers for the whole problem.
  void find_anchors(const run_clock& clock) {
    has_anchors_ = true;
    offload_bound_options proving;
    proving.releases = 1;
    proving.want_choice = false;
    proving.run = clock.limits(0.1);
    proving.run.work_limit = run_control::no_work_limit;
    const offload_bound_result root = offload_bound(problem_, proving);
    offload_multipliers both;
    both.before = std::clamp(root.before, 0.0, 1.0);
    both.after = std::clamp(root.after, 0.0, 1.0);
    if (root.delay > 0) {
      both.out[0] = (1 - both.before) * (1 - 0x1p-50);
      both.in[0] = (1 - both.after) * (1 - 0x1p-50);
      both.device = root.multiplier;
      both.host = root.host_multiplier;
    }
    set_key_.assign(key_words() + tensor_words_, 0);
    state_.assign(key_words(), 0);
    for (const std::uint32_t t : s_.final_outputs) open_writes(state_, t);
    open_effects(state_);
    std::copy(state_.begin(), state_.end(), set_key_.begin());
    begin_set();
    for (std::uint32_t o = 0; o < s_.num_operations; ++o) {
      if (!s_.needed[o] || clock.should_stop()) continue;
      if (s_.num_operations > most_for_all_moments && o != index(root.moment)) continue;
      for (int form = 0; form < 4; ++form) {
        offload_multipliers m = both;
        if ((form & 1) != 0) m.before = 1, m.out[0] = 0;
        if ((form & 2) != 0) m.after = 1, m.in[0] = 0;
        if (form != 0 && both.before == 1 && both.after == 1) break;
        anchor a{o, m};
        a.value = evaluate(a, 6, clock);
        anchors_.push_back(a);
      }
    }
    std::stable_sort(anchors_.begin(), anchors_.end(),
                     [](const anchor& a, const anchor& b) { return a.value > b.value; });
    if (anchors_.size() > most_anchors) anchors_.resize(most_anchors);
  }

  const flat_graph& s_;
  std::int64_t budget_;
  double limit_;
  open_states open_;
  bit_words work_, state_, closure_, child_closure_, seen_;
  const problem& problem_;
  std::int64_t host_budget_;
  bool has_host_limit_;
  std::uint64_t max_labels_;
  std::vector<std::uint32_t> tensors_, number_;       // that may be copied; the number of a tensor
  std::vector<double> time_out_, time_in_, release_;  // by number
  std::size_t tensor_words_ = 0;
  state_table keys_, sets_;
  std::vector<std::uint32_t> first_label_;  // of a key
  std::vector<label> labels_;
  std::vector<double> tails_, packed_;
  point now_, child_;
  std::vector<std::pair<double, std::uint32_t>> order_;
  flat_graph sub_;
  offload_cut cut_;
  std::vector<std::uint64_t> set_key_;
  std::vector<std::uint8_t> kept_on_host_;
  bit_words host_;
  std::vector<anchor> anchors_;
  std::map<bit_words, std::vector<anchor>> of_closure_;
  std::vector<std::vector<moment_value>> values_;  // of a set
  std::size_t expanded_ = 0;
  bool has_anchors_ = false;
};

/// Limits of `exact_with_copies`.
struct copying_options {
  std::uint64_t max_states = 2'000'000;
  std::optional<double> faster_than{};  ///< only schedules that take less time are looked for
  run_control run{};
};

/// The least time of any schedule with copies, with the proof, if the search ends: an oracle for steps of up to a dozen
/// operations. `optimal` and `infeasible` are proven; otherwise the answer has no schedule, and a bound.
[[nodiscard]] inline solution exact_with_copies(const problem& p, const copying_options& options = {}) {
  run_clock clock(options.run, "exact with copies");
  solution best;
  stop_reason stopped = clock.poll();
  if (stopped == stop_reason::none &&
      !detail::take_floor(p, detail::floor_within(p, clock, detail::floor_share, 100), clock, best)) {
    copying_search search(p, options.max_states, options.faster_than.value_or(std::numeric_limits<double>::infinity()));
    stopped = search.run(clock, best.lower_bound);
    detail::exact_solve::take_search(p, search, exact_solver::name, "fits the budgets", best);
  }
  conclude(p, best, clock, stopped);
  return best;
}

}  // namespace remat::test
