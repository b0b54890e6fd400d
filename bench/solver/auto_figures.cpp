// SPDX-License-Identifier: BSL-1.0
// `auto`, and the solvers that it is measured against, on training graphs at parts of their peak; one line of CSV for
// each answer.
//
//   auto_figures [--solvers auto,refined,rotor,…] [--fractions 0.8,0.6,…] [--seconds S] [--threads N] [--seeds K]
//                [--near G] [--gap G] [--parts] [FILE.json …]
//
// Without files: the bundled graphs. `--gap` is for `auto`, which otherwise ends at its own. `rotor`, `rockmate`,
// `twremat` and `hiremate` run with `improve`. Overhead and bound are in percent of the baseline's time. `near_cpu_s`
// is the processor time of the whole process until progress first says that the gap is at most G (0.001), or the end
// does; nan if it never is.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/twremat.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "support/data.hpp"
#include "support/processor_time.hpp"

namespace {

using namespace remat;  // NOLINT: a program

/// Part, seconds, overhead, and who found it.
void print_parts(const solution& s, double base) {
  const auto* parts = s.statistics.own.find<figures::group_list>("parts");
  if (parts == nullptr) return;
  for (const figures& part : *parts) {
    const double* time = part.find<double>("time");
    std::fprintf(stderr, "  %-12s %8.3f s  %10.4f %%  %s\n", part.find<std::string>("part")->c_str(),
                 *part.find<double>("seconds"), time ? 100 * (*time / base - 1) : std::nan(""),
                 part.find<std::string>("by")->c_str());
  }
}

using solve_function = std::function<solution(const problem&, const run_control&)>;

template <class Solver>
solve_function plain(const Solver& solver, const typename Solver::options_type& with = {}) {
  return [&solver, with](const problem& p, const run_control& run) {
    typename Solver::options_type options = with;
    options.run = run;
    return solver(p, options);
  };
}

template <class Solver>
solve_function improved(const Solver& solver) {
  return [&solver](const problem& p, const run_control& run) {
    typename Solver::options_type options;
    options.run = run;
    options.improve = by_refinement;
    return solver(p, options);
  };
}

int run(int argc, char** argv) {
  std::vector<std::string> solvers{"auto"};
  std::vector<double> fractions{0.8, 0.6, 0.5, 0.4, 0.3, 0.2};
  double seconds = 10, near = 0.001;
  automatic_options whole_call{.gap = 0};
  unsigned threads = 1;
  bool with_parts = false;
  std::uint64_t seeds = 1;
  std::vector<std::filesystem::path> files;
  bench::command_line app("auto_figures",
                          "`auto`, and the solvers that it is measured against, on training graphs at parts of their "
                          "peak: overhead, bound, gap and time of each answer, as CSV. On graphs of yours, or the "
                          "bundled ones.");
  app.list("--solvers", solvers, "Solvers", "NAME,…",
           {"auto", "refined", "evict", "rotor", "rockmate", "twremat", "hiremate"});
  app.list("--fractions", fractions, "Budgets as parts of the peak", "F,…");
  app.number("--seconds", seconds, "The limit of each solve", 0.0, 1e6);
  app.number("--threads", threads, "Threads of each solve; 0: all cores");
  app.number("--seeds", seeds, "Solves of each, with the seeds 0, 1, …");
  app.number("--near", near, "The gap at which near_cpu_s is taken", 0.0, 1.0);
  app.number("--gap", whole_call.gap, "The gap at which auto ends", 0.0, 1.0);
  app.add_flag("--parts", with_parts, "Print what each part of auto gave, on standard error");
  app.files(files, "Training graphs; without any, the bundled ones");
  if (!app.read(argc, argv)) return 0;
  if (files.empty()) files = test::bundled_graphs();
  const auto hiremate_here = hiremate_with(branch_and_bound);
  const std::map<std::string, solve_function> known{{"auto", plain(automatic, whole_call)},
                                                    {"refined", plain(refined)},
                                                    {"evict", plain(evict)},
                                                    {"rotor", improved(rotor)},
                                                    {"rockmate", improved(rockmate)},
                                                    {"twremat", improved(twremat)},
                                                    {"hiremate", improved(hiremate_here)}};

  std::printf("graph,operations,fraction,solver,seed,status,overhead,bound,gap,wall_s,cpu_s,near_cpu_s,by\n");
  for (const std::filesystem::path& file : files) {
    const problem whole = read_training_step(file).instance;
    const double base = whole.graph().baseline_time;
    for (const double fraction : fractions)
      for (std::uint64_t seed = 0; seed < seeds; ++seed)
        for (const std::string& name : solvers) {
          const auto solver = known.find(name);
          const problem p = test::within(whole, fraction);
          run_control run;
          run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
          run.threads = threads;
          run.seed = seed;
          const double begin = test::processor_seconds();
          double near_at = std::numeric_limits<double>::quiet_NaN();
          run.on_progress = [&](const progress& news) {
            if (std::isnan(near_at) && is_within_gap(news.best_objective, news.lower_bound, near))
              near_at = test::processor_seconds() - begin;
          };
          const auto wall = std::chrono::steady_clock::now();
          const solution s = solver->second(p, run);
          const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
          const double cpu = test::processor_seconds() - begin;
          if (std::isnan(near_at) && (s.status == solve_status::infeasible || s.is_within(near))) near_at = cpu;
          const double nan = std::numeric_limits<double>::quiet_NaN();
          std::printf("%s,%u,%g,%s,%llu,%s,%.4f,%.4f,%.4f,%.3f,%.3f,%.3f,%s\n", file.stem().c_str(),
                      p.graph().num_operations, fraction, name.c_str(), static_cast<unsigned long long>(seed),
                      std::string(to_string(s.status)).c_str(), s.plan ? 100 * (s.time / base - 1) : nan,
                      100 * (s.lower_bound / base - 1), s.plan ? 100 * (s.time / s.lower_bound - 1) : nan, wall_s, cpu,
                      near_at, s.by.c_str());
          std::fflush(stdout);
          if (with_parts) print_parts(s, base);
        }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("auto_figures", [&] { return run(argc, argv); });
}
