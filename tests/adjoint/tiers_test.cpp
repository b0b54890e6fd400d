// SPDX-License-Identifier: BSL-1.0
#include "remat/adjoint/detail/tiers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "remat/adjoint.hpp"

namespace {

using remat::detail::adjoint::best_tiering;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// The least cost of any legal sequence: the shortest path over all states (which states of the march each tier holds,
/// the current one, the steps to reverse).
double shortest(std::size_t steps, int memory, int disk, double write, double read,
                const std::vector<double>& costs = std::vector<double>(8, 1)) {
  struct place {
    std::size_t in_memory, on_disk, current, left;
  };
  const std::size_t sides = steps + 1;
  const auto key = [&](const place& p) {
    return (((p.in_memory << steps) | p.on_disk) * sides + p.current) * sides + p.left;
  };
  std::vector<double> best((std::size_t{1} << (2 * steps)) * sides * sides, infinite);
  std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>, std::greater<>> open;
  const auto reach = [&](place p, double cost) {
    p.in_memory &= (std::size_t{1} << p.left) - 1;
    p.on_disk &= (std::size_t{1} << p.left) - 1;
    double& known = best[key(p)];
    if (cost < known) open.emplace(known = cost, key(p));
  };
  const std::size_t none = steps;
  reach({0, 0, 0, steps}, 0);
  while (true) {
    const auto [cost, at] = open.top();
    open.pop();
    if (cost > best[at]) continue;
    const std::size_t sets = at / (sides * sides);
    const place p{sets >> steps, sets & ((std::size_t{1} << steps) - 1), at / sides % sides, at % sides};
    if (p.left == 0) return cost;
    const auto with = [&](auto change) {
      place q = p;
      change(q);
      return q;
    };
    if (p.current != none) {
      const std::size_t bit = std::size_t{1} << p.current;
      if (p.current + 1 < p.left) reach(with([](place& q) { ++q.current; }), cost + costs[p.current]);
      if (p.current + 1 == p.left) reach(with([&](place& q) { --q.left, q.current = none; }), cost);
      if (!(p.in_memory & bit) && __builtin_popcountll(p.in_memory) < memory)
        reach(with([&](place& q) { q.in_memory |= bit; }), cost);
      if (!(p.on_disk & bit) && __builtin_popcountll(p.on_disk) < disk)
        reach(with([&](place& q) { q.on_disk |= bit; }), cost + write);
    }
    for (std::size_t i = 0; i < p.left; ++i) {
      const std::size_t bit = std::size_t{1} << i;
      if (p.in_memory & bit) {
        reach(with([&](place& q) { q.current = i; }), cost);
        reach(with([&](place& q) { q.in_memory &= ~bit; }), cost);
      }
      if (p.on_disk & bit) {
        reach(with([&](place& q) { q.current = i; }), cost + read);
        reach(with([&](place& q) { q.on_disk &= ~bit; }), cost);
      }
    }
  }
}

/// The least cost of sequences whose kept states are nested: a state that is kept later is later in the march, too. The
/// recurrence over (steps, spare slots of the disk, spare slots in memory), for a first state that is in memory or on
/// disk.
class nested {
 public:
  nested(std::size_t steps, std::size_t memory, std::size_t disk, double write, double read)
      : memory_(memory), disk_(disk), write_(write) {
    in_memory_.assign((steps + 1) * (disk + 1) * (memory + 1), 0);
    on_disk_ = in_memory_;
    for (std::size_t l = 2; l <= steps; ++l)
      for (std::size_t d = 0; d <= disk; ++d)
        for (std::size_t c = 0; c <= memory; ++c) {
          const auto n = static_cast<double>(l);
          double m = n * (n - 1) / 2, s = m + read * (n - 1);
          for (std::size_t j = 1; j < l; ++j) {
            const auto run = static_cast<double>(j);
            if (d > 0) {
              const double right = run + write + on_disk_[at(l - j, d - 1, c)];
              s = std::min(s, right + read + on_disk_[at(j, d, c)]);
              m = std::min(m, right + in_memory_[at(j, d, c)]);
            }
            if (c > 0) {
              const double right = run + in_memory_[at(l - j, d, c - 1)];
              s = std::min(s, right + read + on_disk_[at(j, d, c)]);
              m = std::min(m, right + in_memory_[at(j, d, c)]);
            }
          }
          in_memory_[at(l, d, c)] = m;
          on_disk_[at(l, d, c)] = c > 0 ? std::min(s, in_memory_[at(l, d, c - 1)]) : s;
        }
  }
  [[nodiscard]] double best(std::size_t steps) const {
    const double m = in_memory_[at(steps, disk_, memory_ - 1)];
    return disk_ == 0 ? m : std::min(m, write_ + on_disk_[at(steps, disk_ - 1, memory_)]);
  }

