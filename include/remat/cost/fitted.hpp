// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/detail/label.hpp"

namespace REMAT_NAMESPACE {

/// The work of an operation, on which its time depends. NaN stands for a figure that is not known.
struct operation_work {
  double flops = std::numeric_limits<double>::quiet_NaN();  ///< floating-point operations
  double bytes = std::numeric_limits<double>::quiet_NaN();  ///< bytes of memory traffic
};

/// Returns the work that a graph states. If the graph knows the sizes of tensors but not the bytes accessed, the bytes
/// are those of the operation's inputs and outputs: each is read or written at least once.
struct stated_work {
  /// Returns the work of operation `o`.
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

/// The kind of an operation is its name.
struct operation_name {
  /// Returns the name of operation `o`.
  template <named_graph G>
  [[nodiscard]] std::string operator()(const G& g, op_id o) const {
    return std::string(std::string_view(g.name(o)));
  }
};

/// One measurement: an operation's kind, work and time.
struct cost_sample {
  std::string kind{};     ///< the operation's kind, for instance its name
  operation_work work{};  ///< the work of one run
  double seconds = 0;     ///< measured time of one run
  std::string label{};    ///< the operation, for messages
};

/// The terms of a time in seconds: latency + flops of the operation × `flops` + its bytes × `bytes`. No term is
/// negative.
struct cost_terms {
  double latency = 0;  ///< seconds for each run
  double flops = 0;    ///< seconds for a floating-point operation
  double bytes = 0;    ///< seconds for a byte of memory traffic

  /// Returns the time of an operation, in seconds; NaN if a term other than 0 needs a figure that is not known.
  [[nodiscard]] double operator()(const operation_work& w) const noexcept {
    return latency + (flops == 0 ? 0 : flops * w.flops) + (bytes == 0 ? 0 : bytes * w.bytes);
  }
};

/// The origin of a kind's terms. `own`: fitted to the kind's own measurements. `scaled`: the terms of all kinds
/// together, times a factor of the kind's own. `pooled`: the terms of all kinds together.
enum class fit_source : std::uint8_t { own, scaled, pooled };

/// Returns the name of the enumerator.
[[nodiscard]] constexpr std::string_view to_string(fit_source s) noexcept {
  constexpr std::array<std::string_view, 3> names{"own", "scaled", "pooled"};
  return names[static_cast<std::size_t>(s)];
}

/// The fit of one kind, and its quality.
struct kind_fit {
  std::string kind{};                   ///< the kind of the operations; empty for all kinds together
  cost_terms terms{};                   ///< the fitted terms
  fit_source source = fit_source::own;  ///< the origin of the terms
  std::size_t samples = 0;              ///< measurements of the kind
  std::size_t sizes = 0;                ///< how many sizes of work the samples have
  double r_squared = 0;               ///< R² of the seconds, at most 1; also 1 if all are equal and predicted exactly
  double mean_relative_error = 0;     ///< |predicted − measured| / measured; a measured 0 counts as `shortest`
  double largest_relative_error = 0;  ///< the largest relative error of one sample
  /// Mean relative error at sizes that were left out of the fit (for `pooled`, at kinds); NaN if there is only one.
  double held_out_error = std::numeric_limits<double>::quiet_NaN();
};

/// The errors that a fit makes small. `relative`: errors as a fraction of the predicted time, so that short operations
/// count as much as long ones. `absolute`: errors in seconds.
enum class fit_weighting : std::uint8_t { relative, absolute };

/// Options of `fit_cost`.
struct cost_fit_options {
  bool latency = true;  ///< allow this term
  bool flops = true;    ///< allow this term
  bool bytes = true;    ///< allow this term
  /// Choose among the allowed terms by cross-validation. Otherwise all are used, and every sample must have the figures
  /// that they need.
  bool select = true;
  fit_weighting weighting = fit_weighting::relative;  ///< the errors that count
  bool robust = true;                                 ///< outliers weigh less (Huber)
  double shortest = 1e-7;  ///< seconds; shorter times weigh like this one. The default is the resolution of a clock
  unsigned folds = 8;      ///< folds of the cross-validation, at least 2
};

namespace detail::fitted {

/// The fits of all kinds, ascending by name, and of all kinds together.
struct fits {
  std::vector<kind_fit> kinds;
  kind_fit pooled;
};

/// The body of `fit_cost`.
[[nodiscard]] fits fit_kinds(std::span<const cost_sample> samples, const cost_fit_options& options);

/// Throws `bad_cost` for an operation whose figures the fit `f` of its kind needs and the graph does not know.
[[noreturn]] void refuse(const std::string& operation, const std::string& kind, const kind_fit& f,
                         const operation_work& work);

}  // namespace detail::fitted

/// Returns the measurements of a graph's operations. Operations whose seconds are NaN were not measured and are left
/// out. To fit one model to several graphs, for instance to several batch sizes, append their samples.
/// Throws `bad_argument` if there are not as many seconds as operations.
template <data_flow_graph G, class Kind = operation_name, class Work = stated_work>
requires std::is_invocable_r_v<std::string, const Kind&, const G&, op_id> &&
    std::is_invocable_r_v<operation_work, const Work&, const G&, op_id>
[[nodiscard]] std::vector<cost_sample> cost_samples(const G& graph, std::span<const double> seconds,
                                                    const Kind& kind = {}, const Work& work = {}) {
  const auto n = static_cast<std::size_t>(graph.num_operations());
  if (seconds.size() != n)
    throw bad_argument(std::to_string(seconds.size()) + " seconds for " + detail::count_of(n, "operation") +
                       "; expected one for each, NaN for one that was not measured");
  std::vector<cost_sample> samples;
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isnan(seconds[i])) continue;
    const auto o = static_cast<op_id>(i);
    samples.push_back({kind(graph, o), work(graph, o), seconds[i], detail::label(graph, o)});
  }
  return samples;
}

