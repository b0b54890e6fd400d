// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/operation_order.hpp"
#include "remat/refine/detail/order_bound.hpp"

/// \file
/// Orders of least peak memory in which every operation runs once, for a whole problem (`least_peak_order`). For the
/// few operations of one stage of a chain there is `operation_sequence`; both use one engine.

namespace REMAT_NAMESPACE::detail {

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
/// The search makes list schedules from the start and from the end under several rules, then raises the lower bound by
/// minimum cuts (`raise_order_bound`, a fifth of the limits), searches the sets of operations that may have run (exact,
/// for few operations), and moves single operations across the peak (local search). It ends as soon as the peak meets
/// the bound. O(n · ready operations + moves · n)
/// time for n reads and writes. Polls at every placed operation, every expanded set (each `work_of::visit`), and every
/// 16 moves (each four of them). A seed and a work limit determine the order.
[[nodiscard]] least_peak_order_result least_peak_order(const problem& p, const least_peak_options& options = {});

namespace least_peak {

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
    if (peak_ > bound_ && !clock_.should_stop()) {
      run_clock part = clock_.part(0.2, "order bound");
      bound_ = raise_order_bound(sequence_, dag_, order_, bound_, part);
    }
    bool proven = peak_ <= bound_;
    if (!proven && sequence_.size() <= std::min(options_.exact_operations, operation_sequence::longest_exact) &&
        !clock_.should_stop()) {
      proven = ideal_search<>(sequence_, dag_, bound_).run(order_, peak_, options_.exact_states, &clock_);
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

inline least_peak_order_result least_peak_order(const problem& p, const least_peak_options& options) {
  return least_peak::problem_order_search(p, options).run();
}

}  // namespace REMAT_NAMESPACE::detail
