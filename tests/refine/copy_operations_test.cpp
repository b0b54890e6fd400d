// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/copy_operations.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/method/evict.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("computes of the instance are a legal sequence of the whole, in the same time") {
  std::size_t lower = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 40)});
    const flat_graph& g = whole.graph();
    random_source random(seed);
    std::vector<std::uint8_t> on_host(g.num_tensors);
    for (auto& h : on_host) h = random.below(2) != 0;
    const copy_operations other(whole, on_host, random.below(g.num_operations));
    CAPTURE(seed);
    CHECK(!other.instance.link());
    CHECK(other.instance.graph().needed_time == doctest::Approx(g.needed_time).epsilon(1e-12));
    lower += other.instance.graph().baseline_peak < g.baseline_peak;
    for (const double part : {1.0, 0.7}) {
      const solution s = evict(test::within(other.instance, part));
      if (!s.plan) continue;
      const check_report r = check(whole, schedule_computes(whole, other.computes(*s.plan)));
      CHECK(r.valid());
      CHECK(r.time <= s.time * (1 + 1e-12));
    }
  }
  CHECK(lower > 50);
}

TEST_CASE("without tensors on the host, the instance is the problem") {
  const problem whole = test::random_problem(7, {.operations = 20});
  const copy_operations same(whole, std::vector<std::uint8_t>(whole.graph().num_tensors, 0), 0);
  CHECK(same.instance.graph().num_operations == whole.graph().num_operations);
  CHECK(same.instance.graph().baseline_peak == whole.graph().baseline_peak);
  CHECK(same.instance.budget() == whole.budget());
}
