// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The list of all solvers, those of the papers, too, with what their programs take and give: hierarchies, tree
/// decompositions and integer programs. It needs the standard library alone. `checkmate_with` and `hiremate_with` take
/// a MIP backend; `remat/method/cbc.hpp` has `checkmate` and `hiremate`, the same two on COIN-OR CBC, and needs that
/// package. `remat/mip/command.hpp`, which needs POSIX, is left out.

#include <string_view>
#include <tuple>
#include <type_traits>

#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/checkmate.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/detail/evict_with_copies.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/pofo.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/twremat.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/model.hpp"
#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE {

/// The problems that a solver is for.
enum class solver_domain {
  without_link,  ///< It makes no copies, and refuses a problem with a link.
  any,           ///< It is for both.
  with_link,     ///< It is about copies to the host; without a link it leaves the problem to another solver.
};

/// The facts of a list of solvers on one of them, beside those that the solver itself has.
struct solver_traits {
  std::string_view page{};                             ///< its header is `remat/method/PAGE.hpp`
  solver_domain domain = solver_domain::without_link;  ///< the problems that it is for
  bool is_for_experts = false;      ///< it is a part of `auto` or for small graphs: "all solvers" leave it out
  bool needs_real_backend = false;  ///< the library's own branch and bound is too slow for its integer programs

  /// True if the solver is for such problems: with a link to the host, or without.
  [[nodiscard]] constexpr bool is_for(bool has_link) const noexcept {
    return domain != (has_link ? solver_domain::without_link : solver_domain::with_link);
  }
};

/// A row of the list of solvers.
template <class Solver, class CopyingSolver>
struct registered_solver {
  using options_type = typename Solver::options_type;     ///< The options of both solvers.
  static constexpr std::string_view name = Solver::name;  ///< The name in tables, options and output.
  Solver solver{};                                        ///< the solver
  CopyingSolver with_copies{};                            ///< the solver for a problem with a link; mostly the same
  solver_traits traits{};                                 ///< further facts
};

/// A row for a solver.
template <class Solver>
[[nodiscard]] constexpr auto solver_row(const Solver& solver, const solver_traits& traits) {
  return registered_solver<Solver, Solver>{solver, solver, traits};
}
/// A row for a solver that has another function object, with the same options, for problems with a link.
template <class Solver, class CopyingSolver>
[[nodiscard]] constexpr auto solver_row(const Solver& solver, const CopyingSolver& with_copies,
                                        const solver_traits& traits) {
  return registered_solver<Solver, CopyingSolver>{solver, with_copies, traits};
}

namespace detail {

/// `auto` on a backend; on the library's own branch and bound, `auto` gives it small programs alone.
template <mip_backend Backend>
[[nodiscard]] constexpr auto automatic_of(const Backend& backend) {
  if constexpr (std::is_same_v<Backend, branch_and_bound_backend>)
    return automatic;
  else
    return automatic_with(backend);
}

}  // namespace detail

/// Every solver of training graphs, once, as a tuple of rows in the order of tables. Programs, laws, benchmarks and
/// pages take their solvers from here: a new solver is its header, and its row. `backend` solves integer programs.
///
///     std::apply([](const auto&... row) { (std::puts(row.name.data()), ...); }, registered_solvers(branch_and_bound));
template <mip_backend Backend>
[[nodiscard]] constexpr auto registered_solvers(Backend backend) {
  constexpr auto any = solver_domain::any, with_link = solver_domain::with_link;
  return std::tuple{
      solver_row(no_remat, {.page = "no_remat", .domain = any}),
      solver_row(chen_sqrt, {.page = "chen"}),
      solver_row(chen_greedy, {.page = "chen"}),
      solver_row(revolve, {.page = "revolve"}),
      solver_row(rotor, {.page = "rotor"}),
      solver_row(rockmate, {.page = "rockmate", .domain = any}),
      solver_row(evict, evict_with_copies, {.page = "evict", .domain = any}),
      solver_row(twremat, {.page = "twremat"}),
      solver_row(hiremate_with(backend), {.page = "hiremate", .domain = any}),
      solver_row(checkmate_with(backend), {.page = "checkmate", .needs_real_backend = true}),
      solver_row(refined, {.page = "refined", .domain = any, .is_for_experts = true}),
      solver_row(exact, {.page = "exact", .is_for_experts = true}),
      solver_row(offload, {.page = "offload", .domain = with_link}),
      solver_row(pofo, {.page = "pofo", .domain = with_link}),
      solver_row(detail::automatic_of(backend), {.page = "automatic", .domain = any}),
  };
}

/// Calls `action(row)` for each row of `registered_solvers(backend)`, in order.
template <mip_backend Backend, class Action>
constexpr void for_each_solver(Backend backend, Action&& action) {
  std::apply([&](const auto&... row) { (action(row), ...); }, registered_solvers(backend));
}

}  // namespace REMAT_NAMESPACE
