// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace REMAT_NAMESPACE::detail {

/// A coefficient of a sparse row or column.
struct sparse_entry {
  std::uint32_t index;
  double value;
};

/// The factors L · U of a sparse square matrix whose columns are exchanged one by one: a basis of the simplex method.
/// Columns stand at *positions*.
///
/// Rows and columns with one entry left are pivots first, which leaves little in the bases of networks; of the others
/// the pivot is in a shortest row, in its shortest column whose entry is not small beside the row's largest. An
/// exchange adds a factor (product form of the inverse). Nothing is guaranteed about rounding: what follows from a
/// solution must be checked.
class basis_factors {
 public:
  /// Factors the matrix whose column at position p is `column_of(p)`, a range of `sparse_entry`. Returns the positions
  /// that depend on others, paired with rows without a pivot: if there are any, nothing is factored.
  template <class Columns>
  std::vector<std::pair<std::uint32_t, std::uint32_t>> factor(std::uint32_t size, Columns&& column_of) {
    load(size, column_of);
    for (;;) {
      if (!columns_with_one_.empty()) {
        const std::uint32_t p = columns_with_one_.back();
        columns_with_one_.pop_back();
        if (column_size_[p] == 1) pivot_on_column(p);
      } else if (!rows_with_one_.empty()) {
        const std::uint32_t r = rows_with_one_.back();
        rows_with_one_.pop_back();
        if (rows_[r].size() == 1 && !is_row_done_[r]) pivot(r, 0);
      } else if (!pivot_in_shortest_row()) {
        break;
      }
    }
    if (steps_.size() < size_) return unpaired();
    finish();
    return {};
  }

  /// The exchanges since `factor`, and the entries of their factors.
  [[nodiscard]] std::size_t exchanges() const noexcept { return exchanges_.size(); }
  [[nodiscard]] std::size_t entries() const noexcept { return upper_.size() + lower_.size() + later_.size(); }

  /// Solves B x = b. `v` is b by rows before, and x by positions afterwards.
  void solve(std::vector<double>& v) {
    for (const step& s : lower_steps_) {
      const double x = v[s.row];
      if (x == 0) continue;
      for (std::uint32_t i = s.begin; i < s.end; ++i) v[lower_[i].index] -= lower_[i].value * x;
    }
    solution_.assign(size_, 0);
    for (std::size_t k = size_; k-- > 0;) {
      const step& s = steps_[k];
      const double y = v[s.row];
      if (y == 0) continue;
      const double x = y / s.value;
      if (std::abs(x) < negligible) continue;
      solution_[s.position] = x;
      for (std::uint32_t i = upper_column_[s.position]; i < upper_column_[s.position + 1]; ++i)
        v[upper_by_column_[i].index] -= upper_by_column_[i].value * x;
    }
    v.swap(solution_);
    for (const step& s : exchanges_) {
      double& x = v[s.position];
      if (x == 0) continue;
      x /= s.value;
      for (std::uint32_t i = s.begin; i < s.end; ++i) v[later_[i].index] -= later_[i].value * x;
    }
  }

  /// Solves yᵀ B = cᵀ. `v` is c by positions before, and y by rows afterwards.
  void solve_transposed(std::vector<double>& v) {
    for (std::size_t k = exchanges_.size(); k-- > 0;) {
      const step& s = exchanges_[k];
      double x = v[s.position];
      for (std::uint32_t i = s.begin; i < s.end; ++i) x -= later_[i].value * v[later_[i].index];
      v[s.position] = x / s.value;
    }
    solution_.assign(size_, 0);
    for (const step& s : steps_) {
      const double y = v[s.position];
      if (y == 0) continue;
      const double x = y / s.value;
      if (std::abs(x) < negligible) continue;
      solution_[s.row] = x;
      for (std::uint32_t i = s.begin; i < s.end; ++i) v[upper_[i].index] -= upper_[i].value * x;
    }
    v.swap(solution_);
    for (std::size_t k = lower_steps_.size(); k-- > 0;) {
      const step& s = lower_steps_[k];
      double x = v[s.row];
      for (std::uint32_t i = s.begin; i < s.end; ++i) x -= lower_[i].value * v[lower_[i].index];
      v[s.row] = x;
    }
  }

  /// Exchanges the column at `position` for one of which `direction` is the solution of `solve`.
  void exchange(std::uint32_t position, const std::vector<double>& direction) {
    step s{0, position, direction[position], static_cast<std::uint32_t>(later_.size()), 0};
    for (std::uint32_t p = 0; p < size_; ++p)
      if (p != position && std::abs(direction[p]) > negligible) later_.push_back({p, direction[p]});
    s.end = static_cast<std::uint32_t>(later_.size());
    exchanges_.push_back(s);
  }

 private:
  static constexpr double negligible = 1e-14, least_pivot = 1e-9, threshold = 0.1;

  struct step {
    std::uint32_t row, position;
    double value;              // of the pivot
    std::uint32_t begin, end;  // of its entries
  };

  template <class Columns>
  void load(std::uint32_t size, Columns&& column_of) {
    size_ = size;
    for (auto* list : {&upper_, &lower_, &later_}) list->clear();
    for (auto* list : {&steps_, &lower_steps_, &exchanges_}) list->clear();
    if (rows_.size() < size) {
      rows_.resize(size);
      columns_.resize(size);
    }
    for (std::uint32_t i = 0; i < size; ++i) {
      rows_[i].clear();
      columns_[i].clear();
    }
    column_size_.assign(size, 0);
    is_row_done_.assign(size, 0);
    is_column_done_.assign(size, 0);
    place_.assign(size, none);
    columns_with_one_.clear();
    rows_with_one_.clear();
    for (std::uint32_t p = 0; p < size; ++p) {
      for (const sparse_entry& x : column_of(p)) {
        rows_[x.index].push_back({p, x.value});
        columns_[p].push_back(x.index);
        ++column_size_[p];
      }
      if (column_size_[p] == 1) columns_with_one_.push_back(p);
    }
    for (std::uint32_t r = 0; r < size; ++r)
      if (rows_[r].size() == 1) rows_with_one_.push_back(r);
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
    for (std::uint32_t r = 0; r < size_; ++r)
      if (!is_row_done_[r] && !rows_[r].empty() && (shortest == none || rows_[r].size() < rows_[shortest].size()))
        shortest = r;
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
    std::vector<std::uint32_t> next(upper_column_.begin(), upper_column_.end() - 1);
    for (const step& s : steps_)
      for (std::uint32_t i = s.begin; i < s.end; ++i)
        upper_by_column_[next[upper_[i].index]++] = {s.row, upper_[i].value};
  }

  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t size_ = 0;
  std::vector<step> steps_, lower_steps_, exchanges_;  // in the order of the pivots
  std::vector<sparse_entry> upper_, upper_by_column_, lower_, later_;
  std::vector<std::uint32_t> upper_column_;
  std::vector<double> solution_;
  // While it factors:
  std::vector<std::vector<sparse_entry>> rows_;      // what is left of each row, by position
  std::vector<std::vector<std::uint32_t>> columns_;  // the rows with an entry, among others that are done
  std::vector<std::uint32_t> column_size_, place_, columns_with_one_, rows_with_one_;
  std::vector<std::uint8_t> is_row_done_, is_column_done_;
};

}  // namespace REMAT_NAMESPACE::detail
