// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

namespace detail::kernels {

/// Throws `bad_argument` in debug builds unless operation `o` has a `what` number `i`, of `count`.
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
  /// A number for each output. 0: its content is undefined, and the kernel must write all of it. 1: it holds the
  /// contributions of other operations or, an accumulated output, of earlier training steps, and the kernel adds its
  /// own to them.
  std::span<const std::uint8_t> adds{};
  std::span<std::byte> workspace{};  ///< undefined content before and after the call
  /// The seed of random operations: the same for all runs of the operation in one training step, different in each
  /// step.
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
  /// Does what `poison` does, but compares all free memory after every launch, so the error names the operation that
  /// wrote.
  every_launch
};

/// How a run of a training step ended. Errors are exceptions.
enum class run_status : std::uint8_t {
  done,      ///< all launches were issued
  cancelled  ///< a stop request ended the run before its last launch
};

/// The addresses of a schedule's allocations in one arena.
struct arena_layout {
  std::span<const std::int64_t> offsets{};  ///< bytes, of each allocation of `lifetimes`
  std::int64_t arena_bytes = 0;             ///< the size of the arena
  std::int64_t alignment = 1;  ///< the arena's first byte and all offsets are multiples of it; a power of two

  /// Refers to the offsets `where`, which must outlive the layout.
  arena_layout(std::span<const std::int64_t> where, std::int64_t bytes, std::int64_t aligned_to)
      : offsets(where), arena_bytes(bytes), alignment(aligned_to) {}
  /// Refers to the offsets of `plan`, which must outlive the layout.
  arena_layout(const memory_plan& plan)  // NOLINT: implicit, as it is the same in other words
      : offsets(plan.offsets), arena_bytes(plan.arena_bytes), alignment(plan.alignment) {}
};

/// Options of a `launch_plan`.
///
/// Outputs in memory of the caller: by default, final outputs lie in the arena, and the caller copies them after a
/// training step. `bound_outputs` and `accumulated_outputs` name final outputs that lie in memory of the caller: the
/// executor's `bind_output` gives the memory, the kernels write to it, and the arena does not hold them. They count in
/// the schedule's peak like other tensors.
///
/// An accumulated output adds up over training steps, as gradients over micro-batches: the kernels add to what its
/// memory holds, from the first contribution of a step on. The caller sets it to zero before the first micro-batch. So
/// each operation that writes to it must run exactly once in the schedule; `problem::producing_once` makes solvers keep
/// to that.
struct launch_options {
  /// The number of streams for the computes, at least 1; 1 if the schedule copies tensors to the host.
  std::uint32_t streams = 1;
  memory_plan_options memory{};  ///< options of the memory plans that are made; not used with given layouts
  /// The addresses of the copies on the host, `lifetimes::host`, in an arena there: those of a `memory_plan` of
  /// `host_intervals_of`. Empty: the launch plan makes a memory plan.
  std::optional<arena_layout> host_layout{};
  std::vector<tensor_id> bound_outputs{};        ///< final outputs in memory of the caller, written anew in each step
  std::vector<tensor_id> accumulated_outputs{};  ///< final outputs in memory of the caller, added to in each step
  /// Operations may read accumulated outputs. They read the sum over all steps since the caller has set it to zero,
  /// this step included: right for an optimizer in the last micro-batch, wrong for the rest of a backward pass.
  bool sums_may_be_read = false;
  /// Bytes, at least 0: a larger arena is refused.
  std::int64_t arena_budget = problem::unlimited;
  std::int64_t host_arena_budget = problem::unlimited;  ///< likewise, of the arena on the host
  /// The share of the device that the kernel of each operation occupies, 0 … 1: see `stream_options::shares`. It
  /// decides the simulated times and the choice of the streams. Empty: kernels of all streams may run at the same time.
  std::vector<double> occupancy{};

  /// The tensors of `bound_outputs` and `accumulated_outputs`, which are not in the arena:
  /// `plan_memory(intervals_of(lives, options.outputs_elsewhere()))` plans the arena's rest.
  [[nodiscard]] std::vector<tensor_id> outputs_elsewhere() const {
    std::vector<tensor_id> out(bound_outputs);
    out.insert(out.end(), accumulated_outputs.begin(), accumulated_outputs.end());
    return out;
  }
};

/// One tensor that a launch reads or writes.
struct launch_argument {
  /// The `allocation` of a tensor in the caller's memory: an always resident tensor, a bound or accumulated output.
  static constexpr std::uint32_t bound = lifetimes::no_allocation;

