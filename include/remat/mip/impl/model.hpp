// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/model.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <ostream>

#include "remat/core/detail/foreign_call.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE std::uint32_t mip_model::add_column(double cost, double lower, double upper) {
  const std::size_t j = num_columns();
  if (!std::isfinite(cost))
    throw bad_argument("column " + std::to_string(j) + ": the cost is not finite; it must be a number");
  check_bounds("column ", j, lower, upper);
  if (j >= none) throw bad_argument("more than 2^32 - 1 columns");
  columns_.push_back({cost, lower, upper, false});
  return static_cast<std::uint32_t>(j);
}

REMAT_INLINE std::uint32_t mip_model::add_integer(double cost, double lower, double upper) {
  const std::uint32_t j = add_column(cost, lower, upper);
  columns_[j].integer = true;
  return j;
}

REMAT_INLINE std::uint32_t mip_model::add_row(double lower, std::span<const mip_term> terms, double upper) {
  const std::size_t i = num_rows();
  check_bounds("row ", i, lower, upper);
  for (const mip_term& t : terms) {
    if (t.column >= num_columns())
      throw bad_argument("row " + std::to_string(i) + ": column " + std::to_string(t.column) +
                         " does not exist; there are " + std::to_string(num_columns()));
    if (!std::isfinite(t.value))
      throw bad_argument("row " + std::to_string(i) + ", column " + std::to_string(t.column) +
                         ": the coefficient is not finite; it must be a number");
  }
  const auto begin = terms_.insert(terms_.end(), terms.begin(), terms.end());
  std::sort(begin, terms_.end(), [](const mip_term& a, const mip_term& b) { return a.column < b.column; });
  auto kept = begin;
  for (auto at = begin; at != terms_.end();) {
    mip_term sum = *at;
    for (++at; at != terms_.end() && at->column == sum.column; ++at) sum.value += at->value;
    if (sum.value != 0) *kept++ = sum;
  }
  terms_.erase(kept, terms_.end());
  row_begin_.push_back(terms_.size());
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  return static_cast<std::uint32_t>(i);
}

REMAT_INLINE void mip_model::set_bounds(std::uint32_t column, double lower, double upper) {
  if (column >= num_columns())
    throw bad_argument("column " + std::to_string(column) + " does not exist; there are " +
                       std::to_string(num_columns()));
  check_bounds("column ", column, lower, upper);
  columns_[column].lower = lower;
  columns_[column].upper = upper;
}

REMAT_INLINE double mip_model::objective(std::span<const double> values) const noexcept {
  double sum = offset;
  for (std::size_t j = 0; j < columns_.size(); ++j) sum += columns_[j].cost * values[j];
  return sum;
}

REMAT_INLINE double mip_model::violation(std::span<const double> values) const noexcept {
  if (values.size() != num_columns()) return infinite;
  double largest = 0;
  for (std::size_t j = 0; j < values.size(); ++j) {
    if (!std::isfinite(values[j])) return infinite;
    const column_data& c = columns_[j];
    largest = std::max({largest, c.lower - values[j], values[j] - c.upper});
    if (c.integer) largest = std::max(largest, std::abs(values[j] - std::round(values[j])));
  }
  for (std::size_t i = 0; i < num_rows(); ++i) {
    double sum = 0, scale = 1;
    for (const mip_term& t : row(i)) {
      sum += t.value * values[t.column];
      scale = std::max(scale, std::abs(t.value));
    }
    largest = std::max({largest, (row_lower_[i] - sum) / scale, (sum - row_upper_[i]) / scale});
  }
  return largest;
}

REMAT_INLINE void mip_model::check_bounds(const char* what, std::size_t i, double lower, double upper) {
  if (!(lower <= upper) || lower == infinite || upper == -infinite)
    throw bad_argument(what + std::to_string(i) + ": the bounds are " + std::to_string(lower) + " and " +
                       std::to_string(upper) + "; the lower one must not be above the upper one");
}

namespace detail::mps_writing {

/// Writes the sections of one model.
class mps_writer {
 public:
  mps_writer(std::ostream& out, const mip_model& model) : out_(out), model_(model) {}

  void write(std::string_view name) {
    std::string word(name.empty() ? "remat" : name);
    for (char& c : word)
      if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') c = '_';
    out_ << "* minimise cost + " << text(model_.offset) << '\n';
    // "FREE" tells the readers that know fixed columns, too, not to look for them.
    out_ << "NAME " << word << " FREE\n";
    write_row_names();
    write_columns();
    write_sides();
    write_bounds();
    out_ << "ENDATA\n";
  }

