// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "remat/core/detail/random.hpp"
#include "remat/memory/detail/component.hpp"

namespace REMAT_NAMESPACE::detail {

/// The answer to the question whether a component fits a height.
enum class fit_verdict : std::uint8_t {
  fits,        ///< a packing was found
  impossible,  ///< proven: there is none
  unknown      ///< a limit ended the search
};

/// The decision that a node of a `fit_search` branches on. Both concern the lowest offset where a block that is not
/// placed may lie.
enum class fit_branching : std::uint8_t {
  block,   ///< one branch for each answer: does the preferred block lie there?
  section  ///< one branch for each block of the section with the largest open size, or none
};

/// The order in which a `fit_search` prefers blocks: by three properties, the largest first, the later ones to break
/// ties. `time` is the length of the lifetime, `area` that × size, and `load` the largest open size of the block's
/// sections when a stretch is begun.
enum class fit_order : std::uint8_t { time_area_load, load_area_time, load_time_area };

/// How a `fit_search` goes through the packings. Every strategy is complete; which one is quick differs by instance.
struct fit_strategy {
  fit_branching branching = fit_branching::block;
  fit_order order = fit_order::load_time_area;
  std::uint64_t seed = 0;  ///< seed of random factors close to 1 that change the properties, and so the order; 0: none
};

/// The inferences of a `fit_search`. Each of them is sound by itself; tests switch them off to compare verdicts.
struct fit_rules {
  bool sections = true;   ///< a section's floor and open sizes must stay within the height
  bool support = true;    ///< a block lies at 0 or on another block, and no block could sink
  bool stretches = true;  ///< sections are packed apart from later ones if no open block spans both
  bool twins = true;      ///< equal blocks lie in the order of their indices
};

/// Depth-first search for a packing of a component within a height, after \cite moffitt2023minimalloc.
///
/// Blocks are placed in ascending order of offset. Each block that is not placed has a lowest offset, `low`: above all
/// placed blocks that it meets. The *floor* of a section is the least `low` of its blocks that are not placed. A branch
/// ends if in some section the floor and the sizes of these blocks together exceed the height.
///
/// Differs from the paper in what a node decides. The paper tries every block that may come next. Here a node looks at
/// the lowest floor alone, and decides whether one block lies there, or which block of one section does. The last
/// choice is that none does, and from this much follows: if a block does not lie at its `low`, another block keeps it
/// from sinking there, so its `low` rises to the top of the lowest block that can. Blocks that no longer lie on a
/// placed block rise in the same way, without a branch.
///
/// Why no packing is missed: if there is a packing, take one whose offsets have the least sum. In it, no block could
/// sink, and equal blocks may be taken to lie in the order of their indices. Each inference holds for it.
///
/// With rules (`packing_rules`), `low` is always a place of the block: it rises to the next one. The argument above
/// holds for any set of places: a block that could not sink to a lower place lies at the first one above 0 or above
/// another block.
///
/// Sizes and the height are divided by the greatest common divisor of the sizes, unless there are rules.
/// O(blocks that the placed block meets × their sections) time a node. Polls the clock at each node.
template <class Allocator, class Clock>
class fit_search {
  template <class T>
  using row = row_of<T, Allocator>;
  using component_type = basic_packing_component<Allocator>;

 public:
  /// The component and the clock must outlive the search. The clock counts the work: the blocks and sections visited.
  fit_search(const component_type& c, Clock& clock, fit_rules rules = {}) : c_(c), clock_(clock), rules_(rules) {
    for (const std::int64_t size : c.size) unit_ = std::gcd(unit_, size);
    if (!c.rules.empty()) unit_ = 1;
    for (std::uint32_t i = 0; i < c.blocks(); ++i) neighbours_.emplace_back(c.allocator());
    twin_.assign(c.blocks(), none);
    open_.assign(c.sections, 0);
    spanning_.assign(c.sections, 0);
    for (std::uint32_t i = 0; i < c.blocks(); ++i) {
      size_.push_back(c.size[i] / unit_);
      for (std::uint32_t s = c.first[i]; s <= c.last[i]; ++s) open_[s] += size_[i];
      for (std::uint32_t s = c.first[i]; s < c.last[i]; ++s) ++spanning_[s];
      for (std::uint32_t j = i + 1; j < c.blocks() && c.first[j] <= c.last[i]; ++j) {
        neighbours_[i].push_back(j);
        neighbours_[j].push_back(i);
        if (are_twins(i, j)) twin_[j] = i;
      }
    }
  }

