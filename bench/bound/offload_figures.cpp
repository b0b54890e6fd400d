// SPDX-License-Identifier: BSL-1.0
// The bound for recomputation and copies together, on every bundled graph: at budgets that are fractions of the
// baseline's peak, for links of several speeds (the same in both directions), without a limit on the host. One line of
// CSV for each graph, budget and link.
//
//   offload_figures [--graph NAME] [--fractions F,F,…] [--links GB/S,GB/S,…] [--latency SECONDS] [--moments N]
//                   [--flows N] [--releases N] [--nodes N] [--seconds S] [--graphs FOLDER]
//
// Times are in seconds (`measured_cost` or `roofline_cost`, as the graph's file says), overheads over the time of the
// baseline. `turnaround` is the bound without copies, `choice` the time of the best choice at the moment of the bound.
// `processor` is the processor time of `offload_bound`.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/bound/offload.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/io/json.hpp"
#include "support/graph_files.hpp"
#include "support/processor_time.hpp"

namespace {

using namespace remat;  // NOLINT: a program

struct settings {
  offload_bound_options options{};
  double latency = 1e-5;
  std::string only{};
  std::vector<double> fractions{0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2}, links{12, 25, 64, 450};
  std::filesystem::path folder = std::filesystem::path(REMAT_TEST_DATA) / "graphs";
};

void print_rows(const std::string& name, const problem& p, const settings& s) {
  turnaround_analysis analysis(p);
  const double base = p.graph().baseline_time;
  for (const double fraction : s.fractions) {
    const auto budget = static_cast<std::int64_t>(fraction * static_cast<double>(p.graph().baseline_peak));
    const double without = analysis.bound(budget).lower_bound / base - 1;
    for (const double speed : s.links) {
      const problem q = p.with_budget(budget).with_link({.out = speed * 1e9, .in = speed * 1e9, .latency = s.latency});
      const double start = test::processor_seconds();
      const offload_bound_result r = offload_bound(q, s.options);
      const double took = test::processor_seconds() - start;
      std::printf("%s,%u,%.2f,%lld,%.0f,%.6f,%.6f,%.6f,%u,%.4f,%.4f,%.4g,%lld,%zu,%zu,%u,%u,%.4f\n", name.c_str(),
                  p.graph().num_operations, fraction, static_cast<long long>(budget), speed, without,
                  r.lower_bound / base - 1, r.choice_time > 0 ? r.choice_time / base - 1 : 0,
                  static_cast<unsigned>(r.moment), r.before, r.after, r.multiplier,
                  static_cast<long long>(r.host_bytes), r.offloaded.size(), r.again.size(), r.moments_tried, r.flows,
                  took);
      std::fflush(stdout);
    }
  }
}

int run(int argc, char** argv) {
  settings s;
  double seconds = 0;
  bench::command_line app("offload_figures",
                          "The lower bound for recomputation and copies together, beside the one without copies, with "
                          "links of several speeds, as CSV. On the bundled graphs, or a folder of yours.");
  app.text("--graph", s.only, "One graph alone, such as rk/unet; without it, all", "NAME");
  app.list("--fractions", s.fractions, "Budgets as parts of the baseline's peak", "F,…");
  app.list("--links", s.links, "Links in GB/s, each way", "SPEED,…");
  app.number("--latency", s.latency, "Seconds of latency of a link", 0.0, 1e6);
  app.number("--moments", s.options.moments, "As offload_bound_options says");
  app.number("--flows", s.options.flows, "As offload_bound_options says");
  app.number("--releases", s.options.releases, "As offload_bound_options says");
  app.number("--nodes", s.options.branch_nodes, "As offload_bound_options says");
  app.number("--seconds", seconds, "The limit of each bound; 0: none", 0.0, 1e6);
  app.folder("--graphs", s.folder, "A folder of training graphs; without it, the bundled ones");
  if (!app.read(argc, argv)) return 0;
  if (seconds > 0) s.options.run.time_limit = std::chrono::nanoseconds(std::llround(seconds * 1e9));
  std::puts(
      "graph,operations,fraction,budget,link_gb_s,turnaround,bound,choice,moment,before,after,multiplier,host_bytes,"
      "offloaded,again,moments,flows,processor");
  for (const std::filesystem::path& file : test::graphs_in(s.folder)) {
    const std::string name = std::filesystem::relative(file, s.folder).replace_extension().string();
    if (!s.only.empty() && name != s.only) continue;
    print_rows(name, read_training_step(file).instance, s);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("offload_figures", [&] { return run(argc, argv); });
}
