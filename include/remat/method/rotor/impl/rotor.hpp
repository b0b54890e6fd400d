// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/rotor.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remat/chain/detail/breakpoint_table.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/slot_table.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/improve.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/refine/detail/retain.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/figures.hpp"

namespace remat {

namespace detail::rotors {

/// The end of the search for a schedule within a limit.
enum class verdict : std::uint8_t { found, none, stopped, too_large };

/// Counts the rows of a table as work before the table is filled, since an incomplete table is of no use.
inline stop_reason spend(run_clock& clock, std::uint64_t rows) {
  const std::uint64_t left = clock.work_left();
  const bool enough = rows < left;
  clock.work(enough ? rows : left);
  return enough ? clock.poll() : stop_reason::work;
}

/// The callback of a table: progress of a solver whose best time is read at each call.
inline fill_report report_to(run_clock& clock, const double& best_time, double lower_bound) {
  if (!clock.control().on_progress) return nullptr;
  return [&clock, &best_time, lower_bound](std::uint64_t done, std::uint64_t total) {
    progress news;
    news.solver = rotor_solver::name;
    news.stage = "table";
    news.best_objective = best_time;
    news.lower_bound = lower_bound;
    news.done = done;
    news.total = total;
    clock.report(news);
  };
}

/// Calls `attempt(limit)` with growing limits on D until it returns anything but `none`, or the limit was `known`. The
/// first limit is a little above `from`, a lower bound; from most of the time of all forwards on there is no limit.
inline verdict deepen(const sized_chain& c, double from, double known, const std::function<verdict(double)>& attempt) {
  constexpr double unlimited = std::numeric_limits<double>::max();
  double forwards = 0;
  for (const sized_stage& s : c.stages) forwards += s.fast;
  for (double limit = from * 1.08 + forwards * 0.01;; limit *= 1.35) {
    if (!(limit < forwards * 0.9)) limit = unlimited;
    limit = std::min(limit, known);
    const verdict end = attempt(limit);
    if (end != verdict::none || limit == known || limit == unlimited) return end;
  }
}

/// The search for a schedule of one chain.
class chain_search {
 public:
  chain_search(const chain_problem& p, const rotor_options& options, run_clock& clock, chain_solution& best)
      : p_(p), options_(options), clock_(clock), best_(best), sizes_(size_chain(p.stages(), false)) {}

  /// Runs the search that `form` asks for. Returns why it stopped early.
  stop_reason run() {
    constexpr std::uint64_t few = 2'000'000;
    switch (options_.form) {
      case rotor_form::slots:
        by_slots();
        break;
      case rotor_form::exact:
        if (by_bytes(options_.max_breakpoints) == verdict::too_large) explain_too_large();
        break;
      case rotor_form::automatic:
        if (by_bytes(std::min(few, options_.max_breakpoints)) != verdict::too_large) break;
        if (by_slots() == verdict::stopped || options_.max_breakpoints <= few) break;
        by_bytes(options_.max_breakpoints);
    }
    best_.statistics.own.set("stages", p_.stages().length());
    best_.statistics.own.set("options", sizes_.options.size());
    if (best_.plan) best_.statistics.own.set("form", in_bytes_ ? "exact" : "slots");
    best_.lower_bound = p_.stages().least_time() + recompute_bound(sizes_, room());
    if (best_.persistent_optimum && best_.time < best_.lower_bound) best_.lower_bound = best_.time;  // rounding
    return stopped_;
  }

 private:
  /// Bytes beside the input of the chain.
  [[nodiscard]] std::int64_t room() const { return p_.budget() - p_.stages().input_bytes(); }

  [[nodiscard]] fill_report report() const { return report_to(clock_, best_.time, p_.stages().least_time()); }

  verdict judge(fill_outcome end) {
    if (end == fill_outcome::filled) return verdict::found;
    if (end == fill_outcome::too_large) return verdict::too_large;
    stopped_ = clock_.poll();
    return verdict::stopped;
  }

  verdict fill(slot_table& table) {
    stopped_ = spend(clock_, table.rows());
    if (stopped_ != stop_reason::none) return verdict::stopped;
    return judge(table.fill(clock_, options_.run.threads, options_.table_bytes, report()));
  }

