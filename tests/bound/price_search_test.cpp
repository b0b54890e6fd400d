// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/price_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/problem/problem.hpp"
#include "support/moment_choices.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

constexpr double infinity = std::numeric_limits<double>::infinity();
using choices = std::vector<std::pair<double, std::int64_t>>;  // times and bytes

choices choices_at(const flat_graph& g, std::uint32_t k) {
  choices all;
  test::every_choice(g, k, [&](double time, std::int64_t bytes) { all.push_back({time, bytes}); });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

double bound_at(const choices& all, std::int64_t room, double price) {
  double least = infinity;
  for (const auto& [time, bytes] : all) least = std::min(least, time + price * static_cast<double>(bytes - room));
  return least;
}

/// The highest bound of any price up to `highest`: at 0, there, or where the lines of two choices meet.
double highest_bound(const choices& all, std::int64_t room, double highest) {
  double best = std::max(bound_at(all, room, 0), bound_at(all, room, highest));
  for (const auto& [time, bytes] : all)
    for (const auto& [other_time, other_bytes] : all)
      if (bytes > other_bytes && other_time > time)
        if (const double price = (other_time - time) / static_cast<double>(bytes - other_bytes); price < highest)
          best = std::max(best, bound_at(all, room, price));
  return best;
}

TEST_CASE("the best price is found from any first price, and few flows are run") {
  int searches = 0, flows = 0, with_bound = 0, infeasible = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem p = test::problem_with_few_choices(seed);
    const flat_graph& g = p.graph();
    moment_cut cut(g);
    for (std::uint32_t k = 0; k < g.num_operations; ++k) {
      if (!g.needed[k]) continue;
      cut.at(k);
      const choices all = choices_at(g, k);
      for (const std::int64_t room : {0, 3, 8, 15})
        for (const double first : {0.0, 0.01, 0.4, 1e6}) {
          INFO("seed ", seed, " operation ", k, " room ", room, " first price ", first);
          price_search search(cut, room, first, 32);
          double best = 0;
          while (search.run_flow(best + 1e-9, {})) {
            ++flows;
            REQUIRE(search.value() <= bound_at(all, room, search.price()));
            best = std::max(best, search.value());
            if (search.fits()) REQUIRE(cut.choice().bytes <= room);
            if (search.new_left() || search.new_right()) {
              const moment_choice& found = search.new_left() ? search.left() : search.right();
              // In the cut, a choice may also compute what it does not read.
              REQUIRE(std::any_of(all.begin(), all.end(),
                                  [&](const auto& c) { return c.first <= found.time && c.second <= found.bytes; }));
            }
          }
          ++searches;
          REQUIRE(search.is_infeasible() ==
                  std::none_of(all.begin(), all.end(), [&](const auto& c) { return c.second <= room; }));
          infeasible += search.is_infeasible();
          if (search.is_infeasible()) continue;
          const double most = highest_bound(all, room, cut.highest_price());
          with_bound += most > 0;
          REQUIRE(best <= most);
          REQUIRE(best >= most * (1 - 1e-9) - 1e-8);
        }
    }
  }
  CHECK(with_bound > 2000);
  CHECK(infeasible > 100);
  CHECK(flows < 5 * searches);
}

TEST_CASE("between two choices: no price of their own, and no flow for a level that no price reaches") {
  int searches = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 6});
    const flat_graph& g = p.graph();
    moment_cut cut(g);
    for (std::uint32_t k = 0; k < g.num_operations; ++k) {
      if (!g.needed[k]) continue;
      cut.at(k);
      (void)cut.price(0);
      const moment_choice left = cut.choice(), right{cut.total_time(), 0};
      const std::int64_t room = left.bytes / 2;
      if (left.bytes <= room || cut.has_unrepeatable()) {
        if (left.bytes <= room) CHECK_FALSE(price_search(cut, room, left, right, 0, 32).run_flow(-infinity, {}));
        continue;
      }
      ++searches;
      price_search search(cut, room, left, right, 0, 32);
      const double most = search.most();
      CHECK_FALSE(search.run_flow(most, {}));
      price_search again(cut, room, left, right, 0, 2);
      int flows = 0;
      while (again.run_flow(-infinity, {})) {
        ++flows;
        CHECK(again.price() > 0);
        CHECK(again.value() <= most);
      }
      CHECK(flows <= 2);
      price_search stopped(cut, room, left, right, 0, 32);
      if (stopped.run_flow(-infinity, [] { return true; }) && !cut.complete()) {
        CHECK_FALSE(stopped.new_left());
        CHECK_FALSE(stopped.new_right());
        CHECK_FALSE(stopped.run_flow(-infinity, {}));
      }
    }
  }
  CHECK(searches > 100);
}

}  // namespace
