// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/bound/max_flow.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

/// For each needed operation: the sum of `weight(t)` over the tensors that are allocated while it runs, when the needed
/// operations run once each in the listed order and every tensor is freed right after its last use; 0 for the others.
/// O(operations + reads and writes).
template <class T, class Weight>
[[nodiscard]] std::vector<T> listed_order_sums(const flat_graph& s, Weight&& weight) {
  std::vector<std::uint32_t> last(s.num_tensors, 0);
  std::vector<std::uint8_t> allocated(s.num_tensors, 0);
  for (std::uint32_t o = 0; o < s.num_operations; ++o) {
    if (!s.needed[o]) continue;
    for (const std::uint32_t t : s.inputs[o]) last[t] = o;
    for (const std::uint32_t t : s.outputs[o]) last[t] = o;
  }
  std::vector<T> sums(s.num_operations, T{});
  T now{};
  for (std::uint32_t o = 0; o < s.num_operations; ++o) {
    if (!s.needed[o]) continue;
    for (const std::uint32_t t : s.outputs[o])
      if (!allocated[t]) {
        allocated[t] = 1;
        now += weight(t);
      }
    sums[o] = now;
    for (const auto* rows : {&s.inputs, &s.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (allocated[t] && last[t] == o && !s.final_output[t]) {
          allocated[t] = 0;
          now -= weight(t);
        }
  }
  return sums;
}

/// Bytes in use for operation `o` itself while it runs: its inputs, its outputs, its workspace.
[[nodiscard]] inline std::int64_t working_set_bytes(const flat_graph& s, std::uint32_t o) {
  std::int64_t sum = s.workspace[o];
  for (const std::uint32_t t : s.inputs[o]) sum += s.bytes[t];
  for (const std::uint32_t t : s.outputs[o]) sum += s.bytes[t];
  return sum;
}

/// What one choice of resident tensors at a moment costs.
struct moment_choice {
  double time = 0;         ///< of the operations that must run again
  std::int64_t bytes = 0;  ///< resident beside the working set of the moment's operation
};

/// The network behind the bounds: what must be resident, or made again, at the moment when operation k runs for the
/// first time.
///
/// At that moment the ancestors of k have run (A, with k itself) and its descendants have not (D). The other operations
/// (U) are split by the schedule: an operation that has not run implies that its descendants have not either. Later,
/// the operations that have not run must run, and the final outputs must be there; each tensor that they read is
/// resident at the moment, or all of its producers run later, and what these read is resident or made later in turn. An
/// operation of the first kind that runs later runs again and is paid for. (docs/bounds.md proves that every schedule
/// is such a choice.) The cheapest choice at a price for each resident byte is a minimum cut; with the source's side
/// meaning "true", its nodes are
///   r(o)  operation o runs later                     pays time(o) unless c(o); infinite where it must not run twice
///   c(o)  operation o of U has not run yet           implies r(o) and c(o') for each reader o' of its outputs
///   q(t)  tensor t is read later                     implies w(t), or pays price × bytes(t) for being resident
///   w(t)  tensor t is made later                     implies r(p) for each producer p
/// Nodes that can only be equal are one: q(t) with its only reader, w(t) with its only producer. Tensors that k reads
/// or writes are resident anyway and drop out, as do those without bytes.
///
/// `at(k)`: O(operations + reads and writes). `price`: one maximum flow, warm from the last one where the price rose.
class moment_cut {
 public:
  explicit moment_cut(const flat_graph& step)
      : step_(&step),
        side_(step.num_operations),
        run_node_(step.num_operations, none),
        wait_node_(step.num_operations, none),
        mark_(step.num_tensors, 0),
        readers_(step.num_tensors, 0) {}

  /// The step must outlive this.
  [[nodiscard]] const flat_graph& graph() const noexcept { return *step_; }
  [[nodiscard]] std::uint32_t moment() const noexcept { return moment_; }
  /// Bytes in use for k itself: its inputs, its outputs, its workspace.
  [[nodiscard]] std::int64_t working_set() const noexcept { return working_set_; }
  /// Something that later operations want may not be made again: `least_bytes` may be above 0.
  [[nodiscard]] bool has_unrepeatable() const noexcept { return unrepeatable_; }
  /// Time of everything that could run again.
  [[nodiscard]] double total_time() const noexcept { return total_time_; }

  /// Builds the network for the first run of operation `k`. Precondition: k is needed.
  void at(std::uint32_t k) {
    assert(step_->needed[k]);
    moment_ = k;
    separate();
    reach();
    connect();
    mode_ = mode::unset;
  }

  /// The least of (time + price × bytes) over all choices, from below: never more than the true least, and less than it
  /// by at most 2^−50 × (operations + 1) × `total_time()` and a few units in the last place. `price` ≥ 0 in time for a
  /// byte, at most `highest_price()`. (Where nothing that could run again takes time, the value means nothing but is
  /// valid.) `stop()` is asked from time to time; true ends the flow early, with a value that is still never too large.
  template <class Stop>
  double price(double price, Stop&& stop) {
    const double scaled = std::ldexp(price, exponent_);
    if (mode_ != mode::priced || scaled < scaled_price_) {
      if (mode_ != mode::unset && kept_price_ >= 0 && kept_price_ <= scaled) {
        flow_.restore(kept_);
        scaled_price_ = kept_price_;
        mode_ = mode::priced;
        raise(scaled);
      } else {
        load(scaled);
      }
    } else if (scaled > scaled_price_) {
      raise(scaled);
    }
    complete_ = flow_.run(stop);
    const double value = std::ldexp(static_cast<double>(flow_.value()), -exponent_);
    return std::max(0.0, std::nextafter(value, 0.0));
  }
  double price(double p) {
    return price(p, [] { return false; });
  }
  [[nodiscard]] double highest_price() const noexcept {
    return std::ldexp(std::ldexp(1.0, 60) / std::max(1.0, required_bytes_), -exponent_);
  }
  /// Whether the last flow is maximum.
  [[nodiscard]] bool complete() const noexcept { return complete_; }

  /// The tensors whose residency is in question at this moment, by position: to fix some of them, as branch and bound
  /// does. A fixed one is resident at no price and no longer counted in any bytes, or absent: its producers run later,
  /// at whatever time that takes (`price` is about twice `total_time()` or more where they cannot).
  enum class fixing : std::uint8_t { free, resident, absent };
  [[nodiscard]] std::size_t num_candidates() const noexcept { return priced_.size(); }
  [[nodiscard]] std::int64_t candidate_bytes(std::size_t i) const { return priced_[i].bytes; }
  [[nodiscard]] tensor_id candidate(std::size_t i) const { return static_cast<tensor_id>(priced_[i].tensor); }
  [[nodiscard]] fixing fixed(std::size_t i) const { return priced_[i].fixed; }
  /// Whether the last complete flow keeps it resident and pays for that.
  [[nodiscard]] bool candidate_resident(std::size_t i) const { return is_resident(priced_[i]); }
  /// Takes effect with the next flow, which starts from nothing. At most 256 may be absent at a time.
  void fix(std::size_t i, fixing f) {
    priced_[i].fixed = f;
    mode_ = mode::unset;
    kept_price_ = -1;
  }

  /// Keeps the present flow: `price` starts from it when it goes back to a price that is not lower.
  void keep() {
    flow_.save(kept_);
    kept_price_ = scaled_price_;
  }

  /// The least bytes that any choice keeps resident beside the working set, whatever it costs. Exact (for a step of
  /// more than 2^60 bytes: from below).
  template <class Stop>
  std::int64_t least_bytes(Stop&& stop) {
    flow_.clear_flow();
    int shift = 0;
    while (std::ldexp(required_bytes_, -shift) > std::ldexp(1.0, 60)) ++shift;
    set_structure();
    for (const priced& p : priced_) {
      const max_flow::capacity c = p.fixed == fixing::free       ? p.bytes >> shift
                                   : p.fixed == fixing::resident ? 0
                                                                 : max_flow::infinite >> 9;
      if (p.arc != none)
        flow_.set_capacity(p.arc, c);
      else
        flow_.raise_source(p.to, c);
    }
    for (const std::uint32_t o : reached_) {
      const max_flow::capacity again = step_->once[o] ? max_flow::infinite : 0;
      if (side_[o] == before)
        flow_.set_sink(run_node_[o], again);
      else
        flow_.set_capacity(wait_arc_[wait_index(o)], max_flow::infinite, again);
    }
    mode_ = mode::bytes;
    complete_ = flow_.run(stop);
    return flow_.value() << shift;
  }
  std::int64_t least_bytes() {
    return least_bytes([] { return false; });
  }

  /// The choice that the last complete flow found: of the cheapest ones, that with the fewest bytes.
  [[nodiscard]] moment_choice choice() const {
    moment_choice c;
    for (const priced& p : priced_)
      if (p.fixed == fixing::free && is_resident(p)) c.bytes += p.bytes;
    for (const std::uint32_t o : reached_)
      if (runs_again(o)) c.time += step_->time[o];
    return c;
  }

  /// The tensors that the choice keeps resident beside the working set, ascending.
  [[nodiscard]] std::vector<tensor_id> resident() const {
    std::vector<tensor_id> kept;
    for (const priced& p : priced_)
      if (is_resident(p)) kept.push_back(static_cast<tensor_id>(p.tensor));
    std::sort(kept.begin(), kept.end());
    return kept;
  }

  /// The operations that the choice runs again, ascending.
  [[nodiscard]] std::vector<op_id> again() const {
    std::vector<op_id> list;
    for (const std::uint32_t o : reached_)
      if (runs_again(o)) list.push_back(static_cast<op_id>(o));
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  enum side : std::uint8_t { open, before, after };  // U, A, D
  enum class mode : std::uint8_t { unset, priced, bytes };
  struct priced {
    std::uint32_t tensor;
    std::uint32_t arc;  // none: an arc from the source
    std::uint32_t from, to;
    std::int64_t bytes;
    fixing fixed = fixing::free;
  };
  // What is known of a tensor at the present moment (mark_).
  static constexpr std::uint8_t own = 1, required = 2, touched = 4, ordered = 8;

  [[nodiscard]] bool is_resident(const priced& p) const {
    return flow_.reaches_sink(p.to) && (p.arc == none || !flow_.reaches_sink(p.from));
  }
  [[nodiscard]] bool runs_again(std::uint32_t o) const {
    return !flow_.reaches_sink(run_node_[o]) && (side_[o] == before || flow_.reaches_sink(wait_node_[o]));
  }
  [[nodiscard]] std::size_t wait_index(std::uint32_t o) const { return wait_node_[o] - first_wait_; }

  /// A and D.
  void separate() {
    const flat_graph& s = *step_;
    std::fill(side_.begin(), side_.end(), std::uint8_t{open});
    std::fill(mark_.begin(), mark_.end(), std::uint8_t{0});
    const auto spread = [&](side mark, const index_rows& edges, const index_rows& next) {
      work_.assign(1, moment_);
      while (!work_.empty()) {
        const std::uint32_t o = work_.back();
        work_.pop_back();
        for (const std::uint32_t t : edges[o]) {
          if (mark_[t] & touched) continue;
          mark_[t] |= touched;
          for (const std::uint32_t n : next[t])
            if (side_[n] == open) {
              side_[n] = mark;
              work_.push_back(n);
            }
        }
      }
    };
    side_[moment_] = before;
    spread(before, s.inputs, s.producers);
    std::fill(mark_.begin(), mark_.end(), std::uint8_t{0});
    spread(after, s.outputs, s.consumers);
    std::fill(mark_.begin(), mark_.end(), std::uint8_t{0});
    working_set_ = working_set_bytes(s, moment_);
    for (const auto* rows : {&s.inputs, &s.outputs})
      for (const std::uint32_t t : (*rows)[moment_]) mark_[t] |= own;
  }

  /// Finds the operations that some choice could run later for a reason.
  void reach() {
    const flat_graph& s = *step_;
    for (const std::uint32_t o : reached_) run_node_[o] = wait_node_[o] = none;
    reached_.clear();
    touched_.clear();
    total_time_ = 0;
    required_bytes_ = 0;
    unrepeatable_ = false;
    nodes_ = 0;
    const auto run_later = [&](std::uint32_t o) {
      if (side_[o] == after || run_node_[o] != none) return;
      run_node_[o] = nodes_++;
      reached_.push_back(o);
    };
    const auto read_later = [&](std::uint32_t t, std::uint8_t how) {
      if ((mark_[t] & own) || s.bytes[t] == 0) return false;
      if (!(mark_[t] & (touched | required))) {
        bool made_here = false;  // else D makes it, and later anyway
        for (const std::uint32_t p : s.producers[t]) made_here = made_here || side_[p] != after;
        if (!made_here) return false;
        readers_[t] = 0;
        touched_.push_back(t);
        for (const std::uint32_t p : s.producers[t]) run_later(p);
      }
      mark_[t] |= how;
      return true;
    };
    for (const std::uint32_t t : s.final_outputs) read_later(t, required);
    for (std::uint32_t o = moment_ + 1; o < s.num_operations; ++o)
      if (side_[o] == after && s.needed[o])
        for (const std::uint32_t t : s.inputs[o]) read_later(t, required);
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      const std::uint32_t o = reached_[i];
      if (s.once[o]) unrepeatable_ = true;
      if (side_[o] == before && s.once[o]) continue;  // never runs later: what it reads does not matter
      if (!s.once[o]) total_time_ += s.time[o];
      for (const std::uint32_t t : s.inputs[o])
        if (read_later(t, touched)) ++readers_[t];
      if (side_[o] == open)
        for (const std::uint32_t t : s.outputs[o])
          for (const std::uint32_t reader : s.consumers[t])
            if (s.needed[reader]) run_later(reader);
    }
    first_wait_ = nodes_;
    for (const std::uint32_t o : reached_)
      if (side_[o] == open) wait_node_[o] = nodes_++;
    for (const std::uint32_t t : touched_)
      if (mark_[t] & required) required_bytes_ += static_cast<double>(s.bytes[t]);
    // Exact for whole times, and small enough that nothing overflows.
    exponent_ = total_time_ > 0 ? 50 - std::ilogb(total_time_) : 0;
  }

  /// Lays out nodes and arcs.
  void connect() {
    const flat_graph& s = *step_;
    flow_.reset(nodes_);
    priced_.clear();
    plain_.clear();
    wait_arc_.clear();
    for (const std::uint32_t t : touched_) {
      std::uint32_t producers = 0, made = none;
      for (const std::uint32_t p : s.producers[t])
        if (side_[p] != after) {
          ++producers;
          made = run_node_[p];
        }
      if (producers > 1) {
        made = flow_.add_node();
        for (const std::uint32_t p : s.producers[t])
          if (side_[p] != after) plain_.push_back(flow_.add_arc(made, run_node_[p]));
      }
      if (mark_[t] & required) {
        priced_.push_back({t, none, none, made, s.bytes[t], fixing::free});
        continue;
      }
      std::uint32_t read = none;
      if (readers_[t] > 1) read = flow_.add_node();
      for (const std::uint32_t reader : s.consumers[t]) {
        if (run_node_[reader] == none || (side_[reader] == before && s.once[reader])) continue;
        if (readers_[t] > 1)
          plain_.push_back(flow_.add_arc(run_node_[reader], read));
        else
          read = run_node_[reader];
      }
      const std::uint32_t arc = flow_.add_arc(read, made);
      priced_.push_back({t, arc, read, made, s.bytes[t], fixing::free});
    }
    for (const std::uint32_t o : reached_) {
      if (side_[o] != open) continue;
      wait_arc_.push_back(flow_.add_arc(wait_node_[o], run_node_[o]));
      for (const std::uint32_t t : s.outputs[o]) {
        if (mark_[t] & ordered) continue;
        mark_[t] |= ordered;
        // Each waiting producer makes each reader wait; through a node of their own where both are many.
        const bool many = s.producers[t].size() > 1 && s.consumers[t].size() > 1;
        const std::uint32_t middle = many ? flow_.add_node() : none;
        for (const std::uint32_t p : s.producers[t]) {
          if (wait_node_[p] == none) continue;
          if (many) {
            plain_.push_back(flow_.add_arc(wait_node_[p], middle));
          } else {
            for (const std::uint32_t reader : s.consumers[t])
              if (wait_node_[reader] != none) plain_.push_back(flow_.add_arc(wait_node_[p], wait_node_[reader]));
          }
        }
        if (many)
          for (const std::uint32_t reader : s.consumers[t])
            if (wait_node_[reader] != none) plain_.push_back(flow_.add_arc(middle, wait_node_[reader]));
      }
    }
    flow_.finish();
    kept_price_ = -1;
  }

  void set_structure() {
    for (const max_flow::arc a : plain_) flow_.set_capacity(a, max_flow::infinite);
  }

  /// Price × bytes in the flow's unit, rounded down. The factor makes up for the three roundings before it.
  [[nodiscard]] max_flow::capacity priced_capacity(double scaled, const priced& p) const {
    if (p.fixed == fixing::resident) return 0;
    if (p.fixed == fixing::absent) return static_cast<max_flow::capacity>(std::ldexp(2 * total_time_, exponent_)) + 2;
    const double exact = scaled * static_cast<double>(p.bytes) * (1 - 0x1p-51);
    return exact < 0x1p61 ? static_cast<max_flow::capacity>(exact) : max_flow::infinite;
  }

  void load(double scaled) {
    flow_.clear_flow();
    set_structure();
    for (const priced& p : priced_) {
      const max_flow::capacity c = priced_capacity(scaled, p);
      if (p.arc != none)
        flow_.set_capacity(p.arc, c);
      else
        flow_.raise_source(p.to, c);
    }
    for (const std::uint32_t o : reached_) {
      const max_flow::capacity time =
          step_->once[o] ? max_flow::infinite : static_cast<max_flow::capacity>(std::ldexp(step_->time[o], exponent_));
      if (side_[o] == before)
        flow_.set_sink(run_node_[o], time);
      else
        flow_.set_capacity(wait_arc_[wait_index(o)], max_flow::infinite, time);
    }
    scaled_price_ = scaled;
    mode_ = mode::priced;
  }

  void raise(double scaled) {
    for (const priced& p : priced_) {
      const max_flow::capacity more = priced_capacity(scaled, p) - priced_capacity(scaled_price_, p);
      if (p.arc != none)
        flow_.raise_capacity(p.arc, more);
      else
        flow_.raise_source(p.to, more);
    }
    scaled_price_ = scaled;
  }

  const flat_graph* step_;
  std::uint32_t moment_ = 0;
  std::int64_t working_set_ = 0;
  bool unrepeatable_ = false;
  bool complete_ = false;
  double total_time_ = 0;
  double required_bytes_ = 0;
  int exponent_ = 0;
  mode mode_ = mode::unset;
  double scaled_price_ = 0;
  double kept_price_ = -1;
  std::uint32_t nodes_ = 0;
  std::uint32_t first_wait_ = 0;
  std::vector<std::uint8_t> side_;
  std::vector<std::uint32_t> run_node_, wait_node_;
  std::vector<std::uint8_t> mark_;
  std::vector<std::uint32_t> readers_;
  std::vector<std::uint32_t> reached_, touched_, work_;
  std::vector<priced> priced_;
  std::vector<max_flow::arc> plain_;     // arcs of infinite capacity
  std::vector<max_flow::arc> wait_arc_;  // c(o) → r(o), by wait_index
  max_flow flow_;
  max_flow::state kept_;
};

}  // namespace remat
