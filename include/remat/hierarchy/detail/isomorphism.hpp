// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// A sub-graph: some operations, the tensors that they read or write, and the roles of these tensors.
struct sub_graph {
  /// The properties of an operation. Operations that can be exchanged have equal ones.
  struct operation_traits {
    double time = 0;             ///< in the cost model's unit
    std::int64_t workspace = 0;  ///< bytes
    std::uint8_t once = 0;       ///< 0, or the reason why it runs at most once, as `flat_graph::once`
    bool forward = false;        ///< it is a forward operation
    friend bool operator==(const operation_traits&, const operation_traits&) = default;
  };
  /// The properties of a tensor.
  struct tensor_traits {
    std::int64_t bytes = 0;  ///< the tensor's size
    std::uint8_t roles = 0;  ///< the roles outside of the sub-graph, as bits
    friend bool operator==(const tensor_traits&, const tensor_traits&) = default;
  };
  // Roles of a tensor outside of the sub-graph, as bits of `tensor_traits::roles`.
  static constexpr std::uint8_t made_by_forward = 1;   ///< a needed forward operation outside makes the tensor
  static constexpr std::uint8_t made_by_backward = 2;  ///< a needed backward operation outside makes the tensor
  static constexpr std::uint8_t read_by_forward = 4;   ///< a needed forward operation outside reads the tensor
  static constexpr std::uint8_t read_by_backward = 8;  ///< a needed backward operation outside reads the tensor
  static constexpr std::uint8_t final_output = 16;     ///< the tensor is a final output

  std::vector<std::uint32_t> operations{};    ///< of the graph, in a topological order
  std::vector<std::uint32_t> tensors{};       ///< of the graph, ascending
  std::vector<operation_traits> operation{};  ///< the properties of each entry of `operations`
  std::vector<tensor_traits> tensor{};        ///< the properties of each entry of `tensors`
  // In indices of the two lists above.
  index_rows reads{};   ///< operation → tensors
  index_rows writes{};  ///< operation → tensors
};

/// Extracts sub-graphs of a graph. A call takes O(operations of the sub-graph + their reads and writes + producers and
/// consumers of their tensors) time; arrays of the graph's size are kept between the calls. Not for several threads at
/// once.
class sub_graph_extractor {
 public:
  /// Keeps references to the graph and to `h`, which says which operations are forward.
  sub_graph_extractor(const flat_graph& g, const operation_hierarchy& h)
      : sub_graph_extractor(g, h.order, h.num_forward) {
    hierarchy_ = &h;
  }
  /// Without groups. `order` is any topological order of the needed operations, the first `num_forward` of which are
  /// forward.
  sub_graph_extractor(const flat_graph& g, std::span<const std::uint32_t> order, std::uint32_t num_forward);

  /// Forward and backward of a group. Precondition: the extractor was made with a hierarchy.
  [[nodiscard]] sub_graph operator()(std::size_t group);

  /// The sub-graph of these operations, which may be listed in any order. Throws `bad_argument` for an operation that
  /// is not needed or is listed twice.
  [[nodiscard]] sub_graph operator()(std::vector<std::uint32_t> operations);

 private:
  static constexpr std::uint32_t none = operation_hierarchy::none;
  [[nodiscard]] bool forward(std::uint32_t o) const { return place_[o] < num_forward_; }

  const flat_graph& graph_;
  const operation_hierarchy* hierarchy_ = nullptr;
  std::uint32_t num_forward_;
  std::vector<std::uint32_t> place_, local_;
  std::vector<std::uint8_t> mine_;
};

/// What `find_isomorphism`, `fingerprint` and `classify` compare, and how long they search.
struct isomorphism_options {
  /// Compare times. Measured times of equal operations differ slightly; false ignores them.
  bool times = true;
  /// Refinements after which the search gives up and calls two sub-graphs different, without a proof.
  std::uint32_t max_refinements = 10'000;
};

/// Operation and tensor of one sub-graph → those of another sub-graph, in indices of their lists.
struct sub_graph_mapping {
  std::vector<std::uint32_t> operation{};  ///< place of an operation in one sub-graph → its place in the other
  std::vector<std::uint32_t> tensor{};     ///< place of a tensor in one sub-graph → its place in the other
};

/// A hash of a sub-graph that does not depend on names: equal for sub-graphs that are equal up to renaming, and rarely
/// equal for others. O((reads and writes) · log · sweeps) time, mostly with two or three sweeps.
[[nodiscard]] std::uint64_t fingerprint(const sub_graph& p, const isomorphism_options& options = {});

/// Finds a mapping of `a` onto `b` under which properties, reads and writes are the same. A schedule of one sub-graph
/// is then a schedule of the other, with the same memory at each step, and the same time unless `options.times` is
/// false.
///
/// Color refinement with backtracking; every returned mapping has been verified. Sub-graphs of training graphs need
/// choices only among equal branches, of which the first one serves. After `max_refinements` the search returns
/// nothing: the caller then solves an equal sub-graph a second time, which costs time and changes no answer.
[[nodiscard]] std::optional<sub_graph_mapping> find_isomorphism(const sub_graph& a, const sub_graph& b,
                                                                const isomorphism_options& options = {});

/// Translates a schedule of sub-graph `a` to sub-graph `b`. Throws `bad_argument` for an operation or tensor that is
/// not of `a`.
[[nodiscard]] schedule translate(const schedule& plan, const sub_graph& a, const sub_graph& b,
                                 const sub_graph_mapping& mapping);

/// Classes of sub-graphs that are equal up to renaming.
struct sub_graph_classes {
  std::vector<std::uint32_t> class_of{};        ///< sub-graph → class; classes are numbered by their first sub-graph
  std::vector<std::uint32_t> representative{};  ///< class → its first sub-graph
  std::vector<sub_graph_mapping> to_representative{};  ///< sub-graph → its mapping onto the representative
};

/// Groups sub-graphs that are equal up to renaming. O(sum over the sub-graphs of their reads and writes · log) time,
/// apart from choices (see `find_isomorphism`).
[[nodiscard]] sub_graph_classes classify(std::span<const sub_graph> sub_graphs,
                                         const isomorphism_options& options = {});

/// Classes of the groups of a hierarchy: the sub-graphs are the groups, by index.
struct group_classes : sub_graph_classes {
  std::vector<sub_graph> part{};  ///< class → the representative, as `sub_graph_extractor` gives it
};

/// \overload
///
/// Classes of all groups of the hierarchy `h` of the graph `g`.
[[nodiscard]] group_classes classify(const flat_graph& g, const operation_hierarchy& h,
                                     const isomorphism_options& options = {});

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/isomorphism.hpp"
#endif
