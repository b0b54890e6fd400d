// SPDX-License-Identifier: BSL-1.0
#include "remat/hierarchy/partition.hpp"

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
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/impl/node_merger.hpp"
#include "remat/problem/problem.hpp"
#include "support/block_stack.hpp"
#include "support/data.hpp"
#include "support/large_steps.hpp"
#include "support/long_run.hpp"
#include "support/random_graph.hpp"
#include "support/random_sub_graphs.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

/// Whether no path leaves a set of operations and re-enters it, by reachability among operations of the same phase.
bool convex(const flat_graph& s, const std::vector<std::uint8_t>& inside, const std::vector<std::uint8_t>& allowed) {
  std::vector<std::uint8_t> left(s.num_operations, 0);  // a path from the set has left it
  for (std::uint32_t o = 0; o < s.num_operations; ++o) {
    if (!allowed[o]) continue;
    bool from_left = false, from_inside = false;
    for (const std::uint32_t t : s.inputs[o])
      for (const std::uint32_t maker : s.producers[t]) {
        from_left = from_left || left[maker];
        from_inside = from_inside || (allowed[maker] && inside[maker]);
      }
    if (inside[o] && from_left) return false;
    left[o] = from_left || (!inside[o] && from_inside);
  }
  return true;
}

void check_by_definition(const flat_graph& s, const operation_hierarchy& h) {
  std::vector<std::uint8_t> forward(s.num_operations, 0), backward(s.num_operations, 0);
  for (std::size_t i = 0; i < h.order.size(); ++i) (i < h.num_forward ? forward : backward)[h.order[i]] = 1;
  for (std::size_t g = 0; g < h.groups.size(); ++g)
    for (const bool first : {true, false}) {
      std::vector<std::uint8_t> inside(s.num_operations, 0);
      for (const std::uint32_t o : first ? h.forward(g) : h.backward(g)) inside[o] = 1;
      CHECK(convex(s, inside, first ? forward : backward));
    }
  // Each needed operation is a child, or anchored at a child, of just one group.
  std::vector<std::uint32_t> times(s.num_operations, 0);
  for (std::size_t g = 0; g < h.groups.size(); ++g)
    for (const std::uint32_t child : h.children[g])
      if (!h.is_group(child)) ++times[child];
  for (std::uint32_t o = 0; o < s.num_operations; ++o) CHECK(times[o] == (s.needed[o] && forward[o] ? 1U : 0U));
}

std::string first_violation(const flat_graph& s, const operation_hierarchy& h, const hierarchy_limits& limits = {}) {
  const hierarchy_report report = check_hierarchy(s, h, limits);
  return report.valid() ? "" : report.violations[0];
}

/// The forward operations of the largest group below the whole graph.
std::size_t largest_group(const operation_hierarchy& h) {
  std::size_t most = 0;
  for (std::size_t g = 1; g < h.groups.size(); ++g) most = std::max(most, h.forward(g).size());
  return most;
}

/// Checks the limits, and that the top level is neither far below `max_top` nor uneven. With exceptions: nothing is
/// grouped where the graph is small, and a pure sequence has any length.
void check_top_level(const flat_graph& s, const operation_hierarchy& h, std::uint32_t max_group,
                     std::uint32_t max_top) {
  CAPTURE(max_group);
  CAPTURE(max_top);
  CHECK(first_violation(s, h, {max_group, max_top}) == "");
  const std::size_t top = h.children[0].size(), share = (h.num_forward + max_top - 1) / max_top;
  if (h.num_forward <= max_top || h.groups[0].sequence) {
    CHECK(largest_group(h) <= std::max<std::size_t>(2 * share, max_group));
    return;
  }
  CHECK(3 * top >= 2 * max_top);
  CHECK(largest_group(h) <= 5 * share / 2);
}

/// The groups of the top level that differ.
std::size_t distinct_on_top(const flat_graph& s, const operation_hierarchy& h) {
  const group_classes classes = classify(s, h);
  std::set<std::uint32_t> distinct;
  for (const std::uint32_t child : h.children[0])
    if (h.is_group(child)) distinct.insert(classes.class_of[h.group_at(child)]);
  return distinct.size();
}

