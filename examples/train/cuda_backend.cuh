// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The kernels of a GPT's layers on a CUDA device; matrix products are those of products.cuh, attention that of
/// tile_attention.cuh. Tensors hold single precision or bfloat16; sums, statistics and the loss are in single
/// precision.
///
/// **A kernel computes the same bits whenever it runs.** No kernel uses atomic operations; the order of a sum depends
/// on sizes alone. Each call of cuBLAS gets the operation's own workspace, and then repeats its results on one device,
/// whatever else runs there. Random kernels draw from a counter. A contribution to a gradient is rounded before it is
/// added, so that two of them give the same bits in either order; matrix products and attention never add, because in
/// a GPT no gradient has two of them.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "remat/execute/cuda.cuh"
#include "remat/execute/launch_plan.hpp"
#include "train/elements.cuh"
#include "train/layers.hpp"
#include "train/products.cuh"
#include "train/tile_attention.cuh"

namespace train {

using remat::cuda_call;

namespace gpu {

inline constexpr unsigned block = 256;

inline unsigned blocks(std::size_t n) {
  return static_cast<unsigned>(std::min<std::size_t>((n + block - 1) / block, 1U << 20));
}

// ---- elementwise
// -------------------------------------------------------------------------------------------------------

template <class T>
__device__ void put(T* out, std::size_t i, float value, bool adds) {
  const T rounded = to_element<T>(value);
  out[i] = adds ? to_element<T>(__fadd_rn(to_float(out[i]), to_float(rounded))) : rounded;
}

/// Writes value(i) to out[i], or adds it.
template <class T, class Value>
__global__ void write_elements(T* out, std::size_t n, bool adds, Value value) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride)
    put(out, i, value(i), adds);
}

template <class T, class Value>
void write(const cuda_call& c, std::size_t output, const Value& value) {
  const auto out = c.output<T>(output);
  if (out.empty()) return;
  write_elements<T><<<blocks(out.size()), block, 0, c.stream>>>(out.data(), out.size(), c.adds[output] != 0, value);
}

struct constant {
  float value;
  __device__ float operator()(std::size_t) const { return value; }
};
template <class T>
struct copied {
  const T* x;
  __device__ float operator()(std::size_t i) const { return to_float(x[i]); }
};
template <class T>
struct added {
  const T *a, *b;
  __device__ float operator()(std::size_t i) const { return to_float(a[i]) + to_float(b[i]); }
};
template <class T>
struct gelu_value {
  const T* x;
  __device__ float operator()(std::size_t i) const {
    const float v = to_float(x[i]);
    return 0.5F * v * (1 + tanhf(0.7978845608F * (v + 0.044715F * v * v * v)));
  }
};
template <class T>
struct gelu_gradient {
  const T *x, *g;
  __device__ float operator()(std::size_t i) const {
    constexpr float a = 0.7978845608F, b = 0.044715F;
    const float v = to_float(x[i]), t = tanhf(a * (v + b * v * v * v));
    return to_float(g[i]) * (0.5F * (1 + t) + 0.5F * v * (1 - t * t) * a * (1 + 3 * b * v * v));
  }
};
template <class T>
struct dropped {
  const T* x;
  const std::uint64_t* seed;  // written by the forward kernel
  float rate, scale;
  __device__ float operator()(std::size_t i) const {
    return dropout_keeps(*seed, i, rate) ? to_float(x[i]) * scale : 0.0F;
  }
};
template <int = 0>
__global__ void write_seed(std::uint64_t* out, std::uint64_t seed, const std::uint64_t* step_seed, remat::op_id o) {
  *out = step_seed != nullptr ? remat::cuda_kernel_seed(*step_seed, o) : seed;
}
template <class T>
struct embedded {
  const std::int32_t* tokens;
  const T *table, *positions;
  std::size_t width, context;
  __device__ float operator()(std::size_t i) const {
    const std::size_t row = i / width, column = i % width;
    return to_float(table[static_cast<std::size_t>(tokens[row]) * width + column]) +
           to_float(positions[row % context * width + column]);
  }
};
template <class T>
struct position_sums {
  const T* g;
  std::size_t batch, stride;  // context · width
  __device__ float operator()(std::size_t i) const {
    float total = 0;
    for (std::size_t b = 0; b < batch; ++b) total += to_float(g[b * stride + i]);
    return total;
  }
};
template <class T>
struct cross_entropy_gradient {
  const T* logits;
  const float *logarithms, *g;
  const std::int32_t* targets;
  std::size_t classes;
  float share;
  __device__ float operator()(std::size_t i) const {
    const std::size_t row = i / classes, column = i % classes;
    const float p = expf(to_float(logits[i]) - logarithms[row]);
    return *g * share * (p - (column == static_cast<std::size_t>(targets[row]) ? 1.0F : 0.0F));
  }
};

