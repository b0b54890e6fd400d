// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// What a kernel is given for one run of its operation: where its data is, and where to run.
///
/// `Stream` is what the executor runs on: `host_stream` on the CPU, `cudaStream_t` on CUDA, where the spans are device
/// memory and the kernel only enqueues its work on `stream`.
/// Spans are as long as the tensors' bytes, and aligned to the memory plan's alignment (parameters and inputs: as the
/// caller bound them). They are valid during the call, or until the work that it enqueued has ended.
template <class Stream>
struct kernel_call {
  using stream_type = Stream;

  op_id operation{};
  std::span<const std::span<const std::byte>> inputs{};  ///< in the graph's order, parameters and inputs among them
  std::span<const std::span<std::byte>> outputs{};       ///< in the graph's order
  /// Of each output: 0, it holds nothing yet and must be written as a whole; 1, other operations have written their
  /// contributions, and this one adds its own to them.
  std::span<const std::uint8_t> adds{};
  std::span<std::byte> workspace{};  ///< its content is undefined, before and after
  /// For random operations: the same at each run of this operation in one step, another one in each step.
  std::uint64_t seed = 0;
  Stream stream{};

  /// Input (output) `i` as elements of `T`; bytes that do not fill an element are left out.
  template <class T>
  [[nodiscard]] std::span<const T> input(std::size_t i) const noexcept {
    return {reinterpret_cast<const T*>(inputs[i].data()), inputs[i].size() / sizeof(T)};
  }
  /// \overload
  template <class T>
  [[nodiscard]] std::span<T> output(std::size_t i) const noexcept {
    return {reinterpret_cast<T*>(outputs[i].data()), outputs[i].size() / sizeof(T)};
  }
  /// The workspace as elements of `T`.
  template <class T>
  [[nodiscard]] std::span<T> scratch() const noexcept {
    return {reinterpret_cast<T*>(workspace.data()), workspace.size() / sizeof(T)};
  }
};

/// Which of an executor's threads a host kernel runs on: 0 … threads − 1.
struct host_stream {
  std::uint32_t index = 0;
};
using host_call = kernel_call<host_stream>;

/// The kernels of a graph: one callable, told by `call.operation` which of them to run.
///
/// Semantics: `k(call)` runs operation `call.operation` on `call.stream`, reads `inputs` and writes `outputs` and
/// `workspace` only, and does the same, bit for bit, whenever it is given the same inputs and seed. What it throws
/// leaves the executor's run, with the operation's name. With several host threads it is called from all of them at
/// once, for operations that do not depend on each other.
/// Models: `kernel_table`, lambdas.
template <class K, class Stream>
concept kernels_for = std::invocable < K&,
        const kernel_call<Stream>
& > ;

/// A callable for each operation: the model of `kernels_for` to fill one by one.
///
///     kernel_table<host_call> kernels(graph);
///     kernels[matmul] = [](const host_call& c) { … };
template <class Call>
class kernel_table {
 public:
  using kernel = std::function<void(const Call&)>;

  kernel_table() = default;
  /// Empty kernels for all operations of `g`.
  template <data_flow_graph G>
  explicit kernel_table(const G& g) : kernels_(static_cast<std::size_t>(g.num_operations())) {}
  explicit kernel_table(std::vector<kernel> kernels) : kernels_(std::move(kernels)) {}

  [[nodiscard]] std::size_t size() const noexcept { return kernels_.size(); }
  [[nodiscard]] kernel& operator[](op_id o) noexcept { return kernels_[index(o)]; }
  [[nodiscard]] const kernel& operator[](op_id o) const noexcept { return kernels_[index(o)]; }

  /// Throws `bad_argument` that names the operation if it has no kernel.
  void operator()(const Call& call) const {
    const std::size_t o = index(call.operation);
    if (o >= kernels_.size() || !kernels_[o])
      throw bad_argument("operation " + std::to_string(o) + " has no kernel in the table");
    kernels_[o](call);
  }

 private:
  std::vector<kernel> kernels_;
};

/// The seed of operation `o` in the step with seed `step_seed` (splitmix64 \cite steele2014splittable): neighbouring
/// steps and operations get seeds that have nothing in common.
[[nodiscard]] constexpr std::uint64_t kernel_seed(std::uint64_t step_seed, op_id o) noexcept {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  return mix(mix(step_seed + golden) + golden * (index(o) + 1));
}

}  // namespace remat
