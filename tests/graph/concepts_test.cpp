// SPDX-License-Identifier: BSL-1.0
#include "remat/graph/concepts.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace {

using remat::op_id;
using remat::op_phase;
using remat::tensor_id;

/// A user's own type that has the five members and nothing else: a chain of n operations whose tensor i is written by
/// operation i, read by operation i + 1 and, on the way back, by operation 2n − 1 − i. Nothing is stored: lists are
/// made when they are asked for, by value.
struct mirror_chain {
  int n = 3;

  [[nodiscard]] int num_operations() const { return 2 * n; }
  [[nodiscard]] unsigned num_tensors() const { return static_cast<unsigned>(2 * n); }
  [[nodiscard]] std::vector<tensor_id> inputs(op_id o) const {
    const int i = static_cast<int>(index(o));
    std::vector<tensor_id> list;
    if (i > 0) list.push_back(static_cast<tensor_id>(i - 1));
    if (i >= n) list.push_back(static_cast<tensor_id>(2 * n - 1 - i));
    return list;
  }
  [[nodiscard]] std::array<tensor_id, 1> outputs(op_id o) const { return {static_cast<tensor_id>(o)}; }
  [[nodiscard]] std::deque<tensor_id> final_outputs() const { return {static_cast<tensor_id>(2 * n - 1)}; }
};

struct sized_mirror_chain : mirror_chain {
  [[nodiscard]] int bytes(tensor_id) const { return 8; }
};

/// The bytes are in the cost model instead.
struct ten_bytes {
  template <remat::data_flow_graph G>
  [[nodiscard]] double time(const G&, op_id) const {
    return 2;
  }
  template <remat::data_flow_graph G>
  [[nodiscard]] std::int64_t bytes(const G&, tensor_id) const {
    return 10;
  }
  template <remat::data_flow_graph G>
  [[nodiscard]] std::int64_t workspace(const G&, op_id o) const {
    return index(o) == 2 ? 5 : 0;
  }
};

/// With every refinement, resident tensors that are no sources among them.
struct full_graph : sized_mirror_chain {
  [[nodiscard]] std::int64_t workspace(op_id o) const { return static_cast<std::int64_t>(index(o)); }
  [[nodiscard]] bool always_resident(tensor_id) const { return false; }
  [[nodiscard]] bool recomputable(op_id o) const { return index(o) != 1; }
  [[nodiscard]] bool deterministic(op_id o) const { return index(o) != 2; }
  [[nodiscard]] op_phase phase(op_id o) const { return index(o) < 3 ? op_phase::forward : op_phase::backward; }
  [[nodiscard]] float flops(op_id) const { return 1; }
  [[nodiscard]] double bytes_accessed(op_id) const { return 1; }
  [[nodiscard]] double measured_seconds(op_id) const { return 1; }
  [[nodiscard]] std::string name(op_id o) const { return "op" + std::to_string(index(o)); }
  [[nodiscard]] const char* name(tensor_id) const { return "t"; }
};

struct no_outputs {
  std::size_t num_operations() const;
  std::size_t num_tensors() const;
  std::span<const tensor_id> inputs(op_id) const;
  std::span<const tensor_id> final_outputs() const;
};
struct untyped_ids : no_outputs {
  std::vector<int> outputs(op_id) const;  // int is no tensor_id
};

static_assert(remat::data_flow_graph<mirror_chain>);
static_assert(!remat::sized_graph<mirror_chain>);
static_assert(remat::sized_graph<sized_mirror_chain>);
static_assert(!remat::workspace_graph<sized_mirror_chain>);
static_assert(!remat::phased_graph<sized_mirror_chain>);
static_assert(!remat::deterministic_graph<sized_mirror_chain>);
static_assert(!remat::data_flow_graph<no_outputs>);
static_assert(!remat::data_flow_graph<untyped_ids>);
static_assert(!remat::data_flow_graph<int>);

template <class G>
constexpr bool has_all = remat::sized_graph<G>&& remat::workspace_graph<G>&& remat::residency_graph<G>&&
    remat::recomputable_graph<G>&& remat::profiled_graph<G>&& remat::measured_graph<G>&& remat::named_graph<G>&&
        remat::phased_graph<G>&& remat::deterministic_graph<G>;
static_assert(has_all<full_graph>);
static_assert(has_all<remat::training_graph>);

static_assert(remat::sizing_cost_model<ten_bytes, mirror_chain>);
static_assert(!remat::sizing_cost_model<remat::unit_cost, mirror_chain>);
// Without sizes in the graph or the model there is no problem.
static_assert(!std::is_constructible_v<remat::problem, const mirror_chain&, const remat::unit_cost&>);
static_assert(std::is_constructible_v<remat::problem, const mirror_chain&, const ten_bytes&>);
static_assert(std::is_constructible_v<remat::problem, const sized_mirror_chain&, const remat::unit_cost&>);
// A budget is whole bytes.
static_assert(
    std::is_constructible_v<remat::problem, const sized_mirror_chain&, const remat::unit_cost&, unsigned long long>);
static_assert(!std::is_constructible_v<remat::problem, const sized_mirror_chain&, const remat::unit_cost&, double>);

}  // namespace

TEST_CASE("a user's own type with five members is planned like any graph") {
  const remat::problem p(sized_mirror_chain{}, remat::unit_cost{});
  CHECK(p.graph().num_operations == 6);
  CHECK(p.graph().baseline_time == 6);
  CHECK(p.graph().baseline_peak == 4 * 8);  // all three, and the first of the way back
  CHECK(p.graph().consumers[0].size() == 2);
  for (std::size_t o = 0; o < 6; ++o) CHECK(p.graph().needed[o]);
}

TEST_CASE("a cost model that knows sizes and workspace takes precedence") {
  const remat::problem p(full_graph{}, ten_bytes{});
  CHECK(p.graph().bytes == std::vector<std::int64_t>(6, 10));
  CHECK(p.graph().workspace == std::vector<std::int64_t>{0, 0, 5, 0, 0, 0});
  CHECK(p.graph().baseline_time == 12);
  CHECK(p.graph().once[1] == remat::flat_graph::once_as_marked);
  CHECK(p.graph().once[2] == 0);
  CHECK(p.graph().phase.size() == 6);
  CHECK(p.graph().phase[2] == op_phase::forward);
  CHECK(p.graph().phase[3] == op_phase::backward);
  CHECK(remat::problem(sized_mirror_chain{}, remat::unit_cost{}).graph().phase.empty());
  const remat::problem q(full_graph{}, remat::unit_cost{});
  CHECK(q.graph().workspace == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("names of a named graph stand in messages") {
  struct unordered : full_graph {
    std::vector<tensor_id> inputs(op_id o) const {
      return index(o) == 0 ? std::vector<tensor_id>{tensor_id{1}} : std::vector<tensor_id>{};
    }
  };
  CHECK_THROWS_WITH_AS(remat::problem(unordered{}, remat::unit_cost{}),
                       doctest::Contains("operation 0 (op0) reads tensor 1 (t) before its producer, operation 1 (op1)"),
                       remat::bad_graph);
}
