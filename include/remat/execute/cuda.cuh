// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/execute/cuda_error.cuh"
#include "remat/execute/cuda_stream.cuh"
#include "remat/execute/exclusive_use.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/execute/launch_calls.hpp"
#include "remat/execute/launch_plan.hpp"

namespace remat {

/// The argument of a CUDA kernel callable: device memory, and the stream on which it enqueues its work.
using cuda_call = kernel_call<cudaStream_t>;

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

/// How closely `cuda_executor` watches the kernels. Only with `off` can a training step be captured.
enum class cuda_debug : std::uint8_t {
  off,  ///< does not watch them
  /// Waits for each launch, so that an error that the device finds (an illegal address) names its operation.
  synchronize,
  /// As `synchronize`, and fills memory that belongs to no tensor with `cuda::poison`: freed memory becomes poison,
  /// fresh outputs and workspace begin as poison. A kernel that reads poison computes NaN.
  poison
};

/// Options of `cuda_executor`.
struct cuda_options {
  /// The arena: the caller's device memory (`cuda_memory(span)`), or memory of a pool in a stream's order
  /// (`cuda_memory(bytes, stream)`). If empty, the executor calls cudaMalloc once, for the plan's bytes.
  cuda_memory arena{};
  cuda_debug debug = cuda_debug::off;  ///< how closely the executor watches the kernels
  bool timing = false;                 ///< note when each launch began and ended: two more events a launch
  bool ranges = false;                 ///< an NVTX range around each launch's enqueuing, with the operation's name
  const cuda_seed* seed = nullptr;     ///< if not null: written before each training step; must outlive the executor
};

/// The time of one launch on the device, in milliseconds.
struct cuda_launch_time {
  float start = 0;     ///< from the start of the training step
  float duration = 0;  ///< of its kernel
};

namespace cuda {

/// A byte that, repeated, is a NaN in every floating-point format.
inline constexpr int poison = 0xff;

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

/// An NVTX range while it lives.
class range {
 public:
  /// Begins the range `name`; null: there is no range.
  explicit range(const char* name) noexcept : on_(name != nullptr) {
    if (on_) static_cast<void>(nvtxRangePushA(name));
  }
  range(const range&) = delete;
  range& operator=(const range&) = delete;
  ~range() {
    if (on_) static_cast<void>(nvtxRangePop());
  }

 private:
  bool on_;
};

}  // namespace cuda

/// A training step as a CUDA graph that can be replayed. It uses the executor's arena and the memory that was bound at
/// the capture, and must not outlive either.
class cuda_captured_step {
 public:
  /// Makes `graph` executable. `seed` is written before each launch; null: none is. Throws `cuda_error`.
  cuda_captured_step(cuda_graph graph, const cuda_seed* seed)
      : graph_(std::move(graph)), exec_(make_cuda_graph_exec(graph_)), seed_(seed) {}

  /// Enqueues the training step on `stream` and returns. `step_seed` is written to the executor's `cuda_seed`, if it
  /// has one; `kernel_call::seed` stays as at the capture. Throws `cuda_error`.
  void launch(cudaStream_t stream, std::uint64_t step_seed = 0) const {
    if (seed_ != nullptr) seed_->set(step_seed, stream);
    throw_on_cuda_error(cudaGraphLaunch(exec_.get(), stream), "launching the captured step");
  }

  /// The captured graph, for the runtime's own functions; this object owns it.
  [[nodiscard]] cudaGraph_t graph() const noexcept { return graph_.get(); }
  /// The executable graph, for the runtime's own functions; this object owns it.
  [[nodiscard]] cudaGraphExec_t exec() const noexcept { return exec_.get(); }

