// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/rockmate.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/chain_search.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/chain/detail/stage_ways.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/hierarchy/detail/find_ways.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/method/detail/copy_instances.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/detail/retain_all.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/method/rotor.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::rockmate_blocks {

/// The search over the chains of one graph.
class chain_search {
 public:
  chain_search(const problem& p, const rockmate_options& options, run_clock& clock, solution& best)
      : p_(p),
        options_(options),
        clock_(clock),
        best_(best),
        line_(find_forward_line(p.graph())),
        order_(line_.operations),
        cache_(options.cache ? options.cache : make_way_cache()) {
    order_.insert(order_.end(), line_.rest.begin(), line_.rest.end());
  }

  /// Returns why the search stopped early.
  stop_reason run() {
    const std::vector<cut_list> all = chains();
    stop_reason stopped = stop_reason::none;
    for (std::size_t i = 0; i < all.size() && stopped == stop_reason::none;) {
      chain_group group;
      i = fill(group, all, i, stopped);
      if (stopped == stop_reason::none) stopped = solve_with_ways(group, options_.slots);
    }
    if (stopped == stop_reason::none) stopped = solve_finer();
    if (best_.plan)
      best_.message = std::to_string(distinct_) + " distinct among " + detail::count_of(blocks_, "block") + ", " +
                      detail::count_of(solves_, "budget") + " of blocks solved";
    sort_candidates();
    return stopped;
  }

  /// The best schedules, one of each chain and each once.
  [[nodiscard]] std::vector<schedule> best_schedules() const {
    std::vector<schedule> out;
    for (const candidate& c : candidates_) {
      if (out.size() == options_.finer_chains) break;
      if (std::find(out.begin(), out.end(), c.plan) == out.end()) out.push_back(c.plan);
    }
    return out;
  }

  /// Records what was solved, and the chain of the best schedule.
  void record(figures& own) const {
    own.set("chains", chains_);
    own.set("chains_with_ways", chains_with_ways_);
    own.set("chains_refused", chains_refused_);
    own.set("tables_refused", tables_refused_);
    own.set("blocks", blocks_);
    own.set("distinct_blocks", distinct_);
    own.set("solves", solves_);
    own.set("ways_found", ways_found_);
    own.set("ways_kept", ways_kept_);
    own.set_all(of_best_);
  }

 private:
  /// The best schedule of one chain.
  struct candidate {
    cut_list cuts{};
    bool with_ways = false;
    schedule plan{};
    double time = 0;  // the plan's time
  };
  /// The blocks of a chain that `find_ways` can solve.
  struct block_list {
    std::vector<sub_graph> sub_graphs{};
    std::vector<std::uint32_t> stages{};  // the sub-graphs' stages
    std::uint32_t length = 0;             // the chain's length
    std::set<std::uint64_t> fresh{};      // fingerprints that no chain before had
    way_effort effort{};                  // the effort of the fresh ones
  };
  /// Chains whose blocks are given ways together.
  struct chain_group {
    std::vector<cut_list> chains{};
    std::vector<block_list> blocks{};
    way_effort effort{};
  };

