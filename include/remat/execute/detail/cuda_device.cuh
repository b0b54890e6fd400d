// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <string>

#include "remat/core/error.hpp"
#include "remat/execute/cuda_error.cuh"

namespace remat::detail {

namespace cuda {

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

/// True for the legacy default stream (0), which waits for the other streams of its device, and cannot be captured.
[[nodiscard]] inline bool is_legacy(cudaStream_t stream) noexcept {
  return stream == nullptr || stream == cudaStreamLegacy;
}

/// Throws `bad_argument`, which names both devices, if `stream` belongs to another device than `device`. `name` is for
/// the message. Default streams belong to the current device. A runtime before 12.8 cannot tell: it refuses nothing.
inline void require_stream_of(int device, cudaStream_t stream, const char* name) {
  if (is_legacy(stream) || stream == cudaStreamPerThread) return;
#if CUDART_VERSION >= 12080
  int of_stream = device;
  throw_on_cuda_error(cudaStreamGetDevice(stream, &of_stream), "asking for the device of a stream");
  if (of_stream != device)
    throw bad_argument(std::string(name) + " belongs to device " + std::to_string(of_stream) +
                       "; the executor was made on device " + std::to_string(device));
#else
  static_cast<void>(device);
  static_cast<void>(name);
#endif
}

/// Throws `bad_argument` unless `streams` can be the streams 1, 2, … of a plan of `count` streams, on `device`: as
/// many, all different, and no default stream.
inline void require_plan_streams(std::span<const cudaStream_t> streams, std::size_t count, int device) {
  if (streams.size() + 1 != count)
    throw bad_argument(std::to_string(streams.size()) + " streams are given for a plan of " + std::to_string(count) +
                       "; it takes " + std::to_string(count - 1) + ", as its stream 0 is the one passed to `run`");
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const std::string name = "stream " + std::to_string(i + 1) + " of the options";
    if (is_legacy(streams[i]) || streams[i] == cudaStreamPerThread)
      throw bad_argument(name + " is a default stream; it must be one that was created");
    for (std::size_t j = 0; j < i; ++j)
      if (streams[i] == streams[j]) throw bad_argument(name + " is also stream " + std::to_string(j + 1));
    require_stream_of(device, streams[i], name.c_str());
  }
}

}  // namespace cuda

}  // namespace remat::detail
