// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/memory/interval.hpp"
#include "remat/schedule/lifetime.hpp"

namespace remat {

struct memory_plan_options {
  /// Work of a plan that has no limit of time or work (some 60 ms of processor time at most) …
  static constexpr std::uint64_t default_work = 12'000'000;
  /// … and, only while the arena is above the bound by more than one part in `near_enough`, up to so much (some 4 s).
  static constexpr std::uint64_t further_work = 1'000'000'000;
  static constexpr std::int64_t near_enough = 50;

  std::int64_t alignment = 256;  ///< of every offset, bytes, at least 1
  std::int64_t enough = 0;       ///< an arena of at most so many bytes ends the search, too
  run_control run{};             ///< work: blocks and sections looked at
};

struct memory_plan_statistics {
  std::uint64_t moves = 0;  ///< of the local search
  std::uint64_t nodes = 0;  ///< of the exhaustive search
  std::uint64_t work = 0;
  double seconds = 0;
  stop_reason stopped = stop_reason::none;  ///< what ended the search, unless the arena is optimal
};

/// Offsets in one arena.
struct memory_plan {
  std::vector<std::int64_t> offsets;  ///< of each interval, multiples of `alignment`
  std::int64_t arena_bytes = 0;       ///< a multiple of `alignment`
  std::int64_t lower_bound = 0;       ///< the largest load: sizes rounded up to the alignment that are there at once
  std::int64_t alignment = 1;
  bool optimal = false;  ///< proven: no arena is smaller (it meets the bound, or the search was exhaustive)
  memory_plan_statistics statistics{};
};

/// The steps of `plan_memory`. Sizes and offsets here are counted in units of the alignment.
namespace detail::memory_planning {

/// Blocks that can be placed apart from all others, as no time is without one of them between its first and last.
///
/// Time is divided into sections, one for each largest set of blocks that are there at once: two blocks are there at
/// the same time if and only if they share a section.
struct component {
  std::vector<std::uint32_t> first, last;  ///< sections of a block, both included; ascending in `first`
  std::vector<std::int64_t> size;
  std::vector<std::size_t> id;  ///< the interval
  std::uint32_t sections = 0;
  std::int64_t load = 0;             ///< the largest of any section
  std::vector<std::int64_t> offset;  ///< the best found
  std::int64_t height = 0;           ///< of the best found
  bool optimal = false;              ///< proven by exhaustion

  [[nodiscard]] std::uint32_t blocks() const noexcept { return static_cast<std::uint32_t>(size.size()); }

  void keep_if_lower(std::vector<std::int64_t>& other) {
    std::int64_t top = 0;
    for (std::size_t i = 0; i < size.size(); ++i) top = std::max(top, other[i] + size[i]);
    if (!offset.empty() && top >= height) return;
    height = top;
    offset.swap(other);
  }
};

/// Validates the intervals and divides them. Those of size 0 are left out.
[[nodiscard]] inline std::vector<component> divide(std::span<const interval> intervals, std::int64_t alignment) {
  if (alignment < 1) throw bad_argument("alignment is " + std::to_string(alignment) + "; it must be at least 1");
  const auto fail = [](std::size_t i, const std::string& what) -> void {
    throw bad_argument("interval " + std::to_string(i) + ": " + what);
  };
  if (intervals.size() > std::numeric_limits<std::uint32_t>::max() / 2)
    throw bad_argument("there are more than 2^31 intervals");
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  struct event {
    std::int64_t time;
    std::uint32_t code;  // 2 i for the end of interval i, 2 i + 1 for its beginning
  };
  std::vector<event> events;
  events.reserve(intervals.size() * 2);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const interval& x = intervals[i];
    if (x.size < 0) fail(i, "size is " + std::to_string(x.size) + "; it must not be negative");
    if (x.lower >= x.upper)
      fail(i, "upper is " + std::to_string(x.upper) + "; it must be above lower, " + std::to_string(x.lower));
    if (x.size == 0) continue;
    const std::int64_t units = (x.size - 1) / alignment + 1;
    if (units > largest / alignment - total) fail(i, "the rounded sizes of all intervals together exceed 2^63 − 1");
    total += units;
    events.push_back({x.lower, static_cast<std::uint32_t>(2 * i + 1)});
    events.push_back({x.upper, static_cast<std::uint32_t>(2 * i)});
  }
  std::sort(events.begin(), events.end(), [](const event& a, const event& b) {
    if (a.time != b.time) return a.time < b.time;
    if ((a.code & 1U) != (b.code & 1U)) return (a.code & 1U) == 0;  // ends first
    return a.code < b.code;
  });

