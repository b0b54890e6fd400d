// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/twremat.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/bit_words.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/twremat/impl/separator_recursion.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/retention.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/detail/dissection.hpp"
#include "remat/treewidth/detail/elimination_order.hpp"
#include "remat/treewidth/detail/separator_tree.hpp"

namespace REMAT_NAMESPACE {

namespace detail::twremat_solve {

// ---- tree decompositions -------------------------------------------------------------------------------------------

/// Where a tree decomposition comes from.
enum class tree_kind : std::uint8_t {
  min_fill,
  min_degree,
  maximum_cardinality,
  decompose,
  fill_and_degree,
  sparsest,
  dissection,
  given
};
inline constexpr std::uint32_t tree_kinds = 7;  ///< those that are made
inline constexpr std::string_view tree_names[] = {"min_fill",        "min_degree", "maximum_cardinality", "decompose",
                                                  "fill_and_degree", "sparsest",   "dissection",          "given"};
/// The weights that the separators of a tree balance.
inline constexpr std::uint32_t balances = 3;
inline constexpr std::string_view balance_names[] = {"bytes_and_time", "bytes", "operations"};

/// Elementary steps of one search by `decompose`, a few hundredths of a second.
inline constexpr std::uint64_t decompose_work = 500'000;

/// A decomposition by a greedy order. A stop leaves the rest of the vertices in one bag.
inline tree_decomposition greedy_tree(const undirected_graph& g, elimination_rule rule, std::uint64_t seed,
                                      std::span<const std::uint32_t> ranks, const std::function<bool()>& stop) {
  std::size_t eliminated = 0;
  detail::greedy_options greedy;
  greedy.rule = rule;
  greedy.seed = seed;
  greedy.rank = ranks;
  greedy.stop = &stop;
  greedy.eliminated = &eliminated;
  const std::vector<std::uint32_t> order = detail::greedy_order(g, greedy);
  return decomposition_of(g, order, eliminated);
}

inline tree_decomposition make_tree(const undirected_graph& g, tree_kind kind, std::uint64_t seed,
                                    const run_clock& clock) {
  const std::function<bool()> stop = [&] { return clock.should_stop(); };
  const auto greedy = [&](elimination_rule rule) { return greedy_tree(g, rule, seed, {}, stop); };
  switch (kind) {
    case tree_kind::min_degree:
      return greedy(elimination_rule::min_degree);
    case tree_kind::fill_and_degree:
      return greedy(elimination_rule::fill_and_degree);
    case tree_kind::sparsest:
      return greedy(elimination_rule::sparsest);
    case tree_kind::maximum_cardinality:
      return decomposition_of(g, maximum_cardinality_order(g));
    case tree_kind::decompose: {
      decompose_options options;
      options.run.stop = clock.control().stop;
      options.run.time_limit = clock.left();
      options.run.work_limit = decompose_work;
      options.run.seed = seed;
      return decompose(g, options).tree;
    }
    case tree_kind::dissection: {
      dissection_options options;
      options.seed = seed;
      options.stop = &stop;
      return greedy_tree(g, elimination_rule::min_fill, seed, dissection_ranks(g, options), stop);
    }
    default:
      return greedy(elimination_rule::min_fill);
  }
}

/// Operation → its weight. Parts of equal weight are balanced.
inline std::vector<double> weights(const flat_graph& graph, std::uint32_t balance) {
  if (balance == 2) return std::vector<double>(graph.num_operations, 1.0);
  double bytes = 1;
  for (const std::int64_t b : graph.bytes) bytes += static_cast<double>(b);
  const double time = graph.baseline_time > 0 ? graph.baseline_time : 1;
  std::vector<double> weight(graph.num_operations);
  for (std::uint32_t o = 0; o < graph.num_operations; ++o) {
    weight[o] = (balance == 0 ? graph.time[o] / time : 0) + 1e-3 / graph.num_operations;
    for (const std::uint32_t t : graph.outputs[o]) weight[o] += static_cast<double>(graph.bytes[t]) / bytes;
  }
  return weight;
}

// ---- retention -----------------------------------------------------------------------------------------------------

/// Compute → the time that its removal saves: its own, and that of the computes before it that only it reads.
inline std::vector<double> times_saved(const flat_graph& g, const retention& line) {
  constexpr std::uint32_t none = retention::none;
  const auto length = static_cast<std::uint32_t>(line.size());
  std::vector<std::uint32_t> writer(g.num_tensors, none), readers(length, 0), reader(length, none);
  for (std::uint32_t x = 0; x < length; ++x) {
    for (const std::uint32_t t : g.inputs[line.operation(x)]) {
      if (g.always_resident[t] || writer[t] == none || reader[writer[t]] == x) continue;
      reader[writer[t]] = x;
      ++readers[writer[t]];
    }
    for (const std::uint32_t t : g.outputs[line.operation(x)]) writer[t] = x;
  }
  for (const std::uint32_t t : g.final_outputs)
    if (writer[t] != none) readers[writer[t]] += 2;  // it stays
  std::vector<double> saved(length, 0);
  for (std::uint32_t x = 0; x < length; ++x) {
    saved[x] += g.time[line.operation(x)];
    if (readers[x] == 1 && line.removable(x)) saved[reader[x]] += saved[x];
  }
  return saved;
}

/// Removes recomputations whose outputs fit into free memory, until none fits or after `rounds` rounds. The one that
/// saves most time per (byte · step)^`exponent` goes first. Counts a unit of work for each that is tried.
inline schedule retain_by(const problem& p, schedule plan, double exponent, std::uint32_t rounds, run_clock& clock) {
  for (std::uint32_t round = 0; round < rounds && !clock.should_stop(); ++round) {
    retention line(p, plan);
    const std::vector<double> saved = times_saved(p.graph(), line);
    const auto rank = [&](std::uint32_t x) { return -saved[x] / std::pow(1 + line.area(x), exponent); };
    std::optional<schedule> filled = retaining::fill_free_memory(p, line, clock, rank);
    if (!filled) break;
    plan = std::move(*filled);
  }
  return plan;
}

/// Exponents of `retain_by`, tuned on the bundled graphs: the first for each schedule, the others for the best schedule
/// of each separator tree.
inline constexpr double exponents[] = {0.25, 0.5, 0.0, 1.0};

// ---- the search over trees and budgets -----------------------------------------------------------------------------

/// Shares of the budget for the recursions of one separator tree; two sets, by turns.
inline constexpr double shares[2][4] = {{1.0, 0.7, 0.4, 0.0}, {0.85, 0.55, 0.25, 0.1}};
inline constexpr std::uint32_t max_attempts = 100;                     ///< separator trees by default
inline constexpr std::uint64_t max_work = 1'000'000;                   ///< work by default, after one tree of each kind
inline constexpr std::uint32_t max_attempts_in_need = 3 * tree_kinds;  ///< separator trees while there is no schedule
inline constexpr std::uint32_t max_runs = 24;  ///< most runs of one recursion, with fewer tensors held each time
/// A recursion is given up at this multiple of the needed time; `_in_need`: while there is no schedule.
inline constexpr double longest = 8;
inline constexpr double longest_in_need = 64;

/// One solve: separator trees, recursions, retention. Keeps references to its arguments.
class tree_search {
 public:
  tree_search(const problem& p, const twremat_options& options, run_clock& clock, solution& best)
      : problem_(p), options_(options), clock_(clock), best_(best), graph_(operation_graph(p.graph())) {
    if (!options.tree) return;
    if (const decomposition_report report = check_decomposition(graph_, *options.tree); !report.valid())
      throw bad_argument("twremat: options.tree is no tree decomposition of the operation graph: " +
                         report.violations[0]);
  }

