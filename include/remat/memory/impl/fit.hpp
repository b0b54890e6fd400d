// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/memory/fit.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/random.hpp"

namespace remat::detail::memory_planning {

REMAT_INLINE fit_search::fit_search(const component& c, run_clock& clock, fit_rules rules)
    : c_(c), clock_(clock), rules_(rules), unit_(0), neighbours_(c.blocks()), twin_(c.blocks(), none) {
  for (const std::int64_t size : c.size) unit_ = std::gcd(unit_, size);
  open_.assign(c.sections, 0);
  spanning_.assign(c.sections, 0);
  for (std::uint32_t i = 0; i < c.blocks(); ++i) {
    size_.push_back(c.size[i] / unit_);
    for (std::uint32_t s = c.first[i]; s <= c.last[i]; ++s) open_[s] += size_[i];
    for (std::uint32_t s = c.first[i]; s < c.last[i]; ++s) ++spanning_[s];
    for (std::uint32_t j = i + 1; j < c.blocks() && c.first[j] <= c.last[i]; ++j) {
      neighbours_[i].push_back(j);
      neighbours_[j].push_back(i);
      if (c.first[j] == c.first[i] && c.last[j] == c.last[i] && c.size[j] == c.size[i]) twin_[j] = i;
    }
  }
}

REMAT_INLINE fit_verdict fit_search::operator()(std::int64_t height, fit_strategy strategy, std::uint64_t work,
                                                std::vector<std::int64_t>& offset) {
  if (height < c_.load) return fit_verdict::impossible;
  height_ = height / unit_;
  strategy_ = strategy;
  factor_.assign(c_.blocks(), 1);
  random_source random(strategy.seed);
  if (strategy.seed != 0)
    for (double& factor : factor_) factor = 1 + 0.2 * random.uniform();
  until_ = clock_.work_done() + std::min(work, run_control::no_work_limit - clock_.work_done());
  offset_.assign(c_.blocks(), -1);
  low_.assign(c_.blocks(), 0);
  support_.assign(c_.blocks(), 0);
  floor_.assign(c_.sections, 0);
  piece all{0, c_.sections - 1, std::vector<std::uint32_t>(c_.blocks())};
  std::iota(all.blocks.begin(), all.blocks.end(), 0U);
  const fit_verdict verdict = solve(all);
  if (verdict != fit_verdict::fits) return verdict;
  offset.resize(c_.blocks());
  for (std::uint32_t i = 0; i < c_.blocks(); ++i) offset[i] = offset_[i] * unit_;
  return verdict;
}

REMAT_INLINE bool fit_search::stop_now() { return clock_.work_done() >= until_ || clock_.should_stop(); }

/// Sorts blocks by the order of the strategy, the preferred ones first.
REMAT_INLINE void fit_search::sort(std::vector<std::uint32_t>& blocks) const {
  struct key {
    std::array<double, 3> by;
    std::uint32_t block;
  };
  std::vector<key> keys;
  keys.reserve(blocks.size());
  for (const std::uint32_t i : blocks) {
    const double time = c_.duration[i] * factor_[i], area = time * static_cast<double>(size_[i]);
    const auto load =
        static_cast<double>(*std::max_element(open_.begin() + c_.first[i], open_.begin() + c_.last[i] + 1));
    switch (strategy_.order) {
      case fit_order::time_area_load:
        keys.push_back({{time, area, load}, i});
        break;
      case fit_order::load_area_time:
        keys.push_back({{load, area, time}, i});
        break;
      case fit_order::load_time_area:
        keys.push_back({{load, time, area}, i});
        break;
    }
  }
  std::sort(keys.begin(), keys.end(),
            [](const key& a, const key& b) { return a.by != b.by ? a.by > b.by : a.block < b.block; });
  for (std::size_t k = 0; k < keys.size(); ++k) blocks[k] = keys[k].block;
}

/// Packs the blocks of a piece, none of which is placed.
REMAT_INLINE fit_verdict fit_search::solve(piece& p) {
  sort(p.blocks);
  return descend(p);
}

/// The least floor of the sections that have open blocks; the largest number if all blocks are placed.
REMAT_INLINE std::int64_t fit_search::lowest_floor(const piece& p) const {
  std::int64_t least = no_offset;
  for (std::uint32_t s = p.from; s <= p.to; ++s) least = std::min(least, open_[s] != 0 ? floor_[s] : least);
  return least;
}

/// False if in one of the sections the open blocks, none of which lies below `at`, do not fit.
REMAT_INLINE bool fit_search::may_fit(std::uint32_t from, std::uint32_t to, std::int64_t at) const {
  bool fits = true;
  for (std::uint32_t s = from; s <= to; ++s) fits &= open_[s] == 0 || std::max(floor_[s], at) <= height_ - open_[s];
  return fits;
}

/// Computes the floors of the sections again. False if the open blocks of one of them do not fit.
REMAT_INLINE bool fit_search::refloor(const piece& p, range changed) {
  if (changed.is_empty()) return true;
  for (std::uint32_t s = changed.from; s <= changed.to; ++s) {
    floors_.push_back({s, floor_[s]});
    floor_[s] = no_offset;
  }
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

/// Raises `low` of block `i`, which does not lie there: some open block that lies lower than the top of block `i`
/// would be in the way. False if no such block is left.
REMAT_INLINE bool fit_search::exclude(std::uint32_t i, range& changed) {
  const std::int64_t top = low_[i] + size_[i];
  std::int64_t least = rules_.support ? no_offset : low_[i] + 1;
  for (const std::uint32_t j : neighbours_[i])
    if (rules_.support && offset_[j] < 0 && low_[j] < top) least = std::min(least, low_[j] + size_[j]);
  clock_.work(neighbours_[i].size());
  if (least > height_ - size_[i]) return false;  // `no_offset`, too
  if (least > low_[i]) {
    lows_.push_back({i, low_[i]});
    low_[i] = least;
    changed.include(c_.first[i], c_.last[i]);
  }
  return true;
}

/// Excludes blocks at the lowest floor that lie on no block, until all candidates are supported. `at` becomes the
/// lowest floor. False if this branch has no packing.
REMAT_INLINE bool fit_search::infer(const piece& p, std::int64_t& at) {
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

/// True if block `i` may lie at `at`, the lowest floor.
REMAT_INLINE bool fit_search::is_candidate(std::uint32_t i, std::int64_t at) const {
  return offset_[i] < 0 && low_[i] == at && (!rules_.twins || twin_[i] == none || offset_[twin_[i]] >= 0);
}

/// The section with the largest open size of those whose floor is `at`.
REMAT_INLINE std::uint32_t fit_search::tightest_section(const piece& p, std::int64_t at) const {
  std::uint32_t best = none;
  for (std::uint32_t s = p.from; s <= p.to; ++s)
    if (open_[s] != 0 && floor_[s] == at && (best == none || open_[s] > open_[best])) best = s;
  return best;
}

/// Adds the blocks to `choices_` that a node decides on: some of those that may lie at `at`, preferred ones first.
REMAT_INLINE void fit_search::choose(const piece& p, std::int64_t at) {
  if (strategy_.branching == fit_branching::block)
    for (const std::uint32_t i : p.blocks)
      if (is_candidate(i, at)) return choices_.push_back(i);
  const std::uint32_t s = tightest_section(p, at);
  for (const std::uint32_t i : p.blocks)
    if (c_.first[i] <= s && s <= c_.last[i] && offset_[i] < 0 && low_[i] == at) choices_.push_back(i);
}

/// Packs the open blocks of a piece.
REMAT_INLINE fit_verdict fit_search::descend(const piece& p) {
  const mark begin = now();
  const std::size_t first = choices_.size();
  fit_verdict verdict = fit_verdict::impossible;
  while (verdict == fit_verdict::impossible) {
    choices_.resize(first);
    ++nodes_;
    std::int64_t at = 0;
    if (stop_now()) verdict = fit_verdict::unknown;
    if (verdict == fit_verdict::unknown || !infer(p, at)) break;
    if (at == no_offset) {
      verdict = fit_verdict::fits;
      break;
    }
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

/// Places block `i` at its lowest offset, and raises the blocks that it meets.
REMAT_INLINE void fit_search::put(std::uint32_t i, range& changed) {
  offset_[i] = low_[i];
  const std::int64_t top = low_[i] + size_[i];
  for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) open_[s] -= size_[i];
  changed.include(c_.first[i], c_.last[i]);
  for (const std::uint32_t j : neighbours_[i]) {
    if (offset_[j] >= 0) continue;
    if (low_[j] < top) {
      lows_.push_back({j, low_[j]});
      low_[j] = top;
      changed.include(c_.first[j], c_.last[j]);
    }
    if (support_[j] < top) {
      supports_.push_back({j, support_[j]});
      support_[j] = top;
    }
  }
  clock_.work(neighbours_[i].size());
}

/// Packs the open blocks of a piece with block `i` at its lowest offset. If that is impossible, all is as before.
REMAT_INLINE fit_verdict fit_search::place(const piece& p, std::uint32_t i) {
  const mark begin = now();
  range changed;
  put(i, changed);
  fit_verdict verdict = fit_verdict::impossible;
  if (refloor(p, changed)) {
    std::vector<std::uint32_t> begins{p.from};
    for (std::uint32_t s = c_.first[i]; s < c_.last[i]; ++s)
      if (--spanning_[s] == 0) begins.push_back(s + 1);
    verdict = begins.size() == 1 || !rules_.parts ? descend(p) : solve_parts(p, begins);
    for (std::uint32_t s = c_.first[i]; s < c_.last[i]; ++s) ++spanning_[s];
  }
  undo(begin);
  for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) open_[s] += size_[i];
  if (verdict != fit_verdict::fits) offset_[i] = -1;
  return verdict;
}

/// Packs the parts of a piece that begin at the sections `begins` one by one, those with few open blocks first. No open
/// block spans the begin of a part, so that a part without a packing leaves none for the piece.
REMAT_INLINE fit_verdict fit_search::solve_parts(const piece& p, const std::vector<std::uint32_t>& begins) {
  std::vector<piece> parts;
  for (std::size_t k = 0; k < begins.size(); ++k)
    parts.push_back({begins[k], k + 1 < begins.size() ? begins[k + 1] - 1 : p.to, {}});
  for (const std::uint32_t i : p.blocks) {
    if (offset_[i] >= 0) continue;
    const auto after = std::upper_bound(begins.begin(), begins.end(), c_.first[i]);
    parts[static_cast<std::size_t>(after - begins.begin()) - 1].blocks.push_back(i);
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const piece& a, const piece& b) { return a.blocks.size() < b.blocks.size(); });
  fit_verdict verdict = fit_verdict::fits;
  for (std::size_t k = 0; k < parts.size() && verdict == fit_verdict::fits; ++k)
    if (!parts[k].blocks.empty()) verdict = solve(parts[k]);
  if (verdict != fit_verdict::fits)
    for (const piece& part : parts)
      for (const std::uint32_t i : part.blocks) offset_[i] = -1;
  return verdict;
}

REMAT_INLINE void fit_search::undo(const mark& m) {
  const auto restore = [](std::vector<change>& changes, std::size_t left, std::vector<std::int64_t>& values) {
    while (changes.size() > left) {
      values[changes.back().at] = changes.back().before;
      changes.pop_back();
    }
  };
  restore(floors_, m.floor, floor_);
  restore(lows_, m.low, low_);
  restore(supports_, m.support, support_);
}

REMAT_INLINE fit_verdict fit(component& c, fit_search& search, std::int64_t height, std::uint64_t work,
                             run_clock& clock, std::uint64_t& seed) {
  constexpr std::array<fit_strategy, 6> strategies{{{fit_branching::block, fit_order::load_time_area, 0},
                                                    {fit_branching::section, fit_order::load_time_area, 0},
                                                    {fit_branching::section, fit_order::load_area_time, 0},
                                                    {fit_branching::section, fit_order::time_area_load, 0},
                                                    {fit_branching::block, fit_order::load_area_time, 0},
                                                    {fit_branching::block, fit_order::time_area_load, 0}}};
  const std::uint64_t begun = clock.work_done();
  const auto left = [&] { return work - std::min(work, clock.work_done() - begun); };
  std::vector<std::int64_t> offset;
  fit_verdict verdict = fit_verdict::unknown;
  for (std::uint64_t run = 0; verdict == fit_verdict::unknown && left() > 0 && !clock.should_stop(); ++run) {
    fit_strategy strategy = strategies[run % strategies.size()];
    strategy.seed = seed;
    if (run % strategies.size() == strategies.size() - 1) ++seed;
    std::uint64_t restart = fit_search::restart_work(c) * (2 + run / strategies.size()) / 2;
    if (left() < work / 4) restart = work;  // the last run is a long one, for a proof
    verdict = search(height, strategy, std::min(restart, left()), offset);
  }
  if (verdict == fit_verdict::fits) c.keep_if_lower(offset);
  if (verdict == fit_verdict::impossible) c.bound = std::max(c.bound, (height / search.unit() + 1) * search.unit());
  return verdict;
}

}  // namespace remat::detail::memory_planning
