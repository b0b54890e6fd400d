// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/detail/platform.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <optional>
#include <stop_token>
#include <type_traits>

#include "remat/execute/cuda_stream.cuh"
#include "remat/execute/detail/cuda_debug.cuh"
#include "remat/execute/detail/cuda_streams.cuh"
#include "remat/execute/detail/launch_calls.hpp"
#include "remat/execute/launch_plan.hpp"

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

/// How closely `cuda_executor` watches the kernels. Only with `off` can a training step be captured.
enum class cuda_debug : std::uint8_t {
  off,  ///< does not watch them
  /// Waits for each launch, so that an error that the device finds (an illegal address) names its operation.
  synchronize,
  /// Does what `synchronize` does, and fills memory that belongs to no tensor with `detail::cuda::poison`: freed memory
  /// becomes poison, fresh outputs and workspace begin as poison. A kernel that reads poison computes NaN.
  poison,
  /// Does what `poison` does, and compares the arena with a copy on the host after each launch
  /// (`detail::cuda::write_check`): a kernel that has written outside of its outputs and its workspace is named.
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
  /// If the plan copies tensors to the host: the arena for these copies, the caller's pinned memory
  /// (`cuda_host_memory(span)`). If empty, the executor calls cudaHostAlloc once, for the plan's bytes.
  cuda_host_memory host_arena{};
  std::int64_t host_arena_budget = problem::unlimited;  ///< bytes, at least 0, for that arena
  /// The plan's streams 1, 2, …, those for copies among them, which the caller owns: created with any flags, priorities
  /// or green contexts, and alive as long as the executor. Empty: the executor makes them, with cudaStreamNonBlocking.
  std::vector<cudaStream_t> streams{};
  /// The priority of the streams that the executor makes; the stream of `capture()` is always one of them. Smaller
  /// numbers are more urgent, 0 is the default. If the stream passed to `run` has a priority, give the same here.
  int priority = 0;
  /// The mode in which `capture` and `update` enqueue. It forbids calls that CUDA calls unsafe in a capture, such as
  /// cudaMalloc. cudaStreamCaptureModeThreadLocal: on the calling thread; other threads may allocate.
  /// cudaStreamCaptureModeGlobal: on all threads, so that no other thread's work is mistaken for a part of the step.
  /// cudaStreamCaptureModeRelaxed: nowhere, for kernels that allocate or load code when they are enqueued; what they do
  /// so is not repeated by replays.
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeThreadLocal;
  cuda_debug debug = cuda_debug::off;  ///< how closely the executor watches the kernels
  /// True: a debug mode tells NVTX which bytes of the arena belong to tensors (`detail::cuda::memory_regions`), so that
  /// compute-sanitizer sees a kernel that leaves its tensor. Only for an arena that no other executor uses.
  bool regions = false;
  bool timing = false;  ///< note when each launch began and ended: two more events a launch
  /// An NVTX range around each launch's enqueuing, with the operation's name. Replays have none: a captured step then
  /// lists the launch of each of its nodes (`cuda_captured_step::nodes`).
  bool ranges = false;
  /// If not null: written before each training step; must outlive the executor and its work. A step with random
  /// operations (`launch_plan::is_random`) can be captured only with it.
  const cuda_seed* seed = nullptr;
};

/// The time of one launch on the device, in milliseconds.
struct cuda_launch_time {
  float start = 0;     ///< the time since the start of the training step
  float duration = 0;  ///< how long its kernel or its copy took
};

/// The result of `cuda_executor::update`; true if only parameters of nodes were replaced in the executable graph.
struct cuda_step_update {
  cudaGraphExecUpdateResult result = cudaGraphExecUpdateSuccess;  ///< CUDA's reason to refuse that
  cudaGraphNode_t node{};  ///< the node of the new `graph()` that is at fault; null if CUDA names none
  /// True if the executable graph was kept, false if it was instantiated anew.
  [[nodiscard]] explicit operator bool() const noexcept { return result == cudaGraphExecUpdateSuccess; }
  /// The reason in words.
  [[nodiscard]] const char* reason() const noexcept {
    switch (result) {
      case cudaGraphExecUpdateSuccess:
        return "updated";
      case cudaGraphExecUpdateErrorTopologyChanged:
        return "the nodes or their edges have changed";
      case cudaGraphExecUpdateErrorNodeTypeChanged:
        return "the type of a node has changed";
      case cudaGraphExecUpdateErrorFunctionChanged:
      case cudaGraphExecUpdateErrorUnsupportedFunctionChange:
        return "the function of a kernel has changed, or its context";
      case cudaGraphExecUpdateErrorParametersChanged:
        return "the parameters of a node have changed in a way that cannot be updated";
      case cudaGraphExecUpdateErrorNotSupported:
        return "a node cannot be updated";
      case cudaGraphExecUpdateErrorAttributesChanged:
        return "the attributes of a node have changed, such as its priority";
      default:
        return "CUDA gives no reason";
    }
  }
};

