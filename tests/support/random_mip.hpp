// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "remat/mip/model.hpp"

namespace remat::test {

/// A random model of few columns: binaries, small integers and, with `continuous`, columns between. All numbers are
/// small integers. About a third have no solution.
[[nodiscard]] inline mip_model random_mip(std::uint64_t seed, std::uint32_t integers, std::uint32_t continuous) {
  std::mt19937_64 engine(seed);
  const auto within = [&](int a, int b) {
    return a + static_cast<int>(engine() % static_cast<std::uint64_t>(b - a + 1));
  };
  mip_model m;
  m.offset = within(-3, 3);
  for (std::uint32_t j = 0; j < integers; ++j) {
    const int low = within(0, 9) < 8 ? 0 : -1;
    m.add_integer(within(-6, 6), low, within(0, 9) < 7 ? low + 1 : low + 2);
  }
  for (std::uint32_t j = 0; j < continuous; ++j) m.add_column(within(-4, 4), within(-2, 0), within(0, 3));
  const int rows = within(1, static_cast<int>(integers + continuous));
  for (int i = 0; i < rows; ++i) {
    std::vector<mip_term> terms;
    double middle = 0;
    for (std::uint32_t j = 0; j < integers + continuous; ++j)
      if (within(0, 2) == 0) {
        terms.push_back({j, static_cast<double>(within(-7, 7))});
        middle += terms.back().value * (m.lower(j) + m.upper(j)) / 2;
      }
    const double width = within(0, 9);
    const int kind = within(0, 5);
    middle = std::floor(middle) + within(-2, 2);
    if (kind == 0 && i == 0)
      m.add_row(middle, terms, middle);  // an equality, rarely
    else if (kind < 3)
      m.add_row(-mip_model::infinite, terms, middle);
    else if (kind < 5)
      m.add_row(middle, terms, mip_model::infinite);
    else
      m.add_row(middle - width, terms, middle + width);
  }
  return m;
}

/// The least objective by trying all values of the columns, all of them integer; infinite: no solution.
[[nodiscard]] inline double least_objective(const mip_model& m) {
  std::vector<double> x(m.num_columns());
  for (std::size_t j = 0; j < x.size(); ++j) x[j] = m.lower(j);
  double best = mip_model::infinite;
  for (;;) {
    if (m.violation(x) <= 1e-9 && m.objective(x) < best) best = m.objective(x);
    std::size_t j = 0;
    while (j < x.size() && x[j] + 1 > m.upper(j)) {
      x[j] = m.lower(j);
      ++j;
    }
    if (j == x.size()) return best;
    x[j] += 1;
  }
}

}  // namespace remat::test
