// SPDX-License-Identifier: BSL-1.0
#include "remat/hierarchy/detail/isomorphism.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

/// The whole of a problem as a part: all needed operations.
sub_graph whole(const problem& p) {
  const flat_graph& s = p.graph();
  const operation_hierarchy h = make_hierarchy(
      s, forward_operations(s), std::vector<std::uint32_t>(s.num_operations, operation_hierarchy::none), {});
  return sub_graph_extractor(s, h)(0);
}

/// The definition once more: a mapping that keeps everything.
bool keeps_everything(const sub_graph& a, const sub_graph& b, const std::vector<std::uint32_t>& operation,
                      const std::vector<std::uint32_t>& tensor) {
  const auto row = [&](std::span<const std::uint32_t> from, bool mapped) {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t t : from) out.push_back(mapped ? tensor[t] : t);
    std::sort(out.begin(), out.end());
    return out;
  };
  for (std::size_t o = 0; o < operation.size(); ++o)
    if (!(a.operation[o] == b.operation[operation[o]]) || row(a.reads[o], true) != row(b.reads[operation[o]], false) ||
        row(a.writes[o], true) != row(b.writes[operation[o]], false))
      return false;
  for (std::size_t t = 0; t < tensor.size(); ++t)
    if (!(a.tensor[t] == b.tensor[tensor[t]])) return false;
  return true;
}

/// Tries all pairs of permutations. For a few operations and tensors.
bool isomorphic_by_brute_force(const sub_graph& a, const sub_graph& b) {
  if (a.operations.size() != b.operations.size() || a.tensors.size() != b.tensors.size()) return false;
  std::vector<std::uint32_t> operation(a.operations.size());
  std::iota(operation.begin(), operation.end(), 0U);
  do {
    std::vector<std::uint32_t> tensor(a.tensors.size());
    std::iota(tensor.begin(), tensor.end(), 0U);
    do {
      if (keeps_everything(a, b, operation, tensor)) return true;
    } while (std::next_permutation(tensor.begin(), tensor.end()));
  } while (std::next_permutation(operation.begin(), operation.end()));
  return false;
}

struct changes {
  std::int64_t bytes_of = -1;  ///< a tensor that gets a byte more
  std::int64_t time_of = -1;   ///< an operation that takes longer
};

/// The same graph with its tensors renamed and its operations in another topological order.
training_graph shuffled(const training_graph& g, std::uint64_t seed, const changes& change = {}) {
  std::mt19937_64 engine(seed);
  const std::size_t n = g.num_operations(), m = g.num_tensors();
  std::vector<std::size_t> old_tensor(m), new_tensor(m);
  std::iota(old_tensor.begin(), old_tensor.end(), std::size_t{0});
  std::shuffle(old_tensor.begin(), old_tensor.end(), engine);
  for (std::size_t i = 0; i < m; ++i) new_tensor[old_tensor[i]] = i;
  training_graph out;
  for (const std::size_t t : old_tensor) {
    const auto id = static_cast<tensor_id>(t);
    tensor_spec spec;
    spec.bytes = g.bytes(id) + (static_cast<std::int64_t>(t) == change.bytes_of ? 1 : 0);
    spec.kind = g.kind(id);
    out.add_tensor(spec);
  }
  std::vector<std::size_t> open(m, 0);  // producers that have not run
  for (std::size_t o = 0; o < n; ++o)
    for (const tensor_id t : g.outputs(static_cast<op_id>(o))) ++open[index(t)];
  std::vector<std::uint8_t> done(n, 0);
  for (std::size_t placed = 0; placed < n; ++placed) {
    std::vector<std::size_t> ready;
    for (std::size_t o = 0; o < n; ++o) {
      bool can = !done[o];
      for (const tensor_id t : g.inputs(static_cast<op_id>(o))) can = can && open[index(t)] == 0;
      if (can) ready.push_back(o);
    }
    const std::size_t o = ready[engine() % ready.size()];
    const auto id = static_cast<op_id>(o);
    done[o] = 1;
    operation_spec spec;
    for (const tensor_id t : g.inputs(id)) spec.inputs.push_back(static_cast<tensor_id>(new_tensor[index(t)]));
    for (const tensor_id t : g.outputs(id)) {
      spec.outputs.push_back(static_cast<tensor_id>(new_tensor[index(t)]));
      --open[index(t)];
    }
    spec.seconds = g.measured_seconds(id) + (static_cast<std::int64_t>(o) == change.time_of ? 0.5 : 0.0);
    spec.workspace = g.workspace(id);
    spec.recomputable = g.recomputable(id);
    out.add_operation(std::move(spec));
  }
  for (const tensor_id t : g.final_outputs()) out.add_final_output(static_cast<tensor_id>(new_tensor[index(t)]));
  return out;
}

