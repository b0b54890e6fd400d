// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/checkmate_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/linkage.hpp"
#include "remat/mip/model.hpp"
#include "remat/mip/phase_model.hpp"
#include "remat/mip/row_writer.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat {

namespace detail::checkmate_program {

/// The needed operations of a problem by their positions 0 … T − 1 in the listed order, and the phases in which each
/// may run again.
class operation_phases {
 public:
  static constexpr std::uint32_t none = mip_model::none;

  operation_phases(const flat_graph& g, double at_most)
      : g_(g),
        position_(g.num_operations, none),
        uses_(
            static_cast<std::uint32_t>(std::count_if(g.needed.begin(), g.needed.end(), [](auto n) { return n != 0; })),
            g.num_tensors) {
    for (std::uint32_t o = 0; o < g_.num_operations; ++o) {
      if (!g_.needed[o]) continue;
      position_[o] = size();
      operation_.push_back(o);
    }
    const double slack = at_most * (1 + 1e-9) - g_.needed_time;
    for (const std::uint32_t o : operation_)
      repeatable_.push_back(!g_.once[o] && !g_.has_effect(o) && !(g_.time[o] > slack));
  }

  /// Finds the first phase in which anything runs again. Until then all operations are of phase T or later: none runs
  /// again. `stop()` ends the search early.
  template <class Stop>
  void find_first(const size_units& sizes, bool has_budget, Stop&& stop) {
    const auto find_uses = [&](std::uint32_t first) {
      first_ = first;
      find_last_uses();
    };
    const auto first_tight = [&](std::uint32_t) { return has_budget ? first_that_does_not_fit(sizes) : size(); };
    first_ = find_first_phase(size(), find_uses, first_tight, stop);
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(operation_.size()); }
  [[nodiscard]] std::uint32_t operation(std::uint32_t k) const { return operation_[k]; }
  /// None for an operation that is not needed.
  [[nodiscard]] std::uint32_t position(std::uint32_t o) const { return position_[o]; }
  [[nodiscard]] std::uint32_t first() const noexcept { return first_; }
  [[nodiscard]] std::uint32_t first(std::uint32_t k) const { return std::max(first_, k + 1); }
  [[nodiscard]] std::uint32_t last(std::uint32_t k) const { return last_[k]; }
  [[nodiscard]] bool may_run_again(std::uint32_t phase, std::uint32_t k) const {
    return repeatable_[k] && phase >= first(k) && phase <= last_[k];
  }
  [[nodiscard]] const phase_uses& uses() const noexcept { return uses_; }

  /// True for a tensor of several producers, one of which may run again.
  [[nodiscard]] bool is_sum(std::uint32_t t) const {
    const auto producers = g_.producers[t];
    return producers.size() > 1 && std::any_of(producers.begin(), producers.end(), [&](std::uint32_t o) {
             return position_[o] != none && repeatable_[position_[o]];
           });
  }

 private:
  /// For each operation the last phase in which another run may be of use, for each tensor the last read.
  void find_last_uses() {
    last_.assign(size(), 0);
    uses_.clear();
    for (const std::uint32_t t : g_.final_outputs) uses_.add_output(t);
    for (std::uint32_t k = size(); k-- > 0;) {
      if (repeatable_[k])
        for (const std::uint32_t t : g_.outputs[operation_[k]])
          if (uses_.is_used(t)) last_[k] = std::max(last_[k], uses_.last_phase(t));
      const std::uint32_t phase = last_[k] >= first(k) ? last_[k] : k;
      for (const std::uint32_t t : g_.inputs[operation_[k]]) uses_.add_read(t, phase, k);
    }
  }

