// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/detail/stage_chain.hpp"

#include <set>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace remat::detail {

REMAT_INLINE stage_chain::stage_chain(const flat_graph& g, const forward_line& line, const cut_list& cuts,
                                      stage_order order)
    : graph_(g), order_(order) {
  assign_stages(line, cuts);
  mark_once(line);
  find_last_uses();
  find_standing_and_transient();

  const std::size_t rows = std::size_t{length_} + 1;
  for (auto* times : {&fast_time_, &forward_time_, &last_forward_time_, &backward_time_}) times->assign(rows, 0);
  for (auto* bytes :
       {&transient_, &gradient_, &fast_peak_, &forward_peak_, &last_forward_peak_, &backward_peak_, &outputs_})
    bytes->assign(rows, 0);
  reads_none_.assign(rows, 1);
  crossing_.assign(rows * rows, 0);
  saved_.assign(rows * rows, 0);
  wanted_.assign(graph_.num_tensors, 0);
  number_.assign(graph_.num_tensors, nowhere);
  runs_.assign(rows, {});
  ordered_backward_.assign(rows, {});
  measure_tensors();
  measure_gradients();
  for (std::uint32_t s = 1; s <= length_; ++s) measure_stage(s);
  find_idle_backwards();
}

REMAT_INLINE void stage_chain::assign_stages(const forward_line& line, const cut_list& cuts) {
  length_ = static_cast<std::uint32_t>(cuts.size() + 1);
  forward_.assign(length_ + 1, {});
  backward_.assign(length_ + 1, {});
  stage_.assign(graph_.num_operations, nowhere);
  is_forward_.assign(graph_.num_operations, 0);
  made_.assign(graph_.num_tensors, nowhere);
  std::uint32_t stage = 1;
  for (std::uint32_t i = 0; i < line.operations.size(); ++i) {
    if (stage <= cuts.size() && cuts[stage - 1] == i) ++stage;
    const std::uint32_t o = line.operations[i];
    stage_[o] = stage;
    is_forward_[o] = 1;
    forward_[stage].push_back(o);
    for (const std::uint32_t t : graph_.outputs[o]) made_[t] = made_[t] == nowhere ? stage : std::max(made_[t], stage);
  }
  // The highest stage that makes or reads a tensor.
  std::vector<std::uint32_t> highest(graph_.num_tensors, 0);
  for (const std::uint32_t o : line.operations) {
    for (const std::uint32_t t : graph_.inputs[o]) highest[t] = std::max(highest[t], stage_[o]);
    for (const std::uint32_t t : graph_.outputs[o]) highest[t] = std::max(highest[t], stage_[o]);
  }
  for (const std::uint32_t o : line.rest) {
    std::uint32_t from_forward = 0, from_gradients = length_;
    for (const std::uint32_t t : graph_.inputs[o]) {
      from_forward = std::max(from_forward, highest[t]);
      for (const std::uint32_t maker : graph_.producers[t])
        if (!is_forward_[maker] && stage_[maker] != nowhere) from_gradients = std::min(from_gradients, stage_[maker]);
    }
    stage_[o] = from_forward == 0 ? from_gradients : std::min(from_forward, from_gradients);
    backward_[stage_[o]].push_back(o);
  }
}

// Either all producers of a tensor run again or none does.
REMAT_INLINE void stage_chain::mark_once(const forward_line& line) {
  once_.assign(graph_.num_operations, 0);
  for (const std::uint32_t o : line.operations) once_[o] = graph_.once[o] != 0;
  for (const std::uint32_t o : line.rest) once_[o] = 1;
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::uint32_t o : line.operations)
      for (const std::uint32_t t : graph_.outputs[o]) {
        if (once_[o] || graph_.producers[t].size() < 2) continue;
        for (const std::uint32_t other : graph_.producers[t])
          if (graph_.needed[other] && (once_[other] || stage_[other] != stage_[o])) once_[o] = 1;
        changed = changed || once_[o];
      }
  }
}

