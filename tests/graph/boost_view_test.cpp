// SPDX-License-Identifier: BSL-1.0
#if defined(__GNUC__) && !defined(__clang__)
// adjacency_list (1.74) copies empty boost::optionals, which g++ 12 takes for uses of what is in them.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "remat/graph/boost_view.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/graph/reverse_graph.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace {

using remat::op_id;
using remat::op_phase;
using remat::tensor_id;

struct kernel {
  std::int64_t bytes = 0;
  double seconds = 0;
  std::int64_t workspace = 0;
  bool operation = true;  // in bipartite graphs
  op_phase phase = op_phase::unknown;
};

using vector_graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, kernel>;
using list_graph = boost::adjacency_list<boost::listS, boost::listS, boost::bidirectionalS, kernel>;
using set_graph = boost::adjacency_list<boost::setS, boost::listS, boost::directedS, kernel>;
using sparse_graph = boost::compressed_sparse_row_graph<boost::directedS, kernel>;

template <class Graph>
using bytes_map = decltype(get(&kernel::bytes, std::declval<const Graph&>()));

static_assert(remat::sized_graph<remat::boost_view<vector_graph, bytes_map<vector_graph>>>);
static_assert(remat::sized_graph<remat::boost_view<list_graph, bytes_map<list_graph>>>);
static_assert(remat::sized_graph<remat::boost_view<sparse_graph, bytes_map<sparse_graph>>>);
static_assert(remat::sized_graph<remat::boost_view<set_graph, bytes_map<set_graph>>>);

/// A directed acyclic graph as plain lists: what the views are compared with.
struct sample {
  std::vector<kernel> vertices;
  std::vector<std::pair<std::size_t, std::size_t>> edges;  // from a lower to a higher number
};

sample random_sample(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  sample s;
  const std::size_t n = 1 + below(30);
  for (std::size_t v = 0; v < n; ++v)
    s.vertices.push_back({static_cast<std::int64_t>(below(1000)), static_cast<double>(below(50)),
                          static_cast<std::int64_t>(below(300))});
  for (std::size_t v = 1; v < n; ++v)
    for (std::size_t u = 0; u < v; ++u)
      if (below(4) == 0) s.edges.emplace_back(u, v);
  return s;
}

template <class Graph>
Graph build(const sample& s) {
  if constexpr (std::is_same_v<Graph, sparse_graph>) {
    Graph g(boost::edges_are_unsorted_multi_pass, s.edges.begin(), s.edges.end(), s.vertices.size());
    for (std::size_t v = 0; v < s.vertices.size(); ++v) g[v] = s.vertices[v];
    return g;
  } else {
    Graph g;
    std::vector<typename boost::graph_traits<Graph>::vertex_descriptor> vertex;
    for (const kernel& k : s.vertices) vertex.push_back(add_vertex(k, g));
    for (const auto& [u, v] : s.edges) add_edge(vertex[u], vertex[v], g);
    return g;
  }
}

/// The same step through the library's own graph.
remat::problem reference(const sample& s) {
  remat::training_graph g("sample");
  std::vector<char> read(s.vertices.size(), 0);
  for (const kernel& k : s.vertices) g.add_tensor({.name = "", .bytes = k.bytes});
  for (std::size_t v = 0; v < s.vertices.size(); ++v) {
    remat::operation_spec o;
    o.workspace = s.vertices[v].workspace;
    o.seconds = s.vertices[v].seconds;
    o.outputs = {static_cast<tensor_id>(v)};
    for (const auto& edge : s.edges)
      if (edge.second == v) {
        o.inputs.push_back(static_cast<tensor_id>(edge.first));
        read[edge.first] = 1;
      }
    g.add_operation(o);
  }
  for (std::size_t v = 0; v < s.vertices.size(); ++v)
    if (!read[v]) g.add_final_output(static_cast<tensor_id>(v));
  struct seconds {
    double time(const remat::training_graph& graph, op_id o) const { return graph.measured_seconds(o); }
  };
  return remat::problem(g, seconds{});
}

void check_same(const remat::flat_graph& a, const remat::flat_graph& b) {
  CHECK(a.inputs.values == b.inputs.values);
  CHECK(a.inputs.begin == b.inputs.begin);
  CHECK(a.outputs.values == b.outputs.values);
  CHECK(a.outputs.begin == b.outputs.begin);
  CHECK(a.bytes == b.bytes);
  CHECK(a.workspace == b.workspace);
  CHECK(a.time == b.time);
  CHECK(a.final_outputs == b.final_outputs);
  CHECK(a.always_resident == b.always_resident);
  CHECK(a.baseline_peak == b.baseline_peak);
}

