// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <boost/functional/hash.hpp>
#include <boost/graph/graph_traits.hpp>
#include <boost/property_map/property_map.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <queue>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

namespace detail::boost_viewing {

template <class Graph>
using vertex_of = typename boost::graph_traits<Graph>::vertex_descriptor;

/// A directed Boost.Graph graph whose vertices and edges can be listed, all edges at once or those of each vertex.
template <class Graph>
concept listable = requires(const Graph& g) {
  vertices(g);
  requires std::convertible_to<typename boost::graph_traits<Graph>::directed_category, boost::directed_tag>;
}
&&(
    requires(const Graph& g) { edges(g); } || requires(const Graph& g, vertex_of<Graph> v) { out_edges(v, g); });

/// A property map from `Vertex` to something integral.
template <class Map, class Vertex>
concept integral_map = std::integral<typename boost::property_traits<Map>::value_type> &&
    std::convertible_to<Vertex, typename boost::property_traits<Map>::key_type>;

/// A property map from `Vertex` to `op_phase`.
template <class Map, class Vertex>
concept phase_map = std::same_as<std::remove_cv_t<typename boost::property_traits<Map>::value_type>, op_phase> &&
    (std::same_as<typename boost::property_traits<Map>::key_type, void> ||
     std::convertible_to<Vertex, typename boost::property_traits<Map>::key_type>);

/// The same phase, unknown, for every vertex.
using no_phases = boost::static_property_map<op_phase>;

/// A choice of the vertices that are final outputs: a predicate of a vertex, or a range of vertices.
template <class Outputs, class Vertex>
concept output_choice = std::predicate<const Outputs&, Vertex> ||
    (std::ranges::input_range<const Outputs>&&
         std::convertible_to<std::ranges::range_reference_t<const Outputs>, Vertex>);

/// Vertices in the order of `vertices(g)`, and back.
template <class Vertex>
class numbering {
 public:
  template <class Graph>
  explicit numbering(const Graph& g) {
    const auto [first, last] = vertices(g);
    for (auto v = first; v != last; ++v) {
      if (vertex_.size() >= std::numeric_limits<std::uint32_t>::max() / 2)
        throw bad_graph("there are more than 2^31 vertices");
      position_.emplace(*v, static_cast<std::uint32_t>(vertex_.size()));
      vertex_.push_back(*v);
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return vertex_.size(); }
  [[nodiscard]] const Vertex& vertex(std::size_t position) const noexcept { return vertex_[position]; }
  [[nodiscard]] std::uint32_t position(const Vertex& v) const {
    const auto found = position_.find(v);
    if (found == position_.end()) throw bad_graph("a vertex that is given is none of the graph's");
    return found->second;
  }

 private:
  std::vector<Vertex> vertex_;
  std::unordered_map<Vertex, std::uint32_t, boost::hash<Vertex>> position_;
};

/// Calls `f(u, v)` with the positions of source and target for every edge.
template <class Graph, class Vertex, class F>
void for_each_edge(const Graph& g, const numbering<Vertex>& vertices_of, F f) {
  if constexpr (requires(const Vertex& v) { out_edges(v, g); }) {
    for (std::uint32_t u = 0; u < vertices_of.size(); ++u) {
      const auto [first, last] = out_edges(vertices_of.vertex(u), g);
      for (auto e = first; e != last; ++e) f(u, vertices_of.position(target(*e, g)));
    }
  } else {
    const auto [first, last] = edges(g);
    for (auto e = first; e != last; ++e) f(vertices_of.position(source(*e, g)), vertices_of.position(target(*e, g)));
  }
}

/// A pair (row, value) of `rows`.
using entry = std::pair<std::uint32_t, std::uint32_t>;

/// Lists of ids, one behind the other; within a list in the order of the entries. O(rows + entries).
template <class Id>
class rows {
 public:
  rows() = default;
  rows(std::size_t count, std::span<const entry> entries) : begin_(count + 1, 0), values_(entries.size()) {
    for (const entry& e : entries) ++begin_[e.first + 1];
    for (std::size_t i = 0; i < count; ++i) begin_[i + 1] += begin_[i];
    std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
    for (const entry& e : entries) values_[next[e.first]++] = static_cast<Id>(e.second);
  }
  [[nodiscard]] std::span<const Id> operator[](std::size_t row) const noexcept {
    return {values_.data() + begin_[row], values_.data() + begin_[row + 1]};
  }