 private:
  cuda_graph graph_;
  cuda_graph_exec exec_;
  const cuda_seed* seed_;
};

/// Runs a schedule on a CUDA device, over the user's kernels, in one arena.
///
/// Stream 0 of the plan is the caller's. Each other stream is the executor's own: its work begins after the work that
/// the caller's stream holds, and ends before the work that the caller's stream is given next. The executor makes all
/// events when it is made, without timing: the plan's, and those for that begin and end; a plan of one stream needs
/// none. A run allocates nothing on host or device.
///
///     cuda_executor run(launch_plan(graph, p, plan.steps, layout, 2), kernels);
///     run.bind(x, batch);
///     run.run(stream, step);
///     const cuda_captured_step captured = run.capture();
///     captured.launch(stream);
///
/// All runs of an executor share its arena: a caller that runs steps on different streams must order these streams. One
/// call of `run`, `bind` or `capture` at a time. The device that is current when the executor is made must be current
/// in all calls. The executor is neither copied nor moved, and must outlive the work that it has enqueued.
template <kernels_for<cudaStream_t> Kernels>
class cuda_executor {
 public:
  /// Throws `bad_argument` if the arena does not fit the plan, `cuda_error` if the device gives no memory, streams or
  /// events.
  cuda_executor(launch_plan plan, Kernels kernels, cuda_options options = {})
      : plan_(std::move(plan)),
        kernels_(std::move(kernels)),
        options_(std::move(options)),
        arena_(arena_for(plan_, options_.arena)),
        streams_(make_streams(plan_)),
        calls_(plan_, arena_, std::span<const cudaStream_t>(raw(streams_, plan_.num_streams()))),
        joints_(cuda::forks_and_joins(plan_)) {
    for (std::uint32_t e = 0; e < plan_.num_events(); ++e) events_.push_back(make_cuda_event());
    if (!joints_.forks.empty()) begun_ = make_cuda_event();
    for (const std::uint32_t s : joints_.joins) {
      // If the last launch has an event, no other is needed.
      const std::uint32_t last = plan_.of_stream(s).back();
      if (plan_.launches()[last].event == launch::no_event) ends_.push_back(make_cuda_event());
    }
    if (options_.timing)
      for (std::size_t i = 0; i < 2 * plan_.size() + 1; ++i) clocks_.push_back(make_cuda_event(cudaEventDefault));
    if (options_.ranges)
      for (std::size_t o = 0; o < plan_.num_operations(); ++o) labels_.push_back(plan_.label(static_cast<op_id>(o)));
    for (std::uint32_t i = 0; i < plan_.size(); ++i)
      if (plan_.launches()[i].stream == 0) on_callers_.push_back(i);
  }
  cuda_executor(const cuda_executor&) = delete;
  cuda_executor& operator=(const cuda_executor&) = delete;

  /// Kernels read resident tensor `t` from `memory`, on the device, from the next run or capture on. Throws
  /// `bad_argument` as `launch_calls`, and while another call has not ended.
  void bind(tensor_id t, std::span<const std::byte> memory) {
    const detail::exclusive_use use(in_use_);
    calls_.bind(t, memory);
  }

  /// Enqueues one training step behind what `stream` holds and returns without waiting. What `stream` is given next
  /// begins when the step has ended. `stream` may be capturing: the step becomes part of that capture, the `cuda_seed`
  /// is not written, and `stop` is ignored.
  ///
  /// Looks at `stop` before each launch. A run that was stopped enqueues no further launch, waits for the executor's
  /// own streams and returns `run_status::cancelled`; the outputs are then undefined.
  ///
  /// Throws `bad_argument`, before anything is enqueued, if a tensor is not bound, if a debug mode meets a capture, or
  /// if another thread's call has not ended; `cuda_error` if an earlier call's error is still pending or the device
  /// refuses the step's begin or end; `execution_error` if a kernel throws or leaves an error, with what was thrown
  /// nested. The executor then waits for its own streams, and the next run begins anew.
  run_status run(cudaStream_t stream, std::uint64_t step_seed = 0, const std::stop_token& stop = {}) {
    const detail::exclusive_use use(in_use_);
    calls_.require_bound();
    throw_on_cuda_error(cudaGetLastError(), "a call before the step");
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    throw_on_cuda_error(cudaStreamIsCapturing(stream, &status), "asking whether the stream is capturing");
    capturing_ = status != cudaStreamCaptureStatusNone;
    if (capturing_) refuse_debug();
    if (unsettled_) settle();
    if (!capturing_ && options_.seed != nullptr) options_.seed->set(step_seed, stream);
    return enqueue(stream, step_seed, capturing_ ? std::stop_token() : stop);
  }

  /// Captures the training step as a CUDA graph; no launch runs. `step_seed` decides `kernel_call::seed`, which every
  /// replay repeats: random kernels that must differ read a `cuda_seed`. With `timing`, replays are timed.
  ///
  /// Throws as `run`. A capture that fails leaves the executor and its streams as they were.
  [[nodiscard]] cuda_captured_step capture(std::uint64_t step_seed = 0) {
    const detail::exclusive_use use(in_use_);
    calls_.require_bound();
    refuse_debug();
    throw_on_cuda_error(cudaGetLastError(), "a call before the capture");
    if (unsettled_) settle();
    if (!capture_stream_) capture_stream_ = make_cuda_stream();
    const cudaStream_t stream = capture_stream_.get();
    throw_on_cuda_error(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
    capturing_ = true;
    cudaGraph_t graph{};
    try {
      enqueue(stream, step_seed, {});
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream, &graph));
      static_cast<void>(cudaGetLastError());
      const cuda_graph part(graph);
      throw;
    }
    throw_on_cuda_error(cudaStreamEndCapture(stream, &graph), "ending the capture");
    return {cuda_graph(graph), options_.seed};
  }