  /// Searches until the answer is known, `work` units of work are done or the clock says to stop. If the component
  /// fits, `offset` holds the packing.
  [[nodiscard]] fit_verdict operator()(std::int64_t height, fit_strategy strategy, std::uint64_t work,
                                       row<std::int64_t>& offset) {
    if (height < c_.load) return fit_verdict::impossible;
    height_ = height / unit_;
    strategy_ = strategy;
    factor_.assign(c_.blocks(), 1);
    random_source random(strategy.seed);
    if (strategy.seed != 0)
      for (double& factor : factor_) factor = 1 + 0.2 * random.uniform();
    until_ = clock_.work_done() + std::min(work, std::numeric_limits<std::uint64_t>::max() - clock_.work_done());
    offset_.assign(c_.blocks(), -1);
    low_.assign(c_.blocks(), 0);
    for (std::uint32_t i = 0; i < c_.blocks(); ++i) low_[i] = next(i, 0);
    support_ = low_;
    floor_.assign(c_.sections, 0);
    stretch all{0, c_.sections - 1, row<std::uint32_t>(c_.blocks(), 0, c_.allocator())};
    std::iota(all.blocks.begin(), all.blocks.end(), 0U);
    if (!c_.rules.empty() && !refloor(all, {0, c_.sections - 1})) return fit_verdict::impossible;
    const fit_verdict verdict = solve(all);
    if (verdict != fit_verdict::fits) return verdict;
    offset.resize(c_.blocks());
    for (std::uint32_t i = 0; i < c_.blocks(); ++i) offset[i] = offset_[i] * unit_;
    return verdict;
  }

  /// The greatest common divisor of the sizes: the height of a packing may be rounded down to a multiple of it.
  [[nodiscard]] std::int64_t unit() const noexcept { return unit_; }
  /// The work of a run that should come to a first packing.
  [[nodiscard]] static std::uint64_t restart_work(const component_type& c) noexcept {
    return 8 * std::uint64_t{c.blocks()} * c.blocks();
  }
  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  static constexpr std::int64_t no_offset = std::numeric_limits<std::int64_t>::max();

  /// Sections that can be packed apart from all others, and their blocks in the order of preference.
  struct stretch {
    std::uint32_t from, to;
    row<std::uint32_t> blocks;
  };
  /// A range of sections; empty at first.
  struct range {
    std::uint32_t from = none, to = 0;
    [[nodiscard]] bool is_empty() const noexcept { return from == none; }
    void include(std::uint32_t first, std::uint32_t last) noexcept {
      if (first < from) from = first;
      if (last > to) to = last;
    }
  };
  struct change {
    std::int64_t* value;
    std::int64_t before;
  };

  /// The least place of block `i` that is at least `x`.
  [[nodiscard]] std::int64_t next(std::uint32_t i, std::int64_t x) const { return c_.next_place(i, x); }

  /// True if blocks `i` and `j` can be exchanged in every packing.
  [[nodiscard]] bool are_twins(std::uint32_t i, std::uint32_t j) const {
    if (c_.first[j] != c_.first[i] || c_.last[j] != c_.last[i] || c_.size[j] != c_.size[i]) return false;
    const auto& r = c_.rules;
    return r.empty() ||
           (r.alignment[i] == r.alignment[j] && r.allowed[i] == r.allowed[j] && r.fixed[i] < 0 && r.fixed[j] < 0);
  }

  /// Packs the blocks of a stretch, none of which is placed.
  [[nodiscard]] fit_verdict solve(stretch& p) {
    sort(p.blocks);
    return descend(p);
  }

  /// Packs the open blocks of a stretch.
  [[nodiscard]] fit_verdict descend(const stretch& p) {
    const std::size_t begin = changes_.size(), first = choices_.size();
    fit_verdict verdict = fit_verdict::impossible;
    while (verdict == fit_verdict::impossible) {
      choices_.resize(first);
      ++nodes_;
      std::int64_t at = 0;
      if (stop_now()) verdict = fit_verdict::unknown;
      if (verdict == fit_verdict::unknown || !infer(p, at)) break;
      if (at == no_offset) verdict = fit_verdict::fits;
      if (verdict == fit_verdict::fits) break;
      choose(p, at);
      const std::size_t end = choices_.size();
      for (std::size_t k = first; k < end && verdict == fit_verdict::impossible; ++k)
        if (is_candidate(choices_[k], at)) verdict = place(p, choices_[k]);
      if (verdict != fit_verdict::impossible) break;
      range changed;  // none of them lies at `at`
      bool possible = true;
      for (std::size_t k = first; k < end && possible; ++k) possible = exclude(choices_[k], changed);
      if (!possible || !refloor(p, changed)) break;
    }
    choices_.resize(first);
    undo(begin);
    return verdict;
  }

