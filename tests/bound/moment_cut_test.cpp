// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/moment_cut.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/problem/problem.hpp"
#include "support/moment_choices.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

using test::every_choice;

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE("the cut is the cheapest of all choices") {
  int several = 0, forced = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    test::random_graph_options options;
    options.operations = 3 + static_cast<std::uint32_t>(seed % 4);
    options.once = seed % 3 == 0 ? 0 : 25;
    const problem p = test::random_problem(seed, options);
    const flat_graph& s = p.graph();
    moment_cut cut(s);
    for (std::uint32_t k = 0; k < s.num_operations; ++k) {
      if (!s.needed[k]) continue;
      cut.at(k);
      REQUIRE(cut.moment() == k);
      double prices[] = {0.3, 1.0, 4.0, 0.1, 0.7, 1e-9, 300};
      for (double& price : prices) price = std::min(price, cut.highest_price());
      double least[7];
      std::int64_t least_bytes = std::numeric_limits<std::int64_t>::max();
      std::fill(std::begin(least), std::end(least), infinity);
      every_choice(s, k, [&](double time, std::int64_t bytes) {
        for (int i = 0; i < 7; ++i) least[i] = std::min(least[i], time + prices[i] * static_cast<double>(bytes));
        least_bytes = std::min(least_bytes, bytes);
      });
      REQUIRE(std::isfinite(least[0]));  // to keep everything is a choice
      for (int i = 0; i < 7; ++i) {
        INFO("seed ", seed, " operation ", k, " price ", prices[i]);
        const double value = cut.price(prices[i]);
        REQUIRE(value <= least[i]);
        if (cut.total_time() == 0) continue;  // nothing that could run again takes time: a price means nothing
        REQUIRE(value >= least[i] * (1 - 1e-12) - 1e-12);
        const moment_choice c = cut.choice();
        REQUIRE(c.time + prices[i] * static_cast<double>(c.bytes) == doctest::Approx(least[i]).epsilon(1e-9));
        several += c.time > 0 && c.bytes > 0;
        if (i == 1) cut.keep();  // 4, then back: to 0.7 from the start, to 300 from what was kept
        std::int64_t bytes = 0;
        for (const tensor_id t : cut.resident()) bytes += s.bytes[index(t)];
        REQUIRE(bytes == c.bytes);
        double time = 0;
        for (const op_id o : cut.again()) time += s.time[index(o)];
        REQUIRE(time == c.time);
      }
      const std::int64_t bytes = cut.least_bytes();
      REQUIRE(bytes == least_bytes);
      REQUIRE(cut.choice().bytes == bytes);
      REQUIRE((cut.has_unrepeatable() || bytes == 0));
      forced += bytes > 0;
      if (cut.total_time() > 0) REQUIRE(cut.price(0.3) >= least[0] * (1 - 1e-12) - 1e-12);  // after the other mode
    }
  }
  CHECK(several > 500);
  CHECK(forced > 300);
}

TEST_CASE("rounding is downwards, also for times and sizes that are no whole numbers of anything") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    test::random_graph_options options;
    options.most_time = 3;
    const training_graph graph = test::random_graph(seed, options);
    struct awkward {
      [[nodiscard]] double time(const training_graph& g, op_id o) const { return g.measured_seconds(o) * 1.1e-7 / 3; }
      [[nodiscard]] std::int64_t bytes(const training_graph& g, tensor_id t) const {
        return g.bytes(t) * 123456789012345 + g.bytes(t);
      }
    };
    const problem p(graph, awkward{});
    const flat_graph& s = p.graph();
    moment_cut cut(s);
    for (std::uint32_t k = 0; k < s.num_operations; ++k) {
      if (!s.needed[k]) continue;
      cut.at(k);
      for (const double price : {1e-25, 3.3e-23, 1.7e-22}) {
        long double least = std::numeric_limits<long double>::infinity();
        every_choice(s, k, [&](double time, std::int64_t bytes) {
          least = std::min(least, static_cast<long double>(time) +
                                      static_cast<long double>(price) * static_cast<long double>(bytes));
        });
        const double value = cut.price(std::min(price, cut.highest_price()));
        REQUIRE(static_cast<long double>(value) <= least);
        if (price <= cut.highest_price() && cut.total_time() > 0)
          REQUIRE(static_cast<double>(least) <= value * (1 + 1e-12) + 1e-20);
      }
    }
  }
}

}  // namespace
