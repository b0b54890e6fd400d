// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

namespace detail::kernels {

/// In debug builds: throws `bad_argument` unless operation `o` has a `what` number `i`, of `count`.
inline void require_argument([[maybe_unused]] op_id o, [[maybe_unused]] const char* what,
                             [[maybe_unused]] std::size_t i, [[maybe_unused]] std::size_t count) {
#ifndef NDEBUG
  if (i >= count)
    throw bad_argument("the kernel of operation " + std::to_string(index(o)) + " asks for " + what + " " +
                       std::to_string(i) + "; the operation has " + std::to_string(count) + ", counted from 0");
#endif
}

}  // namespace detail::kernels

/// The arguments of a kernel for one run of its operation: its data, and the stream to run on.
///
/// `Stream` depends on the executor: `host_stream` on the CPU; `cudaStream_t` on CUDA, where the spans are device
/// memory and the kernel only enqueues its work on `stream`. Each span has as many bytes as its tensor. A span in the
/// arena has the memory plan's alignment. A span in the caller's memory (a parameter, an input, a bound output) has the
/// address that the caller has bound: a kernel that needs an alignment there must agree on it with the caller. The
/// spans are valid during the call; on CUDA, until the enqueued work has ended.
template <class Stream>
struct kernel_call {
  using stream_type = Stream;  ///< the type of `stream`

  op_id operation{};                                     ///< the operation to run
  std::span<const std::span<const std::byte>> inputs{};  ///< the inputs in the graph's order, those of the step, too
  std::span<const std::span<std::byte>> outputs{};       ///< the outputs in the graph's order
  /// Of each output. 0: its content is undefined, and the kernel must write all of it. 1: it holds the contributions of
  /// other operations or, an accumulated output, of earlier training steps, and the kernel adds its own to them.
  std::span<const std::uint8_t> adds{};
  std::span<std::byte> workspace{};  ///< undefined content before and after the call
  /// For random operations: the same for all runs of the operation in one training step, different in each step.
  std::uint64_t seed = 0;
  Stream stream{};  ///< the stream on which the kernel runs

  /// Input `i` as elements of `T`. Bytes at the end that do not fill an element are left out. Precondition: the
  /// operation has an input `i`; where NDEBUG is not defined, `bad_argument` names an operation that has none.
  template <class T>
  [[nodiscard]] std::span<const T> input(std::size_t i) const {
    detail::kernels::require_argument(operation, "input", i, inputs.size());
    return {reinterpret_cast<const T*>(inputs[i].data()), inputs[i].size() / sizeof(T)};
  }
  /// Output `i` as elements of `T`, likewise.
  template <class T>
  [[nodiscard]] std::span<T> output(std::size_t i) const {
    detail::kernels::require_argument(operation, "output", i, outputs.size());
    return {reinterpret_cast<T*>(outputs[i].data()), outputs[i].size() / sizeof(T)};
  }
  /// The workspace as elements of `T`, likewise.
  template <class T>
  [[nodiscard]] std::span<T> scratch() const noexcept {
    return {reinterpret_cast<T*>(workspace.data()), workspace.size() / sizeof(T)};
  }
};

/// The thread of a host executor on which a kernel runs: 0 … threads − 1.
struct host_stream {
  std::uint32_t index = 0;  ///< the number of the thread; 0 is the caller's
};
/// The argument of a kernel callable on the CPU.
using host_call = kernel_call<host_stream>;

/// The arguments of one copy of a tensor between the device and the host.
///
/// `Stream` is that of `kernel_call`. On CUDA, the device's side is device memory, the host's side is pinned memory,
/// and the copy is only enqueued on `stream`.
template <class Stream>
struct copy_call {
  using stream_type = Stream;  ///< the type of `stream`

  step_kind kind = step_kind::offload;  ///< `offload`: from the device to the host; `prefetch`: back
  tensor_id tensor{};                   ///< the tensor that is copied
  std::span<const std::byte> from{};    ///< where it lies
  std::span<std::byte> to{};            ///< where it will lie; as many bytes
  Stream stream{};                      ///< the stream on which the copy runs
};
/// The argument of a copy on the CPU.
using host_copy = copy_call<host_stream>;

