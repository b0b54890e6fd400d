// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/partition.hpp"

namespace REMAT_NAMESPACE {

/// The inside of the public type: ways to run sub-graphs that have been solved before.
class way_cache {
 public:
  /// The settings on which ways depend, beside the sub-graph.
  struct settings {
    std::uint32_t peaks = 0;        ///< `way_search::peaks`
    std::size_t max_budgets = 0;    ///< `way_search::max_budgets`
    std::size_t max_ways = 0;       ///< `way_search::max_ways`
    std::uint64_t moves = 0;        ///< `way_search::moves`
    std::uint64_t seed = 0;         ///< the seed of the random numbers
    std::uint64_t solvers_key = 0;  ///< tells the ways of different solvers apart
    friend bool operator==(const settings&, const settings&) = default;
  };

  /// The ways of a known sub-graph that is equal to `runs.sub_graph()` up to renaming and times, measured for `runs`.
  /// Nothing for an unknown sub-graph.
  [[nodiscard]] std::optional<std::vector<detail::sub_graph_way>> find(const detail::sub_graph_runs& runs,
                                                                       const settings& with) const {
    const std::uint64_t key = fingerprint(runs.sub_graph(), likeness());
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end()) return std::nullopt;
    for (const entry& e : at->second) {
      if (e.with != with) continue;
      const std::optional<detail::sub_graph_mapping> mapping = find_isomorphism(runs.sub_graph(), *e.known, likeness());
      if (mapping) return translate(e.ways, *mapping, runs);
    }
    return std::nullopt;
  }
  /// Keeps the ways of `sub_graph`, and a copy of it.
  void add(const detail::sub_graph& sub_graph, const settings& with, std::vector<detail::sub_graph_way> ways) {
    const std::uint64_t key = fingerprint(sub_graph, likeness());
    const std::lock_guard lock(mutex_);
    entries_[key].push_back({std::make_shared<const detail::sub_graph>(sub_graph), with, std::move(ways)});
  }

  /// The number of sub-graphs.
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [key, list] : entries_) count += list.size();
    return count;
  }

  /// The test of equality: times are not compared, since no two measured times are equal. A way of a sub-graph is good
  /// for another sub-graph with about the same times; it is measured anew there.
  [[nodiscard]] static detail::isomorphism_options likeness() {
    detail::isomorphism_options options;
    options.times = false;
    return options;
  }

 private:
  struct entry {
    std::shared_ptr<const detail::sub_graph> known;
    settings with;
    std::vector<detail::sub_graph_way> ways;
  };
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::vector<entry>> entries_;
};

}  // namespace REMAT_NAMESPACE