/// A cost model fitted to measured times: one linear function of flops and bytes for each kind of operation.
///
/// Models `cost_model` for all graphs that `Kind` and `Work` accept, also of other sizes. The terms of all kinds
/// together predict the kinds that were not measured.
template <class Kind = operation_name, class Work = stated_work>
class fitted_cost {
 public:
  /// A model without terms: every operation takes no time.
  fitted_cost() = default;
  /// `kinds` ascending by name. See `fit_cost`.
  fitted_cost(std::vector<kind_fit> kinds, kind_fit pooled, Kind kind = {}, Work work = {})
      : kinds_(std::move(kinds)), pooled_(std::move(pooled)), kind_(std::move(kind)), work_(std::move(work)) {}

  /// Returns the fits of the kinds that were measured, ascending by name.
  [[nodiscard]] std::span<const kind_fit> kinds() const noexcept { return kinds_; }
  /// Returns the fit of all kinds together.
  [[nodiscard]] const kind_fit& pooled() const noexcept { return pooled_; }

  /// Returns the fit of a kind, or that of all kinds together if the kind was not measured. O(log kinds) time.
  [[nodiscard]] const kind_fit& of(std::string_view kind) const noexcept {
    const auto at = std::lower_bound(kinds_.begin(), kinds_.end(), kind,
                                     [](const kind_fit& f, std::string_view k) { return f.kind.compare(k) < 0; });
    return at != kinds_.end() && at->kind == kind ? *at : pooled_;
  }

  /// Returns the time in seconds. Throws `bad_cost`, with the operation's name, if the graph does not know a figure
  /// that the terms of its kind need.
  template <data_flow_graph G>
  requires std::is_invocable_r_v<std::string, const Kind&, const G&, op_id> &&
      std::is_invocable_r_v<operation_work, const Work&, const G&, op_id>
  [[nodiscard]] double time(const G& g, op_id o) const {
    const std::string kind = kind_(g, o);
    const operation_work work = work_(g, o);
    const kind_fit& f = of(kind);
    const double seconds = f.terms(work);
    if (std::isnan(seconds)) detail::fitted::refuse(detail::label(g, o), kind, f, work);
    return seconds;
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
/// \cite wedderburn1974quasi) and robust against outliers \cite huber1964robust. Cross-validation chooses the terms of
/// a kind: the measured sizes are left out in turn, and a further term must reduce the error at them by a tenth. One
/// candidate is the terms of all kinds together, times a factor; a kind that was measured at one size alone gets these.
/// A fit that is exact at the measured sizes may be wrong at others; `held_out_error` shows this, and is NaN for one
/// size. With `select`, a kind has a term only if all its samples have the figure that the term needs; without, a
/// missing figure is an error. O(samples) time for each kind, set of terms and fold. Throws `bad_argument` for no
/// samples, no allowed terms, less than 2 folds, or a `shortest` that is not above 0; `bad_cost`, with the operation's
/// name, for a time or work that is negative or infinite.
template <class Kind = operation_name, class Work = stated_work>
[[nodiscard]] fitted_cost<Kind, Work> fit_cost(std::span<const cost_sample> samples,
                                               const cost_fit_options& options = {}, Kind kind = {}, Work work = {}) {
  detail::fitted::fits found = detail::fitted::fit_kinds(samples, options);
  return {std::move(found.kinds), std::move(found.pooled), std::move(kind), std::move(work)};
}

/// Fits a cost model to the measured times of one graph's operations; NaN for one that was not measured. Throws as
/// `cost_samples` and the function above do.
///
///     const auto model = fit_cost(graph, times.seconds);
///     const problem larger(graph_of_batch_64, model);
template <data_flow_graph G, class Kind = operation_name, class Work = stated_work>
[[nodiscard]] fitted_cost<Kind, Work> fit_cost(const G& graph, std::span<const double> seconds,
                                               const cost_fit_options& options = {}, Kind kind = {}, Work work = {}) {
  const std::vector<cost_sample> samples = cost_samples(graph, seconds, kind, work);
  return fit_cost(std::span<const cost_sample>(samples), options, std::move(kind), std::move(work));
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/cost/impl/fitted.hpp"
#endif
