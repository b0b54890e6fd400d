// SPDX-License-Identifier: BSL-1.0
#include "remat/hierarchy/detail/depth_chains.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/hierarchy/partition.hpp"
#include "support/block_stack.hpp"
#include "support/random_sub_graphs.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("the chain of a depth: cuts at the borders of its groups, finer with each depth") {
  std::size_t deep = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    const operation_hierarchy& h = d.hierarchy;
    INFO("seed ", seed);
    CHECK(cuts_at_depth(h, 0).empty());
    CHECK(cuts_at_depth(h, 1).size() + 1 == std::max<std::size_t>(h.children[0].size(), 1));
    cut_list before;
    for (std::uint32_t depth = 1; depth <= h.depth() + 1; ++depth) {
      const cut_list cuts = cuts_at_depth(h, depth);
      REQUIRE(std::is_sorted(cuts.begin(), cuts.end()));
      REQUIRE(std::includes(cuts.begin(), cuts.end(), before.begin(), before.end()));
      for (const operation_hierarchy::group& g : h.groups)
        if (g.depth == depth && g.forward_begin > 0)
          REQUIRE(std::count(cuts.begin(), cuts.end(), g.forward_begin) == 1);
      before = cuts;
      deep += depth > 1 && depth <= h.depth();
    }
    // Below the deepest groups every operation is a stage.
    if (h.num_forward > 0) CHECK(before.size() + 1 == h.num_forward);
    const forward_line line = line_of(d.whole.graph(), h);
    CHECK(line.operations == std::vector<std::uint32_t>(h.order.begin(), h.order.begin() + h.num_forward));
    CHECK(line.operations.size() + line.rest.size() == h.order.size());
  }
  CHECK(deep > 20);
}

TEST_CASE("the chains of a hierarchy: no repetition, at most so many stages, short ones first") {
  const problem p = test::stack_problem(test::stack_kind::decoder, 8);
  const operation_hierarchy h = partition_at_levels(p.graph());
  const forward_line line = line_of(p.graph(), h);
  for (const std::size_t most : {1U, 7U, 40U, 1000U}) {
    const std::vector<cut_list> chains = chains_of(h, line, most);
    REQUIRE(!chains.empty());
    for (std::size_t i = 0; i < chains.size(); ++i) {
      CHECK(chains[i].size() + 1 <= most);
      CHECK(std::is_sorted(chains[i].begin(), chains[i].end()));
      if (i > 0) CHECK(chains[i - 1] != chains[i]);
      if (i > 0) CHECK(chains[i - 1].size() <= chains[i].size());
    }
    if (most == 1000)
      for (std::uint32_t d = 1; d <= h.depth() + 1; ++d)
        CHECK(std::find(chains.begin(), chains.end(), cuts_at_depth(h, d)) != chains.end());
  }
}
