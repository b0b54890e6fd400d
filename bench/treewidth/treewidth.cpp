// SPDX-License-Identifier: BSL-1.0
// treewidth-figures: widths found within limits of processor time, as CSV, on PACE graphs and on the operation graphs
// of training graphs.
//
//   treewidth-figures [--limits 1,10,60] [--seed N] FILE…
//
// A `.gr` file is one instance. A `.json` file is two: training-dag (each operation is adjacent to those that make its
// inputs) and training-moral. Each instance has one search, with the last limit. `width_Ls` is the width that it had
// reported after L seconds of processor time of this thread; `cpu_s` is the time at its end.
#include <pthread.h>

#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "command_line.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/io/text.hpp"
#include "remat/method/twremat.hpp"
#include "remat/problem/problem.hpp"
#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace {

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void measure(const std::string& name, const char* kind, const remat::undirected_graph& g,
             const std::vector<double>& limits, std::uint64_t seed) {
  constexpr std::int64_t unknown = -1;
  std::vector<std::int64_t> widths(limits.size(), unknown);
  remat::decompose_options options;
  options.run.seed = seed;
  options.run.work_limit = remat::run_control::no_work_limit - 1;  // no rounds are counted; the stop ends it
  std::stop_source source;
  options.run.stop = source.get_token();
  const double begun = processor_seconds();
  options.run.on_progress = [&](const remat::progress& p) {
    const double gone = processor_seconds() - begun;
    for (std::size_t i = 0; i < limits.size(); ++i)
      if (gone <= limits[i]) widths[i] = static_cast<std::int64_t>(p.best_objective);
  };
  clockid_t clock{};
  pthread_getcpuclockid(pthread_self(), &clock);
  std::jthread watch([&, clock](const std::stop_token& over) {
    for (timespec t{}; !over.stop_requested() && !source.stop_requested();) {
      clock_gettime(clock, &t);
      const double now = static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
      if (now - begun > limits.back()) source.request_stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  const remat::decomposition_result r = remat::decompose(g, options);
  watch.request_stop();
  const double cpu = processor_seconds() - begun;
  std::printf("%s,%s,%zu,%zu", name.c_str(), kind, g.num_vertices(), g.num_edges());
  for (std::size_t i = 0; i < limits.size(); ++i) {
    if (cpu <= limits[i] || i + 1 == limits.size()) widths[i] = r.width;
    std::printf(widths[i] == unknown ? "," : ",%lld", static_cast<long long>(widths[i]));
  }
  std::printf(",%lld,%d,%.3f\n", static_cast<long long>(r.lower_bound), r.proven ? 1 : 0, cpu);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  std::vector<double> limits{1, 10, 60};
  std::uint64_t seed = 0;
  std::vector<std::filesystem::path> files;
  bench::command_line app("treewidth-figures",
                          "Widths of tree decompositions within limits of processor time, as CSV, on PACE graphs "
                          "(.gr) and on the operation graphs of training graphs (.json): yours, or bundled ones "
                          "(tests/data/graphs).");
  app.list("--limits", limits, "Seconds of processor time, rising", "S,…");
  app.number("--seed", seed, "The seed");
  app.files(files, "Graphs")->required();
  if (!app.read(argc, argv)) return 0;
  std::printf("instance,kind,vertices,edges");
  for (const double limit : limits) std::printf(",width_%gs", limit);
  std::printf(",lower_bound,proven,cpu_s\n");
  for (const std::filesystem::path& path : files) {
    if (path.extension() == ".gr") {
      measure(path.stem().string(), "pace", remat::read_pace_graph(path), limits, seed);
    } else {
      const remat::problem p(remat::read_training_graph(path), remat::unit_cost{});
      measure(path.stem().string(), "training-dag", remat::operation_graph(p, remat::operation_edges::reads), limits,
              seed);
      measure(path.stem().string(), "training-moral", remat::operation_graph(p), limits, seed);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("treewidth-figures", [&] { return run(argc, argv); });
}
