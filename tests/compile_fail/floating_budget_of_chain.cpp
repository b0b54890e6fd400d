// SPDX-License-Identifier: BSL-1.0
// expected: with_budget_fraction
#include "remat/chain/chain.hpp"

std::int64_t half_of(const remat::chain_problem& p) {
#ifdef REMAT_MENDED
  return p.with_budget_fraction(0.5).budget();
#else
  return p.with_budget(0.5).budget();
#endif
}

int main() {}
