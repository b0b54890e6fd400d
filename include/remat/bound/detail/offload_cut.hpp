// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
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
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// The most release times that count in one direction.
inline constexpr std::size_t max_releases = 8;

/// The multipliers of an `offload_cut`. All are at least 0; `before` + Σ `out` ≤ 1 and `after` + Σ `in` ≤ 1.
struct offload_multipliers {
  double before = 1;                       ///< multiplier of a unit of time that the operations before the moment take
  double after = 1;                        ///< multiplier of a unit of time that the operations after the moment take
  std::array<double, max_releases> out{};  ///< multipliers of the copies to the host of this release and of later ones
  std::array<double, max_releases> in{};   ///< multipliers of the copies back of this release and of later ones
  double device = 0;                       ///< price of a resident byte, in time
  double host = 0;                         ///< price of a byte on the host, in time
  friend bool operator==(const offload_multipliers&, const offload_multipliers&) = default;
};

/// One choice of what is resident, on the host or made again at a moment.
struct offload_choice {
  double before = 0;                            ///< time of the operations that run before the moment's operation
  double after = 0;                             ///< time of those that run after it, further runs included
  double again = 0;                             ///< time of the further runs
  std::array<double, max_releases> copy_out{};  ///< time of the copies to the host, by release
  std::array<double, max_releases> copy_in{};   ///< time of the copies back, by release
  std::int64_t device_bytes = 0;                ///< bytes of the resident tensors, without the working set
  std::int64_t host_bytes = 0;                  ///< bytes of the tensors that are only on the host
  double penalty = 0;                           ///< penalty for tensors that are held although they are fixed as absent
};

/// A minimum-cut network for one moment, the first run of an operation k, where tensors may be on the host: the
/// network of `moment_cut`, with two differences.
///
/// A tensor that is read after the moment and not computed again is resident or only on the host; the cheaper of both
/// is the capacity of its arc. A tensor with a producer that depends on k cannot be on the host. An operation o that
/// neither precedes nor follows k costs `before` × time(o) if it runs before the moment and `after` × time(o) if it
/// runs after it; the difference is an arc from the source to c(o) or from c(o) to the sink. A further run costs
/// `after` × its time.
///
/// Releases: with `releases(true)`, the tensors that can be on the host are in groups by the time that must pass before
/// their copy out can begin, and by the time that must pass after their copy in. See docs/bounds.md, section 10.
///
/// `at(k)` takes O(operations + reads and writes) time, with releases as much again for each candidate; `price` takes
/// one maximum flow.
class offload_cut : private moment_network {
 public:
  /// `graph` must outlive this object.
  offload_cut(const flat_graph& graph, const host_link& link)
      : moment_network(graph), link_(link), seen_(graph.num_operations, 0) {}

  using moment_network::complete;
  using moment_network::working_set;
  /// Bytes of the tensors that may be resident or not.
  [[nodiscard]] double total_bytes() const noexcept { return total_bytes_; }
  /// Time of all copies of these tensors to the host.
  [[nodiscard]] double total_out() const noexcept { return total_out_; }
  /// Time of all copies of these tensors back.
  [[nodiscard]] double total_in() const noexcept { return total_in_; }
  /// True if some operation that may run after the moment must not run twice.
  [[nodiscard]] bool has_unrepeatable() const {
    return std::any_of(reached_.begin(), reached_.end(), [&](std::uint32_t o) { return graph_->once[o] != 0; });
  }
  /// Time of the moment's operation.
  [[nodiscard]] double own_time() const noexcept { return graph_->time[moment_]; }

  /// Builds the network for the first run of operation `k`, with at most `num_releases` groups in each direction.
  /// Precondition: k is needed; 1 ≤ num_releases ≤ `max_releases`. One release: all tensors are in one group, from time
  /// 0.
  void at(std::uint32_t k, std::size_t num_releases) {
    assert(graph_->needed[k] && num_releases >= 1 && num_releases <= max_releases);
    moment_ = k;
    separate();
    reach();
    connect();
    out_start_.assign(1, 0);
    in_start_.assign(1, 0);
    if (num_releases > 1) find_releases(num_releases);
    limit(static_cast<int>(out_start_.size()) - 1, static_cast<int>(in_start_.size()) - 1);
  }

  /// The tensors with a mark are wanted on the host later: no copy back is counted for them. After `at`.
  void keep_on_host(const std::vector<std::uint8_t>& marks) {
    for (held_tensor& c : held_)
      if (marks[c.tensor] != 0) c.in = 0;
  }

