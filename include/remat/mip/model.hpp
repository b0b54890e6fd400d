// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/foreign_call.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"

namespace REMAT_NAMESPACE {

/// A coefficient of a row.
struct mip_term {
  std::uint32_t column = 0;  ///< the number of the column
  double value = 0;          ///< the coefficient of the column's variable
};

/// A mixed-integer linear program: minimise offset + Σ cost · x within bounds of columns and rows, some columns
/// integer.
///
/// It knows nothing of any backend. Columns and rows are numbered from 0 in the order in which they are added.
///
///     mip_model m;
///     const auto x = m.add_integer(-1, 0, 1), y = m.add_column(-2, 0, 4);
///     m.add_row(-mip_model::infinite, {{x, 3}, {y, 1}}, 5);   // 3x + y ≤ 5
class mip_model {
 public:
  static constexpr double infinite =
      std::numeric_limits<double>::infinity();  ///< no bound, if it stands as one (with either sign)
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();  ///< stands for "no column"

  double offset = 0;  ///< added to the objective

  /// Adds a continuous column and returns its number. Throws `bad_argument` if the cost is not finite, or if no number
  /// is within the bounds.
  std::uint32_t add_column(double cost, double lower, double upper);

  /// Adds a column that takes whole values only, and returns its number. Throws as `add_column`.
  std::uint32_t add_integer(double cost, double lower, double upper);

  /// Adds the row lower ≤ Σ terms ≤ upper and returns its number. Coefficients of one column are added up, and left out
  /// if the sum is 0. Throws `bad_argument` for a column that does not exist, a coefficient that is not finite, or
  /// impossible bounds.
  std::uint32_t add_row(double lower, std::span<const mip_term> terms, double upper);
  /// \overload
  std::uint32_t add_row(double lower, std::initializer_list<mip_term> terms, double upper) {
    return add_row(lower, std::span<const mip_term>(terms.begin(), terms.size()), upper);
  }

  /// Changes the bounds of a column. Throws as `add_column`.
  void set_bounds(std::uint32_t column, double lower, double upper);
  /// Makes a column integer or continuous. Throws `std::out_of_range` for a column that does not exist.
  void set_integer(std::uint32_t column, bool integer) { columns_.at(column).integer = integer; }

  /// The number of columns.
  [[nodiscard]] std::size_t num_columns() const noexcept { return columns_.size(); }
  /// The number of rows.
  [[nodiscard]] std::size_t num_rows() const noexcept { return row_lower_.size(); }
  /// The number of coefficients that are not 0, of all rows.
  [[nodiscard]] std::size_t num_terms() const noexcept { return terms_.size(); }
  /// The column's factor in the objective. Precondition, here and below: the column or row exists.
  [[nodiscard]] double cost(std::size_t column) const noexcept { return columns_[column].cost; }
  /// The column's least value; −`infinite` if it has none.
  [[nodiscard]] double lower(std::size_t column) const noexcept { return columns_[column].lower; }
  /// The column's largest value; `infinite` if it has none.
  [[nodiscard]] double upper(std::size_t column) const noexcept { return columns_[column].upper; }
  /// True when the column takes whole values only.
  [[nodiscard]] bool is_integer(std::size_t column) const noexcept { return columns_[column].integer; }
  /// The row's lower bound; −`infinite` if it has none.
  [[nodiscard]] double row_lower(std::size_t row) const noexcept { return row_lower_[row]; }
  /// The row's upper bound; `infinite` if it has none.
  [[nodiscard]] double row_upper(std::size_t row) const noexcept { return row_upper_[row]; }
  /// The row's coefficients, by column, none of them 0.
  [[nodiscard]] std::span<const mip_term> row(std::size_t row) const noexcept {
    return {terms_.data() + row_begin_[row], terms_.data() + row_begin_[row + 1]};
  }

  /// The objective at `values`, `offset` included. Precondition: `values` has one number for every column.
  [[nodiscard]] double objective(std::span<const double> values) const noexcept;

  /// The largest violation of a bound, of a row, or of an integer column by `values`. A row's violation is divided by
  /// its largest coefficient if that is above 1. Infinite unless `values` has one finite number for every column.
  /// O(terms) time.
  [[nodiscard]] double violation(std::span<const double> values) const noexcept;

 private:
  static void check_bounds(const char* what, std::size_t i, double lower, double upper);

  struct column_data {
    double cost, lower, upper;
    bool integer;
  };

  std::vector<column_data> columns_;
  std::vector<std::size_t> row_begin_{0};
  std::vector<mip_term> terms_;
  std::vector<double> row_lower_, row_upper_;
};

/// Writes a model in free MPS, the text format that MIP solvers read.
///
/// Column j is named `c<j>`, row i `r<i>`, and the objective, which is minimised, `cost`. Numbers have as many digits
/// as they need to be read back unchanged. Both bounds of every column are written, because readers disagree on the
/// bounds of integer columns that have none. A row without bounds is left out. `mip_model::offset` stands in a comment
/// only, because readers disagree on its sign: add it to the objective that a solver reports.
///
/// `name` stands in the file as the model's name; blanks in it become underscores. O(terms + rows + columns) time.
/// Throws nothing of its own: look at the stream's state afterwards.
void write_mps(std::ostream& out, const mip_model& model, std::string_view name = "remat");

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

/// The failures of backends during a solve: the answers with `mip_status::failed` that `mip_backend_ref::solve` has
/// returned. Threads may share it.
class mip_failures {
 public:
  /// Notes the failure of a backend.
  void note(std::string_view backend, std::string_view text);
  /// The number of failures.
  [[nodiscard]] std::uint64_t count() const { return failures_.count(); }
  /// The first failure, for people: "the backend cbc failed: …"; empty without a failure.
  [[nodiscard]] std::string first() const { return failures_.first(); }

 private:
  detail::foreign_failures failures_;
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
#include "remat/mip/impl/model.hpp"
#endif
