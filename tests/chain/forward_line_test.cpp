// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/forward_line.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/io/json.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/answer.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::problem;
using namespace remat::detail;

TEST_CASE("there is a line for each place that may serve as the turn, the graph's own first") {
  int two = 0;
  for (const auto& file : remat::test::bundled_graphs()) {
    CAPTURE(file);
    const problem p = remat::read_training_step(file).instance;
    const std::vector<forward_line> lines = find_forward_lines(p.graph());
    REQUIRE(!lines.empty());
    REQUIRE(lines.size() <= 2);
    CHECK(lines[0].operations == find_forward_line(p.graph()).operations);
    two += lines.size() == 2;
    for (const forward_line& line : lines) {
      std::vector<std::uint32_t> all = line.operations;
      all.insert(all.end(), line.rest.begin(), line.rest.end());
      CHECK(std::is_sorted(all.begin(), all.end()));
      CHECK(all.size() == static_cast<std::size_t>(std::count(p.graph().needed.begin(), p.graph().needed.end(), 1)));
    }
    if (lines.size() == 2) CHECK(lines[0].operations != lines[1].operations);
  }
  CHECK(two > 5);
}

TEST_CASE("the turn that is found is the true one") {
  for (const auto& file : remat::test::bundled_graphs()) {
    CAPTURE(file);
    const remat::training_step step = remat::read_training_step(file);
    const forward_line line = find_forward_line(step.instance.graph());
    const auto is = [&](std::uint32_t o, remat::op_phase phase) {
      return step.graph.phase(static_cast<remat::op_id>(o)) == phase;
    };
    std::size_t misplaced = 0;
    for (const std::uint32_t o : line.operations) misplaced += is(o, remat::op_phase::backward);
    for (const std::uint32_t o : line.rest) misplaced += is(o, remat::op_phase::forward);
    CHECK(misplaced == 0);
  }
}

TEST_CASE("the narrow line has the same operations, each behind what it reads, and the measures of its own order") {
  int other = 0, narrower = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const problem p = remat::test::random_problem(seed, {.operations = 10 + static_cast<std::uint32_t>(seed % 30)});
    const remat::flat_graph& s = p.graph();
    const forward_line listed = find_forward_line(s), narrow = find_narrow_line(s, listed);
    CHECK(narrow.rest == listed.rest);
    CHECK(std::is_permutation(narrow.operations.begin(), narrow.operations.end(), listed.operations.begin(),
                              listed.operations.end()));
    std::vector<std::uint32_t> all = narrow.operations;
    all.insert(all.end(), narrow.rest.begin(), narrow.rest.end());
    CHECK(remat::check(p, remat::schedule_computes(s, all)).valid());
    const auto crosses = [&](const forward_line& line, std::size_t i) {
      std::int64_t bytes = 0;
      for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
        bool made = false, read = false;
        for (std::size_t k = 0; k < line.operations.size(); ++k) {
          const auto outputs = s.outputs[line.operations[k]], inputs = s.inputs[line.operations[k]];
          made = made || (k < i && std::count(outputs.begin(), outputs.end(), t) > 0);
          read = read || (k >= i && std::count(inputs.begin(), inputs.end(), t) > 0);
        }
        if (made && read && !s.final_output[t]) bytes += s.bytes[t];
      }
      return bytes;
    };
    std::int64_t sum = 0, narrow_sum = 0;
    for (std::size_t i = 0; i < listed.operations.size(); ++i) {
      CHECK(listed.crossing[i] == crosses(listed, i));
      CHECK(narrow.crossing[i] == crosses(narrow, i));
      sum += listed.crossing[i];
      narrow_sum += narrow.crossing[i];
    }
    other += narrow.operations != listed.operations;
    narrower += narrow_sum < sum;
  }
  CHECK(other > 100);
  CHECK(narrower * 2 > other);
}

TEST_CASE("cuts ascend, levels grow coarser, even cuts are among the given ones") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const problem p = remat::test::random_problem(seed, {.operations = 1 + static_cast<std::uint32_t>(seed % 40)});
    const forward_line line = find_forward_line(p.graph());
    for (const std::size_t most : {std::size_t{0}, std::size_t{3}, std::size_t{100}}) {
      std::size_t before = 1000;
      for (const cut_list& level : cut_levels(line, most)) {
        CHECK(level.size() <= most);
        CHECK(level.size() <= before);
        before = level.size();
        CHECK(std::is_sorted(level.begin(), level.end()));
        CHECK(std::adjacent_find(level.begin(), level.end()) == level.end());
        if (!level.empty()) {
          CHECK(level.front() > 0);
          CHECK(level.back() < line.operations.size());
        }
      }
    }
    const cut_list all = cut_levels(line, line.operations.size()).front();
    for (const std::size_t segments : {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{100}}) {
      const cut_list even = even_cuts(line, all, segments);
      CHECK(even.size() + 1 <= std::max<std::size_t>(segments, 1));
      CHECK(std::includes(all.begin(), all.end(), even.begin(), even.end()));
    }
  }
}

TEST_CASE("chains of a line: selections of its cuts, within the stages, each once and the short ones first") {
  std::size_t chains = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const problem p = remat::test::random_problem(seed, {.operations = 1 + static_cast<std::uint32_t>(seed % 60)});
    const forward_line line = find_forward_line(p.graph());
    const cut_list all = cut_levels(line, line.operations.size()).front();
    for (const std::size_t most : {std::size_t{1}, std::size_t{5}, std::size_t{100}}) {
      std::vector<cut_list> found = chains_of_line(line, most);
      add_regular_cuts(found, all, most);
      for (const cut_list& cuts : found) {
        CHECK(cuts.size() < most);
        CHECK(std::includes(all.begin(), all.end(), cuts.begin(), cuts.end()));
      }
      const std::vector<cut_list> sorted = short_ones_first(found);
      for (std::size_t k = 1; k < sorted.size(); ++k) {
        CHECK(sorted[k - 1].size() <= sorted[k].size());
        CHECK(sorted[k - 1] != sorted[k]);
      }
      for (const cut_list& cuts : found) CHECK(std::find(sorted.begin(), sorted.end(), cuts) != sorted.end());
      chains += sorted.size();
    }
  }
  CHECK(chains > 1000);
}

}  // namespace
