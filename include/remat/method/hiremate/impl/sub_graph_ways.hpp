// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <numeric>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/portable_pieces.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/find_ways.hpp"
#include "remat/hierarchy/detail/way_bytes.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/hiremate/impl/hierarchical_ilp.hpp"
#include "remat/method/hiremate/impl/level_search.hpp"
#include "remat/method/hiremate/impl/sub_graph_chain.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/method/twremat.hpp"
#include "remat/problem/detail/problem_bytes.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// A sub-graph whose ways are wanted.
struct divided_sub_graph {
  detail::sub_graph sub_graph{};        ///< operations and tensors
  std::vector<level_child> children{};  ///< its children with their ways; empty: not divided
};

/// How `find_sub_graph_ways` searches.
struct sub_graph_search {
  std::uint32_t peaks = 3;        ///< `way_search::peaks`
  std::size_t max_ways = 12;      ///< most ways of a sub-graph
  std::uint64_t moves = 4000;     ///< `way_search::moves`
  sub_method_rule rule{};         ///< empty: `default_sub_methods`
  sub_graph_solver own_solver{};  ///< if not empty, it takes the place of all methods
  /// Solves H-ILP, on several threads at once. Without it, or if the sub-graph is not divided, `rotor` takes the place
  /// of `h_ilp`.
  std::optional<mip_backend_ref> backend{};
  double max_columns = 6'000;  ///< most columns of an integer program
  std::uint64_t nodes = 100;   ///< most nodes of an integer program
  /// Ways are looked up in it, and those that no limit cut short are added to it. Null: no cache. It does not tell
  /// different solvers, backends or divisions of a sub-graph apart.
  std::shared_ptr<way_cache> cache{};
};

/// The ways of several sub-graphs.
struct sub_graph_table {
  std::vector<std::vector<sub_graph_way>> ways{};  ///< each sub-graph's ways in its own indices, by falling saved bytes
  std::size_t distinct = 0;                        ///< sub-graphs that differ by more than names and times
  std::size_t reused = 0;                          ///< distinct sub-graphs known from the cache
  std::size_t solves = 0;                          ///< problems of sub-graphs that were solved, tables included
  std::size_t proven = 0;                          ///< solves with a proven optimum, or proven infeasible
  std::size_t tables = 0;                          ///< tables of Rotor's program among the solves
  std::size_t tables_refused = 0;                  ///< tables larger than `chain_program_options::table_bytes`
  std::size_t programs = 0;                        ///< integer programs among the solves
  std::size_t refused = 0;                         ///< integer programs not begun: `max_columns`, or the work left
  /// Distinct sub-graphs whose search a limit ended early. If `find_ways` ends early for one of those that it
  /// solves by one method, all of these count.
  std::size_t cut_short = 0;

  /// Sets `distinct`, `solves`, `tables`, `programs`, `programs_refused` and `cut_short`.
  void add_to(figures& out) const {
    out.set("distinct", distinct);
    out.set("solves", solves);
    out.set("tables", tables);
    out.set("programs", programs);
    out.set("programs_refused", refused);
    out.set("cut_short", cut_short);
  }
};

/// Columns² of an integer program that a unit of work pays for: its first linear program takes time in proportion to
/// the square of the columns, or more.
inline constexpr double columns_squared_per_work = 12.5;

/// True if the limit on work pays for the first linear program of an integer program.
[[nodiscard]] inline bool pays_for_program(const run_control& run, double columns) noexcept {
  return !run.has_work_limit() || columns * columns <= static_cast<double>(run.work_limit) * columns_squared_per_work;
}

