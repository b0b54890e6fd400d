// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/turnaround.hpp"
#include "remat/core/control.hpp"
#include "remat/core/id.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/model.hpp"
#include "remat/mip/row_writer.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/refined.hpp"
#include "remat/solver/rockmate.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

struct checkmate_model_options {
  /// Only schedules that take at most this long need be solutions: what costs more by itself has no variable.
  double at_most = std::numeric_limits<double>::infinity();
  /// The budget in units of size: sizes are rounded up to whole units, the budget down. Where the greatest common
  /// divisor of all sizes allows it, nothing is lost.
  std::int64_t units = std::int64_t{1} << 20;
  /// First runs whose turnaround bound is added as rows (`turnaround_analysis`, in its form for the listed order).
  std::vector<op_id> moments{};
};

/// Checkmate's integer program for one problem: the needed operations in T phases, the t-th of which ends with the
/// first run of the t-th operation of the listed order, and in which earlier ones may run once more, in the listed
/// order. \cite jain2020checkmate
///
/// R[t,k] (binary) says that operation k runs again in phase t. All else follows from these: for each tensor, and
/// between any two runs that may write or read it (its *events*), a variable says whether it is held there. After a
/// read it is at most as much as before, before a read that takes place it is 1, after a write at most before + R.
/// Memory is carried from run to run by one equation each. There are no variables for frees, which Checkmate's form has
/// to linearise: a free is where a tensor is held no longer.
///
/// Left out, because some best solution does without (of all solutions of the form, not of all schedules):
/// - phases before the first operation that does not fit beside everything that may be of use later run nothing twice,
///   nor free anything then (but where a tensor of several producers that may run again has been begun);
/// - R[t,k] where nothing that could run or be wanted from there on reads what k makes;
/// - running an operation none of whose outputs is held afterwards.
/// A tensor that is there counts twice while a run makes it again: it might as well have been freed before. More rows
/// of that kind (what is held must be read) do not raise the relaxation's bound and slow it down.
///
/// A tensor of several producers that can be made again has a variable for each contribution: all go when it is freed,
/// and none may be added twice. If none of its producers may run again, it is held from the first write on as one.
///
/// The optimum, and infeasibility, hold for the listed order of first runs and one run in a phase, not for the problem.
///
/// Size: about T²/2 variables R for operations that may run twice, and as many others for each read and write of these.
class checkmate_model : private row_writer {
 public:
  explicit checkmate_model(const problem& p, const checkmate_model_options& options = {})
      : problem_(p), s_(p.graph()), options_(options) {
    number_operations();
    scale();
    find_first_phase();
    build();
    add_moments();
  }
  checkmate_model(const checkmate_model&) = delete;  // it refers to the step
  checkmate_model& operator=(const checkmate_model&) = delete;

  [[nodiscard]] const mip_model& model() const noexcept { return model_; }
  /// How many columns are decisions R.
  [[nodiscard]] std::size_t decisions() const noexcept { return decisions_; }
  /// The time of the schedule of a solution with this objective.
  [[nodiscard]] double time(double objective) const noexcept { return objective / time_scale_; }
  [[nodiscard]] double objective(double time) const noexcept { return time * time_scale_; }

