// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "remat/bound/detail/cover_cuts.hpp"
#include "remat/bound/detail/moment_program.hpp"
#include "remat/mip/detail/bounded_dual_simplex.hpp"

namespace REMAT_NAMESPACE::detail {

/// Branch and bound on what is held at the moments of a program.
///
/// Solutions that cost at least the *cutoff* do not matter. At the root, cover cuts are added as long as they raise the
/// bound, and columns are fixed whose other value would reach the cutoff. Nodes are the fixings of some columns; the
/// node of the least bound is next. It branches on the column that promises the largest rise of both sides, by what
/// columns have raised so far, or by a few iterations of each side.
///
/// The search may be stopped at any time and goes on where it was. Costs are in the program's unit.
class joint_branch_and_bound {
 public:
  explicit joint_branch_and_bound(moment_program& p)
      : program_(p), rows_(p.rows()), first_cut_(static_cast<std::uint32_t>(rows_.num_rows())) {
    for (const moment_program::memory& m : p.memories()) {
      cuts_.emplace_back(m.bytes, m.room);
      for (const std::uint32_t c : m.columns) columns_.push_back(c);
    }
    p.for_each_run_column([&](std::uint32_t c) { columns_.push_back(c); });
    history_.resize(rows_.num_columns());
  }

  [[nodiscard]] double bound() const { return std::min(bound_, cutoff_); }
  /// True if more work cannot raise the bound.
  [[nodiscard]] bool ended() const noexcept { return is_ended_; }
  [[nodiscard]] std::uint64_t work() const {
    std::uint64_t sum = rows_.work();
    for (const cover_cuts& c : cuts_) sum += c.work();
    return sum;
  }

  /// The least cutoff so far counts.
  void set_cutoff(double cutoff) { cutoff_ = std::min(cutoff_, cutoff); }

  /// Bounds the root. Returns false if it is stopped.
  bool bound_root(std::uint64_t work_limit, const std::function<bool()>& stop) {
    rows_.limit_work(work_limit);
    while (!is_root_done_) {
      const auto end = rows_.solve(cutoff_, stop);
      bound_ = std::max(bound_, rows_.safe_bound());
      if (end == bounded_dual_simplex::outcome::stopped) return false;
      if (bound_ >= cutoff_) {
        is_ended_ = is_root_done_ = true;
        return true;
      }
      if (end == bounded_dual_simplex::outcome::failed) {
        is_root_done_ = true;
        break;
      }
      fix_columns();
      if (round_ % 8 == 0) mark_ = bound_;
      const bool is_slow = round_ % 8 == 7 && bound_ - mark_ < least_gain * std::min(cutoff_, 2 * bound_);
      if (++round_ >= max_rounds || is_slow || add_cuts(root_violation) == 0) is_root_done_ = true;
    }
    rows_.drop_slack_rows();
    rows_.forget_inactive_rows(first_cut_);
    open_.push({bound_, {}});
    return true;
  }

  /// Branches until all is done. Returns false if it is stopped. Precondition: the root is done.
  bool branch(std::uint64_t work_limit, const std::function<bool()>& stop) {
    rows_.limit_work(work_limit);
    while (!is_ended_) {
      double least = limit();
      if (!open_.empty()) least = std::min(least, open_.top().bound);
      if (now_) least = std::min(least, now_->bound);
      bound_ = std::max(bound_, least);
      if (bound_ >= limit() || (open_.size() + 1) * (columns_.size() + 64) > max_entries) {
        is_ended_ = true;
        break;
      }
      // A node may take less than a poll of the linear program, and there may be any number of nodes.
      if (rows_.is_out_of_work() || (stop && stop())) return false;
      if (!now_) {
        now_ = open_.top();
        open_.pop();
      }
      if (!visit(stop)) return false;
    }
    return true;
  }

