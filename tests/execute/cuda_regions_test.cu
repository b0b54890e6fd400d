// SPDX-License-Identifier: BSL-1.0
// NVTX regions on a device. Without a tool they do nothing. Under `compute-sanitizer --tool memcheck --nvtx yes` the
// planted overrun must be reported, which may cost the CUDA context: so it is the last test of a program of its own,
// and tests/gpu.sh runs it alone.
#include <doctest/doctest.h>

#include "remat/core/error.hpp"
#include "remat/execute/cuda.cuh"
#include "support/overrun_step.cuh"

using namespace remat;

namespace {

/// Free memory lies between the two tensors.
void run_with_regions(int surplus) { test::run_with_overrun(512, surplus, cuda_debug::synchronize, true, 2); }

}  // namespace

TEST_CASE("steps that keep to their regions run, with and without a tool") { run_with_regions(0); }

TEST_CASE("planted overrun: a step whose kernel leaves its region") {
  try {
    run_with_regions(1);  // without a tool, nobody sees it
  } catch (const execution_error& e) {
    CHECK(index(e.operation()) == 1);  // the tool has stopped the kernel
  } catch (const error&) {
    // The tool has ended the context behind the kernel.
  }
}
