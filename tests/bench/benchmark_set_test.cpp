// SPDX-License-Identifier: BSL-1.0
#include "set/benchmark_set.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/data.hpp"
#include "support/scratch_folder.hpp"

namespace {

using namespace remat;
using bench::benchmark_set;
using bench::best_known;

const std::filesystem::path stored = REMAT_BENCH_SET;
constexpr const char* columns =
    "instance,fraction,budget_bytes,operations,baseline_time,time,bound,found_by,found_on,bound_by,bound_on\n";

/// An empty set in a folder of its own, with one problem.
struct small_set {
  test::scratch_folder folder{"benchmark_set"};
  problem whole = test::bundled_problem("toy-skip-3");
  benchmark_set set = begin();

  benchmark_set begin() {
    std::ofstream(folder.path() / "best_known.csv") << columns;
    benchmark_set out(folder.path());
    out.add("toy-skip-3", "1.0", whole);
    return out;
  }
  problem instance() const { return whole.with_budget(set.rows()[0].budget_bytes); }
};

/// Runs each operation once, in the listed order, and frees nothing.
schedule_file listed_order(const problem& p) {
  schedule_file file;
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o) file.plan.compute(op_id{o});
  return file;
}

TEST_CASE("each schedule of the stored set is what its row says, and no bound is above it") {
  const benchmark_set set(stored);
  REQUIRE(set.rows().size() > 100);
  std::size_t schedules = 0;
  std::optional<problem> whole;
  std::string instance;
  for (const best_known& row : set.rows()) {
    INFO(row.name());
    if (instance != row.instance) whole = bench::instance_step(instance = row.instance).instance;
    const problem p = test::within(*whole, std::stod(row.fraction));
    CHECK(p.budget() == row.budget_bytes);
    CHECK(p.graph().num_operations == row.operations);
    CHECK(p.graph().baseline_time == doctest::Approx(row.baseline_time).epsilon(1e-12));
    CHECK(row.bound > 0);
    CHECK_FALSE(row.bound_by.empty());
    CHECK(row.bound_on.size() == std::string("2026-11-24").size());
    CHECK(std::filesystem::exists(set.schedule_file(row)) == row.time.has_value());
    if (!row.time) continue;
    ++schedules;
    const schedule_file file = read_schedule(set.schedule_file(row));
    const check_report report = check(p, file.plan.steps);
    CHECK(report.message() == check_report{}.message());
    CHECK(report.time == doctest::Approx(*row.time).epsilon(1e-12));
    CHECK(file.peak_bytes == report.peak_bytes);
    CHECK(file.solver == row.found_by);
    CHECK(row.bound <= *row.time * (1 + bench::equal_times));
  }
  CHECK(schedules > 100);
}

TEST_CASE("a schedule is judged by the checker, its budget and the best known time") {
  small_set s;
  const problem p = s.instance();
  schedule_file file;
  SUBCASE("one that stops in the middle") {
    const bench::verdict v = s.set.take(0, p, file, "a stranger", "2026-11-24");
    CHECK_FALSE(v.valid);
    CHECK(v.message.find("output") != std::string::npos);
    CHECK_FALSE(s.set.rows()[0].time);
  }
  SUBCASE("one for another budget") {
    file.budget_bytes = p.budget() + 1;
    const bench::verdict v = bench::judge(s.set.rows()[0], p, file);
    CHECK_FALSE(v.valid);
    CHECK(v.message.find("expected " + std::to_string(p.budget())) != std::string::npos);
  }
  SUBCASE("one over the budget") {
    file = listed_order(p);
    const bench::verdict v = bench::judge(s.set.rows()[0], p, file);
    CHECK_FALSE(v.valid);
    CHECK(v.message.find("budget") != std::string::npos);
  }
}

