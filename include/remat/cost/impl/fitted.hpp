// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/cost/fitted.hpp"

#include <Eigen/Core>
#include <Eigen/QR>
#include <iterator>
#include <numeric>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"

namespace REMAT_NAMESPACE {

namespace detail::fitted {

using Eigen::ArrayXd;

// The terms are numbered: the bytes, the flops, the latency. A set of terms has a bit for each.
using term_set = unsigned;
inline constexpr int bytes_term = 0, flops_term = 1, latency_term = 2, num_terms = 3;
// The first of two sets with equal errors is chosen: it has fewer terms. The latency is last, since it does not scale.
inline constexpr std::array<term_set, 7> all_sets{1, 2, 4, 3, 5, 6, 7};

inline std::vector<int> terms_of(term_set set) {
  std::vector<int> terms;
  for (int k = 0; k < num_terms; ++k)
    if (set >> k & 1) terms.push_back(k);
  return terms;
}
inline double& coefficient(cost_terms& t, int k) noexcept {
  return k == bytes_term ? t.bytes : k == flops_term ? t.flops : t.latency;
}

/// The measurements that are fitted. Cross-validation leaves out those of one group together.
struct measurements {
  Eigen::ArrayX3d work;  ///< a column for each term: the bytes, the flops, 1; NaN for a figure that is not known
  ArrayXd seconds;       ///< measured time
  Eigen::ArrayXi group;  ///< number of its group, from 0

