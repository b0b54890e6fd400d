// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/detail/bounded_dual_simplex.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "support/long_run.hpp"

namespace {

using namespace remat::detail;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A program as dense arrays.
struct dense {
  std::vector<double> cost, lower, upper;
  std::vector<std::vector<double>> rows;
  std::vector<double> least;
};

/// Few values, so that many bases are degenerate and many costs equal.
dense random_program(std::mt19937_64& engine, std::size_t columns, std::size_t rows, bool is_simple) {
  const auto below = [&](std::uint64_t n) { return static_cast<double>(engine() % n); };
  dense d;
  for (std::size_t c = 0; c < columns; ++c) {
    d.cost.push_back(engine() % 3 ? below(is_simple ? 4 : 1000) : 0);
    d.lower.push_back(engine() % 8 ? 0 : 1);
    d.upper.push_back(engine() % 8 ? 1 : d.lower.back());
    if (d.upper.back() < d.lower.back()) d.upper.back() = d.lower.back();
  }
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<double> row(columns, 0);
    for (double& a : row)
      if (engine() % 2) a = is_simple ? below(3) - 1 : below(41) - 20;
    d.rows.push_back(row);
    d.least.push_back(is_simple ? below(4) - 2 : below(41) - 25);
  }
  return d;
}

bounded_dual_simplex program_of(const dense& d) {
  bounded_dual_simplex p;
  for (std::size_t c = 0; c < d.cost.size(); ++c) p.add_column(d.lower[c], d.upper[c], d.cost[c]);
  for (std::size_t r = 0; r < d.rows.size(); ++r) {
    std::vector<sparse_entry> entries;
    for (std::size_t c = 0; c < d.cost.size(); ++c)
      if (d.rows[r][c] != 0) entries.push_back({static_cast<std::uint32_t>(c), d.rows[r][c]});
    p.add_row(entries, d.least[r]);
  }
  return p;
}

/// Solves a square system by elimination. Returns false if it is singular.
bool solve_dense(std::vector<std::vector<double>> a, std::vector<double> b, std::vector<double>& x) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t best = k;
    for (std::size_t i = k; i < n; ++i)
      if (std::abs(a[i][k]) > std::abs(a[best][k])) best = i;
    if (std::abs(a[best][k]) < 1e-9) return false;
    std::swap(a[best], a[k]);
    std::swap(b[best], b[k]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const double f = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= f * a[k][j];
      b[i] -= f * b[k];
    }
  }
  x.assign(n, 0);
  for (std::size_t k = n; k-- > 0;) {
    double s = b[k];
    for (std::size_t j = k + 1; j < n; ++j) s -= a[k][j] * x[j];
    x[k] = s / a[k][k];
  }
  return true;
}

/// The least cost over all vertices: each set of as many tight rows and bounds as there are columns. Infinite if there
/// are none.
double least_cost(const dense& d) {
  const std::size_t n = d.cost.size(), m = d.rows.size();
  double best = infinity;
  // A column is at its lower bound (0), at its upper bound (1), or free (2); as many rows are tight as columns are
  // free.
  std::vector<int> how(n, 0);
  for (;;) {
    std::vector<std::size_t> free;
    for (std::size_t c = 0; c < n; ++c)
      if (how[c] == 2) free.push_back(c);
    if (free.size() <= m)
      for (std::uint32_t set = 0; set < (1U << m); ++set) {
        if (static_cast<std::size_t>(__builtin_popcount(set)) != free.size()) continue;
        std::vector<double> x(n), part, b;
        for (std::size_t c = 0; c < n; ++c) x[c] = how[c] == 0 ? d.lower[c] : d.upper[c];
        std::vector<std::vector<double>> a;
        for (std::size_t r = 0; r < m; ++r) {
          if (!(set >> r & 1)) continue;
          a.emplace_back();
          double rest = d.least[r];
          for (std::size_t c = 0; c < n; ++c)
            if (how[c] == 2)
              a.back().push_back(d.rows[r][c]);
            else
              rest -= d.rows[r][c] * x[c];
          b.push_back(rest);
        }
        if (!solve_dense(a, b, part)) continue;
        for (std::size_t k = 0; k < free.size(); ++k) x[free[k]] = part[k];
        bool fits = true;
        double cost = 0;
        for (std::size_t c = 0; c < n; ++c) {
          fits = fits && x[c] >= d.lower[c] - 1e-9 && x[c] <= d.upper[c] + 1e-9;
          cost += d.cost[c] * x[c];
        }
        for (std::size_t r = 0; r < m && fits; ++r) {
          double sum = 0;
          for (std::size_t c = 0; c < n; ++c) sum += d.rows[r][c] * x[c];
          fits = sum >= d.least[r] - 1e-9;
        }
        if (fits) best = std::min(best, cost);
      }
    std::size_t c = 0;
    while (c < n && how[c] == 2) how[c++] = 0;
    if (c == n) return best;
    ++how[c];
  }
}