TEST_CASE("the set takes a schedule that is better, and no other") {
  small_set s;
  s.set.add("toy-skip-3", "1.0", s.whole);  // it is there: nothing happens
  REQUIRE(s.set.rows().size() == 1);
  const problem p = s.whole.with_budget(std::numeric_limits<std::int64_t>::max() / 4);
  schedule_file slow = listed_order(p);
  slow.plan.compute(op_id{0});
  CHECK(s.set.take(0, p, slow, "first", "2026-11-01").message == "is the first schedule");
  CHECK(s.set.take(0, p, slow, "second", "2026-11-02").message == "is as good");
  CHECK(s.set.rows()[0].found_by == "first");
  CHECK(s.set.take(0, p, listed_order(p), "third", "2026-11-03").message == "is better");
  CHECK(s.set.take(0, p, slow, "fourth", "2026-11-04").message == "is worse");
  CHECK(s.set.rows()[0].found_by == "third");
  CHECK(s.set.rows()[0].found_on == "2026-11-03");
  CHECK(read_schedule(s.set.schedule_file(s.set.rows()[0])).plan.steps == listed_order(p).plan.steps);
}

TEST_CASE("the set takes a bound that is higher, and none above a known schedule") {
  small_set s;
  const problem p = s.whole.with_budget(std::numeric_limits<std::int64_t>::max() / 4);
  const double time = p.graph().baseline_time;
  CHECK(s.set.take_bound(0, time / 2, "first", "2026-11-01"));
  CHECK_FALSE(s.set.take_bound(0, time / 3, "second", "2026-11-02"));
  CHECK(s.set.rows()[0].bound_by == "first");
  REQUIRE(s.set.take(0, p, listed_order(p), "first", "2026-11-01").better);
  CHECK_THROWS_AS(static_cast<void>(s.set.take_bound(0, 2 * time, "third", "2026-11-03")), bad_argument);
  CHECK(s.set.rows()[0].bound == time / 2);
  // A schedule below the bound is taken, and the message says that one of the two is wrong.
  CHECK(s.set.take_bound(0, time, "third", "2026-11-03"));
  best_known lower = s.set.rows()[0];
  lower.bound = 2 * time;
  CHECK(bench::judge(lower, p, listed_order(p)).message.find("please report") != std::string::npos);
}

TEST_CASE("the table is read back as it was written") {
  small_set s;
  s.set.add("toy-skip-3", "0.9", s.whole);
  CHECK(s.set.take_bound(0, std::numeric_limits<double>::infinity(), "a proof", "2026-11-01"));
  CHECK(s.set.take_bound(1, 0.1 + 0.2, "somebody with auto/refined", "2026-11-02"));
  s.set.write();
  const benchmark_set again(s.folder.path());
  REQUIRE(again.rows().size() == 2);
  CHECK(again.rows()[0].is_infeasible());
  CHECK(again.rows()[1].bound == 0.1 + 0.2);
  CHECK(again.rows()[1].bound_by == "somebody with auto/refined");
  CHECK(again.rows()[1].budget_bytes == s.set.rows()[1].budget_bytes);
  CHECK(again.find("toy-skip-3", "0.9") == 1);
  CHECK_FALSE(again.find("toy-skip-3", "0.1"));
}

TEST_CASE("a table with a wrong line names the line and the field") {
  const test::scratch_folder folder{"benchmark_set"};
  const auto message = [&](const std::string& line) -> std::string {
    std::ofstream(folder.path() / "best_known.csv") << columns << line << '\n';
    try {
      const benchmark_set set(folder.path());
    } catch (const bad_file& e) {
      return e.what();
    }
    return {};
  };
  CHECK(message("toy-skip-3,0.5,1,2").find("line 2: has 4 fields; expected 11") != std::string::npos);
  CHECK(message("toy-skip-3,0.5,1,2,x,,0,,,,").find("field 5, \"x\", is not a number") != std::string::npos);
  CHECK(message("toy-skip-3,0.5,1,2,1,,0,,,,").empty());
}

TEST_CASE("instances have the names of bundled graphs, or of a family, a size and a seed") {
  CHECK(bench::instance_step("rk/fno1d").instance.graph().num_operations ==
        test::bundled_problem("rk/fno1d").graph().num_operations);
  const problem made = bench::instance_step("layered-dag-100-3").instance;
  CHECK(made.graph().num_operations == 100);
  CHECK(made.graph().baseline_time ==
        doctest::Approx(test::large_step(test::step_family::layered_dag, 100, 3).graph().baseline_time));
  for (const char* const name :
       {"", "rk/none", "layered-dag-100", "layered-dag-100-", "layered-dag--3", "chain-100-1x"})
    CHECK_THROWS_AS(static_cast<void>(bench::instance_step(name)), bad_argument);
}

}  // namespace
