// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/object_pool.hpp"
#include "remat/core/detail/spent_share.hpp"
#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/detail/problem_bytes.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/copy_refinement.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/detail/schedule_bytes.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

namespace copy_anneal {

/// The name of the kind of the pieces.
inline constexpr std::string_view search_kind = "copies";

inline constexpr double moves_without_limit = 2000;

/// When a search may end.
struct search_goal {
  double lower_bound = 0, gap = 0;
};

/// The result of a search in a cycle.
struct cycle_answer {
  copy_refinement::state state{};  // the best schedule's state
  schedule plan{};
  double time = std::numeric_limits<double>::infinity();  // its time; infinite: there is none
  std::uint64_t work = 0;
};

/// One search in one cycle: the temperature falls to 0 while the limits are spent. It depends on nothing that the same
/// object did before.
[[nodiscard]] inline cycle_answer anneal(copy_refinement& search, const problem& p, copy_refinement::state from,
                                         double heat, const search_goal& goal, const run_control& limits) {
  run_clock own(limits);
  cycle_answer out;
  search.begin(limits.seed);
  search.planner.must_stop = [&own] { return own.should_stop(); };
  if (search.start(std::move(from))) {
    const double beyond = search.time() - p.graph().needed_time;
    const double scale = heat * beyond / static_cast<double>(1 + search.num_choices());
    for (std::uint64_t move = 0; !is_within_gap(search.best_time(), goal.lower_bound, goal.gap); ++move) {
      const double f = spent_share(own, static_cast<double>(move) / moves_without_limit);
      if (f >= 1 || own.should_stop()) break;
      search.temperature = f > 0.9 ? 0 : scale * (1 - f) * (1 - f);
      own.work(search.size() * work_of::visit);
      search.random_move();
      own.report({.stage = "copies", .best_objective = search.best_time()});
    }
    out.state = search.best_state();
    out.plan = search.best();
    out.time = search.best_time();
  }
  search.planner.must_stop = nullptr;
  out.work = own.work_done();
  return out;
}

/// Objects for the searches that run at the same time.
class search_pool {
 public:
  explicit search_pool(const problem& p) : p_(p) {}
  /// `anneal` with one of the objects; may be called on any thread.
  [[nodiscard]] cycle_answer anneal(copy_refinement::state from, double heat, const search_goal& goal,
                                    const run_control& limits) {
    std::unique_ptr<copy_refinement> search = idle_.take([&] { return std::make_unique<copy_refinement>(p_); });
    cycle_answer answer = copy_anneal::anneal(*search, p_, std::move(from), heat, goal, limits);
    idle_.give(std::move(search));
    return answer;
  }

 private:
  const problem& p_;
  object_pool<copy_refinement> idle_;
};

/// Appends a state.
inline void put(byte_writer& out, const copy_refinement::state& s) {
  out.put(s.computes);
  out.put(s.bytes_exponent);
  out.put(s.lead);
  out.put(s.factor);
}

/// Reads the state that `put` wrote.
[[nodiscard]] inline copy_refinement::state get_state(byte_reader& in) {
  copy_refinement::state s;
  in.get(s.computes);
  in.get(s.bytes_exponent);
  in.get(s.lead);
  in.get(s.factor);
  return s;
}

/// Appends an answer.
inline void put(byte_writer& out, const cycle_answer& answer) {
  put(out, answer.state);
  put(out, answer.plan);
  out.put(answer.time);
  out.put(answer.work);
}

/// Reads the answer that `put` wrote.
[[nodiscard]] inline cycle_answer get_answer(byte_reader& in) {
  cycle_answer answer;
  answer.state = get_state(in);
  answer.plan = get_schedule(in);
  in.get(answer.time);
  in.get(answer.work);
  return answer;
}

}  // namespace copy_anneal

/// Refinement of recomputation and copies together (`copy_refinement`), within the limits of a clock.
class copy_annealing {
 public:
  /// All arguments must outlive this object.
  copy_annealing(const problem& p, double gap, run_clock& clock, solution& best, std::string_view solver)
      : p_(p), gap_(gap), clock_(clock), best_(best), solver_(solver), pool_(p) {}

  /// Runs searches of several temperatures from `starts`, in cycles of which each is some times as long as the one
  /// before.
  void run(std::vector<copy_refinement::state> starts) {
    const std::size_t count = p_.graph().num_operations > most_searched ? 1 : num_searches;
    for (std::size_t i = 0; i < count; ++i) states_.push_back(starts[i % starts.size()]);
    double left = 1 + longer + longer * longer;
    std::uint64_t number = 0;
    for (double length = 1; left > 0 && !is_over(); length *= longer) {
      run_clock cycle = clock_.part(std::min(1.0, length / left), "copies");
      left -= length;
      const std::vector<cycle_answer> answers = run_cycle(cycle, number++);
      for (const cycle_answer& a : answers)
        if (a.time < best_.time) accept(p_, best_, a.plan, by_part(solver_, "copies"));
      exchange(answers);
    }
  }