  /// About how many columns the model would have: to be asked before it is built.
  [[nodiscard]] static double size_estimate(const problem& p) {
    const flat_graph& s = p.graph();
    double again = 0, events = 0, count = 0;
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      if (!s.needed[o]) continue;
      ++count;
      if (s.once[o]) continue;
      ++again;
      events += 2 + static_cast<double>(s.inputs[o].size() + s.outputs[o].size());
    }
    return again == 0 ? 0 : events * (count - again / 2);
  }

  /// The runs that the values say, in order. Values are read as nearest whole numbers.
  [[nodiscard]] std::vector<std::uint32_t> order(std::span<const double> values) const {
    std::vector<std::uint32_t> order;
    const std::size_t n = op_.size();
    for (std::uint32_t t = 0; t < n; ++t) {
      for (std::uint32_t k = 0; k < t; ++k)
        if (const std::uint32_t c = decision(t, k); c != none && values[c] > 0.5) order.push_back(op_[k]);
      order.push_back(op_[t]);
    }
    return order;
  }
  /// Their schedule, without runs in vain (first runs may be) and freed as early as can be. Not checked: a backend's
  /// values are a hint.
  [[nodiscard]] schedule decode(std::span<const double> values) const { return schedule_computes(s_, order(values)); }

  /// The values that say a schedule, or one with the same runs in the form's order; nothing where that is none within
  /// the budget.
  [[nodiscard]] std::optional<std::vector<double>> encode(const schedule& plan) const {
    // The phase of a run is that of the next operation, in the listed order, that has not yet run.
    const std::size_t n = op_.size();
    std::vector<std::uint8_t> ran(n, 0);
    std::vector<double> x(model_.num_columns(), 0);
    std::uint32_t phase = 0;
    for (const std::uint32_t o : computes_of(plan)) {
      const std::uint32_t k = position_[o];
      if (k == none) continue;
      if (k == phase) {
        ran[k] = 1;
        ++phase;
      } else if (!ran[k] || phase >= n) {
        return std::nullopt;  // another order of first runs
      } else if (const std::uint32_t c = decision(phase, k); c != none) {
        x[c] = 1;
      } else {
        return std::nullopt;
      }
    }
    fill_in(x);
    if (!(model_.violation(x) <= 1e-6)) return std::nullopt;
    return x;
  }

 private:
  /// A tensor as it stands at the point that the construction has reached.
  struct tensor_state {
    value held{};
    std::vector<value> contributions{};  // only where there are several producers that may run again
  };
  /// A run that may take place, for the values of what follows from the decisions.
  struct run {
    std::uint32_t operation = none;
    std::uint32_t decision = none;  // none: it takes place
    std::uint32_t first_part = 0;   // of parts_
    std::uint32_t memory = none;    // column of the memory in use afterwards
  };
  struct part {  // a tensor that the run reads or writes
    std::uint32_t tensor = none;
    std::uint32_t held = none;    // columns of what holds afterwards
    std::uint32_t across = none;  // column: allocated while it runs
    std::vector<std::uint32_t> contributions{};
  };

  void number_operations() {
    position_.assign(s_.num_operations, none);
    for (std::uint32_t o = 0; o < s_.num_operations; ++o)
      if (s_.needed[o]) {
        position_[o] = static_cast<std::uint32_t>(op_.size());
        op_.push_back(o);
      }
    const double slack = options_.at_most * (1 + 1e-9) - s_.needed_time;
    again_.assign(op_.size(), 0);
    for (std::size_t k = 0; k < op_.size(); ++k)
      again_[k] = !s_.once[op_[k]] && !s_.has_effect(op_[k]) && !(s_.time[op_[k]] > slack);
    time_scale_ = s_.needed_time > 0 && !whole_times() ? 1000 / s_.needed_time : 1;
  }
  [[nodiscard]] bool whole_times() const {
    for (const std::uint32_t o : op_)
      if (s_.time[o] != std::floor(s_.time[o])) return false;
    return s_.needed_time >= 1 && s_.needed_time <= 1e5;
  }

  /// Bytes to units, and units to numbers of about 1 to 1000 in the model.
  void scale() {
    const std::int64_t budget = problem_.budget();
    std::int64_t divisor = 0;
    for (const std::int64_t b : s_.bytes) divisor = std::gcd(divisor, b);
    for (const std::uint32_t o : op_) divisor = std::gcd(divisor, s_.workspace[o]);
    unit_ = std::max<std::int64_t>(divisor, 1);
    if (budget / unit_ > options_.units) {
      const std::int64_t wanted = (budget - 1) / options_.units + 1;
      unit_ = (wanted + unit_ - 1) / unit_ * unit_;
    }
    // Without a budget no row needs to say anything; the number only has to be finite.
    capacity_units_ = problem_.has_budget() ? budget / unit_ : 0;
    weight_ = 1;
    for (std::int64_t c = capacity_units_; c > 1024; c /= 2) weight_ /= 2;
    capacity_ = static_cast<double>(capacity_units_) * weight_;
  }
  [[nodiscard]] double size(std::int64_t bytes) const {
    return static_cast<double>((bytes + unit_ - 1) / unit_) * weight_;
  }
  [[nodiscard]] double tensor_size(std::uint32_t t) const { return size(s_.bytes[t]); }

  [[nodiscard]] std::uint64_t at(std::uint32_t phase, std::uint32_t k) const noexcept {
    return std::uint64_t{phase} * (op_.size() + 1) + k;
  }

  /// For each operation the last phase in which it may be of use to run it again, if that is from `first_phase_` on;
  /// for each tensor the last read.
  void find_last_uses() {
    const auto n = static_cast<std::uint32_t>(op_.size());
    last_phase_.assign(n, 0);
    last_read_.assign(s_.num_tensors, 0);
    used_.assign(s_.num_tensors, 0);
    for (std::uint32_t t = 0; t < s_.num_tensors; ++t)
      if (s_.final_output[t]) {
        used_[t] = 1;
        last_read_[t] = std::numeric_limits<std::uint64_t>::max();
      }
    for (std::uint32_t k = n; k-- > 0;) {
      if (again_[k])
        for (const std::uint32_t t : s_.outputs[op_[k]])
          if (used_[t])
            last_phase_[k] = std::max(last_phase_[k],
                                      s_.final_output[t] ? n - 1 : static_cast<std::uint32_t>(last_read_[t] / (n + 1)));
      const std::uint32_t phase = last_phase_[k] >= std::max(first_phase_, k + 1) ? last_phase_[k] : k;
      for (const std::uint32_t t : s_.inputs[op_[k]]) {
        used_[t] = 1;
        last_read_[t] = std::max(last_read_[t], at(phase, k));
      }
    }
  }
  [[nodiscard]] bool of_use_after(std::uint32_t t, std::uint32_t phase, std::uint32_t k) const {
    return used_[t] && last_read_[t] > at(phase, k);
  }
  [[nodiscard]] bool may_run(std::uint32_t phase, std::uint32_t k) const {
    return again_[k] && phase > k && phase >= first_phase_ && phase <= last_phase_[k];
  }

  /// Phases before this one need not run anything again. With what may run again from some phase on, it is clear what
  /// may be of use then; if all of that fits until then, all of it may be kept. So the last such phase is found from
  /// above: each step back makes more runs possible, and more tensors of use.
  void find_first_phase() {
    first_phase_ = static_cast<std::uint32_t>(op_.size());
    for (;;) {
      find_last_uses();
      if (!problem_.has_budget()) return;
      const std::uint32_t phase = first_that_does_not_fit();
      if (phase >= first_phase_) return;
      first_phase_ = phase;
    }
  }

  /// The first phase whose operation does not fit beside everything that may be of use from there on, or adds to a
  /// tensor whose producers may run again: to drop what has been added to it may be of use, to run one of them again
  /// later.
  [[nodiscard]] std::uint32_t first_that_does_not_fit() const {
    const auto n = static_cast<std::uint32_t>(op_.size());
    std::vector<std::uint8_t> allocated(s_.num_tensors, 0);
    std::vector<std::uint32_t> live;
    std::int64_t units = 0;
    const auto units_of = [&](std::int64_t bytes) { return (bytes + unit_ - 1) / unit_; };
    for (std::uint32_t t = 0; t < n; ++t) {
      std::erase_if(live, [&](std::uint32_t d) {
        if (s_.final_output[d] || last_read_[d] >= at(t, 0)) return false;
        units -= units_of(s_.bytes[d]);
        allocated[d] = 0;
        return true;
      });
      std::int64_t now = units_of(s_.workspace[op_[t]]);
      for (const std::uint32_t d : s_.outputs[op_[t]]) {
        if (first_phase_ < n && composite(d)) return t;
        if (allocated[d]) continue;
        if (used_[d]) {
          allocated[d] = 1;
          live.push_back(d);
          units += units_of(s_.bytes[d]);
        } else {
          now += units_of(s_.bytes[d]);
        }
      }
      if (units + now > capacity_units_) return t;
    }
    return n;
  }

  [[nodiscard]] std::uint32_t decision(std::uint32_t phase, std::uint32_t k) const {
    if (!may_run(phase, k)) return none;
    return decision_[k][phase - std::max(first_phase_, k + 1)];
  }

  /// Several producers, of which one may run again.
  [[nodiscard]] bool composite(std::uint32_t t) const {
    const auto producers = s_.producers[t];
    if (producers.size() < 2) return false;
    for (const std::uint32_t o : producers)
      if (position_[o] != none && again_[position_[o]]) return true;
    return false;
  }

  void build() {
    const auto n = static_cast<std::uint32_t>(op_.size());
    model_.offset = s_.needed_time * time_scale_;
    decision_.resize(n);
    snapshots_.resize(options_.moments.size());
    state_.assign(s_.num_tensors, {});
    if (first_phase_ >= n) return;  // nothing has to be dropped
    for (std::uint32_t k = 0; k < n; ++k)
      for (std::uint32_t t = std::max(first_phase_, k + 1); t <= last_phase_[k] && may_run(t, k); ++t) {
        decision_[k].push_back(model_.add_integer(s_.time[op_[k]] * time_scale_, 0, 1));
        ++decisions_;
      }
    // What may be there when the first phase begins.
    for (std::uint32_t t = 0; t < s_.num_tensors; ++t) {
      if (composite(t)) state_[t].contributions.assign(s_.producers[t].size(), {});
      if (s_.producers[t].empty() || position_[s_.producers[t].front()] == none) continue;
      if (position_[s_.producers[t].front()] >= first_phase_) continue;
      if (!used_[t] || !(s_.final_output[t] || last_read_[t] >= at(first_phase_, 0))) continue;
      state_[t].held = fresh();
      start_.push_back({t, state_[t].held.column});
    }
    // Memory at the beginning is what is held.
    memory_ = {model_.add_column(0, 0, capacity_), 0};
    start_memory_ = memory_.column;
    row_.clear();
    add(memory_, -1);
    for (const auto& [t, column] : start_) add({column, 0}, tensor_size(t));
    close(0, 0);

    for (std::uint32_t t = first_phase_; t < n; ++t)
      for (std::uint32_t k = 0; k <= t; ++k) {
        if (k < t && !may_run(t, k)) continue;
        if (k == t)
          for (std::size_t i = 0; i < options_.moments.size(); ++i)
            if (index(options_.moments[i]) == op_[t]) take_snapshot(snapshots_[i]);
        add_run(t, k);
      }
    // At the end the final outputs are there.
    for (const std::uint32_t t : s_.final_outputs) {
      row(1, {{state_[t].held, 1}}, 1);
      for (const value& c : state_[t].contributions) row(1, {{c, 1}}, 1);
    }
    say_if_impossible();
  }

  void add_run(std::uint32_t phase, std::uint32_t k) {
    const std::uint32_t o = op_[k];
    const bool first = phase == k;
    const value r = first ? one() : value{decision(phase, k), 0};
    run record{o, first ? none : r.column, static_cast<std::uint32_t>(parts_.size()), none};

    std::vector<std::pair<value, double>> during, change;  // of the memory
    double in_vain = size(s_.workspace[o]);
    std::vector<value> kept;
    for (const std::uint32_t t : s_.outputs[o]) {
      if (!used_[t] || (state_[t].held.column == none && state_[t].held.constant == 0 && !of_use_after(t, phase, k))) {
        in_vain += tensor_size(t);
        continue;
      }
      const value before = state_[t].held;
      part p;
      p.tensor = t;
      if (composite(t)) {
        write_composite(phase, k, t, r, p, during);
      } else if (first && s_.producers[t].front() != o) {
        // None of the producers runs again, so what is there of it must have stayed.
        row(1, {{before, 1}}, 1);
        state_[t].held = of_use_after(t, phase, k) ? fresh() : value{};
      } else {
        during.push_back({r, tensor_size(t)});
        const value after = of_use_after(t, phase, k) ? fresh() : value{};
        if (!first) row(-infinite, {{after, 1}, {before, -1}, {r, -1}}, 0);
        state_[t].held = after;
      }
      kept.push_back(state_[t].held);
      change.push_back({state_[t].held, tensor_size(t)});
      change.push_back({before, -tensor_size(t)});
      p.held = state_[t].held.column;
      parts_.push_back(std::move(p));
    }
    if (!first) {  // no run in vain
      row_.clear();
      add(r, 1);
      for (const value& v : kept) add(v, -1);
      close(-infinite, 0);
    }
    for (const std::uint32_t t : s_.inputs[o]) {
      const value before = state_[t].held;
      part p;
      p.tensor = t;
      const bool later = of_use_after(t, phase, k);
      const value after = later ? fresh(composite(t)) : value{};
      row(0, {{before, 1}, {r, -1}}, infinite);
      row(-infinite, {{after, 1}, {before, -1}}, 0);
      for (const value& c : state_[t].contributions) row(0, {{c, 1}, {r, -1}}, infinite);
      if (!state_[t].contributions.empty()) carry_contributions(t, after, p, none, value{});
      state_[t].held = after;
      change.push_back({after, tensor_size(t)});
      change.push_back({before, -tensor_size(t)});
      p.held = after.column;
      parts_.push_back(std::move(p));
    }
    // While it runs; it is also what it holds afterwards at most, since frees come later.
    row_.clear();
    add(memory_, 1);
    for (const auto& [v, c] : during) add(v, c);
    add(r, in_vain);
    close(-infinite, capacity_);
    // Afterwards.
    const bool moves = std::any_of(change.begin(), change.end(), [](const auto& c) { return c.second != 0; });
    if (moves) {
      const value after{model_.add_column(0, 0, capacity_), 0};
      row_.clear();
      add(memory_, 1);
      add(after, -1);
      for (const auto& [v, c] : change) add(v, c);
      close(0, 0);
      memory_ = after;
      record.memory = after.column;
    }
    runs_.push_back(record);
  }

  /// After a run that leaves contribution `added` (none: no one) in addition: what the others come to if the tensor
  /// stays.
  void carry_contributions(std::uint32_t t, const value& held, part& p, std::size_t added, const value& r) {
    std::vector<value>& contributions = state_[t].contributions;
    for (std::size_t i = 0; i < contributions.size(); ++i) {
      value& c = contributions[i];
      const bool absent = c.column == none && c.constant == 0;
      const bool whole = i == added && r.column == none;  // it runs for certain
      if (whole) {
        c = held;
      } else if (held.column == none && held.constant == 0) {
        c = {};
      } else if (!absent || i == added) {
        const value after = fresh(true);
        const value extra = i == added ? r : value{};
        row(-infinite, {{after, 1}, {c, -1}, {extra, -1}}, 0);
        row(-infinite, {{after, 1}, {held, -1}}, 0);
        row(-1, {{after, 1}, {c, -1}, {extra, -1}, {held, -1}}, infinite);
        c = after;
      }
      p.contributions.push_back(c.column);
    }
  }

  void write_composite(std::uint32_t phase, std::uint32_t k, std::uint32_t t, const value& r, part& p,
                       std::vector<std::pair<value, double>>& during) {
    tensor_state& now = state_[t];
    const auto producers = s_.producers[t];
    const auto mine =
        static_cast<std::size_t>(std::find(producers.begin(), producers.end(), op_[k]) - producers.begin());
    const value before = now.held;
    const bool absent = before.column == none && before.constant == 0;
    value across = r;
    if (r.column != none && !absent) {
      row(-infinite, {{r, 1}, {now.contributions[mine], 1}}, 1);
      across = fresh();
      row(0, {{across, 1}, {before, -1}}, infinite);
      row(0, {{across, 1}, {r, -1}}, infinite);
      row(-infinite, {{across, 1}, {before, -1}, {r, -1}}, 0);
      p.across = across.column;
    }
    during.push_back({across, tensor_size(t)});
    during.push_back({before, -tensor_size(t)});
    const value after = of_use_after(t, phase, k) ? fresh(true) : value{};
    row(-infinite, {{after, 1}, {across, -1}}, 0);
    carry_contributions(t, after, p, mine, r);
    now.held = after;
  }

  // ---- the turnaround bound's rows
  // ------------------------------------------------------------------------------------

  struct snapshot {
    bool taken = false;
    std::vector<value> held{};
  };
  void take_snapshot(snapshot& s) const {
    s.taken = true;
    for (const tensor_state& t : state_) s.held.push_back(t.held);
  }

  /// At a moment, what a later first run reads is held or runs again, and then what that reads likewise. The relaxation
  /// of the model itself lets a fraction of a run in each of many phases do with the same fraction of its inputs.
  void add_moments() {
    for (std::size_t i = 0; i < options_.moments.size(); ++i) {
      if (!snapshots_[i].taken) continue;
      const std::uint32_t m = position_[index(options_.moments[i])];
      const auto n = static_cast<std::uint32_t>(op_.size());
      std::vector<value> again(n);
      for (std::uint32_t k = 0; k < m; ++k) {
        row_.clear();
        for (std::uint32_t t = std::max(m + 1, first_phase_); t < n; ++t)
          if (const std::uint32_t c = decision(t, k); c != none) row_.push_back({c, 1});
        if (row_.empty()) continue;
        again[k] = fresh();
        again_columns_.push_back({again[k].column, k, m});
        add(again[k], -1);
        close(0, infinite);
      }
      const auto before = [&](std::uint32_t t) {
        for (const std::uint32_t o : s_.producers[t])
          if (position_[o] == none || position_[o] >= m) return false;
        return true;
      };
      const auto want = [&](std::uint32_t t, const value& much) {
        if (!before(t)) return;
        for (const std::uint32_t o : s_.producers[t])
          row(0, {{snapshots_[i].held[t], 1}, {again[position_[o]], 1}, {much, -1}}, infinite);
      };
      for (std::uint32_t t = 0; t < s_.num_tensors; ++t) {
        if (s_.producers[t].empty()) continue;
        bool later = s_.final_output[t] != 0;
        for (const std::uint32_t o : s_.consumers[t]) later = later || (position_[o] != none && position_[o] > m);
        if (later) want(t, one());
      }
      for (std::uint32_t k = 0; k < m; ++k)
        if (again[k].column != none)
          for (const std::uint32_t t : s_.inputs[op_[k]]) want(t, again[k]);
    }
  }

  // ---- values of what follows from the decisions
  // ----------------------------------------------------------------------

  void fill_in(std::vector<double>& x) const {
    const auto takes_place = [&](const run& r) { return r.decision == none || x[r.decision] > 0.5; };
    const auto end_of = [&](std::size_t i) {
      return i + 1 < runs_.size() ? runs_[i + 1].first_part : static_cast<std::uint32_t>(parts_.size());
    };
    // Backwards: is a tensor wanted, and which contributions to it are still open?
    std::vector<std::uint8_t> live(s_.final_output);
    std::vector<std::uint64_t> open(s_.num_tensors, 0);
    const auto all = [&](std::uint32_t t) {
      const std::size_t producers = s_.producers[t].size();
      return producers >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << producers) - 1;
    };
    for (const std::uint32_t t : s_.final_outputs) open[t] = all(t);
    for (std::size_t i = runs_.size(); i-- > 0;) {
      const run& r = runs_[i];
      for (std::uint32_t j = r.first_part; j < end_of(i); ++j) {
        const part& p = parts_[j];
        if (p.held != none) x[p.held] = live[p.tensor];
      }
      if (!takes_place(r)) continue;
      for (const std::uint32_t t : s_.outputs[r.operation]) {
        const auto producers = s_.producers[t];
        const auto mine =
            static_cast<std::size_t>(std::find(producers.begin(), producers.end(), r.operation) - producers.begin());
        open[t] &= ~(std::uint64_t{1} << (mine & 63));
        if (open[t] == 0) live[t] = 0;
      }
      for (const std::uint32_t t : s_.inputs[r.operation])
        if (!live[t]) {
          live[t] = 1;
          open[t] = all(t);
        }
    }
    for (const auto& [t, column] : start_) x[column] = live[t];
    // Forwards: contributions and memory.
    std::vector<std::uint64_t> there(s_.num_tensors, 0);
    std::vector<double> held(s_.num_tensors, 0);
    double memory = 0;
    for (const auto& [t, column] : start_) {
      held[t] = x[column];
      memory += held[t] * tensor_size(t);
    }
    if (start_memory_ != none) x[start_memory_] = memory;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const run& r = runs_[i];
      if (takes_place(r))
        for (const std::uint32_t t : s_.outputs[r.operation]) {
          const auto producers = s_.producers[t];
          const auto mine =
              static_cast<std::size_t>(std::find(producers.begin(), producers.end(), r.operation) - producers.begin());
          there[t] |= std::uint64_t{1} << (mine & 63);
        }
      for (std::uint32_t j = r.first_part; j < end_of(i); ++j) {
        const part& p = parts_[j];
        if (p.across != none) x[p.across] = std::max(held[p.tensor], takes_place(r) ? 1.0 : 0.0);
        const double after = p.held == none ? 0 : x[p.held];
        memory += (after - held[p.tensor]) * tensor_size(p.tensor);
        held[p.tensor] = after;
        if (after < 0.5) there[p.tensor] = 0;
        for (std::size_t c = 0; c < p.contributions.size(); ++c)
          if (p.contributions[c] != none && p.contributions[c] != p.held)
            x[p.contributions[c]] = static_cast<double>(there[p.tensor] >> (c & 63) & 1);
      }
      if (r.memory != none) x[r.memory] = memory;
    }
    for (const auto& a : again_columns_)
      for (std::uint32_t t = std::max(a.moment + 1, first_phase_); t < op_.size(); ++t)
        if (const std::uint32_t c = decision(t, a.position); c != none && x[c] > 0.5) x[a.column] = 1;
  }

  problem problem_;  // keeps the arrays alive
  const flat_graph& s_;
  checkmate_model_options options_;
  std::vector<std::uint32_t> op_, position_;  // the needed operations; the place of an operation among them
  std::vector<std::uint8_t> again_;           // of a position: it may run again
  double time_scale_ = 1;
  std::int64_t unit_ = 1, capacity_units_ = 0;
  double weight_ = 1, capacity_ = 0;
  std::vector<std::uint32_t> last_phase_;
  std::vector<std::uint64_t> last_read_;
  std::vector<std::uint8_t> used_;  // of a tensor: something needed reads it, or it is a final output
  std::uint32_t first_phase_ = 0;
  std::vector<std::vector<std::uint32_t>> decision_;
  std::size_t decisions_ = 0;

  // As far as the construction has come.
  std::vector<tensor_state> state_;
  value memory_{};
  std::vector<snapshot> snapshots_;

  std::vector<run> runs_;
  std::vector<part> parts_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> start_;  // tensor, column
  std::uint32_t start_memory_ = none;
  struct again_column {
    std::uint32_t column, position, moment;
  };
  std::vector<again_column> again_columns_;
};

