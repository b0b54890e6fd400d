// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/decompose.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/portable_pieces.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/core/error.hpp"
#include "remat/treewidth/detail/dissection.hpp"
#include "remat/treewidth/detail/elimination_order.hpp"
#include "remat/treewidth/detail/order_annealing.hpp"
#include "remat/treewidth/detail/positive_instance.hpp"
#include "remat/treewidth/detail/reduction.hpp"
#include "remat/treewidth/detail/safe_separators.hpp"
#include "remat/treewidth/detail/subgraph.hpp"
#include "remat/treewidth/impl/bramble_bound.hpp"
#include "remat/treewidth/impl/improve.hpp"
#include "remat/treewidth/impl/width_bound.hpp"

namespace REMAT_NAMESPACE {

namespace detail {

void fields_of(auto& bytes, maybe_const<decomposition_statistics> auto& s) { bytes(s.rounds, s.work, s.seconds); }
void fields_of(auto& bytes, maybe_const<decomposition_result> auto& r) {
  bytes(r.tree.bags, r.tree.edges, r.width, r.lower_bound, r.proven, r.stopped, r.statistics);
}

}  // namespace detail

namespace detail::decomposing {

/// A node of the tree of subproblems. Its graph has been reduced to one fragment below, or split into several, or
/// neither; in the last case it holds its best decomposition so far.
struct fragment {
  undirected_graph graph{};
  std::vector<std::uint32_t> vertices{};  ///< vertex → vertex of the fragment above
  std::vector<std::unique_ptr<fragment>> below{};
  reduced_graph reduction{};  ///< if it eliminated vertices, `below` is one fragment, its rest
  struct joint {
    std::uint32_t first, second;          ///< two fragments below …
    std::vector<std::uint32_t> vertices;  ///< … which share these, which are a clique in both
  };
  std::vector<joint> joints{};
  tree_decomposition tree{};  ///< the best one known; found before the split if the fragment was split
  std::int64_t width = -1;
  std::uint32_t round = 0;
  std::unique_ptr<decomposition_improver> improver{};

  fragment& add_below(undirected_graph subgraph, std::vector<std::uint32_t> places) {
    below.push_back(std::make_unique<fragment>());
    below.back()->graph = std::move(subgraph);
    below.back()->vertices = std::move(places);
    return *below.back();
  }
  /// Takes a decomposition if it is narrower than the best one known.
  void adopt(tree_decomposition t) {
    const std::int64_t t_width = t.width();
    if (tree.size() != 0 && t_width >= width) return;
    tree = std::move(t);
    width = t_width;
    if (improver) improver->reset(tree);
  }
};

/// The separators of a minimal decomposition, one for each tree edge, and the groups of bags between the safe ones.
struct separators {
  explicit separators(const tree_decomposition& decomposition)
      : t(decomposition),
        links(t.links()),
        cut(t.edges.size(), 0),
        shared(t.edges.size()),
        group(t.size(), undirected_graph::none),
        edges_at(t.size()) {
    for (std::uint32_t e = 0; e < t.edges.size(); ++e) {
      edges_at[t.edges[e].first].push_back(e);
      edges_at[t.edges[e].second].push_back(e);
    }
  }

  /// Makes a group of the bags of group `from` that are connected to bag b by edges that are not cut.
  void gather(std::uint32_t b, std::uint32_t from) {
    const auto k = static_cast<std::uint32_t>(groups.size());
    std::vector<std::uint32_t>& bags = groups.emplace_back(1, b);
    group[b] = k;
    for (std::size_t i = 0; i < bags.size(); ++i)
      for (const std::uint32_t e : edges_at[bags[i]]) {
        const std::uint32_t c = t.edges[e].first == bags[i] ? t.edges[e].second : t.edges[e].first;
        if (cut[e] || group[c] != from) continue;
        group[c] = k;
        bags.push_back(c);
      }
  }

  const tree_decomposition& t;
  index_rows links;
  std::vector<std::uint8_t> cut;                     // edge → its separator is safe
  std::vector<std::uint32_t> candidates;             // edges that are safe if they still are so in their group's torso
  std::vector<std::vector<std::uint32_t>> shared;    // edge → its separator
  std::vector<std::uint32_t> group;                  // bag → its group
  std::vector<std::vector<std::uint32_t>> groups;    // group → its bags; empty: it was split
  std::vector<std::vector<std::uint32_t>> edges_at;  // bag → its edges
};

/// One search on one thread.
class solver {
 public:
  solver(const undirected_graph& g, const decompose_options& options)
      : options_(options), clock_(options.run), random_(options.run.seed), stop_([this] { return must_stop(); }) {
    root_.graph = g;
  }

