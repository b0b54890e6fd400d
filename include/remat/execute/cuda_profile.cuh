// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "remat/execute/cuda.cuh"
#include "remat/execute/profile.hpp"

namespace REMAT_NAMESPACE {

/// Options of `profile` for a `cuda_executor`.
struct cuda_profile_options {
  profile_options profile{.warm_up = 2, .runs = 10};  ///< how many replays, and the statistic of their times
  /// Seconds. An operation whose time is less is measured again, by `repeats` launches in a row: CUDA documents
  /// a resolution of about half a microsecond for its events. 0: no operation is.
  double repeat_below = 1e-5;
  std::uint32_t repeats = 20;  ///< launches in a row, at least 1
};

namespace detail::cuda_profile {

/// Runs of a captured step that are waited for: a model of `timed_executor`.
template <cuda_kernels Kernels>
class replays {
 public:
  struct launch_time {
    std::chrono::duration<double> duration{};
  };
  struct report {
    run_status status = run_status::done;
    double seconds = 0;  // the step's time on the device
    std::vector<launch_time> times{};
  };

  explicit replays(cuda_executor<Kernels>& executor) : executor_(executor), stream_(make_cuda_stream()) {}

  [[nodiscard]] const launch_plan& plan() const noexcept { return executor_.plan(); }

  report run(std::uint64_t step_seed, const std::stop_token& stop) {
    if (stop.stop_requested()) return {.status = run_status::cancelled};
    if (!captured_) {
      // A capture forbids the loads and allocations that kernels make at their first launch.
      if (executor_.run(stream_.get(), step_seed, stop) != run_status::done) return {.status = run_status::cancelled};
      throw_on_cuda_error(cudaStreamSynchronize(stream_.get()), "running the step before its capture");
      captured_.emplace(executor_.capture());
    }
    captured_->launch(stream_.get(), step_seed);
    throw_on_cuda_error(cudaStreamSynchronize(stream_.get()), "measuring a replay");
    constexpr double second = 1e-3;  // seconds of a millisecond
    report out{.seconds = static_cast<double>(executor_.step_time()) * second};
    for (const cuda_launch_time& t : executor_.times())
      out.times.push_back({std::chrono::duration<double>(static_cast<double>(t.duration) * second)});
    return out;
  }

 private:
  cuda_executor<Kernels>& executor_;
  cuda_stream stream_;
  std::optional<cuda_captured_step> captured_;
};

/// The executor repeats kernels while this lives.
template <cuda_kernels Kernels>
class repetition {
 public:
  repetition(cuda_executor<Kernels>& executor, std::vector<std::uint32_t> times) : executor_(executor) {
    executor_.repeat(std::move(times));
  }
  repetition(const repetition&) = delete;
  repetition& operator=(const repetition&) = delete;
  ~repetition() { executor_.repeat({}); }

