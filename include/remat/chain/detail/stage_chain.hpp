// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/least_peak.hpp"

namespace REMAT_NAMESPACE::detail {

/// The order in which the operations of a stage run.
enum class stage_order : std::uint8_t {
  listed,     ///< they run in the order of the line
  least_peak  ///< they run in an order of little memory, found for each purpose of a forward and for the backward
};

/// The times and bytes of one stage of a `stage_chain`. Times are in the unit of the cost model. Each forward is one
/// that runs again; `stage_chain::standing_time` is what the first one takes beyond that.
struct stage_figures {
  double fast_time = 0;          ///< time of a forward for the tensors that cross the end of the stage
  double forward_time = 0;       ///< time of a forward for all that is saved
  double last_forward_time = 0;  ///< time of a forward for the stage's own backward, right before it
  double backward_time = 0;      ///< time of the backward
  /// The transient tensors: those that cross the end of the stage, and that the forward of one later stage reads and
  /// nothing else. They are free when that forward has run.
  std::int64_t transient_bytes = 0;
  std::int64_t gradient_bytes = 0;  ///< gradients that later stages make for this backward and those of earlier stages
  std::int64_t output_bytes = 0;    ///< final outputs that the backward makes; they stay
  std::int64_t fast_peak = 0;       ///< peak of the forward of `fast_time`, without its input and the waiting gradients
  /// The peak of a forward for all that is saved, with the transient part of its input until that is free, without the
  /// waiting gradients.
  std::int64_t forward_peak = 0;
  std::int64_t last_forward_peak = 0;  ///< the same of a forward for the stage's own backward
  std::int64_t backward_peak = 0;      ///< peak of the backward, with the saved tensors and the gradients
  /// True if the backward of the stage reads nothing that a forward can make again, and no backward of this stage or an
  /// earlier one reads what the stage makes.
  bool idle = true;

  /// Orders by all members.
  friend auto operator<=>(const stage_figures&, const stage_figures&) = default;
};

/// The stages that make and read a tensor of a `stage_chain`.
struct tensor_use {
  static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();  ///< the absence of a stage

  std::uint32_t made_in = nowhere;          ///< the last stage whose forward makes it
  std::uint32_t last_read = 0;              ///< the last stage that reads it, if a forward makes it
  std::uint32_t first_read = nowhere;       ///< the first stage behind `made_in` whose forward reads it
  std::uint32_t lowest_backward = nowhere;  ///< the lowest stage whose backward reads it
  bool transient = false;                   ///< one of `stage_figures::transient_bytes`
  bool stands = false;                      ///< one of `stage_chain::standing_bytes`

  /// The least t for which the tensor is one of `saved_bytes(made_in, t)`. Precondition: a forward makes the tensor,
  /// which is neither transient nor standing.
  [[nodiscard]] std::uint32_t saved_from() const noexcept {
    return std::max(made_in, std::min(lowest_backward, first_read));
  }
};

/// A training step as a chain of stages: the operations of the forward and of the backward of each stage, their times,
/// and their bytes. Stages, operations and tensors are indices; stages count from 1 to L.
///
/// Stage s holds the forward operations between two cuts. A backward operation belongs to stage min(f, g): f is the
/// highest stage that makes or reads one of its forward inputs, g the lowest stage that makes one of its gradient
/// inputs; each is L without such inputs. All tensors that cross a cut are the input of the stage behind it. An
/// operation that must not run twice runs in the first forward of its stage alone, and its outputs stay. So do
/// operations that write to one tensor together with such an operation, with one of another stage, or with one of the
/// backward part. A forward runs the operations that its purpose needs; the first forward of a stage also makes its
/// final outputs.
///
/// x(s, j) is the tensors that stages s … j make and that are read behind j, by a forward or by a backward of a later
/// stage. All other sizes come from a run of the stage by itself.
///
/// The counts never promise too much. Take a schedule that `slot_table` finds for the sizes in bytes, or in slots
/// rounded up. The operations of `expand`, scheduled by `schedule_computes`, take at most its time and `standing_time`,
/// and at most its memory and `standing_bytes`. They often take less: an operation whose result nobody reads does not
/// run, and a tensor that crosses stages is freed after its last reader.
class stage_chain {
 public:
  /// Marks the absence of a stage.
  static constexpr std::uint32_t nowhere = tensor_use::nowhere;