REMAT_INLINE void stage_chain::find_last_uses() {
  last_.assign(graph_.num_tensors, 0);
  backward_reader_.assign(graph_.num_tensors, 0);
  gradient_end_.assign(graph_.num_tensors, nowhere);
  first_read_.assign(graph_.num_tensors, nowhere);
  for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
    if (graph_.producers[t].empty()) continue;
    for (const std::uint32_t o : graph_.consumers[t]) {
      if (stage_[o] == nowhere) continue;
      if (made_[t] != nowhere) last_[t] = std::max(last_[t], stage_[o]);
      if (is_forward_[o]) {
        if (stage_[o] > made_[t]) first_read_[t] = std::min(first_read_[t], stage_[o]);
      } else {
        backward_reader_[t] = 1;
        gradient_end_[t] = std::min(gradient_end_[t], stage_[o]);
      }
    }
  }
}

REMAT_INLINE void stage_chain::find_standing_and_transient() {
  standing_tensor_.assign(graph_.num_tensors, 0);
  transient_tensor_.assign(graph_.num_tensors, 0);
  for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
    if (made_[t] == nowhere) continue;
    bool made_once = true, read_again = false;  // read by a backward, or by a forward operation that may run again
    for (const std::uint32_t o : graph_.producers[t]) made_once = made_once && (stage_[o] == nowhere || once_[o]);
    for (const std::uint32_t o : graph_.consumers[t])
      read_again = read_again || (stage_[o] != nowhere && (!is_forward_[o] || !once_[o]));
    standing_tensor_[t] = graph_.final_output[t] || (made_once && read_again);
    transient_tensor_[t] =
        !standing_tensor_[t] && !backward_reader_[t] && (first_read_[t] == nowhere || first_read_[t] == last_[t]);
  }
}

REMAT_INLINE void stage_chain::measure_tensors() {
  const std::size_t rows = std::size_t{length_} + 1;
  for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
    if (made_[t] == nowhere) continue;
    if (standing_tensor_[t]) {
      standing_ += graph_.bytes[t];
      continue;
    }
    // At first, crossing_[s, j] is the bytes that stage s makes and stage j reads last.
    if (last_[t] > made_[t]) crossing_[made_[t] * rows + last_[t]] += graph_.bytes[t];
    if (transient_tensor_[t]) {
      transient_[made_[t]] += graph_.bytes[t];
      transient_[std::max(made_[t], last_[t])] -= graph_.bytes[t];
    } else {
      saved_[made_[t] * rows + saved_from(t)] += graph_.bytes[t];
    }
  }
  for (std::uint32_t s = 1; s <= length_; ++s) transient_[s] += transient_[s - 1];
  for (std::uint32_t s = 1; s <= length_; ++s)
    for (std::uint32_t t = s + 1; t <= length_; ++t) saved_[s * rows + t] += saved_[s * rows + t - 1];
  for (std::uint32_t s = length_; s >= 1; --s) {
    std::int64_t behind = 0;  // made by s, last read behind j
    for (std::uint32_t j = length_; j >= s; --j) {
      const std::int64_t ends = crossing_[s * rows + j];
      crossing_[s * rows + j] = behind + (s < j ? crossing_[(s + 1) * rows + j] : 0);
      behind += ends;
    }
  }
}

// A gradient waits from the stage whose backward makes it down to the last stage that reads it. A tensor that a forward
// makes for the backward of an earlier stage waits in the same way.
REMAT_INLINE void stage_chain::measure_gradients() {
  std::vector<std::int64_t> change(std::size_t{length_} + 2, 0);
  for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
    if (graph_.producers[t].empty() || graph_.final_output[t] || standing_tensor_[t]) continue;
    const std::uint32_t from = highest_maker(t);
    if (from == 0 || gradient_end_[t] == nowhere || gradient_end_[t] >= from) continue;
    change[gradient_end_[t]] += graph_.bytes[t];
    change[from] -= graph_.bytes[t];
  }
  std::int64_t waiting = 0;
  for (std::uint32_t s = 0; s <= length_; ++s) gradient_[s] = waiting += change[s];
}

