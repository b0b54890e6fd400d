// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/image_layers.hpp"

namespace train {

struct unet_sizes {
  std::int64_t batch = 4, side = 32, channels = 8, depth = 2;  ///< side: a multiple of 2^depth; channels: of 4
};

/// The tensors that a caller binds and reads: images[batch, 1, side, side], and their masks of zeros and ones.
struct unet {
  tensor_id images{}, masks{}, loss{};
};

/// Two convolutions, each with group norm and relu.
template <class Backend>
image make_unet_block(network<Backend>& net, const std::string& name, image x, std::int64_t channels) {
  for (const char* part : {"a", "b"}) {
    x = convolution(net, name + ".convolution_" + part, x, channels, 3);
    x = group_norm(net, name + ".norm_" + part, x, channels / 4);
    x = relu(net, name + ".relu_" + part, x);
  }
  return x;
}

/// A U-Net that classifies each pixel as part of a shape or not. The image is halved `depth` times and doubled as
/// often; at each size, the channels from the way down are joined to those on the way up.
template <class Backend>
unet make_unet(network<Backend>& net, const unet_sizes& sizes) {
  unet u;
  const std::int64_t bytes = sizes.batch * sizes.side * sizes.side * 4;
  u.images = net.builder.input("images", bytes);
  u.masks = net.builder.input("masks", bytes);
  image x{u.images, sizes.batch, 1, sizes.side, sizes.side};
  std::vector<image> skips;
  std::int64_t channels = sizes.channels;
  for (std::int64_t level = 0; level < sizes.depth; ++level, channels *= 2) {
    const std::string name = "down" + std::to_string(level);
    x = make_unet_block(net, name, x, channels);
    skips.push_back(x);
    x = max_pool(net, name + ".pool", x);
  }
  x = make_unet_block(net, "bottom", x, channels);
  while (!skips.empty()) {
    const std::string name = "up" + std::to_string(skips.size() - 1);
    channels /= 2;
    x = upsample(net, name + ".upsample", x);
    x = convolution(net, name + ".convolution", x, channels, 3);
    x = concatenate(net, name + ".concatenate", skips.back(), x);
    x = make_unet_block(net, name, x, channels);
    skips.pop_back();
  }
  x = convolution(net, "head", x, 1, 1);
  u.loss = binary_cross_entropy(net, "loss", x, u.masks);
  return u;
}

}  // namespace train
