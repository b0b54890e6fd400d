// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/interval.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/streams.hpp"

namespace remat {

/// Where a schedule's allocations lie: their addresses, and the arena's size.
struct arena_layout {
  std::span<const std::int64_t> offsets{};  ///< of each allocation of `lifetimes`
  std::int64_t arena_bytes = 0;
  std::int64_t alignment = 1;  ///< of the arena's first byte and of all offsets; a power of two

  arena_layout() = default;
  arena_layout(std::span<const std::int64_t> where, std::int64_t bytes, std::int64_t aligned_to)
      : offsets(where), arena_bytes(bytes), alignment(aligned_to) {}
  /// Refers to `plan`.
  arena_layout(const memory_plan& plan)  // NOLINT: implicit, as it is the same in other words
      : offsets(plan.offsets), arena_bytes(plan.arena_bytes), alignment(plan.alignment) {}
};

struct launch_options {
  std::uint32_t streams = 1;
  memory_plan_options memory{};
};

/// One tensor that a launch reads or writes.
struct launch_argument {
  static constexpr std::uint32_t bound = lifetimes::no_allocation;

  tensor_id tensor{};
  std::uint32_t allocation = bound;  ///< of `launch_plan::lives()`; bound: a resident tensor, in the caller's memory
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< in the arena
  std::uint8_t adds = 0;    ///< of an output: other operations' contributions are there already
};

/// One compute of the schedule, ready to be issued. Row numbers are those of the `launch_plan`.
struct launch {
  static constexpr std::uint32_t no_event = 0xffffffff;

  op_id operation{};
  std::uint32_t step = 0;  ///< of the schedule
  std::uint32_t stream = 0;
  std::uint32_t event = no_event;                  ///< recorded behind it, because another stream waits for it
  std::uint32_t inputs = 0, outputs = 0, end = 0;  ///< its arguments: inputs [inputs, outputs), outputs [outputs, end)
  std::int64_t workspace_offset = 0, workspace_bytes = 0;
};

/// All that an executor needs of a schedule, made once: launches in the schedule's order with their streams, events,
/// arguments in the graph's order and addresses.
///
/// Neither the graph nor the problem need outlive it. O(steps + their reads and writes) memory; time as
/// `assign_streams`.
class launch_plan {
 public:
  /// With addresses that are given, such as those of a `memory_plan`.
  /// Throws `bad_argument` where the graph is not the problem's, the schedule is not legal or over the problem's
  /// budget, or allocations that live at the same time share bytes, lie outside of the arena or are not aligned.
  template <data_flow_graph G>
  launch_plan(const G& graph, const problem& p, std::span<const step> steps, const arena_layout& layout,
              std::uint32_t streams = 1)
      : launch_plan(graph, p, steps, lifetimes_of(p, steps), layout, streams) {}

  /// With a memory plan made for it. Throws `bad_argument` likewise.
  template <data_flow_graph G>
  launch_plan(const G& graph, const problem& p, const schedule& plan, const launch_options& options = {})
      : launch_plan(graph, p, plan.steps, lifetimes_of(p, plan), options) {}

  [[nodiscard]] std::span<const launch> launches() const noexcept { return launches_; }
  [[nodiscard]] std::size_t size() const noexcept { return launches_.size(); }
  [[nodiscard]] std::span<const launch_argument> inputs(const launch& l) const noexcept {
    return {arguments_.data() + l.inputs, arguments_.data() + l.outputs};
  }
  [[nodiscard]] std::span<const launch_argument> outputs(const launch& l) const noexcept {
    return {arguments_.data() + l.outputs, arguments_.data() + l.end};
  }
  /// Of all launches, behind one another.
  [[nodiscard]] std::span<const launch_argument> arguments() const noexcept { return arguments_; }
  /// The events that launch `i` waits for, on its stream.
  [[nodiscard]] std::span<const std::uint32_t> waits(std::size_t i) const noexcept { return waits_[i]; }
  /// event → the launch behind which it is recorded.
  [[nodiscard]] std::span<const std::uint32_t> events() const noexcept { return events_; }
  [[nodiscard]] std::uint32_t num_events() const noexcept { return static_cast<std::uint32_t>(events_.size()); }
  [[nodiscard]] std::uint32_t num_streams() const noexcept { return assignment_.streams; }
  /// The launches of a stream, in their order.
  [[nodiscard]] std::span<const std::uint32_t> of_stream(std::uint32_t s) const noexcept { return by_stream_[s]; }
  /// Launches from 0 to the last: the order for one thread that issues all of them.
  [[nodiscard]] std::span<const std::uint32_t> in_order() const noexcept { return in_order_; }
  /// The allocations, without workspace, that launch `i` begins, and those that are freed behind it and before the
  /// next.
  [[nodiscard]] std::span<const std::uint32_t> begins(std::size_t i) const noexcept { return begins_[i]; }
  [[nodiscard]] std::span<const std::uint32_t> frees(std::size_t i) const noexcept { return frees_[i]; }
  /// Bytes in use while each launch runs, as the checker counts them.
  [[nodiscard]] std::span<const std::int64_t> memory() const noexcept { return memory_; }
  [[nodiscard]] std::int64_t peak_bytes() const noexcept { return peak_bytes_; }

