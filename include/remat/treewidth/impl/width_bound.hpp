// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/width_bound.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <queue>
#include <utility>
#include <vector>

#include "remat/core/linkage.hpp"
#include "remat/core/random.hpp"
#include "remat/treewidth/stop_poll.hpp"

namespace remat {

REMAT_INLINE std::uint32_t contraction_bound(const undirected_graph& g, std::uint64_t seed,
                                             const std::function<bool()>* stop) {
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  std::vector<std::vector<std::uint32_t>> rows(n);
  for (std::uint32_t v = 0; v < n; ++v) rows[v].assign(g.neighbours(v).begin(), g.neighbours(v).end());
  random_source random(seed);
  struct entry {
    std::uint32_t degree, tie, vertex;
    bool operator<(const entry& o) const noexcept {
      if (degree != o.degree) return degree > o.degree;
      return tie != o.tie ? tie > o.tie : vertex > o.vertex;
    }
  };
  std::priority_queue<entry> queue;
  const auto push = [&](std::uint32_t v) {
    queue.push({static_cast<std::uint32_t>(rows[v].size()), static_cast<std::uint32_t>(random.next() >> 40U), v});
  };
  for (std::uint32_t v = 0; v < n; ++v) push(v);
  std::vector<std::uint8_t> gone(n, 0);
  std::vector<std::uint32_t> mark(n, undirected_graph::none), merged;
  std::uint32_t bound = 0, left = n, stamp = 0;
  detail::polling::stop_poll poll(stop);
  while (!queue.empty() && left > bound + 1) {
    const entry top = queue.top();
    queue.pop();
    const std::uint32_t v = top.vertex;
    if (gone[v] || top.degree != rows[v].size()) continue;
    if (poll.stopped()) break;
    bound = std::max(bound, top.degree);
    gone[v] = 1;
    --left;
    if (rows[v].empty()) continue;
    ++stamp;
    for (const std::uint32_t u : rows[v]) mark[u] = stamp;
    std::uint32_t into = rows[v][0], fewest = undirected_graph::none, ties = 0;
    for (const std::uint32_t u : rows[v]) {
      std::uint32_t common = 0;
      if (poll.count(8 + rows[u].size())) break;
      for (const std::uint32_t w : rows[u]) common += mark[w] == stamp;
      if (common < fewest) {
        fewest = common;
        into = u;
        ties = 1;
      } else if (common == fewest && random.below(++ties) == 0) {
        into = u;
      }
    }
    if (poll.stopped()) break;
    for (const std::uint32_t u : rows[v]) {
      auto& row = rows[u];
      const auto at = std::lower_bound(row.begin(), row.end(), v);
      row.erase(at);
      (void)poll.count(8 + row.size() / 8);
      if (u == into) continue;
      const auto to = std::lower_bound(row.begin(), row.end(), into);
      if (to == row.end() || *to != into) {
        row.insert(to, into);
      } else {
        push(u);
      }
    }
    std::vector<std::uint32_t>& row = rows[into];
    if (rows[v].size() * 16 < row.size()) {  // a few into many
      for (const std::uint32_t u : rows[v])
        if (const auto at = std::lower_bound(row.begin(), row.end(), u); u != into && (at == row.end() || *at != u))
          row.insert(at, u);
    } else {
      merged.clear();
      std::set_union(row.begin(), row.end(), rows[v].begin(), rows[v].end(), std::back_inserter(merged));
      std::erase(merged, into);
      row = merged;
    }
    push(into);
    rows[v] = {};
  }
  return bound;
}

}  // namespace remat