/// The kernels of a graph, as one callable.
///
/// Semantics: `k(call)` runs operation `call.operation` on `call.stream`. It reads `inputs`, and writes to `outputs`
/// and `workspace` alone. Equal inputs and seeds give equal outputs, bit for bit. An exception that it throws leaves
/// the executor's run as `execution_error`. With several host threads it is called from all of them at the same time,
/// for operations that do not depend on each other. Models: `kernel_table`, lambdas.
template <class K, class Stream>
concept kernels_for = requires(K& kernels, const kernel_call<Stream>& call) {
  kernels(call);
};

/// Kernels, or a reference to kernels (`std::ref`), that also make the copies between the device and the host.
///
/// Semantics: `k.copy(call)` makes `call.to` equal to `call.from`, on `call.stream`. An exception that it throws leaves
/// the executor's run as `execution_error`, which names the tensor. Executors make the copies of other kernels
/// themselves.
template <class K, class Stream>
concept copies_for = requires(std::unwrap_reference_t<K>& kernels, const copy_call<Stream>& call) {
  kernels.copy(call);
};

/// A table with one callable for each operation: a model of `kernels_for` that is filled operation by operation.
///
///     kernel_table<host_call> kernels(graph);
///     kernels[matmul] = [](const host_call& c) { … };
template <class Call, class Kernel = std::function<void(const Call&)>>
class kernel_table {
 public:
  using kernel = Kernel;  ///< the kernel of one operation

  /// A table without operations.
  kernel_table() = default;
  /// Empty kernels for all operations of `g`.
  template <data_flow_graph G>
  explicit kernel_table(const G& g) : kernels_(static_cast<std::size_t>(g.num_operations())) {}
  /// The given kernels: entry i is the kernel of operation i.
  explicit kernel_table(std::vector<kernel> kernels) : kernels_(std::move(kernels)) {}

  /// The number of operations, with and without kernels.
  [[nodiscard]] std::size_t size() const noexcept { return kernels_.size(); }
  /// The kernel of operation `o`, empty if it has none. Precondition: `o` is below `size()`.
  [[nodiscard]] kernel& operator[](op_id o) noexcept { return kernels_[index(o)]; }
  /// The kernel of operation `o`, empty if it has none. Precondition: `o` is below `size()`.
  [[nodiscard]] const kernel& operator[](op_id o) const noexcept { return kernels_[index(o)]; }

  /// Calls the operation's kernel; returns what it returns. Throws `bad_argument` that names the operation if it has no
  /// kernel.
  auto operator()(const Call& call) const {
    const std::size_t o = index(call.operation);
    if (o >= kernels_.size() || !kernels_[o])
      throw bad_argument("operation " + std::to_string(o) + " has no kernel in the table");
    return kernels_[o](call);
  }

 private:
  std::vector<kernel> kernels_;
};

/// The seed of operation `o` in the training step with seed `step_seed`: splitmix64 \cite steele2014splittable. It
/// never changes: kernels on a device compute the same function. Seeds of neighbouring steps or operations are
/// unrelated.
[[nodiscard]] constexpr std::uint64_t kernel_seed(std::uint64_t step_seed, op_id o) noexcept {
  return detail::splitmix64(detail::splitmix64(step_seed) + detail::golden * index(o));
}

/// How closely `host_executor` watches the kernels.
enum class host_debug : std::uint8_t {
  off,  ///< does not watch them
  /// Memory that belongs to no tensor is filled with `detail::host::poison`: freed memory becomes poison, fresh outputs
  /// and workspace begin as poison. A byte that is not poison any more is noticed when its memory is given to a tensor,
  /// or at the end of the training step. Memory of the caller is not watched; a bound output begins as poison if a
  /// kernel must write all of it, and an accumulated one keeps what it holds.
  poison,
  /// As `poison`, but all free memory is compared after every launch, so the error names the operation that wrote.
  every_launch
};

/// How a run of a training step ended. Errors are exceptions.
enum class run_status : std::uint8_t {
  done,      ///< all launches were issued
  cancelled  ///< a stop request ended the run before its last launch
};

}  // namespace REMAT_NAMESPACE
