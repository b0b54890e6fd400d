// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "remat/version.hpp"

namespace REMAT_NAMESPACE::detail {

/// The most variables of a `plane`.
inline constexpr std::size_t max_plane_variables = 20;

/// A linear function: `constant` + Σ `slope[i]` · y[i].
struct plane {
  double constant = 0;                              ///< its value at the origin
  std::array<double, max_plane_variables> slope{};  ///< the slope for each variable

  /// Returns the value at `y`.
  [[nodiscard]] double at(const std::array<double, max_plane_variables>& y) const {
    double value = constant;
    for (std::size_t i = 0; i < max_plane_variables; ++i) value += slope[i] * y[i];
    return value;
  }
};

/// A condition Σ `weight[i]` · y[i] ≤ `limit`, where `limit` ≥ 0.
struct plane_limit {
  std::array<double, max_plane_variables> weight{};  ///< the weight of each variable
  double limit = 0;                                  ///< the limit of the weighted sum
};

/// Where the least of several planes is highest.
struct plane_optimum {
  std::array<double, max_plane_variables> y{};  ///< the point
  double value = 0;                             ///< the least plane there, up to rounding
};

/// Returns the point y ≥ 0 at which the least of `planes` is highest, where all `limits` hold: the linear program of
/// Kelley's cutting planes \cite kelley1960cutting, by the simplex method on a dense tableau. The first `variables`
/// coordinates may be above 0. The limits must bound the value; otherwise the point is any that the method meets.
/// Slopes and weights should be of about one size, since those below 1e-9 count as 0. The point satisfies the limits up
/// to rounding. Preconditions: at least one plane; variables ≤ `max_plane_variables`.
[[nodiscard]] inline plane_optimum highest_point(std::span<const plane> planes, std::span<const plane_limit> limits,
                                                 std::size_t variables) {
  // Rows: each plane, then each limit. Columns: the variables, the height above the least constant, the right side. A
  // column holds a variable that is 0, a row one that is its right side, which is never negative.
  const std::size_t rows = planes.size() + limits.size(), height = variables, right = variables + 1;
  double floor = std::numeric_limits<double>::infinity();
  for (const plane& x : planes) floor = std::min(floor, x.constant);
  using tableau_row = std::array<double, max_plane_variables + 2>;
  std::vector<tableau_row> tableau(rows + 1, tableau_row{});
  for (std::size_t i = 0; i < planes.size(); ++i) {
    for (std::size_t j = 0; j < variables; ++j) tableau[i][j] = -planes[i].slope[j];
    tableau[i][height] = 1;
    tableau[i][right] = planes[i].constant - floor;
  }
  for (std::size_t i = 0; i < limits.size(); ++i) {
    for (std::size_t j = 0; j < variables; ++j) tableau[planes.size() + i][j] = limits[i].weight[j];
    tableau[planes.size() + i][right] = limits[i].limit;
  }
  tableau_row& objective = tableau[rows];
  objective[height] = -1;
  std::vector<std::size_t> in_row(rows), in_column(right);
  for (std::size_t i = 0; i < rows; ++i) in_row[i] = right + i;
  for (std::size_t j = 0; j < right; ++j) in_column[j] = j;

  double scale = 0;  // the largest of the planes' right sides
  for (std::size_t i = 0; i < planes.size(); ++i) scale = std::max(scale, tableau[i][right]);
  constexpr int max_steps = 400, max_greedy_steps = 100;
  constexpr double smallest = 1e-9;  // a pivot below it would be rounding
  for (int step = 0; step < max_steps; ++step) {
    std::size_t enter = right;
    for (std::size_t j = 0; j < right; ++j) {
      if (!(objective[j] < -smallest)) continue;
      const bool better = enter == right ||
                          (step < max_greedy_steps ? objective[j] < objective[enter] : in_column[j] < in_column[enter]);
      if (better) enter = j;
    }
    if (enter == right) break;
    // The row with the largest pivot leaves, of those that bind about equally soon: small pivots lose digits.
    std::size_t leave = rows;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < rows; ++i)
      if (tableau[i][enter] > smallest) least = std::min(least, tableau[i][right] / tableau[i][enter]);
    const double about = least + 1e-9 * (least + scale);
    for (std::size_t i = 0; i < rows; ++i)
      if (tableau[i][enter] > smallest && tableau[i][right] / tableau[i][enter] <= about &&
          (leave == rows || tableau[i][enter] > tableau[leave][enter]))
        leave = i;
    if (leave == rows) break;  // no row limits the variable
    const double pivot = tableau[leave][enter];
    for (std::size_t j = 0; j <= right; ++j)
      if (j != enter) tableau[leave][j] /= pivot;
    tableau[leave][enter] = 1 / pivot;
    for (std::size_t i = 0; i <= rows; ++i) {
      if (i == leave || tableau[i][enter] == 0) continue;
      const double factor = tableau[i][enter];
      for (std::size_t j = 0; j <= right; ++j)
        if (j != enter) tableau[i][j] -= factor * tableau[leave][j];
      tableau[i][enter] = -factor / pivot;
      if (i < rows && tableau[i][right] < 0) tableau[i][right] = 0;  // rounding may make it negative
    }
    std::swap(in_row[leave], in_column[enter]);
  }

  plane_optimum best;
  for (std::size_t i = 0; i < rows; ++i)
    if (in_row[i] < variables) best.y[in_row[i]] = tableau[i][right];
  best.value = std::numeric_limits<double>::infinity();
  for (const plane& x : planes) best.value = std::min(best.value, x.at(best.y));
  return best;
}

}  // namespace REMAT_NAMESPACE::detail