  std::vector<component> out;
  std::vector<std::uint32_t> block(intervals.size(), 0);  // of an interval in the component at hand
  std::uint32_t there = 0;
  std::int64_t load = 0;
  bool grown = false;  // since the last section was closed
  for (const event& e : events) {
    const std::size_t i = e.code / 2;
    if ((e.code & 1U) != 0) {
      if (there++ == 0) out.emplace_back();
      component& c = out.back();
      block[i] = c.blocks();
      c.id.push_back(i);
      c.first.push_back(c.sections);
      c.last.push_back(0);
      c.size.push_back((intervals[i].size - 1) / alignment + 1);
      load += c.size.back();
      grown = true;
      continue;
    }
    component& c = out.back();
    if (grown) {
      ++c.sections;
      c.load = std::max(c.load, load);
      grown = false;
    }
    c.last[block[i]] = c.sections - 1;
    load -= c.size[block[i]];
    --there;
  }
  return out;
}

/// Which block goes first where several have room.
enum class preference : std::uint8_t { lifetime, area, size };

/// The ranks of blocks under a preference: 1 … n, the highest goes first.
[[nodiscard]] inline std::vector<std::uint32_t> ranks(const component& c, preference by) {
  struct key {
    double major, minor;
    std::uint32_t block;
  };
  std::vector<key> keys;
  keys.reserve(c.blocks());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) {
    const double length = c.last[i] - c.first[i] + 1.0;
    const double size = static_cast<double>(c.size[i]);
    switch (by) {
      case preference::lifetime:
        keys.push_back({length, size, i});
        break;
      case preference::area:
        keys.push_back({length * size, size, i});
        break;
      case preference::size:
        keys.push_back({size, length, i});
        break;
    }
  }
  std::sort(keys.begin(), keys.end(), [](const key& a, const key& b) {
    if (a.major != b.major) return a.major < b.major;
    if (a.minor != b.minor) return a.minor < b.minor;
    return a.block > b.block;
  });
  std::vector<std::uint32_t> rank(c.blocks());
  for (std::uint32_t r = 0; r < rank.size(); ++r) rank[keys[r].block] = r + 1;
  return rank;
}

/// Fills the lowest valley of the skyline first, with the block of highest rank among those that live within it
/// \cite sekiyama2018memory; a valley that none fits is raised to its lower side. It has an index of the blocks in
/// place of a scan: O(n log n) time where few blocks reach across a valley's sides.
class valley_filling {
 public:
  explicit valley_filling(const component& c) : c_(c) {
    while (width_ < c.blocks()) width_ *= 2;
    begins_.assign(c.sections + 1, 0);
    for (const std::uint32_t f : c.first) ++begins_[f + 1];
    for (std::uint32_t s = 0; s < c.sections; ++s) begins_[s + 1] += begins_[s];
  }

  [[nodiscard]] std::vector<std::int64_t> operator()(const std::vector<std::uint32_t>& rank) {
    build(rank);
    std::vector<std::int64_t> offset(c_.blocks(), 0);
    stretches_.clear();
    heap_ = {};
    open(0, c_.sections - 1, 0, none, none);
    for (std::uint32_t left = c_.blocks(); left != 0;) {
      const auto [height, from, s] = heap_.top();
      heap_.pop();
      if (!stretches_[s].open || stretches_[s].height != height || stretches_[s].from != from) continue;  // outdated
      const stretch valley = stretches_[s];
      const std::uint32_t i = take(valley.from, valley.to);
      if (i == none) {
        raise(s);
        continue;
      }
      offset[i] = height;
      --left;
      place(s, i);
    }
    return offset;
  }

 private:
  static constexpr std::uint32_t none = 0xffffffff;

  struct stretch {  // of the skyline
    std::uint32_t from, to;
    std::int64_t height;
    std::uint32_t before, after;  // its neighbours
    bool open;
  };
  struct entry {
    std::int64_t height;
    std::uint32_t from, s;
    bool operator<(const entry& o) const { return height != o.height ? height > o.height : from > o.from; }
  };

  std::uint32_t open(std::uint32_t from, std::uint32_t to, std::int64_t height, std::uint32_t before,
                     std::uint32_t after) {
    const auto s = static_cast<std::uint32_t>(stretches_.size());
    stretches_.push_back({from, to, height, before, after, true});
    if (before != none) stretches_[before].after = s;
    if (after != none) stretches_[after].before = s;
    heap_.push({height, from, s});
    return s;
  }
  void push(std::uint32_t s) { heap_.push({stretches_[s].height, stretches_[s].from, s}); }

