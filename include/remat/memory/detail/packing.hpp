// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "remat/core/detail/random.hpp"
#include "remat/memory/detail/component.hpp"
#include "remat/memory/detail/fit.hpp"
#include "remat/memory/detail/skyline.hpp"
#include "remat/memory/detail/squeeze.hpp"

/// \file
/// The one engine that packs components: `plan_memory`, `fit_memory` and `arena_planner` call it. A `Clock` has
/// `work(units)`, `work_done()` and `should_stop()`, as `run_clock`.

namespace REMAT_NAMESPACE::detail {

/// When the search may end. Heights are in units of the alignment.
struct packing_goal {
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
  static constexpr std::uint64_t no_work_limit = std::numeric_limits<std::uint64_t>::max();

  std::int64_t least;       // a packing of this height ends the search
  std::int64_t capacity;    // `fit_memory`'s, else `unlimited`: the proof that no packing fits it ends the search
  std::int64_t near_bound;  // a packing of this height ends the search after `work`
  std::uint64_t work;
};

/// The state that the searches of all components share.
struct shared_search {
  packing_goal goal{};
  std::uint64_t seed = 0;
  std::uint64_t fitted = 0;  // the work of all depth-first searches
  std::uint64_t moves = 0;   // moves of the local searches
  std::uint64_t nodes = 0;   // nodes of the depth-first searches
};

/// Improves one component until it reaches the goal, is proven the lowest, or the clock says to stop.
template <class Allocator, class Clock>
class component_search {
  template <class T>
  using row = row_of<T, Allocator>;
  using fitting = fit_search<Allocator, Clock>;

 public:
  component_search(basic_packing_component<Allocator>& c, Clock& clock, shared_search& all)
      : c_(c), clock_(clock), all_(all), goal_(all.goal) {}

  void run() {
    for (std::uint64_t sweep = 0; !is_done(); ++sweep) {
      fit_stepwise();
      const std::uint64_t doubled = std::min<std::uint64_t>(sweep, 20);
      if (goal_.work == packing_goal::no_work_limit) pack_again(doubled);
      if (is_done()) return;
      const std::uint64_t work = (sweep == 0 ? std::uint64_t{4'000'000} : std::uint64_t{16'000'000}) << doubled / 2;
      if (is_far() && goal_.near_bound > c_.load && c_.rules.empty()) {  // far above the bound, packing anew helps most
        repack(c_, goal_.near_bound, sweep % 2 == 0 ? push_policy::never : push_policy::sometimes, work, clock_,
               all_.seed + sweep, all_.moves);
        if (is_far() && sweep % 4 != 0) continue;
      }
      squeeze_stepwise(sweep, doubled, work);
    }
  }

 private:
  static constexpr std::uint32_t small = 16;         // blocks: a depth-first search takes no time
  static constexpr std::uint64_t packings = 64;      // packings on a skyline in the first sweep, at least; they double
  static constexpr std::uint32_t max_fitted = 2048;  // blocks: a depth-first search of more hardly ends
  static constexpr std::uint64_t first_fit_work = 20'000'000;

  [[nodiscard]] bool is_far() const { return c_.height > goal_.near_bound; }
  [[nodiscard]] bool is_done() const {
    return c_.height <= goal_.least || c_.is_optimal() || c_.bound > goal_.capacity || clock_.should_stop() ||
           (!is_far() && local_work() >= goal_.work);
  }

  [[nodiscard]] std::uint64_t local_work() const { return clock_.work_done() - all_.fitted; }

  /// The work that the depth-first search may still do: as much as the local search has done; if the answer need only
  /// be near the bound, an eighth of that.
  [[nodiscard]] std::uint64_t work_to_fit() const {
    const std::uint64_t share = goal_.work == packing_goal::no_work_limit ? local_work() + first_fit_work
                                : c_.blocks() <= small                    ? first_fit_work / 10
                                                                          : local_work() / 8;
    return share - std::min(share, all_.fitted);
  }

  /// Searches depth-first while `work_to_fit` lasts. Each round has more work for each height.
  void fit_stepwise() {
    const std::uint64_t least_work = 6 * fitting::restart_work(c_);
    if (is_done() || c_.blocks() > max_fitted || work_to_fit() < least_work) return;
    fitting search(c_, clock_);
    for (; !is_done() && work_to_fit() >= least_work; fit_work_ += fit_work_ / 4) {
      fit_work_ = std::max(fit_work_, least_work);
      fit_round(search);
    }
    all_.nodes += search.nodes();
  }

  /// Tries the least height, then halves of the way to it. At last comes the greatest height below the present one,
  /// because it is the easiest to prove impossible.
  void fit_round(fitting& search) {
    const auto fits = [&](std::int64_t height) {
      const std::uint64_t before = clock_.work_done();
      const fit_verdict verdict =
          fit_in_turn(c_, search, height, std::min(fit_work_, work_to_fit()), clock_, fit_seed_);
      all_.fitted += clock_.work_done() - before;
      return verdict == fit_verdict::fits;
    };
    const auto least = [&] { return std::max(goal_.least, c_.bound); };
    if (fits(least()) || goal_.capacity != packing_goal::unlimited) return;
    std::int64_t failed = least();
    while (!is_done() && work_to_fit() > 0 && c_.height - failed > std::max(2 * search.unit(), c_.load / 2048)) {
      const std::int64_t target = failed + (c_.height - failed) / 2;
      if (!fits(target)) failed = target;
    }
    if (!is_done() && c_.height - 1 >= least()) fits(c_.height - 1);
  }

