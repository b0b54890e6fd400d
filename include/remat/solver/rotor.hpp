// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/chain_problem.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/chain_schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/chain_solution.hpp"
#include "remat/solver/linearize.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/conclude.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

namespace persistent {

/// A chain of stages 1 … n, a loss among them, with its memory counted in slots: what the dynamic program runs on.
///
/// Of a stage s: `fast`, `forward` and `last_forward` are its forward's times when nothing is kept, when everything is,
/// and right before its own backward, `backward` that of its backward. A forward that keeps nothing needs `fast_need`
/// beside its input, one that keeps everything `forward_need`, one that does so right before the stage's own backward
/// `last_forward_need`, all beside the gradient that waits; the backward needs `backward_need` and occupies `outputs`
/// for good. What stays of stage s when it is kept for the backwards of the stages up to t takes `saved`; in the Rotor
/// model that is the same for all t. x(s, j), `crossing`, is what stages s … j make for later ones. A part of the input
/// of a stage, `transient`, is read by forwards alone and gone after the last of them, unless it is kept to run again:
/// so to set the input of j beside that of s apart takes h(s, j − 1), `held`, since the transient part of the input of
/// j is charged within (j, t). In the Rotor model nothing is transient, and h = x. All three at s · (n + 1) + j.
struct slot_chain {
  std::uint32_t stages = 0;
  std::uint32_t slots = 0;  ///< m is at most that
  std::vector<double> fast, forward, last_forward, backward;
  std::vector<std::uint32_t> gradient, fast_need, forward_need, last_forward_need, backward_need, outputs;
  std::vector<std::uint8_t> idle;        ///< the backward reads nothing that a forward makes
  std::vector<std::uint32_t> transient;  ///< [s]: of the input of stage s + 1
  std::vector<std::uint32_t> saved, crossing, held;
  /// The forward that keeps everything is charged the gradient of its own output, as in formats.md, in place of the one
  /// that waits then.
  bool own_gradient = false;

  void resize(std::uint32_t n) {
    stages = n;
    const std::size_t rows = std::size_t{n} + 1;
    for (auto* times : {&fast, &forward, &last_forward, &backward}) times->assign(rows, 0.0);
    for (auto* sizes : {&gradient, &fast_need, &forward_need, &last_forward_need, &backward_need, &outputs, &transient})
      sizes->assign(rows, 0);
    idle.assign(rows, 0);
    saved.assign(rows * rows, 0);
    crossing.assign(rows * rows, 0);
    held.assign(rows * rows, 0);
  }
  [[nodiscard]] std::uint32_t x(std::uint32_t s, std::uint32_t j) const noexcept {
    return crossing[s * (std::size_t{stages} + 1) + j];
  }
  [[nodiscard]] std::uint32_t kept(std::uint32_t s, std::uint32_t t) const noexcept {
    return saved[s * (std::size_t{stages} + 1) + t];
  }
  [[nodiscard]] std::uint32_t h(std::uint32_t s, std::uint32_t j) const noexcept {
    return held[s * (std::size_t{stages} + 1) + j];
  }
};

/// The table C(s, t, m): the least time to run the stages s … t forward and backward with m slots, the input of s (but
/// for its transient part) and all that was stored before outside m, the gradient of x_t inside.
///
///   C(s, t, m) is the smaller of
///   - keep s whole: f_s + b_s + C(s + 1, t, m − saved(s, t)), with C(t + 1, t, ·) = 0,
///     if m ≥ gradient_t + forward_need_s and m − outputs_{s+1…t} ≥ backward_need_s;
///   - keep the input of j alone, for a j with s < j ≤ t:
///     f_s + … + f_{j−1} + C(j, t, m − h(s, j − 1)) + C(s, j − 1, m − outputs_{j…t}),
///   and both infinite where s < t and, for some i in [s, t), m < gradient_t + transient_{s−1} + x(s, i − 1) +
///   fast_need_i;
///   - where the backward of t reads nothing that a forward makes, and s < t < n (so the forward of t has run): no
///   forward
///     of t, b_t + C(s, t − 1, m − outputs_t), if m ≥ transient_{s−1} + backward_need_t.
///     In the Rotor model there is no such stage.
///
/// C falls with m, so a row is finite from some slot on, and only from there on is anything computed.
/// O(n³ · slots) time, O(n² · slots) memory, with m contiguous in the innermost loop.
class table {
 public:
  explicit table(const slot_chain& c) : c_(c), width_(std::size_t{c.slots} + 1) {
    const std::size_t n = c.stages;
    cost_.assign(n * (n + 1) / 2 * width_, infinite);
    first_.assign(n * (n + 1) / 2, never);
    times_.assign(n + 1, 0);
    outputs_.assign(n + 1, 0);
    for (std::size_t s = 1; s <= n; ++s) {
      times_[s] = times_[s - 1] + c.fast[s];
      outputs_[s] = outputs_[s - 1] + c.outputs[s];
    }
  }

