// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The planner: `automatic` and the solvers that most programs call, with bounds and refinement. It needs the standard
/// library alone, as `remat/remat.hpp` does, and takes longer to compile: a translation unit that calls one solver had
/// better include that one.
///
/// The programs of the papers enter by headers of their own: `remat/method/checkmate.hpp`, `hiremate.hpp`,
/// `rockmate.hpp`, `twremat.hpp` and `pofo.hpp`. `remat/method/registry.hpp` includes all of them, with hierarchies,
/// tree decompositions and integer programs.
#include "remat/bound/least_memory.hpp"
#include "remat/bound/offload.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"
#include "remat/refine/refine.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/frontier.hpp"