/// A training step as a CUDA graph that can be replayed, or become a part of graphs of the caller. It uses the
/// executor's arena and the memory that was bound at the capture, and must not outlive either; graphs of the caller
/// that have it as a part must not be launched after them.
class cuda_captured_step {
 public:
  /// Makes `made` executable, for the executor that owns `arena`. `seed` is written before each launch; null: none is.
  /// Throws `cuda_error`.
  cuda_captured_step(detail::cuda::captured_graph made, const cuda_seed* seed, const detail::cuda::cuda_arena& arena)
      : made_(std::move(made)),
        exec_(make_cuda_graph_exec(made_.graph)),
        seed_(seed),
        arena_(&arena),
        device_(detail::cuda::current_device()) {}

  /// Enqueues the training step on `stream` and returns. `step_seed` is written to the executor's `cuda_seed`, if it
  /// has one; `kernel_call::seed` stays as at the capture. If `stream` is capturing, the step becomes a child graph of
  /// that capture, as by `add_to`, and `step_seed` is ignored. Returns the number of the step,
  /// `cuda_executor::generation()`. Throws `bad_argument` if another device is current than at the capture,
  /// `cuda_error`.
  std::uint64_t launch(cudaStream_t stream, std::uint64_t step_seed = 0) const {
    detail::cuda::require_current(device_);
    if (detail::cuda::is_capturing(stream)) {
      arena_->lend(made_.repeats);
      detail::cuda::add_to_capture(stream, made_.graph.get());
      return arena_->last().generation;
    }
    arena_->acquire(stream);
    if (seed_ != nullptr) seed_->set(step_seed, stream);
    throw_on_cuda_error(cudaGraphLaunch(exec_.get(), stream), "launching the captured step");
    arena_->last().whole = true;
    arena_->last().repeats = made_.repeats;
    arena_->release(stream);
    return arena_->last().generation;
  }

  /// Adds the training step to the caller's `graph`, as a child graph behind the nodes `after` of it, and returns its
  /// node. CUDA copies the child graph: a later `update` does not change it
  /// (`cudaGraphExecChildGraphNodeSetParams(exec, node, step.graph())` does), and this object may be destroyed.
  ///
  /// The caller orders launches of `graph` as the executor's runs, and behind the allocation of a pool's arena, and
  /// writes the `cuda_seed` before each. The executor does not see these launches: with an arena that it frees, its
  /// destructor waits for the device. Throws `bad_argument` if another device is current than at the capture;
  /// `cuda_error`, also if the step has nodes that allocate or free memory, which CUDA refuses in a child graph.
  cudaGraphNode_t add_to(cudaGraph_t graph, std::span<const cudaGraphNode_t> after = {}) const {
    detail::cuda::require_current(device_);
    arena_->lend(made_.repeats);
    return detail::cuda::add_child(graph, after, made_.graph.get());
  }

  /// Replaces the step by `made`, a new capture of the same executor. Launches that were enqueued before run as they
  /// were. Returns true if only parameters of nodes were replaced in the executable graph (cudaGraphExecUpdate), false
  /// and the reason if nodes, edges or priorities differ, so that it was instantiated anew. Throws `cuda_error`; the
  /// step must then be replaced again before its next launch.
  cuda_step_update update(detail::cuda::captured_graph made) {
    cudaGraphExecUpdateResultInfo info{};
    const cudaError_t code = cudaGraphExecUpdate(exec_.get(), made.graph.get(), &info);
    if (code == cudaErrorGraphExecUpdateFailure) {
      static_cast<void>(cudaGetLastError());
      exec_ = make_cuda_graph_exec(made.graph);
    } else {
      throw_on_cuda_error(code, "updating the captured step");
    }
    made_ = std::move(made);
    return {info.result, info.errorNode};
  }

  /// True when the executor that owns `arena` has captured the step.
  [[nodiscard]] bool is_of(const detail::cuda::cuda_arena& arena) const noexcept { return arena_ == &arena; }
  /// The captured graph, for the runtime's own functions; this object owns it.
  [[nodiscard]] cudaGraph_t graph() const noexcept { return made_.graph.get(); }
  /// The nodes of the graph that the launches made, in the order of the launches, if `cuda_options::ranges` is set:
  /// `plan().launches()` says what a launch is, and `plan().label(…)` its name. A profiler reports nodes by numbers
  /// (CUPTI's `cuptiGetGraphNodeId`).
  [[nodiscard]] std::span<const cuda_step_node> nodes() const noexcept { return made_.nodes; }
  /// The executable graph, for the runtime's own functions; this object owns it.
  [[nodiscard]] cudaGraphExec_t exec() const noexcept { return exec_.get(); }

