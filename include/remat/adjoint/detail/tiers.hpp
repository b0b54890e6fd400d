// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Where the states of a time march are kept, in memory or on a disk, and for which steps.
///
/// The steps of a march with a disk form a tree. Its leaves are stretches of steps whose first state is written to the
/// disk, once; within a leaf all states are kept in memory, by Revolve. Between the leaves the tree is Revolve again,
/// with the slots of the disk: a leaf is run over q times before its own turn, and C(d − 1 + q, q) leaves with d spare
/// slots have the same q. A tree of p leaves writes p states and reads p − 1 of them again, whatever its shape, so the
/// p leaves of least q are best. A leaf may also read its first state k more times in place of keeping it in memory:
/// then it is k + 1 parts, and the last of them is run over q + k times. The slope of Revolve's cost in the number of
/// steps is the repetition number r, so the best lengths fill each part with β(c, R − q) steps, for one threshold R: a
/// closed form for given p and k. The cost is convex in both numbers.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/detail/binomial.hpp"

namespace REMAT_NAMESPACE::detail::adjoint {

/// A memory for `slots` states, and the costs to write and to read one, in units of a step.
struct tier {
  std::uint64_t slots = 0;
  double write = 0, read = 0;
};

/// Where the state before the first step of a range is kept; tier k is k + 1.
enum class home : std::uint8_t { none, memory, disk };

/// Steps from `first` to before `last` that are still to be reversed.
struct range {
  std::uint64_t first = 0, last = 0;
  std::uint64_t spare = 0;   ///< memory slots beside the one for the state before `first`
  std::uint64_t leaves = 0;  ///< leaves of the tree; 0: the range is kept in memory alone
  std::uint64_t reads = 0;   ///< further reads of first states of leaves
  std::uint64_t disk = 0;    ///< slots of the disk beside the one for the state before `first`
  home kept = home::none;
  std::uint64_t index = 0;  ///< the slot of `kept`
  std::uint64_t tier = 0;   ///< the far tier that divides the range
  std::uint64_t far = 0;    ///< its slots beside the one for the state before `first`
  std::uint64_t units = 0;  ///< the range's units of steps; 0: memory and disk divide it
  double cost = 0;          ///< the cost of equal steps, if a far tier left the range to memory and disk

  void keep_in(home to, std::uint64_t slot) noexcept {
    if (kept != to) index = slot;
    kept = to;
  }
};

inline constexpr std::uint64_t many = std::uint64_t{1} << 32;  // more than there are steps

/// C(d − 1 + q, q), the leaves of a full tree with d spare slots that are run over q times, for q = 0, 1, …: the first
/// ones, `leaves` in all.
[[nodiscard]] inline std::vector<std::uint64_t> leaves_by_repetition(std::uint64_t leaves, std::uint64_t d) {
  std::vector<std::uint64_t> out;
  std::uint64_t number = 1;
  for (std::uint64_t q = 0; leaves > 0; ++q) {
    out.push_back(std::min(number, leaves));
    leaves -= out.back();
    number = std::min(many, number * (d + q) / (q + 1));
  }
  return out;
}

/// The parts of leaves that are run over s times for s = 0, 1, …, with `reads` further reads: each leaf with q < s may
/// have one. (The reads of fewest s.)
[[nodiscard]] inline std::vector<std::uint64_t> reads_by_repetition(const std::vector<std::uint64_t>& leaves,
                                                                    std::uint64_t reads) {
  std::vector<std::uint64_t> out{0};
  std::uint64_t open = 0;
  for (std::size_t s = 1; reads > 0; ++s) {
    open += s <= leaves.size() ? leaves[s - 1] : 0;
    out.push_back(std::min(open, reads));
    reads -= out.back();
  }
  return out;
}

[[nodiscard]] inline std::vector<std::uint64_t> sum(std::vector<std::uint64_t> a, const std::vector<std::uint64_t>& b) {
  a.resize(std::max(a.size(), b.size()));
  for (std::size_t s = 0; s < b.size(); ++s) a[s] += b[s];
  return a;
}

/// The lengths of parts: those that are run over s times have from `least(s, R)` to `least(s, R + 1)` steps.
class part_lengths {
 public:
  /// `slots` of memory for the parts of a range of `steps` steps.
  part_lengths(std::uint64_t steps, std::uint64_t slots) : steps_(steps), slots_(slots) {}

