// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/mip/detail/phase_model.hpp"
#include "remat/mip/detail/row_writer.hpp"
#include "remat/mip/model.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// The runs of an operation again in a phase: as the program decides, never, or always.
enum class rerun : std::uint8_t {
  free,   ///< the program decides
  never,  ///< it does not run again
  always  ///< it runs again
};

struct checkmate_model_options {
  /// Only schedules that take at most this long have to be solutions. An operation that is too long for that has no
  /// variables.
  double at_most = std::numeric_limits<double>::infinity();
  /// The budget in units of size: sizes are rounded up to whole units, the budget is rounded down. Nothing is lost if
  /// the greatest common divisor of all sizes is large enough.
  std::int64_t units = std::int64_t{1} << 20;
  /// First runs whose turnaround bound is added as rows (`turnaround_analysis`, in its form for the listed order).
  std::vector<op_id> moments{};
  /// `rule(a, o)` says whether operation o runs again in the phase that ends with the first run of operation a, for
  /// `rerun_limits` and for neighbourhoods of a schedule. Empty: the program decides everything. Called while the model
  /// is built.
  ///
  /// "always" for a run that nothing may read, or before the first phase of the program, is left out.
  std::function<rerun(op_id, op_id)> rule{};
  /// Building ends when the model has more columns; see `checkmate_model::is_complete`.
  double max_columns = std::numeric_limits<double>::infinity();
  run_control run{};  ///< only `stop` and the limits are used; one event of the program is a unit of work
};

namespace checkmate_program {

/// The needed operations of a problem by their positions 0 … T − 1 in the listed order, and the phases in which each
/// may run again.
class operation_phases {
 public:
  static constexpr std::uint32_t none = mip_model::none;

