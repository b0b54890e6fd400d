// SPDX-License-Identifier: BSL-1.0
#include "remat/problem/problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"

namespace {

using remat::op_id;
using remat::tensor_id;
using remat::tensor_kind;

/// A training step of up to 25 operations: several outputs, accumulation, effects, parameters, tensors nobody reads.
remat::training_graph random_graph(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  remat::training_graph g;
  std::vector<tensor_id> readable;
  for (std::uint64_t n = below(4); n > 0; --n)
    readable.push_back(g.add_tensor({.name = "p", .bytes = 1000, .kind = tensor_kind::parameter}));
  std::vector<tensor_id> open;  // gradients that more operations may add to
  for (std::uint64_t n = below(25); n > 0; --n) {
    remat::operation_spec o;
    for (std::uint64_t k = below(4); k > 0 && !readable.empty(); --k)
      o.inputs.push_back(readable[below(readable.size())]);
    std::vector<tensor_id> made;
    for (std::uint64_t k = below(4); k > 0; --k)
      made.push_back(g.add_tensor({.name = "t", .bytes = static_cast<std::int64_t>(below(100))}));
    o.outputs = made;
    if (below(3) == 0) open.push_back(g.add_tensor({.name = "g", .bytes = 10, .kind = tensor_kind::gradient}));
    if (!open.empty() && (below(2) == 0 || n == 1)) {
      o.outputs.insert(o.outputs.begin(), open.back());
      if (below(2) == 0 || n == 1) {
        made.push_back(open.back());
        open.pop_back();
      }
    }
    o.workspace = static_cast<std::int64_t>(below(60));
    o.recomputable = below(5) != 0;
    g.add_operation(o);
    readable.insert(readable.end(), made.begin(), made.end());
  }
  for (std::uint64_t n = below(3); n > 0 && !readable.empty(); --n)
    g.add_final_output(readable[below(readable.size())]);
  return g;
}

template <class Range>
std::set<std::uint32_t> set_of(const Range& range) {
  std::set<std::uint32_t> out;
  for (const auto x : range) out.insert(static_cast<std::uint32_t>(x));
  return out;
}

/// One tensor for each of `bytes`, made by an operation of its own; the last one is the step's output.
remat::training_graph row_of(const std::vector<std::int64_t>& bytes) {
  remat::training_graph g;
  for (const std::int64_t b : bytes) {
    remat::operation_spec o;
    o.outputs = {g.add_tensor({.name = "t", .bytes = b})};
    g.add_operation(o);
  }
  g.add_final_output(static_cast<tensor_id>(bytes.size() - 1));
  return g;
}

std::string error_of(const remat::training_graph& g) {
  try {
    (void)remat::problem(g, remat::unit_cost{});
  } catch (const remat::bad_graph& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("the arrays say what the graph says") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const remat::training_graph g = random_graph(seed);
    const remat::problem p(g, remat::callable_cost{[](op_id o) { return static_cast<double>(index(o)) + 0.5; }});
    const remat::flat_graph& s = p.graph();
    REQUIRE(s.num_operations == g.num_operations());
    REQUIRE(s.num_tensors == g.num_tensors());
    REQUIRE(s.inputs.size() == s.num_operations);
    REQUIRE(s.producers.size() == s.num_tensors);
    std::vector<std::set<std::uint32_t>> producers(s.num_tensors), consumers(s.num_tensors);
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      const auto id = static_cast<op_id>(o);
      std::set<std::uint32_t> inputs;
      for (const tensor_id t : g.inputs(id))
        if (!g.always_resident(t)) {
          inputs.insert(static_cast<std::uint32_t>(t));
          consumers[index(t)].insert(o);
        }
      for (const tensor_id t : g.outputs(id)) producers[index(t)].insert(o);
      CHECK(set_of(s.inputs[o]) == inputs);
      CHECK(s.inputs[o].size() == inputs.size());
      CHECK(set_of(s.outputs[o]) == set_of(g.outputs(id)));
      CHECK(std::is_sorted(s.inputs[o].begin(), s.inputs[o].end()));
      CHECK(std::is_sorted(s.outputs[o].begin(), s.outputs[o].end()));
      CHECK(s.time[o] == o + 0.5);
      CHECK(s.workspace[o] == g.workspace(id));
      const int once = !g.recomputable(id)         ? remat::flat_graph::once_as_marked
                       : g.outputs(id).size() == 0 ? remat::flat_graph::once_for_effect
                                                   : 0;
      CHECK(s.once[o] == once);
    }
    for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
      const auto id = static_cast<tensor_id>(t);
      CHECK(set_of(s.producers[t]) == producers[t]);
      CHECK(set_of(s.consumers[t]) == consumers[t]);
      CHECK(std::is_sorted(s.producers[t].begin(), s.producers[t].end()));
      CHECK(std::is_sorted(s.consumers[t].begin(), s.consumers[t].end()));
      CHECK(s.bytes[t] == (g.always_resident(id) ? 0 : g.bytes(id)));
    }
    std::set<std::uint32_t> outputs;
    for (const tensor_id t : g.final_outputs())
      if (!g.always_resident(t)) outputs.insert(static_cast<std::uint32_t>(t));
    CHECK(set_of(s.final_outputs) == outputs);
  }
}

