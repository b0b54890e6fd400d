// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/chain_schedule.hpp"
#include "remat/order/stage_order.hpp"
#include "remat/problem/phase.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

/// The forward part of a step as a line of operations, with the bytes that cross each place where it may be cut.
///
/// The step turns from forward to backward where the most tensors are alive in the listed order (the last such place;
/// final outputs, which stay to the end, do not count): what a forward makes for its backward piles up until there.
/// What is listed before is taken as forward. No rule of the solvers depends on the turn being the true one: wherever
/// it is, what they make is legal; near the true one it is good.
struct forward_line {
  std::vector<std::uint32_t> operations;  ///< the needed ones before the turn, each behind what it reads
  std::vector<std::uint32_t> rest;        ///< the needed ones after it
  std::vector<std::int64_t> crossing;     ///< [i]: bytes made before operations[i] that it or a later forward reads
  std::vector<std::int64_t> made;         ///< [i]: bytes that operations[i] makes for a reader, without final outputs
};

/// The line of `operations`, which hold those before the turn in an order in which each stands behind what it reads.
/// O(operations + reads and writes) time.
[[nodiscard]] inline forward_line make_forward_line(const flat_graph& s, std::vector<std::uint32_t> operations,
                                                    std::vector<std::uint32_t> rest) {
  constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();
  forward_line line;
  line.operations = std::move(operations);
  line.rest = std::move(rest);
  const auto forwards = static_cast<std::uint32_t>(line.operations.size());
  std::vector<std::uint32_t> first(s.num_tensors, nowhere), last(s.num_tensors, 0);  // places of a writer, of a reader
  for (std::uint32_t i = forwards; i-- > 0;)
    for (const std::uint32_t t : s.outputs[line.operations[i]]) first[t] = i;
  for (std::uint32_t i = 0; i < forwards; ++i)
    for (const std::uint32_t t : s.inputs[line.operations[i]]) last[t] = i;
  line.crossing.assign(forwards + std::size_t{1}, 0);
  line.made.assign(forwards, 0);
  for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
    if (first[t] == nowhere || s.final_output[t]) continue;
    line.made[first[t]] += s.bytes[t];
    if (last[t] <= first[t]) continue;
    line.crossing[first[t] + 1] += s.bytes[t];
    line.crossing[last[t] + 1] -= s.bytes[t];
  }
  for (std::uint32_t i = 0; i < forwards; ++i) line.crossing[i + 1] += line.crossing[i];
  return line;
}

/// The listed order, up to the turn. O(operations + reads and writes) time.
[[nodiscard]] inline forward_line find_forward_line(const flat_graph& s) {
  const std::uint32_t turn = find_forward_end(s);
  std::vector<std::uint32_t> operations, rest;
  for (std::uint32_t o = 0; o < s.num_operations; ++o)
    if (s.needed[o]) (o < turn ? operations : rest).push_back(o);
  return make_forward_line(s, std::move(operations), std::move(rest));
}

/// The same operations in another order: of those that may run always the one behind which the fewest bytes wait for a
/// forward, the first listed of equal ones. It finishes branches, and puts what makes much for later off.
/// O(operations · those that may run + reads and writes) time.
[[nodiscard]] inline forward_line find_narrow_line(const flat_graph& s, const forward_line& listed) {
  std::vector<std::uint8_t> forward(s.num_operations, 0), there(s.num_tensors, 0);
  for (const std::uint32_t o : listed.operations) forward[o] = 1;
  std::vector<std::uint32_t> open(s.num_operations, 0), readers(s.num_tensors, 0), ready, order;
  for (const std::uint32_t o : listed.operations) {
    for (const std::uint32_t t : s.inputs[o]) {
      ++readers[t];
      for (const std::uint32_t maker : s.producers[t]) open[o] += forward[maker];
    }
    if (open[o] == 0) ready.push_back(o);
  }
  while (!ready.empty()) {
    std::size_t best = 0;
    std::pair<std::int64_t, std::uint32_t> least{};
    for (std::size_t r = 0; r < ready.size(); ++r) {
      std::pair<std::int64_t, std::uint32_t> key{0, ready[r]};
      for (const std::uint32_t t : s.outputs[ready[r]])
        if (!there[t] && readers[t] > 0) key.first += s.bytes[t];
      for (const std::uint32_t t : s.inputs[ready[r]])
        if (there[t] && readers[t] == 1) key.first -= s.bytes[t];
      if (r > 0 && key > least) continue;
      best = r;
      least = key;
    }
    const std::uint32_t o = ready[best];
    ready[best] = ready.back();
    ready.pop_back();
    order.push_back(o);
    for (const std::uint32_t t : s.inputs[o]) --readers[t];
    for (const std::uint32_t t : s.outputs[o]) {
      there[t] = !s.final_output[t];
      for (const std::uint32_t reader : s.consumers[t])
        if (forward[reader] && --open[reader] == 0) ready.push_back(reader);
    }
  }
  return make_forward_line(s, std::move(order), listed.rest);
}

