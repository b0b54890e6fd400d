// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/unknown_keys_json.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

namespace detail::unknown_keys_json {

/// The keys that a format names in one kind of objects: those of `list`, an array or an object of the root, or of the
/// root itself if `list` is empty.
struct known_keys {
  std::string_view format, list;
  std::array<std::string_view, 14> keys;  // the rest is empty

  [[nodiscard]] std::span<const std::string_view> named() const {
    return {keys.begin(), std::find(keys.begin(), keys.end(), std::string_view())};
  }
};

// Keys that no reader of the library needs, such as "note", are those of the exporters of bundled files.
inline constexpr std::array<known_keys, 8> formats{
    {{"training-graph",
      "",
      {"format", "version", "name", "source", "tensors", "operations", "outputs", "baseline", "note"}},
     {"training-graph", "tensors", {"id", "name", "bytes", "kind", "dtype", "shape"}},
     {"training-graph",
      "operations",
      {"id", "name", "phase", "inputs", "outputs", "flops", "bytes_accessed", "workspace_bytes", "time_us",
       "deterministic", "recomputable", "inputs_shape_only", "fct", "replay"}},
     {"training-graph",
      "baseline",
      {"peak_bytes", "flops", "time_us", "lower_bound_bytes", "rockmate_noremat_peak_bytes",
       "rockmate_noremat_time_us"}},
     {"remat-chain",
      "",
      {"format", "version", "name", "input_bytes", "stages", "store_all_peak_bytes", "length", "loss", "family", "seed",
       "no_remat_makespan", "note"}},
     {"remat-chain",
      "stages",
      {"forward_time", "backward_time", "output_bytes", "saved_bytes", "forward_overhead_bytes",
       "backward_overhead_bytes", "name", "note"}},
     {"training-schedule",
      "",
      {"format", "version", "graph", "solver", "budget_bytes", "peak_bytes", "host_peak_bytes", "link", "time", "steps",
       "note"}},
     {"training-schedule", "link", {"out", "in", "latency"}}}};

/// The number of characters to insert, erase or replace that make `a` equal to `b`. O(|a| · |b|) time.
[[nodiscard]] inline std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

[[nodiscard]] inline std::string_view nearest(std::string_view key, std::span<const std::string_view> known) {
  constexpr std::size_t longest = 60;  // the longest part of a key that is compared
  const auto distance = [&](std::string_view other) {
    const bool begins = !key.empty() && (other.starts_with(key) || key.starts_with(other));
    return begins ? 1 : edits(key.substr(0, longest), other);  // "workspace" means "workspace_bytes"
  };
  return *std::min_element(known.begin(), known.end(),
                           [&](std::string_view a, std::string_view b) { return distance(a) < distance(b); });
}

/// Notes the keys of `object` that are not `known`; `found` are those of the objects of its kind.
inline void look(const json_value& object, std::span<const std::string_view> known, std::vector<unknown_key>& found) {
  if (object.kind() != json_value::type::object) return;
  for (const json_value::member& m : object.members()) {
    if (std::find(known.begin(), known.end(), m.key) != known.end()) continue;
    const auto before = std::find_if(found.begin(), found.end(), [&](const unknown_key& u) { return u.key == m.key; });
    if (before != found.end())
      ++before->objects;
    else if (constexpr std::size_t most = 20; found.size() < most)
      found.push_back({std::string(m.key), object.pointer(), 1, nearest(m.key, known)});
  }
}

}  // namespace detail::unknown_keys_json

REMAT_INLINE std::string unknown_key::message(std::string_view file) const {
  return std::string(file) + ": " + where + ": the key \"" + printable(key) + "\" is ignored" +
         (objects > 1 ? " here and in " + std::to_string(objects - 1) + " more" : "") +
         "; the nearest known key is \"" + std::string(nearest) + "\"";
}

REMAT_INLINE std::vector<unknown_key> unknown_keys(const json_document& document) {
  std::vector<unknown_key> all;
  const auto format = document.root().find("format");
  if (!format || format->kind() != json_value::type::string) return all;
  for (const auto& kind : detail::unknown_keys_json::formats) {
    if (kind.format != format->string()) continue;
    std::vector<unknown_key> found;
    const std::optional<json_value> list =
        kind.list.empty() ? std::optional(document.root()) : document.root().find(kind.list);
    if (list && list->kind() == json_value::type::array)
      for (const json_value::member& m : list->elements())
        detail::unknown_keys_json::look(m.value, kind.named(), found);
    else if (list)
      detail::unknown_keys_json::look(*list, kind.named(), found);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace REMAT_NAMESPACE
