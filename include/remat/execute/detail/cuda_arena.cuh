// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "remat/execute/cuda_error.cuh"
#include "remat/execute/cuda_stream.cuh"

namespace remat::detail {

/// The arena of a `cuda_executor`: its memory, and the order of this memory among the streams that use it.
///
/// Memory of a pool is allocated and freed in the order of one stream, its *home*. Work on another stream must begin
/// behind the allocation, and the free must come behind all work. Two events order both; the host never waits. Memory
/// from cudaMalloc and memory of the caller need no events.
class cuda_arena {
 public:
  /// Takes over `memory`. If that is empty, calls cudaMalloc once, for `bytes` bytes at a multiple of `alignment`.
  /// Throws `cuda_error`.
  cuda_arena(cuda_memory memory, std::size_t bytes, std::size_t alignment) : memory_(std::move(memory)) {
    bytes_ = memory_.bytes();
    if (memory_.size() == 0 && bytes != 0) {
      constexpr std::size_t given = 256;  // cudaMalloc's alignment
      memory_ = cuda_memory(bytes + (alignment > given ? alignment - given : 0));
      const std::size_t behind = reinterpret_cast<std::uintptr_t>(memory_.data()) % alignment;
      bytes_ = memory_.bytes().subspan(behind == 0 ? 0 : alignment - behind, bytes);
    }
    if (!memory_.in_stream_order()) return;
    allocated_ = make_cuda_event();
    used_ = make_cuda_event();
    throw_on_cuda_error(cudaEventRecord(allocated_.get(), memory_.stream()), "recording the allocation of the arena");
  }
  cuda_arena(const cuda_arena&) = delete;
  cuda_arena& operator=(const cuda_arena&) = delete;
  /// Frees the memory behind the last work that was released. Waits for nothing, except that cudaFree waits for the
  /// device.
  ~cuda_arena() {
    if (!released_) return;
    // An error here comes from work enqueued earlier; the call that waits for that work reports it.
    if (cudaStreamWaitEvent(memory_.stream(), used_.get(), 0) != cudaSuccess)
      static_cast<void>(cudaEventSynchronize(used_.get()));
  }

  /// The memory.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The number of events that it uses.
  [[nodiscard]] std::size_t num_events() const noexcept { return allocated_ ? 2 : 0; }

  /// Work that is given to `stream` from now on may use the memory. Throws `cuda_error`.
  void acquire(cudaStream_t stream) const {
    if (is_foreign(stream))
      throw_on_cuda_error(cudaStreamWaitEvent(stream, allocated_.get(), 0), "waiting for the arena's allocation");
  }
  /// The memory is freed behind the work that `stream` has been given. The work released before must come before it in
  /// the streams' order. Throws `cuda_error`.
  void release(cudaStream_t stream) const {
    if (!is_foreign(stream)) return;
    throw_on_cuda_error(cudaEventRecord(used_.get(), stream), "recording the last use of the arena");
    released_ = true;
  }

 private:
  /// True where the stream's own order does not suffice. The per-thread stream is another one on each thread.
  [[nodiscard]] bool is_foreign(cudaStream_t stream) const noexcept {
    return allocated_ && (stream != memory_.stream() || stream == cudaStreamPerThread);
  }

  cuda_memory memory_;
  std::span<std::byte> bytes_;
  cuda_event allocated_, used_;    // of memory of a pool
  mutable bool released_ = false;  // `used_` has been recorded
};

}  // namespace remat::detail
