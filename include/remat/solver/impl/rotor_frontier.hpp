// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/rotor_frontier.hpp"

#include <cmath>
#include <optional>
#include <utility>

#include "remat/chain/breakpoint_table.hpp"
#include "remat/chain/chain_problem.hpp"
#include "remat/chain/sized_chain.hpp"
#include "remat/chain/slot_table.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"

namespace remat {

namespace detail::frontiers {

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

}  // namespace detail::frontiers

REMAT_INLINE std::vector<chain_step> chain_frontier::steps(std::size_t k) const {
  return exact_ ? table_->bytes->steps(at_[k]) : table_->slots->steps(static_cast<std::uint32_t>(at_[k]));
}

REMAT_INLINE chain_frontier rotor_frontier(const chain& c, const rotor_options& options, double most_time) {
  check_options(options);
  if (std::isnan(most_time)) throw bad_argument("most_time is not a number");
  run_clock clock(options.run);
  chain_frontier out;
  if (most_time < c.least_time() * (1 - 1e-9)) {
    out.status_ = solve_status::infeasible;
    return out;
  }
  const double limit = std::min(std::numeric_limits<double>::max(), std::max(0.0, most_time - c.least_time()));
  sized_chain sizes = size_chain(c, false);
  const std::int64_t input = c.input_bytes(), room = store_all_room(sizes);
  const auto filled = [&](fill_outcome end, std::uint64_t rows) {
    clock.work(rows);
    if (end == fill_outcome::too_large) out.status_ = solve_status::error;
    if (end == fill_outcome::stopped)
      out.status_ = clock.poll() == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    return end == fill_outcome::filled;
  };
  const fill_report report = [&](std::uint64_t done, std::uint64_t total) {
    progress news;
    news.solver = rotor_solver::name;
    news.stage = "table";
    news.lower_bound = c.least_time();
    news.done = done;
    news.total = total;
    clock.report(news);
  };

  if (options.form != rotor_form::slots) {
    constexpr std::uint64_t few = 20'000'000;
    const std::uint64_t work =
        options.form == rotor_form::exact ? options.max_breakpoints : std::min(few, options.max_breakpoints);
    const auto solved = std::make_shared<detail::frontiers::solved_table>(std::move(sizes), limit);
    breakpoint_table& table = solved->bytes.emplace(solved->sizes, room, solved->bound);
    const fill_outcome end = table.fill(clock, options.run.threads, options.table_bytes, work, report);
    if (filled(end, table.rows())) {
      for (const breakpoint& b : table.frontier()) {
        out.points_.push_back({b.memory + input, table.cost(b)});
        out.at_.push_back(b.memory);
      }
      out.table_ = solved;
      out.exact_ = true;
      out.status_ = solve_status::feasible;
      return out;
    }
    if (end == fill_outcome::stopped || options.form == rotor_form::exact) return out;
  }

  const std::int64_t unit = std::max<std::int64_t>((room + input) / options.slots + 1, 1);
  // Each stage may take up to one slot more, since sizes are rounded up.
  const auto slots = options.slots + static_cast<std::uint32_t>(c.length()) + 2;
  const auto solved =
      std::make_shared<detail::frontiers::solved_table>(size_chain(c, false, {unit, slots, slot_rounding::up}), limit);
  slot_table& table = solved->slots.emplace(solved->sizes, slots, solved->bound);
  if (!filled(table.fill(clock, options.run.threads, options.table_bytes, report), table.rows())) return out;
  const chain_problem p(c);
  for (std::uint32_t m = std::min(table.last(), slots) + 1; m-- > table.first();) {
    if (m > table.first() && table.excess(m - 1) == table.excess(m)) continue;
    const chain_report simulated = simulate(p, table.steps(m));
    if (!simulated.legal) throw internal_error("a solver made an invalid schedule of a chain: " + simulated.message);
    if (!out.points_.empty() && simulated.peak_bytes >= out.points_.back().budget_bytes) continue;
    out.points_.push_back({simulated.peak_bytes, simulated.time});
    out.at_.push_back(m);
  }
  std::reverse(out.points_.begin(), out.points_.end());
  std::reverse(out.at_.begin(), out.at_.end());
  out.table_ = solved;
  out.status_ = solve_status::feasible;
  return out;
}

REMAT_INLINE std::int64_t least_budget(const chain& c) {
  const sized_chain timeless = without_times(size_chain(c, false));
  const excess_bound bound(timeless);
  breakpoint_table table(timeless, store_all_room(timeless), bound);
  const run_control run;
  table.fill(run_clock(run), 1, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::uint64_t>::max(),
             nullptr);
  return table.frontier().front().memory + c.input_bytes();
}

}  // namespace remat
