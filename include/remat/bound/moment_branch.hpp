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

#include "remat/bound/moment_cut.hpp"
#include "remat/core/id.hpp"

namespace remat {

/// The least time of any choice within the room at one moment, between two bounds.
struct moment_optimum {
  double lower = 0;                                        ///< no choice takes less
  double upper = std::numeric_limits<double>::infinity();  ///< of the best choice found
  moment_choice choice{};                                  ///< that one; bytes beside the working set
  std::vector<tensor_id> saved{};
  std::vector<op_id> again{};
  std::uint32_t nodes = 0;
  std::uint32_t flows = 0;
  bool infeasible = false;  ///< no choice fits
};

/// Branch and bound for the knapsack that the price of bytes only relaxes: whole tensors are resident or not.
///
/// At each node some tensors are fixed, and the best price of a byte gives a bound (`moment_cut`). It branches on the
/// largest tensor that is resident on one side of that price and not on the other; the node of the lowest bound is
/// next. Stopped after `most_nodes`, or when `stop()` says so, `lower` is the least bound of an open node: never less
/// than the bound without branching, and equal to `upper` when nothing is open (up to `tolerance`, in time).
class moment_branch {
 public:
  /// `cut` is at the moment in question, with nothing fixed; it is left so.
  explicit moment_branch(moment_cut& cut) : cut_(&cut) {}

  template <class Stop>
  [[nodiscard]] moment_optimum solve(std::int64_t room, double price, double tolerance, std::uint32_t most_nodes,
                                     Stop&& stop) {
    moment_optimum r;
    nodes_.clear();
    using entry = std::pair<double, std::uint32_t>;
    std::priority_queue<entry, std::vector<entry>, std::greater<>> open;
    double closed = std::numeric_limits<double>::infinity();  // the least bound of nodes that cannot be branched on
    const auto add = [&](std::uint32_t parent, std::uint32_t candidate, moment_cut::fixing how, double least,
                         double at) {
      nodes_.push_back({parent, candidate, how, at, none});
      node& n = nodes_.back();
      std::uint32_t depth = 0;
      for (std::uint32_t i = static_cast<std::uint32_t>(nodes_.size() - 1); nodes_[i].parent != none;
           i = nodes_[i].parent) {
        cut_->fix(nodes_[i].candidate, nodes_[i].how);
        ++depth;
      }
      const double bound = std::max(least, relax(n, room, tolerance, r, stop));
      for (std::uint32_t i = static_cast<std::uint32_t>(nodes_.size() - 1); nodes_[i].parent != none;
           i = nodes_[i].parent)
        cut_->fix(nodes_[i].candidate, moment_cut::fixing::free);
      ++r.nodes;
      if (bound >= r.upper - tolerance) {
        if (bound < r.upper) closed = std::min(closed, bound);
        return;
      }
      if (n.branch == none || depth >= deepest)
        closed = std::min(closed, bound);
      else
        open.push({bound, static_cast<std::uint32_t>(nodes_.size() - 1)});
    };
    add(none, none, moment_cut::fixing::free, 0, price);
    while (!open.empty() && r.nodes + 1 < most_nodes && open.top().first < std::min(closed, r.upper - tolerance) &&
           !stop()) {
      const auto [bound, at] = open.top();
      open.pop();
      const std::uint32_t candidate = nodes_[at].branch;
      const double from = nodes_[at].price;
      add(at, candidate, moment_cut::fixing::absent, bound, from);
      add(at, candidate, moment_cut::fixing::resident, bound, from);
    }
    r.lower = std::min(r.upper, closed);
    if (!open.empty()) r.lower = std::min(r.lower, open.top().first);
    r.infeasible = r.lower == std::numeric_limits<double>::infinity();
    return r;
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t deepest = 200;  // below what moment_cut can fix
  static constexpr int most_flows = 32;
  struct node {
    std::uint32_t parent;
    std::uint32_t candidate;
    moment_cut::fixing how;
    double price;
    std::uint32_t branch;
  };

  /// The bound of a node, whose fixings are in place; infinite where nothing fits. Finds what to branch on, and takes
  /// choices that fit.
  template <class Stop>
  double relax(node& n, std::int64_t room, double tolerance, moment_optimum& r, Stop&& stop) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < cut_->num_candidates(); ++i)
      if (cut_->fixed(i) == moment_cut::fixing::resident) room -= cut_->candidate_bytes(i);
    if (room < 0) return infinity;
    moment_choice right{cut_->total_time(), 0};
    if (cut_->has_unrepeatable()) {
      const std::int64_t least = cut_->least_bytes(stop);
      ++r.flows;
      if (least > room) return infinity;
      if (!cut_->complete()) return 0;
      right = cut_->choice();
    }
    double bound = cut_->price(0, stop);
    ++r.flows;
    if (!cut_->complete()) return bound;
    if (bound > 1.5 * cut_->total_time()) return infinity;
    moment_choice left = cut_->choice();
    if (left.bytes <= room) {
      take(left, r);
      return bound;
    }
    remember(left_);
    right_.assign(cut_->num_candidates(), 0);
    for (int flow = 0; flow < most_flows && left.bytes > right.bytes; ++flow) {
      const double meet = (right.time - left.time) / static_cast<double>(left.bytes - right.bytes);
      const double most = left.time + meet * static_cast<double>(left.bytes - room);
      if (most <= bound + tolerance || bound >= r.upper - tolerance) break;
      const double at = std::min(flow == 0 && n.price > 0 ? n.price : meet, cut_->highest_price());
      const double cost = cut_->price(at, stop);
      ++r.flows;
      const double value = cost - at * static_cast<double>(room) * (1 + 0x1p-51);
      if (value > bound) {
        bound = value;
        n.price = at;
      }
      if (!cut_->complete() || absent_is_resident()) break;
      const moment_choice c = cut_->choice();
      if (c.bytes > room) {
        if (flow > 0 && c.bytes >= left.bytes) break;
        left = c;
        remember(left_);
        cut_->keep();
        if (at >= cut_->highest_price()) break;
      } else {
        take(c, r);
        remember(right_);
        if (c.bytes == room || (flow > 0 && c.time >= right.time)) break;
        right = c;
      }
    }
    std::int64_t largest = -1;
    for (const bool differs : {true, false}) {
      for (std::size_t i = 0; i < cut_->num_candidates(); ++i)
        if (cut_->fixed(i) == moment_cut::fixing::free && left_[i] && !(differs && right_[i]) &&
            cut_->candidate_bytes(i) > largest) {
          largest = cut_->candidate_bytes(i);
          n.branch = static_cast<std::uint32_t>(i);
        }
      if (n.branch != none) break;
    }
    return bound;
  }

