// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <type_traits>

#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/execute/launch_plan.hpp"

namespace REMAT_NAMESPACE::detail {

/// True when two ranges share a byte.
[[nodiscard]] inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  const auto begin = [](std::span<const std::byte> x) { return reinterpret_cast<std::uintptr_t>(x.data()); };
  return !a.empty() && !b.empty() && begin(a) < begin(b) + b.size() && begin(b) < begin(a) + a.size();
}

/// The bytes of allocation `a` of the plan, whose arena begins with `arena`; none if `a` is `lifetimes::no_allocation`
/// or does not lie in the arena.
template <class Byte>
[[nodiscard]] std::span<Byte> bytes_of(const launch_plan& plan, std::span<Byte> arena, std::uint32_t a) {
  if (a == lifetimes::no_allocation || !plan.is_in_arena(a)) return {};
  return arena.subspan(static_cast<std::size_t>(plan.offsets()[a]),
                       static_cast<std::size_t>(plan.lives().allocations[a].bytes));
}

/// The memory of a launch plan's arguments: in the arenas of the device and of the host, and in what the caller has
/// bound.
///
/// The plan must outlive it. Moving keeps all spans valid.
class launch_memory {
 public:
  /// Throws `bad_argument` if an arena is smaller than the plan's, or not aligned as the plan needs it.
  launch_memory(const launch_plan& plan, std::span<std::byte> arena, std::span<std::byte> host_arena)
      : plan_(&plan),
        arena_(arena),
        host_arena_(host_arena),
        uses_(plan.num_tensors()),
        bound_(plan.num_tensors()),
        unbound_(plan.num_tensors(), 0),
        is_changed_(plan.num_tensors(), 0) {
    require_arena(arena, plan.arena_bytes(), plan.alignment(), "the arena");
    require_arena(host_arena, plan.host_arena_bytes(), plan.host_alignment(), "the host's arena");
    for (const launch_argument& x : plan.arguments()) {
      const bool bound = x.allocation == launch_argument::bound;
      if (bound) uses_[index(x.tensor)].push_back(static_cast<std::uint32_t>(adds_.size()));
      writes_.push_back(bound ? std::span<std::byte>() : range(x.offset, x.bytes));
      adds_.push_back(x.adds);
    }
    reads_.assign(writes_.begin(), writes_.end());
    collect_bindable();
  }
  launch_memory(launch_memory&&) noexcept = default;
  launch_memory& operator=(launch_memory&&) noexcept = default;
  launch_memory(const launch_memory&) = delete;
  launch_memory& operator=(const launch_memory&) = delete;

  /// Lets launches read always resident tensor `t` from the first bytes of `memory`. O(reads of `t`); allocates
  /// nothing. Throws `bad_argument` for a tensor that is not always resident, or memory that is too short.
  void bind(tensor_id t, std::span<const std::byte> memory) {
    require_tensor(t);
    if (plan_->is_bound_output(t))
      throw bad_argument(plan_->label(t) + " is an output, which operations write; bind it by bind_output");
    if (!plan_->is_resident(t))
      throw bad_argument(plan_->label(t) +
                         " is made by operations and lies in the arena; only parameters and inputs are bound");
    if (!plan_->needs_binding(t)) return;  // nobody reads it
    require_length(t, memory.size());
    note_bound(t, plan_->knows_bytes(t) ? memory.first(static_cast<std::size_t>(plan_->bytes(t))) : memory);
    for (const std::uint32_t i : uses_[index(t)]) reads_[i] = bound_[index(t)];
  }

  /// Lets launches write and read output `t`, which the plan's options leave to the caller, in the first bytes of
  /// `memory`, at any alignment that the kernels can work with. O(writes and reads of `t`); allocates nothing. Throws
  /// `bad_argument` for any other tensor, and for memory that is too short or shares bytes with the arena; then the
  /// memory that was bound before stays bound.
  void bind_output(tensor_id t, std::span<std::byte> memory) {
    require_tensor(t);
    if (plan_->is_resident(t))
      throw bad_argument(plan_->label(t) + " is always resident, and no operation writes it; bind it by bind");
    if (!plan_->is_bound_output(t))
      throw bad_argument(plan_->label(t) + " lies in the arena; name it in launch_options::bound_outputs or " +
                         "accumulated_outputs to bind it, which final outputs alone can be");
    require_length(t, memory.size());
    const std::span<std::byte> used = memory.first(static_cast<std::size_t>(plan_->bytes(t)));
    if (overlap(used, arena_) || overlap(used, host_arena_))
      throw bad_argument(plan_->label(t) + " is bound to memory that shares bytes with the arena" +
                         (overlap(used, arena_) ? "" : " on the host"));
    note_bound(t, used);
    for (const std::uint32_t i : uses_[index(t)]) reads_[i] = writes_[i] = used;
  }

