// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "shard.hpp"
#include "shared/program.hpp"

namespace remat_plan {

/// The command line of `remat-plan sweep`.
struct sweep_arguments {
  arguments plan{};  ///< the options of every solve
  std::vector<std::string> graphs{};
  std::vector<std::uint64_t> seeds{0};
  std::string out{};
  std::string shard_text{};
  std::size_t shards = 0;
  std::string piece{};
  shard own{};
  bool keep_schedules = false;
  bool list = false;
  bool json = false;
  nlohmann::ordered_json settings{};  ///< the options that decide the answers, as given
};

/// The command line of `remat-plan merge`.
struct merge_arguments {
  std::vector<std::string> folders{};
  std::string out{};  ///< empty: the first folder
  bool json = false;
};

namespace reading {

inline constexpr const char* sweep_footer =
    "A sweep solves every graph with every solver, budget and seed; each solve is a piece. Finished pieces are kept in "
    "DIR, and a second start does those that are missing. As a task of a job array of Slurm or PBS the program takes "
    "its "
    "shard of the pieces by itself; remat-plan merge then writes the results. Without shards, the sweep writes "
    "them.\n\n"
    "Examples:\n"
    "  remat-plan sweep graphs/*.json --budget 0.8,0.6,0.4 --work 1000000 --out DIR\n\n"
    "  remat-plan sweep graphs/*.json --budget 0.5 --seed 0,1,2 --shard 2/8 --out DIR\n\n"
    "  remat-plan merge DIR\n\n"
    "Exit status:\n"
    "  0    all pieces of this shard have an answer\n"
    "  1    a solver failed for some, or a file could not be written\n"
    "  2    unusable arguments or input; one line on standard error says why\n"
    "  130  Ctrl-C; finished pieces are kept\n"
    "  129  SIGHUP (a lost connection), 143 SIGTERM: the same";

[[nodiscard]] inline std::vector<std::uint64_t> read_seeds(const std::string& option, const std::string& list) {
  std::vector<std::uint64_t> seeds;
  for (const std::string& item : split(option, list)) {
    const auto seed = whole<std::uint64_t>(option, item, 0, std::numeric_limits<std::uint64_t>::max());
    if (std::find(seeds.begin(), seeds.end(), seed) == seeds.end()) seeds.push_back(seed);
  }
  return seeds;
}

inline void check_together(const sweep_arguments& args) {
  if (args.graphs.empty())
    throw usage_error("sweep: the graphs are missing (remat-plan sweep --help names all arguments)");
  if (std::find(args.graphs.begin(), args.graphs.end(), "-") != args.graphs.end())
    throw usage_error("sweep -: a sweep reads its graphs from files, which a second start reads again");
  if (args.plan.budgets.empty()) throw usage_error("--budget is missing: for instance --budget 0.8,0.6,0.4");
  if (args.out.empty()) throw usage_error("--out DIR, the folder to keep finished pieces in, is missing");
  if (!args.piece.empty() && (!args.shard_text.empty() || args.shards != 0))
    throw usage_error("--piece: it is one piece, whatever the shards; leave out --shard and --shards");
  if (!args.shard_text.empty() && args.shards != 0)
    throw usage_error(
        "--shard and --shards: expected one of them; the latter is for a job array that does not say how "
        "many tasks it has");
}

}  // namespace reading

/// Reads the arguments behind `sweep`; argv[0] is that word. Empty for `--help`, which this function prints. Throws
/// `usage_error`.
[[nodiscard]] inline std::optional<sweep_arguments> parse_sweep(int argc, const char* const* argv) {
  using text = const std::string&;
  sweep_arguments out;
  shared::command_line app("Plans every graph with every solver, budget and seed, in shards if wanted.",
                           "remat-plan sweep");
  reading::define_options(app, out.plan);
  // A piece is one of the program's solves, so it has its options; but not those that name files of one solve.
  for (const char* name : {"graph", "--seed", "--max-overhead", "--list-options", "--out", "--intervals", "--report",
                           "--trace", "--dot", "--json"})
    app.remove_option(app.get_option(name));
  app.footer(reading::sweep_footer);
  app.add_option("graphs", out.graphs, "Training graphs and chains, as JSON, and HLO modules")->type_name("GRAPH.json");
  app.add_option_function<std::string>(
         "--seed", [&](text value) { out.seeds = reading::read_seeds("--seed", value); },
         "Of all random choices, 0 by default; several are several pieces")
      ->type_name("N[,N...]");
  app.add_option("--out", out.out, "The folder to keep finished pieces and results in; it is made if it is not there")
      ->type_name("DIR");
  app.add_option("--shard", out.shard_text,
                 "Take shard I of N, of about equal cost; 1/1, the default outside of job arrays, is all")
      ->type_name("I/N");
  shared::add_number<std::size_t>(
      app, "--shards", out.shards,
      "In a job array whose tasks are numbered from 1 to N: the number of shards. PBS needs it; "
      "Slurm says it by itself",
      1, shard::most);
  app.add_option("--piece", out.piece, "Take one piece alone, by the key that --list --json prints; for schedulers")
      ->type_name("KEY");
  app.add_flag("--schedules", out.keep_schedules, "Keep each schedule, as a file in DIR/schedules");
  app.add_flag("--list", out.list, "Print the pieces of this shard, and leave");
  app.add_flag("--json", out.json, "Print one JSON object a line: each piece that is listed, begun, found or kept");
  if (!app.read(argc, argv)) return std::nullopt;
  reading::check_together(out);
  for (const auto& [name, values] : reading::given_options(
           app, {"--threads", "--out", "--shard", "--shards", "--piece", "--schedules", "--list", "--json"})) {
    if (values.size() == 1)
      out.settings[name] = values.front();
    else
      out.settings[name] = values;
  }
  if (!out.piece.empty()) {
    out.own.piece = out.piece;
    return out;
  }
  out.own = read_shard(out.shard_text, out.list ? 0 : out.shards, [&](const char* name) -> std::optional<std::string> {
    const char* const value = out.list ? nullptr : std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  return out;
}

/// Reads the arguments behind `merge`, as `parse_sweep` does.
[[nodiscard]] inline std::optional<merge_arguments> parse_merge(int argc, const char* const* argv) {
  merge_arguments out;
  shared::command_line app(
      "Puts the shards of a sweep together: one table, results.jsonl, results.csv and a report on each "
      "graph, the same as those of a sweep in one process.",
      "remat-plan merge");
  app.footer(
      "Exit status: 0; 1 if pieces are missing, or a file could not be written; 2 for unusable arguments or input.");
  app.add_option("folders", out.folders, "Folders of one sweep, in any order")->type_name("DIR");
  app.add_option("--out", out.out, "The folder to write to, by default the first one; it is made if it is not there")
      ->type_name("DIR");
  app.add_flag("--json", out.json, "Print results.jsonl in place of the table");
  if (!app.read(argc, argv)) return std::nullopt;
  if (out.folders.empty())
    throw usage_error("merge: the folders are missing (remat-plan merge --help names all arguments)");
  return out;
}

}  // namespace remat_plan