  decomposition_result run() {
    decomposition_result out;
    const undirected_graph& g = root_.graph;
    if (g.num_vertices() > 0) {
      clock_.work(16 * g.num_edges());
      if (must_stop()) {
        begin(root_);
      } else {
        low_ = contraction_bound(g, random_.next(), &stop_);
        raise_by_bramble(g);
        analyse(root_);
      }
      while (!must_stop()) {
        fragment* worst = widest(root_);
        if (worst == nullptr || is_proven(*worst) || worst->width <= options_.target_width) break;
        if (worst->round >= options_.rounds && !options_.run.is_limited()) break;
        search(*worst);
        ++out.statistics.rounds;
      }
      if (const fragment* worst = widest(root_); worst != nullptr && !is_proven(*worst)) out.stopped = clock_.poll();
      out.tree = assemble(root_);
      out.lower_bound = low_;
    }
    out.width = out.tree.width();
    out.proven = out.width <= out.lower_bound;
    if (const decomposition_report report = check_decomposition(g, out.tree); !report.valid())
      throw internal_error("the search returned a tree that is not a tree decomposition: " + report.violations[0]);
    out.statistics.work = clock_.work_done();
    out.statistics.seconds = clock_.seconds();
    return out;
  }

 private:
  [[nodiscard]] bool must_stop() const { return clock_.should_stop(); }
  [[nodiscard]] bool is_proven(const fragment& p) const { return p.width <= low_; }

  void report(std::string_view stage) {
    progress p;
    p.solver = "decompose";
    p.stage = stage;
    if (const fragment* worst = widest(root_)) p.best_objective = static_cast<double>(std::max(worst->width, low_));
    p.lower_bound = static_cast<double>(low_);
    clock_.report(p);
  }

  // ---- splitting ----------------------------------------------------------------------------------------------------

  /// Reduces a fragment, splits it, and gives the fragments that are left a first decomposition.
  void analyse(fragment& p) {
    clock_.work(8 * p.graph.num_edges());
    reduced_graph r = reduce(p.graph, static_cast<std::uint32_t>(low_), &stop_);
    low_ = std::max<std::int64_t>(low_, r.lower_bound);
    if (r.eliminated.empty()) {
      begin(p);
      return;
    }
    fragment& next = p.add_below(std::exchange(r.rest, {}), r.vertices);
    p.reduction = std::move(r);
    if (next.graph.num_vertices() == 0) return;
    if (p.tree.size() != 0) {  // its elimination order, without the vertices that were eliminated
      std::vector<std::uint32_t> number(p.graph.num_vertices(), undirected_graph::none), order;
      for (std::uint32_t i = 0; i < next.vertices.size(); ++i) number[next.vertices[i]] = i;
      for (const std::uint32_t v : elimination_order_of(p.tree, number.size()))
        if (number[v] != undirected_graph::none) order.push_back(number[v]);
      next.adopt(decomposition_of(next.graph, order));
    }
    begin(next);
  }

  /// Raises the bound by a bramble, which has at most as many paths as a side has vertices.
  void raise_by_bramble(const undirected_graph& g) {
    constexpr std::size_t large = 5000;  // vertices: the paths would take longer than the stop allows
    if (g.num_vertices() <= large && !must_stop()) low_ = std::max<std::int64_t>(low_, grid_bound(g, &stop_));
  }

  /// Like `analyse`, for a fragment that is reduced already.
  void begin(fragment& p) {
    if (by_components(p)) return;
    if (p.tree.size() == 0) p.adopt(first_decomposition(p.graph));
    greedy_orders(p);
    if (must_stop()) return;
    low_ = std::max<std::int64_t>(low_, contraction_bound(p.graph, random_.next(), &stop_));
    raise_by_bramble(p.graph);
    split(p);
  }

