// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "remat/core/error.hpp"

using remat::chain;
using remat::chain_stage;

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