  /// Joins `s` with a neighbour of its height, on either side.
  void join(std::uint32_t s) {
    stretch& x = stretches_[s];
    if (const std::uint32_t b = x.before; b != none && stretches_[b].height == x.height) {
      x.from = stretches_[b].from;
      x.before = stretches_[b].before;
      stretches_[b].open = false;
      if (x.before != none) stretches_[x.before].after = s;
    }
    if (const std::uint32_t a = x.after; a != none && stretches_[a].height == x.height) {
      x.to = stretches_[a].to;
      x.after = stretches_[a].after;
      stretches_[a].open = false;
      if (x.after != none) stretches_[x.after].before = s;
    }
  }
  void raise(std::uint32_t s) {
    stretch& x = stretches_[s];
    std::int64_t height = std::numeric_limits<std::int64_t>::max();
    if (x.before != none) height = std::min(height, stretches_[x.before].height);
    if (x.after != none) height = std::min(height, stretches_[x.after].height);
    x.height = height;
    join(s);
    push(s);
  }
  void place(std::uint32_t s, std::uint32_t i) {
    const stretch old = stretches_[s];
    if (old.from < c_.first[i]) open(old.from, c_.first[i] - 1, old.height, old.before, s);
    if (old.to > c_.last[i]) open(c_.last[i] + 1, old.to, old.height, s, old.after);
    stretch& x = stretches_[s];
    x.from = c_.first[i];
    x.to = c_.last[i];
    x.height = old.height + c_.size[i];
    join(s);
    push(s);
  }

  // A tree over the blocks in the order of their first sections: the highest rank and the earliest last section.
  struct node {
    std::uint32_t rank = 0, last = none;
  };
  void build(const std::vector<std::uint32_t>& rank) {
    by_rank_.assign(c_.blocks() + 1, none);
    tree_.assign(2 * width_, node{});
    for (std::uint32_t i = 0; i < c_.blocks(); ++i) {
      by_rank_[rank[i]] = i;
      tree_[width_ + i] = {rank[i], c_.last[i]};
    }
    for (std::size_t k = width_; k-- > 1;) update(k);
  }
  void update(std::size_t k) {
    tree_[k] = {std::max(tree_[2 * k].rank, tree_[2 * k + 1].rank), std::min(tree_[2 * k].last, tree_[2 * k + 1].last)};
  }
  /// Takes the block of highest rank that lives within [from, to] out of the tree; none: there is none.
  std::uint32_t take(std::uint32_t from, std::uint32_t to) {
    best_ = 0;
    search(1, 0, width_, begins_[from], begins_[to + 1], to);
    if (best_ == 0) return none;
    const std::uint32_t i = by_rank_[best_];
    std::size_t k = width_ + i;
    tree_[k] = node{};
    while (k > 1) update(k /= 2);
    return i;
  }
  void search(std::size_t k, std::size_t low, std::size_t high, std::uint32_t begin, std::uint32_t end,
              std::uint32_t to) {
    if (high <= begin || end <= low || tree_[k].rank <= best_ || tree_[k].last > to) return;
    if (high - low == 1) {
      best_ = tree_[k].rank;
      return;
    }
    const std::size_t middle = low + (high - low) / 2;
    const bool left_first = tree_[2 * k].rank > tree_[2 * k + 1].rank;
    if (left_first) search(2 * k, low, middle, begin, end, to);
    search(2 * k + 1, middle, high, begin, end, to);
    if (!left_first) search(2 * k, low, middle, begin, end, to);
  }

  const component& c_;
  std::size_t width_ = 1;
  std::vector<std::uint32_t> begins_;  // section → how many blocks have earlier first sections
  std::vector<std::uint32_t> by_rank_;
  std::vector<node> tree_;
  std::uint32_t best_ = 0;
  std::vector<stretch> stretches_;
  std::priority_queue<entry> heap_;
};

/// Every block, in descending rank, at the lowest offset where it meets no block that is placed before it. O(n²) time.
[[nodiscard]] inline std::vector<std::int64_t> first_fit(const component& c, const std::vector<std::uint32_t>& rank) {
  struct placed {
    std::int64_t from, to;
    std::uint32_t first, last;
  };
  std::vector<std::uint32_t> order(c.blocks());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) order[c.blocks() - rank[i]] = i;
  std::vector<std::int64_t> offset(c.blocks());
  std::vector<placed> done;  // ascending in `from`
  done.reserve(c.blocks());
  for (const std::uint32_t i : order) {
    std::int64_t at = 0;
    for (const placed& x : done) {
      if (x.last < c.first[i] || x.first > c.last[i]) continue;
      if (x.from - at >= c.size[i]) break;
      at = std::max(at, x.to);
    }
    offset[i] = at;
    const placed now{at, at + c.size[i], c.first[i], c.last[i]};
    done.insert(std::upper_bound(done.begin(), done.end(), at,
                                 [](std::int64_t offset_, const placed& x) { return offset_ < x.from; }),
                now);
  }
  return offset;
}

