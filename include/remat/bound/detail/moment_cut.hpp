// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "remat/bound/detail/max_flow.hpp"
#include "remat/bound/detail/moment_network.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE::detail {

/// The cost of one choice of resident tensors at a moment.
struct moment_choice {
  double time = 0;         ///< time of the operations that run again, and of the rates of a segment
  std::int64_t bytes = 0;  ///< bytes of the resident tensors, without the working set of the moment's operation
};

/// A rate on a tensor at one end of a segment, in time. See `segment`.
struct tensor_rate {
  std::uint32_t tensor;  ///< the tensor
  double rate;           ///< the rate, at least 0
};

/// A part of the schedule that begins when the first run of an operation is over: its moment.
///
/// It ends with the first run of `end`, a descendant of the moment's operation, or with the schedule. Rates tie
/// a segment to its neighbours: a tensor of `kept` that is resident at the moment costs its rate besides its bytes; a
/// tensor of `passed_on` that is neither resident at the moment nor computed in the segment costs its rate. Both lists
/// ascend, each tensor once. Tensors of 0 bytes, of the moment's operation, with several producers, or computed in
/// the segment in any case are ignored there.
struct segment {
  static constexpr std::uint32_t end_of_schedule = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t moment = 0;                             ///< the operation whose first run is the moment
  std::uint32_t end = end_of_schedule;                  ///< the operation whose first run ends the segment
  const std::vector<tensor_rate>* kept = nullptr;       ///< rates of tensors that are resident at the moment, or none
  const std::vector<tensor_rate>* passed_on = nullptr;  ///< rates of tensors that the segment does not pass on, or none
};

/// A minimum-cut network for one *moment*: the first run of an operation k. Its cuts are the choices of which tensors
/// are resident at that moment and which are computed again later.
///
/// At the moment, the ancestors of k have run (A, with k itself) and the descendants of k have not (D). The schedule
/// decides about the other operations (U); when an operation has not run, its descendants have not run either. After
/// the moment, all needed operations that have not run must run, and the final outputs must be there. Each tensor that
/// these operations read is resident at the moment, or all its producers run after it; the same holds for the tensors
/// that these producers read. An operation that had run before the moment and runs after it runs again, and costs its
/// time. docs/bounds.md proves that every schedule is such a choice.
///
/// The cheapest choice at a price for each resident byte is a minimum cut. Its nodes are propositions; a node on the
/// source's side is true.
///   r(o)  operation o runs after the moment          costs time(o) unless c(o); infinite if o must not run twice
///   c(o)  operation o of U has not run               implies r(o), and c(o') for each reader o' of its outputs
///   q(t)  tensor t is read after the moment          implies w(t), or costs price × bytes(t) for a resident t
///   w(t)  tensor t is computed after the moment      implies r(p) for each producer p
/// A tensor with one reader has no node q, and a tensor with one producer has no node w: the operation's node replaces
/// it. Tensors that k reads or writes are resident anyway, and have no nodes; nor have tensors of 0 bytes.
///
/// `at(k)` takes O(operations + reads and writes) time. `price` takes one maximum flow, which starts from the last flow
/// if the price has risen. Both flows poll `stop` (see `max_flow::run`).
class moment_cut : private moment_network {
 public:
  /// `graph` must outlive this object.
  explicit moment_cut(const flat_graph& graph) : moment_network(graph) {}

  [[nodiscard]] const flat_graph& graph() const noexcept { return *graph_; }
  /// The operation of the last call of `at`.
  [[nodiscard]] std::uint32_t moment() const noexcept { return moment_; }
  using moment_network::complete;
  using moment_network::working_set;
  /// True if some tensor that is read after the moment cannot be computed again: `least_bytes` may be above 0.
  [[nodiscard]] bool has_unrepeatable() const noexcept { return unrepeatable_; }
  /// Time of all operations that could run again.
  [[nodiscard]] double total_time() const noexcept { return total_time_; }

  /// No choice that breaks no fixing costs more, apart from the price of bytes.
  [[nodiscard]] double total_cost() const noexcept { return total_cost_; }

  /// An upper bound on the number of times that `choice` adds up.
  [[nodiscard]] std::size_t num_terms() const noexcept {
    return candidates_.size() + wanted_.size() + reached_.size() + 1;
  }

  /// Builds the network for the first run of operation `k`. Precondition: k is needed.
  void at(std::uint32_t k) { at(segment{.moment = k}); }

