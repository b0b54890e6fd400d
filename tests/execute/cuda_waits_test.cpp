// SPDX-License-Identifier: BSL-1.0

// Each wait of a training step is needed: without it, the fake runtime finds a race.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/execute/cuda.cuh"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"

using namespace remat;
namespace fake = remat::test::fake_cuda;
using fake::bytes_vector;

namespace {

/// `hash_kernels` that use one byte more for each allocation, and read one byte that the caller writes: so tensors of
/// 0 bytes and operations without arguments, too, are ordered for a reason that shows.
struct marked_kernels {
  const launch_plan& plan;
  std::span<std::byte> marks;  // of each allocation; the last one is the caller's
  std::size_t next = 0;        // launches are enqueued in the order of the plan

  void operator()(const cuda_call& c) {
    const launch& l = plan.launches()[next++ % plan.size()];
    std::vector<fake::access> used{fake::read_of(marks.last(1))};
    for (const launch_argument& a : plan.inputs(l))
      if (a.allocation != launch_argument::bound) used.push_back(fake::read_of(marks.subspan(a.allocation, 1)));
    for (const launch_argument& a : plan.outputs(l))
      if (a.allocation != launch_argument::bound) used.push_back(fake::write_of(marks.subspan(a.allocation, 1)));
    fake::enqueue(
        c.stream, [] {}, std::move(used), "the marks of operation " + std::to_string(index(c.operation)));
    fake::hash_kernels{}(c);
  }
};

/// The caller writes the input before, between and after two steps, and reads the outputs. `replayed`: the steps are
/// replays of a capture.
void run_two_steps(const fake::random_step& x, std::uint32_t streams, bool replayed) {
  const cuda_memory input(64);
  const cuda_stream stream = make_cuda_stream();
  const launch_plan plan = x.launches({.streams = streams});
  const cuda_memory marks(plan.lives().allocations.size() + 1);
  cuda_executor run(plan, marked_kernels{plan, marks.bytes()});
  x.bind(run, input.bytes());
  const auto feed = [&] {
    throw_on_cuda_error(cudaMemsetAsync(input.data(), 7, input.size(), stream.get()));
    throw_on_cuda_error(cudaMemsetAsync(marks.data() + marks.size() - 1, 7, 1, stream.get()));
  };
  bytes_vector got;
  feed();
  if (replayed) {
    const cuda_captured_step captured = run.capture(1);
    captured.launch(stream.get());
    feed();
    captured.launch(stream.get());
  } else {
    run.run(stream.get(), 1);
    feed();
    run.run(stream.get(), 1);
  }
  x.fetch(run, stream.get(), got);
  feed();
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
}

}  // namespace

TEST_CASE("a step without one of its waits is noticed, eager and captured") {
  fake::waits_count all;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 6 + static_cast<std::uint32_t>(seed % 12));
    const auto streams = static_cast<std::uint32_t>(2 + seed % 3);
    for (const bool replayed : {false, true})
      all.add([&](std::size_t dropped) {
        return fake::without_wait(seed, dropped, [&] { run_two_steps(x, streams, replayed); });
      });
  }
  CHECK(all.waits > 300);
  CHECK(all.noticed == all.waits);
  CHECK(all.implied == 0);  // no wait is superfluous
}
