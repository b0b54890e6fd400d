// SPDX-License-Identifier: BSL-1.0
#pragma once

/// What comes behind a schedule: memory plans and executors on the host. It needs the standard library alone, as
/// `remat/remat.hpp` does, and threads where it runs.
#include "remat/execute/exclusive_use.hpp"
#include "remat/execute/fit_arena.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/execute/launch_calls.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/memory_guard.hpp"
#include "remat/execute/profile.hpp"
#include "remat/execute/profile_and_plan.hpp"
#include "remat/execute/stand_in.hpp"
#include "remat/execute/virtual_memory.hpp"
#include "remat/execute/worker_threads.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/component.hpp"
#include "remat/memory/fit.hpp"
#include "remat/memory/interval.hpp"
#include "remat/memory/plan.hpp"
#include "remat/memory/skyline.hpp"
#include "remat/memory/squeeze.hpp"
