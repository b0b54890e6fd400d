// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/chain_schedule.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace {

using remat::chain_action;
using remat::chain_problem;
using remat::chain_report;
using remat::chain_step;
using enum remat::chain_action;

// Two stages: x_0 = 10, x_1 = 20 (saved 50), x_2 = 5 (saved 8).
chain_problem two() {
  return chain_problem(remat::chain("two", 10,
                                    {{.forward_time = 1,
                                      .backward_time = 2,
                                      .output_bytes = 20,
                                      .saved_bytes = 50,
                                      .forward_overhead_bytes = 3,
                                      .backward_overhead_bytes = 4},
                                     {.forward_time = 10,
                                      .backward_time = 20,
                                      .output_bytes = 5,
                                      .saved_bytes = 8,
                                      .forward_overhead_bytes = 1,
                                      .backward_overhead_bytes = 2}}));
}

TEST_CASE("everything kept: times and peaks by hand") {
  const std::vector<chain_step> steps{{forward_all, 1}, {forward_all, 2}, {forward_all, 3},
                                      {backward, 3},    {backward, 2},    {backward, 1}};
  const chain_report r = simulate(two(), steps);
  CHECK(r.legal);
  CHECK(r.time == 33);
  CHECK(r.forwards == 2);
  CHECK(r.peak_bytes == 10 + 50 + 8 + 20 + 2);  // the backward of stage 2
}

TEST_CASE("the first stage again: times and peaks by hand") {
  const std::vector<chain_step> steps{{forward_checkpoint, 1}, {forward_all, 2}, {forward_all, 3}, {backward, 3},
                                      {backward, 2},           {forward_all, 1}, {backward, 1}};
  const chain_report r = simulate(two(), steps);
  CHECK(r.legal);
  CHECK(r.time == 34);
  CHECK(r.forwards == 3);
  CHECK(r.peak_bytes == 10 + 50 + 20 + 3);  // the second forward of stage 1, beside the gradient of x_1
}

TEST_CASE("what is not legal, and where") {
  struct wrong {
    std::vector<chain_step> steps;
    std::size_t at;
  };
  const std::vector<wrong> all{
      {{{forward_all, 2}}, 0},   // no input
      {{{forward_none, 4}}, 0},  // no such stage
      {{{forward_none, 0}}, 0},
      {{{backward, 3}}, 0},                                                        // nothing ran
      {{{forward_all, 1}, {backward, 1}}, 1},                                      // no gradient
      {{{forward_all, 1}, {forward_all, 1}}, 1},                                   // its output is there
      {{{forward_all, 1}, {forward_all, 2}, {forward_none, 3}}, 2},                // of the loss
      {{{forward_all, 1}, {forward_all, 2}, {forward_all, 3}, {backward, 3}}, 4},  // not to the end
      {{{forward_none, 1}, {forward_none, 2}, {forward_all, 3}, {backward, 3}, {backward, 2}}, 4},  // nothing saved
      {{{forward_all, 1}, {forward_none, 2}, {forward_all, 3}, {backward, 3}, {backward, 3}}, 4},   // twice
      {{{forward_all, 1}, {forward_all, 2}, {forward_all, 3}, {backward, 3}, {backward, 2}, {forward_all, 2}}, 5},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const chain_report r = simulate(two(), all[i].steps);
    CHECK_FALSE(r.legal);
    CHECK(r.at == all[i].at);
    CHECK_FALSE(r.message.empty());
  }
}

}  // namespace
