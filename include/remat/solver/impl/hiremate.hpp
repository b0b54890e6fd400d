// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/hiremate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"
#include "remat/core/rounding.hpp"
#include "remat/hierarchy/check.hpp"
#include "remat/hierarchy/isomorphism.hpp"
#include "remat/hierarchy/level_builder.hpp"
#include "remat/hierarchy/level_search.hpp"
#include "remat/hierarchy/part_option.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/mip/level_model.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/part_solvers.hpp"
#include "remat/solver/refined.hpp"

namespace remat {

namespace detail::hierarchical {

inline constexpr double infinite = std::numeric_limits<double>::infinity();

/// The problem of one group, solved from the options of its children.
class group_starts {
 public:
  /// Looks at its arguments while it is used.
  group_starts(const flat_graph& g, std::span<const level_child> children, const part_runs& runs, std::int64_t peak,
               std::int64_t save)
      : runs_(runs), peak_(peak), builder_(g, children, runs, peak, save), flat_(runs.problem_within(peak, save)) {
    const std::vector<std::uint32_t>& operations = runs.part().operations;
    for (std::uint32_t i = 0; i < operations.size(); ++i)
      place_.emplace_back(operations[i], i < runs.num_forward() ? i : i + 2);
    std::sort(place_.begin(), place_.end());
  }

  /// The best schedule of `part_runs::problem_within`, or none.
  [[nodiscard]] std::vector<schedule> find(std::span<const level_child> children, run_clock& clock) {
    level_search_options searching;
    searching.prices = 4;
    searching.rounds = 0;
    searching.escalate = false;
    searching.solvers = default_level_solvers();
    const run_control limits = clock.part(0.25);
    run_clock level_clock(limits);
    search_level(builder_, children, peak_, level_clock, searching,
                 [this](const std::vector<level_problem::choice>& choices) { return judge(choices); });
    clock.work(level_clock.work_done());
    return std::move(found_);
  }

 private:
  /// The time of the schedule that the choices expand to. Take and turn are the two runs in the middle of the level.
  double judge(const std::vector<level_problem::choice>& choices) {
    const auto middle = static_cast<std::uint32_t>(builder_.num_children());
    std::size_t taken = 0, turned = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].run == middle) taken = i;
      if (choices[i].run == middle + 1) turned = i;
    }
    const std::span<const level_problem::choice> all(choices);
    std::vector<std::uint32_t> order;
    append(all.first(taken), order);
    order.push_back(runs_.num_forward());
    append(all.subspan(taken, turned - taken), order);
    order.push_back(runs_.num_forward() + 1);
    append(all.subspan(turned), order);
    schedule plan = schedule_computes(flat_, order);
    const check_report r = check(flat_, plan);
    if (!r.valid()) return infinite;
    if (r.time < best_) {
      best_ = r.time;
      found_.assign(1, std::move(plan));
    }
    return r.time;
  }
  void append(std::span<const level_problem::choice> choices, std::vector<std::uint32_t>& order) const {
    for (const std::uint32_t o : builder_.expand(choices))
      order.push_back(std::lower_bound(place_.begin(), place_.end(), std::pair{o, std::uint32_t{0}})->second);
  }

  const part_runs& runs_;
  std::int64_t peak_;
  level_builder builder_;
  problem flat_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> place_;  // operation of the graph, operation of `flat_`
  std::vector<schedule> found_;
  double best_ = infinite;
};

/// The options of every group of a hierarchy, from the deepest level up.
class group_options {
 public:
  group_options(const problem& p, const operation_hierarchy& h, const hiremate_options& options,
                const std::shared_ptr<option_cache>& cache, run_clock& clock)
      : graph_(p.graph()), h_(h), options_(options), cache_(cache), extract_(p.graph(), h), of_group_(h.groups.size()) {
    for (std::uint32_t depth = h.depth(); depth > 0 && !clock.should_stop(); --depth) {
      run_control part = clock.part(1.0 / depth);
      part.on_progress = clock.control().on_progress;
      run_clock part_clock(part);
      solve(depth, part_clock);
      clock.work(part_clock.work_done());
    }
  }

