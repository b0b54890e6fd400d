// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/detail/slot_table.hpp"

#include <algorithm>
#include <utility>

#include "remat/chain/detail/traceback.hpp"
#include "remat/core/detail/linkage.hpp"

// Vectors of several doubles, if the compiler has them. They change function bodies alone, and no value.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
#define REMAT_SLOT_VECTORS 1
#else
#define REMAT_SLOT_VECTORS 0
#endif

namespace remat::detail {

namespace slots {

/// Lanes of doubles.
struct one_lane {
  using type = double;
  static constexpr std::size_t width = 1;
};
#if REMAT_SLOT_VECTORS
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
  [[gnu::always_inline]] inline std::size_t fill(std::uint32_t s, std::uint32_t t);

 private:
  using row = slot_table::row;

  /// The values of one row that all its choices need.
  struct frame {
    std::uint32_t s, t;
    std::uint32_t last_before;  ///< the last t' < t with a row (s, t')
    const row* before;          ///< [t' − s]: row (s, t')
    std::uint32_t beside;       ///< memory beside the forwards that keep nothing
    std::uint32_t base;         ///< the least memory of all choices
    double max_excess;          ///< the largest D to store
    double spent;               ///< the least time of s
    std::int64_t behind;        ///< the outputs of s + 1 … t
    std::uint32_t end;          ///< the last slot that is computed
    std::uint32_t least;        ///< the least slot with a finite value so far
  };

  static std::uint32_t small(std::int64_t size) noexcept { return static_cast<std::uint32_t>(size); }

  [[gnu::always_inline]] inline void find_end(frame& f) const;
  template <class Lanes>
  [[gnu::always_inline]] inline void offer_whole(frame& f);
  [[gnu::always_inline]] inline void offer_idle(frame& f);
  template <class Lanes>
  [[gnu::always_inline]] inline void offer_inputs(frame& f);
  template <class Lanes>
  [[gnu::always_inline]] inline void offer_sum(double add, const row& a, std::uint32_t shift_a, const row& b,
                                               std::uint32_t shift_b, std::uint32_t from, std::uint32_t to);
  [[gnu::always_inline]] inline std::size_t store(const frame& f, row& out);

