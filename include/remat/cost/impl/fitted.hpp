// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/cost/fitted.hpp"

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

namespace detail::cost_fitting {

using columns = unsigned;  // a set of terms
inline constexpr columns bytes_column = 1, flops_column = 2, latency_column = 4;
// Of two sets with equal errors the first is chosen: it has fewer terms. The constant is last, since it does not scale.
inline constexpr std::array<columns, 8> sets{0, 1, 2, 4, 3, 5, 6, 7};

inline double& term(cost_terms& t, columns c) noexcept {
  return c == bytes_column ? t.bytes : c == flops_column ? t.flops : t.latency;
}
inline double feature(const operation_work& w, columns c) noexcept {
  return c == bytes_column ? w.bytes : c == flops_column ? w.flops : 1.0;
}
inline int count(columns set) noexcept { return static_cast<int>((set & 1) + (set >> 1 & 1) + (set >> 2 & 1)); }

/// One row of a fit. Cross-validation leaves out the rows of one `group` together.
struct row {
  operation_work work;
  double seconds;
  std::size_t group;
};

/// Least squares with non-negative terms. A best solution is among those that a linearly independent subset of the
/// columns gives without the constraint (Carathéodory), and there are 8 subsets, so each is tried.
inline cost_terms non_negative(std::span<const row> rows, std::span<const double> weights, columns allowed) {
  const auto n = static_cast<Eigen::Index>(rows.size());
  Eigen::VectorXd b(n);
  for (Eigen::Index i = 0; i < n; ++i)
    b(i) = weights[static_cast<std::size_t>(i)] * rows[static_cast<std::size_t>(i)].seconds;
  const double total = b.squaredNorm();
  double least = total;
  cost_terms best;
  for (const columns set : sets) {
    if (set == 0 || (set & ~allowed) != 0 || count(set) > n) continue;
    Eigen::MatrixXd a(n, count(set));
    std::array<columns, 3> which{};
    std::array<double, 3> norm{};
    bool usable = true;
    Eigen::Index k = 0;
    for (columns c = 1; c <= latency_column; c <<= 1) {
      if ((set & c) == 0) continue;
      for (Eigen::Index i = 0; i < n; ++i)
        a(i, k) = weights[static_cast<std::size_t>(i)] * feature(rows[static_cast<std::size_t>(i)].work, c);
      norm[static_cast<std::size_t>(k)] = a.col(k).norm();
      usable = usable && norm[static_cast<std::size_t>(k)] > 0;
      if (usable) a.col(k) /= norm[static_cast<std::size_t>(k)];
      which[static_cast<std::size_t>(k++)] = c;
    }
    if (!usable) continue;
    Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr;
    qr.setThreshold(1e-9);
    qr.compute(a);
    if (qr.rank() < a.cols()) continue;
    const Eigen::VectorXd x = qr.solve(b);
    if (x.minCoeff() < 0) continue;
    const double residual = (a * x - b).squaredNorm();
    if (!(residual < least - 1e-13 * total)) continue;
    least = residual;
    best = {};
    for (Eigen::Index j = 0; j < a.cols(); ++j)
      term(best, which[static_cast<std::size_t>(j)]) = x(j) / norm[static_cast<std::size_t>(j)];
  }
  return best;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Solves repeatedly with weights that depend on the solution, until they no longer change. The weights are 1 /
/// predicted time for relative errors, times Huber's function of the error for a robust fit \cite huber1964robust.
/// `start` holds rough predictions.
///
/// Weights of 1 / measured time would favour times that were measured too short, and so give predictions that are too
/// short on average \cite wedderburn1974quasi.
template <class Solve>
cost_terms reweighted(std::span<const row> rows, std::vector<double> start, const cost_fit_options& options,
                      const Solve& solve) {
  constexpr int rounds = 30;
  constexpr double efficient = 1.345, to_deviation = 1.4826;  // 95 % efficiency on normal errors
  constexpr double vanishing = 0.01;  // a prediction below this part of the start weighs no more
  const bool relative = options.weighting == fit_weighting::relative;
  std::vector<double> weights(rows.size()), next(rows.size()), residual(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) weights[i] = relative ? 1 / std::max(start[i], options.shortest) : 1.0;
  cost_terms terms = solve(weights);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double p = terms(rows[i].work);
      next[i] = relative ? 1 / std::max({p, start[i] * vanishing, options.shortest}) : 1.0;
      residual[i] = std::abs(p - rows[i].seconds) * next[i];
    }
    if (const double scale = efficient * to_deviation * median(residual); options.robust && scale > 0)
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (residual[i] > scale) next[i] *= std::sqrt(scale / residual[i]);
    double change = 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
      change = std::max(change, std::abs(next[i] - weights[i]) / weights[i]);
    if (change < 1e-6) break;
    weights = next;
    terms = solve(weights);
  }
  return terms;
}

