// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_joint.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/run.hpp"
#include "remat/mip/model.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"

namespace REMAT_NAMESPACE::detail {

/// The bound of several moments together, with whole tensors, for schedules faster than the best one. It begins with
/// the best chain, or with the best moment. Each slice goes on where the last one ended.
[[nodiscard]] inline portfolio_part joint_bound_part(const part_setting& s) {
  const auto search = std::make_shared<std::unique_ptr<moment_joint>>();
  portfolio_part part;
  part.name = "joint moments";
  part.first_share = 0.1;
  part.run = [&s, search](const pool_view& now, run_clock& clock) {
    if (*search == nullptr) {
      std::vector<std::uint32_t> moments{static_cast<std::uint32_t>(index(now.moment.moment))};
      if (now.chain != nullptr && !now.chain->moments.empty()) moments = now.chain->moments;
      *search = std::make_unique<moment_joint>(s.instance, std::move(moments));
    }
    moment_joint& joint = **search;
    std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    if (clock.control().has_work_limit())
      most = std::min(clock.work_left(), most / mip_operations_per_work) * mip_operations_per_work;
    const std::uint64_t before = joint.work();
    const double needed = s.instance.graph().needed_time, enough = now.closing_bound(s.gap);
    const auto proven = [&] { return std::min(enough, sum_below(needed, joint.bound())); };
    joint.run(sum_below(enough, -needed), most, [&] {
      clock.report({.lower_bound = proven()});
      return clock.should_stop();
    });
    clock.work((joint.work() - before) / mip_operations_per_work);
    part_slice slice;
    slice.found.proven = true;
    slice.found.lower_bound = proven();
    slice.ended = joint.ended();
    return slice;
  };
  part.is_useful = [](const pool_view& now) {
    return now.best.is_within(part_gaps::joint_most) && !now.best.is_within(part_gaps::exact) &&
           now.moment.recomputation > 0;
  };
  return part;
}

}  // namespace REMAT_NAMESPACE::detail
