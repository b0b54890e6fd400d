// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "measure_link/link_measurement.hpp"
#include "remat/execute/cuda_stream.cuh"

namespace measure_link {

/// Copies on two streams, between buffers that are allocated once, timed by events. The streams are held until all
/// copies are enqueued: otherwise small copies would be measured at the pace at which the host enqueues them.
class cuda_copies {
 public:
  explicit cuda_copies(std::size_t largest)
      : device_out_(largest), device_in_(largest), host_out_(largest), host_in_(largest) {
    // The pages of the host are touched, and the device's bytes are written, before anything is measured.
    std::memset(host_in_.bytes().data(), 1, largest);
    std::memset(host_out_.bytes().data(), 1, largest);
    remat::throw_on_cuda_error(cudaMemset(device_out_.data(), 1, largest), "writing to the device");
    remat::throw_on_cuda_error(cudaDeviceSynchronize(), "writing to the device");
  }
  cuda_copies(const cuda_copies&) = delete;
  cuda_copies& operator=(const cuda_copies&) = delete;
  /// Waits for the copies, and for what holds them.
  ~cuda_copies() { static_cast<void>(cudaDeviceSynchronize()); }

  copy_seconds seconds(std::size_t bytes, unsigned count, traffic which) {
    const bool out = which != traffic::in, in = which != traffic::out;
    // Both streams begin behind one event, so they run side by side.
    const hold held(enqueued_, out_stream_.get());
    begin(out_stream_.get());
    remat::throw_on_cuda_error(cudaStreamWaitEvent(in_stream_.get(), begun_.get(), 0), "waiting for the begin");
    for (unsigned i = 0; i < count; ++i) {
      if (out)
        remat::throw_on_cuda_error(cudaMemcpyAsync(host_out_.bytes().data(), device_out_.data(), bytes,
                                                   cudaMemcpyDeviceToHost, out_stream_.get()),
                                   "copying to the host");
      if (in)
        remat::throw_on_cuda_error(cudaMemcpyAsync(device_in_.data(), host_in_.bytes().data(), bytes,
                                                   cudaMemcpyHostToDevice, in_stream_.get()),
                                   "copying to the device");
    }
    remat::throw_on_cuda_error(cudaEventRecord(out_end_.get(), out_stream_.get()), "recording the end");
    remat::throw_on_cuda_error(cudaEventRecord(in_end_.get(), in_stream_.get()), "recording the end");
    held.release();
    remat::throw_on_cuda_error(cudaEventSynchronize(out_end_.get()), "waiting for the copies");
    remat::throw_on_cuda_error(cudaEventSynchronize(in_end_.get()), "waiting for the copies");
    return {out ? since_begin(out_end_.get()) / count : 0, in ? since_begin(in_end_.get()) / count : 0};
  }

 private:
  /// Keeps a stream from going on until it is released, at its end at the latest; no longer than a second, where copies
  /// are waited for one by one (CUDA_LAUNCH_BLOCKING).
  class hold {
   public:
    hold(std::atomic<bool>& released, cudaStream_t stream) : released_(released) {
      released_ = false;
      const cudaHostFn_t wait = [](void* flag) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        while (!static_cast<std::atomic<bool>*>(flag)->load() && std::chrono::steady_clock::now() < end)
          std::this_thread::yield();
      };
      remat::throw_on_cuda_error(cudaLaunchHostFunc(stream, wait, &released_), "holding the copies");
    }
    hold(const hold&) = delete;
    hold& operator=(const hold&) = delete;
    ~hold() { release(); }
    void release() const { released_ = true; }

   private:
    std::atomic<bool>& released_;
  };

  void begin(cudaStream_t stream) const {
    remat::throw_on_cuda_error(cudaEventRecord(begun_.get(), stream), "recording the begin");
  }
  [[nodiscard]] double since_begin(cudaEvent_t end) const {
    float ms = 0;
    remat::throw_on_cuda_error(cudaEventElapsedTime(&ms, begun_.get(), end), "reading times");
    return static_cast<double>(ms) / 1e3;
  }

  std::atomic<bool> enqueued_{true};
  remat::cuda_memory device_out_, device_in_;
  remat::cuda_host_memory host_out_, host_in_;
  remat::cuda_stream out_stream_ = remat::make_cuda_stream(), in_stream_ = remat::make_cuda_stream();
  remat::cuda_event begun_ = remat::make_cuda_event(cudaEventDefault),
                    out_end_ = remat::make_cuda_event(cudaEventDefault),
                    in_end_ = remat::make_cuda_event(cudaEventDefault);
};
static_assert(timed_copies<cuda_copies>);

}  // namespace measure_link