  /// Bytes of the table for n stages.
  [[nodiscard]] static double bytes(double n, double slots) { return n * (n + 1) / 2 * (slots + 1) * sizeof(double); }

  /// Fills the table; polls after each pair (s, t). `tell(done, total)` hears about it.
  template <class Tell>
  stop_reason fill(run_clock& clock, Tell&& tell) {
    const std::uint64_t total = first_.size();
    std::uint64_t done = 0;
    for (std::uint32_t length = 0; length < c_.stages; ++length)
      for (std::uint32_t s = 1; s + length <= c_.stages; ++s) {
        fill(s, s + length);
        clock.work();
        const stop_reason why = clock.poll();
        if (why != stop_reason::none) return why;
        tell(++done, total);
      }
    return stop_reason::none;
  }

  /// C(1, n, m).
  [[nodiscard]] double cost(std::uint32_t m) const { return row(1, c_.stages)[m]; }
  /// The first m with a finite C(1, n, m); more than `slots` if there is none.
  [[nodiscard]] std::uint64_t first() const { return first_[at(1, c_.stages)]; }

  /// The steps behind C(1, n, m). Precondition: it is finite.
  [[nodiscard]] std::vector<chain_step> steps(std::uint32_t m) const {
    struct range {
      std::uint32_t s, t, m;
    };
    std::vector<chain_step> out;
    std::vector<range> left{{1, c_.stages, m}};  // t = 0: the backward of s
    while (!left.empty()) {
      const range now = left.back();
      left.pop_back();
      if (now.t == 0) {
        out.push_back({chain_action::backward, now.s});
        continue;
      }
      const std::uint32_t j = choice(now.s, now.t, now.m);
      if (j == 0) {
        out.push_back({chain_action::backward, now.t});
        left.push_back({now.s, now.t - 1, now.m - c_.outputs[now.t]});
        continue;
      }
      if (j == now.s) {
        out.push_back({chain_action::forward_all, now.s});
        left.push_back({now.s, 0, 0});
        if (now.s < now.t) left.push_back({now.s + 1, now.t, now.m - c_.kept(now.s, now.t)});
        continue;
      }
      for (std::uint32_t i = now.s; i < j; ++i)
        out.push_back({i == now.s ? chain_action::forward_checkpoint : chain_action::forward_none, i});
      left.push_back({now.s, j - 1, now.m - made_behind(j, now.t)});
      left.push_back({j, now.t, now.m - c_.h(now.s, j - 1)});
    }
    return out;
  }

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  static constexpr std::uint64_t never = std::numeric_limits<std::uint32_t>::max();

  [[nodiscard]] std::size_t at(std::uint32_t s, std::uint32_t t) const noexcept {  // all (s, t) with one t together
    return std::size_t{t} * (t - 1) / 2 + (s - 1);
  }
  [[nodiscard]] const double* row(std::uint32_t s, std::uint32_t t) const { return cost_.data() + at(s, t) * width_; }
  /// outputs of the stages j … t.
  [[nodiscard]] std::uint32_t made_behind(std::uint32_t j, std::uint32_t t) const {
    return outputs_[t] - outputs_[j - 1];
  }

  /// The least m with which s may be kept whole in (s, t), as far as s itself needs it.
  [[nodiscard]] std::uint64_t keep_need(std::uint32_t s, std::uint32_t t) const {
    const std::uint64_t gradient = c_.gradient[c_.own_gradient ? s : t];
    return std::max<std::uint64_t>(gradient + (s == t ? c_.last_forward_need[s] : c_.forward_need[s]),
                                   std::uint64_t{c_.backward_need[s]} + made_behind(s + 1, t));
  }
  /// The least m with which the forwards from s on can be run in (s, t). Precondition: s < t.
  [[nodiscard]] std::uint64_t run_need(std::uint32_t s, std::uint32_t t) const {
    std::uint64_t need = c_.fast_need[s];
    for (std::uint32_t i = s + 1; i < t; ++i)
      need = std::max<std::uint64_t>(need, std::uint64_t{c_.x(s, i - 1)} + c_.fast_need[i]);
    return need + c_.gradient[t] + c_.transient[s - 1];
  }

