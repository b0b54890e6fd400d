// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/budget_fraction.hpp"
#include "remat/core/error.hpp"
#include "remat/graph/training_graph.hpp"

namespace REMAT_NAMESPACE {

/// One way to run a stage that keeps everything its backward needs.
struct chain_option {
  double forward_time = 0;                   ///< the time of a forward that keeps everything
  double backward_time = 0;                  ///< the time of the backward
  std::int64_t saved_bytes = 0;              ///< the bytes that are saved, the output included
  std::int64_t forward_overhead_bytes = 0;   ///< workspace of the forward
  std::int64_t backward_overhead_bytes = 0;  ///< workspace of the backward

  /// Compares all members.
  friend bool operator==(const chain_option&, const chain_option&) = default;
};

/// One stage of a chain: it maps x_{i−1} to x_i. Times are in one unit of the caller's, sizes in bytes.
///
/// A stage may have several ways to keep everything, its options \cite zhao2023rockmate. The stage's own fields are
/// option 0, and option k is `options[k − 1]`. A forward that keeps less is always the one of the stage's own fields.
struct chain_stage {
  double forward_time = 0;                   ///< f_i
  double backward_time = 0;                  ///< b_i
  std::int64_t output_bytes = 0;             ///< x_i; its gradient has the same size
  std::int64_t saved_bytes = 0;              ///< x̄_i: what the backward of the stage needs of its forward, with x_i
  std::int64_t forward_overhead_bytes = 0;   ///< φ_i: workspace of the forward
  std::int64_t backward_overhead_bytes = 0;  ///< β_i: workspace of the backward
  std::vector<chain_option> options{};       ///< further ways to keep everything

  /// Option k. Precondition: k ≤ options.size().
  [[nodiscard]] chain_option option(std::size_t k) const noexcept {
    return k == 0
               ? chain_option{forward_time, backward_time, saved_bytes, forward_overhead_bytes, backward_overhead_bytes}
               : options[k - 1];
  }

  /// Compares all members.
  friend bool operator==(const chain_stage&, const chain_stage&) = default;
};

/// A training step as a chain: the forwards of the stages 1 … L, then their backwards \cite beaumont2019rotor.
///
/// Stage i maps x_{i−1} to x_i. x_0 is the input of the chain, which stays for the whole training step. The loss
/// follows stage L and costs nothing. Stages count from 1, as in the literature. A chain cannot be changed.
///
/// The constructor validates the chain, in O(L) time. It throws `bad_graph` for a chain without stages, and for a stage
/// or option whose x̄_i is smaller than x_i; `bad_cost` for a time that is negative or not finite, for a negative size,
/// and for sizes whose sum overflows 64 bits.
///
///     const chain c("two", 1024, {{.forward_time = 1, .backward_time = 2, .output_bytes = 1024, .saved_bytes = 2048},
///                                 {.forward_time = 1, .backward_time = 2, .output_bytes = 8, .saved_bytes = 1032}});
///     c.stage(2).saved_bytes;  // 1032
///     c.activation_bytes(0);   // 1024: the input
class chain {
 public:
  /// `input_bytes` is the size of x_0; the stages are 1 … L in this order.
  chain(std::string name, std::int64_t input_bytes, std::vector<chain_stage> stages);

  /// The name of the chain.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// L, the number of stages.
  [[nodiscard]] std::size_t length() const noexcept { return stages_.size(); }
  /// All stages; stage i is `stages()[i − 1]`.
  [[nodiscard]] std::span<const chain_stage> stages() const noexcept { return stages_; }
  /// Stage i. Precondition: 1 ≤ i ≤ L.
  [[nodiscard]] const chain_stage& stage(std::size_t i) const noexcept { return stages_[i - 1]; }
  /// The bytes of x_0, the input.
  [[nodiscard]] std::int64_t input_bytes() const noexcept { return input_bytes_; }
  /// The bytes of x_i. Precondition: 0 ≤ i ≤ L.
  [[nodiscard]] std::int64_t activation_bytes(std::size_t i) const noexcept {
    return i == 0 ? input_bytes_ : stages_[i - 1].output_bytes;
  }

  /// The time of every forward and backward once, by option 0.
  [[nodiscard]] double store_all_time() const noexcept { return store_all_time_; }
  /// The same, by the fastest option of each stage. No schedule is faster.
  [[nodiscard]] double least_time() const noexcept { return least_time_; }
  /// The baseline of budgets that are given as fractions, in bytes:
  /// x_0 + max over i of (x̄_1 + … + x̄_i + x_i + max(φ_i, β_i)).
  [[nodiscard]] std::int64_t store_all_peak_bytes() const noexcept { return store_all_peak_bytes_; }

  /// Compares all members.
  friend bool operator==(const chain&, const chain&) = default;

 private:
  void validate() const;
  void measure() noexcept;

