// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `remat-plan sweep` and `remat-plan merge`.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "interrupt.hpp"
#include "outcome.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/render/table.hpp"
#include "remat/version.hpp"
#include "shard.hpp"
#include "shared/program.hpp"
#include "shared/whole_file.hpp"
#include "sweep_arguments.hpp"
#include "sweep_grid.hpp"
#include "sweep_output.hpp"
#include "sweep_records.hpp"

namespace remat_plan {

/// What a sweep needs of the program.
struct sweep_planner {
  /// Reads the file of the arguments, and checks that they fit it. Throws what the program throws for unusable input.
  std::function<sweep_graph(const arguments&)> describe{};
  /// The one solve of the arguments, and its schedule as JSON: empty without one, and unless it is wanted.
  std::function<std::pair<outcome, std::string>(const arguments&, bool wants_schedule, const std::stop_token&)> solve{};
};

namespace sweeping {

namespace fs = std::filesystem;

inline void note(const std::string& text) { shared::note("remat-plan", text); }

/// "1 piece", "2 pieces".
[[nodiscard]] inline std::string count_of_pieces(std::size_t n) { return remat::detail::count_of(n, "piece"); }

[[nodiscard]] inline std::string program_version() {
  constexpr remat::version v = remat::library_version;
  return std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch);
}

inline void make_folder(const std::string& option, const std::string& path) {
  std::error_code failed, ignored;
  fs::create_directories(path, failed);
  if (fs::is_directory(path, ignored)) return;
  if (fs::exists(path, ignored)) throw usage_error(option + " " + path + ": is a file; expected a folder");
  throw usage_error(option + " " + path + ": cannot be made: " + failed.message());
}

/// The arguments of the program for a file of the sweep.
[[nodiscard]] inline arguments for_file(const sweep_arguments& args, const std::string& path) {
  arguments one = args.plan;
  one.graph = path;
  return one;
}

/// The files of the sweep: where each is, and its hash.
[[nodiscard]] inline std::vector<sweep_graph> hash_files(const std::vector<std::string>& paths) {
  std::vector<sweep_graph> files;
  for (const std::string& path : paths) {
    const std::optional<std::string> text = shared::read_whole(path);
    if (!text) throw remat::bad_file(path, "", "there is no such file");
    sweep_graph file;
    file.path = path;
    file.sha256 = sha256::of(*text);
    for (const sweep_graph& other : files)
      if (other.sha256 == file.sha256)
        throw usage_error(path + ": is the same graph as " + other.path + "; expected each once");
    files.push_back(std::move(file));
  }
  return files;
}

/// The sweep of the arguments: that of the folder's sweep.json, which the first process writes.
[[nodiscard]] inline sweep_grid load_grid(const sweep_arguments& args, const sweep_planner& planner) {
  const fs::path path = fs::path(args.out) / "sweep.json";
  const std::vector<sweep_graph> files = hash_files(args.graphs);
  const shared::file_lock lock(path);
  lock.take();
  sweep_grid grid;
  if (const std::optional<std::string> text = shared::read_whole(path)) {
    grid = parse_grid(*text, path.string());
    require_same_sweep(grid, path.string(), program_version(), args.settings, files);
    for (std::size_t i = 0; i < files.size(); ++i) grid.graphs[i].path = files[i].path;
    return grid;
  }
  grid.program = program_version();
  grid.settings = args.settings;
  grid.seeds = args.seeds;
  for (const sweep_graph& file : files) {
    sweep_graph g = planner.describe(for_file(args, file.path));
    g.path = file.path;
    g.sha256 = file.sha256;
    g.what.file = fs::path(file.path).filename().string();
    std::vector<std::int64_t> once;
    for (const std::int64_t budget : g.budgets)
      if (std::find(once.begin(), once.end(), budget) == once.end()) once.push_back(budget);
    g.budgets = std::move(once);
    grid.graphs.push_back(std::move(g));
  }
  shared::write_whole(path, to_text(grid));
  return grid;
}

/// A sweep in work: the pieces of one shard, and the file that keeps them.
class shard_run {
 public:
  shard_run(const sweep_arguments& args, const sweep_planner& planner, sweep_grid grid)
      : args_(args),
        planner_(planner),
        grid_(std::move(grid)),
        labels_(grid_.labels()),
        pieces_(grid_.pieces()),
        path_(fs::path(args.out) / shard_file::name(args.own)) {
    const double limit = args.plan.work_limit != remat::run_control::no_work_limit
                             ? static_cast<double>(args.plan.work_limit) * seconds_of_work
                             : std::chrono::duration<double>(args.plan.time_limit).count();
    for (const sweep_piece& piece : pieces_)
      costs_.push_back(estimated_seconds(grid_.graphs[piece.graph], piece, limit));
    const std::string& only = args.own.piece;
    const std::vector<std::size_t> dealt = deal(costs_, args.own.count);
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (only.empty() ? dealt[i] == args.own.index : pieces_[i].key == only) mine_.push_back(i);
    if (!only.empty() && mine_.empty())
      throw usage_error("--piece " + only + ": the sweep has no such piece; --list --json prints those that it has");
  }

