// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/hierarchy/find_options.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/isomorphism.hpp"
#include "remat/hierarchy/level_builder.hpp"
#include "remat/hierarchy/level_search.hpp"
#include "remat/hierarchy/part_option.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/level_model.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/checkmate.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/refined.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

struct hiremate_options {
  /// The hierarchy to go by; none: those of `h_partition`, `partition_at_repeats` and `partition_at_cuts`, all of them.
  std::optional<operation_hierarchy> hierarchy{};
  std::uint32_t max_group = 20, max_top = 30;  ///< `partition_options`
  std::size_t most_options = 12;               ///< of a sub-graph
  std::size_t level_options = 100;             ///< of all sub-graphs of a level together, N_o
  std::shared_ptr<option_cache> cache{};       ///< to be shared by solves for several budgets, or of several steps
  std::uint64_t moves = 4000;                  ///< `option_search::moves`
  /// The integer program of the top level is begun where the answer is not this close to the proven bound, as a part of
  /// it.
  double good_enough = 1e-3;
  double most_columns = 6'000;  ///< … and where its model has no more columns
  std::uint64_t nodes = 100;    ///< of the backend's search at most, unless there is a limit on time
  bool refine = true;           ///< the flat schedule, at last
  run_control run{};
};

/// What a hierarchy gave, for tables.
struct hiremate_report {
  std::string_view partition{};
  std::size_t groups = 0;    ///< sub-graphs, without the whole step
  std::size_t distinct = 0;  ///< of these, up to renaming
  std::size_t reused = 0;    ///< of the distinct ones, from the cache
  std::size_t solves = 0, proven = 0;
  std::size_t top = 0;          ///< children of the whole step
  std::size_t top_options = 0;  ///< of all of them
  double searched =
      std::numeric_limits<double>::infinity();            ///< time of the best schedule by `search_level`, as expanded
  double time = std::numeric_limits<double>::infinity();  ///< … with the integer program
};

namespace detail::hierarchical {

/// The options of every group of a hierarchy, from the deepest level up.
class group_options {
 public:
  group_options(const problem& p, const operation_hierarchy& h, const hiremate_options& options, run_clock& clock)
      : step_(p.graph()), h_(h), options_(options), extract_(p.graph(), h), of_group_(h.groups.size()) {
    for (std::uint32_t depth = h.depth(); depth > 0 && !clock.should_stop(); --depth) solve(depth, clock);
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
      if (known.empty()) continue;  // it was stopped before
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
    // Levels below, for those that have one: prepared here, since the extractor serves one thread.
    std::vector<std::vector<level_child>> below(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i)
      for (const std::uint32_t child : h_.children[groups[i]])
        if (h_.is_group(child)) {
          below[i] = children(groups[i]);
          break;
        }
    option_search search;
    search.most_options = options_.most_options;
    search.moves = options_.moves;
    search.cache = options_.cache;
    search.run = options_.run;
    search.starts = [&](std::size_t i, const part_runs& runs, std::int64_t peak, std::int64_t save) {
      std::vector<schedule> out;
      if (!below[i].empty()) out = starts_from_below(below[i], runs, peak, save);
      return out;
    };
    option_table table = find_options(parts, search, clock);
    for (std::size_t i = 0; i < groups.size(); ++i) of_group_[groups[i]] = std::move(table.options[i]);
    report_.groups += groups.size();
    report_.distinct += table.distinct;
    report_.reused += table.reused;
    report_.solves += table.solves;
    report_.proven += table.proven;
  }

