// SPDX-License-Identifier: BSL-1.0
// benchmark_set: problems, the best schedules that are known for them, and proven bounds (docs/benchmark-set.md).
//
//   benchmark_set table [--markdown]               prints the best that is known
//   benchmark_set graph INSTANCE FILE.json         writes the graph of an instance
//   benchmark_set check FOLDER                     judges the schedules FOLDER/INSTANCE/FRACTION.json
//   benchmark_set take FOLDER --by NAME            puts those that are better, and higher bounds, into the set
//   benchmark_set solve FOLDER [--seconds S] …     writes the schedules of `auto`, and its bounds, into FOLDER
//   benchmark_set add INSTANCE FRACTION…           adds problems
//
// Exit status: 0 done; 1 if a schedule of `check` or `take` is not valid; 2 unusable arguments or files.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remat/method/automatic.hpp"
#include "remat/render/table.hpp"
#include "set/benchmark_set.hpp"
#include "shared/program.hpp"

namespace {

using bench::benchmark_set;
using bench::best_known;
using remat::problem;

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now))};
}

std::string percent(double value, int decimals) { return remat::format_fixed(value, decimals); }
std::string overhead(const best_known& row, std::optional<double> time) {
  return time ? percent(bench::overhead(row, *time), 3) : "–";
}
std::string bound(const best_known& row) {
  return row.is_infeasible() ? "no schedule" : percent(bench::overhead(row, row.bound), 3);
}
std::string gap(const best_known& row, std::optional<double> time) {
  return time && row.bound > 0 ? percent(100 * (*time / row.bound - 1), 3) : "–";
}

/// Prints a table, as Markdown if asked.
void print(const std::vector<remat::text_table::column>& columns, const std::vector<std::vector<std::string>>& rows,
           bool markdown, std::size_t keys) {
  if (!markdown) {
    remat::text_table table(columns);
    for (const auto& row : rows) table.row(row);
    table.write(std::cout, shared::line_width(STDOUT_FILENO), keys);
    return;
  }
  const auto line = [](const std::vector<std::string>& cells) {
    std::cout << '|';
    for (const std::string& cell : cells) std::cout << ' ' << cell << " |";
    std::cout << '\n';
  };
  std::vector<std::string> titles, rule;
  for (const auto& c : columns) {
    titles.push_back(c.title);
    rule.emplace_back(c.side == remat::text_table::align::right ? "--:" : "---");
  }
  line(titles);
  line(rule);
  for (const auto& row : rows) line(row);
}

constexpr auto right = remat::text_table::align::right;

void print_set(const benchmark_set& set, bool markdown) {
  std::vector<std::vector<std::string>> rows;
  for (const best_known& r : set.rows())
    rows.push_back({r.instance, r.fraction, std::to_string(r.operations), overhead(r, r.time), bound(r), gap(r, r.time),
                    r.found_by, r.found_on, r.bound_by, r.bound_on});
  print({{"instance"},
         {"budget"},
         {"operations", right},
         {"overhead %", right},
         {"bound %", right},
         {"gap %", right},
         {"found by"},
         {"on"},
         {"bound by"},
         {"on"}},
        rows, markdown, 2);
}

/// Calls `use(row, step)` for the rows in `wanted` (all if it is empty). Each instance is made once.
template <class Use>
void for_rows(const benchmark_set& set, const std::vector<std::string>& wanted, const Use& use) {
  std::map<std::string, std::vector<std::size_t>> rows;
  for (std::size_t i = 0; i < set.rows().size(); ++i) {
    const std::string& instance = set.rows()[i].instance;
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), instance) != wanted.end())
      rows[instance].push_back(i);
  }
  for (const std::string& name : wanted)
    if (rows.find(name) == rows.end()) throw shared::usage_error("the set has no instance " + name);
  for (const auto& [instance, of] : rows) {
    std::optional<problem> whole;
    for (const std::size_t i : of)
      use(i, [&, name = instance] {
        if (!whole) whole = bench::instance_step(name).instance;
        return whole->with_budget(set.rows()[i].budget_bytes);
      });
  }
}

