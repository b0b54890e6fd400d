// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "remat/core/detail/linkage.hpp"

/// The sizes, gaps and shares by which parts are chosen, all in one place. Where nothing else is said they were tuned
/// on the bundled graphs at 0.8 to 0.2 of their peaks with a limit of 10 s (docs/refinement.md).
namespace REMAT_NAMESPACE::detail {

/// Numbers of operations. A part that is named here runs on graphs of at most that size, unless it says otherwise.
struct graph_sizes {
  static constexpr std::uint32_t exact_first = 16;         ///< `exact` comes before eviction: it takes milliseconds
  static constexpr std::uint32_t exact_promising = 128;    ///< `exact` often ends in a few seconds
  static constexpr std::uint32_t checkmate = 200;          ///< and only with a backend
  static constexpr std::uint32_t short_chains = 500;       ///< below: Rotor and Rockmate take little time
  static constexpr std::uint32_t pofo = 500;               ///< a tenth of usual limits is enough
  static constexpr std::uint32_t exact = 512;              ///< `exact` races
  static constexpr std::uint32_t chains = 2000;            ///< below: Rotor and Rockmate race
  static constexpr std::uint32_t joint_moments = 2000;     ///< the bound of several moments together
  static constexpr std::uint32_t window_annealing = 5000;  ///< windows are disturbed and solved again
  static constexpr std::uint32_t quick_eviction = 5000;    ///< above: an eviction takes a good part of usual limits
  static constexpr std::uint32_t refinement = 10000;       ///< chains find more than refinement from here on
  static constexpr std::uint32_t late_chen = 10000;        ///< `chen_sqrt` ends a solve that was cut off
  static constexpr std::uint32_t windows = 1U << 17;       ///< windows are solved
};

/// Gaps, of a schedule to the bound, at or below which a part does not run.
struct part_gaps {
  static constexpr double solvers = 0.0002;        ///< named solvers: at the bound they can hardly be better
  static constexpr double chains = 0.0005;         ///< the bound of chains of moments
  static constexpr double windows = 0.0005;        ///< windows
  static constexpr double exact = 0.001;           ///< `exact`, joint moments, and the first split
  static constexpr double left_to_search = 0.003;  ///< what refinement closes by itself
  static constexpr double wide = 0.005;            ///< random eviction, and further splits
  static constexpr double near = 0.01;             ///< above: annealing goes on from the schedules of several parts
  static constexpr double joint_most = 0.1;        ///< above: joint moments wait for a better schedule
};

/// Shares of what is left of the limits, for the steps of an opening.
struct opening_shares {
  static constexpr double bound = 0.2;           ///< the bound at one moment
  static constexpr double exact = 0.75;          ///< `exact` on the smallest graphs
  static constexpr double eviction = 0.25;       ///< plain eviction
  static constexpr double guided = 0.2;          ///< one eviction around what a bound keeps
  static constexpr double fillings = 0.2;        ///< evictions around fillings together
  static constexpr double large_fillings = 0.8;  ///< … on graphs beyond `graph_sizes::quick_eviction`
  static constexpr double refinement = 0.15;     ///< the first refinement
};

/// Most moments of a chain.
inline constexpr std::uint32_t most_chain_moments = 48;
/// Most schedules from which annealing starts, and from which windows are annealed.
inline constexpr std::size_t most_starts = 8, most_window_starts = 4;

}  // namespace REMAT_NAMESPACE::detail
