// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_relations.hpp"
#include "remat/mip/detail/bounded_dual_simplex.hpp"
#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE::detail {

/// The recomputation of all schedules, seen at several moments, as a linear program over 0 and 1. Every schedule is a
/// solution that costs at most its recomputation: docs/bounds.md, section 12.
///
/// A *part* is what the schedule runs from one moment to a later one, or to its end: a segment if no moment lies
/// between. Columns say what is held at each moment, which operations have not run there, and what each part runs and
/// runs again. A column that can have one value only is none: its *value* stands for it.
class moment_program {
 public:
  /// A column, or one of the numbers 0 and 1.
  using value = std::uint32_t;
  static constexpr value zero = std::numeric_limits<std::uint32_t>::max() - 1, one = zero + 1;
  [[nodiscard]] static bool is_column(value v) noexcept { return v < zero; }

  /// The row on the memory of a moment: the tensors held beside the working set must fit.
  struct memory {
    std::vector<std::uint32_t> columns, tensors;
    std::vector<std::int64_t> bytes;
    std::int64_t room = 0;
  };
  /// `moments`: operations, each of which depends on the one before; at least one. Costs are times × `unit`, a power of
  /// two. If a working set does not fit, there is no schedule: `fits()` is false, and the program is incomplete.
  moment_program(const flat_graph& g, std::int64_t budget, std::vector<std::uint32_t> moments, double unit)
      : graph_(g), budget_(budget), moments_(std::move(moments)), unit_(unit) {
    const moment_relations relations(g);
    for (const std::uint32_t k : moments_) sides_.push_back(relations.of(k));
    const std::size_t m = moments_.size();
    for (std::size_t i = 0; i < m && fits_; ++i) add_moment(i);
    if (!fits_) return;
    for (std::size_t i = 0; i < m; ++i) segments_.push_back(add_part(i, i + 1));
    for (std::size_t i = 0; i + 1 < m; ++i) tie_waiting(i);
    for (std::size_t span = 2; span <= m; ++span)
      for (std::size_t i = 0; i + span <= m; ++i) tie_part(add_part(i, i + span), i, span);
  }

  [[nodiscard]] bool fits() const noexcept { return fits_; }
  [[nodiscard]] bounded_dual_simplex& rows() noexcept { return rows_; }
  [[nodiscard]] const std::vector<std::uint32_t>& moments() const noexcept { return moments_; }
  [[nodiscard]] const std::vector<memory>& memories() const noexcept { return memories_; }
  /// True if the bytes of tensor t are so few at moment i that they do not count: it is held there at no price.
  [[nodiscard]] bool is_free(std::size_t i, std::uint32_t t) const {
    return graph_.bytes[t] <= memories_[i].room >> 17;
  }
  /// True if tensor t is held at moment i.
  [[nodiscard]] value held(std::size_t i, std::uint32_t t) const { return held_[i][t]; }
  /// True if operation o runs between moment i and the next.
  [[nodiscard]] value runs(std::size_t i, std::uint32_t o) const { return segments_[i].runs[o]; }
  /// Calls `visit(column)` for what each segment runs, and for what has not run at each moment.
  template <class Visit>
  void for_each_run_column(Visit&& visit) const {
    for (const auto& list : waits_)
      for (const value v : list)
        if (is_column(v)) visit(v);
    for (const part& x : segments_)
      for (const value v : x.runs)
        if (is_column(v)) visit(v);
  }
  /// The operations that depend on moment i or precede it.
  [[nodiscard]] const std::vector<std::uint8_t>& sides(std::size_t i) const { return sides_[i]; }
  [[nodiscard]] double at(value v) const { return v == one ? 1.0 : v == zero ? 0.0 : rows_.value(v); }

 private:
  struct part {
    std::vector<value> runs, again;  // each operation's values
  };
  static constexpr std::uint8_t later = moment_relations::later, earlier = moment_relations::earlier;