/// Which moves of `squeezing` push blocks apart; at times: so that pushing takes about half of the work.
enum class pushes : std::uint8_t { never, at_times, always };

/// Looks for a packing within a given height: blocks that do not fit are out, and one after the other is put back.
///
/// For a block, the others that are in are first pushed apart: in the order of their offsets, those up to some point
/// sink as far as they can, and those from there on rise, with the point where that opens the widest gap at the times
/// of the block. Where it still does not fit, it goes where the blocks in its way weigh least, and these are out. A
/// block weighs more each time that it is put out, so that none comes and goes for ever.
///
/// A move takes O(n log n) time, one that pushes O(n log n + blocks' sections).
class squeezing {
 public:
  squeezing(const component& c, std::uint64_t seed) : c_(c), random_(seed) {
    const std::uint32_t n = c.blocks();
    for (std::uint32_t i = 0; i < n; ++i) {
      const double length = c.last[i] - c.first[i] + 1.0;
      covered_ += c.last[i] - c.first[i] + 1;
      base_.push_back(static_cast<double>(c.size[i]) / static_cast<double>(c.load) * length);
    }
    head_.resize(n);
    tail_.resize(n);
    level_.resize(c.sections);
  }

  /// True: `offset`, which must be a packing, now has at most the height `capacity`. Polls at each move.
  [[nodiscard]] bool operator()(std::int64_t capacity, std::vector<std::int64_t>& offset, pushes when,
                                std::uint64_t work, run_clock& clock, memory_plan_statistics& statistics) {
    const std::uint64_t until = clock.work_done() + std::min(work, run_control::no_work_limit - clock.work_done());
    offset_ = offset;
    weight_ = base_;
    placed_at_.assign(c_.blocks(), -2 * recently);
    out_.clear();
    for (std::uint32_t i = 0; i < c_.blocks(); ++i)
      if (offset_[i] + c_.size[i] > capacity) {
        offset_[i] = is_out;
        out_.push_back(i);
      }
    for (std::int64_t now = 0; !out_.empty(); ++now) {
      if (clock.work_done() >= until || clock.should_stop()) return false;
      ++statistics.moves;
      const std::uint32_t u = choose();
      if (when == pushes::always ||
          (when == pushes::at_times && below(push_work()) < 4 * static_cast<std::uint64_t>(c_.blocks()))) {
        clock.work(push_work());
        push_apart(capacity, u);
      }
      if (offset_[u] == is_out) {
        put(capacity, u, now);
        clock.work(c_.blocks() / 2 + 8 * bottoms_.size());
      }
      placed_at_[u] = now;
    }
    offset = offset_;
    return true;
  }

  /// The work of a move that pushes.
  [[nodiscard]] std::uint64_t push_work() const noexcept { return covered_ + 8 * std::uint64_t{c_.blocks()}; }

 private:
  static constexpr std::int64_t is_out = -1;
  static constexpr std::int64_t recently = 10;  // moves

