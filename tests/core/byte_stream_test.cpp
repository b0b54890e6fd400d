// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/byte_stream.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("numbers are written with the lowest byte first") {
  byte_writer out;
  out.put(std::uint32_t{0x01020304});
  out.put(std::uint8_t{5});
  out.put(1.0);
  const std::vector<std::byte> expected{std::byte{4}, std::byte{3},    std::byte{2},   std::byte{1}, std::byte{5},
                                        std::byte{0}, std::byte{0},    std::byte{0},   std::byte{0}, std::byte{0},
                                        std::byte{0}, std::byte{0xf0}, std::byte{0x3f}};
  CHECK(out.take() == expected);
  CHECK(out.take().empty());
}

TEST_CASE("a reader gets what was written, and refuses bytes that end too early") {
  const std::string name("a\0b\xff", 4);
  const std::vector<std::uint16_t> row{1, 0x203, 65535};
  index_rows rows;
  rows.values = {7, 8, 9};
  rows.end_row();
  byte_writer out;
  out.put(std::numeric_limits<std::uint64_t>::max());
  out.put(std::numeric_limits<std::int64_t>::min());
  out.put(name);
  out.put(row);
  out.put(-0.0);
  out.put(rows);
  out.put(std::optional<std::uint32_t>());
  out.put(std::optional<double>(0.5));
  out.put(std::string());
  const std::vector<std::byte> all = out.take();
  const auto read = [&](std::span<const std::byte> bytes) {
    byte_reader in(bytes);
    bool same = in.get<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max();
    same = in.get<std::int64_t>() == std::numeric_limits<std::int64_t>::min() && same;
    std::string text, empty = "?";
    in.get(text);
    std::vector<std::uint16_t> numbers;
    in.get(numbers);
    const auto zero = in.get<double>();
    index_rows other;
    in.get(other);
    std::optional<std::uint32_t> nothing = 3;
    in.get(nothing);
    std::optional<double> half;
    in.get(half);
    in.get(empty);
    return same && text == name && numbers == row && zero == 0 && std::signbit(zero) && other.begin == rows.begin &&
           other.values == rows.values && !nothing && half == 0.5 && empty.empty() && in.rest().empty();
  };
  CHECK(read(all));
  for (std::size_t size = 0; size < all.size(); ++size)
    CHECK_THROWS_AS((void)read(std::span(all).first(size)), bad_argument);
}

TEST_CASE("a length beyond the bytes that follow is refused before memory is taken for it") {
  byte_writer out;
  out.put(std::vector<std::uint32_t>{1, 2, 3});
  const std::vector<std::byte> bytes = out.take();
  CHECK(byte_reader(bytes).length(4) == 3);
  CHECK_THROWS_AS((void)byte_reader(bytes).length(5), bad_argument);
}
