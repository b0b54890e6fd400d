// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// A matrix product for machines without cuBLAS: sums are in single precision. Its reader includes cuda_runtime.h
/// first, or what stands for it: `tests/examples/train_products_test.cpp` runs the kernel on host threads.

#include <cstdint>

#include "train/elements.cuh"

namespace train::gpu {

/// The sizes of out = a b: a has rows × depth elements, b depth × columns.
struct product_sizes {
  std::int64_t rows, columns, depth;
};
/// A row-major matrix with `row` elements from row to row, or its transpose.
template <class T>
struct factor {
  const T* data;
  std::int64_t row;
  bool transposed = false;
};
/// Where the product goes, likewise.
template <class T>
struct product_result {
  T* data;
  std::int64_t row;
};

/// A block computes a tile of `side` × `side` elements; each of its threads 4 × 4 of them.
namespace tile {
inline constexpr int side = 64, depth = 16, threads = 256, own = 4;
}

/// Element (i, k) of a factor, 0 outside of its `rows` × `columns`.
template <class T>
__device__ float element_of(const factor<T>& f, std::int64_t i, std::int64_t k, std::int64_t rows,
                            std::int64_t columns) {
  if (i >= rows || k >= columns) return 0;
  return to_float(f.transposed ? f.data[k * f.row + i] : f.data[i * f.row + k]);
}

/// out = a b for block (x: columns, y: rows). Each element is one sum over the depth in its order, whatever the grid:
/// the same bits in each run.
template <class T>
__global__ void multiply_tiles(product_sizes s, factor<T> a, factor<T> b, product_result<T> out) {
  using namespace tile;
  __shared__ float of_a[tile::depth][side + 1], of_b[tile::depth][side + 1];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t top = std::int64_t{blockIdx.y} * side, left = std::int64_t{blockIdx.x} * side;
  float sum[own][own] = {};
  const int row = thread / (side / own) * own, column = thread % (side / own) * own;

  for (std::int64_t begin = 0; begin < s.depth; begin += tile::depth) {
    // Neighbouring threads read neighbouring elements, along the rows as they lie in memory.
    for (int i = thread; i < side * tile::depth; i += threads) {
      const int ka = a.transposed ? i / side : i % tile::depth, ia = a.transposed ? i % side : i / tile::depth;
      const int kb = b.transposed ? i % tile::depth : i / side, jb = b.transposed ? i / tile::depth : i % side;
      of_a[ka][ia] = element_of(a, top + ia, begin + ka, s.rows, s.depth);
      of_b[kb][jb] = element_of(b, begin + kb, left + jb, s.depth, s.columns);
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

  for (int i = 0; i < own; ++i)
    for (int j = 0; j < own; ++j)
      if (top + row + i < s.rows && left + column + j < s.columns)
        out.data[(top + row + i) * out.row + left + column + j] = to_element<T>(sum[i][j]);
}

}  // namespace train::gpu
