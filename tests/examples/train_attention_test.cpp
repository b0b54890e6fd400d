// SPDX-License-Identifier: BSL-1.0
// The kernels of train/tile_attention.cuh on the host, tensor cores included, beside sums in double precision.
// cuda_on_host.hpp comes first: what follows is compiled with its macros.
#include "support/cuda_on_host.hpp"
#include "support/wmma_on_host.hpp"
#include "train/tile_attention.cuh"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "support/relative_difference.hpp"

namespace {

using namespace train::gpu;
using numbers = std::vector<double>;

struct sizes {
  int batch, context, heads, head;
  attention::tiles of;
};

/// y, logarithms and the gradient of qkv.
struct result {
  numbers y, logarithms, gradient;
};

/// From the definition, probabilities and all.
result expected(const sizes& s, const numbers& qkv, const numbers& outer) {
  const auto n = [](auto x) { return static_cast<std::size_t>(x); };
  const int width = s.heads * s.head;
  result r;
  r.y.resize(n(s.batch * s.context * width));
  r.logarithms.resize(n(s.batch * s.heads * s.context));
  r.gradient.resize(qkv.size());
  const double scale = 1 / std::sqrt(static_cast<double>(s.head));
  for (int b = 0; b < s.batch; ++b)
    for (int h = 0; h < s.heads; ++h) {
      const auto in = [&](int row, int part, int c) {
        return n((b * s.context + row) * 3 * width + part * width + h * s.head + c);
      };
      const auto out = [&](int row, int c) { return n((b * s.context + row) * width + h * s.head + c); };
      for (int i = 0; i < s.context; ++i) {
        numbers p;
        double total = 0;
        for (int j = 0; j <= i; ++j) {
          double dot = 0;
          for (int c = 0; c < s.head; ++c) dot += qkv[in(i, 0, c)] * qkv[in(j, 1, c)];
          total += p.emplace_back(std::exp(scale * dot));
        }
        r.logarithms[n((b * s.heads + h) * s.context + i)] = std::log(total);
        double mean = 0;
        numbers change;
        for (int j = 0; j <= i; ++j) {
          p[n(j)] /= total;
          double dot = 0;
          for (int c = 0; c < s.head; ++c) {
            r.y[out(i, c)] += p[n(j)] * qkv[in(j, 2, c)];
            dot += outer[out(i, c)] * qkv[in(j, 2, c)];
          }
          change.push_back(dot);
          mean += p[n(j)] * dot;
        }
        for (int j = 0; j <= i; ++j)
          for (int c = 0; c < s.head; ++c) {
            const double slope = scale * p[n(j)] * (change[n(j)] - mean);
            r.gradient[in(i, 0, c)] += slope * qkv[in(j, 1, c)];
            r.gradient[in(j, 1, c)] += slope * qkv[in(i, 0, c)];
            r.gradient[in(j, 2, c)] += p[n(j)] * outer[out(i, c)];
          }
      }
    }
  return r;
}

/// By the kernels. Arrays have some elements more than they need, which must keep their value.
template <class Math>
result found(const sizes& s, const numbers& qkv, const numbers& outer) {
  using T = std::conditional_t<std::is_same_v<Math, in_bfloat16>, bfloat16, float>;
  constexpr float untouched = 77;
  constexpr std::size_t behind = 9;
  const auto elements = [&](const numbers& from) {
    std::vector<T> out;
    for (const double x : from) out.push_back(to_element<T>(static_cast<float>(x)));
    return out;
  };
  const std::size_t rows = static_cast<std::size_t>(s.batch) * static_cast<std::size_t>(s.context);
  const std::vector<T> in = elements(qkv), g = elements(outer);
  std::vector<T> y(outer.size() + behind, to_element<T>(untouched)), out(qkv.size() + behind, to_element<T>(untouched));
  std::vector<float> logarithms(rows * static_cast<std::size_t>(s.heads) + behind, untouched), dots = logarithms;
  attention::arrays<T> c;
  c.context = s.context;
  c.heads = s.heads;
  c.head = s.head;
  c.scale = 1 / std::sqrt(static_cast<float>(s.head));
  c.of = s.of;
  c.qkv = in.data();
  const auto grid = [&](int tile) {
    return dim3(static_cast<unsigned>((s.context + tile - 1) / tile), static_cast<unsigned>(s.heads),
                static_cast<unsigned>(s.batch));
  };
  const dim3 threads(attention::threads);
  cuda_on_host::launch(
      grid(s.of.rows), threads, nullptr, [](auto... a) { attention::forward<Math, T>(a...); }, c, y.data(),
      logarithms.data());
  c.logarithms = logarithms.data();
  c.y = y.data();
  c.gradient = g.data();
  c.out = out.data();
  c.dots = dots.data();
  cuda_on_host::launch(
      dim3(2), dim3(16), nullptr, [](auto... a) { attention::row_dots<T>(a...); }, c, static_cast<std::int64_t>(rows));
  cuda_on_host::launch(
      grid(s.of.keys), threads, nullptr, [](auto... a) { attention::backward_keys<Math, T>(a...); }, c);
  cuda_on_host::launch(
      grid(s.of.rows), threads, nullptr, [](auto... a) { attention::backward_queries<Math, T>(a...); }, c);
  const auto doubles = [&](const auto& from) {
    numbers to;
    for (const auto x : from) to.push_back(static_cast<double>(to_float(x)));
    CHECK(std::all_of(to.end() - behind, to.end(), [](double x) { return x == 77; }));
    to.resize(to.size() - behind);
    return to;
  };
  return {doubles(y), doubles(logarithms), doubles(out)};
}

template <class Math>
void check(const sizes& s, double within) {
  CAPTURE(s.context);
  CAPTURE(s.head);
  CAPTURE(s.of.rows);
  CAPTURE(s.of.keys);
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const auto rows = static_cast<std::size_t>(s.batch * s.context), width = static_cast<std::size_t>(s.heads * s.head);
  numbers qkv(rows * 3 * width), outer(rows * width);
  // The inputs themselves are elements, so that what differs is the arithmetic.
  for (numbers* list : {&qkv, &outer})
    for (double& x : *list)
      x = static_cast<double>(to_float(to_element<bfloat16>(static_cast<float>(2 * normal(random)))));
  const result a = found<Math>(s, qkv, outer), b = expected(s, qkv, outer);
  CHECK(remat::test::relative_difference(a.y, b.y) < within);
  CHECK(remat::test::relative_difference(a.logarithms, b.logarithms) < within);
  // The first query sees one key, so that its gradient is zero: compared together.
  CHECK(remat::test::relative_difference(a.gradient, b.gradient) < within);
}

constexpr attention::tiles tiles_of(int rows, int keys, int head) { return {rows, keys, (head + 15) / 16 * 16}; }

}  // namespace

