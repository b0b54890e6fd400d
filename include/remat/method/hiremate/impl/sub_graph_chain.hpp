// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/chain/detail/stage_ways.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// A child of a sub-graph: consecutive forward operations, the backward operations that belong to them, and
/// ways to run both. Operations are indices of `sub_graph::operations`.
struct sub_graph_segment {
  std::uint32_t forward_end = 0;          ///< one past the last forward operation
  std::vector<std::uint32_t> backward{};  ///< ascending
  std::vector<stage_way> ways{};          ///< ways beside the one that runs every operation once; may be empty
};

/// How `find_chain_ways` searches.
struct sub_graph_chain_search {
  std::uint32_t slots = 120;     ///< `chain_program_options::slots`
  std::uint32_t turns = 6;       ///< differences between peak and save budget, a table each; at least 1
  std::size_t max_ways = 12;     ///< most ways of the sub-graph
  std::size_t max_stages = 100;  ///< most stages of a chain
};

/// The result of `find_chain_ways`.
struct sub_graph_chain_result {
  std::vector<sub_graph_way> ways{};  ///< Pareto-optimal ones, by falling saved bytes; the first keeps everything
  std::size_t tables = 0;             ///< tables that were filled
  std::size_t refused = 0;            ///< tables larger than `chain_program_options::table_bytes`
  std::size_t stages = 0;             ///< the longest chain's stages
  std::size_t unmatched = 0;          ///< stages that could not use the ways of their segment
  bool whole = true;                  ///< no limit of the clock ended the search
};

namespace sub_graph_chain {

/// The chains of one sub-graph.
class searcher {
 public:
  searcher(const sub_graph& whole, std::span<const sub_graph_segment> segments, const sub_graph_chain_search& search,
           run_clock& clock)
      : runs_(whole), segments_(segments), search_(search), clock_(clock) {}

