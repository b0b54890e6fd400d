// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/hiremate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "remat/core/detail/foreign_call.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/method/detail/backend_failures.hpp"
#include "remat/method/detail/copy_instances.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/hiremate/impl/chains.hpp"
#include "remat/method/hiremate/impl/level_model.hpp"
#include "remat/method/hiremate/impl/level_search.hpp"
#include "remat/method/hiremate/impl/sub_graph_ways.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE::detail {

namespace hiremate_solve {

inline constexpr double infinite = std::numeric_limits<double>::infinity();

/// The user's solver of sub-graphs. If it throws, `failures` notes that, and the solve goes on without that answer;
/// memory that runs out in it is the solve's to report.
inline sub_graph_solver noting(const sub_graph_solver& solver, foreign_failures& failures) {
  if (!solver) return {};
  return [&solver, &failures](const problem& p, std::span<const schedule> starts, const run_control& run) {
    foreign_call call;
    run_control watched = run;
    watched.on_progress = call.watched(run.on_progress);
    solution answer;
    const std::optional<std::string> failure = call.run_in_solve([&] { answer = solver(p, starts, watched); });
    if (failure) failures.note("the sub-solver failed: " + printable(*failure, 300));
    return failure ? solution() : answer;
  };
}

/// How the ways of groups are searched for. `failures`: those of a sub-solver of the user's.
inline sub_graph_search sub_graphs_of(const hiremate_options& options, mip_backend_ref backend,
                                      foreign_failures& failures) {
  sub_graph_search out;
  out.max_ways = options.max_ways;
  out.moves = options.moves;
  out.rule = options.rule;
  if (options.sub_solver != sub_method::automatic)
    out.rule = [method = options.sub_solver](const sub_graph_facts&) { return std::vector<sub_method>{method}; };
  out.own_solver = noting(options.own_sub_solver, failures);
  out.backend = backend;
  out.max_columns = options.max_columns;
  out.nodes = options.nodes;
  out.cache = options.cache ? options.cache : make_way_cache();
  return out;
}

/// The work that limits kept a solve from: the counts of its message.
struct left_out {
  std::size_t chains = 0, levels = 0, cut_short = 0, tables = 0, programs = 0;

  void add(const sub_graph_table& table) {
    cut_short += table.cut_short;
    tables += table.tables_refused;
    programs += table.refused;
  }
  void add(const chain_counts& counts) {
    add(counts.solves);
    chains += counts.left + counts.refused;
    tables += counts.tables_refused;
  }
};

/// The ways of every group of a hierarchy, from the deepest level up.
class group_ways {
 public:
  group_ways(const problem& p, const operation_hierarchy& h, const sub_graph_search& search, std::size_t level_ways,
             run_clock& clock, left_out& left)
      : graph_(p.graph()),
        h_(h),
        search_(search),
        level_ways_(level_ways),
        left_out_(left),
        extract_(p.graph(), h),
        of_group_(h.groups.size()) {
    for (std::uint32_t depth = h.depth(); depth > 0; --depth) {
      if (clock.should_stop()) {
        left_ = depth;
        left_out_.levels += depth;
        break;
      }
      run_clock part = clock.part_on_other_problem(1.0 / depth);
      solve(depth, part);
    }
  }

  /// Children with their ways: at most `level_ways` for all groups among them together, but two for each.
  [[nodiscard]] std::vector<level_child> children(std::size_t group) {
    std::vector<level_child> out = children_of(h_, group, extract_);
    std::size_t groups = 0;
    for (std::size_t i = 0; i < out.size(); ++i) groups += h_.is_group(h_.children[group][i]) ? 1U : 0U;
    const std::size_t each = std::max<std::size_t>(2, groups == 0 ? 0 : level_ways_ / groups);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint32_t child = h_.children[group][i];
      if (!h_.is_group(child)) continue;
      const std::vector<sub_graph_way>& known = of_group_[h_.group_at(child)];
      if (known.empty()) continue;  // stopped before this group
      out[i].ways = known;
      thin_out(out[i].ways, each);
    }
    return out;
  }
  /// One group of figures for each level, from the deepest up.
  [[nodiscard]] const figures::group_list& levels() const noexcept { return levels_; }
  /// Levels that were not begun because of limits.
  [[nodiscard]] std::uint32_t levels_left() const noexcept { return left_; }