 private:
  [[nodiscard]] std::string_view text(double x) {
    if (x == 0) x = 0;  // not "-0"
    const std::to_chars_result end = std::to_chars(number_, number_ + sizeof number_, x);
    return {number_, static_cast<std::size_t>(end.ptr - number_)};
  }
  [[nodiscard]] bool has_lower(std::size_t i) const { return model_.row_lower(i) != -mip_model::infinite; }
  [[nodiscard]] bool has_upper(std::size_t i) const { return model_.row_upper(i) != mip_model::infinite; }
  [[nodiscard]] bool is_equality(std::size_t i) const { return model_.row_lower(i) == model_.row_upper(i); }

  void write_row_names() {
    out_ << "ROWS\n N cost\n";
    for (std::size_t i = 0; i < model_.num_rows(); ++i) {
      if (!has_lower(i) && !has_upper(i)) continue;
      out_ << ' ' << (is_equality(i) ? 'E' : has_upper(i) ? 'L' : 'G') << " r" << i << '\n';
    }
  }

  /// The format goes by columns, the model by rows.
  void write_columns() {
    struct entry {
      std::size_t row;
      double value;
    };
    std::vector<std::vector<entry>> columns(model_.num_columns());
    for (std::size_t i = 0; i < model_.num_rows(); ++i)
      if (has_lower(i) || has_upper(i))
        for (const mip_term& t : model_.row(i)) columns[t.column].push_back({i, t.value});

    out_ << "COLUMNS\n";
    bool integer = false;
    for (std::size_t j = 0; j < model_.num_columns(); ++j) {
      if (model_.is_integer(j) != integer) mark(integer = !integer);
      out_ << " c" << j << " cost " << text(model_.cost(j)) << '\n';  // so that each column stands in the file
      for (const entry& e : columns[j]) out_ << " c" << j << " r" << e.row << ' ' << text(e.value) << '\n';
    }
    if (integer) mark(false);
  }
  void mark(bool integer) {
    out_ << " marker" << marks_++ << " 'MARKER' " << (integer ? "'INTORG'" : "'INTEND'") << '\n';
  }

  /// The right-hand sides; the other side of a row with two is a range.
  void write_sides() {
    out_ << "RHS\n";
    for (std::size_t i = 0; i < model_.num_rows(); ++i) {
      const double side = has_upper(i) ? model_.row_upper(i) : has_lower(i) ? model_.row_lower(i) : 0;
      if (side != 0) out_ << " rhs r" << i << ' ' << text(side) << '\n';
    }
    out_ << "RANGES\n";
    for (std::size_t i = 0; i < model_.num_rows(); ++i)
      if (has_lower(i) && has_upper(i) && !is_equality(i))
        out_ << " range r" << i << ' ' << text(model_.row_upper(i) - model_.row_lower(i)) << '\n';
  }

  void write_bounds() {
    out_ << "BOUNDS\n";
    for (std::size_t j = 0; j < model_.num_columns(); ++j) {
      const double lower = model_.lower(j), upper = model_.upper(j);
      if (lower == upper) {
        out_ << " FX bound c" << j << ' ' << text(lower) << '\n';
        continue;
      }
      // The lower bound first: a reader that sees a negative upper bound alone may drop the lower one.
      if (lower == -mip_model::infinite)
        out_ << " MI bound c" << j << '\n';
      else
        out_ << " LO bound c" << j << ' ' << text(lower) << '\n';
      if (upper == mip_model::infinite)
        out_ << " PL bound c" << j << '\n';
      else
        out_ << " UP bound c" << j << ' ' << text(upper) << '\n';
    }
  }

  std::ostream& out_;
  const mip_model& model_;
  std::size_t marks_ = 0;
  char number_[32];
};

}  // namespace detail::mps_writing

REMAT_INLINE void write_mps(std::ostream& out, const mip_model& model, std::string_view name) {
  detail::mps_writing::mps_writer(out, model).write(name);
}

REMAT_INLINE void mip_failures::note(std::string_view backend, std::string_view text) {
  std::string failure = "the backend ";
  failure += backend;
  failure += " failed";
  if (!text.empty()) (failure += ": ") += text;
  failures_.note(std::move(failure));
}

