// SPDX-License-Identifier: BSL-1.0
//
// make_stack: writes the training graph of a deep stack of like blocks (tests/support/block_stack.hpp) as JSON.
//
//     make_stack decoder 64 > decoder-64.json && remat-plan decoder-64.json --solver hiremate --budget 0.5
//
// KIND is decoder, rotary-decoder, residual, dense, u-net or encoder-decoder. After the number of blocks, sizes may
// follow as NAME=NUMBER: batch, tokens, width, picture, channels. Exit status: 0 done, 2 unusable arguments.

#include <charconv>
#include <cstdint>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "remat/core/error.hpp"
#include "remat/io/training_graph_json.hpp"
#include "support/block_stack.hpp"

namespace {

using namespace remat;

std::int64_t number(std::string_view text) {
  std::int64_t n = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (wrong != std::errc() || end != text.data() + text.size() || n < 1 || n > 1'000'000)
    throw bad_argument("\"" + std::string(text) + "\" is no whole number from 1 to 1000000");
  return n;
}

void run(std::span<char*> arguments) {
  if (arguments.size() < 2) throw bad_argument("usage: make_stack KIND BLOCKS [NAME=NUMBER …]");
  const test::stack_kind* kind = nullptr;
  for (const auto& [name, k] : test::stack_kinds)
    if (name == arguments[0]) kind = &k;
  if (!kind) throw bad_argument(std::string(arguments[0]) + " is no kind of stack");
  test::stack_options options;
  options.blocks = static_cast<std::uint32_t>(number(arguments[1]));
  const std::pair<std::string_view, std::int64_t*> sizes[] = {{"batch", &options.batch},
                                                              {"tokens", &options.tokens},
                                                              {"width", &options.width},
                                                              {"picture", &options.picture},
                                                              {"channels", &options.channels}};
  for (const std::string_view argument : arguments.subspan(2)) {
    const std::size_t at = argument.find('=');
    std::int64_t* size = nullptr;
    for (const auto& [name, where] : sizes)
      if (at != argument.npos && argument.substr(0, at) == name) size = where;
    if (!size) throw bad_argument(std::string(argument) + " is none of batch=, tokens=, width=, picture=, channels=");
    *size = number(argument.substr(at + 1));
  }
  std::cout << to_json(test::make_stack(*kind, options));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(std::span<char*>(argv + 1, argv + (argc > 0 ? argc : 1)));
    std::cout.flush();
    return std::cout ? 0 : 2;
  } catch (const std::exception& e) {
    std::cerr << "make_stack: " << e.what() << "\n";
    return 2;
  }
}
