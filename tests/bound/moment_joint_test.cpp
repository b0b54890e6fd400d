// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/moment_joint.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "remat/bound/detail/joint_branch_and_bound.hpp"
#include "remat/bound/detail/moment_program.hpp"
#include "remat/bound/detail/moment_relations.hpp"
#include "remat/bound/least_memory.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/id.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/problem.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/long_run.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

/// Moments that depend on each other, any of those whose working sets fit.
std::vector<std::uint32_t> random_moments(const problem& p, std::mt19937_64& engine) {
  const flat_graph& g = p.graph();
  std::vector<std::uint32_t> moments;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o] || working_set_bytes(g, o) > p.budget() || engine() % 2) continue;
    if (!moments.empty() && !(moment_relations(g).of(o)[moments.back()] & moment_relations::earlier)) continue;
    moments.push_back(o);
  }
  return moments;
}

TEST_CASE("several moments together never prove more than the least time of all schedules, or than was asked for") {
  const bool long_run = test::long_run();
  int compared = 0, above_one = 0, tight = 0, ended = 0;
  for (std::uint64_t seed = 0; seed < (long_run ? 20000U : 500U); ++seed) {
    const problem p = test::random_problem(seed, test::kind_of_graph(seed));
    std::mt19937_64 engine(seed);
    const std::int64_t peak = p.graph().baseline_peak, least = least_memory_bound(p).bytes;
    for (std::int64_t budget = least; budget < peak; budget += 1 + (peak - least) / 3) {
      const problem q = p.with_budget(budget);
      const turnaround_result one = turnaround_bound(q, {.moments = 0, .branch_nodes = 24});
      if (one.infeasible || one.recomputation == 0) continue;
      INFO("seed ", seed, " budget ", budget);
      const double needed = q.graph().needed_time, optimum = test::least_time(q) - needed;
      const std::vector<std::uint32_t> best{static_cast<std::uint32_t>(index(one.moment))};
      for (const double cutoff : {std::numeric_limits<double>::infinity(), 1.5 * optimum + 1, optimum, optimum / 2}) {
        if (!(cutoff < std::numeric_limits<double>::infinity()) && engine() % 2) continue;
        for (const std::vector<std::uint32_t>& start : {best, random_moments(q, engine)}) {
          if (start.empty()) continue;
          moment_joint search(q, start);
          double before = 0;
          for (int slice = 0; slice < 3 && !search.ended(); ++slice) {
            search.run(cutoff, 1 + engine() % 20000, {});
            REQUIRE(search.bound() >= before);
            before = search.bound();
          }
          search.run(cutoff, 10'000'000, {});
          REQUIRE(search.bound() <= cutoff);
          REQUIRE(search.bound() <= optimum);  // times are whole: not even by rounding
          if (cutoff < optimum || optimum == std::numeric_limits<double>::infinity()) continue;
          ++compared;
          ended += search.ended();
          above_one += search.bound() > one.recomputation * (1 + 1e-6) + 1e-6;
          tight += search.bound() >= optimum * (1 - 1e-5);
        }
      }
    }
  }
  INFO(compared, " compared, ", ended, " ended, ", above_one, " above one moment, ", tight, " to the optimum");
  CHECK(compared > 1000);
  CHECK(ended == compared);
  CHECK(above_one > compared / 30);
  CHECK(tight > compared / 3);
}

struct search_end {
  double bound;
  bool has_solution;  // of that cost
};

/// What branch and bound proves for the program of these moments, at its end.
search_end branch_to_the_end(const problem& p, const std::vector<std::uint32_t>& moments, double cutoff) {
  const double unit = std::ldexp(1.0, 11 - std::ilogb(p.graph().needed_time));
  moment_program program(p.graph(), p.budget(), moments, unit);
  if (!program.fits()) return {std::numeric_limits<double>::infinity(), false};
  joint_branch_and_bound tree(program);
  tree.set_cutoff(cutoff * unit);
  REQUIRE(tree.bound_root(unlimited, {}));
  if (!tree.ended()) REQUIRE(tree.branch(unlimited, {}));
  return {tree.bound() / unit, tree.has_solution()};
}

