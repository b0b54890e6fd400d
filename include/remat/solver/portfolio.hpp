// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/chen.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/revolve.hpp"
#include "remat/solver/rotor.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

struct portfolio_options {
  run_control run{};
};

/// Several solvers, the best answer: `auto`.
///
/// First the solvers that end by themselves: `no_remat` (with the order of least peak), `evict`, `chen_greedy`,
/// `chen_sqrt`, `revolve`, `rotor`; then `evict` under random preferences for as long as there is time or work left. It
/// ends where a schedule meets the best lower bound that any of them has proven, or where one has proven that there is
/// no schedule. Without a limit of time or of work, the last stage takes `passes_without_limit` passes. With two
/// threads or more and no limit of work, the solvers after the first `evict` run beside the last stage. Under a limit
/// of work each stage has a fixed share, so the seed alone decides, whatever the threads. Never slower than the best of
/// its parts would be with their shares of the limit. Cancellation: as fast as the slowest of its parts. What a part
/// throws leaves it when the others have ended.
struct portfolio_solver {
  using options_type = portfolio_options;
  static constexpr std::string_view name = "auto";
  static constexpr std::uint64_t passes_without_limit = 256;

  [[nodiscard]] solution operator()(const problem& p, const portfolio_options& options = {}) const {
    const run_control& run = options.run;
    run_clock clock(run);
    race state(p, clock);

    state.take(no_remat(p, with_share<no_remat_options>(state, run, 0.02)), no_remat_solver::name);
    if (!state.over()) state.take(evict(p, with_share<evict_options>(state, run, 0.3)), evict_solver::name);
    // Where the listed order is too large, another may do: that is least time at once.
    if (!state.over()) {
      auto reorder = with_share<no_remat_options>(state, run, 0.05);
      reorder.reorder = true;
      state.take(no_remat(p, reorder), no_remat_solver::name);
    }

    const bool counted = run.work_limit != run_control::no_work_limit;
    if (!state.over()) {
      if (run.threads >= 2 && !counted) {
        std::stop_source enough;
        const std::stop_callback pass_on(run.stop, [&] { enough.request_stop(); });
        race beside(p, clock);
        beside.best = state.best;
        beside.by = state.by;
        std::exception_ptr thrown;
        {
          std::jthread worker([&] {
            try {
              run_control quiet = run;
              quiet.on_progress = {};
              quiet.stop = enough.get_token();
              chain_likes(beside, quiet, 1.0);
              // Least time or a proof of infeasibility: the last stage cannot add to that.
              if (beside.over()) enough.request_stop();
            } catch (...) {
              thrown = std::current_exception();
            }
          });
          // Leaves the solver only when the worker has ended: jthread joins.
          struct stop_at_exit {
            std::stop_source& source;
            const race& state;
            ~stop_at_exit() {
              if (state.over() || std::uncaught_exceptions() != 0) source.request_stop();
            }
          } stop_worker{enough, state};
          run_control shared = run;
          shared.stop = enough.get_token();
          last_stage(state, shared);
        }
        if (thrown) std::rethrow_exception(thrown);
        beside.best.statistics.work = beside.work;
        state.take(std::move(beside.best), beside.by);
      } else {
        chain_likes(state, run, 0.25);
        if (!state.over()) last_stage(state, run);
      }
    }

    if (state.best.plan) state.best.message = "by " + std::string(state.by);
    const stop_reason stopped = clock.poll();
    clock.work(state.work);
    conclude(p, state.best, clock, stopped);
    return std::move(state.best);
  }

 private:
  /// The best so far and who found it.
  struct race {
    race(const problem& question, run_clock& shared) : p(question), clock(shared) {}

    const problem& p;
    run_clock& clock;
    solution best{};
    std::string_view by{};
    std::uint64_t work = 0;

    void take(solution s, std::string_view solver) {
      work += s.statistics.work;
      best.lower_bound = std::max(best.lower_bound, s.lower_bound);
      if (s.plan && (!best.plan || s.time < best.time || (s.time == best.time && s.peak_bytes < best.peak_bytes))) {
        best.plan = std::move(s.plan);
        best.peak_bytes = s.peak_bytes;
        best.time = s.time;
        best.statistics.computes = s.statistics.computes;
        best.statistics.recomputes = s.statistics.recomputes;
        best.status = solve_status::feasible;
        by = solver;
      } else if (!best.plan && s.status == solve_status::infeasible) {
        best.status = solve_status::infeasible;
        best.message = std::move(s.message);
      }
    }
    [[nodiscard]] bool over() const {
      if (!best.plan) return best.status == solve_status::infeasible || clock.should_stop();
      return best.time <= best.lower_bound * (1 + 1e-12) || clock.should_stop();
    }
  };

  /// Options of one part: its share of the time that is left and of the whole work, and progress in the name of `auto`.
  template <class Options>
  static Options with_share(const race& state, const run_control& run, double share) {
    Options options;
    options.run = run;
    if (run.time_limit != std::chrono::nanoseconds::max()) {
      const auto left = std::max(std::chrono::nanoseconds(0), run.time_limit - state.clock.elapsed());
      options.run.time_limit = std::chrono::duration_cast<std::chrono::nanoseconds>(left * share);
    }
    if (run.work_limit != run_control::no_work_limit)
      options.run.work_limit =
          std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(run.work_limit) * share));
    if (run.on_progress)
      options.run.on_progress = [&state, &run](progress news) {
        news.stage = news.solver;
        news.solver = name;
        news.best_time = std::min(news.best_time, state.best.time);
        news.lower_bound = std::max(news.lower_bound, state.best.lower_bound);
        news.elapsed = state.clock.elapsed();
        news.time_limit = run.time_limit;
        run.on_progress(news);
      };
    return options;
  }

  static void chain_likes(race& state, const run_control& run, double share) {
    const auto run_one = [&](const auto& solver, double part) {
      using options_type = typename std::decay_t<decltype(solver)>::options_type;
      if (!state.over()) state.take(solver(state.p, with_share<options_type>(state, run, part * share)), solver.name);
    };
    run_one(chen_greedy, 0.3);
    run_one(chen_sqrt, 0.2);
    run_one(revolve, 0.3);
    run_one(rotor, 1.0);
  }

  static void last_stage(race& state, const run_control& run) {
    auto options = with_share<evict_options>(state, run, run.work_limit == run_control::no_work_limit ? 1.0 : 0.3);
    const bool limited =
        run.work_limit != run_control::no_work_limit || run.time_limit != std::chrono::nanoseconds::max();
    options.random_passes = limited ? std::numeric_limits<std::uint64_t>::max() : passes_without_limit;
    state.take(evict(state.p, options), evict_solver::name);
  }
};
inline constexpr portfolio_solver automatic{};

}  // namespace remat
