// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The finished pieces of a sweep, in the files of its shards.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "remat/core/error.hpp"
#include "remat/core/option.hpp"
#include "shard.hpp"
#include "shared/whole_file.hpp"
#include "sweep_grid.hpp"

namespace remat_plan {

/// A finished piece: {"piece": its key, "seed", "recomputed", "result": its object of `--json`}, and with kept
/// schedules
/// {"schedule": the name of the file}.
using sweep_record = nlohmann::ordered_json;

[[nodiscard]] inline std::string key_of(const sweep_record& record) { return record.at("piece").get<std::string>(); }

[[nodiscard]] inline sweep_record to_record(const sweep_piece& piece, const subject& what, const outcome& o,
                                            const std::string& schedule) {
  sweep_record record{{"piece", piece.key}, {"seed", piece.seed}, {"recomputed", o.recomputes}};
  record["result"] = to_json(what, o);
  if (!schedule.empty()) record["schedule"] = schedule;
  return record;
}

namespace sweeping {

[[nodiscard]] inline remat::figures to_figures(const json& object) {
  remat::figures out;
  for (const auto& [name, value] : object.items()) {
    if (value.is_boolean())
      out.set(name, value.get<bool>());
    else if (value.is_number_float())
      out.set(name, value.get<double>());
    else if (value.is_number())
      out.set(name, value.get<std::int64_t>());
    else if (value.is_string())
      out.set(name, std::string_view(value.get_ref<const std::string&>()));
    else {
      remat::figures::group_list groups;
      for (const json& group : value) groups.push_back(to_figures(group));
      out.set(name, std::move(groups));
    }
  }
  return out;
}

}  // namespace sweeping

/// The outcome that a record keeps: all but the schedule and the offsets.
[[nodiscard]] inline outcome to_outcome(const sweep_record& record) {
  using sweeping::json;
  const json& line = record.at("result");
  const auto read = [&](const char* name, auto& to) {
    using value = typename std::remove_reference_t<decltype(to)>::value_type;
    if (line.contains(name) && !line[name].is_null()) to = line[name].get<value>();
  };
  const auto text = [&](const char* name) {
    return line.at(name).is_null() ? std::string() : line[name].get<std::string>();
  };
  const auto arena = [&](const char* name) {
    std::optional<std::int64_t> bytes;
    read(name, bytes);
    std::optional<remat::memory_plan> plan;
    if (bytes) plan.emplace().arena_bytes = *bytes;
    return plan;
  };
  outcome o;
  o.solver = text("solver");
  o.budget = line.at("budget_bytes");
  o.status = remat::enum_value<remat::solve_status>(text("status")).value();
  read("peak_bytes", o.peak);
  read("time", o.time);
  read("lower_bound", o.lower_bound);
  o.memory = arena("arena_bytes");
  read("host_peak_bytes", o.host_peak);
  o.host_memory = arena("host_arena_bytes");
  if (line.contains("makespan") && !line["makespan"].is_null())
    o.streams = overlap{line["makespan"].get<double>(), line.at("critical_path").get<double>()};
  o.recomputes = record.at("recomputed");
  o.seconds = line.value("seconds", 0.0);
  o.by = text("by");
  o.message = text("message");
  o.own = sweeping::to_figures(line.at("statistics"));
  return o;
}

/// The file of a shard. A line says to which sweep and shard it belongs; then comes a line for each finished piece; the
/// last line counts them. Each line has a hash of itself.
struct shard_file {
  static constexpr const char* format = "remat-sweep-shard";
  static constexpr int version = 1;

  std::filesystem::path path{};
  std::vector<sweep_record> records{};
  std::string damage{};  ///< "line 7 is cut off": what does not hold, and the records before it do; empty: all holds

