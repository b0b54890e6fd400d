// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/hiremate.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/error.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/training_graph_json.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/evict.hpp"
#include "support/answer.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/random_parts.hpp"

namespace {

using namespace remat;  // NOLINT: a test
using namespace std::chrono_literals;

bool long_run() { return std::getenv("REMAT_LONG") != nullptr; }

static_assert(solver_for<hiremate_solver<branch_and_bound_backend>, problem>);
constexpr auto hiremate_own = hiremate_with(branch_and_bound);

problem bundled(const std::string& name, int percent) {
  const problem free = test::bundled_problem(name);
  return free.with_budget(free.graph().baseline_peak / 100 * percent);
}

hiremate_options limited(std::uint64_t work) {
  hiremate_options options;
  options.moves = 60;
  options.nodes = 10;
  options.most_columns = 600;
  options.run.work_limit = work;
  return options;
}

void check_same(const solution& a, const solution& b) {
  CHECK(a.status == b.status);
  CHECK(a.plan == b.plan);
  CHECK(a.lower_bound == b.lower_bound);
  CHECK(a.message == b.message);
}

}  // namespace

TEST_CASE("small random steps: never better than the optimum, and optimal only where it is it") {
  std::size_t optimal = 0, feasible = 0, infeasible = 0, groups = 0;
  for (std::uint64_t seed = 0; seed < (long_run() ? 1500 : 250); ++seed) {
    const problem free = test::random_problem(seed + 5000, test::kind_of_graph(seed));
    if (free.graph().num_operations + free.graph().outputs.values.size() > 56) continue;
    const std::int64_t low = largest_working_set(free).bytes, high = free.graph().baseline_peak;
    const problem p = free.with_budget(low + (high - low) * static_cast<std::int64_t>(seed % 4) / 4);
    hiremate_options options = limited(1000);
    options.max_group = 2;
    options.max_top = 2;
    std::vector<hiremate_report> reports;
    const solution s = hiremate_own(p, options, reports);
    const double least = test::least_time(p);
    INFO("seed ", seed + 5000, ": ", s.message, ", least ", least);
    test::check_answer(p, s);
    for (const hiremate_report& r : reports) {
      groups += r.groups;
      REQUIRE(r.time >= least);
    }
    REQUIRE(s.lower_bound <= least);
    if (s.status == solve_status::infeasible) REQUIRE(least == std::numeric_limits<double>::infinity());
    if (s.plan) REQUIRE(s.time >= least);
    if (s.status == solve_status::optimal) REQUIRE(s.time == least);
    optimal += s.status == solve_status::optimal;
    feasible += s.status == solve_status::feasible;
    infeasible += s.status == solve_status::infeasible;
  }
  MESSAGE(optimal, " optimal, ", feasible, " feasible, ", infeasible, " infeasible; ", groups, " groups");
  CHECK(optimal > 100);
  CHECK(infeasible > 5);
  CHECK(groups > 50);
}

TEST_CASE("random steps in groups, with every kind of sum: an answer that is checked") {
  std::size_t mixed = 0, sums = 0, answers = 0, tops = 0;
  for (std::uint64_t seed = 0; seed < (long_run() ? 600 : 150); ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    const std::int64_t low = largest_working_set(d.whole).bytes, high = d.whole.graph().baseline_peak;
    const problem p = d.whole.with_budget(low + (high - low) * static_cast<std::int64_t>(1 + seed % 3) / 4);
    hiremate_options options = limited(300);
    options.max_group = 4;
    options.max_top = 4;
    options.good_enough = 0;
    if (seed % 3 == 0) options.hierarchy = d.hierarchy;
    const bool is_mixed = d.mixed_sums();
    // Without groups, what refines is Checkmate's program: of small steps alone, for the time that it takes.
    options.refine = is_mixed ? d.whole.graph().num_operations <= 9 : seed % 2 == 0;
    std::vector<hiremate_report> reports;
    const solution s = hiremate_own(p, options, reports);
    INFO("seed ", seed, ": ", s.message);
    test::check_answer(p, s);
    mixed += is_mixed;
    if (!is_mixed)
      for (const step_part& part : d.parts()) {
        const part_runs runs(part);
        for (std::uint32_t t = 0; t < part.tensors.size(); ++t) sums += runs.is_forward_sum(t);
      }
    if (is_mixed && options.hierarchy) CHECK(reports.empty());
    for (const hiremate_report& r : reports) {
      REQUIRE(r.distinct <= r.groups);
      REQUIRE(r.proven <= r.solves);
      REQUIRE(r.top_options >= r.top);
      if (s.plan) REQUIRE(s.time <= r.time);
      tops += r.time < std::numeric_limits<double>::infinity();
    }
    answers += s.has_schedule();
  }
  MESSAGE(answers, " answers; ", mixed, " with sums of forward and backward, ", sums, " sums across groups; ", tops,
          " schedules of top levels");
  CHECK(mixed > 3);
  CHECK(sums > 3);
  CHECK(answers > 20);
  CHECK(tops > 15);
}

