// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "remat/mip/detail/sparse_lu.hpp"

namespace REMAT_NAMESPACE::detail {

/// A linear program in columns with finite bounds: minimise cost · x, where lower ≤ x ≤ upper and a · x ≥ b for each
/// row. Solved by the dual simplex method, again and again as rows are added and bounds change. \cite lemke1954dual
///
/// Any bound is a feasible start for the duals, since each column has two finite bounds. So the last basis serves after
/// every change. Rows take part only from when they are violated, and leave when `drop_slack_rows` is called. The
/// row is chosen by reference weights (Devex); the ratio test passes columns that go to their other bound, and allows
/// small errors.
/// Costs may be raised a little at random against ties.
///
/// The method calculates in floating point and promises nothing. `safe_bound` does: whatever the multipliers are, it
/// never exceeds the least cost of the program with the coefficients as they are stored.
/// \cite neumaier2004safe
class bounded_dual_simplex {
 public:
  enum class outcome : std::uint8_t {
    optimal,  ///< no row is violated by more than the tolerance
    beyond,   ///< the safe bound has reached the cutoff; it is infinite if there is proven to be no solution
    stopped,  ///< `stop`, the limit of work or that of iterations ended it
    failed    ///< rounding errors were too large to go on, or the method made no headway
  };

  bounded_dual_simplex() = default;
  /// Costs are raised by up to `most_raise`. A proof that there is no solution, which needs no cutoff then, holds for
  /// rows that are broken by `broken`, too: what breaks a row by rounding alone is not excluded. Positive.
  bounded_dual_simplex(double most_raise, double broken) : most_raise_(most_raise), broken_(broken) {}

  /// Adds a column. Costs of all columns should be such that the sum of their sizes is about 1000.
  std::uint32_t add_column(double lower, double upper, double cost) {
    const auto c = static_cast<std::uint32_t>(cost_.size());
    cost_.push_back(cost);
    lower_.push_back(lower);
    upper_.push_back(upper);
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    raised_.push_back(cost + most_raise_ * (0.5 + 0.5 * static_cast<double>(random_ >> 11) * 0x1p-53));
    columns_.emplace_back();
    reduced_.push_back(raised_.back());
    position_.push_back(none);
    is_at_upper_.push_back(std::abs(upper) < std::abs(lower));
    return c;
  }
  /// Adds a row: the sum of `entries`, each of another column, is at least `least`.
  std::uint32_t add_row(const std::vector<sparse_entry>& entries, double least) {
    row_entries_.insert(row_entries_.end(), entries.begin(), entries.end());
    row_end_.push_back(row_entries_.size());
    least_.push_back(least);
    place_.push_back(none);
    return static_cast<std::uint32_t>(least_.size() - 1);
  }
  [[nodiscard]] std::size_t num_columns() const noexcept { return cost_.size(); }
  [[nodiscard]] std::size_t num_rows() const noexcept { return least_.size(); }
  [[nodiscard]] std::size_t active_rows() const noexcept { return active_.size(); }
  [[nodiscard]] double lower(std::uint32_t c) const { return lower_[c]; }
  [[nodiscard]] double upper(std::uint32_t c) const { return upper_[c]; }
  void set_bounds(std::uint32_t c, double lower, double upper) {
    lower_[c] = lower;
    upper_[c] = upper;
    are_values_current_ = false;
  }

  /// Operations on coefficients so far. After `limit` of them `solve` stops.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_ + factors_.work(); }
  void limit_work(std::uint64_t limit) noexcept { work_limit_ = limit; }
  [[nodiscard]] bool is_out_of_work() const noexcept { return work() >= work_limit_; }

