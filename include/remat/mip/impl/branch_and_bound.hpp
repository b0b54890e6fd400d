// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/branch_and_bound.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/mip/detail/best_values.hpp"
#include "remat/mip/detail/bounded_dual_simplex.hpp"

namespace REMAT_NAMESPACE {

namespace detail::branch_and_bound_search {

/// Counts operations of linear programs and nodes as work.
class effort {
 public:
  explicit effort(run_clock& clock) : clock_(clock) {}

  /// Counts the operations of a program, of which there have been `all` by now. Returns false once the search must
  /// stop.
  bool count(std::uint64_t all) {
    since_count_ += all - counted_;
    counted_ = all;
    clock_.work(since_count_ / mip_operations_per_work);
    since_count_ %= mip_operations_per_work;
    is_stopped_ = is_stopped_ || clock_.should_stop();
    return !is_stopped_;
  }
  void end_node() { clock_.work(work_of::move); }

  [[nodiscard]] bool is_stopped() const noexcept { return is_stopped_; }

 private:
  run_clock& clock_;
  std::uint64_t counted_ = 0, since_count_ = 0;  // operations
  bool is_stopped_ = false;
};

/// The linear relaxation. Its bounds are proven for the model's rows, bounds and costs; infinite bounds of columns
/// count as ±`far`.
class relaxation {
 public:
  using outcome = bounded_dual_simplex::outcome;

  static constexpr double far = 1e7;  ///< replaces an infinite bound of a column

  relaxation(const mip_model& model, effort& work)
      : model_(model), work_(work), stop_([this] { return !work_.count(earlier_work_ + program_.work()); }) {
    double size = 0;
    for (std::size_t j = 0; j < model.num_columns(); ++j) size += std::abs(model.cost(j));
    if (size > 0) scale_ = std::exp2(10 - std::ilogb(size));
    for (std::size_t j = 0; j < model.num_columns(); ++j) add_column(j);
    add_rows();
  }

  /// True if there are no values within the bounds that the columns have now.
  [[nodiscard]] bool is_empty() const noexcept { return is_empty_; }
  void set_bounds(std::uint32_t c, double lower, double upper) { program_.set_bounds(c, lower, upper); }
  [[nodiscard]] double lower(std::uint32_t c) const { return program_.lower(c); }
  [[nodiscard]] double upper(std::uint32_t c) const { return program_.upper(c); }
  [[nodiscard]] bool is_fixed(std::uint32_t c) const { return lower(c) == upper(c); }

  /// Ends as `beyond` if all solutions are proven to have at least the objective `cutoff`. `stopped` is the end of a
  /// search that must stop, or of one that has taken too many iterations, as rounding errors or ties may cause.
  outcome solve(double cutoff) {
    if (program_.active_rows() > 2 * tight_rows_ + 400) {
      program_.drop_slack_rows();
      tight_rows_ = program_.active_rows();
    }
    outcome end = run(cutoff);
    if (end == outcome::failed || (end == outcome::stopped && !work_.is_stopped())) {
      start_over();
      end = run(cutoff);
    }
    return end;
  }
  /// A proven bound on the objective, of the last `solve`.
  [[nodiscard]] double bound() const {
    const double bound = program_.safe_bound() / scale_ + model_.offset;
    return std::isfinite(bound) ? std::nextafter(bound, -mip_model::infinite) : bound;
  }
  /// A proven bound on the objective where column c does not have its cheaper bound but a whole number beside it, and
  /// that cheaper bound.
  [[nodiscard]] std::pair<double, double> bound_beside(std::uint32_t c) const {
    const double d = program_.safe_reduced_cost(c);
    return {std::nextafter(bound() + std::abs(d) / scale_, -mip_model::infinite), d < 0 ? upper(c) : lower(c)};
  }
  /// The values after `optimal`.
  [[nodiscard]] std::span<const double> values() {
    values_.resize(program_.num_columns());
    for (std::uint32_t c = 0; c < values_.size(); ++c) values_[c] = program_.value(c);
    return values_;
  }
  /// True when the column stands on a bound that replaces an infinite one.
  [[nodiscard]] bool is_at_far(std::uint32_t c) const {
    const double x = program_.value(c);
    return (x >= far * (1 - 1e-9) && !std::isfinite(model_.upper(c))) ||
           (x <= -far * (1 - 1e-9) && !std::isfinite(model_.lower(c)));
  }

 private:
  static constexpr double whole = 1e-6, tolerance = 1e-7;