TEST_CASE("a limit on work: the same answer for any number of threads, every time") {
  for (const char* name : {"rk/fno1d", "rk/gpt2-like-2l"}) {
    const problem p = bundled(name, 60);
    hiremate_options options = limited(3000);
    options.moves = 20;
    options.good_enough = 0;
    options.run.seed = 5;
    std::vector<hiremate_report> first_reports, reports;
    const solution first = hiremate_own(p, options, first_reports);
    test::check_answer(p, first);
    REQUIRE(first.has_schedule());
    for (const unsigned threads : {1U, 2U, 4U}) {
      options.run.threads = threads;
      INFO(std::string(name), ", ", threads, " threads");
      const solution other = hiremate_own(p, options, reports);
      check_same(first, other);
      REQUIRE(reports.size() == first_reports.size());
      for (std::size_t i = 0; i < reports.size(); ++i) {
        CHECK(reports[i].time == first_reports[i].time);
        CHECK(reports[i].solves == first_reports[i].solves);
        CHECK(reports[i].top_options == first_reports[i].top_options);
      }
    }
  }
}

TEST_CASE("a given hierarchy that is not one of the graph is refused") {
  const problem p = bundled("rk/fno1d", 60), other = bundled("rk/unet", 60);
  const auto refused = [&](operation_hierarchy h, const std::string& why) {
    hiremate_options options = limited(300);
    options.hierarchy = std::move(h);
    const std::string text = "hiremate: the given hierarchy is not one of the problem's graph: " + why;
    CHECK_THROWS_WITH_AS((void)hiremate_own(p, options), text.c_str(), bad_argument);
    // Whatever the budget.
    CHECK_THROWS_AS((void)hiremate_own(p.with_budget(problem::unlimited), options), bad_argument);
  };
  const std::string number = std::to_string(p.graph().num_operations);
  refused({}, "the arrays do not belong to a hierarchy of " + number + " operations");
  refused(h_partition(other.graph()), "the arrays do not belong to a hierarchy of " + number + " operations");
  const operation_hierarchy good = h_partition(p.graph());
  operation_hierarchy h = good;
  const std::uint32_t last = h.order.back();
  h.order.pop_back();
  refused(h, "operation " + std::to_string(last) + " is not in the order");
  h = good;
  std::swap(h.order[0], h.order[1]);
  CHECK_THROWS_AS((void)hiremate_own(p,
                                     [&] {
                                       hiremate_options options = limited(300);
                                       options.hierarchy = h;
                                       return options;
                                     }()),
                  bad_argument);
  // Rows that lead out of their array.
  h = good;
  h.children.values.resize(h.children.values.size() / 2);
  refused(h, "the rows of `children` do not fit their array");
  h = good;
  h.children.begin[1] = 1U << 30U;
  refused(h, "the rows of `children` do not fit their array");
}

TEST_CASE("options out of range are refused") {
  const problem p = bundled("rk/fno1d", 60);
  const auto refused = [&](auto change, const char* why) {
    hiremate_options options = limited(300);
    change(options);
    CHECK_THROWS_WITH_AS((void)hiremate_own(p, options), why, bad_argument);
  };
  refused([](hiremate_options& o) { o.max_group = 1; }, "hiremate: max_group is 1; it must be at least 2");
  refused([](hiremate_options& o) { o.max_top = 0; }, "hiremate: max_top is 0; it must be at least 1");
  refused([](hiremate_options& o) { o.good_enough = -1; },
          "hiremate: good_enough is -1.000000; it must not be negative");
  refused([](hiremate_options& o) { o.most_columns = std::numeric_limits<double>::quiet_NaN(); },
          "hiremate: most_columns is nan; it must not be negative");
}

TEST_CASE("trivial budgets: everything fits, nothing fits") {
  const problem p = bundled("rk/gpt2-like-2l", 100);
  const solution all = hiremate_own(p.with_budget(problem::unlimited));
  test::check_answer(p.with_budget(problem::unlimited), all);
  CHECK(all.status == solve_status::optimal);
  CHECK(all.time == p.graph().needed_time);
  const problem least = p.with_budget(p.graph().baseline_peak);
  CHECK(hiremate_own(least).status == solve_status::optimal);
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, largest_working_set(p).bytes - 1}) {
    const solution none = hiremate_own(p.with_budget(bytes));
    CHECK(none.status == solve_status::infeasible);
    CHECK(!none.plan);
    CHECK(!none.message.empty());
  }
  const problem nothing(training_graph{}, measured_cost{});
  CHECK(hiremate_own(nothing.with_budget(0)).status == solve_status::optimal);
}

