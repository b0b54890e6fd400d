// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE::detail {

/// A vector whose memory comes from an allocator of any type of element.
template <class T, class Allocator>
using row_of = std::vector<T, typename std::allocator_traits<Allocator>::template rebind_alloc<T>>;

/// A range of offsets that blocks may use. Alignment is counted from `base`, or from the begin of a part.
struct packing_bank {
  std::int64_t base = 0;  ///< the first offset
  std::int64_t end = 0;   ///< behind the last one
  std::int64_t part = 0;  ///< the bank is divided into parts of this size, which no block crosses; 0: it is not
};

/// The places where each block of a component may lie, whatever the other blocks do: alignments, offsets that are
/// given, and banks, one behind the other in one range of offsets.
///
/// Behind the last bank, every block may lie everywhere: so there is always a packing, and one that ends within the
/// last bank breaks no rule. Without any rule (`empty()`) a block may lie at every offset.
template <class Allocator>
struct packing_rules {
  static constexpr std::int64_t no_place = -1;
  /// Bytes that a block of a given offset takes.
  struct pin {
    std::int64_t from, to;
  };

  row_of<packing_bank, Allocator> banks;      ///< ascending, without gaps
  row_of<std::int64_t, Allocator> alignment;  ///< each block's
  row_of<std::uint64_t, Allocator> allowed;   ///< the banks that each block may use, as bits
  row_of<std::int64_t, Allocator> fixed;      ///< each block's given offset, or `no_place`
  row_of<std::uint32_t, Allocator> begin;     ///< block i keeps clear of pins[begin[i]] … pins[begin[i + 1] − 1]
  row_of<pin, Allocator> pins;

  explicit packing_rules(const Allocator& a = {}) : banks(a), alignment(a), allowed(a), fixed(a), begin(a), pins(a) {}

  [[nodiscard]] bool empty() const noexcept { return alignment.empty(); }
  /// The offset behind the last bank.
  [[nodiscard]] std::int64_t end() const noexcept {
    return empty() ? std::numeric_limits<std::int64_t>::max() : banks.back().end;
  }

  /// The least place of block `i`, of `size`, that is at least `x`.
  [[nodiscard]] std::int64_t next(std::uint32_t i, std::int64_t size, std::int64_t x) const {
    if (fixed[i] >= x) return fixed[i];
    for (std::size_t k = fixed[i] >= 0 ? banks.size() : 0; k < banks.size(); ++k) {
      const packing_bank& b = banks[k];
      if (x > b.end - size || !may_use(i, k)) continue;
      const std::int64_t at = next_within(b, i, size, std::max(x, b.base));
      if (at != no_place) return at;
    }
    return std::max(x, end());
  }

  /// The greatest place of block `i`, of `size`, that is at most `x`; `no_place` if there is none.
  [[nodiscard]] std::int64_t last(std::uint32_t i, std::int64_t size, std::int64_t x) const {
    if (x >= end()) return x;
    if (fixed[i] >= 0) return fixed[i] <= x ? fixed[i] : no_place;
    for (std::size_t k = banks.size(); k-- > 0;) {
      const packing_bank& b = banks[k];
      if (x < b.base || b.end - size < b.base || !may_use(i, k)) continue;
      const std::int64_t at = last_within(b, i, size, std::min(x, b.end - size));
      if (at != no_place) return at;
    }
    return no_place;
  }

 private:
  [[nodiscard]] bool may_use(std::uint32_t i, std::size_t bank) const noexcept {
    return (allowed[i] >> bank & 1U) != 0;
  }

  /// A pin in the way of [at, at + size); null if there is none.
  [[nodiscard]] const pin* in_the_way(std::uint32_t i, std::int64_t at, std::int64_t size) const {
    for (std::uint32_t k = begin[i]; k < begin[i + 1]; ++k)
      if (pins[k].from < at + size && at < pins[k].to) return &pins[k];
    return nullptr;
  }

  [[nodiscard]] std::int64_t next_within(const packing_bank& b, std::uint32_t i, std::int64_t size,
                                         std::int64_t x) const {
    for (;;) {
      std::int64_t start = b.base;
      if (b.part != 0) start += (x - b.base) / b.part * b.part;
      std::int64_t at = start + (x - start + alignment[i] - 1) / alignment[i] * alignment[i];
      if (b.part != 0 && at - start > b.part - size) at = start + b.part;
      if (at > b.end - size) return no_place;
      const pin* p = in_the_way(i, at, size);
      if (p == nullptr) return at;
      x = p->to;
    }
  }

  [[nodiscard]] std::int64_t last_within(const packing_bank& b, std::uint32_t i, std::int64_t size,
                                         std::int64_t x) const {
    while (x >= b.base) {
      std::int64_t start = b.base;
      if (b.part != 0) start += (x - b.base) / b.part * b.part;
      if (b.part != 0) x = std::min(x, start + b.part - size);
      const std::int64_t at = start + (x - start) / alignment[i] * alignment[i];
      const pin* p = in_the_way(i, at, size);
      if (p == nullptr) return at;
      x = p->from - size;
    }
    return no_place;
  }
};

}  // namespace REMAT_NAMESPACE::detail