struct checkmate_options {
  std::vector<schedule> starts{};  ///< further schedules to start from; those that are not within the budget are left
  /// The integer program is not begun where the best schedule so far is within this of the proven bound, as a part of
  /// it, and is left when that is reached.
  double good_enough = 1e-3;
  std::uint32_t moments = 4;  ///< `checkmate_model_options::moments`: how many, those of the best bounds
  std::int64_t units = checkmate_model_options{}.units;
  /// A model of more columns is not built: its first linear program alone would take minutes.
  double most_columns = 60'000;
  std::uint64_t default_nodes = 100;  ///< of the backend's search, without any limit
  run_control run{};
};

/// Checkmate's integer program (`checkmate_model`), solved by a MIP backend, started from the best schedule that
/// `rockmate` and then `refined` find. \cite jain2020checkmate
///
/// The former gets a quarter of the time at most (an eighth of the work), the latter three quarters of what is left
/// (five eighths), for their answer is seldom improved. Where its schedule is not `good_enough` already, the model is
/// built for what is faster, and the backend gets the rest; each of its solutions is rebuilt into a schedule, freed as
/// early as can be, and passes the exact checker. Without a limit the backend ends after `default_nodes` nodes.
///
/// The program's optimum holds for the listed order of first runs and for one more run in a phase at most. So its
/// optimality proves nothing of the problem, nor does its infeasibility: `lower_bound`, `optimal` and `infeasible` come
/// from the bounds that `refined` proves. `message` says how the program ended.
/// Differs from the paper: no variables for frees (see `checkmate_model`), tensors of several producers, sizes in
/// units, the turnaround bound's rows, and the decisions alone are rounded, to the nearest; the paper's LP rounding is
/// not used.
///
/// Stops as soon as the backend does: with CBC within 20 ms, or a second after the limit at worst. The model is built
/// between two looks at the clock, in about a tenth of a second for 50,000 columns. Under a work limit, of which moves
/// of `refined` are units and nodes of the backend `moves_for_a_node`, the answer is the same every time.
template <mip_backend Backend>
struct checkmate_solver {
  using options_type = checkmate_options;
  static constexpr std::string_view name = "checkmate";
  static constexpr std::uint64_t moves_for_a_node = 50;
  Backend backend{};

