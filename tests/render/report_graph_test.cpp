// SPDX-License-Identifier: BSL-1.0
#include "remat/render/detail/report_graph.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/hierarchy/partition.hpp"
#include "support/random_graph.hpp"

namespace {
using namespace remat;  // NOLINT: a test
using detail::described_graph;

/// `layers` modules, blocks.0 …, of two forward operations each, and their backward.
training_graph layered(std::uint32_t layers, bool named) {
  training_graph g("layered");
  tensor_id last = g.add_tensor({.name = "x", .bytes = 8, .kind = tensor_kind::input});
  struct made {
    tensor_id input, output;
    std::string name;
  };
  std::vector<made> forward;
  for (std::uint32_t l = 0; l < layers; ++l)
    for (const char* kind : {"mm", "relu"}) {
      const tensor_id next = g.add_tensor({.name = "h", .bytes = 100 + l});
      const std::string name = (named ? "blocks." + std::to_string(l) + ": " : std::string()) + kind;
      g.add_operation({.name = name, .phase = op_phase::forward, .inputs = {last}, .outputs = {next}});
      forward.push_back({last, next, name});
      last = next;
    }
  tensor_id gradient = g.add_tensor({.name = "g", .bytes = 8, .kind = tensor_kind::gradient});
  g.add_operation({.name = "loss", .phase = op_phase::loss, .inputs = {last}, .outputs = {gradient}});
  for (std::size_t i = forward.size(); i-- > 0;) {
    const tensor_id next = g.add_tensor({.name = "g", .bytes = 50, .kind = tensor_kind::gradient});
    g.add_operation({.name = forward[i].name + " backward",
                     .phase = op_phase::backward,
                     .inputs = {forward[i].output, gradient},
                     .outputs = {next}});
    gradient = next;
  }
  g.add_final_output(gradient);
  return g;
}

described_graph describe(const training_graph& g) {
  const problem p(g, unit_cost{});
  return detail::describe_graph(p, names_of(g), h_partition(p.graph()));
}
}  // namespace

TEST_CASE("parts of an operation's name") {
  CHECK(detail::module_in_name("blocks.0.fc: aten.mm (model.py:12)") == "blocks.0.fc");
  CHECK(detail::module_in_name("aten.mm").empty());
  CHECK(detail::module_in_name(": aten.mm").empty());
  CHECK(detail::module_in_name("two words: mm").empty());
  CHECK(detail::module_in_name("").empty());
  CHECK(detail::plain_name("blocks.0.fc: aten.mm (model.py:12)") == "aten.mm");
  CHECK(detail::plain_name("FWD[x]") == "FWD[x]");
  CHECK(detail::plain_name("").empty());
  CHECK(detail::plain_name(" (x)") == " (x)");
  CHECK(detail::name_pattern("blocks.10.fc2: aten.mm (model.py:12)") == "blocks.*.fc*: aten.mm (model.py:12)");
  CHECK(detail::name_pattern("add_117") == "add_*");
}

TEST_CASE("each needed operation of a small graph is a node, and all data between them are edges") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 30)});
    const flat_graph& g = p.graph();
    const name_lookup names{[](op_id o) { return "o" + std::to_string(index(o)); },
                            [](tensor_id) { return std::string("t"); }};
    const described_graph d = detail::describe_graph(p, names, h_partition(g));
    INFO("seed ", seed);
    std::set<std::pair<std::uint32_t, std::uint32_t>> expected, edges;
    for (std::uint32_t t = 0; t < g.num_tensors; ++t)
      for (const std::uint32_t a : g.producers[t])
        for (const std::uint32_t b : g.consumers[t])
          if (a != b && g.needed[a] && g.needed[b]) expected.emplace(a, b);
    for (const auto& [from, to] : d.edges) edges.emplace(d.nodes[from].first, d.nodes[to].first);
    CHECK(edges == expected);
    CHECK(edges.size() == d.edges.size());
    std::set<std::pair<std::uint32_t, std::int32_t>> places;
    std::size_t needed = 0;
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      needed += g.needed[o];
      CHECK((d.kind[o] == 'x') == !g.needed[o]);
      CHECK((d.node_of[o] == operation_hierarchy::none) == !g.needed[o]);
    }
    CHECK(d.nodes.size() == needed);
    for (const auto& n : d.nodes) {
      CHECK(d.node_of[n.first] == static_cast<std::uint32_t>(&n - d.nodes.data()));
      places.emplace(n.column, n.row);
    }
    CHECK(places.size() == d.nodes.size());  // no two nodes at one place
    // Forward data go to the right.
    for (const auto& [from, to] : d.edges)
      if (d.nodes[from].row >= 0 && d.nodes[to].row >= 0) CHECK(d.nodes[from].column < d.nodes[to].column);
  }
}