 private:
  detail::cuda::captured_graph made_;
  cuda_graph_exec exec_;
  const cuda_seed* seed_;
  const detail::cuda::cuda_arena* arena_;
  int device_;
};

/// Runs a schedule on a CUDA device, over the user's kernels, in one arena.
///
/// Stream 0 of the plan is the caller's. The other streams are made by the executor, or `cuda_options::streams`. Their
/// work begins after the work that the caller's stream holds, and ends before the work that the caller's stream is
/// given next. The executor makes all events when it is made, without timing: the plan's, and those for that begin and
/// end; a plan of one stream needs none. A run allocates nothing on host or device.
///
/// If the plan copies tensors to the host, two streams make the copies beside the computes: cudaMemcpyAsync between the
/// arena and a pinned arena on the host, which is allocated when the executor is made and lives as long as it does. The
/// kernels may make the copies themselves (`copies_for`). Captures and replays contain the copies.
///
///     cuda_executor run(launch_plan(graph, p, plan.steps, layout, 2), kernels);
///     run.bind(x, batch);
///     run.run(stream, step);
///     const cuda_captured_step captured = run.capture();
///     captured.launch(stream);
///
/// All runs of an executor share its arena: a caller that runs steps on different streams must order these streams. So
/// must one that gives several executors the same arena, `cuda_memory(span)`: a step then overwrites the outputs that
/// another executor has left in the arena. One call of `run`, `bind`, `capture`, `update` or a captured step's `launch`
/// at a time.
///
/// The device that is current when the executor is made must be current in all calls, and have all streams; what does
/// not is refused. The executor is neither copied nor moved. It may be destroyed before its work has ended: an arena of
/// a pool is freed behind that work, in the streams' order; an arena of its own when the host has waited for the end of
/// the last step; an arena, a seed and tensors of the caller must live until the work has ended. If the step is a part
/// of a graph of the caller's, the host waits for the device, unless the arena is the caller's.
template <cuda_kernels Kernels>
class cuda_executor {
 public:
  /// Throws `bad_argument` if an arena of the plan exceeds its budget, if an arena does not fit the plan, or if
  /// `options.streams` are not one for each of the plan's streams but stream 0, all different, of the current device
  /// and no default streams; `cuda_error` if the device gives no memory, streams or events.
  cuda_executor(launch_plan plan, Kernels kernels, cuda_options options = {})
      : plan_(std::move(plan)),
        kernels_(std::move(kernels)),
        options_(std::move(options)),
        device_(detail::cuda::current_device()),
        arena_(std::move(options_.arena), static_cast<std::size_t>(plan_.arena_bytes_within(options_.arena_budget)),
               static_cast<std::size_t>(plan_.alignment()), std::move(options_.host_arena),
               static_cast<std::size_t>(plan_.host_arena_bytes_within(options_.host_arena_budget)),
               static_cast<std::size_t>(plan_.host_alignment())),
        own_(make_streams(plan_, options_, device_)),
        streams_(all_streams(plan_, options_, own_)),
        calls_(plan_, arena_.bytes(), std::span<const cudaStream_t>(streams_), arena_.host_bytes()),
        joints_(detail::cuda::forks_and_joins(plan_)) {
    for (std::uint32_t e = 0; e < plan_.num_events(); ++e) events_.push_back(make_cuda_event());
    if (!joints_.forks.empty()) begun_ = make_cuda_event();
    for (const std::uint32_t s : joints_.joins) {
      // If the last launch has an event, no other is needed.
      const std::uint32_t last = plan_.of_stream(s).back();
      if (plan_.launches()[last].event == launch::no_event) ends_.push_back(make_cuda_event());
    }
    if (options_.regions && options_.debug == cuda_debug::off)
      throw bad_argument("memory regions follow launches that are waited for; set cuda_options::debug, too");
    if (options_.regions) regions_.emplace(plan_, arena_.bytes());
    if (options_.debug == cuda_debug::check_writes) writes_.emplace(plan_, arena_.bytes());
    if (options_.timing) make_clocks();
    if (options_.ranges) {
      for (std::size_t o = 0; o < plan_.num_operations(); ++o) labels_.push_back(plan_.label(static_cast<op_id>(o)));
      for (std::size_t t = 0; t < plan_.num_tensors(); ++t)
        copy_labels_.push_back("copy of " + plan_.label(static_cast<tensor_id>(t)));
    }
    for (std::uint32_t i = 0; i < plan_.size(); ++i)
      if (plan_.launches()[i].stream == 0) on_callers_.push_back(i);
  }
  cuda_executor(const cuda_executor&) = delete;
  cuda_executor& operator=(const cuda_executor&) = delete;
  /// Waits for the end of the last step if the arena is its own; for the executor's device if the step is a part of a
  /// graph of the caller's and the arena is not. Otherwise only if a run has failed, and so has the wait for its work
  /// or the note of its end. An arena whose work cannot be waited for is not freed.
  ~cuda_executor() {
    for (std::size_t s = 1; unsettled_ && s < streams_.size(); ++s)
      if (cudaStreamSynchronize(streams_[s]) != cudaSuccess) arena_.lend(nullptr);
  }