/// The groups that are sequences of at least two groups, all equal up to renaming.
std::size_t chains_of_like_stages(const flat_graph& s, const operation_hierarchy& h) {
  const group_classes classes = classify(s, h);
  std::size_t chains = 0;
  for (std::size_t g = 1; g < h.groups.size(); ++g) {
    std::set<std::uint32_t> stages;
    for (const std::uint32_t child : h.children[g])
      stages.insert(h.is_group(child) ? classes.class_of[h.group_at(child)] : operation_hierarchy::none);
    chains += h.groups[g].sequence && h.children[g].size() > 1 && stages.size() == 1 &&
              *stages.begin() != operation_hierarchy::none;
  }
  return chains;
}

using method = operation_hierarchy (*)(const flat_graph&, const partition_options&);
constexpr method methods[] = {&h_partition, &partition_at_cuts, &partition_at_repeats};

/// Forward and backward of blocks x → a → b, x → c, (b, c) → d, each backward reading what its forward made.
struct residual_blocks {
  explicit residual_blocks(std::uint32_t blocks, std::int64_t width = 100) {
    const auto run = [&](std::vector<tensor_id> in, std::int64_t bytes, op_phase phase) {
      tensor_spec t;
      t.bytes = bytes;
      operation_spec o;
      o.phase = phase;
      o.seconds = 1;
      o.inputs = std::move(in);
      o.outputs = {graph.add_tensor(t)};
      const tensor_id made = o.outputs[0];
      graph.add_operation(std::move(o));
      return made;
    };
    std::vector<std::vector<tensor_id>> reads;
    std::vector<tensor_id> made;
    const auto forward = [&](std::vector<tensor_id> in, std::int64_t bytes) {
      reads.push_back(in);
      made.push_back(run(std::move(in), bytes, op_phase::forward));
      return made.back();
    };
    tensor_id x = forward({}, width);
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const tensor_id a = forward({x}, 4 * width), b = forward({a}, 4 * width), c = forward({x}, 3 * width);
      x = forward({b, c}, width);
    }
    tensor_id gradient = run({x}, 4, op_phase::loss);
    for (std::size_t i = made.size(); i-- > 0;) {
      reads[i].push_back(gradient);
      gradient = run(reads[i], width, op_phase::backward);
    }
    graph.add_final_output(gradient);
  }
  training_graph graph;
};

}  // namespace

TEST_CASE("every hierarchy of a random graph is one, and within the limits") {
  std::mt19937_64 engine(1);
  std::size_t groups = 0, deepest = 0;
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    test::random_graph_options random;
    random.operations = 1 + static_cast<std::uint32_t>(engine() % (seed % 10 == 0 ? 120 : 30));
    random.most_inputs = static_cast<std::uint32_t>(engine() % 4);
    const problem p = test::random_problem(seed, random);
    partition_options options;
    options.max_group = 2 + static_cast<std::uint32_t>(engine() % 6);
    options.max_top = 1 + static_cast<std::uint32_t>(engine() % 6);
    if (seed % 3 == 0) options.forward = p.graph().needed;  // all of it, as a graph without a backward
    for (const method make : methods) {
      const operation_hierarchy h = make(p.graph(), options);
      CAPTURE(seed);
      CHECK(first_violation(p.graph(), h, {options.max_group, options.max_top}) == "");
      check_by_definition(p.graph(), h);
      groups += h.groups.size();
      deepest = std::max<std::size_t>(deepest, h.depth());
      const operation_hierarchy again = make(p.graph(), options);
      CHECK(again.order == h.order);
      CHECK(again.children.values == h.children.values);
    }
  }
  CHECK(groups > 5000);  // the property was not tested on nothing
  CHECK(deepest > 3);
}

