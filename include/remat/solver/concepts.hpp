// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "remat/core/run.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

class problem;
class chain_problem;

/// The options of a solver: an aggregate with a default for every field, and the run control as the field `run`.
template <class O>
concept solver_options = std::default_initializable<O> && requires(O& o) {
  { o.run } -> std::same_as<run_control&>;
};

/// The members that the answers of all solvers share: how the solve ended, the schedule (if there is one), its peak and
/// time, a proven lower bound on the time, and figures. `solution` and `chain_solution` are models.
template <class A>
concept solver_solution = std::default_initializable<A> && requires(A& a, const A& c) {
  { a.status } -> std::same_as<solve_status&>;
  { a.peak_bytes } -> std::same_as<std::int64_t&>;
  { a.time } -> std::same_as<double&>;
  { a.lower_bound } -> std::same_as<double&>;
  { a.proven } -> std::same_as<bool&>;
  { a.statistics } -> std::same_as<solve_statistics&>;
  { a.message } -> std::same_as<std::string&>;
  { c.has_schedule() } -> std::same_as<bool>;
  { c.plan.has_value() } -> std::same_as<bool>;
};

/// Names the type of the answers to problems of type `P` as `type`. The header of an answer specialises it; for another
/// type of problem it is undefined, and `solver_for` is false.
template <class P>
struct solution_type;

/// The answers to problems of graphs.
template <>
struct solution_type<problem> {
  using type = solution;  ///< The type of the answers.
};

/// The answers to problems of chains.
template <>
struct solution_type<chain_problem> {
  using type = chain_solution;  ///< The type of the answers.
};

/// The type of the answers to problems of type `P`: `solution` for `problem`, `chain_solution` for `chain_problem`.
template <class P>
using solution_of = typename solution_type<P>::type;

/// A solver of problems of type `P`: a stateless function object with a name.
///
/// `s(problem, options)` returns a `solution_of<P>` whose schedule has passed the exact checker of such problems. It
/// may be called from several threads at once.
template <class S, class P>
concept solver_for = solver_options<typename S::options_type> &&
    requires(const S& s, const P& p, const typename S::options_type& options) {
  { S::name } -> std::convertible_to<std::string_view>;
  { s(p, options) } -> std::same_as<solution_of<P>>;
  requires solver_solution<solution_of<P>>;
};

namespace detail {

/// `solver` as a function of a problem and the `run` of its options. The other options are those of `solving`.
template <class Solver>
[[nodiscard]] auto solve_with(const Solver& solver, const typename Solver::options_type& solving) {
  return [solver, solving](const auto& p, const run_control& run) {
    typename Solver::options_type now = solving;
    now.run = run;
    return solver(p, now);
  };
}

}  // namespace detail

}  // namespace REMAT_NAMESPACE