/// Places where a forward line is cut, ascending: a cut at i stands before operations[i]; 0 < i < operations.size().
using cut_list = std::vector<std::uint32_t>;

/// Ever coarser ways to cut the line: first everywhere, then where the fewest bytes cross locally among the cuts
/// before, and so on while that takes away an eighth of them. Lists longer than `most` are thinned to it: of
/// neighbouring cuts the one with more bytes across goes. Without repetition; never empty, and the last may be a list
/// of no cut. O(log n) lists, O(n) time for each.
[[nodiscard]] inline std::vector<cut_list> cut_levels(const forward_line& line, std::size_t most) {
  const auto thin = [&](cut_list cuts) {
    while (cuts.size() > most) {
      // In pairs, as many as have to go, spread evenly over the line.
      const std::size_t pairs = cuts.size() / 2, drop = std::min(pairs, cuts.size() - most);
      if (pairs == 0) {
        cuts.pop_back();
        continue;
      }
      cut_list kept;
      std::size_t dropped = 0;
      for (std::size_t k = 0; k < pairs; ++k) {
        const std::uint32_t a = cuts[2 * k], b = cuts[2 * k + 1];
        if ((k + 1) * drop / pairs > dropped) {
          ++dropped;
          kept.push_back(line.crossing[a] <= line.crossing[b] ? a : b);
        } else {
          kept.push_back(a);
          kept.push_back(b);
        }
      }
      if (cuts.size() % 2 != 0) kept.push_back(cuts.back());
      cuts.swap(kept);
    }
    return cuts;
  };
  cut_list level;
  for (std::uint32_t i = 1; i < line.operations.size(); ++i) level.push_back(i);
  std::vector<cut_list> levels;
  for (;;) {
    cut_list thinned = thin(level);
    if (levels.empty() || thinned != levels.back()) levels.push_back(std::move(thinned));
    cut_list next;
    for (std::size_t k = 0; k < level.size(); ++k) {
      const std::int64_t here = line.crossing[level[k]];
      const bool left = k == 0 || line.crossing[level[k - 1]] >= here;
      const bool right = k + 1 == level.size() || line.crossing[level[k + 1]] >= here;
      if (left && right) next.push_back(level[k]);
    }
    if (next.size() * 8 > level.size() * 7 || level.empty()) break;
    level.swap(next);
  }
  return levels;
}

/// Of `cuts` those that end segments which make about equally many bytes, `segments` of them or fewer.
/// O(cuts + operations) time.
[[nodiscard]] inline cut_list even_cuts(const forward_line& line, const cut_list& cuts, std::size_t segments) {
  std::vector<std::int64_t> made(line.made.size() + 1, 0);
  for (std::size_t i = 0; i < line.made.size(); ++i) made[i + 1] = made[i] + line.made[i];
  const double each = static_cast<double>(made.back()) / static_cast<double>(std::max<std::size_t>(segments, 1));
  cut_list out;
  for (const std::uint32_t cut : cuts)
    if (out.size() + 1 < segments && static_cast<double>(made[cut]) >= each * static_cast<double>(out.size() + 1))
      out.push_back(cut);
  return out;
}

/// In which order the operations of a stage run.
enum class stage_order : std::uint8_t {
  listed,     ///< in that of the line
  least_peak  ///< in one that needs less memory, found for each purpose by itself
};

