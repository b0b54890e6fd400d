// SPDX-License-Identifier: BSL-1.0
#include <cmath>
#include <exception>
#include <iostream>

#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"

int main(int argc, char** arguments) try {
  if (argc != 2) throw remat::error("usage: ten-lines GRAPH.json");
  const remat::problem p = remat::read_training_step(arguments[1]).instance;
  const remat::problem half = p.with_budget_fraction(0.5);
  const remat::solution s = remat::evict(half);
  if (!s.has_schedule()) throw remat::error("no schedule: " + s.message);
  const auto overhead = [&](double time) { return std::lround(100 * (time / p.graph().baseline_time - 1)); };
  std::cout << "In half of the memory, the step takes " << overhead(s.time) << " % more time; at least "
            << overhead(s.lower_bound) << " % are proven to be unavoidable.\n";
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
