// SPDX-License-Identifier: BSL-1.0
#include "remat/adjoint.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/least_advances.hpp"

namespace {

using remat::adjoint_action;
using remat::adjoint_checker;
using remat::adjoint_report;
using remat::adjoint_sequence;
using remat::adjoint_tier;
using remat::adjoint_verb;
using remat::online_adjoint;

adjoint_report run(adjoint_sequence sequence, const adjoint_tier& memory, const adjoint_tier& disk = {},
                   std::span<const double> costs = {}) {
  adjoint_checker checker(sequence.steps(), memory, disk, costs);
  adjoint_action a = sequence.next();
  while (checker.take(a) && a.verb != adjoint_verb::done) a = sequence.next();
  CHECK(checker.report().message == "");
  CHECK(checker.complete());
  return checker.report();
}

adjoint_report run_online(std::uint64_t steps, std::uint32_t slots) {
  online_adjoint march(slots);
  adjoint_checker checker(0, {slots});
  adjoint_action a = march.next();
  bool ended = false;
  while (checker.take(a) && a.verb != adjoint_verb::done) {
    if (!ended && a.verb == adjoint_verb::advance && a.last == steps) {
      march.finish();
      ended = true;
    }
    a = march.next();
  }
  CHECK(checker.report().message == "");
  CHECK(checker.complete());
  CHECK(march.steps() == steps);
  return checker.report();
}

TEST_CASE("one tier: every sequence is legal and as good as the recurrence") {
  const auto t = remat::test::least_advances(70, 12);
  for (std::uint32_t slots = 1; slots <= 13; ++slots)
    for (std::uint64_t steps = 1; steps <= 70; ++steps) {
      CAPTURE(steps);
      CAPTURE(slots);
      const adjoint_sequence sequence(steps, slots);
      CHECK(sequence.cost() == static_cast<double>(t[slots - 1][steps]));
      const adjoint_report report = run(sequence, {slots});
      CHECK(report.advances == t[slots - 1][steps]);
      CHECK(report.peak_slots[0] == std::min<std::uint64_t>(slots, steps - 1));
      CHECK(report.stores[1] == 0);
    }
}

TEST_CASE("published numbers, up to a million steps") {
  struct row {
    std::uint64_t steps;
    std::uint32_t slots;
    std::uint64_t advances;
  };
  for (const row& r :
       {row{1000, 5, 6284}, row{1000, 10, 3636}, row{1000, 20, 2747}, row{1000, 40, 2097}, row{1000, 80, 1918},
        row{2000, 5, 14997}, row{2000, 10, 8635}, row{2000, 20, 5976}, row{10000, 5, 112868}, row{10000, 10, 57624},
        row{10000, 20, 37976}, row{1000000, 5, 31940948}, row{1000000, 10, 11647922}, row{1000000, 20, 6815960}}) {
    CAPTURE(r.steps);
    CAPTURE(r.slots);
    CHECK(run(adjoint_sequence(r.steps, r.slots), {r.slots}).advances == r.advances);
  }
}

TEST_CASE("many slots: every state is kept, and nothing runs twice") {
  const adjoint_report report = run(adjoint_sequence(50, 4'000'000'000U), {4'000'000'000U});
  CHECK(report.advances == 49);
  CHECK(report.peak_slots[0] == 49);
  CHECK(run(adjoint_sequence(2'000'000, 4'000'000'000U), {4'000'000'000U}).advances == 1'999'999);
}

TEST_CASE("steps that cost the same by their list are those without a list") {
  for (const std::uint32_t slots : {1U, 2U, 3U, 7U})
    for (const std::uint32_t disk : {0U, 1U, 2U, 50U})
      for (std::size_t steps = 1; steps < 60; steps += 3) {
        const std::vector<double> costs(steps, 0.25);
        adjoint_sequence listed(costs, {slots}, {disk, 0.5, 0.25}), plain(steps, {slots}, {disk, 2, 1});
        CHECK(listed.cost() == plain.cost());
        for (bool more = true; more;) {
          const adjoint_action a = listed.next();
          CHECK(a == plain.next());
          more = a.verb != adjoint_verb::done;
        }
      }
}

/// The least cost for steps of different costs in one tier, by the plain recurrence.
double least_cost(const std::vector<double>& costs, std::uint32_t slots) {
  const std::size_t n = costs.size();
  std::vector<double> before(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) before[i + 1] = before[i] + costs[i];
  // [first][last] for the spare slots of this and the last round.
  std::vector<std::vector<double>> less(n + 1, std::vector<double>(n + 1, 0)), now = less;
  for (std::uint32_t spare = 0; spare < slots; ++spare) {
    for (std::size_t length = 2; length <= n; ++length)
      for (std::size_t first = 0; first + length <= n; ++first) {
        const std::size_t last = first + length;
        double best = 0;
        for (std::size_t i = first + 1; i < last; ++i) best += before[i] - before[first];
        for (std::size_t k = first + 1; spare > 0 && k < last; ++k)
          best = std::min(best, before[k] - before[first] + less[k][last] + now[first][k]);
        now[first][last] = best;
      }
    less = now;
  }
  return now[0][n];
}

TEST_CASE("steps of different costs: the optimum if they are few, else legal, and near it if they differ little") {
  std::mt19937_64 random(7);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (const double spread : {0.01, 0.1, 1.0, 10.0})
    for (int round = 0; round < 12; ++round) {
      std::vector<double> costs(10 + random() % 60);
      for (double& cost : costs) cost = 1 + spread * uniform();
      for (const std::uint32_t slots : {1U, 2U, 4U, 9U}) {
        CAPTURE(spread);
        CAPTURE(costs.size());
        CAPTURE(slots);
        const adjoint_report report = run(adjoint_sequence(costs, {slots}), {slots}, {}, costs);
        const double least = least_cost(costs, slots);
        CHECK(report.cost == doctest::Approx(least).epsilon(1e-12));
        const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size());
        CHECK(adjoint_sequence(costs, {slots}).cost() * mean == doctest::Approx(least).epsilon(1e-12));
        run(adjoint_sequence(costs, {slots}, {3, 2, 1}), {slots}, {3, 2, 1}, costs);
      }
    }
  for (const double spread : {0.01, 0.1, 1.0, 10.0}) {
    std::vector<double> costs(512);  // the least number that is divided by fractions of the cost
    for (double& cost : costs) cost = 1 + spread * uniform();
    for (const std::uint32_t slots : {2U, 5U}) {
      CAPTURE(spread);
      CAPTURE(slots);
      const double cost = run(adjoint_sequence(costs, {slots}), {slots}, {}, costs).cost,
                   least = least_cost(costs, slots);
      CHECK(cost >= least * (1 - 1e-12));
      CHECK(cost <= least * (spread < 0.05 ? 1.01 : spread < 0.5 ? 1.05 : 1.25));
    }
  }
  for (const double tiny : {5e-324, 1e-300, 1e300}) {
    std::vector<double> costs(20, tiny);
    costs[7] = 0;
    for (const adjoint_tier& disk : {adjoint_tier{}, adjoint_tier{3, 2, 1}, adjoint_tier{3, 1e308, 1e308}})
      run(adjoint_sequence(costs, {2}, disk), {2}, disk, costs);
  }
  const std::vector<double> extreme{0, 0, 1e9, 0, 0, 0, 1, 0, 5, 0};
  for (const std::uint32_t slots : {1U, 2U, 3U, 9U})
    run(adjoint_sequence(extreme, {slots}, {2, 1, 1}), {slots}, {2, 1, 1}, extreme);
}

