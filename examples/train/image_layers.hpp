// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Layers on images, batch × channels × height × width. `layers.hpp` describes backends.

#include <cmath>
#include <cstdint>
#include <string>

#include "train/layers.hpp"

namespace train {

struct image {
  tensor_id id{};
  std::int64_t batch = 0, channels = 0, height = 0, width = 0;

  [[nodiscard]] std::int64_t pixels() const noexcept { return height * width; }
  [[nodiscard]] std::int64_t size() const noexcept { return batch * channels * pixels(); }
  [[nodiscard]] matrix as_matrix() const noexcept { return {id, batch * channels, pixels()}; }
};

template <class Backend>
image make_image(network<Backend>& net, const std::string& name, std::int64_t batch, std::int64_t channels,
                 std::int64_t height, std::int64_t width) {
  const matrix m = net.make_activation(name, batch * channels, height * width);
  return {m.id, batch, channels, height, width};
}

template <class Backend>
image relu(network<Backend>& net, const std::string& name, image x) {
  const matrix y = relu(net, name, x.as_matrix());
  return {y.id, x.batch, x.channels, x.height, x.width};
}

struct convolution_sizes {
  std::int64_t batch = 0, in = 0, out = 0, height = 0, width = 0, kernel = 3;  ///< kernel: odd
};

/// Convolution with stride 1, padded with zeros to the same size.
/// Kernels: forward: x, w[out, in · kernel²], b[out] → y. input: w, grad(y) → grad(x). weight: x, grad(y) → grad(w),
/// grad(b).
template <class Backend>
image convolution(network<Backend>& net, const std::string& name, image x, std::int64_t out, std::int64_t kernel) {
  const convolution_sizes sizes{x.batch, x.channels, out, x.height, x.width, kernel};
  const auto k = net.backend.convolution(sizes);
  const std::int64_t taps = x.channels * kernel * kernel;
  const matrix w = net.make_parameter(name + ".weight", out, taps, 0, std::sqrt(2.0F / static_cast<float>(taps)));
  const matrix b = net.make_parameter(name + ".bias", 1, out, 0, 0);
  const image y = make_image(net, name, x.batch, out, x.height, x.width);
  const double flops = 2 * as_double(y.size()) * as_double(taps);
  const double bytes = 4 * as_double(x.size() + y.size() + w.size());
  net.builder.add({.name = name,
                   .inputs = {x.id, w.id, b.id},
                   .outputs = {y.id},
                   .flops = flops,
                   .bytes_accessed = bytes,
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.name = name + " backward input",
                                 .inputs = {w.id, grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = flops,
                                 .bytes_accessed = bytes,
                                 .workspace = k.input.workspace,
                                 .kernel = k.input.run},
                                {.name = name + " backward weight",
                                 .inputs = {x.id, grad(y.id)},
                                 .outputs = {grad(w.id), grad(b.id)},
                                 .flops = flops,
                                 .bytes_accessed = bytes,
                                 .workspace = k.weight.workspace,
                                 .kernel = k.weight.run}}});
  return y;
}

struct group_norm_sizes {
  std::int64_t batch = 0, channels = 0, pixels = 0, groups = 0;
};

/// As `layer_norm`, over each group of channels of each image, with a gamma and a beta for each channel.
/// The kernels have the arguments of those of `layer_norm`, with `batch · groups` pairs of statistics.
template <class Backend>
image group_norm(network<Backend>& net, const std::string& name, image x, std::int64_t groups) {
  const auto k = net.backend.group_norm({x.batch, x.channels, x.pixels(), groups});
  const matrix gamma = net.make_parameter(name + ".gamma", 1, x.channels, 1, 0);
  const matrix beta = net.make_parameter(name + ".beta", 1, x.channels, 0, 0);
  const image y = make_image(net, name, x.batch, x.channels, x.height, x.width);
  const tensor_id statistics = net.builder.saved(name + ".statistics", x.batch * groups * 8);
  net.builder.add({.name = name,
                   .inputs = {x.id, gamma.id, beta.id},
                   .outputs = {y.id, statistics},
                   .flops = 8 * as_double(x.size()),
                   .bytes_accessed = 8 * as_double(x.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.name = name + " backward input",
                                 .inputs = {x.id, gamma.id, statistics, grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = 11 * as_double(x.size()),
                                 .bytes_accessed = 12 * as_double(x.size()),
                                 .workspace = k.input.workspace,
                                 .kernel = k.input.run},
                                {.name = name + " backward parameters",
                                 .inputs = {x.id, statistics, grad(y.id)},
                                 .outputs = {grad(gamma.id), grad(beta.id)},
                                 .flops = 5 * as_double(x.size()),
                                 .bytes_accessed = 8 * as_double(x.size()),
                                 .workspace = k.parameters.workspace,
                                 .kernel = k.parameters.run}}});
  return y;
}

