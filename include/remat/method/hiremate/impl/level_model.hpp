// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/hiremate/impl/level_phases.hpp"
#include "remat/mip/detail/phase_model.hpp"

namespace REMAT_NAMESPACE::detail {

struct level_model_options {
  /// Only schedules that take at most this long have to be solutions. A variant that is too long for that has no
  /// variables.
  double at_most = std::numeric_limits<double>::infinity();
  /// The budget in units of size: sizes are rounded up to whole units, the budget is rounded down. Nothing is lost if
  /// the greatest common divisor of all sizes is large enough.
  std::int64_t units = std::int64_t{1} << 20;
  /// Nothing runs again before the phase of this run. With the first backward run, half of the columns go, and seldom a
  /// good schedule.
  std::uint32_t again_from = 0;
  /// Building ends when the model has more columns; see `level_model::is_complete`.
  double max_columns = std::numeric_limits<double>::infinity();
  run_control run{};  ///< only `stop` and the limits are used
};

inline bool is_subset(const std::vector<std::uint32_t>& part, const std::vector<std::uint32_t>& whole) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

inline bool have_same_inner_peaks(const level_problem::variant& a, const level_problem::variant& b) {
  const auto equal = [](const level_problem::inner_peak& p, const level_problem::inner_peak& q) {
    return p.bytes == q.bytes && p.gone == q.gone;
  };
  return std::equal(a.inner.begin(), a.inner.end(), b.inner.begin(), b.inner.end(), equal);
}

/// The divisor of all sizes of a level, its longest variant, and whether all times are whole.
struct level_scale {
  std::int64_t divisor = 0;
  double longest = 0;
  bool whole_times = true;

  explicit level_scale(const level_problem& level) {
    for (const std::int64_t b : level.bytes) divisor = std::gcd(divisor, b);
    for (const level_problem::run& r : level.runs)
      for (const level_problem::variant& v : r.variants) {
        divisor = std::gcd(divisor, v.peak_bytes);
        for (const level_problem::inner_peak& p : v.inner) divisor = std::gcd(divisor, p.bytes);
        whole_times = whole_times && v.time == std::floor(v.time);
        longest = std::max(longest, v.time);
      }
  }
};

/// A run of a level in a phase: its columns in `level_model`.
struct level_cell {
  static constexpr std::uint32_t none = mip_model::none;

  struct way {
    std::uint32_t variant = 0;
    std::uint32_t column = none;  ///< R; none: it takes place
  };
  struct held_tensor {
    std::uint32_t tensor = none;
    std::uint32_t column = none;  ///< held after the cell
  };

  std::uint32_t phase = 0, run = 0;
  std::uint32_t memory = none;  ///< column: the memory after the cell
  std::vector<way> ways{};
  std::vector<std::uint32_t> way_of{};  ///< the place of the way that replaces each variant, or none
  std::vector<held_tensor> tensors{};

  [[nodiscard]] bool is_first() const noexcept { return phase == run; }