  [[nodiscard]] const sweep_grid& grid() const noexcept { return grid_; }

  /// Prints the pieces of this shard.
  void list() {
    const sweep_results known = read_results();
    for (const std::size_t i : mine_) {
      const sweep_record* const record = known.find(pieces_[i].key);
      if (!args_.json)
        std::cout << name_of(i) << (record != nullptr ? ": done" : "") << '\n';
      else if (record != nullptr)
        std::cout << json_line(found(i, *record)) << '\n';
      else
        std::cout << json_line(event("listed", i, {{"estimated_seconds", costs_[i]}})) << '\n';
    }
  }

  /// Solves the pieces that are missing. Returns the exit status.
  [[nodiscard]] int solve() {
    const shared::file_lock lock(path_);
    if (!lock.take_if_free()) {
      note(path_.string() + ": another process is at work on this shard; waiting for its end");
      lock.take();
    }
    const sweep_results known = read_results();
    std::size_t number = 0, solved = 0;
    int status = 0;
    say_begin();
    const interrupt on_interrupt;
    for (const std::size_t i : mine_) {
      ++number;
      if (const sweep_record* record = known.find(pieces_[i].key); record != nullptr && has_schedule(*record)) {
        if (args_.json) std::cout << json_line(found(i, *record)) << std::endl;
        if (record->at("result").at("status") == "error") status = 1;
        continue;
      }
      if (args_.json) std::cout << json_line(event("begin", i)) << std::endl;
      const outcome answer = solve_piece(i, on_interrupt.token());
      if (on_interrupt.signal() != 0) {
        note(count_of_pieces(solved) + (solved == 1 ? " is" : " are") + " solved and kept in " + path_.string() +
             "; the same command goes on from there");
        return 128 + on_interrupt.signal();
      }
      keep();
      ++solved;
      if (answer.status == remat::solve_status::error) status = 1;
      say_kept(i, number, answer);
    }
    if (!args_.json)
      std::cout << count_of_pieces(mine_.size()) << ", " << mine_.size() - solved << " found, " << solved
                << " solved; kept in " << remat::printable(path_.string(), 4096) << std::endl;
    return status;
  }

 private:
  static constexpr double seconds_of_work = 4e-7;  // of one unit; it varies from 0.05 to 1.4 µs

  /// Reads the files of all shards that may hold pieces of this one. What is whole in a damaged one counts; it is
  /// written again, without the damage, unless a process is at work on it.
  [[nodiscard]] sweep_results read_results() {
    sweep_results known;
    std::vector<sweep_record> own;
    const auto concerns = [&](const fs::path& path) {
      return args_.list || shard_file::concerns(path.filename().string(), args_.own);
    };
    for (const shard_file& file : read_shards(args_.out, grid_, concerns)) {
      if (!file.damage.empty() && !args_.list) {
        note(file.warning() + " and used; the others are solved again");
        repair(file);
      }
      for (const sweep_record& record : file.records)
        if (file.path == path_ && has_schedule(record)) own.push_back(record);
      known.add(file);
    }
    own_ = shard_text(grid_, own);
    return known;
  }

