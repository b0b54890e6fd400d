// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/bound/detail/moment_cut.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace remat::detail {

REMAT_INLINE void moment_cut::at(std::uint32_t k) {
  assert(graph_->needed[k]);
  moment_ = k;
  separate();
  reach();
  connect();
  mode_ = mode::unset;
}

REMAT_INLINE double moment_cut::price(double price, const std::function<bool()>& stop) {
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
  complete_ = stop ? flow_.run(stop) : flow_.run();
  const double value = std::ldexp(static_cast<double>(flow_.value()), -exponent_);
  return std::max(0.0, std::nextafter(value, 0.0));
}

REMAT_INLINE void moment_cut::fix(std::size_t i, fixing f) {
  priced_[i].fixed = f;
  mode_ = mode::unset;
  kept_price_ = -1;
}

REMAT_INLINE void moment_cut::keep() {
  flow_.save(kept_);
  kept_price_ = scaled_price_;
}

REMAT_INLINE std::int64_t moment_cut::least_bytes(const std::function<bool()>& stop) {
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
    const max_flow::capacity again = graph_->once[o] ? max_flow::infinite : 0;
    if (side_[o] == before)
      flow_.set_sink(run_node_[o], again);
    else
      flow_.set_capacity(wait_arc_[wait_index(o)], max_flow::infinite, again);
  }
  mode_ = mode::bytes;
  complete_ = stop ? flow_.run(stop) : flow_.run();
  return flow_.value() << shift;
}

REMAT_INLINE moment_choice moment_cut::choice() const {
  moment_choice c;
  for (const priced& p : priced_)
    if (p.fixed == fixing::free && is_resident(p)) c.bytes += p.bytes;
  for (const std::uint32_t o : reached_)
    if (runs_again(o)) c.time += graph_->time[o];
  return c;
}

REMAT_INLINE std::vector<tensor_id> moment_cut::resident() const {
  std::vector<tensor_id> kept;
  for (const priced& p : priced_)
    if (is_resident(p)) kept.push_back(static_cast<tensor_id>(p.tensor));
  std::sort(kept.begin(), kept.end());
  return kept;
}

REMAT_INLINE std::vector<op_id> moment_cut::again() const {
  std::vector<op_id> list;
  for (const std::uint32_t o : reached_)
    if (runs_again(o)) list.push_back(static_cast<op_id>(o));
  std::sort(list.begin(), list.end());
  return list;
}

REMAT_INLINE void moment_cut::separate() {
  const flat_graph& g = *graph_;
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
  spread(before, g.inputs, g.producers);
  std::fill(mark_.begin(), mark_.end(), std::uint8_t{0});
  spread(after, g.outputs, g.consumers);
  std::fill(mark_.begin(), mark_.end(), std::uint8_t{0});
  working_set_ = working_set_bytes(g, moment_);
  for (const auto* rows : {&g.inputs, &g.outputs})
    for (const std::uint32_t t : (*rows)[moment_]) mark_[t] |= own;
}

REMAT_INLINE void moment_cut::reach() {
  const flat_graph& g = *graph_;
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
    if ((mark_[t] & own) || g.bytes[t] == 0) return false;
    if (!(mark_[t] & (touched | required))) {
      bool computed_here = false;  // otherwise D computes t, after the moment anyway
      for (const std::uint32_t p : g.producers[t]) computed_here = computed_here || side_[p] != after;
      if (!computed_here) return false;
      readers_[t] = 0;
      touched_.push_back(t);
      for (const std::uint32_t p : g.producers[t]) run_later(p);
    }
    mark_[t] |= how;
    return true;
  };
  for (const std::uint32_t t : g.final_outputs) read_later(t, required);
  for (std::uint32_t o = moment_ + 1; o < g.num_operations; ++o)
    if (side_[o] == after && g.needed[o])
      for (const std::uint32_t t : g.inputs[o]) read_later(t, required);
  for (std::size_t i = 0; i < reached_.size(); ++i) {
    const std::uint32_t o = reached_[i];
    if (g.once[o]) unrepeatable_ = true;
    if (side_[o] == before && g.once[o]) continue;  // never runs after the moment
    if (!g.once[o]) total_time_ += g.time[o];
    for (const std::uint32_t t : g.inputs[o])
      if (read_later(t, touched)) ++readers_[t];
    if (side_[o] == open)
      for (const std::uint32_t t : g.outputs[o])
        for (const std::uint32_t reader : g.consumers[t])
          if (g.needed[reader]) run_later(reader);
  }
  first_wait_ = nodes_;
  for (const std::uint32_t o : reached_)
    if (side_[o] == open) wait_node_[o] = nodes_++;
  for (const std::uint32_t t : touched_)
    if (mark_[t] & required) required_bytes_ += static_cast<double>(g.bytes[t]);
  // Whole times stay exact, and no sum overflows.
  exponent_ = total_time_ > 0 ? 50 - std::ilogb(total_time_) : 0;
}

