// SPDX-License-Identifier: BSL-1.0
#include "remat/hierarchy/detail/find_ways.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/json.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/random_sub_graphs.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test
using namespace std::chrono_literals;

bool same(const sub_graph_way& a, const sub_graph_way& b) {
  return a.forward == b.forward && a.backward == b.backward && a.time() == b.time() && a.saved_bytes == b.saved_bytes &&
         a.forward_peak_bytes == b.forward_peak_bytes && a.backward_peak_bytes == b.backward_peak_bytes &&
         a.kept == b.kept;
}
bool same(const way_table& a, const way_table& b) {
  if (a.ways.size() != b.ways.size()) return false;
  for (std::size_t i = 0; i < a.ways.size(); ++i)
    if (!std::equal(a.ways[i].begin(), a.ways[i].end(), b.ways[i].begin(), b.ways[i].end(),
                    [](const sub_graph_way& x, const sub_graph_way& y) { return same(x, y); }))
      return false;
  return true;
}

/// A call of `find_ways`: its settings, its limits, and schedules to start from.
struct question : way_search {
  run_control run{};
  std::function<std::vector<schedule>(std::size_t, const sub_graph_runs&, std::int64_t, std::int64_t, run_clock&)>
      starts{};
};

/// The default solvers, with the schedules of a question to start from.
struct solvers_from : default_sub_solvers {
  const question& asked;
  explicit solvers_from(const question& q) : asked(q) {}
  [[nodiscard]] std::vector<schedule> starts(std::size_t i, const sub_graph_runs& runs, std::int64_t peak,
                                             std::int64_t save, run_clock& clock) const {
    return asked.starts ? asked.starts(i, runs, peak, save, clock) : std::vector<schedule>{};
  }
};

question quick(std::uint64_t moves = 200) {
  question search;
  search.moves = moves;
  return search;
}
way_table ways_of(std::span<const sub_graph> parts, const question& search) {
  run_clock clock(search.run);
  return find_ways(parts, search, solvers_from(search), clock);
}

/// What holds of every table.
void check_table(const way_table& table, std::span<const sub_graph> parts, const question& search) {
  REQUIRE(table.ways.size() == parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const sub_graph_runs runs(parts[i]);
    const std::vector<sub_graph_way>& ways = table.ways[i];
    REQUIRE(!ways.empty());
    REQUIRE(ways.size() <= std::max<std::size_t>(search.max_ways, 2));
    // The fastest way is to run everything once, and what saves most comes first.
    const sub_graph_way all = runs.keep_everything();
    REQUIRE(std::any_of(ways.begin(), ways.end(),
                        [&](const sub_graph_way& o) { return o.time() <= all.time() * (1 + 1e-12); }));
    REQUIRE(std::is_sorted(ways.begin(), ways.end(), [](const sub_graph_way& a, const sub_graph_way& b) {
      return a.saved_bytes > b.saved_bytes;
    }));
    for (const sub_graph_way& o : ways) {
      const auto measured = runs.measure(o.forward, o.backward);
      REQUIRE(measured);
      REQUIRE(same(*measured, o));
    }
  }
}

/// Parts of a random step, or none where it has sums of forward and backward operations.
std::vector<sub_graph> random_sub_graphs(std::uint64_t seed) {
  const test::divided_step d = test::random_divided_step(seed);
  return d.mixed_sums() ? std::vector<sub_graph>{} : d.sub_graphs();
}

test::divided_step bundled(const std::string& name, std::uint32_t max_group) {
  return test::divide(test::bundled_problem(name), max_group, 6);  // large groups
}

}  // namespace