  [[nodiscard]] bool may_skip(std::uint32_t s, std::uint32_t t) const { return s < t && t < c_.stages && c_.idle[t]; }
  /// The least m with which the backward of t may go ahead of any forward in (s, t).
  [[nodiscard]] std::uint64_t skip_need(std::uint32_t s, std::uint32_t t) const {
    return std::max<std::uint64_t>(std::uint64_t{c_.transient[s - 1]} + c_.backward_need[t],
                                   c_.outputs[t] + first_[at(s, t - 1)]);
  }

  void fill(std::uint32_t s, std::uint32_t t) {
    double* const best = cost_.data() + at(s, t) * width_;
    const std::uint64_t base = s < t ? run_need(s, t) : 0;
    std::uint64_t least = never;
    const double whole = (s == t ? c_.last_forward[s] : c_.forward[s]) + c_.backward[s];
    std::uint64_t from = std::max(base, keep_need(s, t));
    if (s < t) from = std::max(from, c_.kept(s, t) + first_[at(s + 1, t)]);
    if (from < width_) {
      least = from;
      if (s == t) {
        for (std::size_t m = from; m < width_; ++m) best[m] = whole;
      } else {
        const double* const rest = row(s + 1, t);
        const std::size_t shift = c_.kept(s, t);
        for (std::size_t m = from; m < width_; ++m) best[m] = whole + rest[m - shift];
      }
    }
    for (std::uint32_t j = s + 1; j <= t; ++j) {
      const std::uint64_t kept = c_.h(s, j - 1), made = made_behind(j, t);
      from = std::max({base, kept + first_[at(j, t)], made + first_[at(s, j - 1)]});
      if (from >= width_) continue;
      least = std::min(least, from);
      const double advance = times_[j - 1] - times_[s - 1];
      const std::size_t count = width_ - static_cast<std::size_t>(from);
      take_smaller(best + from, row(j, t) + (from - kept), row(s, j - 1) + (from - made), advance, count);
    }
    if (may_skip(s, t)) {
      from = skip_need(s, t);
      if (from < width_) {
        least = std::min(least, from);
        const std::size_t count = width_ - static_cast<std::size_t>(from);
        const double* const rest = row(s, t - 1) + (from - c_.outputs[t]);
        for (std::size_t k = 0; k < count; ++k) best[from + k] = std::min(best[from + k], c_.backward[t] + rest[k]);
      }
    }
    first_[at(s, t)] = least;
  }

  static void take_smaller(double* best, const double* behind, const double* before, double advance,
                           std::size_t count) {
    for (std::size_t k = 0; k < count; ++k) {
      const double time = advance + behind[k] + before[k];
      best[k] = time < best[k] ? time : best[k];
    }
  }

  /// 0: no forward of t; s: keep it whole; else the j whose input is kept alone.
  [[nodiscard]] std::uint32_t choice(std::uint32_t s, std::uint32_t t, std::uint32_t m) const {
    const double cost = row(s, t)[m];
    if (may_skip(s, t) && m >= skip_need(s, t) && cost == c_.backward[t] + row(s, t - 1)[m - c_.outputs[t]]) return 0;
    if (m >= keep_need(s, t)) {
      const double whole = (s == t ? c_.last_forward[s] : c_.forward[s]) + c_.backward[s];
      if (s == t || (m >= c_.kept(s, t) && cost == whole + row(s + 1, t)[m - c_.kept(s, t)])) return s;
    }
    for (std::uint32_t j = s + 1; j <= t; ++j) {
      const std::uint32_t kept = c_.h(s, j - 1), made = made_behind(j, t);
      if (m < kept || m < made) continue;
      if (cost == times_[j - 1] - times_[s - 1] + row(j, t)[m - kept] + row(s, j - 1)[m - made]) return j;
    }
    throw internal_error("no choice of the table of a chain explains its cost");
  }

