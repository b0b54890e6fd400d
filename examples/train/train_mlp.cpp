// SPDX-License-Identifier: BSL-1.0
// Trains a deep network of linear layers to tell the arms of a spiral apart, with and without rematerialization.
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>

#include "train/host_backend.hpp"
#include "train/layers.hpp"
#include "train/program.hpp"
#include "train/trainer.hpp"

namespace {

struct mlp_sizes {
  std::int64_t batch = 256, width = 64, layers = 10;
  float dropout = 0.05F;
};

constexpr std::int64_t arms = 3;

train::training_task make_mlp(const mlp_sizes& sizes) {
  train::network<train::host_backend> net("mlp");
  const remat::tensor_id points = net.builder.input("points", sizes.batch * 2 * 4);
  const remat::tensor_id labels = net.builder.input("labels", sizes.batch * 4);
  train::matrix x{points, sizes.batch, 2};
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    x = train::dense(net, name, x, sizes.width);
    x = train::layer_norm(net, name + ".norm", x);
    x = train::relu(net, name + ".relu", x);
    x = train::dropout(net, name + ".dropout", x, sizes.dropout);
  }
  const remat::tensor_id loss = train::cross_entropy(net, "loss", train::dense(net, "head", x, arms), labels);
  return train::make_task(net, loss, {points, labels}, [](std::uint64_t step, std::span<train::aligned_buffer> inputs) {
    const auto xy = inputs[0].values<float>();
    const auto label = inputs[1].values<std::int32_t>();
    std::mt19937_64 engine(step);
    const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    for (std::size_t i = 0; i < label.size(); ++i) {
      const auto arm = static_cast<std::int32_t>(engine() % arms);
      const double radius = uniform();
      const double angle = 6.2832 * (static_cast<double>(arm) / arms + 0.75 * radius) + 0.2 * (uniform() - 0.5);
      xy[2 * i] = static_cast<float>(radius * std::cos(angle));
      xy[2 * i + 1] = static_cast<float>(radius * std::sin(angle));
      label[i] = arm;
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  mlp_sizes sizes;
  return train::train_main(argc, argv, "Trains a deep multi-layer perceptron with and without rematerialization.",
                           2e-3F,
                           {{"--batch", &sizes.batch, "points"},
                            {"--width", &sizes.width, "of the layers"},
                            {"--layers", &sizes.layers, "hidden ones"},
                            {"--dropout", &sizes.dropout, "rate"}},
                           [&] { return make_mlp(sizes); });
}