  /// Writes a damaged file again, with what is whole in it.
  void repair(const shard_file& file) {
    const shared::file_lock lock(file.path);
    if (file.path != path_) {  // the lock of our own file is held
      if (!lock.take_if_free()) return;
      const shard_file now = read_shard_file(file.path, grid_);  // whoever held the lock may have written it since
      if (now.damage.empty()) return;
    }
    shared::write_whole(file.path, shard_text(grid_, file.records).text());
  }

  [[nodiscard]] outcome solve_piece(std::size_t i, const std::stop_token& stop) {
    const sweep_piece& piece = pieces_[i];
    const sweep_graph& g = grid_.graphs[piece.graph];
    arguments one = for_file(args_, g.path);
    one.budgets = {std::to_string(piece.budget)};
    one.solvers = {piece.solver};
    one.seed = piece.seed;
    auto [answer, schedule] = planner_.solve(one, args_.keep_schedules, stop);
    std::string name;
    if (!schedule.empty() && !stop.stop_requested()) {
      name = file_stem(g) + "-" + piece.solver + "-" + std::to_string(piece.budget) + "-" + std::to_string(piece.seed) +
             ".json";
      shared::write_whole(schedules() / name, schedule);
    }
    own_.add(to_record(piece, g.what, answer, name));
    return std::move(answer);
  }

  /// Writes the file of the shard, with the piece that was solved last.
  void keep() {
    try {
      shared::write_whole(path_, own_.text());
    } catch (const shared::file_failure& e) {
      throw std::runtime_error(std::string(e.what()) + "; the pieces that it held before, " +
                               std::to_string(own_.pieces() - 1) + ", are still there");
    }
  }

  [[nodiscard]] fs::path schedules() const { return fs::path(args_.out) / "schedules"; }

  /// Whether the record's schedule is there, if schedules are kept. Those of chains have no format.
  [[nodiscard]] bool has_schedule(const sweep_record& record) const {
    if (!args_.keep_schedules || record.at("result").at("arena_bytes").is_null()) return true;
    return record.contains("schedule") && fs::exists(schedules() / record.at("schedule").get<std::string>());
  }

  [[nodiscard]] std::string name_of(std::size_t i) const {
    const sweep_piece& piece = pieces_[i];
    std::string text = remat::printable(labels_[piece.graph], 200) + ", " + piece.solver + " within " +
                       remat::format_bytes(piece.budget);
    if (grid_.seeds.size() > 1) text += ", seed " + std::to_string(piece.seed);
    return text;
  }

  [[nodiscard]] json event(const char* kind, std::size_t i, const json& more = json::object()) const {
    const sweep_piece& piece = pieces_[i];
    json out{{"event", kind},          {"piece", piece.key},           {"graph", labels_[piece.graph]},
             {"solver", piece.solver}, {"budget_bytes", piece.budget}, {"seed", piece.seed}};
    out.update(more);
    return out;
  }

  [[nodiscard]] json found(std::size_t i, const sweep_record& record) const {
    return event("found", i, {{"result", record.at("result")}});
  }

  void say_begin() const {
    if (args_.json) return;
    std::cout << (args_.own.piece.empty() ? "shard " : "") << args_.own.text();
    if (!args_.own.source.empty()) std::cout << " (" << args_.own.source << ")";
    std::cout << " of a sweep of " << count_of_pieces(pieces_.size()) << ": " << count_of_pieces(mine_.size())
              << std::endl;
  }

  void say_kept(std::size_t i, std::size_t number, const outcome& o) const {
    if (args_.json) {
      const subject& what = grid_.graphs[pieces_[i].graph].what;
      std::cout << json_line(event("kept", i, {{"result", remat_plan::to_json(what, o)}})) << std::endl;
      return;
    }
    std::cout << number << "/" << mine_.size() << " " << name_of(i) << ": " << status_text(o);
    if (const auto more = overhead(grid_.graphs[pieces_[i].graph].what, o.time))
      std::cout << ", overhead " << remat::format_percent(*more, 2);
    std::cout << ", " << remat::format_seconds(o.seconds) << std::endl;
    if (o.status == remat::solve_status::error) note(name_of(i) + ": " + o.message);
  }