  [[nodiscard]] const lifetimes& lives() const noexcept { return lives_; }
  [[nodiscard]] std::span<const std::int64_t> offsets() const noexcept { return offsets_; }
  [[nodiscard]] std::int64_t arena_bytes() const noexcept { return arena_bytes_; }
  [[nodiscard]] std::int64_t alignment() const noexcept { return alignment_; }
  /// Simulated times of the launches, the makespan and the critical path.
  [[nodiscard]] const stream_assignment& assignment() const noexcept { return assignment_; }

  [[nodiscard]] std::size_t num_operations() const noexcept { return num_operations_; }
  [[nodiscard]] std::size_t num_tensors() const noexcept { return tensor_bytes_.size(); }
  /// The caller must bind memory for it: it is always resident, and some operation reads it or the step returns it.
  [[nodiscard]] bool needs_binding(tensor_id t) const noexcept { return bound_[index(t)] != 0; }
  [[nodiscard]] bool is_resident(tensor_id t) const noexcept { return resident_[index(t)] != 0; }
  /// As the problem has them; of resident tensors, as the graph has them, 0 where it has no sizes.
  [[nodiscard]] std::int64_t bytes(tensor_id t) const noexcept { return tensor_bytes_[index(t)]; }
  [[nodiscard]] bool knows_bytes(tensor_id t) const noexcept { return sized_ || !is_resident(t); }
  /// The allocation that holds a final output at the end; `launch_argument::bound` for all other tensors.
  [[nodiscard]] std::uint32_t output_allocation(tensor_id t) const noexcept { return output_allocation_[index(t)]; }

  /// "operation 3 (matmul)", "tensor 4 (x)": for messages.
  [[nodiscard]] std::string label(op_id o) const { return labelled("operation ", index(o), operation_names_); }
  [[nodiscard]] std::string label(tensor_id t) const { return labelled("tensor ", index(t), tensor_names_); }

 private:
  template <class G>
  launch_plan(const G& graph, const problem& p, std::span<const step> steps, lifetimes lives,
              const launch_options& options)
      : launch_plan(graph, p, steps, lives, plan_memory(lives, options.memory), options.streams) {}

  template <class G>
  launch_plan(const G& graph, const problem& p, std::span<const step> steps, lifetimes lives,
              const arena_layout& layout, std::uint32_t streams)
      : lives_(std::move(lives)),
        offsets_(layout.offsets.begin(), layout.offsets.end()),
        arena_bytes_(layout.arena_bytes),
        alignment_(layout.alignment) {
    check_layout();
    assignment_ = assign_streams(p, lives_, steps, {.streams = streams, .offsets = offsets_});
    read_tensors(graph, p);
    make_launches(graph, p, steps);
    measure(p, steps);
  }

  static std::string labelled(const char* what, std::size_t i, const std::vector<std::string>& names) {
    std::string text = what + std::to_string(i);
    if (i < names.size() && !names[i].empty()) text += " (" + names[i] + ")";
    return text;
  }

