// SPDX-License-Identifier: BSL-1.0
// labels: memory
#include "remat/solver/checkmate.hpp"

#include <doctest/doctest.h>

#include <cassert>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/io/training_graph_json.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/solver/concepts.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test

constexpr double infinite = std::numeric_limits<double>::infinity();

bool long_run() { return std::getenv("REMAT_LONG") != nullptr; }

/// The least time of any schedule whose first runs are in the listed order (needed operations alone) and between two of
/// which operations run again in the listed order, each at most once: a shortest path over what is there × the place in
/// that sequence.
double least_time_in_phases(const problem& p) {
  using state = std::uint64_t;
  const flat_step& s = p.step();
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
      for (const std::uint32_t t : s.step_outputs) done = done && readable(t);
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

/// Steps of several kinds: what the model has rules for is made frequent.
test::random_graph_options kind(std::uint64_t seed) {
  test::random_graph_options options{.operations = 3 + static_cast<std::uint32_t>(seed % 6)};
  switch (seed / 6 % 5) {
    case 1:
      options.accumulate = 60;
      options.second_output = 40;
      break;
    case 2:
      options.once = 30;
      options.effect = 15;
      break;
    case 3:
      options.most_bytes = 2;  // many of 0 bytes, many ties
      options.most_time = 1;
      break;
    case 4:
      options.backward = 100;
      options.once = 0;
      options.dead = 0;
      break;
    default:
      break;
  }
  return options;
}

}  // namespace

TEST_CASE("random graphs: the program's optimum is that of an exhaustive search over its form") {
  const std::uint64_t graphs = long_run() ? 2000 : 250;
  std::size_t possible = 0, impossible = 0, costly = 0, above = 0, tidied = 0;
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    const problem free = test::random_problem(seed + 40000, kind(seed));
    if (free.step().num_operations + free.step().outputs.values.size() > 56) continue;
    const std::int64_t low = largest_working_set(free).bytes;
    const int percent = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 30 : 60;
    const problem p = free.with_budget(low + (free.step().baseline_peak - low) * percent / 100);
    const double least = least_time_in_phases(p);
    checkmate_model_options options;
    if (seed % 2 == 0)
      for (std::uint32_t o = 0; o < p.step().num_operations; ++o) options.moments.push_back(static_cast<op_id>(o));
    const checkmate_model program(p, options);
    const mip_result r = branch_and_bound.solve(program.model());
    INFO("seed ", seed + 40000, " at ", percent, " %, optimum of the form ", least, ", ", to_string(r.status), " ",
         r.message, " ", r.objective);
    if (least == infinite) {
      REQUIRE(r.status == mip_status::infeasible);
      ++impossible;
      continue;
    }
    ++possible;
    costly += least > p.step().needed_time;
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
    if (p.step().num_operations + p.step().outputs.values.size() <= 64) above += least > test::least_time(p);
  }
  MESSAGE(possible, " with a schedule, ", costly, " of them with recomputation, ", impossible, " without; ", above,
          " times the problem has a faster schedule than the form, ", tidied, " times with a first run in vain");
  CHECK(costly > graphs / 10);
  CHECK(impossible > graphs / 10);
}
