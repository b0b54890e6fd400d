// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <memory_resource>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/execute/exclusive_use.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/execute/launch_calls.hpp"
#include "remat/execute/launch_plan.hpp"

namespace remat {

/// How closely `host_executor` watches the kernels.
enum class host_debug : std::uint8_t {
  off,
  /// Memory that belongs to no tensor is filled with `detail::host::poison`: what is freed becomes it, fresh outputs
  /// and workspace begin as it. Whether it is still whole is looked at where it is given to a tensor, and at the end.
  poison,
  /// As `poison`, but all of it is looked at behind every launch, so that the error names the operation that wrote.
  every_launch
};

struct host_options {
  /// Gives the arena, in one allocation of the plan's bytes and alignment.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
  std::span<std::byte> arena{};        ///< if not empty: the arena, in place of memory from `memory`
  host_debug debug = host_debug::off;  ///< other than off: all launches run on the calling thread
  bool check_inputs = false;           ///< a kernel that changes its inputs is an error; as with `debug`, one thread
  bool timing = false;                 ///< note when each launch began and how long it took
};

/// When a launch began, from the start of the step, and how long its kernel took.
struct launch_time {
  std::chrono::nanoseconds start{}, duration{};
};

/// What one run did. The spans are valid until the next run.
struct host_report {
  run_status status = run_status::done;
  std::size_t launches = 0;                ///< that have run: all, unless it was cancelled
  double seconds = 0;                      ///< wall clock
  std::int64_t arena_bytes = 0;            ///< of the arena
  std::int64_t peak_bytes = 0;             ///< of the schedule
  std::span<const std::int64_t> memory{};  ///< of each launch: bytes in use while it runs
  std::span<const launch_time> times{};    ///< of each launch; empty without `timing`
};

namespace detail::host {

inline constexpr std::byte poison{0xdb};

/// Lets the other thread of a processor go first, for a moment.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns when `done(value of a)`; spins for a while, then sleeps until the value changes and `a` is notified.
template <class Done>
void await(const std::atomic<std::uint32_t>& a, unsigned spins, Done done) noexcept {
  std::uint32_t v = a.load(std::memory_order_acquire);
  for (unsigned i = 0; i < spins && !done(v); ++i) {
    relax();
    v = a.load(std::memory_order_acquire);
  }
  while (!done(v)) {
    a.wait(v, std::memory_order_acquire);
    v = a.load(std::memory_order_acquire);
  }
}

/// Threads that are there for one job again and again, and sleep in between. Nothing is allocated by a run.
class crew {
 public:
  /// `job(context, worker)` runs on workers 0 … `size` − 1, and must not throw; worker 0 is the thread that calls
  /// `run`.
  crew(std::uint32_t size, unsigned spins, void (*job)(void*, std::uint32_t), void* context)
      : spins_(spins), job_(job), context_(context) {
    threads_.reserve(size - 1);
    try {
      for (std::uint32_t w = 1; w < size; ++w) threads_.emplace_back([this, w] { live(w); });
    } catch (...) {
      dismiss();
      throw;
    }
  }
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;
  ~crew() { dismiss(); }

  void run() noexcept {
    busy_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    job_(context_, 0);
    await(busy_, spins_, [](std::uint32_t n) { return n == 0; });
  }

