// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/chain/breakpoint_table.hpp"
#include "remat/chain/chain_problem.hpp"
#include "remat/chain/chain_schedule.hpp"
#include "remat/chain/sized_chain.hpp"
#include "remat/chain/slot_table.hpp"
#include "remat/chain/stage_chain.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/retain.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/chain_solution.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

namespace detail::persistent {

/// How bytes become slots.
enum class rounding : std::uint8_t {
  nearest,  ///< the checker has the last word
  up        ///< so many slots are enough
};

/// Bytes in slots of `unit` bytes; more than `slots` are slots + 1.
struct to_slots {
  std::int64_t unit = 1;
  std::uint32_t slots = 0;
  rounding direction = rounding::up;

  [[nodiscard]] std::int64_t operator()(std::int64_t bytes) const noexcept {
    const std::int64_t from = direction == rounding::up ? 1 : unit - unit / 2;  // the least rest that is one more slot
    return std::min<std::int64_t>(bytes / unit + (bytes % unit >= from ? 1 : 0), std::int64_t{slots} + 1);
  }
};

/// A chain in slots of `unit` bytes, every size rounded up; those beyond `slots` become slots + 1.
[[nodiscard]] inline sized_chain in_slots(const chain& c, std::int64_t unit, std::uint32_t slots, bool own_gradient) {
  return sized(c, own_gradient, to_slots{unit, slots, rounding::up});
}

/// The stages of a graph in slots of `unit` bytes.
[[nodiscard]] inline sized_chain in_slots(const stage_chain& c, std::int64_t unit, std::uint32_t slots,
                                          rounding direction = rounding::nearest) {
  return sized(c, to_slots{unit, slots, direction});
}

/// A chain in bytes.
[[nodiscard]] inline sized_chain in_bytes(const chain& c, bool own_gradient) {
  return sized(c, own_gradient, [](std::int64_t bytes) { return bytes; });
}

/// The same chain where only memory counts.
[[nodiscard]] inline sized_chain without_times(sized_chain c) {
  for (sized_stage& s : c.stages) s.fast = s.backward = 0;
  for (keep_option& o : c.options) o.time = o.last_time = 0;
  return c;
}

/// The bytes that the model wants to keep every stage whole.
[[nodiscard]] inline std::int64_t store_all_bytes(const stage_chain& c) {
  std::int64_t stored = 0, most = 0;
  for (std::uint32_t s = 1; s <= c.length(); ++s) {
    std::int64_t made = 0;
    for (std::uint32_t i = s + 1; i <= c.length(); ++i) made += c.output_bytes(i);
    most = std::max({most, stored + c.forward_peak(s), stored + c.backward_peak(s) + made});
    stored += c.saved_bytes(s, c.length());
  }
  return most;
}

/// The bytes of a slot where all that the model wants takes `slots` of them: 1 or even, so that it can be halved.
[[nodiscard]] inline std::int64_t slot_bytes(const stage_chain& c, std::uint32_t slots) {
  const std::int64_t unit = store_all_bytes(c) / slots + 1;
  return unit == 1 ? unit : unit + unit % 2;
}

}  // namespace detail::persistent

/// How `rotor` counts memory.
enum class rotor_form : std::uint8_t {
  slots,     ///< in equal parts of the budget, sizes rounded up
  exact,     ///< in bytes
  automatic  ///< in bytes as far as that is affordable, else in slots
};