REMAT_INLINE void moment_cut::connect() {
  flow_.reset(nodes_);
  priced_.clear();
  plain_.clear();
  wait_arc_.clear();
  for (const std::uint32_t t : touched_) connect_tensor(t);
  for (const std::uint32_t o : reached_)
    if (side_[o] == open) connect_waiting(o);
  flow_.finish();
  kept_price_ = -1;
}

REMAT_INLINE void moment_cut::connect_tensor(std::uint32_t t) {
  const flat_graph& g = *graph_;
  std::uint32_t producers = 0, computed = none;  // the node w(t)
  for (const std::uint32_t p : g.producers[t])
    if (side_[p] != after) {
      ++producers;
      computed = run_node_[p];
    }
  if (producers > 1) {
    computed = flow_.add_node();
    for (const std::uint32_t p : g.producers[t])
      if (side_[p] != after) plain_.push_back(flow_.add_arc(computed, run_node_[p]));
  }
  if (mark_[t] & required) {
    priced_.push_back({t, none, none, computed, g.bytes[t], fixing::free});
    return;
  }
  std::uint32_t read = none;  // the node q(t)
  if (readers_[t] > 1) read = flow_.add_node();
  for (const std::uint32_t reader : g.consumers[t]) {
    if (run_node_[reader] == none || (side_[reader] == before && g.once[reader])) continue;
    if (readers_[t] > 1)
      plain_.push_back(flow_.add_arc(run_node_[reader], read));
    else
      read = run_node_[reader];
  }
  const std::uint32_t arc = flow_.add_arc(read, computed);
  priced_.push_back({t, arc, read, computed, g.bytes[t], fixing::free});
}

REMAT_INLINE void moment_cut::connect_waiting(std::uint32_t o) {
  const flat_graph& g = *graph_;
  wait_arc_.push_back(flow_.add_arc(wait_node_[o], run_node_[o]));
  for (const std::uint32_t t : g.outputs[o]) {
    if (mark_[t] & ordered) continue;
    mark_[t] |= ordered;
    // Each producer that has not run implies that no reader has run. Where both are several, one node stands between.
    const bool several = g.producers[t].size() > 1 && g.consumers[t].size() > 1;
    const std::uint32_t middle = several ? flow_.add_node() : none;
    for (const std::uint32_t p : g.producers[t]) {
      if (wait_node_[p] == none) continue;
      if (several) {
        plain_.push_back(flow_.add_arc(wait_node_[p], middle));
      } else {
        for (const std::uint32_t reader : g.consumers[t])
          if (wait_node_[reader] != none) plain_.push_back(flow_.add_arc(wait_node_[p], wait_node_[reader]));
      }
    }
    if (several)
      for (const std::uint32_t reader : g.consumers[t])
        if (wait_node_[reader] != none) plain_.push_back(flow_.add_arc(middle, wait_node_[reader]));
  }
}

REMAT_INLINE void moment_cut::set_structure() {
  for (const max_flow::arc a : plain_) flow_.set_capacity(a, max_flow::infinite);
}

REMAT_INLINE max_flow::capacity moment_cut::priced_capacity(double scaled, const priced& p) const {
  if (p.fixed == fixing::resident) return 0;
  if (p.fixed == fixing::absent) return static_cast<max_flow::capacity>(std::ldexp(2 * total_time_, exponent_)) + 2;
  // The factor makes up for the three roundings before it.
  const double exact = scaled * static_cast<double>(p.bytes) * (1 - 0x1p-51);
  return exact < 0x1p61 ? static_cast<max_flow::capacity>(exact) : max_flow::infinite;
}

REMAT_INLINE void moment_cut::load(double scaled) {
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
        graph_->once[o] ? max_flow::infinite : static_cast<max_flow::capacity>(std::ldexp(graph_->time[o], exponent_));
    if (side_[o] == before)
      flow_.set_sink(run_node_[o], time);
    else
      flow_.set_capacity(wait_arc_[wait_index(o)], max_flow::infinite, time);
  }
  scaled_price_ = scaled;
  mode_ = mode::priced;
}

REMAT_INLINE void moment_cut::raise(double scaled) {
  for (const priced& p : priced_) {
    const max_flow::capacity more = priced_capacity(scaled, p) - priced_capacity(scaled_price_, p);
    if (p.arc != none)
      flow_.raise_capacity(p.arc, more);
    else
      flow_.raise_source(p.to, more);
  }
  scaled_price_ = scaled;
}

}  // namespace remat::detail