TEST_CASE("baseline and needed operations, against a simulation on sets") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const remat::training_graph g = random_graph(seed);
    const remat::problem p(g, remat::callable_cost{[](op_id o) { return static_cast<double>(index(o) % 7); }});
    const remat::flat_graph& s = p.graph();

    // Before each operation: what was made and is still to be read, to be added to, or is a final output.
    const auto touches = [&](std::uint32_t o, std::uint32_t t) {
      const auto in = g.inputs(static_cast<op_id>(o)), out = g.outputs(static_cast<op_id>(o));
      const auto id = static_cast<tensor_id>(t);
      return std::find(in.begin(), in.end(), id) != in.end() || std::find(out.begin(), out.end(), id) != out.end();
    };
    std::int64_t peak = 0;
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      std::int64_t memory = g.workspace(static_cast<op_id>(o));
      for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
        if (g.always_resident(static_cast<tensor_id>(t))) continue;
        bool made = false, later = s.final_output[t] != 0;
        for (std::uint32_t before = 0; before <= o; ++before)
          for (const tensor_id x : g.outputs(static_cast<op_id>(before))) made = made || index(x) == t;
        for (std::uint32_t after = o; after < s.num_operations; ++after) later = later || touches(after, t);
        if (made && later) memory += g.bytes(static_cast<tensor_id>(t));
      }
      peak = std::max(peak, memory);
    }
    CHECK(s.baseline_peak == peak);

    std::vector<std::uint8_t> needed(s.num_operations, 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::uint32_t o = 0; o < s.num_operations; ++o) {
        bool now = g.outputs(static_cast<op_id>(o)).empty();
        for (const tensor_id t : g.outputs(static_cast<op_id>(o))) {
          now = now || s.final_output[index(t)];
          for (std::uint32_t r = 0; r < s.num_operations; ++r) {
            const auto in = g.inputs(static_cast<op_id>(r));
            now = now || (needed[r] && std::find(in.begin(), in.end(), t) != in.end());
          }
        }
        if (now && !needed[o]) {
          needed[o] = 1;
          changed = true;
        }
      }
    }
    CHECK(s.needed == needed);
    double all = 0, those = 0;
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      all += o % 7;
      if (needed[o]) those += o % 7;
    }
    CHECK(s.baseline_time == all);
    CHECK(s.needed_time == those);
  }
}

TEST_CASE("the same step under another budget shares the arrays") {
  const remat::problem p(random_graph(1), remat::unit_cost{});
  CHECK_FALSE(p.has_budget());
  CHECK(p.budget() == remat::problem::unlimited);
  const remat::problem q = p.with_budget(5);
  CHECK(q.budget() == 5);
  CHECK(q.has_budget());
  CHECK(&q.graph() == &p.graph());
  CHECK_FALSE(p.has_budget());
  CHECK(p.with_budget(0).budget() == 0);
  CHECK_THROWS_AS((void)p.with_budget(-1), remat::bad_argument);
  CHECK_THROWS_AS(remat::problem(random_graph(1), remat::unit_cost{}, -5), remat::bad_argument);
}

