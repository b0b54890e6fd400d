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

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// A coefficient of a sparse row or column.
struct sparse_entry {
  std::uint32_t index;
  double value;
};

/// A vector with a list of what may differ from 0.
class sparse_vector {
 public:
  void reset(std::uint32_t size) {
    value_.assign(size, 0);
    is_listed_.assign(size, 0);
    list_.clear();
  }
  void grow(std::uint32_t size) {
    value_.resize(size, 0);
    is_listed_.resize(size, 0);
  }
  void clear() {
    for (const std::uint32_t i : list_) {
      value_[i] = 0;
      is_listed_[i] = 0;
    }
    list_.clear();
  }
  [[nodiscard]] double operator[](std::uint32_t i) const { return value_[i]; }
  [[nodiscard]] const std::vector<std::uint32_t>& list() const noexcept { return list_; }
  void add(std::uint32_t i, double x) {
    if (!is_listed_[i]) {
      is_listed_[i] = 1;
      list_.push_back(i);
    }
    value_[i] += x;
  }
  void set(std::uint32_t i, double x) { add(i, x - value_[i]); }

 private:
  std::vector<double> value_;
  std::vector<std::uint8_t> is_listed_;
  std::vector<std::uint32_t> list_;
};

/// A set of small numbers, taken out in order; a number that is put in must lie ahead of the last one taken out.
class number_queue {
 public:
  void reset(std::uint32_t size) { words_.assign((size + 63) / 64, 0); }
  void put(std::uint32_t k) { words_[k / 64] |= std::uint64_t{1} << (k % 64); }
  template <class Visit>
  void ascend(Visit&& visit) {
    for (std::size_t w = 0; w < words_.size(); ++w)
      while (words_[w] != 0) {
        const auto bit = static_cast<std::uint32_t>(std::countr_zero(words_[w]));
        words_[w] &= words_[w] - 1;
        visit(static_cast<std::uint32_t>(w) * 64 + bit);
      }
  }
  template <class Visit>
  void descend(Visit&& visit) {
    for (std::size_t w = words_.size(); w-- > 0;)
      while (words_[w] != 0) {
        const auto bit = 63 - static_cast<std::uint32_t>(std::countl_zero(words_[w]));
        words_[w] &= ~(std::uint64_t{1} << bit);
        visit(static_cast<std::uint32_t>(w) * 64 + bit);
      }
  }

 private:
  std::vector<std::uint64_t> words_;
};

/// The factors L · U of a sparse square matrix whose columns are exchanged one by one: a basis of the simplex method.
/// Columns stand at *positions*.
///
/// Rows and columns with one entry left are pivots first, which leaves little in the bases of networks; of the others
/// the pivot is in a shortest row, in its shortest column whose entry is not small beside the row's largest. An
/// exchange adds a factor (product form of the inverse). To solve takes time by what is not 0. Nothing is guaranteed
/// about rounding: what follows from a solution must be checked.
class sparse_lu {
 public:
  /// Factors the matrix whose column at position p is `column_of(p)`, a range of `sparse_entry`. Returns the positions
  /// that depend on others, paired with rows without a pivot: if there are any, nothing is factored. Asks `stop` at
  /// each pivot that may leave new entries; if it returns true, nothing is factored, and `is_stopped` says so.
  template <class Columns, class Stop>
  std::vector<std::pair<std::uint32_t, std::uint32_t>> factor(std::uint32_t size, Columns&& column_of, Stop&& stop) {
    load(size, column_of);
    peel();
    is_stopped_ = steps_.size() < size_ && !eliminate_rest(stop);
    if (is_stopped_) return {};
    if (steps_.size() < size_) return unpaired();
    finish();
    return {};
  }

