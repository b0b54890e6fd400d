// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "remat/core/detail/random.hpp"
#include "remat/memory/detail/component.hpp"
#include "remat/memory/detail/skyline.hpp"

namespace REMAT_NAMESPACE::detail {

/// The moves of a `squeezer` that push blocks apart. `sometimes`: pushes take about half of the work.
enum class push_policy : std::uint8_t { never, sometimes, always };

/// A local search for a packing within a given height. Blocks that do not fit are taken out; each move puts one back.
///
/// A move may first push the packed blocks apart: in the order of their offsets, the blocks up to some split sink as
/// far as they can, and the others rise. The split is chosen so that the gap for the block is widest. If the block
/// still does not fit, it goes where the blocks in its way weigh least in all, and these are taken out. A block weighs
/// more each time that it is taken out, so no block comes and goes for ever.
///
/// A move takes O(n log n) time, one that pushes O(n log n + the sections of all blocks). Polls the clock at each move,
/// and within a push every 2^20 sections.
template <class Allocator, class Clock>
class squeezer {
  template <class T>
  using row = row_of<T, Allocator>;

 public:
  /// The component and the clock must outlive the squeezer. The clock counts its work.
  squeezer(const basic_packing_component<Allocator>& c, Clock& clock, std::uint64_t seed)
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

  /// Squeezes the packing `offset` to at most the height `capacity`. Returns false, and leaves `offset` as it is, if
  /// `work` or the clock ends the search.
  [[nodiscard]] bool operator()(std::int64_t capacity, row<std::int64_t>& offset, push_policy policy,
                                std::uint64_t work) {
    const std::uint64_t until = clock_.work_done() + std::min(work, no_limit - clock_.work_done());
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
      if (offset_[u] == is_out && !put(capacity, u)) return false;
      placed_at_[u] = now_;
    }
    offset = offset_;
    return true;
  }

  /// The work of one move that pushes.
  [[nodiscard]] std::uint64_t push_work() const noexcept { return covered_ + 8 * std::uint64_t{c_.blocks()}; }
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

 private:
  static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::int64_t is_out = -1;
  static constexpr std::int64_t recent_moves = 10;

  [[nodiscard]] bool pushes_now(push_policy policy) {
    if (policy != push_policy::sometimes) return policy == push_policy::always;
    return random_.uniform() * static_cast<double>(push_work()) < 4.0 * c_.blocks();
  }

  /// Takes a block from those that are out: mostly the heaviest, one time in a hundred a random one.
  std::uint32_t choose() {
    const auto lighter = [&](std::uint32_t a, std::uint32_t b) { return weight_[a] < weight_[b]; };
    const auto chosen = random_.below(100) == 0 ? out_.begin() + random_.below(out_.size())
                                                : std::max_element(out_.begin(), out_.end(), lighter);
    const std::uint32_t u = *chosen;
    *chosen = out_.back();
    out_.pop_back();
    return u;
  }

  /// Stacks block `i` on its sections, and returns the level where it lies: `place` of the least level that is free.
  template <class Place>
  std::int64_t stack(std::uint32_t i, const Place& place) {
    std::int64_t* const begin = level_.data() + c_.first[i];
    const std::size_t count = c_.length(i);
    std::int64_t four[4] = {0, 0, 0, 0};  // four maxima that do not depend on each other, for speed
    std::size_t k = 0;
    for (; k + 4 <= count; k += 4)
      for (std::size_t j = 0; j < 4; ++j) four[j] = std::max(four[j], begin[k + j]);
    for (; k < count; ++k) four[0] = std::max(four[0], begin[k]);
    const std::int64_t at = place(std::max(std::max(four[0], four[1]), std::max(four[2], four[3])));
    std::fill_n(begin, count, at + c_.size[i]);
    return at;
  }

