// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/error.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/refined.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/solver/solution.hpp"
#include "support/answer.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/failing_backend.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/random_sub_graphs.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test
using namespace std::chrono_literals;

static_assert(solver_for<hiremate_solver<branch_and_bound_backend>, problem>);
constexpr auto hiremate_own = hiremate_with(branch_and_bound);

problem bundled(const std::string& name, int percent) {
  const problem free = test::bundled_problem(name);
  return free.with_budget(free.graph().baseline_peak / 100 * percent);
}

hiremate_options limited(std::uint64_t work) {
  hiremate_options options;
  options.moves = 60;
  options.chain_moves = 60;
  options.nodes = 10;
  options.max_columns = 600;
  options.run.work_limit = work == run_control::no_work_limit ? work : 16 * work;
  return options;
}

void check_same(const solution& a, const solution& b) {
  CHECK(a.status == b.status);
  CHECK(a.plan == b.plan);
  CHECK(a.lower_bound == b.lower_bound);
  CHECK(a.message == b.message);
}

/// The figures of each hierarchy.
figures::group_list hierarchies_of(const solution& s) {
  const auto* all = s.statistics.own.find<figures::group_list>("hierarchies");
  return all ? *all : figures::group_list{};
}
std::int64_t whole(const figures& f, const char* name) {
  const auto* value = f.find<std::int64_t>(name);
  REQUIRE(value);
  return *value;
}
figures::group_list groups_of(const figures& f, const char* name) {
  const auto* list = f.find<figures::group_list>(name);
  return list ? *list : figures::group_list{};
}
/// The sum of a figure over the levels of a hierarchy.
std::int64_t over_levels(const figures& f, const char* name) {
  std::int64_t sum = 0;
  for (const figures& level : groups_of(f, "levels")) sum += whole(level, name);
  return sum;
}
/// The times of all schedules that the parts of a hierarchy found.
std::vector<double> times_of(const figures& f) {
  std::vector<double> out;
  if (const auto* time = f.find<double>("search_level_time")) out.push_back(*time);
  for (const char* part : {"chains", "h_ilp"})
    for (const figures& g : groups_of(f, part))
      if (const auto* time = g.find<double>("time")) out.push_back(*time);
  return out;
}

}  // namespace

