// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/memory/plan.hpp"
#include "remat/render/detail/json_writer.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace remat_plan {

/// The input file: what all of its solves have in common.
struct subject {
  std::string name{};
  std::string file{};       ///< the name of the file, for messages
  std::string cost{};       ///< the cost model in words
  std::string time_unit{};  ///< "s", or empty: the model's own
  std::int64_t baseline_peak = 0;
  /// What the budget binds, of the baseline: its peak, or with --bind arena its arena.
  std::int64_t baseline_bytes = 0;
  double baseline_time = 0;
  std::int64_t least_bytes = 0;  ///< proven: no schedule has a lower peak, or with --bind arena a smaller arena
  std::string least_reason{};
  double least_time = 0;  ///< proven: no schedule takes less time
  /// Proven: with any link to the host, no schedule has a lower peak (or a smaller arena).
  std::int64_t least_bytes_with_link = 0;
  std::string remark{};       ///< said with every answer; mostly empty
  std::uint32_t streams = 0;  ///< number of streams to show makespans for; 0: show none
  std::string link{};         ///< the link to the host in words; empty: there is none
  std::string beside{};       ///< memory that no budget counts, in words; empty: not known
};

/// A schedule on several streams. Its computes wait for their data, and for the arena's bytes that they reuse.
struct overlap {
  double makespan = 0;       ///< on the streams asked for
  double critical_path = 0;  ///< on any number of streams
};

/// The result of one solve: one line of the output.
struct outcome {
  std::string solver{};
  std::int64_t budget = 0;
  remat::solve_status status = remat::solve_status::cancelled;
  std::optional<std::int64_t> peak{};
  std::optional<double> time{};
  std::optional<double> lower_bound{};
  std::optional<remat::schedule> plan{};            ///< for a graph; none for a chain
  std::optional<remat::memory_plan> memory{};       ///< the arena of `plan`; none for a chain
  std::optional<std::int64_t> host_peak{};          ///< of the copies of `plan`; 0 without a link
  std::optional<remat::memory_plan> host_memory{};  ///< the arena of these copies; none without a link
  std::optional<overlap> streams{};                 ///< of `plan`, with --streams
  bool binds_arena = false;                         ///< the budget is one for the arena
  bool is_least_memory = false;                     ///< the question was the least memory: `optimal` is said of that
  std::optional<std::int64_t> asked_budget{};       ///< if `plan` answered a smaller budget first: that one
  std::optional<std::int64_t> least_found{};  ///< the least budget known to have a schedule, if one was looked for
  std::uint64_t recomputes = 0;
  double seconds = 0;
  std::string by{};  ///< the part that found the schedule, as in `remat::solution`
  std::string message{};
  remat::figures own{};  ///< what the parts of the solver did

  [[nodiscard]] bool solved() const noexcept { return time.has_value(); }
  /// Adds a part to the message.
  void say(const std::string& more) { message.append(message.empty() || more.empty() ? "" : "; ").append(more); }
  /// The bytes that the budget binds: the arena's or the peak. Only for a solve that gave a schedule.
  [[nodiscard]] std::int64_t bound_bytes() const { return binds_arena && memory ? memory->arena_bytes : *peak; }
};

[[nodiscard]] inline std::optional<double> overhead(const subject& s, std::optional<double> time) {
  if (!time) return std::nullopt;
  if (s.baseline_time > 0) return *time / s.baseline_time - 1;
  return *time == 0 ? std::optional<double>(0) : std::nullopt;
}

[[nodiscard]] inline std::optional<double> gap(const outcome& o) {
  if (!o.time || !o.lower_bound) return std::nullopt;
  if (*o.lower_bound > 0) return (*o.time - *o.lower_bound) / *o.lower_bound;
  return *o.time == 0 ? std::optional<double>(0) : std::nullopt;
}

/// The status in words for people: of what a schedule is optimal, and whether it was a limit that ended a solve.
[[nodiscard]] inline std::string status_text(const outcome& o) {
  using remat::solve_status;
  if (o.status == solve_status::optimal && o.is_least_memory)
    return o.binds_arena ? "optimal (least arena)" : "optimal (least peak)";
  if (o.status == solve_status::timeout && remat::ended_by_itself(o.own)) return "none found";
  return std::string(remat::to_string(o.status));
}

/// An object as one line of JSON. What a terminal or a browser would obey in place of showing it is escaped, as JSON
/// allows it in all strings.
[[nodiscard]] inline std::string json_line(const nlohmann::ordered_json& object) {
  const std::string plain = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  for (std::size_t at = 0; at < plain.size();) {
    const auto [length, code] = remat::detail::utf8_at(std::string_view(plain).substr(at));
    if (remat::detail::is_control_or_format(code))
      out += remat::detail::json_escape(code);
    else
      out.append(plain, at, length);
    at += length;
  }
  return out;
}

/// The figures of a solver as an object.
[[nodiscard]] inline nlohmann::ordered_json to_json(const remat::figures& own) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : own.items())
    out[name] = std::visit(
        [](const auto& v) -> nlohmann::ordered_json {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, remat::figures::group_list>) {
            nlohmann::ordered_json list = nlohmann::ordered_json::array();
            for (const remat::figures& group : v) list.push_back(to_json(group));
            return list;
          } else {
            return v;
          }
        },
        value);
  return out;
}