  [[nodiscard]] solution operator()(const problem& p, const checkmate_options& options = {}) const {
    run_clock clock(options.run);
    const bool timed = options.run.time_limit != std::chrono::nanoseconds::max();
    const bool counted = options.run.work_limit != run_control::no_work_limit;
    refined_options first;
    first.starts = options.starts;
    first.run = options.run;
    // What `exact` does not settle at once may have another start in the chains of blocks.
    if (p.graph().num_operations > refined_solver::small_step && p.has_budget() && clock.poll() == stop_reason::none) {
      rockmate_options blocks;
      blocks.run = options.run;
      blocks.run.on_progress = {};
      if (timed) blocks.run.time_limit = options.run.time_limit / 4;
      if (counted) blocks.run.work_limit = std::max<std::uint64_t>(options.run.work_limit / 8, 1);
      evict_options at_once;  // something to return, should it be stopped soon
      at_once.run.stop = options.run.stop;
      at_once.run.time_limit = clock.left();
      at_once.run.seed = options.run.seed;
      solution quick = evict(p, at_once);
      if (quick.plan) first.starts.push_back(std::move(*quick.plan));
      solution chain = rockmate(p, blocks);
      if (chain.plan) first.starts.push_back(std::move(*chain.plan));
      clock.work(std::min(chain.statistics.work, counted ? blocks.run.work_limit : 0));
    }
    if (timed) first.run.time_limit = clock.left() / 4 * 3;
    if (counted) first.run.work_limit = std::max<std::uint64_t>(options.run.work_limit / 8 * 5, 1);
    solution best = refined(p, first);
    if (!best.plan && best.status != solve_status::infeasible)
      for (const schedule& s : first.starts)
        if (check(p, s).valid()) accept(p, best, s);
    clock.work(std::min(best.statistics.work, counted ? first.run.work_limit : best.statistics.work));
    stop_reason stopped = clock.poll();
    const auto finish = [&] {
      conclude(p, best, clock, stopped);
      return std::move(best);
    };
    const auto enough = [&] { return best.plan && best.time <= best.lower_bound * (1 + options.good_enough); };
    if (best.status == solve_status::optimal || best.status == solve_status::infeasible || enough() ||
        stopped != stop_reason::none)
      return finish();
    const problem q = p.with_known_bound(best.lower_bound);

    const double estimate = checkmate_model::size_estimate(q);
    if (estimate > options.most_columns) {
      best.message = "the integer program would have some " + std::to_string(static_cast<std::uint64_t>(estimate)) +
                     " columns, more than most_columns; the schedule is that of refined";
      return finish();
    }
    checkmate_model_options building;
    building.units = options.units;
    if (best.plan) building.at_most = best.time;
    building.moments = best_moments(q, options.moments, options.run.stop, clock.left());
    const checkmate_model program(q, building);
    stopped = clock.poll();
    if (stopped != stop_reason::none) return finish();

    mip_options solving;
    if (best.plan)
      if (auto values = program.encode(*best.plan)) solving.start = std::move(*values);
    solving.run.stop = options.run.stop;
    solving.run.time_limit = clock.left();
    solving.run.seed = options.run.seed;
    if (counted)
      solving.run.work_limit = std::max<std::uint64_t>(
          1, (options.run.work_limit - std::min(options.run.work_limit, clock.work_done())) / moves_for_a_node);
    else if (!timed)
      solving.run.work_limit = options.default_nodes;
    std::stop_source near;  // the schedule is good enough
    const std::stop_callback pass_on(options.run.stop, [&near] { near.request_stop(); });
    solving.run.stop = near.get_token();
    progress news;
    news.solver = name;
    news.stage = "integer program";
    solving.run.on_progress = [&](const progress& of_backend) {
      news.best_objective = best.time;
      news.lower_bound = best.lower_bound;
      news.done = of_backend.done;
      clock.report(news);
    };
    std::uint64_t wrong = 0;
    const auto take = [&](std::span<const double> values) {
      schedule plan = program.decode(values);
      const violation what = check(q, plan).what;
      if (what == violation::none)
        accept(q, best, std::move(plan));
      else
        ++wrong;
      if (enough()) near.request_stop();
    };
    solving.on_incumbent = [&](std::span<const double> values, double) { take(values); };
    const mip_result r = backend.solve(program.model(), solving);
    clock.work(r.nodes * moves_for_a_node);
    stopped = clock.poll();
    best.message = "integer program (" + std::string(Backend::name) + "): " + std::to_string(program.decisions()) +
                   " decisions, " + std::to_string(program.model().num_columns()) + " columns, " +
                   std::to_string(program.model().num_rows()) + " rows, " + std::to_string(r.nodes) + " nodes, " +
                   outcome(r.status) + (r.message.empty() ? "" : "; " + r.message) +
                   (wrong == 0 ? "" : "; " + std::to_string(wrong) + " solutions were no schedules");
    return finish();
  }

