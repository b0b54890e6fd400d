// SPDX-License-Identifier: BSL-1.0
// Trains a small GPT on text, letter by letter, with and without rematerialization.
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "train/gpt.hpp"
#include "train/host_backend.hpp"
#include "train/program.hpp"
#include "train/text.hpp"
#include "train/trainer.hpp"

namespace {

train::training_task make_task(train::gpt_sizes sizes, const std::string& file) {
  if (sizes.width % sizes.heads != 0)
    throw std::invalid_argument("--width is " + std::to_string(sizes.width) + "; it must be a multiple of the heads, " +
                                std::to_string(sizes.heads));
  const auto text =
      std::make_shared<train::text>(file.empty() ? train::generated_text(20'000, 1) : train::read_text(file));
  if (text->letters.size() < static_cast<std::size_t>(sizes.context) + 2)
    throw std::invalid_argument("the text is shorter than the context, " + std::to_string(sizes.context) + " letters");
  sizes.vocabulary = text->vocabulary;
  train::network<train::host_backend> net("gpt");
  const train::gpt g = train::make_gpt(net, sizes);
  return train::make_task(net, g.loss, {g.tokens, g.targets},
                          [text, sizes](std::uint64_t step, std::span<train::aligned_buffer> inputs) {
                            train::load_text(*text, step, static_cast<std::size_t>(sizes.context),
                                             inputs[0].values<std::int32_t>(), inputs[1].values<std::int32_t>());
                          });
}

}  // namespace

int main(int argc, char** argv) {
  train::gpt_sizes sizes;
  sizes.batch = 4;
  sizes.context = 48;
  sizes.width = 48;
  sizes.layers = 3;
  std::string file;
  return train::train_main(argc, argv,
                           "Trains a small GPT on text, letter by letter, with and without rematerialization.", 3e-3F,
                           {{"--batch", &sizes.batch, "pieces of text"},
                            {"--context", &sizes.context, "letters of a piece"},
                            {"--width", &sizes.width, "of the model"},
                            {"--heads", &sizes.heads, "of the attention"},
                            {"--layers", &sizes.layers, "blocks"},
                            {"--dropout", &sizes.dropout, "rate"},
                            {"--text", &file, "a file to train on, in place of generated sentences"}},
                           [&] { return make_task(sizes, file); });
}
