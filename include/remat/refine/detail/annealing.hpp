// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/portable_pieces.hpp"
#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/detail/problem_bytes.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// Objects that are expensive to make, for pieces on several threads: a piece takes one, and gives it back. So there
/// are no more of them than pieces that run at the same time. Thread-safe.
template <class T>
class object_pool {
 public:
  /// Returns an object that was given back, the latest one, or if there is none what `make` returns.
  template <class Make>
  [[nodiscard]] std::unique_ptr<T> take(Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> object = std::move(idle_.back());
        idle_.pop_back();
        return object;
      }
    }
    return make();
  }
  /// Gives an object back.
  void give(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(object));
  }

 private:
  std::mutex mutex_;  // one mutex for what follows
  std::vector<std::unique_ptr<T>> idle_;
};

/// Several searches by simulated annealing from schedules of one problem. In a round, each is a piece, which threads or
/// the processes of a crew run.
///
/// `Search` is made from a problem, and has
///
/// - `kind`, the name of the pieces;
/// - `start`, from which a search begins, and `answer`, what it has found, with its `time`; the fields of both are
///   listed (`lists_fields`);
/// - `anneal(start, limits)`, which depends on nothing that the same object did before;
/// - `is_legal(p, answer)`, which says whether the answer of another process may be taken.
template <class Search>
class annealing_population {
 public:
  using start = typename Search::start;
  using answer = typename Search::answer;

  /// `p` must outlive the object.
  explicit annealing_population(const problem& p) : p_(p) {}

  /// One search. May be called on any thread.
  [[nodiscard]] answer anneal(const start& from, const run_control& limits) {
    std::unique_ptr<Search> search = idle_.take([&] { return std::make_unique<Search>(p_); });
    answer found = search->anneal(from, limits);
    idle_.give(std::move(search));
    return found;
  }

  /// One round: a search from each of `starts`. `limits(i, members)`: those of search i, as in `piece_list`.
  template <class Limits>
  [[nodiscard]] std::vector<answer> run(std::span<const start> starts, Limits limits, const run_control& control) {
    std::vector<answer> answers(starts.size());
    piece_list pieces;
    pieces.count = starts.size();
    pieces.limits = std::move(limits);
    pieces.run = [&](std::size_t i, const run_control& own) { answers[i] = anneal(starts[i], own); };
    let_others_run<answer>(
        pieces, Search::kind, [&](byte_writer& out) { put_without_bound(out, p_); },
        [&](std::size_t i) -> const start& { return starts[i]; },
        [&](std::size_t i, answer found) {
          if (!Search::is_legal(p_, found))
            throw error(std::string(Search::kind) + ": another process returned a schedule that breaks the rules");
          answers[i] = std::move(found);
        });
    run_pieces(pieces, control);
    return answers;
  }

  /// How another process runs the searches.
  [[nodiscard]] static piece_kind pieces() {
    struct received {
      explicit received(byte_reader& in) : p(get_without_bound(in)), searches(p) {}
      problem p;
      annealing_population searches;
    };
    return portable_kind<start>(Search::kind, [](byte_reader& in) {
      return [all = std::make_shared<received>(in)](const start& from, const run_control& run) {
        return all->searches.anneal(from, run);
      };
    });
  }

 private:
  const problem& p_;
  object_pool<Search> idle_;
};

/// Limits for `count` pieces that share what is left of a clock's limits: the work evenly, the time by turns, since
/// some pieces run at the same time. The seeds differ. To be called as `piece_list::limits`.
[[nodiscard]] inline auto even_limits(const run_clock& clock, std::size_t count, std::uint64_t seed) {
  const std::uint64_t work = share_of(clock.work_left(), 1.0 / static_cast<double>(count));
  return [&clock, count, seed, work, begun = std::size_t{0}](std::size_t i, std::size_t members) mutable {
    const std::size_t turns = (count - begun++ + members - 1) / members;
    run_control limits = clock.limits(1.0 / static_cast<double>(turns));
    limits.work_limit = work;
    limits.seed = splitmix64(seed ^ i);
    return limits;
  };
}

/// The temperature when the share `spent` of the limits is spent: it falls from `hot`, and is 0 at the end.
[[nodiscard]] inline double falling_temperature(double hot, double spent) noexcept {
  return spent > 0.9 ? 0 : hot * (1 - spent) * (1 - spent);
}

/// The worst search goes on from the best answer, the others from their own. Precondition: there is one.
template <class Answer>
void exchange(std::vector<Answer>& all) {
  const auto is_faster = [](const Answer& a, const Answer& b) { return a.time < b.time; };
  const auto best = std::min_element(all.begin(), all.end(), is_faster);
  const auto worst = std::max_element(all.begin(), all.end(), is_faster);
  if (worst != best) *worst = *best;
}

/// True if a search with so much work or time takes so long that it may be sent to another process.
[[nodiscard]] inline bool is_worth_messages(std::uint64_t work, std::chrono::duration<double> time) {
  constexpr std::uint64_t least_work = 10'000;  // a millisecond or more
  constexpr std::chrono::milliseconds least_time(5);
  return work != run_control::no_work_limit ? work >= least_work : time >= least_time;
}

/// True if `computes` are operations of `p`, and their schedule is legal.
[[nodiscard]] inline bool is_legal_sequence(const problem& p, std::span<const std::uint32_t> computes) {
  const auto is_known = [&](std::uint32_t o) { return o < p.graph().num_operations; };
  return std::all_of(computes.begin(), computes.end(), is_known) && check(p, schedule_computes(p, computes)).valid();
}

}  // namespace REMAT_NAMESPACE::detail
