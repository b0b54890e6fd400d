// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "remat/chain/chain_schedule.hpp"
#include "remat/chain/row_sweep.hpp"
#include "remat/chain/sized_chain.hpp"
#include "remat/chain/traceback.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"

// Vectors of several doubles where the compiler has them; which one is used is decided when the program runs.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
#define REMAT_PERSISTENT_SLOTS_X86 1
#else
#define REMAT_PERSISTENT_SLOTS_X86 0
#endif

namespace remat::detail::persistent {

namespace slot_lanes {

/// Lanes of doubles.
struct one {
  using type = double;
  static constexpr std::size_t width = 1;
};
#if REMAT_PERSISTENT_SLOTS_X86
struct two {
  typedef double type __attribute__((vector_size(16)));
  static constexpr std::size_t width = 2;
};
struct four {
  typedef double type __attribute__((vector_size(32)));
  static constexpr std::size_t width = 4;
};
struct eight {
  typedef double type __attribute__((vector_size(64)));
  static constexpr std::size_t width = 8;
};
#endif
inline constexpr std::size_t widest = 8;

/// The lanes at any address of doubles.
#if REMAT_PERSISTENT_SLOTS_X86
template <class Lanes>
struct [[gnu::packed, gnu::may_alias]] anywhere {
  typename Lanes::type values;
};
#else
template <class Lanes>
struct anywhere {
  typename Lanes::type values;
};
#endif

}  // namespace slot_lanes

/// The table of the dynamic program with memory counted in slots.
///
///   C(s, t, m), the least time to run the stages s … t forward and backward with m slots, the input of s (but for its
///   transient part) and all that was stored before outside m, the gradient of x_t inside, is the smallest of
///   - keep s whole by one of its options o: f_o + b_o + C(s + 1, t, m − saved_o(t)), with C(t + 1, t, ·) = 0, if
///     m ≥ gradient_t + forward_need_o and m − outputs_{s+1…t} ≥ backward_need_o;
///   - keep the input of j alone, for a j with s < j ≤ t:
///     f_s + … + f_{j−1} + C(j, t, m − h(s, j − 1)) + C(s, j − 1, m − outputs_{j…t}),
///     if m ≥ gradient_t + transient_{s−1} + x(s, i − 1) + fast_need_i for all i in [s, j) (in the published recurrence
///     and on graphs, for all i in [s, t), and the former has to meet that too);
///   - where the backward of t reads nothing that a forward makes, and s < t < n (so the forward of t has run): no
///     forward of t, b_t + C(s, t − 1, m − outputs_t), if m ≥ transient_{s−1} + idle_need_t. In the Rotor model there
///     is no such stage.
///
/// What is stored is D (`excess_bound`), and of a row (s, t) what is left of it between its first finite slot and the
/// one from which on it is constant. D falls with m, so a j can only win where the best so far exceeds a bound of it,
/// on a range of slots that shrinks as j grows: f_s + … + f_{j−1} and the ends of both rows are that bound. What is
/// left to do runs along m, which is contiguous, with as wide vectors as the machine has. Each row is computed by one
/// thread, in one order of operations, so that all answers are the same for any number of them and for any vectors.
/// Choices are not stored: they are found again from D. O(n³ · slots) time and O(n² · slots) memory at worst, often far
/// less.
class slot_table {
 public:
  /// `c` in slots, sizes at most slots + 1. Only schedules of at most `bound.limit` more time than the least are found.
  /// Both have to outlive the table.
  slot_table(const sized_chain& c, std::uint32_t slots, const excess_bound& bound)
      : c_(&c), bound_(&bound), slots_(slots), n_(c.length), layout_(bound) {}

  /// Vectors of at most that many doubles, in place of the widest of the machine: for tests and measurements.
  void limit_lanes(std::size_t width) noexcept { most_lanes_ = width; }

