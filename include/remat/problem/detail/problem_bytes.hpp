// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/problem/flat_graph.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// Appends the primary arrays of a graph.
inline void put(byte_writer& out, const flat_graph& g) {
  out.put(g.num_operations);
  out.put(g.num_tensors);
  out.put(g.inputs);
  out.put(g.outputs);
  out.put(g.final_outputs);
  out.put(g.always_resident);
  out.put(g.once);
  out.put(g.phase);
  out.put(g.bytes);
  out.put(g.workspace);
  out.put(g.time);
  out.put<std::uint64_t>(g.operation_names.size());
  for (const std::string& name : g.operation_names) out.put(name);
}

/// Reads the primary arrays that `put` wrote; `problem::from_flat` completes them.
[[nodiscard]] inline flat_graph get_flat_graph(byte_reader& in) {
  flat_graph g;
  in.get(g.num_operations);
  in.get(g.num_tensors);
  in.get(g.inputs);
  in.get(g.outputs);
  in.get(g.final_outputs);
  in.get(g.always_resident);
  in.get(g.once);
  in.get(g.phase);
  in.get(g.bytes);
  in.get(g.workspace);
  in.get(g.time);
  g.operation_names.resize(in.length(1));
  for (std::string& name : g.operation_names) in.get(name);
  return g;
}

/// Appends the graph of a problem and its budget alone: for pieces that need no more, so that what they share stays the
/// same while the known bound rises.
inline void put_graph_and_budget(byte_writer& out, const problem& p) {
  put(out, p.graph());
  out.put(p.budget());
}

/// Reads the problem that `put_graph_and_budget` wrote.
[[nodiscard]] inline problem get_graph_and_budget(byte_reader& in) {
  flat_graph g = get_flat_graph(in);
  return problem::from_flat(std::move(g), in.get<std::int64_t>());
}

/// Appends a problem: its graph, its budgets, its link and its known bound.
inline void put(byte_writer& out, const problem& p) {
  put_graph_and_budget(out, p);
  out.put(p.link().has_value());
  if (p.link()) {
    out.put(p.link()->out);
    out.put(p.link()->in);
    out.put(p.link()->latency);
    out.put(p.host_budget());
  }
  out.put_optional(p.known_bound());
}

/// Reads the problem that `put` wrote. Everything that a solver sees of it is the same.
[[nodiscard]] inline problem get_problem(byte_reader& in) {
  problem p = get_graph_and_budget(in);
  if (in.get<bool>()) {
    host_link link;
    in.get(link.out);
    in.get(link.in);
    in.get(link.latency);
    p = p.with_link(link, in.get<std::int64_t>());
  }
  std::optional<double> bound;
  in.get_optional(bound);
  return bound ? p.with_known_bound(*bound) : p;
}

/// A problem that another process has sent, and a pool of objects that refer to it.
template <class Pool>
struct received_problem {
  explicit received_problem(problem q) : p(std::move(q)), pool(p) {}
  problem p;
  Pool pool;
};

}  // namespace REMAT_NAMESPACE::detail