  /// Checks the bindings before a run. Throws `bad_argument` if a tensor is not bound that must be, with the first such
  /// tensor and its bytes; and if the memory of an output shares bytes with that of another bound tensor. O(1) if
  /// nothing was bound since the last call; otherwise O(1 + outputs in the caller's memory) for each tensor bound since
  /// then, and O(bound tensors) for each such output. Two buffers can so be exchanged between runs.
  void require_bound() {
    if (missing_ != 0) refuse_unbound();
    for (const tensor_id t : changed_)
      for (const tensor_id other : plan_->is_bound_output(t) ? bindable_ : outputs_) require_apart(t, other);
    for (const tensor_id t : changed_) is_changed_[index(t)] = 0;
    changed_.clear();
  }

  /// The bytes of a final output, valid after a run. Throws `bad_argument` for any other tensor.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t) const {
    if (index(t) >= plan_->num_tensors())
      throw bad_argument("tensor " + std::to_string(index(t)) + " is no output of the step");
    if (const std::uint32_t a = plan_->output_allocation(t); a != launch_argument::bound)
      return bytes_of(*plan_, arena_, a);
    if (plan_->needs_binding(t)) return bound_[index(t)];
    throw bad_argument(plan_->label(t) + " is no output of the step");
  }

  [[nodiscard]] std::span<std::byte> arena() const noexcept { return arena_; }
  [[nodiscard]] std::span<std::byte> host_arena() const noexcept { return host_arena_; }

 protected:
  [[nodiscard]] std::span<std::byte> range(std::int64_t offset, std::int64_t length) const noexcept {
    return arena_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
  }

  /// The bytes of the copy on the host that launch `l`, a copy, writes or reads.
  [[nodiscard]] std::span<std::byte> on_host(const launch& l) const noexcept {
    return host_arena_.subspan(static_cast<std::size_t>(plan_->host_offsets()[l.host]),
                               static_cast<std::size_t>(plan_->lives().host[l.host].bytes));
  }

  const launch_plan* plan_;
  // The memory of each argument of the plan, empty for a tensor that must be bound and is not; `kernel_call::adds`.
  std::vector<std::span<const std::byte>> reads_;
  std::vector<std::span<std::byte>> writes_;
  std::vector<std::uint8_t> adds_;

 private:
  /// Lists the tensors in the caller's memory. All but those of 0 bytes are missing until they are bound.
  void collect_bindable() {
    for (std::size_t t = 0; t < plan_->num_tensors(); ++t) {
      const auto id = static_cast<tensor_id>(t);
      if (!plan_->needs_binding(id)) continue;
      bindable_.push_back(id);
      if (plan_->is_bound_output(id)) outputs_.push_back(id);
      if (plan_->knows_bytes(id) && plan_->bytes(id) == 0) continue;
      unbound_[t] = 1;
      ++missing_;
    }
    changed_.reserve(bindable_.size());
  }

  static void require_arena(std::span<const std::byte> memory, std::int64_t needed, std::int64_t alignment,
                            const char* name) {
    const auto bytes = static_cast<std::uint64_t>(needed);
    if (memory.size() < bytes)
      throw bad_argument(std::string(name) + " has " + count_of(memory.size(), "byte") + "; the memory plan needs " +
                         count_of(bytes, "byte"));
    if (bytes != 0 && reinterpret_cast<std::uintptr_t>(memory.data()) % static_cast<std::uint64_t>(alignment) != 0)
      throw bad_argument(std::string(name) + " is not aligned to " + std::to_string(alignment) +
                         " bytes, as the memory plan needs it");
  }
  void require_tensor(tensor_id t) const {
    if (index(t) >= plan_->num_tensors())
      throw bad_argument("there is no tensor " + std::to_string(index(t)) + "; there are " +
                         std::to_string(plan_->num_tensors()));
  }
  void require_length(tensor_id t, std::size_t bytes) const {
    if (bytes < static_cast<std::uint64_t>(plan_->bytes(t)))
      throw bad_argument(plan_->label(t) + " is bound to " + count_of(bytes, "byte") + "; it has " +
                         count_of(plan_->bytes(t), "byte"));
  }
  void require_apart(tensor_id t, tensor_id other) const {
    if (t == other || !overlap(bound_[index(t)], bound_[index(other)])) return;
    const tensor_id output = plan_->is_bound_output(t) ? t : other;
    throw bad_argument(plan_->label(output) + " is bound to memory that shares bytes with that of " +
                       plan_->label(output == t ? other : t) + "; an output needs memory of its own");
  }
  [[noreturn]] void refuse_unbound() const {
    const auto t = static_cast<tensor_id>(std::find(unbound_.begin(), unbound_.end(), 1) - unbound_.begin());
    throw bad_argument(plan_->label(t) + " is not bound to memory; it has " + std::to_string(plan_->bytes(t)) +
                       " bytes" + (missing_ > 1 ? " (" + std::to_string(missing_ - 1) + " more are not bound)" : ""));
  }

  void note_bound(tensor_id t, std::span<const std::byte> memory) {
    bound_[index(t)] = memory;
    missing_ -= unbound_[index(t)];
    unbound_[index(t)] = 0;
    if (is_changed_[index(t)] != 0 || outputs_.empty()) return;
    is_changed_[index(t)] = 1;
    changed_.push_back(t);
  }

  std::span<std::byte> arena_, host_arena_;
  std::vector<std::vector<std::uint32_t>> uses_;   // tensor in the caller's memory → its arguments
  std::vector<std::span<const std::byte>> bound_;  // each tensor's bound memory
  std::vector<std::uint8_t> unbound_;              // whether each tensor must be bound and is not
  std::vector<tensor_id> bindable_, outputs_;      // tensors in the caller's memory; those that are outputs
  std::vector<tensor_id> changed_;                 // bound since the last `require_bound`, each once
  std::vector<std::uint8_t> is_changed_;           // whether each tensor is in `changed_`
  std::size_t missing_ = 0;                        // tensors that are `unbound_`
};

