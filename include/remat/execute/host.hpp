// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/detail/platform.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory_resource>
#include <mutex>
#include <stop_token>

#include "remat/execute/detail/host_parts.hpp"

namespace REMAT_NAMESPACE {

/// Options of `host_executor`.
struct host_options {
  /// Gives the arena, in one allocation of the plan's bytes and alignment.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
  /// If not empty: the arena, in place of memory from `memory`. Several executors may share one, of the size that the
  /// largest of their plans needs, if only one of them runs at a time: a run overwrites the whole arena, and with it
  /// the outputs there of other executors. Outputs that `launch_options` puts into the caller's memory stay.
  std::span<std::byte> arena{};
  std::int64_t arena_budget = problem::unlimited;  ///< bytes, at least 0: a plan with a larger arena is refused
  /// If the plan copies tensors to the host: the arena for these copies, likewise. If empty, `memory` gives it, too.
  std::span<std::byte> host_arena{};
  std::int64_t host_arena_budget = problem::unlimited;  ///< bytes, at least 0, for that arena
  host_debug debug = host_debug::off;                   ///< if not off, all launches run on the calling thread
  bool check_inputs = false;  ///< a kernel that changes its inputs is an error; as `debug`, one thread
  bool timing = false;        ///< note when each launch began and how long it took
};

/// The time of one launch.
struct launch_time {
  std::chrono::nanoseconds start{};     ///< the time since the start of the training step
  std::chrono::nanoseconds duration{};  ///< how long its kernel took
};

/// The result of one run. The times are valid until the next run.
struct host_report {
  run_status status = run_status::done;  ///< how the run ended
  std::size_t launches = 0;              ///< the launches that have run: all, unless the run was cancelled
  double seconds = 0;                    ///< wall clock
  std::span<const launch_time> times{};  ///< the times of each launch; empty without `timing`
};

/// Runs a schedule on the CPU, over the user's kernels, in one arena: one training step after the other.
///
/// It has one thread for each stream of the plan; the calling thread is the first. If the plan copies tensors to the
/// host, that is one thread for the computes, one for the copies to the host, and one for those back: the arena stands
/// for the device's memory, and a second arena for the host's. The kernels make the copies if they can (`copies_for`);
/// otherwise they are those of std::memcpy. Everything is allocated when the
/// executor is made: a run allocates nothing. It is neither copied nor moved. One call of `run` at a time: to run steps
/// at the same time, make several executors.
///
///     host_executor run(launch_plan(graph, p, plan.steps, layout, 2), kernels);
///     run.bind(x, batch);
///     run.run(seed);
///     use(run.output(loss));
template <kernels_for<host_stream> Kernels>
class host_executor {
 public:
  /// Throws `bad_argument` if an arena of the plan exceeds its budget, if the memory resource gives no arena, or if an
  /// arena does not fit the plan.
  host_executor(launch_plan plan, Kernels kernels, const host_options& options = {})
      : plan_(std::move(plan)),
        kernels_(std::move(kernels)),
        arena_(detail::host::allocate_arena(options.memory, options.arena,
                                            plan_.arena_bytes_within(options.arena_budget), plan_.alignment(),
                                            "the arena")),
        host_arena_(detail::host::allocate_arena(options.memory, options.host_arena,
                                                 plan_.host_arena_bytes_within(options.host_arena_budget),
                                                 plan_.host_alignment(), "the host's arena")),
        calls_(plan_, memory_of(arena_, plan_.arena_bytes(), options.arena), streams_of(plan_),
               memory_of(host_arena_, plan_.host_arena_bytes(), options.host_arena)),
        guard_(plan_, calls_, options.debug, options.check_inputs),
        watched_(options.debug != host_debug::off || options.check_inputs),
        times_(options.timing ? plan_.size() : 0),
        ran_(plan_.num_streams(), 0),
        events_(plan_.num_events(), spins(plan_)),
        threads_(watched_ ? 1 : plan_.num_streams(), spins(plan_), &host_executor::run_stream, this) {}
  host_executor(const host_executor&) = delete;
  host_executor& operator=(const host_executor&) = delete;

  /// Kernels read resident tensor `t` from `memory`, from the next run on. Throws `bad_argument` as `launch_calls`
  /// does, and while a training step runs.
  void bind(tensor_id t, std::span<const std::byte> memory) {
    const detail::exclusive_use use(in_use_);
    calls_.bind(t, memory);
  }

  /// Kernels write and read output `t` in `memory`, from the next run on; `t` is one of `launch_options::bound_outputs`
  /// or `accumulated_outputs`. Throws `bad_argument` as `launch_calls` does, and while a training step runs.
  void bind_output(tensor_id t, std::span<std::byte> memory) {
    const detail::exclusive_use use(in_use_);
    calls_.bind_output(t, memory);
  }

