// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a finished sweep writes: a table, results.jsonl, results.csv, and a report on each graph. Under a limit of work
/// the same sweep writes the same bytes, however its pieces were dealt: the seconds of solving are left out then.

#include <cstddef>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "command_text.hpp"
#include "outcome.hpp"
#include "remat/render/table.hpp"
#include "shared/whole_file.hpp"
#include "sweep_grid.hpp"
#include "sweep_records.hpp"

#ifdef REMAT_HAVE_REPORT
#include "report.hpp"
#endif

namespace remat_plan {

/// The answer to a piece.
struct sweep_answer {
  sweep_piece piece{};
  outcome answer{};  ///< its seconds are NaN under a limit of work
};

namespace sweeping {

/// A name for files about a graph: that of its own file, and a hash.
[[nodiscard]] inline std::string file_stem(const sweep_graph& g) {
  return std::filesystem::path(g.what.file).stem().string() + "-" + g.sha256.substr(0, 8);
}

[[nodiscard]] inline json result_line(const sweep_grid& grid, const sweep_answer& a) {
  json line = remat_plan::to_json(grid.graphs[a.piece.graph].what, a.answer);
  if (grid.has_work_limit()) line["seconds"] = nullptr;
  line["seed"] = a.piece.seed;
  line["recomputed"] = a.answer.solved() ? json(a.answer.recomputes) : json();
  line["file"] = grid.graphs[a.piece.graph].what.file;
  return line;
}

/// A value as a cell of comma-separated lines (RFC 4180); null is empty.
[[nodiscard]] inline std::string csv_cell(const json& value) {
  const std::string text = value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

}  // namespace sweeping

/// All answers as a table for people.
[[nodiscard]] inline remat::text_table to_table(const sweep_grid& grid, const std::vector<sweep_answer>& all) {
  const bool has_seeds = grid.seeds.size() > 1;
  std::vector<remat::text_table::column> columns = table_columns(grid.graphs.front().what);
  if (has_seeds) columns.insert(columns.begin(), {"seed", remat::text_table::align::right});
  columns.insert(columns.begin(), {"graph"});
  remat::text_table table(std::move(columns));
  const std::vector<std::string> labels = grid.labels();
  for (const sweep_answer& a : all) {
    std::vector<std::string> cells = table_cells(grid.graphs[a.piece.graph].what, a.answer);
    if (has_seeds) cells.insert(cells.begin(), std::to_string(a.piece.seed));
    cells.insert(cells.begin(), labels[a.piece.graph]);
    table.row(std::move(cells));
  }
  return table;
}

/// All answers, one object a line: those of `--json`, with the keys `seed`, `recomputed` and `file`.
[[nodiscard]] inline std::string to_json_lines(const sweep_grid& grid, const std::vector<sweep_answer>& all) {
  std::string text;
  for (const sweep_answer& a : all) text += json_line(sweeping::result_line(grid, a)) + "\n";
  return text;
}

/// All answers as comma-separated lines: the keys of the objects, without `statistics`.
[[nodiscard]] inline std::string to_csv(const sweep_grid& grid, const std::vector<sweep_answer>& all) {
  std::string titles, text;
  for (const sweep_answer& a : all) {
    std::string line, names;
    const sweeping::json object = sweeping::result_line(grid, a);
    for (const auto& [name, value] : object.items()) {
      if (name == "statistics") continue;
      names.append(names.empty() ? "" : ",").append(name);
      line.append(names == name ? "" : ",").append(sweeping::csv_cell(value));
    }
    titles = names;
    text += line + "\n";
  }
  return titles + "\n" + text;
}

#ifdef REMAT_HAVE_REPORT
/// The report on the answers for one graph.
[[nodiscard]] inline std::string to_report(const sweep_grid& grid, std::size_t graph,
                                           const std::vector<sweep_answer>& all) {
  const sweep_graph& g = grid.graphs[graph];
  const subject& s = g.what;
  remat::report_subject head{s.name, s.time_unit, s.baseline_peak, s.baseline_time, {}};
  head.facts = {{"Cost model", s.cost}};
  if (s.streams != 0) head.facts.push_back({"Streams", std::to_string(s.streams)});
  if (!s.link.empty()) head.facts.push_back({"Link to the host", s.link});
  if (s.baseline_bytes != s.baseline_peak)
    head.facts.push_back(
        {"The budget binds", "the arena, " + remat::format_bytes(s.baseline_bytes) + " of the baseline"});
  head.facts.push_back({g.is_chain ? "Stages" : "Operations", std::to_string(g.size)});
  if (!g.is_chain) head.facts.push_back({"Tensors", std::to_string(g.tensors)});
  if (s.least_bytes > 0) head.least_bytes = s.least_bytes;
  head.highlighted = "auto";
  head.command = "remat-plan sweep " + quoted_for_shell(s.file);
  for (const auto& [name, value] : grid.settings.items())
    for (const auto& one : value.is_array() ? value : sweeping::json::array({value}))
      head.command += " " + name + (one == "true" ? "" : " " + quoted_for_shell(one.get<std::string>()));
  head.made = {{"Made by", "remat " + grid.program}, {"SHA-256 of the file", g.sha256}};
  // The command of one solve.
  std::vector<std::pair<std::string, std::vector<std::string>>> given;
  for (const auto& [name, value] : grid.settings.items()) {
    if (name == "--budget" || name == "--solver" || (name == "--seed" && grid.seeds.size() > 1)) continue;
    given.emplace_back(name, value.is_array() ? value.get<std::vector<std::string>>()
                                              : std::vector<std::string>{value.get<std::string>()});
  }
  const std::string base = reporting::command_base("remat-plan", s.file, given);
  remat::html_report report(std::move(head));
  for (const sweep_answer& a : all) {
    if (a.piece.graph != graph) continue;
    const std::string seed = grid.seeds.size() > 1 ? " --seed " + std::to_string(a.piece.seed) : "";
    remat::report_solve solve =
        reporting::to_solve(a.answer, reporting::schedule_command(base + seed, a.answer, g.is_chain));
    if (grid.seeds.size() > 1) solve.solver += ", seed " + std::to_string(a.piece.seed);
    report.add(std::move(solve));
  }
  std::ostringstream text;
  report.write(text);
  return text.str();
}
#endif

/// The answers of all pieces that have one, in the order of the pieces; the others go to `missing`.
[[nodiscard]] inline std::vector<sweep_answer> answers_of(const sweep_grid& grid, const sweep_results& results,
                                                          std::vector<sweep_piece>& missing) {
  std::vector<sweep_answer> all;
  for (sweep_piece& piece : grid.pieces()) {
    const sweep_record* const record = results.find(piece.key);
    if (record == nullptr) {
      missing.push_back(std::move(piece));
      continue;
    }
    if (!grid.has_work_limit()) {
      all.push_back({std::move(piece), to_outcome(*record)});
      continue;
    }
    outcome o = to_outcome(without_seconds(*record));
    o.seconds = std::numeric_limits<double>::quiet_NaN();
    all.push_back({std::move(piece), std::move(o)});
  }
  return all;
}

/// Writes the files of a finished sweep to `folder`. Throws `file_failure`.
inline void write_results(const sweep_grid& grid, const std::vector<sweep_answer>& all,
                          const std::filesystem::path& folder) {
  shared::write_whole(folder / "results.jsonl", to_json_lines(grid, all));
  shared::write_whole(folder / "results.csv", to_csv(grid, all));
#ifdef REMAT_HAVE_REPORT
  for (std::size_t g = 0; g < grid.graphs.size(); ++g)
    shared::write_whole(folder / ("report-" + sweeping::file_stem(grid.graphs[g]) + ".html"), to_report(grid, g, all));
#endif
}

}  // namespace remat_plan
