// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Causal attention by tiles: the squares of scores are never stored. The forward pass keeps the logarithm of each
/// row's sum of exponentials, with which the backward pass computes the probabilities again, tile by tile (Dao et al.,
/// "FlashAttention", 2022; Dao, "FlashAttention-2", 2023). No sum depends on the order in which blocks run.
///
/// A block has its tiles in shared memory, and multiplies them with tensor cores where the precision has some.

#include <mma.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "train/elements.cuh"

namespace train::gpu {

/// How tiles are multiplied: the elements in shared memory, and those of the tensor cores. Sums are in single
/// precision.
struct in_bfloat16 {
  using element = bfloat16;
  using factor = bfloat16;
  static constexpr int depth = 16;
  static constexpr bool has_tensor_cores = true;
  __device__ static element rounded(float x) { return to_element<bfloat16>(x); }
};
struct in_tf32 {
  using element = float;
  using factor = nvcuda::wmma::precision::tf32;
  static constexpr int depth = 8;
  static constexpr bool has_tensor_cores = true;
  __device__ static element rounded(float x) { return nvcuda::wmma::__float_to_tf32(x); }
};
struct in_single {
  using element = float;
  static constexpr bool has_tensor_cores = false;
  __device__ static element rounded(float x) { return x; }
};

namespace attention {

inline constexpr int threads = 256, lanes = 4;  ///< `lanes` threads for each row of a softmax

/// The sizes of tiles: `rows` queries and `keys` keys, both multiples of 16 and at most threads / lanes. A row in
/// shared memory has eight elements more than it needs, so that rows begin in different banks.
struct tiles {
  int rows = 0, keys = 0, head = 0;  ///< `head`: elements of a head, up to the next multiple of 16
  [[nodiscard]] __host__ __device__ constexpr int head_row() const { return head + 8; }
  [[nodiscard]] __host__ __device__ constexpr int key_row() const { return keys + 8; }
  [[nodiscard]] constexpr std::size_t forward_bytes(std::size_t element) const {
    const auto r = static_cast<std::size_t>(rows), k = static_cast<std::size_t>(keys);
    const auto h = static_cast<std::size_t>(head_row()), s = static_cast<std::size_t>(key_row());
    return 4 * (r * s + r * h + (3 + lanes) * r) + element * (r * h + k * h + r * s);
  }
  [[nodiscard]] constexpr std::size_t backward_bytes(std::size_t element) const {
    const auto r = static_cast<std::size_t>(rows), k = static_cast<std::size_t>(keys);
    const auto h = static_cast<std::size_t>(head_row()), s = static_cast<std::size_t>(key_row());
    const std::size_t gradients = r > k ? r : k;
    return 4 * (2 * r * s + 2 * gradients * h) + element * (2 * r * h + 2 * k * h + 2 * r * s);
  }
};

/// The largest tiles that fit into `shared` bytes; no rows if none do.
[[nodiscard]] constexpr tiles choose_tiles(std::int64_t head, std::size_t element, std::size_t shared) {
  const int padded = static_cast<int>((head + 15) / 16 * 16);
  for (const tiles t : {tiles{64, 64, padded}, tiles{64, 32, padded}, tiles{32, 32, padded}, tiles{32, 16, padded},
                        tiles{16, 16, padded}})
    if (t.forward_bytes(element) <= shared && t.backward_bytes(element) <= shared) return t;
  return {0, 0, padded};
}

/// The arrays of one call. A row of `qkv` holds the queries of all heads, then the keys, then the values.
template <class T>
struct arrays {
  int context = 0, heads = 0, head = 0;
  float scale = 1;
  tiles of{};
  const T* qkv = nullptr;
  // The backward pass alone has these.
  const float* logarithms = nullptr;          ///< [batch, heads, context]
  const T *y = nullptr, *gradient = nullptr;  ///< `gradient`: of y
  T* out = nullptr;                           ///< the gradient of qkv
  float* dots = nullptr;                      ///< [batch, heads, context]: Σ y · gradient of each row and head
  [[nodiscard]] __device__ std::int64_t width() const { return std::int64_t{heads} * head; }
  /// The first of the queries (part 0), keys (1) or values (2) of this block's head and sample, in an array like qkv.
  template <class U>
  [[nodiscard]] __device__ U* part(U* of_qkv, int which) const {
    return of_qkv + std::int64_t{blockIdx.z} * context * 3 * width() + which * width() +
           std::int64_t{blockIdx.y} * head;
  }
  /// The same in an array like y.
  template <class U>
  [[nodiscard]] __device__ U* of_y(U* all) const {
    return all + std::int64_t{blockIdx.z} * context * width() + std::int64_t{blockIdx.y} * head;
  }
  /// The number of this block's head and sample, among all, times the context.
  [[nodiscard]] __device__ std::int64_t row_of_head() const {
    return (std::int64_t{blockIdx.z} * heads + blockIdx.y) * context;
  }
};

/// out (+)= a b in shared memory: a is rows × depth, b depth × columns, row-major or, with `a_columns` and `b_columns`,
/// column-major; sizes are multiples of 16. All threads of the block call it; the caller waits before and behind it.
template <class Math, bool a_columns, bool b_columns>
__device__ void multiply(int rows, int columns, int depth, const typename Math::element* a, int a_row,
                         const typename Math::element* b, int b_row, float* out, int out_row, bool adds) {
  if constexpr (Math::has_tensor_cores) {
    using namespace nvcuda::wmma;
    using a_layout = std::conditional_t<a_columns, col_major, row_major>;
    using b_layout = std::conditional_t<b_columns, col_major, row_major>;
    const int across = columns / 16;
    for (int tile = static_cast<int>(threadIdx.x) / 32; tile < rows / 16 * across; tile += threads / 32) {
      const int i = tile / across * 16, j = tile % across * 16;
      float* const at = out + i * out_row + j;
      fragment<accumulator, 16, 16, Math::depth, float> sum;
      fill_fragment(sum, 0.0F);
      if (adds) load_matrix_sync(sum, at, static_cast<unsigned>(out_row), mem_row_major);
      for (int k = 0; k < depth; k += Math::depth) {
        fragment<matrix_a, 16, 16, Math::depth, typename Math::factor, a_layout> x;
        fragment<matrix_b, 16, 16, Math::depth, typename Math::factor, b_layout> y;
        load_matrix_sync(x, a_columns ? a + k * a_row + i : a + i * a_row + k, static_cast<unsigned>(a_row));
        load_matrix_sync(y, b_columns ? b + j * b_row + k : b + k * b_row + j, static_cast<unsigned>(b_row));
        mma_sync(sum, x, y, sum);
      }
      store_matrix_sync(at, sum, static_cast<unsigned>(out_row), mem_row_major);
    }
  } else {
    for (int element = static_cast<int>(threadIdx.x); element < rows * columns; element += threads) {
      const int i = element / columns, j = element % columns;
      float sum = adds ? out[i * out_row + j] : 0.0F;
      for (int k = 0; k < depth; ++k)
        sum =
            fmaf(a_columns ? a[k * a_row + i] : a[i * a_row + k], b_columns ? b[j * b_row + k] : b[k * b_row + j], sum);
      out[i * out_row + j] = sum;
    }
  }
}

/// Copies rows [first, first + rows) of a head into shared memory; zeros stand behind the last row and element.
template <class Math, class T>
__device__ void load(const arrays<T>& c, const T* from, std::int64_t row, int first, int rows,
                     typename Math::element* to) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * c.of.head; i += threads) {
    const int r = i / c.of.head, column = i % c.of.head;
    const bool is_there = first + r < c.context && column < c.head;
    to[r * c.of.head_row() + column] = Math::rounded(is_there ? to_float(from[(first + r) * row + column]) : 0.0F);
  }
}
/// The other way, with each row times its share if there are shares.
template <class T>
__device__ void store(const arrays<T>& c, const float* from, const float* shares, int first, int rows, T* to,
                      std::int64_t row) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * c.head; i += threads) {
    const int r = i / c.head, column = i % c.head;
    if (first + r >= c.context) continue;
    const float x = from[r * c.of.head_row() + column];
    to[(first + r) * row + column] = to_element<T>(shares != nullptr ? x * shares[r] : x);
  }
}
__device__ inline void clear(float* x, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += threads) x[i] = 0;
}
__device__ inline int least(int a, int b) { return a < b ? a : b; }

