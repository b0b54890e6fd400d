// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/chain_search.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_ways.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/detail/way_cache.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/method/hiremate/impl/sub_graph_ways.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/figures.hpp"
#include "remat/solver/solution.hpp"

namespace remat::detail {

/// How `hierarchy_chains` searches.
struct hierarchy_chains_options {
  sub_graph_search sub_graphs{};                     ///< who finds the options of stages
  std::uint32_t slots = 500;                         ///< parts of the memory, 1 … 2^24
  std::size_t max_stages = 150;                      ///< of a chain, at least 1
  std::int64_t table_bytes = std::int64_t{1} << 30;  ///< larger tables are not filled
  /// The largest sum of the efforts of the distinct sub-graphs that are given options. The effort of n operations is
  /// n · min(n, 200). One unit takes some 15 µs.
  std::uint64_t max_effort = 500'000;
  std::size_t finer = 8;  ///< the best chains that are solved again with four times as many slots
  double gap = 0;         ///< end with a time of at most (1 + gap) × the proven bound
};

/// Schedules of the whole graph from the chains of hierarchies: at each depth, the groups of a hierarchy are the stages
/// of a chain, and so are pairs, triples … of neighbours. Rotor's dynamic program (`chain_program`) solves each chain,
/// first with its stages as they are, then with the options of its stages, where chains whose distinct stages have the
/// fewest operations come first. Stages that are equal up to renaming and times are solved once. A large stage is
/// divided into the stages of a finer chain that has been solved before.
///
/// Work is that of `search_chain` and `find_sub_graph_ways`. Polls before each chain, and as those two do.
class hierarchy_chains {
 public:
  /// Keeps references to its arguments.
  hierarchy_chains(const problem& p, const hierarchy_chains_options& options) : p_(p), options_(options) {}
  hierarchy_chains(const hierarchy_chains&) = delete;
  hierarchy_chains& operator=(const hierarchy_chains&) = delete;

  /// Adds the chains of a hierarchy. `name` is kept: it must outlive this object. With `levels` also the chains of all
  /// `cut_levels` of its line. O(size of the chains) time.
  void add(std::string_view name, const operation_hierarchy& h, bool levels = false) {
    const std::size_t l = line_index(line_of(p_.graph(), h));
    std::vector<cut_list> all = chains_of(h, lines_[l].line, options_.max_stages);
    if (levels)
      for (cut_list& cuts : cut_levels(lines_[l].line, options_.max_stages - 1)) all.push_back(std::move(cuts));
    add_chains(name, l, std::move(all));
  }

  /// Adds the chains of a line (`chains_of_line`).
  void add_line(std::string_view name, const forward_line& line) {
    add_chains(name, line_index(line), chains_of_line(line, options_.max_stages));
  }

  /// Solves again, without options, the chains of `name`, with the operations of each stage in an order of little
  /// memory and sizes rounded up: for budgets where the listed order of the operations needs too much.
  void solve_narrow(std::string_view name, run_clock& clock, solution& best, std::string_view solver) {
    for (std::size_t i = 0; i < chains_.size() && !clock.should_stop() && !is_near_bound(best); ++i) {
      if (chains_[i].name != name) continue;
      chain_entry c = chains_[i];
      c.order = stage_order::least_peak;
      solve(c, false, options_.slots, clock, best, solver);
    }
  }

