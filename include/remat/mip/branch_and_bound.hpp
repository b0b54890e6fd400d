// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/model.hpp"

namespace remat {

namespace detail::branch_and_bound_search {

enum class lp_status : std::uint8_t { optimal, infeasible, cut_off, stopped };

/// The linear relaxation by the bounded dual simplex method on a dense tableau.
///
/// Row i stands for the variable s_i = Σ a_ij x_j, so that the tableau expresses basic variables by non-basic ones and
/// has no right-hand side: values follow from the bounds at which the non-basic ones stand. Bounds may change between
/// solves. A non-basic variable that then stands at the wrong one is flipped to the other, which makes the basis dual
/// feasible again; bounds that are infinite are replaced by ±`far` for that.
class dense_dual_simplex {
 public:
  static constexpr double far = 1e7;        ///< in place of an infinite bound of a column
  static constexpr double feasible = 1e-8;  ///< of values, relative to the size of the bound
  static constexpr double tiny_pivot = 1e-9;

  explicit dense_dual_simplex(const mip_model& model)
      : model_(model), rows_(model.num_rows()), columns_(model.num_columns()) {
    lower_.resize(columns_ + rows_);
    upper_.resize(columns_ + rows_);
    for (std::size_t j = 0; j < columns_; ++j) set_bounds(j, model.lower(j), model.upper(j));
    for (std::size_t i = 0; i < rows_; ++i) {
      lower_[columns_ + i] = model.row_lower(i);
      upper_[columns_ + i] = model.row_upper(i);
    }
    value_.assign(columns_ + rows_, 0);
    start_over();
  }

  void set_bounds(std::size_t column, double lower, double upper) {
    lower_[column] = std::max(lower, -far);
    upper_[column] = std::min(upper, far);
  }
  [[nodiscard]] double lower(std::size_t column) const noexcept { return lower_[column]; }
  [[nodiscard]] double upper(std::size_t column) const noexcept { return upper_[column]; }
  /// Of the columns, after `optimal`.
  [[nodiscard]] std::span<const double> values() const noexcept { return {value_.data(), columns_}; }
  [[nodiscard]] double objective() const noexcept { return objective_; }
  [[nodiscard]] bool at_far(std::size_t column) const noexcept {
    return (value_[column] >= far * (1 - 1e-9) && !std::isfinite(model_.upper(column))) ||
           (value_[column] <= -far * (1 - 1e-9) && !std::isfinite(model_.lower(column)));
  }

  /// Stops where the objective is proven to reach `cutoff`, or `stop()` says so (asked every few pivots).
  template <class Stop>
  lp_status solve(double cutoff, Stop&& stop) {
    for (std::size_t j = 0; j < columns_; ++j)
      if (lower_[j] > upper_[j]) return lp_status::infeasible;
    if (pivots_ > 200) start_from_basis();
    for (int attempt = 0;; ++attempt) {
      place();
      const lp_status status = iterate(cutoff, stop);
      // A tableau that has drifted proves nothing, not even that there is no solution.
      if (status == lp_status::stopped || attempt == 2 || consistent()) return status;
      start_from_basis();
    }
  }

 private:
  [[nodiscard]] double* row(std::size_t i) noexcept { return tableau_.data() + i * columns_; }
  [[nodiscard]] static double slack(double bound) noexcept { return feasible * std::max(1.0, std::abs(bound)); }

  /// All rows basic.
  void start_over() {
    tableau_.assign(rows_ * columns_, 0);
    basic_.resize(rows_);
    nonbasic_.resize(columns_);
    reduced_.resize(columns_);
    for (std::size_t i = 0; i < rows_; ++i) {
      basic_[i] = columns_ + i;
      for (const mip_term& t : model_.row(i)) row(i)[t.column] = t.value;
    }
    for (std::size_t j = 0; j < columns_; ++j) {
      nonbasic_[j] = j;
      reduced_[j] = model_.cost(j);
    }
    pivots_ = 0;
  }

