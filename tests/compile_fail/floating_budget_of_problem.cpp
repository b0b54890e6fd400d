// SPDX-License-Identifier: BSL-1.0
// expected: with_budget_fraction
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

int main() {
#ifdef REMAT_MENDED
  const remat::problem p = remat::problem(remat::training_graph{}, remat::unit_cost{}).with_budget_fraction(0.5);
#else
  const remat::problem p(remat::training_graph{}, remat::unit_cost{}, 0.5F);
#endif
  return p.has_budget() ? 0 : 1;
}