  /// With `timing`: the time of each launch of the last training step. Wait for its end first. Throws `bad_argument`
  /// without `timing` or if no step has run to its end since the last one that did not, `cuda_error` where the step has
  /// not ended.
  [[nodiscard]] std::vector<cuda_launch_time> times() const {
    if (clocks_.empty() || !timed_)
      throw bad_argument(clocks_.empty() ? "times are noted where the option `timing` is set"
                                         : "no step has run to its end yet");
    std::vector<cuda_launch_time> out(plan_.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      throw_on_cuda_error(cudaEventElapsedTime(&out[i].start, clocks_.back().get(), clocks_[2 * i].get()),
                          "reading times");
      throw_on_cuda_error(cudaEventElapsedTime(&out[i].duration, clocks_[2 * i].get(), clocks_[2 * i + 1].get()),
                          "reading times");
    }
    return out;
  }

  /// A final output in device memory; the next step overwrites it. Throws `bad_argument` for other tensors.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t) const { return calls_.output(t); }
  /// The plan that the executor runs.
  [[nodiscard]] const launch_plan& plan() const noexcept { return plan_; }
  /// The arena, in device memory.
  [[nodiscard]] std::span<std::byte> arena() const noexcept { return arena_; }
  /// The executor's kernels.
  [[nodiscard]] Kernels& kernels() noexcept { return kernels_; }
  /// The number of events that a run records, without those of `timing`.
  [[nodiscard]] std::size_t num_events() const noexcept { return events_.size() + ends_.size() + (begun_ ? 1 : 0); }
  /// The number of streams that the executor has made: the plan's streams but stream 0.
  [[nodiscard]] std::size_t num_own_streams() const noexcept { return streams_.size(); }

 private:
  /// The plan's streams and events: a model of `launch_device`.
  struct device {
    cuda_executor& self;
    void wait(std::uint32_t e, std::uint32_t s) const {
      throw_on_cuda_error(cudaStreamWaitEvent(self.stream(s), self.events_[e].get(), 0));
    }
    void record(std::uint32_t e, std::uint32_t s) const {
      throw_on_cuda_error(cudaEventRecord(self.events_[e].get(), self.stream(s)));
    }
  };
  /// The user's kernel in an NVTX range. An error that it leaves behind becomes an exception.
  struct checked_kernels {
    cuda_executor& self;
    void operator()(const cuda_call& call) const {
      const cuda::range named(self.labels_.empty() ? nullptr : self.labels_[index(call.operation)].c_str());
      self.kernels_(call);
      throw_on_cuda_error(cudaPeekAtLastError(), "enqueuing it");
    }
  };
  /// Notes times, waits and poisons memory, as the options say.
  struct watch {
    cuda_executor& self;
    void before(std::uint32_t i) const {
      const launch& l = self.plan_.launches()[i];
      if (self.options_.debug == cuda_debug::poison) {
        for (const std::uint32_t a : self.plan_.begins(i)) self.fill(a, l.stream);
        self.fill_workspace(l);
      }
      if (self.options_.timing) self.stamp(2 * std::size_t{i}, self.stream(l.stream));
    }
    void after(std::uint32_t i) const {
      const launch& l = self.plan_.launches()[i];
      if (self.options_.timing) self.stamp(2 * std::size_t{i} + 1, self.stream(l.stream));
      if (self.options_.debug == cuda_debug::off) return;
      if (self.options_.debug == cuda_debug::poison) {
        // All launches before have ended, on every stream: no kernel reads this memory any more.
        for (const std::uint32_t a : self.plan_.frees(i)) self.fill(a, l.stream);
        self.fill_workspace(l);
      }
      throw_on_cuda_error(cudaStreamSynchronize(self.stream(l.stream)), "waiting for it");
    }
  };

  static std::span<std::byte> arena_for(const launch_plan& plan, cuda_memory& memory) {
    const auto bytes = static_cast<std::size_t>(plan.arena_bytes());
    if (memory.size() != 0 || bytes == 0) return memory.bytes();
    constexpr std::size_t given = 256;  // cudaMalloc's alignment
    const auto wanted = static_cast<std::size_t>(plan.alignment());
    memory = cuda_memory(bytes + (wanted > given ? wanted - given : 0));
    const std::size_t behind = reinterpret_cast<std::uintptr_t>(memory.data()) % wanted;
    return memory.bytes().subspan(behind == 0 ? 0 : wanted - behind, bytes);
  }
  static std::vector<cuda_stream> make_streams(const launch_plan& plan) {
    std::vector<cuda_stream> out;
    for (std::uint32_t s = 1; s < plan.num_streams(); ++s) out.push_back(make_cuda_stream());
    return out;
  }
  static std::vector<cudaStream_t> raw(const std::vector<cuda_stream>& own, std::size_t count) {
    std::vector<cudaStream_t> out(count, nullptr);
    for (std::size_t s = 0; s < own.size(); ++s) out[s + 1] = own[s].get();
    return out;
  }

