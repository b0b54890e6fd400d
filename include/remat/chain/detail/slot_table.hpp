// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "remat/chain/detail/row_sweep.hpp"
#include "remat/chain/detail/row_table.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/core/run.hpp"

namespace REMAT_NAMESPACE::detail {

namespace slots {
class row_filler;
}

/// D(s, t, ·) of a `slot_table`: infinite before `first`, values[m − first] up to `last`, `tail` from there on.
struct slot_row {
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max() / 4;

  const double* values = nullptr;
  double tail = std::numeric_limits<double>::infinity();
  std::uint32_t first = never, last = never;
  std::uint32_t run = 0;  ///< run_need(s, t)

  /// D(s, t, m).
  [[nodiscard]] double at(std::uint32_t m) const noexcept {
    return m < first ? std::numeric_limits<double>::infinity() : m < last ? values[m - first] : tail;
  }
};

/// The table of the dynamic program with memory counted in slots \cite beaumont2019rotor.
///
///   C(s, t, m) is the least time to run the stages s … t forward and backward with m slots. The gradient of x_t is
///   within m; the input of s (except its transient part) and all that was stored before are not. C is the least of
///   - keep s whole by one of its options o: f_o + b_o + C(s + 1, t, m − saved_o(t)), with C(t + 1, t, ·) = 0, if
///     m ≥ gradient_t + forward_need_o and m − outputs_{s+1…t} ≥ backward_need_o;
///   - keep the input of j alone, for a j with s < j ≤ t:
///     f_s + … + f_{j−1} + C(j, t, m − h(s, j − 1)) + C(s, j − 1, m − outputs_{j…t}),
///     if m ≥ gradient_t + transient_{s−1} + x(s, i − 1) + fast_need_i for all i in [s, j); in the published recurrence
///     and on graphs for all i in [s, t), and the first choice must meet that too (`sized_chain::strict`);
///   - run no forward of t, if its backward reads nothing that a forward makes, and s < t < n:
///     b_t + C(s, t − 1, m − outputs_t), if m ≥ transient_{s−1} + idle_need_t. The Rotor model has no such stage.
///
/// The table stores D (`excess_bound`), and of a row (s, t) the values between its first finite slot and the slot from
/// which on it is constant. D falls with m, so a j can win only in slots in which the best value so far exceeds a lower
/// bound of the j: f_s + … + f_{j−1} and the last values of both rows. That range of slots shrinks as j grows. The
/// innermost loops run along m, which is contiguous, with the widest vectors of the machine, chosen at run time. One
/// thread computes each row, in one order of operations, so the values are the same for any number of threads and any
/// vectors. Choices are not stored: `steps` finds them again from D. O(n³ · slots) time and O(n² · slots) memory at
/// worst, often far less.
class slot_table : public row_table<slot_row> {
 public:
  /// `c` in slots; its sizes are at most slots + 1. The table finds schedules of at most `bound.limit` more time than
  /// the least. Keeps references to `c` and `bound`.
  slot_table(const sized_chain& c, std::uint32_t slots, const excess_bound& bound)
      : row_table(c, bound), slots_(slots) {}

  /// Uses vectors of at most `width` doubles: for tests and measurements.
  void limit_lanes(std::size_t width) noexcept { max_lanes_ = width; }

  /// Fills the table on up to as many threads as `clock` allows, the caller's among them. That thread polls `clock`
  /// after each of its rows, and reports progress there. `too_large`: the table would take more than `max_bytes`.
  fill_outcome fill(run_clock& clock, std::int64_t max_bytes);

  /// C(1, n, m); infinite if there is no schedule within the bound. Precondition of this and the rest: filled.
  [[nodiscard]] double cost(std::uint32_t m) const { return excess(m) + bound_->least[n_]; }
  /// D(1, n, m).
  [[nodiscard]] double excess(std::uint32_t m) const { return whole().at(m); }
  /// The least m with a finite C(1, n, m); more than `slots` if there is none.
  [[nodiscard]] std::uint32_t first() const { return whole().first; }
  /// The m from which on C(1, n, m) is constant.
  [[nodiscard]] std::uint32_t last() const { return whole().last; }