  /// The first phase whose operation does not fit beside every tensor that may be of use from there on, or adds to a
  /// tensor whose producers may run again: it may be of use to drop what was added before, and to run one of them again
  /// later.
  [[nodiscard]] std::uint32_t first_that_does_not_fit(const size_units& sizes) const {
    std::vector<std::uint8_t> is_allocated(g_.num_tensors, 0);
    std::vector<std::uint32_t> allocated;
    std::int64_t units = 0;
    for (std::uint32_t t = 0; t < size(); ++t) {
      std::erase_if(allocated, [&](std::uint32_t x) {
        if (uses_.is_used_from(x, t)) return false;
        units -= sizes.units(g_.bytes[x]);
        is_allocated[x] = 0;
        return true;
      });
      std::int64_t only_now = sizes.units(g_.workspace[operation_[t]]);
      for (const std::uint32_t x : g_.outputs[operation_[t]]) {
        if (first_ < size() && is_sum(x)) return t;
        if (is_allocated[x]) continue;
        if (uses_.is_used(x)) {
          is_allocated[x] = 1;
          allocated.push_back(x);
          units += sizes.units(g_.bytes[x]);
        } else {
          only_now += sizes.units(g_.bytes[x]);
        }
      }
      if (units + only_now > sizes.capacity_units()) return t;
    }
    return size();
  }

  const flat_graph& g_;
  std::vector<std::uint32_t> operation_, position_;
  std::vector<std::uint8_t> repeatable_;  // of a position: its operation may run again
  std::vector<std::uint32_t> last_;       // of a position: a phase
  std::uint32_t first_ = 0;
  phase_uses uses_;
};

/// Builds the program, and translates between its values and schedules.
class program : public phase_model {
 public:
  program(const problem& p, const checkmate_model_options& options)
      : phase_model(p.graph().bytes, options.most_columns, options.run),
        problem_(p),
        g_(problem_.graph()),
        moments_(options.moments),
        phases_(g_, options.at_most) {
    choose_scales(options.units);
    phases_.find_first(sizes(), problem_.has_budget(), [&] { return !may_continue(); });
    if (is_complete()) build();
    if (is_complete()) add_moments();
    finish();
  }

  [[nodiscard]] std::size_t decisions() const noexcept { return decisions_; }

