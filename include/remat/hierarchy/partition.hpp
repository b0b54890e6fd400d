// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

struct partition_options {
  std::uint32_t max_group = 20;  ///< children of a group, M_l; a pure sequence may have more. At least 2
  std::uint32_t max_top = 30;    ///< children of the whole step, M_t; a pure sequence may have more. At least 1
  double alpha = 0.5;            ///< how much a merge counts the operations that it puts together
  /// Which operations are forward, one byte each; empty: `forward_operations`.
  std::vector<std::uint8_t> forward{};
};

/// H-Partition: groups of forward operations that few bytes enter and leave, nested from the bottom to the top, with
/// the backward that belongs to each (see `operation_hierarchy`). \cite gusak2025hiremate
///
/// A round merges the best candidate into one node, and so on. Candidates are maximal sequences (each node's only user
/// is the next) and flows (from a node to where the paths from it meet again, with or without either end; nodes that
/// nobody in the forward part reads come along). Best is the least (bytes of inputs + bytes of outputs) · (number of
/// operations)^alpha, then what is listed first; outputs are what other forward operations read, and final outputs.
/// What is merged twice in a round becomes one group. A group has at most `max_group` children, or is a pure sequence
/// of any length. When nothing can be merged, the groups are frozen and the next round begins with each as one node; it
/// all ends when at most `max_top` nodes are left, or they are a pure sequence.
///
/// Differs from the paper: all merges that are as good as the last one are made, too, so that equal parts stay equal;
/// sequences of more than `max_group` nodes come when nothing else is left; a round after one that left more than
/// three quarters of the nodes also takes pairs (a node and the last before it that it reads, or whatever is next to it
/// where nothing is connected), so that every graph gets to `max_top`.
///
/// Near-linear on graphs whose nodes have few users: each merge looks again at nodes around it, O(max_group) steps for
/// each, and reorders the operations listed between. Deterministic. Throws `bad_argument` for unusable options.
///
///     const operation_hierarchy h = h_partition(problem.graph());
///     for (std::size_t g = h.groups.size(); g-- > 1;)  // bottom up
///       solve(h.forward(g), h.backward(g));
[[nodiscard]] operation_hierarchy h_partition(const flat_graph& s, const partition_options& options = {});

/// Sections of the listed order of at most `max_group` forward operations, cut where the fewest bytes cross in all (and
/// then in the fewest places); `h_partition` of the sections follows. O(operations · max_group) time before that.
/// Throws as `h_partition`.
[[nodiscard]] operation_hierarchy partition_at_cuts(const flat_graph& s, const partition_options& options = {});

/// Sections that repeat each other in the listed order: where the most operations in a row are like the ones p before
/// (time, workspace, bytes read and written), each p of them are a section, which begins where the fewest bytes cross;
/// before and behind likewise. Sections are partitioned, and then the whole, by `h_partition`. Periods of up to 1024
/// operations are found. O(operations · (1024 + log)) time for each length that repeats. Throws as `h_partition`.
[[nodiscard]] operation_hierarchy partition_at_repeats(const flat_graph& s, const partition_options& options = {});

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/partition.hpp"
#endif