  [[nodiscard]] std::uint64_t least(std::uint64_t s, std::uint64_t threshold) {
    if (threshold <= s) return 1;
    const std::uint64_t r = threshold - s - 1;
    while (lengths_.size() <= r && lengths_.back() < steps_)
      lengths_.push_back(lengths_.back() * (slots_ + lengths_.size()) / lengths_.size());
    return lengths_[std::min<std::size_t>(r, lengths_.size() - 1)];
  }
  [[nodiscard]] std::uint64_t least_of_all(const std::vector<std::uint64_t>& parts, std::uint64_t threshold) {
    std::uint64_t total = 0;
    for (std::size_t s = 0; s < parts.size() && total < many; ++s)
      total += std::min(parts[s], many) * std::min(least(s, threshold), many);
    return total;
  }
  /// The least R with which the parts have `steps` steps; it is one more than the repetition number of the longest
  /// part.
  [[nodiscard]] std::uint64_t threshold(const std::vector<std::uint64_t>& parts, std::uint64_t steps) {
    std::uint64_t low = 0, high = 0;
    for (; least_of_all(parts, high + 1) < steps; high = 2 * high + 1) low = high + 1;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (least_of_all(parts, middle + 1) >= steps)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  /// The steps that are run forward for `parts` of `steps` steps together.
  [[nodiscard]] std::uint64_t advances(const std::vector<std::uint64_t>& parts, std::uint64_t steps) {
    const std::uint64_t top = threshold(parts, steps);
    std::uint64_t total = top * (steps - least_of_all(parts, top));
    for (std::size_t s = 0; s < parts.size(); ++s)
      total += parts[s] * (binomial::advances(least(s, top), slots_ - 1) + s * least(s, top));
    return total;
  }

 private:
  std::uint64_t steps_, slots_;
  std::vector<std::uint64_t> lengths_{1};  // [r]: β(slots, r), as far as it was asked for and up to `steps`
};

/// The number from `low` to `high` at which a function is least that is convex but for flat parts and small waves: a
/// bisection that looks a few numbers ahead, and then goes on while one of the next numbers on either side is better.
template <class Function>
[[nodiscard]] std::uint64_t least_of_convex(std::uint64_t low, std::uint64_t high, const Function& f) {
  constexpr std::uint64_t near = 6;
  const std::uint64_t first = low, last = high;
  const auto falls_after = [&](std::uint64_t x) {
    const auto value = f(x);
    for (std::uint64_t next = x + 1; next <= std::min(x + near, last); ++next)
      if (const auto other = f(next); other != value) return other < value;
    return false;
  };
  for (std::uint64_t stride = 1; low + stride < high; stride *= 2)
    if (!falls_after(low + stride)) high = low + stride;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (falls_after(middle))
      low = middle + 1;
    else
      high = middle;
  }
  auto least = f(low);
  for (std::uint64_t before = last + 1; before != low;) {
    before = low;
    for (std::uint64_t x = before - std::min(before - first, near); x <= std::min(before + near, last); ++x)
      if (const auto value = f(x); value < least) {
        least = value;
        low = x;
      }
  }
  return low;
}

/// How steps are kept, and what it costs in units of a step.
struct tiering {
  std::uint64_t leaves = 0, reads = 0;
  double cost = 0;
};

/// The best tree for `steps` steps with `memory` and `disk` slots; `write` and `read` are the costs of one state on the
/// disk. O(R log² steps) time, where R is the largest number of times that a step is run.
[[nodiscard]] inline tiering best_tiering(std::uint64_t steps, std::uint64_t memory, std::uint64_t disk, double write,
                                          double read) {
  tiering best{0, 0, static_cast<double>(binomial::advances(steps, memory - 1))};
  if (disk == 0 || static_cast<double>(steps - 1) + write >= best.cost) return best;
  part_lengths lengths(steps, memory);
  tiering now;
  const auto cost_of_reads = [&](const std::vector<std::uint64_t>& leaves, std::uint64_t reads) {
    return static_cast<double>(lengths.advances(sum(leaves, reads_by_repetition(leaves, reads)), steps)) +
           read * static_cast<double>(reads);
  };
  const auto cost_of_leaves = [&](std::uint64_t p) {
    const std::vector<std::uint64_t> leaves = leaves_by_repetition(p, disk - 1);
    now.leaves = p;
    now.reads = least_of_convex(0, steps - p, [&](std::uint64_t k) { return cost_of_reads(leaves, k); });
    now.cost = cost_of_reads(leaves, now.reads) + (write + read) * static_cast<double>(p) - read;
    return now.cost;
  };
  const std::uint64_t p = least_of_convex(1, disk == 1 ? 1 : steps, cost_of_leaves);
  if (cost_of_leaves(p) < best.cost) best = now;
  return best;
}

/// The best division of steps of different costs among memory and a disk, of all whose kept states are nested: a state
/// that is kept later is later in the march, too.
///
/// Let M(d, c, s, t) be the least cost of steps s … t − 1 whose first state is in memory, with d and c further slots on
/// disk and in memory, and S(d, c, s, t) the same for a first state on the disk. Both are the least over j of the steps
/// s … j − 1, of the rest R(d, c, j, t), and of steps s … j − 1 with the same slots, where S reads its state again. R
/// is 0 for one step, and else the lesser of M(d, c − 1, j, t) and write + S(d − 1, c, j, t). S is at most M(d + 1, c −
/// 1, s, t), too: the state moves into memory. O(steps³ · slots) time and O(steps² · slots) memory, where slots is the
/// number of those in memory, and with a disk that number times twice that of the disk.
class best_splits {
 public:
  [[nodiscard]] static bool is_small(std::uint64_t steps, std::uint64_t memory, std::uint64_t disk) {
    return steps < 512 &&
           steps * steps * steps * std::min(memory, steps) * (2 * std::min(disk, steps) + 1) <= std::uint64_t{1} << 28;
  }
  best_splits() = default;
  /// `cost_before[i]` is the cost of all steps before step i; `disk` has the costs in their unit.
  best_splits(std::span<const double> cost_before, std::uint64_t memory, const tier& disk)
      : memory_(memory),
        disk_(disk.slots),
        sides_(cost_before.size()),
        in_memory_(std::min<std::uint64_t>(memory, sides_)),
        on_disk_(std::min<std::uint64_t>(disk.slots, sides_)) {
    using table = std::vector<double>;
    const std::size_t size = sides_ * sides_;
    left_[0].resize(in_memory_ * (on_disk_ + 1) * size);
    left_[1].resize((in_memory_ + 1) * on_disk_ * size);
    std::vector<table> fewer(on_disk_ + 1, table(size, infinite)), memory_costs = fewer, disk_costs(on_disk_);
    table rest(size);
    std::vector<std::uint8_t> place(size);
    double whole = 0;  // the cost with all slots, state 0 in memory
    for (std::size_t c = 0; c <= in_memory_; ++c, fewer.swap(memory_costs))
      for (std::size_t d = 0; d <= on_disk_; ++d) {
        for (std::size_t j = 1; j < sides_; ++j)
          for (std::size_t t = j + 1; t < sides_; ++t) {
            const std::size_t at = j * sides_ + t;
            const double kept = fewer[d][at], written = d > 0 ? disk.write + disk_costs[d - 1][at] : infinite;
            rest[at] = t == j + 1 ? 0 : std::min(kept, written);
            place[at] = t == j + 1 ? nowhere : kept <= written ? by_memory : by_disk;
          }
        if (c < in_memory_) fill({cost_before, rest, place, 0, nullptr}, at(0, d, c), memory_costs[d]);
        if (c + 1 == in_memory_) whole = memory_costs[d][sides_ - 1];
        if (d == on_disk_) continue;
        disk_costs[d].assign(size, infinite);
        fill({cost_before, rest, place, disk.read, &fewer[d + 1]}, at(1, d, c), disk_costs[d]);
      }
    cost_ = whole;
    if (on_disk_ == 0 || sides_ < 3) return;
    const double written = disk.write + disk_costs[on_disk_ - 1][sides_ - 1];
    begins_on_disk_ = written < cost_;
    cost_ = std::min(cost_, written);
  }

