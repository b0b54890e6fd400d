// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/branch_and_bound.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/mip/detail/best_values.hpp"

namespace REMAT_NAMESPACE {

namespace detail::branch_and_bound_search {

/// Counts operations of linear programs and nodes as work, and polls while they run.
class effort {
 public:
  explicit effort(run_clock& clock) : clock_(clock) {}

  /// Counts operations. Returns false once the search must stop.
  bool spend(std::size_t operations) {
    since_poll_ += operations;
    if (since_poll_ >= poll_every) {
      count();
      stopped_ = stopped_ || clock_.should_stop();
    }
    return !stopped_;
  }
  /// Counts a node.
  void end_node() {
    count();
    clock_.work(work_of::move);
  }

 private:
  static constexpr std::uint64_t poll_every = std::uint64_t{1} << 19;

  void count() {
    clock_.work(since_poll_ / mip_operations_per_work);
    since_poll_ %= mip_operations_per_work;
  }

  run_clock& clock_;
  std::uint64_t since_poll_ = 0;  // operations that are not counted yet
  bool stopped_ = false;
};

enum class lp_status : std::uint8_t {
  optimal,
  infeasible,
  cut_off,
  stopped,
  lost  ///< numbers of too different magnitudes: rounding errors leave nothing proven
};

/// The linear relaxation by the bounded dual simplex method on a dense tableau.
///
/// Row i stands for the variable s_i = Σ a_ij x_j, so the tableau expresses basic variables by non-basic ones and has
/// no right-hand side: values follow from the bounds at which the non-basic variables stand. Bounds may change between
/// solves. A non-basic variable that then stands at the wrong bound is moved to the other one, which makes the basis
/// dual feasible again. Infinite bounds are replaced by ±`far` for that.
class dense_dual_simplex {
 public:
  static constexpr double far = 1e7;        ///< replaces an infinite bound of a column
  static constexpr double feasible = 1e-8;  ///< tolerance of values, relative to the size of the bound
  static constexpr double tiny_pivot = 1e-9;

  dense_dual_simplex(const mip_model& model, effort& work)
      : model_(model),
        work_(work),
        rows_(model.num_rows()),
        columns_(model.num_columns()),
        tableau_(std::make_unique_for_overwrite<double[]>(rows_ * columns_)) {
    lower_.resize(columns_ + rows_);
    upper_.resize(columns_ + rows_);
    for (std::size_t j = 0; j < columns_; ++j) set_bounds(j, model.lower(j), model.upper(j));
    for (std::size_t i = 0; i < rows_; ++i) {
      lower_[columns_ + i] = model.row_lower(i);
      upper_[columns_ + i] = model.row_upper(i);
    }
    value_.assign(columns_ + rows_, 0);
    stopped_ = !start_over();
  }

  void set_bounds(std::size_t column, double lower, double upper) {
    lower_[column] = std::max(lower, -far);
    upper_[column] = std::min(upper, far);
  }
  [[nodiscard]] double lower(std::size_t column) const noexcept { return lower_[column]; }
  [[nodiscard]] double upper(std::size_t column) const noexcept { return upper_[column]; }
  /// The values of the columns, after `optimal`.
  [[nodiscard]] std::span<const double> values() const noexcept { return {value_.data(), columns_}; }
  [[nodiscard]] double objective() const noexcept { return objective_; }
  /// True when the column stands on a bound that replaces an infinite one.
  [[nodiscard]] bool is_at_far(std::size_t column) const noexcept {
    return (value_[column] >= far * (1 - 1e-9) && !std::isfinite(model_.upper(column))) ||
           (value_[column] <= -far * (1 - 1e-9) && !std::isfinite(model_.lower(column)));
  }

  /// Ends as `cut_off` when the objective is proven to reach `cutoff`. After `stopped` it must not be called again.
  lp_status solve(double cutoff) {
    if (stopped_) return lp_status::stopped;
    for (std::size_t j = 0; j < columns_; ++j)
      if (lower_[j] > upper_[j]) return lp_status::infeasible;
    if (pivots_ > 200 && !start_from_basis()) return lp_status::stopped;
    for (int attempt = 0;; ++attempt) {
      if (!place()) return lp_status::stopped;
      const lp_status status = iterate(cutoff);
      // A tableau with large rounding errors proves nothing, not even that there is no solution.
      if (status == lp_status::stopped || (status != lp_status::lost && is_consistent())) return status;
      if (attempt == 2) return lp_status::lost;
      if (!start_from_basis()) return lp_status::stopped;
    }
  }