struct rotor_options {
  /// Of chains. `automatic` tries a little of `exact`, then `slots` so that there is an answer, then `exact` up to its
  /// limits, bounded by that answer. On a graph sizes are a model, and it is always slots.
  rotor_form form = rotor_form::automatic;
  std::uint32_t slots = 500;       ///< memory is counted in so many parts
  std::uint32_t max_stages = 150;  ///< of the chain that a graph is cut into
  /// Slots form, on a chain: charge a forward that keeps everything with the gradient that is there then, which is what
  /// the simulation counts, in place of that of its own output, which is what the published recurrence and formats.md
  /// do. Often better, and it solves tighter budgets. Should a schedule of the latter break the budget, the former is
  /// used. The exact form always does so.
  bool exact_gradient = false;
  std::uint64_t max_breakpoints = 500'000'000;       ///< exact form: look at no more than that (about 4 ns each)
  std::int64_t table_bytes = std::int64_t{4} << 30;  ///< give up on a larger table; in slots: fewer of them then
  std::uint32_t candidates = 64;                     ///< on a graph: so many of the schedules are refined, and 3/8 more
  std::uint32_t retain_rounds = 3;                   ///< on a graph: `retain_options::rounds` for each of them
  run_control run{};
};

class chain_frontier;

/// The fastest memory-persistent schedule of a chain (what is kept is kept until its backward) within a budget, by
/// dynamic programming over sub-chains and memory \cite beaumont2019rotor, each stage with several ways to keep
/// everything if it has them \cite zhao2023rockmate. The recurrence stands at `detail::persistent::slot_table`.
///
/// What the optimum is over: schedules in which a forward keeps nothing, its input, or everything that its backward
/// needs, in which what is kept stays until the backward that it is kept for, and in which the forwards between two
/// kept inputs run in one go. Dropping a kept input for a while and making it again can be faster (docs/rotor.md has
/// how often and by how much); the bound on the time in the answer holds for all schedules of a chain's actions.
///
/// On a chain in the exact form: the optimum, in bytes. In the slots form: slots of ⌊budget / slots⌋ bytes and sizes
/// rounded up, so a schedule keeps the budget; the optimum for those sizes, never better than the former. Both look for
/// schedules with little recomputation first: a table is filled for a limit on the time lost, which leaves most of it
/// empty, and the limit grows until there is a schedule, which is then the best. Differs from the paper in that.
///
/// On a graph: the listed line and `find_narrow_line`'s are cut by `cut_levels` into chains, each is solved for all
/// budgets at once, and each time's schedule is expanded to operations, fastest first, until one passes the checker
/// within the true budget and the others cannot be much faster; sizes are rounded to the nearest there. The better line
/// once more with twice as many slots; then both lines again, bounded by the answer by then, with sizes rounded up and
/// the operations of each stage in an order of little memory (`operation_sequence`). At last the memory that the best
/// schedules leave is spent (`retain`), so that they are no longer memory-persistent, and the fastest is the answer.
/// Other than in the paper, what crosses several stages is counted once, gradients have their own sizes, final outputs
/// pile up during the backward, and a forward that keeps nothing may take less time. Optimal in the model; for the
/// graph a heuristic. Where everything can be kept, that is the answer.
///
/// The answer for a graph is never slower than the optimum of any of those chains within the budget, sizes rounded up
/// to `slots` slots (and `stage_chain::standing_time` added): the model never promises too much (`stage_chain`), so its
/// optimum within the budget is among the schedules that are tried, or not faster than one of them. That holds for a
/// search that was not stopped, and whose tables fit in `table_bytes`.
///
/// O(L³ · slots) time and O(L² · slots) memory at worst for each chain of L stages, on `run.threads` threads; the
/// answer is the same for any number of them. Polls at each pair of stages, and after a million breakpoints.
struct rotor_solver {
  using options_type = rotor_options;
  static constexpr std::string_view name = "rotor";