template <class T>
__global__ void add_bias(T* y, const T* bias, std::size_t n, std::size_t columns) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride)
    y[i] = to_element<T>(to_float(y[i]) + to_float(bias[i % columns]));
}

// ---- sums over rows and columns
// ----------------------------------------------------------------------------------------

struct larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

/// Combines the values of all threads of a block in a fixed order; each thread gets the result. All threads must call
/// it.
template <class Combine>
__device__ float combine_block(float value, const Combine& combine) {
  __shared__ float part[block];
  __syncthreads();
  part[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = block / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] = combine(part[threadIdx.x], part[threadIdx.x + half]);
    __syncthreads();
  }
  return part[0];
}
/// Σ value(i) over a row, by one block.
template <class Value>
__device__ float sum_row(std::size_t n, const Value& value) {
  float total = 0;
  for (std::size_t i = threadIdx.x; i < n; i += block) total += value(i);
  return combine_block(total, plus{});
}

/// One block for each row.
template <class T>
__global__ void norm_forward(const T* all, const T* gamma, const T* beta, T* y, float* statistics,
                             std::size_t columns) {
  const std::size_t row = blockIdx.x;
  const T* const x = all + row * columns;
  const float share = 1 / static_cast<float>(columns);
  const float mean = share * sum_row(columns, [&](std::size_t i) { return to_float(x[i]); });
  const float variance =
      share * sum_row(columns, [&](std::size_t i) { return (to_float(x[i]) - mean) * (to_float(x[i]) - mean); });
  const float scale = 1 / sqrtf(variance + 1e-5F);
  for (std::size_t i = threadIdx.x; i < columns; i += block)
    y[row * columns + i] = to_element<T>((to_float(x[i]) - mean) * scale * to_float(gamma[i]) + to_float(beta[i]));
  if (threadIdx.x == 0) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = scale;
  }
}
template <class T>
__global__ void norm_backward(const T* all, const T* gamma, const float* statistics, const T* gradients, T* out,
                              std::size_t columns, bool adds) {
  const std::size_t row = blockIdx.x;
  const T *const x = all + row * columns, *const g = gradients + row * columns;
  const float mean = statistics[2 * row], scale = statistics[2 * row + 1], share = 1 / static_cast<float>(columns);
  const auto normal = [&](std::size_t i) { return (to_float(x[i]) - mean) * scale; };
  const auto outer = [&](std::size_t i) { return to_float(g[i]) * to_float(gamma[i]); };
  const float first = share * sum_row(columns, outer);
  const float second = share * sum_row(columns, [&](std::size_t i) { return outer(i) * normal(i); });
  for (std::size_t i = threadIdx.x; i < columns; i += block)
    put(out + row * columns, i, scale * (outer(i) - first - normal(i) * second), adds);
}

template <class T>
__global__ void cross_entropy_rows(const T* logits, const std::int32_t* targets, float* logarithms, float* losses,
                                   std::size_t classes) {
  const T* const x = logits + std::size_t{blockIdx.x} * classes;
  float most = -INFINITY;
  for (std::size_t i = threadIdx.x; i < classes; i += block) most = fmaxf(most, to_float(x[i]));
  most = combine_block(most, larger{});
  const float total = sum_row(classes, [&](std::size_t i) { return expf(to_float(x[i]) - most); });
  if (threadIdx.x != 0) return;
  logarithms[blockIdx.x] = most + logf(total);
  losses[blockIdx.x] = logarithms[blockIdx.x] - to_float(x[targets[blockIdx.x]]);
}
/// Writes the mean of n values to *out. One block.
template <int = 0>
__global__ void mean_of(const float* values, float* out, std::size_t n) {
  const float total = sum_row(n, [&](std::size_t i) { return values[i]; });
  if (threadIdx.x == 0) *out = total / static_cast<float>(n);
}

