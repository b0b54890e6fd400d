// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/positive_instance.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/treewidth/detail/vertex_set.hpp"

namespace remat::detail {

namespace positive_instances {

inline constexpr std::uint32_t none = undirected_graph::none;

/// The search for a decomposition of width k of a connected graph of at most 64 W vertices.
template <std::size_t W>
class search {
 public:
  using set = vertex_set<W>;

  search(const undirected_graph& g, std::uint32_t k, const width_search_limits& limits)
      : n_(static_cast<std::uint32_t>(g.num_vertices())), k_(k), limits_(limits), rows_(n_), unions_(n_) {
    for (std::uint32_t v = 0; v < n_; ++v) {
      all_.insert(v);
      for (const std::uint32_t u : g.neighbours(v)) rows_[v].insert(u);
    }
  }

  width_decision run() {
    width_decision out;
    if (n_ <= k_ + 1) {
      root_ = all_;
      done_ = true;
    }
    for (std::uint32_t v = 0; v < n_ && !done_ && !stopped_; ++v) {
      set bag = rows_[v];
      bag.insert(v);
      if (bag.size() <= k_ + 1) try_bag(bag);
      if (steps_ >= steps_between_polls && out_of_limits()) stopped_ = true;
    }
    for (std::uint32_t next = 0; next < components_.size() && !done_ && !stopped_; ++next) take(next);
    if (done_) {
      out.verdict = width_verdict::found;
      out.tree = tree();
    } else {
      out.verdict = stopped_ ? width_verdict::unfinished : width_verdict::refuted;
    }
    if (limits_.spent != nullptr) *limits_.spent = work_;
    return out;
  }

 private:
  static constexpr std::uint64_t steps_between_polls = 1'000'000;  // some milliseconds

  /// A set of sets, found by a hash table of open addresses.
  class set_table {
   public:
    [[nodiscard]] std::uint32_t find(const set& s) const noexcept { return table_[slot_of(s)]; }
    /// The number of s; `fresh`: it is new.
    std::uint32_t add(const set& s, bool& fresh) {
      const std::size_t slot = slot_of(s);
      fresh = table_[slot] == none;
      if (!fresh) return table_[slot];
      const auto number = static_cast<std::uint32_t>(sets_.size());
      table_[slot] = number;
      sets_.push_back(s);
      if (sets_.size() * 2 > table_.size()) {
        table_.assign(table_.size() * 4, none);
        for (std::uint32_t i = 0; i < sets_.size(); ++i) table_[slot_of(sets_[i])] = i;
      }
      return number;
    }
    [[nodiscard]] const set& operator[](std::uint32_t number) const noexcept { return sets_[number]; }
    [[nodiscard]] std::size_t size() const noexcept { return sets_.size(); }

   private:
    [[nodiscard]] std::size_t slot_of(const set& s) const noexcept {
      const std::size_t mask = table_.size() - 1;
      std::size_t slot = s.hash() & mask;
      while (table_[slot] != none && !(sets_[table_[slot]] == s)) slot = (slot + 1) & mask;
      return slot;
    }
    std::vector<set> sets_;
    std::vector<std::uint32_t> table_ = std::vector<std::uint32_t>(1024, none);
  };

  /// A feasible set: it and its border have a decomposition of width k with the border in one bag. `bag` is the bag
  /// through which it was found.
  struct component {
    set border, bag;
  };
  /// A union of components that are not adjacent and whose borders have a vertex in common.
  struct joined {
    set area, border;
  };

  /// True when a limit is reached or a stop is requested.
  bool out_of_limits() {
    if (work_ >= limits_.work) return true;
    const std::size_t bytes = num_unions_ * sizeof(joined) + components_.size() * (2 * sizeof(component)) +
                              (areas_.size() + bags_.size() + wanted_.size()) * (sizeof(set) + 40) + num_waits_ * 8;
    if (bytes > limits_.bytes) return true;
    if (steps_ < steps_between_polls) return false;
    steps_ = 0;
    return limits_.stop != nullptr && (*limits_.stop)();
  }

  /// Takes a new component: looks again at the bags that wait for it, and adds its unions with the others around each
  /// vertex of its border.
  void take(std::uint32_t index) {
    const set area = areas_[index], border = components_[index].border, closed = area | border;
    if (const std::uint32_t number = wanted_.find(area); number != none) {
      const std::vector<std::uint32_t> bags = std::move(waits_[number]);
      waits_[number].clear();
      for (const std::uint32_t b : bags) {
        look_at(b, false);
        if (steps_ >= steps_between_polls && out_of_limits()) stopped_ = true;
        if (done_ || stopped_) return;
      }
    }
    border.for_each([&](std::uint32_t v) {
      if (done_ || stopped_) return;
      std::vector<joined>& list = unions_[v];
      const std::size_t before = list.size();
      work_ += before / 8 + 1;
      steps_ += W * before;
      for (std::size_t u = 0; u < before; ++u) {
        if (list[u].area.meets(closed)) continue;
        const set both = list[u].border | border;
        if (both.size() > k_ + 1) continue;
        add_union(v, list[u].area | area, both);
        if (done_ || stopped_) return;
      }
      add_union(v, area, border);
    });
    if (out_of_limits()) stopped_ = true;
  }