  /// The way that the values choose; null if a run again does not take place. Values are read as whole numbers.
  [[nodiscard]] const way* chosen(std::span<const double> values) const {
    const way* best = nullptr;
    double most = is_first() ? -std::numeric_limits<double>::infinity() : 0.5;  // a first run takes place
    for (const way& o : ways) {
      if (o.column == none) return &o;
      if (values[o.column] > most) {
        best = &o;
        most = values[o.column];
      }
    }
    return best;
  }
};

/// HiRemate's hierarchical integer program (H-ILP) for one level. \cite gusak2025hiremate
///
/// Its T runs make T phases. Phase t ends with the first run of run t. Before it, earlier runs may take place again,
/// each at most once, in the listed order and in one variant.
///
/// R[t,k,o] (binary) says that run k takes place in phase t in variant o. Over the variants, R adds up to 1 in the
/// phase of the first run, and to at most 1 in later phases. All other variables follow from these, as in
/// `checkmate_model`. For each tensor, and between any two runs that may write or read it, a variable says whether it
/// is held there. Before a run, it is at least the *sum* of R over the variants that read the tensor. After a run, it
/// is at most its value before plus the sum of R over the variants that write the tensor. One equation for each run
/// carries the memory over it. The memory with the peak of the variant is within the budget while the run takes place.
/// A phantom is a tensor like others.
///
/// The program leaves out what some best solution of this form does without:
/// - a variant in a phase after which no tensor that it writes may be of use, and a variant that another one replaces:
///   that takes no longer, needs no more memory, and writes as many tensors that may be of use;
/// - a variant whose peak does not fit beside what it reads and what is held for certain;
/// - runs again in the phases before the first run that does not fit beside everything that may be of use later, and
///   the memory until then. Alternatives (tensors that not all variants of a run write) must be simple for that: one
///   other run alone reads them, it takes place once, and it finds all that it reads of a run in one variant of that;
/// - dropping a tensor that must stay: it is made once, and all variants of a later first run read it.
///
/// The optimum, and infeasibility, hold for this form, not for the level. Differs from the paper: the program has no
/// variables for frees; a tensor of several runs has no variable for each contribution; phantoms may be dropped
/// anywhere; inner peaks are rows without variables; and see what is left out.
///
/// Size: about T²/2 × (variants + reads and writes) columns for runs that may take place again. Building polls at every
/// event of the program. Preconditions: the level is valid, `at_most` and `max_columns` are no NaN, and `units` ≥ 1.
class level_model : phase_model {
 public:
  /// Builds the model for a budget in bytes. Keeps a reference to the level.
  explicit level_model(const level_problem& level, std::int64_t budget, const level_model_options& options = {})
      : phase_model(level.bytes, options.max_columns, options.run),
        level_(level),
        phases_(level_, budget, options.at_most, options.again_from),
        early_writers_(level_.bytes.size()) {
    if (phases_.is_impossible()) set_impossible();
    const level_scale scale(level_);
    const double length = phases_.least_time() > 0 ? phases_.least_time() : scale.longest;
    set_scales({std::max<std::int64_t>(budget, 0), scale.divisor, options.units},
               objective_scale(length, scale.whole_times));
    phases_.find_first(sizes(), [this] { return !may_continue(); });
    if (is_complete() && !is_impossible()) build();
    finish();
  }

  using phase_model::decisions;
  using phase_model::is_complete;  ///< If it is false, no other function but `model` may be called.
  using phase_model::model;
  using phase_model::time;
  /// Nothing runs again before this phase.
  [[nodiscard]] std::uint32_t first_phase() const noexcept { return phases_.first(); }

  /// An upper bound on the number of columns, before the model is built.
  /// O(size of the level) time, apart from sorting.
  [[nodiscard]] static double size_estimate(const level_problem& level) {
    const std::size_t n = level.runs.size();
    double columns = 1 + static_cast<double>(level.bytes.size());
    std::vector<std::uint32_t> touched;
    for (std::size_t k = 0; k < n; ++k) {
      const level_problem::run& r = level.runs[k];
      touched.clear();
      for (const level_problem::variant& v : r.variants) {
        touched.insert(touched.end(), v.reads.begin(), v.reads.end());
        touched.insert(touched.end(), v.writes.begin(), v.writes.end());
      }
      sort_unique(touched);
      columns += static_cast<double>(r.variants.size() + touched.size() + 1) * static_cast<double>(r.again ? n - k : 1);
    }
    return columns;
  }

  /// The choices that the values say, in order. Runs without use are not left out. Values are rounded to the nearest
  /// whole number. The choices are not checked, since the values of a backend are a hint.
  [[nodiscard]] std::vector<level_problem::choice> decode(std::span<const double> values) const {
    std::vector<level_problem::choice> out;
    for (const level_cell& c : cells_)
      if (const level_cell::way* o = c.chosen(values)) out.push_back({c.run, o->variant});
    return out;
  }

