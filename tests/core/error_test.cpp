// SPDX-License-Identifier: BSL-1.0
#include "remat/core/error.hpp"

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

#include "remat/core/id.hpp"

TEST_CASE("one family for bad input, and none of it is the library's own defect") {
  static_assert(std::is_base_of_v<remat::error, remat::bad_graph>);
  static_assert(std::is_base_of_v<remat::error, remat::bad_cost>);
  static_assert(std::is_base_of_v<remat::error, remat::bad_argument>);
  static_assert(std::is_base_of_v<remat::error, remat::bad_file>);
  static_assert(!std::is_base_of_v<remat::error, remat::internal_error>);
}

TEST_CASE("a bad file says which, where and what, on one line") {
  const remat::bad_file e("a.json", "/tensors/3/bytes", "is -1; it must not be negative");
  CHECK(std::string(e.what()) == "a.json: /tensors/3/bytes: is -1; it must not be negative");
  CHECK(e.file() == "a.json");
  CHECK(e.where() == "/tensors/3/bytes");
  CHECK(std::string(remat::bad_file("b", "", "cannot be opened").what()) == "b: cannot be opened");
}

TEST_CASE("ids are types of their own") {
  static_assert(!std::is_convertible_v<remat::op_id, remat::tensor_id>);
  static_assert(!std::is_convertible_v<remat::op_id, unsigned>);
  CHECK(remat::index(remat::op_id{7}) == 7);
  CHECK(remat::index(remat::tensor_id{9}) == 9);
}
