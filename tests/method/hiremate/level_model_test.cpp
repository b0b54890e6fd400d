// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/impl/level_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/method/checkmate/impl/checkmate_model.hpp"
#include "remat/method/hiremate/impl/level_problem.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "support/long_run.hpp"
#include "support/random_graph.hpp"
#include "support/random_level.hpp"
#include "support/spare_memory.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test
using choices = std::vector<level_problem::choice>;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// The least time of any schedule of the form: first runs in turn, between two of which earlier runs take place again
/// in turn, each at most once and in one variant (not before the phase `again_from`). A shortest path over what is
/// there × the place in that sequence; what is there may be dropped at any time, but for a tensor of several runs
/// before the last of them has taken place.
double least_time_in_phases(const level_problem& p, std::int64_t budget, std::uint32_t again_from = 0) {
  using state = std::uint64_t;
  const level_writers writers(p);
  const auto n = static_cast<std::uint32_t>(p.runs.size());
  const auto tensors = static_cast<std::uint32_t>(p.bytes.size());
  const state there = (state{1} << tensors) - 1;
  const auto place = [&](std::uint32_t phase, std::uint32_t k) { return (state{phase} * 16 + k) << tensors; };
  const auto set_of = [](const std::vector<std::uint32_t>& list) {
    state s = 0;
    for (const std::uint32_t x : list) s |= state{1} << x;
    return s;
  };
  const auto bytes = [&](state s) {
    std::int64_t sum = 0;
    for (; s != 0; s &= s - 1) sum += p.bytes[static_cast<std::size_t>(std::countr_zero(s))];
    return sum;
  };
  std::vector<state> wanted(n + 1, set_of(p.outputs));  // from a phase on by anything at all
  for (std::uint32_t t = 0; t <= n; ++t) {
    for (std::uint32_t k = 0; k < n; ++k)
      for (const level_problem::variant& v : p.runs[k].variants)
        if (k >= t || p.runs[k].again) wanted[t] |= set_of(v.reads);
    for (std::uint32_t x = 0; x < tensors; ++x)
      if (writers.several(x) && t <= writers.last[x]) wanted[t] |= state{1} << x;
  }
  std::unordered_map<state, double> best;
  std::priority_queue<std::pair<double, state>, std::vector<std::pair<double, state>>, std::greater<>> queue;
  const auto reach = [&](state x, double time) {
    x &= ~there | wanted[static_cast<std::uint32_t>(x >> tensors) / 16];
    if (bytes(x & there) > budget) return;
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
    const auto phase = static_cast<std::uint32_t>(full >> tensors) / 16,
               k = static_cast<std::uint32_t>(full >> tensors) % 16;
    if (phase == n) {
      if (x == set_of(p.outputs)) return time;
      continue;
    }
    if (k < phase) reach(x | place(phase, k + 1), time);
    if (k < phase && (!p.runs[k].again || phase < again_from)) continue;
    for (const level_problem::variant& v : p.runs[k].variants) {
      const state reads = set_of(v.reads), writes = set_of(v.writes);
      if ((x & reads) != reads || bytes(x) + v.peak_bytes > budget) continue;
      state may_go = reads;
      for (const std::uint32_t t : v.writes)
        if (k == writers.last[t]) may_go |= state{1} << t;
      for (state drop = may_go;; drop = (drop - 1) & may_go) {
        bool fits = true;
        for (const auto& inner : v.inner)
          fits = fits && bytes(x & ~(set_of(inner.gone) & drop)) + inner.bytes <= budget;
        if (fits)
          reach(((x | writes) & ~drop) | (k == phase ? place(phase + 1, 0) : place(phase, k + 1)), time + v.time);
        if (drop == 0) break;
      }
    }
  }
  return infinite;
}

}  // namespace