/// The level of one group within budgets in bytes: the problem of its children, and the way back to a schedule of
/// `sub_graph_runs::problem_within(peak, save)`.
class group_level {
 public:
  /// Keeps references to its arguments. O(size of the level + operations of the graph) time.
  group_level(const flat_graph& g, std::span<const level_child> children, const sub_graph_runs& runs,
              std::int64_t peak_bytes, std::int64_t save_bytes)
      : runs_(runs),
        builder_(g, children, &runs, peak_bytes, save_bytes),
        flat_(runs.problem_within(peak_bytes, save_bytes)),
        place_(g.num_operations, 0) {
    const std::vector<std::uint32_t>& operations = runs.sub_graph().operations;
    for (std::uint32_t i = 0; i < operations.size(); ++i) place_[operations[i]] = i < runs.num_forward() ? i : i + 2;
  }

  [[nodiscard]] const level_builder& builder() const noexcept { return builder_; }
  /// The group as a problem of operations.
  [[nodiscard]] const problem& flat() const noexcept { return flat_; }
  /// The schedule of `flat()` that a schedule of the level expands to, freed as early as possible. It may exceed the
  /// peak budget: the caller checks it. Precondition: *take* runs once, and *turn* once behind it.
  [[nodiscard]] schedule expand(std::span<const level_problem::choice> choices) const {
    // Take and turn are the two runs in the middle of the level.
    const auto middle = static_cast<std::uint32_t>(builder_.num_children());
    std::size_t taken = 0, turned = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].run == middle) taken = i;
      if (choices[i].run == middle + 1) turned = i;
    }
    std::vector<std::uint32_t> order;
    append(choices.first(taken), order);
    order.push_back(runs_.num_forward());
    append(choices.subspan(taken, turned - taken), order);
    order.push_back(runs_.num_forward() + 1);
    append(choices.subspan(turned), order);
    return schedule_computes(flat_, order);
  }

 private:
  void append(std::span<const level_problem::choice> choices, std::vector<std::uint32_t>& order) const {
    for (const std::uint32_t o : builder_.expand(choices)) order.push_back(place_[o]);
  }

  const sub_graph_runs& runs_;
  level_builder builder_;
  problem flat_;
  std::vector<std::uint32_t> place_;  // operation of the graph → of `flat_`
};

void fields_of(auto& bytes, maybe_const<level_child> auto& c) { bytes(c.sub_graph, c.ways); }

namespace sub_graph_ways {

/// The children of a divided sub-graph as segments of its forward. Precondition: they are consecutive there, in turn.
inline std::vector<sub_graph_segment> segments_of(const divided_sub_graph& s) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> place;  // operation of the graph, of the sub-graph
  for (std::uint32_t o = 0; o < s.sub_graph.operations.size(); ++o) place.emplace_back(s.sub_graph.operations[o], o);
  std::sort(place.begin(), place.end());
  std::vector<sub_graph_segment> out;
  std::uint32_t begin = 0;
  for (const level_child& child : s.children) {
    std::vector<std::uint32_t> own;  // operation of the child → of the sub-graph
    for (const std::uint32_t o : child.sub_graph.operations)
      own.push_back(std::lower_bound(place.begin(), place.end(), std::pair{o, std::uint32_t{0}})->second);
    sub_graph_segment segment;
    segment.forward_end = begin;
    for (std::uint32_t o = 0; o < own.size(); ++o) {
      if (child.sub_graph.operation[o].forward)
        segment.forward_end = std::max(segment.forward_end, own[o] + 1);
      else
        segment.backward.push_back(own[o]);
    }
    std::sort(segment.backward.begin(), segment.backward.end());
    for (const sub_graph_way& way : child.ways) segment.ways.push_back(in_names(way, own));
    begin = segment.forward_end;
    out.push_back(std::move(segment));
  }
  return out;
}

/// The name of the kind of pieces of `finder`.
inline constexpr std::string_view group_ways_kind = "group ways";

/// The needs of a piece in another process, beside `way_question`.
struct group_question {
  sub_method method{};
  double max_columns = 0;  // these three are of `sub_graph_search`
  std::uint64_t nodes = 0;
  std::string backend{};
  std::size_t programs_left = 0;
  std::vector<level_child> children{};
};

/// The results of a piece beside its ways: integer programs that were solved, and that were refused.
struct program_counts {
  std::size_t programs = 0, refused = 0;
};