  /// Makes a decomposition by a greedy order of least degrees. After a stop it may still take `max_polls_after_stop`
  /// polls, over all fragments; then the vertices that are left make one bag.
  tree_decomposition first_decomposition(const undirected_graph& g) {
    const std::function<bool()> stop = [&] { return must_stop() && ++polls_after_stop_ > max_polls_after_stop; };
    std::size_t eliminated = 0;
    const std::vector<std::uint32_t> order = greedy_order(
        g, {.rule = elimination_rule::min_degree, .seed = random_.next(), .stop = &stop, .eliminated = &eliminated});
    return decomposition_of(g, order, eliminated);
  }

  /// Makes a fragment below p for each of its components, unless it is connected.
  bool by_components(fragment& p) {
    std::vector<std::vector<std::uint32_t>> components = components_of(p.graph);
    if (components.size() == 1) return false;
    std::vector<std::uint32_t> number(p.graph.num_vertices(), undirected_graph::none);
    for (std::vector<std::uint32_t>& component : components) {
      std::sort(component.begin(), component.end());
      p.add_below(induced_subgraph(p.graph, component, number), component);
    }
    for (const auto& below : p.below) begin(*below);
    return true;
  }

  /// Splits a fragment at the safe separators that a minimal decomposition shows.
  void split(fragment& p) {
    const std::size_t n = p.graph.num_vertices();
    if (n > 4096 || n * static_cast<std::size_t>(p.width + 1) > 400'000 || is_proven(p)) return;
    clock_.work(n * static_cast<std::size_t>(p.width * p.width) * (n / 64 + 4) / 64);
    const tree_decomposition t = minimal_decomposition(p.graph, p.tree, &stop_);
    if (must_stop()) return;
    p.tree = {};
    p.adopt(t);
    separators s(t);
    if (!find_separators(p.graph, s)) return;
    for (std::uint32_t b = 0; b < t.size(); ++b)
      if (s.group[b] == undirected_graph::none) s.gather(b, undirected_graph::none);
    confirm_separators(p.graph, s);
    if (std::none_of(s.cut.begin(), s.cut.end(), [](auto safe) { return safe; })) return;
    split_at(p, s);
    p.improver.reset();
    for (const auto& below : p.below)
      if (!is_proven(*below) && !must_stop()) analyse(*below);
  }

  /// Tests the separator of each tree edge. Returns false if it was stopped.
  bool find_separators(const undirected_graph& g, separators& s) {
    safe_separator_test test(g, &stop_);
    for (std::uint32_t e = 0; e < s.t.edges.size(); ++e) {
      if (must_stop()) return false;
      s.shared[e] = common_vertices(s.t, s.t.edges[e].first, s.t.edges[e].second);
      s.cut[e] = test.almost_clique(s.shared[e]);
      if (s.cut[e]) continue;
      clock_.work(g.num_vertices());
      if (test.clique_minor(s.shared[e])) s.candidates.push_back(e);
    }
    return true;
  }

  /// A clique minor may use vertices beyond other safe separators: each candidate is tested again in its torso.
  void confirm_separators(const undirected_graph& g, separators& s) {
    std::vector<std::uint32_t> number(g.num_vertices(), undirected_graph::none);
    std::vector<std::unique_ptr<torso>> sides;
    for (const std::uint32_t e : s.candidates) {
      if (must_stop()) break;
      const std::uint32_t k = s.group[s.t.edges[e].first];
      sides.resize(s.groups.size());
      if (!sides[k]) sides[k] = std::make_unique<torso>(torso_of(g, s.t, s.links, s.groups[k], number));
      const std::vector<std::uint32_t>& vertices = sides[k]->vertices;
      std::vector<std::uint32_t> within;
      for (const std::uint32_t v : s.shared[e])
        within.push_back(
            static_cast<std::uint32_t>(std::lower_bound(vertices.begin(), vertices.end(), v) - vertices.begin()));
      clock_.work(vertices.size());
      safe_separator_test test(sides[k]->graph, &stop_);
      if (!test.almost_clique(within) && !test.clique_minor(within)) continue;
      s.cut[e] = 1;
      s.groups[k].clear();
      sides[k].reset();
      s.gather(s.t.edges[e].first, k);
      s.gather(s.t.edges[e].second, k);
    }
  }

  /// Makes a fragment below p for the torso of each group, and a joint for each safe separator.
  static void split_at(fragment& p, separators& s) {
    std::vector<std::uint32_t> number(p.graph.num_vertices(), undirected_graph::none), place(s.groups.size());
    for (std::uint32_t k = 0; k < s.groups.size(); ++k) {
      if (s.groups[k].empty()) continue;
      place[k] = static_cast<std::uint32_t>(p.below.size());
      torso side = torso_of(p.graph, s.t, s.links, s.groups[k], number);
      p.add_below(std::move(side.graph), std::move(side.vertices)).adopt(std::move(side.tree));
    }
    for (std::size_t e = 0; e < s.t.edges.size(); ++e)
      if (s.cut[e])
        p.joints.push_back(
            {place[s.group[s.t.edges[e].first]], place[s.group[s.t.edges[e].second]], std::move(s.shared[e])});
  }

  [[nodiscard]] fragment* widest(fragment& p) {
    if (p.below.empty()) return p.tree.size() != 0 ? &p : nullptr;
    fragment* worst = nullptr;
    for (const auto& below : p.below)
      if (fragment* other = widest(*below); other != nullptr && (worst == nullptr || other->width > worst->width))
        worst = other;
    return worst;
  }

  // ---- searching ----------------------------------------------------------------------------------------------------

  /// One round of everything on a fragment; the next one takes twice as long.
  void search(fragment& p) {
    const std::uint64_t slice = std::uint64_t{1} << std::min(22U + p.round, 34U);
    const std::uint32_t round = p.round++;
    const std::int64_t before = p.width;
    const auto done = [&] { return must_stop() || is_proven(p); };
    const std::size_t n = p.graph.num_vertices();

    report("greedy");
    const std::uint64_t begun = clock_.work_done();
    do {
      greedy_orders(p);
    } while (!done() && clock_.work_done() - begun < slice / 8);
    if (done()) return;

    if (n <= max_exact_vertices) exact(p, slice);
    if (done()) return;

    if (n >= 60) {
      report("dissection");
      std::uint64_t spent = 0;
      do {
        spent += dissect(p, round);
      } while (!done() && spent < slice / 2);
      if (done()) return;
    }

    if (n <= max_annealed_vertices) anneal(p, slice, round);
    if (done()) return;

    improve(p, slice);
    // Another triangulation may have other safe separators.
    if (p.width < before && !must_stop()) split(p);
  }

  /// A greedy order of a fragment by each rule.
  void greedy_orders(fragment& p) {
    for (const elimination_rule rule : {elimination_rule::min_fill, elimination_rule::sparsest,
                                        elimination_rule::fill_and_degree, elimination_rule::min_degree}) {
      if (must_stop() || is_proven(p)) return;
      clock_.work(greedy_cost(p.graph, static_cast<std::uint64_t>(p.width)));
      try_order(p, rule, {}, &stop_);
    }
  }
  void try_order(fragment& p, elimination_rule rule, std::span<const std::uint32_t> rank, stop_function stop) {
    const std::vector<std::uint32_t> order = greedy_order(p.graph, {.rule = rule,
                                                                    .seed = random_.next(),
                                                                    .rank = rank,
                                                                    .give_up = static_cast<std::uint32_t>(p.width),
                                                                    .stop = stop});
    if (!order.empty()) p.adopt(decomposition_of(p.graph, order));
  }

  /// Decides the least width that is neither found nor refuted, then the next one, within `slice` steps.
  void exact(fragment& p, std::uint64_t slice) {
    std::uint64_t left = slice / 8;
    while (!must_stop() && !is_proven(p) && left > 0) {
      report("exact");
      const reduced_graph r = reduce(p.graph, static_cast<std::uint32_t>(low_), &stop_);
      if (must_stop()) return;
      if (r.lower_bound > low_) {
        low_ = r.lower_bound;
        continue;
      }
      const width_decision decision =
          decide_width(r.rest, static_cast<std::uint32_t>(low_),
                       {.work = std::min(left, 1 + clock_.work_left() / 8), .stop = &stop_});
      clock_.work(8 * decision.work);
      left -= std::min(left, decision.work + 1);
      if (decision.verdict == width_verdict::found)
        p.adopt(decomposition_of(p.graph, r.lift(elimination_order_of(decision.tree, r.rest.num_vertices()))));
      if (decision.verdict != width_verdict::refuted) return;
      ++low_;
    }
  }

  /// One nested dissection, and greedy orders within it. Returns what it cost.
  std::uint64_t dissect(fragment& p, std::uint32_t round) {
    std::uint64_t spent = 0, counted = 0;
    const std::function<bool()> stop = [&] {
      clock_.work(spent - std::exchange(counted, spent));
      return must_stop();
    };
    const bool large = p.graph.num_vertices() > 3000;
    const std::vector<std::uint32_t> rank =
        dissection_ranks(p.graph, {.seed = random_.next(),
                                   .pairs = large && round == 0 ? 2 : 1 + random_.below(8),
                                   .min_share = 0.1 + 0.35 * random_.uniform(),
                                   .target = static_cast<std::uint32_t>(p.width),
                                   .stop = &stop,
                                   .work = &spent});
    if (!rank.empty())
      for (const elimination_rule rule :
           {elimination_rule::fill_and_degree, elimination_rule::min_fill, elimination_rule::sparsest}) {
        if (stop()) break;
        spent += greedy_cost(p.graph, static_cast<std::uint64_t>(p.width));
        try_order(p, rule, rank, &stop);
      }
    (void)stop();  // counts the last of the work
    return spent + 1;
  }

  /// Searches for narrower and narrower elimination orders of a fragment, for a quarter of `slice`.
  void anneal(fragment& p, std::uint64_t slice, std::uint32_t round) {
    constexpr std::uint64_t words_a_step = 4;
    std::uint64_t left = words_a_step * slice / 4;
    const std::uint64_t seed = options_.run.seed + round;
    while (left > 0 && p.width > 0 && !is_proven(p) && !must_stop()) {
      report("orders");
      order_annealing search(p.graph, static_cast<std::uint32_t>(p.width - 1), seed);
      std::uint64_t counted = 0;
      const std::function<bool()> stop = [&] {
        clock_.work((search.work() - std::exchange(counted, search.work())) / words_a_step);
        return must_stop();
      };
      const std::vector<std::uint32_t> order = search.run(left, &stop);
      (void)stop();  // counts the last of the work
      if (order.empty()) return;
      p.adopt(decomposition_of(p.graph, order));
      left -= std::min(left, search.work());
    }
  }

  /// Improves the decomposition of a fragment region by region, for `slice` steps.
  void improve(fragment& p, std::uint64_t slice) {
    report("regions");
    if (!p.improver) p.improver = std::make_unique<decomposition_improver>(p.graph, p.tree, random_.next());
    const std::uint64_t from = p.improver->work();
    std::uint64_t counted = from;
    const std::function<bool()> stop = [&] {
      clock_.work(p.improver->work() - std::exchange(counted, p.improver->work()));
      return must_stop();
    };
    while (!stop() && p.improver->work() - from < slice) {
      p.improver->step(std::min(slice / 16, clock_.work_left()), &stop);
      if (p.improver->width() >= p.width) continue;
      p.tree = p.improver->tree();
      p.width = p.improver->width();
      report("regions");
      if (is_proven(p)) break;
    }
    (void)stop();  // counts the last of the work
  }

  // ---- the answer ---------------------------------------------------------------------------------------------------

  /// The decomposition of a fragment from those of the fragments below.
  tree_decomposition assemble(fragment& p) {
    if (p.below.empty()) return std::move(p.tree);
    tree_decomposition out = p.reduction.eliminated.empty() ? join(p) : lift(p);
    // The decomposition from before the split may still be the better one.
    return p.tree.size() != 0 && p.width < out.width() ? std::move(p.tree) : out;
  }

  tree_decomposition lift(fragment& p) {
    fragment& rest = *p.below[0];
    return decomposition_of(p.graph, p.reduction.lift(elimination_order_of(assemble(rest), rest.graph.num_vertices())));
  }

  tree_decomposition join(fragment& p) {
    tree_decomposition out;
    std::vector<std::uint32_t> first;
    for (const auto& below : p.below) {
      first.push_back(static_cast<std::uint32_t>(out.size()));
      append_tree(out, assemble(*below), below->vertices);
    }
    for (const fragment::joint& j : p.joints)
      out.edges.emplace_back(find_bag(out, first[j.first], j.vertices), find_bag(out, first[j.second], j.vertices));
    connect_bags(out);
    return without_subsets(out);
  }

  const decompose_options& options_;
  run_clock clock_;
  random_source random_;
  std::function<bool()> stop_;
  fragment root_;
  std::int64_t low_ = 0;                                     // the proven lower bound
  static constexpr std::uint32_t max_polls_after_stop = 20;  // some milliseconds
  std::uint32_t polls_after_stop_ = 0;
};

inline constexpr std::string_view search_kind = "tree decomposition";

/// How many processes may search at the same time.
[[nodiscard]] inline std::size_t members_of(const run_control& run) {
  return run.crew != nullptr ? run.crew->members() : 1;
}

/// Runs one search on each thread, or on each member of the crew, with different seeds. Returns the best decomposition
/// and the best bound.
inline decomposition_result solve_together(const undirected_graph& g, const decompose_options& options) {
  std::stop_source source;
  const std::stop_callback forward(options.run.stop, [&source] { source.request_stop(); });
  const std::size_t count = std::max<std::size_t>(std::min(options.run.thread_count(), 256U), members_of(options.run));
  std::vector<decomposition_result> results(count);
  const run_clock clock(options.run);
  const auto is_enough = [&](const decomposition_result& r) { return r.proven || r.width <= options.target_width; };
  piece_list pieces;
  pieces.count = count;
  pieces.limits = [&](std::size_t i, std::size_t) {
    run_control own = options.run;
    own.stop = source.get_token();
    own.time_limit = clock.left();
    own.seed += 0x9e3779b97f4a7c15ULL * i;
    return own;
  };
  pieces.run = [&](std::size_t i, const run_control& limits) {
    decompose_options own = options;
    own.run = limits;
    results[i] = solver(g, own).run();
    if (is_enough(results[i])) source.request_stop();
  };
  const auto share = [&](byte_writer& out) {
    std::vector<undirected_graph::edge> edges;
    for (std::uint32_t v = 0; v < g.num_vertices(); ++v)
      for (const std::uint32_t w : g.neighbours(v))
        if (v < w) edges.emplace_back(v, w);
    out(std::uint64_t{g.num_vertices()}, edges);
  };
  const std::pair effort(options.rounds, options.target_width);
  let_others_run<decomposition_result>(
      pieces, search_kind, share, [&](std::size_t) { return effort; },
      [&](std::size_t i, decomposition_result found) {
        if (const decomposition_report r = check_decomposition(g, found.tree); !r.valid())
          throw internal_error("another process returned an invalid tree decomposition: " + r.violations.front());
        if (is_enough(found)) source.request_stop();
        results[i] = std::move(found);
      });
  run_control control = options.run;
  control.stop = source.get_token();
  run_pieces(pieces, control);
  decomposition_result out =
      *std::min_element(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.width < b.width; });
  out.statistics.work = out.statistics.rounds = 0;
  for (const decomposition_result& r : results) {
    out.lower_bound = std::max(out.lower_bound, r.lower_bound);
    out.statistics.work += r.statistics.work;
    out.statistics.rounds += r.statistics.rounds;
  }
  out.proven = out.width <= out.lower_bound;
  out.stopped = options.run.stop.stop_requested() ? stop_reason::cancelled : stop_reason::deadline;
  if (is_enough(out)) out.stopped = stop_reason::none;
  return out;
}

}  // namespace detail::decomposing

REMAT_INLINE piece_kind decompose_pieces() {
  namespace own = detail::decomposing;
  using effort = std::pair<std::uint32_t, std::int64_t>;  // rounds and the target width
  return detail::portable_kind<effort>(own::search_kind, [](detail::byte_reader& in) {
    const auto vertices = static_cast<std::size_t>(in.get<std::uint64_t>());
    const undirected_graph g(vertices, in.get<std::vector<undirected_graph::edge>>());
    return [g](const effort& own_effort, const run_control& run) {
      decompose_options options;
      options.run = run;
      std::tie(options.rounds, options.target_width) = own_effort;
      return own::solver(g, options).run();
    };
  });
}

REMAT_INLINE decomposition_result decompose(const undirected_graph& g, const decompose_options& options) {
  if ((detail::decomposing::members_of(options.run) > 1 || options.run.thread_count() > 1) &&
      !options.run.has_work_limit() && options.run.has_time_limit())
    return detail::decomposing::solve_together(g, options);
  return detail::decomposing::solver(g, options).run();
}

}  // namespace REMAT_NAMESPACE