  void run() {
    if (options_.by_width) choose_by_width();
    for (std::uint32_t i = 0; !is_over(i); ++i) {
      attempt(i);
      clock_.report({.stage = "separators", .done = i + 1, .total = options_.attempts.value_or(0)});
    }
    record();
  }

  /// The start for `improve` if no schedule is within the budget: the schedule of least peak over it, with idle tensors
  /// dropped until it fits. Nothing if there is no such schedule, or if it does not fit after `max_repairs` drops.
  std::vector<schedule> repaired() {
    constexpr std::size_t max_repairs = 400;
    if (best_.plan || !nearest_) return {};
    timeline line(problem_);
    line.load(*nearest_);
    refine_moves moves(line, options_.run.seed);
    moves.max_repairs = max_repairs;
    moves.must_stop = [this] { return clock_.should_stop(); };
    if (!moves.repair(check(problem_, *nearest_).time + problem_.graph().needed_time)) return {};
    best_.statistics.own.set("repaired", true);
    return {schedule_computes(problem_, line.computes())};
  }

 private:
  /// The origin of a schedule.
  struct origin {
    tree_kind kind = tree_kind::given;
    std::uint64_t seed = 0;
    std::uint32_t balance = 0, separator_depth = 0, recursion_depth = 0;
    std::int64_t width = -1;
    double share = 0, time_before = 0;
    std::size_t held_less = 0;
  };
  /// The results of one attempt.
  struct trial {
    origin from{};
    std::size_t recursions = 0, schedules = 0;
    double time = std::numeric_limits<double>::infinity();
  };

  /// True if the search ends before attempt `i`.
  [[nodiscard]] bool is_over(std::uint32_t i) const {
    if (clock_.should_stop()) return true;
    if ((options_.tree || options_.by_width) && i >= balances) return true;
    if (!best_.plan) return i >= std::max(options_.attempts.value_or(0), max_attempts_in_need);
    if (is_optimal(best_.time, best_.lower_bound)) return true;
    if (options_.attempts) return i >= *options_.attempts;
    return i >= max_attempts || (i >= tree_kinds && clock_.work_done() >= max_work);
  }

