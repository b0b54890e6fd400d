// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "remat/version.hpp"

namespace REMAT_NAMESPACE::detail {

/// Sums, products and conversions that are rounded in one direction, for proven bounds. An exact result stays exact.
/// All hold for finite arguments whose results are finite and, for products, not below 2^−969.

/// Returns a number that is at most `a` + `b`, less by at most one unit in the last place.
[[nodiscard]] inline double sum_below(double a, double b) noexcept {
  const double sum = a + b, part = sum - a;
  const double error = (a - (sum - part)) + (b - part);  // the exact error of the sum (TwoSum)
  return error < 0 ? std::nextafter(sum, -std::numeric_limits<double>::infinity()) : sum;
}

/// Returns a number that is at least `a` + `b`, more by at most one unit in the last place.
[[nodiscard]] inline double sum_above(double a, double b) noexcept { return -sum_below(-a, -b); }

/// Returns a number that is at most `a` × `b`, less by at most one unit in the last place.
[[nodiscard]] inline double product_below(double a, double b) noexcept {
  const double product = a * b;
  return std::fma(a, b, -product) < 0 ? std::nextafter(product, -std::numeric_limits<double>::infinity()) : product;
}

/// Returns a number that is at least `a` × `b`, more by at most one unit in the last place.
[[nodiscard]] inline double product_above(double a, double b) noexcept { return -product_below(-a, b); }

/// Returns a number that is at most `n`, a whole one if `n` has more than 53 bits.
[[nodiscard]] inline double number_below(std::int64_t n) noexcept {
  // The upper half and the lower half are exact; their sum is rounded once.
  const std::int64_t low = n & 0xffffffff;
  return sum_below(static_cast<double>(n - low), static_cast<double>(low));
}

/// Returns a number that is at least `n`. Precondition: n is not the least number.
[[nodiscard]] inline double number_above(std::int64_t n) noexcept { return -number_below(-n); }

/// Returns a number that is at most `value` − `price` × `bytes`. Precondition: price ≥ 0.
[[nodiscard]] inline double less_rent(double value, double price, std::int64_t bytes) noexcept {
  return sum_below(value, -product_above(price, number_above(bytes)));
}

/// A sum of numbers that are not negative, rounded down: at most the exact sum, and equal to it if no addition was
/// rounded. Otherwise it is short by at most 2^−52 + n² × 2^−103 of the sum of n numbers.
class sum_from_below {
 public:
  /// Adds `x` ≥ 0.
  void add(double x) noexcept {
    const double sum = sum_ + x, part = sum - sum_;
    const double error = (sum_ - (sum - part)) + (x - part);
    sum_ = sum;
    lost_ += error;
    is_rounded_ = is_rounded_ || error != 0;
    ++count_;
  }
  /// The sum. O(1) time.
  [[nodiscard]] double value() const noexcept {
    if (!is_rounded_) return sum_;
    // Each lost part is at most 2^−53 of the sum, and so is the error of each addition of lost parts.
    const auto n = static_cast<double>(count_);
    return std::fmax(0.0, sum_below(sum_, lost_ - n * n * 0x1p-104 * sum_));
  }

 private:
  double sum_ = 0, lost_ = 0;
  bool is_rounded_ = false;
  std::size_t count_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
