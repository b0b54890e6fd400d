// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/slot_table.hpp"
#include "remat/core/detail/binomial.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/method/detail/cheap_start.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/rotor/impl/breakpoint_table.hpp"
#include "remat/method/rotor/impl/layered_search.hpp"
#include "remat/solver/accept.hpp"

/// Rotor's dynamic program on a chain, in slots and in bytes: for one budget, and for every budget at once.
namespace REMAT_NAMESPACE::detail::on_chain {

/// The end of the search for a schedule within a limit.
enum class verdict : std::uint8_t {
  found,
  none,
  stopped,
  too_large,
  too_long  ///< the empty rows of the table are too large by far, so fewer slots would not help
};

/// Counts the rows of a table as work before the table is filled, since an incomplete table is of no use.
inline stop_reason spend(run_clock& clock, std::uint64_t rows) {
  const std::uint64_t left = clock.work_left(), work = rows * work_of::table_row;
  const bool enough = work < left;
  clock.work(enough ? work : left);
  return enough ? clock.poll() : stop_reason::work;
}

/// Calls `attempt(limit)` with growing limits on D until it returns anything but `none`, or the limit was `known`. The
/// first limit is a little above `from`, a lower bound; from most of the time of all forwards on there is no limit.
template <class Attempt>
verdict deepen(const sized_chain& c, double from, double known, Attempt&& attempt) {
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
  /// `best` may have a schedule to begin with.
  chain_search(const chain_problem& p, const rotor_options& options, run_clock& clock, chain_solution& best)
      : p_(p), options_(options), clock_(clock), best_(best), sizes_(size_chain(p.stages(), false)) {}

  /// Runs the search that `form` asks for. Returns why it stopped early; then the closed form is taken, too.
  stop_reason run() {
    if (options_.begin_with_revolve) offer_start();
    search();
    const bool is_any_form = options_.form == rotor_form::bytes_or_slots;
    if (stopped_ != stop_reason::none || (is_any_form && !best_.plan)) offer_start();
    best_.statistics.own.set("stages", p_.stages().length());
    best_.statistics.own.set("options", sizes_.options.size());
    if (best_.plan) best_.statistics.own.set("form", form_);
    best_.lower_bound = sum_below(p_.stages().least_time(), recompute_bound(sizes_, free_bytes()));
    return stopped_;
  }

 private:
  static constexpr std::string_view slots_form = "slots", exact_form = "exact", closed_form = "closed",
                                    layers_form = "layers";

  /// The closed form of Revolve, or that of `layered_search` if it is better.
  const chain_solution& start() {
    if (start_) return *start_;
    start_.emplace();
    // The closed form for equal stages need not be made to know how many steps it runs again.
    const bool is_equal = has_equal_stages(p_.stages());
    const std::optional<std::uint32_t> slots = is_equal ? most_slots(p_) : std::nullopt;
    if (is_equal && begin_layers(*start_)) {
      const auto length = static_cast<std::uint32_t>(p_.stages().length());
      if (!slots || start_->statistics.recomputes <= binomial::advances(length, *slots)) return *start_;
    }
    take_closed_form(p_, *start_, &clock_);
    if (!is_equal) begin_layers(*start_);
    return *start_;
  }
  void offer_start() {
    start();
    if (keep_if_better(best_, std::move(*start_))) form_ = closed_form;  // its time stays known
  }

  /// Offers schedules of `layered_search` without tables to `to`, as time permits, and keeps the search whose schedule
  /// was taken last, or the first one. Returns true if one was.
  bool begin_layers(chain_solution& to) {
    constexpr std::uint32_t short_chain = 128;  // the whole table takes milliseconds
    if (sizes_.length < short_chain || sizes_.options.size() != sizes_.length) return false;
    const bool is_equal = has_equal_stages(p_.stages());
    bool is_taken = false;
    for (const double kept : layered_search::likely_inputs(sizes_)) {
      layered_search one(sizes_, free_bytes(), is_equal, kept);
      std::vector<chain_step> steps = one.steps(0, [](breakpoint_table&) { return false; });
      const bool is_better = !steps.empty() && accept(p_, to, std::move(steps));
      if (is_better || !layers_) layers_.emplace(std::move(one));
      is_taken = is_taken || is_better;
      if (clock_.poll() != stop_reason::none) break;
    }
    return is_taken;
  }
  /// Offers the schedule with tables for up to `leaf` stages. Returns true if it was taken.
  bool by_layers(std::uint32_t leaf) {
    constexpr std::uint64_t most_visits = 2'000'000;
    std::vector<chain_step> steps = layers_->steps(leaf, [&](breakpoint_table& table) {
      return stopped_ == stop_reason::none && fill(table, most_visits) == verdict::found;
    });
    return !steps.empty() && accept(p_, best_, std::move(steps));
  }
  /// Rotor's program for parts of the chain, unless there are too many steps for several tries. Returns false if it was
  /// stopped.
  bool by_parts() {
    constexpr std::size_t many = 4'000'000;
    if (!layers_) return true;
    for (const std::uint32_t leaf : {24U, 48U, 96U}) {
      if (leaf > sizes_.length / 4 || (best_.plan && best_.plan->size() > many)) break;
      if (stopped_ == stop_reason::none) stopped_ = clock_.poll();
      if (stopped_ != stop_reason::none) return false;
      if (by_layers(leaf)) form_ = layers_form;
    }
    return stopped_ == stop_reason::none;
  }

  void search() {
    constexpr std::uint64_t few = 2'000'000;
    switch (options_.form) {
      case rotor_form::slots:
        by_slots();
        break;
      case rotor_form::bytes:
        if (by_bytes(options_.max_breakpoints) == verdict::too_large) explain_too_large();
        break;
      case rotor_form::bytes_or_slots:
        if (by_bytes(std::min(few, options_.max_breakpoints)) != verdict::too_large) break;
        if (!by_parts() || by_slots() == verdict::stopped || options_.max_breakpoints <= few) break;
        by_bytes(options_.max_breakpoints);
    }
  }

  /// Bytes of the budget beside the input of the chain.
  [[nodiscard]] std::int64_t free_bytes() const { return p_.budget() - p_.stages().input_bytes(); }

  /// A time beyond the least time of the chain.
  [[nodiscard]] double excess(double time) const { return time - p_.stages().least_time(); }

  verdict judge(fill_outcome end) {
    if (end == fill_outcome::filled) return verdict::found;
    if (end == fill_outcome::too_large) return verdict::too_large;
    stopped_ = clock_.poll();
    return verdict::stopped;
  }

  verdict fill(slot_table& table) {
    stopped_ = spend(clock_, table.rows());
    if (stopped_ != stop_reason::none) return verdict::stopped;
    if (table.empty_bytes() / 8 > options_.table_bytes) return verdict::too_long;
    // A table that cannot be full in time is not begun: rows take some 20 ns, and more for each place to split.
    const auto rows = static_cast<double>(table.rows());
    const double least = rows * (20 + rows / static_cast<double>(p_.stages().length()) / 4);
    if (std::chrono::duration<double, std::nano>(clock_.left()).count() * clock_.control().thread_count() < least) {
      stopped_ = stop_reason::deadline;
      return verdict::stopped;
    }
    return judge(table.fill(clock_, options_.table_bytes));
  }

  /// Visits at most `max_visits` breakpoints, and no more than the work that is left pays for.
  verdict fill(breakpoint_table& table, std::uint64_t max_visits) {
    constexpr std::uint64_t each = 1000 / work_of::table_row;  // breakpoints in a unit of work
    if (table.rows() > max_visits) return verdict::too_large;
    stopped_ = spend(clock_, table.rows());
    if (stopped_ != stop_reason::none) return verdict::stopped;
    const std::uint64_t left = clock_.work_left();
    const bool limited = left < max_visits / each;
    const fill_outcome end = table.fill(clock_, options_.table_bytes, limited ? left * each : max_visits);
    clock_.work(std::min(left, table.visits() / each));
    if (end == fill_outcome::too_large && limited && table.visits() > left * each) {
      stopped_ = stop_reason::work;
      return verdict::stopped;
    }
    return judge(end);
  }

  /// Solves with half as many slots as long as the table is too large.
  verdict by_slots() {
    constexpr std::uint32_t fewest = 32;
    for (std::uint32_t slots = options_.slots;; slots /= 2) {
      const std::int64_t unit = std::max<std::int64_t>(p_.budget() / slots, 1);
      verdict end = in_slots(slots, unit, options_.exact_gradient);
      // Charged the gradient of its own output, a schedule may exceed the budget; charged the waiting one, it cannot.
      const bool has_none = !best_.plan || form_ != slots_form;
      if (end == verdict::found && has_none) end = in_slots(slots, unit, true);
      if (end == verdict::none && !best_.plan)
        best_.message = "no memory-persistent schedule fits when sizes are rounded up to slots of " +
                        std::to_string(unit) + " bytes; that is no proof that there is none";
      if (end != verdict::too_large && end != verdict::too_long) return end;
      if (slots < fewest || end == verdict::too_long) {
        explain_too_large();
        return verdict::too_large;
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
    return deepen(c, recompute_bound(c, m), excess(best_.time), [&](double limit) {
      const excess_bound bound(c, limit);
      slot_table table(c, m, bound);
      if (const verdict end = fill(table); end != verdict::found) return end;
      if (table.first() > m) return verdict::none;
      if (accept(p_, best_, table.steps(m))) form_ = slots_form;
      return verdict::found;
    });
  }

  /// Proves that the best schedule is the fastest or that none exists, or gives up after `max_visits` breakpoints.
  verdict by_bytes(std::uint64_t max_visits) {
    const auto try_limit = [&](double limit) {
      const excess_bound bound(sizes_, limit);
      breakpoint_table table(sizes_, free_bytes(), bound);
      const verdict end = fill(table, max_visits);
      max_visits -= std::min(max_visits, table.visits());
      if (end != verdict::found) return end;
      if (table.frontier().empty()) return verdict::none;
      if (accept(p_, best_, table.steps(free_bytes()))) form_ = exact_form;
      return verdict::found;
    };
    // The closed form is memory-persistent, so no slower schedule need be looked for.
    const auto known = [&] { return excess(std::min(best_.time, start().time)); };
    verdict end = deepen(sizes_, recompute_bound(sizes_, free_bytes()), known(), [&](double limit) {
      if (limit < std::numeric_limits<double>::max()) return try_limit(limit);
      // The schedule of least memory, if there is one, bounds the others where there is no limit.
      const verdict any = find_least_memory();
      return any == verdict::found ? try_limit(known()) : any;
    });
    if (end == verdict::none) {  // none is faster than the known one
      offer_start();
      if (best_.plan) end = verdict::found;
    }
    if (end == verdict::found) best_.persistent_optimum = true;
    return end;
  }

  /// A schedule of least memory, if it fits.
  verdict find_least_memory() {
    const sized_chain c = without_times(sizes_);
    const excess_bound bound(c);
    breakpoint_table table(c, free_bytes(), bound);
    const verdict end = fill(table, std::numeric_limits<std::uint64_t>::max());
    if (end != verdict::found) return end;
    if (table.frontier().empty()) {
      best_.message = "no memory-persistent schedule fits; that is no proof that no other does";
      return verdict::none;
    }
    if (accept(p_, best_, table.steps(free_bytes()))) form_ = exact_form;
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
  sized_chain sizes_;  // sizes in bytes
  std::optional<layered_search> layers_;
  std::optional<chain_solution> start_;  // the answer of `start`, once it was asked
  std::string_view form_ = slots_form;   // the best schedule's form
  stop_reason stopped_ = stop_reason::none;
};

/// One of two tables, and what it refers to.
struct solved_table {
  sized_chain sizes;
  excess_bound bound;
  std::optional<slot_table> slots{};
  std::optional<breakpoint_table> bytes{};

  solved_table(sized_chain c, double limit) : sizes(std::move(c)), bound(sizes, limit) {}
  solved_table(const solved_table&) = delete;
  solved_table& operator=(const solved_table&) = delete;
};

/// One call of `rotor_frontier`: the table without slots, then, if that is not wanted or gets too large, with slots.
class frontier_solve {
 public:
  frontier_solve(const chain& c, const rotor_options& options, double max_time)
      : chain_(c),
        options_(options),
        clock_(options.run, rotor_solver::name),
        max_time_(max_time),
        max_excess_(std::min(std::numeric_limits<double>::max(), std::max(0.0, max_time - c.least_time()))) {}
  frontier_solve(const frontier_solve&) = delete;  // the callback refers to it
  frontier_solve& operator=(const frontier_solve&) = delete;

  chain_frontier run() {
    if (max_time_ < chain_.least_time() * (1 - 1e-9)) {
      out_.status_ = solve_status::infeasible;
      return std::move(out_);
    }
    sized_chain in_bytes = size_chain(chain_, false);
    const std::int64_t room = store_all_room(in_bytes);
    if (options_.form == rotor_form::slots || !solve_in_bytes(std::move(in_bytes), room)) solve_in_slots(room);
    return std::move(out_);
  }

 private:
  /// Fills the table without slots. True: that is the answer, or no other table is to be tried.
  bool solve_in_bytes(sized_chain sizes, std::int64_t room) {
    constexpr std::uint64_t few = 20'000'000;
    const bool is_only = options_.form == rotor_form::bytes;
    const auto solved = std::make_shared<solved_table>(std::move(sizes), max_excess_);
    breakpoint_table& table = solved->bytes.emplace(solved->sizes, room, solved->bound);
    const fill_outcome end = table.fill(clock_, options_.table_bytes,
                                        is_only ? options_.max_breakpoints : std::min(few, options_.max_breakpoints));
    if (!record(end, table.rows())) return end == fill_outcome::stopped || is_only;
    for (const breakpoint& b : table.frontier()) {
      out_.points_.push_back({b.memory + chain_.input_bytes(), table.cost(b)});
      out_.at_.push_back(b.memory);
    }
    out_.table_ = solved;
    out_.exact_ = true;
    out_.status_ = solve_status::feasible;
    return true;
  }

  /// Fills the table with slots, and gives each of its schedules the budget that is its peak.
  void solve_in_slots(std::int64_t room) {
    const std::int64_t unit = std::max<std::int64_t>((room + chain_.input_bytes()) / options_.slots + 1, 1);
    // Each stage may take up to one slot more, since sizes are rounded up.
    const auto slots = options_.slots + static_cast<std::uint32_t>(chain_.length()) + 2;
    const auto solved =
        std::make_shared<solved_table>(size_chain(chain_, false, {unit, slots, slot_rounding::up}), max_excess_);
    slot_table& table = solved->slots.emplace(solved->sizes, slots, solved->bound);
    if (!record(table.fill(clock_, options_.table_bytes), table.rows())) return;
    const chain_problem p(chain_);
    for (std::uint32_t m = std::min(table.last(), slots) + 1; m-- > table.first();) {
      if (m > table.first() && table.excess(m - 1) == table.excess(m)) continue;
      const chain_report simulated = simulate(p, table.steps(m));
      if (!simulated.legal) throw internal_error("a solver made an invalid schedule of a chain: " + simulated.message);
      if (!out_.points_.empty() && simulated.peak_bytes >= out_.points_.back().budget_bytes) continue;
      out_.points_.push_back({simulated.peak_bytes, simulated.time});
      out_.at_.push_back(m);
    }
    std::reverse(out_.points_.begin(), out_.points_.end());
    std::reverse(out_.at_.begin(), out_.at_.end());
    out_.table_ = solved;
    out_.status_ = solve_status::feasible;
  }

  /// Counts the work of a fill, and sets the status if it did not end with a table. Returns true if it did.
  bool record(fill_outcome end, std::uint64_t rows) {
    clock_.work(rows * work_of::table_row);
    if (end == fill_outcome::too_large) out_.status_ = solve_status::error;
    if (end == fill_outcome::stopped)
      out_.status_ = clock_.poll() == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    return end == fill_outcome::filled;
  }

  const chain& chain_;
  const rotor_options& options_;
  run_clock clock_;
  double max_time_;
  double max_excess_;  ///< the most time beyond the least of the chain
  chain_frontier out_;
};

}  // namespace REMAT_NAMESPACE::detail::on_chain