TEST_CASE("graphs without any structure are partitioned, too") {
  std::mt19937_64 engine(4);
  for (std::uint64_t round = 0; round < test::num_cases(6, 12); ++round) {
    training_graph g;
    const std::size_t near = 2 + engine() % 30, n = round % 2 == 0 ? 300 : 1500;
    for (std::size_t i = 0; i < n; ++i) {
      tensor_spec t;
      t.bytes = static_cast<std::int64_t>(engine() % 100);
      operation_spec o;
      o.seconds = 1;
      if (i > 0 && engine() % 50 != 0) {
        o.inputs.push_back(static_cast<tensor_id>(i - 1 - engine() % std::min(i, near)));
        const auto any = static_cast<tensor_id>(engine() % i);
        if (any != o.inputs[0]) o.inputs.push_back(any);
      }
      o.outputs = {g.add_tensor(t)};
      g.add_operation(std::move(o));
    }
    for (std::size_t i = 0; i < n; ++i) g.add_final_output(static_cast<tensor_id>(i));
    const problem p(g, measured_cost{});
    partition_options options;
    options.forward.assign(n, 1);
    options.max_group = 2 + static_cast<std::uint32_t>(engine() % 20);
    options.max_top = 1 + static_cast<std::uint32_t>(engine() % 30);
    for (const method make : methods) {
      CAPTURE(round);
      const operation_hierarchy h = make(p.graph(), options);
      CHECK(first_violation(p.graph(), h, {options.max_group, options.max_top}) == "");
    }
  }
}

TEST_CASE("residual blocks become groups that are cut where few bytes cross") {
  const residual_blocks blocks(50);
  const problem p(blocks.graph, measured_cost{});
  partition_options options;
  options.max_group = 4;
  for (const method make : methods) {
    const operation_hierarchy h = make(p.graph(), options);
    CHECK(first_violation(p.graph(), h, {4, 30}) == "");
    CHECK(h.num_forward >= 201);
    std::size_t whole = 0;
    for (std::size_t g = 1; g < h.groups.size(); ++g) {
      const auto forward = h.forward(g);
      if (forward.size() == 4 && forward[0] % 4 == 1) ++whole;
    }
    CHECK(whole >= 49);
  }
}

TEST_CASE("the backward of an operation goes with it") {
  const residual_blocks blocks(3);
  const problem p(blocks.graph, measured_cost{});
  partition_options options;
  options.forward.assign(p.graph().num_operations, 0);
  std::fill(options.forward.begin(), options.forward.begin() + 14, std::uint8_t{1});  // with the loss
  options.max_group = 4;
  options.max_top = 4;
  const operation_hierarchy h = h_partition(p.graph(), options);
  // The backward of operation i is 26 − i, and reads what i read.
  for (std::uint32_t i = 1; i < 13; ++i) {
    if (h.group_of[i] == 0) continue;
    CHECK(h.anchor[26 - i] <= i);
    CHECK(i - h.anchor[26 - i] <= 2);
  }
}

TEST_CASE("a chain is a pure sequence and stays as it is, a small step too") {
  residual_blocks one(1);
  const problem p(one.graph, measured_cost{});
  CHECK(h_partition(p.graph()).groups.size() == 1);
  training_graph g;
  tensor_id x{};
  for (int i = 0; i < 100; ++i) {
    tensor_spec t;
    t.bytes = 8;
    operation_spec o;
    o.seconds = 1;
    if (i > 0) o.inputs = {x};
    o.outputs = {x = g.add_tensor(t)};
    g.add_operation(o);
  }
  g.add_final_output(x);
  const problem chain(g, measured_cost{});
  partition_options options;
  options.forward.assign(100, 1);
  const operation_hierarchy h = h_partition(chain.graph(), options);
  CHECK(h.groups.size() == 1);
  CHECK(h.groups[0].sequence);
  CHECK(h.children[0].size() == 100);
  CHECK(first_violation(chain.graph(), h, {20, 30}) == "");
}

TEST_CASE("a long chain beside others becomes one group of any length") {
  training_graph g;
  const auto run = [&](std::vector<tensor_id> in) {
    tensor_spec t;
    t.bytes = 8;
    operation_spec o;
    o.seconds = 1;
    o.inputs = std::move(in);
    o.outputs = {g.add_tensor(t)};
    const tensor_id made = o.outputs[0];
    g.add_operation(std::move(o));
    return made;
  };
  const tensor_id source = run({});
  std::vector<tensor_id> ends;
  for (int chain = 0; chain < 3; ++chain) {
    tensor_id x = source;
    for (int i = 0; i < 40; ++i) x = run({x});
    ends.push_back(x);
  }
  g.add_final_output(run(ends));
  const problem p(g, measured_cost{});
  partition_options options;
  options.forward.assign(p.graph().num_operations, 1);
  options.max_group = 6;
  options.max_top = 5;
  const operation_hierarchy h = h_partition(p.graph(), options);
  CHECK(first_violation(p.graph(), h, {6, 5}) == "");
  CHECK(h.groups.size() == 4);
  std::size_t children = 0;
  for (std::size_t i = 1; i < h.groups.size(); ++i) {
    CHECK(h.groups[i].sequence);
    CHECK(h.children[i].size() >= 40);
    children += h.children[i].size();
  }
  CHECK(children == 120);  // the first and the last operation are nodes of the top level
}

