// SPDX-License-Identifier: BSL-1.0
// The kernels of the GPT on a device, run on the host, beside those of the host's backend. cuda_on_host.hpp comes
// first: what follows is compiled with its macros.
#include "support/cuda_on_host.hpp"
#include "train/cuda_backend.cuh"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/execute/detail/launch_calls.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/simplify.hpp"
#include "train/gpt.hpp"
#include "train/host_backend.hpp"
#include "train/trainer.hpp"

using namespace remat;

namespace {

/// The network with the kernels of a device: in arena `memory`, by calls one after the other.
class device_step {
 public:
  explicit device_step(const train::gpt_sizes& sizes)
      : net("gpt", train::cuda_backend(train::gpu::make_products(train::gpu::matmul::own, false))),
        ids(train::make_gpt(net, sizes)),
        step(net.build(ids.loss)),
        p(step.graph, unit_cost{}),
        plan(step.graph, p, listed_order(p), {.memory = {.alignment = 64}}),
        memory(plan.arena_bytes()),
        calls(plan, memory.bytes(), std::span<const cudaStream_t>(&stream, 1)) {}
  /// Issues the calls in their order; each kernel has ended when its call returns.
  void run() {
    calls.require_bound();
    for (std::size_t i = 0; i < calls.size(); ++i) step.kernels[index(calls[i].operation)](calls[i]);
  }

  train::network<train::cuda_backend> net;
  train::gpt ids;
  built_step<train::cuda_backend::kernel> step;
  problem p;
  launch_plan plan;
  train::aligned_buffer memory;
  cudaStream_t stream = nullptr;
  detail::launch_calls<cudaStream_t> calls;
};

std::span<const float> floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

/// ‖a − b‖ / ‖b‖
double difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace

TEST_CASE("loss and gradients of the device's kernels are those of the host's") {
  const train::gpt_sizes sizes{2, 16, 32, 4, 2, 20, 0.0F};
  device_step device(sizes);
  train::network<train::host_backend> net("gpt");
  const train::gpt ids = train::make_gpt(net, sizes);
  const auto step = net.build(ids.loss);
  const problem p(step.graph, unit_cost{});
  host_executor host(launch_plan(step.graph, p, listed_order(p), {.memory = {.alignment = 64}}),
                     kernel_table<host_call>(step.kernels));

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<train::aligned_buffer> memory;
  const auto bind = [&](tensor_id of_device, tensor_id of_host) {
    device.calls.bind(of_device, memory.back().bytes());
    host.bind(of_host, memory.back().bytes());
  };
  for (std::size_t i = 0; i < net.parameters.size(); ++i) {
    const train::parameter& x = net.parameters[i];
    memory.emplace_back(x.size * 4);
    for (float& v : memory.back().values<float>()) v = x.mean + (x.deviation + 0.05F) * normal(random);
    bind(device.net.parameters[i].id, x.id);
  }
  for (const bool targets : {false, true}) {
    memory.emplace_back(sizes.batch * sizes.context * 4);
    for (std::int32_t& v : memory.back().values<std::int32_t>()) v = static_cast<std::int32_t>(random() % 20);
    bind(targets ? device.ids.targets : device.ids.tokens, targets ? ids.targets : ids.tokens);
  }

  device.run();
  host.run();
  CHECK(difference(floats(device.calls.output(device.ids.loss)), floats(host.output(ids.loss))) < 1e-5);
  for (std::size_t i = 0; i < net.parameters.size(); ++i) {
    CAPTURE(i);
    CHECK(difference(floats(device.calls.output(*device.step.gradient_of(device.net.parameters[i].id))),
                     floats(host.output(*step.gradient_of(net.parameters[i].id)))) < 1e-5);
  }
}
