// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/operation_chain.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/method/revolve.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using detail::operation_chain;

namespace {

problem graph_of(const chain& c) { return problem(chain_graph(c), measured_cost{}); }

}  // namespace

TEST_CASE("the graph of a chain: a stage for each of its stages, and the loss in the last one") {
  const std::uint32_t n = 7;
  const problem p = graph_of(test::unit_chain(n, 3));
  const std::optional<operation_chain> c = operation_chain::find(p.graph());
  REQUIRE(c);
  CHECK(c->length() == n);
  for (std::uint32_t s = 1; s <= n; ++s) {
    CAPTURE(s);
    REQUIRE(c->forward(s).size() == (s < n ? 1 : 2));
    CHECK(c->forward(s)[0] == s - 1);
    REQUIRE(c->backward(s).size() == 1);
    CHECK(c->backward(s)[0] == 2 * n + 1 - s);  // behind the forwards and the loss, the last stage first
    CHECK(c->crossing_bytes(s) == (s < n ? 1 : 0));
  }
}

TEST_CASE("a forward that reads more than what stands right before it is no chain") {
  for (const bool skips : {false, true}) {
    CAPTURE(skips);
    training_graph g("skip");
    std::vector<tensor_id> x{g.add_tensor({.name = "x0", .bytes = 1, .kind = tensor_kind::input})};
    for (int i = 1; i <= 4; ++i) {
      x.push_back(g.add_tensor({.name = "x", .bytes = 1}));
      std::vector<tensor_id> inputs{x[x.size() - 2]};
      if (skips && i == 4) inputs.push_back(x[1]);
      g.add_operation({.phase = op_phase::forward, .inputs = inputs, .outputs = {x.back()}, .seconds = 1.0});
    }
    tensor_id gradient = x[4];
    for (std::size_t i = 4; i >= 1; --i) {
      const tensor_id next = g.add_tensor({.name = "g", .bytes = 1, .kind = tensor_kind::gradient});
      g.add_operation({.phase = op_phase::backward, .inputs = {x[i - 1], gradient}, .outputs = {next}, .seconds = 1.0});
      gradient = next;
    }
    g.add_final_output(gradient);
    CHECK(operation_chain::find(problem(g, measured_cost{}).graph()).has_value() == !skips);
  }
  for (const char* name : {"unet5-b16-256", "gpt2-small-b8-s1024", "resnet50-b64-224"})
    CHECK_FALSE(operation_chain::find(test::bundled_problem(name).graph()));
}

TEST_CASE("every number of slots gives a legal schedule that runs forwards again as often as the formula says") {
  for (const std::uint32_t n : {2U, 3U, 10U, 41U}) {
    const problem p = graph_of(test::unit_chain(n, 2));
    const std::optional<operation_chain> c = operation_chain::find(p.graph());
    REQUIRE(c);
    for (std::uint32_t slots = 0; slots < n; ++slots) {
      CAPTURE(n);
      CAPTURE(slots);
      const check_report report =
          check(p, schedule_computes(p, c->expand(p.graph(), revolve_steps(c->length(), slots))));
      CHECK(report.valid());
      CHECK(report.recomputes == revolve_advances(n, slots));
    }
  }
}

TEST_CASE("random graphs whose forward line is a chain, operations that run once among them: always legal") {
  int chains = 0, once = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    CAPTURE(seed);
    const problem p = test::random_problem(
        seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 6), .accumulate = 20, .once = 30});
    const std::optional<operation_chain> c = operation_chain::find(p.graph());
    if (!c) continue;
    ++chains;
    for (std::uint32_t s = 1; s <= c->length(); ++s)
      for (const std::uint32_t o : c->forward(s)) once += p.graph().once[o] != 0;
    for (std::uint32_t slots = 0; slots < c->length(); ++slots) {
      CAPTURE(slots);
      CHECK(check(p, schedule_computes(p, c->expand(p.graph(), revolve_steps(c->length(), slots)))).valid());
    }
  }
  CHECK(chains > 50);
  CHECK(once > 20);
}
