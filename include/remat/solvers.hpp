// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Every solver, with bounds, refinement and tree decompositions. It needs the standard library alone, as
/// `remat/remat.hpp` does, and takes longer to compile: a translation unit that calls one solver had better include
/// that one. `checkmate_with` and `hiremate_with` take a MIP backend; `remat/method/cbc.hpp` has `checkmate` and
/// `hiremate`, the same two on COIN-OR CBC, and needs that package.
#include "remat/bound/least_memory.hpp"
#include "remat/bound/least_memory_within.hpp"
#include "remat/bound/offload.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/pace.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/checkmate.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/pofo.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/twremat.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/command.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/model.hpp"
#include "remat/refine/refine.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/frontier.hpp"
#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"
