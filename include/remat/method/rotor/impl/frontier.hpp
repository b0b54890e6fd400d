// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>

#include "remat/chain/detail/breakpoint_table.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/slot_table.hpp"
#include "remat/method/rotor.hpp"

/// Rotor's dynamic program on a chain, for every budget at once.
namespace remat::detail::frontier {

/// One of two tables, and what it refers to.
struct solved_table {
  sized_chain sizes;
  excess_bound bound;
  std::optional<slot_table> slots{};
  std::optional<breakpoint_table> bytes{};

  solved_table(sized_chain c, double limit) : sizes(std::move(c)), bound(sizes, limit) {}
  solved_table(const solved_table&) = delete;
  solved_table& operator=(const solved_table&) = delete;
};

/// One call of `rotor_frontier`: the table without slots, then, if that is not wanted or gets too large, with slots.
class frontier_solve {
 public:
  frontier_solve(const chain& c, const rotor_options& options, double max_time)
      : chain_(c),
        options_(options),
        clock_(options.run, rotor_solver::name),
        max_time_(max_time),
        max_excess_(std::min(std::numeric_limits<double>::max(), std::max(0.0, max_time - c.least_time()))) {}
  frontier_solve(const frontier_solve&) = delete;  // the callback refers to it
  frontier_solve& operator=(const frontier_solve&) = delete;

  chain_frontier run() {
    if (max_time_ < chain_.least_time() * (1 - 1e-9)) {
      out_.status_ = solve_status::infeasible;
      return std::move(out_);
    }
    sized_chain in_bytes = size_chain(chain_, false);
    const std::int64_t room = store_all_room(in_bytes);
    if (options_.form == rotor_form::slots || !solve_in_bytes(std::move(in_bytes), room)) solve_in_slots(room);
    return std::move(out_);
  }

 private:
  /// Fills the table without slots. True: that is the answer, or no other table is to be tried.
  bool solve_in_bytes(sized_chain sizes, std::int64_t room) {
    constexpr std::uint64_t few = 20'000'000;
    const bool is_only = options_.form == rotor_form::bytes;
    const auto solved = std::make_shared<solved_table>(std::move(sizes), max_excess_);
    breakpoint_table& table = solved->bytes.emplace(solved->sizes, room, solved->bound);
    const fill_outcome end = table.fill(clock_, options_.table_bytes,
                                        is_only ? options_.max_breakpoints : std::min(few, options_.max_breakpoints));
    if (!record(end, table.rows())) return end == fill_outcome::stopped || is_only;
    for (const breakpoint& b : table.frontier()) {
      out_.points_.push_back({b.memory + chain_.input_bytes(), table.cost(b)});
      out_.at_.push_back(b.memory);
    }
    out_.table_ = solved;
    out_.exact_ = true;
    out_.status_ = solve_status::feasible;
    return true;
  }

  /// Fills the table with slots, and gives each of its schedules the budget that is its peak.
  void solve_in_slots(std::int64_t room) {
    const std::int64_t unit = std::max<std::int64_t>((room + chain_.input_bytes()) / options_.slots + 1, 1);
    // Each stage may take up to one slot more, since sizes are rounded up.
    const auto slots = options_.slots + static_cast<std::uint32_t>(chain_.length()) + 2;
    const auto solved =
        std::make_shared<solved_table>(size_chain(chain_, false, {unit, slots, slot_rounding::up}), max_excess_);
    slot_table& table = solved->slots.emplace(solved->sizes, slots, solved->bound);
    if (!record(table.fill(clock_, options_.table_bytes), table.rows())) return;
    const chain_problem p(chain_);
    for (std::uint32_t m = std::min(table.last(), slots) + 1; m-- > table.first();) {
      if (m > table.first() && table.excess(m - 1) == table.excess(m)) continue;
      const chain_report simulated = simulate(p, table.steps(m));
      if (!simulated.legal) throw internal_error("a solver made an invalid schedule of a chain: " + simulated.message);
      if (!out_.points_.empty() && simulated.peak_bytes >= out_.points_.back().budget_bytes) continue;
      out_.points_.push_back({simulated.peak_bytes, simulated.time});
      out_.at_.push_back(m);
    }
    std::reverse(out_.points_.begin(), out_.points_.end());
    std::reverse(out_.at_.begin(), out_.at_.end());
    out_.table_ = solved;
    out_.status_ = solve_status::feasible;
  }

  /// Counts the work of a fill, and sets the status if it did not end with a table. Returns true if it did.
  bool record(fill_outcome end, std::uint64_t rows) {
    clock_.work(rows * work_of::table_row);
    if (end == fill_outcome::too_large) out_.status_ = solve_status::error;
    if (end == fill_outcome::stopped)
      out_.status_ = clock_.poll() == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    return end == fill_outcome::filled;
  }

  const chain& chain_;
  const rotor_options& options_;
  run_clock clock_;
  double max_time_;
  double max_excess_;  ///< beyond the least time of the chain
  chain_frontier out_;
};

}  // namespace remat::detail::frontier