 private:
  void solve(std::uint32_t depth, run_clock& clock) {
    std::vector<std::uint32_t> groups;
    std::vector<divided_sub_graph> wanted;
    for (std::uint32_t g = 1; g < h_.groups.size(); ++g)
      if (h_.groups[g].depth == depth) {
        groups.push_back(g);
        wanted.push_back({extract_(g), children(g)});
      }
    if (groups.empty()) return;
    sub_graph_table table = find_sub_graph_ways(graph_, wanted, search_, clock);
    left_out_.add(table);
    std::size_t ways = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      ways += table.ways[i].size();
      of_group_[groups[i]] = std::move(table.ways[i]);
    }
    figures level;
    level.set("depth", depth);
    level.set("groups", groups.size());
    level.set("reused", table.reused);
    level.set("proven", table.proven);
    level.set("tables_refused", table.tables_refused);
    table.add_to(level);
    level.set("ways", ways);
    levels_.push_back(std::move(level));
  }

  const flat_graph& graph_;
  const operation_hierarchy& h_;
  const sub_graph_search& search_;
  std::size_t level_ways_;
  left_out& left_out_;
  sub_graph_extractor extract_;
  std::vector<std::vector<sub_graph_way>> of_group_;
  figures::group_list levels_;
  std::uint32_t left_ = 0;
};

/// One solve: the steps of `hiremater`, in its order.
class search {
 public:
  /// `p` has a known bound, and `best` is what is known of its schedules.
  search(mip_backend_ref backend, const problem& p, const hiremate_options& options, run_clock& clock, solution& best)
      : backend_(backend.noting(failures_)),
        p_(p),
        options_(options),
        clock_(clock),
        best_(best),
        groups_(sub_graphs_of(options, backend_, sub_solver_failures_)),
        stages_(groups_) {
    stages_.moves = options.chain_moves;
    stages_.peaks = 1;
  }

  stop_reason run() {
    std::vector<candidate> hierarchies = find_hierarchies();
    if (hierarchies.empty()) best_.message = "no hierarchy: the solve was stopped before there was one";
    if (uses(hiremate_top::rotor)) solve_chains(hierarchies);
    std::vector<std::size_t> divided;
    for (std::size_t i = 0; i < hierarchies.size(); ++i)
      if (!hierarchies[i].chains_alone) divided.push_back(i);
    for (std::size_t k = 0; k < divided.size() && !is_near_bound() && !clock_.should_stop(); ++k)
      solve_hierarchy(hierarchies, divided[k], 1.0 / static_cast<double>(divided.size() - k));
    if (uses(hiremate_top::h_ilp)) solve_programs(hierarchies);
    report(hierarchies);
    return clock_.poll();
  }

 private:
  struct candidate {
    chain_source source = chain_source::given;
    operation_hierarchy hierarchy{};
    bool chains_alone = false;  // forward and backward operations add to one tensor
    figures own{};
  };
  struct top_level {
    std::size_t of = 0;  // candidate
    std::vector<level_child> children{};
    std::vector<level_problem::choice> choices{};  // the best schedule's choices
    double time = infinite;
  };

  [[nodiscard]] bool uses(hiremate_top solver) const {
    return options_.top_solver == hiremate_top::automatic || options_.top_solver == solver;
  }
  [[nodiscard]] bool is_near_bound() const { return best_.is_within(options_.gap); }

