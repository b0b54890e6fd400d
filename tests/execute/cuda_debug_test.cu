// SPDX-License-Identifier: BSL-1.0
// The write check on a device: a planted kernel writes one element too many.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "remat/core/error.hpp"
#include "remat/execute/cuda.cuh"
#include "support/overrun_step.cuh"

using namespace remat;

namespace {

/// What the executor says of a step; empty if it says nothing.
std::string message_of_run(std::int64_t input_at, int surplus, cuda_debug debug) {
  try {
    test::run_with_overrun(input_at, surplus, debug, false, 1);
  } catch (const execution_error& e) {
    CHECK(index(e.operation()) == 1);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the write check lets a sound step pass") {
  for (const std::int64_t input_at : {256, 512}) CHECK(message_of_run(input_at, 0, cuda_debug::check_writes).empty());
}

TEST_CASE("the write check names an overrun into an input, and one into free memory") {
  const std::string named = "operation 1 (second) in step 1";
  const std::string what =
      "a kernel has written to byte 256 of the arena, which is neither its output nor its workspace";
  for (const auto& [input_at, where] : {std::pair{std::int64_t{256}, "it belongs to input tensor 0 (a)"},
                                        std::pair{std::int64_t{512}, "1 byte behind the end of output tensor 1 (b)"}}) {
    const std::string said = message_of_run(input_at, 1, cuda_debug::check_writes);
    CHECK(said.find(named) == 0);
    CHECK_MESSAGE(said.find(what) != std::string::npos, said);
    CHECK_MESSAGE(said.find(where) != std::string::npos, said);
  }
}

TEST_CASE("without the write check, nobody sees that overrun") {
  CHECK(message_of_run(512, 1, cuda_debug::synchronize).empty());
}
