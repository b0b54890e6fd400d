// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/pofo.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/core/detail/bit_words.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/copy_floor.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/pofo/impl/backlog_program.hpp"
#include "remat/method/rotor.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::backlog {

/// The options with which `rotor` runs as a part.
[[nodiscard]] inline rotor_options options_of_rotor(const pofo_options& options) {
  rotor_options recomputing;
  recomputing.slots = options.slots;
  recomputing.max_stages = options.max_stages;
  recomputing.table_bytes = options.table_bytes;
  return recomputing;
}

/// One call of `pofo` on a problem with a link.
class chain_copies {
 public:
  chain_copies(const problem& p, const pofo_options& options, run_clock& clock, solution& best)
      : p_(p), options_(options), clock_(clock), best_(best), planner_(p) {
    planner_.must_stop = [this] { return clock_.should_stop(); };
  }
  chain_copies(const chain_copies&) = delete;  // the planner refers to it
  chain_copies& operator=(const chain_copies&) = delete;

  stop_reason run() {
    recompute_alone();
    if (!is_over()) take_floor(p_, floor_within(p_, clock_, floor_share, floor_branch_nodes(p_), false), clock_, best_);
    for (const forward_line& line : find_listed_and_narrow_line(p_.graph())) {
      // Long chains have most choices. Short ones are solved at once, so they go first where limits may end the search.
      std::vector<cut_list> chains = short_ones_first(chains_of_line(line, options_.max_stages));
      const std::size_t finest = chains.back().size();
      if (!options_.run.is_limited()) std::reverse(chains.begin(), chains.end());
      for (const cut_list& cuts : chains) {
        if (is_over()) break;
        chain_program program(p_.graph(), line, cuts);
        try_chain(program, cuts.size() == finest);
      }
    }
    figures& own = best_.statistics.own;
    own.set("chains", chains_);
    own.set("plans", plans_);
    own.set_all(of_best_);
    return clock_.poll();
  }

 private:
  /// How the program counts: as multiples of the budget and of the link's speed, and the part of the backlogs beside
  /// which stages run again.
  struct count {
    double room, speed, charged;
  };
  /// The program's counts are cautious, so plans for more than there is may still fit. Tuned on the bundled chains.
  static constexpr std::array<count, 12> counts{{{1, 1, 1},
                                                 {1.06, 1, 0.5},
                                                 {1.15, 1, 1},
                                                 {1.06, 1, 1},
                                                 {1, 1, 0.5},
                                                 {1.15, 1, 0.5},
                                                 {1, 1.15, 1},
                                                 {1.06, 1.15, 1},
                                                 {1.15, 1.15, 1},
                                                 {1, 1.15, 0.5},
                                                 {1.06, 1.15, 0.5},
                                                 {1.15, 1.15, 0.5}}};
  static constexpr double rotor_share = 0.4;

  [[nodiscard]] bool is_over() const {
    return best_.status == solve_status::infeasible || best_.is_within(options_.gap) || clock_.should_stop();
  }

  /// Takes the answer of `rotor`, which makes no copies. Its bound does not hold for schedules with copies.
  void recompute_alone() {
    solution s = solve_other_problem(clock_, rotor_share, rotor, p_.without_link(), options_of_rotor(options_));
    if (s.plan) {
      of_best_.set("rotor_time", s.time);
      take_part(best_, s, [&] { accept(p_, best_, *s.plan, by_part(pofo_solver::name, rotor_solver::name)); });
    }
  }

  void try_chain(chain_program& program, bool is_finest) {
    chain_program_options filling;
    filling.slots = options_.slots;
    filling.table_bytes = options_.table_bytes;
    if (best_.plan) filling.max_lost = (best_.time - p_.graph().needed_time) * 1.3;
    if (program.fill(clock_, filling) != fill_outcome::filled) return;
    ++chains_;
    if (options_.run.is_limited()) try_larger_budgets(program);  // the cheaper part first
    const std::size_t runs = is_finest ? counts.size() : 2;
    for (std::size_t k = 0; k < runs; ++k) {
      if (is_over()) return;
      try_backlogs(program, counts[k]);
    }
    if (!options_.run.is_limited()) try_larger_budgets(program);
  }

