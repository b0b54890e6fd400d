// SPDX-License-Identifier: BSL-1.0
// scale_figures: how a solver grows with the graph. Builds training steps of each family
// (tests/support/large_steps.hpp) in memory, runs one solver at a part of the peak, and prints one line of CSV for
// each.
//
//   scale_figures [--solver evict] [--family chain,decoder,…] [--operations 100,1000,…] [--seconds 10] [--budget 0.5]
//                 [--seed 0] [--threads 1]
//
// `cpu_s` is the processor time of all threads. `overrun_s` is the processor time beyond the limit (with one thread,
// the other load of the machine does not count in it). `bytes_per_operation` is the peak of resident memory during the
// solve beyond that of an empty process, so the problem counts and the graph that it was built from does not. Exit
// status: 0 done, 2 unusable arguments.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "remat/core/error.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/twremat.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "support/large_steps.hpp"
#include "support/processor_time.hpp"

namespace {

using namespace remat;  // NOLINT: a program

using solve = std::function<solution(const problem&, run_control)>;

template <class Solver>
solve by(const Solver& solver) {
  return [&solver](const problem& p, run_control run) {
    typename Solver::options_type options;
    options.run = std::move(run);
    return solver(p, options);
  };
}

const std::map<std::string, solve, std::less<>> solvers{{"evict", by(evict)},
                                                        {"refined", by(refined)},
                                                        {"auto", by(automatic)},
                                                        {"twremat", by(twremat)},
                                                        {"rotor", by(rotor)},
                                                        {"no_remat", by(no_remat)},
                                                        {"hiremate", [](const problem& p, run_control run) {
                                                           hiremate_options options;
                                                           options.run = std::move(run);
                                                           return hiremate_with(branch_and_bound)(p, options);
                                                         }}};

/// A field of /proc/self/status, in bytes; 0 if the system has none.
std::int64_t memory_now(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field, 0) == 0) return std::atoll(line.c_str() + std::string_view(field).size() + 1) * 1024;
  return 0;
}

/// The peak of resident memory counts from now on. What was freed before does not count.
void restart_peak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

struct settings {
  std::string solver = "evict";
  std::vector<std::string> families;
  std::vector<double> operations{100, 1000, 10000, 100000, 1000000};
  double seconds = 10, budget = 0.5;
  std::uint64_t seed = 0;
  unsigned threads = 1;
};

void measure(const settings& s, std::string_view name, test::step_family family, std::uint32_t operations) {
  const std::int64_t before = memory_now("VmRSS:");
  const problem whole = test::large_step(family, operations, s.seed);
  const problem p =
      whole.with_budget(static_cast<std::int64_t>(s.budget * static_cast<double>(whole.graph().baseline_peak)));
  run_control run;
  run.seed = s.seed;
  run.threads = s.threads;
  run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(s.seconds * 1e9));
  restart_peak();
  const double cpu = test::processor_seconds();
  const auto start = std::chrono::steady_clock::now();
  const solution found = solvers.find(s.solver)->second(p, run);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double used = test::processor_seconds() - cpu;
  const double n = p.graph().num_operations, base = p.graph().baseline_time;
  std::printf("%s,%.0f,%s,%.3f,%.3f,%.3f,%.0f,", std::string(name).c_str(), n, s.solver.c_str(), wall, used,
              std::max(0.0, used - s.seconds), static_cast<double>(memory_now("VmHWM:") - before) / n);
  if (found.plan)
    std::printf("%.3f,%.3f,%.3f,%s", 100 * (found.time / base - 1), 100 * (found.lower_bound / base - 1),
                100 * (found.time / found.lower_bound - 1), found.by.c_str());
  else
    std::printf(",%.3f,,%s", 100 * (found.lower_bound / base - 1), to_string(found.status).data());
  std::printf(",%llu\n", static_cast<unsigned long long>(found.statistics.work));
  std::fflush(stdout);
}

/// Calls `work` in a process of its own, so that no memory is left over from the one before.
template <class Work>
void in_child(Work&& work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& e) {
      std::printf("%s\n", e.what());
    }
    std::fflush(stdout);
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

int run(int argc, char** argv) {
  settings s;
  std::vector<std::string> families;
  for (const auto& [name, family] : test::step_families) families.emplace_back(name);
  bench::command_line app("scale_figures",
                          "How a solver grows with the graph: time, memory, overhead and gap on training steps that "
                          "are made by a rule, of each family and several sizes, as CSV.");
  app.text("--solver", s.solver, "The solver", "NAME", bench::names_in(solvers));
  app.list("--family", s.families, "Families; without any, all", "NAME,…", families);
  app.list("--operations", s.operations, "Sizes of the graph", "N,…");
  app.number("--seconds", s.seconds, "The limit of each solve", 0.0, 1e6);
  app.number("--budget", s.budget, "The budget as a part of the peak", 0.0, 1.0);
  app.number("--seed", s.seed, "The seed of graph and solver");
  app.number("--threads", s.threads, "Threads of the solver; 0: all cores");
  if (!app.read(argc, argv)) return 0;
  for (const double n : s.operations)
    if (n < 1 || n > 1e8 || n != std::floor(n))
      throw shared::usage_error("--operations " + remat::format_number(n) + ": expected whole numbers from 1 to 1e8");
  std::printf("family,operations,solver,wall_s,cpu_s,overrun_s,bytes_per_operation,overhead,bound,gap,by,work\n");
  for (const auto& [name, family] : test::step_families) {
    bool wanted = s.families.empty();
    for (const std::string& f : s.families) wanted = wanted || f == name;
    if (!wanted) continue;
    for (const double n : s.operations) in_child([&] { measure(s, name, family, static_cast<std::uint32_t>(n)); });
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("scale_figures", [&] { return run(argc, argv); });
}
