// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <set>

#include "remat/core/detail/words.hpp"
#include "remat/execute/cuda_stream.cuh"
#include "remat/execute/launch_plan.hpp"

/// The devices and streams that a `cuda_executor` accepts, and the order that it keeps among its streams.
namespace REMAT_NAMESPACE {

/// A node of a captured step: a kernel, a copy or a fill.
struct cuda_step_node {
  cudaGraphNode_t node{};    ///< the node of `cuda_captured_step::graph()`
  std::uint32_t launch = 0;  ///< the launch of the plan that made it
};

}  // namespace REMAT_NAMESPACE

namespace REMAT_NAMESPACE::detail::cuda {

/// The number of the device that is current on the calling thread. Throws `cuda_error`.
[[nodiscard]] inline int current_device() {
  int device = 0;
  throw_on_cuda_error(cudaGetDevice(&device), "asking for the current device");
  return device;
}

/// Throws `bad_argument`, which names both devices, unless `device` is current on the calling thread.
inline void require_current(int device) {
  if (const int now = current_device(); now != device)
    throw bad_argument("device " + std::to_string(now) + " is current; the executor was made on device " +
                       std::to_string(device) + ": call cudaSetDevice(" + std::to_string(device) + ") before");
}

/// The kind of the null stream: the legacy default stream, or with `nvcc --default-stream per-thread` the thread's own.
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
inline constexpr bool null_is_per_thread = true;
#else
inline constexpr bool null_is_per_thread = false;
#endif

/// True for the legacy default stream, which waits for the other streams of its device, and cannot be captured.
[[nodiscard]] inline bool is_legacy(cudaStream_t stream) noexcept {
  return stream == cudaStreamLegacy || (stream == nullptr && !null_is_per_thread);
}
/// True for the default stream of the calling thread: on each thread, the handle means another stream.
[[nodiscard]] inline bool is_per_thread(cudaStream_t stream) noexcept {
  return stream == cudaStreamPerThread || (stream == nullptr && null_is_per_thread);
}

/// True while work for `stream` becomes part of a graph. Throws `cuda_error`.
[[nodiscard]] inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  throw_on_cuda_error(cudaStreamIsCapturing(stream, &status), "asking whether the stream is capturing");
  return status != cudaStreamCaptureStatusNone;
}

/// Adds a copy of `part` to `graph`, as a child graph behind the nodes `after`. Throws `cuda_error`.
inline cudaGraphNode_t add_child(cudaGraph_t graph, std::span<const cudaGraphNode_t> after, cudaGraph_t part) {
  cudaGraphNode_t node{};
  throw_on_cuda_error(cudaGraphAddChildGraphNode(&node, graph, after.data(), after.size(), part),
                      "adding a child graph");
  return node;
}

/// The capture of a stream: the graph, and the nodes that the next one follows, with data of these edges (before CUDA
/// 13: none, and a capture whose edges have data is an error).
struct capture_info {
  cudaStreamCaptureStatus status{};
  cudaGraph_t graph{};
  std::span<const cudaGraphNode_t> after{};
#if CUDART_VERSION >= 13000
  std::vector<cudaGraphEdgeData> edges{};
#endif
};
/// Throws `cuda_error`, also if the capture has failed. The nodes are valid until the next call for the stream.
[[nodiscard]] inline capture_info captured_by(cudaStream_t stream) {
  capture_info out;
  const cudaGraphNode_t* after = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;
  const cudaError_t code = cudaStreamGetCaptureInfo(stream, &out.status, nullptr, &out.graph, &after, &edges, &count);
#else
  const cudaError_t code = cudaStreamGetCaptureInfo_v2(stream, &out.status, nullptr, &out.graph, &after, &count);
#endif
  throw_on_cuda_error(code, "asking for the capture");
  if (out.status != cudaStreamCaptureStatusActive)
    throw_on_cuda_error(cudaErrorStreamCaptureInvalidated, "asking for the capture");
  out.after = {after, count};
#if CUDART_VERSION >= 13000
  if (edges != nullptr) out.edges.assign(edges, edges + count);
#endif
  return out;
}

/// Adds a copy of `part`, as a child graph, to what `stream` captures. Throws `cuda_error`.
inline void add_to_capture(cudaStream_t stream, cudaGraph_t part) {
  // Not cudaGraphLaunch: CUDA does not say what that adds for an executable graph that was updated.
  capture_info capture = captured_by(stream);
  cudaGraphNode_t node{};
#if CUDART_VERSION >= 13000
  // Work may follow the begin of a kernel's blocks instead of its end. Programmatic edges are for kernels alone: a step
  // that is captured behind one follows the end.
  bool plain = true;
  for (cudaGraphEdgeData& e : capture.edges) {
    if (e.type != cudaGraphDependencyTypeDefault) e = {};
    plain = plain && e.from_port == cudaGraphKernelNodePortDefault;
  }
  if (!plain) {
    cudaGraphNodeParams child{};
    child.type = cudaGraphNodeTypeGraph;
    child.graph.graph = part;
    throw_on_cuda_error(cudaGraphAddNode(&node, capture.graph, capture.after.data(), capture.edges.data(),
                                         capture.after.size(), &child),
                        "adding a child graph");
  } else {
    node = add_child(capture.graph, capture.after, part);
  }
  const cudaError_t moved =
      cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies);