  /// What the options of a group's children make of the group as a problem of its own.
  [[nodiscard]] std::vector<schedule> starts_from_below(std::span<const level_child> children, const part_runs& runs,
                                                        std::int64_t peak, std::int64_t save) const {
    const level_builder builder(step_, children, runs, peak, save);
    const problem flat = runs.problem_within(peak, save);
    const std::vector<std::uint32_t>& operations = runs.part().operations;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> place;
    for (std::uint32_t i = 0; i < operations.size(); ++i)
      place.emplace_back(operations[i], i < runs.num_forward() ? i : i + 2);
    std::sort(place.begin(), place.end());
    std::vector<schedule> found;
    double best = std::numeric_limits<double>::infinity();
    level_search_options searching;
    searching.prices = 4;
    searching.rounds = 0;
    searching.insist = false;
    searching.run.stop = options_.run.stop;
    run_clock clock(searching.run);
    search_level(builder, children, peak, clock, searching, [&](const std::vector<level_problem::choice>& choices) {
      std::vector<std::uint32_t> order;
      const auto add = [&](std::span<const level_problem::choice> some) {
        for (const std::uint32_t o : builder.expand(some))
          order.push_back(std::lower_bound(place.begin(), place.end(), std::pair{o, std::uint32_t{0}})->second);
      };
      // Take and turn are the level's two runs in the middle.
      std::size_t taken = 0, turned = 0;
      const auto middle = static_cast<std::uint32_t>(children.size());
      for (std::size_t i = 0; i < choices.size(); ++i) {
        if (choices[i].run == middle) taken = i;
        if (choices[i].run == middle + 1) turned = i;
      }
      const std::span<const level_problem::choice> all(choices);
      add(all.first(taken));
      order.push_back(runs.num_forward());
      add(all.subspan(taken, turned - taken));
      order.push_back(runs.num_forward() + 1);
      add(all.subspan(turned));
      schedule plan = schedule_computes(flat, order);
      const check_report r = check(flat, plan);
      if (!r.valid()) return std::numeric_limits<double>::infinity();
      if (r.time < best) {
        best = r.time;
        found.assign(1, std::move(plan));
      }
      return r.time;
    });
    return found;
  }

  const flat_graph& step_;
  const operation_hierarchy& h_;
  const hiremate_options& options_;
  part_extractor extract_;
  std::vector<std::vector<part_option>> of_group_;
  hiremate_report report_;
};

}  // namespace detail::hierarchical

/// HiRemate: the step in nested groups, each distinct group solved once for many budgets, the whole put together from
/// the options that these give, and refined. \cite gusak2025hiremate
///
/// 1. A hierarchy, or several that compete: H-Partition, repeats, cuts of fewest bytes.
/// 2. From the bottom up, the options of each group (`find_options`): groups that are equal up to renaming (and times)
///    share them, and a cache keeps them for other budgets and steps. A group of groups starts from what its children's
///    options make of it, and is then solved whole.
/// 3. The top level, for the true budget: options by a price on saved bytes, the runs by eviction (`search_level`), and
///    the hierarchical integer program on the backend, from the best of these, where it is small enough.
/// 4. Every schedule of the top level is expanded to operations, freed as early as can be, and checked; the best ones
///    are where `refined` starts from. A step that is too small for groups goes to `checkmate`, on the same backend.
///
/// Differs from the paper: groups are solved flat and mostly to the proven optimum of their budgets, where the paper
/// takes integer programs with a time limit; backwards run once in a level; eviction, TwRemat and refinement have their
/// say; and the answer has a proven bound. Heuristic: `optimal` and `infeasible` come from that bound alone.
///
/// Of a limit on time, a quarter at most goes to the options, as much to the top level, a fifth to the integer program,
/// the rest to `refined`; a limit on work is counted in moves of `refined` and nodes of the backend. For a seed and a
/// limit on work the answer is the same for any number of threads. Polls before each sub-problem.
template <mip_backend Backend>
struct hiremate_solver {
  using options_type = hiremate_options;
  static constexpr std::string_view name = "hiremate";
  Backend backend{};

  [[nodiscard]] solution operator()(const problem& p, const hiremate_options& options = {}) const {
    return solve(p, options, nullptr);
  }

  /// \overload
  /// What each hierarchy gave goes to `reports`.
  [[nodiscard]] solution operator()(const problem& p, const hiremate_options& options,
                                    std::vector<hiremate_report>& reports) const {
    reports.clear();
    return solve(p, options, &reports);
  }