 private:
  using cycle_answer = copy_anneal::cycle_answer;

  static constexpr std::size_t num_searches = 4;
  static constexpr std::uint32_t most_searched = 1U << 16;  // operations for more than one search
  static constexpr double heats[] = {0.2, 0.5, 0.1, 1.0};
  static constexpr double longer = 4;  // each cycle than the one before

  [[nodiscard]] bool is_over() const { return clock_.should_stop() || best_.is_within(gap_); }

  /// Lets each search anneal once, as a piece. A search depends on nothing that another one does.
  [[nodiscard]] std::vector<cycle_answer> run_cycle(run_clock& cycle, std::uint64_t number) {
    const std::size_t count = states_.size();
    const std::uint64_t work = share_of(cycle.work_left(), 1.0 / static_cast<double>(count));
    const auto heat = [](std::size_t i) { return heats[i % std::size(heats)]; };
    const copy_anneal::search_goal goal{best_.lower_bound, gap_};
    std::vector<cycle_answer> answers(count);
    std::size_t begun = 0;
    piece_list pieces;
    pieces.count = count;
    pieces.size = [](std::size_t) { return 1.0; };
    pieces.limits = [&](std::size_t i, std::size_t members) {
      const std::size_t turns = (count - begun++ + members - 1) / members;
      run_control limits = cycle.limits(1.0 / static_cast<double>(turns));
      limits.work_limit = work;
      limits.seed = splitmix64(splitmix64(splitmix64(limits.seed) ^ number) ^ i);
      return limits;
    };
    pieces.run = [&](std::size_t i, const run_control& limits) {
      answers[i] = pool_.anneal(states_[i], heat(i), goal, limits);
    };
    pieces.kind = copy_anneal::search_kind;
    pieces.shared = [&] {
      byte_writer out;
      put(out, p_);
      return out.take();
    };
    pieces.encode = [&](std::size_t i) {
      byte_writer out;
      copy_anneal::put(out, states_[i]);
      out.put(heat(i));
      out.put(goal.lower_bound);
      out.put(goal.gap);
      return out.take();
    };
    pieces.take = [&](std::size_t i, std::span<const std::byte> bytes) {
      byte_reader in(bytes);
      answers[i] = copy_anneal::get_answer(in);
      if (std::isfinite(answers[i].time) && !check(p_, answers[i].plan).valid())
        throw error(std::string(solver_) + ": another process returned a schedule that breaks the rules");
    };
    run_control control = clock_.control();
    if (control.on_progress) control.on_progress = [&](const progress& news) { cycle.report(news); };
    if (!is_worth_messages(cycle, work)) control.crew = nullptr;
    run_pieces(pieces, control);
    for (const cycle_answer& a : answers) cycle.work(a.work);
    return answers;
  }

  /// True if a search takes so long that it may be sent to another process. `work`: its share.
  [[nodiscard]] static bool is_worth_messages(const run_clock& cycle, std::uint64_t work) {
    constexpr std::uint64_t least_work = 10'000;  // a millisecond or more
    constexpr std::chrono::milliseconds least_time(20);
    return work != run_control::no_work_limit ? work >= least_work : cycle.left() >= least_time;
  }

  /// The worst search goes on from the best schedule, the others from their own best. One that was stopped before it
  /// had a schedule begins again.
  void exchange(const std::vector<cycle_answer>& answers) {
    const auto is_faster = [](const cycle_answer& a, const cycle_answer& b) { return a.time < b.time; };
    const auto worst = std::max_element(answers.begin(), answers.end(), is_faster);
    const auto best = std::min_element(answers.begin(), answers.end(), is_faster);
    for (auto answer = answers.begin(); answer != answers.end(); ++answer) {
      const cycle_answer& from = answer == worst ? *best : *answer;
      if (std::isfinite(from.time)) states_[static_cast<std::size_t>(answer - answers.begin())] = from.state;
    }
  }

  const problem& p_;
  double gap_;
  run_clock& clock_;
  solution& best_;
  std::string_view solver_;
  copy_anneal::search_pool pool_;
  std::vector<copy_refinement::state> states_;  // the states from which the searches go on
};

/// Anneals from `starts`, if there are any, with what is left of the limits of `clock`. A schedule that is faster than
/// that of `best` is taken as found by "SOLVER/copies". Ends when `best` is within `gap` of its bound.
inline void anneal_copies(const problem& p, std::vector<copy_refinement::state> starts, double gap, run_clock& clock,
                          solution& best, std::string_view solver) {
  if (!starts.empty()) copy_annealing(p, gap, clock, best, solver).run(std::move(starts));
}

}  // namespace REMAT_NAMESPACE::detail