TEST_CASE("online: legal, within the bound, and reversed as well as the kept states allow") {
  for (const std::uint32_t slots : {1U, 2U, 3U, 5U, 8U, 20U, 50U})
    for (std::uint64_t steps = 1; steps <= 300; ++steps) {
      CAPTURE(steps);
      CAPTURE(slots);
      const adjoint_report report = run_online(steps, slots);
      CHECK(report.advances <= online_adjoint::most_advances(steps, slots));
      CHECK(report.advances >= static_cast<std::uint64_t>(adjoint_sequence(steps, slots).cost()) + 1);
      CHECK(report.peak_slots[0] <= slots);
      if (steps <= slots) CHECK(report.advances == steps);
    }
  CHECK(run_online(100'000, 30).advances < 5 * 100'000);
}

/// The steps forward of the march if it ends now.
std::uint64_t advances_from(online_adjoint march) {
  std::uint64_t advances = march.steps();
  march.finish();
  for (adjoint_action a = march.next(); a.verb != adjoint_verb::done; a = march.next())
    if (a.verb == adjoint_verb::advance) advances += a.last - a.first;
  return advances;
}

TEST_CASE("online: one more slot never costs more steps, and no march is far from the least") {
  constexpr std::size_t longest = 300;
  std::vector<std::uint64_t> fewer(longest + 1, std::numeric_limits<std::uint64_t>::max());
  for (std::uint32_t slots = 1; slots <= 21; ++slots) {
    online_adjoint march(slots);
    double sum = 0;
    while (march.steps() < longest) {
      if (march.next().verb != adjoint_verb::advance) continue;
      const std::uint64_t steps = march.steps(), advances = advances_from(march);
      CAPTURE(steps);
      CAPTURE(slots);
      CHECK(advances <= fewer[steps]);
      CHECK(advances <= online_adjoint::most_advances(steps, slots));
      fewer[steps] = advances;
      if (steps < 50) continue;
      const double ratio = static_cast<double>(advances) / adjoint_sequence(steps, slots).cost();
      sum += ratio;
      CHECK(ratio < 1.25);
    }
    CHECK(sum / (longest - 49) < (slots < 5 ? 1.15 : 1.05));
  }
  CHECK(advances_from([] {
          online_adjoint march(7);
          while (march.steps() < 90) (void)march.next();
          return march;
        }()) < 267);
}

TEST_CASE("online: the last kept states are given up if fewer steps run so, as they must within the bound") {
  for (const std::uint64_t steps : {12'254U, 12'300U, 12'500U}) {
    CAPTURE(steps);
    CHECK(run_online(steps, 4).advances <= online_adjoint::most_advances(steps, 4));
  }
}

TEST_CASE("no more states are kept at once than there are steps but one, nor than slots, whatever the costs") {
  std::mt19937_64 random(3);
  for (std::uint64_t steps = 1; steps < 40; ++steps)
    for (const std::uint32_t slots : {1U, 2U, 5U, 30U, 60U})
      for (const std::uint32_t on_disk : {0U, 1U, 4U, 60U})
        for (const double most : {0.0, 1.0, 20.0}) {
          CAPTURE(steps);
          CAPTURE(slots);
          CAPTURE(on_disk);
          CAPTURE(most);
          std::vector<double> costs(steps, 1);
          for (double& cost : costs) cost += most * static_cast<double>(random() % 8);
          const adjoint_tier memory{slots}, disk{on_disk, 2, 1};
          const adjoint_report report = run(adjoint_sequence(costs, memory, disk), memory, disk, costs);
          CHECK(report.peak_slots[0] <= std::min<std::uint64_t>(slots, steps - 1));
          CHECK(report.peak_slots[1] <= std::min<std::uint64_t>(on_disk, steps - 1));
        }
}

TEST_CASE("the checker refuses what is wrong") {
  const auto message = [](std::uint64_t steps, std::vector<adjoint_action> actions) {
    adjoint_checker checker(steps, {2}, {1, 3, 2});
    for (const adjoint_action& a : actions) checker.take(a);
    CHECK(!checker.complete());
    return std::to_string(checker.report().actions) + ": " + std::string(checker.report().message);
  };
  using v = adjoint_verb;
  CHECK(message(3, {{v::advance, 0, 1}, {v::advance, 0, 2}}) ==
        "1: the state before the first step is not the current one");
  CHECK(message(3, {{v::advance, 0, 4}}) == "0: an advance over steps that are reversed, or after the end");
  CHECK(message(3, {{v::advance, 0, 0}}) == "0: an advance of no steps");
  CHECK(message(3, {{v::advance, 0, 1}, {v::reverse, 1, 1}}) == "1: the step is not the last one of those to reverse");
  CHECK(message(3, {{v::advance, 0, 2}, {v::reverse, 1, 1}}) == "1: the state before the step is not the current one");
  CHECK(message(3, {{v::advance, 0, 2}, {v::reverse, 2, 2}, {v::done}}) == "2: done, but there are steps to reverse");
  CHECK(message(3, {{v::advance, 0, 2}, {v::reverse, 2, 2}, {v::store, 2, 2, {0, 0}}}) ==
        "2: the state to store is not the current one");
  CHECK(message(3, {{v::store, 0, 0, {0, 2}}}) == "0: there is no such slot");
  CHECK(message(3, {{v::store, 0, 0, {2, 0}}}) == "0: there is no such slot");
  CHECK(message(3, {{v::store, 0, 0, {0, 1}}, {v::store, 0, 0, {0, 1}}}) == "1: the slot is in use");
  CHECK(message(3, {{v::store, 0, 0, {0, 1}}, {v::restore, 1, 1, {0, 1}}}) == "1: the slot does not hold the state");
  CHECK(message(3, {{v::free, 0, 0, {1, 0}}}) == "0: the slot does not hold the state");
  // After an unknown end, the last state may have been made or not.
  CHECK(message(0, {{v::store, 0, 0, {0, 0}},
                    {v::advance, 0, 3},
                    {v::restore, 0, 0, {0, 0}},
                    {v::advance, 0, 1},
                    {v::reverse, 1, 1}}) == "4: the step is not the last one of those to reverse");

  adjoint_checker good(2, {1}, {1, 3, 2});
  for (const adjoint_action& a : std::vector<adjoint_action>{{v::store, 0, 0, {1, 0}},
                                                             {v::advance, 0, 1},
                                                             {v::reverse, 1, 1},
                                                             {v::restore, 0, 0, {1, 0}},
                                                             {v::free, 0, 0, {1, 0}},
                                                             {v::reverse, 0, 0},
                                                             {v::done}})
    CHECK(good.take(a));
  CHECK(good.complete());
  CHECK(good.report().cost == 6);
  CHECK(good.report().stores[1] == 1);
  CHECK(good.report().restores[1] == 1);
}

/// The time of a sequence whose copies run beside it.
double overlapped(adjoint_sequence sequence, const adjoint_tier& memory, const adjoint_tier& disk,
                  std::uint32_t buffers) {
  adjoint_checker checker(sequence.steps(), memory, disk);
  checker.overlap_copies(buffers, 2);
  adjoint_action a = sequence.next();
  while (checker.take(a) && a.verb != adjoint_verb::done) a = sequence.next();
  CHECK(checker.complete());
  return checker.report().time;
}

TEST_CASE("copies beside the march: by hand") {
  // Writes from 0 to 5 and from 5 to 10, reads from 10 to 14, for a state that is needed at 12, and from 14 to 18. With
  // one buffer the march waits until 5 for the first write, and the second read begins when the first one is used.
  const adjoint_tier disk{2, 5, 4};
  const std::vector<adjoint_action> actions{
      {adjoint_verb::store, 0, 0, {1, 0}}, {adjoint_verb::advance, 0, 1, {}}, {adjoint_verb::store, 1, 1, {1, 1}},
      {adjoint_verb::advance, 1, 2, {}},   {adjoint_verb::reverse, 2, 2, {}}, {adjoint_verb::restore, 1, 1, {1, 1}},
      {adjoint_verb::free, 1, 1, {1, 1}},  {adjoint_verb::reverse, 1, 1, {}}, {adjoint_verb::restore, 0, 0, {1, 0}},
      {adjoint_verb::reverse, 0, 0, {}},   {adjoint_verb::done, 0, 0, {}}};
  for (const std::uint32_t buffers : {2U, 1U, 0U}) {
    CAPTURE(buffers);
    adjoint_checker checker(3, {1}, disk);
    if (buffers > 0) checker.overlap_copies(buffers, 10);
    for (const adjoint_action& a : actions) CHECK(checker.take(a));
    CHECK(checker.complete());
    CHECK(checker.report().cost == 20);
    CHECK(checker.report().time == (buffers == 2 ? 34 : buffers == 1 ? 36 : 20));
  }
}

TEST_CASE("copies beside the march: no slower than one after another, and the sequence for it no slower than others") {
  int faster = 0;
  for (const std::uint64_t steps : {1U, 2U, 50U, 700U})
    for (const double write : {0.0, 1.0, 7.0, 40.0})
      for (const std::uint32_t buffers : {1U, 3U}) {
        CAPTURE(steps);
        CAPTURE(write);
        CAPTURE(buffers);
        const adjoint_tier memory{4}, disk{30, write, write / 2};
        const adjoint_sequence serial(steps, memory, disk);
        const double beside = overlapped(serial, memory, disk, buffers);
        const auto reversals = 2 * static_cast<double>(steps);
        CHECK(beside <= serial.cost() + reversals);
        CHECK(beside >= reversals + static_cast<double>(steps - 1));
        const double own =
            overlapped(remat::overlapped_sequence(steps, memory, disk, buffers, 2), memory, disk, buffers);
        CHECK(own <= beside);
        CHECK(own <= overlapped(adjoint_sequence(steps, memory.slots), memory, disk, buffers));
        faster += own < 0.95 * beside;
      }
  CHECK(faster > 2);
  CHECK_THROWS_AS((void)remat::overlapped_sequence(5, {2}, {1, 1, 1}, 0, 1), remat::bad_argument);
}

TEST_CASE("changed sequences are refused or cost what they say") {
  // Each single action left out, and each slot changed.
  const adjoint_tier memory{3}, disk{2, 1, 1};
  std::vector<adjoint_action> actions;
  adjoint_sequence sequence(40, memory, disk);
  for (adjoint_action a = sequence.next(); a.verb != adjoint_verb::done; a = sequence.next()) actions.push_back(a);
  for (std::size_t k = 0; k < actions.size(); ++k) {
    adjoint_checker checker(40, memory, disk);
    for (std::size_t i = 0; i < actions.size(); ++i)
      if (i != k) checker.take(actions[i]);
    // Nothing but the release of a slot that is not used again can be left out.
    CHECK(checker.complete() == (actions[k].verb == adjoint_verb::free && checker.report().legal));
  }
}

TEST_CASE("bad arguments") {
  CHECK_THROWS_AS(adjoint_sequence(0, 3), remat::bad_argument);
  CHECK_THROWS_AS(adjoint_sequence(std::uint64_t{1} << 31, 3), remat::bad_argument);
  CHECK_THROWS_AS(adjoint_sequence(3, 0), remat::bad_argument);
  const std::string times = "adjoint: a time to write, to read or to reverse must be finite and not negative";
  CHECK_THROWS_WITH_AS(adjoint_sequence(3, {1}, {1, -1, 0}), times.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS(adjoint_sequence(3, {1}, {1, std::nan(""), 0}), times.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS(adjoint_sequence(3, {1}, {1, 0, HUGE_VAL}), times.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS(adjoint_checker(3, {1}).overlap_copies(1, -1), times.c_str(), remat::bad_argument);
  CHECK_THROWS_AS(adjoint_sequence(3, {1}, {1, 0, std::nan("")}), remat::bad_argument);
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(adjoint_sequence(std::vector<double>{1, infinite}, {1}), remat::bad_argument);
  CHECK_THROWS_AS(adjoint_sequence(std::vector<double>{}, {1}), remat::bad_argument);
  CHECK_THROWS_AS(online_adjoint(0), remat::bad_argument);
  // −1 is not 4,294,967,295.
  const std::string slots = "adjoint: the slots of the memory must be from 1, for state 0, to 2^32 − 1";
  const int minus = -1;
  CHECK_THROWS_WITH_AS(adjoint_sequence(3, minus), slots.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS(adjoint_sequence(3, {std::int64_t{1} << 32}, {}), slots.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS(online_adjoint{minus}, slots.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS((void)online_adjoint::most_advances(9, minus), slots.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS(remat::reverse_steps(
                           0.0, 5, minus, [](double&, std::uint64_t) {}, [](double&, std::uint64_t) {}),
                       slots.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS(adjoint_sequence(3, {1}, {minus}), "adjoint: the slots of a tier must be from 0 to 2^32 − 1",
                       remat::bad_argument);
  CHECK_THROWS_AS((void)remat::overlapped_sequence(5, {2}, {1, 1, 1}, minus, 1), remat::bad_argument);
  // No sum of costs is more than a number can say.
  const std::string costs = "adjoint_sequence: all costs together, times the number of steps, must be finite";
  CHECK_THROWS_WITH_AS(adjoint_sequence(std::vector<double>(50, 1e308), {2}), costs.c_str(), remat::bad_argument);
  CHECK_THROWS_WITH_AS(adjoint_sequence(std::vector<double>(10, 1e307), {1}), costs.c_str(), remat::bad_argument);
  CHECK_THROWS_AS((void)adjoint_tier::measured(10, 0, 1, 1, 1), remat::bad_argument);
  CHECK_THROWS_AS((void)adjoint_tier::measured(10, 1, 1, -1, 1), remat::bad_argument);
  online_adjoint march(2);
  CHECK_THROWS_AS(march.finish(), remat::bad_argument);
  CHECK(march.next().verb == adjoint_verb::store);
  CHECK_THROWS_AS(march.finish(), remat::bad_argument);
  CHECK(march.next().verb == adjoint_verb::advance);
  march.finish();
  CHECK_THROWS_AS(march.finish(), remat::bad_argument);
}

TEST_CASE("a tier from measured speeds") {
  const adjoint_tier disk = adjoint_tier::measured(1000, 300, 100, 200, 0.5);
  CHECK(disk.slots == 3);
  CHECK(disk.write == 6);
  CHECK(disk.read == 3);
}

/// A map x → x + 0.1 sin(x + i) whose derivative is known, with states in vectors that stand for memory and disk.
struct sines {
  static double step(double x, std::uint64_t i) { return x + 0.1 * std::sin(x + static_cast<double>(i)); }
  static double slope(double x, std::uint64_t i) { return 1 + 0.1 * std::cos(x + static_cast<double>(i)); }

  void advance(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i < last; ++i) x = step(x, i);
  }
  void store(std::uint64_t, remat::adjoint_slot slot) {
    auto& states = kept[slot.tier];
    if (states.size() <= slot.index) states.resize(slot.index + std::size_t{1});
    states[slot.index] = x;
  }
  void restore(std::uint64_t, remat::adjoint_slot slot) { x = kept[slot.tier][slot.index]; }
  void reverse(std::uint64_t i) { gradient *= slope(x, i); }
  void free(std::uint64_t, remat::adjoint_slot) { ++freed; }

  double x = 0.3, gradient = 1;
  std::vector<double> kept[2];
  int freed = 0;
};

double gradient_of(std::uint64_t steps) {
  double x = 0.3, gradient = 1;
  for (std::uint64_t i = 0; i < steps; ++i) {
    gradient *= sines::slope(x, i);
    x = sines::step(x, i);
  }
  return gradient;
}

TEST_CASE("drivers: the gradient, whatever is kept where") {
  const double expected = gradient_of(500);
  for (const std::uint32_t disk : {0U, 2U, 500U}) {
    sines m;
    run_adjoint(adjoint_sequence(500, {4}, {disk, 2, 1}), m);
    CHECK(m.gradient == doctest::Approx(expected).epsilon(1e-12));
    CHECK(m.freed > 0);
    CHECK(m.kept[1].empty() == (disk == 0));
  }
  sines online;
  CHECK(run_adjoint(online_adjoint(6), online, [](std::uint64_t i) { return i == 500; }) == 500);
  CHECK(online.gradient == doctest::Approx(expected).epsilon(1e-12));

  double gradient = 1;
  remat::reverse_steps(
      0.3, 500, 7, [](double& x, std::uint64_t i) { x = sines::step(x, i); },
      [&](double& x, std::uint64_t i) { gradient *= sines::slope(x, i); });
  CHECK(gradient == doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE("exceptions of the functions leave the drivers") {
  const auto fail = [](double&, std::uint64_t i) {
    if (i == 3) throw std::runtime_error("step 3");
  };
  CHECK_THROWS_WITH(remat::reverse_steps(0.0, 5, 2, fail, [](double&, std::uint64_t) {}), "step 3");
}

}  // namespace