  [[nodiscard]] measurements subset(const std::vector<Eigen::Index>& chosen) const {
    return {work(chosen, Eigen::all), seconds(chosen), group(chosen)};
  }
};

inline ArrayXd predicted(const measurements& m, const cost_terms& terms) {
  ArrayXd seconds = ArrayXd::Constant(m.seconds.size(), terms.latency);
  if (terms.flops != 0) seconds += terms.flops * m.work.col(flops_term);
  if (terms.bytes != 0) seconds += terms.bytes * m.work.col(bytes_term);
  return seconds;
}

/// Least squares with non-negative terms. A best solution is among those that a linearly independent subset of the
/// columns gives without the constraint (Carathéodory), and there are 7 subsets, so each is tried.
inline cost_terms non_negative(const measurements& m, const ArrayXd& weights, term_set allowed) {
  Eigen::MatrixX3d columns = m.work.colwise() * weights;
  const Eigen::RowVector3d norms = columns.colwise().norm();
  columns.array().rowwise() /= norms.array();
  const Eigen::VectorXd times = weights * m.seconds;
  const double total = times.squaredNorm();
  double least = total;
  cost_terms best;
  for (const term_set set : all_sets) {
    if ((set & ~allowed) != 0) continue;
    const std::vector<int> terms = terms_of(set);
    const bool usable = std::all_of(terms.begin(), terms.end(), [&](int k) { return norms(k) > 0; });
    if (std::ssize(terms) > weights.size() || !usable) continue;
    const Eigen::MatrixXd a = columns(Eigen::all, terms);
    Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr;
    qr.setThreshold(1e-9);
    qr.compute(a);
    if (qr.rank() < a.cols()) continue;
    const Eigen::VectorXd x = qr.solve(times);
    const double residual = (a * x - times).squaredNorm();
    if (x.minCoeff() < 0 || !(residual < least - 1e-13 * total)) continue;
    least = residual;
    best = {};
    for (Eigen::Index j = 0; j < a.cols(); ++j) {
      const int k = terms[static_cast<std::size_t>(j)];
      coefficient(best, k) = x(j) / norms(k);
    }
  }
  return best;
}

inline double median(ArrayXd values) {
  const auto middle = values.begin() + values.size() / 2;
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
cost_terms reweighted(const measurements& m, const ArrayXd& start, const cost_fit_options& options,
                      const Solve& solve) {
  constexpr int rounds = 30;
  constexpr double efficient = 1.345, to_deviation = 1.4826;  // 95 % efficiency on normal errors
  constexpr double vanishing = 0.01;  // a prediction below this fraction of the start weighs no more
  const auto weights_for = [&](const ArrayXd& times) -> ArrayXd {
    if (options.weighting == fit_weighting::absolute) return ArrayXd::Ones(times.size());
    return 1 / times.max(options.shortest);
  };
  ArrayXd weights = weights_for(start);
  cost_terms terms = solve(weights);
  for (int round = 0; round < rounds; ++round) {
    const ArrayXd times = predicted(m, terms);
    ArrayXd next = weights_for(times.max(start * vanishing));
    const ArrayXd residual = (times - m.seconds).abs() * next;
    if (const double scale = efficient * to_deviation * median(residual); options.robust && scale > 0)
      next *= (scale / residual.max(scale)).sqrt();
    if (((next - weights).abs() / weights).maxCoeff() < 1e-6) break;
    weights = next;
    terms = solve(weights);
  }
  return terms;
}

/// Returns the median of measured time / `values`, over the values above 0; 0 if there are none.
inline double median_ratio(const measurements& m, const ArrayXd& values) {
  std::vector<double> ratios;
  for (Eigen::Index i = 0; i < values.size(); ++i)
    if (values(i) > 0) ratios.push_back(m.seconds(i) / values(i));
  return ratios.empty() ? 0 : median(Eigen::Map<const ArrayXd>(ratios.data(), std::ssize(ratios)));
}

inline cost_terms fit(const measurements& m, term_set set, const cost_fit_options& options) {
  const std::vector<int> terms = terms_of(set);
  ArrayXd start = ArrayXd::Zero(m.seconds.size());
  for (const int k : terms) start += median_ratio(m, m.work.col(k)) / static_cast<double>(terms.size()) * m.work.col(k);
  return reweighted(m, start, options, [&](const ArrayXd& weights) { return non_negative(m, weights, set); });
}

/// Returns `base` times the factor that fits best, if `base` predicts a time above 0 for some measurement.
inline std::optional<cost_terms> scale(const measurements& m, const cost_terms& base, const cost_fit_options& options) {
  const ArrayXd times = predicted(m, base);
  if (!(times > 0).any()) return std::nullopt;  // also if they are NaN
  return reweighted(m, median_ratio(m, times) * times, options, [&](const ArrayXd& weights) {
    const ArrayXd x = times * weights;
    const double factor = (x * m.seconds * weights).sum() / x.square().sum();
    return cost_terms{base.latency * factor, base.flops * factor, base.bytes * factor};
  });
}

inline ArrayXd relative_errors(const measurements& m, const cost_terms& terms, double shortest) {
  return (predicted(m, terms) - m.seconds).abs() / m.seconds.max(shortest);
}

/// Mean errors at groups that were left out of a fit; NaN for fewer than two groups.
struct held_out {
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< the measure by which terms are chosen
  double relative = std::numeric_limits<double>::quiet_NaN();
};
template <class Train>
held_out cross_validate(const measurements& m, std::size_t groups, const cost_fit_options& options,
                        const Train& train) {
  if (groups < 2) return {};
  const auto folds = static_cast<int>(std::min<std::size_t>(groups, options.folds));
  const auto n = static_cast<double>(m.seconds.size());
  held_out out{0, 0};
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<Eigen::Index> left, rest;
    for (Eigen::Index i = 0; i < m.group.size(); ++i) (m.group(i) % folds == fold ? left : rest).push_back(i);
    const std::optional<cost_terms> terms = train(m.subset(rest));
    if (!terms) return {};
    const measurements left_out = m.subset(left);
    const ArrayXd times = predicted(left_out, *terms), errors = (times - left_out.seconds).abs();
    // The error is relative to the larger of both times, so half and double count the same. Relative to the measured
    // time, a prediction of 0 would have a small error.
    const bool relative = options.weighting == fit_weighting::relative;
    out.loss += (relative ? errors / times.max(left_out.seconds).max(options.shortest) : errors).sum() / n;
    out.relative += relative_errors(left_out, *terms, options.shortest).sum() / n;
  }
  return out;
}

inline void describe(kind_fit& f, const measurements& m, double shortest) {
  const ArrayXd errors = relative_errors(m, f.terms, shortest);
  f.samples = static_cast<std::size_t>(m.seconds.size());
  f.mean_relative_error = errors.mean();
  f.largest_relative_error = errors.maxCoeff<Eigen::PropagateNaN>();
  const double mean = m.seconds.mean(), spread = (m.seconds - mean).square().sum();
  const double missed = (predicted(m, f.terms) - m.seconds).square().sum();
  // If all times are equal, the spread is only rounding error.
  const double rounding = 1e-18 * mean * mean * static_cast<double>(f.samples);
  f.r_squared = spread > rounding ? 1 - missed / spread : missed <= rounding ? 1 : 0;
}

/// Returns the allowed terms whose figures are known for all measurements.
inline term_set known(const measurements& m, term_set allowed) {
  for (const int k : {bytes_term, flops_term})
    if (m.work.col(k).hasNaN()) allowed &= ~(1U << k);
  return allowed;
}

/// Orders the measurements by size and makes a group of each size, so that neighbours are left out in different folds.
/// Returns the number of groups.
inline std::size_t group_by_size(measurements& m) {
  const auto key = [&](Eigen::Index i) {  // −1 in place of NaN, which has no order
    const double flops = m.work(i, flops_term), bytes = m.work(i, bytes_term);
    return std::pair(std::isnan(flops) ? -1.0 : flops, std::isnan(bytes) ? -1.0 : bytes);
  };
  std::vector<Eigen::Index> order(static_cast<std::size_t>(m.seconds.size()));
  std::iota(order.begin(), order.end(), Eigen::Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Eigen::Index a, Eigen::Index b) { return key(a) < key(b); });
  m = m.subset(order);
  int groups = 0;
  for (Eigen::Index i = 0; i < m.group.size(); ++i) {
    if (i == 0 || key(i - 1) < key(i)) ++groups;
    m.group(i) = groups - 1;
  }
  return static_cast<std::size_t>(groups);
}

/// Chooses the set of terms with the least error at the groups that are left out. `base`, scaled, is a candidate if it
/// is given.
inline void choose(kind_fit& f, const measurements& m, std::size_t groups, term_set allowed,
                   const cost_fit_options& options, const cost_terms* base) {
  constexpr double worth_a_term = 0.9;  // a later candidate must reduce the error by a tenth
  double least = std::numeric_limits<double>::infinity();
  const double rounding = 1e-9 * (options.weighting == fit_weighting::relative ? 1 : m.seconds.maxCoeff());
  const auto consider = [&](fit_source source, const cost_terms& terms, const auto& train) {
    const held_out error = cross_validate(m, groups, options, train);
    if (!(error.loss < worth_a_term * least - rounding)) return;
    f.terms = terms;
    f.source = source;
    f.held_out_error = error.relative;
    least = error.loss;
  };
  const std::size_t fold = (groups + options.folds - 1) / options.folds;
  for (const term_set set : all_sets) {
    // The groups that are left must determine all terms.
    if ((set & ~allowed) != 0 || groups < fold + terms_of(set).size()) continue;
    consider(fit_source::own, fit(m, set, options),
             [&](const measurements& rest) { return std::optional<cost_terms>(fit(rest, set, options)); });
  }
  std::optional<cost_terms> scaled;
  if (base != nullptr) scaled = scale(m, *base, options);
  if (scaled)
    consider(fit_source::scaled, *scaled, [&](const measurements& rest) { return scale(rest, *base, options); });
  if (least != std::numeric_limits<double>::infinity()) return;
  f.terms = scaled ? *scaled : fit(m, allowed, options);  // one size alone
  if (scaled) f.source = fit_source::scaled;
}

/// The measurements of all kinds, ordered by kind. The group of each is the position of its kind in `kinds`.
struct collection {
  measurements all;
  std::vector<kind_fit> kinds;  // ascending by name, not fitted yet
};

/// Checks the options and returns the allowed terms.
inline term_set check_options(const cost_fit_options& options) {
  if (options.folds < 2) throw bad_argument("folds is " + std::to_string(options.folds) + "; it must be at least 2");
  if (!(options.shortest > 0) || !std::isfinite(options.shortest))
    throw bad_argument("shortest is " + detail::number_text(options.shortest) +
                       " seconds; it must be above 0 and finite");
  const term_set allowed = unsigned{options.bytes} << bytes_term | unsigned{options.flops} << flops_term |
                           unsigned{options.latency} << latency_term;
  if (allowed == 0) throw bad_argument("a fit needs at least one of the terms latency, flops and bytes");
  return allowed;
}

/// Checks the samples and orders them by kind.
inline collection collect(std::span<const cost_sample> samples, term_set allowed, const cost_fit_options& options) {
  if (samples.empty()) throw bad_argument("there is no measured time to fit a cost model to");
  const auto usable = [](double x) { return x >= 0 && std::isfinite(x); };

  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return samples[a].kind < samples[b].kind; });
  const auto n = static_cast<Eigen::Index>(order.size());
  collection out{{Eigen::ArrayX3d(n, num_terms), ArrayXd(n), Eigen::ArrayXi(n)}, {}};
  for (Eigen::Index at = 0; at < n; ++at) {
    const std::size_t i = order[static_cast<std::size_t>(at)];
    const cost_sample& s = samples[i];
    const auto refuse_value = [&](const char* what, double value, const char* rule) {
      throw bad_cost((s.label.empty() ? "sample " + std::to_string(i) + " (" + s.kind + ")" : s.label) + ": " + what +
                     " is " + detail::number_text(value) + "; " + rule);
    };
    if (!usable(s.seconds)) refuse_value("the measured time", s.seconds, "it must be finite and not negative");
    const auto check_work = [&](const char* what, double value, int k) {
      if (std::isnan(value) && !options.select && (allowed >> k & 1) != 0)
        refuse_value(what, value, "the fit needs it of every operation, unless it may choose its terms");
      if (!std::isnan(value) && !usable(value)) refuse_value(what, value, "it must be finite and not negative");
    };
    check_work("flops", s.work.flops, flops_term);
    check_work("bytes accessed", s.work.bytes, bytes_term);
    if (out.kinds.empty() || out.kinds.back().kind != s.kind) out.kinds.push_back({.kind = s.kind});
    out.all.work.row(at) << s.work.bytes, s.work.flops, 1;
    out.all.seconds(at) = s.seconds;
    out.all.group(at) = static_cast<int>(out.kinds.size()) - 1;
  }
  return out;
}