  void add_union(std::uint32_t v, const set& area, const set& border) {
    ++work_;
    steps_ += 16 * W;
    const set bag = border | (rows_[v] - area);
    const bool whole = bag == border;
    // If a vertex of the border has all its neighbours within, the union is complete: its border is the bag.
    bool closed = false;
    const set covered = area | border;
    border.for_each([&](std::uint32_t x) { closed = closed || rows_[x].within(covered); });
    if (closed && !whole) return;
    if (!closed) {
      unions_[v].push_back({area, border});
      ++num_unions_;
    }
    if (((num_unions_ & 255U) == 0 || steps_ >= steps_between_polls) && out_of_limits()) stopped_ = true;
    if (bag.size() <= k_ + 1) try_bag(bag);
  }

  void try_bag(const set& bag) {
    bool fresh = false;
    const std::uint32_t b = bags_.add(bag, fresh);
    if (fresh) look_at(b, true);
  }

  /// Looks at the parts of the graph without bag b. If all of them but one, the way out, are known to be feasible, the
  /// component on this side of the way out is feasible, too.
  void look_at(std::uint32_t b, bool first_time) {
    work_ += 4;
    const set bag = bags_[b];
    steps_ += W * n_;
    parts_.clear();
    set rest = all_ - bag;
    bool missing = false;
    while (!rest.empty()) {
      const std::uint32_t v = rest.least();
      const set reach = reach_of(v, rest);
      part p{reach & rest, reach & bag, none, v};
      if (p.border == bag) return;  // no potential maximal clique
      p.known = known(p.area);
      missing = missing || p.known == none;
      parts_.push_back(p);
      rest -= p.area;
    }
    if (!cliquish(bag)) return;
    if (!missing) {
      root_ = bag;
      done_ = true;
      return;
    }
    for (std::size_t d = 0; d < parts_.size(); ++d) add_component(bag, d);
    if (!first_time) return;
    // The bag is looked at again for each missing part that is found: for other ways out, and as the root.
    for (const part& p : parts_)
      if (p.known == none) {
        pending(p.area).push_back(b);
        ++num_waits_;
      }
  }

  /// Adds the component on this side of part d, the way out of `bag`, if it is feasible and on the lesser side of its
  /// border.
  void add_component(const set& bag, std::size_t d) {
    const set& border = parts_[d].border;
    bool feasible = true, first = true;
    std::uint32_t way_out = parts_[d].least;
    set area = bag - border;
    for (std::size_t f = 0; f < parts_.size(); ++f) {
      if (f == d) continue;
      if (parts_[f].border.within(border)) {
        if (parts_[f].border == border) {
          first = first && f > d;
          way_out = std::min(way_out, parts_[f].least);
        }
        continue;
      }
      feasible = feasible && parts_[f].known != none;
      area |= parts_[f].area;
    }
    if (!first) return;  // another part with the same border has been the way out
    if (!feasible || way_out > area.least()) return;
    bool fresh = false;
    areas_.add(area, fresh);
    if (fresh) components_.push_back({border, bag});
  }

  /// True when any two vertices of the bag are adjacent, or in the border of one part.
  [[nodiscard]] bool cliquish(const set& bag) const {
    bool all = true;
    bag.for_each([&](std::uint32_t x) {
      if (!all) return;
      set left = bag - rows_[x];
      left.erase(x);
      if (left.empty()) return;
      for (const part& p : parts_)
        if (p.border.contains(x)) left -= p.border;
      all = left.empty();
    });
    return all;
  }

  /// The component of v in `within`, together with its border.
  [[nodiscard]] set reach_of(std::uint32_t v, const set& within) const {
    set part, reach = rows_[v];
    part.insert(v);
    reach.insert(v);
    set fresh = (reach & within) - part;
    while (!fresh.empty()) {
      part |= fresh;
      fresh.for_each([&](std::uint32_t u) { reach |= rows_[u]; });
      fresh = (reach & within) - part;
    }
    return reach;
  }