 private:
  [[nodiscard]] std::size_t at(std::size_t l, std::size_t d, std::size_t c) const {
    return (l * (disk_ + 1) + d) * (memory_ + 1) + c;
  }
  std::size_t memory_, disk_;
  double write_;
  std::vector<double> in_memory_, on_disk_;
};

/// The cost of a sequence, which must be legal and complete.
double cost_of(remat::adjoint_sequence sequence, const remat::adjoint_tier& memory, const remat::adjoint_tier& disk,
               const std::vector<double>& costs) {
  remat::adjoint_checker checker(sequence.steps(), memory, disk, costs);
  remat::adjoint_action a = sequence.next();
  while (checker.take(a) && a.verb != remat::adjoint_verb::done) a = sequence.next();
  CHECK(checker.report().message == "");
  CHECK(checker.complete());
  return checker.report().cost;
}

TEST_CASE("no legal sequence is cheaper: all of them, up to six steps") {
  for (const int memory : {1, 2, 3})
    for (const int disk : {1, 2, 4})
      for (const double write : {0.0, 0.25, 1.0, 3.0})
        for (const double read : {0.0, 0.5, 1.0, 4.0})
          for (std::size_t steps = 1; steps <= (write == 0.25 ? 6 : 5); ++steps) {
            CAPTURE(steps);
            CAPTURE(memory);
            CAPTURE(disk);
            CAPTURE(write);
            CAPTURE(read);
            CHECK(best_tiering(steps, static_cast<std::uint64_t>(memory), static_cast<std::uint64_t>(disk), write, read)
                      .cost == shortest(steps, memory, disk, write, read));
          }
}

TEST_CASE("steps of different costs: no legal sequence is cheaper, up to seven steps") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    std::vector<double> costs, before{0};
    for (std::uint64_t i = 0; i < 7; ++i)
      costs.push_back(static_cast<double>((seed * 7 + i * i * 5 + seed / 3 * i) % 11));
    for (const double cost : costs) before.push_back(before.back() + cost);
    for (const int slots : {1, 2, 3, 5})
      CHECK(remat::detail::adjoint::best_splits(before, static_cast<std::uint64_t>(slots), {}).cost() ==
            shortest(7, slots, 0, 0, 0, costs));
  }
}

TEST_CASE("steps of different costs with a disk: no legal sequence is cheaper, and the sequence costs what is said") {
  std::mt19937_64 random(11);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int round = 0; round < 150; ++round) {
    const std::size_t steps = 2 + below(5);
    std::vector<double> costs(steps);
    for (double& cost : costs) cost = round % 3 == 0 ? 1 + below(3) : below(2) == 0 ? 1 + below(40) : below(3);
    costs[0] += 1;
    const remat::adjoint_tier memory{1 + below(3)}, disk{1 + below(4), below(40) / 4.0, below(40) / 4.0};
    CAPTURE(round);
    const double least =
        shortest(steps, static_cast<int>(memory.slots), static_cast<int>(disk.slots), disk.write, disk.read, costs);
    CHECK(cost_of(remat::adjoint_sequence(costs, memory, disk), memory, disk, costs) == doctest::Approx(least));
  }
  for (int round = 0; round < 60; ++round) {
    std::vector<double> costs(20 + below(80));
    for (double& cost : costs) cost = 1 + below(round % 2 == 0 ? 4 : 400);
    const remat::adjoint_tier memory{1 + below(9)}, disk{1 + below(9), below(400) / 4.0, below(400) / 4.0};
    CAPTURE(round);
    const remat::adjoint_sequence sequence(costs, memory, disk);
    const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size());
    const double cost = cost_of(sequence, memory, disk, costs);
    CHECK(cost == doctest::Approx(sequence.cost() * mean).epsilon(1e-12));
    // Never used, the third tier makes the sequence divide by fractions of the cost.
    const std::vector<remat::adjoint_tier> further{memory, disk, {1, 1e300, 1e300}};
    CHECK(cost <= cost_of(remat::adjoint_sequence(costs, further), memory, disk, costs) * (1 + 1e-12));
  }
}

