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
#include <limits>
#include <utility>
#include <vector>

#include "remat/adjoint/detail/tiers.hpp"

namespace REMAT_NAMESPACE::detail::adjoint {

/// The division of steps among the tiers. The first one is memory.
class far_tiers {
 public:
  /// `tiers` in units of a step; there is at least one. O(units² · slots) time for each tier beyond the second.
  far_tiers(std::uint64_t steps, std::vector<tier> tiers) : steps_(steps), tiers_(std::move(tiers)) {
    tiers_.resize(std::max<std::size_t>(tiers_.size(), 2));
    if (tiers_.size() == 2) return;
    units_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, 256));
    std::vector<double> nearer{0};
    for (std::uint32_t u = 1; u <= units_; ++u) nearer.push_back(near_of(length(u)).cost);
    for (std::size_t k = 2; k < tiers_.size(); ++k) nearer = add_tier(tiers_[k], nearer);
  }

  /// The best division of the nearer tiers for `length` steps.
  [[nodiscard]] tiering near_of(std::uint64_t length) const {
    return best_tiering(length, tiers_[0].slots, tiers_[1].slots, tiers_[1].write, tiers_[1].read);
  }
  /// All steps.
  [[nodiscard]] range all() const { return enter({.last = steps_, .tier = tiers_.size(), .units = units_}); }

  /// Divides a range that a far tier divides (`range::units`).
  [[nodiscard]] range split(range& now, const auto& place) const {
    const choice& how = tables_[now.tier - 2].at(now.far, now.units);
    const std::uint64_t length = now.last - now.first;
    now.keep_in(home_of(now.tier), usable(now.tier) - 1 - now.far);
    range right{.last = now.last, .tier = now.tier, .far = now.far - 1, .units = now.units - how.left};
    const std::uint64_t left = place(now, length * how.left / now.units, how.left, right.units);
    right.first = now.last = now.first + left;
    now.units = how.left;
    if (!how.is_kept) right = enter(right);
    if (tables_[now.tier - 2].at(now.far, now.units).left == 0) now = enter(now);
    return right;
  }

  /// The cost of all steps if they cost the same.
  [[nodiscard]] double cost() const {
    double total = 0;
    const auto in_place = [](const range&, std::uint64_t left, std::uint64_t, std::uint64_t) { return left; };
    for (std::vector<range> open{all()}; !open.empty();) {
      range now = open.back();
      open.pop_back();
      if (now.units == 0) {
        total += now.cost;
        continue;
      }
      const tier& far = tiers_[now.tier];
      if (now.kept != home_of(now.tier)) total += far.write;
      const range right = split(now, in_place);
      total += static_cast<double>(right.first - now.first) + far.read;
      open.push_back(now);
      open.push_back(right);
    }
    return total;
  }

 private:
  /// How many units of a range are before the next kept state; 0: the nearer tiers divide it. The next state is kept in
  /// this tier, or (`is_kept` is false) in a nearer one.
  struct choice {
    std::uint32_t left = 0;
    bool is_kept = false;
  };
  struct table {
    std::size_t stride = 0;
    std::vector<choice> choices;     // [c · stride + u]
    std::vector<std::uint8_t> used;  // [u]: a first state that is nowhere is written to this tier
    [[nodiscard]] const choice& at(std::uint64_t c, std::uint64_t u) const { return choices[c * stride + u]; }
  };

  [[nodiscard]] static home home_of(std::uint64_t tier) { return static_cast<home>(tier + 1); }
  [[nodiscard]] std::uint64_t usable(std::uint64_t tier) const {
    return std::min<std::uint64_t>(tiers_[tier].slots, units_);
  }
  [[nodiscard]] std::uint64_t length(std::uint64_t units) const { return steps_ * units / units_; }

  /// Adds a tier beyond those whose costs are `nearer`, by units. Returns the costs with it.
  std::vector<double> add_tier(const tier& far, std::vector<double> nearer) {
    table& t = tables_.emplace_back();
    t.stride = units_ + std::size_t{1};
    t.used.resize(t.stride);
    const auto spare = std::min<std::uint64_t>(far.slots, units_);
    t.choices.resize(std::max<std::uint64_t>(spare, 1) * t.stride);
    std::vector<double> fewer, cost(t.stride);
    for (std::uint64_t c = 0; c < spare; ++c, fewer = cost)
      for (std::uint32_t u = 1; u <= units_; ++u) {
        cost[u] = nearer[u];
        for (std::uint32_t j = 1; j < u; ++j) {
          const bool is_kept = c > 0 && far.write + fewer[u - j] < nearer[u - j];
          const double time = static_cast<double>(length(j)) + far.read + cost[j] +
                              (is_kept ? far.write + fewer[u - j] : nearer[u - j]);
          if (time >= cost[u]) continue;
          cost[u] = time;
          t.choices[c * t.stride + u] = {j, is_kept};
        }
      }
    for (std::uint32_t u = 1; spare > 0 && u <= units_; ++u) {
      t.used[u] = far.write + cost[u] < nearer[u];
      nearer[u] = std::min(nearer[u], far.write + cost[u]);
    }
    return nearer;
  }

  /// The range for the tiers before `r.tier`.
  [[nodiscard]] range enter(range r) const {
    while (r.units > 0 && r.tier-- > 2)
      if (tables_[r.tier - 2].used[r.units]) {
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

  std::uint64_t steps_;
  std::vector<tier> tiers_;
  std::uint32_t units_ = 0;
  std::vector<table> tables_;
};

/// The rule of `binomial::walker` for steps in any number of tiers.
struct steps_in_tiers : tiered_steps {
  const far_tiers* far = nullptr;  ///< null if no range has units

  [[nodiscard]] static bool splits(const range& r) noexcept { return r.units > 0 || tiered_steps::splits(r); }
  [[nodiscard]] range split(range& now) const {
    if (now.units == 0) return tiered_steps::split(now);
    return far->split(now, [&](const range& r, auto... left) { return place(r, left...); });
  }
};

}  // namespace REMAT_NAMESPACE::detail::adjoint