 private:
  std::vector<std::size_t> begin_{0};
  std::vector<Id> values_;
};

/// The edges of a step: operations that write tensors, and operations that read them.
struct step_edges {
  std::vector<entry> writes;  ///< (operation, tensor)
  std::vector<entry> reads;   ///< (operation, tensor)
};

inline std::vector<entry> swapped(std::span<const entry> entries) {
  std::vector<entry> out;
  out.reserve(entries.size());
  for (const entry& e : entries) out.emplace_back(e.second, e.first);
  return out;
}

/// Returns the operations in a topological order: at each place, the smallest number that may come next. Numbers that
/// are in topological order already keep their order.
/// `vertex` returns the number of an operation for messages. Throws `bad_graph` for a cycle.
/// O(edges + operations · log operations) time.
template <class Name>
std::vector<std::uint32_t> topological_order(std::size_t operations, std::size_t tensors, const step_edges& e,
                                             Name vertex) {
  const rows<std::uint32_t> outputs(operations, e.writes), inputs(operations, e.reads);
  const rows<std::uint32_t> producers(tensors, swapped(e.writes)), readers(tensors, swapped(e.reads));
  std::vector<std::size_t> unwritten(tensors), missing(operations);  // producers to run; unreadable inputs
  for (std::size_t t = 0; t < tensors; ++t) unwritten[t] = producers[t].size();
  for (const entry& read : e.reads) missing[read.first] += unwritten[read.second] != 0;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t o = 0; o < operations; ++o)
    if (missing[o] == 0) ready.push(o);
  std::vector<std::uint32_t> order;
  order.reserve(operations);
  while (!ready.empty()) {
    const std::uint32_t o = ready.top();
    ready.pop();
    order.push_back(o);
    for (const std::uint32_t t : outputs[o])
      if (--unwritten[t] == 0)
        for (const std::uint32_t reader : readers[t])
          if (--missing[reader] == 0) ready.push(reader);
  }
  if (order.size() == operations) return order;

  // Walks backwards over operations that never became ready until one comes up again: it is on a cycle.
  const auto stuck = [](std::size_t open) { return open != 0; };
  auto o = static_cast<std::uint32_t>(std::find_if(missing.begin(), missing.end(), stuck) - missing.begin());
  std::vector<std::uint8_t> seen(operations, 0);
  std::vector<std::uint32_t> walk;
  while (!seen[o]) {
    seen[o] = 1;
    walk.push_back(o);
    std::uint32_t before = o;
    for (const std::uint32_t t : inputs[o])
      if (unwritten[t] != 0)
        for (const std::uint32_t p : producers[t])
          if (missing[p] != 0) before = p;
    o = before;
  }
  std::string text = "the graph has a cycle: vertex " + std::to_string(vertex(o));
  std::size_t shown = 0;
  for (std::size_t i = walk.size(); i-- > 0;) {
    if (++shown <= 8) text += " → " + std::to_string(vertex(walk[i]));
    if (walk[i] == o) break;
  }
  if (shown > 8) text += " → … (" + std::to_string(shown) + " operations)";
  throw bad_graph(text + " (counted in the order of vertices(g), from 0); a training step has none");
}

template <class Map, class Vertex>
std::int64_t bytes_at(const Map& map, const Vertex& v) {
  using boost::get;
  const auto value = get(map, v);
  if (!std::in_range<std::int64_t>(value))
    throw bad_cost("a vertex has " + std::to_string(value) + " bytes; the largest size is 2^63 − 1");
  return static_cast<std::int64_t>(value);
}

}  // namespace detail::boost_viewing