  /// Children with their options, at most `level_options` over all.
  [[nodiscard]] std::vector<level_child> children(std::size_t group) {
    std::vector<level_child> out = children_of(h_, group, extract_);
    std::size_t groups = 0;
    for (std::size_t i = 0; i < out.size(); ++i) groups += h_.is_group(h_.children[group][i]) ? 1U : 0U;
    const std::size_t each = std::max<std::size_t>(2, groups == 0 ? 0 : options_.level_options / groups);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint32_t child = h_.children[group][i];
      if (!h_.is_group(child)) continue;
      const std::vector<part_option>& known = of_group_[h_.group_at(child)];
      if (known.empty()) continue;  // stopped before this group
      out[i].options = known;
      thin_out(out[i].options, each);
    }
    return out;
  }
  [[nodiscard]] const hiremate_report& report() const noexcept { return report_; }

 private:
  void solve(std::uint32_t depth, run_clock& clock) {
    std::vector<std::uint32_t> groups;
    std::vector<step_part> parts;
    for (std::uint32_t g = 1; g < h_.groups.size(); ++g)
      if (h_.groups[g].depth == depth) {
        groups.push_back(g);
        parts.push_back(extract_(g));
      }
    if (groups.empty()) return;
    const std::vector<std::vector<level_child>> below = levels_below(groups);
    option_search search;
    search.most_options = options_.most_options;
    search.moves = options_.moves;
    search.solvers = options_.solvers.thorough ? options_.solvers : default_part_solvers();
    search.cache = cache_;
    search.run = clock.control();
    search.starts = [&](std::size_t i, const part_runs& runs, std::int64_t peak, std::int64_t save,
                        run_clock& part_clock) {
      if (below[i].empty()) return std::vector<schedule>{};
      return group_starts(graph_, below[i], runs, peak, save).find(below[i], part_clock);
    };
    option_table table = find_options(parts, search, clock);
    for (std::size_t i = 0; i < groups.size(); ++i) of_group_[groups[i]] = std::move(table.options[i]);
    report_.groups += groups.size();
    report_.distinct += table.distinct;
    report_.reused += table.reused;
    report_.solves += table.solves;
    report_.proven += table.proven;
  }

  /// For each group that has groups inside, its children. Prepared on this thread: the extractor serves one.
  [[nodiscard]] std::vector<std::vector<level_child>> levels_below(const std::vector<std::uint32_t>& groups) {
    std::vector<std::vector<level_child>> below(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto row = h_.children[groups[i]];
      if (std::any_of(row.begin(), row.end(), [&](std::uint32_t child) { return h_.is_group(child); }))
        below[i] = children(groups[i]);
    }
    return below;
  }

  const flat_graph& graph_;
  const operation_hierarchy& h_;
  const hiremate_options& options_;
  std::shared_ptr<option_cache> cache_;
  part_extractor extract_;
  std::vector<std::vector<part_option>> of_group_;
  hiremate_report report_;
};

/// One solve: the steps of `hiremate_solver`, in its order.
class search {
 public:
  /// `p` has a known bound, and `best` is what is known of its schedules.
  search(const problem& p, const hiremate_options& options, const programs& backend, run_clock& clock, solution& best,
         std::vector<hiremate_report>* reports)
      : p_(p),
        options_(options),
        backend_(backend),
        clock_(clock),
        best_(best),
        reports_(reports),
        cache_(options.cache ? options.cache : std::make_shared<option_cache>()) {}

  stop_reason run() {
    const std::vector<candidate> hierarchies = find_hierarchies();
    for (std::size_t i = 0; i < hierarchies.size(); ++i) {
      if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
      solve_hierarchy(hierarchies[i], 1.0 / static_cast<double>(hierarchies.size() - i));
    }
    for (std::size_t i = 0; nested_ && i < tops_.size() && !good_enough(); ++i) {
      if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
      solve_program(i);
    }
    best_.message = message_of_best();
    stop_reason stopped = clock_.poll();
    if (stopped == stop_reason::none && options_.refine && !(best_.plan && is_optimal(best_.time, best_.lower_bound))) {
      solve_flat();
      stopped = clock_.poll();
    }
    return stopped;
  }

 private:
  struct candidate {
    std::string_view name{};
    operation_hierarchy hierarchy{};
  };
  struct top_level {
    std::vector<level_child> children{};
    std::vector<level_problem::choice> choices{};  // of the best schedule
    double time = infinite;
    std::string text{};
    std::string by{};  // as in `solution::by`, without the part
  };

  [[nodiscard]] bool good_enough() const {
    return best_.plan && best_.time <= best_.lower_bound * (1 + options_.good_enough);
  }