TEST_CASE("the same step with a link to the host") {
  const remat::problem plain = remat::problem(random_graph(7), remat::unit_cost{}, 50).with_known_bound(3);
  CHECK_FALSE(plain.link());
  CHECK(plain.host_budget() == remat::problem::unlimited);
  const remat::problem p = plain.with_link({.out = 2, .in = 4, .latency = 0.5}, 70);
  REQUIRE(p.link());
  CHECK(p.link() == remat::host_link{2, 4, 0.5});
  CHECK(p.host_budget() == 70);
  CHECK(p.budget() == 50);
  CHECK(&p.graph() == &plain.graph());
  CHECK_FALSE(p.known_bound());  // it was proven without copies
  CHECK(p.with_budget(9).link() == p.link());
  CHECK(p.with_budget(9).host_budget() == 70);
  CHECK(p.with_known_bound(2).link() == p.link());
  CHECK(p.producing_once({}).link() == p.link());
  CHECK(p.with_link({}).host_budget() == remat::problem::unlimited);
  CHECK_FALSE(p.without_link().link());
  CHECK(p.without_link().budget() == 50);
  CHECK_THROWS_WITH_AS((void)p.with_link({}, -1), "host budget is -1 bytes; it must not be negative",
                       remat::bad_argument);
}

TEST_CASE("operations that write chosen tensors run once, as if the graph had marked them") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const remat::training_graph graph = random_graph(seed);
    const remat::problem p(graph, remat::unit_cost{}, 1000);
    const remat::flat_graph& g = p.graph();
    std::vector<remat::tensor_id> chosen;
    remat::flat_graph marked = g;
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      if ((seed + t) % 3 != 0 || g.producers[t].empty()) continue;
      chosen.push_back(static_cast<remat::tensor_id>(t));
      for (const std::uint32_t o : g.producers[t]) marked.once[o] = 1;
    }
    const remat::problem q = p.with_known_bound(7).producing_once(chosen);
    CHECK(q.graph().once == remat::problem::from_flat(marked).graph().once);
    CHECK(q.graph().inputs.values == g.inputs.values);
    CHECK(q.graph().producers.values == g.producers.values);
    CHECK(q.graph().baseline_peak == g.baseline_peak);
    CHECK(q.budget() == 1000);
    CHECK(q.known_bound() == 7);
    CHECK(p.graph().once == remat::problem(graph, remat::unit_cost{}).graph().once);  // unchanged
  }
  const remat::problem p(random_graph(1), remat::unit_cost{});
  const auto none = static_cast<remat::tensor_id>(p.graph().num_tensors);
  CHECK_THROWS_AS((void)p.producing_once(std::vector{none}), remat::bad_argument);
  for (std::uint32_t t = 0; t < p.graph().num_tensors; ++t)
    if (p.graph().always_resident[t])
      CHECK_THROWS_AS((void)p.producing_once(std::vector{static_cast<remat::tensor_id>(t)}), remat::bad_argument);
}

TEST_CASE("an empty graph is a step of nothing") {
  const remat::problem p(remat::training_graph{}, remat::unit_cost{});
  CHECK(p.graph().num_operations == 0);
  CHECK(p.graph().baseline_peak == 0);
  CHECK(p.graph().baseline_time == 0);
}

TEST_CASE("sizes up to 2^63 − 1 bytes together, and not beyond") {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  CHECK(remat::problem(row_of({largest - 1, 1}), remat::unit_cost{}).graph().baseline_peak == largest - 1);
  CHECK_THROWS_AS(remat::problem(row_of({largest, 1}), remat::unit_cost{}), remat::bad_cost);
  CHECK_THROWS_AS(remat::problem(row_of({largest / 2, largest / 2, 2}), remat::unit_cost{}), remat::bad_cost);
  auto g = row_of({largest - 1, 0});
  remat::operation_spec o;
  o.workspace = 1;
  g.add_operation(o);
  CHECK_NOTHROW(remat::problem(g, remat::unit_cost{}));
  o.workspace = 2;
  g.add_operation(o);
  CHECK_THROWS_AS(remat::problem(g, remat::unit_cost{}), remat::bad_cost);
  // What is always resident is not counted.
  g = row_of({largest});
  g.add_tensor({.name = "p", .bytes = largest, .kind = tensor_kind::parameter});
  CHECK_NOTHROW(remat::problem(g, remat::unit_cost{}));
  // Times.
  CHECK_THROWS_AS(remat::problem(row_of({1, 1}), remat::callable_cost{[](op_id) { return 1e308; }}), remat::bad_cost);
}