#else
  node = add_child(capture.graph, capture.after, part);
  const cudaError_t moved = cudaStreamUpdateCaptureDependencies(stream, &node, 1, cudaStreamSetCaptureDependencies);
#endif
  throw_on_cuda_error(moved, "moving the capture behind a child graph");
}

/// Finds which launch made each node of a graph while it is captured. O(nodes + edges) in all.
class node_table {
 public:
  /// Call it before a launch is enqueued on `stream`: what it follows was there before. Throws `cuda_error`.
  void before(cudaStream_t stream) {
    for (const cudaGraphNode_t n : captured_by(stream).after) known_.insert(n);
  }
  /// Call it behind the launch. Throws `cuda_error`.
  void after(cudaStream_t stream, std::uint32_t launch) {
    const std::span<const cudaGraphNode_t> last = captured_by(stream).after;
    std::vector<cudaGraphNode_t> open(last.begin(), last.end());
    const std::size_t first = nodes_.size();
    while (!open.empty()) {
      const cudaGraphNode_t n = open.back();
      open.pop_back();
      if (!known_.insert(n).second) continue;
      nodes_.push_back({n, launch});
      add_dependencies(n, open);
    }
    std::reverse(nodes_.begin() + static_cast<std::ptrdiff_t>(first), nodes_.end());
  }
  /// The nodes, in the order of launches; there are none afterwards.
  [[nodiscard]] std::vector<cuda_step_node> take() {
    known_.clear();
    return std::exchange(nodes_, {});
  }

 private:
  static void add_dependencies(cudaGraphNode_t node, std::vector<cudaGraphNode_t>& to) {
    std::size_t count = 0;
#if CUDART_VERSION >= 13000
    throw_on_cuda_error(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &count), "asking for a node's edges");
    std::vector<cudaGraphEdgeData> edges(count);
    const std::size_t old = to.size();
    to.resize(old + count);
    if (count == 0) return;
    throw_on_cuda_error(cudaGraphNodeGetDependencies(node, to.data() + old, edges.data(), &count),
                        "asking for a node's edges");
#else
    throw_on_cuda_error(cudaGraphNodeGetDependencies(node, nullptr, &count), "asking for a node's edges");
    const std::size_t old = to.size();
    to.resize(old + count);
    if (count == 0) return;
    throw_on_cuda_error(cudaGraphNodeGetDependencies(node, to.data() + old, &count), "asking for a node's edges");
#endif
  }

  std::set<cudaGraphNode_t> known_;
  std::vector<cuda_step_node> nodes_;
};

/// Throws `bad_argument`, which names both devices, if `stream` belongs to another device than `device`. `name` is for
/// the message. Default streams belong to the current device. A runtime before 12.8 cannot tell: it refuses nothing.
inline void require_stream_of([[maybe_unused]] int device, cudaStream_t stream, [[maybe_unused]] const char* name) {
  if (is_legacy(stream) || is_per_thread(stream)) return;
#if CUDART_VERSION >= 12080
  int of_stream = device;
  throw_on_cuda_error(cudaStreamGetDevice(stream, &of_stream), "asking for the device of a stream");
  if (of_stream != device)
    throw bad_argument(std::string(name) + " belongs to device " + std::to_string(of_stream) +
                       "; the executor was made on device " + std::to_string(device));
#endif
}

/// Throws `bad_argument` unless `streams` can be the streams 1, 2, … of a plan of `count` streams, on `device`: as
/// many, all different, and no default stream.
inline void require_plan_streams(std::span<const cudaStream_t> streams, std::size_t count, int device) {
  if (streams.size() + 1 != count)
    throw bad_argument(count_of(streams.size(), "stream") + (streams.size() == 1 ? " is" : " are") +
                       " given for a plan of " + std::to_string(count) + "; it takes " + std::to_string(count - 1) +
                       ", as its stream 0 is the one passed to `run`");
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const std::string name = "stream " + std::to_string(i + 1) + " of the options";
    if (is_legacy(streams[i]) || is_per_thread(streams[i]))
      throw bad_argument(name + " is a default stream; it must be one that was created");
    for (std::size_t j = 0; j < i; ++j)
      if (streams[i] == streams[j]) throw bad_argument(name + " is also stream " + std::to_string(j + 1));
    require_stream_of(device, streams[i], name.c_str());
  }
}