 private:
  [[nodiscard]] double* row(std::size_t i) noexcept { return tableau_.get() + i * columns_; }
  [[nodiscard]] static double slack(double bound) noexcept { return feasible * std::max(1.0, std::abs(bound)); }
  [[nodiscard]] double model_lower(std::size_t v) const {
    return v < columns_ ? model_.lower(v) : model_.row_lower(v - columns_);
  }
  [[nodiscard]] double model_upper(std::size_t v) const {
    return v < columns_ ? model_.upper(v) : model_.row_upper(v - columns_);
  }

  /// The basis of all rows. This and the next functions return false if the search must stop.
  bool start_over() {
    basic_.resize(rows_);
    nonbasic_.resize(columns_);
    reduced_.resize(columns_);
    for (std::size_t i = 0; i < rows_; ++i) {
      basic_[i] = columns_ + i;
      std::fill_n(row(i), columns_, 0.0);
      for (const mip_term& t : model_.row(i)) row(i)[t.column] = t.value;
      if (!work_.spend(columns_)) return false;
    }
    for (std::size_t j = 0; j < columns_; ++j) {
      nonbasic_[j] = j;
      reduced_[j] = model_.cost(j);
    }
    pivots_ = 0;
    return true;
  }

  /// Computes the tableau of the same basis anew, so that rounding errors do not add up.
  bool start_from_basis() {
    std::vector<std::uint8_t> is_basic(columns_ + rows_, 0);
    for (const std::size_t v : basic_) is_basic[v] = 1;
    if (!start_over()) return false;
    for (std::size_t q = 0; q < columns_; ++q) {
      if (!is_basic[nonbasic_[q]]) continue;
      std::size_t best = rows_;
      for (std::size_t i = 0; i < rows_; ++i)
        if (!is_basic[basic_[i]] && (best == rows_ || std::abs(row(i)[q]) > std::abs(row(best)[q]))) best = i;
      if (!work_.spend(rows_)) return false;
      if (best != rows_ && std::abs(row(best)[q]) > tiny_pivot && !exchange(best, q)) return false;
    }
    pivots_ = 0;
    return true;
  }

  /// Moves non-basic variables to the bounds that their reduced costs ask for, and computes the basic values.
  bool place() {
    for (std::size_t q = 0; q < columns_; ++q) {
      const std::size_t v = nonbasic_[q];
      double& x = value_[v];
      if (reduced_[q] > 1e-9 && std::isfinite(lower_[v]))
        x = lower_[v];
      else if (reduced_[q] < -1e-9 && std::isfinite(upper_[v]))
        x = upper_[v];
      else if (x - lower_[v] > 1e-9 && upper_[v] - x > 1e-9)
        x = std::isfinite(model_lower(v)) ? lower_[v] : std::isfinite(model_upper(v)) ? upper_[v] : 0;
      x = std::clamp(x, lower_[v], upper_[v]);
    }
    for (std::size_t i = 0; i < rows_; ++i) {
      double sum = 0;
      for (std::size_t q = 0; q < columns_; ++q) sum += row(i)[q] * value_[nonbasic_[q]];
      value_[basic_[i]] = sum;
      if (!work_.spend(columns_)) return false;
    }
    return true;
  }

  lp_status iterate(double cutoff) {
    std::size_t idle = 0;  // pivots without progress; after many, the least index wins, which cannot cycle exactly
    std::size_t left = 2000 + 100 * (rows_ + columns_);  // pivots; only rounding errors need so many
    double last = -std::numeric_limits<double>::infinity();
    for (;;) {
      if (!work_.spend(2 * columns_ + rows_)) return lp_status::stopped;
      objective_ = model_.offset;
      for (std::size_t q = 0; q < columns_; ++q) objective_ += reduced_[q] * value_[nonbasic_[q]];
      if (objective_ >= cutoff) return lp_status::cut_off;
      idle = objective_ > last + 1e-12 * std::abs(last) ? 0 : idle + 1;
      last = std::max(last, objective_);
      const bool least_index = idle > 50;
      if (std::isnan(objective_) || left-- == 0) return lp_status::lost;

      const std::size_t r = leaving_row(least_index);
      if (r == rows_) return lp_status::optimal;
      const std::size_t leaving = basic_[r];
      const bool up = value_[leaving] < lower_[leaving];
      const double target = up ? lower_[leaving] : upper_[leaving];
      const std::size_t q = entering_column(r, up, least_index);
      if (q == columns_) return lp_status::infeasible;

      const double by = (target - value_[leaving]) / row(r)[q];
      for (std::size_t i = 0; i < rows_; ++i) value_[basic_[i]] += row(i)[q] * by;
      value_[nonbasic_[q]] += by;
      value_[leaving] = target;
      if (!exchange(r, q)) return lp_status::stopped;
    }
  }