  /// The given hierarchy, or different ones.
  [[nodiscard]] std::vector<candidate> find_hierarchies() const {
    std::vector<candidate> out;
    const auto add = [&](chain_source source, operation_hierarchy h) {
      candidate c;
      c.source = source;
      std::vector<std::uint8_t> forward(p_.graph().num_operations, 0);
      for (std::uint32_t i = 0; i < h.num_forward; ++i) forward[h.order[i]] = 1;
      c.chains_alone = has_mixed_sums(p_.graph(), forward);
      c.hierarchy = std::move(h);
      c.own.set("partition", name_of(source));
      c.own.set("groups", c.hierarchy.groups.size() - 1);
      c.own.set("depth", c.hierarchy.depth());
      c.own.set("top", c.hierarchy.children[0].size());
      out.push_back(std::move(c));
    };
    if (options_.hierarchy) {
      add(chain_source::given, *options_.hierarchy);
      return out;
    }
    partition_options partitioning;
    partitioning.max_group = options_.max_group;
    partitioning.max_top = options_.max_top;
    partitioning.must_stop = [this] { return clock_.should_stop(); };
    using maker = operation_hierarchy (*)(const flat_graph&, const partition_options&);
    const auto levels = [](const flat_graph& g, const partition_options&) { return partition_at_levels(g); };
    const std::tuple<hiremate_partition, chain_source, maker> makers[] = {
        {hiremate_partition::h_partition, chain_source::h_partition, h_partition},
        {hiremate_partition::repeats, chain_source::repeats, partition_at_repeats},
        {hiremate_partition::cuts, chain_source::cuts, partition_at_cuts},
        {hiremate_partition::levels, chain_source::levels, levels}};
    for (const auto& [which, source, make] : makers) {
      if (options_.partition != hiremate_partition::all && options_.partition != which) continue;
      if (clock_.should_stop()) break;
      operation_hierarchy h = make(p_.graph(), partitioning);
      if (clock_.should_stop()) break;
      const bool known = std::any_of(out.begin(), out.end(), [&, &made = h](const candidate& c) {
        return c.hierarchy.order == made.order && c.hierarchy.children.values == made.children.values;
      });
      if (!known) add(source, std::move(h));
    }
    return out;
  }

  /// Rotor's program on the chains of all hierarchies.
  void solve_chains(std::vector<candidate>& hierarchies) {
    hierarchy_chains chains(p_, options_, stages_);
    for (const candidate& c : hierarchies) chains.add(c.source, c.hierarchy);
    // Another order of the forward operations, for graphs whose listed order is wide.
    constexpr std::size_t longest_line = 20'000;  // operations; the order takes quadratic time
    bool has_narrow = false;
    for (const candidate& c : hierarchies) {
      if (c.source != chain_source::levels || c.hierarchy.num_forward > longest_line || clock_.should_stop()) continue;
      chains.add_line(chain_source::narrow, find_narrow_line(p_.graph(), line_of(p_.graph(), c.hierarchy)));
      has_narrow = true;
    }
    // The chains are counted if there is no time.
    const auto spend = [&](double share, const auto& solve) {
      if (is_near_bound()) return;
      run_clock part = clock_.part(share, "chains");
      solve(part);
    };
    spend(0.25, [&](run_clock& part) {
      chains.solve_plain(part, best_);
      if (!has_narrow) return;
      chains.solve_narrow(chain_source::narrow, part, best_);
      chains.solve_narrow(chain_source::levels, part, best_);
    });
    spend(0.5, [&](run_clock& part) { chains.solve_with_ways(part, best_); });
    spend(0.25, [&](run_clock& part) { chains.solve_finer(part, best_); });
    for (candidate& c : hierarchies) {
      figures::group_list own;
      for (const chain_source source : {c.source, chain_source::narrow}) {
        if (source != c.source && c.source != chain_source::levels) continue;
        const chain_counts* counts = chains.counts_of(source);
        if (counts == nullptr) continue;
        left_out_.add(*counts);
        own.push_back(counts->to_figures());
      }
      c.own.set("chains", std::move(own));
    }
  }

