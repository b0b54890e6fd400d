// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/hiremate/detail/chains.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/hierarchy/detail/way_cache.hpp"
#include "remat/solver/accept.hpp"

namespace remat::detail {

REMAT_INLINE hierarchy_chains::hierarchy_chains(const problem& p, const hierarchy_chains_options& options)
    : p_(p), options_(options) {}

REMAT_INLINE std::size_t hierarchy_chains::line_index(const forward_line& line) {
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

REMAT_INLINE void hierarchy_chains::add_chains(std::string_view name, std::size_t line, std::vector<cut_list> chains) {
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

REMAT_INLINE void hierarchy_chains::add(std::string_view name, const operation_hierarchy& h, bool levels) {
  const std::size_t l = line_index(line_of(p_.graph(), h));
  std::vector<cut_list> all = chains_of(h, lines_[l].line, options_.most_stages);
  if (levels)
    for (cut_list& cuts : cut_levels(lines_[l].line, options_.most_stages - 1)) all.push_back(std::move(cuts));
  add_chains(name, l, std::move(all));
}

REMAT_INLINE void hierarchy_chains::add_line(std::string_view name, const forward_line& line) {
  add_chains(name, line_index(line), chains_of_line(line, options_.most_stages));
}

REMAT_INLINE void hierarchy_chains::solve_narrow(std::string_view name, run_clock& clock, solution& best,
                                                 std::string_view solver) {
  for (std::size_t i = 0; i < chains_.size() && !clock.should_stop() && !is_near_bound(best); ++i) {
    if (chains_[i].name != name) continue;
    chain_entry c = chains_[i];
    c.order = stage_order::least_peak;
    solve(c, false, options_.slots, clock, best, solver);
  }
}

REMAT_INLINE bool hierarchy_chains::is_near_bound(const solution& best) const {
  return best.plan && is_within_gap(best.time, best.lower_bound, options_.gap);
}

REMAT_INLINE void hierarchy_chains::solve_plain(run_clock& clock, solution& best, std::string_view solver) {
  for (std::size_t i = 0; i < chains_.size() && !clock.should_stop() && !is_near_bound(best); ++i) {
    chain_entry c = chains_[i];
    solve(c, false, options_.slots, clock, best, solver);
  }
}

REMAT_INLINE std::uint64_t hierarchy_chains::effort_of(const chain_entry& c, bool known) const {
  std::set<std::uint64_t> keys;
  std::uint64_t effort = 0;
  for (const std::size_t s : c.stages) {
    const std::uint64_t size = stages_[s].part.operations.size();
    if (stages_[s].stands_alone && (known || !stages_[s].known) && keys.insert(stages_[s].key).second)
      effort += size * std::min<std::uint64_t>(size, 200);
  }
  return effort;
}

REMAT_INLINE void hierarchy_chains::solve_with_options(run_clock& clock, solution& best, std::string_view solver) {
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
    if (spent + effort > options_.most_effort) {
      ++counts_[c.name].refused;
      continue;
    }
    spent += effort;
    find_options(c, clock);
    if (clock.should_stop()) {
      ++counts_[c.name].left;
      continue;
    }
    solve(c, true, options_.slots, clock, best, solver);
    ++counts_[c.name].with_options;
    lines_[c.line].solved.push_back(turn[k].second);
  }
}

REMAT_INLINE void hierarchy_chains::solve_finer(run_clock& clock, solution& best, std::string_view solver) {
  std::stable_sort(good_.begin(), good_.end(),
                   [](const chain_entry& a, const chain_entry& b) { return a.time < b.time; });
  std::vector<chain_entry> chosen(good_.begin(),
                                  good_.begin() + static_cast<std::ptrdiff_t>(std::min(good_.size(), options_.finer)));
  const auto slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{options_.slots} * 4, 1U << 24));
  for (chain_entry& c : chosen) {
    if (clock.should_stop() || is_near_bound(best)) return;
    solve(c, c.with_options, slots, clock, best, solver);
  }
}

REMAT_INLINE std::size_t hierarchy_chains::stage_of(std::vector<std::uint32_t> operations, part_extractor& extract) {
  const auto at = stage_index_.find(operations);
  if (at != stage_index_.end()) return at->second;
  stage s;
  s.part = extract(operations);
  s.key = fingerprint(s.part, way_cache::likeness());
  const part_runs runs(s.part);
  std::vector<std::uint32_t> all(s.part.operations.size());
  for (std::uint32_t o = 0; o < all.size(); ++o) all[o] = o;
  const std::span<const std::uint32_t> every(all);
  s.stands_alone = runs.measure(every.first(runs.num_forward()), every.subspan(runs.num_forward())).has_value();
  stages_.push_back(std::move(s));
  stage_index_.emplace(std::move(operations), stages_.size() - 1);
  return stages_.size() - 1;
}

