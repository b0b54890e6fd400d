// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/model.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/mip/branch_and_bound.hpp"

namespace {

using namespace remat;  // NOLINT: a test

constexpr double infinite = mip_model::infinite, unknown = std::numeric_limits<double>::quiet_NaN();

/// A backend whose answer the test gives.
struct scripted_backend {
  static constexpr std::string_view name = "scripted";
  std::function<mip_result(const mip_options&)> answer{};
  [[nodiscard]] mip_result solve(const mip_model&, const mip_options& options) const { return answer(options); }
};

std::string_view name_of(mip_backend_ref backend) { return backend.name(); }

/// Minimise x + y, with x + y ≥ 1 and both 0 or 1.
mip_model one_of_two() {
  mip_model m;
  const auto x = m.add_integer(1, 0, 1), y = m.add_integer(1, 0, 1);
  m.add_row(1, {{x, 1}, {y, 1}}, infinite);
  return m;
}

mip_result solve_by(const mip_result& given, const mip_options& options = {}, mip_failures* failures = nullptr) {
  const scripted_backend backend{[&](const mip_options&) { return given; }};
  const mip_backend_ref ref = backend;
  return (failures != nullptr ? ref.noting(*failures) : ref).solve(one_of_two(), options);
}

mip_result answer_of(mip_status status, std::vector<double> values, double objective, double bound) {
  mip_result r;
  r.status = status;
  r.values = std::move(values);
  r.objective = objective;
  r.bound = bound;
  return r;
}

}  // namespace

TEST_CASE("a reference calls its backend, and converts by itself") {
  mip_model m;
  m.offset = 3;
  CHECK(name_of(branch_and_bound) == "branch_and_bound");
  CHECK(mip_backend_ref(branch_and_bound).solve(m, {}).objective == 3);
  int calls = 0;
  const scripted_backend other{[&](const mip_options&) {
    ++calls;
    return mip_result{};
  }};
  const mip_backend_ref ref = other;
  const mip_backend_ref copy = ref;
  CHECK(copy.name() == "scripted");
  CHECK(copy.solve(m, {}).status == mip_status::no_solution);
  CHECK(calls == 1);
}

TEST_CASE("an honest answer passes, with the objective of its values") {
  const mip_result r = solve_by(answer_of(mip_status::optimal, {1, 0}, -5, 1));
  CHECK(r.status == mip_status::optimal);
  CHECK(r.values == std::vector<double>{1, 0});
  CHECK(r.objective == 1);
  CHECK(r.bound == 1);
  CHECK(r.message.empty());
  // Without a bound, and with one that is above the objective within the tolerance.
  CHECK(solve_by(answer_of(mip_status::feasible, {1, 1}, 2, -infinite)).status == mip_status::feasible);
  CHECK(solve_by(answer_of(mip_status::optimal, {1, 0}, 1, 1.000001)).status == mip_status::optimal);
  const mip_result none = solve_by(answer_of(mip_status::infeasible, {}, 0, 0));
  CHECK(none.status == mip_status::infeasible);
  CHECK(none.objective == infinite);
  CHECK(none.bound == infinite);
  CHECK(solve_by(answer_of(mip_status::no_solution, {}, 0, 0.5)).bound == 0.5);
}

TEST_CASE("an answer that breaks a promise counts as failed, and says which promise") {
  struct row {
    mip_result given;
    std::string says;
    bool keeps_values;
  };
  const std::vector<row> rows = {
      {answer_of(mip_status::optimal, {1}, 1, 1), "1 value, and the model has 2 columns", false},
      {answer_of(mip_status::feasible, {}, 1, 1), "0 values, and the model has 2 columns", false},
      {answer_of(mip_status::optimal, {1, 0, 0}, 1, 1), "3 values, and the model has 2 columns", false},
      {answer_of(mip_status::optimal, {1, unknown}, 1, 1), "the value of column 1 is nan", false},
      {answer_of(mip_status::optimal, {infinite, 0}, 1, 1), "the value of column 0 is inf", false},
      {answer_of(mip_status::optimal, {0, 0}, -1e300, 1e300), "the values break the model by 1.0", false},
      {answer_of(mip_status::optimal, {0.5, 0.5}, 1, 1), "the values break the model by 0.5", false},
      {answer_of(mip_status::optimal, {1, 0}, 1, unknown), "the bound is NaN", true},
      {answer_of(mip_status::no_solution, {}, 1, unknown), "the bound is NaN", false},
      {answer_of(mip_status::feasible, {1, 0}, 1, 1.1), "the bound 1.100000 is above the objective 1.0", true},
      {answer_of(mip_status::feasible, {1, 0}, 1, infinite), "the bound inf is above the objective 1.0", true},
      {answer_of(mip_status::infeasible, {1, 0}, 1, 1), "it says infeasible, and there are values", true},
      {answer_of(static_cast<mip_status>(77), {1, 0}, 1, 1), "the status is 77", true}};
  for (const row& x : rows) {
    CAPTURE(x.says);
    mip_failures failures;
    const mip_result r = solve_by(x.given, {}, &failures);
    CHECK(r.status == mip_status::failed);
    CHECK(r.message.find(x.says) == 0);
    CHECK(r.bound == -infinite);
    CHECK(r.values.empty() == !x.keeps_values);
    CHECK(std::isfinite(r.objective) == x.keeps_values);
    CHECK(failures.count() == 1);
    CHECK(failures.first() == "the backend scripted failed: " + r.message);
  }
  // A start that meets the model contradicts `infeasible`, too; one that does not is no contradiction.
  CHECK(solve_by(answer_of(mip_status::infeasible, {}, 0, 0), {.start = {0, 1}}).status == mip_status::failed);
  CHECK(solve_by(answer_of(mip_status::infeasible, {}, 0, 0), {.start = {0, 0}}).status == mip_status::infeasible);
  CHECK(solve_by(answer_of(mip_status::infeasible, {}, 0, 0), {.start = {1}}).status == mip_status::infeasible);
}

