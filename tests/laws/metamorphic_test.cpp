// SPDX-License-Identifier: BSL-1.0
// Laws: how an answer changes when its question changes. More budget never costs more; times in another unit, other
// numbers of operations and tensors, an operation that costs nothing, and inputs that are listed twice change nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "laws/solvers.hpp"
#include "remat/bound/least_memory.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/frontier.hpp"
#include "support/data.hpp"
#include "support/long_run.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"
#include "support/run_step.hpp"
#include "support/schedules.hpp"

using namespace remat;
using namespace remat::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A random graph large enough that solvers have choices, small enough for `exact`.
problem some_problem(std::uint64_t seed, std::uint32_t more_operations = 0) {
  random_graph_options options = kind_of_graph(seed);
  options.operations += more_operations;
  return random_problem(seed, options);
}

/// `parts` + 1 budgets, ascending and each once, from just below the least memory to the baseline's peak.
std::vector<std::int64_t> budgets_of(const problem& p, std::int64_t parts) {
  const std::int64_t peak = p.graph().baseline_peak;
  const std::int64_t low = std::max<std::int64_t>(0, least_memory_bound(p).bytes - 1);
  std::vector<std::int64_t> budgets;
  for (std::int64_t i = 0; i <= parts; ++i) budgets.push_back(low + (peak - low) * i / parts);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

/// The same step with all times × 2^power.
problem with_scaled_times(const problem& p, int power) {
  flat_graph g = p.graph();
  for (double& time : g.time) time = std::ldexp(time, power);
  return problem::from_flat(std::move(g), p.budget());
}

chain with_scaled_times(const chain& c, int power) {
  std::vector<chain_stage> stages(c.stages().begin(), c.stages().end());
  for (chain_stage& s : stages) {
    s.forward_time = std::ldexp(s.forward_time, power);
    s.backward_time = std::ldexp(s.backward_time, power);
  }
  return chain(c.name(), c.input_bytes(), std::move(stages));
}

/// A step whose operations and tensors have other numbers.
struct relabelling {
  relabelling(const problem& p, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    const flat_graph& g = p.graph();
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) tensor.push_back(t);
    std::shuffle(tensor.begin(), tensor.end(), engine);
    const std::vector<op_id> order = random_order(p, engine);  // must stay topological
    operation.resize(g.num_operations);
    flat_graph& h = graph;
    h.num_operations = g.num_operations;
    h.num_tensors = g.num_tensors;
    for (std::uint32_t i = 0; i < g.num_operations; ++i) {
      const std::size_t o = index(order[i]);
      operation[o] = i;
      for (const std::uint32_t t : g.inputs[o]) h.inputs.values.push_back(tensor[t]);
      h.inputs.end_row();
      for (const std::uint32_t t : g.outputs[o]) h.outputs.values.push_back(tensor[t]);
      h.outputs.end_row();
      h.once.push_back(g.once[o]);
      if (!g.phase.empty()) h.phase.push_back(g.phase[o]);
      h.workspace.push_back(g.workspace[o]);
      h.time.push_back(g.time[o]);
    }
    for (const std::uint32_t t : g.final_outputs) h.final_outputs.push_back(tensor[t]);
    h.always_resident.resize(g.num_tensors);
    h.bytes.resize(g.num_tensors);
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      h.always_resident[tensor[t]] = g.always_resident[t];
      h.bytes[tensor[t]] = g.bytes[t];
    }
  }
  [[nodiscard]] problem within(std::int64_t budget) const { return problem::from_flat(graph, budget); }
  [[nodiscard]] step mapped(step s) const {
    if (s.is_free()) {
      const std::size_t t = index(s.tensor());
      return t < tensor.size() ? step::free(static_cast<tensor_id>(tensor[t])) : s;
    }
    const std::size_t o = index(s.operation());
    return o < operation.size() ? step::compute(static_cast<op_id>(operation[o])) : s;
  }

  std::vector<std::uint32_t> operation, tensor;  // old number → new number
  flat_graph graph;
};

