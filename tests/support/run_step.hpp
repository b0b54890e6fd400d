// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// Bytes at an address that is a multiple of 64.
class aligned_bytes {
 public:
  aligned_bytes() = default;
  explicit aligned_bytes(std::size_t size) : storage_(size / sizeof(block) + 1), size_(size) {}
  [[nodiscard]] std::span<std::byte> bytes() { return {storage_.empty() ? nullptr : storage_[0].data, size_}; }

 private:
  struct alignas(64) block {
    std::byte data[64];
  };
  std::vector<block> storage_;
  std::size_t size_ = 0;
};

/// Runs a graph in a given order, every tensor in memory of its own. Executors are compared with it.
template <class Kernels>
class naive_runner {
 public:
  naive_runner(const training_graph& graph, const Kernels& kernels) : graph_(&graph), kernels_(&kernels) {
    for (std::size_t t = 0; t < graph.num_tensors(); ++t)
      memory_.emplace_back(static_cast<std::size_t>(graph.bytes(static_cast<tensor_id>(t))));
  }

  template <class T>
  [[nodiscard]] std::span<T> values(tensor_id t) {
    const auto bytes = memory_[index(t)].bytes();
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  /// Runs the operations in the order of `order`, which must be topological. Tensors not yet written hold 0xa5.
  void run(std::span<const op_id> order, std::uint64_t step_seed = 0) {
    std::vector<std::uint8_t> written(memory_.size(), 0);
    for (std::size_t t = 0; t < memory_.size(); ++t) {
      const auto bytes = memory_[t].bytes();
      if (!graph_->always_resident(static_cast<tensor_id>(t)) && !bytes.empty())
        std::memset(bytes.data(), 0xa5, bytes.size());
    }
    for (const op_id o : order) {
      std::vector<std::span<const std::byte>> inputs;
      std::vector<std::span<std::byte>> outputs;
      std::vector<std::uint8_t> adds;
      for (const tensor_id t : graph_->inputs(o)) inputs.push_back(memory_[index(t)].bytes());
      for (const tensor_id t : graph_->outputs(o)) {
        outputs.push_back(memory_[index(t)].bytes());
        adds.push_back(written[index(t)]);
      }
      aligned_bytes workspace(static_cast<std::size_t>(graph_->workspace(o)));
      host_call call;
      call.operation = o;
      call.inputs = inputs;
      call.outputs = outputs;
      call.adds = adds;
      call.workspace = workspace.bytes();
      call.seed = kernel_seed(step_seed, o);
      (*kernels_)(call);
      for (const tensor_id t : graph_->outputs(o)) written[index(t)] = 1;
    }
  }

  /// Runs the operations in the listed order.
  void run(std::uint64_t step_seed = 0) {
    std::vector<op_id> order;
    for (std::size_t o = 0; o < graph_->num_operations(); ++o) order.push_back(static_cast<op_id>(o));
    run(order, step_seed);
  }

 private:
  const training_graph* graph_;
  const Kernels* kernels_;
  std::vector<aligned_bytes> memory_;
};

/// A random order of the operations in which every tensor's producers precede its readers.
[[nodiscard]] inline std::vector<op_id> random_order(const problem& p, std::mt19937_64& engine) {
  const flat_graph& s = p.graph();
  std::vector<std::uint32_t> missing(s.num_operations, 0);
  std::vector<op_id> ready, order;
  for (std::uint32_t o = 0; o < s.num_operations; ++o) {
    for (const std::uint32_t t : s.inputs[o]) missing[o] += static_cast<std::uint32_t>(s.producers[t].size());
    if (missing[o] == 0) ready.push_back(static_cast<op_id>(o));
  }
  while (!ready.empty()) {
    std::swap(ready[engine() % ready.size()], ready.back());
    const op_id o = ready.back();
    ready.pop_back();
    order.push_back(o);
    for (const std::uint32_t t : s.outputs[index(o)])
      for (const std::uint32_t c : s.consumers[t])
        if (--missing[c] == 0) ready.push_back(static_cast<op_id>(c));
  }
  return order;
}

}  // namespace remat::test
