// SPDX-License-Identifier: BSL-1.0
#include "remat/distribute/same_plan.hpp"

#include <doctest/doctest.h>

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/distribute/mpi_crew.hpp"
#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/detail/solution_bytes.hpp"
#include "support/random_graph.hpp"
#include "support/ranks.hpp"

using namespace remat;

namespace {

problem random_step(std::uint64_t seed) {
  const test::random_graph_options options{.operations = 30, .most_bytes = 100};
  return test::random_problem(seed, options);
}

/// `p` with a change of its graph.
problem changed(const problem& p, const std::function<void(flat_graph&)>& change) {
  flat_graph g = p.graph();
  change(g);
  return problem::from_flat(std::move(g), p.budget());
}

/// True on rank 0 if all ranks give the same bytes; true on the others.
bool is_the_same(const communicator& ranks, std::vector<std::byte> bytes) {
  for (const std::vector<std::byte>& other : ranks.gather(bytes))
    if (other != bytes) return false;
  return true;
}

bool is_the_same(const communicator& ranks, const std::string& text) {
  detail::byte_writer out;
  out.put(text);
  return is_the_same(ranks, out.take());
}

/// The answer of `call` on this rank: what it throws.
struct failure {
  std::string type, message, nested;
  int rank = -1;
  std::optional<op_id> operation{};
};

std::string nested_in(const std::exception& e) {
  try {
    std::rethrow_if_nested(e);
  } catch (const std::exception& inner) {
    return inner.what();
  } catch (...) {
    return "something";
  }
  return "";
}

template <class Call>
failure failure_of(const communicator& ranks, const Call& call) {
  failure out;
  try {
    call();
  } catch (const plan_mismatch& e) {
    out = {"mismatch", e.what(), nested_in(e), e.rank(), e.operation()};
  } catch (const rank_error& e) {
    out = {"exception", e.what(), nested_in(e), e.rank()};
  }
  CHECK(is_the_same(ranks, out.type + out.message));
  return out;
}

solution never(const problem&) {
  FAIL("nothing may be planned");
  return {};
}

}  // namespace