/// Writes the sum of column j to out[j] (and a second sum to second[j], if not null), or adds it. A block takes 32
/// columns, in 32 parts that are added at the end.
template <class T, class First, class Second>
__global__ void sum_columns(T* out, T* second, std::size_t rows, std::size_t columns, bool adds, bool second_adds,
                            First first_value, Second second_value) {
  __shared__ float part[2][32][33];
  const std::size_t j = std::size_t{blockIdx.x} * 32 + threadIdx.x;
  float a = 0, b = 0;
  if (j < columns)
    for (std::size_t r = threadIdx.y; r < rows; r += 32) {
      a += first_value(r, j);
      b += second_value(r, j);
    }
  part[0][threadIdx.y][threadIdx.x] = a;
  part[1][threadIdx.y][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.y != 0 || j >= columns) return;
  for (unsigned r = 1; r < 32; ++r) {
    a += part[0][r][threadIdx.x];
    b += part[1][r][threadIdx.x];
  }
  if (out != nullptr) put(out, j, a, adds);
  if (second != nullptr) put(second, j, b, second_adds);
}
struct nothing {
  __device__ float operator()(std::size_t, std::size_t) const { return 0; }
};
template <class T>
struct element {
  const T* g;
  std::size_t columns;
  __device__ float operator()(std::size_t r, std::size_t j) const { return to_float(g[r * columns + j]); }
};
template <class T>
struct normal_element {
  const T* x;
  const float* statistics;
  const T* g;
  std::size_t columns;
  __device__ float operator()(std::size_t r, std::size_t j) const {
    const std::size_t at = r * columns + j;
    return to_float(g[at]) * ((to_float(x[at]) - statistics[2 * r]) * statistics[2 * r + 1]);
  }
};

/// The gradient of one row of the table, the sum over the places where its token stands: one block for each token of
/// the vocabulary, `width` floats of shared memory.
template <class T>
__global__ void table_gradient(const std::int32_t* tokens, const T* g, T* out, std::size_t rows, std::size_t width,
                               bool adds) {
  extern __shared__ float total[];
  __shared__ bool here[block];
  for (std::size_t j = threadIdx.x; j < width; j += block) total[j] = 0;
  for (std::size_t begin = 0; begin < rows; begin += block) {
    const std::size_t r = begin + threadIdx.x;
    const bool mine = r < rows && tokens[r] == static_cast<std::int32_t>(blockIdx.x);
    here[threadIdx.x] = mine;
    if (__syncthreads_or(mine ? 1 : 0) != 0)
      for (unsigned k = 0; k < block; ++k) {
        if (!here[k]) continue;
        for (std::size_t j = threadIdx.x; j < width; j += block) total[j] += to_float(g[(begin + k) * width + j]);
      }
    __syncthreads();
  }
  for (std::size_t j = threadIdx.x; j < width; j += block) put(out + blockIdx.x * width, j, total[j], adds);
}

}  // namespace gpu

using cuda_kernel = std::function<void(const cuda_call&)>;

struct cuda_backend_options {
  const std::uint64_t* step_seed = nullptr;          ///< captured steps read their seed there; null: `call.seed`
  std::int64_t workspace = std::int64_t{8} << 20;    ///< bytes for each product that takes any, a multiple of 256
  bool tensor_cores = true;                          ///< attention in single precision: in TF32
  std::size_t shared_bytes = std::size_t{48} << 10;  ///< the most shared memory that a block may ask for
};

/// The kernels for tensors of elements `T`, `float` or `gpu::bfloat16`.
template <class T>
class cuda_backend {
 public:
  using kernel = cuda_kernel;
  static constexpr std::int64_t element_bytes = sizeof(T);

  explicit cuda_backend(std::shared_ptr<gpu::products> products, const cuda_backend_options& options = {})
      : products_(std::move(products)), options_(options), workspace_(products_->workspace(options.workspace)) {}

  /// The gradient of the loss, which is in single precision.
  [[nodiscard]] kernel one() const {
    return [](const cuda_call& c) { gpu::write<float>(c, 0, gpu::constant{1}); };
  }
  [[nodiscard]] kernel zero() const {
    return [](const cuda_call& c) { gpu::write<T>(c, 0, gpu::constant{0}); };
  }
  [[nodiscard]] kernel sum() const {
    return [](const cuda_call& c) { gpu::write<T>(c, 0, gpu::copied<T>{c.input<T>(0).data()}); };
  }

