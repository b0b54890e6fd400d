// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/detail/difference.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "shared/program.hpp"

namespace remat_plan {

using shared::usage_error;

/// The command line of `remat-plan diff`.
struct diff_arguments {
  std::string graph{};
  std::array<std::string, 2> schedules{};
  std::string cost{};  ///< empty: the file's default
  bool json = false;
};

/// Reads the arguments behind `diff`; argv[0] is that word. Empty for `--help`, which this function prints. Throws
/// `usage_error`.
[[nodiscard]] inline std::optional<diff_arguments> parse_diff(int argc, const char* const* argv) {
  diff_arguments out;
  std::vector<std::string> files;
  shared::command_line app(
      "Says what two schedules of one training graph do differently, by the names of operations: what each runs again, "
      "keeps from forward to backward, copies to the host, and has in memory at its peak.",
      "remat-plan diff");
  app.footer(
      "Times are those of runs beyond the first. The columns kept, copied and peak are bytes of what the operations "
      "make, at each schedule's own peak with their workspace. Operations of one name count together: if their sums "
      "are equal, they are not the same operations. * stands for numbers.\n\n"
      "Example:\n"
      "  remat-plan gpt2.json --budget 80% --out a.json && remat-plan gpt2.json --budget 50% --out b.json\n\n"
      "  remat-plan diff gpt2.json a.json b.json\n\n"
      "Exit status: 0; 1 if output could not be written; 2 for unusable arguments or input.");
  app.add_option("files", files, "The graph, as JSON or an HLO module, and two schedules that --out has written")
      ->type_name("GRAPH.json A.json B.json");
  app.add_option("--cost", out.cost, "The cost model of the times, as in remat-plan --help")->type_name("SPEC");
  app.add_flag("--json", out.json, "Print one JSON object a line for each row of the table");
  if (!app.read(argc, argv)) return std::nullopt;
  if (files.size() != 3)
    throw usage_error("diff: expected a graph and two schedules, GRAPH.json A.json B.json (remat-plan diff --help)");
  out.graph = files[0];
  out.schedules = {files[1], files[2]};
  if (std::count(files.begin(), files.end(), shared::standard_stream) > 1)
    throw usage_error("diff: - is standard input, which can be read once");
  return out;
}

namespace diffing {

/// A schedule of the graph, and what it does.
struct side {
  remat::schedule_file file{};
  remat::check_report report{};
  remat::memory_profile profile{};
  double time = 0;
};

[[nodiscard]] inline side read_side(const remat::training_graph& graph, const remat::problem& p,
                                    const std::string& path) {
  side s;
  s.file = path == shared::standard_stream ? remat::to_schedule(remat::json_document::read(std::cin, "standard input"))
                                           : remat::read_schedule(path);
  remat::problem within = p.with_budget(remat::problem::unlimited);
  if (s.file.link) within = within.with_link(*s.file.link);
  s.report = remat::check(within, s.file.plan);
  if (!s.report.valid())
    throw usage_error(path + ": this is no schedule of " + std::string(graph.name()) + ": " + s.report.message());
  s.profile = remat::memory_profile_of(within, graph, s.file.plan);
  s.time = s.report.time;
  return s;
}

}  // namespace diffing

/// Compares two schedules of `graph`, whose costs are those of `p`, and prints what differs.
inline int print_difference(const remat::training_graph& graph, const remat::problem& p, std::string_view time_unit,
                            const diff_arguments& args) {
  const std::array<diffing::side, 2> sides{diffing::read_side(graph, p, args.schedules[0]),
                                           diffing::read_side(graph, p, args.schedules[1])};
  constexpr std::size_t joined_beyond = 20, most = 60;
  const auto all = remat::detail::differences_of(
      sides[0].profile, sides[1].profile,
      [&](std::uint32_t o) { return std::string(graph.name(static_cast<remat::op_id>(o))); },
      [&](std::uint32_t o) { return p.graph().time[o]; }, joined_beyond);
  if (args.json) {
    for (const auto& d : all) {
      nlohmann::ordered_json line;
      line["operation"] = d.name;
      line["operations"] = d.operations;
      line["again"] = d.again;
      line["kept_bytes"] = d.kept;
      line["copied_bytes"] = d.copied;
      line["peak_bytes"] = d.peak;
      std::cout << json_line(line) << '\n';
    }
    return 0;
  }
  constexpr auto right = remat::text_table::align::right;
  const bool copies = sides[0].report.copies + sides[1].report.copies != 0;
  remat::text_table head({{""},
                          {"schedule"},
                          {"solver"},
                          {"peak", right},
                          {"time", right},
                          {"overhead", right},
                          {"recomputed", right},
                          {"copies", right}});
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    const diffing::side& s = sides[i];
    std::uint64_t reruns = 0;
    for (const auto& r : s.profile.reruns) reruns += r.runs - 1;
    const double baseline = p.graph().baseline_time;
    head.row({i == 0 ? "A" : "B", args.schedules[i], s.file.solver, remat::format_bytes(s.report.peak_bytes),
              remat::format_time(s.time, time_unit),
              baseline > 0 ? remat::format_percent(s.time / baseline - 1, 2) : "–", std::to_string(reruns),
              std::to_string(s.report.copies)});
  }
  const std::size_t width = shared::line_width(STDOUT_FILENO);
  std::cout << remat::printable(graph.name(), 200) << "\n\n";
  head.write(std::cout, width, 1);
  std::cout << '\n';
  if (all.empty()) {
    std::cout << (sides[0].file.plan == sides[1].file.plan
                      ? "The schedules are the same."
                      : "The schedules compute, keep and copy the same; they differ in their order, or in their frees.")
              << '\n';
    return 0;
  }
  std::vector<remat::text_table::column> columns{{"operation"}, {"how many", right}};
  for (const char* what : {"again", "kept", copies ? "copied" : "", "at peak"})
    for (const char* side : {" A", " B"})
      if (*what != '\0') columns.push_back({std::string(what) + side, right});
  remat::text_table table(columns);
  for (std::size_t i = 0; i < std::min(all.size(), most); ++i) {
    const auto& d = all[i];
    std::vector<std::string> cells{d.name, std::to_string(d.operations)};
    for (const double t : d.again) cells.push_back(t > 0 ? remat::format_time(t, time_unit) : "–");
    const auto add = [&](const std::array<std::int64_t, 2>& pair) {
      for (const std::int64_t bytes : pair) cells.push_back(bytes == 0 ? "–" : remat::format_bytes(bytes));
    };
    add(d.kept);
    if (copies) add(d.copied);
    add(d.peak);
    table.row(std::move(cells));
  }
  table.write(std::cout, width, 1);
  if (all.size() > most)
    std::cout << "and " << all.size() - most << " names more, which differ less (--json has all)\n";
  return 0;
}

}  // namespace remat_plan