 private:
  void live(std::uint32_t w) noexcept {
    for (std::uint32_t seen = 0;; ++seen) {
      await(round_, spins_, [&](std::uint32_t r) { return r != seen; });
      if (leaving_.load(std::memory_order_relaxed)) return;
      job_(context_, w);
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
  }
  void dismiss() noexcept {
    leaving_.store(true, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  unsigned spins_;
  void (*job_)(void*, std::uint32_t);
  void* context_;
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<std::uint32_t> busy_{0};
  std::atomic<bool> leaving_{false};
  std::vector<std::thread> threads_;
};

/// The events of a plan among host threads: each holds the number of the run in which it happened last.
class events {
 public:
  events(std::uint32_t count, unsigned spins) : spins_(spins), events_(std::make_unique<event[]>(count)) {}
  void begin_run() noexcept { ++run_; }

  void wait(std::uint32_t e, std::uint32_t /*stream*/) noexcept {
    await(events_[e].run, spins_, [this](std::uint32_t r) { return r == run_; });
  }
  void record(std::uint32_t e, std::uint32_t /*stream*/) noexcept {
    events_[e].run.store(run_, std::memory_order_release);
    events_[e].run.notify_all();
  }

 private:
  struct alignas(64) event {
    std::atomic<std::uint32_t> run{0};
  };
  unsigned spins_;
  std::uint32_t run_ = 0;
  std::unique_ptr<event[]> events_;
};

/// The one allocation of an executor, or the caller's memory.
class arena {
 public:
  arena(std::pmr::memory_resource* resource, std::span<std::byte> given, std::int64_t bytes, std::int64_t alignment)
      : range_(given) {
    if (given.data() != nullptr || bytes == 0) return;
    const auto size = static_cast<std::size_t>(bytes), align = static_cast<std::size_t>(alignment);
    try {
      range_ = {static_cast<std::byte*>(resource->allocate(size, align)), size};
    } catch (const std::exception& e) {
      std::throw_with_nested(bad_argument("the memory resource does not give the arena, " + std::to_string(size) +
                                          " bytes aligned to " + std::to_string(align) + ": " + e.what()));
    }
    resource_ = resource;
    alignment_ = align;
  }
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() {
    if (resource_ != nullptr) resource_->deallocate(range_.data(), range_.size(), alignment_);
  }
  [[nodiscard]] std::span<std::byte> range() const noexcept { return range_; }

 private:
  std::span<std::byte> range_;
  std::pmr::memory_resource* resource_ = nullptr;
  std::size_t alignment_ = 1;
};

/// Watches the launches of one thread in the schedule's order: `host_debug`, `check_inputs`.
class watch {
 public:
  watch(const launch_plan& plan, const launch_calls<host_stream>& calls, host_debug debug, bool check_inputs)
      : plan_(plan),
        calls_(calls),
        arena_(calls.arena().first(static_cast<std::size_t>(plan.arena_bytes()))),
        debug_(debug),
        check_inputs_(check_inputs),
        live_(debug == host_debug::off ? 0 : plan.lives().allocations.size(), 0) {
    std::size_t most = 0;
    for (const launch& l : plan.launches()) most = std::max<std::size_t>(most, l.outputs - l.inputs);
    hashes_.resize(most);
    if (debug == host_debug::off) return;
    by_address_.resize(plan.lives().allocations.size());
    for (std::uint32_t a = 0; a < by_address_.size(); ++a) by_address_[a] = a;
    std::sort(by_address_.begin(), by_address_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(plan.offsets()[a], a) < std::pair(plan.offsets()[b], b);
    });
  }

  void begin_run() {
    std::fill(live_.begin(), live_.end(), std::uint8_t{0});
    if (debug_ != host_debug::off) std::fill(arena_.begin(), arena_.end(), poison);
  }
  void before(std::uint32_t i) {
    const launch& l = plan_.launches()[i];
    if (debug_ != host_debug::off) {
      for (const std::uint32_t a : plan_.begins(i)) take(a, i);
      if (const std::uint32_t a = plan_.lives().workspace[l.step]; a != lifetimes::no_allocation) take(a, i);
    }
    if (!check_inputs_) return;
    const auto inputs = calls_[i].inputs;
    for (std::size_t x = 0; x < inputs.size(); ++x) hashes_[x] = hash(inputs[x]);
  }
  void after(std::uint32_t i) {
    if (check_inputs_) {
      const auto inputs = calls_[i].inputs;
      for (std::size_t x = 0; x < inputs.size(); ++x)
        if (hashes_[x] != hash(inputs[x]))
          throw error("it changed its input " + plan_.label(plan_.inputs(plan_.launches()[i])[x].tensor));
    }
    if (debug_ == host_debug::off) return;
    if (debug_ == host_debug::every_launch) look_at_all(i + 1, "it wrote to ");
    if (const std::uint32_t a = plan_.lives().workspace[plan_.launches()[i].step]; a != lifetimes::no_allocation)
      release(a);
    for (const std::uint32_t a : plan_.frees(i)) release(a);
  }
  /// Throws `error` where memory that belongs to no tensor is not poison any more.
  void end_run() {
    if (debug_ != host_debug::off) look_at_all(plan_.size(), "at the end of the step: some operation wrote to ");
  }

 private:
  [[nodiscard]] std::span<std::byte> range(std::uint32_t a) const {
    return arena_.subspan(static_cast<std::size_t>(plan_.offsets()[a]),
                          static_cast<std::size_t>(plan_.lives().allocations[a].bytes));
  }
  void take(std::uint32_t a, std::uint32_t i) {
    look_at(range(a), i, "before it began, some operation wrote to ");
    live_[a] = 1;
  }
  void release(std::uint32_t a) {
    const auto bytes = range(a);
    std::fill(bytes.begin(), bytes.end(), poison);
    live_[a] = 0;
  }
  void look_at_all(std::size_t launches_begun, const char* who) const {
    std::size_t free_from = 0;
    for (const std::uint32_t a : by_address_) {
      if (!live_[a]) continue;
      const auto at = static_cast<std::size_t>(plan_.offsets()[a]);
      look_at(arena_.subspan(free_from, at - std::min(at, free_from)), launches_begun, who);
      free_from = std::max(free_from, at + range(a).size());
    }
    look_at(arena_.subspan(free_from), launches_begun, who);
  }
  void look_at(std::span<const std::byte> bytes, std::size_t launches_begun, const char* who) const {
    const auto found = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != poison; });
    if (found == bytes.end()) return;
    const auto at = static_cast<std::int64_t>(&*found - arena_.data());
    // Which tensor lay there last, of those that launches before have begun.
    const std::uint32_t end = launches_begun < plan_.size() ? plan_.launches()[launches_begun].step
                                                            : static_cast<std::uint32_t>(plan_.lives().num_steps());
    std::uint32_t last = lifetimes::no_allocation;
    for (std::uint32_t a = 0; a < live_.size(); ++a) {
      const allocation& x = plan_.lives().allocations[a];
      if (x.first < end && plan_.offsets()[a] <= at && at < plan_.offsets()[a] + x.bytes) last = a;
    }
    std::string text = who + std::string("byte ") + std::to_string(at) + " of the arena, which ";
    if (last == lifetimes::no_allocation) {
      text += "no tensor has had yet";
    } else {
      const allocation& x = plan_.lives().allocations[last];
      text += (x.is_workspace() ? "was workspace of " + plan_.label(static_cast<op_id>(x.operation))
                                : "was byte " + std::to_string(at - plan_.offsets()[last]) + " of " +
                                      plan_.label(static_cast<tensor_id>(x.tensor))) +
              " until step " + std::to_string(x.last) + " freed it";
    }
    if (debug_ == host_debug::poison && launches_begun > 0)
      text += "; the last operation before was " + plan_.label(plan_.launches()[launches_begun - 1].operation);
    throw error(text);
  }