  /// Visits at most `most_work` breakpoints, and no more than the work that is left.
  verdict fill(breakpoint_table& table, std::uint64_t most_work) {
    constexpr std::uint64_t each = 1000;  // breakpoints in a unit of work
    stopped_ = spend(clock_, table.rows());
    if (stopped_ != stop_reason::none) return verdict::stopped;
    const std::uint64_t left = clock_.work_left();
    const bool limited = left < most_work / each;
    const fill_outcome end =
        table.fill(clock_, options_.run.threads, options_.table_bytes, limited ? left * each : most_work, report());
    clock_.work(std::min(left, table.work() / each));
    if (end == fill_outcome::too_large && limited && table.work() > left * each) {
      stopped_ = stop_reason::work;
      return verdict::stopped;
    }
    return judge(end);
  }

  /// With half as many slots as long as the table is too large.
  verdict by_slots() {
    constexpr std::uint32_t fewest = 32;
    for (std::uint32_t slots = options_.slots;; slots /= 2) {
      const std::int64_t unit = std::max<std::int64_t>(p_.budget() / slots, 1);
      verdict end = in_slots(slots, unit, options_.exact_gradient);
      // Charged the gradient of its own output, a schedule may exceed the budget; charged the waiting one, it cannot.
      if (end == verdict::found && !best_.plan) end = in_slots(slots, unit, true);
      if (end == verdict::none)
        best_.message = "no memory-persistent schedule fits when sizes are rounded up to slots of " +
                        std::to_string(unit) + " bytes; that is no proof that there is none";
      if (end != verdict::too_large) return end;
      if (slots < fewest) {
        explain_too_large();
        return end;
      }
    }
  }

  verdict in_slots(std::uint32_t slots, std::int64_t unit, bool exact_gradient) {
    const sized_chain c = size_chain(p_.stages(), !exact_gradient, {unit, slots, slot_rounding::up});
    const std::int64_t input = p_.stages().input_bytes();
    // A budget of fewer bytes than slots has slots of one byte, and fewer of them.
    const std::int64_t slots_left =
        std::min<std::int64_t>(slots, p_.budget() / unit) - (input / unit + (input % unit != 0));
    if (slots_left < 0) return verdict::none;
    const auto m = static_cast<std::uint32_t>(slots_left);
    return deepen(c, recompute_bound(c, m), std::numeric_limits<double>::infinity(), [&](double limit) {
      const excess_bound bound(c, limit);
      slot_table table(c, m, bound);
      if (const verdict end = fill(table); end != verdict::found) return end;
      if (table.first() > m) return verdict::none;
      if (accept(p_, best_, table.steps(m))) in_bytes_ = false;
      return verdict::found;
    });
  }

  /// Proves that the best schedule is the fastest or that none exists, or gives up after `most_work` breakpoints.
  verdict by_bytes(std::uint64_t most_work) {
    const double least = excess_bound(sizes_).least.back();
    const auto try_limit = [&](double limit) {
      const excess_bound bound(sizes_, limit);
      breakpoint_table table(sizes_, room(), bound);
      const verdict end = fill(table, most_work);
      most_work -= std::min(most_work, table.work());
      if (end != verdict::found) return end;
      if (table.frontier().empty()) return verdict::none;
      if (accept(p_, best_, table.steps(room()))) in_bytes_ = true;
      return verdict::found;
    };
    const auto known = [&] { return best_.plan ? best_.time - least : std::numeric_limits<double>::infinity(); };
    verdict end = deepen(sizes_, recompute_bound(sizes_, room()), known(), [&](double limit) {
      if (limit < std::numeric_limits<double>::max()) return try_limit(limit);
      // Without a limit: the schedule of least memory, if there is one, bounds the others.
      const verdict any = find_least_memory();
      return any == verdict::found ? try_limit(known()) : any;
    });
    if (end == verdict::none && best_.plan) end = verdict::found;  // the known one
    if (end == verdict::found) best_.persistent_optimum = true;
    return end;
  }

  /// A schedule of least memory, if it fits.
  verdict find_least_memory() {
    const sized_chain c = without_times(sizes_);
    const excess_bound bound(c);
    breakpoint_table table(c, room(), bound);
    const verdict end = fill(table, std::numeric_limits<std::uint64_t>::max());
    if (end != verdict::found) return end;
    if (table.frontier().empty()) {
      best_.message = "no memory-persistent schedule fits; that is no proof that no other does";
      return verdict::none;
    }
    if (accept(p_, best_, table.steps(room()))) in_bytes_ = true;
    return verdict::found;
  }

  void explain_too_large() {
    if (best_.plan) return;
    best_.status = solve_status::error;
    best_.message = "the chain is too long: its table does not fit in " + std::to_string(options_.table_bytes) +
                    " bytes (table_bytes), or takes more than " + std::to_string(options_.max_breakpoints) +
                    " breakpoints (max_breakpoints)";
  }