  /// True if the last call of `factor` was stopped.
  [[nodiscard]] bool is_stopped() const noexcept { return is_stopped_; }
  /// The exchanges since `factor`, and the entries of their factors.
  [[nodiscard]] std::size_t exchanges() const noexcept { return exchanges_.size(); }
  [[nodiscard]] std::size_t entries() const noexcept { return upper_.size() + lower_.size() + later_.size(); }
  [[nodiscard]] std::size_t exchange_entries() const noexcept { return later_.size(); }
  /// Operations on entries so far.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

  /// Solves B x = b. `v` is b by rows before, and x by positions afterwards.
  void solve(sparse_vector& v) {
    if (!lower_steps_.empty()) {
      for (const std::uint32_t r : v.list())
        if (r < size_ && lower_of_row_[r] != none) queue_.put(lower_of_row_[r]);
      queue_.ascend([&](std::uint32_t k) {
        const step& s = lower_steps_[k];
        const double x = v[s.row];
        if (x == 0) return;
        for (std::uint32_t i = s.begin; i < s.end; ++i) {
          const sparse_entry& e = lower_[i];
          v.add(e.index, -e.value * x);
          if (lower_of_row_[e.index] != none) queue_.put(lower_of_row_[e.index]);
        }
        work_ += s.end - s.begin;
      });
    }
    for (const std::uint32_t r : v.list())
      if (r < size_)
        queue_.put(step_of_row_[r]);
      else
        solution_.add(r, -v[r]);
    queue_.descend([&](std::uint32_t k) {
      const step& s = steps_[k];
      const double x = v[s.row] / s.value;
      if (std::abs(x) < negligible) return;
      solution_.add(s.position, x);
      const std::uint32_t end = upper_column_[s.position + 1];
      for (std::uint32_t i = upper_column_[s.position]; i < end; ++i) {
        const sparse_entry& e = upper_by_column_[i];
        v.add(e.index, -e.value * x);
        queue_.put(step_of_row_[e.index]);
      }
      work_ += 1 + end - upper_column_[s.position];
    });
    v.clear();
    std::swap(v, solution_);
    for (const step& s : exchanges_) {
      if (s.value == 0) {
        double sum = 0;
        for (std::uint32_t i = s.begin; i < s.end; ++i) sum += later_[i].value * v[later_[i].index];
        if (sum != 0) v.add(s.position, sum);
        work_ += s.end - s.begin;
        continue;
      }
      if (v[s.position] == 0) continue;
      const double x = v[s.position] / s.value;
      v.set(s.position, x);
      for (std::uint32_t i = s.begin; i < s.end; ++i) v.add(later_[i].index, -later_[i].value * x);
      work_ += s.end - s.begin;
    }
    work_ += exchanges_.size() + v.list().size() + size_ / 64;
  }

  /// Solves yᵀ B = cᵀ. `v` is c by positions before, and y by rows afterwards.
  void solve_transposed(sparse_vector& v) {
    for (std::size_t k = exchanges_.size(); k-- > 0;) {
      const step& s = exchanges_[k];
      double x = v[s.position];
      if (s.value == 0) {
        if (x != 0)
          for (std::uint32_t i = s.begin; i < s.end; ++i) v.add(later_[i].index, later_[i].value * x);
        continue;
      }
      for (std::uint32_t i = s.begin; i < s.end; ++i) x -= later_[i].value * v[later_[i].index];
      if (x != 0 || v[s.position] != 0) v.set(s.position, x / s.value);
    }
    work_ += later_.size() + exchanges_.size();
    for (const std::uint32_t p : v.list())
      if (p < size_)
        queue_.put(step_of_position_[p]);
      else
        solution_.add(p, -v[p]);
    queue_.ascend([&](std::uint32_t k) {
      const step& s = steps_[k];
      const double x = v[s.position] / s.value;
      if (std::abs(x) < negligible) return;
      solution_.add(s.row, x);
      for (std::uint32_t i = s.begin; i < s.end; ++i) {
        v.add(upper_[i].index, -upper_[i].value * x);
        queue_.put(step_of_position_[upper_[i].index]);
      }
      work_ += 1 + s.end - s.begin;
    });
    v.clear();
    std::swap(v, solution_);
    if (!lower_steps_.empty()) {
      for (const std::uint32_t r : v.list())
        if (r < size_) queue_.put(step_of_row_[r]);
      queue_.descend([&](std::uint32_t k) {
        const std::uint32_t r = steps_[k].row;
        const double x = v[r];
        if (x == 0) return;
        const std::uint32_t end = lower_row_[r + 1];
        for (std::uint32_t i = lower_row_[r]; i < end; ++i) {
          const sparse_entry& e = lower_by_row_[i];
          v.add(e.index, -e.value * x);
          queue_.put(step_of_row_[e.index]);
        }
        work_ += 1 + end - lower_row_[r];
      });
    }
    work_ += v.list().size() + size_ / 64;
  }

