// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "remat/execute/cuda_error.cuh"
#include "remat/execute/cuda_seed.cuh"
#include "remat/execute/cuda_stream.cuh"
#include "remat/execute/detail/cuda_arena.cuh"
#include "remat/execute/detail/cuda_device.cuh"

namespace remat {

/// A training step as a CUDA graph that can be replayed. It uses the executor's arena and the memory that was bound at
/// the capture, and must not outlive either.
class cuda_captured_step {
 public:
  /// Makes `graph` executable, for the executor that owns `arena`. `seed` is written before each launch; null: none is.
  /// Throws `cuda_error`.
  cuda_captured_step(cuda_graph graph, const cuda_seed* seed, const detail::cuda_arena& arena)
      : graph_(std::move(graph)),
        exec_(make_cuda_graph_exec(graph_)),
        seed_(seed),
        arena_(&arena),
        device_(detail::cuda::current_device()) {}

  /// Enqueues the training step on `stream` and returns. `step_seed` is written to the executor's `cuda_seed`, if it
  /// has one; `kernel_call::seed` stays as at the capture. `stream` may be any but a capturing one.
  /// Throws `bad_argument` if another device is current than at the capture, `cuda_error`.
  void launch(cudaStream_t stream, std::uint64_t step_seed = 0) const {
    detail::cuda::require_current(device_);
    arena_->acquire(stream);
    if (seed_ != nullptr) seed_->set(step_seed, stream);
    throw_on_cuda_error(cudaGraphLaunch(exec_.get(), stream), "launching the captured step");
    arena_->release(stream);
  }

  /// Replaces the step by `graph`, a new capture of the same executor. Launches that were enqueued before run as they
  /// were. Returns true if only parameters of nodes were replaced in the executable graph (cudaGraphExecUpdate), false
  /// if nodes or edges differ, so that it was instantiated anew. Throws `cuda_error`; the step must then be replaced
  /// again before its next launch.
  bool update(cuda_graph graph) {
    cudaGraphExecUpdateResultInfo info{};
    const cudaError_t code = cudaGraphExecUpdate(exec_.get(), graph.get(), &info);
    if (code == cudaErrorGraphExecUpdateFailure) {
      static_cast<void>(cudaGetLastError());
      exec_ = make_cuda_graph_exec(graph);
    } else {
      throw_on_cuda_error(code, "updating the captured step");
    }
    graph_ = std::move(graph);
    return code == cudaSuccess;
  }

  /// True when the executor that owns `arena` has captured the step.
  [[nodiscard]] bool is_of(const detail::cuda_arena& arena) const noexcept { return arena_ == &arena; }
  /// The captured graph, for the runtime's own functions; this object owns it.
  [[nodiscard]] cudaGraph_t graph() const noexcept { return graph_.get(); }
  /// The executable graph, for the runtime's own functions; this object owns it.
  [[nodiscard]] cudaGraphExec_t exec() const noexcept { return exec_.get(); }

 private:
  cuda_graph graph_;
  cuda_graph_exec exec_;
  const cuda_seed* seed_;
  const detail::cuda_arena* arena_;
  int device_;
};

}  // namespace remat
