// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/improve.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/treewidth/detail/dissection.hpp"
#include "remat/treewidth/detail/elimination_order.hpp"
#include "remat/treewidth/detail/greedy_order.hpp"
#include "remat/treewidth/detail/positive_instance.hpp"
#include "remat/treewidth/detail/reduce.hpp"

namespace remat::detail {

REMAT_INLINE void decomposition_improver::reset(tree_decomposition tree) {
  tree_ = std::move(tree);
  links_ = tree_.links();
  width_ = tree_.width();
  largest_.clear();
  for (std::uint32_t b = 0; b < tree_.size(); ++b)
    if (static_cast<std::int64_t>(tree_.bags[b].size()) == width_ + 1) largest_.push_back(b);
}

REMAT_INLINE bool decomposition_improver::step(std::uint64_t effort, const std::function<bool()>* stop) {
  if (width_ < 1) return false;
  const std::vector<std::uint32_t> chosen = choose();
  const torso part = torso_of(g_, tree_, links_, chosen, number_);
  work_ += part.vertices.size() * part.vertices.size() / 16 + tree_.size() + part.graph.num_edges() * 4;
  const auto target = static_cast<std::uint32_t>(width_ - 1);
  const reduced_graph reduced = reduce(part.graph, target, stop);
  if (stop != nullptr && (*stop)()) return false;
  // A bound above the target proves that the part has no decomposition of less width.
  if (reduced.lower_bound > target) return sidestep(part, chosen, stop);
  const std::vector<std::uint32_t> order = order_within(reduced.rest, target, effort, stop);
  if (order.empty() && reduced.rest.num_vertices() > 0)
    return (stop == nullptr || !(*stop)()) && sidestep(part, chosen, stop);
  replace(part, chosen, decomposition_of(part.graph, reduced.lift(order)));
  return true;
}

REMAT_INLINE std::uint64_t decomposition_improver::cost_of_greedy(const undirected_graph& g, std::uint64_t width) {
  return g.num_vertices() * (20 + width * (g.num_vertices() / 64 + 4) / 4) / 2;
}

REMAT_INLINE std::vector<std::uint32_t> decomposition_improver::order_within(const undirected_graph& g,
                                                                             std::uint32_t target, std::uint64_t effort,
                                                                             const std::function<bool()>* stop) {
  std::vector<std::uint32_t> order;
  if (g.num_vertices() <= target + 1) {
    order.resize(g.num_vertices());
    for (std::uint32_t v = 0; v < order.size(); ++v) order[v] = v;
    return order;
  }
  for (int i = 0; i < 6 && order.empty(); ++i)
    order = greedy_within(g, target, static_cast<elimination_rule>(random_.below(4)), {}, stop);
  bool refuted = false;
  if (order.empty() && g.num_vertices() <= 512 && effort > 0) order = exact_within(g, target, effort, refuted, stop);
  for (int i = 0; i < 2 && order.empty() && !refuted && g.num_vertices() >= 40; ++i) {
    const std::vector<std::uint32_t> rank = random_ranks(g, target, stop);
    if (rank.empty()) break;
    for (const elimination_rule rule : {elimination_rule::min_fill, elimination_rule::fill_and_degree}) {
      order = greedy_within(g, target, rule, rank, stop);
      if (!order.empty()) break;
    }
  }
  return order;
}

REMAT_INLINE std::vector<std::uint32_t> decomposition_improver::greedy_within(const undirected_graph& g,
                                                                              std::uint32_t target,
                                                                              elimination_rule rule,
                                                                              std::span<const std::uint32_t> rank,
                                                                              const std::function<bool()>* stop) {
  detail::eliminating::greedy_options greedy;
  greedy.rule = rule;
  greedy.seed = random_.next();
  greedy.rank = rank;
  greedy.give_up = target + 1;
  greedy.stop = stop;
  work_ += cost_of_greedy(g, target);
  return detail::eliminating::greedy_order(g, greedy);
}

REMAT_INLINE std::vector<std::uint32_t> decomposition_improver::exact_within(const undirected_graph& g,
                                                                             std::uint32_t target, std::uint64_t effort,
                                                                             bool& refuted,
                                                                             const std::function<bool()>* stop) {
  std::uint64_t spent = 0;
  width_search_limits limits;
  limits.bytes = std::size_t{1} << 28U;
  limits.work = effort / 8;
  limits.stop = stop;
  limits.spent = &spent;
  const width_decision decision = decide_width(g, target, limits);
  work_ += 8 * spent;
  refuted = decision.verdict == width_verdict::refuted;
  if (decision.verdict != width_verdict::found) return {};
  return elimination_order_of(decision.tree, g.num_vertices());
}

REMAT_INLINE std::vector<std::uint32_t> decomposition_improver::random_ranks(const undirected_graph& g,
                                                                             std::uint32_t target,
                                                                             const std::function<bool()>* stop) {
  dissection_options dissection;
  dissection.seed = random_.next();
  dissection.pairs = 1 + random_.below(6);
  dissection.least_share = 0.05 + 0.4 * random_.uniform();
  dissection.target = target + 1;
  dissection.stop = stop;
  dissection.work = &work_;
  return dissection_ranks(g, dissection);
}

REMAT_INLINE std::size_t decomposition_improver::count_largest(const tree_decomposition& t) const {
  std::size_t count = 0;
  for (std::size_t b = 0; b < t.size(); ++b) count += static_cast<std::int64_t>(t.bags[b].size()) == width_ + 1;
  return count;
}

REMAT_INLINE std::vector<std::uint32_t> decomposition_improver::choose() {
  static constexpr double factors[] = {1.15, 1.3, 1.5, 2, 3, 4.5};
  const std::size_t most = static_cast<std::size_t>(static_cast<double>(width_ + 1) * factors[random_.below(6)]) + 8;
  std::vector<std::uint32_t> chosen{largest_[random_.below(largest_.size())]}, open, held;
  std::vector<std::uint8_t>& taken = taken_;
  taken.assign(tree_.size(), 0);
  taken[chosen[0]] = 1;
  const auto hold = [&](std::uint32_t b) {
    for (const std::uint32_t v : tree_.bags[b])
      if (number_[v] == undirected_graph::none) {
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
    for (const std::uint32_t v : tree_.bags[b]) more += number_[v] == undirected_graph::none;
    if (held.size() + more > most) continue;
    chosen.push_back(b);
    hold(b);
  }
  for (const std::uint32_t v : held) number_[v] = undirected_graph::none;
  return chosen;
}

REMAT_INLINE bool decomposition_improver::sidestep(const torso& part, const std::vector<std::uint32_t>& chosen,
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
  const std::size_t before = count_largest(part.tree), after = count_largest(other);
  if (after > before) return false;
  replace(part, chosen, other);
  return after < before;
}

REMAT_INLINE void decomposition_improver::replace(const torso& part, const std::vector<std::uint32_t>& chosen,
                                                  const tree_decomposition& other) {
  tree_decomposition next;
  std::vector<std::uint32_t> place(tree_.size(), undirected_graph::none);
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

}  // namespace remat::detail
