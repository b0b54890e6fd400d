// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/problem/flat_graph.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// The primary arrays of a graph; `problem::from_flat` completes them.
void fields_of(auto& bytes, maybe_const<flat_graph> auto& g) {
  bytes(g.num_operations, g.num_tensors, g.inputs, g.outputs, g.final_outputs, g.always_resident, g.once, g.phase,
        g.bytes, g.workspace, g.time, g.operation_names);
}

void fields_of(auto& bytes, maybe_const<host_link> auto& link) { bytes(link.out, link.in, link.latency); }

/// Appends a problem without its known bound: for pieces that do not need it, so that what they share stays the same
/// while the bound rises.
inline void put_without_bound(byte_writer& out, const problem& p) {
  out(p.graph(), p.budget(), p.link(), p.host_budget());
}

/// Reads the problem that `put_without_bound` wrote.
[[nodiscard]] inline problem get_without_bound(byte_reader& in) {
  flat_graph g;
  std::int64_t budget = 0, host_budget = 0;
  std::optional<host_link> link;
  in(g, budget, link, host_budget);
  problem p = problem::from_flat(std::move(g), budget);
  return link ? p.with_link(*link, host_budget) : p;
}

/// Appends a problem: its graph, its budgets, its link and its known bound.
inline void put_problem(byte_writer& out, const problem& p) {
  put_without_bound(out, p);
  out(p.known_bound());
}

/// Reads the problem that `put_problem` wrote. Everything that a solver sees of it is the same.
[[nodiscard]] inline problem get_problem(byte_reader& in) {
  problem p = get_without_bound(in);
  const auto bound = in.get<std::optional<double>>();
  return bound ? p.with_known_bound(*bound) : p;
}

}  // namespace REMAT_NAMESPACE::detail
