// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <random>
#include <string_view>

#include "remat/mip/model.hpp"

namespace remat::test {

/// A backend whose word is worth nothing.
struct lying_backend {
  static constexpr std::string_view name = "lying";
  mip_status says = mip_status::optimal;
  [[nodiscard]] mip_result solve(const mip_model& m, const mip_options& options) const {
    mip_result r;
    r.status = says;
    std::mt19937_64 engine(m.num_columns());
    for (int i = 0; i < 20; ++i) {
      r.values.clear();
      for (std::size_t j = 0; j < m.num_columns(); ++j)
        r.values.push_back(static_cast<double>(engine() % 1000) / (i < 10 ? 1000 : 1900));
      r.objective = r.bound = m.objective(r.values);
      if (options.on_incumbent) options.on_incumbent(r.values, r.objective);
    }
    return r;
  }
};
static_assert(mip_backend<lying_backend>);

}  // namespace remat::test
