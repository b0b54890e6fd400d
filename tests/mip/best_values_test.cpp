// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/detail/best_values.hpp"

#include <doctest/doctest.h>

#include <span>
#include <vector>

using namespace remat;
using detail::best_values;

TEST_CASE("values count if they meet the model and are better") {
  mip_model m;
  m.add_integer(-1, 0, 3);
  m.add_column(1, 0, 1);
  m.add_row(-mip_model::infinite, {{0, 1}, {1, 1}}, 2.5);
  std::vector<double> heard;
  mip_options options;
  options.on_incumbent = [&](std::span<const double> values, double objective) {
    CHECK(values.size() == 2);
    heard.push_back(objective);
  };
  best_values best("name", m, options);
  CHECK_FALSE(best.found());
  CHECK(best.stopped_status() == mip_status::no_solution);
  CHECK_FALSE(best.take(std::vector<double>{3, 0}));     // breaks the row
  CHECK_FALSE(best.take(std::vector<double>{1}));        // a value is missing
  CHECK_FALSE(best.take(std::vector<double>{1, 0, 0}));  // there is one too many
  CHECK_FALSE(best.found());
  CHECK(best.take(std::vector<double>{0.9999999, 0.5}));
  CHECK(best.result.values == std::vector<double>{1, 0.5});
  CHECK(best.take(std::vector<double>{0, 0}));  // meets the model, and is worse
  CHECK(best.result.objective == -0.5);
  CHECK(best.take(std::vector<double>{2, 0}));
  CHECK(heard == std::vector<double>{-0.5, -2});
  CHECK(best.stopped_status() == mip_status::feasible);
  const mip_result r = best.finish(mip_status::feasible);
  CHECK(r.status == mip_status::feasible);
  CHECK(r.values == std::vector<double>{2, 0});
  CHECK(r.seconds >= 0);
}

TEST_CASE("a model without columns is possible or not") {
  const mip_options options;
  mip_model m;
  m.offset = 3;
  best_values possible("name", m, options);
  CHECK(possible.without_columns().status == mip_status::optimal);
  m.add_row(1, {}, 2);
  best_values impossible("name", m, options);
  const mip_result r = impossible.without_columns();
  CHECK(r.status == mip_status::infeasible);
  CHECK(r.bound == mip_model::infinite);
}