void fields_of(auto& bytes, maybe_const<group_question> auto& q) {
  bytes(q.method, q.max_columns, q.nodes, q.backend, q.programs_left, q.children);
}
void fields_of(auto& bytes, maybe_const<program_counts> auto& c) { bytes(c.programs, c.refused); }

/// The search for the ways of some sub-graphs.
class finder {
 public:
  finder(const flat_graph& g, std::span<const divided_sub_graph> all, const sub_graph_search& search, run_clock& clock)
      : graph_(g), all_(all), search_(search), clock_(clock) {
    std::vector<sub_graph> sub_graphs;
    for (const divided_sub_graph& s : all) sub_graphs.push_back(s.sub_graph);
    classes_ = classify(sub_graphs, way_cache::likeness());
  }

  [[nodiscard]] sub_graph_table run() {
    const std::size_t count = classes_.representative.size();
    out_.distinct = count;
    out_.ways.resize(all_.size());
    found_.resize(count);
    whole_.assign(count, 1);
    methods_.resize(count);
    for (std::uint32_t c = 0; c < count; ++c) prepare(c);
    std::size_t left = by_method_.size();
    for (const auto& [method, classes] : by_method_) {
      run_clock part = clock_.part_on_other_problem(1.0 / static_cast<double>(left--));
      if (method == sub_method::rotor)
        by_chain(classes, part);
      else
        by_budgets(method, classes, part);
    }
    finish();
    return std::move(out_);
  }

  /// Finds ways of the one sub-graph in another process.
  [[nodiscard]] std::pair<way_finding, program_counts> run_elsewhere(const way_question& q, const group_question& own,
                                                                     const run_control& run) {
    const std::vector<std::uint32_t> only{0};
    programs_left_ = own.programs_left;
    way_finding found = find_way_elsewhere(q, method_solvers{*this, own.method, only}, run);
    return {std::move(found), {programs_.load(), refused_.load()}};
  }

 private:
  [[nodiscard]] const divided_sub_graph& of_class(std::uint32_t c) const { return all_[classes_.representative[c]]; }

  [[nodiscard]] way_cache::settings settings(std::uint32_t c) const {
    constexpr std::uint64_t several = 256;  // unlike the keys of single solvers
    std::uint64_t key = several;
    for (const sub_method m : methods_[c]) key |= std::uint64_t{1} << static_cast<unsigned>(m);
    if (std::find(methods_[c].begin(), methods_[c].end(), sub_method::h_ilp) != methods_[c].end())
      for (const std::uint64_t limit : {search_.nodes, std::bit_cast<std::uint64_t>(search_.max_columns)})
        key = (key ^ limit) * 0x9e3779b97f4a7c15U | several;
    return {search_.peaks, 0, search_.max_ways, search_.moves, clock_.control().seed, key};
  }

  /// Chooses the methods of a class, and looks it up in the cache.
  void prepare(std::uint32_t c) {
    const divided_sub_graph& s = of_class(c);
    const sub_graph_runs runs(s.sub_graph);
    sub_graph_facts facts;
    facts.operations = s.sub_graph.operations.size();
    facts.forward_operations = runs.num_forward();
    facts.children = s.children.size();
    for (const level_child& child : s.children) {
      facts.groups += child.ways.size() > 1 || child.sub_graph.operations.size() > 4 ? 1U : 0U;
      facts.child_ways += child.ways.size();
    }
    facts.copies = static_cast<std::size_t>(std::count(classes_.class_of.begin(), classes_.class_of.end(), c));
    choose(c, facts);
    found_[c].push_back(runs.keep_everything());
    if (search_.cache)
      if (std::optional<std::vector<sub_graph_way>> known = search_.cache->find(runs, settings(c))) {
        found_[c] = std::move(*known);
        methods_[c].clear();
        ++out_.reused;
        return;
      }
    if (!methods_[c].empty())
      if (std::optional<sub_graph_way> lean = recompute_everything(runs)) found_[c].push_back(std::move(*lean));
    for (const sub_method m : methods_[c]) by_method_[m].push_back(c);
  }