/// Judges the schedules of a folder. `take`: puts better ones into the set.
int judge_folder(benchmark_set& set, const std::filesystem::path& folder, bool take, const std::string& by,
                 const std::string& day, bool markdown) {
  if (!std::filesystem::is_directory(folder)) throw shared::usage_error(folder.string() + " is no folder");
  std::vector<std::vector<std::string>> table;
  std::vector<std::filesystem::path> known;
  int status = 0;
  for_rows(set, {}, [&](std::size_t i, const auto& instance) {
    const best_known before = set.rows()[i];
    const std::filesystem::path file = folder / before.file();
    if (!std::filesystem::exists(file)) return;
    known.push_back(std::filesystem::canonical(file));
    const problem p = instance();
    const remat::schedule_file handed_in = remat::read_schedule(file);
    const bench::verdict v = take ? set.take(i, p, handed_in, by, day) : bench::judge(before, p, handed_in);
    if (!v.valid) status = 1;
    const std::optional<double> time = v.valid ? std::optional(v.time) : std::nullopt;
    table.push_back({before.instance, before.fraction, overhead(before, time), overhead(before, before.time),
                     bound(before), gap(before, time), v.message});
  });
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".json" &&
        std::find(known.begin(), known.end(), std::filesystem::canonical(entry.path())) == known.end()) {
      std::cerr << "benchmark_set: " << entry.path().string() << ": the set has no such problem\n";
      status = 1;
    }
  print({{"instance"},
         {"budget"},
         {"overhead %", right},
         {"best known %", right},
         {"bound %", right},
         {"gap %", right},
         {"this schedule"}},
        table, markdown, 2);
  return status;
}

/// Takes the bounds in FOLDER/bounds.csv, if there is such a file.
void take_bounds(benchmark_set& set, const std::filesystem::path& folder, const std::string& by,
                 const std::string& day) {
  const std::filesystem::path file = folder / "bounds.csv";
  if (!std::filesystem::exists(file)) return;
  for (const auto& fields : remat::test::read_csv(file)) {
    if (fields.size() != 3) throw remat::bad_file(file.string(), "", "expected lines of instance,fraction,bound");
    const std::optional<std::size_t> row = set.find(fields[0], fields[1]);
    if (!row) throw remat::bad_file(file.string(), fields[0] + " at " + fields[1], "the set has no such problem");
    if (set.take_bound(*row, std::stod(fields[2]), by, day))
      std::cout << set.rows()[*row].name() << ": the bound is now " << bound(set.rows()[*row]) << '\n';
  }
}

struct solve_settings {
  double seconds = 10;
  std::uint64_t seed = 0;
  unsigned threads = 1;
  std::vector<std::string> instances{};
};

/// Writes what `auto` finds into a folder, row by row.
void solve(const benchmark_set& set, const std::filesystem::path& folder, const solve_settings& settings) {
  std::filesystem::create_directories(folder);
  const std::filesystem::path bounds = folder / "bounds.csv";
  const bool first = !std::filesystem::exists(bounds);
  std::ofstream out(bounds, std::ios::app);
  if (first) out << "instance,fraction,bound\n";
  for_rows(set, settings.instances, [&](std::size_t i, const auto& instance) {
    const best_known& row = set.rows()[i];
    if (row.is_infeasible()) return;
    const problem p = instance();
    remat::automatic_options options{.gap = 0};
    options.run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(settings.seconds * 1e9));
    options.run.seed = settings.seed;
    options.run.threads = settings.threads;
    const remat::solution found = remat::automatic(p, options);
    const bool none = found.status == remat::solve_status::infeasible;
    char text[64];
    std::snprintf(text, sizeof text, "%.17g", none ? std::numeric_limits<double>::infinity() : found.lower_bound);
    out << row.instance << ',' << row.fraction << ',' << text << '\n' << std::flush;
    if (found.plan) {
      const std::filesystem::path file = folder / row.file();
      std::filesystem::create_directories(file.parent_path());
      remat::write_schedule(file, {.graph = row.instance,
                                   .solver = found.by,
                                   .budget_bytes = row.budget_bytes,
                                   .peak_bytes = remat::check(p, found.plan->steps).peak_bytes,
                                   .plan = *found.plan});
    }
    const std::optional<double> time = found.plan ? std::optional(found.time) : std::nullopt;
    std::cout << row.name() << ": " << to_string(found.status) << ", overhead " << overhead(row, time) << " %, bound "
              << (none ? "–" : percent(bench::overhead(row, found.lower_bound), 3)) << " %, best known "
              << overhead(row, row.time) << " %" << std::endl;
  });
  if (!out) throw remat::bad_file(bounds.string(), "", "cannot be written");
}

