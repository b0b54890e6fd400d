// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/chain/chain_schedule.hpp"
#include "remat/chain/sized_chain.hpp"
#include "remat/chain/slot_table.hpp"
#include "remat/chain/stage_chain.hpp"
#include "remat/chain/stage_ways.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/hierarchy/find_options.hpp"
#include "remat/hierarchy/isomorphism.hpp"
#include "remat/hierarchy/part_option.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/retain.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/part_solvers.hpp"
#include "remat/solver/rotor.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

struct rockmate_options {
  std::uint32_t slots = 500;             ///< memory is counted in so many parts
  std::uint32_t max_stages = 100;        ///< of a chain
  std::uint32_t most_block = 24;         ///< forward operations of a block that is given options
  std::uint32_t options_per_stage = 12;  ///< at least 2; `option_search::most_options`
  std::uint32_t peaks = 1;               ///< `option_search::peaks`
  std::uint64_t moves = 300;             ///< `option_search::moves`, for each budget of a block
  /// The squares of the numbers of operations of all blocks that are given options, equal ones once, may add up to so
  /// much; a chain that would go beyond it is not given any. One takes some 15 µs.
  std::uint64_t block_effort = 36'000;
  /// Options of blocks that were solved before: for other budgets of the same step. Nothing: one for this solve.
  std::shared_ptr<option_cache> cache{};
  std::int64_t table_bytes = std::int64_t{4} << 30;  ///< leave out a chain with a larger table
  std::uint32_t retain_rounds = 3;                   ///< `retain_options::rounds`
  std::uint32_t retain_from = 16;                    ///< so many schedules, the best of each chain, are given to it
  run_control run{};
};

/// Rockmate \cite zhao2023rockmate: the step as a chain of blocks, each with several ways to run its forward and its
/// backward, put together by Rotor's dynamic program.
///
/// 1. Places where the forward part is cut: all levels of `cut_levels`, every second, third … of their cuts, and
///    segments of about equal bytes. Fine chains first, whose blocks are quick to solve.
/// 2. Of each chain the blocks, forward and backward; those equal up to renaming (and measured times) are one. Options
///    of each: the fastest ways to run it within a grid of peak and save budgets (`find_options`), by bound, eviction,
///    refinement and, where small, exact search in place of an integer program. They do not depend on the budget of the
///    step: with a `cache`, further budgets cost next to nothing.
/// 3. The dynamic program of `rotor` with all options of all blocks (`staged_ways`), for all budgets at once. Each
///    makespan's schedule is expanded to operations, freed early and checked within the true budget, fastest first.
///    The best chains once more with four times as many slots.
/// 4. The best schedules of several chains are given the memory that they leave (`retain`), as `rotor` does.
///
/// What the optimum is over: in the model of 3., memory-persistent schedules in which each block runs by one of its
/// options, or by a forward that keeps nothing. For the graph a heuristic. Where everything can be kept, that is the
/// answer. Each chain is also solved without further options, so that before 4. no chain does better by those.
///
/// Time: of the blocks, bounded by `block_effort`; of each chain O(L³ · slots + L² · slots · options) at worst. The
/// answer is the same for any number of threads, and for a limit of work. Polls before each problem of a block, at each
/// pair of stages, and for each schedule.
struct rockmate_solver {
  using options_type = rockmate_options;
  static constexpr std::string_view name = "rockmate";

  /// Throws `bad_argument` without slots, or with fewer than two options for a stage.
  [[nodiscard]] solution operator()(const problem& p, const rockmate_options& options = {}) const {
    if (options.slots == 0) throw bad_argument("slots is 0; there must be at least one");
    if (options.options_per_stage < 2)
      throw bad_argument("options_per_stage is " + std::to_string(options.options_per_stage) +
                         "; there must be at least two");
    run_clock clock(options.run);
    solution best;
    if (settled_by_listed_order(p, best)) {
      conclude(p, best, clock, stop_reason::none);
      return best;
    }
    const stop_reason stopped = search(p, options, clock, best).run();
    conclude(p, best, clock, stopped);
    return best;
  }

 private:
  /// The best that a chain gave.
  struct candidate {
    cut_list cuts{};
    bool with_options = false;
    solution answer{};
  };

  class search {
   public:
    search(const problem& p, const rockmate_options& options, run_clock& clock, solution& best)
        : p_(p),
          options_(options),
          clock_(clock),
          best_(best),
          line_(find_forward_line(p.graph())),
          order_(line_.operations),
          cache_(options.cache ? options.cache : std::make_shared<option_cache>()) {
      order_.insert(order_.end(), line_.rest.begin(), line_.rest.end());
    }

    stop_reason run() {
      stop_reason stopped = stop_reason::none;
      for (const cut_list& cuts : chains()) {
        stopped = solve(cuts, false, options_.slots);
        if (stopped != stop_reason::none) break;
        if (!small_blocks(cuts)) continue;
        stopped = solve(cuts, true, options_.slots);
        if (stopped != stop_reason::none) break;
      }
      if (stopped == stop_reason::none) stopped = solve_finer();
      spend();
      if (best_.plan)
        best_.message = std::to_string(distinct_) + " distinct among " + std::to_string(blocks_) + " blocks, " +
                        std::to_string(solves_) + " budgets of blocks solved";
      return stopped;
    }

