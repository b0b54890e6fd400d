// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Every header that needs the standard library alone. Headers of the library include what they use, never this one.

#include "remat/bound/least_memory.hpp"
#include "remat/bound/max_flow.hpp"
#include "remat/bound/moment_cut.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/callable.hpp"
#include "remat/cost/concepts.hpp"
#include "remat/cost/flops.hpp"
#include "remat/cost/linear.hpp"
#include "remat/cost/measured.hpp"
#include "remat/cost/roofline.hpp"
#include "remat/cost/spec.hpp"
#include "remat/cost/unit.hpp"
#include "remat/graph/chain.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/table.hpp"
#include "remat/render/units.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/solution.hpp"
#include "remat/version.hpp"