  const sweep_arguments& args_;
  const sweep_planner& planner_;
  sweep_grid grid_;
  std::vector<std::string> labels_;
  std::vector<sweep_piece> pieces_;
  fs::path path_;
  std::vector<double> costs_{};
  std::vector<std::size_t> mine_{};  ///< places of the pieces of this shard
  shard_text own_{};                 ///< the shard's file
};

/// "a, b and 7 more".
[[nodiscard]] inline std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 3;
  std::vector<std::string> first(names.begin(),
                                 names.begin() + static_cast<std::ptrdiff_t>(std::min(shown, names.size())));
  return join(first, "; ") + (names.size() > shown ? "; and " + std::to_string(names.size() - shown) + " more" : "");
}

}  // namespace sweeping

/// Puts the shards of `args` together, prints the table if `prints`, and writes the files. Returns the exit status.
[[nodiscard]] inline int merge_shards(const merge_arguments& args, bool prints = true) {
  using namespace sweeping;
  std::optional<sweep_grid> grid;
  std::string first;
  sweep_results results;
  for (const std::string& folder : args.folders) {
    const fs::path path = fs::path(folder) / "sweep.json";
    const std::optional<std::string> text = shared::read_whole(path);
    if (!text) throw remat::bad_file(path.string(), "", "there is no such file; expected the folder of a sweep");
    sweep_grid here = parse_grid(*text, path.string());
    if (!grid) {
      grid = std::move(here);
      first = path.string();
    } else {
      require_same_sweep(here, path.string(), grid->program, grid->settings, grid->graphs);
      for (std::size_t g = 0; g < here.graphs.size(); ++g)  // both are proven, and a clock may have ended one of them
        grid->graphs[g].what.least_bytes = std::max(grid->graphs[g].what.least_bytes, here.graphs[g].what.least_bytes);
    }
    for (const shard_file& file : read_shards(folder, *grid, [](const fs::path&) { return true; })) {
      if (!file.damage.empty())
        throw remat::bad_file(file.path.string(), "",
                              file.warning().substr(file.path.string().size() + 2) +
                                  "; start the sweep again, which keeps these and solves what is missing");
      results.add(file);
    }
  }
  std::vector<sweep_piece> missing;
  const std::vector<sweep_answer> all = answers_of(*grid, results, missing);
  if (!missing.empty()) {
    const std::vector<std::string> labels = grid->labels();
    std::vector<std::string> names;
    for (const sweep_piece& piece : missing)
      names.push_back(remat::printable(labels[piece.graph], 200) + ", " + piece.solver + " within " +
                      remat::detail::count_of(piece.budget, "byte") + ", seed " + std::to_string(piece.seed));
    note(std::to_string(missing.size()) + " of " + std::to_string(all.size() + missing.size()) +
         (missing.size() == 1 ? " pieces is missing: " : " pieces are missing: ") + some_of(names) +
         "; no results are written");
    return 1;
  }
  const std::string folder = args.out.empty() ? args.folders.front() : args.out;
  make_folder("--out", folder);
  if (prints && args.json) std::cout << to_json_lines(*grid, all);
  if (prints && !args.json)
    to_table(*grid, all).write(std::cout, shared::line_width(STDOUT_FILENO), grid->seeds.size() > 1 ? 4 : 3);
  std::cout.flush();
  write_results(*grid, all, folder);
  return 0;
}

/// Runs the sweep of `args`. Returns the exit status.
[[nodiscard]] inline int run_sweep(const sweep_arguments& args, const sweep_planner& planner) {
  sweeping::make_folder("--out", args.out);
  if (args.keep_schedules) sweeping::make_folder("--out", args.out + "/schedules");
  sweeping::shard_run run(args, planner, sweeping::load_grid(args, planner));
  if (args.list) {
    run.list();
    return 0;
  }
  const int status = run.solve();
  if (status > 128 || !args.own.is_all()) return status;
  if (!args.json) std::cout << '\n';
  return std::max(status, merge_shards({{args.out}, {}, false}, !args.json));
}

}  // namespace remat_plan
