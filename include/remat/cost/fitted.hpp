// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// What an operation does, as far as its time depends on it. NaN: not known.
struct operation_work {
  double flops = std::numeric_limits<double>::quiet_NaN();
  double bytes = std::numeric_limits<double>::quiet_NaN();
};

/// The work that a graph states. Where it says nothing of the bytes accessed, those of the operation's inputs and
/// outputs, if the graph knows them: each is read or written at least once.
struct stated_work {
  template <data_flow_graph G>
  [[nodiscard]] operation_work operator()(const G& g, op_id o) const {
    operation_work w;
    if constexpr (profiled_graph<G>) w = {static_cast<double>(g.flops(o)), static_cast<double>(g.bytes_accessed(o))};
    if constexpr (sized_graph<G>)
      if (std::isnan(w.bytes)) {
        w.bytes = 0;
        for (const tensor_id t : g.inputs(o)) w.bytes += static_cast<double>(g.bytes(t));
        for (const tensor_id t : g.outputs(o)) w.bytes += static_cast<double>(g.bytes(t));
      }
    return w;
  }
};

/// Operations of one name are of one kind.
struct operation_name {
  template <named_graph G>
  [[nodiscard]] std::string operator()(const G& g, op_id o) const {
    return std::string(std::string_view(g.name(o)));
  }
};

/// One measurement: an operation's kind, work and time.
struct cost_sample {
  std::string kind{};
  operation_work work{};
  double seconds = 0;
  std::string label{};  ///< the operation, for messages
};

/// Seconds as a sum: latency + flops × `flops` + bytes × `bytes`, none of them negative.
struct cost_terms {
  double latency = 0;
  double flops = 0;
  double bytes = 0;

  /// NaN where the work does not tell what a term needs; a term that is 0 needs nothing.
  [[nodiscard]] double operator()(const operation_work& w) const noexcept {
    return latency + (flops == 0 ? 0 : flops * w.flops) + (bytes == 0 ? 0 : bytes * w.bytes);
  }
};

/// Whose measurements a kind's terms come from. `own`: its own. `scaled`: the terms that are pooled over all kinds,
/// times a factor of its own. `pooled`: those, as they are.
enum class fit_source : std::uint8_t { own, scaled, pooled };

[[nodiscard]] constexpr std::string_view to_string(fit_source s) noexcept {
  constexpr std::array<std::string_view, 3> names{"own", "scaled", "pooled"};
  return names[static_cast<std::size_t>(s)];
}

/// The fit of one kind and what it is worth.
struct kind_fit {
  std::string kind{};
  cost_terms terms{};
  fit_source source = fit_source::own;
  std::size_t samples = 0;
  std::size_t sizes = 0;              ///< different works among them
  double r_squared = 0;               ///< of the seconds, at most 1; 1 also where all are the same and met
  double mean_relative_error = 0;     ///< |predicted − measured| / measured; a measured 0 counts as `shortest`
  double largest_relative_error = 0;  ///< same
  /// Mean relative error at sizes (`pooled`: at kinds) that were left out of the fit; NaN where there is but one.
  double held_out_error = std::numeric_limits<double>::quiet_NaN();
};

/// What a fit makes small. `relative`: errors as a part of the predicted time, so that short operations count as much
/// as long ones. `absolute`: seconds.
enum class fit_weighting : std::uint8_t { relative, absolute };

struct cost_fit_options {
  bool latency = true;  ///< the terms that are allowed
  bool flops = true;
  bool bytes = true;
  /// Choose among the allowed terms by cross-validation; otherwise each is used, and every sample must tell what it
  /// needs.
  bool select = true;
  fit_weighting weighting = fit_weighting::relative;
  bool robust = true;      ///< measurements far off the others weigh less (Huber)
  double shortest = 1e-7;  ///< seconds: shorter times weigh as this one, the resolution of a clock
  unsigned folds = 8;      ///< of the cross-validation, at least 2
};

