// SPDX-License-Identifier: BSL-1.0
#include "remat/memory/plan.hpp"
#include "remat/memory/check.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/io/text.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"
#include "support/random_intervals.hpp"
#include "support/schedules.hpp"

namespace {
using namespace remat;  // NOLINT: a test

using test::full_intervals;
using test::random_intervals;

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

/// A rectangle of `times` × `bytes`, cut into `parts`: they fit it without a gap.
std::vector<interval> cut_rectangle(std::uint64_t seed, std::int64_t times, std::int64_t bytes, std::size_t parts) {
  std::mt19937_64 engine(seed);
  std::vector<interval> out{{0, times, bytes}};
  while (out.size() < parts) {
    const std::size_t k = engine() % out.size();
    const interval x = out[k];
    const bool in_time = engine() % 2 == 0;
    const std::int64_t length = in_time ? x.upper - x.lower : x.size;
    if (length < 2) continue;
    const std::int64_t cut = 1 + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(length - 1));
    out[k] = in_time ? interval{x.lower, x.lower + cut, x.size} : interval{x.lower, x.upper, cut};
    out.push_back(in_time ? interval{x.lower + cut, x.upper, x.size} : interval{x.lower, x.upper, x.size - cut});
  }
  return out;
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

TEST_CASE("a search of many long lifetimes ends soon after its deadline or a stop request") {
  // Some 10^8 sections of blocks, as schedules of 5,000 operations that hold much: one push takes long.
  const auto all = random_intervals(3, 20'000, 10'000, 1'000'000);
  const auto seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  memory_plan_options first;
  first.run.work_limit = 1;
  double begun = seconds();
  (void)plan_memory(all, first);
  const double packing = seconds() - begun;
  memory_plan_options options;
  options.alignment = 1;
  for (const int ms : {0, 50, 200, 400, 800}) {
    options.run.time_limit = std::chrono::milliseconds(ms);
    begun = seconds();
    const memory_plan plan = plan_memory(all, options);
    INFO(ms, " ms; the first packing took ", packing, " s");
    CHECK(seconds() - begun < packing + 1e-3 * ms + 0.2);
    CHECK(plan.statistics.stopped == stop_reason::deadline);
  }
  std::stop_source source;
  memory_plan_options stopped;
  stopped.alignment = 1;
  stopped.run.stop = source.get_token();
  stopped.run.time_limit = std::chrono::minutes(10);  // else the default limit of work may come first
  std::atomic<double> requested = 0;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    requested = seconds();
    source.request_stop();
  });
  const memory_plan plan = plan_memory(all, stopped);
  const double ended = seconds();
  stopper.join();
  CHECK(plan.statistics.stopped == stop_reason::cancelled);
  CHECK(ended - requested < packing + 0.1);
}

TEST_CASE("an arena that is enough ends the search, and proves nothing") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto all = full_intervals(seed, 40, 60);
    memory_plan_options options;
    options.alignment = 1;
    options.run.work_limit = 1;
    const memory_plan first = plan_memory(all, options);
    options.run.work_limit = 2'000'000;
    options.target_bytes = first.arena_bytes;
    const memory_plan same = checked(all, options);
    CHECK(same.arena_bytes <= options.target_bytes);
    CHECK(same.statistics.moves == 0);
    CHECK(same.optimal == (same.arena_bytes == same.lower_bound));
  }
}

TEST_CASE("intervals fit a capacity if and only if the smallest arena does") {
  std::size_t fits = 0, impossible = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto all = seed % 2 == 0 ? random_intervals(seed, 1 + seed % 7, 5, 9) : full_intervals(seed, 3, 8);
    if (all.size() > 7) continue;
    memory_plan_options options;
    options.alignment = 1 + static_cast<std::int64_t>(seed % 3);
    const std::int64_t smallest = smallest_arena(all, options.alignment);
    for (std::int64_t capacity = std::max<std::int64_t>(0, smallest - 2); capacity <= smallest + 2; ++capacity) {
      const memory_fit fit = fit_memory(all, capacity, options);
      CHECK(check_memory(all, fit.plan.offsets, fit.plan.arena_bytes, options.alignment).valid());
      CHECK(fit.status == (capacity >= smallest ? memory_fit_status::fits : memory_fit_status::impossible));
      CHECK((fit.plan.arena_bytes <= capacity) == (fit.status == memory_fit_status::fits));
      ++(fit.status == memory_fit_status::fits ? fits : impossible);
    }
  }
  CHECK(fits > 100);
  CHECK(impossible > 100);
}

