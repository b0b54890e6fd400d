// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/arena.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "remat/memory/detail/packing_rules.hpp"

namespace REMAT_NAMESPACE::detail {

/// Packs blocks whose size changes with time: buffers of different sizes in place of each other, and buffers whose
/// bytes nobody uses for a while. All parts of a block begin at its first byte. (The engine packs rectangles.)
///
/// Why an order of the blocks is enough: take a plan whose offsets have the least sum, and go through a bank by
/// ascending offset. If a block could go lower past those before it, then past those behind it, too, as they begin
/// above it. So each lies at the lowest place that those before it leave.
template <class Allocator>
class shape_packer {
  template <class T>
  using row = row_of<T, Allocator>;

 public:
  /// Bytes in use during [lower, upper), from the first byte of the block on.
  struct part {
    std::int64_t lower, upper, size;
  };
  struct block {
    std::int64_t lower, upper, size;  // those of all parts together
    std::int64_t alignment, given;
    std::uint64_t banks;
    std::size_t first, last;  // its parts
  };

  static constexpr std::size_t few = 10;     // blocks of which all orders are tried
  static constexpr std::size_t many = 4096;  // blocks beyond which the quadratic time of an order is too long

  /// The rows must outlive the packer.
  shape_packer(const row<block>& blocks, const row<part>& parts, const row<arena_bank>& banks, const Allocator& memory)
      : blocks_(blocks),
        parts_(parts),
        banks_(banks),
        places_(blocks.size(), arena_place{}, memory),
        placed_(memory),
        height_(banks.size(), 0, memory),
        best_height_(memory),
        best_places_(memory) {}

  /// The ends of the banks in the best plan, the last bank first; empty if there is none.
  [[nodiscard]] row<std::int64_t>& height() noexcept { return best_height_; }
  [[nodiscard]] row<arena_place>& places() noexcept { return best_places_; }

  /// Places the blocks one after the other: by size, by area and by lifetime, the largest first, and by begin.
  template <class Clock>
  void pack(Clock& clock) {
    row<std::uint32_t> order(blocks_.size(), 0, placed_.get_allocator());
    for (int by = 0; by < 4; ++by) {
      if (!best_height_.empty() && clock.should_stop()) return;
      const auto key = [&](std::uint32_t i) {
        const block& b = blocks_[i];
        const double life = static_cast<double>(b.upper) - static_cast<double>(b.lower);
        return by == 0   ? static_cast<double>(b.size)
               : by == 1 ? life * static_cast<double>(b.size)
               : by == 2 ? life
                         : -static_cast<double>(b.lower);
      };
      std::iota(order.begin(), order.end(), 0U);
      // `std::stable_sort` would take memory that is not the allocator's.
      std::sort(order.begin(), order.end(), [&](std::uint32_t i, std::uint32_t j) {
        const std::pair a(blocks_[i].given >= 0, key(i)), b(blocks_[j].given >= 0, key(j));
        return a != b ? a > b : i < j;
      });
      clear();
      bool fits = true;
      for (const std::uint32_t i : order) {
        fits = fits && place_anywhere(i);
        if (!fits) break;
        placed_.push_back(i);
      }
      clock.work(blocks_.size() * blocks_.size());
      if (fits) keep();
    }
  }

  /// Tries all orders. `any`: the first plan will do. True if they were all tried: then no plan is better.
  template <class Clock>
  [[nodiscard]] bool search(bool any, std::int64_t enough, Clock& clock) {
    clear();
    any_ = any;
    enough_ = enough;
    return descend(static_cast<std::uint32_t>(banks_.size() - 1), -1, 0, 0, clock);
  }

 private:
  static constexpr std::int64_t none = -1;

  void clear() {
    placed_.clear();
    std::fill(height_.begin(), height_.end(), 0);
  }
  std::int64_t& end_of(std::uint32_t bank) { return height_[banks_.size() - 1 - bank]; }

  /// The bytes of block `i`, from its first one on, that are in use while block `j` is.
  [[nodiscard]] std::int64_t beside(std::uint32_t i, std::uint32_t j) const {
    const block &x = blocks_[i], &y = blocks_[j];
    if (x.lower >= y.upper || y.lower >= x.upper) return 0;
    std::int64_t most = 0;
    for (std::size_t a = x.first; a < x.last; ++a)
      for (std::size_t b = y.first; b < y.last && parts_[a].size > most; ++b)
        if (parts_[a].lower < parts_[b].upper && parts_[b].lower < parts_[a].upper) most = parts_[a].size;
    return most;
  }