TEST_CASE("figures of an answer stay within reason") {
  mip_result given = answer_of(mip_status::feasible, {1, 0}, 1, 0);
  given.seconds = unknown;
  given.work = std::numeric_limits<std::uint64_t>::max();
  mip_options options;
  options.run.work_limit = 1000;
  const mip_result r = solve_by(given, options);
  CHECK(r.seconds == 0);
  CHECK(r.work == 1000);
}

TEST_CASE("the callback hears of the final values, and of no values that a solver could not read") {
  std::vector<std::vector<double>> heard;
  mip_options options;
  options.on_incumbent = [&](std::span<const double> values, double objective) {
    CHECK(objective == values[0] + values[1]);
    heard.emplace_back(values.begin(), values.end());
  };
  (void)solve_by(answer_of(mip_status::optimal, {1, 0}, 1, 1), options);
  CHECK(heard == std::vector<std::vector<double>>{{1, 0}});

  heard.clear();
  const scripted_backend talkative{[](const mip_options& o) {
    o.on_incumbent(std::vector<double>{1, 1}, 7);
    o.on_incumbent(std::vector<double>{1}, 0);
    o.on_incumbent(std::vector<double>{1, infinite}, 0);
    o.on_incumbent(std::vector<double>{1, 0}, 1);
    return answer_of(mip_status::optimal, {1, 0}, 1, 1);
  }};
  const mip_result r = mip_backend_ref(talkative).solve(one_of_two(), options);
  CHECK(heard == std::vector<std::vector<double>>{{1, 1}, {1, 0}});
  CHECK(r.status == mip_status::failed);
  CHECK(r.message == "a better solution has 1 value, and the model has 2 columns");
  CHECK(r.values == std::vector<double>{1, 0});

  std::vector<double> bounds;
  options.on_bound = [&](double bound) { bounds.push_back(bound); };
  const scripted_backend unsure{[](const mip_options& o) {
    o.on_bound(unknown);
    o.on_bound(0.5);
    return mip_result{};
  }};
  (void)mip_backend_ref(unsure).solve(one_of_two(), options);
  CHECK(bounds == std::vector<double>{0.5});
}

TEST_CASE("an exception of the backend is a failure; those of callbacks, and a lack of memory, propagate") {
  mip_failures failures;
  const scripted_backend broken{[](const mip_options&) -> mip_result { throw std::runtime_error("licence\nexpired"); }};
  const mip_result r = mip_backend_ref(broken).noting(failures).solve(one_of_two(), {});
  CHECK(r.status == mip_status::failed);
  CHECK(r.message == "licence\\x0aexpired");
  CHECK(failures.first() == "the backend scripted failed: licence\\x0aexpired");

  struct stop {};
  mip_options options;
  options.on_incumbent = [](std::span<const double>, double) { throw stop(); };
  const scripted_backend careless{[](const mip_options& o) {
    try {
      o.on_incumbent(std::vector<double>{1, 1}, 2);
    } catch (...) {  // it should let this through
    }
    return mip_result{};
  }};
  CHECK_THROWS_AS((void)mip_backend_ref(careless).solve(one_of_two(), options), stop);
  const scripted_backend hungry{[](const mip_options&) -> mip_result { throw std::bad_alloc(); }};
  CHECK_THROWS_AS((void)mip_backend_ref(hungry).solve(one_of_two(), {}), std::bad_alloc);
  CHECK_THROWS_WITH_AS((void)solve_by(mip_result{}, {.relative_gap = unknown}),
                       "scripted: relative_gap is nan; it must be 0 or more", bad_argument);
}
