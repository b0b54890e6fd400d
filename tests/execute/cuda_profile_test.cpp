// SPDX-License-Identifier: BSL-1.0

// Measuring on a device whose clock the test turns: durations are exact.
#include "remat/execute/cuda_profile.cuh"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/profile.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/method/evict.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/fake_cuda.hpp"

using namespace remat;
namespace fake = remat::test::fake_cuda;

namespace {

using bytes_vector = std::vector<std::byte>;

/// A forward chain of four operations and a backward one, which reads what the forward one makes.
struct short_chain {
  training_graph graph;
  tensor_id x, loss;

  short_chain() {
    x = graph.add_tensor({.name = "x", .bytes = 64, .kind = tensor_kind::input});
    std::vector<tensor_id> forward{x};
    for (int i = 0; i < 4; ++i) {
      forward.push_back(graph.add_tensor({.name = "f", .bytes = 64}));
      graph.add_operation({.name = "forward", .inputs = {forward[forward.size() - 2]}, .outputs = {forward.back()}});
    }
    loss = forward.back();
    for (int i = 3; i >= 0; --i) {
      const tensor_id next = graph.add_tensor({.name = "b", .bytes = 64});
      graph.add_operation(
          {.name = "backward", .inputs = {forward[static_cast<std::size_t>(i)], loss}, .outputs = {next}});
      loss = next;
    }
    graph.add_final_output(loss);
  }
  [[nodiscard]] launch_plan launches() const {
    const problem p(graph, unit_cost{});
    return launch_plan(graph, p, listed_order(p));
  }
};

/// Kernels that turn the device's clock on by `milliseconds` (the fake runtime adds 1 of them), and by `outlier` more
/// in every fourth run.
struct clock_kernels {
  std::vector<double> milliseconds;
  double outlier = 0;
  std::vector<int>* runs = nullptr;

  void operator()(const cuda_call& c) const {
    std::vector<fake::access> used;
    for (const auto m : c.inputs) used.push_back(fake::read_of(m));
    for (const auto m : c.outputs) used.push_back(fake::write_of(m));
    fake::enqueue(
        c.stream,
        [o = index(c.operation), ms = milliseconds[index(c.operation)], more = outlier, count = runs] {
          fake::the().clock += ms - 1;
          if (count != nullptr && ++(*count)[o] % 4 == 0) fake::the().clock += more;
        },
        std::move(used), "operation " + std::to_string(index(c.operation)));
  }
};

/// Between the two clocks of a launch, the fake runtime adds this to the kernels: the record of the second.
constexpr double record = 1;

const std::vector<double> durations{2, 3, 4, 5, 50, 60, 70, 80};

}  // namespace

TEST_CASE("the median of replays is the time of each operation, whatever single runs took") {
  const short_chain x;
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{1}));
  std::vector<int> runs(8, 0);
  cuda_executor run(x.launches(), clock_kernels{durations, 1000, &runs}, {.timing = true});
  run.bind(x.x, input.bytes());
  const profile_report report = profile(run, {.profile = {.warm_up = 2, .runs = 10}, .repeat_below = 0});
  CHECK(report.runs == 10);
  REQUIRE(report.times.seconds.size() == 8);
  double sum = 0;
  for (std::size_t o = 0; o < 8; ++o) {
    CHECK(runs[o] == 1 + 12);  // an eager one first
    CHECK(report.times.seconds[o] == doctest::Approx((durations[o] + record) * 1e-3));
    sum += durations[o] + record;
  }
  CHECK(report.step_seconds > sum * 1e-3);
  CHECK(report.step_seconds == doctest::Approx(sum * 1e-3 + report.outside_seconds).epsilon(1e-5));
  CHECK(fake::calls("cudaGraphInstantiate") == 1);
  CHECK(fake::calls("cudaGraphLaunch") == 12);
}

TEST_CASE("short operations are measured by launches in a row; the executor is then as before") {
  const short_chain x;
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{1}));
  std::vector<int> runs(8, 0);
  cuda_executor run(x.launches(), clock_kernels{durations, 0, &runs}, {.timing = true});
  run.bind(x.x, input.bytes());
  const profile_report report =
      profile(run, {.profile = {.warm_up = 1, .runs = 3}, .repeat_below = 20e-3, .repeats = 10});
  for (std::size_t o = 0; o < 8; ++o) {
    const bool repeated = o < 4;
    CHECK(runs[o] == (repeated ? 5 + 5 * 10 : 10));
    CHECK(report.times.seconds[o] == doctest::Approx((durations[o] + record / (repeated ? 10 : 1)) * 1e-3));
  }
  CHECK(fake::calls("cudaGraphInstantiate") == 2);
  const std::vector<int> before = runs;
  const cuda_stream stream = make_cuda_stream();
  run.run(stream.get());
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  for (std::size_t o = 0; o < 8; ++o) CHECK(runs[o] == before[o] + 1);
}

