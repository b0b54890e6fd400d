// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/detail/isomorphism.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat::detail {

namespace isomorphism {

using color = std::uint64_t;

[[nodiscard]] constexpr color mix(color a, color b) noexcept {
  color z = a ^ (b + 0x9e3779b97f4a7c15U + (a << 6U) + (a >> 2U));
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
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
  std::vector<color> gathered(c.tensor.size());
  const auto salted = [](color salt, color x) { return mix(salt, x); };
  for (std::size_t before = 0, now = c.count(); now > before;) {
    before = now;
    // Down: a tensor's color is ready when all that write it have been seen, which precede all that read it. So a
    // tensor is closed when it is first read, or at the end.
    std::fill(gathered.begin(), gathered.end(), color{0});
    std::vector<std::uint8_t> closed(c.tensor.size(), 0);
    const auto close = [&](std::size_t t, color salt) {
      if (closed[t]) return;
      closed[t] = 1;
      c.tensor[t] = mix(c.tensor[t], salted(salt, gathered[t]));
    };
    for (std::size_t o = 0; o < p.operations.size(); ++o) {
      color sum = 0;
      for (const std::uint32_t t : p.reads[o]) {
        close(t, 3);
        sum += salted(4, c.tensor[t]);
      }
      c.operation[o] = mix(c.operation[o], sum);
      for (const std::uint32_t t : p.writes[o]) gathered[t] += salted(5, c.operation[o]);
    }
    for (std::size_t t = 0; t < c.tensor.size(); ++t) close(t, 3);
    // Up: the same the other way round.
    std::fill(gathered.begin(), gathered.end(), color{0});
    std::fill(closed.begin(), closed.end(), std::uint8_t{0});
    for (std::size_t o = p.operations.size(); o-- > 0;) {
      color sum = 0;
      for (const std::uint32_t t : p.writes[o]) {
        close(t, 6);
        sum += salted(7, c.tensor[t]);
      }
      c.operation[o] = mix(c.operation[o], sum);
      for (const std::uint32_t t : p.reads[o]) gathered[t] += salted(8, c.operation[o]);
    }
    for (std::size_t t = 0; t < c.tensor.size(); ++t) close(t, 6);
    now = c.count();
  }
}

inline color fingerprint_of(const coloring& c) {
  color x = mix(c.operation.size(), c.tensor.size());
  for (const color y : c.sorted()) x = mix(x, y);
  return x;
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
      std::uint32_t chosen;               // of a
      std::vector<std::uint32_t> others;  // of b, the next at the end
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

REMAT_INLINE sub_graph_extractor::sub_graph_extractor(const flat_graph& g, std::span<const std::uint32_t> order,
                                                      std::uint32_t num_forward)
    : graph_(g),
      num_forward_(num_forward),
      place_(g.num_operations, none),
      local_(g.num_tensors, none),
      mine_(g.num_operations, 0) {
  for (std::uint32_t i = 0; i < order.size(); ++i) place_[order[i]] = i;
}

REMAT_INLINE sub_graph sub_graph_extractor::operator()(std::size_t group) {
  const operation_hierarchy& h = *hierarchy_;
  std::vector<std::uint32_t> operations(h.forward(group).begin(), h.forward(group).end());
  operations.insert(operations.end(), h.backward(group).begin(), h.backward(group).end());
  return (*this)(std::move(operations));
}

REMAT_INLINE sub_graph sub_graph_extractor::operator()(std::vector<std::uint32_t> operations) {
  for (const std::uint32_t o : operations)
    if (o >= graph_.num_operations || place_[o] == none)
      throw bad_argument("operation " + std::to_string(o) + " is not needed");
  std::sort(operations.begin(), operations.end(),
            [&](std::uint32_t a, std::uint32_t b) { return place_[a] < place_[b]; });
  if (const auto twice = std::adjacent_find(operations.begin(), operations.end()); twice != operations.end())
    throw bad_argument("operation " + std::to_string(*twice) + " is listed twice");
  sub_graph p;
  p.operations = std::move(operations);
  for (const std::uint32_t o : p.operations) {
    mine_[o] = 1;
    p.tensors.insert(p.tensors.end(), graph_.inputs[o].begin(), graph_.inputs[o].end());
    p.tensors.insert(p.tensors.end(), graph_.outputs[o].begin(), graph_.outputs[o].end());
    sub_graph::operation_traits traits;
    traits.time = graph_.time[o];
    traits.workspace = graph_.workspace[o];
    traits.once = graph_.once[o];
    traits.forward = forward(o);
    p.operation.push_back(traits);
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
    sub_graph::tensor_traits traits;
    traits.bytes = graph_.bytes[t];
    unsigned roles = graph_.final_output[t] ? sub_graph::final_output : 0U;
    for (const std::uint32_t o : graph_.producers[t])
      if (!mine_[o] && graph_.needed[o]) roles |= forward(o) ? sub_graph::made_by_forward : sub_graph::made_by_backward;
    constexpr unsigned read = sub_graph::read_by_forward | sub_graph::read_by_backward;
    for (const std::uint32_t o : graph_.consumers[t]) {
      if (!mine_[o] && graph_.needed[o]) roles |= forward(o) ? sub_graph::read_by_forward : sub_graph::read_by_backward;
      if ((roles & read) == read) break;
    }
    traits.roles = static_cast<std::uint8_t>(roles);
    p.tensor.push_back(traits);
  }
  for (const std::uint32_t o : p.operations) mine_[o] = 0;
  return p;
}

REMAT_INLINE std::uint64_t fingerprint(const sub_graph& p, const isomorphism_options& options) {
  detail::isomorphism::coloring c = detail::isomorphism::first_coloring(p, options.times);
  detail::isomorphism::refine(p, c);
  return detail::isomorphism::fingerprint_of(c);
}

REMAT_INLINE std::optional<sub_graph_mapping> find_isomorphism(const sub_graph& a, const sub_graph& b,
                                                               const isomorphism_options& options) {
  return detail::isomorphism::matcher(a, b, options).run();
}

REMAT_INLINE schedule translate(const schedule& plan, const sub_graph& a, const sub_graph& b,
                                const sub_graph_mapping& mapping) {
  std::map<std::uint32_t, std::uint32_t> operation;
  for (std::size_t i = 0; i < a.operations.size(); ++i) operation[a.operations[i]] = b.operations[mapping.operation[i]];
  schedule out;
  for (const step& k : plan.steps) {
    if (k.is_compute()) {
      const auto found = operation.find(static_cast<std::uint32_t>(k.operation()));
      if (found == operation.end())
        throw bad_argument("operation " + std::to_string(index(k.operation())) + " is not in the sub-graph");
      out.compute(static_cast<op_id>(found->second));
    } else {
      const auto t = static_cast<std::uint32_t>(k.tensor());
      const auto found = std::lower_bound(a.tensors.begin(), a.tensors.end(), t);
      if (found == a.tensors.end() || *found != t)
        throw bad_argument("tensor " + std::to_string(t) + " is not in the sub-graph");
      out.free(static_cast<tensor_id>(b.tensors[mapping.tensor[static_cast<std::size_t>(found - a.tensors.begin())]]));
    }
  }
  return out;
}

REMAT_INLINE sub_graph_classes classify(std::span<const sub_graph> sub_graphs, const isomorphism_options& options) {
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

REMAT_INLINE group_classes classify(const flat_graph& graph, const operation_hierarchy& h,
                                    const isomorphism_options& options) {
  sub_graph_extractor extract(graph, h);
  std::vector<sub_graph> sub_graphs;
  for (std::uint32_t g = 0; g < h.groups.size(); ++g) sub_graphs.push_back(extract(g));
  group_classes out;
  static_cast<sub_graph_classes&>(out) = classify(sub_graphs, options);
  for (const std::uint32_t g : out.representative) out.part.push_back(std::move(sub_graphs[g]));
  return out;
}

}  // namespace remat::detail