/// How the streams of a plan are tied to stream 0, which is the caller's.
struct fork_and_join {
  /// Streams that must wait for the caller's stream, because their first launch waits for no event.
  std::vector<std::uint32_t> forks;
  /// Streams that the caller's stream must wait for, because the end of no other stream follows their end.
  std::vector<std::uint32_t> joins;
};

/// Finds how the streams of a plan are tied to stream 0. O(launches · streams) time.
[[nodiscard]] inline fork_and_join forks_and_joins(const launch_plan& plan) {
  const std::size_t k = plan.num_streams();
  fork_and_join out;
  // known[s · k + t]: the number of launches of stream t that the end of stream s follows; at_event likewise.
  std::vector<std::uint32_t> known(k * k, 0), at_event(plan.num_events() * k, 0);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const launch& l = plan.launches()[i];
    std::uint32_t* const mine = known.data() + l.stream * k;
    for (const std::uint32_t e : plan.waits(i))
      for (std::size_t s = 0; s < k; ++s) mine[s] = std::max(mine[s], at_event[e * k + s]);
    if (++mine[l.stream] == 1 && l.stream != 0 && plan.waits(i).empty()) out.forks.push_back(l.stream);
    if (l.event != launch::no_event) std::copy(mine, mine + k, at_event.data() + l.event * k);
  }
  const auto follows = [&](std::size_t s, std::size_t other) {  // the end of s follows the end of other
    return known[s * k + other] == known[other * k + other];
  };
  for (std::uint32_t s = 1; s < k; ++s) {
    bool joined = known[s * k + s] == 0;
    for (std::uint32_t other = 0; other < k; ++other) joined = joined || (other != s && follows(other, s));
    if (!joined) out.joins.push_back(s);
  }
  return out;
}

/// Throws `bad_argument` unless the first and the last byte of `memory` are pinned. The runtime copies pageable memory
/// while the host waits, and fails to in a capture.
inline void require_pinned(std::span<const std::byte> memory) {
  for (std::size_t i : {std::size_t{0}, std::max<std::size_t>(memory.size(), 1) - 1}) {
    cudaPointerAttributes known{};
    throw_on_cuda_error(cudaPointerGetAttributes(&known, memory.data() + i), "asking for the kind of memory");
    if (known.type != cudaMemoryTypeHost)
      throw bad_argument("the arena on the host is not pinned: take it from cudaHostAlloc, or call cudaHostRegister");
  }
}

/// How often a step's launches enqueue each operation's kernel; null: once.
using step_repeats = std::shared_ptr<const std::vector<std::uint32_t>>;

/// A graph that a capture has made of a step.
struct captured_graph {
  cuda_graph graph{};
  step_repeats repeats{};
  std::vector<cuda_step_node> nodes{};
};

/// The last step that uses an arena: the clocks and the outputs are its own.
struct last_step {
  std::uint64_t generation = 0;  ///< its number: runs and replays are counted, launches of the caller's graphs are not
  bool whole = false;            ///< true when it was enqueued to its end
  step_repeats repeats{};
};

/// The arenas of a `cuda_executor`, on the device and for copies on the host: their memory, and the order of this
/// memory among the streams that use it.
///
/// Memory of a pool is allocated and freed in the order of one stream, its *home*. Work on another stream must begin
/// behind the allocation, and the free must come behind all work. Two events order both; the host does not wait. Memory
/// from cudaMalloc is there at once, but cudaFree need not wait for the device: one event notes the last use, for which
/// the host waits before the free. So does pinned memory of the host. Memory of the caller needs no events.
class cuda_arena {
 public:
  /// Takes over `memory` and `host`. Of those that are empty, allocates each once, for `bytes` or `host_bytes` bytes at
  /// a multiple of its alignment: cudaMalloc, cudaHostAlloc. Throws `bad_argument` if memory of the caller's on the
  /// host is not pinned, `cuda_error`.
  cuda_arena(cuda_memory memory, std::size_t bytes, std::size_t alignment, cuda_host_memory host = {},
             std::size_t host_bytes = 0, std::size_t host_alignment = 1)
      : memory_(std::move(memory)),
        host_(std::move(host)),
        bytes_(allocate(memory_, bytes, alignment)),
        host_bytes_(allocate(host_, host_bytes, host_alignment)) {
    if (!host_.is_owned() && host_bytes != 0) require_pinned(host_.bytes());
    if (memory_.is_owned() || host_.is_owned()) used_ = make_cuda_event();
    if (!memory_.in_stream_order()) return;
    allocated_ = make_cuda_event();
    throw_on_cuda_error(cudaEventRecord(allocated_.get(), memory_.stream()), "recording the allocation of the arena");
  }
  cuda_arena(const cuda_arena&) = delete;
  cuda_arena& operator=(const cuda_arena&) = delete;
  /// Frees the memory behind the last work that was released: waits for it, unless the memory is a pool's. Waits for
  /// the device if work was not released or cannot be waited for, and if the memory was lent. If these waits fail, as
  /// during a capture, work may still use the memory: then it is not freed.
  ~cuda_arena() {
    // On another thread, a per-thread stream is not the one of the allocation.
    const bool elsewhere = allocated_ && is_per_thread(memory_.stream());
    // An error here comes from work enqueued earlier; the call that waits for that work reports it.
    if ((in_use_ || (lent_ && used_)) && !wait_for_device()) {
      keep();
      return;
    }
    if (!released_ && !elsewhere) return;
    const cudaEvent_t last = released_ ? used_.get() : allocated_.get();
    const bool ordered = allocated_ && cudaStreamWaitEvent(memory_.stream(), last, 0) == cudaSuccess;
    if (ordered && !host_.is_owned()) return;
    if (cudaEventSynchronize(last) != cudaSuccess && !wait_for_device()) keep();
  }

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> host_bytes() const noexcept { return host_bytes_; }
  [[nodiscard]] std::size_t num_events() const noexcept { return (allocated_ ? 1 : 0) + (used_ ? 1 : 0); }

