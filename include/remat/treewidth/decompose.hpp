// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/core/run.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE {

/// Options of `decompose`.
struct decompose_options {
  /// Without a time limit and a work limit the search ends when the width is proven, or after `rounds` rounds.
  run_control run{};
  std::uint32_t rounds = 5;  ///< rounds of search on a fragment without a limit; each takes twice as long as the last
  std::int64_t target_width = 0;  ///< the search ends at a width of at most this
};

/// Figures of a search.
struct decomposition_statistics {
  std::uint64_t rounds = 0;  ///< rounds of search, over all fragments and threads
  std::uint64_t work = 0;    ///< elementary steps
  double seconds = 0;        ///< wall clock
};

/// A tree decomposition and a proven bound.
struct decomposition_result {
  tree_decomposition tree{};                ///< the best decomposition found; always valid
  std::int64_t width = -1;                  ///< the width of `tree`
  std::int64_t lower_bound = -1;            ///< proven: no tree decomposition of the graph has a smaller width
  bool proven = false;                      ///< `width` is the treewidth
  stop_reason stopped = stop_reason::none;  ///< the limit or stop request that ended the search; `none` if none did
  decomposition_statistics statistics{};    ///< figures of the search
};

/// Finds a tree decomposition of small width, and a proven lower bound on the treewidth. Anytime: more time gives a
/// smaller width, up to the treewidth.
///
/// 1. Safe reductions, connected components, and safe separators of a minimal triangulation split the graph into
///    fragments, and each fragment again. The treewidth is the largest of the fragments'.
/// 2. Rounds follow, always on the widest fragment, each twice as long as the last: greedy orders with random ties, the
///    exact search from the lower bound upwards on fragments of up to 1024 vertices, nested dissection by flows, local
///    search over elimination orders on fragments of up to 256 vertices, and improvement of the decomposition region by
///    region.
/// 3. The search ends when the width of the widest fragment is proven, or at a limit. The decompositions of the
///    fragments are joined, and the whole is checked (`check_decomposition`).
///
/// Stops: `run.stop`, `run.time_limit` and `run.work_limit` end the search with the best decomposition so far, within
/// 0.1 s on graphs of up to 5,000 vertices and 500,000 edges. If they end it before a fragment has its first
/// decomposition, the last vertices of the fragment share one bag. `run.on_progress` is called on the caller's thread;
/// its `best_objective` is the width. Determinism: with a work limit, or without limits, `run.seed` alone decides the
/// answer. With a time limit alone, `run.threads` searches from different seeds run side by side until one has a proof,
/// or as many as `run.crew` has members; otherwise one thread is used. Throws `internal_error` for a defect of its own,
/// and passes on what `on_progress` throws.
///
///     decompose_options options;
///     options.run.time_limit = std::chrono::seconds(10);
///     const decomposition_result r = decompose(operation_graph(problem), options);
///     // r.tree.bags[b], r.tree.links()[b], r.width, r.lower_bound, r.proven
[[nodiscard]] decomposition_result decompose(const undirected_graph& g, const decompose_options& options = {});

/// How other processes of `run.crew` take part in `decompose`.
[[nodiscard]] piece_kind decompose_pieces();

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/decompose.hpp"
#endif
