// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Memory plans and executors on the host, and text files of intervals. It needs the standard library alone, as
/// `remat/remat.hpp` does, and threads where it runs.
#include "remat/execute/fit_arena.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/profile.hpp"
#include "remat/io/text.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