TEST_CASE("no nested sequence is cheaper, and the sequence costs what is said") {
  for (const std::size_t memory : {1U, 2U, 3U, 6U})
    for (const std::size_t disk : {1U, 2U, 3U, 8U, 50U})
      for (const double write : {0.0, 0.5, 2.0, 16.0, 64.0})
        for (const double read : {0.0, 0.5, 4.0, 32.0}) {
          const nested exact(50, memory, disk, write, read);
          for (std::size_t steps = 1; steps <= 50; steps += steps < 12 ? 1 : 19) {
            CAPTURE(steps);
            CAPTURE(memory);
            CAPTURE(disk);
            CAPTURE(write);
            CAPTURE(read);
            const double cost = best_tiering(steps, memory, disk, write, read).cost;
            CHECK(cost == exact.best(steps));
            const remat::adjoint_tier fast{static_cast<std::uint32_t>(memory)};
            const remat::adjoint_tier slow{static_cast<std::uint32_t>(disk), write, read};
            remat::adjoint_sequence sequence(steps, fast, slow);
            remat::adjoint_checker checker(steps, fast, slow);
            remat::adjoint_action a = sequence.next();
            while (checker.take(a) && a.verb != remat::adjoint_verb::done) a = sequence.next();
            CHECK(checker.complete());
            CHECK(checker.report().cost == cost);
          }
        }
}

TEST_CASE("the costs of trees of different sizes have flat parts and waves: no nested sequence is cheaper") {
  CHECK(best_tiering(120, 1, 8, 2, 2).cost == 466);
  std::uint64_t seed = 1;
  const auto below = [&](std::uint64_t n) {
    return (seed = seed * 6364136223846793005 + 1442695040888963407) / 2048 % n;
  };
  for (int round = 0; round < 40; ++round) {
    const std::size_t memory = 1 + below(4), disk = 1 + below(9);
    const double write = static_cast<double>(below(24)) / 4,
                 read = below(2) == 0 ? write : static_cast<double>(below(12)) / 4;
    const nested exact(120, memory, disk, write, read);
    for (std::size_t steps = 2; steps <= 120; steps += 1 + below(9)) {
      CAPTURE(steps);
      CAPTURE(memory);
      CAPTURE(disk);
      CAPTURE(write);
      CAPTURE(read);
      CHECK(best_tiering(steps, memory, disk, write, read).cost == exact.best(steps));
    }
  }
}

TEST_CASE("long marches cost what is said") {
  for (const std::uint64_t steps : {3000U, 100000U})
    for (const std::uint32_t memory : {1U, 4U, 30U})
      for (const std::uint32_t disk : {2U, 40U, 100'000U})
        for (const double write : {0.5, 7.0, 200.0}) {
          if (memory == 1 && disk == 2) continue;  // many actions
          CAPTURE(steps);
          CAPTURE(memory);
          CAPTURE(disk);
          CAPTURE(write);
          const remat::adjoint_tier fast{memory}, slow{disk, write, write / 2};
          remat::adjoint_sequence sequence(steps, fast, slow);
          remat::adjoint_checker checker(steps, fast, slow);
          remat::adjoint_action a = sequence.next();
          while (checker.take(a) && a.verb != remat::adjoint_verb::done) a = sequence.next();
          CHECK(checker.report().message == "");
          CHECK(checker.complete());
          CHECK(checker.report().cost == doctest::Approx(sequence.cost()).epsilon(1e-12));
          CHECK(sequence.cost() <= remat::adjoint_sequence(steps, memory).cost());
        }
}

TEST_CASE("the least of a convex function") {
  for (std::uint64_t high = 0; high < 40; ++high)
    for (std::uint64_t least = 0; least <= high; ++least) {
      const auto f = [&](std::uint64_t x) { return x < least ? 3 * (least - x) : x - least; };
      CHECK(remat::detail::adjoint::least_of_convex(0, high, f) == least);
    }
}

}  // namespace