   private:
    /// Fine chains first. Without repetition.
    [[nodiscard]] std::vector<cut_list> chains() const {
      const std::size_t most = std::max<std::uint32_t>(options_.max_stages, 1) - 1;
      std::vector<cut_list> out = cut_levels(line_, most);
      const std::vector<cut_list> levels = cut_levels(line_, line_.operations.size());
      for (const cut_list& level : levels)
        for (const std::size_t every : {2U, 3U, 4U, 6U, 8U, 12U}) {
          cut_list some;
          for (std::size_t k = every - 1; k < level.size(); k += every) some.push_back(level[k]);
          if (some.size() <= most) out.push_back(std::move(some));
        }
      for (const cut_list& level : levels)
        for (const std::size_t segments : {4U, 6U, 8U, 11U, 16U, 23U, 32U, 45U})
          if (segments <= most + 1) out.push_back(even_cuts(line_, level, segments));
      std::sort(out.begin(), out.end(), [](const cut_list& a, const cut_list& b) {
        return a.size() != b.size() ? a.size() > b.size() : a < b;
      });
      out.erase(std::unique(out.begin(), out.end()), out.end());
      return out;
    }

    [[nodiscard]] bool small_blocks(const cut_list& cuts) const {
      std::size_t before = 0, largest = 0;
      for (const std::uint32_t cut : cuts) {
        largest = std::max(largest, cut - before);
        before = cut;
      }
      largest = std::max(largest, line_.operations.size() - before);
      return largest <= options_.most_block;
    }

    /// Further ways for each stage, [1 … L]; none where that is too much effort.
    [[nodiscard]] std::vector<std::vector<stage_way>> find_ways(const stage_chain& chain) {
      part_extractor extract(p_.graph(), order_, static_cast<std::uint32_t>(line_.operations.size()));
      std::vector<step_part> parts;
      std::vector<std::uint32_t> stages;
      std::set<std::uint64_t> fresh;
      std::uint64_t effort = effort_;
      for (std::uint32_t s = 1; s <= chain.length(); ++s) {
        std::vector<std::uint32_t> part(chain.forward(s).begin(), chain.forward(s).end());
        part.insert(part.end(), chain.backward(s).begin(), chain.backward(s).end());
        parts.push_back(extract(std::move(part)));
        if (!stands_alone(parts.back())) {
          parts.pop_back();
          continue;
        }
        stages.push_back(s);
        const std::uint64_t key = fingerprint(parts.back(), option_cache::likeness());
        const std::uint64_t size = parts.back().operations.size();
        if (seen_.count(key) == 0 && fresh.insert(key).second) effort += size * size;
      }
      if (effort > options_.block_effort) return {};
      effort_ = effort;
      seen_.merge(fresh);
      option_search wishes;
      wishes.peaks = options_.peaks;
      wishes.most_options = options_.options_per_stage;
      wishes.moves = options_.moves;
      wishes.solvers = default_part_solvers();
      wishes.cache = cache_;
      wishes.run = options_.run;
      if (options_.run.on_progress)
        wishes.run.on_progress = [this](progress news) {
          news.solver = name;
          news.best_objective = best_.time;
          news.lower_bound = p_.graph().needed_time;
          options_.run.on_progress(news);
        };
      run_clock part_clock(wishes.run, clock_.start());
      const option_table table = find_options(parts, wishes, part_clock);
      clock_.work(part_clock.work_done());
      blocks_ += parts.size();
      distinct_ += table.distinct - table.reused;
      solves_ += table.solves;
      std::vector<std::vector<stage_way>> out(std::size_t{chain.length()} + 1);
      const auto named = [](const step_part& part, const std::vector<std::uint32_t>& own) {
        std::vector<std::uint32_t> names;
        for (const std::uint32_t o : own) names.push_back(part.operations[o]);
        return names;
      };
      for (std::size_t i = 0; i < parts.size(); ++i)
        for (const part_option& o : table.options[i])
          out[stages[i]].push_back({named(parts[i], o.forward), named(parts[i], o.backward)});
      return out;
    }

    /// Whether the part is one that options can be found for: not where both directions, or stages in another order,
    /// add to one tensor.
    [[nodiscard]] static bool stands_alone(const step_part& part) {
      const part_runs runs(part);
      std::vector<std::uint32_t> all(part.operations.size());
      for (std::uint32_t o = 0; o < all.size(); ++o) all[o] = o;
      const std::span<const std::uint32_t> every(all);
      return runs.measure(every.first(runs.num_forward()), every.subspan(runs.num_forward())).has_value();
    }