  /// The time from the start of the schedule before which no copy out of each group begins.
  [[nodiscard]] const std::vector<double>& out_starts() const noexcept { return out_start_; }
  /// The time up to the end of the schedule after which no copy in of each group ends.
  [[nodiscard]] const std::vector<double>& in_starts() const noexcept { return in_start_; }
  /// Only tensors of the groups 0 … `out` and 0 … `in` may be on the host; −1: none. `at` ends the limit.
  void limit(int out, int in) {
    out_limit_ = out;
    in_limit_ = in;
  }
  /// True if some set of tensors on the host has `out` and `in` as its latest groups.
  [[nodiscard]] bool occurs(int out, int in) const {
    bool has_out = false, has_in = false;
    for (const held_tensor& c : held_)
      if (c.can_copy && c.out_group <= out && c.in_group <= in) {
        has_out = has_out || c.out_group == out;
        has_in = has_in || c.in_group == in;
      }
    return has_out && has_in;
  }

  /// Branch and bound fixes some of the tensors that may be held (candidates, which count from 0). One on the host, or
  /// on the device, is there and costs its price, read or not. One that is not on the host is on the device or absent.
  /// An absent one is computed again after the moment or not read; at a penalty, it is held nevertheless.
  enum class fixing : std::uint8_t { free, not_on_host, on_host, on_device, absent };
  /// The number of candidates at this moment.
  [[nodiscard]] std::size_t num_candidates() const noexcept { return held_.size(); }
  [[nodiscard]] std::int64_t candidate_bytes(std::size_t i) const { return held_[i].bytes; }
  /// True if candidate `i` may be on the host within the present limit.
  [[nodiscard]] bool may_be_on_host(std::size_t i) const { return may_copy(held_[i]); }
  /// How candidate `i` is fixed now; `free` after `at`.
  [[nodiscard]] fixing fixed(std::size_t i) const { return held_[i].fixed; }
  /// Fixes candidate `i`, or frees it. At most `max_absent` may be absent at a time, and only one that may be on the
  /// host may be fixed there.
  void fix(std::size_t i, fixing f) { held_[i].fixed = f; }
  static constexpr std::size_t max_absent = 256;  ///< see `fix`
  /// Where candidate `i` is in the choice of the last complete flow, each where it is cheaper; absent if it is not
  /// held.
  [[nodiscard]] fixing state_of(std::size_t i) const {
    const held_tensor& c = held_[i];
    if (c.fixed > fixing::not_on_host) return c.fixed;
    if (!is_held(c)) return fixing::absent;
    return device_price(c) <= host_price(c) ? fixing::on_device : fixing::on_host;
  }