/// As a part in which every operation is forward: the turn of a shuffled step may be elsewhere.
sub_graph forward_part(const problem& p) {
  sub_graph part = whole(p);
  for (auto& o : part.operation) o.forward = true;
  return part;
}

operation_hierarchy flat(const problem& p) {
  return make_hierarchy(p.graph(), p.graph().needed,
                        std::vector<std::uint32_t>(p.graph().num_operations, operation_hierarchy::none), {});
}

}  // namespace

TEST_CASE("renamed and reordered copies are found, near-copies are not") {
  std::mt19937_64 engine(3);
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    test::random_graph_options random;
    random.operations = 2 + static_cast<std::uint32_t>(engine() % 40);
    random.most_bytes = seed % 2 == 0 ? 0 : 5;  // many that look the same, or few
    random.most_time = seed % 2 == 0 ? 0 : 5;
    random.dead = 0;
    const training_graph g = test::random_graph(seed, random);
    const problem p(g, measured_cost{}), q(shuffled(g, seed + 1), measured_cost{});
    const sub_graph a = forward_part(p), b = forward_part(q);
    CAPTURE(seed);
    CHECK(fingerprint(a) == fingerprint(b));
    const std::optional<sub_graph_mapping> m = find_isomorphism(a, b);
    REQUIRE(m.has_value());
    CHECK(keeps_everything(a, b, m->operation, m->tensor));
    if (a.operations.empty() || a.tensors.empty()) continue;

    changes longer, larger;
    longer.time_of = a.operations[engine() % a.operations.size()];
    larger.bytes_of = a.tensors[engine() % a.tensors.size()];
    for (const changes& change : {longer, larger}) {
      const problem other(shuffled(g, seed + 2, change), measured_cost{});
      const sub_graph c = forward_part(other);
      CHECK_FALSE(find_isomorphism(a, c).has_value());
      CHECK(fingerprint(a) != fingerprint(c));
      isomorphism_options no_times;
      no_times.times = false;
      CHECK(find_isomorphism(a, c, no_times).has_value() == (change.time_of >= 0));
    }
  }
}

TEST_CASE("as brute force says, on all pairs of small graphs") {
  std::vector<sub_graph> parts;
  for (std::uint64_t seed = 0; parts.size() < 60; ++seed) {
    test::random_graph_options random;
    random.operations = 3;
    random.most_bytes = random.most_time = random.most_workspace = 0;
    random.once = 0;
    sub_graph part = forward_part(test::random_problem(seed, random));
    if (part.operations.size() == 3 && part.tensors.size() <= 4) parts.push_back(std::move(part));
  }
  std::size_t equal = 0, different = 0;
  for (const sub_graph& a : parts)
    for (const sub_graph& b : parts) {
      const bool expected = isomorphic_by_brute_force(a, b);
      const std::optional<sub_graph_mapping> m = find_isomorphism(a, b);
      CHECK(m.has_value() == expected);
      CHECK((fingerprint(a) == fingerprint(b)) == expected);
      if (m) CHECK(keeps_everything(a, b, m->operation, m->tensor));
      ++(expected ? equal : different);
    }
  CHECK(equal > 100);
  CHECK(different > 100);
}

TEST_CASE("what colors cannot tell apart, choices do") {
  // Six makers and six readers in one ring of twelve, or in two of six: each reads two tensors, each is read twice.
  const auto rings = [](const std::vector<std::uint32_t>& lengths) {
    training_graph g;
    for (int i = 0; i < 6; ++i) {
      tensor_spec t;
      t.bytes = 4;
      g.add_tensor(t);
      operation_spec o;
      o.seconds = 1;
      o.outputs = {static_cast<tensor_id>(i)};
      g.add_operation(std::move(o));
    }
    std::uint32_t first = 0;
    for (const std::uint32_t length : lengths) {
      for (std::uint32_t i = 0; i < length; ++i) {
        operation_spec o;
        o.seconds = 1;
        o.inputs = {static_cast<tensor_id>(first + i), static_cast<tensor_id>(first + (i + 1) % length)};
        g.add_operation(std::move(o));
      }
      first += length;
    }
    return g;
  };
  const training_graph one = rings({6}), two = rings({3, 3});
  const sub_graph a = forward_part(problem(one, measured_cost{})), b = forward_part(problem(two, measured_cost{}));
  CHECK(fingerprint(a) == fingerprint(b));
  CHECK_FALSE(find_isomorphism(a, b).has_value());
  CHECK(find_isomorphism(a, forward_part(problem(shuffled(one, 5), measured_cost{}))).has_value());
  CHECK(find_isomorphism(b, forward_part(problem(shuffled(two, 5), measured_cost{}))).has_value());
  isomorphism_options none_left;
  none_left.max_refinements = 0;
  CHECK_FALSE(find_isomorphism(a, a, none_left).has_value());
}