  /// True if there are none.
  [[nodiscard]] bool empty() const noexcept { return sides_ == 0; }
  /// The cost of all steps.
  [[nodiscard]] double cost() const noexcept { return cost_; }
  /// All steps. A range has one leaf if its first state is to be kept on the disk, and none if it is to be kept in
  /// memory.
  [[nodiscard]] range all() const {
    return begins_on_disk_ ? range{0, sides_ - 1, memory_, 1, 0, disk_ - 1}
                           : range{0, sides_ - 1, memory_ - 1, 0, 0, disk_};
  }
  /// Divides a range of two steps or more.
  [[nodiscard]] range split(range& now) const {
    std::uint16_t how = choice(now);
    if (now.leaves > 0 && how == moved) {
      now.leaves = 0;
      --now.spare;
      ++now.disk;
      how = choice(now);
    }
    if (now.leaves > 0)
      now.keep_in(home::disk, disk_ - 1 - now.disk);
    else
      now.keep_in(home::memory, memory_ - 1 - now.spare);
    range right{now.first + how / 4, now.last, now.spare, 0, 0, now.disk};
    if (how % 4 == by_memory) --right.spare;
    if (how % 4 == by_disk) right.leaves = 1, --right.disk;
    now.last = right.first;
    return right;
  }

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  // A choice is 4 · (steps before the next kept state) + where that is kept; `moved`: first into memory.
  static constexpr std::uint8_t nowhere = 0, by_memory = 1, by_disk = 2;
  static constexpr std::uint16_t moved = 3;