  /// The least offset from `x` on where the rules let block `i` lie.
  [[nodiscard]] std::int64_t next(std::uint32_t i, const arena_bank& bank, std::int64_t x) const {
    const block& b = blocks_[i];
    if (b.given >= 0) return b.given >= x ? b.given : none;
    std::int64_t start = x / bank.largest_block * bank.largest_block;
    std::int64_t at = start + (x - start + b.alignment - 1) / b.alignment * b.alignment;
    if (at - start > bank.largest_block - b.size) at = start + bank.largest_block;
    return at > bank.capacity - b.size ? none : at;
  }

  /// The least offset where block `i` meets none of those placed.
  [[nodiscard]] std::int64_t lowest(std::uint32_t i, std::uint32_t bank) const {
    std::int64_t at = next(i, banks_[bank], 0);
    for (bool moved = true; moved && at != none;) {
      moved = false;
      for (const std::uint32_t j : placed_) {
        const arena_place& p = places_[j];
        if (p.bank != bank || at >= p.offset + blocks_[j].size || p.offset >= at + blocks_[i].size) continue;
        const std::int64_t above = beside(j, i);
        if (above == 0 || at >= p.offset + above || p.offset >= at + beside(i, j)) continue;
        at = next(i, banks_[bank], p.offset + above);
        moved = true;
        if (at == none) break;
      }
    }
    return at;
  }

  bool place_anywhere(std::uint32_t i) {
    for (std::uint32_t bank = 0; bank < banks_.size(); ++bank) {
      if ((blocks_[i].banks >> bank & 1U) == 0) continue;
      const std::int64_t at = lowest(i, bank);
      if (at == none) continue;
      places_[i] = {at, bank};
      end_of(bank) = std::max(end_of(bank), at + blocks_[i].size);
      return true;
    }
    return false;
  }

  void keep() {
    if (!best_height_.empty() && height_ >= best_height_) return;
    best_height_ = height_;
    best_places_ = places_;
  }

  [[nodiscard]] bool is_enough() const {
    return !best_height_.empty() && (any_ || (banks_.size() == 1 && best_height_[0] <= enough_));
  }

  /// True if no plan that begins like this one is better, while bank `bank` and those before it may still grow.
  [[nodiscard]] bool is_worse(std::uint32_t bank) const {
    if (best_height_.empty()) return false;
    const std::size_t now = banks_.size() - 1 - bank;
    for (std::size_t k = 0; k <= now; ++k)
      if (height_[k] != best_height_[k]) return height_[k] > best_height_[k];
    return bank == 0;
  }

  /// Places further blocks in bank `bank`, none before block `after` at `low`, and all others in the banks before it.
  template <class Clock>
  bool descend(std::uint32_t bank, std::int64_t low, std::uint32_t after, std::uint64_t done, Clock& clock) {
    if (is_enough() || is_worse(bank)) return true;
    if (placed_.size() == blocks_.size()) {
      keep();
      return true;
    }
    clock.work(1 + placed_.size() * (blocks_.size() - placed_.size()));
    if (clock.should_stop()) return false;
    bool complete = true;
    for (std::uint32_t i = 0; i < blocks_.size() && complete; ++i) {
      if ((done >> i & 1U) != 0 || (blocks_[i].banks >> bank & 1U) == 0) continue;
      const std::int64_t at = lowest(i, bank);
      if (at == none || at < low || (at == low && i < after)) continue;
      const std::int64_t before = end_of(bank);
      places_[i] = {at, bank};
      placed_.push_back(i);
      end_of(bank) = std::max(before, at + blocks_[i].size);
      complete = descend(bank, at, i, done | 1ULL << i, clock);
      end_of(bank) = before;
      placed_.pop_back();
    }
    return complete && (bank == 0 || descend(bank - 1, -1, 0, done, clock));
  }

  const row<block>& blocks_;
  const row<part>& parts_;
  const row<arena_bank>& banks_;
  row<arena_place> places_;
  row<std::uint32_t> placed_;
  row<std::int64_t> height_, best_height_;  // each bank's, the last one first
  row<arena_place> best_places_;
  bool any_ = false;
  std::int64_t enough_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