  outcome run(double cutoff) {
    const outcome end = program_.solve((cutoff - model_.offset) * scale_, stop_,
                                       1000 + 10 * (program_.num_columns() + model_.num_rows()));
    work_.count(earlier_work_ + program_.work());
    return end;
  }
  /// Builds the program anew, with a basis of no columns, and costs that are raised a little against cycles.
  void start_over() {
    const bounded_dual_simplex last = std::move(program_);
    earlier_work_ += last.work();
    program_ = bounded_dual_simplex(tolerance, tolerance);
    for (std::uint32_t c = 0; c < last.num_columns(); ++c)
      program_.add_column(last.lower(c), last.upper(c), model_.cost(c) * scale_);
    add_rows();
    tight_rows_ = 0;
  }
  void add_rows() {
    for (std::size_t i = 0; i < model_.num_rows(); ++i) {
      add_row(i, model_.row_lower(i), 1);
      add_row(i, model_.row_upper(i), -1);
    }
  }
  void add_column(std::size_t j) {
    double lower = std::max(model_.lower(j), -far), upper = std::min(model_.upper(j), far);
    if (model_.is_integer(j)) {
      lower = std::ceil(lower - whole);
      upper = std::floor(upper + whole);
    }
    is_empty_ = is_empty_ || lower > upper;
    program_.add_column(lower, upper, model_.cost(j) * scale_);
  }
  /// Adds one side of row i, so that the size of its largest coefficient is in [1, 2).
  void add_row(std::size_t i, double bound, double sign) {
    if (!std::isfinite(bound)) return;
    double largest = 0;
    for (const mip_term& t : model_.row(i)) largest = std::max(largest, std::abs(t.value));
    if (largest > 0) sign *= std::exp2(-std::ilogb(largest));
    entries_.clear();
    for (const mip_term& t : model_.row(i)) entries_.push_back({t.column, t.value * sign});
    program_.add_row(entries_, bound * sign);
  }

  const mip_model& model_;
  effort& work_;
  bounded_dual_simplex program_{0, tolerance};
  std::function<bool()> stop_;
  double scale_ = 1;  // a power of two
  std::vector<sparse_entry> entries_;
  std::vector<double> values_;
  std::size_t tight_rows_ = 0;
  std::uint64_t earlier_work_ = 0;  // operations on programs that were dropped
  bool is_empty_ = false;
};

/// The search tree. Nodes are changes of bounds; the path to the present node is undone from its end.
///
/// A node is closed if its bound is proven to reach the best objective, less the gap. What the simplex method says of
/// a node is not believed otherwise: it says where to branch, and which values to try.
class tree_search {
 public:
  tree_search(const mip_model& model, const mip_options& options)
      : model_(model),
        options_(options),
        best_(branch_and_bound_backend::name, model, options),
        work_(best_.clock),
        relaxed_(model, work_) {
    for (std::uint32_t j = 0; j < model.num_columns(); ++j)
      if (model.is_integer(j)) integers_.push_back(j);
  }

  mip_result run() {
    if (!options_.start.empty() && model_.violation(options_.start) <= 1e-6) best_.take(options_.start);
    if (best_.clock.should_stop()) return best_.finish(best_.stopped_status());
    if (!relaxed_.is_empty()) open_.push_back({{none, 0, 0}, 0, -mip_model::infinite});
    while (!open_.empty()) {
      const node now = open_.back();
      if (now.bound >= cutoff()) {
        open_.pop_back();
        close(now.bound);
        continue;
      }
      if (best_.result.nodes >= options_.max_nodes || best_.clock.should_stop()) break;
      open_.pop_back();
      if (!visit(now)) break;
      if (is_unbounded_) return best_.finish(mip_status::unbounded);
      report();
    }
    if (!open_.empty()) return best_.finish(best_.stopped_status());
    if (!best_.found() && closed_bound_ < mip_model::infinite) return best_.finish(mip_status::no_solution);
    best_.result.bound = std::min(best_.result.objective, closed_bound_);
    if (!best_.found()) return best_.finish(mip_status::infeasible);
    return best_.finish(closed_bound_ >= bound_of_optimum() ? mip_status::optimal : mip_status::feasible);
  }

 private:
  using outcome = relaxation::outcome;

  static constexpr std::uint32_t none = mip_model::none;

  struct change {
    std::uint32_t column;
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
    if (!best_.found()) return objective;
    return objective - std::max(options_.relative_gap, 1e-10) * std::max(std::abs(objective), 1e-3);
  }

  /// The least bound with which the best values count as optimal.
  [[nodiscard]] double bound_of_optimum() const { return std::min(cutoff(), best_.bound_of_optimum()); }

  void narrow(const change& c) {
    undo_.push_back({c.column, relaxed_.lower(c.column), relaxed_.upper(c.column)});
    relaxed_.set_bounds(c.column, c.lower, c.upper);
  }
  void undo(std::size_t depth) {
    for (; undo_.size() > depth; undo_.pop_back())
      relaxed_.set_bounds(undo_.back().column, undo_.back().lower, undo_.back().upper);
  }
  /// Leaves a node for good: no solution below it has a lesser objective than `bound`.
  void close(double bound) { closed_bound_ = std::min(closed_bound_, bound); }