TEST_CASE("columns that are fixed for a cutoff change no bound below it") {
  int compared = 0;
  const auto compare = [&](const problem& p, const std::vector<std::uint32_t>& moments, double high) {
    const auto [bound, is_optimal] = branch_to_the_end(p, moments, high);
    if (!is_optimal || bound <= 0) return;
    ++compared;
    for (const double factor : {1.001, 1.02, 1.1, 1.5})
      CHECK(branch_to_the_end(p, moments, factor * bound).bound == doctest::Approx(bound).epsilon(1e-6));
    CHECK(branch_to_the_end(p, moments, 0.9 * bound).bound == 0.9 * bound);
  };
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const problem p = test::random_problem(seed, test::kind_of_graph(seed));
    std::mt19937_64 engine(seed);
    const std::int64_t peak = p.graph().baseline_peak, least = least_memory_bound(p).bytes;
    for (const std::int64_t budget : {least, (least + peak) / 2}) {
      const problem q = p.with_budget(budget);
      const std::vector<std::uint32_t> moments = random_moments(q, engine);
      INFO("seed ", seed, " budget ", budget);
      if (!moments.empty()) compare(q, moments, 100 * q.graph().needed_time);
    }
  }
  CHECK(compared > 200);
  compared = 0;
  for (const char* name : {"rk/unet", "rk/fno1d", "fno2d-b32-256"}) {  // with many nodes
    INFO(std::string(name));
    const problem p = test::within(test::bundled_problem(name), 0.6);
    const turnaround_result one = turnaround_bound(p, {.moments = 0, .branch_nodes = 200});
    moment_joint search(p, {static_cast<std::uint32_t>(index(one.moment))});
    search.run(1.2 * one.recomputation, 100'000'000, {});
    compare(p, search.moments(), 3 * one.recomputation);
  }
  CHECK(compared == 3);
}

TEST_CASE("several moments together prove what none of them does, however often the search is stopped") {
  const problem p = test::within(test::bundled_problem("rk/unet"), 0.5);
  const turnaround_result one = turnaround_bound(p, {.moments = 0, .branch_nodes = 200, .chain_moments = 48});
  const std::vector<std::uint32_t> start{static_cast<std::uint32_t>(index(one.moment))};
  const double cutoff = 1.07 * one.recomputation;
  moment_joint whole(p, start), sliced(p, start);
  whole.run(cutoff, unlimited, {});
  for (int i = 0; i < 1000 && !sliced.ended(); ++i) sliced.run(cutoff, 200'000, {});
  for (const moment_joint* search : {&whole, &sliced}) {
    CHECK(search->ended());
    CHECK(search->bound() > 1.03 * one.recomputation);
    CHECK(search->moments().size() > 1);
  }
  moment_joint again(p, start);
  again.run(cutoff, unlimited, {});
  CHECK(again.bound() == whole.bound());
  CHECK(again.work() == whole.work());
  moment_joint stopped(p, start);
  stopped.run(cutoff, unlimited, [] { return true; });
  CHECK(stopped.work() == 0);
  stopped.run(cutoff, 1'000'000, {});
  CHECK(stopped.work() < 1'500'000);
}

TEST_CASE("it asks whether to stop at every node and in every long calculation, however short a node's program is") {
  // Branch and bound visits thousands of nodes here, each of which takes few iterations.
  const problem p =
      test::within(read_training_step(std::filesystem::path(REMAT_TEST_DATA) / "limits/bert-base-b24-s384.json",
                                      "linear:flops=0.1,bytes=1")
                       .instance,
                   0.75);
  const turnaround_result one = turnaround_bound(p, {.branch_nodes = 24});
  moment_joint search(p, {static_cast<std::uint32_t>(index(one.moment))});
  std::uint64_t asked = 0, longest = 0, last = 0;
  search.run(std::numeric_limits<double>::infinity(), 200'000'000, [&] {
    ++asked;
    longest = std::max(longest, search.work() - last);
    last = search.work();
    return false;
  });
  INFO(asked, " times, at most ", longest, " operations apart, of ", search.work());
  CHECK(search.work() > 100'000'000);
  CHECK(longest < 2'000'000);  // a few milliseconds
}

}  // namespace