  [[nodiscard]] static std::string name(const shard& s) {
    if (!s.piece.empty()) return "piece-" + s.piece + ".jsonl";
    return "shard-" + std::to_string(s.index) + "-of-" + std::to_string(s.count) + ".jsonl";
  }
  [[nodiscard]] static bool is_name(const std::string& name) {
    return (name.compare(0, 6, "shard-") == 0 || name.compare(0, 6, "piece-") == 0) && name.size() > 12 &&
           name.compare(name.size() - 6, 6, ".jsonl") == 0;
  }
  /// Whether a file of this name may hold pieces of `s`: not, if it is one of as many other shards.
  [[nodiscard]] static bool concerns(const std::string& other, const shard& s) {
    const std::string own = name(s);
    if (other == own) return true;
    if (!s.piece.empty()) return other.compare(0, 6, "piece-") != 0;
    const std::string end = own.substr(own.find("-of-"));
    return other.size() < end.size() || other.compare(other.size() - end.size(), end.size(), end) != 0;
  }
  /// What to say about the damage.
  [[nodiscard]] std::string warning() const {
    return path.string() + ": " + damage + "; " + std::to_string(records.size()) +
           (records.size() == 1 ? " piece before it is" : " pieces before it are") + " whole";
  }
};

/// The text of a shard's file, which grows by a line for each piece.
class shard_text {
 public:
  shard_text() = default;
  shard_text(const sweep_grid& grid, const std::vector<sweep_record>& records) {
    const sweeping::json head{{"format", shard_file::format},
                              {"version", shard_file::version},
                              {"program", grid.program},
                              {"sweep", grid.id()}};
    lines_ = sweeping::with_check(head).dump() + "\n";
    for (const sweep_record& record : records) add(record);
  }

  void add(const sweep_record& record) {
    lines_ += sweeping::with_check(record).dump() + "\n";
    ++pieces_;
  }
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_; }
  /// The whole file.
  [[nodiscard]] std::string text() const {
    return lines_ + sweeping::with_check(sweeping::json{{"pieces", pieces_}}).dump() + "\n";
  }

 private:
  std::string lines_{};
  std::size_t pieces_ = 0;
};

/// Reads the file of a shard. Throws `remat::bad_file` for one of another sweep, or with pieces that the sweep lacks.
/// Damage is no exception: the records before it are read.
[[nodiscard]] inline shard_file parse_shard(const std::string& text, const std::filesystem::path& path,
                                            const sweep_grid& grid, const std::set<std::string>& keys) {
  using sweeping::json;
  shard_file out{path, {}, {}};
  const auto refuse = [&](std::size_t line, const std::string& why) {
    throw remat::bad_file(path.string(), "line " + std::to_string(line), why);
  };
  bool ended = false;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    ++number;
    const auto damaged = [&](const char* how) { out.damage = "line " + std::to_string(number) + " " + how; };
    const std::size_t end = text.find('\n', at);
    if (ended) {
      damaged("stands behind the end");
      return out;
    }
    if (end == std::string::npos) {
      damaged("is cut off");
      return out;
    }
    json line = json::parse(text.begin() + static_cast<std::ptrdiff_t>(at),
                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    at = end + 1;
    if (number == 1 && (!line.is_object() || line.value("format", json()) != shard_file::format))
      refuse(1, std::string("expected a line with the format \"") + shard_file::format +
                    "\"; this is no file of a sweep; move it elsewhere");
    if (number == 1 && line.value("version", json()) != shard_file::version)
      refuse(1, "expected version " + std::to_string(shard_file::version));
    if (line.is_discarded() || !sweeping::take_check(line)) {
      damaged("is not as it was written");
      return out;
    }
    if (number == 1) {
      if (line.value("program", json()) != grid.program)
        refuse(1, "remat-plan " + sweeping::text_of(line.value("program", json())) + " has written it, expected " +
                      grid.program);
      if (line.value("sweep", json()) != grid.id())
        refuse(1, "belongs to another sweep (" + sweeping::text_of(line.value("sweep", json())) + ", expected " +
                      grid.id() + "): other graphs or settings; move it elsewhere");
    } else if (line.contains("pieces")) {
      ended = true;
      if (line["pieces"] != out.records.size()) damaged("counts other pieces than there are");
    } else {
      if (!line.contains("piece") || !line["piece"].is_string() || keys.count(key_of(line)) == 0)
        refuse(number, "is a piece that the sweep does not have");
      out.records.push_back(std::move(line));
    }
  }
  if (!ended && out.damage.empty()) out.damage = text.empty() ? "is empty" : "the last line is missing";
  return out;
}

