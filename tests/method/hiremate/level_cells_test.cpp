// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/detail/level_cells.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace {

using remat::detail::level_cell;
using remat::detail::level_cells;

level_cell cell(std::uint32_t phase, std::uint32_t run) {
  level_cell c;
  c.phase = phase;
  c.run = run;
  return c;
}

}  // namespace

TEST_CASE("cells are found by phase and run") {
  level_cells cells(3);
  for (const auto& [phase, run] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 0}, {1, 1}, {2, 0}, {2, 1}, {2, 2}})
    cells.push_back(cell(phase, run));
  CHECK(cells.size() == 5);
  CHECK(cells.first(1).phase == 1);
  CHECK(cells.find(2, 0) == 2);
  CHECK(cells.find(2, 2) == 4);
  CHECK(cells.find(1, 0) == level_cells::none);
  CHECK(cells.again(0) == std::vector<std::uint32_t>{2});
}

TEST_CASE("the chosen option: a first run takes place, a run again only if a value says so") {
  const std::vector<double> low{0.2, 0.3}, high{0.2, 0.9};
  for (const bool first : {true, false}) {
    level_cell c = cell(2, first ? 2 : 1);
    c.ways = {{4, 0}, {7, 1}};
    CHECK((c.chosen(low) != nullptr) == first);
    REQUIRE(c.chosen(high) != nullptr);
    CHECK(c.chosen(high)->variant == 7);
  }
  level_cell only = cell(0, 0);
  only.ways = {{3, level_cell::none}};
  CHECK(only.chosen(low)->variant == 3);
}
