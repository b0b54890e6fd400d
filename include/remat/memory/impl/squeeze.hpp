// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/memory/detail/squeeze.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "remat/core/detail/linkage.hpp"
#include "remat/memory/detail/skyline.hpp"
#include "remat/memory/interval.hpp"

namespace remat::detail::memory_planning {

REMAT_INLINE squeezer::squeezer(const component& c, run_clock& clock, std::uint64_t seed)
    : c_(c), clock_(clock), random_(seed) {
  const std::uint32_t n = c.blocks();
  for (std::uint32_t i = 0; i < n; ++i) {
    covered_ += c.length(i);
    base_.push_back(static_cast<double>(c.size[i]) / static_cast<double>(c.load) * c.length(i));
  }
  head_.resize(n);
  tail_.resize(n);
  level_.resize(c.sections);
}

REMAT_INLINE bool squeezer::operator()(std::int64_t capacity, std::vector<std::int64_t>& offset, push_policy policy,
                                       std::uint64_t work) {
  const std::uint64_t until = clock_.work_done() + std::min(work, run_control::no_work_limit - clock_.work_done());
  offset_ = offset;
  weight_ = base_;
  placed_at_.assign(c_.blocks(), -2 * recent_moves);
  out_.clear();
  for (std::uint32_t i = 0; i < c_.blocks(); ++i)
    if (offset_[i] + c_.size[i] > capacity) {
      offset_[i] = is_out;
      out_.push_back(i);
    }
  for (now_ = 0; !out_.empty(); ++now_) {
    if (clock_.work_done() >= until || clock_.should_stop()) return false;
    ++moves_;
    const std::uint32_t u = choose();
    if (pushes_now(policy) && !push_apart(capacity, u)) return false;
    if (offset_[u] == is_out) put(capacity, u);
    placed_at_[u] = now_;
  }
  offset = offset_;
  return true;
}

REMAT_INLINE bool squeezer::pushes_now(push_policy policy) {
  if (policy != push_policy::sometimes) return policy == push_policy::always;
  return random_.uniform() * static_cast<double>(push_work()) < 4.0 * c_.blocks();
}

/// Takes a block from those that are out: mostly the heaviest, one time in a hundred a random one.
REMAT_INLINE std::uint32_t squeezer::choose() {
  std::size_t k = 0;
  if (random_.below(100) == 0) {
    k = random_.below(out_.size());
  } else {
    for (std::size_t q = 1; q < out_.size(); ++q)
      if (weight_[out_[q]] > weight_[out_[k]]) k = q;
  }
  const std::uint32_t u = out_[k];
  out_[k] = out_.back();
  out_.pop_back();
  return u;
}

/// Stacks block `i` on its sections, and returns the level where it lies.
REMAT_INLINE std::int64_t squeezer::stack(std::uint32_t i) {
  std::int64_t* const begin = level_.data() + c_.first[i];
  const std::size_t count = c_.length(i);
  std::int64_t four[4] = {0, 0, 0, 0};  // four maxima that do not depend on each other, for speed
  std::size_t k = 0;
  for (; k + 4 <= count; k += 4)
    for (std::size_t j = 0; j < 4; ++j) four[j] = std::max(four[j], begin[k + j]);
  for (; k < count; ++k) four[0] = std::max(four[0], begin[k]);
  const std::int64_t at = std::max(std::max(four[0], four[1]), std::max(four[2], four[3]));
  std::fill_n(begin, count, at + c_.size[i]);
  return at;
}

/// Fills `head_` with the offset of each packed block if all sink, and `tail_` with its distance from the top if all
/// rise. False if the clock says to stop.
REMAT_INLINE bool squeezer::stack_all() {
  constexpr std::uint64_t stride = std::uint64_t{1} << 20;
  std::uint64_t since_poll = 0;
  const auto stack_into = [&](std::vector<std::int64_t>& at, std::uint32_t i) {
    since_poll += c_.length(i);
    if (since_poll >= stride) {
      since_poll = 0;
      if (clock_.should_stop()) return false;
    }
    at[i] = stack(i);
    return true;
  };
  std::fill(level_.begin(), level_.end(), 0);
  for (std::size_t k = 0; k < order_.size(); ++k)
    if (!stack_into(head_, order_[k].second)) return false;
  std::fill(level_.begin(), level_.end(), 0);
  for (std::size_t k = order_.size(); k-- > 0;)
    if (!stack_into(tail_, order_[k].second)) return false;
  return true;
}

/// Pushes the packed blocks apart, and puts block `u` into the gap if it fits. False if the clock says to stop.
REMAT_INLINE bool squeezer::push_apart(std::int64_t capacity, std::uint32_t u) {
  clock_.work(push_work());
  order_.clear();
  for (std::uint32_t i = 0; i < c_.blocks(); ++i)
    if (offset_[i] != is_out) order_.push_back({offset_[i], i});
  std::sort(order_.begin(), order_.end());
  if (!stack_all()) return false;
  above_.assign(1, 0);
  for (std::size_t k = order_.size(); k-- > 0;) {
    const std::uint32_t i = order_[k].second;
    if (c_.meet(i, u)) above_.push_back(std::max(above_.back(), tail_[i] + c_.size[i]));
  }
  std::size_t left = above_.size() - 1, split = order_.size();
  std::int64_t sunk = 0, widest = -1, at = 0;
  for (std::size_t k = 0; k <= order_.size(); ++k) {
    const bool end = k == order_.size();
    if (!end && !c_.meet(order_[k].second, u)) continue;
    if (capacity - sunk - above_[left] > widest) {
      widest = capacity - sunk - above_[left];
      split = k;
      at = sunk;
    }
    if (end) break;
    sunk = std::max(sunk, head_[order_[k].second] + c_.size[order_[k].second]);
    --left;
  }
  for (std::size_t k = 0; k < order_.size(); ++k) {
    const std::uint32_t i = order_[k].second;
    offset_[i] = k < split ? head_[i] : capacity - tail_[i] - c_.size[i];
  }
  if (widest >= c_.size[u]) offset_[u] = at;
  return true;
}

/// Puts block `u` where the packed blocks in its way weigh least, and takes these out.
REMAT_INLINE void squeezer::put(std::int64_t capacity, std::uint32_t u) {
  const std::int64_t size = c_.size[u];
  met_.clear();
  bottoms_.clear();
  tops_.clear();
  // In registers: the compiler cannot know that the vectors that grow here are not these.
  const auto *const first = c_.first.data(), *const last = c_.last.data();
  const auto *const sizes = c_.size.data(), *const offset = offset_.data();
  const auto blocks = c_.blocks();
  const auto begin = first[u], end = last[u];
  for (std::uint32_t j = 0; j < blocks && first[j] <= end; ++j) {
    const std::int64_t bottom = offset[j];
    if (last[j] < begin || bottom == is_out) continue;
    const double weight = now_ - placed_at_[j] < recent_moves ? 4 * weight_[j] : weight_[j];
    met_.push_back(j);
    bottoms_.emplace_back(bottom, weight);
    tops_.emplace_back(bottom + sizes[j], weight);
  }
  collect_places(capacity, u);
  const std::int64_t place = cheapest_place(size);
  for (const std::uint32_t j : met_) {
    if (offset_[j] >= place + size || offset_[j] + c_.size[j] <= place) continue;
    offset_[j] = is_out;
    out_.push_back(j);
    weight_[j] += base_[j];
  }
  offset_[u] = place;
  clock_.work(c_.blocks() / 2 + 8 * bottoms_.size());
}

/// Sorts `bottoms_` and `tops_`, and collects the offsets that put block `u` right above or right below another block,
/// or at the bottom or the top of the arena.
REMAT_INLINE void squeezer::collect_places(std::int64_t capacity, std::uint32_t u) {
  const std::int64_t highest = capacity - c_.size[u];
  std::sort(bottoms_.begin(), bottoms_.end());
  std::sort(tops_.begin(), tops_.end());
  places_.assign(1, 0);
  for (std::size_t b = 0, t = 0;;) {
    const std::int64_t below_next = b < bottoms_.size() ? bottoms_[b].first - c_.size[u] : highest;
    const std::int64_t above_next = t < tops_.size() ? tops_[t].first : highest;
    const std::int64_t place = std::min(below_next, above_next);
    if (place > places_.back()) places_.push_back(place);
    if (place >= highest) break;
    if (below_next <= above_next) ++b;
    if (above_next <= below_next) ++t;
  }
}

/// The one of `places_` where the blocks that overlap [place, place + size) weigh least; of equal ones a random one.
REMAT_INLINE std::int64_t squeezer::cheapest_place(std::int64_t size) {
  std::size_t b = 0, t = 0;
  double in_reach = 0, least = std::numeric_limits<double>::infinity();
  std::int64_t best = 0;
  std::uint64_t ties = 0;
  for (const std::int64_t place : places_) {
    while (b < bottoms_.size() && bottoms_[b].first < place + size) in_reach += bottoms_[b++].second;
    while (t < tops_.size() && tops_[t].first <= place) in_reach -= tops_[t++].second;
    if (in_reach < least - 1e-9) {
      least = in_reach;
      best = place;
      ties = 1;
    } else if (in_reach < least + 1e-9 && random_.below(++ties) == 0) {
      best = place;
    }
  }
  return best;
}

/// The small and the large blocks of a component, each divided into components of their own. Their `id` is the block.
struct size_split {
  std::vector<component> small, large;
  std::int64_t strip = 0;  // the height of the small ones' packing
};

/// Packs each part on a skyline, and returns the height of the highest.
inline std::int64_t pack_on_skyline(std::vector<component>& parts) {
  std::int64_t height = 0;
  for (component& part : parts) {
    std::vector<std::int64_t> offset = skyline_packer(part)(ranks(part, preference::lifetime));
    part.keep_if_lower(offset);
    height = std::max(height, part.height);
  }
  return height;
}

/// Splits the blocks at the largest size, of load / 128, load / 256, …, whose strip is at most `most_strip` high. False
/// if the clock says to stop.
inline bool split_by_size(const component& c, std::int64_t most_strip, run_clock& clock, size_split& out) {
  for (std::int64_t least = c.load / 128;; least /= 2) {
    if (clock.should_stop()) return false;
    std::array<std::vector<interval>, 2> by_size;  // small, large; the others' size is 0 in each
    for (std::vector<interval>& some : by_size) some.resize(c.blocks());
    for (std::uint32_t i = 0; i < c.blocks(); ++i)
      for (std::size_t k = 0; k < 2; ++k)
        by_size[k][i] = {c.first[i], std::int64_t{c.last[i]} + 1, (c.size[i] >= least) == (k == 1) ? c.size[i] : 0};
    out.small = divide(by_size[0], 1);
    out.strip = pack_on_skyline(out.small);
    clock.work(32 * static_cast<std::uint64_t>(c.blocks()));
    if (out.strip > most_strip) continue;
    out.large = divide(by_size[1], 1);
    return true;
  }
}

REMAT_INLINE bool repack(component& c, std::int64_t capacity, push_policy policy, std::uint64_t work, run_clock& clock,
                         std::uint64_t seed, std::uint64_t& moves) {
  size_split parts;
  if (!split_by_size(c, (capacity - c.load) / 4, clock, parts)) return false;
  const std::int64_t room = capacity - parts.strip;
  pack_on_skyline(parts.large);
  for (component& part : parts.large) {
    if (part.height <= room) continue;
    squeezer squeeze(part, clock, seed);
    const bool fits = squeeze(room, part.offset, policy, work);
    moves += squeeze.moves();
    if (!fits) return false;
  }
  std::vector<std::int64_t> offset(c.blocks());
  for (const component& part : parts.large)
    for (std::uint32_t i = 0; i < part.blocks(); ++i) offset[part.id[i]] = part.offset[i];
  for (const component& part : parts.small)
    for (std::uint32_t i = 0; i < part.blocks(); ++i) offset[part.id[i]] = room + part.offset[i];
  c.keep_if_lower(offset);
  return true;
}

}  // namespace remat::detail::memory_planning
