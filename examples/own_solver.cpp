// SPDX-License-Identifier: BSL-1.0
// A solver of your own: it has the shape of all others, joins `auto` as a part, and is held to the same laws.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string_view>
#include <vector>

#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

struct half_options {
  remat::run_control run{};
};

/// Runs the first half of the forward pass again, half-way through the step, and keeps everything else.
struct half_solver {
  using options_type = half_options;
  static constexpr std::string_view name = "half";

  /// True when no other operation adds to what this one writes.
  static bool has_own_outputs(const remat::flat_graph& g, std::uint32_t o) {
    return std::ranges::all_of(g.outputs[o], [&](std::uint32_t t) { return g.producers[t].size() == 1; });
  }
  remat::solution operator()(const remat::problem& p, const half_options& options = {}) const {
    const remat::run_clock clock(options.run);
    const remat::flat_graph& g = p.graph();
    remat::solution best;
    std::vector<std::uint32_t> runs;
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      if (o == g.num_operations / 2)  // once more; simplification removes the runs that nothing needs
        for (std::uint32_t early = 0; early < o / 2; ++early)
          if (g.once[early] == 0 && has_own_outputs(g, early)) runs.push_back(early);
      runs.push_back(o);
    }
    accept(p, best, remat::schedule_computes(g, runs), name);  // through the exact checker
    conclude(p, best, clock, clock.poll());                    // a proven bound, the status, the figures
    return best;
  }
};

// Run it with tests/data/graphs/unet5-b16-256.json.
int main(int argc, char** arguments) try {
  if (argc != 2) {
    std::cerr << "usage: own-solver GRAPH.json\n";
    return 2;
  }
  const remat::problem p = remat::read_training_step(arguments[1]).instance;
  const remat::solution own = half_solver{}(p.with_budget(p.graph().baseline_peak));
  remat::automatic_options options{.extra_solvers = {remat::automatic_part_of(half_solver{})},
                                   .run = {.work_limit = 80'000}};
  const remat::solution both = remat::automatic(p.with_budget(p.graph().baseline_peak / 2), options);
  std::cout << own.by << ": " << to_string(own.status) << "; " << both.by << ": " << to_string(both.status) << '\n';
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
