// SPDX-License-Identifier: BSL-1.0
// The kernel of train/tile_product.cuh on the host. cuda_on_host.hpp comes first: what follows is compiled with its
// macros.
#include "support/cuda_on_host.hpp"
#include "train/tile_product.cuh"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using namespace train::gpu;

template <class T>
void run_on_host(const product_sizes& s, const factor<T>& a, const factor<T>& b, const product_result<T>& out) {
  const auto blocks = [](std::int64_t n) { return static_cast<unsigned>((n + tile::side - 1) / tile::side); };
  cuda_on_host::launch(
      dim3(blocks(s.columns), blocks(s.rows)), dim3(tile::threads), nullptr,
      [](auto... arguments) { multiply_tiles<T>(arguments...); }, s, a, b, out);
}

/// A matrix with rows of `row` elements, random where the factor has elements; the rest is NaN, which must not be read.
template <class T>
std::vector<T> random_matrix(std::int64_t rows, std::int64_t columns, std::int64_t row, std::mt19937& random) {
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<T> out(static_cast<std::size_t>(rows * row), to_element<T>(std::nanf("")));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      out[static_cast<std::size_t>(i * row + j)] = to_element<T>(value(random));
  return out;
}

template <class T>
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
  const std::vector<T> a = random_matrix<T>(a_rows, a_columns, a_row, random);
  const std::vector<T> b = random_matrix<T>(b_rows, b_columns, b_row, random);
  const T untouched = to_element<T>(77);
  std::vector<T> out(static_cast<std::size_t>(s.rows * out_row), untouched);
  run_on_host<T>(s, {a.data(), a_row, a_transposed}, {b.data(), b_row, b_transposed}, {out.data(), out_row});

  const auto at = [](const std::vector<T>& m, std::int64_t i) { return to_float(m[static_cast<std::size_t>(i)]); };
  std::size_t wrong = 0;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    for (std::int64_t j = 0; j < s.columns; ++j) {
      float sum = 0;  // in the order of the depth, with the same roundings
      for (std::int64_t k = 0; k < s.depth; ++k)
        sum = std::fmaf(at(a, a_transposed ? k * a_row + i : i * a_row + k),
                        at(b, b_transposed ? j * b_row + k : k * b_row + j), sum);
      if (at(out, i * out_row + j) != to_float(to_element<T>(sum))) ++wrong;
    }
    for (std::int64_t j = s.columns; j < out_row; ++j)
      if (at(out, i * out_row + j) != to_float(untouched)) ++wrong;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE_TEMPLATE(
    "the own matrix product is the sum over the depth in its order, for factors as they are and transposed", T, float,
    bfloat16) {
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true}) {
      check_product<T>({5, 7, 3}, a_transposed, b_transposed);
      check_product<T>({64, 64, 16}, a_transposed, b_transposed);
      check_product<T>({65, 130, 33}, a_transposed, b_transposed);
    }
}

TEST_CASE("the own matrix product with no depth writes zeros") {
  std::vector<float> out(6, 1.0F);
  run_on_host<float>({2, 3, 0}, {nullptr, 0}, {nullptr, 3}, {out.data(), 3});
  CHECK(out == std::vector<float>(6, 0.0F));
}
