// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/random.hpp"
#include "remat/treewidth/check.hpp"
#include "remat/treewidth/dissection.hpp"
#include "remat/treewidth/elimination_order.hpp"
#include "remat/treewidth/improve.hpp"
#include "remat/treewidth/positive_instance.hpp"
#include "remat/treewidth/reduce.hpp"
#include "remat/treewidth/safe_separators.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"
#include "remat/treewidth/width_bound.hpp"

namespace remat {

struct decompose_options {
  /// With neither time nor work limit the search ends when the width is proven, or after `rounds`.
  run_control run{};
  std::uint32_t rounds = 5;      ///< of search on a part, where there is no limit; each takes twice as long
  std::int64_t good_enough = 0;  ///< ends at a width of at most this
};

/// What a search has done.
struct decomposition_statistics {
  std::size_t reduced_vertices = 0;  ///< eliminated by safe reductions
  std::size_t parts = 0;             ///< that safe separators leave
  std::size_t largest_part = 0;      ///< vertices
  std::uint64_t rounds = 0;
  std::uint64_t work = 0;  ///< elementary steps
  double seconds = 0;
};

/// A tree decomposition, and how good it is.
struct decomposition_result {
  tree_decomposition tree{};
  std::int64_t width = -1;        ///< of `tree`
  std::int64_t lower_bound = -1;  ///< proven: the treewidth is not less
  bool proven = false;            ///< `width` is the treewidth
  stop_reason stopped = stop_reason::none;
  decomposition_statistics statistics{};
};

namespace detail::decomposing {

/// A graph that has been reduced to one, or split into several, or neither; and then its best decomposition so far.
struct piece {
  undirected_graph graph{};
  std::vector<std::uint32_t> vertices{};  ///< of the piece above
  std::vector<std::unique_ptr<piece>> below{};
  bool reduced = false;  ///< `below` is one piece: what `reduction` left
  reduced_graph reduction{};
  struct joint {
    std::uint32_t first, second;          ///< two pieces below …
    std::vector<std::uint32_t> vertices;  ///< … that share these, which are a clique in both
  };
  std::vector<joint> joints{};
  tree_decomposition tree{};  ///< the best one known, from before it was taken apart if it was
  std::int64_t width = -1;
  std::uint32_t round = 0;
  std::unique_ptr<decomposition_improver> improver{};
};

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
        analyse(root_);
      }
      while (!must_stop()) {
        piece* worst = widest(root_);
        if (worst == nullptr || worst->width <= static_cast<std::int64_t>(low_) || worst->width <= options_.good_enough)
          break;
        if (worst->round >= options_.rounds && !limited()) break;
        search(*worst);
        ++out.statistics.rounds;
      }
      if (const piece* worst = widest(root_); worst != nullptr && worst->width > static_cast<std::int64_t>(low_))
        out.stopped = clock_.poll();
      out.tree = assemble(root_);
      out.lower_bound = low_;
    }
    out.width = out.tree.width();
    out.proven = out.width <= out.lower_bound;
    if (const decomposition_report report = check_decomposition(g, out.tree); !report.valid())
      throw internal_error("a tree decomposition was found that is none: " + report.violations[0]);
    count(root_, out.statistics);
    out.statistics.work = clock_.work_done();
    out.statistics.seconds = clock_.seconds();
    return out;
  }

 private:
  [[nodiscard]] bool limited() const {
    return options_.run.time_limit != std::chrono::nanoseconds::max() ||
           options_.run.work_limit != run_control::no_work_limit;
  }
  bool must_stop() { return clock_.should_stop(); }

  void report(std::string_view stage) {
    progress p;
    p.solver = "decompose";
    p.stage = stage;
    if (const piece* worst = widest(root_))
      p.best_objective = static_cast<double>(std::max<std::int64_t>(worst->width, low_));
    p.lower_bound = low_;
    clock_.report(p);
  }

  /// Reduces a piece, takes it apart, and gives what is left a first decomposition.
  void analyse(piece& p) {
    clock_.work(8 * p.graph.num_edges());
    reduced_graph r = reduce(p.graph, low_, &stop_);
    low_ = std::max(low_, r.lower_bound);
    if (!r.eliminated.empty()) {
      p.reduced = true;
      auto rest = std::make_unique<piece>();
      rest->graph = std::move(r.rest);
      rest->vertices = r.vertices;
      r.rest = {};
      p.reduction = std::move(r);
      p.below.push_back(std::move(rest));
      piece& next = *p.below[0];
      if (next.graph.num_vertices() == 0) return;
      if (p.tree.size() != 0) {  // the same order, without those that went first
        std::vector<std::uint32_t> number(p.graph.num_vertices(), detail::eliminating::none), order;
        for (std::uint32_t i = 0; i < next.vertices.size(); ++i) number[next.vertices[i]] = i;
        for (const std::uint32_t v : elimination_order_of(p.tree, number.size()))
          if (number[v] != detail::eliminating::none) order.push_back(number[v]);
        adopt(next, decomposition_of(next.graph, order));
      }
      begin(next);
      return;
    }
    begin(p);
  }

  /// A piece that is reduced already.
  void begin(piece& p) {
    if (by_components(p)) return;
    if (p.tree.size() == 0) {
      adopt(p, first_decomposition(p.graph));
    } else {
      p.width = p.tree.width();
    }
    greedy_orders(p, 1);
    if (must_stop()) return;
    low_ = std::max(low_, contraction_bound(p.graph, random_.next(), &stop_));
    split(p);
  }

  /// By a greedy order of least degrees. After a stop it may still take `polls_after_stop` polls, over all pieces; then
  /// the vertices that are left make one bag.
  tree_decomposition first_decomposition(const undirected_graph& g) {
    const std::function<bool()> stop = [&] { return must_stop() && ++polls_after_stop_ > most_polls_after_stop; };
    detail::eliminating::greedy_options greedy;
    greedy.rule = elimination_rule::min_degree;
    greedy.seed = random_.next();
    greedy.stop = &stop;
    std::size_t eliminated = 0;
    greedy.eliminated = &eliminated;
    const std::vector<std::uint32_t> order = detail::eliminating::greedy_order(g, greedy);
    return decomposition_of(g, order, eliminated);
  }

  bool by_components(piece& p) {
    const auto n = static_cast<std::uint32_t>(p.graph.num_vertices());
    std::vector<std::uint32_t> number(n, detail::eliminating::none);
    std::vector<std::vector<std::uint32_t>> parts;
    for (std::uint32_t root = 0; root < n; ++root) {
      if (number[root] != detail::eliminating::none) continue;
      parts.push_back({root});
      std::vector<std::uint32_t>& part = parts.back();
      number[root] = 0;
      for (std::size_t i = 0; i < part.size(); ++i)
        for (const std::uint32_t u : p.graph.neighbours(part[i]))
          if (number[u] == detail::eliminating::none) {
            number[u] = 0;
            part.push_back(u);
          }
      if (parts.size() == 1 && part.size() == n) return false;
      std::sort(part.begin(), part.end());
    }
    std::fill(number.begin(), number.end(), detail::eliminating::none);
    for (std::vector<std::uint32_t>& part : parts) {
      auto below = std::make_unique<piece>();
      below->graph = detail::dissecting::induced(p.graph, part, number);
      below->vertices = std::move(part);
      p.below.push_back(std::move(below));
    }
    for (const auto& below : p.below) begin(*below);
    return true;
  }

  void adopt(piece& p, tree_decomposition t) {
    const std::int64_t width = t.width();
    if (p.tree.size() != 0 && width >= p.width) return;
    p.tree = std::move(t);
    p.width = width;
    if (p.improver) p.improver->reset(p.tree);
  }

  /// Greedy orders of every rule, `times` times.
  void greedy_orders(piece& p, int times) {
    for (int i = 0; i < times; ++i)
      for (const elimination_rule rule : {elimination_rule::min_fill, elimination_rule::sparsest,
                                          elimination_rule::fill_and_degree, elimination_rule::min_degree}) {
        if (must_stop() || p.width <= static_cast<std::int64_t>(low_)) return;
        detail::eliminating::greedy_options greedy;
        greedy.rule = rule;
        greedy.seed = random_.next();
        greedy.give_up = static_cast<std::uint32_t>(p.width);
        greedy.stop = &stop_;
        clock_.work(decomposition_improver::cost_of_greedy(p.graph, static_cast<std::uint64_t>(p.width)));
        const auto order = detail::eliminating::greedy_order(p.graph, greedy);
        if (!order.empty()) adopt(p, decomposition_of(p.graph, order));
      }
  }

  /// Takes a piece apart at the safe separators that a minimal decomposition shows.
  void split(piece& p) {
    const std::size_t n = p.graph.num_vertices();
    if (n > 4096 || n * static_cast<std::size_t>(p.width + 1) > 400'000 || p.width <= static_cast<std::int64_t>(low_))
      return;
    clock_.work(n * static_cast<std::size_t>(p.width * p.width) * (n / 64 + 4) / 64);
    tree_decomposition t = minimal_decomposition(p.graph, p.tree, &stop_);
    if (must_stop()) return;
    p.tree = {};
    adopt(p, t);
    std::vector<std::uint8_t> cut(t.edges.size(), 0);
    std::vector<std::vector<std::uint32_t>> shared(t.edges.size());
    std::vector<std::uint32_t> perhaps;
    bool any = false;
    {
      safe_separator_test test(p.graph, &stop_);
      for (std::uint32_t e = 0; e < t.edges.size(); ++e) {
        if (must_stop()) return;
        const auto a = t.bags[t.edges[e].first], b = t.bags[t.edges[e].second];
        std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(shared[e]));
        cut[e] = test.almost_clique(shared[e]);
        any = any || cut[e];
        if (cut[e]) continue;
        clock_.work(n);
        if (test.clique_minor(shared[e])) perhaps.push_back(e);
      }
    }
    if (!any && perhaps.empty()) return;

    // The trees that are left of the decomposition.
    std::vector<std::uint32_t> group(t.size(), detail::eliminating::none), number(n, detail::eliminating::none);
    const index_rows links = t.links();
    std::vector<std::vector<std::uint32_t>> parts, joined(t.size());
    for (std::uint32_t e = 0; e < t.edges.size(); ++e) {
      joined[t.edges[e].first].push_back(e);
      joined[t.edges[e].second].push_back(e);
    }
    const auto gather = [&](std::uint32_t b, std::uint32_t from) {
      const auto k = static_cast<std::uint32_t>(parts.size());
      parts.push_back({b});
      group[b] = k;
      for (std::size_t i = 0; i < parts[k].size(); ++i)
        for (const std::uint32_t e : joined[parts[k][i]]) {
          const std::uint32_t c = t.edges[e].first == parts[k][i] ? t.edges[e].second : t.edges[e].first;
          if (cut[e] || group[c] != from) continue;
          group[c] = k;
          parts[k].push_back(c);
        }
    };
    for (std::uint32_t b = 0; b < t.size(); ++b)
      if (group[b] == detail::eliminating::none) gather(b, detail::eliminating::none);
    // What is safe for a reason that lies in the rest of the graph must be so still in its part.
    std::vector<std::unique_ptr<torso>> sides;
    for (const std::uint32_t e : perhaps) {
      if (must_stop()) break;
      const std::uint32_t k = group[t.edges[e].first];
      sides.resize(parts.size());
      if (!sides[k]) sides[k] = std::make_unique<torso>(torso_of(p.graph, t, links, parts[k], number));
      std::vector<std::uint32_t> within;
      for (const std::uint32_t v : shared[e])
        within.push_back(static_cast<std::uint32_t>(
            std::lower_bound(sides[k]->vertices.begin(), sides[k]->vertices.end(), v) - sides[k]->vertices.begin()));
      clock_.work(sides[k]->vertices.size());
      safe_separator_test test(sides[k]->graph, &stop_);
      if (!test.almost_clique(within) && !test.clique_minor(within)) continue;
      cut[e] = 1;
      parts[k].clear();
      sides[k].reset();
      gather(t.edges[e].first, k);
      gather(t.edges[e].second, k);
    }
    std::vector<std::uint32_t> place(parts.size(), detail::eliminating::none);
    for (std::uint32_t k = 0; k < parts.size(); ++k) {
      if (parts[k].empty()) continue;
      place[k] = static_cast<std::uint32_t>(p.below.size());
      torso side = torso_of(p.graph, t, links, parts[k], number);
      auto below = std::make_unique<piece>();
      below->graph = std::move(side.graph);
      below->vertices = std::move(side.vertices);
      below->tree = std::move(side.tree);
      below->width = below->tree.width();
      p.below.push_back(std::move(below));
    }
    if (p.below.size() == 1) {
      p.below.clear();
      return;
    }
    for (std::size_t e = 0; e < t.edges.size(); ++e)
      if (cut[e])
        p.joints.push_back({place[group[t.edges[e].first]], place[group[t.edges[e].second]], std::move(shared[e])});
    p.improver.reset();
    for (const auto& below : p.below) {
      if (below->width <= static_cast<std::int64_t>(low_) || must_stop()) continue;
      analyse(*below);
    }
  }

  [[nodiscard]] piece* widest(piece& p) {
    if (p.below.empty()) return p.tree.size() != 0 ? &p : nullptr;
    piece* worst = nullptr;
    for (const auto& below : p.below)
      if (piece* other = widest(*below); other != nullptr && (worst == nullptr || other->width > worst->width))
        worst = other;
    return worst;
  }

  /// One round of everything on a piece; the next one takes twice as long.
  void search(piece& p) {
    const std::uint64_t slice = std::uint64_t{1} << std::min(22U + p.round, 34U);
    const std::uint32_t round = p.round++;
    const std::int64_t before = p.width;
    const auto done = [&] { return must_stop() || p.width <= static_cast<std::int64_t>(low_); };
    const std::size_t n = p.graph.num_vertices();

    report("greedy");
    const std::uint64_t begun = clock_.work_done();
    do {
      greedy_orders(p, 1);
    } while (!done() && clock_.work_done() - begun < slice / 8);
    if (done()) return;

    if (n <= most_for_exact_width) exact(p, slice);
    if (done()) return;

    if (n >= 60) {
      report("dissection");
      std::uint64_t spent = 0;
      do {
        spent += dissect(p, round);
      } while (!done() && spent < slice / 2);
      if (done()) return;
    }

    report("parts");
    if (!p.improver) p.improver = std::make_unique<decomposition_improver>(p.graph, p.tree, random_.next());
    const std::uint64_t from = p.improver->work();
    std::uint64_t counted = from;
    const std::function<bool()> stop = [&] {
      clock_.work(p.improver->work() - std::exchange(counted, p.improver->work()));
      return must_stop();
    };
    while (!stop() && p.improver->work() - from < slice) {
      p.improver->step(std::min(slice / 16, clock_.work_left()), &stop);
      if (p.improver->width() < p.width) {
        p.tree = p.improver->tree();
        p.width = p.improver->width();
        report("parts");
        if (p.width <= static_cast<std::int64_t>(low_)) break;
      }
    }
    (void)stop();  // counts the last of the work
    // Another triangulation may have other safe separators.
    if (p.width < before && !must_stop()) split(p);
  }

  /// Decides the least width that is open, then the next, within `slice` steps.
  void exact(piece& p, std::uint64_t slice) {
    std::uint64_t left = slice / 8;
    while (!must_stop() && p.width > static_cast<std::int64_t>(low_) && left > 0) {
      report("exact");
      const reduced_graph r = reduce(p.graph, low_, &stop_);
      if (must_stop()) return;
      if (r.lower_bound > low_) {
        low_ = r.lower_bound;
        continue;
      }
      width_search_limits limits;
      std::uint64_t spent = 0;
      limits.work = std::min(left, 1 + clock_.work_left() / 8);
      limits.stop = &stop_;
      limits.spent = &spent;
      const width_decision decision = decide_width(r.rest, low_, limits);
      clock_.work(8 * spent);
      left -= std::min(left, spent + 1);
      if (decision.verdict == width_verdict::refuted) {
        ++low_;
      } else if (decision.verdict == width_verdict::found) {
        adopt(p, decomposition_of(p.graph, r.lift(elimination_order_of(decision.tree, r.rest.num_vertices()))));
        return;
      } else {
        return;
      }
    }
  }

  /// One nested dissection, and greedy orders within it. Returns what it cost.
  std::uint64_t dissect(piece& p, std::uint32_t round) {
    std::uint64_t spent = 0, counted = 0;
    const std::function<bool()> stop = [&] {
      clock_.work(spent - std::exchange(counted, spent));
      return must_stop();
    };
    dissection_options dissection;
    const bool large = p.graph.num_vertices() > 3000;
    dissection.seed = random_.next();
    dissection.pairs = large && round == 0 ? 2 : 1 + random_.below(8);
    dissection.least_share = 0.1 + 0.35 * random_.uniform();
    dissection.target = static_cast<std::uint32_t>(p.width);
    dissection.stop = &stop;
    dissection.work = &spent;
    const std::vector<std::uint32_t> rank = dissection_ranks(p.graph, dissection);
    if (!rank.empty())
      for (const elimination_rule rule :
           {elimination_rule::fill_and_degree, elimination_rule::min_fill, elimination_rule::sparsest}) {
        if (stop()) break;
        detail::eliminating::greedy_options greedy;
        greedy.rule = rule;
        greedy.seed = random_.next();
        greedy.rank = rank;
        greedy.give_up = static_cast<std::uint32_t>(p.width);
        greedy.stop = &stop;
        spent += decomposition_improver::cost_of_greedy(p.graph, static_cast<std::uint64_t>(p.width));
        const auto order = detail::eliminating::greedy_order(p.graph, greedy);
        if (!order.empty()) adopt(p, decomposition_of(p.graph, order));
      }
    (void)stop();  // counts the last of the work
    return spent + 1;
  }

  /// The decomposition of a piece from those of what lies below.
  tree_decomposition assemble(piece& p) {
    if (p.below.empty()) return std::move(p.tree);
    tree_decomposition out = join(p);
    // What was known before the piece was taken apart may still be better.
    return p.tree.size() != 0 && p.width < out.width() ? std::move(p.tree) : out;
  }

  tree_decomposition join(piece& p) {
    if (p.reduced) {
      const tree_decomposition below =
          p.below[0]->graph.num_vertices() == 0 ? tree_decomposition{} : assemble(*p.below[0]);
      return decomposition_of(p.graph, p.reduction.lift(elimination_order_of(below, p.below[0]->graph.num_vertices())));
    }
    tree_decomposition out;
    std::vector<std::uint32_t> first;
    for (const auto& below : p.below) {
      const tree_decomposition t = assemble(*below);
      first.push_back(static_cast<std::uint32_t>(out.bags.size()));
      for (std::size_t b = 0; b < t.size(); ++b) {
        for (const std::uint32_t v : t.bags[b]) out.bags.values.push_back(below->vertices[v]);
        out.bags.end_row();
      }
      for (const auto& [a, b] : t.edges) out.edges.emplace_back(first.back() + a, first.back() + b);
    }
    first.push_back(static_cast<std::uint32_t>(out.bags.size()));
    const auto holder = [&](std::uint32_t k, const std::vector<std::uint32_t>& shared) {
      for (std::uint32_t b = first[k]; b < first[k + 1]; ++b)
        if (std::includes(out.bags[b].begin(), out.bags[b].end(), shared.begin(), shared.end())) return b;
      throw internal_error("a safe separator is in no bag of a part");
    };
    for (const piece::joint& j : p.joints)
      out.edges.emplace_back(holder(j.first, j.vertices), holder(j.second, j.vertices));
    detail::tree_decomposing::join_trees(out);
    return without_subsets(out);
  }

  void count(const piece& p, decomposition_statistics& s) const {
    if (p.reduced) s.reduced_vertices += p.reduction.eliminated.size();
    if (p.below.empty()) {
      ++s.parts;
      s.largest_part = std::max(s.largest_part, p.graph.num_vertices());
    }
    for (const auto& below : p.below) count(*below, s);
  }

  const decompose_options& options_;
  run_clock clock_;
  random_source random_;
  std::function<bool()> stop_;
  piece root_;
  std::uint32_t low_ = 0;
  static constexpr std::uint32_t most_polls_after_stop = 20;  // some milliseconds
  std::uint32_t polls_after_stop_ = 0;
};

