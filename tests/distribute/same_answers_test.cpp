// SPDX-License-Identifier: BSL-1.0
// With a limit of work, answers have the same bytes for any number of ranks and threads.
#include <doctest/doctest.h>

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/run.hpp"
#include "remat/distribute/mpi_crew.hpp"
#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/twremat.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/solver/detail/solution_bytes.hpp"
#include "remat/solver/frontier.hpp"
#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "support/answer.hpp"
#include "support/ranks.hpp"

using namespace remat;

namespace {

problem bundled(const char* name) {
  return read_training_step(std::string(REMAT_TEST_DATA "/graphs/") + name + ".json").instance;
}

figures without_seconds(const figures& all) {
  figures out;
  for (const auto& [name, value] : all.items()) {
    if (name == "seconds") continue;
    if (const auto* groups = std::get_if<figures::group_list>(&value)) {
      figures::group_list kept;
      for (const figures& group : *groups) kept.push_back(without_seconds(group));
      out.set(name, std::move(kept));
    } else {
      std::visit([&](const auto& v) { out.set(name, v); }, value);
    }
  }
  return out;
}

byte_row bytes_of(std::vector<solution> answers) {
  detail::byte_writer out;
  for (solution& s : answers) {
    s.statistics.seconds = 0;
    s.statistics.own = without_seconds(s.statistics.own);
    out.put(s);
  }
  return out.take();
}

/// `kinds`, whose pieces are counted.
std::vector<piece_kind> counted(std::vector<piece_kind> kinds, std::atomic<int>& count) {
  for (piece_kind& kind : kinds)
    kind.open = [open = std::move(kind.open), &count](std::span<const std::byte> shared) -> piece_kind::runner {
      return [run = open(shared), &count](std::span<const std::byte> piece, const run_control& control) {
        ++count;
        return run(piece, control);
      };
    };
  return kinds;
}

/// Checks that `solve` gives the same answers on 1 and 2 threads, and on 1, 2, 3 and 8 ranks, which take part in it.
void check_same(const std::vector<piece_kind>& kinds,
                const std::function<std::vector<solution>(const run_control&)>& solve, std::uint64_t work) {
  byte_row expected;
  on_ranks(1, [&](MPI_Comm) {
    const std::vector<solution> answers = solve({.work_limit = work});
    for (const solution& s : answers) CHECK(s.has_schedule());
    expected = bytes_of(answers);
    CHECK(bytes_of(solve({.work_limit = work, .threads = 2})) == expected);
  });
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      const communicator ranks(comm);
      std::atomic<int> elsewhere{0};
      {
        mpi_crew crew(ranks, counted(kinds, elsewhere));
        if (ranks.rank() == 0) {
          run_control run{.work_limit = work};
          run.crew = &crew;
          CHECK(bytes_of(solve(run)) == expected);
        } else {
          crew.serve();
        }
      }
      int mine = elsewhere, all = 0;
      MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, ranks.get());
      CHECK((all > 0) == (size > 1));
    });
}

std::vector<std::int64_t> budgets_of(const problem& p, std::initializer_list<double> shares) {
  std::vector<std::int64_t> out;
  for (const double share : shares)
    out.push_back(static_cast<std::int64_t>(static_cast<double>(p.graph().baseline_peak) * share));
  return out;
}

}  // namespace

