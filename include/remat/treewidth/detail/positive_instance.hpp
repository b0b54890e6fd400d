// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/detail/subgraph.hpp"
#include "remat/treewidth/detail/vertex_set.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

/// The outcome of a search for a decomposition of a given width.
enum class width_verdict : std::uint8_t {
  found,      ///< a decomposition of the width was found
  refuted,    ///< it is proven that no such decomposition exists
  unfinished  ///< stopped by a limit
};

/// The answer of `decide_width`.
struct width_decision {
  width_verdict verdict = width_verdict::unfinished;  ///< the outcome of the search
  tree_decomposition tree{};                          ///< the tree, if found: of at most the given width
  std::uint64_t work = 0;                             ///< pairs of sets and candidate bags
};

struct width_search_limits {
  std::size_t bytes = std::size_t{1} << 29U;                       ///< most bytes of tables
  std::uint64_t work = std::numeric_limits<std::uint64_t>::max();  ///< pairs of sets and candidate bags
  stop_function stop = nullptr;  ///< asked every few milliseconds; true ends the search
};

/// The largest connected component that `decide_width` searches, in vertices; a larger one is `unfinished` at once.
inline constexpr std::size_t max_exact_vertices = 1024;

namespace positive_instance {

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
    if (n_ <= k_ + 1) {
      root_ = all_;
      done_ = true;
    }
    for (std::uint32_t v = 0; v < n_ && !done_ && !stopped_; ++v) {
      set bag = rows_[v];
      bag.insert(v);
      if (bag.size() <= k_ + 1) try_bag(bag);
      poll();
    }
    for (std::uint32_t next = 0; next < feasible_.size() && !done_ && !stopped_; ++next) take(next);
    if (done_) return {width_verdict::found, tree(), work_};
    return {stopped_ ? width_verdict::unfinished : width_verdict::refuted, {}, work_};
  }

 private:
  static constexpr std::uint32_t none = undirected_graph::none;
  static constexpr std::uint64_t steps_between_polls = 1'000'000;  // some milliseconds

  /// A set of sets, found by a hash table of open addresses.
  class set_table {
   public:
    /// The number of s; `none` if the table lacks it.
    [[nodiscard]] std::uint32_t find(const set& s) const noexcept { return table_[slot_of(s)]; }
    /// Adds s, unless it is there. Returns its number, and whether it is new.
    std::pair<std::uint32_t, bool> add(const set& s) {
      const std::size_t slot = slot_of(s);
      if (table_[slot] != none) return {table_[slot], false};
      const auto number = static_cast<std::uint32_t>(sets_.size());
      table_[slot] = number;
      sets_.push_back(s);
      if (sets_.size() * 2 > table_.size()) {
        table_.assign(table_.size() * 4, none);
        for (std::uint32_t i = 0; i < sets_.size(); ++i) table_[slot_of(sets_[i])] = i;
      }
      return {number, true};
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
  struct feasible_set {
    set border, bag;
  };
  /// A union of feasible sets that are not adjacent and whose borders have a vertex in common.
  struct joined {
    set area, border;
  };
  /// A connected component of the graph without a bag. `number` is that of the feasible set, `none` if it is not one.
  struct component {
    set area, border;
    std::uint32_t number, least;
  };

  /// True when a limit is reached or a stop is requested.
  bool out_of_limits() {
    if (work_ >= limits_.work) return true;
    const std::size_t bytes = num_unions_ * sizeof(joined) + feasible_.size() * (2 * sizeof(feasible_set)) +
                              (areas_.size() + bags_.size() + wanted_.size()) * (sizeof(set) + 40) + num_waits_ * 8;
    if (bytes > limits_.bytes) return true;
    if (steps_ < steps_between_polls) return false;
    steps_ = 0;
    return must_stop(limits_.stop);
  }
  /// Tests the limits, if the last test is `steps_between_polls` ago.
  void poll() {
    if (steps_ >= steps_between_polls && out_of_limits()) stopped_ = true;
  }

  /// Takes a new feasible set: looks again at the bags that wait for it, and adds its unions with the others around
  /// each vertex of its border.
  void take(std::uint32_t index) {
    const set area = areas_[index], border = feasible_[index].border, closed = area | border;
    if (const std::uint32_t number = wanted_.find(area); number != none) {
      for (const std::uint32_t b : std::exchange(waits_[number], {})) {
        look_at(b, false);
        poll();
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
    // If a vertex of the border has all its neighbours within, the union is complete: its border is the bag.
    bool closed = false;
    const set covered = area | border;
    border.for_each([&](std::uint32_t x) { closed = closed || rows_[x].within(covered); });
    if (closed && bag != border) return;
    if (!closed) {
      unions_[v].push_back({area, border});
      ++num_unions_;
    }
    if (((num_unions_ & 255U) == 0 || steps_ >= steps_between_polls) && out_of_limits()) stopped_ = true;
    if (bag.size() <= k_ + 1) try_bag(bag);
  }

  void try_bag(const set& bag) {
    if (const auto [number, fresh] = bags_.add(bag); fresh) look_at(number, true);
  }

  /// Looks at the components of the graph without bag b. If all of them but one, the way out, are known to be feasible,
  /// the set on this side of the way out is feasible, too.
  void look_at(std::uint32_t b, bool first_time) {
    work_ += 4;
    const set bag = bags_[b];
    steps_ += W * n_;
    components_.clear();
    set rest = all_ - bag;
    bool missing = false;
    while (!rest.empty()) {
      const std::uint32_t v = rest.least();
      const set reach = reach_of(v, rest), area = reach & rest, border = reach & bag;
      if (border == bag) return;  // no potential maximal clique
      components_.push_back({area, border, areas_.find(area), v});
      missing = missing || components_.back().number == none;
      rest -= area;
    }
    if (!cliquish(bag)) return;
    if (!missing) {
      root_ = bag;
      done_ = true;
      return;
    }
    for (std::size_t d = 0; d < components_.size(); ++d) add_feasible(bag, d);
    if (!first_time) return;
    // The bag is looked at again for each missing component that is found: for other ways out, and as the root.
    for (const component& c : components_) {
      if (c.number != none) continue;
      const auto [number, fresh] = wanted_.add(c.area);
      if (fresh) waits_.emplace_back();
      waits_[number].push_back(b);
      ++num_waits_;
    }
  }

  /// Adds the set on this side of component d, the way out of `bag`, if it is feasible and inbound.
  void add_feasible(const set& bag, std::size_t d) {
    const set& border = components_[d].border;
    bool feasible = true;
    std::uint32_t way_out = components_[d].least;
    set area = bag - border;
    for (std::size_t f = 0; f < components_.size(); ++f) {
      const component& c = components_[f];
      if (f == d) continue;
      if (c.border == border) {
        if (f < d) return;  // it has been the way out
        way_out = std::min(way_out, c.least);
      } else if (!c.border.within(border)) {
        feasible = feasible && c.number != none;
        area |= c.area;
      }
    }
    if (!feasible || way_out > area.least()) return;
    if (areas_.add(area).second) feasible_.push_back({border, bag});
  }

  /// True when any two vertices of the bag are adjacent, or in the border of one component.
  [[nodiscard]] bool cliquish(const set& bag) const {
    bool all = true;
    bag.for_each([&](std::uint32_t x) {
      if (!all) return;
      set left = bag - rows_[x];
      left.erase(x);
      if (left.empty()) return;
      for (const component& c : components_)
        if (c.border.contains(x)) left -= c.border;
      all = left.empty();
    });
    return all;
  }

  /// The component of v in `within`, together with its border.
  [[nodiscard]] set reach_of(std::uint32_t v, const set& within) const {
    set area, reach = rows_[v];
    area.insert(v);
    reach.insert(v);
    set fresh = (reach & within) - area;
    while (!fresh.empty()) {
      area |= fresh;
      fresh.for_each([&](std::uint32_t u) { reach |= rows_[u]; });
      fresh = (reach & within) - area;
    }
    return reach;
  }

  /// The decomposition, from the root's bag down.
  [[nodiscard]] tree_decomposition tree() const {
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
        const set area = reach_of(rest.least(), rest) & rest, bag = feasible_[areas_.find(area)].bag;
        open.push_back({bag, area - bag, b});
        rest -= area;
      }
    }
    return out;
  }

  std::uint32_t n_, k_;
  width_search_limits limits_;
  std::vector<set> rows_;
  set all_{}, root_{};
  set_table areas_;  // areas of the feasible sets, same numbers
  std::vector<feasible_set> feasible_;
  std::vector<std::vector<joined>> unions_;  // unions around each vertex
  set_table bags_;                           // bags that have been looked at
  set_table wanted_;                         // areas that bags wait for
  std::vector<std::vector<std::uint32_t>> waits_;
  std::vector<component> components_;
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
  if (n <= max_exact_vertices) return search<16>(g, k, limits).run();
  return {};
}

}  // namespace positive_instance

