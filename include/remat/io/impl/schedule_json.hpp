// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/schedule_json.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/io/detail/files.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE schedule_file to_schedule(const json_document& document) {
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

REMAT_INLINE schedule_file read_schedule(const std::filesystem::path& path) {
  return to_schedule(json_document::read(path));
}

REMAT_INLINE std::string to_json(const schedule_file& file) {
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
    out += std::to_string(s.is_compute() ? index(s.operation()) : index(s.tensor()));
    out += ']';
  }
  return out + "\n]}\n";
}

REMAT_INLINE void write_schedule(const std::filesystem::path& path, const schedule_file& file) {
  detail::write_text(path, to_json(file));
}

}  // namespace REMAT_NAMESPACE