  /// The tables from which one layer of the recurrence is computed.
  struct layer {
    std::span<const double> cost_before;
    const std::vector<double>& rest;
    const std::vector<std::uint8_t>& place;
    double read;
    const std::vector<double>* moved_costs;
  };
  void fill(const layer& from, std::uint16_t* choices, std::vector<double>& cost) const {
    for (std::size_t s = sides_ - 1; s-- > 0;) {
      cost[s * sides_ + s + 1] = 0;
      for (std::size_t t = s + 2; t < sides_; ++t) {
        const std::size_t here = s * sides_ + t;
        double least = from.moved_costs != nullptr ? (*from.moved_costs)[here] : infinite;
        std::uint16_t how = moved;
        for (std::size_t j = s + 1; j < t; ++j) {
          const double time =
              from.cost_before[j] - from.cost_before[s] + from.rest[j * sides_ + t] + from.read + cost[s * sides_ + j];
          if (time >= least) continue;
          least = time;
          how = static_cast<std::uint16_t>(4 * (j - s) + from.place[j * sides_ + t]);
        }
        cost[here] = least;
        choices[here] = how;
      }
    }
  }
  [[nodiscard]] std::size_t index(std::size_t kind, std::size_t d, std::size_t c) const {
    return (c * (on_disk_ + 1 - kind) + d) * sides_ * sides_;
  }
  [[nodiscard]] std::uint16_t* at(std::size_t kind, std::size_t d, std::size_t c) {
    return left_[kind].data() + index(kind, d, c);
  }
  [[nodiscard]] std::uint16_t choice(const range& r) const {
    const std::size_t kind = r.leaves > 0 ? 1 : 0;
    const std::size_t d = std::min<std::uint64_t>(r.disk, on_disk_ - kind),
                      c = std::min<std::uint64_t>(r.spare, in_memory_ - 1 + kind);
    return left_[kind][index(kind, d, c) + r.first * sides_ + r.last];
  }

  std::uint64_t memory_ = 0, disk_ = 0;
  std::size_t sides_ = 0, in_memory_ = 0, on_disk_ = 0;
  std::array<std::vector<std::uint16_t>, 2>
      left_;  // first state in memory, on disk: [((c · slots + d) · sides + s) · sides + t]
  bool begins_on_disk_ = false;
  double cost_ = 0;
};

/// The rule of `binomial::walker` for steps in tiers. Steps of unequal costs are split at the same fraction of the cost
/// as equal ones.
struct tiered_steps {
  std::uint64_t memory = 1, disk = 0;   ///< slots
  std::span<const double> cost_before;  ///< [i]: the cost of all steps before step i; empty: all cost the same
  const best_splits* best = nullptr;    ///< the best divisions of all ranges, if they are known