TEST_CASE("graphs that are no training step") {
  remat::training_graph g;
  const tensor_id w = g.add_tensor({.name = "w", .bytes = 1, .kind = tensor_kind::parameter});
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 1});
  const tensor_id y = g.add_tensor({.name = "y", .bytes = 1});
  const tensor_id z = g.add_tensor({.name = "z", .bytes = 1});
  const auto operation = [&](const char* name, std::vector<tensor_id> inputs, std::vector<tensor_id> outputs) {
    remat::operation_spec o;
    o.name = name;
    o.inputs = std::move(inputs);
    o.outputs = std::move(outputs);
    g.add_operation(o);
  };
  SUBCASE("a parameter that is written") {
    operation("f", {}, {w});
    CHECK(error_of(g) ==
          "tensor 0 (w) is always resident (a parameter or an input), but operation 0 (f) writes it; such tensors have "
          "no producer");
  }
  SUBCASE("an output twice") {
    operation("f", {w}, {x, y, x});
    CHECK(error_of(g) == "operation 0 (f) lists output 1 twice; it must list it once");
  }
  SUBCASE("a read of what nobody writes") {
    operation("f", {x}, {y});
    CHECK(error_of(g).starts_with("operation 0 (f) reads tensor 1 (x), which no operation writes"));
  }
  SUBCASE("a final output that nobody writes") {
    operation("f", {w}, {y});
    g.add_final_output(x);
    CHECK(error_of(g) == "final output tensor 1 (x) is written by no operation");
  }
  SUBCASE("an order that is not topological") {
    operation("late", {x}, {y});
    operation("early", {w}, {x});
    CHECK(error_of(g).starts_with(
        "operation 0 (late) reads tensor 1 (x) before its producer, operation 1 (early), has run"));
  }
  SUBCASE("a read before the last of several producers") {
    operation("first", {w}, {x});
    operation("reader", {x}, {y});
    operation("second", {w}, {x});
    CHECK(error_of(g).starts_with("operation 1 (reader) reads tensor 1 (x) before its producer, operation 2 (second)"));
  }
  SUBCASE("a cycle of three behind an operation that is in none") {
    operation("before", {w}, {});
    operation("f", {z}, {x});
    operation("g", {x}, {y});
    operation("h", {y}, {z});
    CHECK(error_of(g) ==
          "the graph has a cycle: operation 1 (f) → operation 2 (g) → operation 3 (h) → operation 1 (f); a training "
          "step has none");
  }
  SUBCASE("an operation that reads what it writes") {
    operation("f", {x}, {x});
    CHECK(error_of(g) ==
          "the graph has a cycle: operation 0 (f) → operation 0 (f), which reads and writes tensor 1 (x); an operation "
          "that works in place must write a tensor of its own, of the same bytes");
  }
  SUBCASE("a final output that is always resident, and reads of it, are in order") {
    operation("f", {w, w}, {x});
    operation("g", {x, x, w}, {y, z});
    g.add_final_output(w);
    g.add_final_output(y);
    g.add_final_output(y);
    CHECK(error_of(g) == "none");
  }
}

TEST_CASE("a budget as a fraction of the baseline's peak") {
  remat::training_graph g;
  const remat::tensor_id x = g.add_tensor({.bytes = 10, .kind = remat::tensor_kind::input}),
                         y = g.add_tensor({.bytes = 1003});
  g.add_operation({.inputs = {x}, .outputs = {y}});
  g.add_final_output(y);
  const remat::problem p(g, remat::unit_cost{});
  const std::int64_t peak = p.graph().baseline_peak;
  CHECK(p.with_budget_fraction(1).budget() == peak);
  CHECK(p.with_budget_fraction(0).budget() == 0);
  CHECK(p.with_budget_fraction(0.5).budget() == peak / 2);
  const remat::problem linked = p.with_link({.out = 1, .in = 1, .latency = 0}, 7).with_budget_fraction(0.25);
  CHECK(linked.budget() == peak / 4);
  CHECK(linked.host_budget() == 7);
  CHECK_THROWS_AS((void)p.with_budget_fraction(1.5), remat::bad_argument);
  CHECK_THROWS_AS((void)p.with_budget_fraction(-0.5), remat::bad_argument);
}

TEST_CASE("rows: an empty one is a row") {
  remat::index_rows rows;
  CHECK(rows.size() == 0);
  rows.values.push_back(4);
  rows.end_row();
  rows.end_row();
  CHECK(rows.size() == 2);
  CHECK(rows[0].size() == 1);
  CHECK(rows[0][0] == 4);
  CHECK(rows[1].empty());
}