  [[nodiscard]] sub_graph_chain_result run() {
    const sub_graph_way everything = runs_.keep_everything();
    out_.ways.push_back(everything);
    const std::int64_t most = runs_.held_at_turn(everything);
    const std::uint32_t turns = most > 0 ? search_.turns : 1;
    for (std::uint32_t k = 0; k < turns && out_.whole; ++k) {
      const auto turn = static_cast<std::int64_t>(turns < 2 ? 0 : static_cast<double>(most) * k / (turns - 1));
      // The difference between the budgets is what the turn needs; the peak budget itself is the table's.
      const problem p = runs_.problem_within(turn + runs_.gradient_input_bytes(), 0).with_budget(problem::unlimited);
      // The forward operations and *take*; behind the line *turn* and the backward operations.
      const forward_line line = listed_line(p.graph(), [&](std::uint32_t o) { return o <= runs_.num_forward(); });
      for (const cut_list& cuts : chains(line)) {
        solve(p, line, cuts);
        if (clock_.should_stop()) out_.whole = false;
        if (!out_.whole) break;
      }
    }
    keep_pareto_optimal(out_.ways, runs_);
    thin_out(out_.ways, std::max<std::size_t>(search_.max_ways, 2));
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::vector<cut_list> chains(const forward_line& line) const {
    const auto last = static_cast<std::uint32_t>(line.operations.size()) - 1;  // the place of take
    std::vector<cut_list> out;
    if (segments_.empty()) {
      if (search_.max_stages < 3) return out;
      for (cut_list cuts : cut_levels(line, search_.max_stages - 2)) {  // and the one before take
        if (last > 0 && (cuts.empty() || cuts.back() != last)) cuts.push_back(last);
        if (cuts.size() > 1) out.push_back(std::move(cuts));
      }
      return out;
    }
    cut_list cuts;
    std::uint32_t end = 0;
    for (std::uint32_t i = 0; i < line.operations.size(); ++i) {
      while (end < segments_.size() && segments_[end].forward_end <= line.operations[i]) {
        if (i > 0 && (cuts.empty() || cuts.back() != i)) cuts.push_back(i);
        ++end;
      }
    }
    if (cuts.size() + 1 > search_.max_stages) cuts = even_cuts(line, cuts, search_.max_stages);
    out.push_back(std::move(cuts));
    return out;
  }

  /// The ways of the segment that a stage is; empty if it is none.
  [[nodiscard]] std::vector<std::vector<stage_way>> ways_of(const stage_chain& chain) {
    std::vector<std::vector<stage_way>> out(std::size_t{chain.length()} + 1);
    std::size_t next = 0;
    std::uint32_t begin = 0;
    for (std::uint32_t s = 1; s <= chain.length(); ++s) {
      const std::span<const std::uint32_t> forward = chain.forward(s);
      if (forward.empty()) continue;
      while (next < segments_.size() && segments_[next].forward_end <= forward.front())
        begin = segments_[next++].forward_end;
      if (next == segments_.size() || segments_[next].ways.empty()) continue;
      const sub_graph_segment& mine = segments_[next];
      std::vector<std::uint32_t> backward(chain.backward(s).begin(), chain.backward(s).end());
      for (std::uint32_t& o : backward) o -= 2;  // take and turn
      std::sort(backward.begin(), backward.end());
      if (forward.front() != begin || forward.back() + 1 != mine.forward_end || backward != mine.backward) {
        ++out_.unmatched;
        continue;
      }
      for (stage_way way : mine.ways) {
        for (std::vector<std::uint32_t>* list : {&way.forward, &way.backward})
          for (std::uint32_t& o : *list)
            if (o >= runs_.num_forward()) o += 2;
        out[s].push_back(std::move(way));
      }
    }
    return out;
  }

  void solve(const problem& p, const forward_line& line, const cut_list& cuts) {
    chain_program program(p.graph(), line, cuts);
    out_.stages = std::max<std::size_t>(out_.stages, program.chain().length());
    if (!segments_.empty()) program.set_ways(ways_of(program.chain()));
    chain_program_options filling;
    filling.slots = search_.slots;
    const fill_outcome end = program.fill(clock_, filling);
    if (end == fill_outcome::stopped) out_.whole = false;
    if (end == fill_outcome::too_large) ++out_.refused;
    if (end != fill_outcome::filled) return;
    ++out_.tables;
    for (auto e = program.fastest(); e; e = program.slower_than(*e)) {
      if (clock_.should_stop()) {
        out_.whole = false;
        return;
      }
      clock_.work(p.graph().num_operations * work_of::visit);
      const std::vector<chain_step> steps = program.steps(*e);
      for (const bool whole : {true, false})
        if (std::optional<sub_graph_way> way = runs_.way_of(schedule_computes(p, program.expand(steps, whole))))
          out_.ways.push_back(std::move(*way));
      if (out_.ways.size() > 200) keep_pareto_optimal(out_.ways, runs_);
    }
  }

  const sub_graph_runs runs_;
  std::span<const sub_graph_segment> segments_;
  const sub_graph_chain_search& search_;
  run_clock& clock_;
  sub_graph_chain_result out_{};
};

}  // namespace sub_graph_chain

/// Ways to run a sub-graph by Rotor's dynamic program over its children, or over its operations: one table gives the
/// ways of all memory sizes.
///
/// The sub-graph is a chain: its forward line, cut at the borders of `segments` (without segments: at the levels of
/// `cut_levels`, a chain each), and a last stage that is *take* and *turn* of `sub_graph_runs::problem_within`. The
/// workspace of the turn is the peak budget less the save budget. A table for one such difference holds the fastest
/// schedules of all peak budgets; `turns` differences from 0 to the bytes of everything are tried. A stage uses the
/// ways of its segment if `stage_chain` gives it the same backward operations.
///
/// Work: the rows of the tables and the schedules that are measured. Polls after each. A table of more than
/// `chain_program_options::table_bytes` is left out. Preconditions: `slots`, `turns` and `max_stages` are above 0.
[[nodiscard]] inline sub_graph_chain_result find_chain_ways(const sub_graph& whole,
                                                            std::span<const sub_graph_segment> segments,
                                                            const sub_graph_chain_search& search, run_clock& clock) {
  return detail::sub_graph_chain::searcher(whole, segments, search, clock).run();
}

}  // namespace REMAT_NAMESPACE::detail
