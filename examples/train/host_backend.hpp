// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The layers' kernels on the host: matrix products by Eigen, the rest in plain loops.
///
/// **A kernel computes the same bits whenever it runs.** Plain loops add up in a fixed order. The bits of Eigen's
/// products depend on the sizes and, in places, on the addresses modulo its vector length: data aligned to 64 bytes, as
/// in an arena and in `aligned_buffer`, gives the same bits each time. All kernels use one thread; Eigen must be
/// compiled without OpenMP.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "remat/execute/launch_plan.hpp"
#include "train/layers.hpp"

namespace train {

using remat::host_call;

namespace host {

using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using view = Eigen::Map<row_major, Eigen::Unaligned, Eigen::OuterStride<>>;
using const_view = Eigen::Map<const row_major, Eigen::Unaligned, Eigen::OuterStride<>>;

/// A matrix in memory whose rows begin `stride` elements apart.
inline view at(float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {data, rows, columns, Eigen::OuterStride<>(stride)};
}
inline const_view at(const float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {data, rows, columns, Eigen::OuterStride<>(stride)};
}
inline const_view input(const host_call& c, std::size_t i, std::int64_t rows, std::int64_t columns) {
  return at(c.input<float>(i).data(), rows, columns, columns);
}
inline view output(const host_call& c, std::size_t i, std::int64_t rows, std::int64_t columns) {
  return at(c.output<float>(i).data(), rows, columns, columns);
}

// Matrix products of one type for all layers: each further type of Eigen's takes long to compile.
inline void product(view out, const_view a, const_view b) { out.noalias() = a * b; }                 // a b
inline void product_tn(view out, const_view a, const_view b) { out.noalias() = a.transpose() * b; }  // aᵀ b
inline void product_nt(view out, const_view a, const_view b) { out.noalias() = a * b.transpose(); }  // a bᵀ
inline void add_product_nt(view out, const_view a, const_view b) { out.noalias() += a * b.transpose(); }

/// Writes `value(i)` to element i of `out`, or adds it. Each value is rounded before it is added: it goes through
/// memory, so that the compiler cannot contract product and sum into one fused multiply-add.
template <class Value>
void write(float* out, std::size_t size, bool adds, const Value& value) {
  constexpr std::size_t block = 256;
  float part[block];
  for (std::size_t begin = 0; begin < size; begin += block) {
    const std::size_t n = std::min(block, size - begin);
    for (std::size_t i = 0; i < n; ++i) part[i] = value(begin + i);
    if (adds)
      for (std::size_t i = 0; i < n; ++i) out[begin + i] += part[i];
    else
      std::memcpy(out + begin, part, n * sizeof(float));
  }
}

template <class Value>
void write(const host_call& c, std::size_t i, const Value& value) {
  const std::span<float> out = c.output<float>(i);
  write(out.data(), out.size(), c.adds[i] != 0, value);
}

/// Writes a matrix product to output `i`, rows × columns, or adds it. `product(out, begin, n)` computes n of its rows.
template <class Product>
void write_product(const host_call& c, std::size_t i, std::int64_t rows, std::int64_t columns, const Product& product) {
  if (c.outputs[i].empty()) return;
  constexpr std::int64_t block = 256;
  row_major part;
  if (c.adds[i]) part.resize(std::min(block, rows), columns);
  for (std::int64_t begin = 0; begin < rows; begin += block) {
    const std::int64_t n = std::min(block, rows - begin);
    const view out = at(c.output<float>(i).data() + begin * columns, n, columns, columns);
    if (!c.adds[i]) {
      product(out, begin, n);
      continue;
    }
    const view contribution = at(part.data(), n, columns, columns);
    product(contribution, begin, n);
    view(out) += contribution;
  }
}

/// Σ value(i), as eight sums that are added at the end. The order depends on `size` alone.
template <class Value>
float sum(std::size_t size, const Value& value) {
  float part[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8)
    for (std::size_t k = 0; k < 8; ++k) part[k] += value(i + k);
  for (; i < size; ++i) part[i % 8] += value(i);
  return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

/// e^x within a few units in the last place, for loops that the compiler can vectorise; 0 below −87, no more than e^88.
inline float exponential(float x) {
  const float clamped = std::min(std::max(x, -87.0F), 88.0F);
  const float shifted = clamped * 1.44269504F + 12582912.0F;  // the integer part lands in the low bits
  const float whole = shifted - 12582912.0F;
  const float r = (clamped - whole * 0.693359375F) + whole * 2.12194440e-4F;
  const float p = 1 + r * (1 + r * (0.5F + r * (1.0F / 6 + r * (1.0F / 24 + r * (1.0F / 120 + r * (1.0F / 720))))));
  const float power = std::bit_cast<float>((std::bit_cast<std::int32_t>(shifted) - 0x4b400000 + 127) << 23);
  return x < -87.0F ? 0.0F : p * power;
}
inline float hyperbolic_tangent(float x) { return 1 - 2 / (exponential(2 * x) + 1); }

}  // namespace host

class host_backend {
 public:
  using kernel = std::function<void(const host_call&)>;
  static constexpr std::int64_t element_bytes = sizeof(float);

