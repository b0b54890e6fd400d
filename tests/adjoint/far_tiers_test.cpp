// SPDX-License-Identifier: BSL-1.0
#include "remat/adjoint/detail/far_tiers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "remat/adjoint.hpp"

namespace {

using remat::adjoint_tier;

/// The least cost of sequences in three tiers whose kept states are nested, by the recurrence over (steps, the tier of
/// the first state, spare slots of each tier): any tier may keep the next state, within any other.
class nested {
 public:
  explicit nested(std::array<adjoint_tier, 3> tiers) : tiers_(tiers) {}
  double best(int steps) {
    double least = std::numeric_limits<double>::infinity();
    const std::array<int, 3> slots{static_cast<int>(tiers_[0].slots), static_cast<int>(tiers_[1].slots),
                                   static_cast<int>(tiers_[2].slots)};
    for (std::size_t g = 0; g < 3; ++g)
      if (slots[g] > 0) least = std::min(least, tiers_[g].write + from(steps, g, less(slots, g)));
    return least;
  }

 private:
  static std::array<int, 3> less(std::array<int, 3> spare, std::size_t g) {
    --spare[g];
    return spare;
  }
  double from(int l, std::size_t home, const std::array<int, 3>& spare) {
    if (l <= 1) return 0;
    const auto key = std::tuple(l, home, spare);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    double least = l * (l - 1) / 2.0 + tiers_[home].read * (l - 1);
    for (std::size_t g = 0; g < 3; ++g) {
      if (spare[g] == 0) continue;
      const std::array<int, 3> rest = less(spare, g);
      for (int j = 1; j < l; ++j)
        least = std::min(least, j + tiers_[g].write + from(l - j, g, rest) + tiers_[home].read + from(j, home, spare));
      if (g < home) least = std::min(least, tiers_[g].write + from(l, g, rest));
    }
    return known_[key] = least;
  }

  std::array<adjoint_tier, 3> tiers_;
  std::map<std::tuple<int, std::size_t, std::array<int, 3>>, double> known_;
};

/// Runs a sequence. Returns its findings; a complete one alone has a cost that is a number.
remat::adjoint_report run(remat::adjoint_sequence sequence, const std::vector<adjoint_tier>& tiers,
                          const std::vector<double>& costs = {}) {
  remat::adjoint_checker checker(sequence.steps(), tiers, costs);
  remat::adjoint_action a = sequence.next();
  while (checker.take(a) && a.verb != remat::adjoint_verb::done) a = sequence.next();
  CHECK(checker.report().message == "");
  CHECK(checker.complete());
  return checker.report();
}

TEST_CASE("three tiers: no nested sequence is cheaper, and the sequence costs what is said") {
  int third = 0;
  for (const std::uint32_t memory : {1U, 3U})
    for (const std::uint32_t disk : {0U, 1U, 3U})
      for (const std::uint32_t far : {0U, 1U, 4U, 20U})
        for (const double write : {0.5, 4.0})
          for (const double slower : {1.5, 8.0})
            for (const double read : {0.5, 1.0}) {
              const std::vector<adjoint_tier> tiers{
                  {memory}, {disk, write, write * read}, {far, write * slower, write * slower * read}};
              nested exact({tiers[0], tiers[1], tiers[2]});
              for (const int steps : {1, 2, 7, 20}) {
                CAPTURE(steps);
                CAPTURE(memory);
                CAPTURE(disk);
                CAPTURE(far);
                CAPTURE(write);
                CAPTURE(slower);
                CAPTURE(read);
                const remat::adjoint_sequence sequence(static_cast<std::uint64_t>(steps), tiers);
                CHECK(sequence.cost() == exact.best(steps));
                const remat::adjoint_report report = run(sequence, tiers);
                CHECK(report.cost == sequence.cost());
                third += report.stores[2] > 0;
              }
            }
  CHECK(third > 50);
}

TEST_CASE("long marches in three and four tiers cost what is said, and no more than with a tier less") {
  for (const std::uint64_t steps : {257U, 3000U, 100'000U})
    for (const std::uint32_t far : {2U, 60U, 100'000U}) {
      CAPTURE(steps);
      CAPTURE(far);
      const std::vector<adjoint_tier> tiers{{4}, {6, 0.5, 0.5}, {far, 3, 2}, {40, 30, 20}};
      double fewer = remat::adjoint_sequence(steps, tiers[0], tiers[1]).cost();
      for (const std::size_t number : {3U, 4U}) {
        const std::vector<adjoint_tier> some(tiers.begin(), tiers.begin() + static_cast<std::ptrdiff_t>(number));
        const remat::adjoint_sequence sequence(steps, some);
        CHECK(run(sequence, some).cost == doctest::Approx(sequence.cost()).epsilon(1e-12));
        CHECK(sequence.cost() <= fewer);
        fewer = sequence.cost();
      }
    }
}

TEST_CASE("steps of different costs in three tiers: legal, and near those of equal steps") {
  const std::vector<adjoint_tier> tiers{{3}, {4, 0.5, 0.5}, {50, 3, 3}};
  for (const std::size_t steps : {5U, 100U, 2000U}) {
    std::vector<double> costs;
    for (std::size_t i = 0; i < steps; ++i) costs.push_back(i % 3 == 0 ? 1.5 : 0.75);
    CAPTURE(steps);
    const double cost = run(remat::adjoint_sequence(costs, tiers), tiers, costs).cost;
    CHECK(cost <= 1.1 * remat::adjoint_sequence(steps, tiers).cost() + 2);
  }
}

TEST_CASE("bad tiers") {
  const std::vector<adjoint_tier> none, no_memory{{0}, {3, 1, 1}}, negative{{3}, {3, 1, 1}, {3, 1, -1}};
  CHECK_THROWS_AS(remat::adjoint_sequence(10, none), remat::bad_argument);
  CHECK_THROWS_AS(remat::adjoint_sequence(10, no_memory), remat::bad_argument);
  CHECK_THROWS_AS(remat::adjoint_sequence(10, negative), remat::bad_argument);
  CHECK_THROWS_AS(remat::adjoint_sequence(10, std::vector<adjoint_tier>(201, {3, 1, 1})), remat::bad_argument);
}

}  // namespace