/// The result and the logarithms, for block (x: tile of queries, y: head, z: sample).
template <class Math, class T>
__global__ void forward(arrays<T> c, T* out, float* logarithms) {
  using element = typename Math::element;
  extern __shared__ __align__(32) float forward_tiles[];
  const tiles of = c.of;
  const int wide = of.head_row(), across = of.key_row(), thread = static_cast<int>(threadIdx.x);
  float *const scores = forward_tiles, *const y = scores + of.rows * across, *const most = y + of.rows * wide,
               *const sums = most + of.rows, *const factors = sums + of.rows, *const parts = factors + of.rows;
  auto* const queries = reinterpret_cast<element*>(parts + lanes * of.rows);
  element *const others = queries + of.rows * wide, *const probabilities = others + of.keys * wide;
  const std::int64_t row = 3 * c.width();
  const int first = static_cast<int>(blockIdx.x) * of.rows, end = least(first + of.rows, c.context);
  const int r = thread / lanes, lane = thread % lanes;  // the row of a softmax; threads behind the last one are idle
  const auto seen = [&](int key) { return key <= first + r; };  // nothing is stored behind the last row

  load<Math>(c, c.part(c.qkv, 0), row, first, of.rows, queries);
  clear(y, of.rows * wide);
  if (thread < of.rows) {
    most[thread] = -INFINITY;
    sums[thread] = 0;
  }
  for (int key = 0; key < end; key += of.keys) {
    __syncthreads();
    load<Math>(c, c.part(c.qkv, 1), row, key, of.keys, others);
    __syncthreads();
    multiply<Math, false, true>(of.rows, of.keys, of.head, queries, wide, others, wide, scores, across, false);
    __syncthreads();
    load<Math>(c, c.part(c.qkv, 2), row, key, of.keys, others);  // the values, in the place of the keys

    if (r < of.rows) {
      float x = -INFINITY;
      for (int k = lane; k < of.keys; k += lanes)
        if (seen(key + k)) x = fmaxf(x, c.scale * scores[r * across + k]);
      parts[r * lanes + lane] = x;
    }
    __syncthreads();
    float now = -INFINITY;
    if (r < of.rows) {
      now = most[r];
      for (int i = 0; i < lanes; ++i) now = fmaxf(now, parts[r * lanes + i]);
    }
    __syncthreads();
    if (r < of.rows) {
      float x = 0;
      for (int k = lane; k < of.keys; k += lanes) {
        const float p = seen(key + k) ? expf(c.scale * scores[r * across + k] - now) : 0.0F;
        x += p;
        probabilities[r * across + k] = Math::rounded(p);
      }
      parts[r * lanes + lane] = x;
      if (lane == 0) factors[r] = expf(most[r] - now);
    }
    __syncthreads();
    if (r < of.rows && lane == 0) {
      most[r] = now;
      float x = sums[r] * factors[r];
      for (int i = 0; i < lanes; ++i) x += parts[r * lanes + i];
      sums[r] = x;
    }
    for (int i = thread; i < of.rows * of.head; i += threads)
      y[i / of.head * wide + i % of.head] *= factors[i / of.head];
    __syncthreads();
    multiply<Math, false, false>(of.rows, of.head, of.keys, probabilities, across, others, wide, y, wide, true);
  }
  __syncthreads();
  if (thread < of.rows) {
    if (first + thread < c.context) logarithms[c.row_of_head() + first + thread] = most[thread] + logf(sums[thread]);
    factors[thread] = 1 / sums[thread];
  }
  __syncthreads();
  store(c, y, factors, first, of.rows, c.of_y(out), c.width());
}