TEST_CASE("the backward of an operation stands below it") {
  const described_graph d = describe(layered(8, false));
  REQUIRE(d.nodes.size() == 33);
  CHECK(d.kind == std::string(16, 'f') + "l" + std::string(16, 'b'));
  for (std::uint32_t i = 0; i < 16; ++i) {
    CHECK(d.nodes[i].column == i);
    CHECK(d.nodes[i].row == 0);
    CHECK(d.nodes[d.node_of[32 - i]].row <= -2);
  }
}

TEST_CASE("a large graph is drawn by groups, each operation in one") {
  for (const std::uint32_t layers : {200U, 2000U}) {
    const training_graph g = layered(layers, false);
    const described_graph d = describe(g);
    CHECK(d.nodes.size() <= 2 * described_graph::most_drawn_groups);
    CHECK(d.nodes.size() > 2);
    std::vector<std::uint32_t> counts(d.nodes.size(), 0);
    for (const std::uint32_t n : d.node_of) ++counts.at(n);
    for (std::size_t i = 0; i < d.nodes.size(); ++i) CHECK(counts[i] == d.nodes[i].count);
    CHECK(d.nodes.front().label.find("operations 0 to ") == 0);
    CHECK(d.groups.size() <= described_graph::most_groups);
  }
}

TEST_CASE("groups add up to the whole") {
  for (const bool named : {false, true})
    for (const std::uint32_t layers : {1U, 20U, 900U}) {
      const training_graph g = layered(layers, named);
      const described_graph d = describe(g);
      INFO("named ", named, ", layers ", layers);
      CHECK(d.by_module == named);
      REQUIRE(!d.groups.empty());
      CHECK(d.groups.size() <= described_graph::most_groups);
      const auto& whole = d.groups.front();
      CHECK(whole.depth == 0);
      CHECK(whole.forward == 2 * layers + 1);
      CHECK(whole.backward == 2 * layers);
      CHECK(whole.forward_time + whole.backward_time == 4.0 * layers + 1);
      for (std::size_t i = 1; i < d.groups.size(); ++i) CHECK(d.groups[i].depth <= d.groups[i - 1].depth + 1);
      double time = 0;
      std::size_t count = 0;
      for (const auto& row : d.kinds) {
        time += row.time;
        count += row.count;
      }
      CHECK(time == 4.0 * layers + 1);
      CHECK(count == g.num_operations());
    }
}

TEST_CASE("modules are the groups where names tell them, and join where there are too many") {
  const auto labels = [](const described_graph& d) {
    std::vector<std::string> all;
    for (const auto& g : d.groups) all.push_back(std::string(g.depth, '>') + g.label);
    return all;
  };
  CHECK(labels(describe(layered(2, true))) ==
        std::vector<std::string>{"The whole step", ">blocks", ">>0", ">>1", ">(no module)"});
  CHECK(labels(describe(layered(900, true))) ==
        std::vector<std::string>{"The whole step", ">blocks", ">>0 to 899, together", ">(no module)"});
  const described_graph d = describe(layered(2, true));
  CHECK(d.groups[2].contents == "mm, mm backward, relu, relu backward");
}