template <class Graph>
remat::problem through_view(const Graph& g) {
  const remat::boost_view view(g, get(&kernel::bytes, g));
  return remat::problem(view, remat::vertex_cost(get(&kernel::seconds, g), get(&kernel::workspace, g)));
}

}  // namespace

TEST_CASE("a topological vertex order is kept: the view gives the same problem as the library's own graph") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const sample s = random_sample(seed);
    const remat::problem expected = reference(s);
    check_same(through_view(build<vector_graph>(s)).graph(), expected.graph());
    check_same(through_view(build<list_graph>(s)).graph(), expected.graph());
    check_same(through_view(build<set_graph>(s)).graph(), expected.graph());
    check_same(through_view(build<sparse_graph>(s)).graph(), expected.graph());
  }
}

TEST_CASE("another vertex order: operations come in a topological order, and the mappings are inverse") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const sample s = random_sample(seed);
    std::vector<std::size_t> number(s.vertices.size());
    std::iota(number.begin(), number.end(), std::size_t{0});
    std::mt19937_64 random(seed);
    std::shuffle(number.begin(), number.end(), random);
    sample shuffled{std::vector<kernel>(s.vertices.size()), {}};
    for (std::size_t v = 0; v < number.size(); ++v) shuffled.vertices[number[v]] = s.vertices[v];
    for (const auto& edge : s.edges) shuffled.edges.emplace_back(number[edge.first], number[edge.second]);

    const auto g = build<vector_graph>(shuffled);
    const remat::boost_view view(g, get(&kernel::bytes, g));
    REQUIRE(view.num_operations() == s.vertices.size());
    for (std::uint32_t i = 0; i < view.num_operations(); ++i) {
      const auto o = static_cast<op_id>(i);
      CHECK(view.op(view.vertex(o)) == o);
      CHECK(view.tensor(view.vertex(o)) == static_cast<tensor_id>(i));
      CHECK(view.bytes(static_cast<tensor_id>(i)) == g[view.vertex(o)].bytes);
      CHECK(view.inputs(o).size() == [&] {
        std::size_t degree = 0;
        for (const auto& edge : shuffled.edges) degree += edge.second == view.vertex(o);
        return degree;
      }());
      for (const tensor_id t : view.inputs(o)) CHECK(edge(view.vertex(t), view.vertex(o), g).second);
    }
    // The problem refuses what is not in topological order.
    const remat::problem p(view, remat::vertex_cost(get(&kernel::seconds, g)));
    CHECK(p.graph().baseline_time == reference(s).graph().baseline_time);
    CHECK(p.graph().needed_time == p.graph().baseline_time);
  }
}

TEST_CASE("filtered and reversed graphs are seen as they are") {
  const auto g = build<list_graph>({{{1, 1}, {2, 1}, {4, 1}, {8, 1}}, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}});
  const auto reversed = boost::make_reverse_graph(g);
  const remat::boost_view back(reversed, get(&kernel::bytes, g));
  std::vector<std::int64_t> order;
  for (std::uint32_t t = 0; t < 4; ++t) order.push_back(back.bytes(static_cast<tensor_id>(t)));
  CHECK(order == std::vector<std::int64_t>{8, 2, 4, 1});

  struct not_two {
    const list_graph* graph = nullptr;
    bool operator()(boost::graph_traits<list_graph>::vertex_descriptor v) const { return (*graph)[v].bytes != 2; }
  };
  const boost::filtered_graph<list_graph, boost::keep_all, not_two> some(g, {}, not_two{&g});
  const remat::boost_view fewer(some, get(&kernel::bytes, g));
  CHECK(fewer.num_operations() == 3);
  CHECK(fewer.inputs(op_id{2}).size() == 1);
}