/// A training step as a chain of stages: which operations are the forward and the backward of each, and what they take.
///
/// Stage s = 1 … L holds the forward operations between two cuts. A backward operation belongs to the highest stage
/// that makes or reads one of its forward inputs, but to none above that of its gradient inputs; without forward
/// inputs, to the lowest stage of its gradient inputs. All tensors that cross a cut travel along as the input of what
/// is behind it. An operation that runs once runs in the first forward of its stage, and what it makes stays; so do the
/// operations that add to a tensor together with it, or together with one of another stage or of the backward part.
/// A forward runs what its `purpose` needs, and the first one of a stage what makes final outputs as well.
///
/// Bytes are counted as follows. x(s, j) are the tensors that stages s … j make and that are read behind j (by a
/// forward, or by a backward of a later stage). Everything else is taken from a run of the stage by itself.
///
/// The counts are a model that never promises too much: of a schedule that `detail::persistent::slot_table` finds for
/// the sizes in bytes, or in slots rounded up, the operations of `expand` (through `schedule_computes`) take at most
/// its time and `standing_time`, and at most its memory and `standing_bytes`. They often take less: what nobody reads
/// again is not run, and what crosses stages is gone after its last reader.
class stage_chain {
 public:
  /// O(operations + reads and writes + L²) time, and what `order` takes.
  stage_chain(const flat_graph& s, const forward_line& line, const cut_list& cuts,
              stage_order order = stage_order::listed)
      : step_(s), order_(order) {
    assign_stages(line, cuts);
    mark_once(line);
    find_last_uses();
    measure();
  }

  /// L.
  [[nodiscard]] std::uint32_t length() const noexcept { return length_; }
  /// In the listed order.
  [[nodiscard]] std::span<const std::uint32_t> forward(std::uint32_t stage) const noexcept { return forward_[stage]; }
  [[nodiscard]] std::span<const std::uint32_t> backward(std::uint32_t stage) const noexcept { return backward_[stage]; }

  /// Time of the forward of a stage, run again for what crosses its end alone, for all that is saved, or for its own
  /// backward right after it; and of its backward.
  [[nodiscard]] double fast_time(std::uint32_t stage) const noexcept { return fast_time_[stage]; }
  [[nodiscard]] double forward_time(std::uint32_t stage) const noexcept { return forward_time_[stage]; }
  [[nodiscard]] double last_forward_time(std::uint32_t stage) const noexcept { return last_forward_time_[stage]; }
  [[nodiscard]] double backward_time(std::uint32_t stage) const noexcept { return backward_time_[stage]; }

  /// x(s, j) in bytes. Precondition: 1 ≤ s ≤ j ≤ L.
  [[nodiscard]] std::int64_t crossing_bytes(std::uint32_t s, std::uint32_t j) const noexcept {
    return crossing_[s * (std::size_t{length_} + 1) + j];
  }
  /// What crosses the end of the stage and nobody behind it reads but the forward of one stage, whoever made it: gone
  /// when that has run.
  /// Precondition: 0 ≤ stage ≤ L.
  [[nodiscard]] std::int64_t transient_bytes(std::uint32_t stage) const noexcept { return transient_[stage]; }
  /// What stage s makes that a backward of a stage up to t reads, and what stays for that or for several forwards, of
  /// which the first is of a stage up to t. Precondition: 1 ≤ s ≤ t ≤ L.
  [[nodiscard]] std::int64_t saved_bytes(std::uint32_t s, std::uint32_t t) const noexcept {
    return saved_[s * (std::size_t{length_} + 1) + t];
  }
  /// Gradients made behind the stage for its backward and those before it.
  [[nodiscard]] std::int64_t gradient_bytes(std::uint32_t stage) const noexcept { return gradient_[stage]; }
  /// Peaks: of a forward for what crosses alone, its input and the gradients that wait not counted; of one for all that
  /// is saved, and of one for the stage's own backward right after it, the transient part of its input counted until it
  /// is gone, gradients not; of the backward, with what was saved and the gradients.
  [[nodiscard]] std::int64_t fast_peak(std::uint32_t stage) const noexcept { return fast_peak_[stage]; }
  [[nodiscard]] std::int64_t forward_peak(std::uint32_t stage) const noexcept { return forward_peak_[stage]; }
  [[nodiscard]] std::int64_t last_forward_peak(std::uint32_t stage) const noexcept { return last_forward_peak_[stage]; }
  [[nodiscard]] std::int64_t backward_peak(std::uint32_t stage) const noexcept { return backward_peak_[stage]; }
  /// Whether the backward of the stage reads nothing that a forward could make again, and no backward up to it what the
  /// stage makes.
  [[nodiscard]] bool backward_reads_no_forward(std::uint32_t stage) const noexcept { return reads_none_[stage] != 0; }
  /// Step outputs that the backward of the stage makes: they stay.
  [[nodiscard]] std::int64_t output_bytes(std::uint32_t stage) const noexcept { return outputs_[stage]; }
  /// What the forward part makes that stays whatever is done: its final outputs, and what is made once for the backward
  /// or for a forward that may run again.
  [[nodiscard]] std::int64_t standing_bytes() const noexcept { return standing_; }
  /// The most time that the first forwards of the stages take beyond what is counted for them: of operations that run
  /// once, and of those that have to run for what stands.
  [[nodiscard]] double standing_time() const noexcept { return standing_time_; }

