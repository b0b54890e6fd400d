// SPDX-License-Identifier: BSL-1.0
//
// measure-link: how fast copies between the GPU and its host are, as remat-plan reads it.
//
//     remat-plan GRAPH.json --budget 0.5 $(measure-link)
//
// Exit status: 0; 1 an error of CUDA; 2 unusable arguments; 77 there is no device.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "measure_link/cuda_copies.cuh"
#include "measure_link/link_measurement.hpp"
#include "remat/core/error.hpp"
#include "remat/execute/cuda_stream.cuh"
#include "shared/cuda_device.cuh"

namespace {

using remat::throw_on_cuda_error;

int run(const measure_link::options& how) {
  int devices = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "measure-link: no CUDA device (%s)\n", cudaGetErrorString(status));
    return shared::skipped;
  }
  measure_link::cuda_copies copies(how.largest);
  const measure_link::measurement found = measure_link::measure(copies, how);
  if (how.json) {
    cudaDeviceProp properties{};
    int device = 0;
    throw_on_cuda_error(cudaGetDevice(&device), "asking for the device");
    throw_on_cuda_error(cudaGetDeviceProperties(&properties, device), "asking for the device");
    std::printf("%s\n", measure_link::to_json(found, properties.name).c_str());
  } else {
    std::printf("%s\n", measure_link::to_spec(how.alone ? found.alone : found.together).c_str());
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  measure_link::options how;
  try {
    how = measure_link::read_options(std::vector<std::string>(argv + 1, argv + std::max(argc, 1)));
  } catch (const remat::bad_argument& e) {
    std::fprintf(stderr, "measure-link: %s\n", e.what());
    return 2;
  }
  if (how.help) {
    std::fputs(measure_link::usage, stdout);
    return 0;
  }
  try {
    return run(how);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "measure-link: %s\n", e.what());
    return 1;
  }
}
