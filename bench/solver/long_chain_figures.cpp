// SPDX-License-Identifier: BSL-1.0
// long_chain_figures: chains of 10³ to 10⁶ equal stages under five budgets, as CSV: steps run again, those of
// Griewank and Walther's formula, the proven bound, seconds by the clock and of the processor, and megabytes (10⁶) of
// memory, for revolve, auto and rotor, each solve in a process of its own. A stage saves two bytes and hands on one, so
// c checkpoints, that of the input among them, take a budget of c + 4 bytes.
// With --random, chains of 1,000 to 10,000 stages whose times, or times and sizes, differ by up to 1, 10 or 100 %, with
// memory for 5 to 80 mean states, and the means and largest gaps of their kinds.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/detail/binomial.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"

namespace {

/// Solves, and returns the seconds by the clock, too.
template <class Solver>
std::pair<remat::chain_solution, double> solve(const Solver& solver, const remat::chain_problem& p, double seconds) {
  typename Solver::options_type options;
  if (Solver::name != remat::revolve.name)
    options.run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  const auto begin = std::chrono::steady_clock::now();
  remat::chain_solution s = solver(p, options);
  return {std::move(s), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

/// The processor seconds of this process, and the most memory it had, in 10⁶ bytes.
std::pair<double, double> usage() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return {seconds(u.ru_utime) + seconds(u.ru_stime), static_cast<double>(u.ru_maxrss) * 1024 / 1e6};
}

/// Solves in a process of its own, so that its memory is known.
template <class Solver>
void measure(const Solver& solver, std::size_t length, std::uint32_t checkpoints, double seconds) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) throw std::runtime_error("a solve failed");
    return;
  }
  const remat::chain_stage stage{1, 1, 1, 2, 0, 0, {}};
  const remat::chain_problem p(remat::chain("equal", 1, std::vector<remat::chain_stage>(length, stage)),
                               checkpoints + 4);
  const double before = usage().first;
  const auto [s, taken] = solve(solver, p, seconds);
  const auto [after, megabytes] = usage();
  std::printf("%zu,%u,%s,%llu,%llu,%.0f,%.0f,%.3f,%.3f,%.0f\n", length, checkpoints, std::string(Solver::name).c_str(),
              static_cast<unsigned long long>(s.has_schedule() ? s.statistics.recomputes : 0),
              static_cast<unsigned long long>(remat::detail::binomial::advances(length, checkpoints - 1)), s.time,
              s.lower_bound, taken, after - before, megabytes);
  std::fflush(stdout);
  _exit(0);
}

/// What is known of the gaps of one kind of chains and one solver.
struct gaps {
  int number = 0, without = 0;
  double sum = 0, largest = 0, seconds = 0;
};

template <class Solver>
void measure_random(const Solver& solver, const remat::chain_problem& p, const std::string& row,
                    std::map<std::string, gaps>& kinds, const std::string& kind, double seconds) {
  const auto [s, taken] = solve(solver, p, seconds);
  const double gap = s.has_schedule() ? 100 * (s.time / s.lower_bound - 1) : 0;
  const std::string name(Solver::name);
  std::printf("%s,%s,%.0f,%.0f,%.2f,%.2f\n", row.c_str(), name.c_str(), s.time, s.lower_bound, gap, taken);
  std::fflush(stdout);
  gaps& g = kinds[kind + "," + name];
  ++(s.has_schedule() ? g.number : g.without);
  g.sum += gap;
  g.largest = std::max(g.largest, gap);
  g.seconds = std::max(g.seconds, taken);
}

void random_chains(double seconds, unsigned chains) {
  std::puts("seed,stages,differ,sizes,states,solver,time,bound,gap,seconds");
  std::map<std::string, gaps> kinds;
  for (unsigned seed = 0; seed < chains; ++seed) {
    std::mt19937_64 engine(seed);
    const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    const auto length = static_cast<std::size_t>(1000 * std::pow(10, uniform()));
    const double states = 5 * std::pow(16, uniform());
    const int percent = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 10 : 100;
    const bool sizes = seed % 2 == 1;
    std::vector<remat::chain_stage> stages;
    for (std::size_t i = 0; i < length; ++i) {
      const auto about_one = [&] { return 1 + uniform() * percent / 100; };
      remat::chain_stage s;
      s.forward_time = about_one();
      s.backward_time = about_one();
      s.output_bytes = sizes ? static_cast<std::int64_t>(1000 * about_one()) : 1000;
      s.saved_bytes = 2 * s.output_bytes;
      stages.push_back(s);
    }
    const double mean = sizes ? 1000 * (1 + percent / 200.0) : 1000;
    const remat::chain_problem p(remat::chain("random", 1000, std::move(stages)),
                                 static_cast<std::int64_t>(mean * (states + 4)));
    const std::string kind = std::to_string(percent) + (sizes ? ",yes" : ",no");
    const std::string row = std::to_string(seed) + "," + std::to_string(length) + "," + kind + "," +
                            std::to_string(static_cast<int>(states));
    measure_random(remat::revolve, p, row, kinds, kind, seconds);
    measure_random(remat::automatic, p, row, kinds, kind, seconds);
    measure_random(remat::rotor, p, row, kinds, kind, seconds);
  }
  std::puts("differ,sizes,solver,chains,without a schedule,mean gap,largest gap,most seconds");
  for (const auto& [kind, g] : kinds)
    std::printf("%s,%d,%d,%.2f,%.2f,%.2f\n", kind.c_str(), g.number, g.without, g.sum / std::max(1, g.number),
                g.largest, g.seconds);
}

int run(int argc, char** argv) {
  double seconds = 1;
  unsigned chains = 0;
  std::vector<double> lengths{1'000, 10'000, 100'000, 1'000'000};
  bench::command_line app(
      "long_chain_figures",
      "revolve, auto and rotor on chains of 1,000 to 1,000,000 equal stages, beside Griewank and "
      "Walther's formula, or on random chains of 1,000 to 10,000 stages: times, bounds and seconds, "
      "as CSV.");
  app.number("--seconds", seconds, "The limit of each solve by auto and rotor", 1e-3, 1e6);
  app.list("--stages", lengths, "Chains of so many equal stages", "N,...");
  app.number("--random", chains, "So many random chains in place of equal stages; 0: none");
  if (!app.read(argc, argv)) return 0;
  if (chains > 0) {
    random_chains(seconds, chains);
    return 0;
  }
  std::puts("stages,checkpoints,solver,run_again,formula,time,bound,seconds,processor,megabytes");
  std::fflush(stdout);
  for (const double length : lengths)
    for (const std::uint32_t checkpoints : {5U, 10U, 20U, 40U, 80U}) {
      const auto stages = static_cast<std::size_t>(length);
      measure(remat::revolve, stages, checkpoints, seconds);
      measure(remat::automatic, stages, checkpoints, seconds);
      measure(remat::rotor, stages, checkpoints, seconds);
    }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("long_chain_figures", [&] { return run(argc, argv); });
}