 private:
  friend class slots::row_filler;

  static constexpr std::size_t widest = 8;           // doubles of the widest vector
  static constexpr std::size_t margin = widest - 1;  // doubles behind a row that repeat its last value

  /// The values of the rows (s, ·) of one s, one behind another, in the order in which they are read.
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

  std::uint32_t slots_;
  std::vector<pool> pools_{};
  std::size_t max_lanes_ = widest;
};

namespace slots {

/// Lanes of doubles.
struct one_lane {
  using type = double;
  static constexpr std::size_t width = 1;
};
// Vectors of several doubles, if the compiler has them. They change function bodies alone, and no value.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
struct two_lanes {
  typedef double type __attribute__((vector_size(16)));
  static constexpr std::size_t width = 2;
};
struct four_lanes {
  typedef double type __attribute__((vector_size(32)));
  static constexpr std::size_t width = 4;
};
struct eight_lanes {
  typedef double type __attribute__((vector_size(64)));
  static constexpr std::size_t width = 8;
};

/// Lanes at any address of doubles.
template <class Lanes>
struct [[gnu::packed, gnu::may_alias]] unaligned {
  typename Lanes::type values;
};
#else
template <class Lanes>
struct unaligned {
  typename Lanes::type values;
};
#endif

/// best[k] = min(best[k], (add + a[k]) + b[k]) for k in [0, count), and for up to width − 1 more.
template <class Lanes>
[[gnu::always_inline]] inline void take_smaller(double* best, double add, const double* a, const double* b,
                                                std::size_t count) {
  using lanes = typename Lanes::type;
  using place = unaligned<Lanes>;
  for (std::size_t k = 0; k < count; k += Lanes::width) {
    place& to = *reinterpret_cast<place*>(best + k);
    const lanes before = to.values;
    const lanes time =
        (reinterpret_cast<const place*>(a + k)->values + add) + reinterpret_cast<const place*>(b + k)->values;
    to.values = time < before ? time : before;
  }
}

/// The same with one b for all k.
template <class Lanes>
[[gnu::always_inline]] inline void take_smaller(double* best, double add, const double* a, double b,
                                                std::size_t count) {
  using lanes = typename Lanes::type;
  using place = unaligned<Lanes>;
  for (std::size_t k = 0; k < count; k += Lanes::width) {
    place& to = *reinterpret_cast<place*>(best + k);
    const lanes before = to.values;
    const lanes time = (reinterpret_cast<const place*>(a + k)->values + add) + b;
    to.values = time < before ? time : before;
  }
}

/// Fills rows of a table on one thread.
class row_filler {
 public:
  explicit row_filler(slot_table& table)
      : table_(&table),
        best_(table.slots_ + std::size_t{2} * slot_table::widest + 1),
        column_(table.n_ + std::size_t{2}) {}

  /// Fills row (s, t), and returns how many doubles it takes.
  template <class Lanes>
  [[gnu::always_inline]] inline std::size_t fill(std::uint32_t s, std::uint32_t t) {
    const sized_chain& c = *table_->c_;
    frame f(*table_, s, t);
    f.spent = c.least_time(s);
    f.behind = s < t ? table_->bound_->made_behind(s + 1, t) : 0;
    f.end = table_->slots_;
    find_end(f);
    std::fill(best_.data(), best_.data() + f.end + 1, std::numeric_limits<double>::infinity());
    offer_whole<Lanes>(f);
    if (s < t && t < table_->n_ && c.stages[t].idle) offer_idle(f);
    offer_inputs<Lanes>(f);
    return store(f);
  }

 private:
  using row = slot_row;

  struct frame : slot_table::row_frame {
    using row_frame::row_frame;
    double spent = 0;                  ///< the least time of s
    std::int64_t behind = 0;           ///< the outputs of s + 1 … t
    std::uint32_t end = 0;             ///< the last slot that is computed
    std::uint32_t least = row::never;  ///< the least slot with a finite value so far
  };

  static std::uint32_t small(std::int64_t size) noexcept { return static_cast<std::uint32_t>(size); }