  std::uint64_t below(std::uint64_t n) {  // splitmix64
    random_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = random_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) % n;
  }

  /// Takes a block from those that are out: mostly the heaviest.
  std::uint32_t choose() {
    std::size_t k = 0;
    if (below(100) == 0) {
      k = static_cast<std::size_t>(below(out_.size()));
    } else {
      for (std::size_t q = 1; q < out_.size(); ++q)
        if (weight_[out_[q]] > weight_[out_[k]]) k = q;
    }
    const std::uint32_t u = out_[k];
    out_[k] = out_.back();
    out_.pop_back();
    return u;
  }
  [[nodiscard]] bool meet(std::uint32_t i, std::uint32_t j) const {
    return c_.first[i] <= c_.last[j] && c_.first[j] <= c_.last[i];
  }
  /// The level above which block `i` is free, which then rises to the top of the block there.
  std::int64_t stack(std::uint32_t i) {
    std::int64_t* const begin = level_.data() + c_.first[i];
    const std::size_t count = c_.last[i] - c_.first[i] + 1;
    std::int64_t four[4] = {0, 0, 0, 0};  // that do not wait for each other
    std::size_t k = 0;
    for (; k + 4 <= count; k += 4)
      for (std::size_t j = 0; j < 4; ++j) four[j] = std::max(four[j], begin[k + j]);
    for (; k < count; ++k) four[0] = std::max(four[0], begin[k]);
    const std::int64_t at = std::max(std::max(four[0], four[1]), std::max(four[2], four[3]));
    std::fill_n(begin, count, at + c_.size[i]);
    return at;
  }

  void push_apart(std::int64_t capacity, std::uint32_t u) {
    order_.clear();
    for (std::uint32_t i = 0; i < c_.blocks(); ++i)
      if (offset_[i] != is_out) order_.push_back({offset_[i], i});
    std::sort(order_.begin(), order_.end());
    std::fill(level_.begin(), level_.end(), 0);
    for (const auto& [ignored, i] : order_) head_[i] = stack(i);
    std::fill(level_.begin(), level_.end(), 0);
    above_.assign(1, 0);  // above_[k]: what the last k blocks that meet u need above it
    for (std::size_t k = order_.size(); k-- > 0;) {
      const std::uint32_t i = order_[k].second;
      tail_[i] = stack(i);
      if (meet(i, u)) above_.push_back(std::max(above_.back(), tail_[i] + c_.size[i]));
    }
    std::size_t left = above_.size() - 1, split = order_.size();
    std::int64_t sunk = 0, widest = -1, at = 0;
    for (std::size_t k = 0; k <= order_.size(); ++k) {
      const bool end = k == order_.size();
      if (!end && !meet(order_[k].second, u)) continue;
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
  }

  void put(std::int64_t capacity, std::uint32_t u, std::int64_t now) {
    const std::int64_t size = c_.size[u];
    met_.clear();
    bottoms_.clear();
    tops_.clear();
    for (std::uint32_t j = 0; j < c_.blocks() && c_.first[j] <= c_.last[u]; ++j) {
      if (c_.last[j] < c_.first[u] || offset_[j] == is_out) continue;
      const double weight = now - placed_at_[j] < recently ? 4 * weight_[j] : weight_[j];
      met_.push_back(j);
      bottoms_.push_back({offset_[j], weight});
      tops_.push_back({offset_[j] + c_.size[j], weight});
    }
    std::sort(bottoms_.begin(), bottoms_.end());
    std::sort(tops_.begin(), tops_.end());
    places_.assign(1, 0);  // right above one block or right below another, or at the bottom or the top of the arena
    for (std::size_t b = 0, t = 0;;) {
      const std::int64_t below_next = b < bottoms_.size() ? bottoms_[b].first - size : capacity - size;
      const std::int64_t above_next = t < tops_.size() ? tops_[t].first : capacity - size;
      const std::int64_t place = std::min(below_next, above_next);
      if (place > places_.back()) places_.push_back(place);
      if (place >= capacity - size) break;
      if (below_next <= above_next) ++b;
      if (above_next <= below_next) ++t;
    }

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
      } else if (in_reach < least + 1e-9 && below(++ties) == 0) {
        best = place;
      }
    }
    for (const std::uint32_t j : met_) {
      if (offset_[j] >= best + size || offset_[j] + c_.size[j] <= best) continue;
      offset_[j] = is_out;
      out_.push_back(j);
      weight_[j] += base_[j];
    }
    offset_[u] = best;
  }

  const component& c_;
  std::uint64_t random_;
  std::uint64_t covered_ = 0;  // sections of all blocks
  std::vector<double> base_, weight_;
  std::vector<std::int64_t> offset_, placed_at_, head_, tail_, level_, above_, places_;
  std::vector<std::uint32_t> out_, met_;
  std::vector<std::pair<std::int64_t, std::uint32_t>> order_;
  std::vector<std::pair<std::int64_t, double>> bottoms_, tops_;
};

/// Exhaustive search for lower packings, depth first, with blocks in ascending order of offset, each on the skyline, as
/// in \cite moffitt2023minimalloc.
///
/// Of the packings of least height one has the least sum of offsets. There each block lies on the skyline of those
/// before it, none before it in the order (offset, block), and no block that comes later would fit under it; equal
/// blocks may be taken to lie in the order of their indices. So it is enough to look at such choices. A section whose
/// level, at least the last offset, and open blocks together reach the best height ends a branch.
/// O(blocks × their sections) time a node. Polls at each node.
class exhausting {
 public:
  exhausting(component& c, run_clock& clock, memory_plan_statistics& statistics)
      : c_(c), clock_(clock), statistics_(statistics), level_(c.sections, 0), open_(c.sections, 0) {
    offset_.assign(c.blocks(), -1);
    twin_.assign(c.blocks(), none);
    for (std::uint32_t i = 0; i < c.blocks(); ++i) {
      for (std::uint32_t s = c.first[i]; s <= c.last[i]; ++s) open_[s] += c.size[i];
      for (std::uint32_t j = i; j-- > 0 && c.first[j] == c.first[i] && twin_[i] == none;)
        if (c.last[j] == c.last[i] && c.size[j] == c.size[i]) twin_[i] = j;
    }
  }