  /// Kernels read resident tensor `t` from `memory`, on the device, from the next run, capture or update on. Steps that
  /// were captured or enqueued before keep the memory that they have. Its content must come before the step in the
  /// order of streams: cudaMemcpy from pageable memory may return earlier, and non-blocking streams do not wait for it.
  /// Throws `bad_argument` as `launch_calls`, and while another call has not ended.
  void bind(tensor_id t, std::span<const std::byte> memory) {
    const detail::exclusive_use use(in_use_);
    calls_.bind(t, memory);
  }
  /// Kernels write and read output `t` in `memory`, on the device, likewise; `t` is one of
  /// `launch_options::bound_outputs` or `accumulated_outputs`. Throws likewise.
  void bind_output(tensor_id t, std::span<std::byte> memory) {
    const detail::exclusive_use use(in_use_);
    calls_.bind_output(t, memory);
  }

  /// Enqueues one training step behind what `stream` holds and returns without waiting. Work that `stream` is given
  /// next begins when the step has ended. `stream` may be any stream of the device, the default streams among them. It
  /// may be capturing: the step becomes part of that capture, the `cuda_seed` is not written, and `stop` is ignored;
  /// replays are the caller's to order, as of `cuda_captured_step::add_to`.
  ///
  /// Looks at `stop` before each launch. A run that was stopped enqueues no further launch, waits for the plan's other
  /// streams and returns `run_status::cancelled`; the outputs are then undefined.
  ///
  /// Throws `bad_argument`, before anything is enqueued, if a tensor is not bound, if a bound output shares bytes with
  /// another bound tensor, if a debug mode or a random operation without a `cuda_seed` meets a capture, if the current
  /// device or the stream's is not the executor's, or if another thread's call has not ended; `cuda_error`
  /// if an earlier call's error is still pending or the device refuses the step's begin or end; `execution_error` if a
  /// kernel throws, returns an error or leaves one, with what was thrown nested. The executor then waits for the plan's
  /// other streams, and the next run begins anew.
  run_status run(cudaStream_t stream, std::uint64_t step_seed = 0, const std::stop_token& stop = {}) {
    const detail::exclusive_use use(in_use_);
    prepare("a call before the step");
    capturing_ = detail::cuda::is_capturing(stream);
    if (capturing_) {
      require_replayable();
      arena_.lend(repeats_);
    } else if (stream != checked_) {
      detail::cuda::require_stream_of(device_, stream, "the stream");
      checked_ = stream;
    }
    if (unsettled_) settle();
    if (!capturing_ && options_.seed != nullptr) options_.seed->set(step_seed, stream);
    return enqueue(stream, step_seed, capturing_ ? std::stop_token() : stop);
  }

  /// Captures the training step as a CUDA graph, on a stream of the executor; no launch runs. `step_seed` decides
  /// `kernel_call::seed`, which every replay repeats: random kernels that must differ read a `cuda_seed`. With
  /// `timing`, replays are timed.
  ///
  /// Throws as `run`. A capture that fails leaves the executor and its streams as they were.
  [[nodiscard]] cuda_captured_step capture(std::uint64_t step_seed = 0) {
    const detail::exclusive_use use(in_use_);
    return {captured(own_capture_stream(), step_seed), options_.seed, arena_};
  }
  /// Captures on the caller's `stream`, whose priority and context the launches of stream 0 keep. Throws as `run`, and
  /// `bad_argument` for the legacy default stream, which CUDA cannot capture, and for a stream that is capturing.
  [[nodiscard]] cuda_captured_step capture_on(cudaStream_t stream, std::uint64_t step_seed = 0) {
    const detail::exclusive_use use(in_use_);
    require_capturable(stream);
    return {captured(stream, step_seed), options_.seed, arena_};
  }