/// Fits `f` to the measurements with the terms `set`, or those of them that cross-validation chooses.
inline void fit_one(kind_fit& f, const measurements& m, std::size_t groups, term_set set,
                    const cost_fit_options& options, const cost_terms* base) {
  if (options.select)
    choose(f, m, groups, set, options, base);
  else
    f.terms = fit(m, set, options);
}

/// Fits all kinds together. Cross-validation leaves out kinds, or sizes if there is only one kind.
inline kind_fit fit_pooled(const collection& c, term_set allowed, const cost_fit_options& options) {
  kind_fit pooled;
  measurements by_size = c.all;
  pooled.sizes = group_by_size(by_size);
  const bool one_kind = c.kinds.size() < 2;
  const measurements& m = one_kind ? by_size : c.all;
  if (const term_set terms = known(m, allowed); terms != 0)
    fit_one(pooled, m, one_kind ? pooled.sizes : c.kinds.size(), terms, options, nullptr);
  else
    pooled.terms.latency = std::numeric_limits<double>::quiet_NaN();  // no prediction
  pooled.source = fit_source::pooled;
  describe(pooled, m, options.shortest);
  return pooled;
}

REMAT_INLINE fits fit_kinds(std::span<const cost_sample> samples, const cost_fit_options& options) {
  const term_set allowed = check_options(options);
  collection c = collect(samples, allowed, options);
  const kind_fit pooled = fit_pooled(c, allowed, options);
  Eigen::Index next = 0;
  for (std::size_t k = 0; k < c.kinds.size(); ++k) {
    kind_fit& f = c.kinds[k];
    std::vector<Eigen::Index> of_kind;
    for (; next < c.all.group.size() && c.all.group(next) == static_cast<int>(k); ++next) of_kind.push_back(next);
    measurements m = c.all.subset(of_kind);
    f.sizes = group_by_size(m);
    const term_set terms = known(m, allowed);
    if (terms == 0)
      throw bad_cost("kind " + f.kind + ": none of the allowed terms is known for all of its measured operations");
    fit_one(f, m, f.sizes, terms, options, &pooled.terms);
    describe(f, m, options.shortest);
  }
  return {std::move(c.kinds), pooled};
}

REMAT_INLINE void refuse(const std::string& operation, const std::string& kind, const kind_fit& f,
                         const operation_work& work) {
  if (std::isnan(f.terms.latency))
    throw bad_cost(operation + ": its kind (" + kind +
                   ") was not measured, and no allowed term is known for all operations that were");
  throw bad_cost(operation + " has no " + (f.terms.flops != 0 && std::isnan(work.flops) ? "flops" : "bytes accessed") +
                 ", which the fitted time of its kind (" + kind + ", " + std::string(to_string(f.source)) + ") needs");
}

}  // namespace detail::fitted

}  // namespace REMAT_NAMESPACE