  /// True: the component's packing is now proven the lowest. `least`: a height that is low enough, which ends the
  /// search.
  [[nodiscard]] bool operator()(std::int64_t least, std::uint64_t nodes) {
    least_ = least;
    left_ = nodes;
    descend(0, 0, none);
    return !stopped_ && c_.height > least_;
  }

 private:
  static constexpr std::uint32_t none = 0xffffffff;

  [[nodiscard]] std::int64_t on_skyline(std::uint32_t i) const {
    std::int64_t at = 0;
    for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) at = std::max(at, level_[s]);
    return at;
  }
  void descend(std::uint32_t placed, std::int64_t last, std::uint32_t last_block) {
    if (placed == c_.blocks()) {
      std::vector<std::int64_t> found = offset_;
      c_.keep_if_lower(found);
      return;
    }
    if (left_ == 0 || clock_.should_stop()) {
      stopped_ = true;
      return;
    }
    --left_;
    ++statistics_.nodes;
    clock_.work(c_.blocks() + c_.sections);
    for (std::uint32_t s = 0; s < c_.sections; ++s)
      if (open_[s] != 0 && std::max(level_[s], last) + open_[s] >= c_.height) return;

    struct choice {
      std::int64_t at;
      std::uint32_t block;
    };
    std::vector<choice> choices;
    std::int64_t lowest_top = std::numeric_limits<std::int64_t>::max();
    for (std::uint32_t i = 0; i < c_.blocks(); ++i) {
      if (offset_[i] >= 0) continue;
      const std::int64_t at = on_skyline(i);
      lowest_top = std::min(lowest_top, std::max(at, last) + c_.size[i]);
      if (at < last || (at == last && last_block != none && i < last_block)) continue;
      if (twin_[i] != none && offset_[twin_[i]] < 0) continue;
      choices.push_back({at, i});
    }
    std::sort(choices.begin(), choices.end(), [&](const choice& a, const choice& b) {
      if (a.at != b.at) return a.at < b.at;
      const std::uint32_t x = c_.last[a.block] - c_.first[a.block], y = c_.last[b.block] - c_.first[b.block];
      return x != y ? x > y : a.block < b.block;
    });
    std::vector<std::int64_t> before;
    for (const choice& next : choices) {
      if (next.at >= lowest_top) break;
      const std::uint32_t i = next.block;
      const auto begin = level_.begin() + c_.first[i], end = level_.begin() + c_.last[i] + 1;
      before.assign(begin, end);
      std::fill(begin, end, next.at + c_.size[i]);
      for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) open_[s] -= c_.size[i];
      offset_[i] = next.at;
      descend(placed + 1, next.at, i);
      offset_[i] = -1;
      for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) open_[s] += c_.size[i];
      std::copy(before.begin(), before.end(), level_.begin() + c_.first[i]);
      if (stopped_ || c_.height <= least_) return;
    }
  }

  component& c_;
  run_clock& clock_;
  memory_plan_statistics& statistics_;
  std::vector<std::int64_t> level_;  // of a section's skyline
  std::vector<std::int64_t> open_;   // sizes of a section's blocks that are not placed
  std::vector<std::int64_t> offset_;
  std::vector<std::uint32_t> twin_;  // an equal block of lower index
  std::int64_t least_ = 0;
  std::uint64_t left_ = 0;
  bool stopped_ = false;
};

