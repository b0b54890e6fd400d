// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/order.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/limit_clock.hpp"
#include "remat/core/detail/smallest_first.hpp"
#include "remat/core/detail/within_memory.hpp"
#include "remat/refine/detail/operation_order.hpp"
#include "remat/refine/detail/order_bound.hpp"

namespace REMAT_NAMESPACE::detail {

/// The peak of an order by the definition; −1 if it does not run every operation once, each after the producers of what
/// it reads. Shares no code with the search. O(operations + reads) time. Precondition: the graph is valid.
[[nodiscard]] inline std::int64_t checked_peak(const order_graph& g, const std::vector<std::uint32_t>& order) {
  std::vector<std::uint32_t> at(g.operations, order_none);
  if (order.size() != g.operations) return -1;
  for (std::uint32_t k = 0; k < g.operations; ++k) {
    if (order[k] >= g.operations || at[order[k]] != order_none) return -1;
    at[order[k]] = k;
  }
  std::vector<std::int64_t> change(std::size_t{g.operations} + 1, 0);  // bytes that begin or end before each operation
  std::int64_t now = 0, peak = 0;
  for (const order_tensor& t : g.tensors) {
    if (t.producer == order_none && t.readers.empty() && !t.stays) continue;  // nobody needs it
    const std::uint32_t first = t.producer == order_none ? 0 : at[t.producer];
    std::uint32_t last = first;
    for (const std::uint32_t o : t.readers) {
      if (t.producer != order_none && at[o] <= first) return -1;
      last = std::max(last, at[o]);
    }
    if (t.producer == order_none) peak += t.bytes;
    change[first] += t.bytes;
    if (!t.stays) change[last + 1] -= t.bytes;
  }
  for (std::uint32_t k = 0; k < g.operations; ++k) {
    now += change[k];
    peak = std::max(peak, now + (g.workspace.empty() ? 0 : g.workspace[order[k]]));
  }
  return peak;
}

/// One call of `least_memory_order`.
template <class Clock>
class order_search {
 public:
  order_search(const order_graph& graph, const order_options& options) : g_(graph), options_(options) {}

  void run(order_result& out) {
    if (!read(out)) return;
    Clock clock(options_.milliseconds, options_.work);
    const least_peak::precedence dag(sequence_);
    if (!sort(dag, out)) return;
    std::int64_t peak = sequence_.peak(order_), bound = sequence_.peak_bound();
    const auto is_done = [&] { return peak <= bound || clock.should_stop(); };
    for (const auto way : {least_peak::direction::forward, least_peak::direction::backward})
      for (const auto rule : {least_peak::list_rule::least_after, least_peak::list_rule::least_during,
                              least_peak::list_rule::no_new_peak, least_peak::list_rule::free_early})
        if (!is_done()) take(least_peak::list_schedule(sequence_, dag, rule, way, &clock), peak);
    if (!is_done()) {
      Clock part = clock.part(0.4);
      bound = raise_order_bound(sequence_, dag, order_, bound, part);
      clock.work(part.work_done());
    }
    if (!is_done() && sequence_.size() <= longest_exact) {
      least_peak::ideal_search exact(sequence_, dag, bound);
      Clock part = clock.part(0.75);
      const bool complete = exact.run(order_, peak, most_states, &part);
      clock.work(part.work_done());
      bound = complete ? peak : std::max(bound, std::min(peak, exact.bound()));
    }
    if (!is_done() && sequence_.size() > 1) {
      least_peak::local_search local(sequence_, dag, order_, options_.seed);
      for (; local.peak() > bound && !clock.should_stop(); clock.work(1)) (void)local.move();
      peak = local.peak();
    }
    out.work = clock.work_done();
    out.lower_bound = bound;
    if (checked_peak(g_, order_) != peak) {
      out.reason = order_reason::defect;
      return;
    }
    out.order = std::move(order_);
    out.peak = peak;
    out.status = peak <= bound ? order_status::optimal : order_status::feasible;
  }

 private:
  static constexpr std::uint32_t longest_exact = 1024;    // operations: a set of them takes 128 bytes
  static constexpr std::size_t most_states = 20'000'000;  // sets of operations: each takes some 50 bytes