  operation_phases(const flat_graph& g, const checkmate_model_options& options)
      : g_(g),
        rule_(options.rule),
        position_(g.num_operations, none),
        uses_(
            static_cast<std::uint32_t>(std::count_if(g.needed.begin(), g.needed.end(), [](auto n) { return n != 0; })),
            g_.num_tensors) {
    for (std::uint32_t o = 0; o < g_.num_operations; ++o) {
      if (!g_.needed[o]) continue;
      position_[o] = size();
      operation_.push_back(o);
    }
    const double slack = options.at_most * (1 + 1e-9) - g_.needed_time;
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
    const auto first_tight = [&] { return has_budget ? first_that_does_not_fit(sizes) : size(); };
    first_ = find_first_phase(size(), find_uses, first_tight, stop);
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(operation_.size()); }
  [[nodiscard]] std::uint32_t operation(std::uint32_t k) const { return operation_[k]; }
  /// None for an operation that is not needed.
  [[nodiscard]] std::uint32_t position(std::uint32_t o) const { return position_[o]; }
  [[nodiscard]] std::uint32_t first() const noexcept { return first_; }
  [[nodiscard]] std::uint32_t first(std::uint32_t k) const { return std::max(first_, k + 1); }
  [[nodiscard]] std::uint32_t last(std::uint32_t k) const { return last_[k]; }
  /// True when the operation may, or must, run again in the phase.
  [[nodiscard]] bool may_run_again(std::uint32_t phase, std::uint32_t k) const {
    return phase >= first(k) && phase <= last_[k] && is_allowed(phase, k);
  }
  /// True when the rule says that the operation runs again in the phase.
  [[nodiscard]] bool must_run_again(std::uint32_t phase, std::uint32_t k) const {
    return rule_ && may_run_again(phase, k) && rule_(op(phase), op(k)) == rerun::always;
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
  [[nodiscard]] op_id op(std::uint32_t k) const { return static_cast<op_id>(operation_[k]); }
  /// True when neither the options nor the operation forbid another run in the phase.
  [[nodiscard]] bool is_allowed(std::uint32_t phase, std::uint32_t k) const {
    if (!repeatable_[k]) return false;
    return !rule_ || rule_(op(phase), op(k)) != rerun::never;
  }

  /// Finds, for each operation, the last phase in which another run may be read, and for each tensor the last read.
  void find_last_uses() {
    last_.assign(size(), 0);
    uses_.clear();
    for (const std::uint32_t t : g_.final_outputs) uses_.add_output(t);
    for (std::uint32_t k = size(); k-- > 0;) {
      if (repeatable_[k])
        for (const std::uint32_t t : g_.outputs[operation_[k]])
          if (uses_.is_used(t)) last_[k] = std::max(last_[k], uses_.last_phase(t));
      while (last_[k] >= first(k) && !is_allowed(last_[k], k)) --last_[k];
      const std::uint32_t phase = last_[k] >= first(k) ? last_[k] : k;
      for (const std::uint32_t t : g_.inputs[operation_[k]]) uses_.add_read(t, phase, k);
    }
  }

  /// The first phase whose operation does not fit beside every tensor that may be read from there on, or adds to a
  /// tensor whose producers may run again: a schedule may drop what was added before, and run one of them again later.
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
  std::function<rerun(op_id, op_id)> rule_;
  std::vector<std::uint32_t> operation_, position_;
  std::vector<std::uint8_t> repeatable_;  // whether a position's operation may run again
  std::vector<std::uint32_t> last_;       // the last phase in which each position's operation may run again
  std::uint32_t first_ = 0;
  phase_uses uses_;
};

}  // namespace checkmate_program

/// Checkmate's integer program for one problem. \cite jain2020checkmate
///
/// The needed operations make T phases. Phase t ends with the first run of the t-th operation of the listed order.
/// Before it, earlier operations may run again, each at most once, in the listed order.
///
/// R[t,k] (binary) says that operation k runs again in phase t. All other variables follow from these. For each tensor,
/// and between any two runs that may write or read it, a variable says whether the tensor is held there. After a read
/// it is at most its value before. Before a read that takes place it is 1. After a write it is at most its value before
/// plus R. One equation for each run carries the memory over it. The program has no variables for frees, which
/// Checkmate's form has to linearise: a tensor is freed when it is held no longer.
///
/// The program leaves out what some best solution of this form does without:
/// - Nothing runs again in the phases before the first operation that does not fit beside every tensor that may be
///   read later, and nothing is freed there. (The phases begin earlier if an operation adds to a tensor of several
///   producers that may run again.)
/// - R[t,k] is left out if no later event reads an output of k.
/// - An operation does not run again if none of its outputs is held afterwards.
///
/// A tensor that is there counts twice while a run makes it again, since it might as well have been freed before. Rows
/// that say that a held tensor must be read later do not raise the relaxation's bound, and slow it down.
///
/// A tensor of several producers that may run again has a variable for each contribution: all of them go when it is
/// freed, and none may be added twice. If none of its producers may run again, it is held from its first write on.
///
/// The optimum, and infeasibility, hold for this form, not for the problem.
///
/// Size: about T²/2 variables R for operations that may run twice, and as many others for each of their reads and
/// writes. Building polls at every event of the program. Preconditions: `at_most` and `max_columns` are no NaN,
/// `units` ≥ 1, and the moments are operations.
class checkmate_model : private phase_model {
 public:
  /// Builds the model. It needs neither `p` nor `options` afterwards.
  explicit checkmate_model(const problem& p, const checkmate_model_options& options = {})
      : phase_model(p.graph().bytes, options.max_columns, options.run),
        problem_(p),
        g_(problem_.graph()),
        moments_(options.moments),
        phases_(g_, options) {
    choose_scales(options.units);
    phases_.find_first(sizes(), problem_.has_budget(), [&] { return !may_continue(); });
    if (is_complete()) build();
    if (is_complete()) add_moments();
    finish();
  }