  tensor_id tensor{};                ///< the tensor that is read or written
  std::uint32_t allocation = bound;  ///< an index into `launch_plan::lives()`
  std::int64_t bytes = 0;            ///< the size of the tensor
  std::int64_t offset = 0;           ///< bytes, in the arena; 0 in the caller's memory
  /// 1 for an output that already holds the contributions of other operations or, accumulated, of earlier steps.
  std::uint8_t adds = 0;
};

/// One compute or one copy of the schedule, ready to be issued to a stream. A copy has one argument: a copy to the host
/// reads its tensor on the device, and a copy from the host writes it.
struct launch {
  static constexpr std::uint32_t no_event = 0xffffffff;  ///< the `event` of a launch that none waits for

  op_id operation{};               ///< the operation that is run; without a meaning for a copy
  std::uint32_t step = 0;          ///< the step's index in the schedule
  std::uint32_t stream = 0;        ///< the stream to which the launch is issued
  std::uint32_t event = no_event;  ///< recorded after the launch, because another stream waits for it
  std::uint32_t first_input = 0;   ///< the place of its inputs in `launch_plan::arguments()`; its outputs follow
  std::uint32_t first_output = 0;  ///< the place of its outputs there
  std::uint32_t end = 0;           ///< one past its last output there
  /// The copy on the host that a copy writes or reads, of `lifetimes::host`; else `no_allocation`.
  std::uint32_t host = lifetimes::no_allocation;
  std::int64_t workspace_offset = 0;  ///< bytes, in the arena; 0 without workspace
  std::int64_t workspace_bytes = 0;   ///< the size of its workspace

  /// True for a copy, false for a compute.
  [[nodiscard]] bool is_copy() const noexcept { return host != lifetimes::no_allocation; }
  /// `compute`, `offload` or `prefetch`.
  [[nodiscard]] step_kind kind() const noexcept {
    return !is_copy() ? step_kind::compute : first_output == end ? step_kind::offload : step_kind::prefetch;
  }
};

namespace detail {

/// The facts that an executor reads from a graph: arguments in the graph's order, sizes and names.
struct graph_arguments {
  std::size_t num_operations = 0, num_tensors = 0;
  index_rows inputs, outputs;  // operation → tensors
  std::vector<std::uint32_t> final_outputs;
  std::vector<std::uint8_t> random;  // whether each operation is random; empty if the graph does not say
  std::vector<std::int64_t> bytes;   // each tensor's size; empty if the graph has no sizes
  std::vector<std::string> operation_names, tensor_names;  // empty if the graph has no names

  /// The problem's size of each tensor; of an always resident tensor the graph's, 0 if the graph has no sizes.
  [[nodiscard]] std::vector<std::int64_t> sizes(const flat_graph& g) const {
    std::vector<std::int64_t> out(g.bytes);
    for (std::size_t t = 0; t < bytes.size(); ++t)
      if (g.always_resident[t]) out[t] = bytes[t];
    return out;
  }
  /// Names an operation in messages: "operation 3 (matmul)".
  [[nodiscard]] std::string label(op_id o) const { return labelled("operation ", index(o), operation_names); }
  /// Names a tensor in messages: "tensor 4 (x)".
  [[nodiscard]] std::string label(tensor_id t) const { return labelled("tensor ", index(t), tensor_names); }

 private:
  [[nodiscard]] static std::string labelled(const char* kind, std::size_t i, const std::vector<std::string>& names) {
    const bool named = i < names.size() && !names[i].empty();
    return kind + std::to_string(i) + (named ? " (" + names[i] + ")" : "");
  }
};

template <data_flow_graph G>
[[nodiscard]] graph_arguments read_arguments(const G& graph) {
  graph_arguments out;
  out.num_operations = static_cast<std::size_t>(graph.num_operations());
  out.num_tensors = static_cast<std::size_t>(graph.num_tensors());
  const auto append = [](const auto& tensors, std::vector<std::uint32_t>& to) {
    for (const tensor_id t : tensors) to.push_back(static_cast<std::uint32_t>(index(t)));
  };
  for (std::size_t o = 0; o < out.num_operations; ++o) {
    const auto id = static_cast<op_id>(o);
    append(graph.inputs(id), out.inputs.values);
    append(graph.outputs(id), out.outputs.values);
    out.inputs.end_row();
    out.outputs.end_row();
    if constexpr (deterministic_graph<G>) out.random.push_back(graph.deterministic(id) ? 0 : 1);
    if constexpr (named_graph<G>) out.operation_names.emplace_back(std::string_view(graph.name(id)));
  }
  append(graph.final_outputs(), out.final_outputs);
  for (std::size_t t = 0; t < out.num_tensors; ++t) {
    const auto id = static_cast<tensor_id>(t);
    if constexpr (sized_graph<G>) out.bytes.push_back(static_cast<std::int64_t>(graph.bytes(id)));
    if constexpr (named_graph<G>) out.tensor_names.emplace_back(std::string_view(graph.name(id)));
  }
  return out;
}

}  // namespace detail