 private:
  cuda_executor<Kernels>& executor_;
};

/// Replaces the times in `out` of operations below the limit of the options.
template <cuda_kernels Kernels>
void measure_repeated(cuda_executor<Kernels>& executor, const cuda_profile_options& options,
                      const profile_options& profile, profile_report& out) {
  std::vector<std::uint32_t> times;
  for (const double s : out.times.seconds) times.push_back(s < options.repeat_below ? options.repeats : 1);
  if (std::all_of(times.begin(), times.end(), [](std::uint32_t n) { return n == 1; })) return;
  const repetition<Kernels> repeated(executor, times);
  replays<Kernels> runs(executor);
  const profile_report again = remat::profile(runs, profile);
  if (again.runs == 0) return;
  for (std::size_t o = 0; o < times.size(); ++o)
    if (times[o] != 1) out.times.seconds[o] = again.times.seconds[o];
}

}  // namespace detail::cuda_profile

/// Measures the operations of a training step on the device: runs the step once, captures it, replays it several times,
/// and takes the median (or the least) time of each operation, from events around its kernels. The first run lets
/// kernels load their code, and libraries (cuBLAS) what they need, which a capture forbids.
///
/// Waits for the device first (cudaDeviceSynchronize), for that run and for each replay. `profile_report::step_seconds`
/// is the time of a replay on the device, with its events; `outside_seconds` is the part of it outside of kernels.
/// Short operations are measured again, see `cuda_profile_options::repeat_below`: this adds contributions several
/// times, and so do several replays of a step that adds into the caller's memory, so bind memory whose content does not
/// matter. If the schedule runs an operation several times, all its runs count. Times of several streams add up:
/// profile on one stream. Throws `bad_argument` if `runs` or `repeats` is 0 or the executor was made without `timing`,
/// and what `cuda_executor::run` and `capture` throw.
template <cuda_kernels Kernels>
[[nodiscard]] profile_report profile(cuda_executor<Kernels>& executor, const cuda_profile_options& options = {}) {
  if (options.repeats == 0) throw bad_argument("repeats is 0; it must be at least 1");
  if (!executor.timing()) throw bad_argument("the executor notes no times; set cuda_options::timing");
  using clock = std::chrono::steady_clock;
  const clock::time_point begun = clock::now();
  throw_on_cuda_error(cudaDeviceSynchronize(), "waiting for the device before measuring");
  profile_report out;
  {
    detail::cuda_profile::replays<Kernels> runs(executor);
    out = remat::profile(runs, options.profile);
  }
  profile_options rest = options.profile;
  if (rest.time_limit != std::chrono::nanoseconds::max()) {
    rest.time_limit -= std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - begun);
    if (rest.time_limit.count() <= 0) return out;
  }
  rest.step_seed += options.profile.warm_up + options.profile.runs;
  if (out.runs != 0) detail::cuda_profile::measure_repeated(executor, options, rest, out);
  return out;
}

/// \overload
///
/// With the default for short operations: `profile_and_plan` calls it.
template <cuda_kernels Kernels>
[[nodiscard]] profile_report profile(cuda_executor<Kernels>& executor, const profile_options& options) {
  return profile(executor, cuda_profile_options{.profile = options});
}

/// Does what `make_planned` does, on the current CUDA device: measures operations by captured replays behind one eager
/// run, median of ten, plans the step with the measured times, and makes a `cuda_executor` with all tensors bound.
///
/// Operations are measured in the arena of `cuda` if it is large enough, and in memory from cudaMalloc otherwise, which
/// is freed before the executor is made. The executor takes over the arena of `cuda`; with none, it allocates the
/// plan's bytes. `cuda.timing`, `debug` and `streams` are those of the executor that is returned. Throws as
/// `profile_and_plan`, `profile` and `cuda_executor`.
///
///     auto step = make_planned_cuda(graph, kernels, bindings, [](const problem& p) { return evict(p); },
///                                   {.profile = {.runs = 10}, .budget = bytes});
///     step.executor->run(stream);  // predicted: step.predicted_seconds
template <sized_graph G, cuda_kernels Kernels, class Solve>
[[nodiscard]] planned_step<cuda_executor<Kernels>> make_planned_cuda(
    const G& graph, Kernels kernels, std::span<const tensor_binding> bindings, Solve&& solve,
    const planning_options& options = {.profile = {.runs = 10}}, cuda_options cuda = {}) {
  const auto make = [&](launch_plan plan, bool timing) {
    cuda_options chosen;
    if (timing) {
      chosen.priority = cuda.priority;
      chosen.capture_mode = cuda.capture_mode;
      chosen.timing = true;
      chosen.seed = cuda.seed;
      // `profile` waits for the device first, so memory of a pool needs no order here.
      if (cuda.arena.size() >= static_cast<std::uint64_t>(plan.arena_bytes()))
        chosen.arena = cuda_memory(cuda.arena.bytes());
    } else {
      chosen = std::move(cuda);
    }
    auto executor = std::make_unique<cuda_executor<Kernels>>(std::move(plan), kernels, std::move(chosen));
    for (const tensor_binding& b : bindings) executor->bind(b.tensor, b.memory);
    return executor;
  };
  return profile_and_plan(graph, make, solve, options);
}

}  // namespace REMAT_NAMESPACE