/// Looks for a packing of at most the height `capacity`, which must be above the load, with the smallest blocks set
/// apart: those that together need at most a quarter of what is to spare lie in a strip of their own at the top, and
/// the others, which are then fewer and of fewer sizes, are squeezed into the rest. O(n log n) time and the moves.
inline bool repack(component& c, std::int64_t capacity, pushes when, std::uint64_t work, run_clock& clock,
                   std::uint64_t seed, memory_plan_statistics& statistics) {
  const auto pack = [&](std::vector<component>& parts) {  // the height
    std::int64_t height = 0;
    for (component& part : parts) {
      std::vector<std::int64_t> offset = valley_filling(part)(ranks(part, preference::lifetime));
      part.keep_if_lower(offset);
      height = std::max(height, part.height);
    }
    return height;
  };
  std::vector<component> large, small;
  std::int64_t strip = 0;
  for (std::int64_t least = c.load / 128;; least /= 2) {
    if (clock.should_stop()) return false;
    std::array<std::vector<interval>, 2> by_size;  // those below `least` first; those that are elsewhere have size 0
    for (std::vector<interval>& some : by_size) some.resize(c.blocks());
    for (std::uint32_t i = 0; i < c.blocks(); ++i)
      for (std::size_t k = 0; k < 2; ++k)
        by_size[k][i] = {c.first[i], std::int64_t{c.last[i]} + 1, (c.size[i] >= least) == (k == 1) ? c.size[i] : 0};
    small = divide(by_size[0], 1);
    strip = pack(small);
    clock.work(32 * static_cast<std::uint64_t>(c.blocks()));
    if (strip > (capacity - c.load) / 4) continue;
    large = divide(by_size[1], 1);
    break;
  }
  if (pack(large) > capacity - strip) {
    for (component& part : large) {
      if (part.height <= capacity - strip) continue;
      if (!squeezing(part, seed)(capacity - strip, part.offset, when, work, clock, statistics)) return false;
    }
  }
  std::vector<std::int64_t> offset(c.blocks());
  for (const component& part : large)
    for (std::uint32_t i = 0; i < part.blocks(); ++i) offset[part.id[i]] = part.offset[i];
  for (const component& part : small)
    for (std::uint32_t i = 0; i < part.blocks(); ++i) offset[part.id[i]] = capacity - strip + part.offset[i];
  c.keep_if_lower(offset);
  return true;
}

/// What `improve` is to reach.
struct goal {
  std::int64_t least;        ///< height that ends it
  std::int64_t near_enough;  ///< height that ends it after `work`
  std::uint64_t work;
};

/// Improves the component until it reaches the goal, is proven the lowest, or the clock says to stop.
inline void improve(component& c, const goal& to, run_clock& clock, std::uint64_t seed,
                    memory_plan_statistics& statistics) {
  constexpr std::uint32_t small = 16, medium = 128;
  const auto done = [&] {
    return c.height <= to.least || c.optimal || clock.should_stop() ||
           (c.height <= to.near_enough && clock.work_done() >= to.work);
  };
  const auto exhaust = [&](std::uint64_t nodes) {
    if (!done()) c.optimal = exhausting(c, clock, statistics)(to.least, nodes);
  };
  if (c.blocks() <= small) exhaust(20'000);
  std::uint64_t nodes = 20'000;
  for (std::uint64_t sweep = 0; !done(); ++sweep) {
    const std::uint64_t doubled = std::min<std::uint64_t>(sweep, 20);
    // Far above the bound, packing anew is what helps most.
    const std::uint64_t share = (sweep == 0 ? std::uint64_t{4'000'000} : std::uint64_t{16'000'000}) << doubled / 2;
    if (c.height > to.near_enough && to.near_enough > c.load) {
      repack(c, to.near_enough, sweep % 2 == 0 ? pushes::never : pushes::at_times, share, clock, seed + sweep,
             statistics);
      if (c.height > to.near_enough && sweep % 4 != 0) continue;
    }
    squeezing squeeze(c, seed + sweep);
    const auto fits = [&](std::int64_t target, pushes when) {
      std::uint64_t work = squeeze.push_work() << (6 + doubled);
      work = std::min(work, c.height > to.near_enough ? share : to.work - std::min(to.work, clock.work_done()));
      std::vector<std::int64_t> offset = c.offset;
      if (!squeeze(target, offset, when, work, clock, statistics)) return false;
      c.keep_if_lower(offset);
      return true;
    };
    // Where there is far to go, it is quicker in halves of the way; the bound itself needs many pushes.
    const auto close = [&] { return c.height - to.least <= to.least / 64; };
    if (close()) fits(to.least, pushes::always);
    for (std::int64_t failed = to.least; c.height - failed > (close() ? to.least / 1024 : to.least / 256);) {
      const std::int64_t target = failed + (c.height - failed) / 2;
      if (!fits(target, pushes::at_times) && !fits(target, pushes::always)) failed = target;
      if (done()) return;
    }
    if (!done()) fits(to.least, pushes::always);
    if (c.blocks() <= medium) exhaust(nodes);
    nodes *= 2;
  }
}

}  // namespace detail::memory_planning