REMAT_INLINE void stage_chain::measure_stage(std::uint32_t s) {
  for (const purpose why : {purpose::crossing, purpose::all, purpose::own_backward}) choose_runs(s, why);
  fast_peak_[s] = order_forward(s, purpose::crossing);
  forward_peak_[s] = order_forward(s, purpose::all);
  last_forward_peak_[s] = order_forward(s, purpose::own_backward);
  fast_time_[s] = time_of(s, purpose::crossing, true);
  forward_time_[s] = time_of(s, purpose::all, true);
  last_forward_time_[s] = time_of(s, purpose::own_backward, true);
  standing_time_ += time_of(s, s < length_ ? purpose::crossing : purpose::all, false);
  backward_peak_[s] = order_backward(s);
  for (const std::uint32_t o : backward_[s]) backward_time_[s] += graph_.time[o];
}

REMAT_INLINE void stage_chain::find_idle_backwards() {
  for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
    if (made_[t] == nowhere || standing_tensor_[t] || !backward_reader_[t]) continue;
    reads_none_[made_[t]] = reads_none_[made_[t]] && gradient_end_[t] > made_[t];
    for (const std::uint32_t o : graph_.consumers[t])
      if (stage_[o] != nowhere && !is_forward_[o]) reads_none_[stage_[o]] = 0;
  }
}

/// The time of the operations of a forward that run again, or of those that do not.
REMAT_INLINE double stage_chain::time_of(std::uint32_t s, purpose why, bool again) const {
  double sum = 0;
  for (const run& r : runs_[s][static_cast<std::size_t>(why)])
    if (r.again == again) sum += graph_.time[r.operation];
  return sum;
}

/// True when `t` is a transient input of stage `s`, the last stage that reads it.
REMAT_INLINE bool stage_chain::ends_as_input(std::uint32_t s, std::uint32_t t) const {
  return made_[t] != nowhere && made_[t] < s && last_[t] == s && transient_tensor_[t];
}

/// True when stage `s` makes `t`, and `t` stays after a forward for `why`.
REMAT_INLINE bool stage_chain::is_kept(std::uint32_t s, purpose why, std::uint32_t t) const {
  if (made_[t] != s) return false;
  if (why == purpose::own_backward) return backward_reader_[t] && gradient_end_[t] <= s;
  return last_[t] > s || (why == purpose::all && backward_reader_[t]);
}

/// True when no operation of the backward reads `t`, which is no final output either.
REMAT_INLINE bool stage_chain::is_unread(std::uint32_t t) const {
  return gradient_end_[t] == nowhere && !graph_.final_output[t];
}

/// The highest stage with an operation that makes `t`; 0: none.
REMAT_INLINE std::uint32_t stage_chain::highest_maker(std::uint32_t t) const {
  std::uint32_t stage = 0;
  for (const std::uint32_t o : graph_.producers[t])
    if (stage_[o] != nowhere) stage = std::max(stage, stage_[o]);
  return stage;
}

/// Finds the operations that a forward of stage `s` for `why` runs, in the order of the line. Reads the stage
/// backwards, again as long as a tensor of several producers is wanted more than before.
REMAT_INLINE void stage_chain::choose_runs(std::uint32_t s, purpose why) {
  std::vector<run>& runs = runs_[s][static_cast<std::size_t>(why)];
  for (bool changed = true; changed;) {
    changed = false;
    runs.clear();
    for (std::size_t i = forward_[s].size(); i-- > 0;) {
      const std::uint32_t o = forward_[s][i];
      std::uint8_t useful = why == purpose::all ? 2 : once_[o] ? 1 : 0;
      for (const std::uint32_t t : graph_.outputs[o]) {
        useful = std::max(useful, wanted_[t]);
        if (standing_tensor_[t])
          useful = std::max<std::uint8_t>(useful, 1);
        else if (is_kept(s, why, t))
          useful = 2;
      }
      if (once_[o]) useful = std::min<std::uint8_t>(useful, 1);
      if (useful == 0) continue;
      runs.push_back({o, useful == 2});
      for (const std::uint32_t t : graph_.inputs[o])
        if (made_[t] == s) wanted_[t] = std::max(wanted_[t], standing_tensor_[t] ? std::uint8_t{1} : useful);
      for (const std::uint32_t t : graph_.outputs[o]) {
        if (graph_.producers[t].size() < 2 || wanted_[t] >= useful) continue;
        wanted_[t] = useful;
        changed = true;
      }
    }
  }
  std::reverse(runs.begin(), runs.end());
  for (const std::uint32_t o : forward_[s]) {
    for (const std::uint32_t t : graph_.inputs[o]) wanted_[t] = 0;
    for (const std::uint32_t t : graph_.outputs[o]) wanted_[t] = 0;
  }
}