  void check_layout() const {
    if (alignment_ < 1 || (alignment_ & (alignment_ - 1)) != 0)
      throw bad_argument("the alignment is " + std::to_string(alignment_) + "; it must be a power of two");
    if (offsets_.size() != lives_.allocations.size())
      throw bad_argument("there are " + std::to_string(offsets_.size()) + " offsets; the schedule has " +
                         std::to_string(lives_.allocations.size()) + " allocations");
    const auto name = [&](std::size_t a) {
      const allocation& x = lives_.allocations[a];
      return (x.is_workspace() ? "the workspace of operation " + std::to_string(x.operation)
                               : "tensor " + std::to_string(x.tensor)) +
             " from step " + std::to_string(x.first);
    };
    const memory_check_report report = check_memory(intervals_of(lives_), offsets_, arena_bytes_, alignment_);
    if (report.valid()) return;
    if (report.what == memory_violation::overlap)
      throw bad_argument(name(report.at) + " shares bytes with " + name(report.other));
    if (report.what == memory_violation::misaligned || report.what == memory_violation::out_of_arena)
      throw bad_argument(name(report.at) + " has offset " + std::to_string(offsets_[report.at]) +
                         "; it must be a multiple of " + std::to_string(alignment_) + " with its " +
                         std::to_string(lives_.allocations[report.at].bytes) + " bytes in the arena of " +
                         std::to_string(arena_bytes_));
    throw bad_argument("the memory plan does not fit the schedule: " + report.message());
  }

  template <class G>
  void read_tensors(const G& graph, const problem& p) {
    const flat_graph& s = p.graph();
    num_operations_ = s.num_operations;
    if (static_cast<std::size_t>(graph.num_operations()) != s.num_operations ||
        static_cast<std::size_t>(graph.num_tensors()) != s.num_tensors)
      throw bad_argument("the graph has " + std::to_string(graph.num_operations()) + " operations and " +
                         std::to_string(graph.num_tensors()) + " tensors; the problem is of one with " +
                         std::to_string(s.num_operations) + " and " + std::to_string(s.num_tensors));
    resident_ = s.always_resident;
    tensor_bytes_ = s.bytes;
    sized_ = sized_graph<G>;
    if constexpr (sized_graph<G>)
      for (std::size_t t = 0; t < s.num_tensors; ++t)
        if (s.always_resident[t]) tensor_bytes_[t] = static_cast<std::int64_t>(graph.bytes(static_cast<tensor_id>(t)));
    if constexpr (named_graph<G>) {
      for (std::size_t o = 0; o < s.num_operations; ++o)
        operation_names_.emplace_back(std::string_view(graph.name(static_cast<op_id>(o))));
      for (std::size_t t = 0; t < s.num_tensors; ++t)
        tensor_names_.emplace_back(std::string_view(graph.name(static_cast<tensor_id>(t))));
    }
    bound_.assign(s.num_tensors, 0);
    output_allocation_.assign(s.num_tensors, launch_argument::bound);
    for (const tensor_id t : graph.final_outputs())
      if (s.always_resident[index(t)]) bound_[index(t)] = 1;
    for (std::uint32_t a = 0; a < lives_.allocations.size(); ++a) {
      const allocation& x = lives_.allocations[a];
      if (!x.is_workspace() && x.last == lives_.num_steps() && s.final_output[x.tensor])
        output_allocation_[x.tensor] = a;
    }
  }

  template <class G>
  void make_launches(const G& graph, const problem& p, std::span<const step> steps) {
    const flat_graph& s = p.graph();
    constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max() - 1;
    std::vector<std::uint32_t> now(s.num_tensors, launch_argument::bound);  // tensor → its allocation
    std::vector<std::uint32_t> event_of(assignment_.size(), launch::no_event);
    by_stream_.resize(assignment_.streams);
    launches_.reserve(assignment_.size());
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      if (steps[i].is_free()) {
        std::uint32_t& a = now[index(steps[i].tensor())];
        frees_.values.push_back(a);
        a = launch_argument::bound;
        continue;
      }
      const auto v = static_cast<std::uint32_t>(launches_.size());
      if (v != 0) frees_.end_row();
      const op_id o = steps[i].operation();
      launch l;
      l.operation = o;
      l.step = i;
      l.stream = assignment_.stream[v];
      if (assignment_.awaited[v]) {
        l.event = event_of[v] = num_events();
        events_.push_back(v);
      }
      for (const std::uint32_t w : assignment_.waits[v]) waits_.values.push_back(event_of[w]);
      waits_.end_row();
      for (const std::uint32_t a : lives_.outputs[i]) now[lives_.allocations[a].tensor] = a;
      l.inputs = static_cast<std::uint32_t>(arguments_.size());
      for (const tensor_id t : graph.inputs(o)) add_argument(s, now, t);
      l.outputs = static_cast<std::uint32_t>(arguments_.size());
      for (const tensor_id t : graph.outputs(o)) {
        add_argument(s, now, t);
        launch_argument& x = arguments_.back();
        const bool fresh = lives_.allocations[x.allocation].first == i;
        x.adds = !fresh && s.producers[index(t)].size() > 1;
        if (fresh) begins_.values.push_back(x.allocation);
      }
      begins_.end_row();
      if (arguments_.size() > most) throw bad_argument("the schedule's launches have 2^32 − 1 or more arguments");
      l.end = static_cast<std::uint32_t>(arguments_.size());
      if (const std::uint32_t a = lives_.workspace[i]; a != lifetimes::no_allocation) {
        l.workspace_offset = offsets_[a];
        l.workspace_bytes = lives_.allocations[a].bytes;
      }
      by_stream_[l.stream].push_back(v);
      in_order_.push_back(v);
      launches_.push_back(l);
    }
    if (!launches_.empty()) frees_.end_row();
  }

