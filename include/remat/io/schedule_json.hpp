// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/io/json.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// A schedule and what its file says about it.
struct schedule_file {
  std::string graph;   ///< name of the graph that it is for
  std::string solver;  ///< that made it
  std::optional<std::int64_t> budget_bytes{};
  std::optional<std::int64_t> peak_bytes{};
  schedule plan{};

  friend bool operator==(const schedule_file&, const schedule_file&) = default;
};

/// The schedule in a parsed file of the format "training-schedule", version 1.
///
/// `solver`, `budget_bytes` and `peak_bytes` may be missing or null. Whether the ids are those of the graph, and
/// whether the steps are legal and have that peak, is for `check` to say. O(document) time. Throws `bad_file` with
/// file, JSON pointer, what is wrong and what would be right.
[[nodiscard]] inline schedule_file to_schedule(const json_document& document) {
  document.require_format("training-schedule", 1);
  const json_value root = document.root();
  schedule_file file;
  file.graph = root.at("graph").string();
  if (const auto solver = root.find("solver"); solver && solver->kind() != json_value::type::null)
    file.solver = solver->string();
  const auto optional_bytes = [&](std::string_view key) -> std::optional<std::int64_t> {
    const auto value = root.find(key);
    if (!value || value->kind() == json_value::type::null) return std::nullopt;
    return value->bytes();
  };
  file.budget_bytes = optional_bytes("budget_bytes");
  file.peak_bytes = optional_bytes("peak_bytes");
  const json_value steps = root.at("steps");
  file.plan.steps.reserve(steps.elements().size());
  for (const json_value::member& element : steps.elements()) {
    const auto pair = element.value.elements();
    if (pair.size() != 2) element.value.fail("has " + std::to_string(pair.size()) + " elements; a step is [name, id]");
    auto it = pair.begin();
    const json_value name = (*it).value;
    const json_value id = (*++it).value;
    const std::string_view what = name.string();
    constexpr std::int64_t largest = (std::int64_t{1} << 31) - 1;
    const auto number = static_cast<std::uint32_t>(id.integer(0, largest, "an id, an integer from 0 to 2^31 − 1"));
    if (what == "compute")
      file.plan.compute(static_cast<op_id>(number));
    else if (what == "free")
      file.plan.free(static_cast<tensor_id>(number));
    else
      name.fail_as("\"compute\" or \"free\"");
  }
  return file;
}

/// Reads a schedule from a file. See `to_schedule`.
[[nodiscard]] inline schedule_file read_schedule(const std::filesystem::path& path) {
  return to_schedule(json_document::read(path));
}

/// \overload from a stream; `name` is the file's name for messages.
[[nodiscard]] inline schedule_file read_schedule(std::istream& in, std::string name) {
  return to_schedule(json_document::read(in, std::move(name)));
}

/// \overload from a text; `name` is the file's name for messages.
[[nodiscard]] inline schedule_file parse_schedule(std::string_view text, std::string name) {
  return to_schedule(json_document(text, std::move(name)));
}

/// The text of a schedule's file, which `parse_schedule` reads back to the same value; what is not known is left out.
/// Bytes of names that are not UTF-8 are replaced. O(steps) time.
[[nodiscard]] inline std::string to_json(const schedule_file& file) {
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string out = "{\"format\": \"training-schedule\", \"version\": 1, \"graph\": " + quoted(file.graph) +
                    ", \"solver\": " + quoted(file.solver);
  if (file.budget_bytes) out += ", \"budget_bytes\": " + std::to_string(*file.budget_bytes);
  if (file.peak_bytes) out += ", \"peak_bytes\": " + std::to_string(*file.peak_bytes);
  out += ",\n\"steps\": [";
  out.reserve(out.size() + file.plan.steps.size() * 20);
  const char* separator = "\n";
  for (const step& s : file.plan.steps) {
    out += separator;
    separator = ",\n";
    out += s.is_compute() ? "[\"compute\", " : "[\"free\", ";
    const std::size_t id = s.is_compute() ? index(s.operation()) : index(s.tensor());
    char digits[24];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, id).ptr);
    out += ']';
  }
  return out + "\n]}\n";
}

/// Writes a schedule to a stream.
inline void write_schedule(std::ostream& out, const schedule_file& file) { out << to_json(file); }

/// Writes a schedule to a file, over what is there. Throws `bad_file` when that fails.
inline void write_schedule(const std::filesystem::path& path, const schedule_file& file) {
  const std::string name = printable(path.string(), 4096);
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) throw bad_file(name, "", "is a directory; a file's name is needed");
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) throw bad_file(name, "", "cannot be opened for writing");
  write_schedule(out, file);
  out.close();
  if (!out) throw bad_file(name, "", "cannot be written to its end");
}

}  // namespace remat
