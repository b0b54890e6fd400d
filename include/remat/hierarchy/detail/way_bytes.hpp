// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/detail/byte_stream.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"

namespace REMAT_NAMESPACE::detail {

void fields_of(auto& bytes, maybe_const<sub_graph::operation_traits> auto& o) {
  bytes(o.time, o.workspace, o.once, o.forward);
}

void fields_of(auto& bytes, maybe_const<sub_graph::tensor_traits> auto& t) { bytes(t.bytes, t.roles); }

void fields_of(auto& bytes, maybe_const<sub_graph> auto& g) {
  bytes(g.operations, g.tensors, g.operation, g.tensor, g.reads, g.writes);
}

void fields_of(auto& bytes, maybe_const<sub_graph_way::stretch> auto& s) { bytes(s.bytes, s.gone); }

void fields_of(auto& bytes, maybe_const<sub_graph_way> auto& way) {
  bytes(way.forward, way.backward, way.forward_time, way.backward_time, way.saved_bytes, way.forward_peak_bytes,
        way.backward_peak_bytes, way.forward_peak_again_bytes, way.backward_peak_again_bytes, way.forward_stretches,
        way.backward_stretches, way.kept, way.forward_reads, way.backward_reads);
}

}  // namespace REMAT_NAMESPACE::detail