/// The kernel calls of a launch plan, one for each launch, and their memory.
///
/// The plan must outlive it. Moving keeps the calls valid.
template <class Stream>
class launch_calls : public launch_memory {
 public:
  /// `streams`: the value that kernels are given for each stream of the plan. Throws `bad_argument` if their number is
  /// not the plan's, and as `launch_memory`.
  launch_calls(const launch_plan& plan, std::span<std::byte> arena, std::span<const Stream> streams,
               std::span<std::byte> host_arena = {})
      : launch_memory(plan, arena, host_arena) {
    if (streams.size() != plan.num_streams())
      throw bad_argument(count_of(streams.size(), "stream") + (streams.size() == 1 ? " is" : " are") +
                         " given; the plan is for " + std::to_string(plan.num_streams()));
    calls_.reserve(plan.size());
    for (const launch& l : plan.launches()) {
      kernel_call<Stream> c;
      c.operation = l.operation;
      c.inputs = {reads_.data() + l.first_input, reads_.data() + l.first_output};
      c.outputs = {writes_.data() + l.first_output, writes_.data() + l.end};
      c.adds = {adds_.data() + l.first_output, adds_.data() + l.end};
      c.workspace = range(l.workspace_offset, l.workspace_bytes);
      c.stream = streams[l.stream];
      calls_.push_back(c);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return calls_.size(); }
  /// The call of a launch. An executor may set its stream and its seed.
  [[nodiscard]] kernel_call<Stream>& operator[](std::size_t launch) noexcept { return calls_[launch]; }
  [[nodiscard]] const kernel_call<Stream>& operator[](std::size_t launch) const noexcept { return calls_[launch]; }
  /// The arguments of launch `i`, which is a copy.
  [[nodiscard]] copy_call<Stream> copy(std::size_t i) const noexcept {
    const launch& l = plan_->launches()[i];
    const bool out = l.kind() == step_kind::offload;
    return {.kind = l.kind(),
            .tensor = plan_->copied(l),
            .from = out ? reads_[l.first_input] : std::span<const std::byte>(on_host(l)),
            .to = out ? on_host(l) : writes_[l.first_output],
            .stream = calls_[i].stream};
  }
  /// Calls `visit(bytes)` for each output in the caller's memory of which the launch must write all bytes.
  template <class Visit>
  void for_each_fresh_output(std::size_t launch, Visit&& visit) const {
    const auto outputs = plan_->outputs(plan_->launches()[launch]);
    for (std::size_t x = 0; x < outputs.size(); ++x)
      if (outputs[x].allocation == launch_argument::bound && outputs[x].adds == 0) visit(calls_[launch].outputs[x]);
  }

 private:
  std::vector<kernel_call<Stream>> calls_;
};

/// Numbered streams and events, to which launches are issued.
///
/// Semantics: `wait(e, s)`: the work that is issued to stream `s` from now on begins after event `e` has happened.
/// `record(e, s)`: `e` happens when all work that has been issued to `s` has ended. If the device's calls return before
/// the work has ended (CUDA), one thread issues all launches; if they return when it has ended (the host), each stream
/// has a thread of its own.
template <class D>
concept launch_device = requires(D& d, std::uint32_t i) {
  d.wait(i, i);
  d.record(i, i);
};

/// Hooks of `issue` that do nothing. `before(i)` is called when launch `i` has waited for its events and is about to
/// run, `after(i)` after its kernel and before its event is recorded.
struct no_hooks {
  constexpr void before(std::uint32_t) const noexcept {}
  constexpr void after(std::uint32_t) const noexcept {}
};

/// Throws `execution_error` for a launch, with the exception that is being handled nested in it.
[[noreturn]] inline void throw_execution_error(const launch_plan& plan, const launch& l, const std::string& failure) {
  const std::string text = plan.label(l) + " in step " + std::to_string(l.step) + ": " + failure + " failed";
  const auto failed = [&](const std::string& words) {
    return l.is_copy() ? execution_error(plan.copied(l), l.step, words) : execution_error(l.operation, l.step, words);
  };
  try {
    throw;
  } catch (const std::exception& e) {
    std::throw_with_nested(failed(text + ": " + e.what()));
  } catch (...) {
    std::throw_with_nested(failed(text));
  }
}

/// Makes a copy: by the kernels, if they make copies. On the CPU, other kernels need not.
template <class Kernels, class Stream>
void make_copy(Kernels& kernels, const copy_call<Stream>& call) {
  if constexpr (copies_for<Kernels, Stream>) {
    static_cast<std::unwrap_reference_t<Kernels>&>(kernels).copy(call);
  } else {
    static_assert(std::is_same_v<Stream, host_stream>, "only on the CPU is a copy one of memory that is at hand");
    if (!call.from.empty()) std::memcpy(call.to.data(), call.from.data(), call.from.size());
  }
}

/// `issue`, for plans with or without copies: those without have no test for them in the loop.
template <bool Copies, class Stream, class Device, class Kernels, class Stop, class Hooks>
std::size_t issue_launches(const launch_plan& plan, launch_calls<Stream>& calls, std::span<const std::uint32_t> which,
                           std::uint64_t step_seed, Device& device, Kernels& kernels, Stop& stop, Hooks& hooks) {
  const launch* const launches = plan.launches().data();
  const char* now = nullptr;  // null: waits for `event`
  std::size_t n = 0;
  std::uint32_t event = 0;
  const auto copies = [&](std::uint32_t i) {
    if constexpr (!Copies) return false;
    if (!launches[i].is_copy()) return false;
    now = "copying";
    make_copy(kernels, calls.copy(i));
    return true;
  };
  try {
    for (; n < which.size(); ++n) {
      const std::uint32_t i = which[n];
      const launch& l = launches[i];
      now = nullptr;
      for (const std::uint32_t e : plan.waits(i)) device.wait(event = e, l.stream);
      if (stop()) return n;
      now = "a check of it";
      hooks.before(i);
      if (!copies(i)) {
        now = "its kernel";
        kernel_call<Stream>& call = calls[i];
        call.seed = kernel_seed(step_seed, l.operation);
        kernels(static_cast<const kernel_call<Stream>&>(call));
      }
      now = "a check of it";
      hooks.after(i);
      if (l.event != launch::no_event) {
        now = "recording its event";
        device.record(l.event, l.stream);
      }
    }
  } catch (...) {
    throw_execution_error(plan, launches[which[n]],
                          now != nullptr ? now : "waiting for " + plan.label(launches[plan.events()[event]]));
  }
  return n;
}

/// Issues the launches numbered `which`, in that order: waits, kernel or copy, event. Looks at `stop()` before each
/// launch. Returns the number of launches issued, which is less than `which.size()` only if `stop()` was true.
///
/// The loop of all executors. Throws `execution_error` if a kernel, a copy, the device or a hook throws: it names the
/// operation or the tensor, and nests what was thrown. The launches before it have been issued.
template <class Stream, launch_device Device, kernels_for<Stream> Kernels, class Stop, class Hooks = no_hooks>
std::size_t issue(const launch_plan& plan, launch_calls<Stream>& calls, std::span<const std::uint32_t> which,
                  std::uint64_t step_seed, Device& device, Kernels& kernels, Stop&& stop, Hooks&& hooks = {}) {
  return plan.lives().host.empty() ? issue_launches<false>(plan, calls, which, step_seed, device, kernels, stop, hooks)
                                   : issue_launches<true>(plan, calls, which, step_seed, device, kernels, stop, hooks);
}

/// Holds an executor for one call, from construction to destruction. A second call at the same time is refused, not
/// delayed: two training steps would write to one arena. Costs one atomic exchange.
class exclusive_use {
 public:
  /// Throws `bad_argument` if another call holds the executor.
  explicit exclusive_use(std::atomic<bool>& in_use) : in_use_(in_use) {
    if (in_use_.exchange(true, std::memory_order_acquire))
      throw bad_argument(
          "the executor is running a training step already; give each thread that runs steps an executor of its own");
  }
  exclusive_use(const exclusive_use&) = delete;
  exclusive_use& operator=(const exclusive_use&) = delete;
  ~exclusive_use() { in_use_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& in_use_;
};

}  // namespace REMAT_NAMESPACE::detail