  /// Solves the program, or ends once the safe bound is `cutoff`, or after `most_iterations`. Polls `stop` every
  /// `poll_stride` operations on coefficients, also across calls, so many short solves poll as often as a long one, and
  /// the limit of work every few iterations, so that small limits make headway, too. A solve that takes many times as
  /// many iterations as the program has rows and columns has failed.
  outcome solve(double cutoff, const std::function<bool()>& stop,
                std::uint64_t most_iterations = std::numeric_limits<std::uint64_t>::max()) {
    cutoff_ = cutoff;
    last_iteration_ = most_iterations < std::numeric_limits<std::uint64_t>::max() - iterations_
                          ? iterations_ + most_iterations
                          : std::numeric_limits<std::uint64_t>::max();
    stop_ = &stop;
    hopeless_iteration_ = iterations_ + 1000 + 20 * (cost_.size() + least_.size());
    if (is_asked_to_stop() || (!is_factored_ && !refactor())) return stop_at_once();
    for (;;) {
      const outcome end = iterate();
      if (end != outcome::optimal) return end;
      if (!activate_violated()) {
        find_safe_bound();
        return safe_bound_ >= cutoff_ ? outcome::beyond : outcome::optimal;
      }
    }
  }

  /// The value of column c in the last `solve`, unless it was stopped.
  [[nodiscard]] double value(std::uint32_t c) const {
    if (position_[c] == none) return is_at_upper_[c] ? upper_[c] : lower_[c];
    return std::clamp(basic_value_[position_[c]], lower_[c], upper_[c]);
  }
  /// A proven bound: of the last `solve`.
  [[nodiscard]] double safe_bound() const noexcept { return safe_bound_; }
  /// The least by which the safe bound rises if the column moves from its cheaper bound to the other one: positive if
  /// the lower bound is the cheaper one, negative if the upper one is.
  [[nodiscard]] double safe_reduced_cost(std::uint32_t c) const {
    const double d = exact_reduced_[c], e = reduced_error_[c];
    return d > e ? d - e : d < -e ? d + e : 0.0;
  }

  /// Rows that are not tight leave the basis, and the matrix. They come back when they are violated. Values are known
  /// again after the next `solve`.
  void drop_slack_rows() {
    std::vector<std::uint32_t> kept;
    const auto n = static_cast<std::uint32_t>(cost_.size());
    std::vector<std::uint32_t> new_basis;
    for (std::uint32_t i = 0; i < active_.size(); ++i)
      if (slack_position_[i] != none) {
        place_[active_[i]] = none;
      } else {
        place_[active_[i]] = static_cast<std::uint32_t>(kept.size());
        kept.push_back(active_[i]);
      }
    for (const std::uint32_t v : basis_)
      if (v < n) new_basis.push_back(v);
    active_ = std::move(kept);
    basis_ = std::move(new_basis);
    const std::size_t m = active_.size();
    slack_position_.assign(m, none);
    slack_reduced_.assign(m, 0);
    weight_.assign(m, 1);
    basic_value_.assign(m, 0);
    for (std::uint32_t p = 0; p < m; ++p) position_[basis_[p]] = p;
    for (auto& c : columns_) c.clear();
    for (std::uint32_t i = 0; i < m; ++i) add_to_columns(i);
    is_factored_ = false;
  }

  /// Forgets the rows from number `first` on that take no part now. The others behind `first` get new numbers.
  void forget_inactive_rows(std::uint32_t first) {
    std::uint32_t kept = first;
    std::size_t begin = row_begin(first), end = begin;
    for (std::uint32_t r = first; r < least_.size(); ++r) {
      const std::size_t next = row_end_[r];
      if (place_[r] != none) {
        for (std::size_t k = begin; k < next; ++k) row_entries_[end++] = row_entries_[k];
        row_end_[kept] = end;
        least_[kept] = least_[r];
        place_[kept] = place_[r];
        active_[place_[kept]] = kept;
        ++kept;
      }
      begin = next;
    }
    row_entries_.resize(end);
    row_end_.resize(kept);
    least_.resize(kept);
    place_.resize(kept);
  }