  /// Adds a row and a column behind all others. The row has `entries`, by positions, and the column only −1 in the row.
  void add_slack(const std::vector<sparse_entry>& entries) {
    step s{0, total_size_++, 0, static_cast<std::uint32_t>(later_.size()), 0};
    later_.insert(later_.end(), entries.begin(), entries.end());
    s.end = static_cast<std::uint32_t>(later_.size());
    exchanges_.push_back(s);
    solution_.grow(total_size_);
  }

  /// Exchanges the column at `position` for one of which `direction` is the solution of `solve`.
  void exchange(std::uint32_t position, const sparse_vector& direction) {
    step s{0, position, direction[position], static_cast<std::uint32_t>(later_.size()), 0};
    for (const std::uint32_t p : direction.list())
      if (p != position && std::abs(direction[p]) > negligible) later_.push_back({p, direction[p]});
    s.end = static_cast<std::uint32_t>(later_.size());
    exchanges_.push_back(s);
  }

 private:
  static constexpr double negligible = 1e-14, least_pivot = 1e-9, threshold = 0.1;

  struct step {
    std::uint32_t row, position;
    double value;              // the pivot's value; 0 for an added row
    std::uint32_t begin, end;  // the range of its entries
  };

  template <class Columns>
  void load(std::uint32_t size, Columns&& column_of) {
    size_ = total_size_ = size;
    for (auto* list : {&upper_, &lower_, &later_}) list->clear();
    for (auto* list : {&steps_, &lower_steps_, &exchanges_}) list->clear();
    for (auto* list : {&column_begin_, &row_begin_, &column_size_, &row_size_}) list->assign(size + 1, 0);
    is_row_done_.assign(size, 0);
    is_column_done_.assign(size, 0);
    by_column_.clear();
    for (std::uint32_t p = 0; p < size; ++p) {
      for (const sparse_entry& e : column_of(p)) {
        by_column_.push_back(e);
        ++row_size_[e.index];
      }
      column_begin_[p + 1] = static_cast<std::uint32_t>(by_column_.size());
      column_size_[p] = column_begin_[p + 1] - column_begin_[p];
    }
    for (std::uint32_t r = 0; r < size; ++r) row_begin_[r + 1] = row_begin_[r] + row_size_[r];
    by_row_.resize(by_column_.size());
    next_.assign(row_begin_.begin(), row_begin_.end() - 1);
    for (std::uint32_t p = 0; p < size; ++p)
      for (std::uint32_t i = column_begin_[p]; i < column_begin_[p + 1]; ++i)
        by_row_[next_[by_column_[i].index]++] = {p, by_column_[i].value};
  }

