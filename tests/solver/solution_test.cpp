// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/solution.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>

using namespace remat;

TEST_CASE("figures keep their type, their order and their last value") {
  figures own;
  CHECK(own.empty());
  own.set("repaired", true);
  own.set("width", 12U);
  own.set("bound", 1.5);
  own.set("tree", "min_fill");
  own.set("width", 13);
  REQUIRE(own.items().size() == 4);
  CHECK(own.items()[0].first == "repaired");
  CHECK(own.items()[1].first == "width");
  CHECK(own.items()[3].first == "tree");
  REQUIRE(own.find<bool>("repaired"));
  CHECK(*own.find<bool>("repaired"));
  REQUIRE(own.find<std::int64_t>("width"));
  CHECK(*own.find<std::int64_t>("width") == 13);
  REQUIRE(own.find<std::string>("tree"));
  CHECK(*own.find<std::string>("tree") == "min_fill");
  CHECK_FALSE(own.find<double>("width"));  // a whole number
  CHECK_FALSE(own.find<bool>("none"));
}

TEST_CASE("what is not known is left out") {
  figures own;
  own.set("bound", std::numeric_limits<double>::infinity());
  CHECK(own.empty());
  own.set("bound", 2.0);
  own.set("bound", std::numeric_limits<double>::quiet_NaN());
  CHECK(own.empty());
}

TEST_CASE("figures may hold groups of figures") {
  figures level;
  level.set("groups", 7);
  figures own;
  own.set("levels", figures::group_list{level, figures{}});
  const figures::group_list* levels = own.find<figures::group_list>("levels");
  REQUIRE(levels);
  REQUIRE(levels->size() == 2);
  CHECK(*(*levels)[0].find<std::int64_t>("groups") == 7);
}
