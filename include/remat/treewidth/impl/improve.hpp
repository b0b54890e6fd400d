// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/core/id.hpp"
#include "remat/treewidth/detail/dissection.hpp"
#include "remat/treewidth/detail/elimination_order.hpp"
#include "remat/treewidth/detail/positive_instance.hpp"
#include "remat/treewidth/detail/reduction.hpp"
#include "remat/treewidth/detail/safe_separators.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/detail/subgraph.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

/// Improves a tree decomposition region by region. A region is a connected set of bags around a largest one. The
/// improver decomposes the graph on its vertices anew with less width, and puts the result in its place. It is a
/// large-neighbourhood search, as in Tamaki's heuristic of PACE 2017.
///
/// The torso of the region is first reduced for the width sought (`reduce`). Then greedy orders, the exact search
/// (`decide_width`, on at most 512 vertices) and nested dissection (`dissection_ranks`) are tried. If all fail, another
/// decomposition of the region with no more largest bags may take its place, so that the next attempt starts elsewhere.
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
  void reset(tree_decomposition tree) {
    tree_ = std::move(tree);
    links_ = tree_.links();
    width_ = tree_.width();
    largest_.clear();
    for (std::uint32_t b = 0; b < tree_.size(); ++b)
      if (is_largest(tree_, b)) largest_.push_back(b);
  }

  /// One attempt, with at most `effort` steps of exact search. Returns whether there are fewer largest bags now.
  bool step(std::uint64_t effort, stop_function stop) {
    if (width_ < 1) return false;
    const std::vector<std::uint32_t> region = choose();
    const torso side = torso_of(g_, tree_, links_, region, number_);
    work_ += side.vertices.size() * side.vertices.size() / 16 + tree_.size() + side.graph.num_edges() * 4;
    const auto target = static_cast<std::uint32_t>(width_ - 1);
    const reduced_graph reduced = reduce(side.graph, target, stop);
    if (must_stop(stop)) return false;
    // A bound above the target proves that the torso has no decomposition of less width.
    if (reduced.lower_bound > target) return sidestep(side, region, stop);
    const std::vector<std::uint32_t> order = order_within(reduced.rest, target, effort, stop);
    if (order.empty() && reduced.rest.num_vertices() > 0) return !must_stop(stop) && sidestep(side, region, stop);
    replace(side, region, decomposition_of(side.graph, reduced.lift(order)));
    return true;
  }

 private:
  /// An elimination order of width at most `target`, or none: greedy orders first, then the exact search, then nested
  /// dissection.
  std::vector<std::uint32_t> order_within(const undirected_graph& g, std::uint32_t target, std::uint64_t effort,
                                          stop_function stop) {
    std::vector<std::uint32_t> order;
    if (g.num_vertices() <= target + 1) {
      order.resize(g.num_vertices());
      std::iota(order.begin(), order.end(), 0U);
      return order;
    }
    for (int i = 0; i < 6 && order.empty(); ++i)
      order = greedy_within(g, target, static_cast<elimination_rule>(random_.below(4)), {}, stop);
    if (order.empty() && g.num_vertices() <= 512 && effort > 0) {
      const width_decision decision =
          decide_width(g, target, {.bytes = std::size_t{1} << 28U, .work = effort / 8, .stop = stop});
      work_ += 8 * decision.work;
      if (decision.verdict == width_verdict::refuted) return {};
      if (decision.verdict == width_verdict::found) order = elimination_order_of(decision.tree, g.num_vertices());
    }
    for (int i = 0; i < 2 && order.empty() && g.num_vertices() >= 40; ++i) {
      const std::vector<std::uint32_t> rank = dissection_ranks(g, {.seed = random_.next(),
                                                                   .pairs = 1 + random_.below(6),
                                                                   .min_share = 0.05 + 0.4 * random_.uniform(),
                                                                   .target = target + 1,
                                                                   .stop = stop,
                                                                   .work = &work_});
      if (rank.empty()) break;
      for (const elimination_rule rule : {elimination_rule::min_fill, elimination_rule::fill_and_degree})
        if (order.empty()) order = greedy_within(g, target, rule, rank, stop);
    }
    return order;
  }

  std::vector<std::uint32_t> greedy_within(const undirected_graph& g, std::uint32_t target, elimination_rule rule,
                                           std::span<const std::uint32_t> rank, stop_function stop) {
    work_ += greedy_cost(g, target);
    return greedy_order(g, {.rule = rule, .seed = random_.next(), .rank = rank, .give_up = target + 1, .stop = stop});
  }

  /// True when bag b has the present largest size.
  [[nodiscard]] bool is_largest(const tree_decomposition& t, std::size_t b) const {
    return static_cast<std::int64_t>(t.bags[b].size()) == width_ + 1;
  }
  [[nodiscard]] std::size_t count_largest(const tree_decomposition& t) const {
    std::size_t count = 0;
    for (std::size_t b = 0; b < t.size(); ++b) count += is_largest(t, b);
    return count;
  }

  /// A random region around a random largest bag.
  std::vector<std::uint32_t> choose() {
    static constexpr double factors[] = {1.15, 1.3, 1.5, 2, 3, 4.5};
    const auto max_vertices =
        static_cast<std::size_t>(static_cast<double>(width_ + 1) * factors[random_.below(std::size(factors))]) + 8;
    std::vector<std::uint32_t> region, open{largest_[random_.below(largest_.size())]}, held;
    std::vector<std::uint8_t> taken(tree_.size(), 0);
    taken[open[0]] = 1;
    while (!open.empty()) {
      // The first bag is drawn without a random number: it is the only one.
      const std::uint32_t i = region.empty() ? 0 : random_.below(open.size());
      const std::uint32_t b = std::exchange(open[i], open.back());
      open.pop_back();
      const std::size_t before = held.size();
      for (const std::uint32_t v : tree_.bags[b])
        if (number_[v] == undirected_graph::none) held.push_back(v);
      if (!region.empty() && held.size() > max_vertices) {
        held.resize(before);
        continue;
      }
      for (std::size_t v = before; v < held.size(); ++v) number_[held[v]] = 0;
      region.push_back(b);
      for (const std::uint32_t c : links_[b])
        if (!std::exchange(taken[c], std::uint8_t{1})) open.push_back(c);
    }
    for (const std::uint32_t v : held) number_[v] = undirected_graph::none;
    return region;
  }

  /// Puts another decomposition of the region in its place if that has no more bags of the largest size. Returns
  /// whether it has fewer.
  bool sidestep(const torso& side, const std::vector<std::uint32_t>& region, stop_function stop) {
    const auto rule = static_cast<elimination_rule>(random_.below(4));
    const std::vector<std::uint32_t> order =
        greedy_within(side.graph, static_cast<std::uint32_t>(width_), rule, {}, stop);
    if (order.empty()) return false;
    const tree_decomposition other = decomposition_of(side.graph, order);
    const std::size_t before = count_largest(side.tree), after = count_largest(other);
    if (after > before) return false;
    replace(side, region, other);
    return after < before;
  }

  /// Puts `other`, a decomposition of the torso, in place of the region's bags.
  void replace(const torso& side, const std::vector<std::uint32_t>& region, const tree_decomposition& other) {
    tree_decomposition next;
    std::vector<std::uint32_t> place(tree_.size(), 0);
    constexpr std::uint32_t inside = undirected_graph::none;
    for (const std::uint32_t b : region) place[b] = inside;
    for (std::uint32_t b = 0; b < tree_.size(); ++b) {
      if (place[b] == inside) continue;
      place[b] = static_cast<std::uint32_t>(next.size());
      next.add_bag(tree_.bags[b]);
    }
    const auto first = static_cast<std::uint32_t>(next.size());
    append_tree(next, other, side.vertices);
    for (const auto& [a, b] : tree_.edges)
      if (place[a] != inside && place[b] != inside)
        next.edges.emplace_back(place[a], place[b]);
      else if (place[a] != inside || place[b] != inside)
        next.edges.emplace_back(std::min(place[a], place[b]), find_bag(next, first, common_vertices(tree_, a, b)));
    work_ += next.bags.values.size();
    reset(without_subsets(next));
  }

  const undirected_graph& g_;
  random_source random_;
  tree_decomposition tree_;
  index_rows links_;
  std::int64_t width_ = -1;
  std::vector<std::uint32_t> largest_, number_;
  std::uint64_t work_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