  /// Of a tensor: the stage whose forward makes it (of several, the last one), `nowhere` if none does; the last stage
  /// with a reader; the lowest with a backward that reads it, or `nowhere`.
  static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();
  [[nodiscard]] std::uint32_t made_in(std::uint32_t tensor) const noexcept { return made_[tensor]; }
  [[nodiscard]] std::uint32_t last_read_in(std::uint32_t tensor) const noexcept { return last_[tensor]; }
  [[nodiscard]] std::uint32_t lowest_backward_of(std::uint32_t tensor) const noexcept { return gradient_end_[tensor]; }
  /// Whether the tensor is one of those of `transient_bytes`.
  [[nodiscard]] bool is_transient(std::uint32_t tensor) const noexcept { return transient_tensor_[tensor] != 0; }
  /// Of a tensor that neither is transient nor stands: from which t on it is one of `saved_bytes(made_in, t)`.
  [[nodiscard]] std::uint32_t saved_from(std::uint32_t tensor) const noexcept {
    return std::max(made_[tensor], std::min(gradient_end_[tensor], first_read_[tensor]));
  }
  /// … the first stage behind the one that makes it whose forward reads it, or `nowhere`.
  [[nodiscard]] std::uint32_t first_read_behind(std::uint32_t tensor) const noexcept { return first_read_[tensor]; }
  /// Whether the tensor is one of `standing_bytes`.
  [[nodiscard]] bool stands(std::uint32_t tensor) const noexcept { return standing_tensor_[tensor] != 0; }
  /// Whether the forward operation runs in the first forward of its stage alone.
  [[nodiscard]] bool runs_once(std::uint32_t operation) const noexcept { return once_[operation] != 0; }

