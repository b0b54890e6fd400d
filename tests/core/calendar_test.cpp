// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/calendar.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "remat/core/detail/random.hpp"

TEST_CASE("items come once their date has passed, each once, and those of the past at the next call") {
  constexpr std::uint32_t items = 40, dates = 100, none = dates;
  remat::detail::random_source random(2);
  remat::detail::calendar calendar;
  std::size_t late = 0, came = 0;
  for (int round = 0; round < 20; ++round) {
    calendar.reset(items, dates);
    std::vector<std::uint32_t> date(items, none), out, expected;
    for (std::uint32_t today = 0; today <= dates; today += random.below(4)) {
      for (int i = 0; i < 5; ++i) {
        const std::uint32_t item = random.below(items);
        if (random.below(4) == 0) {
          calendar.remove(item);
          date[item] = none;
        } else {
          date[item] = random.below(dates + 10);
          calendar.set(item, date[item]);
          if (date[item] >= dates) date[item] = none;  // not among the dates
          late += date[item] < today ? 1U : 0U;
        }
      }
      out.clear();
      expected.clear();
      calendar.take_before(today, out);
      for (std::uint32_t item = 0; item < items; ++item)
        if (date[item] < today && date[item] != none) {
          expected.push_back(item);
          date[item] = none;
        }
      std::sort(out.begin(), out.end());
      REQUIRE(out == expected);
      came += out.size();
    }
  }
  CHECK(late > 500);
  CHECK(came > 2000);
}