  /// Excludes blocks at the lowest floor that lie on no block, until all candidates are supported. `at` becomes the
  /// lowest floor. False if this branch has no packing.
  [[nodiscard]] bool infer(const stretch& p, std::int64_t& at) {
    for (;;) {
      at = lowest_floor(p);
      if (at == no_offset) return true;
      range changed;
      for (const std::uint32_t i : p.blocks)
        if (offset_[i] < 0 && low_[i] == at && rules_.support && support_[i] < at && !exclude(i, changed)) return false;
      clock_.work(p.blocks.size());
      if (changed.is_empty()) return !rules_.sections || may_fit(p.from, p.to, at);
      if (stop_now()) return true;  // the next node will notice
      if (!refloor(p, changed)) return false;
    }
  }

  /// Packs the open blocks of a stretch with block `i` at its lowest offset. If that is impossible, all is as before.
  [[nodiscard]] fit_verdict place(const stretch& p, std::uint32_t i) {
    const std::size_t begin = changes_.size();
    range changed;
    put(i, changed);
    fit_verdict verdict = fit_verdict::impossible;
    if (refloor(p, changed)) {
      row<std::uint32_t> begins(1, p.from, c_.allocator());
      for (std::uint32_t s = c_.first[i]; s < c_.last[i]; ++s)
        if (--spanning_[s] == 0) begins.push_back(s + 1);
      verdict = begins.size() == 1 || !rules_.stretches ? descend(p) : solve_stretches(p, begins);
      for (std::uint32_t s = c_.first[i]; s < c_.last[i]; ++s) ++spanning_[s];
    }
    undo(begin);
    for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) open_[s] += size_[i];
    if (verdict != fit_verdict::fits) offset_[i] = -1;
    return verdict;
  }

  /// Divides a stretch into smaller ones that begin at the sections `begins`, and packs one after the other, those with
  /// few open blocks first. No open block spans two of them, so if one has no packing, the whole stretch has none.
  [[nodiscard]] fit_verdict solve_stretches(const stretch& p, const row<std::uint32_t>& begins) {
    row<stretch> stretches(c_.allocator());
    for (std::size_t k = 0; k < begins.size(); ++k)
      stretches.push_back(
          {begins[k], k + 1 < begins.size() ? begins[k + 1] - 1 : p.to, row<std::uint32_t>(c_.allocator())});
    for (const std::uint32_t i : p.blocks) {
      if (offset_[i] >= 0) continue;
      const auto after = std::upper_bound(begins.begin(), begins.end(), c_.first[i]);
      stretches[static_cast<std::size_t>(after - begins.begin()) - 1].blocks.push_back(i);
    }
    std::sort(stretches.begin(), stretches.end(), [](const stretch& a, const stretch& b) {
      return a.blocks.size() != b.blocks.size() ? a.blocks.size() < b.blocks.size() : a.from < b.from;
    });
    fit_verdict verdict = fit_verdict::fits;
    for (std::size_t k = 0; k < stretches.size() && verdict == fit_verdict::fits; ++k)
      if (!stretches[k].blocks.empty()) verdict = solve(stretches[k]);
    if (verdict != fit_verdict::fits)
      for (const stretch& x : stretches)
        for (const std::uint32_t i : x.blocks) offset_[i] = -1;
    return verdict;
  }