  using phase_model::decisions;
  using phase_model::is_complete;  ///< If it is false, no other function but `model` may be called.
  using phase_model::model;
  using phase_model::time;
  /// The number of phases in which operations may run again: all from the first one on in which that may help.
  [[nodiscard]] std::size_t phases() const noexcept {
    return phases_.size() - std::min(phases_.first(), phases_.size());
  }

  /// Estimates the number of columns of the model before it is built, without `moments`. O(reads and writes) time.
  [[nodiscard]] static double size_estimate(const problem& p) {
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

  /// The operations that run according to `values`, in order. Values are rounded to the nearest whole number.
  [[nodiscard]] std::vector<std::uint32_t> order(std::span<const double> values) const {
    std::vector<std::uint32_t> order = order_before_first_phase();
    for (const event& e : events_)
      if (takes_place(e, values)) order.push_back(phases_.operation(e.position));
    return order;
  }

  /// The schedule of that order: runs without use are left out, and tensors are freed as early as possible. It is not
  /// checked, since the values of a backend are a hint.
  [[nodiscard]] schedule decode(std::span<const double> values) const { return schedule_computes(g_, order(values)); }

  /// Checkmate's two-phase rounding of the values of a relaxation (section 5 of the paper).
  ///
  /// First, `keep(x)` says of each tensor and phase whether the tensor is kept until the phase begins; x is its value
  /// there, from 0 to 1. The paper's rounding keeps it if x > 0.5, or with probability x. Then each phase runs the
  /// fewest operations that make what its own operation reads, and what is kept longer. Returns all runs, in order, for
  /// `schedule_computes`. Their schedule may exceed the budget, and it is illegal if an operation would run twice that
  /// must not.
  [[nodiscard]] std::vector<std::uint32_t> round(std::span<const double> values,
                                                 const std::function<bool(double)>& keep) const {
    std::vector<std::uint32_t> order = order_before_first_phase();
    std::vector<std::uint8_t> now, next;
    round_kept(0, values, keep, now);
    for (std::size_t i = 0; i < starts_.size(); ++i) {
      round_kept(i + 1, values, keep, next);
      append_phase(starts_[i].phase, now, next, order);
      std::swap(now, next);
    }
    return order;
  }

  /// Values for the runs of a schedule, in the order of the program's form. Nothing if the schedule has another order
  /// of first runs, or if the runs are not within the budget in that order.
  [[nodiscard]] std::optional<std::vector<double>> encode(const schedule& plan) const {
    // A run belongs to the phase of the next operation, in the listed order, that has not run yet.
    std::vector<double> x(model_.num_columns(), 0);
    std::uint32_t phase = 0;
    std::size_t always = 0;
    for (const std::uint32_t o : computes_of(plan)) {
      const std::uint32_t k = phases_.position(o);
      if (k == none) continue;
      if (k == phase) {
        ++phase;
        continue;
      }
      if (k > phase || phase >= phases_.size()) return std::nullopt;  // another order of first runs
      if (phase < phases_.first()) continue;  // it is in vain: everything that may be read later is kept until then
      const mip_value runs_again = decision(phase, k);
      if (runs_again.is_constant(0)) return std::nullopt;
      if (runs_again.is_constant())
        ++always;
      else
        x[runs_again.column] = 1;
    }
    if (always != always_) return std::nullopt;
    fill_in(x);
    if (!(model_.violation(x) <= 1e-6)) return std::nullopt;
    return x;
  }

 private:
  /// A tensor that an event reads or writes: columns of the values that hold afterwards.
  struct event_tensor {
    std::uint32_t tensor = none;
    mip_value held{};
    std::uint32_t during = none;  // allocated while the operation runs; sums only
    std::vector<std::uint32_t> contributions{};
  };
  /// The tensors that may be held when a phase begins.
  struct phase_start {
    std::uint32_t phase = none;
    std::vector<std::pair<std::uint32_t, mip_value>> kept{};
  };
  /// y: an operation runs again after a moment.
  struct later_run {
    std::uint32_t column, position, moment;
  };

  /// The need of a tensor after an event: no later event reads its present value; some event may; or some event does,
  /// and no event may write the tensor before.
  enum class need : std::uint8_t { never, perhaps, certainly };
  /// An operation in a phase.
  struct event {
    std::uint32_t phase = none, position = none;
    mip_value runs{};
    std::vector<need> afterwards{};  // the needs of its outputs, then of its inputs
    // Set when the rows are written:
    std::vector<event_tensor> tensors{};
    std::uint32_t memory = none;  // column: the memory afterwards
  };

  /// R[phase,k]; 0 if the program has no such decision.
  [[nodiscard]] mip_value decision(std::uint32_t phase, std::uint32_t k) const {
    const std::uint32_t first = phases_.first(k);
    return phase >= first && phase - first < decision_[k].size() ? decision_[k][phase - first] : mip_value{};
  }
  [[nodiscard]] std::vector<std::uint32_t> order_before_first_phase() const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t t = 0; t < std::min(phases_.first(), phases_.size()); ++t) order.push_back(phases_.operation(t));
    return order;
  }
  /// The bit of operation `o` among the producers of `t`; producers beyond 64 share bits.
  [[nodiscard]] std::uint64_t contribution_bit(std::uint32_t t, std::uint32_t o) const {
    return std::uint64_t{1} << (place_among_producers(t, o) & 63);
  }
  [[nodiscard]] std::size_t place_among_producers(std::uint32_t t, std::uint32_t o) const {
    const auto producers = g_.producers[t];
    return static_cast<std::size_t>(std::find(producers.begin(), producers.end(), o) - producers.begin());
  }

