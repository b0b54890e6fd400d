// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"

namespace REMAT_NAMESPACE::detail {

/// Appends a sub-graph.
inline void put(byte_writer& out, const sub_graph& g) {
  out.put(g.operations);
  out.put(g.tensors);
  out.put<std::uint64_t>(g.operation.size());
  for (const sub_graph::operation_traits& o : g.operation) {
    out.put(o.time);
    out.put(o.workspace);
    out.put(o.once);
    out.put(o.forward);
  }
  out.put<std::uint64_t>(g.tensor.size());
  for (const sub_graph::tensor_traits& t : g.tensor) {
    out.put(t.bytes);
    out.put(t.roles);
  }
  out.put(g.reads);
  out.put(g.writes);
}

/// Reads the sub-graph that `put` wrote.
[[nodiscard]] inline sub_graph get_sub_graph(byte_reader& in) {
  sub_graph g;
  in.get(g.operations);
  in.get(g.tensors);
  g.operation.resize(in.length(1));
  for (sub_graph::operation_traits& o : g.operation) {
    in.get(o.time);
    in.get(o.workspace);
    in.get(o.once);
    in.get(o.forward);
  }
  g.tensor.resize(in.length(1));
  for (sub_graph::tensor_traits& t : g.tensor) {
    in.get(t.bytes);
    in.get(t.roles);
  }
  in.get(g.reads);
  in.get(g.writes);
  return g;
}

/// Appends a way.
inline void put(byte_writer& out, const sub_graph_way& way) {
  out.put(way.forward);
  out.put(way.backward);
  out.put(way.forward_time);
  out.put(way.backward_time);
  out.put(way.saved_bytes);
  out.put(way.forward_peak_bytes);
  out.put(way.backward_peak_bytes);
  out.put(way.forward_peak_again_bytes);
  out.put(way.backward_peak_again_bytes);
  for (const auto* stretches : {&way.forward_stretches, &way.backward_stretches}) {
    out.put<std::uint64_t>(stretches->size());
    for (const sub_graph_way::stretch& s : *stretches) {
      out.put(s.bytes);
      out.put(s.gone);
    }
  }
  out.put(way.kept);
  out.put(way.forward_reads);
  out.put(way.backward_reads);
}

/// Reads the way that `put` wrote.
[[nodiscard]] inline sub_graph_way get_way(byte_reader& in) {
  sub_graph_way way;
  in.get(way.forward);
  in.get(way.backward);
  in.get(way.forward_time);
  in.get(way.backward_time);
  in.get(way.saved_bytes);
  in.get(way.forward_peak_bytes);
  in.get(way.backward_peak_bytes);
  in.get(way.forward_peak_again_bytes);
  in.get(way.backward_peak_again_bytes);
  for (auto* stretches : {&way.forward_stretches, &way.backward_stretches}) {
    stretches->resize(in.length(1));
    for (sub_graph_way::stretch& s : *stretches) {
      in.get(s.bytes);
      in.get(s.gone);
    }
  }
  in.get(way.kept);
  in.get(way.forward_reads);
  in.get(way.backward_reads);
  return way;
}

}  // namespace REMAT_NAMESPACE::detail