TEST_CASE("the least cost is that of the best vertex, also after rows are added and bounds change") {
  const bool is_long = remat::test::long_run();
  int empty = 0, costly = 0;
  for (std::uint64_t seed = 0; seed < (is_long ? 5000U : 250U); ++seed) {
    std::mt19937_64 engine(seed);
    dense d = random_program(engine, 2 + engine() % 4, 1 + engine() % 4, seed % 2);
    bounded_dual_simplex p = program_of(d);
    for (int change = 0; change < 6; ++change) {
      INFO("seed ", seed, " change ", change);
      const double least = least_cost(d);
      const bounded_dual_simplex::outcome end = p.solve(1e6, {});
      if (least == infinity) {
        ++empty;
        CHECK(end == bounded_dual_simplex::outcome::beyond);
      } else {
        costly += least > 0;
        REQUIRE(end == bounded_dual_simplex::outcome::optimal);
        REQUIRE(p.safe_bound() <= least);
        REQUIRE(p.safe_bound() >= least - 1e-3);
        double cost = 0;
        for (std::uint32_t c = 0; c < d.cost.size(); ++c) cost += d.cost[c] * p.value(c);
        REQUIRE(cost <= least + 1e-3);
        if (least >= 1) {
          CHECK(p.solve(least / 2, {}) == bounded_dual_simplex::outcome::beyond);
          CHECK(p.safe_bound() >= least / 2);
        }
      }
      const std::uint64_t what = engine() % 4;
      if (what == 0 && d.rows.size() < 6) {
        const dense more = random_program(engine, d.cost.size(), 1, seed % 2);
        d.rows.push_back(more.rows[0]);
        d.least.push_back(more.least[0]);
        std::vector<sparse_entry> entries;
        for (std::uint32_t c = 0; c < d.cost.size(); ++c)
          if (more.rows[0][c] != 0) entries.push_back({c, more.rows[0][c]});
        p.add_row(entries, more.least[0]);
      } else if (what == 1) {
        p.drop_slack_rows();
      } else {
        const auto c = static_cast<std::uint32_t>(engine() % d.cost.size());
        d.lower[c] = static_cast<double>(engine() % 2);
        d.upper[c] = engine() % 2 ? 1 : d.lower[c];
        p.set_bounds(c, d.lower[c], d.upper[c]);
      }
    }
  }
  CHECK(empty > 50);
  CHECK(costly > 200);
}

TEST_CASE("without a cutoff, an infinite bound proves that there is no solution, and nothing else does") {
  int empty = 0, solved = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed ", seed);
    std::mt19937_64 engine(seed);
    dense d = random_program(engine, 2 + engine() % 4, 1 + engine() % 4, seed % 2);
    for (double& c : d.cost) c -= 300;  // costs may be negative
    bounded_dual_simplex p(0, 1e-7);
    for (std::size_t c = 0; c < d.cost.size(); ++c) p.add_column(d.lower[c], d.upper[c], d.cost[c]);
    for (std::size_t r = 0; r < d.rows.size(); ++r) {
      std::vector<sparse_entry> entries;
      for (std::uint32_t c = 0; c < d.cost.size(); ++c) entries.push_back({c, d.rows[r][c]});
      p.add_row(entries, d.least[r]);
    }
    const double least = least_cost(d);
    const bounded_dual_simplex::outcome end = p.solve(infinity, {});
    CHECK(end == (least == infinity ? bounded_dual_simplex::outcome::beyond : bounded_dual_simplex::outcome::optimal));
    if (least == infinity) {
      ++empty;
      CHECK(p.safe_bound() == infinity);
    } else {
      ++solved;
      CHECK(p.safe_bound() <= least);
      CHECK(p.safe_bound() >= least - 1e-6);
    }
  }
  CHECK(empty > 20);
  CHECK(solved > 50);
}

