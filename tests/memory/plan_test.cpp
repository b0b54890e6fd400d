// SPDX-License-Identifier: BSL-1.0
// labels: memory
#include "remat/memory/plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "remat/io/training_graph_json.hpp"
#include "remat/memory/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/no_remat.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {
using namespace remat;  // NOLINT: a test

std::vector<interval> random_intervals(std::uint64_t seed, std::size_t n, std::int64_t times, std::int64_t largest) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::int64_t k) {
    return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(k));
  };
  std::vector<interval> out(n);
  for (interval& x : out) {
    x.lower = below(times);
    x.upper = x.lower + 1 + below(times - x.lower);
    x.size = below(largest + 1);
  }
  return out;
}

/// Intervals whose load is `load` at each of `times` times: an arena of that size would have no hole.
std::vector<interval> full_intervals(std::uint64_t seed, std::int64_t times, std::int64_t load) {
  std::mt19937_64 engine(seed * 977 + static_cast<std::uint64_t>(load));
  std::vector<interval> out;
  std::vector<std::size_t> open;
  std::int64_t now = 0;
  for (std::int64_t t = 0; t < times; ++t) {
    for (std::size_t k = open.size(); k-- > 0;)
      if (engine() % 2 == 0) {
        out[open[k]].upper = t;
        now -= out[open[k]].size;
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
      }
    while (now < load) {
      std::int64_t size = 1 + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(load - now));
      if (size > load / 2) size = std::max<std::int64_t>(1, size / 2);
      open.push_back(out.size());
      out.push_back({t, times, size});
      now += size;
    }
  }
  return out;
}

std::int64_t largest_load(const std::vector<interval>& all, std::int64_t alignment) {
  std::int64_t most = 0;
  for (const interval& x : all) {
    std::int64_t load = 0;
    for (const interval& y : all)
      if (y.lower <= x.lower && x.lower < y.upper) load += (y.size + alignment - 1) / alignment * alignment;
    most = std::max(most, load);
  }
  return most;
}

/// The smallest arena: in every order, each block right above what it meets of those before it.
std::int64_t smallest_arena(const std::vector<interval>& all, std::int64_t alignment) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::int64_t> end(all.size());
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  do {
    std::int64_t top = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const interval& x = all[order[k]];
      std::int64_t at = 0;
      for (std::size_t m = 0; m < k; ++m) {
        const interval& y = all[order[m]];
        if (x.size > 0 && y.size > 0 && x.lower < y.upper && y.lower < x.upper) at = std::max(at, end[order[m]]);
      }
      end[order[k]] = at + (x.size + alignment - 1) / alignment * alignment;
      top = std::max(top, end[order[k]]);
    }
    best = std::min(best, top);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

memory_plan checked(const std::vector<interval>& all, const memory_plan_options& options = {}) {
  memory_plan plan = plan_memory(all, options);
  const memory_check_report report = check_memory(all, plan.offsets, plan.arena_bytes, options.alignment);
  INFO(report.message());
  REQUIRE(report.valid());
  CHECK(plan.lower_bound == largest_load(all, options.alignment));
  CHECK(plan.arena_bytes >= plan.lower_bound);
  if (plan.arena_bytes == plan.lower_bound) CHECK(plan.optimal);
  return plan;
}
}  // namespace

TEST_CASE("small arenas are the smallest, and proven so") {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const std::int64_t alignment = 1 + static_cast<std::int64_t>(seed % 3);
    const auto all = seed % 2 == 0 ? random_intervals(seed, 1 + seed % 7, 3 + static_cast<std::int64_t>(seed % 5), 9)
                                   : full_intervals(seed, 3, 8);
    if (all.size() > 7) continue;
    memory_plan_options options;
    options.alignment = alignment;
    const memory_plan plan = checked(all, options);
    INFO("seed ", seed);
    CHECK(plan.optimal);
    CHECK(plan.arena_bytes == smallest_arena(all, alignment));
  }
}

