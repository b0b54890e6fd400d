// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE {

/// The graph in a parsed file of the format "training-graph", version 1.
///
/// Keys that the format does not name are ignored. `time_us`, in microseconds, becomes seconds. Optional keys that are
/// missing have their defaults. This function checks types, ranges, ids and the producers of tensors; the order of the
/// operations, and so cycles, are checked when a `problem` is built (see `read_training_step`). O(document) time.
/// Throws `bad_file` with the file, the JSON pointer, the value found and the value expected.
[[nodiscard]] training_graph to_training_graph(const json_document& document);

/// Reads a training graph from a file. See `to_training_graph`.
[[nodiscard]] training_graph read_training_graph(const std::filesystem::path& path);

/// The text of a training graph's file, which `to_training_graph` reads back to the same graph.
///
/// Figures that are not known are left out. Bytes of names that are not UTF-8 are replaced. Two figures are rounded if
/// the format has no number for them: `bytes_accessed` to a whole number, and seconds to the nearest value that a
/// `time_us` gives, which differs by at most one unit in the last place. What was read from a file is never rounded.
/// O(operations + tensors + reads and writes) time. Throws `bad_cost` for a figure that is negative or infinite.
[[nodiscard]] std::string to_json(const training_graph& graph);

/// Writes a training graph to a file, over the old content. Throws `bad_file` if that fails. See `to_json`.
void write_training_graph(const std::filesystem::path& path, const training_graph& graph);

/// A training graph with its costs and its `problem`: read, validated, and ready to be solved.
struct training_step {
  training_graph graph;  ///< the graph as the file states it
  cost_spec cost;        ///< the cost model of the operations
  problem instance;      ///< the problem without a budget: use `instance.with_budget(…)`
  /// The baseline's peak that the file states, if any. `instance.graph().baseline_peak` is computed from the graph.
  std::optional<std::int64_t> stated_peak_bytes;
};

/// The graph in a parsed file, its costs, and the `problem` built from both.
///
/// `cost` is a SPEC of `parse_cost`; if it is empty, `default_cost` chooses.
/// Throws `bad_argument` for an unusable SPEC, and `bad_file` for every defect of the file, also for those that are
/// found when the problem is built: a cycle, a tensor that is read before it is made, a cost that is missing or not
/// finite.
[[nodiscard]] training_step to_training_step(const json_document& document, std::string_view cost = {});

/// Reads and validates a training graph. See `to_training_step`.
///
///     const training_step step = read_training_step("gpt2.json");
///     const solution s = evict(step.instance.with_budget(step.instance.graph().baseline_peak / 2));
[[nodiscard]] training_step read_training_step(const std::filesystem::path& path, std::string_view cost = {});

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/training_graph_json.hpp"
#endif