  /// Packs on a skyline again and again, by length^p × size × a random factor: quick if there are many blocks, for
  /// which a move of the local search takes long. A block that ends above the goal ranks higher in the next ones; and
  /// in every second packing those of a section whose load is near the largest come first.
  void pack_again(std::uint64_t doubled) {
    std::uint64_t covered = 0;
    for (std::uint32_t i = 0; i < c_.blocks(); ++i) covered += c_.length(i);
    const std::uint64_t times = std::max<std::uint64_t>(packings, covered / c_.blocks()) << doubled;
    skyline_packer pack(c_);
    random_source random(all_.seed + times);
    const std::uint32_t n = c_.blocks();
    row<std::int64_t> load(c_.sections + 1, 0, c_.allocator());
    for (std::uint32_t i = 0; i < n; ++i) {
      load[c_.first[i]] += c_.size[i];
      load[c_.last[i] + 1] -= c_.size[i];
    }
    for (std::uint32_t s = 0; s < c_.sections; ++s) load[s + 1] += load[s];
    row<double> weight(n, 1, c_.allocator());
    row<std::uint32_t> full(c_.sections + 1, 0, c_.allocator()), rank(n, 0, c_.allocator());
    row<std::pair<double, std::uint32_t>> keys(c_.allocator());
    for (std::uint64_t k = 0; k < times && !is_done(); ++k) {
      const double noise = 0.25 * static_cast<double>(k / 8 % 4), u = random.uniform();
      const double near = k % 2 == 0 ? 2 : 1 - 0.2 * u * u;
      keys.clear();
      for (std::uint32_t s = 0; s < c_.sections; ++s)
        full[s + 1] = full[s] + (static_cast<double>(load[s]) >= near * static_cast<double>(c_.load) ? 1 : 0);
      for (std::uint32_t i = 0; i < n; ++i) {
        const double length = c_.length(i),
                     powers[] = {length, std::sqrt(length), length * length, length * length * length};
        const double first = full[c_.last[i] + 1] != full[c_.first[i]] ? 1e6 : 1;
        keys.emplace_back(
            powers[k / 2 % 4] * static_cast<double>(c_.size[i]) * first * weight[i] * (1 + noise * random.uniform()),
            i);
      }
      std::sort(keys.begin(), keys.end());
      for (std::uint32_t r = 0; r < n; ++r) rank[keys[r].second] = r + 1;
      row<std::int64_t> offset = pack(rank);
      for (std::uint32_t i = 0; i < n; ++i)
        weight[i] = (0.2 + 0.8 * weight[i]) * (offset[i] + c_.size[i] > goal_.least ? 1.5 : 1);
      c_.keep_if_lower(offset);
      clock_.work(64 * std::uint64_t{n});
    }
  }

  /// Squeezes the packing by halves of the way to the least height, which is quicker than the least height at once; for
  /// the least height itself, every move pushes.
  void squeeze_stepwise(std::uint64_t sweep, std::uint64_t doubled, std::uint64_t max_work) {
    squeezer squeeze(c_, clock_, all_.seed + sweep);
    const auto fits = [&](std::int64_t target, push_policy policy) {
      const std::uint64_t work = std::min(squeeze.push_work() << (6 + doubled),
                                          is_far() ? max_work : goal_.work - std::min(goal_.work, local_work()));
      row<std::int64_t> offset = c_.offset;
      const bool squeezed = squeeze(target, offset, policy, work);
      if (squeezed) c_.keep_if_lower(offset);
      return squeezed;
    };
    const auto is_close = [&] { return c_.height - goal_.least <= goal_.least / 64; };
    if (is_close()) fits(goal_.least, push_policy::always);
    std::int64_t failed = goal_.least;
    while (!is_done() && c_.height - failed > (is_close() ? goal_.least / 1024 : goal_.least / 256)) {
      const std::int64_t target = failed + (c_.height - failed) / 2;
      if (!fits(target, push_policy::sometimes) && !fits(target, push_policy::always)) failed = target;
    }
    if (!is_done()) fits(goal_.least, push_policy::always);
    all_.moves += squeeze.moves();
  }