TEST_CASE("where the largest load is too little, that is proven") {
  std::size_t above_bound = 0, compared = 0;
  memory_plan_options options;
  options.alignment = 1;
  for (std::uint64_t seed = 0; seed < 40'000; ++seed) {
    const auto all = full_intervals(seed, 5 + static_cast<std::int64_t>(seed % 4), 4);
    const memory_plan plan = plan_memory(all, options);
    if (plan.arena_bytes == plan.lower_bound) continue;
    ++above_bound;
    CHECK(plan.optimal);
    if (all.size() > 9) continue;
    CHECK(plan.arena_bytes == smallest_arena(all, 1));
    ++compared;
  }
  CHECK(above_bound >= 5);
  CHECK(compared >= 1);
}

TEST_CASE("random intervals of every shape give sound plans, close to the bound") {
  double worst = 1;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::int64_t times = 2 + static_cast<std::int64_t>(seed * 7 % 90);
    const auto all = random_intervals(seed, seed % 120, times, seed % 2 == 0 ? 12 : 100'000);
    memory_plan_options options;
    options.alignment = seed % 3 == 0 ? 1 : 256;
    options.run.work_limit = 300'000;
    const memory_plan plan = checked(all, options);
    if (plan.lower_bound > 0)
      worst = std::max(worst, static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound));
  }
  CHECK(worst < 1.2);
}

TEST_CASE("lifetimes that are nested, and those of a stack, need no more than the bound") {
  std::mt19937_64 engine(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<interval> all;
    // A stack: what opens last closes first.
    std::vector<std::size_t> open;
    for (std::int64_t t = 0; t < 400; ++t) {
      if (open.empty() || engine() % 2 == 0) {
        open.push_back(all.size());
        all.push_back({t, 401, static_cast<std::int64_t>(engine() % 5000)});
      } else {
        all[open.back()].upper = t;
        open.pop_back();
      }
    }
    memory_plan_options first_packing;
    first_packing.run.work_limit = 1;
    const memory_plan plan = checked(all, first_packing);
    CHECK(plan.arena_bytes == plan.lower_bound);
    CHECK(plan.optimal);
    CHECK(plan.statistics.moves == 0);
  }
}

TEST_CASE("the seed and the work limit decide, and more work is never worse") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const auto all = random_intervals(seed, 150, 60, 1000);
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const std::uint64_t work : {1U, 100'000U, 400'000U, 1'600'000U}) {
      memory_plan_options options;
      options.alignment = 1;
      options.run.work_limit = work;
      options.run.seed = seed;
      const memory_plan plan = plan_memory(all, options);
      const memory_plan again = plan_memory(all, options);
      CHECK(plan.offsets == again.offsets);
      CHECK(plan.statistics.work == again.statistics.work);
      CHECK(plan.arena_bytes <= before);
      before = plan.arena_bytes;
      if (!plan.optimal) CHECK(plan.statistics.stopped == stop_reason::work);
    }
  }
}

TEST_CASE("deadline and stop token are kept, with a sound plan") {
  const auto all = random_intervals(5, 1500, 300, 1'000'000);
  memory_plan_options options;
  options.run.time_limit = std::chrono::milliseconds(100);
  const auto begin = std::chrono::steady_clock::now();
  const memory_plan plan = checked(all, options);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  if (!plan.optimal) CHECK(plan.statistics.stopped == stop_reason::deadline);

  std::stop_source source;
  source.request_stop();
  memory_plan_options cancelled;
  cancelled.run.stop = source.get_token();
  const memory_plan first = checked(all, cancelled);
  CHECK(first.statistics.moves == 0);
  if (!first.optimal) CHECK(first.statistics.stopped == stop_reason::cancelled);
}

