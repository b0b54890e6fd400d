// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/id.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// A sub-graph: some operations, the tensors that they read or write, and the roles of these tensors.
struct sub_graph {
  /// The properties of an operation. Operations that can be exchanged have equal ones.
  struct operation_traits {
    double time = 0;             ///< the time in the cost model's unit
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

  std::vector<std::uint32_t> operations{};    ///< operations of the graph, in a topological order
  std::vector<std::uint32_t> tensors{};       ///< tensors of the graph, ascending
  std::vector<operation_traits> operation{};  ///< the properties of each entry of `operations`
  std::vector<tensor_traits> tensor{};        ///< the properties of each entry of `tensors`
  // The rows hold indices of the two lists above.
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
  /// An extractor without groups. `order` is any topological order of the needed operations, the first `num_forward` of
  /// which are forward.
  sub_graph_extractor(const flat_graph& g, std::span<const std::uint32_t> order, std::uint32_t num_forward)
      : graph_(g),
        num_forward_(num_forward),
        place_(g.num_operations, none),
        local_(g.num_tensors, none),
        mine_(g.num_operations, 0) {
    for (std::uint32_t i = 0; i < order.size(); ++i) place_[order[i]] = i;
  }

  /// Forward and backward of a group. Precondition: the extractor was made with a hierarchy.
  [[nodiscard]] sub_graph operator()(std::size_t group) {
    const operation_hierarchy& h = *hierarchy_;
    std::vector<std::uint32_t> operations(h.forward(group).begin(), h.forward(group).end());
    operations.insert(operations.end(), h.backward(group).begin(), h.backward(group).end());
    return (*this)(std::move(operations));
  }

  /// The sub-graph of these operations, which may be listed in any order. Precondition: they are needed and different.
  [[nodiscard]] sub_graph operator()(std::vector<std::uint32_t> operations) {
    std::sort(operations.begin(), operations.end(),
              [&](std::uint32_t a, std::uint32_t b) { return place_[a] < place_[b]; });
    sub_graph p;
    p.operations = std::move(operations);
    for (const std::uint32_t o : p.operations) {
      mine_[o] = 1;
      p.tensors.insert(p.tensors.end(), graph_.inputs[o].begin(), graph_.inputs[o].end());
      p.tensors.insert(p.tensors.end(), graph_.outputs[o].begin(), graph_.outputs[o].end());
      p.operation.push_back({graph_.time[o], graph_.workspace[o], graph_.once[o], forward(o)});
    }
    std::sort(p.tensors.begin(), p.tensors.end());
    p.tensors.erase(std::unique(p.tensors.begin(), p.tensors.end()), p.tensors.end());
    for (std::uint32_t i = 0; i < p.tensors.size(); ++i) local_[p.tensors[i]] = i;
    for (const std::uint32_t o : p.operations) {
      for (const std::uint32_t t : graph_.inputs[o]) p.reads.values.push_back(local_[t]);
      p.reads.end_row();
      for (const std::uint32_t t : graph_.outputs[o]) p.writes.values.push_back(local_[t]);
      p.writes.end_row();
    }
    for (const std::uint32_t t : p.tensors) {
      unsigned roles = graph_.final_output[t] ? sub_graph::final_output : 0U;
      for (const std::uint32_t o : graph_.producers[t])
        if (!mine_[o] && graph_.needed[o])
          roles |= forward(o) ? sub_graph::made_by_forward : sub_graph::made_by_backward;
      constexpr unsigned read = sub_graph::read_by_forward | sub_graph::read_by_backward;
      for (const std::uint32_t o : graph_.consumers[t]) {
        if (!mine_[o] && graph_.needed[o])
          roles |= forward(o) ? sub_graph::read_by_forward : sub_graph::read_by_backward;
        if ((roles & read) == read) break;
      }
      p.tensor.push_back({graph_.bytes[t], static_cast<std::uint8_t>(roles)});
    }
    for (const std::uint32_t o : p.operations) mine_[o] = 0;
    return p;
  }

 private:
  static constexpr std::uint32_t none = operation_hierarchy::none;
  [[nodiscard]] bool forward(std::uint32_t o) const { return place_[o] < num_forward_; }