  /// The same basis, computed afresh: rounding errors do not add up for ever.
  void start_from_basis() {
    std::vector<std::uint8_t> wanted(columns_ + rows_, 0);
    for (const std::size_t v : basic_) wanted[v] = 1;
    start_over();
    for (std::size_t q = 0; q < columns_; ++q) {
      if (!wanted[nonbasic_[q]]) continue;
      std::size_t best = rows_;
      for (std::size_t i = 0; i < rows_; ++i)
        if (!wanted[basic_[i]] && (best == rows_ || std::abs(row(i)[q]) > std::abs(row(best)[q]))) best = i;
      if (best != rows_ && std::abs(row(best)[q]) > tiny_pivot) exchange(best, q);
    }
    pivots_ = 0;
  }

  /// Non-basic variables to the bound that their reduced costs ask for; basic values from them.
  void place() {
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
    }
  }
  [[nodiscard]] double model_lower(std::size_t v) const {
    return v < columns_ ? model_.lower(v) : model_.row_lower(v - columns_);
  }
  [[nodiscard]] double model_upper(std::size_t v) const {
    return v < columns_ ? model_.upper(v) : model_.row_upper(v - columns_);
  }

  template <class Stop>
  lp_status iterate(double cutoff, Stop&& stop) {
    std::size_t still = 0;  // pivots without progress: then the least index wins, which cannot cycle
    double last = -std::numeric_limits<double>::infinity();
    for (std::size_t pivot = 0;; ++pivot) {
      if (pivot % 8 == 0 && stop()) return lp_status::stopped;
      objective_ = model_.offset;
      for (std::size_t q = 0; q < columns_; ++q) objective_ += reduced_[q] * value_[nonbasic_[q]];
      if (objective_ >= cutoff) return lp_status::cut_off;
      still = objective_ > last + 1e-12 * std::abs(last) ? 0 : still + 1;
      last = std::max(last, objective_);
      const bool careful = still > 50;

      std::size_t r = rows_;
      double worst = 0;
      for (std::size_t i = 0; i < rows_; ++i) {
        const std::size_t v = basic_[i];
        const double below = lower_[v] - value_[v] - slack(lower_[v]);
        const double above = value_[v] - upper_[v] - slack(upper_[v]);
        const double by = std::max(below, above);
        if (by <= 0) continue;
        if (r == rows_ || (careful ? v < basic_[r] : by > worst)) {
          r = i;
          worst = by;
        }
      }
      if (r == rows_) return lp_status::optimal;
      const std::size_t leaving = basic_[r];
      const bool up = value_[leaving] < lower_[leaving];
      const double target = up ? lower_[leaving] : upper_[leaving];

      std::size_t q = columns_;
      double least = 0;
      for (std::size_t j = 0; j < columns_; ++j) {
        const double a = up ? row(r)[j] : -row(r)[j];  // the change that is wanted, for each unit of the variable
        if (std::abs(a) < tiny_pivot) continue;
        const std::size_t v = nonbasic_[j];
        if (a > 0 ? value_[v] >= upper_[v] : value_[v] <= lower_[v]) continue;
        const double ratio = std::abs(reduced_[j] / a);
        const bool better = q == columns_ || ratio < least - 1e-12 ||
                            (ratio < least + 1e-12 && (careful ? v < nonbasic_[q] : std::abs(a) > std::abs(row(r)[q])));
        if (better) {
          q = j;
          least = ratio;
        }
      }
      if (q == columns_) return lp_status::infeasible;
      const double by = (target - value_[leaving]) / row(r)[q];
      for (std::size_t i = 0; i < rows_; ++i) value_[basic_[i]] += row(i)[q] * by;
      value_[nonbasic_[q]] += by;
      value_[leaving] = target;
      exchange(r, q);
    }
  }

