// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

/// A call of the CUDA runtime failed. `what()` is one line: the call, CUDA's words for the error, and the source line
/// of the call.
class cuda_error : public error {
 public:
  /// Keeps CUDA's code beside the message.
  cuda_error(cudaError_t code, const std::string& message) : error(message), code_(code) {}
  /// CUDA's code of the error.
  [[nodiscard]] cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

/// Throws `cuda_error` unless `code` is cudaSuccess.
///
///     throw_on_cuda_error(cudaMalloc(&p, bytes), "cudaMalloc");
///
/// Clears the runtime's last error, so that later checks do not report it again. An error that has destroyed the
/// context (an illegal address, for instance) comes back from every later call all the same.
inline void throw_on_cuda_error(cudaError_t code, std::string_view call = {},
                                const std::source_location& where = std::source_location::current()) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  std::string_view file = where.file_name();
  file = file.substr(file.find_last_of("/\\") + 1);  // npos + 1 is 0
  throw cuda_error(code, (call.empty() ? std::string() : std::string(call) + ": ") + cudaGetErrorString(code) + " (" +
                             cudaGetErrorName(code) + ", " + std::string(file) + ":" + std::to_string(where.line()) +
                             ")");
}

/// Owns a handle of the CUDA runtime, and calls `Destroy` for it. Move-only; empty after a move. Pass `get()` to the
/// runtime's own functions.
template <class Handle, cudaError_t (*Destroy)(Handle)>
class cuda_handle {
 public:
  /// Owns nothing.
  cuda_handle() = default;
  /// Owns `handle` from now on.
  explicit cuda_handle(Handle handle) noexcept : handle_(handle) {}
  /// Takes over the handle of `other`, which is empty afterwards.
  cuda_handle(cuda_handle&& other) noexcept : handle_(other.release()) {}
  /// Destroys the own handle and takes over that of `other`, which is empty afterwards.
  cuda_handle& operator=(cuda_handle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  ~cuda_handle() { reset(); }

  /// The handle, which stays owned; null if there is none.
  [[nodiscard]] Handle get() const noexcept { return handle_; }
  /// True when it owns a handle.
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != Handle{}; }
  /// Gives up the handle: the caller must destroy it.
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Handle{}); }
  /// Destroys the handle, if there is one; owns nothing afterwards. Reports no error.
  void reset() noexcept {
    // An error here comes from work enqueued earlier; the call that waits for that work reports it.
    if (handle_ != Handle{}) static_cast<void>(Destroy(std::exchange(handle_, Handle{})));
  }

 private:
  Handle handle_{};
};

using cuda_stream = cuda_handle<cudaStream_t, &cudaStreamDestroy>;            ///< owns a stream
using cuda_event = cuda_handle<cudaEvent_t, &cudaEventDestroy>;               ///< owns an event
using cuda_graph = cuda_handle<cudaGraph_t, &cudaGraphDestroy>;               ///< owns a graph
using cuda_graph_exec = cuda_handle<cudaGraphExec_t, &cudaGraphExecDestroy>;  ///< owns an executable graph

/// A new stream of the current device. cudaStreamNonBlocking: it does not wait for the legacy default stream. Smaller
/// priorities are more urgent, 0 is the default; CUDA moves others into the device's range.
/// Throws `cuda_error`, as all functions here.
[[nodiscard]] inline cuda_stream make_cuda_stream(unsigned flags = cudaStreamNonBlocking, int priority = 0) {
  cudaStream_t s{};
  throw_on_cuda_error(
      priority == 0 ? cudaStreamCreateWithFlags(&s, flags) : cudaStreamCreateWithPriority(&s, flags, priority),
      "creating a stream");
  return cuda_stream(s);
}

/// A new event of the current device; with cudaEventDefault it can measure time.
[[nodiscard]] inline cuda_event make_cuda_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t e{};
  throw_on_cuda_error(cudaEventCreateWithFlags(&e, flags), "creating an event");
  return cuda_event(e);
}

/// An executable copy of a graph. Its kernels keep the priorities that they were captured with, whatever the priority
/// of the stream that it is launched into.
[[nodiscard]] inline cuda_graph_exec make_cuda_graph_exec(cudaGraph_t graph) {
  cudaGraphExec_t e{};
  throw_on_cuda_error(cudaGraphInstantiate(&e, graph, cudaGraphInstantiateFlagUseNodePriority),
                      "instantiating a graph");
  return cuda_graph_exec(e);
}
/// \overload
[[nodiscard]] inline cuda_graph_exec make_cuda_graph_exec(const cuda_graph& graph) {
  return make_cuda_graph_exec(graph.get());
}