  [[nodiscard]] std::vector<std::uint32_t> order(std::span<const double> values) const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t t = 0; t < phases_.size(); ++t) {
      for (std::uint32_t k = 0; k < t; ++k)
        if (const std::uint32_t c = decision(t, k); c != none && values[c] > 0.5) order.push_back(phases_.operation(k));
      order.push_back(phases_.operation(t));
    }
    return order;
  }

  [[nodiscard]] schedule decode(std::span<const double> values) const { return schedule_computes(g_, order(values)); }

  [[nodiscard]] std::optional<std::vector<double>> encode(const schedule& plan) const {
    // A run belongs to the phase of the next operation, in the listed order, that has not run yet.
    std::vector<double> x(model_.num_columns(), 0);
    std::uint32_t phase = 0;
    for (const std::uint32_t o : computes_of(plan)) {
      const std::uint32_t k = phases_.position(o);
      if (k == none) continue;
      if (k == phase) {
        ++phase;
        continue;
      }
      if (k > phase || phase >= phases_.size()) return std::nullopt;  // another order of first runs
      const std::uint32_t c = decision(phase, k);
      if (c == none) return std::nullopt;
      x[c] = 1;
    }
    fill_in(x);
    if (!(model_.violation(x) <= 1e-6)) return std::nullopt;
    return x;
  }

 private:
  /// A tensor that an event reads or writes: columns of the values that hold afterwards.
  struct event_tensor {
    std::uint32_t tensor = none;
    std::uint32_t held = none;
    std::uint32_t during = none;  // allocated while the operation runs; sums only
    std::vector<std::uint32_t> contributions{};
  };
  /// An operation in a phase.
  struct event {
    std::uint32_t operation = none;
    std::uint32_t decision = none;  // none: it takes place
    std::uint32_t memory = none;    // column: the memory afterwards
    std::vector<event_tensor> tensors{};
  };
  /// y: an operation runs again after a moment.
  struct later_run {
    std::uint32_t column, position, moment;
  };

  /// The column of R[phase,k], or none.
  [[nodiscard]] std::uint32_t decision(std::uint32_t phase, std::uint32_t k) const {
    return phases_.may_run_again(phase, k) ? decision_[k][phase - phases_.first(k)] : none;
  }
  [[nodiscard]] bool is_used_after(std::uint32_t t, std::uint32_t phase, std::uint32_t k) const {
    return phases_.uses().is_used_after(t, phase, k);
  }
  /// The bit of operation `o` among the producers of `t`; producers beyond 64 share bits.
  [[nodiscard]] std::uint64_t contribution_bit(std::uint32_t t, std::uint32_t o) const {
    return std::uint64_t{1} << (place_among_producers(t, o) & 63);
  }
  [[nodiscard]] std::size_t place_among_producers(std::uint32_t t, std::uint32_t o) const {
    const auto producers = g_.producers[t];
    return static_cast<std::size_t>(std::find(producers.begin(), producers.end(), o) - producers.begin());
  }

  void choose_scales(std::int64_t most_units) {
    std::int64_t divisor = 0;
    bool whole_times = true;
    for (const std::int64_t b : g_.bytes) divisor = std::gcd(divisor, b);
    for (std::uint32_t k = 0; k < phases_.size(); ++k) {
      const std::uint32_t o = phases_.operation(k);
      divisor = std::gcd(divisor, g_.workspace[o]);
      whole_times = whole_times && g_.time[o] == std::floor(g_.time[o]);
    }
    // Without a budget the program has no rows on memory.
    set_scales({problem_.has_budget() ? problem_.budget() : 0, divisor, most_units},
               objective_scale(g_.needed_time, whole_times));
  }

  void build() {
    const std::uint32_t n = phases_.size();
    model_.offset = g_.needed_time * time_scale();
    decision_.resize(n);
    snapshots_.resize(moments_.size());
    contributions_.resize(g_.num_tensors);
    if (phases_.first() >= n) return;  // nothing has to be dropped
    for (std::uint32_t k = 0; k < n; ++k)
      for (std::uint32_t t = phases_.first(k); phases_.may_run_again(t, k); ++t) {
        if (!may_continue()) return;
        decision_[k].push_back(model_.add_integer(g_.time[phases_.operation(k)] * time_scale(), 0, 1));
        ++decisions_;
      }
    begin_first_phase();
    for (std::uint32_t t = phases_.first(); t < n; ++t)
      for (std::uint32_t k = 0; k <= t; ++k) {
        if (k < t && !phases_.may_run_again(t, k)) continue;
        if (!may_continue()) return;
        if (k == t)
          for (std::size_t i = 0; i < moments_.size(); ++i)
            if (index(moments_[i]) == phases_.operation(t)) snapshots_[i] = all_held();
        add_event(t, k);
      }
    for (const std::uint32_t t : g_.final_outputs) {
      add_row(1, {{held(t), 1}}, 1);
      for (const mip_value& c : contributions_[t]) add_row(1, {{c, 1}}, 1);
    }
  }

  /// A column for each tensor that may be held when the first phase begins.
  void begin_first_phase() {
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t) {
      if (phases_.is_sum(t)) contributions_[t].assign(g_.producers[t].size(), {});
      if (g_.producers[t].empty()) continue;
      const std::uint32_t k = phases_.position(g_.producers[t].front());
      if (k != none && k < phases_.first() && phases_.uses().is_used_from(t, phases_.first())) (void)hold_from_start(t);
    }
    add_start_memory();
    add_start_row();
  }

  void add_event(std::uint32_t phase, std::uint32_t k) {
    const std::uint32_t o = phases_.operation(k);
    const bool first = phase == k;
    const mip_value r = first ? mip_value::one() : mip_value{decision(phase, k), 0};
    event e{o, r.column, none, {}};
    std::vector<held_change> changes;
    std::vector<std::pair<mip_value, double>> peak;  // terms of the memory while it runs
    std::vector<mip_value> kept;
    double unused = sizes().size(g_.workspace[o]);  // allocated while it runs, and not held afterwards
    for (const std::uint32_t t : g_.outputs[o]) {
      const bool later = is_used_after(t, phase, k);
      if (!phases_.uses().is_used(t) || (held(t).is_constant(0) && !later)) {
        unused += tensor_size(t);
        continue;
      }
      const mip_value before = held(t);
      mip_value after;
      event_tensor part;
      part.tensor = t;
      if (phases_.is_sum(t)) {
        after = add_to_sum(t, o, r, later, part, peak);
      } else if (first && g_.producers[t].front() != o) {
        // None of its producers runs again, so the earlier contributions must still be there.
        add_row(1, {{before, 1}}, 1);
        if (later) after = new_column();
      } else {
        peak.push_back({r, tensor_size(t)});
        if (later) after = new_column();
        if (!first) limit_held(after, before, {&r, 1});
      }
      hold(t, after);
      kept.push_back(after);
      changes.push_back({t, before, after});
      part.held = after.column;
      e.tensors.push_back(std::move(part));
    }
    if (!first) forbid_useless({&r, 1}, kept);
    for (const std::uint32_t t : g_.inputs[o]) changes.push_back(add_read(t, r, is_used_after(t, phase, k), e));
    // Frees come after the run, so this limit covers the memory afterwards, too.
    for (const auto& [value, size] : peak) add_term(value, size);
    add_term(r, unused);
    end_peak_row();
    e.memory = carry_memory(changes);
    events_.push_back(std::move(e));
  }

  /// The rows of a read of `t` by run `r`; `later`: the tensor may be of use afterwards.
  held_change add_read(std::uint32_t t, const mip_value& r, bool later, event& e) {
    const mip_value before = held(t);
    const mip_value after = later ? new_column(phases_.is_sum(t)) : mip_value{};
    event_tensor part;
    part.tensor = t;
    part.held = after.column;
    require_held(before, {&r, 1}, r.is_constant(1));
    limit_held(after, before, {});
    for (const mip_value& c : contributions_[t]) add_row(0, {{c, 1}, {r, -1}}, infinite);
    if (!contributions_[t].empty()) carry_contributions(t, after, part, none, {});
    hold(t, after);
    e.tensors.push_back(std::move(part));
    return {t, before, after};
  }

  /// The rows of a write of operation `o` to a sum: returns whether the sum is held afterwards.
  mip_value add_to_sum(std::uint32_t t, std::uint32_t o, const mip_value& r, bool later, event_tensor& part,
                       std::vector<std::pair<mip_value, double>>& peak) {
    const std::size_t mine = place_among_producers(t, o);
    const mip_value before = held(t);
    mip_value during = r;
    if (!r.is_constant() && !before.is_constant(0)) {
      add_row(-infinite, {{r, 1}, {contributions_[t][mine], 1}}, 1);  // no contribution is added twice
      during = new_column();
      add_row(0, {{during, 1}, {before, -1}}, infinite);
      add_row(0, {{during, 1}, {r, -1}}, infinite);
      add_row(-infinite, {{during, 1}, {before, -1}, {r, -1}}, 0);
      part.during = during.column;
    }
    peak.push_back({during, tensor_size(t)});
    peak.push_back({before, -tensor_size(t)});
    const mip_value after = later ? new_column(true) : mip_value{};
    add_row(-infinite, {{after, 1}, {during, -1}}, 0);
    carry_contributions(t, after, part, mine, r);
    return after;
  }

  /// The contributions to sum `t` after an event: those before, and contribution `added` of run `r` (`none`: no
  /// contribution), if the sum is held.
  void carry_contributions(std::uint32_t t, const mip_value& held_after, event_tensor& part, std::size_t added,
                           const mip_value& r) {
    for (std::size_t i = 0; i < contributions_[t].size(); ++i) {
      mip_value& c = contributions_[t][i];
      if (i == added && r.is_constant()) {  // it takes place
        c = held_after;
      } else if (held_after.is_constant(0)) {
        c = {};
      } else if (!c.is_constant(0) || i == added) {
        const mip_value after = new_column(true);
        const mip_value extra = i == added ? r : mip_value{};
        add_row(-infinite, {{after, 1}, {c, -1}, {extra, -1}}, 0);
        add_row(-infinite, {{after, 1}, {held_after, -1}}, 0);
        add_row(-1, {{after, 1}, {c, -1}, {extra, -1}, {held_after, -1}}, infinite);
        c = after;
      }
      part.contributions.push_back(c.column);
    }
  }

  // ---- The rows of moments

  /// At a moment, each tensor that a later first run reads is held or y = 1 for its producers; likewise for what a
  /// producer with y = 1 reads. In the relaxation of the program alone, a fraction of a run in each of many phases
  /// needs only that fraction of its inputs.
  void add_moments() {
    for (std::size_t i = 0; i < moments_.size(); ++i)
      if (!snapshots_[i].empty())
        add_moment(phases_.position(static_cast<std::uint32_t>(index(moments_[i]))), snapshots_[i]);
  }

  void add_moment(std::uint32_t m, const std::vector<mip_value>& held_then) {
    const std::uint32_t n = phases_.size();
    std::vector<mip_value> again(n);
    for (std::uint32_t k = 0; k < m; ++k) {
      if (!may_continue()) return;
      bool some = false;
      for (std::uint32_t t = std::max(m + 1, phases_.first(k)); phases_.may_run_again(t, k); ++t) {
        add_term({decision(t, k), 0}, 1);
        some = true;
      }
      if (!some) continue;
      again[k] = new_column();
      later_runs_.push_back({again[k].column, k, m});
      add_term(again[k], -1);
      end_row(0, infinite);
    }
    const auto require = [&](std::uint32_t t, const mip_value& amount) {
      for (const std::uint32_t o : g_.producers[t])
        if (phases_.position(o) == none || phases_.position(o) >= m) return;
      for (const std::uint32_t o : g_.producers[t])
        add_row(0, {{held_then[t], 1}, {again[phases_.position(o)], 1}, {amount, -1}}, infinite);
    };
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t) {
      if (g_.producers[t].empty()) continue;
      bool later = g_.final_output[t] != 0;
      for (const std::uint32_t o : g_.consumers[t])
        later = later || (phases_.position(o) != none && phases_.position(o) > m);
      if (later) require(t, mip_value::one());
    }
    for (std::uint32_t k = 0; k < m; ++k)
      if (!again[k].is_constant())
        for (const std::uint32_t t : g_.inputs[phases_.operation(k)]) require(t, again[k]);
  }

  // ---- From decisions to the values of all columns

  [[nodiscard]] bool takes_place(const event& e, std::span<const double> x) const {
    return e.decision == none || x[e.decision] > 0.5;
  }

  /// Sets all columns as the decisions in `x` imply, with frees as early as possible.
  void fill_in(std::vector<double>& x) const {
    const double memory = fill_in_held(x);
    fill_in_memory(x, memory);
    for (const later_run& y : later_runs_)
      for (std::uint32_t t = std::max(y.moment + 1, phases_.first(y.position)); phases_.may_run_again(t, y.position);
           ++t)
        if (x[decision(t, y.position)] > 0.5) x[y.column] = 1;
  }

  /// Backwards: which tensors are held, from their later reads. Returns the memory when the first phase begins.
  double fill_in_held(std::vector<double>& x) const {
    std::vector<std::uint8_t> is_held(g_.final_output);
    std::vector<std::uint64_t> missing(g_.num_tensors, 0);  // contributions that an earlier run must make
    const auto all = [&](std::uint32_t t) {
      const std::size_t producers = g_.producers[t].size();
      return producers >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << producers) - 1;
    };
    for (const std::uint32_t t : g_.final_outputs) missing[t] = all(t);
    for (std::size_t i = events_.size(); i-- > 0;) {
      const event& e = events_[i];
      for (const event_tensor& part : e.tensors)
        if (part.held != none) x[part.held] = is_held[part.tensor];
      if (!takes_place(e, x)) continue;
      for (const std::uint32_t t : g_.outputs[e.operation]) {
        missing[t] &= ~contribution_bit(t, e.operation);
        if (missing[t] == 0) is_held[t] = 0;
      }
      for (const std::uint32_t t : g_.inputs[e.operation])
        if (!is_held[t]) {
          is_held[t] = 1;
          missing[t] = all(t);
        }
    }
    return fill_in_start(x, is_held);
  }

  /// Forwards: contributions and memory.
  void fill_in_memory(std::vector<double>& x, double memory) const {
    std::vector<std::uint64_t> made(g_.num_tensors, 0);
    std::vector<double> held_now(g_.num_tensors, 0);
    for (const auto& [t, column] : start()) held_now[t] = x[column];
    for (const event& e : events_) {
      const bool runs = takes_place(e, x);
      if (runs)
        for (const std::uint32_t t : g_.outputs[e.operation]) made[t] |= contribution_bit(t, e.operation);
      for (const event_tensor& part : e.tensors) {
        const std::uint32_t t = part.tensor;
        if (part.during != none) x[part.during] = std::max(held_now[t], runs ? 1.0 : 0.0);
        const double after = part.held == none ? 0 : x[part.held];
        memory += (after - held_now[t]) * tensor_size(t);
        held_now[t] = after;
        if (after < 0.5) made[t] = 0;
        for (std::size_t c = 0; c < part.contributions.size(); ++c)
          if (part.contributions[c] != none && part.contributions[c] != part.held)
            x[part.contributions[c]] = static_cast<double>(made[t] >> (c & 63) & 1);
      }
      if (e.memory != none) x[e.memory] = memory;
    }
  }

  problem problem_;  // keeps the arrays alive
  const flat_graph& g_;
  std::vector<op_id> moments_;
  operation_phases phases_;
  std::vector<std::vector<std::uint32_t>> decision_;  // of a position, by phase: columns
  std::size_t decisions_ = 0;
  std::vector<event> events_;
  std::vector<std::vector<mip_value>> contributions_;  // of a sum, as far as the construction has come
  std::vector<std::vector<mip_value>> snapshots_;      // of a moment: which tensors are held
  std::vector<later_run> later_runs_;
};

