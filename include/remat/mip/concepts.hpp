// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE {

/// How a backend's search ended.
enum class mip_status : std::uint8_t {
  optimal,      ///< the values are the best, within the gap of the options
  feasible,     ///< values were found, and it is not proven that they are the best
  infeasible,   ///< no values meet the model
  unbounded,    ///< the objective has no least value
  no_solution,  ///< the search was stopped before it found values, which proves nothing
  failed        ///< the backend broke down; `mip_result::message` says how
};

/// The names of the statuses, as in the source: "optimal" and so on.
template <>
struct enum_names<mip_status> {
  /// Value and name.
  static constexpr std::array<std::pair<mip_status, std::string_view>, 6> all{{{mip_status::optimal, "optimal"},
                                                                               {mip_status::feasible, "feasible"},
                                                                               {mip_status::infeasible, "infeasible"},
                                                                               {mip_status::unbounded, "unbounded"},
                                                                               {mip_status::no_solution, "no_solution"},
                                                                               {mip_status::failed, "failed"}}};
};

/// The start, the limits and the callbacks of one call of a backend.
struct mip_options {
  static constexpr std::uint64_t no_node_limit =
      std::numeric_limits<std::uint64_t>::max();  ///< stands for "no limit on nodes"

  /// Values to start from, one for every column; empty: none. Values that break the model are not used.
  std::vector<double> start{};
  double relative_gap = 0;  ///< the search ends as optimal when objective − bound ≤ this × |objective|
  std::uint64_t max_nodes = no_node_limit;  ///< nodes of the search tree
  /// Called with every better solution (values, objective).
  std::function<void(std::span<const double>, double)> on_incumbent{};
  /// Called with every better bound on the objective.
  std::function<void(double)> on_bound{};
  /// Work: a unit of `work_of` for each `mip_operations_per_work`, and `work_of::move` for each node of the search
  /// tree. `on_progress` gets the objective and the bound.
  run_control run{};
};

/// Operations of the simplex method on single coefficients that make a unit of work.
inline constexpr std::uint64_t mip_operations_per_work = 512;

/// Returns the operations of one iteration of the simplex method, some passes over the coefficients, on a model.
[[nodiscard]] inline std::uint64_t mip_operations_of_iteration(const mip_model& m) noexcept {
  return 4 * static_cast<std::uint64_t>(m.num_terms() + m.num_rows() + m.num_columns());
}

/// How far values may be from meeting the model, as `mip_model::violation` measures it.
inline constexpr double mip_tolerance = 1e-5;

/// A backend's answer. Objective and bound are floating point and hold within the backend's tolerances: they prove
/// nothing.
struct mip_result {
  mip_status status = mip_status::no_solution;                 ///< how the search ended
  std::vector<double> values{};                                ///< integer columns have whole values
  double objective = std::numeric_limits<double>::infinity();  ///< the objective of the values
  double bound = -std::numeric_limits<double>::infinity();  ///< a bound on all solutions' objectives; +∞: none exists
  std::uint64_t nodes = 0;                                  ///< the nodes of the search tree
  std::uint64_t work = 0;                                   ///< the work that the search has taken (`mip_options::run`)
  double seconds = 0;                                       ///< wall clock
  std::string message{};                                    ///< one line for people; may be empty
};

/// A backend that solves `mip_model`s: a stateless object with a name.
///
/// `b.solve(model, options)` does not change the model, and may be called from several threads at once. It obeys the
/// stop token and the limits of `options.run` (each backend says how soon). It calls the callbacks on the thread that
/// called it, and lets their exceptions through. It returns the best values found by then, never worse than a valid
/// start. The values meet the model within `mip_tolerance`. It throws `bad_argument` for a `relative_gap` that is NaN
/// or negative.
///
/// Solvers take no backend at its word. `mip_backend_ref::solve`, through which all of them call it, checks each
/// answer: one that breaks these promises, or an exception, counts as `mip_status::failed`. The solver goes on without
/// it, and its message has the reason.
///
/// Models: `branch_and_bound_backend`, `cbc_backend`, `command_backend`.
template <class B>
concept mip_backend = requires(const B& b, const mip_model& model, const mip_options& options) {
  { B::name } -> std::convertible_to<std::string_view>;
  { b.solve(model, options) } -> std::same_as<mip_result>;
};

/// What backends failed at during a solve: the answers with `mip_status::failed` that `mip_backend_ref::solve` has
/// returned. Threads may share it.
class mip_failures {
 public:
  /// Notes the failure of a backend.
  void note(std::string_view backend, std::string_view text);
  /// The number of failures.
  [[nodiscard]] std::uint64_t count() const;
  /// The first failure, for people: "the backend cbc failed: …"; empty without a failure.
  [[nodiscard]] std::string first() const;

 private:
  mutable std::mutex mutex_;  // one mutex for the members below
  std::uint64_t count_ = 0;
  std::string first_;
};

/// Refers to a MIP backend of any type: what solvers take as an argument, so that they need not be templates.
///
/// It does not own the backend, which must live as long as it is used. Some pointers and a name; copies are cheap.
class mip_backend_ref {
 public:
  /// Refers to `backend`, which must outlive the reference and all copies of it.
  template <mip_backend B>
  requires(!std::same_as<B, mip_backend_ref>)
      mip_backend_ref(const B& backend)  // NOLINT: an implicit conversion, as of std::string_view
      : name_(B::name),
        backend_(std::addressof(backend)),
        solve_([](const void* b, const mip_model& model, const mip_options& options) {
          return static_cast<const B*>(b)->solve(model, options);
        }) {}

  /// The backend's name.
  [[nodiscard]] std::string_view name() const noexcept { return name_; }

  /// The same backend; its failures are noted in `failures`, which must outlive the reference.
  [[nodiscard]] mip_backend_ref noting(mip_failures& failures) const noexcept {
    mip_backend_ref noted(*this);
    noted.failures_ = &failures;
    return noted;
  }

  /// Calls `solve` of the backend, and checks what it returns. The answer then holds what the concept promises:
  ///  - `optimal` and `feasible` come with one finite value for each column; the values meet the model within
  ///    `mip_tolerance`, and `on_incumbent` has heard of them;
  ///  - `objective` is that of the values, infinite if there are none; `bound` is no NaN, and not above the objective;
  ///  - `infeasible` does not contradict `options.start`;
  ///  - `work` is at most the limit, and `seconds` are finite.
  /// An answer that breaks a promise has the status `failed`, no bound, the values if they meet the model, and a
  /// message that names the promise. So has an exception of the backend, whose text is the message. Values for
  /// `on_incumbent` that are not one finite number for each column are left out; whether the others meet the model is
  /// for the callback to check.
  ///
  /// Throws `bad_argument` for a `relative_gap` that is NaN or negative, what the callbacks throw, and
  /// `std::bad_alloc`. Beside the backend's, O(terms) time.
  [[nodiscard]] mip_result solve(const mip_model& model, const mip_options& options) const;

 private:
  std::string_view name_;
  const void* backend_;
  mip_result (*solve_)(const void*, const mip_model&, const mip_options&);
  mip_failures* failures_ = nullptr;
};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/mip/impl/concepts.hpp"
#endif
