// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/hiremate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/chain/detail/chain_search.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/hiremate/detail/chains.hpp"
#include "remat/method/hiremate/detail/level_builder.hpp"
#include "remat/method/hiremate/detail/level_model.hpp"
#include "remat/method/hiremate/detail/level_search.hpp"
#include "remat/method/hiremate/detail/sub_graph_ways.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/figures.hpp"

namespace remat::detail {

namespace hiremate_solve {

inline constexpr double infinite = std::numeric_limits<double>::infinity();

/// How the options of groups are searched for. `moves`: for each pair of budgets.
inline sub_graph_search sub_graphs_of(const hiremate_options& options, mip_backend_ref backend,
                                      std::shared_ptr<way_cache> cache, std::uint64_t moves) {
  sub_graph_search out;
  out.max_ways = options.max_ways;
  out.moves = moves;
  out.rule = options.rule;
  if (options.sub_solver != sub_method::automatic)
    out.rule = [method = options.sub_solver](const sub_graph_facts&) { return std::vector<sub_method>{method}; };
  out.own_solver = options.own_sub_solver;
  out.backend = backend;
  out.max_columns = options.max_columns;
  out.nodes = options.nodes;
  out.cache = std::move(cache);
  return out;
}

/// The options of every group of a hierarchy, from the deepest level up.
class group_ways {
 public:
  group_ways(const problem& p, const operation_hierarchy& h, const sub_graph_search& search, std::size_t level_ways,
             run_clock& clock)
      : graph_(p.graph()),
        h_(h),
        search_(search),
        level_options_(level_ways),
        extract_(p.graph(), h),
        of_group_(h.groups.size()) {
    for (std::uint32_t depth = h.depth(); depth > 0; --depth) {
      if (clock.should_stop()) {
        left_ = depth;
        break;
      }
      run_clock part = clock.part(1.0 / depth);
      solve(depth, part);
    }
  }

  /// Children with their options: at most `level_ways` for all groups among them together, but two for each.
  [[nodiscard]] std::vector<level_child> children(std::size_t group) {
    std::vector<level_child> out = children_of(h_, group, extract_);
    std::size_t groups = 0;
    for (std::size_t i = 0; i < out.size(); ++i) groups += h_.is_group(h_.children[group][i]) ? 1U : 0U;
    const std::size_t each = std::max<std::size_t>(2, groups == 0 ? 0 : level_options_ / groups);
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
    std::size_t options = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      options += table.ways[i].size();
      of_group_[groups[i]] = std::move(table.ways[i]);
    }
    figures level;
    level.set("depth", depth);
    level.set("groups", groups.size());
    level.set("distinct", table.distinct);
    level.set("reused", table.reused);
    level.set("solves", table.solves);
    level.set("proven", table.proven);
    level.set("tables", table.tables);
    level.set("tables_refused", table.tables_refused);
    level.set("programs", table.programs);
    level.set("programs_refused", table.refused);
    level.set("cut_short", table.cut_short);
    level.set("ways", options);
    levels_.push_back(std::move(level));
  }

  const flat_graph& graph_;
  const operation_hierarchy& h_;
  const sub_graph_search& search_;
  std::size_t level_options_;
  sub_graph_extractor extract_;
  std::vector<std::vector<sub_graph_way>> of_group_;
  figures::group_list levels_;
  std::uint32_t left_ = 0;
};

/// One solve: the steps of `hiremate_solver`, in its order.
class search {
 public:
  /// `p` has a known bound, and `best` is what is known of its schedules.
  search(mip_backend_ref backend, const problem& p, const hiremate_options& options, run_clock& clock, solution& best)
      : backend_(backend),
        p_(p),
        options_(options),
        clock_(clock),
        best_(best),
        groups_(sub_graphs_of(options, backend, options.cache ? options.cache : make_way_cache(), options.moves)) {
    chaining_.sub_graphs = sub_graphs_of(options, backend, groups_.cache, options.chain_moves);
    chaining_.sub_graphs.peaks = 1;
    chaining_.slots = options.slots;
    chaining_.max_stages = options.max_stages;
    chaining_.max_effort = options.chain_effort;
    chaining_.gap = options.gap;
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
    std::string_view name{};
    operation_hierarchy hierarchy{};
    bool chains_alone = false;  // forward and backward operations add to one tensor
    figures own{};
  };
  struct top_level {
    std::size_t of = 0;  // candidate
    std::vector<level_child> children{};
    std::vector<level_problem::choice> choices{};  // of the best schedule
    double time = infinite;
  };

  [[nodiscard]] bool uses(hiremate_top solver) const {
    return options_.top_solver == hiremate_top::automatic || options_.top_solver == solver;
  }
  [[nodiscard]] bool is_near_bound() const {
    return best_.plan && is_within_gap(best_.time, best_.lower_bound, options_.gap);
  }