  [[nodiscard]] bool has_run(std::size_t i, std::uint32_t o) const { return (sides_[i][o] & earlier) != 0; }
  [[nodiscard]] bool is_later(std::size_t i, std::uint32_t o) const {
    return (sides_[i][o] & later) != 0 && o != moments_[i];
  }
  /// Operation o has run when the part that ends at moment j, or at the end, is over.
  [[nodiscard]] bool must_have_run(std::size_t j, std::uint32_t o) const {
    return j == moments_.size() ? graph_.needed[o] != 0 : has_run(j, o);
  }

  /// The row: the sum of `plus` less that of `minus` is at least `least`.
  void require(const std::vector<value>& plus, const std::vector<value>& minus, int least) {
    entries_.clear();
    int lowest = 0;
    for (const value v : plus)
      if (v == one)
        --least;
      else if (v != zero)
        entries_.push_back({v, 1});
    for (const value v : minus)
      if (v == one)
        ++least;
      else if (v != zero) {
        entries_.push_back({v, -1});
        --lowest;
      }
    if (lowest >= least) return;
    for (std::size_t a = 0; a < entries_.size(); ++a)  // each column once
      for (std::size_t b = a + 1; b < entries_.size();)
        if (entries_[b].index == entries_[a].index) {
          entries_[a].value += entries_[b].value;
          entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(b));
        } else {
          ++b;
        }
    rows_.add_row(entries_, least);
  }

  void add_moment(std::size_t i) {
    const flat_graph& g = graph_;
    const std::uint32_t k = moments_[i];
    std::vector<value> waits(g.num_operations, zero), held(g.num_tensors, zero);
    for (std::uint32_t o = 0; o < g.num_operations; ++o)
      if (is_later(i, o))
        waits[o] = one;
      else if (g.needed[o] && !has_run(i, o))
        waits[o] = rows_.add_column(0, 1, 0);
    for (std::uint32_t o = 0; o < g.num_operations; ++o)
      if (waits[o] != zero && g.needed[o])
        for (const std::uint32_t t : g.outputs[o])
          for (const std::uint32_t reader : g.consumers[t])
            if (g.needed[reader]) require({waits[reader]}, {waits[o]}, 0);
    memory& room = memories_.emplace_back();
    room.room = budget_ - g.workspace[k];
    for (const auto* lists : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*lists)[k]) {
        if (held[t] == one) continue;
        held[t] = one;
        room.room -= g.bytes[t];
      }
    fits_ = room.room >= 0;
    if (!fits_) return;
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      if (held[t] == one) continue;
      if (is_free(i, t)) {
        held[t] = one;
        continue;
      }
      bool may_be_made = false;
      for (const std::uint32_t p : g.producers[t]) may_be_made = may_be_made || waits[p] != one;
      if (!may_be_made) continue;
      held[t] = rows_.add_column(0, 1, 0);
      if (g.producers[t].size() == 1) require({}, {held[t], waits[g.producers[t][0]]}, -1);
      room.columns.push_back(held[t]);
      room.tensors.push_back(t);
      room.bytes.push_back(g.bytes[t]);
    }
    add_room_row(room);
    waits_.push_back(std::move(waits));
    held_.push_back(std::move(held));
  }

  /// The row that says that what is held fits. All that fits satisfies it also if all bytes are rounded down to
  /// multiples of a power of two, and if a tensor that does not fit alone counts as less than it is, but more than the
  /// free bytes. So all coefficients are exact.
  void add_room_row(const memory& m) {
    constexpr int digits = 52;  // digits of the free bytes; a double has 53
    const int shift = std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(m.room))) - digits);
    const std::int64_t room = m.room >> shift;
    const double scale = std::ldexp(1.0, 4 - std::ilogb(static_cast<double>(std::max<std::int64_t>(room, 1))));
    std::vector<sparse_entry> entries;
    for (std::size_t j = 0; j < m.columns.size(); ++j)
      entries.push_back(
          {m.columns[j], -scale * static_cast<double>(std::min(m.bytes[j] >> shift, std::int64_t{1} << digits))});
    rows_.add_row(entries, -scale * static_cast<double>(room));
  }

  /// Adds what the part from moment i to moment j runs.
  part add_part(std::size_t i, std::size_t j) {
    const flat_graph& g = graph_;
    const bool is_segment = j == i + 1;
    part x{std::vector<value>(g.num_operations, zero), std::vector<value>(g.num_operations, zero)};
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      if (!g.needed[o]) continue;
      const double cost = is_segment ? g.time[o] * unit_ : 0;
      const bool is_earlier = has_run(i, o);
      if (is_later(i, o)) {
        x.runs[o] = must_have_run(j, o) ? one : rows_.add_column(0, 1, 0);
      } else if (is_earlier && g.once[o]) {
        continue;
      } else if (is_earlier) {
        x.runs[o] = x.again[o] = rows_.add_column(0, 1, cost);
      } else {
        x.runs[o] = rows_.add_column(0, 1, 0);
        if (must_have_run(j, o)) require({x.runs[o]}, {waits_[i][o]}, 0);
        if (!g.once[o]) x.again[o] = rows_.add_column(0, 1, cost);
        require({x.again[o], waits_[i][o]}, {x.runs[o]}, 0);
      }
    }
    for (std::uint32_t o = 0; o < g.num_operations; ++o)
      if (x.runs[o] != zero)
        for (const std::uint32_t t : g.inputs[o])
          if (g.bytes[t] > 0)
            for (const std::uint32_t p : g.producers[t]) require({held_[i][t], x.runs[p]}, {x.runs[o]}, 0);
    const auto pass_on = [&](std::uint32_t t, value demand) {
      for (const std::uint32_t p : g.producers[t]) require({held_[i][t], x.runs[p]}, {demand}, 0);
    };
    if (j == moments_.size()) {
      for (const std::uint32_t t : g.final_outputs)
        if (g.bytes[t] > 0) pass_on(t, one);
    } else {
      for (std::uint32_t t = 0; t < g.num_tensors; ++t)
        if (!is_free(j, t) && held_[j][t] != zero && g.producers[t].size() == 1) pass_on(t, held_[j][t]);
    }
    return x;
  }

  /// Ties moment i to the others: an operation that has not run at a moment had not run before, and one that has run
  /// since ran in between.
  void tie_waiting(std::size_t i) {
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
      if (!graph_.needed[o]) continue;
      require({waits_[i][o]}, {waits_[i + 1][o]}, 0);
      require({segments_[i].runs[o], waits_[i + 1][o]}, {waits_[i][o]}, 0);
    }
  }

  /// A part runs what one of its segments runs, and runs again what one of them runs again.
  void tie_part(const part& x, std::size_t i, std::size_t span) {
    std::vector<value> some, again;
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
      if (!graph_.needed[o] || x.runs[o] == zero) continue;
      some.clear();
      again.clear();
      for (std::size_t k = i; k < i + span; ++k) {
        some.push_back(segments_[k].runs[o]);
        again.push_back(segments_[k].again[o]);
        require({x.runs[o]}, {some.back()}, 0);
      }
      require(some, {x.runs[o]}, 0);
      if (x.again[o] != zero && x.again[o] != x.runs[o]) require(again, {x.again[o]}, 0);
    }
  }

  const flat_graph& graph_;
  std::int64_t budget_;
  std::vector<std::uint32_t> moments_;
  double unit_;
  bool fits_ = true;
  bounded_dual_simplex rows_;
  std::vector<std::vector<std::uint8_t>> sides_;  // each operation's sides, by moments
  std::vector<std::vector<value>> waits_, held_;  // values of each operation, and of each tensor, by moments
  std::vector<memory> memories_;                  // each moment's memory
  std::vector<part> segments_;
  std::vector<sparse_entry> entries_;
};

}  // namespace REMAT_NAMESPACE::detail