  void remember(std::vector<std::uint8_t>& side) const {
    side.resize(cut_->num_candidates());
    for (std::size_t i = 0; i < side.size(); ++i)
      side[i] = cut_->fixed(i) == moment_cut::fixing::free && cut_->candidate_resident(i);
  }

  /// The price is so high that the cut rather breaks a fixing: no choice, though the bound holds.
  [[nodiscard]] bool absent_is_resident() const {
    for (std::size_t i = 0; i < cut_->num_candidates(); ++i)
      if (cut_->fixed(i) == moment_cut::fixing::absent && cut_->candidate_resident(i)) return true;
    return false;
  }

  void take(const moment_choice& c, moment_optimum& r) const {
    if (c.time >= r.upper) return;
    r.upper = c.time;
    r.choice = c;
    r.saved = cut_->resident();
    for (std::size_t i = 0; i < cut_->num_candidates(); ++i)
      if (cut_->fixed(i) == moment_cut::fixing::resident) {
        r.choice.bytes += cut_->candidate_bytes(i);
        r.saved.push_back(cut_->candidate(i));
      }
    std::sort(r.saved.begin(), r.saved.end());
    r.saved.erase(std::unique(r.saved.begin(), r.saved.end()), r.saved.end());
    r.again = cut_->again();
  }

  moment_cut* cut_;
  std::vector<node> nodes_;
  std::vector<std::uint8_t> left_, right_;  // resident on either side of the best price
};

}  // namespace remat
