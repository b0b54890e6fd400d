// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "remat/method/hiremate/impl/level_problem.hpp"
#include "remat/mip/detail/phase_model.hpp"

namespace REMAT_NAMESPACE::detail {

[[nodiscard]] inline bool contains(const std::vector<std::uint32_t>& ascending, std::uint32_t x) {
  return std::binary_search(ascending.begin(), ascending.end(), x);
}

/// The largest of all peaks of a variant.
inline std::int64_t largest_peak(const level_problem::variant& v) {
  std::int64_t most = v.peak_bytes;
  for (const level_problem::inner_peak& p : v.inner) most = std::max(most, p.bytes);
  return most;
}

/// The variants of a level's runs that may be chosen, and the phases in which they may be of use: `level_model` decides
/// this before it writes a row.
class level_phases {
 public:
  /// Finds the variants that may be chosen. O(rounds × size of the level) time; a round takes away one variant at
  /// least. The level must live as long as this object, and be valid.
  level_phases(const level_problem& level, std::int64_t budget, double at_most, std::uint32_t again_from)
      : level_(level),
        writers_(level),
        budget_(budget),
        again_from_(again_from),
        impossible_(budget < 0),
        common_(level.bytes.size(), 1),
        simple_(level.bytes.size(), 0),
        must_stay_(level.bytes.size(), 0),
        uses_(static_cast<std::uint32_t>(level.runs.size()), level.bytes.size()) {
    select_variants(at_most);
    if (impossible_) return;
    find_alternatives();
    find_simple_alternatives();
    find_tensors_that_must_stay();
  }
  /// Finds the first phase. `stop()` ends the search early.
  void find_first(const size_units& sizes, const std::function<bool()>& stop) {
    first_ = size();
    if (impossible_) return;
    const auto find_uses = [&](std::uint32_t first) {
      first_ = first;
      find_last_uses();
    };
    first_ = find_first_phase(
        size(), find_uses, [&] { return first_that_does_not_fit(sizes); }, stop);
  }

  [[nodiscard]] const level_writers& writers() const noexcept { return writers_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(level_.runs.size()); }
  [[nodiscard]] const std::vector<level_problem::variant>& variants(std::uint32_t k) const {
    return level_.runs[k].variants;
  }
  /// True when some run has no variant that fits the budget.
  [[nodiscard]] bool is_impossible() const noexcept { return impossible_; }
  /// The sum over all runs of the least time of a variant that may be chosen.
  [[nodiscard]] double least_time() const noexcept { return least_time_; }

  /// True when variant o may be chosen for the first run of k.
  [[nodiscard]] bool may_run_first(std::uint32_t k, std::uint32_t o) const { return first_allowed_[k][o] != 0; }
  [[nodiscard]] bool may_run_again(std::uint32_t phase, std::uint32_t k, std::uint32_t o) const {
    return again_allowed_[k][o] && phase >= first_again(k) && phase <= last_phase_[k][o];
  }
  /// Nothing runs again before this phase.
  [[nodiscard]] std::uint32_t first() const noexcept { return first_; }
  [[nodiscard]] const phase_uses& uses() const noexcept { return uses_; }

  /// True when all variants of the runs that write x write it. Otherwise x is an *alternative*.
  [[nodiscard]] bool is_common(std::uint32_t x) const { return common_[x] != 0; }
  /// True when x cannot be dropped before this event ends, once it has been made: it is made only once and read by all
  /// variants of a later first run.
  [[nodiscard]] bool must_stay_after(std::uint32_t x, std::uint32_t phase, std::uint32_t k) const {
    return common_[x] && must_stay_[x] > uses_.event(phase, k);
  }
  [[nodiscard]] bool must_stay_from(std::uint32_t x, std::uint32_t phase) const {
    return common_[x] && must_stay_[x] >= uses_.event(phase, 0);
  }

