// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "train/layers.hpp"

namespace train {

struct gpt_sizes {
  std::int64_t batch = 8, context = 64, width = 64, heads = 4, layers = 4, vocabulary = 64;
  float dropout = 0.1F;
};

/// The tensors that a caller binds and reads. Both inputs are batch · context 32-bit integers.
struct gpt {
  tensor_id tokens{}, targets{}, loss{};
};

/// A language model in the form of GPT-2: blocks of attention and of a two-layer network, each with a layer norm before
/// it, a residual connection around it, and dropout. The kernels come from the network's backend.
template <class Backend>
gpt make_gpt(network<Backend>& net, const gpt_sizes& sizes) {
  const std::int64_t rows = sizes.batch * sizes.context;
  gpt g;
  g.tokens = net.builder.input("tokens", rows * 4);
  g.targets = net.builder.input("targets", rows * 4);
  matrix h = embedding(net, "embedding", g.tokens, {sizes.batch, sizes.context, sizes.vocabulary, sizes.width});
  h = dropout(net, "embedding.dropout", h, sizes.dropout);
  const float residual_gain = 1 / std::sqrt(2 * static_cast<float>(sizes.layers));
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    const std::string name = "block" + std::to_string(layer) + ".";
    matrix x = layer_norm(net, name + "norm1", h);
    x = dense(net, name + "qkv", x, 3 * sizes.width);
    x = attention(net, name + "attention", x, sizes.batch, sizes.heads);
    x = dense(net, name + "projection", x, sizes.width, true, residual_gain);
    x = dropout(net, name + "dropout1", x, sizes.dropout);
    h = add(net, name + "add1", h, x);
    x = layer_norm(net, name + "norm2", h);
    x = dense(net, name + "expand", x, 4 * sizes.width);
    x = gelu(net, name + "gelu", x);
    x = dense(net, name + "contract", x, sizes.width, true, residual_gain);
    x = dropout(net, name + "dropout2", x, sizes.dropout);
    h = add(net, name + "add2", h, x);
  }
  h = layer_norm(net, "norm", h);
  const matrix logits = dense(net, "head", h, sizes.vocabulary, false);
  g.loss = cross_entropy(net, "loss", logits, g.targets);
  return g;
}

}  // namespace train
