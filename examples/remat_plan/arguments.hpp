// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "budget.hpp"
#include "command_text.hpp"
#include "link.hpp"
#include "remat/core/error.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "shared/program.hpp"

namespace remat_plan {

using shared::real;
using shared::usage_error;
using shared::whole;

/// The command line, parsed as far as possible without the graph.
struct arguments {
  std::string program{};  ///< as it was called, for a shell
  std::string graph{};
  std::vector<std::string> budgets{};
  std::vector<std::string> solvers{"auto"};
  std::string cost{};  ///< empty: the file's default
  std::optional<double> max_overhead{};
  std::chrono::nanoseconds time_limit = std::chrono::seconds(10);
  std::uint64_t work_limit = remat::run_control::no_work_limit;
  std::uint64_t seed = 0;
  unsigned threads = 0;
  std::optional<std::uint32_t> slots{};
  std::optional<double> gap{};  ///< of auto
  bool improve = false;         ///< the named solvers get the help of the others
  remat::preset preset = remat::preset::balanced;
  std::vector<std::string> settings{};  ///< SOLVER.NAME=VALUE
  bool list_options = false, list_solvers = false;
  std::uint32_t streams = 0;  ///< number of streams to show makespans for; 0: show none
  std::string out{};
  std::string intervals{};
  std::string report{};
  std::string trace{};
  std::string dot{};
  bool bind_arena = false;
  std::optional<std::int64_t> alignment{};    ///< bytes, of every offset in an arena; empty: the default
  std::optional<remat::host_link> link{};     ///< empty: no copies to the host
  std::optional<std::int64_t> host_budget{};  ///< bytes; empty: no bound
  std::string host_budget_text{};             ///< as it was given
  bool json = false;
  /// The options as given, name and values, that decide an answer but are neither budget nor solver.
  std::vector<std::pair<std::string, std::vector<std::string>>> given{};

  /// The options that name files to write.
  [[nodiscard]] std::vector<shared::output_option> outputs() const {
    return {{"--out", out}, {"--intervals", intervals}, {"--report", report}, {"--trace", trace}, {"--dot", dot}};
  }
  /// True if one of these is standard output; then nothing else is printed there.
  [[nodiscard]] bool writes_standard_output() const {
    const auto all = outputs();
    return std::any_of(all.begin(), all.end(), [](const auto& o) { return o.second == shared::standard_stream; });
  }
};

[[nodiscard]] inline std::string join(const std::vector<std::string>& words, std::string_view between = ", ") {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) text.append(i == 0 ? "" : between).append(words[i]);
  return text;
}

namespace reading {

/// Throws for budgets such as "0,5", which a decimal comma has cut in two.
inline void refuse_decimal_comma(const std::string& list, const std::vector<std::string>& budgets) {
  constexpr const char* digits = "0123456789";
  for (std::size_t i = 1; i < budgets.size(); ++i) {
    const std::string &before = budgets[i - 1], &after = budgets[i];
    if (before.find_first_not_of('0') != std::string::npos || after.find_first_of(digits) != 0) continue;
    const std::size_t end = after.find_first_not_of(digits);
    if (end != std::string::npos && after[end] == '.') continue;
    throw usage_error("--budget " + list + ": commas separate budgets, so this asks for " + before + " and " + after +
                      "; write a fraction with a decimal point: " + before + "." + after);
  }
}

/// Throws if it is clear, before writing, that no file can be made at `path`.
inline void check_writable(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (path.empty()) throw usage_error(option + ": the name of a file is missing");
  if (path == shared::standard_stream) return;
  if (fs::is_directory(path, ignored))
    throw usage_error(option + " " + path + ": is a directory; expected the name of a file");
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    throw usage_error(option + " " + path + ": there is no directory " + folder.string() + " to write it to");
}

/// The names of a list of solvers, each once.
[[nodiscard]] inline std::vector<std::string> read_solvers(const std::string& list) {
  std::vector<std::string> solvers;
  for (std::string& name : split("--solver", list)) {
#ifndef REMAT_HAVE_CBC
    if (name == "checkmate")
      throw usage_error("--solver checkmate: this program was built without COIN-OR CBC, which it needs");
#endif
    if (std::find(solvers.begin(), solvers.end(), name) == solvers.end()) solvers.push_back(std::move(name));
  }
  return solvers;
}

/// The options of the command line as given, without those of these names: name and values, in the order of `--help`.
[[nodiscard]] inline std::vector<std::pair<std::string, std::vector<std::string>>> given_options(
    const CLI::App& app, const std::vector<std::string>& without) {
  std::vector<std::pair<std::string, std::vector<std::string>>> given;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (std::find(without.begin(), without.end(), name) == without.end()) given.emplace_back(name, option->results());
  }
  return given;
}

