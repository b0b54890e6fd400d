// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The matrix operations of tensor cores (`nvcuda::wmma`) for kernels on the host, beside cuda_on_host.hpp: what the 32
/// threads of a warp do together, its first one does alone, and the others pass by. Sizes and layouts are checked as a
/// device's compiler and hardware ask for them.

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "support/cuda_on_host.hpp"
#include "train/elements.cuh"

namespace nvcuda::wmma {

namespace precision {
struct tf32;
}
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t : std::uint8_t { mem_row_major, mem_col_major };

/// Rounded to the ten bits of TF32, halves away from zero.
inline float __float_to_tf32(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  if (std::isfinite(x)) bits = (bits + 0x1000U) & ~0x1fffU;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static_assert(m == 16 && n == 16);
  static_assert(std::is_same_v<T, float>
                    ? std::is_same_v<Use, accumulator>
                    : (std::is_same_v<T, precision::tf32> ? k == 8 : std::is_same_v<T, __nv_bfloat16> && k == 16));
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m, columns = std::is_same_v<Use, matrix_a> ? k : n;
  std::array<float, static_cast<std::size_t>(rows* columns)> values{};
  float& at(int i, int j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  [[nodiscard]] float at(int i, int j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
};

namespace on_host {

inline bool is_first_of_warp() { return cuda_on_host::threadIdx.x % 32 == 0; }
template <class T>
void require_aligned(const T* p, unsigned row) {
  if (reinterpret_cast<std::uintptr_t>(p) % 32 != 0 || row * sizeof(T) % 16 != 0)
    throw std::logic_error("a matrix of tensor cores begins at a multiple of 32 bytes, its rows at multiples of 16");
}

}  // namespace on_host

template <class Use, int m, int n, int k, class T, class Layout>
void fill_fragment(fragment<Use, m, n, k, T, Layout>& f, float x) {
  f.values.fill(x);
}
template <class Use, int m, int n, int k, class T, class Layout, class Element>
void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f, const Element* from, unsigned row) {
  if (!on_host::is_first_of_warp()) return;
  on_host::require_aligned(from, row);
  for (int i = 0; i < f.rows; ++i)
    for (int j = 0; j < f.columns; ++j) {
      const float x = train::gpu::to_float(std::is_same_v<Layout, row_major> ? from[i * static_cast<int>(row) + j]
                                                                             : from[j * static_cast<int>(row) + i]);
      if (std::is_same_v<T, precision::tf32> && x != __float_to_tf32(x))
        throw std::logic_error("an element of a TF32 matrix was not rounded");
      f.at(i, j) = x;
    }
}
template <int m, int n, int k>
void load_matrix_sync(fragment<accumulator, m, n, k, float>& f, const float* from, unsigned row, layout_t) {
  if (!on_host::is_first_of_warp()) return;
  on_host::require_aligned(from, row);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) f.at(i, j) = from[i * static_cast<int>(row) + j];
}
template <int m, int n, int k, class T, class A, class B>
void mma_sync(fragment<accumulator, m, n, k, float>& out, const fragment<matrix_a, m, n, k, T, A>& a,
              const fragment<matrix_b, m, n, k, T, B>& b, const fragment<accumulator, m, n, k, float>& c) {
  if (!on_host::is_first_of_warp()) return;
  out = c;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      for (int d = 0; d < k; ++d) out.at(i, j) += a.at(i, d) * b.at(d, j);
}
template <int m, int n, int k>
void store_matrix_sync(float* to, const fragment<accumulator, m, n, k, float>& f, unsigned row, layout_t) {
  if (!on_host::is_first_of_warp()) return;
  on_host::require_aligned(to, row);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) to[i * static_cast<int>(row) + j] = f.at(i, j);
}

}  // namespace nvcuda::wmma
