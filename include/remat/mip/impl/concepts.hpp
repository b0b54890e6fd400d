// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/concepts.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "remat/core/detail/foreign_call.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE void mip_failures::note(std::string_view backend, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (count_++ > 0) return;
  first_ = "the backend ";
  first_ += backend;
  first_ += " failed";
  if (!text.empty()) (first_ += ": ") += text;
}

REMAT_INLINE std::uint64_t mip_failures::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

REMAT_INLINE std::string mip_failures::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

namespace detail::mip_answers {

/// What is wrong with the form of values: empty if there is one finite number for each column.
[[nodiscard]] inline std::string wrong_form(const mip_model& model, std::span<const double> values) {
  if (values.size() != model.num_columns())
    return std::to_string(values.size()) + " values, and the model has " + std::to_string(model.num_columns()) +
           " columns";
  const auto wrong = std::find_if(values.begin(), values.end(), [](double x) { return !std::isfinite(x); });
  if (wrong == values.end()) return {};
  return "the value of column " + std::to_string(wrong - values.begin()) + " is " + std::to_string(*wrong);
}

/// What is wrong with the values of an answer.
[[nodiscard]] inline std::string wrong_values(const mip_model& model, std::span<const double> values) {
  std::string wrong = wrong_form(model, values);
  if (!wrong.empty()) return wrong;
  if (const double by = model.violation(values); !(by <= mip_tolerance))
    return "the values break the model by " + std::to_string(by);
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
    broken = "the bound " + std::to_string(r.bound) + " is above the objective " + std::to_string(r.objective);
  if (r.status == mip_status::infeasible) r.bound = mip_model::infinite;
  return broken;
}

}  // namespace detail::mip_answers

REMAT_INLINE mip_result mip_backend_ref::solve(const mip_model& model, const mip_options& options) const {
  namespace answers = detail::mip_answers;
  if (!(options.relative_gap >= 0))
    throw bad_argument(std::string(name_) + ": relative_gap is " + std::to_string(options.relative_gap) +
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
  bool out_of_memory = false;
  const std::optional<std::string> failure = call.run([&] {
    try {
      r = solve_(backend_, model, watched);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  if (out_of_memory) throw std::bad_alloc();
  if (failure) {
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