/// The keys of all pieces.
[[nodiscard]] inline std::set<std::string> keys_of(const sweep_grid& grid) {
  std::set<std::string> keys;
  for (const sweep_piece& piece : grid.pieces()) keys.insert(piece.key);
  return keys;
}

/// Reads one file, which is there.
[[nodiscard]] inline shard_file read_shard_file(const std::filesystem::path& path, const sweep_grid& grid) {
  return parse_shard(shared::read_whole(path).value_or(""), path, grid, keys_of(grid));
}

/// The files of shards in `folder` whose path `concerns` accepts, by name.
template <class Accept>
[[nodiscard]] std::vector<shard_file> read_shards(const std::filesystem::path& folder, const sweep_grid& grid,
                                                  const Accept& concerns) {
  const std::set<std::string> keys = keys_of(grid);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (shard_file::is_name(entry.path().filename().string()) && concerns(entry.path())) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<shard_file> all;
  for (const std::filesystem::path& path : paths)
    if (const std::optional<std::string> text = shared::read_whole(path))
      all.push_back(parse_shard(*text, path, grid, keys));
  return all;
}

namespace sweeping {

/// Removes what the clock decides, also in the figures of solvers: `seconds`, `rounding_seconds`.
inline void remove_seconds(json& value) {
  constexpr std::string_view suffix = "_seconds";
  if (value.is_object()) {
    std::vector<std::string> names;
    for (const auto& [name, ignored] : value.items())
      if (name == "seconds" ||
          (name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0))
        names.push_back(name);
    for (const std::string& name : names) value.erase(name);
  }
  for (json& inner : value)
    if (inner.is_structured()) remove_seconds(inner);
}

}  // namespace sweeping

/// A record without what a second solve may measure differently, and without the file that keeps the schedule.
[[nodiscard]] inline sweep_record without_seconds(sweep_record record) {
  record.erase("schedule");
  sweeping::remove_seconds(record.at("result"));
  return record;
}

/// The finished pieces by key, and the file that each is in.
class sweep_results {
 public:
  struct found {
    sweep_record record{};
    std::filesystem::path path{};
  };

  /// Adds the records of a file. Two answers to one piece must be equal: throws `remat::bad_file` otherwise.
  void add(const shard_file& file) {
    for (const sweep_record& record : file.records) {
      const auto [place, is_new] = all_.try_emplace(key_of(record), found{record, file.path});
      if (is_new) continue;
      ++doubles_;
      if (without_seconds(place->second.record) != without_seconds(record)) {
        const auto& result = record.at("result");
        throw remat::bad_file(file.path.string(), "piece " + key_of(record),
                              "its answer for " + result.at("graph").get<std::string>() + ", " +
                                  result.at("solver").get<std::string>() + ", " + result.at("budget_bytes").dump() +
                                  " bytes differs from that in " + place->second.path.string() +
                                  "; remove one of the files, and start the sweep again");
      }
    }
  }

  [[nodiscard]] const sweep_record* find(const std::string& key) const {
    const auto place = all_.find(key);
    return place == all_.end() ? nullptr : &place->second.record;
  }
  [[nodiscard]] std::size_t doubles() const noexcept { return doubles_; }

 private:
  std::map<std::string, found> all_{};
  std::size_t doubles_ = 0;
};

}  // namespace remat_plan