TEST_CASE("random parts: options are measured, sorted, and each is the fastest for what it holds") {
  std::size_t compared = 0, several = 0, costly = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(120, 800); ++seed) {
    std::vector<sub_graph> parts = random_sub_graphs(seed);
    std::erase_if(parts, [](const sub_graph& p) { return p.operations.size() > 10; });
    question search = quick();
    search.max_ways = 30;
    const way_table table = ways_of(parts, search);
    check_table(table, parts, search);
    REQUIRE(table.stopped == stop_reason::none);
    REQUIRE(table.proven <= table.solves);
    REQUIRE(table.reused == 0);
    if (table.proven < table.solves) continue;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const sub_graph_runs runs(parts[i]);
      several += table.ways[i].size() > 1;
      for (const sub_graph_way& o : table.ways[i]) {
        // The memory that the option takes as a schedule of the part …
        std::vector<std::uint32_t> order = o.forward;
        order.push_back(runs.num_forward());
        order.push_back(runs.num_forward() + 1);
        for (const std::uint32_t k : o.backward) order.push_back(k < runs.num_forward() ? k : k + 2);
        const std::int64_t held = runs.held_at_turn(o), gradients = runs.gradient_input_bytes();
        const problem free = runs.problem_within(gradients, 0).with_budget(problem::unlimited);
        const check_report report = check(free, schedule_computes(free, order));
        INFO("seed ", seed, ", part that begins at operation ", parts[i].operations[0], ": ", report.message());
        REQUIRE(report.valid());
        REQUIRE(report.time == doctest::Approx(o.time()));
        // … is enough for none that is faster.
        const solution best = exact(runs.problem_within(std::max(report.peak_bytes, held + gradients), held),
                                    {.run = {.work_limit = 3'200'000}});
        if (best.status != solve_status::optimal) continue;
        REQUIRE(best.time == doctest::Approx(o.time()));
        ++compared;
        costly += o.time() > runs.keep_everything().time();
      }
    }
  }
  MESSAGE(compared, " compared, ", costly, " of them with recomputation; ", several, " parts with several");
  CHECK(compared > 100);
  CHECK(costly > 50);
}

TEST_CASE("the same for any number of threads") {
  std::vector<sub_graph> parts;
  for (std::uint64_t seed = 0; seed < 12; ++seed)
    for (sub_graph& p : random_sub_graphs(seed)) parts.push_back(std::move(p));
  question search = quick(60);
  const way_table one = ways_of(parts, search);
  for (const unsigned threads : {0U, 2U, 4U}) {
    search.run.threads = threads;
    const way_table other = ways_of(parts, search);
    CHECK(same(one, other));
    CHECK(one.distinct == other.distinct);
    CHECK(one.solves == other.solves);
    CHECK(one.proven == other.proven);
    CHECK(one.work == other.work);
  }
}

TEST_CASE("equal parts are solved once, and have the same options") {
  const test::divided_step d = bundled("gpt2-small-b8-s1024", 12);
  const std::vector<sub_graph> parts = d.sub_graphs();
  const group_classes classes = classify(d.whole.graph(), d.hierarchy, way_cache::likeness());
  question search = quick(30);
  search.max_budgets = 4;
  const way_table table = ways_of(parts, search);
  check_table(table, parts, search);
  CHECK(table.distinct == classes.sub_graphs.size() - 1);  // without the whole step
  CHECK(table.distinct < parts.size() / 2);
  std::size_t alike = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t r = classes.representative[classes.class_of[i + 1]] - 1;
    REQUIRE(table.ways[i].size() == table.ways[r].size());
    for (std::size_t k = 0; k < table.ways[i].size(); ++k) {
      REQUIRE(table.ways[i][k].saved_bytes == table.ways[r][k].saved_bytes);
      REQUIRE(table.ways[i][k].backward_peak_bytes == table.ways[r][k].backward_peak_bytes);
    }
    alike += r != i;
  }
  CHECK(alike > 5);
}