  /// Values for these choices, or for others that take no longer: without runs that are of no use, and with the
  /// variants that replace others. Nothing if the choices are not of the form, or not within the budget in units.
  [[nodiscard]] std::optional<std::vector<double>> encode(std::span<const level_problem::choice> choices) const {
    if (!simulate_level(level_, choices).legal) return std::nullopt;
    std::vector<double> x(model_.num_columns(), 0);
    std::vector<std::uint8_t> taken(cells_.size(), 0);
    const auto take = [&](std::uint32_t t, const level_problem::choice& choice) {
      const std::uint32_t c = find_cell(t, choice.run);
      if (c == none || taken[c]) return false;
      const std::uint32_t i = cells_[c].way_of[choice.variant];
      if (i == none) return false;
      taken[c] = 1;
      if (const std::uint32_t column = cells_[c].ways[i].column; column != none) x[column] = 1;
      return true;
    };
    std::vector<std::uint32_t> early(phases_.size(), none);  // each run's last variant before the first phase
    std::uint32_t phase = 0;
    for (const level_problem::choice& choice : without_runs_in_vain(level_, choices)) {
      const bool first = choice.run == phase;
      if (phase < phases_.first())
        early[choice.run] = choice.variant;
      else if (!take(phase, choice))
        return std::nullopt;
      phase += first;
      if (first && phase == phases_.first())
        for (std::uint32_t k = 0; k < phase; ++k)
          if (!take(k, {k, early[k]})) return std::nullopt;
    }
    fill_in(x);
    if (!(model_.violation(x) <= 1e-6)) return std::nullopt;
    return x;
  }

 private:
  /// The place of the cell of run k in a phase, or none. O(log cells) time.
  [[nodiscard]] std::uint32_t find_cell(std::uint32_t phase, std::uint32_t k) const {
    const std::pair event{phase, k};
    const auto at = std::lower_bound(cells_.begin(), cells_.end(), event, [](const level_cell& c, const auto& wanted) {
      return std::pair{c.phase, c.run} < wanted;
    });
    const bool found = at != cells_.end() && std::pair{at->phase, at->run} == event;
    return found ? static_cast<std::uint32_t>(at - cells_.begin()) : none;
  }

  [[nodiscard]] const std::vector<level_problem::variant>& variants(std::uint32_t k) const {
    return phases_.variants(k);
  }

  void build() {
    const std::uint32_t n = phases_.size();
    for (std::uint32_t t = 0; t < n; ++t) {
      if (t == phases_.first()) begin_first_phase();
      for (std::uint32_t k = t < phases_.first() ? t : 0; k <= t; ++k) {
        if (!may_continue() || is_impossible()) return;
        add_cell(t, k);
      }
    }
    if (is_impossible()) return;
    for (const std::uint32_t x : level_.outputs) {
      if (phases_.first() < n) {
        add_row(1, {{held(x), 1}}, 1);
      } else if (!phases_.is_common(x)) {
        for (const mip_value& v : early_writers_[x]) add_term(v, 1);
        end_row(1, infinite);
      }
    }
  }

  /// Says which tensors are held when the first phase begins: one column each, or a constant.
  void begin_first_phase() {
    const level_writers& writers = phases_.writers();
    const std::uint32_t first = phases_.first();
    add_start_memory();
    for (std::uint32_t x = 0; x < level_.bytes.size(); ++x) {
      if (writers.first[x] == none || writers.first[x] >= first) continue;
      if (writers.several(x) && writers.last[x] >= first) {
        hold(x, mip_value::one());
        continue;
      }
      const std::vector<mip_value>& makers = early_writers_[x];
      if (!phases_.uses().is_used_from(x, first) || makers.empty()) continue;
      if (phases_.must_stay_from(x, first)) {
        hold(x, mip_value::one());
        continue;
      }
      const mip_value v = hold_from_start(x);
      const bool is_made =
          std::any_of(makers.begin(), makers.end(), [](const mip_value& m) { return m.is_constant(1); });
      if (!is_made) limit_held(v, {}, makers);
    }
    add_start_row();
  }

