// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/arena.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "remat/core/detail/limit_clock.hpp"
#include "remat/core/detail/within_memory.hpp"
#include "remat/memory/detail/arena_check.hpp"
#include "remat/memory/detail/packing.hpp"
#include "remat/memory/detail/shape_packing.hpp"

/// \file
/// Between `arena_planner` and the engine. Aliases become storages, permissions to share become blocks, and banks
/// become ranges of one space of offsets, in which the engine packs the blocks.

namespace REMAT_NAMESPACE::detail {

/// One call of `arena_planner::plan`.
template <class Allocator, class Clock>
class arena_search {
  template <class T>
  using row = row_of<T, Allocator>;

 public:
  arena_search(std::span<const arena_buffer> buffers, const arena_options& options, const Allocator& memory)
      : buffers_(buffers), options_(options), memory_(memory) {}

  /// Plans. The rows get the places, and the sizes of the banks.
  void run(arena_plan& out, row<arena_place>& places, row<std::int64_t>& bank_bytes) {
    Clock clock(std::max<std::int64_t>(0, options_.milliseconds), std::max<std::int64_t>(0, options_.work));
    if (!read(out)) return;
    load_ = least_load();
    choose_sharing(clock);
    out.work = clock.work_done();
    out.load = load_;
    out.lower_bound = out.load;
    is_impossible_ = is_impossible_ || (banks_.size() == 1 && load_ > banks_[0].capacity);
    if (best_.height.empty()) {
      out.status = is_impossible_ ? arena_status::impossible : arena_status::unknown;
      out.reason = is_impossible_     ? arena_reason::no_packing
                   : is_out_of_reach_ ? arena_reason::none_found
                                      : arena_reason::none;
      return;
    }
    places.resize(buffers_.size());
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const std::uint32_t s = root_[i];
      places[i] = best_.places[s];
      places[i].offset += delta_[i];
    }
    bank_bytes.assign(banks_.size(), 0);
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      if (buffers_[i].size > 0)
        bank_bytes[places[i].bank] = std::max(bank_bytes[places[i].bank], places[i].offset + buffers_[i].size);
    for (const std::int64_t b : bank_bytes) out.bytes += b;
    if (banks_.size() == 1) out.lower_bound = std::max(out.lower_bound, is_complete_ ? out.bytes : bound_);
    // The least sum of several ends need not be the least last end.
    const bool is_least = banks_.size() == 1 && out.bytes <= out.lower_bound;
    out.status = is_complete_ || is_least ? arena_status::optimal : arena_status::feasible;
    report_sharing(out, places);
    if (!is_arena_valid(buffers_, std::span<const arena_bank>(banks_), places, memory_)) {
      out.status = arena_status::unknown;
      out.reason = arena_reason::defect;
      return;
    }
    out.places = places;
    out.bank_bytes = bank_bytes;
  }

 private:
  static constexpr std::uint32_t nobody = arena_none;
  static constexpr std::size_t most_choices = 8;  // permissions of which all choices are tried

  /// Bytes that one buffer and its aliases use.
  struct storage {
    std::int64_t lower, upper, size, alignment, given;
    std::uint64_t banks;
    std::uint32_t buffer;  // the first of them
  };
  struct permission {
    std::uint32_t from, to;  // storage `to` may take over the place of storage `from`
  };
  /// A time without gaps in which a storage is in use.
  struct use {
    std::uint32_t storage;
    std::int64_t lower, upper;
  };
  using shapes = shape_packer<Allocator>;
  /// A plan: the end of each bank, the last bank first, and the place of each storage.
  struct answer {
    row<std::int64_t> height;
    row<arena_place> places;
  };

  // ---- What is asked

  bool refuse(arena_plan& out, arena_status status, arena_reason reason, std::size_t at, std::size_t other = 0) {
    out.status = status;
    out.reason = reason;
    out.at = at;
    out.other = other;
    return false;
  }