  const flat_graph& graph_;
  const operation_hierarchy* hierarchy_ = nullptr;
  std::uint32_t num_forward_;
  std::vector<std::uint32_t> place_, local_;
  std::vector<std::uint8_t> mine_;
};

/// The properties that `find_isomorphism`, `fingerprint` and `classify` compare, and how long they search.
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

namespace isomorphism {

using color = std::uint64_t;

[[nodiscard]] constexpr color mix(color a, color b) noexcept {
  return mix_bits(a ^ (b + golden + (a << 6U) + (a >> 2U)));
}

/// Colors of a sub-graph's operations and tensors: corresponding ones have equal colors.
struct coloring {
  std::vector<color> operation{}, tensor{};

  [[nodiscard]] std::size_t count() const {
    std::vector<color> all = sorted();
    return static_cast<std::size_t>(std::unique(all.begin(), all.end()) - all.begin());
  }
  [[nodiscard]] std::vector<color> sorted() const {
    std::vector<color> all(operation);
    all.insert(all.end(), tensor.begin(), tensor.end());
    std::sort(all.begin(), all.end());
    return all;
  }
};

inline coloring first_coloring(const sub_graph& p, bool times) {
  coloring c;
  for (const auto& o : p.operation) {
    color x = mix(1, std::bit_cast<std::uint64_t>(times ? o.time + 0.0 : 0.0));  // + 0.0: the two zeros are one
    x = mix(x, static_cast<std::uint64_t>(o.workspace));
    c.operation.push_back(mix(x, o.once * 2U + (o.forward ? 1U : 0U)));
  }
  for (const auto& t : p.tensor) c.tensor.push_back(mix(mix(2, static_cast<std::uint64_t>(t.bytes)), t.roles));
  return c;
}

/// Refines the colors by those of the neighbours: sweeps along the topological order and back, so that one sweep
/// carries a difference through the whole sub-graph, until the number of colors no longer grows.
inline void refine(const sub_graph& p, coloring& c) {
  // A sum of mixed colors represents a multiset: the order of rows does not matter.
  std::vector<color> gathered;
  std::vector<std::uint8_t> closed;
  // A tensor's color is ready along the order when all that write it have been seen, which precede all that read it. So
  // a tensor is closed when it is first read, or at the end. Back it is the other way round.
  const auto sweep = [&](auto is_back) {
    constexpr bool back = decltype(is_back)::value;
    constexpr color salt = back ? 6 : 3;
    gathered.assign(c.tensor.size(), 0);
    closed.assign(c.tensor.size(), 0);
    const auto close = [&](std::size_t t) {
      if (closed[t]) return;
      closed[t] = 1;
      c.tensor[t] = mix(c.tensor[t], mix(salt, gathered[t]));
    };
    const index_rows &met = back ? p.writes : p.reads, &left = back ? p.reads : p.writes;
    for (std::size_t i = 0; i < p.operations.size(); ++i) {
      const std::size_t o = back ? p.operations.size() - 1 - i : i;
      color sum = 0;
      for (const std::uint32_t t : met[o]) {
        close(t);
        sum += mix(salt + 1, c.tensor[t]);
      }
      c.operation[o] = mix(c.operation[o], sum);
      for (const std::uint32_t t : left[o]) gathered[t] += mix(salt + 2, c.operation[o]);
    }
    for (std::size_t t = 0; t < c.tensor.size(); ++t) close(t);
  };
  for (std::size_t before = 0, now = c.count(); now > before; now = c.count()) {
    before = now;
    sweep(std::false_type());
    sweep(std::true_type());
  }
}

/// Searches for a mapping. If several nodes share a color, one of them in `a` is matched with each of them in `b` in
/// turn.
class matcher {
 public:
  matcher(const sub_graph& a, const sub_graph& b, const isomorphism_options& options)
      : a_(a), b_(b), options_(options), left_(options.max_refinements) {}

  std::optional<sub_graph_mapping> run() {
    if (a_.operations.size() != b_.operations.size() || a_.tensors.size() != b_.tensors.size()) return std::nullopt;
    coloring a = first_coloring(a_, options_.times), b = first_coloring(b_, options_.times);
    refine(a_, a);
    refine(b_, b);
    return match(std::move(a), std::move(b));
  }