  /// The given hierarchy, or different ones.
  [[nodiscard]] std::vector<candidate> find_hierarchies() const {
    std::vector<candidate> out;
    const auto add = [&](std::string_view name, operation_hierarchy h) {
      candidate c;
      c.name = name;
      std::vector<std::uint8_t> forward(p_.graph().num_operations, 0);
      for (std::uint32_t i = 0; i < h.num_forward; ++i) forward[h.order[i]] = 1;
      c.chains_alone = has_mixed_sums(p_.graph(), forward);
      c.hierarchy = std::move(h);
      c.own.set("partition", name);
      c.own.set("groups", c.hierarchy.groups.size() - 1);
      c.own.set("depth", c.hierarchy.depth());
      c.own.set("top", c.hierarchy.children[0].size());
      out.push_back(std::move(c));
    };
    if (options_.hierarchy) {
      add("given", *options_.hierarchy);
      return out;
    }
    partition_options partitioning;
    partitioning.max_group = options_.max_group;
    partitioning.max_top = options_.max_top;
    using maker = operation_hierarchy (*)(const flat_graph&, const partition_options&);
    const auto levels = [](const flat_graph& g, const partition_options&) { return partition_at_levels(g); };
    const std::tuple<hiremate_partition, std::string_view, maker> makers[] = {
        {hiremate_partition::h_partition, "h_partition", h_partition},
        {hiremate_partition::repeats, "repeats", partition_at_repeats},
        {hiremate_partition::cuts, "cuts", partition_at_cuts},
        {hiremate_partition::levels, "levels", levels}};
    for (const auto& [which, name, make] : makers) {
      if (options_.partition != hiremate_partition::all && options_.partition != which) continue;
      if (clock_.should_stop()) break;
      operation_hierarchy h = make(p_.graph(), partitioning);
      const bool known = std::any_of(out.begin(), out.end(), [&, &made = h](const candidate& c) {
        return c.hierarchy.order == made.order && c.hierarchy.children.values == made.children.values;
      });
      if (!known) add(name, std::move(h));
    }
    return out;
  }

  /// Rotor's program on the chains of all hierarchies.
  void solve_chains(std::vector<candidate>& hierarchies) {
    hierarchy_chains chains(p_, chaining_);
    for (const candidate& c : hierarchies) chains.add(c.name, c.hierarchy, c.name == "levels");
    // Another order of the forward operations, for graphs whose listed order is wide.
    constexpr std::size_t longest_line = 20'000;  // operations; the order takes quadratic time
    std::string_view narrow;
    for (const candidate& c : hierarchies) {
      if (c.name != "levels" || c.hierarchy.num_forward > longest_line || clock_.should_stop()) continue;
      chains.add_line(narrow = "narrow", find_narrow_line(p_.graph(), line_of(p_.graph(), c.hierarchy)));
    }
    // Without time the chains are counted.
    if (!is_near_bound()) {
      run_clock part = clock_.part(0.25, "chains");
      chains.solve_plain(part, best_, "hiremate");
      if (!narrow.empty())
        for (const std::string_view name : {narrow, std::string_view("levels")})
          chains.solve_narrow(name, part, best_, "hiremate");
    }
    if (!is_near_bound()) {
      run_clock part = clock_.part(0.5, "chains");
      chains.solve_with_ways(part, best_, "hiremate");
    }
    if (!is_near_bound()) {
      run_clock part = clock_.part(0.25, "chains");
      chains.solve_finer(part, best_, "hiremate");
    }
    for (candidate& c : hierarchies) {
      figures::group_list own{chains.figures_of(c.name)};
      if (c.name == "levels" && !narrow.empty()) own.push_back(chains.figures_of(narrow));
      c.own.set("chains", std::move(own));
    }
  }

  /// The options of a hierarchy, and its top level by `search_level`. `share`: of what all hierarchies may use.
  void solve_hierarchy(std::vector<candidate>& hierarchies, std::size_t i, double share) {
    if (!uses(hiremate_top::search_level) && !uses(hiremate_top::h_ilp)) return;
    candidate& c = hierarchies[i];
    // Nothing bounds the children of a level of cuts: where they are many, the chains are what that hierarchy is for.
    const bool large = c.hierarchy.children[0].size() > 2 * std::size_t{options_.max_top};
    if (options_.top_solver == hiremate_top::automatic && c.name == "levels" && large) {
      c.own.set("chains_alone", true);
      return;
    }
    run_clock part = clock_.part((uses(hiremate_top::search_level) ? 0.33 : 0.6) * share, "sub-graphs");
    group_ways groups(p_, c.hierarchy, groups_, options_.level_ways, part);

    top_level top;
    top.of = i;
    top.children = groups.children(0);
    std::size_t options = 0;
    for (const level_child& child : top.children) options += child.ways.size();
    c.own.set("top_ways", options);
    c.own.set("levels", groups.levels());
    if (groups.levels_left() > 0) c.own.set("levels_left", groups.levels_left());
    if (uses(hiremate_top::search_level)) search_top(c, top, share);
    tops_.push_back(std::move(top));
  }