/// A Boost.Graph graph seen as a `data_flow_graph`: each vertex is an operation with one output tensor, and an edge
/// u → v means that v reads the tensor of u.
///
/// `Graph` is any directed graph of Boost.Graph that lists its vertices and its edges (VertexListGraph, and
/// EdgeListGraph or IncidenceGraph): `adjacency_list` with any selectors, `compressed_sparse_row_graph`, filtered and
/// reversed graphs, your own. No vertex index is needed. `BytesMap` is a readable property map from a vertex to the
/// bytes of its tensor, integral.
///
/// Operations are numbered in the order of `vertices(g)` where that is topological; otherwise, each number goes to the
/// first vertex in that order that may come next. Tensor i is the output of operation i. Final outputs are the vertices
/// that a predicate or a range names, or by default those that no vertex reads. The view copies the edges, not the
/// properties: the graph may go, but the objects to which `BytesMap` and `PhaseMap` refer must stay. `PhaseMap` is an
/// optional readable property map from a vertex to its `op_phase`; without one, all phases are unknown. Times and
/// workspace come from a cost model, for instance `vertex_cost`. O(V log V + E) to build, O(V + E) memory. Models
/// `sized_graph` and `phased_graph`. Throws `bad_graph` for a cycle (with its vertices) or a final output that is no
/// vertex; `bytes` throws `bad_cost` for a size beyond 63 bits.
///
///     struct operation { std::int64_t bytes; double seconds; };
///     using graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, operation>;
///     graph g;
///     const auto a = add_vertex({1024, 1e-3}, g), b = add_vertex({1024, 2e-3}, g);
///     add_edge(a, b, g);
///     const boost_view view(g, get(&operation::bytes, g));
///     const problem p(view, vertex_cost(get(&operation::seconds, g)));
template <class Graph, class BytesMap, class PhaseMap = detail::boost_viewing::no_phases>
requires detail::boost_viewing::listable<Graph> &&
    detail::boost_viewing::integral_map<BytesMap, detail::boost_viewing::vertex_of<Graph>> &&
    detail::boost_viewing::phase_map<PhaseMap, detail::boost_viewing::vertex_of<Graph>>
class boost_view {
 public:
  /// The vertices of `Graph`.
  using vertex_descriptor = detail::boost_viewing::vertex_of<Graph>;

  /// Final outputs are the tensors that no operation reads. All phases are unknown.
  boost_view(const Graph& g, BytesMap bytes) : boost_view(g, std::move(bytes), PhaseMap(op_phase::unknown)) {}

  /// Final outputs are the tensors that no operation reads; `phases` gives the phases of the operations.
  boost_view(const Graph& g, BytesMap bytes, PhaseMap phases)
      : boost_view(
            g, std::move(bytes), [](const vertex_descriptor&) { return false; }, std::move(phases)) {
    for (std::size_t o = 0; o < num_operations(); ++o)
      if (!read_[o]) final_outputs_.push_back(static_cast<tensor_id>(o));
  }

  /// Final outputs are the tensors of the vertices in `outputs` (a range), or for which `outputs` (a predicate) is
  /// true. All phases are unknown.
  template <detail::boost_viewing::output_choice<vertex_descriptor> Outputs>
  boost_view(const Graph& g, BytesMap bytes, const Outputs& outputs)
      : boost_view(g, std::move(bytes), outputs, PhaseMap(op_phase::unknown)) {}

  /// Final outputs are those that `outputs` names; `phases` gives the phases of the operations.
  template <detail::boost_viewing::output_choice<vertex_descriptor> Outputs>
  boost_view(const Graph& g, BytesMap bytes, const Outputs& outputs, PhaseMap phases)
      : numbers_(g), bytes_(std::move(bytes)), phases_(std::move(phases)) {
    const std::size_t n = numbers_.size();
    detail::boost_viewing::step_edges e;
    for (std::uint32_t v = 0; v < n; ++v) e.writes.emplace_back(v, v);
    detail::boost_viewing::for_each_edge(g, numbers_,
                                         [&](std::uint32_t u, std::uint32_t v) { e.reads.emplace_back(v, u); });
    order_ = detail::boost_viewing::topological_order(n, n, e, [](std::uint32_t o) { return o; });
    id_.resize(n);
    for (std::uint32_t o = 0; o < n; ++o) id_[order_[o]] = o;
    read_.assign(n, 0);
    for (detail::boost_viewing::entry& read : e.reads) {
      read = {id_[read.first], id_[read.second]};
      read_[read.second] = 1;
    }
    inputs_ = detail::boost_viewing::rows<tensor_id>(n, e.reads);
    for (std::uint32_t o = 0; o < n; ++o) output_.push_back(static_cast<tensor_id>(o));
    if constexpr (std::predicate<const Outputs&, vertex_descriptor>) {
      for (std::size_t o = 0; o < n; ++o)
        if (std::invoke(outputs, numbers_.vertex(order_[o]))) final_outputs_.push_back(static_cast<tensor_id>(o));
    } else {
      for (const vertex_descriptor v : outputs) final_outputs_.push_back(tensor(v));
    }
  }

