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

/// A random model of 2 to 12 binaries whose numbers are 2^-20 to 2^20, or, some of them, small and whole. Rows are
/// tight for random points, so that many verdicts hang on small numbers beside large ones.
[[nodiscard]] inline mip_model harsh_binary_mip(std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<double>(engine() % n); };
  const auto number = [&](bool whole) {
    if (whole) return below(3) - 1;
    const double size = std::ldexp(1 + below(1 << 20) * 0x1p-20, static_cast<int>(engine() % 41) - 20);
    return engine() % 2 ? size : -size;
  };
  mip_model m;
  m.offset = below(1000) - 500;
  const auto columns = static_cast<std::uint32_t>(2 + engine() % 11);
  for (std::uint32_t j = 0; j < columns; ++j) m.add_integer(number(engine() % 2), 0, 1);
  for (std::uint64_t i = 1 + engine() % (2 * columns); i-- > 0;) {
    std::vector<mip_term> terms;
    double at_point = 0;
    for (std::uint32_t j = 0; j < columns; ++j) {
      if (engine() % 2) continue;
      terms.push_back({j, number(engine() % 4 < 2 * (seed % 2))});
      at_point += terms.back().value * below(2);
    }
    const double room = terms.empty() || engine() % 2 ? 0 : std::abs(terms.front().value);
    const std::uint64_t kind = engine() % 12;
    m.add_row(kind < 6 ? -mip_model::infinite : at_point - room, terms,
              kind < 6 || kind == 11 ? at_point + room : mip_model::infinite);
  }
  return m;
}

/// The least objective of values that break the model by at most `tolerance`, by trying all values of the columns, all
/// of them integer; infinite: no solution.
[[nodiscard]] inline double least_objective(const mip_model& m, double tolerance = 1e-9) {
  std::vector<double> x(m.num_columns());
  for (std::size_t j = 0; j < x.size(); ++j) x[j] = m.lower(j);
  double best = mip_model::infinite;
  for (;;) {
    if (m.violation(x) <= tolerance && m.objective(x) < best) best = m.objective(x);
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
