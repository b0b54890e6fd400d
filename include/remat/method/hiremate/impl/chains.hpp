// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "remat/chain/detail/chain_search.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_ways.hpp"
#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/hierarchy/detail/find_ways.hpp"
#include "remat/hierarchy/detail/way_cache.hpp"
#include "remat/method/hiremate/impl/sub_graph_ways.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Where the chains of `hiremate` come from: a hierarchy, or an order of the forward operations.
enum class chain_source : std::uint8_t {
  given,        ///< the caller's hierarchy
  h_partition,  ///< `h_partition`
  repeats,      ///< `partition_at_repeats`
  cuts,         ///< `partition_at_cuts`
  levels,       ///< `partition_at_levels`, and all `cut_levels` of its line
  narrow        ///< `find_narrow_line`
};

/// The name of a source, for `solution::by` and the figures.
[[nodiscard]] constexpr std::string_view name_of(chain_source source) noexcept {
  constexpr std::array<std::string_view, 6> names{"given", "h_partition", "repeats", "cuts", "levels", "narrow"};
  return names[static_cast<std::size_t>(source)];
}

/// The outcomes of the chains of one source.
struct chain_counts {
  std::size_t chains = 0;          ///< the source's chains
  std::size_t with_ways = 0;       ///< chains solved with the ways of their stages
  std::size_t left = 0;            ///< not solved with ways: a limit came before
  std::size_t refused = 0;         ///< not solved with ways: `chain_effort`
  std::size_t tables_refused = 0;  ///< tables of chains that are too large
  sub_graph_table solves{};        ///< sums over the searches for ways of stages
  /// \name The best chain
  /// @{
  std::size_t stages = 0, distinct = 0, ways = 0;
  double table_time = 0, flat_time = 0, time = 0;  // time 0: no schedule
  /// @}

  /// `chains`, `chains_with_ways`, `chains_left`, `chains_refused`, `tables_refused` (those of stages included); of the
  /// searches for ways of stages by groups of chains, the first of which is of this source: `distinct` (without those
  /// known from a cache), `solves`, `tables`, `programs`, `programs_refused` and `cut_short`, as in `sub_graph_table`;
  /// of its best chain: `stages`, `distinct_stages` (with ways alone), `ways`, `table_time`, `flat_time`, `time`.
  [[nodiscard]] figures to_figures() const {
    figures out;
    out.set("chains", chains);
    out.set("chains_with_ways", with_ways);
    out.set("chains_left", left);
    out.set("chains_refused", refused);
    out.set("tables_refused", tables_refused + solves.tables_refused);
    solves.add_to(out);
    if (time > 0) {
      out.set("stages", stages);
      if (distinct > 0) out.set("distinct_stages", distinct);
      out.set("ways", ways);
      out.set("table_time", table_time);
      out.set("flat_time", flat_time);
      out.set("time", time);
    }
    return out;
  }
};

/// Schedules of the whole graph from the chains of hierarchies: at each depth, the groups of a hierarchy are the stages
/// of a chain, and so are pairs, triples … of neighbours. Rotor's dynamic program (`chain_program`) solves each chain,
/// first with its stages as they are, then with the ways of its stages: chains whose distinct stages have the
/// fewest operations first, several chains at a time (`room_of_group`). Stages that are equal up to renaming and times
/// are solved once. A large stage is divided into the stages of a finer chain that has been solved before.
///
/// Work is that of `search_chain` and `find_sub_graph_ways`. Polls before each chain, and as those two do.
class hierarchy_chains {
 public:
  /// `search`: how the ways of stages are found. Larger tables than `table_bytes` are not filled. Keeps references to
  /// the problem, the options and the search.
  hierarchy_chains(const problem& p, const hiremate_options& options, const sub_graph_search& search,
                   std::int64_t table_bytes = std::int64_t{1} << 30)
      : p_(p), options_(options), search_(search), table_bytes_(table_bytes) {}