  /// The cuts of all chains, fine ones first, without repetition.
  [[nodiscard]] std::vector<cut_list> chains() const {
    std::vector<cut_list> out = cut_levels(line_, options_.max_stages - 1);
    const std::vector<cut_list> levels = cut_levels(line_, line_.operations.size());
    for (const cut_list& level : levels) {
      add_regular_cuts(out, level, options_.max_stages);
      add_even_cuts(out, line_, level, options_.max_stages);
    }
    std::sort(out.begin(), out.end(),
              [](const cut_list& a, const cut_list& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  [[nodiscard]] bool has_small_blocks(const cut_list& cuts) const {
    std::size_t before = 0, largest = 0;
    for (const std::uint32_t cut : cuts) {
      largest = std::max(largest, cut - before);
      before = cut;
    }
    largest = std::max(largest, line_.operations.size() - before);
    return largest <= options_.max_block;
  }

  [[nodiscard]] block_list find_blocks(const stage_chain& chain) const {
    sub_graph_extractor extract(p_.graph(), order_, static_cast<std::uint32_t>(line_.operations.size()));
    block_list out;
    out.length = chain.length();
    for (std::uint32_t s = 1; s <= chain.length(); ++s) {
      std::vector<std::uint32_t> operations(chain.forward(s).begin(), chain.forward(s).end());
      operations.insert(operations.end(), chain.backward(s).begin(), chain.backward(s).end());
      sub_graph block = extract(std::move(operations));
      // `find_ways` cannot solve it if both directions, or stages in another order, write to one tensor.
      if (!sub_graph_runs(block).listed_order()) continue;
      const std::uint64_t key = fingerprint(block, way_cache::likeness());
      const std::uint64_t size = block.operations.size();
      if (seen_.count(key) == 0 && out.fresh.insert(key).second) out.effort = out.effort + way_effort{size * size, 1};
      out.sub_graphs.push_back(std::move(block));
      out.stages.push_back(s);
    }
    return out;
  }

  [[nodiscard]] way_search searching() const {
    way_search search;
    search.peaks = options_.peaks;
    search.max_ways = options_.ways_per_stage;
    search.moves = options_.moves;
    search.cache = cache_;
    return search;
  }

  /// Solves chains from the i-th on without ways, and puts those that are to be given ways into a group, as many as the
  /// group takes. Returns the first chain that was left.
  std::size_t fill(chain_group& group, const std::vector<cut_list>& all, std::size_t i, stop_reason& stopped) {
    const way_effort room = room_of_group(effort_, searching(), clock_);
    for (; i < all.size(); ++i) {
      const bool is_small = has_small_blocks(all[i]);
      block_list blocks;
      if (is_small) {
        blocks = find_blocks(stage_chain(p_.graph(), line_, all[i]));
        if (!group.chains.empty() && !(group.effort + blocks.effort).fits(room)) break;
      }
      stopped = solve(all[i], {}, options_.slots);
      if (stopped != stop_reason::none) break;
      if (is_small) add(group, all[i], std::move(blocks));
    }
    return i;
  }

  /// Puts a chain into a group, unless its ways take too much effort or work.
  void add(chain_group& group, const cut_list& cuts, block_list blocks) {
    const way_effort together = group.effort + blocks.effort;
    if (effort_ + together.effort > options_.block_effort ||
        clock_.work_left() / std::max<std::uint64_t>(options_.moves * work_of::move, 1) < together.classes) {
      ++chains_refused_;
      return;
    }
    seen_.insert(blocks.fresh.begin(), blocks.fresh.end());
    group.effort = together;
    group.chains.push_back(cuts);
    group.blocks.push_back(std::move(blocks));
  }

  /// Finds ways for the blocks of a group, and solves its chains with them.
  stop_reason solve_with_ways(const chain_group& group, std::uint32_t slots) {
    if (group.chains.empty()) return stop_reason::none;
    effort_ += group.effort.effort;
    std::vector<sub_graph> all;
    for (const block_list& blocks : group.blocks)
      all.insert(all.end(), blocks.sub_graphs.begin(), blocks.sub_graphs.end());
    const way_search search = searching();
    const way_table table = [&] {
      run_clock part = clock_.part_on_other_problem(ways_share);
      return detail::find_ways(all, search, portable_sub_solvers{}, part);
    }();
    blocks_ += all.size();
    distinct_ += table.distinct - table.reused;
    solves_ += table.solves;
    ways_found_ += table.found;
    ways_kept_ += table.kept;
    std::span<const std::vector<sub_graph_way>> ways(table.ways);
    for (std::size_t k = 0; k < group.chains.size(); ++k) {
      const block_list& blocks = group.blocks[k];
      const stop_reason why = solve(group.chains[k], in_graph(blocks, ways.first(blocks.sub_graphs.size())), slots);
      if (why != stop_reason::none) return why;
      ways = ways.subspan(blocks.sub_graphs.size());
    }
    return stop_reason::none;
  }

  /// The ways of a chain's blocks for its stages, [1 … L].
  [[nodiscard]] static std::vector<std::vector<stage_way>> in_graph(const block_list& blocks,
                                                                    std::span<const std::vector<sub_graph_way>> ways) {
    std::vector<std::vector<stage_way>> out(std::size_t{blocks.length} + 1);
    for (std::size_t i = 0; i < blocks.sub_graphs.size(); ++i)
      for (const sub_graph_way& way : ways[i])
        out[blocks.stages[i]].push_back(in_names(way, blocks.sub_graphs[i].operations));
    return out;
  }

  /// Solves a chain for all budgets, and keeps the best of its schedules. `further`: ways of its stages, [1 … L];
  /// empty: as they are. Returns why it stopped.
  stop_reason solve(const cut_list& cuts, std::vector<std::vector<stage_way>> further, std::uint32_t slots) {
    if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
    const bool with_ways = !further.empty();
    chain_program program(p_.graph(), line_, cuts);
    if (with_ways) program.set_ways(std::move(further));
    chain_search_options searching;
    searching.slots = slots;
    searching.table_bytes = options_.table_bytes;
    searching.max_memory = std::numeric_limits<double>::infinity();
    chain_best found;
    const chain_search_end end = search_chain(
        p_, program, searching, clock_, [&] { return std::min(best_.time, found.time()); },
        [&](schedule plan, const check_report& r, const chain_program::entry& e) {
          found.take(std::move(plan), r, e);
        });
    if (end.table == fill_outcome::too_large) {
      ++tables_refused_;
      return stop_reason::none;
    }
    chains_ += end.is_filled ? 1U : 0U;
    chains_with_ways_ += end.is_filled && with_ways ? 1U : 0U;
    if (found.plan) {
      if (keep_if_better(best_, *found.plan, found.report, rockmate_solver::name)) {
        of_best_ = {};
        of_best_.set("with_ways", with_ways);
        of_best_.set("stages", program.chain().length());
        of_best_.set("distinct_stages", count_distinct_stages(program.chain()));
        of_best_.set("stage_ways", program.num_ways());
        of_best_.set("slots", slots);
        of_best_.set("table_time", found.of_table.time);
        of_best_.set("flat_time", found.report.time);
        of_best_.set("table_bytes", found.of_table.bytes);
        of_best_.set("flat_peak_bytes", found.report.peak_bytes);
      }
      candidates_.push_back({cuts, with_ways, std::move(*found.plan), found.report.time});
    }
    return end.table == fill_outcome::stopped ? clock_.poll() : stop_reason::none;
  }

  void sort_candidates() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const candidate& a, const candidate& b) { return a.time < b.time; });
  }