 private:
  bool is_allowed(std::uint32_t k, std::uint32_t o) const { return first_allowed_[k][o] || again_allowed_[k][o]; }
  std::uint32_t first_again(std::uint32_t k) const { return std::max({first_, again_from_, k + 1}); }
  /// Variants may be chosen whose peak fits beside what they read, whose tensors can be made, and whose time beyond the
  /// least of all runs is within the limit.
  void select_variants(double at_most) {
    for (std::uint32_t k = 0; k < size(); ++k) {
      first_allowed_.emplace_back(variants(k).size(), std::uint8_t{1});
      again_allowed_.emplace_back(variants(k).size(), std::uint8_t{0});
    }
    std::vector<double> least;
    for (bool changed = true; changed;) {
      changed = drop_variants_that_do_not_fit(least);
      least_time_ = 0;
      for (const double time : least) least_time_ += time;
      for (const double time : least) impossible_ = impossible_ || time == mip_model::infinite;
      if (impossible_) {
        least_time_ = 0;
        return;
      }
      changed = drop_slow_variants(at_most, least) || changed;
    }
  }
  bool drop_variants_that_do_not_fit(std::vector<double>& least) {
    bool changed = false;
    std::vector<std::uint8_t> is_made(level_.bytes.size(), 0);
    least.assign(size(), mip_model::infinite);
    for (std::uint32_t k = 0; k < size(); ++k)
      for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
        if (!first_allowed_[k][o]) continue;
        const level_problem::variant& v = variants(k)[o];
        std::int64_t bytes = v.peak_bytes;
        bool can_read = true;
        for (const std::uint32_t x : v.reads) {
          bytes += level_.bytes[x];
          can_read = can_read && is_made[x];
        }
        if (!can_read || bytes > budget_) {
          first_allowed_[k][o] = 0;
          changed = true;
          continue;
        }
        least[k] = std::min(least[k], v.time);
        for (const std::uint32_t x : v.writes) is_made[x] = 1;
      }
    return changed;
  }
  bool drop_slow_variants(double at_most, const std::vector<double>& least) {
    bool changed = false;
    const double slack = at_most * (1 + 1e-9) - least_time_;
    for (std::uint32_t k = 0; k < size(); ++k)
      for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
        again_allowed_[k][o] = 0;
        if (!first_allowed_[k][o]) continue;
        again_allowed_[k][o] = level_.runs[k].again && !(variants(k)[o].time > slack);
        if (!(variants(k)[o].time - least[k] > slack)) continue;
        first_allowed_[k][o] = 0;
        changed = true;
      }
    return changed;
  }
  void find_alternatives() {
    for (std::uint32_t k = 0; k < size(); ++k)
      for (const level_problem::variant& v : variants(k))
        for (const std::uint32_t x : v.writes)
          for (std::uint32_t p = 0; p < variants(k).size(); ++p)
            if (is_allowed(k, p) && !contains(variants(k)[p].writes, x)) common_[x] = 0;
  }
  /// The alternatives of a run are simple if one other run alone reads them, which takes place once and finds all that
  /// it reads of them in one variant.
  void find_simple_alternatives() {
    std::vector<std::uint32_t> reader(size(), level_problem::none);  // the run that reads a run's alternatives
    std::vector<std::uint8_t> is_tangled(size(), 0);                 // whether a run's alternatives are not simple
    const auto check_pair = [&](std::uint32_t w, std::uint32_t x, std::uint32_t y) {
      for (std::uint32_t p = 0; p < variants(w).size(); ++p)
        if (is_allowed(w, p) && contains(variants(w)[p].writes, x) != contains(variants(w)[p].writes, y))
          is_tangled[w] = 1;
    };
    for (std::uint32_t k = 0; k < size(); ++k)
      for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
        if (!is_allowed(k, o)) continue;
        const std::vector<std::uint32_t>& reads = variants(k)[o].reads;
        for (const std::uint32_t x : reads) {
          if (common_[x]) continue;
          const std::uint32_t w = writers_.first[x];
          if (level_.runs[k].again || (reader[w] != level_problem::none && reader[w] != k)) is_tangled[w] = 1;
          reader[w] = k;
          for (const std::uint32_t y : reads)
            if (y != x && !common_[y] && writers_.first[y] == w) check_pair(w, x, y);
        }
      }
    for (const std::uint32_t x : level_.outputs)  // the end reads it, too
      if (!common_[x]) is_tangled[writers_.first[x]] = 1;
    for (std::uint32_t x = 0; x < simple_.size(); ++x)
      simple_[x] = writers_.first[x] != level_problem::none && !is_tangled[writers_.first[x]];
  }
  void find_tensors_that_must_stay() {
    const auto is_made_once = [&](std::uint32_t x) { return common_[x] && !level_.runs[writers_.first[x]].again; };
    for (std::uint32_t k = 0; k < size(); ++k)
      for (const std::uint32_t x : variants(k).front().reads) {
        bool all = true;
        for (std::uint32_t o = 0; o < variants(k).size(); ++o)
          all = all && (!first_allowed_[k][o] || contains(variants(k)[o].reads, x));
        if (all && is_made_once(x)) must_stay_[x] = uses_.event(k, k);
      }
    for (const std::uint32_t x : level_.outputs)
      if (is_made_once(x)) must_stay_[x] = std::numeric_limits<std::uint64_t>::max();
  }
  /// Finds the last phase in which another run of each variant may be of use, and the last read of each tensor.
  void find_last_uses() {
    last_phase_.assign(size(), {});
    uses_.clear();
    for (const std::uint32_t x : level_.outputs) uses_.add_output(x);
    for (std::uint32_t k = size(); k-- > 0;) {
      last_phase_[k].assign(variants(k).size(), 0);
      for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
        const level_problem::variant& v = variants(k)[o];
        std::uint32_t& last = last_phase_[k][o];
        if (again_allowed_[k][o])
          for (const std::uint32_t x : v.writes)
            if (uses_.is_used(x)) last = std::max(last, uses_.last_phase(x));
        const bool again = again_allowed_[k][o] && last >= first_again(k);
        if (!again && !first_allowed_[k][o]) continue;
        for (const std::uint32_t x : v.reads) uses_.add_read(x, again ? last : k, k);
      }
    }
  }
  /// The first phase whose run does not fit beside everything that may be kept, whichever variants are chosen; or which
  /// reads, or is followed by, alternatives that are not simple: several of these may be needed side by side.
  std::uint32_t first_that_does_not_fit(const size_units& sizes) const {
    for (std::uint32_t t = 0; t < size(); ++t) {
      std::int64_t units = 0, during = 0, after = 0;
      for (std::uint32_t k = 0; k < t; ++k) units += max_units_kept(k, t, sizes);
      for (std::uint32_t o = 0; o < variants(t).size(); ++o) {
        if (!is_allowed(t, o)) continue;
        const level_problem::variant& v = variants(t)[o];
        for (const std::uint32_t x : v.reads)
          if (!common_[x] && !simple_[x]) return t;
        during = std::max(during, sizes.units(largest_peak(v)));
        std::int64_t sum = 0;
        for (const std::uint32_t x : v.writes)
          if (writers_.several(x) ? t == writers_.first[x] : uses_.is_used(x)) sum += sizes.units(level_.bytes[x]);
        after = std::max(after, sum);
      }
      if (units + std::max(during, after) > sizes.capacity_units()) return t;
      if (t + 1 < size() && level_.runs[t].again)
        for (std::uint32_t o = 0; o < variants(t).size(); ++o)
          for (const std::uint32_t x : variants(t)[o].writes)
            if (is_allowed(t, o) && !common_[x] && !simple_[x] && uses_.is_used(x)) return t + 1;
    }
    return size();
  }
  /// The most units of a tensor of run k that may be kept until a phase, over its variants.
  std::int64_t max_units_kept(std::uint32_t k, std::uint32_t phase, const size_units& sizes) const {
    const auto counts = [&](std::uint32_t x) {
      if (!writers_.several(x)) return uses_.is_used_from(x, phase);
      return k == writers_.first[x] && (phase <= writers_.last[x] || uses_.is_used_from(x, phase));
    };
    std::int64_t most = 0;
    for (std::uint32_t o = 0; o < variants(k).size(); ++o) {
      if (!is_allowed(k, o)) continue;
      std::int64_t sum = 0;
      for (const std::uint32_t x : variants(k)[o].writes)
        if (counts(x)) sum += sizes.units(level_.bytes[x]);
      most = std::max(most, sum);
    }
    return most;
  }

  const level_problem& level_;
  level_writers writers_;
  std::int64_t budget_;
  std::uint32_t again_from_;
  std::vector<std::vector<std::uint8_t>> first_allowed_, again_allowed_;  // whether each run's variants may be chosen
  bool impossible_ = false;
  double least_time_ = 0;
  std::vector<std::uint8_t> common_;
  std::vector<std::uint8_t> simple_;                    // whether an alternative is simple: see `level_model`
  std::vector<std::uint64_t> must_stay_;                // the event until which each tensor must stay
  std::vector<std::vector<std::uint32_t>> last_phase_;  // the last useful phase of each run's variants
  std::uint32_t first_ = 0;
  phase_uses uses_;
};

}  // namespace REMAT_NAMESPACE::detail
