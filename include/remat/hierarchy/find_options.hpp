// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/control.hpp"
#include "remat/hierarchy/isomorphism.hpp"
#include "remat/hierarchy/part_option.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/refined.hpp"
#include "remat/solver/solution.hpp"
#include "remat/solver/twremat.hpp"

namespace remat {

/// Options of parts that have been solved, for `option_search::cache`: of other budgets of the same step, of other
/// steps. May be used by several threads at once.
class option_cache {
 public:
  /// What options depend on beside the part.
  using settings = std::tuple<std::uint32_t, std::size_t, std::size_t, std::uint64_t, std::uint64_t>;

  /// The options of a part that is equal to `runs.part()` up to renaming (and times), measured for it.
  [[nodiscard]] std::optional<std::vector<part_option>> find(const part_runs& runs, const settings& with) const {
    const std::uint64_t key = fingerprint(runs.part(), likeness());
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end()) return std::nullopt;
    for (const entry& e : at->second) {
      if (e.with != with) continue;
      const std::optional<part_mapping> mapping = find_isomorphism(runs.part(), *e.part, likeness());
      if (!mapping) continue;
      std::vector<part_option> out;
      for (const part_option& o : e.options)
        if (std::optional<part_option> mine = translate(o, *mapping, runs)) out.push_back(std::move(*mine));
      return out;
    }
    return std::nullopt;
  }
  void add(const step_part& part, const settings& with, std::vector<part_option> options) {
    const std::uint64_t key = fingerprint(part, likeness());
    const std::lock_guard lock(mutex_);
    entries_[key].push_back({std::make_shared<const step_part>(part), with, std::move(options)});
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [key, list] : entries_) count += list.size();
    return count;
  }

  /// Parts are alike whatever their times, because no two measured times are equal: an option is good for times that
  /// are about the same, and it is measured anew.
  [[nodiscard]] static isomorphism_options likeness() {
    isomorphism_options options;
    options.times = false;
    return options;
  }

 private:
  struct entry {
    std::shared_ptr<const step_part> part;
    settings with;
    std::vector<part_option> options;
  };
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::vector<entry>> entries_;
};

/// How options are looked for.
struct option_search {
  std::uint32_t peaks = 3;        ///< peak budgets below the one that does not bind
  std::size_t most_budgets = 20;  ///< save budgets for each of them
  std::size_t most_options = 12;  ///< of a part, spread over saved bytes
  std::uint64_t moves = 4000;     ///< of `refined`, for each budget
  std::shared_ptr<option_cache> cache{};
  /// Schedules of `part_runs::problem_within` to start from, for part i within these budgets: from a hierarchy below.
  /// Called by several threads at once, for different parts.
  std::function<std::vector<schedule>(std::size_t i, const part_runs&, std::int64_t peak, std::int64_t save)> starts{};
  run_control run{};
};

/// Ways to run each of several parts, in the order of saved bytes, most first.
struct option_table {
  std::vector<std::vector<part_option>> options{};  ///< [part], in its own indices and measured for it
  std::size_t distinct = 0;                         ///< parts that differ by more than names and times
  std::size_t reused = 0;                           ///< of these, known from the cache
  std::size_t solves = 0;                           ///< problems that were solved
  std::size_t proven = 0;                           ///< of these, solved to a proven optimum
  std::uint64_t work = 0;
  stop_reason stopped = stop_reason::none;
};