  /// The tree that attempt `i` makes, if it is not given one.
  [[nodiscard]] origin origin_of(std::uint32_t i) const {
    return {.kind = static_cast<tree_kind>(i % tree_kinds),
            .seed = options_.run.seed + i / tree_kinds,
            .balance = i / tree_kinds % balances};
  }

  /// Chooses the narrowest of the trees that the attempts would make.
  void choose_by_width() {
    for (std::uint32_t i = 0;
         i < std::max(options_.attempts.value_or(0), tree_kinds) && !options_.tree && !clock_.should_stop(); ++i) {
      const origin from = origin_of(i);
      tree_decomposition tree = make_tree(graph_, from.kind, from.seed, clock_);
      if (narrowest_ && tree.width() >= narrowest_->width()) continue;
      narrowest_ = std::move(tree);
      from_narrowest_ = from;
    }
  }

  void attempt(std::uint32_t i) {
    trial now;
    now.from = origin_of(i);
    const tree_decomposition tree = tree_of(i, now.from);
    if (clock_.should_stop()) return;
    const std::uint64_t print = fingerprint(tree, now.from.balance);
    if (std::find(seen_.begin(), seen_.end(), print) != seen_.end()) return;
    seen_.push_back(print);
    if (clock_.should_stop()) return;
    separator_tree separators =
        separate(graph_.rows(), tree.bags, tree.links(), weights(problem_.graph(), now.from.balance));
    now.from.width = tree.width();
    now.from.separator_depth = separators.depth;
    if (clock_.should_stop()) return;
    separator_recursion recursion(problem_.graph(), std::move(separators));
    std::optional<schedule> least;
    double least_time = std::numeric_limits<double>::infinity();
    origin of_least;
    std::uint32_t turn = i;
    for (const double share : shares[i / tree_kinds % 2]) {
      if (clock_.should_stop()) break;
      std::optional<schedule> plan = recurse(recursion, share, turn++, now);
      if (!plan) continue;
      origin from = now.from;
      from.share = share;
      from.recursion_depth = recursion.deepest();
      from.held_less = recursion.held_less();
      from.time_before = check(problem_, *plan).time;
      const double time = offer(*plan, exponents[0], from);
      now.time = std::min(now.time, time);
      ++now.schedules;
      if (time >= least_time) continue;
      least_time = time;
      least = std::move(plan);
      of_least = from;
      if (!problem_.has_budget()) break;
    }
    for (std::size_t e = 1; least && e < std::size(exponents) && !clock_.should_stop(); ++e)
      now.time = std::min(now.time, offer(*least, exponents[e], of_least));
    trials_.push_back(now);
  }

  tree_decomposition tree_of(std::uint32_t i, origin& from) {
    if (options_.tree) {
      from = {.balance = i};
      return *options_.tree;
    }
    if (narrowest_) {
      from = from_narrowest_;
      from.balance = i;
      return *narrowest_;
    }
    return make_tree(graph_, from.kind, from.seed, clock_);
  }

  static std::uint64_t fingerprint(const tree_decomposition& tree, std::uint32_t balance) {
    std::vector<std::uint64_t> words{balance};
    for (const auto* list : {&tree.bags.begin, &tree.bags.values})
      words.insert(words.end(), list->begin(), list->end());
    for (const auto& [a, b] : tree.edges) words.push_back((std::uint64_t{a} << 32U) | b);
    return hash_words(words);
  }

  /// A schedule within the problem's budget of the recursion under `share` of it, if there is one. Until then, fewer
  /// tensors are held in each run.
  std::optional<schedule> recurse(separator_recursion& recursion, double share, std::uint32_t turn, trial& now) {
    const bool in_need = !best_.plan && !trials_.empty();
    const double max_time = (in_need ? longest_in_need : longest) * problem_.graph().needed_time;
    const double budget = problem_.has_budget() ? share * static_cast<double>(problem_.budget()) : 0x1.0p62;
    const hold_rule rule = turn % 2 == 0 ? hold_rule::largest : hold_rule::cheapest;
    recursion.hold_all();
    for (std::uint32_t i = 0; i < max_runs; ++i) {
      ++now.recursions;
      if (!recursion.run(static_cast<std::int64_t>(budget), max_time, clock_)) return std::nullopt;
      schedule plan = schedule_computes(problem_, recursion.computes());
      const check_report report = check(problem_, plan);
      if (report.what != violation::over_budget) return plan;
      if (options_.improve && !best_.plan && (!nearest_ || report.peak_bytes < nearest_peak_)) {
        nearest_ = plan;
        nearest_peak_ = report.peak_bytes;
      }
      if (!options_.hold_less || !recursion.hold_less(plan, report, problem_.budget(), rule)) return std::nullopt;
    }
    return std::nullopt;
  }

