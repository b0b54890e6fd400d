// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/problem/problem.hpp"

namespace remat::detail {

/// The forward part of a training step as a line of operations, and the bytes that cross each place where the line may
/// be cut. All operations are indices into the flat graph.
///
/// The forward part is the operations listed before the turn (`find_forward_end`). The turn is the end of the graph's
/// forward phase; in a graph without phases, the place at which the most tensors are alive in the listed order. The
/// solvers do not rely on the turn being the true one: schedules are legal for every turn, and good if it is near the
/// true one.
struct forward_line {
  std::vector<std::uint32_t> operations;  ///< the needed ones before the turn, each behind the producers of its inputs
  std::vector<std::uint32_t> rest;        ///< the needed ones after the turn, as listed
  std::vector<std::int64_t> crossing;     ///< [i]: bytes made before operations[i] that it or a later forward reads
  std::vector<std::int64_t> made;         ///< [i]: bytes of the outputs of operations[i] that are not final outputs
};

/// The line of `operations` in the given order. Precondition: they are the needed operations before the turn, each
/// behind the producers of its inputs; `rest` are the others. O(operations + reads and writes) time.
[[nodiscard]] forward_line make_forward_line(const flat_graph& g, std::vector<std::uint32_t> operations,
                                             std::vector<std::uint32_t> rest);

/// The line in the listed order. O(operations + reads and writes) time.
[[nodiscard]] forward_line find_forward_line(const flat_graph& g);

/// The lines in the listed order up to each place that may serve as the turn: `find_forward_end`, and
/// `estimate_forward_end` if it is another one. One or two lines.
///
/// In graphs traced from PyTorch the two differ by a few operations: the first backward operations read large forward
/// tensors and make none, and a chain that runs them with its last stage can take less time than a chain that ends at
/// the true turn. O(operations + reads and writes) time.
[[nodiscard]] std::vector<forward_line> find_forward_lines(const flat_graph& g);

/// The operations of `listed` in a narrow order. Of the operations that may run, the next one is that after which the
/// fewest bytes wait for a forward; of equal ones the first listed. The order finishes branches, and delays operations
/// with large outputs. O(operations · those that may run + reads and writes) time.
[[nodiscard]] forward_line find_narrow_line(const flat_graph& g, const forward_line& listed);

/// Places where a forward line is cut, ascending. A cut at i stands before operations[i]; 0 < i < operations.size().
using cut_list = std::vector<std::uint32_t>;

/// Ever coarser lists of cuts of the line. The first level cuts everywhere. The next one keeps the cuts that no more
/// bytes cross than each neighbour, and so on while a level removes at least an eighth of the cuts. A level of more
/// than `max_cuts` cuts is thinned to `max_cuts`: of two neighbours, the cut that more bytes cross is removed. No two
/// consecutive levels are equal; there is at least one, and the last may have no cut. O(log n) levels of O(n) time each
/// for n operations.
[[nodiscard]] std::vector<cut_list> cut_levels(const forward_line& line, std::size_t max_cuts);

/// The cuts, taken from `cuts`, that divide the line into at most `segments` segments which make about equally many
/// bytes. O(cuts + operations) time.
[[nodiscard]] cut_list even_cuts(const forward_line& line, const cut_list& cuts, std::size_t segments);

/// Adds to `chains` selections of `cuts` that leave at most `max_stages` stages: `even_cuts` with 4, 6, 8, 11, 16, 23,
/// 32 and 45 segments. O(cuts + operations) time.
void add_even_cuts(std::vector<cut_list>& chains, const forward_line& line, const cut_list& cuts,
                   std::size_t max_stages);

/// Adds to `chains` selections of `cuts` that leave at most `max_stages` stages: every second, third, fourth, sixth,
/// eighth and twelfth of them. O(cuts) time.
void add_regular_cuts(std::vector<cut_list>& chains, const cut_list& cuts, std::size_t max_stages);

/// The chains of a line with at most `max_stages` stages, at least 1: all of `cut_levels`, and the selections of
/// `add_even_cuts` from the two finest levels. Some may be equal. O(n log n) time for n operations.
[[nodiscard]] std::vector<cut_list> chains_of_line(const forward_line& line, std::size_t max_stages);

/// The chains without repetition, those with few stages first.
[[nodiscard]] std::vector<cut_list> short_ones_first(std::vector<cut_list> chains);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/forward_line.hpp"
#endif