namespace detail::option_finding {

/// What one part and one peak budget gave.
struct finding {
  struct answer {
    std::int64_t held = 0;  ///< `held_at_turn`
    schedule plan{};        ///< of `problem_within`
    part_option option{};
  };
  std::vector<answer> answers{};  ///< what is held falls
  std::size_t solves = 0, proven = 0;
  std::uint64_t work = 0;
};

/// Bytes that the turn is charged for an option: what is kept, and what the backward reads of the forward's outputs.
[[nodiscard]] inline std::int64_t held_at_turn(const part_runs& runs, const part_option& option) {
  std::int64_t bytes = option.saved_bytes;
  for (const std::uint32_t t : option.backward_reads)
    if (runs.is_output(t)) bytes += runs.part().tensor[t].bytes;
  return bytes;
}

/// The staircase of save budgets under one peak budget: from what everything takes, each budget just below what the
/// last answer held. `before` is the staircase of a larger peak budget: what was found there and fits here as well need
/// not be looked for again.
template <class Stop>
[[nodiscard]] finding climb_down(const part_runs& runs, std::size_t part, std::uint32_t level, const finding& before,
                                 const option_search& search, const Stop& stopped) {
  finding out;
  constexpr double far = 1.02;  // from the bound
  const part_option all = runs.keep_everything();
  const std::int64_t everything = held_at_turn(runs, all), gradients = runs.gradient_input_bytes();
  // Without a workspace at the turn.
  const problem free = runs.problem_within(gradients, 0).with_budget(problem::unlimited);
  const std::int64_t most = std::max(free.graph().baseline_peak, everything + gradients);
  std::int64_t peak = most;
  if (level > 0) {
    const std::int64_t least = largest_working_set(free).bytes;
    peak = least + (most - least) / (search.peaks + 1) * (search.peaks + 1 - level);
    if (peak >= most) return out;
  }
  std::int64_t save = level == 0 ? everything - 1 : everything;
  for (std::size_t k = 1; k <= search.most_budgets && save >= 0 && !stopped(); ++k) {
    const problem p = runs.problem_within(peak, std::min(save, peak));
    finding::answer found;
    const auto known = std::find_if(before.answers.begin(), before.answers.end(),
                                    [&](const finding::answer& a) { return a.held <= save; });
    if (known != before.answers.end() && check(p, known->plan).valid()) {
      found = *known;
    } else {
      refined_options options;
      if (search.starts) options.starts = search.starts(part, runs, peak, std::min(save, peak));
      options.run.work_limit = search.moves;
      options.run.seed = search.run.seed;
      options.run.stop = search.run.stop;
      solution s = refined(p, options);
      ++out.solves;
      out.work += s.statistics.work;
      if (s.status != solve_status::infeasible && (!s.plan || s.time > s.lower_bound * far)) {
        // Where memory is very tight, nested separators may end elsewhere.
        twremat_options other;
        other.run.stop = search.run.stop;
        solution t = twremat(p, other);
        ++out.solves;
        if (t.plan && (!s.plan || t.time < s.time)) {
          options.starts.push_back(std::move(*t.plan));
          s = refined(p, options);
          ++out.solves;
          out.work += s.statistics.work;
        }
      }
      if (s.status == solve_status::optimal || s.status == solve_status::infeasible) ++out.proven;
      if (!s.plan) break;
      std::optional<part_option> option = runs.option_of(*s.plan);
      if (!option) break;
      found.held = held_at_turn(runs, *option);
      found.plan = std::move(*s.plan);
      found.option = std::move(*option);
    }
    const std::int64_t held = found.held;
    out.answers.push_back(std::move(found));
    if (held == 0) break;
    // Down to the next step, and at least by an equal share.
    const auto step = static_cast<std::int64_t>(static_cast<double>(everything) * static_cast<double>(k) /
                                                static_cast<double>(search.most_budgets));
    save = std::max<std::int64_t>(0, std::min({held - 1, save - 1, everything - step}));
  }
  return out;
}

}  // namespace detail::option_finding

