// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/stage_chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "remat/io/json.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/answer.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::chain_action;
using remat::chain_step;
using remat::problem;
using namespace remat::detail;

/// Random cuts of a line.
cut_list random_cuts(const forward_line& line, std::mt19937_64& engine) {
  cut_list cuts;
  const std::uint64_t stride = 1 + engine() % 5;
  for (std::uint32_t i = 1; i < line.operations.size(); ++i)
    if (engine() % stride == 0) cuts.push_back(i);
  return cuts;
}

TEST_CASE("every needed operation stands in one stage") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    const problem p = remat::test::random_problem(seed, {.operations = 1 + static_cast<std::uint32_t>(seed % 40)});
    const remat::flat_graph& s = p.graph();
    const forward_line line = find_forward_line(s);
    const stage_chain stages(s, line, random_cuts(line, engine));
    std::vector<int> seen(s.num_operations, 0);
    for (std::uint32_t i = 1; i <= stages.length(); ++i) {
      for (const std::uint32_t o : stages.forward(i)) ++seen[o];
      for (const std::uint32_t o : stages.backward(i)) ++seen[o];
    }
    for (std::uint32_t o = 0; o < s.num_operations; ++o) CHECK(seen[o] == (s.needed[o] ? 1 : 0));
  }
}

TEST_CASE("x(s, j) is what its definition counts") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    const problem p = remat::test::random_problem(
        seed, {.operations = 30, .accumulate = 0, .effect = 0, .once = 0, .final_output = 0, .backward = 90});
    const remat::flat_graph& s = p.graph();
    const forward_line line = find_forward_line(s);
    const stage_chain stages(s, line, random_cuts(line, engine));
    std::vector<std::uint32_t> of(s.num_operations, 0);
    std::vector<std::uint8_t> forward(s.num_operations, 0);
    for (std::uint32_t i = 1; i <= stages.length(); ++i) {
      for (const std::uint32_t o : stages.forward(i)) of[o] = i, forward[o] = 1;
      for (const std::uint32_t o : stages.backward(i)) of[o] = i;
    }
    for (std::uint32_t a = 1; a <= stages.length(); ++a)
      for (std::uint32_t j = a; j <= stages.length(); ++j) {
        std::int64_t bytes = 0;
        for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
          if (s.always_resident[t] || s.final_output[t] || s.producers[t].empty()) continue;
          const std::uint32_t maker = s.producers[t][0];
          if (!s.needed[maker] || !forward[maker] || of[maker] < a || of[maker] > j) continue;
          bool beyond = false;
          for (const std::uint32_t o : s.consumers[t]) beyond = beyond || of[o] > j;
          if (beyond) bytes += s.bytes[t];
        }
        CHECK(stages.crossing_bytes(a, j) == bytes);
      }
  }
}

TEST_CASE("any sequence that brings each forward before its backward expands to a legal schedule") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    remat::test::random_graph_options options;
    options.operations = 2 + static_cast<std::uint32_t>(seed % 40);
    options.accumulate = 35;
    const problem p = remat::test::random_problem(seed, options);
    const forward_line line = find_forward_line(p.graph());
    const auto order = seed % 2 == 0 ? stage_order::listed : stage_order::least_peak;
    const stage_chain stages(p.graph(), line, random_cuts(line, engine), order);
    std::vector<chain_step> steps;
    for (std::uint32_t i = 1; i <= stages.length(); ++i) steps.push_back({chain_action::forward_none, i});
    for (std::uint32_t i = stages.length(); i >= 1; --i) {
      for (std::uint64_t again = engine() % 3; again > 0; --again) {  // some run of forwards from anywhere
        const auto from = 1 + static_cast<std::uint32_t>(engine() % i);
        for (std::uint32_t j = from; j <= i; ++j) steps.push_back({chain_action::forward_checkpoint, j});
      }
      steps.push_back({chain_action::backward, i});
    }
    const remat::check_report report = remat::check(p, remat::schedule_computes(p.graph(), stages.expand(steps)));
    CHECK_MESSAGE(report.valid(), report.message());
  }
}