  /// Spends the memory that `plan` leaves, and offers the result to `best`. Returns its time.
  double offer(const schedule& plan, double exponent, const origin& from) {
    schedule retained = retain_by(problem_, plan, exponent, options_.retain_rounds, clock_);
    const bool changed = retained.steps.size() != plan.steps.size();
    const std::string by = changed ? by_part(twremat_solver::name, "retain") : std::string(twremat_solver::name);
    const acceptance a = accept(problem_, best_, std::move(retained), by);
    if (a.taken) origin_ = from;
    return a.report.time;
  }

  void record() {
    figures& own = best_.statistics.own;
    const auto name_tree = [](figures& f, const origin& from) {
      f.set("tree", tree_names[static_cast<std::size_t>(from.kind)]);
      f.set("width", from.width);
      f.set("balance", balance_names[from.balance]);
      f.set("separator_depth", from.separator_depth);
    };
    std::size_t recursions = 0;
    figures::group_list trees;
    for (const trial& t : trials_) {
      recursions += t.recursions;
      figures f;
      name_tree(f, t.from);
      f.set("seed", t.from.seed);
      f.set("recursions", t.recursions);
      f.set("schedules", t.schedules);
      f.set("time", t.time);
      trees.push_back(std::move(f));
    }
    if (best_.plan) {
      name_tree(own, origin_);
      own.set("recursion_depth", origin_.recursion_depth);
      own.set("budget_share", origin_.share);
      own.set("held_less", origin_.held_less);
      own.set("time_before_retain", origin_.time_before);
      own.set("time_saved_by_retain", origin_.time_before - best_.time);
      own.set("length", static_cast<double>(best_.statistics.computes) / problem_.graph().num_operations);
      record_critical_paths(own);
    }
    own.set("attempts", trials_.size());
    own.set("recursions", recursions);
    own.set("repaired", false);
    own.set("trees", std::move(trees));
  }

  void record_critical_paths(figures& own) const {
    const problem unlimited = problem_.with_budget(problem::unlimited);
    own.set("critical_path", assign_streams(problem_, *best_.plan).critical_path);
    own.set("listed_critical_path",
            assign_streams(unlimited, simplify(unlimited, listed_order(unlimited))).critical_path);
  }

  const problem& problem_;
  const twremat_options& options_;
  run_clock& clock_;
  solution& best_;
  undirected_graph graph_;
  origin origin_;              // the best schedule's origin
  std::vector<trial> trials_;  // one for each separator tree
  std::vector<std::uint64_t> seen_;
  std::optional<tree_decomposition> narrowest_;
  origin from_narrowest_;
  std::optional<schedule> nearest_;  // the schedule over the budget that is nearest to it
  std::int64_t nearest_peak_ = 0;
};

}  // namespace detail::twremat_solve

REMAT_INLINE undirected_graph operation_graph(const flat_graph& graph, operation_edges which) {
  const std::uint32_t n = graph.num_operations;
  index_rows makers;                                 // operation → those that make what it reads, ascending
  std::vector<std::vector<std::uint32_t>> users(n);  // operation → those that read what it makes
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t o = 0; o < n; ++o) {
    std::vector<std::uint32_t> row;
    for (const std::uint32_t t : graph.inputs[o])
      row.insert(row.end(), graph.producers[t].begin(), graph.producers[t].end());
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    for (const std::uint32_t m : row) {
      edges.emplace_back(m, o);
      users[m].push_back(o);
    }
    makers.values.insert(makers.values.end(), row.begin(), row.end());
    makers.end_row();
  }
  if (which == operation_edges::moral) {
    // Each pair once, however many operations read from both.
    std::vector<std::uint32_t> met(n, n);
    for (std::uint32_t a = 0; a < n; ++a)
      for (const std::uint32_t o : users[a])
        for (const std::uint32_t b : makers[o]) {
          if (b >= a) break;
          if (met[b] != a) edges.emplace_back(b, a);
          met[b] = a;
        }
  }
  return undirected_graph(n, edges);
}

REMAT_INLINE solution twremat_solver::operator()(const problem& p, const twremat_options& options) const {
  require_valid_options(name, options);
  return detail::solve_by_own_method(
      p, name, options.run, options.improve, {.opens_with_listed_order = false},
      [&](run_clock& clock, solution& best) -> detail::method_end {
        detail::twremat_solve::tree_search search(p, options, clock, best);
        if (prove(p, best, clock.limits())) return {};
        search.run();
        return {clock.poll(), options.improve ? search.repaired() : std::vector<schedule>{}};
      });
}

}  // namespace REMAT_NAMESPACE
