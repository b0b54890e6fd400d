// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/row_sweep.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// How the forwards of a chain's schedule become operations (`chain_program::expand`).
enum class chain_expansion : std::uint8_t {
  whole,        ///< each runs all operations of its stage
  for_purpose,  ///< each runs what its purpose needs
  both          ///< both are tried
};

/// Options of `search_chain`. It sets `max_bytes` and `max_lost` itself.
struct chain_search_options : chain_program_options {
  /// Tries schedules whose memory, in the chain's count, is at most this multiple of the budget. The tensors of a
  /// schedule of operations are freed early, so it needs less than the chain counts. Tuned on the bundled graphs: no
  /// schedule over 1.27 fitted; no other data was held out.
  double max_memory = 4.0 / 3;
  /// Tries schedules whose lost time, in the chain's count, is at most this multiple of that of the best schedule
  /// known: a schedule of operations recomputes less than the chain counts.
  double allowance = 1.3;
  chain_expansion expansion = chain_expansion::both;  ///< the ways in which each schedule is expanded
  /// The fraction of the excess by which the next schedule needs less memory, after one over the budget.
  double leap = 0;
};

/// How `search_chain` ended.
struct chain_search_end {
  fill_outcome table = fill_outcome::filled;  ///< `stopped`: also if the stop came after the table was filled
  bool is_filled = false;  ///< true if the table was filled; false if the budget is too small for the chain
  /// The time of the table's schedule within the budget, in the chain's count; infinite if there is none.
  double table_time = std::numeric_limits<double>::infinity();
};

/// The search over the schedules of one chain, of every method that solves chains: fills the table, expands its
/// schedules to operations, fastest first, and ends when the others cannot be much faster than the best one known.
///
/// `best_time()` is the time of the best schedule known, infinite if there is none. `offer(plan, report, entry)` is
/// called with every schedule that passes the exact checker within the budget of `p`. Work: the rows of the table, and
/// `work_of::visit` for each operation of the graph and expanded schedule. Polls after each of them. Throws
/// `internal_error` for a schedule that is illegal.
template <class BestTime, class Offer>
chain_search_end search_chain(const problem& p, chain_program& program, const chain_search_options& options,
                              run_clock& clock, BestTime&& best_time, Offer&& offer) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const auto max_lost = [&] {
    const double best = best_time();
    return best < infinite ? (best - p.graph().needed_time) * options.allowance : std::numeric_limits<double>::max();
  };
  chain_program_options filling = options;
  filling.max_lost = max_lost();
  if (const double max_bytes = static_cast<double>(p.budget()) * options.max_memory; max_bytes < 9e18)
    filling.max_bytes = static_cast<std::int64_t>(max_bytes);
  chain_search_end end;
  if (filling.max_bytes < program.chain().standing_bytes()) return end;
  end.table = program.fill(clock, filling);
  if (end.table != fill_outcome::filled) return end;
  end.is_filled = true;
  end.table_time = program.flat_time() + program.lost_within(p.budget());
  for (std::optional<chain_program::entry> e = program.fastest(); e && e->lost <= max_lost();) {
    if (clock.should_stop()) {
      end.table = fill_outcome::stopped;
      break;
    }
    clock.work(p.graph().num_operations * work_of::visit);
    const std::vector<chain_step> steps = program.steps(*e);
    std::int64_t over = std::numeric_limits<std::int64_t>::max();
    std::vector<std::uint32_t> before;
    for (const bool whole : {true, false}) {
      if (options.expansion == (whole ? chain_expansion::for_purpose : chain_expansion::whole)) continue;
      std::vector<std::uint32_t> operations = program.expand(steps, whole);
      if (operations == before) continue;  // the same schedule again
      schedule plan = schedule_computes(p.graph(), operations);
      before = std::move(operations);
      const check_report report = check(p, plan);
      if (report.what == violation::over_budget) {
        over = std::min(over, report.peak_bytes - p.budget());
        continue;
      }
      if (!report.valid()) throw internal_error("a solver made an invalid schedule: " + report.message());
      over = 0;
      offer(std::move(plan), report, *e);
    }
    e = program.slower_than(*e, static_cast<std::int64_t>(static_cast<double>(over) * options.leap));
  }
  return end;
}

/// The best schedule of one chain: what an `offer` to `search_chain` may keep.
struct chain_best {
  std::optional<schedule> plan{};   ///< the fastest one; of equal times, the one of the lowest peak
  check_report report{};            ///< the report on `plan`
  chain_program::entry of_table{};  ///< the entry of the table for `plan`

  /// The time of the plan; infinite if there is none.
  [[nodiscard]] double time() const noexcept { return plan ? report.time : std::numeric_limits<double>::infinity(); }
  /// Takes `candidate` if it is better.
  void take(schedule candidate, const check_report& r, const chain_program::entry& e) {
    if (plan && (r.time > report.time || (r.time == report.time && r.peak_bytes >= report.peak_bytes))) return;
    plan = std::move(candidate);
    report = r;
    of_table = e;
  }
};

}  // namespace REMAT_NAMESPACE::detail