  /// Keeps a reference to `g`. O(operations + reads and writes + L²) time and O(operations + tensors + L²) memory, and
  /// with `stage_order::least_peak` the time of `operation_sequence::least_peak_order` for each stage. Asks `stop`, if
  /// it is not empty, after each stage: if it returns true, the chain is not complete.
  stage_chain(const flat_graph& g, const forward_line& line, const cut_list& cuts,
              stage_order order = stage_order::listed, const std::function<bool()>& stop = {})
      : graph_(g), order_(order) {
    assign(line, cuts);
    crossing_.assign(figures_.size() * figures_.size(), 0);
    saved_.assign(figures_.size() * figures_.size(), 0);
    is_complete_ = measure_tensors(stop);
    measure_gradients();
    for (std::uint32_t s = 1; s <= length_ && is_complete_; ++s) {
      measure_stage(s);
      is_complete_ = !(stop && stop());
    }
    find_idle_backwards();
  }
  /// A chain of which nothing is known but what its stages run: for `expand` alone, with the operations in the listed
  /// order. O(operations + reads and writes) time and memory.
  [[nodiscard]] static stage_chain without_sizes(const flat_graph& g, const forward_line& line, const cut_list& cuts) {
    return {g, line, cuts, unsized{}};
  }

  /// False if the construction was stopped. Nothing else has a meaning then.
  [[nodiscard]] bool is_complete() const noexcept { return is_complete_; }
  /// L, the number of stages.
  [[nodiscard]] std::uint32_t length() const noexcept { return length_; }
  /// The times and bytes of a stage. Precondition: 0 ≤ stage ≤ L; of stage 0, the chain's input, only
  /// `transient_bytes` has a meaning.
  [[nodiscard]] const stage_figures& operator[](std::uint32_t stage) const noexcept { return figures_[stage]; }
  /// The time of a stage's forward right before its backward, and of that backward. The first forward of the last stage
  /// makes everything: it does not run again.
  [[nodiscard]] double last_time(std::uint32_t stage) const noexcept {
    const stage_figures& f = figures_[stage];
    return (stage == length_ ? f.forward_time : f.last_forward_time) + f.backward_time;
  }
  /// The forward operations of a stage, in the order of the line.
  [[nodiscard]] std::span<const std::uint32_t> forward(std::uint32_t stage) const noexcept { return forward_[stage]; }
  /// The backward operations of a stage, in the listed order.
  [[nodiscard]] std::span<const std::uint32_t> backward(std::uint32_t stage) const noexcept { return backward_[stage]; }

  /// x(s, j) in bytes. Precondition: 1 ≤ s ≤ j ≤ L.
  [[nodiscard]] std::int64_t crossing_bytes(std::uint32_t s, std::uint32_t j) const noexcept {
    return crossing_[at(s, j)];
  }
  /// The tensors that stage s makes for a backward of a stage up to t, or for several later forwards the first of which
  /// is of a stage up to t. Precondition: 1 ≤ s ≤ t ≤ L.
  [[nodiscard]] std::int64_t saved_bytes(std::uint32_t s, std::uint32_t t) const noexcept { return saved_[at(s, t)]; }
  /// The standing tensors: final outputs of the forward part, and tensors that are made once and read by the backward
  /// or by a forward that may run again. They stay whatever the schedule is.
  [[nodiscard]] std::int64_t standing_bytes() const noexcept { return standing_; }
  /// The most time that the first forwards of all stages take beyond the times of the stages: of operations that run
  /// once, and of operations that make standing tensors.
  [[nodiscard]] double standing_time() const noexcept { return standing_time_; }

