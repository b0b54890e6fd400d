// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "remat/core/error.hpp"

namespace {

using remat::chain;
using remat::chain_problem;
using remat::chain_report;
using remat::chain_stage;
using remat::chain_step;
using enum remat::chain_action;

TEST_CASE("the peak and the time of storing all, against the step by step simulation") {
  std::mt19937_64 random(1);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    std::vector<chain_stage> stages(1 + static_cast<std::size_t>(below(8)));
    for (chain_stage& s : stages) {
      s.output_bytes = below(100);
      s = {static_cast<double>(below(9)),
           static_cast<double>(below(9)),
           s.output_bytes,
           s.output_bytes + below(100),
           below(50),
           below(50)};
    }
    const std::int64_t input = below(100);
    std::int64_t kept = input, peak = 0;
    double time = 0;
    for (const chain_stage& s : stages) {  // forward: the output is there twice, as the format counts it
      kept += s.saved_bytes;
      peak = std::max(peak, kept + s.output_bytes + s.forward_overhead_bytes);
      time += s.forward_time;
    }
    for (std::size_t i = stages.size(); i-- > 0;) {  // backward: the gradient of x_i stands beside what is kept
      peak = std::max(peak, kept + stages[i].output_bytes + stages[i].backward_overhead_bytes);
      kept -= stages[i].saved_bytes;
      time += stages[i].backward_time;
    }
    const chain c("c", input, stages);
    CHECK(c.store_all_peak_bytes() == peak);
    CHECK(c.store_all_time() == doctest::Approx(time));
    CHECK(c.length() == stages.size());
    CHECK(c.activation_bytes(0) == input);
    for (std::size_t i = 1; i <= c.length(); ++i) CHECK(c.activation_bytes(i) == c.stage(i).output_bytes);
  }
}

TEST_CASE("what no chain may have") {
  const chain_stage good{1, 2, 10, 20, 5, 5};
  const auto with = [&](auto change) {
    chain_stage s = good;
    change(s);
    return chain("c", 10, {good, s});
  };
  CHECK_NOTHROW((void)with([](chain_stage&) {}));
  CHECK_NOTHROW((void)with([](chain_stage& s) { s = {}; }));
  CHECK_THROWS_AS(chain("c", 10, {}), remat::bad_graph);
  CHECK_THROWS_AS(chain("c", -1, {good}), remat::bad_cost);
  CHECK_THROWS_WITH_AS((void)with([](chain_stage& s) { s.saved_bytes = 9; }), doctest::Contains("stage 2"),
                       remat::bad_graph);
  CHECK_THROWS_WITH_AS((void)with([](chain_stage& s) { s.output_bytes = -1; }), doctest::Contains("stage 2"),
                       remat::bad_cost);
  CHECK_THROWS_AS((void)with([](chain_stage& s) { s.saved_bytes = -1; }), remat::bad_cost);
  CHECK_THROWS_AS((void)with([](chain_stage& s) { s.forward_overhead_bytes = -1; }), remat::bad_cost);
  CHECK_THROWS_AS((void)with([](chain_stage& s) { s.backward_overhead_bytes = -1; }), remat::bad_cost);
  CHECK_THROWS_AS((void)with([](chain_stage& s) { s.forward_time = -1; }), remat::bad_cost);
  CHECK_THROWS_AS((void)with([](chain_stage& s) { s.backward_time = std::nan(""); }), remat::bad_cost);
  CHECK_THROWS_AS((void)with([](chain_stage& s) { s.forward_time = std::numeric_limits<double>::infinity(); }),
                  remat::bad_cost);
  CHECK_THROWS_AS((void)with([](chain_stage& s) { s.forward_time = s.backward_time = 1e308; }), remat::bad_cost);
  CHECK_THROWS_AS((void)with([](chain_stage& s) { s.saved_bytes = std::numeric_limits<std::int64_t>::max() - 50; }),
                  remat::bad_cost);
}

// Two stages: x_0 = 10, x_1 = 20 (saved 50), x_2 = 5 (saved 8).
chain_problem two() {
  return chain_problem(chain("two", 10,
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

TEST_CASE("a budget as a fraction of the peak of storing all") {
  const chain_problem p = two();
  CHECK(p.with_budget_fraction(0.5).budget() == p.stages().store_all_peak_bytes() / 2);
  CHECK(p.with_budget_fraction(1).budget() == p.stages().store_all_peak_bytes());
  CHECK_THROWS_AS((void)p.with_budget_fraction(2), remat::bad_argument);
}

}  // namespace