  static std::uint64_t hash(std::span<const std::byte> bytes) noexcept {
    std::uint64_t h = bytes.size(), word = 0;
    const auto add = [&] { h = (h ^ (word ^ (word >> 29))) * 0x9e3779b97f4a7c15u + (h >> 32); };
    std::size_t i = 0;
    for (; i + sizeof word <= bytes.size(); i += sizeof word) {
      std::memcpy(&word, bytes.data() + i, sizeof word);
      add();
    }
    word = 0;
    if (i < bytes.size()) std::memcpy(&word, bytes.data() + i, bytes.size() - i);
    add();
    return h;
  }

  const launch_plan& plan_;
  const launch_calls<host_stream>& calls_;
  std::span<std::byte> arena_;
  host_debug debug_;
  bool check_inputs_;
  std::vector<std::uint8_t> live_;
  std::vector<std::uint32_t> by_address_;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace detail::host

/// Runs a schedule on the CPU, over the user's kernels, in one arena: step after step.
///
/// One thread for each stream of the plan; the calling thread is the first. Everything is allocated when it is made: a
/// run allocates nothing. It is neither copied nor moved, and runs one step at a time.
///
///     host_executor run(launch_plan(graph, p, plan.steps, layout, 2), kernels);
///     run.bind(x, batch);
///     run.run(step);
///     use(run.output(loss));
template <kernels_for<host_stream> Kernels>
class host_executor {
 public:
  /// Throws `bad_argument` where the arena cannot be had or does not fit the plan.
  host_executor(launch_plan plan, Kernels kernels, const host_options& options = {})
      : plan_(std::move(plan)),
        kernels_(std::move(kernels)),
        arena_(options.memory, options.arena, plan_.arena_bytes(), plan_.alignment()),
        calls_(plan_, arena_.range(), streams_of(plan_)),
        watch_(plan_, calls_, options.debug, options.check_inputs),
        watched_(options.debug != host_debug::off || options.check_inputs),
        times_(options.timing ? plan_.size() : 0),
        ran_(plan_.num_streams(), 0),
        errors_(plan_.num_streams()),
        events_(plan_.num_events(), spins(plan_)),
        crew_(watched_ ? 1 : plan_.num_streams(), spins(plan_), &host_executor::job, this) {}
  host_executor(const host_executor&) = delete;
  host_executor& operator=(const host_executor&) = delete;