  /// Rows (s, t) to fill.
  [[nodiscard]] std::uint64_t rows() const noexcept { return layout_.rows(); }
  /// Bytes of the table so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  /// Fills the table on up to `threads` threads, the caller's among them, which polls and calls `tell(done, total)`
  /// after each row of its own. `most_bytes`: give up rather than take more.
  template <class Tell>
  fill_outcome fill(const run_clock& clock, unsigned threads, std::int64_t most_bytes, Tell&& tell) {
    bytes_ = static_cast<std::int64_t>(layout_.rows() * sizeof(row));
    if (bytes() > most_bytes) return fill_outcome::too_large;
    rows_.resize(layout_.rows());
    pools_.resize(n_ + std::size_t{1});
    // A thread costs some 20 µs, a row a fraction of one for every hundred slots.
    const double work = static_cast<double>(rows()) * n_ * (slots_ + 64.0);
    threads = std::clamp(threads, 1U, work < 2e7 ? 1 : n_ / 4 + 1);
    std::vector<workspace> spaces(threads);
    for (workspace& own : spaces) {
      own.best.resize(slots_ + std::size_t{2} * slot_lanes::widest + 1);
      own.column.resize(n_ + std::size_t{2});
    }
    const fill_function fill_by = widest_fill();
    std::uint64_t filled = 0;
    return sweep_rows(
        layout_, threads,
        [&](unsigned thread, std::uint32_t s, std::uint32_t t) {
          const auto size = static_cast<std::int64_t>(fill_by(*this, spaces[thread], s, t) * sizeof(double));
          return bytes_.fetch_add(size, std::memory_order_relaxed) + size > most_bytes ? fill_outcome::too_large
                                                                                       : fill_outcome::filled;
        },
        [&](std::uint64_t count) {
          if (clock.should_stop()) return true;
          filled += count;
          tell(std::min<std::uint64_t>(filled * threads, rows()), rows());
          return false;
        });
  }

  /// C(1, n, m), infinite where there is no schedule within the bound.
  [[nodiscard]] double cost(std::uint32_t m) const {
    const double excess = value(whole(), m);
    return excess + bound_->least[n_];
  }
  /// D(1, n, m).
  [[nodiscard]] double excess(std::uint32_t m) const { return value(whole(), m); }
  /// The first m with a finite C(1, n, m), more than `slots` if there is none; and the one from which on it is
  /// constant.
  [[nodiscard]] std::uint32_t first() const { return whole().first; }
  [[nodiscard]] std::uint32_t last() const { return whole().last; }

  /// The steps behind C(1, n, m). Precondition: it is finite.
  [[nodiscard]] std::vector<chain_step> steps(std::uint32_t m) const {
    const auto at = [this](std::uint32_t s, std::uint32_t t, std::int64_t slots) {
      return slots < 0 || !layout_.stored(s, t) ? infinite : value(rows_[layout_.place(s, t)], small(slots));
    };
    return traceback(*c_, *bound_, layout_, at).steps(m);
  }

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max() / 4;
  static constexpr std::size_t margin = slot_lanes::widest - 1;  // doubles behind a row that repeat its last

  /// D(s, t, ·): infinite before `first`, values[m − first] up to `last`, `tail` from there on.
  struct row {
    const double* values = nullptr;
    double tail = infinite;
    std::uint32_t first = never, last = never;
    std::uint32_t run = 0;  ///< run_need(s, t)
  };

  /// Where the rows (s, ·) of one s stand one behind another, as they are read.
  struct pool {
    std::vector<std::unique_ptr<double[]>> chunks{};
    std::size_t used = 0, size = 0, total = 0;

    double* take(std::size_t count) {
      if (used + count > size) {
        size = std::max(count, std::clamp<std::size_t>(total / 4, 64, std::size_t{1} << 16));
        chunks.push_back(std::unique_ptr<double[]>(new double[size]));
        total += size;
        used = 0;
      }
      used += count;
      return chunks.back().get() + (used - count);
    }
  };
  /// What one thread works with.
  struct workspace {
    std::vector<double> best{};
    std::vector<row> column{};  // [j]: (j, t)
  };

  static std::uint32_t small(std::int64_t size) noexcept { return static_cast<std::uint32_t>(size); }

  [[nodiscard]] const row& whole() const { return rows_[layout_.place(1, n_)]; }
  [[nodiscard]] static double value(const row& r, std::uint32_t m) noexcept {
    return m < r.first ? infinite : m < r.last ? r.values[m - r.first] : r.tail;
  }

  /// best[k] = min(best[k], (add + a[k]) + b[k]) for k in [0, count), and for up to margin more.
  template <class Lanes>
  [[gnu::always_inline]] static inline void take_smaller(double* best, double add, const double* a, const double* b,
                                                         std::size_t count) {
    using lanes = typename Lanes::type;
    using place = slot_lanes::anywhere<Lanes>;
    for (std::size_t k = 0; k < count; k += Lanes::width) {
      place& to = *reinterpret_cast<place*>(best + k);
      const lanes before = to.values;
      const lanes time =
          (reinterpret_cast<const place*>(a + k)->values + add) + reinterpret_cast<const place*>(b + k)->values;
      to.values = time < before ? time : before;
    }
  }
  /// The same with one b for all.
  template <class Lanes>
  [[gnu::always_inline]] static inline void take_smaller(double* best, double add, const double* a, double b,
                                                         std::size_t count) {
    using lanes = typename Lanes::type;
    using place = slot_lanes::anywhere<Lanes>;
    for (std::size_t k = 0; k < count; k += Lanes::width) {
      place& to = *reinterpret_cast<place*>(best + k);
      const lanes before = to.values;
      const lanes time = (reinterpret_cast<const place*>(a + k)->values + add) + b;
      to.values = time < before ? time : before;
    }
  }