TEST_CASE("random levels: the program's optimum is that of an exhaustive search over its form") {
  const std::uint64_t levels = test::num_cases(420, 6000);
  std::size_t possible = 0, impossible = 0, again = 0, unsettled = 0, later = 0;
  for (std::uint64_t seed = 0; seed < levels; ++seed) {
    const level_problem p = test::random_level(seed);
    if (p.bytes.size() > (test::long_run() ? 30u : 16u)) continue;
    const int percent = static_cast<int>(seed % 5) * 20;
    const std::int64_t budget = test::budget_of(p, percent);
    level_model_options options;
    if (seed % 3 == 0) options.again_from = static_cast<std::uint32_t>(p.runs.size() / 2);
    const double least = least_time_in_phases(p, budget, options.again_from);
    const level_model program(p, budget, options);
    mip_options solving;
    solving.max_nodes = test::long_run() ? 100000 : 2000;
    const mip_result r = branch_and_bound.solve(program.model(), solving);
    INFO("seed ", seed, " at ", percent, " %: ", budget, ", optimum of the form ", least, ", ", to_string(r.status),
         " ", r.message, " ", r.objective, ", first phase ", program.first_phase(), " of ", p.runs.size());
    if (r.nodes >= solving.max_nodes) {
      ++unsettled;
      continue;
    }
    later += program.first_phase() > 1;
    if (least == infinite) {
      REQUIRE(r.status == mip_status::infeasible);
      ++impossible;
      continue;
    }
    ++possible;
    REQUIRE(r.status == mip_status::optimal);
    REQUIRE(program.time(r.objective) == doctest::Approx(least).epsilon(1e-7));
    const choices c = program.decode(r.values);
    again += c.size() > p.runs.size();
    const level_report report = simulate_level(p, c);
    INFO(report.message);
    REQUIRE(report.legal);
    REQUIRE(report.time == least);
    REQUIRE(without_runs_in_vain(p, c) == c);
    REQUIRE(report.peak_bytes <= budget);
    const auto values = program.encode(c);
    REQUIRE(values.has_value());
    REQUIRE(program.model().objective(*values) == doctest::Approx(r.objective));
    REQUIRE(program.decode(*values) == c);
    REQUIRE(program.model().num_columns() <= level_model::size_estimate(p));
  }
  MESSAGE(possible, " with a schedule, ", again, " of them with runs again, ", impossible, " without, ", unsettled,
          " unsettled; ", later, " with a later first phase");
  CHECK(again > levels / 10);
  CHECK(impossible > levels / 20);
  CHECK(later > levels / 10);
  CHECK(unsettled <= levels / 100);
}

namespace {

/// The operations of a step as a level, one variant each; nothing where a tensor of several producers could be made
/// again, or nobody wants one.
std::optional<level_problem> operations_as_level(const problem& p) {
  const flat_graph& s = p.graph();
  level_problem level;
  level.bytes.assign(s.bytes.begin(), s.bytes.end());
  for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
    if (s.final_output[t] && !s.producers[t].empty()) level.outputs.push_back(t);
    if (s.producers[t].size() < 2) continue;
    bool wanted = s.final_output[t] != 0;
    for (const std::uint32_t o : s.consumers[t]) wanted = wanted || s.needed[o];
    if (!wanted) return std::nullopt;
    for (const std::uint32_t o : s.producers[t])
      if (!s.once[o] && !s.has_effect(o)) return std::nullopt;
  }
  for (std::uint32_t o = 0; o < s.num_operations; ++o) {
    if (!s.needed[o]) continue;
    level_problem::variant v;
    v.time = s.time[o];
    v.peak_bytes = s.workspace[o];
    for (const std::uint32_t t : s.inputs[o])
      if (!s.producers[t].empty()) v.reads.push_back(t);
    for (const std::uint32_t t : s.outputs[o]) {
      v.writes.push_back(t);
      if (s.producers[t].front() == o) v.peak_bytes += s.bytes[t];
    }
    for (auto* list : {&v.reads, &v.writes}) std::sort(list->begin(), list->end());
    level.runs.push_back({!s.once[o] && !s.has_effect(o), {std::move(v)}});
  }
  return level;
}

}  // namespace

TEST_CASE("levels of single operations: the optimum of Checkmate's program") {
  std::size_t possible = 0, impossible = 0, again = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(400, 4000); ++seed) {
    const problem free = test::random_problem(seed + 70000, test::kind_of_graph(seed));
    const problem p = test::with_spare_memory(free, static_cast<std::int64_t>(seed % 3) * 3, 10);
    const auto level = operations_as_level(p);
    if (!level) continue;
    const checkmate_model of_operations(p);
    const level_model of_level(*level, p.budget());
    mip_options solving;
    solving.max_nodes = 2000;
    const mip_result a = branch_and_bound.solve(of_operations.model(), solving);
    const mip_result b = branch_and_bound.solve(of_level.model(), solving);
    INFO("seed ", seed, ": ", to_string(a.status), " ", to_string(b.status));
    if (a.nodes >= 2000 || b.nodes >= 2000) continue;
    REQUIRE(a.status == b.status);
    if (a.status != mip_status::optimal) {
      ++impossible;
      continue;
    }
    ++possible;
    REQUIRE(of_level.time(b.objective) == doctest::Approx(of_operations.time(a.objective)).epsilon(1e-7));
    again += of_level.time(b.objective) > p.graph().needed_time + 1e-9;
  }
  MESSAGE(possible, " with a schedule, ", again, " of them with recomputation, ", impossible, " without");
  CHECK(again > 20);
  CHECK(impossible > 20);
}