TEST_CASE("reports; a given hierarchy; a cache for several budgets") {
  const problem p = bundled("gpt2-small-b8-s1024", 70);
  hiremate_options options = limited(run_control::no_work_limit);
  options.moves = 10;
  options.refine = false;
  options.good_enough = 0;
  options.hierarchy = partition_at_repeats(p.graph());
  options.cache = std::make_shared<option_cache>();
  std::vector<hiremate_report> reports(7);
  const solution first = hiremate_own(p, options, reports);
  test::check_answer(p, first);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].partition == "given");
  CHECK(reports[0].groups == options.hierarchy->groups.size() - 1);
  CHECK(reports[0].distinct < reports[0].groups);
  CHECK(reports[0].reused == 0);
  CHECK(reports[0].solves > reports[0].distinct);
  CHECK(reports[0].top == options.hierarchy->children[0].size());
  CHECK(reports[0].top_options > reports[0].top);
  CHECK(reports[0].time >= first.time);
  const std::size_t distinct = reports[0].distinct;

  const problem q = p.with_budget(p.graph().baseline_peak / 2);
  const solution second = hiremate_own(q, options, reports);
  test::check_answer(q, second);
  CHECK(reports[0].reused == distinct);
  CHECK(reports[0].solves == 0);
  options.cache.reset();
  const solution fresh = hiremate_own(q, options, reports);
  CHECK(reports[0].reused == 0);
  CHECK(second.time == fresh.time);  // the cache changes the time of the solve, not the answer
}

TEST_CASE("without the last refinement it is not better") {
  for (const char* name : {"rk/unet", "rk/mixer"}) {
    const problem p = bundled(name, 70);
    hiremate_options options = limited(500);
    options.moves = 20;
    const solution refined_answer = hiremate_own(p, options);
    options.refine = false;
    const solution plain = hiremate_own(p, options);
    test::check_answer(p, refined_answer);
    test::check_answer(p, plain);
    REQUIRE(refined_answer.has_schedule());
    if (plain.has_schedule()) CHECK(refined_answer.time <= plain.time);
  }
}

TEST_CASE("it ends on time, and when it is stopped") {
  using clock = std::chrono::steady_clock;
  const problem p = bundled("rk/gpt2-like-2l", 50);
  for (const unsigned threads : {1U, 2U})
    for (const auto time : {0ms, 20ms, 300ms}) {
      hiremate_options options;
      options.run.time_limit = time;
      options.run.threads = threads;
      const auto begin = clock::now();
      const solution s = hiremate_own(p, options);
      const auto took = clock::now() - begin;
      INFO("limit ", time.count(), " ms, took ", std::chrono::duration<double>(took).count(), ", ", threads,
           " threads: ", s.message);
      CHECK(took < time + 500ms);
      test::check_answer(p, s);
      CHECK(s.status != solve_status::infeasible);
    }
  for (const auto delay : {0ms, 5ms, 100ms, 400ms}) {
    std::stop_source source;
    hiremate_options options;
    options.run.time_limit = 60s;
    options.run.stop = source.get_token();
    if (delay == 0ms) source.request_stop();
    clock::time_point asked = clock::now();
    std::jthread later([&] {
      std::this_thread::sleep_for(delay);
      asked = clock::now();
      source.request_stop();
    });
    const solution s = hiremate_own(p, options);
    later.join();
    const auto took = clock::now() - asked;
    INFO("stopped after ", delay.count(), " ms, ended ", std::chrono::duration<double>(took).count(),
         " s later: ", s.message);
    CHECK(took < 500ms);
    test::check_answer(p, s);
  }
}

TEST_CASE("progress in its name, on the caller's thread; what that throws leaves the solver") {
  const problem p = bundled("rk/fno1d", 50);
  for (const unsigned threads : {1U, 2U}) {
    hiremate_options options;
    options.run.time_limit = 400ms;
    options.run.threads = threads;
    int calls = 0;
    const auto caller = std::this_thread::get_id();
    options.run.on_progress = [&](const progress& news) {
      CHECK(std::this_thread::get_id() == caller);
      CHECK(news.solver == "hiremate");
      CHECK(news.time_limit == 400ms);
      ++calls;
    };
    const solution s = hiremate_own(p, options);
    test::check_answer(p, s);
    CHECK(calls > 0);
    options.run.on_progress = [](const progress&) { throw std::runtime_error("enough"); };
    CHECK_THROWS_WITH_AS((void)hiremate_own(p, options), "enough", std::runtime_error);
  }
}
