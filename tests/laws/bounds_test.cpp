// SPDX-License-Identifier: BSL-1.0
// Law: no bound of the library is above the least time, or the least memory, of any schedule: not even by rounding.
// Bytes up to 2^59, times from 10^−12 to 10^12, ties and zeros.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "remat/bound/detail/moment_joint.hpp"
#include "remat/bound/least_memory.hpp"
#include "remat/bound/offload.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/chain/chain.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/frontier.hpp"
#include "support/copy_schedules.hpp"
#include "support/exact_copies.hpp"
#include "support/exhaustive.hpp"
#include "support/exhaustive_copies.hpp"
#include "support/long_run.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;

/// How many cases: 10^5 of each kind with REMAT_LONG.
std::uint64_t num_cases(std::uint64_t few) { return test::num_cases(few, 100'000); }

/// The share of `sum`, in some parts in 10^19, by which the exhaustive search may be wrong.
constexpr long double exhaustive_error = 1e-17L;

class extremes {
 public:
  explicit extremes(std::uint64_t seed)
      : engine_(seed * 2654435761U + 17), bytes_(engine_() % 6), times_(engine_() % 8) {}

  /// Bytes of a tensor or a workspace for which `small` stands.
  std::int64_t bytes(std::int64_t small) {
    const auto noise = [&](std::uint64_t n) { return static_cast<std::int64_t>(engine_() % n); };
    switch (bytes_) {
      case 0:
        return small;
      case 1:  // of all sizes
        return small == 0 ? 0 : std::int64_t{1} << noise(50);
      case 2:  // of all sizes, odd
        return small == 0 ? 0 : noise(std::uint64_t{1} << (1 + engine_() % 50));
      case 3:  // nearly equal
        return (std::int64_t{1} << 50) - noise(4);
      case 4:  // multiples, nearly
        return (small << 45) + noise(3);
      default:  // more than a double has digits
        return (small << 55) + noise(1000);
    }
  }
  /// A time for which `small` stands.
  double time(double small) {
    std::uniform_real_distribution<double> part(0, 1);
    switch (times_) {
      case 0:
        return small;
      case 1:
        return small == 0 ? 0 : std::pow(10.0, -12 + 24 * part(engine_));
      case 2:
        return 0.1;
      case 3:
        return 1e-12 * part(engine_);
      case 4:
        return 1e12 * part(engine_);
      case 5:
        return small / 3;
      case 6:
        return engine_() % 2 != 0 ? 1e12 : 1e-12 * (1 + static_cast<double>(engine_() % 3));
      default:
        return 0;
    }
  }
  std::mt19937_64& engine() noexcept { return engine_; }

 private:
  std::mt19937_64 engine_;
  std::uint64_t bytes_, times_;
};

/// A random problem of extreme sizes and times, within a budget below its baseline's peak if there is one.
problem extreme_problem(std::uint64_t seed, std::uint32_t most_operations) {
  test::random_graph_options options = test::kind_of_graph(seed);
  options.operations = 3 + static_cast<std::uint32_t>(seed % (most_operations - 2));
  extremes to(seed);
  for (std::uint64_t i = 0;; ++i) {
    const problem small = test::random_problem(seed + (i << 32), options);
    flat_graph g = small.graph();
    for (std::int64_t& b : g.bytes) b = to.bytes(b);
    for (std::int64_t& b : g.workspace) b = to.bytes(b) / 2;
    for (double& t : g.time) t = to.time(t);
    const problem p = problem::from_flat(std::move(g));
    const std::int64_t peak = p.graph().baseline_peak, least = largest_working_set(p).bytes;
    if (peak > least)
      return p.with_budget(least + static_cast<std::int64_t>(to.engine()() % static_cast<std::uint64_t>(peak - least)));
    if (i == 20) return p.with_budget(peak);
  }
}

TEST_CASE("no bound without a link is above the least time of any schedule") {
  std::uint64_t compared = 0, infeasible = 0, proven = 0, recomputing = 0, tight = 0;
  for (std::uint64_t seed = 0; seed < num_cases(1500); ++seed) {
    const problem p = extreme_problem(seed, 6);
    INFO("seed ", seed);
    const long double optimum = test::least_time<long double>(p);
    const bool feasible = std::isfinite(optimum);
    const auto holds = [&](double bound) { return bound <= optimum + exhaustive_error * optimum; };
    const double needed = p.graph().needed_time;
    ++compared;
    infeasible += !feasible;
    REQUIRE(holds(needed));
    recomputing += feasible && optimum > needed + 1e-9 * needed;

    const turnaround_result one = turnaround_bound(p, {.moments = 0});
    const turnaround_result all = turnaround_bound(p, {.moments = 0, .branch_nodes = 100, .chain_moments = 12});
    for (const turnaround_result& r : {one, all}) {
      REQUIRE(holds(r.lower_bound));
      REQUIRE(r.lower_bound >= needed);
      REQUIRE(!(r.infeasible && feasible));
    }
    proven += one.infeasible;
    const std::int64_t least = least_memory_bound(p).bytes;
    if (feasible) REQUIRE(least <= p.budget());

    if (!one.infeasible && all.recomputation > 0) {
      detail::moment_joint joint(p, {static_cast<std::uint32_t>(index(all.moment))});
      joint.run(std::numeric_limits<double>::infinity(), 300'000, {});
      REQUIRE(joint.bound() <= (optimum - needed) * (1 + exhaustive_error) + exhaustive_error * optimum);
      tight += feasible && joint.bound() >= (optimum - needed) * (1 - 1e-6L);
    }

    exact_options searching;
    searching.start_from_heuristic = seed % 2 == 0;
    if (seed % 3 == 0) searching.max_states = 1 + seed % 40;
    const solution s = exact(p, searching);
    REQUIRE(holds(s.lower_bound));
    if (s.status == solve_status::infeasible) REQUIRE(!feasible);
    if (s.status == solve_status::optimal) REQUIRE(s.time <= optimum * (1 + 2e-12L));
    if (searching.max_states >= 1000)
      REQUIRE(s.status == (feasible ? solve_status::optimal : solve_status::infeasible));

    if (!feasible || seed % 4 != 0) continue;
    const double time = std::nextafter(static_cast<double>(optimum), std::numeric_limits<double>::infinity());
    REQUIRE(least_memory_within(p, time) <= p.budget());
    if (seed % 16 != 0) continue;
    const solution dual = least_memory_for(p, time, evict);
    REQUIRE(*dual.statistics.own.find<std::int64_t>("least_bytes") <= p.budget());
    REQUIRE(dual.status != solve_status::infeasible);
    const solution a = automatic(p, {.run = {.work_limit = 20'000}});
    REQUIRE(holds(a.lower_bound));
    REQUIRE(a.message.find("defect") == std::string::npos);
  }
  MESSAGE(compared, " cases, ", infeasible, " without a schedule (", proven, " proven by one moment), ", recomputing,
          " that recompute, ", tight, " to the optimum by moments together");
  CHECK(infeasible > compared / 100);
  CHECK(proven > 0);
  CHECK(recomputing > compared / 10);
  CHECK(tight > compared / 30);
}

TEST_CASE("no bound with a link is above the least time of any schedule with copies") {
  std::uint64_t compared = 0, given_up = 0, slower = 0, proven = 0;
  for (std::uint64_t seed = 0; seed < num_cases(1500); ++seed) {
    const problem bare = extreme_problem(seed, seed % 8 == 0 ? 5 : 4);
    INFO("seed ", seed);
    std::mt19937_64 engine(seed);
    host_link link = test::random_link(bare, engine());
    if (engine() % 8 == 0) link.out *= 1e-6;
    if (engine() % 8 == 0) link = {.out = link.out * 1e9, .in = link.in * 1e9, .latency = link.latency};
    std::int64_t host = problem::unlimited;
    if (engine() % 3 == 0)
      host = static_cast<std::int64_t>(engine() % (static_cast<std::uint64_t>(bare.graph().baseline_peak) + 1));
    const problem p = bare.with_link(link, host);
    const double without = test::least_time(p.without_link());
    const test::fastest_result fastest = test::fastest_with_copies(p, 20'000, without);
    if (!fastest.complete) {
      ++given_up;
      continue;
    }
    ++compared;
    // The search adds up doubles.
    const auto holds = [&](double bound) { return bound <= fastest.time * (1 + 1e-14); };
    const bool feasible = std::isfinite(fastest.time);
    const double needed = p.graph().needed_time;
    slower += feasible && fastest.time > needed * (1 + 1e-9);
    for (const offload_bound_result& r :
         {offload_bound(p, {.moments = 0, .releases = 1}), offload_bound(p),
          offload_bound(p, {.moments = 0, .flows = 60, .releases = 8, .branch_nodes = 100})}) {
      REQUIRE(holds(r.lower_bound));
      REQUIRE(!(r.infeasible && feasible));
      proven += r.lower_bound > needed;
    }
    test::copying_options searching;
    if (seed % 3 == 0) searching.max_states = 1 + seed % 60;
    const solution s = test::exact_with_copies(p, searching);
    REQUIRE(holds(s.lower_bound));
    if (s.status == solve_status::infeasible) REQUIRE(!feasible);
    if (s.status == solve_status::optimal) REQUIRE(s.time <= fastest.time * (1 + 2e-12));
    if (!feasible || seed % 4 != 0) continue;
    REQUIRE(least_memory_within(p, fastest.time * (1 + 1e-14)) <= p.budget());
  }
  MESSAGE(compared, " cases, ", given_up, " given up, ", slower, " slower than one run each, ", proven,
          " bounds above one run each");
  CHECK(compared > 4 * given_up);
  CHECK(slower > compared / 20);
  CHECK(proven > slower / 4);
}

TEST_CASE("no bound of a chain is above the time of any of its schedules") {
  std::uint64_t compared = 0, recomputing = 0, proven = 0;
  for (std::uint64_t seed = 0; seed < num_cases(2000); ++seed) {
    extremes to(seed);
    const chain small = test::random_chain(seed, 2 + seed % 7);
    std::vector<chain_stage> stages;
    for (std::size_t i = 1; i <= small.length(); ++i) {
      chain_stage s = small.stage(i);
      s.forward_time = to.time(s.forward_time);
      s.backward_time = to.time(s.backward_time);
      s.output_bytes = to.bytes(s.output_bytes) / 64;
      s.saved_bytes = s.output_bytes + to.bytes(s.saved_bytes) / 64;
      s.forward_overhead_bytes = to.bytes(s.forward_overhead_bytes) / 64;
      s.backward_overhead_bytes = to.bytes(s.backward_overhead_bytes) / 64;
      stages.push_back(s);
    }
    const chain c("extreme", to.bytes(small.input_bytes()) / 64, std::move(stages));
    const std::int64_t peak = c.store_all_peak_bytes();
    const chain_problem p(c,
                          peak - static_cast<std::int64_t>(to.engine()() % (static_cast<std::uint64_t>(peak) / 2 + 1)));
    INFO("seed ", seed);
    const chain_solution best = rotor(p, {.form = rotor_form::bytes});
    REQUIRE(best.message.find("defect") == std::string::npos);
    for (const chain_solution& s :
         {best, rotor(p, {.form = rotor_form::slots, .slots = 50}), revolve(p), no_remat(p)}) {
      if (!s.plan) continue;
      ++compared;
      REQUIRE(best.lower_bound <= s.time * (1 + 1e-14));
      REQUIRE(s.lower_bound <= s.time * (1 + 1e-14));
    }
    recomputing += best.plan && best.statistics.recomputes > 0;
    proven += best.lower_bound > c.least_time();
  }
  MESSAGE(compared, " schedules of chains, ", recomputing, " chains that recompute, ", proven,
          " bounds above one run each");
  CHECK(recomputing > 100);
  CHECK(proven > 100);
}

}  // namespace
