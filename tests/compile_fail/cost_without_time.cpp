// SPDX-License-Identifier: BSL-1.0
// expected: c.time(g, o)
#include <cstdint>

#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

struct my_cost {
  std::int64_t workspace(const remat::training_graph&, remat::op_id) const { return 0; }
#ifdef REMAT_MENDED
  double time(const remat::training_graph&, remat::op_id) const { return 1; }
#endif
};

int main() {
  const remat::problem p(remat::training_graph{}, my_cost{});
  return static_cast<int>(p.graph().num_operations);
}