  const slot_chain& c_;
  std::size_t width_;
  std::vector<double> cost_;          // C, at(s, t) · width_ + m
  std::vector<std::uint64_t> first_;  // the first m of a row with a finite cost
  std::vector<double> times_;         // prefix sums of fast
  std::vector<std::uint32_t> outputs_;
};

/// A chain in slots of ⌊budget / slots⌋ bytes, every size rounded up, the loss as its last stage; `exact_gradient`: see
/// `rotor_options`. x_0 is not in it. Sizes beyond the budget become slots + 1.
[[nodiscard]] inline slot_chain in_slots(const chain& c, std::int64_t budget, std::uint32_t slots,
                                         bool exact_gradient) {
  const std::int64_t unit = std::max<std::int64_t>(budget / std::max<std::uint32_t>(slots, 1), 1);
  slot_chain out;
  out.resize(static_cast<std::uint32_t>(c.length() + 1));
  out.slots = slots;
  out.own_gradient = !exact_gradient;
  const auto round = [&](std::int64_t bytes) {
    return static_cast<std::uint32_t>(
        std::min<std::int64_t>(bytes / unit + (bytes % unit != 0), std::int64_t{slots} + 1));
  };
  for (std::uint32_t s = 1; s <= out.stages; ++s) {
    const chain_stage stage = s > c.length() ? chain_stage{} : c.stage(s);
    const std::uint32_t x = round(stage.output_bytes);
    out.fast[s] = out.forward[s] = out.last_forward[s] = stage.forward_time;
    out.backward[s] = stage.backward_time;
    out.gradient[s] = x;
    out.fast_need[s] = x + round(stage.forward_overhead_bytes);
    const std::uint32_t saved = round(stage.saved_bytes);
    out.forward_need[s] = out.last_forward_need[s] = saved + round(stage.forward_overhead_bytes);
    out.backward_need[s] = round(c.activation_bytes(s - 1)) + saved + round(stage.backward_overhead_bytes);
    for (std::uint32_t t = s; t <= out.stages; ++t) out.saved[s * (std::size_t{out.stages} + 1) + t] = saved;
    for (std::uint32_t i = 1; i <= s; ++i) out.crossing[i * (std::size_t{out.stages} + 1) + s] = x;
  }
  out.held = out.crossing;
  return out;
}

/// The stages of a graph in slots of `unit` bytes, every size rounded to the nearest: the checker has the last word.
[[nodiscard]] inline slot_chain in_slots(const stage_chain& c, std::int64_t unit, std::uint32_t slots) {
  slot_chain out;
  out.resize(c.length());
  out.slots = slots;
  const auto round = [&](std::int64_t bytes) {
    return static_cast<std::uint32_t>(
        std::min<std::int64_t>(bytes / unit + (bytes % unit >= unit - unit / 2 ? 1 : 0), std::int64_t{slots} + 1));
  };
  for (std::uint32_t s = 1; s <= c.length(); ++s) {
    out.fast[s] = c.fast_time(s);
    out.forward[s] = c.forward_time(s);
    // Of the last stage the first forward is not run again: there it makes everything.
    out.last_forward[s] = s == c.length() ? c.forward_time(s) : c.last_forward_time(s);
    out.idle[s] = c.backward_reads_no_forward(s);
    out.backward[s] = c.backward_time(s);
    out.gradient[s] = round(c.gradient_bytes(s));
    out.fast_need[s] = round(c.fast_peak(s));
    out.forward_need[s] = round(c.forward_peak(s));
    out.last_forward_need[s] = round(c.last_forward_peak(s));
    out.backward_need[s] = round(c.backward_peak(s));
    out.outputs[s] = round(c.output_bytes(s));
    out.transient[s] = round(c.transient_bytes(s));
    for (std::uint32_t j = s; j <= c.length(); ++j) {
      const std::size_t at = s * (std::size_t{out.stages} + 1) + j;
      out.saved[at] = round(c.saved_bytes(s, j));
      out.crossing[at] = round(c.crossing_bytes(s, j));
      out.held[at] = round(c.crossing_bytes(s, j) + c.transient_bytes(s - 1) - c.transient_bytes(j));
    }
  }
  return out;
}

/// The bytes that the model wants to keep every stage whole.
[[nodiscard]] inline std::int64_t store_all_bytes(const stage_chain& c) {
  std::int64_t stored = 0, most = 0;
  for (std::uint32_t s = 1; s <= c.length(); ++s) {
    std::int64_t made = 0;
    for (std::uint32_t i = s + 1; i <= c.length(); ++i) made += c.output_bytes(i);
    most = std::max({most, stored + c.forward_peak(s), stored + c.backward_peak(s) + made});
    stored += c.saved_bytes(s, c.length());
  }
  return most;
}

}  // namespace persistent

