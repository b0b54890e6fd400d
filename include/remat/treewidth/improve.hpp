// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "remat/core/random.hpp"
#include "remat/treewidth/dissection.hpp"
#include "remat/treewidth/elimination_order.hpp"
#include "remat/treewidth/positive_instance.hpp"
#include "remat/treewidth/reduce.hpp"
#include "remat/treewidth/safe_separators.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat {

/// Makes a decomposition better piece by piece: a connected part of the tree around a largest bag is taken out, what it
/// holds is decomposed anew with less width than before, and put back (as Tamaki's heuristic of PACE 2017 does; a
/// large-neighbourhood search). The part is first reduced for the width wanted, then tried with greedy orders, nested
/// dissection, and where it is small with the exact search. Where that fails, a decomposition of the same width without
/// more largest bags may take its place, so that the next attempt finds another.
///
/// Deterministic for a seed as long as `stop` does not end it.
class decomposition_improver {
 public:
  decomposition_improver(const undirected_graph& g, tree_decomposition tree, std::uint64_t seed)
      : g_(g), random_(seed), number_(g.num_vertices(), detail::eliminating::none) {
    reset(std::move(tree));
  }

  [[nodiscard]] const tree_decomposition& tree() const noexcept { return tree_; }
  [[nodiscard]] std::int64_t width() const noexcept { return width_; }
  /// Elementary steps so far, about 10 ns each.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

  void reset(tree_decomposition tree) {
    tree_ = std::move(tree);
    links_ = tree_.links();
    width_ = tree_.width();
    largest_.clear();
    for (std::uint32_t b = 0; b < tree_.size(); ++b)
      if (static_cast<std::int64_t>(tree_.bags[b].size()) == width_ + 1) largest_.push_back(b);
  }

  /// One attempt; `effort` steps at most for the exact search in it. True if there are fewer largest bags now.
  bool step(std::uint64_t effort, const std::function<bool()>* stop) {
    if (width_ < 1) return false;
    const std::vector<std::uint32_t> chosen = choose();
    const torso part = torso_of(g_, tree_, links_, chosen, number_);
    work_ += part.vertices.size() * part.vertices.size() / 16 + tree_.size();
    const auto target = static_cast<std::uint32_t>(width_ - 1);
    std::size_t before = 0;
    for (std::size_t b = 0; b < part.tree.size(); ++b)
      before += static_cast<std::int64_t>(part.tree.bags[b].size()) == width_ + 1;
    // The vertices that are safe to go for the width wanted; if the bound grows, there is no such decomposition.
    work_ += part.graph.num_edges() * 4;
    const reduced_graph reduced = reduce(part.graph, target, stop);
    if (stop != nullptr && (*stop)()) return false;
    if (reduced.lower_bound > target) return sidestep(part, chosen, before, stop);
    const undirected_graph& rest = reduced.rest;
    std::vector<std::uint32_t> order;
    bool found = rest.num_vertices() <= target + 1;
    if (found) {
      order.resize(rest.num_vertices());
      for (std::uint32_t v = 0; v < order.size(); ++v) order[v] = v;
    }
    detail::eliminating::greedy_options greedy;
    greedy.give_up = target + 1;
    greedy.stop = stop;
    for (int i = 0; i < 6 && !found; ++i) {
      greedy.rule = static_cast<elimination_rule>(random_.below(4));
      greedy.seed = random_.next();
      work_ += cost_of_greedy(rest, target);
      found = !(order = detail::eliminating::greedy_order(rest, greedy)).empty();
    }
    bool refuted = false;
    if (!found && rest.num_vertices() <= 512 && effort > 0) {
      width_search_limits limits;
      limits.bytes = std::size_t{1} << 28U;
      limits.work = effort / 8;
      limits.stop = stop;
      std::uint64_t spent = 0;
      limits.spent = &spent;
      const width_decision decision = decide_width(rest, target, limits);
      work_ += 8 * spent;
      refuted = decision.verdict == width_verdict::refuted;
      if (decision.verdict == width_verdict::found) {
        order = elimination_order_of(decision.tree, rest.num_vertices());
        found = true;
      }
    }
    for (int i = 0; i < 2 && !found && !refuted && rest.num_vertices() >= 40; ++i) {
      dissection_options dissection;
      dissection.seed = random_.next();
      dissection.pairs = 1 + random_.below(6);
      dissection.least_share = 0.05 + 0.4 * random_.uniform();
      dissection.target = target + 1;
      dissection.stop = stop;
      dissection.work = &work_;
      const std::vector<std::uint32_t> rank = dissection_ranks(rest, dissection);
      if (rank.empty()) break;
      greedy.rank = rank;
      for (const elimination_rule rule : {elimination_rule::min_fill, elimination_rule::fill_and_degree}) {
        greedy.rule = rule;
        greedy.seed = random_.next();
        work_ += cost_of_greedy(rest, target);
        found = !(order = detail::eliminating::greedy_order(rest, greedy)).empty();
        if (found) break;
      }
    }
    if (stop != nullptr && (*stop)() && !found) return false;
    if (!found) return sidestep(part, chosen, before, stop);
    replace(part, chosen, decomposition_of(part.graph, reduced.lift(order)));
    return true;
  }

