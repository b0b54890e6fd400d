// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// The inequality Σ factor(j) · x(j) ≤ most over whole items.
struct cover_cut {
  std::vector<std::int64_t> factor;  ///< each item's factor
  std::int64_t most = 0;
};

/// Finds inequalities that hold for every set of whole items that fits: x(j) in {0, 1} and Σ bytes(j) · x(j) ≤ room.
/// Each is the inequality of a minimal cover, lifted one item after the other by exact dynamic programs. \cite
/// balas1975facets \cite gu1998lifted
class cover_cuts {
 public:
  cover_cuts(std::vector<std::int64_t> bytes, std::int64_t room) : bytes_(std::move(bytes)), room_(room) {}

  /// Operations so far.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

  /// Adds to `found` inequalities that x violates by at least `least` of the right side's size.
  void separate(const std::vector<double>& x, double least, std::vector<cover_cut>& found) {
    const std::size_t n = bytes_.size();
    double held = 0;
    bool is_whole = true;
    for (std::size_t j = 0; j < n; ++j) {
      held += x[j] * static_cast<double>(bytes_[j]);
      is_whole = is_whole && (x[j] < 1e-6 || x[j] > 1 - 1e-6);
    }
    if (is_whole || held < 0.5 * static_cast<double>(room_)) return;
    std::vector<std::uint32_t> by_value(n), by_loss(n);
    std::iota(by_value.begin(), by_value.end(), 0U);
    by_loss = by_value;
    std::stable_sort(by_value.begin(), by_value.end(), [&](std::uint32_t a, std::uint32_t b) {
      return x[a] != x[b] ? x[a] > x[b] : bytes_[a] > bytes_[b];
    });
    const auto loss = [&](std::uint32_t j) { return (1 - x[j]) / static_cast<double>(bytes_[j]); };
    std::stable_sort(by_loss.begin(), by_loss.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return loss(a) < loss(b); });
    const std::size_t before = found.size();
    for (const auto* order : {&by_value, &by_loss})
      for (const bool splits : {false, true}) {
        cover_cut cut;
        if (!lift(x, *order, by_value, splits, cut)) continue;
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j) sum += static_cast<double>(cut.factor[j]) * x[j];
        if (sum < static_cast<double>(cut.most) + least * static_cast<double>(std::max<std::int64_t>(cut.most, 1)))
          continue;
        const bool is_new = std::none_of(found.begin() + static_cast<std::ptrdiff_t>(before), found.end(),
                                         [&](const cover_cut& c) { return c.factor == cut.factor; });
        if (is_new) found.push_back(std::move(cut));
      }
  }

 private:
  static constexpr std::int64_t too_heavy = std::numeric_limits<std::int64_t>::max() / 2;
  static constexpr std::size_t most_profit = 4096;

  /// Takes items in `order` until they do not fit, leaves out what is not needed for that, and lifts the others in the
  /// order of `by_value`. If `splits`, items of value 1 are at first fixed there, and lifted back later.
  bool lift(const std::vector<double>& x, const std::vector<std::uint32_t>& order,
            const std::vector<std::uint32_t>& by_value, bool splits, cover_cut& cut) {
    const std::size_t n = bytes_.size();
    std::vector<std::uint32_t> cover;
    std::int64_t sum = 0;
    for (const std::uint32_t j : order) {
      if (sum > room_) break;
      if (bytes_[j] > room_) continue;
      cover.push_back(j);
      sum += bytes_[j];
    }
    if (sum <= room_ || cover.size() > most_profit) return false;
    // Minimal: an item of small value leaves first.
    std::stable_sort(cover.begin(), cover.end(), [&](std::uint32_t a, std::uint32_t b) {
      return x[a] != x[b] ? x[a] < x[b] : bytes_[a] < bytes_[b];
    });
    std::vector<std::uint32_t> minimal;
    for (const std::uint32_t j : cover)
      if (sum - bytes_[j] > room_)
        sum -= bytes_[j];
      else
        minimal.push_back(j);
    std::vector<std::uint8_t> place(n, 0);  // 1: in the cover, 2: fixed at 1
    std::size_t left = minimal.size();
    for (const std::uint32_t j : minimal) place[j] = 1;
    if (splits) {
      for (const std::uint32_t j : minimal)
        if (x[j] > 1 - 1e-6 && left > 2) {
          place[j] = 2;
          --left;
        }
      if (left == minimal.size()) return false;  // the same as without
    }
    std::int64_t capacity = room_;
    cut.factor.assign(n, 0);
    least_bytes_.assign(1, 0);
    for (const std::uint32_t j : minimal) {
      if (place[j] == 2)
        capacity -= bytes_[j];
      else
        add_item(cut, j, 1);
    }
    cut.most = static_cast<std::int64_t>(left) - 1;
    const auto lift_up = [&](std::uint32_t j) {
      // The most profit that fits beside j. All that fits has at most `most`.
      const std::int64_t rest = capacity - bytes_[j];
      std::int64_t profit = rest < 0 ? 0 : most_fitting(rest);
      profit = std::min(profit, cut.most);
      if (cut.most > profit) add_item(cut, j, cut.most - profit);
    };
    for (const std::uint32_t j : by_value)
      if (place[j] == 0 && x[j] > 1e-6) lift_up(j);
    for (const std::uint32_t j : minimal) {
      if (place[j] != 2) continue;
      capacity += bytes_[j];
      const std::int64_t profit = most_fitting(capacity);
      const std::int64_t factor = profit - cut.most;
      if (factor < 0 || static_cast<std::size_t>(profit) >= most_profit) return false;
      cut.most += factor;
      if (factor > 0) add_item(cut, j, factor);
    }
    for (const std::uint32_t j : by_value)
      if (place[j] == 0 && x[j] <= 1e-6) lift_up(j);
    return true;
  }

  /// The most profit of items with factors that fit into `bytes`.
  [[nodiscard]] std::int64_t most_fitting(std::int64_t bytes) const {
    // The table does not fall: more profit is never lighter.
    const auto end = std::upper_bound(least_bytes_.begin(), least_bytes_.end(), bytes);
    return static_cast<std::int64_t>(end - least_bytes_.begin()) - 1;
  }

  /// Enters the item's factor into the table: the fewest bytes of a set of at least each profit.
  void add_item(cover_cut& cut, std::uint32_t j, std::int64_t factor) {
    cut.factor[j] = factor;
    const auto f = static_cast<std::size_t>(factor);
    const std::size_t before = least_bytes_.size();
    const std::size_t after = std::min(before + f, most_profit + 1);
    least_bytes_.resize(after, too_heavy);
    for (std::size_t z = after; z-- > 0;) {
      const std::int64_t without = z < before ? least_bytes_[z] : too_heavy;
      const std::int64_t with = bytes_[j] + (z >= f ? old(z - f) : 0);
      least_bytes_[z] = z == 0 ? 0 : std::min(without, with);
    }
    work_ += after;
  }
  [[nodiscard]] std::int64_t old(std::size_t z) const { return z == 0 ? 0 : least_bytes_[z]; }

  std::vector<std::int64_t> bytes_;
  std::int64_t room_;
  std::vector<std::int64_t> least_bytes_;
  std::uint64_t work_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
