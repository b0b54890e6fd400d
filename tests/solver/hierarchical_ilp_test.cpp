// SPDX-License-Identifier: BSL-1.0
// labels: memory
#include "remat/solver/hierarchical_ilp.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <queue>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/solver/checkmate.hpp"
#include "support/random_graph.hpp"
#include "support/random_level.hpp"

namespace {

using namespace remat;  // NOLINT: a test
using choices = std::vector<level_problem::choice>;

constexpr double infinite = std::numeric_limits<double>::infinity();

bool long_run() { return std::getenv("REMAT_LONG") != nullptr; }

/// The least time of any schedule of the form: first runs in turn, between two of which earlier runs take place again
/// in turn, each at most once and in one variant. A shortest path over what is there × the place in that sequence; what
/// is there may be dropped at any time, but for a tensor of several runs before the last of them has taken place.
double least_time_in_phases(const level_problem& p, std::int64_t budget) {
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
    for (std::uint32_t x = 0; x < tensors; ++x) sum += (s >> x & 1) ? p.bytes[x] : 0;
    return sum;
  };
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
    const auto phase = static_cast<std::uint32_t>(full >> tensors) / 16,
               k = static_cast<std::uint32_t>(full >> tensors) % 16;
    if (phase == n) {
      if ((x & set_of(p.outputs)) == set_of(p.outputs) && bytes(x) <= budget) return time;
      for (std::uint32_t t = 0; t < tensors; ++t)
        if (x >> t & 1) reach(full & ~(state{1} << t), time);
      continue;
    }
    for (std::uint32_t t = 0; t < tensors; ++t)
      if ((x >> t & 1) && !(writers.several(t) && phase <= writers.last[t])) reach(full & ~(state{1} << t), time);
    if (k < phase) reach(x | place(phase, k + 1), time);
    if (k < phase && !p.runs[k].again) continue;
    for (const level_problem::variant& v : p.runs[k].variants) {
      const state reads = set_of(v.reads);
      if ((x & reads) != reads || bytes(x) + v.peak_bytes > budget) continue;
      const state after = x | set_of(v.writes);
      const auto next = k == phase ? place(phase + 1, 0) : place(phase, k + 1);
      // Inner peaks depend on which of what is gone is wanted later: some of it is let go of with the run.
      state gone = 0;
      for (const auto& inner : v.inner) gone |= set_of(inner.gone);
      for (state drop = gone;; drop = (drop - 1) & gone) {
        bool fits = true;
        for (const auto& inner : v.inner)
          fits = fits && bytes(x) + inner.bytes - bytes(set_of(inner.gone) & drop) <= budget;
        if (fits) reach((after & ~drop) | next, time + v.time);
        if (drop == 0) break;
      }
    }
  }
  return infinite;
}

/// A budget that asks for something: between what single runs need and what the fastest sequence takes.
std::int64_t budget_of(const level_problem& p, int percent) {
  std::int64_t low = 0;
  for (const auto& r : p.runs) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& v : r.variants) {
      std::int64_t need = v.peak_bytes;
      for (const std::uint32_t x : v.reads) need += p.bytes[x];
      least = std::min(least, need);
    }
    low = std::max(low, least);
  }
  const choices all = test::run_once(p, 0);
  const std::int64_t high = all.empty() ? 2 * low : simulate_level(p, all).peak_bytes;
  return low + (std::max(high, low) - low) * percent / 100;
}

}  // namespace

TEST_CASE("random levels: the program's optimum is that of an exhaustive search over its form") {
  const std::uint64_t levels = long_run() ? 6000 : 400;
  std::size_t possible = 0, impossible = 0, again = 0, unsettled = 0, later = 0;
  for (std::uint64_t seed = 0; seed < levels; ++seed) {
    const level_problem p = test::random_level(seed);
    if (p.bytes.size() > 30) continue;
    const int percent = static_cast<int>(seed % 5) * 20;
    const std::int64_t budget = budget_of(p, percent);
    const double least = least_time_in_phases(p, budget);
    level_model_options options;
    if (seed % 2 == 0)
      for (std::uint32_t k = 0; k < p.runs.size(); ++k) options.moments.push_back(k);
    const level_model program(p, budget, options);
    mip_options solving;
    solving.run.work_limit = long_run() ? 100000 : 2000;
    const mip_result r = branch_and_bound.solve(program.model(), solving);
    INFO("seed ", seed, " at ", percent, " %: ", budget, ", optimum of the form ", least, ", ", to_string(r.status),
         " ", r.message, " ", r.objective, ", first phase ", program.first_phase(), " of ", p.runs.size());
    if (r.nodes >= solving.run.work_limit) {
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
    REQUIRE(program.model().num_columns() <=
            level_model::size_estimate(p) + (options.moments.empty() ? 0.0 : infinite));
  }
  MESSAGE(possible, " with a schedule, ", again, " of them with runs again, ", impossible, " without, ", unsettled,
          " unsettled; ", later, " with a later first phase");
  CHECK(again > levels / 10);
  CHECK(impossible > levels / 20);
  CHECK(later > levels / 10);
  CHECK(unsettled <= levels / 100);
}
