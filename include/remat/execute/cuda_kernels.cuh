// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <concepts>
#include <type_traits>

#include "remat/execute/cuda_stream.cuh"
#include "remat/execute/kernels.hpp"

namespace REMAT_NAMESPACE {

/// The argument of a CUDA kernel callable: device memory, and the stream on which it enqueues its work.
using cuda_call = kernel_call<cudaStream_t>;
/// The argument of a copy between the device and pinned memory of the host, which is enqueued on a stream.
using cuda_copy = copy_call<cudaStream_t>;

/// The kernels of a graph on CUDA, as one callable.
///
/// Semantics: as `kernels_for`, with a result that is void or cudaError_t. The executor checks a returned code, and the
/// runtime's last error in both cases. Return the code if kernels are launched by a library that contains a CUDA
/// runtime of its own (a shared library with a static runtime): the executor's runtime does not see the errors of
/// another one. Models: `cuda_kernel_table`, `kernel_table<cuda_call>`, lambdas.
template <class K>
concept cuda_kernels = kernels_for<K, cudaStream_t> && requires(K& kernels, const cuda_call& call) {
  requires std::same_as<decltype(kernels(call)), void> || std::same_as<decltype(kernels(call)), cudaError_t>;
};

/// The kernel of one operation: any copyable callable that takes a `const cuda_call&` and returns void or cudaError_t.
class cuda_kernel {
 public:
  /// No kernel.
  cuda_kernel() = default;
  /// Holds a copy of `f`; no kernel if `f` is an empty std::function or a null pointer.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, cuda_kernel> && cuda_kernels<std::decay_t<F>>)
      cuda_kernel(F&& f) {  // NOLINT: implicit, so that a table's entry is assigned a lambda
    if constexpr (requires { f == nullptr; } && !std::is_function_v<std::remove_reference_t<F>>)
      if (f == nullptr) return;
    if constexpr (std::same_as<std::invoke_result_t<std::decay_t<F>&, const cuda_call&>, cudaError_t>)
      call_ = std::forward<F>(f);
    else
      call_ = [kernel = std::decay_t<F>(std::forward<F>(f))](const cuda_call& call) mutable {
        kernel(call);
        return cudaSuccess;
      };
  }

  /// True when there is a kernel.
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(call_); }
  /// Calls the kernel; returns its code, cudaSuccess if it returns none. Precondition: there is a kernel.
  cudaError_t operator()(const cuda_call& call) const { return call_(call); }

 private:
  std::function<cudaError_t(const cuda_call&)> call_;
};

/// A table with one kernel for each operation, which passes on the codes that kernels return: `kernel_table<cuda_call>`
/// takes such kernels, too, but drops their codes.
///
///     cuda_kernel_table kernels(graph);
///     kernels[matmul] = [](const cuda_call& c) { return my_library_matmul(…, c.stream); };  // a cudaError_t
using cuda_kernel_table = kernel_table<cuda_call, cuda_kernel>;

namespace detail::cuda {

/// The same function as `splitmix64`, for host and device code.
__host__ __device__ constexpr std::uint64_t mix(std::uint64_t z) noexcept {
  z += golden;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace detail::cuda

/// The same function as `kernel_seed`, for host and device code.
[[nodiscard]] __host__ __device__ constexpr std::uint64_t cuda_kernel_seed(std::uint64_t step_seed, op_id o) noexcept {
  return detail::cuda::mix(detail::cuda::mix(step_seed) + detail::golden * static_cast<std::uint64_t>(o));
}

/// The seed of a training step in device memory, for random kernels of captured steps. A capture fixes the values of
/// its kernels' arguments, not the content of memory that they read.
///
/// A kernel calls `cuda_kernel_seed(*get(), operation)`. The executor writes the seed before each training step, in the
/// order of the step's stream, and waits for nothing. It must live until the last step that reads it has ended.
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

}  // namespace REMAT_NAMESPACE