/// All that an executor needs of a schedule, made once: the launches in the schedule's order with their streams,
/// events, arguments in the graph's order, and addresses.
///
/// If the schedule copies tensors to the host, the plan has an arena there, too, and `num_engines` streams: stream 0
/// for the computes, stream 1 for the copies to the host, stream 2 for those back.
///
/// Neither the graph nor the problem need outlive it. O(operations + tensors + steps + the steps' reads and writes)
/// memory; time as `assign_streams`.
class launch_plan {
 public:
  /// Takes given addresses, such as those of a `memory_plan`.
  ///
  /// Throws `bad_argument` if the graph is not the problem's, if the schedule is not legal or exceeds the problem's
  /// budget, or if allocations that live at the same time share bytes, lie outside of the arena or are not aligned.
  template <data_flow_graph G>
  launch_plan(const G& graph, const problem& p, std::span<const step> steps, const arena_layout& layout,
              std::uint32_t streams = 1)
      : launch_plan(graph, p, steps, layout, launch_options{.streams = streams}) {}

  /// \overload
  ///
  /// The offsets of allocations of bound and accumulated outputs are ignored. Throws `bad_argument` also if a tensor of
  /// `options` is no final output, always resident, or named twice; if an operation that writes to an accumulated
  /// output runs more than once, or one reads it without `sums_may_be_read`; if an arena exceeds its budget; and for
  /// several streams beside copies to the host.
  template <data_flow_graph G>
  launch_plan(const G& graph, const problem& p, std::span<const step> steps, const arena_layout& layout,
              const launch_options& options)
      : launch_plan(detail::read_arguments(graph), p, steps, lifetimes_of(p, steps), &layout, options) {}

  /// Makes a memory plan for the schedule. Throws `bad_argument` likewise, and what `plan_memory` throws.
  template <data_flow_graph G>
  launch_plan(const G& graph, const problem& p, const schedule& plan, const launch_options& options = {})
      : launch_plan(detail::read_arguments(graph), p, plan.steps, lifetimes_of(p, plan), nullptr, options) {}

  /// The launches in the schedule's order; elsewhere, launch i is `launches()[i]`.
  [[nodiscard]] std::span<const launch> launches() const noexcept { return launches_; }
  /// The number of launches: the computes of the schedule, and its copies between device and host.
  [[nodiscard]] std::size_t size() const noexcept { return launches_.size(); }
  /// The inputs of a launch of this plan, in the graph's order.
  [[nodiscard]] std::span<const launch_argument> inputs(const launch& l) const noexcept {
    return {arguments_.data() + l.first_input, arguments_.data() + l.first_output};
  }
  /// The outputs of a launch of this plan, in the graph's order.
  [[nodiscard]] std::span<const launch_argument> outputs(const launch& l) const noexcept {
    return {arguments_.data() + l.first_output, arguments_.data() + l.end};
  }
  /// The arguments of all launches, one launch after the other.
  [[nodiscard]] std::span<const launch_argument> arguments() const noexcept { return arguments_; }
  /// The events that launch `i` waits for, on its stream.
  [[nodiscard]] std::span<const std::uint32_t> waits(std::size_t i) const noexcept { return waits_[i]; }
  /// The launch after which each event is recorded.
  [[nodiscard]] std::span<const std::uint32_t> events() const noexcept { return events_; }
  /// The number of events, each recorded once in a run.
  [[nodiscard]] std::uint32_t num_events() const noexcept { return static_cast<std::uint32_t>(events_.size()); }
  /// The number of streams, with those that have no launch.
  [[nodiscard]] std::uint32_t num_streams() const noexcept { return assignment_.streams; }
  /// The launches of a stream, in their order.
  [[nodiscard]] std::span<const std::uint32_t> of_stream(std::uint32_t s) const noexcept { return by_stream_[s]; }
  /// The numbers 0 … size() − 1: the order for one thread that issues all launches.
  [[nodiscard]] std::span<const std::uint32_t> in_order() const noexcept { return in_order_; }
  /// The allocations in the arena, without workspace, that launch `i` begins.
  [[nodiscard]] std::span<const std::uint32_t> begins(std::size_t i) const noexcept { return begins_[i]; }
  /// The allocation of launch `i`'s workspace; `lifetimes::no_allocation` if it has none.
  [[nodiscard]] std::uint32_t workspace(std::size_t i) const noexcept { return lives_.workspace[launches_[i].step]; }
  /// The allocations in the arena, without workspace, that are freed between launch `i` and the next one.
  [[nodiscard]] std::span<const std::uint32_t> frees(std::size_t i) const noexcept { return frees_[i]; }
  /// Bytes in use while each launch runs, as the checker counts them.
  [[nodiscard]] std::span<const std::int64_t> memory() const noexcept { return memory_; }
  /// The peak of the schedule in bytes, as the checker counts it.
  [[nodiscard]] std::int64_t peak_bytes() const noexcept { return peak_bytes_; }

