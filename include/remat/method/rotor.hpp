// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

namespace detail::on_chain {
struct solved_table;
class frontier_solve;
}  // namespace detail::on_chain

/// How `rotor` counts memory on a chain.
enum class rotor_form : std::uint8_t {
  slots,          ///< equal parts of the budget are counted, and sizes rounded up
  bytes,          ///< exactly
  bytes_or_slots  ///< bytes are counted as far as the limits allow, else slots
};

/// The names of the values.
template <>
struct enum_names<rotor_form> {
  /// Value and name.
  static constexpr std::array<std::pair<rotor_form, std::string_view>, 3> all{
      {{rotor_form::slots, "slots"}, {rotor_form::bytes, "bytes"}, {rotor_form::bytes_or_slots, "bytes_or_slots"}}};
};

/// Options of `rotor`.
struct rotor_options {
  /// \name Settings (`records` says what they are)
  /// @{
  /// On a chain. `bytes_or_slots` tries `bytes` with few breakpoints, then `slots` so that there is an answer, then
  /// `bytes` up to its limits, bounded by that answer. On a graph memory is always counted in slots.
  rotor_form form = rotor_form::bytes_or_slots;
  std::uint32_t slots = 500;
  std::uint32_t max_stages = 150;
  /// The simulation charges a forward that keeps everything the gradient that waits at that time. The published
  /// recurrence charges the gradient of the forward's own output, which is often worse and solves fewer tight budgets.
  /// If a schedule of the latter exceeds the budget, the former is used. The exact form always uses the former.
  bool exact_gradient = false;
  std::uint64_t max_breakpoints = 500'000'000;
  std::int64_t table_bytes = std::int64_t{4} << 30;
  /// The best schedules that are kept of near counts; of safe counts, 3/8 of this number: 64 and 24 by default.
  std::uint32_t candidates = 64;
  std::uint32_t retain_rounds = 0;
  bool begin_with_revolve = false;
  /// @}
  /// The improvement on a graph, after the own method and at least 3 rounds of retention: none, or `by_refinement`
  /// (remat/method/refined.hpp).
  improvement improve{};
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = rotor_options;
    return std::tuple{
        option("form", &o::form, "Memory is counted in this way on a chain.")
            .fast(rotor_form::slots)
            .paper(rotor_form::slots),
        option("slots", &o::slots, "Memory is counted in so many slots.").from(1).to(1 << 24).fast(100),
        option("max_stages", &o::max_stages, "A graph is cut into chains of at most so many stages.").from(1).fast(50),
        option("exact_gradient", &o::exact_gradient,
               "Charge the gradient that waits, not that of the own output, on a chain in slots."),
        option("max_breakpoints", &o::max_breakpoints,
               "A table in bytes visits at most so many breakpoints, which take about 4 ns each.")
            .fast(5'000'000),
        option("table_bytes", &o::table_bytes,
               "The largest table has at most so many bytes; a table in slots takes fewer slots instead.")
            .from(0),
        option("candidates", &o::candidates, "So many of the best schedules are kept on a graph.").fast(8),
        option("retain_rounds", &o::retain_rounds,
               "So many rounds spend the memory that each schedule leaves on a graph."),
        option("begin_with_revolve", &o::begin_with_revolve, "The schedule of revolve comes first on a chain.")};
  }
};