  /// Returns the least, over all choices, of the time at these multipliers: own time + before × … + after × … + copies
  /// + bytes. From below: it never exceeds the true least. If `stop()` returns true, the flow ends early, and the value
  /// still never exceeds the true least. Precondition: `device` ≤ `highest_price()`.
  double price(const offload_multipliers& m, const std::function<bool()>& stop = {}) {
    const flat_graph& g = *graph_;
    multipliers_ = m;
    add_up(m.out, sum_out_);
    add_up(m.in, sum_in_);
    flow_.clear_flow();
    for (const max_flow::arc a : plain_) flow_.set_capacity(a, max_flow::infinite);
    const double tilt = m.before - m.after;
    double fixed = own_time() + m.before * time_before_ + m.after * time_after_;
    for (const held_tensor& c : held_) {
      max_flow::capacity x = 0;
      if (c.fixed == fixing::on_host)
        fixed += host_price(c);
      else if (c.fixed == fixing::on_device)
        fixed += device_price(c);
      else
        x = c.fixed == fixing::absent ? std::min(in_units(penalty()), max_flow::capacity{1} << 53)
                                      : in_units(std::min(device_price(c), host_price(c)));
      if (c.arc != none)
        flow_.set_capacity(c.arc, x);
      else
        flow_.raise_source(c.to, x);
    }
    for (const std::uint32_t o : reached_) {
      const max_flow::capacity again = g.once[o] ? max_flow::infinite : in_units(m.after * g.time[o]);
      if (side_[o] == before) {
        flow_.set_sink(run_node_[o], again);
        continue;
      }
      const std::uint32_t w = wait_node_[o];
      flow_.set_capacity(wait_arc_[w - first_wait_], max_flow::infinite, again);
      if (tilt > 0)
        flow_.raise_source(w, in_units(tilt * g.time[o]));
      else
        flow_.set_sink(w, in_units(-tilt * g.time[o]));
      fixed += std::min(m.before, m.after) * g.time[o];
    }
    for (std::size_t i = 0; i < out_start_.size(); ++i) fixed += m.out[i] * out_start_[i];
    for (std::size_t i = 0; i < in_start_.size(); ++i) fixed += m.in[i] * in_start_[i];
    complete_ = flow_.run(stop);
    const double value = std::ldexp(number_below(flow_.value()), -exponent_);
    // All terms are positive: the sum of the roundings is below this part of the sum.
    return (fixed + value) * (1 - 0x1p-52 * (g.num_operations + 512.0));
  }
  /// Returns the least bytes that any choice holds on the device and on the host together, beside the working set,
  /// whatever time it takes. 0 if the tensors have more than 2^60 bytes. `stop` as in `price`.
  std::int64_t least_bytes(const std::function<bool()>& stop = {}) {
    if (total_bytes_ > 0x1p60) return 0;
    flow_.clear_flow();
    for (const max_flow::arc a : plain_) flow_.set_capacity(a, max_flow::infinite);
    for (const held_tensor& c : held_)
      if (c.arc != none)
        flow_.set_capacity(c.arc, c.bytes);
      else
        flow_.raise_source(c.to, c.bytes);
    for (const std::uint32_t o : reached_) {
      const max_flow::capacity again = graph_->once[o] ? max_flow::infinite : 0;
      if (side_[o] == before) {
        flow_.set_sink(run_node_[o], again);
      } else {
        flow_.set_capacity(wait_arc_[wait_node_[o] - first_wait_], max_flow::infinite, again);
        flow_.set_sink(wait_node_[o], 0);
      }
    }
    complete_ = flow_.run(stop);
    return flow_.value();
  }
  /// The largest price of a resident byte for which the integers of the flow cannot overflow.
  [[nodiscard]] double highest_price() const noexcept {
    return std::ldexp(std::ldexp(1.0, 60) / std::max(1.0, total_bytes_), -exponent_);
  }

  /// How the tensors that are not computed again are divided between device and host.
  enum class division : std::uint8_t {
    by_price,   ///< each where it is cheaper
    device,     ///< all on the device
    host,       ///< all that may be on the host is there
    room_first  ///< the device is filled first with what is read soonest
  };

  /// Returns the choice of the last complete flow, with its tensors divided by `how`. `room`: bytes on the device for
  /// `room_first`.
  [[nodiscard]] offload_choice choice(division how, std::int64_t room = 0) const {
    offload_choice c;
    c.before = time_before_;
    c.after = time_after_;
    for (const std::uint32_t o : reached_) {
      const bool runs = !flow_.reaches_sink(run_node_[o]);
      const bool ran = side_[o] == before || flow_.reaches_sink(wait_node_[o]);
      if (side_[o] == open) (ran ? c.before : c.after) += graph_->time[o];
      if (runs && ran) c.again += graph_->time[o];
    }
    c.after += c.again;
    for (const held_tensor& x : held_)
      if (x.fixed == fixing::absent && is_held(x)) c.penalty += penalty();
    divide(how, room, [&](const held_tensor& x, bool on_device) {
      if (on_device) {
        c.device_bytes += x.bytes;
      } else {
        c.host_bytes += x.bytes;
        for (int i = 0; i <= x.out_group; ++i) c.copy_out[static_cast<std::size_t>(i)] += x.out;
        for (int i = 0; i <= x.in_group; ++i) c.copy_in[static_cast<std::size_t>(i)] += x.in;
      }
    });
    return c;
  }