  [[nodiscard]] cudaStream_t stream(std::uint32_t s) const noexcept {
    return s == 0 ? callers_ : streams_[s - 1].get();
  }
  void refuse_debug() const {
    if (options_.debug != cuda_debug::off)
      throw bad_argument("the debug modes wait for each launch, which a capture forbids; capture with cuda_debug::off");
  }

  run_status enqueue(cudaStream_t stream, std::uint64_t step_seed, const std::stop_token& stop) {
    if (stream != callers_) {
      callers_ = stream;
      for (const std::uint32_t i : on_callers_) calls_[i].stream = stream;
    }
    timed_ = false;
    try {
      begin(stream);
      if (issue_all(step_seed, [&] { return stop.stop_requested(); }) != plan_.size()) {
        unsettled_ = !streams_.empty();
        if (unsettled_) settle();
        return run_status::cancelled;
      }
      join(stream);
      timed_ = options_.timing;
      return run_status::done;
    } catch (...) {
      unsettled_ = !streams_.empty();
      if (!capturing_ && unsettled_) {
        try {
          settle();
        } catch (const cuda_error&) {  // the caller is told the first error; the next run waits again
        }
      }
      throw;
    }
  }

  void begin(cudaStream_t stream) const {
    if (begun_) throw_on_cuda_error(cudaEventRecord(begun_.get(), stream), "recording the begin of the step");
    for (const std::uint32_t s : joints_.forks)
      throw_on_cuda_error(cudaStreamWaitEvent(this->stream(s), begun_.get(), 0), "waiting for the begin of the step");
    if (options_.timing) stamp(2 * plan_.size(), stream);
  }

  template <class Stop>
  std::size_t issue_all(std::uint64_t step_seed, Stop&& stop) {
    device events{*this};
    checked_kernels kernels{*this};
    if (options_.timing || options_.debug != cuda_debug::off)
      return issue(plan_, calls_, plan_.in_order(), step_seed, events, kernels, stop, watch{*this});
    return issue(plan_, calls_, plan_.in_order(), step_seed, events, kernels, stop);
  }

  void join(cudaStream_t stream) const {
    std::size_t next = 0;
    for (const std::uint32_t s : joints_.joins) {
      const std::uint32_t e = plan_.launches()[plan_.of_stream(s).back()].event;
      const cudaEvent_t end = e != launch::no_event ? events_[e].get() : ends_[next++].get();
      if (e == launch::no_event) throw_on_cuda_error(cudaEventRecord(end, this->stream(s)), "recording the step's end");
      throw_on_cuda_error(cudaStreamWaitEvent(stream, end, 0), "waiting for the step's end");
    }
  }

  /// Waits for the executor's own streams, which a failed run has left without an end.
  void settle() {
    for (const cuda_stream& s : streams_)
      throw_on_cuda_error(cudaStreamSynchronize(s.get()), "waiting for a failed step's work");
    unsettled_ = false;
  }

  void stamp(std::size_t clock, cudaStream_t stream) const {
    // In a capture, a plain record would be an edge of the graph and not an event of every replay.
    throw_on_cuda_error(cudaEventRecordWithFlags(clocks_[clock].get(), stream,
                                                 capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault),
                        "noting the time");
  }
  void fill(std::uint32_t a, std::uint32_t s) const {
    const auto bytes = static_cast<std::size_t>(plan_.lives().allocations[a].bytes);
    if (bytes == 0) return;
    throw_on_cuda_error(cudaMemsetAsync(arena_.data() + plan_.offsets()[a], cuda::poison, bytes, stream(s)),
                        "filling memory that belongs to no tensor");
  }
  void fill_workspace(const launch& l) const {
    if (const std::uint32_t a = plan_.lives().workspace[l.step]; a != lifetimes::no_allocation) fill(a, l.stream);
  }

  launch_plan plan_;
  Kernels kernels_;
  cuda_options options_;
  std::span<std::byte> arena_;
  std::vector<cuda_stream> streams_;  // of the plan's stream s: s − 1
  launch_calls<cudaStream_t> calls_;
  cuda::fork_and_join joints_;
  std::vector<cuda_event> events_;         // the plan's
  cuda_event begun_;                       // behind what the caller's stream held before the step
  std::vector<cuda_event> ends_;           // of the joined streams whose last launch has no event
  std::vector<cuda_event> clocks_;         // begin and end of each launch, then the begin of the step
  std::vector<std::string> labels_;        // of each operation
  std::vector<std::uint32_t> on_callers_;  // the launches of stream 0
  cuda_stream capture_stream_;
  cudaStream_t callers_ = nullptr;
  bool capturing_ = false;
  bool unsettled_ = false;
  bool timed_ = false;
  std::atomic<bool> in_use_{false};
};

}  // namespace remat