  /// The row whose basic variable is farthest outside of its bounds, or the number of rows if none is.
  [[nodiscard]] std::size_t leaving_row(bool least_index) const {
    std::size_t r = rows_;
    double worst = 0;
    for (std::size_t i = 0; i < rows_; ++i) {
      const std::size_t v = basic_[i];
      const double below = lower_[v] - value_[v] - slack(lower_[v]);
      const double above = value_[v] - upper_[v] - slack(upper_[v]);
      const double by = std::max(below, above);
      if (by <= 0) continue;
      if (r == rows_ || (least_index ? v < basic_[r] : by > worst)) {
        r = i;
        worst = by;
      }
    }
    return r;
  }

  /// The column of the least ratio for a basic variable that moves up or down, or the number of columns if none can
  /// move it.
  [[nodiscard]] std::size_t entering_column(std::size_t r, bool up, bool least_index) {
    const double* const pivot_row = row(r);
    std::size_t q = columns_;
    double least = 0;
    for (std::size_t j = 0; j < columns_; ++j) {
      const double a = up ? pivot_row[j] : -pivot_row[j];
      if (std::abs(a) < tiny_pivot) continue;
      const std::size_t v = nonbasic_[j];
      if (a > 0 ? value_[v] >= upper_[v] : value_[v] <= lower_[v]) continue;
      const double ratio = std::abs(reduced_[j] / a);
      const bool better =
          q == columns_ || ratio < least - 1e-12 ||
          (ratio < least + 1e-12 && (least_index ? v < nonbasic_[q] : std::abs(a) > std::abs(pivot_row[q])));
      if (better) {
        q = j;
        least = ratio;
      }
    }
    return q;
  }

  /// Basic variable r and non-basic variable q change places.
  bool exchange(std::size_t r, std::size_t q) {
    double* const pivot_row = row(r);
    const double inverse = 1 / pivot_row[q];
    for (std::size_t j = 0; j < columns_; ++j) pivot_row[j] *= -inverse;
    pivot_row[q] = inverse;
    const auto eliminate = [&](double* other) {
      const double factor = other[q];
      if (factor == 0) return true;
      other[q] = 0;
      for (std::size_t j = 0; j < columns_; ++j) other[j] += factor * pivot_row[j];
      return work_.spend(columns_);
    };
    for (std::size_t i = 0; i < rows_; ++i)
      if (i != r && !eliminate(row(i))) return false;
    (void)eliminate(reduced_.data());
    std::swap(basic_[r], nonbasic_[q]);
    ++pivots_;
    return true;
  }

  /// True when the rows hold for the values that the tableau gave.
  [[nodiscard]] bool is_consistent() const {
    for (std::size_t i = 0; i < rows_; ++i) {
      double sum = 0, scale = 1;
      for (const mip_term& t : model_.row(i)) {
        sum += t.value * value_[t.column];
        scale = std::max(scale, std::abs(t.value * value_[t.column]));
      }
      if (!(std::abs(sum - value_[columns_ + i]) <= 1e-7 * scale)) return false;  // also if they are no numbers
    }
    return true;
  }

  const mip_model& model_;
  effort& work_;
  std::size_t rows_, columns_;
  std::unique_ptr<double[]> tableau_;  // basic = tableau · non-basic
  std::vector<double> reduced_;        // objective = offset + reduced · non-basic
  std::vector<std::size_t> basic_, nonbasic_;
  std::vector<double> lower_, upper_, value_;  // columns, then rows
  double objective_ = 0;
  std::size_t pivots_ = 0;
  bool stopped_ = false;
};

/// The search tree. Nodes are changes of bounds; the path to the present node is undone from its end.
class tree_search {
 public:
  tree_search(const mip_model& model, const mip_options& options)
      : model_(model), options_(options), best_(branch_and_bound_backend::name, model, options), work_(best_.clock) {}

  mip_result run() {
    if (model_.num_columns() != 0 && model_.num_rows() > branch_and_bound_backend::max_entries / model_.num_columns()) {
      best_.result.message = "the model is too large for a dense tableau";
      return best_.finish(mip_status::failed);
    }
    if (!options_.start.empty() && model_.violation(options_.start) <= 1e-6) best_.take(options_.start);
    if (best_.clock.should_stop()) return best_.finish(best_.stopped_status());
    dense_dual_simplex lp(model_, work_);
    open_.push_back({{model_.num_columns(), 0, 0}, 0, -mip_model::infinite});
    while (!open_.empty()) {
      const node now = open_.back();
      if (now.bound >= cutoff()) {
        open_.pop_back();
        pruned_bound_ = std::min(pruned_bound_, now.bound);
        continue;
      }
      if (best_.result.nodes >= options_.max_nodes || best_.clock.should_stop()) break;
      open_.pop_back();
      if (!visit(lp, now)) break;
      if (is_unbounded_) return best_.finish(mip_status::unbounded);
      report();
    }
    if (!open_.empty() || doubtful_) return best_.finish(best_.stopped_status());
    best_.result.bound = std::min(best_.result.objective, pruned_bound_);
    return best_.finish(best_.found() ? mip_status::optimal : mip_status::infeasible);
  }