  /// Follows the root's solution to whole values, as near as can be. Leaves them, or the last ones, in `values()`.
  /// Returns false if it is stopped.
  bool dive(std::uint64_t work_limit, const std::function<bool()>& stop) {
    rows_.limit_work(work_limit);
    std::vector<std::uint32_t> fixed;
    apply(fixed);
    auto end = rows_.solve(cutoff_, stop);
    if (end == bounded_dual_simplex::outcome::stopped) return false;
    while (end == bounded_dual_simplex::outcome::optimal) {
      keep_values(values_);
      std::uint32_t nearest = none;
      double most = -1;
      group_.clear();
      for (const std::uint32_t c : columns_) {
        const double x = rows_.value(c), distance = std::min(x, 1 - x);
        if (distance < whole) continue;
        if (distance < near) group_.push_back(c);
        if (1 - distance > most) {
          most = 1 - distance;
          nearest = c;
        }
      }
      if (nearest == none) break;
      if (group_.size() > 1) {
        for (const std::uint32_t c : group_) fix(c, values_[c] > 0.5);
        end = rows_.solve(cutoff_, stop);
        if (end != bounded_dual_simplex::outcome::beyond) continue;
        for (const std::uint32_t c : group_) rows_.set_bounds(c, 0, 1);
      }
      const bool up = values_[nearest] >= 0.5;
      fix(nearest, up);
      end = rows_.solve(cutoff_, stop);
      if (end != bounded_dual_simplex::outcome::beyond) continue;
      fix(nearest, !up);
      end = rows_.solve(cutoff_, stop);
    }
    return end != bounded_dual_simplex::outcome::stopped;
  }
  /// The values of all columns: in the best leaf if branching has ended with one, else in the last dive, if there was
  /// one.
  [[nodiscard]] const std::vector<double>& values() const { return has_solution() ? leaf_ : values_; }
  /// True if branching has ended with a best leaf.
  [[nodiscard]] bool has_solution() const { return is_ended_ && !leaf_.empty(); }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr int max_rounds = 200, node_rounds = 3;
  static constexpr double least_gain = 1e-4, root_violation = 1e-4, node_violation = 1e-3, whole = 1e-6, near = 0.2;
  static constexpr std::size_t max_entries = std::size_t{1} << 25;
  static constexpr std::size_t max_tries = 8;
  static constexpr int reliable = 3;
  static constexpr std::uint64_t try_iterations = 40;

  struct node {
    double bound;
    std::vector<std::uint32_t> fixed;  // columns × 2 + values
    bool operator<(const node& other) const { return bound > other.bound; }
  };
  struct record {  // how much a column has raised the bound, by values
    double sum[2] = {0, 0};
    int count[2] = {0, 0};
  };

  void fix(std::uint32_t c, bool value) {
    rows_.set_bounds(c, value, value);
    changed_.push_back(c);
  }
  void keep_values(std::vector<double>& values) const {
    values.resize(rows_.num_columns());
    for (std::uint32_t c = 0; c < values.size(); ++c) values[c] = rows_.value(c);
  }

  /// True if the program's bound and the reduced cost d of a column reach the limit together, however they are rounded.
  [[nodiscard]] bool is_beyond(double d, double limit) const {
    return d != 0 && (rows_.safe_bound() + std::abs(d)) * (1 - 0x1p-50) >= limit;
  }

  /// Fixes, for good, columns whose other value would reach the cutoff.
  void fix_columns() {
    for (std::uint32_t c = 0; c < rows_.num_columns(); ++c)
      if (const double d = rows_.safe_reduced_cost(c); rows_.lower(c) != rows_.upper(c) && is_beyond(d, cutoff_))
        rows_.set_bounds(c, d < 0, d < 0);
  }

  /// The same for columns to branch on, in a node and in those below it.
  void fix_columns_in(node& now) {
    for (const std::uint32_t c : columns_)
      if (const double d = rows_.safe_reduced_cost(c); rows_.lower(c) != rows_.upper(c) && is_beyond(d, limit())) {
        fix(c, d < 0);
        now.fixed.push_back(2 * c + (d < 0));
      }
  }

  std::size_t add_cuts(double violation) {
    std::size_t added = 0;
    for (std::size_t i = 0; i < cuts_.size(); ++i) {
      const moment_program::memory& m = program_.memories()[i];
      x_.clear();
      for (const std::uint32_t c : m.columns) x_.push_back(rows_.value(c));
      found_.clear();
      cuts_[i].separate(x_, violation, found_);
      for (const cover_cut& cut : found_) {
        entries_.clear();
        for (std::size_t j = 0; j < x_.size(); ++j)
          if (cut.factor[j] != 0) entries_.push_back({m.columns[j], -static_cast<double>(cut.factor[j])});
        rows_.add_row(entries_, -static_cast<double>(cut.most));
      }
      added += found_.size();
    }
    return added;
  }

