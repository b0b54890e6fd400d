// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE {

/// Marks the forward operations: the needed ones listed before the turn (`find_forward_end`), or all needed ones if
/// none is listed before it. Returns one byte for each operation. O(operations + reads and writes) time.
[[nodiscard]] std::vector<std::uint8_t> forward_operations(const flat_graph& graph);

/// The operations of a step in nested groups: each is an interval of the forward with the backward that belongs to it.
///
/// Operations that are not needed are in none. `order` is a topological order of the others in which the forward
/// operations stand first, and every group is two intervals: one of forward operations, one of backward operations. So
/// the forward of a group is convex (no path leaves and re-enters it), its backward likewise, and the step is: forwards
/// of a group's children in turn, …, their backwards in the opposite turn, at each level.
///
/// A backward operation has an *anchor*, a forward operation, and belongs to all groups that hold it. In the order of
/// the step, the anchor is, of the forward operations that make or read a forward tensor that it reads, the one that
/// does so for most of them (of several the last in `order`), but never one behind the anchor of a backward operation
/// whose result it reads; if there is none, the earliest of those anchors; if it reads no backward operation
/// either, the last forward operation. Of the makers and readers of one tensor, the last 32 up to that limit are looked
/// at.
struct operation_hierarchy {
  static constexpr std::uint32_t none =
      std::numeric_limits<std::uint32_t>::max();  ///< stands for "no group" and "no operation"

  /// One group: its place in the tree of groups, and its two intervals of `order`.
  struct group {
    std::uint32_t parent = none;       ///< the group that holds this one; `none` for the whole step
    std::uint32_t depth = 0;           ///< 0 for the whole step, and one more than the parent's for others
    std::uint32_t forward_begin = 0;   ///< the place in `order` of its first forward operation
    std::uint32_t forward_end = 0;     ///< one past the place of its last forward operation
    std::uint32_t backward_begin = 0;  ///< the place in `order` of its first backward operation
    std::uint32_t backward_end = 0;    ///< one past the place of its last backward operation
    /// The output of each child but the last is read by the next child, and in the forward by no other operation.
    bool sequence = false;
  };

  std::vector<std::uint32_t> order{};  ///< the needed operations in a topological order, the forward ones first
  std::uint32_t num_forward = 0;       ///< the number of forward operations: the first ones of `order`
  std::vector<group> groups{};         ///< [0] is the whole step; parents stand before their children
  /// group → its children in turn: a forward operation, or `group_of.size()` + a group.
  index_rows children{};
  std::vector<std::uint32_t> group_of{};  ///< operation → the innermost group that holds it
  std::vector<std::uint32_t> anchor{};    ///< operation → forward operation; of a forward operation itself

  /// The forward operations of group `g`, in order.
  [[nodiscard]] std::span<const std::uint32_t> forward(std::size_t g) const noexcept {
    return {order.data() + groups[g].forward_begin, order.data() + groups[g].forward_end};
  }
  /// The backward operations of group `g`, in order.
  [[nodiscard]] std::span<const std::uint32_t> backward(std::size_t g) const noexcept {
    return {order.data() + groups[g].backward_begin, order.data() + groups[g].backward_end};
  }
  /// True when `child`, an entry of `children`, is a group and not an operation.
  [[nodiscard]] bool is_group(std::uint32_t child) const noexcept { return child >= group_of.size(); }
  /// The group that the entry `child` of `children` stands for. Precondition: `is_group(child)`.
  [[nodiscard]] std::uint32_t group_at(std::uint32_t child) const noexcept {
    return child - static_cast<std::uint32_t>(group_of.size());
  }
  /// The depth of the deepest group; 0 if there is none but the whole step.
  [[nodiscard]] std::uint32_t depth() const noexcept {
    std::uint32_t most = 0;
    for (const group& g : groups) most = std::max(most, g.depth);
    return most;
  }
};

/// The hierarchy with these groups of forward operations: `group_of_operation` says in which group each needed forward
/// operation is directly, `parent_of_group` in which group each group is (`operation_hierarchy::none`: in the whole
/// step). Entries of other operations are not looked at.
///
/// O((operations + reads and writes) · (depth + log operations)) time; a read of a tensor with several producers counts
/// once for each. Throws `bad_argument` for an index out of range, a group that is empty or inside itself or not
/// convex beside its neighbours, and a forward operation that reads what a backward operation makes.
[[nodiscard]] operation_hierarchy make_hierarchy(const flat_graph& graph, const std::vector<std::uint8_t>& forward,
                                                 std::vector<std::uint32_t> group_of_operation,
                                                 std::vector<std::uint32_t> parent_of_group);

/// The numbers of children that `check_hierarchy` allows. By default any number is allowed.
struct hierarchy_limits {
  std::uint32_t max_group =
      std::numeric_limits<std::uint32_t>::max();                      ///< most children of a group that is no sequence
  std::uint32_t max_top = std::numeric_limits<std::uint32_t>::max();  ///< most children of the whole graph, likewise
};

/// The result of `check_hierarchy`.
struct hierarchy_report {
  std::vector<std::string> violations{};  ///< ten violations at most, in words

  /// True when the checker found no violation.
  [[nodiscard]] bool valid() const noexcept { return violations.empty(); }
};

/// Checks from the definition that `h` is a hierarchy of the graph. `order` must hold the needed operations, each once,
/// in a topological order with the forward ones first. Every group must be one interval of forward operations, divided
/// among its children in turn and hence convex, and the backward operations that are anchored there. Sequences must be
/// marked as such, and nothing else; the numbers of children must be within the limits. The checker shares no code with
/// the partitions.
///
/// The rule by which a backward operation gets its anchor is not checked. Never throws for a wrong hierarchy, which may
/// be that of another graph. O((operations + reads and writes) · depth) time.
[[nodiscard]] hierarchy_report check_hierarchy(const flat_graph& graph, const operation_hierarchy& h,
                                               const hierarchy_limits& limits = {});

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/hierarchy.hpp"
#endif