TEST_CASE("kernels that load code at their first launch are measured: they run before they are captured") {
  const short_chain x;
  fake::reset();
  fake::the().lazy_modules = true;
  const fake::resident input(bytes_vector(64, std::byte{1}));
  {
    cuda_executor run(x.launches(), clock_kernels{durations}, {.timing = true});
    run.bind(x.x, input.bytes());
    CHECK(profile(run).runs == 10);
  }
  fake::the().loaded.clear();
  const std::vector<tensor_binding> bindings{{x.x, input.bytes()}};
  auto step = make_planned_cuda(x.graph, clock_kernels{durations}, bindings, [](const problem& p) { return evict(p); },
                                {.profile = {.warm_up = 1, .runs = 3}, .budget = 64 * 4, .memory = {.alignment = 1}});
  REQUIRE_MESSAGE(step.ready(), step.message);
  const cuda_stream stream = make_cuda_stream();
  step.executor->capture().launch(stream.get());
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
}

TEST_CASE("steps are measured in the capture mode of the options") {
  const short_chain x;
  for (const bool relaxed : {false, true}) {
    fake::reset();
    const fake::resident input(bytes_vector(64, std::byte{1}));
    const std::vector<tensor_binding> bindings{{x.x, input.bytes()}};
    cuda_options options;
    if (relaxed) options.capture_mode = cudaStreamCaptureModeRelaxed;
    const auto plan = [&] {  // with kernels that allocate at every launch
      return make_planned_cuda(
          x.graph,
          [&](const cuda_call& c) {
            void* p = nullptr;
            throw_on_cuda_error(cudaMalloc(&p, 8));
            fake::free_now(p);
            clock_kernels{durations}(c);
          },
          bindings, [](const problem& p) { return evict(p); },
          {.profile = {.warm_up = 0, .runs = 1}, .memory = {.alignment = 1}}, std::move(options));
    };
    if (relaxed)
      CHECK(plan().ready());
    else
      CHECK_THROWS_AS(static_cast<void>(plan()), execution_error);
  }
}

TEST_CASE("replays are timed where no step has run before the capture") {
  const short_chain x;
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{1}));
  cuda_executor run(x.launches(), clock_kernels{durations}, {.timing = true});
  run.bind(x.x, input.bytes());
  const cuda_stream stream = make_cuda_stream();
  run.capture().launch(stream.get());
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  CHECK(run.times()[3].duration == doctest::Approx(durations[3] + record));
  CHECK(run.step_time() > 0);
}

TEST_CASE("repetitions divide the time, and are refused where they cannot be") {
  const short_chain x;
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{1}));
  cuda_executor run(x.launches(), clock_kernels{durations}, {.timing = true});
  run.bind(x.x, input.bytes());
  CHECK_THROWS_WITH_AS(run.repeat({1, 2}), "2 repetitions are given; there are 8 operations", bad_argument);
  CHECK_THROWS_WITH_AS(run.repeat({1, 1, 1, 1, 1, 0, 1, 1}),
                       "the repetitions of operation 5 (backward) are 0; they must be at least 1", bad_argument);
  run.repeat({1, 1, 5, 1, 1, 1, 1, 1});
  const cuda_stream stream = make_cuda_stream();
  run.run(stream.get());
  run.repeat({});  // from the next run on
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  CHECK(run.times()[2].duration == doctest::Approx((5 * durations[2] + record) / 5));
  CHECK(run.times()[3].duration == doctest::Approx(durations[3] + record));
  cuda_executor plain(x.launches(), clock_kernels{durations});
  CHECK_THROWS_AS(plain.repeat({}), bad_argument);
  CHECK_THROWS_AS(static_cast<void>(plain.step_time()), bad_argument);
}

TEST_CASE("times are those of the last run or replay, whatever was captured, repeated or has failed since") {
  const short_chain x;
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{1}));
  bool bad = false;
  cuda_executor run(x.launches(),
                    [&](const cuda_call& c) {
                      clock_kernels{durations}(c);
                      if (bad && index(c.operation) == 4) throw error("no such algorithm");
                    },
                    {.timing = true});
  run.bind(x.x, input.bytes());
  const cuda_stream stream = make_cuda_stream();
  const auto wait = [&] { throw_on_cuda_error(cudaStreamSynchronize(stream.get())); };
  const auto third = [&] { return static_cast<double>(run.times()[2].duration); };
  const double once = durations[2] + record, five = (5 * durations[2] + record) / 5;
  run.repeat({1, 1, 5, 1, 1, 1, 1, 1});
  const cuda_captured_step repeated = run.capture();
  CHECK_THROWS_AS(static_cast<void>(run.times()), bad_argument);  // nothing has run
  CHECK_THROWS_AS(static_cast<void>(run.step_time()), bad_argument);
  run.repeat({});
  run.run(stream.get());
  wait();
  const double eager = static_cast<double>(run.step_time());
  run.repeat({1, 1, 7, 1, 1, 1, 1, 1});
  const cuda_captured_step other = run.capture();
  CHECK(third() == doctest::Approx(once));  // a capture runs nothing
  CHECK(static_cast<double>(run.step_time()) == eager);
  run.repeat({});
  repeated.launch(stream.get());
  wait();
  CHECK(third() == doctest::Approx(five));
  bad = true;
  CHECK_THROWS_AS(run.run(stream.get()), execution_error);
  CHECK_THROWS_AS(static_cast<void>(run.times()), bad_argument);
  repeated.launch(stream.get());
  wait();
  CHECK(third() == doctest::Approx(five));  // the replay has ended
  CHECK_THROWS_AS(static_cast<void>(run.capture()), execution_error);
  CHECK(third() == doctest::Approx(five));
  bad = false;
  cuda_captured_step changed = run.capture();
  run.repeat({1, 1, 5, 1, 1, 1, 1, 1});
  static_cast<void>(run.update(changed));
  changed.launch(stream.get());
  wait();
  CHECK(third() == doctest::Approx(five));
}

