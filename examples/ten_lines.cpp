// SPDX-License-Identifier: BSL-1.0
#include <iostream>

#include "remat/io/training_graph_json.hpp"
#include "remat/method/automatic.hpp"

// Run it with tests/data/graphs/resnet50-b64-224.json
int main(int, char** arguments) {
  const remat::problem p = remat::read_training_step(arguments[1]).instance;
  const remat::problem half = p.with_budget(p.graph().baseline_peak / 2);
  const remat::solution s = remat::automatic(half, {.run = {.work_limit = 20'000}});
  std::cout << to_string(s.status) << ": " << s.peak_bytes << " bytes instead of " << p.graph().baseline_peak << "; "
            << 100 * (s.time / p.graph().baseline_time - 1) << " % more time, of which "
            << 100 * (s.lower_bound / p.graph().baseline_time - 1) << " % are proven to be unavoidable\n";
}