/// Defines the options; each reads its own text into `out`.
inline void define_options(CLI::App& app, arguments& out) {
  using text = const std::string&;
  const auto option = [&](const std::string& name, const char* type, const char* help, const auto& read) {
    app.add_option_function<std::string>(
           name, [name, read](text value) { read(name, value); }, help)
        ->type_name(type);
  };
  const auto file = [&](const std::string& name, const char* type, const char* help, std::string& to) {
    option(name, type, help, [&to](text option_name, text path) {
      check_writable(option_name, path);
      to = path;
    });
  };
  app.footer(
      "Examples:\n"
      "  remat-plan gpt2.json --budget 50%\n\n"
      "  remat-plan gpt2.json --budget 0.8,0.5,12GiB --solver all --report report.html\n\n"
      "  remat-plan gpt2.json --max-overhead 0.1 --out schedule.json\n\n"
      "  remat-plan gpt2.json --budget 40% --link out=25e9,in=25e9 --host-budget 64GiB\n\n"
      "  python3 export.py | remat-plan - --budget 8GiB --json\n\n"
      "  remat-plan module_0001.jit_step.after_optimizations.txt --budget 80%\n\n"
      "  remat-plan gpt2.json --budget 50% --out - | python3 run.py\n\n"
      "  remat-plan sweep graphs/*.json --budget 0.8,0.5 --out DIR\n\n"
      "  remat-plan merge DIR\n\n"
      "  remat-plan diff gpt2.json a.json b.json\n\n"
      "As first words, sweep and merge are commands for many graphs at once, in shards on many machines if wanted, and "
      "diff compares two schedules: remat-plan sweep --help, remat-plan merge --help, remat-plan diff --help. A file "
      "of "
      "such a name is ./sweep.\n\n"
      "Exit status:\n"
      "  0    every solve gave a schedule\n"
      "  1    some gave none, or output could not be written\n"
      "  2    unusable arguments or input; one line on standard error says why\n"
      "  130  Ctrl-C ended the solves; the best found is printed and written\n"
      "  129  SIGHUP (a lost connection) did so, 143 SIGTERM\n\n"
      "A second one of these ends the program. Under nohup a lost connection ends nothing. While it solves, a line on "
      "standard error shows the progress, if that is a terminal.");
  app.add_option("graph", out.graph,
                 "A training graph or a chain, as JSON, or an HLO module, as the text that XLA dumps or JAX's "
                 "compiled.as_text() returns; - reads it from standard input")
      ->type_name("GRAPH.json");
  option("--budget", "B[,B...]",
         "Memory budgets: fractions of the baseline's peak, or with --bind arena of its arena (0.5, 50%), or bytes "
         "(123456, 12GiB, 12GB; 12G is 12GB)",
         [&](text name, text value) {
           out.budgets = split(name, value);
           refuse_decimal_comma(value, out.budgets);
         });
  option("--solver", "NAME[,NAME...]",
         "auto (the default), a solver of --list-solvers, or all (those that apply, without refined and exact)",
         [&](text, text value) { out.solvers = read_solvers(value); });
  option("--cost", "SPEC",
         "measured, flops, unit, linear:flops=0.1,bytes=1, or roofline:flops=F,bandwidth=B,latency=S (by default "
         "156e12, 1.555e12 and 4e-6)",
         [&](text name, text value) {
           if (value.empty()) throw usage_error(name + ": the cost model is missing");
           out.cost = value;
         });
  option("--seconds", "S", "Wall clock of each solve, 10 by default", [&](text name, text value) {
    const double s = real(name, value, "a number of seconds from 0, such as 2.5");
    out.time_limit = s < 1e9 ? std::chrono::nanoseconds(std::llround(s * 1e9)) : std::chrono::nanoseconds::max();
  });
  option("--threads", "N", "Threads of each solve; 0, the default: one for each processor",
         [&](text name, text value) { out.threads = whole<unsigned>(name, value, 0, 1024); });
  option("--max-overhead", "X",
         "In place of a budget: the least memory whose time is at most 1 + X times the baseline's (0.3, 30%)",
         [&](text name, text value) {
           out.max_overhead =
               shared::ratio(name, value, "a number from 0, such as 0.3 or 30% for 1.3 times the baseline's time");
         });
  option("--bind", "peak|arena",
         "What the budget binds: the peak (the default) or the arena, alignment and fragmentation included",
         [&](text name, text value) {
           if (value != "peak" && value != "arena") throw usage_error(name + " " + value + ": expected peak or arena");
           out.bind_arena = value == "arena";
         });
  option("--alignment", "BYTES", "Of every offset in an arena, 256 by default",
         [&](text name, text value) { out.alignment = whole<std::int64_t>(name, value, 1, std::int64_t{1} << 40); });
  option("--link", "out=S,in=S,latency=T",
         "Allow copies to the host: their speeds in bytes per unit of the cost model's time (seconds for measured and "
         "roofline), and the time that each takes besides (by default 25e9, 25e9 and 1e-5)",
         [&](text name, text value) { out.link = read_link(name, value); });
  option("--host-budget", "BYTES", "With --link: what may lie on the host (123456, 12GiB, 12GB); by default no bound",
         [&](text name, text value) {
           out.host_budget = read_host_budget(name, value);
           out.host_budget_text = value;
         });
  option("--preset", "fast|balanced|paper",
         "Options of all solvers: less effort, the defaults, or each method as its paper has it (--list-options)",
         [&](text name, text value) {
           const std::optional<remat::preset> named = remat::enum_value<remat::preset>(value);
           if (!named) throw usage_error(name + " " + value + ": expected fast, balanced or paper");
           out.preset = *named;
         });
  option("--slots", "N", "rotor, rockmate: count memory in N slots",
         [&](text name, text value) { out.slots = whole<std::uint32_t>(name, value, 1, 10'000'000); });
  option("--gap", "G",
         "auto: end when the schedule is proven to be within G of the least time (0.01, 1%), 0.001 by default",
         [&](text name, text value) {
           out.gap = shared::ratio(name, value, "a number from 0, such as 0.01 or 1% of the least time");
         });
  app.add_flag(
      "--improve", out.improve,
      "The named solvers are helped by eviction and refinement, as auto is; without it each runs its own method "
      "alone");
  app.add_option("--option", out.settings, "An option of a solver, any number of times")
      ->type_name("SOLVER.NAME=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--list-options", out.list_options, "Print the options of all solvers, and leave");
  app.add_flag("--list-solvers", out.list_solvers, "Print the solvers of training graphs, and leave");
  option("--streams", "K", "Show the makespan on K streams, and the critical path", [&](text name, text value) {
    out.streams = whole<std::uint32_t>(name, value, 1, remat::stream_options::max_streams);
  });
  option("--seed", "N", "Of all random choices, 0 by default", [&](text name, text value) {
    out.seed = whole<std::uint64_t>(name, value, 0, std::numeric_limits<std::uint64_t>::max());
  });
  option("--work", "N",
         "Units of work of each solve, 0.05 to 1.4 µs each, in place of --seconds: the same answer every time",
         [&](text name, text value) {  // read after --seconds
           out.work_limit = whole<std::uint64_t>(name, value, 1, remat::run_control::no_work_limit - 1);
           out.time_limit = std::chrono::nanoseconds::max();
         });
  file("--out", "SCHEDULE.json",
       "Write the schedule (one solver, one budget). For this and the other files, - is standard output, where then "
       "nothing else is printed",
       out.out);
  file("--intervals", "FILE.csv", "Write lifetimes and offsets in the arena (one solver, one budget)", out.intervals);
  file("--report", "REPORT.html", "Write a report to look at in a browser", out.report);
  file("--trace", "TRACE.json",
       "Write the schedule over time, to look at in ui.perfetto.dev or chrome://tracing (one solver, one budget)",
       out.trace);
  file(
      "--dot", "PICTURE.dot",
      "Write the graph as a picture for Graphviz; what the schedule runs again says how often (one solver, one budget)",
      out.dot);
  app.add_flag("--json", out.json, "Print one JSON object a line, and nothing else");
}