  /// The component with this area, if it has been found.
  [[nodiscard]] std::uint32_t known(const set& area) const noexcept { return areas_.find(area); }
  std::vector<std::uint32_t>& pending(const set& area) {
    bool fresh = false;
    const std::uint32_t number = wanted_.add(area, fresh);
    if (fresh) waits_.emplace_back();
    return waits_[number];
  }

  /// The decomposition, from the root's bag down.
  tree_decomposition tree() const {
    tree_decomposition out;
    struct open_bag {
      set bag, area;  // the bag and the vertices below it
      std::uint32_t above;
    };
    std::vector<open_bag> open{{root_, all_ - root_, none}};
    while (!open.empty()) {
      const open_bag now = open.back();
      open.pop_back();
      const auto b = static_cast<std::uint32_t>(out.bags.size());
      now.bag.for_each([&](std::uint32_t v) { out.bags.values.push_back(v); });
      out.bags.end_row();
      if (now.above != none) out.edges.emplace_back(now.above, b);
      set rest = now.area;
      while (!rest.empty()) {
        const set area = reach_of(rest.least(), rest) & rest;
        const component& c = components_[known(area)];
        open.push_back({c.bag, area - c.bag, b});
        rest -= area;
      }
    }
    return out;
  }

  struct part {
    set area, border;
    std::uint32_t known, least;
  };

  std::uint32_t n_, k_;
  width_search_limits limits_;
  std::vector<set> rows_;
  set all_;
  set_table areas_;  // of the components, same numbers
  std::vector<component> components_;
  std::vector<std::vector<joined>> unions_;  // around each vertex
  set_table bags_;                           // that have been looked at
  set_table wanted_;                         // areas that bags wait for
  std::vector<std::vector<std::uint32_t>> waits_;
  std::vector<part> parts_;
  set root_{};
  bool done_ = false, stopped_ = false;
  std::size_t num_unions_ = 0, num_waits_ = 0;
  std::uint64_t work_ = 0, steps_ = 0;  // steps: since the last poll
};

inline width_decision decide_connected(const undirected_graph& g, std::uint32_t k, const width_search_limits& limits) {
  const std::size_t n = g.num_vertices();
  if (n <= 64) return search<1>(g, k, limits).run();
  if (n <= 128) return search<2>(g, k, limits).run();
  if (n <= 192) return search<3>(g, k, limits).run();
  if (n <= 256) return search<4>(g, k, limits).run();
  if (n <= 384) return search<6>(g, k, limits).run();
  if (n <= 512) return search<8>(g, k, limits).run();
  if (n <= 1024) return search<16>(g, k, limits).run();
  return {};
}

}  // namespace positive_instances

REMAT_INLINE width_decision decide_width(const undirected_graph& g, std::uint32_t k,
                                         const width_search_limits& limits) {
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  width_decision out;
  std::vector<std::uint32_t> number(n, undirected_graph::none);
  std::uint64_t spent = 0;
  out.verdict = width_verdict::found;
  for (std::uint32_t root = 0; root < n; ++root) {
    if (number[root] != undirected_graph::none) continue;
    std::vector<std::uint32_t> part{root};
    number[root] = 0;
    std::vector<undirected_graph::edge> edges;
    for (std::size_t i = 0; i < part.size(); ++i)
      for (const std::uint32_t u : g.neighbours(part[i])) {
        if (number[u] == undirected_graph::none) {
          number[u] = static_cast<std::uint32_t>(part.size());
          part.push_back(u);
        }
        edges.emplace_back(static_cast<std::uint32_t>(i), number[u]);
      }
    std::uint64_t here = 0;
    width_search_limits rest = limits;
    if (rest.work != std::numeric_limits<std::uint64_t>::max()) rest.work -= std::min(rest.work, spent);
    rest.spent = &here;
    const width_decision one =
        detail::positive_instances::decide_connected(undirected_graph(part.size(), edges), k, rest);
    spent += here;
    if (one.verdict != width_verdict::found) {
      out.verdict = one.verdict;
      out.tree = {};
      break;
    }
    const auto first = static_cast<std::uint32_t>(out.tree.bags.size());
    for (std::size_t b = 0; b < one.tree.size(); ++b) {
      const std::size_t from = out.tree.bags.values.size();
      for (const std::uint32_t v : one.tree.bags[b]) out.tree.bags.values.push_back(part[v]);
      std::sort(out.tree.bags.values.begin() + static_cast<std::ptrdiff_t>(from), out.tree.bags.values.end());
      out.tree.bags.end_row();
    }
    for (const auto& [a, b] : one.tree.edges) out.tree.edges.emplace_back(first + a, first + b);
    if (first > 0) out.tree.edges.emplace_back(0, first);
  }
  if (limits.spent != nullptr) *limits.spent = spent;
  return out;
}

}  // namespace remat::detail