  /// Finds the slot from which on s can be kept whole without more time than the least: no other choice is better
  /// there.
  [[gnu::always_inline]] inline void find_end(frame& f) const {
    const sized_chain& c = *table_->c_;
    const sized_stage& stage = c.stages[f.s];
    for (std::uint32_t o = stage.first_option; o < stage.last_option; ++o) {
      const keep_option& way = c.options[o];
      const double rest = f.s == f.t ? way.last_time - f.spent : (way.time - f.spent) + column_[f.s + 1].tail;
      if (rest > 0) continue;
      std::int64_t from = std::max<std::int64_t>(c.keep_need(way, f.s, f.t, f.behind), f.base);
      if (f.s < f.t) from = std::max<std::int64_t>(from, c.saved(o, f.t) + column_[f.s + 1].last);
      if (from < f.end) f.end = small(from);
    }
  }

  /// Keeps s whole by one of its options.
  template <class Lanes>
  [[gnu::always_inline]] inline void offer_whole(frame& f) {
    const sized_chain& c = *table_->c_;
    const sized_stage& stage = c.stages[f.s];
    double* const best = best_.data();
    for (std::uint32_t o = stage.first_option; o < stage.last_option; ++o) {
      const keep_option& way = c.options[o];
      std::int64_t from = std::max<std::int64_t>(c.keep_need(way, f.s, f.t, f.behind), f.base);
      if (f.s == f.t) {
        const double time = way.last_time - f.spent;
        if (from > f.end) continue;
        for (std::size_t m = static_cast<std::size_t>(from); m <= f.end; ++m) best[m] = std::min(best[m], time);
        f.least = std::min(f.least, small(from));
        continue;
      }
      const row& rest = column_[f.s + 1];
      const auto saved = static_cast<std::uint32_t>(std::min<std::int64_t>(c.saved(o, f.t), slot_row::never));
      from = std::max<std::int64_t>(from, std::int64_t{saved} + rest.first);
      if (from > f.end) continue;
      f.least = std::min(f.least, small(from));
      const std::uint32_t until = std::clamp(rest.last + saved, small(from), f.end + 1);
      if (small(from) < until)
        take_smaller<Lanes>(best + from, way.time - f.spent, rest.values + (small(from) - saved - rest.first), 0.0,
                            until - small(from));
      const double time = (way.time - f.spent) + rest.tail;
      for (std::uint32_t m = until; m <= f.end; ++m) best[m] = std::min(best[m], time);
    }
  }

  /// Runs no forward of t.
  [[gnu::always_inline]] inline void offer_idle(frame& f) {
    const sized_chain& c = *table_->c_;
    const row& before = f.before[f.t - 1 - f.s];
    const std::uint32_t outputs = small(c.stages[f.t].outputs);
    const std::uint32_t from =
        std::max(small(c.stages[f.s - 1].transient + c.stages[f.t].idle_need), outputs + before.first);
    if (from > f.end) return;
    f.least = std::min(f.least, from);
    const double add = c.stages[f.t].backward - c.least_time(f.t);
    for (std::uint32_t m = from; m <= f.end; ++m) best_[m] = std::min(best_[m], add + before.at(m - outputs));
  }

  /// Keeps the input of j alone, for each j.
  template <class Lanes>
  [[gnu::always_inline]] inline void offer_inputs(frame& f) {
    const sized_chain& c = *table_->c_;
    const excess_bound& bound = *table_->bound_;
    const bool strict = c.strict();
    const double advanced = bound.advanced[f.s - 1];
    const double* const best = best_.data();
    const row* const column = column_.data();
    std::uint32_t until = f.end + 1;  // j cannot win from there on
    double least_before = 0;
    const std::uint32_t last_j = f.last_before + 1;
    for (std::uint32_t j = f.s + 1; j <= last_j; ++j) {
      const double add = bound.advanced[j - 1] - advanced;
      if (add > f.max_excess) break;
      const row& a = column[j];
      const row& b = f.before[j - 1 - f.s];
      const std::uint32_t kept = small(c.h(f.s, j - 1)), made = small(bound.made_behind(j, f.t));
      const std::uint32_t need = strict ? f.base : f.beside + b.run;
      const std::uint32_t from = std::max({need, kept + a.first, made + b.first});
      if (from > f.end) continue;
      const double lower = (add + a.tail) + b.tail;
      if (lower < least_before) until = f.end + 1;
      least_before = lower;
      while (until > from && best[until - 1] <= lower) --until;
      if (from >= until) continue;
      f.least = std::min(f.least, from);
      offer_sum<Lanes>(add, a, kept, b, made, from, until);
    }
  }

