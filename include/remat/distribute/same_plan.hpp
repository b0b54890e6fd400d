// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/distribute/detail/same_plan_exchange.hpp"
#include "remat/distribute/mpi_crew.hpp"
#include "remat/problem/digest.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// The options of `same_plan`. All ranks pass equal ones.
struct same_plan_options {
  /// The properties that must be equal besides inputs, outputs, bytes and flags. With `compare.times = false` each rank
  /// may have measured times of its own: the plan is then made for those of rank 0.
  digest_options compare{};
  /// If given, the other ranks run these pieces of the solver's solve (`solver_pieces`) and do not sleep. Under a limit
  /// of work the answer is the same.
  std::vector<piece_kind> pieces{};
};

/// A rank has another problem than rank 0. Every rank throws it, with the same message.
class plan_mismatch : public error {
 public:
  /// Rank `rank` differs, first in `operation`.
  plan_mismatch(int rank, std::optional<op_id> operation, const std::string& message)
      : error(message), rank_(rank), operation_(operation) {}
  /// Returns the first rank that differs from rank 0.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Returns the first operation that differs on that rank; empty if its budgets or its link differ instead, or tensors
  /// that no operation writes.
  [[nodiscard]] const std::optional<op_id>& operation() const noexcept { return operation_; }

 private:
  int rank_;
  std::optional<op_id> operation_;
};

namespace detail {

/// `meanwhile` is called on the other ranks while rank 0 plans; may be empty.
[[nodiscard]] inline solution same_plan(const communicator& ranks, const problem& p,
                                        const std::function<solution(const problem&)>& plan,
                                        const std::function<void()>& meanwhile, const same_plan_options& options) {
  namespace exchange = same_plan_exchange;
  exchange::outcome all = exchange::compare(ranks, p, options.compare);
  solution answer;
  if (all.what == exchange::kind::agreement) {
    exchange::outcome own;
    answer = exchange::plan_on_rank_0(ranks, p, plan, meanwhile, own);
    all = exchange::agree(ranks, own);
  }
  const std::optional<op_id> operation = all.operation;
  switch (all.what) {
    case exchange::kind::agreement:
      break;
    case exchange::kind::mismatch:
      throw plan_mismatch(all.rank, operation, all.text);
    case exchange::kind::exception:
      if (!all.thrown) throw rank_error(all.rank, all.text);
      try {
        std::rethrow_exception(all.thrown);
      } catch (...) {
        std::throw_with_nested(rank_error(all.rank, all.text));
      }
  }
  return answer;
}

}  // namespace detail

/// Gives every rank the same answer for the same problem: rank 0 plans, and the others take its solution, to the last
/// bit.
///
/// Collective: all ranks call it, each with the problem that it has built from its own training step. First they
/// compare digests of their graphs, their budgets and their links. If one differs, nothing is planned, and every rank
/// throws `plan_mismatch`, whose message names the rank, the first operation that differs, and what differs there. Then
/// rank 0 calls `plan(p)`. Every rank checks the schedule on its own graph with the exact checker; peaks and time of
/// the solution are the checker's. A solution without a schedule is an answer, too. If `plan` throws, or anything else
/// on a rank, every rank throws `rank_error`; on that rank, the exception is nested (`std::rethrow_if_nested`). So
/// either all ranks return or all throw, and none waits for ever, unless MPI itself fails or a rank is killed. The
/// other ranks sleep while rank 0 plans, unless they help (`same_plan_options::pieces`).
///
/// O(operations + reads and writes + steps) time besides `plan`.
///
///     const communicator ranks(MPI_COMM_WORLD);
///     const solution s = same_plan(ranks, p, automatic, {.run = {.time_limit = 10s}});
[[nodiscard]] inline solution same_plan(const communicator& ranks, const problem& p,
                                        const std::function<solution(const problem&)>& plan,
                                        const same_plan_options& options = {}) {
  return detail::same_plan(ranks, p, plan, {}, options);
}

/// \overload
///
/// Rank 0 plans with `solver(p, solving)`. With `options.pieces`, all ranks are a crew for that solve (`mpi_crew`); a
/// piece that throws is an exception of rank 0.
template <solver_for<problem> Solver>
[[nodiscard]] solution same_plan(const communicator& ranks, const problem& p, const Solver& solver,
                                 const typename Solver::options_type& solving = {},
                                 const same_plan_options& options = {}) {
  if (options.pieces.empty())
    return detail::same_plan(
        ranks, p, [&](const problem& q) { return solver(q, solving); }, {}, options);
  const auto plan = [&](const problem& q) {
    mpi_crew crew(ranks, options.pieces);  // its end, after an exception, too, lets the others go
    typename Solver::options_type now = solving;
    now.run.crew = &crew;
    return solver(q, now);
  };
  const auto serve = [&] { mpi_crew(ranks, options.pieces).serve(); };
  return detail::same_plan(ranks, p, plan, serve, options);
}

}  // namespace REMAT_NAMESPACE
