// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Tiers beyond memory and disk, such as a file system that is far away, each slower than the one before.
///
/// Let C be the least cost of steps with the nearer tiers, and D(c, l) that of l steps whose first state is in this
/// tier, with c spare slots. D(c, l) is the least of C(l) and, over j, of j + read + D(c, j) + the rest: C(l − j), or
/// write + D(c − 1, l − j) if c > 0. With this tier the cost is the lesser of C(l) and write + D(slots − 1, l), as in
/// H-Revolve \cite herrmann2020hrevolve. Steps are counted in up to 256 equal units, so up to 256 steps the division is
/// the best one of the recurrence; within the nearer tiers it is always by single steps.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "remat/adjoint/detail/tiers.hpp"

namespace REMAT_NAMESPACE::detail::adjoint {

/// The division of steps among the tiers. The first one is memory.
class far_tiers {
 public:
  far_tiers() = default;
  /// `tiers` in units of a step; there are at least two. O(units² · slots) time for each tier beyond the second.
  far_tiers(std::uint64_t steps, std::vector<tier> tiers) : steps_(steps), tiers_(std::move(tiers)) {
    if (tiers_.size() == 2) return;
    units_ = std::min<std::uint64_t>(steps, 256);
    std::vector<double> nearer(units_ + 1);
    for (std::uint64_t u = 1; u <= units_; ++u) nearer[u] = near_of(length(u)).cost;
    for (std::size_t k = 2; k < tiers_.size(); ++k) add_tier(tiers_[k], nearer);
  }

  /// All steps.
  [[nodiscard]] range all() const {
    range r;
    r.last = steps_;
    r.tier = tiers_.size();
    r.units = units_;
    return enter(r);
  }
  /// The units of a range that are before the next kept state. Precondition of this and `split`: it has units.
  [[nodiscard]] std::uint64_t left_units(const range& r) const { return choice(r) / 2; }
  /// Divides a range before step `middle`.
  [[nodiscard]] range split(range& now, std::uint64_t middle) const {
    const std::uint64_t how = choice(now);
    now.keep_in(home_of(now), usable(now.tier) - 1 - now.far);
    range right;
    right.first = middle;
    right.last = now.last;
    right.tier = now.tier;
    right.far = now.far - 1;
    right.units = now.units - how / 2;
    now.last = middle;
    now.units = how / 2;
    if (how % 2 == 0) right = enter(right);
    if (choice(now) == 0) now = enter(now);
    return right;
  }
  /// The cost of all steps if they cost the same.
  [[nodiscard]] double cost() const {
    double total = 0;
    for (std::vector<range> open{all()}; !open.empty();) {
      range now = open.back();
      open.pop_back();
      if (now.units == 0) {
        total += now.cost;
        continue;
      }
      const tier& far = tiers_[now.tier];
      if (now.kept != home_of(now)) total += far.write;
      const std::uint64_t left = (now.last - now.first) * left_units(now) / now.units;
      const range right = split(now, now.first + left);
      total += static_cast<double>(left) + far.read;
      open.push_back(now);
      open.push_back(right);
    }
    return total;
  }

 private:
  /// How a range is divided: 2 · (units before the next kept state) + (1 if that state is kept in this tier, too); 0:
  /// by the nearer tiers.
  [[nodiscard]] std::uint64_t choice(const range& r) const {
    return choices_[starts_[r.tier - 2] + r.far * (units_ + 1) + r.units];
  }
  /// True if a tier keeps the first state of so many units, which is nowhere.
  [[nodiscard]] bool is_used(std::uint64_t tier, std::uint64_t units) const {
    return choices_[starts_[tier - 2] + usable(tier) * (units_ + 1) + units] != 0;
  }
  [[nodiscard]] static home home_of(const range& r) { return static_cast<home>(r.tier + 1); }
  [[nodiscard]] std::uint64_t usable(std::uint64_t tier) const { return std::min(tiers_[tier].slots, units_); }
  [[nodiscard]] std::uint64_t length(std::uint64_t units) const { return steps_ * units / units_; }
  [[nodiscard]] tiering near_of(std::uint64_t steps) const {
    return best_tiering(steps, tiers_[0].slots, tiers_[1].slots, tiers_[1].write, tiers_[1].read);
  }

  /// Adds a tier to those whose costs are `nearer`, by units.
  void add_tier(const tier& far, std::vector<double>& nearer) {
    const std::uint64_t spare = std::min(far.slots, units_);
    starts_.push_back(choices_.size());
    choices_.resize(choices_.size() + (spare + 1) * nearer.size());
    std::uint64_t* row = choices_.data() + starts_.back();
    std::vector<double> fewer(nearer.size()), cost(nearer.size());
    for (std::uint64_t c = 0; c < spare; ++c, row += nearer.size(), fewer.swap(cost))
      for (std::uint64_t u = 1; u <= units_; ++u) {
        cost[u] = nearer[u];
        for (std::uint64_t j = 1; j < u; ++j) {
          const bool is_kept = c > 0 && far.write + fewer[u - j] < nearer[u - j];
          const double time = static_cast<double>(length(j)) + far.read + cost[j] +
                              (is_kept ? far.write + fewer[u - j] : nearer[u - j]);
          if (time >= cost[u]) continue;
          cost[u] = time;
          row[u] = 2 * j + (is_kept ? 1 : 0);
        }
      }
    for (std::uint64_t u = 1; spare > 0 && u <= units_; ++u)
      if (far.write + fewer[u] < nearer[u]) {
        nearer[u] = far.write + fewer[u];
        row[u] = 1;
      }
  }

  /// The range for the tiers before `r.tier`.
  [[nodiscard]] range enter(range r) const {
    while (r.units > 0 && r.tier-- > 2)
      if (is_used(r.tier, r.units)) {
        r.far = usable(r.tier) - 1;
        return r;
      }
    const tiering near = near_of(r.last - r.first);
    r.units = 0;
    r.spare = tiers_[0].slots - 1;
    r.leaves = near.leaves;
    r.reads = near.reads;
    r.disk = tiers_[1].slots - std::uint64_t{tiers_[1].slots > 0};
    r.cost = near.cost;
    return r;
  }

  std::uint64_t steps_ = 0;
  std::vector<tier> tiers_;
  std::uint64_t units_ = 0;
  std::vector<std::uint64_t> choices_, starts_;
};

/// The rule of `binomial::walker` for steps in any number of tiers.
struct steps_in_tiers : tiered_steps {
  const far_tiers* far = nullptr;  ///< null if no range has units

  [[nodiscard]] bool splits(const range& r) const noexcept { return r.units > 0 || tiered_steps::splits(r); }
  [[nodiscard]] range split(range& now) const {
    if (now.units == 0) return tiered_steps::split(now);
    const std::uint64_t units = far->left_units(now);
    const std::uint64_t left = (now.last - now.first) * units / now.units;
    return far->split(now, now.first + place(now, left, units, now.units - units));
  }
};

}  // namespace REMAT_NAMESPACE::detail::adjoint