  /// Solves the chains without options. `best` takes the schedules, found by "SOLVER/NAME/chain".
  void solve_plain(run_clock& clock, solution& best, std::string_view solver) {
    for (std::size_t i = 0; i < chains_.size() && !clock.should_stop() && !is_near_bound(best); ++i) {
      chain_entry c = chains_[i];
      solve(c, false, options_.slots, clock, best, solver);
    }
  }
  /// Solves the chains with the options of their stages.
  void solve_with_ways(run_clock& clock, solution& best, std::string_view solver) {
    std::vector<std::pair<std::uint64_t, std::size_t>> turn;  // effort, chain
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      if (clock.should_stop()) {
        ++counts_[chains_[i].name].left;
        continue;
      }
      find_stages(chains_[i]);
      turn.emplace_back(effort_of(chains_[i], true), i);
    }
    std::stable_sort(turn.begin(), turn.end());
    std::uint64_t spent = 0;
    for (std::size_t k = 0; k < turn.size(); ++k) {
      chain_entry& c = chains_[turn[k].second];
      if (is_near_bound(best)) return;
      if (clock.should_stop()) {
        ++counts_[c.name].left;
        continue;
      }
      const std::uint64_t effort = effort_of(c, false);
      if (spent + effort > options_.max_effort) {
        ++counts_[c.name].refused;
        continue;
      }
      spent += effort;
      find_ways(c, clock);
      if (clock.should_stop()) {
        ++counts_[c.name].left;
        continue;
      }
      solve(c, true, options_.slots, clock, best, solver);
      ++counts_[c.name].with_ways;
      lines_[c.line].solved.push_back(turn[k].second);
    }
  }
  /// Solves the best chains again with more slots.
  void solve_finer(run_clock& clock, solution& best, std::string_view solver) {
    std::stable_sort(good_.begin(), good_.end(),
                     [](const chain_entry& a, const chain_entry& b) { return a.time < b.time; });
    std::vector<chain_entry> chosen(
        good_.begin(), good_.begin() + static_cast<std::ptrdiff_t>(std::min(good_.size(), options_.finer)));
    const auto slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{options_.slots} * 4, 1U << 24));
    for (chain_entry& c : chosen) {
      if (clock.should_stop() || is_near_bound(best)) return;
      solve(c, c.with_ways, slots, clock, best, solver);
    }
  }

  /// The figures of one hierarchy: `chains`, `chains_with_ways`, `chains_left` (not solved with options because of
  /// limits), `chains_refused` (because of `max_effort`), `tables_refused` (because of `table_bytes`, those of stages
  /// included); of the search for options of its stages: `distinct` (without those known from a cache), `solves`,
  /// `tables`, `programs`, `programs_refused` and `cut_short`, as in `sub_graph_table`; of its best chain: `stages`,
  /// `distinct_stages` (with options alone), `options`, `table_time`, `flat_time`, `time`. Empty for an unknown name.
  [[nodiscard]] figures figures_of(std::string_view name) const {
    figures out;
    const auto at = counts_.find(name);
    if (at == counts_.end()) return out;
    const counts& mine = at->second;
    out.set("chains", mine.chains);
    out.set("chains_with_ways", mine.with_ways);
    out.set("chains_left", mine.left);
    out.set("chains_refused", mine.refused);
    out.set("tables_refused", mine.tables_refused + mine.solves.tables_refused);
    out.set("distinct", mine.solves.distinct);
    out.set("solves", mine.solves.solves);
    out.set("tables", mine.solves.tables);
    out.set("programs", mine.solves.programs);
    out.set("programs_refused", mine.solves.refused);
    out.set("cut_short", mine.solves.cut_short);
    if (mine.time > 0) {
      out.set("stages", mine.stages);
      if (mine.distinct > 0) out.set("distinct_stages", mine.distinct);
      out.set("ways", mine.ways);
      out.set("table_time", mine.table_time);
      out.set("flat_time", mine.flat_time);
      out.set("time", mine.time);
    }
    return out;
  }

 private:
  struct stage {
    sub_graph part{};
    std::uint64_t key = 0;  // fingerprint
    bool stands_alone = false, known = false;
    std::vector<sub_graph_way> ways{};
  };
  struct line_entry {
    forward_line line{};
    std::vector<std::uint32_t> order{};
    std::vector<std::size_t> solved{};  // chains with options
  };
  struct chain_entry {
    std::string_view name{};
    std::size_t line = 0;
    cut_list cuts{};
    std::vector<std::size_t> stages{};  // indices of stages_
    stage_order order = stage_order::listed;
    bool with_ways = false;
    double time = 0;  // of the best schedule
  };
  struct counts {
    std::size_t chains = 0, with_ways = 0, refused = 0, tables_refused = 0, left = 0;
    std::size_t stages = 0, distinct = 0, ways = 0;
    double table_time = 0, flat_time = 0, time = 0;
    sub_graph_table solves{};
  };

  [[nodiscard]] std::size_t line_index(const forward_line& line) {
    std::size_t l = 0;
    while (l < lines_.size() && lines_[l].line.operations != line.operations) ++l;
    if (l < lines_.size()) return l;
    line_entry entry;
    entry.order = line.operations;
    entry.order.insert(entry.order.end(), line.rest.begin(), line.rest.end());
    entry.line = line;
    lines_.push_back(std::move(entry));
    return l;
  }
  void add_chains(std::string_view name, std::size_t line, std::vector<cut_list> chains) {
    counts& mine = counts_[name];
    for (cut_list& cuts : chains) {
      const bool known = std::any_of(chains_.begin(), chains_.end(),
                                     [&](const chain_entry& c) { return c.line == line && c.cuts == cuts; });
      if (known) continue;
      chain_entry c;
      c.name = name;
      c.line = line;
      c.cuts = std::move(cuts);
      chains_.push_back(std::move(c));
      ++mine.chains;
    }
  }
  [[nodiscard]] bool is_near_bound(const solution& best) const {
    return best.plan && is_within_gap(best.time, best.lower_bound, options_.gap);
  }
  void find_stages(chain_entry& c) {
    const line_entry& l = lines_[c.line];
    const stage_chain chain(p_.graph(), l.line, c.cuts);
    sub_graph_extractor extract(p_.graph(), l.order, static_cast<std::uint32_t>(l.line.operations.size()));
    c.stages.clear();
    for (std::uint32_t s = 1; s <= chain.length(); ++s) {
      std::vector<std::uint32_t> operations(chain.forward(s).begin(), chain.forward(s).end());
      operations.insert(operations.end(), chain.backward(s).begin(), chain.backward(s).end());
      c.stages.push_back(stage_of(std::move(operations), extract));
    }
  }
  [[nodiscard]] std::size_t stage_of(std::vector<std::uint32_t> operations, sub_graph_extractor& extract) {
    const auto at = stage_index_.find(operations);
    if (at != stage_index_.end()) return at->second;
    stage s;
    s.part = extract(operations);
    s.key = fingerprint(s.part, way_cache::likeness());
    const sub_graph_runs runs(s.part);
    std::vector<std::uint32_t> all(s.part.operations.size());
    for (std::uint32_t o = 0; o < all.size(); ++o) all[o] = o;
    const std::span<const std::uint32_t> every(all);
    s.stands_alone = runs.measure(every.first(runs.num_forward()), every.subspan(runs.num_forward())).has_value();
    stages_.push_back(std::move(s));
    stage_index_.emplace(std::move(operations), stages_.size() - 1);
    return stages_.size() - 1;
  }
  [[nodiscard]] std::vector<level_child> children_of(const chain_entry& c, std::size_t s, std::uint32_t begin,
                                                     std::uint32_t end) const {
    std::vector<level_child> best;
    std::vector<std::uint32_t> mine = stages_[c.stages[s]].part.operations;
    std::sort(mine.begin(), mine.end());
    for (const std::size_t i : lines_[c.line].solved) {
      const chain_entry& finer = chains_[i];
      const auto has = [&](std::uint32_t at) {
        return at == 0 || at == lines_[c.line].line.operations.size() ||
               std::binary_search(finer.cuts.begin(), finer.cuts.end(), at);
      };
      if (!has(begin) || !has(end)) continue;
      const auto index_of = [&](std::uint32_t at) {  // of the stage that begins there
        return static_cast<std::size_t>(std::upper_bound(finer.cuts.begin(), finer.cuts.end(), at) -
                                        finer.cuts.begin());
      };
      const std::size_t first = index_of(begin);
      const std::size_t last = end == lines_[c.line].line.operations.size() ? finer.stages.size() : index_of(end);
      if (last < first + 2 || (!best.empty() && best.size() <= last - first)) continue;
      std::vector<std::uint32_t> theirs;
      std::vector<level_child> children;
      for (std::size_t k = first; k < last; ++k) {
        const stage& child = stages_[finer.stages[k]];
        if (!child.known) break;
        theirs.insert(theirs.end(), child.part.operations.begin(), child.part.operations.end());
        children.push_back({child.part, child.ways});
      }
      std::sort(theirs.begin(), theirs.end());
      if (theirs == mine) best = std::move(children);
    }
    return best;
  }
  void find_ways(const chain_entry& c, run_clock& clock) {
    std::vector<divided_sub_graph> wanted;
    std::vector<std::size_t> to;
    const auto n = static_cast<std::uint32_t>(lines_[c.line].line.operations.size());
    for (std::size_t s = 0; s < c.stages.size(); ++s) {
      const stage& mine = stages_[c.stages[s]];
      if (!mine.stands_alone || mine.known) continue;
      const std::uint32_t begin = s == 0 ? 0 : c.cuts[s - 1], end = s < c.cuts.size() ? c.cuts[s] : n;
      wanted.push_back(
          {mine.part, mine.part.operations.size() > 60 ? children_of(c, s, begin, end) : std::vector<level_child>{}});
      to.push_back(c.stages[s]);
    }
    if (wanted.empty()) return;
    sub_graph_table table = find_sub_graph_ways(p_.graph(), wanted, options_.sub_graphs, clock);
    for (std::size_t i = 0; i < to.size(); ++i) {
      stages_[to[i]].ways = std::move(table.ways[i]);
      stages_[to[i]].known = true;
    }
    sub_graph_table& sum = counts_[c.name].solves;
    sum.distinct += table.distinct - table.reused;
    sum.solves += table.solves;
    sum.tables += table.tables;
    sum.tables_refused += table.tables_refused;
    sum.programs += table.programs;
    sum.refused += table.refused;
    sum.cut_short += table.cut_short;
  }
  [[nodiscard]] std::vector<std::vector<stage_way>> ways_of(const chain_entry& c) const {
    std::vector<std::vector<stage_way>> out(c.stages.size() + 1);
    for (std::size_t s = 0; s < c.stages.size(); ++s) {
      const stage& mine = stages_[c.stages[s]];
      for (const sub_graph_way& o : mine.ways) {
        stage_way way;
        for (const std::uint32_t k : o.forward) way.forward.push_back(mine.part.operations[k]);
        for (const std::uint32_t k : o.backward) way.backward.push_back(mine.part.operations[k]);
        out[s + 1].push_back(std::move(way));
      }
    }
    return out;
  }
  /// Distinct stages that have to be given options, as `max_effort` counts them; with `known` those that have them,
  /// too.
  [[nodiscard]] std::uint64_t effort_of(const chain_entry& c, bool known) const {
    std::set<std::uint64_t> keys;
    std::uint64_t effort = 0;
    for (const std::size_t s : c.stages) {
      const std::uint64_t size = stages_[s].part.operations.size();
      if (stages_[s].stands_alone && (known || !stages_[s].known) && keys.insert(stages_[s].key).second)
        effort += size * std::min<std::uint64_t>(size, 200);
    }
    return effort;
  }
  void solve(chain_entry& c, bool with_ways, std::uint32_t slots, run_clock& clock, solution& best,
             std::string_view solver) {
    if (clock.should_stop()) return;
    clock.report({});
    chain_program program(p_.graph(), lines_[c.line].line, c.cuts, c.order);
    if (with_ways) program.set_ways(ways_of(c));
    chain_search_options searching;
    searching.slots = slots;
    searching.table_bytes = options_.table_bytes;
    searching.leap = 0.5;
    chain_best found;
    const chain_search_end end = search_chain(
        p_, program, searching, clock, [&] { return std::min(best.time, found.time()); },
        [&](schedule plan, const check_report& r, const chain_program::entry& e) {
          found.take(std::move(plan), r, e);
        });
    counts& mine = counts_[c.name];
    if (end.table == fill_outcome::too_large) ++mine.tables_refused;
    if (!found.plan) return;
    c.with_ways = with_ways;
    c.time = found.time();
    const bool first = std::none_of(good_.begin(), good_.end(), [&](const chain_entry& k) {
      return k.line == c.line && k.cuts == c.cuts && k.order == c.order && k.with_ways == with_ways;
    });
    if (first) good_.push_back(c);
    if (mine.time == 0 || found.time() < mine.time) {
      mine.time = found.time();
      mine.table_time = end.table_time;
      mine.flat_time = program.flat_time();
      mine.stages = program.chain().length();
      std::set<std::uint64_t> keys;
      for (const std::size_t s : c.stages) keys.insert(stages_[s].key);
      mine.distinct = keys.size();
      mine.ways = program.num_further();
    }
    keep_if_better(best, std::move(*found.plan), found.report, by_part(by_part(solver, c.name), "chain"));
  }

  const problem& p_;
  const hierarchy_chains_options& options_;
  std::vector<line_entry> lines_{};
  std::vector<chain_entry> chains_{};
  std::vector<stage> stages_{};
  std::map<std::vector<std::uint32_t>, std::size_t> stage_index_{};
  std::map<std::string_view, counts> counts_{};
  std::vector<chain_entry> good_{};  // solved chains with a schedule
};

}  // namespace remat::detail
