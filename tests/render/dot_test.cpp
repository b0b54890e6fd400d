// SPDX-License-Identifier: BSL-1.0
#include "remat/render/dot.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/problem/problem.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

}  // namespace

TEST_CASE("names are quoted") {
  CHECK(dot_quoted("relu") == "\"relu\"");
  CHECK(dot_quoted("a \"b\"\\\n\x01") == "\"a \\\"b\\\"\\\\\\n\"");
}

TEST_CASE("a small step in full") {
  training_graph g;
  tensor_spec t;
  t.bytes = 2048;
  const tensor_id x = g.add_tensor(t), y = g.add_tensor(t), dx = g.add_tensor(t);
  const auto add = [&](const char* name, std::vector<tensor_id> in, tensor_id out) {
    operation_spec o;
    o.name = name;
    o.seconds = 1;
    o.inputs = std::move(in);
    o.outputs = {out};
    g.add_operation(std::move(o));
  };
  add("make", {}, x);
  add("use \"it\"", {x}, y);
  add("back", {x, y}, dx);
  g.add_final_output(dx);
  const problem p(g, measured_cost{});
  constexpr std::uint32_t none = operation_hierarchy::none;
  const operation_hierarchy h = make_hierarchy(p.graph(), {1, 1, 0}, {none, 0, none}, {none});
  std::ostringstream out;
  dot_options options;
  options.class_of = {0, 7};
  write_dot(out, g, p.graph(), h, options);
  CHECK(out.str() ==
        "digraph step {\n"
        "  node [fontsize=10];\n"
        "  edge [fontsize=8];\n"
        "  o0 [shape=ellipse, label=\"make\\n#0, 2.00 KiB\"];\n"
        "  subgraph cluster_1 {\n"
        "    label=\"group 1, class 7: 1 forward, 1 backward\";\n"
        "    o1 [shape=ellipse, label=\"use \\\"it\\\"\\n#1, 2.00 KiB\"];\n"
        "    o2 [shape=box, label=\"back\\n#2, 2.00 KiB\"];\n"
        "  }\n"
        "  o0 -> o1 [label=\"2.00 KiB\"];\n"
        "  o0 -> o2 [label=\"2.00 KiB\"];\n"
        "  o1 -> o2 [label=\"2.00 KiB\"];\n"
        "}\n");
  std::ostringstream forward;
  options.backward = false;
  write_dot(forward, g, p.graph(), h, options);
  CHECK(count(forward.str(), "back\\n") == 0);
  CHECK(count(forward.str(), "->") == 1);
}

TEST_CASE("every needed operation is drawn once, every group is a cluster, braces match") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    test::random_graph_options random;
    random.operations = 25;
    const training_graph g = test::random_graph(seed, random);
    const problem p(g, measured_cost{});
    partition_options options;
    options.max_group = 3;
    options.max_top = 3;
    const operation_hierarchy h = h_partition(p.graph(), options);
    std::ostringstream out;
    write_dot(out, g, p.graph(), h);
    const std::string text = out.str();
    CHECK(count(text, " [shape=") == h.order.size());
    for (const std::uint32_t o : h.order) CHECK(count(text, " o" + std::to_string(o) + " [shape=") == 1);
    CHECK(count(text, "subgraph cluster_") + 1 == h.groups.size());
    CHECK(count(text, "{") == h.groups.size());
    CHECK(count(text, "}") == h.groups.size());
  }
}
