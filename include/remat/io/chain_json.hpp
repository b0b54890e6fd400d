// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/error.hpp"
#include "remat/io/json.hpp"

namespace REMAT_NAMESPACE {

/// The chain in a parsed file of the format "remat-chain", version 1. Keys that the format does not name are ignored.
///
/// Budgets are fractions of `store_all_peak_bytes`, so a file is refused if it states another value than its stages
/// give. O(document) time. Throws `bad_file` with the file, a JSON pointer, the error and the expected value.
[[nodiscard]] inline chain to_chain(const json_document& document) {
  document.require_format("remat-chain", 1);
  const json_value root = document.root();
  std::string name(root.at("name").string());
  const std::int64_t input_bytes = root.at("input_bytes").bytes();
  const json_value list = root.at("stages");
  std::vector<chain_stage> stages;
  stages.reserve(list.elements().size());
  for (const json_value::member& element : list.elements()) {
    const json_value& stage = element.value;
    stages.push_back({stage.at("forward_time").amount(), stage.at("backward_time").amount(),
                      stage.at("output_bytes").bytes(), stage.at("saved_bytes").bytes(),
                      stage.at("forward_overhead_bytes").bytes(), stage.at("backward_overhead_bytes").bytes()});
  }
  std::optional<chain> built;
  try {
    built.emplace(std::move(name), input_bytes, std::move(stages));
  } catch (const error& e) {  // bad_graph, bad_cost
    throw bad_file(document.file(), "/stages", e.what());
  }
  if (const auto peak = root.find("store_all_peak_bytes"); peak && peak->bytes() != built->store_all_peak_bytes())
    peak->fail_as(std::to_string(built->store_all_peak_bytes()) + ", which the stages give");
  return *std::move(built);
}

/// Reads a chain from a file. See `to_chain`.
[[nodiscard]] inline chain read_chain(const std::filesystem::path& path) { return to_chain(json_document::read(path)); }

}  // namespace REMAT_NAMESPACE