  void apply(const std::vector<std::uint32_t>& fixed) {
    for (const std::uint32_t c : changed_) rows_.set_bounds(c, base_lower_[c], base_upper_[c]);
    if (base_lower_.empty())
      for (std::uint32_t c = 0; c < rows_.num_columns(); ++c) {
        base_lower_.push_back(rows_.lower(c));
        base_upper_.push_back(rows_.upper(c));
      }
    changed_.clear();
    for (const std::uint32_t f : fixed) {
      rows_.set_bounds(f / 2, f % 2, f % 2);
      changed_.push_back(f / 2);
    }
  }

  /// Nodes of this bound need not be looked at.
  [[nodiscard]] double limit() const { return std::min({cutoff_, leaf_bound_, given_up_}); }

  /// Visits the node `now_`, and makes one of its children the next, or none. Returns false if it is stopped; then the
  /// node is visited again.
  bool visit(const std::function<bool()>& stop) {
    if (rows_.active_rows() > 2 * tight_rows_ + 400 || rows_.num_rows() > 2 * known_rows_ + 400) {
      rows_.drop_slack_rows();
      rows_.forget_inactive_rows(first_cut_);
      tight_rows_ = rows_.active_rows();
      known_rows_ = rows_.num_rows();
    }
    node now = *now_;
    apply(now.fixed);
    choice c;
    for (int round = 0;; ++round) {
      const auto end = rows_.solve(limit(), stop);
      if (end == bounded_dual_simplex::outcome::stopped) return false;
      now.bound = std::max(now.bound, rows_.safe_bound());
      if (now.bound >= limit()) break;
      if (end == bounded_dual_simplex::outcome::failed) {
        given_up_ = std::min(given_up_, now.bound);
        break;
      }
      fix_columns_in(now);
      if (round < node_rounds && add_cuts(node_violation) > 0) continue;
      if (!choose(now, c, stop)) return false;
      break;
    }
    now_.reset();
    if (c.column == none) return true;
    const double before = now.bound;
    const std::uint32_t nearer = c.sides[1] < c.sides[0];
    for (const std::uint32_t value : {1 - nearer, nearer}) {
      if (c.sides[value] >= limit()) continue;
      node child{std::max(before, c.sides[value]), now.fixed};
      child.fixed.push_back(2 * c.column + value);
      // The child is next among nodes of equal bounds: it needs few iterations.
      if (value == nearer && child.bound <= bound_)
        now_ = std::move(child);
      else
        open_.push(std::move(child));
    }
    return true;
  }

  /// A column to branch on, and bounds of the node with each value.
  struct choice {
    std::uint32_t column = none;
    double sides[2] = {0, 0};
  };

  /// Finds how to branch; no column if there is nothing left to do at the node. Values that all solutions below the
  /// cutoff have are fixed in `now`. Returns false if it is stopped.
  bool choose(node& now, choice& best, const std::function<bool()>& stop) {
    for (;;) {
      std::vector<std::pair<double, std::uint32_t>> order;  // the most promising first
      for (const std::uint32_t c : columns_)
        if (const double x = rows_.value(c); x > whole && x < 1 - whole)
          order.push_back({-promise(c, x, now.bound), c});
      best = {};
      if (order.empty()) {
        if (now.bound < leaf_bound_) {
          leaf_bound_ = now.bound;
          keep_values(leaf_);
        }
        return true;
      }
      std::sort(order.begin(), order.end());
      std::vector<double> values;
      for (const auto& entry : order) values.push_back(rows_.value(entry.second));
      double most = -1;
      std::uint32_t fixed = none;
      std::size_t tries = 0;
      for (std::size_t k = 0; k < order.size() && fixed == none; ++k) {
        choice c{order[k].second, {now.bound, now.bound}};
        double score = -order[k].first;
        if (!is_reliable(c.column)) {
          if (++tries > max_tries) continue;
          if (!try_both(now, c, values[k], stop)) return false;
          const bool closed[2] = {c.sides[0] >= limit(), c.sides[1] >= limit()};
          if (closed[0] && closed[1]) {
            best = {};
            return true;
          }
          if (closed[0] || closed[1]) fixed = 2 * c.column + closed[0];
          score = score_of(c.sides[0] - now.bound, c.sides[1] - now.bound, now.bound);
        }
        if (score > most) {
          most = score;
          best = c;
        }
      }
      if (fixed == none) return true;
      now.fixed.push_back(fixed);
      rows_.set_bounds(fixed / 2, fixed % 2, fixed % 2);
      const auto end = rows_.solve(limit(), stop);
      if (end == bounded_dual_simplex::outcome::stopped) return false;
      now.bound = std::max(now.bound, rows_.safe_bound());
      if (now.bound >= limit() || end == bounded_dual_simplex::outcome::failed) {
        if (now.bound < limit()) given_up_ = std::min(given_up_, now.bound);
        best = {};
        return true;
      }
    }
  }

