// SPDX-License-Identifier: BSL-1.0
// expected: g.outputs(o)
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/problem/problem.hpp"

struct my_graph {
  std::size_t num_operations() const { return 0; }
  std::size_t num_tensors() const { return 0; }
  std::vector<remat::tensor_id> inputs(remat::op_id) const { return {}; }
#ifdef REMAT_MENDED
  std::vector<remat::tensor_id> outputs(remat::op_id) const { return {}; }
#endif
  std::vector<remat::tensor_id> final_outputs() const { return {}; }
  std::int64_t bytes(remat::tensor_id) const { return 0; }
};

int main() {
  const remat::problem p(my_graph{}, remat::unit_cost{});
  return static_cast<int>(p.graph().num_operations);
}
