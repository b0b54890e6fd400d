// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/profile.hpp"
#include "remat/graph/step_builder.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"
#include "train/layers.hpp"

namespace train {

using remat::host_call;
using host_kernel = std::function<void(const host_call&)>;

/// Zeros, at an address that is a multiple of 64 (see `host_backend.hpp`).
class aligned_buffer {
 public:
  explicit aligned_buffer(std::int64_t bytes)
      : blocks_((static_cast<std::size_t>(bytes) + sizeof(block) - 1) / sizeof(block)),
        size_(static_cast<std::size_t>(bytes)) {}
  [[nodiscard]] std::span<std::byte> bytes() noexcept {
    return std::as_writable_bytes(std::span(blocks_)).first(size_);
  }
  template <class T>
  [[nodiscard]] std::span<T> values() noexcept {
    return {reinterpret_cast<T*>(blocks_.data()), size_ / sizeof(T)};
  }

 private:
  struct alignas(64) block {
    std::byte bytes[64];
  };
  std::vector<block> blocks_;
  std::size_t size_;
};

/// The optimizer Adam, on the host. It is no part of the training step: an operation that runs again must find the
/// parameters unchanged.
class adam {
 public:
  explicit adam(float rate) : rate_(rate) {}

  /// Updates one parameter. Call it once for each parameter and training step; `step` counts from 1.
  void update(std::size_t parameter, std::uint64_t step, std::span<float> values, std::span<const float> gradient) {
    if (parameter >= moments_.size()) moments_.resize(parameter + 1);
    moments& m = moments_[parameter];
    m.first.resize(values.size(), 0.0F);
    m.second.resize(values.size(), 0.0F);
    constexpr float keep_first = 0.9F, keep_second = 0.999F;
    const auto n = static_cast<double>(step);
    const float unbias_first = static_cast<float>(1 / (1 - std::pow(0.9, n)));
    const float unbias_second = static_cast<float>(1 / (1 - std::pow(0.999, n)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float g = gradient[i];
      m.first[i] = keep_first * m.first[i] + (1 - keep_first) * g;
      m.second[i] = keep_second * m.second[i] + (1 - keep_second) * g * g;
      values[i] -= rate_ * (m.first[i] * unbias_first) / (std::sqrt(m.second[i] * unbias_second) + 1e-8F);
    }
  }

 private:
  struct moments {
    std::vector<float> first, second;
  };
  float rate_;
  std::vector<moments> moments_;
};

/// A network to train, with its data.
struct training_task {
  remat::built_step<host_kernel> step{};
  std::vector<parameter> parameters{};
  std::vector<tensor_id> inputs{};
  /// Fills the inputs, in their order, for a training step. Equal steps give equal inputs.
  std::function<void(std::uint64_t step, std::span<aligned_buffer> inputs)> load{};
  float rate = 1e-3F;
};

struct training_options {
  std::uint64_t steps = 100;
  std::uint64_t seed = 1;
  std::uint32_t threads = 1;
  std::int64_t budget = remat::problem::unlimited;                ///< bytes, of the schedule's peak and of the arena
  std::function<remat::solution(const remat::problem&)> solve{};  ///< empty: nothing is recomputed
};

/// The result of a training run, with the bits to compare.
struct training_record {
  bool trained = false;  ///< false: no schedule was found, see `message`
  std::string message{};
  std::vector<float> losses{};                   ///< of each training step
  std::vector<std::uint64_t> gradient_hashes{};  ///< of each training step, over all gradients
  std::vector<std::vector<float>> gradients{};   ///< of the last training step
  std::vector<std::vector<float>> parameters{};  ///< after the last training step
  std::int64_t peak_bytes = 0, arena_bytes = 0;
  std::size_t recomputed = 0;    ///< launches of a training step, less one for each operation that runs
  double step_seconds = 0;       ///< wall clock of the fastest training step
  double processor_seconds = 0;  ///< processor time, the least of any training step
  double planned_overhead = 0;   ///< of the schedule, by the measured times
};

[[nodiscard]] inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
/// True if two runs have the same bits: all losses, gradient hashes, last gradients and parameters.
[[nodiscard]] inline bool same_bits(const training_record& a, const training_record& b) {
  const auto same = [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const std::vector<float>& v, const std::vector<float>& w) { return same_bits(v, w); });
  };
  return same_bits(a.losses, b.losses) && a.gradient_hashes == b.gradient_hashes && same(a.gradients, b.gradients) &&
         same(a.parameters, b.parameters);
}