/// Finds the fastest memory-persistent schedule of a chain within a budget, by dynamic programming over sub-chains and
/// memory \cite beaumont2019rotor. Each stage may have several ways to keep everything \cite zhao2023rockmate. The
/// recurrence stands at `slot_table`.
///
/// **Memory-persistent**: a forward keeps nothing, its input, or everything that its backward needs; what is kept stays
/// until the backward that it is kept for; the forwards between two kept inputs run one after another. A schedule that
/// drops a kept input and makes it again can be faster (docs/rotor.md). The lower bound of the answer holds for all
/// schedules of a chain's actions.
///
/// **On a chain.** The exact form finds the optimum in bytes. The slots form uses slots of ⌊budget / slots⌋ bytes and
/// sizes rounded up, so a schedule keeps the budget; it finds the optimum for those sizes, which is never better than
/// that in bytes. Unlike the paper, both fill a table under a limit on the time lost, which leaves most of the table
/// empty. The limit grows until there is a schedule, which is then the best one. With `begin_with_revolve`, the
/// schedule of `revolve` comes first and bounds that limit; a search that is cut off, or that finds none in either
/// form, takes it at its end. On a chain whose stages are about alike that may also be the faster one of
/// `layered_search` (docs/rotor.md); if the tables in bytes are too large, those of parts of the chain come before
/// those in slots.
///
/// **On a graph.** `cut_levels` cuts the listed line into chains and, up to 20,000 operations, the line of
/// `find_narrow_line`, too. The table of each chain, with sizes rounded to the nearest slot, holds the schedules for
/// all budgets. They are expanded to operations, fastest first, until one passes the checker within the true budget and
/// the others cannot be much faster. The better line is solved again with twice as many slots; then both lines with
/// sizes rounded up and the operations of each stage in an order of little memory (`operation_sequence`), bounded by
/// the answer so far. The fastest schedule is the answer, memory-persistent in the model. With `retain_rounds`,
/// `retain` then spends the memory that the best schedules leave; with `improve`, `refined` starts from the results.
/// Unlike the paper, a tensor that crosses several stages is counted once, gradients have sizes of their own, final
/// outputs pile up during the backward, and a forward that keeps nothing may take less time. Optimal in the model of a
/// chain; for the graph a heuristic.
///
/// Both answer with the baseline if it fits. The answer for a graph is never slower than the optimum of any of its
/// chains within the budget, sizes rounded up to `slots` slots, and `stage_chain::standing_time` added: the model never
/// promises too much, so its optimum is among the schedules that are tried, or no faster than one of them. That holds
/// if the search was not stopped, and every table fitted in `table_bytes`.
///
/// O(L³ · slots) time and O(L² · slots) memory at worst for each chain of L stages, on `run.threads` threads. The
/// answer is the same for any number of threads. Work: `work_of::table_row` for each row of a table and each thousand
/// breakpoints, `work_of::visit` for each operation of an expanded schedule. Polls after each row, after a million
/// breakpoints, before each schedule, and within `retain`. Throws `bad_argument` for options out of range.
///
/// `solution::by`: "rotor" for a table's schedule, "rotor/no_remat"; with `retain_rounds` or `improve` "rotor/retain"
/// if memory was left to spend, and with `improve` "rotor/refined/…".
///
/// Figures (`solve_statistics::own`), on a graph: `lines` and `chains` solved; `tables_refused` for `table_bytes`, each
/// tried again with half as many slots, down to 16, before its chain is left out; and of the chain of the best table's
/// schedule `line` ("listed" or "narrow"), `count` ("near" or "safe"), `stages`, `distinct_stages`, `slots`,
/// `table_time` and `table_bytes` (time and budget in the table's count), `flat_time` and `flat_peak_bytes` (of the
/// expanded schedule). On a chain: `stages`, `options`, and `form` ("slots", "exact", "layers" if parts were solved, or
/// "closed" for what it begins with) of the best schedule. With `improve` also `own_time`, `own_peak_bytes` and
/// `own_by`: what the method found by itself.
///
///     const problem p(graph, measured_cost{}, budget);
///     const solution s = rotor(p, {.slots = 200});
struct rotor_solver {
  using options_type = rotor_options;                ///< The options of this solver.
  static constexpr std::string_view name = "rotor";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const rotor_options& options = {}) const;
  /// Returns the best schedule found within the budget of the chain, if any, and a proven lower bound on the time.
  [[nodiscard]] chain_solution operator()(const chain_problem& p, const rotor_options& options = {}) const;
};
/// The solver as a function object: `rotor(p, options)`.
inline constexpr rotor_solver rotor{};

/// The trade-off between the memory and the time of a chain's memory-persistent schedules: all Pareto-optimal pairs,
/// from one table. Copies share the table.
class chain_frontier {
 public:
  /// A budget, and the least time of a memory-persistent schedule within it.
  struct point {
    std::int64_t budget_bytes = 0;  ///< the budget, x_0 included
    double time = 0;                ///< the time in the unit of the chain
  };

  /// Memory ascending, time falling.
  [[nodiscard]] std::span<const point> points() const noexcept { return points_; }
  /// True if the points are those of the optimum; false if sizes were rounded up to slots.
  [[nodiscard]] bool exact() const noexcept { return exact_; }
  /// `feasible`; without points, the reason: `infeasible`, `timeout`, `cancelled`, or `error` for a table too large.
  [[nodiscard]] solve_status status() const noexcept { return status_; }
  /// The point of the least budget whose time is at most `time`; null if there is none. O(log points) time.
  [[nodiscard]] const point* within(double time) const noexcept {
    const auto at = std::partition_point(points_.begin(), points_.end(), [&](const point& k) { return k.time > time; });
    return at == points_.end() ? nullptr : &*at;
  }
  /// The schedule of a point. O(steps · L) time. Precondition: k < points().size().
  [[nodiscard]] std::vector<chain_step> steps(std::size_t k) const;

 private:
  friend class detail::on_chain::frontier_solve;

  std::vector<point> points_;
  std::vector<std::int64_t> at_;  // each point's memory beside the input, in the table's unit
  std::shared_ptr<const detail::on_chain::solved_table> table_;
  bool exact_ = false;
  solve_status status_ = solve_status::timeout;
};

/// Solves a chain for every budget at once: the points whose time is at most `max_time`, up to the budget that keeps
/// everything. The first point is the least budget for that time. A small `max_time` makes the search much faster.
///
/// In the exact form points are in bytes. In slots, the budget of a point is the peak of its schedule; a slot is a part
/// of the budget that keeps everything, and `exact_gradient` counts as set. `bytes_or_slots` is exact with at most 20
/// million breakpoints, else in slots. Polls as `rotor`. Throws `bad_argument` for options out of range and for a
/// `max_time` that is not a number.
[[nodiscard]] chain_frontier rotor_frontier(const chain& c, const rotor_options& options = {},
                                            double max_time = std::numeric_limits<double>::infinity());

/// The least budget, in bytes, within which a memory-persistent schedule exists. O(L³) time, O(L²) memory. Does not
/// poll.
[[nodiscard]] std::int64_t least_budget(const chain& c);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/rotor/impl/rotor.hpp"
#endif