/// Returns the median of measured / feature; 0 where no feature is above 0.
template <class Feature>
double median_ratio(std::span<const row> rows, const Feature& feature_of) {
  std::vector<double> ratios;
  for (const row& r : rows)
    if (const double x = feature_of(r.work); x > 0) ratios.push_back(r.seconds / x);
  return ratios.empty() ? 0 : median(std::move(ratios));
}

inline cost_terms fit(std::span<const row> rows, columns set, const cost_fit_options& options) {
  std::vector<double> start(rows.size(), 0.0);
  for (columns c = 1; c <= latency_column; c <<= 1) {
    if ((set & c) == 0) continue;
    const double ratio = median_ratio(rows, [&](const operation_work& w) { return feature(w, c); }) / count(set);
    for (std::size_t i = 0; i < rows.size(); ++i) start[i] += ratio * feature(rows[i].work, c);
  }
  return reweighted(rows, std::move(start), options,
                    [&](const std::vector<double>& weights) { return non_negative(rows, weights, set); });
}

/// Returns `base` times the factor that fits best, if `base` predicts a time above 0 for some row.
inline std::optional<cost_terms> scale(std::span<const row> rows, const cost_terms& base,
                                       const cost_fit_options& options) {
  const double ratio = median_ratio(rows, base);
  std::vector<double> start;
  bool any = false;
  for (const row& r : rows) {
    start.push_back(ratio * base(r.work));
    any = any || base(r.work) > 0;  // false where it is NaN
  }
  if (!any) return std::nullopt;
  return reweighted(rows, std::move(start), options, [&](const std::vector<double>& weights) {
    double up = 0, down = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double p = base(rows[i].work) * weights[i];
      up += p * rows[i].seconds * weights[i];
      down += p * p;
    }
    const double factor = up / down;
    return cost_terms{base.latency * factor, base.flops * factor, base.bytes * factor};
  });
}

inline double relative_error(const row& r, const cost_terms& terms, double shortest) {
  return std::abs(terms(r.work) - r.seconds) / std::max(r.seconds, shortest);
}

/// Mean errors at groups that were left out of a fit; NaN for fewer than two groups.
struct held_out {
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< the measure by which terms are chosen
  double relative = std::numeric_limits<double>::quiet_NaN();
};
template <class Train>
held_out cross_validate(std::span<const row> rows, std::size_t groups, const cost_fit_options& options,
                        const Train& train) {
  if (groups < 2) return {};
  const std::size_t folds = std::min<std::size_t>(groups, options.folds);
  held_out out{0, 0};
  std::vector<row> rest;
  for (std::size_t fold = 0; fold < folds; ++fold) {
    rest.clear();
    for (const row& r : rows)
      if (r.group % folds != fold) rest.push_back(r);
    const std::optional<cost_terms> terms = train(std::span<const row>(rest));
    if (!terms) return {};
    for (const row& r : rows) {
      if (r.group % folds != fold) continue;
      const double p = (*terms)(r.work), error = std::abs(p - r.seconds);
      // By the larger of both times: half and double count the same. By the measured time, a prediction of 0 would
      // have a small error.
      const bool relative = options.weighting == fit_weighting::relative;
      out.loss += relative ? error / std::max({p, r.seconds, options.shortest}) : error;
      out.relative += relative_error(r, *terms, options.shortest);
    }
  }
  const auto n = static_cast<double>(rows.size());
  return {out.loss / n, out.relative / n};
}