  void add_argument(const flat_graph& s, const std::vector<std::uint32_t>& now, tensor_id t) {
    launch_argument x;
    x.tensor = t;
    x.allocation = now[index(t)];
    x.bytes = tensor_bytes_[index(t)];
    if (s.always_resident[index(t)])
      bound_[index(t)] = 1;
    else if (x.allocation == launch_argument::bound)
      throw bad_argument("the graph is not the problem's: " + label(t) + " is not there where the graph reads it");
    else
      x.offset = offsets_[x.allocation];
    arguments_.push_back(x);
  }

  void measure(const problem& p, std::span<const step> steps) {
    const check_report report = check(p, steps, [&](std::size_t i, std::int64_t bytes) {
      if (steps[i].is_compute()) memory_.push_back(bytes);
    });
    peak_bytes_ = report.peak_bytes;
  }

  lifetimes lives_;
  std::vector<std::int64_t> offsets_;
  std::int64_t arena_bytes_ = 0, alignment_ = 1, peak_bytes_ = 0;
  stream_assignment assignment_;
  std::vector<launch> launches_;
  std::vector<launch_argument> arguments_;
  index_rows waits_, begins_, frees_;
  std::vector<std::uint32_t> events_, in_order_;
  std::vector<std::vector<std::uint32_t>> by_stream_;
  std::vector<std::int64_t> memory_, tensor_bytes_;
  std::vector<std::uint8_t> bound_, resident_;
  bool sized_ = false;
  std::vector<std::uint32_t> output_allocation_;
  std::size_t num_operations_ = 0;
  std::vector<std::string> operation_names_, tensor_names_;
};

