// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/detail/chain_program.hpp"

#include <algorithm>
#include <utility>

#include "remat/core/detail/linkage.hpp"

namespace remat::detail {

REMAT_INLINE chain_program::chain_program(const flat_graph& g, const forward_line& line, const cut_list& cuts,
                                          stage_order order)
    : graph_(g),
      chain_(g, line, cuts, order),
      rounding_(order == stage_order::listed ? slot_rounding::nearest : slot_rounding::up),
      flat_bytes_(store_all_bytes(chain_)) {
  for (std::uint32_t s = 1; s <= chain_.length(); ++s) flat_time_ += chain_.forward_time(s) + chain_.backward_time(s);
}

REMAT_INLINE void chain_program::set_ways(std::vector<std::vector<stage_way>> further) {
  further_ = 0;
  for (const std::vector<stage_way>& ways : further) further_ += ways.size();
  table_.reset();
  ways_ = std::make_unique<staged_ways>(graph_, chain_, std::move(further));
}

REMAT_INLINE fill_outcome chain_program::fill(run_clock& clock, const chain_program_options& options) {
  table_.reset();
  unit_ = options.slot_bytes > 0 ? options.slot_bytes : flat_bytes_ / options.slots + 1;
  const std::int64_t free_bytes = options.max_bytes - std::min(options.max_bytes, chain_.standing_bytes());
  slots_ = static_cast<std::uint32_t>(std::min<std::int64_t>(options.slots, free_bytes / unit_));
  const slot_scale scale{unit_, slots_, rounding_};
  sizes_ = ways_ ? size_chain(*ways_, scale) : size_chain(chain_, scale);
  double limit = std::numeric_limits<double>::max();
  if (options.max_lost < limit)
    limit = std::max(0.0, flat_time_ + options.max_lost - excess_bound(sizes_).least.back());
  bound_ = excess_bound(sizes_, limit);
  table_ = std::make_unique<slot_table>(sizes_, slots_, bound_);
  clock.work(std::min(table_->rows() * work_of::table_row, clock.work_left()));
  fill_outcome end = fill_outcome::stopped;
  if (!clock.should_stop()) end = table_->fill(clock, options.table_bytes);
  if (end != fill_outcome::filled) table_.reset();
  return end;
}

REMAT_INLINE std::optional<chain_program::entry> chain_program::within(std::int64_t slots) const {
  const auto first = static_cast<std::int64_t>(table_->first());
  for (std::int64_t m = slots; m >= first; --m) {
    const auto at = static_cast<std::uint32_t>(m);
    if (m > first && table_->excess(at - 1) == table_->excess(at)) continue;  // the same time with less memory
    const double time = table_->cost(at);
    return entry{time, time - flat_time_, m * unit_ + chain_.standing_bytes(), m};
  }
  return std::nullopt;
}

REMAT_INLINE std::optional<chain_program::entry> chain_program::fastest() const {
  return within(std::min(table_->last(), slots_));
}

REMAT_INLINE std::optional<chain_program::entry> chain_program::slower_than(const entry& e,
                                                                            std::int64_t bytes_less) const {
  return within(e.slots - bytes_less / unit_ - 1);
}

REMAT_INLINE double chain_program::lost_within(std::int64_t bytes) const {
  const std::int64_t free_bytes = bytes - chain_.standing_bytes();
  if (free_bytes < 0) return std::numeric_limits<double>::infinity();
  const auto m = static_cast<std::uint32_t>(std::min<std::int64_t>(free_bytes / unit_, slots_));
  if (m < table_->first()) return std::numeric_limits<double>::infinity();
  return table_->cost(m) - flat_time_;
}

REMAT_INLINE std::vector<chain_step> chain_program::steps(const entry& e) const {
  return table_->steps(static_cast<std::uint32_t>(e.slots));
}

REMAT_INLINE std::vector<std::uint32_t> chain_program::expand(const std::vector<chain_step>& steps, bool whole) const {
  if (ways_) return whole ? ways_->expand_whole(steps) : ways_->expand(steps);
  return whole ? chain_.expand_whole(steps) : chain_.expand(steps);
}

}  // namespace remat::detail