  /// Checks `multipliers`, one for each row, as they are: the safe bound that they prove. For tests.
  [[nodiscard]] double bound_of(const std::vector<double>& multipliers) {
    find_safe_bound_of([&](auto&& visit) {
      for (std::uint32_t r = 0; r < least_.size(); ++r) visit(r, multipliers[r]);
    });
    return safe_bound_;
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr double row_tolerance = 1e-7, dual_tolerance = 1e-9, least_alpha = 1e-9, least_pivot = 1e-7;
  static constexpr std::size_t most_exchanges = 150;
  static constexpr int most_failures = 12;
  static constexpr std::uint64_t poll_stride = std::uint64_t{1} << 16;

  /// True if `stop` says so, which is asked every `poll_stride` operations.
  [[nodiscard]] bool is_asked_to_stop() {
    if (work() - polled_at_ < poll_stride) return false;
    polled_at_ = work();
    return *stop_ && (*stop_)();
  }
  /// Ends a solve that has no factors of its own basis, and so no bound.
  outcome stop_at_once() {
    safe_bound_ = -std::numeric_limits<double>::infinity();
    return outcome::stopped;
  }

  [[nodiscard]] std::size_t row_begin(std::uint32_t r) const { return r == 0 ? 0 : row_end_[r - 1]; }

  void add_to_columns(std::uint32_t i) {
    const std::uint32_t r = active_[i];
    for (std::size_t k = row_begin(r); k < row_end_[r]; ++k)
      columns_[row_entries_[k].index].push_back({i, row_entries_[k].value});
  }

  [[nodiscard]] double activity(std::uint32_t r) const {
    double sum = 0;
    for (std::size_t k = row_begin(r); k < row_end_[r]; ++k)
      sum += row_entries_[k].value * value(row_entries_[k].index);
    return sum;
  }

  /// Returns true if there were rows to add.
  bool activate_violated() {
    bool is_any = false;
    const auto n = static_cast<std::uint32_t>(cost_.size());
    work_ += row_entries_.size();
    for (std::uint32_t r = 0; r < least_.size(); ++r) {
      if (place_[r] != none) continue;
      const double over = activity(r) - least_[r];
      if (over >= -row_tolerance) continue;
      is_any = true;
      const auto i = static_cast<std::uint32_t>(active_.size());
      place_[r] = i;
      active_.push_back(r);
      slack_position_.push_back(i);
      slack_reduced_.push_back(0);
      basis_.push_back(n + i);
      basic_value_.push_back(0);
      infeasibility_.push_back(0);
      is_violated_.push_back(0);
      weight_.push_back(1);
      set_basic_value(i, over);
      add_to_columns(i);
      added_.clear();
      for (std::size_t k = row_begin(r); k < row_end_[r]; ++k)
        if (const sparse_entry& e = row_entries_[k]; position_[e.index] != none)
          added_.push_back({position_[e.index], e.value});
      factors_.add_slack(added_);
    }
    for (sparse_vector* v : {&multiplier_, &rhs_, &row_, &direction_})
      v->grow(static_cast<std::uint32_t>(active_.size()));
    return is_any;
  }

  /// Slack columns have numbers behind the others.
  [[nodiscard]] bool is_slack(std::uint32_t v) const { return v >= cost_.size(); }
  [[nodiscard]] std::uint32_t slack_row(std::uint32_t v) const { return v - static_cast<std::uint32_t>(cost_.size()); }
  [[nodiscard]] double reduced(std::uint32_t v) const {
    return is_slack(v) ? slack_reduced_[slack_row(v)] : reduced_[v];
  }
  void set_position(std::uint32_t v, std::uint32_t p) {
    (is_slack(v) ? slack_position_[slack_row(v)] : position_[v]) = p;
  }
  struct column_view {
    const sparse_entry* first;
    const sparse_entry* last;
    [[nodiscard]] const sparse_entry* begin() const { return first; }
    [[nodiscard]] const sparse_entry* end() const { return last; }
  };

  /// Factors the basis, and finds all values and multipliers from it. Repairs a singular basis. Returns false if it is
  /// stopped: then there are no factors.
  [[nodiscard]] bool refactor() {
    is_factored_ = false;
    const auto m = static_cast<std::uint32_t>(active_.size());
    sparse_entry slack{};
    const auto column_of = [&](std::uint32_t p) {
      const std::uint32_t v = basis_[p];
      if (is_slack(v)) {
        slack = {slack_row(v), -1.0};
        return column_view{&slack, &slack + 1};
      }
      const std::vector<sparse_entry>& c = columns_[v];
      return column_view{c.data(), c.data() + c.size()};
    };
    for (;;) {
      const auto unpaired = factors_.factor(m, column_of, [this] { return is_asked_to_stop(); });
      work_ += 4 * m;
      if (factors_.is_stopped()) return false;
      if (unpaired.empty()) break;
      for (const auto& [p, row] : unpaired) {
        set_position(basis_[p], none);
        basis_[p] = static_cast<std::uint32_t>(cost_.size()) + row;
        slack_position_[row] = p;
      }
      std::fill(weight_.begin(), weight_.end(), 1.0);
    }
    is_factored_ = true;
    for (sparse_vector* v : {&multiplier_, &rhs_, &row_, &direction_}) v->reset(m);
    alpha_.reset(static_cast<std::uint32_t>(cost_.size()));
    find_multipliers();
    find_values();
    return true;
  }

  /// The multipliers of the active rows, for raised costs or for those given.
  void multipliers_of(const std::vector<double>& cost) {
    multiplier_.clear();
    for (std::uint32_t p = 0; p < active_.size(); ++p)
      if (!is_slack(basis_[p])) multiplier_.add(p, cost[basis_[p]]);
    factors_.solve_transposed(multiplier_);
    work_ += active_.size();
  }
  void find_multipliers() {
    multipliers_of(raised_);
    for (std::uint32_t c = 0; c < cost_.size(); ++c) {
      if (position_[c] != none) {
        reduced_[c] = 0;
        continue;
      }
      double d = raised_[c];
      for (const sparse_entry& e : columns_[c]) d -= multiplier_[e.index] * e.value;
      reduced_[c] = d;
      if (upper_[c] > lower_[c] && std::abs(d) > dual_tolerance) is_at_upper_[c] = d < 0;
    }
    work_ += 3 * cost_.size();
    for (std::uint32_t i = 0; i < active_.size(); ++i)
      slack_reduced_[i] = slack_position_[i] != none ? 0 : multiplier_[i];
  }
  void find_values() {
    rhs_.clear();
    for (std::uint32_t i = 0; i < active_.size(); ++i) rhs_.add(i, least_[active_[i]]);
    for (std::uint32_t c = 0; c < cost_.size(); ++c) {
      if (position_[c] != none) continue;
      const double x = is_at_upper_[c] ? upper_[c] : lower_[c];
      if (x != 0)
        for (const sparse_entry& e : columns_[c]) rhs_.add(e.index, -e.value * x);
    }
    factors_.solve(rhs_);
    work_ += cost_.size() + 2 * active_.size();
    violated_.clear();
    is_violated_.assign(active_.size(), 0);
    infeasibility_.assign(active_.size(), 0);
    for (std::uint32_t p = 0; p < active_.size(); ++p) set_basic_value(p, rhs_[p]);
    rhs_.clear();
    are_values_current_ = true;
  }

  [[nodiscard]] double basic_lower(std::uint32_t v) const { return is_slack(v) ? 0 : lower_[v]; }
  [[nodiscard]] double basic_upper(std::uint32_t v) const {
    return is_slack(v) ? std::numeric_limits<double>::infinity() : upper_[v];
  }

  /// The simplex method on the active rows.
  outcome iterate() {
    int failures = 0;
    for (int since_check = 0;; ++since_check) {
      if (factors_.exchanges() >= most_exchanges || factors_.exchange_entries() > 3 * active_.size() + 1000)
        if (!refactor()) return stop_at_once();
      if (!are_values_current_) {
        find_multipliers();
        find_values();
      }
      const bool is_check_due = since_check >= 20;
      if (is_asked_to_stop() || (is_check_due && is_out_of_work())) {
        find_safe_bound();
        return outcome::stopped;
      }
      if (is_check_due) {
        since_check = 0;
        if (is_dual_value_beyond()) {
          find_safe_bound();
          if (safe_bound_ >= cutoff_) return outcome::beyond;
        }
      }
      const std::uint32_t r = leaving_position();
      if (r == none) return outcome::optimal;
      if (iterations_ >= std::min(last_iteration_, hopeless_iteration_)) {
        find_safe_bound();
        if (safe_bound_ >= cutoff_) return outcome::beyond;
        return iterations_ >= hopeless_iteration_ ? outcome::failed : outcome::stopped;
      }
      ++iterations_;
      const std::uint32_t v = basis_[r];
      const bool is_below = basic_value_[r] < basic_lower(v);
      price_row(r);
      std::uint32_t entering = none;
      flips_.clear();
      double slope = is_below ? basic_lower(v) - basic_value_[r] : basic_value_[r] - basic_upper(v);
      if (!choose_entering(is_below ? -1.0 : 1.0, slope, entering)) {
        if (factors_.exchanges() > 0) {
          if (!refactor()) return stop_at_once();
          if (++failures <= most_failures) continue;
        }
        return prove_empty(r, is_below ? -1.0 : 1.0);
      }
      const bool is_exchanged = exchange(r, entering, is_below);
      if (!is_factored_) return stop_at_once();
      if (!is_exchanged && ++failures > most_failures) {
        find_safe_bound();
        return safe_bound_ >= cutoff_ ? outcome::beyond : outcome::failed;
      }
    }
  }

  void set_basic_value(std::uint32_t p, double x) {
    basic_value_[p] = x;
    const double over = violation(p);
    infeasibility_[p] = over > row_tolerance ? over * over : 0;
    if (over > row_tolerance && !is_violated_[p]) {
      is_violated_[p] = 1;
      violated_.push_back(p);
    }
  }
  [[nodiscard]] double violation(std::uint32_t p) const {
    const std::uint32_t v = basis_[p];
    const double x = basic_value_[p];
    return std::max(basic_lower(v) - x, x - basic_upper(v));
  }
  [[nodiscard]] std::uint32_t leaving_position() {
    std::uint32_t best = none;
    double most = 0;
    work_ += violated_.size();
    for (std::size_t k = violated_.size(); k-- > 0;) {
      const std::uint32_t p = violated_[k];
      if (infeasibility_[p] == 0) {
        is_violated_[p] = 0;
        violated_[k] = violated_.back();
        violated_.pop_back();
        continue;
      }
      const double gain = infeasibility_[p] / weight_[p];
      if (gain > most || (gain == most && p < best)) {
        most = gain;
        best = p;
      }
    }
    return best;
  }

  /// Row r of the tableau: into `alpha_` for the columns listed there, and the slack ones from `row_`.
  void price_row(std::uint32_t r) {
    row_.clear();
    row_.add(r, 1);
    factors_.solve_transposed(row_);
    alpha_.clear();
    for (const std::uint32_t i : row_.list()) {
      const double y = row_[i];
      if (std::abs(y) < 1e-12) continue;
      const std::uint32_t row = active_[i];
      for (std::size_t k = row_begin(row); k < row_end_[row]; ++k) {
        const sparse_entry& e = row_entries_[k];
        if (position_[e.index] == none) alpha_.add(e.index, y * e.value);
      }
      work_ += row_end_[row] - row_begin(row);
    }
  }
  struct breakpoint {
    std::uint32_t v;
    double alpha, d, range;  // |alpha|, |d|
  };

  /// The ratio test. `slope` is how much the leaving column violates its bound. Columns in `flips_` go to their other
  /// bound. Returns false if nothing stops the dual step.
  bool choose_entering(double sign, double slope, std::uint32_t& entering) {
    points_.clear();
    const auto n = static_cast<std::uint32_t>(cost_.size());
    for (const std::uint32_t c : alpha_.list()) {
      const double a = sign * alpha_[c];
      if (std::abs(a) < least_alpha || upper_[c] <= lower_[c]) continue;
      if (is_at_upper_[c] ? a < 0 : a > 0)
        points_.push_back(
            {c, std::abs(a), std::max(0.0, is_at_upper_[c] ? -reduced_[c] : reduced_[c]), upper_[c] - lower_[c]});
    }
    for (const std::uint32_t i : row_.list()) {
      if (slack_position_[i] != none) continue;
      const double a = -sign * row_[i];
      if (a >= least_alpha)
        points_.push_back({n + i, a, std::max(0.0, slack_reduced_[i]), std::numeric_limits<double>::infinity()});
    }
    work_ += alpha_.list().size() + row_.list().size() + 2 * points_.size();
    std::size_t left = points_.size();
    while (left > 0) {
      double limit = std::numeric_limits<double>::infinity();
      for (std::size_t k = 0; k < left; ++k)
        limit = std::min(limit, (points_[k].d + dual_tolerance) / points_[k].alpha);
      double drop = 0;
      std::size_t best = left;
      std::size_t begin = left;  // the group's begin: its points are at [begin, left)
      for (std::size_t k = 0; k < begin;) {
        if (points_[k].d / points_[k].alpha <= limit) {
          drop += points_[k].alpha * points_[k].range;
          std::swap(points_[k], points_[--begin]);
        } else {
          ++k;
        }
      }
      work_ += left;
      if (begin > 0 && slope - drop > 0) {
        for (std::size_t k = begin; k < left; ++k) flips_.push_back(points_[k].v);
        slope -= drop;
        left = begin;
        continue;
      }
      if (begin == 0 && slope - drop > 0 && std::isfinite(drop)) return false;  // all of them are passed
      for (std::size_t k = begin; k < left; ++k)
        if (best == left || points_[k].alpha > points_[best].alpha ||
            (points_[k].alpha == points_[best].alpha && points_[k].v < points_[best].v))
          best = k;
      entering = points_[best].v;
      return true;
    }
    return false;
  }

  /// Returns false if rounding errors forbid it. Then there are new factors, or none if it was stopped.
  bool exchange(std::uint32_t r, std::uint32_t entering, bool is_below) {
    const double expected = is_slack(entering) ? -row_[slack_row(entering)] : alpha_[entering];
    direction_.clear();
    if (is_slack(entering))
      direction_.add(slack_row(entering), -1);
    else
      for (const sparse_entry& e : columns_[entering]) direction_.add(e.index, e.value);
    factors_.solve(direction_);
    const double pivot = direction_[r];
    if (std::abs(pivot - expected) > 1e-7 * (1 + std::abs(pivot)) || std::abs(pivot) < least_pivot) {
      if (factors_.exchanges() > 0) {
        static_cast<void>(refactor());
        return false;
      }
      if (std::abs(pivot) < least_alpha) {  // it is passed over for a while
        weight_[r] *= 1e6;
        return false;
      }
    }
    if (!flips_.empty()) {
      rhs_.clear();
      for (const std::uint32_t c : flips_) {
        const double change = is_at_upper_[c] ? lower_[c] - upper_[c] : upper_[c] - lower_[c];
        is_at_upper_[c] = !is_at_upper_[c];
        for (const sparse_entry& e : columns_[c]) rhs_.add(e.index, e.value * change);
        work_ += columns_[c].size();
      }
      factors_.solve(rhs_);
      for (const std::uint32_t p : rhs_.list()) set_basic_value(p, basic_value_[p] - rhs_[p]);
      rhs_.clear();
    }
    const std::uint32_t leaving = basis_[r];
    const double target = is_below ? basic_lower(leaving) : basic_upper(leaving);
    const double move = (basic_value_[r] - target) / pivot;
    // Duals. A step of the wrong sign comes from errors within the tolerance.
    double step = reduced(entering) / expected;
    if (is_below ? step > 0 : step < 0) step = 0;
    if (step != 0) {
      for (const std::uint32_t c : alpha_.list()) reduced_[c] -= step * alpha_[c];
      for (const std::uint32_t i : row_.list())
        if (slack_position_[i] == none) slack_reduced_[i] += step * row_[i];
    }
    // Weights and primals.
    const double own_weight = weight_[r];
    for (const std::uint32_t p : direction_.list()) {
      const double ratio = direction_[p] / pivot;
      if (p == r || ratio == 0) continue;
      weight_[p] = std::max(weight_[p], ratio * ratio * own_weight);
      set_basic_value(p, basic_value_[p] - move * direction_[p]);
    }
    weight_[r] = std::max(own_weight / (pivot * pivot), 1.0);
    work_ += direction_.list().size() + alpha_.list().size() + row_.list().size();
    if (is_slack(leaving)) {
      slack_position_[slack_row(leaving)] = none;
      slack_reduced_[slack_row(leaving)] = -step;
    } else {
      position_[leaving] = none;
      is_at_upper_[leaving] = !is_below;
      reduced_[leaving] = -step;
    }
    const double start = is_slack(entering) ? 0 : is_at_upper_[entering] ? upper_[entering] : lower_[entering];
    (is_slack(entering) ? slack_reduced_[slack_row(entering)] : reduced_[entering]) = 0;
    set_position(entering, r);
    basis_[r] = entering;
    set_basic_value(r, start + move);
    factors_.exchange(r, direction_);
    return true;
  }

  /// True if the bound in floating point has reached the cutoff. Raised costs count.
  [[nodiscard]] bool is_dual_value_beyond() {
    double sum = 0;
    for (std::uint32_t c = 0; c < cost_.size(); ++c)
      if (position_[c] == none) sum += raised_[c] * (is_at_upper_[c] ? upper_[c] : lower_[c]);
    for (std::uint32_t p = 0; p < active_.size(); ++p)
      if (!is_slack(basis_[p])) sum += raised_[basis_[p]] * basic_value_[p];
    work_ += cost_.size();
    return sum >= cutoff_;
  }

  /// Row r of the tableau proves that there is no solution: multiples of it raise the bound without end. With costs of
  /// 0, for which a solution would cost 0, it raises it above 0.
  outcome prove_empty(std::uint32_t r, double sign) {
    price_row(r);
    if (broken_ > 0) {
      double size = 0;
      for (const std::uint32_t i : row_.list()) size += std::max(0.0, sign * row_[i]);
      const auto each = [&](auto&& visit) {
        for (const std::uint32_t i : row_.list()) visit(active_[i], sign * row_[i]);
      };
      find_safe_bound_of(each, 0);
      if (safe_bound_ > size * broken_) {
        safe_bound_ = std::numeric_limits<double>::infinity();
        return outcome::beyond;
      }
    } else {
      multipliers_of(cost_);
      for (double t = 1; t < 1e10; t *= 16) {
        find_safe_bound_of([&](auto&& visit) {
          for (std::uint32_t i = 0; i < active_.size(); ++i) visit(active_[i], multiplier_[i] + sign * t * row_[i]);
        });
        if (safe_bound_ >= cutoff_) return outcome::beyond;
      }
    }
    find_safe_bound();
    return safe_bound_ >= cutoff_ ? outcome::beyond : outcome::failed;
  }

  void find_safe_bound() {
    multipliers_of(cost_);
    find_safe_bound_of([&](auto&& visit) {
      for (std::uint32_t i = 0; i < active_.size(); ++i) visit(active_[i], multiplier_[i]);
    });
  }

  /// Every solution costs, for any multipliers y ≥ 0 of the rows, at least y · b + Σ min over the column's bounds of
  /// (cost − y · a) x. Each sum is reduced by more than all of its operations can have rounded up. Costs are multiplied
  /// by `share`, 0 or 1.
  template <class Multipliers>
  void find_safe_bound_of(Multipliers&& each, double share = 1) {
    constexpr double unit = 0x1p-52;
    exact_reduced_ = cost_;
    if (share == 0) exact_reduced_.assign(cost_.size(), 0);
    reduced_error_.assign(cost_.size(), 0);
    double sum = 0, size = 0;
    std::size_t terms = cost_.size() + 4;
    for (std::uint32_t c = 0; c < cost_.size(); ++c) reduced_error_[c] = std::abs(exact_reduced_[c]);
    count_.assign(cost_.size(), 2);
    each([&](std::uint32_t r, double y) {
      if (!(y > 0)) return;
      sum += y * least_[r];
      size += std::abs(y * least_[r]);
      ++terms;
      for (std::size_t k = row_begin(r); k < row_end_[r]; ++k) {
        const sparse_entry& e = row_entries_[k];
        exact_reduced_[e.index] -= y * e.value;
        reduced_error_[e.index] += std::abs(y * e.value);
        ++count_[e.index];
      }
      work_ += row_end_[r] - row_begin(r);
    });
    for (std::uint32_t c = 0; c < cost_.size(); ++c) {
      reduced_error_[c] *= unit * (count_[c] + 2);
      const double d = exact_reduced_[c], e = reduced_error_[c];
      const double least = std::min((d - e) * lower_[c], (d - e) * upper_[c]);
      const double other = std::min((d + e) * lower_[c], (d + e) * upper_[c]);
      const double x = std::min(least, other);
      sum += x;
      size += std::abs(x);
    }
    work_ += 2 * cost_.size();
    safe_bound_ = sum - size * static_cast<double>(terms) * unit;
  }

  // Columns and rows.
  std::vector<double> cost_, lower_, upper_, raised_;
  std::vector<std::size_t> row_end_;
  std::vector<sparse_entry> row_entries_;
  std::vector<double> least_;
  std::vector<std::uint32_t> place_;                // each row's place among the active ones
  std::vector<std::uint32_t> active_;               // rows
  std::vector<std::vector<sparse_entry>> columns_;  // their coefficients in active rows
  // The basis.
  std::vector<std::uint32_t> basis_;                      // columns, by positions
  std::vector<std::uint32_t> position_, slack_position_;  // each column's and slack's position in the basis, or none
  std::vector<std::uint8_t> is_at_upper_;
  std::vector<double> reduced_, slack_reduced_, basic_value_, weight_;
  sparse_lu factors_;
  bool is_factored_ = false, are_values_current_ = true;
  // The present iteration.
  sparse_vector multiplier_, rhs_, row_, alpha_, direction_;
  std::vector<std::uint32_t> flips_, violated_;  // positions
  std::vector<std::uint8_t> is_violated_;
  std::vector<double> infeasibility_;
  std::vector<sparse_entry> added_;
  std::vector<breakpoint> points_;
  // The safe bound.
  std::vector<double> exact_reduced_, reduced_error_;
  std::vector<std::uint32_t> count_;
  double most_raise_ = 1e-5, broken_ = 0;
  double safe_bound_ = 0;
  double cutoff_ = 0;
  const std::function<bool()>* stop_ = nullptr;
  std::uint64_t work_ = 0, work_limit_ = std::numeric_limits<std::uint64_t>::max(), iterations_ = 0,
                last_iteration_ = 0, hopeless_iteration_ = 0, polled_at_ = 0;
  std::uint64_t random_ = 1;
};

}  // namespace REMAT_NAMESPACE::detail