TEST_CASE("any multipliers prove a bound that no solution is below") {
  double best_of_wrong = -infinity;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 engine(seed);
    const dense d = random_program(engine, 4, 4, seed % 2);
    bounded_dual_simplex p = program_of(d);
    const double least = least_cost(d);
    for (int k = 0; k < 20; ++k) {
      std::vector<double> y;
      for (std::size_t r = 0; r < d.rows.size(); ++r)
        y.push_back(static_cast<double>(engine() % 2000) / 64 * (engine() % 2 ? 1 : -1));
      CHECK(p.bound_of(y) <= least);
      best_of_wrong = std::max(best_of_wrong, p.bound_of(y) / least);
    }
  }
  CHECK(best_of_wrong > 0.3);
}

TEST_CASE("a stopped search has a proven bound, and goes on") {
  std::mt19937_64 engine(7);
  const dense d = random_program(engine, 120, 90, false);
  bounded_dual_simplex whole = program_of(d), stopped = program_of(d);
  const auto end = whole.solve(1e6, {});
  REQUIRE(end != bounded_dual_simplex::outcome::failed);
  std::uint64_t limit = 0;
  int stops = 0;
  for (;; ++stops) {
    stopped.limit_work(limit += 20000);
    if (stopped.solve(1e6, {}) != bounded_dual_simplex::outcome::stopped) break;
    CHECK(stopped.safe_bound() <= whole.safe_bound() + 1e-3);
  }
  CHECK(stops > 0);
  CHECK(stopped.safe_bound() == doctest::Approx(whole.safe_bound()).epsilon(1e-5));
}

TEST_CASE("a stop request ends a search wherever it is, also while it factors, and the search goes on") {
  std::mt19937_64 engine(7);
  const dense d = random_program(engine, 200, 150, false);
  bounded_dual_simplex whole = program_of(d);
  int polls = 0;
  const auto end = whole.solve(1e6, [&] {
    ++polls;
    return false;
  });
  REQUIRE(end != bounded_dual_simplex::outcome::failed);
  REQUIRE(polls > 10);
  for (int stop_at = 1; stop_at <= polls; ++stop_at) {
    bounded_dual_simplex p = program_of(d);
    int asked = 0;
    REQUIRE(p.solve(1e6, [&] { return ++asked == stop_at; }) == bounded_dual_simplex::outcome::stopped);
    CHECK(asked == stop_at);
    CHECK(p.safe_bound() <= whole.safe_bound() + 1e-3);
    CHECK(p.solve(1e6, {}) == end);
    CHECK(p.safe_bound() == doctest::Approx(whole.safe_bound()).epsilon(1e-5));
  }
}

TEST_CASE("many short solves ask as often as a long one whether to stop") {
  std::mt19937_64 engine(3);
  const dense d = random_program(engine, 40, 30, false);
  bounded_dual_simplex p = program_of(d);
  int asked = 0;
  const std::function<bool()> stop = [&] {
    ++asked;
    return false;
  };
  while (p.work() < 10'000'000) {  // no solve takes enough iterations to ask by itself
    const auto c = static_cast<std::uint32_t>(engine() % 40);
    const double x = engine() % 2 ? d.lower[c] : d.upper[c];
    p.set_bounds(c, x, x);
    static_cast<void>(p.solve(infinity, stop, 5));
    p.set_bounds(c, d.lower[c], d.upper[c]);
  }
  CHECK(asked > 50);
}

}  // namespace