  /// Work that is given to `stream` from now on, the next step, may use the memory. Throws `cuda_error`.
  void acquire(cudaStream_t stream) const {
    ++last_.generation;
    if (!is_noted(stream)) return;
    if (allocated_)
      throw_on_cuda_error(cudaStreamWaitEvent(stream, allocated_.get(), 0), "waiting for the arena's allocation");
    in_use_ = true;
  }
  /// The memory is freed behind the work that `stream` has been given. The work released before must come before it in
  /// the streams' order. Throws `cuda_error`.
  void release(cudaStream_t stream) const {
    if (!is_noted(stream)) return;
    throw_on_cuda_error(cudaEventRecord(used_.get(), stream), "recording the last use of the arena");
    released_ = true;
    in_use_ = false;
  }
  /// Graphs of the caller use the memory from now on, in launches that are not seen here.
  void lend(const step_repeats& repeats) const noexcept {
    lent_ = true;
    last_.repeats = repeats;
  }
  [[nodiscard]] bool is_lent() const noexcept { return lent_; }
  [[nodiscard]] last_step& last() const noexcept { return last_; }

 private:
  /// Waits for the device of the memory, which need not be the current one. False if work may be left on it.
  [[nodiscard]] bool wait_for_device() const noexcept {
    int now = device_;
    static_cast<void>(cudaGetDevice(&now));
    const bool moved = now != device_ && cudaSetDevice(device_) == cudaSuccess;
    const bool ended = (now == device_ || moved) && cudaDeviceSynchronize() == cudaSuccess;
    if (moved) static_cast<void>(cudaSetDevice(now));
    if (ended) return true;
    static_cast<void>(cudaGetLastError());
    return cudaPeekAtLastError() != cudaSuccess;  // an error that stays: no work is left on a lost device
  }
  /// The memory is never freed.
  void keep() noexcept {
    static_cast<void>(memory_.release());
    static_cast<void>(host_.release());
  }
  /// The caller's memory, or, if that is empty, `bytes` bytes at a multiple of `alignment` of memory that is allocated.
  template <class Memory>
  static std::span<std::byte> allocate(Memory& memory, std::size_t bytes, std::size_t alignment) {
    if (memory.size() != 0 || bytes == 0) return memory.bytes();
    constexpr std::size_t given = 256;  // the alignment of cudaMalloc; pages of the host have more
    memory = Memory(bytes + (alignment > given ? alignment - given : 0));
    const std::size_t behind = reinterpret_cast<std::uintptr_t>(memory.bytes().data()) % alignment;
    return memory.bytes().subspan(behind == 0 ? 0 : alignment - behind, bytes);
  }
  /// True if events must note the use: the order of the pool's stream does not suffice. The per-thread stream is
  /// another one on each thread.
  [[nodiscard]] bool is_noted(cudaStream_t stream) const noexcept {
    return used_ && (host_.is_owned() || !allocated_ || stream != memory_.stream() || is_per_thread(stream));
  }

  int device_ = current_device();
  cuda_memory memory_;
  cuda_host_memory host_;
  std::span<std::byte> bytes_, host_bytes_;
  cuda_event allocated_;           // the allocation of memory of a pool
  cuda_event used_;                // the last use of memory that is freed here, on the device or the host
  mutable bool released_ = false;  // `used_` has been recorded
  mutable bool in_use_ = false;    // work has been given the memory since
  mutable bool lent_ = false;      // graphs of the caller use the memory
  mutable last_step last_;
};

}  // namespace REMAT_NAMESPACE::detail::cuda