  /// Builds the network for a segment: only what runs in the segment counts as running again. Precondition: the
  /// moment's operation is needed, and the segment's end depends on it.
  void at(const segment& s) {
    assert(graph_->needed[s.moment]);
    moment_ = s.moment;
    segment_ = s;
    find_needed();
    separate();
    reach();
    connect();
    loaded_price_ = kept_price_ = not_loaded;
  }

  /// Returns the least of (time + price × bytes) over all choices, from below: it never exceeds the true least, and is
  /// less by at most 2^−50 × (operations + 1) × `total_time()` and a few units in the last place of it. If `stop()`
  /// returns true, the flow ends early; the value still never exceeds the true least. `price` is in time for a byte,
  /// from 0 to `highest_price()`. If `total_time()` is 0, the value is a valid bound but not close to the least.
  double price(double price, const std::function<bool()>& stop = {}) {
    const double scaled = std::ldexp(price, exponent_);
    if (loaded_price_ == not_loaded || scaled < loaded_price_) {
      if (kept_price_ == not_loaded || scaled < kept_price_) {
        load_price(scaled);
      } else {
        flow_.restore(kept_);
        loaded_price_ = kept_price_;
      }
    }
    if (scaled > loaded_price_) raise_price(scaled);
    complete_ = flow_.run(stop);
    return std::ldexp(number_below(flow_.value()), -exponent_);
  }
  /// The largest price for which the integers of the flow cannot overflow at this moment, in time for a byte.
  [[nodiscard]] double highest_price() const noexcept {
    return std::ldexp(std::ldexp(1.0, 60) / std::max(1.0, required_bytes_), -exponent_);
  }

  /// Candidates are the tensors that may be resident or not at this moment. Branch and bound fixes some of them. A
  /// resident one has no price, and no bytes that count. An absent one is computed after the moment, whatever time that
  /// takes; if it cannot be, `price` returns about twice `total_cost()` or more.
  enum class fixing : std::uint8_t { free, resident, absent };
  /// The number of candidates at this moment. They count from 0.
  [[nodiscard]] std::size_t num_candidates() const noexcept { return candidates_.size(); }
  [[nodiscard]] std::int64_t candidate_bytes(std::size_t i) const { return candidates_[i].bytes; }
  [[nodiscard]] tensor_id candidate(std::size_t i) const { return static_cast<tensor_id>(candidates_[i].tensor); }
  /// How candidate `i` is fixed now; `free` if it is not.
  [[nodiscard]] fixing fixed(std::size_t i) const { return candidates_[i].fixed; }
  /// True if the candidate is resident, at its price, in the choice of the last complete flow.
  [[nodiscard]] bool candidate_resident(std::size_t i) const { return is_resident(candidates_[i]); }
  /// Fixes candidate `i`, or frees it. The next flow starts from nothing. At most 256 may be absent at a time.
  void fix(std::size_t i, fixing f) {
    candidates_[i].fixed = f;
    loaded_price_ = kept_price_ = not_loaded;
  }

  /// Makes bytes dearer the later they are used: those of a candidate that the operation at position i of the listed
  /// order reads last cost 1 + `strength` × i / operations times the price. A choice then drops what is used last
  /// first, and tensors of equal worth leave it one by one as the price rises, which shows choices between two corners
  /// of the trade-off. While the prices are tilted, the values of `price` are no bounds. `at` ends it; the next flow
  /// starts from nothing. Precondition: 0 ≤ strength ≤ 1.
  void tilt(double strength) {
    const auto n = static_cast<double>(graph_->num_operations);
    for (candidate_tensor& c : candidates_) {
      const auto readers = graph_->consumers[c.tensor];
      const double last = readers.empty() ? n : static_cast<double>(*std::max_element(readers.begin(), readers.end()));
      c.tilt = 1 + strength * last / n;
    }
    loaded_price_ = kept_price_ = not_loaded;
  }

  /// Keeps a copy of the present flow. If the price falls, but not below that of the copy, `price` starts from the
  /// copy.
  void keep() {
    flow_.save(kept_);
    kept_price_ = loaded_price_;
  }