/// Offsets in one arena for all intervals, so that no two that are there at the same time share a byte, with the arena
/// as small as can be: dynamic storage allocation with known lifetimes, which is NP-hard \cite garey1979np.
///
/// Intervals are divided where nothing is there, and time into the sections that matter. Each part is first packed by
/// filling valleys of a skyline, under three preferences, and, up to some thousand intervals, by first fit. Where a
/// part is then higher than the bound (the largest load), a local search squeezes it into a smaller arena, the bound
/// first (see `detail::memory_planning::squeezing`), and parts of at most 128 intervals are searched exhaustively in
/// between. A part that is above the bound by more than 2 % is packed anew, too, with its smallest blocks set apart
/// (`repack`). It ends where the arena meets the bound, is proven the smallest or is `enough`, and at the limits of
/// `run`; without a limit of time or work, after `default_work` where the arena is then at most 1.02 of the bound, else
/// when it is, or after `further_work`. Never more than the first packing.
///
/// Heuristic, except where `optimal` says so. Deterministic for a seed and a work limit (one thread). Time: the first
/// packing O(n log n) for lifetimes as schedules have them; each move of the search O(n log n + sections of all
/// blocks). Cancellation: the first packing always ends; after it, polled at each packing, move and node.
/// Throws `bad_argument` for an alignment below 1, a negative size, an empty lifetime, or sizes whose rounded sum
/// exceeds 2^63 − 1 bytes.
///
///     const lifetimes lives = lifetimes_of(p, *solution.plan);
///     const memory_plan arena = plan_memory(lives);  // offsets of lives.allocations
[[nodiscard]] inline memory_plan plan_memory(std::span<const interval> intervals,
                                             const memory_plan_options& options = {}) {
  using detail::memory_planning::component;
  using detail::memory_planning::preference;
  run_control control = options.run;
  const bool limited =
      control.work_limit != run_control::no_work_limit || control.time_limit != std::chrono::nanoseconds::max();
  if (!limited) control.work_limit = memory_plan_options::further_work;
  run_clock clock(control);
  memory_plan plan;
  plan.alignment = options.alignment;
  std::vector<component> parts = detail::memory_planning::divide(intervals, options.alignment);
  std::int64_t bound = 0;
  for (const component& c : parts) bound = std::max(bound, c.load);

  const std::int64_t low_enough = std::max(bound, options.enough / options.alignment);
  const std::int64_t spare =
      std::min(bound / memory_plan_options::near_enough, std::numeric_limits<std::int64_t>::max() - bound);
  const detail::memory_planning::goal goal{low_enough, std::max(low_enough, bound + spare),
                                           limited ? run_control::no_work_limit : memory_plan_options::default_work};
  constexpr std::uint32_t few = 4096;  // blocks: first fit is worth its time
  for (component& c : parts) {
    detail::memory_planning::valley_filling fill(c);
    for (const preference by : {preference::lifetime, preference::area, preference::size}) {
      if (!c.offset.empty() && (c.height <= low_enough || clock.should_stop())) break;
      const std::vector<std::uint32_t> rank = detail::memory_planning::ranks(c, by);
      std::vector<std::int64_t> offset = fill(rank);
      c.keep_if_lower(offset);
      clock.work(16 * static_cast<std::uint64_t>(c.blocks()));
      if (by == preference::lifetime || c.height <= low_enough || c.blocks() > few || clock.should_stop()) continue;
      offset = detail::memory_planning::first_fit(c, rank);
      c.keep_if_lower(offset);
      clock.work(static_cast<std::uint64_t>(c.blocks()) * c.blocks() / 4);
    }
  }
  // The arena is as high as the highest part, so that is always the one to improve.
  const auto highest = [&] {
    return std::max_element(parts.begin(), parts.end(),
                            [](const component& a, const component& b) { return a.height < b.height; });
  };
  while (!parts.empty()) {
    component& c = *highest();
    if (c.height <= low_enough || c.optimal || clock.should_stop()) break;
    if (c.height <= goal.near_enough && clock.work_done() >= goal.work) break;
    detail::memory_planning::improve(c, goal, clock, options.run.seed, plan.statistics);
  }

  plan.offsets.assign(intervals.size(), 0);
  for (const component& c : parts)
    for (std::size_t i = 0; i < c.size.size(); ++i) plan.offsets[c.id[i]] = c.offset[i] * options.alignment;
  plan.lower_bound = bound * options.alignment;
  plan.optimal = true;
  if (!parts.empty()) {
    plan.arena_bytes = highest()->height * options.alignment;
    plan.optimal = plan.arena_bytes == plan.lower_bound || highest()->optimal;
  }
  if (!plan.optimal) plan.statistics.stopped = clock.poll();
  if (!plan.optimal && !limited && plan.statistics.stopped == stop_reason::none && highest()->height > low_enough)
    plan.statistics.stopped = stop_reason::work;  // near enough
  plan.statistics.work = clock.work_done();
  plan.statistics.seconds = clock.seconds();
  return plan;
}

/// \overload for the allocations of a schedule: `offsets[i]` is that of `lives.allocations[i]`
[[nodiscard]] inline memory_plan plan_memory(const lifetimes& lives, const memory_plan_options& options = {}) {
  return plan_memory(intervals_of(lives), options);
}

}  // namespace remat
