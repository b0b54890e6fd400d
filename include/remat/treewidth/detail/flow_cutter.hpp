// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

/// Separators of a connected graph between two ends that grow, from small and uneven to larger and even (FlowCutter,
/// Hamann and Strasser \cite hamann2018flowcutter, here with vertices in place of edges).
///
/// The ends are two sets S and T, of one vertex each at first. A maximum flow of vertex-disjoint paths from S to T
/// gives a least separator next to S and one next to T. The smaller of the two sides becomes part of its end, together
/// with one vertex of its separator: if possible a vertex that opens no further path, and among those the vertex
/// farthest from the other end. So each separator that is returned is a least one for some S and T.
///
/// O(edges · size of the last separator) time.
class flow_cutter {
 public:
  /// A set of vertices whose removal separates the two ends.
  struct separator {
    std::vector<std::uint32_t> vertices;  ///< the vertices of the separator
    std::uint32_t smaller_side = 0;       ///< number of vertices on the smaller side
  };

  /// Keeps a reference to `g`, which must outlive the cutter. Precondition: `g` is connected. O(vertices) time.
  explicit flow_cutter(const undirected_graph& g)
      : g_(g), n_(static_cast<std::uint32_t>(g.num_vertices())), side_{half(n_), half(n_)}, from_(n_), to_(n_) {}

  /// Separators between the vertices `s` and `t` with at most `most` vertices: for each size the most even one.
  /// `random` breaks ties. `stop` is asked for each path of the flow; true ends the search with the separators found so
  /// far.
  std::vector<separator> run(std::uint32_t s, std::uint32_t t, std::uint32_t most, random_source& random,
                             const std::function<bool()>* stop = nullptr);
  /// Edges looked at so far.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

 private:
  static constexpr std::uint32_t none = undirected_graph::none;

  /// One end of the flow, and the states that it reaches. Each vertex has an entry and an exit state, and carries at
  /// most one path.
  struct half {
    explicit half(std::uint32_t n) : mine(n, 0), in(n, 0), out(n, 0), distance(n, 0) {}
    std::vector<std::uint8_t> mine;       // in S (T)
    std::vector<std::uint32_t> members;   // of S (T)
    std::vector<std::uint32_t> in, out;   // = stamp: the entry (exit) is reached
    std::vector<std::uint32_t> distance;  // from the first vertex
    std::vector<std::uint32_t> list;      // states that are reached: 2 v for the entry, 2 v + 1 for the exit
    std::uint32_t stamp = 0, reached = 0;
  };

  /// The vertex of the separator `border_` that joins the end k next; `none` where each touches the other end.
  std::uint32_t next_vertex(unsigned k, random_source& random);

  void measure(std::uint32_t s, unsigned k);
  void add(unsigned k, std::uint32_t v);
  /// All that is fully reached becomes part of the end.
  void absorb(unsigned k);
  /// Vertices that are entered (from S: by the entry, from T: by the exit), but not crossed.
  void cut(unsigned k, std::vector<std::uint32_t>& out) const;

  /// Searches anew from the end K along what the flow leaves. From S it ends, and adds a path, when it meets T; then it
  /// returns true.
  template <unsigned K>
  bool search();
  template <unsigned K>
  void grow(std::uint32_t v);
  template <unsigned K>
  void visit(std::uint32_t v, bool exit, std::uint32_t before);
  template <unsigned K>
  bool expand(std::size_t from);
  /// Sends one more path along the states that led to `state`.
  void augment(std::uint32_t state);

  const undirected_graph& g_;
  std::uint32_t n_;
  half side_[2];
  std::vector<std::uint32_t> from_, to_;  // of a vertex that carries a path: the vertices before and after it
  std::vector<std::uint32_t> before_, queue_, border_, path_;
  std::uint64_t work_ = 0;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/flow_cutter.hpp"
#endif