  /// Throws `bad_argument` without slots.
  [[nodiscard]] solution operator()(const problem& p, const rotor_options& options = {}) const {
    check_options(options);
    run_clock clock(options.run);
    solution best;
    stop_reason stopped = stop_reason::none;
    if (settled_by_listed_order(p, best)) {
      conclude(p, best, clock, stopped);
      return best;
    }
    std::vector<forward_line> lines{find_forward_line(p.graph())};
    if (lines[0].operations.size() <= longest_line) {
      forward_line narrow = find_narrow_line(p.graph(), lines[0]);
      if (narrow.operations != lines[0].operations) lines.push_back(std::move(narrow));
    }
    graph_search search{p, options, clock, best};
    std::size_t better = 0;
    for (std::size_t k = 0; k < lines.size() && stopped == stop_reason::none; ++k) {
      const double before = best.time;
      stopped = search.try_line(lines[k], counting::near, options.slots);
      if (best.time < before) better = k;
    }
    const auto finer = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{options.slots} * 2, 1U << 24));
    if (stopped == stop_reason::none) stopped = search.try_line(lines[better], counting::near, finer);
    for (std::size_t k = 0; k < lines.size() && stopped == stop_reason::none; ++k)
      stopped = search.try_line(lines[k], counting::safe, k == better ? finer : options.slots);
    search.most_memory = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < lines.size() && stopped == stop_reason::none && !best.plan; ++k)
      for (const counting how : {counting::near, counting::safe})
        if (stopped == stop_reason::none) stopped = search.try_line(lines[k], how, options.slots);
    search.refine();
    conclude(p, best, clock, stopped);
    return best;
  }

  /// \overload
  [[nodiscard]] chain_solution operator()(const chain_problem& p, const rotor_options& options = {}) const {
    check_options(options);
    run_clock clock(options.run);
    chain_solution best;
    chain_search search{p, options, clock, best};
    const chain& c = p.stages();
    const bool kept = accept(p, best, store_all_steps(c));
    if ((kept && best.time <= c.least_time()) || largest_working_set(p) > p.budget()) {
      best.persistent_optimum = kept;
      conclude(p, best, clock, stop_reason::none);
      return best;
    }
    constexpr std::uint64_t a_little = 2'000'000;
    switch (options.form) {
      case rotor_form::slots:
        search.by_slots();
        break;
      case rotor_form::exact:
        if (search.by_bytes(options.max_breakpoints) == verdict::too_large) search.say_too_large();
        break;
      case rotor_form::automatic:
        if (search.by_bytes(std::min(a_little, options.max_breakpoints)) != verdict::too_large) break;
        if (search.by_slots() == verdict::stopped || options.max_breakpoints <= a_little) break;
        search.by_bytes(options.max_breakpoints);
    }
    best.lower_bound = c.least_time() + detail::persistent::recompute_bound(search.bytes(), search.room());
    if (best.persistent_optimum && best.time < best.lower_bound) best.lower_bound = best.time;  // rounding
    conclude(p, best, clock, search.stopped);
    return best;
  }

 private:
  friend chain_frontier rotor_frontier(const chain& c, const rotor_options& options, double most_time);
  /// How the search for a schedule within a limit ended.
  enum class verdict : std::uint8_t { found, none, stopped, too_large };

  static void check_options(const rotor_options& options) {
    if (options.slots == 0) throw bad_argument("slots is 0; there must be at least one");
  }

  /// Counts the rows of a table as work, before it is filled: one that is not is of no use.
  static stop_reason spend(run_clock& clock, std::uint64_t rows) {
    const std::uint64_t limit = clock.control().work_limit, done = clock.work_done();
    const bool enough = done < limit && rows < limit - done;
    clock.work(enough ? rows : limit - std::min(limit, done));
    return enough ? clock.poll() : stop_reason::work;
  }

  static void report(run_clock& clock, double best, double bound, std::uint64_t done, std::uint64_t total) {
    progress news;
    news.solver = name;
    news.stage = "table";
    news.best_objective = best;
    news.lower_bound = bound;
    news.done = done;
    news.total = total;
    clock.report(news);
  }

  /// Calls `attempt(limit)` with growing limits on D until it says anything but `none`, or `known` was the limit. They
  /// start a little above a lower bound, `from`; once they reach most of the time of all forwards, there is none.
  template <class Attempt>
  static verdict deepen(const detail::persistent::sized_chain& c, double from, double known, Attempt&& attempt) {
    constexpr double unlimited = std::numeric_limits<double>::max();
    double forwards = 0;
    for (const detail::persistent::sized_stage& s : c.stages) forwards += s.fast;
    for (double limit = from * 1.08 + forwards * 0.01;; limit *= 1.35) {
      if (!(limit < forwards * 0.9)) limit = unlimited;
      limit = std::min(limit, known);
      const verdict end = attempt(limit);
      if (end != verdict::none || limit == known || limit == unlimited) return end;
    }
  }

  /// The search for a schedule of one chain.
  struct chain_search {
    const chain_problem& p;
    const rotor_options& options;
    run_clock& clock;
    chain_solution& best;
    stop_reason stopped = stop_reason::none;
    std::optional<detail::persistent::sized_chain> sizes{};  // in bytes

    const detail::persistent::sized_chain& bytes() {
      if (!sizes) sizes = detail::persistent::in_bytes(p.stages(), false);
      return *sizes;
    }
    /// Bytes beside the input of the chain.
    [[nodiscard]] std::int64_t room() const { return p.budget() - p.stages().input_bytes(); }

    template <class Fill>
    verdict fill(std::uint64_t rows, Fill&& fill_table) {
      stopped = spend(clock, rows);
      if (stopped != stop_reason::none) return verdict::stopped;
      const double least = p.stages().least_time();
      const detail::persistent::fill_outcome end =
          fill_table([&](std::uint64_t done, std::uint64_t total) { report(clock, best.time, least, done, total); });
      if (end == detail::persistent::fill_outcome::too_large) return verdict::too_large;
      if (end == detail::persistent::fill_outcome::filled) return verdict::found;
      stopped = clock.poll();
      return verdict::stopped;
    }

    verdict by_slots() {
      for (std::uint32_t slots = options.slots;; slots /= 2) {
        const std::int64_t unit = std::max<std::int64_t>(p.budget() / slots, 1);
        verdict end = in_slots(slots, unit, options.exact_gradient);
        // With the gradient of the output in place of the one that waits, a schedule may break the budget; never
        // otherwise.
        if (end == verdict::found && !best.plan) end = in_slots(slots, unit, true);
        if (end == verdict::none)
          best.message = "no memory-persistent schedule fits when sizes are rounded up to slots of " +
                         std::to_string(unit) + " bytes; that is no proof that there is none";
        if (end != verdict::too_large) return end;
        if (slots < 32) {
          say_too_large();
          return end;
        }
      }
    }

    verdict in_slots(std::uint32_t slots, std::int64_t unit, bool exact_gradient) {
      const detail::persistent::sized_chain c = detail::persistent::in_slots(p.stages(), unit, slots, !exact_gradient);
      const std::int64_t input = p.stages().input_bytes();
      // A budget below the number of slots has one byte in a slot, and fewer of them.
      const std::int64_t slots_left =
          std::min<std::int64_t>(slots, p.budget() / unit) - (input / unit + (input % unit != 0));
      if (slots_left < 0) return verdict::none;
      const auto m = static_cast<std::uint32_t>(slots_left);
      return deepen(c, detail::persistent::recompute_bound(c, m), std::numeric_limits<double>::infinity(),
                    [&](double limit) {
                      const detail::persistent::excess_bound bound(c, limit);
                      detail::persistent::slot_table table(c, m, bound);
                      const verdict end = fill(table.rows(), [&](const auto& tell) {
                        return table.fill(clock, options.run.threads, options.table_bytes, tell);
                      });
                      if (end != verdict::found) return end;
                      if (table.first() > m) return verdict::none;
                      accept(p, best, table.steps(m));
                      return verdict::found;
                    });
    }

    /// Proves the best schedule, or that there is none, or gives up after that many breakpoints.
    verdict by_bytes(std::uint64_t most_work) {
      const detail::persistent::sized_chain& c = bytes();
      const double least = detail::persistent::excess_bound(c).least.back();
      const auto try_limit = [&](double limit) {
        const detail::persistent::excess_bound bound(c, limit);
        detail::persistent::exact_table table(c, room(), bound);
        const verdict end = fill(table.rows(), [&](const auto& tell) {
          return table.fill(clock, options.run.threads, options.table_bytes, most_work, tell);
        });
        most_work -= std::min(most_work, table.work());
        if (end != verdict::found) return end;
        if (table.frontier().empty()) return verdict::none;
        accept(p, best, table.steps(room()));
        return verdict::found;
      };
      const auto known = [&] { return best.plan ? best.time - least : std::numeric_limits<double>::infinity(); };
      verdict end = deepen(c, detail::persistent::recompute_bound(c, room()), known(), [&](double limit) {
        if (limit < std::numeric_limits<double>::max()) return try_limit(limit);
        // Is there any schedule at all? The one of least memory is a bound on the others.
        const verdict any = least_memory();
        return any == verdict::found ? try_limit(known()) : any;
      });
      if (end == verdict::none && best.plan) end = verdict::found;  // the one that is known
      if (end == verdict::found) best.persistent_optimum = true;
      return end;
    }

    /// A schedule of least memory, if that fits.
    verdict least_memory() {
      const detail::persistent::sized_chain c = detail::persistent::without_times(bytes());
      const detail::persistent::excess_bound bound(c);
      detail::persistent::exact_table table(c, room(), bound);
      const verdict end = fill(table.rows(), [&](const auto& tell) {
        return table.fill(clock, options.run.threads, options.table_bytes, std::numeric_limits<std::uint64_t>::max(),
                          tell);
      });
      if (end != verdict::found) return end;
      if (table.frontier().empty()) {
        best.message = "no memory-persistent schedule fits; that is no proof that no other does";
        return verdict::none;
      }
      accept(p, best, table.steps(room()));
      return verdict::found;
    }

    void say_too_large() {
      if (best.plan) return;
      best.status = solve_status::error;
      best.message = "the chain is too long: its table does not fit in " + std::to_string(options.table_bytes) +
                     " bytes (table_bytes), or takes more than " + std::to_string(options.max_breakpoints) +
                     " breakpoints (max_breakpoints)";
    }
  };

  /// Of `cut_levels`, and of segments of about equal bytes with cuts of the two finest, small ones first: those are
  /// solved at once. Coarse stages run their backward operations in the listed order, which often needs less memory.
  static std::vector<cut_list> chains_to_try(const forward_line& line, const rotor_options& options) {
    const std::size_t most = std::max<std::uint32_t>(options.max_stages, 1) - 1;
    std::vector<cut_list> chains = cut_levels(line, most);
    const std::vector<cut_list> fine = cut_levels(line, line.operations.size());
    for (std::size_t level = 0; level < std::min<std::size_t>(fine.size(), 2); ++level)
      for (const std::size_t segments : {4u, 6u, 8u, 11u, 16u, 23u, 32u, 45u})
        if (segments <= most + 1) chains.push_back(even_cuts(line, fine[level], segments));
    std::sort(chains.begin(), chains.end(),
              [](const cut_list& a, const cut_list& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
    chains.erase(std::unique(chains.begin(), chains.end()), chains.end());
    return chains;
  }

  static constexpr std::size_t longest_line = 20'000;  // operations for which there is a second line

  /// How the stages of a graph are counted, and their schedules expanded.
  enum class counting : std::uint8_t {
    near,  ///< sizes rounded to the nearest, stages in the listed order, all of a stage in each forward
    safe   ///< sizes rounded up, stages in the order of least peak, what each forward is for: within the model
  };

  /// The search for a schedule of one graph.
  struct graph_search {
    struct candidate {
      double time = 0;
      std::int64_t peak_bytes = 0;
      schedule plan{};
    };
    const problem& p;
    const rotor_options& options;
    run_clock& clock;
    solution& best;
    /// Schedules for which the model wants more than so many budgets are not tried. (On the bundled graphs none of over
    /// 1.27 fits in truth.)
    double most_memory = 4.0 / 3;
    std::array<std::vector<candidate>, 2> found{};  // by the way of counting: the best of them, fastest first

    /// Solves the chains of a line.
    stop_reason try_line(const forward_line& line, counting how, std::uint32_t slots) {
      const stage_order order = how == counting::safe ? stage_order::least_peak : stage_order::listed;
      for (const cut_list& cuts : chains_to_try(line, options)) {
        const stop_reason why = try_stages(stage_chain(p.graph(), line, cuts, order), how, slots);
        if (why != stop_reason::none) return why;
      }
      return stop_reason::none;
    }

    /// Solves a chain for all budgets, and expands the schedules, fastest first, until one fits and the next ones
    /// cannot be much faster.
    stop_reason try_stages(const stage_chain& stages, counting how, std::uint32_t most_slots) {
      // Expanded, a schedule recomputes less than the model says.
      const double slack = how == counting::near ? 1.3 : 1.15;
      const double needed = p.graph().needed_time;
      double whole = 0;  // the model's time without recomputation
      for (std::uint32_t s = 1; s <= stages.length(); ++s) whole += stages.forward_time(s) + stages.backward_time(s);
      for (std::uint32_t slots = most_slots; slots >= std::min(most_slots, 16U); slots /= 2) {
        std::int64_t unit = detail::persistent::store_all_bytes(stages) / slots + 1;
        if (how == counting::safe)  // half a slot: never worse than the whole one, which the promise is for
          unit = slots > options.slots
                     ? std::max<std::int64_t>(detail::persistent::slot_bytes(stages, options.slots) / 2, 1)
                     : detail::persistent::slot_bytes(stages, slots);
        const double bytes =
            static_cast<double>(p.budget()) * most_memory - static_cast<double>(stages.standing_bytes());
        const double room = bytes / static_cast<double>(unit);
        if (room < 0) return stop_reason::none;
        const auto most = room < slots ? static_cast<std::uint32_t>(room) : slots;
        const detail::persistent::sized_chain c = detail::persistent::in_slots(
            stages, unit, most,
            how == counting::near ? detail::persistent::rounding::nearest : detail::persistent::rounding::up);
        double limit = std::numeric_limits<double>::max();
        if (best.plan)
          limit =
              std::max(0.0, whole + (best.time - needed) * slack - detail::persistent::excess_bound(c).least.back());
        const detail::persistent::excess_bound bound(c, limit);
        detail::persistent::slot_table table(c, most, bound);
        if (const stop_reason why = spend(clock, table.rows()); why != stop_reason::none) return why;
        const detail::persistent::fill_outcome end =
            table.fill(clock, options.run.threads, options.table_bytes,
                       [&](std::uint64_t done, std::uint64_t total) { report(clock, best.time, needed, done, total); });
        if (end == detail::persistent::fill_outcome::stopped) return clock.poll();
        if (end == detail::persistent::fill_outcome::too_large) continue;
        if (table.first() > most) return stop_reason::none;
        for (std::uint32_t m = table.last() + 1; m-- > table.first();) {
          if (m > table.first() && table.excess(m - 1) == table.excess(m)) continue;  // the same time with less memory
          if (best.plan && table.cost(m) - whole > (best.time - needed) * slack) break;
          const stop_reason why = clock.poll();
          if (why != stop_reason::none) return why;
          clock.work();
          const std::vector<chain_step> steps = table.steps(m);
          offer(schedule_computes(p.graph(), how == counting::near ? stages.expand_whole(steps) : stages.expand(steps)),
                how);
        }
        return stop_reason::none;
      }
      return stop_reason::none;
    }

    void offer(schedule plan, counting how) {
      const check_report r = check(p, plan);
      if (r.what == violation::over_budget) return;
      if (!r.valid()) throw internal_error("a solver made an invalid schedule: " + r.message());
      std::vector<candidate>& pool = found[static_cast<std::size_t>(how)];
      const auto at = std::lower_bound(pool.begin(), pool.end(), r, [](const candidate& a, const check_report& b) {
        return a.time != b.time ? a.time < b.time : a.peak_bytes < b.peak_bytes;
      });
      if (at != pool.end() && at->time == r.time && at->peak_bytes == r.peak_bytes) return;
      if (at == pool.begin()) accept(p, best, plan);
      pool.insert(at, {r.time, r.peak_bytes, std::move(plan)});
      if (pool.size() > (how == counting::near ? options.candidates : options.candidates * 3 / 8)) pool.pop_back();
    }

    /// Spends the memory that the schedules leave.
    void refine() {
      retain_options spending;
      spending.rounds = options.retain_rounds;
      spending.enough = p.graph().needed_time * (1 + 1e-12);
      for (std::vector<candidate>& pool : found)
        for (candidate& k : pool) {
          if (clock.should_stop()) return;
          accept(p, best, retain(p, std::move(k.plan), clock, spending));
        }
    }
  };
};
inline constexpr rotor_solver rotor{};

/// What a chain's time can be with how much memory, by memory-persistent schedules: all Pareto-optimal pairs, from
/// one table.
class chain_frontier {
 public:
  struct point {
    std::int64_t budget_bytes = 0;  ///< x_0 included
    double time = 0;
  };

  /// Memory ascending, time falling.
  [[nodiscard]] std::span<const point> points() const noexcept { return points_; }
  /// The points are those of the optimum; else of the optimum for sizes that were rounded up to slots.
  [[nodiscard]] bool exact() const noexcept { return exact_ != nullptr; }
  /// Why there are no points, if there should be some.
  [[nodiscard]] solve_status status() const noexcept { return status_; }
  /// The least budget whose time is at most `time`, if there is one.
  [[nodiscard]] const point* within(double time) const noexcept {
    const auto at = std::partition_point(points_.begin(), points_.end(), [&](const point& k) { return k.time > time; });
    return at == points_.end() ? nullptr : &*at;
  }
  /// The schedule of a point. O(steps · L) time. Precondition: k < points().size().
  [[nodiscard]] std::vector<chain_step> steps(std::size_t k) const {
    return exact_ ? exact_->table.steps(at_[k]) : slots_->table.steps(static_cast<std::uint32_t>(at_[k]));
  }

 private:
  friend chain_frontier rotor_frontier(const chain& c, const rotor_options& options, double most_time);

  template <class Table>
  struct solved {  // the table refers to the others
    detail::persistent::sized_chain sizes;
    detail::persistent::excess_bound bound;
    Table table;
    solved(detail::persistent::sized_chain c, double limit, std::int64_t room)
        : sizes(std::move(c)),
          bound(sizes, limit),
          table(sizes,
                static_cast<std::conditional_t<std::is_same_v<Table, detail::persistent::slot_table>, std::uint32_t,
                                               std::int64_t>>(room),
                bound) {}
  };

  std::vector<point> points_;
  std::vector<std::int64_t> at_;  // of a point: the memory beside the input, in the table's unit
  std::unique_ptr<solved<detail::persistent::exact_table>> exact_;
  std::unique_ptr<solved<detail::persistent::slot_table>> slots_;
  solve_status status_ = solve_status::timeout;
};

/// Every budget of a chain at once: the points whose time is at most `most_time` (which makes it much faster),
/// the largest budget being that of keeping everything. So the least budget for a time is the first point, and the
/// least budget of all that of `least_budget`.
///
/// In the exact form in bytes; in slots, the budget of a point is the peak of its schedule, in the sizes of
/// `options.slots` slots of the budget that keeps everything. `exact_gradient` counts as set. Without points and with
/// `timeout`, `cancelled` or `error` where it was stopped or too large. Polls as `rotor`. Throws `bad_argument` without
/// slots.
[[nodiscard]] inline chain_frontier rotor_frontier(const chain& c, const rotor_options& options = {},
                                                   double most_time = std::numeric_limits<double>::infinity()) {
  if (options.slots == 0) throw bad_argument("slots is 0; there must be at least one");
  run_clock clock(options.run);
  chain_frontier out;
  if (most_time < c.least_time() * (1 - 1e-9)) {
    out.status_ = solve_status::infeasible;
    return out;
  }
  const double limit = std::min(std::numeric_limits<double>::max(), std::max(0.0, most_time - c.least_time()));
  detail::persistent::sized_chain bytes = detail::persistent::in_bytes(c, false);
  const std::int64_t input = c.input_bytes(), room = detail::persistent::store_all_room(bytes);
  const auto stopped = [&](detail::persistent::fill_outcome end, std::uint64_t rows) {
    clock.work(rows);
    if (end == detail::persistent::fill_outcome::too_large) out.status_ = solve_status::error;
    if (end == detail::persistent::fill_outcome::stopped)
      out.status_ = clock.poll() == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    return end != detail::persistent::fill_outcome::filled;
  };
  const auto tell = [&](std::uint64_t done, std::uint64_t total) {
    rotor_solver::report(clock, std::numeric_limits<double>::infinity(), c.least_time(), done, total);
  };
  if (options.form != rotor_form::slots) {
    constexpr std::uint64_t some = 20'000'000;
    const std::uint64_t work =
        options.form == rotor_form::exact ? options.max_breakpoints : std::min(some, options.max_breakpoints);
    auto solved =
        std::make_unique<chain_frontier::solved<detail::persistent::exact_table>>(std::move(bytes), limit, room);
    const detail::persistent::fill_outcome end =
        solved->table.fill(clock, options.run.threads, options.table_bytes, work, tell);
    if (!stopped(end, solved->table.rows())) {
      for (const detail::persistent::breakpoint& b : solved->table.frontier()) {
        out.points_.push_back({b.memory + input, solved->table.cost(b)});
        out.at_.push_back(b.memory);
      }
      out.exact_ = std::move(solved);
      out.status_ = solve_status::feasible;
      return out;
    }
    if (end == detail::persistent::fill_outcome::stopped || options.form == rotor_form::exact) return out;
  }
  const std::int64_t unit = std::max<std::int64_t>((room + input) / options.slots + 1, 1);
  // Rounded up, the sum of all that is kept has up to one slot more of each stage.
  const auto slots = options.slots + static_cast<std::uint32_t>(c.length()) + 2;
  auto solved = std::make_unique<chain_frontier::solved<detail::persistent::slot_table>>(
      detail::persistent::in_slots(c, unit, slots, false), limit, slots);
  if (stopped(solved->table.fill(clock, options.run.threads, options.table_bytes, tell), solved->table.rows()))
    return out;
  const chain_problem p(c);
  for (std::uint32_t m = std::min(solved->table.last(), slots) + 1; m-- > solved->table.first();) {
    if (m > solved->table.first() && solved->table.excess(m - 1) == solved->table.excess(m)) continue;
    const chain_report report = simulate(p, solved->table.steps(m));
    if (!report.legal) throw internal_error("a solver made an invalid schedule of a chain: " + report.message);
    if (!out.points_.empty() && report.peak_bytes >= out.points_.back().budget_bytes) continue;
    out.points_.push_back({report.peak_bytes, report.time});
    out.at_.push_back(m);
  }
  std::reverse(out.points_.begin(), out.points_.end());
  std::reverse(out.at_.begin(), out.at_.end());
  out.slots_ = std::move(solved);
  out.status_ = solve_status::feasible;
  return out;
}

/// The least budget in bytes with which any memory-persistent schedule exists. O(L³) time, O(L²) memory.
[[nodiscard]] inline std::int64_t least_budget(const chain& c) {
  const detail::persistent::sized_chain timeless =
      detail::persistent::without_times(detail::persistent::in_bytes(c, false));
  const detail::persistent::excess_bound bound(timeless);
  detail::persistent::exact_table table(timeless, detail::persistent::store_all_room(timeless), bound);
  const run_control run;
  table.fill(run_clock(run), 1, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::uint64_t>::max(),
             [](std::uint64_t, std::uint64_t) {});
  return table.frontier().front().memory + c.input_bytes();
}

}  // namespace remat