  basic_packing_component<Allocator>& c_;
  Clock& clock_;
  shared_search& all_;
  const packing_goal& goal_;
  std::uint64_t fit_seed_ = 0;
  std::uint64_t fit_work_ = first_fit_work / 16;  // the work of the next round of depth-first search, for each height
};

/// Packs a component by the heuristics that make no moves; all after the first only while the clock permits.
template <class Allocator, class Clock>
void pack_first(basic_packing_component<Allocator>& c, std::int64_t low_enough, Clock& clock) {
  constexpr std::uint32_t few = 4096;  // blocks for which the quadratic time of first fit pays
  skyline_packer pack(c);
  for (const block_property by : {block_property::lifetime, block_property::area, block_property::size}) {
    if (!c.offset.empty() && (c.height <= low_enough || clock.should_stop())) break;
    const auto rank = ranks_by(by, c);
    auto offset = pack(rank);
    c.keep_if_lower(offset);
    clock.work(16 * std::uint64_t{c.blocks()});
    if (by == block_property::lifetime || c.height <= low_enough || c.blocks() > few || clock.should_stop()) continue;
    offset = first_fit(c, rank);
    c.keep_if_lower(offset);
    clock.work(std::uint64_t{c.blocks()} * c.blocks() / 4);
  }
}

/// The highest component: the arena is as high as it. Precondition: there is a component.
template <class Components>
[[nodiscard]] auto& highest_component(Components& components) {
  return *std::max_element(components.begin(), components.end(),
                           [](const auto& a, const auto& b) { return a.height < b.height; });
}

/// True if it is proven that one of the components does not fit `capacity`.
template <class Components>
[[nodiscard]] bool is_any_above(const Components& components, std::int64_t capacity) {
  return std::any_of(components.begin(), components.end(), [&](const auto& c) { return c.bound > capacity; });
}

/// The blocks that find a place below `height` wherever the others lie: if all blocks that a block meets were packed
/// with gaps below each of them that are just too small for it, it would still fit above them. O(n) time.
template <class Allocator>
[[nodiscard]] row_of<std::uint8_t, Allocator> easy_blocks(const basic_packing_component<Allocator>& c,
                                                          std::int64_t height) {
  struct total {
    std::int64_t blocks, size;
  };
  row_of<total, Allocator> begun(c.sections + 1, total{0, 0}, c.allocator()), ended = begun;  // sums up to each section
  const auto add = [&](total& t, std::uint32_t i) { t = {t.blocks + 1, t.size + c.size[i]}; };
  for (std::uint32_t i = 0; i < c.blocks(); ++i) {
    add(begun[c.first[i] + 1], i);
    add(ended[c.last[i] + 1], i);
  }
  for (auto* const sums : {&begun, &ended})
    for (std::uint32_t s = 0; s < c.sections; ++s)
      (*sums)[s + 1] = {(*sums)[s].blocks + (*sums)[s + 1].blocks, (*sums)[s].size + (*sums)[s + 1].size};
  row_of<std::uint8_t, Allocator> out(c.blocks(), 0, c.allocator());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) {
    const total &all = begun[c.last[i] + 1], &before = ended[c.first[i]];
    const std::int64_t met = all.blocks - before.blocks - 1, free = height - (all.size - before.size - c.size[i]);
    out[i] = free >= c.size[i] && (c.size[i] == 1 || (free - c.size[i]) / (c.size[i] - 1) >= met) ? 1 : 0;
  }
  return out;
}

template <class Components, class Clock>
void pack_components(Components& components, Clock& clock, shared_search& all);

/// Improves a component. If most of its blocks fit anyway, the search packs the others alone, and these fill the gaps.
template <class Allocator, class Clock>
void improve(basic_packing_component<Allocator>& c, Clock& clock, shared_search& all) {
  constexpr std::uint32_t few = 512;  // blocks
  if (c.blocks() > few && c.rules.empty()) {
    const auto easy = easy_blocks(c, std::max(all.goal.least, c.load));
    const auto hard = static_cast<std::uint32_t>(std::count(easy.begin(), easy.end(), 0));
    clock.work(4 * std::uint64_t{c.blocks()});
    if (hard < c.blocks() / 4 * 3) {
      auto cores = some_blocks(c, [&](std::uint32_t i) { return easy[i] == 0; });
      row_of<std::int64_t, Allocator> offset(c.allocator());
      for (auto& x : cores) {
        offset.clear();
        for (const std::size_t i : x.id) offset.push_back(c.offset[i]);
        x.keep_if_lower(offset);
      }
      pack_components(cores, clock, all);
      offset.assign(c.blocks(), -1);
      for (const auto& x : cores) {
        c.bound = std::max(c.bound, x.bound);
        for (std::uint32_t i = 0; i < x.blocks(); ++i) offset[x.id[i]] = x.offset[i];
      }
      fill_gaps(c, offset);
      c.keep_if_lower(offset);
      return;
    }
  }
  component_search(c, clock, all).run();
}

/// Packs all components, and improves the highest one again and again until the goal is reached or the clock says to
/// stop.
template <class Components, class Clock>
void pack_components(Components& components, Clock& clock, shared_search& all) {
  const packing_goal& goal = all.goal;
  for (auto& c : components) pack_first(c, goal.least, clock);
  while (!components.empty() && !is_any_above(components, goal.capacity)) {
    auto& c = highest_component(components);
    if (c.height <= goal.least || c.is_optimal() || clock.should_stop()) break;
    if (c.height <= goal.near_bound && clock.work_done() - all.fitted >= goal.work) break;
    improve(c, clock, all);
  }
}

}  // namespace REMAT_NAMESPACE::detail
