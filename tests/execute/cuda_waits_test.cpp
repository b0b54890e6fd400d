// SPDX-License-Identifier: BSL-1.0

// Each wait of a training step is needed: without it, the fake runtime finds a race.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
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

/// What a program did that ran without one of its waits.
struct outcome {
  std::size_t reports = 0;
  std::vector<std::uint8_t> implied;  // of each wait: its stream followed the event already
  std::string first;
  bool refused = false;  // the capture was refused: a stream is outside of it, or not joined
};

/// The caller writes the input before, between and after two steps, and reads the outputs. Wait number `dropped`
/// has no effect. `replayed`: the steps are replays of a capture.
outcome without_wait(const fake::random_step& x, std::uint32_t streams, std::uint64_t seed, std::size_t dropped,
                     bool replayed) {
  fake::reset(seed);
  fake::the().expects_reports = true;
  fake::the().drop_wait = dropped;
  outcome out;
  {
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
    try {
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
    } catch (const error&) {
      out.refused = true;
    }
    fake::run_pending();
  }
  out.reports = fake::the().reports.size();
  if (out.reports != 0) out.first = fake::the().reports.front();
  out.implied = fake::the().wait_implied;
  fake::the().reports.clear();
  return out;
}

}  // namespace

TEST_CASE("a step without one of its waits is noticed, eager and captured") {
  std::size_t waits = 0, noticed = 0, implied = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 6 + static_cast<std::uint32_t>(seed % 12));
    const auto streams = static_cast<std::uint32_t>(2 + seed % 3);
    for (const bool replayed : {false, true}) {
      const outcome whole = without_wait(x, streams, seed, ~std::size_t{0}, replayed);
      REQUIRE_MESSAGE(whole.reports == 0, whole.first);
      REQUIRE(!whole.refused);
      for (std::size_t w = 0; w < whole.implied.size(); ++w) {
        CAPTURE(w);
        const outcome less = without_wait(x, streams, seed, w, replayed);
        ++waits;
        noticed += less.reports != 0 || less.refused;
        implied += whole.implied[w];
      }
    }
  }
  CHECK(waits > 300);
  CHECK(noticed == waits);
  CHECK(implied == 0);  // no wait is superfluous
}