  /// Solves the relaxation of a node, and takes its values or adds its children. Returns false if it was stopped.
  bool visit(node now) {
    undo(now.depth);
    if (now.narrowed.column != none) narrow(now.narrowed);
    const outcome end = relaxed_.solve(cutoff());
    if (end == outcome::stopped && work_.is_stopped()) {
      open_.push_back(now);
      return false;
    }
    ++best_.result.nodes;
    work_.end_node();
    now.bound = std::max(now.bound, relaxed_.bound());
    if (end == outcome::beyond) {
      close(now.bound);
      return true;
    }
    if (end == outcome::optimal && best_.result.nodes == 1 && check_unbounded()) return true;
    const std::vector<double> values(relaxed_.values().begin(), relaxed_.values().end());
    fix_columns();
    std::uint32_t column = most_fractional(values);
    if (column == none) {
      const double objective = take_values(values);
      if (now.bound < bound_of_optimum()) {
        column = first_free();
        if (column == none && integers_.size() == values.size()) now.bound = objective;  // there are no other values
      }
    }
    if (column == none)
      close(now.bound);
    else
      branch(column, values[column], now.bound);
    return true;
  }

  /// Fixes the integer columns whose other values are proven to reach the cutoff.
  void fix_columns() {
    if (!best_.found()) return;
    for (const std::uint32_t j : integers_) {
      if (relaxed_.is_fixed(j)) continue;
      if (const auto [beside, value] = relaxed_.bound_beside(j); beside >= cutoff()) {
        narrow({j, value, value});
        close(beside);
      }
    }
  }

  bool check_unbounded() {
    for (std::uint32_t j = 0; j < model_.num_columns(); ++j)
      if (model_.cost(j) != 0 && relaxed_.is_at_far(j)) {
        best_.result.message = "column " + std::to_string(j) + " has no finite best value";
        is_unbounded_ = true;
        return true;
      }
    return false;
  }

  /// The integer column, of those not fixed, whose value is farthest from a whole number; `none` if all are whole.
  [[nodiscard]] std::uint32_t most_fractional(const std::vector<double>& values) const {
    std::uint32_t column = none;
    double farthest = 1e-6;
    for (const std::uint32_t j : integers_) {
      const double distance = std::abs(values[j] - std::round(values[j]));
      if (distance > farthest && !relaxed_.is_fixed(j)) {
        farthest = distance;
        column = j;
      }
    }
    return column;
  }
  [[nodiscard]] std::uint32_t first_free() const {
    const auto at =
        std::find_if(integers_.begin(), integers_.end(), [&](std::uint32_t j) { return !relaxed_.is_fixed(j); });
    return at == integers_.end() ? none : *at;
  }

  void branch(std::uint32_t column, double x, double bound) {
    // A whole value is that of a node whose bound is not proven: it goes to the side that has more than the value.
    const double lower = relaxed_.lower(column), upper = relaxed_.upper(column);
    const double below = std::min(std::abs(x - std::round(x)) > 1e-6 ? std::floor(x) : std::round(x), upper - 1);
    const node low{{column, lower, below}, undo_.size(), bound};
    const node high{{column, below + 1, upper}, undo_.size(), bound};
    const bool up_first = x - below > 0.5;
    open_.push_back(up_first ? low : high);
    open_.push_back(up_first ? high : low);
  }

  /// Takes the values of a relaxation in which all integer columns are whole, up to the tolerance. Returns their
  /// objective; infinite if they break the model.
  double take_values(const std::vector<double>& values) {
    std::vector<double> rounded = rounded_values(model_, values);
    for (const std::uint32_t j : integers_) rounded[j] = std::clamp(rounded[j], relaxed_.lower(j), relaxed_.upper(j));
    if (model_.violation(rounded) > 1e-7) {  // the continuous columns have to follow the rounded ones
      const std::size_t depth = undo_.size();
      for (const std::uint32_t j : integers_) narrow({j, rounded[j], rounded[j]});
      if (relaxed_.solve(mip_model::infinite) == outcome::optimal) rounded = rounded_values(model_, relaxed_.values());
      undo(depth);
    }
    if (model_.violation(rounded) > 1e-6) return mip_model::infinite;
    best_.take(rounded);
    return model_.objective(rounded);
  }

  void report() {
    double bound = std::min(closed_bound_, best_.result.objective);
    for (const node& n : open_) bound = std::min(bound, n.bound);
    best_.take_bound(bound);
    best_.report();
  }

  const mip_model& model_;
  const mip_options& options_;
  best_values best_;
  effort work_;
  relaxation relaxed_;
  std::vector<std::uint32_t> integers_;  // columns
  std::vector<node> open_;
  std::vector<change> undo_;                   // the bounds before each change on the path
  double closed_bound_ = mip_model::infinite;  // the lowest bound of a node that was closed
  bool is_unbounded_ = false;
};

}  // namespace detail::branch_and_bound_search

REMAT_INLINE mip_result branch_and_bound_backend::solve(const mip_model& model, const mip_options& options) const {
  return detail::branch_and_bound_search::tree_search(model, options).run();
}

}  // namespace REMAT_NAMESPACE
