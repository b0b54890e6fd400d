// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/graph/training_graph.hpp"

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/graph/detail/label.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE tensor_id training_graph::add_tensor(tensor_spec t) {
  const auto id = static_cast<tensor_id>(num_tensors());
  if (t.bytes < 0)
    throw bad_graph(detail::label(id) + " (" + t.name + "): bytes is " + std::to_string(t.bytes) +
                    "; it must not be negative");
  if (num_tensors() >= std::numeric_limits<std::uint32_t>::max() / 2) throw bad_graph("too many tensors");
  tensors_.push_back(std::move(t));
  return id;
}

REMAT_INLINE op_id training_graph::add_operation(operation_spec o) {
  const auto id = static_cast<op_id>(num_operations());
  const auto fail = [&](const std::string& what) { throw bad_graph(detail::label(id) + " (" + o.name + "): " + what); };
  for (const auto* list : {&o.inputs, &o.outputs})
    for (const tensor_id t : *list)
      if (index(t) >= num_tensors())
        fail((list == &o.inputs ? "input " : "output ") + std::to_string(index(t)) + " is no tensor; there are " +
             std::to_string(num_tensors()));
  if (o.workspace < 0) fail("workspace is " + std::to_string(o.workspace) + "; it must not be negative");
  if (num_operations() >= std::numeric_limits<std::uint32_t>::max() / 2) throw bad_graph("too many operations");
  operations_.push_back(std::move(o));
  return id;
}

REMAT_INLINE void training_graph::add_final_output(tensor_id t) {
  if (index(t) >= num_tensors())
    throw bad_graph("final output " + std::to_string(index(t)) + " is no tensor; there are " +
                    std::to_string(num_tensors()));
  final_outputs_.push_back(t);
}

}  // namespace REMAT_NAMESPACE