/// Throws for arguments that do not belong together.
inline void check_together(const arguments& args) {
  if (args.list_options || args.list_solvers) return;
  if (args.graph.empty())
    throw usage_error("GRAPH.json, the file to plan, is missing (remat-plan --help names all arguments)");
  if (args.budgets.empty() != args.max_overhead.has_value())
    throw usage_error(args.max_overhead ? "--budget and --max-overhead ask opposite questions; expected one of them"
                                        : "--budget is missing: for instance --budget 0.5, 50% or 12GiB (or "
                                          "--max-overhead 0.3 for the least memory)");
  shared::check_outputs(args.graph, args.outputs());
  if (args.json && args.writes_standard_output())
    throw usage_error("--json: another option writes to standard output (-); expected one of them there");
  require_link_for_host_budget(args.link.has_value(), args.host_budget.has_value());
  if (args.link && args.streams != 0)
    throw usage_error("--streams " + std::to_string(args.streams) +
                      ": schedules with copies run their computes on one stream; leave out --streams or --link");
#ifndef REMAT_HAVE_REPORT
  if (!args.report.empty())
    throw usage_error(
        "--report: this program was built without Chart.js (Debian: libjs-chart.js), so it has no report");
#endif
}

}  // namespace reading

/// Reads the command line. Empty for `--help`, which this function prints. Throws `usage_error`.
[[nodiscard]] inline std::optional<arguments> parse_arguments(int argc, const char* const* argv) {
  arguments out;
  shared::command_line app(
      "Decides which tensors of a training step to keep and which to compute again, so that the step fits a "
      "memory budget and takes the least time.",
      "remat-plan");
  reading::define_options(app, out);
  if (!app.read(argc, argv)) return std::nullopt;
  reading::check_together(out);
  std::vector<std::string> asked{"--budget", "--solver",       "--max-overhead",
                                 "--json",   "--list-options", "--list-solvers"};
  for (const auto& [option, path] : out.outputs()) asked.push_back(option);
  out.given = reading::given_options(app, asked);
  out.program = quoted_for_shell(argv[0]);
  return out;
}

}  // namespace remat_plan
