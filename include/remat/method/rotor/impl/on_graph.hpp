// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/chain_search.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/method/rotor.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/accept.hpp"

/// Rotor's dynamic program on the chains that a graph is cut into.
namespace REMAT_NAMESPACE::detail::on_graph {

/// How the stages of a graph are counted, and their schedules expanded.
enum class counting : std::uint8_t {
  near,  ///< sizes rounded to the nearest slot; stages in the listed order; each forward runs all of its stage
  safe   ///< sizes rounded up; stages in an order of little memory; each forward runs for its purpose
};

/// The search for a schedule of one graph.
class graph_search {
 public:
  graph_search(const problem& p, const rotor_options& options, run_clock& clock, solution& best)
      : p_(p), options_(options), clock_(clock), best_(best) {}

  /// Returns why the search stopped early.
  stop_reason run() {
    const std::vector<forward_line> lines = find_listed_and_narrow_line(p_.graph());
    lines_ = lines.size();
    stop_reason why = stop_reason::none;
    const auto stops = [&](std::size_t line, counting how, std::uint32_t slots) {
      why = try_line(lines, line, how, slots);
      return why != stop_reason::none;
    };
    std::size_t better = 0;
    for (std::size_t k = 0; k < lines.size(); ++k) {
      const double before = best_.time;
      if (stops(k, counting::near, options_.slots)) return why;
      if (best_.time < before) better = k;
    }
    const auto finer = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{options_.slots} * 2, 1U << 24));
    if (stops(better, counting::near, finer)) return why;
    for (std::size_t k = 0; k < lines.size(); ++k)
      if (stops(k, counting::safe, k == better ? finer : options_.slots)) return why;
    max_memory_ = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < lines.size() && !best_.plan; ++k)
      for (const counting how : {counting::near, counting::safe})
        if (stops(k, how, options_.slots)) return why;
    return why;
  }

  /// The best schedules of the tables, at most `count` of each way of counting.
  [[nodiscard]] std::vector<schedule> best_schedules(std::size_t count) const {
    std::vector<schedule> out;
    for (const std::vector<candidate>& pool : found_)
      for (std::size_t i = 0; i < std::min(count, pool.size()); ++i) out.push_back(pool[i].plan);
    return out;
  }

  /// Notes what was solved, and the chain of the best schedule.
  void record(figures& own) const {
    own.set("lines", lines_);
    own.set("chains", chains_);
    own.set("tables_refused", tables_refused_);
    own.set_all(of_best_);
  }

 private:
  struct candidate {
    double time = 0;
    std::int64_t peak_bytes = 0;
    schedule plan{};
  };

  /// Solves the chains of a line, short ones first, which are solved at once: all levels of cuts, and segments of about
  /// equal bytes with cuts of the two finest levels. Coarse stages run their backward operations in the listed order,
  /// which often needs less memory.
  stop_reason try_line(const std::vector<forward_line>& lines, std::size_t k, counting how, std::uint32_t slots) {
    const stage_order order = how == counting::safe ? stage_order::least_peak : stage_order::listed;
    for (const cut_list& cuts : short_ones_first(chains_of_line(lines[k], options_.max_stages))) {
      if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
      chain_program program(p_.graph(), lines[k], cuts, order, [this] { return clock_.should_stop(); });
      if (!program.chain().is_complete()) return clock_.poll();
      if (const stop_reason why = try_chain(program, k, how, slots); why != stop_reason::none) return why;
    }
    return stop_reason::none;
  }

  [[nodiscard]] std::int64_t slot_bytes_of(const stage_chain& stages, counting how, std::uint32_t slots) const {
    if (how == counting::near) return 0;
    // More slots than the promise is for: half a slot each, which is never worse than a whole one.
    if (slots > options_.slots) return std::max<std::int64_t>(slot_bytes(stages, options_.slots) / 2, 1);
    return slot_bytes(stages, slots);
  }

  /// Solves a chain for all budgets, with half as many slots as long as the table is too large.
  stop_reason try_chain(chain_program& program, std::size_t line, counting how, std::uint32_t max_slots) {
    constexpr std::uint32_t fewest = 16;
    chain_search_options searching;
    searching.table_bytes = options_.table_bytes;
    searching.max_memory = max_memory_;
    searching.allowance = how == counting::near ? 1.3 : 1.15;
    searching.expansion = how == counting::near ? chain_expansion::whole : chain_expansion::for_purpose;
    for (std::uint32_t slots = max_slots; slots >= std::min(max_slots, fewest); slots /= 2) {
      searching.slots = slots;
      searching.slot_bytes = slot_bytes_of(program.chain(), how, slots);
      const chain_search_end end = search_chain(
          p_, program, searching, clock_, [&] { return best_.time; },
          [&](schedule plan, const check_report& r, const chain_program::entry& e) {
            if (!offer(std::move(plan), r, how)) return;
            of_best_.set("line", line == 0 ? "listed" : "narrow");
            of_best_.set("count", how == counting::near ? "near" : "safe");
            of_best_.set("stages", program.chain().length());
            of_best_.set("distinct_stages", count_distinct_stages(program.chain()));
            of_best_.set("slots", program.slots());
            of_best_.set("table_time", e.time);
            of_best_.set("flat_time", r.time);
            of_best_.set("table_bytes", e.bytes);
            of_best_.set("flat_peak_bytes", r.peak_bytes);
          });
      chains_ += end.is_filled ? 1U : 0U;
      if (end.table == fill_outcome::stopped) return clock_.poll();
      if (end.table != fill_outcome::too_large) return stop_reason::none;
      ++tables_refused_;
    }
    return stop_reason::none;
  }

  /// Keeps a schedule that fits among the candidates, and as the best if it is. Returns true if it is the best.
  bool offer(schedule plan, const check_report& r, counting how) {
    std::vector<candidate>& pool = found_[static_cast<std::size_t>(how)];
    const auto at = std::lower_bound(pool.begin(), pool.end(), r, [](const candidate& a, const check_report& b) {
      return a.time != b.time ? a.time < b.time : a.peak_bytes < b.peak_bytes;
    });
    if (at != pool.end() && at->time == r.time && at->peak_bytes == r.peak_bytes) return false;
    const bool taken = at == pool.begin() && keep_if_better(best_, plan, r, rotor_solver::name);
    pool.insert(at, {r.time, r.peak_bytes, std::move(plan)});
    const std::uint64_t max_kept =
        how == counting::near ? options_.candidates : std::uint64_t{options_.candidates} * 3 / 8;
    if (pool.size() > max_kept) pool.pop_back();
    return taken;
  }

  const problem& p_;
  const rotor_options& options_;
  run_clock& clock_;
  solution& best_;
  double max_memory_ = chain_search_options{}.max_memory;
  std::array<std::vector<candidate>, 2> found_{};  // one list for each way of counting; fastest first
  std::size_t lines_ = 0;
  std::uint64_t chains_ = 0, tables_refused_ = 0;
  figures of_best_{};  // the figures of the best schedule's chain
};

}  // namespace REMAT_NAMESPACE::detail::on_graph