TEST_CASE("a capacity below the load is impossible without a search, and a negative one is refused") {
  const auto all = random_intervals(5, 3000, 2000, 1000);
  memory_plan_options options;
  options.alignment = 1;
  options.target_bytes = -3;  // ignored
  const memory_fit fit = fit_memory(all, largest_load(all, 1) - 1, options);
  CHECK(fit.status == memory_fit_status::impossible);
  CHECK(fit.plan.statistics.moves + fit.plan.statistics.nodes == 0);
  CHECK(check_memory(all, fit.plan.offsets, fit.plan.arena_bytes, 1).valid());
  CHECK(fit_memory(all, fit.plan.arena_bytes, options).status == memory_fit_status::fits);
  CHECK(fit_memory(std::vector<interval>{}, 0).status == memory_fit_status::fits);
  CHECK_THROWS_WITH_AS((void)fit_memory(all, -1), "capacity is -1 bytes; it must not be negative", bad_argument);
}

TEST_CASE("the parts of a cut rectangle fit it, the same way each time") {
  std::size_t searched = 0, fits = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const auto all = cut_rectangle(seed, 60, 1000, 12 + 4 * seed);
    memory_plan_options options;
    options.alignment = 1;
    options.run.seed = seed;
    options.run.work_limit = 50'000'000;
    const memory_fit fit = fit_memory(all, 1000, options);
    CHECK(check_memory(all, fit.plan.offsets, fit.plan.arena_bytes, 1).valid());
    CHECK(fit.status != memory_fit_status::impossible);
    if (fit.status == memory_fit_status::unknown) CHECK(fit.plan.statistics.stopped == stop_reason::work);
    fits += fit.status == memory_fit_status::fits;
    searched += fit.plan.statistics.nodes > 0;
    options.run.threads = 2;
    const memory_fit again = fit_memory(all, 1000, options);
    CHECK(again.status == fit.status);
    CHECK(again.plan.offsets == fit.plan.offsets);
  }
  CHECK(fits >= 12);
  CHECK(searched >= 4);
}

TEST_CASE("a search for a capacity ends at its limits without an answer") {
  const auto all = full_intervals(3, 300, 5000);
  memory_plan_options options;
  options.alignment = 1;
  options.run.work_limit = 1;
  memory_fit fit = fit_memory(all, 5000, options);
  CHECK(fit.status == memory_fit_status::unknown);
  CHECK(fit.plan.statistics.stopped == stop_reason::work);
  std::stop_source source;
  source.request_stop();
  options.run = {};
  options.run.stop = source.get_token();
  fit = fit_memory(all, 5000, options);
  CHECK(fit.status == memory_fit_status::unknown);
  CHECK(fit.plan.statistics.stopped == stop_reason::cancelled);
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
  memory_plan_options negative;
  negative.target_bytes = -1;
  CHECK_THROWS_WITH_AS((void)plan_memory(std::vector<interval>{{0, 1, 1}}, negative),
                       "target_bytes is -1; expected at least 0", bad_argument);
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
    const bool close = plan.arena_bytes <= plan.lower_bound + plan.lower_bound / memory_plan_options::near_bound;
    CHECK((close || plan.statistics.work >= memory_plan_options::further_work));
    ++(close ? near : far);
  }
  CHECK(near + far >= 1);
  CHECK(near >= 1);
}

TEST_CASE("without a limit the work ends where no arena is near the bound") {
  // Of a step of GPT-2 whose tensors are copied to the host: the best arena known is 3.7 % above the load.
  std::ifstream file(std::filesystem::path(REMAT_TEST_DATA) / "intervals" / "gpt2-with-copies.csv");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<interval> all = parse_intervals(text, "gpt2-with-copies.csv").intervals;
  const memory_plan plan = checked(all, {});
  CHECK(plan.statistics.work <= memory_plan_options::further_work + 20'000'000);
  REQUIRE(plan.arena_bytes > plan.lower_bound + plan.lower_bound / memory_plan_options::near_bound);
  CHECK(plan.statistics.work >= memory_plan_options::further_work);
  CHECK(plan.statistics.stopped == stop_reason::work);
}

TEST_CASE("real schedules need at most 1.02 of the load, and mostly just the load") {
  std::size_t exact = 0, rows = 0;
  for (const char* name : {"gpt2-small-b8-s1024", "resnet50-b64-224", "unet5-b16-256", "vgg16-b64-224", "fno2d-b32-256",
                           "rk/transformer-encdec", "rk/resnet50"}) {
    const problem read = test::bundled_problem(name);
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
    const problem read = test::bundled_problem(name);
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
