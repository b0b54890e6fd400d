// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "remat/bound/detail/joint_branch_and_bound.hpp"
#include "remat/bound/detail/moment_peaks.hpp"
#include "remat/bound/detail/moment_program.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// A lower bound on the recomputation of schedules from several moments, with whole tensors at all of them together.
///
/// The schedules, seen at the moments, are the solutions of a linear program over 0 and 1 (`moment_program`), which
/// branch and bound solves (`joint_branch_and_bound`). When its solution, run as it says, breaks the budget at some
/// first run, that becomes a moment, and the search begins again with the larger program. As long as that is so, each
/// program gets no more work than its own root has taken, times a factor.
///
/// The search may be stopped at any time and goes on where it was. Proofs: docs/bounds.md, section 12. Deterministic
/// unless `stop` ends it.
class moment_joint {
 public:
  /// Begins with these moments: needed operations, each of which depends on the one before; at least one. Shares the
  /// arrays of `p`.
  moment_joint(const problem& p, std::vector<std::uint32_t> moments)
      : instance_(std::make_unique<problem>(p)), moments_(std::move(moments)), unit_(unit_of(p.graph().needed_time)) {}

  /// Goes on. Schedules whose recomputation is at least `cutoff` do not matter: the bound never exceeds it. The cutoff
  /// must be one that is no more than the recomputation of some schedule, however that is rounded. Ends after
  /// about `max_work` operations on coefficients, or when `stop()` returns true, which is polled every few iterations.
  void run(double cutoff, std::uint64_t max_work, const std::function<bool()>& stop) {
    if (ended_) return;
    cutoff_ = std::min(cutoff_, cutoff);
    const std::uint64_t end = max_work < std::numeric_limits<std::uint64_t>::max() - work()
                                  ? work() + max_work
                                  : std::numeric_limits<std::uint64_t>::max();
    while (!ended_ && work() < end && !(stop && stop()))
      if (!step(end, stop)) break;
  }

  /// The bound on the recomputation so far.
  [[nodiscard]] double bound() const noexcept { return std::min(std::max(best_, tree_bound()), cutoff_); }
  /// True if more work cannot raise the bound.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// Operations on coefficients so far.
  [[nodiscard]] std::uint64_t work() const { return past_work_ + (tree_ ? tree_->work() : 0); }
  /// The operations whose first runs are the moments now, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& moments() const noexcept { return moments_; }

 private:
  static constexpr std::size_t max_moments = 12;
  static constexpr double branching_share = 4;  // a multiple of the root's work, before another moment is looked for

  /// A power of two. Costs should add up to some thousand: see `bounded_dual_simplex`.
  [[nodiscard]] static double unit_of(double time) {
    return time > 0 ? std::ldexp(1.0, std::min(11 - std::ilogb(time), 1000)) : 1.0;
  }

  enum class phase : std::uint8_t { root, first_branching, diving, branching };

  /// Does the next part of the work. Returns false if it is stopped.
  bool step(std::uint64_t end, const std::function<bool()>& stop) {
    if (!tree_) begin_program();
    if (ended_) return true;
    tree_->set_cutoff(cutoff_ * unit_);
    // The tree counts its own work.
    const std::uint64_t limit = end - past_work_;
    bool is_done = true;
    switch (phase_) {
      case phase::root:
        is_done = tree_->bound_root(limit, stop);
        if (is_done) {
          root_work_ = tree_->work();
          phase_ = phase::first_branching;
        }
        break;
      case phase::first_branching: {
        const auto share = static_cast<std::uint64_t>((1 + branching_share) * static_cast<double>(root_work_));
        is_done = tree_->branch(std::min(share, limit), stop) || tree_->work() >= share;
        if (is_done) phase_ = phase::diving;
        break;
      }
      case phase::diving:
        if (moments_.size() >= max_moments) {
          phase_ = phase::branching;
          break;
        }
        if (!tree_->has_solution()) is_done = tree_->dive(limit, stop);
        if (is_done && !add_moment()) phase_ = phase::branching;
        break;
      case phase::branching:
        is_done = tree_->branch(limit, stop);
        break;
    }
    if (!tree_) return true;  // there is another moment
    take_bound();
    if (tree_->bound() >= cutoff_ * unit_) {
      best_ = cutoff_;
      ended_ = true;
    } else if (tree_->ended() && phase_ == phase::branching) {
      ended_ = !add_moment();
    }
    return is_done;
  }

  /// The bound of the present program, rounded down.
  [[nodiscard]] double tree_bound() const noexcept { return tree_ ? tree_->bound() / unit_ * (1 - 0x1p-50) : 0; }
  void take_bound() { best_ = std::max(best_, tree_bound()); }

  void begin_program() {
    program_ = std::make_unique<moment_program>(instance_->graph(), instance_->budget(), moments_, unit_);
    if (!program_->fits()) {  // there is no schedule
      best_ = std::numeric_limits<double>::infinity();
      ended_ = true;
      return;
    }
    tree_ = std::make_unique<joint_branch_and_bound>(*program_);
    phase_ = phase::root;
  }

  /// Makes the first run that needs most beyond the budget a moment. Returns false if there is none.
  bool add_moment() {
    if (moments_.size() >= max_moments || tree_->values().empty()) return false;
    const auto peaks = moment_peaks(instance_->graph(), instance_->budget()).find(*program_, tree_->values());
    if (peaks.empty()) return false;
    take_bound();
    past_work_ += tree_->work();
    moments_.insert(std::lower_bound(moments_.begin(), moments_.end(), peaks[0].operation), peaks[0].operation);
    tree_.reset();
    program_.reset();
    return true;
  }

  std::unique_ptr<problem> instance_;  // must stay where it is
  std::vector<std::uint32_t> moments_;
  double unit_;
  std::unique_ptr<moment_program> program_;
  std::unique_ptr<joint_branch_and_bound> tree_;
  phase phase_ = phase::root;
  double best_ = 0, cutoff_ = std::numeric_limits<double>::infinity();
  bool ended_ = false;
  std::uint64_t past_work_ = 0, root_work_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