inline void require_valid(const problem& p, const checkmate_model_options& options) {
  phase_programs::require_valid_options("checkmate_model", options.at_most, options.units, options.most_columns);
  for (const op_id o : options.moments)
    if (index(o) >= p.graph().num_operations)
      throw bad_argument("checkmate_model: moment " + std::to_string(index(o)) + " is no operation; there are " +
                         std::to_string(p.graph().num_operations));
}

}  // namespace detail::checkmate_program

REMAT_INLINE checkmate_model::checkmate_model(const problem& p, const checkmate_model_options& options) {
  detail::checkmate_program::require_valid(p, options);
  program_ = std::make_shared<const detail::checkmate_program::program>(p, options);
}
REMAT_INLINE const mip_model& checkmate_model::model() const noexcept { return program_->model(); }
REMAT_INLINE bool checkmate_model::is_complete() const noexcept { return program_->is_complete(); }
REMAT_INLINE std::size_t checkmate_model::decisions() const noexcept { return program_->decisions(); }
REMAT_INLINE double checkmate_model::time(double objective) const noexcept {
  return objective / program_->time_scale();
}
REMAT_INLINE double checkmate_model::objective(double time) const noexcept { return time * program_->time_scale(); }

REMAT_INLINE double checkmate_model::size_estimate(const problem& p) {
  const flat_graph& g = p.graph();
  double repeatable = 0, events = 0, count = 0;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o]) continue;
    ++count;
    if (g.once[o]) continue;
    ++repeatable;
    events += 2 + static_cast<double>(g.inputs[o].size() + g.outputs[o].size());
  }
  return repeatable == 0 ? 0 : events * (count - repeatable / 2);
}

REMAT_INLINE std::vector<std::uint32_t> checkmate_model::order(std::span<const double> values) const {
  return program_->order(values);
}
REMAT_INLINE schedule checkmate_model::decode(std::span<const double> values) const { return program_->decode(values); }
REMAT_INLINE std::optional<std::vector<double>> checkmate_model::encode(const schedule& plan) const {
  return program_->encode(plan);
}

}  // namespace remat
