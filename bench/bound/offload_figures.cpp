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

#include "remat/bound/offload.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/io/training_graph_json.hpp"
#include "support/csv.hpp"
#include "support/graph_files.hpp"
#include "support/processor_time.hpp"

namespace {

using namespace remat;  // NOLINT: a program

struct settings {
  offload_bound_options options{};
  double latency = 1e-5;
  std::string only{};
  std::vector<double> fractions{0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2}, links{12, 25, 64, 450};
  std::filesystem::path folder = std::filesystem::path(REMAT_BENCH_DATA) / "graphs";
};

std::vector<double> numbers(const std::string& text) {
  std::vector<double> out;
  for (const std::string& f : test::csv_fields(text)) out.push_back(std::stod(f));
  return out;
}

settings read_settings(int argc, char** argv) {
  settings out;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    const auto whole = [&] { return static_cast<std::uint32_t>(std::stoul(value)); };
    if (key == "--graph") {
      out.only = value;
    } else if (key == "--graphs") {
      out.folder = value;
    } else if (key == "--fractions") {
      out.fractions = numbers(value);
    } else if (key == "--links") {
      out.links = numbers(value);
    } else if (key == "--latency") {
      out.latency = std::stod(value);
    } else if (key == "--moments") {
      out.options.moments = whole();
    } else if (key == "--flows") {
      out.options.flows = whole();
    } else if (key == "--nodes") {
      out.options.branch_nodes = whole();
    } else if (key == "--releases") {
      out.options.releases = whole();
    } else if (key == "--seconds") {
      out.options.run.time_limit = std::chrono::nanoseconds(std::llround(std::stod(value) * 1e9));
    } else {
      throw bad_argument(key + " is no option");
    }
  }
  return out;
}

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

}  // namespace

int main(int argc, char** argv) {
  try {
    const settings s = read_settings(argc, argv);
    std::puts(
        "graph,operations,fraction,budget,link_gb_s,turnaround,bound,choice,moment,before,after,multiplier,host_bytes,"
        "offloaded,again,moments,flows,processor");
    for (const std::filesystem::path& file : test::graphs_in(s.folder)) {
      const std::string name = std::filesystem::relative(file, s.folder).replace_extension().string();
      if (!s.only.empty() && name != s.only) continue;
      print_rows(name, read_training_step(file).instance, s);
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "offload_figures: %s\n", e.what());
    return 2;
  }
}