/// The figures of a solver as rows for people: name, value. Those of the second group of `levels` are named
/// "levels 2: …".
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> to_rows(const remat::figures& own) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& [name, value] : own.items()) {
    if (const auto* groups = std::get_if<remat::figures::group_list>(&value)) {
      for (std::size_t i = 0; i < groups->size(); ++i)
        for (auto& [inner, text] : to_rows((*groups)[i]))
          rows.emplace_back(name + " " + std::to_string(i + 1) + ": " + inner, std::move(text));
    } else if (const auto* count = std::get_if<std::int64_t>(&value)) {
      const bool is_bytes = name.size() > 6 && name.compare(name.size() - 6, 6, "_bytes") == 0;
      rows.emplace_back(name, is_bytes ? remat::format_bytes(*count) : std::to_string(*count));
    } else {
      const nlohmann::ordered_json plain = to_json(own)[name];
      rows.emplace_back(name, plain.is_string() ? plain.get<std::string>() : plain.dump());
    }
  }
  return rows;
}

/// The object of `--json`: exactly these keys, null for unknown values. Those of streams are there with --streams
/// alone, those of the host with --link alone.
[[nodiscard]] inline nlohmann::ordered_json to_json(const subject& s, const outcome& o) {
  const auto or_null = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json line;
  line["graph"] = s.name;
  line["solver"] = o.solver;
  line["budget_bytes"] = o.budget;
  line["status"] = remat::to_string(o.status);
  line["peak_bytes"] = or_null(o.peak);
  line["time"] = or_null(o.time);
  line["baseline_time"] = s.baseline_time;
  line["overhead"] = or_null(overhead(s, o.time));
  line["lower_bound"] = or_null(o.lower_bound);
  line["gap"] = or_null(gap(o));
  line["arena_bytes"] = o.memory ? nlohmann::ordered_json(o.memory->arena_bytes) : nlohmann::ordered_json();
  if (!s.link.empty()) {
    line["host_peak_bytes"] = or_null(o.host_peak);
    line["host_arena_bytes"] =
        o.host_memory ? nlohmann::ordered_json(o.host_memory->arena_bytes) : nlohmann::ordered_json();
  }
  if (s.streams != 0) {
    line["streams"] = s.streams;
    line["makespan"] = o.streams ? nlohmann::ordered_json(o.streams->makespan) : nlohmann::ordered_json();
    line["critical_path"] = o.streams ? nlohmann::ordered_json(o.streams->critical_path) : nlohmann::ordered_json();
  }
  line["seconds"] = o.seconds;
  line["by"] = o.by.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(o.by);
  line["message"] = o.message.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(o.message);
  line["statistics"] = to_json(o.own);
  return line;
}

/// The columns of a solve in a table for people.
[[nodiscard]] inline std::vector<remat::text_table::column> table_columns(const subject& s) {
  constexpr auto right = remat::text_table::align::right;
  std::vector<remat::text_table::column> columns{{"solver"}, {"budget", right}, {"of baseline", right},
                                                 {"status"}, {"peak", right},   {"arena", right}};
  if (!s.link.empty()) columns.push_back({"host", right});
  for (const char* title : {"overhead", "lower bound", "gap", "recomputed"}) columns.push_back({title, right});
  if (s.streams != 0) {
    columns.push_back({"makespan on " + std::to_string(s.streams), right});
    columns.push_back({"critical path", right});
  }
  columns.push_back({"seconds", right});
  columns.push_back({"found by"});
  columns.push_back({"message"});
  return columns;
}

/// The cells of one solve.
[[nodiscard]] inline std::vector<std::string> table_cells(const subject& s, const outcome& o) {
  using remat::format_percent;
  const auto percent = [](std::optional<double> ratio) { return ratio ? format_percent(*ratio, 2) : "–"; };
  const double share = s.baseline_bytes > 0 ? static_cast<double>(o.budget) / static_cast<double>(s.baseline_bytes)
                                            : std::numeric_limits<double>::quiet_NaN();
  std::vector<std::string> cells{o.solver,
                                 remat::format_bytes(o.budget),
                                 format_percent(share),
                                 status_text(o),
                                 o.peak ? remat::format_bytes(*o.peak) : "–",
                                 o.memory ? remat::format_bytes(o.memory->arena_bytes) : "–"};
  if (!s.link.empty()) cells.push_back(o.host_peak ? remat::format_bytes(*o.host_peak) : "–");
  cells.push_back(percent(overhead(s, o.time)));
  cells.push_back(percent(overhead(s, o.lower_bound)));
  cells.push_back(percent(gap(o)));
  cells.push_back(o.solved() ? std::to_string(o.recomputes) : "–");
  if (s.streams != 0) {
    cells.push_back(o.streams ? remat::format_time(o.streams->makespan, s.time_unit) : "–");
    cells.push_back(o.streams ? remat::format_time(o.streams->critical_path, s.time_unit) : "–");
  }
  cells.push_back(remat::format_fixed(o.seconds, 2));
  cells.push_back(o.by.empty() ? "–" : o.by);
  cells.push_back(remat::with_byte_units(o.message));
  return cells;
}

/// All outcomes as a table for people.
[[nodiscard]] inline remat::text_table to_table(const subject& s, const std::vector<outcome>& all) {
  remat::text_table table(table_columns(s));
  for (const outcome& o : all) table.row(table_cells(s, o));
  return table;
}

}  // namespace remat_plan
