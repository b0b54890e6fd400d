// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/functional/hash.hpp>
#include <boost/graph/graph_traits.hpp>
#include <boost/property_map/property_map.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
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
#include "remat/graph/detail/topological_order.hpp"

namespace REMAT_NAMESPACE {

namespace detail::boost_view {

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

/// The default choice of final outputs: the tensors that an operation writes and none reads.
struct unread_tensors {};

/// A choice of the vertices that are final outputs: a predicate of a vertex, or a range of vertices.
template <class Outputs, class Vertex>
concept output_choice = std::same_as<Outputs, unread_tensors> || std::predicate<const Outputs&, Vertex> ||
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

/// The name of a vertex in messages, by its position.
inline std::string label(std::size_t position) { return "vertices(g)[" + std::to_string(position) + "]"; }

/// One list for each vertex, as rows.
inline index_rows rows_of(const std::vector<std::vector<std::uint32_t>>& lists) {
  index_rows rows;
  for (const auto& list : lists) {
    rows.values.insert(rows.values.end(), list.begin(), list.end());
    if (rows.values.size() > std::numeric_limits<std::uint32_t>::max()) throw bad_graph("there are 2^32 edges or more");
    rows.end_row();
  }
  return rows;
}

/// Rows of tensors, one behind the other.
struct tensor_rows {
  std::vector<std::size_t> begin{0};
  std::vector<tensor_id> values;
  [[nodiscard]] std::span<const tensor_id> operator[](std::size_t row) const noexcept {
    return {values.data() + begin[row], values.data() + begin[row + 1]};
  }
};

template <class Map, class Vertex>
std::int64_t bytes_at(const Map& map, const Vertex& v) {
  using boost::get;
  const auto value = get(map, v);
  if (!std::in_range<std::int64_t>(value))
    throw bad_cost("a vertex has " + std::to_string(value) + " bytes; the largest size is 2^63 − 1");
  return static_cast<std::int64_t>(value);
}

}  // namespace detail::boost_view

/// A Boost.Graph graph seen as a `data_flow_graph`. Its vertices are of one kind or of two:
///  - one kind: each vertex is an operation with one output tensor, and an edge u → v means that v reads the tensor of
///  u;
///  - two kinds: a predicate says which vertices are operations, all others are tensors. An edge from an operation to a
///    tensor means that the operation writes it; an edge from a tensor to an operation, that the operation reads it.
///
/// `Graph` is any directed graph of Boost.Graph that lists its vertices and its edges (VertexListGraph, and
/// EdgeListGraph or IncidenceGraph): `adjacency_list` with any selectors, `compressed_sparse_row_graph`, filtered and
/// reversed graphs, your own. No vertex index is needed. `BytesMap` is a readable property map from the vertex of a
/// tensor to its bytes, integral. `PhaseMap` is an optional readable property map from the vertex of an operation to
/// its `op_phase`; without one, all phases are unknown. Final outputs are the vertices in a range or those for which a
/// predicate is true; by default, the tensors that an operation writes and none reads. Times and workspace come from a
/// cost model, for instance `vertex_cost`.
///
/// Operations are numbered in the order of `vertices(g)` if that is topological; otherwise, each number goes to the
/// first vertex in that order that may come next. Tensors of one kind of vertices have the number of their operation;
/// those of two kinds are numbered in the order of `vertices(g)`. The view copies the edges, not the properties: the
/// graph may go, but the objects to which `BytesMap` and `PhaseMap` refer must stay. O(V log V + E) to build, O(V + E)
/// memory. Models `sized_graph` and `phased_graph`. Constructors throw `bad_graph` for a cycle (with its vertices), for
/// an edge between two operations or two tensors, and for a final output that is no tensor of the graph; `bytes` throws
/// `bad_cost` for a size beyond 63 bits.
///
///     struct operation { std::int64_t bytes; double seconds; };
///     using graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, operation>;
///     graph g;
///     const auto a = add_vertex({1024, 1e-3}, g), b = add_vertex({1024, 2e-3}, g);
///     add_edge(a, b, g);
///     const boost_view view(g, get(&operation::bytes, g));
///     const problem p(view, vertex_cost(get(&operation::seconds, g)));
///     // of two kinds: boost_view(h, [&](auto v) { return h[v].is_kernel; }, get(&node::bytes, h))
template <class Graph, class BytesMap, class PhaseMap = detail::boost_view::no_phases>
requires detail::boost_view::listable<Graph> &&
    detail::boost_view::integral_map<BytesMap, detail::boost_view::vertex_of<Graph>> &&
    detail::boost_view::phase_map<PhaseMap, detail::boost_view::vertex_of<Graph>>
class boost_view {
 public:
  /// The vertices of `Graph`.
  using vertex_descriptor = detail::boost_view::vertex_of<Graph>;

