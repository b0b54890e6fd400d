// SPDX-License-Identifier: BSL-1.0
#include "remat/problem/detail/listed_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "support/random_graph.hpp"

using namespace remat;

TEST_CASE("a chain with its backward turns behind its last forward") {
  training_graph g;
  std::vector<tensor_id> y{g.add_tensor({.bytes = 1, .kind = tensor_kind::input})};
  for (int layer = 0; layer < 5; ++layer) {
    y.push_back(g.add_tensor({.bytes = 1}));
    g.add_operation({.inputs = {y[y.size() - 2]}, .outputs = {y.back()}});
  }
  for (tensor_id gradient = y.back(); !y.empty(); y.pop_back()) {
    const tensor_id next = g.add_tensor({.bytes = 1});
    g.add_operation({.inputs = {y.back(), gradient}, .outputs = {next}});
    gradient = next;
    if (y.size() == 1) g.add_final_output(next);
  }
  CHECK(detail::find_forward_end(problem(g, unit_cost{}).graph()) == 6);
}

TEST_CASE("phases of the graph decide, the loss among the forward pass; estimates replace what is missing") {
  using enum op_phase;
  const auto graph_with = [](const std::vector<op_phase>& phases) {
    training_graph g;
    for (const op_phase phase : phases) {
      const tensor_id t = g.add_tensor({.bytes = 1});
      g.add_operation({.phase = phase, .outputs = {t}});
      g.add_final_output(t);  // nothing is alive: the estimate is the last operation
    }
    return problem(g, unit_cost{});
  };
  const auto turn_of = [&](const std::vector<op_phase>& phases) {
    return detail::find_forward_end(graph_with(phases).graph());
  };
  CHECK(turn_of({forward, forward, backward, backward, backward}) == 2);
  CHECK(turn_of({forward, forward, loss, backward, backward}) == 3);
  CHECK(turn_of({loss, backward, backward}) == 1);
  SUBCASE("one phase is unknown") {
    CHECK(turn_of({forward, unknown, backward, backward}) == 3);
    CHECK(turn_of({forward, forward, backward, unknown}) == 3);
  }
  SUBCASE("none is given") {
    const problem p = graph_with({unknown, unknown, unknown});
    CHECK(p.graph().phase.empty());
    CHECK(detail::find_forward_end(p.graph()) == 2);
  }
  SUBCASE("the order contradicts them") {
    CHECK(turn_of({forward, backward, forward, backward}) == 3);
    CHECK(turn_of({forward, backward, loss, backward}) == 3);
  }
  SUBCASE("one pass alone") {
    CHECK(turn_of({forward, forward, loss}) == 2);
    CHECK(turn_of({backward, backward, backward}) == 2);
  }
  CHECK(detail::find_forward_end(problem(training_graph{}, unit_cost{}).graph()) == 0);
}

TEST_CASE("the estimate is the last operation before which the most tensors are alive") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 12)});
    const flat_graph& s = p.graph();
    std::uint32_t turn = s.num_operations;
    std::size_t most = 0;
    for (std::uint32_t at = 0; at < s.num_operations; ++at) {
      std::size_t alive = 0;
      for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
        bool made = false, read = false;
        for (const std::uint32_t o : s.producers[t]) made = made || (s.needed[o] && o < at);
        for (const std::uint32_t o : s.consumers[t]) read = read || (s.needed[o] && o >= at);
        alive += made && read && !s.final_output[t];
      }
      if (alive >= most) {
        most = alive;
        turn = at;
      }
    }
    CAPTURE(seed);
    REQUIRE(detail::estimate_forward_end(s) == turn);
  }
}

TEST_CASE("working sets and the listed order's memory") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 12, .dead = 0});
    const flat_graph& s = p.graph();
    if (std::count(s.needed.begin(), s.needed.end(), 0) > 0) continue;
    const auto memory = detail::listed_order_sums<std::int64_t>(s, [&](std::uint32_t t) { return s.bytes[t]; });
    std::int64_t peak = 0;
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      peak = std::max(peak, memory[o] + s.workspace[o]);
      CHECK(detail::working_set_bytes(s, o) <= memory[o] + s.workspace[o]);
    }
    CHECK(peak == s.baseline_peak);
  }
}
