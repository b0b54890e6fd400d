// SPDX-License-Identifier: BSL-1.0
#pragma once

// A CUDA runtime without a GPU: this header defines the functions of the runtime's C interface that the executor calls,
// so a program that includes it (in one translation unit) runs the executor as it is and needs no device.
//
// - Work is kept until a call waits for it. Then it runs in a random one of the orders that CUDA allows, and not much
//   more of it runs than what the call waits for.
// - Each piece of work knows by a vector clock what it follows. If two kernels use the same bytes, one of them writes
//   and none follows the other, that is reported, whatever order the dice chose (`enqueue` with `accesses`).
// - Device memory is pages that the host cannot touch; a test reads it with cudaMemcpy.
// - Memory of a pool can be used from its allocation to its free, in the order of streams.
// - Captures become graphs, and calls that a capture forbids fail as in CUDA.
// - There may be several devices (`the().devices`); streams, events and memory belong to the one that was current.
// - Every call is counted and can be made to fail; resources that are not given back are counted, too (`held`).
//
// A mistake that a device would not show, or not always, is a `report`: a failure of the test, unless it expects
// reports.

#include "support/fake_cuda_allocations.hpp"
#include "support/fake_cuda_graphs.hpp"
#include "support/fake_cuda_memory.hpp"
#include "support/fake_cuda_state.hpp"
#include "support/fake_cuda_streams.hpp"
#include "support/fake_cuda_work.hpp"