/// An operation that takes no time, and writes a tensor of no bytes, beside a needed operation: it reads what that one
/// reads, or what that one alone writes. So it can always run next to the other one, within the memory that this one
/// needs. Who reads its output runs behind the other one anyway.
problem with_idle_operation(const problem& p, std::mt19937_64& engine) {
  const flat_graph& g = p.graph();
  const auto coin = [&] { return engine() % 2 == 0; };
  std::vector<std::uint32_t> needed;
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o]) needed.push_back(o);
  const std::uint32_t beside = needed.empty() ? 0 : needed[engine() % needed.size()];
  const bool behind = coin();
  std::vector<std::uint32_t> reads;
  if (!needed.empty())
    for (const std::uint32_t t : behind ? g.outputs[beside] : g.inputs[beside])
      if (coin() && (!behind || g.producers[t].size() == 1)) reads.push_back(t);

  const std::uint32_t at = beside + (behind && g.num_operations > 0 ? 1 : 0), fresh = g.num_tensors;
  flat_graph h;
  h.num_operations = g.num_operations + 1;
  h.num_tensors = g.num_tensors + 1;
  h.final_outputs = g.final_outputs;
  if (coin()) h.final_outputs.push_back(fresh);
  h.always_resident = g.always_resident;
  h.always_resident.push_back(0);
  h.bytes = g.bytes;
  h.bytes.push_back(0);
  const auto add = [&](auto inputs, auto outputs, std::uint8_t once, std::int64_t workspace, double time) {
    h.inputs.values.insert(h.inputs.values.end(), inputs.begin(), inputs.end());
    h.outputs.values.insert(h.outputs.values.end(), outputs.begin(), outputs.end());
    h.once.push_back(once);
    h.workspace.push_back(workspace);
    h.time.push_back(time);
  };
  const auto add_idle = [&] {
    add(reads, std::vector<std::uint32_t>{fresh}, coin(), 0, 0);
    h.inputs.end_row();
    h.outputs.end_row();
  };
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (o == at) add_idle();
    add(g.inputs[o], g.outputs[o], g.once[o], g.workspace[o], g.time[o]);
    const bool is_behind = std::any_of(g.inputs[o].begin(), g.inputs[o].end(), [&](std::uint32_t t) {
      return std::binary_search(g.producers[t].begin(), g.producers[t].end(), beside);
    });
    if ((is_behind || (o == beside && !behind)) && coin()) h.inputs.values.push_back(fresh);
    h.inputs.end_row();
    h.outputs.end_row();
  }
  if (at == g.num_operations) add_idle();
  return problem::from_flat(std::move(h), p.budget());
}

/// The same step; operations list inputs several times, and the graph lists final outputs several times.
training_graph with_repeated_inputs(const training_graph& g, std::mt19937_64& engine) {
  training_graph h(g.name());
  for (std::size_t i = 0; i < g.num_tensors(); ++i) {
    const auto t = static_cast<tensor_id>(i);
    h.add_tensor({std::string(g.name(t)), g.bytes(t), g.kind(t)});
  }
  for (std::size_t i = 0; i < g.num_operations(); ++i) {
    const auto o = static_cast<op_id>(i);
    operation_spec spec;
    spec.inputs.assign(g.inputs(o).begin(), g.inputs(o).end());
    for (const tensor_id t : g.inputs(o)) spec.inputs.insert(spec.inputs.end(), engine() % 3, t);
    std::shuffle(spec.inputs.begin(), spec.inputs.end(), engine);
    spec.outputs.assign(g.outputs(o).begin(), g.outputs(o).end());
    spec.phase = g.phase(o);
    spec.workspace = g.workspace(o);
    spec.seconds = g.measured_seconds(o);
    spec.recomputable = g.recomputable(o);
    h.add_operation(std::move(spec));
  }
  for (const tensor_id t : g.final_outputs())
    for (std::uint64_t i = 0; i < 1 + engine() % 2; ++i) h.add_final_output(t);
  return h;
}

/// The solvers whose answers under a limit of work the library alone decides: CBC has tolerances of its own, and
/// programs that take long.
std::vector<law_solver> own_solvers() {
  std::vector<law_solver> solvers = all_solvers();
  std::erase_if(solvers, [](const law_solver& s) { return s.name.find("CBC") != std::string::npos; });
  return solvers;
}

/// An answer of `exact` that is proven.
solution proven(const problem& p) {
  solution s = exact(p);
  REQUIRE((s.status == solve_status::optimal || s.status == solve_status::infeasible));
  return s;
}

/// Checks that `now` is `before` with all times × 2^power.
template <class Solution>
void check_scaled(const Solution& before, const Solution& now, int power) {
  CHECK(now.status == before.status);
  CHECK((now.plan == before.plan));
  CHECK(now.peak_bytes == before.peak_bytes);
  CHECK(now.time == std::ldexp(before.time, power));
  CHECK(now.lower_bound == std::ldexp(before.lower_bound, power));
}

constexpr int powers_of_two[] = {-30, 17};

}  // namespace