  // ---- Cells

  void add_cell(std::uint32_t phase, std::uint32_t k) {
    level_cell c;
    c.phase = phase;
    c.run = k;
    if (!c.is_first() && !level_.runs[k].again) return;
    choose_ways(c);
    if (c.ways.empty()) {
      if (c.is_first()) set_impossible();
      return;
    }
    const std::vector<mip_value> r = add_decisions(c);
    if (phase < phases_.first())
      add_early_reads(c, r);
    else
      add_tensors(c, r);
    cells_.push_back(std::move(c));
  }

  /// The columns R of a cell; the constant 1 for a first run with one way.
  std::vector<mip_value> add_decisions(level_cell& c) {
    std::vector<mip_value> r;
    if (c.is_first() && c.ways.size() == 1) {
      model_.offset += variants(c.run)[c.ways.front().variant].time * time_scale();
      return {mip_value::one()};
    }
    for (level_cell::way& o : c.ways) {
      r.push_back(new_decision(variants(c.run)[o.variant].time));
      o.column = r.back().column;
    }
    if (r.size() > 1) {
      for (const mip_value& v : r) add_term(v, 1);
      end_row(c.is_first() ? 1 : -infinite, 1);
    }
    return r;
  }

  /// The tensors that a variant writes and that may be of use after the cell.
  [[nodiscard]] std::vector<std::uint32_t> useful_writes(const level_cell& c, std::uint32_t o) const {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t x : variants(c.run)[o].writes)
      if (phases_.uses().is_used_after(x, c.phase, c.run)) out.push_back(x);
    return out;
  }

  /// The variants that may be chosen in a cell, without those that another one replaces.
  void choose_ways(level_cell& c) const {
    const std::size_t count = variants(c.run).size();
    std::vector<std::vector<std::uint32_t>> useful(count);
    for (std::uint32_t o = 0; o < count; ++o) useful[o] = useful_writes(c, o);
    std::vector<std::uint32_t> candidates, replacement(count);
    for (std::uint32_t o = 0; o < count; ++o)
      if (is_possible(c, o) && (c.is_first() || !useful[o].empty())) candidates.push_back(o);
    for (const std::uint32_t o : candidates) {
      replacement[o] = o;
      for (const std::uint32_t p : candidates)
        if (p != o && replaces(c, p, replacement[o], useful)) replacement[o] = p;
    }
    c.way_of.assign(count, none);
    for (const std::uint32_t o : candidates)
      if (replacement[o] == o) {
        c.way_of[o] = static_cast<std::uint32_t>(c.ways.size());
        c.ways.push_back({o, none});
      }
    for (const std::uint32_t o : candidates) {
      std::uint32_t p = o;
      while (replacement[p] != p) p = replacement[p];  // "replaces" is an order, so this ends
      c.way_of[o] = c.way_of[p];
    }
  }

  [[nodiscard]] bool is_possible(const level_cell& c, std::uint32_t o) const {
    if (c.is_first() ? !phases_.may_run_first(c.run, o) : !phases_.may_run_again(c.phase, c.run, o)) return false;
    const bool is_tight = c.phase >= phases_.first();
    double needed = certain_memory() + sizes().size(variants(c.run)[o].peak_bytes);
    for (const std::uint32_t x : variants(c.run)[o].reads) {
      if (is_tight ? held(x).is_constant(0) : early_writers_[x].empty()) return false;
      if (!held(x).is_constant(1)) needed += tensor_size(x);
    }
    return !is_tight || needed <= sizes().capacity();
  }

