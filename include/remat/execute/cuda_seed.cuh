// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "remat/core/id.hpp"
#include "remat/execute/cuda_error.cuh"
#include "remat/execute/cuda_stream.cuh"

namespace remat {

/// The same function as `kernel_seed`, for host and device code.
[[nodiscard]] __host__ __device__ constexpr std::uint64_t cuda_kernel_seed(std::uint64_t step_seed, op_id o) noexcept {
  std::uint64_t z = step_seed + 0x9e3779b97f4a7c15u;
  for (int round = 0; round < 2; ++round) {
    if (round == 1) z += 0x9e3779b97f4a7c15u * (static_cast<std::uint64_t>(o) + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z = z ^ (z >> 31);
  }
  return z;
}

/// The seed of a training step in device memory, for random kernels of captured steps. A value that a capture takes is
/// the same at every replay; a value that its kernels read from memory is not.
///
/// A kernel calls `cuda_kernel_seed(*get(), operation)`. The executor writes the seed before each training step, in the
/// order of the step's stream, and waits for nothing.
class cuda_seed {
 public:
  /// Allocates the memory of the seed on the current device; the seed is undefined before `set`. Throws `cuda_error`.
  cuda_seed() : memory_(sizeof(std::uint64_t)) {}
  /// The address of the seed on the device, for kernels.
  [[nodiscard]] const std::uint64_t* get() const noexcept { return memory_.as<std::uint64_t>().data(); }

  /// Enqueues the writing of `seed`. Throws `cuda_error`.
  void set(std::uint64_t seed, cudaStream_t stream) const {
    // A fill takes its value when it is enqueued; a copy would read host memory later, or wait until it has been read.
    // One fill for each stretch of equal bytes: two or three if the seed counts steps.
    const auto bytes = std::bit_cast<std::array<unsigned char, sizeof seed>>(seed);
    for (std::size_t i = 0; i < bytes.size();) {
      std::size_t end = i + 1;
      while (end < bytes.size() && bytes[end] == bytes[i]) ++end;
      throw_on_cuda_error(cudaMemsetAsync(memory_.data() + i, bytes[i], end - i, stream), "writing the step's seed");
      i = end;
    }
  }

 private:
  cuda_memory memory_;
};

}  // namespace remat