  /// Kernels read resident tensor `t` from `memory`, from the next run on. Throws `bad_argument` as `launch_calls`
  /// does, and while a training step runs.
  void bind(tensor_id t, std::span<const std::byte> memory) {
    const detail::exclusive_use use(in_use_);
    calls_.bind(t, memory);
  }

  /// Runs one training step. `step_seed` decides the seeds of its random operations. Each thread looks at `stop`
  /// before each of its launches; a run that was stopped reports `run_status::cancelled`.
  ///
  /// Throws `bad_argument`, before anything runs, if a tensor is not bound, or if another call of `run` has not ended:
  /// that one goes on undisturbed. Throws `execution_error` if a kernel throws: it names the operation and nests what
  /// the kernel threw (if several kernels throw, the one that is earliest in the schedule counts). The other threads
  /// then stop before their next launch, and the next run begins anew.
  host_report run(std::uint64_t step_seed = 0, const std::stop_token& stop = {}) {
    const detail::exclusive_use use(in_use_);
    calls_.require_bound();
    seed_ = step_seed;
    stop_ = &stop;
    failed_.store(false, std::memory_order_relaxed);
    events_.begin_run();
    begun_ = clock::now();
    host_report report;
    if (watched_) {
      watch_.begin_run();
      report.launches = issue_watched();
    } else {
      crew_.run();
      if (failed_.load(std::memory_order_relaxed)) rethrow_first();
      for (const std::size_t n : ran_) report.launches += n;
    }
    report.seconds = std::chrono::duration<double>(clock::now() - begun_).count();
    report.status = report.launches == plan_.size() ? run_status::done : run_status::cancelled;
    report.arena_bytes = plan_.arena_bytes();
    report.peak_bytes = plan_.peak_bytes();
    report.memory = plan_.memory();
    report.times = times_;
    return report;
  }

  /// A final output, after a run; overwritten by the next. Throws `bad_argument` for other tensors.
  [[nodiscard]] std::span<const std::byte> output(tensor_id t) const { return calls_.output(t); }
  [[nodiscard]] const launch_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] std::span<std::byte> arena() const noexcept { return arena_.range(); }
  [[nodiscard]] Kernels& kernels() noexcept { return kernels_; }

 private:
  using clock = std::chrono::steady_clock;