    /// Solves a chain for all budgets, and expands the schedules, fastest first, until one fits and the next ones
    /// cannot be much faster.
    stop_reason solve(const cut_list& cuts, bool with_options, std::uint32_t slots) {
      constexpr double slack = 1.3;  // expanded, a schedule recomputes less than the model says
      const double needed = p_.graph().needed_time;
      const stage_chain chain(p_.graph(), line_, cuts);
      std::vector<std::vector<stage_way>> further;
      if (with_options) {
        further = find_ways(chain);
        if (further.empty()) return stop_reason::none;
      }
      const staged_ways ways(p_.graph(), chain, std::move(further));
      double whole = 0;  // the model's time without recomputation
      for (std::uint32_t s = 1; s <= chain.length(); ++s) whole += chain.forward_time(s) + chain.backward_time(s);
      const std::int64_t unit = std::max<std::int64_t>(detail::persistent::store_all_bytes(chain) / slots + 1, 1);
      const detail::persistent::sized_chain sizes = detail::persistent::sized(
          ways, detail::persistent::to_slots{unit, slots, detail::persistent::rounding::nearest});
      double limit = std::numeric_limits<double>::max();
      if (best_.plan)
        limit =
            std::max(0.0, whole + (best_.time - needed) * slack - detail::persistent::excess_bound(sizes).least.back());
      const detail::persistent::excess_bound bound(sizes, limit);
      detail::persistent::slot_table table(sizes, slots, bound);
      const std::uint64_t room = options_.run.work_limit - std::min(options_.run.work_limit, clock_.work_done());
      clock_.work(std::min<std::uint64_t>(table.rows(), room));
      if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
      const detail::persistent::fill_outcome end =
          table.fill(clock_, options_.run.threads, options_.table_bytes,
                     [&](std::uint64_t done, std::uint64_t total) { report(done, total); });
      if (end == detail::persistent::fill_outcome::stopped) return clock_.poll();
      if (end == detail::persistent::fill_outcome::too_large || table.first() > slots) return stop_reason::none;
      candidate mine{cuts, with_options, {}};
      stop_reason stopped = stop_reason::none;
      for (std::uint32_t m = table.last() + 1; m-- > table.first() && stopped == stop_reason::none;) {
        if (m > table.first() && table.excess(m - 1) == table.excess(m)) continue;  // the same time with less memory
        const double lost = table.cost(m) - whole;
        if (best_.plan && lost > (best_.time - needed) * slack) break;
        if (mine.answer.plan && lost > (mine.answer.time - needed) * slack) break;
        stopped = clock_.poll();
        if (stopped != stop_reason::none) break;
        clock_.work();
        const std::vector<chain_step> steps = table.steps(m);
        accept(p_, mine.answer, schedule_computes(p_.graph(), ways.expand_whole(steps)));
        accept(p_, mine.answer, schedule_computes(p_.graph(), ways.expand(steps)));
      }
      if (mine.answer.plan) {
        accept(p_, best_, *mine.answer.plan);
        candidates_.push_back(std::move(mine));
      }
      return stopped;
    }

    void sort_candidates() {
      std::stable_sort(candidates_.begin(), candidates_.end(),
                       [](const candidate& a, const candidate& b) { return a.answer.time < b.answer.time; });
    }

    /// The best chains once more.
    stop_reason solve_finer() {
      sort_candidates();
      const auto slots =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{options_.slots} * 4, 1U << 24));
      const std::vector<candidate> chosen(candidates_.begin(),
                                          candidates_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                                    candidates_.size(), options_.retain_from)));
      for (const candidate& c : chosen)
        if (const stop_reason why = solve(c.cuts, c.with_options, slots); why != stop_reason::none) return why;
      return stop_reason::none;
    }

    void spend() {
      sort_candidates();
      retain_options spending;
      spending.rounds = options_.retain_rounds;
      spending.enough = p_.graph().needed_time * (1 + 1e-12);
      std::uint32_t tried = 0;
      const schedule* last = nullptr;
      for (const candidate& c : candidates_) {
        if (tried == options_.retain_from || options_.retain_rounds == 0) break;
        if (last != nullptr && *last == *c.answer.plan) continue;
        last = &*c.answer.plan;
        ++tried;
        accept(p_, best_, retain(p_, *last, clock_, spending));
      }
    }

    void report(std::uint64_t done, std::uint64_t total) {
      progress news;
      news.solver = name;
      news.stage = "table";
      news.best_objective = best_.time;
      news.lower_bound = p_.graph().needed_time;
      news.done = done;
      news.total = total;
      clock_.report(news);
    }

    const problem& p_;
    const rockmate_options& options_;
    run_clock& clock_;
    solution& best_;
    forward_line line_;
    std::vector<std::uint32_t> order_;  // of all needed operations
    std::shared_ptr<option_cache> cache_;
    std::vector<candidate> candidates_{};
    std::size_t blocks_ = 0, distinct_ = 0, solves_ = 0;
    std::set<std::uint64_t> seen_{};  // blocks, by fingerprint, that have been given options
    std::uint64_t effort_ = 0;
  };
};
inline constexpr rockmate_solver rockmate{};

}  // namespace remat