  /// Offers (add + D(a, m − shift_a)) + D(b, m − shift_b) for m in [from, to). Precondition: both are finite there.
  template <class Lanes>
  [[gnu::always_inline]] static inline void offer(double* best, double add, const row& a, std::uint32_t shift_a,
                                                  const row& b, std::uint32_t shift_b, std::uint32_t from,
                                                  std::uint32_t to) {
    const std::uint32_t end_a = std::min(to, a.last + shift_a), end_b = std::min(to, b.last + shift_b);
    const std::uint32_t both = std::min(end_a, end_b);
    if (from < both)
      take_smaller<Lanes>(best + from, add, a.values + (from - shift_a - a.first),
                          b.values + (from - shift_b - b.first), both - from);
    std::uint32_t m = std::max(from, both);
    if (m < end_a) {
      take_smaller<Lanes>(best + m, add, a.values + (m - shift_a - a.first), b.tail, end_a - m);
      m = end_a;
    } else if (m < end_b) {
      take_smaller<Lanes>(best + m, add + a.tail, b.values + (m - shift_b - b.first), 0.0, end_b - m);
      m = end_b;
    }
    const double rest = (add + a.tail) + b.tail;
    for (; m < to; ++m) best[m] = rest < best[m] ? rest : best[m];
  }

  /// Fills row (s, t), and returns how many doubles it takes.
  template <class Lanes>
  [[gnu::always_inline]] inline std::size_t fill_row(workspace& own, std::uint32_t s, std::uint32_t t) {
    const sized_chain& c = *c_;
    const sized_stage& stage = c.stages[s];
    row* const column = own.column.data();  // [j]: (j, t)
    double* const best = own.best.data();
    row out;
    const std::uint32_t last_before = s == t ? 0 : layout_.before(s, t);
    const row* const before = rows_.data() + layout_.begin(s);  // [t' − s]: (s, t')
    const bool follows = s < t && last_before + 1 == t;
    out.run = s == t    ? small(stage.fast_need)
              : follows ? std::max(before[t - 1 - s].run, small(c.x(s, t - 1) + c.stages[t].fast_need))
                        : small(c.run_need(s, t));
    const std::uint32_t beside = s < t ? small(c.stages[t].gradient + c.stages[s - 1].transient) : std::uint32_t{0};
    std::uint32_t base = 0;  // of all choices
    if (s < t && c.strict()) base = beside + (follows ? before[t - 1 - s].run : small(c.run_need(s, t - 1)));
    const double most = bound_->most(s, t);
    const double spent = c.least_time(s);  // of D's reference
    const std::int64_t behind = s < t ? bound_->made_behind(s + 1, t) : 0;

    // Where the row ends: from there on to keep s whole without any more time than the least, if that can be, wins.
    std::uint32_t end = slots_;
    for (std::uint32_t o = stage.first_option; o < stage.last_option; ++o) {
      const keep_option& way = c.options[o];
      const double rest = s == t ? way.last_time - spent : (way.time - spent) + column[s + 1].tail;
      if (rest > 0) continue;
      std::int64_t from = std::max<std::int64_t>(c.keep_need(way, s, t, behind), base);
      if (s < t) from = std::max<std::int64_t>(from, c.saved(o, t) + column[s + 1].last);
      if (from < end) end = small(from);
    }
    std::uint32_t least = never;
    std::fill(best, best + end + 1, infinite);
    for (std::uint32_t o = stage.first_option; o < stage.last_option; ++o) {
      const keep_option& way = c.options[o];
      std::int64_t from = std::max<std::int64_t>(c.keep_need(way, s, t, behind), base);
      if (s == t) {
        const double time = way.last_time - spent;
        if (from > end) continue;
        for (std::size_t m = static_cast<std::size_t>(from); m <= end; ++m) best[m] = std::min(best[m], time);
        least = std::min(least, small(from));
        continue;
      }
      const row& rest = column[s + 1];
      const auto saved = static_cast<std::uint32_t>(std::min<std::int64_t>(c.saved(o, t), never));
      from = std::max<std::int64_t>(from, std::int64_t{saved} + rest.first);
      if (from > end) continue;
      least = std::min(least, small(from));
      const std::uint32_t until = std::clamp(rest.last + saved, small(from), end + 1);
      if (small(from) < until)
        take_smaller<Lanes>(best + from, way.time - spent, rest.values + (small(from) - saved - rest.first), 0.0,
                            until - small(from));
      const double time = (way.time - spent) + rest.tail;
      for (std::uint32_t m = until; m <= end; ++m) best[m] = std::min(best[m], time);
    }
    if (may_skip(s, t)) {
      const std::uint32_t outputs = small(c.stages[t].outputs);
      const std::uint32_t from =
          std::max(small(c.stages[s - 1].transient + c.stages[t].idle_need), outputs + before[t - 1 - s].first);
      if (from <= end) {
        least = std::min(least, from);
        const double add = c.stages[t].backward - c.least_time(t);
        for (std::uint32_t m = from; m <= end; ++m)
          best[m] = std::min(best[m], add + value(before[t - 1 - s], m - outputs));
      }
    }

    std::uint32_t until = end + 1;  // behind it, j cannot win
    double least_before = 0;
    const bool strict = c.strict();
    const double advanced = bound_->advanced[s - 1];
    const std::uint32_t last_j = last_before + 1;
    for (std::uint32_t j = s + 1; j <= last_j; ++j) {
      const double add = bound_->advanced[j - 1] - advanced;
      if (add > most) break;
      const row& a = column[j];
      const row& b = before[j - 1 - s];
      const std::uint32_t kept = small(c.h(s, j - 1)), made = small(bound_->made_behind(j, t));
      const std::uint32_t need = strict ? base : beside + b.run;
      const std::uint32_t from = std::max({need, kept + a.first, made + b.first});
      if (from > end) continue;
      const double lower = (add + a.tail) + b.tail;
      if (lower < least_before) until = end + 1;
      least_before = lower;
      while (until > from && best[until - 1] <= lower) --until;
      if (from >= until) continue;
      least = std::min(least, from);
      offer<Lanes>(best, add, a, kept, b, made, from, until);
    }

    std::uint32_t first = least;
    while (first <= end && !(best[first] <= most)) ++first;
    std::size_t size = 0;
    if (first <= end) {
      while (end > first && best[end - 1] == best[end]) --end;
      out.first = first;
      out.last = end;
      out.tail = best[end];
      size = end - first + 1 + margin;
      double* const values = pools_[s].take(size);
      std::copy(best + first, best + end + 1, values);
      std::fill(values + (end - first + 1), values + size, out.tail);
      out.values = values;
    }
    column[s] = out;
    rows_[layout_.place(s, t)] = out;
    return size;
  }