  /// The way that keeps nothing: the backward begins with the whole forward. None if the forward must not run twice.
  [[nodiscard]] static std::optional<sub_graph_way> recompute_everything(const sub_graph_runs& runs) {
    if (runs.forward_once()) return std::nullopt;
    std::vector<std::uint32_t> all(runs.sub_graph().operations.size());
    std::iota(all.begin(), all.end(), 0U);
    if (runs.num_forward() == all.size()) return std::nullopt;
    return runs.measure(std::span<const std::uint32_t>(all).first(runs.num_forward()), all);
  }

  void choose(std::uint32_t c, const sub_graph_facts& facts) {
    std::vector<sub_method>& methods = methods_[c];
    if (search_.own_solver) {
      methods = {sub_method::automatic};  // stands for the given solver
      return;
    }
    if (search_.rule) methods = search_.rule(facts);
    if (!search_.rule || std::find(methods.begin(), methods.end(), sub_method::automatic) != methods.end()) {
      const std::vector<sub_method> ours = default_sub_methods(facts);
      methods.insert(methods.end(), ours.begin(), ours.end());
      std::erase(methods, sub_method::automatic);
    }
    for (sub_method& m : methods)
      if (m == sub_method::h_ilp && (!search_.backend || facts.children == 0)) m = sub_method::rotor;
    sort_unique(methods);
  }

  void by_chain(const std::vector<std::uint32_t>& classes, run_clock& clock) {
    std::size_t operations = 0;
    for (const std::uint32_t c : classes) operations += of_class(c).sub_graph.operations.size();
    for (const std::uint32_t c : classes) {
      const std::size_t mine = of_class(c).sub_graph.operations.size();
      run_clock part = clock.part_on_other_problem(static_cast<double>(mine) / static_cast<double>(operations));
      operations -= mine;
      sub_graph_chain_search search;
      search.max_ways = search_.max_ways;
      sub_graph_chain_result r = find_chain_ways(of_class(c).sub_graph, segments_of(of_class(c)), search, part);
      out_.tables += r.tables;
      out_.tables_refused += r.refused;
      out_.solves += r.tables;
      if (!r.whole) whole_[c] = 0;
      take(c, std::move(r.ways));
    }
  }

  /// Finds ways for each pair of budgets, on the thread that `find_ways` chooses.
  void by_budgets(sub_method method, const std::vector<std::uint32_t>& classes, run_clock& clock) {
    std::vector<sub_graph> sub_graphs;
    for (const std::uint32_t c : classes) sub_graphs.push_back(of_class(c).sub_graph);
    way_search search;
    search.peaks = search_.peaks;
    search.max_ways = search_.max_ways;
    search.moves = search_.moves;
    if (method == sub_method::h_ilp) {
      search.max_budgets = budgets_of_programs;
      programs_left_ = classes.size() * (search.peaks + 1) * search.max_budgets;
    }
    way_table table = find_ways(sub_graphs, search, method_solvers{*this, method, classes}, clock);
    out_.solves += table.solves;
    out_.proven += table.proven;
    for (std::size_t i = 0; i < classes.size(); ++i) take(classes[i], std::move(table.ways[i]));
    if (table.cut_short > 0)
      for (const std::uint32_t c : classes) whole_[c] = 0;
  }

  /// The solvers of one method for the sub-graphs of some classes, a `sub_solver_set`.
  struct method_solvers {
    finder& search;
    sub_method method;
    const std::vector<std::uint32_t>& classes;

