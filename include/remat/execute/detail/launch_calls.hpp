// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/index_rows.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/execute/launch_plan.hpp"

namespace remat::detail {

/// The memory of a launch plan's arguments: in one arena, and in what the caller has bound.
///
/// The plan must outlive it. Moving keeps all spans valid.
class launch_memory {
 public:
  /// Throws `bad_argument` if the arena is smaller than the plan's, or not aligned as the plan needs it.
  launch_memory(const launch_plan& plan, std::span<std::byte> arena);
  /// Takes over the spans of another object.
  launch_memory(launch_memory&&) noexcept = default;
  /// Takes over the spans of another object.
  launch_memory& operator=(launch_memory&&) noexcept = default;
  launch_memory(const launch_memory&) = delete;
  launch_memory& operator=(const launch_memory&) = delete;

  /// From now on, launches read always resident tensor `t` from the first bytes of `memory`. O(reads of `t`); allocates
  /// nothing. Throws `bad_argument` for a tensor that is not always resident, or memory that is too short.
  void bind(tensor_id t, std::span<const std::byte> memory);

  /// From now on, launches write and read output `t`, which the plan's options leave to the caller, in the first bytes
  /// of `memory`. Any alignment that the kernels can work with will do. O(writes and reads of `t`); allocates nothing.
  /// Throws `bad_argument` for any other tensor, and for memory that is too short or shares bytes with the arena. What
  /// was bound before stays bound then.
  void bind_output(tensor_id t, std::span<std::byte> memory);

  /// To be called before a run. Throws `bad_argument` if a tensor is not bound that must be, with the first such tensor
  /// and its bytes; and if the memory of an output shares bytes with that of another bound tensor.
  /// O(1) if nothing was bound since the last call; otherwise O(1 + outputs in the caller's memory) for each tensor
  /// bound since then, and O(bound tensors) for each such output. Two buffers can so be exchanged between runs.
  void require_bound() {
    if (missing_ != 0) refuse_unbound();
    if (!changed_.empty()) require_apart();
  }

  /// The number of times that a tensor was bound to other memory than before: addresses that were noted (in a captured
  /// graph, say) are still right if it is the same.
  [[nodiscard]] std::uint64_t rebindings() const noexcept { return rebindings_; }

  /// The bytes of a final output, valid after a run. Throws `bad_argument` for any other tensor.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t) const;

  /// The arena that the constructor was given.
  [[nodiscard]] std::span<std::byte> arena() const noexcept { return arena_; }
  /// The memory of each input of a launch, in the graph's order; empty for a tensor that must be bound and is not.
  [[nodiscard]] std::span<const std::span<const std::byte>> inputs(const launch& l) const noexcept {
    return {reads_.data() + l.inputs, reads_.data() + l.outputs};
  }
  /// The memory of each output of a launch, in the graph's order.
  [[nodiscard]] std::span<const std::span<std::byte>> outputs(const launch& l) const noexcept {
    return {writes_.data() + l.outputs, writes_.data() + l.end};
  }
  /// Of each output, as `kernel_call::adds`.
  [[nodiscard]] std::span<const std::uint8_t> adds(const launch& l) const noexcept {
    return {adds_.data() + l.outputs, adds_.data() + l.end};
  }
  /// The workspace of a launch; empty if it has none.
  [[nodiscard]] std::span<std::byte> workspace(const launch& l) const noexcept {
    return range(l.workspace_offset, l.workspace_bytes);
  }

 private:
  [[nodiscard]] std::span<std::byte> range(std::int64_t offset, std::int64_t length) const noexcept {
    return arena_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
  }
  void require_arena() const;
  void collect_uses();
  void collect_bindable();
  void require_tensor(tensor_id t) const;
  void require_length(tensor_id t, std::size_t bytes) const;
  void require_apart();
  void require_apart(tensor_id t, tensor_id other) const;
  [[nodiscard]] bool note_bound(tensor_id t, std::span<const std::byte> memory);
  [[noreturn]] void refuse_unbound() const;

  const launch_plan* plan_;
  std::span<std::byte> arena_;
  std::vector<std::span<const std::byte>> reads_;  // of each argument
  std::vector<std::span<std::byte>> writes_;       // of each argument
  std::vector<std::uint8_t> adds_;                 // of each argument
  index_rows uses_;                                // tensor in the caller's memory → its arguments
  std::vector<std::span<const std::byte>> bound_;  // of each tensor
  std::vector<std::uint8_t> unbound_;              // of each tensor: it must be bound and is not
  std::vector<tensor_id> bindable_, outputs_;      // tensors in the caller's memory; those that are outputs
  std::vector<tensor_id> changed_;                 // bound since the last `require_bound`, each once
  std::vector<std::uint8_t> is_changed_;           // of each tensor: it is in `changed_`
  std::size_t missing_ = 0;                        // tensors that are `unbound_`
  std::uint64_t rebindings_ = 0;
};

namespace launching {

[[noreturn]] void refuse_streams(std::size_t given, std::size_t needed);

/// The part of a launch that failed.
enum class launch_phase : std::uint8_t { wait, check, kernel, record };

/// Throws `execution_error` for launch `i`, with the exception that is being handled nested in it. `event` is the one
/// that the launch waited for.
[[noreturn]] void throw_execution_error(const launch_plan& plan, std::uint32_t i, launch_phase phase,
                                        std::uint32_t event);

}  // namespace launching

/// The kernel calls of a launch plan, one for each launch.
///
/// The plan must outlive it. Moving keeps the calls valid.
template <class Stream>
class launch_calls {
 public:
  /// `streams`: the value that kernels are given for each stream of the plan. Throws `bad_argument` if their number is
  /// not the plan's, and as `launch_memory`.
  launch_calls(const launch_plan& plan, std::span<std::byte> arena, std::span<const Stream> streams)
      : memory_(plan, arena) {
    if (streams.size() != plan.num_streams()) detail::launching::refuse_streams(streams.size(), plan.num_streams());
    calls_.reserve(plan.size());
    for (const launch& l : plan.launches()) {
      kernel_call<Stream> c;
      c.operation = l.operation;
      c.inputs = memory_.inputs(l);
      c.outputs = memory_.outputs(l);
      c.adds = memory_.adds(l);
      c.workspace = memory_.workspace(l);
      c.stream = streams[l.stream];
      calls_.push_back(c);
    }
  }