  /// True when variant p may stand for variant o in every schedule; of two equal ones, the first replaces the other.
  [[nodiscard]] bool replaces(const level_cell& c, std::uint32_t p, std::uint32_t o,
                              const std::vector<std::vector<std::uint32_t>>& useful) const {
    const level_problem::variant &a = variants(c.run)[p], &b = variants(c.run)[o];
    const bool is_tight = c.phase >= phases_.first();
    if (a.time > b.time || !is_subset(a.reads, b.reads) || !is_subset(useful[o], useful[p])) return false;
    if (is_tight && (a.peak_bytes > b.peak_bytes || !(a.inner.empty() || have_same_inner_peaks(a, b)))) return false;
    const bool is_equal =
        a.time == b.time && a.reads == b.reads && useful[o] == useful[p] &&
        (!is_tight || (a.peak_bytes == b.peak_bytes && (b.inner.empty() || have_same_inner_peaks(a, b))));
    return !is_equal || p < o;
  }

  /// The tensors that a way of the cell reads or writes, ascending.
  [[nodiscard]] std::vector<std::uint32_t> tensors_of(const level_cell& c) const {
    std::vector<std::uint32_t> out;
    for (const level_cell::way& o : c.ways) {
      const level_problem::variant& v = variants(c.run)[o.variant];
      out.insert(out.end(), v.reads.begin(), v.reads.end());
      out.insert(out.end(), v.writes.begin(), v.writes.end());
    }
    sort_unique(out);
    return out;
  }

  /// The columns R of the ways whose variants read (or write) x.
  [[nodiscard]] std::vector<mip_value> runs_with(const level_cell& c, const std::vector<mip_value>& r, std::uint32_t x,
                                                 std::vector<std::uint32_t> level_problem::variant::*list) const {
    std::vector<mip_value> out;
    for (std::size_t j = 0; j < r.size(); ++j)
      if (contains(variants(c.run)[c.ways[j].variant].*list, x)) out.push_back(r[j]);
    return out;
  }

  /// Memory has no rows before the first phase: alternatives that are read have been written.
  void add_early_reads(const level_cell& c, const std::vector<mip_value>& r) {
    for (const std::uint32_t x : tensors_of(c)) {
      for (const mip_value& maker : runs_with(c, r, x, &level_problem::variant::writes))
        early_writers_[x].push_back(maker);
      const std::vector<mip_value> readers = runs_with(c, r, x, &level_problem::variant::reads);
      if (readers.empty() || phases_.is_common(x)) continue;
      for (const mip_value& reader : readers) add_term(reader, 1);
      for (const mip_value& maker : early_writers_[x]) add_term(maker, -1);
      end_row(-infinite, 0);
    }
  }

  void add_tensors(level_cell& c, const std::vector<mip_value>& r) {
    std::vector<held_change> changes;
    for (const std::uint32_t x : tensors_of(c)) changes.push_back(add_tensor(c, r, x));
    if (!c.is_first()) forbid_useless_runs(c, r, changes);
    add_peaks(c, r, changes);
    c.memory = carry_memory(changes);
    for (const held_change& change : changes) hold(change.tensor, change.after);
  }

  /// The rows of the reads and writes of x in a cell.
  held_change add_tensor(level_cell& c, const std::vector<mip_value>& r, std::uint32_t x) {
    const mip_value before = held(x);
    const std::vector<mip_value> readers = runs_with(c, r, x, &level_problem::variant::reads);
    const std::vector<mip_value> makers = runs_with(c, r, x, &level_problem::variant::writes);
    require_held(before, readers, c.is_first() && readers.size() == r.size());
    mip_value after;
    if (phases_.writers().several(x) && !makers.empty() && c.run != phases_.writers().last[x]) {
      after = mip_value::one();
    } else if (phases_.uses().is_used_after(x, c.phase, c.run)) {
      after = phases_.must_stay_after(x, c.phase, c.run) ? mip_value::one() : new_column();
      const bool is_made = c.is_first() && makers.size() == r.size();
      if (!is_made) limit_held(after, before, makers);
    }
    if (!after.is_constant()) c.tensors.push_back({x, after.column});
    return {x, before, after};
  }

