// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/flow_cutter.hpp"

#include <algorithm>
#include <utility>

#include "remat/core/detail/linkage.hpp"

namespace remat::detail {

REMAT_INLINE std::vector<flow_cutter::separator> flow_cutter::run(std::uint32_t s, std::uint32_t t, std::uint32_t most,
                                                                  random_source& random,
                                                                  const std::function<bool()>* stop) {
  std::vector<separator> found;
  if (s == t || g_.adjacent(s, t)) return found;
  std::fill(from_.begin(), from_.end(), none);
  std::fill(to_.begin(), to_.end(), none);
  measure(s, 0);
  measure(t, 1);
  for (half& h : side_) {
    std::fill(h.mine.begin(), h.mine.end(), 0);
    h.members.clear();
  }
  add(0, s);
  add(1, t);
  std::uint32_t flow = 0;
  bool fresh = true;
  while (true) {
    if (stop != nullptr && (*stop)()) return found;
    if (fresh) {  // the flow has changed
      while (search<0>()) {
        if (++flow > most || (stop != nullptr && (*stop)())) return found;
      }
      search<1>();
      fresh = false;
    }
    const unsigned k = side_[0].reached <= side_[1].reached ? 0 : 1;
    const std::uint32_t smaller = side_[k].reached;
    if (found.empty() || found.back().smaller_side < smaller) {
      if (found.empty() || found.back().vertices.size() < flow) found.emplace_back();
      found.back().smaller_side = smaller;
      found.back().vertices.clear();
      cut(k, found.back().vertices);
    }
    cut(k, border_);
    if (2 * smaller + flow >= n_) return found;
    const std::uint32_t best = next_vertex(k, random);
    if (best == none) return found;
    absorb(k);
    const half& o = side_[1 - k];
    fresh = (k == 0 ? o.out[best] : o.in[best]) == o.stamp;
    add(k, best);
    if (!fresh) {
      if (k == 0)
        grow<0>(best);
      else
        grow<1>(best);
    }
  }
}

REMAT_INLINE std::uint32_t flow_cutter::next_vertex(unsigned k, random_source& random) {
  std::uint32_t best = none;
  std::int64_t best_score = 0;
  for (const std::uint32_t v : border_) {
    const auto& other = side_[1 - k].mine;
    bool touches = other[v] != 0;
    for (const std::uint32_t u : g_.neighbours(v)) touches = touches || other[u] != 0;
    work_ += g_.degree(v);
    if (touches) continue;
    const half& o = side_[1 - k];
    const bool opens = (k == 0 ? o.out[v] : o.in[v]) == o.stamp;
    const std::int64_t away = static_cast<std::int64_t>(side_[1 - k].distance[v]) - side_[k].distance[v];
    const std::int64_t score =
        ((opens ? std::int64_t{-1} << 40 : 0) + away) * 1024 + static_cast<std::int64_t>(random.below(1024));
    if (best == none || score > best_score) {
      best = v;
      best_score = score;
    }
  }
  return best;
}

REMAT_INLINE void flow_cutter::measure(std::uint32_t s, unsigned k) {
  auto& distance = side_[k].distance;
  std::fill(distance.begin(), distance.end(), n_);
  queue_.assign(1, s);
  distance[s] = 0;
  for (std::size_t i = 0; i < queue_.size(); ++i)
    for (const std::uint32_t u : g_.neighbours(queue_[i]))
      if (distance[u] == n_) {
        distance[u] = distance[queue_[i]] + 1;
        queue_.push_back(u);
      }
}

REMAT_INLINE void flow_cutter::add(unsigned k, std::uint32_t v) {
  if (side_[k].mine[v]) return;
  side_[k].mine[v] = 1;
  side_[k].members.push_back(v);
}

REMAT_INLINE void flow_cutter::absorb(unsigned k) {
  half& h = side_[k];
  for (const std::uint32_t state : h.list) {
    const std::uint32_t v = state / 2;
    if ((k == 0) == (state % 2 == 1)) add(k, v);
  }
}

REMAT_INLINE void flow_cutter::cut(unsigned k, std::vector<std::uint32_t>& out) const {
  out.clear();
  const half& h = side_[k];
  for (const std::uint32_t state : h.list) {
    const std::uint32_t v = state / 2;
    if (k == 0 ? state % 2 == 0 && h.out[v] != h.stamp : state % 2 == 1 && h.in[v] != h.stamp) out.push_back(v);
  }
}

template <unsigned K>
bool flow_cutter::search() {
  half& h = side_[K];
  ++h.stamp;
  h.list.clear();
  h.reached = 0;
  if (K == 0 && before_.size() != 2 * std::size_t{n_}) before_.assign(2 * std::size_t{n_}, none);
  for (const std::uint32_t v : h.members) visit<K>(v, K == 0, none);
  return expand<K>(0);
}

template <unsigned K>
void flow_cutter::grow(std::uint32_t v) {
  half& h = side_[K];
  const std::size_t from = h.list.size();
  visit<K>(v, K == 0, none);
  expand<K>(from);
}

template <unsigned K>
void flow_cutter::visit(std::uint32_t v, bool exit, std::uint32_t before) {
  half& h = side_[K];
  std::uint32_t& seen = exit ? h.out[v] : h.in[v];
  if (seen == h.stamp) return;
  seen = h.stamp;
  if (exit == (K == 0)) ++h.reached;
  if (K == 0) before_[2 * v + (exit ? 1 : 0)] = before;
  h.list.push_back(2 * v + (exit ? 1 : 0));
}

template <unsigned K>
bool flow_cutter::expand(std::size_t from) {
  half& h = side_[K];
  for (std::size_t i = from; i < h.list.size(); ++i) {
    const std::uint32_t state = h.list[i], v = state / 2;
    const bool exit = state % 2 == 1, carries = from_[v] != none;
    if (exit == (K == 0)) {
      // Leaves v along every edge; a path through v may be taken back.
      work_ += g_.degree(v);
      for (const std::uint32_t u : g_.neighbours(v)) {
        if (h.mine[u]) continue;
        visit<K>(u, !exit, state);
        if (K == 0 && side_[1].mine[u]) {
          augment(2 * u);
          return true;
        }
      }
      if (carries && !h.mine[v]) visit<K>(v, !exit, state);
    } else if (!carries) {
      visit<K>(v, !exit, state);
    } else {
      // The path that v carries is taken back to where it comes from (goes to).
      visit<K>(K == 0 ? from_[v] : to_[v], exit != true, state);
    }
  }
  return false;
}

REMAT_INLINE void flow_cutter::augment(std::uint32_t state) {
  // From the far end to the near one; what is taken back first loses its links.
  path_.clear();
  for (; state != none; state = before_[state]) path_.push_back(state);
  std::reverse(path_.begin(), path_.end());
  // Edges taken back: an entry that is followed by the exit of another vertex.
  for (std::size_t i = 0; i + 1 < path_.size(); ++i) {
    const std::uint32_t a = path_[i], b = path_[i + 1];
    if (a % 2 == 0 && b % 2 == 1 && a / 2 != b / 2) {
      to_[b / 2] = none;
      from_[a / 2] = none;
    }
  }
  for (std::size_t i = 0; i + 1 < path_.size(); ++i) {
    const std::uint32_t a = path_[i], b = path_[i + 1];
    if (a % 2 == 1 && b % 2 == 0 && a / 2 != b / 2) {
      to_[a / 2] = b / 2;
      from_[b / 2] = a / 2;
    }
  }
}

}  // namespace remat::detail