  /// Basic variable r and non-basic variable q change places.
  void exchange(std::size_t r, std::size_t q) {
    double* const pivot_row = row(r);
    const double inverse = 1 / pivot_row[q];
    for (std::size_t j = 0; j < columns_; ++j) pivot_row[j] *= -inverse;
    pivot_row[q] = inverse;
    const auto eliminate = [&](double* other) {
      const double factor = other[q];
      if (factor == 0) return;
      other[q] = 0;
      for (std::size_t j = 0; j < columns_; ++j) other[j] += factor * pivot_row[j];
    };
    for (std::size_t i = 0; i < rows_; ++i)
      if (i != r) eliminate(row(i));
    eliminate(reduced_.data());
    std::swap(basic_[r], nonbasic_[q]);
    ++pivots_;
  }

  /// The rows hold for the values that the tableau gave.
  [[nodiscard]] bool consistent() const {
    for (std::size_t i = 0; i < rows_; ++i) {
      double sum = 0, scale = 1;
      for (const mip_term& t : model_.row(i)) {
        sum += t.value * value_[t.column];
        scale = std::max(scale, std::abs(t.value * value_[t.column]));
      }
      if (std::abs(sum - value_[columns_ + i]) > 1e-7 * scale) return false;
    }
    return true;
  }

  const mip_model& model_;
  std::size_t rows_, columns_;
  std::vector<double> tableau_;  // basic = tableau · non-basic
  std::vector<double> reduced_;  // objective = offset + reduced · non-basic
  std::vector<std::size_t> basic_, nonbasic_;
  std::vector<double> lower_, upper_, value_;  // columns, then rows
  double objective_ = 0;
  std::size_t pivots_ = 0;
};

}  // namespace detail::branch_and_bound_search

/// Branch and bound, depth first, over a dense dual simplex: for tests and models of some hundred rows.
/// \cite land1960automatic \cite lemke1954dual
///
/// A node branches on the integer column whose value is farthest from whole, the nearer side first. A pivot takes
/// O(rows · columns) time, the tableau as much memory; models of more than `most_entries` are refused as `failed`.
/// Infinite bounds of columns count as ±1e7; a best solution that stands on one is reported as `unbounded`, where the
/// relaxation does so already. Tolerances: 1e-8 for rows and bounds, 1e-6 for wholeness. Stops within eight pivots.
struct branch_and_bound_backend {
  static constexpr std::string_view name = "branch_and_bound";
  static constexpr std::size_t most_entries = std::size_t{1} << 26;

