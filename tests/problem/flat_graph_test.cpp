// SPDX-License-Identifier: BSL-1.0
#include "remat/problem/flat_graph.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

bool equal(const index_rows& a, const index_rows& b) { return a.begin == b.begin && a.values == b.values; }

bool equal(const flat_graph& a, const flat_graph& b) {
  return a.num_operations == b.num_operations && a.num_tensors == b.num_tensors && equal(a.inputs, b.inputs) &&
         equal(a.outputs, b.outputs) && equal(a.producers, b.producers) && equal(a.consumers, b.consumers) &&
         a.final_outputs == b.final_outputs && a.final_output == b.final_output &&
         a.always_resident == b.always_resident && a.once == b.once && a.needed == b.needed && a.phase == b.phase &&
         a.bytes == b.bytes && a.workspace == b.workspace && a.time == b.time && a.baseline_time == b.baseline_time &&
         a.needed_time == b.needed_time && a.baseline_peak == b.baseline_peak;
}

/// The primary arrays of `graph` as a caller may fill them: rows in any order, reads twice, reads of what is always
/// resident.
flat_graph primary_arrays(const training_graph& graph, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  flat_graph out;
  out.num_operations = static_cast<std::uint32_t>(graph.num_operations());
  out.num_tensors = static_cast<std::uint32_t>(graph.num_tensors());
  const auto add_row = [&](index_rows& rows, auto ids, bool twice) {
    std::vector<std::uint32_t> row;
    for (const tensor_id t : ids) row.push_back(static_cast<std::uint32_t>(t));
    if (twice && !row.empty()) row.push_back(row.front());
    std::shuffle(row.begin(), row.end(), random);
    rows.values.insert(rows.values.end(), row.begin(), row.end());
    rows.end_row();
  };
  for (std::uint32_t o = 0; o < out.num_operations; ++o) {
    const auto id = static_cast<op_id>(o);
    add_row(out.inputs, graph.inputs(id), random() % 4 == 0);
    add_row(out.outputs, graph.outputs(id), false);
    out.once.push_back(graph.recomputable(id) ? 0 : 7);
    out.phase.push_back(graph.phase(id));
    out.workspace.push_back(graph.workspace(id));
    out.time.push_back(graph.measured_seconds(id));
  }
  for (std::uint32_t t = 0; t < out.num_tensors; ++t) {
    out.bytes.push_back(graph.bytes(static_cast<tensor_id>(t)));
    out.always_resident.push_back(graph.always_resident(static_cast<tensor_id>(t)) ? 3 : 0);
  }
  for (const tensor_id t : graph.final_outputs()) out.final_outputs.push_back(static_cast<std::uint32_t>(t));
  std::shuffle(out.final_outputs.begin(), out.final_outputs.end(), random);
  return out;
}

/// y = f(w), z = g(y), with z as the final output.
flat_graph two_operations() {
  flat_graph g;
  g.num_operations = 2;
  g.num_tensors = 3;
  g.inputs = {{0, 1, 2}, {0, 1}};
  g.outputs = {{0, 1, 2}, {1, 2}};
  g.final_outputs = {2};
  g.bytes = {9, 4, 5};
  g.time = {1, 2};
  return g;
}

template <class Error>
std::string error_after(const std::function<void(flat_graph&)>& change) {
  flat_graph g = two_operations();
  change(g);
  try {
    (void)problem::from_flat(g);
  } catch (const Error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a problem from flat arrays is the problem from the graph") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    test::random_graph_options options = test::kind_of_graph(seed);
    options.operations += static_cast<std::uint32_t>(seed % 20);
    const training_graph graph = test::random_graph(seed, options);
    const problem expected(graph, measured_cost{}, 100);
    const problem p = problem::from_flat(primary_arrays(graph, seed), 100);
    REQUIRE(equal(p.graph(), expected.graph()));
    CHECK(p.budget() == 100);
    // A complete graph is a valid argument, and comes out as it was.
    REQUIRE(equal(problem::from_flat(p.graph()).graph(), expected.graph()));
  }
}

TEST_CASE("arrays that may be empty") {
  const problem p = problem::from_flat(two_operations());
  const flat_graph& g = p.graph();
  CHECK(!p.has_budget());
  CHECK(g.always_resident == std::vector<std::uint8_t>{1, 0, 0});
  CHECK(g.inputs[0].empty());
  CHECK(g.once == std::vector<std::uint8_t>{0, 0});
  CHECK(g.workspace == std::vector<std::int64_t>{0, 0});
  CHECK(g.phase.empty());
  CHECK(g.baseline_peak == 9);
  CHECK(g.needed_time == 3);
  CHECK(problem::from_flat(flat_graph{}).graph().num_operations == 0);
}