  /// Takes columns and rows with one entry as pivots, as long as there are any.
  void peel() {
    columns_with_one_.clear();
    rows_with_one_.clear();
    for (std::uint32_t i = 0; i < size_; ++i) {
      if (column_size_[i] == 1) columns_with_one_.push_back(i);
      if (row_size_[i] == 1) rows_with_one_.push_back(i);
    }
    while (!columns_with_one_.empty() || !rows_with_one_.empty()) {
      if (!columns_with_one_.empty()) {
        const std::uint32_t p = columns_with_one_.back();
        columns_with_one_.pop_back();
        if (!is_column_done_[p] && column_size_[p] == 1) peel_column(p);
      } else {
        const std::uint32_t r = rows_with_one_.back();
        rows_with_one_.pop_back();
        if (!is_row_done_[r] && row_size_[r] == 1) peel_row(r);
      }
    }
  }
  void peel_column(std::uint32_t p) {
    std::uint32_t i = column_begin_[p];
    while (is_row_done_[by_column_[i].index]) ++i;
    const auto [r, value] = by_column_[i];
    if (std::abs(value) < least_pivot) return;
    step s{r, p, value, static_cast<std::uint32_t>(upper_.size()), 0};
    is_row_done_[r] = is_column_done_[p] = 1;
    for (std::uint32_t k = row_begin_[r]; k < row_begin_[r + 1]; ++k) {
      const sparse_entry& e = by_row_[k];
      if (is_column_done_[e.index]) continue;
      upper_.push_back(e);
      if (--column_size_[e.index] == 1) columns_with_one_.push_back(e.index);
    }
    s.end = static_cast<std::uint32_t>(upper_.size());
    steps_.push_back(s);
  }
  void peel_row(std::uint32_t r) {
    std::uint32_t k = row_begin_[r];
    while (is_column_done_[by_row_[k].index]) ++k;
    const auto [p, value] = by_row_[k];
    if (std::abs(value) < least_pivot) return;
    const auto end = static_cast<std::uint32_t>(upper_.size());
    steps_.push_back({r, p, value, end, end});
    is_row_done_[r] = is_column_done_[p] = 1;
    step l{r, p, value, static_cast<std::uint32_t>(lower_.size()), 0};
    for (std::uint32_t i = column_begin_[p]; i < column_begin_[p + 1]; ++i) {
      const sparse_entry& e = by_column_[i];
      if (is_row_done_[e.index]) continue;
      lower_.push_back({e.index, e.value / value});
      if (--row_size_[e.index] == 1) rows_with_one_.push_back(e.index);
    }
    l.end = static_cast<std::uint32_t>(lower_.size());
    if (l.end > l.begin) lower_steps_.push_back(l);
  }

  /// Eliminates what is left, with new entries. Returns false if it is stopped.
  template <class Stop>
  [[nodiscard]] bool eliminate_rest(Stop&& stop) {
    if (rows_.size() < size_) {
      rows_.resize(size_);
      columns_.resize(size_);
    }
    place_.assign(size_, none);
    columns_with_one_.clear();
    rows_with_one_.clear();
    rest_.clear();
    for (std::uint32_t r = 0; r < size_; ++r) {
      if (is_row_done_[r]) continue;
      rest_.push_back(r);
      rows_[r].clear();
      for (std::uint32_t k = row_begin_[r]; k < row_begin_[r + 1]; ++k)
        if (!is_column_done_[by_row_[k].index]) rows_[r].push_back(by_row_[k]);
    }
    for (std::uint32_t p = 0; p < size_; ++p) {
      if (is_column_done_[p]) continue;
      columns_[p].clear();
      for (std::uint32_t i = column_begin_[p]; i < column_begin_[p + 1]; ++i)
        if (!is_row_done_[by_column_[i].index]) columns_[p].push_back(by_column_[i].index);
      column_size_[p] = static_cast<std::uint32_t>(columns_[p].size());
    }
    while (!stop()) {
      if (!columns_with_one_.empty()) {
        const std::uint32_t p = columns_with_one_.back();
        columns_with_one_.pop_back();
        if (column_size_[p] == 1 && !is_column_done_[p]) pivot_on_column(p);
      } else if (!rows_with_one_.empty()) {
        const std::uint32_t r = rows_with_one_.back();
        rows_with_one_.pop_back();
        if (rows_[r].size() == 1 && !is_row_done_[r]) pivot(r, 0);
      } else if (!pivot_in_shortest_row()) {
        return true;
      }
    }
    return false;
  }