  const chain_problem& p_;
  const rotor_options& options_;
  run_clock& clock_;
  chain_solution& best_;
  sized_chain sizes_;      // in bytes
  bool in_bytes_ = false;  // the best schedule is one of the exact form
  stop_reason stopped_ = stop_reason::none;
};

/// How the stages of a graph are counted, and their schedules expanded.
enum class counting : std::uint8_t {
  near,  ///< sizes rounded to the nearest slot; stages in the listed order; each forward runs all of its stage
  safe   ///< sizes rounded up; stages in an order of little memory; each forward runs for its purpose
};

/// The search for a schedule of one graph.
class graph_search {
 public:
  graph_search(const problem& p, const rotor_options& options, run_clock& clock, solution& best)
      : p_(p), options_(options), clock_(clock), best_(best), needed_(p.graph().needed_time) {}

  /// Returns why the search stopped early.
  stop_reason run() {
    const std::vector<forward_line> lines = find_lines();
    lines_ = lines.size();
    std::size_t better = 0;
    for (std::size_t k = 0; k < lines.size(); ++k) {
      const double before = best_.time;
      if (const stop_reason why = try_line(lines, k, counting::near, options_.slots); why != stop_reason::none)
        return why;
      if (best_.time < before) better = k;
    }
    const auto finer = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{options_.slots} * 2, 1U << 24));
    if (const stop_reason why = try_line(lines, better, counting::near, finer); why != stop_reason::none) return why;
    for (std::size_t k = 0; k < lines.size(); ++k)
      if (const stop_reason why = try_line(lines, k, counting::safe, k == better ? finer : options_.slots);
          why != stop_reason::none)
        return why;
    most_memory_ = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < lines.size() && !best_.plan; ++k)
      for (const counting how : {counting::near, counting::safe})
        if (const stop_reason why = try_line(lines, k, how, options_.slots); why != stop_reason::none) return why;
    return stop_reason::none;
  }

  /// Spends the memory that the best schedules leave, in so many rounds.
  void retain_left(std::uint32_t rounds) {
    retain_options spending;
    spending.rounds = rounds;
    spending.enough = with_rounding(needed_);
    for (std::vector<candidate>& pool : found_)
      for (candidate& k : pool) {
        if (clock_.should_stop()) return;
        accept(p_, best_, retain(p_, k.plan, clock_, spending), by_part(rotor_solver::name, "retain"));
      }
  }

  /// The best schedules of the tables, at most `most` of each way of counting.
  [[nodiscard]] std::vector<schedule> take_schedules(std::size_t most) {
    std::vector<schedule> out;
    for (std::vector<candidate>& pool : found_)
      for (std::size_t i = 0; i < std::min(most, pool.size()); ++i) out.push_back(std::move(pool[i].plan));
    return out;
  }

  /// What was solved, and the chain of the best schedule.
  void record(figures& own) const {
    own.set("lines", lines_);
    own.set("chains", chains_);
    own.set("tables_refused", tables_refused_);
    if (origin_.stages == 0) return;
    own.set("line", origin_.line == 0 ? "listed" : "narrow");
    own.set("count", origin_.how == counting::near ? "near" : "safe");
    own.set("stages", origin_.stages);
    own.set("distinct_stages", origin_.distinct_stages);
    own.set("slots", origin_.slots);
    own.set("table_time", origin_.table_time);
    own.set("flat_time", origin_.flat_time);
    own.set("table_bytes", origin_.table_bytes);
    own.set("flat_peak_bytes", origin_.flat_peak_bytes);
  }

 private:
  struct candidate {
    double time = 0;
    std::int64_t peak_bytes = 0;
    schedule plan{};
  };
  /// The chain of a schedule, what its table says of it, and what the checker says. Without stages: none.
  struct origin {
    std::size_t line = 0;
    counting how = counting::near;
    std::uint32_t stages = 0, slots = 0;
    std::size_t distinct_stages = 0;
    double table_time = 0, flat_time = 0;
    std::int64_t table_bytes = 0, flat_peak_bytes = 0;
  };

  /// The listed line, and the narrow one if it is another one and the graph is not too large for it.
  [[nodiscard]] std::vector<forward_line> find_lines() const {
    constexpr std::size_t longest_line = 20'000;  // operations
    std::vector<forward_line> lines{find_forward_line(p_.graph())};
    if (lines[0].operations.size() > longest_line) return lines;
    forward_line narrow = find_narrow_line(p_.graph(), lines[0]);
    if (narrow.operations != lines[0].operations) lines.push_back(std::move(narrow));
    return lines;
  }

  /// The chains of a line, short ones first, which are solved at once: all levels of cuts, and segments of about equal
  /// bytes with cuts of the two finest levels. Coarse stages run their backward operations in the listed order, which
  /// often needs less memory.
  [[nodiscard]] std::vector<cut_list> chains_of(const forward_line& line) const {
    return short_ones_first(chains_of_line(line, options_.max_stages));
  }

  stop_reason try_line(const std::vector<forward_line>& lines, std::size_t k, counting how, std::uint32_t slots) {
    const forward_line& line = lines[k];
    trying_.line = k;
    trying_.how = how;
    const stage_order order = how == counting::safe ? stage_order::least_peak : stage_order::listed;
    for (const cut_list& cuts : chains_of(line)) {
      if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
      const stop_reason why = try_stages(stage_chain(p_.graph(), line, cuts, order), how, slots);
      if (why != stop_reason::none) return why;
    }
    return stop_reason::none;
  }

  /// The bytes of a slot.
  [[nodiscard]] std::int64_t unit_of(const stage_chain& stages, counting how, std::uint32_t slots) const {
    if (how == counting::near) return store_all_bytes(stages) / slots + 1;
    // More slots than the promise is for: half a slot each, which is never worse than a whole one.
    if (slots > options_.slots) return std::max<std::int64_t>(slot_bytes(stages, options_.slots) / 2, 1);
    return slot_bytes(stages, slots);
  }

  /// Solves a chain for all budgets, with half as many slots as long as the table is too large.
  stop_reason try_stages(const stage_chain& stages, counting how, std::uint32_t most_slots) {
    constexpr std::uint32_t fewest = 16;
    double whole = 0;  // the model's time without recomputation
    for (std::uint32_t s = 1; s <= stages.length(); ++s) whole += stages.forward_time(s) + stages.backward_time(s);
    for (std::uint32_t slots = most_slots; slots >= std::min(most_slots, fewest); slots /= 2) {
      const std::int64_t unit = unit_of(stages, how, slots);
      const double bytes =
          static_cast<double>(p_.budget()) * most_memory_ - static_cast<double>(stages.standing_bytes());
      const double room = bytes / static_cast<double>(unit);
      if (room < 0) return stop_reason::none;
      const auto most = room < slots ? static_cast<std::uint32_t>(room) : slots;
      const sized_chain c =
          size_chain(stages, {unit, most, how == counting::near ? slot_rounding::nearest : slot_rounding::up});
      double limit = std::numeric_limits<double>::max();
      if (best_.plan) limit = std::max(0.0, whole + allowance(how) - excess_bound(c).least.back());
      const excess_bound bound(c, limit);
      slot_table table(c, most, bound);
      if (const stop_reason why = spend(clock_, table.rows()); why != stop_reason::none) return why;
      const fill_outcome end =
          table.fill(clock_, options_.run.threads, options_.table_bytes, report_to(clock_, best_.time, needed_));
      if (end == fill_outcome::stopped) return clock_.poll();
      if (end == fill_outcome::too_large) {
        ++tables_refused_;
        continue;
      }
      ++chains_;
      if (table.first() > most) return stop_reason::none;
      trying_.stages = stages.length();
      trying_.slots = most;
      unit_ = unit;
      return try_schedules(stages, table, whole, how);
    }
    return stop_reason::none;
  }

  /// The time that the model may lose in a schedule that is still tried: an expanded schedule recomputes less than the
  /// model says. Precondition: there is a best schedule.
  [[nodiscard]] double allowance(counting how) const {
    return (best_.time - needed_) * (how == counting::near ? 1.3 : 1.15);
  }

  /// Expands the schedules of a table, fastest first, until the others cannot be much faster than the best.
  stop_reason try_schedules(const stage_chain& stages, const slot_table& table, double whole, counting how) {
    for (std::uint32_t m = table.last() + 1; m-- > table.first();) {
      if (m > table.first() && table.excess(m - 1) == table.excess(m)) continue;  // the same time with less memory
      if (best_.plan && table.cost(m) - whole > allowance(how)) break;
      if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
      clock_.work();
      const std::vector<chain_step> steps = table.steps(m);
      trying_.table_time = table.cost(m);
      trying_.table_bytes = unit_ * m + stages.standing_bytes();
      if (offer(
              schedule_computes(p_.graph(), how == counting::near ? stages.expand_whole(steps) : stages.expand(steps)),
              how)) {
        origin_ = trying_;
        origin_.distinct_stages = count_distinct_stages(stages);
        origin_.flat_time = best_.time;
        origin_.flat_peak_bytes = best_.peak_bytes;
      }
    }
    return stop_reason::none;
  }

  /// Keeps a schedule that fits among the candidates, and as the best if it is. Returns whether it is the best.
  bool offer(schedule plan, counting how) {
    const check_report r = check(p_, plan);
    if (r.what == violation::over_budget) return false;
    if (!r.valid()) throw internal_error("a solver made an invalid schedule: " + r.message());
    std::vector<candidate>& pool = found_[static_cast<std::size_t>(how)];
    const auto at = std::lower_bound(pool.begin(), pool.end(), r, [](const candidate& a, const check_report& b) {
      return a.time != b.time ? a.time < b.time : a.peak_bytes < b.peak_bytes;
    });
    if (at != pool.end() && at->time == r.time && at->peak_bytes == r.peak_bytes) return false;
    const bool taken = at == pool.begin() && accept(p_, best_, plan, rotor_solver::name);
    pool.insert(at, {r.time, r.peak_bytes, std::move(plan)});
    const std::uint64_t most = how == counting::near ? options_.candidates : std::uint64_t{options_.candidates} * 3 / 8;
    if (pool.size() > most) pool.pop_back();
    return taken;
  }

  const problem& p_;
  const rotor_options& options_;
  run_clock& clock_;
  solution& best_;
  double needed_;  // the time of every needed operation once
  /// Schedules for which the model needs more than so many budgets are not tried. Tuned on the bundled graphs: none
  /// over 1.27 fitted; no other data was held out.
  double most_memory_ = 4.0 / 3;
  std::array<std::vector<candidate>, 2> found_{};  // by the way of counting; fastest first
  std::size_t lines_ = 0;
  std::uint64_t chains_ = 0, tables_refused_ = 0;
  std::int64_t unit_ = 1;  // bytes of a slot of the present table
  origin trying_{}, origin_{};
};

}  // namespace detail::rotors