  /// The operations of a schedule of the chain, in order, for `schedule_computes`. What a forward runs for shows in
  /// what follows: another forward of the stage, its backward right away, or its backward later. Steps of the loss
  /// stage L + 1 mean nothing here.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps) const {
    return expand(steps, [](const chain_step&) { return nullptr; });
  }
  /// The same with other operations for some of the steps: `instead(step)` points to those, a
  /// `const std::vector<std::uint32_t>`, or is null.
  template <class Instead>
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps, const Instead& instead) const {
    // Backwards: what is the next step of the stage?
    std::vector<purpose> why(steps.size(), purpose::all);
    std::vector<std::size_t> backward_at(std::size_t{length_} + 1, steps.size());
    std::vector<std::uint8_t> again(std::size_t{length_} + 1, 0);
    for (std::size_t i = steps.size(); i-- > 0;) {
      const std::uint32_t s = steps[i].stage;
      if (s > length_) continue;
      if (steps[i].action == chain_action::backward) {
        backward_at[s] = i;
        again[s] = reads_none_[s];
        continue;
      }
      if (backward_at[s] == i + 1)
        why[i] = purpose::own_backward;
      else if (again[s])
        why[i] = purpose::crossing;
      again[s] = 1;
    }
    std::vector<std::uint32_t> operations;
    std::vector<std::uint8_t> ran(std::size_t{length_} + 1, 0), done(step_.num_operations, 0);
    const auto run_one = [&](std::uint32_t o) {
      if (done[o] && (is_forward_[o] ? once_[o] : step_.once[o]) != 0) return;
      done[o] = 1;
      operations.push_back(o);
    };
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::uint32_t s = steps[i].stage;
      if (s > length_) continue;
      const bool backward = steps[i].action == chain_action::backward;
      if (const std::vector<std::uint32_t>* others = instead(steps[i])) {
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

  /// The same with each forward of a stage running all of it, and everything in the listed order. What nobody reads is
  /// left to `schedule_computes`, which keeps the last of the runs that make a final output, and not the first. The
  /// counts do not bound this one; it needs less memory now and then.
  [[nodiscard]] std::vector<std::uint32_t> expand_whole(std::span<const chain_step> steps) const {
    std::vector<std::uint32_t> operations;
    std::vector<std::uint8_t> ran(step_.num_operations, 0);
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

 private:
  void assign_stages(const forward_line& line, const cut_list& cuts) {
    length_ = static_cast<std::uint32_t>(cuts.size() + 1);
    forward_.assign(length_ + 1, {});
    backward_.assign(length_ + 1, {});
    stage_.assign(step_.num_operations, nowhere);
    is_forward_.assign(step_.num_operations, 0);
    made_.assign(step_.num_tensors, nowhere);
    std::uint32_t stage = 1;
    for (std::uint32_t i = 0; i < line.operations.size(); ++i) {
      if (stage <= cuts.size() && cuts[stage - 1] == i) ++stage;
      const std::uint32_t o = line.operations[i];
      stage_[o] = stage;
      is_forward_[o] = 1;
      forward_[stage].push_back(o);
      for (const std::uint32_t t : step_.outputs[o]) made_[t] = made_[t] == nowhere ? stage : std::max(made_[t], stage);
    }
    // The highest stage that makes or reads a tensor.
    std::vector<std::uint32_t> highest(step_.num_tensors, 0);
    for (const std::uint32_t o : line.operations) {
      for (const std::uint32_t t : step_.inputs[o]) highest[t] = std::max(highest[t], stage_[o]);
      for (const std::uint32_t t : step_.outputs[o]) highest[t] = std::max(highest[t], stage_[o]);
    }
    for (const std::uint32_t o : line.rest) {
      std::uint32_t from_forward = 0, from_gradients = length_;
      for (const std::uint32_t t : step_.inputs[o]) {
        from_forward = std::max(from_forward, highest[t]);
        for (const std::uint32_t maker : step_.producers[t])
          if (!is_forward_[maker] && stage_[maker] != nowhere) from_gradients = std::min(from_gradients, stage_[maker]);
      }
      stage_[o] = from_forward == 0 ? from_gradients : std::min(from_forward, from_gradients);
      backward_[stage_[o]].push_back(o);
    }
  }

  /// Tensors of several producers are made again by all of them or by none.
  void mark_once(const forward_line& line) {
    once_.assign(step_.num_operations, 0);
    for (const std::uint32_t o : line.operations) once_[o] = step_.once[o] != 0;
    for (const std::uint32_t o : line.rest) once_[o] = 1;
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::uint32_t o : line.operations)
        for (const std::uint32_t t : step_.outputs[o]) {
          if (once_[o] || step_.producers[t].size() < 2) continue;
          for (const std::uint32_t other : step_.producers[t])
            if (step_.needed[other] && (once_[other] || stage_[other] != stage_[o])) once_[o] = 1;
          changed = changed || once_[o];
        }
    }
  }

  void find_last_uses() {
    last_.assign(step_.num_tensors, 0);
    std::vector<std::uint8_t> read_again(step_.num_tensors, 0);  // by an operation that may run again, or a backward
    backward_reader_.assign(step_.num_tensors, 0);
    gradient_end_.assign(step_.num_tensors, nowhere);
    first_read_.assign(step_.num_tensors, nowhere);
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t) {
      if (step_.producers[t].empty()) continue;
      for (const std::uint32_t o : step_.consumers[t]) {
        if (stage_[o] == nowhere) continue;
        if (made_[t] != nowhere) last_[t] = std::max(last_[t], stage_[o]);
        if (!is_forward_[o] || !once_[o]) read_again[t] = 1;
        if (is_forward_[o] && stage_[o] > made_[t]) first_read_[t] = std::min(first_read_[t], stage_[o]);
        if (!is_forward_[o]) {
          backward_reader_[t] = 1;
          gradient_end_[t] = std::min(gradient_end_[t], stage_[o]);
        }
      }
    }
    standing_tensor_.assign(step_.num_tensors, 0);
    transient_tensor_.assign(step_.num_tensors, 0);
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t) {
      if (made_[t] == nowhere) continue;
      bool fixed = true;  // it is never made again
      for (const std::uint32_t o : step_.producers[t]) fixed = fixed && (stage_[o] == nowhere || once_[o]);
      standing_tensor_[t] = step_.final_output[t] || (fixed && read_again[t]);
      transient_tensor_[t] =
          !standing_tensor_[t] && !backward_reader_[t] && (first_read_[t] == nowhere || first_read_[t] == last_[t]);
    }
  }

  void measure() {
    const std::size_t rows = std::size_t{length_} + 1;
    fast_time_.assign(rows, 0);
    forward_time_.assign(rows, 0);
    last_forward_time_.assign(rows, 0);
    reads_none_.assign(rows, 1);
    backward_time_.assign(rows, 0);
    saved_.assign(rows * rows, 0);
    transient_.assign(rows, 0);
    gradient_.assign(rows, 0);
    fast_peak_.assign(rows, 0);
    forward_peak_.assign(rows, 0);
    last_forward_peak_.assign(rows, 0);
    backward_peak_.assign(rows, 0);
    outputs_.assign(rows, 0);
    crossing_.assign(rows * rows, 0);
    wanted_.assign(step_.num_tensors, 0);
    number_.assign(step_.num_tensors, nowhere);

    runs_.assign(rows, {});
    ordered_backward_.assign(rows, {});

    // ends[s][j]: bytes that stage s makes and whose last use is in stage j.
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t) {
      if (made_[t] == nowhere) continue;
      if (standing_tensor_[t]) {
        standing_ += step_.bytes[t];
        continue;
      }
      if (last_[t] > made_[t]) crossing_[made_[t] * rows + last_[t]] += step_.bytes[t];
      if (!transient_tensor_[t]) {
        // A forward behind, too, wants it while that may run again.
        saved_[made_[t] * rows + saved_from(t)] += step_.bytes[t];
      } else {
        transient_[made_[t]] += step_.bytes[t];
        transient_[std::max(made_[t], last_[t])] -= step_.bytes[t];
      }
    }
    for (std::uint32_t s = 1; s <= length_; ++s) transient_[s] += transient_[s - 1];
    for (std::uint32_t s = 1; s <= length_; ++s)
      for (std::uint32_t t = s + 1; t <= length_; ++t) saved_[s * rows + t] += saved_[s * rows + t - 1];
    for (std::uint32_t s = length_; s >= 1; --s) {
      // Sum of the ends behind j, then what stages s + 1 … j add.
      std::int64_t behind = 0;
      for (std::uint32_t j = length_; j >= s; --j) {
        const std::int64_t ends = crossing_[s * rows + j];
        crossing_[s * rows + j] = behind + (s < j ? crossing_[(s + 1) * rows + j] : 0);
        behind += ends;
      }
    }
    // Gradients: from the stage whose backward makes them down to the last that reads them. What a forward makes for
    // the backward of a stage before its own waits in the same way.
    std::vector<std::int64_t> change(rows + 1, 0);
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t) {
      if (step_.producers[t].empty() || step_.final_output[t] || standing_tensor_[t]) continue;
      std::uint32_t from = 0;
      for (const std::uint32_t o : step_.producers[t])
        if (stage_[o] != nowhere) from = std::max(from, stage_[o]);
      if (from == 0 || gradient_end_[t] == nowhere || gradient_end_[t] >= from) continue;
      change[gradient_end_[t]] += step_.bytes[t];
      change[from] -= step_.bytes[t];
    }
    std::int64_t waiting = 0;
    for (std::uint32_t s = 0; s <= length_; ++s) gradient_[s] = waiting += change[s];

    for (std::uint32_t s = 1; s <= length_; ++s) {
      for (const purpose why : {purpose::crossing, purpose::all, purpose::own_backward}) choose_runs(s, why);
      fast_peak_[s] = order_forward(s, purpose::crossing);
      forward_peak_[s] = order_forward(s, purpose::all);
      last_forward_peak_[s] = order_forward(s, purpose::own_backward);
      const auto time = [&](purpose why, bool first) {
        double sum = 0;
        for (const run& r : runs_[s][static_cast<std::size_t>(why)])
          if (r.again != first) sum += step_.time[r.operation];
        return sum;
      };
      fast_time_[s] = time(purpose::crossing, false);
      forward_time_[s] = time(purpose::all, false);
      last_forward_time_[s] = time(purpose::own_backward, false);
      standing_time_ += time(s < length_ ? purpose::crossing : purpose::all, true);
      backward_peak_[s] = order_backward(s);
      for (const std::uint32_t o : backward_[s]) backward_time_[s] += step_.time[o];
    }
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t) {
      if (made_[t] == nowhere || standing_tensor_[t] || !backward_reader_[t]) continue;
      reads_none_[made_[t]] = reads_none_[made_[t]] && gradient_end_[t] > made_[t];
      for (const std::uint32_t o : step_.consumers[t])
        if (stage_[o] != nowhere && !is_forward_[o]) reads_none_[stage_[o]] = 0;
    }
  }

  /// Whether `t` is a transient input of stage `s` that no later stage reads.
  [[nodiscard]] bool ends_as_input(std::uint32_t s, std::uint32_t t) const {
    return made_[t] != nowhere && made_[t] < s && last_[t] == s && transient_tensor_[t];
  }

  /// What a forward of a stage runs for: what crosses its end, that and what is saved, what its own backward reads.
  enum class purpose : std::uint8_t { crossing, all, own_backward };

  /// An operation of a forward, in its first run and maybe in those after it.
  struct run {
    std::uint32_t operation;
    bool again;
  };

  /// Whether stage `s` makes `t`, and it stays when a forward for `why` is over.
  [[nodiscard]] bool kept(std::uint32_t s, purpose why, std::uint32_t t) const {
    if (made_[t] != s) return false;
    if (why == purpose::own_backward) return backward_reader_[t] && gradient_end_[t] <= s;
    return last_[t] > s || (why == purpose::all && backward_reader_[t]);
  }

  /// What a forward of stage `s` for `why` has to run, in the order of the line.
  void choose_runs(std::uint32_t s, purpose why) {
    std::vector<run>& runs = runs_[s][static_cast<std::size_t>(why)];
    for (bool changed = true; changed;) {
      changed = false;
      runs.clear();
      for (std::size_t i = forward_[s].size(); i-- > 0;) {
        const std::uint32_t o = forward_[s][i];
        std::uint8_t useful = why == purpose::all ? 2 : once_[o] ? 1 : 0;
        for (const std::uint32_t t : step_.outputs[o]) {
          useful = std::max(useful, wanted_[t]);
          if (standing_tensor_[t])
            useful = std::max<std::uint8_t>(useful, 1);
          else if (kept(s, why, t))
            useful = 2;
        }
        if (once_[o]) useful = std::min<std::uint8_t>(useful, 1);
        if (useful == 0) continue;
        runs.push_back({o, useful == 2});
        for (const std::uint32_t t : step_.inputs[o])
          if (made_[t] == s) wanted_[t] = std::max(wanted_[t], standing_tensor_[t] ? std::uint8_t{1} : useful);
        for (const std::uint32_t t : step_.outputs[o]) {
          if (step_.producers[t].size() < 2 || wanted_[t] >= useful) continue;
          wanted_[t] = useful;
          changed = true;
        }
      }
    }
    std::reverse(runs.begin(), runs.end());
    for (const std::uint32_t o : forward_[s]) {
      for (const std::uint32_t t : step_.inputs[o]) wanted_[t] = 0;
      for (const std::uint32_t t : step_.outputs[o]) wanted_[t] = 0;
    }
  }

  /// The peak of the first forward of stage `s` for `why` by itself; later ones run a part of it.
  std::int64_t order_forward(std::uint32_t s, purpose why) {
    std::vector<run>& runs = runs_[s][static_cast<std::size_t>(why)];
    sequence_.reset(why == purpose::crossing ? 0 : transient_[s - 1]);
    for (const run& r : runs) {
      sequence_.add_operation(step_.workspace[r.operation]);
      for (const std::uint32_t t : step_.inputs[r.operation]) {
        if (made_[t] == s)
          touch(t, false, standing_tensor_[t], standing_tensor_[t] || kept(s, why, t));
        else if (why != purpose::crossing && ends_as_input(s, t))
          touch(t, false, true, false);
      }
      for (const std::uint32_t t : step_.outputs[r.operation])
        touch(t, true, standing_tensor_[t], standing_tensor_[t] || kept(s, why, t));
    }
    return order_sequence(runs);
  }

  /// The peak of the backward of stage `s`.
  std::int64_t order_backward(std::uint32_t s) {
    const auto touch_one = [&](std::uint32_t t, bool writes) {
      if (standing_tensor_[t] || unread(t)) {
        touch(t, writes, true, true);
      } else if (made_[t] != nowhere) {
        touch(t, writes, true, gradient_end_[t] != s || made_[t] < s);
      } else {
        // What lower stages read stays.
        const bool there = highest_maker(t) > s;
        if (!there && writes && step_.final_output[t] && number_[t] == nowhere) outputs_[s] += step_.bytes[t];
        touch(t, writes, there, step_.final_output[t] || gradient_end_[t] < s);
      }
    };
    sequence_.reset(saved_bytes(s, s) + gradient_[s]);
    for (const std::uint32_t o : backward_[s]) {
      std::int64_t own = step_.workspace[o];
      for (const std::uint32_t t : step_.outputs[o])
        if (unread(t)) own += step_.bytes[t];
      sequence_.add_operation(own);
      for (const std::uint32_t t : step_.inputs[o])
        if (!step_.producers[t].empty()) touch_one(t, false);
      for (const std::uint32_t t : step_.outputs[o]) touch_one(t, true);
    }
    ordered_backward_[s] = backward_[s];
    return order_sequence(ordered_backward_[s]);
  }

  /// The operation that `sequence_` got last reads or writes `t`.
  void touch(std::uint32_t t, bool writes, bool there, bool stays) {
    if (number_[t] == nowhere) {
      number_[t] = sequence_.add_tensor(step_.bytes[t], there, stays);
      numbered_.push_back(t);
    }
    sequence_.touch(number_[t], writes);
  }
  /// Whether nobody wants what a backward writes to `t`.
  [[nodiscard]] bool unread(std::uint32_t t) const { return gradient_end_[t] == nowhere && !step_.final_output[t]; }

  /// Puts `items`, which stand for the operations of `sequence_`, in an order, and returns its peak.
  template <class Item>
  std::int64_t order_sequence(std::vector<Item>& items) {
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

  /// The highest stage whose backward makes a tensor, 0 if none does.
  [[nodiscard]] std::uint32_t highest_maker(std::uint32_t t) const {
    std::uint32_t stage = 0;
    for (const std::uint32_t o : step_.producers[t])
      if (stage_[o] != nowhere) stage = std::max(stage, stage_[o]);
    return stage;
  }

  static constexpr std::size_t most_states = 500;  // of `operation_sequence::least_peak_order`

  const flat_graph& step_;
  stage_order order_;
  std::uint32_t length_ = 0;
  std::vector<std::vector<std::uint32_t>> forward_, backward_, ordered_backward_;  // of a stage
  std::vector<std::uint32_t> stage_;                                               // of an operation
  std::vector<std::uint8_t> is_forward_, once_;
  std::vector<std::uint32_t> made_;          // of a tensor of the forward part: its stage
  std::vector<std::uint32_t> last_;          // … the last stage with a reader
  std::vector<std::uint32_t> first_read_;    // … the first stage behind that whose forward reads it
  std::vector<std::uint32_t> gradient_end_;  // of a tensor: the lowest stage whose backward reads it
  std::vector<std::uint8_t> backward_reader_, standing_tensor_, transient_tensor_, reads_none_;
  std::vector<double> fast_time_, forward_time_, last_forward_time_, backward_time_;
  std::vector<std::int64_t> crossing_, saved_, transient_, gradient_, fast_peak_, forward_peak_, last_forward_peak_,
      backward_peak_, outputs_;
  std::vector<std::array<std::vector<run>, 3>> runs_;  // of the forwards of a stage, by purpose
  std::int64_t standing_ = 0;
  double standing_time_ = 0;
  std::vector<std::uint8_t>
      wanted_;                   // of a tensor while the runs of a stage are chosen: 2: in every run, 1: in the first
  operation_sequence sequence_;  // the one whose order is looked for, …
  std::vector<std::uint32_t> number_, numbered_;  // … the numbers of its tensors, and those that have one
};

}  // namespace remat