  /// Validates the input, and makes the storages. False if there is an answer already.
  [[nodiscard]] bool read(arena_plan& out) {
    const auto bad = [&](arena_reason reason, std::size_t at) {
      return refuse(out, arena_status::bad_input, reason, at);
    };
    if (options_.milliseconds < 0) return bad(arena_reason::bad_time_limit, 0);
    if (options_.work < 0) return bad(arena_reason::bad_work_limit, 0);
    banks_.assign(options_.banks.begin(), options_.banks.end());
    if (banks_.empty()) banks_.push_back({});
    if (banks_.size() > 64) return bad(arena_reason::too_many_banks, 64);
    for (std::size_t b = 0; b < banks_.size(); ++b) {
      if (banks_[b].capacity < 0) return bad(arena_reason::bad_bank, b);
      if (banks_[b].largest_block < 1) return bad(arena_reason::bad_block, b);
    }
    for (arena_bank& b : banks_)  // no offset comes near its end
      if (b.largest_block > std::int64_t{1} << 56) b.largest_block = arena_unlimited;
    if (buffers_.size() >= component::begins) return bad(arena_reason::too_many, component::begins);
    const std::uint64_t all = banks_.size() == 64 ? ~0ULL : (1ULL << banks_.size()) - 1;
    constexpr std::int64_t largest = std::int64_t{1} << 52;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const arena_buffer& x = buffers_[i];
      if (x.size < 0) return bad(arena_reason::negative_size, i);
      if (x.lower >= x.upper) return bad(arena_reason::empty_lifetime, i);
      if (x.alignment < 1) return bad(arena_reason::bad_alignment, i);
      if (x.alignment > std::int64_t{1} << 40) return bad(arena_reason::large_alignment, i);
      if ((x.banks & all) == 0) return bad(arena_reason::no_bank, i);
      if (x.offset < -1) return bad(arena_reason::bad_offset, i);
      if (x.offset >= 0 && x.alias_of != nobody) return bad(arena_reason::offset_of_alias, i);
      if (x.offset >= 0 && !std::has_single_bit(x.banks & all)) return bad(arena_reason::offset_in_banks, i);
      if (x.size > largest || x.offset > largest || largest - total < x.size + x.alignment)
        return bad(arena_reason::too_large, i);
      total += x.size + x.alignment;
    }
    if (!read_aliases(out, all)) return false;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const std::uint32_t from = buffers_[i].in_place_of;
      if (from == nobody) continue;
      if (from >= buffers_.size()) return bad(arena_reason::bad_in_place, i);
      if (root_[from] == root_[i]) return bad(arena_reason::in_place_of_itself, i);
      // Only a whole storage takes over the place of another one.
      if (buffers_[from].alias_of != nobody || buffers_[i].alias_of != nobody)
        return bad(arena_reason::in_place_of_alias, i);
      const storage &a = storages_[root_[from]], &b = storages_[root_[i]];
      if (a.size == 0 || b.size == 0 || !alive_together(root_[from], root_[i])) continue;
      // Its target is read after its own last use, or begins after it.
      if (a.upper > b.upper || a.lower > b.lower) return bad(arena_reason::in_place_of_longer, i);
      permissions_.push_back({root_[from], root_[i]});
    }
    return check_given(out);
  }

  /// Makes a storage of each buffer with its aliases.
  [[nodiscard]] bool read_aliases(arena_plan& out, std::uint64_t all) {
    const std::size_t n = buffers_.size();
    root_.assign(n, nobody);
    delta_.assign(n, 0);
    const auto bad = [&](arena_reason reason, std::size_t at) {
      return refuse(out, arena_status::bad_input, reason, at);
    };
    for (std::size_t i = 0; i < n; ++i)
      if (buffers_[i].alias_of == nobody) {
        const arena_buffer& x = buffers_[i];
        root_[i] = static_cast<std::uint32_t>(storages_.size());
        storages_.push_back(
            {x.lower, x.upper, x.size, x.alignment, x.offset, x.banks & all, static_cast<std::uint32_t>(i)});
      }
    row<std::uint32_t> path(memory_);
    std::size_t aliases = 0;
    for (std::size_t i = 0; i < n; ++i) {
      path.clear();
      std::uint32_t k = static_cast<std::uint32_t>(i);
      for (; root_[k] == nobody; k = buffers_[k].alias_of) {
        path.push_back(k);
        if (buffers_[k].alias_of >= n) return bad(arena_reason::bad_alias, k);
        if (path.size() > n) return bad(arena_reason::circular_alias, i);
      }
      for (; !path.empty(); path.pop_back()) {
        const std::uint32_t me = path.back();
        const arena_buffer& x = buffers_[me];
        const arena_buffer& of = buffers_[x.alias_of];
        if (x.alias_offset < 0 || x.alias_offset > of.size - x.size) return bad(arena_reason::alias_outside, me);
        root_[me] = root_[x.alias_of];
        delta_[me] = delta_[x.alias_of] + x.alias_offset;
        storage& s = storages_[root_[me]];
        const std::int64_t alignment = x.size == 0 ? 1 : x.alignment;
        if (delta_[me] % alignment != 0) return bad(arena_reason::misaligned_alias, me);
        ++aliases;
        s.lower = std::min(s.lower, x.lower);
        s.upper = std::max(s.upper, x.upper);
        s.banks &= x.banks;
        if (s.banks == 0) return bad(arena_reason::no_bank, me);
        s.alignment = s.alignment / std::gcd(s.alignment, alignment) * alignment;
        if (s.alignment > std::int64_t{1} << 40) return bad(arena_reason::common_alignment, me);
      }
    }
    if (aliases > 0) read_uses();
    std::int64_t total = 0;
    for (const storage& s : storages_) {
      total += s.size + s.alignment;
      if (total > std::int64_t{1} << 52) return bad(arena_reason::too_large, s.buffer);
    }
    return true;
  }

  /// Finds the times in which storages with aliases are in use. Others are so for all of their lifetime.
  void read_uses() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) uses_.push_back({root_[i], buffers_[i].lower, buffers_[i].upper});
    std::sort(uses_.begin(), uses_.end(), [](const use& a, const use& b) {
      return std::tuple(a.storage, a.lower, a.upper) < std::tuple(b.storage, b.lower, b.upper);
    });
    std::size_t last = 0;
    for (std::size_t k = 1; k < uses_.size(); ++k)
      if (uses_[k].storage == uses_[last].storage && uses_[k].lower <= uses_[last].upper)
        uses_[last].upper = std::max(uses_[last].upper, uses_[k].upper);
      else
        uses_[++last] = uses_[k];
    uses_.resize(last + 1);
    first_use_.assign(storages_.size() + 1, 0);
    for (const use& u : uses_) ++first_use_[u.storage + 1];
    for (std::size_t s = 0; s < storages_.size(); ++s) first_use_[s + 1] += first_use_[s];
  }
  template <class Function>
  void for_each_use(std::uint32_t s, const Function& f) const {
    if (uses_.empty()) return f(storages_[s].lower, storages_[s].upper);
    for (std::size_t k = first_use_[s]; k < first_use_[s + 1]; ++k) f(uses_[k].lower, uses_[k].upper);
  }
  [[nodiscard]] bool has_gaps(std::uint32_t s) const { return !uses_.empty() && first_use_[s + 1] - first_use_[s] > 1; }
  /// True if both storages are in use at one time.
  [[nodiscard]] bool alive_together(std::uint32_t a, std::uint32_t b) const {
    if (storages_[a].lower >= storages_[b].upper || storages_[b].lower >= storages_[a].upper) return false;
    if (!has_gaps(a) && !has_gaps(b)) return true;
    bool together = false;
    for_each_use(a, [&](std::int64_t lower, std::int64_t upper) {
      for_each_use(b, [&](std::int64_t from, std::int64_t to) { together |= lower < to && from < upper; });
    });
    return together;
  }

  /// Says for how long buffers share the bytes of those whose place they took.
  void report_sharing(arena_plan& out, const row<arena_place>& places) const {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const std::uint32_t from = buffers_[i].in_place_of;
      if (from == nobody || places[from] != places[i] || buffers_[i].size == 0 || buffers_[from].size == 0) continue;
      std::int64_t shared = 0;
      for_each_use(root_[from], [&](std::int64_t lower, std::int64_t upper) {
        for_each_use(root_[i], [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t both = std::min(upper, end), since = std::max(lower, begin);
          if (since < both)
            shared = std::max(shared, since < 0 && both > arena_unlimited + since ? arena_unlimited : both - since);
        });
      });
      if (shared <= out.longest_sharing) continue;
      out.longest_sharing = shared;
      out.sharing = static_cast<std::uint32_t>(i);
    }
  }

  /// Looks for given offsets that exclude each other, and for buffers that are too large.
  [[nodiscard]] bool check_given(arena_plan& out) {
    const auto impossible = [&](arena_reason reason, std::size_t at, std::size_t other = 0) {
      return refuse(out, arena_status::impossible, reason, at, other);
    };
    row<const storage*> given(memory_);
    for (storage& s : storages_) {
      if (s.size == 0) continue;
      for (std::size_t b = 0; b < banks_.size(); ++b)
        if (s.size > std::min(banks_[b].capacity, banks_[b].largest_block)) s.banks &= ~(1ULL << b);
      if (s.banks == 0) return impossible(arena_reason::larger_than_bank, s.buffer);
      if (s.given < 0) continue;
      const arena_bank& b = banks_[bank_of(s)];
      const std::int64_t within = s.given % b.largest_block;
      if (within % s.alignment != 0)
        return refuse(out, arena_status::bad_input, arena_reason::misaligned_offset, s.buffer);
      if (s.given > b.capacity - s.size || within > b.largest_block - s.size)
        return impossible(arena_reason::outside_bank, s.buffer);
      given.push_back(&s);
    }
    for (std::size_t i = 0; i < given.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const storage &x = *given[j], &y = *given[i];
        if (x.banks != y.banks || !alive_together(number(x), number(y))) continue;
        if (x.given >= y.given + y.size || y.given >= x.given + x.size) continue;
        const auto links = [&](const permission& p) {
          const storage &a = storages_[p.from], &b = storages_[p.to];
          return (&a == &x && &b == &y) || (&a == &y && &b == &x);
        };
        if (x.given != y.given || std::none_of(permissions_.begin(), permissions_.end(), links))
          return impossible(arena_reason::given_overlap, x.buffer, y.buffer);
      }
    return true;
  }

  [[nodiscard]] std::uint32_t number(const storage& s) const {
    return static_cast<std::uint32_t>(&s - storages_.data());
  }
  [[nodiscard]] static std::uint32_t bank_of(const storage& s) {
    return static_cast<std::uint32_t>(std::countr_zero(s.banks));
  }

  /// The bytes of the storages alive at one time, at most, less what they may share: a permission saves at most the
  /// smaller of its two sizes, while both are alive.
  [[nodiscard]] std::int64_t least_load() const {
    row<std::pair<std::int64_t, std::int64_t>> changes(memory_);
    changes.reserve(2 * storages_.size());
    for (const storage& s : storages_)
      for_each_use(number(s), [&](std::int64_t lower, std::int64_t upper) {
        changes.emplace_back(lower, s.size);
        changes.emplace_back(upper, -s.size);
      });
    for (const permission& p : permissions_) {
      const std::int64_t saved = std::min(storages_[p.from].size, storages_[p.to].size);
      for_each_use(p.from, [&](std::int64_t lower, std::int64_t upper) {
        for_each_use(p.to, [&](std::int64_t from, std::int64_t to) {
          if (lower >= to || from >= upper) return;
          changes.emplace_back(std::max(lower, from), -saved);
          changes.emplace_back(std::min(upper, to), saved);
        });
      });
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t now = 0, most = 0;
    for (std::size_t k = 0; k < changes.size(); ++k) {
      now += changes[k].second;
      if (k + 1 == changes.size() || changes[k + 1].first != changes[k].first) most = std::max(most, now);
    }
    return most;
  }

  // ---- Permissions to share

  /// Tries ways to use the permissions, and keeps the best plan.
  void choose_sharing(Clock& clock) {
    const std::size_t n = permissions_.size();
    row<std::uint8_t> used(n, 1, memory_);
    if (n == 0) {
      is_complete_ = solve(used, clock, 1);
      return;
    }
    const bool all = n <= most_choices;
    const std::size_t rounds = all ? std::size_t{1} << n : most_choices;
    bool complete = all, impossible = true;
    random_source random(options_.seed);
    bound_ = arena_unlimited;
    for (std::size_t round = 0; round < rounds; ++round) {
      if (round > 0 && (clock.should_stop() || is_at_load() || is_enough(best_))) {
        complete = complete && is_at_load() && banks_.size() == 1;
        impossible = false;
        bound_ = 0;
        break;
      }
      // All permissions are used first, then one after the other less; many, in part by chance.
      for (std::size_t k = 0; k < n; ++k)
        used[k] = all ? (round >> k & 1U) == 0 : round == 0 || (round > 1 && random.below(4) != 0);
      const std::int64_t before = bound_;
      is_impossible_ = false;
      bound_ = 0;
      complete = solve(used, clock, 1.0 / static_cast<double>(rounds - round)) && complete;
      bound_ = std::min(before, bound_);
      impossible = impossible && is_impossible_;
    }
    if (!all) bound_ = 0;
    is_impossible_ = all && impossible;
    is_complete_ = complete;
  }

  [[nodiscard]] bool is_enough(const answer& a) const { return options_.any_plan && !a.height.empty(); }
  [[nodiscard]] bool is_at_load() const {
    return banks_.size() == 1 && !best_.height.empty() && best_.height[0] <= load_;
  }

  /// Makes blocks of the storages under a choice of the permissions, and packs them with a share of the limits. True if
  /// it is proven that no packing of these blocks is better than `best_`.
  [[nodiscard]] bool solve(const row<std::uint8_t>& used, Clock& clock, double share) {
    leader_.resize(storages_.size());
    std::iota(leader_.begin(), leader_.end(), 0U);
    row<std::uint32_t> next(storages_.size(), nobody, memory_);  // the members of a block, from the leader on
    for (std::size_t k = 0; k < permissions_.size(); ++k)
      if (used[k] != 0) join(permissions_[k], next);
    blocks_.clear();
    members_.assign(storages_.size(), nobody);
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      if (leader_[s] != s || storages_[s].size == 0) continue;
      storage block = storages_[s];
      members_[s] = static_cast<std::uint32_t>(blocks_.size());
      for (std::uint32_t m = next[s]; m != nobody; m = next[m]) {
        block = joined(block, storages_[m]);
        members_[m] = members_[s];
      }
      blocks_.push_back(block);
    }
    Clock part = clock.part(share);
    const bool complete = are_rectangles(next) ? pack_blocks(part) : pack_shapes(next, part);
    clock.work(part.work_done());
    return complete;
  }

  /// True if every block has its size for its whole lifetime.
  [[nodiscard]] bool are_rectangles(const row<std::uint32_t>& next) const {
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      if (leader_[s] != s || storages_[s].size == 0) continue;
      if (has_gaps(s)) return false;
      for (std::uint32_t m = next[s]; m != nobody; m = next[m])
        if (has_gaps(m) || storages_[m].size != storages_[s].size) return false;
    }
    return true;
  }

  /// Packs `blocks_` as they are, and as if each had its size for its whole lifetime. True if it is proven that no
  /// packing is better.
  [[nodiscard]] bool pack_shapes(const row<std::uint32_t>& next, Clock& clock) {
    row<typename shapes::block> blocks(memory_);
    row<typename shapes::part> parts(memory_);
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      if (leader_[s] != s || storages_[s].size == 0) continue;
      const storage& b = blocks_[members_[s]];
      const std::size_t first = parts.size();
      for (std::uint32_t m = s; m != nobody; m = next[m])
        for_each_use(m, [&](std::int64_t lower, std::int64_t upper) {
          parts.push_back({lower, upper, storages_[m].size});
        });
      blocks.push_back({b.lower, b.upper, b.size, b.alignment, b.given, b.banks, first, parts.size()});
    }
    shapes pack(blocks, parts, banks_, memory_);
    bool complete = false;
    if (blocks.size() <= shapes::many) pack.pack(clock);
    if (blocks.size() <= shapes::few && (!options_.any_plan || pack.height().empty()))
      complete = pack.search(options_.any_plan, load_, clock) && (!options_.any_plan || pack.height().empty());
    if (!pack.height().empty()) {
      current_.height = pack.height();
      current_.places = pack.places();
      keep_best();
    }
    if (!complete && !is_at_load() && !is_enough(best_)) {
      static_cast<void>(pack_blocks(clock));  // its proof holds for blocks of one size alone
      is_out_of_reach_ = blocks.size() > shapes::few;
    }
    bound_ = 0;
    is_impossible_ = complete && pack.height().empty();
    return complete;
  }

  [[nodiscard]] static storage joined(storage a, const storage& b) {
    a.lower = std::min(a.lower, b.lower);
    a.upper = std::max(a.upper, b.upper);
    a.size = std::max(a.size, b.size);
    a.alignment = a.alignment / std::gcd(a.alignment, b.alignment) * b.alignment;
    a.given = std::max(a.given, b.given);
    a.banks &= b.banks;
    return a;
  }

  /// Joins the blocks of two storages, if all their members may share bytes.
  void join(const permission& p, row<std::uint32_t>& next) {
    const std::uint32_t a = leader_[p.from], b = leader_[p.to];
    if (a == b) return;
    storage block = storages_[a], other = storages_[b];
    for (std::uint32_t m = next[a]; m != nobody; m = next[m]) block = joined(block, storages_[m]);
    for (std::uint32_t m = next[b]; m != nobody; m = next[m]) other = joined(other, storages_[m]);
    if (block.given >= 0 && other.given >= 0 && block.given != other.given) return;
    block = joined(block, other);
    if (block.banks == 0 || block.alignment > std::int64_t{1} << 40) return;
    if (block.given >= 0) {
      const arena_bank& bank = banks_[bank_of(block)];
      if (block.given % bank.largest_block % block.alignment != 0 || block.given > bank.capacity - block.size ||
          block.given % bank.largest_block > bank.largest_block - block.size)
        return;
    }
    for (std::uint32_t x = a; x != nobody; x = next[x])
      for (std::uint32_t y = b; y != nobody; y = next[y])
        if ((x != p.from || y != p.to) && alive_together(x, y)) return;
    std::uint32_t last = a;
    while (next[last] != nobody) last = next[last];
    next[last] = b;
    for (std::uint32_t m = b; m != nobody; m = next[m]) leader_[m] = a;
  }

  // ---- Banks

  /// Packs `blocks_`. First with sizes rounded up to the common divisor of all alignments, which is quick and mostly
  /// enough; then as they are.
  [[nodiscard]] bool pack_blocks(Clock& clock) {
    current_.height.clear();
    std::int64_t coarse = 0, fine = 0;
    for (const storage& b : blocks_) {
      coarse = std::gcd(coarse, b.alignment);
      fine = std::gcd(fine, b.size);
      if (b.given > 0) {
        coarse = std::gcd(coarse, b.given);
        fine = std::gcd(fine, b.given);
      }
    }
    for (const arena_bank& b : banks_)
      if (b.largest_block != arena_unlimited) {
        coarse = std::gcd(coarse, b.largest_block);
        fine = std::gcd(fine, b.largest_block);
      }
    for (std::int64_t before = 0; before != fine;) {  // each alignment must divide the unit, or be a multiple of it
      before = fine;
      for (const storage& b : blocks_)
        if (fine % b.alignment != 0) fine = std::gcd(fine, b.alignment);
    }
    if (blocks_.empty()) coarse = fine = 1;
    std::int64_t floor = 0;  // proven, in bytes, of one bank: no packing is lower
    bool complete = false;
    if (coarse > fine && coarse % fine == 0) {
      Clock part = clock.part(0.6);
      const bool lowest = pack_in_units(coarse, false, 0, part);
      clock.work(part.work_done());
      if (banks_.size() == 1 && lowest && !current_.height.empty())
        floor = (current_.height[0] + coarse - 1) / coarse * coarse - coarse + 1;
    }
    if (!is_enough(current_)) complete = pack_in_units(fine, true, floor, clock);
    keep_best();
    return complete;
  }

  /// Keeps the places of `current_` if they are better than those before.
  void keep_best() {
    if (current_.height.empty() || (!best_.height.empty() && current_.height >= best_.height)) return;
    best_.height = current_.height;
    best_.places.resize(storages_.size());
    for (std::uint32_t s = 0; s < storages_.size(); ++s)
      best_.places[s] = members_[s] != nobody
                            ? current_.places[members_[s]]
                            : arena_place{std::max<std::int64_t>(0, storages_[s].given), bank_of(storages_[s])};
  }

  /// An alignment in units, which divides the unit or is a multiple of it.
  [[nodiscard]] std::int64_t units(std::int64_t alignment) const noexcept {
    return std::max<std::int64_t>(1, alignment / unit_);
  }

  /// Packs the blocks in units of some bytes, one bank after the other, the last one first. Keeps the packing in
  /// `current_` if it is better than what is there. True if it is proven the best; then, if there is none, none is
  /// possible.
  [[nodiscard]] bool pack_in_units(std::int64_t unit, bool exact, std::int64_t floor, Clock& clock) {
    unit_ = unit;
    struct lifetime {
      std::int64_t lower, upper, size;
    };
    row<lifetime> lives(memory_);
    std::int64_t ample = 0, given_end = 0;  // free bytes for all, with alignments, behind all given offsets
    for (const storage& b : blocks_) {
      lives.push_back({b.lower, b.upper, component::in_units(b.size, unit)});
      ample += lives.back().size + units(b.alignment);
      if (b.given >= 0) given_end = std::max(given_end, b.given / unit + lives.back().size);
    }
    ample += given_end;
    std::uint64_t in_use = 0;
    for (const storage& b : blocks_) in_use |= b.banks;
    row<std::int64_t> length(banks_.size(), 0, memory_);
    for (std::size_t b = 0; b < banks_.size(); ++b) {
      if ((in_use >> b & 1U) == 0) continue;
      const std::int64_t part = banks_[b].largest_block == arena_unlimited ? 0 : banks_[b].largest_block / unit;
      const std::int64_t room = part == 0 ? ample : 2 * ample + 2 * part;
      length[b] = banks_[b].capacity == arena_unlimited ? room : std::min(room, banks_[b].capacity / unit);
    }
    auto components = divide_intervals(lives, 1, memory_);
    if (components.empty()) {
      current_.height.assign(banks_.size(), 0);
      current_.places.clear();
      return true;
    }
    bool proven = true;
    for (std::size_t k = banks_.size(); k-- > 0;) {
      if ((in_use >> k & 1U) == 0 && current_.height.size() == banks_.size()) continue;
      const bool lowest = pack_bank(components, length, k, exact ? floor : 0, exact, clock);
      proven = proven && lowest;
      if (is_enough(current_)) return false;
      if (current_.height.empty()) return lowest && exact;  // `lowest`: proven that nothing fits
      if (exact || banks_.size() > 1)
        length[k] = std::min(
            length[k], component::in_units(std::max<std::int64_t>(1, current_.height[banks_.size() - 1 - k]), unit));
      if (current_.height[banks_.size() - 1 - k] == 0) length[k] = 0;
    }
    return proven;
  }

  /// Makes bank `k` small, while the other banks keep to `length`. True if it is proven the smallest; without a
  /// packing, that there is none.
  template <class Components>
  [[nodiscard]] bool pack_bank(Components& components, const row<std::int64_t>& length, std::size_t k,
                               std::int64_t floor, bool exact, Clock& clock) {
    row<packing_bank> layout(memory_);
    row<std::uint32_t> bank(memory_), position(banks_.size(), 0, memory_);
    std::int64_t end = 0;
    for (std::size_t j = 0; j <= banks_.size(); ++j) {
      const std::size_t b = j == banks_.size() ? k : j;
      if (j == k || (b != k && length[b] == 0)) continue;
      position[b] = static_cast<std::uint32_t>(layout.size());
      bank.push_back(static_cast<std::uint32_t>(b));
      const std::int64_t part = banks_[b].largest_block == arena_unlimited ? 0 : banks_[b].largest_block / unit_;
      layout.push_back({end, end + length[b], part});
      end += length[b];
    }
    const std::int64_t base = layout.back().base;
    bool has_rules = layout.size() > 1 || layout.back().part != 0;
    for (const storage& b : blocks_) has_rules = has_rules || units(b.alignment) != 1 || b.given >= 0;
    std::int64_t least = base;
    for (auto& c : components) {
      c.offset.clear();
      c.bound = c.load;
      if (has_rules) set_rules(c, layout, bank);
      raise_bound(c, base, k);
      if (exact && floor > 0) least = std::max(least, component::in_units(floor, unit_));
      least = std::max(least, c.bound);
      if (!current_.height.empty()) start_from(c, layout, position);
    }
    shared_search all;
    all.seed = options_.seed;
    // No packing of these blocks is better than that of other blocks.
    if (banks_.size() == 1 && !best_.height.empty() && best_.height[0] <= least * unit_) {
      if (exact) bound_ = std::max(bound_, least * unit_);
      return exact;
    }
    // First any packing within the banks, then the lowest.
    all.goal = {end, end, end, packing_goal::no_work_limit};
    pack_components(components, clock, all);
    if (is_any_above(components, end)) {
      if (exact) is_impossible_ = true;
      return true;
    }
    if (highest_component(components).height > end) return false;
    if (!options_.any_plan) {
      all.goal = {least, packing_goal::unlimited, least + least / 50, packing_goal::no_work_limit};
      Clock part = clock.part(1.0 / static_cast<double>(k + 1));
      pack_components(components, part, all);
      clock.work(part.work_done());
    }
    keep(components, layout, bank);
    const auto& top = highest_component(components);
    const bool lowest = top.height <= least || top.is_optimal();
    if (exact && banks_.size() == 1) {
      std::int64_t proven = 0;
      for (const auto& c : components) proven = std::max(proven, c.bound);
      bound_ = std::max(bound_, std::max(proven * unit_, floor));
    }
    return lowest;
  }

  /// The rules of a component's blocks.
  template <class Component>
  void set_rules(Component& c, const row<packing_bank>& layout, const row<std::uint32_t>& bank) {
    auto& r = c.rules;
    r.banks.assign(layout.begin(), layout.end());
    r.alignment.clear();
    r.allowed.clear();
    r.fixed.clear();
    row<std::uint32_t> given(memory_);
    for (std::uint32_t i = 0; i < c.blocks(); ++i) {
      const storage& b = blocks_[c.id[i]];
      std::uint64_t allowed = 0;
      for (std::size_t k = 0; k < bank.size(); ++k)
        if ((b.banks >> bank[k] & 1U) != 0) allowed |= 1ULL << k;
      r.alignment.push_back(units(b.alignment));
      r.allowed.push_back(allowed);
      r.fixed.push_back(-1);
      if (b.given < 0 || allowed == 0) continue;
      r.fixed.back() = layout[static_cast<std::size_t>(std::countr_zero(allowed))].base + b.given / unit_;
      given.push_back(i);
    }
    std::sort(given.begin(), given.end(),
              [&](std::uint32_t x, std::uint32_t y) { return std::pair(r.fixed[x], x) < std::pair(r.fixed[y], y); });
    r.begin.assign(1, 0);
    r.pins.clear();
    for (std::uint32_t i = 0; i < c.blocks(); ++i) {
      if (r.fixed[i] < 0)
        for (const std::uint32_t p : given)
          if (c.meet(i, p)) r.pins.push_back({r.fixed[p], r.fixed[p] + c.size[p]});
      r.begin.push_back(static_cast<std::uint32_t>(r.pins.size()));
    }
  }

  /// Raises a component's bound by what must lie in bank `k`, which begins at `base`, and by alignments.
  template <class Component>
  void raise_bound(Component& c, std::int64_t base, std::size_t k) {
    row<std::int64_t> change(memory_);
    row<std::int64_t> alignments(memory_);
    for (std::uint32_t i = 0; i < c.blocks(); ++i) {
      const storage& b = blocks_[c.id[i]];
      const std::int64_t a = units(b.alignment);
      if (b.banks == 1ULL << k && b.given >= 0) c.bound = std::max(c.bound, base + b.given / unit_ + c.size[i]);
      if (std::find(alignments.begin(), alignments.end(), a) == alignments.end() && alignments.size() < 8)
        alignments.push_back(a);
    }
    for (const std::int64_t a : alignments) {
      std::int64_t slack = 0;  // the uppermost block need not end at a multiple
      change.assign(c.sections + 1, 0);
      for (std::uint32_t i = 0; i < c.blocks(); ++i) {
        const storage& b = blocks_[c.id[i]];
        if (b.banks != 1ULL << k || units(b.alignment) % a != 0) continue;
        const std::int64_t rounded = component::in_units(c.size[i], a) * a;
        slack = std::max(slack, rounded - c.size[i]);
        change[c.first[i]] += rounded;
        change[c.last[i] + 1] -= rounded;
      }
      std::int64_t now = 0;
      for (std::uint32_t s = 0; s < c.sections; ++s) {
        now += change[s];
        c.bound = std::max(c.bound, base + now - slack);
      }
    }
  }

  /// Starts from the packing in `current_`.
  template <class Component>
  void start_from(Component& c, const row<packing_bank>& layout, const row<std::uint32_t>& position) {
    row<std::int64_t> offset(memory_);
    for (const std::size_t id : c.id) {
      const arena_place& p = current_.places[id];
      offset.push_back(layout[position[p.bank]].base + p.offset / unit_);
    }
    c.keep_if_lower(offset);
  }

  /// Keeps the packing of all components if it is better than `current_`.
  template <class Components>
  void keep(const Components& components, const row<packing_bank>& layout, const row<std::uint32_t>& bank) {
    row<arena_place> places(blocks_.size(), arena_place{}, memory_);
    row<std::int64_t> height(banks_.size(), 0, memory_);
    for (const auto& c : components)
      for (std::uint32_t i = 0; i < c.blocks(); ++i) {
        std::size_t b = 0;
        while (c.offset[i] >= layout[b].end) ++b;
        const std::int64_t offset = (c.offset[i] - layout[b].base) * unit_;
        places[c.id[i]] = {offset, bank[b]};
        std::int64_t& top = height[banks_.size() - 1 - bank[b]];
        top = std::max(top, offset + blocks_[c.id[i]].size);
      }
    if (!current_.height.empty() && !(height < current_.height)) return;
    current_.height.swap(height);
    current_.places.swap(places);
  }

  std::span<const arena_buffer> buffers_;
  const arena_options& options_;
  Allocator memory_;
  row<arena_bank> banks_{memory_};
  row<std::uint32_t> root_{memory_};  // buffer → its storage
  row<std::int64_t> delta_{memory_};  // buffer → where it begins in its storage
  row<storage> storages_{memory_};
  row<use> uses_{memory_};               // sorted by storage and time; empty if no storage has an alias
  row<std::size_t> first_use_{memory_};  // storage → its first use
  row<permission> permissions_{memory_};
  row<std::uint32_t> leader_{memory_};   // storage → the first storage of its block
  row<std::uint32_t> members_{memory_};  // storage → its block
  row<storage> blocks_{memory_};
  answer current_{row<std::int64_t>(memory_), row<arena_place>(memory_)};  // the places of `blocks_`
  answer best_{row<std::int64_t>(memory_), row<arena_place>(memory_)};     // the places of the storages
  std::int64_t unit_ = 1;
  std::int64_t load_ = 0;   // the least load of all plans
  std::int64_t bound_ = 0;  // proven, in bytes, of one bank
  bool is_complete_ = false, is_impossible_ = false;
  bool is_out_of_reach_ = false;  // not all orders of blocks whose size changes were tried, as there are too many
};

}  // namespace REMAT_NAMESPACE::detail

