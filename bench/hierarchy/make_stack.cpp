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
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
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

int run(int argc, char** argv) {
  std::string name;
  std::vector<std::string> given, kinds;
  test::stack_options options;
  for (const auto& entry : test::stack_kinds) kinds.emplace_back(entry.first);
  bench::command_line app("make_stack",
                          "Writes the training graph of a deep stack of like blocks as JSON: it measures nothing, but "
                          "makes graphs of any depth for the other programs.");
  app.text("kind", name, "The kind of block", "KIND", kinds)->required();
  app.number<std::uint32_t>("blocks", options.blocks, "The number of blocks", 1, 1'000'000)->required();
  app.add_option("sizes", given, "Sizes: batch=, tokens=, width=, picture=, channels=")->type_name("NAME=NUMBER");
  if (!app.read(argc, argv)) return 0;
  const test::stack_kind* kind = nullptr;
  for (const auto& [known, k] : test::stack_kinds)
    if (known == name) kind = &k;
  const std::pair<std::string_view, std::int64_t*> sizes[] = {{"batch", &options.batch},
                                                              {"tokens", &options.tokens},
                                                              {"width", &options.width},
                                                              {"picture", &options.picture},
                                                              {"channels", &options.channels}};
  for (const std::string_view argument : given) {
    const std::size_t at = argument.find('=');
    std::int64_t* size = nullptr;
    for (const auto& [name, where] : sizes)
      if (at != argument.npos && argument.substr(0, at) == name) size = where;
    if (!size) throw bad_argument(std::string(argument) + " is none of batch=, tokens=, width=, picture=, channels=");
    *size = number(argument.substr(at + 1));
  }
  std::cout << to_json(test::make_stack(*kind, options));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("make_stack", [&] { return run(argc, argv); });
}