TEST_CASE("small random steps: never better than the optimum, and optimal only where it is it") {
  std::size_t optimal = 0, feasible = 0, infeasible = 0, groups = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(250, 1500); ++seed) {
    const problem free = test::random_problem(seed + 5000, test::kind_of_graph(seed));
    if (free.graph().num_operations + free.graph().outputs.values.size() > 56) continue;
    const std::int64_t low = largest_working_set(free).bytes, high = free.graph().baseline_peak;
    const problem p = free.with_budget(low + (high - low) * static_cast<std::int64_t>(seed % 4) / 4);
    hiremate_options options = limited(1000);
    options.max_group = 2;
    options.max_top = 2;
    const solution s = hiremate_own(p, options);
    const double least = test::least_time(p);
    INFO("seed ", seed + 5000, ": ", s.message, ", least ", least);
    test::check_answer(p, s);
    for (const figures& f : hierarchies_of(s)) {
      groups += static_cast<std::size_t>(whole(f, "groups"));
      for (const double time : times_of(f)) REQUIRE(time >= least * (1 - 1e-12));
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
  for (std::uint64_t seed = 0; seed < test::num_cases(150, 600); ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    const std::int64_t low = largest_working_set(d.whole).bytes, high = d.whole.graph().baseline_peak;
    const problem p = d.whole.with_budget(low + (high - low) * static_cast<std::int64_t>(1 + seed % 3) / 4);
    hiremate_options options = limited(300);
    options.max_group = 4;
    options.max_top = 4;
    options.gap = 0;
    if (seed % 3 == 0) options.hierarchy = d.hierarchy;
    const bool is_mixed = d.mixed_sums();
    const solution s = hiremate_own(p, options);
    INFO("seed ", seed, ": ", s.message);
    test::check_answer(p, s);
    CHECK(s.by.find("refined") == std::string::npos);
    mixed += is_mixed;
    if (!is_mixed)
      for (const sub_graph& part : d.sub_graphs()) {
        const sub_graph_runs runs(part);
        for (std::uint32_t t = 0; t < part.tensors.size(); ++t) sums += runs.is_forward_sum(t);
      }
    for (const figures& f : hierarchies_of(s)) {
      // Groups cannot hold all the producers of such a sum: chains are all there is.
      if (is_mixed && options.hierarchy) {
        CHECK(groups_of(f, "levels").empty());
        CHECK(groups_of(f, "chains").size() == 1);
      }
      for (const figures& level : groups_of(f, "levels")) {
        REQUIRE(whole(level, "distinct") <= whole(level, "groups"));
        REQUIRE(whole(level, "reused") <= whole(level, "distinct"));
        REQUIRE(whole(level, "proven") <= whole(level, "solves"));
        REQUIRE(whole(level, "ways") >= whole(level, "groups"));
      }
      for (const double time : times_of(f)) {
        REQUIRE(s.plan);
        REQUIRE(s.time <= time);
        ++tops;
      }
    }
    answers += s.has_schedule();
  }
  MESSAGE(answers, " answers; ", mixed, " with sums of forward and backward, ", sums, " sums across groups; ", tops,
          " schedules of parts");
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
    options.gap = 0;
    options.run.seed = 5;
    const solution first = hiremate_own(p, options);
    test::check_answer(p, first);
    REQUIRE(first.has_schedule());
    for (const unsigned threads : {1U, 2U, 4U}) {
      options.run.threads = threads;
      INFO(std::string(name), ", ", threads, " threads");
      const solution other = hiremate_own(p, options);
      check_same(first, other);
      CHECK(other.by == first.by);
      const figures::group_list a = hierarchies_of(first), b = hierarchies_of(other);
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(times_of(a[i]) == times_of(b[i]));
        CHECK(over_levels(a[i], "solves") == over_levels(b[i], "solves"));
        CHECK(over_levels(a[i], "ways") == over_levels(b[i], "ways"));
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
  refused([](hiremate_options& o) { o.max_group = 1; },
          "hiremate: max_group is 1; expected a whole number of at least 2");
  refused([](hiremate_options& o) { o.max_top = 0; }, "hiremate: max_top is 0; expected a whole number of at least 1");
  refused([](hiremate_options& o) { o.gap = -1; }, "hiremate: gap is -1; expected a number of at least 0");
  refused([](hiremate_options& o) { o.max_columns = std::numeric_limits<double>::quiet_NaN(); },
          "hiremate: max_columns is nan; expected a number of at least 0");
  refused([](hiremate_options& o) { o.slots = 0; },
          "hiremate: slots is 0; expected a whole number of at least 1, at most 16777216");
  refused([](hiremate_options& o) { o.max_stages = 0; },
          "hiremate: max_stages is 0; expected a whole number of at least 1");
}

TEST_CASE("trivial budgets: everything fits, nothing fits") {
  const problem p = bundled("rk/gpt2-like-2l", 100);
  const solution all = hiremate_own(p.with_budget(problem::unlimited));
  test::check_answer(p.with_budget(problem::unlimited), all);
  CHECK(all.status == solve_status::optimal);
  CHECK(is_optimal(all.time, p.graph().needed_time));
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

TEST_CASE("figures of each level; a given hierarchy; like groups are solved once; a cache for several budgets") {
  const problem p = bundled("gpt2-small-b8-s1024", 70);
  hiremate_options options = limited(run_control::no_work_limit);
  options.moves = options.chain_moves = 10;
  options.gap = 0;
  options.top_solver = hiremate_top::search_level;
  options.hierarchy = partition_at_repeats(p.graph());
  options.cache = make_way_cache();
  const solution first = hiremate_own(p, options);
  test::check_answer(p, first);
  REQUIRE(first.has_schedule());
  CHECK(first.by == "hiremate/given/search_level");
  REQUIRE(hierarchies_of(first).size() == 1);
  const figures f = hierarchies_of(first)[0];
  CHECK(*f.find<std::string>("partition") == "given");
  CHECK(whole(f, "groups") == static_cast<std::int64_t>(options.hierarchy->groups.size()) - 1);
  CHECK(whole(f, "depth") == options.hierarchy->depth());
  CHECK(whole(f, "top") == static_cast<std::int64_t>(options.hierarchy->children[0].size()));
  CHECK(whole(f, "top_ways") > whole(f, "top"));
  CHECK(over_levels(f, "groups") == whole(f, "groups"));
  CHECK(over_levels(f, "distinct") < whole(f, "groups"));
  CHECK(over_levels(f, "reused") == 0);
  CHECK(over_levels(f, "solves") > over_levels(f, "distinct"));
  CHECK(groups_of(f, "chains").empty());
  CHECK(groups_of(f, "h_ilp").empty());

  const problem q = p.with_budget(p.graph().baseline_peak / 2);
  const solution second = hiremate_own(q, options);
  test::check_answer(q, second);
  CHECK(over_levels(hierarchies_of(second)[0], "reused") == over_levels(f, "distinct"));
  CHECK(over_levels(hierarchies_of(second)[0], "solves") == 0);
  options.cache.reset();
  const solution fresh = hiremate_own(q, options);
  CHECK(over_levels(hierarchies_of(fresh)[0], "reused") == 0);
  CHECK(second.time == fresh.time);  // the cache changes the time of the solve, not the answer
}

TEST_CASE("each top solver alone, and each partition: `by` names it, and no other part has figures") {
  const problem p = bundled("rk/gpt2-like-2l", 70);
  const std::pair<hiremate_top, std::string> tops[] = {
      {hiremate_top::rotor, "chain"}, {hiremate_top::search_level, "search_level"}, {hiremate_top::h_ilp, "h_ilp"}};
  for (const auto& [top, part] : tops) {
    hiremate_options options = limited(test::num_cases(60'000, 200'000));
    options.gap = 0;
    options.max_columns = 6000;
    options.nodes = 3;
    options.top_solver = top;
    options.partition = hiremate_partition::cuts;
    const solution s = hiremate_own(p, options);
    INFO(part, ": ", s.message, ", ", s.by);
    test::check_answer(p, s);
    if (s.plan) CHECK(s.by == "hiremate/cuts/" + part);
    REQUIRE(hierarchies_of(s).size() == 1);
    const figures f = hierarchies_of(s)[0];
    CHECK(*f.find<std::string>("partition") == "cuts");
    CHECK(groups_of(f, "chains").empty() == (top != hiremate_top::rotor));
    CHECK((f.find<double>("search_level_time") == nullptr) == (top != hiremate_top::search_level));
    CHECK(groups_of(f, "h_ilp").empty() == (top != hiremate_top::h_ilp));
    if (top == hiremate_top::rotor) CHECK(s.has_schedule());
  }
}

TEST_CASE("a rule of the user's chooses the methods of sub-graphs") {
  const problem p = bundled("rk/gpt2-like", 60);
  hiremate_options options = limited(30'000);
  options.gap = 0;
  options.top_solver = hiremate_top::search_level;
  options.partition = hiremate_partition::h_partition;
  std::size_t asked = 0, large = 0;
  options.rule = [&](const sub_graph_facts& facts) {
    ++asked;
    CHECK(facts.operations >= facts.forward_operations);
    CHECK(facts.copies >= 1);
    large += facts.operations > 40;
    return std::vector<sub_method>{facts.operations > 40 ? sub_method::rotor : sub_method::twremat};
  };
  const solution s = hiremate_own(p, options);
  test::check_answer(p, s);
  const figures f = hierarchies_of(s)[0];
  CHECK(asked == static_cast<std::size_t>(over_levels(f, "distinct")));
  CHECK((over_levels(f, "tables") > 0) == (large > 0));
  // A rule without methods: every sub-graph has the one option that keeps everything.
  options.rule = [](const sub_graph_facts&) { return std::vector<sub_method>{}; };
  const solution none = hiremate_own(p, options);
  const figures g = hierarchies_of(none)[0];
  CHECK(over_levels(g, "solves") == 0);
  CHECK(over_levels(g, "ways") == whole(g, "groups"));
  // The scalar option is a rule, too.
  options.rule = nullptr;
  options.sub_solver = sub_method::rotor;
  const figures h = hierarchies_of(hiremate_own(p, options))[0];
  CHECK(over_levels(h, "tables") == over_levels(h, "solves"));
  CHECK(over_levels(h, "tables") > 0);
}

TEST_CASE("integer programs below the top level; the refused ones are counted and reported") {
  const problem p = bundled("rk/fno1d", 60);
  hiremate_options options = limited(run_control::no_work_limit);
  options.gap = 0;
  options.nodes = 1;
  options.max_columns = 400;
  options.max_group = 6;
  options.partition = hiremate_partition::h_partition;
  options.top_solver = hiremate_top::search_level;
  options.sub_solver = sub_method::h_ilp;
  const solution s = hiremate_own(p, options);
  test::check_answer(p, s);
  CHECK(over_levels(hierarchies_of(s)[0], "programs") > 0);
  options.max_columns = 0;
  const solution none = hiremate_own(p, options);
  const figures f = hierarchies_of(none)[0];
  CHECK(over_levels(f, "programs_refused") > 0);
  CHECK(none.message.find("integer programs not solved") != std::string::npos);
}

TEST_CASE("a backend that throws or returns too few values: its failure is told, and the other methods go on") {
  const problem p = bundled("rk/fno1d", 60);
  hiremate_options options = limited(run_control::no_work_limit);
  options.gap = 0;
  options.max_columns = 400;
  options.max_group = 6;
  options.partition = hiremate_partition::h_partition;
  options.top_solver = hiremate_top::search_level;
  options.sub_solver = sub_method::h_ilp;
  const auto check_failure = [](const problem& instance, const solution& s, const std::string& says) {
    test::check_answer(instance, s);
    CHECK(s.has_schedule());
    CHECK(s.message.find(says) != std::string::npos);
    REQUIRE(s.statistics.own.find<std::string>("backend_failure") != nullptr);
    CHECK(s.statistics.own.find<std::string>("backend_failure")->find(says) == 0);
  };
  check_failure(p, hiremate_with(test::throwing_backend{})(p, options), "the backend throwing failed: licence expired");
  check_failure(p, hiremate_with(test::short_backend{})(p, options), "the backend short failed: 3 values");
  // The searches of ways of sub-graphs may run on several threads.
  options.run.threads = 2;
  check_failure(p, hiremate_with(test::throwing_backend{})(p, options), "the backend throwing failed: licence expired");
  // With a link too slow to help, the instances are solved without copies.
  options.run.threads = 1;
  const problem linked = p.with_link({.out = 1e6, .in = 1e6, .latency = 0});
  check_failure(linked, hiremate_with(test::throwing_backend{})(linked, options),
                "the backend throwing failed: licence expired");
}

TEST_CASE("a sub-solver of the user's that throws: its failure is told, and what else is found stays") {
  const problem p = bundled("rk/fno1d", 60);
  hiremate_options options = limited(100'000);
  options.own_sub_solver = [](const problem&, std::span<const schedule>, const run_control&) -> solution {
    throw std::runtime_error("licence expired");
  };
  const std::string says = "the sub-solver failed: licence expired";
  const auto check_failure = [&](const problem& instance) {
    const solution s = hiremate_own(instance, options);
    test::check_answer(instance, s);
    CHECK(s.has_schedule());
    CHECK(s.message.find(says) != std::string::npos);
    REQUIRE(s.statistics.own.find<std::string>("sub_solver_failure") != nullptr);
    CHECK(*s.statistics.own.find<std::string>("sub_solver_failure") == says);
  };
  check_failure(p);
  options.run.threads = 2;
  check_failure(p);
  check_failure(p.with_link({.out = 1e6, .in = 1e6, .latency = 0}));
  // An exception of the caller's own callback leaves the solve, also if it passes through a sub-solver.
  options.run.on_progress = [](const progress&) { throw std::logic_error("of the callback"); };
  CHECK_THROWS_WITH_AS((void)hiremate_own(p, options), "of the callback", std::logic_error);
  // A sub-solver that does nothing but throw when its memory runs out: the answer says so.
  options.run.on_progress = {};
  options.own_sub_solver = [](const problem&, std::span<const schedule>, const run_control&) -> solution {
    throw std::bad_alloc();
  };
  const solution s = hiremate_own(p, options);
  CHECK(s.out_of_memory);
  CHECK(s.statistics.own.find<std::string>("sub_solver_failure") == nullptr);
}

TEST_CASE("chains that are not begun are counted and reported") {
  const problem p = bundled("rk/mixer", 50);
  hiremate_options options = limited(run_control::no_work_limit);
  options.gap = 0;
  options.top_solver = hiremate_top::rotor;
  options.partition = hiremate_partition::levels;
  options.chain_effort = 0;
  const solution s = hiremate_own(p, options);
  test::check_answer(p, s);
  const figures chains = groups_of(hierarchies_of(s)[0], "chains")[0];
  CHECK(whole(chains, "chains_refused") > 0);
  CHECK(s.message.find("chains not solved with ways") != std::string::npos);
  CHECK(s.by == "hiremate/levels/chain");
}

TEST_CASE("improve is not worse, and says what the method itself found") {
  for (const char* name : {"rk/unet", "rk/mixer"}) {
    const problem p = bundled(name, 70);
    hiremate_options options = limited(20'000);
    options.moves = options.chain_moves = 20;
    const solution plain = hiremate_own(p, options);
    CHECK(plain.by.find("refined") == std::string::npos);
    CHECK(plain.statistics.own.find<double>("own_time") == nullptr);
    options.improve = by_refinement;
    options.run.work_limit *= 3;
    const solution improved = hiremate_own(p, options);
    test::check_answer(p, improved);
    test::check_answer(p, plain);
    REQUIRE(improved.has_schedule());
    if (const auto* own = improved.statistics.own.find<double>("own_time")) CHECK(improved.time <= *own);
    if (plain.has_schedule()) CHECK(improved.time <= plain.time);
  }
}

TEST_CASE("it ends on time, and when it is stopped") {
  const problem p = bundled("rk/gpt2-like-2l", 50);
  for (const unsigned threads : {1U, 2U})
    for (const auto time : {0ms, 20ms, 300ms}) {
      hiremate_options options;
      options.run.time_limit = time;
      options.run.threads = threads;
      const double begin = test::processor_seconds();
      const solution s = hiremate_own(p, options);
      const double took = test::processor_seconds() - begin;
      INFO("limit ", time.count(), " ms, took ", took, ", ", threads, " threads: ", s.message);
      CHECK(took < threads * std::chrono::duration<double>(time + 500ms).count());
      test::check_answer(p, s);
      CHECK(s.status != solve_status::infeasible);
    }
  for (const auto delay : {0ms, 5ms, 100ms, 400ms}) {
    std::stop_source source;
    hiremate_options options;
    options.run.time_limit = 60s;
    options.run.stop = source.get_token();
    if (delay == 0ms) source.request_stop();
    double asked = test::processor_seconds();
    std::jthread later([&] {
      std::this_thread::sleep_for(delay);
      asked = test::processor_seconds();
      source.request_stop();
    });
    const solution s = hiremate_own(p, options);
    later.join();
    const double took = test::processor_seconds() - asked;
    INFO("stopped after ", delay.count(), " ms, ended ", took, " s later: ", s.message);
    CHECK(took < 0.5);
    test::check_answer(p, s);
  }
}

TEST_CASE("progress has the solver's name and the caller's thread; what the callback throws leaves the solver") {
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