namespace detail::cost_fitting {

using columns = unsigned;  // a set of terms
inline constexpr columns bytes_column = 1, flops_column = 2, latency_column = 4;
// Of two sets that do equally well the first is taken: fewer terms, and a constant last, since it does not scale.
inline constexpr std::array<columns, 8> sets{0, 1, 2, 4, 3, 5, 6, 7};

inline double& term(cost_terms& t, columns c) noexcept {
  return c == bytes_column ? t.bytes : c == flops_column ? t.flops : t.latency;
}
inline double feature(const operation_work& w, columns c) noexcept {
  return c == bytes_column ? w.bytes : c == flops_column ? w.flops : 1.0;
}
inline int count(columns set) noexcept { return static_cast<int>((set & 1) + (set >> 1 & 1) + (set >> 2 & 1)); }

/// One row of a fit. `group` is what cross-validation leaves out together.
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

/// Solves with weights that the answer changes, until it does so no more: 1 / predicted for relative errors, times
/// Huber's function of the error where it is to be robust \cite huber1964robust. `start`: rough predictions.
///
/// By the predicted and not by the measured time: weights of 1 / measured favour what was measured too short, so that
/// predictions are too short on average \cite wedderburn1974quasi.
template <class Solve>
cost_terms reweighted(std::span<const row> rows, std::vector<double> start, const cost_fit_options& options,
                      const Solve& solve) {
  constexpr int rounds = 30;
  constexpr double efficient = 1.345, to_deviation = 1.4826;  // 95 % efficiency on normal errors
  constexpr double vanishing = 0.01;  // of the start: predictions below it do not weigh yet more
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

/// Of measured / feature; 0 where no feature is above 0.
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

/// `base` times the factor that fits best, if `base` says anything of these rows.
inline std::optional<cost_terms> scale(std::span<const row> rows, const cost_terms& base,
                                       const cost_fit_options& options) {
  const double ratio = median_ratio(rows, base);
  std::vector<double> start;
  bool any = false;
  for (const row& r : rows) {
    start.push_back(ratio * base(r.work));
    any = any || base(r.work) > 0;  // not where it is NaN
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

/// Mean errors at groups that were left out; NaN with fewer than two groups.
struct held_out {
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< what choices go by
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
      // A half and a double are equally wrong; relative to the measured time, a prediction of 0 would do well.
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
  // Times that are all the same leave a spread of rounding errors alone.
  const double rounding = 1e-18 * mean * mean * static_cast<double>(rows.size());
  f.r_squared = spread > rounding ? 1 - missed / spread : missed <= rounding ? 1 : 0;
}

/// The terms that are allowed and that every row tells enough for.
inline columns known(std::span<const row> rows, columns allowed) {
  for (const row& r : rows)
    for (const columns c : {bytes_column, flops_column})
      if (std::isnan(feature(r.work, c))) allowed &= ~c;
  return allowed;
}

/// Numbers the different works of the rows in ascending order, so that neighbours are left out in different folds.
inline std::size_t group_by_size(std::vector<row>& rows) {
  const auto key = [](const row& r) {  // NaN has no order of its own
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

/// The terms of the set that does best at what is left out; `base`: or that, scaled.
inline void choose(kind_fit& f, std::span<const row> rows, std::size_t groups, columns allowed,
                   const cost_fit_options& options, const cost_terms* base) {
  constexpr double worth_a_term = 0.9;  // what is more than what went before must take a tenth off the error
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
    // What is left must be enough to tell the terms apart.
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

}  // namespace detail::cost_fitting

/// The measurements of a graph's operations; those whose seconds are NaN were not measured and are left out.
///
/// Append the samples of several graphs (of other batch sizes, say) to fit one model to all of them.
/// Throws `bad_argument` if there are not as many seconds as operations, `bad_cost` that names the operation for a time
/// that is negative or infinite, or for work that is.
template <data_flow_graph G, class Kind = operation_name, class Work = stated_work>
requires std::is_invocable_r_v<std::string, const Kind&, const G&, op_id> &&
    std::is_invocable_r_v<operation_work, const Work&, const G&, op_id>
[[nodiscard]] std::vector<cost_sample> cost_samples(const G& graph, std::span<const double> seconds,
                                                    const Kind& kind = {}, const Work& work = {}) {
  const auto n = static_cast<std::size_t>(graph.num_operations());
  if (seconds.size() != n)
    throw bad_argument(std::to_string(seconds.size()) + " seconds for " + std::to_string(n) +
                       " operations; one for each is right, NaN where there is none");
  std::vector<cost_sample> samples;
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isnan(seconds[i])) continue;
    const auto o = static_cast<op_id>(i);
    std::string label = "operation " + std::to_string(i);
    if constexpr (named_graph<G>) label += " (" + std::string(std::string_view(graph.name(o))) + ")";
    samples.push_back({kind(graph, o), work(graph, o), seconds[i], std::move(label)});
  }
  return samples;
}

/// A cost model that was fitted to measured times: one linear function of flops and bytes for each kind of operation.
///
/// Model of `cost_model` for graphs that `Kind` and `Work` can be asked about, of the same sizes or of others. Kinds
/// that were not measured are predicted by the terms that are pooled over all kinds.
template <class Kind = operation_name, class Work = stated_work>
class fitted_cost {
 public:
  fitted_cost() = default;
  /// `kinds` ascending by name. See `fit_cost`.
  fitted_cost(std::vector<kind_fit> kinds, kind_fit pooled, Kind kind = {}, Work work = {})
      : kinds_(std::move(kinds)), pooled_(std::move(pooled)), kind_(std::move(kind)), work_(std::move(work)) {}

  [[nodiscard]] std::span<const kind_fit> kinds() const noexcept { return kinds_; }  ///< ascending by name
  [[nodiscard]] const kind_fit& pooled() const noexcept { return pooled_; }

  /// The fit of a kind; that of all kinds together where it was not measured. O(log kinds).
  [[nodiscard]] const kind_fit& of(std::string_view kind) const noexcept {
    const auto at = std::lower_bound(kinds_.begin(), kinds_.end(), kind,
                                     [](const kind_fit& f, std::string_view k) { return f.kind.compare(k) < 0; });
    return at != kinds_.end() && at->kind == kind ? *at : pooled_;
  }

  /// Seconds. Throws `bad_cost` that names the operation if the graph does not tell what its terms need.
  template <data_flow_graph G>
  requires std::is_invocable_r_v<std::string, const Kind&, const G&, op_id> &&
      std::is_invocable_r_v<operation_work, const Work&, const G&, op_id>
  [[nodiscard]] double time(const G& g, op_id o) const {
    const std::string kind = kind_(g, o);
    const operation_work work = work_(g, o);
    const kind_fit& f = of(kind);
    const double seconds = f.terms(work);
    if (!std::isnan(seconds)) return seconds;
    std::string text = "operation " + std::to_string(index(o));
    if constexpr (named_graph<G>) text += " (" + std::string(std::string_view(g.name(o))) + ")";
    if (std::isnan(f.terms.latency))
      throw bad_cost(text + ": its kind (" + kind +
                     ") was not measured, and no allowed term is known for all operations that were");
    throw bad_cost(text + " has no " + (f.terms.flops != 0 && std::isnan(work.flops) ? "flops" : "bytes accessed") +
                   ", which the fitted time of its kind (" + kind + ", " + std::string(to_string(f.source)) +
                   ") needs");
  }

 private:
  std::vector<kind_fit> kinds_;
  kind_fit pooled_;
  [[no_unique_address]] Kind kind_{};
  [[no_unique_address]] Work work_{};
};

/// Fits a cost model to measurements: for each kind of operation, seconds ≈ latency + a × flops + b × bytes.
///
/// Method: least squares with non-negative coefficients, weighted for relative errors (the Gamma quasi-likelihood
/// \cite wedderburn1974quasi) and robust against outliers \cite huber1964robust. Which of the terms a kind gets is
/// chosen by cross-validation: the sizes that were measured are left out in turn, and a further term must take a tenth
/// off the error at them. Among the candidates are the terms that are pooled over all kinds, times a factor; a kind
/// that was measured at one size alone gets those. So a time that was met exactly may be extrapolated badly:
/// `held_out_error` tells, and it is NaN for one size.
/// A term is left to those kinds whose samples all tell what it needs (with `select`; otherwise that is an error).
/// O(samples) time for each kind, set of terms and fold.
/// Throws `bad_argument` for no samples, no allowed terms, less than 2 folds or a `shortest` that is not above 0;
/// `bad_cost` that names the operation for a time or work that is negative or infinite.
template <class Kind = operation_name, class Work = stated_work>
[[nodiscard]] fitted_cost<Kind, Work> fit_cost(std::span<const cost_sample> samples,
                                               const cost_fit_options& options = {}, Kind kind = {}, Work work = {}) {
  namespace fitting = detail::cost_fitting;
  if (samples.empty()) throw bad_argument("there is no measured time to fit a cost model to");
  if (options.folds < 2) throw bad_argument("folds is " + std::to_string(options.folds) + "; it must be at least 2");
  if (!(options.shortest > 0) || !std::isfinite(options.shortest))
    throw bad_argument("shortest is " + std::to_string(options.shortest) + " seconds; it must be above 0 and finite");
  const fitting::columns allowed = (options.bytes ? fitting::bytes_column : 0) |
                                   (options.flops ? fitting::flops_column : 0) |
                                   (options.latency ? fitting::latency_column : 0);
  if (allowed == 0) throw bad_argument("a fit needs at least one of the terms latency, flops and bytes");
  const auto usable = [](double x) { return x >= 0 && std::isfinite(x); };

  std::vector<std::size_t> order(samples.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return samples[a].kind < samples[b].kind; });
  std::vector<fitting::row> all;  // group: the kind
  std::vector<kind_fit> kinds;
  for (const std::size_t i : order) {
    const cost_sample& s = samples[i];
    const auto refuse = [&](const char* what, double value, const char* right) {
      throw bad_cost((s.label.empty() ? "sample " + std::to_string(i) + " (" + s.kind + ")" : s.label) + ": " + what +
                     " is " + std::to_string(value) + "; " + right);
    };
    if (!usable(s.seconds)) refuse("the measured time", s.seconds, "it must be finite and not negative");
    for (const fitting::columns c : {fitting::flops_column, fitting::bytes_column}) {
      const double value = fitting::feature(s.work, c);
      const char* const what = c == fitting::flops_column ? "flops" : "bytes accessed";
      if (std::isnan(value) && !options.select && (allowed & c) != 0)
        refuse(what, value, "the fit needs it of every operation, unless it may choose its terms");
      if (!std::isnan(value) && !usable(value)) refuse(what, value, "it must be finite and not negative");
    }
    if (kinds.empty() || kinds.back().kind != s.kind) {
      kinds.emplace_back();
      kinds.back().kind = s.kind;
    }
    all.push_back({s.work, s.seconds, kinds.size() - 1});
  }

  kind_fit pooled;
  pooled.source = fit_source::pooled;
  {
    std::vector<fitting::row> rows = all;
    std::vector<fitting::row> by_size = all;
    const std::size_t sizes = fitting::group_by_size(by_size);
    if (kinds.size() < 2) rows = by_size;
    const fitting::columns columns = fitting::known(rows, allowed);
    if (columns == 0)
      pooled.terms.latency = std::numeric_limits<double>::quiet_NaN();  // says nothing
    else if (options.select)
      fitting::choose(pooled, rows, kinds.size() < 2 ? sizes : kinds.size(), columns, options, nullptr);
    else
      pooled.terms = fitting::fit(rows, columns, options);
    pooled.source = fit_source::pooled;
    pooled.sizes = sizes;
    fitting::describe(pooled, rows, options.shortest);
  }
  for (std::size_t first = 0, k = 0; k < kinds.size(); ++k) {
    std::size_t last = first;
    while (last < all.size() && all[last].group == k) ++last;
    std::vector<fitting::row> rows(all.begin() + static_cast<std::ptrdiff_t>(first),
                                   all.begin() + static_cast<std::ptrdiff_t>(last));
    kind_fit& f = kinds[k];
    f.sizes = fitting::group_by_size(rows);
    const fitting::columns columns = fitting::known(rows, allowed);
    if (columns == 0)
      throw bad_cost("kind " + f.kind + ": none of the allowed terms is known for all of its measured operations");
    if (options.select)
      fitting::choose(f, rows, f.sizes, columns, options, &pooled.terms);
    else
      f.terms = fitting::fit(rows, columns, options);
    fitting::describe(f, rows, options.shortest);
    first = last;
  }
  return {std::move(kinds), std::move(pooled), std::move(kind), std::move(work)};
}

/// \overload of the measured times of one graph's operations, NaN where there is none.
///
///     const auto model = fit_cost(graph, times.seconds);
///     const problem larger(graph_of_batch_64, model);
template <data_flow_graph G, class Kind = operation_name, class Work = stated_work>
[[nodiscard]] fitted_cost<Kind, Work> fit_cost(const G& graph, std::span<const double> seconds,
                                               const cost_fit_options& options = {}, Kind kind = {}, Work work = {}) {
  const std::vector<cost_sample> samples = cost_samples(graph, seconds, kind, work);
  return fit_cost(std::span<const cost_sample>(samples), options, std::move(kind), std::move(work));
}

}  // namespace remat
