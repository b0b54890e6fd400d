// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE {

/// Options of `h_partition`, `partition_at_cuts` and `partition_at_repeats`.
struct partition_options {
  std::uint32_t max_group = 20;  ///< M_l: most children of a group that is no pure sequence; at least 2
  std::uint32_t max_top = 30;    ///< M_t: most children of the whole graph unless a pure sequence; at least 1
  double alpha = 0.5;            ///< exponent of the number of operations in the score of a merge
  /// One byte for each operation: it is forward. Empty: `forward_operations`.
  std::vector<std::uint8_t> forward{};
  /// Asked every few milliseconds; may be empty. Once it returns true, nothing more is merged: the hierarchy is valid,
  /// but the whole graph may have more children than `max_top`.
  std::function<bool()> must_stop{};
};

/// H-Partition: nested groups of forward operations with few bytes at their borders, built from the bottom up, each
/// with the backward that belongs to it (see `operation_hierarchy`). \cite gusak2025hiremate
///
/// A round repeatedly merges the best candidate into one node. Candidates are maximal sequences (each node's only user
/// is the next) and fans (from a node to the node where all paths from it meet again, with or without either end;
/// nodes that no forward operation reads are included). The best candidate has the least (bytes of inputs + bytes of
/// outputs) · (number of operations)^alpha, then the first listed operation; outputs are final outputs and tensors that
/// other forward operations read. Nodes that are merged several times in a round become one group. A group has at most
/// `max_group` children, or is a pure sequence of any length. When no candidate is left, the groups are frozen, and the
/// next round begins with each group as one node. The last round ends with at most `max_top` nodes, or with a pure
/// sequence.
///
/// Differs from the paper:
/// - The last round keeps the top level fine and even. It is tried with every cap on the children of its groups, up to
///   `max_group` (if that takes much work, with some of them and the largest). The cap after which the largest group
///   has the fewest operations is taken; of caps that differ by at most a quarter the one with the fewest unlike
///   groups. Caps that leave a pure sequence come first. The round stops at `max_top` nodes, but merges with the same
///   score as the last one are made as well, so that equal sub-graphs stay equal.
/// - Long sequences are chains of stages. A sequence with three like nodes of several operations is never taken apart
///   to become one group of operations. If too many nodes are left, the sequences are cut into stretches: a run of
///   nodes that repeats itself into stretches of whole periods, as many in each up to one; the rests into stretches of
///   about equal size, where few bytes cross. A stretch is a group whose children are the nodes, of any number.
/// - No group gets more operations than twice a fair share of the whole (operations / `max_top`). The limit doubles
///   when a round under it changes little.
/// - After a round that left more than three quarters of the nodes, pairs are candidates as well (a node and the last
///   node before it that it reads, or its neighbour in the order if nothing is connected), so that every graph
///   reaches `max_top`.
///
/// Near-linear time on graphs whose nodes have few users: a merge looks again at the nodes around it, O(max_group)
/// steps for each, and reorders the operations listed between. A round over at most max_group · max_top nodes is made
/// up to `max_group` times. Deterministic. Throws `bad_argument` for `max_group` below 2, `max_top` 0, an `alpha` that
/// is not finite, and `forward` of a wrong length.
///
///     const operation_hierarchy h = h_partition(problem.graph());
///     for (std::size_t g = h.groups.size(); g-- > 1;)  // bottom up
///       solve(h.forward(g), h.backward(g));
[[nodiscard]] operation_hierarchy h_partition(const flat_graph& g, const partition_options& options = {});

/// Cuts the listed order into sections of at most `max_group` forward operations, such that the fewest bytes in all
/// cross the cuts (of equal sums, with the fewest cuts); then merges the sections as `h_partition` does.
/// O(operations · max_group) time before the merging. Throws as `h_partition`.
[[nodiscard]] operation_hierarchy partition_at_cuts(const flat_graph& g, const partition_options& options = {});

/// Cuts the listed order where it repeats itself. Finds the period p and the longest run of operations each of which
/// is like the operation p places before it (in workspace, bytes read and written); every p of these are a section,
/// which begins where the fewest bytes cross. The operations before and behind the run are treated likewise.
/// The sections, and then the whole, are merged as `h_partition` does. Periods are at most 1024 operations.
/// O(operations · (1024 + log)) time for each period found. Throws as `h_partition`.
[[nodiscard]] operation_hierarchy partition_at_repeats(const flat_graph& g, const partition_options& options = {});

/// The nested groups of Rotor's cuts: the levels of `cut_levels` over the listed forward operations, each segment of a
/// level a group whose children are the segments of the finer level. Segments of one operation, and segments that equal
/// one of the finer level, are no groups. Every level is a chain; nothing limits the children of a group.
/// `forward`: one byte for each operation, as in `partition_options`; empty: `forward_operations`. Near-linear time.
/// Throws `bad_argument` for `forward` of a wrong length, and as `make_hierarchy`.
[[nodiscard]] operation_hierarchy partition_at_levels(const flat_graph& g, std::vector<std::uint8_t> forward = {});

/// Ways to run sub-graphs that have been found before. `rockmate` and `hiremate` look them up and add to them, so that
/// solves for further budgets of one training step, or for graphs with equal sub-graphs, find them ready. May be used
/// by several threads at once.
///
///     hiremate_options options;
///     options.cache = make_way_cache();
class way_cache;

/// Makes an empty cache.
[[nodiscard]] std::shared_ptr<way_cache> make_way_cache();

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/partition.hpp"
#endif
