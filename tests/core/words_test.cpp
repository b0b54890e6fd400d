// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/words.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

#include "remat/core/option.hpp"

TEST_CASE("one thing, and several") {
  using remat::detail::count_of;
  CHECK(count_of(1, "operation") == "1 operation");
  CHECK(count_of(0U, "operation") == "0 operations");
  CHECK(count_of(std::int64_t{2}, "vertex", "vertices") == "2 vertices");
  CHECK(count_of(1, "vertex", "vertices") == "1 vertex");
}

TEST_CASE("how far a misspelt name is from another one") {
  CHECK(remat::detail::edits("", "abc") == 3);
  CHECK(remat::detail::edits("budgets", "budget") == 1);
  CHECK(remat::detail::edits("kitten", "sitting") == 3);
  CHECK(remat::detail::name_distance("workspace", "workspace_bytes") == 1);
  CHECK(remat::detail::name_distance("sedes", "seed") == 2);
}

TEST_CASE("what is no number has no sign") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double none : {nan, -nan}) {
    CHECK(remat::detail::number_text(none) == "nan");
    CHECK(remat::option_text(none) == "nan");
  }
  CHECK(remat::detail::number_text(-1.5) == "-1.500000");
}
