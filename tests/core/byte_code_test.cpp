// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/byte_code.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "remat/core/error.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("numbers are written with the lowest byte first") {
  byte_writer out;
  out.number(std::uint32_t{0x01020304});
  out.number(std::uint8_t{5});
  out.number(1.0);
  const std::vector<std::byte> expected{std::byte{4}, std::byte{3},    std::byte{2},   std::byte{1}, std::byte{5},
                                        std::byte{0}, std::byte{0},    std::byte{0},   std::byte{0}, std::byte{0},
                                        std::byte{0}, std::byte{0xf0}, std::byte{0x3f}};
  CHECK(out.bytes() == expected);
}

TEST_CASE("a reader gets what was written, and refuses bytes that end too early") {
  const std::string name("a\0b\xff", 4);
  byte_writer out;
  out.number(std::numeric_limits<std::uint64_t>::max());
  out.number(std::numeric_limits<std::int64_t>::min());
  out.text(name);
  out.number(-0.0);
  out.text("");
  const std::span<const std::byte> all = out.bytes();
  byte_reader in(all);
  CHECK(in.number<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max());
  CHECK(in.number<std::int64_t>() == std::numeric_limits<std::int64_t>::min());
  CHECK(in.text() == name);
  const auto zero = in.number<double>();
  CHECK((zero == 0 && std::signbit(zero)));
  CHECK(!in.at_end());
  CHECK(in.text().empty());
  CHECK(in.at_end());
  const auto read = [](std::span<const std::byte> bytes) {
    byte_reader r(bytes);
    (void)r.number<std::uint64_t>();
    (void)r.number<std::int64_t>();
    (void)r.text();
    (void)r.number<double>();
    (void)r.text();
  };
  CHECK_NOTHROW(read(all));
  for (std::size_t size = 0; size < all.size(); ++size) CHECK_THROWS_AS(read(all.first(size)), bad_argument);
}

TEST_CASE("a count larger than the bytes that follow is refused before memory is taken for it") {
  byte_writer out;
  out.number(std::uint64_t{3});
  for (const int i : {1, 2, 3}) out.number(static_cast<std::uint32_t>(i));
  CHECK(byte_reader(out.bytes()).count(4) == 3);
  CHECK_THROWS_AS((void)byte_reader(out.bytes()).count(5), bad_argument);
}
