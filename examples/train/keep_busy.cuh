// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Keeps the device busy while the host plans. An idle device lowers its clocks and cools down; what is measured right
/// after that is slower at first, and then faster than what a long run sees.

#include <cuda_runtime.h>

#include <stop_token>
#include <thread>

#include "remat/execute/cuda_stream.cuh"

namespace train::gpu {

/// Computes for so many cycles of the multiprocessor's clock.
template <int = 0>
__global__ void burn(float* out, long long cycles) {
  const long long begun = clock64();
  float x = static_cast<float>(threadIdx.x);
  while (clock64() - begun < cycles)
    for (int i = 0; i < 256; ++i) x = fmaf(x, 0.999F, 0.5F);
  if (x == -1) *out = x;  // never: but the compiler does not know
}

/// While it lives, kernels run on all multiprocessors of the current device, each some milliseconds long.
class keep_busy {
 public:
  keep_busy() : memory_(sizeof(float)), stream_(remat::make_cuda_stream()) {
    remat::throw_on_cuda_error(cudaGetDevice(&device_), "asking for the device");
    remat::throw_on_cuda_error(cudaDeviceGetAttribute(&blocks_, cudaDevAttrMultiProcessorCount, device_),
                               "asking for the multiprocessors");
    worker_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  keep_busy(const keep_busy&) = delete;
  keep_busy& operator=(const keep_busy&) = delete;
  ~keep_busy() = default;  // waits for the last kernel: the thread is the last member

 private:
  /// An error ends it; the thread that measures meets the same one.
  void run(const std::stop_token& stop) {
    if (cudaSetDevice(device_) != cudaSuccess) return;
    cudaEvent_t made{};  // a wait that leaves the processor to the solvers
    if (cudaEventCreateWithFlags(&made, cudaEventDisableTiming | cudaEventBlockingSync) != cudaSuccess) return;
    const remat::cuda_event ended(made);
    constexpr long long cycles = 10'000'000;
    while (!stop.stop_requested()) {
      burn<><<<static_cast<unsigned>(blocks_), 256, 0, stream_.get()>>>(memory_.as<float>().data(), cycles);
      if (cudaGetLastError() != cudaSuccess || cudaEventRecord(ended.get(), stream_.get()) != cudaSuccess ||
          cudaEventSynchronize(ended.get()) != cudaSuccess)
        return;
    }
  }

  remat::cuda_memory memory_;
  remat::cuda_stream stream_;
  int device_ = 0, blocks_ = 1;
  std::jthread worker_;
};

}  // namespace train::gpu
