// SPDX-License-Identifier: BSL-1.0
#include "support/block_stack.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace {

using namespace remat;

/// The kinds of the tensors that `o` reads, one letter each in the order of the alphabet: a for activation, g for
/// gradient, i for input, p for parameter, s for saved.
std::string kinds_read(const training_graph& g, op_id o) {
  constexpr char letter[] = {'p', 'i', 'a', 'g', 's'};
  std::string out;
  for (const tensor_id t : g.inputs(o)) out += letter[static_cast<std::size_t>(g.kind(t))];
  std::sort(out.begin(), out.end());
  return out;
}

/// The name of the operation that makes each tensor; of several, the last.
std::vector<std::string_view> maker_names(const training_graph& g) {
  std::vector<std::string_view> maker(g.num_tensors());
  for (std::size_t o = 0; o < g.num_operations(); ++o)
    for (const tensor_id t : g.outputs(static_cast<op_id>(o))) maker[index(t)] = g.name(static_cast<op_id>(o));
  return maker;
}

}  // namespace

TEST_CASE("the backward of a stack reads what differentiation needs, and nothing else") {
  for (const auto& [name, kind] : test::stack_kinds) {
    CAPTURE(name);
    test::stack_options options;
    options.blocks = 20;
    const training_graph g = make_stack(kind, options);
    const std::vector<std::string_view> maker = maker_names(g);
    std::size_t rules = 0;
    for (std::size_t i = 0; i < g.num_operations(); ++i) {
      const auto o = static_cast<op_id>(i);
      if (g.phase(o) != op_phase::backward) continue;
      const std::string_view op = g.name(o);
      const std::string reads = kinds_read(g, o);
      CAPTURE(op);
      ++rules;
      if (op == "input gradient") CHECK(reads == "gp");
      if (op == "weight gradient") CHECK((reads == "ag" || reads == "gi"));
      if (op == "norm backward") CHECK(reads == "agps");
      if (op == "dropout backward") CHECK(reads == "gs");
      if (op == "slice" || op == "resize backward") CHECK(reads == "g");
      if (op == "attention backward") CHECK(reads == "aaaags");
      if (op == "loss backward") CHECK(reads == "gis");
      if (op == "mean backward") CHECK(reads == "g");
      if (op == "product gradient") CHECK((reads == "ag" || reads == "gp"));
      if (op == "map backward") CHECK((reads == "ag" || reads == "g"));
      if (op == "relu backward" || op == "gelu backward") {
        CHECK(reads == "ag");
        for (const tensor_id t : g.inputs(o))  // relu needs its result, gelu what it was computed from
          if (g.kind(t) == tensor_kind::activation) CHECK((maker[index(t)] == "relu") == (op == "relu backward"));
      }
    }
    CHECK(rules > 20 * 7);
  }
}

TEST_CASE("a stack of N blocks grows by like blocks, and every parameter gets its gradient") {
  for (const auto& [name, kind] : test::stack_kinds) {
    CAPTURE(name);
    std::vector<std::size_t> operations;
    for (const std::uint32_t blocks : {16U, 32U, 48U, 200U}) {
      test::stack_options options;
      options.blocks = blocks;
      const training_graph g = make_stack(kind, options);
      operations.push_back(g.num_operations());
      std::size_t parameters = 0;
      for (std::size_t t = 0; t < g.num_tensors(); ++t)
        parameters += g.kind(static_cast<tensor_id>(t)) == tensor_kind::parameter;
      CHECK(g.final_outputs().size() == parameters + 1);  // the loss
      const problem p(g, roofline_cost{});
      CHECK(std::count(p.graph().needed.begin(), p.graph().needed.end(), 1) ==
            static_cast<std::ptrdiff_t>(g.num_operations()));
      CHECK(p.graph().baseline_peak > std::int64_t{1} << 28);
    }
    const auto in_16 = static_cast<std::ptrdiff_t>(operations[1] - operations[0]);
    CHECK(in_16 >= 16 * 15);
    // Every sixteenth dense layer reads more layers before it, and the numbers of levels and stages are fixed.
    if (kind == test::stack_kind::decoder || kind == test::stack_kind::rotary_decoder ||
        kind == test::stack_kind::encoder_decoder) {
      CHECK(static_cast<std::ptrdiff_t>(operations[2] - operations[1]) == in_16);
      CHECK(static_cast<std::ptrdiff_t>(operations[3] - operations[2]) == in_16 * 19 / 2);
    }
  }
}

TEST_CASE("sizes of a stack are checked") {
  test::stack_options options;
  options.blocks = 0;
  CHECK_THROWS_AS(static_cast<void>(make_stack(test::stack_kind::decoder, options)), bad_argument);
  options.blocks = 1;
  CHECK_THROWS_AS(static_cast<void>(make_stack(test::stack_kind::u_net, options)), bad_argument);
  CHECK_THROWS_AS(static_cast<void>(make_stack(test::stack_kind::encoder_decoder, options)), bad_argument);
  CHECK(make_stack(test::stack_kind::dense, options).num_operations() > 20);
  options.width = 0;
  CHECK_THROWS_AS(static_cast<void>(make_stack(test::stack_kind::decoder, options)), bad_argument);
}