TEST_CASE("times of a step in the caller's graph are there when the graph has run") {
  const short_chain x;
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{1}));
  cuda_executor run(x.launches(), clock_kernels{durations}, {.timing = true});
  run.bind(x.x, input.bytes());
  const cuda_stream stream = make_cuda_stream();
  run.repeat({1, 1, 5, 1, 1, 1, 1, 1});
  cudaGraph_t made{};
  throw_on_cuda_error(cudaGraphCreate(&made, 0));
  const cuda_graph graph(made);
  run.capture().add_to(graph.get());
  run.repeat({});
  CHECK_THROWS_AS(static_cast<void>(run.times()), bad_argument);
  const cuda_graph_exec exec = make_cuda_graph_exec(graph);
  throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  CHECK(run.times()[2].duration == doctest::Approx((5 * durations[2] + record) / 5));
}

TEST_CASE("measuring that cannot be, is cancelled or out of time") {
  const short_chain x;
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{1}));
  cuda_executor plain(x.launches(), clock_kernels{durations});
  plain.bind(x.x, input.bytes());
  CHECK_THROWS_WITH_AS(static_cast<void>(profile(plain)), "the executor notes no times; set cuda_options::timing",
                       bad_argument);
  cuda_executor run(x.launches(), clock_kernels{durations}, {.timing = true});
  run.bind(x.x, input.bytes());
  CHECK_THROWS_AS(static_cast<void>(profile(run, {.repeats = 0})), bad_argument);
  CHECK_THROWS_AS(static_cast<void>(profile(run, {.profile = {.runs = 0}})), bad_argument);
  std::stop_source stop;
  stop.request_stop();
  const profile_report cancelled = profile(run, profile_options{.stop = stop.get_token()});
  CHECK(cancelled.runs == 0);
  CHECK(std::isnan(cancelled.times.seconds[0]));
  // No time: one run counts, and nothing is measured again.
  const profile_report late = profile(run, {.profile = {.time_limit = std::chrono::nanoseconds(0)}, .repeat_below = 1});
  CHECK(late.runs == 1);
  CHECK(late.times.seconds[7] == doctest::Approx((durations[7] + record) * 1e-3));
}

TEST_CASE("a step is measured, planned within a budget and ready to run") {
  for (const int arena : {0, 1, 2}) {
    CAPTURE(arena);
    const short_chain x;
    fake::reset();
    const fake::resident input(bytes_vector(64, std::byte{1}));
    const std::vector<tensor_binding> bindings{{x.x, input.bytes()}};
    const cuda_stream home = make_cuda_stream();
    const cuda_memory mine(2048);
    cuda_options options;
    if (arena == 1) options.arena = cuda_memory(mine.bytes());
    if (arena == 2) options.arena = cuda_memory(2048, home.get());
    std::size_t solved = 0;
    {
      const std::int64_t budget = 64 * 4;
      auto step = make_planned_cuda(
          x.graph, clock_kernels{durations}, bindings,
          [&](const problem& p) {
            ++solved;
            for (std::uint32_t o = 0; o < 8; ++o)
              CHECK(p.graph().time[o] == doctest::Approx((durations[o] + record) * 1e-3));
            return evict(p);
          },
          {.profile = {.warm_up = 1, .runs = 10}, .budget = budget, .memory = {.alignment = 1}}, std::move(options));
      REQUIRE_MESSAGE(step.ready(), step.message);
      CHECK(solved > 0);
      CHECK(step.measured.runs == 10);
      CHECK(step.arena_bytes <= budget);
      CHECK(step.predicted_seconds > step.baseline_seconds);
      CHECK_FALSE(step.executor->timing());
      CHECK(fake::calls("cudaMalloc") == (arena == 0 ? 3 : 1));
      if (arena != 0) CHECK(step.executor->arena().size() == 2048);
      const cuda_stream stream = make_cuda_stream();
      step.executor->run(stream.get());
      throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    }
    throw_on_cuda_error(cudaDeviceSynchronize());
    CHECK(fake::the().reports.empty());
  }
}