  void search_top(candidate& c, top_level& top, double share) {
    const level_builder builder(p_.graph(), top.children);
    level_search_options searching;
    run_clock part = clock_.part(0.33 * share, "top level");
    schedule best_plan;
    search_level(builder, top.children, p_.budget(), part, searching, [&](std::vector<level_problem::choice> choices) {
      schedule plan = schedule_computes(p_, builder.expand(choices));
      const check_report r = check(p_, plan);
      if (!r.valid()) return infinite;
      if (r.time < top.time) {
        top.time = r.time;
        top.choices = std::move(choices);
        best_plan = std::move(plan);
      }
      return r.time;
    });
    if (best_plan.steps.empty()) return;
    c.own.set("search_level_time", top.time);
    accept(p_, best_, std::move(best_plan), by_part(by_part("hiremate", c.name), "search_level"));
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
    // Before the turn no run is worth repeating.
    solving.again_from = static_cast<std::uint32_t>(builder.num_children());
    if (solving.again_from >= builder.level().runs.size()) return;  // nothing to decide
    if (!top.choices.empty()) solving.starts.push_back(top.choices);
    solving.max_columns = options_.max_columns;
    solving.nodes = options_.nodes;
    solving.gap = options_.gap;
    run_clock part = clock_.part(share, "integer program");
    solving.run = part.control();
    const double columns = std::min(options_.max_columns, level_model::size_estimate(builder.level()));
    if (!pays_for_program(solving.run, columns)) {
      figures own;
      own.set("refused", true);
      own.set("ending", "not begun: its first linear program is more than the work that is left");
      c.own.set("h_ilp", {std::move(own)});
      return;
    }
    const double begin = clock_.seconds();
    const level_solution found = hierarchical_ilp(backend_, builder.level(), p_.budget(), solving);
    part.work(found.work);
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
        accept(p_, best_, std::move(plan), by_part(by_part("hiremate", c.name), "h_ilp"));
      }
    }
    c.own.set("h_ilp", {std::move(own)});
  }

  /// The figures of all hierarchies, and the message.
  void report(std::vector<candidate>& hierarchies) {
    std::size_t groups = 0;
    std::size_t chains_left = 0, levels_left = 0, cut_short = 0, tables_refused = 0, programs_refused = 0;
    const auto add = [](const figures& from, const char* name, std::size_t& sum) {
      if (const auto* count = from.find<std::int64_t>(name)) sum += static_cast<std::size_t>(*count);
    };
    figures::group_list all;
    for (candidate& c : hierarchies) all.push_back(std::move(c.own));
    for (const figures& f : all) {
      add(f, "groups", groups);
      add(f, "levels_left", levels_left);
      for (const char* part : {"levels", "chains"})
        if (const auto* list = f.find<figures::group_list>(part))
          for (const figures& own : *list) {
            add(own, "chains_left", chains_left);
            add(own, "chains_refused", chains_left);
            add(own, "cut_short", cut_short);
            add(own, "tables_refused", tables_refused);
            add(own, "programs_refused", programs_refused);
          }
      if (const auto* program = f.find<figures::group_list>("h_ilp"))
        programs_refused += *program->front().find<bool>("refused") ? 1U : 0U;
    }
    if (!all.empty()) {
      best_.message = std::to_string(all.size()) + " hierarchies with " + std::to_string(groups) + " sub-graphs";
      const auto say = [&](std::size_t count, const char* before, const char* after) {
        if (count > 0) best_.message += "; " + (before + std::to_string(count)) + after;
      };
      say(chains_left, "", " chains not solved with options");
      say(levels_left, "", " levels not begun");
      say(cut_short, "the search of ", " sub-graphs cut short");
      say(tables_refused, "", " tables too large");
      say(programs_refused, "", " integer programs not solved");
    }
    best_.statistics.own.set("hierarchies", std::move(all));
  }

  mip_backend_ref backend_;
  const problem& p_;
  const hiremate_options& options_;
  run_clock& clock_;
  solution& best_;
  sub_graph_search groups_;
  hierarchy_chains_options chaining_{};
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

REMAT_INLINE solution solve_hiremate(mip_backend_ref backend, const problem& p, const hiremate_options& options) {
  hiremate_solve::require_valid(p, options);
  return solve_by_own_method(p, "hiremate", options.run, options.improve, true,
                             [&](run_clock& clock, solution& best) -> method_end {
                               if (prove(p, best, clock.limits(0.1))) return {};
                               const problem bounded = p.with_known_bound(best.lower_bound);
                               return {hiremate_solve::search(backend, bounded, options, clock, best).run(), {}};
                             });
}

}  // namespace remat::detail