 private:
  // Positions: operations, then tensors.
  [[nodiscard]] static color& at(coloring& c, std::size_t i) {
    return i < c.operation.size() ? c.operation[i] : c.tensor[i - c.operation.size()];
  }
  using colored = std::vector<std::pair<color, std::uint32_t>>;
  [[nodiscard]] static colored by_color(coloring& c) {
    colored out;
    for (std::size_t i = 0; i < c.operation.size() + c.tensor.size(); ++i)
      out.emplace_back(at(c, i), static_cast<std::uint32_t>(i));
    std::sort(out.begin(), out.end());
    return out;
  }

  std::optional<sub_graph_mapping> match(coloring a, coloring b) {
    // Depth first, with the choices that are open on a stack: sub-graphs of many equal branches need many choices.
    struct choice {
      coloring a, b;
      std::uint32_t chosen;               // an operation or a tensor of a
      std::vector<std::uint32_t> others;  // operations or tensors of b, the next at the end
    };
    std::vector<choice> open;
    for (;;) {
      const colored in_a = by_color(a), in_b = by_color(b);
      bool equal = true;
      std::size_t first = 0, length = 0;
      for (std::size_t i = 0, j = 0; i < in_a.size() && equal; i = j) {
        for (; j < in_a.size() && in_a[j].first == in_a[i].first; ++j) equal = equal && in_b[j].first == in_a[j].first;
        if (j - i > 1 && (length == 0 || j - i < length)) {
          first = i;
          length = j - i;
        }
      }
      if (equal && length == 0) {
        sub_graph_mapping m;
        m.operation.resize(a_.operations.size());
        m.tensor.resize(a_.tensors.size());
        bool mixed = false;
        for (std::size_t i = 0; i < in_a.size(); ++i) {
          const std::size_t operations = a_.operations.size(), x = in_a[i].second, y = in_b[i].second;
          if ((x < operations) != (y < operations)) {
            mixed = true;
          } else if (x < operations) {
            m.operation[x] = static_cast<std::uint32_t>(y);
          } else {
            m.tensor[x - operations] = static_cast<std::uint32_t>(y - operations);
          }
        }
        if (!mixed && maps(m)) return m;
      } else if (equal) {
        choice c;
        c.chosen = in_a[first].second;
        for (std::size_t i = first + length; i-- > first;) c.others.push_back(in_b[i].second);
        c.a = std::move(a);
        c.b = std::move(b);
        open.push_back(std::move(c));
      }
      while (!open.empty() && open.back().others.empty()) open.pop_back();
      if (open.empty() || left_ < 2) return std::nullopt;
      left_ -= 2;
      choice& c = open.back();
      a = c.a;
      b = c.b;
      at(a, c.chosen) = mix(at(a, c.chosen), 9);
      at(b, c.others.back()) = mix(at(b, c.others.back()), 9);
      c.others.pop_back();
      refine(a_, a);
      refine(b_, b);
    }
  }

  /// Tests the definition, without colors.
  [[nodiscard]] bool maps(const sub_graph_mapping& m) const {
    for (std::size_t t = 0; t < m.tensor.size(); ++t)
      if (!(a_.tensor[t] == b_.tensor[m.tensor[t]])) return false;
    std::vector<std::uint32_t> row;
    for (std::size_t o = 0; o < m.operation.size(); ++o) {
      sub_graph::operation_traits x = a_.operation[o];
      const std::uint32_t other = m.operation[o];
      if (!options_.times) x.time = b_.operation[other].time;
      if (!(x == b_.operation[other])) return false;
      for (const bool reads : {true, false}) {
        row.clear();
        for (const std::uint32_t t : reads ? a_.reads[o] : a_.writes[o]) row.push_back(m.tensor[t]);
        std::sort(row.begin(), row.end());
        const auto there = reads ? b_.reads[other] : b_.writes[other];
        if (!std::equal(row.begin(), row.end(), there.begin(), there.end())) return false;
      }
    }
    return true;
  }