  /// Sets which tensors are kept until phase number `i` of the program begins, as `keep` rounds; after the last phase,
  /// the final outputs.
  void round_kept(std::size_t i, std::span<const double> values, const std::function<bool(double)>& keep,
                  std::vector<std::uint8_t>& kept) const {
    if (i == starts_.size()) {
      kept = g_.final_output;
      return;
    }
    kept.assign(g_.num_tensors, 0);
    for (const auto& [t, value] : starts_[i].kept)
      if (value.is_constant() ? value.constant > 0.5 : keep(values[value.column])) kept[t] = 1;
  }

  /// The fewest runs of a phase, between what is kept before and after it.
  void append_phase(std::uint32_t phase, const std::vector<std::uint8_t>& before,
                    const std::vector<std::uint8_t>& after, std::vector<std::uint32_t>& order) const {
    std::vector<std::uint8_t> runs(phase + 1, 0);
    const auto require = [&](std::uint32_t t, std::uint32_t reader) {
      if (before[t]) return;
      for (const std::uint32_t o : g_.producers[t])
        if (const std::uint32_t k = phases_.position(o); k < phase && k != reader) runs[k] = 1;
    };
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t)
      if (after[t]) require(t, none);
    runs[phase] = 1;
    for (const std::uint32_t t : g_.outputs[phases_.operation(phase)])
      if (g_.producers[t].size() > 1) require(t, phase);  // it adds to what the earlier producers have made
    for (std::uint32_t k = phase + 1; k-- > 0;)
      if (runs[k])
        for (const std::uint32_t t : g_.inputs[phases_.operation(k)]) require(t, k);
    for (std::uint32_t k = 0; k <= phase; ++k)
      if (runs[k]) order.push_back(phases_.operation(k));
  }

  void choose_scales(std::int64_t max_units) {
    std::int64_t divisor = 0;
    bool whole_times = true;
    for (const std::int64_t b : g_.bytes) divisor = std::gcd(divisor, b);
    for (std::uint32_t k = 0; k < phases_.size(); ++k) {
      const std::uint32_t o = phases_.operation(k);
      divisor = std::gcd(divisor, g_.workspace[o]);
      whole_times = whole_times && g_.time[o] == std::floor(g_.time[o]);
    }
    // The program has no rows on memory without a budget.
    set_scales({problem_.has_budget() ? problem_.budget() : 0, divisor, max_units},
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
      for (std::uint32_t t = phases_.first(k); t <= phases_.last(k); ++t) {
        if (!may_continue()) return;
        decision_[k].push_back({});
        if (!phases_.may_run_again(t, k)) continue;
        const double time_again = g_.time[phases_.operation(k)];
        if (phases_.must_run_again(t, k)) {
          decision_[k].back() = mip_value::one();
          model_.offset += time_again * time_scale();
          ++always_;
        } else {
          decision_[k].back() = new_decision(time_again);
        }
      }
    plan_events();
    begin_first_phase(find_needs());
    for (event& e : events_) {
      if (!may_continue()) return;
      if (starts_.empty() || starts_.back().phase != e.phase) begin_phase(e.phase);
      if (e.phase == e.position)
        for (std::size_t i = 0; i < moments_.size(); ++i)
          if (index(moments_[i]) == phases_.operation(e.phase)) snapshots_[i] = all_held();
      add_event(e);
    }
    for (const std::uint32_t t : g_.final_outputs) {
      add_row(1, {{held(t), 1}}, 1);
      for (const mip_value& c : contributions_[t]) add_row(1, {{c, 1}}, 1);
    }
  }

  void plan_events() {
    for (std::uint32_t t = phases_.first(); t < phases_.size(); ++t)
      for (std::uint32_t k = 0; k <= t; ++k) {
        const mip_value runs = k == t ? mip_value::one() : decision(t, k);
        if (!runs.is_constant(0)) events_.push_back({t, k, runs});
      }
  }

  /// Backwards over the events: sets `afterwards` of each, and returns the needs when the first phase begins.
  [[nodiscard]] std::vector<need> find_needs() {
    std::vector<need> needs(g_.num_tensors, need::never);
    for (const std::uint32_t t : g_.final_outputs) needs[t] = phases_.is_sum(t) ? need::perhaps : need::certainly;
    for (std::size_t i = events_.size(); i-- > 0;) {
      event& e = events_[i];
      const std::uint32_t o = phases_.operation(e.position);
      for (const auto* row : {&g_.outputs, &g_.inputs})
        for (const std::uint32_t t : (*row)[o]) e.afterwards.push_back(needs[t]);
      for (const std::uint32_t t : g_.outputs[o]) {
        if (phases_.is_sum(t) || (e.phase == e.position && g_.producers[t].front() != o)) continue;
        if (e.runs.is_constant())
          needs[t] = need::never;  // the old content is written anew
        else if (needs[t] == need::certainly)
          needs[t] = need::perhaps;
      }
      for (const std::uint32_t t : g_.inputs[o])
        if (e.runs.is_constant() && !phases_.is_sum(t))
          needs[t] = need::certainly;
        else
          needs[t] = std::max(needs[t], need::perhaps);
    }
    return needs;
  }

  /// A value for each tensor that may be held when the first phase begins.
  void begin_first_phase(const std::vector<need>& needs) {
    start_held_.assign(g_.num_tensors, 0);
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t) {
      if (phases_.is_sum(t)) contributions_[t].assign(g_.producers[t].size(), {});
      if (g_.producers[t].empty()) continue;
      const std::uint32_t k = phases_.position(g_.producers[t].front());
      if (k == none || k >= phases_.first() || needs[t] == need::never) continue;
      if (needs[t] == need::perhaps) {
        (void)hold_from_start(t);
      } else {
        hold(t, mip_value::one());
        start_held_[t] = 1;
      }
    }
    add_start_memory();
    add_start_row();
  }

  /// Notes which columns say what is kept until a phase begins.
  void begin_phase(std::uint32_t phase) {
    starts_.push_back({phase});
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t)
      if (!held(t).is_constant(0)) starts_.back().kept.push_back({t, held(t)});
  }

  /// A value that says whether a tensor is held after an event.
  [[nodiscard]] mip_value value_after(need n, bool integer = false) {
    return n == need::never ? mip_value{} : n == need::certainly ? mip_value::one() : new_column(integer);
  }

  void add_event(event& e) {
    const std::uint32_t o = phases_.operation(e.position);
    const bool first = e.phase == e.position;
    const mip_value r = e.runs;
    const need* afterwards = e.afterwards.data();
    std::vector<held_change> changes;
    std::vector<std::pair<mip_value, double>> peak;  // terms of the memory while it runs
    std::vector<mip_value> kept;
    double unused = sizes().size(g_.workspace[o]);  // allocated while it runs, and not held afterwards
    for (const std::uint32_t t : g_.outputs[o]) {
      const need later = *afterwards++;
      if (held(t).is_constant(0) && later == need::never) {
        unused += tensor_size(t);
        continue;
      }
      const mip_value before = held(t);
      mip_value after;
      event_tensor part{t};
      if (phases_.is_sum(t)) {
        after = add_to_sum(t, o, r, later, part, peak);
      } else if (first && g_.producers[t].front() != o) {
        // None of its producers runs again, so the earlier contributions must still be there.
        add_row(1, {{before, 1}}, 1);
        after = value_after(later);
      } else {
        peak.push_back({r, tensor_size(t)});
        after = value_after(later);
        if (!r.is_constant()) add_row(-infinite, {{after, 1}, {before, -1}, {r, -1}}, 0);
      }
      hold(t, after);
      kept.push_back(after);
      changes.push_back({t, before, after});
      part.held = after;
      e.tensors.push_back(std::move(part));
    }
    if (!r.is_constant()) forbid_useless({&r, 1}, kept);
    for (const std::uint32_t t : g_.inputs[o]) changes.push_back(add_read(t, r, *afterwards++, e));
    // Frees come after the run, so this limit covers the memory afterwards, too.
    for (const auto& [value, size] : peak) add_term(value, size);
    add_term(r, unused);
    end_peak_row();
    e.memory = carry_memory(changes);
  }

  /// The rows of a read of `t` by run `r`.
  held_change add_read(std::uint32_t t, const mip_value& r, need later, event& e) {
    const mip_value before = held(t);
    const mip_value after = value_after(later, phases_.is_sum(t));
    event_tensor part{t, after};
    require_held(before, {&r, 1}, r.is_constant(1));
    limit_held(after, before, {});
    for (const mip_value& c : contributions_[t]) add_row(0, {{c, 1}, {r, -1}}, infinite);
    if (!contributions_[t].empty()) carry_contributions(t, after, part, none, {});
    hold(t, after);
    e.tensors.push_back(std::move(part));
    return {t, before, after};
  }

  /// The rows of a write of operation `o` to a sum: returns whether the sum is held afterwards.
  mip_value add_to_sum(std::uint32_t t, std::uint32_t o, const mip_value& r, need later, event_tensor& part,
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
    const mip_value after = value_after(later, true);
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

  /// Adds the rows of moments. At each one, a tensor that a later first run reads is held or y = 1 for its producers;
  /// likewise a tensor that a producer with y = 1 reads. In the relaxation of the program alone, a fraction of a run in
  /// each of many phases needs only that fraction of its inputs.
  void add_moments() {
    for (std::size_t i = 0; i < moments_.size(); ++i)
      if (!snapshots_[i].empty())
        add_moment(phases_.position(static_cast<std::uint32_t>(index(moments_[i]))), snapshots_[i]);
  }

  /// The decisions R of operation k in the phases after that of the moment, those that are 0 left out.
  [[nodiscard]] std::vector<mip_value> runs_after(std::uint32_t m, std::uint32_t k) const {
    std::vector<mip_value> runs;
    for (std::uint32_t t = std::max(m + 1, phases_.first(k)); t <= phases_.last(k); ++t)
      if (const mip_value r = decision(t, k); !r.is_constant(0)) runs.push_back(r);
    return runs;
  }

  void add_moment(std::uint32_t m, const std::vector<mip_value>& held_then) {
    const std::uint32_t n = phases_.size();
    std::vector<mip_value> again(n);
    for (std::uint32_t k = 0; k < m; ++k) {
      if (!may_continue()) return;
      const std::vector<mip_value> runs = runs_after(m, k);
      if (runs.empty()) continue;
      if (std::any_of(runs.begin(), runs.end(), [](const mip_value& r) { return r.is_constant(); })) {
        again[k] = mip_value::one();
        continue;
      }
      again[k] = new_column();
      later_runs_.push_back({again[k].column, k, m});
      for (const mip_value& r : runs) add_term(r, 1);
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
      if (!again[k].is_constant(0))
        for (const std::uint32_t t : g_.inputs[phases_.operation(k)]) require(t, again[k]);
  }

  // ---- The values of all columns from decisions

  [[nodiscard]] bool takes_place(const event& e, std::span<const double> x) const {
    return e.runs.is_constant() || x[e.runs.column] > 0.5;
  }

  /// Sets all columns as the decisions in `x` imply, with frees as early as possible.
  void fill_in(std::vector<double>& x) const {
    const double memory = fill_in_held(x);
    fill_in_memory(x, memory);
    for (const later_run& y : later_runs_)
      for (const mip_value& r : runs_after(y.moment, y.position))
        if (x[r.column] > 0.5) x[y.column] = 1;
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
        if (!part.held.is_constant()) x[part.held.column] = is_held[part.tensor];
      if (!takes_place(e, x)) continue;
      const std::uint32_t o = phases_.operation(e.position);
      for (const std::uint32_t t : g_.outputs[o]) {
        missing[t] &= ~contribution_bit(t, o);
        if (missing[t] == 0) is_held[t] = 0;
      }
      for (const std::uint32_t t : g_.inputs[o])
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
    std::vector<double> held_now(start_held_);
    held_now.resize(g_.num_tensors, 0);
    for (const auto& [t, column] : start()) held_now[t] = x[column];
    for (const event& e : events_) {
      const bool runs = takes_place(e, x);
      const std::uint32_t o = phases_.operation(e.position);
      if (runs)
        for (const std::uint32_t t : g_.outputs[o]) made[t] |= contribution_bit(t, o);
      for (const event_tensor& part : e.tensors) {
        const std::uint32_t t = part.tensor;
        if (part.during != none) x[part.during] = std::max(held_now[t], runs ? 1.0 : 0.0);
        const double after = part.held.is_constant() ? part.held.constant : x[part.held.column];
        memory += (after - held_now[t]) * tensor_size(t);
        held_now[t] = after;
        if (after < 0.5) made[t] = 0;
        for (std::size_t c = 0; c < part.contributions.size(); ++c)
          if (part.contributions[c] != none && part.contributions[c] != part.held.column)
            x[part.contributions[c]] = static_cast<double>(made[t] >> (c & 63) & 1);
      }
      if (e.memory != none) x[e.memory] = memory;
    }
  }

  problem problem_;  // keeps the arrays alive
  const flat_graph& g_;
  std::vector<op_id> moments_;
  checkmate_program::operation_phases phases_;
  std::vector<std::vector<mip_value>> decision_;  // each position's decisions, by phase
  std::size_t always_ = 0;                        // decisions that the rule has made: the operation runs again
  std::vector<double> start_held_;                // each tensor's value: 1 if it is held for certain
  std::vector<phase_start> starts_;
  std::vector<event> events_;
  std::vector<std::vector<mip_value>> contributions_;  // each sum's contributions, as far as the construction has come
  std::vector<std::vector<mip_value>> snapshots_;      // the tensors that are held at each moment
  std::vector<later_run> later_runs_;
};

}  // namespace REMAT_NAMESPACE::detail
