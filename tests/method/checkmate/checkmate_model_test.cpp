// SPDX-License-Identifier: BSL-1.0
#include "remat/method/checkmate/impl/checkmate_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <queue>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/bound/turnaround.hpp"
#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/refined.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "support/exhaustive.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/random_graph.hpp"
#include "support/spare_memory.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

constexpr double infinite = std::numeric_limits<double>::infinity();

/// The least time of any schedule whose first runs are in the listed order (needed operations alone) and between two of
/// which operations run again in the listed order, each at most once: a shortest path over what is there × the place in
/// that sequence.
double least_time_in_phases(const problem& p) {
  using state = std::uint64_t;
  const flat_graph& s = p.graph();
  std::vector<std::uint32_t> op;
  for (std::uint32_t o = 0; o < s.num_operations; ++o)
    if (s.needed[o]) op.push_back(o);
  const auto writes = static_cast<std::uint32_t>(s.outputs.values.size());
  assert(writes + 8 <= 64);
  std::vector<state> contributions(s.num_tensors, 0);
  for (std::size_t w = 0; w < writes; ++w) contributions[s.outputs.values[w]] |= state{1} << w;
  const state there = (state{1} << writes) - 1;
  const auto place = [&](std::size_t phase, std::size_t k) { return state{phase * 16 + k} << (writes); };
  std::unordered_map<state, double> best;
  std::priority_queue<std::pair<double, state>, std::vector<std::pair<double, state>>, std::greater<>> queue;
  const auto reach = [&](state x, double time) {
    const auto [at, fresh] = best.try_emplace(x, time);
    if (!fresh && at->second <= time) return;
    at->second = time;
    queue.push({time, x});
  };
  reach(0, 0);
  while (!queue.empty()) {
    const auto [time, full] = queue.top();
    queue.pop();
    if (time > best.at(full)) continue;
    const state x = full & there;
    const auto phase = static_cast<std::size_t>(full >> writes) / 16, k = static_cast<std::size_t>(full >> writes) % 16;
    const auto readable = [&](std::uint32_t t) { return (x & contributions[t]) == contributions[t]; };
    if (phase == op.size()) {
      bool done = true;
      for (const std::uint32_t t : s.final_outputs) done = done && readable(t);
      if (done) return time;
      continue;
    }
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      if (x & contributions[t]) reach((x & ~contributions[t]) | place(phase, k), time);
    if (k < phase) reach(x | place(phase, k + 1), time);
    const std::uint32_t o = op[k];
    if (k < phase && (s.once[o] || s.has_effect(o))) continue;
    bool legal = true;
    for (const std::uint32_t t : s.inputs[o]) legal = legal && readable(t);
    state next = x;
    for (std::uint32_t w = s.outputs.begin[o]; w < s.outputs.begin[o + 1]; ++w) {
      legal = legal && !((x >> w & 1) && s.producers[s.outputs.values[w]].size() > 1);
      next |= state{1} << w;
    }
    std::int64_t memory = s.workspace[o];
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      if (next & contributions[t]) memory += s.bytes[t];
    if (legal && memory <= p.budget())
      reach(next | (k == phase ? place(phase + 1, 0) : place(phase, k + 1)), time + s.time[o]);
  }
  return infinite;
}

problem bundled(const std::string& name) {
  return read_training_step(std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (name + ".json")).instance;
}

problem at(const problem& free, double fraction) {
  return free.with_budget(static_cast<std::int64_t>(fraction * static_cast<double>(free.graph().baseline_peak)));
}

/// Graphs that `exact` within `refined` does not settle at once.
problem middling(std::uint64_t seed, std::uint32_t operations = 17) {
  const problem free = test::random_problem(
      seed, {.operations = operations, .most_inputs = 2, .once = 25, .backward = 100, .most_time = 50});
  return test::with_spare_memory(free, 1, 3);
}

}  // namespace