inline void describe(kind_fit& f, std::span<const row> rows, double shortest) {
  double mean = 0, spread = 0, missed = 0;
  f.samples = rows.size();
  f.mean_relative_error = f.largest_relative_error = 0;
  for (const row& r : rows) {
    mean += r.seconds / static_cast<double>(rows.size());
    const double e = relative_error(r, f.terms, shortest);
    f.mean_relative_error += e / static_cast<double>(rows.size());
    f.largest_relative_error = std::max(f.largest_relative_error, e);
  }
  for (const row& r : rows) {
    spread += (r.seconds - mean) * (r.seconds - mean);
    missed += (f.terms(r.work) - r.seconds) * (f.terms(r.work) - r.seconds);
  }
  // Where all times are equal, the spread is only rounding error.
  const double rounding = 1e-18 * mean * mean * static_cast<double>(rows.size());
  f.r_squared = spread > rounding ? 1 - missed / spread : missed <= rounding ? 1 : 0;
}

/// Returns the allowed terms whose figures all rows have.
inline columns known(std::span<const row> rows, columns allowed) {
  for (const row& r : rows)
    for (const columns c : {bytes_column, flops_column})
      if (std::isnan(feature(r.work, c))) allowed &= ~c;
  return allowed;
}

/// Numbers the different sizes of the rows in ascending order, so that neighbours are left out in different folds.
inline std::size_t group_by_size(std::vector<row>& rows) {
  const auto key = [](const row& r) {  // −1 in place of NaN, which has no order
    return std::pair(std::isnan(r.work.flops) ? -1.0 : r.work.flops, std::isnan(r.work.bytes) ? -1.0 : r.work.bytes);
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const row& a, const row& b) { return key(a) < key(b); });
  std::size_t groups = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || key(rows[i - 1]) < key(rows[i])) ++groups;
    rows[i].group = groups - 1;
  }
  return groups;
}

/// Chooses the set of terms with the least error at the groups that are left out. `base`, scaled, is a candidate where
/// it is given.
inline void choose(kind_fit& f, std::span<const row> rows, std::size_t groups, columns allowed,
                   const cost_fit_options& options, const cost_terms* base) {
  constexpr double worth_a_term = 0.9;  // a later candidate must reduce the error by a tenth
  double least = std::numeric_limits<double>::infinity(), longest = 0;
  for (const row& r : rows) longest = std::max(longest, r.seconds);
  const double rounding = 1e-9 * (options.weighting == fit_weighting::relative ? 1 : longest);
  const auto consider = [&](const held_out& error, fit_source source, const cost_terms& terms) {
    if (!(error.loss < worth_a_term * least - rounding)) return;
    f.terms = terms;
    f.source = source;
    f.held_out_error = error.relative;
    least = error.loss;
  };
  const std::size_t fold = (groups + options.folds - 1) / options.folds;
  for (const columns set : sets) {
    // The groups that are left must determine all terms.
    if (set == 0 || (set & ~allowed) != 0 || groups < fold + static_cast<std::size_t>(count(set))) continue;
    const auto train = [&](std::span<const row> rest) { return std::optional<cost_terms>(fit(rest, set, options)); };
    consider(cross_validate(rows, groups, options, train), fit_source::own, fit(rows, set, options));
  }
  std::optional<cost_terms> scaled;
  if (base != nullptr) scaled = scale(rows, *base, options);
  if (scaled) {
    const auto train = [&](std::span<const row> rest) { return scale(rest, *base, options); };
    consider(cross_validate(rows, groups, options, train), fit_source::scaled, *scaled);
  }
  if (least != std::numeric_limits<double>::infinity()) return;
  f.terms = scaled ? *scaled : fit(rows, allowed, options);  // one size alone
  if (scaled) f.source = fit_source::scaled;
}

/// The measurements of all kinds: rows, ordered by kind, whose group is the position of the kind in `kinds`.
struct collection {
  std::vector<row> rows;
  std::vector<kind_fit> kinds;  // ascending by name, not fitted yet
};

/// Checks the options and returns the allowed terms.
inline columns check_options(const cost_fit_options& options) {
  if (options.folds < 2) throw bad_argument("folds is " + std::to_string(options.folds) + "; it must be at least 2");
  if (!(options.shortest > 0) || !std::isfinite(options.shortest))
    throw bad_argument("shortest is " + std::to_string(options.shortest) + " seconds; it must be above 0 and finite");
  const columns allowed =
      (options.bytes ? bytes_column : 0) | (options.flops ? flops_column : 0) | (options.latency ? latency_column : 0);
  if (allowed == 0) throw bad_argument("a fit needs at least one of the terms latency, flops and bytes");
  return allowed;
}