TEST_CASE("more budget never costs more, and never raises a bound") {
  run_control run;
  run.work_limit = 8000;
  int schedules = 0, cheaper = 0, lower = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(40, 1000); ++seed) {
    CAPTURE(seed);
    const problem p = some_problem(seed, 2);
    const std::vector<std::int64_t> budgets = budgets_of(p, 4);
    double before = infinity;
    for (const std::int64_t budget : budgets) {
      CAPTURE(budget);
      const solution s = proven(p.with_budget(budget));
      CHECK(s.time <= before);
      cheaper += std::isfinite(before) && s.time < before;
      before = s.time;
    }
    for (const law_solver& solver : own_solvers()) {
      CAPTURE(solver.name);
      double bound = infinity;
      for (const std::int64_t budget : budgets) {
        CAPTURE(budget);
        const solution s = solver.solve(p.with_budget(budget), run);
        CHECK(s.lower_bound <= with_rounding(bound));
        schedules += s.has_schedule();
        lower += std::isfinite(bound) && s.lower_bound < bound * (1 - rounding_error);
        bound = s.lower_bound;
      }
    }
  }
  MESSAGE(schedules << " schedules; " << cheaper << " optima fall, " << lower << " bounds fall");
  CHECK(schedules > 1000);
  CHECK(cheaper > 10);
  CHECK(lower > 200);
}

TEST_CASE("on every solver's frontier, more budget never costs more") {
  run_control run;
  run.work_limit = 20000;
  int falls = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(20, 500); ++seed) {
    CAPTURE(seed);
    const problem p = some_problem(seed, 6);
    std::vector<std::int64_t> budgets = budgets_of(p, 5);
    std::mt19937_64 engine(seed);
    std::shuffle(budgets.begin(), budgets.end(), engine);
    for (const law_solver& solver : own_solvers()) {
      CAPTURE(solver.name);
      const std::vector<solution> answers = frontier_by(p, budgets, solver.solve, run);
      REQUIRE(answers.size() == budgets.size());
      for (std::size_t i = 0; i < budgets.size(); ++i)
        for (std::size_t j = 0; j < budgets.size(); ++j)
          if (budgets[i] < budgets[j]) {
            CHECK(answers[i].time >= answers[j].time);
            falls += answers[i].time > answers[j].time && std::isfinite(answers[i].time);
          }
    }
  }
  MESSAGE(falls << " pairs of budgets with schedules of different times");
  CHECK(falls > 300);
}

TEST_CASE("on chains, more budget never costs more") {
  int falls = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(60, 2000); ++seed) {
    CAPTURE(seed);
    const chain_problem p(random_chain(seed, 3 + seed % 8));
    const chain_frontier all = rotor_frontier(p.stages(), {.form = rotor_form::bytes});
    REQUIRE(all.exact());
    REQUIRE_FALSE(all.points().empty());
    const chain_frontier::point* last = nullptr;
    for (const chain_frontier::point& k : all.points()) {
      if (last != nullptr) {
        CHECK(last->budget_bytes < k.budget_bytes);
        CHECK(last->time > k.time);
      }
      last = &k;
    }
    double time = infinity, bound = infinity;
    std::size_t reached = 0;
    for (std::int64_t budget = all.points().front().budget_bytes - 1; budget <= last->budget_bytes + 1; ++budget) {
      CAPTURE(budget);
      const chain_solution s = rotor(p.with_budget(budget), {.form = rotor_form::bytes});
      CHECK(s.time <= time);
      CHECK(s.lower_bound <= with_rounding(bound));
      falls += std::isfinite(time) && s.time < time;
      time = s.time;
      bound = s.lower_bound;
      // The frontier and the solves for single budgets are the same function.
      while (reached < all.points().size() && all.points()[reached].budget_bytes <= budget) ++reached;
      CHECK(s.time == (reached == 0 ? infinity : all.points()[reached - 1].time));
    }
  }
  MESSAGE(falls << " budgets at which the time falls");
  CHECK(falls > 100);

  for (std::size_t length = 1; length < 12; ++length) {  // of stages that are alike, which revolve solves
    CAPTURE(length);
    const chain_problem p(unit_chain(length, 2));
    double time = infinity, bound = infinity;
    for (std::int64_t budget = 0; budget <= p.stages().store_all_peak_bytes(); ++budget) {
      CAPTURE(budget);
      const chain_solution s = revolve(p.with_budget(budget));
      CHECK(s.time <= time);
      CHECK(s.lower_bound <= with_rounding(bound));
      time = s.time;
      bound = s.lower_bound;
    }
    CHECK(time == p.stages().least_time());
  }
}