  /// The given hierarchy, or different ones. Graphs where forward and backward operations add to one tensor have none:
  /// no part can hold all the producers of such a sum.
  [[nodiscard]] std::vector<candidate> find_hierarchies() const {
    std::vector<candidate> out;
    if (options_.hierarchy) {
      out.push_back({"given", *options_.hierarchy});
    } else {
      partition_options partitioning;
      partitioning.max_group = options_.max_group;
      partitioning.max_top = options_.max_top;
      using partition = operation_hierarchy (*)(const flat_graph&, const partition_options&);
      const std::pair<std::string_view, partition> partitions[] = {
          {"h_partition", h_partition}, {"repeats", partition_at_repeats}, {"cuts", partition_at_cuts}};
      for (const auto& [name, make] : partitions) {
        if (clock_.should_stop()) break;
        operation_hierarchy h = make(p_.graph(), partitioning);
        const bool known = std::any_of(out.begin(), out.end(), [&](const candidate& c) {
          return c.hierarchy.order == h.order && c.hierarchy.children.values == h.children.values;
        });
        if (!known) out.push_back({name, std::move(h)});
      }
    }
    std::erase_if(out, [&](const candidate& c) {
      std::vector<std::uint8_t> forward(p_.graph().num_operations, 0);
      for (std::uint32_t i = 0; i < c.hierarchy.num_forward; ++i) forward[c.hierarchy.order[i]] = 1;
      return has_mixed_sums(p_.graph(), forward);
    });
    return out;
  }

  /// The options of a hierarchy, and its top level by `search_level`. `share`: of what all hierarchies may use.
  void solve_hierarchy(const candidate& c, double share) {
    run_control solving = clock_.part(0.25 * share);
    solving.on_progress = pass_on(false);
    run_clock options_clock(solving);
    group_options groups(p_, c.hierarchy, options_, cache_, options_clock);
    clock_.work(options_clock.work_done());

    top_level top;
    top.children = groups.children(0);
    hiremate_report report = groups.report();
    report.partition = c.name;
    report.top = top.children.size();
    for (const level_child& child : top.children) report.top_options += child.options.size();
    top.by = by_part("hiremate", c.name);
    search_top(top, share);
    report.searched = report.time = top.time;
    if (reports_) reports_->push_back(report);
    nested_ = nested_ || report.groups > 0;
    top.text = std::string(c.name) + ": " + std::to_string(report.groups) + " sub-graphs, " +
               std::to_string(report.distinct) + " distinct, " + std::to_string(report.solves) + " solves";
    tops_.push_back(std::move(top));
  }

