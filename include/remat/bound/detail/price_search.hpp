// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/detail/directed_rounding.hpp"

namespace REMAT_NAMESPACE::detail {

/// The search for the price of a byte at which the bound of one moment is highest.
///
/// At a price, no choice of the cut that fits into the free bytes takes less time than the least of
/// time + price × (bytes − free bytes) over all choices. As a function of the price each choice is a line, and the
/// least of the lines is concave. The search holds two choices: `left()`, which exceeds the free bytes, so its line
/// rises, and `right()`, which fits. No price has a higher bound than the point where these two lines meet. The next
/// flow asks for the price of that point, and its choice replaces `left()` or `right()`; the search is over when it
/// replaces neither: then only rounding lies between the lines. \cite kelley1960cutting
///
///     price_search search(cut, free_bytes, 0, 32);
///     while (search.run_flow(bound, stop)) bound = std::max(bound, search.value());
///
/// The cut must stay at its moment meanwhile, with the same candidates fixed.
class price_search {
 public:
  /// Begins at a moment of which nothing is known. One flow finds the least bytes if some operation must not run twice,
  /// and one the cheapest choice at price 0. At most `max_flows` more follow; the first of them asks for the price
  /// `first` if that is above 0.
  price_search(moment_cut& cut, std::int64_t free_bytes, double first, int max_flows)
      : cut_(cut),
        free_bytes_(free_bytes),
        first_(first),
        max_flows_(max_flows),
        right_{cut.total_time(), 0},
        next_(cut.has_unrepeatable() ? question::least_bytes : question::price_0) {}
  /// Begins between two choices, of which `right` fits. The search is over if `left` fits, too.
  price_search(moment_cut& cut, std::int64_t free_bytes, moment_choice left, moment_choice right, double first,
               int max_flows)
      : cut_(cut),
        free_bytes_(free_bytes),
        first_(first),
        max_flows_(max_flows),
        left_(left),
        right_(right),
        next_(left.bytes > free_bytes ? question::meeting_price : question::none) {}

  /// Runs the next flow. Returns false, and runs none, if the search is over or no price has a bound above `level`. The
  /// search is over after a flow that `stop` has ended.
  bool run_flow(double level, const std::function<bool()>& stop) {
    fits_ = new_left_ = new_right_ = false;
    if (next_ == question::meeting_price) find_price(level);
    if (next_ == question::none) return false;
    if (next_ == question::least_bytes) {
      is_infeasible_ = cut_.least_bytes(stop) > free_bytes_;
    } else {
      cost_ = cut_.price(price_, stop);
      value_ = less_rent(cost_, price_, free_bytes_);
    }
    const question asked = std::exchange(next_, question::none);
    if (cut_.complete()) take(asked, cut_.choice());
    return true;
  }

  /// No price has a higher bound. Precondition: both choices are known, and `left()` exceeds the free bytes.
  [[nodiscard]] double most() const {
    return left_.time + meeting_price() * static_cast<double>(left_.bytes - free_bytes_);
  }
  /// The bound that the last flow has found; −∞ if it had no price.
  [[nodiscard]] double value() const noexcept { return value_; }
  /// The least of time + price × bytes over all choices, from below.
  [[nodiscard]] double cost() const noexcept { return cost_; }
  /// The price of the last flow.
  [[nodiscard]] double price() const noexcept { return price_; }
  /// True if the least bytes exceed the free bytes: no choice fits.
  [[nodiscard]] bool is_infeasible() const noexcept { return is_infeasible_; }
  /// True if the last flow had a price, and its choice fits.
  [[nodiscard]] bool fits() const noexcept { return fits_; }

  /// A choice that exceeds the free bytes, or the cheapest one of all.
  [[nodiscard]] const moment_choice& left() const noexcept { return left_; }
  /// A choice that fits, unless none does.
  [[nodiscard]] const moment_choice& right() const noexcept { return right_; }
  /// True if the last flow has found `left()`.
  [[nodiscard]] bool new_left() const noexcept { return new_left_; }
  /// True if the last flow has found `right()`.
  [[nodiscard]] bool new_right() const noexcept { return new_right_; }

 private:
  enum class question : std::uint8_t { least_bytes, price_0, meeting_price, none };

  /// The price at which the two lines meet.
  [[nodiscard]] double meeting_price() const {
    return (right_.time - left_.time) / static_cast<double>(left_.bytes - right_.bytes);
  }

  /// Sets the price of the next flow, or ends the search.
  void find_price(double level) {
    next_ = question::none;
    if (flows_ >= max_flows_ || left_.bytes <= right_.bytes || most() <= level) return;
    price_ = std::min(flows_ == 0 && first_ > 0 ? first_ : meeting_price(), cut_.highest_price());
    if (price_ > 0) next_ = question::meeting_price;
  }

  /// Takes the choice that the last flow has found, and says what to ask next. The first price need not lie between
  /// those of the two choices, so its choice always replaces one of them.
  void take(question asked, const moment_choice& c) {
    fits_ = asked != question::least_bytes && c.bytes <= free_bytes_;
    if (asked == question::least_bytes) {
      set_right(c);
      next_ = question::price_0;
    } else if (asked == question::price_0) {
      set_left(c);
      if (!fits_) next_ = question::meeting_price;
    } else if (const bool is_first = flows_++ == 0; fits_) {
      if (!is_first && c.time >= right_.time) return;
      set_right(c);
      if (c.bytes < free_bytes_) next_ = question::meeting_price;
    } else {
      if (!is_first && c.bytes >= left_.bytes) return;
      set_left(c);
      cut_.keep();
      if (price_ < cut_.highest_price()) next_ = question::meeting_price;
    }
  }
  void set_left(const moment_choice& c) {
    left_ = c;
    new_left_ = true;
  }
  void set_right(const moment_choice& c) {
    right_ = c;
    new_right_ = true;
  }

  moment_cut& cut_;
  std::int64_t free_bytes_;
  double first_;
  int max_flows_, flows_ = 0;  // flows at the prices where lines meet
  moment_choice left_, right_;
  question next_;
  double price_ = 0, cost_ = 0, value_ = -std::numeric_limits<double>::infinity();
  bool is_infeasible_ = false, fits_ = false, new_left_ = false, new_right_ = false;
};

}  // namespace REMAT_NAMESPACE::detail
