// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/hierarchy/level_problem.hpp"
#include "remat/hierarchy/simulate_level.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/model.hpp"
#include "remat/mip/row_writer.hpp"

namespace remat {

struct level_model_options {
  /// Only schedules that take at most this long need be solutions: what costs more by itself has no variable.
  double at_most = std::numeric_limits<double>::infinity();
  /// The budget in units of size: sizes are rounded up to whole units, the budget down. Where the greatest common
  /// divisor of all sizes allows it, nothing is lost.
  std::int64_t units = std::int64_t{1} << 20;
  /// No run takes place again before the phase of this run: fewer schedules are of the form. The turn, say: half of the
  /// columns go, and seldom a good schedule.
  std::uint32_t again_from = 0;
  /// Runs before the first of which rows are added that say what the later first runs need; see `level_model`.
  std::vector<std::uint32_t> moments{};
};

/// HiRemate's hierarchical integer program (H-ILP): the schedules of one level in T phases, the t-th of which ends with
/// the first run of run t, and before it earlier runs that may run again do so at most once, in the listed order, each
/// in one variant. \cite gusak2025hiremate
///
/// R[t,k,o] (binary) says that run k takes place in phase t in variant o; over the variants they add up to 1 in the
/// phase of the first run, to at most 1 later. All else follows from these, as in `checkmate_model`: for each tensor,
/// and between any two runs that may write or read it, a variable says whether it is held there. Before a run, held is
/// at least the *sum* of R over the variants that read the tensor; after it at most as much as before, and the sum of R
/// over the variants that write it. Memory is carried from run to run by one equation each; while a run takes place it
/// and the peak of the variant are within the budget, after it what is held is. A phantom is a tensor like others.
///
/// Left out, because some best solution of the form does without:
/// - a variant in a phase after which nothing that it writes may be of use, and one that another variant replaces: that
///   takes no longer, needs no more, and writes as much of what may be of use;
/// - a variant whose peak does not fit beside what it reads and what must be there;
/// - runs again in phases before the first run that does not fit beside everything that may be of use later, and the
///   memory until then. Alternatives (tensors that not all variants of a run write) must be simple for that: read by
///   one other run alone, which takes place once and finds all that it reads of a run in one variant of that.
/// - that a tensor is dropped which must be there: made once, and read by all variants of a later first run.
///
/// At *moments*, rows say what the relaxation, in which a fraction of a run in each of many phases does with the same
/// fraction of what it reads, does not know: Y, at most 1, is at most the sum of R of some variants over later phases;
/// what a later first run reads is held or Y = 1 of its writers; what all of these variants read is held or made
/// likewise, for Y. Alternatives that the variants of one first run read count together.
///
/// The optimum, and infeasibility, hold for this form, not for the level. Differs from the paper: no variables for
/// frees, tensors of several runs have no variable for each part, phantoms may be dropped anywhere, inner peaks are
/// rows without variables, and what is left out.
///
/// Throws `bad_argument` by `require_valid`, or for a moment that is no run. Size: about T²/2 × (variants + reads and
/// writes) columns for runs that may take place again.
class level_model : private row_writer {
 public:
  level_model(level_problem level, std::int64_t budget, const level_model_options& options = {})
      : level_((require_valid(level), std::move(level))), writers_(level_), options_(options), budget_(budget) {
    for (const std::uint32_t m : options_.moments)
      if (m >= size())
        throw bad_argument("level_model: moment " + std::to_string(m) + " is no run; there are " +
                           std::to_string(size()));
    select_variants();
    scale();
    find_alternatives();
    find_first_phase();
    build();
    add_moments();
  }

  [[nodiscard]] const mip_model& model() const noexcept { return model_; }
  [[nodiscard]] const level_problem& level() const noexcept { return level_; }
  /// How many columns are decisions R.
  [[nodiscard]] std::size_t decisions() const noexcept { return decisions_; }
  /// No run takes place again before this phase.
  [[nodiscard]] std::uint32_t first_phase() const noexcept { return first_phase_; }
  /// The time of the schedule of a solution with this objective.
  [[nodiscard]] double time(double objective) const noexcept { return objective / time_scale_; }
  [[nodiscard]] double objective(double time) const noexcept { return time * time_scale_; }