  /// One row for each set of variants that write the same useful tensors.
  void forbid_useless_runs(const level_cell& c, const std::vector<mip_value>& r,
                           const std::vector<held_change>& changes) {
    std::vector<std::vector<std::uint32_t>> useful;
    for (const level_cell::way& o : c.ways) useful.push_back(useful_writes(c, o.variant));
    for (std::size_t j = 0; j < r.size(); ++j) {
      const auto at = useful.begin() + static_cast<std::ptrdiff_t>(j);
      if (std::find(useful.begin(), at, useful[j]) != at) continue;
      std::vector<mip_value> alike, kept;
      for (std::size_t i = j; i < r.size(); ++i)
        if (useful[i] == useful[j]) alike.push_back(r[i]);
      for (const std::uint32_t x : useful[j]) kept.push_back(change_of(changes, x).after);
      forbid_useless(alike, kept);
    }
  }

  /// The rows of the memory while a run takes place. At an inner peak, the tensors of `gone` that are not held
  /// afterwards are freed already.
  void add_peaks(const level_cell& c, const std::vector<mip_value>& r, const std::vector<held_change>& changes) {
    const auto variant = [&](std::size_t j) -> const level_problem::variant& {
      return variants(c.run)[c.ways[j].variant];
    };
    for (std::size_t j = 0; j < r.size(); ++j) add_term(r[j], sizes().size(variant(j).peak_bytes));
    end_peak_row();
    for (std::size_t j = 0; j < r.size(); ++j)
      for (const level_problem::inner_peak& p : variant(j).inner) {
        add_term(r[j], sizes().size(p.bytes));
        for (const std::uint32_t x : p.gone) {
          add_term(change_of(changes, x).after, tensor_size(x));
          add_term(change_of(changes, x).before, -tensor_size(x));
        }
        end_peak_row();
      }
  }

  [[nodiscard]] static const held_change& change_of(const std::vector<held_change>& changes, std::uint32_t x) {
    return *std::lower_bound(changes.begin(), changes.end(), x,
                             [](const held_change& c, std::uint32_t t) { return c.tensor < t; });
  }

  // ---- The values of all columns from decisions

  /// Sets all columns as the decisions in `x` imply, with frees as early as possible.
  void fill_in(std::vector<double>& x) const {
    const level_writers& writers = phases_.writers();
    std::vector<std::uint8_t> is_held(level_.bytes.size(), 0);
    double memory = 0;
    const auto set_held = [&](std::uint32_t t, bool value) {
      if (is_held[t] == value) return;
      is_held[t] = value;
      memory += value ? tensor_size(t) : -tensor_size(t);
    };
    for (const std::uint32_t t : level_.outputs) set_held(t, true);
    for (std::size_t i = cells_.size(); i-- > 0;) {
      const level_cell& c = cells_[i];
      if (c.phase < phases_.first()) break;
      for (const level_cell::held_tensor& tensor : c.tensors) x[tensor.column] = is_held[tensor.tensor];
      if (c.memory != none) x[c.memory] = memory;
      if (const level_cell::way* o = c.chosen(x)) {
        const level_problem::variant& v = variants(c.run)[o->variant];
        for (const std::uint32_t t : v.writes) set_held(t, c.run != writers.first[t]);
        for (const std::uint32_t t : v.reads) set_held(t, true);
      }
    }
    (void)fill_in_start(x, is_held);
  }

  const level_problem& level_;
  level_phases phases_;
  std::vector<level_cell> cells_;                      // cells in the order of their events: by phase, then by run
  std::vector<std::vector<mip_value>> early_writers_;  // the runs before the first phase that write each tensor
};

}  // namespace REMAT_NAMESPACE::detail