/// Searches with other seeds beside the caller's; the best answer, and the best bound.
inline decomposition_result solve_together(const undirected_graph& g, const decompose_options& options) {
  std::stop_source source;
  const std::stop_callback forward(options.run.stop, [&source] { source.request_stop(); });
  const unsigned count = std::min(options.run.threads, 256U);
  std::vector<decomposition_result> results(count);
  std::vector<std::exception_ptr> errors(count);
  const auto work = [&](unsigned i) {
    try {
      decompose_options own = options;
      own.run.stop = source.get_token();
      own.run.seed += 0x9e3779b97f4a7c15ULL * i;
      if (i > 0) own.run.on_progress = nullptr;
      results[i] = solver(g, own).run();
      if (results[i].proven || results[i].width <= options.good_enough) source.request_stop();
    } catch (...) {
      errors[i] = std::current_exception();
      source.request_stop();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < count; ++i) threads.emplace_back(work, i);
    work(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  std::size_t best = 0;
  std::int64_t bound = -1;
  std::uint64_t steps = 0, rounds = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (results[i].width < results[best].width) best = i;
    bound = std::max(bound, results[i].lower_bound);
    steps += results[i].statistics.work;
    rounds += results[i].statistics.rounds;
  }
  decomposition_result out = std::move(results[best]);
  out.lower_bound = bound;
  out.proven = out.width <= bound;
  out.statistics.work = steps;
  out.statistics.rounds = rounds;
  if (out.proven || out.width <= options.good_enough)
    out.stopped = stop_reason::none;
  else
    out.stopped = options.run.stop.stop_requested() ? stop_reason::cancelled : stop_reason::deadline;
  return out;
}

}  // namespace detail::decomposing