TEST_CASE("the top level of a U-Net is as fine as M_t allows") {
  const problem p = test::bundled_problem("unet5-b16-256");
  std::set<std::size_t> sizes;
  for (std::uint32_t max_top = 8; max_top <= 30; ++max_top) {
    partition_options options;
    options.max_top = max_top;
    const operation_hierarchy h = h_partition(p.graph(), options);
    check_top_level(p.graph(), h, options.max_group, max_top);
    sizes.insert(h.children[0].size());
  }
  CHECK(sizes.size() >= 8);  // it was four, whatever M_t was
}

TEST_CASE("a decoder whose blocks share tables is no single group, but chains of like blocks") {
  const problem p = test::stack_problem(test::stack_kind::rotary_decoder, 32);
  const operation_hierarchy h = h_partition(p.graph());
  check_top_level(p.graph(), h, 20, 30);
  CHECK(!h.groups[0].sequence);       // all blocks read the tables
  CHECK(largest_group(h) == 2 * 32);  // two blocks of 32 operations; one group had all blocks
  CHECK(chains_of_like_stages(p.graph(), h) == 15);
  CHECK(distinct_on_top(p.graph(), h) <= 4);
}

TEST_CASE("limits hold, and the top level is fine and even, on every bundled graph and on deep stacks") {
  std::vector<problem> problems;
  for (const auto& file : test::bundled_graphs()) problems.push_back(read_training_step(file).instance);
  for (const auto& [name, kind] : test::stack_kinds)
    for (const std::uint32_t blocks : {8U, 27U, 64U}) problems.push_back(test::stack_problem(kind, blocks));
  for (const problem& p : problems) {
    CAPTURE(p.graph().num_operations);
    for (const auto& [max_group, max_top] : {std::pair{20U, 30U}, {20U, 8U}, {8U, 13U}, {12U, 21U}}) {
      partition_options options;
      options.max_group = max_group;
      options.max_top = max_top;
      check_top_level(p.graph(), h_partition(p.graph(), options), max_group, max_top);
      for (const method make : {&partition_at_cuts, &partition_at_repeats})
        CHECK(first_violation(p.graph(), make(p.graph(), options), {max_group, max_top}) == "");
    }
  }
}

TEST_CASE("however deep a stack is, few of its groups are distinct") {
  for (const auto& [name, kind] : test::stack_kinds) {
    if (kind == test::stack_kind::dense || kind == test::stack_kind::u_net) continue;  // their blocks all differ
    CAPTURE(name);
    for (const std::uint32_t blocks : {20U, 64U, 120U})
      for (const method make : {&h_partition, &partition_at_repeats}) {
        CAPTURE(blocks);
        const problem p = test::stack_problem(kind, blocks);
        partition_options options;
        options.max_top = blocks == 64 ? 8 : 30;
        const operation_hierarchy h = make(p.graph(), options);
        CHECK(distinct_on_top(p.graph(), h) <= 13);
        CHECK(classify(p.graph(), h).sub_graphs.size() <= 26);
      }
  }
}

TEST_CASE("the work of a partition grows with the graph, not faster") {
  for (const auto& [name, kind] : test::stack_kinds) {
    CAPTURE(name);
    const auto work = [kind = kind](std::uint32_t blocks) {
      const problem p = test::stack_problem(kind, blocks);
      const std::vector<std::uint8_t> forward = forward_operations(p.graph());
      detail::partitioning::grouping groups(p.graph().num_operations);
      detail::partitioning::node_merger merger(p.graph(), forward, 20, 0.5, groups);
      std::vector<detail::partitioning::atom> atoms;
      for (std::uint32_t o = 0; o < p.graph().num_operations; ++o)
        if (p.graph().needed[o] && forward[o]) atoms.push_back({o, {o}});
      const auto operations = static_cast<double>(atoms.size());
      merger.run(std::move(atoms), 30);
      return static_cast<double>(merger.work()) / operations;
    };
    CHECK(work(600) <= 2 * work(150));
    CHECK(work(150) <= 20000);
  }
}