REMAT_INLINE void check_options(const rotor_options& options) {
  constexpr std::uint32_t most_slots = 1U << 24;
  if (options.slots == 0) throw bad_argument("slots is 0; there must be at least one");
  if (options.slots > most_slots)
    throw bad_argument("slots is " + std::to_string(options.slots) + "; there must be at most " +
                       std::to_string(most_slots));
  if (options.max_stages == 0) throw bad_argument("max_stages is 0; there must be at least one");
  if (options.table_bytes < 0)
    throw bad_argument("table_bytes is " + std::to_string(options.table_bytes) + "; it must not be negative");
}

REMAT_INLINE solution rotor_solver::operator()(const problem& p, const rotor_options& options) const {
  check_options(options);
  constexpr std::uint32_t improving_rounds = 3;
  constexpr std::size_t most_starts = 8;
  run_clock clock(options.run);
  solution best;
  stop_reason stopped = stop_reason::none;
  if (!settled_by_listed_order(p, best, name)) {
    const run_control limits = detail::limits_of_own_method(clock, options.improve);
    run_clock own(limits);
    detail::rotors::graph_search search(p, options, own, best);
    stopped = search.run();
    search.record(best.statistics.own);
    if (options.improve) detail::record_own_method(best);
    const std::uint32_t rounds =
        options.improve ? std::max(options.retain_rounds, improving_rounds) : options.retain_rounds;
    if (rounds != 0) search.retain_left(rounds);
    clock.work(own.work_done());
    if (options.improve) stopped = detail::improve(p, best, search.take_schedules(most_starts), clock, name);
  }
  conclude(p, best, clock, stopped);
  return best;
}

REMAT_INLINE chain_solution rotor_solver::operator()(const chain_problem& p, const rotor_options& options) const {
  check_options(options);
  run_clock clock(options.run);
  chain_solution best;
  stop_reason stopped = stop_reason::none;
  const bool fits = accept(p, best, store_all_steps(p.stages()));
  if (fits && best.time <= p.stages().least_time())
    best.persistent_optimum = true;
  else if (largest_working_set(p) <= p.budget())
    stopped = detail::rotors::chain_search(p, options, clock, best).run();
  conclude(p, best, clock, stopped);
  return best;
}

}  // namespace remat