  [[nodiscard]] bool may_skip(std::uint32_t s, std::uint32_t t) const noexcept {
    return s < t && t < n_ && c_->stages[t].idle;
  }

  using fill_function = std::size_t (*)(slot_table&, workspace&, std::uint32_t, std::uint32_t);

  static std::size_t fill_by_one(slot_table& table, workspace& own, std::uint32_t s, std::uint32_t t) {
    return table.fill_row<slot_lanes::one>(own, s, t);
  }
#if REMAT_PERSISTENT_SLOTS_X86
  static std::size_t fill_by_two(slot_table& table, workspace& own, std::uint32_t s, std::uint32_t t) {
    return table.fill_row<slot_lanes::two>(own, s, t);
  }
  [[gnu::target("avx2")]] static std::size_t fill_by_four(slot_table& table, workspace& own, std::uint32_t s,
                                                          std::uint32_t t) {
    return table.fill_row<slot_lanes::four>(own, s, t);
  }
  [[gnu::target("avx512f,avx512vl")]] static std::size_t fill_by_eight(slot_table& table, workspace& own,
                                                                       std::uint32_t s, std::uint32_t t) {
    return table.fill_row<slot_lanes::eight>(own, s, t);
  }
  [[nodiscard]] fill_function widest_fill() const {
    if (most_lanes_ >= 8 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
      return fill_by_eight;
    if (most_lanes_ >= 4 && __builtin_cpu_supports("avx2")) return fill_by_four;
    return most_lanes_ >= 2 ? fill_by_two : fill_by_one;
  }
#else
  [[nodiscard]] fill_function widest_fill() const { return fill_by_one; }
#endif

  const sized_chain* c_;
  const excess_bound* bound_;
  std::uint32_t slots_;
  std::uint32_t n_;
  row_layout layout_;
  std::vector<row> rows_;
  std::vector<pool> pools_;
  std::size_t most_lanes_ = slot_lanes::widest;
  std::atomic<std::int64_t> bytes_{0};
};

}  // namespace remat::detail::persistent
#undef REMAT_PERSISTENT_SLOTS_X86