TEST_CASE("the checker refuses what is not a hierarchy") {
  std::mt19937_64 engine(2);
  std::size_t refused = 0, tried = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    test::random_graph_options random;
    random.operations = 30;
    random.dead = 0;
    const problem p = test::random_problem(seed, random);
    partition_options options;
    options.max_group = 3;
    options.max_top = 3;
    const operation_hierarchy right = h_partition(p.graph(), options);
    if (right.groups.size() < 3 || right.order.size() < 4) continue;
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(engine() % n); };
    for (int change = 0; change < 9; ++change) {
      operation_hierarchy h = right;
      const std::size_t g = 1 + below(h.groups.size() - 1), i = below(h.order.size());
      operation_hierarchy::group& group = h.groups[g];
      switch (change) {
        case 0:
          h.order[i] = h.order[(i + 1) % h.order.size()];
          break;
        case 1:
          ++group.forward_end;
          break;
        case 2:
          group.sequence = !group.sequence;
          break;
        case 3:
          h.group_of[h.order[i]] = static_cast<std::uint32_t>((h.group_of[h.order[i]] + 1) % h.groups.size());
          break;
        case 4:
          group.depth += 1;
          break;
        case 5:
          h.children.values[below(h.children.values.size())] = h.order[0];
          if (h.children.values == right.children.values) continue;
          break;
        case 6:
          std::reverse(h.order.begin(), h.order.begin() + h.num_forward);
          break;
        case 7:
          if (group.backward_begin == group.backward_end) continue;
          --group.backward_end;
          break;
        default:
          h.groups[0].backward_end -= 1;
          break;
      }
      ++tried;
      refused += first_violation(p.graph(), h) != "";
    }
    // Any limit below what there is.
    std::uint32_t most = 0;
    for (std::size_t g = 1; g < right.groups.size(); ++g)
      if (!right.groups[g].sequence) most = std::max(most, static_cast<std::uint32_t>(right.children[g].size()));
    if (most > 0) CHECK(first_violation(p.graph(), right, {most - 1, 3}) != "");
  }
  CHECK(tried > 1000);
  CHECK(refused == tried);
}

TEST_CASE("groups by hand: only convex ones make a hierarchy") {
  // 0 → 1 → 2 → 3 and 0 → 3.
  training_graph g;
  std::vector<tensor_id> t;
  for (int i = 0; i < 4; ++i) {
    tensor_spec spec;
    spec.bytes = 1;
    t.push_back(g.add_tensor(spec));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    operation_spec o;
    o.seconds = 1;
    if (i > 0) o.inputs = {t[i - 1]};
    if (i == 3) o.inputs.push_back(t[0]);
    o.outputs = {t[i]};
    g.add_operation(std::move(o));
  }
  g.add_final_output(t[3]);
  const problem p(g, measured_cost{});
  const std::vector<std::uint8_t> all(4, 1);
  constexpr std::uint32_t none = operation_hierarchy::none;
  const auto made = [&](std::vector<std::uint32_t> group_of, std::vector<std::uint32_t> parents) {
    return make_hierarchy(p.graph(), all, std::move(group_of), std::move(parents));
  };
  const operation_hierarchy nested = made({none, 0, 0, 1}, {1, none});
  CHECK(nested.groups.size() == 3);
  CHECK(nested.groups[2].parent == 1);
  CHECK(nested.groups[2].sequence);
  CHECK(nested.groups[1].sequence);
  CHECK(nested.groups[0].sequence);
  CHECK(first_violation(p.graph(), nested) == "");
  CHECK_THROWS_AS(made({0, none, 0, none}, {none}), bad_argument);  // 1 is between 0 and 2
  CHECK_THROWS_AS(made({0, 1, 0, 1}, {none, none}), bad_argument);
  CHECK_THROWS_AS(made({0, 0, 0, 2}, {none}), bad_argument);
  CHECK_THROWS_AS(made({0, 0, 0, 0}, {none, none}), bad_argument);  // group 1 is empty
  CHECK_THROWS_AS(made({0, 0, 1, 1}, {1, 0}), bad_argument);        // inside each other
  CHECK_THROWS_AS(made({0, 0, 0}, {none}), bad_argument);
  CHECK_THROWS_AS(static_cast<void>(make_hierarchy(p.graph(), {1, 0, 1, 1}, {0, 0, 0, 0}, {none})), bad_argument);
  CHECK_THROWS_AS(static_cast<void>(make_hierarchy(p.graph(), {0, 0, 0, 0}, {0, 0, 0, 0}, {})), bad_argument);
}

