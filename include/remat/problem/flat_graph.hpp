// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace REMAT_NAMESPACE {

/// The training step as flat arrays: the data on which every solver works. Indices of operations and tensors are the
/// ids of the graph, and the order of the operations' indices is topological.
///
/// Primary arrays describe a graph and its costs; the caller of `problem::from_flat` fills them. Derived arrays follow
/// from the primary ones. In the graph of a `problem`, all arrays are filled and valid.
struct flat_graph {
  // Primary arrays.
  std::uint32_t num_operations = 0;  ///< indices of operations are 0 … num_operations − 1
  std::uint32_t num_tensors = 0;     ///< indices of tensors are 0 … num_tensors − 1
  index_rows inputs;   ///< operation → the tensors that it reads, without those always resident; ascending, each once
  index_rows outputs;  ///< operation → the tensors that it writes, ascending
  std::vector<std::uint32_t> final_outputs;   ///< tensors that must be readable when the training step ends, ascending
  std::vector<std::uint8_t> always_resident;  ///< 1: the tensor is always in memory, is not counted, has no producer
  std::vector<std::uint8_t> once;             ///< each operation's reason to run at most once, or 0
  std::vector<op_phase> phase;                ///< each operation's phase; empty if all phases are unknown
  std::vector<std::int64_t> bytes;            ///< each tensor's size; 0 if it is always resident
  std::vector<std::int64_t> workspace;        ///< each operation's workspace, bytes
  std::vector<double> time;                   ///< each operation's time, in the cost model's unit
  std::vector<std::string> operation_names;   ///< each operation's name, for messages; empty if there are no names

  // Derived arrays.
  index_rows producers;                    ///< tensor → the operations that write it, ascending
  index_rows consumers;                    ///< tensor → the operations that read it, ascending
  std::vector<std::uint8_t> final_output;  ///< 1: the tensor is one of `final_outputs`
  std::vector<std::uint8_t> needed;        ///< 1: a final output or an effect depends on the operation
  double baseline_time = 0;                ///< the time of all operations, each run once
  double needed_time = 0;  ///< the time of the needed operations, each run once, rounded down: no schedule takes less
  std::int64_t baseline_peak = 0;  ///< the peak of the listed order, each tensor freed right after its last use

  static constexpr std::uint8_t once_for_effect = 1;  ///< `once`: no outputs, so it runs exactly once
  static constexpr std::uint8_t once_as_marked = 2;   ///< `once`: the graph marks it as not recomputable

  /// Returns true if the operation has no outputs: it runs exactly once, for its effect.
  [[nodiscard]] bool has_effect(std::size_t operation) const noexcept { return outputs[operation].empty(); }
};

}  // namespace REMAT_NAMESPACE
