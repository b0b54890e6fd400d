// SPDX-License-Identifier: BSL-1.0
#include <iostream>

#include "remat/io/training_graph_json.hpp"
#include "remat/solver/automatic.hpp"

int main(int, char** files) {
  const auto [graph, cost, p, stated] =
      remat::read_training_step(files[1]);  // or any Boost.Graph graph, or your own type
  const remat::solution s =
      remat::automatic(p.with_budget(p.graph().baseline_peak / 2), {.run = {.work_limit = 20'000}});
  if (!s.has_schedule()) return 1;
  std::cout << graph.name() << ": "
            << 100.0 * static_cast<double>(s.peak_bytes) / static_cast<double>(p.graph().baseline_peak)
            << " % of the memory, " << 100 * (s.time / p.graph().baseline_time - 1)
            << " % more time, proven to be within " << 100 * (s.time / s.lower_bound - 1) << " % of the least\n";
}
