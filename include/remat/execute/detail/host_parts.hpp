// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/detail/platform.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <thread>

#include "remat/core/error.hpp"
#include "remat/execute/detail/launch_calls.hpp"

/// The parts of `host_executor`: its threads and events, its arena, and a guard that watches its memory.
namespace REMAT_NAMESPACE::detail::host {

// ---- threads and events

/// Lets the other hardware thread of a processor core go first, for a moment.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns when `done(value of a)` is true. Looks at `a` `spins` times, then sleeps until `a` is notified.
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

/// Threads that run one job again and again, and sleep in between. A run allocates nothing.
class worker_threads {
 public:
  /// `job(context, worker)` runs on workers 0 … `size` − 1 and must not throw. Worker 0 is the thread that calls `run`.
  /// `size` is at least 1. Throws `std::system_error` if a thread cannot be started.
  worker_threads(std::uint32_t size, unsigned spins, void (*job)(void*, std::uint32_t), void* context)
      : spins_(spins), job_(job), context_(context) {
    threads_.reserve(size - 1);
    try {
      for (std::uint32_t w = 1; w < size; ++w) threads_.emplace_back([this, w] { serve(w); });
    } catch (...) {
      join();
      throw;
    }
  }
  worker_threads(const worker_threads&) = delete;
  worker_threads& operator=(const worker_threads&) = delete;
  ~worker_threads() { join(); }

  /// Runs the job once on all workers, and waits for them.
  void run() noexcept {
    busy_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    job_(context_, 0);
    await(busy_, spins_, [](std::uint32_t n) { return n == 0; });
  }

