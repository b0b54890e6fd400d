// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// A matrix product in single precision, for machines without cuBLAS. Its reader includes cuda_runtime.h first, or what
/// stands for it: `tests/examples/train_products_test.cpp` runs the kernel on host threads.

#include <cstdint>

namespace train::gpu {

/// The sizes of out = scale · a b: a has rows × depth elements, b depth × columns; `batch` such products.
struct product_sizes {
  std::int64_t rows, columns, depth, batch = 1;
  float scale = 1;
};
/// A row-major matrix with `row` elements from row to row, or its transpose; in a batch, `stride` elements apart.
struct factor {
  const float* data;
  std::int64_t row;
  bool transposed = false;
  std::int64_t stride = 0;
};
/// Where the product goes, likewise.
struct product_result {
  float* data;
  std::int64_t row;
  std::int64_t stride = 0;
};

/// A block computes a tile of `side` × `side` elements; each of its threads 4 × 4 of them.
namespace tile {
inline constexpr int side = 64, depth = 16, threads = 256, own = 4;
}

/// Element (i, k) of a factor, 0 outside of its `rows` × `columns`.
__device__ inline float element_of(const factor& f, const float* data, std::int64_t i, std::int64_t k,
                                   std::int64_t rows, std::int64_t columns) {
  if (i >= rows || k >= columns) return 0;
  return f.transposed ? data[k * f.row + i] : data[i * f.row + k];
}

/// out = scale · a b for block (x: columns, y: rows, z: product of the batch). Each element is one sum over the depth
/// in its order, whatever the grid: the same bits in each run.
template <int = 0>
__global__ void multiply_tiles(product_sizes s, factor a, factor b, product_result out) {
  using namespace tile;
  __shared__ float of_a[tile::depth][side + 1], of_b[tile::depth][side + 1];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t top = std::int64_t{blockIdx.y} * side, left = std::int64_t{blockIdx.x} * side;
  const float* const from_a = a.data + std::int64_t{blockIdx.z} * a.stride;
  const float* const from_b = b.data + std::int64_t{blockIdx.z} * b.stride;
  float sum[own][own] = {};
  const int row = thread / (side / own) * own, column = thread % (side / own) * own;

  for (std::int64_t begin = 0; begin < s.depth; begin += tile::depth) {
    // Neighbouring threads read neighbouring elements, along the rows as they lie in memory.
    for (int i = thread; i < side * tile::depth; i += threads) {
      const int ka = a.transposed ? i / side : i % tile::depth, ia = a.transposed ? i % side : i / tile::depth;
      const int kb = b.transposed ? i % tile::depth : i / side, jb = b.transposed ? i / tile::depth : i % side;
      of_a[ka][ia] = element_of(a, from_a, top + ia, begin + ka, s.rows, s.depth);
      of_b[kb][jb] = element_of(b, from_b, begin + kb, left + jb, s.depth, s.columns);
    }
    __syncthreads();
    for (int k = 0; k < tile::depth; ++k) {
      float x[own], y[own];
      for (int i = 0; i < own; ++i) x[i] = of_a[k][row + i];
      for (int j = 0; j < own; ++j) y[j] = of_b[k][column + j];
      for (int i = 0; i < own; ++i)
        for (int j = 0; j < own; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    }
    __syncthreads();
  }

  float* const to = out.data + std::int64_t{blockIdx.z} * out.stride;
  for (int i = 0; i < own; ++i)
    for (int j = 0; j < own; ++j)
      if (top + row + i < s.rows && left + column + j < s.columns)
        to[(top + row + i) * out.row + left + column + j] = s.scale * sum[i][j];
}

}  // namespace train::gpu