 private:
  [[nodiscard]] solution solve(const problem& p, const hiremate_options& options,
                               std::vector<hiremate_report>* reports) const {
    const run_control& run = options.run;
    run_clock clock(run);
    solution best;
    stop_reason stopped = clock.poll();
    const auto finish = [&] {
      conclude(p, best, clock, stopped);
      return std::move(best);
    };
    if (stopped != stop_reason::none || settled_by_listed_order(p, best)) return finish();
    run_control proving;
    proving.stop = run.stop;
    proving.time_limit = share_of(clock.left(), 0.1);
    if (prove(p, best, proving)) return finish();
    const problem q = p.with_known_bound(best.lower_bound);
    const auto enough = [&] { return best.plan && best.time <= best.lower_bound * (1 + options.good_enough); };

    std::vector<std::pair<std::string_view, operation_hierarchy>> hierarchies;
    if (options.hierarchy) {
      hierarchies.emplace_back("given", *options.hierarchy);
    } else {
      partition_options partitioning;
      partitioning.max_group = options.max_group;
      partitioning.max_top = options.max_top;
      hierarchies.emplace_back("h_partition", h_partition(p.graph(), partitioning));
      hierarchies.emplace_back("repeats", partition_at_repeats(p.graph(), partitioning));
      hierarchies.emplace_back("cuts", partition_at_cuts(p.graph(), partitioning));
      for (std::size_t i = hierarchies.size(); i-- > 1;)
        for (std::size_t j = 0; j < i; ++j)
          if (hierarchies[i].second.order == hierarchies[j].second.order &&
              hierarchies[i].second.children.values == hierarchies[j].second.children.values) {
            hierarchies.erase(hierarchies.begin() + static_cast<std::ptrdiff_t>(i));
            break;
          }
    }

    // No part of a step can hold all that makes a sum of forward and backward operations: those are solved flat.
    std::erase_if(hierarchies, [&](const auto& candidate) {
      const operation_hierarchy& h = candidate.second;
      std::vector<std::uint8_t> forward(p.graph().num_operations, 0);
      for (std::uint32_t i = 0; i < h.num_forward; ++i) forward[h.order[i]] = 1;
      return has_mixed_sums(p.graph(), forward);
    });

    // Options and the top level, for each hierarchy.
    hiremate_options shared = options;
    if (!shared.cache) shared.cache = std::make_shared<option_cache>();
    std::vector<schedule> starts;
    struct top_level {
      std::vector<level_child> children{};
      std::vector<level_problem::choice> choices{};
      double time = std::numeric_limits<double>::infinity();
      std::string text{};
    };
    std::vector<top_level> tops;
    double leading = std::numeric_limits<double>::infinity();
    bool nested = false;  // else the top level is the step itself, and its program Checkmate's
    std::string text;
    for (std::size_t i = 0; i < hierarchies.size(); ++i) {
      const auto& [name_of, h] = hierarchies[i];
      stopped = clock.poll();
      if (stopped != stop_reason::none) return finish();
      const double left = 1.0 / static_cast<double>(hierarchies.size() - i);
      run_control solving = run;
      solving.time_limit = share_of(clock.left(), 0.25 * left);
      solving.work_limit = run_control::no_work_limit;
      if (run.on_progress)
        solving.on_progress = [&](progress news) {
          news.solver = name;
          news.best_objective = best.time;
          news.lower_bound = best.lower_bound;
          clock.report(news);
        };
      shared.run = solving;
      run_clock options_clock(shared.run);
      detail::hierarchical::group_options groups(q, h, shared, options_clock);
      clock.work(options_clock.work_done());
      top_level top;
      top.children = groups.children(0);
      hiremate_report report = groups.report();
      report.partition = name_of;
      report.top = top.children.size();
      for (const level_child& c : top.children) report.top_options += c.options.size();
      const level_builder builder(q.graph(), top.children);
      level_search_options searching;
      searching.run.stop = run.stop;
      searching.run.seed = run.seed;
      searching.run.time_limit = share_of(clock.left(), 0.25 * left);
      run_clock level_clock(searching.run);
      schedule plan_of_top;
      search_level(builder, top.children, q.budget(), level_clock, searching,
                   [&](std::vector<level_problem::choice> choices) {
                     schedule plan = schedule_computes(q, builder.expand(choices));
                     const check_report r = check(q, plan);
                     if (!r.valid()) return std::numeric_limits<double>::infinity();
                     if (r.time < top.time) {
                       top.time = r.time;
                       top.choices = std::move(choices);
                       plan_of_top = std::move(plan);
                     }
                     return r.time;
                   });
      clock.work(level_clock.work_done());
      report.searched = report.time = top.time;
      if (reports) reports->push_back(report);
      if (!plan_of_top.steps.empty()) {
        starts.push_back(plan_of_top);
        accept(q, best, std::move(plan_of_top));
      }
      nested = nested || report.groups > 0;
      top.text = std::string(name_of) + ": " + std::to_string(report.groups) + " sub-graphs, " +
                 std::to_string(report.distinct) + " distinct, " + std::to_string(report.solves) + " solves";
      tops.push_back(std::move(top));
    }

    for (std::size_t i = 0; nested && i < tops.size() && !enough(); ++i) {
      stopped = clock.poll();
      if (stopped != stop_reason::none) return finish();
      const level_builder builder(q.graph(), tops[i].children);
      const level_solution found =
          program(q, builder, tops[i].choices, options, 0.2 / static_cast<double>(tops.size() - i), best, clock);
      if (!found.message.empty()) tops[i].text += "; top level, " + found.message;
      if (!found.found) continue;
      schedule plan = schedule_computes(q, builder.expand(found.choices));
      const check_report r = check(q, plan);
      if (!r.valid()) continue;
      tops[i].time = std::min(tops[i].time, r.time);
      if (reports) (*reports)[i].time = tops[i].time;
      starts.push_back(plan);
      accept(q, best, std::move(plan));
    }
    // The message is of the hierarchy that did best.
    for (const top_level& top : tops)
      if (nested && (text.empty() || top.time < leading)) {
        text = top.text;
        leading = top.time;
      }
    stopped = clock.poll();
    if (stopped == stop_reason::none && options.refine && !enough_for_good(best)) {
      run_control rest = run;
      rest.time_limit = clock.left();
      if (run.work_limit != run_control::no_work_limit) rest.work_limit = run.work_limit - clock.work_done();
      if (run.on_progress)
        rest.on_progress = [&](progress news) {
          news.solver = name;
          news.stage = "refinement";
          clock.report(news);
        };
      solution s;
      if (nested) {
        refined_options last;
        last.starts = std::move(starts);
        last.run = rest;
        s = refined(q, last);
      } else {
        checkmate_options last;
        last.starts = std::move(starts);
        last.default_nodes = options.nodes;
        last.most_columns = options.most_columns;
        last.run = rest;
        s = checkmate_with(backend)(q, last);
        text += (text.empty() || s.message.empty() ? "" : "; ") + s.message;
      }
      clock.work(s.statistics.work);
      best.lower_bound = std::max(best.lower_bound, s.lower_bound);
      if (s.status == solve_status::infeasible) {
        best.lower_bound = s.lower_bound;
        best.obstacle = s.obstacle;
        text = s.message;
      }
      if (s.plan) accept(q, best, std::move(*s.plan));
      stopped = clock.poll();
    }
    best.message = text;
    return finish();
  }

