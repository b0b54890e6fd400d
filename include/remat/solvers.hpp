// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Every solver, with bounds, refinement and tree decompositions. It needs the standard library alone, as
/// `remat/remat.hpp` does, and takes longer to compile: a translation unit that calls one solver had better include
/// that one. `checkmate_with` and `hiremate_with` take a MIP backend; `remat/method/cbc.hpp` has `checkmate` and
/// `hiremate`, the same two on COIN-OR CBC, and needs that package. `remat/mip/command.hpp`, which needs POSIX, is left
/// out.
#include "remat/bound/least_memory.hpp"
#include "remat/bound/least_memory_within.hpp"
#include "remat/bound/offload.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/pace.hpp"
#include "remat/method/registry.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/model.hpp"
#include "remat/refine/refine.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/frontier.hpp"
#include "remat/solver/improvement.hpp"
#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"