/// Device memory: allocated and owned, or the caller's.
class cuda_memory {
 public:
  /// No memory.
  cuda_memory() = default;
  /// cudaMalloc; cudaFree at the end. It may wait for the device, but CUDA does not promise that: work that uses the
  /// memory must have ended.
  explicit cuda_memory(std::size_t bytes) : owner_(owner::heap) {
    void* p = nullptr;
    if (bytes != 0) throw_on_cuda_error(cudaMalloc(&p, bytes), "allocating " + std::to_string(bytes) + " bytes");
    bytes_ = {static_cast<std::byte*>(p), bytes};
  }
  /// Allocates from `pool` (null: the device's current pool) in the order of `stream`, and frees in that order, too:
  /// work of other streams that uses the memory must be ordered before the free. The stream must exist until then.
  cuda_memory(std::size_t bytes, cudaStream_t stream, cudaMemPool_t pool = nullptr)
      : owner_(owner::pool), stream_(stream) {
    void* p = nullptr;
    if (bytes != 0)
      throw_on_cuda_error(
          pool == nullptr ? cudaMallocAsync(&p, bytes, stream) : cudaMallocFromPoolAsync(&p, bytes, pool, stream),
          "allocating " + std::to_string(bytes) + " bytes in a stream's order");
    bytes_ = {static_cast<std::byte*>(p), bytes};
  }
  /// Refers to the caller's memory, and does not free it.
  explicit cuda_memory(std::span<std::byte> memory) noexcept : bytes_(memory) {}

  /// Takes over the memory of `other`, which has none afterwards.
  cuda_memory(cuda_memory&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})),
        owner_(std::exchange(other.owner_, owner::caller)),
        stream_(other.stream_) {}
  /// Frees the own memory and takes over that of `other`, which has none afterwards.
  cuda_memory& operator=(cuda_memory&& other) noexcept {
    if (this != &other) {
      reset();
      bytes_ = std::exchange(other.bytes_, {});
      owner_ = std::exchange(other.owner_, owner::caller);
      stream_ = other.stream_;
    }
    return *this;
  }
  ~cuda_memory() { reset(); }

  /// The memory; empty if there is none.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The address of the first byte on the device.
  [[nodiscard]] std::byte* data() const noexcept { return bytes_.data(); }
  /// The number of bytes.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  /// The bytes as elements of `T`.
  template <class T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  /// True when the memory is of a pool: allocated and freed in the order of `stream()`.
  [[nodiscard]] bool in_stream_order() const noexcept { return bytes_.data() != nullptr && owner_ == owner::pool; }
  /// True when the memory was allocated here, and is freed at the end.
  [[nodiscard]] bool is_owned() const noexcept { return bytes_.data() != nullptr && owner_ != owner::caller; }
  /// The stream in whose order memory of a pool is allocated and freed.
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
  /// Gives up the memory, and has none afterwards: what was allocated here, the caller must free.
  [[nodiscard]] std::span<std::byte> release() noexcept {
    owner_ = owner::caller;
    return std::exchange(bytes_, {});
  }
  /// Frees the memory, unless it is the caller's; there is none afterwards. Reports no error.
  void reset() noexcept {
    if (bytes_.data() != nullptr && owner_ == owner::heap) static_cast<void>(cudaFree(bytes_.data()));
    if (bytes_.data() != nullptr && owner_ == owner::pool) static_cast<void>(cudaFreeAsync(bytes_.data(), stream_));
    bytes_ = {};
    owner_ = owner::caller;
  }

 private:
  enum class owner : std::uint8_t { caller, heap, pool };
  std::span<std::byte> bytes_{};
  owner owner_ = owner::caller;
  cudaStream_t stream_{};
};

/// Pinned memory of the host, to and from which copies run beside kernels: allocated and owned, or the caller's.
class cuda_host_memory {
 public:
  /// No memory.
  cuda_host_memory() = default;
  /// cudaHostAlloc; cudaFreeHost at the end: work that uses the memory must have ended. Throws `cuda_error`.
  explicit cuda_host_memory(std::size_t bytes) {
    void* p = nullptr;
    if (bytes != 0)
      throw_on_cuda_error(cudaHostAlloc(&p, bytes, cudaHostAllocDefault),
                          "allocating " + std::to_string(bytes) + " bytes of pinned memory");
    own_ = handle(p);
    bytes_ = {static_cast<std::byte*>(p), bytes};
  }
  /// Refers to the caller's memory, and does not free it. It must be pinned (cudaHostAlloc, cudaHostRegister): the
  /// runtime copies pageable memory while the host waits, which a capture forbids.
  explicit cuda_host_memory(std::span<std::byte> memory) noexcept : bytes_(memory) {}

  /// Takes over the memory of `other`, which has none afterwards.
  cuda_host_memory(cuda_host_memory&& other) noexcept
      : own_(std::move(other.own_)), bytes_(std::exchange(other.bytes_, {})) {}
  /// Frees the own memory and takes over that of `other`, which has none afterwards.
  cuda_host_memory& operator=(cuda_host_memory&& other) noexcept {
    own_ = std::move(other.own_);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }
  ~cuda_host_memory() = default;

  /// The memory; empty if there is none.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The number of bytes.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  /// True when the memory was allocated here, and is freed at the end.
  [[nodiscard]] bool is_owned() const noexcept { return static_cast<bool>(own_); }
  /// Gives up the memory, and has none afterwards: what was allocated here, the caller must free.
  [[nodiscard]] std::span<std::byte> release() noexcept {
    static_cast<void>(own_.release());
    return std::exchange(bytes_, {});
  }

 private:
  using handle = cuda_handle<void*, &cudaFreeHost>;
  handle own_{};
  std::span<std::byte> bytes_{};
};

}  // namespace REMAT_NAMESPACE