  /// Fills `head_` with the offset of each packed block if all sink, and `tail_` with its distance from the top if all
  /// rise. False if the clock says to stop.
  [[nodiscard]] bool stack_all(std::int64_t capacity) {
    constexpr std::uint64_t stride = std::uint64_t{1} << 20;
    std::uint64_t since_poll = 0;
    const auto stack_into = [&](row<std::int64_t>& at, std::uint32_t i, const auto& place) {
      since_poll += c_.length(i);
      if (since_poll >= stride) {
        since_poll = 0;
        if (clock_.should_stop()) return false;
      }
      at[i] = stack(i, place);
      return true;
    };
    std::fill(level_.begin(), level_.end(), 0);
    for (std::size_t k = 0; k < order_.size(); ++k)
      if (!stack_into(head_, order_[k].second,
                      [&, i = order_[k].second](std::int64_t level) { return c_.next_place(i, level); }))
        return false;
    std::fill(level_.begin(), level_.end(), 0);
    for (std::size_t k = order_.size(); k-- > 0;)
      if (!stack_into(tail_, order_[k].second, [&, i = order_[k].second](std::int64_t level) {
            return capacity - c_.size[i] - c_.last_place(i, capacity - c_.size[i] - level);
          }))
        return false;
    return true;
  }

  /// Pushes the packed blocks apart, and puts block `u` into the gap if it fits. False if the clock says to stop.
  [[nodiscard]] bool push_apart(std::int64_t capacity, std::uint32_t u) {
    clock_.work(push_work());
    order_.clear();
    for (std::uint32_t i = 0; i < c_.blocks(); ++i)
      if (offset_[i] != is_out) order_.push_back({offset_[i], i});
    std::sort(order_.begin(), order_.end());
    if (!stack_all(capacity)) return false;
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
      const std::int64_t place = c_.next_place(u, sunk);
      if (capacity - place - above_[left] > widest) {
        widest = capacity - place - above_[left];
        split = k;
        at = place;
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

  /// Puts block `u` where the packed blocks in its way weigh least, and takes these out. False if it has no place.
  [[nodiscard]] bool put(std::int64_t capacity, std::uint32_t u) {
    const std::int64_t size = c_.size[u];
    met_.clear();
    bottoms_.clear();
    tops_.clear();
    // These pointers stay in registers: the compiler cannot know that the vectors that grow here are not these.
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
    if (places_.empty()) return false;
    const std::int64_t place = cheapest_place(size);
    for (const std::uint32_t j : met_) {
      if (offset_[j] >= place + size || offset_[j] + c_.size[j] <= place) continue;
      offset_[j] = is_out;
      out_.push_back(j);
      weight_[j] += base_[j];
    }
    offset_[u] = place;
    clock_.work(c_.blocks() / 2 + 8 * bottoms_.size());
    return true;
  }

  /// Sorts `bottoms_` and `tops_`, and collects the offsets that put block `u` right above or right below another
  /// block, or at the bottom or the top of the arena.
  void collect_places(std::int64_t capacity, std::uint32_t u) {
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
    if (!c_.rules.empty()) keep_to_rules(highest, u);
  }

  /// Replaces each offset in `places_` by the nearest places of block `u` above and below it, up to `highest`.
  void keep_to_rules(std::int64_t highest, std::uint32_t u) {
    for (std::size_t k = 0, n = places_.size(); k < n; ++k) {
      places_.push_back(c_.last_place(u, places_[k]));
      places_[k] = c_.next_place(u, places_[k]);
    }
    std::sort(places_.begin(), places_.end());
    places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
    places_.erase(std::upper_bound(places_.begin(), places_.end(), highest), places_.end());
    places_.erase(places_.begin(), std::lower_bound(places_.begin(), places_.end(), 0));
  }

  /// The one of `places_` where the blocks that overlap [place, place + size) weigh least; of equal ones a random one.
  [[nodiscard]] std::int64_t cheapest_place(std::int64_t size) {
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

  const basic_packing_component<Allocator>& c_;
  Clock& clock_;
  random_source random_;
  std::uint64_t covered_ = 0;  // the sections of all blocks, added up
  std::uint64_t moves_ = 0;
  std::int64_t now_ = 0;  // moves of this call
  const Allocator memory_ = c_.allocator();
  row<double> base_{memory_}, weight_{memory_};                 // each block's weight at first, and now
  row<std::int64_t> offset_{memory_};                           // each block's offset or `is_out`
  row<std::int64_t> placed_at_{memory_};                        // the move that placed each block
  row<std::uint32_t> out_{memory_};                             // blocks to put back
  row<std::int64_t> level_{memory_};                            // the top of the blocks on each section
  row<std::int64_t> head_{memory_}, tail_{memory_};             // height needed below each block, and above it
  row<std::int64_t> above_{memory_};                            // k → height of the last k blocks that meet u
  row<std::pair<std::int64_t, std::uint32_t>> order_{memory_};  // (offset, block) of the packed blocks
  row<std::uint32_t> met_{memory_};                             // packed blocks that meet u
  row<std::pair<std::int64_t, double>> bottoms_{memory_}, tops_{memory_};  // (offset, weight) for each of `met_`
  row<std::int64_t> places_{memory_};                                      // offsets to try
};

/// The blocks `i` of `c` for which `is_in(i)`, divided into components of their own. The `id` of a block is its number
/// in `c`.
template <class Allocator, class IsIn>
[[nodiscard]] row_of<basic_packing_component<Allocator>, Allocator> some_blocks(
    const basic_packing_component<Allocator>& c, const IsIn& is_in) {
  struct lifetime {
    std::int64_t lower, upper, size;
  };
  row_of<lifetime, Allocator> some(c.allocator());
  for (std::uint32_t i = 0; i < c.blocks(); ++i)
    some.push_back({c.first[i], std::int64_t{c.last[i]} + 1, is_in(i) ? c.size[i] : 0});
  return divide_intervals(some, 1, c.allocator());
}

/// The blocks of `c` with sizes in [least, above), packed on a skyline.
template <class Allocator>
[[nodiscard]] row_of<basic_packing_component<Allocator>, Allocator> pack_sizes(
    const basic_packing_component<Allocator>& c, std::int64_t least, std::int64_t above) {
  auto out = some_blocks(c, [&](std::uint32_t i) { return c.size[i] >= least && c.size[i] < above; });
  for (auto& x : out) {
    auto offset = skyline_packer(x)(ranks_by(block_property::lifetime, x));
    x.keep_if_lower(offset);
  }
  return out;
}

/// Looks for a packing of at most the height `capacity`, which must be above the load, with the smallest blocks apart:
/// those below the largest limit, of load / 128, load / 256, …, whose packing is at most a quarter of the spare height
/// lie in a strip of their own at the top. The others are fewer and of fewer sizes; a `squeezer` packs each component
/// of them into the rest, with `work`.
///
/// Returns true if it found one; `c` keeps it if it is lower than before. Adds the squeezer's moves to `moves`.
/// O(n log n) time for each strip tried (at most the binary digits of the load), and the moves. Polls the clock at each
/// strip, packing and move.
/// Precondition: the component has no rules.
template <class Allocator, class Clock>
bool repack(basic_packing_component<Allocator>& c, std::int64_t capacity, push_policy policy, std::uint64_t work,
            Clock& clock, std::uint64_t seed, std::uint64_t& moves) {
  row_of<basic_packing_component<Allocator>, Allocator> small(c.allocator());
  std::int64_t limit = c.load / 128, strip = 0;
  for (;; limit /= 2) {
    if (clock.should_stop()) return false;
    small = pack_sizes(c, 0, limit);
    strip = 0;
    for (const auto& x : small) strip = std::max(strip, x.height);
    clock.work(32 * std::uint64_t{c.blocks()});
    if (strip <= (capacity - c.load) / 4) break;
  }
  const std::int64_t rest = capacity - strip;
  row_of<std::int64_t, Allocator> offset(c.blocks(), 0, c.allocator());
  for (auto& x : pack_sizes(c, limit, std::numeric_limits<std::int64_t>::max())) {
    if (x.height > rest) {
      squeezer squeeze(x, clock, seed);
      const bool fits = squeeze(rest, x.offset, policy, work);
      moves += squeeze.moves();
      if (!fits) return false;
    }
    for (std::uint32_t i = 0; i < x.blocks(); ++i) offset[x.id[i]] = x.offset[i];
  }
  for (const auto& x : small)
    for (std::uint32_t i = 0; i < x.blocks(); ++i) offset[x.id[i]] = rest + x.offset[i];
  c.keep_if_lower(offset);
  return true;
}

}  // namespace REMAT_NAMESPACE::detail
