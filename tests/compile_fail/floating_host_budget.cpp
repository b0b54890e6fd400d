// SPDX-License-Identifier: BSL-1.0
// expected: host_budget is whole bytes
#include "remat/problem/problem.hpp"

#ifdef REMAT_MENDED
constexpr std::int64_t host_budget = 1'000'000'000;
#else
constexpr double host_budget = 1e9;
#endif

remat::problem with_host(const remat::problem& p) {
  return p.with_link({.out = 1e9, .in = 1e9, .latency = 0}, host_budget);
}

int main() {}
