// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/schedule_json.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/option.hpp"
#include "remat/io/detail/files.hpp"

namespace REMAT_NAMESPACE {

namespace detail::schedule_json {

/// The value of `key`, if it is there and not null.
[[nodiscard]] inline std::optional<json_value> stated(const json_value& object, std::string_view key) {
  const auto value = object.find(key);
  return value && value->kind() != json_value::type::null ? value : std::nullopt;
}

[[nodiscard]] inline std::optional<std::int64_t> stated_bytes(const json_value& object, std::string_view key) {
  const auto value = stated(object, key);
  return value ? std::optional(value->bytes()) : std::nullopt;
}

[[nodiscard]] inline host_link read_link(const json_value& object) {
  (void)object.members();  // it must be an object
  host_link link;
  const auto read = [&](std::string_view key, double& part) {
    const auto value = stated(object, key);
    if (!value) return;
    part = value->amount();
    try {
      require_valid(link);
    } catch (const bad_argument&) {
      value->fail_as("a positive speed, in bytes per unit of time");
    }
  };
  read("out", link.out);
  read("in", link.in);
  read("latency", link.latency);
  return link;
}

/// Reads one step. Copies need `version` 2.
[[nodiscard]] inline step read_step(const json_value& element, std::int64_t version) {
  const auto pair = element.elements();
  if (pair.size() != 2) element.fail("has " + std::to_string(pair.size()) + " elements; a step is [name, id]");
  auto it = pair.begin();
  const json_value name = (*it).value;
  const json_value id = (*++it).value;
  const std::optional<step_kind> kind = enum_value<step_kind>(name.string());
  if (kind == step_kind::compute) {
    constexpr std::int64_t largest = (std::int64_t{1} << 31) - 1;
    return step::compute(static_cast<op_id>(id.integer(0, largest, "an id, an integer from 0 to 2^31 − 1")));
  }
  if (!kind && version == 1) name.fail_as("\"compute\" or \"free\"");
  if (!kind) name.fail_as("\"compute\", \"free\", \"offload\", \"prefetch\" or \"drop\"");
  if (kind != step_kind::free && version == 1)
    name.fail("is \"" + std::string(to_string(*kind)) + "\", which version 1 does not have; write \"version\": 2");
  static_assert(step::max_tensors == std::size_t{1} << 29);
  const auto t = static_cast<tensor_id>(id.integer(0, static_cast<std::int64_t>(step::max_tensors) - 1,
                                                   "the id of a tensor, an integer from 0 to 2^29 − 1"));
  switch (*kind) {
    case step_kind::offload:
      return step::offload(t);
    case step_kind::prefetch:
      return step::prefetch(t);
    case step_kind::drop:
      return step::drop(t);
    default:
      return step::free(t);
  }
}

}  // namespace detail::schedule_json

REMAT_INLINE schedule_file to_schedule(const json_document& document) {
  namespace reading = detail::schedule_json;
  const std::int64_t version = document.require_format("training-schedule", 1, 2);
  const json_value root = document.root();
  schedule_file file;
  file.graph = root.at("graph").string();
  if (const auto solver = reading::stated(root, "solver")) file.solver = solver->string();
  file.budget_bytes = reading::stated_bytes(root, "budget_bytes");
  file.peak_bytes = reading::stated_bytes(root, "peak_bytes");
  if (version == 2) {
    file.host_peak_bytes = reading::stated_bytes(root, "host_peak_bytes");
    if (const auto link = reading::stated(root, "link")) file.link = reading::read_link(*link);
    if (const auto time = reading::stated(root, "time")) file.time = time->amount();
  }
  const json_value steps = root.at("steps");
  file.plan.steps.reserve(steps.elements().size());
  for (const json_value::member& element : steps.elements())
    file.plan.steps.push_back(reading::read_step(element.value, version));
  return file;
}

REMAT_INLINE schedule_file read_schedule(const std::filesystem::path& path) {
  return to_schedule(json_document::read(path));
}

REMAT_INLINE std::string to_json(const schedule_file& file) {
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  const auto number = [](double value) { return nlohmann::json(value).dump(); };
  const bool copies = file.plan.has_copies();
  std::string out = "{\"format\": \"training-schedule\", \"version\": " + std::string(copies ? "2" : "1") +
                    ", \"graph\": " + quoted(file.graph) + ", \"solver\": " + quoted(file.solver);
  if (file.budget_bytes) out += ", \"budget_bytes\": " + std::to_string(*file.budget_bytes);
  if (file.peak_bytes) out += ", \"peak_bytes\": " + std::to_string(*file.peak_bytes);
  if (copies) {
    if (file.host_peak_bytes) out += ", \"host_peak_bytes\": " + std::to_string(*file.host_peak_bytes);
    if (file.link)
      out += ", \"link\": {\"out\": " + number(file.link->out) + ", \"in\": " + number(file.link->in) +
             ", \"latency\": " + number(file.link->latency) + "}";
    if (file.time) out += ", \"time\": " + number(*file.time);
  }
  out += ",\n\"steps\": [";
  out.reserve(out.size() + file.plan.steps.size() * 20);
  const char* separator = "\n";
  for (const step& s : file.plan.steps) {
    out += separator;
    separator = ",\n";
    out += "[\"";
    out += to_string(s.kind());
    out += "\", ";
    out += std::to_string(s.is_compute() ? index(s.operation()) : index(s.tensor()));
    out += ']';
  }
  return out + "\n]}\n";
}

REMAT_INLINE void write_schedule(const std::filesystem::path& path, const schedule_file& file) {
  detail::write_text(path, to_json(file));
}

}  // namespace REMAT_NAMESPACE
