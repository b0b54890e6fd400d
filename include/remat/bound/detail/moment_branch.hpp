// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/price_search.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE::detail {

/// The least time of any choice that fits into the free bytes at one moment, between two bounds.
struct moment_optimum {
  double lower = 0;                                        ///< no choice takes less time
  double upper = std::numeric_limits<double>::infinity();  ///< the time of the best choice found
  moment_choice choice{};                                  ///< the best choice found
  std::vector<tensor_id> saved{};                          ///< its resident tensors, ascending
  std::vector<op_id> again{};                              ///< the operations that it runs again, ascending
  std::vector<op_id> runs{};  ///< the operations that it runs after the moment (see `moment_cut::for_each_run`)
  std::uint32_t nodes = 0;    ///< nodes of branch and bound
  std::uint32_t flows = 0;    ///< maximum flows that were run
  bool infeasible = false;    ///< proven: no choice fits into the free bytes
};

namespace moment_branch {

/// One search of `find_moment_optimum`.
class search {
 public:
  search(moment_cut& cut, std::int64_t free_bytes, double tolerance, const std::function<bool()>& stop)
      : cut_(cut), free_bytes_(free_bytes), tolerance_(tolerance), stop_(stop) {}

  moment_optimum run(double price, std::uint32_t max_nodes) {
    add(none, none, moment_cut::fixing::free, 0, price);
    while (!open_.empty() && best_.nodes + 1 < max_nodes &&
           open_.top().first < std::min(closed_, best_.upper - tolerance_) && !(stop_ && stop_())) {
      const auto [bound, at] = open_.top();
      open_.pop();
      const node parent = nodes_[at];
      add(at, parent.branch, moment_cut::fixing::absent, bound, parent.price);
      add(at, parent.branch, moment_cut::fixing::resident, bound, parent.price);
    }
    // The time of the best choice is a sum that may be rounded up.
    best_.lower = std::min(best_.upper * (1 - 0x1p-52 * static_cast<double>(cut_.num_terms())), closed_);
    if (!open_.empty()) best_.lower = std::min(best_.lower, open_.top().first);
    best_.infeasible = best_.lower == infinity;
    return std::move(best_);
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t max_depth = 200;  // a depth below the number of tensors that moment_cut can fix
  static constexpr int max_flows = 32;

  struct node {
    std::uint32_t parent;
    std::uint32_t candidate;  // the candidate that the node fixes
    moment_cut::fixing how;   // the way in which it is fixed
    double price;             // the best one found
    std::uint32_t branch;     // the candidate that its children fix
  };

  /// Fixes what node `at` and its ancestors fix, or frees it. Returns the number of fixed candidates.
  std::uint32_t fix_path(std::uint32_t at, bool free) {
    std::uint32_t depth = 0;
    for (; nodes_[at].parent != none; at = nodes_[at].parent, ++depth)
      cut_.fix(nodes_[at].candidate, free ? moment_cut::fixing::free : nodes_[at].how);
    return depth;
  }

  /// Adds a node, whose bound is at least `least`, and opens it unless it cannot improve the best choice.
  void add(std::uint32_t parent, std::uint32_t candidate, moment_cut::fixing how, double least, double price) {
    const auto at = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({parent, candidate, how, price, none});
    const std::uint32_t depth = fix_path(at, false);
    const double bound = std::max(least, relax(nodes_[at]));
    fix_path(at, true);
    ++best_.nodes;
    if (bound >= best_.upper - tolerance_) {
      if (bound < best_.upper) closed_ = std::min(closed_, bound);
    } else if (nodes_[at].branch == none || depth >= max_depth) {
      closed_ = std::min(closed_, bound);
    } else {
      open_.push({bound, at});
    }
  }

  /// Returns the bound of a node whose fixings are in place; infinite if no choice fits. Takes every choice that
  /// fits, and finds the candidate on which to branch.
  double relax(node& n) {
    std::int64_t free_bytes = free_bytes_;
    for (std::size_t i = 0; i < cut_.num_candidates(); ++i)
      if (cut_.fixed(i) == moment_cut::fixing::resident) free_bytes -= cut_.candidate_bytes(i);
    if (free_bytes < 0) return infinity;
    price_search prices(cut_, free_bytes, n.price, max_flows);
    right_.assign(cut_.num_candidates(), 0);
    double bound = 0;
    while (prices.run_flow(bound + tolerance_, stop_)) {
      ++best_.flows;
      if (prices.value() > bound) {
        bound = prices.value();
        if (prices.price() > 0) n.price = prices.price();
      }
      // All choices cost at most `total_cost()`: otherwise an absent tensor cannot be computed.
      if (prices.is_infeasible() || bound > 1.5 * cut_.total_cost()) return infinity;
      if (!cut_.complete() || absent_is_resident()) break;
      if (prices.new_left()) remember(left_);
      if (prices.fits()) {
        take(cut_.choice());
        remember(right_);
      }
      if (bound >= best_.upper - tolerance_) break;
    }
    if (prices.left().bytes > free_bytes) n.branch = largest_difference();
    return bound;
  }

  /// Returns the largest free candidate that is resident in `left_` and not in `right_`, or else in `left_`.
  [[nodiscard]] std::uint32_t largest_difference() const {
    for (const bool differs : {true, false}) {
      std::int64_t largest = -1;
      std::uint32_t found = none;
      for (std::size_t i = 0; i < cut_.num_candidates(); ++i)
        if (cut_.fixed(i) == moment_cut::fixing::free && left_[i] && !(differs && right_[i]) &&
            cut_.candidate_bytes(i) > largest) {
          largest = cut_.candidate_bytes(i);
          found = static_cast<std::uint32_t>(i);
        }
      if (found != none) return found;
    }
    return none;
  }

  void remember(std::vector<std::uint8_t>& side) const {
    side.resize(cut_.num_candidates());
    for (std::size_t i = 0; i < side.size(); ++i)
      side[i] = cut_.fixed(i) == moment_cut::fixing::free && cut_.candidate_resident(i);
  }

  /// True if the price is so high that the cut breaks a fixing: the cut is then no choice, though its bound holds.
  [[nodiscard]] bool absent_is_resident() const {
    for (std::size_t i = 0; i < cut_.num_candidates(); ++i)
      if (cut_.fixed(i) == moment_cut::fixing::absent && cut_.candidate_resident(i)) return true;
    return false;
  }

  /// Keeps the present choice of the cut, `c`, if it is the best one.
  void take(const moment_choice& c) {
    if (c.time >= best_.upper) return;
    best_.upper = c.time;
    best_.choice = c;
    best_.saved = cut_.resident();
    for (std::size_t i = 0; i < cut_.num_candidates(); ++i)
      if (cut_.fixed(i) == moment_cut::fixing::resident) {
        best_.choice.bytes += cut_.candidate_bytes(i);
        best_.saved.push_back(cut_.candidate(i));
      }
    std::sort(best_.saved.begin(), best_.saved.end());
    best_.saved.erase(std::unique(best_.saved.begin(), best_.saved.end()), best_.saved.end());
    best_.again = cut_.again();
    best_.runs.clear();
    cut_.for_each_run([&](std::uint32_t o) { best_.runs.push_back(static_cast<op_id>(o)); });
  }

  using entry = std::pair<double, std::uint32_t>;  // bound, node

  moment_cut& cut_;
  std::int64_t free_bytes_;
  double tolerance_;
  const std::function<bool()>& stop_;
  moment_optimum best_;
  std::vector<node> nodes_;
  std::priority_queue<entry, std::vector<entry>, std::greater<>> open_;
  double closed_ = infinity;                // the least bound of the nodes that are not branched on
  std::vector<std::uint8_t> left_, right_;  // whether each candidate is resident on this side of the best price
};

}  // namespace moment_branch

/// Searches for the least time of any choice with at most `free_bytes` resident bytes, by branch and bound. A price of
/// a byte relaxes the problem: it lets a fraction of a tensor be resident. The search takes whole tensors.
///
/// A node fixes some tensors, and the best price gives its bound (`moment_cut`). The search branches on the largest
/// tensor that is resident on one side of that price and not on the other. The node with the lowest bound is next.
/// The search ends when no open node can improve the best choice by more than `tolerance` (time), after `max_nodes`
/// nodes, or when `stop()` returns true, which is polled before each wave of a flow. Then `lower` is the least bound of
/// an open node: it is never below the bound without branching, and equal to `upper` up to `tolerance` if no node is
/// open.
/// `price` is the first price to try. Precondition: `cut` is at the moment, and nothing is fixed; it is left so.
[[nodiscard]] inline moment_optimum find_moment_optimum(moment_cut& cut, std::int64_t free_bytes, double price,
                                                        double tolerance, std::uint32_t max_nodes,
                                                        const std::function<bool()>& stop = {}) {
  return moment_branch::search(cut, free_bytes, tolerance, stop).run(price, max_nodes);
}

}  // namespace REMAT_NAMESPACE::detail