  /// The schedule's allocations, also those of outputs in the caller's memory.
  [[nodiscard]] const lifetimes& lives() const noexcept { return lives_; }
  /// True when allocation `a` of `lives()` lies in the arena; false for an output in the caller's memory.
  [[nodiscard]] bool is_in_arena(std::uint32_t a) const noexcept {
    const allocation& x = lives_.allocations[a];
    return x.is_workspace() || place_[x.tensor] == place::arena;
  }
  /// Bytes in the arena, of each allocation of `lives()`; 0 for one that is not in the arena.
  [[nodiscard]] std::span<const std::int64_t> offsets() const noexcept { return device_.offsets; }
  /// The bytes that the arena needs.
  [[nodiscard]] std::int64_t arena_bytes() const noexcept { return device_.bytes; }
  /// The same. Throws `bad_argument` if the arena exceeds `budget` bytes, or if `budget` is negative.
  [[nodiscard]] std::int64_t arena_bytes_within(std::int64_t budget) const;
  /// A budget in bytes is a whole number.
  template <std::floating_point Number>
  std::int64_t arena_bytes_within(Number) const = delete;  // a budget is whole bytes
  /// The alignment in bytes of the arena's first byte and of all offsets.
  [[nodiscard]] std::int64_t alignment() const noexcept { return device_.alignment; }
  /// Bytes in the host's arena, of each copy of `lives().host`.
  [[nodiscard]] std::span<const std::int64_t> host_offsets() const noexcept { return host_.offsets; }
  /// The bytes that the host's arena needs; 0 if nothing is copied there.
  [[nodiscard]] std::int64_t host_arena_bytes() const noexcept { return host_.bytes; }
  /// The same. Throws `bad_argument` if the arena exceeds `budget` bytes, or if `budget` is negative.
  [[nodiscard]] std::int64_t host_arena_bytes_within(std::int64_t budget) const;
  /// A budget in bytes is a whole number.
  template <std::floating_point Number>
  std::int64_t host_arena_bytes_within(Number) const = delete;  // a budget is whole bytes
  /// The alignment in bytes of the first byte of the host's arena and of all offsets there.
  [[nodiscard]] std::int64_t host_alignment() const noexcept { return host_.alignment; }
  /// Simulated times of the launches, the makespan and the critical path.
  [[nodiscard]] const stream_assignment& assignment() const noexcept { return assignment_; }