  static std::uint64_t cost_of_greedy(const undirected_graph& g, std::uint64_t width) {
    return g.num_vertices() * (20 + width * (g.num_vertices() / 64 + 4) / 4) / 2;
  }

 private:
  /// Bags around a largest one.
  std::vector<std::uint32_t> choose() {
    static constexpr double factors[] = {1.15, 1.3, 1.5, 2, 3, 4.5};
    const std::size_t most = static_cast<std::size_t>(static_cast<double>(width_ + 1) * factors[random_.below(6)]) + 8;
    std::vector<std::uint32_t> chosen{largest_[random_.below(largest_.size())]}, open, held;
    std::vector<std::uint8_t>& taken = taken_;
    taken.assign(tree_.size(), 0);
    taken[chosen[0]] = 1;
    const auto hold = [&](std::uint32_t b) {
      for (const std::uint32_t v : tree_.bags[b])
        if (number_[v] == detail::eliminating::none) {
          number_[v] = 0;
          held.push_back(v);
        }
      for (const std::uint32_t c : links_[b])
        if (!taken[c]) {
          taken[c] = 1;
          open.push_back(c);
        }
    };
    hold(chosen[0]);
    while (!open.empty()) {
      const std::uint32_t i = random_.below(open.size());
      const std::uint32_t b = open[i];
      open[i] = open.back();
      open.pop_back();
      std::size_t more = 0;
      for (const std::uint32_t v : tree_.bags[b]) more += number_[v] == detail::eliminating::none;
      if (held.size() + more > most) continue;
      chosen.push_back(b);
      hold(b);
    }
    for (const std::uint32_t v : held) number_[v] = detail::eliminating::none;
    return chosen;
  }

  /// Another decomposition of the part that is no worse.
  bool sidestep(const torso& part, const std::vector<std::uint32_t>& chosen, std::size_t before,
                const std::function<bool()>* stop) {
    detail::eliminating::greedy_options greedy;
    greedy.give_up = static_cast<std::uint32_t>(width_ + 1);
    greedy.stop = stop;
    greedy.rule = static_cast<elimination_rule>(random_.below(4));
    greedy.seed = random_.next();
    work_ += cost_of_greedy(part.graph, static_cast<std::uint64_t>(width_));
    const std::vector<std::uint32_t> order = detail::eliminating::greedy_order(part.graph, greedy);
    if (order.empty()) return false;
    tree_decomposition other = decomposition_of(part.graph, order);
    std::size_t after = 0;
    for (std::size_t b = 0; b < other.size(); ++b)
      after += static_cast<std::int64_t>(other.bags[b].size()) == width_ + 1;
    if (after > before) return false;
    replace(part, chosen, other);
    return after < before;
  }

  /// Puts `other`, a decomposition of the part, in place of the bags `chosen`.
  void replace(const torso& part, const std::vector<std::uint32_t>& chosen, const tree_decomposition& other) {
    tree_decomposition next;
    std::vector<std::uint32_t> place(tree_.size(), detail::eliminating::none);
    std::vector<std::uint8_t> inside(tree_.size(), 0);
    for (const std::uint32_t b : chosen) inside[b] = 1;
    for (std::uint32_t b = 0; b < tree_.size(); ++b) {
      if (inside[b]) continue;
      place[b] = static_cast<std::uint32_t>(next.bags.size());
      next.bags.values.insert(next.bags.values.end(), tree_.bags[b].begin(), tree_.bags[b].end());
      next.bags.end_row();
    }
    const auto first = static_cast<std::uint32_t>(next.bags.size());
    for (std::size_t b = 0; b < other.size(); ++b) {
      for (const std::uint32_t v : other.bags[b]) next.bags.values.push_back(part.vertices[v]);
      next.bags.end_row();
    }
    for (const auto& [a, b] : other.edges) next.edges.emplace_back(first + a, first + b);
    std::vector<std::uint32_t> shared;
    for (const auto& [a, b] : tree_.edges) {
      if (!inside[a] && !inside[b]) {
        next.edges.emplace_back(place[a], place[b]);
      } else if (!inside[a] || !inside[b]) {
        const std::uint32_t outer = inside[a] ? b : a;
        shared.clear();
        std::set_intersection(tree_.bags[a].begin(), tree_.bags[a].end(), tree_.bags[b].begin(), tree_.bags[b].end(),
                              std::back_inserter(shared));
        for (std::uint32_t c = first; c < next.bags.size(); ++c)
          if (next.bags[c].size() >= shared.size() &&
              std::includes(next.bags[c].begin(), next.bags[c].end(), shared.begin(), shared.end())) {
            next.edges.emplace_back(place[outer], c);
            break;
          }
      }
    }
    work_ += next.bags.values.size();
    reset(without_subsets(next));
  }

  const undirected_graph& g_;
  random_source random_;
  tree_decomposition tree_;
  index_rows links_;
  std::int64_t width_ = -1;
  std::vector<std::uint32_t> largest_, number_;
  std::vector<std::uint8_t> taken_;
  std::uint64_t work_ = 0;
};

}  // namespace remat