  /// Places block `i` at its lowest offset, and raises the blocks that it meets.
  void put(std::uint32_t i, range& changed) {
    offset_[i] = low_[i];
    const std::int64_t top = low_[i] + size_[i];
    for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) open_[s] -= size_[i];
    changed.include(c_.first[i], c_.last[i]);
    for (const std::uint32_t j : neighbours_[i]) {
      if (offset_[j] >= 0) continue;
      if (low_[j] < top) raise(j, next(j, top), changed);
      if (support_[j] < top) set(support_[j], next(j, top));
    }
    clock_.work(neighbours_[i].size());
  }

  /// Raises `low` of block `i`, which does not lie there: some open block that lies lower than the top of block `i`
  /// would be in the way. False if no such block is left.
  [[nodiscard]] bool exclude(std::uint32_t i, range& changed) {
    const std::int64_t top = low_[i] + size_[i];
    std::int64_t least = rules_.support ? no_offset : low_[i] + 1;
    for (const std::uint32_t j : neighbours_[i])
      if (rules_.support && offset_[j] < 0 && low_[j] < top) least = std::min(least, low_[j] + size_[j]);
    clock_.work(neighbours_[i].size());
    if (least > height_ - size_[i]) return false;  // `no_offset`, too
    least = next(i, least);
    if (least > height_ - size_[i]) return false;
    if (least > low_[i]) raise(i, least, changed);
    return true;
  }

  void raise(std::uint32_t i, std::int64_t low, range& changed) {
    set(low_[i], low);
    changed.include(c_.first[i], c_.last[i]);
  }

  /// Computes the floors of the sections again. False if the open blocks of one of them do not fit.
  [[nodiscard]] bool refloor(const stretch& p, range changed) {
    if (changed.is_empty()) return true;
    for (std::uint32_t s = changed.from; s <= changed.to; ++s) set(floor_[s], no_offset);
    bool fits = true;
    std::uint64_t work = p.blocks.size() + (changed.to - changed.from);
    for (const std::uint32_t i : p.blocks) {
      if (offset_[i] >= 0 || c_.first[i] > changed.to || c_.last[i] < changed.from) continue;
      const std::uint32_t from = std::max(c_.first[i], changed.from), to = std::min(c_.last[i], changed.to);
      const std::int64_t low = low_[i];
      for (std::uint32_t s = from; s <= to; ++s) floor_[s] = std::min(floor_[s], low);
      fits &= low <= height_ - size_[i];
      work += (to - from) / 4;
    }
    clock_.work(work);
    return fits && (!rules_.sections || may_fit(changed.from, changed.to, 0));
  }

  /// The least floor of the sections that have open blocks; the largest number if all blocks are placed.
  [[nodiscard]] std::int64_t lowest_floor(const stretch& p) const {
    std::int64_t least = no_offset;
    for (std::uint32_t s = p.from; s <= p.to; ++s) least = std::min(least, open_[s] != 0 ? floor_[s] : least);
    return least;
  }

  /// False if in one of the sections the open blocks, none of which lies below `at`, do not fit.
  [[nodiscard]] bool may_fit(std::uint32_t from, std::uint32_t to, std::int64_t at) const {
    bool fits = true;
    for (std::uint32_t s = from; s <= to; ++s) fits &= open_[s] == 0 || std::max(floor_[s], at) <= height_ - open_[s];
    return fits;
  }

  /// The section with the largest open size of those whose floor is `at`.
  [[nodiscard]] std::uint32_t tightest_section(const stretch& p, std::int64_t at) const {
    std::uint32_t best = none;
    for (std::uint32_t s = p.from; s <= p.to; ++s)
      if (open_[s] != 0 && floor_[s] == at && (best == none || open_[s] > open_[best])) best = s;
    return best;
  }

  /// True if block `i` may lie at `at`, the lowest floor.
  [[nodiscard]] bool is_candidate(std::uint32_t i, std::int64_t at) const {
    return offset_[i] < 0 && low_[i] == at && (!rules_.twins || twin_[i] == none || offset_[twin_[i]] >= 0);
  }

  /// Adds the blocks to `choices_` that a node decides on: some of those that may lie at `at`, preferred ones first.
  void choose(const stretch& p, std::int64_t at) {
    if (strategy_.branching == fit_branching::block)
      for (const std::uint32_t i : p.blocks)
        if (is_candidate(i, at)) return choices_.push_back(i);
    const std::uint32_t s = tightest_section(p, at);
    for (const std::uint32_t i : p.blocks)
      if (c_.first[i] <= s && s <= c_.last[i] && offset_[i] < 0 && low_[i] == at) choices_.push_back(i);
  }

  /// Sorts blocks by the order of the strategy, the preferred ones first.
  void sort(row<std::uint32_t>& blocks) const {
    struct key {
      std::array<double, 3> by;
      std::uint32_t block;
    };
    row<key> keys(c_.allocator());
    keys.reserve(blocks.size());
    for (const std::uint32_t i : blocks) {
      const double time = c_.duration[i] * factor_[i], area = time * static_cast<double>(size_[i]);
      const auto load =
          static_cast<double>(*std::max_element(open_.begin() + c_.first[i], open_.begin() + c_.last[i] + 1));
      if (strategy_.order == fit_order::time_area_load)
        keys.push_back({{time, area, load}, i});
      else if (strategy_.order == fit_order::load_area_time)
        keys.push_back({{load, area, time}, i});
      else
        keys.push_back({{load, time, area}, i});
    }
    std::sort(keys.begin(), keys.end(),
              [](const key& a, const key& b) { return a.by != b.by ? a.by > b.by : a.block < b.block; });
    for (std::size_t k = 0; k < keys.size(); ++k) blocks[k] = keys[k].block;
  }

  void set(std::int64_t& value, std::int64_t to) {
    changes_.push_back({&value, value});
    value = to;
  }
  /// Undoes all changes but the first `left`.
  void undo(std::size_t left) {
    for (; changes_.size() > left; changes_.pop_back()) *changes_.back().value = changes_.back().before;
  }

  [[nodiscard]] bool stop_now() { return clock_.work_done() >= until_ || clock_.should_stop(); }

  const component_type& c_;
  Clock& clock_;
  fit_rules rules_;
  std::int64_t unit_ = 0, height_ = 0;
  fit_strategy strategy_;
  std::uint64_t until_ = 0, nodes_ = 0;
  const Allocator memory_ = c_.allocator();
  row<std::int64_t> size_{memory_};              // each block's size
  row<row<std::uint32_t>> neighbours_{memory_};  // the blocks that each block meets
  row<double> factor_{memory_};                  // each block's random factor on its properties
  row<std::uint32_t> twin_{memory_};             // the last equal block before each block
  row<std::int64_t> offset_{memory_};            // each block's offset; −1 if it is not placed
  row<std::int64_t> low_{memory_};               // each block's lowest offset
  row<std::int64_t> support_{memory_};           // the lowest offset above all placed blocks that it meets
  row<std::int64_t> floor_{memory_};             // each section's floor
  row<std::int64_t> open_{memory_};              // each section's open size
  row<std::uint32_t> spanning_{memory_};         // each section's open blocks that are alive in the next, too
  row<std::uint32_t> choices_{memory_};          // the choices of all nodes above the present one, and of that
  row<change> changes_{memory_};                 // changes of `low_`, `support_` and `floor_`, to undo
};

