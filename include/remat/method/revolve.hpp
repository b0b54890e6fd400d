// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `revolve`.
struct revolve_options {
  /// \name Settings (`records` says what they are)
  /// @{
  std::uint32_t max_stages = 150;
  /// @}
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = revolve_options;
    return std::tuple{option("max_stages", &o::max_stages,
                             "A graph whose forward line is no chain is cut into chains of at most so many stages.")
                          .from(1)
                          .fast(50)};
  }
};

/// Optimal checkpointing of homogeneous chains: the fewest forward steps with c checkpoint slots, by the binomial rule
/// \cite griewank2000revolve.
///
/// The answer is the schedule of the largest number of slots that fits. On a chain whose stages are alike it is the
/// optimum among the schedules that save a stage for its own backward alone; on other chains the stages are taken as
/// alike. On a graph the chains are those of `cut_levels`, and the fastest schedule that fits is the answer. If each
/// operation of the forward line reads from the one right before it alone, each is also a stage of its own, whatever
/// `max_stages` is. The baseline is the answer if it fits. Differs from the paper in that the number of slots is
/// searched.
///
/// On a chain O(L log L) time and O(steps) for each number of slots that is tried, from the largest one that may fit:
/// at most four where stages are alike. On a graph O(L) tries, each of which takes the operations of the stages. Work:
/// `work_of::visit` for each operation, or each stage, and schedule tried. Polls before each try, and on a graph before
/// each of its two schedules. A solve that is cut off, even at once, still tries as many numbers of slots as it takes
/// to halve their range until one fits, on a chain and on a graph whose forward line is one: that is the answer where
/// stages are alike. Throws `bad_argument` if `max_stages` is 0.
struct revolve_solver {
  using options_type = revolve_options;                ///< The options of this solver.
  static constexpr std::string_view name = "revolve";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const revolve_options& options = {}) const;
  /// Returns the best schedule found within the budget of the chain, if any, and a proven lower bound on the time.
  [[nodiscard]] chain_solution operator()(const chain_problem& p, const revolve_options& options = {}) const;
};
/// The solver as a function object: `revolve(p, options)`.
inline constexpr revolve_solver revolve{};

/// The least number of forward steps that reverse a homogeneous chain of l steps with c checkpoints beside the input,
/// without the one forward of each step that saves for its backward: r·l − β(c + 2, r − 1), where β(c, r) is the
/// binomial coefficient (c + r over c), and r is the least number with β(c + 1, r) ≥ l. (The paper's c counts the
/// input.) O(r) time. Precondition: l < 2³¹.
[[nodiscard]] std::uint64_t revolve_advances(std::uint64_t l, std::uint64_t c);

/// The least of the best numbers of steps before the next checkpoint. The cost is convex in that number, and its slopes
/// are the repetition numbers of both parts, so it is the least over q ≥ 1 of max(1, β(c + 1, q − 1), l − β(c, q + 1)).
/// O(r) time. Precondition: 1 < l < 2³¹, c > 0.
[[nodiscard]] std::uint64_t revolve_first_advance(std::uint64_t l, std::uint64_t c);

/// The steps of Revolve on a chain of `length` stages with `slots` checkpoints beside the input.
/// There are `revolve_advances` steps, 2 · length steps, and two of the loss. O(steps + length · r) time, and no more
/// memory than the steps take.
[[nodiscard]] std::vector<chain_step> revolve_steps(std::uint32_t length, std::uint32_t slots);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/revolve.hpp"
#endif