/// True if the mean loss of the last tenth of the training steps is below that of the first tenth.
[[nodiscard]] inline bool loss_fell(const std::vector<float>& losses) {
  const std::size_t n = std::max<std::size_t>(1, losses.size() / 10);
  double first = 0, last = 0;
  for (std::size_t i = 0; i < n && i < losses.size(); ++i) {
    first += static_cast<double>(losses[i]);
    last += static_cast<double>(losses[losses.size() - 1 - i]);
  }
  return losses.size() > 1 && last < first;
}

/// The peak of the training step with nothing recomputed, in bytes.
[[nodiscard]] inline std::int64_t baseline_peak(const training_task& task) {
  return remat::problem(task.step.graph, remat::unit_cost{}).graph().baseline_peak;
}

/// Trains from the same initial values each time: measures the operations, plans the training step with the measured
/// times, and runs it.
[[nodiscard]] inline training_record train_on_host(const training_task& task, const training_options& options) {
  using remat::problem;
  const remat::built_step<host_kernel>& step = task.step;
  std::vector<aligned_buffer> inputs, parameters;
  std::vector<remat::tensor_binding> bindings;
  const auto make = [&](std::vector<aligned_buffer>& list, tensor_id t) {
    aligned_buffer& buffer = list.emplace_back(step.graph.bytes(t));
    bindings.push_back({t, buffer.bytes()});
    return buffer.values<float>();
  };
  for (const tensor_id t : task.inputs) make(inputs, t);
  const auto start = initial_values(task.parameters, options.seed);
  for (std::size_t i = 0; i < start.size(); ++i)
    std::copy(start[i].begin(), start[i].end(), make(parameters, task.parameters[i].id).begin());
  task.load(0, inputs);

  remat::planning_options planning;
  planning.budget = options.budget;
  planning.streams = options.threads;
  const auto solve = [&](const problem& p) {
    if (options.solve) return options.solve(p);
    remat::solution s;
    s.plan = remat::listed_order(p);
    return s;
  };
  const remat::kernel_table<host_call> kernels(step.kernels);
  const auto planned = remat::make_planned(step.graph, std::cref(kernels), bindings, solve, planning);

  training_record record;
  record.message = planned.message;
  if (!planned.ready()) return record;
  record.trained = true;
  record.peak_bytes = planned.peak_bytes;
  record.arena_bytes = planned.arena_bytes;
  const problem& question = *planned.instance;
  double seconds = 0;
  std::vector<std::uint8_t> ran(question.graph().num_operations, 0);
  for (const remat::step& s : planned.plan.steps) {
    if (!s.is_compute()) continue;
    const std::size_t o = index(s.operation());
    record.recomputed += ran[o];
    ran[o] = 1;
    seconds += question.graph().time[o];
  }
  record.planned_overhead = seconds / planned.baseline_seconds - 1;

  adam optimizer(task.rate);
  std::vector<double> times, processor;
  const auto floats = [&](tensor_id t) {
    const std::span<const std::byte> bytes = planned.executor->output(t);
    return std::span<const float>(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
  };
  for (std::uint64_t i = 0; i < options.steps; ++i) {
    task.load(i, inputs);
    const std::clock_t before = std::clock();
    times.push_back(planned.executor->run(options.seed * 1'000'003 + i).seconds);
    processor.push_back(static_cast<double>(std::clock() - before) / static_cast<double>(CLOCKS_PER_SEC));
    record.losses.push_back(floats(step.loss)[0]);
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, by words
    record.gradients.clear();
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      const auto gradient = floats(*step.gradient_of(task.parameters[k].id));
      for (const float g : gradient) hash = (hash ^ std::bit_cast<std::uint32_t>(g)) * 0x100000001b3u;
      if (i + 1 == options.steps) record.gradients.emplace_back(gradient.begin(), gradient.end());
      optimizer.update(k, i + 1, parameters[k].values<float>(), gradient);
    }
    record.gradient_hashes.push_back(hash);
  }
  for (aligned_buffer& p : parameters) {
    const auto values = p.values<float>();
    record.parameters.emplace_back(values.begin(), values.end());
  }
  if (!times.empty()) {
    record.step_seconds = *std::min_element(times.begin(), times.end());
    record.processor_seconds = *std::min_element(processor.begin(), processor.end());
  }
  return record;
}

}  // namespace train