/// `planes` images of one channel, whose sides halve or double.
struct plane_sizes {
  std::int64_t planes = 0, height = 0,
               width = 0;  ///< of the larger image: the input of pooling, the output of upsampling
};

/// The largest of each 2 × 2 pixels. The gradient goes to the first pixel with that value. Backward: x, grad(y) →
/// grad(x).
template <class Backend>
image max_pool(network<Backend>& net, const std::string& name, image x) {
  const auto k = net.backend.max_pool({x.batch * x.channels, x.height, x.width});
  const image y = make_image(net, name, x.batch, x.channels, x.height / 2, x.width / 2);
  net.builder.add({.name = name,
                   .inputs = {x.id},
                   .outputs = {y.id},
                   .flops = as_double(x.size()),
                   .bytes_accessed = 5 * as_double(x.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {x.id, grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = as_double(x.size()),
                                 .bytes_accessed = 9 * as_double(x.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return y;
}

/// The mean of each 2 × 2 pixels. Backward: grad(y) → grad(x).
template <class Backend>
image average_pool(network<Backend>& net, const std::string& name, image x) {
  const auto k = net.backend.average_pool({x.batch * x.channels, x.height, x.width});
  const image y = make_image(net, name, x.batch, x.channels, x.height / 2, x.width / 2);
  net.builder.add({.name = name,
                   .inputs = {x.id},
                   .outputs = {y.id},
                   .flops = as_double(x.size()),
                   .bytes_accessed = 5 * as_double(x.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = as_double(x.size()),
                                 .bytes_accessed = 5 * as_double(x.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return y;
}

/// Repeats each pixel four times, as 2 × 2 pixels. Backward: grad(y) → grad(x).
template <class Backend>
image upsample(network<Backend>& net, const std::string& name, image x) {
  const auto k = net.backend.upsample({x.batch * x.channels, 2 * x.height, 2 * x.width});
  const image y = make_image(net, name, x.batch, x.channels, 2 * x.height, 2 * x.width);
  net.builder.add({.name = name,
                   .inputs = {x.id},
                   .outputs = {y.id},
                   .flops = 0,
                   .bytes_accessed = 5 * as_double(y.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = as_double(y.size()),
                                 .bytes_accessed = 5 * as_double(y.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return y;
}

struct concatenation_sizes {
  std::int64_t batch = 0, first = 0, second = 0;  ///< elements of an image of each
};
template <class Kernel>
struct concatenation_kernels {
  work<Kernel> forward;        ///< a, b → y
  work<Kernel> first, second;  ///< grad(y) → grad(a); grad(y) → grad(b)
};

/// Joins the channels of a and of b, in that order.
template <class Backend>
image concatenate(network<Backend>& net, const std::string& name, image a, image b) {
  const auto k = net.backend.concatenate({a.batch, a.size() / a.batch, b.size() / b.batch});
  const image y = make_image(net, name, a.batch, a.channels + b.channels, a.height, a.width);
  net.builder.add({.name = name,
                   .inputs = {a.id, b.id},
                   .outputs = {y.id},
                   .flops = 0,
                   .bytes_accessed = 8 * as_double(y.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.name = name + " backward first",
                                 .inputs = {grad(y.id)},
                                 .outputs = {grad(a.id)},
                                 .flops = 0,
                                 .bytes_accessed = 8 * as_double(a.size()),
                                 .workspace = k.first.workspace,
                                 .kernel = k.first.run},
                                {.name = name + " backward second",
                                 .inputs = {grad(y.id)},
                                 .outputs = {grad(b.id)},
                                 .flops = 0,
                                 .bytes_accessed = 8 * as_double(b.size()),
                                 .workspace = k.second.workspace,
                                 .kernel = k.second.run}}});
  return y;
}

/// The mean of the logistic loss: log(1 + e^x) − target · x, with targets of 0 and 1.
/// Forward: x, targets → loss. Backward: x, targets, grad(loss) → grad(x).
template <class Backend>
tensor_id binary_cross_entropy(network<Backend>& net, const std::string& name, image x, tensor_id targets) {
  const auto k = net.backend.binary_cross_entropy(x.size());
  const tensor_id loss = net.builder.activation(name, 4);
  net.builder.add({.name = name,
                   .inputs = {x.id, targets},
                   .outputs = {loss},
                   .flops = 20 * as_double(x.size()),
                   .bytes_accessed = 8 * as_double(x.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {x.id, targets, grad(loss)},
                                 .outputs = {grad(x.id)},
                                 .flops = 20 * as_double(x.size()),
                                 .bytes_accessed = 12 * as_double(x.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return loss;
}

}  // namespace train