TEST_CASE("a cache: the second time nothing is solved, and the options are the same") {
  std::size_t reused = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const std::vector<sub_graph> parts = random_sub_graphs(seed);
    question search = quick();
    const way_table without = ways_of(parts, search);
    search.cache = make_way_cache();
    const way_table first = ways_of(parts, search), second = ways_of(parts, search);
    INFO("seed ", seed);
    REQUIRE(same(first, without));
    REQUIRE(same(second, first));
    REQUIRE(first.reused == 0);
    REQUIRE(search.cache->size() == first.distinct);
    REQUIRE(second.distinct == first.distinct);
    REQUIRE(second.reused == second.distinct);
    REQUIRE(second.solves == 0);
    REQUIRE(second.work == 0);
    reused += second.reused;
    if (parts.empty()) continue;
    // Other settings are another question, which is then known as well.
    for (const int change : {0, 1, 2, 3, 4}) {
      question other = search;
      if (change == 0) other.peaks = 1;
      if (change == 1) other.max_budgets = 3;
      if (change == 2) other.max_ways = 2;
      if (change == 3) other.moves = 50;
      if (change == 4) other.run.seed = 9;
      const way_table third = ways_of(parts, other);
      REQUIRE(third.reused == 0);
      REQUIRE(ways_of(parts, other).reused == third.distinct);
    }
    REQUIRE(search.cache->size() == 6 * first.distinct);
  }
  CHECK(reused > 20);
}

TEST_CASE("parts that differ in times alone share what the cache knows, measured for each") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::vector<sub_graph> parts = random_sub_graphs(seed);
    if (parts.empty()) continue;
    question search = quick();
    search.cache = make_way_cache();
    const way_table first = ways_of(parts, search);
    for (sub_graph& p : parts)
      for (auto& o : p.operation) o.time *= 2;
    const way_table second = ways_of(parts, search);
    REQUIRE(second.reused == second.distinct);
    check_table(second, parts, search);
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (std::size_t k = 0; k < second.ways[i].size(); ++k)
        REQUIRE(second.ways[i][k].time() == 2 * first.ways[i][k].time());
  }
}

TEST_CASE("stopped: what it has by then, and everything kept in any case") {
  const test::divided_step d = bundled("rk/gpt2-like-2l", 20);
  const std::vector<sub_graph> parts = d.sub_graphs();
  for (const unsigned threads : {1U, 3U})
    for (const int kind : {0, 1, 2, 3}) {
      question search = quick(1000000);
      search.cache = make_way_cache();
      search.run.threads = threads;
      std::stop_source source;
      search.run.stop = source.get_token();
      std::jthread later;
      if (kind == 0) source.request_stop();
      if (kind == 1)
        later = std::jthread([&] {
          std::this_thread::sleep_for(50ms);
          source.request_stop();
        });
      if (kind == 2) search.run.time_limit = 0ns;
      if (kind == 3) search.run.time_limit = 50ms;
      const double begin = test::processor_seconds();
      const way_table table = ways_of(parts, search);
      const double took = test::processor_seconds() - begin;
      INFO("kind ", kind, ", ", threads, " threads, processor seconds ", took);
      check_table(table, parts, search);
      CHECK(table.stopped == (kind < 2 ? stop_reason::cancelled : stop_reason::deadline));
      CHECK(took < 5);
      CHECK(search.cache->size() == 0);  // what is not whole is not kept
      if (kind % 2 == 0) CHECK(table.solves == 0);
    }
}

TEST_CASE("progress on the caller's thread; what it throws leaves the search") {
  std::vector<sub_graph> parts;
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (sub_graph& p : random_sub_graphs(seed)) parts.push_back(std::move(p));
  for (const unsigned threads : {1U, 3U}) {
    question search = quick();
    search.run.threads = threads;
    std::size_t calls = 0, last = 0;
    const auto caller = std::this_thread::get_id();
    search.run.on_progress = [&](const progress& news) {
      CHECK(std::this_thread::get_id() == caller);
      CHECK(news.done <= news.total);
      CHECK(news.done >= last);
      CHECK(!news.stage.empty());
      last = news.done;
      ++calls;
    };
    const way_table quiet = ways_of(parts, quick());
    CHECK(same(ways_of(parts, search), quiet));
    CHECK(calls > 0);
    search.run.on_progress = [](const progress&) { throw std::runtime_error("enough"); };
    CHECK_THROWS_WITH_AS((void)ways_of(parts, search), "enough", std::runtime_error);
  }
}