  [[nodiscard]] static bool enough_for_good(const solution& best) {
    return best.plan && best.time <= best.lower_bound * (1 + 1e-12);
  }

  /// The integer program of a top level.
  [[nodiscard]] level_solution program(const problem& q, const level_builder& builder,
                                       std::span<const level_problem::choice> start, const hiremate_options& options,
                                       double part, const solution& best, run_clock& clock) const {
    hierarchical_ilp_options solving;
    if (!start.empty()) solving.starts.emplace_back(start.begin(), start.end());
    solving.most_columns = options.most_columns;
    solving.default_nodes = options.nodes;
    // Before the turn nothing is worth running again.
    solving.again_from = static_cast<std::uint32_t>(builder.num_children());
    if (solving.again_from >= builder.level().runs.size()) return {};
    solving.good_enough = options.good_enough;
    solving.run = options.run;
    solving.run.time_limit = share_of(clock.left(), part);
    if (options.run.work_limit != run_control::no_work_limit)
      solving.run.work_limit = std::min(options.nodes, (options.run.work_limit - clock.work_done()) / 4);
    if (options.run.on_progress)
      solving.run.on_progress = [&](progress news) {
        news.solver = name;
        news.best_objective = best.time;  // its own are of the level
        news.lower_bound = best.lower_bound;
        clock.report(news);
      };
    level_solution s = hierarchical_ilp(backend, builder.level(), q.budget(), solving);
    clock.work(s.nodes);
    return s;
  }
};

/// HiRemate on a backend: `hiremate_with(branch_and_bound)(problem, options)`.
template <mip_backend Backend>
[[nodiscard]] constexpr hiremate_solver<Backend> hiremate_with(Backend backend) {
  return {std::move(backend)};
}

}  // namespace remat