TEST_CASE("random graphs: the program's optimum is that of an exhaustive search over its form") {
  const std::uint64_t graphs = test::num_cases(600, 2500);
  std::size_t possible = 0, impossible = 0, costly = 0, above = 0, tidied = 0, unsettled = 0;
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    const problem free = test::random_problem(seed + 40000, test::kind_of_graph(seed));
    if (free.graph().num_operations + free.graph().outputs.values.size() > 56) continue;
    const int percent = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 30 : 60;
    const problem p = test::with_spare_memory(free, percent, 100);
    const double least = least_time_in_phases(p);
    checkmate_model_options options;
    if (seed % 2 == 0)
      for (std::uint32_t o = 0; o < p.graph().num_operations; ++o) options.moments.push_back(static_cast<op_id>(o));
    const checkmate_model program(p, options);
    mip_options solving;
    if (!test::long_run()) solving.max_nodes = 1000;
    const mip_result r = branch_and_bound.solve(program.model(), solving);
    if (r.nodes == solving.max_nodes) {
      ++unsettled;
      continue;
    }
    INFO("seed ", seed + 40000, " at ", percent, " %, optimum of the form ", least, ", ", to_string(r.status), " ",
         r.message, " ", r.objective);
    if (least == infinite) {
      REQUIRE(r.status == mip_status::infeasible);
      ++impossible;
      continue;
    }
    ++possible;
    costly += least > p.graph().needed_time;
    REQUIRE(r.status == mip_status::optimal);
    REQUIRE(program.time(r.objective) == doctest::Approx(least).epsilon(1e-7));
    const schedule plan = program.decode(r.values);
    const check_report report = check(p, plan);
    INFO(report.message());
    REQUIRE(report.valid());
    REQUIRE(report.time <= least);
    if (report.computes <
        program.order(r.values).size()) {  // a first run in vain, which the form asks for, is left out
      ++tidied;
    } else {  // its own answer is a start of the same objective
      REQUIRE(report.time == least);
      const auto again = program.encode(plan);
      REQUIRE(again.has_value());
      REQUIRE(program.model().objective(*again) == doctest::Approx(r.objective));
    }
    if (p.graph().num_operations + p.graph().outputs.values.size() <= 64) above += least > test::least_time(p);
  }
  MESSAGE(possible, " with a schedule, ", costly, " of them with recomputation, ", impossible, " without; ", above,
          " times the problem has a faster schedule than the form, ", tidied, " times with a first run in vain");
  CHECK(costly > graphs / 10);
  CHECK(impossible > graphs / 10);
  CHECK(unsettled <= graphs / 200);
}

TEST_CASE("sizes in coarse units: what the program says fits the true budget") {
  std::size_t lost = 0, solved = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const problem free = test::random_problem(seed + 60000, {.operations = 7, .backward = 100, .most_bytes = 1000003});
    const problem p = test::with_spare_memory(free, 1, 2);
    const mip_result fine = branch_and_bound.solve(checkmate_model(p).model());
    const checkmate_model program(p, {.units = 40});
    const mip_result coarse = branch_and_bound.solve(program.model());
    INFO("seed ", seed);
    REQUIRE(coarse.objective >= fine.objective - 1e-6);
    lost += coarse.objective > fine.objective + 1e-6;
    if (coarse.status != mip_status::optimal) continue;
    ++solved;
    REQUIRE(check(p, program.decode(coarse.values)).valid());
  }
  CHECK(solved > 10);
  CHECK(lost > 5);  // so the units are coarse enough to show
}

TEST_CASE("only what is not slower than a given schedule: the same optimum, fewer decisions") {
  std::size_t fewer = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const problem free = test::random_problem(seed + 61000, {.operations = 7, .backward = 100, .most_time = 20});
    const problem p = at(free, 0.75);
    const checkmate_model all(p);
    const mip_result r = branch_and_bound.solve(all.model());
    if (r.status != mip_status::optimal) continue;
    const double time = all.time(r.objective);
    const checkmate_model part(p, {.at_most = time});
    const mip_result s = branch_and_bound.solve(part.model());
    INFO("seed ", seed);
    REQUIRE(s.status == mip_status::optimal);
    REQUIRE(part.time(s.objective) == doctest::Approx(time));
    CHECK(part.decisions() <= all.decisions());
    fewer += part.decisions() < all.decisions();
  }
  CHECK(fewer > 3);
}