  /// The ways of a hierarchy, and its top level by `search_level`. `share`: of what all hierarchies may use.
  void solve_hierarchy(std::vector<candidate>& hierarchies, std::size_t i, double share) {
    if (!uses(hiremate_top::search_level) && !uses(hiremate_top::h_ilp)) return;
    candidate& c = hierarchies[i];
    // Nothing bounds the children of a level of cuts: if they are many, the hierarchy serves its chains alone.
    const bool large = c.hierarchy.children[0].size() > 2 * std::size_t{options_.max_top};
    if (options_.top_solver == hiremate_top::automatic && c.source == chain_source::levels && large) {
      c.own.set("chains_alone", true);
      return;
    }
    run_clock part =
        clock_.part_on_other_problem((uses(hiremate_top::search_level) ? 0.33 : 0.6) * share, "sub-graphs");
    group_ways groups(p_, c.hierarchy, groups_, options_.level_ways, part, left_out_);
    if (clock_.should_stop()) return;  // a level of very many children takes seconds to set up

    top_level top;
    top.of = i;
    top.children = groups.children(0);
    std::size_t ways = 0;
    for (const level_child& child : top.children) ways += child.ways.size();
    c.own.set("top_ways", ways);
    c.own.set("levels", groups.levels());
    if (groups.levels_left() > 0) c.own.set("levels_left", groups.levels_left());
    if (clock_.should_stop()) return;
    if (uses(hiremate_top::search_level)) search_top(c, top, share);
    tops_.push_back(std::move(top));
  }

  void search_top(candidate& c, top_level& top, double share) {
    const level_builder builder(p_.graph(), top.children);
    run_clock part = clock_.part_on_other_problem(0.33 * share, "top level");
    level_search_result found = search_level(
        builder, top.children, p_, part, {},
        [&](std::span<const level_problem::choice> choices) { return schedule_computes(p_, builder.expand(choices)); });
    if (!found.plan) return;
    top.time = found.time;
    top.choices = std::move(found.choices);
    c.own.set("search_level_time", top.time);
    accept(p_, best_, std::move(*found.plan), by_part(by_part("hiremate", name_of(c.source)), "search_level"));
  }

  /// The integer programs of the top levels, the most promising level first.
  void solve_programs(std::vector<candidate>& hierarchies) {
    std::stable_sort(tops_.begin(), tops_.end(),
                     [](const top_level& a, const top_level& b) { return a.time < b.time; });
    for (std::size_t i = 0; i < tops_.size() && !is_near_bound() && !clock_.should_stop(); ++i)
      solve_program(hierarchies[tops_[i].of], tops_[i], 1.0 / static_cast<double>(tops_.size() - i));
  }

  void solve_program(candidate& c, const top_level& top, double share) {
    const level_builder builder(p_.graph(), top.children);
    hierarchical_ilp_options solving;
    // No run is worth repeating before the turn.
    solving.again_from = static_cast<std::uint32_t>(builder.num_children());
    if (solving.again_from >= builder.level().runs.size()) return;  // nothing to decide
    if (!top.choices.empty()) solving.starts.push_back(top.choices);
    solving.max_columns = options_.max_columns;
    solving.nodes = options_.nodes;
    solving.gap = options_.gap;
    run_clock part = clock_.part_on_other_problem(share, "integer program");
    solving.run = part.control();
    const double columns = std::min(options_.max_columns, level_model::size_estimate(builder.level()));
    if (!pays_for_program(solving.run, columns)) {
      figures own;
      ++left_out_.programs;
      own.set("refused", true);
      own.set("ending", "not begun: its first linear program is more than the work that is left");
      c.own.set("h_ilp", {std::move(own)});
      return;
    }
    const double begin = clock_.seconds();
    const level_solution found = hierarchical_ilp(backend_, builder.level(), p_.budget(), solving);
    part.work(found.work);
    left_out_.programs += found.refused ? 1U : 0U;
    figures own;
    own.set("refused", found.refused);
    own.set("columns", found.columns);
    own.set("rows", found.rows);
    own.set("nodes", found.nodes);
    own.set("bound", found.lower_bound);
    if (found.found) own.set("gap", found.time / found.lower_bound - 1);
    own.set("seconds", clock_.seconds() - begin);
    own.set("ending", found.message);
    if (found.found) {
      schedule plan = schedule_computes(p_, builder.expand(found.choices));
      const check_report r = check(p_, plan);
      if (r.valid()) {
        own.set("time", r.time);
        accept(p_, best_, std::move(plan), by_part(by_part("hiremate", name_of(c.source)), "h_ilp"));
      }
    }
    c.own.set("h_ilp", {std::move(own)});
  }