/// Pareto-optimal ways to run each of `parts`: keeping everything, and for each of a few peak budgets the fastest ways
/// for ever smaller save budgets, each by `refined` (far from its bound, from `twremat` as well) on the part as a
/// problem of its own. Small parts are so solved to the proven optimum of their budgets.
/// \cite zhao2023rockmate \cite gusak2025hiremate
///
/// Parts that are equal up to renaming and times are solved once. On `search.run.threads` threads; the answer is the
/// same for any number of them. Polls before each problem, of which `moves` bounds the time; what has not been looked
/// for when it stops has fewer options. A time limit counts from `clock`'s start.
[[nodiscard]] inline option_table find_options(std::span<const step_part> parts, const option_search& search,
                                               run_clock& clock) {
  option_table out;
  out.options.resize(parts.size());
  const option_cache::settings with{search.peaks, search.most_budgets, search.most_options, search.moves,
                                    search.run.seed};

  // Classes of equal parts.
  struct known_class {
    std::uint32_t representative;
    bool solve = false;
    std::vector<detail::option_finding::finding> found{};
  };
  std::vector<known_class> classes;
  std::map<std::uint64_t, std::vector<std::uint32_t>> by_fingerprint;
  std::vector<std::uint32_t> class_of(parts.size());
  std::vector<part_mapping> mapping(parts.size());
  std::vector<part_runs> runs;
  runs.reserve(parts.size());
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    runs.emplace_back(parts[i]);
    std::vector<std::uint32_t>& alike = by_fingerprint[fingerprint(parts[i], option_cache::likeness())];
    bool known = false;
    for (const std::uint32_t c : alike)
      if (std::optional<part_mapping> m =
              find_isomorphism(parts[i], parts[classes[c].representative], option_cache::likeness())) {
        class_of[i] = c;
        mapping[i] = std::move(*m);
        known = true;
        break;
      }
    if (known) continue;
    class_of[i] = static_cast<std::uint32_t>(classes.size());
    alike.push_back(class_of[i]);
    classes.push_back({i});
  }
  out.distinct = classes.size();

  std::vector<std::uint32_t> todo;
  for (std::uint32_t c = 0; c < classes.size(); ++c) {
    known_class& k = classes[c];
    const std::uint32_t i = k.representative;
    if (search.cache)
      if (std::optional<std::vector<part_option>> options = search.cache->find(runs[i], with)) {
        out.options[i] = std::move(*options);
        ++out.reused;
        continue;
      }
    k.solve = true;
    k.found.resize(search.peaks + 1);
    todo.push_back(c);
  }

  const auto stop_now = [&] { return search.run.stop.stop_requested() || clock.left() <= std::chrono::nanoseconds(0); };
  std::atomic<bool> cut_short{false};
  std::atomic<std::size_t> done{0};
  // All parts under the largest peak budget first: a deadline should leave something to each.
  for (std::uint32_t level = 0; level <= search.peaks && !cut_short; ++level) {
    std::atomic<std::size_t> next{0};
    const auto work = [&](bool calling) {
      for (std::size_t k; (k = next.fetch_add(1)) < todo.size();) {
        if (stop_now()) {
          cut_short = true;
          break;
        }
        known_class& c = classes[todo[k]];
        static const detail::option_finding::finding nothing;
        c.found[level] = detail::option_finding::climb_down(runs[c.representative], c.representative, level,
                                                            level == 0 ? nothing : c.found[level - 1], search, [&] {
                                                              const bool now = stop_now();
                                                              if (now) cut_short = true;
                                                              return now;
                                                            });
        const std::size_t finished = done.fetch_add(1) + 1;
        if (calling) {
          progress news;
          news.stage = "sub-graphs";
          news.done = finished / (search.peaks + 1);
          news.total = todo.size();
          clock.report(news);
        }
      }
    };
    const std::size_t threads = std::clamp<std::size_t>(search.run.threads, 1, std::max<std::size_t>(todo.size(), 1));
    std::vector<std::exception_ptr> failed(threads);
    {
      std::vector<std::jthread> team;
      for (std::size_t k = 1; k < threads; ++k)
        team.emplace_back([&, k] {
          try {
            work(false);
          } catch (...) {
            failed[k] = std::current_exception();
            next = todo.size();
          }
        });
      try {
        work(true);
      } catch (...) {
        failed[0] = std::current_exception();
        next = todo.size();
      }
    }
    for (const std::exception_ptr& e : failed)
      if (e) std::rethrow_exception(e);
  }

  for (known_class& c : classes) {
    const std::uint32_t i = c.representative;
    if (!c.solve) continue;
    std::vector<part_option>& options = out.options[i];
    options.push_back(runs[i].keep_everything());
    for (detail::option_finding::finding& f : c.found) {
      out.solves += f.solves;
      out.proven += f.proven;
      out.work += f.work;
      for (detail::option_finding::finding::answer& a : f.answers) options.push_back(std::move(a.option));
    }
    keep_pareto_optimal(options, runs[i]);
    thin_out(options, std::max<std::size_t>(search.most_options, 2));
    if (search.cache && !cut_short) search.cache->add(parts[i], with, options);
  }
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    const std::uint32_t from = classes[class_of[i]].representative;
    if (i == from) continue;
    for (const part_option& o : out.options[from])
      if (std::optional<part_option> mine = translate(o, mapping[i], runs[i]))
        out.options[i].push_back(std::move(*mine));
  }
  clock.work(out.work);
  if (cut_short) out.stopped = clock.poll();
  return out;
}

}  // namespace remat
