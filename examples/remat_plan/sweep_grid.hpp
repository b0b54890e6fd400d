// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The pieces of a sweep, and the file that says what they are: sweep.json.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "sha256.hpp"
#include "shared/usage_error.hpp"

namespace remat_plan {

/// The first 64 bits of the SHA-256 of `text`, in hexadecimal digits.
[[nodiscard]] inline std::string short_hash(std::string_view text) { return sha256::of(text).substr(0, 16); }

/// A file of the sweep, and what its pieces have in common.
struct sweep_graph {
  std::string path{};    ///< where it lies now; not a part of the sweep
  std::string sha256{};  ///< of the file
  subject what{};        ///< `file` is the file's name without its folder
  bool is_chain = false;
  std::size_t size = 0;     ///< operations, or stages of a chain
  std::size_t tensors = 0;  ///< of a graph
  std::vector<std::string> solvers{};
  std::vector<std::int64_t> budgets{};  ///< bytes, in the order of the arguments, each once
};

/// One solve of a sweep.
struct sweep_piece {
  std::size_t graph = 0;  ///< its place in the list
  std::string solver{};
  std::int64_t budget = 0;
  std::uint64_t seed = 0;
  std::string key{};  ///< a hash of the program's version, the settings, the graph, and the three above
};

/// A sweep: graphs × solvers × budgets × seeds.
struct sweep_grid {
  static constexpr const char* format = "remat-sweep";
  static constexpr int version = 1;

  std::string program{};              ///< the version of remat-plan
  nlohmann::ordered_json settings{};  ///< the options that decide the answers, as given: name and text, or texts
  std::vector<std::uint64_t> seeds{};
  std::vector<sweep_graph> graphs{};

  /// A hash of all that decides the answers.
  [[nodiscard]] std::string id() const {
    nlohmann::ordered_json all{{"program", program}, {"settings", settings}, {"seeds", seeds}};
    for (const sweep_graph& g : graphs) all["graphs"].push_back({g.sha256, g.solvers, g.budgets});
    return short_hash(all.dump());
  }

  /// True if each solve has a limit of work: then its answer is the same every time, but for the seconds that it takes.
  [[nodiscard]] bool has_work_limit() const { return settings.contains("--work"); }

  /// All pieces, graph by graph, in the order in which the tables have them.
  [[nodiscard]] std::vector<sweep_piece> pieces() const {
    nlohmann::ordered_json common = settings;
    for (const char* name : {"--budget", "--solver", "--seed"}) common.erase(name);
    const std::string prefix = program + '\n' + common.dump() + '\n';
    std::vector<sweep_piece> all;
    for (std::size_t g = 0; g < graphs.size(); ++g)
      for (const std::string& solver : graphs[g].solvers)
        for (const std::int64_t budget : graphs[g].budgets)
          for (const std::uint64_t seed : seeds) {
            sweep_piece piece{g, solver, budget, seed, {}};
            piece.key = short_hash(prefix + graphs[g].sha256 + '\n' + solver + '\n' + std::to_string(budget) + '\n' +
                                   std::to_string(seed));
            all.push_back(std::move(piece));
          }
    return all;
  }