    [[nodiscard]] sub_solution thorough(const problem& p, std::span<const schedule> starts,
                                        const run_control& run) const {
      if (search.search_.own_solver) return to_sub_solution(search.search_.own_solver(p, starts, run));
      if (method == sub_method::twremat) return solve_twremat(p, run);
      // The program's schedules are the starts: the best one is the answer.
      if (method == sub_method::h_ilp) return best_of(p, starts);
      return solve_refined(p, starts, run);
    }
    [[nodiscard]] bool has_tight() const noexcept {
      return !search.search_.own_solver && method != sub_method::twremat && method != sub_method::h_ilp;
    }
    [[nodiscard]] sub_solution tight(const problem& p, const run_control& run) const { return solve_twremat(p, run); }
    [[nodiscard]] std::vector<schedule> starts(std::size_t i, const sub_graph_runs& runs, std::int64_t peak,
                                               std::int64_t save, run_clock& clock) const {
      if (method == sub_method::twremat) return {};
      const std::vector<level_child>& children = search.of_class(classes[i]).children;
      if (method == sub_method::h_ilp) return search.solve_program(children, runs, peak, save, clock);
      const bool divided =
          std::any_of(children.begin(), children.end(), [](const level_child& child) { return child.ways.size() > 1; });
      return divided ? search.search_group(children, runs, peak, save, clock) : std::vector<schedule>{};
    }

    // Other processes get the graph once, and the children of each sub-graph.
    using answer = program_counts;
    [[nodiscard]] std::string_view kind() const noexcept {
      return search.search_.own_solver ? std::string_view() : group_ways_kind;
    }
    void share(byte_writer& out) const { out.put(search.graph_); }
    [[nodiscard]] group_question question(std::size_t i) const {
      const sub_graph_search& all = search.search_;
      return {method,
              all.max_columns,
              all.nodes,
              all.backend ? std::string(all.backend->name()) : std::string(),
              search.programs_left_.load(),
              search.of_class(classes[i]).children};
    }
    void take(const answer& counts) const {
      search.programs_ += counts.programs;
      search.refused_ += counts.refused;
    }

   private:
    [[nodiscard]] static sub_solution best_of(const problem& p, std::span<const schedule> starts) {
      sub_solution best;
      for (const schedule& plan : starts) {
        const check_report r = check(p, plan);
        if (!r.valid() || r.time >= best.time) continue;
        best.time = r.time;
        best.plan = plan;
      }
      return best;
    }
  };

  /// The best schedule of a divided sub-graph that the ways of its children give by eviction.
  [[nodiscard]] std::vector<schedule> search_group(const std::vector<level_child>& children, const sub_graph_runs& runs,
                                                   std::int64_t peak, std::int64_t save, run_clock& clock) const {
    const group_level level(graph_, children, runs, peak, save);
    level_search_options searching;
    searching.prices = 4;
    searching.rounds = 0;
    searching.escalate = false;
    run_clock part = clock.part_on_other_problem(0.25);
    level_search_result found =
        search_level(level.builder(), children, level.flat(), part, searching,
                     [&](std::span<const level_problem::choice> choices) { return level.expand(choices); });
    std::vector<schedule> best;
    if (found.plan) best.push_back(std::move(*found.plan));
    return best;
  }

  /// The schedule that the integer program gives.
  [[nodiscard]] std::vector<schedule> solve_program(const std::vector<level_child>& children,
                                                    const sub_graph_runs& runs, std::int64_t peak, std::int64_t save,
                                                    run_clock& clock) {
    const group_level level(graph_, children, runs, peak, save);
    hierarchical_ilp_options solving;
    solving.again_from = static_cast<std::uint32_t>(children.size()) + 1;
    solving.max_columns = search_.max_columns;
    solving.nodes = search_.nodes;
    solving.gap = 1e-3;
    // Most programs end early, and many of the grid are not needed: each may take several equal shares. The time is
    // that of all classes, the work that of one; what other threads have done must not count there.
    const std::size_t left = programs_left_ > 1 ? programs_left_-- : 1;
    solving.run = clock.limits(0.25);
    solving.run.time_limit = clock.limits(std::min(0.25, 8.0 / static_cast<double>(left))).time_limit;
    solving.run.threads = 1;
    const double estimate = level_model::size_estimate(level.builder().level());
    if (!pays_for_program(solving.run, std::min(search_.max_columns, estimate))) {
      ++refused_;
      return {};
    }
    const level_solution found = hierarchical_ilp(*search_.backend, level.builder().level(), peak, solving);
    clock.work(found.work);
    ++programs_;
    if (found.refused) ++refused_;
    if (!found.found) return {};
    return {level.expand(found.choices)};
  }

