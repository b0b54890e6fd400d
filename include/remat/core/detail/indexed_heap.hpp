// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// A queue of numbered items whose keys may change; the item of the least key is at the top, of equal keys the one of
/// the least number. O(log size) time for each change, O(1) for the rest.
class indexed_heap {
 public:
  /// Items are 0 … `items` − 1. None is in the queue.
  void reset(std::size_t items) {
    place_.assign(items, none);
    entries_.clear();
  }

  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] bool contains(std::uint32_t item) const noexcept { return place_[item] != none; }
  /// Precondition: `contains(item)`.
  [[nodiscard]] double key(std::uint32_t item) const noexcept { return entries_[place_[item]].key; }
  /// Precondition: `!empty()`.
  [[nodiscard]] std::uint32_t top() const noexcept { return entries_[0].item; }
  /// Inserts the item, or changes its key.
  void set(std::uint32_t item, double key) {
    std::uint32_t& place = place_[item];
    if (place == none) {
      place = static_cast<std::uint32_t>(entries_.size());
      entries_.push_back({key, item});
      rise(place);
    } else {
      const double before = entries_[place].key;
      entries_[place].key = key;
      if (key < before)
        rise(place);
      else if (key > before)
        sink(place);
    }
  }

  /// Takes the item out, if it is in the queue.
  void remove(std::uint32_t item) {
    const std::uint32_t place = place_[item];
    if (place == none) return;
    place_[item] = none;
    const entry last = entries_.back();
    entries_.pop_back();
    if (place == entries_.size()) return;
    entries_[place] = last;
    place_[last.item] = place;
    rise(place);
    sink(place_[last.item]);
  }

 private:
  struct entry {
    double key;
    std::uint32_t item;
    [[nodiscard]] bool is_before(const entry& other) const noexcept {
      return key != other.key ? key < other.key : item < other.item;
    }
  };
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t ways = 4;  // children of an entry

  void rise(std::size_t i) {
    const entry moving = entries_[i];
    for (; i > 0; i = (i - 1) / ways) {
      const entry& parent = entries_[(i - 1) / ways];
      if (!moving.is_before(parent)) break;
      put(i, parent);
    }
    put(i, moving);
  }

  void sink(std::size_t i) {
    const entry moving = entries_[i];
    for (;;) {
      const std::size_t first = i * ways + 1, end = std::min(first + ways, entries_.size());
      if (first >= end) break;
      std::size_t least = first;
      for (std::size_t c = first + 1; c < end; ++c)
        if (entries_[c].is_before(entries_[least])) least = c;
      if (!entries_[least].is_before(moving)) break;
      put(i, entries_[least]);
      i = least;
    }
    put(i, moving);
  }

  void put(std::size_t i, const entry& e) {
    entries_[i] = e;
    place_[e.item] = static_cast<std::uint32_t>(i);
  }

  std::vector<entry> entries_;
  std::vector<std::uint32_t> place_;  // each item's place in `entries_`
};

}  // namespace REMAT_NAMESPACE::detail
