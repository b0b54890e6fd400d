// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// Numbered items with a date each, taken out when their date has passed. The dates are small numbers, and the present
/// only moves on. O(1) time for each change, O(dates) in all for the rest.
class calendar {
 public:
  /// Items are 0 … `items` − 1, and none has a date. Dates are 0 … `dates` − 1.
  void reset(std::size_t items, std::size_t dates) {
    day_.assign(items, none);
    next_.resize(items);
    previous_.resize(items);
    first_.assign(dates + 1, none);
    today_ = 0;
  }

  /// Gives the item a date, or another one. An item whose date is not among the dates has none: it never comes.
  void set(std::uint32_t item, std::uint32_t date) {
    if (date >= past()) return remove(item);
    if (date < today_) date = past();
    if (day_[item] == date) return;
    remove(item);
    day_[item] = date;
    previous_[item] = none;
    next_[item] = first_[date];
    if (first_[date] != none) previous_[first_[date]] = item;
    first_[date] = item;
  }

  /// The item has no date any more.
  void remove(std::uint32_t item) {
    if (day_[item] == none) return;
    (previous_[item] == none ? first_[day_[item]] : next_[previous_[item]]) = next_[item];
    if (next_[item] != none) previous_[next_[item]] = previous_[item];
    day_[item] = none;
  }

  /// Takes out all items with dates before `date`, and appends them to `out`.
  void take_before(std::uint32_t date, std::vector<std::uint32_t>& out) {
    take(past(), out);
    for (; today_ < date && today_ < past(); ++today_) take(today_, out);
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// Stands for all dates before today.
  [[nodiscard]] std::uint32_t past() const noexcept { return static_cast<std::uint32_t>(first_.size() - 1); }

  void take(std::uint32_t date, std::vector<std::uint32_t>& out) {
    for (std::uint32_t item = first_[date]; item != none; item = next_[item]) {
      day_[item] = none;
      out.push_back(item);
    }
    first_[date] = none;
  }

  std::vector<std::uint32_t> day_, next_, previous_;  // each item's date and neighbours; the items of a date are a list
  std::vector<std::uint32_t> first_;                  // the first item of each date's list
  std::uint32_t today_ = 0;                           // lists before are empty
};

}  // namespace REMAT_NAMESPACE::detail
