// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/graph/training_graph.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

REMAT_INLINE tensor_id training_graph::add_tensor(tensor_spec t) {
  if (t.bytes < 0)
    throw bad_graph("tensor " + std::to_string(num_tensors()) + " (" + t.name + "): bytes is " +
                    std::to_string(t.bytes) + "; it must not be negative");
  if (num_tensors() >= std::numeric_limits<std::uint32_t>::max() / 2) throw bad_graph("too many tensors");
  bytes_.push_back(t.bytes);
  kind_.push_back(t.kind);
  tensor_name_.push_back(std::move(t.name));
  return static_cast<tensor_id>(bytes_.size() - 1);
}

REMAT_INLINE op_id training_graph::add_operation(operation_spec o) {
  const auto where = [&] { return "operation " + std::to_string(num_operations()) + " (" + o.name + "): "; };
  for (const auto* list : {&o.inputs, &o.outputs})
    for (const tensor_id t : *list)
      if (index(t) >= num_tensors())
        throw bad_graph(where() + (list == &o.inputs ? "input " : "output ") + std::to_string(index(t)) +
                        " is no tensor; there are " + std::to_string(num_tensors()));
  if (o.workspace < 0)
    throw bad_graph(where() + "workspace is " + std::to_string(o.workspace) + "; it must not be negative");
  if (num_operations() >= std::numeric_limits<std::uint32_t>::max() / 2) throw bad_graph("too many operations");
  inputs_.insert(inputs_.end(), o.inputs.begin(), o.inputs.end());
  outputs_.insert(outputs_.end(), o.outputs.begin(), o.outputs.end());
  input_begin_.push_back(inputs_.size());
  output_begin_.push_back(outputs_.size());
  flops_.push_back(o.flops);
  bytes_accessed_.push_back(o.bytes_accessed);
  seconds_.push_back(o.seconds);
  workspace_.push_back(o.workspace);
  phase_.push_back(o.phase);
  deterministic_.push_back(o.deterministic);
  recomputable_.push_back(o.recomputable);
  op_name_.push_back(std::move(o.name));
  return static_cast<op_id>(op_name_.size() - 1);
}

REMAT_INLINE void training_graph::add_final_output(tensor_id t) {
  if (index(t) >= num_tensors())
    throw bad_graph("final output " + std::to_string(index(t)) + " is no tensor; there are " +
                    std::to_string(num_tensors()));
  final_outputs_.push_back(t);
}

}  // namespace remat