int run(int argc, const char* const* argv) {
  shared::command_line app("Problems, the best schedules that are known for them, and proven bounds.", "benchmark_set");
  std::string set_folder = REMAT_BENCH_SET, folder, by, day = today(), instance, file;
  std::vector<std::string> fractions;
  bool markdown = false;
  solve_settings settings;
  app.add_option("--set", set_folder, "The folder of the set")->type_name("FOLDER");
  app.require_subcommand(1);
  const auto add_folder = [&](CLI::App* command, const char* help) {
    command->add_option("folder", folder, help)->required()->type_name("FOLDER");
  };
  CLI::App* const table = app.add_subcommand("table", "Print the best that is known");
  table->add_flag("--markdown", markdown, "Print a table in Markdown");
  CLI::App* const graph = app.add_subcommand("graph", "Write the graph of an instance");
  graph->add_option("instance", instance, "Its name")->required();
  graph->add_option("file", file, "The file to write")->required();
  CLI::App* const check = app.add_subcommand("check", "Judge the schedules of a folder");
  add_folder(check, "It has the schedules INSTANCE/FRACTION.json");
  check->add_flag("--markdown", markdown, "Print a table in Markdown");
  CLI::App* const take = app.add_subcommand("take", "Put what is better into the set");
  add_folder(take, "It has the schedules INSTANCE/FRACTION.json, and may have bounds.csv");
  take->add_option("--by", by, "Who found the schedules and proved the bounds")->required();
  take->add_option("--on", day, "The day, as in 2026-11-24; without it, today");
  CLI::App* const solved = app.add_subcommand("solve", "Write the schedules of auto, and its bounds, into a folder");
  add_folder(solved, "The folder to write");
  solved->add_option("instances", settings.instances, "The instances to solve; without any, all");
  shared::add_number(*solved, "--seconds", settings.seconds, "The limit of each solve", 0.0, 1e6);
  shared::add_number<std::uint64_t>(*solved, "--seed", settings.seed, "The seed of each solve");
  shared::add_number<unsigned>(*solved, "--threads", settings.threads, "Threads of each solve; 0: all cores");
  CLI::App* const add = app.add_subcommand("add", "Add problems to the set");
  add->add_option("instance", instance, "A bundled graph, or FAMILY-OPERATIONS-SEED")->required();
  add->add_option("fractions", fractions, "Budgets as parts of the baseline's peak")->required();
  if (!app.read(argc, argv)) return 0;

  if (graph->parsed()) {
    remat::write_training_graph(file, bench::instance_step(instance).graph);
    return 0;
  }
  if (by.find_first_of("\"\n") != std::string::npos)
    throw shared::usage_error("--by: expected one line without quotes");
  benchmark_set set(set_folder);
  if (table->parsed()) print_set(set, markdown);
  if (solved->parsed()) solve(set, folder, settings);
  if (add->parsed()) {
    const problem whole = bench::instance_step(instance).instance;
    for (const std::string& fraction : fractions) {
      const double part = shared::real("FRACTION", fraction, "a part of the peak, such as 0.5");
      if (part > 1) throw shared::usage_error("FRACTION " + fraction + ": expected at most 1");
      set.add(instance, fraction, whole);
    }
    set.write();
  }
  if (!check->parsed() && !take->parsed()) return 0;
  const int status = judge_folder(set, folder, take->parsed(), by, day, markdown);
  if (take->parsed()) {
    take_bounds(set, folder, by, day);
    set.write();
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("benchmark_set", [&] { return run(argc, argv); });
}