  /// Offers (add + D(a, m − shift_a)) + D(b, m − shift_b) for m in [from, to). Precondition: both are finite there.
  template <class Lanes>
  [[gnu::always_inline]] inline void offer_sum(double add, const row& a, std::uint32_t shift_a, const row& b,
                                               std::uint32_t shift_b, std::uint32_t from, std::uint32_t to) {
    double* const best = best_.data();
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

  /// Stores the best values as row (s, t), without those over `max_excess` and without a constant end.
  [[gnu::always_inline]] inline std::size_t store(const frame& f) {
    row out;
    out.run = f.run;
    const double* const best = best_.data();
    std::uint32_t first = f.least, end = f.end;
    while (first <= end && !(best[first] <= f.max_excess)) ++first;
    std::size_t size = 0;
    if (first <= end) {
      while (end > first && best[end - 1] == best[end]) --end;
      out.first = first;
      out.last = end;
      out.tail = best[end];
      size = end - first + 1 + slot_table::margin;
      double* const values = table_->pools_[f.s].take(size);
      std::copy(best + first, best + end + 1, values);
      std::fill(values + (end - first + 1), values + size, out.tail);
      out.values = values;
    }
    column_[f.s] = out;
    table_->rows_[table_->layout_.place(f.s, f.t)] = out;
    return size;
  }

  slot_table* table_;
  std::vector<double> best_;  // [m]: the least D so far
  std::vector<row> column_;   // [j]: row (j, t)
};

using fill_function = std::size_t (*)(row_filler&, std::uint32_t, std::uint32_t);

inline std::size_t fill_by_one(row_filler& rows, std::uint32_t s, std::uint32_t t) { return rows.fill<one_lane>(s, t); }
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
inline std::size_t fill_by_two(row_filler& rows, std::uint32_t s, std::uint32_t t) {
  return rows.fill<two_lanes>(s, t);
}
[[gnu::target("avx2")]] inline std::size_t fill_by_four(row_filler& rows, std::uint32_t s, std::uint32_t t) {
  return rows.fill<four_lanes>(s, t);
}
[[gnu::target("avx512f,avx512vl")]] inline std::size_t fill_by_eight(row_filler& rows, std::uint32_t s,
                                                                     std::uint32_t t) {
  return rows.fill<eight_lanes>(s, t);
}

/// The function with the widest vectors that the machine has, of at most `max_lanes` doubles.
[[nodiscard]] inline fill_function widest_fill(std::size_t max_lanes) {
  if (max_lanes >= 8 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return fill_by_eight;
  if (max_lanes >= 4 && __builtin_cpu_supports("avx2")) return fill_by_four;
  return max_lanes >= 2 ? fill_by_two : fill_by_one;
}
#else
[[nodiscard]] inline fill_function widest_fill(std::size_t) { return fill_by_one; }
#endif

}  // namespace slots

inline fill_outcome slot_table::fill(run_clock& clock, std::int64_t max_bytes) {
  pools_.resize(n_ + std::size_t{1});
  // A thread costs some 20 µs, a row a fraction of one for every hundred slots.
  const double work = static_cast<double>(rows()) * n_ * (slots_ + 64.0);
  const slots::fill_function fill_row = slots::widest_fill(max_lanes_);
  return fill_rows(clock, max_bytes, work < 2e7, slots::row_filler(*this),
                   [&](slots::row_filler& own, std::uint32_t s, std::uint32_t t) {
                     const std::int64_t bytes = add_bytes(fill_row(own, s, t) * sizeof(double));
                     return bytes > max_bytes ? fill_outcome::too_large : fill_outcome::filled;
                   });
}

}  // namespace REMAT_NAMESPACE::detail
