// SPDX-License-Identifier: BSL-1.0
// Trains a small U-Net to find shapes in noise, with and without rematerialization.
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>

#include "train/host_image_backend.hpp"
#include "train/program.hpp"
#include "train/trainer.hpp"
#include "train/unet.hpp"

namespace {

/// Images of a disc and a rectangle that are brighter than the background, with noise. The mask is 1 inside of them.
void draw(std::uint64_t step, std::int64_t side, std::span<float> images, std::span<float> masks) {
  std::mt19937_64 engine(step);
  const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
  const auto length = static_cast<double>(side);
  const auto pixels = static_cast<std::size_t>(side * side);
  for (std::size_t begin = 0; begin < images.size(); begin += pixels) {
    const double x = length * uniform(), y = length * uniform(), radius = length * (0.1 + 0.15 * uniform());
    const double left = length * uniform(), top = length * uniform();
    const double right = left + length * (0.15 + 0.3 * uniform()), bottom = top + length * (0.15 + 0.3 * uniform());
    for (std::size_t i = 0; i < pixels; ++i) {
      const double column = static_cast<double>(i % static_cast<std::size_t>(side)) + 0.5;
      const double row = static_cast<double>(i / static_cast<std::size_t>(side)) + 0.5;
      const bool inside =
          std::hypot(column - x, row - y) < radius || (column > left && column < right && row > top && row < bottom);
      masks[begin + i] = inside ? 1.0F : 0.0F;
      images[begin + i] = static_cast<float>((inside ? 0.6 : -0.2) + 1.5 * (uniform() - 0.5));
    }
  }
}

train::training_task make_task(const train::unet_sizes& sizes) {
  if (sizes.depth > 10) throw std::invalid_argument("--depth is " + std::to_string(sizes.depth) + "; at most 10");
  if (sizes.side % (std::int64_t{1} << sizes.depth) != 0)
    throw std::invalid_argument("--side is " + std::to_string(sizes.side) + "; it must be a multiple of 2^depth, " +
                                std::to_string(std::int64_t{1} << sizes.depth));
  if (sizes.channels % 4 != 0)
    throw std::invalid_argument("--channels is " + std::to_string(sizes.channels) + "; it must be a multiple of 4");
  train::network<train::host_image_backend> net("unet");
  const train::unet u = train::make_unet(net, sizes);
  return train::make_task(net, u.loss, {u.images, u.masks},
                          [side = sizes.side](std::uint64_t step, std::span<train::aligned_buffer> inputs) {
                            draw(step, side, inputs[0].values<float>(), inputs[1].values<float>());
                          });
}

}  // namespace

int main(int argc, char** argv) {
  train::unet_sizes sizes;
  return train::train_main(argc, argv,
                           "Trains a small U-Net to find shapes in noise, with and without rematerialization.", 3e-3F,
                           {{"--batch", &sizes.batch, "images"},
                            {"--side", &sizes.side, "of an image, pixels"},
                            {"--channels", &sizes.channels, "at full size; twice as many at each half"},
                            {"--depth", &sizes.depth, "how often the images are halved"}},
                           [&] { return make_task(sizes); });
}