  [[nodiscard]] bool splits(const range& r) const noexcept {
    return best != nullptr || r.leaves > 1 || r.reads > 0 || r.spare > 0;
  }
  [[nodiscard]] range keep(range r) const noexcept {
    r.keep_in(home::memory, memory - 1 - r.spare);
    r.leaves = 0;
    return r;
  }
  [[nodiscard]] range split(range& now) const {
    if (best != nullptr) return best->split(now);
    if (now.leaves > 1) return split_tree(now);
    range right{now.first, now.last, memory - 1};
    const std::uint64_t length = now.last - now.first;
    std::uint64_t left = 0;
    if (now.reads > 0) {
      part_lengths lengths(length, memory);
      const std::vector<std::uint64_t> parts = sum({1}, reads_by_repetition({1}, now.reads));
      const std::uint64_t top = lengths.threshold(parts, length);
      left = length -
             std::min(lengths.least(0, top + 1), lengths.least(0, top) + length - lengths.least_of_all(parts, top));
      left = place(now, left, now.reads, 1);
      --now.reads;
      now.keep_in(home::disk, disk - 1 - now.disk);
    } else {
      left = place(now, binomial::first_advance(length, now.spare), 1, 1);
      right.spare = now.spare - 1;
      now = keep(now);
    }
    right.first = now.last = now.first + left;
    return right;
  }

 private:
  [[nodiscard]] range split_tree(range& now) const {
    const std::uint64_t length = now.last - now.first;
    const std::vector<std::uint64_t> leaves = leaves_by_repetition(now.leaves, now.disk);
    const std::vector<std::uint64_t> reads = reads_by_repetition(leaves, now.reads);
    range left = now, right{0, now.last, memory - 1, 0, 0, now.disk - 1};
    left.leaves = left.reads = 0;
    // Steps that are run over q times in all are run over q − 1 times within the left part. The last number of leaves,
    // or of reads, may be less than the full one: then the left part gets its own full number, if there are as many.
    for (std::size_t q = 0; q < leaves.size(); ++q) {
      const std::uint64_t to_left = q == 0 ? 0 : std::min(leaves[q], leaves[q - 1]);
      left.leaves += to_left;
      right.leaves += leaves[q] - to_left;
    }
    const std::vector<std::uint64_t> left_leaves = leaves_by_repetition(left.leaves, left.disk);
    const std::vector<std::uint64_t> right_leaves = leaves_by_repetition(right.leaves, right.disk);
    std::uint64_t open = 0;  // leaves of the left part that may have a read
    for (std::size_t q = 0; q < reads.size(); ++q) {
      const std::uint64_t to_left = std::min(reads[q], open);
      left.reads += to_left;
      right.reads += reads[q] - to_left;
      open += q >= 1 && q - 1 < left_leaves.size() ? left_leaves[q - 1] : 0;
    }
    part_lengths lengths(length, memory);
    const std::uint64_t top = lengths.threshold(sum(leaves, reads), length);
    const auto right_parts = sum(right_leaves, reads_by_repetition(right_leaves, right.reads));
    std::vector<std::uint64_t> left_parts{0};
    for (const std::uint64_t n : sum(left_leaves, reads_by_repetition(left_leaves, left.reads)))
      left_parts.push_back(n);
    const std::uint64_t least = lengths.least_of_all(right_parts, top);
    const std::uint64_t most_left = lengths.least_of_all(left_parts, top + 1);
    const std::uint64_t in_right = std::max(least, length - std::min(length, most_left));
    left.last = right.first =
        now.first + place(now, length - in_right, left.leaves + left.reads, right.leaves + right.reads);
    left.keep_in(home::disk, disk - 1 - now.disk);
    now = left;
    return right;
  }

 protected:
  /// The number of steps before the split that takes the same fraction of the cost as `left` steps take of the range's
  /// steps; at least `least_left`, and at least `least_right` remain.
  [[nodiscard]] std::uint64_t place(const range& r, std::uint64_t left, std::uint64_t least_left,
                                    std::uint64_t least_right) const {
    if (cost_before.empty()) return left;
    const double begin = cost_before[r.first], all = cost_before[r.last] - begin;
    const double target = begin + all * static_cast<double>(left) / static_cast<double>(r.last - r.first);
    const auto from = cost_before.begin() + static_cast<std::ptrdiff_t>(r.first);
    const auto to = cost_before.begin() + static_cast<std::ptrdiff_t>(r.last);
    auto at = std::lower_bound(from, to, target);
    if (at != from && target - *(at - 1) < *at - target) --at;
    return std::clamp(static_cast<std::uint64_t>(at - from), least_left, r.last - r.first - least_right);
  }
};

}  // namespace REMAT_NAMESPACE::detail::adjoint