  /// Returns the least bytes that any choice keeps resident beside the working set, whatever time it takes. Exact up to
  /// 2^60 bytes in total, from below beyond. `stop` as in `price`.
  std::int64_t least_bytes(const std::function<bool()>& stop = {}) {
    int shift = 0;
    while (std::ldexp(required_bytes_, -shift) > std::ldexp(1.0, 60)) ++shift;
    load([&](const candidate_tensor& c) { return c.bytes >> shift; }, max_flow::infinite >> 9,
         [&](std::uint32_t o) { return graph_->once[o] ? max_flow::infinite : 0; }, [](double) { return 0; });
    loaded_price_ = not_loaded;
    complete_ = flow_.run(stop);
    return flow_.value() << shift;
  }

  /// Returns the choice of the last complete flow: of the cheapest choices, the one with the fewest bytes.
  [[nodiscard]] moment_choice choice() const {
    moment_choice c;
    for (const candidate_tensor& x : candidates_)
      if (is_resident(x)) {
        if (x.fixed == fixing::free) c.bytes += x.bytes;
        c.time += x.rate;
      }
    for (const wanted_tensor& x : wanted_)
      if (flow_.reaches_sink(x.node)) c.time += x.rate;
    for (const std::uint32_t o : reached_)
      if (runs_again(o)) c.time += graph_->time[o];
    return c;
  }

  /// Returns the tensors that this choice keeps resident beside the working set, ascending.
  [[nodiscard]] std::vector<tensor_id> resident() const {
    std::vector<tensor_id> kept;
    for (const candidate_tensor& x : candidates_)
      if (is_resident(x)) kept.push_back(static_cast<tensor_id>(x.tensor));
    std::sort(kept.begin(), kept.end());
    return kept;
  }

  /// Calls `visit(o)` for each operation that this choice runs after the moment and that the moment's operation does
  /// not precede.
  template <class Visit>
  void for_each_run(Visit&& visit) const {
    for (const std::uint32_t o : reached_)
      if (!flow_.reaches_sink(run_node_[o])) visit(o);
  }

  /// Returns the operations for which some choice does so, ascending.
  [[nodiscard]] std::vector<std::uint32_t> possible_runs() const {
    std::vector<std::uint32_t> list;
    for (const std::uint32_t o : reached_)
      if (side_[o] != before || !graph_->once[o]) list.push_back(o);
    std::sort(list.begin(), list.end());
    return list;
  }