  /// Validates the graph, and makes the sequence. False if it is refused.
  [[nodiscard]] bool read(order_result& out) {
    const auto refuse = [&](order_reason reason, std::size_t at) {
      out.reason = reason;
      out.at = at;
      return false;
    };
    constexpr std::size_t most = std::size_t{1} << 31;
    const std::size_t n = g_.operations;
    if (options_.milliseconds < 0 || options_.work < 0) return refuse(order_reason::bad_limit, 0);
    if (n >= most || g_.tensors.size() >= most) return refuse(order_reason::too_large, 0);
    if (!g_.workspace.empty() && g_.workspace.size() != n) return refuse(order_reason::bad_workspace, n);
    constexpr std::int64_t largest = std::int64_t{1} << 62;
    std::int64_t total = 0, start = 0;
    const auto add = [&](std::int64_t bytes) {
      if (bytes > largest - total) return false;
      total += bytes;
      return true;
    };
    for (std::size_t o = 0; o < g_.workspace.size(); ++o) {
      if (g_.workspace[o] < 0) return refuse(order_reason::bad_workspace, o);
      if (!add(g_.workspace[o])) return refuse(order_reason::too_large, o);
    }
    index_rows touched;
    std::vector<std::uint32_t> last_reader(n, order_none);
    std::size_t reads = 0;
    for (std::size_t t = 0; t < g_.tensors.size(); ++t) {
      const order_tensor& x = g_.tensors[t];
      if (x.bytes < 0) return refuse(order_reason::negative_bytes, t);
      reads += x.readers.size();
      if (!add(x.bytes) || reads >= most) return refuse(order_reason::too_large, t);
      if (x.producer != order_none && x.producer >= n) return refuse(order_reason::bad_operation, t);
      for (const std::uint32_t o : x.readers) {
        if (o >= n) return refuse(order_reason::bad_operation, t);
        if (o == x.producer) return refuse(order_reason::reads_own, t);
        if (last_reader[o] == t) return refuse(order_reason::reads_twice, t);
        last_reader[o] = static_cast<std::uint32_t>(t);
        touched.values.push_back(o);
      }
      if (x.producer == order_none && (!x.readers.empty() || x.stays)) start += x.bytes;
      touched.end_row();
    }
    sequence_.reset(start);
    std::vector<std::int64_t> own(n, 0);
    std::vector<std::uint32_t> number(g_.tensors.size(), order_none);
    for (std::size_t t = 0; t < g_.tensors.size(); ++t) {
      const order_tensor& x = g_.tensors[t];
      const bool is_read = !x.readers.empty();
      if (x.producer != order_none && !is_read && !x.stays) own[x.producer] += x.bytes;
      if (is_read || (x.stays && x.producer != order_none))
        number[t] = sequence_.add_tensor(x.bytes, x.producer == order_none, x.stays);
    }
    fill(touched, own, number);
    return true;
  }

  /// Adds the operations to the sequence, with what they touch.
  void fill(const index_rows& touched, const std::vector<std::int64_t>& own, const std::vector<std::uint32_t>& number) {
    const index_rows reads = touched.transposed(g_.operations);
    index_rows made;
    for (const order_tensor& x : g_.tensors) {
      if (x.producer != order_none) made.values.push_back(x.producer);
      made.end_row();
    }
    const index_rows makes = made.transposed(g_.operations);
    for (std::uint32_t o = 0; o < g_.operations; ++o) {
      sequence_.add_operation(own[o] + (g_.workspace.empty() ? 0 : g_.workspace[o]));
      for (const std::uint32_t t : reads[o]) sequence_.touch(number[t], false);
      for (const std::uint32_t t : makes[o])
        if (number[t] != order_none) sequence_.touch(number[t], true);
    }
  }

  /// Makes `order_` a topological order, the first operations first. False if there is none.
  [[nodiscard]] bool sort(const least_peak::precedence& dag, order_result& out) {
    std::vector<std::uint32_t> missing(g_.operations);
    for (std::uint32_t o = 0; o < g_.operations; ++o) missing[o] = static_cast<std::uint32_t>(dag.before(o).size());
    order_ = smallest_first(missing, [&](std::uint32_t o, const auto& arrive) {
      for (const std::uint32_t next : dag.after(o)) arrive(next);
    });
    if (order_.size() == g_.operations) return true;
    out.reason = order_reason::cycle;
    out.at = static_cast<std::size_t>(
        std::find_if(missing.begin(), missing.end(), [](std::uint32_t m) { return m != 0; }) - missing.begin());
    return false;
  }

  void take(std::vector<std::uint32_t> trial, std::int64_t& peak) {
    if (trial.size() != order_.size()) return;
    const std::int64_t trial_peak = sequence_.peak(trial);
    if (trial_peak >= peak) return;
    peak = trial_peak;
    order_.swap(trial);
  }

  const order_graph& g_;
  const order_options& options_;
  operation_sequence sequence_;
  std::vector<std::uint32_t> order_;
};

}  // namespace REMAT_NAMESPACE::detail

namespace REMAT_NAMESPACE {

template <class Clock>
order_result least_memory_order(const order_graph& graph, const order_options& options) {
  order_result out;
  if (!detail::within_memory([&] { detail::order_search<Clock>(graph, options).run(out); })) {
    out = {};
    out.status = order_status::out_of_memory;
  }
  return out;
}

inline std::string order_result::message() const {
  const std::string where = std::to_string(at);
  switch (reason) {
    case order_reason::none:
      if (status == order_status::out_of_memory) return "memory ran out";
      return "peak " + std::to_string(peak) + " bytes, " +
             (status == order_status::optimal ? "proven the least" : "at least " + std::to_string(lower_bound));
    case order_reason::bad_operation:
      return "tensor " + where + " names an operation that there is not";
    case order_reason::reads_own:
      return "tensor " + where + " is read by the operation that makes it";
    case order_reason::reads_twice:
      return "tensor " + where + " is read twice by one operation";
    case order_reason::negative_bytes:
      return "tensor " + where + " has less than 0 bytes";
    case order_reason::bad_workspace:
      return "operation " + where + " has no workspace, or one below 0, while others have one";
    case order_reason::too_large:
      return "the bytes exceed 2^62, or operations, tensors or reads 2^31";
    case order_reason::cycle:
      return "operation " + where + " waits for operations that wait for it";
    case order_reason::bad_limit:
      return "a limit of time or work is below 0";
    case order_reason::defect:
      return "the exact check has refused the order: an error of the library, please report it";
  }
  return "unknown";
}

}  // namespace REMAT_NAMESPACE
