// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/run_layers.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/method/rotor/impl/breakpoint_table.hpp"

namespace REMAT_NAMESPACE::detail::on_chain {

/// Looks for a schedule of a long chain whose stages are about alike. It is memory-persistent, and near the best of
/// that kind.
///
/// A range of stages is kept whole if it fits. Otherwise an input is kept, which splits the range in two: `run_layers`,
/// for stages of one size, estimates the runs of both parts. Among equal stages the split is the last one of the
/// least estimate; else all near it are compared, with their own times and sizes. Ranges of at most `leaf` stages are
/// solved by Rotor's program, those of equal stages once for each length and memory.
class layered_search {
 public:
  /// A chain in bytes, each stage with one option, and the memory beside its input. Estimates take it that an input
  /// has `kept` bytes; 0: the mean. Keeps a reference to `c`.
  layered_search(const sized_chain& c, std::int64_t room, bool has_equal_stages, double kept = 0)
      : c_(c),
        room_(room),
        kept_(std::max(kept > 0 ? kept : likely_inputs(c)[0], 1e-3)),
        is_equal_(has_equal_stages),
        layers_(levels(), c.length, 64) {
    time_.push_back(0);
    for (std::uint32_t i = 1; i <= c.length; ++i) time_.push_back(time_.back() + c.stages[i].fast);
  }

  /// Sizes of inputs that are worth a try: the mean first, then some of the smaller ones, since there are many inputs
  /// to choose from where a long range is split.
  [[nodiscard]] static std::vector<double> likely_inputs(const sized_chain& c) {
    std::vector<double> all;
    double sum = 0;
    for (std::uint32_t i = 1; i < c.length; ++i) {
      all.push_back(static_cast<double>(c.stages[i].crossing));
      sum += all.back();
    }
    std::vector<double> out{sum / static_cast<double>(all.size())};
    std::sort(all.begin(), all.end());
    for (const double part : {0.25, 0.1, 0.01}) {
      const double kept = all[static_cast<std::size_t>(part * static_cast<double>(all.size()))];
      if (kept < out.back()) out.push_back(kept);
    }
    return out;
  }

  /// The steps; none if it fails, or if they and the comparisons of splits are more than 2²² and 64 for each stage.
  /// `fill(table)` fills a `breakpoint_table`, and says whether it did.
  template <class Fill>
  [[nodiscard]] std::vector<chain_step> steps(std::uint32_t leaf, const Fill& fill) {
    std::vector<chain_step> out;
    effort_ = (std::int64_t{1} << 22) + std::int64_t{64} * c_.length;
    if (const double runs = runs_of(c_.length, 0); runs < static_cast<double>(effort_))
      out.reserve(static_cast<std::size_t>(1.01 * runs) + c_.length + std::size_t{64});
    if (room_ < least_ || !add({1, c_.length, room_}, leaf, fill, out)) out.clear();
    return out;
  }

 private:
  struct range {
    std::uint32_t s, t;
    std::int64_t memory;
    [[nodiscard]] std::uint32_t length() const { return t - s + 1; }
  };
  [[nodiscard]] const keep_option& way(std::uint32_t i) const { return c_.options[c_.stages[i].first_option]; }

  /// N(·, 1) for stages of mean sizes. Sets the least memory with which any range has a schedule.
  [[nodiscard]] std::vector<std::uint64_t> levels() {
    const std::uint32_t n = c_.length - 1;
    double turn = 0, saved = 0;
    for (std::uint32_t i = 1; i <= n; ++i) {
      const std::int64_t alone = c_.keep_need(way(i), i, i, 0), input = i > 1 ? c_.stages[i - 1].crossing : 0;
      least_ = std::max({least_, input + alone, c_.stages[i].gradient + input + c_.stages[i].fast_need});
      turn += static_cast<double>(alone);
      saved += static_cast<double>(way(i).saved);
    }
    saved = std::max(saved / n, 1e-3);
    const double slack = kept_ * 1e-6, left = static_cast<double>(room_) - turn / n + slack;
    std::vector<std::uint64_t> whole;
    while (left >= static_cast<double>(whole.size()) * kept_ && whole.size() <= n) {
      const double fit = (left - static_cast<double>(whole.size()) * kept_) / saved;
      whole.push_back(1 + static_cast<std::uint64_t>(std::min(fit, static_cast<double>(n))));
    }
    return whole;
  }

  /// How many inputs are kept where so much memory is left.
  [[nodiscard]] double level_of(std::int64_t memory) const {
    return static_cast<double>(room_ - memory) / kept_ + 1e-6;
  }
  /// The time of a range of `l` stages whose forwards take `time`, as far as the layers know it.
  [[nodiscard]] double estimate(double time, std::uint32_t l, std::int64_t memory) const {
    const double level = level_of(memory);
    const auto a = static_cast<std::size_t>(level);
    const double runs = runs_of(l, a), part = level - static_cast<double>(a);
    return time / l * (part > 1e-5 ? runs + part * (runs_of(l, a + 1) - runs) : runs);
  }
  [[nodiscard]] double runs_of(std::uint32_t l, std::size_t a) const {
    if (a >= layers_.levels() || layers_.runs_of_one_more(l, a) == layers_.depth()) return 1e300;
    return static_cast<double>(layers_.runs(l, a));
  }