  [[nodiscard]] mip_result solve(const mip_model& model, const mip_options& options = {}) const {
    using detail::branch_and_bound_search::lp_status;
    run_clock clock(options.run);
    mip_result best;
    const auto finish = [&](mip_status status) {
      best.status = status;
      best.nodes = clock.work_done();
      best.seconds = clock.seconds();
      return std::move(best);
    };
    if (model.num_columns() != 0 && model.num_rows() > most_entries / model.num_columns()) {
      best.message = "the model is too large for a dense tableau";
      return finish(mip_status::failed);
    }
    const auto take = [&](std::vector<double> values) {
      const double objective = model.objective(values);
      if (!(objective < best.objective)) return;
      best.objective = objective;
      best.values = std::move(values);
      if (options.on_incumbent) options.on_incumbent(best.values, objective);
    };
    if (!options.start.empty() && model.violation(options.start) <= 1e-6) take(rounded(model, options.start));
    const auto stop = [&] { return clock.should_stop(); };
    const auto found = [&] { return best.objective < mip_model::infinite; };
    if (stop()) return finish(found() ? mip_status::feasible : mip_status::no_solution);

    struct change {
      std::size_t column;
      double lower, upper;
    };
    struct node {
      change what;
      std::size_t depth;  // changes above it
      double bound;
    };
    detail::branch_and_bound_search::dense_dual_simplex lp(model);
    std::vector<node> open{{{model.num_columns(), 0, 0}, 0, -mip_model::infinite}};
    std::vector<change> undo;
    double given_up = mip_model::infinite;  // the lowest bound of what was pruned for the gap
    bool doubtful = false;
    const auto gap = [&] { return std::max(options.relative_gap, 1e-10) * std::max(std::abs(best.objective), 1e-3); };
    const auto report_bound = [&](double at_least) {
      for (const node& n : open) at_least = std::min(at_least, n.bound);
      at_least = std::min({at_least, given_up, best.objective});
      if (!(at_least > best.bound)) return;
      best.bound = at_least;
      if (options.on_bound) options.on_bound(at_least);
    };
    const auto restore = [&](std::size_t depth) {
      for (; undo.size() > depth; undo.pop_back())
        lp.set_bounds(undo.back().column, undo.back().lower, undo.back().upper);
    };
    const auto narrow = [&](const change& c) {
      undo.push_back({c.column, lp.lower(c.column), lp.upper(c.column)});
      lp.set_bounds(c.column, c.lower, c.upper);
    };
    while (!open.empty()) {
      const node now = open.back();
      if (now.bound >= best.objective - gap()) {
        open.pop_back();
        given_up = std::min(given_up, now.bound);
        continue;
      }
      if (stop()) break;
      open.pop_back();
      clock.work();
      restore(now.depth);
      if (now.what.column < model.num_columns()) narrow(now.what);
      const lp_status status = lp.solve(best.objective - gap(), stop);
      if (status == lp_status::stopped) {
        open.push_back(now);
        break;
      }
      if (status == lp_status::cut_off) given_up = std::min(given_up, std::max(now.bound, lp.objective()));
      if (status == lp_status::optimal) {
        if (clock.work_done() == 1)
          for (std::size_t j = 0; j < model.num_columns(); ++j)
            if (lp.at_far(j) && model.cost(j) != 0) {
              best.message = "column " + std::to_string(j) + " has no finite best value";
              return finish(mip_status::unbounded);
            }
        const double bound = std::max(now.bound, lp.objective());
        std::size_t branch = model.num_columns();
        double farthest = 1e-6;
        for (std::size_t j = 0; j < model.num_columns(); ++j) {
          if (!model.is_integer(j)) continue;
          const double off = std::abs(lp.values()[j] - std::round(lp.values()[j]));
          if (off > farthest) {
            farthest = off;
            branch = j;
          }
        }
        if (branch == model.num_columns()) {
          std::vector<double> values = rounded(model, lp.values());
          if (model.violation(values) > 1e-7) {  // the continuous columns follow the rounded ones
            for (std::size_t j = 0; j < model.num_columns(); ++j)
              if (model.is_integer(j)) narrow({j, values[j], values[j]});
            if (lp.solve(mip_model::infinite, stop) == lp_status::optimal) values = rounded(model, lp.values());
          }
          if (model.violation(values) <= 1e-5)
            take(std::move(values));
          else
            doubtful = true;
        } else {
          const double x = lp.values()[branch];
          const node low{{branch, lp.lower(branch), std::floor(x)}, undo.size(), bound};
          const node high{{branch, std::ceil(x), lp.upper(branch)}, undo.size(), bound};
          const bool up_first = x - std::floor(x) > 0.5;
          open.push_back(up_first ? low : high);
          open.push_back(up_first ? high : low);
        }
      }
      report_bound(mip_model::infinite);
      progress news;
      news.solver = name;
      news.best_objective = best.objective;
      news.lower_bound = best.bound;
      news.done = clock.work_done();
      clock.report(news);
    }
    if (!open.empty() || doubtful) return finish(found() ? mip_status::feasible : mip_status::no_solution);
    best.bound = std::min(best.objective, given_up);
    return finish(found() ? mip_status::optimal : mip_status::infeasible);
  }

 private:
  static std::vector<double> rounded(const mip_model& model, std::span<const double> values) {
    std::vector<double> out(values.begin(), values.end());
    for (std::size_t j = 0; j < out.size(); ++j)
      if (model.is_integer(j)) out[j] = std::round(out[j]);
    return out;
  }
};
inline constexpr branch_and_bound_backend branch_and_bound{};

}  // namespace remat