TEST_CASE("of a plain chain of operations the measures are the operations' own") {
  // x1 → x2 → x3; each forward saves something for its backward, which reads that and the gradient.
  remat::training_graph g;
  std::vector<remat::tensor_id> x{g.add_tensor({.name = "x0", .bytes = 1, .kind = remat::tensor_kind::input})},
      saved(4), d(4);
  for (std::size_t i = 1; i <= 3; ++i) {
    const auto number = static_cast<std::int64_t>(i);
    x.push_back(g.add_tensor({.name = "x", .bytes = 10 * number}));
    saved[i] = g.add_tensor({.name = "saved", .bytes = 3 * number});
    g.add_operation({.name = "f",
                     .inputs = {x[i - 1]},
                     .outputs = {x[i], saved[i]},
                     .seconds = static_cast<double>(i),
                     .workspace = number});
  }
  for (std::size_t i = 3; i >= 1; --i) {
    d[i] = g.add_tensor({.name = "d", .bytes = 100 * static_cast<std::int64_t>(i)});
    remat::operation_spec o{
        .name = "b", .inputs = {saved[i]}, .outputs = {d[i]}, .seconds = 10.0 * static_cast<double>(i)};
    if (i < 3) o.inputs.push_back(d[i + 1]);
    g.add_operation(std::move(o));
  }
  g.add_final_output(d[1]);
  const problem p(g, remat::measured_cost{});
  forward_line line;
  line.operations = {0, 1, 2};
  line.rest = {3, 4, 5};
  const stage_chain stages(p.graph(), line, {1, 2});
  REQUIRE(stages.length() == 3);
  for (std::uint32_t s = 1; s <= 3; ++s) {
    CAPTURE(s);
    CHECK(stages[s].forward_time == s);
    CHECK(stages[s].fast_time == (s < 3 ? s : 0));  // nothing crosses the end of the last
    CHECK(stages[s].backward_time == 10 * s);
    for (std::uint32_t t = s; t <= 3; ++t) CHECK(stages.saved_bytes(s, t) == 3 * s);
    CHECK(stages[s].last_forward_time == s);
    CHECK_FALSE(stages[s].idle);
    CHECK(stages[s].last_forward_peak == stages[s].forward_peak);
    CHECK(stages[s].transient_bytes == (s < 3 ? 10 * s : 0));
    CHECK(stages.crossing_bytes(s, s) == (s < 3 ? 10 * s : 0));
    CHECK(stages[s].gradient_bytes == (s < 3 ? 100 * (s + 1) : 0));
    CHECK(stages[s].fast_peak == (s < 3 ? 14 * s : 0));
    CHECK(stages[s].forward_peak == 14 * s + 10 * (s - 1));
    CHECK(stages[s].backward_peak == stages.saved_bytes(s, s) + stages[s].gradient_bytes + 100 * s);
    CHECK(stages[s].output_bytes == (s == 1 ? 100 : 0));
  }
}

TEST_CASE("a chain without sizes runs the same operations") {
  for (const char* name : {"unet5-b16-256", "rk/unet", "gpt2-small-b8-s1024"}) {
    const problem p = remat::test::bundled_problem(name);
    for (const forward_line& line : find_forward_lines(p.graph()))
      for (const cut_list& cuts : cut_levels(line, 40)) {
        const stage_chain sized(p.graph(), line, cuts);
        const stage_chain bare = stage_chain::without_sizes(p.graph(), line, cuts);
        REQUIRE(bare.length() == sized.length());
        std::vector<chain_step> steps;  // stage 1 twice, the others once
        for (std::uint32_t s = 1; s < sized.length(); ++s) steps.push_back({chain_action::forward_checkpoint, s});
        for (std::uint32_t s = sized.length(); s >= 1; --s) {
          if (s == sized.length() || s % 2 == 1) steps.push_back({chain_action::forward_all, s});
          steps.push_back({chain_action::backward, s});
        }
        for (const bool whole : {false, true}) CHECK(bare.expand(steps, whole) == sized.expand(steps, whole));
      }
  }
}

TEST_CASE("a construction that is stopped says so, and asks after each stage") {
  const problem p = remat::test::bundled_problem("unet5-b16-256");
  const forward_line line = find_forward_lines(p.graph()).front();
  const cut_list cuts = cut_levels(line, 40).front();
  std::uint32_t asked = 0;
  const stage_chain whole(p.graph(), line, cuts, stage_order::listed, [&] {
    ++asked;
    return false;
  });
  CHECK(whole.is_complete());
  CHECK(asked >= whole.length());
  for (std::uint32_t last = 1; last <= asked; ++last) {
    std::uint32_t so_far = 0;
    CHECK_FALSE(
        stage_chain(p.graph(), line, cuts, stage_order::listed, [&] { return ++so_far == last; }).is_complete());
    CHECK(so_far == last);
  }
}

}  // namespace
