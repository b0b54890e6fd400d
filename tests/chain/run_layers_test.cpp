// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/run_layers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using remat::detail::run_layers;

/// N(a, k) by its recurrence.
std::uint64_t most(const std::vector<std::uint64_t>& whole, std::size_t a, std::size_t k) {
  if (a >= whole.size() || k == 0) return 0;
  return k == 1 ? whole[a] : most(whole, a + 1, k) + most(whole, a, k - 1);
}

TEST_CASE("the numbers are those of the recurrence, and the runs their sum") {
  for (const std::vector<std::uint64_t>& whole :
       {std::vector<std::uint64_t>{1, 1}, {3, 3, 2, 2, 1, 1}, {9, 7, 7, 5, 2}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    constexpr std::uint64_t stages = 60;
    const run_layers layers(whole, stages, 3);
    REQUIRE(layers.levels() == whole.size());
    REQUIRE(layers.depth() > 3);
    CHECK(layers.most(0, layers.depth() - 4) == stages);
    for (std::size_t a = 0; a < whole.size(); ++a) {
      CAPTURE(a);
      for (std::size_t k = 0; k < std::min<std::size_t>(layers.depth(), 9); ++k)
        CHECK(layers.most(a, k) == std::min(most(whole, a, k), stages));
      for (std::uint64_t l = 1; l <= stages && layers.most(a, layers.depth() - 1) >= l; ++l) {
        std::uint64_t runs = 0;
        std::size_t k = 0;
        for (; layers.most(a, k) < l; ++k) runs += l - layers.most(a, k);
        CHECK(layers.runs_of_one_more(l, a) == k);
        CHECK(layers.runs(l, a) == runs);
        if (l > 1) CHECK(layers.runs(l, a) - layers.runs(l - 1, a) == k);
      }
    }
  }
}

TEST_CASE("one level grows no more, and none knows nothing") {
  const run_layers one({4}, 10);
  CHECK(one.depth() == 2);
  CHECK(one.runs(4, 0) == 4);
  CHECK(one.runs_of_one_more(5, 0) == one.depth());
  CHECK(run_layers({}, 10).levels() == 0);
}

}  // namespace