  /// Captures the training step again, with the memory that is bound now, and puts it into `step`: its executable graph
  /// gets new parameters and is not instantiated again. Launches of `step` that were enqueued before run as they were.
  /// Returns true; false and the reason if nodes or edges have changed (kernels that choose by address), or priorities
  /// (a step of `capture_on` whose stream has another one: use `update_on`), so that it was instantiated after all.
  /// O(launches): the cost of enqueuing one step, and of cudaGraphExecUpdate.
  ///
  /// Throws as `capture`, `bad_argument` if another executor has captured `step`.
  cuda_step_update update(cuda_captured_step& step, std::uint64_t step_seed = 0) {
    const detail::exclusive_use use(in_use_);
    require_own(step);
    return step.update(captured(own_capture_stream(), step_seed));
  }
  /// Does what `update` does, for a step of `capture_on`: captures on the caller's `stream`.
  cuda_step_update update_on(cudaStream_t stream, cuda_captured_step& step, std::uint64_t step_seed = 0) {
    const detail::exclusive_use use(in_use_);
    require_own(step);
    require_capturable(stream);
    return step.update(captured(stream, step_seed));
  }

  /// Enqueues the kernel of each operation o `times[o]` times between its two clocks, from the next run or capture on;
  /// `times()` divides the duration by the number. Measures operations that are shorter than the clocks' resolution.
  /// The step's results are then undefined, since contributions are added several times. Empty: once each, as at first.
  /// Throws `bad_argument` without `timing`, if there are not as many numbers as operations, or if a number is 0.
  void repeat(std::vector<std::uint32_t> times) {
    const detail::exclusive_use use(in_use_);
    if (!options_.timing) throw bad_argument("kernels are repeated where the option `timing` is set");
    if (!times.empty() && times.size() != plan_.num_operations())
      throw bad_argument(std::to_string(times.size()) + " repetitions are given; there are " +
                         std::to_string(plan_.num_operations()) + " operations");
    for (std::size_t o = 0; o < times.size(); ++o)
      if (times[o] == 0)
        throw bad_argument("the repetitions of " + plan_.label(static_cast<op_id>(o)) +
                           " are 0; they must be at least 1");
    repeats_ = times.empty() ? nullptr : std::make_shared<const std::vector<std::uint32_t>>(std::move(times));
  }