  slot_table* table_;
  std::vector<double> best_;  // [m]: the least D so far
  std::vector<row> column_;   // [j]: row (j, t)
};

template <class Lanes>
inline std::size_t row_filler::fill(std::uint32_t s, std::uint32_t t) {
  const sized_chain& c = *table_->c_;
  frame f;
  f.s = s;
  f.t = t;
  f.last_before = s == t ? 0 : table_->layout_.before(s, t);
  f.before = table_->rows_.data() + table_->layout_.begin(s);
  const bool follows = s < t && f.last_before + 1 == t;  // there is a row (s, t − 1)
  row out;
  out.run = s == t    ? small(c.stages[s].fast_need)
            : follows ? std::max(f.before[t - 1 - s].run, small(c.x(s, t - 1) + c.stages[t].fast_need))
                      : small(c.run_need(s, t));
  f.beside = s < t ? small(c.stages[t].gradient + c.stages[s - 1].transient) : std::uint32_t{0};
  f.base = 0;
  if (s < t && c.strict()) f.base = f.beside + (follows ? f.before[t - 1 - s].run : small(c.run_need(s, t - 1)));
  f.max_excess = table_->bound_->max_excess(s, t);
  f.spent = c.least_time(s);
  f.behind = s < t ? table_->bound_->made_behind(s + 1, t) : 0;
  f.end = table_->slots_;
  f.least = slot_table::never;
  find_end(f);
  std::fill(best_.data(), best_.data() + f.end + 1, slot_table::infinite);
  offer_whole<Lanes>(f);
  if (s < t && t < table_->n_ && c.stages[t].idle) offer_idle(f);
  offer_inputs<Lanes>(f);
  return store(f, out);
}

/// Finds the slot from which on s can be kept whole without more time than the least: no other choice is better there.
inline void row_filler::find_end(frame& f) const {
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
inline void row_filler::offer_whole(frame& f) {
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
    const auto saved = static_cast<std::uint32_t>(std::min<std::int64_t>(c.saved(o, f.t), slot_table::never));
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
inline void row_filler::offer_idle(frame& f) {
  const sized_chain& c = *table_->c_;
  const row& before = f.before[f.t - 1 - f.s];
  const std::uint32_t outputs = small(c.stages[f.t].outputs);
  const std::uint32_t from =
      std::max(small(c.stages[f.s - 1].transient + c.stages[f.t].idle_need), outputs + before.first);
  if (from > f.end) return;
  f.least = std::min(f.least, from);
  const double add = c.stages[f.t].backward - c.least_time(f.t);
  for (std::uint32_t m = from; m <= f.end; ++m)
    best_[m] = std::min(best_[m], add + slot_table::value(before, m - outputs));
}

/// Keeps the input of j alone, for each j.
template <class Lanes>
inline void row_filler::offer_inputs(frame& f) {
  const sized_chain& c = *table_->c_;
  const excess_bound& bound = *table_->bound_;
  const bool strict = c.strict();
  const double advanced = bound.advanced[f.s - 1];
  const double* const best = best_.data();
  const row* const column = column_.data();
  std::uint32_t until = f.end + 1;  // from there on, j cannot win
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
inline void row_filler::offer_sum(double add, const row& a, std::uint32_t shift_a, const row& b, std::uint32_t shift_b,
                                  std::uint32_t from, std::uint32_t to) {
  double* const best = best_.data();
  const std::uint32_t end_a = std::min(to, a.last + shift_a), end_b = std::min(to, b.last + shift_b);
  const std::uint32_t both = std::min(end_a, end_b);
  if (from < both)
    take_smaller<Lanes>(best + from, add, a.values + (from - shift_a - a.first), b.values + (from - shift_b - b.first),
                        both - from);
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
inline std::size_t row_filler::store(const frame& f, row& out) {
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

using fill_function = std::size_t (*)(row_filler&, std::uint32_t, std::uint32_t);

inline std::size_t fill_by_one(row_filler& rows, std::uint32_t s, std::uint32_t t) { return rows.fill<one_lane>(s, t); }
#if REMAT_SLOT_VECTORS
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
#endif

/// The function with the widest vectors that the machine has, of at most `max_lanes` doubles.
[[nodiscard]] inline fill_function widest_fill([[maybe_unused]] std::size_t max_lanes) {
#if REMAT_SLOT_VECTORS
  if (max_lanes >= 8 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return fill_by_eight;
  if (max_lanes >= 4 && __builtin_cpu_supports("avx2")) return fill_by_four;
  if (max_lanes >= 2) return fill_by_two;
#endif
  return fill_by_one;
}

}  // namespace slots

REMAT_INLINE double* slot_table::pool::take(std::size_t count) {
  if (used + count > size) {
    size = std::max(count, std::clamp<std::size_t>(total / 4, 64, std::size_t{1} << 16));
    chunks.push_back(std::unique_ptr<double[]>(new double[size]));
    total += size;
    used = 0;
  }
  used += count;
  return chunks.back().get() + (used - count);
}

REMAT_INLINE fill_outcome slot_table::fill(run_clock& clock, std::int64_t max_bytes) {
  bytes_ = static_cast<std::int64_t>(layout_.rows() * sizeof(row));
  if (bytes() > max_bytes) return fill_outcome::too_large;
  if (!make_rows(rows_, layout_.rows(), clock)) return fill_outcome::stopped;
  pools_.resize(n_ + std::size_t{1});
  // A thread costs some 20 µs, a row a fraction of one for every hundred slots.
  const double work = static_cast<double>(rows()) * n_ * (slots_ + 64.0);
  const unsigned threads = std::clamp(clock.control().thread_count(), 1U, work < 2e7 ? 1 : n_ / 4 + 1);
  std::vector<slots::row_filler> fillers;
  for (unsigned k = 0; k < threads; ++k) fillers.emplace_back(*this);
  const slots::fill_function fill_row = slots::widest_fill(max_lanes_);
  return sweep_rows(
      layout_, threads,
      [&](unsigned thread, std::uint32_t s, std::uint32_t t) {
        const auto size = static_cast<std::int64_t>(fill_row(fillers[thread], s, t) * sizeof(double));
        return bytes_.fetch_add(size, std::memory_order_relaxed) + size > max_bytes ? fill_outcome::too_large
                                                                                    : fill_outcome::filled;
      },
      fill_progress(clock, threads, rows()));
}

REMAT_INLINE std::vector<chain_step> slot_table::steps(std::uint32_t m) const {
  const auto at = [this](std::uint32_t s, std::uint32_t t, std::int64_t slots) {
    return slots < 0 || !layout_.stored(s, t) ? infinite
                                              : value(rows_[layout_.place(s, t)], static_cast<std::uint32_t>(slots));
  };
  return traceback(*c_, *bound_, layout_, at).steps(m);
}

}  // namespace remat::detail

#undef REMAT_SLOT_VECTORS