TEST_CASE_TEMPLATE("attention by tiles is softmax attention, and its gradient, whatever the tiles and sizes", Math,
                   in_single, in_tf32, in_bfloat16) {
  const double within = std::is_same_v<Math, in_single> ? 2e-6 : std::is_same_v<Math, in_tf32> ? 2e-3 : 1e-2;
  check<Math>({1, 1, 1, 3, tiles_of(16, 16, 3)}, within);
  check<Math>({2, 16, 2, 16, tiles_of(16, 16, 16)}, within);
  check<Math>({1, 37, 3, 20, tiles_of(16, 16, 20)}, within);
  check<Math>({1, 37, 1, 20, tiles_of(32, 16, 20)}, within);
  check<Math>({2, 70, 1, 8, tiles_of(64, 32, 8)}, within);
  check<Math>({1, 70, 1, 8, tiles_of(32, 64, 8)}, within);
}

TEST_CASE("tiles are the largest that fit into the shared memory, and none if none do") {
  constexpr std::size_t usual = 48 * 1024, h200 = 227 * 1024;
  for (const std::int64_t head : {1, 16, 40, 64, 128})
    for (const std::size_t element : {2U, 4U})
      for (const std::size_t shared : {usual, h200}) {
        const attention::tiles t = attention::choose_tiles(head, element, shared);
        if (t.rows == 0) continue;
        CHECK(t.head % 16 == 0);
        CHECK(t.head >= head);
        CHECK(t.forward_bytes(element) <= shared);
        CHECK(t.backward_bytes(element) <= shared);
        CHECK(t.rows <= attention::threads / attention::lanes);
      }
  CHECK(attention::choose_tiles(64, 2, h200).rows == 64);
  CHECK(attention::choose_tiles(64, 2, usual).rows > 0);
  CHECK(attention::choose_tiles(128, 4, usual).rows == 0);
  CHECK(attention::choose_tiles(128, 4, h200).rows > 0);
  CHECK(attention::choose_tiles(100'000, 2, h200).rows == 0);
}
