// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/treewidth/detail/adjacency.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

namespace width_bound {

/// Contracts edges of a graph until no better bound can be met.
class contractor {
 public:
  contractor(const undirected_graph& g, std::uint64_t seed, stop_function stop)
      : rows_(g.num_vertices()),
        random_(seed),
        gone_(g.num_vertices(), 0),
        mark_(g.num_vertices(), undirected_graph::none),
        poll_(stop) {
    for (std::uint32_t v = 0; v < rows_.size(); ++v) rows_[v].assign(g.neighbours(v).begin(), g.neighbours(v).end());
  }

  std::uint32_t run() {
    std::uint32_t bound = 0;
    auto left = static_cast<std::uint32_t>(rows_.size());
    for (std::uint32_t v = 0; v < rows_.size(); ++v) push(v);
    while (!queue_.empty() && left > bound + 1 && !poll_.stopped()) {
      const entry top = queue_.top();
      queue_.pop();
      if (gone_[top.vertex] || top.degree != rows_[top.vertex].size()) continue;
      bound = std::max(bound, top.degree);
      gone_[top.vertex] = 1;
      --left;
      if (!rows_[top.vertex].empty()) contract(top.vertex);
    }
    return bound;
  }

 private:
  /// A vertex and its degree when it was queued; void once the degree has changed.
  struct entry {
    std::uint32_t degree, tie, vertex;
    bool operator<(const entry& o) const noexcept {
      if (degree != o.degree) return degree > o.degree;
      return tie != o.tie ? tie > o.tie : vertex > o.vertex;
    }
  };

  void push(std::uint32_t v) {
    queue_.push({static_cast<std::uint32_t>(rows_[v].size()), static_cast<std::uint32_t>(random_.next() >> 40U), v});
  }

  /// The neighbour of v with the fewest neighbours in common with v.
  std::uint32_t partner_of(std::uint32_t v) {
    ++stamp_;
    for (const std::uint32_t u : rows_[v]) mark_[u] = stamp_;
    std::uint32_t partner = rows_[v][0], fewest = undirected_graph::none, ties = 0;
    for (const std::uint32_t u : rows_[v]) {
      if (poll_.count(8 + rows_[u].size())) break;
      std::uint32_t common = 0;
      for (const std::uint32_t w : rows_[u]) common += mark_[w] == stamp_;
      if (common < fewest) {
        fewest = common;
        partner = u;
        ties = 1;
      } else if (common == fewest && random_.below(++ties) == 0) {
        partner = u;
      }
    }
    return partner;
  }

  /// Contracts v into its partner.
  void contract(std::uint32_t v) {
    const std::uint32_t into = partner_of(v);
    if (poll_.stopped()) return;
    for (const std::uint32_t u : rows_[v]) {
      std::vector<std::uint32_t>& row = rows_[u];
      row.erase(std::lower_bound(row.begin(), row.end(), v));
      (void)poll_.count(8 + row.size() / 8);
      if (u == into) continue;
      const auto to = std::lower_bound(row.begin(), row.end(), into);
      if (to == row.end() || *to != into)
        row.insert(to, into);
      else
        push(u);
    }
    add_to_row(rows_[into], rows_[v], into, merged_);
    push(into);
    rows_[v] = {};
  }

  std::vector<std::vector<std::uint32_t>> rows_;  // vertex → its neighbours, ascending
  random_source random_;
  std::priority_queue<entry> queue_;
  std::vector<std::uint8_t> gone_;
  std::vector<std::uint32_t> mark_, merged_;
  std::uint32_t stamp_ = 0;
  stop_poll poll_;
};

}  // namespace width_bound

/// A lower bound on the treewidth (minor-min-width, also called contraction degeneracy).
///
/// The least degree of a graph is a lower bound on its treewidth, and contracting an edge does not increase the
/// treewidth. So the largest least degree met while edges are contracted is a lower bound, too. Each step contracts a
/// vertex of least degree into the neighbour with which it has the fewest neighbours in common (least-c, Bodlaender and
/// Koster \cite bodlaender2011lower). Ties are broken at random by `seed`.
///
/// `stop` is asked every fraction of a millisecond. Once it answers true, the bound found so far is returned.
/// O(vertices · largest degree of the contracted graphs · log) time.
[[nodiscard]] inline std::uint32_t contraction_bound(const undirected_graph& g, std::uint64_t seed = 0,
                                                     stop_function stop = nullptr) {
  return width_bound::contractor(g, seed, stop).run();
}

}  // namespace REMAT_NAMESPACE::detail
