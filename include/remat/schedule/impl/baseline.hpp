// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/baseline.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/id.hpp"

namespace remat {

REMAT_INLINE schedule listed_order(const problem& p) {
  const flat_graph& g = p.graph();
  std::vector<std::uint32_t> left(g.num_tensors, 0);  // reads and writes still to come
  for (std::size_t t = 0; t < g.num_tensors; ++t)
    left[t] = static_cast<std::uint32_t>(g.producers[t].size() + g.consumers[t].size());
  schedule out;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    out.compute(static_cast<op_id>(o));
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (--left[t] == 0 && !g.final_output[t]) out.free(static_cast<tensor_id>(t));
  }
  return out;
}

}  // namespace remat
