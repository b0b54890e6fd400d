// SPDX-License-Identifier: BSL-1.0
#include "remat/io/text.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace {
using namespace remat;  // NOLINT: a test
}

TEST_CASE("columns may stand in any order, with or without offsets, with any line ends") {
  const intervals_file expected{{"a b", "7"}, {{-3, 4, 5}, {4, 5, 0}}, {}};
  CHECK(parse_intervals("id,lower,upper,size\na b,-3,4,5\n7,4,5,0\n", "x") == expected);
  CHECK(parse_intervals("\xEF\xBB\xBFid,lower,upper,size\r\na b,-3,4,5\r\n\r\n7,4,5,0", "x") == expected);
  CHECK(parse_intervals("size,upper,lower,id\n5,4,-3,a b\n\n0,5,4,7\n", "x") == expected);
  intervals_file planned = expected;
  planned.offsets = std::vector<std::int64_t>{0, 256};
  CHECK(parse_intervals("offset,id,lower,upper,size\n0,a b,-3,4,5\n256,7,4,5,0\n", "x") == planned);
  const intervals_file none = parse_intervals("id,lower,upper,size\n", "x");
  CHECK(none.intervals.empty());
  CHECK_FALSE(none.offsets.has_value());
}

TEST_CASE("what is written is read back to the same value") {
  std::mt19937_64 engine(1);
  for (int round = 0; round < 200; ++round) {
    intervals_file file;
    const std::size_t n = engine() % 6;
    if (round % 2 == 0) file.offsets.emplace();
    for (std::size_t i = 0; i < n; ++i) {
      file.ids.push_back("t" + std::to_string(engine() % 100) + (i % 2 == 0 ? "" : " ü;'"));
      const auto lower = static_cast<std::int64_t>(engine());
      file.intervals.push_back({lower / 2, lower / 2 + 1 + static_cast<std::int64_t>(engine() % 100),
                                static_cast<std::int64_t>(engine() >> 1)});
      if (file.offsets) file.offsets->push_back(static_cast<std::int64_t>(engine() >> 1));
    }
    CHECK(parse_intervals(to_csv(file), "x") == file);
  }
  const intervals_file file{{"a"}, {{0, 1, 2}}, std::vector<std::int64_t>{3}};
  CHECK(to_csv(file) == "id,lower,upper,size,offset\na,0,1,2,3\n");
}

TEST_CASE("what cannot be read is said with file, line, column and what would be right") {
  struct wrong {
    const char* text;
    const char* message;
  };
  const wrong all[] = {
      {"", "x.csv: line 1: the names of the columns are missing"},
      {"\n\n", "x.csv: line 1: the names of the columns are missing"},
      {"1,2,3,4\n", "x.csv: line 1: there is no column \"1\"; expected id, lower, upper, size and offset"},
      {"id,lower,upper\n", "x.csv: line 1: column size is missing"},
      {"id,lower,upper,size,alignment\n", "x.csv: line 1: there is no column \"alignment\""},
      {"id,lower,upper,size,id\n", "x.csv: line 1: column id is given twice"},
      {"id,lower,upper,size\n1,2,3\n", "x.csv: line 2: has 3 fields; expected 4"},
      {"id,lower,upper,size\n\n1,2,3,4,5\n", "x.csv: line 3: has 5 fields; expected 4"},
      {"id,lower,upper,size\n1,2,x,4\n", "x.csv: line 2, column upper: is \"x\"; expected a whole number"},
      {"id,lower,upper,size\n1,2,3.5,4\n", "x.csv: line 2, column upper: is \"3.5\""},
      {"id,lower,upper,size\n1,2,3,99999999999999999999\n", "x.csv: line 2, column size: is \"99999999999999999999\""},
      {"id,lower,upper,size\n1,2,3,-4\n", "x.csv: line 2, column size: is -4; it must not be negative"},
      {"id,lower,upper,size,offset\n1,2,3,4,-1\n", "x.csv: line 2, column offset: is -1; it must not be negative"},
      {"id,lower,upper,size\n1,3,3,4\n", "x.csv: line 2, column upper: is 3; it must be above lower, 3"},
      {"id,lower,upper,size\n,2,3,4\n", "x.csv: line 2, column id: is empty"},
      {"id,lower,upper,size\n\"a\",2,3,4\n", "x.csv: line 2, column id: has a quote"},
      {"id,lower,upper,size\n1, 2,3,4\n", "x.csv: line 2, column lower: is \" 2\""},
  };
  for (const wrong& w : all) {
    INFO(w.message);
    try {
      (void)parse_intervals(w.text, "x.csv");
      FAIL_CHECK("accepted");
    } catch (const bad_file& e) {
      CHECK(std::string(e.what()).substr(0, std::string(w.message).size()) == w.message);
    }
  }
}

TEST_CASE("what cannot be written is refused") {
  const std::vector<interval> one{{0, 1, 2}};
  for (const char* id : {"", "a,b", "a\nb", "a\"b"}) CHECK_THROWS_AS((void)to_csv({{id}, one, {}}), bad_argument);
  CHECK_THROWS_AS((void)to_csv({{}, one, {}}), bad_argument);
  CHECK_THROWS_AS((void)to_csv({{"a"}, one, std::vector<std::int64_t>{}}), bad_argument);
}
