// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "remat/chain/chain.hpp"
#include "remat/core/error.hpp"

namespace remat {

/// The problem that the solvers of chains solve: a chain and a memory budget in bytes. x_0 takes a part of the budget
/// for the whole training step.
///
/// Copies share the chain, also those with another budget. Throws `bad_argument` for a negative budget.
///
///     chain_problem p(some_chain);
///     chain_solution s = rotor(p.with_budget(p.stages().store_all_peak_bytes() / 2));
class chain_problem {
 public:
  /// The budget of a problem without a limit on memory.
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

  /// Takes over `c`. Throws `bad_argument` for a negative budget.
  explicit chain_problem(chain c, std::int64_t budget = unlimited)
      : chain_(std::make_shared<const chain>(std::move(c))), budget_(budget) {
    check_budget();
  }

  /// The chain.
  [[nodiscard]] const chain& stages() const noexcept { return *chain_; }
  /// The budget in bytes; `unlimited` where there is none.
  [[nodiscard]] std::int64_t budget() const noexcept { return budget_; }

  /// The same chain under another budget (bytes ≥ 0). O(1).
  [[nodiscard]] chain_problem with_budget(std::int64_t bytes) const {
    chain_problem p(*this);
    p.budget_ = bytes;
    p.check_budget();
    return p;
  }

 private:
  void check_budget() const {
    if (budget_ < 0) throw bad_argument("budget is " + std::to_string(budget_) + " bytes; it must not be negative");
  }

  std::shared_ptr<const chain> chain_;
  std::int64_t budget_ = unlimited;
};

}  // namespace remat