/// dots, one row of one head for each thread.
template <class T>
__global__ void row_dots(arrays<T> c, std::int64_t rows) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * c.heads; i += stride) {
    const std::int64_t row = i / c.heads, head = i % c.heads, at = row * c.width() + head * c.head;
    float dot = 0;
    for (int k = 0; k < c.head; ++k) dot += to_float(c.y[at + k]) * to_float(c.gradient[at + k]);
    c.dots[(row / c.context * c.heads + head) * c.context + row % c.context] = dot;
  }
}

/// Both passes over the tiles of the backward pass, in shared memory: from the tiles of queries, keys, values and
/// gradients to the probabilities, and to the gradients of the scores.
template <class Math, class T>
struct backward_tiles {
  using element = typename Math::element;
  const arrays<T>& c;
  float *scores, *changes, *gradients;                                // `gradients`: two accumulators
  element *queries, *outer, *keys, *values, *probabilities, *slopes;  // `outer`: the gradient of y

  __device__ backward_tiles(const arrays<T>& call, float* memory) : c(call) {
    const int wide = c.of.head_row(), square = c.of.rows * c.of.key_row();
    scores = memory;
    changes = scores + square;
    gradients = changes + square;
    queries = reinterpret_cast<element*>(gradients + 2 * (c.of.rows > c.of.keys ? c.of.rows : c.of.keys) * wide);
    outer = queries + c.of.rows * wide;
    keys = outer + c.of.rows * wide;
    values = keys + c.of.keys * wide;
    probabilities = values + c.of.keys * wide;
    slopes = probabilities + square;
  }
  __device__ void load_queries(int first) const {
    load<Math>(c, c.part(c.qkv, 0), 3 * c.width(), first, c.of.rows, queries);
    load<Math>(c, c.of_y(c.gradient), c.width(), first, c.of.rows, outer);
  }
  __device__ void load_keys(int first) const {
    load<Math>(c, c.part(c.qkv, 1), 3 * c.width(), first, c.of.keys, keys);
    load<Math>(c, c.part(c.qkv, 2), 3 * c.width(), first, c.of.keys, values);
  }
  /// The tiles must be loaded; all threads wait in it.
  __device__ void find_slopes(int first_query, int first_key) const {
    const tiles of = c.of;
    const int wide = of.head_row(), across = of.key_row();
    __syncthreads();
    multiply<Math, false, true>(of.rows, of.keys, of.head, queries, wide, keys, wide, scores, across, false);
    multiply<Math, false, true>(of.rows, of.keys, of.head, outer, wide, values, wide, changes, across, false);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < of.rows * of.keys; i += threads) {
      const int r = i / of.keys, k = i % of.keys, at = r * across + k, query = first_query + r;
      float p = 0, slope = 0;
      if (first_key + k <= query && query < c.context) {
        p = expf(c.scale * scores[at] - c.logarithms[c.row_of_head() + query]);
        slope = c.scale * p * (changes[at] - c.dots[c.row_of_head() + query]);
      }
      probabilities[at] = Math::rounded(p);
      slopes[at] = Math::rounded(slope);
    }
    __syncthreads();
  }
};

