// SPDX-License-Identifier: BSL-1.0

// The kernel of train/tile_product.cuh, run on host threads: one for each thread of a block, a barrier for
// __syncthreads.
#include <doctest/doctest.h>

#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace {

struct place {
  unsigned x = 0, y = 0, z = 0;
};
place blockIdx;  // set between blocks, when no thread of the kernel runs
thread_local place threadIdx;
std::barrier<>* block_barrier = nullptr;
void wait_for_block() { block_barrier->arrive_and_wait(); }

}  // namespace

#define __global__
#define __device__
#define __shared__ static
#define __syncthreads wait_for_block
using std::fmaf;
#include "train/tile_product.cuh"

namespace {

using namespace train::gpu;

void run_on_host(const product_sizes& s, const factor& a, const factor& b, const product_result& out) {
  std::barrier<> barrier(tile::threads);
  block_barrier = &barrier;
  const auto blocks = [](std::int64_t n) { return static_cast<unsigned>((n + tile::side - 1) / tile::side); };
  std::vector<place> grid;
  for (unsigned z = 0; z < static_cast<unsigned>(s.batch); ++z)
    for (unsigned y = 0; y < blocks(s.rows); ++y)
      for (unsigned x = 0; x < blocks(s.columns); ++x) grid.push_back({x, y, z});
  blockIdx = grid.front();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < tile::threads; ++t)
    threads.emplace_back([&, t] {
      threadIdx = {t, 0, 0};
      for (std::size_t i = 0; i < grid.size(); ++i) {
        multiply_tiles<>(s, a, b, out);
        barrier.arrive_and_wait();
        if (t == 0 && i + 1 < grid.size()) blockIdx = grid[i + 1];
        barrier.arrive_and_wait();
      }
    });
  for (std::thread& t : threads) t.join();
}

/// A matrix with rows of `row` elements, random where the factor has elements; the rest is NaN, which must not be read.
std::vector<float> random_matrix(std::int64_t rows, std::int64_t columns, std::int64_t row, std::mt19937& random) {
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> out(static_cast<std::size_t>(rows * row), std::nanf(""));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) out[static_cast<std::size_t>(i * row + j)] = value(random);
  return out;
}

void check_product(product_sizes s, bool a_transposed, bool b_transposed) {
  CAPTURE(s.rows);
  CAPTURE(s.columns);
  CAPTURE(s.depth);
  CAPTURE(a_transposed);
  CAPTURE(b_transposed);
  std::mt19937 random(1);
  const std::int64_t a_rows = a_transposed ? s.depth : s.rows, a_columns = a_transposed ? s.rows : s.depth;
  const std::int64_t b_rows = b_transposed ? s.columns : s.depth, b_columns = b_transposed ? s.depth : s.columns;
  const std::int64_t a_row = a_columns + 3, b_row = b_columns + 5, out_row = s.columns + 2;
  const std::vector<float> a = random_matrix(a_rows * s.batch, a_columns, a_row, random);
  const std::vector<float> b = random_matrix(b_rows * s.batch, b_columns, b_row, random);
  constexpr float untouched = 77;
  std::vector<float> out(static_cast<std::size_t>(s.batch * s.rows * out_row), untouched);
  run_on_host(s, {a.data(), a_row, a_transposed, a_rows * a_row}, {b.data(), b_row, b_transposed, b_rows * b_row},
              {out.data(), out_row, s.rows * out_row});

  const auto at = [](const std::vector<float>& m, std::int64_t i) { return m[static_cast<std::size_t>(i)]; };
  std::size_t wrong = 0;
  for (std::int64_t z = 0; z < s.batch; ++z)
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t j = 0; j < s.columns; ++j) {
        float sum = 0;  // in the order of the depth, with the same roundings
        for (std::int64_t k = 0; k < s.depth; ++k)
          sum = std::fmaf(at(a, z * a_rows * a_row + (a_transposed ? k * a_row + i : i * a_row + k)),
                          at(b, z * b_rows * b_row + (b_transposed ? j * b_row + k : k * b_row + j)), sum);
        if (at(out, (z * s.rows + i) * out_row + j) != s.scale * sum) ++wrong;
      }
      for (std::int64_t j = s.columns; j < out_row; ++j)
        if (at(out, (z * s.rows + i) * out_row + j) != untouched) ++wrong;
    }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("the own matrix product is the sum over the depth in its order, for factors as they are and transposed") {
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true}) {
      check_product({5, 7, 3}, a_transposed, b_transposed);
      check_product({64, 64, 16}, a_transposed, b_transposed);
      check_product({65, 130, 33, 2, 0.25F}, a_transposed, b_transposed);
    }
}

TEST_CASE("the own matrix product with no depth writes zeros") {
  std::vector<float> out(6, 1.0F);
  run_on_host({2, 3, 0}, {nullptr, 0}, {nullptr, 3}, {out.data(), 3});
  CHECK(out == std::vector<float>(6, 0.0F));
}
