// SPDX-License-Identifier: BSL-1.0
//
// measure-link: how fast copies between the GPU and its host are, as remat-plan reads it.
//
//     remat-plan GRAPH.json --budget 0.5 $(measure-link)
//
// Exit status: 0; 1 an error of CUDA; 2 unusable arguments; 77 there is no device.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "measure_link/link_measurement.hpp"
#include "remat/core/error.hpp"
#include "remat/execute/cuda_stream.cuh"
#include "shared/cuda_device.cuh"

namespace {

using remat::throw_on_cuda_error;

/// Copies on two streams, between buffers that are allocated once, timed by events.
class cuda_copies {
 public:
  explicit cuda_copies(std::size_t largest)
      : device_out_(largest), device_in_(largest), host_out_(largest), host_in_(largest) {
    // The pages of the host are touched, and the device's bytes are written, before anything is measured.
    std::memset(host_in_.bytes().data(), 1, largest);
    std::memset(host_out_.bytes().data(), 1, largest);
    throw_on_cuda_error(cudaMemset(device_out_.data(), 1, largest), "writing to the device");
    throw_on_cuda_error(cudaDeviceSynchronize(), "writing to the device");
  }

  measure_link::copy_seconds seconds(std::size_t bytes, unsigned count, measure_link::traffic which) {
    const bool out = which != measure_link::traffic::in, in = which != measure_link::traffic::out;
    // Both streams begin behind one event, which is not reached before all copies are enqueued: so they run side by
    // side.
    begin(out_stream_.get());
    throw_on_cuda_error(cudaStreamWaitEvent(in_stream_.get(), begun_.get(), 0), "waiting for the begin");
    for (unsigned i = 0; i < count; ++i) {
      if (out)
        throw_on_cuda_error(cudaMemcpyAsync(host_out_.bytes().data(), device_out_.data(), bytes, cudaMemcpyDeviceToHost,
                                            out_stream_.get()),
                            "copying to the host");
      if (in)
        throw_on_cuda_error(cudaMemcpyAsync(device_in_.data(), host_in_.bytes().data(), bytes, cudaMemcpyHostToDevice,
                                            in_stream_.get()),
                            "copying to the device");
    }
    throw_on_cuda_error(cudaEventRecord(out_end_.get(), out_stream_.get()), "recording the end");
    throw_on_cuda_error(cudaEventRecord(in_end_.get(), in_stream_.get()), "recording the end");
    throw_on_cuda_error(cudaEventSynchronize(out_end_.get()), "waiting for the copies");
    throw_on_cuda_error(cudaEventSynchronize(in_end_.get()), "waiting for the copies");
    return {out ? since_begin(out_end_.get()) / count : 0, in ? since_begin(in_end_.get()) / count : 0};
  }

 private:
  void begin(cudaStream_t stream) const {
    throw_on_cuda_error(cudaEventRecord(begun_.get(), stream), "recording the begin");
  }
  [[nodiscard]] double since_begin(cudaEvent_t end) const {
    float ms = 0;
    throw_on_cuda_error(cudaEventElapsedTime(&ms, begun_.get(), end), "reading times");
    return static_cast<double>(ms) / 1e3;
  }

  remat::cuda_memory device_out_, device_in_;
  remat::cuda_host_memory host_out_, host_in_;
  remat::cuda_stream out_stream_ = remat::make_cuda_stream(), in_stream_ = remat::make_cuda_stream();
  remat::cuda_event begun_ = remat::make_cuda_event(cudaEventDefault),
                    out_end_ = remat::make_cuda_event(cudaEventDefault),
                    in_end_ = remat::make_cuda_event(cudaEventDefault);
};
static_assert(measure_link::timed_copies<cuda_copies>);

int run(const measure_link::options& how) {
  int devices = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "measure-link: no CUDA device (%s)\n", cudaGetErrorString(status));
    return shared::skipped;
  }
  cuda_copies copies(how.largest);
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