TEST_CASE("rank 0 alone plans, and every rank has its answer to the last bit") {
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      const communicator ranks(comm, 1000);
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        const problem p = random_step(seed).with_budget(random_step(seed).graph().baseline_peak * 3 / 4);
        int calls = 0;
        const solution s = same_plan(ranks, p, [&](const problem& q) {
          ++calls;
          return evict(q, {.run = {.work_limit = 10'000, .seed = seed}});
        });
        CHECK(calls == (ranks.rank() == 0 ? 1 : 0));
        CHECK(is_the_same(ranks, detail::bytes_of(s)));
        const solution alone = evict(p, {.run = {.work_limit = 10'000, .seed = seed}});
        CHECK(s.plan == alone.plan);
        CHECK(s.status == alone.status);
        CHECK(s.time == alone.time);
        CHECK(s.lower_bound == alone.lower_bound);
        if (s.plan) CHECK(check(p, *s.plan).valid());
      }
    });
}

TEST_CASE("a solver with options, copies to the host, and an answer without a schedule") {
  on_ranks(3, [](MPI_Comm comm) {
    const communicator ranks(comm);
    const problem p = random_step(1);
    const problem tight = p.with_budget(p.graph().baseline_peak * 4 / 5).with_link({.out = 50, .in = 50, .latency = 0});
    const solution s = same_plan(ranks, tight, offload, {.run = {.work_limit = 200'000}});
    CHECK(s.plan == offload(tight, {.run = {.work_limit = 200'000}}).plan);
    REQUIRE(s.has_schedule());
    CHECK(s.plan->has_copies());
    const solution none = same_plan(ranks, p.with_budget(0), no_remat);
    CHECK(none.status == solve_status::infeasible);
    CHECK(!none.plan);
    CHECK(none.message == no_remat(p.with_budget(0)).message);
    // Peak and time of a schedule that the caller has from elsewhere are the checker's.
    const solution read = same_plan(ranks, p, [](const problem& q) { return solution{.plan = no_remat(q).plan}; });
    CHECK(read.peak_bytes == p.graph().baseline_peak);
    CHECK(read.time == p.graph().baseline_time);
  });
}

TEST_CASE("another graph on one rank is an error on every rank, which names the rank, the operation and the change") {
  for (const int size : {2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      const communicator ranks(comm);
      const problem p = random_step(2);
      std::uint32_t t = 2;  // 0 and 1 are a parameter and an input
      while (p.graph().producers[t].size() != 1) ++t;
      const std::uint32_t maker = p.graph().producers[t][0];
      for (int other = 1; other < size; ++other) {
        const auto mine = [&](const std::function<void(flat_graph&)>& change) {
          return ranks.rank() == other ? changed(p, change) : p;
        };
        const std::string who = "rank " + std::to_string(other) + " has another graph than rank 0: operation ";
        failure f = failure_of(ranks, [&] { (void)same_plan(ranks, mine([&](auto& g) { g.bytes[t] += 7; }), never); });
        CHECK(f.type == "mismatch");
        CHECK(f.rank == other);
        CHECK(f.operation == static_cast<op_id>(maker));
        const std::string bytes = std::to_string(p.graph().bytes[t]), more = std::to_string(p.graph().bytes[t] + 7);
        CHECK(f.message == who + std::to_string(maker) + ": the bytes of its output " + std::to_string(t) + " are " +
                               more + ", on rank 0 " + bytes);
        f = failure_of(ranks, [&] { (void)same_plan(ranks, mine([](auto& g) { g.time[29] = 99; }), never); });
        CHECK(f.message.starts_with(who + "29: its time is 99, on rank 0 "));
        CHECK(f.operation == op_id{29});
        f = failure_of(ranks,
                       [&] { (void)same_plan(ranks, mine([](auto& g) { g.operation_names[3] = "x"; }), never); });
        CHECK(f.message == who + "3 (x): its name is 'x', on rank 0 ''");
        f = failure_of(ranks, [&] {
          (void)same_plan(ranks, mine([](auto& g) {
                            ++g.num_operations;
                            g.inputs.end_row(), g.outputs.end_row();
                            g.once.push_back(0), g.workspace.push_back(0), g.time.push_back(0);
                            g.phase.push_back(op_phase::backward), g.operation_names.emplace_back("y");
                          }),
                          never);
        });
        CHECK(f.message == who + "30 (y) does not exist on rank 0");
        CHECK(f.operation == op_id{30});
        f = failure_of(ranks, [&] {
          (void)same_plan(ranks, mine([](auto& g) {
                            ++g.num_tensors;
                            g.bytes.push_back(0), g.always_resident.push_back(1);
                          }),
                          never);
        });
        CHECK(f.message == "rank " + std::to_string(other) +
                               " has another graph than rank 0: the tensors that no operation writes differ");
        CHECK(!f.operation);
        CHECK(f.rank == other);
      }
      CHECK(same_plan(ranks, p, no_remat).plan == no_remat(p).plan);  // the ranks are still in step
    });
}

TEST_CASE("the lowest rank that differs is described, the others are counted") {
  on_ranks(8, [](MPI_Comm comm) {
    const communicator ranks(comm);
    const problem p = random_step(3);
    const auto differing = [&](std::vector<int> which) {
      const failure f = failure_of(ranks, [&] {
        bool differs = false;
        for (const int r : which) differs = differs || r == ranks.rank();
        (void)same_plan(ranks, changed(p, [&](auto& g) { g.workspace[4] += differs ? 1 + ranks.rank() : 0; }), never);
      });
      CHECK(f.rank == which.front());
      return f.message.substr(f.message.find("rank 0: ") + 8);
    };
    const std::string w = std::to_string(p.graph().workspace[4]);
    const auto with = [&](int more) { return std::to_string(p.graph().workspace[4] + more); };
    CHECK(differing({5}) == "operation 4: its workspace is " + with(6) + ", on rank 0 " + w);
    CHECK(differing({2, 7}) ==
          "operation 4: its workspace is " + with(3) + ", on rank 0 " + w + "; rank 7 differs, too");
    CHECK(differing({1, 2, 3, 6}) ==
          "operation 4: its workspace is " + with(2) + ", on rank 0 " + w + "; ranks 2, 3 and 6 differ, too");
  });
}

TEST_CASE("other budgets, links and options are named, too") {
  on_ranks(3, [](MPI_Comm comm) {
    const communicator ranks(comm);
    const problem p = random_step(4).with_budget(100);
    const bool differs = ranks.rank() == 1;
    const auto message = [&](const problem& q, const same_plan_options& options = {}) {
      const failure f = failure_of(ranks, [&] { (void)same_plan(ranks, q, never, options); });
      CHECK(f.type == "mismatch");
      CHECK(!f.operation);
      return f.message;
    };
    const std::string who = "rank 1 has another problem than rank 0: ";
    CHECK(message(differs ? p.with_budget(99) : p) == who + "its budget is 99 bytes, on rank 0 100 bytes");
    CHECK(message(differs ? p : p.with_budget(problem::unlimited)) ==
          who + "its budget is 100 bytes, on rank 0 without a limit");
    CHECK(message(differs ? p.with_link({.out = 2}) : p) == who + "the link's speed out is 2, on rank 0 not given");
    CHECK(message(p.with_link({.latency = differs ? 0.5 : 0.25})) == who + "the link's latency is 0.5, on rank 0 0.25");
    CHECK(message(p.with_link({}, differs ? 7 : 8)) == who + "its host budget is 7 bytes, on rank 0 8 bytes");
    CHECK(message(p, {.compare = {.times = !differs}}) == who + "compare.times is false, on rank 0 true");
  });
}

TEST_CASE("times may differ if each rank measures its own") {
  on_ranks(3, [](MPI_Comm comm) {
    const communicator ranks(comm);
    const problem p = random_step(5);
    const problem mine = changed(p, [&](auto& g) {
      for (double& time : g.time) time *= 1 + ranks.rank();
    });
    const solution s = same_plan(ranks, mine, no_remat, {}, {.compare = {.times = false}});
    CHECK(s.plan == no_remat(p).plan);
    CHECK(s.time == p.graph().baseline_time);  // by the times of rank 0
    CHECK(failure_of(ranks, [&] { (void)same_plan(ranks, mine, never); }).type == "mismatch");
  });
}

TEST_CASE("an exception on rank 0 reaches every rank, and nobody waits") {
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      const communicator ranks(comm);
      const problem p = random_step(6);
      const std::string own = ranks.rank() == 0 ? "no disk" : "";
      failure f = failure_of(ranks, [&] {
        (void)same_plan(ranks, p, [](const problem&) -> solution { throw std::runtime_error("no disk"); });
      });
      CHECK(f.type == "exception");
      CHECK(f.rank == 0);
      CHECK(f.message == "rank 0: could not plan: no disk");
      CHECK(f.nested == own);
      f = failure_of(ranks, [&] { (void)same_plan(ranks, p, [](const problem&) -> solution { throw 7; }); });
      CHECK(f.message == "rank 0: could not plan: an exception that is no std::exception");
      f = failure_of(ranks, [&] {
        (void)same_plan(ranks, p, [](const problem& q) {
          solution s = no_remat(q);
          s.plan->steps.pop_back();
          s.plan->steps.erase(s.plan->steps.begin());
          return s;
        });
      });
      CHECK(f.message.starts_with("rank 0: could not plan: the schedule is not valid: "));
      CHECK(same_plan(ranks, p, no_remat).plan == no_remat(p).plan);
    });
}

TEST_CASE("the other ranks can run pieces of the solve, and the answer stays the same") {
  const problem p = read_training_step(REMAT_TEST_DATA "/graphs/rk/fno1d.json").instance;
  const problem tight = p.with_budget(p.graph().baseline_peak * 3 / 4);
  const solution alone = rockmate(tight, {.run = {.work_limit = 200'000}});
  REQUIRE(alone.has_schedule());
  for (const int size : {1, 3})
    on_ranks(size, [&](MPI_Comm comm) {
      const communicator ranks(comm);
      std::atomic<int> pieces = 0;  // that this rank has run
      std::vector<piece_kind> kinds = solver_pieces(), broken = kinds;
      for (piece_kind& kind : kinds)
        kind.open = [&pieces, open = kind.open](std::span<const std::byte> shared) -> piece_kind::runner {
          return [&pieces, run = open(shared)](std::span<const std::byte> piece, const run_control& control) {
            ++pieces;
            return run(piece, control);
          };
        };
      for (piece_kind& kind : broken)
        kind.open = [](std::span<const std::byte>) -> piece_kind::runner {
          return [](std::span<const std::byte>, const run_control&) -> byte_row { throw std::runtime_error("broken"); };
        };
      const same_plan_options options{.pieces = kinds};
      const solution s = same_plan(ranks, tight, rockmate, {.run = {.work_limit = 200'000}}, options);
      CHECK(s.plan == alone.plan);
      CHECK(s.by == alone.by);
      int all = 0, own = pieces;
      MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, comm);
      if (size > 1) CHECK(all > 0);
      // Errors let the helpers go.
      const rockmate_options failing{
          .run = {.work_limit = 200'000, .on_progress = [](const progress&) { throw std::runtime_error("enough"); }}};
      const failure f = failure_of(ranks, [&] { (void)same_plan(ranks, tight, rockmate, failing, options); });
      CHECK((f.type.empty() || f.message == "rank 0: could not plan: enough"));
      const problem mine = ranks.rank() + 1 == size ? tight.with_budget(1) : tight;
      if (size > 1)
        CHECK(failure_of(ranks, [&] { (void)same_plan(ranks, mine, rockmate, {}, options); }).type == "mismatch");
      const failure g = failure_of(ranks, [&] {
        (void)same_plan(ranks, tight, rockmate, {.run = {.work_limit = 200'000}}, {.pieces = broken});
      });
      CHECK(g.type == (size > 1 ? "exception" : ""));
      if (!g.type.empty()) CHECK(g.message.starts_with("rank 0: could not plan: rank "));
      CHECK(same_plan(ranks, p, no_remat).plan == no_remat(p).plan);  // the ranks are still in step
    });
}

TEST_CASE("a schedule that does not fit the graph of one rank is an error on every rank") {
  on_ranks(3, [](MPI_Comm comm) {
    namespace exchange = detail::same_plan_exchange;
    const communicator ranks(comm);
    const problem p = random_step(7);
    // Without the comparison of the graphs, which would have noticed it.
    const problem mine = ranks.rank() == 2 ? changed(p, [](auto& g) { g.workspace[5] += 1'000'000; }) : p;
    exchange::outcome own;
    (void)exchange::plan_on_rank_0(
        ranks, mine, [](const problem& q) { return no_remat(q); }, {}, own);
    CHECK((own.what == exchange::kind::exception) == (ranks.rank() == 2));
    const exchange::outcome all = exchange::agree(ranks, own);
    CHECK(all.what == exchange::kind::exception);
    CHECK(all.rank == 2);
    CHECK(all.text.starts_with("could not take the plan: "));
  });
}