TEST_CASE("final outputs: a predicate, a range, or what nobody reads") {
  const auto g = build<vector_graph>({{{1, 1}, {2, 1}, {4, 1}}, {{0, 1}}});
  const auto bytes = get(&kernel::bytes, g);
  const auto outputs_of = [](const auto& view) {
    return std::vector<tensor_id>(view.final_outputs().begin(), view.final_outputs().end());
  };
  CHECK(outputs_of(remat::boost_view(g, bytes)) == std::vector<tensor_id>{tensor_id{1}, tensor_id{2}});
  CHECK(outputs_of(remat::boost_view(g, bytes, [&](std::size_t v) { return g[v].bytes == 1; })) ==
        std::vector<tensor_id>{tensor_id{0}});
  CHECK(outputs_of(remat::boost_view(g, bytes, std::array<std::size_t, 2>{2, 0})) ==
        std::vector<tensor_id>{tensor_id{2}, tensor_id{0}});
  CHECK_THROWS_AS(remat::boost_view(g, bytes, std::array<std::size_t, 1>{3}), remat::bad_graph);
}

TEST_CASE("phases: those of a property map, else unknown") {
  vector_graph g;
  const auto a = add_vertex({1, 1, 0, true, op_phase::backward}, g),
             b = add_vertex({1, 1, 0, true, op_phase::forward}, g);
  add_edge(b, a, g);
  const auto bytes = get(&kernel::bytes, g);
  const auto phases = get(&kernel::phase, g);
  const remat::boost_view view(g, bytes, phases);
  static_assert(remat::phased_graph<std::remove_const_t<decltype(view)>>);
  CHECK(view.phase(view.op(a)) == op_phase::backward);
  CHECK(view.phase(view.op(b)) == op_phase::forward);
  CHECK(view.final_outputs().size() == 1);
  using phase_list = std::vector<op_phase>;
  CHECK(remat::problem(view, remat::unit_cost{}).graph().phase == phase_list{op_phase::forward, op_phase::backward});
  const remat::boost_view chosen(g, bytes, std::array{a, b}, phases);
  CHECK(chosen.final_outputs().size() == 2);
  CHECK(chosen.phase(op_id{0}) == op_phase::forward);
  const remat::boost_view plain(g, bytes);
  CHECK(plain.phase(op_id{0}) == op_phase::unknown);
  CHECK(remat::problem(plain, remat::unit_cost{}).graph().phase.empty());
}

TEST_CASE("a cycle is an error that names its vertices") {
  auto s = sample{{{1, 1}, {1, 1}, {1, 1}, {1, 1}}, {{0, 1}, {1, 2}, {2, 3}}};
  s.edges.emplace_back(3, 1);
  const auto g = build<vector_graph>(s);
  CHECK_THROWS_WITH_AS(remat::boost_view(g, get(&kernel::bytes, g)), doctest::Contains("cycle"), remat::bad_graph);
  CHECK_THROWS_WITH_AS(remat::boost_view(g, get(&kernel::bytes, g)),
                       doctest::Contains("vertices(g)[1] → vertices(g)[2] → vertices(g)[3] → vertices(g)[1];"),
                       remat::bad_graph);
  const auto own = build<vector_graph>({{{1, 1}}, {{0, 0}}});
  CHECK_THROWS_AS(remat::boost_view(own, get(&kernel::bytes, own)), remat::bad_graph);
}

TEST_CASE("parallel edges are one read; no vertices are an empty step") {
  const auto g = build<vector_graph>({{{1, 1}, {1, 1}}, {{0, 1}, {0, 1}}});
  CHECK(through_view(g).graph().inputs.values.size() == 1);
  CHECK(through_view(vector_graph{}).graph().num_operations == 0);
}

TEST_CASE("sizes beyond 63 bits and negative ones are errors") {
  struct big {
    std::uint64_t bytes;
  };
  boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, big> g;
  add_vertex(big{std::uint64_t{1} << 63U}, g);
  const remat::boost_view view(g, get(&big::bytes, g));
  CHECK_THROWS_AS(remat::problem(view, remat::unit_cost{}), remat::bad_cost);
  const auto negative = build<vector_graph>({{{-1, 1}}, {}});
  CHECK_THROWS_AS(through_view(negative), remat::bad_cost);
  const auto workspace = build<vector_graph>({{{1, 1, -1}}, {}});
  CHECK_THROWS_AS(through_view(workspace), remat::bad_cost);
  const auto time = build<vector_graph>({{{1, -1}}, {}});
  CHECK_THROWS_AS(through_view(time), remat::bad_cost);
}

namespace {

/// Two operations, one of two outputs, an accumulated gradient, a parameter. Vertices in an order that is not
/// topological.
template <class Graph>
struct bipartite_sample {
  Graph g;
  typename boost::graph_traits<Graph>::vertex_descriptor parameter, y, z, grad, first, second, third;

