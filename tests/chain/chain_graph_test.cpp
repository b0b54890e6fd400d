// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "remat/cost/models.hpp"
#include "remat/problem/problem.hpp"
#include "support/random_chain.hpp"

using namespace remat;

TEST_CASE("a chain of two stages becomes five operations") {
  const chain c("two", 5,
                {{.forward_time = 1, .backward_time = 2, .output_bytes = 3, .saved_bytes = 10},
                 {.forward_time = 4,
                  .backward_time = 8,
                  .output_bytes = 7,
                  .saved_bytes = 7,
                  .forward_overhead_bytes = 2,
                  .backward_overhead_bytes = 1}});
  const training_graph g = chain_graph(c);
  REQUIRE(g.num_operations() == 5);
  CHECK(g.num_tensors() == 7);  // x0 to x2, the rest of stage 1 alone, three gradients
  const auto op = [](std::size_t k) { return static_cast<op_id>(k); };
  CHECK(g.name(op(2)) == "loss");
  CHECK(g.name(op(3)) == "backward2");
  CHECK(g.phase(op(1)) == op_phase::forward);
  CHECK(g.phase(op(3)) == op_phase::backward);
  CHECK(g.measured_seconds(op(3)) == 8);
  CHECK(g.workspace(op(1)) == 2);
  CHECK(g.workspace(op(3)) == 1);
  CHECK(g.inputs(op(3)).size() == 3);   // x1, x2 and the gradient of x2: stage 2 saves nothing else
  CHECK(g.inputs(op(4)).size() == 4);   // x0, x1, the rest of stage 1, the gradient of x1
  CHECK(g.outputs(op(0)).size() == 2);  // x1 and the rest
  REQUIRE(g.final_outputs().size() == 1);
  CHECK(g.name(g.final_outputs()[0]) == "gradient0");
  const problem p(g, measured_cost{});
  CHECK(p.graph().baseline_time == 15);
  // x0 is not counted. The backward of stage 2 has x1 and the rest, x2, both gradients, and its workspace.
  CHECK(p.graph().baseline_peak == 10 + 7 + 7 + 3 + 1);
}

TEST_CASE("the baseline of the graph is that of the chain, with both gradients of a backward") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const chain c = test::random_chain(seed, 1 + seed % 9);
    const problem p(chain_graph(c), measured_cost{});
    CHECK(p.graph().baseline_time == c.store_all_time());
    std::int64_t saved = 0, peak = 0;
    for (std::size_t i = 1; i <= c.length(); ++i) {
      const chain_stage& s = c.stage(i);
      saved += s.saved_bytes;
      peak = std::max({peak, saved + s.forward_overhead_bytes,
                       saved + s.output_bytes + c.activation_bytes(i - 1) + s.backward_overhead_bytes});
    }
    CHECK(p.graph().baseline_peak == std::max(peak, saved + c.activation_bytes(c.length())));
  }
}
