// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>

#include "shared/cuda_versions.hpp"

namespace shared {

/// The exit status of a program that finds no device.
inline constexpr int skipped = 77;

/// Prints the versions of driver and runtime. True if there is a device; otherwise prints why there is none.
[[nodiscard]] inline bool found_cuda_device() {
  int driver = 0, runtime = 0, devices = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  std::printf("%s\n", about_versions(driver, runtime).c_str());
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices != 0) return true;
  std::printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(status));
  return false;
}

}  // namespace shared
