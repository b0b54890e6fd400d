// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// What a solver that is named after a publication does when its own method has ended: the type of its option
/// `improve`. Nothing by default, so a program compiles an improvement only where it asks for one.
///
///     const solution s = rotor(p, {.improve = by_refinement});  // remat/method/refined.hpp
class improvement {
 public:
  /// Improves `best` within the limits of `clock`, from its schedule and from `starts`, which are legal and may exceed
  /// the budget; through `accept` alone. `solver` names the caller for `solution::by`. Returns why it stopped early.
  using function = stop_reason (*)(const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                                   std::string_view solver);

  /// No improvement.
  constexpr improvement() = default;
  /// An improvement by `run`, which is not null.
  constexpr explicit improvement(function run) noexcept : run_(run) {}

  /// Returns true if there is one.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return run_ != nullptr; }
  /// Runs it. Precondition: there is one.
  stop_reason operator()(const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                         std::string_view solver) const {
    return run_(p, best, std::move(starts), clock, solver);
  }

 private:
  function run_ = nullptr;
};

}  // namespace REMAT_NAMESPACE
