// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "train/host_backend.hpp"
#include "train/image_layers.hpp"

namespace train {

/// The kernels of the layers on images, beside those of `host_backend`: convolutions as matrix products.
class host_image_backend : public host_backend {
 public:
  [[nodiscard]] linear_kernels<kernel> convolution(const convolution_sizes& s) const {
    linear_kernels<kernel> k;
    const std::int64_t pixels = s.height * s.width, taps = s.in * s.kernel * s.kernel;
    k.forward.workspace = taps * pixels * 4;
    k.forward.run = [s, pixels, taps](const host_call& c) {
      const auto b = c.input<float>(2);
      const float* columns = c.scratch<float>().data();
      for (std::int64_t n = 0; n < s.batch; ++n) {
        unfold(s, c.input<float>(0).data() + n * s.in * pixels, c.scratch<float>().data());
        auto y = host::at(c.output<float>(0).data() + n * s.out * pixels, s.out, pixels, pixels);
        host::product(y, host::input(c, 1, s.out, taps), host::at(columns, taps, pixels, pixels));
        for (std::int64_t o = 0; o < s.out; ++o) y.row(o).array() += b[static_cast<std::size_t>(o)];
      }
    };
    k.input.workspace = k.forward.workspace;
    k.input.run = [s, pixels, taps](const host_call& c) {
      float* columns = c.scratch<float>().data();
      for (std::int64_t n = 0; n < s.batch; ++n) {
        host::product_tn(host::at(columns, taps, pixels, pixels), host::input(c, 0, s.out, taps),
                         host::at(c.input<float>(1).data() + n * s.out * pixels, s.out, pixels, pixels));
        fold(s, columns, c.output<float>(0).data() + n * s.in * pixels, c.adds[0] != 0);
      }
    };
    k.weight.workspace = (taps * pixels + s.out * taps) * 4;
    k.weight.run = [s, pixels, taps](const host_call& c) {
      float* total = c.scratch<float>().data() + taps * pixels;
      const float* columns = c.scratch<float>().data();
      std::vector<float> bias(static_cast<std::size_t>(s.out), 0.0F);
      std::fill(total, total + s.out * taps, 0.0F);
      for (std::int64_t n = 0; n < s.batch; ++n) {
        const auto g = host::at(c.input<float>(1).data() + n * s.out * pixels, s.out, pixels, pixels);
        unfold(s, c.input<float>(0).data() + n * s.in * pixels, c.scratch<float>().data());
        host::add_product_nt(host::at(total, s.out, taps, taps), g, host::at(columns, taps, pixels, pixels));
        for (std::size_t o = 0; o < bias.size(); ++o) {
          const float* row = g.data() + static_cast<std::int64_t>(o) * pixels;
          bias[o] += host::sum(static_cast<std::size_t>(pixels), [&](std::size_t i) { return row[i]; });
        }
      }
      host::write(c, 0, [&](std::size_t i) { return total[i]; });
      host::write(c, 1, [&](std::size_t i) { return bias[i]; });
    };
    return k;
  }