  /// The number of operations of the graph.
  [[nodiscard]] std::size_t num_operations() const noexcept { return graph_.num_operations; }
  /// True when the graph says that the operation is not `deterministic`: it draws random numbers.
  [[nodiscard]] bool is_random(op_id o) const noexcept {
    return !graph_.random.empty() && graph_.random[index(o)] != 0;
  }
  /// The number of tensors of the graph.
  [[nodiscard]] std::size_t num_tensors() const noexcept { return tensor_bytes_.size(); }
  /// True if the caller must bind memory for the tensor: it is a bound or accumulated output, or it is always resident,
  /// and some launch reads it or it is a final output.
  [[nodiscard]] bool needs_binding(tensor_id t) const noexcept { return bound_[index(t)] != 0; }
  /// True when the tensor is always resident: it lies in the caller's memory, not in the arena.
  [[nodiscard]] bool is_resident(tensor_id t) const noexcept { return place_[index(t)] == place::resident; }
  /// True when the tensor is a final output in the caller's memory: `bind_output` binds it.
  [[nodiscard]] bool is_bound_output(tensor_id t) const noexcept {
    return place_[index(t)] == place::bound_output || is_accumulated(t);
  }
  /// True when the tensor is a final output in the caller's memory to which each training step adds.
  [[nodiscard]] bool is_accumulated(tensor_id t) const noexcept {
    return place_[index(t)] == place::accumulated_output;
  }
  /// The problem's size of the tensor; of an always resident tensor the graph's, 0 if the graph has no sizes.
  [[nodiscard]] std::int64_t bytes(tensor_id t) const noexcept { return tensor_bytes_[index(t)]; }
  /// True when `bytes(t)` is the size of the tensor; false for an always resident tensor of a graph without sizes.
  [[nodiscard]] bool knows_bytes(tensor_id t) const noexcept { return !graph_.bytes.empty() || !is_resident(t); }
  /// The allocation in the arena that holds a final output at the end; `launch_argument::bound` for all other tensors.
  [[nodiscard]] std::uint32_t output_allocation(tensor_id t) const noexcept { return output_allocation_[index(t)]; }

  /// Names an operation in messages: "operation 3 (matmul)".
  [[nodiscard]] std::string label(op_id o) const { return graph_.label(o); }
  /// Names a tensor in messages: "tensor 4 (x)".
  [[nodiscard]] std::string label(tensor_id t) const { return graph_.label(t); }
  /// Names a launch of this plan in messages: its operation, or "the copy of tensor 4 (x) to the host".
  [[nodiscard]] std::string label(const launch& l) const;
  /// The tensor that a launch of this plan copies. Precondition: the launch is a copy.
  [[nodiscard]] tensor_id copied(const launch& l) const noexcept { return arguments_[l.first_input].tensor; }

 private:
  /// Where a tensor lies.
  enum class place : std::uint8_t { arena, resident, bound_output, accumulated_output };
  /// Addresses in an arena.
  struct addresses_in_arena {
    std::vector<std::int64_t> offsets{};
    std::int64_t bytes = 0, alignment = 1;
  };

  /// `layout` may be null: then the plan plans its own memory.
  launch_plan(detail::graph_arguments&& graph, const problem& p, std::span<const step> steps, lifetimes&& lives,
              const arena_layout* layout, const launch_options& options);

  void read_tensors(const flat_graph& g);
  void place_output(tensor_id t, place where, const flat_graph& g);
  void require_sums_right(const flat_graph& g, std::span<const step> steps, bool may_be_read) const;
  void set_layout(const arena_layout& layout, std::span<const interval> intervals);
  void set_host_layout(const arena_layout& layout, std::span<const interval> intervals);
  template <class Name>
  static void require_apart(const arena_layout& layout, std::span<const std::int64_t> offsets,
                            std::span<const interval> intervals, const char* holders, const Name& name);
  [[nodiscard]] static std::int64_t bytes_within(std::int64_t bytes, std::int64_t budget, const std::string& whose,
                                                 const char* advice);
  [[nodiscard]] std::vector<std::int64_t> addresses() const;
  void make_launches(const flat_graph& g, std::span<const step> steps);
  void add_arguments(const flat_graph& g, std::span<const std::uint32_t> now, std::span<const std::uint32_t> inputs,
                     std::span<const std::uint32_t> outputs, launch& l);
  void add_argument(const flat_graph& g, std::span<const std::uint32_t> now, std::uint32_t t);

  detail::graph_arguments graph_;
  lifetimes lives_;
  addresses_in_arena device_, host_;
  std::int64_t peak_bytes_ = 0;
  stream_assignment assignment_;
  std::vector<launch> launches_;
  std::vector<launch_argument> arguments_;
  index_rows waits_, begins_, frees_;
  std::vector<std::uint32_t> events_, in_order_;
  std::vector<std::vector<std::uint32_t>> by_stream_;
  std::vector<std::int64_t> memory_, tensor_bytes_;
  std::vector<std::uint8_t> bound_;
  std::vector<place> place_;  // each tensor's place
  std::vector<std::uint32_t> output_allocation_;
};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/execute/impl/launch_plan.hpp"
#endif