  void try_backlogs(const chain_program& program, const count& how) {
    terms what;
    what.budget = static_cast<std::int64_t>(how.room * static_cast<double>(p_.budget()));
    what.host_budget = p_.host_budget();
    what.link = *p_.link();
    what.link.out *= how.speed;
    what.link.in *= how.speed;
    what.charged = how.charged;
    what.states = options_.states;
    what.plans = options_.candidates;
    if (best_.plan) what.max_time = program.flat_time() + (best_.time - p_.graph().needed_time) * 1.1;
    backlog_program copies(program, what);
    for (const backlog_program::plan& plan : copies.solve(clock_)) {
      if (is_over()) return;
      std::vector<float> factor(p_.graph().num_tensors, 1);
      for (const backlog_program::host_range& r : copies.on_host(plan)) mark(program.chain(), r, factor);
      const std::vector<chain_step> steps = copies.steps(plan);
      for (const bool whole : {true, false}) place(program, steps, whole, factor, plan.time, "backlog");
    }
  }

  /// The tensors that a range of stages makes and keeps go to the host before all others.
  void mark(const stage_chain& chain, const backlog_program::host_range& r, std::vector<float>& factor) const {
    for (std::uint32_t t = 0; t < p_.graph().num_tensors; ++t) {
      const tensor_use& use = chain.use_of(t);
      if (use.made_in == tensor_use::nowhere || use.made_in < r.first || use.made_in > r.last) continue;
      if (use.last_read > r.last ? !r.rest : r.rest && use.lowest_backward != tensor_use::nowhere)
        factor[t] = goes_first;
    }
  }

  /// Schedules of the table for larger budgets; what does not fit lies on the host.
  void try_larger_budgets(const chain_program& program) {
    constexpr int most = 16;
    const std::int64_t step = std::max<std::int64_t>((program.flat_bytes() - p_.budget()) / most, 0);
    for (auto e = program.fastest(); e; e = program.slower_than(*e, step)) {
      if (is_over() || e->bytes * 10 < p_.budget() * 9) return;
      const std::vector<chain_step> steps = program.steps(*e);
      for (const bool whole : {true, false}) place(program, steps, whole, {}, e->time, "table");
    }
  }

  void place(const chain_program& program, const std::vector<chain_step>& steps, bool whole,
             std::span<const float> factor, double plan_time, std::string_view by) {
    const std::vector<std::uint32_t> computes =
        computes_of(schedule_computes(p_.graph(), program.expand(steps, whole)));
    if (!placed_.insert(fingerprint(computes, factor)).second) return;
    for (const double bytes_exponent : {0.0, 0.5}) {
      if (is_over()) return;
      clock_.work(computes.size() * work_of::visit);
      ++plans_;
      if (!(planner_.place(computes, {.bytes_exponent = bytes_exponent, .factor = factor}, 3) < best_.time)) continue;
      if (!accept(p_, best_, planner_.steps(), by_part(pofo_solver::name, by))) continue;
      of_best_.set("stages", program.chain().length());
      of_best_.set("plan_time", plan_time);
    }
    clock_.report({.stage = "copies"});
  }

  /// The fingerprint of a plan, by which copies are placed once: plans of several tables often agree. Equal
  /// fingerprints of two others only leave one of them out.
  [[nodiscard]] static std::uint64_t fingerprint(std::span<const std::uint32_t> computes,
                                                 std::span<const float> factor) {
    std::vector<std::uint64_t> words(computes.begin(), computes.end());
    for (const float f : factor) words.push_back(f > 1);
    return hash_words(words);
  }

  static constexpr float goes_first = 1e20F;  // a factor above all products of times and bytes

  const problem& p_;
  const pofo_options& options_;
  run_clock& clock_;
  solution& best_;
  copy_planner planner_;
  std::unordered_set<std::uint64_t> placed_;
  std::uint64_t chains_ = 0, plans_ = 0;
  figures of_best_{};
};

}  // namespace detail::backlog

REMAT_INLINE solution pofo_solver::operator()(const problem& p, const pofo_options& options) const {
  require_valid_options(name, options);
  return detail::solve_by_own_method(
      p, name, options.run, improvement{}, {.may_copy = true}, [&](run_clock& clock, solution& best) {
        if (p.link()) return detail::backlog::chain_copies(p, options, clock, best).run();
        return detail::solve_without_link(p, name, clock, best, rotor, detail::backlog::options_of_rotor(options));
      });
}

}  // namespace REMAT_NAMESPACE
