// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/way_cache.hpp"

#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/hierarchy/detail/way_cache.hpp"

namespace remat {

REMAT_INLINE std::shared_ptr<way_cache> make_way_cache() { return std::make_shared<way_cache>(); }

REMAT_INLINE std::optional<std::vector<detail::sub_graph_way>> way_cache::find(const detail::sub_graph_runs& runs,
                                                                               const settings& with) const {
  const std::uint64_t key = fingerprint(runs.part(), likeness());
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(key);
  if (at == entries_.end()) return std::nullopt;
  for (const entry& e : at->second) {
    if (e.with != with) continue;
    const std::optional<detail::sub_graph_mapping> mapping = find_isomorphism(runs.part(), *e.part, likeness());
    if (!mapping) continue;
    std::vector<detail::sub_graph_way> out;
    for (const detail::sub_graph_way& o : e.ways)
      if (std::optional<detail::sub_graph_way> mine = translate(o, *mapping, runs)) out.push_back(std::move(*mine));
    return out;
  }
  return std::nullopt;
}

REMAT_INLINE void way_cache::add(const detail::sub_graph& part, const settings& with,
                                 std::vector<detail::sub_graph_way> ways) {
  const std::uint64_t key = fingerprint(part, likeness());
  const std::lock_guard lock(mutex_);
  entries_[key].push_back({std::make_shared<const detail::sub_graph>(part), with, std::move(ways)});
}

REMAT_INLINE std::size_t way_cache::size() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [key, list] : entries_) count += list.size();
  return count;
}

REMAT_INLINE detail::isomorphism_options way_cache::likeness() {
  detail::isomorphism_options ways;
  ways.times = false;
  return ways;
}

}  // namespace remat