TEST_CASE("starts: asked for within the budgets of each solve; good ones are taken") {
  const test::divided_step d = bundled("rk/fno1d", 20);
  const std::vector<sub_graph> parts = d.sub_graphs();
  REQUIRE(!parts.empty());
  question search = quick(50);
  search.max_budgets = 4;
  search.run.threads = 2;
  std::atomic<std::size_t> calls{0}, wrong{0};
  search.starts = [&](std::size_t i, const sub_graph_runs& runs, std::int64_t peak, std::int64_t save, run_clock&) {
    ++calls;
    if (i >= parts.size() || &runs.sub_graph() != &parts[i] || peak < save || save < 0) ++wrong;
    return std::vector<schedule>{};
  };
  const way_table empty = ways_of(parts, search);
  CHECK(wrong == 0);
  CHECK(calls >= empty.distinct);
  search.starts = {};
  CHECK(same(empty, ways_of(parts, search)));
  search.starts = [](std::size_t, const sub_graph_runs&, std::int64_t, std::int64_t,
                     run_clock&) -> std::vector<schedule> { throw std::runtime_error("no start"); };
  CHECK_THROWS_WITH_AS((void)ways_of(parts, search), "no start", std::runtime_error);
}

TEST_CASE("a limit on work: kept, and the same options for any number of threads") {
  const test::divided_step d = bundled("rk/gpt2-like-2l", 12);
  const std::vector<sub_graph> parts = d.sub_graphs();
  std::size_t operations = 0;
  for (const sub_graph& p : parts) operations += p.operations.size();
  std::uint64_t before = 0;
  for (const std::uint64_t limit : {0U, 100U, 5000U, 50000U}) {
    question search = quick(400);
    search.run.work_limit = limit;
    search.cache = make_way_cache();
    const way_table one = ways_of(parts, search);
    INFO("limit ", limit, ", work ", one.work, ", solves ", one.solves);
    check_table(one, parts, search);
    CHECK(one.stopped == stop_reason::none);
    CHECK(one.work >= before);
    CHECK(one.solves <= limit / 4);  // none is begun whose problem cannot be read
    before = one.work;
    if (limit < 50000) CHECK(search.cache->size() < one.distinct);  // only parts without a search are whole
    search.run.threads = 3;
    search.cache.reset();
    const way_table three = ways_of(parts, search);
    CHECK(same(one, three));
    CHECK(one.work == three.work);
  }
}

TEST_CASE("no parts, no options") {
  const way_table table = ways_of({}, quick());
  CHECK(table.ways.empty());
  CHECK(table.distinct == 0);
  CHECK(table.stopped == stop_reason::none);
}

TEST_CASE("a group of chains is small beside what was done, and its sub-graphs have enough work") {
  way_search search;
  search.peaks = 1;
  search.max_budgets = 10;
  search.moves = 1000;
  run_control run;
  {
    const run_clock clock(run);
    CHECK(room_of_group(0, search, clock).effort == 0);  // one chain
    CHECK(room_of_group(100, search, clock).effort == 20'000);
    CHECK(room_of_group(100'000, search, clock).effort == 50'000);
    CHECK(way_effort{20'000, 1'000'000}.fits(room_of_group(100, search, clock)));
  }
  run.work_limit = 1'000'000;
  run_clock clock(run);
  clock.work(200'000);
  // What is left would do for four times as much.
  CHECK(room_of_group(1'000, search, clock).effort == 2'000);
  // 20 pairs of budgets of 150 moves each for each sub-graph, from three quarters of what is left.
  CHECK(room_of_group(1'000, search, clock).classes == 600'000 / (20 * 150 * work_of::move));
  clock.work(800'000);
  CHECK(room_of_group(1'000, search, clock).effort == 500);
  CHECK(!way_effort{1, 1}.fits(room_of_group(1'000, search, clock)));
}
