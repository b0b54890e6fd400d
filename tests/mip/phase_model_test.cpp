// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/detail/phase_model.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <stop_token>
#include <vector>

#include "remat/mip/branch_and_bound.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

struct program : phase_model {
  using phase_model::add_start_memory;
  using phase_model::add_start_row;
  using phase_model::carry_memory;
  using phase_model::end_peak_row;
  using phase_model::hold;
  using phase_model::hold_from_start;
  using phase_model::limit_held;
  using phase_model::model_;
  using phase_model::phase_model;
  using phase_model::require_held;
  using phase_model::set_scales;
};

}  // namespace

TEST_CASE("sizes in units: what fits in units fits in bytes, and exactly where the divisor allows it") {
  std::mt19937_64 engine(1);
  for (int i = 0; i < 1000; ++i) {
    const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(engine() % n); };
    const std::int64_t divisor = 1 + below(20), budget = below(100'000);
    const std::int64_t most = 1 + below(200);
    const size_units sizes(budget, divisor, most);
    CHECK(sizes.capacity_units() <= most);
    CHECK(sizes.capacity() <= 1024);
    std::int64_t bytes = 0, units = 0;
    for (int k = 0; k < 5; ++k) {
      const std::int64_t b = below(5000) * divisor;
      bytes += b;
      units += sizes.units(b);
    }
    if (units <= sizes.capacity_units()) CHECK(bytes <= budget);
    if (budget / divisor <= most && bytes <= budget) CHECK(units <= sizes.capacity_units());
  }
  CHECK(size_units(0, 0, 1).capacity_units() == 0);
  CHECK(objective_scale(0, true) == 1);
  CHECK(objective_scale(50, true) == 1);
  CHECK(objective_scale(50, false) == 20);
  CHECK(objective_scale(1e6, true) == doctest::Approx(1e-3));
}

TEST_CASE("uses: events are ordered by phase, then by run") {
  phase_uses uses(4, 3);
  CHECK_FALSE(uses.is_used(0));
  uses.add_read(0, 2, 1);
  uses.add_read(0, 1, 1);
  uses.add_output(1);
  CHECK(uses.is_used_after(0, 2, 0));
  CHECK_FALSE(uses.is_used_after(0, 2, 1));
  CHECK(uses.is_used_from(0, 2));
  CHECK_FALSE(uses.is_used_from(0, 3));
  CHECK(uses.last_phase(0) == 2);
  CHECK(uses.last_phase(1) == 3);
  CHECK_FALSE(uses.is_used(2));
  uses.clear();
  CHECK_FALSE(uses.is_used(1));
}

TEST_CASE("presence and memory: a tensor is made again only where it was dropped") {
  // Two tensors of 6 and 7 bytes, of which only one fits; both are read, so one must be made again.
  const std::vector<std::int64_t> bytes{6, 7};
  program p(bytes, 1e9, run_control{});
  p.set_scales(size_units(12, 1, 100), 1);
  const mip_value first = p.hold_from_start(0), second = p.hold_from_start(1);
  p.add_start_memory();
  p.add_start_row();
  const mip_value r{p.model_.add_integer(5, 0, 1), 0}, sure = mip_value::one();
  p.require_held(first, {&sure, 1}, true);  // a read of the first
  p.hold(0, {});
  (void)p.carry_memory(std::vector<held_change>{{0, first, {}}});
  p.add_term(r, 7);
  p.end_peak_row();
  const mip_value after = p.new_column();
  p.limit_held(after, second, {&r, 1});
  CHECK(p.carry_memory(std::vector<held_change>{{1, second, after}}) != row_writer::none);
  CHECK(p.carry_memory(std::vector<held_change>{{1, after, after}}) == row_writer::none);
  p.require_held(after, {&sure, 1}, true);
  p.finish();
  const mip_result s = branch_and_bound.solve(p.model());
  CHECK(s.status == mip_status::optimal);
  CHECK(s.objective == 5);
}

TEST_CASE("limits: columns, and a stop request") {
  const std::vector<std::int64_t> bytes{1};
  program small(bytes, 1, run_control{});
  (void)small.new_column();
  CHECK(small.may_continue());
  (void)small.new_column();
  CHECK_FALSE(small.may_continue());
  CHECK_FALSE(small.is_complete());
  std::stop_source source;
  run_control run;
  run.stop = source.get_token();
  program stopped(bytes, 10, run);
  CHECK(stopped.may_continue());
  source.request_stop();
  CHECK_FALSE(stopped.may_continue());
}