/// Checks the samples and orders them by kind.
inline collection collect(std::span<const cost_sample> samples, columns allowed, const cost_fit_options& options) {
  if (samples.empty()) throw bad_argument("there is no measured time to fit a cost model to");
  const auto usable = [](double x) { return x >= 0 && std::isfinite(x); };

  std::vector<std::size_t> order(samples.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return samples[a].kind < samples[b].kind; });
  collection out;
  for (const std::size_t i : order) {
    const cost_sample& s = samples[i];
    const auto refuse = [&](const char* what, double value, const char* right) {
      throw bad_cost((s.label.empty() ? "sample " + std::to_string(i) + " (" + s.kind + ")" : s.label) + ": " + what +
                     " is " + std::to_string(value) + "; " + right);
    };
    if (!usable(s.seconds)) refuse("the measured time", s.seconds, "it must be finite and not negative");
    for (const columns c : {flops_column, bytes_column}) {
      const double value = feature(s.work, c);
      const char* const what = c == flops_column ? "flops" : "bytes accessed";
      if (std::isnan(value) && !options.select && (allowed & c) != 0)
        refuse(what, value, "the fit needs it of every operation, unless it may choose its terms");
      if (!std::isnan(value) && !usable(value)) refuse(what, value, "it must be finite and not negative");
    }
    if (out.kinds.empty() || out.kinds.back().kind != s.kind) {
      out.kinds.emplace_back();
      out.kinds.back().kind = s.kind;
    }
    out.rows.push_back({s.work, s.seconds, out.kinds.size() - 1});
  }
  return out;
}

/// Fits all kinds together. Cross-validation leaves out kinds, or sizes where there is only one kind.
inline kind_fit fit_pooled(const collection& all, columns allowed, const cost_fit_options& options) {
  const bool one_kind = all.kinds.size() < 2;
  kind_fit pooled;
  std::vector<row> by_size = all.rows;
  pooled.sizes = group_by_size(by_size);
  const std::vector<row>& rows = one_kind ? by_size : all.rows;
  const columns terms = known(rows, allowed);
  if (terms == 0)
    pooled.terms.latency = std::numeric_limits<double>::quiet_NaN();  // no prediction
  else if (options.select)
    choose(pooled, rows, one_kind ? pooled.sizes : all.kinds.size(), terms, options, nullptr);
  else
    pooled.terms = fit(rows, terms, options);
  pooled.source = fit_source::pooled;
  describe(pooled, rows, options.shortest);
  return pooled;
}

/// Fits one kind to its rows. `pooled`: the terms of all kinds together.
inline void fit_kind(kind_fit& f, std::vector<row> rows, columns allowed, const cost_fit_options& options,
                     const cost_terms& pooled) {
  f.sizes = group_by_size(rows);
  const columns terms = known(rows, allowed);
  if (terms == 0)
    throw bad_cost("kind " + f.kind + ": none of the allowed terms is known for all of its measured operations");
  if (options.select)
    choose(f, rows, f.sizes, terms, options, &pooled);
  else
    f.terms = fit(rows, terms, options);
  describe(f, rows, options.shortest);
}

REMAT_INLINE fits fit_kinds(std::span<const cost_sample> samples, const cost_fit_options& options) {
  const columns allowed = check_options(options);
  collection all = collect(samples, allowed, options);
  kind_fit pooled = fit_pooled(all, allowed, options);
  auto first = all.rows.begin();
  for (std::size_t k = 0; k < all.kinds.size(); ++k) {
    auto last = first;
    while (last != all.rows.end() && last->group == k) ++last;
    fit_kind(all.kinds[k], std::vector<row>(first, last), allowed, options, pooled.terms);
    first = last;
  }
  return {std::move(all.kinds), std::move(pooled)};
}

REMAT_INLINE void refuse(const std::string& operation, const std::string& kind, const kind_fit& f,
                         const operation_work& work) {
  if (std::isnan(f.terms.latency))
    throw bad_cost(operation + ": its kind (" + kind +
                   ") was not measured, and no allowed term is known for all operations that were");
  throw bad_cost(operation + " has no " + (f.terms.flops != 0 && std::isnan(work.flops) ? "flops" : "bytes accessed") +
                 ", which the fitted time of its kind (" + kind + ", " + std::string(to_string(f.source)) + ") needs");
}

}  // namespace detail::cost_fitting

}  // namespace remat
