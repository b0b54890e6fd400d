// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/concepts.hpp"

#include <doctest/doctest.h>

#include <string_view>

#include "remat/mip/branch_and_bound.hpp"

namespace {

using namespace remat;  // NOLINT: a test

struct constant_backend {
  static constexpr std::string_view name = "constant";
  double objective = 0;
  [[nodiscard]] mip_result solve(const mip_model&, const mip_options&) const {
    mip_result r;
    r.objective = objective;
    return r;
  }
};

std::string_view name_of(mip_backend_ref backend) { return backend.name(); }

}  // namespace

TEST_CASE("a reference calls its backend, and converts by itself") {
  mip_model m;
  m.offset = 3;
  CHECK(name_of(branch_and_bound) == "branch_and_bound");
  CHECK(mip_backend_ref(branch_and_bound).solve(m, {}).objective == 3);
  const constant_backend other{7};
  const mip_backend_ref ref = other;
  const mip_backend_ref copy = ref;
  CHECK(copy.name() == "constant");
  CHECK(copy.solve(m, {}).objective == 7);
}
