// SPDX-License-Identifier: BSL-1.0
#include "remat/method/automatic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/portfolio/detail/driver.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"
#include "support/data.hpp"
#include "support/failing_backend.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/random_chain.hpp"

using namespace remat;
using namespace remat::detail;
using namespace std::chrono_literals;

static_assert(solver_for<automatic_solver, problem>);

namespace {

problem read(const std::string& name) { return test::bundled_problem(name); }

problem within(const problem& p, double part) {
  return p.with_budget(static_cast<std::int64_t>(part * static_cast<double>(p.graph().baseline_peak)));
}

automatic_options limited(std::chrono::nanoseconds time, unsigned threads) {
  automatic_options options{.gap = 0};
  options.run.time_limit = time;
  options.run.threads = threads;
  return options;
}

void check_valid(const problem& p, const solution& s) {
  REQUIRE(s.plan);
  const check_report report = check(p, *s.plan);
  CHECK(report.valid());
  CHECK(report.peak_bytes == s.peak_bytes);
  CHECK(report.time == s.time);
  CHECK(s.lower_bound <= s.time * (1 + 1e-12));
}

}  // namespace

TEST_CASE("little work is enough if a part of it is enough for eviction alone") {
  int found = 0;
  for (const char* name : {"rk/fno1d", "resnet50-b64-224", "fno2d-b32-256"})
    for (const double part : {0.7, 0.5, 0.4, 0.3})
      for (std::uint64_t work = 3700; work < 50'000; work *= test::long_run() ? 2 : 4) {
        const problem p = within(read(name), part);
        evict_options alone;
        alone.run.work_limit = work / 5;
        if (!evict(p, alone).plan) continue;
        ++found;
        CAPTURE(name);
        CAPTURE(part);
        CAPTURE(work);
        automatic_options options{.gap = 0};
        options.run.work_limit = work;
        CHECK(automatic(p, options).plan);
      }
  CHECK(found > 10);
}

TEST_CASE("it is never behind one of its parts") {
  for (const char* name : {"toy-skip-3", "unet5-b16-256", "rk/fno1d", "vgg16-b64-224"})
    for (const double part : {0.7, 0.45})
      for (const unsigned threads : {1U, 2U}) {
        if (!test::long_run() && (part > 0.5) != (threads > 1)) continue;
        CAPTURE(name);
        CAPTURE(part);
        CAPTURE(threads);
        const problem p = within(read(name), part);
        double best = std::numeric_limits<double>::infinity();
        for (const solution& s : {no_remat(p), evict(p), chen_greedy(p), chen_sqrt(p), revolve(p)})
          if (s.plan) best = std::min(best, s.time);
        const solution s = automatic(p, limited(1s, threads));
        if (best < std::numeric_limits<double>::infinity()) {
          check_valid(p, s);
          CHECK(s.time <= best);
          CHECK(s.by.substr(0, 5) == "auto/");
        } else {
          CHECK(s.status != solve_status::error);
        }
      }
}

TEST_CASE("on small graphs it has what refined and exact find with the same work") {
  const auto load = [](const char* name, std::int64_t budget) {
    const std::string file = std::string(REMAT_TEST_DATA "/tight/") + name + ".json";
    return problem(read_training_graph(std::filesystem::path(file)), flops_cost{}, budget);
  };
  // Near the least memory, what `evict` finds depends on its random numbers.
  const problem tight = load("unet-49", 15);
  for (const std::uint64_t seed : {0U, 2U}) {
    CAPTURE(seed);
    run_control run{.work_limit = 1'000'000, .seed = seed};
    const solution s = automatic(tight, {.run = run});
    check_valid(tight, s);
    CHECK(s.time < 6928);
  }
  // The search of `exact` ends within this work, also if it knows the bounds of other parts.
  const problem p = load("unet-39", 827'850'863);
  const run_control run{.work_limit = 1'000'000};
  const solution proven = exact(p, {.run = run}), s = automatic(p, {.run = run});
  REQUIRE(proven.status == solve_status::optimal);
  check_valid(p, s);
  CHECK(is_within_gap(s.time, proven.time, 1e-9));
}