TEST_CASE("a schedule is encoded as it is, or as one that takes no longer") {
  std::size_t encoded = 0, replaced = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const level_problem p = test::random_training_level(seed + 12000, 4, 3);
    std::mt19937_64 engine(seed);
    choices c;
    std::vector<std::uint8_t> written(p.bytes.size(), 0);
    const auto run = [&](std::uint32_t k) {  // in some variant whose reads are there
      std::vector<std::uint32_t> possible;
      for (std::uint32_t o = 0; o < p.runs[k].variants.size(); ++o) {
        const auto& reads = p.runs[k].variants[o].reads;
        if (std::all_of(reads.begin(), reads.end(), [&](std::uint32_t x) { return written[x] != 0; }))
          possible.push_back(o);
      }
      if (possible.empty()) return;
      c.push_back({k, possible[engine() % possible.size()]});
      for (const std::uint32_t x : p.runs[k].variants[c.back().variant].writes) written[x] = 1;
    };
    for (std::uint32_t k = 0; k < p.runs.size(); ++k) {
      for (std::uint32_t j = 0; j < k; ++j)
        if (p.runs[j].again && engine() % 3 == 0) run(j);
      run(k);
    }
    const level_report r = simulate_level(p, c);
    if (!r.legal) continue;
    INFO("seed ", seed);
    const level_model program(p, r.peak_bytes);
    const auto values = program.encode(c);
    if (!values) {
      ++refused;
      continue;
    }
    ++encoded;
    const choices d = program.decode(*values);
    const level_report s = simulate_level(p, d);
    REQUIRE(s.legal);
    REQUIRE(s.time <= r.time);
    REQUIRE(s.peak_bytes <= r.peak_bytes);
    REQUIRE(program.time(program.model().objective(*values)) == doctest::Approx(s.time));
    replaced += d != without_runs_in_vain(p, c);
    // The same with sizes in coarse units: legal within the budget, where it is encoded.
    const level_model coarse(p, r.peak_bytes, {.units = 10});
    if (const auto some = coarse.encode(c)) REQUIRE(simulate_level(p, coarse.decode(*some)).peak_bytes <= r.peak_bytes);
    // Not of the form: runs out of turn; not within the budget.
    if (r.peak_bytes > 0) REQUIRE_FALSE(level_model(p, s.peak_bytes - 1).encode(d).has_value());
  }
  MESSAGE(encoded, " encoded, ", replaced, " of them as another, ", refused, " refused");
  CHECK(encoded > 100);
  CHECK(replaced > 5);
  CHECK(refused < encoded / 10);
}

TEST_CASE("the chosen way of a cell: a first run takes place, a run again only if a value says so") {
  const std::vector<double> low{0.2, 0.3}, high{0.2, 0.9};
  level_cell c;
  c.phase = 2;
  for (const bool first : {true, false}) {
    c.run = first ? 2 : 1;
    c.ways = {{4, 0}, {7, 1}};
    CHECK((c.chosen(low) != nullptr) == first);
    REQUIRE(c.chosen(high) != nullptr);
    CHECK(c.chosen(high)->variant == 7);
  }
  c.ways = {{3, level_cell::none}};
  CHECK(c.chosen(low)->variant == 3);
}

TEST_CASE("the branch and bound does not believe a tableau that has drifted") {
  // It once called 57 optimal here: many pivots had left a row's value far from what its columns make of it.
  const level_problem level = test::random_level(497);
  const level_model program(level, 30);
  const mip_result r = branch_and_bound.solve(program.model(), {});
  REQUIRE(r.status == mip_status::optimal);
  CHECK(program.time(r.objective) == doctest::Approx(35));
}
