// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/simplify.hpp"

#include <algorithm>
#include <cstddef>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE schedule listed_order(const problem& p) {
  const flat_graph& g = p.graph();
  std::vector<std::uint32_t> left(g.num_tensors, 0);  // reads and writes still to come
  for (std::size_t t = 0; t < g.num_tensors; ++t)
    left[t] = static_cast<std::uint32_t>(g.producers[t].size() + g.consumers[t].size());
  schedule out;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    out.compute(static_cast<op_id>(o));
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (--left[t] == 0 && !g.final_output[t]) out.free(static_cast<tensor_id>(t));
  }
  return out;
}

REMAT_INLINE schedule schedule_computes(const flat_graph& g, std::span<const std::uint32_t> operations) {
  // Goes backwards. A tensor is live if a later step reads it, or it is a final output. While a tensor is live, each of
  // its writes is open until the run that supplies it has been met.
  std::vector<std::uint8_t> live(g.final_output);
  std::vector<std::uint8_t> open(g.outputs.values.size(), 0);
  std::vector<std::uint32_t> open_writes(g.num_tensors, 0);
  // Position in `producers.values` → position of the same write in `outputs.values`.
  std::vector<std::uint32_t> write_of(g.outputs.values.size());
  {
    std::vector<std::uint32_t> next(g.producers.begin.begin(), g.producers.begin.end() - 1);
    for (std::uint32_t w = 0; w < g.outputs.values.size(); ++w) write_of[next[g.outputs.values[w]]++] = w;
  }
  const auto make_live = [&](std::uint32_t t) {
    live[t] = 1;
    open_writes[t] = g.producers.begin[t + 1] - g.producers.begin[t];
    for (std::uint32_t i = g.producers.begin[t]; i < g.producers.begin[t + 1]; ++i) open[write_of[i]] = 1;
  };
  for (const std::uint32_t t : g.final_outputs) make_live(t);

  schedule plan;
  plan.steps.reserve(operations.size() * 2);
  for (std::size_t i = operations.size(); i-- > 0;) {
    const std::uint32_t o = operations[i];
    bool useful = g.has_effect(o);
    for (std::uint32_t w = g.outputs.begin[o]; w < g.outputs.begin[o + 1]; ++w) useful = useful || open[w];
    if (!useful) continue;
    for (std::uint32_t w = g.outputs.begin[o]; w < g.outputs.begin[o + 1]; ++w) {
      const std::uint32_t t = g.outputs.values[w];
      if (open[w]) {
        open[w] = 0;
        if (--open_writes[t] == 0) live[t] = 0;
      } else if (!live[t]) {
        plan.free(static_cast<tensor_id>(t));  // no later step reads this output
      }
    }
    for (const std::uint32_t t : g.inputs[o])
      if (!live[t]) {
        make_live(t);
        plan.free(static_cast<tensor_id>(t));
      }
    plan.compute(static_cast<op_id>(o));
  }
  std::reverse(plan.steps.begin(), plan.steps.end());
  return plan;
}

REMAT_INLINE std::vector<std::uint32_t> computes_of(const schedule& plan) {
  std::vector<std::uint32_t> operations;
  operations.reserve(plan.steps.size());
  for (const step& s : plan.steps)
    if (s.is_compute()) operations.push_back(static_cast<std::uint32_t>(index(s.operation())));
  return operations;
}

namespace detail::simplifying {

/// `simplify` for a schedule with copies. Goes backwards, like `schedule_computes`. The value of a tensor lives from
/// the compute or the prefetch that supplies it to its last reader.
class backward_pass {
 public:
  explicit backward_pass(const flat_graph& g) : graph_(g), values_(g.num_tensors), open_(g.outputs.values.size(), 0) {
    for (const std::uint32_t t : g.final_outputs) make_live(t);
  }