TEST_CASE("on a chain it is never worse than the closed form, whatever ends it") {
  for (const std::size_t length : {60U, 1000U}) {
    const problem whole(chain_graph(test::adjoint_chain(length)), measured_cost{});
    for (const std::int64_t budget : {9, 24}) {
      CAPTURE(length);
      CAPTURE(budget);
      const problem p = whole.with_budget(budget);
      revolve_options at_once;
      at_once.run.work_limit = 0;
      const double closed = revolve(p, at_once).time;
      CHECK(closed < 10.0 * static_cast<double>(length));
      std::vector<automatic_options> all;
      for (const std::uint64_t work : {0U, 1U, 100U, 3'000U}) {
        if (work > 100 && length > 60) continue;  // the bounds count no work, and take seconds
        all.emplace_back();
        all.back().run.work_limit = work;
      }
      all.push_back(limited(0ms, 1));
      all.push_back(limited(1ms, 2));
      std::stop_source source;
      source.request_stop();
      all.emplace_back();
      all.back().run.stop = source.get_token();
      for (const automatic_options& options : all) {
        CAPTURE(options.run.work_limit);
        const solution s = automatic(p, options);
        check_valid(p, s);
        CHECK(s.time <= closed);
      }
      const std::vector<std::int64_t> budgets{budget, budget + 10};
      for (const solution& s : frontier(p, budgets, automatic, all[0].run)) {
        REQUIRE(s.plan);
        CHECK(s.time <= closed);
      }
    }
  }
}

TEST_CASE("chains: never behind revolve, whatever ends it, and ahead on long ones") {
  for (const std::size_t length : {3U, 40U, 10'000U})
    for (const std::int64_t budget : {9, 14, 44}) {
      CAPTURE(length);
      CAPTURE(budget);
      const remat::chain_problem p(remat::test::unit_chain(length, 2), budget);
      remat::automatic_options options;
      options.run.work_limit = 0;
      const remat::chain_solution own = remat::revolve(p), s = remat::automatic(p, options);
      REQUIRE(own.has_schedule());
      REQUIRE(s.has_schedule());
      CHECK(s.time <= own.time);
      if (length < 10'000) continue;
      // Griewank and Walther's formula, and less: the stages before a turn are kept whole.
      const std::uint64_t formula = budget == 9 ? 112868 : budget == 14 ? 57624 : 29097;
      CHECK(own.statistics.recomputes == formula);
      CHECK(s.statistics.recomputes < formula);
      CHECK(s.time <= 1.05 * repetition_bound(p));
    }
  // A closed form of ten million steps, for which the limits pay.
  const remat::chain_problem narrow(remat::test::adjoint_chain(50'000), 6);
  const remat::chain_solution s = remat::automatic(narrow, {.run = {.work_limit = 20'000'000}});
  REQUIRE(s.has_schedule());
  CHECK(s.time <= remat::revolve(narrow).time);
  const remat::chain_problem p(remat::test::random_chain(5, 12));
  for (const double part : {0.5, 0.7, 0.9}) {
    const remat::chain_problem within = p.with_budget_fraction(part);
    CHECK(remat::automatic(within).time == remat::rotor(within).time);
  }
}

TEST_CASE("stopped at once it has the listed order, if that fits") {
  const problem p = within(read("unet5-b16-256"), 1.0);
  automatic_options options;
  options.run.work_limit = 0;
  const solution s = automatic(p, options);
  CHECK(s.status == solve_status::optimal);
  check_valid(p, s);
  CHECK(s.by == "auto/no_remat");
}

TEST_CASE("least time and infeasibility are seen at once") {
  const problem p = read("unet5-b16-256");
  for (const unsigned threads : {1U, 2U}) {
    const solution all = automatic(within(p, 1.0), limited(60s, threads));
    CHECK(all.status == solve_status::optimal);
    check_valid(within(p, 1.0), all);
    CHECK(all.statistics.seconds < 10);
    const solution none = automatic(p.with_budget(1), limited(60s, threads));
    CHECK(none.status == solve_status::infeasible);
    CHECK(!none.plan);
    CHECK(!none.message.empty());
    CHECK(none.statistics.seconds < 10);
  }
}

TEST_CASE("under a limit of work the seed alone decides") {
  const problem p = within(read("unet5-b16-256"), 0.5);
  std::vector<solution> answers;
  for (const unsigned threads : {1U, 2U, 4U}) {
    automatic_options options{.gap = 0};
    options.run.work_limit = 800'000;
    options.run.seed = 11;
    options.run.threads = threads;
    answers.push_back(automatic(p, options));
    check_valid(p, answers.back());
    CHECK(answers.back().statistics.work > 0);
  }
  CHECK(*answers[0].plan == *answers[1].plan);
  CHECK(*answers[0].plan == *answers[2].plan);
}

TEST_CASE("the share of evict is enough for its passes") {
  // A quarter of the limit: with less, the schedule would come from the eviction that refined begins with.
  const problem p = within(read("transformer-6-6-b32-s256"), 0.3);
  const solution by_evict = evict(p);
  REQUIRE(by_evict.plan);
  automatic_options options{.gap = 0};
  options.run.work_limit = 320'000;
  options.run.seed = 1;
  const solution s = automatic(p, options);
  check_valid(p, s);
  CHECK(s.time <= by_evict.time);
  CHECK((s.by.rfind("auto/evict", 0) == 0 || s.time < by_evict.time));
}

TEST_CASE("it ends on time") {
  const problem p = within(read("gpt2-small-b8-s1024"), 0.6);
  for (const unsigned threads : {1U, 2U})
    for (const auto time : {0ms, 20ms, 300ms}) {
      const double begin = test::processor_seconds();
      const solution s = automatic(p, limited(time, threads));
      CHECK(test::processor_seconds() - begin < threads * std::chrono::duration<double>(time + 1s).count());
      if (s.plan)
        check_valid(p, s);
      else
        CHECK(s.status == solve_status::timeout);
    }
}

TEST_CASE("without any limit it ends by itself, after rounds of work") {
  const problem p = within(read("rk/fno1d"), 0.4);
  const solution s = automatic(p, {.gap = 0});
  check_valid(p, s);
  CHECK(s.status != solve_status::timeout);
  const auto rounds = static_cast<double>(s.statistics.work) / static_cast<double>(detail::driver::unlimited_work);
  CHECK(rounds < 31.5);  // five of them, each as long as all before it
  // The default gap is enough for a program, with limits or without.
  CHECK(automatic_options{}.gap == 0.001);
  const solution near = automatic(p);
  CHECK(near.is_within(0.001));
  CHECK(near.statistics.work < s.statistics.work);
}

TEST_CASE("a stop, whenever it comes, leaves the best so far") {
  const problem p = within(read("unet5-b16-256"), 0.5);
  for (const unsigned threads : {1U, 2U})
    for (const auto delay : {0ms, 1ms, 5ms, 30ms, 200ms}) {
      std::stop_source source;
      automatic_options options = limited(60s, threads);
      options.run.stop = source.get_token();
      if (delay == 0ms) source.request_stop();
      std::jthread later([&] {
        std::this_thread::sleep_for(delay);
        source.request_stop();
      });
      const solution s = automatic(p, options);
      CHECK(s.statistics.seconds < 5);
      if (s.plan)
        check_valid(p, s);
      else
        CHECK(s.status == solve_status::cancelled);
    }
}

TEST_CASE("progress comes on the caller's thread, in the name of auto, and gets better") {
  const problem p = within(read("unet5-b16-256"), 0.5);
  for (const unsigned threads : {1U, 2U}) {
    automatic_options options = limited(500ms, threads);
    const auto caller = std::this_thread::get_id();
    int calls = 0;
    options.run.on_progress = [&](const progress& news) {
      CHECK(std::this_thread::get_id() == caller);
      CHECK(news.solver == "auto");
      CHECK(news.time_limit == 500ms);
      ++calls;
    };
    const solution s = automatic(p, options);
    check_valid(p, s);
    CHECK(calls > 0);
  }
}

TEST_CASE("what the callback throws leaves the solver") {
  const problem p = within(read("unet5-b16-256"), 0.5);
  for (const unsigned threads : {1U, 2U}) {
    automatic_options options = limited(60s, threads);
    options.run.on_progress = [](const progress& news) {
      if (news.elapsed > 100ms) throw std::runtime_error("enough");
    };
    CHECK_THROWS_WITH_AS((void)automatic(p, options), "enough", std::runtime_error);
  }
}

TEST_CASE("its figures say what each part did") {
  const problem p = within(read("unet5-b16-256"), 0.5);
  automatic_options options{.gap = 0};
  options.run.work_limit = 320'000;
  const solution s = automatic(p, options);
  const figures::group_list* parts = s.statistics.own.find<figures::group_list>("parts");
  REQUIRE(parts != nullptr);
  REQUIRE(parts->size() >= 2);
  double best = std::numeric_limits<double>::infinity();
  for (const figures& part : *parts) {
    REQUIRE(part.find<std::string>("part") != nullptr);
    CHECK(part.find<std::string>("status") != nullptr);
    if (const double* time = part.find<double>("time")) best = std::min(best, *time);
  }
  CHECK(s.time == best);
}

TEST_CASE("under a tight budget each part's schedule is refined for itself, and the seed alone decides") {
  const problem p = within(read("unet5-b16-256"), 0.3);
  std::vector<solution> answers;
  for (const unsigned threads : {1U, 3U}) {
    automatic_options options{.gap = 0};
    options.run.work_limit = 3'000'000;
    options.run.threads = threads;
    answers.push_back(automatic(p, options));
    check_valid(p, answers.back());
    const auto* parts = answers.back().statistics.own.find<figures::group_list>("parts");
    REQUIRE(parts != nullptr);
    CHECK(std::any_of(parts->begin(), parts->end(), [](const figures& part) {
      return part.find<std::string>("by")->starts_with("rotor") && part.find<std::string>("by")->ends_with("/search");
    }));
  }
  CHECK(*answers[0].plan == *answers[1].plan);
}

TEST_CASE("a backend of the caller's serves hiremate, and changes nothing else of the promises") {
  const problem p = within(read("rk/fno1d"), 0.5);
  std::vector<solution> answers;
  for (const unsigned threads : {1U, 3U}) {
    automatic_options options{.gap = 0};
    options.run.work_limit = 2'000'000;
    options.run.threads = threads;
    answers.push_back(automatic_with(branch_and_bound)(p, options));
    const solution& s = answers.back();
    check_valid(p, s);
    CHECK(s.by.starts_with("auto/"));
    const auto* parts = s.statistics.own.find<figures::group_list>("parts");
    REQUIRE(parts != nullptr);
    const auto ran = [&](const char* name) {
      return std::any_of(parts->begin(), parts->end(),
                         [&](const figures& part) { return *part.find<std::string>("part") == name; });
    };
    CHECK((s.status == solve_status::optimal || ran("hiremate")));
  }
  CHECK(*answers[0].plan == *answers[1].plan);
  const std::vector<std::int64_t> budgets = {p.budget(), 2 * p.budget()};
  const std::vector<solution> found = frontier(p, budgets, automatic_with(branch_and_bound), {.work_limit = 200'000});
  REQUIRE(found.size() == 2);
  check_valid(p, found[0]);
  CHECK(found[1].time <= found[0].time);
}

TEST_CASE("a part of the user's joins: its schedule is checked and counts, its bounds do not") {
  const problem p = within(read("unet5-b16-256"), 0.35);
  const solution known = refined(p, {.run = {.work_limit = test::num_cases(1'200'000, 4'800'000)}});
  REQUIRE(known.plan);
  automatic_options options{.gap = 0};
  options.run.work_limit = 48'000;
  std::uint64_t limit = 0;
  options.extra_solvers = {{"oracle", [&](const problem& asked, const run_control& run) {
                              limit = run.work_limit;
                              solution s;
                              CHECK(asked.budget() == p.budget());
                              s.plan = known.plan;
                              s.lower_bound = std::numeric_limits<double>::infinity();  // not believed
                              return s;
                            }}};
  const solution s = automatic(p, options);
  check_valid(p, s);
  CHECK(s.time <= known.time);
  CHECK((s.by == "auto/oracle" || s.time < known.time));
  CHECK(limit < 3000);
  CHECK(limit > 0);
  CHECK(s.lower_bound <= s.time);

  // A schedule over the budget is left out, an illegal one is a defect of the part.
  options.extra_solvers[0].solve = [&](const problem&, const run_control&) {
    solution over;
    over.plan = no_remat(p.with_budget(problem::unlimited)).plan;
    return over;
  };
  check_valid(p, automatic(p, options));
  options.extra_solvers[0].solve = [](const problem&, const run_control&) {
    solution wrong;
    wrong.plan = schedule{{step::free(tensor_id{0})}};
    return wrong;
  };
  CHECK_THROWS_WITH_AS((void)automatic(p, options), doctest::Contains("the part \"oracle\" made an invalid schedule: "),
                       internal_error);
  options.extra_solvers = {{"empty", {}}};
  CHECK_THROWS_WITH_AS((void)automatic(p, options), "auto: the part \"empty\" has no solve", bad_argument);
  options.extra_solvers = {automatic_part_of(evict)};
  CHECK(options.extra_solvers[0].name == "evict");
  check_valid(p, automatic(p, options));
}

TEST_CASE("a part of the user's that throws is named, and the other parts go on") {
  const problem p = within(read("unet5-b16-256"), 0.6);
  automatic_options options{.gap = 0};
  options.run.work_limit = 48'000;
  const solution without = automatic(p, options);
  REQUIRE(without.plan);
  options.extra_solvers = {
      {"mine", [](const problem&, const run_control&) -> solution { throw std::runtime_error("no licence"); }},
      {"other", [](const problem&, const run_control&) -> solution { throw 42; }}};
  const solution s = automatic(p, options);
  check_valid(p, s);
  CHECK(s.message.find("the part \"mine\" failed: no licence") != std::string::npos);
  CHECK(s.message.find("the part \"other\" failed: an exception") != std::string::npos);
  const auto* parts = s.statistics.own.find<figures::group_list>("parts");
  REQUIRE(parts != nullptr);
  std::size_t failed = 0;
  bool refined_ran = false;
  for (const figures& part : *parts) {
    const std::string name = *part.find<std::string>("part");
    refined_ran = refined_ran || name == "refined";
    if (*part.find<std::string>("status") != "error") continue;
    ++failed;
    REQUIRE(part.find<std::string>("message") != nullptr);
  }
  CHECK(failed == 2);
  CHECK(refined_ran);

  // What the progress callback throws is no failure of the part that reports.
  struct stop {};
  options.extra_solvers = {{"mine", [](const problem&, const run_control& run) -> solution {
                              std::this_thread::sleep_for(run_clock::report_every * 2);  // so that it is passed on
                              if (run.on_progress) run.on_progress({});
                              return {};
                            }}};
  options.run.on_progress = [](const progress& news) {
    if (news.stage == "mine") throw stop{};
  };
  CHECK_THROWS_AS((void)automatic(p, options), stop);
}

TEST_CASE("a MIP backend that fails is named, and the other parts go on") {
  const problem p = within(read("rk/fno1d"), 0.4);
  automatic_options options;
  options.gap = 0;
  options.run.work_limit = 400'000;
  const auto check_failure = [&](const problem& instance, const solution& s, const std::string& says) {
    check_valid(instance, s);
    CHECK(s.lower_bound > 0);
    const std::size_t at = s.message.find(says);
    CHECK(at != std::string::npos);
    CHECK(s.message.find(says, at + 1) == std::string::npos);  // once, however often it fails
  };
  check_failure(p, automatic_with(test::throwing_backend{})(p, options),
                "the backend throwing failed: licence expired");
  check_failure(p, automatic_with(test::short_backend{})(p, options), "the backend short failed: 3 values");
  for (const solution& s : frontier(p, std::vector<std::int64_t>{p.budget()}, automatic_with(test::throwing_backend{}),
                                    options.run, options))
    check_failure(p, s, "the backend throwing failed: licence expired");
  const problem linked = within(read("rk/fno1d"), 0.3).with_link({.out = 1e9, .in = 1e9, .latency = 0});
  options.run.work_limit = 2'000'000;
  check_failure(linked, automatic_with(test::throwing_backend{})(linked, options),
                "the backend throwing failed: licence expired");
}

TEST_CASE("a frontier is monotone, legal, and in the order of the budgets") {
  const problem p = read("fno1d-b32-8192");
  const std::int64_t peak = p.graph().baseline_peak;
  const std::vector<std::int64_t> budgets = {peak / 2, peak, 1, peak * 4 / 5, peak / 2, peak * 2 / 5};
  run_control run;
  run.work_limit = 2'000'000;
  const std::vector<solution> found = frontier(p, budgets, automatic, run);
  REQUIRE(found.size() == budgets.size());
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    if (budgets[i] == 1) {
      CHECK(found[i].status == solve_status::infeasible);
      CHECK(!found[i].plan);
      continue;
    }
    check_valid(p.with_budget(budgets[i]), found[i]);
    CHECK(found[i].by.starts_with("auto/"));
    for (std::size_t j = 0; j < budgets.size(); ++j)
      if (budgets[j] >= budgets[i]) {
        CHECK(found[j].time <= found[i].time);
        CHECK(found[j].lower_bound <= found[i].lower_bound);
      }
  }
  CHECK(found[1].status == solve_status::optimal);
  CHECK(found[0].time == found[4].time);
  std::uint64_t work = 0;
  for (const std::size_t i : {0, 1, 2, 3, 5}) work += found[i].statistics.work;
  CHECK(work <= run.work_limit + run.work_limit / 10);
}

TEST_CASE("a frontier of one budget, of none, and of a negative one") {
  const problem p = read("toy-skip-3");
  CHECK(frontier(p, std::vector<std::int64_t>{}, automatic).empty());
  const std::vector<std::int64_t> one = {p.graph().baseline_peak};
  const std::vector<solution> found = frontier(p, one, automatic);
  REQUIRE(found.size() == 1);
  CHECK(is_optimal(found[0].time, p.graph().needed_time));
  const std::vector<std::int64_t> negative = {-1};
  CHECK_THROWS_AS(static_cast<void>(frontier(p, negative, automatic)), bad_argument);
  CHECK_THROWS_AS(static_cast<void>(frontier(p, one, automatic, {}, {.gap = -1})), bad_argument);
}

TEST_CASE("under a limit of work the seed alone decides a frontier") {
  const problem p = read("unet5-b16-256");
  std::vector<std::int64_t> budgets;
  for (const double part : {0.5, 0.6, 0.8})
    budgets.push_back(static_cast<std::int64_t>(part * static_cast<double>(p.graph().baseline_peak)));
  run_control run;
  run.work_limit = 300'000;
  const std::vector<solution> one = frontier(p, budgets, automatic, run);
  run.threads = 3;
  const std::vector<solution> three = frontier(p, budgets, automatic, run);
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    check_valid(p.with_budget(budgets[i]), one[i]);
    CHECK(one[i].time == three[i].time);
    CHECK(one[i].lower_bound == three[i].lower_bound);
    CHECK(one[i].statistics.work == three[i].statistics.work);
  }
}