/// Asks whether the component fits the height, with at most `work` units of work. The time of a search has a heavy
/// tail, so all strategies run in turn, each for a short while and then again with another order of blocks; `seed`
/// counts these orders over several calls. The last quarter of the work goes into one run.
///
/// Keeps the packing if it is lower than the one found before. Raises the component's `bound` if the answer is
/// `impossible`. `clock` is that of `search`.
template <class Allocator, class Clock>
fit_verdict fit_in_turn(basic_packing_component<Allocator>& c, fit_search<Allocator, Clock>& search,
                        std::int64_t height, std::uint64_t work, Clock& clock, std::uint64_t& seed) {
  constexpr std::array<fit_strategy, 6> strategies{{{fit_branching::block, fit_order::load_time_area, 0},
                                                    {fit_branching::section, fit_order::load_time_area, 0},
                                                    {fit_branching::section, fit_order::load_area_time, 0},
                                                    {fit_branching::section, fit_order::time_area_load, 0},
                                                    {fit_branching::block, fit_order::load_area_time, 0},
                                                    {fit_branching::block, fit_order::time_area_load, 0}}};
  const std::uint64_t begun = clock.work_done();
  const auto left = [&] { return work - std::min(work, clock.work_done() - begun); };
  row_of<std::int64_t, Allocator> offset(c.allocator());
  fit_verdict verdict = fit_verdict::unknown;
  for (std::uint64_t run = 0; verdict == fit_verdict::unknown && left() > 0 && !clock.should_stop(); ++run) {
    fit_strategy strategy = strategies[run % strategies.size()];
    strategy.seed = seed;
    if (run % strategies.size() == strategies.size() - 1) ++seed;
    std::uint64_t restart = fit_search<Allocator, Clock>::restart_work(c) * (2 + run / strategies.size()) / 2;
    if (left() < work / 4) restart = work;  // the last run is a long one, for a proof
    verdict = search(height, strategy, std::min(restart, left()), offset);
  }
  if (verdict == fit_verdict::fits) c.keep_if_lower(offset);
  if (verdict == fit_verdict::impossible) c.bound = std::max(c.bound, (height / search.unit() + 1) * search.unit());
  return verdict;
}

}  // namespace REMAT_NAMESPACE::detail