  void pivot_on_column(std::uint32_t p) {
    for (const std::uint32_t r : columns_[p]) {
      if (is_row_done_[r]) continue;
      for (std::size_t i = 0; i < rows_[r].size(); ++i)
        if (rows_[r][i].index == p) {
          pivot(r, i);
          return;
        }
    }
  }

  /// Takes the `at`-th entry of row r as pivot, and eliminates its column from the other rows.
  bool pivot(std::uint32_t r, std::size_t at) {
    std::vector<sparse_entry>& row = rows_[r];
    const sparse_entry x = row[at];
    if (std::abs(x.value) < least_pivot) return false;
    row[at] = row.back();
    row.pop_back();
    is_row_done_[r] = is_column_done_[x.index] = 1;
    step s{r, x.index, x.value, static_cast<std::uint32_t>(upper_.size()), 0};
    for (const sparse_entry& e : row) {
      upper_.push_back(e);
      if (--column_size_[e.index] == 1) columns_with_one_.push_back(e.index);
    }
    s.end = static_cast<std::uint32_t>(upper_.size());
    steps_.push_back(s);
    if (column_size_[x.index] <= 1) return true;
    step l{r, x.index, x.value, static_cast<std::uint32_t>(lower_.size()), 0};
    for (const std::uint32_t i : columns_[x.index])
      if (!is_row_done_[i]) eliminate(i, row, x);
    l.end = static_cast<std::uint32_t>(lower_.size());
    if (l.end > l.begin) lower_steps_.push_back(l);
    return true;
  }

  /// Subtracts a multiple of the pivot row, without its pivot, from row i.
  void eliminate(std::uint32_t i, const std::vector<sparse_entry>& row, sparse_entry pivot) {
    std::vector<sparse_entry>& other = rows_[i];
    std::size_t at = 0;
    while (at < other.size() && other[at].index != pivot.index) ++at;
    work_ += other.size() + row.size();
    if (at == other.size()) return;  // it has cancelled out
    const double factor = other[at].value / pivot.value;
    other[at] = other.back();
    other.pop_back();
    lower_.push_back({i, factor});
    if (!row.empty()) {
      for (std::uint32_t k = 0; k < other.size(); ++k) place_[other[k].index] = k;
      for (const sparse_entry& e : row) {
        if (place_[e.index] != none) {
          other[place_[e.index]].value -= factor * e.value;
        } else {
          other.push_back({e.index, -factor * e.value});
          columns_[e.index].push_back(i);
          ++column_size_[e.index];
        }
      }
      for (const sparse_entry& e : other) place_[e.index] = none;
      for (std::size_t k = other.size(); k-- > 0;)
        if (std::abs(other[k].value) < negligible) {
          if (--column_size_[other[k].index] == 1) columns_with_one_.push_back(other[k].index);
          remove_row(other[k].index, i);
          other[k] = other.back();
          other.pop_back();
        }
    }
    if (other.size() == 1) rows_with_one_.push_back(i);
  }
  void remove_row(std::uint32_t p, std::uint32_t row) {
    std::vector<std::uint32_t>& list = columns_[p];
    list.erase(std::find(list.begin(), list.end(), row));
  }