  /// Returns the number of operations.
  [[nodiscard]] std::size_t num_operations() const noexcept { return order_.size(); }
  /// Returns the number of tensors.
  [[nodiscard]] std::size_t num_tensors() const noexcept { return order_.size(); }
  /// Returns the tensors that operation `o` reads.
  [[nodiscard]] std::span<const tensor_id> inputs(op_id o) const noexcept { return inputs_[index(o)]; }
  /// Returns the one tensor that operation `o` writes.
  [[nodiscard]] std::span<const tensor_id> outputs(op_id o) const noexcept { return {&output_[index(o)], 1}; }
  /// Returns the tensors that must be in memory when the training step ends.
  [[nodiscard]] std::span<const tensor_id> final_outputs() const noexcept { return final_outputs_; }
  /// Returns the bytes of tensor `t`. Throws `bad_cost` for a size that does not fit into 63 bits.
  [[nodiscard]] std::int64_t bytes(tensor_id t) const { return detail::boost_viewing::bytes_at(bytes_, vertex(t)); }
  /// Returns the phase of operation `o`.
  [[nodiscard]] op_phase phase(op_id o) const {
    using boost::get;
    return get(phases_, vertex(o));
  }

  /// Returns the vertex that is operation `o`. O(1) time.
  [[nodiscard]] const vertex_descriptor& vertex(op_id o) const noexcept { return numbers_.vertex(order_[index(o)]); }
  /// Returns the vertex whose output is tensor `t`. O(1) time.
  [[nodiscard]] const vertex_descriptor& vertex(tensor_id t) const noexcept {
    return numbers_.vertex(order_[index(t)]);
  }
  /// Returns the operation that vertex `v` is. O(1) time; throws `bad_graph` where `v` is no vertex of the graph.
  [[nodiscard]] op_id op(const vertex_descriptor& v) const { return static_cast<op_id>(id_[numbers_.position(v)]); }
  /// Returns the output of vertex `v`. O(1) time; throws `bad_graph` where `v` is no vertex of the graph.
  [[nodiscard]] tensor_id tensor(const vertex_descriptor& v) const {
    return static_cast<tensor_id>(id_[numbers_.position(v)]);
  }

 private:
  detail::boost_viewing::numbering<vertex_descriptor> numbers_;
  BytesMap bytes_;
  PhaseMap phases_;
  std::vector<std::uint32_t> order_;  // operation → position of its vertex
  std::vector<std::uint32_t> id_;     // position of a vertex → operation
  std::vector<std::uint8_t> read_;    // of a tensor: an operation reads it
  detail::boost_viewing::rows<tensor_id> inputs_;
  std::vector<tensor_id> output_, final_outputs_;
};

/// A Boost.Graph graph of two kinds of vertices seen as a `data_flow_graph`: an edge from an operation to a tensor
/// means that it writes it, one from a tensor to an operation that this reads it.
///
/// `is_operation` is a predicate that says which vertices are operations; all others are tensors. `Graph`, `BytesMap`
/// (read for tensors only), `PhaseMap` (read for operations only), final outputs and lifetimes are as in `boost_view`;
/// the default final outputs are the tensors that an operation writes and none reads. Tensors without a producer are
/// resident and not counted; tensors with several accumulate. Operations are numbered like those of `boost_view`,
/// tensors in the order of `vertices(g)`. O(V log V + E) to build, O(V + E) memory. Models `sized_graph` and
/// `phased_graph`. Throws `bad_graph` for a cycle, for an edge between vertices of one kind, and for a final output
/// that is no tensor.
///
///     const boost_bipartite_view view(g, [&](auto v) { return g[v].is_kernel; }, get(&node::bytes, g));
///     const problem p(view, vertex_cost(get(&node::seconds, g), get(&node::workspace, g)));
template <class Graph, class BytesMap, class PhaseMap = detail::boost_viewing::no_phases>
requires detail::boost_viewing::listable<Graph> &&
    detail::boost_viewing::integral_map<BytesMap, detail::boost_viewing::vertex_of<Graph>> &&
    detail::boost_viewing::phase_map<PhaseMap, detail::boost_viewing::vertex_of<Graph>>
class boost_bipartite_view {
 public:
  /// The vertices of `Graph`.
  using vertex_descriptor = detail::boost_viewing::vertex_of<Graph>;

  /// Final outputs are the tensors that an operation writes and none reads. All phases are unknown.
  template <std::predicate<vertex_descriptor> IsOperation>
  boost_bipartite_view(const Graph& g, const IsOperation& is_operation, BytesMap bytes)
      : boost_bipartite_view(g, is_operation, std::move(bytes), PhaseMap(op_phase::unknown)) {}