/// Decides whether a graph has a tree decomposition of width k, and finds one.
///
/// Positive-instance driven dynamic programming over potential maximal cliques (Tamaki \cite tamaki2017positive, on the
/// ground of Bouchitté and Todinca \cite bouchitte2001treewidth). A connected set C is *feasible* if it and its border
/// have a decomposition of width k with the border in one bag. Feasible sets are found from smaller ones. Take a bag K
/// and the components of the graph without K. If all of them are feasible but one, D, the set on this side of D's
/// border is feasible. If all of them are feasible, K is the root of a decomposition.
/// Keeps only *inbound* sets (Tamaki's word): another component with the same border has a lesser least vertex.
///
/// Differs from the paper in how bags are found: a vertex v of K outside of D's border is joined, in K, only to its
/// neighbours and to the borders of components that v is beside. So K is the neighbourhood of v and of a union of
/// feasible sets that all have v in their borders. Unions are kept for each v, and sets that lie far apart are never
/// joined. A bag that still lacks a component waits for it.
///
/// Exponential time and memory at worst, for instance if many components share one border: reduce the graph first
/// (`reduce`), and split it at safe separators. `limits` bound both.
[[nodiscard]] inline width_decision decide_width(const undirected_graph& g, std::uint32_t k,
                                                 const width_search_limits& limits = {}) {
  width_decision out{width_verdict::found};
  std::vector<std::uint32_t> number(g.num_vertices(), undirected_graph::none);
  for (const std::vector<std::uint32_t>& component : components_of(g)) {
    width_search_limits rest = limits;
    rest.work -= std::min(rest.work, out.work);
    const width_decision one = positive_instance::decide_connected(induced_subgraph(g, component, number), k, rest);
    out.work += one.work;
    if (one.verdict != width_verdict::found) return {one.verdict, {}, out.work};
    const auto first = static_cast<std::uint32_t>(out.tree.size());
    append_tree(out.tree, one.tree, component);
    if (first > 0) out.tree.edges.emplace_back(0, first);
  }
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
