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
  static constexpr std::uint32_t short_chains = 500;       ///< Rotor and Rockmate take little time below it
  static constexpr std::uint32_t pofo = 500;               ///< a tenth of usual limits is enough
  static constexpr std::uint32_t exact = 512;              ///< `exact` races
  static constexpr std::uint32_t chains = 2000;            ///< Rotor and Rockmate race below it
  static constexpr std::uint32_t joint_moments = 2000;     ///< the bound of several moments together
  static constexpr std::uint32_t window_annealing = 5000;  ///< windows are disturbed and solved again
  static constexpr std::uint32_t quick_eviction = 5000;    ///< an eviction takes a good part of usual limits above it
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
  static constexpr double left_to_search = 0.003;  ///< refinement closes it by itself
  static constexpr double wide = 0.005;            ///< random eviction, and further splits
  static constexpr double near = 0.01;             ///< annealing goes on from schedules of several parts above it
  static constexpr double joint_most = 0.1;        ///< joint moments wait for a better schedule above it
};

/// Shares of what is left of the limits, for the steps of an opening.
struct opening_shares {
  static constexpr double bound = 0.2;           ///< the bound at one moment
  static constexpr double exact = 0.75;          ///< `exact` on the smallest graphs
  static constexpr double eviction = 0.25;       ///< plain eviction
  static constexpr double guided = 0.2;          ///< one eviction around what a bound keeps
  static constexpr double fillings = 0.2;        ///< evictions around fillings together
  static constexpr double large_fillings = 0.8;  ///< the same beyond `graph_sizes::quick_eviction`
  static constexpr double refinement = 0.15;     ///< the first refinement
};

/// Shares of what is left of the limits for what `auto` runs one after the other, before its parts race. Most end long
/// before that.
struct first_shares {
  static constexpr double bound = 0.06;          ///< the bound of its own
  static constexpr double listed_order = 0.02;   ///< `no_remat`
  static constexpr double eviction = 0.25;       ///< `evict`, if there is a schedule
  static constexpr double first_schedule = 0.5;  ///< `evict`, if there is none; less is too little on large graphs
  static constexpr double twremat = 0.07;        ///< `twremat`, if `evict` has found none
  static constexpr double reordered = 0.03;      ///< `no_remat` in another order
  static constexpr double closed_form = 0.02;    ///< each of `chen_greedy`, `chen_sqrt` and `revolve`
  static constexpr double second_try =
      0.4;  ///< `evict` at random, and `twremat` again, if nothing has found a schedule
  static constexpr double refinement = 0.15;      ///< the opening of `refined`
  static constexpr double long_refinement = 0.6;  ///< the same where the other parts do little: see `opens_long`
};

/// Shares of what is left of the limits for the first slices of the solvers that race in `auto` (docs/tried.md): what
/// they get, refinement has not.
struct race_shares {
  static constexpr double twremat = 0.03;
  static constexpr double rotor = 0.05;
  static constexpr double rockmate = 0.07;
  static constexpr double hiremate = 0.05;
  static constexpr double large_hiremate = 0.1;  ///< `hiremate` from `graph_sizes::chains` on
  static constexpr double huge_hiremate = 0.8;   ///< `hiremate` from `graph_sizes::refinement` on
  static constexpr double users_solver = 0.05;   ///< each of `automatic_options::extra_solvers`
};

/// Shares of what is left of the limits with a link to the host (docs/offload.md).
struct link_shares {
  static constexpr double opening_alone = 0.12;     ///< `auto`: the first parts of recomputation alone
  static constexpr double alone_good_start = 0.15;  ///< `auto`: the other ones, if the first come near their own bound
  static constexpr double alone_poor_start = 0.5;   ///< `auto`: the other ones, if not: they need one long turn
  static constexpr double good_start = 0.02;        ///< a gap: near the bound of recomputation alone
  static constexpr double pofo = 0.1;               ///< `auto`: `pofo` on small graphs
  static constexpr double eviction = 0.25;          ///< `refined`: eviction that drops or copies
  static constexpr double refined_alone = 0.3;      ///< `refined`: recomputation alone
  static constexpr double scan = 0.25;              ///< `offload`: each way to find candidates
  static constexpr double one_candidate = 0.25;     ///< `offload`: one eviction of such a way
  static constexpr double candidates = 0.4;         ///< `offload`: the refinement of all candidates
};

/// Most moments of a chain.
inline constexpr std::uint32_t most_chain_moments = 48;
/// Most schedules from which annealing starts, and from which windows are annealed.
inline constexpr std::size_t most_starts = 8, most_window_starts = 4;

}  // namespace REMAT_NAMESPACE::detail