 private:
  void serve(std::uint32_t w) noexcept {
    for (std::uint32_t seen = 0;; ++seen) {
      await(round_, spins_, [&](std::uint32_t r) { return r != seen; });
      if (leaving_.load(std::memory_order_relaxed)) return;
      job_(context_, w);
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
  }
  void join() noexcept {
    leaving_.store(true, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  unsigned spins_;
  void (*job_)(void*, std::uint32_t);
  void* context_;
  alignas(64) std::atomic<std::uint32_t> round_{0};  // the number of runs begun
  alignas(64) std::atomic<std::uint32_t> busy_{0};   // workers that have not finished this run, without worker 0
  std::atomic<bool> leaving_{false};
  std::vector<std::thread> threads_;
};

/// The events of a launch plan among host threads: a model of `launch_device`. Each event holds the number of the run
/// in which it happened last, so no run has to reset them.
class host_events {
 public:
  host_events(std::uint32_t count, unsigned spins) : spins_(spins), events_(std::make_unique<event[]>(count)) {}
  void begin_run() noexcept { ++run_; }

  void wait(std::uint32_t e, std::uint32_t /*stream*/) noexcept {
    await(events_[e].run, spins_, [this](std::uint32_t r) { return r == run_; });
  }
  void record(std::uint32_t e, std::uint32_t /*stream*/) noexcept {
    // notify_all looks for waiters first. After a plain store the processor may do so before the store is visible, and
    // a waiter that arrives in between sleeps for ever; an exchange is visible before anything that follows it.
    events_[e].run.exchange(run_, std::memory_order_seq_cst);
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

// ---- memory

/// An arena of one executor: one allocation of the resource; null if the caller gives memory, or if it has 0 bytes.
/// Throws `bad_argument` if the resource gives no memory; `name` is the arena's.
[[nodiscard]] inline std::shared_ptr<std::byte> allocate_arena(std::pmr::memory_resource* resource,
                                                               std::span<const std::byte> given, std::int64_t bytes,
                                                               std::int64_t alignment, const char* name) {
  if (given.data() != nullptr || bytes == 0) return nullptr;
  const auto size = static_cast<std::size_t>(bytes), align = static_cast<std::size_t>(alignment);
  try {
    return {static_cast<std::byte*>(resource->allocate(size, align)),
            [=](std::byte* p) { resource->deallocate(p, size, align); }};
  } catch (const std::exception& e) {
    std::throw_with_nested(bad_argument(std::string("the memory resource does not give ") + name + ", " +
                                        std::to_string(bytes) + " bytes aligned to " + std::to_string(alignment) +
                                        ": " + e.what()));
  }
}

inline constexpr std::byte poison{0xdb};

/// Watches the memory of launches that one thread runs in the schedule's order: `host_debug`, and kernels that change
/// their inputs. O(bytes of the arguments) time a launch; for `host_debug::every_launch` O(bytes of the arena).
class memory_guard {
 public:
  /// The plan and the calls must outlive the guard.
  memory_guard(const launch_plan& plan, const launch_calls<host_stream>& calls, host_debug debug, bool check_inputs)
      : plan_(plan),
        calls_(calls),
        arena_(calls.arena().first(static_cast<std::size_t>(plan.arena_bytes()))),
        debug_(debug),
        check_inputs_(check_inputs),
        in_use_(debug == host_debug::off ? 0 : plan.lives().allocations.size(), 0),
        by_address_(in_use_.size()) {
    std::size_t max_inputs = 0;
    for (const launch& l : plan.launches()) max_inputs = std::max(max_inputs, plan.inputs(l).size());
    hashes_.resize(max_inputs);
    std::iota(by_address_.begin(), by_address_.end(), 0U);
    std::sort(by_address_.begin(), by_address_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(plan.offsets()[a], a) < std::pair(plan.offsets()[b], b);
    });
  }

  void begin_run() {
    std::fill(in_use_.begin(), in_use_.end(), std::uint8_t{0});
    if (debug_ != host_debug::off) std::fill(arena_.begin(), arena_.end(), poison);
  }

  /// Prepares launch `i`: poisons what it must write. Throws `error` if memory that it is given is not poison any more.
  void before(std::uint32_t i) {
    if (debug_ != host_debug::off) {
      for (const std::uint32_t a : plan_.begins(i)) take(a, i);
      take(plan_.workspace(i), i);
      // Outputs in the caller's memory begin as poison, too, if the launch must write all of them.
      calls_.for_each_fresh_output(i, [](std::span<std::byte> out) { std::fill(out.begin(), out.end(), poison); });
    }
    if (!check_inputs_) return;
    const auto inputs = calls_[i].inputs;
    for (std::size_t x = 0; x < inputs.size(); ++x) hashes_[x] = hash_of(inputs[x]);
  }

  /// Checks launch `i` after it. Throws `error` if its kernel has changed an input, or (`every_launch`) has written to
  /// memory that belongs to no tensor.
  void after(std::uint32_t i) {
    if (check_inputs_) {
      const auto inputs = calls_[i].inputs;
      for (std::size_t x = 0; x < inputs.size(); ++x)
        if (hashes_[x] != hash_of(inputs[x]))
          throw error("it changed its input " + plan_.label(plan_.inputs(plan_.launches()[i])[x].tensor));
    }
    if (debug_ == host_debug::off) return;
    if (debug_ == host_debug::every_launch) require_free_memory_poisoned(i + 1, "it wrote to ");
    release(plan_.workspace(i));
    for (const std::uint32_t a : plan_.frees(i)) release(a);
  }

  /// Throws `error` if memory that belongs to no tensor is not poison any more.
  void end_run() {
    if (debug_ != host_debug::off)
      require_free_memory_poisoned(plan_.size(), "at the end of the step: some operation wrote to ");
  }

 private:
  [[nodiscard]] static std::size_t hash_of(std::span<const std::byte> bytes) noexcept {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  /// Gives allocation `a` to launch `i`, which is about to run.
  void take(std::uint32_t a, std::uint32_t i) {
    const std::span<std::byte> bytes = bytes_of(plan_, arena_, a);
    require_poison(bytes, i, "before it began, some operation wrote to ");
    if (!bytes.empty()) in_use_[a] = 1;
  }
  void release(std::uint32_t a) {
    const std::span<std::byte> bytes = bytes_of(plan_, arena_, a);
    std::fill(bytes.begin(), bytes.end(), poison);
    if (!bytes.empty()) in_use_[a] = 0;
  }

  void require_free_memory_poisoned(std::size_t launches_begun, const char* culprit) const {
    std::size_t free_from = 0;
    for (const std::uint32_t a : by_address_) {
      if (in_use_[a] == 0) continue;
      const auto at = static_cast<std::size_t>(plan_.offsets()[a]);
      require_poison(arena_.subspan(free_from, at - std::min(at, free_from)), launches_begun, culprit);
      free_from = std::max(free_from, at + bytes_of(plan_, arena_, a).size());
    }
    require_poison(arena_.subspan(free_from), launches_begun, culprit);
  }

  void require_poison(std::span<const std::byte> bytes, std::size_t launches_begun, const char* culprit) const {
    const auto found = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != poison; });
    if (found == bytes.end()) return;
    const auto at = static_cast<std::int64_t>(&*found - arena_.data());
    std::string text = culprit + std::string("byte ") + std::to_string(at) + " of the arena, which ";
    if (const std::uint32_t last = last_allocation_at(at, launches_begun); last == lifetimes::no_allocation) {
      text += "no tensor has had yet";
    } else {
      const allocation& x = plan_.lives().allocations[last];
      text += (x.is_workspace() ? "was workspace of " + plan_.label(static_cast<op_id>(x.operation))
                                : "was byte " + std::to_string(at - plan_.offsets()[last]) + " of " +
                                      plan_.label(static_cast<tensor_id>(x.tensor))) +
              " until step " + std::to_string(x.last) + " freed it";
    }
    if (debug_ == host_debug::poison && launches_begun > 0)
      text += "; the launch before was " + plan_.label(plan_.launches()[launches_begun - 1]);
    throw error(text);
  }

  /// The last allocation that held the byte, of those that the first `launches_begun` launches have begun;
  /// `lifetimes::no_allocation` if none has.
  [[nodiscard]] std::uint32_t last_allocation_at(std::int64_t byte, std::size_t launches_begun) const {
    const std::size_t end =
        launches_begun < plan_.size() ? plan_.launches()[launches_begun].step : plan_.lives().num_steps();
    std::uint32_t last = lifetimes::no_allocation;
    for (std::uint32_t a = 0; a < in_use_.size(); ++a) {
      const allocation& x = plan_.lives().allocations[a];
      if (plan_.is_in_arena(a) && x.first < end && plan_.offsets()[a] <= byte && byte < plan_.offsets()[a] + x.bytes)
        last = a;
    }
    return last;
  }

  const launch_plan& plan_;
  const launch_calls<host_stream>& calls_;
  std::span<std::byte> arena_;
  host_debug debug_;
  bool check_inputs_;
  std::vector<std::uint8_t> in_use_;       // whether each allocation is in use
  std::vector<std::uint32_t> by_address_;  // the allocations in the order of their offsets
  std::vector<std::size_t> hashes_;        // hashes of the inputs of the launch that runs
};

}  // namespace REMAT_NAMESPACE::detail::host