TEST_CASE("an arena that is enough ends the search, and proves nothing") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto all = full_intervals(seed, 40, 60);
    memory_plan_options options;
    options.alignment = 1;
    options.run.work_limit = 1;
    const memory_plan first = plan_memory(all, options);
    options.run.work_limit = 2'000'000;
    options.enough = first.arena_bytes;
    const memory_plan same = checked(all, options);
    CHECK(same.arena_bytes <= options.enough);
    CHECK(same.statistics.moves == 0);
    CHECK(same.optimal == (same.arena_bytes == same.lower_bound));
  }
}

TEST_CASE("unusable intervals are refused, each with what is wrong") {
  const auto wrong = [](std::vector<interval> all, std::int64_t alignment, const char* words) {
    memory_plan_options options;
    options.alignment = alignment;
    try {
      (void)plan_memory(all, options);
      FAIL_CHECK("accepted: ", words);
    } catch (const bad_argument& e) {
      CHECK(std::string(e.what()).find(words) != std::string::npos);
    }
  };
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  wrong({{0, 1, 1}}, 0, "alignment is 0");
  wrong({{0, 1, 1}, {0, 1, -5}}, 1, "interval 1: size is -5");
  wrong({{3, 3, 1}}, 1, "interval 0: upper is 3; it must be above lower, 3");
  wrong({{0, 1, largest}, {5, 6, 1}}, 1, "interval 1: the rounded sizes");
  wrong({{0, 1, largest}}, 256, "interval 0: the rounded sizes");
  memory_plan_options options;
  options.alignment = 1;
  CHECK(plan_memory(std::vector<interval>{{0, 1, largest}}, options).arena_bytes == largest);
  const memory_plan empty = plan_memory(std::vector<interval>{});
  CHECK(empty.arena_bytes == 0);
  CHECK(empty.optimal);
  const memory_plan nothing = plan_memory(std::vector<interval>{{0, 9, 0}, {1, 2, 0}});
  CHECK(nothing.arena_bytes == 0);
  CHECK(nothing.offsets == std::vector<std::int64_t>{0, 0});
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CHECK(plan_memory(std::vector<interval>{{least, largest, 7}}).arena_bytes == 256);
}

TEST_CASE("random schedules: the arena holds the peak, and allocations that are there together stay apart") {
  std::size_t tight = 0, plans = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 16)});
    const schedule plan = test::random_schedule(p, seed).plan;
    const check_report report = check(p, plan);
    if (!report.valid()) continue;
    const lifetimes lives = lifetimes_of(p, plan);
    memory_plan_options options;
    options.alignment = 1;
    const memory_plan arena = plan_memory(lives, options);
    CHECK(check_memory(intervals_of(lives), arena.offsets, arena.arena_bytes).valid());
    CHECK(arena.lower_bound == report.peak_bytes);
    tight += arena.arena_bytes == report.peak_bytes;
    ++plans;
  }
  CHECK(tight * 100 >= plans * 95);
}

TEST_CASE("packing anew keeps to the height that it is given, and blocks apart") {
  std::size_t packed = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto all = random_intervals(seed, 40 + seed % 200, 60, seed % 2 == 0 ? 1000 : 50);
    for (detail::memory_planning::component& c : detail::memory_planning::divide(all, 1)) {
      if (c.blocks() < 20) continue;
      const std::int64_t capacity = c.load + c.load / (seed % 3 == 0 ? 200 : 25);
      const run_control control;
      run_clock clock(control);
      memory_plan_statistics statistics;
      const detail::memory_planning::pushes when =
          seed % 2 == 0 ? detail::memory_planning::pushes::never : detail::memory_planning::pushes::at_times;
      if (!detail::memory_planning::repack(c, capacity, when, 200'000, clock, seed, statistics)) {
        CHECK(c.offset.empty());
        ++refused;
        continue;
      }
      ++packed;
      CHECK(c.height <= capacity);
      std::vector<interval> lives;
      for (std::uint32_t i = 0; i < c.blocks(); ++i) lives.push_back(all[c.id[i]]);
      CHECK(check_memory(lives, c.offset, c.height).valid());
    }
  }
  CHECK(packed >= 40);
  CHECK(packed + refused >= 60);
}

