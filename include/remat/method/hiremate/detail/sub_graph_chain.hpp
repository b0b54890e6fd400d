// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/chain/detail/stage_ways.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"

namespace remat::detail {

/// A child of a part: consecutive forward operations of the part, the backward operations that belong to them, and
/// ways to run both. Operations are indices of `sub_graph::operations`.
struct sub_graph_segment {
  std::uint32_t forward_end = 0;          ///< one past the last forward operation
  std::vector<std::uint32_t> backward{};  ///< ascending
  std::vector<stage_way> ways{};          ///< beside the one that runs every operation once; may be empty
};

/// How `find_chain_ways` searches.
struct sub_graph_chain_search {
  std::uint32_t slots = 120;     ///< `chain_program_options::slots`
  std::uint32_t turns = 6;       ///< differences between peak and save budget, a table each; at least 1
  std::size_t max_ways = 12;     ///< of the part
  std::size_t max_stages = 100;  ///< of a chain
};

/// The result of `find_chain_ways`.
struct sub_graph_chain_result {
  std::vector<sub_graph_way> ways{};  ///< Pareto-optimal ones, by falling saved bytes; the first keeps everything
  std::size_t tables = 0;             ///< that were filled
  std::size_t refused = 0;            ///< tables larger than `chain_program_options::table_bytes`
  std::size_t stages = 0;             ///< of the longest chain
  std::size_t unmatched = 0;          ///< stages that could not use the ways of their segment
  bool whole = true;                  ///< no limit of the clock ended the search
};

/// Options of a part by Rotor's dynamic program over its children, or over its operations: one table gives the options
/// of all memory sizes.
///
/// The part is a chain: its forward line, cut at the borders of `segments` (without segments: at the levels of
/// `cut_levels`, a chain each), and a last stage that is *take* and *turn* of `sub_graph_runs::problem_within`. The
/// workspace of the turn is the peak budget less the save budget. A table for one such difference holds the fastest
/// schedules of all peak budgets; `turns` differences from 0 to the bytes of everything are tried. A stage uses the
/// ways of its segment where `stage_chain` gives it the same backward operations.
///
/// Work: the rows of the tables and the schedules that are measured. Polls after each. A table of more than
/// `chain_program_options::table_bytes` is left out. Throws `bad_argument` for `slots`, `turns` or `max_stages` 0.
[[nodiscard]] sub_graph_chain_result find_chain_ways(const sub_graph& part, std::span<const sub_graph_segment> segments,
                                                     const sub_graph_chain_search& search, run_clock& clock);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/sub_graph_chain.hpp"
#endif