  /// Returns the time of each launch of the last training step that was run or replayed, if `timing` is set. Wait for
  /// its end first. Throws `bad_argument` without `timing` or if no step has run to its end since the last one that did
  /// not, `cuda_error` where the step has not ended.
  [[nodiscard]] std::vector<cuda_launch_time> times() const {
    static_cast<void>(require_timed());
    std::vector<cuda_launch_time> out(plan_.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i].start = between(2 * plan_.size(), 2 * i);
      out[i].duration = between(2 * i, 2 * i + 1);
      if (const auto& repeats = arena_.last().repeats; repeats && !plan_.launches()[i].is_copy())
        out[i].duration /= static_cast<float>((*repeats)[index(plan_.launches()[i].operation)]);
    }
    return out;
  }
  /// Returns the time of the last training step on the device, in milliseconds, if `timing` is set. Throws as `times`.
  [[nodiscard]] float step_time() const { return require_timed(); }

  /// A final output in device memory; the next step overwrites it, or adds to it. Throws `bad_argument` for other
  /// tensors.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t) const { return calls_.output(t); }
  /// Likewise, of the step with that number: throws `bad_argument` if another one has been enqueued since, a replay for
  /// instance, so that the memory holds its output, or will.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t, std::uint64_t of_generation) const {
    if (of_generation != generation())
      throw bad_argument(plan_.label(t) + " of step number " + std::to_string(of_generation) +
                         " is asked for; the last one that was enqueued is number " + std::to_string(generation()));
    return output(t);
  }
  /// The number of the last step that was enqueued by `run` or by `launch` of a captured step, from 1 on; 0: none was.
  /// Launches of the caller's graphs are not seen.
  [[nodiscard]] std::uint64_t generation() const noexcept { return arena_.last().generation; }
  /// The plan that the executor runs.
  [[nodiscard]] const launch_plan& plan() const noexcept { return plan_; }
  /// The arena of the copies on the host, in pinned memory; empty if the plan has none.
  [[nodiscard]] std::span<std::byte> host_arena() const noexcept { return arena_.host_bytes(); }
  /// The arena, in device memory.
  [[nodiscard]] std::span<std::byte> arena() const noexcept { return arena_.bytes(); }
  /// True when the executor notes the times of launches.
  [[nodiscard]] bool timing() const noexcept { return options_.timing; }
  /// The device on which the executor was made.
  [[nodiscard]] int device() const noexcept { return device_; }
  /// The executor's kernels.
  [[nodiscard]] Kernels& kernels() noexcept { return kernels_; }
  /// The number of events that a run records, without those of `timing`.
  [[nodiscard]] std::size_t num_events() const noexcept {
    return events_.size() + ends_.size() + (begun_ ? 1 : 0) + arena_.num_events();
  }
  /// The number of streams that the executor has made: the plan's streams but stream 0, unless they are the caller's.
  [[nodiscard]] std::size_t num_own_streams() const noexcept { return own_.size(); }

 private:
  /// The plan's streams and events: a model of `launch_device`.
  struct plan_device {
    cuda_executor& self;
    void wait(std::uint32_t e, std::uint32_t s) const {
      throw_on_cuda_error(cudaStreamWaitEvent(self.stream(s), self.events_[e].get(), 0));
    }
    void record(std::uint32_t e, std::uint32_t s) const {
      throw_on_cuda_error(cudaEventRecord(self.events_[e].get(), self.stream(s)));
    }
  };
  /// The user's kernel in an NVTX range. An error that it returns or leaves behind becomes an exception.
  struct checked_kernels {
    cuda_executor& self;
    void operator()(const cuda_call& call) const {
      const std::size_t o = index(call.operation);
      const detail::cuda::nvtx_range named(self.labels_.empty() ? nullptr : self.labels_[o].c_str());
      const std::uint32_t times = self.repeats_ ? (*self.repeats_)[o] : 1;
      for (std::uint32_t i = 0; i < times; ++i) {
        if constexpr (std::same_as<decltype(self.kernels_(call)), cudaError_t>)
          throw_on_cuda_error(self.kernels_(call), "enqueuing it");
        else
          self.kernels_(call);
      }
      throw_on_cuda_error(cudaPeekAtLastError(), "enqueuing it");
    }
    void copy(const cuda_copy& call) const {
      const detail::cuda::nvtx_range named(self.copy_labels_.empty() ? nullptr
                                                                     : self.copy_labels_[index(call.tensor)].c_str());
      if constexpr (copies_for<Kernels, cudaStream_t>) {
        auto& kernels = static_cast<std::unwrap_reference_t<Kernels>&>(self.kernels_);
        if constexpr (std::same_as<decltype(kernels.copy(call)), cudaError_t>)
          throw_on_cuda_error(kernels.copy(call), "enqueuing it");
        else
          kernels.copy(call);
        throw_on_cuda_error(cudaPeekAtLastError(), "enqueuing it");
      } else if (!call.from.empty()) {
        throw_on_cuda_error(
            cudaMemcpyAsync(call.to.data(), call.from.data(), call.from.size(),
                            call.kind == step_kind::offload ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                            call.stream),
            "enqueuing it");
      }
    }
  };
  /// Notes times, waits and poisons memory, as the options say.
  struct watch {
    cuda_executor& self;
    void before(std::uint32_t i) const {
      const launch& l = self.plan_.launches()[i];
      if (self.regions_) self.regions_->before(i);
      if (self.options_.debug >= cuda_debug::poison) {
        for (const std::uint32_t a : self.plan_.begins(i)) self.fill(a, l.stream);
        self.fill(self.plan_.workspace(i), l.stream);
        self.calls_.for_each_fresh_output(i, [&](std::span<std::byte> out) { self.fill(out, l.stream); });
      }
      if (self.writes_) self.writes_->before(i, self.stream(l.stream));
      if (self.options_.timing) self.stamp(2 * std::size_t{i}, self.stream(l.stream));
      if (self.tabulates_) self.nodes_.before(self.stream(l.stream));
    }
    void after(std::uint32_t i) const {
      const launch& l = self.plan_.launches()[i];
      if (self.tabulates_) self.nodes_.after(self.stream(l.stream), i);
      if (self.options_.timing) self.stamp(2 * std::size_t{i} + 1, self.stream(l.stream));
      if (self.options_.debug == cuda_debug::off) return;
      if (self.writes_) self.writes_->after(i, self.stream(l.stream));
      if (self.options_.debug >= cuda_debug::poison) {
        // All launches before have ended, on every stream: no kernel reads this memory any more.
        for (const std::uint32_t a : self.plan_.frees(i)) self.fill(a, l.stream);
        self.fill(self.plan_.workspace(i), l.stream);
      }
      throw_on_cuda_error(cudaStreamSynchronize(self.stream(l.stream)), "waiting for it");
      if (self.regions_) self.regions_->after(i);
    }
  };

  static std::vector<cuda_stream> make_streams(const launch_plan& plan, const cuda_options& options, int device) {
    std::vector<cuda_stream> out;
    if (!options.streams.empty())
      detail::cuda::require_plan_streams(options.streams, plan.num_streams(), device);
    else
      for (std::uint32_t s = 1; s < plan.num_streams(); ++s)
        out.push_back(make_cuda_stream(cudaStreamNonBlocking, options.priority));
    return out;
  }
  static std::vector<cudaStream_t> all_streams(const launch_plan& plan, const cuda_options& options,
                                               const std::vector<cuda_stream>& own) {
    std::vector<cudaStream_t> out(plan.num_streams(), nullptr);
    for (std::size_t s = 1; s < out.size(); ++s)
      out[s] = options.streams.empty() ? own[s - 1].get() : options.streams[s - 1];
    return out;
  }

  [[nodiscard]] cudaStream_t stream(std::uint32_t s) const noexcept { return streams_[s]; }

  void make_clocks() {
    for (std::size_t i = 0; i < 2 * plan_.size() + 2; ++i) clocks_.push_back(make_cuda_event(cudaEventDefault));
    // CUDA promises a time only of events that cudaEventRecord has recorded; in replays, nodes of a graph do.
    // The last one is recorded first, so that the step's time is not positive before a step has run.
    const cuda_stream once = make_cuda_stream();
    for (std::size_t i = clocks_.size(); i-- > 0;)
      throw_on_cuda_error(cudaEventRecord(clocks_[i].get(), once.get()), "recording an event");
    throw_on_cuda_error(cudaStreamSynchronize(once.get()), "recording events");
  }
  void prepare(const char* before) {
    calls_.require_bound();
    throw_on_cuda_error(cudaGetLastError(), before);
    detail::cuda::require_current(device_);
  }
  /// The time of the last step.
  [[nodiscard]] float require_timed() const {
    if (clocks_.empty()) throw bad_argument("times are noted where the option `timing` is set");
    // Launches of the caller's graphs are seen by their clocks alone: a step that has begun last has not ended.
    const bool whole = arena_.last().whole || arena_.is_lent();
    const float ms = whole ? between(2 * plan_.size(), 2 * plan_.size() + 1) : 0;
    if (ms <= 0) throw bad_argument("no step has run to its end yet");
    return ms;
  }
  [[nodiscard]] float between(std::size_t first, std::size_t second) const {
    float ms = 0;
    throw_on_cuda_error(cudaEventElapsedTime(&ms, clocks_[first].get(), clocks_[second].get()), "reading times");
    return ms;
  }
  void require_own(const cuda_captured_step& step) const {
    if (!step.is_of(arena_)) throw bad_argument("the step was captured by another executor; capture it with this one");
  }
  void require_capturable(cudaStream_t stream) const {
    if (detail::cuda::is_legacy(stream))
      throw bad_argument(
          "CUDA cannot capture the legacy default stream; pass a stream that was created, or cudaStreamPerThread");
    detail::cuda::require_stream_of(device_, stream, "the stream");
    if (detail::cuda::is_capturing(stream))
      throw bad_argument("the stream is capturing already; `run` makes the step a part of that capture");
  }
  [[nodiscard]] cudaStream_t own_capture_stream() {
    if (!capture_stream_) {
      detail::cuda::require_current(device_);
      capture_stream_ = make_cuda_stream(cudaStreamNonBlocking, options_.priority);
    }
    return capture_stream_.get();
  }
  [[nodiscard]] detail::cuda::captured_graph captured(cudaStream_t stream, std::uint64_t step_seed) {
    require_replayable();
    prepare("a call before the capture");
    if (unsettled_) settle();
    throw_on_cuda_error(cudaStreamBeginCapture(stream, options_.capture_mode), "beginning a capture");
    capturing_ = true;
    tabulates_ = options_.ranges;
    cudaGraph_t graph{};
    try {
      enqueue(stream, step_seed, {});
      tabulates_ = false;
    } catch (...) {
      tabulates_ = false;
      static_cast<void>(nodes_.take());
      static_cast<void>(cudaStreamEndCapture(stream, &graph));
      static_cast<void>(cudaGetLastError());
      const cuda_graph part(graph);
      throw;
    }
    std::vector<cuda_step_node> nodes = nodes_.take();
    throw_on_cuda_error(cudaStreamEndCapture(stream, &graph), "ending the capture");
    return {cuda_graph(graph), repeats_, std::move(nodes)};
  }
  void require_replayable() const {
    if (options_.debug != cuda_debug::off)
      throw bad_argument("the debug modes wait for each launch, which a capture forbids; capture with cuda_debug::off");
    if (options_.seed != nullptr) return;
    for (const launch& l : plan_.launches())
      if (!l.is_copy() && plan_.is_random(l.operation))
        throw bad_argument(plan_.label(l.operation) +
                           " is random, and every replay would repeat the seed of the capture; set cuda_options::seed "
                           "to a cuda_seed, which the kernel reads");
  }

  run_status enqueue(cudaStream_t stream, std::uint64_t step_seed, const std::stop_token& stop) {
    if (stream != streams_[0]) {
      streams_[0] = stream;
      for (const std::uint32_t i : on_callers_) calls_[i].stream = stream;
    }
    if (!capturing_) arena_.last().whole = false;
    try {
      begin();
      const bool done = issue_all(step_seed, [&] { return stop.stop_requested(); }) == plan_.size();
      if (done)
        join();
      else
        settle();
      if (!capturing_) arena_.release(stream);
      if (!capturing_) arena_.last().whole = done;
      return done ? run_status::done : run_status::cancelled;
    } catch (...) {
      unsettled_ = streams_.size() > 1;
      if (!capturing_) give_up();
      throw;
    }
  }

  void begin() {
    if (!capturing_) arena_.acquire(stream(0));
    if (regions_) regions_->restart();
    if (writes_) writes_->restart(stream(0));
    if (begun_) throw_on_cuda_error(cudaEventRecord(begun_.get(), stream(0)), "recording the begin of the step");
    for (const std::uint32_t s : joints_.forks)
      throw_on_cuda_error(cudaStreamWaitEvent(stream(s), begun_.get(), 0), "waiting for the begin of the step");
    if (!capturing_) arena_.last().repeats = repeats_;
    if (options_.timing) stamp(2 * plan_.size(), stream(0));
  }

  template <class Stop>
  std::size_t issue_all(std::uint64_t step_seed, Stop&& stop) {
    plan_device events{*this};
    checked_kernels kernels{*this};
    if (options_.timing || options_.debug != cuda_debug::off || tabulates_)
      return issue(plan_, calls_, plan_.in_order(), step_seed, events, kernels, stop, watch{*this});
    return issue(plan_, calls_, plan_.in_order(), step_seed, events, kernels, stop);
  }

  void join() const {
    std::size_t next = 0;
    for (const std::uint32_t s : joints_.joins) {
      const std::uint32_t e = plan_.launches()[plan_.of_stream(s).back()].event;
      const cudaEvent_t end = e != launch::no_event ? events_[e].get() : ends_[next++].get();
      if (e == launch::no_event) throw_on_cuda_error(cudaEventRecord(end, stream(s)), "recording the step's end");
      throw_on_cuda_error(cudaStreamWaitEvent(stream(0), end, 0), "waiting for the step's end");
    }
    if (options_.timing) stamp(2 * plan_.size() + 1, stream(0));
  }

  /// Waits for the plan's other streams, which an unfinished run has left without an end.
  void settle() {
    unsettled_ = streams_.size() > 1;
    for (std::size_t s = 1; s < streams_.size(); ++s)
      throw_on_cuda_error(cudaStreamSynchronize(streams_[s]), "waiting for a failed step's work");
    unsettled_ = false;
  }
  /// Ends a failed run.
  void give_up() {
    const auto attempt = [](auto&& call) {
      try {
        call();
      } catch (const cuda_error&) {  // the caller is told the first error; the next run waits again
      }
    };
    if (unsettled_) attempt([&] { settle(); });
    attempt([&] { arena_.release(stream(0)); });
  }

  void stamp(std::size_t clock, cudaStream_t stream) const {
    // In a capture, a plain record would be an edge of the graph and not an event of every replay.
    throw_on_cuda_error(cudaEventRecordWithFlags(clocks_[clock].get(), stream,
                                                 capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault),
                        "noting the time");
  }
  void fill(std::span<std::byte> memory, std::uint32_t s) const {
    if (memory.empty()) return;
    throw_on_cuda_error(cudaMemsetAsync(memory.data(), detail::cuda::poison, memory.size(), stream(s)),
                        "filling memory that holds nothing");
  }
  void fill(std::uint32_t a, std::uint32_t s) const { fill(detail::bytes_of(plan_, arena_.bytes(), a), s); }

  launch_plan plan_;
  Kernels kernels_;
  cuda_options options_;
  int device_;
  detail::cuda::cuda_arena arena_;
  std::vector<cuda_stream> own_;       // the plan's streams but stream 0, unless they are the caller's
  std::vector<cudaStream_t> streams_;  // all of the plan; stream 0 is that of the last run
  detail::launch_calls<cudaStream_t> calls_;
  detail::cuda::fork_and_join joints_;
  std::vector<cuda_event> events_;         // the plan's
  cuda_event begun_;                       // an event behind what the caller's stream held before the step
  std::vector<cuda_event> ends_;           // ends of the joined streams whose last launch has no event
  std::vector<cuda_event> clocks_;         // begin and end of each launch, then of the step
  std::vector<std::string> labels_;        // each operation's label
  std::vector<std::string> copy_labels_;   // the label of each tensor's copies
  std::vector<std::uint32_t> on_callers_;  // the launches of stream 0
  detail::cuda::step_repeats repeats_;     // each operation's repeats; null: 1
  std::optional<detail::cuda::memory_regions<>> regions_;
  std::optional<detail::cuda::write_check> writes_;
  cuda_stream capture_stream_;
  cudaStream_t checked_ = nullptr;  // a stream that is known to be of the device
  detail::cuda::node_table nodes_;
  bool capturing_ = false;
  bool tabulates_ = false;  // the launch of each node is noted
  bool unsettled_ = false;
  std::atomic<bool> in_use_{false};
};

}  // namespace REMAT_NAMESPACE
