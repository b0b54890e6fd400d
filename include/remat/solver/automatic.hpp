// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/chen.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/refined.hpp"
#include "remat/solver/revolve.hpp"
#include "remat/solver/rockmate.hpp"
#include "remat/solver/rotor.hpp"
#include "remat/solver/solution.hpp"
#include "remat/solver/twremat.hpp"

namespace remat {

struct automatic_options {
  run_control run{};
};

/// Several solvers, the best answer: `auto`.
///
/// First a proven bound and the solvers that end by themselves: `no_remat` (with the order of least peak), `evict`,
/// `twremat`, `chen_greedy`, `chen_sqrt`, `revolve`, `rotor`, `rockmate`, within a third of the limit; then `refined`
/// from the best of what they found, with the rest and all threads. It ends where a schedule meets the bound, or where
/// it is proven that there is none. Never slower than the best of its parts with their shares of the limit. Under a
/// limit of work each part has a fixed share, so the seed alone decides, whatever the threads. Cancellation: as fast as
/// the slowest of its parts.
struct automatic_solver {
  using options_type = automatic_options;
  static constexpr std::string_view name = "auto";

  [[nodiscard]] solution operator()(const problem& p, const automatic_options& options = {}) const {
    const run_control& run = options.run;
    run_clock clock(run);
    solution best;
    std::string_view by;
    stop_reason stopped = clock.poll();
    std::uint64_t work = 0;
    const auto finish = [&] {
      if (best.plan) best.message = "by " + std::string(by);
      clock.work(work);
      conclude(p, best, clock, stopped);
      return std::move(best);
    };
    run_control proving;
    proving.stop = run.stop;
    proving.time_limit = share_of(clock.left(), 0.2);
    if (stopped != stop_reason::none || prove(p, best, proving)) return finish();
    const problem q = p.with_known_bound(best.lower_bound);

    std::vector<schedule> starts;
    const auto over = [&] {
      if (best.plan && best.time <= best.lower_bound * (1 + 1e-12)) return true;
      stopped = clock.poll();
      return stopped != stop_reason::none;
    };
    const auto part = [&](const auto& solver, auto part_options, double share) {
      if (over()) return;
      part_options.run = run;
      part_options.run.time_limit = share_of(clock.left(), share);
      if (run.work_limit != run_control::no_work_limit)
        part_options.run.work_limit =
            std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(run.work_limit) * share));
      if (run.on_progress)
        part_options.run.on_progress = [&](progress news) {
          news.stage = news.solver;
          news.solver = name;
          news.best_objective = std::min(news.best_objective, best.time);
          news.lower_bound = std::max(news.lower_bound, best.lower_bound);
          news.elapsed = clock.elapsed();
          news.time_limit = run.time_limit;
          run.on_progress(news);
        };
      solution s = solver(q, part_options);
      work += s.statistics.work;
      best.lower_bound = std::max(best.lower_bound, s.lower_bound);
      if (!s.plan) return;
      starts.push_back(*s.plan);
      if (accept(q, best, std::move(*s.plan))) by = solver.name;
    };
    part(no_remat, no_remat_options{}, 0.02);
    part(evict, evict_options{}, 0.1);
    part(twremat, twremat_options{}, 0.1);
    // Where the listed order is too large, another may do: that is least time at once.
    no_remat_options reorder;
    reorder.reorder = true;
    part(no_remat, reorder, 0.05);
    part(chen_greedy, std::decay_t<decltype(chen_greedy)>::options_type{}, 0.05);
    part(chen_sqrt, std::decay_t<decltype(chen_sqrt)>::options_type{}, 0.05);
    part(revolve, std::decay_t<decltype(revolve)>::options_type{}, 0.05);
    part(rotor, std::decay_t<decltype(rotor)>::options_type{}, 0.08);
    part(rockmate, rockmate_options{}, 0.07);
    refined_options last;
    last.starts = std::move(starts);
    part(refined, std::move(last), run.work_limit != run_control::no_work_limit ? 0.5 : 1.0);
    if (stopped == stop_reason::none) stopped = clock.poll();
    return finish();
  }
};
inline constexpr automatic_solver automatic{};

}  // namespace remat
