// SPDX-License-Identifier: BSL-1.0
// The kernels of the GPT on a device, run on the host, beside those of the host's backend. cuda_on_host.hpp comes
// first: what follows is compiled with its macros.
#include "support/cuda_on_host.hpp"
#include "support/wmma_on_host.hpp"
#include "train/cuda_backend.cuh"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/execute/detail/launch_calls.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/relative_difference.hpp"
#include "train/gpt.hpp"
#include "train/host_backend.hpp"
#include "train/trainer.hpp"

using namespace remat;

namespace {

/// The network with the kernels of a device: in arena `memory`, by calls one after the other.
template <class T>
class device_step {
 public:
  explicit device_step(const train::gpt_sizes& sizes)
      : net("gpt",
            train::cuda_backend<T>(train::gpu::make_products(train::gpu::matmul::own, false), {.tensor_cores = false})),
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

  train::network<train::cuda_backend<T>> net;
  train::gpt ids;
  built_step<train::cuda_kernel> step;
  problem p;
  launch_plan plan;
  train::aligned_buffer memory;
  cudaStream_t stream = nullptr;
  detail::launch_calls<cudaStream_t> calls;
};

template <class T = float>
std::vector<float> floats(std::span<const std::byte> bytes) {
  const std::span<const T> all(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
  std::vector<float> out;
  for (const T x : all) out.push_back(train::gpu::to_float(x));
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("loss and gradients of the device's kernels are those of the host's", T, float,
                   train::gpu::bfloat16) {
  const double within = std::is_same_v<T, float> ? 1e-5 : 0.04;
  const train::gpt_sizes sizes{2, 16, 32, 4, 2, 20, 0.0F};
  device_step<T> device(sizes);
  train::network<train::host_backend> net("gpt");
  const train::gpt ids = train::make_gpt(net, sizes);
  const auto step = net.build(ids.loss);
  const problem p(step.graph, unit_cost{});
  host_executor host(launch_plan(step.graph, p, listed_order(p), {.memory = {.alignment = 64}}),
                     kernel_table<host_call>(step.kernels));

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<train::aligned_buffer> memory;
  memory.reserve(2 * net.parameters.size() + 2);
  for (std::size_t i = 0; i < net.parameters.size(); ++i) {
    const train::parameter& x = net.parameters[i];
    memory.emplace_back(x.size * static_cast<std::int64_t>(sizeof(T)));
    const auto of_device = memory.back().template values<T>();
    device.calls.bind(device.net.parameters[i].id, memory.back().bytes());
    memory.emplace_back(x.size * 4);
    const auto of_host = memory.back().template values<float>();
    host.bind(x.id, memory.back().bytes());
    for (std::size_t k = 0; k < of_host.size(); ++k) {
      of_device[k] = train::gpu::to_element<T>(x.mean + (x.deviation + 0.05F) * normal(random));
      of_host[k] = train::gpu::to_float(of_device[k]);
    }
  }
  for (const bool targets : {false, true}) {
    memory.emplace_back(sizes.batch * sizes.context * 4);
    for (std::int32_t& v : memory.back().template values<std::int32_t>()) v = static_cast<std::int32_t>(random() % 20);
    device.calls.bind(targets ? device.ids.targets : device.ids.tokens, memory.back().bytes());
    host.bind(targets ? ids.targets : ids.tokens, memory.back().bytes());
  }

  device.run();
  host.run();
  CHECK(test::relative_difference(floats(device.calls.output(device.ids.loss)), floats(host.output(ids.loss))) <
        within);
  for (std::size_t i = 0; i < net.parameters.size(); ++i) {
    CAPTURE(i);
    CHECK(
        test::relative_difference(floats<T>(device.calls.output(*device.step.gradient_of(device.net.parameters[i].id))),
                                  floats(host.output(*step.gradient_of(net.parameters[i].id)))) < within);
  }
}

TEST_CASE("two contributions to a gradient leave the same bits in either order") {
  using train::gpu::bfloat16;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 1000; ++i) {
    const float a = normal(random), b = normal(random);
    bfloat16 there{}, back{};
    train::gpu::put(&there, 0, a, false);
    train::gpu::put(&there, 0, b, true);
    train::gpu::put(&back, 0, b, false);
    train::gpu::put(&back, 0, a, true);
    CHECK(train::gpu::to_float(there) == train::gpu::to_float(back));
  }
}

TEST_CASE("attention keeps a number for each row and head, and tensors of bfloat16 half the bytes") {
  const train::gpt_sizes sizes{2, 16, 32, 4, 1, 20, 0.0F};
  const device_step<float> single(sizes);
  const device_step<train::gpu::bfloat16> half(sizes);
  const auto bytes_of = [](const auto& step, const std::string& name) {
    const training_graph& g = step.step.graph;
    for (std::uint32_t t = 0; t < g.num_tensors(); ++t)
      if (g.name(tensor_id{t}) == name) return g.bytes(tensor_id{t});
    return std::int64_t{-1};
  };
  CHECK(bytes_of(single, "block0.attention.saved") == 2 * 4 * 16 * 4);
  CHECK(bytes_of(half, "block0.attention.saved") == 2 * 4 * 16 * 4);
  CHECK(bytes_of(single, "block0.attention") == 2 * 16 * 32 * 4);
  CHECK(bytes_of(half, "block0.attention") == 2 * 16 * 32 * 2);
  CHECK(bytes_of(half, "loss") == 4);
}

TEST_CASE("heads too large for the tiles of attention are refused with the bytes that there are") {
  train::network<train::cuda_backend<float>> net(
      "gpt", train::cuda_backend<float>(train::gpu::make_products(train::gpu::matmul::own, false)));
  CHECK_THROWS_WITH_AS(train::make_gpt(net, {1, 16, 512, 1, 1, 20, 0.0F}),
                       "heads have 512 elements; the tiles of attention then need more than the 49152 bytes of shared "
                       "memory that a block may have",
                       std::invalid_argument);
}