namespace {

/// The schedule of sub-graph a as one of sub-graph b.
schedule translated(const schedule& plan, const sub_graph& a, const sub_graph& b, const sub_graph_mapping& mapping) {
  const auto place = [](const std::vector<std::uint32_t>& list, std::size_t x) {
    const auto at = std::find(list.begin(), list.end(), x);
    REQUIRE(at != list.end());
    return static_cast<std::size_t>(at - list.begin());
  };
  schedule out;
  for (const step& k : plan.steps)
    if (k.is_compute())
      out.compute(op_id{b.operations[mapping.operation[place(a.operations, index(k.operation()))]]});
    else
      out.free(tensor_id{b.tensors[mapping.tensor[place(a.tensors, index(k.tensor()))]]});
  return out;
}

}  // namespace

TEST_CASE("a schedule of one copy is one of the other, with the same peak and time") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    test::random_graph_options random;
    random.operations = 15;
    const training_graph g = test::random_graph(seed, random);
    const problem p(g, measured_cost{}), q(shuffled(g, seed + 7), measured_cost{});
    const operation_hierarchy h = flat(p), k = flat(q);
    const sub_graph a = sub_graph_extractor(p.graph(), h)(0), b = sub_graph_extractor(q.graph(), k)(0);
    const std::optional<sub_graph_mapping> m = find_isomorphism(a, b);
    REQUIRE(m.has_value());
    // What is not needed is in no part.
    schedule plan;
    for (const step& s : test::random_schedule(p, seed).plan.steps) {
      const bool kept = s.is_compute() ? p.graph().needed[index(s.operation())] != 0
                                       : std::binary_search(a.tensors.begin(), a.tensors.end(),
                                                            static_cast<std::uint32_t>(s.tensor()));
      if (kept) plan.steps.push_back(s);
    }
    const auto here = check(p, plan), there = check(q, translated(plan, a, b, *m));
    CHECK(here.valid());
    CHECK(there.valid());
    CHECK(here.peak_bytes == there.peak_bytes);
    CHECK(here.time == doctest::Approx(there.time));
  }
}

TEST_CASE("the blocks of GPT-2 are one class") {
  const training_graph g = read_training_graph(REMAT_TEST_DATA "/graphs/gpt2-small-b8-s1024.json");
  const problem p(g, roofline_cost{});
  {
    const operation_hierarchy h = partition_at_repeats(p.graph());
    const group_classes c = classify(p.graph(), h);
    CHECK(h.groups.size() == 13);
    CHECK(c.sub_graphs.size() == 2);  // the step, and a block
    CHECK(std::count(c.class_of.begin(), c.class_of.end(), 1U) == 12);
  }
  // Two sequences of each of the twelve blocks, the end of the forward, and the whole training step.
  const operation_hierarchy h = h_partition(p.graph());
  const group_classes c = classify(p.graph(), h);
  std::map<std::uint32_t, std::size_t> size;
  for (const std::uint32_t k : c.class_of) ++size[k];
  CHECK(c.sub_graphs.size() == 4);
  std::vector<std::size_t> sizes;
  for (const auto& [k, times] : size) sizes.push_back(times);
  std::sort(sizes.begin(), sizes.end());
  CHECK(sizes == std::vector<std::size_t>{1, 1, 12, 12});
  sub_graph_extractor extract(p.graph(), h);
  for (std::size_t i = 0; i < h.groups.size(); ++i) {
    const sub_graph part = extract(i);
    CHECK(keeps_everything(part, c.sub_graphs[c.class_of[i]], c.to_representative[i].operation,
                           c.to_representative[i].tensor));
  }
}
