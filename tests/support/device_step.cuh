// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Memory and outputs of training steps with stand-in kernels on a device.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "shared/cuda_stand_in.cuh"
#include "shared/stand_in.hpp"

namespace remat::test {

/// Device memory for all parameters and inputs, filled by the stand-in kernels.
class device_residents {
 public:
  device_residents(const training_graph& graph, const problem& p, const shared::cuda_stand_in_kernels& kernels,
                   std::uint64_t seed) {
    for (std::uint32_t t = 0; t < graph.num_tensors(); ++t) {
      const auto id = static_cast<tensor_id>(t);
      if (!p.graph().always_resident[t]) continue;
      tensors_[t] = cuda_memory(static_cast<std::size_t>(graph.bytes(id)));
      kernels.fill(id, tensors_[t].bytes(), seed, nullptr);
    }
    throw_on_cuda_error(cudaDeviceSynchronize());
  }
  template <class Executor>
  void bind_all(Executor& run) const {
    for (const auto& [t, m] : tensors_) run.bind(static_cast<tensor_id>(t), m.bytes());
  }

 private:
  std::map<std::uint32_t, cuda_memory> tensors_;
};

/// A copy of device memory.
[[nodiscard]] inline std::vector<std::byte> fetch(std::span<const std::byte> device) {
  std::vector<std::byte> out(device.size());
  if (!out.empty())
    throw_on_cuda_error(cudaMemcpy(out.data(), device.data(), out.size(), cudaMemcpyDeviceToHost), "fetching");
  return out;
}

/// Checks the final outputs after a run, byte for byte.
template <class Executor>
void check_outputs(const training_graph& graph, const shared::stand_in_kernels& values, const Executor& run,
                   const shared::stand_in_values& expected) {
  for (const tensor_id t : graph.final_outputs()) {
    const std::vector<std::byte> got = fetch(run.output(t));
    CHECK(shared::stand_in_kernels::value(got) == expected.tensors[index(t)]);
    values.verify(t, got);
  }
}

}  // namespace remat::test
