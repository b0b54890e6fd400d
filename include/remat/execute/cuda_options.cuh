// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "remat/execute/cuda_seed.cuh"
#include "remat/execute/cuda_stream.cuh"
#include "remat/problem/problem.hpp"

namespace remat {

namespace detail::cuda {

/// A byte that, repeated, is a NaN in every floating-point format.
inline constexpr int poison = 0xff;

}  // namespace detail::cuda

/// How closely `cuda_executor` watches the kernels. Only with `off` can a training step be captured.
enum class cuda_debug : std::uint8_t {
  off,  ///< does not watch them
  /// Waits for each launch, so that an error that the device finds (an illegal address) names its operation.
  synchronize,
  /// As `synchronize`, and fills memory that belongs to no tensor with `detail::cuda::poison`: freed memory becomes
  /// poison, fresh outputs and workspace begin as poison. A kernel that reads poison computes NaN.
  poison,
  /// As `poison`, and compares the arena with a copy on the host after each launch (`detail::cuda::write_check`): a
  /// kernel that has written outside of its outputs and its workspace is named.
  check_writes
};

/// Options of `cuda_executor`.
struct cuda_options {
  /// The arena: the caller's device memory (`cuda_memory(span)`), or memory of a pool in a stream's order
  /// (`cuda_memory(bytes, stream)`). If empty, the executor calls cudaMalloc once, for the plan's bytes. Several
  /// executors may share one span, as large as the largest of their plans needs: their steps must be ordered, and each
  /// overwrites the whole arena.
  cuda_memory arena{};
  std::int64_t arena_budget = problem::unlimited;  ///< bytes, at least 0: a plan with a larger arena is refused
  /// The plan's streams 1, 2, …, which the caller owns: created with any flags, priorities or green contexts, and alive
  /// as long as the executor. Empty: the executor makes them, with cudaStreamNonBlocking.
  std::vector<cudaStream_t> streams{};
  /// Of the streams that the executor makes; the stream of `capture()` is always one of them. Smaller numbers are more
  /// urgent, 0 is the default. If the stream passed to `run` has a priority, give the same here.
  int priority = 0;
  cuda_debug debug = cuda_debug::off;  ///< how closely the executor watches the kernels
  /// In a debug mode: tell NVTX which bytes of the arena belong to tensors (`detail::cuda::memory_regions`), so that
  /// compute-sanitizer sees a kernel that leaves its tensor. Only for an arena that no other executor uses.
  bool regions = false;
  bool timing = false;  ///< note when each launch began and ended: two more events a launch
  bool ranges = false;  ///< an NVTX range around each launch's enqueuing, with the operation's name
  /// If not null: written before each training step; must outlive the executor. A step with random operations
  /// (`launch_plan::is_random`) can be captured only with it.
  const cuda_seed* seed = nullptr;
};

/// The time of one launch on the device, in milliseconds.
struct cuda_launch_time {
  float start = 0;     ///< from the start of the training step
  float duration = 0;  ///< of its kernel
};

}  // namespace remat