TEST_CASE("the points of a frontier") {
  const problem p = bundled("unet5-b16-256");
  const std::vector<std::int64_t> budgets = budgets_of(p, {0.9, 0.5, 0.6, 0.5, 0.75, 0.4, 0.8});
  check_same(
      {frontier_points(twremat)}, [&](const run_control& run) { return frontier(p, budgets, twremat, run); }, 200'000);
  check_same(
      {frontier_points(evict)}, [&](const run_control& run) { return frontier(p, budgets, evict, run); }, 70'000);
}

TEST_CASE("the blocks of a chain within one solve") {
  const problem p = bundled("transformer-6-6-b32-s256");
  check_same(
      solver_pieces(),
      [&](const run_control& run) {
        return std::vector<solution>{rockmate(p.with_budget(p.graph().baseline_peak / 2), {.run = run})};
      },
      600'000);
}

TEST_CASE("the groups of a hierarchy within one solve, by every method") {
  const problem p = bundled("unet5-b16-256");
  for (const sub_method method : {sub_method::refined, sub_method::twremat, sub_method::h_ilp})
    check_same(
        solver_pieces(),
        [&](const run_control& run) {
          hiremate_options options;
          options.sub_solver = method;
          options.max_columns = 100;
          options.run = run;
          return std::vector<solution>{
              hiremate_with(branch_and_bound)(p.with_budget(p.graph().baseline_peak / 2), options)};
        },
        50'000);
}

TEST_CASE("the searches of refinement within one solve") {
  const problem p = bundled("unet5-b16-256");
  check_same(
      solver_pieces(),
      [&](const run_control& run) {
        return std::vector<solution>{
            refined(p.with_budget(p.graph().baseline_peak / 2), {.searches = 2, .splits = 0, .run = run})};
      },
      800'000);
}

TEST_CASE("searches for a tree decomposition, until one has a proof") {
  // A grid of 5 × 9 vertices.
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t v = 0; v < 45; ++v) {
    if (v % 5 != 4) edges.emplace_back(v, v + 1);
    if (v + 5 < 45) edges.emplace_back(v, v + 5);
  }
  const undirected_graph grid(45, edges);
  on_ranks(3, [&](MPI_Comm comm) {
    const communicator ranks(comm);
    std::atomic<int> elsewhere{0};
    mpi_crew crew(ranks, counted({decompose_pieces()}, elsewhere));
    if (ranks.rank() != 0) {
      crew.serve();
      CHECK(elsewhere == 2);
      return;
    }
    for (int call = 0; call < 2; ++call) {
      decompose_options options;
      options.run.time_limit = std::chrono::hours(1);  // without the proof the test would not end
      options.run.crew = &crew;
      const decomposition_result r = decompose(grid, options);
      CHECK(check_decomposition(grid, r.tree).valid());
      CHECK(r.proven);
      CHECK(r.width == 5);
    }
  });
}

TEST_CASE("a deadline, memory that runs out and a wrong answer on another rank") {
  const problem p = bundled("unet5-b16-256");
  const std::vector<std::int64_t> budgets = budgets_of(p, {0.9, 0.5, 0.6, 0.75, 0.4, 0.8});
  on_ranks(3, [&](MPI_Comm comm) {
    const communicator ranks(comm);
    const bool first = ranks.rank() == 0;
    // A limit of time that has passed: every budget has an answer, of whatever kind.
    const auto none = [first](const problem& q, const run_control& run) {
      if (!first && run.work_limit == 100) throw std::bad_alloc();
      if (!first && run.work_limit == 200) {
        solution wrong = evict(q.with_budget(problem::unlimited), {});
        wrong.plan->steps.clear();
        return wrong;
      }
      return evict(q, {.run = run});
    };
    mpi_crew crew(ranks, {frontier_points("own", none)});
    if (!first) return crew.serve();
    run_control run;
    run.crew = &crew;
    run.time_limit = std::chrono::seconds(5);
    std::vector<solution> answers = frontier_by(p, budgets, none, run, "own");
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      test::check_answer(p.with_budget(budgets[i]), answers[i]);
      for (std::size_t j = 0; j < budgets.size(); ++j)
        if (budgets[i] < budgets[j] && answers[i].plan) CHECK(answers[i].time >= answers[j].time);
    }
    run.time_limit = std::chrono::nanoseconds::max();
    run.work_limit = 600;  // 100 for each: memory runs out elsewhere, which is an answer
    answers = frontier_by(p, budgets, none, run, "own");
    CHECK(answers.size() == budgets.size());
    bool out_of_memory = false;
    for (const solution& s : answers) out_of_memory = out_of_memory || s.out_of_memory;
    CHECK(out_of_memory);
    run.work_limit = 1200;
    CHECK_THROWS_WITH_AS((void)frontier_by(p, budgets, none, run, "own"),
                         "frontier: another process returned a schedule that breaks the rules", error);
  });
}