struct rotor_options {
  std::uint32_t slots = 500;       ///< memory is counted in so many parts
  std::uint32_t max_stages = 150;  ///< of the chain that a graph is cut into
  /// On a chain: charge a forward that keeps everything with the gradient that is there then, which is what the
  /// simulation counts, in place of that of its own output, which is what the published recurrence and formats.md do.
  /// Often better, and it solves tighter budgets. Should a schedule of the latter break the budget, the former is used.
  bool exact_gradient = false;
  std::int64_t table_bytes = std::int64_t{4} << 30;  ///< fewer slots where a table would be larger than that
  run_control run{};
};

/// The fastest memory-persistent schedule of a chain (what is kept is kept until its backward) within a budget, by
/// dynamic programming over sub-chains and memory in slots \cite beaumont2019rotor. The recurrence stands at
/// `persistent::table`.
///
/// On a chain: slots of ⌊budget / slots⌋ bytes and sizes rounded up, so a schedule keeps the budget; the optimum for
/// those sizes. On a graph: `cut_levels` gives chains, each is solved for all budgets at once, and each makespan's
/// schedule is expanded to operations, fastest first, until one passes the checker within the true budget; sizes are
/// rounded to the nearest there. Other than in the paper, what crosses several stages is counted once, gradients have
/// their own sizes, step outputs pile up during the backward, and a forward that keeps nothing may take less time.
/// Optimal in the model; for the graph a heuristic. Where everything can be kept, that is the answer.
/// O(L³ · slots) time and O(L² · slots) memory for each chain of L stages. Polls at each pair of stages.
struct rotor_solver {
  using options_type = rotor_options;
  static constexpr std::string_view name = "rotor";

  /// Throws `bad_argument` without slots.
  [[nodiscard]] solution operator()(const problem& p, const rotor_options& options = {}) const {
    check_options(options);
    run_clock clock(options.run);
    solution best;
    stop_reason stopped = stop_reason::none;
    if (settled_by_listed_order(p, best)) {
      conclude(p, best, clock, stopped);
      return best;
    }
    const forward_line line = find_forward_line(p.step());
    for (const cut_list& cuts : chains_to_try(line, options)) {
      const stage_chain stages(p.step(), line, cuts);
      const std::uint32_t slots = affordable_slots(stages.length(), options);
      if (slots == 0) continue;
      const std::int64_t unit = std::max<std::int64_t>(persistent::store_all_bytes(stages) / slots + 1, 1);
      const persistent::slot_chain chain = persistent::in_slots(stages, unit, slots);
      persistent::table table(chain);
      stopped = table.fill(clock, [&](std::uint64_t done, std::uint64_t total) {
        report(clock, best.time, p.step().needed_time, done, total);
      });
      if (stopped != stop_reason::none) break;
      stopped = accept_fitting(p, best, stages, table, slots, clock);
      if (stopped != stop_reason::none) break;
    }
    conclude(p, best, clock, stopped);
    return best;
  }

