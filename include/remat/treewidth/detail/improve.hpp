// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/treewidth/detail/elimination_rule.hpp"
#include "remat/treewidth/detail/reduce.hpp"
#include "remat/treewidth/detail/safe_separators.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

/// Improves a tree decomposition part by part: takes out a connected set of bags around a largest one, decomposes the
/// graph on their vertices anew with less width, and puts the result in their place. It is a large-neighbourhood
/// search, as in Tamaki's heuristic of PACE 2017.
///
/// The part is first reduced for the width sought (`reduce`). Then greedy orders, the exact search (`decide_width`, on
/// at most 512 vertices) and nested dissection (`dissection_ranks`) are tried. If all fail, another decomposition of
/// the part with no more largest bags may take its place, so that the next attempt starts elsewhere.
///
/// Deterministic for a seed, unless `stop` ends an attempt. Precondition: the graph outlives the improver.
class decomposition_improver {
 public:
  /// Starts from the decomposition `tree`. Keeps a reference to `g`. Precondition: `tree` is a valid decomposition of
  /// `g`.
  decomposition_improver(const undirected_graph& g, tree_decomposition tree, std::uint64_t seed)
      : g_(g), random_(seed), number_(g.num_vertices(), undirected_graph::none) {
    reset(std::move(tree));
  }

  /// The decomposition as it is now.
  [[nodiscard]] const tree_decomposition& tree() const noexcept { return tree_; }
  /// The width of `tree()`: the size of the largest bag less one.
  [[nodiscard]] std::int64_t width() const noexcept { return width_; }
  /// Elementary steps so far, of about 10 ns each.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

  /// Goes on from another decomposition of the same graph. Precondition: `tree` is valid. O(sum of bag sizes) time.
  void reset(tree_decomposition tree);

  /// One attempt, with at most `effort` steps of exact search. Returns whether there are fewer largest bags now.
  bool step(std::uint64_t effort, const std::function<bool()>* stop);

  /// An estimate of the elementary steps of one greedy order of a given width.
  static std::uint64_t cost_of_greedy(const undirected_graph& g, std::uint64_t width);

 private:
  /// An elimination order of width at most `target`, or none: greedy orders first, then the exact search, then nested
  /// dissection.
  std::vector<std::uint32_t> order_within(const undirected_graph& g, std::uint32_t target, std::uint64_t effort,
                                          const std::function<bool()>* stop);

  std::vector<std::uint32_t> greedy_within(const undirected_graph& g, std::uint32_t target, elimination_rule rule,
                                           std::span<const std::uint32_t> rank, const std::function<bool()>* stop);

  /// `refuted`: becomes true when the search proves that there is no such order.
  std::vector<std::uint32_t> exact_within(const undirected_graph& g, std::uint32_t target, std::uint64_t effort,
                                          bool& refuted, const std::function<bool()>* stop);

  std::vector<std::uint32_t> random_ranks(const undirected_graph& g, std::uint32_t target,
                                          const std::function<bool()>* stop);

  /// The number of bags of the present largest size.
  [[nodiscard]] std::size_t count_largest(const tree_decomposition& t) const;

  /// A random connected set of bags around a random largest bag.
  std::vector<std::uint32_t> choose();

  /// Puts another decomposition of the part in its place if it has no more bags of the largest size, so that the next
  /// attempt starts elsewhere. Returns whether it has fewer.
  bool sidestep(const torso& part, const std::vector<std::uint32_t>& chosen, const std::function<bool()>* stop);

  /// Puts `other`, a decomposition of the part, in place of the bags `chosen`.
  void replace(const torso& part, const std::vector<std::uint32_t>& chosen, const tree_decomposition& other);

  const undirected_graph& g_;
  random_source random_;
  tree_decomposition tree_;
  index_rows links_;
  std::int64_t width_ = -1;
  std::vector<std::uint32_t> largest_, number_;
  std::vector<std::uint8_t> taken_;
  std::uint64_t work_ = 0;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/improve.hpp"
#endif
