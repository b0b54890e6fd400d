// SPDX-License-Identifier: BSL-1.0

// A program that is compiled with `nvcc --default-stream per-thread`: the null stream is the calling thread's own.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "remat/execute/cuda.cuh"
#include "remat/execute/detail/cuda_streams.cuh"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"

using namespace remat;
using remat::detail::cuda::cuda_arena;
namespace fake = remat::test::fake_cuda;
using fake::bytes_vector;

namespace {

template <class F>
void on_another_thread(F&& work) {
  std::thread(std::forward<F>(work)).join();
}

}  // namespace

TEST_CASE("the fake runtime has a null stream for each thread, which is not the legacy stream") {
  fake::reset();
  CUstream_st* const mine = fake::stream_of(nullptr);
  CHECK(mine == fake::stream_of(cudaStreamPerThread));
  CHECK(mine != fake::stream_of(cudaStreamLegacy));
  CUstream_st* other = nullptr;
  on_another_thread([&] { other = fake::stream_of(nullptr); });
  CHECK(other != mine);
}

TEST_CASE("which streams are the legacy one and the thread's own") {
  using namespace remat::detail::cuda;
  CHECK_FALSE(is_legacy(nullptr));
  CHECK(is_legacy(cudaStreamLegacy));
  CHECK_FALSE(is_legacy(cudaStreamPerThread));
  CHECK(is_per_thread(nullptr));
  CHECK(is_per_thread(cudaStreamPerThread));
  CHECK_FALSE(is_per_thread(cudaStreamLegacy));
}

TEST_CASE("a step runs on the null streams of several threads, in memory of a pool") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 4 + static_cast<std::uint32_t>(seed % 16));
    if (x.where.arena_bytes == 0) continue;
    fake::reset(seed);
    const bytes_vector content(64, std::byte{7});
    const fake::resident input(content);
    std::optional<cuda_executor<fake::hash_kernels>> run;
    run.emplace(x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 3)}), fake::hash_kernels{},
                cuda_options{.arena = cuda_memory(static_cast<std::size_t>(x.where.arena_bytes), nullptr)});
    x.bind(*run, input.bytes());
    bytes_vector got[3];
    const auto step = [&](std::size_t i) {
      if (i == 1)
        run->capture(i).launch(nullptr, i);
      else
        run->run(nullptr, i);
      x.fetch(*run, nullptr, got[i]);
      throw_on_cuda_error(cudaStreamSynchronize(nullptr));  // steps on several streams are ordered by the caller
    };
    on_another_thread([&] { step(0); });
    on_another_thread([&] { step(1); });
    step(2);
    for (std::size_t i = 0; i < 3; ++i) CHECK(got[i] == x.expected(i, content));
    if (seed % 2 == 0) on_another_thread([&] { run->run(nullptr, 5); });
    // The memory is freed in the order of the null stream of the thread that destroys the executor.
    if (seed % 3 == 0)
      on_another_thread([&] { run.reset(); });
    else
      run.reset();
    throw_on_cuda_error(cudaDeviceSynchronize());
    CHECK(fake::the().reports.empty());
    CHECK(fake::the().memory.size() == fake::the().lent);
  }
}

TEST_CASE("an arena that no step has used is freed behind its allocation, on any thread") {
  fake::reset();
  std::optional<cuda_arena> arena;
  arena.emplace(cuda_memory(64, nullptr), 64, 1);
  on_another_thread([&] { arena.reset(); });
  throw_on_cuda_error(cudaDeviceSynchronize());
  CHECK(fake::the().reports.empty());
  CHECK(fake::the().held() == 0);
}

TEST_CASE("the null stream can be captured, and is no stream of a plan") {
  const fake::random_step x(7, 14);
  fake::reset();
  const bytes_vector content(64, std::byte{7});
  const fake::resident input(content);
  {
    cuda_executor run(x.launches({.streams = 3}), fake::hash_kernels{});
    x.bind(run, input.bytes());
    cuda_captured_step captured = run.capture_on(nullptr, 1);
    bytes_vector got;
    CHECK(run.update_on(nullptr, captured, 2));
    captured.launch(nullptr);
    x.fetch(run, nullptr, got);
    throw_on_cuda_error(cudaStreamSynchronize(nullptr));
    CHECK(got == x.expected(2, content));
    CHECK_THROWS_AS(static_cast<void>(run.capture_on(cudaStreamLegacy)), bad_argument);
    CHECK(fake::calls("cudaStreamGetDevice") == 0);
  }
  for (const cudaStream_t s : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread})
    CHECK_THROWS_AS(cuda_executor(x.launches({.streams = 2}), fake::hash_kernels{}, {.streams = {s}}), bad_argument);
}
