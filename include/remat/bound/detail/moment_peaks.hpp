// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/bound/detail/moment_program.hpp"
#include "remat/bound/detail/moment_relations.hpp"
#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE::detail {

/// First runs that need noticeably more than the budget if a solution of a `moment_program` is run in an order that
/// makes everything again as late as it can.
class moment_peaks {
 public:
  /// A first run, and the bytes that it needs beyond the budget.
  struct peak {
    std::int64_t beyond;
    std::uint32_t operation;
  };

  moment_peaks(const flat_graph& g, std::int64_t budget) : graph_(g), budget_(budget) {}

  /// Finds them all, between two moments, before the first or behind the last; the highest first. `values` are those
  /// of the program's columns, rounded to the nearest.
  [[nodiscard]] std::vector<peak> find(const moment_program& p, const std::vector<double>& values) {
    peaks_.clear();
    const flat_graph& g = graph_;
    const std::vector<std::uint32_t>& moments = p.moments();
    const std::size_t m = moments.size();
    const auto is = [&](moment_program::value v) {
      return v == moment_program::one || (moment_program::is_column(v) && values[v] > 0.5);
    };
    const moment_relations relations(g);
    const auto held_at = [&](std::size_t i) {
      flags held(g.num_tensors, 0);
      for (std::uint32_t t = 0; t < g.num_tensors; ++t)
        held[t] = relations.is_own(moments[i], t) || (!p.is_free(i, t) && is(p.held(i, t)));
      return held;
    };
    for (std::size_t end = 0; end <= m; ++end) {
      flags runs(g.num_operations, 0), first(g.num_operations, 0), held(g.num_tensors, 0), wanted(g.num_tensors, 0);
      if (end < m)
        wanted = held_at(end);
      else
        for (const std::uint32_t t : g.final_outputs) wanted[t] = 1;
      const auto precedes_end = [&](std::uint32_t o) {
        return end == m || (p.sides(end)[o] & moment_relations::earlier) != 0;
      };
      if (end == 0) {
        for (std::uint32_t o = 0; o <= moments[0]; ++o) runs[o] = first[o] = precedes_end(o);
        for (std::uint32_t t = 0; t < g.num_tensors; ++t)
          if (wanted[t])
            for (const std::uint32_t producer : g.producers[t]) runs[producer] = 1;
        for (std::uint32_t o = g.num_operations; o-- > 0;)
          if (runs[o])
            for (const std::uint32_t t : g.inputs[o])
              for (const std::uint32_t producer : g.producers[t]) runs[producer] = 1;
      } else {
        held = held_at(end - 1);
        for (std::uint32_t o = 0; o < g.num_operations; ++o) {
          runs[o] = is(p.runs(end - 1, o));
          if (o != moments[end - 1] && g.needed[o] && (p.sides(end - 1)[o] & moment_relations::later) != 0 &&
              precedes_end(o))
            runs[o] = first[o] = 1;
        }
      }
      if (end < m) first[moments[end]] = 0;
      follow(runs, first, held, wanted);
    }
    std::sort(peaks_.begin(), peaks_.end(), [](const peak& a, const peak& b) {
      return a.beyond != b.beyond ? a.beyond > b.beyond : a.operation < b.operation;
    });
    return peaks_;
  }

 private:
  using flags = std::vector<std::uint8_t>;

  /// Follows the runs between two moments. `held`: the tensors at the beginning; `wanted`: at the end.
  void follow(const flags& runs, const flags& first, const flags& held, const flags& wanted) {
    const flat_graph& g = graph_;
    std::vector<std::uint32_t> order, todo;
    flags done(g.num_operations, 0), there = held;
    const auto run = [&](std::uint32_t last) {  // and before it what makes its inputs
      todo.push_back(last);
      while (!todo.empty()) {
        const std::uint32_t o = todo.back();
        const std::size_t size = todo.size();
        if (!done[o])
          for (const std::uint32_t t : g.inputs[o])
            if (!there[t])
              for (const std::uint32_t p : g.producers[t])
                if (runs[p] && !done[p]) todo.push_back(p);
        if (todo.size() > size) continue;
        todo.pop_back();
        if (done[o]) continue;
        done[o] = 1;
        order.push_back(o);
        for (const std::uint32_t t : g.outputs[o]) there[t] = 1;
      }
    };
    for (const flags* which : {&first, &runs})
      for (std::uint32_t o = 0; o < g.num_operations; ++o)
        if ((*which)[o]) run(o);
    const std::size_t n = order.size();
    std::vector<std::size_t> from(g.num_tensors, n), to(g.num_tensors, 0);  // positions in the order
    for (std::size_t i = n; i-- > 0;)
      for (const std::uint32_t t : g.outputs[order[i]]) {
        from[t] = i;
        to[t] = std::max(to[t], i + 1);
      }
    for (std::size_t i = 0; i < n; ++i)
      for (const std::uint32_t t : g.inputs[order[i]]) to[t] = std::max(to[t], i + 1);
    std::vector<std::int64_t> change(n + 1, 0);
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      if (held[t]) from[t] = 0;
      if (wanted[t]) to[t] = n;
      if (from[t] >= to[t]) continue;
      change[from[t]] += g.bytes[t];
      change[to[t]] -= g.bytes[t];
    }
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < n; ++i) {
      bytes += change[i];
      const std::uint32_t o = order[i];
      const std::int64_t beyond = bytes + g.workspace[o] - budget_;
      if (first[o] && beyond > budget_ >> 12) peaks_.push_back({beyond, o});
    }
  }

  const flat_graph& graph_;
  std::int64_t budget_;
  std::vector<peak> peaks_;
};

}  // namespace REMAT_NAMESPACE::detail