  /// Returns the operations that this choice runs again, ascending.
  [[nodiscard]] std::vector<op_id> again() const {
    std::vector<op_id> list;
    for (const std::uint32_t o : reached_)
      if (runs_again(o)) list.push_back(static_cast<op_id>(o));
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  static constexpr double not_loaded = -1;
  struct candidate_tensor {
    std::uint32_t tensor;
    std::uint32_t arc;  // `none` for an arc from the source
    std::uint32_t from, to;
    std::int64_t bytes;
    double rate;  // the rate of `kept`
    fixing fixed = fixing::free;
    double tilt = 1;  // the factor of the price
  };
  struct wanted_tensor {  // a tensor of `passed_on`
    std::uint32_t node;
    double rate;
  };
  static constexpr std::uint8_t wanted = 16;  // flag of a tensor: the segment should pass it on

  [[nodiscard]] bool is_resident(const candidate_tensor& c) const {
    return flow_.reaches_sink(c.to) && (c.arc == none || !flow_.reaches_sink(c.from));
  }
  [[nodiscard]] bool runs_again(std::uint32_t o) const {
    return side_[o] != after && !flow_.reaches_sink(run_node_[o]) &&
           (side_[o] == before || flow_.reaches_sink(wait_node_[o]));
  }

  /// Finds the operations that must have run when the segment ends.
  void find_needed() {
    const flat_graph& g = *graph_;
    if (ends_schedule()) return;
    needed_.assign(g.num_operations, 0);
    needed_[segment_.end] = 1;
    for (std::uint32_t o = segment_.end + 1; o-- > 0;)
      if (needed_[o])
        for (const std::uint32_t t : g.inputs[o])
          for (const std::uint32_t p : g.producers[t]) needed_[p] = 1;
  }
  [[nodiscard]] bool ends_schedule() const noexcept { return segment_.end == segment::end_of_schedule; }
  /// True if operation `o` must have run when the segment ends. The graph is asked each time: its owner may change what
  /// is needed between two moments.
  [[nodiscard]] bool is_needed(std::uint32_t o) const { return (ends_schedule() ? graph_->needed : needed_)[o] != 0; }

  /// Finds the operations that some choice runs after the moment, and gives them nodes.
  void reach() {
    const flat_graph& g = *graph_;
    clear_reached();
    total_time_ = 0;
    required_bytes_ = 0;
    unrepeatable_ = false;
    const auto run_later = [&](std::uint32_t o) {
      if (run_node_[o] != none || (side_[o] == after && (is_needed(o) || segment_.passed_on == nullptr))) return;
      add_run_node(o);
    };
    const auto read_later = [&](std::uint32_t t, std::uint8_t how) {
      return moment_network::read_later(t, how, run_later);
    };
    if (ends_schedule())
      for (const std::uint32_t t : g.final_outputs) read_later(t, required);
    for (std::uint32_t o = moment_ + 1; o < g.num_operations; ++o)
      if (side_[o] == after && is_needed(o))
        for (const std::uint32_t t : g.inputs[o]) read_later(t, required);
    if (segment_.passed_on != nullptr)
      for (const tensor_rate& x : *segment_.passed_on)
        if (x.rate > 0 && g.producers[x.tensor].size() == 1 && !(mark_[x.tensor] & required)) {
          if (const std::uint32_t p = g.producers[x.tensor][0]; side_[p] != after)
            read_later(x.tensor, touched | wanted);
          else if (g.bytes[x.tensor] > 0)
            run_later(p);
        }
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      const std::uint32_t o = reached_[i];
      if (side_[o] == after) {
        for (const std::uint32_t t : g.inputs[o])
          if (read_later(t, touched))
            ++readers_[t];
          else
            for (const std::uint32_t p : g.producers[t])
              if (side_[p] == after) run_later(p);
        continue;
      }
      if (g.once[o]) unrepeatable_ = true;
      if (side_[o] == before && g.once[o]) continue;  // never runs after the moment
      if (!g.once[o]) total_time_ += g.time[o];
      for (const std::uint32_t t : g.inputs[o])
        if (read_later(t, touched)) ++readers_[t];
      if (side_[o] == open)
        for (const std::uint32_t t : g.outputs[o])
          for (const std::uint32_t reader : g.consumers[t])
            if (is_needed(reader)) run_later(reader);
    }
    add_wait_nodes();
    for (const std::uint32_t t : touched_)
      if (mark_[t] & required) required_bytes_ += static_cast<double>(g.bytes[t]);
    const auto sum_of = [](const std::vector<tensor_rate>* rates) {
      double sum = 0;
      if (rates != nullptr)
        for (const tensor_rate& x : *rates) sum += x.rate;
      return sum;
    };
    total_cost_ = total_time_ + sum_of(segment_.kept) + sum_of(segment_.passed_on);
    // Whole times stay exact, and no sum overflows.
    exponent_ = total_cost_ > 0 ? 50 - std::ilogb(total_cost_) : 0;
  }

  /// Builds the nodes of tensors, and all arcs.
  void connect() {
    flow_.reset(nodes_);
    candidates_.clear();
    wanted_.clear();
    plain_.clear();
    wait_arc_.clear();
    for (const std::uint32_t t : touched_) connect_tensor(t);
    add_rates();
    for (const std::uint32_t o : reached_)
      if (side_[o] == open)
        connect_waiting(o);
      else if (side_[o] == after)
        connect_optional(o);
    flow_.finish();
  }

  void connect_tensor(std::uint32_t t) {
    const flat_graph& g = *graph_;
    const std::uint32_t computed = connect_producers(t);  // the node w(t)
    if (mark_[t] & required) {
      candidates_.push_back({t, none, none, computed, g.bytes[t], 0, fixing::free});
      return;
    }
    const bool is_wanted = (mark_[t] & wanted) != 0;
    const std::uint32_t read = connect_readers(t, readers_[t] > 1 || is_wanted);  // the node q(t)
    if (is_wanted) wanted_.push_back({read, rate_of(*segment_.passed_on, t)});
    const std::uint32_t arc = flow_.add_arc(read, computed);
    candidates_.push_back({t, arc, read, computed, g.bytes[t], 0, fixing::free});
  }

  /// Returns the rate of tensor `t`; 0 if it has none.
  [[nodiscard]] static double rate_of(const std::vector<tensor_rate>& rates, std::uint32_t t) {
    const auto at = std::lower_bound(rates.begin(), rates.end(), t,
                                     [](const tensor_rate& x, std::uint32_t y) { return x.tensor < y; });
    return at != rates.end() && at->tensor == t ? at->rate : 0;
  }