  /// More columns than the model would have, without moments: to be asked before it is built.
  /// Precondition: `require_valid(level)`.
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
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
      columns += static_cast<double>(r.variants.size() + touched.size() + 1) * static_cast<double>(r.again ? n - k : 1);
    }
    return columns;
  }

  /// The choices that the values say, in order; runs in vain are in it. Values are read as nearest whole numbers. Not
  /// checked: a backend's values are a hint.
  [[nodiscard]] std::vector<level_problem::choice> decode(std::span<const double> values) const {
    std::vector<level_problem::choice> out;
    for (const cell& c : cells_)
      if (const option* o = chosen(c, values)) out.push_back({c.run, o->variant});
    return out;
  }

  /// The values that say these choices, or others that take no longer: without runs in vain, and with variants that
  /// replace those left out. Nothing where they are not of the form, or not within the budget in units.
  [[nodiscard]] std::optional<std::vector<double>> encode(std::span<const level_problem::choice> choices) const {
    if (!simulate_level(level_, choices).legal) return std::nullopt;
    std::vector<double> x(model_.num_columns(), 0);
    std::vector<std::uint8_t> taken(cells_.size(), 0);
    std::vector<std::uint32_t> early(size(), none);  // the last variant before the first phase
    std::uint32_t phase = 0;
    const auto take = [&](std::uint32_t t, const level_problem::choice& choice) {
      const std::uint32_t c = cell_at(t, choice.run);
      if (c == none || taken[c]) return false;
      const std::uint32_t i = cells_[c].option_of[choice.variant];
      if (i == none) return false;
      taken[c] = 1;
      if (const std::uint32_t column = cells_[c].options[i].column; column != none) x[column] = 1;
      return true;
    };
    for (const level_problem::choice& choice : without_runs_in_vain(level_, choices)) {
      const bool first = choice.run == phase;
      if (phase < first_phase_) {
        early[choice.run] = choice.variant;
      } else if (!take(phase, choice)) {
        return std::nullopt;
      }
      phase += first;
      if (first && phase == first_phase_)
        for (std::uint32_t k = 0; k < first_phase_; ++k)
          if (!take(k, {k, early[k]})) return std::nullopt;
    }
    fill_in(x);
    if (!(model_.violation(x) <= 1e-6)) return std::nullopt;
    return x;
  }

 private:
  struct option {
    std::uint32_t variant = 0;
    std::uint32_t column = none;  // none: it takes place
  };
  struct part {
    std::uint32_t tensor = none, held = none;  // column: held after the cell
  };
  /// A run in a phase.
  struct cell {
    std::uint32_t phase = 0, run = 0;
    std::uint32_t memory = none;  // column: of what is held afterwards
    std::vector<option> options{};
    std::vector<std::uint32_t> option_of{};  // of a variant: the place of what stands for it, or none
    std::vector<part> parts{};
  };

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(level_.runs.size()); }
  [[nodiscard]] const std::vector<level_problem::variant>& variants(std::uint32_t k) const noexcept {
    return level_.runs[k].variants;
  }
  [[nodiscard]] static bool has(const std::vector<std::uint32_t>& list, std::uint32_t x) {
    return std::binary_search(list.begin(), list.end(), x);
  }
  [[nodiscard]] static bool within(const std::vector<std::uint32_t>& part, const std::vector<std::uint32_t>& whole) {
    return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
  }
  [[nodiscard]] static std::int64_t most_of(const level_problem::variant& v) {
    std::int64_t most = v.peak_bytes;
    for (const level_problem::inner_peak& p : v.inner) most = std::max(most, p.bytes);
    return most;
  }

  // ---- what may be of use
  // ----------------------------------------------------------------------------------------------

  /// Which variants may be chosen at all: their peak fits beside what they read, that may be there, and the time that
  /// they cost beyond the least of all runs is not too much.
  void select_variants() {
    const std::uint32_t n = size();
    first_allowed_.resize(n);
    again_allowed_.resize(n);
    std::vector<std::uint8_t> made(level_.bytes.size());
    least_time_ = 0;
    for (std::uint32_t k = 0; k < n; ++k) first_allowed_[k].assign(variants(k).size(), 1);
    for (bool changed = true; changed;) {
      changed = false;
      std::fill(made.begin(), made.end(), std::uint8_t{0});
      least_time_ = 0;
      std::vector<double> least(n, infinite);
      for (std::uint32_t k = 0; k < n; ++k) {
        for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
          if (!first_allowed_[k][o]) continue;
          const level_problem::variant& v = variants(k)[o];
          std::int64_t bytes = v.peak_bytes;
          bool there = true;
          for (const std::uint32_t x : v.reads) {
            bytes += level_.bytes[x];
            there = there && made[x];
          }
          if (!there || bytes > budget_) {
            first_allowed_[k][o] = 0;
            changed = true;
            continue;
          }
          least[k] = std::min(least[k], v.time);
          for (const std::uint32_t x : v.writes) made[x] = 1;
        }
        if (least[k] == infinite) {
          impossible_ = true;
          return;
        }
        least_time_ += least[k];
      }
      slack_ = options_.at_most * (1 + 1e-9) - least_time_;
      for (std::uint32_t k = 0; k < n; ++k) {
        again_allowed_[k].assign(variants(k).size(), 0);
        for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
          if (!first_allowed_[k][o]) continue;
          again_allowed_[k][o] = level_.runs[k].again && !(variants(k)[o].time > slack_);
          if (!(variants(k)[o].time - least[k] > slack_)) continue;
          first_allowed_[k][o] = 0;
          changed = true;
        }
      }
    }
  }

  /// Bytes to units, and units to numbers of about 1 to 1000 in the model.
  void scale() {
    std::int64_t divisor = 0;
    bool whole = true;
    double longest = 0;
    for (const std::int64_t b : level_.bytes) divisor = std::gcd(divisor, b);
    for (const level_problem::run& r : level_.runs)
      for (const level_problem::variant& v : r.variants) {
        divisor = std::gcd(divisor, v.peak_bytes);
        for (const level_problem::inner_peak& p : v.inner) divisor = std::gcd(divisor, p.bytes);
        whole = whole && v.time == std::floor(v.time);
        longest = std::max(longest, v.time);
      }
    unit_ = std::max<std::int64_t>(divisor, 1);
    const std::int64_t units = std::max<std::int64_t>(options_.units, 1);
    if (budget_ / unit_ > units) {
      const std::int64_t wanted = (budget_ - 1) / units + 1;
      unit_ = (wanted + unit_ - 1) / unit_ * unit_;
    }
    impossible_ = impossible_ || budget_ < 0;
    capacity_units_ = std::max<std::int64_t>(budget_, 0) / unit_;
    weight_ = 1;
    for (std::int64_t c = capacity_units_; c > 1024; c /= 2) weight_ /= 2;
    capacity_ = static_cast<double>(capacity_units_) * weight_;
    if (const double length = least_time_ > 0 ? least_time_ : longest; length > 0 && !(whole && length <= 1e5))
      time_scale_ = 1000 / length;
  }
  [[nodiscard]] std::int64_t units_of(std::int64_t bytes) const { return (bytes + unit_ - 1) / unit_; }
  [[nodiscard]] double size_of(std::int64_t bytes) const { return static_cast<double>(units_of(bytes)) * weight_; }
  [[nodiscard]] double tensor_size(std::uint32_t x) const { return size_of(level_.bytes[x]); }

  /// Which tensors all variants of their writers write, and which of the others are simple; until when a tensor must
  /// stay.
  void find_alternatives() {
    const auto tensors = static_cast<std::uint32_t>(level_.bytes.size());
    common_.assign(tensors, 1);
    simple_.assign(tensors, 0);
    must_stay_.assign(tensors, 0);
    if (impossible_) return;
    for (std::uint32_t k = 0; k < size(); ++k)
      for (const level_problem::variant& v : variants(k))
        for (const std::uint32_t x : v.writes)
          for (std::uint32_t p = 0; p < variants(k).size(); ++p)
            if (allowed(k, p) && !has(variants(k)[p].writes, x)) common_[x] = 0;
    std::vector<std::uint32_t> reader(size(), none);  // of the alternatives of a run
    std::vector<std::uint8_t> tangled(size(), 0);
    for (std::uint32_t k = 0; k < size(); ++k) {
      for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
        if (!allowed(k, o)) continue;
        for (const std::uint32_t x : variants(k)[o].reads) {
          if (common_[x]) continue;
          const std::uint32_t w = writers_.first[x];
          if (level_.runs[k].again || (reader[w] != none && reader[w] != k)) tangled[w] = 1;
          reader[w] = k;
          // Another alternative of the same writer that is read, but not written, together with this one.
          for (const std::uint32_t y : variants(k)[o].reads) {
            if (y == x || common_[y] || writers_.first[y] != w) continue;
            for (std::uint32_t p = 0; p < variants(w).size(); ++p)
              if (allowed(w, p) && has(variants(w)[p].writes, x) != has(variants(w)[p].writes, y)) tangled[w] = 1;
          }
        }
      }
      for (const std::uint32_t x : variants(k).front().reads) {
        bool all = true;
        for (std::uint32_t o = 0; o < variants(k).size(); ++o)
          all = all && (!first_allowed_[k][o] || has(variants(k)[o].reads, x));
        if (all && common_[x] && !level_.runs[writers_.first[x]].again) must_stay_[x] = at(k, k);
      }
    }
    for (const std::uint32_t x : level_.outputs)
      if (common_[x] && !level_.runs[writers_.first[x]].again)
        must_stay_[x] = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint32_t x : level_.outputs)  // it has a reader after all others
      if (!common_[x]) tangled[writers_.first[x]] = 1;
    for (std::uint32_t x = 0; x < tensors; ++x) simple_[x] = writers_.first[x] != none && !tangled[writers_.first[x]];
  }
  [[nodiscard]] bool allowed(std::uint32_t k, std::uint32_t o) const {
    return first_allowed_[k][o] || again_allowed_[k][o];
  }

  [[nodiscard]] std::uint64_t at(std::uint32_t phase, std::uint32_t k) const noexcept {
    return std::uint64_t{phase} * (size() + std::uint64_t{1}) + k;
  }

  /// For each variant the last phase in which it may be of use again, if that is from `first_phase_` on; for each
  /// tensor the last read.
  void find_last_uses() {
    const std::uint32_t n = size();
    last_phase_.assign(n, {});
    last_read_.assign(level_.bytes.size(), 0);
    used_.assign(level_.bytes.size(), 0);
    for (const std::uint32_t x : level_.outputs) {
      used_[x] = 1;
      last_read_[x] = std::numeric_limits<std::uint64_t>::max();
    }
    for (std::uint32_t k = n; k-- > 0;) {
      last_phase_[k].assign(variants(k).size(), 0);
      for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
        const level_problem::variant& v = variants(k)[o];
        std::uint32_t last = 0;
        if (again_allowed_[k][o])
          for (const std::uint32_t x : v.writes)
            if (used_[x])
              last =
                  std::max(last, static_cast<std::uint32_t>(std::min<std::uint64_t>(last_read_[x] / at(1, 0), n - 1)));
        last_phase_[k][o] = last;
        const bool again = again_allowed_[k][o] && last >= first_again(k);
        if (!again && !first_allowed_[k][o]) continue;
        for (const std::uint32_t x : v.reads) {
          used_[x] = 1;
          last_read_[x] = std::max(last_read_[x], at(again ? last : k, k));
        }
      }
    }
  }
  [[nodiscard]] bool of_use_after(std::uint32_t x, std::uint32_t phase, std::uint32_t k) const {
    return used_[x] && last_read_[x] > at(phase, k);
  }
  [[nodiscard]] std::uint32_t first_again(std::uint32_t k) const {
    return std::max({first_phase_, options_.again_from, k + 1});
  }
  [[nodiscard]] bool may_run_again(std::uint32_t phase, std::uint32_t k, std::uint32_t o) const {
    return again_allowed_[k][o] && phase >= first_again(k) && phase <= last_phase_[k][o];
  }

  /// As in `checkmate_model`: with what may run again from some phase on, it is clear what may be of use then; if all
  /// of that fits until then, all of it may be kept, whichever variants are chosen. So the first phase is found from
  /// above.
  void find_first_phase() {
    first_phase_ = size();
    if (impossible_) return;
    for (;;) {
      find_last_uses();
      const std::uint32_t phase = first_that_does_not_fit();
      if (phase >= first_phase_) return;
      first_phase_ = phase;
    }
  }
  [[nodiscard]] std::uint32_t first_that_does_not_fit() const {
    const std::uint32_t n = size();
    const auto counts = [&](std::uint32_t x, std::uint32_t t) { return used_[x] && last_read_[x] >= at(t, 0); };
    for (std::uint32_t t = 0; t < n; ++t) {
      std::int64_t units = 0;
      for (std::uint32_t k = 0; k < t; ++k) {
        std::int64_t most = 0;
        for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
          if (!allowed(k, o)) continue;
          std::int64_t sum = 0;
          for (const std::uint32_t x : variants(k)[o].writes)
            if (writers_.several(x) ? k == writers_.first[x] && (t <= writers_.last[x] || counts(x, t)) : counts(x, t))
              sum += units_of(level_.bytes[x]);
          most = std::max(most, sum);
        }
        units += most;
      }
      std::int64_t after = 0, during = 0;
      for (std::uint32_t o = 0; o < variants(t).size(); ++o) {
        if (!allowed(t, o)) continue;
        const level_problem::variant& v = variants(t)[o];
        during = std::max(during, units_of(most_of(v)));
        std::int64_t sum = 0;
        for (const std::uint32_t x : v.writes)
          if (!writers_.several(x) || t == writers_.first[x])
            sum += used_[x] || writers_.several(x) ? units_of(level_.bytes[x]) : 0;
        after = std::max(after, sum);
        for (const std::uint32_t x : v.reads)
          if (!common_[x] && !simple_[x]) return t;
      }
      if (units + std::max(during, after) > capacity_units_) return t;
      // Alternatives that may be wanted side by side, so that running in several variants may be of use.
      if (t + 1 < n && level_.runs[t].again)
        for (std::uint32_t o = 0; o < variants(t).size(); ++o)
          for (const std::uint32_t x : variants(t)[o].writes)
            if (allowed(t, o) && !common_[x] && !simple_[x] && used_[x]) return t + 1;
    }
    return n;
  }

  // ---- the model
  // -------------------------------------------------------------------------------------------------------

  [[nodiscard]] std::uint32_t cell_at(std::uint32_t phase, std::uint32_t k) const {
    if (phase == k) return first_cell_[k];
    const auto& list = again_cells_[k];
    const auto it = std::lower_bound(list.begin(), list.end(), phase,
                                     [&](std::uint32_t c, std::uint32_t t) { return cells_[c].phase < t; });
    return it != list.end() && cells_[*it].phase == phase ? *it : none;
  }
  [[nodiscard]] const option* chosen(const cell& c, std::span<const double> values) const {
    const option* best = nullptr;
    double most = c.phase == c.run ? -infinite : 0.5;  // a first run takes place
    for (const option& o : c.options) {
      if (o.column == none) return &o;
      if (values[o.column] > most) {
        best = &o;
        most = values[o.column];
      }
    }
    return best;
  }

  void build() {
    const std::uint32_t n = size();
    first_cell_.assign(n, none);
    again_cells_.assign(n, {});
    held_.assign(level_.bytes.size(), {});
    early_writers_.assign(level_.bytes.size(), {});
    snapshots_.resize(options_.moments.size());
    for (std::uint32_t t = 0; t < n && !impossible_; ++t) {
      if (t == first_phase_) begin_memory();
      if (t >= first_phase_)
        for (std::uint32_t k = 0; k < t; ++k) add_cell(t, k);
      for (std::size_t i = 0; i < options_.moments.size(); ++i)
        if (options_.moments[i] == t && t >= first_phase_) snapshots_[i] = held_;
      add_cell(t, t);
    }
    if (!impossible_)
      for (const std::uint32_t x : level_.outputs) {
        if (first_phase_ < n) {
          row(1, {{held_[x], 1}}, 1);
        } else if (!common_[x]) {
          for (const value& v : early_writers_[x]) add(v, 1);
          close(1, infinite);
        }
      }
    say_if_impossible();
  }

  /// Variants that may be chosen in a cell, without those that another one replaces.
  void choose_options(cell& c) {
    const auto& all = variants(c.run);
    const bool first = c.phase == c.run, tight = c.phase >= first_phase_;
    c.option_of.assign(all.size(), none);
    std::vector<std::vector<std::uint32_t>> useful(all.size());
    std::vector<std::uint32_t> there;
    for (std::uint32_t o = 0; o < all.size(); ++o) {
      if (first ? !first_allowed_[c.run][o] : !may_run_again(c.phase, c.run, o)) continue;
      for (const std::uint32_t x : all[o].writes)
        if (of_use_after(x, c.phase, c.run)) useful[o].push_back(x);
      if (!first && useful[o].empty()) continue;
      double needed = constant_memory_ + size_of(all[o].peak_bytes);
      bool possible = true;
      for (const std::uint32_t x : all[o].reads) {
        possible = possible && (tight ? !held_[x].is(0) : !early_writers_[x].empty());
        if (!held_[x].is(1)) needed += tensor_size(x);
      }
      if (possible && (!tight || needed <= capacity_)) there.push_back(o);
    }
    // Ends at what nothing replaces, for "replaces" is an order.
    const auto replaces = [&](std::uint32_t p, std::uint32_t o) {
      const level_problem::variant &a = all[p], &b = all[o];
      if (a.time > b.time || !within(a.reads, b.reads) || !within(useful[o], useful[p])) return false;
      if (tight && (a.peak_bytes > b.peak_bytes || !(a.inner.empty() || same_inner(a, b)))) return false;
      const bool equal = a.time == b.time && a.reads == b.reads && useful[o] == useful[p] &&
                         (!tight || (a.peak_bytes == b.peak_bytes && (b.inner.empty() || same_inner(a, b))));
      return !equal || p < o;
    };
    std::vector<std::uint32_t> instead(all.size());
    for (const std::uint32_t o : there) {
      instead[o] = o;
      for (const std::uint32_t p : there)
        if (p != o && replaces(p, instead[o])) instead[o] = p;
    }
    for (const std::uint32_t o : there)
      if (instead[o] == o) {
        c.option_of[o] = static_cast<std::uint32_t>(c.options.size());
        c.options.push_back({o, none});
      }
    for (const std::uint32_t o : there) {
      std::uint32_t p = o;
      while (instead[p] != p) p = instead[p];
      c.option_of[o] = c.option_of[p];
    }
  }
  [[nodiscard]] static bool same_inner(const level_problem::variant& a, const level_problem::variant& b) {
    if (a.inner.size() != b.inner.size()) return false;
    for (std::size_t i = 0; i < a.inner.size(); ++i)
      if (a.inner[i].bytes != b.inner[i].bytes || a.inner[i].gone != b.inner[i].gone) return false;
    return true;
  }

  /// What may be there when the first phase begins.
  void begin_memory() {
    memory_ = {model_.add_column(0, 0, capacity_), 0};
    start_memory_ = memory_.column;
    start_cell_ = cells_.size();
    for (std::uint32_t x = 0; x < level_.bytes.size(); ++x) {
      if (writers_.first[x] == none || writers_.first[x] >= first_phase_) continue;
      if (writers_.several(x) && writers_.last[x] >= first_phase_) {
        hold(x, one());
        continue;
      }
      if (!used_[x] || last_read_[x] < at(first_phase_, 0) || early_writers_[x].empty()) continue;
      if (common_[x] && must_stay_[x] >= at(first_phase_, 0)) {
        hold(x, one());
        continue;
      }
      const value v = fresh();
      bool certain = false;
      for (const value& w : early_writers_[x]) certain = certain || w.is(1);
      if (!certain) {
        add(v, 1);
        for (const value& w : early_writers_[x]) add(w, -1);
        close(-infinite, 0);
      }
      hold(x, v);
      start_.push_back({x, v.column});
    }
    for (std::uint32_t x = 0; x < level_.bytes.size(); ++x) add(held_[x], tensor_size(x));
    add(memory_, -1);
    close(0, 0);
  }
  void hold(std::uint32_t x, const value& v) {
    if (held_[x].is(1)) constant_memory_ -= tensor_size(x);
    if (v.is(1)) constant_memory_ += tensor_size(x);
    held_[x] = v;
  }

  void add_cell(std::uint32_t phase, std::uint32_t k) {
    const bool first = phase == k;
    if (!first && !level_.runs[k].again) return;
    cell c;
    c.phase = phase;
    c.run = k;
    choose_options(c);
    if (c.options.empty()) {
      if (first) impossible_ = true;
      return;
    }
    const auto& all = variants(k);
    std::vector<value> r;
    for (option& o : c.options) {
      if (first && c.options.size() == 1) {
        model_.offset += all[o.variant].time * time_scale_;
        r.push_back(one());
        continue;
      }
      o.column = model_.add_integer(all[o.variant].time * time_scale_, 0, 1);
      ++decisions_;
      r.push_back({o.column, 0});
    }
    if (c.options.size() > 1) {
      for (const value& v : r) add(v, 1);
      close(first ? 1 : -infinite, 1);
    }
    const auto index = static_cast<std::uint32_t>(cells_.size());
    if (first)
      first_cell_[k] = index;
    else
      again_cells_[k].push_back(index);
    if (phase < first_phase_)
      link_early(c, r);
    else
      add_tensors(c, r);
    cells_.push_back(std::move(c));
  }

  /// Before memory matters: alternatives that are read have been written.
  void link_early(const cell& c, const std::vector<value>& r) {
    const auto& all = variants(c.run);
    for (const std::uint32_t x : touched(c)) {
      bool read = false;
      for (std::size_t i = 0; i < r.size(); ++i) {
        if (has(all[c.options[i].variant].writes, x)) early_writers_[x].push_back(r[i]);
        read = read || has(all[c.options[i].variant].reads, x);
      }
      if (!read || common_[x]) continue;
      for (std::size_t i = 0; i < r.size(); ++i)
        if (has(all[c.options[i].variant].reads, x)) add(r[i], 1);
      for (const value& w : early_writers_[x]) add(w, -1);
      close(-infinite, 0);
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> touched(const cell& c) const {
    std::vector<std::uint32_t> out;
    for (const option& o : c.options) {
      const level_problem::variant& v = variants(c.run)[o.variant];
      out.insert(out.end(), v.reads.begin(), v.reads.end());
      out.insert(out.end(), v.writes.begin(), v.writes.end());
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  void add_tensors(cell& c, const std::vector<value>& r) {
    const std::uint32_t phase = c.phase, k = c.run;
    const bool first = phase == k;
    const auto& all = variants(k);
    const std::vector<std::uint32_t> tensors = touched(c);
    std::vector<value> before(tensors.size()), after(tensors.size());
    std::vector<value> readers, makers;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::uint32_t x = tensors[i];
      before[i] = held_[x];
      readers.clear();
      makers.clear();
      for (std::size_t j = 0; j < r.size(); ++j) {
        if (has(all[c.options[j].variant].reads, x)) readers.push_back(r[j]);
        if (has(all[c.options[j].variant].writes, x)) makers.push_back(r[j]);
      }
      if (first && readers.size() == r.size()) {
        row(1, {{before[i], 1}}, 1);
      } else if (!readers.empty() && !before[i].is(1)) {
        add(before[i], 1);
        for (const value& v : readers) add(v, -1);
        close(0, infinite);
      }
      if (writers_.several(x) && !makers.empty() && k != writers_.last[x]) {
        after[i] = one();
      } else if (of_use_after(x, phase, k)) {
        const bool certain = first && makers.size() == r.size();
        after[i] = common_[x] && must_stay_[x] > at(phase, k) ? one() : fresh();
        if (!certain && after[i].column != none) {
          add(after[i], 1);
          add(before[i], -1);
          for (const value& v : makers) add(v, -1);
          close(-infinite, 0);
        }
      }
      if (after[i].column != none) c.parts.push_back({x, after[i].column});
    }
    const auto place = [&](std::uint32_t x) {
      return static_cast<std::size_t>(std::lower_bound(tensors.begin(), tensors.end(), x) - tensors.begin());
    };
    if (!first) {  // no run in vain, by sets of what is of use
      std::vector<std::vector<std::uint32_t>> useful(r.size());
      for (std::size_t j = 0; j < r.size(); ++j)
        for (const std::uint32_t x : all[c.options[j].variant].writes)
          if (of_use_after(x, phase, k)) useful[j].push_back(x);
      for (std::size_t j = 0; j < r.size(); ++j) {
        if (std::find(useful.begin(), useful.begin() + static_cast<std::ptrdiff_t>(j), useful[j]) !=
            useful.begin() + static_cast<std::ptrdiff_t>(j))
          continue;
        for (std::size_t i = j; i < r.size(); ++i)
          if (useful[i] == useful[j]) add(r[i], 1);
        for (const std::uint32_t x : useful[j]) add(after[place(x)], -1);
        close(-infinite, 0);
      }
    }
    // While it runs.
    add(memory_, 1);
    for (std::size_t j = 0; j < r.size(); ++j) add(r[j], size_of(all[c.options[j].variant].peak_bytes));
    close(-infinite, capacity_);
    // What it lets go of, before - after, is gone half-way.
    for (std::size_t j = 0; j < r.size(); ++j)
      for (const level_problem::inner_peak& p : all[c.options[j].variant].inner) {
        add(memory_, 1);
        add(r[j], size_of(p.bytes));
        for (const std::uint32_t x : p.gone) {
          add(after[place(x)], tensor_size(x));
          add(before[place(x)], -tensor_size(x));
        }
        close(-infinite, capacity_);
      }
    // Afterwards.
    bool moves = false;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const bool same = before[i].column == after[i].column && before[i].constant == after[i].constant;
      if (same || tensor_size(tensors[i]) == 0) continue;
      moves = true;
      add(after[i], tensor_size(tensors[i]));
      add(before[i], -tensor_size(tensors[i]));
    }
    if (moves) {
      const value now{model_.add_column(0, 0, capacity_), 0};
      add(memory_, 1);
      add(now, -1);
      close(0, 0);
      memory_ = now;
      c.memory = now.column;
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) hold(tensors[i], after[i]);
  }

  // ---- rows of moments
  // -------------------------------------------------------------------------------------------------

  struct made_later {  // Y
    std::uint32_t column = none, run = 0;
    std::vector<std::uint32_t> variants{};
    std::vector<std::uint32_t> decisions{};  // columns
  };

  void add_moments() {
    if (impossible_) return;
    for (std::size_t i = 0; i < options_.moments.size(); ++i)
      if (!snapshots_[i].empty()) add_moment(options_.moments[i], snapshots_[i]);
  }

  void add_moment(std::uint32_t m, const std::vector<value>& held) {
    const std::size_t begin = made_later_.size();
    // Y of some variants of a run; constant 0 where none of them can run later.
    const auto later = [&](std::uint32_t k, std::vector<std::uint32_t> chosen) -> value {
      for (std::size_t i = begin; i < made_later_.size(); ++i)
        if (made_later_[i].run == k && made_later_[i].variants == chosen) return {made_later_[i].column, 0};
      made_later y{none, k, std::move(chosen), {}};
      for (const std::uint32_t c : again_cells_[k])
        if (cells_[c].phase > m)
          for (const option& o : cells_[c].options)
            if (has(y.variants, o.variant)) y.decisions.push_back(o.column);
      if (!y.decisions.empty()) {
        const value v = fresh();
        y.column = v.column;
        for (const std::uint32_t c : y.decisions) add({c, 0}, 1);
        add(v, -1);
        close(0, infinite);
      }
      made_later_.push_back(std::move(y));
      return {made_later_.back().column, 0};
    };
    const auto writing = [&](std::uint32_t x) {
      std::vector<std::uint32_t> out;
      const std::uint32_t k = writers_.first[x];
      for (std::uint32_t o = 0; o < variants(k).size(); ++o)
        if (has(variants(k)[o].writes, x)) out.push_back(o);
      return out;
    };
    const auto before = [&](std::uint32_t x) { return writers_.last[x] < m; };

    for (std::uint32_t t = m + 1; t < size(); ++t) {
      const cell& c = cells_[first_cell_[t]];
      const auto& all = variants(t);
      std::vector<std::uint32_t> runs;  // with alternatives that are read
      for (const std::uint32_t x : touched(c)) {
        if (!before(x)) continue;
        std::size_t readers = 0;
        for (const option& o : c.options) readers += has(all[o.variant].reads, x);
        if (readers == 0) continue;
        if (!common_[x] && c.options.size() > 1) runs.push_back(writers_.first[x]);
        if (held[x].is(1)) continue;
        const value y = later(writers_.first[x], writing(x));
        add(y, 1);
        add(held[x], 1);
        if (readers == c.options.size()) {
          close(1, infinite);
          continue;
        }
        for (const option& o : c.options)
          if (has(all[o.variant].reads, x)) add({o.column, 0}, -1);
        close(0, infinite);
      }
      std::sort(runs.begin(), runs.end());
      runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
      // Of the alternatives of one run, each variant here wants one at least.
      for (const std::uint32_t k : runs) {
        std::vector<std::uint32_t> wanted, makers, wanting;
        for (std::uint32_t i = 0; i < c.options.size(); ++i) {
          std::uint32_t largest = none;
          for (const std::uint32_t x : all[c.options[i].variant].reads)
            if (writers_.first[x] == k && !common_[x] && (largest == none || level_.bytes[x] > level_.bytes[largest]))
              largest = x;
          if (largest == none) continue;
          wanted.push_back(largest);
          wanting.push_back(i);
          const std::vector<std::uint32_t> w = writing(largest);
          makers.insert(makers.end(), w.begin(), w.end());
        }
        for (auto* list : {&wanted, &makers}) {
          std::sort(list->begin(), list->end());
          list->erase(std::unique(list->begin(), list->end()), list->end());
        }
        if (wanted.size() < 2) continue;
        const value y = later(k, makers);
        add(y, 1);
        for (const std::uint32_t x : wanted) add(held[x], 1);
        for (const std::uint32_t i : wanting) add({c.options[i].column, 0}, -1);
        close(0, infinite);
      }
    }
    for (const std::uint32_t x : level_.outputs)
      if (before(x) && !held[x].is(1)) {
        const value y = later(writers_.first[x], writing(x));
        row(1, {{held[x], 1}, {y, 1}}, infinite);
      }
    // What these read; new ones come at the end.
    for (std::size_t i = begin; i < made_later_.size(); ++i) {
      if (made_later_[i].column == none) continue;
      const value much{made_later_[i].column, 0};
      const std::uint32_t k = made_later_[i].run;
      const std::vector<std::uint32_t> chosen = made_later_[i].variants;
      for (const std::uint32_t x : variants(k)[chosen.front()].reads) {
        bool all = true;
        for (const std::uint32_t o : chosen) all = all && has(variants(k)[o].reads, x);
        if (!all || held[x].is(1)) continue;
        const value y = later(writers_.first[x], writing(x));
        row(0, {{held[x], 1}, {y, 1}, {much, -1}}, infinite);
      }
    }
  }

  // ---- values of what follows from the decisions
  // ----------------------------------------------------------------------

  void fill_in(std::vector<double>& x) const {
    std::vector<std::uint8_t> live(level_.bytes.size(), 0);
    double memory = 0;
    const auto put = [&](std::uint32_t t, bool wanted) {
      if (live[t] == wanted) return;
      live[t] = wanted;
      memory += wanted ? tensor_size(t) : -tensor_size(t);
    };
    const auto begin = [&] {
      for (const auto& [t, column] : start_) x[column] = live[t];
      x[start_memory_] = memory;
    };
    for (const std::uint32_t t : level_.outputs) put(t, true);
    for (std::size_t i = cells_.size(); i-- > 0;) {
      const cell& c = cells_[i];
      for (const part& p : c.parts) x[p.held] = live[p.tensor];
      if (c.memory != none) x[c.memory] = memory;
      if (const option* o = chosen(c, x)) {
        const level_problem::variant& v = variants(c.run)[o->variant];
        for (const std::uint32_t t : v.writes) put(t, c.run != writers_.first[t]);
        for (const std::uint32_t t : v.reads) put(t, true);
      }
      if (start_memory_ != none && i == start_cell_) begin();
    }
    for (const made_later& y : made_later_)
      if (y.column != none)
        for (const std::uint32_t c : y.decisions) x[y.column] = std::max(x[y.column], x[c]);
  }

  level_problem level_;
  level_writers writers_;
  level_model_options options_;
  std::int64_t budget_ = 0;
  std::vector<std::vector<std::uint8_t>> first_allowed_, again_allowed_;  // of a run: its variants
  double least_time_ = 0, slack_ = 0, time_scale_ = 1;
  std::int64_t unit_ = 1, capacity_units_ = 0;
  double weight_ = 1, capacity_ = 0;
  std::vector<std::uint8_t> common_;      // all variants of its writers write it
  std::vector<std::uint8_t> simple_;      // if not common: a simple alternative
  std::vector<std::uint64_t> must_stay_;  // once made, it is there until then
  std::vector<std::vector<std::uint32_t>> last_phase_;
  std::vector<std::uint64_t> last_read_;
  std::vector<std::uint8_t> used_;  // something may read it, or it is an output
  std::uint32_t first_phase_ = 0;

  std::vector<cell> cells_;
  std::vector<std::uint32_t> first_cell_;                // of a run
  std::vector<std::vector<std::uint32_t>> again_cells_;  // of a run, by phase
  std::size_t decisions_ = 0, start_cell_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> start_;  // tensor, column
  std::uint32_t start_memory_ = none;
  std::vector<made_later> made_later_;

  // As far as the construction has come.
  std::vector<value> held_;                        // of a tensor
  std::vector<std::vector<value>> early_writers_;  // of a tensor: the runs before the first phase that write it
  value memory_{};
  double constant_memory_ = 0;  // of what is held for certain
  std::vector<std::vector<value>> snapshots_;
};

struct hierarchical_ilp_options {
  /// Choices to start from; those that are no schedule, or not within the budget, are left.
  std::vector<std::vector<level_problem::choice>> starts{};
  /// The backend starts from the best of them, too. They count in any case, and CBC looks harder for solutions where it
  /// has none: in ten seconds it found as good or better ones without a start that was 2 to 4 % above them.
  bool warm_start = false;
  double good_enough = 0;  ///< stop where the best time is within this of the program's bound, as a part of it
  std::int64_t units = level_model_options{}.units;
  std::uint32_t again_from = 0;          ///< `level_model_options::again_from`
  std::vector<std::uint32_t> moments{};  ///< `level_model_options::moments`
  /// A model of more columns is not begun: its first linear program alone would take minutes.
  double most_columns = 60'000;
  std::uint64_t default_nodes = 100;  ///< of the backend's search, without any limit
  run_control run{};
};

struct level_solution {
  bool found = false;
  std::vector<level_problem::choice> choices{};
  double time = std::numeric_limits<double>::infinity();  ///< of the choices, by `simulate_level`, as all that follows
  std::int64_t peak_bytes = 0;
  /// `optimal`: no schedule of the form (`level_model`, sizes in units) is faster, by more than `good_enough`;
  /// `infeasible`: it has none. By the word of the backend, a hint.
  mip_status status = mip_status::no_solution;
  double lower_bound = 0;  ///< on the time of schedules of the form; by the word of the backend, too
  std::uint64_t nodes = 0;
  std::string message{};  ///< how the program ended, or why it was not begun
};

/// H-ILP (`level_model`) solved by a MIP backend: the fastest choices found for a level within a budget.
///
/// Each of the backend's solutions is decoded, and counts by what `simulate_level` says of it. Without a limit the
/// backend ends after `default_nodes` nodes. Under a work limit, of which nodes are units, the answer is the same every
/// time. Stops as soon as the backend does; the model is built between two looks at the clock, in about 0.02 s for
/// 12,000 columns. Throws `bad_argument` by `require_valid`.
template <mip_backend Backend>
[[nodiscard]] level_solution hierarchical_ilp(const Backend& backend, const level_problem& level, std::int64_t budget,
                                              const hierarchical_ilp_options& options = {}) {
  require_valid(level);
  run_clock clock(options.run);
  level_solution best;
  std::uint64_t wrong = 0;
  const auto take = [&](std::span<const level_problem::choice> choices) {
    if (!simulate_level(level, choices).legal) return false;
    std::vector<level_problem::choice> fewer = without_runs_in_vain(level, choices);
    const level_report report = simulate_level(level, fewer);
    if (!report.legal || report.peak_bytes > budget) return false;
    if (best.found && (best.time < report.time || (best.time == report.time && best.peak_bytes <= report.peak_bytes)))
      return true;
    best.found = true;
    best.choices = std::move(fewer);
    best.time = report.time;
    best.peak_bytes = report.peak_bytes;
    return true;
  };
  for (const auto& start : options.starts) take(start);
  for (const level_problem::run& r : level.runs) {
    double least = std::numeric_limits<double>::infinity();
    for (const level_problem::variant& v : r.variants) least = std::min(least, v.time);
    best.lower_bound += least;
  }
  const auto enough = [&] { return best.found && best.time <= best.lower_bound * (1 + options.good_enough); };
  if (best.found) best.status = mip_status::feasible;
  if (best.found && best.time <= best.lower_bound) {
    best.status = mip_status::optimal;
    best.message = "no program needed: nothing takes less time";
    return best;
  }
  if (enough()) {
    best.message = "no program needed: good enough beside the least time of all runs";
    return best;
  }
  if (clock.should_stop()) {
    best.message = "stopped before the integer program";
    return best;
  }
  const auto too_large = [&](double columns) {
    best.message = "the integer program would have some " + std::to_string(static_cast<std::uint64_t>(columns)) +
                   " columns, more than most_columns";
    return best;
  };
  // The estimate knows nothing of the budget, so it is often far above.
  if (const double estimate = level_model::size_estimate(level); estimate > 20 * options.most_columns)
    return too_large(estimate);
  level_model_options building;
  building.at_most = best.time;
  building.units = options.units;
  building.again_from = options.again_from;
  building.moments = options.moments;
  const level_model program(level, budget, building);
  const mip_model& model = program.model();
  if (const auto columns = static_cast<double>(model.num_columns()); columns > options.most_columns)
    return too_large(columns);

  mip_options solving;
  solving.relative_gap = options.good_enough;
  if (best.found && options.warm_start)
    if (auto values = program.encode(best.choices)) solving.start = std::move(*values);
  solving.run.stop = options.run.stop;
  solving.run.time_limit = clock.left();
  solving.run.work_limit = options.run.work_limit;
  solving.run.seed = options.run.seed;
  solving.run.threads = options.run.threads;
  if (options.run.work_limit == run_control::no_work_limit && options.run.time_limit == std::chrono::nanoseconds::max())
    solving.run.work_limit = options.default_nodes;
  const double floor = best.lower_bound;
  progress news;
  news.solver = "hierarchical_ilp";
  news.stage = "integer program";
  solving.run.on_progress = [&](const progress& of_backend) {
    news.best_objective = best.time;
    news.lower_bound = floor;
    news.done = of_backend.done;
    clock.report(news);
  };
  const auto decode = [&](std::span<const double> values) {
    if (!take(program.decode(values))) ++wrong;
  };
  solving.on_incumbent = [&](std::span<const double> values, double) { decode(values); };
  const mip_result r = backend.solve(model, solving);
  if (r.values.size() == model.num_columns()) decode(r.values);
  best.nodes = r.nodes;
  best.status = r.status;
  std::string outcome(to_string(r.status));
  if (r.status == mip_status::infeasible && best.found) {
    best.status = mip_status::optimal;  // what was there is no slower than the form
    outcome = "nothing faster in the form";
  } else if (best.found && r.status != mip_status::optimal) {
    best.status = mip_status::feasible;
  } else if (!best.found && (r.status == mip_status::optimal || r.status == mip_status::feasible)) {
    best.status = mip_status::failed;
  }
  if (r.status == mip_status::infeasible)
    best.lower_bound = best.time;
  else if (r.bound > -mip_model::infinite)
    best.lower_bound = std::max(floor, std::min(best.time, program.time(r.bound)));
  best.message = std::string(Backend::name) + ": " + std::to_string(program.decisions()) + " decisions, " +
                 std::to_string(model.num_columns()) + " columns, " + std::to_string(model.num_rows()) + " rows, " +
                 std::to_string(r.nodes) + " nodes, " + outcome + (r.message.empty() ? "" : "; " + r.message) +
                 (wrong == 0 ? "" : "; " + std::to_string(wrong) + " solutions were no schedules");
  return best;
}

}  // namespace remat