  /// A graph of one kind of vertices.
  template <detail::boost_view::output_choice<vertex_descriptor> Outputs = detail::boost_view::unread_tensors>
  explicit boost_view(const Graph& g, BytesMap bytes, const Outputs& outputs = {},
                      PhaseMap phases = PhaseMap(op_phase::unknown))
      : numbers_(g), bytes_(std::move(bytes)), phases_(std::move(phases)) {
    lists reads(numbers_.size()), writes(numbers_.size());
    for (std::uint32_t v = 0; v < writes.size(); ++v) writes[v].push_back(v);
    detail::boost_view::for_each_edge(g, numbers_, [&](std::uint32_t u, std::uint32_t v) { reads[v].push_back(u); });
    build([](std::uint32_t) { return true; }, true, reads, writes, outputs);
  }
  /// \overload
  /// With the default choice of final outputs.
  boost_view(const Graph& g, BytesMap bytes, PhaseMap phases)
      : boost_view(g, std::move(bytes), detail::boost_view::unread_tensors{}, std::move(phases)) {}

  /// A graph of two kinds of vertices: those for which `is_operation` is true are operations, the others tensors.
  template <std::predicate<vertex_descriptor> IsOperation,
            detail::boost_view::output_choice<vertex_descriptor> Outputs = detail::boost_view::unread_tensors>
  boost_view(const Graph& g, const IsOperation& is_operation, BytesMap bytes, const Outputs& outputs = {},
             PhaseMap phases = PhaseMap(op_phase::unknown))
      : numbers_(g), bytes_(std::move(bytes)), phases_(std::move(phases)) {
    std::vector<std::uint8_t> operation(numbers_.size());
    for (std::size_t v = 0; v < operation.size(); ++v) operation[v] = std::invoke(is_operation, numbers_.vertex(v));
    lists reads(numbers_.size()), writes(numbers_.size());
    detail::boost_view::for_each_edge(g, numbers_, [&](std::uint32_t u, std::uint32_t v) {
      if (operation[u] == operation[v])
        throw bad_graph("the edge from " + detail::boost_view::label(u) + " to " + detail::boost_view::label(v) +
                        " joins two " + (operation[u] ? "operations" : "tensors") +
                        "; an edge goes from an operation to a tensor or from a tensor to an operation");
      if (operation[u])
        writes[u].push_back(v);
      else
        reads[v].push_back(u);
    });
    build([&](std::uint32_t v) { return operation[v] != 0; }, false, reads, writes, outputs);
  }
  /// \overload
  /// With the default choice of final outputs.
  template <std::predicate<vertex_descriptor> IsOperation>
  boost_view(const Graph& g, const IsOperation& is_operation, BytesMap bytes, PhaseMap phases)
      : boost_view(g, is_operation, std::move(bytes), detail::boost_view::unread_tensors{}, std::move(phases)) {}

