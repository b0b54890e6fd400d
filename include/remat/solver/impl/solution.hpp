// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/solution.hpp"

#include <cmath>

#include "remat/core/detail/linkage.hpp"

namespace remat {

REMAT_INLINE void figures::set(std::string_view name, double value) {
  if (std::isfinite(value)) return put(name, value);
  std::erase_if(items_, [&](const item& i) { return i.first == name; });
}

REMAT_INLINE void figures::put(std::string_view name, value_type value) {
  for (item& i : items_)
    if (i.first == name) {
      i.second = std::move(value);
      return;
    }
  items_.emplace_back(std::string(name), std::move(value));
}

}  // namespace remat