namespace REMAT_NAMESPACE {

template <class Clock>
arena_plan arena_planner::plan(std::span<const arena_buffer> buffers, const arena_options& options) {
  using memory_type = detail::scratch_allocator<std::byte>;
  arena_plan out;
  places_ = row<arena_place>(places_.get_allocator());
  bank_bytes_ = row<std::int64_t>(bank_bytes_.get_allocator());
  pool_.reset();
  detail::arena_search<memory_type, Clock> search(buffers, options, memory_type(pool_));
  if (!detail::within_memory([&] { search.run(out, places_, bank_bytes_); })) {
    out = {};
    out.status = arena_status::out_of_memory;
  }
  out.heap_bytes = pool_.heap_bytes();
  return out;
}

inline std::string arena_plan::message() const {
  const auto buffer = [&] { return "buffer " + std::to_string(at) + " "; };
  const auto sizes = [&] {
    return std::to_string(bytes) + " bytes, load " + std::to_string(load) + " bytes" +
           (status == arena_status::optimal ? ", proven the best" : "");
  };
  switch (reason) {
    case arena_reason::none:
      if (status == arena_status::out_of_memory) return "memory ran out";
      return ok() ? sizes() : "a limit came before a plan was found, or a proof that there is none";
    case arena_reason::negative_size:
      return buffer() + "has a size below 0";
    case arena_reason::empty_lifetime:
      return buffer() + "has an empty lifetime: expected lower < upper";
    case arena_reason::bad_alignment:
      return buffer() + "has an alignment below 1";
    case arena_reason::large_alignment:
      return buffer() + "has an alignment above 2^40";
    case arena_reason::common_alignment:
      return buffer() + "brings the common multiple of the alignments of a buffer and its aliases above 2^40";
    case arena_reason::no_bank:
      return buffer() + "may lie in no bank";
    case arena_reason::bad_offset:
      return buffer() + "has a given offset below -1";
    case arena_reason::misaligned_offset:
      return buffer() + "has a given offset that is no multiple of its alignment, or of that of an alias";
    case arena_reason::offset_in_banks:
      return buffer() + "has a given offset, and may lie in several banks: expected one";
    case arena_reason::offset_of_alias:
      return buffer() + "has a given offset, and is an alias: give the offset of the buffer that it views";
    case arena_reason::bad_alias:
      return buffer() + "is an alias of a buffer that does not exist";
    case arena_reason::circular_alias:
      return buffer() + "is an alias of itself, perhaps through others";
    case arena_reason::alias_outside:
      return buffer() + "is an alias, but not within the bytes of its buffer";
    case arena_reason::misaligned_alias:
      return buffer() + "is an alias at an offset that is no multiple of its alignment";
    case arena_reason::bad_in_place:
      return buffer() + "may take the place of a buffer that does not exist";
    case arena_reason::in_place_of_itself:
      return buffer() + "may take the place of itself, or of an alias of its bytes";
    case arena_reason::in_place_of_alias:
      return buffer() + "may take the place of another one, and one of them is an alias";
    case arena_reason::in_place_of_longer:
      return buffer() + "may take the place of a buffer that begins after it, or is in use after its end";
    case arena_reason::bad_bank:
      return "bank " + std::to_string(at) + " has a capacity below 0";
    case arena_reason::bad_block:
      return "bank " + std::to_string(at) + " has a largest block below 1";
    case arena_reason::too_many_banks:
      return "there are more than 64 banks";
    case arena_reason::bad_time_limit:
      return "the limit of time is below 0";
    case arena_reason::bad_work_limit:
      return "the limit of work is below 0";
    case arena_reason::too_large:
      return buffer() + "brings the sizes with their alignments above 2^52 bytes";
    case arena_reason::too_many:
      return "there are 2^31 buffers or more";
    case arena_reason::larger_than_bank:
      return buffer() + "is larger than every bank and block where it may lie";
    case arena_reason::outside_bank:
      return buffer() + "has a given offset from which it does not fit its bank, or its block";
    case arena_reason::given_overlap:
      return buffer() + "and buffer " + std::to_string(other) + " have given offsets, and share bytes at the same time";
    case arena_reason::no_packing:
      return "proven: the buffers do not fit";
    case arena_reason::none_found:
      return "no plan was found, and no proof that there is none: not all ways to lay out buffers whose bytes are used "
             "for a part of the time were tried";
    case arena_reason::defect:
      return "the exact check has refused the plan: an error of the library, please report it";
  }
  return "unknown";
}

}  // namespace REMAT_NAMESPACE