  /// Returns the number of operations.
  [[nodiscard]] std::size_t num_operations() const noexcept { return operations_.size(); }
  /// Returns the number of tensors.
  [[nodiscard]] std::size_t num_tensors() const noexcept { return tensors_.size(); }
  /// Returns the tensors that operation `o` reads.
  [[nodiscard]] std::span<const tensor_id> inputs(op_id o) const noexcept { return inputs_[index(o)]; }
  /// Returns the tensors that operation `o` writes.
  [[nodiscard]] std::span<const tensor_id> outputs(op_id o) const noexcept { return outputs_[index(o)]; }
  /// Returns the tensors that must be in memory when the training step ends.
  [[nodiscard]] std::span<const tensor_id> final_outputs() const noexcept { return final_outputs_; }
  /// Returns the bytes of tensor `t`. Throws `bad_cost` for a size that does not fit into 63 bits.
  [[nodiscard]] std::int64_t bytes(tensor_id t) const { return detail::boost_view::bytes_at(bytes_, vertex(t)); }
  /// Returns the phase of operation `o`.
  [[nodiscard]] op_phase phase(op_id o) const {
    using boost::get;
    return get(phases_, vertex(o));
  }

  /// Returns the vertex of operation `o`. O(1) time.
  [[nodiscard]] const vertex_descriptor& vertex(op_id o) const noexcept {
    return numbers_.vertex(operations_[index(o)]);
  }
  /// Returns the vertex of tensor `t`. O(1) time.
  [[nodiscard]] const vertex_descriptor& vertex(tensor_id t) const noexcept {
    return numbers_.vertex(tensors_[index(t)]);
  }
  /// Returns the operation of vertex `v`. O(1) time; throws `bad_graph` if `v` is no operation of the graph.
  [[nodiscard]] op_id op(const vertex_descriptor& v) const { return static_cast<op_id>(id_of(op_, v, "operation")); }
  /// Returns the tensor of vertex `v`. O(1) time; throws `bad_graph` if `v` is no tensor of the graph.
  [[nodiscard]] tensor_id tensor(const vertex_descriptor& v) const {
    return static_cast<tensor_id>(id_of(tensor_, v, "tensor"));
  }

 private:
  using lists = std::vector<std::vector<std::uint32_t>>;
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// Numbers the operations and the tensors, from the vertices that each operation reads and writes.
  template <class IsOperation, class Outputs>
  void build(const IsOperation& is_operation, bool one_kind, const lists& read, const lists& written,
             const Outputs& outputs) {
    const auto count = static_cast<std::uint32_t>(numbers_.size());
    const index_rows reads = detail::boost_view::rows_of(read), writes = detail::boost_view::rows_of(written);
    op_.resize(count, none);
    tensor_.resize(count, none);
    const auto add = [](std::uint32_t v, std::vector<std::uint32_t>& vertices, std::vector<std::uint32_t>& ids) {
      ids[v] = static_cast<std::uint32_t>(vertices.size());
      vertices.push_back(v);
    };
    // A vertex that is only a tensor takes part as an operation that neither reads nor writes.
    for (const std::uint32_t v : detail::topological_order(reads, writes, count, detail::boost_view::label))
      if (is_operation(v)) {
        add(v, operations_, op_);
        if (one_kind) add(v, tensors_, tensor_);
      }
    for (std::uint32_t v = 0; v < count; ++v)
      if (!is_operation(v)) add(v, tensors_, tensor_);

    std::vector<std::uint8_t> unread(count, 0);
    for (const std::uint32_t v : writes.values) unread[v] = 1;
    for (const std::uint32_t v : reads.values) unread[v] = 0;
    const auto fill = [&](detail::boost_view::tensor_rows& rows, const index_rows& from) {
      for (const std::uint32_t o : operations_) {
        for (const std::uint32_t v : from[o]) rows.values.push_back(static_cast<tensor_id>(tensor_[v]));
        rows.begin.push_back(rows.values.size());
      }
    };
    fill(inputs_, reads);
    fill(outputs_, writes);
    if constexpr (std::ranges::input_range<const Outputs>) {
      for (const vertex_descriptor v : outputs) final_outputs_.push_back(tensor(v));
    } else {
      for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
        const auto id = static_cast<tensor_id>(t);
        bool chosen = unread[tensors_[t]] != 0;
        if constexpr (std::predicate<const Outputs&, vertex_descriptor>) chosen = std::invoke(outputs, vertex(id));
        if (chosen) final_outputs_.push_back(id);
      }
    }
  }