  [[nodiscard]] bool is_reliable(std::uint32_t c) const {
    return std::min(history_[c].count[0], history_[c].count[1]) >= reliable;
  }
  [[nodiscard]] double room_above(double bound) const {
    return std::max(std::min(limit(), 2 * bound + 1) - bound, 0.0);
  }
  [[nodiscard]] double score_of(double low, double high, double bound) const {
    const double room = room_above(bound), little = 1e-3 * room;
    return std::clamp(low, little, room) * std::clamp(high, little, room);
  }
  /// The score by what columns have raised so far: this one, or all of them.
  [[nodiscard]] double promise(std::uint32_t c, double x, double bound) const {
    double rise[2];
    for (const int v : {0, 1}) {
      const record& r = history_[c].count[v] > 0 ? history_[c] : all_;
      rise[v] = r.count[v] > 0 ? r.sum[v] / r.count[v] : room_above(bound);
    }
    return score_of(rise[0] * x, rise[1] * (1 - x), bound);
  }

  /// A few iterations for each value of a column that is x now.
  bool try_both(const node& now, choice& c, double x, const std::function<bool()>& stop) {
    for (const std::uint32_t value : {0U, 1U}) {
      rows_.set_bounds(c.column, value, value);
      changed_.push_back(c.column);
      const auto end = rows_.solve(limit(), stop, try_iterations);
      if (end == bounded_dual_simplex::outcome::stopped && (rows_.is_out_of_work() || (stop && stop()))) return false;
      c.sides[value] = std::max(now.bound, rows_.safe_bound());
      const double rise = std::min(c.sides[value] - now.bound, room_above(now.bound)) / (value == 1 ? 1 - x : x);
      for (record* r : {&history_[c.column], &all_}) {
        r->sum[value] += rise;
        ++r->count[value];
      }
    }
    rows_.set_bounds(c.column, 0, 1);
    return true;
  }

  moment_program& program_;
  bounded_dual_simplex& rows_;
  std::uint32_t first_cut_;             // the rows from it on are cuts
  std::vector<cover_cuts> cuts_;        // each moment's cuts
  std::vector<std::uint32_t> columns_;  // the columns of tensors held, and of operations that run or have not run
  std::vector<record> history_;         // each column's record
  record all_;
  std::vector<std::uint32_t> changed_;  // columns whose bounds are not those of the root
  std::vector<double> base_lower_, base_upper_;
  std::priority_queue<node> open_;
  std::optional<node> now_;
  double bound_ = 0, cutoff_ = std::numeric_limits<double>::infinity();
  double leaf_bound_ = cutoff_, given_up_ = cutoff_;
  std::vector<double> values_, leaf_;
  bool is_root_done_ = false, is_ended_ = false;
  int round_ = 0;
  double mark_ = 0;
  std::size_t tight_rows_ = 0, known_rows_ = 0;
  std::vector<std::uint32_t> group_;
  std::vector<double> x_;
  std::vector<cover_cut> found_;
  std::vector<sparse_entry> entries_;
};

}  // namespace REMAT_NAMESPACE::detail