  bool pivot_in_shortest_row() {
    std::uint32_t shortest = none;
    for (std::size_t k = 0; k < rest_.size();) {
      const std::uint32_t r = rest_[k];
      if (is_row_done_[r] || rows_[r].empty()) {
        rest_[k] = rest_.back();
        rest_.pop_back();
        continue;
      }
      if (shortest == none || rows_[r].size() < rows_[shortest].size()) shortest = r;
      ++k;
    }
    work_ += rest_.size();
    if (shortest == none) return false;
    const std::vector<sparse_entry>& row = rows_[shortest];
    double largest = 0;
    for (const sparse_entry& e : row) largest = std::max(largest, std::abs(e.value));
    std::size_t at = row.size();
    for (std::size_t i = 0; i < row.size(); ++i)
      if (std::abs(row[i].value) >= threshold * largest &&
          (at == row.size() || column_size_[row[i].index] < column_size_[row[at].index]))
        at = i;
    if (!pivot(shortest, at)) {  // too small everywhere: the row has no pivot
      for (const sparse_entry& e : row) {
        --column_size_[e.index];
        remove_row(e.index, shortest);
      }
      rows_[shortest].clear();
    }
    return true;
  }

  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::uint32_t>> unpaired() const {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
    std::uint32_t r = 0;
    for (std::uint32_t p = 0; p < size_; ++p) {
      if (is_column_done_[p]) continue;
      while (is_row_done_[r]) ++r;
      pairs.push_back({p, r++});
    }
    return pairs;
  }

  void finish() {
    upper_column_.assign(size_ + 1, 0);
    for (const sparse_entry& e : upper_) ++upper_column_[e.index + 1];
    for (std::uint32_t p = 0; p < size_; ++p) upper_column_[p + 1] += upper_column_[p];
    upper_by_column_.resize(upper_.size());
    next_.assign(upper_column_.begin(), upper_column_.end() - 1);
    step_of_row_.resize(size_);
    step_of_position_.resize(size_);
    for (std::uint32_t k = 0; k < size_; ++k) {
      const step& s = steps_[k];
      step_of_row_[s.row] = step_of_position_[s.position] = k;
      for (std::uint32_t i = s.begin; i < s.end; ++i)
        upper_by_column_[next_[upper_[i].index]++] = {s.row, upper_[i].value};
    }
    lower_row_.assign(size_ + 1, 0);
    lower_of_row_.assign(size_, none);
    for (const sparse_entry& e : lower_) ++lower_row_[e.index + 1];
    for (std::uint32_t r = 0; r < size_; ++r) lower_row_[r + 1] += lower_row_[r];
    lower_by_row_.resize(lower_.size());
    next_.assign(lower_row_.begin(), lower_row_.end() - 1);
    for (std::uint32_t k = 0; k < lower_steps_.size(); ++k) {
      const step& s = lower_steps_[k];
      lower_of_row_[s.row] = k;
      for (std::uint32_t i = s.begin; i < s.end; ++i)
        lower_by_row_[next_[lower_[i].index]++] = {s.row, lower_[i].value};
    }
    queue_.reset(size_);
    solution_.reset(size_);
    work_ += 3 * size_ + entries();
  }

  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t size_ = 0, total_size_ = 0;            // size of what was factored, and that with the rows added since
  std::vector<step> steps_, lower_steps_, exchanges_;  // steps in the order of the pivots
  std::vector<sparse_entry> upper_, upper_by_column_, lower_, lower_by_row_, later_;
  std::vector<std::uint32_t> upper_column_, lower_row_, lower_of_row_, step_of_row_, step_of_position_, next_;
  number_queue queue_;
  sparse_vector solution_;
  std::uint64_t work_ = 0;
  bool is_stopped_ = false;
  // While it factors:
  std::vector<std::vector<sparse_entry>> rows_;      // the rest of each row, by position
  std::vector<std::vector<std::uint32_t>> columns_;  // the rows with an entry, among others that are done
  std::vector<std::uint32_t> column_begin_, row_begin_, column_size_, row_size_, place_, columns_with_one_,
      rows_with_one_, rest_;
  std::vector<sparse_entry> by_column_, by_row_;
  std::vector<std::uint8_t> is_row_done_, is_column_done_;
};

}  // namespace REMAT_NAMESPACE::detail
