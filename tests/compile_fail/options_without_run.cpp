// SPDX-License-Identifier: BSL-1.0
// expected: o.run
#include <string_view>

#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

struct my_options {
  int effort = 1;
#ifdef REMAT_MENDED
  remat::run_control run{};
#endif
};

struct my_solver {
  using options_type = my_options;
  static constexpr std::string_view name = "mine";
  remat::solution operator()(const remat::problem&, const my_options& = {}) const { return {}; }
};

template <remat::solver_for<remat::problem> S>
void use(const S&) {}

int main() { use(my_solver{}); }
