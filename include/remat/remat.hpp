// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Every header that needs the standard library alone, but for the solvers with bounds and refinement, which are in
/// `remat/solvers.hpp`, and memory plans and executors, which are in `remat/execute.hpp`. Headers of the library
/// include what they use, never one of these.
#include "remat/chain/chain.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/step_builder.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/digest.hpp"
#include "remat/problem/flat_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/dot.hpp"
#include "remat/render/table.hpp"
#include "remat/render/trace_json.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"
#include "remat/version.hpp"
