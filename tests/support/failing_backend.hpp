// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <stdexcept>
#include <string_view>

#include "remat/mip/model.hpp"

namespace remat::test {

/// A backend that throws.
struct throwing_backend {
  static constexpr std::string_view name = "throwing";
  [[nodiscard]] mip_result solve(const mip_model&, const mip_options&) const {
    throw std::runtime_error("licence expired");
  }
};
static_assert(mip_backend<throwing_backend>);

/// A backend that says `optimal`, with three values whatever the model is.
struct short_backend {
  static constexpr std::string_view name = "short";
  [[nodiscard]] mip_result solve(const mip_model&, const mip_options&) const {
    mip_result r;
    r.status = mip_status::optimal;
    r.values.assign(3, 1);
    r.objective = r.bound = 0;
    return r;
  }
};
static_assert(mip_backend<short_backend>);

}  // namespace remat::test