TEST_CASE("unusable options") {
  const problem p = test::random_problem(1);
  for (const method make : methods) {
    partition_options options;
    options.max_group = 1;
    CHECK_THROWS_AS(make(p.graph(), options), bad_argument);
    options.max_group = 2;
    options.max_top = 0;
    CHECK_THROWS_AS(make(p.graph(), options), bad_argument);
    options.max_top = 1;
    options.forward.assign(1, 1);
    CHECK_THROWS_AS(make(p.graph(), options), bad_argument);
  }
}

TEST_CASE("a partition that is stopped at any question is a hierarchy, and is soon done") {
  const problem p = test::large_step(test::step_family::layered, 2000, 0);
  for (const auto make : {h_partition, partition_at_repeats, partition_at_cuts}) {
    std::size_t questions = 0, all = std::numeric_limits<std::size_t>::max();
    partition_options options;
    options.must_stop = [&] { return ++questions >= all; };
    const operation_hierarchy whole = make(p.graph(), options);
    const std::size_t asked = questions;
    REQUIRE(asked >= 2);
    std::size_t stopped_early = 0;
    for (all = 1; all <= asked; all += 1 + asked / test::num_cases(4, 8)) {
      CAPTURE(all);
      questions = 0;
      const operation_hierarchy h = make(p.graph(), options);
      CHECK(questions == all);  // once told to stop, it does not ask again
      CHECK(check_hierarchy(p.graph(), h).valid());
      stopped_early += h.children[0].size() > whole.children[0].size() ? 1U : 0U;
    }
    CHECK(stopped_early > 0);
  }
}

TEST_CASE("the levels of cuts are a hierarchy, each level a part of the cuts of the finer one") {
  std::size_t groups = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const problem p = test::random_divided_step(seed).whole;
    const operation_hierarchy h = partition_at_levels(p.graph());
    INFO("seed ", seed);
    REQUIRE(check_hierarchy(p.graph(), h).valid());
    groups += h.groups.size() - 1;
    std::vector<std::uint32_t> listed;
    for (std::uint32_t i = 0; i < h.num_forward; ++i) listed.push_back(h.order[i]);
    CHECK(std::is_sorted(listed.begin(), listed.end()));
    const forward_line line = line_of(p.graph(), h);
    // Every group is a segment of one of Rotor's levels.
    const std::vector<cut_list> levels = cut_levels(line, line.operations.size());
    for (std::size_t k = 1; k < h.groups.size(); ++k) {
      const operation_hierarchy::group& g = h.groups[k];
      const bool is_segment = std::any_of(levels.begin(), levels.end(), [&](const cut_list& cuts) {
        const auto at = std::lower_bound(cuts.begin(), cuts.end(), g.forward_begin);
        const auto next = g.forward_begin == 0 ? cuts.begin() : at == cuts.end() ? at : at + 1;
        const bool begins = g.forward_begin == 0 || (at != cuts.end() && *at == g.forward_begin);
        const bool ends = next == cuts.end() ? g.forward_end == h.num_forward : *next == g.forward_end;
        return begins && ends;
      });
      CHECK(is_segment);
    }
  }
  CHECK(groups > 100);
}

TEST_CASE("forward marks of a wrong number are refused") {
  const problem p = test::stack_problem(test::stack_kind::residual, 4);
  CHECK_THROWS_AS(static_cast<void>(partition_at_levels(p.graph(), {1, 0})), bad_argument);
}
