// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/refine.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Any solver as a part. A slice that cuts it off is followed by a longer one, which begins anew. Where the gap is
/// wide, half of a slice refines what the solver has found: the best schedule of all often descends from one that was
/// not.
class solver_slices {
 public:
  using solver_call = std::function<solution(const problem&, const run_control&)>;

  explicit solver_slices(solver_call solve) : solve_(std::move(solve)) {}

  part_slice operator()(const pool_view& now, run_clock& clock) {
    const bool refines = clock.control().is_limited() && !now.best.is_within(part_gaps::left_to_search);
    part_slice slice;
    if (!has_ended_) {
      run_clock own = clock.part(refines ? 0.5 : 1);
      slice.found = solve_within_memory(own, [&] { return solve_(now.instance, own.control()); });
      own.work(slice.found.statistics.work);
      has_ended_ = !may_be_cut_off(own);
      if (slice.found.plan && slice.found.time < time_) {
        best_ = slice.found.plan;
        time_ = slice.found.time;
        by_ = slice.found.by;
      }
    }
    if (refines && best_) refine_alone(now, clock, slice.found);
    slice.ended = has_ended_ && !(refines && best_);
    return slice;
  }

 private:
  void refine_alone(const pool_view& now, run_clock& clock, solution& found) {
    if (clock.should_stop()) return;
    refine_options refining;
    refining.lower_bound = now.best.lower_bound;
    refining.gap = 0;  // its result is a start for others
    refining.run = clock.limits();
    refining.run.on_progress = clock.control().on_progress;
    refining.run.seed += refinements_++;
    refine_result better = refine(now.instance, std::span(&*best_, 1), refining);
    clock.work(better.moves * work_of::move);
    if (better.out_of_memory) clock.note_out_of_memory();
    if (better.time >= time_) return;
    best_ = better.plan;
    time_ = keep_valid(now.instance, std::move(better.plan), by_part(by_, "search"), found);
  }

  solver_call solve_;
  std::optional<schedule> best_{};  // the fastest schedule of all slices
  double time_ = std::numeric_limits<double>::infinity();
  std::string by_{};
  std::uint64_t refinements_ = 0;
  bool has_ended_ = false;  // the solver; refinement may go on
};

/// The slices of `solver(problem, options)`, for `portfolio_part::run`. The options' limits are those of a slice.
template <class Solver, class Options>
[[nodiscard]] auto slices_of(Solver solver, Options options) {
  const auto call = [solver = std::move(solver), options = std::move(options)](const problem& p,
                                                                               const run_control& run) {
    Options solving = options;
    solving.run = run;
    return solver(p, solving);
  };
  return run_by(std::make_shared<solver_slices>(call));
}

}  // namespace REMAT_NAMESPACE::detail