  std::string name_;
  std::int64_t input_bytes_ = 0;
  std::vector<chain_stage> stages_;
  std::int64_t store_all_peak_bytes_ = 0;
  double store_all_time_ = 0;
  double least_time_ = 0;
};

/// The problem that the solvers of chains solve: a chain and a memory budget in bytes. x_0 takes a part of the budget
/// for the whole training step.
///
/// Copies share the chain, also those with another budget. Throws `bad_argument` for a negative budget. Budgets are
/// whole bytes. A floating-point number does not compile: `with_budget_fraction` takes a fraction.
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
  /// A budget in bytes is a whole number; for a fraction there is `with_budget_fraction`.
  template <std::floating_point Number>
  chain_problem(const chain&, Number) = delete;  // a budget is whole bytes; with_budget_fraction takes a fraction

  /// The chain.
  [[nodiscard]] const chain& stages() const noexcept { return *chain_; }
  /// The budget in bytes; `unlimited` if there is none.
  [[nodiscard]] std::int64_t budget() const noexcept { return budget_; }

  /// The same chain under another budget (bytes ≥ 0). O(1).
  [[nodiscard]] chain_problem with_budget(std::int64_t bytes) const {
    chain_problem p(*this);
    p.budget_ = bytes;
    p.check_budget();
    return p;
  }
  /// A budget in bytes is a whole number; for a fraction there is `with_budget_fraction`.
  template <std::floating_point Number>
  chain_problem with_budget(Number) const = delete;  // a budget is whole bytes; with_budget_fraction takes a fraction

  /// The same chain under a fraction, from 0 to 1, of `stages().store_all_peak_bytes()`, rounded down. O(1). Throws
  /// `bad_argument` for a number outside of [0, 1].
  [[nodiscard]] chain_problem with_budget_fraction(double fraction) const {
    return with_budget(detail::fraction_of_bytes(fraction, chain_->store_all_peak_bytes()));
  }

 private:
  void check_budget() const {
    if (budget_ < 0) throw bad_argument("budget is " + std::to_string(budget_) + " bytes; it must not be negative");
  }

  std::shared_ptr<const chain> chain_;
  std::int64_t budget_ = unlimited;
};

/// The actions of a step on a stage of a chain. A forward of stage i reads x_{i−1} and makes x_i.
enum class chain_action : std::uint8_t {
  forward_none,        ///< keeps nothing: frees x_{i−1}, unless stage i − 1 saved it
  forward_checkpoint,  ///< keeps its input x_{i−1}
  forward_all,         ///< keeps its input and x̄_i, which contains x_i
  backward  ///< reads and frees x_{i−1}, x̄_i and the gradient of x_i, and makes the gradient of x_{i−1}
};

/// One step of a chain's schedule. Stages count from 1; stage L + 1 is the loss, whose forward is `forward_all`.
struct chain_step {
  chain_action action = chain_action::forward_all;  ///< the action of the step
  std::uint32_t stage = 1;                          ///< 1 … L + 1
  std::uint32_t option = 0;  ///< the stage's option, for `forward_all` and `backward`; 0 for other forwards
  /// Compares all members.
  friend bool operator==(const chain_step&, const chain_step&) = default;
};

/// The findings of the exact simulation of a chain's schedule.
struct chain_report {
  bool legal = false;           ///< every step found what it reads, and every backward ran once
  std::size_t at = 0;           ///< the first illegal step; the number of steps: the schedule ends too early
  std::string message{};        ///< why it is not legal
  std::int64_t peak_bytes = 0;  ///< the largest memory of a step, with x_0
  double time = 0;              ///< the sum over all steps
  std::uint64_t forwards = 0;   ///< runs of forwards, without the loss
};

/// Runs a chain's schedule exactly, by the memory rules of the Rotor model. Shares no code with any solver.
///
/// Allocated are x_0 (to the end), every other x_i and x̄_i that is kept, and one gradient: that of x_t after the
/// backward of stage t + 1, and none before the backward of the loss. A forward of stage i needs φ_i beside its output,
/// x_i or x̄_i. A backward needs β_i, and the gradient of x_{i−1} in place of that of x_i. O(steps + L) time.
[[nodiscard]] chain_report simulate(const chain_problem& p, std::span<const chain_step> steps);

/// The training step of a chain as a data-flow graph, for solvers of graphs: copies to the host, memory plans,
/// executors.
///
/// The forward of stage i reads x_{i−1}; it makes x_i and the rest of x̄_i, of x̄_i − x_i bytes. The loss reads x_L and
/// makes the gradient of x_L. The backward of stage i reads x_{i−1}, x_i, the rest of x̄_i and the gradient of x_i, and
/// makes the gradient of x_{i−1}. φ_i and β_i are workspace, and each operation has its time in the chain as measured
/// time (`measured_cost`). x_0 is an input, which is always resident and not counted: the budget of the graph is the
/// budget of the chain less x_0. A rest without bytes is left out. Further options of a stage are not in the graph.
///
/// The graph needs more memory than `simulate` counts in two places. Both gradients of a backward are there while it
/// runs. A forward that keeps less than x̄_i makes all of it, and frees the rest afterwards; this matters only if a
/// larger gradient waits at that time than when the stage runs for its backward. O(L) time.
///
///     const problem p = problem(chain_graph(c), measured_cost{}, budget).with_link(link);
[[nodiscard]] training_graph chain_graph(const chain& c);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/chain.hpp"
#endif