  [[nodiscard]] std::uint32_t id_of(const std::vector<std::uint32_t>& ids, const vertex_descriptor& v,
                                    const char* kind) const {
    const std::uint32_t position = numbers_.position(v);
    if (ids[position] == none) throw bad_graph(detail::boost_view::label(position) + " is no " + kind);
    return ids[position];
  }

  detail::boost_view::numbering<vertex_descriptor> numbers_;
  BytesMap bytes_;
  PhaseMap phases_;
  std::vector<std::uint32_t> operations_, tensors_;  // operation, tensor → position of its vertex
  std::vector<std::uint32_t> op_, tensor_;           // position of a vertex → operation, tensor; or `none`
  detail::boost_view::tensor_rows inputs_, outputs_;
  std::vector<tensor_id> final_outputs_;
};

/// A cost model over a view: times, and bytes of workspace (0 if no map is given), from vertex property maps of the
/// underlying graph.
template <class TimeMap, class WorkspaceMap = boost::static_property_map<std::int64_t>>
struct vertex_cost {
  /// Takes times from `time_map`; no operation has workspace.
  explicit vertex_cost(TimeMap time_map) : times(std::move(time_map)), workspaces(std::int64_t{0}) {}
  /// Takes times from `time_map`, and bytes of workspace from `workspace_map`.
  vertex_cost(TimeMap time_map, WorkspaceMap workspace_map)
      : times(std::move(time_map)), workspaces(std::move(workspace_map)) {}

  TimeMap times;            ///< maps the vertex of an operation to its time, in the caller's unit
  WorkspaceMap workspaces;  ///< maps the vertex of an operation to its bytes of workspace

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
    return detail::boost_view::bytes_at(workspaces, view.vertex(o));
  }
};

/// Deduces the type of the map of times; there is no workspace.
template <class TimeMap>
vertex_cost(TimeMap) -> vertex_cost<TimeMap>;

/// The edges of a Boost.Graph graph, directed or not, for `undirected_graph`: vertices are numbered in the order of
/// `vertices(g)`, so no vertex index is needed. `Graph` lists its vertices and its edges (VertexListGraph and
/// EdgeListGraph). Refers to the graph while it is used; O(V) memory. Models `edge_listing`.
/// Throws `bad_graph` for an edge whose end is not one of the vertices.
///
///     boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS> g = …;
///     const boost_edges edges(g);
///     const decomposition_result r = decompose(undirected_graph(edges));
///     // bag entry v is vertex edges.vertex(v) of g
template <class Graph>
class boost_edges {
 public:
  using vertex_descriptor =
      typename boost::graph_traits<Graph>::vertex_descriptor;  ///< the descriptor of a vertex of `Graph`

  /// Numbers the vertices. Keeps a reference to `g`. O(V) time.
  explicit boost_edges(const Graph& g) : graph_(&g) {
    const auto [first, last] = vertices(g);
    for (auto v = first; v != last; ++v) {
      number_.emplace(*v, vertex_.size());
      vertex_.push_back(*v);
    }
  }

  /// The number of vertices; the numbers of the vertices are 0 … num_vertices() − 1.
  [[nodiscard]] std::size_t num_vertices() const noexcept { return vertex_.size(); }
  /// The vertex with a number.
  [[nodiscard]] const vertex_descriptor& vertex(std::size_t number) const noexcept { return vertex_[number]; }

  /// Calls f(u, v) with the numbers of both ends of every edge.
  template <class F>
  void for_each_edge(F&& f) const {
    const auto [first, last] = edges(*graph_);
    for (auto e = first; e != last; ++e) f(number(source(*e, *graph_)), number(target(*e, *graph_)));
  }

 private:
  [[nodiscard]] std::size_t number(const vertex_descriptor& v) const {
    const auto found = number_.find(v);
    if (found == number_.end()) throw bad_graph("an edge ends at a vertex that is not in the graph");
    return found->second;
  }

  const Graph* graph_;
  std::vector<vertex_descriptor> vertex_;
  std::unordered_map<vertex_descriptor, std::size_t, boost::hash<vertex_descriptor>> number_;
};

}  // namespace REMAT_NAMESPACE
