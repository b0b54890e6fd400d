// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// The argument of a CUDA kernel callable: device memory, and the stream on which it enqueues its work.
using cuda_call = kernel_call<cudaStream_t>;

/// The kernels of a graph on CUDA, as one callable.
///
/// Semantics: as `kernels_for`, with a result that is void or cudaError_t. The executor checks a returned code, and the
/// runtime's last error in both cases. Return the code where kernels are launched by a library that contains a CUDA
/// runtime of its own (a shared library with a static runtime): the executor's runtime does not see the errors of
/// another one. Models: `cuda_kernel_table`, `kernel_table<cuda_call>`, lambdas, `cuda_stand_in_kernels`.
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
class cuda_kernel_table {
 public:
  /// A table without operations.
  cuda_kernel_table() = default;
  /// Empty kernels for all operations of `g`.
  template <data_flow_graph G>
  explicit cuda_kernel_table(const G& g) : kernels_(static_cast<std::size_t>(g.num_operations())) {}
  /// The given kernels: entry i is the kernel of operation i.
  explicit cuda_kernel_table(std::vector<cuda_kernel> kernels) : kernels_(std::move(kernels)) {}

  /// The number of operations, with and without kernels.
  [[nodiscard]] std::size_t size() const noexcept { return kernels_.size(); }
  /// The kernel of operation `o`, empty if it has none. Precondition: `o` is below `size()`.
  [[nodiscard]] cuda_kernel& operator[](op_id o) noexcept { return kernels_[index(o)]; }
  /// The kernel of operation `o`, empty if it has none. Precondition: `o` is below `size()`.
  [[nodiscard]] const cuda_kernel& operator[](op_id o) const noexcept { return kernels_[index(o)]; }

  /// Calls the operation's kernel; returns its code. Throws `bad_argument` that names the operation if it has none.
  cudaError_t operator()(const cuda_call& call) const {
    const std::size_t o = index(call.operation);
    if (o >= kernels_.size() || !kernels_[o])
      throw bad_argument("operation " + std::to_string(o) + " has no kernel in the table");
    return kernels_[o](call);
  }

 private:
  std::vector<cuda_kernel> kernels_;
};

}  // namespace remat
