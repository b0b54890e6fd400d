// SPDX-License-Identifier: BSL-1.0
// long_chain_figures: chains of 10³ to 10⁶ equal stages under five budgets, as CSV: steps run again, those of
// Griewank and Walther's formula, the proven bound, and seconds by the clock, for revolve, auto and rotor. A stage
// saves two bytes and hands on one, so c checkpoints, that of the input among them, take a budget of c + 4 bytes.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/detail/binomial.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"

namespace {

template <class Solver>
void measure(const Solver& solver, const remat::chain_problem& p, std::uint32_t checkpoints, double seconds) {
  typename Solver::options_type options;
  if (seconds > 0 && !std::string(Solver::name).starts_with("revolve"))
    options.run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  const auto begin = std::chrono::steady_clock::now();
  const remat::chain_solution s = solver(p, options);
  const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::size_t length = p.stages().length();
  std::printf("%zu,%u,%s,%llu,%llu,%.0f,%.0f,%.3f\n", length, checkpoints, std::string(Solver::name).c_str(),
              static_cast<unsigned long long>(s.has_schedule() ? s.statistics.recomputes : 0),
              static_cast<unsigned long long>(remat::detail::binomial::advances(length, checkpoints - 1)), s.time,
              s.lower_bound, taken);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  double seconds = 1;
  bench::command_line app(
      "long_chain_figures",
      "Chains of 1,000 to 1,000,000 equal stages under five budgets: steps run again by revolve, "
      "auto and rotor beside those of Griewank and Walther's formula, the bound and seconds, as CSV.");
  app.number("--seconds", seconds, "The limit of each solve by auto and rotor; 0: none", 0.0, 1e6);
  if (!app.read(argc, argv)) return 0;
  std::puts("stages,checkpoints,solver,run_again,formula,time,bound,seconds");
  const remat::chain_stage stage{1, 1, 1, 2, 0, 0, {}};
  for (const std::size_t length : {1'000U, 10'000U, 100'000U, 1'000'000U})
    for (const std::uint32_t checkpoints : {5U, 10U, 20U, 40U, 80U}) {
      const remat::chain_problem p(remat::chain("equal", 1, std::vector<remat::chain_stage>(length, stage)),
                                   checkpoints + 4);
      measure(remat::revolve, p, checkpoints, seconds);
      measure(remat::automatic, p, checkpoints, seconds);
      measure(remat::rotor, p, checkpoints, seconds);
    }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("long_chain_figures", [&] { return run(argc, argv); });
}