  /// The figures of all hierarchies, and the message.
  void report(std::vector<candidate>& hierarchies) {
    std::size_t groups = 0;
    figures::group_list all;
    for (candidate& c : hierarchies) {
      groups += c.hierarchy.groups.size() - 1;
      all.push_back(std::move(c.own));
    }
    if (!all.empty()) {
      best_.message = count_of(all.size(), "hierarchy", "hierarchies") + " with " + count_of(groups, "sub-graph");
      const auto say = [&](std::size_t count, const char* before, const char* thing, const char* after) {
        if (count > 0) best_.message += "; " + (before + count_of(count, thing)) + after;
      };
      say(left_out_.chains, "", "chain", " not solved with ways");
      say(left_out_.levels, "", "level", " not begun");
      say(left_out_.cut_short, "the search of ", "sub-graph", " cut short");
      say(left_out_.tables, "", "table", " too large");
      say(left_out_.programs, "", "integer program", " not solved");
    }
    best_.statistics.own.set("hierarchies", std::move(all));
    report_failures(failures_, best_);
    report_failures("sub_solver", sub_solver_failures_.count(), sub_solver_failures_.first(), best_);
  }

  mip_failures failures_{};
  foreign_failures sub_solver_failures_{};
  mip_backend_ref backend_;
  const problem& p_;
  const hiremate_options& options_;
  run_clock& clock_;
  solution& best_;
  sub_graph_search groups_;
  sub_graph_search stages_;  // the search for the stages of chains
  left_out left_out_{};
  std::vector<top_level> tops_{};
};

inline void require_valid(const problem& p, const hiremate_options& options) {
  require_valid_options("hiremate", options);
  if (!options.hierarchy) return;
  const hierarchy_report r = check_hierarchy(p.graph(), *options.hierarchy);
  if (!r.valid())
    throw bad_argument("hiremate: the given hierarchy is not one of the problem's graph: " + r.violations.front());
}

}  // namespace hiremate_solve

REMAT_INLINE piece_kind portable_group_ways(mip_backend_ref backend) {
  return sub_graph_ways::portable_ways_with(backend);
}

REMAT_INLINE solution solve_hiremate(mip_backend_ref backend, const problem& p, const hiremate_options& options) {
  hiremate_solve::require_valid(p, options);
  if (p.link()) {
    constexpr std::array<const char*, 2> kinds{"backend_failure", "sub_solver_failure"};
    std::array<std::string, 2> failures;
    const auto method = [&](const problem& instance, hiremate_options now) {
      // A given hierarchy is one of the graph without copies.
      if (instance.graph().num_operations != p.graph().num_operations) now.hierarchy.reset();
      solution s = solve_hiremate(backend, instance, now);
      for (std::size_t k = 0; k < kinds.size(); ++k)
        if (const auto* first = s.statistics.own.find<std::string>(kinds[k])) failures[k] = *first;
      return s;
    };
    solution s = solve_by_split_instances(p, "hiremate", options, method);
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      if (failures[k].empty()) continue;  // its instance need not be that of the answer
      s.statistics.own.set(kinds[k], failures[k]);
      s.message += (s.message.empty() ? "" : "; ") + failures[k];
    }
    return s;
  }
  return solve_by_own_method(p, "hiremate", options.run, options.improve, {},
                             [&](run_clock& clock, solution& best) -> method_end {
                               if (prove(p, best, clock.limits(0.1))) return {};
                               const problem bounded = p.with_known_bound(best.lower_bound);
                               return {hiremate_solve::search(backend, bounded, options, clock, best).run(), {}};
                             });
}

}  // namespace REMAT_NAMESPACE::detail