/// Orders the first forward of stage `s` for `why`, and returns its peak. Later forwards run a part of it.
REMAT_INLINE std::int64_t stage_chain::order_forward(std::uint32_t s, purpose why) {
  std::vector<run>& runs = runs_[s][static_cast<std::size_t>(why)];
  sequence_.reset(why == purpose::crossing ? 0 : transient_[s - 1]);
  for (const run& r : runs) {
    sequence_.add_operation(graph_.workspace[r.operation]);
    for (const std::uint32_t t : graph_.inputs[r.operation]) {
      if (made_[t] == s)
        touch(t, false, standing_tensor_[t], standing_tensor_[t] || is_kept(s, why, t));
      else if (why != purpose::crossing && ends_as_input(s, t))
        touch(t, false, true, false);
    }
    for (const std::uint32_t t : graph_.outputs[r.operation])
      touch(t, true, standing_tensor_[t], standing_tensor_[t] || is_kept(s, why, t));
  }
  return order_sequence(runs);
}

/// Orders the backward of stage `s`, and returns its peak.
REMAT_INLINE std::int64_t stage_chain::order_backward(std::uint32_t s) {
  sequence_.reset(saved_bytes(s, s) + gradient_[s]);
  for (const std::uint32_t o : backward_[s]) {
    std::int64_t own = graph_.workspace[o];
    for (const std::uint32_t t : graph_.outputs[o])
      if (is_unread(t)) own += graph_.bytes[t];
    sequence_.add_operation(own);
    for (const std::uint32_t t : graph_.inputs[o])
      if (!graph_.producers[t].empty()) touch_in_backward(s, t, false);
    for (const std::uint32_t t : graph_.outputs[o]) touch_in_backward(s, t, true);
  }
  ordered_backward_[s] = backward_[s];
  return order_sequence(ordered_backward_[s]);
}

/// The operation that was added to the sequence last, one of the backward of `s`, reads or writes `t`.
REMAT_INLINE void stage_chain::touch_in_backward(std::uint32_t s, std::uint32_t t, bool writes) {
  if (standing_tensor_[t] || is_unread(t)) {
    touch(t, writes, true, true);
  } else if (made_[t] != nowhere) {
    touch(t, writes, true, gradient_end_[t] != s || made_[t] < s);
  } else {
    const bool there = highest_maker(t) > s;
    if (!there && writes && graph_.final_output[t] && number_[t] == nowhere) outputs_[s] += graph_.bytes[t];
    touch(t, writes, there, graph_.final_output[t] || gradient_end_[t] < s);  // lower stages read it: it stays
  }
}

/// The operation that was added to the sequence last reads or writes `t`.
REMAT_INLINE void stage_chain::touch(std::uint32_t t, bool writes, bool there, bool stays) {
  if (number_[t] == nowhere) {
    number_[t] = sequence_.add_tensor(graph_.bytes[t], there, stays);
    numbered_.push_back(t);
  }
  sequence_.touch(number_[t], writes);
}

/// Puts `items`, one for each operation of the sequence, in order, and returns its peak.
template <class Item>
std::int64_t stage_chain::order_sequence(std::vector<Item>& items) {
  constexpr std::size_t most_states = 500;  // more sets do not pay on the bundled graphs (docs/rotor.md)
  for (const std::uint32_t t : numbered_) number_[t] = nowhere;
  numbered_.clear();
  std::vector<std::uint32_t> order;
  if (order_ == stage_order::least_peak) {
    order = sequence_.least_peak_order(most_states);
    std::vector<Item> ordered;
    for (const std::uint32_t i : order) ordered.push_back(items[i]);
    items.swap(ordered);
  } else {
    for (std::uint32_t i = 0; i < items.size(); ++i) order.push_back(i);
  }
  return sequence_.peak(order);
}