  /// Appends the resident tensors of this choice beside the working set, and those on the host, ascending.
  void tensors(division how, std::int64_t room, std::vector<tensor_id>& device, std::vector<tensor_id>& host) const {
    divide(how, room, [&](const held_tensor& x, bool on_device) {
      (on_device ? device : host).push_back(static_cast<tensor_id>(x.tensor));
    });
    std::sort(device.begin(), device.end());
    std::sort(host.begin(), host.end());
  }
  /// Returns the operations that this choice runs again, ascending.
  [[nodiscard]] std::vector<op_id> again() const {
    std::vector<op_id> list;
    for (const std::uint32_t o : reached_)
      if (!flow_.reaches_sink(run_node_[o]) && (side_[o] == before || flow_.reaches_sink(wait_node_[o])))
        list.push_back(static_cast<op_id>(o));
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  struct held_tensor {
    std::uint32_t tensor;
    std::uint32_t arc;  // `none` for an arc from the source
    std::uint32_t from, to;
    std::int64_t bytes;
    double out, in;  // the times of its copies
    bool can_copy;
    fixing fixed = fixing::free;
    int out_group = 0, in_group = 0;
    double release = 0, tail = 0;
  };

  [[nodiscard]] bool may_copy(const held_tensor& c) const {
    return c.can_copy && c.out_group <= out_limit_ && c.in_group <= in_limit_;
  }
  [[nodiscard]] double device_price(const held_tensor& c) const {
    return multipliers_.device * static_cast<double>(c.bytes);
  }
  [[nodiscard]] double host_price(const held_tensor& c) const {
    if (!may_copy(c) || c.fixed == fixing::not_on_host) return std::numeric_limits<double>::infinity();
    return sum_out_[static_cast<std::size_t>(c.out_group)] * c.out +
           sum_in_[static_cast<std::size_t>(c.in_group)] * c.in + multipliers_.host * static_cast<double>(c.bytes);
  }
  /// Returns a time in the flow's unit, rounded down. The factor makes up for up to eight roundings before it.
  [[nodiscard]] max_flow::capacity in_units(double time) const {
    const double exact = std::ldexp(time * (1 - 0x1p-49), exponent_);
    if (!(exact >= 0)) return 0;
    return exact < 0x1p61 ? static_cast<max_flow::capacity>(exact) : max_flow::infinite;
  }
  /// More than the time of everything that could run again.
  [[nodiscard]] double penalty() const { return 2 * total_time_; }
  static void add_up(const std::array<double, max_releases>& each, std::array<double, max_releases>& sums) {
    double sum = 0;
    for (std::size_t i = 0; i < max_releases; ++i) sums[i] = sum += each[i];
  }

  [[nodiscard]] bool is_held(const held_tensor& c) const {
    return flow_.reaches_sink(c.to) && (c.arc == none || !flow_.reaches_sink(c.from));
  }
  /// Calls `visit(tensor, on_device)` for each tensor that the last flow does not compute again.
  template <class Visit>
  void divide(division how, std::int64_t room, Visit&& visit) const {
    const auto must_stay = [&](const held_tensor& c) {
      return !may_copy(c) || c.fixed == fixing::not_on_host || c.fixed == fixing::on_device;
    };
    std::vector<const held_tensor*> list;  // the tensors that `room` decides about
    for (const held_tensor& c : held_) {
      if (c.fixed == fixing::absent || (c.fixed <= fixing::not_on_host && !is_held(c))) continue;
      if (must_stay(c)) {
        room -= c.bytes;
        visit(c, true);
      } else if (c.fixed == fixing::on_host) {
        visit(c, false);
      } else if (how == division::room_first) {
        list.push_back(&c);
      } else {
        visit(c, how == division::device || (how == division::by_price && device_price(c) <= host_price(c)));
      }
    }
    std::stable_sort(list.begin(), list.end(),
                     [&](const held_tensor* x, const held_tensor* y) { return next_read(*x) < next_read(*y); });
    for (const held_tensor* c : list) {
      const bool on_device = c->bytes <= room;
      if (on_device) room -= c->bytes;
      visit(*c, on_device);
    }
  }
  /// The first operation of D in the listed order that reads the tensor.
  [[nodiscard]] std::uint32_t next_read(const held_tensor& c) const {
    for (const std::uint32_t o : graph_->consumers[c.tensor])
      if (side_[o] == after && graph_->needed[o]) return o;
    return graph_->num_operations;
  }

  /// Finds the operations that some choice runs after the moment, and gives them nodes.
  void reach() {
    const flat_graph& g = *graph_;
    clear_reached();
    time_before_ = time_after_ = 0;
    const auto run_later = [&](std::uint32_t o) {
      if (run_node_[o] != none || side_[o] == after) return;
      add_run_node(o);
    };
    const auto read_later = [&](std::uint32_t t, std::uint8_t how) {
      return moment_network::read_later(t, how, run_later);
    };
    for (const std::uint32_t t : g.final_outputs) read_later(t, required);
    double total = graph_->time[moment_];
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      if (!g.needed[o]) continue;
      total += g.time[o];
      if (side_[o] == after) {
        time_after_ += g.time[o];
        for (const std::uint32_t t : g.inputs[o]) read_later(t, required);
      } else if (side_[o] == open) {
        run_later(o);
      } else if (o != moment_) {
        time_before_ += g.time[o];
      }
    }
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      const std::uint32_t o = reached_[i];
      if (side_[o] == before && g.once[o]) continue;  // never runs after the moment
      for (const std::uint32_t t : g.inputs[o])
        if (read_later(t, touched)) ++readers_[t];
    }
    add_wait_nodes();
    // Whole times stay exact, and no sum overflows.
    exponent_ = total > 0 ? 50 - std::ilogb(total) : 0;
    total_time_ = total;
  }

  /// Builds the nodes of tensors, and all arcs.
  void connect() {
    flow_.reset(nodes_);
    held_.clear();
    plain_.clear();
    wait_arc_.clear();
    total_bytes_ = total_out_ = total_in_ = 0;
    for (const std::uint32_t t : touched_) connect_tensor(t);
    for (const std::uint32_t o : reached_)
      if (side_[o] == open) connect_waiting(o);
    flow_.finish();
  }

  void connect_tensor(std::uint32_t t) {
    const flat_graph& g = *graph_;
    const auto producers = g.producers[t];
    // A tensor that an operation of D writes is not whole at the moment.
    const bool can_copy =
        std::none_of(producers.begin(), producers.end(), [&](std::uint32_t p) { return side_[p] == after; });
    const std::uint32_t computed = connect_producers(t);  // the node w(t)
    const double out = link_.time_out(g.bytes[t]), in = link_.time_in(g.bytes[t]);
    total_bytes_ += static_cast<double>(g.bytes[t]);
    total_out_ += out;
    total_in_ += in;
    std::uint32_t read = none, arc = none;  // the node q(t)
    if (!(mark_[t] & required)) {
      read = connect_readers(t, readers_[t] > 1);
      arc = flow_.add_arc(read, computed);
    }
    held_.push_back({t, arc, read, computed, g.bytes[t], out, in, can_copy});
  }

  /// Returns the time of the operations in `work_` and of all that `next` reaches from them.
  double time_of_closure(const index_rows& edges, const index_rows& next) {
    const flat_graph& g = *graph_;
    double sum = 0;
    ++round_;
    for (const std::uint32_t o : work_) seen_[o] = round_;
    while (!work_.empty()) {
      const std::uint32_t o = work_.back();
      work_.pop_back();
      sum += g.time[o];
      for (const std::uint32_t t : edges[o])
        for (const std::uint32_t n : next[t])
          if (g.needed[n] && seen_[n] != round_) {
            seen_[n] = round_;
            work_.push_back(n);
          }
    }
    return sum;
  }

  /// Puts the tensors that can be copied into groups by release and by tail.
  void find_releases(std::size_t count) {
    const flat_graph& g = *graph_;
    for (held_tensor& c : held_) {
      if (!c.can_copy) continue;
      work_.assign(g.producers[c.tensor].begin(), g.producers[c.tensor].end());
      c.release = time_of_closure(g.inputs, g.producers);
      work_.clear();
      for (const std::uint32_t o : g.consumers[c.tensor])
        if (side_[o] == after && g.needed[o]) work_.push_back(o);
      c.tail = time_of_closure(g.outputs, g.consumers);
    }
    group(count, &held_tensor::release, &held_tensor::out_group, out_start_);
    group(count, &held_tensor::tail, &held_tensor::in_group, in_start_);
  }
  void group(std::size_t count, double held_tensor::*time, int held_tensor::*group, std::vector<double>& starts) {
    std::vector<double> times;
    for (const held_tensor& c : held_)
      if (c.can_copy) times.push_back(c.*time);
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    if (times.empty()) return;
    starts.clear();
    const std::size_t groups = std::min(count, times.size());
    for (std::size_t i = 0; i < groups; ++i) starts.push_back(times[i * times.size() / groups]);
    for (held_tensor& c : held_)
      if (c.can_copy)
        c.*group = static_cast<int>(std::upper_bound(starts.begin(), starts.end(), c.*time) - starts.begin()) - 1;
  }

  host_link link_;
  double time_before_ = 0, time_after_ = 0;  // times of A without k, and of the needed operations of D
  double total_time_ = 0;                    // the time of all needed operations, that of k twice
  double total_bytes_ = 0, total_out_ = 0, total_in_ = 0;
  int out_limit_ = 0, in_limit_ = 0;
  std::uint32_t round_ = 0;
  std::vector<std::uint32_t> seen_;
  std::vector<held_tensor> held_;
  std::vector<double> out_start_, in_start_;
  offload_multipliers multipliers_;
  std::array<double, max_releases> sum_out_{}, sum_in_{};
};

}  // namespace REMAT_NAMESPACE::detail