  /// Adds the chains of a hierarchy. O(size of the chains) time.
  void add(chain_source source, const operation_hierarchy& h) {
    const std::size_t l = line_index(line_of(p_.graph(), h));
    std::vector<cut_list> all = chains_of(h, lines_[l].line, options_.max_stages);
    if (source == chain_source::levels)
      for (cut_list& cuts : cut_levels(lines_[l].line, options_.max_stages - 1)) all.push_back(std::move(cuts));
    add_chains(source, l, std::move(all));
  }

  /// Adds the chains of a line (`chains_of_line`).
  void add_line(chain_source source, const forward_line& line) {
    add_chains(source, line_index(line), chains_of_line(line, options_.max_stages));
  }

  /// Solves again, without ways, the chains of `source`, with the operations of each stage in an order of little
  /// memory and sizes rounded up: for budgets where the listed order of the operations needs too much.
  void solve_narrow(chain_source source, run_clock& clock, solution& best) {
    for (chain_entry c : chains_) {
      if (c.source != source) continue;
      c.order = stage_order::least_peak;
      solve(c, false, options_.slots, clock, best);
    }
  }

  /// Solves the chains without ways of their stages. `best` takes the schedules, found by "hiremate/SOURCE/chain".
  void solve_plain(run_clock& clock, solution& best) {
    for (chain_entry c : chains_) solve(c, false, options_.slots, clock, best);
  }
  /// Solves the chains with the ways of their stages.
  void solve_with_ways(run_clock& clock, solution& best) {
    std::vector<std::pair<std::uint64_t, std::size_t>> turn;  // effort, chain
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      if (clock.should_stop()) {
        ++counts_[chains_[i].source].left;
        continue;
      }
      find_stages(chains_[i]);
      turn.emplace_back(effort_of(chains_[i], true).effort, i);
    }
    std::stable_sort(turn.begin(), turn.end());
    std::uint64_t spent = 0;
    for (std::size_t k = 0; k < turn.size() && !is_near_bound(best);) {
      if (clock.should_stop()) {
        for (; k < turn.size(); ++k) ++counts_[chains_[turn[k].second].source].left;
        return;
      }
      way_search searching;
      searching.peaks = search_.peaks;
      searching.moves = search_.moves;
      const way_effort room = room_of_group(spent, searching, clock);
      chain_group group;
      for (; k < turn.size(); ++k) {
        const std::size_t i = turn[k].second;
        const way_effort fresh = effort_of(chains_[i], false);
        if (spent + group.fresh.effort + fresh.effort > options_.chain_effort) {
          ++counts_[chains_[i].source].refused;
          continue;
        }
        if (!group.chains.empty() && (!(group.fresh + fresh).fits(room) || needs_ways_of(chains_[i], group))) break;
        add_to(group, i, fresh);
      }
      spent += group.fresh.effort;
      {
        run_clock part = clock.part_on_other_problem(ways_share);
        find_ways(group, part);
      }
      for (const std::size_t i : group.chains) {
        chain_entry& c = chains_[i];
        if (is_near_bound(best)) return;
        if (clock.should_stop()) {
          ++counts_[c.source].left;
          continue;
        }
        solve(c, true, options_.slots, clock, best);
        ++counts_[c.source].with_ways;
        lines_[c.line].solved.push_back(i);
      }
    }
  }
  /// Solves the best chains again with more slots.
  void solve_finer(run_clock& clock, solution& best) {
    std::stable_sort(good_.begin(), good_.end(),
                     [](const chain_entry& a, const chain_entry& b) { return a.time < b.time; });
    std::vector<chain_entry> chosen(good_.begin(),
                                    good_.begin() + static_cast<std::ptrdiff_t>(std::min(good_.size(), num_finer)));
    const auto slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{options_.slots} * 4, 1U << 24));
    for (chain_entry& c : chosen) solve(c, c.with_ways, slots, clock, best);
  }

  /// The outcomes of the chains of a source so far; null if none were added.
  [[nodiscard]] const chain_counts* counts_of(chain_source source) const {
    const auto at = counts_.find(source);
    return at == counts_.end() ? nullptr : &at->second;
  }

 private:
  static constexpr std::size_t num_finer = 8;  // the best chains that are solved again with four times as many slots

  struct stage {
    detail::sub_graph sub_graph{};
    std::uint64_t key = 0;  // fingerprint
    bool stands_alone = false;
    bool wanted = false;  // its ways are known, or the group of chains in hand searches for them
    bool known = false;   // its ways
    std::vector<sub_graph_way> ways{};
  };
  struct line_entry {
    forward_line line{};
    std::vector<std::uint32_t> order{};
    std::vector<std::size_t> solved{};  // chains with ways
  };
  struct chain_entry {
    chain_source source = chain_source::given;
    std::size_t line = 0;
    cut_list cuts{};
    std::vector<std::size_t> stages{};  // indices of stages_
    stage_order order = stage_order::listed;
    bool with_ways = false;
    double time = 0;  // the best schedule's time
  };

  /// Chains whose stages are given ways together.
  struct chain_group {
    std::vector<std::size_t> chains{};
    way_effort fresh{};
    std::vector<divided_sub_graph> wanted{};
    std::vector<std::size_t> stages{};  // the stages of `wanted`
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
  void add_chains(chain_source source, std::size_t line, std::vector<cut_list> chains) {
    chain_counts& mine = counts_[source];
    for (cut_list& cuts : chains) {
      const bool known = std::any_of(chains_.begin(), chains_.end(),
                                     [&](const chain_entry& c) { return c.line == line && c.cuts == cuts; });
      if (known) continue;
      chain_entry c;
      c.source = source;
      c.line = line;
      c.cuts = std::move(cuts);
      chains_.push_back(std::move(c));
      ++mine.chains;
    }
  }
  [[nodiscard]] bool is_near_bound(const solution& best) const { return best.is_within(options_.gap); }
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
    s.sub_graph = extract(operations);
    s.key = fingerprint(s.sub_graph, way_cache::likeness());
    s.stands_alone = sub_graph_runs(s.sub_graph).listed_order().has_value();
    stages_.push_back(std::move(s));
    stage_index_.emplace(std::move(operations), stages_.size() - 1);
    return stages_.size() - 1;
  }
  /// The finer stages of a chain solved before that make up stage `s`, with their ways; the fewest.
  [[nodiscard]] std::vector<level_child> children_of(const chain_entry& c, std::size_t s) const {
    const auto [begin, end] = part_of_line(c, s);
    std::vector<level_child> best;
    std::vector<std::uint32_t> mine = stages_[c.stages[s]].sub_graph.operations;
    std::sort(mine.begin(), mine.end());
    for (const std::size_t i : lines_[c.line].solved) {
      const chain_entry& finer = chains_[i];
      const auto has = [&](std::uint32_t at) {
        return at == 0 || at == lines_[c.line].line.operations.size() ||
               std::binary_search(finer.cuts.begin(), finer.cuts.end(), at);
      };
      if (!has(begin) || !has(end)) continue;
      const auto index_of = [&](std::uint32_t at) {  // the index of the stage that begins there
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
        theirs.insert(theirs.end(), child.sub_graph.operations.begin(), child.sub_graph.operations.end());
        children.push_back({child.sub_graph, child.ways});
      }
      std::sort(theirs.begin(), theirs.end());
      if (theirs == mine) best = std::move(children);
    }
    return best;
  }
  /// True if a large stage of the chain may be divided into stages of a chain of the group.
  [[nodiscard]] bool needs_ways_of(const chain_entry& c, const chain_group& group) const {
    const auto n = static_cast<std::uint32_t>(lines_[c.line].line.operations.size());
    for (std::size_t s = 0; s < c.stages.size(); ++s) {
      if (stages_[c.stages[s]].wanted || !is_divided(c, s)) continue;
      const auto [begin, end] = part_of_line(c, s);
      for (const std::size_t i : group.chains) {
        const chain_entry& finer = chains_[i];
        if (finer.line != c.line) continue;
        const auto inside = [&, from = begin, to = end](std::uint32_t at) { return from < at && at < to; };
        const auto has = [&](std::uint32_t at) {
          return at == 0 || at == n || std::binary_search(finer.cuts.begin(), finer.cuts.end(), at);
        };
        if (has(begin) && has(end) && std::any_of(finer.cuts.begin(), finer.cuts.end(), inside)) return true;
      }
    }
    return false;
  }
  void add_to(chain_group& group, std::size_t i, const way_effort& fresh) {
    const chain_entry& c = chains_[i];
    group.chains.push_back(i);
    group.fresh = group.fresh + fresh;
    for (std::size_t s = 0; s < c.stages.size(); ++s) {
      stage& mine = stages_[c.stages[s]];
      if (!mine.stands_alone || mine.wanted) continue;
      mine.wanted = true;
      group.wanted.push_back({mine.sub_graph, is_divided(c, s) ? children_of(c, s) : std::vector<level_child>{}});
      group.stages.push_back(c.stages[s]);
    }
  }
  [[nodiscard]] bool is_divided(const chain_entry& c, std::size_t s) const {
    return stages_[c.stages[s]].sub_graph.operations.size() > 60;
  }
  /// Where stage `s` begins and ends in the forward operations of its line.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> part_of_line(const chain_entry& c, std::size_t s) const {
    return {s == 0 ? 0 : c.cuts[s - 1],
            s < c.cuts.size() ? c.cuts[s] : static_cast<std::uint32_t>(lines_[c.line].line.operations.size())};
  }
  void find_ways(chain_group& group, run_clock& clock) {
    const std::vector<divided_sub_graph>& wanted = group.wanted;
    const std::vector<std::size_t>& to = group.stages;
    if (wanted.empty()) return;
    sub_graph_table table = find_sub_graph_ways(p_.graph(), wanted, search_, clock);
    for (std::size_t i = 0; i < to.size(); ++i) {
      stages_[to[i]].ways = std::move(table.ways[i]);
      stages_[to[i]].known = true;
    }
    sub_graph_table& sum = counts_[chains_[group.chains.front()].source].solves;
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
      for (const sub_graph_way& way : mine.ways) out[s + 1].push_back(in_names(way, mine.sub_graph.operations));
    }
    return out;
  }
  /// Distinct stages that need ways, as `chain_effort` counts them; with `known` also those that have
  /// them.
  [[nodiscard]] way_effort effort_of(const chain_entry& c, bool known) const {
    std::set<std::uint64_t> keys;
    way_effort out;
    for (const std::size_t s : c.stages) {
      const std::uint64_t size = stages_[s].sub_graph.operations.size();
      if (stages_[s].stands_alone && (known || !stages_[s].wanted) && keys.insert(stages_[s].key).second)
        out.effort += size * std::min<std::uint64_t>(size, 200);
    }
    out.classes = keys.size();
    return out;
  }
  void solve(chain_entry& c, bool with_ways, std::uint32_t slots, run_clock& clock, solution& best) {
    if (clock.should_stop() || is_near_bound(best)) return;
    clock.report({});
    chain_program program(p_.graph(), lines_[c.line].line, c.cuts, c.order);
    if (with_ways) program.set_ways(ways_of(c));
    chain_search_options searching;
    searching.slots = slots;
    searching.table_bytes = table_bytes_;
    searching.leap = 0.5;
    chain_best found;
    const chain_search_end end = search_chain(
        p_, program, searching, clock, [&] { return std::min(best.time, found.time()); },
        [&](schedule plan, const check_report& r, const chain_program::entry& e) {
          found.take(std::move(plan), r, e);
        });
    chain_counts& mine = counts_[c.source];
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
    keep_if_better(best, std::move(*found.plan), found.report,
                   by_part(by_part("hiremate", name_of(c.source)), "chain"));
  }

  const problem& p_;
  const hiremate_options& options_;
  const sub_graph_search& search_;
  std::int64_t table_bytes_;
  std::vector<line_entry> lines_{};
  std::vector<chain_entry> chains_{};
  std::vector<stage> stages_{};
  std::map<std::vector<std::uint32_t>, std::size_t> stage_index_{};
  std::map<chain_source, chain_counts> counts_{};
  std::vector<chain_entry> good_{};  // solved chains with a schedule
};

}  // namespace REMAT_NAMESPACE::detail