/// A tree decomposition of small width, better the longer it may take, and a proven lower bound.
///
/// 1. Safe reductions (`reduce`), connected components, and safe separators (`safe_separator_test`) of a minimal
///    triangulation take the graph apart; each part is treated likewise. The treewidth is the largest of the parts'.
/// 2. Rounds, always on the widest part, each as long as the last two: greedy orders with random ties, the exact search
///    (`decide_width`) from the lower bound upwards on parts of up to 1024 vertices, nested dissection by flows
///    (`dissection_ranks`), and improvement piece by piece (`decomposition_improver`).
/// 3. It ends when the widest part's width is proven, or at a limit. The parts' decompositions are joined, and the
/// whole
///    is checked (`check_decomposition`).
///
/// Anytime: `run.time_limit`, `run.stop` and `run.work_limit` end it with the best so far; the first greedy order of
/// each part is made in any case, and clocks are read every few milliseconds otherwise. Without a limit it ends after
/// `rounds`. `run.on_progress` gets the width as `best_objective`. With a work limit, or none, `run.seed` alone decides
/// the answer. With a time limit alone, `run.threads` searches go on side by side from different seeds, until one has a
/// proof; otherwise there is one. Throws `internal_error` for a defect of its own, and what `on_progress` throws.
///
///     decompose_options options;
///     options.run.time_limit = std::chrono::seconds(10);
///     const decomposition_result r = decompose(operation_graph(problem), options);
///     // r.tree.bags[b], r.tree.links()[b], r.width, r.lower_bound, r.proven
[[nodiscard]] inline decomposition_result decompose(const undirected_graph& g, const decompose_options& options = {}) {
  if (options.run.threads > 1 && options.run.work_limit == run_control::no_work_limit &&
      options.run.time_limit != std::chrono::nanoseconds::max())
    return detail::decomposing::solve_together(g, options);
  return detail::decomposing::solver(g, options).run();
}

}  // namespace remat