  /// As `launch_memory::bind`.
  void bind(tensor_id t, std::span<const std::byte> memory) { memory_.bind(t, memory); }
  /// As `launch_memory::bind_output`.
  void bind_output(tensor_id t, std::span<std::byte> memory) { memory_.bind_output(t, memory); }
  /// As `launch_memory::require_bound`.
  void require_bound() { memory_.require_bound(); }
  /// As `launch_memory::rebindings`.
  [[nodiscard]] std::uint64_t rebindings() const noexcept { return memory_.rebindings(); }
  /// As `launch_memory::output`.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t) const { return memory_.output(t); }
  /// The arena that the constructor was given.
  [[nodiscard]] std::span<std::byte> arena() const noexcept { return memory_.arena(); }

  /// The number of calls: one for each launch of the plan.
  [[nodiscard]] std::size_t size() const noexcept { return calls_.size(); }
  /// The call of a launch. An executor may set its stream and its seed.
  [[nodiscard]] kernel_call<Stream>& operator[](std::size_t launch) noexcept { return calls_[launch]; }
  /// The call of a launch.
  [[nodiscard]] const kernel_call<Stream>& operator[](std::size_t launch) const noexcept { return calls_[launch]; }

 private:
  launch_memory memory_;
  std::vector<kernel_call<Stream>> calls_;
};

/// Numbered streams and events, to which launches are issued.
///
/// Semantics: `wait(e, s)`: what is issued to stream `s` from now on begins after event `e` has happened. `record(e,
/// s)`: `e` happens when everything that has been issued to `s` has ended. If the device's calls return before the work
/// has ended (CUDA), one thread issues all launches; if they return when it has ended (the host), each stream has a
/// thread of its own.
template <class D>
concept launch_device = requires(D& d, std::uint32_t i) {
  d.wait(i, i);
  d.record(i, i);
};

/// Hooks of `issue` that do nothing. `before(i)` is called when launch `i` has waited for its events and is about to
/// run, `after(i)` after its kernel and before its event is recorded.
struct no_hooks {
  /// Does nothing.
  constexpr void before(std::uint32_t) const noexcept {}
  /// Does nothing.
  constexpr void after(std::uint32_t) const noexcept {}
};

/// Issues the launches numbered `which`, in that order: waits, kernel, event. Looks at `stop()` before each launch.
/// Returns the number of launches issued, which is less than `which.size()` only if `stop()` was true.
///
/// The loop of all executors. Throws `execution_error` if a kernel, the device or a hook throws: it names the operation
/// and nests what was thrown. The launches before it have been issued.
template <class Stream, launch_device Device, kernels_for<Stream> Kernels, class Stop, class Hooks = no_hooks>
std::size_t issue(const launch_plan& plan, launch_calls<Stream>& calls, std::span<const std::uint32_t> which,
                  std::uint64_t step_seed, Device& device, Kernels& kernels, Stop&& stop, Hooks&& hooks = {}) {
  using detail::launching::launch_phase;
  const launch* const launches = plan.launches().data();
  launch_phase phase = launch_phase::wait;
  std::size_t n = 0;
  std::uint32_t event = 0;
  try {
    for (; n < which.size(); ++n) {
      const std::uint32_t i = which[n];
      const launch& l = launches[i];
      phase = launch_phase::wait;
      for (const std::uint32_t e : plan.waits(i)) device.wait(event = e, l.stream);
      if (stop()) return n;
      phase = launch_phase::check;
      hooks.before(i);
      phase = launch_phase::kernel;
      kernel_call<Stream>& call = calls[i];
      call.seed = kernel_seed(step_seed, l.operation);
      kernels(static_cast<const kernel_call<Stream>&>(call));
      phase = launch_phase::check;
      hooks.after(i);
      if (l.event != launch::no_event) {
        phase = launch_phase::record;
        device.record(l.event, l.stream);
      }
    }
  } catch (...) {
    detail::launching::throw_execution_error(plan, which[n], phase, event);
  }
  return n;
}

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/execute/impl/launch_calls.hpp"
#endif