/// The gradients of keys and values, for block (x: tile of keys, y: head, z: sample).
template <class Math, class T>
__global__ void backward_keys(arrays<T> c) {
  extern __shared__ __align__(32) float backward_memory[];
  const backward_tiles<Math, T> tile(c, backward_memory);
  const int wide = c.of.head_row(), across = c.of.key_row(), first = static_cast<int>(blockIdx.x) * c.of.keys;
  float *const of_keys = tile.gradients, *const of_values = of_keys + c.of.keys * wide;
  clear(of_keys, 2 * c.of.keys * wide);
  tile.load_keys(first);
  for (int query = first / c.of.rows * c.of.rows; query < c.context; query += c.of.rows) {
    __syncthreads();
    tile.load_queries(query);
    tile.find_slopes(query, first);
    multiply<Math, true, false>(c.of.keys, c.of.head, c.of.rows, tile.probabilities, across, tile.outer, wide,
                                of_values, wide, true);
    multiply<Math, true, false>(c.of.keys, c.of.head, c.of.rows, tile.slopes, across, tile.queries, wide, of_keys, wide,
                                true);
  }
  __syncthreads();
  store(c, of_keys, nullptr, first, c.of.keys, c.part(c.out, 1), 3 * c.width());
  store(c, of_values, nullptr, first, c.of.keys, c.part(c.out, 2), 3 * c.width());
}

/// The gradients of queries, for block (x: tile of queries, y: head, z: sample).
template <class Math, class T>
__global__ void backward_queries(arrays<T> c) {
  extern __shared__ __align__(32) float backward_memory[];
  const backward_tiles<Math, T> tile(c, backward_memory);
  const int wide = c.of.head_row(), across = c.of.key_row(), first = static_cast<int>(blockIdx.x) * c.of.rows;
  clear(tile.gradients, c.of.rows * wide);
  tile.load_queries(first);
  for (int key = 0; key < least(first + c.of.rows, c.context); key += c.of.keys) {
    __syncthreads();
    tile.load_keys(key);
    tile.find_slopes(first, key);
    multiply<Math, false, false>(c.of.rows, c.of.head, c.of.keys, tile.slopes, across, tile.keys, wide, tile.gradients,
                                 wide, true);
  }
  __syncthreads();
  store(c, tile.gradients, nullptr, first, c.of.rows, c.part(c.out, 0), 3 * c.width());
}

}  // namespace attention
}  // namespace train::gpu