  void search_top(top_level& top, double share) {
    const level_builder builder(p_.graph(), top.children);
    level_search_options searching;
    searching.solvers = default_level_solvers();
    const run_control limits = clock_.part(0.25 * share);
    run_clock level_clock(limits);
    schedule best_plan;
    search_level(builder, top.children, p_.budget(), level_clock, searching,
                 [&](std::vector<level_problem::choice> choices) {
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
    clock_.work(level_clock.work_done());
    if (best_plan.steps.empty()) return;
    starts_.push_back(best_plan);
    accept(p_, best_, std::move(best_plan), by_part(top.by, "search_level"));
  }

  /// The integer program of a top level.
  void solve_program(std::size_t i) {
    top_level& top = tops_[i];
    const level_builder builder(p_.graph(), top.children);
    hierarchical_ilp_options solving;
    // Before the turn no run is worth repeating.
    solving.again_from = static_cast<std::uint32_t>(builder.num_children());
    if (solving.again_from >= builder.level().runs.size()) return;
    if (!top.choices.empty()) solving.starts.push_back(top.choices);
    solving.most_columns = options_.most_columns;
    solving.default_nodes = options_.nodes;
    solving.good_enough = options_.good_enough;
    solving.run = clock_.part(0.2 / static_cast<double>(tops_.size() - i));
    solving.run.on_progress = pass_on(false);
    double moves_per_node = 1;
    if (solving.run.work_limit != run_control::no_work_limit) {
      // The first linear program takes time in proportion to the square of the columns, or more.
      const auto work = static_cast<double>(solving.run.work_limit);
      solving.most_columns = std::min(options_.most_columns, std::sqrt(work * columns_squared_per_move));
      const double columns = std::min(solving.most_columns, level_model::size_estimate(builder.level()));
      moves_per_node = std::max(1.0, columns * columns / columns_squared_per_move);
      solving.run.work_limit = std::min(options_.nodes, static_cast<std::uint64_t>(work / moves_per_node));
      if (solving.run.work_limit == 0) return;
    }
    const level_solution found = backend_.level(builder.level(), p_.budget(), solving);
    clock_.work(static_cast<std::uint64_t>(static_cast<double>(found.nodes) * moves_per_node));
    if (!found.message.empty()) top.text += "; top level, " + found.message;
    if (!found.found) return;
    schedule plan = schedule_computes(p_, builder.expand(found.choices));
    const check_report r = check(p_, plan);
    if (!r.valid()) return;
    top.time = std::min(top.time, r.time);
    if (reports_) (*reports_)[i].time = top.time;
    starts_.push_back(plan);
    accept(p_, best_, std::move(plan), by_part(top.by, "h_ilp"));
  }

  /// The message of the hierarchy that did best.
  [[nodiscard]] std::string message_of_best() const {
    const auto best = std::min_element(tops_.begin(), tops_.end(),
                                       [](const top_level& a, const top_level& b) { return a.time < b.time; });
    return nested_ && best != tops_.end() ? best->text : std::string();
  }

  /// The problem of all operations: `refined` from the schedules so far, or without groups `checkmate`.
  void solve_flat() {
    run_control rest = clock_.part(1);
    rest.on_progress = pass_on(true);
    solution s;
    if (nested_) {
      refined_options last;
      last.starts = std::move(starts_);
      last.run = std::move(rest);
      s = refined(p_, last);
    } else {
      checkmate_options last;
      last.starts = std::move(starts_);
      last.default_nodes = options_.nodes;
      last.most_columns = options_.most_columns;
      last.run = std::move(rest);
      s = backend_.flat(p_, last);
      best_.message = s.message;
    }
    clock_.work(s.statistics.work);
    best_.lower_bound = std::max(best_.lower_bound, s.lower_bound);
    if (s.status == solve_status::infeasible) {
      best_.obstacle = s.obstacle;
      best_.message = s.message;
    }
    if (s.plan) accept(p_, best_, std::move(*s.plan), by_part("hiremate", s.by));
  }

  /// Passes on the progress of a part under the name of this solver; empty where nobody listens. The objective of a
  /// part that solves the whole problem (`of_whole`) is one of the problem.
  [[nodiscard]] std::function<void(const progress&)> pass_on(bool of_whole) {
    if (!options_.run.on_progress) return nullptr;
    return [this, of_whole](progress news) {
      news.solver = "hiremate";
      if (of_whole && nested_) news.stage = "refinement";
      if (!of_whole) news.best_objective = best_.time;
      news.best_objective = std::min(news.best_objective, best_.time);
      news.lower_bound = best_.lower_bound;
      clock_.report(news);
    };
  }

  static constexpr double columns_squared_per_move = 200;

  const problem& p_;
  const hiremate_options& options_;
  const programs& backend_;
  run_clock& clock_;
  solution& best_;
  std::vector<hiremate_report>* reports_;
  std::shared_ptr<option_cache> cache_;
  std::vector<top_level> tops_{};
  std::vector<schedule> starts_{};
  bool nested_ = false;  // some hierarchy has groups; else the top level is the graph itself, its program Checkmate's
};

inline void require_valid(const problem& p, const hiremate_options& options) {
  if (options.max_group < 2)
    throw bad_argument("hiremate: max_group is " + std::to_string(options.max_group) + "; it must be at least 2");
  if (options.max_top < 1) throw bad_argument("hiremate: max_top is 0; it must be at least 1");
  const auto require_not_negative = [](double x, const char* name) {
    if (!(x >= 0))
      throw bad_argument("hiremate: " + std::string(name) + " is " + std::to_string(x) + "; it must not be negative");
  };
  require_not_negative(options.good_enough, "good_enough");
  require_not_negative(options.most_columns, "most_columns");
  if (!options.hierarchy) return;
  const hierarchy_report r = check_hierarchy(p.graph(), *options.hierarchy);
  if (!r.valid())
    throw bad_argument("hiremate: the given hierarchy is not one of the problem's graph: " + r.violations.front());
}

REMAT_INLINE solution solve(const problem& p, const hiremate_options& options, const programs& backend,
                            std::vector<hiremate_report>* reports) {
  require_valid(p, options);
  run_clock clock(options.run);
  solution best;
  stop_reason stopped = clock.poll();
  if (stopped == stop_reason::none && !settled_by_listed_order(p, best, "hiremate")) {
    run_control proving;
    proving.stop = options.run.stop;
    proving.time_limit = share_of(clock.left(), 0.1);
    if (!prove(p, best, proving)) {
      const problem bounded = p.with_known_bound(best.lower_bound);
      stopped = search(bounded, options, backend, clock, best, reports).run();
    }
  }
  conclude(p, best, clock, stopped);
  return best;
}

}  // namespace detail::hierarchical

}  // namespace remat