/// The calls of a launch plan's kernels: its arguments as memory, in one arena and in what the caller bound.
///
/// The plan must outlive it. Moving keeps the calls valid; copying would not.
template <class Stream>
class launch_calls {
 public:
  /// `streams`: what kernels are given, for each stream of the plan. Throws `bad_argument` where the arena is smaller
  /// than the plan's, or not aligned as the plan wants it.
  launch_calls(const launch_plan& plan, std::span<std::byte> arena, std::span<const Stream> streams)
      : plan_(&plan), arena_(arena) {
    const auto bytes = static_cast<std::uint64_t>(plan.arena_bytes());
    if (arena.size() < bytes)
      throw bad_argument("the arena has " + std::to_string(arena.size()) + " bytes; the memory plan needs " +
                         std::to_string(bytes));
    if (bytes != 0 &&
        reinterpret_cast<std::uintptr_t>(arena.data()) % static_cast<std::uint64_t>(plan.alignment()) != 0)
      throw bad_argument("the arena is not aligned to " + std::to_string(plan.alignment()) +
                         " bytes, as the memory plan needs it");
    if (streams.size() != plan.num_streams())
      throw bad_argument(std::to_string(streams.size()) + " streams are given; the plan is for " +
                         std::to_string(plan.num_streams()));
    const auto range = [&](std::int64_t offset, std::int64_t length) {
      return arena_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
    };
    const std::span<const launch_argument> arguments = plan.arguments();
    reads_.resize(arguments.size());
    writes_.resize(arguments.size());
    adds_.resize(arguments.size());
    uses_.begin.assign(plan.num_tensors() + 1, 0);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const launch_argument& x = arguments[i];
      adds_[i] = x.adds;
      if (x.allocation == launch_argument::bound)
        ++uses_.begin[index(x.tensor) + 1];
      else
        reads_[i] = writes_[i] = range(x.offset, x.bytes);
    }
    for (std::size_t t = 0; t < plan.num_tensors(); ++t) uses_.begin[t + 1] += uses_.begin[t];
    uses_.values.resize(uses_.begin.back());
    std::vector<std::uint32_t> next(uses_.begin.begin(), uses_.begin.end() - 1);
    for (std::size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].allocation == launch_argument::bound)
        uses_.values[next[index(arguments[i].tensor)]++] = static_cast<std::uint32_t>(i);

    bound_.resize(plan.num_tensors());
    unbound_.assign(plan.num_tensors(), 0);
    for (std::size_t t = 0; t < plan.num_tensors(); ++t) {
      const auto id = static_cast<tensor_id>(t);
      if (!plan.needs_binding(id) || (plan.knows_bytes(id) && plan.bytes(id) == 0)) continue;
      unbound_[t] = 1;
      ++missing_;
    }
    calls_.reserve(plan.size());
    for (const launch& l : plan.launches()) {
      kernel_call<Stream> c;
      c.operation = l.operation;
      c.inputs = {reads_.data() + l.inputs, reads_.data() + l.outputs};
      c.outputs = {writes_.data() + l.outputs, writes_.data() + l.end};
      c.adds = {adds_.data() + l.outputs, adds_.data() + l.end};
      c.workspace = range(l.workspace_offset, l.workspace_bytes);
      c.stream = streams[l.stream];
      calls_.push_back(c);
    }
  }

  launch_calls(launch_calls&&) noexcept = default;
  launch_calls& operator=(launch_calls&&) noexcept = default;
  launch_calls(const launch_calls&) = delete;
  launch_calls& operator=(const launch_calls&) = delete;

  /// From now on, kernels read resident tensor `t` from the first of its bytes in `memory`. O(reads of `t`).
  /// Throws `bad_argument` for a tensor that is not always resident, or memory that is too short.
  void bind(tensor_id t, std::span<const std::byte> memory) {
    if (index(t) >= plan_->num_tensors())
      throw bad_argument("there is no tensor " + std::to_string(index(t)) + "; there are " +
                         std::to_string(plan_->num_tensors()));
    if (!plan_->needs_binding(t)) {
      if (plan_->is_resident(t)) return;  // nobody reads it
      throw bad_argument(plan_->label(t) +
                         " is made by operations and has its place in the arena; parameters and "
                         "inputs are bound");
    }
    const auto bytes = static_cast<std::uint64_t>(plan_->bytes(t));
    if (memory.size() < bytes)
      throw bad_argument(plan_->label(t) + " is bound to " + std::to_string(memory.size()) + " bytes; it has " +
                         std::to_string(bytes));
    bound_[index(t)] = plan_->knows_bytes(t) ? memory.first(static_cast<std::size_t>(bytes)) : memory;
    for (const std::uint32_t i : uses_[index(t)]) reads_[i] = bound_[index(t)];
    missing_ -= unbound_[index(t)];
    unbound_[index(t)] = 0;
  }

  /// Throws `bad_argument` that names the first tensor that has to be bound and is not, with its bytes.
  void require_bound() const {
    if (missing_ == 0) return;
    const auto t = static_cast<tensor_id>(std::find(unbound_.begin(), unbound_.end(), 1) - unbound_.begin());
    throw bad_argument(plan_->label(t) + " is not bound to memory; it has " + std::to_string(plan_->bytes(t)) +
                       " bytes" + (missing_ > 1 ? " (" + std::to_string(missing_ - 1) + " more are not bound)" : ""));
  }

  [[nodiscard]] std::size_t size() const noexcept { return calls_.size(); }
  [[nodiscard]] kernel_call<Stream>& operator[](std::size_t launch) noexcept { return calls_[launch]; }
  [[nodiscard]] const kernel_call<Stream>& operator[](std::size_t launch) const noexcept { return calls_[launch]; }
  [[nodiscard]] std::span<std::byte> arena() const noexcept { return arena_; }

  /// The bytes of a final output, for after the run. Throws `bad_argument` for any other tensor.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t) const {
    if (index(t) < plan_->num_tensors()) {
      if (const std::uint32_t a = plan_->output_allocation(t); a != launch_argument::bound)
        return arena_.subspan(static_cast<std::size_t>(plan_->offsets()[a]), static_cast<std::size_t>(plan_->bytes(t)));
      if (plan_->is_resident(t) && plan_->needs_binding(t)) return bound_[index(t)];
    }
    throw bad_argument((index(t) < plan_->num_tensors() ? plan_->label(t) : "tensor " + std::to_string(index(t))) +
                       " is no output of the step");
  }

 private:
  const launch_plan* plan_;
  std::span<std::byte> arena_;
  std::vector<std::span<const std::byte>> reads_;
  std::vector<std::span<std::byte>> writes_;
  std::vector<std::uint8_t> adds_, unbound_;
  index_rows uses_;  // resident tensor → the arguments that are it
  std::vector<std::span<const std::byte>> bound_;
  std::size_t missing_ = 0;
  std::vector<kernel_call<Stream>> calls_;
};