/// The purpose of each forward of a schedule, by the next step of its stage.
REMAT_INLINE std::vector<stage_chain::purpose> stage_chain::find_purposes(std::span<const chain_step> steps) const {
  std::vector<purpose> why(steps.size(), purpose::all);
  std::vector<std::size_t> backward_at(std::size_t{length_} + 1, steps.size());
  std::vector<std::uint8_t> runs_again(std::size_t{length_} + 1, 0);
  for (std::size_t i = steps.size(); i-- > 0;) {
    const std::uint32_t s = steps[i].stage;
    if (s > length_) continue;
    if (steps[i].action == chain_action::backward) {
      backward_at[s] = i;
      runs_again[s] = reads_none_[s];
      continue;
    }
    if (backward_at[s] == i + 1)
      why[i] = purpose::own_backward;
    else if (runs_again[s])
      why[i] = purpose::crossing;
    runs_again[s] = 1;
  }
  return why;
}

REMAT_INLINE std::vector<std::uint32_t> stage_chain::expand(std::span<const chain_step> steps,
                                                            const replacement& instead) const {
  const std::vector<purpose> why = find_purposes(steps);
  std::vector<std::uint32_t> operations;
  std::vector<std::uint8_t> ran(std::size_t{length_} + 1, 0), done(graph_.num_operations, 0);
  const auto run_one = [&](std::uint32_t o) {
    if (done[o] && (is_forward_[o] ? once_[o] : graph_.once[o]) != 0) return;
    done[o] = 1;
    operations.push_back(o);
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::uint32_t s = steps[i].stage;
    if (s > length_) continue;
    const bool backward = steps[i].action == chain_action::backward;
    if (const std::vector<std::uint32_t>* others = instead ? instead(steps[i]) : nullptr) {
      for (const std::uint32_t o : *others) run_one(o);
    } else if (backward) {
      for (const std::uint32_t o : ordered_backward_[s]) run_one(o);
    } else {
      for (const run& r : runs_[s][static_cast<std::size_t>(why[i])])
        if (r.again || !ran[s]) run_one(r.operation);
    }
    if (!backward) ran[s] = 1;
  }
  return operations;
}

REMAT_INLINE std::vector<std::uint32_t> stage_chain::expand_whole(std::span<const chain_step> steps) const {
  std::vector<std::uint32_t> operations;
  std::vector<std::uint8_t> ran(graph_.num_operations, 0);
  for (const chain_step& k : steps) {
    if (k.stage > length_) continue;
    for (const std::uint32_t o : k.action == chain_action::backward ? backward_[k.stage] : forward_[k.stage]) {
      if (once_[o] && ran[o]) continue;
      ran[o] = 1;
      operations.push_back(o);
    }
  }
  return operations;
}

REMAT_INLINE std::size_t count_distinct_stages(const stage_chain& chain) {
  std::set<std::vector<double>> kinds;
  for (std::uint32_t s = 1; s <= chain.length(); ++s) {
    const std::uint32_t behind = std::min(s + 1, chain.length());
    std::vector<double> kind{chain.fast_time(s), chain.forward_time(s), chain.last_forward_time(s),
                             chain.backward_time(s)};
    for (const std::int64_t bytes :
         {chain.crossing_bytes(s, s), chain.saved_bytes(s, s), chain.saved_bytes(s, behind), chain.transient_bytes(s),
          chain.gradient_bytes(s), chain.fast_peak(s), chain.forward_peak(s), chain.last_forward_peak(s),
          chain.backward_peak(s), chain.output_bytes(s)})
      kind.push_back(static_cast<double>(bytes));
    kind.push_back(static_cast<double>(chain.forward(s).size()));
    kind.push_back(static_cast<double>(chain.backward(s).size()));
    kinds.insert(std::move(kind));
  }
  return kinds.size();
}

}  // namespace remat::detail
