// SPDX-License-Identifier: BSL-1.0
#pragma once

/// What comes behind a schedule: memory plans and executors on the host. It needs the standard library alone, as
/// `remat/remat.hpp` does, and threads where it runs.
#include "remat/execute/fit_arena.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/profile.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