TEST_CASE("times × a power of two scale every answer exactly") {
  run_control run;
  run.work_limit = 8000;
  run.seed = 3;
  std::map<std::string, int> schedules;
  int found = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(30, 500); ++seed)
    for (const double part : {0.6, 0.8, 1.0}) {
      CAPTURE(seed);
      CAPTURE(part);
      const problem p = within(some_problem(seed, 6), part);
      const turnaround_options deep{.moments = 0, .branch_nodes = 20};
      const turnaround_result bound = turnaround_bound(p, deep);
      for (const int power : powers_of_two) {
        const turnaround_result now = turnaround_bound(with_scaled_times(p, power), deep);
        CHECK(now.lower_bound == std::ldexp(bound.lower_bound, power));
        CHECK(now.multiplier == std::ldexp(bound.multiplier, power));
        CHECK(now.choice_time == std::ldexp(bound.choice_time, power));
        CHECK(now.saved == bound.saved);
        CHECK(now.flows == bound.flows);
      }
      for (const law_solver& solver : own_solvers()) {
        CAPTURE(solver.name);
        const solution s = solver.solve(p, run);
        schedules[solver.name] += s.has_schedule();
        found += s.has_schedule();
        for (const int power : powers_of_two) check_scaled(s, solver.solve(with_scaled_times(p, power), run), power);
      }
    }
  for (const auto& [name, n] : schedules) {
    CAPTURE(name);
    CHECK(n > 0);
  }
  MESSAGE(found << " schedules");
  CHECK(found > 100);
}

TEST_CASE("times × a power of two scale the answers for chains exactly") {
  const run_control run{.work_limit = 1'000'000};
  int found = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(40, 2000); ++seed) {
    const chain_problem whole(random_chain(seed, 3 + seed % 8));
    const std::int64_t peak = whole.stages().store_all_peak_bytes();
    for (const int power : powers_of_two) {
      CAPTURE(seed);
      CAPTURE(power);
      const chain scaled = with_scaled_times(whole.stages(), power);
      for (const std::int64_t budget : {peak * 5 / 10, peak * 7 / 10, peak * 9 / 10}) {
        CAPTURE(budget);
        const chain_problem p = whole.with_budget(budget), q(scaled, budget);
        const auto compare = [&](const auto& solver, auto options) {
          options.run = run;
          const chain_solution s = solver(p, options);
          found += s.has_schedule();
          check_scaled(s, solver(q, options), power);
        };
        compare(no_remat, no_remat_options{});
        compare(chen_sqrt, chen_sqrt_options{});
        compare(revolve, revolve_options{});
        for (const rotor_form form : {rotor_form::slots, rotor_form::bytes, rotor_form::bytes_or_slots})
          compare(rotor, rotor_options{.form = form});
      }
      const chain_frontier before = rotor_frontier(whole.stages()), now = rotor_frontier(scaled);
      REQUIRE(now.points().size() == before.points().size());
      for (std::size_t k = 0; k < before.points().size(); ++k) {
        CHECK(now.points()[k].budget_bytes == before.points()[k].budget_bytes);
        CHECK(now.points()[k].time == std::ldexp(before.points()[k].time, power));
      }
    }
  }
  MESSAGE(found << " schedules");
  CHECK(found > 500);
}

TEST_CASE("other numbers of operations and tensors change no optimum and no least memory") {
  int optimal = 0, infeasible = 0, moved = 0, costly = 0, raised = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(1000, 20'000); ++seed) {
    CAPTURE(seed);
    const problem p = some_problem(seed, 1);
    const relabelling other(p, seed + 1000);
    const problem q = other.within(problem::unlimited);
    const least_memory_result least = least_memory_bound(p);
    CHECK(least_memory_bound(q).bytes == least.bytes);
    CHECK(largest_working_set(q).bytes == largest_working_set(p).bytes);
    CHECK(q.graph().needed_time == p.graph().needed_time);
    moved += !std::is_sorted(other.operation.begin(), other.operation.end());
    for (const std::int64_t budget : budgets_of(p, 3)) {
      CAPTURE(budget);
      const solution s = proven(p.with_budget(budget)), t = proven(q.with_budget(budget));
      CHECK(t.status == s.status);
      CHECK(t.time == s.time);
      (s.status == solve_status::optimal ? optimal : infeasible) += 1;
      costly += s.has_schedule() && s.time > p.graph().needed_time;
      const turnaround_options all{.moments = 0};
      const turnaround_result before = turnaround_bound(p.with_budget(budget), all),
                              now = turnaround_bound(q.with_budget(budget), all);
      CHECK(now.infeasible == before.infeasible);
      if (before.infeasible) continue;
      CHECK(std::abs(now.lower_bound - before.lower_bound) <= 1e-6 * before.lower_bound);  // it searches so far
      raised += before.recomputation > 0;
    }
  }
  CHECK(raised > 300);
  MESSAGE(optimal << " optima, " << costly << " with recomputation, " << raised << " bounds above the least time, "
                  << infeasible << " infeasible; " << moved << " other orders of operations");
  CHECK(optimal > 1000);
  CHECK(costly > 400);
  CHECK(infeasible > 500);
  CHECK(moved > 300);
}