  [[nodiscard]] kernel one() const {
    return [](const host_call& c) { host::write(c, 0, [](std::size_t) { return 1.0F; }); };
  }
  [[nodiscard]] kernel zero() const {
    return [](const host_call& c) { host::write(c, 0, [](std::size_t) { return 0.0F; }); };
  }
  [[nodiscard]] kernel sum() const {
    return [](const host_call& c) {
      const auto x = c.input<float>(0);
      host::write(c, 0, [&](std::size_t i) { return x[i]; });
    };
  }

  [[nodiscard]] linear_kernels<kernel> linear(const linear_sizes& s) const {
    linear_kernels<kernel> k;
    k.forward.run = [s](const host_call& c) {
      auto y = host::output(c, 0, s.rows, s.out);
      host::product(y, host::input(c, 0, s.rows, s.in), host::input(c, 1, s.in, s.out));
      if (s.bias) y.rowwise() += host::input(c, 2, 1, s.out).row(0);
    };
    k.input.run = [s](const host_call& c) {
      const auto w = host::input(c, 0, s.in, s.out);
      const float* g = c.input<float>(1).data();
      host::write_product(c, 0, s.rows, s.in, [&](host::view out, std::int64_t begin, std::int64_t n) {
        host::product_nt(out, host::at(g + begin * s.out, n, s.out, s.out), w);
      });
    };
    k.weight.run = [s](const host_call& c) {
      const float* x = c.input<float>(0).data();
      const auto g = host::input(c, 1, s.rows, s.out);
      host::write_product(c, 0, s.in, s.out, [&](host::view out, std::int64_t begin, std::int64_t n) {
        host::product_tn(out, host::at(x + begin, s.rows, n, s.in), g);
      });
      if (s.bias) write_column_sums(c, 1, g);
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> relu(std::int64_t) const {
    unary_kernels<kernel> k;
    k.forward.run = [](const host_call& c) {
      const auto x = c.input<float>(0);
      host::write(c, 0, [&](std::size_t i) { return x[i] > 0 ? x[i] : 0.0F; });
    };
    k.backward.run = [](const host_call& c) {
      const auto y = c.input<float>(0), g = c.input<float>(1);
      host::write(c, 0, [&](std::size_t i) { return y[i] > 0 ? g[i] : 0.0F; });
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> gelu(std::int64_t) const {
    constexpr float a = 0.7978845608F, b = 0.044715F;
    unary_kernels<kernel> k;
    k.forward.run = [](const host_call& c) {
      const auto x = c.input<float>(0);
      host::write(c, 0, [&](std::size_t i) {
        const float v = x[i];
        return 0.5F * v * (1 + host::hyperbolic_tangent(a * (v + b * v * v * v)));
      });
    };
    k.backward.run = [](const host_call& c) {
      const auto x = c.input<float>(0), g = c.input<float>(1);
      host::write(c, 0, [&](std::size_t i) {
        const float v = x[i];
        const float t = host::hyperbolic_tangent(a * (v + b * v * v * v));
        return g[i] * (0.5F * (1 + t) + 0.5F * v * (1 - t * t) * a * (1 + 3 * b * v * v));
      });
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> dropout(const dropout_sizes& s) const {
    unary_kernels<kernel> k;
    const float scale = 1 / (1 - s.rate);
    k.forward.run = [s, scale](const host_call& c) {
      const auto x = c.input<float>(0);
      host::write(c, 0, [&](std::size_t i) { return dropout_keeps(c.seed, i, s.rate) ? x[i] * scale : 0.0F; });
      c.output<std::uint64_t>(1)[0] = c.seed;
    };
    k.backward.run = [s, scale](const host_call& c) {
      const std::uint64_t seed = c.input<std::uint64_t>(0)[0];
      const auto g = c.input<float>(1);
      host::write(c, 0, [&](std::size_t i) { return dropout_keeps(seed, i, s.rate) ? g[i] * scale : 0.0F; });
    };
    return k;
  }

  [[nodiscard]] work<kernel> add(std::int64_t) const {
    return {[](const host_call& c) {
              const auto a = c.input<float>(0), b = c.input<float>(1);
              host::write(c, 0, [&](std::size_t i) { return a[i] + b[i]; });
            },
            0};
  }

  [[nodiscard]] norm_kernels<kernel> layer_norm(const norm_sizes& s) const {
    norm_kernels<kernel> k;
    const auto rows = static_cast<std::size_t>(s.rows), columns = static_cast<std::size_t>(s.columns);
    const float share = 1 / static_cast<float>(s.columns);
    k.forward.run = [rows, columns, share](const host_call& c) {
      const auto all = c.input<float>(0), gamma = c.input<float>(1), beta = c.input<float>(2);
      const auto statistics = c.output<float>(1);
      for (std::size_t r = 0; r < rows; ++r) {
        const float* x = all.data() + r * columns;
        const float mean = share * host::sum(columns, [&](std::size_t i) { return x[i]; });
        const float variance = share * host::sum(columns, [&](std::size_t i) { return (x[i] - mean) * (x[i] - mean); });
        const float scale = 1 / std::sqrt(variance + 1e-5F);
        statistics[2 * r] = mean;
        statistics[2 * r + 1] = scale;
        host::write(c.output<float>(0).data() + r * columns, columns, false,
                    [&](std::size_t i) { return (x[i] - mean) * scale * gamma[i] + beta[i]; });
      }
    };
    k.input.run = [rows, columns, share](const host_call& c) {
      if (c.outputs[0].empty()) return;
      const auto gamma = c.input<float>(1), statistics = c.input<float>(2);
      for (std::size_t r = 0; r < rows; ++r) {
        const float* x = c.input<float>(0).data() + r * columns;
        const float* g = c.input<float>(3).data() + r * columns;
        const float mean = statistics[2 * r], scale = statistics[2 * r + 1];
        const auto normal = [&](std::size_t i) { return (x[i] - mean) * scale; };
        const float first = share * host::sum(columns, [&](std::size_t i) { return g[i] * gamma[i]; });
        const float second = share * host::sum(columns, [&](std::size_t i) { return g[i] * gamma[i] * normal(i); });
        host::write(c.output<float>(0).data() + r * columns, columns, c.adds[0] != 0,
                    [&](std::size_t i) { return scale * (g[i] * gamma[i] - first - normal(i) * second); });
      }
    };
    k.parameters.run = [rows, columns](const host_call& c) {
      const auto x = c.input<float>(0), statistics = c.input<float>(1), g = c.input<float>(2);
      std::vector<float> gamma(columns, 0.0F), beta(columns, 0.0F);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < columns; ++i) {
          const std::size_t at = r * columns + i;
          gamma[i] += g[at] * ((x[at] - statistics[2 * r]) * statistics[2 * r + 1]);
          beta[i] += g[at];
        }
      host::write(c, 0, [&](std::size_t i) { return gamma[i]; });
      host::write(c, 1, [&](std::size_t i) { return beta[i]; });
    };
    return k;
  }

  [[nodiscard]] attention_kernels<kernel> attention(const attention_sizes& s) const {
    attention_kernels<kernel> k;
    k.saved_bytes = s.batch * s.heads * s.context * s.context * 4;  // probabilities, zero above the diagonal
    const std::int64_t head = s.width / s.heads, context = s.context;
    const float scale = 1 / std::sqrt(static_cast<float>(head));
    // The queries (part 0), keys (1) or values (2) of one sample and one head.
    const auto qkv = [s, head](const host_call& c, std::int64_t sample, std::int64_t h, std::int64_t part) {
      return host::at(c.input<float>(0).data() + sample * s.context * 3 * s.width + part * s.width + h * head,
                      s.context, head, 3 * s.width);
    };
    k.forward.run = [s, head, context, scale, qkv](const host_call& c) {
      for (std::int64_t sample = 0; sample < s.batch; ++sample)
        for (std::int64_t h = 0; h < s.heads; ++h) {
          float* p = c.output<float>(1).data() + (sample * s.heads + h) * context * context;
          host::product_nt(host::at(p, context, context, context), qkv(c, sample, h, 0), qkv(c, sample, h, 1));
          for (std::int64_t r = 0; r < context; ++r) softmax(p + r * context, r + 1, context, scale);
          float* y = c.output<float>(0).data() + sample * context * s.width + h * head;
          host::product(host::at(y, context, head, s.width),
                        host::at(static_cast<const float*>(p), context, context, context), qkv(c, sample, h, 2));
        }
    };
    k.backward.workspace = (context * context + context * head) * 4;
    k.backward.run = [s, head, context, scale, qkv](const host_call& c) {
      float* scores = c.scratch<float>().data();
      float* part = scores + context * context;
      const host::view scores_view = host::at(scores, context, context, context);
      const host::view part_view = host::at(part, context, head, head);
      const host::const_view scores_made = host::at(static_cast<const float*>(scores), context, context, context);
      for (std::int64_t sample = 0; sample < s.batch; ++sample)
        for (std::int64_t h = 0; h < s.heads; ++h) {
          const float* p = c.input<float>(1).data() + (sample * s.heads + h) * context * context;
          const auto probabilities = host::at(p, context, context, context);
          const auto g =
              host::at(c.input<float>(2).data() + sample * context * s.width + h * head, context, head, s.width);
          const auto put = [&](std::int64_t third) {
            for (std::int64_t r = 0; r < context; ++r) {
              const float* from = part + r * head;
              host::write(c.output<float>(0).data() + (sample * context + r) * 3 * s.width + third * s.width + h * head,
                          static_cast<std::size_t>(head), c.adds[0] != 0, [&](std::size_t i) { return from[i]; });
            }
          };
          host::product_tn(part_view, probabilities, g);
          put(2);
          host::product_nt(scores_view, g, qkv(c, sample, h, 2));
          for (std::int64_t r = 0; r < context; ++r) {
            float* row = scores + r * context;
            const float* probability = p + r * context;
            const auto n = static_cast<std::size_t>(context);
            const float dot = host::sum(n, [&](std::size_t i) { return row[i] * probability[i]; });
            for (std::size_t i = 0; i < n; ++i) row[i] = scale * probability[i] * (row[i] - dot);
          }
          host::product(part_view, scores_made, qkv(c, sample, h, 1));
          put(0);
          host::product_tn(part_view, scores_made, qkv(c, sample, h, 0));
          put(1);
        }
    };
    return k;
  }

  [[nodiscard]] embedding_kernels<kernel> embedding(const embedding_sizes& s) const {
    embedding_kernels<kernel> k;
    const auto width = static_cast<std::size_t>(s.width), context = static_cast<std::size_t>(s.context);
    const auto batch = static_cast<std::size_t>(s.batch), vocabulary = static_cast<std::size_t>(s.vocabulary);
    k.forward.run = [width, context](const host_call& c) {
      const auto tokens = c.input<std::int32_t>(0);
      for (std::size_t r = 0; r < tokens.size(); ++r) {
        const float* from = c.input<float>(1).data() + static_cast<std::size_t>(tokens[r]) * width;
        const float* position = c.input<float>(2).data() + r % context * width;
        host::write(c.output<float>(0).data() + r * width, width, false,
                    [&](std::size_t i) { return from[i] + position[i]; });
      }
    };
    k.table.run = [width, vocabulary](const host_call& c) {
      const auto tokens = c.input<std::int32_t>(0);
      const float* g = c.input<float>(1).data();
      std::vector<std::uint32_t> order(tokens.size());
      std::iota(order.begin(), order.end(), 0U);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return tokens[a] < tokens[b]; });
      std::vector<float> row(width);
      std::size_t next = 0;
      for (std::size_t v = 0; v < vocabulary; ++v) {
        std::fill(row.begin(), row.end(), 0.0F);
        for (; next < order.size() && static_cast<std::size_t>(tokens[order[next]]) == v; ++next)
          for (std::size_t i = 0; i < width; ++i) row[i] += g[order[next] * width + i];
        host::write(c.output<float>(0).data() + v * width, width, c.adds[0] != 0,
                    [&](std::size_t i) { return row[i]; });
      }
    };
    k.positions.run = [width, context, batch](const host_call& c) {
      const float* g = c.input<float>(0).data();
      std::vector<float> row(width);
      for (std::size_t p = 0; p < context; ++p) {
        std::fill(row.begin(), row.end(), 0.0F);
        for (std::size_t b = 0; b < batch; ++b)
          for (std::size_t i = 0; i < width; ++i) row[i] += g[(b * context + p) * width + i];
        host::write(c.output<float>(0).data() + p * width, width, c.adds[0] != 0,
                    [&](std::size_t i) { return row[i]; });
      }
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> cross_entropy(const cross_entropy_sizes& s) const {
    unary_kernels<kernel> k;
    const auto rows = static_cast<std::size_t>(s.rows), classes = static_cast<std::size_t>(s.classes);
    k.forward.run = [rows, classes](const host_call& c) {
      const auto logits = c.input<float>(0);
      const auto targets = c.input<std::int32_t>(1);
      const auto logarithms = c.output<float>(1);
      double total = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        const float* x = logits.data() + r * classes;
        const float most = *std::max_element(x, x + classes);
        const float sum = host::sum(classes, [&](std::size_t i) { return host::exponential(x[i] - most); });
        logarithms[r] = most + std::log(sum);
        total += static_cast<double>(logarithms[r] - x[targets[r]]);
      }
      c.output<float>(0)[0] = static_cast<float>(total / static_cast<double>(rows));
    };
    k.backward.run = [rows, classes](const host_call& c) {
      const auto logits = c.input<float>(0), logarithms = c.input<float>(2);
      const auto targets = c.input<std::int32_t>(1);
      const float g = c.input<float>(3)[0] / static_cast<float>(rows);
      if (c.outputs[0].empty()) return;
      for (std::size_t r = 0; r < rows; ++r) {
        const float* x = logits.data() + r * classes;
        const auto target = static_cast<std::size_t>(targets[r]);
        host::write(c.output<float>(0).data() + r * classes, classes, c.adds[0] != 0, [&](std::size_t i) {
          return g * (host::exponential(x[i] - logarithms[r]) - (i == target ? 1.0F : 0.0F));
        });
      }
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> mean_squared_error(std::int64_t size) const {
    unary_kernels<kernel> k;
    k.forward.run = [size](const host_call& c) {
      const auto x = c.input<float>(0), target = c.input<float>(1);
      double total = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double d = static_cast<double>(x[i]) - static_cast<double>(target[i]);
        total += d * d;
      }
      c.output<float>(0)[0] = static_cast<float>(total / static_cast<double>(size));
    };
    k.backward.run = [size](const host_call& c) {
      const auto x = c.input<float>(0), target = c.input<float>(1);
      const float g = 2 * c.input<float>(2)[0] / static_cast<float>(size);
      host::write(c, 0, [&](std::size_t i) { return g * (x[i] - target[i]); });
    };
    return k;
  }

 private:
  static void write_column_sums(const host_call& c, std::size_t i, const host::const_view& g) {
    if (c.outputs[i].empty()) return;
    std::vector<float> total(static_cast<std::size_t>(g.cols()), 0.0F);
    for (std::int64_t r = 0; r < g.rows(); ++r)
      for (std::size_t j = 0; j < total.size(); ++j) total[j] += g(r, static_cast<std::int64_t>(j));
    host::write(c, i, [&](std::size_t j) { return total[j]; });
  }

  /// Replaces the first `seen` scores of a row by softmax(scale · score), and the others by 0.
  static void softmax(float* row, std::int64_t seen, std::int64_t all, float scale) {
    const auto n = static_cast<std::size_t>(seen);
    const float most = *std::max_element(row, row + n);
    for (std::size_t i = 0; i < n; ++i) row[i] = host::exponential(scale * (row[i] - most));
    const float share = 1 / host::sum(n, [&](std::size_t i) { return row[i]; });
    for (std::size_t i = 0; i < n; ++i) row[i] *= share;
    std::fill(row + n, row + all, 0.0F);
  }
};

}  // namespace train
