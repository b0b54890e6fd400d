// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/checkmate/detail/checkmate_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/mip/detail/phase_model.hpp"
#include "remat/mip/detail/row_writer.hpp"
#include "remat/mip/model.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat::detail {

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
  /// True where the operation may, or must, run again in the phase.
  [[nodiscard]] bool may_run_again(std::uint32_t phase, std::uint32_t k) const {
    return phase >= first(k) && phase <= last_[k] && is_allowed(phase, k);
  }
  /// True where the rule says that the operation runs again in the phase.
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
  /// True where neither the options nor the operation forbid another run in the phase.
  [[nodiscard]] bool is_allowed(std::uint32_t phase, std::uint32_t k) const {
    if (!repeatable_[k]) return false;
    return !rule_ || rule_(op(phase), op(k)) != rerun::never;
  }

  /// For each operation the last phase in which another run may be of use, for each tensor the last read.
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
  std::function<rerun(op_id, op_id)> rule_;
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
        phases_(g_, options) {
    choose_scales(options.units);
    phases_.find_first(sizes(), problem_.has_budget(), [&] { return !may_continue(); });
    if (is_complete()) build();
    if (is_complete()) add_moments();
    finish();
  }

  [[nodiscard]] std::size_t decisions() const noexcept { return decisions_; }
  [[nodiscard]] std::size_t phases() const noexcept {
    return phases_.size() - std::min(phases_.first(), phases_.size());
  }

  [[nodiscard]] std::vector<std::uint32_t> order(std::span<const double> values) const {
    std::vector<std::uint32_t> order;
    auto must = always_.begin();
    for (std::uint32_t t = 0; t < phases_.size(); ++t) {
      for (std::uint32_t k = 0; k < t; ++k) {
        const std::uint32_t c = decision(t, k);
        const bool always = must != always_.end() && *must == std::pair(t, k);
        if (always) ++must;
        if (always || (c != none && values[c] > 0.5)) order.push_back(phases_.operation(k));
      }
      order.push_back(phases_.operation(t));
    }
    return order;
  }

  [[nodiscard]] schedule decode(std::span<const double> values) const { return schedule_computes(g_, order(values)); }

  [[nodiscard]] std::vector<std::uint32_t> round(std::span<const double> values,
                                                 const std::function<bool(double)>& keep) const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t t = 0; t < std::min(phases_.first(), phases_.size()); ++t) order.push_back(phases_.operation(t));
    std::vector<std::uint8_t> now(g_.num_tensors, 0), next(g_.num_tensors, 0);
    round_kept(0, values, keep, now);
    for (std::size_t i = 0; i < kept_begin_.size(); ++i) {
      round_kept(i + 1, values, keep, next);
      append_phase(kept_begin_[i].first, now, next, order);
      std::swap(now, next);
    }
    return order;
  }

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
      if (phase < phases_.first()) continue;  // not needed: everything of use is kept until then
      const std::uint32_t c = decision(phase, k);
      if (c != none)
        x[c] = 1;
      else if (std::binary_search(always_.begin(), always_.end(), std::pair(phase, k)))
        ++always;
      else
        return std::nullopt;
    }
    if (always != always_.size()) return std::nullopt;
    fill_in(x);
    if (!(model_.violation(x) <= 1e-6)) return std::nullopt;
    return x;
  }

 private:
  /// A tensor that an event reads or writes: columns of the values that hold afterwards.
  struct event_tensor {
    std::uint32_t tensor = none;
    std::uint32_t held = none;
    double constant = 0;          // where `held` is none: whether it is held
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

  /// Whether a tensor is of use after an event: no later event reads what it is now; some event may; or some event
  /// does, and no event may write it before.
  enum class need : std::uint8_t { never, perhaps, certainly };
  /// An operation in a phase, before its rows are written.
  struct planned_event {
    std::uint32_t phase = none, position = none;
    bool certain = false;
    std::vector<need> afterwards{};  // of its outputs, then of its inputs
  };

  /// The column of R[phase,k], or none.
  [[nodiscard]] std::uint32_t decision(std::uint32_t phase, std::uint32_t k) const {
    const std::uint32_t first = phases_.first(k);
    return phase >= first && phase - first < decision_[k].size() ? decision_[k][phase - first] : none;
  }
  /// The bit of operation `o` among the producers of `t`; producers beyond 64 share bits.
  [[nodiscard]] std::uint64_t contribution_bit(std::uint32_t t, std::uint32_t o) const {
    return std::uint64_t{1} << (place_among_producers(t, o) & 63);
  }
  [[nodiscard]] std::size_t place_among_producers(std::uint32_t t, std::uint32_t o) const {
    const auto producers = g_.producers[t];
    return static_cast<std::size_t>(std::find(producers.begin(), producers.end(), o) - producers.begin());
  }

  /// Which tensors are kept until phase number `i` of the program begins, if `keep` rounds; the final outputs after the
  /// last one.
  void round_kept(std::size_t i, std::span<const double> values, const std::function<bool(double)>& keep,
                  std::vector<std::uint8_t>& kept) const {
    if (i == kept_begin_.size()) {
      std::copy(g_.final_output.begin(), g_.final_output.end(), kept.begin());
      return;
    }
    std::fill(kept.begin(), kept.end(), std::uint8_t{0});
    const std::size_t end = i + 1 < kept_begin_.size() ? kept_begin_[i + 1].second : kept_.size();
    for (std::size_t j = kept_begin_[i].second; j < end; ++j) {
      const auto& [t, value] = kept_[j];
      if (value.is_constant() ? value.constant > 0.5 : keep(values[value.column])) kept[t] = 1;
    }
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
      for (std::uint32_t t = phases_.first(k); t <= phases_.last(k); ++t) {
        if (!may_continue()) return;
        decision_[k].push_back(none);
        if (!phases_.may_run_again(t, k)) continue;
        const double cost = g_.time[phases_.operation(k)] * time_scale();
        if (phases_.must_run_again(t, k)) {
          always_.push_back({t, k});
          model_.offset += cost;
          continue;
        }
        decision_[k].back() = model_.add_integer(cost, 0, 1);
        ++decisions_;
      }
    std::sort(always_.begin(), always_.end());
    std::vector<planned_event> plan = plan_events();
    begin_first_phase(find_needs(plan));
    std::uint32_t phase = none;
    for (const planned_event& e : plan) {
      if (!may_continue()) return;
      if (phase != e.phase) begin_phase(phase = e.phase);
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

  /// All events, in order.
  [[nodiscard]] std::vector<planned_event> plan_events() {
    std::vector<planned_event> plan;
    auto must = always_.begin();
    for (std::uint32_t t = phases_.first(); t < phases_.size(); ++t)
      for (std::uint32_t k = 0; k <= t; ++k) {
        const bool always = must != always_.end() && *must == std::pair(t, k);
        if (always) ++must;
        if (always || k == t || decision(t, k) != none) plan.push_back({t, k, always || k == t, {}});
      }
    return plan;
  }

  /// Backwards over the events: sets `afterwards` of each, and returns the needs when the first phase begins.
  [[nodiscard]] std::vector<need> find_needs(std::vector<planned_event>& plan) const {
    std::vector<need> needs(g_.num_tensors, need::never);
    for (const std::uint32_t t : g_.final_outputs) needs[t] = phases_.is_sum(t) ? need::perhaps : need::certainly;
    for (std::size_t i = plan.size(); i-- > 0;) {
      planned_event& e = plan[i];
      const std::uint32_t o = phases_.operation(e.position);
      for (const auto* row : {&g_.outputs, &g_.inputs})
        for (const std::uint32_t t : (*row)[o]) e.afterwards.push_back(needs[t]);
      for (const std::uint32_t t : g_.outputs[o]) {
        if (phases_.is_sum(t) || (e.phase == e.position && g_.producers[t].front() != o)) continue;
        if (e.certain)
          needs[t] = need::never;  // what was there is written anew
        else if (needs[t] == need::certainly)
          needs[t] = need::perhaps;
      }
      for (const std::uint32_t t : g_.inputs[o])
        if (e.certain && !phases_.is_sum(t))
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

  /// Notes which columns say what is kept between two phases.
  void begin_phase(std::uint32_t phase) {
    kept_begin_.push_back({phase, kept_.size()});
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t)
      if (!held(t).is_constant(0)) kept_.push_back({t, held(t)});
  }

  /// A value that says whether a tensor is held after an event.
  [[nodiscard]] mip_value value_after(need n, bool integer = false) {
    return n == need::never ? mip_value{} : n == need::certainly ? mip_value::one() : new_column(integer);
  }

  void add_event(const planned_event& planned) {
    const std::uint32_t o = phases_.operation(planned.position);
    const bool first = planned.phase == planned.position;
    const mip_value r = planned.certain ? mip_value::one() : mip_value{decision(planned.phase, planned.position), 0};
    const need* afterwards = planned.afterwards.data();
    event e{o, r.column, none, {}};
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
      event_tensor part;
      part.tensor = t;
      if (phases_.is_sum(t)) {
        after = add_to_sum(t, o, r, later, part, peak);
      } else if (first && g_.producers[t].front() != o) {
        // None of its producers runs again, so the earlier contributions must still be there.
        add_row(1, {{before, 1}}, 1);
        after = value_after(later);
      } else {
        peak.push_back({r, tensor_size(t)});
        after = value_after(later);
        if (!planned.certain) add_row(-infinite, {{after, 1}, {before, -1}, {r, -1}}, 0);
      }
      hold(t, after);
      kept.push_back(after);
      changes.push_back({t, before, after});
      part.held = after.column;
      part.constant = after.constant;
      e.tensors.push_back(std::move(part));
    }
    if (!planned.certain) forbid_useless({&r, 1}, kept);
    for (const std::uint32_t t : g_.inputs[o]) changes.push_back(add_read(t, r, *afterwards++, e));
    // Frees come after the run, so this limit covers the memory afterwards, too.
    for (const auto& [value, size] : peak) add_term(value, size);
    add_term(r, unused);
    end_peak_row();
    e.memory = carry_memory(changes);
    events_.push_back(std::move(e));
  }

  /// The rows of a read of `t` by run `r`.
  held_change add_read(std::uint32_t t, const mip_value& r, need later, event& e) {
    const mip_value before = held(t);
    const mip_value after = value_after(later, phases_.is_sum(t));
    event_tensor part;
    part.tensor = t;
    part.held = after.column;
    part.constant = after.constant;
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

  /// At a moment, each tensor that a later first run reads is held or y = 1 for its producers; likewise for what a
  /// producer with y = 1 reads. In the relaxation of the program alone, a fraction of a run in each of many phases
  /// needs only that fraction of its inputs.
  void add_moments() {
    for (std::size_t i = 0; i < moments_.size(); ++i)
      if (!snapshots_[i].empty())
        add_moment(phases_.position(static_cast<std::uint32_t>(index(moments_[i]))), snapshots_[i]);
  }

  /// True where the rule makes the operation run again in a phase after that of the moment.
  [[nodiscard]] bool is_always_run_after(std::uint32_t m, std::uint32_t k) const {
    return std::any_of(std::lower_bound(always_.begin(), always_.end(), std::pair(m + 1, std::uint32_t{0})),
                       always_.end(), [&](const auto& run) { return run.second == k; });
  }

  void add_moment(std::uint32_t m, const std::vector<mip_value>& held_then) {
    const std::uint32_t n = phases_.size();
    std::vector<mip_value> again(n);
    for (std::uint32_t k = 0; k < m; ++k) {
      if (!may_continue()) return;
      if (is_always_run_after(m, k)) {
        again[k] = mip_value::one();
        continue;
      }
      bool some = false;
      for (std::uint32_t t = std::max(m + 1, phases_.first(k)); t <= phases_.last(k); ++t) {
        if (decision(t, k) == none) continue;
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
      if (!again[k].is_constant(0))
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
      for (std::uint32_t t = std::max(y.moment + 1, phases_.first(y.position)); t <= phases_.last(y.position); ++t)
        if (const std::uint32_t c = decision(t, y.position); c != none && x[c] > 0.5) x[y.column] = 1;
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
    std::vector<double> held_now(start_held_);
    held_now.resize(g_.num_tensors, 0);
    for (const auto& [t, column] : start()) held_now[t] = x[column];
    for (const event& e : events_) {
      const bool runs = takes_place(e, x);
      if (runs)
        for (const std::uint32_t t : g_.outputs[e.operation]) made[t] |= contribution_bit(t, e.operation);
      for (const event_tensor& part : e.tensors) {
        const std::uint32_t t = part.tensor;
        if (part.during != none) x[part.during] = std::max(held_now[t], runs ? 1.0 : 0.0);
        const double after = part.held == none ? part.constant : x[part.held];
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
  std::vector<std::vector<std::uint32_t>> decision_;               // of a position, by phase: columns
  std::vector<std::pair<std::uint32_t, std::uint32_t>> always_;    // phase, position: as the rule says
  std::vector<double> start_held_;                                 // of a tensor: 1 where it is held for certain
  std::vector<std::pair<std::uint32_t, mip_value>> kept_;          // between phases: tensors that may be held
  std::vector<std::pair<std::uint32_t, std::size_t>> kept_begin_;  // of a phase, in `kept_`
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

}  // namespace checkmate_program

REMAT_INLINE checkmate_model::checkmate_model(const problem& p, const checkmate_model_options& options) {
  detail::checkmate_program::require_valid(p, options);
  program_ = std::make_shared<const detail::checkmate_program::program>(p, options);
}
REMAT_INLINE const mip_model& checkmate_model::model() const noexcept { return program_->model(); }
REMAT_INLINE bool checkmate_model::is_complete() const noexcept { return program_->is_complete(); }
REMAT_INLINE std::size_t checkmate_model::decisions() const noexcept { return program_->decisions(); }
REMAT_INLINE std::size_t checkmate_model::phases() const noexcept { return program_->phases(); }
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
REMAT_INLINE std::vector<std::uint32_t> checkmate_model::round(std::span<const double> values,
                                                               const std::function<bool(double)>& keep) const {
  return program_->round(values, keep);
}
REMAT_INLINE std::optional<std::vector<double>> checkmate_model::encode(const schedule& plan) const {
  return program_->encode(plan);
}

}  // namespace remat::detail