  bipartite_sample() {
    third = add_vertex(kernel{0, 3, 7, true}, g);
    grad = add_vertex(kernel{100, 0, 0, false}, g);
    z = add_vertex(kernel{20, 0, 0, false}, g);
    second = add_vertex(kernel{0, 2, 0, true}, g);
    y = add_vertex(kernel{10, 0, 0, false}, g);
    first = add_vertex(kernel{0, 1, 5, true}, g);
    parameter = add_vertex(kernel{1000, 0, 0, false}, g);
    add_edge(parameter, first, g);
    add_edge(first, y, g);
    add_edge(first, z, g);
    add_edge(y, second, g);
    add_edge(second, grad, g);
    add_edge(z, third, g);
    add_edge(third, grad, g);
  }
  auto view() const {
    return remat::boost_view(
        g, [this](auto v) { return g[v].operation; }, get(&kernel::bytes, g));
  }
  remat::problem problem() const {
    return remat::problem(view(), remat::vertex_cost(get(&kernel::seconds, g), get(&kernel::workspace, g)));
  }
};

}  // namespace

TEST_CASE_TEMPLATE("two kinds of vertices", Graph, vector_graph, list_graph, set_graph) {
  const bipartite_sample<Graph> s;
  const auto view = s.view();
  CHECK(view.num_operations() == 3);
  CHECK(view.num_tensors() == 4);
  // `first` must come first; of the other two `third` has the smaller number.
  CHECK(view.op(s.first) == op_id{0});
  CHECK(view.op(s.third) == op_id{1});
  CHECK(view.op(s.second) == op_id{2});
  CHECK(view.vertex(op_id{1}) == s.third);
  CHECK(view.vertex(view.tensor(s.y)) == s.y);
  CHECK(view.outputs(op_id{0}).size() == 2);
  CHECK(view.inputs(op_id{2})[0] == view.tensor(s.y));
  REQUIRE(view.final_outputs().size() == 1);
  CHECK(view.final_outputs()[0] == view.tensor(s.grad));
  CHECK_THROWS_AS((void)view.op(s.y), remat::bad_graph);
  CHECK_THROWS_AS((void)view.tensor(s.first), remat::bad_graph);
  CHECK(view.phase(op_id{0}) == op_phase::unknown);
  const auto is_operation = [&](auto v) { return s.g[v].operation; };
  const remat::boost_view phased(s.g, is_operation, get(&kernel::bytes, s.g),
                                 boost::make_static_property_map<decltype(s.first)>(op_phase::loss));
  CHECK(phased.phase(op_id{2}) == op_phase::loss);

  const remat::problem p = s.problem();
  const remat::flat_graph& step = p.graph();
  CHECK(step.always_resident[remat::index(view.tensor(s.parameter))]);
  CHECK(step.producers[remat::index(view.tensor(s.grad))].size() == 2);
  CHECK(step.time == std::vector<double>{1, 3, 2});
  CHECK(step.workspace == std::vector<std::int64_t>{5, 7, 0});
  CHECK(step.baseline_peak == 30 + 100 + 7);  // y, z, the gradient and third's workspace
}

TEST_CASE("two kinds: edges within a kind, cycles and wrong final outputs are errors") {
  bipartite_sample<vector_graph> s;
  const auto is_operation = [&](std::size_t v) { return s.g[v].operation; };
  const auto bytes = get(&kernel::bytes, s.g);
  CHECK_THROWS_AS(remat::boost_view(s.g, is_operation, bytes, std::array<std::size_t, 1>{s.first}), remat::bad_graph);
  CHECK(remat::boost_view(s.g, is_operation, bytes, std::array<std::size_t, 1>{s.y}).final_outputs().size() == 1);
  SUBCASE("cycle") {
    add_edge(s.grad, s.first, s.g);
    CHECK_THROWS_WITH_AS(s.view(), doctest::Contains("cycle"), remat::bad_graph);
  }
  SUBCASE("operation to operation") {
    add_edge(s.first, s.second, s.g);
    CHECK_THROWS_WITH_AS(s.view(), doctest::Contains("two operations"), remat::bad_graph);
  }
  SUBCASE("tensor to tensor") {
    add_edge(s.y, s.z, s.g);
    CHECK_THROWS_WITH_AS(s.view(), doctest::Contains("two tensors"), remat::bad_graph);
  }
}
