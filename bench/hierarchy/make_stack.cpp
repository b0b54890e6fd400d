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
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "support/block_stack.hpp"

namespace {

using namespace remat;

/// Writes `graph` in the format training-graph, version 1. Names are written as they are: they hold no character that
/// JSON escapes.
class graph_writer {
 public:
  graph_writer(std::ostream& out, const training_graph& graph) : out_(out), graph_(graph) {}

  void run() {
    out_ << "{\"format\": \"training-graph\", \"version\": 1, \"name\": \"" << graph_.name()
         << "\",\n \"source\": {\"note\": \"generated\"},\n \"tensors\": [";
    for (std::size_t t = 0; t < graph_.num_tensors(); ++t) tensor(static_cast<tensor_id>(t));
    out_ << "],\n \"operations\": [";
    for (std::size_t o = 0; o < graph_.num_operations(); ++o) operation(static_cast<op_id>(o));
    out_ << "],\n \"outputs\": ";
    list(graph_.final_outputs());
    const problem p(graph_, roofline_cost{});
    out_ << ",\n \"baseline\": {\"peak_bytes\": " << p.graph().baseline_peak << "}}\n";
  }

 private:
  void tensor(tensor_id t) {
    constexpr const char* kinds[] = {"parameter", "input", "activation", "gradient", "saved"};
    out_ << (index(t) == 0 ? "\n  " : ",\n  ") << "{\"id\": " << index(t) << ", \"name\": \"" << graph_.name(t)
         << "\", \"bytes\": " << graph_.bytes(t) << ", \"kind\": \"" << kinds[static_cast<std::size_t>(graph_.kind(t))]
         << "\"}";
  }

  void operation(op_id o) {
    const op_phase phase = graph_.phase(o);
    const char* name = phase == op_phase::forward ? "forward" : phase == op_phase::loss ? "loss" : "backward";
    out_ << (index(o) == 0 ? "\n  " : ",\n  ") << "{\"id\": " << index(o) << ", \"name\": \"" << graph_.name(o)
         << "\", \"phase\": \"" << name << "\", \"inputs\": ";
    list(graph_.inputs(o));
    out_ << ", \"outputs\": ";
    list(graph_.outputs(o));
    out_ << ", \"flops\": " << whole(graph_.flops(o)) << ", \"bytes_accessed\": " << whole(graph_.bytes_accessed(o))
         << ", \"deterministic\": " << (graph_.deterministic(o) ? "true" : "false") << "}";
  }

  static std::int64_t whole(double figure) { return static_cast<std::int64_t>(figure); }

  void list(std::span<const tensor_id> ids) {
    out_ << "[";
    for (std::size_t i = 0; i < ids.size(); ++i) out_ << (i == 0 ? "" : ", ") << index(ids[i]);
    out_ << "]";
  }

  std::ostream& out_;
  const training_graph& graph_;
};

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
  graph_writer(std::cout, test::make_stack(*kind, options)).run();
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