  const sub_graph& a_;
  const sub_graph& b_;
  const isomorphism_options& options_;
  std::uint32_t left_;
};

}  // namespace isomorphism

/// A hash of a sub-graph that does not depend on names: equal for sub-graphs that are equal up to renaming, and rarely
/// equal for others. O((reads and writes) · log · sweeps) time, mostly with two or three sweeps.
[[nodiscard]] inline std::uint64_t fingerprint(const sub_graph& p, const isomorphism_options& options = {}) {
  isomorphism::coloring c = isomorphism::first_coloring(p, options.times);
  isomorphism::refine(p, c);
  isomorphism::color x = isomorphism::mix(c.operation.size(), c.tensor.size());
  for (const isomorphism::color y : c.sorted()) x = isomorphism::mix(x, y);
  return x;
}

/// Finds a mapping of `a` onto `b` under which properties, reads and writes are the same. A schedule of one sub-graph
/// is then a schedule of the other, with the same memory at each step, and the same time unless `options.times` is
/// false.
///
/// Color refinement with backtracking; every returned mapping has been verified. Sub-graphs of training graphs need
/// choices only among equal branches, of which the first one serves. After `max_refinements` the search returns
/// nothing: the caller then solves an equal sub-graph a second time, which costs time and changes no answer.
[[nodiscard]] inline std::optional<sub_graph_mapping> find_isomorphism(const sub_graph& a, const sub_graph& b,
                                                                       const isomorphism_options& options = {}) {
  return isomorphism::matcher(a, b, options).run();
}

/// Classes of sub-graphs that are equal up to renaming.
struct sub_graph_classes {
  std::vector<std::uint32_t> class_of{};        ///< sub-graph → class; classes are numbered by their first sub-graph
  std::vector<std::uint32_t> representative{};  ///< class → its first sub-graph
  std::vector<sub_graph_mapping> to_representative{};  ///< sub-graph → its mapping onto the representative
};

/// Groups sub-graphs that are equal up to renaming. O(sum over the sub-graphs of their reads and writes · log) time,
/// apart from choices (see `find_isomorphism`).
[[nodiscard]] inline sub_graph_classes classify(std::span<const sub_graph> sub_graphs,
                                                const isomorphism_options& options = {}) {
  sub_graph_classes out;
  std::map<std::uint64_t, std::vector<std::uint32_t>> with_fingerprint;  // → classes
  for (std::uint32_t i = 0; i < sub_graphs.size(); ++i) {
    std::vector<std::uint32_t>& alike = with_fingerprint[fingerprint(sub_graphs[i], options)];
    std::optional<sub_graph_mapping> mapping;
    for (std::size_t k = 0; k < alike.size() && !mapping; ++k) {
      mapping = find_isomorphism(sub_graphs[i], sub_graphs[out.representative[alike[k]]], options);
      if (mapping) out.class_of.push_back(alike[k]);
    }
    if (!mapping) {
      const auto c = static_cast<std::uint32_t>(out.representative.size());
      alike.push_back(c);
      out.class_of.push_back(c);
      out.representative.push_back(i);
      mapping.emplace();
      for (std::uint32_t k = 0; k < sub_graphs[i].operations.size(); ++k) mapping->operation.push_back(k);
      for (std::uint32_t k = 0; k < sub_graphs[i].tensors.size(); ++k) mapping->tensor.push_back(k);
    }
    out.to_representative.push_back(std::move(*mapping));
  }
  return out;
}

/// Classes of the groups of a hierarchy: the sub-graphs are the groups, by index.
struct group_classes : sub_graph_classes {
  std::vector<sub_graph> sub_graphs{};  ///< class → the representative, as `sub_graph_extractor` gives it
};

/// \overload
///
/// Classes of all groups of the hierarchy `h` of the graph `g`.
[[nodiscard]] inline group_classes classify(const flat_graph& g, const operation_hierarchy& h,
                                            const isomorphism_options& options = {}) {
  sub_graph_extractor extract(g, h);
  std::vector<sub_graph> sub_graphs;
  for (std::uint32_t i = 0; i < h.groups.size(); ++i) sub_graphs.push_back(extract(i));
  group_classes out;
  static_cast<sub_graph_classes&>(out) = classify(sub_graphs, options);
  for (const std::uint32_t i : out.representative) out.sub_graphs.push_back(std::move(sub_graphs[i]));
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