  [[nodiscard]] bool fits_whole(const range& r) const {
    std::int64_t left = r.memory;
    for (std::uint32_t i = r.s; i <= r.t && left >= 0; left -= way(i++).saved)
      if (c_.keep_need(way(i), i, r.t, 0) > left) return false;
    return left >= 0;
  }
  [[nodiscard]] bool is_feasible(const range& r) const { return r.memory >= least_ || fits_whole(r); }

  /// The first stage of the right part: the last of the range, if no other is better.
  [[nodiscard]] std::uint32_t split(const range& r) {
    if (!is_equal_ || r.t == c_.length) return find_split(r);
    std::uint32_t& left = splits_[{r.memory, r.length()}];
    if (left == 0) left = find_split(r) - r.s;
    return r.s + left;
  }
  [[nodiscard]] std::uint32_t find_split(const range& r) {
    const std::uint32_t l = r.length();
    const auto a = static_cast<std::size_t>(level_of(r.memory));
    std::uint32_t low = 1, high = l - 1;  // more stages in the left part cost more from `high` on
    if (a + 1 < layers_.levels())
      while (low < high) {
        const std::uint32_t middle = low + (high - low) / 2;
        if (1 + layers_.runs_of_one_more(middle + 1, a) > layers_.runs_of_one_more(l - middle, a + 1))
          high = middle;
        else
          low = middle + 1;
      }
    constexpr std::uint32_t widest = 4096;
    const std::uint32_t window = is_equal_ ? 0 : std::min(l, widest);
    std::uint32_t best = r.t;
    double least = std::numeric_limits<double>::infinity();
    for (std::uint32_t j = high > window ? high - window : 1; j <= std::min(high + window, l - 1); ++j) {
      const std::uint32_t at = r.s + j;
      const double left = time_[at - 1] - time_[r.s - 1], right = time_[r.t] - time_[at - 1];
      const std::int64_t memory = r.memory - c_.stages[at - 1].crossing;
      // A later split is better than an earlier one of about the same estimate, as among equal stages.
      const double time = (left + estimate(left, j, r.memory) + estimate(right, l - j, memory)) * (1 - 0.002 * j / l);
      effort_ -= 4;
      if (time >= least || !is_feasible({at, r.t, memory})) continue;
      best = at;
      least = time;
    }
    return best;
  }

  template <class Fill>
  bool add(const range& all, std::uint32_t leaf, const Fill& fill, std::vector<chain_step>& out) {
    std::vector<range> open{all};
    while (!open.empty()) {
      const range r = open.back();
      open.pop_back();
      if (fits_whole(r)) {
        for (std::uint32_t i = r.s; i <= r.t; ++i) out.push_back({chain_action::forward_all, i});
        for (std::uint32_t i = r.t; i >= r.s; --i) out.push_back({chain_action::backward, i});
        continue;
      }
      if (r.length() == 1 || r.memory < least_ || effort_ < 0) return false;
      if (r.length() <= leaf && add_leaf(r, fill, out)) continue;
      const std::uint32_t j = split(r);
      effort_ -= j - r.s;
      for (std::uint32_t i = r.s; i < j; ++i)
        out.push_back({i == r.s ? chain_action::forward_checkpoint : chain_action::forward_none, i});
      open.push_back({r.s, j - 1, r.memory});
      open.push_back({j, r.t, r.memory - c_.stages[j - 1].crossing});
    }
    return true;
  }

  /// Adds the best steps of a range. False if its table is too large; then the range is split.
  template <class Fill>
  bool add_leaf(const range& r, const Fill& fill, std::vector<chain_step>& out) {
    const bool again = is_equal_ && r.t < c_.length;
    std::vector<chain_step> own;
    std::vector<chain_step>& steps = again ? known_[{r.memory, r.length()}] : own;
    if (steps.empty()) {
      if (!add(r, 0, fill, steps)) return false;
      double excess = -time_[r.t] + time_[r.s - 1];
      for (chain_step& k : steps) {
        if (k.action != chain_action::backward) excess += c_.stages[k.stage].fast;
        k.stage -= r.s - 1;
      }
      const sized_chain part = part_of(r);
      const excess_bound bound(part, std::max(0.0, excess));
      breakpoint_table table(part, r.memory, bound);
      const bool is_filled = fill(table);
      if (!is_filled && !again) return false;
      if (is_filled && !table.frontier().empty()) steps = table.steps(r.memory);
    }
    for (chain_step k : steps) {
      k.stage += r.s - 1;
      out.push_back(k);
    }
    return true;
  }

  [[nodiscard]] sized_chain part_of(const range& r) const {
    sized_chain part;
    part.length = r.length();
    part.stages.push_back({});
    for (std::uint32_t i = r.s; i <= r.t; ++i) {
      part.stages.push_back(c_.stages[i]);
      part.stages.back().first_option = static_cast<std::uint32_t>(part.options.size());
      part.options.push_back(way(i));
      part.stages.back().last_option = static_cast<std::uint32_t>(part.options.size());
    }
    return part;
  }

  const sized_chain& c_;
  std::int64_t room_, least_ = 0, effort_ = 0;
  double kept_;  // the bytes of an input, in estimates
  bool is_equal_;
  run_layers layers_;
  std::vector<double> time_;  // [i]: the forwards of 1 … i
  // The steps from stage 1 on, and the stages of the left part, by memory and length of a range of equal stages.
  std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<chain_step>> known_;
  std::map<std::pair<std::int64_t, std::uint32_t>, std::uint32_t> splits_;
};

}  // namespace REMAT_NAMESPACE::detail::on_chain
