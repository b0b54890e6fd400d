// SPDX-License-Identifier: BSL-1.0
#include <cuda_runtime_api.h>

#include <cstdio>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

/// Exit status 77, which says skipped, where there is no device.
int main(int argc, char** argv) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(status));
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