TEST_CASE("other numbers of operations and tensors change no verdict of the checker") {
  std::map<violation, int> verdicts;
  for (std::uint64_t seed = 0; seed < test::num_cases(10'000, 200'000); ++seed) {
    CAPTURE(seed);
    const problem whole = some_problem(seed % 400, 4);
    const problem p = seed % 3 == 0 ? whole : within(whole, 0.9);
    const relabelling other(p, seed);
    const problem q = other.within(p.budget());
    const schedule plan = broken(p, random_schedule(p, seed).plan, seed % std::size(ways_to_break), seed);
    schedule mapped;
    for (const step x : plan.steps) mapped.steps.push_back(other.mapped(x));
    std::vector<std::int64_t> bytes_before, bytes_now;
    const check_report before = check(p, plan, [&](std::size_t, std::int64_t b) { bytes_before.push_back(b); });
    const check_report now = check(q, mapped, [&](std::size_t, std::int64_t b) { bytes_now.push_back(b); });
    CAPTURE(before.message());
    CAPTURE(now.message());
    CHECK(now.what == before.what);
    CHECK(now.at == before.at);
    CHECK(now.peak_bytes == before.peak_bytes);
    CHECK(now.peak_step == before.peak_step);
    CHECK(now.time == before.time);
    CHECK(now.computes == before.computes);
    CHECK(now.recomputes == before.recomputes);
    CHECK(bytes_now == bytes_before);
    ++verdicts[before.what];
  }
  CHECK(verdicts.size() == 10);  // valid, and every violation
  for (const auto& [what, n] : verdicts) {
    CAPTURE(static_cast<int>(what));
    CHECK(n > 100);
  }
}

TEST_CASE("an operation without time whose output has no bytes changes no optimum") {
  int optimal = 0, infeasible = 0, costly = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(1000, 20'000); ++seed) {
    CAPTURE(seed);
    const problem p = some_problem(seed, 1);
    std::mt19937_64 engine(seed);
    const problem q = with_idle_operation(p, engine);
    for (const std::int64_t budget : budgets_of(p, 3)) {
      CAPTURE(budget);
      const solution s = proven(p.with_budget(budget)), t = proven(q.with_budget(budget));
      CHECK(t.status == s.status);
      CHECK(t.time == s.time);
      (s.status == solve_status::optimal ? optimal : infeasible) += 1;
      costly += s.has_schedule() && s.time > p.graph().needed_time;
    }
  }
  MESSAGE(optimal << " optima, " << costly << " with recomputation, " << infeasible << " infeasible");
  CHECK(optimal > 1000);
  CHECK(costly > 400);
  CHECK(infeasible > 500);
}

TEST_CASE("an input or a final output that is listed twice changes nothing; an output listed twice is refused") {
  run_control run;
  run.work_limit = 2000;
  int found = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(50, 500); ++seed) {
    CAPTURE(seed);
    random_graph_options options = kind_of_graph(seed);
    options.operations += 3;
    const training_graph once = random_graph(seed, options);
    std::mt19937_64 engine(seed);
    const training_graph twice = with_repeated_inputs(once, engine);
    const problem p(once, measured_cost{}), q(twice, measured_cost{});
    CHECK(q.graph().inputs.values == p.graph().inputs.values);
    CHECK(q.graph().final_outputs == p.graph().final_outputs);
    CHECK(q.graph().baseline_peak == p.graph().baseline_peak);
    const std::int64_t budget = p.graph().baseline_peak * 8 / 10;
    for (const law_solver& solver : own_solvers()) {
      CAPTURE(solver.name);
      const solution s = solver.solve(p.with_budget(budget), run);
      check_scaled(s, solver.solve(q.with_budget(budget), run), 0);
      found += s.has_schedule();
    }
  }
  MESSAGE(found << " schedules");
  CHECK(found > 100);

  training_graph g;
  const tensor_id t = g.add_tensor({"t", 8});
  g.add_operation({.name = "make", .outputs = {t, t}});
  try {
    const problem p(g, unit_cost{});
    FAIL("not refused");
  } catch (const bad_graph& e) {
    const std::string message = e.what();
    CAPTURE(message);
    CHECK(message.find("make") != std::string::npos);
    CHECK(message.find("lists output 0 twice") != std::string::npos);
  }
}