 private:
  struct change {
    std::size_t column;
    double lower, upper;
  };
  struct node {
    change narrowed;
    std::size_t depth;  // the number of changes above it
    double bound;
  };

  /// Nodes are of no use whose solutions have at least this objective.
  [[nodiscard]] double cutoff() const {
    const double objective = best_.result.objective;
    return objective - std::max(options_.relative_gap, 1e-10) * std::max(std::abs(objective), 1e-3);
  }

  void narrow(dense_dual_simplex& lp, const change& c) {
    undo_.push_back({c.column, lp.lower(c.column), lp.upper(c.column)});
    lp.set_bounds(c.column, c.lower, c.upper);
  }

  /// Solves the relaxation of a node, and takes its values or adds its children. Returns false if it was stopped.
  bool visit(dense_dual_simplex& lp, const node& now) {
    for (; undo_.size() > now.depth; undo_.pop_back())
      lp.set_bounds(undo_.back().column, undo_.back().lower, undo_.back().upper);
    if (now.narrowed.column < model_.num_columns()) narrow(lp, now.narrowed);
    const lp_status status = lp.solve(cutoff());
    if (status == lp_status::stopped) {
      open_.push_back(now);
      return false;
    }
    ++best_.result.nodes;
    work_.end_node();
    if (status == lp_status::lost) doubtful_ = true;
    if (status == lp_status::cut_off) pruned_bound_ = std::min(pruned_bound_, std::max(now.bound, lp.objective()));
    if (status != lp_status::optimal) return true;
    if (best_.result.nodes == 1 && check_unbounded(lp)) return true;
    const std::size_t column = branching_column(lp);
    if (column == model_.num_columns())
      take_values(lp);
    else
      branch(lp, column, std::max(now.bound, lp.objective()));
    return true;
  }

  bool check_unbounded(const dense_dual_simplex& lp) {
    for (std::size_t j = 0; j < model_.num_columns(); ++j)
      if (lp.is_at_far(j) && model_.cost(j) != 0) {
        best_.result.message = "column " + std::to_string(j) + " has no finite best value";
        is_unbounded_ = true;
        return true;
      }
    return false;
  }

  /// The integer column whose value is farthest from a whole number; the number of columns if all are whole.
  [[nodiscard]] std::size_t branching_column(const dense_dual_simplex& lp) const {
    std::size_t column = model_.num_columns();
    double farthest = 1e-6;
    for (std::size_t j = 0; j < model_.num_columns(); ++j) {
      if (!model_.is_integer(j)) continue;
      const double distance = std::abs(lp.values()[j] - std::round(lp.values()[j]));
      if (distance > farthest) {
        farthest = distance;
        column = j;
      }
    }
    return column;
  }

  void branch(const dense_dual_simplex& lp, std::size_t column, double bound) {
    const double x = lp.values()[column];
    const node low{{column, lp.lower(column), std::floor(x)}, undo_.size(), bound};
    const node high{{column, std::ceil(x), lp.upper(column)}, undo_.size(), bound};
    const bool up_first = x - std::floor(x) > 0.5;
    open_.push_back(up_first ? low : high);
    open_.push_back(up_first ? high : low);
  }

  /// Takes the values of a relaxation in which all integer columns are whole, up to the tolerance.
  void take_values(dense_dual_simplex& lp) {
    std::vector<double> values = rounded_values(model_, lp.values());
    if (model_.violation(values) > 1e-7) {  // the continuous columns have to follow the rounded ones
      for (std::size_t j = 0; j < model_.num_columns(); ++j)
        if (model_.is_integer(j)) narrow(lp, {j, values[j], values[j]});
      if (lp.solve(mip_model::infinite) == lp_status::optimal) values = rounded_values(model_, lp.values());
    }
    if (!best_.take(values)) doubtful_ = true;
  }

  void report() {
    double bound = std::min(pruned_bound_, best_.result.objective);
    for (const node& n : open_) bound = std::min(bound, n.bound);
    best_.take_bound(bound);
    best_.report();
  }

  const mip_model& model_;
  const mip_options& options_;
  best_values best_;
  effort work_;
  std::vector<node> open_;
  std::vector<change> undo_;                   // the bounds before each change on the path
  double pruned_bound_ = mip_model::infinite;  // the lowest bound of a node that was pruned for the gap
  bool doubtful_ = false;                      // some node's values could not be made to meet the model
  bool is_unbounded_ = false;
};

}  // namespace detail::branch_and_bound_search

REMAT_INLINE mip_result branch_and_bound_backend::solve(const mip_model& model, const mip_options& options) const {
  return detail::branch_and_bound_search::tree_search(model, options).run();
}

}  // namespace REMAT_NAMESPACE