  /// Runs one training step. `step_seed` decides the seeds of its random operations. Each thread looks at `stop`
  /// before each of its launches; a run that was stopped reports `run_status::cancelled`.
  ///
  /// Throws `bad_argument`, before anything runs, if a tensor is not bound, if a bound output shares bytes with another
  /// bound tensor, or if another call of `run` has not ended: that one goes on undisturbed. Throws `execution_error` if
  /// a kernel or a copy throws: it names the operation or the tensor, and nests what was thrown. If several throw, the
  /// one that is earliest in the schedule counts. The other threads then stop before their next launch, and the next
  /// run begins anew.
  host_report run(std::uint64_t step_seed = 0, const std::stop_token& stop = {}) {
    const detail::exclusive_use use(in_use_);
    calls_.require_bound();
    seed_ = step_seed;
    stop_ = &stop;
    failed_.store(false, std::memory_order_relaxed);
    events_.begin_run();
    begun_ = clock::now();
    if (watched_) guard_.begin_run();
    threads_.run();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    host_report report;
    for (const std::size_t n : ran_) report.launches += n;
    if (watched_ && report.launches == plan_.size()) guard_.end_run();
    report.seconds = std::chrono::duration<double>(since_begin()).count();
    report.status = report.launches == plan_.size() ? run_status::done : run_status::cancelled;
    report.times = times_;
    return report;
  }

  /// A final output, after a run; the next overwrites it, or adds to it. Throws `bad_argument` for other tensors.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t) const { return calls_.output(t); }
  /// The plan that the executor runs.
  [[nodiscard]] const launch_plan& plan() const noexcept { return plan_; }
  /// The arena, in host memory.
  [[nodiscard]] std::span<std::byte> arena() const noexcept { return calls_.arena(); }
  /// The arena of the copies on the host; empty if the plan has none.
  [[nodiscard]] std::span<std::byte> host_arena() const noexcept { return calls_.host_arena(); }
  /// The executor's kernels.
  [[nodiscard]] Kernels& kernels() noexcept { return kernels_; }

 private:
  using clock = std::chrono::steady_clock;

  /// The time since the training step began; not less than 0, even if the clock is set back.
  [[nodiscard]] std::chrono::nanoseconds since_begin() const {
    return std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(clock::now() - begun_));
  }

  /// Notes the times of launches; if `Guarded`, also watches them, and notes times only if they are wanted.
  template <bool Guarded>
  struct watch {
    host_executor& self;
    void before(std::uint32_t i) const {
      if constexpr (Guarded) self.guard_.before(i);
      if (!Guarded || !self.times_.empty()) self.times_[i].start = self.since_begin();
    }
    void after(std::uint32_t i) const {
      if (!Guarded || !self.times_.empty())
        self.times_[i].duration = std::max(std::chrono::nanoseconds(0), self.since_begin() - self.times_[i].start);
      if constexpr (Guarded) self.guard_.after(i);
    }
  };

  static std::span<std::byte> memory_of(const std::shared_ptr<std::byte>& own, std::int64_t bytes,
                                        std::span<std::byte> given) {
    return own ? std::span(own.get(), static_cast<std::size_t>(bytes)) : given;
  }
  static std::vector<host_stream> streams_of(const launch_plan& plan) {
    std::vector<host_stream> out(plan.num_streams());
    for (std::uint32_t s = 0; s < out.size(); ++s) out[s].index = s;
    return out;
  }
  /// How often a thread looks at an event before it sleeps: some ten microseconds if each thread has a processor;
  /// otherwise not at all, as it would only keep the others from running.
  static unsigned spins(const launch_plan& plan) {
    return plan.num_streams() <= std::thread::hardware_concurrency() ? 300 : 0;
  }

  static void run_stream(void* self, std::uint32_t s) { static_cast<host_executor*>(self)->issue_stream(s); }

  /// Issues the launches of stream `s`, on its own thread; if they are watched, those of all streams.
  void issue_stream(std::uint32_t s) noexcept {
    const std::span<const std::uint32_t> which = watched_ ? plan_.in_order() : plan_.of_stream(s);
    const std::stop_token& stop_token = *stop_;
    const auto stop = [&] { return failed_.load(std::memory_order_relaxed) || stop_token.stop_requested(); };
    ran_[s] = 0;
    try {
      const auto issue_with = [&](const auto&... hooks) {
        return issue(plan_, calls_, which, seed_, events_, kernels_, stop, hooks...);
      };
      ran_[s] = watched_         ? issue_with(watch<true>{*this})
                : times_.empty() ? issue_with()
                                 : issue_with(watch<false>{*this});
      if (ran_[s] == which.size()) return;
    } catch (const execution_error& e) {
      keep_error(e.step());
    } catch (...) {
      keep_error(0);
    }
    // The run is over. Other threads may wait for events of launches that will not run: wake them, to see it too.
    for (const std::uint32_t i : which)
      if (const std::uint32_t e = plan_.launches()[i].event; e != launch::no_event) events_.record(e, s);
  }

  /// Keeps the exception that is being handled if it is that of the earliest step so far.
  void keep_error(std::size_t step) noexcept {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    failed_.store(true, std::memory_order_relaxed);
    if (error_ && step >= error_step_) return;
    error_ = std::current_exception();
    error_step_ = step;
  }

  launch_plan plan_;
  Kernels kernels_;
  std::shared_ptr<std::byte> arena_, host_arena_;  // null: the memory is the caller's
  detail::launch_calls<host_stream> calls_;
  detail::host::memory_guard guard_;
  bool watched_;
  std::vector<launch_time> times_;
  std::vector<std::size_t> ran_;  // number of launches that each stream has run
  detail::host::host_events events_;
  std::uint64_t seed_ = 0;
  const std::stop_token* stop_ = nullptr;  // the run's stop token
  clock::time_point begun_{};
  std::atomic<bool> in_use_{false};
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_{};  // the run's error: the one of the earliest step
  std::size_t error_step_ = 0;
  detail::host::worker_threads threads_;  // last: they use the rest
};

}  // namespace REMAT_NAMESPACE