  struct stopwatch {
    host_executor& self;
    void before(std::uint32_t i) const noexcept { self.times_[i].start = clock::now() - self.begun_; }
    void after(std::uint32_t i) const noexcept {
      self.times_[i].duration = clock::now() - self.begun_ - self.times_[i].start;
    }
  };
  struct watch_and_time {
    host_executor& self;
    void before(std::uint32_t i) const {
      self.watch_.before(i);
      if (!self.times_.empty()) stopwatch{self}.before(i);
    }
    void after(std::uint32_t i) const {
      if (!self.times_.empty()) stopwatch{self}.after(i);
      self.watch_.after(i);
    }
  };
  /// The events of launches that are all on one thread.
  struct in_order {
    void wait(std::uint32_t, std::uint32_t) const noexcept {}
    void record(std::uint32_t, std::uint32_t) const noexcept {}
  };

  static std::vector<host_stream> streams_of(const launch_plan& plan) {
    std::vector<host_stream> out(plan.num_streams());
    for (std::uint32_t s = 0; s < out.size(); ++s) out[s].index = s;
    return out;
  }
  /// Some ten microseconds, where each thread has a processor; else it would only keep the others from running.
  static unsigned spins(const launch_plan& plan) {
    return plan.num_streams() <= std::thread::hardware_concurrency() ? 300 : 0;
  }

  static void job(void* self, std::uint32_t stream) { static_cast<host_executor*>(self)->work(stream); }

  void work(std::uint32_t s) noexcept {
    const std::span<const std::uint32_t> which = plan_.of_stream(s);
    const std::stop_token& stop_token = *stop_;
    const auto stop = [&] { return failed_.load(std::memory_order_relaxed) || stop_token.stop_requested(); };
    ran_[s] = 0;
    try {
      ran_[s] = times_.empty() ? issue(plan_, calls_, which, seed_, events_, kernels_, stop)
                               : issue(plan_, calls_, which, seed_, events_, kernels_, stop, stopwatch{*this});
      if (ran_[s] == which.size()) return;
    } catch (...) {
      errors_[s] = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
    // Nobody shall wait for what does not come: whoever is woken sees that the run is over.
    for (const std::uint32_t i : which)
      if (const std::uint32_t e = plan_.launches()[i].event; e != launch::no_event) events_.record(e, s);
  }

  std::size_t issue_watched() {
    in_order device;
    const auto stop = [this] { return stop_->stop_requested(); };
    const std::size_t n = issue(plan_, calls_, plan_.in_order(), seed_, device, kernels_, stop, watch_and_time{*this});
    if (n == plan_.size()) watch_.end_run();
    return n;
  }

  [[noreturn]] void rethrow_first() {
    std::size_t first = 0, least = static_cast<std::size_t>(-1);
    for (std::size_t s = 0; s < errors_.size(); ++s) {
      if (!errors_[s]) continue;
      try {
        std::rethrow_exception(errors_[s]);
      } catch (const execution_error& e) {
        if (e.step() < least) {
          least = e.step();
          first = s;
        }
      } catch (...) {
        first = s;
        break;
      }
    }
    const std::exception_ptr chosen = errors_[first];
    std::fill(errors_.begin(), errors_.end(), std::exception_ptr());
    std::rethrow_exception(chosen);
  }

  launch_plan plan_;
  Kernels kernels_;
  detail::host::arena arena_;
  launch_calls<host_stream> calls_;
  detail::host::watch watch_;
  bool watched_;
  std::vector<launch_time> times_;
  std::vector<std::size_t> ran_;            // of each stream
  std::vector<std::exception_ptr> errors_;  // of each stream
  detail::host::events events_;
  std::uint64_t seed_ = 0;
  const std::stop_token* stop_ = nullptr;  // of the run
  clock::time_point begun_{};
  std::atomic<bool> in_use_{false};
  std::atomic<bool> failed_{false};
  detail::host::crew crew_;  // last: its threads use the rest
};

}  // namespace remat