  /// The makers and readers of a tensor.
  [[nodiscard]] const tensor_use& use_of(std::uint32_t tensor) const noexcept { return uses_[tensor]; }
  /// The stage of an operation; `nowhere` if the operation is not needed.
  [[nodiscard]] std::uint32_t stage_of(std::uint32_t operation) const noexcept { return stage_[operation]; }
  [[nodiscard]] bool is_forward(std::uint32_t operation) const noexcept { return is_forward_[operation] != 0; }
  /// True if the forward operation runs in the first forward of its stage alone.
  [[nodiscard]] bool runs_once(std::uint32_t operation) const noexcept { return once_[operation] != 0; }

  /// Operations that take the place of those of a step; null: the stage's own.
  using replacement = std::function<const std::vector<std::uint32_t>*(const chain_step&)>;

  /// The operations of a schedule of the chain, in order, for `schedule_computes`. Steps of the loss, stage L + 1, are
  /// skipped. `instead` gives other operations for some of the steps. O(steps + operations of the steps) time.
  ///
  /// The purpose of a forward follows from the next step of its stage: another forward, its backward right away, or its
  /// backward later. With `whole`, each forward runs all operations of its stage instead, and all operations are in the
  /// listed order: the counts are no bound on these operations, which now and then need less memory.
  /// `schedule_computes` drops the runs whose results nobody reads; of several runs that make a final output it keeps
  /// the last one.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps, bool whole = false,
                                                  const replacement& instead = nullptr) const {
    const std::vector<purpose> why = find_purposes(steps);
    std::vector<std::uint32_t> operations;
    operations.reserve(graph_.num_operations);
    std::vector<std::uint8_t> ran(std::size_t{length_} + 1, 0), done(graph_.num_operations, 0);
    const auto run_one = [&](std::uint32_t o) {
      if (done[o] && (is_forward_[o] ? once_[o] : graph_.once[o]) != 0) return;
      done[o] = 1;
      operations.push_back(o);
    };
    const auto run_all = [&](const std::vector<std::uint32_t>& all) {
      for (const std::uint32_t o : all) run_one(o);
    };
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::uint32_t s = steps[i].stage;
      if (s > length_) continue;
      const bool backward = steps[i].action == chain_action::backward;
      if (const std::vector<std::uint32_t>* others = instead ? instead(steps[i]) : nullptr) {
        run_all(*others);
      } else if (backward) {
        run_all(whole ? backward_[s] : ordered_backward_[s]);
      } else if (whole) {
        run_all(forward_[s]);
      } else {
        for (const run& r : runs_[s][static_cast<std::size_t>(why[i])])
          if (r.again || !ran[s]) run_one(r.operation);
      }
      if (!backward) ran[s] = 1;
    }
    return operations;
  }

 private:
  /// The purpose of a forward: the tensors that cross the end of its stage, those and all that is saved, or the tensors
  /// that its own backward reads.
  enum class purpose : std::uint8_t { crossing, all, own_backward };

  /// An operation of a forward. Not `again`: it runs in the first forward of the stage alone.
  struct run {
    std::uint32_t operation;
    bool again;
  };

  struct unsized {};
  static constexpr std::uint32_t rows_a_poll = 64;

  stage_chain(const flat_graph& g, const forward_line& line, const cut_list& cuts, unsized)
      : graph_(g), order_(stage_order::listed) {
    assign(line, cuts);
    for (std::uint32_t s = 1; s <= length_; ++s) {
      choose_all_runs(s);
      ordered_backward_[s] = backward_[s];
    }
    find_idle_backwards();
  }

  [[nodiscard]] std::size_t at(std::uint32_t s, std::uint32_t j) const noexcept {
    return s * (std::size_t{length_} + 1) + j;
  }

  /// Gives operations and tensors their stages, and sizes the lists of figures, which have a place for each stage.
  void assign(const forward_line& line, const cut_list& cuts) {
    assign_stages(line, cuts);
    mark_once(line);
    find_uses();
    const std::size_t rows = std::size_t{length_} + 1;
    figures_.resize(rows);
    runs_.resize(rows);
    ordered_backward_.resize(rows);
    wanted_.assign(graph_.num_tensors, 0);
    number_.assign(graph_.num_tensors, nowhere);
  }

  void assign_stages(const forward_line& line, const cut_list& cuts) {
    length_ = static_cast<std::uint32_t>(cuts.size() + 1);
    forward_.assign(length_ + 1, {});
    backward_.assign(length_ + 1, {});
    stage_.assign(graph_.num_operations, nowhere);
    is_forward_.assign(graph_.num_operations, 0);
    uses_.resize(graph_.num_tensors);
    std::uint32_t stage = 1;
    for (std::uint32_t i = 0; i < line.operations.size(); ++i) {
      if (stage <= cuts.size() && cuts[stage - 1] == i) ++stage;
      const std::uint32_t o = line.operations[i];
      stage_[o] = stage;
      is_forward_[o] = 1;
      forward_[stage].push_back(o);
      for (const std::uint32_t t : graph_.outputs[o]) uses_[t].made_in = stage;  // stages ascend
    }
    // The highest stage that makes or reads a tensor.
    std::vector<std::uint32_t> highest(graph_.num_tensors, 0);
    for (const std::uint32_t o : line.operations) {
      for (const std::uint32_t t : graph_.inputs[o]) highest[t] = std::max(highest[t], stage_[o]);
      for (const std::uint32_t t : graph_.outputs[o]) highest[t] = std::max(highest[t], stage_[o]);
    }
    for (const std::uint32_t o : line.rest) {
      std::uint32_t from_forward = 0, from_gradients = length_;  // f (0: none) and g
      for (const std::uint32_t t : graph_.inputs[o]) {
        from_forward = std::max(from_forward, highest[t]);
        for (const std::uint32_t maker : graph_.producers[t])
          if (!is_forward_[maker] && stage_[maker] != nowhere) from_gradients = std::min(from_gradients, stage_[maker]);
      }
      stage_[o] = from_forward == 0 ? from_gradients : std::min(from_forward, from_gradients);
      backward_[stage_[o]].push_back(o);
    }
  }

  /// Either all producers of a tensor run again or none does.
  void mark_once(const forward_line& line) {
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

  void find_uses() {
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
      if (graph_.producers[t].empty()) continue;
      tensor_use& use = uses_[t];
      bool made_once = true, read_again = false;  // read by a backward, or by a forward operation that may run again
      for (const std::uint32_t o : graph_.producers[t]) made_once = made_once && (stage_[o] == nowhere || once_[o]);
      for (const std::uint32_t o : graph_.consumers[t]) {
        if (stage_[o] == nowhere) continue;
        read_again = read_again || !is_forward_[o] || !once_[o];
        if (use.made_in != nowhere) use.last_read = std::max(use.last_read, stage_[o]);
        if (!is_forward_[o])
          use.lowest_backward = std::min(use.lowest_backward, stage_[o]);
        else if (stage_[o] > use.made_in)
          use.first_read = std::min(use.first_read, stage_[o]);
      }
      if (use.made_in == nowhere) continue;
      use.stands = graph_.final_output[t] || (made_once && read_again);
      use.transient = !use.stands && use.lowest_backward == nowhere &&
                      (use.first_read == nowhere || use.first_read == use.last_read);
    }
  }

  /// Returns false if it was stopped.
  bool measure_tensors(const std::function<bool()>& stop) {
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
      const tensor_use& use = uses_[t];
      if (use.made_in == nowhere) continue;
      if (use.stands) {
        standing_ += graph_.bytes[t];
        continue;
      }
      // crossing_[at(s, j)] is at first the bytes that stage s makes and stage j reads last.
      if (use.last_read > use.made_in) crossing_[at(use.made_in, use.last_read)] += graph_.bytes[t];
      if (use.transient) {
        figures_[use.made_in].transient_bytes += graph_.bytes[t];
        figures_[std::max(use.made_in, use.last_read)].transient_bytes -= graph_.bytes[t];
      } else {
        saved_[at(use.made_in, use.saved_from())] += graph_.bytes[t];
      }
    }
    for (std::uint32_t s = 1; s <= length_; ++s) {
      figures_[s].transient_bytes += figures_[s - 1].transient_bytes;
      for (std::uint32_t t = s + 1; t <= length_; ++t) saved_[at(s, t)] += saved_[at(s, t - 1)];
    }
    for (std::uint32_t s = length_; s >= 1; --s) {
      if (stop && s % rows_a_poll == 0 && stop()) return false;
      std::int64_t behind = 0;  // made by s, last read behind j
      for (std::uint32_t j = length_; j >= s; --j) {
        const std::int64_t ends = crossing_[at(s, j)];
        crossing_[at(s, j)] = behind + (s < j ? crossing_[at(s + 1, j)] : 0);
        behind += ends;
      }
    }
    return true;
  }

  /// A gradient waits from the stage whose backward makes it down to the last stage that reads it. A tensor that a
  /// forward makes for the backward of an earlier stage waits in the same way.
  void measure_gradients() {
    std::vector<std::int64_t> change(std::size_t{length_} + 2, 0);
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
      if (graph_.producers[t].empty() || graph_.final_output[t] || uses_[t].stands) continue;
      const std::uint32_t from = highest_maker(t), to = uses_[t].lowest_backward;
      if (from == 0 || to == nowhere || to >= from) continue;
      change[to] += graph_.bytes[t];
      change[from] -= graph_.bytes[t];
    }
    std::int64_t waiting = 0;
    for (std::uint32_t s = 0; s <= length_; ++s) figures_[s].gradient_bytes = waiting += change[s];
  }

  void choose_all_runs(std::uint32_t s) {
    for (const purpose why : {purpose::crossing, purpose::all, purpose::own_backward}) choose_runs(s, why);
  }
  void measure_stage(std::uint32_t s) {
    stage_figures& f = figures_[s];
    choose_all_runs(s);
    f.fast_peak = order_forward(s, purpose::crossing);
    f.forward_peak = order_forward(s, purpose::all);
    f.last_forward_peak = order_forward(s, purpose::own_backward);
    f.fast_time = time_of(s, purpose::crossing, true);
    f.forward_time = time_of(s, purpose::all, true);
    f.last_forward_time = time_of(s, purpose::own_backward, true);
    standing_time_ += time_of(s, s < length_ ? purpose::crossing : purpose::all, false);
    f.backward_peak = order_backward(s);
    for (const std::uint32_t o : backward_[s]) f.backward_time += graph_.time[o];
  }

  void find_idle_backwards() {
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
      const tensor_use& use = uses_[t];
      if (use.made_in == nowhere || use.stands || use.lowest_backward == nowhere) continue;
      if (use.lowest_backward <= use.made_in) figures_[use.made_in].idle = false;
      for (const std::uint32_t o : graph_.consumers[t])
        if (stage_[o] != nowhere && !is_forward_[o]) figures_[stage_[o]].idle = false;
    }
  }

  /// The time of the operations of a forward that run again (`again`), or of those that do not.
  [[nodiscard]] double time_of(std::uint32_t s, purpose why, bool again) const {
    double sum = 0;
    for (const run& r : runs_[s][static_cast<std::size_t>(why)])
      if (r.again == again) sum += graph_.time[r.operation];
    return sum;
  }

  /// True if stage `s` makes `t`, and `t` stays after a forward for `why`.
  [[nodiscard]] bool is_kept(std::uint32_t s, purpose why, std::uint32_t t) const {
    const tensor_use& use = uses_[t];
    if (use.made_in != s) return false;
    if (why == purpose::own_backward) return use.lowest_backward <= s;
    return use.last_read > s || (why == purpose::all && use.lowest_backward != nowhere);
  }

  /// True if no operation of the backward reads `t`, which is no final output either.
  [[nodiscard]] bool is_unread(std::uint32_t t) const {
    return uses_[t].lowest_backward == nowhere && !graph_.final_output[t];
  }

  /// The highest stage with an operation that makes `t`; 0: none.
  [[nodiscard]] std::uint32_t highest_maker(std::uint32_t t) const {
    std::uint32_t stage = 0;
    for (const std::uint32_t o : graph_.producers[t])
      if (stage_[o] != nowhere) stage = std::max(stage, stage_[o]);
    return stage;
  }

  /// Finds the operations that a forward of stage `s` for `why` runs, in the order of the line. Reads the stage
  /// backwards, again as long as a tensor of several producers is wanted more than before.
  void choose_runs(std::uint32_t s, purpose why) {
    std::vector<run>& runs = runs_[s][static_cast<std::size_t>(why)];
    for (bool changed = true; changed;) {
      changed = false;
      runs.clear();
      for (std::size_t i = forward_[s].size(); i-- > 0;) {
        const std::uint32_t o = forward_[s][i];
        std::uint8_t useful = why == purpose::all ? 2 : once_[o] ? 1 : 0;
        for (const std::uint32_t t : graph_.outputs[o]) {
          useful = std::max(useful, wanted_[t]);
          if (uses_[t].stands)
            useful = std::max<std::uint8_t>(useful, 1);
          else if (is_kept(s, why, t))
            useful = 2;
        }
        if (once_[o]) useful = std::min<std::uint8_t>(useful, 1);
        if (useful == 0) continue;
        runs.push_back({o, useful == 2});
        for (const std::uint32_t t : graph_.inputs[o])
          if (uses_[t].made_in == s) wanted_[t] = std::max(wanted_[t], uses_[t].stands ? std::uint8_t{1} : useful);
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
  std::int64_t order_forward(std::uint32_t s, purpose why) {
    std::vector<run>& runs = runs_[s][static_cast<std::size_t>(why)];
    const auto touch_own = [&](std::uint32_t t, bool writes) {
      touch(t, writes, uses_[t].stands, uses_[t].stands || is_kept(s, why, t));
    };
    sequence_.reset(why == purpose::crossing ? 0 : figures_[s - 1].transient_bytes);
    for (const run& r : runs) {
      sequence_.add_operation(graph_.workspace[r.operation]);
      for (const std::uint32_t t : graph_.inputs[r.operation]) {
        const tensor_use& use = uses_[t];
        if (use.made_in == s)
          touch_own(t, false);
        else if (why != purpose::crossing && use.made_in < s && use.last_read == s && use.transient)
          touch(t, false, true, false);  // the last stage that reads a transient input
      }
      for (const std::uint32_t t : graph_.outputs[r.operation]) touch_own(t, true);
    }
    return order_sequence(runs);
  }

  /// Orders the backward of stage `s`, and returns its peak.
  std::int64_t order_backward(std::uint32_t s) {
    sequence_.reset(saved_bytes(s, s) + figures_[s].gradient_bytes);
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
  void touch_in_backward(std::uint32_t s, std::uint32_t t, bool writes) {
    const tensor_use& use = uses_[t];
    if (use.stands || is_unread(t)) {
      touch(t, writes, true, true);
    } else if (use.made_in != nowhere) {
      touch(t, writes, true, use.lowest_backward != s || use.made_in < s);
    } else {
      const bool there = highest_maker(t) > s;
      if (!there && writes && graph_.final_output[t] && number_[t] == nowhere)
        figures_[s].output_bytes += graph_.bytes[t];
      touch(t, writes, there, graph_.final_output[t] || use.lowest_backward < s);  // lower stages read it: it stays
    }
  }

  /// The operation that was added to the sequence last reads or writes `t`.
  void touch(std::uint32_t t, bool writes, bool there, bool stays) {
    if (number_[t] == nowhere) {
      number_[t] = sequence_.add_tensor(graph_.bytes[t], there, stays);
      numbered_.push_back(t);
    }
    sequence_.touch(number_[t], writes);
  }

  /// Puts `items`, one for each operation of the sequence, in order, and returns its peak.
  template <class Item>
  std::int64_t order_sequence(std::vector<Item>& items) {
    constexpr std::size_t max_states = 500;  // more sets do not pay on the bundled graphs (docs/rotor.md)
    for (const std::uint32_t t : numbered_) number_[t] = nowhere;
    numbered_.clear();
    std::vector<std::uint32_t> order;
    if (order_ == stage_order::least_peak) {
      order = sequence_.least_peak_order(max_states);
      std::vector<Item> ordered;
      ordered.reserve(items.size());
      for (const std::uint32_t i : order) ordered.push_back(items[i]);
      items.swap(ordered);
    } else {
      order.resize(items.size());
      std::iota(order.begin(), order.end(), 0u);
    }
    return sequence_.peak(order);
  }

  /// The purpose of each forward of a schedule, by the next step of its stage.
  [[nodiscard]] std::vector<purpose> find_purposes(std::span<const chain_step> steps) const {
    std::vector<purpose> why(steps.size(), purpose::all);
    std::vector<std::size_t> backward_at(std::size_t{length_} + 1, steps.size());
    std::vector<std::uint8_t> runs_again(std::size_t{length_} + 1, 0);
    for (std::size_t i = steps.size(); i-- > 0;) {
      const std::uint32_t s = steps[i].stage;
      if (s > length_) continue;
      if (steps[i].action == chain_action::backward) {
        backward_at[s] = i;
        runs_again[s] = figures_[s].idle;
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

  const flat_graph& graph_;
  stage_order order_;
  std::uint32_t length_ = 0;
  bool is_complete_ = true;
  // [stage]
  std::vector<stage_figures> figures_;
  std::vector<std::vector<std::uint32_t>> forward_, backward_, ordered_backward_;
  std::vector<std::array<std::vector<run>, 3>> runs_;  // each purpose's runs
  // indexed by at(stage, stage)
  std::vector<std::int64_t> crossing_, saved_;
  // [operation]
  std::vector<std::uint32_t> stage_;
  std::vector<std::uint8_t> is_forward_, once_;
  // [tensor]
  std::vector<tensor_use> uses_;
  std::int64_t standing_ = 0;
  double standing_time_ = 0;
  // While the runs of a stage are chosen: 2 for a tensor that every run makes, 1 for one of the first run alone.
  std::vector<std::uint8_t> wanted_;
  // While a stage is ordered: its operations, the numbers of their tensors, and the tensors that have a number.
  operation_sequence sequence_;
  std::vector<std::uint32_t> number_, numbered_;
};

/// The number of different stages of a chain: those that agree in all times and bytes, in what they make and save for
/// the next stages, and in their numbers of operations count as one. O(L log L) time.
[[nodiscard]] inline std::size_t count_distinct_stages(const stage_chain& chain) {
  std::set<std::tuple<stage_figures, std::array<std::int64_t, 3>, std::size_t, std::size_t>> kinds;
  for (std::uint32_t s = 1; s <= chain.length(); ++s) {
    const std::uint32_t behind = std::min(s + 1, chain.length());
    const std::array<std::int64_t, 3> kept{chain.crossing_bytes(s, s), chain.saved_bytes(s, s),
                                           chain.saved_bytes(s, behind)};
    kinds.emplace(chain[s], kept, chain.forward(s).size(), chain.backward(s).size());
  }
  return kinds.size();
}

}  // namespace REMAT_NAMESPACE::detail