namespace detail::mip_answers {

/// The mistake in the form of values: empty if there is one finite number for each column.
[[nodiscard]] inline std::string wrong_form(const mip_model& model, std::span<const double> values) {
  if (values.size() != model.num_columns())
    return detail::count_of(values.size(), "value") + ", and the model has " +
           detail::count_of(model.num_columns(), "column");
  const auto wrong = std::find_if(values.begin(), values.end(), [](double x) { return !std::isfinite(x); });
  if (wrong == values.end()) return {};
  return "the value of column " + std::to_string(wrong - values.begin()) + " is " + detail::number_text(*wrong);
}

/// The mistake in the values of an answer; empty if there is none.
[[nodiscard]] inline std::string wrong_values(const mip_model& model, std::span<const double> values) {
  std::string wrong = wrong_form(model, values);
  if (!wrong.empty()) return wrong;
  if (const double by = model.violation(values); !(by <= mip_tolerance))
    return "the values break the model by " + detail::number_text(by);
  return {};
}

/// Makes the answer hold what `mip_backend_ref::solve` says. Returns the promise that it breaks; empty if it breaks
/// none.
[[nodiscard]] inline std::string mend(const mip_model& model, const mip_options& options, mip_result& r) {
  std::string broken = wrong_values(model, r.values);
  if (!broken.empty()) r.values.clear();
  const bool found = r.status == mip_status::optimal || r.status == mip_status::feasible;
  const bool has_values = broken.empty() && (found || model.num_columns() > 0);
  if (!found) broken.clear();  // it needs no values
  r.objective = has_values ? model.objective(r.values) : mip_model::infinite;
  if (!std::isfinite(r.seconds) || r.seconds < 0) r.seconds = 0;
  r.work = std::min(r.work, options.run.work_limit);
  if (broken.empty() && enum_value<mip_status>(to_string(r.status)) != r.status)
    broken = "the status is " + std::to_string(static_cast<int>(r.status));
  if (broken.empty() && std::isnan(r.bound)) broken = "the bound is NaN";
  if (broken.empty() && r.status == mip_status::infeasible &&
      (has_values || (!options.start.empty() && model.violation(options.start) <= mip_tolerance)))
    broken = "it says infeasible, and there are values that meet the model";
  if (broken.empty() && has_values && r.bound > r.objective + mip_tolerance * std::max(1.0, std::abs(r.objective)))
    broken =
        "the bound " + detail::number_text(r.bound) + " is above the objective " + detail::number_text(r.objective);
  if (r.status == mip_status::infeasible) r.bound = mip_model::infinite;
  return broken;
}

}  // namespace detail::mip_answers

REMAT_INLINE mip_result mip_backend_ref::solve(const mip_model& model, const mip_options& options) const {
  namespace answers = detail::mip_answers;
  if (!(options.relative_gap >= 0))
    throw bad_argument(std::string(name_) + ": relative_gap is " + detail::number_text(options.relative_gap) +
                       "; it must be 0 or more");
  detail::foreign_call call;
  std::string broken;                     // the first promise that the backend broke
  double reported = mip_model::infinite;  // the best objective of which `on_incumbent` has heard
  mip_options watched = options;
  if (options.on_incumbent)
    watched.on_incumbent =
        call.watched(std::function<void(std::span<const double>, double)>([&](std::span<const double> values, double) {
          const std::string wrong = answers::wrong_form(model, values);
          if (!wrong.empty()) {
            if (broken.empty()) broken = "a better solution has " + wrong;
            return;
          }
          const double objective = model.objective(values);
          reported = std::min(reported, objective);
          options.on_incumbent(values, objective);
        }));
  if (options.on_bound)
    watched.on_bound = call.watched(std::function<void(double)>([&](double bound) {
      if (!std::isnan(bound)) options.on_bound(bound);
    }));
  watched.run.on_progress = call.watched(options.run.on_progress);

  mip_result r;
  if (const std::optional<std::string> failure = call.run_in_solve([&] { r = solve_(backend_, model, watched); })) {
    r = {};
    broken = printable(*failure, 300);
  }
  const std::string wrong = answers::mend(model, options, r);
  if (broken.empty()) broken = wrong;
  if (!broken.empty()) {
    r.status = mip_status::failed;
    r.bound = -mip_model::infinite;
    r.message = std::move(broken);
  }
  if (r.status == mip_status::failed && failures_ != nullptr) failures_->note(name_, r.message);
  if (!r.values.empty() && r.objective < reported && options.on_incumbent) options.on_incumbent(r.values, r.objective);
  return r;
}

}  // namespace REMAT_NAMESPACE