  /// Final outputs are the tensors that an operation writes and none reads; `phases` gives the phases of the
  /// operations.
  template <std::predicate<vertex_descriptor> IsOperation>
  boost_bipartite_view(const Graph& g, const IsOperation& is_operation, BytesMap bytes, PhaseMap phases)
      : boost_bipartite_view(
            g, is_operation, std::move(bytes), [](const vertex_descriptor&) { return false; }, std::move(phases)) {
    for (std::size_t t = 0; t < num_tensors(); ++t)
      if (written_[t] && !read_[t]) final_outputs_.push_back(static_cast<tensor_id>(t));
  }

  /// Final outputs are the vertices in `outputs` (a range), or for which `outputs` (a predicate of a tensor's vertex)
  /// is true. All phases are unknown.
  template <std::predicate<vertex_descriptor> IsOperation,
            detail::boost_viewing::output_choice<vertex_descriptor> Outputs>
  boost_bipartite_view(const Graph& g, const IsOperation& is_operation, BytesMap bytes, const Outputs& outputs)
      : boost_bipartite_view(g, is_operation, std::move(bytes), outputs, PhaseMap(op_phase::unknown)) {}

  /// Final outputs are those that `outputs` names; `phases` gives the phases of the operations.
  template <std::predicate<vertex_descriptor> IsOperation,
            detail::boost_viewing::output_choice<vertex_descriptor> Outputs>
  boost_bipartite_view(const Graph& g, const IsOperation& is_operation, BytesMap bytes, const Outputs& outputs,
                       PhaseMap phases)
      : numbers_(g), bytes_(std::move(bytes)), phases_(std::move(phases)) {
    const auto count = static_cast<std::uint32_t>(numbers_.size());
    id_.resize(count);
    is_operation_.resize(count);
    std::vector<std::uint32_t> operations;
    for (std::uint32_t v = 0; v < count; ++v) {
      is_operation_[v] = std::invoke(is_operation, numbers_.vertex(v)) ? 1 : 0;
      auto& list = is_operation_[v] ? operations : tensors_;
      id_[v] = static_cast<std::uint32_t>(list.size());
      list.push_back(v);
    }
    detail::boost_viewing::step_edges e;
    detail::boost_viewing::for_each_edge(g, numbers_, [&](std::uint32_t u, std::uint32_t v) {
      if (is_operation_[u] == is_operation_[v])
        throw bad_graph("the edge from vertex " + std::to_string(u) + " to vertex " + std::to_string(v) +
                        " (counted in the order of vertices(g), from 0) joins two " +
                        (is_operation_[u] ? "operations" : "tensors") +
                        "; an edge goes from an operation to a tensor or from a tensor to an operation");
      if (is_operation_[u])
        e.writes.emplace_back(id_[u], id_[v]);
      else
        e.reads.emplace_back(id_[v], id_[u]);
    });
    const std::size_t n = operations.size();
    const auto order =
        detail::boost_viewing::topological_order(n, tensors_.size(), e, [&](std::uint32_t o) { return operations[o]; });
    for (std::uint32_t o = 0; o < n; ++o) {
      order_.push_back(operations[order[o]]);
      id_[order_.back()] = o;
    }
    written_.assign(tensors_.size(), 0);
    read_.assign(tensors_.size(), 0);
    for (detail::boost_viewing::entry& write : e.writes) {
      write.first = id_[operations[write.first]];
      written_[write.second] = 1;
    }
    for (detail::boost_viewing::entry& read : e.reads) {
      read.first = id_[operations[read.first]];
      read_[read.second] = 1;
    }
    inputs_ = detail::boost_viewing::rows<tensor_id>(n, e.reads);
    outputs_ = detail::boost_viewing::rows<tensor_id>(n, e.writes);
    if constexpr (std::predicate<const Outputs&, vertex_descriptor>) {
      for (std::uint32_t t = 0; t < tensors_.size(); ++t)
        if (std::invoke(outputs, numbers_.vertex(tensors_[t]))) final_outputs_.push_back(static_cast<tensor_id>(t));
    } else {
      for (const vertex_descriptor v : outputs) final_outputs_.push_back(tensor(v));
    }
  }

