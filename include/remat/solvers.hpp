// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Every solver, with bounds and refinement. It needs the standard library alone, as `remat/remat.hpp` does, and takes
/// longer to compile: a translation unit that calls one solver had better include that one.
#include "remat/bound/least_memory.hpp"
#include "remat/bound/max_flow.hpp"
#include "remat/bound/moment_branch.hpp"
#include "remat/bound/moment_cut.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/refine/refine.hpp"
#include "remat/refine/search.hpp"
#include "remat/refine/timeline.hpp"
#include "remat/solver/chen.hpp"
#include "remat/solver/conclude.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/exact.hpp"
#include "remat/solver/linearize.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/persistent_chain.hpp"
#include "remat/solver/persistent_exact.hpp"
#include "remat/solver/persistent_rows.hpp"
#include "remat/solver/persistent_slots.hpp"
#include "remat/solver/portfolio.hpp"
#include "remat/solver/refined.hpp"
#include "remat/solver/revolve.hpp"
#include "remat/solver/rotor.hpp"