TEST_CASE("the rows of the turnaround bound lift the relaxation to it") {
  // Without integrality: the plain relaxation stays below the bound, as its rows make it reach it.
  const auto relaxed = [](const problem& p, std::vector<op_id> moments) {
    const checkmate_model program(p, {.moments = std::move(moments)});
    mip_model m = program.model();
    for (std::size_t j = 0; j < m.num_columns(); ++j) m.set_integer(static_cast<std::uint32_t>(j), false);
    return program.time(branch_and_bound.solve(m).objective);
  };
  std::size_t raised = 0, looked = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const problem p = middling(seed + 62000, 12);
    const turnaround_result bound = turnaround_bound(p);
    if (bound.infeasible || bound.recomputation <= 0) continue;
    ++looked;
    const double plain = relaxed(p, {}), cut = relaxed(p, {bound.moment});
    INFO("seed ", seed, ": ", plain, " ", cut, " bound ", bound.lower_bound);
    REQUIRE(cut >= plain - 1e-6);
    REQUIRE(cut >= bound.lower_bound - 1e-6 * bound.lower_bound);
    raised += cut > plain + 1e-6;
  }
  MESSAGE("raised in ", raised, " of ", looked);
  CHECK(raised > 0);  // on real graphs by points: cbc_test.cpp
}