  /// Returns the number of operations.
  [[nodiscard]] std::size_t num_operations() const noexcept { return order_.size(); }
  /// Returns the number of tensors.
  [[nodiscard]] std::size_t num_tensors() const noexcept { return tensors_.size(); }
  /// Returns the tensors that operation `o` reads.
  [[nodiscard]] std::span<const tensor_id> inputs(op_id o) const noexcept { return inputs_[index(o)]; }
  /// Returns the tensors that operation `o` writes.
  [[nodiscard]] std::span<const tensor_id> outputs(op_id o) const noexcept { return outputs_[index(o)]; }
  /// Returns the tensors that must be in memory when the training step ends.
  [[nodiscard]] std::span<const tensor_id> final_outputs() const noexcept { return final_outputs_; }
  /// Returns the bytes of tensor `t`. Throws `bad_cost` for a size that does not fit into 63 bits.
  [[nodiscard]] std::int64_t bytes(tensor_id t) const { return detail::boost_viewing::bytes_at(bytes_, vertex(t)); }
  /// Returns the phase of operation `o`.
  [[nodiscard]] op_phase phase(op_id o) const {
    using boost::get;
    return get(phases_, vertex(o));
  }

  /// Returns the vertex of operation `o`. O(1) time.
  [[nodiscard]] const vertex_descriptor& vertex(op_id o) const noexcept { return numbers_.vertex(order_[index(o)]); }
  /// Returns the vertex of tensor `t`. O(1) time.
  [[nodiscard]] const vertex_descriptor& vertex(tensor_id t) const noexcept {
    return numbers_.vertex(tensors_[index(t)]);
  }
  /// Returns the operation that vertex `v` is. O(1) time; throws `bad_graph` where it is none.
  [[nodiscard]] op_id op(const vertex_descriptor& v) const { return static_cast<op_id>(id_of(v, 1)); }
  /// Returns the tensor that vertex `v` is. O(1) time; throws `bad_graph` where it is none.
  [[nodiscard]] tensor_id tensor(const vertex_descriptor& v) const { return static_cast<tensor_id>(id_of(v, 0)); }

 private:
  [[nodiscard]] std::uint32_t id_of(const vertex_descriptor& v, std::uint8_t operation) const {
    const std::uint32_t position = numbers_.position(v);
    if (is_operation_[position] != operation)
      throw bad_graph("vertex " + std::to_string(position) + " (counted in the order of vertices(g), from 0) is no " +
                      (operation ? "operation" : "tensor"));
    return id_[position];
  }

  detail::boost_viewing::numbering<vertex_descriptor> numbers_;
  BytesMap bytes_;
  PhaseMap phases_;
  std::vector<std::uint8_t> is_operation_;  // of a vertex position
  std::vector<std::uint32_t> order_;        // operation → position of its vertex
  std::vector<std::uint32_t> tensors_;      // tensor → position of its vertex
  std::vector<std::uint32_t> id_;           // position → operation or tensor
  std::vector<std::uint8_t> written_, read_;
  detail::boost_viewing::rows<tensor_id> inputs_, outputs_;
  std::vector<tensor_id> final_outputs_;
};

/// A cost model over a view: times, and bytes of workspace (0 where no map is given), from vertex property maps of the
/// underlying graph.
template <class TimeMap, class WorkspaceMap = boost::static_property_map<std::int64_t>>
struct vertex_cost {
  /// Takes times from `time_map`; no operation has workspace.
  explicit vertex_cost(TimeMap time_map) : times(std::move(time_map)), workspaces(std::int64_t{0}) {}
  /// Takes times from `time_map`, and bytes of workspace from `workspace_map`.
  vertex_cost(TimeMap time_map, WorkspaceMap workspace_map)
      : times(std::move(time_map)), workspaces(std::move(workspace_map)) {}

  TimeMap times;            ///< from the vertex of an operation to its time, in the caller's unit
  WorkspaceMap workspaces;  ///< from the vertex of an operation to its bytes of workspace

  /// Returns the time of operation `o` of a view.
  template <class View>
  requires requires(const View& view, op_id o) { view.vertex(o); }
  [[nodiscard]] double time(const View& view, op_id o) const {
    using boost::get;
    return static_cast<double>(get(times, view.vertex(o)));
  }
  /// Returns the bytes of workspace of operation `o` of a view. Throws `bad_cost` for a size that does not fit into 63
  /// bits.
  template <class View>
  requires requires(const View& view, op_id o) { view.vertex(o); }
  [[nodiscard]] std::int64_t workspace(const View& view, op_id o) const {
    return detail::boost_viewing::bytes_at(workspaces, view.vertex(o));
  }
};

/// Deduces the type of the map of times; there is no workspace.
template <class TimeMap>
vertex_cost(TimeMap) -> vertex_cost<TimeMap>;

}  // namespace remat
