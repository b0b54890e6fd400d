// SPDX-License-Identifier: BSL-1.0
// A chain, such as the layers of an `nn.Sequential`: Rotor finds the fastest schedule within a budget that keeps each
// stored value until its backward. The program prints the stages whose forward runs again.
#include <cstdint>
#include <iostream>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/method/rotor.hpp"

int main() {
  std::vector<remat::chain_stage> stages;
  for (int i = 0; i < 12; ++i) {
    const std::int64_t output = std::int64_t{64 >> (i / 3)} << 20;  // halves after every three stages
    const double milliseconds = 4.0 - i / 3;
    stages.push_back({.forward_time = milliseconds,
                      .backward_time = 2 * milliseconds,
                      .output_bytes = output,
                      .saved_bytes = 3 * output});  // what the backward needs, the output included
  }
  const remat::chain_problem p(remat::chain("twelve stages", std::int64_t{64} << 20, stages));
  const std::int64_t all = p.stages().store_all_peak_bytes();
  for (const int percent : {80, 60, 40}) {
    const remat::chain_solution s = remat::rotor(p.with_budget(all / 100 * percent));
    std::cout << percent << " % of the memory: " << s.time << " ms instead of " << p.stages().store_all_time()
              << "; runs again:";
    std::vector<int> runs(p.stages().length() + 2, 0);
    for (const remat::chain_step& step : s.plan.value())
      if (step.action != remat::chain_action::backward && ++runs[step.stage] == 2) std::cout << ' ' << step.stage;
    std::cout << '\n';
  }
}