  schedule run(std::span<const step> steps) {
    for (std::size_t i = steps.size(); i-- > 0;) {
      const step x = steps[i];
      switch (x.kind()) {
        case step_kind::compute:
          compute(static_cast<std::uint32_t>(index(x.operation())));
          break;
        case step_kind::free:
          leave_out(value_of(x).listed_free);  // nothing that is kept makes what it would free
          value_of(x).listed_free = add(x);
          break;
        case step_kind::offload:
          offload(x);
          break;
        case step_kind::prefetch:
          prefetch(x);
          break;
        case step_kind::drop:
          value_of(x).listed_drop = add(x);
          break;
      }
    }
    for (value& v : values_) leave_out(v.listed_free);
    schedule plan;
    for (std::size_t i = out_.size(); i-- > 0;)
      if (left_out_[i] == 0) plan.steps.push_back(out_[i]);
    return plan;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// The present value of a tensor, and where steps of it stand in `out_`.
  struct value {
    bool live = false;               // a later step reads it
    bool copied_out = false;         // an offload that is kept copies it out
    bool on_host = false;            // a later prefetch reads the copy on the host
    std::uint32_t open = 0;          // writes whose run has not been met
    std::size_t early_free = none;   // the place right behind the last reader
    std::size_t listed_free = none;  // the place where the schedule has it
    std::size_t listed_drop = none;
  };

  value& value_of(step x) { return values_[index(x.tensor())]; }

  std::size_t add(step x) {
    out_.push_back(x);
    left_out_.push_back(0);
    return out_.size() - 1;
  }
  void leave_out(std::size_t& place) {
    if (place != none) left_out_[place] = 1;
    place = none;
  }
  std::uint8_t& open_write(std::uint32_t o, std::uint32_t t) {
    const auto row = graph_.outputs[o];  // ascending
    return open_[graph_.outputs.begin[o] +
                 static_cast<std::size_t>(std::lower_bound(row.begin(), row.end(), t) - row.begin())];
  }
  void make_live(std::uint32_t t) {
    values_[t].live = true;
    values_[t].open = static_cast<std::uint32_t>(graph_.producers[t].size());
    for (const std::uint32_t o : graph_.producers[t]) open_write(o, t) = 1;
  }
  /// A step that is kept reads the tensor.
  void read(std::uint32_t t) {
    if (values_[t].live) return;
    make_live(t);
    values_[t].early_free = add(step::free(static_cast<tensor_id>(t)));
  }
  /// The value begins here: keeps one of its two frees.
  void begin(std::uint32_t t) {
    value& v = values_[t];
    leave_out(v.copied_out ? v.early_free : v.listed_free);
    v.live = v.copied_out = false;
    v.early_free = v.listed_free = none;
  }

  void compute(std::uint32_t o) {
    const flat_graph& g = graph_;
    const auto first = open_.begin() + g.outputs.begin[o], last = open_.begin() + g.outputs.begin[o + 1];
    if (!g.has_effect(o) && std::find(first, last, 1) == last) return;
    for (std::uint32_t w = g.outputs.begin[o]; w < g.outputs.begin[o + 1]; ++w) {
      const std::uint32_t t = g.outputs.values[w];
      if (open_[w] != 0) {
        open_[w] = 0;
        if (--values_[t].open == 0) begin(t);
      } else if (!values_[t].live) {
        values_[t].early_free = add(step::free(static_cast<tensor_id>(t)));  // no later step reads this output
        begin(t);
      }
    }
    for (const std::uint32_t t : g.inputs[o]) read(t);
    add(step::compute(static_cast<op_id>(o)));
  }

  void offload(step x) {
    value& v = value_of(x);
    if (!v.on_host) return leave_out(v.listed_drop);
    v.on_host = false;
    v.listed_drop = none;
    read(static_cast<std::uint32_t>(index(x.tensor())));
    v.copied_out = true;
    add(x);
  }

  void prefetch(step x) {
    const auto t = static_cast<std::uint32_t>(index(x.tensor()));
    value& v = values_[t];
    if (!v.live) return leave_out(v.listed_free);
    for (const std::uint32_t o : graph_.producers[t]) open_write(o, t) = 0;
    begin(t);
    v.on_host = true;
    add(x);
  }

  const flat_graph& graph_;
  std::vector<value> values_;       // each tensor's value
  std::vector<std::uint8_t> open_;  // write of `outputs.values` → it is open
  std::vector<step> out_;           // the steps in reverse
  std::vector<std::uint8_t> left_out_;
};

}  // namespace detail::simplifying

REMAT_INLINE schedule simplify(const problem& p, const schedule& plan) {
  if (!plan.has_copies()) return schedule_computes(p, computes_of(plan));
  return detail::simplifying::backward_pass(p.graph()).run(plan.steps);
}

}  // namespace REMAT_NAMESPACE
