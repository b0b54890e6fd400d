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
  unit_ = flat_bytes_ / options.slots + 1;
  const std::int64_t room = options.most_bytes - std::min(options.most_bytes, chain_.standing_bytes());
  slots_ = static_cast<std::uint32_t>(std::min<std::int64_t>(options.slots, room / unit_));
  const slot_scale scale{unit_, slots_, rounding_};
  sizes_ = ways_ ? size_chain(*ways_, scale) : size_chain(chain_, scale);
  double limit = std::numeric_limits<double>::max();
  if (options.most_lost < limit)
    limit = std::max(0.0, flat_time_ + options.most_lost - excess_bound(sizes_).least.back());
  bound_ = excess_bound(sizes_, limit);
  table_ = std::make_unique<slot_table>(sizes_, slots_, bound_);
  clock.work(std::min<std::uint64_t>(table_->rows(), clock.work_left()));
  fill_outcome end = fill_outcome::stopped;
  if (!clock.should_stop()) end = table_->fill(clock, options.threads, options.table_bytes, nullptr);
  if (end != fill_outcome::filled) table_.reset();
  return end;
}

REMAT_INLINE void chain_program::visit(const visitor& visitor) const {
  const slot_table& table = *table_;
  if (table.first() > slots_) return;
  std::int64_t below =
      static_cast<std::int64_t>(std::min(table.last(), slots_)) + 1;  // slots; the next entry has fewer
  for (std::int64_t m = below; m-- > static_cast<std::int64_t>(table.first());) {
    const auto at = static_cast<std::uint32_t>(m);
    if (at > table.first() && table.excess(at - 1) == table.excess(at)) continue;  // the same time with less memory
    if (m >= below) continue;
    const std::int64_t lower =
        visitor({table.cost(at) - flat_time_, m * unit_ + chain_.standing_bytes(), table.steps(at)});
    if (lower < 0) return;
    below = m - lower / unit_;
  }
}

REMAT_INLINE double chain_program::lost_within(std::int64_t bytes) const {
  const std::int64_t room = bytes - chain_.standing_bytes();
  if (room < 0) return std::numeric_limits<double>::infinity();
  const auto m = static_cast<std::uint32_t>(std::min<std::int64_t>(room / unit_, slots_));
  if (m < table_->first()) return std::numeric_limits<double>::infinity();
  return table_->cost(m) - flat_time_;
}

REMAT_INLINE std::vector<std::uint32_t> chain_program::expand(std::span<const chain_step> steps, bool whole) const {
  if (ways_) return whole ? ways_->expand_whole(steps) : ways_->expand(steps);
  return whole ? chain_.expand_whole(steps) : chain_.expand(steps);
}

}  // namespace remat::detail