  /// Adds the arcs of operations of D that need not run in the segment.
  void connect_optional(std::uint32_t o) {
    const flat_graph& g = *graph_;
    for (const std::uint32_t t : g.inputs[o])
      for (const std::uint32_t p : g.producers[t])
        if (side_[p] == after && run_node_[p] != none) plain_.push_back(flow_.add_arc(run_node_[o], run_node_[p]));
  }

  void add_rates() {
    if (segment_.passed_on != nullptr)
      for (const tensor_rate& x : *segment_.passed_on)
        if (x.rate > 0 && graph_->producers[x.tensor].size() == 1 && graph_->bytes[x.tensor] > 0)
          if (const std::uint32_t p = graph_->producers[x.tensor][0]; side_[p] == after && run_node_[p] != none)
            wanted_.push_back({run_node_[p], x.rate});
    if (segment_.kept == nullptr || segment_.kept->empty()) return;
    for (candidate_tensor& c : candidates_) c.rate = rate_of(*segment_.kept, c.tensor);
  }

  /// Sets all capacities, without flow: `of_candidate(c)` of a free candidate, `of_absent` of an absent one,
  /// `again(o)` of an operation that runs again, `of_rate(r)` of a rate.
  template <class Candidate, class Again, class Rate>
  void load(const Candidate& of_candidate, max_flow::capacity of_absent, const Again& again, const Rate& of_rate) {
    flow_.clear_flow();
    for (const max_flow::arc a : plain_) flow_.set_capacity(a, max_flow::infinite);
    for (const candidate_tensor& c : candidates_) {
      const max_flow::capacity x = c.fixed == fixing::free     ? of_candidate(c) + of_rate(c.rate)
                                   : c.fixed == fixing::absent ? of_absent
                                                               : of_rate(c.rate);
      if (c.arc != none)
        flow_.set_capacity(c.arc, x);
      else
        flow_.raise_source(c.to, x);
    }
    for (const std::uint32_t o : reached_)
      if (side_[o] == before)
        flow_.set_sink(run_node_[o], again(o));
      else if (side_[o] == open)
        flow_.set_capacity(wait_arc_[wait_node_[o] - first_wait_],
                           ends_schedule() || needed_[o] ? max_flow::infinite : 0, again(o));
    for (const wanted_tensor& x : wanted_) flow_.raise_source(x.node, of_rate(x.rate));
  }

  /// Returns price × bytes of the candidate in the flow's unit, rounded down. The last factor makes up for the three
  /// roundings before it.
  [[nodiscard]] static max_flow::capacity priced(double scaled, const candidate_tensor& c) {
    const double exact = scaled * c.tilt * static_cast<double>(c.bytes) * (1 - 0x1p-51);
    return exact < 0x1p61 ? static_cast<max_flow::capacity>(exact) : max_flow::infinite;
  }

  void load_price(double scaled) {
    const auto in_units = [&](double time) { return static_cast<max_flow::capacity>(std::ldexp(time, exponent_)); };
    load([&](const candidate_tensor& c) { return priced(scaled, c); }, in_units(2 * total_cost_) + 2,
         [&](std::uint32_t o) { return graph_->once[o] ? max_flow::infinite : in_units(graph_->time[o]); }, in_units);
    loaded_price_ = scaled;
  }

  /// Raises the capacities to a higher price, and keeps the flow.
  void raise_price(double scaled) {
    for (const candidate_tensor& c : candidates_) {
      if (c.fixed != fixing::free) continue;
      const max_flow::capacity more = priced(scaled, c) - priced(loaded_price_, c);
      if (c.arc != none)
        flow_.raise_capacity(c.arc, more);
      else
        flow_.raise_source(c.to, more);
    }
    loaded_price_ = scaled;
  }

  segment segment_;
  bool unrepeatable_ = false;
  double total_time_ = 0;
  double total_cost_ = 0;  // the cost with all rates
  double required_bytes_ = 0;
  double loaded_price_ = not_loaded;  // the price of the capacities in `flow_`, in their unit
  double kept_price_ = not_loaded;    // the price of those in `kept_`
  std::vector<std::uint8_t> needed_;  // whether the end of the segment depends on each operation, or is it
  std::vector<candidate_tensor> candidates_;
  std::vector<wanted_tensor> wanted_;
  max_flow::state kept_;
};

}  // namespace REMAT_NAMESPACE::detail