  /// Solves the best chains again, with more slots.
  stop_reason solve_finer() {
    sort_candidates();
    const auto slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{options_.slots} * 4, 1U << 24));
    const std::vector<candidate> chosen(candidates_.begin(),
                                        candidates_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                                  candidates_.size(), options_.finer_chains)));
    for (const candidate& c : chosen) {
      chain_group group;
      if (c.with_ways) add(group, c.cuts, find_blocks(stage_chain(p_.graph(), line_, c.cuts)));
      const stop_reason why = c.with_ways ? solve_with_ways(group, slots) : solve(c.cuts, {}, slots);
      if (why != stop_reason::none) return why;
    }
    return stop_reason::none;
  }

  const problem& p_;
  const rockmate_options& options_;
  run_clock& clock_;
  solution& best_;
  forward_line line_;
  std::vector<std::uint32_t> order_;  // all needed operations
  std::shared_ptr<way_cache> cache_;
  std::vector<candidate> candidates_{};
  std::size_t chains_ = 0, chains_with_ways_ = 0, chains_refused_ = 0, tables_refused_ = 0;
  std::size_t blocks_ = 0, distinct_ = 0, solves_ = 0, ways_found_ = 0, ways_kept_ = 0;
  figures of_best_{};               // the figures of the best schedule's chain
  std::set<std::uint64_t> seen_{};  // fingerprints of the blocks that have been given ways
  std::uint64_t effort_ = 0;
};

}  // namespace detail::rockmate_blocks

REMAT_INLINE solution rockmate_solver::operator()(const problem& p, const rockmate_options& options) const {
  require_valid_options(name, options);
  if (p.link()) return detail::solve_by_split_instances(p, name, options, rockmate);
  return detail::solve_by_own_method(p, name, options.run, options.improve, {}, [&](run_clock& clock, solution& best) {
    detail::rockmate_blocks::chain_search search(p, options, clock, best);
    detail::method_end end{search.run(), {}};
    search.record(best.statistics.own);
    end.starts = search.best_schedules();
    detail::retain_all(p, end.starts, options.retain_rounds, bool{options.improve}, clock, best, name);
    return end;
  });
}

}  // namespace REMAT_NAMESPACE