  /// The names of the graphs in tables: where several have one name, the file's is added.
  [[nodiscard]] std::vector<std::string> labels() const {
    std::map<std::string, int> count;
    for (const sweep_graph& g : graphs) ++count[g.what.name];
    std::vector<std::string> all;
    for (const sweep_graph& g : graphs) {
      std::string label = g.what.name;
      if (count[label] > 1) label.append(" (").append(g.what.file).append(", ").append(g.sha256, 0, 8).append(")");
      all.push_back(std::move(label));
    }
    return all;
  }
};

/// What a piece costs about, in seconds. Reading and the arena's plan grow with the graph. A search takes the longer,
/// up to its `limit`, the nearer the budget is to the least memory, below which the answer is known. The square fits
/// the bundled graphs: docs/sweeps.md.
[[nodiscard]] inline double estimated_seconds(const sweep_graph& g, const sweep_piece& piece, double limit) {
  const double fixed = 2e-3 + 2e-5 * static_cast<double>(g.size);
  const std::string_view solver = piece.solver;
  const bool searches = solver != "no_remat" && solver != "chen_sqrt" && solver != "chen_greedy" && solver != "revolve";
  if (!searches || piece.budget < g.what.least_bytes || piece.budget == 0) return fixed;
  const double share = static_cast<double>(g.what.least_bytes) / static_cast<double>(piece.budget);
  return fixed + limit * share * share;
}

namespace sweeping {

using json = nlohmann::ordered_json;
using shared::usage_error;

[[nodiscard]] inline json to_json(const sweep_graph& g) {
  const subject& s = g.what;
  return {{"name", s.name},
          {"file", s.file},
          {"sha256", g.sha256},
          {"kind", g.is_chain ? "chain" : "graph"},
          {"size", g.size},
          {"tensors", g.tensors},
          {"cost", s.cost},
          {"time_unit", s.time_unit},
          {"link", s.link},
          {"streams", s.streams},
          {"baseline_peak", s.baseline_peak},
          {"baseline_bytes", s.baseline_bytes},
          {"baseline_time", s.baseline_time},
          {"least_bytes", s.least_bytes},
          {"least_time", s.least_time},
          {"solvers", g.solvers},
          {"budgets", g.budgets}};
}

[[nodiscard]] inline sweep_graph to_graph(const json& j) {
  sweep_graph g;
  subject& s = g.what;
  j.at("name").get_to(s.name);
  j.at("file").get_to(s.file);
  j.at("sha256").get_to(g.sha256);
  g.is_chain = j.at("kind") == "chain";
  j.at("size").get_to(g.size);
  j.at("tensors").get_to(g.tensors);
  j.at("cost").get_to(s.cost);
  j.at("time_unit").get_to(s.time_unit);
  j.at("link").get_to(s.link);
  j.at("streams").get_to(s.streams);
  j.at("baseline_peak").get_to(s.baseline_peak);
  j.at("baseline_bytes").get_to(s.baseline_bytes);
  j.at("baseline_time").get_to(s.baseline_time);
  j.at("least_bytes").get_to(s.least_bytes);
  j.at("least_time").get_to(s.least_time);
  j.at("solvers").get_to(g.solvers);
  j.at("budgets").get_to(g.budgets);
  return g;
}

/// `object` with a key `check`, the hash of all the others.
[[nodiscard]] inline json with_check(json object) {
  object["check"] = short_hash(object.dump());
  return object;
}

/// Whether `object` is what `with_check` has made, and removes the key.
[[nodiscard]] inline bool take_check(json& object) {
  if (!object.is_object() || !object.contains("check") || !object["check"].is_string()) return false;
  const std::string check = object["check"];
  object.erase("check");
  return check == short_hash(object.dump());
}

[[nodiscard]] inline std::string text_of(const json& setting) {
  if (setting.is_null()) return "not given";
  if (setting.is_string()) return setting.get<std::string>();
  std::string text;
  for (const json& item : setting) text.append(text.empty() ? "" : " ").append(item.get<std::string>());
  return text;
}

}  // namespace sweeping

/// The text of sweep.json.
[[nodiscard]] inline std::string to_text(const sweep_grid& grid) {
  sweeping::json all{{"format", sweep_grid::format},     {"version", sweep_grid::version},
                     {"program", grid.program},          {"sweep", grid.id()},
                     {"settings", grid.settings},        {"seeds", grid.seeds},
                     {"graphs", sweeping::json::array()}};
  for (const sweep_graph& g : grid.graphs) all["graphs"].push_back(sweeping::to_json(g));
  return sweeping::with_check(std::move(all)).dump(1) + "\n";
}

/// Reads the text of the sweep.json at `path`. Throws `remat::bad_file`.
[[nodiscard]] inline sweep_grid parse_grid(const std::string& text, const std::string& path) {
  using sweeping::json;
  json all = json::parse(text, nullptr, false);
  if (all.is_discarded())
    throw remat::bad_file(path, "", text.empty() ? "is empty" : "is cut off, or no JSON; remove it to begin again");
  if (!all.is_object() || all.value("format", json()) != sweep_grid::format)
    throw remat::bad_file(path, "/format", std::string("expected \"") + sweep_grid::format + "\"");
  if (all.value("version", json()) != sweep_grid::version)
    throw remat::bad_file(path, "/version", "expected " + std::to_string(sweep_grid::version));
  if (!sweeping::take_check(all))
    throw remat::bad_file(path, "/check", "the file is not what remat-plan has written; remove it to begin again");
  sweep_grid grid;
  try {
    all.at("program").get_to(grid.program);
    grid.settings = all.at("settings");
    all.at("seeds").get_to(grid.seeds);
    for (const json& g : all.at("graphs")) grid.graphs.push_back(sweeping::to_graph(g));
  } catch (const std::exception& e) {
    throw remat::bad_file(path, "", std::string("lacks what version 1 has: ") + e.what());
  }
  return grid;
}

/// Throws `usage_error` if the sweep at `path` is not the one that is `wanted`: another version of the program, other
/// settings, or other files (their hashes, in order). Says what differs first.
inline void require_same_sweep(const sweep_grid& found, const std::string& path, const std::string& program,
                               const nlohmann::ordered_json& settings, const std::vector<sweep_graph>& files) {
  const auto refuse = [&](const std::string& what) {
    throw shared::usage_error(path + ": belongs to another sweep: " + what + "; expected the same, or another folder");
  };
  if (found.program != program) refuse("remat-plan " + found.program + " began it, and this is " + program);
  for (const auto* const names : {&found.settings, &settings})
    for (const auto& [name, ignored] : names->items()) {
      const sweeping::json there = found.settings.value(name, sweeping::json()),
                           here = settings.value(name, sweeping::json());
      if (there != here)
        refuse(name + " is " + sweeping::text_of(there) + " there, and " + sweeping::text_of(here) + " here");
    }
  if (found.graphs.size() != files.size())
    refuse("it has " + remat::detail::count_of(found.graphs.size(), "graph") + ", and here are " +
           std::to_string(files.size()));
  for (std::size_t i = 0; i < files.size(); ++i)
    if (found.graphs[i].sha256 != files[i].sha256)
      refuse("its graph " + std::to_string(i + 1) + " is " + found.graphs[i].what.file + ", SHA-256 " +
             found.graphs[i].sha256.substr(0, 8) + "…, and here it is " + files[i].path + ", " +
             files[i].sha256.substr(0, 8) + "…");
}

}  // namespace remat_plan