  /// \overload
  [[nodiscard]] chain_solution operator()(const chain_problem& p, const rotor_options& options = {}) const {
    check_options(options);
    run_clock clock(options.run);
    chain_solution best;
    stop_reason stopped = stop_reason::none;
    const chain& c = p.stages();
    if (accept(p, best, store_all_steps(c)) || largest_working_set(p) > p.budget()) {
      conclude(p, best, clock, stopped);
      return best;
    }
    const std::uint32_t slots = affordable_slots(c.length() + 1, options);
    if (slots == 0) {
      best.status = solve_status::error;
      best.message = "the chain is too long: a table of " + std::to_string(options.table_bytes) +
                     " bytes (table_bytes) has no room for it";
      conclude(p, best, clock, stopped);
      return best;
    }
    const std::int64_t unit = std::max<std::int64_t>(p.budget() / slots, 1);
    const std::int64_t input = c.input_bytes() / unit + (c.input_bytes() % unit != 0);
    // A budget below the number of slots has one byte in a slot, and fewer of them.
    const std::int64_t room = std::min<std::int64_t>(slots, p.budget() / unit) - input;
    const auto solve = [&](bool exact_gradient) {  // returns whether there is a schedule by the recurrence
      const persistent::slot_chain chain = persistent::in_slots(c, p.budget(), slots, exact_gradient);
      persistent::table table(chain);
      stopped = table.fill(clock, [&](std::uint64_t done, std::uint64_t total) {
        report(clock, best.makespan, c.store_all_time(), done, total);
      });
      if (stopped != stop_reason::none || room < 0 || table.first() > static_cast<std::uint64_t>(room)) return false;
      accept(p, best, table.steps(static_cast<std::uint32_t>(room)));
      return true;
    };
    // With the gradient of the output in place of the one that waits, a schedule may break the budget; never otherwise.
    if (solve(options.exact_gradient) && !best.steps) solve(true);
    if (!best.steps && stopped == stop_reason::none)
      best.message = "no memory-persistent schedule fits when sizes are rounded up to slots of " +
                     std::to_string(unit) + " bytes; that is no proof that there is none";
    conclude(p, best, clock, stopped);
    return best;
  }

 private:
  static void check_options(const rotor_options& options) {
    if (options.slots == 0) throw bad_argument("slots is 0; there must be at least one");
  }

  /// Of `cut_levels`, and of segments of about equal bytes with cuts of the two finest, small ones first: those are
  /// solved at once. Coarse stages run their backward operations in the listed order, which often needs less memory.
  static std::vector<cut_list> chains_to_try(const forward_line& line, const rotor_options& options) {
    const std::size_t most = std::max<std::uint32_t>(options.max_stages, 1) - 1;
    std::vector<cut_list> chains = cut_levels(line, most);
    const std::vector<cut_list> fine = cut_levels(line, line.operations.size());
    for (std::size_t level = 0; level < std::min<std::size_t>(fine.size(), 2); ++level)
      for (const std::size_t segments : {4u, 6u, 8u, 11u, 16u, 23u, 32u, 45u})
        if (segments <= most + 1) chains.push_back(even_cuts(line, fine[level], segments));
    std::sort(chains.begin(), chains.end(),
              [](const cut_list& a, const cut_list& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
    chains.erase(std::unique(chains.begin(), chains.end()), chains.end());
    return chains;
  }

  static void report(run_clock& clock, double best, double bound, std::uint64_t done, std::uint64_t total) {
    progress news;
    news.solver = name;
    news.stage = "table";
    news.best_time = best;
    news.lower_bound = bound;
    news.done = done;
    news.total = total;
    clock.report(news);
  }

  /// As many slots as asked for, or fewer where the table would be too large; 0: not even 16.
  static std::uint32_t affordable_slots(std::size_t stages, const rotor_options& options) {
    const double one = persistent::table::bytes(static_cast<double>(stages), 0);
    const double most = static_cast<double>(options.table_bytes) / one - 1;
    if (most >= options.slots) return options.slots;
    return most < 16 ? 0 : static_cast<std::uint32_t>(most);
  }

  /// Expands the schedules of one table, fastest first, until one fits and the next ones cannot be much faster.
  static stop_reason accept_fitting(const problem& p, solution& best, const stage_chain& stages,
                                    const persistent::table& table, std::uint32_t slots, run_clock& clock) {
    constexpr double slack = 1.3;  // expanded, a schedule recomputes less than the model says
    const double least = p.step().needed_time;
    double whole = 0;  // the model's time without recomputation
    for (std::uint32_t s = 1; s <= stages.length(); ++s) whole += stages.forward_time(s) + stages.backward_time(s);
    for (std::uint64_t m = std::uint64_t{slots} + 1; m-- > table.first();) {
      const auto now = static_cast<std::uint32_t>(m);
      if (m > table.first() && table.cost(now - 1) == table.cost(now)) continue;  // the same time with less memory
      if (best.plan && table.cost(now) - whole > (best.time - least) * slack) break;
      const stop_reason why = clock.poll();
      if (why != stop_reason::none) return why;
      clock.work();
      accept(p, best, schedule_computes(p.step(), stages.expand(table.steps(now))));
    }
    return stop_reason::none;
  }
};
inline constexpr rotor_solver rotor{};

}  // namespace remat
