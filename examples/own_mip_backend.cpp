// SPDX-License-Identifier: BSL-1.0
// A MIP backend of your own: any type with a name and `solve`. This one counts its calls, and passes everything on. A
// solver that reads MPS files needs no type: `command_backend{.command = "solver {mps} {seconds} {solution}"}`.
#include <atomic>
#include <exception>
#include <iostream>
#include <string_view>

#include "remat/io/json.hpp"
#include "remat/method/checkmate.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/model.hpp"

struct counting_backend {
  static constexpr std::string_view name = "counting";
  std::atomic<int>* calls = nullptr;  // solvers may call a backend from several threads

  remat::mip_result solve(const remat::mip_model& model, const remat::mip_options& options) const {
    ++*calls;
    return remat::branch_and_bound.solve(model, options);
  }
};
static_assert(remat::mip_backend<counting_backend>);

// Run it with tests/data/graphs/rk/fno1d.json.
int main(int argc, char** arguments) try {
  if (argc != 2) {
    std::cerr << "usage: own-mip-backend GRAPH.json\n";
    return 2;
  }
  const remat::problem p = remat::read_training_step(arguments[1]).instance;
  std::atomic<int> calls = 0;
  remat::checkmate_options options;
  options.gap = 0;
  options.distance = 2;
  options.run.work_limit = 320'000;
  const remat::problem tight = p.with_budget(p.graph().baseline_peak / 5 * 4);
  const remat::solution s = remat::checkmate_with(counting_backend{&calls})(tight, options);
  std::cout << calls << " integer programs; " << to_string(s.status) << ", found by " << s.by << '\n';
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