/// How a run of a training step ended. Errors are exceptions.
enum class run_status : std::uint8_t { done, cancelled };

/// What launches are issued to: numbered streams and events.
///
/// Semantics: `wait(e, s)`: what is issued to stream `s` from now on begins when event `e` has happened; `record(e,
/// s)`: `e` happens when what has been issued to `s` has ended. A device whose calls return before the work has ended
/// (CUDA) is given all launches by one thread, one whose calls return with the end of the work (the host) one thread a
/// stream.
template <class D>
concept launch_device = requires(D& d, std::uint32_t i) {
  d.wait(i, i);
  d.record(i, i);
};

/// Observes nothing. Hooks of an issuing loop: `before(i)` is called when launch `i` has waited for its events and is
/// about to run, `after(i)` behind its kernel, before its event is recorded.
struct no_hooks {
  constexpr void before(std::uint32_t) const noexcept {}
  constexpr void after(std::uint32_t) const noexcept {}
};

/// Issues the launches numbered `which`, in that order: waits, kernel, event. Returns how many were issued: less than
/// all of them where `stop()` said so in between.
///
/// The loop of all executors. Throws `execution_error`, with the operation and with what was thrown nested in it, where
/// a kernel, the device or a hook throws; the launches before it have been issued.
template <class Stream, launch_device Device, kernels_for<Stream> Kernels, class Stop, class Hooks = no_hooks>
std::size_t issue(const launch_plan& plan, launch_calls<Stream>& calls, std::span<const std::uint32_t> which,
                  std::uint64_t step_seed, Device& device, Kernels& kernels, Stop&& stop, Hooks&& hooks = {}) {
  const launch* const launches = plan.launches().data();
  enum class doing : std::uint8_t { wait, hook, kernel, record };
  doing now = doing::wait;
  std::size_t n = 0;
  std::uint32_t event = 0;
  try {
    for (; n < which.size(); ++n) {
      const std::uint32_t i = which[n];
      const launch& l = launches[i];
      now = doing::wait;
      for (const std::uint32_t e : plan.waits(i)) device.wait(event = e, l.stream);
      if (stop()) return n;
      now = doing::hook;
      hooks.before(i);
      now = doing::kernel;
      kernel_call<Stream>& call = calls[i];
      call.seed = kernel_seed(step_seed, l.operation);
      kernels(static_cast<const kernel_call<Stream>&>(call));
      now = doing::hook;
      hooks.after(i);
      if (l.event != launch::no_event) {
        now = doing::record;
        device.record(l.event, l.stream);
      }
    }
  } catch (...) {
    const op_id o = launches[which[n]].operation;
    const std::size_t step = launches[which[n]].step;
    std::string text = plan.label(o) + " in step " + std::to_string(step) + ": ";
    if (now == doing::wait)
      text += "waiting for " + plan.label(launches[plan.events()[event]].operation) + " failed";
    else if (now == doing::record)
      text += "recording its event failed";
    else
      text += now == doing::kernel ? "its kernel failed" : "a check of it failed";
    try {
      throw;
    } catch (const std::exception& e) {
      std::throw_with_nested(execution_error(o, step, text + ": " + e.what()));
    } catch (...) {
      std::throw_with_nested(execution_error(o, step, text));
    }
  }
  return n;
}

}  // namespace remat