TEST_CASE("real graphs: the model is as large as was estimated at most, and a heuristic schedule is a solution of it") {
  for (const char* name : {"rk/fno1d", "rk/unet", "rk/gpt2-like-2l", "unet5-b16-256", "fno1d-b32-8192"}) {
    const problem p = at(bundled(name), 0.6);
    const solution heuristic = refined(p, {.run = {.work_limit = 32'000}});
    REQUIRE(heuristic.has_schedule());
    const checkmate_model program(p, {.at_most = heuristic.time});
    INFO(name);
    CHECK(program.model().num_columns() <= checkmate_model::size_estimate(p));
    CHECK(program.decisions() > 0);
    solution evicted = evict(p);
    REQUIRE(evicted.has_schedule());
    const checkmate_model loose(p);
    const auto values = loose.encode(*evicted.plan);
    if (!values) continue;  // runs in another order within a phase, which need more memory
    CHECK(loose.time(loose.model().objective(*values)) == doctest::Approx(evicted.time));
    solution again;
    CHECK(accept(p, again, loose.decode(*values), "test"));
    CHECK(again.time == doctest::Approx(evicted.time));
  }
}

TEST_CASE(
    "a rule: around the optimum the program has the same optimum, and a run that is ruled out does not take place") {
  std::size_t looked = 0, costly = 0, smaller = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const problem free = test::random_problem(seed + 64000, test::kind_of_graph(seed));
    const problem p = test::with_spare_memory(free, 1, 3);
    const checkmate_model whole(p);
    const mip_result best = branch_and_bound.solve(whole.model(), {.max_nodes = 500});
    if (best.status != mip_status::optimal) continue;
    ++looked;
    const std::vector<std::uint32_t> order = whole.order(best.values);
    // (phase, operation) of the runs again
    std::vector<std::pair<std::uint32_t, std::uint32_t>> again, waiting;
    std::vector<std::uint8_t> ran(p.graph().num_operations, 0);
    for (const std::uint32_t o : order) {
      if (ran[o]) {
        waiting.push_back({0, o});
        continue;
      }
      ran[o] = 1;
      for (const auto& run : waiting) again.push_back({o, run.second});
      waiting.clear();
    }
    const auto runs_again = [&](op_id a, op_id o) {
      const std::pair<std::uint32_t, std::uint32_t> run(static_cast<std::uint32_t>(index(a)),
                                                        static_cast<std::uint32_t>(index(o)));
      return std::find(again.begin(), again.end(), run) != again.end();
    };
    // Every third operation is free, the others are as in the optimum.
    const checkmate_model part(
        p, {.rule = [&](op_id a, op_id o) {
          return index(o) % 3 == 0 ? rerun::free : runs_again(a, o) ? rerun::always : rerun::never;
        }});
    const mip_result r = branch_and_bound.solve(part.model(), {.max_nodes = 500});
    INFO("seed ", seed, " ", to_string(r.status), " ", r.objective, " of ", best.objective);
    REQUIRE(r.status == mip_status::optimal);
    REQUIRE(part.time(r.objective) == doctest::Approx(whole.time(best.objective)).epsilon(1e-7));
    REQUIRE(check(p, part.decode(r.values)).valid());
    const auto start = part.encode(whole.decode(best.values));
    if (start) CHECK(part.model().objective(*start) <= r.objective * (1 + 1e-9));
    smaller += part.model().num_columns() < whole.model().num_columns();
    const checkmate_model none(p, {.rule = [](op_id, op_id) { return rerun::never; }});
    CHECK(none.decisions() == 0);
    if (again.empty()) continue;
    ++costly;
    CHECK(branch_and_bound.solve(none.model()).status == mip_status::infeasible);
  }
  MESSAGE(looked, " programs, ", costly, " with runs again, ", smaller, " became smaller");
  CHECK(costly > 10);
  CHECK(smaller > 10);
}

TEST_CASE("two-phase rounding: whole values give their own schedule back, and most relaxations a schedule that fits") {
  std::size_t looked = 0, fits = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const problem free = test::random_problem(
        seed + 65000,
        {.operations = 8, .second_output = 0, .third_output = 0, .accumulate = 0, .once = 0, .backward = 100});
    const problem p = test::with_spare_memory(free, 1, 2);
    const checkmate_model program(p);
    const mip_result best = branch_and_bound.solve(program.model(), {.max_nodes = 500});
    if (best.status != mip_status::optimal || program.decisions() == 0) continue;
    ++looked;
    const auto half = [](double x) { return x > 0.5; };
    const auto time_of = [&](const std::vector<std::uint32_t>& order) {
      double time = 0;
      for (const std::uint32_t o : order) time += p.graph().time[o];
      return time;
    };
    INFO("seed ", seed);
    // What whole values keep between phases needs no more runs than they have.
    CHECK(time_of(program.round(best.values, half)) <= program.time(best.objective) * (1 + 1e-9));
    mip_model relaxed = program.model();
    for (std::size_t j = 0; j < relaxed.num_columns(); ++j) relaxed.set_integer(static_cast<std::uint32_t>(j), false);
    const mip_result r = branch_and_bound.solve(relaxed);
    REQUIRE(r.status == mip_status::optimal);
    const std::vector<std::uint32_t> order = program.round(r.values, half);
    const check_report report = check(p, schedule_computes(p, order));
    CHECK((report.valid() || report.what == violation::over_budget));
    if (!report.valid()) continue;
    ++fits;
    if (report.computes < order.size()) continue;  // runs in vain, for which the form needs memory, are left out
    CHECK(time_of(order) >= program.time(best.objective) * (1 - 1e-9));
    CHECK(program.time(r.objective) <= time_of(order) * (1 + 1e-9));
  }
  MESSAGE(fits, " of ", looked, " fit");
  CHECK(looked > 20);
  CHECK(fits * 2 > looked);
}

TEST_CASE("building obeys its limits, and bad options are refused") {
  const problem p = at(bundled("gpt2-medium-b4-s512"), 0.4);
  std::stop_source source;
  source.request_stop();
  checkmate_model_options options;
  options.run.stop = source.get_token();
  CHECK_FALSE(checkmate_model(p, options).is_complete());
  options.run = {.time_limit = std::chrono::milliseconds(50)};
  const double start = test::processor_seconds();
  CHECK_FALSE(checkmate_model(p, options).is_complete());
  CHECK(test::processor_seconds() - start < 0.4);
  options.run = {};
  options.max_columns = 5000;
  const checkmate_model large(p, options);
  CHECK_FALSE(large.is_complete());
  CHECK(large.model().num_columns() < 10'000);
  CHECK(checkmate_model(at(bundled("rk/fno1d"), 0.5)).is_complete());
}
