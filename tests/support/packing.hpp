// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <vector>

#include "remat/memory/check.hpp"
#include "remat/memory/detail/component.hpp"

namespace remat::test {

/// True if the component's packing keeps all its blocks apart and within its height. `all` are the intervals that were
/// divided into components.
[[nodiscard]] inline bool is_packing_valid(const detail::packing_component& c, const std::vector<interval>& all) {
  std::vector<interval> own;
  for (const std::size_t i : c.id) own.push_back(all[i]);
  return check_memory(own, c.offset, c.height).valid();
}

}  // namespace remat::test
