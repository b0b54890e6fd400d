// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "remat/core/detail/smallest_first.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE::detail {

/// Returns the operations in a topological order: at each place, the operation of the smallest number that may come
/// next. So operations that are in a topological order already keep it. `inputs` and `outputs` hold the tensors that
/// each operation reads and writes; a tensor is readable when all operations that write it have run.
/// Throws `bad_graph` for a cycle, whose operations the message calls `name(operation)`.
/// O(reads and writes + operations · log operations) time.
[[nodiscard]] inline std::vector<std::uint32_t> topological_order(const index_rows& inputs, const index_rows& outputs,
                                                                  std::size_t num_tensors,
                                                                  const std::function<std::string(std::size_t)>& name) {
  const std::size_t n = inputs.size();
  const index_rows producers = outputs.transposed(num_tensors), readers = inputs.transposed(num_tensors);
  std::vector<std::uint32_t> unwritten(num_tensors), missing(n);  // producers that have not run; unreadable inputs
  for (std::size_t t = 0; t < num_tensors; ++t) unwritten[t] = static_cast<std::uint32_t>(producers[t].size());
  for (std::uint32_t o = 0; o < n; ++o)
    for (const std::uint32_t t : inputs[o]) missing[o] += unwritten[t] != 0;
  std::vector<std::uint32_t> order = smallest_first(missing, [&](std::uint32_t o, const auto& arrive) {
    for (const std::uint32_t t : outputs[o])
      if (--unwritten[t] == 0)
        for (const std::uint32_t reader : readers[t]) arrive(reader);
  });
  if (order.size() == n) return order;

  // Walks backwards over operations that never became ready until one comes up again: it is on a cycle.
  std::vector<std::uint8_t> seen(n, 0);
  std::vector<std::size_t> walk;
  std::size_t o = 0;
  while (missing[o] == 0) ++o;
  for (; !seen[o]; seen[walk.back()] = 1) {
    walk.push_back(o);
    for (const std::uint32_t t : inputs[walk.back()])
      for (const std::uint32_t p : producers[t])
        if (missing[p] != 0) o = p;
  }
  walk.erase(walk.begin(), std::find(walk.begin(), walk.end(), o));
  constexpr std::size_t max_shown = 8;
  std::string text = "the graph has a cycle: " + name(o);
  for (std::size_t i = walk.size(); i-- > 0 && walk.size() - i <= max_shown;) text += " → " + name(walk[i]);
  if (walk.size() > max_shown) text += " → … (" + detail::count_of(walk.size(), "operation") + ")";
  throw bad_graph(text + "; a training step has none");
}

}  // namespace REMAT_NAMESPACE::detail