TEST_CASE("without a limit the work ends where the arena is near the bound") {
  std::size_t near = 0, far = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto all = random_intervals(seed, seed < 3 ? 700 : 180, seed < 3 ? 500 : 60, 1000);
    memory_plan_options options;
    options.alignment = 1;
    const memory_plan plan = checked(all, options);
    CHECK(plan.statistics.work <= memory_plan_options::further_work + 20'000'000);
    if (plan.optimal) continue;
    CHECK(plan.statistics.stopped == stop_reason::work);
    CHECK(plan.statistics.work >= memory_plan_options::default_work);
    const bool close = plan.arena_bytes <= plan.lower_bound + plan.lower_bound / memory_plan_options::near_enough;
    CHECK((close || plan.statistics.work >= memory_plan_options::further_work));
    ++(close ? near : far);
  }
  CHECK(near + far >= 1);
  CHECK(near >= 1);
}

TEST_CASE("real schedules need at most 1.02 of the load, and mostly just the load") {
  std::size_t exact = 0, rows = 0;
  for (const char* name : {"gpt2-small-b8-s1024", "resnet50-b64-224", "unet5-b16-256", "vgg16-b64-224", "fno2d-b32-256",
                           "rk/transformer-encdec", "rk/resnet50"}) {
    const problem read =
        read_training_step(std::string(REMAT_TEST_DATA) + "/graphs/" + std::string(name) + ".json").instance;
    for (const int percent : {100, 70, 50, 40}) {
      const problem p = read.with_budget(read.graph().baseline_peak / 100 * percent);
      const solution s = percent == 100 ? no_remat(read) : evict(p);
      if (!s.plan) continue;
      const lifetimes lives = lifetimes_of(read, *s.plan);
      const memory_plan arena = plan_memory(lives);
      INFO(name, " ", percent, ": ", arena.arena_bytes, " against ", arena.lower_bound);
      CHECK(check_memory(intervals_of(lives), arena.offsets, arena.arena_bytes, 256).valid());
      CHECK(static_cast<double>(arena.arena_bytes) <= 1.02 * static_cast<double>(arena.lower_bound));
      exact += arena.arena_bytes == arena.lower_bound;
      ++rows;
    }
  }
  CHECK(rows >= 20);
  CHECK(exact * 10 >= rows * 8);
}

TEST_CASE("schedules of small budgets, which the first packings leave far above the load, come to 1.02 of it") {
  std::size_t far = 0;
  const std::vector<std::pair<std::string, int>> hard{
      {"gpt2-medium-b4-s512", 20}, {"resnet101-b100-128", 20}, {"uno2d-b16-256", 50}, {"rk/resnet50", 20}};
  for (const auto& graph : hard) {
    const std::string& name = graph.first;
    const int percent = graph.second;
    const problem read = read_training_step(std::string(REMAT_TEST_DATA) + "/graphs/" + name + ".json").instance;
    const solution s = evict(read.with_budget(read.graph().baseline_peak / 100 * percent));
    REQUIRE(s.plan);
    const lifetimes lives = lifetimes_of(read, *s.plan);
    memory_plan_options first;
    first.run.work_limit = 1;
    const memory_plan packing = plan_memory(lives, first);
    const memory_plan arena = plan_memory(lives);
    INFO(name, ": ", packing.arena_bytes, ", then ", arena.arena_bytes, " against ", arena.lower_bound);
    CHECK(check_memory(intervals_of(lives), arena.offsets, arena.arena_bytes, 256).valid());
    CHECK(static_cast<double>(arena.arena_bytes) <= 1.02 * static_cast<double>(arena.lower_bound));
    far += static_cast<double>(packing.arena_bytes) > 1.05 * static_cast<double>(arena.lower_bound);
  }
  CHECK(far >= 2);
}