TEST_CASE("flat arrays that are no training step") {
  CHECK(error_after<bad_argument>([](flat_graph&) {}) == "none");
  CHECK(error_after<bad_graph>([](flat_graph& g) { g.inputs.values[1] = 3; }) ==
        "operation 1: input 3 is no tensor; there are 3");
  CHECK(error_after<bad_graph>([](flat_graph& g) { g.outputs.values[1] = 1000; }) ==
        "operation 1: output 1000 is no tensor; there are 3");
  CHECK(error_after<bad_graph>([](flat_graph& g) {
          g.outputs = {{0, 1, 3}, {1, 2, 2}};
        }) == "operation 1 lists output 2 twice; it must list it once");
  CHECK(error_after<bad_graph>([](flat_graph& g) { g.inputs.values[0] = 2; }) ==
        "the graph has a cycle: operation 0 → operation 1 → operation 0; a training step has none");
  CHECK(error_after<bad_graph>([](flat_graph& g) {
          std::swap(g.outputs.values[0], g.outputs.values[1]);
        }).find("cycle") != std::string::npos);
  CHECK(error_after<bad_graph>([](flat_graph& g) { g.final_outputs = {5}; }) ==
        "final output 5 is no tensor; there are 3");
  CHECK(error_after<bad_graph>([](flat_graph& g) {
          g.always_resident = {0, 0, 0};
        }) == "operation 0 reads tensor 0, which no operation writes; only a parameter or an input has no producer");
  CHECK(error_after<bad_graph>([](flat_graph& g) {
          g.always_resident = {1, 1, 0};
        }).starts_with("tensor 1 is always resident (a parameter or an input), but operation 0 writes it"));
  CHECK(error_after<bad_graph>([](flat_graph& g) {
          g.inputs.values = {0, 0};
          g.inputs.values[0] = 2;
        }).starts_with("operation 0 reads tensor 2 before its producer, operation 1, has run"));
}

TEST_CASE("flat arrays with costs that are none") {
  CHECK(error_after<bad_cost>([](flat_graph& g) { g.bytes[1] = -4; }) ==
        "tensor 1: bytes is -4; it must not be negative");
  CHECK(error_after<bad_cost>([](flat_graph& g) {
          g.bytes = {1, std::numeric_limits<std::int64_t>::max(), 1};
        }).starts_with("tensor 2: the sizes of all tensors together"));
  CHECK(error_after<bad_cost>([](flat_graph& g) {
          g.workspace = {0, std::numeric_limits<std::int64_t>::max()};
        }).starts_with("operation 1: its workspace and the sizes"));
  CHECK(error_after<bad_cost>([](flat_graph& g) {
          g.workspace = {-1, 0};
        }).starts_with("operation 0: workspace is -1 bytes"));
  for (const double time : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    CHECK(error_after<bad_cost>([&](flat_graph& g) { g.time[1] = time; }).starts_with("operation 1: the cost model"));
  CHECK_THROWS_AS((void)problem::from_flat(two_operations(), -1), bad_argument);
}

TEST_CASE("flat arrays of the wrong length") {
  CHECK(error_after<bad_argument>([](flat_graph& g) { g.time.pop_back(); }) ==
        "flat graph: time has 1 entry; it must have one for each of the 2 operations");
  CHECK(error_after<bad_argument>([](flat_graph& g) { g.bytes.push_back(1); }) ==
        "flat graph: bytes has 4 entries; it must have one for each of the 3 tensors");
  CHECK(error_after<bad_argument>([](flat_graph& g) { g.once = {0}; }).find("once has 1") != std::string::npos);
  CHECK(error_after<bad_argument>([](flat_graph& g) { g.phase = {op_phase::loss}; }).find("phase has 1") !=
        std::string::npos);
  CHECK(error_after<bad_argument>([](flat_graph& g) { g.workspace = {0}; }).find("workspace has 1") !=
        std::string::npos);
  CHECK(error_after<bad_argument>([](flat_graph& g) { g.always_resident = {1}; }).find("always_resident has 1") !=
        std::string::npos);
  CHECK(error_after<bad_argument>([](flat_graph& g) { g.inputs.begin.pop_back(); }).find("inputs has 1") !=
        std::string::npos);
  CHECK(error_after<bad_argument>([](flat_graph& g) { g.outputs.begin.clear(); }).find("outputs has 0") !=
        std::string::npos);
  const auto rows_of = [](std::vector<std::uint32_t> begin) {
    return error_after<bad_argument>([&](flat_graph& g) { g.outputs.begin = begin; });
  };
  for (const auto& begin : {std::vector<std::uint32_t>{0, 1, 3}, {1, 1, 2}, {0, 5, 2}})
    CHECK(rows_of(begin) == "flat graph: the rows of outputs must begin at 0, ascend, and end at the number of values");
}