REMAT_INLINE void hierarchy_chains::find_stages(chain_entry& c) {
  const line_entry& l = lines_[c.line];
  const stage_chain chain(p_.graph(), l.line, c.cuts);
  part_extractor extract(p_.graph(), l.order, static_cast<std::uint32_t>(l.line.operations.size()));
  c.stages.clear();
  for (std::uint32_t s = 1; s <= chain.length(); ++s) {
    std::vector<std::uint32_t> operations(chain.forward(s).begin(), chain.forward(s).end());
    operations.insert(operations.end(), chain.backward(s).begin(), chain.backward(s).end());
    c.stages.push_back(stage_of(std::move(operations), extract));
  }
}

REMAT_INLINE std::vector<level_child> hierarchy_chains::children_of(const chain_entry& c, std::size_t s,
                                                                    std::uint32_t begin, std::uint32_t end) const {
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
      return static_cast<std::size_t>(std::upper_bound(finer.cuts.begin(), finer.cuts.end(), at) - finer.cuts.begin());
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
      children.push_back({child.part, child.options});
    }
    std::sort(theirs.begin(), theirs.end());
    if (theirs == mine) best = std::move(children);
  }
  return best;
}

REMAT_INLINE void hierarchy_chains::find_options(const chain_entry& c, run_clock& clock) {
  std::vector<sub_graph> wanted;
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
  sub_graph_table table = find_sub_graph_options(p_.graph(), wanted, options_.sub_graphs, clock);
  for (std::size_t i = 0; i < to.size(); ++i) {
    stages_[to[i]].options = std::move(table.options[i]);
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

REMAT_INLINE std::vector<std::vector<stage_way>> hierarchy_chains::ways_of(const chain_entry& c) const {
  std::vector<std::vector<stage_way>> out(c.stages.size() + 1);
  for (std::size_t s = 0; s < c.stages.size(); ++s) {
    const stage& mine = stages_[c.stages[s]];
    for (const part_option& o : mine.options) {
      stage_way way;
      for (const std::uint32_t k : o.forward) way.forward.push_back(mine.part.operations[k]);
      for (const std::uint32_t k : o.backward) way.backward.push_back(mine.part.operations[k]);
      out[s + 1].push_back(std::move(way));
    }
  }
  return out;
}

REMAT_INLINE void hierarchy_chains::solve(chain_entry& c, bool with_options, std::uint32_t slots, run_clock& clock,
                                          solution& best, std::string_view solver) {
  if (clock.should_stop()) return;
  clock.report({});
  chain_program program(p_.graph(), lines_[c.line].line, c.cuts, c.order);
  if (with_options) program.set_ways(ways_of(c));
  chain_search_options searching;
  searching.slots = slots;
  searching.table_bytes = options_.table_bytes;
  searching.leap = 0.5;
  chain_best found;
  const chain_search_end end = search_chain(
      p_, program, searching, clock, [&] { return std::min(best.time, found.time()); },
      [&](schedule plan, const check_report& r, const chain_program::entry& e) { found.take(std::move(plan), r, e); });
  counts& mine = counts_[c.name];
  if (end.table == fill_outcome::too_large) ++mine.tables_refused;
  if (!found.plan) return;
  c.with_options = with_options;
  c.time = found.time();
  const bool first = std::none_of(good_.begin(), good_.end(), [&](const chain_entry& k) {
    return k.line == c.line && k.cuts == c.cuts && k.order == c.order && k.with_options == with_options;
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
    mine.options = program.num_further();
  }
  keep_if_better(best, std::move(*found.plan), found.report, by_part(by_part(solver, c.name), "chain"));
}

REMAT_INLINE figures hierarchy_chains::figures_of(std::string_view name) const {
  figures out;
  const auto at = counts_.find(name);
  if (at == counts_.end()) return out;
  const counts& mine = at->second;
  out.set("chains", mine.chains);
  out.set("chains_with_options", mine.with_options);
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
    out.set("options", mine.options);
    out.set("table_time", mine.table_time);
    out.set("flat_time", mine.flat_time);
    out.set("time", mine.time);
  }
  return out;
}

}  // namespace remat::detail