  [[nodiscard]] linear_kernels<kernel> linear(const linear_sizes& s) const {
    linear_kernels<kernel> k;
    const auto products = products_;
    const std::int64_t space = workspace_;
    k.forward.workspace = k.input.workspace = k.weight.workspace = workspace_;
    k.forward.run = [s, products, space](const cuda_call& c) {
      const product p(*products, c, space);
      const auto y = c.output<T>(0);
      p({s.rows, s.out, s.in}, {c.input<T>(0).data(), s.in}, {c.input<T>(1).data(), s.out}, {y.data(), s.out});
      if (s.bias)
        gpu::add_bias<T><<<gpu::blocks(y.size()), gpu::block, 0, c.stream>>>(y.data(), c.input<T>(2).data(), y.size(),
                                                                             static_cast<std::size_t>(s.out));
    };
    k.input.run = [s, products, space](const cuda_call& c) {
      if (c.outputs[0].empty()) return;
      const product p(*products, c, space);
      p({s.rows, s.in, s.out}, {c.input<T>(1).data(), s.out}, {c.input<T>(0).data(), s.out, true},
        {c.output<T>(0).data(), s.in});
    };
    k.weight.run = [s, products, space](const cuda_call& c) {
      const T* const g = c.input<T>(1).data();
      if (!c.outputs[0].empty()) {
        const product p(*products, c, space);
        p({s.in, s.out, s.rows}, {c.input<T>(0).data(), s.in, true}, {g, s.out}, {c.output<T>(0).data(), s.out});
      }
      if (s.bias && !c.outputs[1].empty())
        sum_columns(c, 1, no_output, s.rows, s.out, gpu::element<T>{g, static_cast<std::size_t>(s.out)},
                    gpu::nothing{});
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> gelu(std::int64_t) const {
    unary_kernels<kernel> k;
    k.forward.run = [](const cuda_call& c) { gpu::write<T>(c, 0, gpu::gelu_value<T>{c.input<T>(0).data()}); };
    k.backward.run = [](const cuda_call& c) {
      gpu::write<T>(c, 0, gpu::gelu_gradient<T>{c.input<T>(0).data(), c.input<T>(1).data()});
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> dropout(const dropout_sizes& s) const {
    unary_kernels<kernel> k;
    const float scale = 1 / (1 - s.rate);
    k.forward.run = [s, scale, step_seed = options_.step_seed](const cuda_call& c) {
      std::uint64_t* const seed = c.output<std::uint64_t>(1).data();
      gpu::write_seed<><<<1, 1, 0, c.stream>>>(seed, c.seed, step_seed, c.operation);
      gpu::write<T>(c, 0, gpu::dropped<T>{c.input<T>(0).data(), seed, s.rate, scale});
    };
    k.backward.run = [s, scale](const cuda_call& c) {
      gpu::write<T>(c, 0, gpu::dropped<T>{c.input<T>(1).data(), c.input<std::uint64_t>(0).data(), s.rate, scale});
    };
    return k;
  }

  [[nodiscard]] work<kernel> add(std::int64_t) const {
    return {[](const cuda_call& c) {
              gpu::write<T>(c, 0, gpu::added<T>{c.input<T>(0).data(), c.input<T>(1).data()});
            },
            0};
  }

  [[nodiscard]] norm_kernels<kernel> layer_norm(const norm_sizes& s) const {
    norm_kernels<kernel> k;
    const auto rows = static_cast<unsigned>(s.rows);
    const auto columns = static_cast<std::size_t>(s.columns);
    k.forward.run = [rows, columns](const cuda_call& c) {
      gpu::norm_forward<T><<<rows, gpu::block, 0, c.stream>>>(c.input<T>(0).data(), c.input<T>(1).data(),
                                                              c.input<T>(2).data(), c.output<T>(0).data(),
                                                              c.output<float>(1).data(), columns);
    };
    k.input.run = [rows, columns](const cuda_call& c) {
      if (c.outputs[0].empty()) return;
      gpu::norm_backward<T><<<rows, gpu::block, 0, c.stream>>>(c.input<T>(0).data(), c.input<T>(1).data(),
                                                               c.input<float>(2).data(), c.input<T>(3).data(),
                                                               c.output<T>(0).data(), columns, c.adds[0] != 0);
    };
    k.parameters.run = [s, columns](const cuda_call& c) {
      const T *const x = c.input<T>(0).data(), *const g = c.input<T>(2).data();
      sum_columns(c, 0, 1, s.rows, s.columns, gpu::normal_element<T>{x, c.input<float>(1).data(), g, columns},
                  gpu::element<T>{g, columns});
    };
    return k;
  }

  [[nodiscard]] attention_kernels<kernel> attention(const attention_sizes& s) const {
    if constexpr (std::is_same_v<T, gpu::bfloat16>)
      return tiled_attention<gpu::in_bfloat16>(s);
    else
      return options_.tensor_cores ? tiled_attention<gpu::in_tf32>(s) : tiled_attention<gpu::in_single>(s);
  }

  [[nodiscard]] embedding_kernels<kernel> embedding(const embedding_sizes& s) const {
    embedding_kernels<kernel> k;
    const auto width = static_cast<std::size_t>(s.width), context = static_cast<std::size_t>(s.context);
    const auto batch = static_cast<std::size_t>(s.batch);
    const auto vocabulary = static_cast<unsigned>(s.vocabulary);
    if (width * sizeof(float) > most_shared)
      throw std::invalid_argument("width is " + std::to_string(width) + "; this backend's embedding takes at most " +
                                  std::to_string(most_shared / sizeof(float)));
    k.forward.run = [=](const cuda_call& c) {
      gpu::write<T>(c, 0,
                    gpu::embedded<T>{c.input<std::int32_t>(0).data(), c.input<T>(1).data(), c.input<T>(2).data(), width,
                                     context});
    };
    k.table.run = [=](const cuda_call& c) {
      if (c.outputs[0].empty()) return;
      gpu::table_gradient<T><<<vocabulary, gpu::block, width * sizeof(float), c.stream>>>(
          c.input<std::int32_t>(0).data(), c.input<T>(1).data(), c.output<T>(0).data(), batch * context, width,
          c.adds[0] != 0);
    };
    k.positions.run = [=](const cuda_call& c) {
      gpu::write<T>(c, 0, gpu::position_sums<T>{c.input<T>(0).data(), batch, context * width});
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> cross_entropy(const cross_entropy_sizes& s) const {
    unary_kernels<kernel> k;
    const auto rows = static_cast<unsigned>(s.rows);
    const auto classes = static_cast<std::size_t>(s.classes);
    k.forward.workspace = s.rows * 4;
    k.forward.run = [=](const cuda_call& c) {
      float* const losses = c.scratch<float>().data();
      gpu::cross_entropy_rows<T><<<rows, gpu::block, 0, c.stream>>>(
          c.input<T>(0).data(), c.input<std::int32_t>(1).data(), c.output<float>(1).data(), losses, classes);
      gpu::mean_of<><<<1, gpu::block, 0, c.stream>>>(losses, c.output<float>(0).data(), std::size_t{rows});
    };
    k.backward.run = [=](const cuda_call& c) {
      gpu::write<T>(
          c, 0,
          gpu::cross_entropy_gradient<T>{c.input<T>(0).data(), c.input<float>(2).data(), c.input<float>(3).data(),
                                         c.input<std::int32_t>(1).data(), classes, 1 / static_cast<float>(rows)});
    };
    return k;
  }

 private:
  static constexpr std::size_t most_shared = 40 * 1024;
  static constexpr std::size_t no_output = ~std::size_t{0};

  /// A matrix product of one call, for its first output, with the first `space` bytes of its workspace.
  class product {
   public:
    product(gpu::products& products, const cuda_call& c, std::int64_t space)
        : products_(&products), workspace_(c.workspace.first(static_cast<std::size_t>(space))), stream_(c.stream) {
      if (c.adds[0] != 0) throw std::logic_error("a matrix product cannot be added to a gradient here");
    }
    /// out = a b
    void operator()(const gpu::product_sizes& s, const gpu::factor<T>& a, const gpu::factor<T>& b,
                    const gpu::product_result<T>& out) const {
      products_->multiply(s, a, b, out, workspace_, stream_);
    }

   private:
    gpu::products* products_;
    std::span<std::byte> workspace_;
    cudaStream_t stream_;
  };

  template <class First, class Second>
  static void sum_columns(const cuda_call& c, std::size_t output, std::size_t second, std::int64_t rows,
                          std::int64_t columns, const First& value, const Second& second_value) {
    const auto at = [&](std::size_t i) {
      return i == no_output || c.outputs[i].empty() ? nullptr : c.output<T>(i).data();
    };
    gpu::sum_columns<T><<<static_cast<unsigned>((columns + 31) / 32), dim3(32, 32), 0, c.stream>>>(
        at(output), at(second), static_cast<std::size_t>(rows), static_cast<std::size_t>(columns), c.adds[output] != 0,
        second != no_output && c.adds[second] != 0, value, second_value);
  }

  template <class Math>
  [[nodiscard]] attention_kernels<kernel> tiled_attention(const attention_sizes& s) const {
    using namespace gpu::attention;
    constexpr std::int64_t most_blocks = 65535;  // of a grid, across
    arrays<T> fixed;
    fixed.context = static_cast<int>(s.context);
    fixed.heads = static_cast<int>(s.heads);
    fixed.head = static_cast<int>(s.width / s.heads);
    fixed.scale = 1 / std::sqrt(static_cast<float>(fixed.head));
    fixed.of = choose_tiles(fixed.head, sizeof(typename Math::element), options_.shared_bytes);
    if (fixed.of.rows == 0)
      throw std::invalid_argument(
          "heads have " + std::to_string(fixed.head) + " elements; the tiles of attention then need more than the " +
          std::to_string(options_.shared_bytes) + " bytes of shared memory that a block may have");
    if (s.batch > most_blocks || s.heads > most_blocks)
      throw std::invalid_argument("attention takes at most " + std::to_string(most_blocks) +
                                  " samples and heads; here " + std::to_string(s.batch) + " and " +
                                  std::to_string(s.heads));
    const auto grid = [s](int tile) {
      return dim3(static_cast<unsigned>((s.context + tile - 1) / tile), static_cast<unsigned>(s.heads),
                  static_cast<unsigned>(s.batch));
    };
    const std::int64_t rows = s.batch * s.context;
    const std::size_t forward_bytes = fixed.of.forward_bytes(sizeof(typename Math::element)),
                      backward_bytes = fixed.of.backward_bytes(sizeof(typename Math::element));
    allow_shared(forward<Math, T>, forward_bytes);
    allow_shared(backward_keys<Math, T>, backward_bytes);
    allow_shared(backward_queries<Math, T>, backward_bytes);

    attention_kernels<kernel> k;
    k.saved_bytes = rows * s.heads * 4;
    k.backward_reads_output = true;
    k.forward.run = [=](const cuda_call& c) {
      arrays<T> call = fixed;
      call.qkv = c.input<T>(0).data();
      forward<Math, T><<<grid(fixed.of.rows), threads, forward_bytes, c.stream>>>(call, c.output<T>(0).data(),
                                                                                  c.output<float>(1).data());
    };
    k.backward.workspace = rows * s.heads * 4;
    k.backward.run = [=](const cuda_call& c) {
      if (c.outputs[0].empty()) return;
      if (c.adds[0] != 0) throw std::logic_error("attention cannot be added to a gradient here");
      arrays<T> call = fixed;
      call.qkv = c.input<T>(0).data();
      call.logarithms = c.input<float>(1).data();
      call.y = c.input<T>(2).data();
      call.gradient = c.input<T>(3).data();
      call.out = c.output<T>(0).data();
      call.dots = c.scratch<float>().data();
      row_dots<T><<<gpu::blocks(static_cast<std::size_t>(rows * s.heads)), gpu::block, 0, c.stream>>>(call, rows);
      backward_keys<Math, T><<<grid(fixed.of.keys), threads, backward_bytes, c.stream>>>(call);
      backward_queries<Math, T><<<grid(fixed.of.rows), threads, backward_bytes, c.stream>>>(call);
    };
    return k;
  }

  /// Lets a kernel have more shared memory than every device gives without being asked.
  template <class Kernel>
  static void allow_shared(Kernel* kernel, std::size_t bytes) {
    constexpr std::size_t unasked = std::size_t{48} << 10;
    if (bytes > unasked)
      remat::throw_on_cuda_error(
          cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)),
          "asking for shared memory");
  }

  std::shared_ptr<gpu::products> products_;
  cuda_backend_options options_;
  std::int64_t workspace_;
};

}  // namespace train