 private:
  static std::string outcome(mip_status s) {
    switch (s) {
      case mip_status::optimal:
        return "optimal for the listed order of first runs";
      case mip_status::infeasible:
        return "nothing faster in the listed order of first runs";
      case mip_status::feasible:
      case mip_status::no_solution:
        return "stopped";
      default:
        return std::string(to_string(s));
    }
  }

  /// The moments of the highest turnaround bounds: each of a few parts of the step gives one.
  static std::vector<op_id> best_moments(const problem& p, std::uint32_t count, const std::stop_token& stop,
                                         std::chrono::nanoseconds limit) {
    std::vector<op_id> moments;
    if (count == 0) return moments;
    turnaround_options options;
    options.want_saved = false;
    options.run.stop = stop;
    options.run.time_limit = limit;
    turnaround_analysis analysis(p);
    // The best moment of a neighbouring budget is a good one for this budget, too, and mostly another.
    for (std::uint32_t i = 0; i < 2 * count && moments.size() < count; ++i) {
      const double part = 1 + 0.04 * ((i + 1) / 2) * (i % 2 == 0 ? -1 : 1);
      const auto budget = static_cast<std::int64_t>(part * static_cast<double>(p.budget()));
      const turnaround_result r = analysis.bound(budget, options);
      if (!r.infeasible && r.recomputation > 0 && std::find(moments.begin(), moments.end(), r.moment) == moments.end())
        moments.push_back(r.moment);
    }
    return moments;
  }
};

/// Checkmate on a backend: `checkmate_with(branch_and_bound)(problem, options)`.
template <mip_backend Backend>
[[nodiscard]] constexpr checkmate_solver<Backend> checkmate_with(Backend backend) {
  return {std::move(backend)};
}

}  // namespace remat
