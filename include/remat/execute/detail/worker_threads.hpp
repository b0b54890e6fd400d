// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

/// Threads and events of `host_executor`.
namespace remat::detail::host {

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

}  // namespace remat::detail::host