  void take(std::uint32_t c, std::vector<sub_graph_way> ways) {
    for (sub_graph_way& o : ways) found_[c].push_back(std::move(o));
  }

  /// Keeps the best ways of each class, and translates them to all of its sub-graphs.
  void finish() {
    out_.programs = programs_;
    out_.refused = refused_;
    out_.cut_short = static_cast<std::size_t>(std::count(whole_.begin(), whole_.end(), std::uint8_t{0}));
    for (std::uint32_t c = 0; c < found_.size(); ++c) {
      const std::uint32_t i = classes_.representative[c];
      const sub_graph_runs runs(all_[i].sub_graph);
      keep_pareto_optimal(found_[c], runs);
      thin_out(found_[c], std::max<std::size_t>(search_.max_ways, 2));
      if (search_.cache && whole_[c] && !methods_[c].empty())
        search_.cache->add(all_[i].sub_graph, settings(c), found_[c]);
      out_.ways[i] = std::move(found_[c]);
    }
    translate_to_copies(classes_, out_.ways, [&](std::size_t i) { return sub_graph_runs(all_[i].sub_graph); });
  }

  static constexpr std::size_t budgets_of_programs = 6;  // save budgets for each peak budget, as in the paper

  const flat_graph& graph_;
  std::span<const divided_sub_graph> all_;
  const sub_graph_search& search_;
  run_clock& clock_;
  sub_graph_classes classes_;
  std::map<sub_method, std::vector<std::uint32_t>> by_method_{};  // classes
  std::vector<std::vector<sub_method>> methods_{};                // the methods of each class that is to be solved
  std::vector<std::vector<sub_graph_way>> found_{};               // each class's ways
  std::vector<std::uint8_t> whole_{};                             // whether no limit ended a class's search
  std::atomic<std::size_t> programs_{0}, refused_{0}, programs_left_{0};
  sub_graph_table out_{};
};

/// How other processes find ways of groups. `backend`: for integer programs.
inline piece_kind portable_ways_with(mip_backend_ref backend) {
  using question = std::pair<way_question, group_question>;
  return portable_kind<question>(group_ways_kind, [backend](byte_reader& in) {
    return [whole = problem::from_flat(in.get<flat_graph>()), backend](const question& q, const run_control& run) {
      const group_question& own = q.second;
      if (own.method == sub_method::h_ilp && own.backend != backend.name())
        throw bad_argument("the integer programs are for the backend " + own.backend + ", and this process has " +
                           std::string(backend.name()) + "; give solver_pieces the same backend on all ranks");
      sub_graph_search search;
      search.max_columns = own.max_columns;
      search.nodes = own.nodes;
      search.backend = backend;
      std::vector<divided_sub_graph> one(1);
      one[0].sub_graph = q.first.graph;
      one[0].children = own.children;
      run_clock clock(run);
      return finder(whole.graph(), one, search, clock).run_elsewhere(q.first, own, run);
    };
  });
}

}  // namespace sub_graph_ways

/// Finds ways of sub-graphs, each distinct one once, by the methods that the rule chooses. The answer is the same
/// for any number of threads. Limits are those of `clock`; each method gets an equal share of what is left, and of that
/// each sub-graph one by its operations. Polls before each problem of a sub-graph.
[[nodiscard]] inline sub_graph_table find_sub_graph_ways(const flat_graph& g,
                                                         std::span<const divided_sub_graph> sub_graphs,
                                                         const sub_graph_search& search, run_clock& clock) {
  return sub_graph_ways::finder(g, sub_graphs, search, clock).run();
}

}  // namespace REMAT_NAMESPACE::detail