  [[nodiscard]] norm_kernels<kernel> group_norm(const group_norm_sizes& s) const {
    norm_kernels<kernel> k;
    const auto channels = static_cast<std::size_t>(s.channels / s.groups), pixels = static_cast<std::size_t>(s.pixels);
    const auto groups = static_cast<std::size_t>(s.groups), all = static_cast<std::size_t>(s.batch * s.groups);
    const std::size_t size = channels * pixels;
    const float share = 1 / static_cast<float>(size);
    k.forward.run = [=](const host_call& c) {
      const auto gamma = c.input<float>(1), beta = c.input<float>(2);
      const auto statistics = c.output<float>(1);
      for (std::size_t r = 0; r < all; ++r) {
        const float* x = c.input<float>(0).data() + r * size;
        const float mean = share * host::sum(size, [&](std::size_t i) { return x[i]; });
        const float variance = share * host::sum(size, [&](std::size_t i) { return (x[i] - mean) * (x[i] - mean); });
        const float scale = 1 / std::sqrt(variance + 1e-5F);
        statistics[2 * r] = mean;
        statistics[2 * r + 1] = scale;
        for (std::size_t j = 0; j < channels; ++j) {
          const float factor = scale * gamma[r % groups * channels + j], shift = beta[r % groups * channels + j];
          const float* plane = x + j * pixels;
          host::write(c.output<float>(0).data() + r * size + j * pixels, pixels, false,
                      [&](std::size_t i) { return (plane[i] - mean) * factor + shift; });
        }
      }
    };
    k.input.run = [=](const host_call& c) {
      const auto gamma = c.input<float>(1), statistics = c.input<float>(2);
      for (std::size_t r = 0; r < all; ++r) {
        const float* x = c.input<float>(0).data() + r * size;
        const float* g = c.input<float>(3).data() + r * size;
        const float mean = statistics[2 * r], scale = statistics[2 * r + 1];
        float first = 0, second = 0;
        for (std::size_t j = 0; j < channels; ++j) {
          const float* plane = x + j * pixels;
          const float* gradient = g + j * pixels;
          const float factor = gamma[r % groups * channels + j] * share;
          first += factor * host::sum(pixels, [&](std::size_t i) { return gradient[i]; });
          second +=
              factor * host::sum(pixels, [&](std::size_t i) { return gradient[i] * ((plane[i] - mean) * scale); });
        }
        for (std::size_t j = 0; j < channels; ++j) {
          const float* plane = x + j * pixels;
          const float* gradient = g + j * pixels;
          const float factor = gamma[r % groups * channels + j];
          host::write(c.output<float>(0).data() + r * size + j * pixels, pixels, c.adds[0] != 0, [&](std::size_t i) {
            return scale * (gradient[i] * factor - first - (plane[i] - mean) * scale * second);
          });
        }
      }
    };
    k.parameters.run = [=](const host_call& c) {
      const auto statistics = c.input<float>(1);
      std::vector<float> gamma(groups * channels, 0.0F), beta(groups * channels, 0.0F);
      for (std::size_t r = 0; r < all; ++r)
        for (std::size_t j = 0; j < channels; ++j) {
          const float* plane = c.input<float>(0).data() + r * size + j * pixels;
          const float* gradient = c.input<float>(2).data() + r * size + j * pixels;
          const float mean = statistics[2 * r], scale = statistics[2 * r + 1];
          gamma[r % groups * channels + j] +=
              host::sum(pixels, [&](std::size_t i) { return gradient[i] * ((plane[i] - mean) * scale); });
          beta[r % groups * channels + j] += host::sum(pixels, [&](std::size_t i) { return gradient[i]; });
        }
      host::write(c, 0, [&](std::size_t i) { return gamma[i]; });
      host::write(c, 1, [&](std::size_t i) { return beta[i]; });
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> max_pool(const plane_sizes& s) const {
    unary_kernels<kernel> k;
    k.forward.run = [s](const host_call& c) {
      const float* x = c.input<float>(0).data();
      halve(s, c.output<float>(0).data(), [&](std::int64_t i) {
        return std::max(std::max(x[i], x[i + 1]), std::max(x[i + s.width], x[i + s.width + 1]));
      });
    };
    k.backward.run = [s](const host_call& c) {
      const float* x = c.input<float>(0).data();
      const float* g = c.input<float>(1).data();
      widen(s, c, [&](std::int64_t large, std::int64_t small, std::int64_t part) {
        const std::int64_t at[4] = {large, large + 1, large + s.width, large + s.width + 1};
        std::int64_t best = 0;
        for (std::int64_t i = 1; i < 4; ++i)
          if (x[at[i]] > x[at[best]]) best = i;
        return part == best ? g[small] : 0.0F;
      });
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> average_pool(const plane_sizes& s) const {
    unary_kernels<kernel> k;
    k.forward.run = [s](const host_call& c) {
      const float* x = c.input<float>(0).data();
      halve(s, c.output<float>(0).data(),
            [&](std::int64_t i) { return 0.25F * ((x[i] + x[i + 1]) + (x[i + s.width] + x[i + s.width + 1])); });
    };
    k.backward.run = [s](const host_call& c) {
      const float* g = c.input<float>(0).data();
      widen(s, c, [&](std::int64_t, std::int64_t small, std::int64_t) { return 0.25F * g[small]; });
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> upsample(const plane_sizes& s) const {
    unary_kernels<kernel> k;
    k.forward.run = [s](const host_call& c) {
      const float* x = c.input<float>(0).data();
      widen(s, c, [&](std::int64_t, std::int64_t small, std::int64_t) { return x[small]; });
    };
    k.backward.run = [s](const host_call& c) {
      const float* g = c.input<float>(0).data();
      std::vector<float> sums(static_cast<std::size_t>(s.planes * s.height * s.width / 4));
      halve(s, sums.data(), [&](std::int64_t i) { return (g[i] + g[i + 1]) + (g[i + s.width] + g[i + s.width + 1]); });
      host::write(c, 0, [&](std::size_t i) { return sums[i]; });
    };
    return k;
  }

  [[nodiscard]] concatenation_kernels<kernel> concatenate(const concatenation_sizes& s) const {
    concatenation_kernels<kernel> k;
    const std::int64_t both = s.first + s.second;
    const auto put = [](float* to, const float* from, std::int64_t n, bool adds) {
      host::write(to, static_cast<std::size_t>(n), adds, [&](std::size_t i) { return from[i]; });
    };
    k.forward.run = [=](const host_call& c) {
      for (std::int64_t n = 0; n < s.batch; ++n) {
        float* y = c.output<float>(0).data() + n * both;
        put(y, c.input<float>(0).data() + n * s.first, s.first, false);
        put(y + s.first, c.input<float>(1).data() + n * s.second, s.second, false);
      }
    };
    k.first.run = [=](const host_call& c) {
      for (std::int64_t n = 0; n < s.batch; ++n)
        put(c.output<float>(0).data() + n * s.first, c.input<float>(0).data() + n * both, s.first, c.adds[0] != 0);
    };
    k.second.run = [=](const host_call& c) {
      for (std::int64_t n = 0; n < s.batch; ++n)
        put(c.output<float>(0).data() + n * s.second, c.input<float>(0).data() + n * both + s.first, s.second,
            c.adds[0] != 0);
    };
    return k;
  }

  [[nodiscard]] unary_kernels<kernel> binary_cross_entropy(std::int64_t size) const {
    unary_kernels<kernel> k;
    k.forward.run = [size](const host_call& c) {
      const auto x = c.input<float>(0), target = c.input<float>(1);
      double total = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        total += static_cast<double>(std::max(x[i], 0.0F) - target[i] * x[i] +
                                     std::log1p(host::exponential(-std::abs(x[i]))));
      c.output<float>(0)[0] = static_cast<float>(total / static_cast<double>(size));
    };
    k.backward.run = [size](const host_call& c) {
      const auto x = c.input<float>(0), target = c.input<float>(1);
      const float g = c.input<float>(2)[0] / static_cast<float>(size);
      host::write(c, 0, [&](std::size_t i) { return g * (1 / (1 + host::exponential(-x[i])) - target[i]); });
    };
    return k;
  }

 private:
  /// Row (channel, dy, dx) of `columns` is the channel moved by (dy, dx), with zeros where that leaves the image.
  static void unfold(const convolution_sizes& s, const float* x, float* columns) {
    const std::int64_t reach = s.kernel / 2;
    for (std::int64_t channel = 0; channel < s.in; ++channel)
      for (std::int64_t dy = -reach; dy <= reach; ++dy)
        for (std::int64_t dx = -reach; dx <= reach; ++dx)
          for (std::int64_t row = 0; row < s.height; ++row, columns += s.width) {
            std::fill(columns, columns + s.width, 0.0F);
            const std::int64_t begin = std::max<std::int64_t>(0, -dx), end = std::min(s.width, s.width - dx);
            if (row + dy < 0 || row + dy >= s.height || begin >= end) continue;
            const float* from = x + (channel * s.height + row + dy) * s.width + dx;
            std::copy(from + begin, from + end, columns + begin);
          }
  }

  /// The transpose of `unfold`.
  static void fold(const convolution_sizes& s, const float* columns, float* x, bool adds) {
    const std::int64_t reach = s.kernel / 2, pixels = s.height * s.width;
    std::vector<float> sum(static_cast<std::size_t>(s.width));
    for (std::int64_t channel = 0; channel < s.in; ++channel)
      for (std::int64_t row = 0; row < s.height; ++row) {
        std::fill(sum.begin(), sum.end(), 0.0F);
        const float* tap = columns + channel * s.kernel * s.kernel * pixels;
        for (std::int64_t dy = -reach; dy <= reach; ++dy)
          for (std::int64_t dx = -reach; dx <= reach; ++dx, tap += pixels) {
            if (row - dy < 0 || row - dy >= s.height) continue;
            const float* from = tap + (row - dy) * s.width - dx;
            for (std::int64_t i = std::max<std::int64_t>(0, dx); i < std::min(s.width, s.width + dx); ++i)
              sum[static_cast<std::size_t>(i)] += from[i];
          }
        host::write(x + (channel * s.height + row) * s.width, sum.size(), adds, [&](std::size_t i) { return sum[i]; });
      }
  }

  /// `y[small] = value(large)` for each pixel of the smaller planes; `large` is the first of its four.
  template <class Value>
  static void halve(const plane_sizes& s, float* y, const Value& value) {
    for (std::int64_t p = 0; p < s.planes; ++p)
      for (std::int64_t row = 0; row < s.height / 2; ++row)
        for (std::int64_t i = 0; i < s.width / 2; ++i) *y++ = value((p * s.height + 2 * row) * s.width + 2 * i);
  }

  /// Writes or adds `value(large, small, part)` to each of the four parts of the larger planes.
  template <class Value>
  static void widen(const plane_sizes& s, const host_call& c, const Value& value) {
    float* out = c.output<float>(0).data();
    for (std::int64_t row = 0; row < s.planes * s.height; ++row)
      host::write(out + row * s.width, static_cast<std::size_t>(s.width), c.adds[0] != 0, [&](std::size_t e) {
        const auto i = static_cast<std::int64_t>(e);
        return value((row - row % 2) * s.width + i - i % 2, row / 2 * (s.width / 2) + i / 2, row % 2 * 2 + i % 2);
      });
  }
};

}  // namespace train
